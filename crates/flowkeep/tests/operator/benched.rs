//! `flowkeep bench system` as a whole, for a moment: each load is measured in both placements,
//! beside the plain loop of the same functions, and each packet that was sent has left.
//!
//! Not here: how fast anything is; the machine does other things too.

use crate::running::text;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

const LOADS: [&str; 9] = [
    "firewall",
    "NAT",
    "load balancer",
    "IDS",
    "monitor",
    "HTTP",
    "firewall, NAT, load balancer",
    "firewall, NAT, IDS",
    "monitor, firewall, HTTP",
];

#[test]
fn all_loads_are_measured_with_the_same_task() {
    let output = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args("bench system --flows 64 --runs 1 --json".split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    let of = |name: &str, metric: &str| -> (f64, &Value) {
        let mut all = cases.iter();
        let case = all.find(|case| case["name"] == name && case["metric"] == metric);
        let case = case.unwrap_or_else(|| panic!("{name}: no {metric}"));
        (case["median"].as_f64().unwrap(), &case["reference"]["name"])
    };
    for load in LOADS {
        let (plain, rate) = (format!("{load}, plain loop"), "packets per second");
        assert!(of(&plain, rate).0 > 0.0, "{load}");
        for placement in ["one thread", "two threads"] {
            let (median, reference) = of(&format!("{load}, {placement}"), rate);
            assert!(median > 0.0 && *reference == *plain, "{load}: {reference}");
            let delays = ["median", "99th", "99.9th"].map(|share| {
                let name = format!("{load}, {placement}, {share}");
                of(&name, "delay at half of the rate").0
            });
            assert!(delays[0] > 0.0 && delays.is_sorted(), "{load}: {delays:?}");
        }
    }
    // Nothing else is measured.
    let names: BTreeSet<_> = cases.iter().filter_map(|case| case["name"].as_str()).collect();
    assert_eq!(names.len(), LOADS.len() * (1 + 2 * 4));
}
