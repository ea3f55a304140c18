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
//! Its driver tells what [`Conductor::directive`] says, again and again if need be, and notes what
//! has been reached. Runtimes that join hear of *Prepared* when all members have: a member that a
//! failure view had told to discard their predecessor's frames takes theirs then.
//!
//! A change that a failure interrupts is abandoned: runtimes that were to leave are members still,
//! and are to be left out again; runtimes that were to join, and had not been told, are no members.
//!
//! Its [`Course`] is all of that, but for the runtimes that have reached the stage. A coordinator
//! logs each before it is told ([`super::Sharing`]); within one process it is not logged.
//!
//! Not here: where runtimes are, and how they are told.

use super::inputs::{Input, Phase, Stage};
use super::members::Members;
use super::message::Body;
use crate::ownership::RuntimeId;

/// A conductor's word to runtimes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Directive {
    /// [`super::Input::Stage`].
    Stage(Stage, Members),
    /// [`super::Input::Failed`].
    Failed(u32, Members, Members),
}

impl<B: Body> From<Directive> for Input<B> {
    fn from(directive: Directive) -> Self {
        match directive {
            Directive::Stage(stage, members) => Input::Stage(stage, members),
            Directive::Failed(view, members, removed) => Input::Failed(view, members, removed),
        }
    }
}

/// The last decision: where a change of views stands. With this a conductor goes on as another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Course {
    /// The stage that runtimes are told.
    pub stage: Stage,
    /// The members of the view that is in force, or that is left.
    pub members: Members,
    /// The members of the next view; the same if none comes.
    pub next: Members,
    /// Of a failure view: the members that it removes.
    pub failed: Option<Members>,
    /// Whether those that join are told, too.
    pub is_open: bool,
}

impl Course {
    /// These are members of a view that is in force.
    pub fn new(view: u32, members: Members) -> Self {
        Course {
            stage: Stage::normal(view),
            members,
            next: members,
            failed: None,
            is_open: true,
        }
    }

    /// Members of both views of a change.
    pub fn everyone(&self) -> Members {
        self.members.or(self.next)
    }

    /// The members that are told of the stage, whether they have reached it or not.
    pub fn hearers(&self) -> Members {
        match self.is_open {
            true => self.everyone(),
            false => self.members,
        }
    }

    /// A view, and its members, with which a runtime's machine is made that hears of this first.
    pub fn before(&self) -> (u32, Members) {
        match self.failed {
            Some(_) => (self.stage.view.wrapping_sub(1), self.members),
            None => (self.stage.view, self.members),
        }
    }

    /// The word that they are told.
    pub fn directive(&self) -> Directive {
        match self.failed {
            Some(removed) => Directive::Failed(self.stage.view, self.members, removed),
            None => Directive::Stage(self.stage, self.next),
        }
    }
}

/// See the module's page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Conductor {
    course: Course,
    /// Which of those that are told have reached the stage.
    reached: Members,
}

impl Conductor {
    /// These are members of a view that is in force.
    pub fn new(view: u32, members: Members) -> Self {
        Conductor {
            course: Course::new(view, members),
            reached: members,
        }
    }

    /// Goes on as another did that has decided this. All that are told are to say again what they
    /// have reached.
    pub fn of(course: Course) -> Self {
        Conductor {
            course,
            reached: Members::NONE,
        }
    }

    /// The last decision.
    pub fn course(&self) -> Course {
        self.course
    }

    /// The view that is in force, or that is left, and its members: a runtime that begins is made
    /// with these.
    pub fn view(&self) -> (u32, Members) {
        (self.course.stage.view, self.course.members)
    }

    /// Whether nothing is to be told.
    pub fn has_reached_all(&self) -> bool {
        self.course.stage.phase == Phase::Normal && self.awaited().is_empty()
    }

    /// Begins a change to these members; `false` if another change, or a failure view, is not over.
    pub fn change(&mut self, next: Members) -> bool {
        if !self.has_reached_all() {
            return false;
        }
        let view = self.course.stage.view;
        if self.course.members.is_empty() {
            // There is nothing that could be lost.
            *self = Conductor::new(view.wrapping_add(1), next);
        } else if next != self.course.members {
            (self.course.next, self.course.failed) = (next, None);
            self.enter(Stage::prepared(view));
            self.course.is_open = false;
        }
        true
    }

    /// All members leave together, if nothing else is under way: their objects have nowhere to go.
    pub fn disband(&mut self) {
        if self.has_reached_all() {
            *self = Conductor::new(self.course.stage.view.wrapping_add(1), Members::NONE);
        }
    }

    /// These have failed: the next view is without them. Runtimes that join and have not been told
    /// so are left out, too: frames of theirs may be discarded, and they have nothing.
    pub fn fail(&mut self, gone: Members) {
        let newest = match self.course.stage.phase {
            Phase::Normal => self.course.stage.view,
            Phase::Prepared | Phase::Scaling => self.course.stage.view.wrapping_add(1),
        };
        if self.course.everyone().and(gone).is_empty() {
            return;
        }
        let live = self.course.hearers().minus(gone);
        (self.course.members, self.course.next) = (live, live);
        self.course.failed = Some(self.course.failed.unwrap_or_default().or(gone));
        self.enter(Stage::normal(newest.wrapping_add(1)));
    }

    /// The runtimes that are to be told, and the word.
    pub fn directive(&self) -> (Members, Directive) {
        (self.awaited(), self.course.directive())
    }

    /// A runtime has reached a stage.
    pub fn note_reached(&mut self, runtime: RuntimeId, stage: Stage) {
        let hearers = self.course.hearers();
        if stage != self.course.stage || self.has_reached_all() || !hearers.has(runtime) {
            return;
        }
        self.reached = self.reached.with(runtime);
        if !self.awaited().is_empty() {
            return;
        }
        match stage.phase {
            Phase::Prepared if hearers != self.course.everyone() => self.course.is_open = true,
            Phase::Prepared => self.enter(Stage::scaling(stage.view)),
            Phase::Scaling => self.enter(Stage::normal(stage.view.wrapping_add(1))),
            Phase::Normal => self.course.members = self.course.next,
        }
    }

    fn enter(&mut self, stage: Stage) {
        (self.course.stage, self.course.is_open, self.reached) = (stage, true, Members::NONE);
    }

    /// The members that are told of the stage, and have not reached it.
    fn awaited(&self) -> Members {
        self.course.hearers().minus(self.reached)
    }
}
