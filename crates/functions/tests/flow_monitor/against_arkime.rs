//! The flow monitor's records against Arkime's sessions: packets, bytes and TCP flags.

use crate::tables::{arkime, records};
use crate::{capture, data, files, replay};
use flowkeep_functions::flow_monitor::Config;

/// All files of the folder.
const CAPTURES: usize = 60;

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
    assert_eq!(seen, CAPTURES);
}
