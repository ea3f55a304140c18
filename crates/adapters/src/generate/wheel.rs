//! Which of many flows is next: a calendar queue.
//!
//! Time is cut into ticks of a power of two nanoseconds, so wide that some 16 flows fall into each; a flow waits in the
//! list of its tick's bucket. When the clock enters a tick, the bucket's flows move to a small heap that gives them out in
//! order of time. Buckets are reused lap after lap; what belongs to a later lap stays where it is.
//!
//! ```text
//!   ticks of 4 ns, 4 buckets        bucket 0: A due 1 (tick 0), B due 18 (tick 4, the next lap)
//!   at tick 0: A to the heap, B stays; tick 1, 2, 3 nothing; tick 4: B
//! ```
//!
//! Equal times go by flow number, so the order depends on nothing but the times.
//!
//! Invariant: what is taken never lies before what was taken earlier (`tests::the_wheel_sorts`).
//!
//! Source: R. Brown, "Calendar queues", CACM 31(10), 1988. Not here: resizing; the load is known from the start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NOBODY: u32 = u32::MAX;

/// Flows by the time of their next packet. Each flow is in it once at most.
pub struct Wheel {
    buckets: Vec<u32>,
    waiting: Vec<Waiting>,
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    in_buckets: usize,
    tick: u64,
    shift: u32,
}

#[derive(Clone, Copy)]
struct Waiting {
    due: u64,
    next: u32,
}

impl Wheel {
    /// A wheel for flows numbered below `flows` that together are due every `interval` nanoseconds on average, and none of
    /// which waits much longer than `longest`.
    pub fn new(flows: u32, interval: f64, longest: f64) -> Self {
        let width = (16.0 * interval).clamp(1.0, 1e18) as u64;
        let shift = width.ilog2();
        let buckets = ((longest / width as f64) as usize + 1)
            .next_power_of_two()
            .min(1 << 20);
        Wheel {
            buckets: vec![NOBODY; buckets],
            waiting: vec![Waiting { due: 0, next: NOBODY }; flows as usize],
            ready: BinaryHeap::with_capacity(256),
            in_buckets: 0,
            tick: 0,
            shift,
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
        let index = tick as usize & (self.buckets.len() - 1);
        let head = &mut self.buckets[index];
        self.waiting[flow as usize] = Waiting { due, next: *head };
        *head = flow;
        self.in_buckets += 1;
    }

    /// The next flow and its time.
    #[inline]
    pub fn peek(&mut self) -> Option<(u64, u32)> {
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
        let every = self.buckets.clone();
        let far = every.into_iter().flat_map(|head| self.list(head)).min();
        let Some(tick) = far else { return false };
        self.tick = tick;
        self.open_bucket();
        true
    }

    fn list(&self, head: u32) -> impl Iterator<Item = u64> {
        let mut next = head;
        std::iter::from_fn(move || {
            let flow = self.waiting.get(next as usize)?;
            next = flow.next;
            Some(flow.due >> self.shift)
        })
    }

    fn open_bucket(&mut self) {
        let index = self.tick as usize & (self.buckets.len() - 1);
        let mut next = std::mem::replace(&mut self.buckets[index], NOBODY);
        while next != NOBODY {
            let flow = next;
            let Waiting { due, next: behind } = self.waiting[flow as usize];
            next = behind;
            if due >> self.shift == self.tick {
                self.ready.push(Reverse((due, flow)));
                self.in_buckets -= 1;
            } else {
                self.waiting[flow as usize].next = self.buckets[index];
                self.buckets[index] = flow;
            }
        }
    }
}
