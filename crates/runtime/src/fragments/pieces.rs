//! Which parts of a datagram have been seen, and whether the next one overlaps them.
//!
//! ```text
//!   seen       [0, 1480)  [2960, 3000)
//!   next       [1480, 2960)   fresh                and with it all is there: the last ends at 3000
//!              [0, 1480)      copy                 the same part once more, with the same bytes
//!              [0, 1480)      altered              the same part, with other bytes
//!              [1472, 2960)   overlap              over bytes that were judged already
//!              [3000, 4000)   overlap              behind the end
//! ```
//!
//! The bytes are compared by a digest with a secret key, of 32 bits: of four thousand million
//! altered parts one passes.
//!
//! Source: RFC 8200 4.5 (exact duplicates apart from overlaps), RFC 5722.

use wire::fragment::Fragment;

/// The most parts of a datagram that is followed: with that many of 1024 bytes each, the longest
/// there can be.
pub const PIECES_MAX: usize = 64;

/// How a part lies to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// New, and apart from all others.
    Fresh,
    /// Exactly a part that was there.
    Copy,
    /// In the place of a part that was there, and not the same.
    Altered,
    /// Over another, or behind the end.
    Overlap,
    /// A part too many.
    TooMany,
}

/// Where a part's data belongs, and what it is.
#[derive(Clone, Copy)]
struct Piece {
    offset: u16,
    length: u16,
    digest: u32,
}

/// The parts of one datagram.
#[derive(Clone)]
pub(super) struct Pieces {
    count: u8,
    /// Bytes of all of them.
    bytes: u32,
    /// Where the last one ends; 0 while it is not known.
    end: u32,
    all: [Piece; PIECES_MAX],
}

impl Pieces {
    pub const NONE: Pieces = Pieces {
        count: 0,
        bytes: 0,
        end: 0,
        all: [Piece {
            offset: 0,
            length: 0,
            digest: 0,
        }; PIECES_MAX],
    };

    pub fn clear(&mut self) {
        (self.count, self.bytes, self.end) = (0, 0, 0);
    }

    /// Adds a part, whose data have this digest, if it is fresh.
    pub fn add(&mut self, piece: &Fragment, digest: u32) -> Fit {
        let (from, to) = (u32::from(piece.offset), piece.end());
        for seen in &self.all[..usize::from(self.count)] {
            let (start, stop) = (
                u32::from(seen.offset),
                u32::from(seen.offset) + u32::from(seen.length),
            );
            if start == from && stop == to && (piece.more || self.end == to) {
                let is_same = seen.digest == digest && piece.more == (self.end != to);
                return if is_same { Fit::Copy } else { Fit::Altered };
            }
            if (from < stop && start < to) || (!piece.more && stop > to) {
                return Fit::Overlap;
            }
        }
        if self.end != 0 && (to > self.end || !piece.more) {
            return Fit::Overlap;
        }
        if usize::from(self.count) == PIECES_MAX {
            return Fit::TooMany;
        }
        self.all[usize::from(self.count)] = Piece {
            offset: piece.offset,
            length: piece.length,
            digest,
        };
        self.count += 1;
        self.bytes += u32::from(piece.length);
        if !piece.more {
            self.end = to;
        }
        Fit::Fresh
    }

    /// Whether a part is exactly as one that was there.
    pub fn has(&self, piece: &Fragment, digest: u32) -> bool {
        self.all[..usize::from(self.count)].iter().any(|seen| {
            (seen.offset, seen.length, seen.digest) == (piece.offset, piece.length, digest)
                && piece.more == (self.end != piece.end())
        })
    }

    /// Whether nothing is missing.
    pub fn is_all(&self) -> bool {
        self.end != 0 && self.bytes == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(offset: u16, length: u16, more: bool) -> Fragment {
        Fragment {
            identification: 1,
            offset,
            length,
            more,
            header: 0,
        }
    }

    #[test]
    fn the_example() {
        let mut pieces = Pieces::NONE;
        assert_eq!(pieces.add(&piece(0, 1480, true), 7), Fit::Fresh);
        assert_eq!(pieces.add(&piece(2960, 40, false), 7), Fit::Fresh);
        assert!(!pieces.is_all());
        assert_eq!(pieces.add(&piece(0, 1480, true), 8), Fit::Altered);
        for (offset, length, more, fit) in [
            (0, 1480, true, Fit::Copy),
            (0, 1480, false, Fit::Overlap),
            (2960, 40, false, Fit::Copy),
            (2960, 40, true, Fit::Altered),
            (1472, 1488, true, Fit::Overlap),
            (0, 8, true, Fit::Overlap),
            (3000, 1000, true, Fit::Overlap),
            (1480, 40, false, Fit::Overlap),
        ] {
            let next = piece(offset, length, more);
            assert_eq!(pieces.has(&next, 7), fit == Fit::Copy);
            assert_eq!(pieces.add(&next, 7), fit, "{offset} {length} {more}");
        }
        assert_eq!(pieces.add(&piece(1480, 1480, true), 7), Fit::Fresh);
        assert!(pieces.is_all());
    }

    #[test]
    fn parts_are_bounded() {
        let mut pieces = Pieces::NONE;
        for n in 0..PIECES_MAX as u16 {
            assert_eq!(pieces.add(&piece(16 * n, 8, true), 0), Fit::Fresh);
        }
        assert_eq!(pieces.add(&piece(0, 8, true), 0), Fit::Copy);
        assert_eq!(pieces.add(&piece(8, 8, true), 0), Fit::TooMany);
    }

    proptest! {
        /// Against a map of bytes.
        #[test]
        fn agrees_with_a_map_of_bytes(
            parts in prop::collection::vec((0u16..24, 1u16..6, any::<bool>(), 0u32..2), 1..40)
        ) {
            let mut pieces = Pieces::NONE;
            let mut owner = [usize::MAX; 256];
            let mut taken: std::vec::Vec<(u16, u16, bool, u32)> = std::vec::Vec::new();
            for (offset, length, more, data) in parts {
                let (offset, length) = (offset * 8, length * 8);
                let is_copy = taken.contains(&(offset, length, more, data));
                prop_assert_eq!(pieces.has(&piece(offset, length, more), data), is_copy);
                let fit = pieces.add(&piece(offset, length, more), data);
                prop_assert_eq!(fit == Fit::Copy, is_copy);
                let range = usize::from(offset)..usize::from(offset + length);
                let end = taken.iter().find(|p| !p.2).map(|p| p.0 + p.1);
                let over = owner[range.clone()].iter().any(|o| *o != usize::MAX)
                    || end.is_some_and(|end| offset + length > end || !more)
                    || (!more && taken.iter().any(|p| p.0 + p.1 > offset + length));
                match fit {
                    Fit::Fresh => {
                        prop_assert!(!over);
                        owner[range].fill(taken.len());
                        taken.push((offset, length, more, data));
                    }
                    Fit::Copy => {}
                    Fit::Altered => prop_assert!(taken.iter().any(|p| (p.0, p.1) == (offset, length))),
                    Fit::Overlap => prop_assert!(over),
                    Fit::TooMany => prop_assert!(false),
                }
                let end = taken.iter().find(|p| !p.2).map(|p| usize::from(p.0 + p.1));
                let all = end.is_some_and(|end| owner[..end].iter().all(|o| *o != usize::MAX));
                prop_assert_eq!(pieces.is_all(), all);
            }
        }
    }
}
