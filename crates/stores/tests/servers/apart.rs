//! A driver in a process of its own: it does as it does otherwise (in [`crate::conformance`]), and
//! an event that ends it, stops it or makes it say anything is a failure of a call.
//!
//! Not here: that it ends with Flowkeep, and what it has of it (`crates/flowkeep/tests/apart.rs`).

use crate::faults::{PATIENCE, await_failure, await_recovery, goes_on, name, under_load_of, verify};
use crate::hostile_node::{self, Lie};
use crate::proxies::slow_proxy;
use crate::redis::Server;
use flowkeep_stores::apart::{self, Apart, Patience, Program};
use flowkeep_stores::{Driver, Failure, Kind, Report, Store};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Not a test: the process's work. Its last word says that it is one.
#[test]
fn store_driver() {
    if std::env::args().next_back().as_deref() == Some(apart::WORD) {
        apart::serve().unwrap();
    }
}

/// This program, as that process. By `mark` a test finds its own ones.
pub fn program(mark: &str) -> Program {
    let words = [
        "--exact",
        "apart::store_driver",
        "--nocapture",
        "--test-threads=1",
        mark,
    ];
    Program {
        path: "/proc/self/exe".into(),
        words: words.map(str::to_owned).to_vec(),
    }
}

pub fn apart(uri: &str) -> Box<dyn Driver> {
    Box::new(Apart::new(program("any"), uri))
}

/// The processes that are marked so.
pub fn processes(mark: &str) -> Vec<Pid> {
    let ids = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_marked = |id: &i32| {
        let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<_> = words.split(|byte| *byte == 0).collect();
        words.contains(&mark.as_bytes()) && words.contains(&apart::WORD.as_bytes())
    };
    ids.filter(is_marked).filter_map(Pid::from_raw).collect()
}

fn signal(mark: &str, signal: Signal) -> usize {
    let all = processes(mark);
    all.iter()
        .filter(|process| kill_process(**process, signal).is_ok())
        .count()
}

/// By proc(5): the letter behind the name.
fn is_stopped(process: Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
}

#[test]
fn counts_are_exact_while_the_process_is_killed() {
    let Ok(server) = Server::start(&[]).map_err(|why| println!("not run: {why}")) else {
        return;
    };
    // Each answer is late, so there is always a call, and often it was done.
    let through = format!("redis://127.0.0.1:{}", slow_proxy(server.port, 5..40));
    let driver = Apart::new(program("killed"), &through);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reports);
    let report = move |report| told.lock().unwrap().push(report);
    let (store, agency) = Store::start(Box::new(driver), PATIENCE, report).unwrap();
    let mut killed = 0;
    let (seen, health, reports) = under_load_of((store, agency, reports), |store, packets| {
        for round in 0..7 {
            goes_on(packets, Duration::from_millis(50 + 13 * round));
            killed += signal("killed", Signal::KILL);
            await_failure(store);
            await_recovery(store);
        }
    });
    verify(&server.uri(), &seen);
    assert_eq!(killed, 7);
    assert!(health.failures >= 7 && !health.failing, "{health:?}");
    let last = health.last_failure.unwrap();
    assert_eq!(last.problem, "the process of its driver: it ended with signal 9");
    // Nothing was lost that was acknowledged, and no other writer was seen.
    let is_bad = |report: &Report| matches!(report, Report::Forgotten(_) | Report::Fenced(_));
    assert!(!reports.iter().any(is_bad), "{reports:?}");
    assert!(seen.iter().all(|seen| seen.rewritten == 0));
    assert_eq!(processes("killed"), []);
}

#[test]
fn a_process_that_is_stopped_is_given_up_and_another_goes_on() {
    let Ok(server) = Server::start(&[]).map_err(|why| println!("not run: {why}")) else {
        return;
    };
    // The driver waits for its store for 2 s.
    let patience = Patience {
        silence: apart::BEAT * 17 / 10,
        ..Patience::default()
    };
    let mut driver = Apart::new(program("stopped"), &server.uri()).within(patience);
    let epoch = driver.claim(&name(0), 7).unwrap();
    // A store that is slow is none that is silent: beats say so.
    server.signal(Signal::STOP);
    let slow = driver.version(&name(0)).unwrap_err();
    assert!(!slow.problem.contains("process"), "{slow}");
    server.signal(Signal::CONT);
    assert_eq!(driver.version(&name(0)).unwrap().unwrap().epoch, epoch);

    assert_eq!(signal("stopped", Signal::STOP), 1);
    // The process stands still a moment after it was told to.
    while processes("stopped").iter().any(|process| !is_stopped(*process)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    let silent = driver.version(&name(0)).unwrap_err();
    assert!(began.elapsed() >= patience.silence && began.elapsed() < 2 * patience.silence);
    assert_eq!(silent.problem, "the process of its driver: it does not answer");
    std::thread::sleep(apart::PAUSE);
    assert_eq!(driver.version(&name(0)).unwrap().unwrap().epoch, epoch);
    drop(driver);
    assert_eq!(processes("stopped"), []);
}

/// A call's failure at a process that is this script.
fn said(script: &str, silence: Duration, call: impl FnOnce(&mut Apart) -> Result<(), Failure>) -> String {
    let program = Program {
        path: "/bin/sh".into(),
        words: vec!["-c".to_owned(), script.to_owned()],
    };
    let call_most = Duration::from_secs(2);
    let mut driver = Apart::new(program, "memory:").within(Patience {
        silence,
        call: call_most,
    });
    let began = Instant::now();
    let failure = call(&mut driver).unwrap_err();
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{script}: {:?}",
        began.elapsed()
    );
    failure
        .problem
        .trim_start_matches("the process of its driver: ")
        .to_owned()
}

