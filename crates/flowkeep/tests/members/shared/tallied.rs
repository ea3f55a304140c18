//! The common counts of several processes add up, while members join, leave and are killed; objects
//! that are not used end.

use super::*;
use flowkeep::report::Status;

impl Site {
    /// The content of the objects of a kind, over all members.
    fn listed(&self, kind: &str) -> Option<u64> {
        let words = ["function", "tally", "objects", "--json"];
        let done = ask(&self.coordinator, "operate", &words);
        if done.code != 0 {
            return None;
        }
        let listed = done.json();
        let rows = listed["rows"].as_array().expect("rows").clone();
        let of = rows.iter().filter(|row| row["kind"] == kind);
        Some(of.map(|row| row["count"].as_u64().expect("a number")).sum())
    }

    /// The functions' counts come to be in the objects, all but `lost`, and no more than those.
    #[track_caller]
    fn adds_up(&self, when: &str, nodes: &[&Member], gone: [u64; 2], lost: u64) {
        let counted = || {
            let mut all = gone;
            for node in nodes {
                let status = node.status();
                add(&mut all, &status);
            }
            all
        };
        for (place, kind) in ["merged", "owned"].into_iter().enumerate() {
            let (before, began) = (counted()[place], Instant::now());
            assert!(before > 0, "{when}: no packet is counted as {kind}");
            loop {
                let listed = self.listed(kind).unwrap_or(0);
                // A packet may be counted at its object, and not yet here.
                let most = counted()[place] + lost + 100;
                assert!(listed <= most, "{when}, {kind}: {listed} of {most}");
                if listed + lost >= before {
                    break;
                }
                let waited = began.elapsed();
                assert!(waited < PATIENCE, "{when}, {kind}: {listed} of {before}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Adds the counts of a member's functions.
fn add(all: &mut [u64; 2], status: &Status) {
    for (sum, name) in all.iter_mut().zip(["tally/merged", "tally/owned"]) {
        *sum += status.counters.get(name).copied().unwrap_or(0);
    }
}

#[test]
fn merged_and_owned_counts_add_up_over_processes() {
    let site = Site::of("tallied", false, "tally");
    let front = site.start("switch", "front");
    let left = site.start("node", "left");
    let right = site.start("node", "right");
    ["front", "left", "right"]
        .iter()
        .for_each(|name| site.wait_until_runs(name));
    passes(&front, 4000);
    site.adds_up("with two nodes", &[&left, &right], [0; 2], 0);
    let brief = |status: &Status| {
        let all = status.objects.iter().find(|of| of.kind == "brief");
        let of = all.expect("the function has it");
        (of.calls["send"], of.objects + of.copies)
    };
    assert!(brief(&left.status()).0 > 0 && brief(&right.status()).0 > 0);
    let third = site.start("node", "third");
    site.wait_until_runs("third");
    assert!(left.wait_until_moved(2) > 0);
    passes(&front, 1000);
    site.adds_up("with three nodes", &[&left, &right, &third], [0; 2], 0);
    // The calls that it had merged, and the objects that it held, are at the others.
    let mut gone = [0; 2];
    let last = left.stop(&site.folder);
    add(&mut gone, &last);
    site.wait_until_gone("left");
    passes(&front, 1000);
    site.adds_up("after one has left", &[&right, &third], gone, 0);
    // Flows are there since the start, so hosts are not used any more.
    for node in [&right, &third] {
        node.wait_until("hosts are forgotten", |status| brief(status).1 == 0);
    }
    assert_eq!(site.listed("brief"), Some(0));
    // Calls that a killed node had merged and not sent are lost: those of some ten milliseconds.
    let mut right = right;
    let last = right.status();
    add(&mut gone, &last);
    right.kill();
    site.wait_until_gone("right");
    passes(&front, 2000);
    site.adds_up("after one was killed", &[&third], gone, 500);
    front.stop(&site.folder);
    third.stop(&site.folder);
}
