//! The counts of a member's functions stay in their tables when its process has ended, and count
//! once when it is back.

use super::changed::firewall;
use super::joined::{Site, flowkeep, is_listed, passes, runs};
use super::rig::PATIENCE;
use super::schema;
use super::wide::{until_all_answer, wide};
use coordinator::identity::Identity;
use coordinator::operator::Operator;
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// Hits of the rule in an answer or in the whole table.
fn hits(of: &Value) -> u64 {
    let rows = of["rows"].as_array().expect("rows").iter();
    let all = rows.filter(|row| row["rule"] == "all");
    all.map(|row| row["hits"].as_u64().expect("a number")).sum()
}

fn rules(site: &Site) -> Value {
    let done = wide(site, "operate", &["function", "firewall", "rules", "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let rules = done.json();
    // Each row of the table is in an answer.
    let each = rules["answers"].as_array().expect("a list");
    assert_eq!(hits(&rules), each.iter().map(hits).sum::<u64>(), "{rules}");
    rules
}

/// The hits of a member's live runtimes, or of its gone ones.
fn of(rules: &Value, member: &str, is_gone: bool) -> Option<u64> {
    let answers = rules["answers"].as_array().expect("a list").iter();
    let its = answers.filter(|of| of["member"] == member && of["gone"].is_string() == is_gone);
    its.map(hits).reduce(|one, other| one + other)
}

/// The hits that the coordinator has heard of a member, over all its incarnations.
fn heard(site: &Site, member: &str) -> u64 {
    let operator = Operator {
        addresses: vec![site.coordinator.address.clone()],
        identity: Identity::read(Path::new(&site.coordinator.folder), "operate").expect("it is there"),
    };
    let counts = operator.connect().and_then(|mut line| line.counted(member));
    let counts: Value = serde_json::from_slice(&counts.expect("it answers")).unwrap_or_default();
    let tables = ["tables", "before"].map(|of| counts[of].as_array().cloned().unwrap_or_default());
    let rules = tables.into_iter().flatten().filter(|of| of["table"] == "rules");
    let rows = rules.flat_map(|of| of["rows"]["rows"].as_array().cloned().unwrap_or_default());
    let hits = rows.filter(|row| row[2] == "all");
    hits.filter_map(|row| row[0].as_u64()).sum()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn what_a_member_had_counted_stays_when_its_process_ends() {
    let site = Site::with("gone", false, &firewall(""));
    let [front, left, mut right] = site.all();
    // A rule is hit once for each of the flows, which stay.
    until("all flows", || hits(&rules(&site)) >= 400);
    passes(&front, 2000);
    let before = rules(&site);
    let of_right = of(&before, "right", false).expect("it is there");
    assert!(of_right > 0 && of(&before, "right", true).is_none(), "{before}");
    until("the coordinator's hearing it", || {
        heard(&site, "right") == of_right
    });

    right.kill();
    site.coordinator
        .wait_until("it is removed", |view| !is_listed(view, "right"));
    let after = rules(&site);
    assert_eq!(of(&after, "right", true), Some(of_right), "{after}");
    assert_eq!(of(&after, "right", false), None, "{after}");
    let gone = after["answers"].as_array().expect("a list").iter();
    let gone: Vec<&Value> = gone.filter_map(|of| of.get("gone")).collect();
    assert_eq!(gone, ["ended"], "{after}");
    let said = wide(&site, "operate", &["function", "firewall", "rules"]);
    let words =
        "What is gone is in it: runtime 1 of right (its process has ended: as the coordinator last heard)";
    assert!(said.out.contains(words), "{}", said.out);

    // Another incarnation counts from nothing; the counts of the one before are there beside it.
    let mut right = site.start("node", "right");
    site.coordinator
        .wait_until("it is back", |view| runs(view, "right").is_some());
    until_all_answer(&site);
    let back = rules(&site);
    assert_eq!(of(&back, "right", true), Some(of_right), "{back}");
    let ended = wide(&site, "operate", &["flow", "delete", "--all"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    until("flows at the second incarnation", || {
        of(&rules(&site), "right", false) > Some(0)
    });

    // `right` gets nothing new, and leaves: its counts to its end are heard.
    let words = [
        "cluster",
        "drain",
        "right",
        "--json",
        "--at",
        &site.coordinator.address,
    ];
    let as_whom = ["--identity", &site.coordinator.folder, "--name", "operate"];
    let (is_good, says) = flowkeep(&[&words[..], &as_whom].concat());
    assert!(is_good, "{says}");
    schema::holds("cluster-drain", says.as_bytes());
    let stopped = wide(&site, "admin", &["stop", "--member", "right"]);
    assert_eq!(stopped.code, 0, "{}", stopped.err);
    let last = of(&rules(&site), "right", false);
    right.ended(&site.folder);
    site.coordinator
        .wait_until("it is no member", |view| !is_listed(view, "right"));
    let left_behind = rules(&site);
    let gone = of(&left_behind, "right", true).expect("it is kept");
    let least = of_right + last.unwrap_or(1);
    assert!(gone >= least, "{gone} of {least}: {left_behind}");
    front.stop(&site.folder);
    left.stop(&site.folder);
    tells_of_members(&site.folder.read("front.jsonl"));
}

/// A member's event log has the incarnations of the others: `right` was there twice, and is gone.
fn tells_of_members(log: &str) {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines
        .filter(|line| line["event"] == "worker_joined" || line["event"] == "worker_gone")
        .collect();
    let of = |member: &str| -> Vec<(&str, u64)> {
        let its = lines.iter().filter(|line| line["member"] == member);
        its.map(|line| {
            let incarnation = line["incarnation"].as_u64().expect("a number");
            (line["event"].as_str().expect("a name"), incarnation)
        })
        .collect()
    };
    let right = of("right");
    let events: Vec<&str> = right.iter().map(|(event, _)| *event).collect();
    assert_eq!(
        events,
        ["worker_joined", "worker_gone", "worker_joined", "worker_gone"],
        "{lines:#?}"
    );
    // Each incarnation goes as it came, and the second is later.
    assert!(right[0].1 == right[1].1 && right[2].1 == right[3].1 && right[1].1 < right[2].1);
    assert_eq!(
        of("front").first().map(|(event, _)| *event),
        Some("worker_joined")
    );
    assert!(
        lines.iter().all(|line| line["view"].as_u64() > Some(0)),
        "{lines:#?}"
    );
    let right = lines.iter().find(|line| line["member"] == "right").expect("seen");
    assert_eq!(right["worker"], "runtime 1");
}
