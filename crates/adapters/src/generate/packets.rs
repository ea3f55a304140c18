//! Writing a packet: Ethernet, IPv4 or IPv6, TCP or UDP, with sound checksums, straight into its
//! buffer.
//!
//! The data is always the beginning of one random pattern, whose checksum up to every length is
//! known beforehand; so the cost of a checksum is that of the headers, however long the packet.
//!
//! Not here: which packet ([`super::flows`]).

use super::random::Random;
use wire::checksum::fold;
use wire::{Addr, LinkType, Packet, protocol};

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ETHERNET: usize = 14;
/// The shortest frame, without its check sequence.
const FRAME_MIN: usize = 60;
const TTL: u8 = 64;
const WINDOW: u16 = 65_535;

/// Bytes of IP and transport header.
#[inline]
pub fn header_length(six: bool, tcp: bool) -> u64 {
    (if six { 40 } else { 20 }) + (if tcp { 20 } else { 8 })
}

/// All that differs between packets.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Source and destination.
    pub addrs: [Addr; 2],
    /// Source and destination.
    pub ports: [u16; 2],
    /// IPv6, otherwise IPv4.
    pub six: bool,
    /// TCP, otherwise UDP.
    pub tcp: bool,
    /// Whether the client sends it.
    pub from_client: bool,
    /// TCP flags.
    pub flags: u8,
    /// TCP sequence number.
    pub sequence: u32,
    /// TCP acknowledgement number.
    pub acknowledgement: u32,
    /// Bytes of data.
    pub length: u16,
    /// IPv4 identification.
    pub id: u16,
}

/// The pattern that all data is the beginning of.
pub struct Pattern {
    bytes: Vec<u8>,
    /// Sum of the first n words.
    sums: Vec<u32>,
}

impl Pattern {
    /// The pattern of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bytes: Vec<u8> = (0..9216 / 8).flat_map(|_| random.bits().to_be_bytes()).collect();
        let mut sum = 0;
        let mut sums = vec![0];
        for word in bytes.as_chunks::<2>().0 {
            sum += u32::from(u16::from_be_bytes(*word));
            sums.push(sum);
        }
        Pattern { bytes, sums }
    }

    /// The sum of the first `length` bytes.
    #[inline]
    fn sum(&self, length: usize) -> u32 {
        let words = self.sums[length / 2];
        if length % 2 == 1 {
            words + (u32::from(self.bytes[length - 1]) << 8)
        } else {
            words
        }
    }

    /// Makes `packet` this segment; `false` if the buffer is too small for it.
    #[inline]
    pub fn write(&self, packet: &mut Packet, segment: &Segment) -> bool {
        let length = usize::from(segment.length);
        let ip_length = header_length(segment.six, segment.tcp) as usize + length;
        let frame_length = (ETHERNET + ip_length).max(FRAME_MIN);
        if length > self.bytes.len() || frame_length > packet.room() {
            return false;
        }
        packet.reset(frame_length, LinkType::Ethernet);
        let frame = packet.frame_mut();
        let (ethernet, rest) = frame.split_at_mut(ETHERNET);
        write_ethernet(ethernet, segment);
        let (ip, rest) = rest.split_at_mut(if segment.six { 40 } else { 20 });
        // The transport checksum begins with the pseudo-header (RFC 9293 3.1, RFC 8200 8.1).
        let transport_length = (if segment.tcp { 20 } else { 8 }) + length;
        let pseudo = write_ip(ip, segment, ip_length) + transport_length as u32 + self.sum(length);
        let (transport, rest) = rest.split_at_mut(transport_length - length);
        if segment.tcp {
            write_tcp(transport, segment, pseudo);
        } else {
            write_udp(transport, segment, transport_length as u16, pseudo);
        }
        let (body, padding) = rest.split_at_mut(length);
        body.copy_from_slice(&self.bytes[..length]);
        padding.fill(0);
        true
    }
}

#[inline]
fn write_ethernet(header: &mut [u8], segment: &Segment) {
    let (from, to) = if segment.from_client {
        (CLIENT, SERVER)
    } else {
        (SERVER, CLIENT)
    };
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..14].copy_from_slice(if segment.six { &[0x86, 0xdd] } else { &[0x08, 0x00] });
}

/// Answers the sum of addresses and protocol.
#[inline]
fn write_ip(header: &mut [u8], segment: &Segment, ip_length: usize) -> u32 {
    let number = if segment.tcp { protocol::TCP } else { protocol::UDP };
    let [from, to] = segment.addrs;
    if segment.six {
        header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        header[4..6].copy_from_slice(&((ip_length - 40) as u16).to_be_bytes());
        header[6..8].copy_from_slice(&[number, TTL]);
        header[8..24].copy_from_slice(from.octets());
        header[24..40].copy_from_slice(to.octets());
        return sum(&header[8..40]) + u32::from(number);
    }
    let (from, to) = (from.low_u32(), to.low_u32());
    let addresses = halves(from) + halves(to);
    let id = segment.id;
    // Version and header length, total length, identification, don't fragment, time to live and
    // protocol.
    let fixed = 0x4500 + 0x4000 + (u32::from(TTL) << 8 | u32::from(number));
    let checksum = !fold(fixed + ip_length as u32 + u32::from(id) + addresses);
    header[..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&(ip_length as u16).to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6..10].copy_from_slice(&[0x40, 0, TTL, number]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header[12..16].copy_from_slice(&from.to_be_bytes());
    header[16..20].copy_from_slice(&to.to_be_bytes());
    addresses + u32::from(number)
}

#[inline]
fn write_tcp(header: &mut [u8], segment: &Segment, pseudo: u32) {
    let [from, to] = segment.ports;
    let (sequence, acknowledgement) = (segment.sequence, segment.acknowledgement);
    let offset_and_flags = 0x5000 | u32::from(segment.flags);
    let sum = pseudo + u32::from(from) + u32::from(to) + halves(sequence) + halves(acknowledgement);
    let checksum = !fold(sum + offset_and_flags + u32::from(WINDOW));
    header[..2].copy_from_slice(&from.to_be_bytes());
    header[2..4].copy_from_slice(&to.to_be_bytes());
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
    header[12..14].copy_from_slice(&(offset_and_flags as u16).to_be_bytes());
    header[14..16].copy_from_slice(&WINDOW.to_be_bytes());
    header[16..18].copy_from_slice(&checksum.to_be_bytes());
    header[18..20].copy_from_slice(&[0, 0]);
}

#[inline]
fn write_udp(header: &mut [u8], segment: &Segment, length: u16, pseudo: u32) {
    let [from, to] = segment.ports;
    let checksum = match !fold(pseudo + u32::from(from) + u32::from(to) + u32::from(length)) {
        // Zero would mean "none" (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    header[..2].copy_from_slice(&from.to_be_bytes());
    header[2..4].copy_from_slice(&to.to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header[6..8].copy_from_slice(&checksum.to_be_bytes());
}

#[inline]
fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

#[inline]
fn sum(bytes: &[u8]) -> u32 {
    wire::checksum::sum(bytes, 0)
}
