//! Seeds through the simulator, with the functions that ship: seeds that once failed, then
//! thousands of others.

use flowkeep_sim::{self as sim, Outcome, Scenario};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// How many seeds every run of the tests goes through; `FLOWKEEP_SEEDS` says another number.
const SEEDS: u64 = 10_000;

/// So many findings end a run.
const FINDINGS: usize = 5;

/// Seeds with known findings that are not mended: `docs/simulator.md` says which. A seed that finds
/// nothing any more goes from here.
const OPEN: &[u64] = &[];

fn told(outcome: &Outcome) -> String {
    let what = outcome
        .violation
        .as_ref()
        .map(|violation| format!("{}: {}", violation.checker, violation.what));
    let (scenario, seed) = (outcome.scenario, outcome.seed);
    format!(
        "{}\nflowkeep sim --scenario {scenario} --seed {seed}",
        what.unwrap_or_default()
    )
}

/// Does some work on a thread for each processor.
fn side_by_side(work: &(impl Fn(&mut sim::Planner<'_>) + Sync)) {
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let registry = flowkeep::functions();
                work(&mut flowkeep::sim::planner(&registry));
            });
        }
    });
}

#[test]
fn seeds_that_found_something_find_nothing_more() {
    let lines = include_str!("../seeds.txt").lines();
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    side_by_side(&|planner| {
        while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut words = line.split_whitespace();
            let scenario: Scenario = words.next().unwrap().parse().unwrap();
            let seed: u64 = words.next().unwrap().parse().unwrap();
            assert!(words.next().is_some(), "a line says what its seed found: {line}");
            let outcome = sim::run(scenario, seed, planner).unwrap();
            if outcome.violation.is_some() {
                failed.lock().unwrap().push(told(&outcome));
            }
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn thousands_of_seeds_find_nothing() {
    let seeds = std::env::var("FLOWKEEP_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(SEEDS);
    let (next, events, began) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    let moved = Mutex::new((sim::Moved::default(), [0u64; 3]));
    let failed = Mutex::new(Vec::new());
    side_by_side(&|planner| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let outcome = sim::run(Scenario::of_seed(seed), seed, planner).unwrap();
            events.fetch_add(outcome.events, Ordering::Relaxed);
            let mut moved = moved.lock().unwrap();
            moved.0.add(&outcome.moved);
            moved.1[0] += u64::from(outcome.moved.flows > 0);
            moved.1[1] += u64::from(outcome.moved.handed + outcome.moved.kept > 0);
            moved.1[2] += u64::from(outcome.moved.called_back > 0);
            let mut failed = failed.lock().unwrap();
            match (OPEN.contains(&seed), outcome.violation.is_some()) {
                (true, true) | (false, false) => {}
                (false, true) => failed.push(told(&outcome)),
                (true, false) => failed.push(format!("{seed} finds nothing: take it from `OPEN`")),
            }
            if failed.len() >= FINDINGS {
                next.store(seeds, Ordering::Relaxed);
            }
        }
    });
    let (failed, events, seconds) = (
        failed.into_inner().unwrap(),
        events.into_inner(),
        began.elapsed().as_secs_f64(),
    );
    println!(
        "{seeds} seeds, {events} events, {seconds:.1} s, {:.0} events/s",
        events as f64 / seconds
    );
    let (moved, [moving, while_moving, called_back]) = moved.into_inner().unwrap();
    println!(
        "flows moved in {moving} of them, with packets for those on their way in {while_moving}, called back in {called_back}: {moved:?}"
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn another_seed_is_another_run_and_the_same_is_the_same() {
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    let mut digest = |seed| sim::run(Scenario::Gateway, seed, &mut planner).unwrap().digest;
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

#[test]
fn a_healthy_seed_has_nothing_to_explain() {
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    assert_eq!(sim::explain(Scenario::Nat, 1, &mut planner), Ok(None));
}
