//! `bench store`: the cost for packets of keeping counts and flows in a store, and how old the
//! store's copy is (FlexState V, figures 5 to 8).
//!
//! | case | what runs |
//! |---|---|
//! | `forward` | the runtime with a function that does nothing |
//! | `protocol, none`, `host, none` | the counter, its variables in no store |
//! | `…, memory`, `…, redb`, `…, redis`, `…, cassandra` | the same, told to that store every millisecond; compared with `none` |
//! | `…, redis afar`, `…, cassandra afar` | the same server, with a relay of 0.25 ms each way before it ([`places`]) |
//! | `nat, …`, `balancer, …` | NAT or the load balancer alone: flows in the store (policy `store`), with an interval of a millisecond, and of a second for what is lazy |
//! | `sync protocol, …` | each packet waits until the store has its count; compared with `none` |
//! | `sync nat, …`, `sync balancer, …` | policy `store_commit`: each packet that changes a flow's committed state waits until the store has that |
//!
//! One processor for the packets; agent, relay and server on another. Between two runs the store
//! gets all waiting changes, so that none grows old while another case is measured. A redis-server
//! and a node of Cassandra are started here ([`servers`]). Packets are of 64 bytes, from and to
//! memory. The counter counts by protocol (two counters that all packets share), and by inside host
//! (32 flows each).
//!
//! `FLOWKEEP_BENCH_ONLY="nat,sync nat"` in the environment has these cases run and no others.
//!
//! Not here: ports.

mod places;
mod servers;

use super::gateway;
use super::report::{Case, Parameters};
use super::traffic::{BenchPort, Popularity, Segment, Traffic, shared, shared_with_room};
use super::{Memory, Options, parameters};
use adapters::clock::{CycleRate, cycles, monotonic_ns};
use functions::counter::{By, Config, Counter};
use functions::load_balancer::LoadBalancer;
use functions::nat::Nat;
use nf::variables::{Consistency, Keeper};
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
use places::{Kind, PATIENCE, Place, Places};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::replication::{Policy, STORED_AS, Storing};
use runtime::stage::{Configured, Factory};
use runtime::stats::Named;
use runtime::{BURST, Runtime, Settings};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stores::{Agency, Defaults, Stores};

/// How long a synchronous case runs, each time.
const SYNC: Duration = Duration::from_millis(500);
/// How long an asynchronous one does: many intervals, and as long as the lazy fields of all flows
/// take.
const ASYNC: Duration = Duration::from_secs(1);
/// The time before the measurement: flows that have rested while others ran are written at once,
/// which is no steady state.
const WARM: Duration = Duration::from_millis(1200);
/// How long a store may take over waiting changes when a run has ended.
const SETTLING: Duration = Duration::from_secs(60);
/// The percentage of no-store throughput to reach.
const GOAL: f64 = 90.0;

/// The cases.
const ALL: [&str; 7] = [
    "protocol",
    "host",
    "nat",
    "balancer",
    "sync protocol",
    "sync nat",
    "sync balancer",
];
/// The variable of the environment that names some of these, with commas between: no others run.
const ONLY: &str = "FLOWKEEP_BENCH_ONLY";

struct Pass;

#[network_function]
impl NetworkFunction for Pass {
    const NAME: &'static str = "pass";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Pass)
    }

    fn process(&self, _: &mut Packet, (): &mut (), _: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
}

/// A function to run, and which of its data goes to the store.
struct Load {
    factory: Box<dyn Factory>,
    /// Whether it is the runtime's flows that are kept, and not the function's variables.
    keeps_flows: bool,
}

/// A runtime with one function, and its traffic.
struct Subject {
    name: String,
    runtime: Runtime<BenchPort>,
    traffic: Traffic,
    /// Whether each packet waits for the store.
    is_sync: bool,
    /// Flows opened in a second, where it is they that are kept; none otherwise.
    opened: Option<f64>,
    /// Ended behind the runtime.
    _agency: Option<Agency>,
    rates: Vec<f64>,
    changes: Vec<f64>,
    batches: Vec<f64>,
    bytes: Vec<f64>,
}

/// The fate of changes so far.
#[derive(Default)]
struct Told {
    changes: u64,
    batches: u64,
    bytes: u64,
}

