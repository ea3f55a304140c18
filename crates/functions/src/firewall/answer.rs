//! Answers to refused packets, and whether a packet's checksums hold.
//!
//! A refused TCP segment is answered by a reset, as if no process listened there (RFC 9293
//! 3.10.7.1); anything else by "destination unreachable, administratively prohibited" (ICMP type 3
//! code 13, RFC 1812 5.2.7.1; ICMPv6 type 1 code 1, RFC 4443 3.1), which quotes the packet. The
//! answer is made in the packet's own buffer: the reset by cutting it down to its headers, the
//! error by growing into the headroom.
//!
//! ```text
//!   before             │ link │ IP │ UDP │ data …
//!   after    │ link' │ IP' │ ICMP │ IP │ UDP │ data … (cut to 576 or 1280 bytes)
//! ```
//!
//! Invariants: no answer to an answer (RST, ICMP error), to a fragment without header, to or from
//! many (RFC 1122 3.2.2, RFC 4443 2.4): [`reject`] is `false` for those and changes nothing.
//! Answers are bounded in number per second (`budget`).
//!
//! Not here: which flows are refused (`rules`).

use nf::Packet;
use wire::checksum::{checksum, fold, sum};
use wire::packet::flag;
use wire::parse::{IcmpClass, icmp_class};
use wire::tcp::flags;
use wire::{Addr, LinkType, parse, protocol};

/// The longest IPv4 error (RFC 1812 4.3.2.3) and IPv6 error (RFC 4443 2.4 c), IP header included.
const ERROR_LENGTH_MAX: [usize; 2] = [576, 1280];
/// Time to live of an answer (IANA's recommended default).
const TTL: u8 = 64;

/// Makes the packet an answer that refuses it; `false`, and the packet unchanged, if it must not
/// have one.
pub(super) fn reject(packet: &mut Packet) -> bool {
    if !may_be_answered(packet) {
        return false;
    }
    let made = match packet.protocol() {
        protocol::TCP => make_reset(packet),
        _ => make_unreachable(packet),
    };
    made.is_some() && parse(packet).is_ok()
}

fn may_be_answered(packet: &Packet) -> bool {
    // Labels lead one way: there is none for the way back.
    if packet.has(flag::LATER_FRAGMENT | flag::ICMP_ERROR | flag::CUT_SHORT | flag::LABELLED) {
        return false;
    }
    if !is_single(packet.source_addr()) || !is_single(packet.destination_addr()) {
        return false;
    }
    // A link-layer broadcast has many readers, whatever the IP address says.
    if packet.link() == LinkType::Ethernet && packet.frame().first().is_some_and(|b| b & 1 != 0) {
        return false;
    }
    match (packet.protocol(), packet.transport()) {
        (protocol::TCP, segment) => segment.get(13).is_some_and(|f| f & flags::RST == 0),
        (p @ (protocol::ICMP | protocol::ICMPV6), [kind, ..]) => icmp_class(p, *kind) != IcmpClass::Error,
        (protocol::ICMP | protocol::ICMPV6, []) => false,
        _ => true,
    }
}

/// Whether the address belongs to one host.
fn is_single(addr: Addr) -> bool {
    match addr.as_v4() {
        Some([first, ..]) => !(first == 0 || first >= 224),
        None => addr != Addr::UNSPECIFIED && addr.octets()[0] != 0xff,
    }
}

fn make_reset(packet: &mut Packet) -> Option<()> {
    let (network, transport) = (packet.network_offset(), packet.transport_offset());
    let tcp = packet.tcp()?;
    let has_ack = tcp.flags() & flags::ACK != 0;
    let taken = tcp.payload_length()
        + u32::from(tcp.flags() & flags::SYN != 0)
        + u32::from(tcp.flags() & flags::FIN != 0);
    let (seq, ack, flags) = if has_ack {
        (tcp.acknowledgement(), 0, flags::RST)
    } else {
        (0, tcp.sequence().wrapping_add(taken), flags::RST | flags::ACK)
    };
    let (source, destination) = (packet.source_addr(), packet.destination_addr());
    let ports = (packet.source_port(), packet.destination_port());
    let header = if packet.version() == 4 { 20 } else { 40 };
    let mut segment = [0u8; 20];
    segment[..2].copy_from_slice(&ports.1.to_be_bytes());
    segment[2..4].copy_from_slice(&ports.0.to_be_bytes());
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment[8..12].copy_from_slice(&ack.to_be_bytes());
    segment[12] = 5 << 4;
    segment[13] = flags;
    let sum = transport_sum(&segment, destination, source, protocol::TCP);
    segment[16..18].copy_from_slice(&(!fold(sum)).to_be_bytes());
    // The frame shrinks (options and data go) or stays; there is room in it from the start.
    debug_assert!(network + header <= transport);
    if !packet.set_length(network + header + 20) {
        return None;
    }
    packet
        .frame_mut()
        .get_mut(network + header..)?
        .copy_from_slice(&segment);
    write_network(packet, network, (destination, source), protocol::TCP, 20)
}

