//! What is known of a packet besides its bytes, on the way through shared memory.
//!
//! Not here: what parsing finds, which the other end finds for itself.

use wire::packet::{Kind, Side, flag};
use wire::{LinkType, PacketBox};

/// Bytes of a head.
pub(super) const HEAD: usize = 24;

/// Flags that parsing does not find again.
const FLAGS: u16 = flag::TURN_AROUND | flag::LATERAL;

/// Writes a packet's head.
#[inline]
pub(super) fn write(packet: &PacketBox) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let sides = packet.side() as u8 | (packet.exit() as u8) << 1;
    head[..8].copy_from_slice(&packet.timestamp().to_le_bytes());
    head[8..12].copy_from_slice(&packet.wire_length().to_le_bytes());
    head[12..14].copy_from_slice(&(packet.flags() & FLAGS).to_le_bytes());
    head[14] = packet.kind() as u8;
    head[15] = packet.link() as u8;
    head[16] = sides;
    head[17] = packet.port();
    head[18] = packet.egress().map_or(0, |port| port.saturating_add(1));
    head[19] = packet.turns();
    head
}

/// Makes `packet` one with this head and a frame of `length` bytes, which the caller then writes; `None` if it is no head, or the frame
/// does not fit.
#[inline]
pub(super) fn read(head: &[u8; HEAD], length: usize, packet: &mut PacketBox) -> Option<()> {
    let kind = match head[14] {
        0 => Kind::Data,
        1 => Kind::Message,
        _ => return None,
    };
    let link = match head[15] {
        1 => LinkType::Ethernet,
        101 => LinkType::Raw,
        0 => LinkType::Loopback,
        113 => LinkType::LinuxSll,
        200 => LinkType::LinuxSll2,
        _ => return None,
    };
    let side = |bit: u8| if bit == 0 { Side::Inside } else { Side::Outside };
    if length > packet.room() || head[16] > 3 {
        return None;
    }
    packet.reset(length, link);
    packet.set_kind(kind);
    packet.set_timestamp(u64::from_le_bytes(*head.first_chunk()?));
    packet.set_wire_length(u32::from_le_bytes(*head[8..].first_chunk()?));
    packet.set_flags(u16::from_le_bytes(*head[12..].first_chunk()?) & FLAGS);
    packet.set_side(side(head[16] & 1));
    packet.set_exit(side(head[16] & 2));
    packet.set_port(head[17]);
    if let Some(port) = head[18].checked_sub(1) {
        packet.set_egress(port);
    }
    for _ in 0..head[19] {
        packet.add_turn();
    }
    Some(())
}