#[test]
fn what_is_no_answer_ends_the_process_and_nothing_else() {
    const WRONG: &str = "its answer is none to what was asked";
    const SILENT: &str = "it does not answer";
    let long = Duration::from_secs(60);
    let version = |driver: &mut Apart| driver.version(&name(0)).map(drop);
    // The script answers that the store is opened, and at once the call.
    let opened = |bytes: &str| format!("printf '\\002\\000\\000\\000\\001\\001{bytes}' >&0; exec sleep 9");
    let plain = |bytes: &str| format!("printf '{bytes}' >&0; exec sleep 9");
    for (script, expected) in [
        // Of 4 GB; an answer to something else; none at all; two in one; no bytes.
        (plain("\\377\\377\\377\\377"), WRONG),
        (plain("\\001\\000\\000\\000\\002"), WRONG),
        (plain("\\001\\000\\000\\000\\100"), WRONG),
        (opened("\\002\\000\\000\\000\\002\\002"), WRONG),
        (opened("\\000\\000\\000\\000"), WRONG),
        // To another call: an epoch, names.
        (opened("\\002\\000\\000\\000\\003\\001"), WRONG),
        (opened("\\002\\000\\000\\000\\007\\000"), WRONG),
        (
            "echo 'it is broken' >&2; exit 3".to_owned(),
            "it ended with code 3: it is broken",
        ),
        ("kill -USR2 $$".to_owned(), "it ended with signal 12"),
        // Without standard error it is ended.
        ("exec 2>&-; exec sleep 9".to_owned(), "it ended with signal 9"),
        // A process that works, and works; one byte by byte; one without a word.
        (opened(""), SILENT),
        (
            "while :; do printf '\\001\\000\\000\\000\\000' >&0; sleep 0.1; done".to_owned(),
            SILENT,
        ),
        (
            "printf '\\377\\000\\000\\000' >&0; while :; do printf a >&0; sleep 0.1; done".to_owned(),
            SILENT,
        ),
    ] {
        assert_eq!(said(&script, long, version), expected, "{script}");
    }
    let silence = Duration::from_millis(300);
    let trickle = "printf '\\377\\000\\000\\000' >&0; while :; do printf a >&0; sleep 0.1; done";
    assert_eq!(said(trickle, silence, version), SILENT);
    // Names that are none; more outcomes than batches; fewer, and no failure.
    let partitions = |driver: &mut Apart| driver.partitions("f").map(drop);
    assert_eq!(
        said(&opened("\\004\\000\\000\\000\\007\\001\\001x"), long, partitions),
        WRONG
    );
    let none = |driver: &mut Apart| driver.write(&[], &mut Vec::new());
    assert_eq!(
        said(&opened("\\004\\000\\000\\000\\005\\001\\000\\000"), long, none),
        WRONG
    );
    let load = |driver: &mut Apart| {
        let variable = name(0).variable(Kind::Map, "m").unwrap();
        driver.load(&variable, &mut |_, _| panic!("no element is whole"))
    };
    assert_eq!(
        said(&opened("\\004\\000\\000\\000\\006\\001\\011x"), long, load),
        WRONG
    );
}

#[test]
fn a_node_that_claims_too_much_ends_its_drivers_process_alone() {
    for (lie, end) in [
        (Lie::Columns, "signal 6: memory allocation of "),
        (Lie::Nested(100_000), "signal 6: thread "),
    ] {
        let uri = format!("cassandra://me:secret@127.0.0.1:{}/s", hostile_node::start(lie));
        let mut driver = Apart::new(program("claims"), &uri);
        let failure = driver.claim(&name(0), 1).unwrap_err();
        println!("{failure}");
        assert!(failure.problem.contains(end), "{failure}");
        assert!(failure.remedy.contains("your own") && !failure.to_string().contains("secret"));
        // And again: it was started again.
        std::thread::sleep(apart::PAUSE);
        let again = driver.look().unwrap_err();
        assert!(again.problem.contains(end), "{again}");
    }
}
