//! `flow/ndpi/expected/*.tsv`: per flow, packets and bytes each way over the whole file.
//!
//! The files have port 0 for whatever is neither TCP nor UDP, and `-` for no VLAN.

use super::records::{Record, Table, add, differences};
use std::net::IpAddr;

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

fn read(expected: &str) -> Table {
    let mut table = Table::new();
    for line in expected.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split('\t').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        let end = |at: usize| (fields[at].parse().expect("an address"), number(at + 1) as u16);
        let protocol = match fields[0] {
            "TCP" => 6,
            "UDP" => 17,
            "ICMP" => 1,
            "ICMPV6" => 58,
            "IGMP" => 2,
            "SCTP" => 132,
            other => panic!("an unknown protocol {other}"),
        };
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
