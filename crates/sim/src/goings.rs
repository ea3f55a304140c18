//! Members that come and go by plan, where workers have joined a coordinator: a runtime that no
//! configuration lists, and runtimes that leave.
//!
//! ```text
//!   the last runtime is not listed: it begins late, joins, and borrows what it has of pools
//!   a runtime leaves ─► no new groups ─► all groups to the others ─► nothing comes any more ─► leaves the view ─► its process ends
//!                                                                                              └─ begins again later, as the next incarnation
//! ```
//!
//! All runtimes of a process leave together.
//!
//! Where a script has no faults, no packet may be lost by that, and no flow begin again.
//!
//! Not here: doing it (`crate::world`).

use crate::Time;
use crate::random::{Random, Stream};
use crate::script::{MILLI, Script};

/// When all members run by the view, and take groups, if nothing goes wrong.
const BEGINNING: u64 = 60 * MILLI;

/// A runtime that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Going {
    pub at: Time,
    pub runtime: u16,
    /// The coordinator is told first that it is drained; its process is told to end once it knows.
    pub is_drained: bool,
    /// How long its process is away.
    pub away: u64,
}

impl Script {
    /// In half of the scripts with a coordinator and several processes of runtimes, but for those
    /// in which flows survive failures.
    pub(crate) fn draw_goings(&mut self) {
        let is_failing = !self.is_calm && self.keeps_flows();
        if self.joined().is_none() || self.shape.processes_of_runtimes() < 2 || is_failing {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Goings, self.scenario as u64);
        if random.once_in(2) {
            return;
        }
        let span = self.heals_at;
        // Blocks that were lent when a switch died are out for long (docs/status.md), and a runtime
        // that begins without any has all of them from others.
        if random.once_in(2) && (self.is_calm || !self.scenario.has_nat()) {
            self.comes_at = Some(random.below(span));
            self.part_last();
        }
        // One runtime at a time where nothing may be lost: a runtime that leaves when no other
        // takes groups ends its flows.
        let most = if self.is_calm { 1 } else { 2 };
        for _ in 0..random.below(most + 1) {
            let after = BEGINNING + self.comes_at.filter(|_| self.is_calm).unwrap_or(0);
            self.goings.push(Going {
                at: after + random.below(span),
                runtime: random.below(u64::from(self.shape.runtimes)) as u16,
                is_drained: random.once_in(2),
                away: random.between(MILLI, 40 * MILLI),
            });
        }
        if self.is_calm && !self.goings.is_empty() {
            // A move that is called back leaves its flows where they end.
            self.shape.move_timeout = 1000 * MILLI;
        }
    }

    /// How many runtimes the configuration lists.
    pub fn listed(&self) -> u16 {
        self.shape.runtimes - u16::from(self.comes_at.is_some())
    }
}
