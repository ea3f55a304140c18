//! Which stage each runtime is told next: a coordinator's side of views ([`super::Objects`] is a
//! member's).
//!
//! # Theory of operation
//!
//! ```text
//!   settled ─ change ─► Prepared: members, then those that join ─► Scaling: all ─► Normal: all ─► settled
//!      │                        │                                      │              │
//!      └─ fail ─────────────────┴──────────────────────────────────────┴──────────────┴─► Failed: the live ─► settled
//! ```
//!
//! Its driver tells what [`Conductor::told`] says, again and again if need be, and notes what has
//! been reached. Runtimes that join hear of *Prepared* when all members have: a member that a failure
//! view had told to discard their predecessor's frames takes theirs then.
//!
//! A change that a failure interrupts is abandoned: runtimes that were to leave are members still,
//! and are to be left out again.
//!
//! Not here: where runtimes are, and how they are told.

use super::members::Members;
use super::words::{Phase, Stage};
use crate::ownership::RuntimeId;

/// What a runtime is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// [`super::Input::Stage`].
    Stage(Stage, Members),
    /// [`super::Input::Failed`].
    Failed(u32, Members, Members),
}

/// See the module's page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conductor {
    stage: Stage,
    members: Members,
    next: Members,
    /// In a failure view that is not in force yet: those that it removes.
    failed: Option<Members>,
    /// Which of those that are told have reached the stage.
    reached: Members,
}

impl Conductor {
    /// These are members of a view that is in force.
    pub fn new(view: u32, members: Members) -> Self {
        Conductor {
            stage: Stage::normal(view),
            members,
            next: members,
            failed: None,
            reached: members,
        }
    }

    /// The view that is in force, or that is left, and its members: a runtime that begins is made
    /// with these.
    pub fn view(&self) -> (u32, Members) {
        (self.stage.view, self.members)
    }

    /// Whether nothing is to be told.
    pub fn is_settled(&self) -> bool {
        self.stage.phase == Phase::Normal && self.awaited().is_empty()
    }

    /// Begins a change to these members; `false` if another change, or a failure view, is not over.
    pub fn change(&mut self, next: Members) -> bool {
        if !self.is_settled() {
            return false;
        }
        if self.members.is_empty() {
            // There is nothing that could be lost.
            *self = Conductor::new(self.stage.view.wrapping_add(1), next);
        } else if next != self.members {
            (self.next, self.failed) = (next, None);
            self.enter(Stage::prepared(self.stage.view));
        }
        true
    }

    /// These have failed: the next view is without them.
    pub fn fail(&mut self, gone: Members) {
        let everyone = self.members.or(self.next);
        let newest = match self.stage.phase {
            Phase::Normal => self.stage.view,
            Phase::Prepared | Phase::Scaling => self.stage.view.wrapping_add(1),
        };
        if everyone.and(gone).is_empty() {
            return;
        }
        let live = everyone.minus(gone);
        (self.members, self.next) = (live, live);
        self.failed = Some(self.failed.unwrap_or_default().or(gone));
        self.enter(Stage::normal(newest.wrapping_add(1)));
    }

    /// What is to be told, and to which runtimes.
    pub fn told(&self) -> (Members, Told) {
        let told = match self.failed {
            Some(removed) => Told::Failed(self.stage.view, self.members, removed),
            None => Told::Stage(self.stage, self.next),
        };
        (self.awaited(), told)
    }

    /// A runtime has reached a stage.
    pub fn note_reached(&mut self, runtime: RuntimeId, stage: Stage) {
        if stage != self.stage || self.is_settled() {
            return;
        }
        self.reached = self.reached.with(runtime);
        if !self.awaited().is_empty() {
            return;
        }
        match stage.phase {
            Phase::Prepared => self.enter(Stage::scaling(stage.view)),
            Phase::Scaling => self.enter(Stage::normal(stage.view.wrapping_add(1))),
            Phase::Normal => self.members = self.next,
        }
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.reached) = (stage, Members::NONE);
    }

    /// Those that are told, and have not reached it.
    fn awaited(&self) -> Members {
        let before = self.members.minus(self.reached);
        match self.stage.phase {
            Phase::Prepared if !before.is_empty() => before,
            _ => self.members.or(self.next).minus(self.reached),
        }
    }
}
