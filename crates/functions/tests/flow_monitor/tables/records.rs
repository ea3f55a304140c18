//! The monitor's records, read back from JSON lines.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One record.
#[derive(Clone, Debug)]
pub struct Record {
    pub protocol: u8,
    pub orig: (IpAddr, u16),
    pub resp: (IpAddr, u16),
    pub vlan: u16,
    pub start: f64,
    pub end: f64,
    /// From the opener, and to it.
    pub packets: [u64; 2],
    pub bytes: [u64; 2],
    pub ip_bytes: [u64; 2],
    pub flags: [String; 2],
    pub history: String,
    pub state: String,
    pub icmp_errors: u64,
}

/// The flow records among the lines of an event log, in order.
pub fn read(lines: &str) -> Vec<Record> {
    lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error} in {line}")))
        .filter(|value| value["function"] == "flow_monitor" && value["event"] == "flow")
        .map(|value| record(&value))
        .collect()
}

fn record(value: &Value) -> Record {
    let number = |name: &str| {
        value[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {value}"))
    };
    let text = |name: &str| {
        value[name]
            .as_str()
            .unwrap_or_else(|| panic!("{name} in {value}"))
            .to_string()
    };
    let both = |what: &str| [number(&format!("orig_{what}")), number(&format!("resp_{what}"))];
    let end = |name: &str| {
        let addr = text(name).parse().expect("an address");
        (addr, number(&format!("{name}_port")) as u16)
    };
    Record {
        protocol: number("protocol_number") as u8,
        orig: end("orig"),
        resp: end("resp"),
        vlan: number("vlan") as u16,
        start: value["start"].as_f64().expect("a time"),
        end: value["end"].as_f64().expect("a time"),
        packets: both("packets"),
        bytes: both("bytes"),
        ip_bytes: both("ip_bytes"),
        flags: [text("orig_flags"), text("resp_flags")],
        history: text("history"),
        state: text("state"),
        icmp_errors: number("icmp_errors"),
    }
}

/// The key by which records are summed: protocol, smaller end, larger end, VLAN.
pub type Key = (u8, (IpAddr, u16), (IpAddr, u16), u16);

/// Packets and bytes from the smaller end to the larger and back.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sums {
    pub packets: [u64; 2],
    pub bytes: [u64; 2],
}

/// Sums by protocol, ends and VLAN.
pub type Table = BTreeMap<Key, Sums>;

/// Adds one direction pair to a table, in canonical order; pairs of the same key are summed.
pub fn add(
    table: &mut Table,
    protocol: u8,
    vlan: u16,
    a: (IpAddr, u16),
    b: (IpAddr, u16),
    packets: [u64; 2],
    bytes: [u64; 2],
) {
    let swapped = a > b;
    let (first, second) = if swapped { (b, a) } else { (a, b) };
    let sums = table.entry((protocol, first, second, vlan)).or_default();
    for side in 0..2 {
        let from = if swapped { 1 - side } else { side };
        sums.packets[side] += packets[from];
        sums.bytes[side] += bytes[from];
    }
    // A flow between an end and itself has no directions to tell apart.
    if first == second {
        for pair in [&mut sums.packets, &mut sums.bytes] {
            *pair = [pair[0] + pair[1], 0];
        }
    }
}

/// Lines that say where two tables differ.
pub fn differences(ours: &Table, theirs: &Table) -> Vec<String> {
    let mut found = Vec::new();
    for (key, expected) in theirs {
        match ours.get(key) {
            Some(sums) if sums == expected => {}
            Some(sums) => found.push(format!("{key:?}: expected {expected:?}, recorded {sums:?}")),
            None => found.push(format!("{key:?}: expected {expected:?}, not recorded")),
        }
    }
    for (key, sums) in ours.iter().filter(|(key, _)| !theirs.contains_key(key)) {
        found.push(format!("{key:?}: not expected, recorded {sums:?}"));
    }
    found
}
