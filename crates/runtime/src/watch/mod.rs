//! Looking inside while packets pass: a flow is traced, packets are captured.
//!
//! # Theory of operation
//!
//! Each worker has an eye, closed as a rule: no memory, and one look per burst whether it is open.
//! A *watch* is handed to all workers of the cluster; it brings the memory for what it will see,
//! and the control thread fetches that now and then by handing over empty memory for full
//! ([`Tap::swap`]). So a worker neither allocates nor waits for another thread, and steps and
//! frames that do not fit are counted.
//!
//! ```text
//!   control thread ──watch(memory)──► worker: Tap ── sees ──► memory ──┐
//!         ▲  └────────swap(empty)────────────────────────────────────  │
//!         └───────────full◄────────────────────────────────────────────┘
//! ```
//!
//! *Traces* ([`trace`]). A packet of the flow is marked where it is first recognised, by its key:
//! at the switch it came in by, or at the runtime. The mark ([`WATCHED`]) goes with the packet from
//! then on, over links, through calls that wait and round a hairpin, and everything that happens to
//! a marked packet is a step. A runtime runs marked packets by the rare way through
//! [`worker`](crate::worker), which is the same code compiled with the looks in; other packets take
//! theirs as ever. Steps are numbered by one counter for the cluster: since a packet is at one
//! worker at a time, its steps are numbered in the order in which they were.
//!
//! *Captures* ([`capture`]). Frames are copied where ports bring them, before anything looks at
//! them, where ports take them, and where they are dropped, with the reason.
//!
//! *Followers of flows* ([`flows`]) have no eye: they hear of flows' beginnings and ends, never of
//! packets.
//!
//! Packets that a port loses by itself (`unsent_packets`) are counted there, not seen here.
//!
//! Invariants: a watch holds no packet and changes none but for its mark; memory does not grow; a
//! closed eye costs a look per burst and nothing else (`established_flows_allocate_nothing_*`).
//!
//! Not here: which watches there are, and when a watch ends (`flowkeep`: control); the printing.

pub mod bpf;
pub mod capture;
pub mod flows;
pub mod trace;

use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use capture::{Capture, Frames};
use nf::Endpoint;
use trace::{Event, Step, Trace};
use wire::packet::flag::WATCHED;
use wire::{FlowKey, Packet};

/// Traces at once.
pub const TRACES_MAX: usize = 2;
/// Captures at once.
pub const CAPTURES_MAX: usize = 2;
/// Keys by which one trace knows its flow.
pub const KEYS_MAX: usize = 8;

const _: () = assert!(WATCHED.count_ones() as usize == TRACES_MAX);

/// The worker that sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// A switch, by its number.
    Switch(u8),
    /// A runtime, by its number.
    Runtime(u16),
}

/// Something to look for. A copy of it is handed to each worker.
#[derive(Debug)]
pub struct Watch {
    /// A number of its own.
    pub id: u32,
    /// The target of the watch.
    pub what: What,
}

/// The target of a watch.
#[derive(Debug)]
pub enum What {
    /// The packets of a flow, step by step.
    Flow(Box<Trace>),
    /// Packets at ports, and where they are dropped.
    Packets(Box<Capture>),
}

/// The steps and frames since the last look, and their memory.
#[derive(Debug, Default)]
pub struct Seen {
    /// Steps of a trace.
    pub steps: Vec<Step>,
    /// Steps that there was no room for.
    pub steps_lost: u64,
    /// Keys by which the flow is known here now.
    pub keys: ArrayVec<FlowKey, KEYS_MAX>,
    /// Packets of a capture.
    pub frames: Frames,
}

/// The eye of a worker. There is one while there are watches.
#[derive(Debug)]
pub struct Tap {
    worker: Worker,
    watches: ArrayVec<Watch, { TRACES_MAX + CAPTURES_MAX }>,
}

/// A worker's eye, if it is open.
pub(crate) type MaybeTap = Option<Box<Tap>>;

/// Opens an eye for a watch; hands it back if there are as many as may be.
pub(crate) fn open(tap: &mut MaybeTap, worker: Worker, watch: Watch) -> Result<(), Watch> {
    let tap = tap.get_or_insert_with(|| {
        Box::new(Tap {
            worker,
            watches: ArrayVec::new(),
        })
    });
    let is_flow = matches!(watch.what, What::Flow(_));
    let alike = tap
        .watches
        .iter()
        .filter(|other| matches!(other.what, What::Flow(_)) == is_flow);
    let most = if is_flow { TRACES_MAX } else { CAPTURES_MAX };
    if alike.count() >= most {
        return Err(watch);
    }
    tap.watches.push(watch);
    Ok(())
}

/// Ends a watch, and closes the eye behind the last.
pub(crate) fn close(tap: &mut MaybeTap, id: u32) {
    if let Some(open) = tap {
        open.watches.retain(|watch| watch.id != id);
        if open.watches.is_empty() {
            *tap = None;
        }
    }
}

