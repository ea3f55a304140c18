//! Runtimes that have failed and whose flows are to go on elsewhere ([`crate::replica`]).
//!
//! # Theory of operation
//!
//! ```text
//!   session of F ends ─► suspended: packets for its groups wait ──all runtimes there have reported──► heir: Heir{F} ──Recovered{F}──► over
//!                             │                                             └─ none has copies ─► over      │
//!                             └──────────────── `recovery_max` later ─────────────────────────────► over ◄──┘
//! ```
//!
//! While a runtime is suspended its routes stay, so that no other runtime is chosen for its groups;
//! the heir's announcements turn them. When that is over, the rest of them end, and packets that
//! waited are routed in the order in which they came.
//!
//! A report names the *incarnation* of F that it is about, and each runtime says to each switch
//! which incarnation it is (`Incarnation`). A report may come before this switch sees the end of
//! the session that it is about, and is kept until then. The runtime may be there again meanwhile:
//! routes know their incarnation, and it is told which blocks are in use, and gets new groups, only
//! when the suspension is over.
//!
//! *An incarnation that was never met.* A switch that begins again may hear of copies of an
//! incarnation that was over before. It has no routes of it, and lets it go as if it had: the heir
//! is told once all runtimes have told what they have, the next incarnation hears which blocks are
//! in use behind that, and no port is read before (`presence`).
//!
//! ```text
//!   Keeps{F, base, incarnation} ── incarnation is F's here: kept until the session ends │ is suspended: counted │ else: not met, suspended without routes
//! ```
//!
//! A runtime may see later than this switch that an incarnation is over, and *all told* says
//! nothing of that one. So it says which one is at its link (`Report::LATER`), and a switch that
//! begins and has the next one waits for its word, for as long as for an heir, before it tells that
//! one all, and before it reads ports.
//!
//! Copies of an incarnation whose flows have gone on elsewhere are another matter: that incarnation
//! had not heard of it when it sent them. Nothing is recovered from them until it has been met
//! again.
//!
//! *Runtimes of one process* fail together and begin again together. The next incarnation of one
//! has never met the failed incarnation of the other, so it reports nothing of it. It says which
//! incarnation it has met (`Meets`): of those before it has no copies, and is not waited for.
//!
//! *An incarnation that is back.* A link that was cut, and a runtime or switch that stood still,
//! end a session, and the same incarnation is met in the next. While no heir is named here none can
//! begin, since it waits for all switches: the suspension is over, and routes to that incarnation
//! lead to it again. The same with the remaining routes when the heir has announced all, or the
//! time is over. That incarnation is told which groups, announced by an heir, are
//! [taken](crate::message::Message::RouteConflict).
//!
//! *Where workers go by views* no time decides while a member that runs has not been met: it may
//! have the copies. The coordinator removes one of two that do not hear each other. While an heir
//! is awaited, time does decide: another switch may have decided by time, and says nothing to the
//! heir.
//!
//! *An heir that is late*: it may stand still, or wait for another switch or a configuration, and
//! go on afterwards. So no flow begins elsewhere at once when the time is over: the heir is told,
//! has what it may have go on go on, and says that the rest does not. For that it has as much time
//! once more.
//!
//! *Void copies.* A runtime that is cut off from its replica goes on without, or with another one,
//! and packets leave that the copies there know nothing of. It says so to switches first
//! (`Keeps{F, base}` by F itself: older bases are void), and a report of an older base counts as
//! none: a flow does not go back behind packets that have left. When that replica meets it again,
//! its report is forgotten (`Report::LATER`), and it will report again.
//!
//! *Flows in a store* come back with their runtime ([`crate::replica::ledger`]). Where no copies
//! wait for an heir, the suspension goes on until the runtime's next incarnation has told what it
//! has; its routes lead to that incarnation then, and are probed. Where copies do, or the time is
//! over, the rest of its routes end as ever, and flows begin elsewhere: groups that the next
//! incarnation tells of later are [taken](crate::message::Message::RouteConflict) from it.
//!
//! Packets of a flow leave in order: while some wait, later packets that are routed by the same key
//! wait behind them, though the heir has announced the flow.
//!
//! Invariants: packets that wait are bounded (`recovery_full`), and are a quarter of the buffers at
//! most; a suspension ends.
//!
//! Not here: routes (`directory`).

