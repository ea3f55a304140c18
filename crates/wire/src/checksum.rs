//! The Internet checksum (RFC 1071), its incremental update (RFC 1624), and SCTP's CRC32c (RFC 9260
//! 6.8, appendix A).

/// One's complement sum of `bytes` as big-endian 16-bit words, added to `sum`, not folded.
pub fn sum(bytes: &[u8], mut sum: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    for word in words {
        sum += u32::from(u16::from_be_bytes(*word));
        // A frame has at most 65,535 bytes: 32,767 words of 16 bits and a start below 2^31 do not
        // overflow.
    }
    if let [last] = rest {
        sum += u32::from(*last) << 8;
    }
    sum
}

/// Folds a sum to 16 bits.
#[inline]
pub const fn fold(sum: u32) -> u16 {
    // Both halves become the sum of both; the carry of the lower one is the upper one's end-around
    // carry.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Folds a sum of 32-bit words, which comes to the same as one of 16-bit words (RFC 1071 2 C).
#[inline]
pub(crate) const fn fold_long(sum: u64) -> u16 {
    fold((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32)
}

/// The checksum of `bytes`, to be written into a header whose checksum field is zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes, 0))
}

/// The addend for a checksum when fields change: the sum of `!old + new` over 16-bit words (RFC
/// 1624, eqn. 3), or over 32-bit ones, which come to the same when the sum is folded (RFC 1071 2
/// C).
///
/// Built once for a rewrite and applied to each checksum that covers the fields.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Delta(u64);

impl Delta {
    /// No change.
    pub const NONE: Delta = Delta(0);

    /// A 16-bit field changed.
    #[inline]
    #[must_use]
    pub const fn word(self, old: u16, new: u16) -> Delta {
        Delta(self.0 + (!old) as u64 + new as u64)
    }

    /// A 32-bit field at an even offset changed.
    #[inline]
    #[must_use]
    pub const fn long(self, old: u32, new: u32) -> Delta {
        Delta(self.0 + (!old) as u64 + new as u64)
    }

    /// An IPv6 address changed.
    #[must_use]
    pub fn octets(self, old: &[u8; 16], new: &[u8; 16]) -> Delta {
        let mut delta = self;
        for (old, new) in old.as_chunks::<2>().0.iter().zip(new.as_chunks::<2>().0) {
            delta = delta.word(u16::from_be_bytes(*old), u16::from_be_bytes(*new));
        }
        delta
    }

    /// Both changes.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Delta) -> Delta {
        Delta(self.0 + other.0)
    }

    /// The new value of a checksum field.
    #[inline]
    pub const fn apply(self, old: u16) -> u16 {
        !fold_long(self.0 + (!old) as u64)
    }
}

/// The CRC of each byte, polynomial 0x1edc6f41 reflected.
const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc32c(bytes: &[u8], crc: u32) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        (crc >> 8) ^ CRC32C[usize::from(crc as u8 ^ byte)]
    })
}

/// The CRC of an SCTP packet, header included, its checksum field taken as zero. It is stored
/// little-endian, at byte 8.
pub fn sctp_crc(packet: &[u8]) -> u32 {
    let (before, rest) = packet.split_at(packet.len().min(8));
    let behind = rest.get(4..).unwrap_or_default();
    !crc32c(behind, crc32c(&[0; 4], crc32c(before, !0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn rfc_1071_example() {
        assert_eq!(
            fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0)),
            0xddf2
        );
    }

    #[test]
    fn crc32c_check_value() {
        assert_eq!(!crc32c(b"123456789", !0), 0xe306_9283);
    }

    #[test]
    fn an_odd_byte_stands_high() {
        assert_eq!(checksum(&[0x12, 0x34, 0x56]), checksum(&[0x12, 0x34, 0x56, 0]));
        // The largest frame does not overflow the sum.
        assert_eq!(fold(sum(&[0xff; 65_535], 0xffff)), 0xff00);
    }

    proptest! {
        #[test]
        fn update_equals_recompute(mut bytes in proptest::collection::vec(any::<u8>(), 20..64), at in 2usize..8, new in any::<u32>()) {
            bytes[0] = 0;
            bytes[1] = 0;
            // All-zero data has two representations of zero; real headers are never all zero.
            prop_assume!(bytes[18..].iter().any(|b| *b != 0));
            let before = checksum(&bytes);
            let at = at * 2;
            let old = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let mut changed: Vec<u8> = bytes.clone();
            changed[at..at + 4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(Delta::NONE.long(old, new).apply(before), checksum(&changed));
        }
    }
}
