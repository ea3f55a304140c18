//! `bench stage`: the cost of the shape of the stage API.
//!
//! Three fake functions with the state sizes of the real ones (48, 24 and 16 bytes), each touching
//! its state, run over the real flow table, actors and timer. The cases differ in how the functions
//! are called:
//!
//! | case | `process` is | called through |
//! |---|---|---|
//! | `inlined` | an ordinary function | a loop written out by hand, everything inlined |
//! | `plain` | an ordinary function | the erased entry (`process_now`) |
//! | `future` | an `async fn` without an await | the erased entry, a future built in the frame |
//! | `await` | an `async fn` with an await that is not taken | the same |
//! | `sampled` | as `plain`, and what each costs is counted for one burst in some 256 | the same |

use super::report::{Case, median};
use super::traffic::{BenchPort, Popularity, Segment, Traffic};
use super::{Memory, Options, Subject, compete, orders, parameters, timed};
use nf::{
    ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function,
};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::stage::{Configured, Factory};
use runtime::table::Table;
use runtime::{BURST, Runtime, Settings};
use std::sync::Arc;
use std::time::Duration;
use wire::memory::{Array, Region};
use wire::{FlowKey, HashSeed, Pool};

/// Flow state of `N` words.
#[derive(FlowState, Clone, Copy, Debug, Default)]
#[repr(C)]
struct Six {
    words: [u64; 6],
}
#[derive(FlowState, Clone, Copy, Debug, Default)]
#[repr(C)]
struct Three {
    words: [u64; 3],
}
#[derive(FlowState, Clone, Copy, Debug, Default)]
#[repr(C)]
struct Two {
    words: [u64; 2],
}

/// The work of each fake function: a little arithmetic on the packet and its state.
#[inline(always)]
fn work(words: &mut [u64], packet: &mut Packet) -> Verdict {
    words[0] = words[0].wrapping_add(u64::from(packet.wire_length()));
    let last = words.len() - 1;
    words[last] ^= u64::from(packet.source_port()) + u64::from(packet.ttl());
    if words[0] == u64::MAX {
        Verdict::Consume
    } else {
        Verdict::Forward
    }
}

const TIMEOUT: Duration = Duration::from_secs(240);

macro_rules! fake {
    ($name:ident, $text:literal, $state:ty, plain) => {
        struct $name;
        #[network_function]
        impl NetworkFunction for $name {
            const NAME: &'static str = $text;
            type Config = NoConfig;
            type Flow = $state;
            type Group = ();
            fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
                Ok($name)
            }
            fn process(&self, packet: &mut Packet, flow: &mut $state, _: &mut Cx<Self>) -> Verdict {
                work(&mut flow.words, packet)
            }
            fn timeout(&self, _: &$state) -> Option<Duration> {
                Some(TIMEOUT)
            }
        }
    };
    ($name:ident, $text:literal, $state:ty, future) => {
        struct $name;
        #[network_function]
        impl NetworkFunction for $name {
            const NAME: &'static str = $text;
            type Config = NoConfig;
            type Flow = $state;
            type Group = ();
            fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
                Ok($name)
            }
            async fn process(&self, packet: &mut Packet, flow: &mut $state, _: &mut Cx<Self>) -> Verdict {
                work(&mut flow.words, packet)
            }
            fn timeout(&self, _: &$state) -> Option<Duration> {
                Some(TIMEOUT)
            }
        }
    };
    ($name:ident, $text:literal, $state:ty, awaits) => {
        struct $name;
        #[network_function]
        impl NetworkFunction for $name {
            const NAME: &'static str = $text;
            type Config = NoConfig;
            type Flow = $state;
            type Group = ();
            fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
                Ok($name)
            }
            async fn process(&self, packet: &mut Packet, flow: &mut $state, cx: &mut Cx<Self>) -> Verdict {
                if packet.vlan() != 0 {
                    cx.sleep(Duration::from_millis(1)).await;
                }
                work(&mut flow.words, packet)
            }
            fn timeout(&self, _: &$state) -> Option<Duration> {
                Some(TIMEOUT)
            }
        }
    };
}

