//! An alert as the inside of a line of JSON, with the names of Suricata's EVE.
//!
//! ```text
//!   "timestamp":"2026-11-20T18:46:04.000000+0000","event_type":"alert","src_ip":"10.0.0.1","src_port":1000,
//!   "dest_ip":"192.0.2.1","dest_port":80,"proto":"TCP","alert":{"action":"blocked","gid":1,"signature_id":1,"rev":7,
//!   "signature":"passwd","category":"Attempted Information Leak","severity":2}
//! ```
//!
//! (one line; broken here to be read). Before it stand the event log's own fields: `time`,
//! `runtime`, `function`, `event`. ICMP has `icmp_type` and `icmp_code` instead of ports. Times are
//! the packet's, in UTC.
//!
//! Not here: EVE's other events (flows are the flow monitor's, requests the HTTP parser's).

use super::ruleset::Compiled;
use crate::json::{Text, Timestamp};
use core::fmt::{self, Display, Formatter};
use nf::{Field, Packet};
use wire::protocol;

/// The fields of an alert.
pub(super) const FIELDS: &[Field] = &[
    Field::text("timestamp", "The packet's time, in UTC."),
    Field::text("event_type", "`alert`, as Suricata's EVE has it."),
    Field::text("src_ip", "Source of the packet."),
    Field::number("src_port", "", "Its port."),
    Field::text("dest_ip", "Destination of the packet."),
    Field::number("dest_port", "", "Its port."),
    Field::text("proto", "Protocol."),
    Field::number("icmp_type", "", "ICMP's type, instead of ports."),
    Field::number("icmp_code", "", "ICMP's code."),
    Field::text(
        "alert",
        "An object: action, gid, signature_id, rev, signature, category, severity.",
    ),
];

/// An alert about a packet.
pub(super) struct Alert<'a> {
    pub packet: &'a Packet,
    pub rule: &'a Compiled,
    pub blocked: bool,
    pub icmp: Option<(u8, u8)>,
}

impl Display for Alert<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (packet, rule) = (self.packet, &self.rule.rule);
        write!(
            f,
            "\"timestamp\":\"{}\",\"event_type\":\"alert\",\"src_ip\":\"{}\"",
            Timestamp(packet.timestamp().cast_signed()),
            packet.source_addr(),
        )?;
        let protocol = packet.protocol();
        let has_ports = matches!(
            protocol,
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::UDPLITE
        );
        if has_ports {
            write!(f, ",\"src_port\":{}", packet.source_port())?;
        }
        write!(f, ",\"dest_ip\":\"{}\"", packet.destination_addr())?;
        if has_ports {
            write!(f, ",\"dest_port\":{}", packet.destination_port())?;
        }
        match protocol {
            protocol::TCP => f.write_str(",\"proto\":\"TCP\"")?,
            protocol::UDP => f.write_str(",\"proto\":\"UDP\"")?,
            protocol::ICMP => f.write_str(",\"proto\":\"ICMP\"")?,
            protocol::ICMPV6 => f.write_str(",\"proto\":\"IPv6-ICMP\"")?,
            protocol::SCTP => f.write_str(",\"proto\":\"SCTP\"")?,
            other => write!(f, ",\"proto\":\"{other:03}\"")?,
        }
        if let Some((kind, code)) = self.icmp {
            write!(f, ",\"icmp_type\":{kind},\"icmp_code\":{code}")?;
        }
        write!(
            f,
            ",\"alert\":{{\"action\":\"{}\",\"gid\":{},\"signature_id\":{},\"rev\":{},\"signature\":\"{}\",\
             \"category\":\"{}\",\"severity\":{}}}",
            if self.blocked { "blocked" } else { "allowed" },
            rule.gid,
            rule.sid,
            rule.revision,
            Text(rule.message.as_bytes()),
            self.rule.category,
            self.rule.severity,
        )
    }
}
