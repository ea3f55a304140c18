//! Swaps the two ends of a packet in place: MAC addresses, IP addresses, ports.
//!
//! Internet checksums are sums of 16-bit words, and every field swapped here begins at an even
//! offset of what its checksums cover, so they stay as they are: right ones right, wrong ones
//! equally wrong, absent ones absent. An ICMP error has the ends of the packet it quotes swapped,
//! too: it is then about a packet of the other direction.
//!
//! SCTP alone has a CRC (RFC 9260 6.8) that sees the ports' order: it is computed again where it
//! was right.
//!
//! Not here: Linux cooked headers have one address only, which stays. Source routes and routing
//! headers stay.

use wire::packet::flag;
use wire::parse::quoted;
use wire::{LinkType, Packet, protocol};

/// Swaps both ends of a parsed packet.
pub(super) fn swap_ends(packet: &mut Packet) {
    let inside = quoted(packet);
    let (network, transport, end) = (
        packet.network_offset(),
        packet.transport_offset(),
        packet.end_offset(),
    );
    let (version, protocol) = (packet.version(), packet.protocol());
    let whole = !packet.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT | flag::CUT_SHORT);
    let has_ports = !packet.has(flag::LATER_FRAGMENT);
    let link = packet.link();
    let frame = packet.frame_mut();
    if link == LinkType::Ethernet {
        swap(frame, 0, 6);
    }
    swap_addresses(frame, network, version);
    if has_ports {
        let segment = frame.get_mut(transport..end).unwrap_or_default();
        swap_ports(segment, protocol, whole);
    }
    if let Some(inside) = inside {
        swap_addresses(frame, inside.network, version);
        // The quotation is a packet cut short: no CRC of it can be checked.
        let segment = frame.get_mut(inside.transport..end).unwrap_or_default();
        swap_ports(segment, inside.protocol, false);
    }
}

fn swap_addresses(frame: &mut [u8], network: usize, version: u8) {
    if version == 4 {
        swap(frame, network + 12, 4);
    } else {
        swap(frame, network + 8, 16);
    }
}

fn swap_ports(segment: &mut [u8], protocol: u8, whole: bool) {
    match protocol {
        protocol::TCP | protocol::UDP | protocol::UDPLITE => swap(segment, 0, 2),
        protocol::SCTP => {
            let right =
                whole && sctp_checksum(segment) == segment.get(8..12).and_then(|b| b.first_chunk().copied());
            swap(segment, 0, 2);
            if right
                && let Some(crc) = sctp_checksum(segment)
                && let Some(field) = segment.get_mut(8..12)
            {
                field.copy_from_slice(&crc);
            }
        }
        _ => {}
    }
}

/// Swaps the `length` bytes at `at` with the `length` bytes behind them, if they are there.
#[inline]
fn swap(bytes: &mut [u8], at: usize, length: usize) {
    if let Some(pair) = bytes.get_mut(at..at + 2 * length) {
        let (first, second) = pair.split_at_mut(length);
        first.swap_with_slice(second);
    }
}

/// The CRC32c of an SCTP packet as its checksum field has it.
fn sctp_checksum(segment: &[u8]) -> Option<[u8; 4]> {
    let (header, chunks) = segment.split_at_checked(12)?;
    let mut crc = !0u32;
    for &byte in header[..8].iter().chain(&[0; 4]).chain(chunks) {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    Some((!crc).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_rfc_3720() {
        // RFC 3720 B.4: 32 bytes of zeros have the CRC aa 36 91 8a.
        assert_eq!(sctp_checksum(&[0; 32]), Some([0xaa, 0x36, 0x91, 0x8a]));
        assert_eq!(sctp_checksum(&[0; 11]), None);
    }
}
