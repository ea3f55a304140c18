//! Changing a packet's endpoints, with every checksum that covers them (RFC 1624 for the update, RFC 3022 4 and RFC 5508
//! for what is covered).
//!
//! A UDP checksum of zero means "none" and stays zero (RFC 768); one that *becomes* zero is written as 0xffff. A later
//! fragment has no transport header; a first fragment's checksum is updated like any other, since it covers the whole
//! datagram.

use crate::checksum::Delta;
use crate::packet::{Packet, flag};
use crate::parse::quoted;
use crate::{Endpoint, protocol};

/// Which end of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Source address and port.
    Source,
    /// Destination address and port.
    Destination,
}

impl End {
    /// The other end.
    #[must_use]
    pub fn opposite(self) -> End {
        match self {
            End::Source => End::Destination,
            End::Destination => End::Source,
        }
    }
}

impl Packet {
    /// Writes a new source, address and port (or ICMP identifier), and updates the checksums.
    /// The address must be of the packet's IP version, else nothing changes and the answer is `false`.
    #[inline]
    pub fn set_source(&mut self, to: Endpoint) -> bool {
        self.rewrite(End::Source, to)
    }

    /// Writes a new destination, address and port (or ICMP identifier), and updates the checksums.
    /// The address must be of the packet's IP version, else nothing changes and the answer is `false`.
    #[inline]
    pub fn set_destination(&mut self, to: Endpoint) -> bool {
        self.rewrite(End::Destination, to)
    }

    /// Writes a new endpoint at one end of a packet that is not an ICMP error.
    #[inline]
    pub fn rewrite(&mut self, end: End, to: Endpoint) -> bool {
        debug_assert!(self.has(flag::PARSED));
        let (network, transport, stop) = (self.network_offset(), self.transport_offset(), self.end_offset());
        let version = self.version();
        if to.addr.version() != version {
            return false;
        }
        let has_transport = !self.has(flag::LATER_FRAGMENT);
        let protocol = self.protocol();
        let old_port = if end == End::Source {
            self.source_port()
        } else {
            self.destination_port()
        };
        let frame = self.frame_mut();
        let Some((header, body)) = frame
            .get_mut(network..stop)
            .and_then(|p| p.split_at_mut_checked(transport - network))
        else {
            return false;
        };
        let Some(addresses) = write_address(header, version, end, to) else {
            return false;
        };
        if has_transport {
            write_port(body, protocol, end, old_port, to.port, addresses);
        }
        let (source, destination) = (self.source_port(), self.destination_port());
        match (end, self.has(flag::ICMP_QUERY)) {
            (_, true) => self.set_ports(to.port, to.port),
            (End::Source, _) => self.set_ports(to.port, destination),
            (End::Destination, _) => self.set_ports(source, to.port),
        }
        true
    }

    /// The fast path of a translator: if this is a plain IPv4 TCP or UDP packet (no IP options, not a later fragment, whole
    /// transport header) whose `end` is `old`, writes `new` there, mends the checksums and answers the TCP flags, 0 for
    /// UDP. Otherwise nothing changes and the answer is `None`: [`Packet::rewrite`] is for the rest.
    #[inline]
    pub fn swap_v4(&mut self, end: End, old: ([u8; 4], u16), new: ([u8; 4], u16)) -> Option<u8> {
        const OTHER: u16 = flag::LATER_FRAGMENT | flag::HAS_OPTIONS | flag::ICMP_ERROR | flag::ICMP_QUERY;
        if self.has(OTHER) || self.version() != 4 {
            return None;
        }
        let (network, is_tcp) = (self.network_offset(), self.protocol() == protocol::TCP);
        let udp = self.protocol() == protocol::UDP;
        let (source, destination) = (self.source_port(), self.destination_port());
        let rest = self.frame_mut().get_mut(network..)?;
        // Without options the transport header begins 20 bytes on, so all offsets are constants.
        let (at, port) = match end {
            End::Source => (12, 20),
            End::Destination => (16, 22),
        };
        let addresses = Delta::NONE.long(u32::from_be_bytes(old.0), u32::from_be_bytes(new.0));
        let both = addresses.word(old.1, new.1);
        let flags = if is_tcp {
            let head: &mut [u8; 40] = rest.first_chunk_mut()?;
            swap_end(head, at, port, old, new)?;
            swap_sum(head, 36, both);
            swap_sum(head, 10, addresses);
            head[33]
        } else if udp {
            let head: &mut [u8; 28] = rest.first_chunk_mut()?;
            swap_end(head, at, port, old, new)?;
            swap_sum(head, 10, addresses);
            if head[26..28] != [0, 0] {
                swap_sum(head, 26, both);
                if head[26..28] == [0, 0] {
                    head[26..28].copy_from_slice(&[0xff, 0xff]);
                }
            }
            0
        } else {
            return None;
        };
        match end {
            End::Source => self.set_ports(new.1, destination),
            End::Destination => self.set_ports(source, new.1),
        }
        Some(flags)
    }

