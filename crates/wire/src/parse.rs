//! From a frame to where its headers are: every length is looked at here, once.
//!
//! [`parse`] notes in the packet the offsets of the network header, the transport header, the
//! payload and the packet's end, with protocol, ports and VLAN. It is lenient about *content* (a
//! wrong UDP length or a bad checksum is the firewall's business) and strict about *structure*: a
//! header that does not fit is an error with a name, and the packet a counted drop.
//!
//! Parsing writes one thing: an IPv4 header without a length, as a sender leaves it to a device
//! that cuts super-frames into segments, gets the frame's, and a checksum. Otherwise the frame that
//! goes on would be no packet on a wire.
//!
//! ```text
//!   0            14            34     42        60
//!   │ Ethernet    │ IPv4        │ UDP  │ payload │ link padding     the IPv4 header says: 46 bytes
//!                 └ network     └ transport      └ end
//!                                      └ payload
//! ```
//!
//! Invariant: network < transport ≤ payload ≤ end ≤ the frame's length, for every packet that
//! parses (`hostile::tests`, the fuzz target `parse`).
//!
//! Not here: reassembly. A fragment's place is checked only as far as it attacks the host that
//! reassembles.
//!
//! Sources: RFC 791, 8200 (extension headers in any order, at most [`EXTENSIONS_MAX`]), 792, 4443,
//! 9293, 768, 9260, 1858 (hostile fragments), 7112 (a first fragment holds the whole chain), 6946
//! (atomic fragments).

use crate::link::{Between, parse_link};
use crate::packet::{Packet, flag};
use crate::{Addr, Endpoint, LinkType, protocol};

/// More extension headers than this are refused (RFC 8200 sets no bound; an endless chain is an
/// attack).
pub const EXTENSIONS_MAX: usize = 8;

/// Why a frame is no packet that can be processed. Its name is the drop reason in the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The frame ends inside a header.
    Truncated,
    /// It carries neither IPv4 nor IPv6 (ARP, for example).
    NotIp,
    /// A length or version field contradicts the frame.
    Malformed,
}

impl core::fmt::Display for ParseError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            ParseError::Truncated => "the frame ends inside a header",
            ParseError::NotIp => "neither IPv4 nor IPv6",
            ParseError::Malformed => "a length or version field contradicts the frame",
        })
    }
}

impl core::error::Error for ParseError {}

/// The findings of [`parse`], on their way into the packet's notes.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    pub network: u16,
    pub transport: u16,
    pub payload: u16,
    pub end: u16,
    pub vlan: u16,
    pub flags: u16,
    pub ports: [u16; 2],
    pub protocol: u8,
    pub version: u8,
    /// The length to be written into the IPv4 header, which has none; 0 where it has one.
    pub total: u16,
}

/// Parses a packet's frame and notes what it found. Ports of later fragments stay 0 until a caller
/// that saw the first fragment calls [`Packet::set_ports`].
#[inline(always)]
pub fn parse(packet: &mut Packet) -> Result<(), ParseError> {
    match usual(packet) {
        Some(layers) => {
            packet.note_layers(&layers);
            Ok(())
        }
        None => parse_unusual(packet),
    }
}

#[inline(never)]
fn parse_unusual(packet: &mut Packet) -> Result<(), ParseError> {
    match layers(packet) {
        Ok(layers) => {
            packet.note_layers(&layers);
            if layers.total != 0 {
                packet.write_total(layers.total);
            }
            Ok(())
        }
        Err(error) => {
            // An earlier parse's notes no longer hold.
            packet.clear_flags(flag::PARSED);
            Err(error)
        }
    }
}

