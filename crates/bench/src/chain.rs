//! `bench chain`: firewall → NAT → load balancer on one core, against the same functions called by
//! hand, and a floor.
//!
//! | case | what runs |
//! |---|---|
//! | `chain` | the runtime: table, actors, groups, timers, the functions in one piece ([`runtime::fused`]) |
//! | `chain, by function` | the same with each function called through its pointer, as chains are that the tool does not name |
//! | `baseline` | the same table, prefetching, burst and function code (`process` and `timeout`), hand-called, and a deadline kept: no actors, stages, groups |
//! | `baseline, no deadlines` | the same without asking for timeouts: flows that never end |
//! | `floor` | parse, look up, count, rewrite the source: the cost of a packet that is only translated |
//!
//! All see the same packets in the same order, from and to memory. Flows are opened by a handshake
//! first.

use super::lookup::{Keyed, Lookup};
use super::report::Case;
use super::stage::Chain;
use super::traffic::{BenchPort, Popularity, Segment, Traffic};
use super::{Memory, Options, Subject, compete, gateway, orders, parameters, timed};
use functions::firewall::Firewall;
use functions::load_balancer::LoadBalancer;
use functions::nat::Nat;
use nf::by_hand::ByHand;
use nf::{Arrival, Direction, NetworkFunction, Packet, Side, Verdict, WorkerInfo};
use runtime::BURST;
use std::collections::HashMap;
use std::sync::Arc;
use wire::FlowKey;
use wire::rewrite::End;

type Flow<F> = <F as NetworkFunction>::Flow;

/// Cycles per packet to reach, by flows (14.88 Mpps, 10 and 6 Mpps at 2.6 GHz).
fn goal(flows: u32) -> Option<f64> {
    match flows {
        10_000 => Some(174.0),
        100_000 => Some(260.0),
        1_000_000 => Some(433.0),
        _ => None,
    }
}

impl Chain {
    /// Opens all flows: SYN, SYN and ACK, first data.
    pub(super) fn open(&mut self, flows: &[u32]) {
        for burst in flows.chunks(BURST) {
            self.step(burst, Segment::Syn);
            let port = &mut self.runtime.links_mut()[0];
            for mut packet in port.spent.drain(..) {
                Traffic::accept(&mut packet);
                port.ready.push(packet);
            }
            self.now += 1000;
            self.runtime.step(self.now);
            self.step(burst, Segment::Data);
        }
    }
}

/// State of a flow where nothing is erased.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Slot {
    key: FlowKey,
    deadline: u64,
    firewall: Flow<Firewall>,
    nat: Flow<Nat>,
    load_balancer: Flow<LoadBalancer>,
}

impl Keyed for Slot {
    #[inline(always)]
    fn key(&self) -> &FlowKey {
        &self.key
    }
}

/// The same functions, hand-called; with or without the deadline that a flow gets from what its
/// functions ask for.
struct Baseline<const DEADLINES: bool> {
    lookup: Lookup<Slot>,
    firewall: ByHand<Firewall>,
    nat: ByHand<Nat>,
    load_balancer: ByHand<LoadBalancer>,
    port: BenchPort,
    traffic: Traffic,
    now: u64,
}

