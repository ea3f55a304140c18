//! `flowkeep sim`: seeds through the simulator, with this binary's functions and real
//! configurations.
//!
//! The simulator knows workers, the registry knows functions; here a configuration's text becomes
//! the plan that both need. Seeds are dealt out to as many threads as there are processors, each
//! with a simulator of its own; a failure is then looked at by one, so its report depends on
//! nothing but its seed.

use crate::cli::{FAILURE, USAGE, failed};
use crate::registry::{Entry, Registry};
use crate::shape::{self, Shape};
use functions::forward::tables::{Interface, Kind, Neighbour, Route, Way};
use functions::forward::{Feed, Supply};
use nf::{Addr, Prefix};
use runtime::chain::Plan;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use sim::kernel::{Kernel, Planned, Station};
use sim::slow_function::SlowFunction;
use sim::witness::Witness;
use sim::{Failure, Outcome, Scenario};
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Which seeds to simulate, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimJob {
    /// How many seeds.
    pub seeds: u64,
    /// The first of them.
    pub first: u64,
    /// Only this scenario; else each seed says which.
    pub scenario: Option<String>,
    /// Print one JSON object.
    pub json: bool,
}

/// Makes plans of configurations' texts, and remembers them. Beside the functions of the registry
/// there are the simulator's own.
pub fn planner(registry: &Registry) -> impl FnMut(&str) -> Result<Planned, String> + use<> {
    let mut entries = registry.entries().to_vec();
    if registry
        .entry(<SlowFunction as nf::NetworkFunction>::NAME)
        .is_none()
    {
        entries.push(Entry::of::<SlowFunction>(|_| Schema::default()));
        entries.push(Entry::of::<Witness>(|_| Schema::default()));
    }
    let registry = Registry::new(entries);
    let mut plans: HashMap<String, Plan> = HashMap::new();
    move |text| {
        if let Some(plan) = plans.get(text) {
            return Ok(plan.clone().into());
        }
        let mut config =
            crate::config::parse("the scenario's configuration", text, &registry).map_err(|problems| {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                problems.join("\n\n")
            })?;
        let factories = config.take_factories();
        let plan = config.plan(factories).map_err(|error| error.to_string())?;
        let mut feeds = plan.factories().iter().filter_map(|factory| factory.feed());
        if let Some(supply) = feeds.find_map(|feed| feed.downcast::<Supply>().ok()) {
            // Such a plan has tables, which are not another's.
            let kernel: Rc<dyn Kernel> = Rc::new(Tables(supply.feed.clone()));
            return Ok(Planned {
                plan,
                kernel: Some(kernel),
            });
        }
        plans.insert(text.to_owned(), plan.clone());
        Ok(plan.into())
    }
}

/// A simulated kernel's way to the tables of the forwarding step.
struct Tables(Arc<Feed>);

impl Kernel for Tables {
    fn begin(&self, number: u64) {
        self.0.distinguish(number);
    }

    fn publish(&self, own: &[([u8; 6], [u8; 4])], stations: &[Station]) {
        let interface = |(port, (link, addr)): (usize, &([u8; 6], [u8; 4]))| Interface {
            index: port as u32 + 1,
            port: port as u8,
            vlan: 0,
            link: *link,
            mtu: 1500,
            addresses: vec![Addr::v4(*addr)],
        };
        let route = |station: &Station| Route {
            to: Prefix::new(Addr::v4(station.addr), 32).expect("an address has 32 bits"),
            kind: Kind::Forward,
            ways: vec![Way {
                interface: u32::from(station.port) + 1,
                gateway: None,
                weight: 1,
            }],
            metric: 0,
            mtu: 0,
        };
        let neighbour = |station: &Station| {
            Some(Neighbour {
                interface: u32::from(station.port) + 1,
                address: Addr::v4(station.addr),
                link: station.link?,
            })
        };
        let neighbours: Vec<Neighbour> = stations.iter().filter_map(neighbour).collect();
        self.0.publish(
            own.iter().enumerate().map(interface).collect(),
            stations.iter().map(route).collect(),
            &neighbours,
        );
    }

    fn wanted(&self) -> Vec<[u8; 4]> {
        let mut wanted = Vec::new();
        self.0.take_wanted(&mut wanted);
        wanted.iter().filter_map(|(_, addr)| addr.as_v4()).collect()
    }
}