/// The layers of a usual packet: Ethernet without a tag, IPv4 without options, whole, no fragment,
/// TCP or UDP. Nearly every packet is one, and worth a look of its own, in a third of the
/// instructions. `None` judges nothing; any result is also that of [`layers`]
/// (`tests::a_usual_packet_is_nothing_special`).
#[inline(always)]
fn usual(packet: &Packet) -> Option<Layers> {
    let frame = packet.frame();
    let head: &[u8; 42] = frame.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let total = usize::from(word(16));
    if packet.link() != LinkType::Ethernet
        || word(12) != 0x0800
        || head[14] != 0x45
        || word(20) & 0x3fff != 0
        || total > frame.len() - 14
    {
        return None;
    }
    let protocol = head[23];
    let header = match protocol {
        protocol::TCP => match usize::from(frame.get(46)? >> 4) * 4 {
            length @ 20.. => length,
            _ => return None,
        },
        protocol::UDP => 8,
        _ => return None,
    };
    (20 + header <= total).then(|| Layers {
        network: 14,
        transport: 34,
        payload: 34 + header as u16,
        end: 14 + total as u16,
        vlan: 0,
        flags: 0,
        ports: [word(34), word(36)],
        protocol,
        version: 4,
        total: 0,
    })
}

#[inline]
fn layers(packet: &Packet) -> Result<Layers, ParseError> {
    let frame = packet.frame();
    let link = parse_link(frame, packet.link())?;
    // Bytes on the wire from the IP header on: a capture may hold fewer.
    let wire = (packet.wire_length() as usize).saturating_sub(link.network);
    let mut found = Layers {
        network: link.network as u16,
        vlan: link.vlan,
        ..Layers::default()
    };
    if link.between == Between::Labels {
        found.flags |= flag::LABELLED;
    }
    let header = frame.get(link.network..).ok_or(ParseError::Truncated)?;
    // Bytes of the IP packet in the frame, and where its transport begins, both from the IP header
    // on.
    let (held, transport) = if link.ether_type == 0x0800 {
        ipv4(header, wire, &mut found)?
    } else {
        ipv6(header, wire, &mut found)?
    };
    found.transport = found.network + transport as u16;
    found.payload = found.transport;
    found.end = found.network + held as u16;
    if found.flags & flag::LATER_FRAGMENT == 0 {
        let body = header.get(transport..held).ok_or(ParseError::Truncated)?;
        found.payload += transport_header(body, &mut found)? as u16;
    }
    Ok(found)
}

#[inline]
fn ipv4(header: &[u8], wire: usize, found: &mut Layers) -> Result<(usize, usize), ParseError> {
    let fixed: &[u8; 20] = header.first_chunk().ok_or(ParseError::Truncated)?;
    let header_length = usize::from(fixed[0] & 0x0f) * 4;
    if fixed[0] >> 4 != 4 || header_length < 20 {
        return Err(ParseError::Malformed);
    }
    let mut total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if total == 0 {
        total = total_of_frame(header.len().max(wire), found)?;
    }
    if total < header_length {
        return Err(ParseError::Malformed);
    }
    let held = held(total, header.len(), wire, found)?;
    if held < header_length {
        return Err(ParseError::Truncated);
    }
    found.version = 4;
    found.protocol = fixed[9];
    if header_length > 20 {
        options(&header[20..header_length], found);
    }
    let field = u16::from_be_bytes([fixed[6], fixed[7]]);
    if field & 0x3fff != 0 {
        fragment(field << 3, field & 0x2000 != 0, total - header_length, found)?;
    }
    Ok((held, header_length))
}

/// The length of a packet whose header says 0: all that the frame had on the wire, padding
/// included, as far as a header can say it. Of a packet that an error quotes it is not known.
#[cold]
fn total_of_frame(length: usize, found: &mut Layers) -> Result<usize, ParseError> {
    found.total = u16::try_from(length).map_err(|_| ParseError::Malformed)?;
    Ok(length)
}

