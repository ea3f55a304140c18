//! Neighbours where the cluster is a router: hosts that answer late or not at all, that kernels
//! forget, and that are replaced.
//!
//! Not here: doing it (`crate::world`).

use crate::fault::{Fault, Timed};
use crate::random::{Random, Stream};
use crate::script::{INSIDE_HOSTS, MILLI, SERVERS, Script};

impl Script {
    /// Draws when hosts are silent, forgotten and replaced.
    pub(crate) fn draw_neighbours(&mut self) {
        if !self.scenario.has_neighbours() {
            return;
        }
        // Link addresses are what it is about.
        self.shape.ethernet = true;
        if self.is_calm {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Neighbours, self.scenario as u64);
        for _ in 0..random.below(12) {
            let host = random.below(u64::from(INSIDE_HOSTS + SERVERS)) as u8;
            let fault = match random.below(5) {
                0..2 => Fault::Forgotten { host },
                2..4 => Fault::Replaced { host },
                _ => Fault::Mute {
                    host,
                    time: random.between(MILLI, 300 * MILLI),
                },
            };
            self.faults.push(Timed {
                at: random.below(self.heals_at),
                fault,
            });
        }
    }
}
