//! The HTTP parser against Suricata's and Zeek's logs of the same captures: client port, method,
//! URI and status of every request.

use crate::{data, script};
use flowkeep_functions::http_parser::state::URI_MAX;
use flowkeep_functions::http_parser::{Config, HttpParser};
use std::path::{Path, PathBuf};

/// Client port, method, URI, status (0 for none).
type Request = (u64, String, String, u64);

/// The parts of an oracle's log that are not expected of us, by capture and client port, and why.
const EXCEPT: &[(&str, Option<u64>, &str)] = &[
    (
        "ndpi__nats.pcap",
        None,
        "NATS: lines of a name and JSON, which name no version of HTTP",
    ),
    (
        "zeek__http_methods.pcap",
        Some(46572),
        "the method is no token (RFC 9110 5.6.2)",
    ),
    ("zeek__http_methods.pcap", Some(46573), "the method is no token"),
    ("zeek__http_methods.pcap", Some(46574), "the method is no token"),
    ("zeek__http_methods.pcap", Some(46575), "the method is no token"),
    ("zeek__http_methods.pcap", Some(46576), "the method is no token"),
    (
        "zeek__http_no_crlf.pcap",
        None,
        "Suricata lost the last two responses; Zeek has all, below",
    ),
    (
        "http_methods.pcap",
        None,
        "Zeek reads broken request lines its own way; compared with Suricata, above",
    ),
    (
        "http_http-filename.pcap",
        None,
        "Zeek shows URIs decoded; compared with Suricata, above",
    ),
    (
        "http_no-version.pcap",
        None,
        "Zeek has an entry more, without a request; compared with Suricata, above",
    ),
];

fn field<'a>(value: &'a serde_json::Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn cut(uri: &str) -> String {
    String::from_utf8_lossy(&uri.as_bytes()[..uri.len().min(URI_MAX)]).into_owned()
}

fn of_events(text: &str) -> Vec<Request> {
    let mut requests: Vec<Request> = text
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            let http = &event["http"];
            (
                event["src_port"].as_u64().expect("a port"),
                field(http, "http_method").into(),
                cut(field(http, "url")),
                http["status"].as_u64().unwrap_or(0),
            )
        })
        .collect();
    requests.sort();
    requests
}

fn is_excepted(capture: &str, request: &Request) -> bool {
    EXCEPT
        .iter()
        .any(|(name, port, _)| *name == capture && port.is_none_or(|port| port == request.0))
}

fn ours(capture: &Path) -> Vec<Request> {
    of_events(testkit::run::<HttpParser>(Config::default(), script(capture)).events())
}

fn judge(name: &str, expected: Vec<Request>, seen: Vec<Request>, wrong: &mut Vec<String>) -> usize {
    let keep = |requests: Vec<Request>| -> Vec<Request> {
        requests
            .into_iter()
            .filter(|request| !is_excepted(name, request))
            .collect()
    };
    let (all, expected, seen) = (expected.len(), keep(expected), keep(seen));
    let missing: Vec<_> = expected
        .iter()
        .filter(|request| !seen.contains(request))
        .collect();
    let added: Vec<_> = seen
        .iter()
        .filter(|request| !expected.contains(request))
        .collect();
    let same = expected == seen;
    println!(
        "{}: {name}: {} of {all} requests compared",
        if same { "same" } else { "DIFFERENT" },
        expected.len()
    );
    if !same {
        wrong.push(format!("{name}: missing {missing:?}, added {added:?}"));
    }
    expected.len()
}

#[test]
fn requests_equal_suricatas() {
    let Some(logs) = data("http/suricata-eve") else {
        return;
    };
    let root = logs.join("../..");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&logs)
        .expect("the folder is part of the data")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let (mut compared, mut wrong) = (0, Vec::new());
    for file in &files {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let (set, capture) = name.split_once("__").expect("set and capture");
        let places = match set {
            "ndpi" => vec![root.join("flow/ndpi/pcap").join(capture)],
            _ => vec![
                root.join("http/zeek/traces").join(capture),
                root.join("flow/zeek-conn/traces").join(capture),
                root.join("flow/zeek-conn/traces").join(capture.replace('_', "/")),
                root.join("flow/zeek-conn/traces")
                    .join(capture.replacen('_', "/", 1)),
            ],
        };
        let Some(place) = places.iter().find(|place| place.is_file()) else {
            panic!("{name}: the capture is at none of {places:?}");
        };
        let text = std::fs::read_to_string(file).expect("the log reads");
        compared += judge(&name, of_events(&text), ours(place), &mut wrong);
    }
    println!("{} captures, {compared} requests compared", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 100, "hardly anything was compared");
}

/// Zeek's `http.log`: columns are tab-separated, `-` stands for nothing.
fn of_zeek(text: &str) -> Vec<Request> {
    let mut requests: Vec<Request> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let text = |at: usize| if columns[at] == "-" { "" } else { columns[at] };
            let port = columns[3].parse().expect("a port");
            (port, text(7).into(), cut(text(9)), text(16).parse().unwrap_or(0))
        })
        .collect();
    requests.sort();
    requests
}

#[test]
fn requests_equal_zeeks() {
    let Some(root) = data("http/zeek") else { return };
    let mut logs: Vec<PathBuf> = std::fs::read_dir(root.join("http-baseline"))
        .expect("the folder is part of the data")
        .map(|entry| entry.expect("readable").path())
        .collect();
    logs.sort();
    let (mut compared, mut wrong) = (0, Vec::new());
    for log in &logs {
        let name = log
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .replace(".http.log", "");
        let text = std::fs::read_to_string(log).expect("the log reads");
        compared += judge(
            &name,
            of_zeek(&text),
            ours(&root.join("traces").join(&name)),
            &mut wrong,
        );
    }
    println!("{} captures, {compared} requests compared", logs.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 15, "hardly anything was compared");
}
