//! `bench switch`: routing packets to the runtimes that have their groups.
//!
//! One switch, four runtimes that only take; groups are flows. Measured is a step that receives a
//! burst, parses it, finds each packet's route and hands it to a link. `floor` is the cost of the
//! same look-up by itself ([`super::lookup`]).

use super::lookup::{Keyed, Lookup};
use super::report::Case;
use super::stage::plan_of_one;
use super::traffic::{BenchPort, Popularity, Segment, Traffic};
use super::{Memory, Options, Subject, compete, orders, parameters, timed};
use runtime::BURST;
use runtime::switch::{Policy, SideRule, Switch, SwitchSettings};
use wire::memory::Region;
use wire::packet::Side;
use wire::{FlowKey, HashSeed, Pool};

const RUNTIMES: usize = 4;

struct Routing {
    switch: Switch<BenchPort, BenchPort>,
    traffic: Traffic,
    now: u64,
}

impl Routing {
    fn new(groups: u32, memory: &Memory) -> Self {
        let settings = SwitchSettings {
            switch: 0,
            switches: 1,
            seed: HashSeed::FIXED,
            routes_max: groups,
            policy: Policy::LeastLoaded,
            fragments_max: 64,
            egress: [None, None],
            packet_clock: false,
            lead_max: u64::MAX,
            recovery_max: 0,
            patient: false,
            now: 0,
        };
        let pool = Pool::new(Region::heap(Pool::region_length(64, 128)), 64, 128, 0);
        let links = (0..RUNTIMES).map(|_| BenchPort::default()).collect();
        let ports = vec![(BenchPort::default(), SideRule::Fixed(Side::Inside))];
        let switch = Switch::new(
            settings,
            plan_of_one(),
            ports,
            links,
            vec![None],
            pool,
            |length| memory.region(length),
        );
        Routing {
            switch,
            traffic: Traffic::default(),
            now: 1,
        }
    }
}

impl Subject for Routing {
    fn run(&mut self, flows: &[u32]) -> u64 {
        for runtime in 0..RUNTIMES {
            self.traffic.idle.append(&mut self.switch.link_mut(runtime).spent);
        }
        self.traffic.fill(self.switch.port_mut(0), flows, Segment::Data);
        self.now += 1000;
        let now = self.now;
        timed(|| {
            self.switch.step(now);
        })
    }
}

#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Route {
    key: FlowKey,
    packets: u64,
}

impl Keyed for Route {
    #[inline(always)]
    fn key(&self) -> &FlowKey {
        &self.key
    }
}

/// The look-up alone.
struct Floor {
    lookup: Lookup<Route>,
    port: BenchPort,
    traffic: Traffic,
}

impl Floor {
    fn new(groups: u32, memory: &Memory) -> Self {
        let mut lookup = Lookup::new(groups, Route::default(), memory);
        for flow in 0..groups {
            let (addr, port) = Traffic::source(flow);
            let inside = nf::Endpoint::new(nf::Addr::v4(addr.to_be_bytes()), port);
            let to = nf::Endpoint::new(nf::Addr::v4(super::traffic::SERVICE.0), super::traffic::SERVICE.1);
            let (key, _) = FlowKey::new(inside, to, wire::protocol::TCP, 0);
            lookup.put(flow, Route { key, packets: 0 });
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
        self.lookup.each(&mut packets, |_, route| route.packets += 1);
        self.port.spent.extend(packets);
    }
}

impl Subject for Floor {
    fn run(&mut self, flows: &[u32]) -> u64 {
        self.traffic.fill(&mut self.port, flows, Segment::Data);
        timed(|| self.step())
    }
}

/// Measures at all numbers of groups.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let mut routing = Routing::new(flows, memory);
        let all: Vec<u32> = (0..flows).collect();
        for burst in all.chunks(BURST) {
            routing.run(burst);
        }
        let mut floor = Floor::new(flows, memory);
        for popularity in [Popularity::Uniform, Popularity::Zipf] {
            let (orders, warm) = orders(options, popularity, flows);
            let mut samples = compete(&mut [&mut routing, &mut floor], &orders, warm).into_iter();
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
            let (switch, floor) = (case("switch"), case("floor"));
            cases.extend([
                switch.against(&floor).goal((flows == 100_000).then_some(100.0)),
                floor,
            ]);
        }
        let stats = routing.switch.stats();
        assert_eq!(stats.routes, u64::from(flows), "every group has a route");
        assert!(
            stats.dropped.is_empty(),
            "a benchmark that drops measures something else: {stats:?}"
        );
    }
    cases
}
