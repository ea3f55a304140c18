//! The failures where runtimes keep copies of each other's flows: which workers crash when, and
//! faults between.
//!
//! ```text
//!   all is copied ─► a runtime crashes ─► its flows go on ─► all is copied ─► the heir crashes ─► …
//! ```
//!
//! With a coordinator most such faults are drawn in [`crate::cuts`], and whether flows survive them
//! is not asked; here are scripts of which it is ([`Script::draw_removals`]).
//!
//! Not here: faults of all scripts ([`crate::script`]).

use crate::Time;
use crate::apart::DEAD_AFTER;
use crate::random::{Random, Stream};
use crate::script::{Fault, MILLI, Move, Part, Script, Timed, Who, Why};

/// As long a partition may last after which both ends still know each other, whatever stalls and
/// losses there are besides (`apart::DEAD_AFTER`).
const SILENCE_SHORT: u64 = 60 * MILLI;
/// Until a view is without a runtime that failed, its flows go on elsewhere and all is copied
/// again, if nothing else goes wrong.
const REMOVED: u64 = 250 * MILLI;
/// How much longer than silence a worker may say nothing.
const SILENCE_MORE: u64 = 80 * MILLI;

/// Whether faults that are known to find something are drawn, too: moves of runtimes that are given
/// up and live. No coordinator is there, so nothing fences them.
fn draws_hard() -> bool {
    std::env::var_os("FLOWKEEP_SIM_HARD").is_some()
}

impl Script {
    /// Draws the failures that a replica is for, and those that may come between, where copies are
    /// kept.
    pub(crate) fn draw_failures(&mut self) {
        if !self.is_copied() || self.is_calm || self.joined().is_some() {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Copies, 16 + self.scenario as u64);
        let span = self.heals_at;
        match random.below(8) {
            0..3 => self.draw_one_after_the_other(&mut random, span),
            3 => self.draw_crashes_while_moving(&mut random),
            4 => self.draw_crashes_while_recovering(&mut random, span),
            5 => {
                let workers = u64::from(self.shape.switches) + u64::from(self.shape.runtimes);
                let from = random.below(workers) as u8;
                self.faults.push(Timed {
                    at: random.below(span),
                    fault: Fault::Partition {
                        from,
                        to: ((u64::from(from) + 1 + random.below(workers - 1)) % workers) as u8,
                        back: random.once_in(2),
                        time: random.between(20 * MILLI, SILENCE_SHORT),
                    },
                });
                self.heals_at += SILENCE_SHORT;
            }
            6 => self.draw_silence_once_copied(&mut random, span),
            _ => self.draw_silence(&mut random, span),
        }
    }

    /// With a coordinator, in a quarter of the scripts with copies: a runtime crashes or stands
    /// still until a view is without it, once all is copied, then perhaps another. Nothing else
    /// goes wrong but on the network, and where nothing is ever full no flow is lost. Answers
    /// whether that was drawn.
    pub(crate) fn draw_removals(&mut self) -> bool {
        let mut random = Random::of(self.seed, Stream::Copies, 48 + self.scenario as u64);
        if !self.is_copied() || !random.once_in(4) {
            return false;
        }
        self.moves.retain(|order| order.part != Part::Faults);
        self.faults.clear();
        let mut at = random.between(self.heals_at / 8, self.heals_at);
        for _ in 0..random.between(1, 3) {
            let worker = self.shape.switches + random.below(u64::from(self.shape.runtimes)) as u8;
            let time = random.between(MILLI / 10, REMOVED);
            let fault = match random.once_in(3) {
                true => Fault::Silence {
                    worker,
                    why: Why::Stands(true),
                    time,
                },
                false => Fault::Crash {
                    who: Who::Copied(worker, time),
                },
            };
            self.faults.push(Timed { at, fault });
            at += REMOVED + random.below(REMOVED);
        }
        self.heals_at = at + REMOVED;
        self.lengthen_talks(&mut random);
        for talk in &mut self.talks {
            talk.gap = random.of_these(&[talk.gap, 5 * MILLI, 15 * MILLI]);
        }
        true
    }

    /// A runtime is given up once all is copied, and goes on when its flows are elsewhere; perhaps
    /// another after it. No flow is lost by that.
    fn draw_silence_once_copied(&mut self, random: &mut Random, span: Time) {
        self.moves.retain(|order| order.part != Part::Faults);
        self.faults
            .retain(|timed| !matches!(timed.fault, Fault::Crash { .. } | Fault::Jump { .. }));
        let mut at = random.between(span / 8, span / 2);
        for _ in 0..random.between(1, 2) {
            let worker = self.shape.switches + random.below(u64::from(self.shape.runtimes)) as u8;
            at += self.add_silence(random, at, worker, true) + random.below(span / 4);
        }
        self.heals_at = span.max(at) + 20 * MILLI;
        self.lengthen_talks(random);
    }