/// The outcome of all seeds.
#[derive(Default)]
struct Sum {
    seeds: u64,
    events: u64,
    packets: u64,
    failed: Option<Outcome>,
    broken: Option<String>,
}

impl Sum {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.packets += outcome.packets;
        let is_earlier = self
            .failed
            .as_ref()
            .is_none_or(|failed| outcome.seed < failed.seed);
        if outcome.violation.is_some() && is_earlier {
            self.failed = Some(outcome);
        }
    }
}

/// The command `sim`.
pub fn job(job: SimJob, registry: &Registry) -> ExitCode {
    let scenario = match job.scenario.as_deref().map(str::parse::<Scenario>).transpose() {
        Ok(scenario) => scenario,
        Err(problem) => return failed::ends(job.json, problem, USAGE),
    };
    let began = Instant::now();
    let sum = run_all(&job, scenario, registry);
    let seconds = began.elapsed().as_secs_f64();
    if let Some(problem) = &sum.broken {
        return failed::ends(job.json, problem, USAGE);
    }
    let failure = match &sum.failed {
        None => None,
        Some(outcome) => match sim::explain(outcome.scenario, outcome.seed, &mut planner(registry)) {
            Ok(failure) => failure,
            Err(problem) => return failed::ends(job.json, problem, FAILURE),
        },
    };
    let text = if job.json {
        shape::object(&Simulated::of(&sum, failure.as_ref(), seconds)).to_string()
    } else {
        in_words(&job, &sum, failure.as_ref(), seconds)
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    if sum.failed.is_some() {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    }
}

fn run_all(job: &SimJob, scenario: Option<Scenario>, registry: &Registry) -> Sum {
    let end = job.first.saturating_add(job.seeds);
    let next = AtomicU64::new(job.first);
    let sum = Mutex::new(Sum::default());
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(job.seeds.max(1) as usize);
    // Registries are shared; the parts of simulators are each thread's own.
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut planner = planner(registry);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = sim::run(scenario.unwrap_or(Scenario::of_seed(seed)), seed, &mut planner);
                    let Ok(mut sum) = sum.lock() else { return };
                    match outcome {
                        Ok(outcome) => sum.add(outcome),
                        Err(problem) => sum.broken = Some(problem),
                    }
                    if sum.failed.is_some() || sum.broken.is_some() {
                        // Seeds that are running come to their ends: an earlier one may fail, too.
                        next.store(end, Ordering::Relaxed);
                    }
                }
            });
        }
        show_progress(job, &sum);
    });
    sum.into_inner().unwrap_or_default()
}

