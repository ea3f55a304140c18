//! `flow/arkime/*.test`: Arkime's sessions, with packets, bytes and TCP flags.
//!
//! Arkime counts how many packets had a flag and a record says which flags there were: a flag is
//! compared as "at least once", over both directions. The files do not tell VLANs.

use super::records::{Key, Record, Table, add, differences};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Why a file cannot be equal, and what holds of it instead.
pub enum Except {
    /// Its link type is none that Flowkeep reads: no record.
    LinkType,
    /// Arkime's sessions are those inside the tunnel, the records the tunnel's own: all counts
    /// together are equal.
    Tunnel,
    /// Arkime puts fragments together and counts the whole packet as one frame. So many later
    /// fragments each way, each a packet with 14 bytes of Ethernet and 20 of IPv4 more, make up the
    /// difference.
    Reassembled([u64; 2]),
}

/// The files that are not equal.
pub const EXCEPT: &[(&str, Except)] = &[
    ("6-4-gre-ppp-udp-4-dns", Except::Tunnel),
    ("80211http", Except::LinkType),
    ("ipv6-gtp6", Except::Tunnel),
    ("ipv6-in-ipv4", Except::Tunnel),
    ("nflog", Except::LinkType),
    ("socks5-http-302-frag", Except::Reassembled([18, 40])),
    ("vxlan", Except::Tunnel),
];

/// Says how the records of a capture stand to its expected file: equal, or excepted and as
/// expected; or the differences.
pub fn judge(name: &str, records: Vec<Record>, expected: &str) -> Result<String, String> {
    let except = EXCEPT
        .iter()
        .find(|(file, _)| *file == name)
        .map(|(_, except)| except);
    let good_if = |good: bool, line: &str| {
        if good {
            Ok(line.to_string())
        } else {
            Err(format!("not even: {line}"))
        }
    };
    match except {
        None => match compare(&records, expected).as_slice() {
            [] => Ok("equal".to_string()),
            differences => Err(differences.join("; ")),
        },
        Some(Except::LinkType) => good_if(
            records.is_empty(),
            "not comparable: the link type is not read; no record",
        ),
        Some(Except::Tunnel) => {
            let apart = !compare(&records, expected).is_empty();
            let equal = totals(&records) == expected_totals(expected);
            good_if(apart && equal, "not comparable: a tunnel; equal in total")
        }
        Some(Except::Reassembled(later)) => {
            let whole: Vec<_> = records.into_iter().map(|r| put_together(r, *later)).collect();
            good_if(
                compare(&whole, expected).is_empty(),
                "equal once fragments are put together",
            )
        }
    }
}

/// Where the records of a capture differ from an expected file.
fn compare(records: &[Record], expected: &str) -> Vec<String> {
    let mut ours = Table::new();
    let mut flags: BTreeMap<Key, BTreeSet<char>> = BTreeMap::new();
    for record in records {
        let (a, b) = (
            fold(record.protocol, record.orig),
            fold(record.protocol, record.resp),
        );
        add(&mut ours, record.protocol, 0, a, b, record.packets, record.bytes);
        let seen = flags.entry((record.protocol, a.min(b), a.max(b), 0)).or_default();
        seen.extend(record.flags.iter().flat_map(|f| f.chars()));
    }
    let expected: Value = serde_json::from_str(expected).expect("JSON");
    let mut theirs = Table::new();
    let mut their_flags: BTreeMap<Key, BTreeSet<char>> = BTreeMap::new();
    for session in expected["sessions3"].as_array().expect("sessions") {
        let body = &session["body"];
        // LLDP, IS-IS and other frames without IP are sessions there.
        if body["ipProtocol"].as_u64() == Some(0) {
            continue;
        }
        let protocol = body["ipProtocol"].as_u64().expect("a protocol") as u8;
        let [a, b] = ["source", "destination"].map(|name| {
            let addr: IpAddr = body[name]["ip"]
                .as_str()
                .and_then(|a| a.parse().ok())
                .expect("an address");
            fold(protocol, (addr, body[name]["port"].as_u64().unwrap_or(0) as u16))
        });
        let both = |what: &str| ["source", "destination"].map(|n| body[n][what].as_u64().expect("a count"));
        add(&mut theirs, protocol, 0, a, b, both("packets"), both("bytes"));
        if let Some(counts) = body["tcpflags"].as_object() {
            let seen = their_flags.entry((protocol, a.min(b), a.max(b), 0)).or_default();
            for (name, _) in counts.iter().filter(|(_, count)| count.as_u64() > Some(0)) {
                seen.extend(letters(name).chars());
            }
        }
    }
    let mut found = differences(&ours, &theirs);
    for (key, expected) in &their_flags {
        if flags.get(key) != Some(expected) {
            found.push(format!(
                "{key:?}: expected flags {expected:?}, recorded {:?}",
                flags.get(key)
            ));
        }
    }
    found
}

fn fold(protocol: u8, (addr, port): (IpAddr, u16)) -> (IpAddr, u16) {
    (addr, if matches!(protocol, 6 | 17 | 132) { port } else { 0 })
}

fn letters(name: &str) -> &'static str {
    match name {
        "syn" => "S",
        "syn-ack" => "SA",
        "ack" => "A",
        "fin" => "F",
        "rst" => "R",
        "psh" => "P",
        "urg" => "U",
        "ece" => "E",
        "cwr" => "C",
        _ => "",
    }
}

/// The record as it would be had the later fragments, so many from 10.0.0.1 and so many to it, been
/// part of their first.
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

/// Packets and bytes of all records.
fn totals(records: &[Record]) -> [u64; 2] {
    records.iter().fold([0; 2], |[packets, bytes], record| {
        [
            packets + record.packets.iter().sum::<u64>(),
            bytes + record.bytes.iter().sum::<u64>(),
        ]
    })
}

/// Packets and bytes of all sessions.
fn expected_totals(expected: &str) -> [u64; 2] {
    let expected: Value = serde_json::from_str(expected).expect("JSON");
    let sessions = expected["sessions3"].as_array().expect("sessions").iter();
    sessions.fold([0; 2], |[packets, bytes], session| {
        let network = &session["body"]["network"];
        let count = |what: &str| network[what].as_u64().expect("a count");
        [packets + count("packets"), bytes + count("bytes")]
    })
}
