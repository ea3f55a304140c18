//! Both ends of a link between workers that take turns on one thread: buffers change hands, none is lost, and there is always room.
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
}

/// A link's two ends.
pub fn link() -> (Link, Link) {
    let (there, back) = (Queue::default(), Queue::default());
    let end = |incoming: &Queue, outgoing: &Queue| Link {
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
    };
    (end(&back, &there), end(&there, &back))
}

impl Port for Link {
    fn receive(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        while !burst.is_full()
            && let Some(packet) = self.incoming.borrow_mut().pop_front()
        {
            burst.push(packet);
        }
    }

    fn transmit(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        self.outgoing.borrow_mut().extend(burst.drain(..));
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}
