//! Both ends of a link between workers that take turns on one thread: buffers change hands, none is
//! lost, and there is always room.
//!
//! The ends may have clocks that differ, as two hosts have: a packet's time is then told by the
//! clock of the end that receives it.
//!
//! Not here: links that are full, late or gone (the runtime's own tests, the simulator).

use runtime::{Burst, Port, PortCounters};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use wire::{PacketBox, Pool};

type Queue = Rc<RefCell<VecDeque<PacketBox>>>;

/// One end of a link.
pub struct Link {
    incoming: Queue,
    outgoing: Queue,
    /// By how much this end's clock is ahead of the other's, in nanoseconds.
    ahead: i64,
}

/// A link's two ends.
pub fn link() -> (Link, Link) {
    link_of_clocks(0)
}

/// A link's two ends; the second one's clock is so many nanoseconds ahead of the first one's.
pub fn link_of_clocks(ahead: i64) -> (Link, Link) {
    let (there, back) = (Queue::default(), Queue::default());
    let end = |incoming: &Queue, outgoing: &Queue, ahead| Link {
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
        ahead,
    };
    (end(&back, &there, -ahead), end(&there, &back, ahead))
}

impl Port for Link {
    fn receive(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        while !burst.is_full()
            && let Some(mut packet) = self.incoming.borrow_mut().pop_front()
        {
            let time = packet.timestamp().saturating_add_signed(self.ahead);
            packet.set_timestamp(time);
            burst.push(packet);
        }
    }

    fn transmit(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        self.outgoing.borrow_mut().extend(burst.drain(..));
    }

    fn has_other_clock(&self) -> bool {
        self.ahead != 0
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}
