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
    // By the flow before translation: where it is, and what the world sees of it.
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

#[test]
fn an_only_runtime_is_not_drained() {
    let running = cluster("only", 1, 20, 100);
    for words in [
        "runtime drain 0",
        "runtime drain 0 --last",
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
