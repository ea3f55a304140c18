//! Runtimes that a switch does not hear, though the coordinator hears both: which of the two goes.
//!
//! # Theory of operation
//!
//! ```text
//!   switch: no lease from a runtime ── its heartbeats name that incarnation ──► coordinator: since when
//!                                                                             │ for [`Timing::unheard`](super::Timing)
//!                        suspected, as one that is silent ◄── which of the two ◄┘
//! ```
//!
//! A link that is cut harms more than its two ends. A switch that begins again waits for each
//! runtime's words, and a packet that a runtime translates waits until each switch has heard of its
//! flow. So one of the two goes.
//!
//! | the switch hears | which goes | why |
//! |---|---|---|
//! | half of the runtimes, or more | the runtime | others take its flows; another incarnation of the switch would wait for it as this one does |
//! | fewer, and another switch half or more | the switch, if it runs | it is the one that is cut off |
//! | fewer, and no other does | neither | there is nowhere to go to |
//!
//! Runtimes that are joining count for nothing: they have no groups. A switch that is joining is
//! not suspected: it reads no port.
//!
//! Invariant: a report of an incarnation that the view has not got counts for nothing. To suspect a
//! member is always safe; this module says only which one.
//!
//! Not here: the consequences of a suspicion (`coordinator`); which runtimes a switch does not hear
//! (`member`).

use super::view::{Incarnation, Member, Role, Standing, View, WorkerId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

type Instance = (WorkerId, Incarnation);

/// Reports of switches: by which member, of which, since when.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Unheard {
    reports: BTreeMap<(Instance, Instance), u64>,
}

fn may_have_groups(member: &&Member) -> bool {
    member.id.role == Role::Runtime && member.standing != Standing::Joining
}

impl Unheard {
    /// A member says which incarnations it does not hear, all of them.
    pub fn note(&mut self, now: u64, by: Instance, incarnations: &[Instance], view: &View) {
        self.reports
            .retain(|(known, of), _| *known != by || incarnations.contains(of));
        if by.0.role != Role::Switch || !view.has(by.0, by.1) {
            return;
        }
        // As many as there are runtimes at most.
        let members = incarnations
            .iter()
            .filter(|of| of.0.role == Role::Runtime && view.has(of.0, of.1));
        for of in members {
            self.reports.entry((by, *of)).or_insert(now);
        }
    }

    /// Another view: reports by or of incarnations that it does not have end.
    pub fn adopt(&mut self, view: &View) {
        self.reports
            .retain(|(by, of), _| view.has(by.0, by.1) && view.has(of.0, of.1));
    }

    /// The workers that go, of those that have not heard each other for `longest`. `is_suspect`: it
    /// may be silent altogether.
    pub fn to_go(
        &self,
        now: u64,
        longest: u64,
        view: &View,
        is_suspect: impl Fn(WorkerId) -> bool,
    ) -> Vec<Instance> {
        let late = self
            .reports
            .iter()
            .filter(|(_, since)| now.saturating_sub(**since) >= longest);
        let mut all: Vec<Instance> = late
            .filter_map(|((by, of), _)| self.who_goes(*by, *of, view, &is_suspect))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn who_goes(
        &self,
        by: Instance,
        of: Instance,
        view: &View,
        is_suspect: &impl Fn(WorkerId) -> bool,
    ) -> Option<Instance> {
        let runtime = view.member(of.0).filter(may_have_groups)?;
        if self.hears_half(by, view) {
            return Some((runtime.id, runtime.incarnation));
        }
        let switch = view.member(by.0)?;
        let mut others = view
            .switches()
            .filter(|other| other.id != by.0 && !is_suspect(other.id));
        let is_cut_off = others.any(|other| self.hears_half((other.id, other.incarnation), view));
        (is_cut_off && switch.standing != Standing::Joining).then_some(by)
    }

    fn hears_half(&self, switch: Instance, view: &View) -> bool {
        let (mut heard, mut all) = (0, 0);
        for runtime in view.members().iter().filter(may_have_groups) {
            all += 1;
            let of = (runtime.id, runtime.incarnation);
            heard += usize::from(!self.reports.contains_key(&(switch, of)));
        }
        2 * heard >= all
    }
}