impl Subject {
    fn new(name: &str, load: Load, at: Option<Place>, flows: u32, memory: &Memory) -> Self {
        let keeps_flows = load.keeps_flows && at.is_some();
        let commits = name.starts_with("sync");
        // Of flows that are kept only packets that change committed fields wait: measured packets
        // do not.
        let is_sync = commits && !load.keeps_flows;
        let policy = match commits {
            true => Policy::StoreCommit,
            false => Policy::Store,
        };
        let rule = ChainRule {
            name: "bench".into(),
            matching: Match::default(),
            functions: vec![load.factory.name().to_owned()],
            replication: keeps_flows.then_some(policy),
        };
        let (keeper, agency) = match at {
            Some(place) => keeper(name, is_sync, keeps_flows, place),
            None => (Keeper::default(), None),
        };
        let plan = Plan::new(vec![rule], vec![load.factory])
            .expect("a chain of one")
            .keeping(keeper);
        let now = monotonic_ns();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let storing = Storing {
            interval: Consistency::USUAL.interval_ns(),
            lazy: Storing::LAZY,
            bound: Consistency::USUAL.bound_ns(),
        };
        let settings = Settings {
            now,
            wall: wall.saturating_sub(now),
            inside: vec!["10.0.0.0/8".parse().expect("a prefix")],
            storing: keeps_flows.then_some(storing),
            ..Settings::alone(flows)
        };
        let ((pool, traffic), port) = match commits && keeps_flows {
            true => (shared_with_room(), BenchPort::with_room()),
            false => (shared(), BenchPort::default()),
        };
        let runtime = Runtime::new(settings, plan, vec![port], pool, |length| memory.region(length));
        let mut subject = Subject {
            name: name.to_owned(),
            runtime: runtime.expect("good settings"),
            traffic,
            is_sync,
            opened: None,
            _agency: agency,
            rates: Vec::new(),
            changes: Vec::new(),
            batches: Vec::new(),
            bytes: Vec::new(),
        };
        let all: Vec<u32> = (0..flows).collect();
        // It begins: no group may before that is done.
        subject.runtime.step(monotonic_ns());
        if !is_sync {
            let began = Instant::now();
            subject.open(&all);
            let rate = f64::from(flows) / began.elapsed().as_secs_f64();
            subject.opened = load.keeps_flows.then_some(rate);
        }
        subject.send(&all, Duration::MAX);
        subject.finish_writing();
        subject
    }

    /// Opens flows: SYN, SYN and ACK. A burst follows when the one before has left.
    fn open(&mut self, flows: &[u32]) {
        for burst in flows.chunks(BURST) {
            let port = &mut self.runtime.links_mut()[0];
            self.traffic.fill(port, burst, Segment::Syn);
            self.step_until_out(burst.len());
            let port = &mut self.runtime.links_mut()[0];
            let spent = std::mem::take(&mut port.spent);
            let count = spent.len();
            for mut packet in spent {
                Traffic::accept(&mut packet);
                port.ready.push(packet);
            }
            self.step_until_out(count);
            let port = &mut self.runtime.links_mut()[0];
            self.traffic.idle.append(&mut port.spent);
        }
    }

    /// Steps until so many packets are out, or missing ones have been dropped, or `PATIENCE` is
    /// over.
    fn step_until_out(&mut self, packets: usize) {
        let began = Instant::now();
        loop {
            self.runtime.step(monotonic_ns());
            let out = self.runtime.links_mut()[0].spent.len();
            if out >= packets || self.runtime.stats().held == 0 || began.elapsed() > PATIENCE {
                return;
            }
        }
    }

    /// Sends packets of these flows until they are over or time is; answers how many left, and the
    /// cycles that it took the worker.
    fn send(&mut self, order: &[u32], time: Duration) -> (u64, u64) {
        let began = Instant::now();
        let (mut sent, mut took) = (0, 0);
        // Again and again, where there is a time.
        let rounds = if time == Duration::MAX { 1 } else { usize::MAX };
        let bursts = std::iter::repeat_n((), rounds).flat_map(|()| order.chunks(BURST));
        for burst in bursts {
            if began.elapsed() >= time {
                break;
            }
            loop {
                let port = &mut self.runtime.links_mut()[0];
                let (home, has_room) = (
                    port.spent.len(),
                    self.traffic.idle.len() + port.spent.len() + port.home.len() >= BURST,
                );
                sent += home as u64;
                self.traffic.idle.append(&mut port.spent);
                if has_room {
                    self.traffic.fill(port, burst, Segment::Data);
                }
                let now = monotonic_ns();
                let before = cycles();
                self.runtime.step(now);
                took += cycles() - before;
                if has_room {
                    break;
                }
            }
        }
        // Packets that still wait are waited for.
        while self.runtime.has_waiting() {
            let before = cycles();
            self.runtime.step(monotonic_ns());
            took += cycles() - before;
        }
        let port = &mut self.runtime.links_mut()[0];
        sent += port.spent.len() as u64;
        self.traffic.idle.append(&mut port.spent);
        (sent, took)
    }

