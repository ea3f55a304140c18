//! Work that a kernel left undone on a frame: checksums to be completed, super-frames to be cut
//! into segments.
//!
//! # Theory of operation
//!
//! Frames that come from another network stack of the same machine (over veth, tap, virtio) are not
//! as they would be on a wire: the sender leaves checksums to a device that is not there, and hands
//! over up to 64 KiB as one TCP segment. A packet socket says so in a header of ten bytes before
//! the frame (`struct virtio_net_hdr`):
//!
//! ```text
//!   flags        1: a checksum is partial: sum from `checksum_start` on, write it `checksum_offset` behind
//!   kind         0: an ordinary frame, 1: TCP over IPv4, 4: TCP over IPv6, 5: UDP datagrams, 0x80: with ECN
//!   segment      payload bytes of each segment
//! ```
//!
//! Functions see frames as on a wire only, so that an incremental checksum update is right and an
//! MTU means what it says. Cutting copies the headers before each piece of payload and makes them
//! true:
//!
//! ```text
//!   headers │ payload 0 │ payload 1 │ rest        IPv4: length, identifier + n, checksum   IPv6: length
//!      ▼                                          TCP:  sequence + offset, FIN and PSH on the last only, CWR on the first
//!   headers │ payload 0    headers │ payload 1    UDP:  length; all: checksum
//! ```
//!
//! Between the headers of IPv6 and transport there may be options and routing headers. Behind a
//! routing header with segments left the IP header has not the destination that the sum is over:
//! there the partial sum is taken, with another length. A tunnel's headers are more than copying
//! makes true: its super-frames are refused.
//!
//! Everything here is read from memory that another stack filled, perhaps a hostile guest's: each
//! offset is checked against the frame, and segments smaller than [`SEGMENT_MIN`] are refused,
//! since a frame could become sixty thousand packets.
//!
//! Invariants: payload bytes in = payload bytes out, in order; every frame made has right checksums
//! and fits its MTU if its sender meant it to. Checked against an independent parser in the tests.
//!
//! Not here: putting segments together again.

use wire::checksum::{checksum, fold, sctp_crc, sum};
use wire::link::{Between, parse_link};
use wire::packet::FRAME_MAX;
use wire::{LinkType, Packet, protocol};

/// Bytes of [`FrameHeader`] before a frame.
pub const HEADER_LENGTH: usize = 10;
/// The smallest payload of a segment that is believed; Linux's own smallest MSS
/// (`TCP_MIN_SND_MSS`).
pub const SEGMENT_MIN: usize = 48;

const NEEDS_CHECKSUM: u8 = 1;
const NONE: u8 = 0;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

/// Where SCTP's checksum is, and no other protocol's. It is a CRC, and the kernel leaves all of it
/// undone.
const SCTP_CHECKSUM: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The header before a frame: `struct virtio_net_hdr`, in this machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHeader {
    flags: u8,
    kind: u8,
    segment: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

/// The work to be done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing: it is as on a wire.
    None,
    /// A checksum is to be completed.
    Checksum {
        /// Where the sum starts.
        start: usize,
        /// Where the field is, behind that.
        offset: usize,
    },
    /// The frame is to be cut.
    Cut(Cut),
}

/// Why a frame cannot be made one of the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The header contradicts the frame.
    Contradiction,
    /// A kind of super-frame that is not known (UFO, SCTP, tunnels).
    UnknownKind,
    /// Segments too small to be believed.
    SegmentsTooSmall,
}

