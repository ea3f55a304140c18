//! Which runtimes of several processes share objects: the coordinator's part.
//!
//! # Theory of operation
//!
//! ```text
//!   heartbeats ─► Report: reached, met, leaves ─┐
//!   view of the members ────────────────────────┴─► look ─► Decision ─ log ─► logged ─► told to all
//!                                                    ▲                                       │
//!                                                    └────────── reached ◄───────────────────┘
//! ```
//!
//! A [`Conductor`] says what comes next; this machine says which runtimes are meant, by their
//! incarnations. Each [`Decision`] is in the log before a runtime hears of it, and the stages that
//! runtimes have reached are not: runtimes say them again and again. So another coordinator goes on
//! with the newest decision.
//!
//! | cause | decided |
//! |---|---|
//! | the members' view has not got an incarnation any more | a failure view without it |
//! | all that are told have reached the stage | the next stage |
//! | a runtime of the view has met all others, and they have met it | a change to a view with it |
//! | a runtime wants to leave | a change to a view without it |
//! | all of the view want to leave | a view without members |
//!
//! *Incarnation.* A number is one runtime's at a time, and an incarnation's for the machine. An
//! incarnation that follows another joins when a failure view has removed that one.
//!
//! *Removed.* The members' view removes a runtime when none of its leases lasts. So it lets no
//! packet leave any more when the failure view is decided.
//!
//! *Met.* A message to a runtime that is not there would be lost. So a runtime joins when the links
//! between it and all others are up, at both ends.
//!
//! A message is for the incarnation that the newest decision of its sender names: where another one
//! is at the link's end already, it is dropped.
//!
//! The first view has one runtime: it needs no other. All others join it.
//!
//! Invariants: one decision is under way at a time; an incarnation is told of none that is not in
//! the log; a decision names an incarnation for each number.
//!
//! Not here: the log and heartbeats (the coordinator), a runtime's steps at a decision
//! (`runtime::objects`).

use super::conductor::{Conductor, Course};
use super::inputs::{Phase, Stage};
use super::members::Members;
use crate::membership::{Incarnation, Role, View, WorkerId};
use crate::ownership::RuntimeId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A runtime's incarnation.
pub type Instance = (RuntimeId, Incarnation);

/// A decision, and the incarnations that it is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// Which stage of which change.
    pub course: Course,
    /// Of each member of both views, which incarnation it is.
    pub incarnations: BTreeMap<RuntimeId, Incarnation>,
}

impl Default for Decision {
    fn default() -> Self {
        Decision {
            course: Course::new(0, Members::NONE),
            incarnations: BTreeMap::new(),
        }
    }
}

impl Decision {
    /// Whether this incarnation is a member of one of both views.
    pub fn has(&self, (runtime, incarnation): Instance) -> bool {
        self.course.everyone().has(runtime) && self.incarnations.get(&runtime) == Some(&incarnation)
    }

    /// Whether this incarnation is told.
    pub fn is_for(&self, incarnation: Instance) -> bool {
        self.has(incarnation) && self.course.hearers().has(incarnation.0)
    }

    /// A value that grows with each decision.
    pub fn order(&self) -> (Stage, bool, bool) {
        let Course {
            stage,
            members,
            next,
            is_open,
            ..
        } = self.course;
        (stage, is_open, stage.phase == Phase::Normal && members == next)
    }

    /// Whether each number that it names has one incarnation, and no other number has.
    pub fn is_sound(&self) -> bool {
        let numbers = self.incarnations.keys().map(|runtime| Members::one(*runtime));
        numbers.fold(Members::NONE, Members::or) == self.course.everyone()
    }
}

/// The report of a runtime whose functions share objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The newest stage that it has reached; none before it takes part.
    pub reached: Option<Stage>,
    /// The incarnations at the other ends of its links.
    pub met: Vec<Instance>,
    /// It wants to leave.
    pub leaves: bool,
}

/// See the module's page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    decided: Decision,
    conductor: Option<Conductor>,
    /// On its way to the log.
    deciding: Option<Decision>,
    reports: BTreeMap<Instance, Report>,
}

impl Sharing {
    /// Begins, or goes on with the newest decision of the log.
    pub fn replay(newest: Option<Decision>) -> Self {
        Sharing {
            decided: newest.unwrap_or_default(),
            ..Sharing::default()
        }
    }

    /// The newest decision in the log.
    pub fn decided(&self) -> &Decision {
        &self.decided
    }

