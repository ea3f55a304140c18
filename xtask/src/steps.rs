//! Runs the steps of `cargo xtask ci` one after the other and tells how each went.
//!
//! A step is a check of our own or a command. A command's output goes to a file, and to the terminal only when the step
//! fails:
//!
//! ```text
//! ok      arrows                   0.0 s
//! FAILED  clippy                  12.3 s   repeat with: cargo clippy --workspace …
//! ok      tests                   98.1 s   not run: 2
//! 412 passed, 0 failed
//! ```
//!
//! A test that cannot run here (no captures, no root) prints a line that starts with `not run:` and returns; those lines
//! are listed, so that nobody takes them for passed.

mod commands;

use crate::checks::{self, Check};
use crate::workspace::{Workspace, root};
use commands::{
    CLIPPY, DOCS, FORMAT, FUZZ_BUILD, FUZZ_LOCK, MANY_CASES, MIRI, MIRI_RING, SEEDS, SOAK, SOAK_SECONDS,
    TESTS, fuzzers,
};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// An outside command that must succeed.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
    /// Words behind those, chosen by whoever runs it.
    more: Vec<String>,
    environment: &'static [(&'static str, &'static str)],
}

/// What a run of test binaries came to.
#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    not_run: Vec<String>,
}

/// How all steps went so far.
struct Outcome {
    begin: Instant,
    failed: Vec<String>,
    tally: Tally,
}

impl Default for Outcome {
    fn default() -> Self {
        Outcome {
            begin: Instant::now(),
            failed: Vec::new(),
            tally: Tally::default(),
        }
    }
}

/// Every check and every test.
pub fn ci() -> ExitCode {
    let mut outcome = Outcome::default();
    outcome.command(&FORMAT);
    outcome.checks(checks::ALL);
    outcome.command(&CLIPPY);
    outcome.command(&DOCS);
    outcome.command(&FUZZ_LOCK);
    outcome.tests(&TESTS);
    outcome.told()
}

/// What takes longer; each fuzzer runs for `fuzz_seconds`.
pub fn nightly(fuzz_seconds: u32) -> ExitCode {
    let mut outcome = Outcome::default();
    outcome.command(&FORMAT);
    outcome.checks(checks::ALL);
    outcome.command(&CLIPPY);
    outcome.command(&DOCS);
    outcome.command(&FUZZ_LOCK);
    outcome.tests(&TESTS);
    outcome.tests(&MANY_CASES);
    outcome.tests(&SOAK);
    outcome.tests(&MIRI);
    outcome.tests(&MIRI_RING);
    outcome.command(&FUZZ_BUILD);
    outcome.command(&SEEDS);
    for fuzzer in &fuzzers(fuzz_seconds) {
        outcome.fuzzer(fuzzer);
    }
    outcome.told()
}

