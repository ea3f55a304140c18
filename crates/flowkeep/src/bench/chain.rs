//! `bench chain`: firewall → NAT → load balancer on one core, against the same functions called by hand, and a floor.
//!
//! | case | what runs |
//! |---|---|
//! | `chain` | the runtime: table, actors, erased functions, groups, timers |
//! | `baseline` | the same table, prefetching, burst and function code, hand-called: no actors, stages, groups, timers |
//! | `floor` | parse, look up, count, rewrite the source: what a packet costs that is only translated |
//!
//! All three see the same packets in the same order, from and to memory. Flows are opened by a handshake first.

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
use runtime::table::Table;
use std::collections::HashMap;
use std::sync::Arc;
use wire::memory::Array;
use wire::rewrite::End;
use wire::{FlowKey, HashSeed, PacketBox};

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
    firewall: Flow<Firewall>,
    nat: Flow<Nat>,
    load_balancer: Flow<LoadBalancer>,
}

/// Finds the slots of a burst's packets: the part that baseline and floor have in common with the runtime.
struct Lookup {
    table: Table,
    seed: HashSeed,
    keys: [FlowKey; BURST],
    found: [u32; BURST],
}

impl Lookup {
    fn new(flows: u32, memory: &Memory) -> Self {
        let entries = 2 * flows as usize;
        let table = Table::new(memory.region(Table::region_length(entries)), entries);
        Lookup {
            table,
            seed: HashSeed::FIXED,
            keys: [FlowKey::default(); BURST],
            found: [0; BURST],
        }
    }

    #[inline(always)]
    fn find<T>(&mut self, packets: &mut [PacketBox], slots: &[T], key_of: impl Fn(&T) -> &FlowKey) {
        let mut hashes = [0_u64; BURST];
        for (index, packet) in packets.iter_mut().enumerate() {
            let _ = wire::parse(packet);
            self.keys[index] = FlowKey::of(packet).map_or_else(FlowKey::default, |(key, _)| key);
            hashes[index] = self.keys[index].hash(&self.seed);
            self.table.prefetch(hashes[index]);
        }
        for (index, hash) in hashes.iter().enumerate().take(packets.len()) {
            self.found[index] = self.table.candidate(*hash).unwrap_or(0);
            let start = std::ptr::from_ref(&slots[self.found[index] as usize]).cast::<u8>();
            let mut line = 0;
            while line < size_of::<T>() {
                wire::memory::prefetch(start.wrapping_add(line));
                line += 64;
            }
        }
        for (index, hash) in hashes.iter().enumerate().take(packets.len()) {
            let key = self.keys[index];
            if *key_of(&slots[self.found[index] as usize]) != key {
                let found = self
                    .table
                    .find(*hash, |slot| *key_of(&slots[slot as usize]) == key);
                self.found[index] = found.unwrap_or(0);
            }
        }
    }
}

/// The same functions, hand-called.
struct Baseline {
    lookup: Lookup,
    slots: Array<Slot>,
    firewall: ByHand<Firewall>,
    nat: ByHand<Nat>,
    load_balancer: ByHand<LoadBalancer>,
    port: BenchPort,
    traffic: Traffic,
    now: u64,
}

impl Baseline {
    fn new(flows: u32, memory: &Memory) -> Self {
        let (firewall, nat, load_balancer) = gateway::configs();
        let worker = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: flows,
            seed: 1,
        };
        let slots = memory.array(flows as usize, Slot::default());
        Baseline {
            lookup: Lookup::new(flows, memory),
            slots,
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
        let (key, now) = (self.slots[flow as usize].key, self.now);
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

    /// Opens all flows as `Chain::open` does; each host's group state is put into the NAT's hand for its flows.
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
        self.lookup
            .table
            .insert(key.hash(&self.lookup.seed), flow)
            .expect("there is room");
        self.slots[flow as usize].key = key;
        self.now += 1000;
        self.facts(flow, Side::Inside, Direction::Opening);
        let slot = &mut self.slots[flow as usize];
        self.firewall.arrived(&mut slot.firewall, Arrival::New);
        self.nat.arrived(&mut slot.nat, Arrival::New);
        self.load_balancer.arrived(&mut slot.load_balancer, Arrival::New);
        assert!(self.forward(flow, &mut packet), "the SYN passes");
        packet.set_exit(Side::Outside);
        Traffic::accept(&mut packet);
        wire::parse(&mut packet).expect("a good packet");
        self.facts(flow, Side::Outside, Direction::Reply);
        let slot = &mut self.slots[flow as usize];
        let passed = [
            self.load_balancer
                .process_now(&mut packet, &mut slot.load_balancer),
            self.nat.process_now(&mut packet, &mut slot.nat),
            self.firewall.process_now(&mut packet, &mut slot.firewall),
        ];
        assert_eq!(passed, [Some(Verdict::Forward); 3], "the answer passes");
        self.port.spent.push(packet);
        self.facts(flow, Side::Inside, Direction::Opening);
        self.nat.forget_effects();
        self.run(&[flow]);
    }

