//! A switch and some runtimes, joined by the rings that join workers in production, in turn on one
//! thread.
//!
//! ```text
//!   packets by flow ─► Line ─► switch ══ rings ══ runtimes (rings between each two of them, too)
//!                       ▲ the other side's answers to SYNs, and how long packets took
//! ```
//!
//! The measured time is that of all their work; processors of their own would share it.
//!
//! Not here: the measurements with them (`migrate`, `scale`, `objects`).

use super::traffic::{FRAME, Segment, Traffic};
use super::{Memory, gateway};
use adapters::clock::monotonic_ns;
use adapters::ring::RingPort;
use nf::WorkerInfo;
use runtime::chain::Plan;
use runtime::env::{Burst, Port, PortCounters, dispose};
use runtime::switch::{Policy, SideRule, Switch};
use runtime::{Runtime, Settings};
use std::collections::VecDeque;
use wire::memory::Region;
use wire::tcp::flags;
use wire::{HashSeed, LinkType, Pool};

/// Buffers of the switch, and of each runtime.
const BUFFERS: [usize; 2] = [8192, 2048];
/// Bytes of a buffer.
const ROOM: usize = 2048;

pub(super) enum Next {
    /// Of a flow, as it is read.
    Of(u32, Segment),
    /// Of a flow, and when it was due.
    Due(u32, u64),
    Frame([u8; FRAME]),
}

/// The switch's port: packets by flow in, the other side's answers to SYNs, and how long packets
/// took.
pub(super) struct Line {
    traffic: Traffic,
    pub next: VecDeque<Next>,
    pub received: u64,
    pub sent: u64,
    pub longest: u64,
    /// When packets were due that have left, and how long that took, if it is wanted.
    pub delays: Option<Vec<(u64, u64)>>,
}

