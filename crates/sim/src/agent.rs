//! A simulated member's agent, and the member slots of its workers.
//!
//! ```text
//!   joining ── Join, again and again ──► Member ── the worker begins with its membership ──► in its slot ─ a view is without it ──► fenced, or has left
//!                                                                                              └─ a beat for each step or more ─┘
//! ```
//!
//! The words to a worker, and their times, are as in `coordinator::agent` and
//! `flowkeep::run::member_slots`: before a step it takes over the newest view and the suspects,
//! then its door for views opens (`members`). A beat says what there is since the last one, if the
//! worker has taken a step since.
//!
//! There is one of these for each worker. Of a process with several, the first one's speaks with
//! coordinators for all: which one it speaks with, and when it was heard, are of that one alone.
//!
//! Not here: the network, and the fate of a fenced worker ([`crate::world`]).

use crate::Time;
use crate::coordinator::{Beat, Instance, Joined, Said, Told};
use protocols::membership::{Incarnation, Membership, Notice, View, WorkerId};
use runtime::members::{WorkerGone, gone_between};

/// How often a worker says again what it has withdrawn, in nanoseconds of its clock.
const AGAIN: u64 = 10_000_000;
/// How long a coordinator may be silent, where there are others.
const SILENCE: u64 = 60_000_000;
/// Withdrawn leases that wait for the agent at most.
const WITHDRAWN_MAX: usize = 64;

/// One worker's member slot, and its member's agent.
pub(crate) struct Agent {
    pub incarnation: Instance,
    /// The view that the worker has, once it has begun with one.
    known: Option<View>,
    /// The newest view and suspects that were said, and have not been taken over.
    said: Option<(View, u64, Vec<Instance>)>,
    list: u64,
    steps: u64,
    told: u64,
    say_at: u64,
    withdrawn: Vec<(WorkerId, Incarnation, u64)>,
    unheard: Vec<Instance>,
    pub is_ready: bool,
    pub is_fenced: bool,
    /// The worker takes no more steps, and its member slot is given up.
    pub has_left: bool,
    /// Which coordinator it speaks with, and when it heard that one last.
    pub office: u8,
    pub heard_at: Time,
}

impl Agent {
    /// A process that begins, and has to join.
    pub fn new(incarnation: Instance) -> Self {
        Agent {
            incarnation,
            known: None,
            said: None,
            list: 0,
            steps: 0,
            told: 0,
            say_at: 0,
            withdrawn: Vec::new(),
            unheard: Vec::new(),
            is_ready: false,
            is_fenced: false,
            has_left: false,
            office: 0,
            heard_at: 0,
        }
    }

    /// This incarnation may not be a member: the next one asks. A view may have this one still, by
    /// a record that was on its way, and no worker will ever be it.
    pub fn give_up(&mut self) {
        self.incarnation.1.0 += 1;
    }

    /// Speaks with the next of so many coordinators from now on, if this one is silent, or
    /// `is_refused`.
    pub fn look_for_office(&mut self, now: Time, offices: u8, is_refused: bool) {
        if offices > 1 && (is_refused || now.saturating_sub(self.heard_at) > SILENCE) {
            self.office = (self.office + 1) % offices;
            self.heard_at = now;
        }
    }

    /// Whether its worker takes steps.
    pub fn has_member_slot(&self) -> bool {
        self.known.is_some()
    }

    /// The view that the worker has, and its list of suspects.
    pub fn knows(&self) -> (u32, u64) {
        (self.known.as_ref().map_or(0, |view| view.number), self.list)
    }

    /// With what the worker begins, if this view has it.
    pub fn sit_down(&mut self, joined: &Joined, view: View) -> Option<Membership> {
        let (id, incarnation) = self.incarnation;
        if self.has_member_slot() || !view.has(id, incarnation) {
            return None;
        }
        self.known = Some(view.clone());
        Some(Membership::new(id, incarnation, joined.term(), view))
    }

    /// The coordinator has said something of all members.
    pub fn hear(&mut self, said: Said) {
        if let Said::Newest(view, list, suspects) = said {
            self.said = Some((view, list, suspects));
        }
    }

    /// Before a step of the worker at `now` of its clock: takes over what was said. Answers which
    /// incarnations are over, if its view is another than before.
    pub fn attend(&mut self, now: u64, membership: &mut Membership) -> Option<Vec<WorkerGone>> {
        self.steps += 1;
        let known = self.known.as_ref()?;
        let (before, was_fenced) = (known.number, membership.is_fenced());
        if let Some((view, list, suspects)) = self.said.take() {
            membership.adopt(view, |_| ());
            membership.suspect(list, &suspects);
            self.say_at = now;
        }
        if now >= self.say_at {
            self.say_at = now.saturating_add(AGAIN);
            let withdrawn = &mut self.withdrawn;
            membership.poll(now, |notice| {
                if let Notice::Withdrawn(id, incarnation, list) = notice
                    && withdrawn.len() < WITHDRAWN_MAX
                {
                    withdrawn.push((id, incarnation, list));
                }
            });
            self.unheard.clear();
            let unheard = &mut self.unheard;
            membership.unheard(now, |id, incarnation| unheard.push((id, incarnation)));
        }
        self.list = membership.list();
        self.is_fenced = membership.is_fenced();
        if membership.view().number == before && was_fenced == self.is_fenced {
            return None;
        }
        let gone = gone_between(known, membership.view());
        self.known = Some(membership.view().clone());
        Some(gone)
    }

    /// The word of a process's agent now, of these workers.
    pub fn tell(process: &mut [&mut Agent]) -> Option<Told> {
        let incarnations = process.iter().map(|agent| agent.incarnation).collect();
        let first = process.first()?;
        if !first.has_member_slot() {
            return Some(Told::Join(incarnations));
        }
        if first.has_left {
            return Some(Told::Leave(incarnations));
        }
        let beats: Vec<Beat> = process.iter_mut().filter_map(|agent| agent.beat()).collect();
        (!beats.is_empty()).then_some(Told::Beat(beats))
    }

    /// The news since the last beat, if the worker has taken a step.
    fn beat(&mut self) -> Option<Beat> {
        if std::mem::replace(&mut self.told, self.steps) == self.steps {
            return None;
        }
        let (view, list) = self.knows();
        Some(Beat {
            incarnation: self.incarnation,
            view,
            list,
            is_ready: self.is_ready,
            withdrawn: std::mem::take(&mut self.withdrawn),
            unheard: self.unheard.clone(),
        })
    }
}
