//! Answers made in a packet's place: a TCP reset, an ICMP or ICMPv6 error.
//!
//! The packet is turned around: link addresses and IP addresses change places, the headers are
//! written again, and the packet is parsed again. A function then returns `Verdict::Answer`.
//!
//! ```text
//!   eth A>B │ 10.0.0.1 > 192.0.2.9 │ TCP SYN 1000 > 80 │ …
//!   eth B>A │ 192.0.2.9 > 10.0.0.1 │ TCP RST,ACK 80 > 1000                                       tcp_reset
//!   eth B>A │ 192.0.2.9 > 10.0.0.1 │ ICMP 3/13 │ 10.0.0.1 > 192.0.2.9 │ TCP SYN 1000 > 80 │ …    icmp_unreachable
//! ```
//!
//! The answer comes from the address that was asked, as a function on the wire has none of its own;
//! a router's comes from the router ([`icmp_error_from`]).
//!
//! Nothing answers a packet that must not be answered: a later fragment, an ICMP error, a reset, a
//! source-routed packet, whatever was sent to many (multicast, broadcast on the link) or from no
//! single host. Each function then says `false` and the packet is as it was. A damaged packet is
//! answered, too: a caller that does not want that asks [`Packet::checksums_valid`] before. A
//! router's error over IPv6 does go to the sender of a source-routed packet: segment routing and
//! Mobile IPv6 need the path's MTU as others do.
//!
//! Not here: how often to answer (RFC 1812 4.3.2.8 and RFC 4443 2.4 f want a limit).
//!
//! Sources: RFC 1812 4.3.2, RFC 4443 2.4 and 3.1, RFC 9293 3.10.7.1, RFC 6864 (an atomic datagram's
//! identification is 0).

use crate::link::{LinkType, pppoe_length_at};
use crate::packet::{Packet, flag};
use crate::parse::{IcmpClass, icmp_class_in, parse};
use crate::tcp::flags::{ACK, FIN, RST, SYN};
use crate::{Addr, protocol};

/// Hops that an answer may take.
const TTL: u8 = 64;
/// Longest ICMP error, from its IP header on: RFC 1812 4.3.2.3, RFC 4443 2.4 c.
const ERROR_MAX: [usize; 2] = [576, 1280];

/// Why a packet is not delivered, in words that both IP versions have a code for (nftables'
/// `icmpx`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No route to the destination.
    NoRoute,
    /// The host does not answer.
    Host,
    /// No process listens at the port.
    Port,
    /// Forbidden by an administrator.
    Prohibited,
}

impl Unreachable {
    /// The code of Destination Unreachable for IP version 4 or 6 (RFC 792, 1812 5.2.7.1, 4443 3.1).
    pub fn code(self, version: u8) -> u8 {
        match (self, version) {
            (Unreachable::NoRoute, _) => 0,
            (Unreachable::Host, 4) => 1,
            (Unreachable::Host, _) | (Unreachable::Port, 4) => 3,
            (Unreachable::Port, _) => 4,
            (Unreachable::Prohibited, 4) => 13,
            (Unreachable::Prohibited, _) => 1,
        }
    }
}

/// Turns a packet into "destination unreachable" with a code of its IP version (see
/// [`Unreachable::code`]).
pub fn icmp_unreachable(packet: &mut Packet, code: u8) -> bool {
    let kind = if packet.version() == 4 { 3 } else { 1 };
    icmp_error(packet, kind, code, 0)
}

/// Turns a packet into "time exceeded in transit": its time to live is used up.
pub fn time_exceeded(packet: &mut Packet) -> bool {
    let kind = if packet.version() == 4 { 11 } else { 3 };
    icmp_error(packet, kind, 0, 0)
}

/// Turns a packet into "too big" with the next link's `mtu` in bytes (RFC 1191 4, RFC 4443 3.2).
pub fn too_big(packet: &mut Packet, mtu: u16) -> bool {
    let (kind, code) = if packet.version() == 4 { (3, 4) } else { (2, 0) };
    icmp_error(packet, kind, code, u32::from(mtu))
}

/// Turns a packet into an ICMP or ICMPv6 error about it. `rest` is the header's second word.
///
/// `false`, and no change, if it must not be answered or the buffer is too small.
pub fn icmp_error(packet: &mut Packet, kind: u8, code: u8, rest: u32) -> bool {
    let source = packet.destination_addr();
    is_for_the_asked(packet) && icmp_error_from(packet, source, (kind, code), rest)
}

/// Whether [`icmp_error_from`] makes an error of this type of the packet, if its buffer has room.
pub fn may_have_error_from(packet: &Packet, source: Addr, kind: u8) -> bool {
    let too_big = packet.version() == 6 && kind == 2;
    // Over IPv4 the error would have to go back by the same route (RFC 1812 4.3.2.6).
    let is_led = packet.version() == 4 && packet.has(flag::SOURCE_ROUTED);
    source.version() == packet.version() && !is_led && answerable(packet, too_big)
}