impl Port for Line {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() && !self.next.is_empty() {
            let Some(mut packet) = pool.take() else { return };
            let mut due = now;
            match self.next.pop_front() {
                Some(Next::Of(flow, segment)) => self.traffic.write(&mut packet, flow, segment),
                Some(Next::Due(flow, at)) => {
                    self.traffic.write(&mut packet, flow, Segment::Data);
                    due = at;
                }
                Some(Next::Frame(frame)) => {
                    packet.reset(FRAME, LinkType::Ethernet);
                    packet.frame_mut().copy_from_slice(&frame);
                }
                None => unreachable!("just looked"),
            }
            packet.set_timestamp(due);
            self.received += 1;
            burst.push(packet);
        }
    }
    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.iter_mut() {
            self.sent += 1;
            let (due, delay) = (packet.timestamp(), now.saturating_sub(packet.timestamp()));
            self.longest = self.longest.max(delay);
            if let Some(delays) = &mut self.delays {
                delays.push((due, delay));
            }
            if packet.frame()[47] == flags::SYN {
                Traffic::accept(packet);
                let frame = packet.frame().try_into().expect("all frames are of one length");
                self.next.push_back(Next::Frame(frame));
            }
        }
        dispose(pool, burst);
    }
    fn waits(&self) -> bool {
        true
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// See the module's page.
pub(super) struct Workers {
    pub switch: Switch<Line, RingPort>,
    pub runtimes: Vec<Runtime<RingPort>>,
    pub flows: u32,
}

fn pool(count: usize, origin: u8) -> Pool {
    Pool::new(
        Region::heap(Pool::region_length(count, ROOM)),
        count,
        ROOM,
        origin,
    )
}

impl Workers {
    /// So many runtimes with a chain, and no flows.
    pub fn new(plan: &Plan, count: usize, flows: u32, memory: &Memory) -> Self {
        Workers::moving(plan, count, flows, None, memory)
    }

    /// The same; `under_way`: the most flows on their way from a runtime at once, if not the usual.
    fn moving(plan: &Plan, count: usize, flows: u32, under_way: Option<u32>, memory: &Memory) -> Self {
        let now = monotonic_ns();
        // A ring must be able to hold every buffer there is.
        let ring = || RingPort::pair(BUFFERS[0] + count * BUFFERS[1]);
        let inside: Vec<nf::Prefix> = vec!["10.0.0.0/8".parse().expect("a prefix")];
        let mut peers: Vec<Vec<Option<RingPort>>> = Vec::new();
        peers.resize_with(count, || std::iter::repeat_with(|| None).take(count).collect());
        for (one, other) in (0..count).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let (near, far) = ring();
            peers[one][other] = Some(near);
            peers[other][one] = Some(far);
        }
        let mut links = Vec::new();
        let runtime = |(number, peers): (usize, Vec<Option<RingPort>>)| {
            let settings = Settings {
                info: WorkerInfo {
                    runtime: number as u16,
                    runtimes: count as u16,
                    flows_max: flows,
                    seed: 1,
                },
                switches: 1,
                inside: inside.clone(),
                now,
                moved_flows_max: under_way.unwrap_or(Settings::alone(flows).moved_flows_max),
                ..Settings::alone(flows)
            };
            let (near, far) = ring();
            links.push(near);
            let pool = pool(BUFFERS[1], 1 + number as u8);
            let mut runtime = Runtime::new(settings, plan.clone(), vec![far], pool, |length| {
                memory.region(length)
            })
            .unwrap_or_else(|(function, error)| panic!("{function}: {error}"));
            runtime.join(peers);
            runtime
        };
        let runtimes = peers.into_iter().enumerate().map(runtime).collect();
        let settings = runtime::switch::SwitchSettings {
            switch: 0,
            switches: 1,
            seed: HashSeed::FIXED,
            routes_max: 2 * flows.max(2048),
            policy: Policy::LeastLoaded,
            fragments_max: 64,
            packet_clock: false,
            lead_max: u64::MAX,
            recovery_max: 0,
            patient: true,
            egress: [Some(0), Some(0)],
            now,
        };
        let line = Line {
            traffic: Traffic::default(),
            next: VecDeque::new(),
            received: 0,
            sent: 0,
            longest: 0,
            delays: None,
        };
        let switch = Switch::new(
            settings,
            plan.clone(),
            vec![(line, SideRule::BySource(inside.clone()))],
            links,
            vec![None],
            pool(BUFFERS[0], 0),
            |length| memory.region(length),
        );
        Workers {
            switch,
            runtimes,
            flows,
        }
    }

    /// Steps each worker once; whether any of them did anything.
    pub fn step(&mut self) -> bool {
        let mut is_idle = self.switch.step(monotonic_ns()) == 0;
        for runtime in &mut self.runtimes {
            is_idle &= runtime.step(monotonic_ns()).is_idle();
        }
        !is_idle
    }

    /// Steps until there is nothing to do.
    pub fn run_until_quiet(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            idle = if self.step() { 0 } else { idle + 1 };
        }
    }

    /// Two runtimes with firewall, NAT and load balancer, and all flows at the first.
    pub fn of_gateway(flows: u32, under_way: Option<u32>, memory: &Memory) -> Self {
        let mut workers = Workers::moving(&gateway::plan(), 2, flows, under_way, memory);
        workers.switch.set_leaving(1, true);
        workers.open();
        workers.switch.set_leaving(1, false);
        workers
    }

    /// Opens all flows.
    pub fn open(&mut self) {
        for segment in [Segment::Syn, Segment::Data] {
            let flows = 0..self.flows;
            let packets = flows.map(|flow| Next::Of(flow, segment));
            self.switch.port_mut(0).next.extend(packets);
            self.run_until_quiet();
        }
    }

    /// That no packet was lost.
    pub fn check_packets(&mut self) {
        let line = self.switch.port_mut(0);
        assert_eq!(line.received, line.sent, "packets were lost");
    }
}
