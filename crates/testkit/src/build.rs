//! From a packet in words to its frame.
//!
//! # Theory of operation
//! Frames are written by `etherparse`, so that the checksums the function meets were not computed
//! by the code under test. [`Conversations`] remembers for each pair of TCP ends the numbers of its
//! segments: the first segment from inside begins at 1000, from outside at 5000, and each further
//! one follows on; an acknowledgement covers all that came the other way.
//!
//! Invariant: numbers that the script gives itself are used as they are, and later segments count
//! from them.

use crate::step::{Described, Ends, Transport};
use etherparse::{
    Ethernet2Header, IcmpEchoHeader, Icmpv4Type, Icmpv6Type, IpHeaders, Ipv4Header, Ipv6Header,
    PacketBuilder, PacketBuilderStep, SingleVlanHeader, TcpHeader, VlanHeader, VlanId, icmpv4, icmpv6,
};
use nf::{Endpoint, Packet, Side};
use std::collections::HashMap;
use wire::protocol;
use wire::tcp::flags;

/// The packet that left last, as the answering end sees it.
pub struct Last {
    pub source: Endpoint,
    pub destination: Endpoint,
    pub protocol: u8,
    pub vlan: u16,
    pub exit: Side,
    /// The IP packet, for an ICMP error to quote.
    pub network: Vec<u8>,
    /// The ends it had when it came in, by which its conversation is known.
    pub known_as: (Endpoint, Endpoint),
    /// Whether it was an echo reply.
    pub echo_reply: bool,
}

impl Last {
    pub fn of(packet: &Packet, known_as: (Endpoint, Endpoint)) -> Self {
        let kind = packet.transport().first().copied();
        Last {
            source: packet.source(),
            destination: packet.destination(),
            protocol: packet.protocol(),
            vlan: packet.vlan(),
            exit: packet.exit(),
            network: packet.network().to_vec(),
            known_as,
            echo_reply: matches!(
                (packet.protocol(), kind),
                (protocol::ICMP, Some(0)) | (protocol::ICMPV6, Some(129))
            ),
        }
    }
}

/// A frame, where it comes in, and the ends by which its conversation is known.
pub struct Built {
    pub frame: Vec<u8>,
    pub side: Side,
    pub known_as: (Endpoint, Endpoint),
}

/// TCP numbers by the conversation's ends: the next sequence number from the first to the second.
#[derive(Default)]
pub struct Conversations(HashMap<(Endpoint, Endpoint), u32>);

impl Conversations {
    /// The frame of a described packet, or why there can be none.
    pub fn build(&mut self, described: &Described, last: Option<&Last>) -> Result<Built, String> {
        let mut whole = described.clone();
        let (source, destination, known_as) = match described.ends {
            Ends::Of(source, destination) => (source, destination, (source, destination)),
            Ends::Answer => {
                let last = last.ok_or("it answers the packet that left last, but none has left")?;
                whole.side = last.exit;
                whole.transport = same_transport(last)?;
                whole.vlan = described.vlan.or((last.vlan != 0).then_some(last.vlan));
                (last.destination, last.source, (last.known_as.1, last.known_as.0))
            }
        };
        if let Some(router) = described.unreachable_from {
            let quoted = match (described.ends, last) {
                (Ends::Answer, Some(last)) => last.network.clone(),
                _ => self.network(&whole, source, destination, known_as),
            };
            let to = if matches!(described.ends, Ends::Answer) {
                destination
            } else {
                source
            };
            if router.version() != to.addr.version() {
                return Err(format!("the router {router} is of another IP version than {to}"));
            }
            let frame = unreachable(&whole, Endpoint::new(router, 0), to, &quoted);
            return Ok(Built {
                frame,
                side: whole.side,
                known_as,
            });
        }
        let frame = self.frame(&whole, source, destination, known_as);
        Ok(Built {
            frame,
            side: whole.side,
            known_as,
        })
    }

    fn frame(
        &mut self,
        d: &Described,
        source: Endpoint,
        destination: Endpoint,
        known_as: (Endpoint, Endpoint),
    ) -> Vec<u8> {
        let ip = link(d).ip(ip_headers(d.ttl, source, destination));
        let mut frame = Vec::new();
        let v4 = source.addr.is_v4();
        let echo = IcmpEchoHeader {
            id: source.port,
            seq: 1,
        };
        match d.transport {
            Transport::Tcp | Transport::Same => {
                let header = self.tcp(d, source, destination, known_as);
                ip.tcp_header(header).write(&mut frame, &d.payload)
            }
            Transport::Udp => ip
                .udp(source.port, destination.port)
                .write(&mut frame, &d.payload),
            Transport::Ping { reply } if v4 => {
                let kind = if reply {
                    Icmpv4Type::EchoReply(echo)
                } else {
                    Icmpv4Type::EchoRequest(echo)
                };
                ip.icmpv4(kind).write(&mut frame, &d.payload)
            }
            Transport::Ping { reply } => {
                let kind = if reply {
                    Icmpv6Type::EchoReply(echo)
                } else {
                    Icmpv6Type::EchoRequest(echo)
                };
                ip.icmpv6(kind).write(&mut frame, &d.payload)
            }
        }
        .expect("what a script can describe fits into a frame");
        frame
    }