fake!(PlainSix, "six", Six, plain);
fake!(PlainThree, "three", Three, plain);
fake!(PlainTwo, "two", Two, plain);
fake!(FutureSix, "six", Six, future);
fake!(FutureThree, "three", Three, future);
fake!(FutureTwo, "two", Two, future);
fake!(AwaitSix, "six", Six, awaits);
fake!(AwaitThree, "three", Three, awaits);
fake!(AwaitTwo, "two", Two, awaits);

/// A runtime with a chain of three, and its traffic.
pub(super) struct Chain {
    pub runtime: Runtime<BenchPort>,
    pub traffic: Traffic,
    pub now: u64,
}

impl Chain {
    /// A runtime alone on a bench port.
    pub fn new(plan: Plan, flows: u32, memory: &Memory) -> Self {
        let pool = Pool::new(Region::heap(Pool::region_length(64, 128)), 64, 128, 0);
        let settings = Settings {
            waiting_max: 64,
            ..Settings::alone(flows)
        };
        let runtime = Runtime::new(settings, plan, vec![BenchPort::default()], pool, |length| {
            memory.region(length)
        })
        .unwrap_or_else(|(function, error)| panic!("{function}: {error}"));
        Chain {
            runtime,
            traffic: Traffic::default(),
            now: 1,
        }
    }

    /// One measured step over a burst.
    pub fn step(&mut self, flows: &[u32], segment: Segment) -> u64 {
        self.traffic
            .fill(&mut self.runtime.links_mut()[0], flows, segment);
        // A microsecond a burst: time goes on as it would at 32 Mpps.
        self.now += 1000;
        let now = self.now;
        timed(|| {
            self.runtime.step(now);
        })
    }

    /// That nothing was lost on the way.
    pub fn check(&self, flows: u32) {
        let stats = self.runtime.stats();
        assert_eq!(
            stats.received, stats.passed,
            "a benchmark that drops measures something else: {stats:?}"
        );
        assert_eq!(stats.flows, u64::from(flows));
    }
}

impl Subject for Chain {
    fn run(&mut self, flows: &[u32]) -> u64 {
        self.step(flows, Segment::Data)
    }
}

fn plan(factories: Vec<Box<dyn Factory>>) -> Plan {
    let functions = factories
        .iter()
        .map(|factory| factory.name().to_string())
        .collect();
    let rule = ChainRule {
        name: "bench".into(),
        matching: Match::default(),
        functions,
        replication: None,
    };
    Plan::new(vec![rule], factories).expect("the fake functions make a chain")
}

/// A chain of one plain function, where only the routing matters.
pub(super) fn plan_of_one() -> Plan {
    plan(vec![boxed::<PlainTwo>()])
}

fn boxed<F: NetworkFunction<Config = NoConfig>>() -> Box<dyn Factory> {
    Box::new(Configured::<F>::new(F::NAME, NoConfig {}))
}

/// The same table, prefetching and work, with everything written out and inlined.
struct Inlined {
    table: Table,
    flows: Array<Slot>,
    seed: HashSeed,
    port: BenchPort,
    traffic: Traffic,
    now: u64,
}

#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Slot {
    key: FlowKey,
    deadline: u64,
    reserved: [u64; 2],
    six: Six,
    three: Three,
    two: Two,
}

impl Inlined {
    fn new(flows: u32, memory: &Memory) -> Self {
        let entries = 2 * flows as usize;
        let table = Table::new(memory.region(Table::region_length(entries)), entries);
        Inlined {
            table,
            flows: memory.array(flows as usize, Slot::default()),
            seed: HashSeed::FIXED,
            port: BenchPort::default(),
            traffic: Traffic::default(),
            now: 1,
        }
    }

