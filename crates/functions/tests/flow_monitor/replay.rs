//! Runs captures through the flow monitor alone: a map in the place of the runtime.
//!
//! As in the runtime, a flow departs when its timeout has passed by the clock of the capture, and
//! all that are left depart at the end. An ICMP error is a packet of its own flow, between the
//! addresses it has, as the independent tables see it; [`Replay::deliver_errors_to_flows`] gives it
//! to the flow it quotes instead.

use super::capture::Frame;
use core::ptr::NonNull;
use flowkeep_functions::flow_monitor::{Config, Flow, FlowMonitor};
use nf::cx::{Direction, EventLog, RawCx};
use nf::{Cx, Departure, FlowKey, NetworkFunction, Reason, Verdict, WorkerInfo};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use wire::packet::flag;
use wire::{Addr, LinkType, Orientation, Packet, Pool};

/// The outcome of a replay.
#[derive(Default)]
pub struct Outcome {
    /// The event log.
    pub lines: String,
    /// Frames that are no flow's, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Later fragments whose first one was not there.
    pub unknown_fragments: u64,
    /// ICMP errors of flows that had no packet of their own: these have no record.
    pub errors_alone: u64,
}

type FragmentKey = (Addr, Addr, u32, u8);

struct Entry {
    state: Flow,
    opening: Orientation,
    last: u64,
    packets: u64,
    errors: u64,
}

/// The map in the place of the runtime.
pub struct Replay {
    pub deliver_errors_to_flows: bool,
    monitor: FlowMonitor,
    flows: HashMap<FlowKey, Entry>,
    /// Ports of first fragments.
    fragments: HashMap<FragmentKey, [u16; 2]>,
    pool: Pool,
    log: EventLog,
    counters: [u64; 3],
    outcome: Outcome,
}

