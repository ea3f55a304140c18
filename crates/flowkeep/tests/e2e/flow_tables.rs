//! The flow monitor's records, from a whole cluster, against the flow tables of nDPI, Arkime and
//! Zeek.

use crate::cluster::{Ran, Shape, capture_port, data, every_capture, files, name, run_to_end};
use crate::manifest;
use crate::tables::{arkime, ndpi, records, zeek};
use std::path::Path;

fn watch(capture: &Path, shape: Shape, settings: &str) -> Ran {
    let toml = format!(
        "{}{}[[chain]]\nname = \"watched\"\nfunctions = [\"flow_monitor\"]\n{settings}",
        shape.toml(4096),
        capture_port(capture)
    );
    run_to_end(&toml, &format!("{} {shape:?}", name(capture)))
}

/// The records of a run, each of which makes sense by itself; packets in no record were dropped for
/// one of these reasons.
fn recorded(ran: &Ran, what: &str, reasons: &[&str]) -> Vec<records::Record> {
    let found = records::read(&ran.lines);
    for record in &found {
        assert!(record.start <= record.end, "{what}: {record:?}");
        let shorter = (0..2).all(|side| record.ip_bytes[side] <= record.bytes[side]);
        assert!(shorter, "{what}: {record:?}");
        assert!(
            record.history.len() <= 20 && !record.state.is_empty(),
            "{what}: {record:?}"
        );
        assert_eq!(
            record.icmp_errors, 0,
            "{what}: a packet of its own here: {record:?}"
        );
    }
    let counted: u64 = found.iter().map(|r| r.packets[0] + r.packets[1]).sum();
    assert_eq!(counted, ran.packets.sent, "{what}");
    for (function, reason) in ran.dropped().into_keys() {
        assert!(
            function.is_empty() && reasons.contains(&reason),
            "{what}: {reason}"
        );
    }
    found
}

/// A ninth of nDPI's captures, from the one given on, and with `FLOWKEEP_EVERY_CAPTURE` all of
/// them: a cluster takes longer to start than most of them to replay.
fn ndpi_with(shape: Shape, first: usize) {
    let Some(data) = data() else { return };
    let folder = data.join("flow/ndpi");
    let expected = files(&folder.join("expected"), "tsv");
    assert_eq!(
        expected.len(),
        manifest::count(&data, "flow/ndpi/expected", "tsv")
    );
    let (mut captures, mut packets, mut flows) = (0, 0, 0);
    let all = every_capture();
    let (first, every) = if all { (0, 1) } else { (first, 9) };
    for expected in expected.iter().skip(first).step_by(every) {
        let capture = folder.join("pcap").join(expected.file_stem().expect("a name"));
        let text = std::fs::read_to_string(expected).expect("readable");
        let what = format!("{} {shape:?}", name(&capture));
        let ran = watch(&capture, shape, "");
        let found = recorded(&ran, &what, &["not_ip"]);
        let differences = ndpi::compare(&found, &text);
        assert!(differences.is_empty(), "{what}: {differences:#?}");
        captures += 1;
        packets += ran.packets.received;
        flows += found.len();
    }
    println!("{shape:?}: {captures} captures equal; {packets} packets, {flows} records");
}

#[test]
fn ndpis_flows_on_one_runtime() {
    ndpi_with(Shape::of(1), 0);
}

#[test]
fn ndpis_flows_on_two_runtimes() {
    ndpi_with(Shape::of(2), 1);
}

#[test]
fn ndpis_flows_on_four_runtimes() {
    ndpi_with(Shape::of(4), 2);
}

#[test]
fn ndpis_flows_on_four_runtimes_of_one_thread() {
    ndpi_with(Shape::of(4).on_one_thread(), 0);
}

#[test]
fn ndpis_flows_on_two_switches() {
    ndpi_with(Shape::of(3).with_switches(2), 1);
}

#[test]
fn arkimes_sessions_on_two_runtimes() {
    let Some(data) = data() else { return };
    let expected = files(&data.join("flow/arkime"), "test");
    assert_eq!(expected.len(), manifest::count(&data, "flow/arkime", "test"));
    for expected in &expected {
        let name = expected.file_stem().expect("a name").to_string_lossy();
        let text = std::fs::read_to_string(expected).expect("readable");
        let ran = watch(&expected.with_extension("pcap"), Shape::of(2), "");
        let verdict = arkime::judge(&name, recorded(&ran, &name, &["not_ip"]), &text);
        assert!(verdict.is_ok(), "{name}: {verdict:?}");
    }
    println!(
        "{} captures: equal, but for {} excepted",
        expected.len(),
        arkime::EXCEPT.len()
    );
}

#[test]
fn zeeks_connections_on_two_runtimes() {
    let Some(data) = data() else { return };
    let folder = data.join("flow/zeek-conn");
    // Zeek's own `tcp_inactivity_timeout` and `tcp_close_delay`.
    let settings = "[function.flow_monitor]\nidle_timeout = \"300s\"\nclosed_timeout = \"5s\"\n";
    let (mut equal, mut connections, mut split) = (0, 0, Vec::new());
    for expected in files(&folder.join("conn-baseline"), "log") {
        let name = name(&expected).replace(".conn.log", "");
        let text = std::fs::read_to_string(&expected).expect("readable");
        let ran = watch(&folder.join("traces").join(&name), Shape::of(2), settings);
        let found = recorded(&ran, &name, &["not_ip"]);
        let comparison = zeek::compare(&found, &text);
        assert!(
            comparison.different.is_empty(),
            "{name}: {:#?}",
            comparison.different
        );
        equal += comparison.equal;
        connections += comparison.expected;
        split.extend(
            comparison
                .split
                .into_iter()
                .map(|opener| format!("{name} {opener}")),
        );
    }
    println!("{equal} connections equal; one record for several connections: {split:?}");
    // A SYN after a refusal, within `closed_timeout`: one record, its sums those of Zeek's
    // connections together.
    let reopened = [
        "pop3_pop3.pcap 192.168.0.4:26242",
        "pop3_pop3.pcap 192.168.0.4:26245",
    ];
    assert_eq!(equal, connections - reopened.len());
    assert_eq!(split, reopened.map(String::from).to_vec());
}