    /// Until the store has every change.
    fn finish_writing(&mut self) {
        if !self.runtime.finish_variables(SETTLING) {
            eprintln!(
                "{}: the store has not taken every change within {SETTLING:?}",
                self.name
            );
        }
    }

    /// Reports dropped packets: a benchmark that drops measures something else.
    fn check(&self) {
        let stats = self.runtime.stats();
        // A runtime that begins refuses the first burst, before anything is measured.
        let is_early = |dropped: &&Named| dropped.name == "too_early";
        let early = stats
            .dropped
            .iter()
            .find(is_early)
            .map_or(0, |dropped| dropped.count);
        if stats.received - early != stats.passed || early > BURST as u64 {
            eprintln!("{}: packets were dropped: {stats:?}", self.name);
        }
    }

    /// The changes that went to the store so far.
    fn told(&self) -> Told {
        let figures = self.runtime.variables();
        let all = figures.iter().map(|(_, figures)| figures);
        all.fold(Told::default(), |told, figures| Told {
            changes: told.changes + figures.changes,
            batches: told.batches + figures.batches,
            bytes: told.bytes + figures.bytes,
        })
    }

    fn run(&mut self, order: &[u32], hertz: f64) {
        if !self.is_sync {
            self.send(order, WARM);
        }
        let (before, began) = (self.told(), Instant::now());
        let (sent, took) = self.send(order, if self.is_sync { SYNC } else { ASYNC });
        let (after, seconds) = (self.told(), began.elapsed().as_secs_f64());
        // A packet that waits costs time and no cycles of the worker; a packet that does not wait
        // costs cycles.
        self.rates.push(match self.is_sync {
            true => sent as f64 / seconds,
            false => sent as f64 * hertz / took as f64,
        });
        let rate = |after: u64, before: u64| (after - before) as f64 / seconds;
        self.changes.push(rate(after.changes, before.changes));
        self.batches.push(rate(after.batches, before.batches));
        self.bytes.push(rate(after.bytes, before.bytes));
        self.finish_writing();
    }

    fn throughput(&self, facts: Parameters) -> Case {
        let rates = self.rates.iter().map(|rate| rate / 1e6).collect();
        let metric = "throughput of one processor";
        Case::new(&self.name, facts, metric, "million packets per second", rates)
    }

    /// How many flows it opened in a second.
    fn opening(&self, facts: Parameters) -> Option<Case> {
        let name = format!("{}: opened", self.name);
        let metric = "flows opened, from SYN to the answer's way out";
        let rate = self.opened? / 1e3;
        Some(Case::new(&name, facts, metric, "thousand per second", vec![rate]))
    }

    /// The changes that the store was told, and how old they were then.
    fn staleness(&self, facts: Parameters) -> Vec<Case> {
        let figures = self.runtime.variables();
        let Some((_, figures)) = figures.first() else {
            return Vec::new();
        };
        let case = |what: &str, metric, unit, samples| {
            Case::new(
                &format!("{}: {what}", self.name),
                facts.clone(),
                metric,
                unit,
                samples,
            )
        };
        let thousands = |all: &[f64]| all.iter().map(|one| one / 1e3).collect();
        let age = |age_ns: u64| vec![age_ns as f64 / 1e3];
        let (old, micro) = ("age of changes when the store has them", "microseconds");
        let bound = Some(Consistency::USUAL.bound_ns() as f64 / 1e3);
        vec![
            case(
                "changes/ms",
                "changes told to the store",
                "per millisecond",
                thousands(&self.changes),
            ),
            case(
                "batches/s",
                "operations of the store, each a batch",
                "per second",
                self.batches.clone(),
            ),
            case(
                "kB/s",
                "bytes of changes told to the store",
                "kilobytes per second",
                thousands(&self.bytes),
            ),
            case("age p50 us", old, micro, age(figures.ages.percentile_ns(50))),
            case("age p99 us", old, micro, age(figures.ages.percentile_ns(99))),
            case("age max us", old, micro, age(figures.ages.max_ns())).goal(bound),
        ]
    }
}