/// The checks that only read, or one of them.
pub fn only_checks(name: Option<&str>) -> ExitCode {
    let mut outcome = Outcome::default();
    match name.and_then(checks::named) {
        Some(check) => outcome.checks(std::slice::from_ref(check)),
        None => outcome.checks(checks::ALL),
    }
    if outcome.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Outcome {
    fn checks(&mut self, checks: &[Check]) {
        let workspace = match Workspace::read() {
            Ok(workspace) => workspace,
            Err(problem) => {
                eprintln!("{problem}");
                self.line(
                    "checks",
                    false,
                    Duration::ZERO,
                    "the repository could not be read",
                );
                return;
            }
        };
        for check in checks {
            let begin = Instant::now();
            let found = (check.run)(&workspace);
            let repeat = format!("repeat with: cargo xtask check {}", check.name);
            let note = if found.is_empty() { "" } else { repeat.as_str() };
            self.line(check.name, found.is_empty(), begin.elapsed(), note);
            if !found.is_empty() {
                println!("        rule: {}", check.rule);
            }
            for violation in found {
                println!("        {}: {}", violation.place, violation.problem);
            }
        }
    }

    fn command(&mut self, step: &Step) {
        let (good, output, time) = run(step);
        self.conclude(step, good, time, &output, "");
    }

    fn tests(&mut self, step: &Step) {
        let (good, output, time) = run(step);
        let tally = tally(&output);
        let note = match tally.not_run.len() {
            0 => String::new(),
            count => format!("not run: {count}"),
        };
        self.conclude(step, good && tally.failed == 0, time, &output, &note);
        for line in &tally.not_run {
            println!("        {line}");
        }
        self.tally.passed += tally.passed;
        self.tally.failed += tally.failed;
    }

    fn fuzzer(&mut self, step: &Step) {
        let (good, output, time) = run(step);
        let note = executions(&output);
        // Without its figures it was not a fuzzer that ran.
        let good = good && note.is_some();
        self.conclude(step, good, time, &output, &note.unwrap_or_default());
    }

    fn conclude(&mut self, step: &Step, good: bool, time: Duration, output: &str, note: &str) {
        if good {
            self.line(step.name, true, time, note);
            return;
        }
        println!("{}", shortened(step, output));
        self.line(step.name, false, time, &format!("repeat with: {}", repeat(step)));
    }

    fn line(&mut self, name: &str, good: bool, time: Duration, note: &str) {
        let word = if good { "ok" } else { "FAILED" };
        let line = format!("{word:<7} {name:<22} {:>6.1} s   {note}", time.as_secs_f64());
        println!("{}", line.trim_end());
        if !good {
            self.failed.push(name.to_owned());
        }
    }

    /// The end: the time, which steps failed, and the sum over all test binaries as the last line.
    fn told(&self) -> ExitCode {
        println!("{:.1} minutes in all", self.begin.elapsed().as_secs_f64() / 60.0);
        if !self.failed.is_empty() {
            println!("failed: {}", self.failed.join(", "));
        }
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
        if self.failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Where a step's output is kept.
fn log_path(step: &Step) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target
        .join("xtask")
        .join(format!("{}.log", step.name.replace([' ', ','], "-")))
}

/// Runs a step: whether it succeeded, all it wrote, and how long it took.
fn run(step: &Step) -> (bool, String, Duration) {
    let begin = Instant::now();
    let log = log_path(step);
    let started = (|| {
        fs::create_dir_all(log.parent().expect("in a folder"))?;
        let file = File::create(&log)?;
        Command::new(step.words[0])
            .args(&step.words[1..])
            .args(&step.more)
            .envs(
                step.environment
                    .iter()
                    .copied()
                    .filter(|(name, _)| *name != SOAK_SECONDS || std::env::var_os(SOAK_SECONDS).is_none()),
            )
            // This program's own, set by the `cargo` that runs it, would be taken for the step's.
            .env_remove("CARGO_MANIFEST_DIR")
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()
    })();
    let output = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match started {
        Ok(status) => (status.success(), output.unwrap_or_default(), begin.elapsed()),
        Err(error) => (false, format!("{}: {error}", step.words[0]), begin.elapsed()),
    }
}

/// The command of a step as one would type it.
fn repeat(step: &Step) -> String {
    let mut words: Vec<String> = Vec::new();
    for (name, value) in step.environment {
        words.push(format!("{name}='{value}'"));
    }
    words.extend(step.words.iter().map(|word| (*word).to_owned()));
    words.extend(step.more.iter().cloned());
    words.join(" ")
}

/// The part of a failed step's output that says what failed; the rest is in the file that is named.
fn shortened(step: &Step, output: &str) -> String {
    const LINES_MAX: usize = 300;
    let lines: Vec<&str> = output.lines().filter(|line| !is_progress(line)).collect();
    // Of test output, what passed and what its tests printed is no news.
    let lines: Vec<&str> = match lines.iter().position(|line| line.trim() == "failures:") {
        Some(_) => failures(&lines),
        None => lines,
    };
    let log = log_path(step).display().to_string();
    if lines.len() <= LINES_MAX {
        return lines.join("\n");
    }
    let half = LINES_MAX / 2;
    let left_out = lines.len() - 2 * half;
    format!(
        "{}\n… {left_out} lines left out, all are in {log} …\n{}",
        lines[..half].join("\n"),
        lines[lines.len() - half..].join("\n"),
    )
}

fn is_progress(line: &str) -> bool {
    [
        "Compiling ",
        "Checking ",
        "Downloading ",
        "Downloaded ",
        "Documenting ",
        "Finished ",
    ]
    .iter()
    .any(|word| line.trim_start().starts_with(word))
        || (line.starts_with("test ") && line.ends_with("... ok"))
}

/// From each test binary's output, the part from `failures:` to its result.
fn failures<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut inside = false;
    for line in lines {
        inside |= line.trim() == "failures:";
        let names_binary =
            line.trim_start().starts_with("Running ") || line.trim_start().starts_with("Doc-tests ");
        let error = line.starts_with("error") || line.contains("signal:");
        if inside || names_binary || error {
            kept.push(*line);
        }
        inside &= !line.starts_with("test result:");
    }
    kept
}

/// Adds up the results of test binaries. One that began and gave no result (it crashed) is a failure.
fn tally(output: &str) -> Tally {
    let mut tally = Tally::default();
    let (mut begun, mut ended) = (0, 0);
    for line in output.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("Running ") || trimmed.starts_with("Doc-tests ") {
            begun += 1;
        } else if let Some(result) = trimmed.strip_prefix("test result: ") {
            ended += 1;
            tally.passed += number_before(result, " passed");
            tally.failed += number_before(result, " failed");
        } else if trimmed.starts_with("not run:") && !tally.not_run.iter().any(|seen| seen == trimmed) {
            tally.not_run.push(trimmed.to_owned());
        }
    }
    // Doc-tests may give two results, so fewer binaries than results is nothing wrong.
    tally.failed += u64::saturating_sub(begun, ended);
    tally
}

