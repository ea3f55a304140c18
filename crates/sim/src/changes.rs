//! Changes of the configuration while flows live, as `flowkeep chain apply` makes them; and copies
//! that are taken from time to time.
//!
//! ```text
//!   configurations: variant, another, another ── a change ─► the next of them is in force at all workers
//! ```
//!
//! All configurations of a script let the same packets in, and differ in all that may differ
//! besides: timeouts, which rule lets a packet in, how servers and ports are chosen, what of
//! outside may answer. So no flow may end by a change, and all that must hold without a change must
//! hold.
//!
//! Not here: making changes (`crate::world`).

use crate::Time;
use crate::random::{Random, Stream};
use crate::scenario::Variant;
use crate::script::{MILLI, Part, Script};

/// An order to put another configuration in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub part: Part,
    /// Since the part began.
    pub at: Time,
    /// Which of [`Script::configurations`].
    pub to: u8,
    /// So long after the decision the last worker has it in force, at the latest, unless it stands
    /// still.
    pub spread: u64,
}

/// Copies that are taken from time to time (`policy = "snapshot"`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Snapshots {
    /// After so many packets of a flow, or so many nanoseconds.
    pub packets: u16,
    pub interval: u64,
}

/// How many configurations there are besides the first.
const OTHERS: u64 = 2;

impl Script {
    pub(crate) fn draw_changes(&mut self) {
        if !self.scenario.has_changes() {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Changes, self.scenario as u64);
        if let Some(apart) = &mut self.shape.apart
            && apart.copied
            && random.once_in(2)
        {
            apart.snapshots = Some(Snapshots {
                packets: random.of_these(&[1, 2, 16]),
                interval: random.of_these(&[MILLI, 10 * MILLI]),
            });
        }
        for _ in 0..OTHERS {
            let other = self.variant.another(&mut random, self.shape.apart.is_some());
            self.others.push(other);
        }
        let span = self.heals_at;
        for (part, least, time) in [
            (Part::Faults, 1, span),
            (Part::Early, 0, 20 * MILLI),
            (Part::Late, 0, 20 * MILLI),
        ] {
            for _ in 0..random.between(least, least + 2) {
                self.changes.push(Change {
                    part,
                    at: random.below(time),
                    to: random.below(OTHERS + 1) as u8,
                    spread: random.of_these(&[1, MILLI, 10 * MILLI]),
                });
            }
        }
        // A runtime that leaves is no worker of a configuration, and a runtime that comes has the
        // first.
        self.goings.clear();
        self.comes_at = None;
    }

    /// All configurations, the one at the beginning first.
    pub(crate) fn configurations(&self) -> impl Iterator<Item = &Variant> {
        [&self.variant].into_iter().chain(&self.others)
    }

    /// How copies are taken, where that is from time to time.
    pub(crate) fn snapshots(&self) -> Option<Snapshots> {
        self.shape.apart?.snapshots
    }
}
