//! A rule is about the packets of its protocol and about no others, with and without contents.

use super::*;
use crate::ids::Mode;
use testkit::{frame, ping};
use wire::protocol::{ICMP, ICMPV6, SCTP, TCP, UDP};

const GRE: u8 = 47;
const DATA: &[u8] = b"a MARK in it";

/// Whether a rule of this name is about a packet, by Suricata's documentation.
fn is_about(name: &str, version: u8, protocol: u8) -> bool {
    match name {
        "ip" => true,
        "ip4" | "ipv4" => version == 4,
        "ip6" | "ipv6" => version == 6,
        "tcp" | "tcp-pkt" | "tcp-stream" => protocol == TCP,
        "udp" => protocol == UDP,
        "icmp" => protocol == ICMP || protocol == ICMPV6,
        "icmpv4" => protocol == ICMP,
        "icmpv6" => protocol == ICMPV6,
        "sctp" => protocol == SCTP,
        other => panic!("{other} is no protocol"),
    }
}

/// An IP packet with a transport header of its own making.
fn raw(version: u8, protocol: u8, header: &[u8]) -> Step {
    let body = [header, DATA].concat();
    let length = body.len() as u16;
    let mut bytes = [2; 12].to_vec();
    match version {
        4 => {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((length + 20).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1]);
        }
        _ => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([protocol, 64]);
            for last in [1, 2] {
                bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
        }
    }
    bytes.extend(body);
    frame(bytes)
}

/// A conversation of each protocol over both versions, with the data in it.
fn conversations() -> Vec<(u8, u8, Vec<Step>)> {
    let mut all = Vec::new();
    for (version, client, server) in [(4, "10.0.0.1", "192.0.2.1"), (6, "2001:db8::1", "2001:db8::2")] {
        let ends = match version {
            4 => (format!("{client}:1000"), format!("{server}:80")),
            _ => (format!("[{client}]:1000"), format!("[{server}]:80")),
        };
        let stream = tcp(&ends.0, &ends.1);
        let open = [
            stream.syn(),
            stream.reply().syn_ack(),
            stream.ack(),
            stream.payload(DATA),
        ];
        all.push((version, TCP, open.to_vec()));
        let datagram = udp(&ends.0, &ends.1).payload(DATA);
        all.push((version, UDP, [datagram].to_vec()));
        let icmp = if version == 4 { ICMP } else { ICMPV6 };
        all.push((version, icmp, [ping(client, server, 7).payload(DATA)].to_vec()));
        let sctp = [3, 232, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0];
        all.push((version, SCTP, [raw(version, SCTP, &sctp)].to_vec()));
        all.push((version, GRE, [raw(version, GRE, &[0, 0, 8, 0])].to_vec()));
    }
    all
}

#[test]
fn a_rule_is_about_its_protocol_alone() {
    let names = crate::ids::rule::PROTOCOLS;
    let mut compared = 0;
    for (version, protocol, script) in conversations() {
        for (name, _) in names {
            for words in [
                "",
                "content:\"MARK\"; ",
                "content:\"a \"; content:\"MARK\"; distance:0; ",
            ] {
                let expected = is_about(name, version, protocol);
                let case = format!("{name} ({words}) and protocol {protocol} over IPv{version}");
                for action in ["alert", "drop", "pass"] {
                    // Behind a rule that lets pass stands one that would alert.
                    let rules = format!(
                        "{action} {name} any any -> any any ({words}sid:1;)\n\
                         alert ip any any -> any any (content:\"MARK\"; ttl:64; sid:2;)"
                    );
                    let config = Config::from(Settings {
                        rules,
                        mode: Mode::Ips,
                        ..Settings::default()
                    });
                    let outcome = testkit::run::<Ids>(config, script.clone());
                    let alerts = sids(&outcome);
                    let dropped = outcome.dropped("dropped_by_rule") + outcome.dropped("flow_dropped");
                    match action {
                        "pass" => assert_eq!(!alerts.contains(&2), expected, "pass {case}"),
                        _ => assert_eq!(alerts.contains(&1), expected, "{action} {case}"),
                    }
                    assert_eq!(dropped > 0, expected && action == "drop", "{action} {case}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 10 * 13 * 3 * 3);
}
