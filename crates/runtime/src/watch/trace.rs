//! One flow's packets, step by step.
//!
//! A trace begins with the key that the operator asked for and learns the flow's others: from the
//! actor that has it, from the reply key when the flow is settled, and at a switch from the flow's
//! packets as they leave, so that replies are known before they come.
//!
//! Bounds: so many packets ([`Budget`]), so many steps between two visits, [`KEYS_MAX`] keys.

use super::{Ends, KEYS_MAX, Seen, Worker};
use crate::switch::Policy;
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use nf::{Direction, Endpoint, Side};
use wire::packet::flag::{ICMP_ERROR, WATCHED};
use wire::{FlowKey, Packet};

/// The state that the workers of a cluster share of one trace. No packet is marked before
/// [`Budget::open`].
#[derive(Debug, Default)]
pub struct Budget {
    /// The number of the next step.
    order: AtomicU64,
    /// Packets that may still be marked.
    packets: AtomicU32,
}

impl Budget {
    /// Lets so many packets be marked, once every worker has its part of the trace: none is seen at
    /// one and missed at another.
    pub fn open(&self, packets: u32) {
        self.packets.store(packets, Ordering::Release);
    }

    /// Packets that may still be marked.
    pub fn left(&self) -> u32 {
        self.packets.load(Ordering::Relaxed)
    }
}

/// How a switch found the runtime for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By the route of its group.
    Route,
    /// By a reply key that a runtime announced.
    ReplyKey,
    /// There was no route: the policy chose.
    Chosen(Policy),
}

/// How a runtime came to have an actor for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// It was there.
    Found,
    /// The packet opened the flow.
    Launched,
    /// It was there, and a call of it waits: the packet queues behind.
    Queued,
    /// It was there and its time was over: it ends, and the packet opens the flow again.
    Expired,
}

/// A function's verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// On to the next.
    Forward,
    /// Not on; the reason.
    Drop(&'static str),
    /// It made an answer of the packet, which goes back.
    Answer,
    /// It keeps the packet.
    Consume,
    /// It waits for something.
    Wait,
}

/// A packet's step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It came in by a port.
    In {
        /// The port, by its number in the cluster.
        port: u8,
        /// Its side.
        side: Side,
        /// Its addresses.
        ends: Ends,
        /// The transport protocol.
        protocol: u8,
        /// TCP's flags; else 0.
        tcp_flags: u8,
        /// Bytes of the frame on the wire.
        length: u32,
        /// Whether it is an ICMP error that quotes the flow.
        is_error: bool,
    },
    /// Its group's home is another switch.
    HandedOver {
        /// That switch.
        home: u8,
    },
    /// It goes to a runtime.
    Routed {
        /// Which.
        runtime: u16,
        /// Why there.
        how: How,
    },
    /// It comes in again, as if from outside.
    Turned,
    /// The runtime looked for its flow.
    Met(Meeting),
    /// It enters its chain.
    Enters {
        /// The chain, by its number.
        chain: u8,
        /// Which way.
        direction: Direction,
        /// Functions it has passed already.
        passed: u8,
        /// Its addresses.
        ends: Ends,
    },
    /// A function has seen it.
    Passed {
        /// The function, by its number.
        function: u8,
        /// Its verdict.
        verdict: Verdict,
        /// Whether the call had waited.
        resumed: bool,
        /// Its addresses before.
        before: Ends,
        /// And behind.
        after: Ends,
    },
    /// A function made it, beside the packet at hand.
    Made {
        /// The function.
        function: u8,
        /// Whether it goes back, instead of onward.
        back: bool,
    },
    /// A function lets it go that had consumed it.
    Released {
        /// The function.
        function: u8,
    },
    /// The flow's replies have another key.
    ReplyKey {
        /// As its first packet left: from.
        source: Endpoint,
        /// To.
        destination: Endpoint,
    },
    /// It has left its chain.
    Leaves {
        /// By which side.
        exit: Side,
    },
    /// It left by a port.
    Out {
        /// Which, by its number in the cluster.
        port: u8,
        /// Its addresses.
        ends: Ends,
    },
    /// It was dropped.
    Dropped {
        /// By which function; `None`: by the worker itself.
        function: Option<u8>,
        /// Why.
        reason: &'static str,
    },
}

impl Event {
    /// A packet has come in.
    pub(crate) fn came(packet: &Packet) -> Self {
        let tcp_flags = match packet.protocol() {
            wire::protocol::TCP => packet.transport().get(13).copied().unwrap_or(0),
            _ => 0,
        };
        Event::In {
            port: packet.port(),
            side: packet.side(),
            ends: Ends::of(packet),
            protocol: packet.protocol(),
            tcp_flags,
            length: packet.wire_length(),
            is_error: packet.has(ICMP_ERROR),
        }
    }
}

/// One step of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its number among all of the trace.
    pub order: u64,
    /// The worker's time, in nanoseconds.
    pub at: u64,
    /// The packet: a name it has while it is inside.
    pub packet: usize,
    /// Where.
    pub worker: Worker,
    /// The step.
    pub event: Event,
}

/// A worker's part of a trace.
#[derive(Debug)]
pub struct Trace {
    slot: u8,
    budget: Arc<Budget>,
    keys: ArrayVec<FlowKey, KEYS_MAX>,
    steps: Vec<Step>,
    lost: u64,
}

impl Trace {
    /// Looks for a flow by some of its keys, the first ones that fit. `slot` is below
    /// [`TRACES_MAX`](super::TRACES_MAX) and the same at all workers; `steps_max` is how many steps
    /// there is room for.
    pub fn new(slot: u8, keys: &[FlowKey], budget: Arc<Budget>, steps_max: usize) -> Self {
        Trace {
            slot,
            budget,
            keys: keys.iter().copied().take(KEYS_MAX).collect(),
            steps: Vec::with_capacity(steps_max),
            lost: 0,
        }
    }

    /// The bit that its packets have.
    pub(super) fn mark(&self) -> u16 {
        (1 << WATCHED.trailing_zeros()) << self.slot
    }

    pub(super) fn knows(&self, key: &FlowKey) -> bool {
        self.keys.contains(key)
    }

    /// The keys by which it knows its flow.
    pub(crate) fn keys(&self) -> ArrayVec<FlowKey, KEYS_MAX> {
        self.keys.clone()
    }

    pub(crate) fn learn(&mut self, key: FlowKey) {
        if !self.knows(&key) {
            // Beyond the bound replies are recognised at the runtime only.
            let _ = self.keys.try_push(key);
        }
    }

    pub(super) fn takes_one_more(&self) -> bool {
        let packets = &self.budget.packets;
        packets
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    pub(super) fn note(&mut self, worker: Worker, packet: usize, at: u64, event: Event) {
        if self.steps.len() == self.steps.capacity() {
            self.lost += 1;
            return;
        }
        // Later steps at another worker have the packet from this one: their numbers are higher.
        let order = self.budget.order.fetch_add(1, Ordering::Relaxed);
        self.steps.push(Step {
            order,
            at,
            packet,
            worker,
            event,
        });
    }

    pub(super) fn swap(&mut self, seen: &mut Seen) {
        core::mem::swap(&mut self.steps, &mut seen.steps);
        self.steps.clear();
        seen.steps_lost = core::mem::take(&mut self.lost);
        seen.keys = self.keys.clone();
    }
}
