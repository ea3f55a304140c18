//! Which of many flows is next: a calendar queue.
//!
//! Time is cut into ticks of a power of two nanoseconds, so wide that some 16 flows fall into each;
//! a flow waits in its tick's bucket. When the clock enters a tick, the bucket's flows move to a
//! small heap that gives them out in order of time. Buckets are reused lap after lap; flows of a
//! later lap stay where they are.
//!
//! ```text
//!   ticks of 4 ns, 4 buckets        bucket 0: A due 1 (tick 0), B due 18 (tick 4, the next lap)
//!   at tick 0: A to the heap, B stays; tick 1, 2, 3 nothing; tick 4: B
//! ```
//!
//! Equal times go by flow number, so the order depends on nothing but the times.
//!
//! Invariant: no time taken lies before one taken earlier (`tests::hostile::the_wheel_sorts`).
//!
//! Source: R. Brown, "Calendar queues", CACM 31(10), 1988. Not here: resizing; the load is known
//! from the start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time and flow.
type Entry = (u64, u32);

/// Flows by the time of their next packet. Each flow is in it once at most.
pub struct Wheel {
    buckets: Vec<Vec<Entry>>,
    ready: BinaryHeap<Reverse<Entry>>,
    in_buckets: usize,
    tick: u64,
    shift: u32,
    hinted: usize,
}

impl Wheel {
    /// A wheel for flows that together are due every `interval` nanoseconds on average, and none of
    /// which waits much longer than `longest`.
    pub fn new(interval: f64, longest: f64) -> Self {
        let width = (16.0 * interval).clamp(1.0, 1e18) as u64;
        let shift = width.ilog2();
        let buckets = ((longest / width as f64) as usize + 1)
            .next_power_of_two()
            .min(1 << 20);
        Wheel {
            buckets: vec![Vec::new(); buckets],
            ready: BinaryHeap::with_capacity(256),
            in_buckets: 0,
            tick: 0,
            shift,
            hinted: 0,
        }
    }

    /// Puts a flow in.
    #[inline]
    pub fn insert(&mut self, flow: u32, due: u64) {
        let tick = due >> self.shift;
        if tick <= self.tick {
            self.ready.push(Reverse((due, flow)));
            return;
        }
        let index = self.index(tick);
        self.buckets[index].push((due, flow));
        self.in_buckets += 1;
    }

    #[inline]
    fn index(&self, tick: u64) -> usize {
        tick as usize & (self.buckets.len() - 1)
    }

    /// The next flow and its time.
    #[inline]
    pub fn peek(&mut self) -> Option<Entry> {
        if self.ready.is_empty() && !self.turn() {
            return None;
        }
        self.ready.peek().map(|Reverse(next)| *next)
    }

    /// Takes what [`Wheel::peek`] showed.
    #[inline]
    pub fn take(&mut self) {
        self.ready.pop();
    }

    /// A flow that is likely to be next soon, each of the coming tick once: for fetching it into
    /// the cache.
    #[inline]
    pub fn hint(&mut self) -> Option<u32> {
        let (_, flow) = self.buckets[self.index(self.tick + 1)].get(self.hinted)?;
        self.hinted += 1;
        Some(*flow)
    }

    /// Goes on to the next tick that has a flow; `false` if there is none.
    fn turn(&mut self) -> bool {
        if self.in_buckets == 0 {
            return false;
        }
        for _ in 0..=self.buckets.len() {
            self.tick += 1;
            self.open_bucket();
            if !self.ready.is_empty() {
                return true;
            }
        }
        // A lap without a flow: they are all far away. Jump.
        let far = self
            .buckets
            .iter()
            .flatten()
            .map(|(due, _)| due >> self.shift)
            .min();
        let Some(tick) = far else { return false };
        self.tick = tick;
        self.open_bucket();
        true
    }

    fn open_bucket(&mut self) {
        self.hinted = 0;
        let (tick, shift) = (self.tick, self.shift);
        let index = self.index(tick);
        let before = self.buckets[index].len();
        let ready = &mut self.ready;
        self.buckets[index].retain(|&(due, flow)| {
            let now = due >> shift == tick;
            if now {
                ready.push(Reverse((due, flow)));
            }
            !now
        });
        self.in_buckets -= before - self.buckets[index].len();
    }
}