/// Notes that an IPv4 header has options. Like a TCP header's they are content, read up to the
/// first that is broken.
#[cold]
fn options(mut rest: &[u8], found: &mut Layers) {
    found.flags |= flag::HAS_OPTIONS;
    loop {
        match *rest {
            [] | [0, ..] | [_] => return,
            [1, ref tail @ ..] => rest = tail,
            [kind, length, ..] => {
                let length = usize::from(length);
                let (2.., Some(option)) = (length, rest.get(..length)) else {
                    return;
                };
                // Loose and strict source route: used up when the pointer is behind the option (RFC
                // 791 3.1).
                if matches!(kind, 131 | 137) && option.get(2).is_some_and(|p| usize::from(*p) <= length) {
                    found.flags |= flag::SOURCE_ROUTED;
                }
                rest = &rest[length..];
            }
        }
    }
}

/// Notes a fragment of `length` bytes at `offset`. Refuses packets that attack reassembly: a second
/// fragmentation, an end behind the longest packet, and a TCP header continued at its ninth byte,
/// over flags already judged (RFC 1858 3.2).
#[cold]
fn fragment(offset: u16, more: bool, length: usize, found: &mut Layers) -> Result<(), ParseError> {
    let again = found.flags & (flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT) != 0;
    if again || usize::from(offset) + length > 65_535 || (offset == 8 && found.protocol == protocol::TCP) {
        return Err(ParseError::Malformed);
    }
    if offset != 0 {
        found.flags |= flag::LATER_FRAGMENT;
    } else if more {
        found.flags |= flag::FIRST_FRAGMENT;
    }
    Ok(())
}

fn ipv6(header: &[u8], wire: usize, found: &mut Layers) -> Result<(usize, usize), ParseError> {
    let fixed: &[u8; 40] = header.first_chunk().ok_or(ParseError::Truncated)?;
    if fixed[0] >> 4 != 6 {
        return Err(ParseError::Malformed);
    }
    // An IPv4-mapped address never belongs on the wire (RFC 4291 2.5.5.2); taken in, it would pass
    // for IPv4.
    let mapped = |bytes: &[u8]| bytes.first_chunk::<16>().is_some_and(|b| Addr::v6(*b).is_v4());
    if mapped(&fixed[8..24]) || mapped(&fixed[24..40]) {
        return Err(ParseError::Malformed);
    }
    let total = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let held = held(total, header.len(), wire, found)?;
    found.version = 6;
    let mut next = fixed[6];
    let mut at = 40;
    for _ in 0..=EXTENSIONS_MAX {
        let length = match next {
            // Hop-by-hop, routing, destination options, mobility, HIP, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => {
                // A routing header with segments left, of any type: of the unknown ones it is not
                // known whose address the checksum covers.
                if next == 43 && byte(header, at + 3, held)? != 0 {
                    found.flags |= flag::SOURCE_ROUTED;
                }
                8 + 8 * usize::from(byte(header, at + 1, held)?)
            }
            44 => {
                let field = u16::from_be_bytes([byte(header, at + 2, held)?, byte(header, at + 3, held)?]);
                // A fragment header has the protocol of the data for all fragments.
                found.protocol = byte(header, at, held)?;
                fragment(
                    field & 0xfff8,
                    field & 1 != 0,
                    total.saturating_sub(at + 8),
                    found,
                )?;
                8
            }
            // An authentication header ends the chain for us, as it does for IPv4: the flow is the
            // AH association.
            _ => {
                found.protocol = next;
                return Ok((held, at));
            }
        };
        found.flags |= flag::HAS_OPTIONS;
        next = byte(header, at, held)?;
        at += length;
        if at > held {
            return Err(ParseError::Truncated);
        }
        if found.flags & flag::LATER_FRAGMENT != 0 {
            return Ok((held, at));
        }
    }
    Err(ParseError::Malformed)
}