/// Where a case's variables are kept, or its flows: each case has its own.
fn keeper(name: &str, is_sync: bool, keeps_flows: bool, place: Place) -> (Keeper, Option<Agency>) {
    let consistency = match is_sync {
        true => Consistency::THROUGH,
        false => Consistency::USUAL,
    };
    let defaults = Defaults::new(place.store, consistency);
    let stores = Stores {
        member: name.replace(' ', "-"),
        has_clock: false,
        usual: (!keeps_flows).then(|| defaults.clone()),
        functions: keeps_flows
            .then(|| (STORED_AS.to_owned(), Some(defaults)))
            .into_iter()
            .collect(),
    };
    (Keeper::of(Box::new(stores)), Some(place.agency))
}

fn counter(by: By, wait: bool) -> Load {
    let config = Config {
        by,
        wait,
        ..Config::default()
    };
    Load {
        factory: Box::new(Configured::<Counter>::new("counter", config)),
        keeps_flows: false,
    }
}

/// The load of a case by its name.
fn load(called: &str) -> Load {
    let (_, nat, balancer) = gateway::configs();
    let flows = |factory| Load {
        factory,
        keeps_flows: true,
    };
    match called {
        "protocol" => counter(By::Protocol, false),
        "sync protocol" => counter(By::Protocol, true),
        "host" => counter(By::InsideHost, false),
        "nat" | "sync nat" => flows(Box::new(Configured::<Nat>::new("nat", nat))),
        _ => flows(Box::new(Configured::<LoadBalancer>::new("balancer", balancer))),
    }
}

fn subjects(places: &Places, flows: u32, memory: &Memory) -> Vec<Subject> {
    let pass = Load {
        factory: Box::new(Configured::<Pass>::new("pass", NoConfig {})),
        keeps_flows: false,
    };
    let mut subjects = vec![Subject::new("forward", pass, None, flows, memory)];
    let only = std::env::var(ONLY).unwrap_or_default();
    for called in ALL {
        if !only.is_empty() && !only.split(',').any(|one| one == called) {
            continue;
        }
        if !called.starts_with("sync") {
            let none = format!("{called}, none");
            subjects.push(Subject::new(&none, load(called), None, flows, memory));
        }
        for kind in Kind::ALL {
            let name = format!("{called}, {}", kind.shown());
            if let Some(place) = places.open(kind, &name) {
                subjects.push(Subject::new(&name, load(called), Some(place), flows, memory));
            }
        }
    }
    subjects
}

pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let places = Places::find();
    let hertz = CycleRate::calibrate(Duration::from_millis(20)).hertz;
    let mut cases = Vec::new();
    for &flows in &options.flows {
        let mut subjects = subjects(&places, flows, memory);
        for run in 0..options.runs as u64 {
            // More than can be sent in the time.
            let order = Popularity::Uniform.order(flows, 1 << 24, options.seed * 1000 + run);
            // There and back again: no case is always behind the same one, which leaves the
            // processor hot or cold.
            let mut turn: Vec<&mut Subject> = subjects.iter_mut().collect();
            if run % 2 == 1 {
                turn.reverse();
            }
            turn.into_iter().for_each(|subject| subject.run(&order, hertz));
        }
        let facts = || parameters(options, Popularity::Uniform, flows);
        for subject in &subjects {
            let case = subject.throughput(facts());
            let called = subject.name.trim_start_matches("sync ");
            let none = format!("{}, none", called.split(',').next().unwrap_or_default());
            let mut others = subjects.iter();
            match others.find(|other| other.name == none && other.name != subject.name) {
                Some(none) => cases.push(case.against(&none.throughput(facts()))),
                None => cases.push(case),
            }
        }
        for subject in &subjects {
            cases.extend(subject.opening(facts()));
        }
        for subject in &subjects {
            subject.check();
            cases.extend(subject.staleness(facts()));
        }
    }
    eprintln!(
        "goal: asynchronous cases at {GOAL} % of `none`, × 0.90, and no age above a second. The paper (figure 7, 24 cores, 10 Gbit/s): \
         asynchronous about 12 Mpps, synchronous never above 2 Mpps."
    );
    cases
}
