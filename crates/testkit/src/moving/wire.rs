//! A link between workers of two processes: packets are copied, and its session ends when either
//! end does.
//!
//! # Theory of operation
//! A worker has an *incarnation*, a number that is another one each time it begins, and 0 while it
//! is not there. A buffer goes from one incarnation to another; an end sees the other's next
//! incarnation behind all that came from the one before, as [`Port::session`] demands, and a buffer
//! for an incarnation that is over is lost.
//!
//! ```text
//!   incarnation 1 ── a, b ──► incarnation 2      1 ends, 3 begins      3 ── c ──► incarnation 2
//!   received: a, b; then another session; then c
//! ```
//!
//! A link may be *cut*: nothing is received by it until it is whole again. Clocks differ as those
//! of a `Link` do.
//!
//! Not here: loss and delay while both live (the channel's tests, the simulator).

use crate::sent::Copied;
use runtime::env::dispose;
use runtime::{Burst, Port, PortCounters};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use wire::Pool;

/// A worker's incarnation.
pub type SharedIncarnation = Rc<Cell<u64>>;

struct Sent {
    from: u64,
    to: u64,
    packet: Copied,
}

/// Buffers on their way from one worker to another.
#[derive(Clone, Default)]
pub struct Queue {
    sent: Rc<RefCell<VecDeque<Sent>>>,
    is_cut: Rc<Cell<bool>>,
}

impl Queue {
    /// Loses the buffers on their way.
    pub fn lose(&self) {
        self.sent.borrow_mut().clear();
    }

    /// Nothing arrives, or all that is there does.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.set(is_cut);
    }
}

/// One end.
pub struct Wire {
    pub incoming: Queue,
    pub outgoing: Queue,
    /// The incarnation of this end, and that of the other.
    pub here: u64,
    pub there: SharedIncarnation,
    /// By how much this end's clock is ahead of the other's, in nanoseconds.
    pub ahead: i64,
    /// The incarnation that was at the other end when last looked.
    pub session: u64,
}

/// Packets on a link, at most.
const ROOM: usize = 128;

impl Port for Wire {
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        let mut queue = self.incoming.sent.borrow_mut();
        let before = burst.len();
        while !burst.is_full() && !self.incoming.is_cut.get() {
            let Some(sent) = queue.front() else {
                if burst.len() == before {
                    self.session = self.there.get();
                }
                return;
            };
            if sent.to == self.here && sent.from != self.session {
                if burst.len() == before {
                    self.session = sent.from;
                }
                return;
            }
            if sent.to != self.here {
                queue.pop_front();
                continue;
            }
            let Some(mut packet) = pool.take() else { return };
            let fits = packet.copy_from(&sent.packet);
            assert!(fits, "all workers' buffers are of one length");
            let time = packet.timestamp().saturating_add_signed(self.ahead);
            packet.set_timestamp(time);
            burst.push(packet);
            queue.pop_front();
        }
    }

    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.iter().filter(|_| self.session != 0) {
            self.outgoing.sent.borrow_mut().push_back(Sent {
                from: self.here,
                to: self.session,
                packet: Copied::of(packet),
            });
        }
        dispose(pool, burst);
        assert!(burst.is_empty(), "all buffers are this worker's own");
    }

    fn room(&self) -> usize {
        match self.session {
            0 => 0,
            _ => ROOM.saturating_sub(self.outgoing.sent.borrow().len()),
        }
    }

    fn session(&self) -> u64 {
        self.session
    }

    fn is_apart(&self) -> bool {
        true
    }

    fn has_other_clock(&self) -> bool {
        self.ahead != 0
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}
