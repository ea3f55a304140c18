//! A switch and a runtime with a ring between them, and the packets that are sent through both.
//!
//! Invariant: each packet that was offered has left, or the run ends with an error.

use super::super::Memory;
use super::super::site::pool;
use super::super::traffic::{BenchPort, FRAME, SERVICE, Segment, Traffic};
use adapters::clock::{cycles, monotonic_ns, pin_to};
use adapters::ring::RingPort;
use nf::{Side, WorkerInfo};
use runtime::chain::Plan;
use runtime::switch::{Policy, SideRule, Switch};
use runtime::{BURST, Runtime, Settings, switch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wire::checksum::Delta;
use wire::memory::Region;
use wire::{HashSeed, LinkType, PacketBox, Pool};

/// Packets under way at most.
pub const WINDOW: usize = 512;
/// Buffers of a worker, for messages.
const BUFFERS: usize = 2048;
/// A run that takes longer has gone wrong.
const PATIENCE_NS: u64 = 30_000_000_000;

/// A request whose body lasts.
const HEAD: &[u8] = b"POST /bench HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
/// Some bytes of it.
const BODY: &[u8; 6] = b"stream";
/// Where a flow's sequence begins.
const FIRST: u32 = 1000;
/// TCP's header ends here.
const HEADERS: usize = 54;
/// The longest frame that is written.
const LONGEST: usize = HEADERS + HEAD.len();

/// Writes the flows' packets, each behind the one before.
pub struct Writer {
    head: Vec<u8>,
    body: Vec<u8>,
    /// By flow: where it is.
    next: Vec<u32>,
}

/// A segment of data with source 10.0.0.0:0 and sequence 0.
fn template(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADERS];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    let length = (40 + payload.len()) as u16;
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]);
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[30..34].copy_from_slice(&SERVICE.0);
    frame[36..38].copy_from_slice(&SERVICE.1.to_be_bytes());
    frame[42..46].copy_from_slice(&5001_u32.to_be_bytes());
    frame[46] = 5 << 4;
    frame[47] = wire::tcp::flags::ACK | wire::tcp::flags::PSH;
    frame[48..50].copy_from_slice(&u16::MAX.to_be_bytes());
    frame.extend_from_slice(payload);
    let sum = wire::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let pseudo = wire::checksum::sum(&frame[26..34], 6 + u32::from(length - 20));
    let sum = !wire::checksum::fold(wire::checksum::sum(&frame[34..], pseudo));
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

impl Writer {
    pub fn new(flows: u32) -> Self {
        debug_assert_eq!(HEADERS + BODY.len(), FRAME);
        Writer {
            head: template(HEAD),
            body: template(BODY),
            next: vec![FIRST; flows as usize],
        }
    }

    /// The head of a flow's request.
    pub fn head(&mut self, packet: &mut PacketBox, flow: u32) {
        Self::put(packet, &self.head, flow, FIRST);
        self.next[flow as usize] = FIRST + HEAD.len() as u32;
    }

    /// Bytes of its body.
    #[inline]
    pub fn write(&mut self, packet: &mut PacketBox, flow: u32) {
        let next = &mut self.next[flow as usize];
        Self::put(packet, &self.body, flow, *next);
        *next += BODY.len() as u32;
        // The other end has offered a window, and acknowledges nothing here.
        assert!(
            *next < FIRST + 65_000,
            "more packets of a flow than its window takes: say fewer --runs, or more --flows"
        );
    }