fn make_unreachable(packet: &mut Packet) -> Option<()> {
    let (v4, link) = (packet.version() == 4, packet.network_offset());
    let quoted = packet.end_offset() - link;
    let (header, limit) = if v4 {
        (20, ERROR_LENGTH_MAX[0])
    } else {
        (40, ERROR_LENGTH_MAX[1])
    };
    let (source, destination) = (packet.source_addr(), packet.destination_addr());
    let front = header + 8;
    let length = (quoted + front).min(limit);
    if !packet.grow_front(front) {
        return None;
    }
    packet.frame_mut().copy_within(front..front + link, 0);
    if !packet.set_length(link + length) {
        return None;
    }
    let body = packet.frame_mut().get_mut(link + header..)?;
    let (kind, code, protocol) = if v4 {
        (3, 13, protocol::ICMP)
    } else {
        (1, 1, protocol::ICMPV6)
    };
    body.get_mut(..8)?
        .copy_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
    let sum = if v4 {
        checksum(body)
    } else {
        !fold(transport_sum(body, destination, source, protocol))
    };
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    write_network(packet, link, (destination, source), protocol, length - header)
}

/// Writes a plain IP header and turns the link header around.
fn write_network(
    packet: &mut Packet,
    at: usize,
    (source, destination): (Addr, Addr),
    protocol: u8,
    length: usize,
) -> Option<()> {
    let v4 = source.is_v4();
    let link = packet.link();
    let total = length + if v4 { 20 } else { 40 };
    let frame = packet.frame_mut();
    if v4 {
        let header: &mut [u8; 20] = frame.get_mut(at..)?.first_chunk_mut()?;
        *header = [0; 20];
        header[0] = 0x45;
        header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        header[6] = 0x40;
        header[8] = TTL;
        header[9] = protocol;
        header[12..16].copy_from_slice(&source.low_u32().to_be_bytes());
        header[16..].copy_from_slice(&destination.low_u32().to_be_bytes());
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let header: &mut [u8; 40] = frame.get_mut(at..)?.first_chunk_mut()?;
        *header = [0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        header[6] = protocol;
        header[7] = TTL;
        header[8..24].copy_from_slice(source.octets());
        header[24..].copy_from_slice(destination.octets());
    }
    if link == LinkType::Ethernet && at >= 14 {
        let (to, from) = frame.split_at_mut(6);
        to.swap_with_slice(&mut from[..6]);
        // PPPoE counts what follows its header, two bytes of PPP protocol included (RFC 2516 4).
        if matches!(frame[at - 2..at], [0x00, 0x21 | 0x57]) {
            let length = (total + 2) as u16;
            frame[at - 4..at - 2].copy_from_slice(&length.to_be_bytes());
        }
    }
    Some(())
}

/// The sum over a transport header and its data with the pseudo-header, checksum field included.
fn transport_sum(body: &[u8], source: Addr, destination: Addr, protocol: u8) -> u32 {
    let mut pseudo = body.len() as u32 + u32::from(protocol);
    for addr in [source, destination] {
        pseudo = match addr.as_v4() {
            Some(bytes) => sum(&bytes, pseudo),
            None => sum(addr.octets(), pseudo),
        };
    }
    sum(body, pseudo)
}

/// Whether the transport checksum holds. A checksum that cannot be judged (fragments, captures cut
/// short, UDP without a checksum, protocols without one known here) holds.
pub(super) fn checksum_holds(packet: &Packet) -> bool {
    if packet.has(flag::LATER_FRAGMENT | flag::FIRST_FRAGMENT | flag::CUT_SHORT) {
        return true;
    }
    let body = packet.transport();
    let (source, destination) = (packet.source_addr(), packet.destination_addr());
    let covered = match packet.protocol() {
        protocol::UDP => {
            let Some(header) = body.first_chunk::<8>() else {
                return true;
            };
            if header[6..8] == [0, 0] {
                return true;
            }
            // The length field says what is covered; a wrong one is found elsewhere.
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            match body.get(..length) {
                Some(covered) => covered,
                None => return true,
            }
        }
        protocol::TCP | protocol::ICMPV6 => body,
        protocol::ICMP => return fold(sum(body, 0)) == 0xffff,
        _ => return true,
    };
    fold(transport_sum(covered, source, destination, packet.protocol())) == 0xffff
}
