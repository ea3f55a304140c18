//! A runtime more than there were at the start, and an only one.

use super::running::{PATIENCE, Running, text};
use super::{cluster, flows_of, json, list, profile, receipt, refused};
use std::time::{Duration, Instant};

/// With no setting for it a runtime comes, gets flows with their ports, and goes again.
#[test]
fn a_runtime_comes_to_a_configuration_that_says_nothing_of_it() {
    let running = Running::start("added", &profile(40), |profile| {
        format!(
            "[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n\
             [function.nat]\npool = [\"203.0.113.0/28\"]\n[log]\nevents = \"{profile}.events\"\n"
        )
    });
    // By the flow before translation: its runtime, and its external endpoint.
    let flows = || {
        let (_, list, _) = json(&running.ask(&["flow", "list", "--json"]));
        let flows = list["flows"].as_array().unwrap().iter();
        let seen = flows.map(|flow| {
            let outside = flow["translated"]["source"].as_str().unwrap().to_owned();
            assert!(outside.starts_with("203.0.113."), "{flow}");
            (
                flow["source"].to_string(),
                (flow["runtime"].as_u64().unwrap(), outside),
            )
        });
        seen.collect::<std::collections::BTreeMap<_, _>>()
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("40 flows", &|| flows_of(&running) == [40]);
    let before = flows();
    assert_eq!(before.len(), 40);

    let added = running.ask(&["runtime", "add"]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    let moved = receipt(&running, "flow migrate --all --to 1");
    assert_eq!(moved["flows_moved"], 40, "{moved}");
    assert_eq!(flows_of(&running), [0, 40]);
    let after = flows();
    for (flow, (_, outside)) in &before {
        assert_eq!(after.get(flow), Some(&(1, outside.clone())), "{flow}");
    }
    // Their packets follow.
    let received = || list(&running)[1]["received"].as_u64().unwrap();
    let at = received();
    until("packets at runtime 1", &|| received() > at + 100);

    // As many more as are said, and no more.
    for number in 2..9 {
        let added = running.ask(&["runtime", "add"]);
        assert!(added.status.success(), "{number}: {}", text(&added.stderr));
    }
    refused(
        &running,
        "runtime add",
        1,
        &["(9) are there", "runtimes_max = 10"],
    );
    let gone = running.ask(&["runtime", "remove", "1"]);
    assert!(gone.status.success(), "{}", text(&gone.stderr));
    let after = flows();
    for (flow, (_, outside)) in &before {
        assert_eq!(after.get(flow).map(|(_, now)| now), Some(outside), "{flow}");
    }
    assert!(after.values().all(|(runtime, _)| *runtime != 1));
}

/// Of a pool's blocks each is some runtime's, also when one goes and comes again.
#[test]
fn all_of_the_pool_is_for_one_runtime_behind_a_removal() {
    const BLOCKS: u64 = (65_536 - 1024) / 256;
    let running = Running::start("pool-left", &profile(40), |profile| {
        format!(
            "runtimes = 2\n[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n\
             [function.nat]\npool = [\"203.0.113.1\"]\n[log]\nevents = \"{profile}.events\"\n"
        )
    });
    let host = |end: &serde_json::Value| end.as_str().unwrap().split(':').next().unwrap().to_owned();
    // How many blocks are free at the runtimes that are there, and how many hosts have one.
    let blocks = || {
        let (_, said, _) = json(&running.ask(&["function", "nat", "pool", "--json"]));
        let free = said["rows"][0]["free"].as_u64().unwrap();
        let (_, list, _) = json(&running.ask(&["flow", "list", "--json"]));
        let hosts = list["flows"].as_array().unwrap().iter();
        let hosts: std::collections::BTreeSet<String> = hosts.map(|flow| host(&flow["source"])).collect();
        (free, hosts.len() as u64)
    };
    let until_all_are_there = |what: &str| {
        let began = Instant::now();
        loop {
            let (free, hosts) = blocks();
            if hosts > 20 && free + hosts == BLOCKS {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {free} free, {hosts} hosts");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until_all_are_there("at first");
    for words in [["runtime", "drain", "1"], ["runtime", "remove", "1"]] {
        let done = running.ask(&words);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    assert_eq!(flows_of(&running).len(), 2, "one is listed as away");
    until_all_are_there("one is gone");
    let added = running.ask(&["runtime", "add", "1"]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    until_all_are_there("it is back");
}

#[test]
fn an_only_runtime_is_not_drained() {
    let running = cluster("only", 1, 20, 100);
    for words in [
        "runtime drain 0",
        "runtime drain 0 --force",
        "flow migrate --all --from 0",
    ] {
        refused(
            &running,
            words,
            1,
            &[
                "this cluster has one runtime",
                "nothing has changed",
                "`flowkeep runtime add` starts another",
            ],
        );
    }
    refused(
        &running,
        "flow migrate --all --to 1",
        1,
        &["runtime 1 is not there", "flowkeep runtime add 1"],
    );
    // Numbers at which none has been are not shown.
    assert_eq!(list(&running).len(), 1);
    assert_eq!(list(&running)[0]["leaving"], false);
}