impl Packet {
    /// Whether a routing header of type 0 leads a parsed IPv6 packet on: no node heeds it (RFC
    /// 5095). Other types do with [`flag::SOURCE_ROUTED`]: Mobile IPv6, segment routing.
    #[cold]
    pub fn has_type_0_route(&self) -> bool {
        if self.version() != 6 || !self.has(flag::SOURCE_ROUTED) {
            return false;
        }
        let header = self.network();
        let (mut next, mut at) = (header.get(6).copied(), 40);
        // The chain was read to its end before.
        while let Some(kind @ (0 | 43 | 44 | 60 | 135 | 139 | 140)) = next {
            let Some([following, length, route, left]) = header.get(at..).and_then(<[u8]>::first_chunk)
            else {
                return false;
            };
            match kind {
                43 if *route == 0 && *left != 0 => return true,
                // Data are behind it, no header.
                44 if self.has(flag::LATER_FRAGMENT) => return false,
                44 => at += 8,
                _ => at += 8 + 8 * usize::from(*length),
            }
            next = Some(*following);
        }
        false
    }
}

/// How much of a packet of `total` bytes is there, where `captured` bytes are, out of `wire`.
#[inline]
fn held(total: usize, captured: usize, wire: usize, found: &mut Layers) -> Result<usize, ParseError> {
    if total <= captured {
        Ok(total)
    } else if total <= wire {
        found.flags |= flag::CUT_SHORT;
        Ok(captured)
    } else {
        Err(ParseError::Truncated)
    }
}

#[inline]
fn byte(header: &[u8], at: usize, held: usize) -> Result<u8, ParseError> {
    if at < held {
        header.get(at).copied().ok_or(ParseError::Truncated)
    } else {
        Err(ParseError::Truncated)
    }
}

/// Reads ports or identifier; answers the transport header's length.
#[inline]
fn transport_header(body: &[u8], found: &mut Layers) -> Result<usize, ParseError> {
    let cut_short = found.flags & flag::CUT_SHORT != 0;
    let needed = match found.protocol {
        protocol::TCP => 20,
        protocol::UDP | protocol::UDPLITE | protocol::ICMP | protocol::ICMPV6 => 8,
        protocol::SCTP => 12,
        // The rest has no ports: the addresses and the protocol are the flow.
        _ => return Ok(0),
    };
    // A capture that was cut short may hold the ports and no more; a fragment may not (RFC 1858,
    // tiny fragments).
    if body.len() < needed && !(cut_short && body.len() >= 8) {
        return if found.protocol == protocol::ICMP || found.protocol == protocol::ICMPV6 {
            // Too brief for ICMP: the packet has a flow (its addresses) and no identifier.
            Ok(body.len())
        } else {
            Err(ParseError::Truncated)
        };
    }
    let word = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    match found.protocol {
        protocol::TCP => {
            found.ports = [word(0), word(2)];
            let Some(offset) = body.get(12) else {
                return Ok(body.len());
            };
            let length = usize::from(offset >> 4) * 4;
            if length < 20 {
                return Err(ParseError::Malformed);
            }
            if length > body.len() {
                return if cut_short {
                    Ok(body.len())
                } else {
                    Err(ParseError::Malformed)
                };
            }
            Ok(length)
        }
        protocol::ICMP | protocol::ICMPV6 => {
            match icmp_class_in(found.version, found.protocol, body[0]) {
                IcmpClass::Query => {
                    found.ports = [word(4); 2];
                    found.flags |= flag::ICMP_QUERY;
                }
                IcmpClass::Error if quoted_in(body, found.version).is_some() => {
                    found.flags |= flag::ICMP_ERROR;
                }
                _ => {}
            }
            Ok(8)
        }
        _ => {
            found.ports = [word(0), word(2)];
            Ok(needed.min(body.len()))
        }
    }
}

/// The class of an ICMP type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpClass {
    /// Echo, timestamp, information or address mask, asked or answered: has an identifier.
    Query,
    /// An error: quotes the packet it is about.
    Error,
    /// Anything else: neighbour and router discovery, redirects that quote nothing, unassigned
    /// types.
    Other,
}

