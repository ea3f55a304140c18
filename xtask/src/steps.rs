//! Runs the steps of `cargo xtask ci` one after the other and tells how each went.
//!
//! A step is a check of our own or a command. A command's output goes to a file, and to the
//! terminal only when the step fails:
//!
//! ```text
//! ok      arrows                   0.0 s
//! FAILED  clippy                  12.3 s   repeat with: cargo clippy --workspace …
//! ok      tests                   98.1 s   not run: 2
//! 412 passed, 0 failed
//! ```
//!
//! A step that fails, or is ended at its limit ([`limit`]), does not keep the others from running.
//! A nightly run begins by telling the time of all its limits together.
//!
//! Tests start processes and wait; clippy, documents and tests that only calculate have the idle
//! time that they leave. A run of all tests says while it runs how far it is ([`progress`]).
//!
//! A test that fails and depends on the machine's time is run once more, alone ([`again`]).
//!
//! A test that cannot run here (no captures, no root) prints a line that starts with `not run:` and
//! returns; those lines are listed, so that they are not taken for passed.

mod again;
mod commands;
mod limit;
mod progress;

use crate::checks::{self, Check};
use crate::workspace::{Workspace, root};
use commands::{
    BOOK, CLIPPY, CRATES, CRATES_BUILT, CRATES_PUBLISHED, DEMO, DOCS, FORMAT, FUZZ_BUILD, FUZZ_LOCK, NIGHT,
    PACKAGES, SEEDS, SHORT, Scale, TESTS_BUILT, calculations, drivers, fuzzers, many_cases, miri, soak,
    tests,
};
use progress::Progress;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// An outside command that must succeed.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
    /// Words behind those, chosen by the run.
    more: Vec<String>,
    environment: &'static [(&'static str, &'static str)],
    /// The same, chosen by the run; our own environment counts more.
    chosen: Vec<(&'static str, String)>,
    /// The minutes after which the step is ended.
    minutes_max: u32,
    /// Whether it says how far it is.
    tells_progress: bool,
    /// Objects that the step seems to look at and does not, and the reason.
    left_out: &'static [&'static str],
}

impl Step {
    /// Whether miri tries many orders of threads in it.
    fn tries_orders(&self) -> bool {
        let mut values = self.chosen.iter().map(|(_, value)| value);
        values.any(|value| value.contains("-Zmiri-many-seeds"))
    }
}

/// The result of a run of test binaries.
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
    outcome.command(&TESTS_BUILT);
    let mut beside = vec![CLIPPY];
    beside.extend(drivers());
    beside.extend([DOCS, FUZZ_LOCK, CRATES]);
    outcome.tests_beside(&tests(), &beside, &calculations());
    outcome.told()
}

/// The longer steps, all of them or a part of each; each fuzzer for so many seconds, if that is
/// said.
pub fn nightly(is_short: bool, fuzz_seconds: Option<u32>) -> ExitCode {
    let scale = Scale {
        fuzz_seconds: fuzz_seconds.unwrap_or(if is_short { SHORT } else { NIGHT }.fuzz_seconds),
        ..if is_short { SHORT } else { NIGHT }
    };
    let first = [FORMAT, CLIPPY, DOCS, FUZZ_LOCK, CRATES];
    // Release builds and steps that need a registry, for which a short run has no time.
    let packages: &[Step] = match is_short {
        true => &[],
        false => &[CRATES_BUILT, CRATES_PUBLISHED, DEMO, BOOK, PACKAGES],
    };
    let [many_cases, soak] = [many_cases(&scale), soak(&scale)];
    let (miri, built, fuzzers) = (miri(&scale), [FUZZ_BUILD, SEEDS], fuzzers(&scale));
    let alone = first
        .iter()
        .chain(packages)
        .chain([&many_cases, &soak])
        .chain(&built);
    println!("{}", budget(&scale, alone, &[&miri, &fuzzers]));

    let mut outcome = Outcome::default();
    let [format, others @ ..] = &first;
    outcome.command(format);
    outcome.checks(checks::ALL);
    others
        .iter()
        .chain(packages)
        .for_each(|step| outcome.command(step));
    outcome.tests(&many_cases);
    outcome.tests(&soak);
    outcome.in_pairs(&miri, Outcome::tests_ran);
    built.iter().for_each(|step| outcome.command(step));
    outcome.in_pairs(&fuzzers, Outcome::fuzzer_ran);
    outcome.told()
}