    /// Translates an ICMP error together with the packet it quotes (RFC 5508 4): the quoted packet's `end` becomes
    /// `inner`, and the error's own opposite end gets the address `outer` if one is given. Checksums of both are
    /// mended; the quoted transport's checksum is, too, where the quotation holds it.
    pub fn rewrite_quoted(&mut self, end: End, inner: Endpoint, outer: Option<Endpoint>) -> bool {
        let Some(quote) = quoted(self) else { return false };
        let version = self.version();
        if inner.addr.version() != version || outer.is_some_and(|o| o.addr.version() != version) {
            return false;
        }
        let (network, transport, stop) = (self.network_offset(), self.transport_offset(), self.end_offset());
        let old_port = if end == End::Source {
            quote.source.port
        } else {
            quote.destination.port
        };
        let frame = self.frame_mut();
        let Some(inside) = frame.get_mut(quote.network..stop) else {
            return false;
        };
        // Every byte changed inside changes the error's checksum: sum the quoted part before and after.
        let before = crate::checksum::fold(crate::checksum::sum(inside, 0));
        let Some((header, body)) = inside.split_at_mut_checked(quote.transport - quote.network) else {
            return false;
        };
        let Some(addresses) = write_address(header, version, end, inner) else {
            return false;
        };
        write_port(body, quote.protocol, end, old_port, inner.port, addresses);
        let after = crate::checksum::fold(crate::checksum::sum(&frame[quote.network..stop], 0));
        let mut delta = Delta::NONE.word(before, after);
        if let Some(outer) = outer {
            let Some(addresses) =
                write_address(&mut frame[network..transport], version, end.opposite(), outer)
            else {
                return false;
            };
            // ICMPv6 covers a pseudo-header, ICMP does not.
            if version == 6 {
                delta = delta.and(addresses.0);
            }
        }
        update(&mut frame[transport..stop], 2, delta);
        true
    }

    /// Takes one from the time to live (IPv4) or hop limit (IPv6); `false`, and no change, if it would reach zero.
    pub fn decrement_ttl(&mut self) -> bool {
        let version = self.version();
        let header = self.network_mut();
        if version == 4 {
            let Some(fixed) = header.first_chunk_mut::<20>() else {
                return false;
            };
            if fixed[8] <= 1 {
                return false;
            }
            let old = u16::from_be_bytes([fixed[8], fixed[9]]);
            fixed[8] -= 1;
            let new = u16::from_be_bytes([fixed[8], fixed[9]]);
            update(fixed, 10, Delta::NONE.word(old, new));
            true
        } else {
            match header.get_mut(7) {
                Some(hops) if *hops > 1 => {
                    *hops -= 1;
                    true
                }
                _ => false,
            }
        }
    }
}

/// The change of addresses alone, as the pseudo-header sees it.
#[derive(Clone, Copy)]
struct AddressChange(Delta);

/// Writes address and port if `old` is there; `None`, and no change, if not.
#[inline(always)]
fn swap_end<const N: usize>(
    head: &mut [u8; N],
    at: usize,
    port: usize,
    old: ([u8; 4], u16),
    new: ([u8; 4], u16),
) -> Option<()> {
    if head[at..at + 4] != old.0 || head[port..port + 2] != old.1.to_be_bytes() {
        return None;
    }
    head[at..at + 4].copy_from_slice(&new.0);
    head[port..port + 2].copy_from_slice(&new.1.to_be_bytes());
    Some(())
}

#[inline(always)]
fn swap_sum<const N: usize>(head: &mut [u8; N], at: usize, delta: Delta) {
    let sum = delta.apply(u16::from_be_bytes([head[at], head[at + 1]]));
    head[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[inline]
fn write_address(header: &mut [u8], version: u8, end: End, to: Endpoint) -> Option<AddressChange> {
    if version == 4 {
        let fixed: &mut [u8; 20] = header.first_chunk_mut()?;
        let at = if end == End::Source { 12 } else { 16 };
        let field: &mut [u8; 4] = (&mut fixed[at..at + 4]).try_into().ok()?;
        let old = u32::from_be_bytes(*field);
        let new = to.addr.low_u32();
        *field = new.to_be_bytes();
        let delta = Delta::NONE.long(old, new);
        let sum = delta.apply(u16::from_be_bytes([fixed[10], fixed[11]]));
        fixed[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(AddressChange(delta))
    } else {
        let at = if end == End::Source { 8 } else { 24 };
        let field: &mut [u8; 16] = header.get_mut(at..at + 16)?.try_into().ok()?;
        let old = *field;
        *field = *to.addr.octets();
        Some(AddressChange(Delta::NONE.octets(&old, to.addr.octets())))
    }
}

#[inline]
fn write_port(body: &mut [u8], protocol: u8, end: End, old: u16, new: u16, addresses: AddressChange) {
    let at = if end == End::Source { 0 } else { 2 };
    let delta = addresses.0.word(old, new);
    match protocol {
        protocol::TCP => {
            put(body, at, new);
            update(body, 16, delta);
        }
        protocol::UDP | protocol::UDPLITE => {
            put(body, at, new);
            if body.get(6..8).is_some_and(|sum| sum != [0, 0]) {
                update(body, 6, delta);
                if body[6..8] == [0, 0] {
                    body[6..8].copy_from_slice(&[0xff, 0xff]);
                }
            }
        }
        // The identifier is the "port"; no pseudo-header.
        protocol::ICMP if has_identifier(protocol, body) => {
            put(body, 4, new);
            update(body, 2, Delta::NONE.word(old, new));
        }
        protocol::ICMPV6 => {
            if has_identifier(protocol, body) {
                put(body, 4, new);
                update(body, 2, delta);
            } else {
                update(body, 2, addresses.0);
            }
        }
        // SCTP's CRC covers no address, but it does cover the ports: whoever rewrites SCTP ports recomputes it.
        _ => {}
    }
}

fn has_identifier(protocol: u8, body: &[u8]) -> bool {
    body.len() >= 8 && crate::parse::icmp_class(protocol, body[0]) == crate::parse::IcmpClass::Query
}

#[inline]
fn put(body: &mut [u8], at: usize, value: u16) {
    if let Some(field) = body.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

#[inline]
fn update(body: &mut [u8], at: usize, delta: Delta) {
    if let Some(field) = body.get_mut(at..at + 2) {
        let sum = delta.apply(u16::from_be_bytes([field[0], field[1]]));
        field.copy_from_slice(&sum.to_be_bytes());
    }
}
