//! `bench store`: what keeping counts in a store costs the packets, and how old the counts there are (FlexState V, figures 7 and 8).
//!
//! | case | what runs |
//! |---|---|
//! | `forward` | the runtime with a function that does nothing |
//! | `… none` | the counter, its variables in no store |
//! | `… memory`, `… redb`, `… redis`, `… cassandra` | the same, told to that store every millisecond; compared with `none` |
//! | `sync …` | each packet waits until the store has its count; compared with `none` |
//!
//! One processor for the packets; agent and server on the others. Between two runs the store gets all that waits, so that no change grows old
//! while another case is measured. A redis-server is started here; a Cassandra is one that runs, named by [`CASSANDRA`]. Packets are of 64 bytes, from and to memory. The counter counts by protocol (two
//! counters that all packets share), and by inside host (32 flows each).
//!
//! Not here: a network between the function and the store, and ports.

use super::report::{Case, Parameters};
use super::traffic::{BenchPort, Popularity, Segment, Traffic};
use super::{Memory, Options, parameters};
use adapters::clock::{CycleRate, allowed_cpus, cycles, monotonic_ns, pin_to};
use functions::counter::{By, Config, Counter};
use nf::variables::{Consistency, Keeper};
use nf::{ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::stage::{Configured, Factory};
use runtime::{BURST, Runtime, Settings};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stores::{Agency, Defaults, Store, Stores};
use wire::Pool;
use wire::memory::Region;

/// How long a synchronous case runs, each time.
const SYNC: Duration = Duration::from_millis(500);
/// How long an asynchronous one does: many intervals.
const ASYNC: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(5);
/// The variable of the environment that names a Cassandra.
const CASSANDRA: &str = "FLOWKEEP_BENCH_CASSANDRA";
const STORES: [&str; 4] = ["memory", "redb", "redis", "cassandra"];
/// Of no-store throughput, what is to be reached.
const GOAL: f64 = 90.0;

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

/// A runtime with one function, and its traffic.
struct Subject {
    name: String,
    runtime: Runtime<BenchPort>,
    traffic: Traffic,
    is_sync: bool,
    /// Ended behind the runtime.
    _agency: Option<Agency>,
    rates: Vec<f64>,
    changes: Vec<f64>,
    bytes: Vec<f64>,
}

impl Subject {
    fn new(name: &str, factory: Box<dyn Factory>, at: Option<Place>, flows: u32, memory: &Memory) -> Self {
        let is_sync = name.starts_with("sync");
        let rule = ChainRule {
            name: "bench".into(),
            matching: Match::default(),
            functions: vec![factory.name().to_owned()],
            replication: None,
        };
        let (keeper, agency) = match at {
            Some(place) => {
                let consistency = match is_sync {
                    true => Consistency::Through,
                    false => Consistency::USUAL,
                };
                let defaults = Defaults {
                    store: place.store,
                    consistency,
                };
                let stores = Stores {
                    // Each case has variables of its own.
                    member: name.replace(' ', "-"),
                    has_clock: false,
                    usual: Some(defaults),
                    functions: Default::default(),
                };
                (Keeper::of(Box::new(stores)), Some(place.agency))
            }
            None => (Keeper::default(), None),
        };
        let plan = Plan::new(vec![rule], vec![factory])
            .expect("a chain of one")
            .keeping(keeper);
        let settings = Settings {
            now: monotonic_ns(),
            ..Settings::alone(flows)
        };
        let pool = Pool::new(Region::heap(Pool::region_length(64, 128)), 64, 128, 0);
        let runtime = Runtime::new(settings, plan, vec![BenchPort::default()], pool, |length| {
            memory.region(length)
        });
        let mut subject = Subject {
            name: name.to_owned(),
            runtime: runtime.expect("good settings"),
            traffic: Traffic::default(),
            is_sync,
            _agency: agency,
            rates: Vec::new(),
            changes: Vec::new(),
            bytes: Vec::new(),
        };
        let all: Vec<u32> = (0..flows).collect();
        subject.send(&all, Duration::MAX);
        subject.settle();
        subject
    }

    /// Sends packets of these flows until they are over or time is; answers how many left, and the cycles that it took the worker.
    fn send(&mut self, order: &[u32], time: Duration) -> (u64, u64) {
        let began = Instant::now();
        let (mut sent, mut took) = (0, 0);
        for burst in order.chunks(BURST) {
            if began.elapsed() >= time {
                break;
            }
            loop {
                let port = &mut self.runtime.links_mut()[0];
                let (home, has_room) = (
                    port.spent.len(),
                    self.traffic.idle.len() + port.spent.len() >= BURST,
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
        // What still waits is waited for.
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
    fn settle(&mut self) {
        if !self.runtime.finish_variables(PATIENCE) {
            eprintln!(
                "{}: the store has not taken every change within {PATIENCE:?}",
                self.name
            );
        }
    }

    /// Changes that went to the store so far, and their bytes.
    fn told(&self) -> (u64, u64) {
        let figures = self.runtime.variables();
        let all = figures.iter().map(|(_, figures)| figures);
        all.fold((0, 0), |(changes, bytes), figures| {
            (changes + figures.changes, bytes + figures.bytes)
        })
    }

    fn run(&mut self, order: &[u32], hertz: f64) {
        let (before, began) = (self.told(), Instant::now());
        let (sent, took) = self.send(order, if self.is_sync { SYNC } else { ASYNC });
        let (after, seconds) = (self.told(), began.elapsed().as_secs_f64());
        // A packet that waits costs time and not the worker; one that does not costs the worker.
        self.rates.push(match self.is_sync {
            true => sent as f64 / seconds,
            false => sent as f64 * hertz / took as f64,
        });
        self.changes.push((after.0 - before.0) as f64 / seconds);
        self.bytes.push((after.1 - before.1) as f64 / seconds);
        self.settle();
    }

    fn throughput(&self, facts: Parameters) -> Case {
        let rates = self.rates.iter().map(|rate| rate / 1e6).collect();
        let metric = "throughput of one processor";
        Case::new(&self.name, facts, metric, "million packets per second", rates)
    }

    /// What the store was told, and how old it was then.
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
        vec![
            case(
                "changes/ms",
                "changes told to the store",
                "per millisecond",
                thousands(&self.changes),
            ),
            case(
                "kB/s",
                "bytes of changes told to the store",
                "kilobytes per second",
                thousands(&self.bytes),
            ),
            case("age p50 us", old, micro, age(figures.ages.percentile_ns(50))),
            case("age p99 us", old, micro, age(figures.ages.percentile_ns(99))),
            case("age max us", old, micro, age(figures.ages.max_ns())),
        ]
    }
}

/// A store whose agent is on another processor than the packets.
struct Place {
    store: Store,
    agency: Agency,
}

/// Does something on the other processors: what it starts stays there.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let cpus = allowed_cpus();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if let Some(cpu) = cpus.first() {
                let _ = pin_to(*cpu);
            }
            work()
        });
        thread.join().expect("it does not panic")
    })
}