impl<const DEADLINES: bool> Baseline<DEADLINES> {
    fn new(flows: u32, memory: &Memory) -> Self {
        let (firewall, nat, load_balancer) = gateway::configs();
        let worker = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: flows,
            seed: 1,
        };
        Baseline {
            lookup: Lookup::new(flows, Slot::default(), memory),
            firewall: ByHand::new(Firewall::new(&Arc::new(firewall), &worker).expect("good settings")),
            nat: ByHand::new(Nat::new(&Arc::new(nat), &worker).expect("good settings")),
            load_balancer: ByHand::new(
                LoadBalancer::new(&Arc::new(load_balancer), &worker).expect("good settings"),
            ),
            port: BenchPort::default(),
            traffic: Traffic::default(),
            now: 1,
        }
    }

    /// Sets what the functions may ask.
    fn facts(&mut self, flow: u32, side: Side, direction: Direction) {
        let (key, now) = (self.lookup.at(flow).key, self.now);
        let source = nf::Endpoint::new(
            nf::Addr::v4(Traffic::source(flow).0.to_be_bytes()),
            Traffic::source(flow).1,
        );
        let opening = if key.first() == source {
            wire::Orientation::Along
        } else {
            wire::Orientation::Against
        };
        self.firewall.raw().set(now, side, direction);
        self.nat.raw().set(now, side, direction);
        self.load_balancer.raw().set(now, side, direction);
        self.firewall.set_key(key, opening);
        self.nat.set_key(key, opening);
        self.load_balancer.set_key(key, opening);
    }

    /// Opens all flows as `Chain::open` does; each host's group state is put into the NAT's hand
    /// for its flows.
    fn open(&mut self, flows: u32) {
        let mut groups: HashMap<u32, <Nat as NetworkFunction>::Group> = HashMap::new();
        for flow in 0..flows {
            let host = Traffic::source(flow).0;
            std::mem::swap(self.nat.group(), groups.entry(host).or_default());
            self.handshake(flow);
            std::mem::swap(self.nat.group(), groups.entry(host).or_default());
        }
    }

    fn handshake(&mut self, flow: u32) {
        self.traffic.fill(&mut self.port, &[flow], Segment::Syn);
        let mut packet = self.port.ready.pop().expect("just filled");
        wire::parse(&mut packet).expect("a good packet");
        let (key, _) = FlowKey::of(&packet).expect("a good packet");
        let slot = Slot {
            key,
            ..Slot::default()
        };
        self.lookup.put(flow, slot);
        self.now += 1000;
        self.facts(flow, Side::Inside, Direction::Opening);
        let mut slot = *self.lookup.at(flow);
        self.firewall.arrived(&mut slot.firewall, Arrival::New);
        self.nat.arrived(&mut slot.nat, Arrival::New);
        self.load_balancer.arrived(&mut slot.load_balancer, Arrival::New);
        assert!(self.forward(&mut slot, &mut packet), "the SYN passes");
        packet.set_exit(Side::Outside);
        Traffic::accept(&mut packet);
        wire::parse(&mut packet).expect("a good packet");
        self.facts(flow, Side::Outside, Direction::Reply);
        let passed = [
            self.load_balancer
                .process_now(&mut packet, &mut slot.load_balancer),
            self.nat.process_now(&mut packet, &mut slot.nat),
            self.firewall.process_now(&mut packet, &mut slot.firewall),
        ];
        assert_eq!(passed, [Some(Verdict::Forward); 3], "the answer passes");
        *self.lookup.at(flow) = slot;
        self.port.spent.push(packet);
        self.facts(flow, Side::Inside, Direction::Opening);
        self.nat.forget_effects();
        self.run(&[flow]);
    }

    #[inline(always)]
    fn forward(&mut self, slot: &mut Slot, packet: &mut Packet) -> bool {
        self.firewall.process_now(packet, &mut slot.firewall) == Some(Verdict::Forward)
            && self.nat.process_now(packet, &mut slot.nat) == Some(Verdict::Forward)
            && self.load_balancer.process_now(packet, &mut slot.load_balancer) == Some(Verdict::Forward)
    }

    #[inline(always)]
    fn step(&mut self) {
        let mut packets = std::mem::take(&mut self.port.ready);
        let now = self.now;
        let (firewall, nat, load_balancer) = (&mut self.firewall, &mut self.nat, &mut self.load_balancer);
        firewall.raw().set(now, Side::Inside, Direction::Opening);
        nat.raw().set(now, Side::Inside, Direction::Opening);
        load_balancer.raw().set(now, Side::Inside, Direction::Opening);
        self.lookup.each(&mut packets, |packet, slot| {
            let passed = firewall.process_now(packet, &mut slot.firewall) == Some(Verdict::Forward)
                && nat.process_now(packet, &mut slot.nat) == Some(Verdict::Forward)
                && load_balancer.process_now(packet, &mut slot.load_balancer) == Some(Verdict::Forward);
            assert!(passed, "a benchmark that drops measures something else");
            if DEADLINES {
                let timeout = firewall
                    .function
                    .timeout(&slot.firewall)
                    .max(nat.function.timeout(&slot.nat))
                    .max(load_balancer.function.timeout(&slot.load_balancer));
                slot.deadline = now + timeout.map_or(0, |t| t.as_secs() * 1_000_000_000);
            }
        });
        self.port.spent.extend(packets);
    }
}

