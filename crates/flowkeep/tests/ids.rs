//! The IDS and the HTTP parser as an operator meets them: a file of rules, the refusal of a wrong
//! one, alerts in the log.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is gone afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowkeep-ids-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn chain(rules: &str, more: &str) -> String {
    format!(
        "[[port]]\nname = \"capture\"\ninput = \"pcap:example.pcap\"\n\
         [[chain]]\nname = \"watch\"\nfunctions = [\"ids\", \"http_parser\"]\n\
         [function.ids]\nrules_file = \"{rules}\"\n{more}"
    )
}

/// The one problem of a configuration, as it is shown.
#[track_caller]
fn problem(text: &str) -> String {
    let problems = flowkeep::config::parse("ids.toml", text, &flowkeep::functions()).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems[0].to_string()
}

#[test]
fn a_wrong_rule_is_shown_in_its_file() {
    let directory = Directory::new("wrong");
    let good = "alert ip any any -> any any (sid:1;)\n";
    let rules = directory.file(
        "site.rules",
        &format!("# ours\n{good}alert tcp any any -> any any (pcre:\"/x/\"; sid:2;)\n"),
    );
    let shown = problem(&chain(&rules, ""));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].starts_with(&format!(
            "{rules}:3:1: function.ids.rules_file: the keyword `pcre`"
        )),
        "{shown}"
    );
    assert_eq!(
        lines[2],
        "3 | alert tcp any any -> any any (pcre:\"/x/\"; sid:2;)"
    );
    assert!(lines[4].contains("unsupported = \"skip\""), "{shown}");
    // Left out, where that is said.
    let text = chain(&rules, "unsupported = \"skip\"\n");
    assert!(flowkeep::config::parse("ids.toml", &text, &flowkeep::functions()).is_ok());
}

#[test]
fn a_file_that_is_not_there_is_shown_in_the_configuration() {
    let shown = problem(&chain("no-such.rules", ""));
    assert!(
        shown.starts_with("ids.toml:8:14: function.ids.rules_file: `no-such.rules` cannot be read"),
        "{shown}"
    );
    let directory = Directory::new("folder");
    let shown = problem(&chain(&directory.0.display().to_string(), ""));
    assert!(shown.contains("it is no file"), "{shown}");
    // The setting takes a text; and without rules there is nothing to do.
    let shown = problem(&chain("x", "").replace("\"x\"", "7"));
    assert!(shown.contains("expected the path of a file in quotes"), "{shown}");
    let shown = problem(&chain("x", "").replace("rules_file = \"x\"", ""));
    assert!(shown.contains("there is no rule"), "{shown}");
}

/// On one and on two runtimes: the alerts and records of the capture that `flowkeep new` comes
/// with.
#[test]
fn alerts_and_records_are_lines_of_the_log() {
    let directory = Directory::new("run");
    let rules = directory.file(
        "site.rules",
        "alert tcp any any -> any 80 (msg:\"asked\"; flow:to_server,established; content:\"GET /\"; depth:5; sid:1; rev:2;)\n\
         drop icmp any any -> any any (msg:\"ping\"; itype:8; classtype:misc-activity; sid:2;)\n",
    );
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/new/example.pcap");
    for runtimes in [1, 2] {
        // A log is appended to.
        let events = directory.0.join(format!("events-{runtimes}.jsonl"));
        let text = format!(
            "runtimes = {runtimes}\nflows_max = 1000\n{}[log]\nevents = \"{}\"\n",
            chain(&rules, "").replace("example.pcap", &capture.display().to_string()),
            events.display()
        );
        let output = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
            .args(["run", &directory.file("ids.toml", &text), "--json", "--socket"])
            .arg(directory.0.join("s.sock"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let lines: Vec<Value> = fs::read_to_string(&events)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of =
            |kind: &str| -> Vec<&Value> { lines.iter().filter(|line| line["event_type"] == kind).collect() };
        let mut alerts: Vec<_> = of("alert")
            .into_iter()
            .map(|event| {
                (
                    event["alert"]["signature_id"].as_u64().unwrap(),
                    event["alert"]["action"].as_str().unwrap(),
                )
            })
            .collect();
        alerts.sort_unstable();
        assert_eq!(alerts, [(1, "allowed"), (2, "blocked"), (2, "blocked")]);
        let requests = of("http");
        let http = &requests[0]["http"];
        assert_eq!(requests.len(), 1);
        assert_eq!(
            (&http["url"], &http["status"], &http["hostname"]),
            (&"/".into(), &200.into(), &"www.example".into())
        );
        let report = String::from_utf8(output.stdout).unwrap();
        let report: Value = serde_json::from_str(report.lines().last().unwrap()).unwrap();
        assert_eq!(
            report["packets"]["dropped"]["ids/dropped_by_rule"], 2,
            "{report:#}"
        );
    }
}