/// A bar, if standard error is a terminal.
fn show_progress(job: &SimJob, sum: &Mutex<Sum>) {
    const WIDE: u64 = 40;
    let mut errors = std::io::stderr();
    if !errors.is_terminal() {
        return;
    }
    let began = Instant::now();
    loop {
        let (seeds, events, is_over) = match sum.lock() {
            Ok(sum) => (
                sum.seeds,
                sum.events,
                sum.failed.is_some() || sum.broken.is_some(),
            ),
            Err(_) => return,
        };
        let filled = (seeds * WIDE / job.seeds.max(1)) as usize;
        let rate = events as f64 / began.elapsed().as_secs_f64().max(0.001) / 1e6;
        let bar = "#".repeat(filled);
        let _ = write!(
            errors,
            "\r[{bar:<40}] {seeds}/{} seeds, {rate:.2} M events/s ",
            job.seeds
        );
        let _ = errors.flush();
        if is_over || seeds >= job.seeds {
            let _ = writeln!(errors);
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How to repeat a run.
fn command(outcome: &Outcome) -> String {
    format!(
        "flowkeep sim --scenario {} --seed {}",
        outcome.scenario, outcome.seed
    )
}

fn in_words(job: &SimJob, sum: &Sum, failure: Option<&Failure>, seconds: f64) -> String {
    let rate = sum.events as f64 / seconds.max(1e-9);
    let mut lines = Vec::new();
    if let (Some(outcome), Some(failure)) = (&sum.failed, failure) {
        lines.push(format!(
            "{}: {}",
            failure.violation.checker, failure.violation.what
        ));
        lines.push(format!("seed {}; again with: {}", outcome.seed, command(outcome)));
        lines.push(format!(
            "\nthe smallest run that fails so ({} tried): {}",
            failure.runs, failure.shrunk.what
        ));
        lines.extend(failure.script.iter().map(|line| format!("  {line}")));
        lines.push("\nwhat happened in it:".to_owned());
        lines.extend(failure.timeline.iter().map(|line| format!("  {line}")));
        lines.push(String::new());
    } else if let Some(outcome) = &sum.failed {
        lines.push(format!(
            "seed {} failed once and not again: it depends on more than its seed",
            outcome.seed
        ));
    }
    lines.push(format!(
        "{} of {} seeds{}, {} packets, {} events, {:.1} s, {:.0} events/s",
        sum.seeds,
        job.seeds,
        if sum.failed.is_none() {
            ": nothing found"
        } else {
            ""
        },
        sum.packets,
        sum.events,
        seconds,
        rate
    ));
    lines.join("\n")
}

/// The outcome of the seeds, as `--json` prints it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Simulated {
    /// Seeds that were run.
    seeds: u64,
    /// Packets in them.
    packets: u64,
    /// Events in them.
    events: u64,
    /// How long that took.
    seconds: f64,
    /// The same, per second.
    events_per_second: f64,
    /// The failure of the smallest seed that failed.
    #[serde(rename = "failure")]
    failed: Option<Found>,
}

/// A run that failed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Found {
    /// Its seed.
    seed: u64,
    /// Its scenario.
    scenario: &'static str,
    /// The checker that found it.
    checker: Option<&'static str>,
    /// Its message.
    what: Option<String>,
    /// The command that repeats it.
    command: String,
    /// The smallest run that fails so; null if it failed once and not again.
    shrunk: Option<Shrunk>,
}

/// A run that was made small.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Shrunk {
    /// The failure in it.
    what: String,
    /// The actions in it, a line each.
    script: Vec<String>,
    /// The events in it, a line each.
    timeline: Vec<String>,
    /// How many runs making it small took.
    runs: u32,
}

impl Shape for Simulated {
    const NAME: &'static str = "sim";
    /// 2: the failure is `failure`.
    const VERSION: u32 = 2;
}

impl Simulated {
    fn of(sum: &Sum, failure: Option<&Failure>, seconds: f64) -> Self {
        let shrunk = |failure: &Failure| Shrunk {
            what: failure.shrunk.what.clone(),
            script: failure.script.clone(),
            timeline: failure.timeline.clone(),
            runs: failure.runs,
        };
        let found = |outcome: &Outcome| Found {
            seed: outcome.seed,
            scenario: outcome.scenario.name(),
            checker: outcome.violation.as_ref().map(|violation| violation.checker),
            what: outcome.violation.as_ref().map(|violation| violation.what.clone()),
            command: command(outcome),
            shrunk: failure.map(shrunk),
        };
        Simulated {
            seeds: sum.seeds,
            packets: sum.packets,
            events: sum.events,
            seconds,
            events_per_second: sum.events as f64 / seconds.max(1e-9),
            failed: sum.failed.as_ref().map(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_holds_to_its_schema() {
        let violation = |what: &str| sim::Violation {
            checker: "order",
            what: what.to_owned(),
        };
        let sum = Sum {
            seeds: 3,
            failed: Some(Outcome {
                seed: 2,
                scenario: Scenario::of_seed(2),
                events: 5,
                packets: 7,
                moved: sim::Moved::default(),
                digest: 0,
                violation: Some(violation("two before one")),
            }),
            ..Sum::default()
        };
        let failure = Failure {
            violation: violation("two before one"),
            shrunk: violation("two before one, again"),
            script: vec!["a host".to_owned()],
            timeline: vec!["a packet".to_owned()],
            runs: 9,
        };
        let schema = shape::schema::<Simulated>();
        let validator = jsonschema::validator_for(schema.as_value()).unwrap();
        for failure in [Some(&failure), None] {
            let printed = shape::object(&Simulated::of(&sum, failure, 0.0));
            let problems: Vec<String> = validator.iter_errors(&printed).map(|e| e.to_string()).collect();
            assert!(problems.is_empty(), "{problems:?}\n{printed:#}");
            assert_eq!(printed["failure"]["shrunk"].is_null(), failure.is_none());
            assert_eq!(printed["failure"]["checker"], "order");
            let mut other = printed;
            other["failure"]["seed"] = "two".into();
            assert!(!validator.is_valid(&other));
        }
    }
}
