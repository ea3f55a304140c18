//! The timer wheel: which actors to look at, and when.
//!
//! # Theory of operation
//!
//! An actor's deadline is kept in the actor, where a packet moves it with one store. The wheel only
//! remembers when to *look*: an index is filed under the tick of the deadline it had, and when that
//! tick comes the owner compares the deadline and files the index again if it has moved (a lazy
//! wheel). So a flow of a thousand packets costs the wheel a look every time-out, not every packet.
//!
//! Three levels of 256 slots, each slot a list linked through one array. With ticks of 2^24 ns
//! (16.8 ms) a level spans 4.3 s, 18 min and 78 h; later deadlines are filed at the end and looked
//! at early.
//!
//! ```text
//! level 0  ▏▏▏▏ 256 × 16.8 ms      an index moves down a level when its slot's
//! level 1  ▏▏▏▏ 256 × 4.3 s        turn comes (filed again by its tick)
//! level 2  ▏▏▏▏ 256 × 18 min
//! ```
//!
//! An index is in at most one list. Freeing an actor does not unfile it: if the index is used again
//! for a flow with a later deadline, the old entry serves as the look that files it again. Only a
//! deadline that moves *before* the filed tick unlinks ([`Wheel::file_by`]).
//!
//! Invariants (checked against an oracle below): an index filed by deadline `d` is offered at or
//! after `d`, and at most two ticks later if [`Wheel::poll`] is called every tick; no index is
//! offered that is not filed.
//!
//! Not here: deadlines themselves, and what expiry means.

use alloc::boxed::Box;
use alloc::vec;
use wire::memory::prefetch;

const SLOTS: usize = 256;
const LEVELS: usize = 3;
const NONE: u32 = u32::MAX;
/// Marks a slot's own head in a `previous` link: `HEAD | level * 256 + slot`.
const HEAD: u32 = 0x8000_0000;

/// Nanoseconds of a tick, as a power of two.
pub const TICK_SHIFT: u32 = 24;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    previous: u32,
    tick: u64,
}

const UNFILED: u64 = u64::MAX;
/// A jump of the clock by more ticks than this (about 19 hours) is not walked through.
const LEAP: u64 = 1 << 22;

/// A lazy timer wheel over the indices `0..capacity`.
pub struct Wheel {
    nodes: Box<[Node]>,
    heads: Box<[u32; SLOTS * LEVELS]>,
    /// Ticks up to and including this one have been offered.
    current: u64,
    filed: usize,
}

impl Wheel {
    /// A wheel for `capacity` indices (below 2^31), starting at `now` nanoseconds.
    pub fn new(capacity: usize, now: u64) -> Self {
        assert!(capacity < HEAD as usize, "a wheel has at most 2^31 - 1 indices");
        let empty = Node {
            next: NONE,
            previous: NONE,
            tick: UNFILED,
        };
        Wheel {
            nodes: vec![empty; capacity].into_boxed_slice(),
            heads: Box::new([NONE; SLOTS * LEVELS]),
            current: now >> TICK_SHIFT,
            filed: 0,
        }
    }

    /// Sees to it that `index` is offered soon after `deadline` (nanoseconds) at the latest. If it
    /// is filed for an earlier look already, that look will do.
    #[inline]
    pub fn file_by(&mut self, index: u32, deadline: u64) {
        let tick = Self::tick_after(deadline);
        let filed = self.nodes[index as usize].tick;
        if filed <= tick {
            return;
        }
        if filed != UNFILED {
            self.unlink(index);
        }
        self.link(index, tick);
    }