    /// The IP packet without its link header.
    fn network(
        &mut self,
        d: &Described,
        source: Endpoint,
        destination: Endpoint,
        known_as: (Endpoint, Endpoint),
    ) -> Vec<u8> {
        let plain = Described {
            vlan: None,
            ..d.clone()
        };
        self.frame(&plain, source, destination, known_as)
            .split_off(Ethernet2Header::LEN)
    }

    fn tcp(
        &mut self,
        d: &Described,
        source: Endpoint,
        destination: Endpoint,
        known_as: (Endpoint, Endpoint),
    ) -> TcpHeader {
        let (there, back) = (known_as, (known_as.1, known_as.0));
        let next = |ends, side| {
            self.0
                .get(&ends)
                .copied()
                .unwrap_or(if side == Side::Inside { 1000 } else { 5000 })
        };
        let sequence = d.sequence.unwrap_or_else(|| next(there, d.side));
        let acknowledgement = d.acknowledgement.unwrap_or_else(|| next(back, d.side.opposite()));
        let has = |flag: u8| d.flags & flag != 0;
        let length = d.payload.len() as u32 + u32::from(has(flags::SYN)) + u32::from(has(flags::FIN));
        self.0.insert(there, sequence.wrapping_add(length));
        let mut header = TcpHeader::new(source.port, destination.port, sequence, d.window);
        header.acknowledgment_number = if has(flags::ACK) {
            acknowledgement
        } else {
            d.acknowledgement.unwrap_or(0)
        };
        header.fin = has(flags::FIN);
        header.syn = has(flags::SYN);
        header.rst = has(flags::RST);
        header.psh = has(flags::PSH);
        header.ack = has(flags::ACK);
        header.urg = has(flags::URG);
        header.ece = has(flags::ECE);
        header.cwr = has(flags::CWR);
        header
            .set_options_raw(&d.options)
            .expect("at most 40 bytes, as the step saw to");
        header
    }
}

fn same_transport(last: &Last) -> Result<Transport, String> {
    Ok(match last.protocol {
        protocol::TCP => Transport::Tcp,
        protocol::UDP => Transport::Udp,
        protocol::ICMP | protocol::ICMPV6 => Transport::Ping {
            reply: !last.echo_reply,
        },
        other => {
            return Err(format!(
                "it answers a packet of protocol {other}, and the kit has no answer for that"
            ));
        }
    })
}

/// An ICMP error about `quoted`: RFC 1812 4.3.2.3 (as much as fits into 576 bytes), RFC 4443 3.1
/// (into 1280).
fn unreachable(d: &Described, router: Endpoint, to: Endpoint, quoted: &[u8]) -> Vec<u8> {
    let ip = link(d).ip(ip_headers(64, router, to));
    let mut frame = Vec::new();
    if to.addr.is_v4() {
        let kind = Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Host);
        ip.icmpv4(kind)
            .write(&mut frame, &quoted[..quoted.len().min(576 - 28)])
    } else {
        let kind = Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Address);
        ip.icmpv6(kind)
            .write(&mut frame, &quoted[..quoted.len().min(1280 - 48)])
    }
    .expect("a short ICMP error fits into a frame");
    frame
}

/// Locally administered addresses: 2 is inside, 3 outside.
const INSIDE: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// The header before the IP header.
enum Link {
    Plain(PacketBuilderStep<Ethernet2Header>),
    Tagged(PacketBuilderStep<VlanHeader>),
}

impl Link {
    fn ip(self, headers: IpHeaders) -> PacketBuilderStep<IpHeaders> {
        match self {
            Link::Plain(step) => step.ip(headers),
            Link::Tagged(step) => step.ip(headers),
        }
    }
}

fn link(d: &Described) -> Link {
    let (from, to) = if d.side == Side::Inside {
        (INSIDE, OUTSIDE)
    } else {
        (OUTSIDE, INSIDE)
    };
    let plain = PacketBuilder::ethernet2(from, to);
    match d.vlan.map(VlanId::try_new) {
        Some(Ok(vlan_id)) => Link::Tagged(plain.vlan(VlanHeader::Single(SingleVlanHeader {
            vlan_id,
            ..SingleVlanHeader::default()
        }))),
        _ => Link::Plain(plain),
    }
}

fn ip_headers(ttl: u8, source: Endpoint, destination: Endpoint) -> IpHeaders {
    match (source.addr.as_v4(), destination.addr.as_v4()) {
        (Some(source), Some(destination)) => {
            // Lengths and protocol are the builder's to fill in.
            let header = Ipv4Header {
                time_to_live: ttl,
                source,
                destination,
                ..Ipv4Header::default()
            };
            IpHeaders::Ipv4(header, Default::default())
        }
        _ => {
            let header = Ipv6Header {
                hop_limit: ttl,
                source: *source.addr.octets(),
                destination: *destination.addr.octets(),
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        }
    }
}