/// A run's steps, and how long they take at most: each step its limit, of two beside each other the
/// longer one's.
fn budget<'a>(scale: &Scale, alone: impl Iterator<Item = &'a Step>, in_pairs: &[&[Step]]) -> String {
    let alone: u32 = alone.map(|step| step.minutes_max).sum();
    let pairs = in_pairs.iter().flat_map(|steps| steps.chunks(2));
    let longest = |pair: &[Step]| pair.iter().map(|step| step.minutes_max).max();
    let minutes = alone + pairs.filter_map(longest).sum::<u32>();
    format!(
        "{}: {} cases of a property, a soak of {} s, full load for {} s, {} s of each fuzzer, {} orders of two threads; all limits together: {minutes} minutes",
        scale.words,
        scale.cases,
        scale.soak_seconds,
        scale.busy_seconds,
        scale.fuzz_seconds,
        scale.ring_seeds
    )
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
        let ran = run(step);
        self.conclude(step, ran.good, &ran, "");
    }

    fn tests(&mut self, step: &Step) {
        self.tests_ran(step, &run(step));
    }

    /// Tests, most of which wait, and beside them steps that only calculate, in the time that the
    /// tests leave. That begins when cargo has let go of the build folder: the tests wait for none
    /// of it.
    fn tests_beside(&mut self, tests: &Step, commands: &[Step], calculations: &Step) {
        let (built, is_built) = channel();
        let (ran, beside, calculated) = std::thread::scope(|scope| {
            let beside = scope.spawn(move || {
                // An error says that the other end is dropped, which is the sign.
                let _ = is_built.recv();
                let ran: Vec<Ran> = commands.iter().map(|step| run_behind(step, IDLE, None)).collect();
                (ran, run_behind(calculations, IDLE, None))
            });
            let ran = run_behind(tests, &[], Some(built));
            let (beside, calculated) = beside.join().expect("a step does not panic");
            (ran, beside, calculated)
        });
        for (step, ran) in commands.iter().zip(&beside) {
            self.conclude(step, ran.good, ran, "");
        }
        self.tests_ran(calculations, &calculated);
        self.tests_or_again(tests, ran);
    }

    /// Tests that ran, of which a few that depend on the machine's time may be run again.
    fn tests_or_again(&mut self, step: &Step, ran: Ran) {
        let again = if ran.good { None } else { again::pass(&ran.output) };
        let Some(again) = again else {
            return self.tests_ran(step, &ran);
        };
        println!("{}", shortened(step, &ran.output));
        let tally = tally(&ran.output);
        let passed = tally.passed + again.len() as u64;
        let mut note = format!(
            "{passed} passed, {} of them only when run again alone",
            again.len()
        );
        if !tally.not_run.is_empty() {
            note += &format!(", not run: {}", tally.not_run.len());
        }
        self.line(step.name, true, ran.time, &note);
        for test in &again {
            println!("        failed, then passed alone: {}", test.words());
        }
        for line in &tally.not_run {
            println!("        {line}");
        }
        self.tally.passed += passed;
    }

    fn tests_ran(&mut self, step: &Step, ran: &Ran) {
        // Miri tries several orders at once, which write into each other's lines: nothing there can
        // be counted. Elsewhere such words are a test's own.
        let orders = match step.tries_orders() {
            true => ran.output.matches("Trying seed").count(),
            false => 0,
        };
        let (tally, ran_some) = match orders {
            0 => (tally(&ran.output), None),
            _ => (Tally::default(), Some(!ran.output.contains("running 0 tests"))),
        };
        let mut notes = vec![match orders {
            0 => format!("{} passed", tally.passed),
            _ => format!("{orders} orders"),
        }];
        if !tally.not_run.is_empty() {
            notes.push(format!("not run: {}", tally.not_run.len()));
        }
        // A filter that no test's name has any more would pass for ever.
        let ran_some = ran_some.unwrap_or(tally.passed > 0);
        self.conclude(
            step,
            ran.good && ran_some && tally.failed == 0,
            ran,
            &notes.join(", "),
        );
        for line in &tally.not_run {
            println!("        {line}");
        }
        for what in step.left_out {
            println!("        left out: {what}");
        }
        self.tally.passed += tally.passed;
        self.tally.failed += tally.failed;
    }

    fn fuzzer_ran(&mut self, step: &Step, ran: &Ran) {
        let note = executions(&ran.output);
        // Without its figures it was not a fuzzer that ran.
        let good = ran.good && note.is_some();
        self.conclude(step, good, ran, &note.unwrap_or_default());
    }

    /// Runs steps that use one processor each, two beside each other.
    fn in_pairs(&mut self, steps: &[Step], judge: fn(&mut Self, &Step, &Ran)) {
        for pair in steps.chunks(2) {
            let ran: Vec<Ran> = std::thread::scope(|scope| {
                let started: Vec<_> = pair.iter().map(|step| scope.spawn(|| run(step))).collect();
                started
                    .into_iter()
                    .map(|step| step.join().expect("a step does not panic"))
                    .collect()
            });
            for (step, ran) in pair.iter().zip(&ran) {
                judge(self, step, ran);
            }
        }
    }

    fn conclude(&mut self, step: &Step, good: bool, ran: &Ran, note: &str) {
        if good {
            self.line(step.name, true, ran.time, note);
            return;
        }
        println!("{}", shortened(step, &ran.output));
        self.line(
            step.name,
            false,
            ran.time,
            &format!("repeat with: {}", repeat(step)),
        );
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

/// The result of a step.
struct Ran {
    /// The step ended by itself, and well.
    good: bool,
    /// All it wrote.
    output: String,
    time: Duration,
}

/// Words before a command that has the processors' idle time only (chrt(1), of util-linux).
const IDLE: &[&str] = &["chrt", "--idle", "0"];

/// Runs a step, to its end or to its limit.
fn run(step: &Step) -> Ran {
    run_behind(step, &[], None)
}

/// The same, with words before the command; drops a sender when the step's tests run, or at its
/// end.
fn run_behind(step: &Step, before: &[&str], built: Option<Sender<()>>) -> Ran {
    let words: Vec<&str> = before.iter().chain(step.words).copied().collect();
    let begin = Instant::now();
    let log = log_path(step);
    let limit = Duration::from_secs(60 * u64::from(step.minutes_max));
    let ended = (|| {
        fs::create_dir_all(log.parent().expect("in a folder"))?;
        let file = File::create(&log)?;
        let mut command = Command::new(words[0]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_a_package(name)) {
            command.env_remove(name);
        }
        let mut child = command
            .args(&words[1..])
            .args(&step.more)
            .envs(step.environment.iter().copied())
            .envs(chosen(step))
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let mut progress = Progress::of(&log, built);
        limit::wait(&mut child, limit, || {
            if step.tells_progress {
                progress.tell();
            }
        })
    })();
    let mut output = fs::read(&log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let good = match ended {
        Ok(Some(status)) => status.success(),
        Ok(None) => {
            output += &format!("\nerror: ended after {} minutes, its limit\n", step.minutes_max);
            false
        }
        Err(error) => {
            output += &format!("error: {}: {error}\n", words[0]);
            false
        }
    };
    Ran {
        good,
        output,
        time: begin.elapsed(),
    }
}

/// Variables that the `cargo` that runs this program has set for it: a build script that asks for
/// one would run again, and all that depends on its crate be built again.
fn is_of_a_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Variables chosen for a step and not in our own environment.
fn chosen(step: &Step) -> impl Iterator<Item = (&'static str, &str)> {
    step.chosen
        .iter()
        .filter(|(name, _)| std::env::var_os(name).is_none())
        .map(|(name, value)| (*name, value.as_str()))
}

/// The command of a step as one would type it.
fn repeat(step: &Step) -> String {
    let mut words: Vec<String> = Vec::new();
    for (name, value) in step.environment {
        words.push(format!("{name}='{value}'"));
    }
    words.extend(chosen(step).map(|(name, value)| format!("{name}='{value}'")));
    words.extend(step.words.iter().map(|word| (*word).to_owned()));
    words.extend(step.more.iter().cloned());
    words.join(" ")
}

/// The part of a failed step's output that names the failure; the rest is in the file that is
/// named.
fn shortened(step: &Step, output: &str) -> String {
    const LINES_MAX: usize = 300;
    let lines: Vec<&str> = output.lines().filter(|line| !is_progress(line)).collect();
    // Of test output, passed tests and their prints are no news.
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

/// Adds up the results of test binaries. A binary that began and gave no result (it crashed), or
/// whose result has no failure and that cargo says has failed, is a failure.
fn tally(output: &str) -> Tally {
    let mut tally = Tally::default();
    // Of the binary that runs: its failures if it gave a result, and whether cargo says that it
    // failed.
    let (mut runs, mut failed, mut is_error) = (false, None, false);
    let crashed = |runs: bool, failed: Option<u64>, is_error: bool| {
        u64::from(runs && (failed.is_none() || is_error && failed == Some(0)))
    };
    for line in output.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("Running ") || trimmed.starts_with("Doc-tests ") {
            tally.failed += crashed(runs, failed, is_error);
            (runs, failed, is_error) = (true, None, false);
        } else if let Some(result) = trimmed.strip_prefix("test result: ") {
            // Doc-tests may give two results.
            let count = number_before(result, " failed");
            failed = Some(failed.unwrap_or(0) + count);
            tally.passed += number_before(result, " passed");
            tally.failed += count;
        } else if line.starts_with(TARGET_FAILED) {
            is_error = true;
        } else if trimmed.starts_with("not run:") && !tally.not_run.iter().any(|seen| seen == trimmed) {
            tally.not_run.push(trimmed.to_owned());
        }
    }
    tally.failed += crashed(runs, failed, is_error);
    tally
}

/// Cargo's words behind a binary that failed, before its target.
const TARGET_FAILED: &str = "error: test failed, to rerun pass `";

/// A fuzzer's work, from the figures at its end.
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
mod tests;
