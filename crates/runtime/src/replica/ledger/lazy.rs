//! Flows of which nothing but lazy bytes has changed, or when they are over: they are written
//! within `lazy`, one behind the other.
//!
//! # Theory of operation
//!
//! ```text
//!   packet ─► first since the flow was written? ─► its bit
//!   bits  0 1 0 0 1 1 0 0 …    a walk over all actors takes `lazy`, each part of it its share of that
//!               ▲ at ──► a bit that is set: written, and clear
//! ```
//!
//! So writes are spread over `lazy`, however flows began, and a flow without packets costs one bit.
//! The walk goes on in [`PARTS`], at most once an interval, whose writes are one batch of the
//! store. It waits while the store has yet to take [`BEHIND_MAX`] changes: committed bytes go
//! first.
//!
//! *Deadlines.* An entry says that its flow has longer than it has, by [`Lazy::margin`]: a flow
//! whose packets come more often than that is not written for each of them, and its time in the
//! store is never shorter than its own.
//!
//! Invariant: a flow is written within `lazy` behind the packet that touched it, and a step, as far
//! as the store takes that.

use crate::flows::actor::{Header, stored};
use crate::replica::is_broken;
use alloc::vec::Vec;

/// A deadline that moves by more ticks at once is not compared.
const TICKS: u64 = 64;
/// Parts of the walk, each a batch of the store: to wake its agent costs as much as ten flows.
const PARTS: u64 = 256;
/// Changes that the store may have yet to take, while the walk goes on.
pub(super) const BEHIND_MAX: u64 = 2048;

/// See the module's page.
#[derive(Default)]
pub(super) struct Lazy {
    /// How long a walk takes; 0: nothing is lazy.
    time: u64,
    /// How long a part of it takes.
    part: u64,
    /// Bits of a tick of deadlines.
    tick: u32,
    /// [`TICKS`], in nanoseconds.
    span: u64,
    /// By actor.
    bits: Vec<u64>,
    /// Bits that are set.
    count: usize,
    /// The next actor.
    at: usize,
    /// When the last part began.
    last: u64,
    /// Actors that this part has yet to pass.
    left: usize,
    /// Of the next one, in parts of `time`.
    rest: u128,
}

impl Lazy {
    pub fn new(flows: usize, time: u64, interval: u64) -> Self {
        // The largest power of two up to half of it.
        let tick = (time / 2).checked_ilog2().unwrap_or(0);
        Lazy {
            time,
            part: (time / PARTS).max(interval),
            tick,
            span: TICKS << tick,
            bits: alloc::vec![0; flows.div_ceil(64)],
            ..Lazy::default()
        }
    }

    /// How much longer than it has a flow has in the store.
    pub fn margin(&self) -> u64 {
        2 * self.time
    }

    /// The marks in the header of a flow that is written with this deadline, or about to be.
    pub fn marks(&self, deadline: u64, is_touched: bool) -> (u8, u8) {
        if self.time == 0 {
            // Each packet has it written.
            return (0, 0);
        }
        let last = (deadline.saturating_add(self.margin()) >> self.tick).wrapping_sub(1);
        let touched = if is_touched { stored::TOUCHED } else { 0 };
        (stored::WRITTEN | touched, last as u8)
    }

    /// Whether a flow's deadline, which was another before, is not beyond the store's.
    #[inline(always)]
    pub fn reaches(&self, header: &Header, before: u64) -> bool {
        let tick = (header.deadline >> (self.tick & 63)) as u8;
        // A deadline that moves further at once may be anywhere.
        header.deadline <= before.saturating_add(self.span) && tick.wrapping_sub(header.stored_to) as i8 <= 0
            || is_broken("a deadline beyond the store's is written")
    }