    /// A runtime of the view says how it is. `false`: it has reached what this log knows nothing
    /// of.
    pub fn hear(&mut self, incarnation: Instance, report: Report) -> bool {
        let is_known = report
            .reached
            .is_none_or(|stage| stage <= self.decided.course.stage);
        self.reports.insert(incarnation, report);
        is_known
    }

    /// The next decision, for the log, if there is cause for one and none is on its way there.
    pub fn look(&mut self, view: &View) -> Option<Decision> {
        let has = |(runtime, incarnation): Instance| view.has(WorkerId::runtime(runtime.0), incarnation);
        self.reports.retain(|incarnation, _| has(*incarnation));
        if self.deciding.is_some() {
            return None;
        }
        let decided = self.decided.course;
        let mut conductor = self.conductor.take().unwrap_or_else(|| Conductor::of(decided));
        let is_gone = |runtime: &RuntimeId| !self.incarnation(*runtime).is_some_and(has);
        let gone = decided
            .everyone()
            .iter()
            .filter(is_gone)
            .fold(Members::NONE, Members::with);
        if gone.is_empty() {
            for runtime in decided.hearers().iter() {
                let report = self
                    .incarnation(runtime)
                    .and_then(|incarnation| self.reports.get(&incarnation));
                if let Some(stage) = report.and_then(|report| report.reached) {
                    conductor.note_reached(runtime, stage);
                }
            }
            if conductor.has_reached_all() && conductor.course() == decided {
                self.change(view, &mut conductor);
            }
        } else {
            conductor.fail(gone);
        }
        let course = conductor.course();
        if course == decided {
            self.conductor = Some(conductor);
            return None;
        }
        let incarnations = course.everyone().iter().filter_map(|runtime| {
            // The incarnation of a member, or that of a runtime that joins.
            let incarnation = self.incarnation(runtime).or_else(|| self.newest(runtime))?;
            Some((runtime, incarnation.1))
        });
        let incarnations = incarnations.collect();
        let decision = Decision { course, incarnations };
        self.deciding = Some(decision.clone());
        Some(decision)
    }

    /// The log has the decision that was to be written.
    pub fn logged(&mut self) {
        if let Some(decision) = self.deciding.take() {
            self.decided = decision;
            self.conductor = None;
        }
    }

    fn incarnation(&self, runtime: RuntimeId) -> Option<Instance> {
        let incarnation = self.decided.incarnations.get(&runtime)?;
        Some((runtime, *incarnation))
    }

    /// The incarnation of a number that was heard; the view has one at most.
    fn newest(&self, runtime: RuntimeId) -> Option<Instance> {
        let mut heard = self.reports.keys().filter(|(known, _)| *known == runtime);
        heard.next_back().copied()
    }

    /// Begins a change, if there is cause.
    fn change(&self, view: &View, conductor: &mut Conductor) {
        let members = self.decided.course.members;
        let leaves = |incarnation: Option<Instance>| {
            let report = incarnation.and_then(|incarnation| self.reports.get(&incarnation));
            report.is_some_and(|report| report.leaves)
        };
        let stays = members
            .iter()
            .filter(|runtime| !leaves(self.incarnation(*runtime)));
        let mut next = stays.fold(Members::NONE, Members::with);
        let mut met: Vec<Instance> = members
            .iter()
            .filter_map(|runtime| self.incarnation(runtime))
            .collect();
        for (incarnation, report) in &self.reports {
            let is_new = !members.has(incarnation.0) && !report.leaves && Members::MAX > incarnation.0.0;
            let is_alone = members.is_empty() && next.is_empty();
            if is_new && (is_alone || !members.is_empty() && self.has_met(*incarnation, &met)) {
                next = next.with(incarnation.0);
                met.push(*incarnation);
            }
        }
        if !next.is_empty() {
            conductor.change(next);
            return;
        }
        // The last ones end with their objects, unless there is one that may take them yet.
        let mut runtimes = view
            .members()
            .iter()
            .filter(|member| member.id.role == Role::Runtime);
        if runtimes.all(|member| leaves(Some((RuntimeId(member.id.number), member.incarnation))))
            && !members.is_empty()
        {
            conductor.disband();
        }
    }

    /// Whether the links between a runtime and these are up, at both ends.
    fn has_met(&self, incarnation: Instance, others: &[Instance]) -> bool {
        let knows = |one: Instance, other: Instance| {
            let report = self.reports.get(&one);
            report.is_some_and(|report| report.met.contains(&other))
        };
        others
            .iter()
            .all(|other| knows(incarnation, *other) && knows(*other, incarnation))
    }
}
