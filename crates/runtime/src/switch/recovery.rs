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
//! While a runtime is suspended its routes stay, so that no other runtime is chosen for its groups; the heir's announcements turn them. When that is over,
//! what is left of them ends, and what has waited is routed in the order in which it came.
//!
//! A report may come before this switch sees the end of the session that it is about, and is kept until then. The runtime may be there again meanwhile: routes know
//! their incarnation, and it is told which blocks are in use, and gets new groups, only when the suspension is over.
//!
//! Invariants: packets that wait are bounded (`recovery_full`), and are a quarter of the buffers at most; a suspension ends.
//!
//! Not here: routes (`directory`).

use crate::stats::DropReason;
use alloc::vec::Vec;
use wire::{PacketBox, PacketList, Pool};

/// What follows from the reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// Some have not come, or it was made.
    None,
    /// This runtime has the copies.
    Heir(u16),
    /// Nothing is to be waited for any more.
    Over,
}

struct Suspension {
    until: u64,
    heir: Option<u16>,
    is_recovered: bool,
    packets: PacketList,
}

/// See the module's page.
pub(super) struct Recovery {
    /// How long a suspension lasts at most, in nanoseconds; 0 where runtimes keep no copies.
    at_most: u64,
    suspended: Vec<Option<Suspension>>,
    /// By failed runtime, by reporting one.
    reports: Vec<Vec<Option<u32>>>,
    active: usize,
    packets: usize,
}

impl Recovery {
    pub fn new(runtimes: usize, at_most: u64) -> Self {
        Recovery {
            at_most,
            suspended: (0..runtimes).map(|_| None).collect(),
            reports: alloc::vec![alloc::vec![None; runtimes]; runtimes],
            active: 0,
            packets: 0,
        }
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

    /// A runtime has failed.
    pub fn suspend(&mut self, runtime: usize, now: u64) {
        debug_assert!(self.suspended[runtime].is_none(), "it was there since");
        self.active += 1;
        self.suspended[runtime] = Some(Suspension {
            until: now.saturating_add(self.at_most),
            heir: None,
            is_recovered: false,
            packets: PacketList::new(),
        });
    }

    /// A runtime's session is over: it has no copies any more.
    pub fn forget_reports_of(&mut self, runtime: usize) {
        for (failed, reports) in self.reports.iter_mut().enumerate() {
            reports[runtime] = None;
            if let Some(suspension) = &mut self.suspended[failed]
                && suspension.heir == Some(runtime as u16)
            {
                suspension.heir = None;
            }
        }
    }

    /// A runtime says which copies it has of one that has failed.
    pub fn note_report(&mut self, failed: u16, by: usize, number: u32) {
        if self.is_wanted() {
            self.reports[usize::from(failed)][by] = Some(number);
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

    /// What follows for a runtime. `is_there` says which runtimes are there.
    pub fn decide(&mut self, failed: usize, now: u64, is_there: impl Fn(usize) -> bool) -> Decision {
        let Some(suspension) = &mut self.suspended[failed] else {
            return Decision::None;
        };
        if suspension.is_recovered || suspension.until <= now {
            return Decision::Over;
        }
        if suspension.heir.is_some() {
            return Decision::None;
        }
        let mut best = None;
        for (runtime, report) in self.reports[failed].iter().enumerate() {
            if runtime == failed || !is_there(runtime) {
                continue;
            }
            match report {
                None => return Decision::None,
                Some(0) => {}
                // Of two replicas the later one; which runtime it is decides nothing, but must at all switches.
                Some(number) => best = best.max(Some((*number, runtime as u16))),
            }
        }
        match best {
            None => Decision::Over,
            Some((_, heir)) => {
                suspension.heir = Some(heir);
                Decision::Heir(heir)
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
                suspension.packets.push(packet);
                self.packets += 1;
                Ok(())
            }
            _ => Err((packet, DropReason::RecoveryFull)),
        }
    }

    /// A runtime is suspended no more; hands out what waited.
    pub fn end(&mut self, failed: usize) -> PacketList {
        self.reports[failed].fill(None);
        match self.suspended[failed].take() {
            Some(suspension) => {
                self.active -= 1;
                suspension.packets
            }
            None => PacketList::new(),
        }
    }

    /// A packet that waited is routed.
    pub fn note_routed(&mut self) {
        self.packets -= 1;
    }
}