    #[inline]
    fn put(packet: &mut PacketBox, template: &[u8], flow: u32, sequence: u32) {
        packet.reset(template.len(), LinkType::Ethernet);
        packet.set_side(Side::Inside);
        let (addr, port) = Traffic::source(flow);
        let frame = packet.frame_mut();
        frame.copy_from_slice(template);
        frame[26..30].copy_from_slice(&addr.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let delta = Delta::NONE.long(0x0a00_0000, addr);
        let sum = delta.apply(word(frame, 24));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        let sum = delta.word(0, port).long(0, sequence).apply(word(frame, 50));
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Where the runtime runs.
#[derive(Clone, Copy)]
pub enum Placement {
    /// On the switch's thread.
    OneThread,
    /// On a thread on this processor.
    TwoThreads(usize),
}

/// The runtime, by its placement.
type Far = Runtime<RingPort>;

/// The switch's ports: packets come in by the first, and leave by the second.
const INSIDE: usize = 0;
const OUTSIDE: usize = 1;

/// A switch, a runtime, and packets.
pub struct System {
    placement: Placement,
    switch: Switch<BenchPort, RingPort>,
    /// Not here while its thread has it.
    runtime: Option<Far>,
    traffic: Traffic,
    writer: Writer,
    idle: Vec<PacketBox>,
    _buffers: Pool,
    offered: u64,
    gone: u64,
}

impl System {
    pub fn new(placement: Placement, plan: Plan, flows: u32, memory: &Memory) -> Self {
        let (near, far) = RingPort::pair(WINDOW + 2 * BUFFERS);
        let settings = switch::SwitchSettings {
            switch: 0,
            switches: 1,
            seed: HashSeed::FIXED,
            routes_max: 2 * flows,
            policy: Policy::LeastLoaded,
            fragments_max: 64,
            egress: [Some(INSIDE as u8), Some(OUTSIDE as u8)],
            packet_clock: false,
            lead_max: u64::MAX,
            recovery_max: 0,
            patient: false,
            now: monotonic_ns(),
        };
        let ports = vec![
            (BenchPort::default(), SideRule::Fixed(Side::Inside)),
            (BenchPort::default(), SideRule::Fixed(Side::Outside)),
        ];
        let region = |length| memory.region(length);
        let switch = Switch::new(
            settings,
            plan.clone(),
            ports,
            vec![near],
            vec![None],
            pool(BUFFERS, 0),
            region,
        );
        let settings = Settings {
            info: WorkerInfo {
                runtime: 0,
                runtimes: 1,
                flows_max: flows,
                seed: 1,
            },
            switches: 1,
            inside: vec!["10.0.0.0/8".parse().expect("a prefix")],
            now: monotonic_ns(),
            ..Settings::alone(flows)
        };
        let runtime = Runtime::new(settings, plan, vec![far], pool(BUFFERS, 1), region)
            .unwrap_or_else(|(function, error)| panic!("{function}: {error}"));
        let length = LONGEST.next_multiple_of(64) + 64;
        let mut buffers = Pool::new(
            Region::heap(Pool::region_length(WINDOW, length)),
            WINDOW,
            length,
            0,
        );
        System {
            placement,
            switch,
            runtime: Some(runtime),
            traffic: Traffic::default(),
            writer: Writer::new(flows),
            idle: std::iter::from_fn(|| buffers.take()).collect(),
            _buffers: buffers,
            offered: 0,
            gone: 0,
        }
    }

    /// Does this while the runtime runs where it is to run.
    pub fn turn(&mut self, work: impl FnOnce(&mut Self)) {
        let Placement::TwoThreads(cpu) = self.placement else {
            return work(self);
        };
        let is_over = AtomicBool::new(false);
        let steps = AtomicU64::new(0);
        let mut runtime = self.runtime.take().expect("no other thread has it");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _ = pin_to(cpu);
                while !is_over.load(Ordering::Relaxed) {
                    runtime.step(monotonic_ns());
                    steps.store(1, Ordering::Relaxed);
                }
                runtime
            });
            // The new thread begins on this processor: at a real-time priority it waits for this
            // one.
            while steps.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            work(self);
            is_over.store(true, Ordering::Relaxed);
            self.runtime = Some(thread.join().expect("the runtime's thread goes on to the end"));
        });
    }

    #[inline]
    fn step(&mut self) {
        let now = monotonic_ns();
        self.switch.step(now);
        if let Some(runtime) = &mut self.runtime {
            runtime.step(now);
        }
    }

    fn has_room(&mut self) -> bool {
        !self.idle.is_empty() && self.switch.port_mut(INSIDE).ready.remaining_capacity() > 0
    }

    #[inline]
    fn offer(&mut self, packet: PacketBox, port: usize) {
        self.offered += 1;
        self.switch.port_mut(port).ready.push(packet);
    }

    /// Takes packets that have left by a port.
    #[inline]
    fn collect(&mut self, port: usize, mut show: impl FnMut(&PacketBox)) {
        let spent = &mut self.switch.port_mut(port).spent;
        self.gone += spent.len() as u64;
        spent.iter().for_each(&mut show);
        self.idle.append(spent);
    }

    /// Steps until as many packets have left by a port as were offered.
    fn drain(&mut self, port: usize, mut show: impl FnMut(&PacketBox)) {
        let deadline = monotonic_ns() + PATIENCE_NS;
        while self.gone < self.offered {
            self.step();
            self.collect(port, &mut show);
            assert!(
                monotonic_ns() < deadline,
                "packets do not leave: {:?}",
                self.switch.stats()
            );
        }
    }

    /// Opens all flows: SYN, SYN and ACK, the head of a request.
    pub fn open(&mut self, flows: u32) {
        let all: Vec<u32> = (0..flows).collect();
        self.turn(|system| {
            for burst in all.chunks(BURST) {
                system.open_burst(burst);
            }
        });
    }

    fn open_burst(&mut self, burst: &[u32]) {
        for flow in burst {
            let mut packet = self.idle.pop().expect("more buffers than a burst");
            self.traffic.write(&mut packet, *flow, Segment::Syn);
            self.offer(packet, INSIDE);
        }
        let mut answers = Vec::new();
        self.drain(OUTSIDE, |packet| {
            let frame: [u8; FRAME] = packet.frame().try_into().expect("one length");
            answers.push(frame);
        });
        for frame in answers {
            let mut packet = self.idle.pop().expect("more buffers than a burst");
            packet.reset(FRAME, LinkType::Ethernet);
            packet.frame_mut().copy_from_slice(&frame);
            packet.set_exit(Side::Outside);
            Traffic::accept(&mut packet);
            self.offer(packet, OUTSIDE);
        }
        self.drain(INSIDE, |_| {});
        for flow in burst {
            let mut packet = self.idle.pop().expect("more buffers than a burst");
            self.writer.head(&mut packet, *flow);
            self.offer(packet, INSIDE);
        }
        self.drain(OUTSIDE, |_| {});
    }

    /// Sends packets of these flows as fast as can be; answers the cycles that took.
    pub fn send(&mut self, order: &[u32]) -> u64 {
        let (began, end) = (cycles(), self.offered + order.len() as u64);
        let mut flows = order.iter();
        while self.gone < end {
            while self.has_room()
                && let Some(flow) = flows.next()
            {
                let mut packet = self.idle.pop().expect("there is room");
                self.writer.write(&mut packet, *flow);
                self.offer(packet, INSIDE);
            }
            self.step();
            self.collect(OUTSIDE, |_| {});
        }
        cycles() - began
    }

    /// Sends packets of these flows at a rate, in cycles from one to the next, whatever becomes of
    /// them; answers by packet the cycles from when it was due to when it had left.
    pub fn pace(&mut self, order: &[u32], gap: f64) -> Vec<u32> {
        let mut delays = Vec::with_capacity(order.len());
        let (began, end) = (cycles(), self.offered + order.len() as u64);
        let mut sent = 0;
        while self.gone < end {
            let due = (((cycles() - began) as f64 / gap) as usize + 1).min(order.len());
            while sent < due && self.has_room() {
                let mut packet = self.idle.pop().expect("there is room");
                self.writer.write(&mut packet, order[sent]);
                packet.set_timestamp(began + (sent as f64 * gap) as u64);
                self.offer(packet, INSIDE);
                sent += 1;
            }
            self.step();
            let now = cycles();
            self.collect(OUTSIDE, |packet| {
                delays.push(now.saturating_sub(packet.timestamp()).min(u64::from(u32::MAX)) as u32);
            });
        }
        delays
    }

    /// That nothing was lost on the way.
    pub fn check(&self, flows: u32) {
        let dropped = &self.switch.stats().dropped;
        assert!(
            dropped.is_empty(),
            "a benchmark that drops measures something else: {dropped:?}"
        );
        let stats = self.runtime.as_ref().expect("no other thread has it").stats();
        assert_eq!(
            stats.received, stats.passed,
            "a benchmark that drops measures something else: {stats:?}"
        );
        assert_eq!(stats.flows, u64::from(flows));
        assert_eq!(self.gone, self.offered);
    }
}
