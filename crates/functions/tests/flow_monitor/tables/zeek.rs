//! `flow/zeek-conn/conn-baseline/*.log`: Zeek's connections with state, history, packets and IP
//! bytes.
//!
//! Zeek keys ICMP by type, so ICMP is summed by addresses. It sees no VLAN here. Where its history
//! has `^`, it took the ends the other way round than they came. Records do so at a SYN,ACK only
//! (`^h`): otherwise directions are not compared.

use super::records::Record;
use std::collections::BTreeMap;
use std::net::IpAddr;

type End = (IpAddr, u16);

/// One or more connections between the same ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// From the opener, and to it.
    pub packets: [u64; 2],
    pub ip_bytes: [u64; 2],
    /// State and history of each, in the order of the file.
    pub went: Vec<(String, String)>,
}

type Table = BTreeMap<(u8, End, End), Connections>;

/// The result of a comparison.
#[derive(Default)]
pub struct Comparison {
    /// Connections between different ends in the file.
    pub expected: usize,
    /// Connections that were compared in full.
    pub equal: usize,
    /// Openers for which packets and bytes are equal in sum, but Zeek made another number of
    /// connections of them.
    pub split: Vec<String>,
    /// All else.
    pub different: Vec<String>,
}

/// Compares the records of a capture with an expected file.
pub fn compare(records: &[Record], expected: &str) -> Comparison {
    let theirs = read(expected);
    let ours = ours(records, &theirs);
    let mut found = Comparison {
        expected: theirs.len(),
        ..Comparison::default()
    };
    for (key, expected) in &theirs {
        let Some(recorded) = ours.get(key) else {
            found
                .different
                .push(format!("{key:?}: expected {expected:?}, not recorded"));
            continue;
        };
        let is_flipped = |history: &str| history.contains('^') && !history.starts_with("^h");
        let flipped = expected.went.iter().any(|(_, history)| is_flipped(history));
        let sums_equal = same(expected.packets, recorded.packets, flipped)
            && same(expected.ip_bytes, recorded.ip_bytes, flipped);
        let went = expected
            .went
            .iter()
            .map(|went| plain(went, flipped))
            .collect::<Vec<_>>();
        let recorded_went = recorded
            .went
            .iter()
            .map(|went| plain(went, flipped))
            .collect::<Vec<_>>();
        if sums_equal && (went == recorded_went || key.0 == 1 || key.0 == 58) {
            found.equal += 1;
        } else if sums_equal && went.len() != recorded_went.len() {
            found.split.push(format!("{}:{}", key.1.0, key.1.1));
        } else {
            found
                .different
                .push(format!("{key:?}: expected {expected:?}, recorded {recorded:?}"));
        }
    }
    for (key, recorded) in ours.iter().filter(|(key, _)| !theirs.contains_key(key)) {
        found
            .different
            .push(format!("{key:?}: not expected, recorded {recorded:?}"));
    }
    found
}

fn same(expected: [u64; 2], recorded: [u64; 2], flipped: bool) -> bool {
    expected == recorded || (flipped && expected == [recorded[1], recorded[0]])
}

fn plain((state, history): &(String, String), flipped: bool) -> (String, String) {
    if flipped {
        (state.clone(), history.replace('^', "").to_lowercase())
    } else {
        (state.clone(), history.clone())
    }
}

/// The records by opener and other end; an ICMP exchange that the file has the other way round is
/// turned.
fn ours(records: &[Record], theirs: &Table) -> Table {
    let mut table = Table::new();
    for record in records {
        let (orig, resp) = (
            fold(record.protocol, record.orig),
            fold(record.protocol, record.resp),
        );
        let turned = theirs.contains_key(&(record.protocol, resp, orig));
        let (key, way) = if turned {
            ((record.protocol, resp, orig), [1, 0])
        } else {
            ((record.protocol, orig, resp), [0, 1])
        };
        let entry = table.entry(key).or_default();
        for (side, from) in way.into_iter().enumerate() {
            entry.packets[side] += record.packets[from];
            entry.ip_bytes[side] += record.ip_bytes[from];
        }
        entry.went.push((record.state.clone(), record.history.clone()));
    }
    table
}

fn fold(protocol: u8, (addr, port): End) -> End {
    (addr, if matches!(protocol, 6 | 17) { port } else { 0 })
}

fn read(expected: &str) -> Table {
    let mut columns: Vec<&str> = Vec::new();
    let mut table = Table::new();
    for line in expected.lines() {
        if let Some(names) = line.strip_prefix("#fields\t") {
            columns = names.split('\t').collect();
        }
        if line.starts_with('#') {
            continue;
        }
        let values: Vec<_> = line.split('\t').collect();
        let value = |name: &str| values[columns.iter().position(|c| *c == name).expect("a column")];
        let count = |name: &str| value(name).parse::<u64>().expect("a number");
        let protocol = count("ip_proto") as u8;
        let end = |addr: &str, port: &str| {
            fold(
                protocol,
                (value(addr).parse().expect("an address"), count(port) as u16),
            )
        };
        let key = (
            protocol,
            end("id.orig_h", "id.orig_p"),
            end("id.resp_h", "id.resp_p"),
        );
        let entry = table.entry(key).or_default();
        for (side, name) in ["orig", "resp"].into_iter().enumerate() {
            entry.packets[side] += count(&format!("{name}_pkts"));
            entry.ip_bytes[side] += count(&format!("{name}_ip_bytes"));
        }
        let history = value("history");
        let history = if history == "-" { "" } else { history };
        entry
            .went
            .push((value("conn_state").to_string(), history.to_string()));
    }
    table
}
