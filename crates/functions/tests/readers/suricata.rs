//! The IDS against Suricata: the rules, captures and expectations of suricata-verify.
//!
//! Each directory has rules, a capture, what Suricata 7.0.10 said of it (`events-*.tsv`) and what
//! the test's authors ask for (`test.yaml`). A directory is run if all of its rules are in the
//! subset known here; which word keeps another one out, the rules' own reader says. Alerts are
//! compared one by one: sid, addresses and ports; and so is the number of dropped packets, where
//! the authors tell it.

use crate::{data, manifest, script};
use flowkeep_functions::ids::config::{Mode, Settings, variables};
use flowkeep_functions::ids::{Config, Ids, parse};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use testkit::Fate;
use wire::Addr;

/// An alert, as far as it is compared.
type Alert = (u64, Addr, u16, Addr, u16);

/// Suricata's alerts.
fn expected(directory: &Path) -> Vec<Alert> {
    let text =
        std::fs::read_to_string(directory.join("events-suricata-7.0.10.tsv")).expect("the events read");
    let mut alerts: Vec<Alert> = text
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|fields| fields[0] == "alert")
        .map(|fields| {
            let addr = |text: &str| text.parse().expect("an address");
            let port = |text: &str| text.parse().unwrap_or(0);
            let sid = fields[1].parse().expect("a number");
            (
                sid,
                addr(fields[5]),
                port(fields[6]),
                addr(fields[7]),
                port(fields[8]),
            )
        })
        .collect();
    alerts.sort_unstable();
    alerts
}

/// How many packets the test's authors expect to be dropped, where they say so: a filter of which
/// `event_type: drop` is all.
fn drops_expected(yaml: &str) -> Option<usize> {
    let filters = yaml.split("filter:").skip(1);
    let drops = |filter: &&str| filter.contains("event_type: drop") && filter.matches(": ").count() == 2;
    let filter = filters
        .map(|f| f.split("- filter").next().unwrap_or(f))
        .find(drops)?;
    let count = filter.split("count: ").nth(1)?.lines().next()?;
    count.trim().parse().ok()
}

struct Seen {
    alerts: Vec<Alert>,
    drops: usize,
}

fn run(directory: &Path, rules: &str, yaml: &str) -> Seen {
    let mode = match yaml.contains("--simulate-ips") {
        true => Mode::Ips,
        false => Mode::Ids,
    };
    let config = Config::from(Settings {
        rules: rules.into(),
        mode,
        ..Settings::default()
    });
    let outcome = testkit::run::<Ids>(config, script(&directory.join("input.pcap")));
    let mut alerts: Vec<Alert> = outcome
        .events()
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            let addr = |name: &str| event[name].as_str().expect("there").parse().expect("an address");
            let port = |name: &str| event[name].as_u64().unwrap_or(0) as u16;
            let sid = event["alert"]["signature_id"].as_u64().expect("a sid");
            (
                sid,
                addr("src_ip"),
                port("src_port"),
                addr("dest_ip"),
                port("dest_port"),
            )
        })
        .collect();
    alerts.sort_unstable();
    let ours = |fate: &&Fate| matches!(fate, Fate::Dropped("dropped_by_rule" | "flow_dropped"));
    let drops = outcome.fates().iter().filter(ours).count();
    Seen { alerts, drops }
}

/// The words that keep a directory out of the subset.
fn unknown_words(directory: &Path, rules: &str) -> BTreeSet<String> {
    let mut words: BTreeSet<String> = parse::rules(rules, &variables(&Default::default()))
        .into_iter()
        .filter_map(Result::err)
        .map(|error| {
            let unknown = error.fault.unknown.clone();
            unknown.unwrap_or_else(|| panic!("{}: {error:?}", directory.display()))
        })
        .collect();
    // A file of settings beside the rules is a language of its own.
    if let Ok(text) = std::fs::read_to_string(directory.join("threshold.config")) {
        let lines = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        words.extend(lines.filter_map(|line| Some(format!("threshold.config: {}", line.split(' ').next()?))));
    }
    words
}

#[test]
fn alerts_equal_suricatas() {
    let Some(data) = data("ids/suricata-verify") else {
        return;
    };
    let root = data.join("../..");
    let mut directories: Vec<PathBuf> = std::fs::read_dir(data)
        .expect("the folder is part of the data")
        .map(|entry| entry.expect("readable").path())
        .collect();
    directories.sort();
    assert_eq!(
        directories.len(),
        manifest::count(&root, "ids/suricata-verify", "rules")
    );
    let (mut compared, mut alerts, mut out, mut wrong) = (0, 0, 0, Vec::new());
    for directory in &directories {
        let name = directory
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let rules = std::fs::read_to_string(directory.join("test.rules")).expect("the rules read");
        let yaml = std::fs::read_to_string(directory.join("test.yaml")).expect("the expectations read");
        let unknown = unknown_words(directory, &rules);
        if !unknown.is_empty() {
            println!("out: {name}: {}", Vec::from_iter(unknown).join(", "));
            out += 1;
            continue;
        }
        let (expected, seen) = (expected(directory), run(directory, &rules, &yaml));
        let drops = drops_expected(&yaml);
        let same = expected == seen.alerts && drops.is_none_or(|drops| drops == seen.drops);
        println!(
            "{}: {name}: {} alerts, {} dropped{}",
            if same { "same" } else { "DIFFERENT" },
            seen.alerts.len(),
            seen.drops,
            drops.map_or(String::new(), |drops| format!(" of {drops}")),
        );
        if !same {
            wrong.push(format!("{name}: expected {expected:?}, seen {:?}", seen.alerts));
        }
        compared += 1;
        alerts += expected.len();
    }
    println!("{compared} directories compared, {alerts} alerts; {out} out of the subset");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 0 && alerts > 0, "nothing was compared");
}
