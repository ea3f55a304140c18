//! Changing a packet's endpoints, with every checksum that covers them (RFC 1624 for the update,
//! RFC 3022 4 and RFC 5508 for the coverage).
//!
//! A UDP checksum of zero means "none" and stays zero (RFC 768); a checksum that *becomes* zero is
//! written as 0xffff. A later fragment has no transport header; a first fragment's checksum is
//! updated like any other, since it covers the whole datagram. SCTP's CRC covers the ports and no
//! address (RFC 9260 6.8). A checksum that was wrong stays wrong: nothing here makes a damaged
//! packet look sound.
//!
//! ```text
//!   10.0.0.1:1000 > 192.0.2.9:80      set_source(198.51.100.1:4000)
//!   the IP header's sum changes by    !0x0a00 + 0xc633 + !0x0001 + 0x6401
//!   TCP's sum changes by that and     !1000 + 4000
//! ```
//!
//! Invariant: afterwards the packet's notes say what a fresh parse would find
//! (`tests::notes_agree`, the fuzz target `rewrite`).

use crate::checksum::{Delta, sctp_crc};
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
    /// Writes a new source, address and port (or ICMP identifier), and updates the checksums. The
    /// address must be of the packet's IP version, else nothing changes and the answer is `false`.
    #[inline]
    pub fn set_source(&mut self, to: Endpoint) -> bool {
        self.rewrite(End::Source, to)
    }

    /// Writes a new destination, address and port (or ICMP identifier), and updates the checksums.
    /// The address must be of the packet's IP version, else nothing changes and the answer is
    /// `false`.
    #[inline]
    pub fn set_destination(&mut self, to: Endpoint) -> bool {
        self.rewrite(End::Destination, to)
    }

    /// Writes a new endpoint at one end of a packet that is not an ICMP error. A protocol without
    /// ports keeps port 0.
    ///
    /// `false`, and no change, also where the checksum could not be mended: a new destination for a
    /// source-routed packet (the checksum covers another one), a new port for a first fragment of
    /// SCTP.
    #[inline]
    pub fn rewrite(&mut self, end: End, to: Endpoint) -> bool {
        debug_assert!(self.has(flag::PARSED));
        let (network, transport, stop) = (self.network_offset(), self.transport_offset(), self.end_offset());
        let version = self.version();
        if to.addr.version() != version {
            return false;
        }
        let protocol = self.protocol();
        let whole = !self.has(flag::CUT_SHORT);
        let old_port = if end == End::Source {
            self.source_port()
        } else {
            self.destination_port()
        };
        // One test keeps the usual packet away from the special ones.
        let special = self.has(flag::LATER_FRAGMENT | flag::FIRST_FRAGMENT | flag::SOURCE_ROUTED);
        if special && !self.can_be_mended(end, old_port, to.port) {
            return false;
        }
        let has_transport = !special || !self.has(flag::LATER_FRAGMENT);
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
        let port = if has_transport {
            let change = PortChange {
                end,
                old: old_port,
                new: to.port,
            };
            write_port(body, version, protocol, change, addresses, whole)
        } else {
            to.port
        };
        let (source, destination) = (self.source_port(), self.destination_port());
        match (end, self.has(flag::ICMP_QUERY)) {
            (_, true) => self.set_ports(port, port),
            (End::Source, _) => self.set_ports(port, destination),
            (End::Destination, _) => self.set_ports(source, port),
        }
        true
    }

    #[cold]
    fn can_be_mended(&self, end: End, old_port: u16, new_port: u16) -> bool {
        let elsewhere = end == End::Destination && self.has(flag::SOURCE_ROUTED);
        let partial_crc = self.protocol() == protocol::SCTP && self.has(flag::FIRST_FRAGMENT);
        !(elsewhere || partial_crc && old_port != new_port)
    }

    /// The fast path of a translator: if this is a plain IPv4 TCP or UDP packet (no IP options, not
    /// a later fragment, whole transport header) whose `end` is `old`, writes `new` there, mends
    /// the checksums and answers the TCP flags, 0 for UDP. Otherwise nothing changes and the answer
    /// is `None`: [`Packet::rewrite`] is for the rest.
    #[inline]
    pub fn swap_v4(&mut self, end: End, old: ([u8; 4], u16), new: ([u8; 4], u16)) -> Option<u8> {
        self.exchange_v4(end, Some(old), new)
    }

    /// [`Packet::swap_v4`] whatever is there now.
    #[inline]
    pub fn put_v4(&mut self, end: End, new: ([u8; 4], u16)) -> Option<u8> {
        self.exchange_v4(end, None, new)
    }

    #[inline(always)]
    fn exchange_v4(&mut self, end: End, old: Option<([u8; 4], u16)>, new: ([u8; 4], u16)) -> Option<u8> {
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
        let flags = if is_tcp {
            let head: &mut [u8; 40] = rest.first_chunk_mut()?;
            let (addresses, both) = exchange_end(head, at, port, old, new)?;
            swap_sum(head, 36, both);
            swap_sum(head, 10, addresses);
            head[33]
        } else if udp {
            let head: &mut [u8; 28] = rest.first_chunk_mut()?;
            let (addresses, both) = exchange_end(head, at, port, old, new)?;
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

    /// Translates an ICMP error together with the packet it quotes (RFC 5508 4): the quoted
    /// packet's `end` becomes `inner`, and the error's own opposite end gets the address `outer` if
    /// one is given. Checksums of both are mended; the quoted transport's checksum is, too, where
    /// the quotation holds it.
    pub fn rewrite_quoted(&mut self, end: End, inner: Endpoint, outer: Option<Endpoint>) -> bool {
        let Some(quote) = quoted(self) else { return false };
        let version = self.version();
        if inner.addr.version() != version || outer.is_some_and(|o| o.addr.version() != version) {
            return false;
        }
        let (network, transport) = (self.network_offset(), self.transport_offset());
        let old_port = if end == End::Source {
            quote.source.port
        } else {
            quote.destination.port
        };
        let frame = self.frame_mut();
        let Some(inside) = frame.get_mut(quote.network..quote.end) else {
            return false;
        };
        // Every byte changed inside changes the error's checksum: sum the quoted part before and
        // after.
        let before = crate::checksum::fold(crate::checksum::sum(inside, 0));
        let Some((header, body)) = inside.split_at_mut_checked(quote.transport - quote.network) else {
            return false;
        };
        let Some(addresses) = write_address(header, version, end, inner) else {
            return false;
        };
        let change = PortChange {
            end,
            old: old_port,
            new: match crate::planted::is("quoted_port_left") {
                true => old_port,
                false => inner.port,
            },
        };
        write_port(body, version, quote.protocol, change, addresses, quote.whole);
        let after = crate::checksum::fold(crate::checksum::sum(inside, 0));
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
        update(&mut frame[transport..], 2, delta);
        true
    }

    /// Takes one from the time to live (IPv4) or hop limit (IPv6); `false`, and no change, if it
    /// would reach zero.
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

/// Writes address and port, if a named `old` is there, and answers the change of the address and
/// that of both; `None`, and no change, if it is not.
#[inline(always)]
fn exchange_end<const N: usize>(
    head: &mut [u8; N],
    at: usize,
    port: usize,
    old: Option<([u8; 4], u16)>,
    new: ([u8; 4], u16),
) -> Option<(Delta, Delta)> {
    let was_addr = [head[at], head[at + 1], head[at + 2], head[at + 3]];
    let was_port = u16::from_be_bytes([head[port], head[port + 1]]);
    if old.is_some_and(|old| old != (was_addr, was_port)) {
        return None;
    }
    head[at..at + 4].copy_from_slice(&new.0);
    head[port..port + 2].copy_from_slice(&new.1.to_be_bytes());
    let addresses = Delta::NONE.long(u32::from_be_bytes(was_addr), u32::from_be_bytes(new.0));
    Some((addresses, addresses.word(was_port, new.1)))
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

/// A port (or ICMP identifier) that becomes another.
#[derive(Clone, Copy)]
struct PortChange {
    end: End,
    old: u16,
    new: u16,
}

/// Writes a port into a transport header and mends its checksum; answers the port that is there
/// now.
#[inline(always)]
fn write_port(
    body: &mut [u8],
    version: u8,
    protocol: u8,
    PortChange { end, old, new }: PortChange,
    addresses: AddressChange,
    whole: bool,
) -> u16 {
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
        _ => {
            return write_other(
                body,
                (version, protocol),
                PortChange { end, old, new },
                addresses,
                whole,
            );
        }
    }
    new
}

/// [`write_port`] for protocols other than TCP and UDP.
#[inline(never)]
fn write_other(
    body: &mut [u8],
    (version, protocol): (u8, u8),
    PortChange { end, old, new }: PortChange,
    addresses: AddressChange,
    whole: bool,
) -> u16 {
    match (version, protocol) {
        // The identifier is the "port". ICMP's checksum covers no pseudo-header, ICMPv6's does.
        (4, protocol::ICMP) if has_identifier(protocol, body) => {
            put(body, 4, new);
            update(body, 2, Delta::NONE.word(old, new));
            new
        }
        (6, protocol::ICMPV6) if has_identifier(protocol, body) => {
            put(body, 4, new);
            update(body, 2, addresses.0.word(old, new));
            new
        }
        (6, protocol::ICMPV6) => {
            update(body, 2, addresses.0);
            old
        }
        (_, protocol::SCTP) => {
            write_sctp(body, if end == End::Source { 0 } else { 2 }, new, whole);
            new
        }
        // No ports.
        _ => old,
    }
}

/// A CRC is linear: the effect of the change of ports on it is the difference of the CRCs before
/// and after. Of a message that is not all there, only the port can be written.
fn write_sctp(body: &mut [u8], at: usize, new: u16, whole: bool) {
    let before = whole.then(|| sctp_crc(body));
    put(body, at, new);
    if let Some(before) = before
        && let after = sctp_crc(body)
        && let Some(field) = body.get_mut(8..12)
    {
        for (byte, change) in field.iter_mut().zip((before ^ after).to_le_bytes()) {
            *byte ^= change;
        }
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

#[cfg(test)]
mod tests;
