//! The flow monitor's records against Arkime's sessions: packets, bytes and TCP flags.

use crate::manifest;
use crate::tables::{arkime, records};
use crate::{capture, data, files, replay};
use flowkeep_functions::flow_monitor::Config;

#[test]
fn records_equal_the_sessions_of_every_comparable_capture() {
    let Some(data) = data() else { return };
    let mut wrong = Vec::new();
    let mut seen = 0;
    for expected in files(&data.join("flow/arkime"), "test") {
        let name = expected
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let frames = capture::frames(&expected.with_extension("pcap")).expect("a capture");
        let outcome = replay::replay(&frames, Config::default());
        assert_eq!(outcome.unknown_fragments, 0, "{name}");
        let text = std::fs::read_to_string(&expected).expect("readable");
        seen += 1;
        match arkime::judge(&name, records::read(&outcome.lines), &text) {
            Ok(line) => println!("{name}: {} frames; {line}", frames.len()),
            Err(line) => {
                println!("{name}: {} frames; DIFFERENT {line}", frames.len());
                wrong.push(name);
            }
        }
    }
    let excepted = arkime::EXCEPT.len();
    println!(
        "{seen} captures: {excepted} excepted, {} different, the others equal",
        wrong.len()
    );
    assert!(wrong.is_empty(), "different: {wrong:?}");
    assert_eq!(seen, manifest::count(&data, "flow/arkime", "test"));
}

/// A capture that begins with a SYN,ACK. Arkime takes its destination for the session's source.
#[test]
fn who_was_answered_began() {
    let Some(data) = data() else { return };
    let folder = data.join("flow/arkime");
    let frames = capture::frames(&folder.join("http-syn-ack.pcap")).expect("a capture");
    let text = std::fs::read_to_string(folder.join("http-syn-ack.test")).expect("readable");
    let expected: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let session = &expected["sessions3"][0]["body"];
    let outcome = replay::replay(&frames, Config::default());
    let found = records::read(&outcome.lines);
    let [record] = &found[..] else {
        panic!("one session: {found:?}")
    };
    for (side, end) in [("source", record.orig), ("destination", record.resp)] {
        assert_eq!(session[side]["ip"], end.0.to_string());
        assert_eq!(session[side]["port"], end.1);
    }
    let counts =
        |what: &str| ["source", "destination"].map(|side| session[side][what].as_u64().expect("a count"));
    assert_eq!(
        (record.packets, record.bytes),
        (counts("packets"), counts("bytes"))
    );
    assert!(record.history.starts_with("^hA"), "{}", record.history);
    assert_eq!(record.state, "S1");
}