/// As [`icmp_error`], from an address of the sender's own, as a router does (RFC 1812 4.3.2.4).
pub fn icmp_error_from(packet: &mut Packet, source: Addr, (kind, code): (u8, u8), rest: u32) -> bool {
    if !may_have_error_from(packet, source, kind) {
        return false;
    }
    let (protocol, header, longest) = match packet.version() {
        4 => (protocol::ICMP, 20, ERROR_MAX[0]),
        _ => (protocol::ICMPV6, 40, ERROR_MAX[1]),
    };
    let (network, end) = (packet.network_offset(), packet.end_offset());
    let quoted = (end - network).min(longest - header - 8);
    let mut back = Back::of(packet, protocol, header + 8 + quoted);
    back.source = source;
    if !packet.set_length((network + header + 8 + quoted).max(end)) {
        return false;
    }
    let ip = &mut packet.frame_mut()[network..];
    ip.copy_within(..quoted, header + 8);
    ip[header..header + 4].copy_from_slice(&[kind, code, 0, 0]);
    ip[header + 4..header + 8].copy_from_slice(&rest.to_be_bytes());
    back.write(packet)
}

/// Turns an ICMP echo request over IPv4 into its reply (RFC 792, RFC 1122 3.2.2.6), with the
/// request's type of service.
///
/// `false`, and no change, if it is none, a fragment, not all there, damaged, or must not be
/// answered.
pub fn echo_reply(packet: &mut Packet) -> bool {
    let is_echo = packet.version() == 4
        && packet.protocol() == protocol::ICMP
        && matches!(packet.transport(), [8, 0, _, _, _, _, _, _, ..]);
    let is_whole = !packet.has(flag::FIRST_FRAGMENT | flag::CUT_SHORT) && packet.checksums_valid();
    if !is_echo || !is_whole || !is_for_the_asked(packet) || !answerable(packet, false) {
        return false;
    }
    let (network, transport, end) = (
        packet.network_offset(),
        packet.transport_offset(),
        packet.end_offset(),
    );
    let back = Back::of(packet, protocol::ICMP, 20 + end - transport);
    let service = packet.network().get(1).copied().unwrap_or(0);
    let frame = packet.frame_mut();
    frame.copy_within(transport..end, network + 20);
    frame[network + 20] = 0;
    if !back.write(packet) {
        return false;
    }
    packet.network_mut()[1] = service;
    packet.fill_checksums()
}