/// The name of a packet in a trace: where its buffer is. It has it as long as it is inside.
pub(crate) fn name_of(packet: &Packet) -> usize {
    core::ptr::from_ref(packet).cast::<()>() as usize
}

impl Tap {
    fn traces(&mut self) -> impl Iterator<Item = &mut Trace> {
        self.watches.iter_mut().filter_map(|watch| match &mut watch.what {
            What::Flow(trace) => Some(&mut **trace),
            What::Packets(_) => None,
        })
    }

    fn captures(&mut self) -> impl Iterator<Item = &mut Capture> {
        self.watches.iter_mut().filter_map(|watch| match &mut watch.what {
            What::Packets(capture) => Some(&mut **capture),
            What::Flow(_) => None,
        })
    }

    /// Exchanges the steps and frames for empty memory of the same kind; `false` if there is no
    /// such watch.
    pub fn swap(&mut self, id: u32, seen: &mut Seen) -> bool {
        let Some(watch) = self.watches.iter_mut().find(|watch| watch.id == id) else {
            return false;
        };
        match &mut watch.what {
            What::Flow(trace) => trace.swap(seen),
            What::Packets(capture) => capture.swap(&mut seen.frames),
        }
        true
    }

    /// Has a trace know its flow by one more key.
    pub fn learn(&mut self, id: u32, key: FlowKey) {
        let watch = self.watches.iter_mut().find(|watch| watch.id == id);
        if let Some(What::Flow(trace)) = watch.map(|watch| &mut watch.what) {
            trace.learn(key);
        }
    }

    /// Has every trace that knows one of a flow's keys know the other.
    pub(crate) fn learn_both(&mut self, one: FlowKey, other: FlowKey) {
        for trace in self.traces() {
            if trace.knows(&one) {
                trace.learn(other);
            } else if trace.knows(&other) {
                trace.learn(one);
            }
        }
    }

    /// Marks a packet that has this key for each trace that looks for it. Answers the marks that
    /// are new.
    pub(crate) fn recognise(&mut self, packet: &mut Packet, key: &FlowKey) -> u16 {
        let mut new = 0;
        for trace in self.traces() {
            if !packet.has(trace.mark()) && trace.knows(key) && trace.takes_one_more() {
                packet.set_flags(trace.mark());
                new |= trace.mark();
            }
        }
        new
    }

    /// Has the traces of a marked packet know the key it has here.
    pub(crate) fn learn_from(&mut self, packet: &Packet) {
        let Some((mut key, way)) = FlowKey::of(packet) else {
            return;
        };
        if packet.hairpins() > 0 {
            key = key.turned(way);
        }
        for trace in self.traces().filter(|trace| packet.has(trace.mark())) {
            trace.learn(key);
        }
    }

    /// Notes what happens to a marked packet.
    pub(crate) fn note(&mut self, packet: &Packet, now: u64, event: Event) {
        self.note_for(packet.flags(), packet, now, event);
    }

    /// Notes what happens to a packet for the traces of some marks.
    pub(crate) fn note_for(&mut self, marks: u16, packet: &Packet, now: u64, event: Event) {
        self.note_named(marks, name_of(packet), now, event);
    }

    /// Notes what happens to a packet of this name.
    pub(crate) fn note_named(&mut self, marks: u16, name: usize, now: u64, event: Event) {
        let worker = self.worker;
        for trace in self.traces().filter(|trace| trace.mark() & marks != 0) {
            trace.note(worker, name, now, event);
        }
    }

    /// A packet is dropped, by a function or by the worker itself.
    pub(crate) fn dropped(&mut self, packet: &Packet, now: u64, function: Option<u8>, reason: &'static str) {
        if packet.has(WATCHED) {
            self.note(packet, now, Event::Dropped { function, reason });
        }
        for capture in self.captures() {
            capture.drop(packet, now, function, reason);
        }
    }

    /// A port has brought packets. No worker has looked at them.
    pub(crate) fn came(&mut self, packets: &[wire::PacketBox], port: u8) {
        for capture in self.captures() {
            packets.iter().for_each(|packet| capture.come(packet, port));
        }
    }

    /// A port is about to take packets.
    pub(crate) fn goes(&mut self, packets: &[wire::PacketBox], port: u8, now: u64) {
        for packet in packets {
            for capture in self.captures() {
                capture.go(packet, port, now);
            }
            if packet.has(WATCHED) {
                self.learn_from(packet);
                let ends = Ends::of(packet);
                self.note(packet, now, Event::Out { port, ends });
            }
        }
    }
}

/// Source and destination of a packet's own header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Whose address it has.
    pub source: Endpoint,
    /// Where it goes.
    pub destination: Endpoint,
}

impl Ends {
    pub(crate) fn of(packet: &Packet) -> Self {
        Ends {
            source: Endpoint::new(packet.source_addr(), packet.source_port()),
            destination: Endpoint::new(packet.destination_addr(), packet.destination_port()),
        }
    }
}
