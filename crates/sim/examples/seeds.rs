//! Seeds through the simulator without the whole tool: one seed explained, or a range of which the
//! seeds that find something are printed.
//!
//! ```text
//! cargo run -p flowkeep-sim --example seeds -- explain gateway 25099 [BUG]
//! cargo run -p flowkeep-sim --example seeds -- range 70000 1000 [SCENARIO [BUG]]
//! ```
//!
//! BUG is a planted one, as `tests/planted.rs` has them. `flowkeep sim` does the same for users,
//! without bugs.

use flowkeep_sim::{self as sim, Scenario};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let found = match words.as_slice() {
        ["explain", scenario, seed, rest @ ..] => explain(scenario, seed, rest),
        ["range", from, count, rest @ ..] => range(from, count, rest),
        _ => Err("usage: explain SCENARIO SEED [BUG] | range FROM COUNT [SCENARIO [BUG]]".to_owned()),
    };
    match found {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn plant(bug: Option<&&str>) {
    if let Some(bug) = bug {
        wire::planted::choose(String::leak((*bug).to_owned()));
    }
}

/// Prints why a seed fails; answers how many failures that is.
fn explain(scenario: &str, seed: &str, bug: &[&str]) -> Result<u64, String> {
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    plant(bug.first());
    let Some(failure) = sim::explain(scenario.parse()?, number(seed)?, &mut planner)? else {
        println!("{scenario} {seed} finds nothing");
        return Ok(0);
    };
    for (name, found) in [("found", &failure.violation), ("smallest", &failure.shrunk)] {
        println!("{name}: {}: {}", found.checker, found.what);
    }
    for line in failure.script.iter().chain(&failure.timeline) {
        println!("{line}");
    }
    Ok(1)
}

/// Prints each seed of a range that finds something, and the digest of all: two versions that print
/// the same digest have done the same. Answers how many find something.
fn range(from: &str, count: &str, scenario: &[&str]) -> Result<u64, String> {
    let registry = flowkeep::functions();
    let mut planner = flowkeep::sim::planner(&registry);
    let only: Option<Scenario> = scenario.first().map(|name| name.parse()).transpose()?;
    plant(scenario.get(1));
    let (from, mut failed, mut digest) = (number(from)?, 0, 0_u64);
    for seed in from..from + number(count)? {
        let scenario = only.unwrap_or(Scenario::of_seed(seed));
        let outcome = sim::run(scenario, seed, &mut planner)?;
        digest = digest.rotate_left(1) ^ outcome.digest;
        if let Some(found) = outcome.violation {
            println!("{scenario} {seed} {}: {}", found.checker, found.what);
            failed += 1;
        }
    }
    println!("{failed} seeds of {count} from {from} find something; digest {digest:016x}");
    Ok(failed)
}
