//! Fragments (RFC 791 3.2, RFC 8200 4.5): how a host takes a packet apart, and how it and the
//! checkers put it together again.
//!
//! All parts of a packet but the last have one length, so which part one is follows from its
//! offset. In IPv6 a header of eight bytes stands before each; the identifier is the flow label's
//! there, and the fragment header's.

use super::{IP, IP6, id_at, link_length, read_ip, seal, word};
use wire::LinkType;

/// The most parts of a packet.
pub(crate) const PARTS_MAX: usize = 4;
const FRAGMENT: u8 = 44;

/// Takes a frame apart into so many parts, or fewer, if it is too short; the length of all parts
/// but the last, too.
pub(crate) fn split(link: LinkType, frame: &[u8], count: usize) -> (Vec<Vec<u8>>, u16) {
    let ip = link_length(link);
    let is_v6 = frame[ip] >> 4 == 6;
    let at = ip + if is_v6 { IP6 } else { IP };
    let (header, rest) = frame.split_at(at);
    let length = rest.len().div_ceil(count).div_ceil(8) * 8;
    let parts: Vec<&[u8]> = rest.chunks(length).collect();
    let last = parts.len() - 1;
    let write = |(index, part): (usize, &&[u8])| {
        let mut bytes = header.to_vec();
        let offset = (index * length) as u16;
        let is_more = index < last;
        if is_v6 {
            let protocol = std::mem::replace(&mut bytes[ip + 6], FRAGMENT);
            bytes[ip + 4..ip + 6].copy_from_slice(&(8 + part.len() as u16).to_be_bytes());
            bytes.extend([protocol, 0]);
            bytes.extend((offset | u16::from(is_more)).to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend_from_slice(&frame[id_at(link, frame)..id_at(link, frame) + 2]);
        } else {
            let words = (offset / 8) | if is_more { 0x2000 } else { 0 };
            bytes[ip + 2..ip + 4].copy_from_slice(&((IP + part.len()) as u16).to_be_bytes());
            bytes[ip + 6..ip + 8].copy_from_slice(&words.to_be_bytes());
            seal(&mut bytes[ip..]);
        }
        bytes.extend_from_slice(part);
        bytes
    };
    (parts.iter().enumerate().map(write).collect(), length as u16)
}

/// A part of a packet.
struct Part<'b> {
    is_v6: bool,
    protocol: u8,
    offset: usize,
    is_more: bool,
    bytes: &'b [u8],
}

/// Reads a part; `None` if the frame is none, or its header is wrong.
fn read_part(link: LinkType, frame: &[u8]) -> Option<Part<'_>> {
    let bytes = frame.get(link_length(link)..)?;
    let ip = read_ip(bytes)?;
    let rest = ip.rest.get(..ip.length)?;
    if ip.is_v6 {
        if ip.protocol != FRAGMENT || rest.len() < 8 {
            return None;
        }
        let word = word(rest, 2);
        return Some(Part {
            is_v6: true,
            protocol: rest[0],
            offset: usize::from(word & !7),
            is_more: word & 1 == 1,
            bytes: &rest[8..],
        });
    }
    let word = word(bytes, 6);
    (word & 0x3fff != 0).then(|| Part {
        is_v6: false,
        protocol: ip.protocol,
        offset: usize::from(word & 0x1fff) * 8,
        is_more: word & 0x2000 != 0,
        bytes: rest,
    })
}

/// Which part of a packet taken apart at `length` a frame is.
pub(crate) fn part_of(link: LinkType, frame: &[u8], length: u16) -> Option<u8> {
    let part = read_part(link, frame)?;
    let index = part.offset.checked_div(usize::from(length))?;
    (index < PARTS_MAX).then_some(index as u8)
}

/// Parts of one packet, as far as they are there.
#[derive(Clone, Default, Debug)]
pub(crate) struct Assembly([Option<Vec<u8>>; PARTS_MAX]);

impl Assembly {
    /// Takes a part up; answers the whole frame, if this makes it complete. An error is one that
    /// does not belong to the others: it has other addresses.
    pub fn take(&mut self, link: LinkType, index: u8, frame: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.0[usize::from(index)] = Some(frame.to_vec());
        let ip = link_length(link);
        let addresses = |frame: &[u8]| match frame[ip] >> 4 {
            6 => frame[ip + 8..ip + IP6].to_vec(),
            _ => frame[ip + 12..ip + IP].to_vec(),
        };
        let mut header: Option<Vec<u8>> = None;
        let (mut rest, mut is_complete) = (Vec::new(), false);
        for frame in self.0.iter().map_while(|frame| frame.as_deref()) {
            let Some(part) = read_part(link, frame) else {
                return Err("its header is wrong".to_owned());
            };
            if part.offset != rest.len() {
                return Err(format!("{} bytes are before one at {}", rest.len(), part.offset));
            }
            rest.extend_from_slice(part.bytes);
            is_complete = !part.is_more;
            let at = ip + if part.is_v6 { IP6 } else { IP };
            let first = header.get_or_insert_with(|| {
                let mut first = frame[..at].to_vec();
                if part.is_v6 {
                    first[ip + 6] = part.protocol;
                } else {
                    first[ip + 6] = 0x40;
                    first[ip + 7] = 0;
                }
                first
            });
            if addresses(first) != addresses(frame) {
                return Err("it has other addresses than those before it".to_owned());
            }
        }
        let Some(mut whole) = header.filter(|_| is_complete) else {
            return Ok(None);
        };
        if whole[ip] >> 4 == 6 {
            whole[ip + 4..ip + 6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        } else {
            whole[ip + 2..ip + 4].copy_from_slice(&((IP + rest.len()) as u16).to_be_bytes());
            seal(&mut whole[ip..]);
        }
        whole.extend(rest);
        Ok(Some(whole))
    }
}
