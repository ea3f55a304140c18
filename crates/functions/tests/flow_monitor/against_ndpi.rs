//! The flow monitor's records against nDPI's captures and their independent flow tables.

use crate::manifest;
use crate::tables::{ndpi, records};
use crate::{capture, data, files, replay};
use flowkeep_functions::flow_monitor::{Config, Timeout};

/// Every capture of the folder is compared, none is excepted.
#[test]
fn records_equal_the_expected_flows_of_every_capture() {
    let Some(data) = data() else { return };
    let folder = data.join("flow/ndpi");
    // The sums are the same however often a flow expires between.
    let configs = [
        Config::default(),
        Config {
            idle_timeout: Timeout::NONE,
            closed_timeout: Timeout::NONE,
        },
        Config {
            idle_timeout: Timeout::seconds(1),
            closed_timeout: Timeout::seconds(1),
        },
    ];
    let mut wrong = Vec::new();
    let mut compared = 0;
    for expected in files(&folder.join("expected"), "tsv") {
        let name = expected
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let frames = capture::frames(&folder.join("pcap").join(&name)).expect("a capture");
        let text = std::fs::read_to_string(&expected).expect("readable");
        let mut verdict = String::new();
        for config in configs {
            let outcome = replay::replay(&frames, config);
            let records = records::read(&outcome.lines);
            let differences = ndpi::compare(&records, &text);
            if !differences.is_empty() {
                wrong.push(format!("{name}: {}", differences.join("; ")));
            }
            // A frame in no record is known to be no flow's.
            let counted: u64 = records.iter().map(|r| r.packets[0] + r.packets[1]).sum();
            let refused: u64 = outcome.refused.values().sum();
            assert_eq!(counted + refused, frames.len() as u64, "{name}");
            assert!(
                outcome.refused.keys().all(|why| why == "neither IPv4 nor IPv6"),
                "{name}"
            );
            let equal = if differences.is_empty() {
                "equal"
            } else {
                "DIFFERENT"
            };
            verdict.push_str(&format!(" {equal} with {} records;", records.len()));
        }
        println!("{name}: {} frames;{verdict}", frames.len());
        compared += 1;
    }
    println!("{compared} captures compared, {} differences", wrong.len());
    assert!(wrong.is_empty(), "different: {wrong:#?}");
    assert_eq!(compared, manifest::count(&data, "flow/ndpi/expected", "tsv"));
}
