//! `flowkeep bench live` as a whole, for a moment: its output has the shape that it should, and
//! nothing of it is left.
//!
//! Not here: how fast anything is; the machine does other things too.

use crate::network::alone;
use serde_json::Value;
use std::process::Command;

#[test]
fn both_are_measured_with_the_same_task() {
    let Some((lab, _alone)) = alone(&[
        ("nft", "nftables"),
        ("ethtool", "ethtool"),
        ("taskset", "util-linux"),
    ]) else {
        return;
    };
    if adapters::clock::allowed_cpus().len() < 2 {
        println!("not run: `bench live` needs two processors");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args("bench live --flows 60 --runs 1 --moment 50 --loads 20000 --json".split(' '))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let names_begin = format!("fk-{}-", output.id());
    let output = output.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["scenario"], "live");
    let cases = report["cases"].as_array().unwrap();
    for name in ["kernel (nftables)", "flowkeep (afxdp)"] {
        for balanced in [false, true] {
            let of = |metric: &str| -> f64 {
                let mut all = cases.iter().filter(|case| {
                    case["name"] == name
                        && case["metric"] == metric
                        && case["parameters"]["load_balancer"] == balanced
                });
                let case = all.next().unwrap_or_else(|| panic!("{name}: no {metric}"));
                assert_eq!(case["reference"].is_null(), name.starts_with("kernel"), "{case}");
                case["median"].as_f64().unwrap()
            };
            assert!(of("offered") > 0.0 && of("forwarded") > 0.0, "{name}");
            assert!(of("net") > 0.0 && of("threads") > 0.0, "{name}");
        }
    }
    drop(lab);
    let names = Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(
        !String::from_utf8_lossy(&names.stdout).contains(&names_begin),
        "a namespace is left"
    );
}