impl Replay {
    pub fn new(config: Config) -> Self {
        let worker = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: 1 << 20,
            seed: 1,
        };
        Replay {
            deliver_errors_to_flows: false,
            monitor: FlowMonitor::new(&Arc::new(config), &worker).expect("a valid configuration"),
            flows: HashMap::new(),
            fragments: HashMap::new(),
            pool: Pool::new(
                wire::memory::Region::heap(Pool::region_length(1, 65_535)),
                1,
                65_535,
                0,
            ),
            log: EventLog::new(1 << 16, 0),
            counters: [0; 3],
            outcome: Outcome::default(),
        }
    }

    pub fn frame(&mut self, frame: &Frame) {
        let Some(link) = LinkType::from_pcap(frame.link) else {
            return self.refuse(format!("link type {}", frame.link));
        };
        let mut packet = self.pool.take().expect("the only buffer is back");
        if packet.set_frame(&frame.bytes, link) {
            packet.set_wire_length(frame.wire_length);
            packet.set_timestamp(frame.time);
            match wire::parse(&mut packet) {
                Ok(()) => self.packet(&mut packet),
                Err(error) => self.refuse(error.to_string()),
            }
        } else {
            self.refuse("too long for a buffer".to_string());
        }
        self.pool.give(packet);
    }

    /// A later fragment gets the ports of its first one, for ever: captures are short.
    fn resolve_fragment(&mut self, packet: &mut Packet) {
        let identification = match packet.version() {
            4 => u32::from(u16::from_be_bytes([packet.network()[4], packet.network()[5]])),
            _ => wire::fragment::fragment(packet).map_or(0, |part| part.identification),
        };
        let (from, to) = (packet.source_addr(), packet.destination_addr());
        let key = (from, to, identification, packet.protocol());
        if packet.has(flag::FIRST_FRAGMENT) {
            let ports = [packet.source_port(), packet.destination_port()];
            self.fragments.insert(key, ports);
        } else if packet.has(flag::LATER_FRAGMENT) {
            match self.fragments.get(&key) {
                Some([source, destination]) => packet.set_ports(*source, *destination),
                None => self.outcome.unknown_fragments += 1,
            }
        }
    }

    fn refuse(&mut self, why: String) {
        *self.outcome.refused.entry(why).or_default() += 1;
    }

    fn packet(&mut self, packet: &mut Packet) {
        let now = packet.timestamp();
        self.resolve_fragment(packet);
        if !self.deliver_errors_to_flows {
            packet.clear_flags(flag::ICMP_ERROR);
        }
        let (key, way) = FlowKey::of(packet).expect("a parsed packet has a key");
        let expired = self.flows.get(&key).is_some_and(|entry| {
            let timeout = self
                .monitor
                .timeout(&entry.state)
                .expect("the monitor always says");
            now > entry.last.saturating_add(timeout.as_nanos() as u64)
        });
        if expired {
            let entry = self.flows.remove(&key).expect("just found");
            self.depart(&key, &entry, now, Departure::Expired);
        }
        let mut entry = self.flows.remove(&key).unwrap_or(Entry {
            state: Flow::default(),
            opening: way,
            last: now,
            packets: 0,
            errors: 0,
        });
        let is_error = packet.has(flag::ICMP_ERROR);
        *if is_error {
            &mut entry.errors
        } else {
            &mut entry.packets
        } += 1;
        entry.last = entry.last.max(now);
        let direction = if entry.opening == way {
            Direction::Opening
        } else {
            Direction::Reply
        };
        let opening = entry.opening;
        let verdict = self.call((key, opening), direction, now, |monitor, cx| {
            monitor.process_now(packet, &mut entry.state, cx)
        });
        assert_eq!(verdict, Some(Verdict::Forward));
        self.flows.insert(key, entry);
    }

    /// As if each flow moved to another worker and back.
    pub fn migrate(&mut self) {
        let flows: Vec<_> = self.flows.drain().collect();
        for (key, entry) in flows {
            self.depart(&key, &entry, entry.last, Departure::Migrated);
            self.flows.insert(key, entry);
        }
        assert!(self.outcome.lines.is_empty(), "a record of a flow that goes on");
    }

    fn depart(&mut self, key: &FlowKey, entry: &Entry, now: u64, why: Departure) {
        self.call((*key, entry.opening), Direction::Opening, now, |monitor, cx| {
            monitor.departed(&entry.state, why, cx);
        });
        self.log.take(&mut self.outcome.lines);
        if why != Departure::Migrated && entry.packets == 0 {
            self.outcome.errors_alone += entry.errors;
        }
    }

    fn call<R>(
        &mut self,
        (mut key, opening): (FlowKey, Orientation),
        direction: Direction,
        now: u64,
        run: impl FnOnce(&FlowMonitor, &mut Cx<FlowMonitor>) -> R,
    ) -> R {
        let mut raw = RawCx {
            now,
            wake_at: RawCx::NO_WAKE,
            waits_for: 0,
            token: 0,
            tokens: None,
            place: 0,
            timeout: 0,
            key: NonNull::from(&mut key),
            flow: 0,
            opening,
            side: nf::Side::Inside,
            direction,
            effects: 0,
            lazy_kept: false,
            group: NonNull::dangling(),
            counters: NonNull::from(&mut self.counters).cast(),
            log: NonNull::from(&mut self.log),
            spares: Default::default(),
            held: None,
            held_room: 0,
            copy: None,
            let_go: Default::default(),
            emitted: Default::default(),
            blocks: Default::default(),
            discard: Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        };
        // SAFETY: the group has no size, and log and counters (one more than there are names) are
        // this replay's own.
        let cx = unsafe { Cx::of(&mut raw) };
        run(&self.monitor, cx)
    }

    pub fn finish(mut self) -> Outcome {
        let mut left: Vec<_> = self.flows.drain().collect();
        left.sort_by_key(|(key, _)| *key);
        for (key, entry) in left {
            self.depart(&key, &entry, entry.last, Departure::Expired);
        }
        assert_eq!(self.log.lost(), 0);
        self.outcome
    }
}

/// A whole capture with the given settings.
pub fn replay(frames: &[Frame], config: Config) -> Outcome {
    let mut replay = Replay::new(config);
    for frame in frames {
        replay.frame(frame);
    }
    replay.finish()
}
