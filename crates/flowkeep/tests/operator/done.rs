//! The event log of a running cluster has actions by hand: moves with their receipts, and runtimes
//! that come and go.

use crate::running::{PATIENCE, Running, text};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const PROFILE: &str = "flows = 200\nrate = { total = 4000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       source_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

fn config(profile: &str, events: &str) -> String {
    format!(
        "clock = \"machine\"\nruntimes = 2\n[log]\nevents = \"{events}\"\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\"]\nreplication = \"commit\"\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n"
    )
}

/// The log's events of these names, in order.
fn told(events: &str, names: &[&str]) -> Vec<Value> {
    let text = fs::read_to_string(events).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| names.iter().any(|name| line["event"] == *name))
        .collect()
}

#[track_caller]
fn until(events: &str, name: &str, count: usize) -> Value {
    let began = Instant::now();
    loop {
        if let Some(line) = told(events, &[name]).get(count - 1) {
            return line.clone();
        }
        assert!(began.elapsed() < PATIENCE, "{count} `{name}` do not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_done_by_hand_is_in_the_event_log() {
    let events = std::env::temp_dir().join(format!("flowkeep-done-{}.jsonl", std::process::id()));
    let events = events.display().to_string();
    let running = Running::start("done", PROFILE, |profile| config(profile, &events));
    let ask = |words: &[&str]| -> Value {
        let said = running.ask(&[words, &["--json"]].concat());
        assert!(said.status.success(), "{words:?}: {}", text(&said.stderr));
        serde_json::from_slice(&said.stdout).unwrap()
    };
    let began = Instant::now();
    while ask(&["status"])["runtimes"][0]["flows"].as_u64() < Some(50) {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    let receipt = ask(&["flow", "migrate", "--all", "--from", "0", "--to", "1"]);
    let moved = until(&events, "flows_moved", 1);
    assert!(moved["flows_moved"].as_u64() >= Some(50), "{moved}");
    for field in [
        "flows_asked",
        "flows_moved",
        "flows_refused",
        "flows_failed",
        "groups_canceled",
        "packets_buffered",
        "packets_handed_on",
        "packets_dropped",
        "pause_longest_ns",
        "bytes",
    ] {
        assert_eq!(moved[field], receipt[field], "{field}: {moved} {receipt:#}");
    }
    assert_eq!((&moved["from"], &moved["to"]), (&0.into(), &"1".into()));
    assert!(moved["time"].as_str().unwrap().starts_with("20"), "{moved}");

    ask(&["runtime", "drain", "1"]);
    // The order of the drain has a line of its own.
    let emptied = until(&events, "flows_moved", 2);
    assert_eq!((&emptied["from"], &emptied["to"]), (&1.into(), &"".into()));
    ask(&["runtime", "resume", "1"]);
    ask(&["runtime", "remove", "1"]);
    ask(&["runtime", "add", "1"]);
    let deleted = ask(&["flow", "delete", "--all", "--from", "0"]);
    let said = until(&events, "flows_deleted", 1);
    assert!(deleted["flows_ended"].as_u64() > Some(0), "{deleted}");
    assert_eq!(
        (&said["from"], &said["flows_ended"]),
        (&0.into(), &deleted["flows_ended"])
    );
    let killed = ask(&["runtime", "kill", "1", "--unprotected"]);
    // Refused actions are not told.
    assert!(!running.ask(&["runtime", "kill", "7"]).status.success());
    assert!(!running.ask(&["runtime", "add", "0"]).status.success());
    until(&events, "runtime_killed", 1);
    let names = [
        "runtime_drained",
        "runtime_resumed",
        "runtime_ended",
        "runtime_began",
        "runtime_killed",
    ];
    let lines = told(&events, &names);
    let seen: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    // Removing drains it first.
    assert_eq!(
        seen,
        [
            "runtime_drained",
            "runtime_resumed",
            "runtime_drained",
            "runtime_ended",
            "runtime_began",
            "runtime_killed"
        ]
    );
    assert!(lines.iter().all(|line| line["runtime"] == 1), "{lines:?}");
    for field in ["flows", "protected_flows", "packets"] {
        assert_eq!(lines[5][field], killed[field], "{field}");
    }
    let _ = fs::remove_file(&events);
}