/// What a fuzzer did, from the figures at its end.
fn executions(output: &str) -> Option<String> {
    let figure = |name: &str| {
        let line = output.lines().rev().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let count = figure("stat::number_of_executed_units:")?;
    let rate = figure("stat::average_exec_per_sec:")?;
    Some(format!("{count} inputs, {rate} a second"))
}

fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/a)
test x ... ok
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/b.rs (target/debug/deps/b)
not run: needs the shared captures (FLOWKEEP_DATA)
not run: needs the shared captures (FLOWKEEP_DATA)
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests a
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn results_add_up() {
        let tally = tally(OUTPUT);
        assert_eq!((tally.passed, tally.failed), (16, 2));
        assert_eq!(
            tally.not_run,
            ["not run: needs the shared captures (FLOWKEEP_DATA)"]
        );
    }

    #[test]
    fn a_binary_that_crashes_is_a_failure() {
        let crashed = OUTPUT.replace("test result: ok. 12", "signal: 11, SIGSEGV\n12");
        assert_eq!(tally(&crashed).failed, 3);
    }

    #[test]
    fn a_failed_step_shows_what_failed() {
        let output = "   Compiling a v1\ntest fine ... ok\ntest bad ... FAILED\n\nfailures:\n\n---- bad stdout ----\nleft: 1\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let shown = shortened(&TESTS, output);
        assert!(shown.contains("left: 1"));
        assert!(!shown.contains("Compiling") && !shown.contains("fine"));
    }

    #[test]
    fn a_fuzzer_tells_what_it_did() {
        let output = "#9 DONE\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec:     56\n";
        assert_eq!(executions(output).as_deref(), Some("1234 inputs, 56 a second"));
        assert_eq!(executions("error: no such binary"), None);
        let all = fuzzers(7);
        assert!(all.iter().all(|step| repeat(step).ends_with("-max_total_time=7")));
    }

    #[test]
    fn a_command_that_fails_fails_the_run() {
        let mut outcome = Outcome::default();
        outcome.command(&Step {
            name: "false",
            words: &["false"],
            more: Vec::new(),
            environment: &[],
        });
        assert_eq!(outcome.failed, ["false"]);
        let absent = Step {
            name: "absent",
            words: &["no-such-program-anywhere"],
            more: Vec::new(),
            environment: &[],
        };
        assert!(!run(&absent).0);
    }
}