impl<const DEADLINES: bool> Subject for Baseline<DEADLINES> {
    fn run(&mut self, flows: &[u32]) -> u64 {
        self.traffic.fill(&mut self.port, flows, Segment::Data);
        self.now += 1000;
        timed(|| self.step())
    }
}

/// The floor's state of a flow: one cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Bare {
    key: FlowKey,
    inside: ([u8; 4], u16),
    outside: ([u8; 4], u16),
    packets: u64,
}

impl Keyed for Bare {
    #[inline(always)]
    fn key(&self) -> &FlowKey {
        &self.key
    }
}

/// Look up, count, rewrite.
struct Floor {
    lookup: Lookup<Bare>,
    port: BenchPort,
    traffic: Traffic,
}

impl Floor {
    fn new(flows: u32, memory: &Memory) -> Self {
        let mut lookup = Lookup::new(flows, Bare::default(), memory);
        let slot = |flow| {
            let (addr, port) = Traffic::source(flow);
            let inside = nf::Endpoint::new(nf::Addr::v4(addr.to_be_bytes()), port);
            let to = nf::Endpoint::new(nf::Addr::v4(super::traffic::SERVICE.0), super::traffic::SERVICE.1);
            let (key, _) = FlowKey::new(inside, to, wire::protocol::TCP, 0);
            let outside = ([198, 18, 0, flow as u8], 1024 + (flow >> 8) as u16);
            Bare {
                key,
                inside: (addr.to_be_bytes(), port),
                outside,
                packets: 0,
            }
        };
        for flow in 0..flows {
            lookup.put(flow, slot(flow));
        }
        Floor {
            lookup,
            port: BenchPort::default(),
            traffic: Traffic::default(),
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        let mut packets = std::mem::take(&mut self.port.ready);
        self.lookup.each(&mut packets, |packet, slot| {
            slot.packets += 1;
            let translated = packet.swap_v4(End::Source, slot.inside, slot.outside);
            assert!(
                translated.is_some(),
                "a benchmark that drops measures something else"
            );
        });
        self.port.spent.extend(packets);
    }
}

impl Subject for Floor {
    fn run(&mut self, flows: &[u32]) -> u64 {
        self.traffic.fill(&mut self.port, flows, Segment::Data);
        timed(|| self.step())
    }
}

/// Measures all at all numbers of flows, drawn both ways.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let all: Vec<u32> = (0..flows).collect();
        let mut chain = Chain::new(gateway::plan(), flows, memory);
        chain.open(&all);
        chain.check(flows);
        let mut by_function = Chain::new(gateway::plan_by_function(), flows, memory);
        by_function.open(&all);
        by_function.check(flows);
        let mut baseline = Baseline::<true>::new(flows, memory);
        baseline.open(flows);
        let mut endless = Baseline::<false>::new(flows, memory);
        endless.open(flows);
        let mut floor = Floor::new(flows, memory);
        for popularity in [Popularity::Uniform, Popularity::Zipf] {
            let (orders, warm) = orders(options, popularity, flows);
            let mut samples = compete(
                &mut [
                    &mut chain,
                    &mut by_function,
                    &mut baseline,
                    &mut endless,
                    &mut floor,
                ],
                &orders,
                warm,
            )
            .into_iter();
            let mut case = |name| {
                let samples = samples.next().expect("a list per subject");
                Case::new(
                    name,
                    parameters(options, popularity, flows),
                    "cycles per packet",
                    "time-stamp cycles",
                    samples,
                )
            };
            let (chain, by_function) = (case("chain"), case("chain, by function"));
            let (baseline, endless) = (case("baseline"), case("baseline, no deadlines"));
            let floor = case("floor");
            let (baseline, endless) = (baseline.against(&floor), endless.against(&floor));
            cases.extend([
                chain.against(&baseline).goal(goal(flows)),
                by_function.against(&baseline),
                baseline,
                endless,
                floor,
            ]);
        }
        chain.check(flows);
        by_function.check(flows);
    }
    cases
}