/// Turns a TCP segment into the reset that a host sends for a connection that does not exist (RFC
/// 9293 3.10.7.1).
///
/// `false`, and no change, if it is no TCP segment, a reset itself, a fragment, or must not be
/// answered.
pub fn tcp_reset(packet: &mut Packet) -> bool {
    let Some(segment) = packet.tcp() else { return false };
    let is_part = packet.has(flag::FIRST_FRAGMENT);
    if segment.flags() & RST != 0 || is_part || !is_for_the_asked(packet) || !answerable(packet, false) {
        return false;
    }
    let (sequence, acknowledgement, flags) = if segment.flags() & ACK != 0 {
        (segment.acknowledgement(), 0, RST)
    } else {
        let controls = u32::from(segment.flags() & SYN != 0) + u32::from(segment.flags() & FIN != 0);
        let length = segment.payload_length() + controls;
        (0, segment.sequence().wrapping_add(length), RST | ACK)
    };
    let mut reset = [0; 20];
    reset[..2].copy_from_slice(&packet.destination_port().to_be_bytes());
    reset[2..4].copy_from_slice(&packet.source_port().to_be_bytes());
    reset[4..8].copy_from_slice(&sequence.to_be_bytes());
    reset[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
    reset[12..14].copy_from_slice(&[5 << 4, flags]);

    let header = if packet.version() == 4 { 20 } else { 40 };
    let network = packet.network_offset();
    let back = Back::of(packet, protocol::TCP, header + 20);
    if !packet.set_length(network + header + 20) {
        return false;
    }
    packet.frame_mut()[network + header..].copy_from_slice(&reset);
    back.write(packet)
}

/// Whether the destination is the last one: else an answer from there would not be its own.
fn is_for_the_asked(packet: &Packet) -> bool {
    !packet.has(flag::SOURCE_ROUTED)
}

/// RFC 1812 4.3.2.7 and RFC 4443 2.4 e. `too_big` may go to a sender to a group.
fn answerable(packet: &Packet, too_big: bool) -> bool {
    // Labels lead one way: an answer under them would be sent where another router means them to
    // lead.
    const NEVER: u16 = flag::LATER_FRAGMENT | flag::ICMP_ERROR | flag::LABELLED;
    if !packet.has(flag::PARSED) || packet.has(NEVER) {
        return false;
    }
    // Errors that quote nothing are errors, too, and so are redirects.
    let kind = packet.transport().first().copied().unwrap_or(0);
    let is_error = icmp_class_in(packet.version(), packet.protocol(), kind) == IcmpClass::Error;
    let is_redirect = packet.version() == 6 && packet.protocol() == protocol::ICMPV6 && kind == 137;
    if is_error || is_redirect || !is_one_host(packet.source_addr()) {
        return false;
    }
    let to_many = sent_to_many(packet) || !is_one_host(packet.destination_addr());
    !to_many || (too_big && is_group(packet.destination_addr()))
}

fn is_group(addr: Addr) -> bool {
    addr.as_v4()
        .map_or(addr.octets()[0] == 0xff, |v4| v4[0] & 0xf0 == 0xe0)
}

/// Neither unspecified nor multicast nor broadcast, as far as the address alone tells. Loopback
/// counts as a host: captures of it are run through chains.
fn is_one_host(addr: Addr) -> bool {
    !is_group(addr) && addr != Addr::UNSPECIFIED && addr.as_v4().is_none_or(|v4| v4[0] != 0 && v4[0] < 0xf0)
}

/// Whether the link layer says that the frame was for more than one station.
fn sent_to_many(packet: &Packet) -> bool {
    let frame = packet.frame();
    match packet.link() {
        LinkType::Ethernet => frame[0] & 1 != 0,
        // Packet type: 1 broadcast, 2 multicast.
        LinkType::LinuxSll => matches!(frame[1], 1 | 2),
        LinkType::LinuxSll2 => matches!(frame[10], 1 | 2),
        LinkType::Raw | LinkType::Loopback => false,
    }
}

/// The answer's header fields: collected before anything is written over.
struct Back {
    version: u8,
    source: Addr,
    destination: Addr,
    protocol: u8,
    /// Of the answer, from its IP header on.
    length: usize,
}

impl Back {
    fn of(packet: &Packet, protocol: u8, length: usize) -> Self {
        Back {
            version: packet.version(),
            source: packet.destination_addr(),
            destination: packet.source_addr(),
            protocol,
            length,
        }
    }

    /// Writes link and IP header and the checksums, and parses. The transport stands where it
    /// belongs.
    fn write(&self, packet: &mut Packet) -> bool {
        let (link, network) = (packet.link(), packet.network_offset());
        if !packet.set_length(network + self.length) {
            return false;
        }
        turn_link(packet.frame_mut(), link, self.length);
        let ip = &mut packet.frame_mut()[network..];
        match (self.source.as_v4(), self.destination.as_v4()) {
            (Some(source), Some(destination)) => {
                // ICMP errors have precedence 6, internetwork control (RFC 1812 4.3.2.5).
                let service = if self.protocol == protocol::ICMP { 0xc0 } else { 0 };
                ip[..2].copy_from_slice(&[0x45, service]);
                ip[2..4].copy_from_slice(&(self.length as u16).to_be_bytes());
                // Identification 0, do not fragment.
                ip[4..12].copy_from_slice(&[0, 0, 0x40, 0, TTL, self.protocol, 0, 0]);
                ip[12..16].copy_from_slice(&source);
                ip[16..20].copy_from_slice(&destination);
            }
            _ => {
                ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
                ip[4..6].copy_from_slice(&((self.length - 40) as u16).to_be_bytes());
                ip[6..8].copy_from_slice(&[self.protocol, TTL]);
                ip[8..24].copy_from_slice(self.source.octets());
                ip[24..40].copy_from_slice(self.destination.octets());
            }
        }
        packet.clear_flags(flag::HAIRPIN);
        debug_assert_eq!(self.version, self.source.version());
        parse(packet).is_ok() && packet.fill_checksums()
    }
}

/// Swaps the link addresses, where there are two, and mends the length of a PPPoE session's frame.
fn turn_link(frame: &mut [u8], link: LinkType, length: usize) {
    if let Some(at) = pppoe_length_at(frame, link) {
        frame[at..at + 2].copy_from_slice(&(length as u16 + 2).to_be_bytes());
    }
    match link {
        LinkType::Ethernet => {
            let (to, from) = frame[..12].split_at_mut(6);
            to.swap_with_slice(from);
        }
        // Packet type 4: sent by us.
        LinkType::LinuxSll => frame[1] = 4,
        LinkType::LinuxSll2 => frame[10] = 4,
        LinkType::Raw | LinkType::Loopback => {}
    }
}

#[cfg(test)]
mod tests;
