//! Tests that failed and are run once more, alone.
//!
//! # Theory of operation
//!
//! Tests of some packages start processes and hold them to times: leases of 2 s, gaps of 100 ms. On
//! a machine with two processors one fails now and then for the machine's sake, and says nothing of
//! the change. Such a test is run once more, alone. Its output when it failed is shown all the
//! same, and the run's end names it: a test that is named often has a fault.
//!
//! Not run again: tests of all other packages, which a busy machine cannot fail; a program that
//! crashed or hung; all of them where more than [`MOST`] failed.
//!
//! Why: `docs/decisions/0032-a-live-test-may-fail-once.md`.

use super::{Step, TARGET_FAILED, run, tally};

/// So many may be run again.
const MOST: usize = 3;

/// Packages whose tests depend on the machine's time.
const LIVE: [&str; 5] = [
    "flowkeep",
    "flowkeep-adapters",
    "flowkeep-coordinator",
    "flowkeep-lab",
    "flowkeep-stores",
];

/// A test that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// As cargo names it: `-p PACKAGE --test NAME`.
    target: String,
    test: String,
}

impl Failed {
    /// As a person would type it.
    pub fn words(&self) -> String {
        format!("{} {}", self.target, self.test)
    }

    fn is_live(&self) -> bool {
        let package = self.target.split_whitespace().nth(1);
        package.is_some_and(|package| LIVE.contains(&package)) && !self.target.ends_with("--doc")
    }

    /// Whether it passes alone, in the program that is built already: a package by itself would
    /// have other features of its dependencies, and be built from nothing.
    fn passes(&self) -> bool {
        let target = self.target.split_whitespace().skip(2);
        let mut more: Vec<String> = target.map(str::to_owned).collect();
        more.extend(["--", "--exact", &self.test, "--show-output"].map(str::to_owned));
        let ran = run(&Step {
            name: "tests again",
            words: &["cargo", "test", "--locked", "--workspace"],
            more,
            environment: &[],
            chosen: Vec::new(),
            minutes_max: 20,
            tells_progress: false,
            left_out: &[],
        });
        ran.good && tally(&ran.output).passed >= 1
    }
}

/// The tests that failed, if all of them pass when each is run once more.
pub(super) fn pass(output: &str) -> Option<Vec<Failed>> {
    let failed = to_run(output)?;
    failed.iter().all(Failed::passes).then_some(failed)
}

/// The tests to be run again, if that is allowed of all that failed.
fn to_run(output: &str) -> Option<Vec<Failed>> {
    let failed = failed(output);
    let all_known = failed.len() as u64 == tally(output).failed;
    let may_be = all_known && (1..=MOST).contains(&failed.len()) && failed.iter().all(Failed::is_live);
    may_be.then_some(failed)
}

/// Which tests failed: each binary lists them at its end, and cargo says behind it how that is run.
fn failed(output: &str) -> Vec<Failed> {
    let (mut all, mut names) = (Vec::new(), Vec::new());
    let mut is_list = false;
    for line in output.lines() {
        if line.trim() == "failures:" {
            (is_list, names) = (true, Vec::new());
        } else if line.starts_with("test result:") || line.trim_start().starts_with("Running ") {
            is_list = false;
        } else if let Some(target) = line.strip_prefix(TARGET_FAILED) {
            let target = target.trim_end_matches('`');
            all.extend(names.drain(..).map(|test| Failed {
                target: target.to_owned(),
                test,
            }));
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| is_list) {
            let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
            names.extend(is_name.then(|| name.to_owned()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As cargo writes it, of tests that failed.
    fn written(target: &str, tests: &[&str]) -> String {
        let said = |test: &&str| format!("---- {test} stdout ----\nleft: 1\n    indented words\n\n");
        let said: String = tests.iter().map(said).collect();
        let names: String = tests.iter().map(|test| format!("    {test}\n")).collect();
        format!(
            "     Running tests/a.rs (target/debug/deps/a-12)\ntest x ... ok\n\nsuccesses:\n\nsuccesses:\n    x\n\n\
             failures:\n\n{said}\nfailures:\n{names}\n\
             test result: FAILED. 1 passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in 1 s\n\n\
             error: test failed, to rerun pass `{target}`\n",
            tests.len()
        )
    }

    const MEMBERS: &str = "-p flowkeep --test members";

    #[test]
    fn what_failed_is_found_with_its_target() {
        let other = written("-p flowkeep-coordinator --lib", &["guard::b"]);
        let failed = to_run(&(written(MEMBERS, &["watched::a", "c"]) + &other)).unwrap();
        let words: Vec<String> = failed.iter().map(Failed::words).collect();
        assert_eq!(
            words,
            [
                "-p flowkeep --test members watched::a",
                "-p flowkeep --test members c",
                "-p flowkeep-coordinator --lib guard::b"
            ]
        );
    }

    #[test]
    fn many_and_those_that_no_machine_fails_are_not_run_again() {
        assert_eq!(to_run(""), None);
        assert_eq!(to_run(&written(MEMBERS, &["a", "b", "c", "d"])), None);
        let other = written("-p flowkeep-runtime --lib", &["b"]);
        assert_eq!(to_run(&other), None);
        assert_eq!(to_run(&(written(MEMBERS, &["a"]) + &other)), None);
        assert_eq!(to_run(&written("-p flowkeep --doc", &["a"])), None);
    }

    #[test]
    fn a_program_that_crashed_is_not_run_again() {
        let crashed = "     Running tests/b.rs (target/debug/deps/b-1)\ntest y ... \n\
                       error: test failed, to rerun pass `-p flowkeep --test operator`\n";
        assert_eq!(to_run(crashed), None);
        assert_eq!(to_run(&(written(MEMBERS, &["a"]) + crashed)), None);
        // Nor where doc-tests have a result more than there are programs, or it crashed at its end.
        let two =
            "   Doc-tests a\ntest result: ok. 1 passed; 0 failed\ntest result: ok. 1 passed; 0 failed\n";
        assert_eq!(to_run(&(written(MEMBERS, &["a"]) + crashed + two)), None);
        let at_its_end = crashed.replace("test y ... ", "test result: ok. 2 passed; 0 failed");
        assert_eq!(to_run(&(written(MEMBERS, &["a"]) + &at_its_end + two)), None);
    }
}
