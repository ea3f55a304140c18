//! The cost of functions: cycles of each call for the packets of one burst in some 256.
//!
//! ```text
//!   burst burst burst … burst                     a counter, and nothing else
//!   burst, sampled      each packet's way by `run::<true>`, and around each call the clock
//! ```
//!
//! A chain that is compiled in one piece is called function by function in a sampled burst, as it
//! is for packets that are watched. The time of two readings of the clock is taken off each call.
//! Of a call that waits, the cycles before it first waited are counted.
//!
//! Invariant: a packet's fate is the same in a sampled burst; without a clock no burst is sampled.
//!
//! Not here: which clock (the process gives it), and the report of it (`flowkeep status`).

use crate::stats::FunctionCost;
use alloc::string::String;
use alloc::vec::Vec;

/// Bursts from one sample to the next: between these two.
const BURSTS: [u32; 2] = [192, 320];
/// A call that took longer was interrupted: its thread was put aside meanwhile.
const INTERRUPTED: u64 = 1 << 17;
/// Pairs of readings, of which the shortest is taken off each call.
const TRIALS: usize = 64;

/// Calls of one function.
#[derive(Clone, Copy, Default)]
struct Calls {
    count: u64,
    cycles: u64,
    interrupted: u64,
}

/// Which bursts are sampled, and the result.
pub(crate) struct Sampling {
    clock: Option<fn() -> u64>,
    /// Bursts until the next sample.
    left: u32,
    /// Draws how many those are, so that they keep step with nothing.
    draw: u32,
    is_on: bool,
    /// Cycles that two readings take by themselves.
    overhead: u64,
    calls: Vec<Calls>,
}

impl Sampling {
    pub fn new() -> Self {
        Sampling {
            clock: None,
            left: u32::MAX,
            draw: 1,
            is_on: false,
            overhead: 0,
            calls: Vec::new(),
        }
    }

    /// Samples by this clock from now on.
    pub fn begin(&mut self, clock: fn() -> u64, functions: usize) {
        let pair = |_| {
            let before = clock();
            clock().saturating_sub(before)
        };
        self.overhead = (0..TRIALS).map(pair).min().unwrap_or(0);
        self.clock = Some(clock);
        self.calls.resize(functions, Calls::default());
        self.left = 1;
    }

    /// A burst is there: whether it is to be sampled.
    #[inline(always)]
    pub fn is_due(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == 0
    }

    /// The burst is sampled, up to [`Sampling::end`].
    #[cold]
    pub fn start(&mut self) {
        self.is_on = self.clock.is_some();
        self.draw = self.draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [least, most] = BURSTS;
        self.left = match self.is_on {
            true => least + (self.draw >> 16) % (most - least),
            false => u32::MAX,
        };
    }

    pub fn end(&mut self) {
        self.is_on = false;
    }

    /// Whether calls are counted.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// The time before a call.
    #[inline(always)]
    pub fn before(&self) -> u64 {
        match self.clock.filter(|_| self.is_on) {
            Some(clock) => clock(),
            None => 0,
        }
    }

    /// A function was called at this time, and has answered.
    #[inline(always)]
    pub fn after(&mut self, function: u8, before: u64) {
        if let Some(clock) = self.clock.filter(|_| self.is_on) {
            let took = clock().saturating_sub(before).saturating_sub(self.overhead);
            self.note(usize::from(function), took);
        }
    }

    fn note(&mut self, function: usize, took: u64) {
        let Some(calls) = self.calls.get_mut(function) else {
            return;
        };
        match took {
            INTERRUPTED.. => calls.interrupted += 1,
            _ => {
                calls.count += 1;
                calls.cycles += took;
            }
        }
    }

    /// The cost of functions of these names.
    pub fn costs(&self, names: &[String]) -> Vec<FunctionCost> {
        let each = names.iter().zip(&self.calls).map(|(name, calls)| FunctionCost {
            function: name.clone(),
            calls: calls.count,
            cycles: calls.cycles,
            interrupted: calls.interrupted,
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use core::sync::atomic::{AtomicU64, Ordering};

    static NOW: AtomicU64 = AtomicU64::new(0);

    /// Each reading takes ten.
    fn clock() -> u64 {
        NOW.fetch_add(10, Ordering::Relaxed)
    }

    #[test]
    fn one_burst_in_some_is_sampled_and_each_call_told() {
        let mut sampling = Sampling::new();
        assert!(
            (0..100_000).all(|_| !sampling.is_due()),
            "without a clock none is"
        );
        sampling.begin(clock, 2);
        let (mut sampled, mut gaps, mut since) = (0, Vec::new(), 0_u32);
        for _ in 0..100_000 {
            since += 1;
            if sampling.is_due() {
                gaps.push(core::mem::take(&mut since));
                sampling.start();
                let before = sampling.before();
                NOW.fetch_add(90, Ordering::Relaxed);
                sampling.after(1, before);
                sampling.end();
                sampled += 1;
            }
            let before = sampling.before();
            sampling.after(0, before);
        }
        assert!((100_000 / 320..=100_000 / 192).contains(&sampled), "{sampled}");
        assert_eq!(gaps[0], 1, "the first one is");
        assert!(gaps[1..].iter().all(|gap| (192..320).contains(gap)), "{gaps:?}");
        assert!(gaps[1..].iter().any(|gap| *gap != gaps[1]));
        let costs = sampling.costs(&["a".to_string(), "b".to_string()]);
        assert_eq!((costs[0].calls, costs[1].calls), (0, sampled));
        assert_eq!(costs[1].cycles, 90 * sampled, "without the readings' own");
        sampling.note(1, INTERRUPTED);
        assert_eq!(
            sampling.costs(&["a".to_string(), "b".to_string()])[1].interrupted,
            1
        );
    }
}
