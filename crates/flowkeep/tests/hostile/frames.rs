//! IPv4 packets by hand, without a link layer, their checksums right.

use wire::checksum::{checksum, fold, sum};
use wire::protocol;
use wire::tcp::flags;

/// An IPv4 endpoint.
pub type V4 = (u32, u16);

/// The load balancer's service.
pub const SERVICE: V4 = (0xc633_640a, 80);
/// The IPv4 identification and the TCP window of the packets whose fate is watched.
pub const MARK: (u16, u16) = (0xe57a, 0xbeef);

pub const TCP_LENGTH: usize = 40;

/// A TCP segment without data.
pub type Segment = [u8; TCP_LENGTH];

/// A segment's flags, sequence and acknowledgement number.
#[derive(Clone, Copy)]
pub struct Says(pub u8, pub u32, pub u32);

/// The opening of a connection, and its two ends' packets ever after.
pub const SYN: Says = Says(flags::SYN, 1000, 0);
pub const SYN_ACK: Says = Says(flags::SYN | flags::ACK, 5000, 1001);
pub const ACK: Says = Says(flags::ACK, 1001, 5001);
pub const ACK_BACK: Says = Says(flags::ACK, 5001, 1001);

fn header(frame: &mut [u8], protocol: u8, id: u16, fragment: u16, from: u32, to: u32) {
    let length = frame.len() as u16;
    frame[..2].copy_from_slice(&[0x45, 0]);
    frame[2..4].copy_from_slice(&length.to_be_bytes());
    frame[4..6].copy_from_slice(&id.to_be_bytes());
    frame[6..8].copy_from_slice(&fragment.to_be_bytes());
    frame[8..12].copy_from_slice(&[64, protocol, 0, 0]);
    frame[12..16].copy_from_slice(&from.to_be_bytes());
    frame[16..20].copy_from_slice(&to.to_be_bytes());
    let right = checksum(&frame[..20]);
    frame[10..12].copy_from_slice(&right.to_be_bytes());
}

/// A segment; `marked` ones are told apart when they leave.
pub fn tcp(from: V4, to: V4, says: Says, marked: bool) -> Segment {
    let mut frame = [0; TCP_LENGTH];
    let (id, window) = if marked { MARK } else { (1, 0x7210) };
    header(&mut frame, protocol::TCP, id, 0, from.0, to.0);
    frame[20..22].copy_from_slice(&from.1.to_be_bytes());
    frame[22..24].copy_from_slice(&to.1.to_be_bytes());
    frame[24..28].copy_from_slice(&says.1.to_be_bytes());
    frame[28..32].copy_from_slice(&says.2.to_be_bytes());
    frame[32..34].copy_from_slice(&[5 << 4, says.0]);
    frame[34..36].copy_from_slice(&window.to_be_bytes());
    let pseudo = sum(&frame[12..20], u32::from(protocol::TCP) + 20);
    let right = !fold(sum(&frame[20..], pseudo));
    frame[36..38].copy_from_slice(&right.to_be_bytes());
    frame
}

/// A piece of a datagram with 16 bytes behind the IP header: the first one, with UDP's header, or a
/// later one.
pub fn fragment(from: V4, to: V4, id: u16, first: bool) -> [u8; 36] {
    let mut frame = [0; 36];
    let place = if first { 0x2000 } else { 2 };
    header(&mut frame, protocol::UDP, id, place, from.0, to.0);
    if first {
        frame[20..22].copy_from_slice(&from.1.to_be_bytes());
        frame[22..24].copy_from_slice(&to.1.to_be_bytes());
        frame[24..26].copy_from_slice(&32_u16.to_be_bytes());
    }
    frame
}

/// "Port unreachable", said by `from` about a segment.
pub fn unreachable(from: u32, about: &Segment) -> [u8; 28 + TCP_LENGTH] {
    let mut frame = [0; 28 + TCP_LENGTH];
    let to = u32::from_be_bytes([about[12], about[13], about[14], about[15]]);
    header(&mut frame, protocol::ICMP, 1, 0, from, to);
    frame[20..22].copy_from_slice(&[3, 3]);
    frame[28..].copy_from_slice(about);
    let right = checksum(&frame[20..]);
    frame[22..24].copy_from_slice(&right.to_be_bytes());
    frame
}