fn place(uri: &str) -> Option<Place> {
    aside(|| {
        let driver = stores::driver_of(uri).ok()?;
        let (store, agency) = Store::start(driver, PATIENCE, |report| eprintln!("{report:?}")).ok()?;
        Some(Place { store, agency })
    })
}

/// A redis-server of its own, without a log: as in the paper, its memory is what counts.
struct Server(Child, u16);

impl Server {
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let child = aside(|| {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().ok()
        })?;
        let server = Server(child, port);
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn counter(by: By, wait: bool) -> Box<dyn Factory> {
    let config = Config {
        by,
        wait,
        ..Config::default()
    };
    Box::new(Configured::<Counter>::new("counter", config))
}

/// Where the stores are, for as long as it measures.
struct Places {
    folder: std::path::PathBuf,
    redis: Option<Server>,
    cassandra: Option<String>,
}

impl Places {
    fn find() -> Self {
        let folder = std::env::temp_dir().join(format!("flowkeep-bench-store-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir_all(&folder) {
            eprintln!("not run with redb: {error}");
        }
        let redis = Server::start();
        if redis.is_none() {
            eprintln!("not run with Redis: there is no redis-server");
        }
        let cassandra = std::env::var(CASSANDRA).ok();
        if cassandra.is_none() {
            eprintln!(
                "not run with Cassandra: start one (`tools/cassandra/run.sh FOLDER PORT`) and set {CASSANDRA} to \
                 cassandra://127.0.0.1:PORT/bench"
            );
        }
        Places {
            folder,
            redis,
            cassandra,
        }
    }

    /// The store of a case, with its agent; nothing where there is none.
    fn open(&self, store: &str, case: &str) -> Option<Place> {
        let uri = match store {
            "redb" => format!("redb:{}", self.folder.join(case.replace(' ', "-")).display()),
            "redis" => format!("redis://127.0.0.1:{}", self.redis.as_ref()?.1),
            "cassandra" => self.cassandra.clone()?,
            _ => "memory:".to_owned(),
        };
        place(&uri)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn subjects(places: &Places, flows: u32, memory: &Memory) -> Vec<Subject> {
    let pass = Box::new(Configured::<Pass>::new("pass", NoConfig {}));
    let mut subjects = vec![Subject::new("forward", pass, None, flows, memory)];
    for (by, called) in [(By::Protocol, "protocol"), (By::InsideHost, "host")] {
        let none = format!("{called}, none");
        subjects.push(Subject::new(&none, counter(by, false), None, flows, memory));
        for (kind, wait) in [("", false), ("sync ", true)] {
            if wait && by == By::InsideHost {
                continue;
            }
            for store in STORES {
                let name = format!("{kind}{called}, {store}");
                if let Some(place) = places.open(store, &name) {
                    subjects.push(Subject::new(&name, counter(by, wait), Some(place), flows, memory));
                }
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
            for subject in &mut subjects {
                subject.run(&order, hertz);
            }
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
            cases.extend(subject.staleness(facts()));
        }
    }
    eprintln!(
        "goal: asynchronous cases at {GOAL} % of `none`, × 0.90, and no age above a second. The paper (figure 7, 24 cores, 10 Gbit/s): \
         asynchronous about 12 Mpps, synchronous never above 2 Mpps."
    );
    cases
}
