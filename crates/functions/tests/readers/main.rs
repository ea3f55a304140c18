//! The functions that read streams, against what others have read in the same captures.

#[path = "../flow_monitor/capture.rs"]
mod capture;
mod http;
#[path = "../flow_monitor/manifest.rs"]
mod manifest;
mod rule_sets;
mod streams;
mod suricata;

use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Step, frame, wait};
use wire::LinkType;

/// A folder of the shared captures, or `None` (and a word about it) where they are not.
fn data(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let found = root.join(folder);
    if found.is_dir() {
        Some(found)
    } else {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        None
    }
}

/// A capture as a script, with its pauses from a second on.
fn script(path: &Path) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut last = None;
    for captured in capture::frames(path).expect("a capture") {
        let pause = captured
            .time
            .saturating_sub(last.replace(captured.time).unwrap_or(captured.time));
        if pause >= 1_000_000_000 {
            steps.push(wait(Duration::from_nanos(pause)));
        }
        let link = LinkType::from_pcap(captured.link).expect("a known link type");
        assert!(
            captured.wire_length as usize <= captured.bytes.len(),
            "{}: cut short",
            path.display()
        );
        steps.push(frame(captured.bytes).link(link));
    }
    steps
}
