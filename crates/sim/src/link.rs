//! The links of workers with each other, and of a switch with the network: both are ports to the
//! production code.
//!
//! A [`Ring`] stands for the ring between two workers of one process: it keeps order, loses nothing
//! and takes every buffer; its `depth` is what it *says* it has room for, which is where
//! back-pressure and `runtime_busy` come from. The other end can see an item after a delay. Rings
//! in memory show things in the order in which they were done, on whatever ring; so the delay must
//! stay below what a packet takes out of the cluster and back in ([`crate::script`] sees to that).
//!
//! A [`Socket`] stands for a network interface, or, if it waits, for a capture: a queue of frames
//! in, which overflows unless it waits, and frames out.
//!
//! Not here: loss, disorder and damage, which are the network's ([`crate::network`]); links between
//! hosts, which are to come with the channel and are [`crate::network::Path`]s then.

use crate::Time;
use crate::frame::Frame;
use runtime::{Burst, Port, PortCounters};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use wire::packet::Kind;
use wire::{LinkType, PacketBox, Pool};

/// The world's true time; workers have clocks of their own.
pub(crate) type Clock = Rc<Cell<Time>>;

/// One direction of a link between workers.
#[derive(Default)]
pub(crate) struct Queue {
    /// With the time from which the other end sees it.
    packets: VecDeque<(Time, PacketBox)>,
    /// How many of them are packets of the network.
    data: usize,
    /// The most packets of the network there ever were; messages and empty buffers have room
    /// anyway.
    pub most: usize,
}

impl Queue {
    /// From when the oldest can be seen.
    pub fn next_at(&self) -> Option<Time> {
        self.packets.front().map(|(at, _)| *at)
    }

    pub fn len(&self) -> usize {
        self.packets.len()
    }
}

pub(crate) type SharedQueue = Rc<RefCell<Queue>>;

/// One end of a link between two workers.
pub(crate) struct Ring {
    clock: Clock,
    incoming: SharedQueue,
    outgoing: SharedQueue,
    depth: usize,
    delay: u64,
}

impl Ring {
    /// Both ends, and the queue that each puts on.
    pub fn pair(clock: &Clock, depth: usize, delay: u64) -> (Ring, Ring) {
        let (there, back) = (SharedQueue::default(), SharedQueue::default());
        let end = |incoming: &SharedQueue, outgoing: &SharedQueue| Ring {
            clock: clock.clone(),
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            depth,
            delay,
        };
        (end(&back, &there), end(&there, &back))
    }

    /// The queue that this end puts on.
    pub fn outgoing(&self) -> SharedQueue {
        self.outgoing.clone()
    }

    /// The queue that this end takes off.
    pub fn incoming(&self) -> SharedQueue {
        self.incoming.clone()
    }
}

impl Port for Ring {
    fn receive(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        let now = self.clock.get();
        let mut queue = self.incoming.borrow_mut();
        while !burst.is_full() && queue.next_at().is_some_and(|at| at <= now) {
            if let Some((_, packet)) = queue.packets.pop_front() {
                queue.data -= usize::from(packet.kind() == Kind::Data);
                burst.push(packet);
            }
        }
    }
    fn transmit(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        let at = self.clock.get() + self.delay;
        let mut queue = self.outgoing.borrow_mut();
        for packet in burst.drain(..) {
            queue.data += usize::from(packet.kind() == Kind::Data);
            queue.packets.push_back((at, packet));
        }
        queue.most = queue.most.max(queue.data);
    }
    fn finished(&self) -> bool {
        self.incoming.borrow().packets.is_empty()
    }
    fn room(&self) -> usize {
        self.depth.saturating_sub(self.outgoing.borrow().packets.len())
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// The outer half of a socket.
#[derive(Default)]
pub(crate) struct Interface {
    /// Frames for the switch.
    pub incoming: VecDeque<Frame>,
    /// How many of them there may be, unless the port waits.
    depth: usize,
    waits: bool,
    /// Identifiers of frames that the switch has taken in since the world looked, and which part
    /// each was.
    pub entered: Vec<(u16, u8)>,
    /// The frames that the switch has sent since the world looked.
    pub left: Vec<Vec<u8>>,
    counters: PortCounters,
}

impl Interface {
    /// A frame comes from the network; `false` if the queue is full.
    pub fn offer(&mut self, frame: Frame) -> bool {
        if !self.waits && self.incoming.len() >= self.depth {
            self.counters.lost_packets += 1;
            return false;
        }
        self.incoming.push_back(frame);
        true
    }
}

pub(crate) type SharedInterface = Rc<RefCell<Interface>>;

/// A switch's port.
pub(crate) struct Socket(SharedInterface, LinkType);

impl Socket {
    pub fn new(depth: usize, waits: bool, link: LinkType) -> (Socket, SharedInterface) {
        let interface = Rc::new(RefCell::new(Interface {
            incoming: VecDeque::new(),
            depth,
            waits,
            entered: Vec::new(),
            left: Vec::new(),
            counters: PortCounters::default(),
        }));
        (Socket(interface.clone(), link), interface)
    }
}

impl Port for Socket {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        let interface = &mut *self.0.borrow_mut();
        while !burst.is_full() && !interface.incoming.is_empty() {
            let Some(mut packet) = pool.take() else { return };
            let Some(frame) = interface.incoming.pop_front() else {
                return pool.give(packet);
            };
            let fits = packet.set_frame(&frame.bytes, self.1);
            assert!(fits, "buffers are made for the frames of the script");
            packet.set_timestamp(now);
            interface.counters.received_packets += 1;
            interface.entered.push((frame.id, frame.part));
            burst.push(packet);
        }
    }
    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        let interface = &mut *self.0.borrow_mut();
        for packet in burst.iter() {
            interface.left.push(packet.frame().to_vec());
            interface.counters.sent_packets += 1;
        }
        runtime::env::dispose(pool, burst);
    }
    fn finished(&self) -> bool {
        self.0.borrow().incoming.is_empty()
    }
    fn waits(&self) -> bool {
        self.0.borrow().waits
    }
    fn counters(&self) -> PortCounters {
        self.0.borrow().counters
    }
}