    /// A flow is to be written within the time.
    pub fn touch(&mut self, actor: u32, now: u64) {
        if let Some(word) = self.bits.get_mut(actor as usize / 64) {
            let bit = 1 << (actor % 64);
            if self.count == 0 {
                (self.last, self.left) = (now, 0);
            }
            self.count += usize::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// It is written, or over.
    pub fn forget(&mut self, actor: u32) {
        if let Some(word) = self.bits.get_mut(actor as usize / 64) {
            let bit = 1 << (actor % 64);
            self.count -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// When the walk goes on.
    pub fn next_at(&self) -> Option<u64> {
        (self.count > 0).then(|| self.last.saturating_add(self.part))
    }

    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        self.count > 0 && (self.left > 0 || now.saturating_sub(self.last) >= self.part)
    }

    /// A part begins, if its time has come: of so many actors that are in use.
    pub fn begin_part(&mut self, now: u64, used: u32) {
        let passed = now.saturating_sub(self.last);
        if passed < self.part {
            return;
        }
        self.last = now;
        let (used, time) = (used as usize, u128::from(self.time.max(1)));
        self.rest += u128::from(passed) * used as u128;
        let share = usize::try_from(self.rest / time).unwrap_or(used);
        self.rest %= time;
        // No more flows are overdue than there are.
        self.left = self.left.saturating_add(share).min(used);
    }

    /// The next flow of this part.
    pub fn next(&mut self, used: u32) -> Option<u32> {
        let used = used as usize;
        while self.left > 0 && self.count > 0 {
            if self.at >= used {
                self.at = 0;
            }
            let (word, bit) = (self.at / 64, self.at % 64);
            let ahead = self.bits.get(word).map_or(0, |word| *word >> bit);
            // To the next bit, or the next word, or the end.
            let far = (ahead.trailing_zeros() as usize)
                .min(64 - bit)
                .min(used - self.at);
            let is_there = ahead >> (far & 63) & 1 == 1 && far < self.left && self.at + far < used;
            let passed = (far + usize::from(is_there)).min(self.left).max(1);
            let actor = self.at + far;
            self.at += passed;
            self.left -= passed;
            if is_there {
                return u32::try_from(actor).ok();
            }
        }
        None
    }

    /// Any flow that is marked.
    pub fn any(&self) -> Option<u32> {
        let word = self.bits.iter().position(|word| *word != 0)?;
        let bit = self.bits.get(word)?.trailing_zeros();
        u32::try_from(word * 64).ok().map(|first| first + bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIME: u64 = 1_000_000_000;
    const PART: u64 = 1_000_000;

    /// Goes on in steps of a part; when each flow was written.
    fn walk(lazy: &mut Lazy, used: u32, parts: u64) -> Vec<(u32, u64)> {
        let mut written = Vec::new();
        for part in 1..=parts {
            let now = part * PART;
            lazy.begin_part(now, used);
            while let Some(actor) = lazy.next(used) {
                lazy.forget(actor);
                written.push((actor, now));
            }
        }
        written
    }

    #[test]
    fn all_flows_at_once_are_written_over_the_time() {
        for used in [64, 1000, 50_000] {
            let mut lazy = Lazy::new(65_536, TIME, PART);
            (0..used).for_each(|actor| lazy.touch(actor, 0));
            let written = walk(&mut lazy, used, 1001);
            assert_eq!((written.len(), lazy.count, lazy.any()), (used as usize, 0, None));
            let mut parts = std::collections::BTreeMap::new();
            written
                .iter()
                .for_each(|(_, at)| *parts.entry(at).or_insert(0) += 1);
            let most = parts.values().max().unwrap();
            assert!(*most <= used / 250 + 2, "{used}: {most}");
        }
    }

    proptest! {
        #[test]
        fn each_flow_that_is_touched_is_written_once_within_the_time(
            used in 1_u32..500,
            touched in prop::collection::btree_set(0_u32..500, 1..100),
        ) {
            let mut lazy = Lazy::new(512, TIME, PART);
            let touched: Vec<u32> = touched.into_iter().map(|actor| actor % used).collect();
            touched.iter().for_each(|actor| lazy.touch(*actor, 0));
            let mut expected = touched;
            expected.sort_unstable();
            expected.dedup();
            let mut written: Vec<u32> = walk(&mut lazy, used, 1001).iter().map(|(actor, _)| *actor).collect();
            written.sort_unstable();
            prop_assert_eq!(written, expected);
        }

        /// However deadlines move, none is taken for reached that is beyond the store's.
        #[test]
        fn no_deadline_is_beyond_the_stores(moves in prop::collection::vec((any::<bool>(), 0_u64..1 << 44), 1..50)) {
            let lazy = Lazy::new(1, TIME, PART);
            let mut header = Header::FREE;
            header.deadline = 1 << 50;
            let mut at_store = header.deadline + lazy.margin();
            (header.stored, header.stored_to) = lazy.marks(header.deadline, false);
            for (is_later, by) in moves {
                let before = header.deadline;
                header.deadline = match is_later {
                    true => before + by % (1 << (by % 45)),
                    false => before.saturating_sub(by),
                };
                if !lazy.reaches(&header, before) {
                    at_store = header.deadline + lazy.margin();
                    (header.stored, header.stored_to) = lazy.marks(header.deadline, false);
                }
                prop_assert!(header.deadline <= at_store);
            }
        }
    }
}
