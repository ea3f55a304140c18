//! Barriers of routes: which switches have read the messages that replies are routed by.
//!
//! A ring shows its frames before any frame that another ring was given later, so a reply cannot
//! overtake a message at another switch. Links to other processes have no such order among each
//! other ([`Port::is_apart`]): the frame with the message may be lost, and come again when the
//! reply has been and gone. So each such switch is asked to say when it has read a message, and the
//! packet waits for that ([`crate::hold`]), as for a replica's acknowledgement (output commit).
//!
//! ```text
//!   messages ─► barrier n ─with them, behind the last of a step─► BarrierAsked n ─► each such switch that was sent one ── BarrierAcknowledged n ─►
//! ```
//!
//! Barriers are numbered, and *BarrierAcknowledged n* acknowledges all before n: one question and
//! one answer a step and switch, however many flows begin. A switch keeps no record of a barrier:
//! when it has read the message, it has put all before into its tables.
//!
//! *Disconnected switches* are not waited for: a switch whose session is over has no ports that are
//! read. A switch that restarts is sent every route, and is waited for until it has acknowledged
//! the last of them. A switch that this runtime has never met is waited for a while: it may be at
//! work.
//!
//! Invariants: an acknowledged barrier stays acknowledged while the switch's session lasts; no
//! message is asked about before it is sent.
//!
//! Not here: packets that wait.

use crate::env::Port;
use alloc::vec::Vec;

/// How long, in nanoseconds, a switch that was never met is waited for: as long as a runtime that
/// begins waits for an absent switch.
const STRANGE: u64 = 2_000_000_000;

/// The last barriers that each switch was sent, and has acknowledged.
pub struct Barrier {
    /// By switch; empty where no packet ever waits.
    switches: Vec<Progress>,
    /// The number of the barrier that messages belong to now.
    number: u64,
    /// Whether a message belongs to it.
    is_open: bool,
    /// Until when switches that were never met are waited for.
    strange_until: u64,
}

struct Progress {
    is_apart: bool,
    is_met: bool,
    is_present: bool,
    /// Whether it was sent all routes that there are.
    is_resynced: bool,
    /// A message was sent that belongs to the barrier at hand.
    is_open: bool,
    /// The last barrier to which a message to it belongs, and the last that it has acknowledged.
    sent: u64,
    acknowledged: u64,
}

impl Barrier {
    /// With one switch, and where all links are rings, no packet waits and no switch is asked.
    pub fn new<P: Port>(links: &[P], switches: u8, now: u64) -> Self {
        let is_needed = switches > 1 && links.iter().any(Port::is_apart);
        let progress = |link: &P| Progress {
            is_apart: link.is_apart(),
            is_met: link.session() != 0,
            is_present: link.session() != 0,
            is_resynced: true,
            is_open: false,
            sent: 0,
            acknowledged: 0,
        };
        Barrier {
            switches: match is_needed {
                true => links.iter().map(progress).collect(),
                false => Vec::new(),
            },
            number: 1,
            is_open: false,
            strange_until: now.saturating_add(STRANGE),
        }
    }

    /// The number of the barrier at hand.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A message that replies are routed by is sent to a switch.
    #[inline]
    pub fn note(&mut self, link: usize) {
        if let Some(switch) = self.switches.get_mut(link)
            && switch.is_apart
        {
            switch.is_open = true;
            switch.sent = self.number;
            self.is_open = true;
        }
    }

    /// Another worker, or none, is at a switch's end; a switch that is there has yet to be sent all
    /// routes.
    pub fn session_over(&mut self, link: usize, is_present: bool) {
        if let Some(switch) = self.switches.get_mut(link) {
            switch.is_met |= is_present;
            (switch.is_present, switch.is_resynced) = (is_present, !is_present);
            (switch.is_open, switch.sent, switch.acknowledged) = (false, 0, 0);
        }
    }

    /// A switch was sent all routes that there are.
    pub fn note_resynced(&mut self, link: usize) {
        if let Some(switch) = self.switches.get_mut(link) {
            switch.is_resynced = true;
        }
        self.note(link);
    }

    /// A switch acknowledges a barrier, and those before.
    pub fn acknowledge(&mut self, link: usize, number: u64) {
        if let Some(switch) = self.switches.get_mut(link) {
            switch.acknowledged = switch.acknowledged.max(number.min(switch.sent));
        }
    }

    /// A switch to be asked about the barrier at hand, which is over with the last of them.
    #[inline]
    pub fn next_question(&mut self) -> Option<(usize, u64)> {
        if !self.is_open {
            return None;
        }
        self.next_open()
    }

    #[cold]
    fn next_open(&mut self) -> Option<(usize, u64)> {
        let open = self.switches.iter_mut().position(|switch| switch.is_open);
        match open {
            Some(link) => {
                self.switches[link].is_open = false;
                Some((link, self.number))
            }
            None => {
                self.is_open = false;
                self.number += 1;
                None
            }
        }
    }

    /// Whether some switch has yet to acknowledge a barrier.
    pub fn is_awaited(&self, number: u64, now: u64) -> bool {
        self.switches.iter().any(|switch| {
            switch.is_apart
                && match switch.is_present {
                    true => !switch.is_resynced || switch.acknowledged < number.min(switch.sent),
                    false => !switch.is_met && now < self.strange_until,
                }
        })
    }

    /// Whether all switches that are there have acknowledged a barrier, as far as it was theirs.
    pub fn is_acknowledged(&self, number: u64) -> bool {
        let mut there = self
            .switches
            .iter()
            .filter(|switch| switch.is_apart && switch.is_present);
        there.all(|switch| switch.acknowledged >= number.min(switch.sent))
    }

    /// Whether a flow's first packet has to wait.
    #[inline]
    pub fn holds(&self, now: u64) -> bool {
        !self.switches.is_empty() && !wire::planted::is("left_unheard") && self.is_awaited(self.number, now)
    }
}
