//! The flow monitor's records against Zeek's connections: state, history, packets and IP bytes.

use crate::manifest;
use crate::tables::{records, zeek};
use crate::{capture, data, files, replay};
use flowkeep_functions::flow_monitor::{Config, Timeout};

/// Where Zeek begins a new connection within `closed_timeout`, because a SYN comes after a refusal.
/// A record stays one: the sums are compared, and of the connections their number is one here.
const REOPENED: &[(&str, &str)] = &[
    ("pop3_pop3.pcap", "192.168.0.4:26242"),
    ("pop3_pop3.pcap", "192.168.0.4:26245"),
];

#[test]
fn records_equal_the_connections_of_every_trace() {
    let Some(data) = data() else { return };
    let folder = data.join("flow/zeek-conn");
    // Zeek's own timeouts: `tcp_inactivity_timeout` and `tcp_close_delay`.
    let config = Config {
        idle_timeout: Timeout::seconds(300),
        closed_timeout: Timeout::seconds(5),
    };
    let mut different = Vec::new();
    let mut reopened = Vec::new();
    let (mut traces, mut equal, mut connections) = (0, 0, 0);
    for expected in files(&folder.join("conn-baseline"), "log") {
        let name = expected
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .replace(".conn.log", "");
        let frames = capture::frames(&folder.join("traces").join(&name)).expect("a capture");
        let outcome = replay::replay(&frames, config);
        let records = records::read(&outcome.lines);
        let text = std::fs::read_to_string(&expected).expect("readable");
        let comparison = zeek::compare(&records, &text);
        println!(
            "{name}: {} frames, {} records, no flow's {:?}; {} equal, {} reopened, {} different",
            frames.len(),
            records.len(),
            outcome.refused,
            comparison.equal,
            comparison.split.len(),
            comparison.different.len(),
        );
        traces += 1;
        equal += comparison.equal;
        connections += comparison.expected;
        different.extend(
            comparison
                .different
                .into_iter()
                .map(|line| format!("{name}: {line}")),
        );
        reopened.extend(comparison.split.into_iter().map(|opener| (name.clone(), opener)));
    }
    println!(
        "{traces} traces: {equal} connections equal, {} reopened, {} different",
        reopened.len(),
        different.len()
    );
    assert!(different.is_empty(), "different: {different:#?}");
    let expected: Vec<_> = REOPENED
        .iter()
        .map(|(a, b)| (a.to_string(), b.to_string()))
        .collect();
    assert_eq!(reopened, expected);
    assert_eq!(
        traces,
        manifest::count(&data, "flow/zeek-conn/conn-baseline", "log")
    );
    assert_eq!(equal, connections - REOPENED.len());
}
