//! `bench migrate`: flows that move from one runtime to another and back (NFVactor figures 9a and 9b).
//!
//! A switch and two runtimes, joined by the rings that join workers in production, with the firewall, NAT and load balancer of
//! `bench chain`; flows are opened by a handshake, 32 a host, and a host's flows are a group. In each run all flows move to the other
//! runtime, by the order that an operator gives; the next run moves them back.
//!
//! **The three workers are stepped in turn, on one thread and one processor**: what a move costs of processors in all, and a time that
//! three processors would share. `10/s` has ten packets per second of each flow in at the switch meanwhile, by the clock, in order of the
//! flows, as far as the thread gets to it.
//!
//! | figure | what it is |
//! |---|---|
//! | ns per flow | from the order to the end of the last group's move, by flows |
//! | move, µs | the same for all of them |
//! | longest pause, µs | of a group, by the receipt: from its switch's being told to its installation at the target |
//! | longest delay, µs | of a packet, from the port to the port |
//! | bytes per flow | of state |
//! | median pause, µs | the median of the groups' |
//! | packets meanwhile | that came in from the order to its end: their own processing is part of the time of a move |
//! | packets buffered | at the target until the group was there |
//! | packets handed on | by the source |
//! | packets dropped or lost | after each run as many packets have left as came in, and all flows are at the target; otherwise it ends in a panic |
//!
//! Not here: workers on threads of their own, which is how they run in production.

use super::gateway;
use super::report::{Case, Parameters};
use super::traffic::{FRAME, Segment, Traffic};
use super::{Memory, Options};
use adapters::clock::monotonic_ns;
use adapters::ring::RingPort;
use nf::WorkerInfo;
use runtime::env::{Burst, Port, PortCounters, dispose};
use runtime::mobility::{Order, Receipt, Selector};
use runtime::switch::{Policy, SideRule, Switch};
use runtime::{Runtime, Settings};
use std::collections::VecDeque;
use wire::memory::Region;
use wire::tcp::flags;
use wire::{HashSeed, LinkType, Pool};

/// Packets a second of each flow.
const RATE: u64 = 10;
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

/// The switch's port: packets by flow in, the other side's answers to SYNs, and how long packets took.
pub(super) struct Line {
    traffic: Traffic,
    pub next: VecDeque<Next>,
    received: u64,
    sent: u64,
    longest: u64,
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

pub(super) struct Pair {
    pub switch: Switch<Line, RingPort>,
    pub runtimes: [Runtime<RingPort>; 2],
    pub flows: u32,
    /// Where they are.
    at: usize,
}

/// What one run showed.
struct Moved {
    nanoseconds: u64,
    receipt: Receipt,
    delay: u64,
    /// That came in from the order to its end, or near it.
    packets: u64,
}

fn pool(count: usize, origin: u8) -> Pool {
    Pool::new(
        Region::heap(Pool::region_length(count, ROOM)),
        count,
        ROOM,
        origin,
    )
}

impl Pair {
    pub fn new(flows: u32, memory: &Memory) -> Self {
        let now = monotonic_ns();
        let plan = gateway::plan();
        // A ring must be able to hold every buffer there is.
        let ring = || RingPort::pair(BUFFERS[0] + 2 * BUFFERS[1]);
        let inside: Vec<nf::Prefix> = vec!["10.0.0.0/8".parse().expect("a prefix")];
        let runtime = |number: u16, link, peers| {
            let settings = Settings {
                info: WorkerInfo {
                    runtime: number,
                    runtimes: 2,
                    flows_max: flows,
                    seed: 1,
                },
                switches: 1,
                inside: inside.clone(),
                now,
                ..Settings::alone(flows)
            };
            let pool = pool(BUFFERS[1], 1 + number as u8);
            let mut runtime = Runtime::new(settings, plan.clone(), vec![link], pool, |length| {
                memory.region(length)
            })
            .unwrap_or_else(|(function, error)| panic!("{function}: {error}"));
            runtime.join(peers);
            runtime
        };
        let ((near_a, far_a), (near_b, far_b), (a, b)) = (ring(), ring(), ring());
        let runtimes = [
            runtime(0, far_a, vec![None, Some(a)]),
            runtime(1, far_b, vec![Some(b), None]),
        ];
        let settings = runtime::switch::Settings {
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
            vec![near_a, near_b],
            vec![None],
            pool(BUFFERS[0], 0),
            |length| memory.region(length),
        );
        let mut pair = Pair {
            switch,
            runtimes,
            flows,
            at: 0,
        };
        pair.open();
        pair
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
    pub fn settle(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            idle = if self.step() { 0 } else { idle + 1 };
        }
    }

