//! A host's answer, made from the packet alone: no state is kept.
//!
//! A TCP segment carries all that its answer needs: the peer acknowledges what the host has sent so
//! far, so an answer's sequence number is the segment's acknowledgement number. Only the first,
//! that of SYN,ACK, must come from elsewhere: from the SYN's own sequence number
//! ([`first_sequence`]), which no function in between changes, so that a retransmitted SYN gets the
//! same answer and a generator can know it.
//!
//! ```text
//!   SYN        seq 100                  ► SYN,ACK  seq f(100)  ack 101
//!   ACK        seq 101  ack f+1         ► nothing
//!   20 bytes   seq 101  ack f+1         ► ACK      seq f+1     ack 121
//!   FIN        seq 121  ack f+1         ► FIN,ACK  seq f+1     ack 122
//!   ACK        seq 122  ack f+2         ► nothing
//! ```
//!
//! On a replayed capture the client acknowledges the bytes that *its* server sent, so sequence
//! numbers jump behind the SYN,ACK; functions that check windows see that. The mirror is for such
//! captures.
//!
//! RST, ICMP errors (RFC 1122 3.2.2), and packets to multicast or broadcast addresses are not
//! answered.
//!
//! Source: RFC 9293 3.5, 3.10.7; RFC 7323 3 (timestamps); RFC 792, RFC 4443 4.2.

use super::swap::swap_ends;
use wire::checksum::{Delta, checksum, fold, sum};
use wire::packet::flag;
use wire::tcp::flags::{ACK, FIN, RST, SYN};
use wire::{Addr, Packet, protocol};

/// The sequence number that begins the answer to a SYN with this sequence number.
pub const fn first_sequence(of_syn: u32) -> u32 {
    of_syn.wrapping_mul(0x9e37_79b1).rotate_left(16) ^ 0x5851_f42d
}

/// Makes a parsed packet its own answer; `false` if there is none, and then the packet is of no
/// more use.
pub(super) fn answer(packet: &mut Packet) -> bool {
    if packet.has(flag::ICMP_ERROR) || is_many(packet.destination_addr()) {
        return false;
    }
    match packet.protocol() {
        protocol::TCP => answer_tcp(packet),
        protocol::ICMP | protocol::ICMPV6 if !packet.has(flag::LATER_FRAGMENT) => answer_icmp(packet),
        _ => {
            swap_ends(packet);
            true
        }
    }
}

/// Whether more than one host has this address: multicast and broadcast.
fn is_many(addr: Addr) -> bool {
    match addr.as_v4() {
        Some([first, ..]) => first >= 224,
        None => addr.octets()[0] == 0xff,
    }
}

/// Echo, timestamp, information and mask requests become their replies.
fn answer_icmp(packet: &mut Packet) -> bool {
    let protocol = packet.protocol();
    let message = packet.transport_mut();
    let Some(&[kind, code, high, low]) = message.first_chunk() else {
        return false;
    };
    let reply = match (protocol, kind) {
        (protocol::ICMP, 8) => 0,
        (protocol::ICMP, 13 | 15 | 17) => kind + 1,
        (protocol::ICMPV6, 128) => 129,
        _ => return false,
    };
    let was = u16::from_be_bytes([kind, code]);
    let is = u16::from_be_bytes([reply, code]);
    let sum = Delta::NONE.word(was, is).apply(u16::from_be_bytes([high, low]));
    let [sum_high, sum_low] = sum.to_be_bytes();
    message[..4].copy_from_slice(&[reply, code, sum_high, sum_low]);
    swap_ends(packet);
    true
}

/// A segment that answers another: flags, sequence number, acknowledgement number.
type Segment = (u8, u32, u32);

