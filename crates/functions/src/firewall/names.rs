//! The names that rules may use for numbers: protocols, ICMP types, TCP flags (IANA's, in lower
//! case).
//!
//! Example: `icmp_type = "echo-request"` is 8 in a rule for `icmp` and 128 in one for `icmpv6`.
//!
//! Not here: reading rules (`meaning`).

use wire::protocol;
use wire::tcp::flags;

/// Transport protocols.
pub(super) const PROTOCOLS: [(&str, u8); 10] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("icmp", protocol::ICMP),
    ("icmpv6", protocol::ICMPV6),
    ("sctp", protocol::SCTP),
    ("udplite", protocol::UDPLITE),
    ("gre", protocol::GRE),
    ("esp", protocol::ESP),
    ("ah", protocol::AH),
    ("igmp", protocol::IGMP),
];

/// ICMP types (RFC 792, 1256).
pub(super) const ICMP_TYPES: [(&str, u8); 6] = [
    ("echo-reply", 0),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
];

/// ICMPv6 types (RFC 4443, 2710, 4861).
pub(super) const ICMPV6_TYPES: [(&str, u8); 9] = [
    ("echo-request", 128),
    ("echo-reply", 129),
    ("listener-query", 130),
    ("listener-report", 131),
    ("listener-done", 132),
    ("router-solicitation", 133),
    ("router-advertisement", 134),
    ("neighbour-solicitation", 135),
    ("neighbour-advertisement", 136),
];

/// TCP flags (RFC 9293 3.1).
pub(super) const FLAGS: [(&str, u8); 8] = [
    ("fin", flags::FIN),
    ("syn", flags::SYN),
    ("rst", flags::RST),
    ("psh", flags::PSH),
    ("ack", flags::ACK),
    ("urg", flags::URG),
    ("ece", flags::ECE),
    ("cwr", flags::CWR),
];
