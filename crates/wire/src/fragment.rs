//! Where a fragment's data belongs in its datagram.
//!
//! ```text
//!   IPv4   header │ data                          offset and "more" are in the header, data begins behind it
//!   IPv6   header │ extensions │ fragment │ data  they are in the fragment header, data begins behind that
//! ```
//!
//! Lengths are the IP header's, not the capture's: of a capture that was cut short they describe
//! the frame on the wire.
//!
//! Not here: following or joining fragments (`runtime::fragments`).
//!
//! Sources: RFC 791 3.1, RFC 8200 4.5.

use crate::packet::{Packet, flag};

/// An IP header's fields about a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The number that all fragments of a datagram share; 16 bits in IPv4.
    pub identification: u32,
    /// First byte of its data in the datagram's.
    pub offset: u16,
    /// Bytes of data.
    pub length: u16,
    /// Whether others follow.
    pub more: bool,
    /// Offset of the fragment header from the IP header on; 0 for IPv4.
    pub header: u16,
}

impl Fragment {
    /// Behind its last byte.
    pub fn end(&self) -> u32 {
        u32::from(self.offset) + u32::from(self.length)
    }

    /// Whether it can be a part of anything: it has data, in units of eight bytes unless it is the
    /// last (RFC 8200 4.5). RFC 791 has no such rule for receivers, so a first part of IPv4 may be
    /// odd: whatever would follow it leaves a hole or overlaps.
    pub fn is_sound(&self) -> bool {
        let is_first_v4 = self.header == 0 && self.offset == 0;
        self.length > 0 && (is_first_v4 || !self.more || self.length.is_multiple_of(8))
    }
}

/// Reads where a parsed packet's data belongs; `None` for a whole packet.
pub fn fragment(packet: &Packet) -> Option<Fragment> {
    if !packet.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT) {
        return None;
    }
    let header = packet.network();
    let word = |at: usize| {
        let bytes = header.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    if packet.version() == 4 {
        let field = word(6)?;
        let header_length = 4 * u16::from(header.first()? & 0x0f);
        return Some(Fragment {
            identification: u32::from(word(4)?),
            offset: field << 3,
            length: word(2)?.checked_sub(header_length)?,
            more: field & 0x2000 != 0,
            header: 0,
        });
    }
    let (mut next, mut at) = (*header.get(6)?, 40);
    // Parsed, so the headers before it fit, and are few.
    while next != 44 {
        if !matches!(next, 0 | 43 | 60 | 135 | 139 | 140) {
            return None;
        }
        next = *header.get(at)?;
        at += 8 + 8 * usize::from(*header.get(at + 1)?);
    }
    let field = word(at + 2)?;
    let total = 40 + usize::from(word(4)?);
    Some(Fragment {
        identification: u32::from(word(at + 4)?) << 16 | u32::from(word(at + 6)?),
        offset: field & 0xfff8,
        length: u16::try_from(total.checked_sub(at + 8)?).ok()?,
        more: field & 1 != 0,
        header: at as u16,
    })
}
