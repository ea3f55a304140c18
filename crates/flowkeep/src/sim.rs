//! `flowkeep sim`: seeds through the simulator, with this binary's functions and real configurations.
//!
//! The simulator knows workers, the registry knows functions; here a configuration's text becomes the plan that both need. Seeds are dealt out to as many
//! threads as there are processors, each with a simulator of its own; a failure is then looked at by one, so what is printed of it
//! depends on nothing but its seed.

use crate::cli::{FAILURE, USAGE};
use crate::registry::{Entry, Registry};
use runtime::chain::Plan;
use schemars::Schema;
use sim::dawdler::Dawdler;
use sim::witness::Witness;
use sim::{Failure, Outcome, Scenario};
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to simulate.
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

/// Makes plans of configurations' texts, and remembers them. Beside the functions of the registry there are the simulator's own.
pub fn planner(registry: &Registry) -> impl FnMut(&str) -> Result<Plan, String> + use<> {
    let mut entries = registry.entries().to_vec();
    if registry.entry(<Dawdler as nf::NetworkFunction>::NAME).is_none() {
        entries.push(Entry::of::<Dawdler>(|_| Schema::default()));
        entries.push(Entry::of::<Witness>(|_| Schema::default()));
    }
    let registry = Registry::new(entries);
    let mut plans: HashMap<String, Plan> = HashMap::new();
    move |text| {
        if let Some(plan) = plans.get(text) {
            return Ok(plan.clone());
        }
        let mut config =
            crate::config::parse("the scenario's configuration", text, &registry).map_err(|problems| {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                problems.join("\n\n")
            })?;
        let plan = Plan::new(config.rules(), config.take_factories()).map_err(|error| error.to_string())?;
        plans.insert(text.to_owned(), plan.clone());
        Ok(plan)
    }
}

/// What all seeds came to.
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
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(USAGE);
        }
    };
    let began = Instant::now();
    let sum = run_all(&job, scenario, registry);
    let seconds = began.elapsed().as_secs_f64();
    if let Some(problem) = &sum.broken {
        eprintln!("{problem}");
        return ExitCode::from(USAGE);
    }
    let failure = match &sum.failed {
        None => None,
        Some(outcome) => match sim::explain(outcome.scenario, outcome.seed, &mut planner(registry)) {
            Ok(failure) => failure,
            Err(problem) => {
                eprintln!("{problem}");
                return ExitCode::from(FAILURE);
            }
        },
    };
    let text = if job.json {
        in_json(&sum, failure.as_ref(), seconds)
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
    // Registries are shared; what simulators are made of is each thread's own.
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
                        // Those that are running come to their ends: an earlier one may fail, too.
                        next.store(end, Ordering::Relaxed);
                    }
                }
            });
        }
        show_progress(job, &sum);
    });
    sum.into_inner().unwrap_or_default()
}

/// A bar, if somebody looks.
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

fn in_json(sum: &Sum, failure: Option<&Failure>, seconds: f64) -> String {
    let failed = sum.failed.as_ref().map(|outcome| {
        let found = outcome.violation.as_ref();
        serde_json::json!({
            "seed": outcome.seed,
            "scenario": outcome.scenario.name(),
            "checker": found.map(|violation| violation.checker),
            "what": found.map(|violation| violation.what.clone()),
            "command": command(outcome),
            "shrunk": failure.map(|failure| serde_json::json!({
                "what": failure.shrunk.what,
                "script": failure.script,
                "timeline": failure.timeline,
                "runs": failure.runs,
            })),
        })
    });
    serde_json::json!({
        "seeds": sum.seeds,
        "packets": sum.packets,
        "events": sum.events,
        "seconds": seconds,
        "events_per_second": sum.events as f64 / seconds.max(1e-9),
        "failed": failed,
    })
    .to_string()
}