/// Sorts ICMP and ICMPv6 types (RFC 792, 950, 4443).
pub fn icmp_class(protocol: u8, kind: u8) -> IcmpClass {
    match (protocol, kind) {
        (protocol::ICMP, 0 | 8 | 13..=18) | (protocol::ICMPV6, 128 | 129) => IcmpClass::Query,
        (protocol::ICMP, 3 | 4 | 5 | 11 | 12) | (protocol::ICMPV6, 1..=4) => IcmpClass::Error,
        _ => IcmpClass::Other,
    }
}

/// As [`icmp_class`], but ICMP inside IPv6 and ICMPv6 inside IPv4 are protocols like any other.
pub(crate) fn icmp_class_in(version: u8, protocol: u8, kind: u8) -> IcmpClass {
    match (version, protocol) {
        (4, protocol::ICMP) | (6, protocol::ICMPV6) => icmp_class(protocol, kind),
        _ => IcmpClass::Other,
    }
}

/// The packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Source of the quoted packet, as it was when the error's sender saw it.
    pub source: Endpoint,
    /// Its destination.
    pub destination: Endpoint,
    /// Its transport protocol.
    pub protocol: u8,
    /// Offset of its IP header in the error's frame.
    pub network: usize,
    /// Offset of its transport header in the error's frame.
    pub transport: usize,
    /// Offset of its end, as far as it is quoted: behind it may be padding and extensions (RFC
    /// 4884).
    pub end: usize,
    /// Whether the quotation holds the whole packet.
    pub whole: bool,
}

/// The packet quoted by a parsed ICMP error, `None` for any other packet.
pub fn quoted(packet: &Packet) -> Option<Quoted> {
    if !packet.has(flag::ICMP_ERROR) {
        return None;
    }
    let mut quoted = quoted_in(packet.transport(), packet.version())?;
    quoted.network += packet.transport_offset();
    quoted.transport += packet.transport_offset();
    quoted.end += packet.transport_offset();
    Some(quoted)
}

/// Offsets count from the ICMP header.
fn quoted_in(icmp: &[u8], version: u8) -> Option<Quoted> {
    let inner = icmp.get(8..)?;
    let mut found = Layers::default();
    let (held, transport, source, destination) = if version == 4 {
        let (held, transport) = ipv4(inner, usize::MAX, &mut found).ok()?;
        let addr = |at: usize| inner.get(at..)?.first_chunk::<4>().map(|b| Addr::v4(*b));
        (held, transport, addr(12)?, addr(16)?)
    } else {
        let (held, transport) = ipv6(inner, usize::MAX, &mut found).ok()?;
        let addr = |at: usize| inner.get(at..)?.first_chunk::<16>().map(|b| Addr::v6(*b));
        (held, transport, addr(8)?, addr(24)?)
    };
    if found.flags & flag::LATER_FRAGMENT != 0 {
        return None;
    }
    let body = inner.get(transport..held)?;
    // The eight bytes that every error quotes (RFC 792), of the protocols that have anything in
    // them.
    let word = |at: usize| {
        let start = body.first_chunk::<8>()?;
        Some(u16::from_be_bytes([start[at], start[at + 1]]))
    };
    let ports = match found.protocol {
        protocol::TCP | protocol::UDP | protocol::UDPLITE | protocol::SCTP => [word(0)?, word(2)?],
        protocol::ICMP | protocol::ICMPV6 => {
            word(0)?;
            match icmp_class_in(version, found.protocol, body[0]) {
                IcmpClass::Query => [word(4)?; 2],
                // No error is sent about an error (RFC 1122 3.2.2).
                IcmpClass::Error => return None,
                IcmpClass::Other => [0; 2],
            }
        }
        _ => [0; 2],
    };
    Some(Quoted {
        source: Endpoint::new(source, ports[0]),
        destination: Endpoint::new(destination, ports[1]),
        protocol: found.protocol,
        network: 8,
        transport: 8 + transport,
        end: 8 + held,
        whole: found.flags & (flag::CUT_SHORT | flag::FIRST_FRAGMENT) == 0,
    })
}

#[cfg(test)]
mod tests;
