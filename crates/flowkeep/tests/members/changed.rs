//! Another configuration for all members while traffic passes: put in force at all, or at none.

use super::joined::{Site, passes};
use super::more::wait_for_word;
use super::rig::PATIENCE;
use super::wide::{until_all_answer, wide};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A firewall in front of the flow monitor; `more` rules stand before the one that lets all
/// through.
pub fn firewall(more: &str) -> String {
    format!(
        "[[chain]]\nname = \"guarded\"\nfunctions = [\"firewall\", \"flow_monitor\"]\n[chain.match]\nprotocol = \"udp\"\n{more}\
         [[function.firewall.rules]]\nname = \"all\"\naction = \"allow\"\n"
    )
}

pub const NO_443: &str =
    "[[function.firewall.rules]]\nname = \"no-443\"\ndestination_ports = [443]\naction = \"drop\"\n";

/// The configurations that members have in force, by name.
pub fn in_force(status: &Value) -> Vec<(String, u64, String)> {
    let members = status["members"].as_array().expect("a list").iter();
    let of = |member: &Value| {
        let of = &member["configuration"];
        (
            member["member"].as_str().unwrap_or_default().to_owned(),
            of["number"].as_u64().unwrap_or(0),
            of["digest"].as_str().unwrap_or_default().to_owned(),
        )
    };
    members.map(of).collect()
}

#[track_caller]
pub fn all_have(site: &Site, number: u64) -> Vec<(String, u64, String)> {
    let all = in_force(&until_all_answer(site));
    let (_, _, digest) = &all[0];
    assert!(
        all.len() == 3 && all.iter().all(|of| of.1 == number && of.2 == *digest),
        "{all:?}"
    );
    all
}

#[test]
fn a_change_is_in_force_at_all_members_or_at_none() {
    let site = Site::with("changed", false, &firewall(""));
    let [front, left, mut right] = site.all();
    passes(&front, 2000);
    all_have(&site, 1);
    let old = site.folder.read("cluster.toml");
    let file = site
        .folder
        .write("new.toml", &old.replace(&firewall(""), &firewall(NO_443)));
    let file = file.display().to_string();

    // To look is an operator's, to apply is not; no flow is cut unasked.
    wide(&site, "read", &["chain", "diff", &file]).refused(1, &["role-without-right"]);
    let diff = wide(&site, "operate", &["chain", "diff", &file, "--json"]);
    assert_eq!(diff.code, 3, "{} {}", diff.out, diff.err);
    // Over the cluster only some are listed, and how many are not is said.
    let whole = diff.json();
    let listed = whole["listed"].as_array().map_or(0, Vec::len) as u64;
    let unlisted = whole["unlisted"].as_u64();
    assert!(listed > 0 && unlisted > Some(0), "{listed} and {unlisted:?}");
    assert_eq!(whole["flows_cut"].as_u64(), unlisted.map(|more| more + listed));
    let parts = whole["members"].clone();
    let cut = |name: &str| {
        let mut all = parts.as_array().expect("a list").iter();
        all.find(|of| of["member"] == name)
            .map(|of| of["flows_cut"].as_u64())
    };
    assert_eq!(cut("front"), Some(Some(0)), "{parts}");
    assert!(
        cut("left") > Some(Some(0)) && cut("right") > Some(Some(0)),
        "{parts}"
    );
    wide(&site, "operate", &["chain", "apply", &file, "--cut"])
        .refused(1, &["role-without-right", "`admin`"]);
    let refused = wide(&site, "admin", &["chain", "apply", &file]);
    assert_eq!(refused.code, 3, "{} {}", refused.out, refused.err);
    let wrong = site.folder.write(
        "wrong.toml",
        &old.replace("action = \"allow\"", "action = \"alow\""),
    );
    let wrong = wide(&site, "admin", &["chain", "apply", &wrong.display().to_string()]);
    assert_eq!(wrong.code, 2, "{} {}", wrong.out, wrong.err);
    assert!(
        wrong.out.contains("wrong.toml:") && wrong.out.contains("alow"),
        "{}",
        wrong.out
    );
    let shape = site.folder.write("shape.toml", &format!("flows_max = 77\n{old}"));
    let shape = wide(&site, "admin", &["chain", "apply", &shape.display().to_string()]);
    assert!(
        shape.code == 2 && shape.out.contains("flows_max"),
        "{} {}",
        shape.out,
        shape.err
    );
    all_have(&site, 1);

    // A member that stands still: named, and nothing has changed.
    right.signal("-STOP");
    let silent = wide(&site, "admin", &["chain", "apply", &file, "--cut"]);
    right.signal("-CONT");
    silent.refused(1, &["nothing has changed", "`right`"]);
    until_all_answer(&site);
    let began = Instant::now();
    let applied = loop {
        // The member that stood still takes back its prepared change by itself.
        let applied = wide(&site, "admin", &["chain", "apply", &file, "--cut", "--json"]);
        if applied.code == 0 {
            break applied.json();
        }
        assert!(began.elapsed() < PATIENCE, "{} {}", applied.out, applied.err);
        std::thread::sleep(Duration::from_millis(500));
    };
    assert_eq!(applied["receipt"]["members"], 3, "{applied}");
    assert!(applied["receipt"]["flows_cut"].as_u64() > Some(0), "{applied}");
    all_have(&site, 2);
    left.wait_until("what is denied is dropped", |status| {
        status
            .packets
            .dropped
            .get("firewall/denied_by_rule")
            .is_some_and(|count| *count > 0)
    });
    site.coordinator.wait_until("its heartbeats say so", |view| {
        let mut workers = view["workers"].as_array().expect("a list").iter();
        workers.any(|worker| worker["name"] == "left" && worker["dropped_packets"].as_u64() > Some(0))
    });
    passes(&front, 2000);

    // `right` is killed, begins with its file's old text, and takes on the configuration in force;
    // it meets the others.
    right.kill();
    let right = site.start("node", "right");
    wait_for_word(
        &site.folder,
        "right",
        "configuration 2 of the cluster is in force here",
    );
    right.wait_for_all();
    all_have(&site, 2);

    let back = wide(&site, "admin", &["chain", "rollback"]);
    assert_eq!(back.code, 0, "{} {}", back.out, back.err);
    all_have(&site, 3);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}