/// A listening host's answer to a segment with `length` bytes of data.
fn reply_to(flags: u8, sequence: u32, acknowledgement: u32, length: u32) -> Option<Segment> {
    let after = sequence
        .wrapping_add(length)
        .wrapping_add(u32::from(flags & FIN != 0));
    match flags & (SYN | ACK | FIN | RST) {
        f if f & RST != 0 => None,
        SYN => Some((SYN | ACK, first_sequence(sequence), sequence.wrapping_add(1))),
        f if f == SYN | ACK => Some((ACK, acknowledgement, sequence.wrapping_add(1))),
        // SYN with FIN is an attack's (RFC 9293 has no use for it).
        f if f & SYN != 0 => None,
        f if f & ACK == 0 => Some((RST | ACK, 0, after)),
        f if f & FIN != 0 => Some((FIN | ACK, acknowledgement, after)),
        _ if length > 0 => Some((ACK, acknowledgement, after)),
        _ => None,
    }
}

fn answer_tcp(packet: &mut Packet) -> bool {
    // Data that goes on in other fragments cannot be acknowledged from this one. Of a later
    // fragment there is no header.
    if packet.has(flag::FIRST_FRAGMENT) {
        return false;
    }
    // A capture may hold half of the options.
    if !(packet.payload_offset() - packet.transport_offset()).is_multiple_of(4) {
        return false;
    }
    let Some(tcp) = packet.tcp() else { return false };
    let Some(segment) = reply_to(
        tcp.flags(),
        tcp.sequence(),
        tcp.acknowledgement(),
        tcp.payload_length(),
    ) else {
        return false;
    };
    let theirs = tcp
        .each_option()
        .find(|(kind, bytes)| *kind == 8 && bytes.len() == 8);
    let theirs = theirs.and_then(|(_, bytes)| bytes.first_chunk::<4>().copied());
    let of_syn = segment.0 == SYN | ACK;
    let header_length = match theirs {
        _ if of_syn => 20 + tcp.options().len(),
        Some(_) => 32,
        None => 20,
    };
    swap_ends(packet);
    let (network, transport) = (packet.network_offset(), packet.transport_offset());
    let version = packet.version();
    if !packet.set_length(transport + header_length) {
        return false;
    }
    let frame = packet.frame_mut();
    let Some((header, tcp)) = frame
        .get_mut(network..)
        .and_then(|p| p.split_at_mut_checked(transport - network))
    else {
        return false;
    };
    write_segment(tcp, segment, header_length);
    if let Some(value) = theirs {
        if of_syn {
            echo_timestamp(&mut tcp[20..], value);
        } else {
            // Two no-operations and the option, as RFC 7323 A recommends.
            tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
            tcp[24..28].copy_from_slice(&value);
            tcp[28..32].copy_from_slice(&value);
        }
    }
    write_lengths_and_checksums(header, tcp, version);
    true
}

fn write_segment(tcp: &mut [u8], (flags, sequence, acknowledgement): Segment, header_length: usize) {
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
    tcp[12] = (header_length as u8 / 4) << 4;
    tcp[13] = flags;
    // The widest window, no checksum yet, nothing urgent.
    tcp[14..20].copy_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
}

/// Answers the timestamp among a SYN's options with itself: their clock is ours.
fn echo_timestamp(options: &mut [u8], value: [u8; 4]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        match (kind, options.get(at + 1)) {
            (0, _) => return,
            (1, _) => at += 1,
            (8, Some(10)) => {
                if let Some(echo) = options.get_mut(at + 6..at + 10) {
                    echo.copy_from_slice(&value);
                }
                return;
            }
            (_, Some(&length)) if length >= 2 => at += usize::from(length),
            _ => return,
        }
    }
}

fn write_lengths_and_checksums(header: &mut [u8], tcp: &mut [u8], version: u8) {
    let total = header.len() + tcp.len();
    let addresses = if version == 4 {
        header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        header[8] = 64;
        header[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        &header[12..20]
    } else {
        header[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        header[7] = 64;
        &header[8..40]
    };
    let pseudo = sum(addresses, u32::from(protocol::TCP) + tcp.len() as u32);
    let sum = !fold(sum(tcp, pseudo));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
}
