//! How far a run of tests is, told while it runs: a run that is ended from outside has said where
//! its time went.
//!
//! The log is read as it grows. Told are the build's end, each program of tests that took
//! [`LONG`] or failed, and each test that failed, at once.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Programs of tests that take less are not told.
const LONG: Duration = Duration::from_secs(10);

/// The log is looked at so often.
const EVERY: Duration = Duration::from_secs(1);

/// The part of a log that has been read.
pub(super) struct Progress {
    begun: Instant,
    looked: Instant,
    log: Option<File>,
    at: u64,
    /// The last line's beginning, whose end is not written yet.
    rest: String,
    teller: Teller,
    /// Dropped when the programs of tests run.
    built: Option<Sender<()>>,
}

/// The state by the lines so far.
#[derive(Default)]
struct Teller {
    is_built: bool,
    /// The program that runs, and since when.
    program: String,
    since: Duration,
}

impl Progress {
    pub fn of(log: &Path, built: Option<Sender<()>>) -> Self {
        let now = Instant::now();
        Progress {
            begun: now,
            looked: now,
            log: File::open(log).ok(),
            at: 0,
            rest: String::new(),
            teller: Teller::default(),
            built,
        }
    }

    /// Tells the log's lines since the last call.
    pub fn tell(&mut self) {
        let Some(log) = &mut self.log else { return };
        if self.looked.elapsed() < EVERY {
            return;
        }
        self.looked = Instant::now();
        let mut bytes = Vec::new();
        // A log that cannot be read is shown at the end, or its error is.
        let read = log
            .seek(SeekFrom::Start(self.at))
            .and_then(|_| log.read_to_end(&mut bytes));
        self.at += read.unwrap_or(0) as u64;
        self.rest += &String::from_utf8_lossy(&bytes);
        let now = self.begun.elapsed();
        while let Some((line, rest)) = self.rest.split_once('\n') {
            if let Some(told) = self.teller.line(line, now) {
                println!("        {told}");
            }
            self.rest = rest.to_owned();
        }
        if self.teller.is_built {
            self.built = None;
        }
    }
}

impl Teller {
    /// The words of a line of the log that are told.
    fn line(&mut self, line: &str, now: Duration) -> Option<String> {
        let trimmed = line.trim_start();
        let program = trimmed
            .strip_prefix("Running ")
            .and_then(|rest| rest.split_once("/deps/"))
            .map(|(_, name)| name.split_once('-').map_or(name, |(name, _)| name))
            .or_else(|| trimmed.strip_prefix("Doc-tests "));
        if let Some(program) = program {
            let built = (!self.is_built).then(|| format!("built: {:.0} s", now.as_secs_f64()));
            (self.is_built, self.program, self.since) = (true, program.to_owned(), now);
            return built;
        }
        let took = now.saturating_sub(self.since);
        if let Some(result) = line.strip_prefix("test result: ") {
            let is_told = took >= LONG || !result.starts_with("ok");
            let counts = result.split("; 0 ignored").next().unwrap_or(result);
            return is_told.then(|| format!("{}: {:.0} s, {counts}", self.program, took.as_secs_f64()));
        }
        let test = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(format!("{}: {test} failed", self.program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_long_programs_and_failures_are_told() {
        let seconds = Duration::from_secs;
        let mut teller = Teller::default();
        let mut told = |line, at| teller.line(line, seconds(at));
        assert_eq!(told("   Compiling wire v0.1.0", 3), None);
        let running = "     Running tests/live/main.rs (target/debug/deps/live-12)";
        assert_eq!(told(running, 9).as_deref(), Some("built: 9 s"));
        assert_eq!(told("test floods::a ... ok", 10), None);
        assert_eq!(
            told("test floods::b ... FAILED", 10).as_deref(),
            Some("live: floods::b failed")
        );
        let result = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            told(result, 11).as_deref(),
            Some("live: 2 s, FAILED. 3 passed; 2 failed")
        );
        let result = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(told("   Doc-tests wire", 20), None);
        assert_eq!(told(result, 21), None);
        assert_eq!(told("   Doc-tests nf", 21), None);
        assert_eq!(
            told(result, 40).as_deref(),
            Some("nf: 19 s, ok. 3 passed; 0 failed")
        );
    }
}