    /// Opens all flows at the first runtime.
    fn open(&mut self) {
        self.switch.set_leaving(1, true);
        for segment in [Segment::Syn, Segment::Data] {
            let flows = 0..self.flows;
            let packets = flows.map(|flow| Next::Of(flow, segment));
            self.switch.port_mut(0).next.extend(packets);
            self.settle();
        }
        self.switch.set_leaving(1, false);
        self.check();
    }

    /// That nothing was lost, and all flows are where they are thought to be.
    fn check(&mut self) {
        let (here, there) = (
            self.runtimes[self.at].stats().flows,
            self.runtimes[1 - self.at].stats().flows,
        );
        self.check_packets();
        assert_eq!((here, there), (u64::from(self.flows), 0), "flows were lost");
    }

    /// That no packet was lost.
    pub fn check_packets(&mut self) {
        let line = self.switch.port_mut(0);
        assert_eq!(line.received, line.sent, "packets were lost");
    }

    /// Moves all flows to the other runtime, with or without traffic.
    fn run(&mut self, has_traffic: bool) -> Moved {
        let order = Order {
            selector: Selector::All,
            to: vec![1 - self.at as u16],
        };
        let begin = monotonic_ns();
        let (mut offered, mut flow) = (0, 0);
        self.switch.port_mut(0).longest = 0;
        let (mut number, mut received) = (None, 0);
        let nanoseconds = loop {
            if has_traffic {
                let elapsed = u128::from(monotonic_ns() - begin);
                let due = elapsed * u128::from(RATE * u64::from(self.flows)) / 1_000_000_000;
                let next = &mut self.switch.port_mut(0).next;
                while offered < due && next.len() < 4096 {
                    next.push_back(Next::Of(flow, Segment::Data));
                    flow = (flow + 1) % self.flows;
                    offered += 1;
                }
            }
            // A little traffic first, so that the move meets it.
            if number.is_none() && (!has_traffic || monotonic_ns() - begin > 5_000_000) {
                let runtime = &mut self.runtimes[self.at];
                let given = monotonic_ns();
                number = Some((runtime.order(order.clone()).expect("a good order"), given));
                received = self.switch.port_mut(0).received;
            }
            self.step();
            if let Some((number, given)) = number
                && self.is_over(number)
            {
                break monotonic_ns() - given;
            }
        };
        let (number, _) = number.expect("it was given");
        let packets = self.switch.port_mut(0).received - received;
        self.settle();
        let receipt = self.runtimes[self.at].receipt(number).expect("just given");
        assert_eq!(receipt.moved, u64::from(self.flows), "{receipt:?}");
        self.at = 1 - self.at;
        self.check();
        Moved {
            nanoseconds,
            receipt,
            delay: self.switch.port_mut(0).longest,
            packets,
        }
    }

    fn is_over(&mut self, number: u32) -> bool {
        self.runtimes[self.at].is_over(number)
    }
}

/// The longest pause to reach, in microseconds.
fn pause_goal(flows: u32) -> Option<f64> {
    match flows {
        1000 => Some(1000.0),
        100_000 => Some(20_000.0),
        _ => None,
    }
}

/// Measures at all numbers of flows, at rest and with traffic.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let mut pair = Pair::new(flows, memory);
        // The memory is touched, at both ends.
        pair.run(false);
        pair.run(false);
        for (name, has_traffic) in [("at rest", false), ("10/s", true)] {
            let moves: Vec<Moved> = (0..options.runs).map(|_| pair.run(has_traffic)).collect();
            let case = |figure: &str, of: &dyn Fn(&Moved) -> f64| {
                let parameters = Parameters {
                    flows,
                    popularity: "-",
                    frame_bytes: FRAME,
                    ..Parameters::default()
                };
                let samples = moves.iter().map(of).collect();
                let name = format!("{name}: {figure}");
                Case::new(&name, parameters, "figures", "units as named", samples)
            };
            let count = f64::from(flows);
            let figures = [
                case("ns per flow", &|moved| moved.nanoseconds as f64 / count).goal(Some(500.0)),
                case("move, µs", &|moved| moved.nanoseconds as f64 / 1e3)
                    .goal((flows == 1000).then_some(500.0)),
                case("longest pause, µs", &|moved| {
                    moved.receipt.pause_longest as f64 / 1e3
                })
                .goal(pause_goal(flows)),
                case("longest delay, µs", &|moved| moved.delay as f64 / 1e3),
                case("bytes per flow", &|moved| moved.receipt.bytes as f64 / count),
                case("median pause, µs", &|moved| {
                    moved.receipt.pause_median as f64 / 1e3
                }),
                case("packets meanwhile", &|moved| moved.packets as f64),
                case("packets buffered", &|moved| moved.receipt.buffered as f64),
                case("packets handed on", &|moved| moved.receipt.handed_on as f64),
                // Any other would have ended the run.
                case("packets dropped or lost", &|moved| moved.receipt.dropped as f64).goal(Some(0.0)),
            ];
            cases.extend(figures);
        }
    }
    cases
}
