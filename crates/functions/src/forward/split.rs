//! IPv4 fragmentation (RFC 791 3.2, RFC 1812 5.2.6): a packet that is too long for the next link,
//! in parts.
//!
//! ```text
//!   header 20, data 3000, MTU 1500       first part: the packet itself, cut to 20 + 1480
//!                                        20 + 1480, 20 + 40: packets beside it
//! ```
//!
//! All parts but the last are as long as the MTU allows, in units of eight bytes. Of the options,
//! later parts have those that say so. A fragment can be fragmented again.

use arrayvec::ArrayVec;
use nf::Packet;
use nf::cx::EMITTED_MAX;
use wire::LinkType;
use wire::checksum::checksum;

/// The most parts that one packet makes: itself, and those that a call may emit.
pub const PARTS_MAX: usize = EMITTED_MAX + 1;

// The reason `too_many_parts` says the number, and docs/status.md.
const _: () = assert!(PARTS_MAX == 8);

/// How a packet is to be cut.
pub struct Plan {
    header: usize,
    data: usize,
    /// Bytes of data in every part but the last.
    each: usize,
}

impl Plan {
    /// For an IPv4 packet and an MTU; `None` if there would be more than [`PARTS_MAX`] parts, no
    /// room for data, or no second part.
    pub fn of(packet: &Packet, mtu: u32) -> Option<Plan> {
        // As it was parsed: a function before this one may have written into the header.
        let header = packet
            .transport_offset()
            .checked_sub(packet.network_offset())
            .filter(|length| (20..=60).contains(length))?;
        let data = packet.network().len().checked_sub(header)?;
        let each = (mtu as usize).checked_sub(header)? & !7;
        let plan = Plan { header, data, each };
        (each > 0 && data > each && data.div_ceil(each) <= PARTS_MAX).then_some(plan)
    }

    /// How many parts follow the first.
    pub fn later(&self) -> usize {
        self.data.div_ceil(self.each) - 1
    }

    /// Writes the `n`th of the later parts, from 1, with the link header of `packet`, into `part`;
    /// `false` if it does not fit.
    pub fn write(&self, packet: &Packet, n: usize, part: &mut Packet) -> bool {
        let ip = packet.network();
        let Some((header, data)) = ip.split_at_checked(self.header) else {
            return false;
        };
        let from = n * self.each;
        let to = (from + self.each).min(data.len());
        let mut head: ArrayVec<u8, 60> = header[..20].iter().copied().collect();
        copy_options(&header[20..], &mut head);
        let link = &packet.frame()[..packet.network_offset()];
        let length = head.len() + (to - from);
        if link.len() + length > part.room() {
            return false;
        }
        head[0] = 0x40 | (head.len() / 4) as u8;
        place(&mut head, length, from, to < data.len());
        part.reset(link.len() + length, LinkType::Ethernet);
        let frame = part.frame_mut();
        let (front, rest) = frame.split_at_mut(link.len());
        front.copy_from_slice(link);
        rest[..head.len()].copy_from_slice(&head);
        rest[head.len()..].copy_from_slice(&data[from..to]);
        true
    }

    /// Makes the packet the first part.
    pub fn cut(&self, packet: &mut Packet) -> bool {
        let length = self.header + self.each;
        let end = packet.network_offset() + length;
        place(&mut packet.network_mut()[..self.header], length, 0, true);
        packet.set_length(end) && wire::parse(packet).is_ok()
    }
}

/// Writes length, fragment offset and checksum into a header: `from` bytes behind where it was.
fn place(header: &mut [u8], length: usize, from: usize, cut: bool) {
    let field = u16::from_be_bytes([header[6], header[7]]);
    let offset = (field & 0x1fff) + (from / 8) as u16;
    // The last part of a part that others follow is followed as well.
    let more = if cut { 0x2000 } else { field & 0x2000 };
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[6..8].copy_from_slice(&(offset | more).to_be_bytes());
    header[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Appends the options with the copied flag, padded to four bytes (RFC 791 3.1).
fn copy_options(mut options: &[u8], head: &mut ArrayVec<u8, 60>) {
    while let [kind, ..] = *options {
        let length = match (kind, options.get(1)) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(length @ 2..)) => usize::from(*length),
            _ => break,
        };
        let Some((option, rest)) = options.split_at_checked(length) else {
            break;
        };
        if kind & 0x80 != 0 {
            head.extend(option.iter().copied());
        }
        options = rest;
    }
    while !head.len().is_multiple_of(4) {
        head.push(0);
    }
}
