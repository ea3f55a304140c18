//! Steps that fail, hang and say odd things.

use super::commands::TESTS;
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
    let all = fuzzers(&SHORT);
    assert!(
        all.iter()
            .all(|step| repeat(step).ends_with("-max_total_time=20"))
    );
}

#[test]
fn a_command_that_fails_fails_the_run() {
    let step = |words: &'static [&'static str]| Step {
        name: words[0],
        words,
        more: Vec::new(),
        environment: &[],
        chosen: Vec::new(),
        minutes_max: 1,
        tells_progress: false,
        left_out: &[],
    };
    let mut outcome = Outcome::default();
    outcome.command(&step(&["false"]));
    outcome.command(&step(&["no-such-program-anywhere"]));
    outcome.in_pairs(
        &[
            step(&["echo", "nothing of a fuzzer"]),
            step(&["echo"]),
            step(&["true"]),
        ],
        Outcome::fuzzer_ran,
    );
    assert_eq!(
        outcome.failed,
        ["false", "no-such-program-anywhere", "echo", "echo", "true"]
    );
    outcome.command(&step(&["true"]));
    assert_eq!(outcome.failed.len(), 5);
}

#[test]
fn a_command_that_takes_too_long_fails_the_run() {
    let mut step = many_cases(&SHORT);
    (step.words, step.minutes_max) = (&["sleep", "1000"], 0);
    let ran = run(&step);
    assert!(
        !ran.good && ran.output.contains("ended after 0 minutes"),
        "{}",
        ran.output
    );
    assert!(ran.time < Duration::from_secs(900));
}

#[test]
fn every_step_has_a_limit_and_a_log_of_its_own() {
    for scale in [NIGHT, SHORT] {
        let mut all = vec![FORMAT, CLIPPY, DOCS, FUZZ_LOCK, CRATES, FUZZ_BUILD, SEEDS];
        all.extend([TESTS_BUILT, tests(), calculations()]);
        all.extend(drivers());
        all.extend([many_cases(&scale), soak(&scale)]);
        all.extend(miri(&scale));
        all.extend(fuzzers(&scale));
        assert!(all.iter().all(|step| step.minutes_max > 0));
        let logs: std::collections::BTreeSet<PathBuf> = all.iter().map(log_path).collect();
        assert_eq!(logs.len(), all.len());
    }
}

/// A test that one part skips the other runs, by the same words.
#[test]
fn each_test_is_in_one_of_two_parts() {
    let (most, others) = (tests(), calculations());
    let skipped: Vec<&String> = most.more.iter().skip(1).step_by(2).collect();
    assert!(most.more.iter().step_by(2).all(|word| word == "--skip"));
    assert_eq!(skipped, others.more.iter().collect::<Vec<_>>());
    assert_eq!(most.words, others.words);
}

#[test]
fn what_has_idle_time_runs_beside_the_tests() {
    let step = |name, words: &'static [&'static str]| Step {
        name,
        words,
        minutes_max: 1,
        tells_progress: false,
        ..TESTS
    };
    const RESULT: &[&str] = &["sh", "-c", "echo 'test result: ok. 2 passed; 0 failed'"];
    const WAITS: &str = "test ! -e \"$0\" && echo '     Running a (target/debug/deps/a-1)'; for i in $(seq 100); do \
                 test -e \"$0\" && break; sleep 0.1; done; rm \"$0\" && echo 'test result: ok. 3 passed; 0 failed'";
    let sign = std::env::temp_dir().join(format!("xtask-beside-{}", std::process::id()));
    let sign = sign.to_str().unwrap().to_owned();
    let mut outcome = Outcome::default();
    let mut beside = step(
        "beside a",
        &["sh", "-c", "chrt -p $$ | grep -q IDLE && touch \"$0\""],
    );
    beside.more = vec![sign.clone()];
    let mut tests = step("beside b", &["sh", "-c", WAITS]);
    (tests.more, tests.tells_progress) = (vec![sign], true);
    outcome.tests_beside(&tests, &[beside], &step("beside c", RESULT));
    assert_eq!(outcome.failed, Vec::<String>::new());
    assert_eq!((outcome.tally.passed, outcome.tally.failed), (5, 0));
}

/// Under `cargo test` this program has them.
#[test]
fn a_step_has_no_variables_of_this_package() {
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let step = Step {
        name: "variables",
        words: &["sh", "-c", "! env | grep -E '^CARGO_(PKG|MANIFEST)_'"],
        minutes_max: 1,
        tells_progress: false,
        ..TESTS
    };
    let ran = run(&step);
    assert!(ran.good, "{}", ran.output);
}

#[test]
fn a_run_of_no_tests_is_a_failure() {
    let mut outcome = Outcome::default();
    let ran = |good, output: &str| Ran {
        good,
        output: output.to_owned(),
        time: Duration::ZERO,
    };
    let none = "running 0 tests\ntest result: ok. 0 passed; 0 failed; 161 filtered out\n";
    outcome.tests_ran(&TESTS, &ran(true, none));
    // As two orders of threads write when they end at once. (Their numbers count for nothing where
    // a count of these tests shows them.)
    let garbled = "Trying seed: 0\nTrying seed: 1\nrunning 4 tests\nrunning 4 tests\nok\ntest result: ok\n\
                   test result: . 0 passed; 0 failed; outok; finished in 131.54s. 0 passed; 0 failed;";
    let steps = miri(&SHORT);
    let rings = steps.iter().find(|step| step.tries_orders()).unwrap();
    outcome.tests_ran(rings, &ran(true, garbled));
    assert_eq!(outcome.failed, ["tests"]);
    outcome.tests_ran(rings, &ran(false, garbled));
    let none = format!("Trying seed: 0\nTrying seed: 1\n{none}");
    outcome.tests_ran(rings, &ran(true, &none));
    assert_eq!(outcome.failed, ["tests", rings.name, rings.name]);
    // This very test's words, where others are counted beside them.
    let quoted = "Trying seed: 0\nRunning a\ntest result: ok. 7 passed; 0 failed\nrunning 0 tests\n";
    outcome.tests_ran(&TESTS, &ran(true, quoted));
    assert_eq!((outcome.failed.len(), outcome.tally.passed), (3, 7));
}

/// Each feature of the program that has a driver has a step with that one alone.
#[test]
fn each_driver_is_built_alone() {
    let manifest = fs::read_to_string(root().join("crates/flowkeep/Cargo.toml")).expect("a manifest");
    let features = manifest.lines().filter(|line| line.contains("= [\"stores/"));
    let mut named: Vec<&str> = features.filter_map(|line| line.split(' ').next()).collect();
    assert!(!named.is_empty());
    named.push("");
    named.sort_unstable();
    let steps = drivers();
    let mut built: Vec<&str> = steps.iter().map(|step| step.more[1].as_str()).collect();
    built.sort_unstable();
    assert_eq!(built, named);
}
