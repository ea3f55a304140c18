//! The flow monitor's records against Arkime's sessions: packets, bytes and TCP flags.

use crate::tables::records::Record;
use crate::tables::{arkime, records};
use crate::{capture, data, files, replay};
use flowkeep_functions::flow_monitor::Config;

/// All files of the folder.
const CAPTURES: usize = 60;

/// Why a file cannot be equal, and what holds of it instead.
enum Except {
    /// Its link type is none that Flowkeep reads: no record.
    LinkType,
    /// Arkime's sessions are those inside the tunnel, the records the tunnel's own: all counts together are equal.
    Tunnel,
    /// Arkime puts fragments together and counts the whole packet as one frame. So many later fragments each way, each a
    /// packet with 14 bytes of Ethernet and 20 of IPv4 more, make up the difference.
    Reassembled([u64; 2]),
}

const EXCEPT: &[(&str, Except)] = &[
    ("6-4-gre-ppp-udp-4-dns", Except::Tunnel),
    ("80211http", Except::LinkType),
    ("ipv6-gtp6", Except::Tunnel),
    ("ipv6-in-ipv4", Except::Tunnel),
    ("nflog", Except::LinkType),
    ("socks5-http-302-frag", Except::Reassembled([18, 40])),
    ("vxlan", Except::Tunnel),
];

#[test]
fn records_equal_the_sessions_of_every_comparable_capture() {
    let Some(data) = data() else { return };
    let mut wrong = Vec::new();
    let mut seen = 0;
    let mut equal = 0;
    for expected in files(&data.join("flow/arkime"), "test") {
        let name = expected
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let frames = capture::frames(&expected.with_extension("pcap")).expect("a capture");
        let outcome = replay::replay(&frames, Config::default());
        assert_eq!(outcome.unknown_fragments, 0, "{name}");
        let records = records::read(&outcome.lines);
        let text = std::fs::read_to_string(&expected).expect("readable");
        let except = EXCEPT
            .iter()
            .find(|(file, _)| *file == name)
            .map(|(_, except)| except);
        let verdict = match except {
            None => verdict(&arkime::compare(&records, &text), "equal"),
            Some(Except::LinkType) => {
                assert!(records.is_empty() && outcome.refused.keys().all(|why| why.starts_with("link type")));
                Ok(format!("not comparable: {:?}", outcome.refused))
            }
            Some(Except::Tunnel) => {
                assert!(
                    !arkime::compare(&records, &text).is_empty(),
                    "{name} is comparable after all"
                );
                let totals = arkime::totals(&records) == arkime::expected_totals(&text);
                let differences = if totals {
                    vec![]
                } else {
                    vec!["totals differ".to_string()]
                };
                verdict(&differences, "not comparable: a tunnel; equal in total")
            }
            Some(Except::Reassembled(later)) => {
                let whole = records
                    .into_iter()
                    .map(|r| put_together(r, *later))
                    .collect::<Vec<_>>();
                verdict(
                    &arkime::compare(&whole, &text),
                    "equal once fragments are put together",
                )
            }
        };
        seen += 1;
        equal += usize::from(except.is_none() && verdict.is_ok());
        match verdict {
            Ok(line) => println!("{name}: {} frames; {line}", frames.len()),
            Err(line) => {
                println!("{name}: {} frames; DIFFERENT {line}", frames.len());
                wrong.push(name);
            }
        }
    }
    println!(
        "{seen} captures: {equal} equal, {} excepted, {} different",
        EXCEPT.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "different: {wrong:?}");
    assert_eq!((seen, equal), (CAPTURES, CAPTURES - EXCEPT.len()));
}

fn verdict(differences: &[String], good: &str) -> Result<String, String> {
    if differences.is_empty() {
        Ok(good.to_string())
    } else {
        Err(differences.join("; "))
    }
}

/// What the record would be had the later fragments, so many from 10.0.0.1 and so many to it, been part of their first.
fn put_together(mut record: Record, later: [u64; 2]) -> Record {
    for side in 0..2 {
        let from = if record.orig.0.to_string() == "10.0.0.1" {
            side
        } else {
            1 - side
        };
        // The second connection of the file has no fragments.
        if record.packets[side] > later[from] {
            record.packets[side] -= later[from];
            record.bytes[side] -= 34 * later[from];
        }
    }
    record
}
