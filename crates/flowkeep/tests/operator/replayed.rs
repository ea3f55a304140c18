//! A capture that is played again: its event log has the capture's time, not the time of day.

use crate::running::text;
use serde_json::Value;
use std::process::Command;

/// The capture of `flowkeep new` begins at 1,700,000,000 seconds after 1970 and lasts less than a
/// tenth of one.
#[test]
fn a_replay_logs_the_captures_time() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/new/example.pcap");
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replayed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["run", "--input", &format!("pcap:{capture}")])
        .args(["--events", "e.jsonl", "--socket", "s"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let lines = std::fs::read_to_string(folder.join("e.jsonl")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // A web page, a name lookup and pings.
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for line in &lines {
        assert_eq!(line["event"], "flow");
        let time = line["time"].as_str().unwrap();
        assert!(time.starts_with("2023-11-14T22:13:20."), "{line}");
        for of in ["start", "end"] {
            let second = line[of].as_f64().unwrap() - 1_700_000_000.0;
            assert!((0.0..1.0).contains(&second), "{of}: {line}");
        }
    }
}
