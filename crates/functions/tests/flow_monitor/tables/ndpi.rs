//! `flow/ndpi/expected/*.tsv`: per flow, packets and bytes each way over the whole file.
//!
//! The files have port 0 for whatever is neither TCP nor UDP, and `-` for no VLAN.

use super::records::{Record, Table, add, differences};
use std::net::IpAddr;
use wire::key::protocol_name;

/// Where the records of a capture differ from an expected file.
pub fn compare(records: &[Record], expected: &str) -> Vec<String> {
    let mut ours = Table::new();
    for record in records {
        let fold = |(addr, port): (IpAddr, u16)| (addr, if has_ports(record.protocol) { port } else { 0 });
        add(
            &mut ours,
            record.protocol,
            record.vlan,
            fold(record.orig),
            fold(record.resp),
            record.packets,
            record.bytes,
        );
    }
    differences(&ours, &read(expected))
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17)
}

/// nDPI's names are those of RFC 5237's registry, or a number.
fn protocol(name: &str) -> u8 {
    let of_name = |number: &u8| protocol_name(*number).to_string().eq_ignore_ascii_case(name);
    let number = name.parse().ok().or_else(|| (0..=u8::MAX).find(of_name));
    number.unwrap_or_else(|| panic!("a protocol that is not known by name here: {name}"))
}

#[test]
fn every_protocol_is_read() {
    let flow = |name: &str| format!("{name}\t10.0.0.1\t0\t10.0.0.2\t0\t3\t300\t1\t100\t-\n");
    for (name, number) in [("TCP", 6), ("ESP", 50), ("AH", 51), ("GRE", 47), ("89", 89)] {
        let table = read(&flow(name));
        assert_eq!(table.keys().map(|key| key.0).collect::<Vec<_>>(), [number]);
    }
}

fn read(expected: &str) -> Table {
    let mut table = Table::new();
    for line in expected.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split('\t').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        let end = |at: usize| (fields[at].parse().expect("an address"), number(at + 1) as u16);
        let protocol = protocol(fields[0]);
        let vlan = fields[9].parse().unwrap_or(0);
        add(
            &mut table,
            protocol,
            vlan,
            end(1),
            end(3),
            [number(5), number(7)],
            [number(6), number(8)],
        );
    }
    table
}
