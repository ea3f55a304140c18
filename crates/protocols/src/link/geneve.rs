//! Channel frames over UDP, as Geneve (RFC 8926) with one option.
//!
//! ```text
//!    0                   1                   2                   3
//!   │ 0 │ options: 2 │0 1│ reserved  │ protocol type 0x88b5          │
//!   │ network identifier (24 bits)                  │ reserved       │
//!   │ option class 0xff4b           │ type 0x81     │ 0 0 0 │ len 1 │   critical
//!   │ from worker                   │ to worker                     │
//!   │ channel frame …
//! ```
//!
//! The class is of the range for experiments (RFC 8926 7); the option's type has the critical bit,
//! so that no receiver takes the frame for something else, and the header has C set. Workers stand
//! in the option so that a process that receives for several can hand a frame on without reading
//! into it; the channel holds them against its own head, which the tag covers.
//!
//! Options of others are passed over if they are not critical. The network identifier is the
//! cluster's: two clusters on one network have two.
//!
//! The UDP source port follows from the pair ([`source_port`]): networks that spread by it keep the
//! order within a pair.

use super::{ETHERTYPE, NotOurs};

/// The UDP port that Geneve is received at.
pub const PORT: u16 = 6081;
/// Bytes in front of a frame, as they are written here.
pub const FRONT: usize = 16;
/// Class of our option.
pub const CLASS: u16 = 0xff4b;
/// Its type; the first bit says that it must be understood.
pub const TYPE: u8 = 0x81;
const CRITICAL: u8 = 0x80;
/// In the header's second byte: there are critical options.
const HAS_CRITICAL: u8 = 0x40;

/// The bytes in front of a channel frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    /// The cluster's network, 24 bits.
    pub network: u32,
    /// Worker that sends.
    pub from: u16,
    /// Worker it is for.
    pub to: u16,
}

impl Front {
    /// Writes what stands in front.
    pub fn write(&self, bytes: &mut [u8; FRONT]) {
        debug_assert!(self.network < 1 << 24);
        let ether = ETHERTYPE.to_be_bytes();
        let [_, network @ ..] = self.network.to_be_bytes();
        let class = CLASS.to_be_bytes();
        bytes[..4].copy_from_slice(&[2, HAS_CRITICAL, ether[0], ether[1]]);
        bytes[4..7].copy_from_slice(&network);
        bytes[7] = 0;
        bytes[8..12].copy_from_slice(&[class[0], class[1], TYPE, 1]);
        bytes[12..14].copy_from_slice(&self.from.to_be_bytes());
        bytes[14..].copy_from_slice(&self.to.to_be_bytes());
    }

    /// Reads a datagram of network `network`: its front, and the channel frame.
    pub fn read(bytes: &[u8], network: u32) -> Result<(Front, &[u8]), NotOurs> {
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or(NotOurs::Short)?;
        let [first, _, t0, t1, n0, n1, n2, _] = *head;
        if first >> 6 != 0 {
            return Err(NotOurs::Version);
        }
        if u16::from_be_bytes([t0, t1]) != ETHERTYPE {
            return Err(NotOurs::Protocol);
        }
        if u32::from_be_bytes([0, n0, n1, n2]) != network {
            return Err(NotOurs::Network);
        }
        let (mut options, frame) = rest
            .split_at_checked(4 * usize::from(first & 0x3f))
            .ok_or(NotOurs::Options)?;
        let mut workers = None;
        while !options.is_empty() {
            let (&[c0, c1, kind, length], behind) = options.split_first_chunk().ok_or(NotOurs::Options)?;
            let (value, behind) = behind
                .split_at_checked(4 * usize::from(length & 0x1f))
                .ok_or(NotOurs::Options)?;
            if u16::from_be_bytes([c0, c1]) == CLASS && kind == TYPE {
                let &[f0, f1, t0, t1] = value.as_array().ok_or(NotOurs::Options)?;
                if workers.is_some() {
                    return Err(NotOurs::Options);
                }
                workers = Some((u16::from_be_bytes([f0, f1]), u16::from_be_bytes([t0, t1])));
            } else if kind & CRITICAL != 0 {
                return Err(NotOurs::Critical);
            }
            options = behind;
        }
        let (from, to) = workers.ok_or(NotOurs::Options)?;
        Ok((Front { network, from, to }, frame))
    }
}