    fn add(&mut self, flow: u32) {
        self.traffic.fill(&mut self.port, &[flow], Segment::Data);
        let mut packet = self.port.ready.pop().expect("just filled");
        wire::parse(&mut packet).expect("a good packet");
        let (key, _) = FlowKey::of(&packet).expect("a good packet");
        self.flows[flow as usize].key = key;
        self.table
            .insert(key.hash(&self.seed), flow)
            .expect("there is room");
        self.port.spent.push(packet);
    }

    #[inline(always)]
    fn step(&mut self) {
        let mut keys = [FlowKey::default(); BURST];
        let mut hashes = [0_u64; BURST];
        let mut found = [0_u32; BURST];
        let packets = &mut self.port.ready;
        for (index, packet) in packets.iter_mut().enumerate() {
            let _ = wire::parse(packet);
            keys[index] = FlowKey::of(packet).map_or_else(FlowKey::default, |(key, _)| key);
            hashes[index] = keys[index].hash(&self.seed);
            self.table.prefetch(hashes[index]);
        }
        for index in 0..packets.len() {
            found[index] = self.table.candidate(hashes[index]).unwrap_or(0);
            let start = std::ptr::from_ref(&self.flows[found[index] as usize]).cast::<u8>();
            for line in 0..3 {
                wire::memory::prefetch(start.wrapping_add(64 * line));
            }
        }
        for (index, packet) in packets.iter_mut().enumerate() {
            let mut flow = found[index];
            if self.flows[flow as usize].key != keys[index] {
                let flows = &self.flows;
                flow = self
                    .table
                    .find(hashes[index], |f| flows[f as usize].key == keys[index])
                    .unwrap_or(0);
            }
            let slot = &mut self.flows[flow as usize];
            let _ = work(&mut slot.six.words, packet);
            let _ = work(&mut slot.three.words, packet);
            let _ = work(&mut slot.two.words, packet);
            slot.deadline = self.now + TIMEOUT.as_nanos() as u64;
        }
        self.port.spent.extend(packets.drain(..));
    }
}

impl Subject for Inlined {
    fn run(&mut self, flows: &[u32]) -> u64 {
        self.traffic.fill(&mut self.port, flows, Segment::Data);
        self.now += 1000;
        timed(|| self.step())
    }
}

/// Measures all ways to call at all numbers of flows.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let all: Vec<u32> = (0..flows).collect();
        let mut inlined = Inlined::new(flows, memory);
        for flow in 0..flows {
            inlined.add(flow);
        }
        let plain = || {
            plan(vec![
                boxed::<PlainSix>(),
                boxed::<PlainThree>(),
                boxed::<PlainTwo>(),
            ])
        };
        let plans = [
            plain(),
            plan(vec![
                boxed::<FutureSix>(),
                boxed::<FutureThree>(),
                boxed::<FutureTwo>(),
            ]),
            plan(vec![
                boxed::<AwaitSix>(),
                boxed::<AwaitThree>(),
                boxed::<AwaitTwo>(),
            ]),
            plain(),
        ];
        let mut chains = plans.map(|plan| Chain::new(plan, flows, memory));
        for chain in &mut chains {
            for burst in all.chunks(BURST) {
                chain.step(burst, Segment::Data);
            }
            chain.check(flows);
        }
        let (orders, warm) = orders(options, Popularity::Uniform, flows);
        let [plain, future, awaits, sampled] = &mut chains;
        sampled.runtime.sample_costs(adapters::clock::cycles);
        let samples = compete(&mut [&mut inlined, plain, future, awaits, sampled], &orders, warm);
        let mut samples = samples.into_iter();
        let mut case = |name| {
            let samples = samples.next().expect("a list per subject");
            debug_assert!(median(&samples) > 0.0);
            let parameters = parameters(options, Popularity::Uniform, flows);
            Case::new(
                name,
                parameters,
                "cycles per packet",
                "time-stamp cycles",
                samples,
            )
        };
        let inlined = case("inlined");
        let plain = case("plain").against(&inlined);
        let future = case("future").against(&plain);
        let awaits = case("await").against(&plain);
        let sampled = case("sampled").against(&plain);
        cases.extend([inlined, plain, future, awaits, sampled]);
    }
    cases
}