    #[inline(always)]
    fn forward(&mut self, flow: u32, packet: &mut Packet) -> bool {
        let slot = &mut self.slots[flow as usize];
        self.firewall.process_now(packet, &mut slot.firewall) == Some(Verdict::Forward)
            && self.nat.process_now(packet, &mut slot.nat) == Some(Verdict::Forward)
            && self.load_balancer.process_now(packet, &mut slot.load_balancer) == Some(Verdict::Forward)
    }

    #[inline(always)]
    fn step(&mut self) {
        let mut packets = std::mem::take(&mut self.port.ready);
        self.lookup.find(&mut packets, &self.slots, |slot| &slot.key);
        let now = self.now;
        self.firewall.raw().set(now, Side::Inside, Direction::Opening);
        self.nat.raw().set(now, Side::Inside, Direction::Opening);
        self.load_balancer
            .raw()
            .set(now, Side::Inside, Direction::Opening);
        for (index, packet) in packets.iter_mut().enumerate() {
            let passed = self.forward(self.lookup.found[index], packet);
            assert!(passed, "a benchmark that drops measures something else");
        }
        self.port.spent.extend(packets);
    }
}

impl Subject for Baseline {
    fn run(&mut self, flows: &[u32]) -> u64 {
        self.traffic.fill(&mut self.port, flows, Segment::Data);
        self.now += 1000;
        timed(|| self.step())
    }
}

/// What the floor remembers of a flow: one cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Bare {
    key: FlowKey,
    inside: ([u8; 4], u16),
    outside: ([u8; 4], u16),
    packets: u64,
}

/// Look up, count, rewrite.
struct Floor {
    lookup: Lookup,
    slots: Array<Bare>,
    port: BenchPort,
    traffic: Traffic,
}

impl Floor {
    fn new(flows: u32, memory: &Memory) -> Self {
        let mut lookup = Lookup::new(flows, memory);
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
        let mut slots = memory.array(flows as usize, Bare::default());
        for flow in 0..flows {
            slots[flow as usize] = slot(flow);
        }
        for (flow, slot) in slots.iter().enumerate() {
            lookup
                .table
                .insert(slot.key.hash(&lookup.seed), flow as u32)
                .expect("there is room");
        }
        Floor {
            lookup,
            slots,
            port: BenchPort::default(),
            traffic: Traffic::default(),
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        let mut packets = std::mem::take(&mut self.port.ready);
        self.lookup.find(&mut packets, &self.slots, |slot| &slot.key);
        for (index, packet) in packets.iter_mut().enumerate() {
            let slot = &mut self.slots[self.lookup.found[index] as usize];
            slot.packets += 1;
            let translated = packet.swap_v4(End::Source, slot.inside, slot.outside);
            assert!(
                translated.is_some(),
                "a benchmark that drops measures something else"
            );
        }
        self.port.spent.extend(packets);
    }
}

impl Subject for Floor {
    fn run(&mut self, flows: &[u32]) -> u64 {
        self.traffic.fill(&mut self.port, flows, Segment::Data);
        timed(|| self.step())
    }
}

/// Measures all three at all numbers of flows, drawn both ways.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let all: Vec<u32> = (0..flows).collect();
        let mut chain = Chain::new(gateway::plan(), flows, memory);
        chain.open(&all);
        chain.check(flows);
        let mut baseline = Baseline::new(flows, memory);
        baseline.open(flows);
        let mut floor = Floor::new(flows, memory);
        for popularity in [Popularity::Uniform, Popularity::Zipf] {
            let (orders, warm) = orders(options, popularity, flows);
            let mut samples =
                compete(&mut [&mut chain, &mut baseline, &mut floor], &orders, warm).into_iter();
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
            let (chain, baseline, floor) = (case("chain"), case("baseline"), case("floor"));
            let baseline = baseline.against(&floor);
            cases.extend([chain.against(&baseline).goal(goal(flows)), baseline, floor]);
        }
        chain.check(flows);
    }
    cases
}
