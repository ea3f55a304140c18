//! The port that a script plays at: one packet in at a time, everything out kept for inspection.
//!
//! # Theory of operation
//! The player puts a frame into [`ScriptPort::bring`], steps the runtime, and takes packets that
//! left from [`ScriptPort::left`]. Buffers that left go back to the pool with the next visit, so
//! that nothing is copied, or allocated, while the runtime works.
//!
//! A packet's time of reception is its name: the player gives each another, and no emitted packet
//! has one of them.

use nf::Side;
use runtime::{Burst, Port, PortCounters};
use wire::{LinkType, PacketBox, Pool};

/// A frame to be received.
pub struct Incoming {
    pub frame: Vec<u8>,
    pub link: LinkType,
    pub side: Side,
    /// On the wire, if it was cut short.
    pub wire_length: Option<u32>,
    /// Time of reception.
    pub stamp: u64,
}

/// See the module's page.
#[derive(Default)]
pub struct ScriptPort {
    next: Option<Incoming>,
    /// `next` has been received. It is kept until the next one comes: freeing it is not the
    /// runtime's doing.
    received: bool,
    pub left: Vec<PacketBox>,
    /// Looked at, to be given back.
    pub done: Vec<PacketBox>,
    counters: PortCounters,
}

impl ScriptPort {
    /// Room for the packets that a step may send, so that sending them allocates nothing.
    pub fn new() -> Self {
        ScriptPort {
            left: Vec::with_capacity(256),
            done: Vec::with_capacity(256),
            ..ScriptPort::default()
        }
    }

    /// The next frame to be received.
    pub fn bring(&mut self, incoming: Incoming) {
        self.next = Some(incoming);
        self.received = false;
    }

    /// Whether it has been.
    pub fn has_received(&self) -> bool {
        self.received
    }
}

impl Port for ScriptPort {
    fn receive(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in self.done.drain(..) {
            pool.give(packet);
        }
        let Some(incoming) = self.next.as_ref().filter(|_| !self.received) else {
            return;
        };
        // Without a buffer it stays where it is, and the player says so.
        let Some(mut packet) = pool.take() else { return };
        let fits = packet.set_frame(&incoming.frame, incoming.link);
        assert!(
            fits,
            "the player made the buffers long enough for the script's frames"
        );
        if let Some(length) = incoming.wire_length {
            packet.set_wire_length(length);
        }
        packet.set_side(incoming.side);
        packet.set_timestamp(incoming.stamp);
        self.counters.received_packets += 1;
        self.counters.received_bytes += incoming.frame.len() as u64;
        burst.push(packet);
        self.received = true;
    }

    fn transmit(&mut self, _now: u64, _pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.drain(..) {
            self.counters.sent_packets += 1;
            self.counters.sent_bytes += packet.frame().len() as u64;
            self.left.push(packet);
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
