//! The flow monitor's counts, where they are billed (`commit_lazy = true`), behind a kill. All of
//! its state is lazy.

use super::running::{PATIENCE, Running};
use super::{flows_of, json, killed, list, profile};
use serde_json::Value;
use std::time::{Duration, Instant};

const FLOWS: u64 = 100;
/// Half of them would be lost with a runtime whose copies have no lazy fields.
const BEFORE: u64 = 20_000;

/// Each packet that left before the flows were deleted is in their records.
#[test]
fn counts_behind_a_kill_have_each_packet_that_left() {
    let running = Running::start("billed", &profile(FLOWS as u32), |profile| {
        format!(
            "runtimes = 2\nflows_max = 1000\n[replication]\npolicy = \"commit\"\ncommit_lazy = true\n\
             [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"watched\"\nfunctions = [\"flow_monitor\"]\n\
             [log]\nevents = \"{profile}.events\"\n"
        )
    });
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}: {:?}", list(&running));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let packets = |way: &str| json(&running.ask(&["status", "--json"])).1["packets"][way].as_u64();
    until("packets of all flows, with copies", &|| {
        let protected = |of: &Value| of["protected_by"].is_u64();
        packets("out") > Some(BEFORE)
            && flows_of(&running).iter().sum::<u64>() == FLOWS
            && list(&running).iter().all(protected)
    });
    let before = flows_of(&running)[1];
    assert!(before > FLOWS / 4, "{before}");
    killed(&running, &["1"]);
    until("flows that go on", &|| flows_of(&running) == [FLOWS, 0]);
    let left = packets("out").unwrap();
    let (code, deleted, said) = json(&running.ask(&["flow", "delete", "--all", "--json"]));
    // A flow that had begun again may have ended twice.
    let ended = deleted["flows_ended"].as_u64().unwrap();
    assert!(code == 0 && ended >= FLOWS, "{said}");
    let counts = || -> Vec<u64> {
        let events = std::fs::read_to_string(running.path("traffic.toml.events")).unwrap_or_default();
        // The last line may be half written.
        let lines = events
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let records = lines.filter(|line| line["event"] == "flow");
        let count = |record: &Value, way: &str| record[way].as_u64().unwrap();
        records
            .map(|record| count(&record, "orig_packets") + count(&record, "resp_packets"))
            .collect()
    };
    until("records", &|| counts().len() as u64 >= ended);
    let (counts, came) = (counts(), packets("in").unwrap());
    let sum = counts.iter().sum::<u64>();
    assert_eq!(counts.len() as u64, ended);
    assert!(
        (left..=came).contains(&sum),
        "{left} left, {sum} counted, {came} came"
    );
}