/// The source port for a pair of workers: the same for all its frames, and for no other pair of the
/// first 128 workers.
pub fn source_port(from: u16, to: u16) -> u16 {
    // The range for private use (RFC 6335 6).
    49152 | (from & 127) << 7 | (to & 127)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const FRONT_OF: Front = Front {
        network: 0x12_3456,
        from: 3,
        to: 700,
    };

    fn written() -> Vec<u8> {
        let mut bytes: Vec<u8> = std::vec![0; FRONT];
        FRONT_OF.write(bytes.first_chunk_mut().unwrap());
        bytes.extend(b"frame");
        bytes
    }

    fn refused(change: impl FnOnce(&mut Vec<u8>)) -> NotOurs {
        let mut bytes = written();
        change(&mut bytes);
        Front::read(&bytes, FRONT_OF.network).expect_err("refused")
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(
            Front::read(&written(), FRONT_OF.network),
            Ok((FRONT_OF, &b"frame"[..]))
        );
        assert_eq!(Front::read(&written(), 1), Err(NotOurs::Network));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        assert_eq!(refused(|bytes| bytes.truncate(7)), NotOurs::Short);
        assert_eq!(refused(|bytes| bytes[0] |= 0x40), NotOurs::Version);
        assert_eq!(refused(|bytes| bytes[2] = 8), NotOurs::Protocol);
        assert_eq!(refused(|bytes| bytes[0] = 0), NotOurs::Options);
        assert_eq!(refused(|bytes| bytes[0] = 30), NotOurs::Options);
        assert_eq!(refused(|bytes| bytes[0] = 1), NotOurs::Options);
        assert_eq!(refused(|bytes| bytes[11] = 2), NotOurs::Options);
        assert_eq!(refused(|bytes| bytes[10] = 0x82), NotOurs::Critical);
    }

    /// An option of another class before ours is passed over, unless it is critical.
    #[test]
    fn others_options_are_passed_over() {
        let with = |kind: u8| {
            let mut bytes = written();
            bytes[0] = 5;
            bytes.splice(8..8, [0x01, 0x02, kind, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes
        };
        assert_eq!(
            Front::read(&with(5), FRONT_OF.network),
            Ok((FRONT_OF, &b"frame"[..]))
        );
        assert_eq!(Front::read(&with(0x85), FRONT_OF.network), Err(NotOurs::Critical));
    }

    proptest! {
        #[test]
        fn any_bytes_end_somewhere(bytes in proptest::collection::vec(any::<u8>(), 0..80), options in 0u8..64) {
            let mut bytes = bytes;
            let _ = Front::read(&bytes, 0);
            let ours = written();
            let count = bytes.len().min(8);
            bytes[..count].copy_from_slice(&ours[..count]);
            if let Some(first) = bytes.first_mut() {
                *first = options;
            }
            if let Ok((_, frame)) = Front::read(&bytes, FRONT_OF.network) {
                prop_assert!(frame.len() + 8 + 4 * usize::from(options) == bytes.len());
            }
        }

        #[test]
        fn source_ports_are_private_and_a_pairs_own(a in any::<(u16, u16)>(), b in (0u16..128, 0u16..128)) {
            prop_assert!(source_port(a.0, a.1) >= 49152);
            let a = (a.0 & 127, a.1 & 127);
            prop_assert_eq!(source_port(a.0, a.1) == source_port(b.0, b.1), a == b);
        }
    }
}