impl FrameHeader {
    /// Reads the header from its bytes.
    #[inline]
    pub fn read(bytes: &[u8; HEADER_LENGTH]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        FrameHeader {
            flags: bytes[0],
            kind: bytes[1],
            segment: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// The work to be done with the frame behind it.
    #[inline]
    pub fn work(&self, frame: &[u8]) -> Result<Work, Refusal> {
        if self.kind == NONE {
            if self.flags & NEEDS_CHECKSUM == 0 {
                return Ok(Work::None);
            }
            let (start, offset) = (
                usize::from(self.checksum_start),
                usize::from(self.checksum_offset),
            );
            if start + offset + 2 > frame.len() {
                return Err(Refusal::Contradiction);
            }
            return Ok(Work::Checksum { start, offset });
        }
        Cut::of(self, frame).map(Work::Cut)
    }
}

/// Completes a checksum: the field holds the pseudo-header's sum, the rest is still to be added
/// (Linux's `CHECKSUM_PARTIAL`). `start` and `offset` are as in [`Work::Checksum`].
#[inline]
pub fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    let Some(covered) = frame.get_mut(start..) else {
        return;
    };
    if offset == SCTP_CHECKSUM {
        let value = sctp_crc(covered).to_le_bytes();
        if let Some(field) = covered.get_mut(8..12) {
            field.copy_from_slice(&value);
        }
        return;
    }
    let value = !fold(sum(covered, 0));
    if let Some(field) = covered.get_mut(offset..offset + 2) {
        // A UDP checksum of zero would mean that there is none; TCP knows both zeros (RFC 768).
        let value = if value == 0 { 0xffff } else { value };
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Completes the checksum of a frame that may have come straight from another stack of this
/// machine, where nothing says whether it is partial: a wrong checksum that is just the
/// pseudo-header's sum is. Of SCTP, a checksum of zero is.
///
/// A damaged packet could look the same, once in 65,536; so this is for interfaces only whose
/// frames have been on no wire.
pub fn complete_if_partial(frame: &mut [u8]) {
    let Some((transport, end, protocol, pseudo)) = unfragmented(frame) else {
        return;
    };
    let Some(body) = frame.get(transport..end) else {
        return;
    };
    let offset = match protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        protocol::SCTP if body.get(8..12) == Some(&[0; 4]) => SCTP_CHECKSUM,
        _ => return,
    };
    if offset != SCTP_CHECKSUM {
        let field = match body.get(offset..offset + 2) {
            Some(field) => u16::from_be_bytes([field[0], field[1]]),
            None => return,
        };
        let pseudo = fold(pseudo + body.len() as u32 + u32::from(protocol));
        // A whole packet's sum, field included, is all ones.
        if field != pseudo || fold(sum(body, u32::from(pseudo))) == 0xffff {
            return;
        }
    }
    complete_checksum(&mut frame[..end], transport, offset);
}

/// Transport header, end, protocol, and the sum of the addresses, of an IP packet that is no
/// fragment and has no extension headers.
fn unfragmented(frame: &[u8]) -> Option<(usize, usize, u8, u32)> {
    let link = parse_link(frame, LinkType::Ethernet).ok()?;
    let packet = frame.get(link.network..)?;
    if link.ether_type == 0x0800 {
        let header = packet.get(..20)?;
        let length = usize::from(header[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let holds = length >= 20 && total >= length && total <= packet.len() && !fragment;
        holds.then(|| {
            (
                link.network + length,
                link.network + total,
                header[9],
                sum(&header[12..20], 0),
            )
        })
    } else {
        let header = packet.get(..40)?;
        let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        (total <= packet.len()).then(|| {
            (
                link.network + 40,
                link.network + total,
                header[6],
                sum(&header[8..40], 0),
            )
        })
    }
}

/// How a super-frame is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    network: usize,
    transport: usize,
    payload: usize,
    end: usize,
    segment: usize,
    version: u8,
    protocol: u8,
    /// The pseudo-header's sum without the length, where the IP header has not the last
    /// destination.
    partial: Option<u16>,
}

/// The extension headers in front of a super-frame's transport header.
#[derive(Clone, Copy)]
struct Chain {
    /// The protocol behind the last one.
    last: u8,
    /// A routing header leads on from the destination of the IP header.
    is_on_its_way: bool,
}

impl Chain {
    /// `None` unless these bytes are nothing but whole headers that every segment may have: options
    /// and routing headers. The headers of a tunnel are not, nor is a fragment's, nor a signature
    /// over all that follows.
    fn of(first: u8, mut bytes: &[u8]) -> Option<Chain> {
        let mut chain = Chain {
            last: first,
            is_on_its_way: false,
        };
        while let [next, eights, _, left, ..] = *bytes {
            match chain.last {
                HOP_BY_HOP | DESTINATION_OPTIONS => {}
                ROUTING => chain.is_on_its_way |= left > 0,
                _ => return None,
            }
            chain.last = next;
            bytes = bytes.get((usize::from(eights) + 1) * 8..)?;
        }
        bytes.is_empty().then_some(chain)
    }
}

impl Cut {
    fn of(header: &FrameHeader, frame: &[u8]) -> Result<Cut, Refusal> {
        let (version, protocol) = match header.kind & !ECN {
            TCP_V4 => (4, protocol::TCP),
            TCP_V6 => (6, protocol::TCP),
            UDP => (0, protocol::UDP),
            _ => return Err(Refusal::UnknownKind),
        };
        let segment = usize::from(header.segment);
        if segment < SEGMENT_MIN {
            return Err(Refusal::SegmentsTooSmall);
        }
        let link = parse_link(frame, LinkType::Ethernet).map_err(|_| Refusal::Contradiction)?;
        let network = link.network;
        let byte = |at: usize| frame.get(at).copied().ok_or(Refusal::Contradiction);
        let first = byte(network)?;
        let seen = first >> 4;
        if version != 0 && seen != version {
            return Err(Refusal::Contradiction);
        }
        // A super-frame has a partial checksum, which says where the transport header is, behind
        // whatever headers IPv6 has.
        let by_checksum = header.flags & NEEDS_CHECKSUM != 0;
        let (protocol_at, ip_length) = match (seen, link.ether_type) {
            (4, 0x0800) => (9, usize::from(first & 15) * 4),
            (6, 0x86dd) => (6, 40),
            _ => return Err(Refusal::Contradiction),
        };
        let behind = network + ip_length;
        let transport = if by_checksum {
            usize::from(header.checksum_start)
        } else {
            behind
        };
        // A session's length would have to be mended as well: no stack hands over such a
        // super-frame.
        if ip_length < 20
            || transport < behind
            || (transport > behind && seen == 4)
            || link.between == Between::Session
        {
            return Err(Refusal::Contradiction);
        }
        let first = byte(network + protocol_at)?;
        let between = frame.get(behind..transport).ok_or(Refusal::Contradiction)?;
        let chain = Chain::of(first, between).filter(|chain| chain.last == protocol);
        let is_on_its_way = chain.ok_or(Refusal::Contradiction)?.is_on_its_way;
        let payload = match protocol {
            protocol::TCP => {
                let length = usize::from(byte(transport + 12)? >> 4) * 4;
                if length < 20 {
                    return Err(Refusal::Contradiction);
                }
                transport + length
            }
            _ => transport + 8,
        };
        // The stack knows the destination at the end, and has summed it up.
        let body = fold((frame.len() - transport) as u32);
        let field = transport + if protocol == protocol::TCP { 16 } else { 6 };
        let partial = match is_on_its_way {
            true => {
                let sum = u16::from_be_bytes([byte(field)?, byte(field + 1)?]);
                Some(fold(u32::from(sum) + u32::from(!body)))
            }
            false => None,
        };
        if payload >= frame.len() || payload - network + segment > FRAME_MAX {
            return Err(Refusal::Contradiction);
        }
        Ok(Cut {
            network,
            transport,
            payload,
            end: frame.len(),
            segment,
            version: seen,
            protocol,
            partial,
        })
    }

    /// How many segments it becomes.
    pub fn count(&self) -> usize {
        (self.end - self.payload).div_ceil(self.segment)
    }

    /// Bytes of the longest segment, headers included.
    pub fn length_max(&self) -> usize {
        self.payload + self.segment.min(self.end - self.payload)
    }

    /// Makes segment `index` of `frame` in `packet`; `false` if the buffer is too small for it.
    ///
    /// # Panics
    /// If `frame` is shorter than the one the cut was made for, or `index` is not below
    /// [`Cut::count`].
    pub fn write(&self, frame: &[u8], index: usize, packet: &mut Packet) -> bool {
        let from = self.payload + index * self.segment;
        let to = (from + self.segment).min(self.end);
        let length = self.payload + (to - from);
        if length > packet.room() {
            return false;
        }
        packet.reset(length, LinkType::Ethernet);
        let out = packet.frame_mut();
        let (headers, payload) = out.split_at_mut(self.payload);
        headers.copy_from_slice(&frame[..self.payload]);
        payload.copy_from_slice(&frame[from..to]);
        self.correct(out, index, from - self.payload, to == self.end);
        true
    }

    /// Makes the headers of a segment true.
    fn correct(&self, out: &mut [u8], index: usize, offset: usize, last: bool) {
        let total = out.len() - self.network;
        let body = out.len() - self.transport;
        let (front, transport) = out.split_at_mut(self.transport);
        let ip = &mut front[self.network..];
        let pseudo = if self.version == 4 {
            put(ip, 2, total as u16);
            let identifier = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
            put(ip, 4, identifier);
            put(ip, 10, 0);
            let value = checksum(ip);
            put(ip, 10, value);
            sum(&ip[12..20], 0)
        } else {
            put(ip, 4, (total - 40) as u16);
            sum(&ip[8..40], 0)
        };
        let pseudo = match self.partial {
            Some(partial) => u32::from(partial),
            None => pseudo + u32::from(self.protocol),
        };
        let at = if self.protocol == protocol::TCP {
            let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            transport[4..8].copy_from_slice(&sequence.wrapping_add(offset as u32).to_be_bytes());
            if !last {
                transport[13] &= !(FIN | PSH);
            }
            if index > 0 {
                transport[13] &= !CWR;
            }
            16
        } else {
            put(transport, 4, body as u16);
            6
        };
        put(transport, at, 0);
        let value = !fold(sum(transport, pseudo + body as u32));
        let none_of_udp = value == 0 && self.protocol == protocol::UDP;
        put(transport, at, if none_of_udp { 0xffff } else { value });
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