    /// Any worker is given up at any time, among other faults.
    fn draw_silence(&mut self, random: &mut Random, span: Time) {
        if !draws_hard() {
            self.moves.retain(|order| order.part != Part::Faults);
        }
        let workers = u64::from(self.shape.switches) + u64::from(self.shape.runtimes);
        let (at, worker) = (random.below(span), random.below(workers) as u8);
        self.keep_clocks_slow(worker);
        let time = self.add_silence(random, at, worker, false);
        self.heals_at = span.max(at + time) + 20 * MILLI;
        self.lengthen_talks(random);
    }

    /// Has a worker say nothing for longer than silence; answers for how long.
    fn add_silence(&mut self, random: &mut Random, at: Time, worker: u8, is_copied: bool) -> u64 {
        let time = DEAD_AFTER + random.between(MILLI, SILENCE_MORE);
        let why = if random.once_in(3) {
            Why::IsCut(is_copied)
        } else {
            Why::Stands(is_copied)
        };
        let fault = Fault::Silence { worker, why, time };
        self.faults.push(Timed { at, fault });
        time
    }

    fn lengthen_talks(&mut self, random: &mut Random) {
        for talk in &mut self.talks {
            let more = random.of_these(&[1, 4, 8]);
            talk.rounds = (talk.rounds * more).min(60 / talk.burst);
        }
    }

    /// A runtime crashes, then, once all is copied, its heir or another, and perhaps one more: no
    /// flow is lost by that.
    fn draw_one_after_the_other(&mut self, random: &mut Random, span: Time) {
        let runtimes = u64::from(self.shape.runtimes);
        self.moves.retain(|order| order.part != Part::Faults);
        self.faults
            .retain(|timed| !matches!(timed.fault, Fault::Crash { .. } | Fault::Jump { .. }));
        let mut runtime = random.below(runtimes);
        let mut at = random.between(span / 8, span / 2);
        for _ in 0..random.between(1, 3) {
            let who = Who::Copied(
                self.shape.switches + runtime as u8,
                random.between(MILLI / 10, 10 * MILLI),
            );
            self.faults.push(Timed {
                at,
                fault: Fault::Crash { who },
            });
            at += 12 * MILLI + random.below(span / 4);
            let next = if random.once_in(3) {
                random.below(runtimes)
            } else {
                1
            };
            runtime = (runtime + next) % runtimes;
        }
        self.heals_at = span.max(at) + 20 * MILLI;
        self.lengthen_talks(random);
    }

    /// The source or the target of a move crashes during it.
    fn draw_crashes_while_moving(&mut self, random: &mut Random) {
        let moves: Vec<Move> = self
            .moves
            .iter()
            .filter(|order| order.part == Part::Faults)
            .copied()
            .collect();
        if moves.is_empty() {
            return;
        }
        let order = random.of_these(&moves);
        let who = match order.to {
            Some(to) if random.once_in(2) => to,
            _ => order.from,
        };
        let who = Who::Worker(
            self.shape.switches + who as u8,
            random.between(MILLI / 10, 20 * MILLI),
        );
        self.faults.push(Timed {
            at: order.at + random.below(MILLI),
            fault: Fault::Crash { who },
        });
    }

    /// A runtime crashes, and another worker about when the flows of that one go on.
    fn draw_crashes_while_recovering(&mut self, random: &mut Random, span: Time) {
        let workers = u64::from(self.shape.switches) + u64::from(self.shape.runtimes);
        let first = self.shape.switches + random.below(u64::from(self.shape.runtimes)) as u8;
        let second = ((u64::from(first) + 1 + random.below(workers - 1)) % workers) as u8;
        let (at, time) = (random.below(span), random.between(MILLI / 10, 10 * MILLI));
        self.keep_clocks_slow(second);
        for (at, worker, time) in [
            (at, first, time),
            (
                at + time + random.below(MILLI),
                second,
                random.between(MILLI / 10, 10 * MILLI),
            ),
        ] {
            self.faults.push(Timed {
                at,
                fault: Fault::Crash {
                    who: Who::Worker(worker, time),
                },
            });
        }
    }
}
