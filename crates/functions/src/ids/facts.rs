//! The questions of a rule's head and of its words on the packet: addresses, ports, direction,
//! flags, numbers.
//!
//! Not here: contents (`search`), flow bits (`state`).

use super::rule::{Field, Rule};
use nf::Packet;
use wire::packet::flag;
use wire::{Addr, protocol};

/// A packet, as rules ask about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    version: u8,
    protocol: u8,
    source: (u128, u128),
    destination: (u128, u128),
    /// TCP flags.
    flags: Option<u8>,
    /// Sequence and acknowledgement number of a segment.
    numbers: Option<(u32, u32)>,
    ttl: u8,
    /// Bytes of payload, whatever a capture holds of them.
    pub payload_length: u32,
    /// Type and code.
    pub icmp: Option<(u8, u8)>,
    /// Identifier and sequence number.
    icmp_query: Option<(u16, u16)>,
    /// It goes to the server.
    pub to_server: bool,
    /// Its flow is established.
    pub established: bool,
}

fn number(addr: Addr) -> u128 {
    u128::from_be_bytes(*addr.octets())
}

impl Facts {
    pub fn of(packet: &Packet, to_server: bool, established: bool) -> Self {
        let head = packet.transport();
        let is_icmp = matches!(packet.protocol(), protocol::ICMP | protocol::ICMPV6)
            && !packet.has(flag::LATER_FRAGMENT);
        let icmp = match head {
            [kind, code, ..] if is_icmp => Some((*kind, *code)),
            _ => None,
        };
        let icmp_query = match head {
            [_, _, _, _, a, b, c, d, ..] if is_icmp && packet.has(flag::ICMP_QUERY) => {
                Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])))
            }
            _ => None,
        };
        let header = (packet.payload_offset() - packet.transport_offset()) as u32;
        let has_ports = matches!(
            packet.protocol(),
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::UDPLITE
        );
        let port = |port: u16| if has_ports { u128::from(port) } else { 0 };
        Facts {
            version: packet.version(),
            protocol: packet.protocol(),
            source: (number(packet.source_addr()), port(packet.source_port())),
            destination: (number(packet.destination_addr()), port(packet.destination_port())),
            flags: packet.tcp().map(|tcp| tcp.flags()),
            numbers: packet.tcp().map(|tcp| (tcp.sequence(), tcp.acknowledgement())),
            ttl: packet.ttl(),
            payload_length: match packet.tcp() {
                Some(tcp) => tcp.payload_length(),
                None => packet.transport_length().saturating_sub(header),
            },
            icmp,
            icmp_query,
            to_server,
            established,
        }
    }

    /// Whether the packet is as a rule's head and words say.
    pub fn fit(&self, rule: &Rule) -> bool {
        rule.protocol.has(self.version, self.protocol)
            && rule.to_server.is_none_or(|to_server| to_server == self.to_server)
            && rule
                .established
                .is_none_or(|established| established == self.established)
            && rule
                .flags
                .is_none_or(|flags| self.flags.is_some_and(|seen| flags.hold(seen)))
            && rule
                .fields
                .iter()
                .all(|(field, numbers)| self.field(*field).is_some_and(|number| numbers.hold(number)))
            && (self.runs(rule, self.source, self.destination)
                || (rule.both_ways && self.runs(rule, self.destination, self.source)))
    }

    fn runs(&self, rule: &Rule, from: (u128, u128), to: (u128, u128)) -> bool {
        let ((sources, source_ports), (destinations, destination_ports)) = (&rule.source, &rule.destination);
        sources.contains(from.0)
            && destinations.contains(to.0)
            && source_ports.contains(from.1)
            && destination_ports.contains(to.1)
    }

    fn field(&self, field: Field) -> Option<u32> {
        match field {
            Field::PayloadLength => Some(self.payload_length),
            Field::Sequence => self.numbers.map(|numbers| numbers.0),
            Field::Acknowledgement => self.numbers.map(|numbers| numbers.1),
            Field::TimeToLive => Some(u32::from(self.ttl)),
            Field::IpProtocol => Some(u32::from(self.protocol)),
            Field::IcmpType => self.icmp.map(|icmp| u32::from(icmp.0)),
            Field::IcmpCode => self.icmp.map(|icmp| u32::from(icmp.1)),
            Field::IcmpIdentifier => self.icmp_query.map(|query| u32::from(query.0)),
            Field::IcmpSequence => self.icmp_query.map(|query| u32::from(query.1)),
        }
    }
}