use crate::stats::DropReason;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
pub(super) use protocols::ownership::recovery::Report;
use protocols::ownership::recovery::{Heard, Heir, heir};
use wire::{PacketBox, PacketList, Pool};

/// The decision that follows from the reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// Some have not come, or it was made.
    None,
    /// This runtime has the copies, of this incarnation.
    Heir(u16, u64),
    /// The time is over: this heir, of this incarnation, is to begin now, or not at all.
    Late(u16, u64),
    /// Nothing is to be waited for any more.
    Over,
}

/// How a runtime stands to this switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// At a link.
    Met,
    /// A member that runs by the view, and was at no link in that incarnation.
    Unmet,
    Absent,
}

/// The facts that a decision goes by.
pub(super) struct Known<F: Fn(usize) -> Standing> {
    /// Of each runtime.
    pub standing: F,
    /// Workers go by views only.
    pub by_views: bool,
    /// This switch knows what runtimes have.
    pub is_resynced: bool,
    /// The next incarnation of the failed runtime has told what it has.
    pub has_returned: bool,
}

struct Suspension {
    until: u64,
    /// Which incarnation has failed; 0 if it never said so.
    incarnation: u64,
    /// Whether that was at a link of this switch.
    was_met: bool,
    heir: Option<u16>,
    /// Of which incarnation the heir has copies.
    heir_incarnation: u64,
    /// The heir has been told that the time is over.
    is_late: bool,
    is_recovered: bool,
    packets: PacketList,
}

impl Suspension {
    /// Whether this is the incarnation that was let go, of which an heir goes by no other name.
    fn is_of(&self, incarnation: u64) -> bool {
        self.was_met && self.incarnation == incarnation && incarnation != 0
    }
}

/// See the module's page.
pub(super) struct Recovery {
    /// How long a suspension lasts at most, in nanoseconds; 0 where runtimes keep no copies, and no
    /// store has their flows.
    at_most: u64,
    /// Whether runtimes come back with flows out of a store.
    returns: bool,
    /// Whether runtimes keep copies.
    has_copies: bool,
    suspended: Vec<Option<Suspension>>,
    /// By failed runtime, by reporting one.
    reports: Vec<Vec<Option<Report>>>,
    /// By runtime: bases of this incarnation with lower numbers are void.
    least: Vec<Report>,
    /// By runtime, by another one of its process: the first incarnation of it that was met there; 0
    /// for none.
    meetings: Vec<Vec<u64>>,
    /// Which incarnation each runtime said that it is in this session; 0 for none.
    incarnations: Vec<u64>,
    /// By runtime: the last incarnation whose flows have gone on elsewhere, and which was not met
    /// since; 0 for none.
    recovered: Vec<u64>,
    /// By runtime, by another one: it had nothing of the first when it met this switch, or its
    /// copies go on.
    has_none: Vec<Vec<bool>>,
    /// By runtime, by another one: which incarnation of the first was at its link when it met this
    /// switch; 0 for none, and once it has said what it has of it.
    linked: Vec<Vec<u64>>,
    /// By runtime: until when others are waited for that may have copies of an incarnation which
    /// was not met; 0 before that is asked.
    word_by: Vec<u64>,
    active: usize,
    packets: usize,
    /// By the hash that a waiting packet is routed by: for which failed runtime it waits.
    waiting: BTreeMap<u64, u16>,
}