    /// Asks the processor for the line of an index that is about to be filed.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        if let Some(node) = self.nodes.get(index as usize) {
            prefetch(node);
        }
    }

    /// The first tick that lies wholly behind `deadline`.
    #[inline]
    fn tick_after(deadline: u64) -> u64 {
        (deadline >> TICK_SHIFT) + 1
    }

    fn link(&mut self, index: u32, tick: u64) {
        let tick = tick.max(self.current + 1);
        let ahead = tick - self.current;
        let span = SLOTS as u64;
        let place = if ahead < span {
            tick % span
        } else if ahead < span * span {
            span + (tick / span) % span
        } else {
            // Beyond the wheel's reach: the last slot that is not the current one.
            let reach = tick.min(self.current + span * span * (span - 1));
            2 * span + (reach / (span * span)) % span
        } as usize;
        let first = self.heads[place];
        self.nodes[index as usize] = Node {
            next: first,
            previous: HEAD | place as u32,
            tick,
        };
        if first != NONE {
            self.nodes[first as usize].previous = index;
        }
        self.heads[place] = index;
        self.filed += 1;
    }

    fn unlink(&mut self, index: u32) {
        let Node { next, previous, .. } = self.nodes[index as usize];
        if previous & HEAD != 0 {
            self.heads[(previous & !HEAD) as usize] = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        self.nodes[index as usize].tick = UNFILED;
        self.filed -= 1;
    }

    /// Offers up to `budget` indices whose look is due at `now` nanoseconds; each is unfiled first,
    /// and `look` answers the deadline to file it by again, if any. Answers how many were offered;
    /// fewer than `budget` means: done for now.
    pub fn poll(&mut self, now: u64, budget: usize, mut look: impl FnMut(u32) -> Option<u64>) -> usize {
        let target = now >> TICK_SHIFT;
        if target.saturating_sub(self.current) > LEAP {
            self.leap(target);
        }
        let mut offered = 0;
        loop {
            // The current tick's slot first: a budget may have left some of it.
            let place = (self.current % SLOTS as u64) as usize;
            while self.heads[place] != NONE {
                if offered == budget {
                    return offered;
                }
                let index = self.heads[place];
                self.unlink(index);
                offered += 1;
                if let Some(deadline) = look(index) {
                    self.link(index, Self::tick_after(deadline));
                }
            }
            if self.current >= target {
                return offered;
            }
            if self.filed == 0 {
                self.current = target;
                continue;
            }
            self.current += 1;
            self.cascade();
        }
    }

    /// The clock has jumped far ahead (a capture from two decades): going there tick by tick would
    /// take minutes, so every index is filed again from just before the target.
    #[cold]
    fn leap(&mut self, target: u64) {
        self.heads.fill(NONE);
        self.filed = 0;
        self.current = target - 1;
        for index in 0..self.nodes.len() as u32 {
            let tick = self.nodes[index as usize].tick;
            if tick != UNFILED {
                self.link(index, tick);
            }
        }
    }

    /// Brings entries in slots of the higher levels whose turn has come down to their places.
    fn cascade(&mut self) {
        let span = SLOTS as u64;
        if self.current.is_multiple_of(span * span) {
            self.refile(2 * SLOTS + ((self.current / (span * span)) % span) as usize);
        }
        if self.current.is_multiple_of(span) {
            self.refile(SLOTS + ((self.current / span) % span) as usize);
        }
    }

    fn refile(&mut self, place: usize) {
        let mut index = core::mem::replace(&mut self.heads[place], NONE);
        while index != NONE {
            let Node { next, tick, .. } = self.nodes[index as usize];
            self.filed -= 1;
            // Due in this very tick: its slot is looked through next.
            if tick <= self.current {
                self.link_at_current(index, tick);
            } else {
                self.link(index, tick);
            }
            index = next;
        }
    }

    fn link_at_current(&mut self, index: u32, tick: u64) {
        let place = (self.current % SLOTS as u64) as usize;
        let first = self.heads[place];
        self.nodes[index as usize] = Node {
            next: first,
            previous: HEAD | place as u32,
            tick,
        };
        if first != NONE {
            self.nodes[first as usize].previous = index;
        }
        self.heads[place] = index;
        self.filed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::vec::Vec;

    const TICK: u64 = 1 << TICK_SHIFT;
    /// Moves of deadlines in a case, and the most ticks between two: each tick looks at all
    /// deadlines, a hundred times slower under miri.
    const MOVES: (usize, u64) = if cfg!(miri) { (12, 40) } else { (300, 400) };

    proptest! {
        /// Deadlines that move at random, against a plain map: no index expires early or late.
        #[test]
        fn expires_when_it_should(
            steps in proptest::collection::vec((0u32..40, 0u64..70_000, 0..MOVES.1), 1..MOVES.0),
            start in 0u64..1 << 40,
        ) {
            let mut wheel = Wheel::new(40, start);
            let mut deadlines: HashMap<u32, u64> = HashMap::new();
            let mut now = start;
            for (index, timeout, pass) in steps {
                let deadline = now + timeout * TICK / 3;
                deadlines.insert(index, deadline);
                wheel.file_by(index, deadline);
                // Time passes tick by tick; an index that is due must be offered within two ticks.
                for _ in 0..pass {
                    now += TICK;
                    let mut expired = Vec::new();
                    wheel.poll(now, usize::MAX, |index| match deadlines.get(&index) {
                        Some(deadline) if *deadline > now => Some(*deadline),
                        Some(_) => { expired.push(index); None }
                        None => None,
                    });
                    for index in expired {
                        deadlines.remove(&index);
                    }
                    for (index, deadline) in &deadlines {
                        prop_assert!(*deadline + 2 * TICK > now, "{index} is overdue");
                    }
                }
            }
        }
    }

    #[test]
    fn far_deadlines_and_long_naps() {
        let mut wheel = Wheel::new(3, 0);
        let day = 86_400_000_000_000;
        for (index, deadline) in [(0, day), (1, 30 * day), (2, TICK)] {
            wheel.file_by(index, deadline);
        }
        let deadlines = [day, 30 * day, TICK];
        let mut seen = Vec::new();
        for now in [2 * TICK, day - TICK, day + 2 * TICK, 29 * day, 31 * day] {
            wheel.poll(now, usize::MAX, |index| {
                if deadlines[index as usize] > now {
                    Some(deadlines[index as usize])
                } else {
                    seen.push((index, now));
                    None
                }
            });
        }
        assert_eq!(seen, [(2, 2 * TICK), (0, day + 2 * TICK), (1, 31 * day)]);
    }

    #[test]
    fn a_leap_of_decades_takes_no_time_and_loses_nothing() {
        let mut wheel = Wheel::new(2, 0);
        let year = 365 * 86_400_000_000_000_u64;
        wheel.file_by(0, 5 * TICK);
        wheel.file_by(1, 40 * year);
        let mut seen = Vec::new();
        wheel.poll(30 * year, usize::MAX, |index| {
            if index == 0 {
                seen.push(0);
                None
            } else {
                Some(40 * year)
            }
        });
        assert_eq!(seen, [0]);
        wheel.poll(41 * year, usize::MAX, |index| {
            seen.push(index);
            None
        });
        wheel.poll(41 * year + 2 * TICK, usize::MAX, |index| {
            seen.push(index);
            None
        });
        assert_eq!(seen, [0, 1]);
    }

    #[test]
    fn a_budget_leaves_the_rest_for_later() {
        let mut wheel = Wheel::new(10, 0);
        for index in 0..10 {
            wheel.file_by(index, 0);
        }
        assert_eq!(wheel.poll(4 * TICK, 4, |_| None), 4);
        assert_eq!(wheel.poll(4 * TICK, 4, |_| None), 4);
        assert_eq!(wheel.poll(4 * TICK, 4, |_| None), 2);
        assert_eq!(wheel.poll(4 * TICK, 4, |_| None), 0);
    }
}