impl Recovery {
    pub fn new(runtimes: usize, at_most: u64) -> Self {
        Recovery {
            at_most,
            returns: false,
            has_copies: at_most > 0,
            suspended: (0..runtimes).map(|_| None).collect(),
            reports: alloc::vec![alloc::vec![None; runtimes]; runtimes],
            least: alloc::vec![Report { number: 0, incarnation: 0 }; runtimes],
            meetings: alloc::vec![alloc::vec![0; runtimes]; runtimes],
            incarnations: alloc::vec![0; runtimes],
            recovered: alloc::vec![0; runtimes],
            has_none: alloc::vec![alloc::vec![false; runtimes]; runtimes],
            linked: alloc::vec![alloc::vec![0; runtimes]; runtimes],
            word_by: alloc::vec![0; runtimes],
            active: 0,
            packets: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Runtimes that fail come back with flows out of a store. `has_copies`: others have copies,
    /// too.
    pub fn expect_returns(&mut self, has_copies: bool) {
        (self.returns, self.has_copies) = (true, has_copies);
    }

    /// Whether they do.
    pub fn has_returns(&self) -> bool {
        self.returns
    }

    /// Whether runtimes keep copies of each other's flows.
    pub fn has_copies(&self) -> bool {
        self.has_copies
    }

    /// Whether a runtime that is at the link is the next incarnation of a suspended runtime, and
    /// has its flows from a store.
    pub fn returns(&self, runtime: usize) -> bool {
        self.returns && self.was_met(runtime)
    }

    /// Whether any runtime is suspended.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.active > 0
    }

    /// Whether runtimes that fail are suspended.
    pub fn is_wanted(&self) -> bool {
        self.at_most > 0
    }

    /// Whether a runtime is.
    pub fn is_suspended(&self, runtime: usize) -> bool {
        self.suspended[runtime].is_some()
    }

    /// Packets that wait.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// A runtime has failed that was at a link.
    pub fn suspend(&mut self, runtime: usize, now: u64) {
        let incarnation = core::mem::take(&mut self.incarnations[runtime]);
        // Runtimes that have met it say what they have of it.
        self.meetings[runtime]
            .iter_mut()
            .filter(|met| **met == incarnation)
            .for_each(|met| *met = 0);
        self.suspend_incarnation(runtime, incarnation, true, now);
    }

    fn suspend_incarnation(&mut self, runtime: usize, incarnation: u64, was_met: bool, now: u64) {
        debug_assert!(self.suspended[runtime].is_none(), "one at a time");
        self.active += 1;
        self.suspended[runtime] = Some(Suspension {
            until: now.saturating_add(self.at_most),
            incarnation,
            was_met,
            heir: None,
            heir_incarnation: 0,
            is_late: false,
            is_recovered: false,
            packets: PacketList::new(),
        });
    }

    /// A runtime's session is over: it has no copies any more.
    pub fn forget_reports_of(&mut self, runtime: usize) {
        for (failed, reports) in self.reports.iter_mut().enumerate() {
            reports[runtime] = None;
            self.has_none[failed][runtime] = false;
            self.meetings[failed][runtime] = 0;
            self.linked[failed][runtime] = 0;
            if let Some(suspension) = &mut self.suspended[failed]
                && suspension.heir == Some(runtime as u16)
            {
                suspension.heir = None;
            }
        }
    }

    /// A runtime says which incarnation it is.
    pub fn note_incarnation(&mut self, runtime: usize, incarnation: u64) {
        if core::mem::replace(&mut self.incarnations[runtime], incarnation) != incarnation {
            self.word_by[runtime] = 0;
        }
        self.meetings[runtime]
            .iter_mut()
            .filter(|met| **met != incarnation)
            .for_each(|met| *met = 0);
        if self.recovered[runtime] == incarnation {
            self.recovered[runtime] = 0;
        }
    }

    /// A runtime says which copies it has of a failed runtime, or that it will.
    pub fn note_report(&mut self, failed: u16, by: usize, report: Report) {
        let linked = &mut self.linked[usize::from(failed)][by];
        if report.number == Report::LATER {
            *linked = report.incarnation;
            self.forget_report(usize::from(failed), by, report.incarnation);
            return;
        }
        if *linked == report.incarnation {
            *linked = 0;
        }
        if report.incarnation == Report::OF_NONE {
            self.has_none[usize::from(failed)][by] = true;
        } else if self.is_wanted() {
            let before = self.reports[usize::from(failed)][by].replace(report);
            if let Some(suspension) = &mut self.suspended[usize::from(failed)]
                && suspension.heir == Some(by as u16)
                && before != Some(report)
            {
                // It was chosen for copies that it has no longer.
                suspension.heir = None;
            }
        }
    }

    /// An incarnation lives at a runtime's link: a report of it from a time in which it was cut off
    /// is none any more.
    fn forget_report(&mut self, failed: usize, by: usize, incarnation: u64) {
        let Some(report) = self.reports.get_mut(failed).and_then(|all| all.get_mut(by)) else {
            return;
        };
        let is_of_it = |report: &mut Report| report.incarnation == incarnation;
        if crate::replica::is_broken("reports of the living are void") || report.take_if(is_of_it).is_none() {
            return;
        }
        if let Some(Some(suspension)) = self.suspended.get_mut(failed)
            && (suspension.heir, suspension.heir_incarnation) == (Some(by as u16), incarnation)
        {
            suspension.heir = None;
        }
    }

    /// A runtime says which of its bases are void.
    pub fn note_least(&mut self, runtime: usize, least: Report) {
        if let Some(known) = self.least.get_mut(runtime) {
            *known = least;
        }
    }

    /// A report of copies, none if their base is void.
    fn without_void(&self, failed: usize, report: Report) -> Report {
        let is_void =
            |least: &Report| least.incarnation == report.incarnation && report.number < least.number;
        match self.least.get(failed).is_some_and(is_void) {
            true => Report { number: 0, ..report },
            false => report,
        }
    }

    /// Whether runtimes that are there have yet to say what they have of an incarnation that this
    /// switch has not met: one may see later than another that it has failed. It is not waited for
    /// longer than for an heir.
    pub fn awaits_word_of(&mut self, failed: usize, is_there: impl Fn(usize) -> bool, now: u64) -> bool {
        let mut reports = self.reports[failed].iter().enumerate();
        let is_silent = |(runtime, report): (usize, &Option<Report>)| {
            runtime != failed && is_there(runtime) && report.is_none() && !self.has_none[failed][runtime]
        };
        let is_silent = reports.any(is_silent);
        self.waits_for_word(failed, is_silent, now)
    }

    /// The same of an incarnation that is over since the next one is here, and that another runtime
    /// had at its link when it met this switch.
    pub fn awaits_word_before(&mut self, runtime: usize, is_there: impl Fn(usize) -> bool, now: u64) -> bool {
        let here = self.incarnations[runtime];
        let mut linked = self.linked[runtime].iter().enumerate();
        let is_before = |(by, linked): (usize, &u64)| is_there(by) && *linked != 0 && *linked != here;
        let is_silent = here != 0 && linked.any(is_before);
        self.waits_for_word(runtime, is_silent, now)
    }

    fn waits_for_word(&mut self, failed: usize, is_silent: bool, now: u64) -> bool {
        if !self.has_copies || !is_silent {
            return false;
        }
        if self.word_by[failed] == 0 {
            self.word_by[failed] = now.saturating_add(self.at_most);
        }
        now < self.word_by[failed]
    }

    /// A runtime has met this incarnation of another one of its process, and has nothing of
    /// incarnations before.
    pub fn note_meeting(&mut self, other: u16, by: usize, incarnation: u64) {
        self.meetings[usize::from(other)][by] = incarnation;
    }

    /// Whether a runtime has begun since this incarnation of another one of its process failed.
    fn has_begun_since(&self, failed: usize, runtime: usize, incarnation: u64) -> bool {
        let met = self.meetings[failed][runtime];
        let is_later = met != 0 && met != incarnation;
        is_later && !crate::replica::is_broken("the next incarnation of a process is not waited for")
    }

    /// Whether a runtime that is suspended has been met again in a session in which it has not said
    /// which incarnation it is: it says that before all else. An end that was cut off sees late
    /// that its session is over, and then the next one is, too, before anything was heard in it.
    pub fn has_said_nothing(&self, runtime: usize) -> bool {
        let is_silent = self.incarnations[runtime] == 0 && self.has_copies;
        is_silent
            && self.is_suspended(runtime)
            && !crate::replica::is_broken("sessions without a word say nothing")
    }

    /// Suspends an incarnation of which there are copies and which this switch has not met, or has
    /// let go, if there is one. `is_there`: whether the runtime is at the link.
    pub fn suspend_unmet(&mut self, runtime: usize, is_there: bool, now: u64) {
        let here = self.incarnations[runtime];
        let is_broken = crate::replica::is_broken("unmet incarnations are suspended");
        if self.suspended[runtime].is_some() || is_there && here == 0 || is_broken {
            // That is over first, or it may be this one.
            return;
        }
        let mut reports = self.reports[runtime].iter().flatten();
        // Copies of flows that have gone on elsewhere were made by an incarnation that had not
        // heard of it.
        let recovered = self.recovered[runtime];
        let is_over = |incarnation: u64| {
            incarnation != 0
                && incarnation == recovered
                && !crate::replica::is_broken("recovered incarnations are over")
        };
        let unmet = reports.find(|report| {
            report.number > 0 && !(is_there && report.incarnation == here) && !is_over(report.incarnation)
        });
        if let Some(Report { incarnation, .. }) = unmet.copied() {
            self.suspend_incarnation(runtime, incarnation, false, now);
        }
    }

    /// A runtime says that what there was of a failed one goes on there.
    pub fn note_recovered(&mut self, failed: u16, by: usize) {
        if let Some(suspension) = &mut self.suspended[usize::from(failed)]
            && suspension.heir == Some(by as u16)
        {
            suspension.is_recovered = true;
        }
    }

    /// Whether the flows of a failed runtime go on at this one.
    pub fn is_heir(&self, failed: usize, runtime: usize) -> bool {
        let suspension = self.suspended.get(failed).and_then(Option::as_ref);
        suspension.is_some_and(|suspension| suspension.heir == Some(runtime as u16))
    }

    /// The decision for a runtime.
    pub fn decide(&mut self, failed: usize, now: u64, known: &Known<impl Fn(usize) -> Standing>) -> Decision {
        let mut others = (0..self.suspended.len()).filter(|runtime| *runtime != failed);
        let is_unmet = others.any(|runtime| (known.standing)(runtime) == Standing::Unmet)
            && !crate::replica::is_broken("members that were not met are waited for");
        let Some(suspension) = &mut self.suspended[failed] else {
            return Decision::None;
        };
        let goes_by_views = known.by_views && self.has_copies && suspension.was_met;
        if !suspension.was_met && !known.is_resynced || goes_by_views && is_unmet {
            suspension.until = now.saturating_add(self.at_most);
        }
        if !suspension.was_met && !known.is_resynced {
            return Decision::None;
        }
        if suspension.is_recovered {
            return Decision::Over;
        }
        if suspension.until <= now {
            let is_told = suspension.is_late || crate::replica::is_broken("late heirs are told");
            let Some(heir) = suspension.heir.filter(|_| !is_told) else {
                return Decision::Over;
            };
            (suspension.is_late, suspension.until) = (true, now.saturating_add(self.at_most));
            return Decision::Late(heir, suspension.heir_incarnation);
        }
        if suspension.heir.is_some() {
            return Decision::None;
        }
        // The heir has none after all, or is gone, and no other is waited for again.
        if suspension.is_late || suspension.is_of(self.incarnations[failed]) {
            return Decision::Over;
        }
        if goes_by_views && is_unmet {
            return Decision::None;
        }
        let (failed_incarnation, was_met) = (suspension.incarnation, suspension.was_met);
        let all = self.reports[failed].iter().enumerate();
        let there = all.filter(|(runtime, _)| {
            *runtime != failed && (known.standing)(*runtime) == Standing::Met && self.has_copies
        });
        let heard = there.map(|(runtime, report)| Heard {
            runtime: runtime as u16,
            report: report
                .filter(|report| report.is_of(failed_incarnation))
                .map(|report| self.without_void(failed, report)),
            must_report: was_met && !self.has_begun_since(failed, runtime, failed_incarnation),
        });
        match heir(heard) {
            Heir::Unknown => Decision::None,
            Heir::None if self.returns && was_met && !known.has_returned => Decision::None,
            Heir::None => Decision::Over,
            Heir::Is(heir, incarnation) => {
                if let Some(suspension) = &mut self.suspended[failed] {
                    (suspension.heir, suspension.heir_incarnation) = (Some(heir), incarnation);
                }
                Decision::Heir(heir, incarnation)
            }
        }
    }

    /// Keeps a packet for a failed runtime's group; hands it back if there is no room.
    pub fn keep(
        &mut self,
        failed: usize,
        packet: PacketBox,
        pool: &Pool,
    ) -> Result<(), (PacketBox, DropReason)> {
        let has_room = self.packets < pool.total() / 4 && pool.free() > pool.total() / 2;
        match &mut self.suspended[failed] {
            Some(suspension) if has_room => {
                self.waiting.insert(packet.hash(), failed as u16);
                suspension.packets.push(packet);
                self.packets += 1;
                Ok(())
            }
            _ => Err((packet, DropReason::RecoveryFull)),
        }
    }

    /// The failed runtime for which earlier packets wait that were routed as this one is. Its flow
    /// may be at the heir by now.
    pub fn awaits(&self, packet: &PacketBox) -> Option<usize> {
        let failed = self.waiting.get(&packet.hash())?;
        (!crate::replica::is_broken("packets wait behind those that wait")).then_some(usize::from(*failed))
    }

    /// Whether a runtime is suspended that was at a link of this switch.
    pub fn was_met(&self, runtime: usize) -> bool {
        let suspension = self.suspended[runtime].as_ref();
        suspension.is_some_and(|suspension| suspension.was_met)
    }

    /// Whether the incarnation that was let go is at the link again. Flows that an heir has not
    /// announced are there as they were.
    pub fn is_back(&self, runtime: usize) -> bool {
        let suspension = self.suspended[runtime].as_ref();
        suspension.is_some_and(|suspension| suspension.is_of(self.incarnations[runtime]))
    }

    /// A runtime is suspended no more; hands out the packets that waited.
    pub fn end(&mut self, failed: usize) -> PacketList {
        let Some(suspension) = self.suspended[failed].take() else {
            return PacketList::new();
        };
        self.active -= 1;
        if suspension.is_recovered {
            self.recovered[failed] = suspension.incarnation;
        }
        self.waiting
            .retain(|_, waits_for| usize::from(*waits_for) != failed);
        for (report, has_none) in self.reports[failed].iter_mut().zip(&mut self.has_none[failed]) {
            // The next incarnation may have failed, too.
            let is_over = |report: &Report| report.is_of(suspension.incarnation);
            if report.take_if(|report| is_over(report)).is_some() {
                *has_none = true;
            }
        }
        suspension.packets
    }

    /// A packet that waited is routed.
    pub fn note_routed(&mut self) {
        self.packets -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u64 = 11;
    const NEXT: u64 = 13;

    /// The decision for runtime 1, where all three runtimes are met.
    fn decide(recovery: &mut Recovery) -> Decision {
        decide_at(recovery, 0)
    }

    fn decide_at(recovery: &mut Recovery, now: u64) -> Decision {
        let known = Known {
            standing: |_| Standing::Met,
            by_views: false,
            is_resynced: true,
            has_returned: false,
        };
        recovery.decide(1, now, &known)
    }

    /// Runtimes 0 and 1 are of one process, which has failed and begun again. Runtime 2 has copies
    /// of runtime 1.
    fn with_a_next_incarnation() -> Recovery {
        let mut recovery = Recovery::new(3, 1000);
        recovery.note_incarnation(1, OLD);
        recovery.forget_reports_of(0);
        recovery.suspend(1, 0);
        let copies = Report {
            number: 5,
            incarnation: OLD,
        };
        recovery.note_report(1, 2, copies);
        recovery
    }

    #[test]
    fn the_next_incarnation_of_a_process_is_not_waited_for() {
        let mut recovery = with_a_next_incarnation();
        assert_eq!(
            decide(&mut recovery),
            Decision::None,
            "runtime 0 has said nothing"
        );
        recovery.note_meeting(1, 0, NEXT);
        assert_eq!(decide(&mut recovery), Decision::Heir(2, OLD));
        crate::replica::BROKEN.set("the next incarnation of a process is not waited for");
        let mut recovery = with_a_next_incarnation();
        recovery.note_meeting(1, 0, NEXT);
        assert_eq!(decide(&mut recovery), Decision::None, "the rule is broken");
        crate::replica::BROKEN.set("");
    }

    #[test]
    fn an_heir_is_told_that_it_is_late_before_flows_begin_elsewhere() {
        let late = || {
            let mut recovery = with_a_next_incarnation();
            recovery.note_meeting(1, 0, NEXT);
            assert_eq!(decide(&mut recovery), Decision::Heir(2, OLD));
            assert_eq!(decide_at(&mut recovery, 999), Decision::None);
            assert_eq!(decide_at(&mut recovery, 9000), Decision::Late(2, OLD));
            assert_eq!(decide_at(&mut recovery, 9999), Decision::None);
            recovery
        };
        let mut recovery = late();
        recovery.note_recovered(1, 2);
        assert_eq!(decide_at(&mut recovery, 9999), Decision::Over);
        // It has given up; it is gone; it says nothing.
        let mut recovery = late();
        recovery.note_report(
            1,
            2,
            Report {
                number: 0,
                incarnation: OLD,
            },
        );
        assert_eq!(decide_at(&mut recovery, 9999), Decision::Over);
        let mut recovery = late();
        recovery.forget_reports_of(2);
        assert_eq!(decide_at(&mut recovery, 9999), Decision::Over);
        assert_eq!(decide_at(&mut late(), 10_000), Decision::Over);
    }

    #[test]
    fn a_runtime_that_has_met_the_incarnation_that_failed_is_waited_for() {
        let mut recovery = Recovery::new(3, 1000);
        recovery.note_meeting(1, 0, NEXT);
        recovery.note_incarnation(1, NEXT);
        recovery.suspend(1, 0);
        let none = Report {
            number: 0,
            incarnation: NEXT,
        };
        recovery.note_report(1, 2, none);
        assert_eq!(decide(&mut recovery), Decision::None);
        recovery.note_report(1, 0, Report { number: 4, ..none });
        assert_eq!(decide(&mut recovery), Decision::Heir(0, NEXT));
    }

    #[test]
    fn what_was_kept_of_an_incarnation_before_is_awaited_once_the_next_one_is_here() {
        let everywhere = |_| true;
        let report = |number, incarnation| Report { number, incarnation };
        let mut recovery = Recovery::new(3, 1000);
        recovery.note_report(1, 0, report(Report::LATER, NEXT));
        recovery.note_report(1, 2, report(Report::LATER, OLD));
        recovery.note_report(1, 2, report(4, OLD - 2));
        assert!(!recovery.awaits_word_before(1, everywhere, 0), "it may live");
        recovery.note_incarnation(1, NEXT);
        assert!(recovery.awaits_word_before(1, everywhere, 0));
        assert!(!recovery.awaits_word_before(1, |runtime| runtime != 2, 0));
        assert!(!recovery.awaits_word_before(1, everywhere, 1000), "for a time");
        recovery.note_report(1, 2, report(5, OLD));
        assert!(!recovery.awaits_word_before(1, everywhere, 0));
    }

    /// Runtime 1 was cut off from the others, which have reported; runtime 2 is its replica again.
    fn of_one_that_lives() -> Recovery {
        let mut recovery = Recovery::new(3, 1000);
        recovery.note_incarnation(1, OLD);
        let none = Report {
            number: 0,
            incarnation: OLD,
        };
        recovery.note_report(1, 0, none);
        recovery.note_report(1, 2, none);
        let later = Report {
            number: Report::LATER,
            ..none
        };
        recovery.note_report(1, 2, later);
        recovery.suspend(1, 0);
        recovery
    }

    #[test]
    fn a_report_that_it_is_gone_is_forgotten_when_it_is_met_again() {
        let copies = Report {
            number: 7,
            incarnation: OLD,
        };
        let mut recovery = of_one_that_lives();
        assert_eq!(
            decide(&mut recovery),
            Decision::None,
            "runtime 2 has yet to report"
        );
        recovery.note_report(1, 2, copies);
        assert_eq!(decide(&mut recovery), Decision::Heir(2, OLD));
        crate::replica::BROKEN.set("reports of the living are void");
        let decision = decide(&mut of_one_that_lives());
        crate::replica::BROKEN.set("");
        assert_eq!(decision, Decision::Over, "the rule is broken");
    }

    #[test]
    fn copies_of_a_void_base_make_no_heir() {
        let report = |number, incarnation| Report { number, incarnation };
        for (number, decision) in [(3, Decision::Over), (4, Decision::Heir(2, OLD))] {
            let mut recovery = Recovery::new(3, 1000);
            recovery.note_incarnation(1, OLD);
            recovery.note_least(1, report(4, OLD));
            recovery.suspend(1, 0);
            recovery.note_report(1, 0, report(0, OLD));
            recovery.note_report(1, 2, report(number, OLD));
            assert_eq!(decide(&mut recovery), decision);
        }
        // Of another incarnation that says nothing.
        let mut recovery = Recovery::new(3, 1000);
        recovery.note_incarnation(1, NEXT);
        recovery.note_least(1, report(4, OLD));
        recovery.suspend(1, 0);
        recovery.note_report(1, 0, report(0, NEXT));
        recovery.note_report(1, 2, report(1, NEXT));
        assert_eq!(decide(&mut recovery), Decision::Heir(2, NEXT));
    }

    #[test]
    fn packets_that_wait_are_a_quarter_of_the_buffers_at_most() {
        let region = wire::memory::Region::heap(Pool::region_length(16, 256));
        let mut pool = Pool::new(region, 16, 256, 0);
        let mut recovery = Recovery::new(2, 1000);
        let refused = |recovery: &mut Recovery, pool: &mut Pool| {
            let packet = pool.take().expect("a buffer");
            let Err((packet, reason)) = recovery.keep(1, packet, pool) else {
                return None;
            };
            pool.give(packet);
            Some(reason)
        };
        recovery.suspend(1, 0);
        for number in 1..=4 {
            assert_eq!(refused(&mut recovery, &mut pool), None, "{number}");
            assert_eq!((recovery.packets(), pool.free()), (number, 16 - number));
        }
        assert_eq!(refused(&mut recovery, &mut pool), Some(DropReason::RecoveryFull));
        let mut waited = recovery.end(1);
        while let Some(packet) = waited.pop() {
            recovery.note_routed();
            pool.give(packet);
        }
        assert_eq!((recovery.packets(), pool.free()), (0, 16));
        // Where others have half of the buffers none is kept.
        recovery.suspend(1, 0);
        let others: Vec<PacketBox> = (0..7).map(|_| pool.take().expect("a buffer")).collect();
        assert_eq!(refused(&mut recovery, &mut pool), Some(DropReason::RecoveryFull));
        others.into_iter().for_each(|packet| pool.give(packet));
        assert_eq!(refused(&mut recovery, &mut pool), None);
    }
}
