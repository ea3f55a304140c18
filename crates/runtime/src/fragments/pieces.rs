//! Which parts of a datagram have been seen, and whether the next one overlaps them.
//!
//! ```text
//!   seen       [0, 1480)  [2960, 3000)
//!   next       [1480, 2960)   fresh                and with it all is there: the last ends at 3000
//!              [0, 1480)      repeated             the same part once more
//!              [1472, 2960)   overlap              over bytes that were judged already
//!              [3000, 4000)   overlap              behind the end
//! ```
//!
//! Source: RFC 8200 4.5 (exact duplicates apart from overlaps), RFC 5722.

use wire::fragment::Fragment;

/// The most parts of a datagram that is followed: with that many of 1024 bytes each, the longest there can be.
pub const PIECES_MAX: usize = 64;

/// What a part is to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// New, and apart from all others.
    Fresh,
    /// Exactly one that was there.
    Repeated,
    /// Over another, or behind the end.
    Overlap,
    /// One too many.
    TooMany,
}

/// The parts of one datagram.
#[derive(Clone)]
pub(super) struct Pieces {
    count: u8,
    /// Bytes of all of them.
    bytes: u32,
    /// Where the last one ends; 0 while it is not known.
    end: u32,
    /// Offset and length.
    all: [(u16, u16); PIECES_MAX],
}

impl Pieces {
    pub const NONE: Pieces = Pieces {
        count: 0,
        bytes: 0,
        end: 0,
        all: [(0, 0); PIECES_MAX],
    };

    pub fn clear(&mut self) {
        (self.count, self.bytes, self.end) = (0, 0, 0);
    }

    /// Adds a part, if it is fresh.
    pub fn add(&mut self, piece: &Fragment) -> Fit {
        let (from, to) = (u32::from(piece.offset), piece.end());
        for (offset, length) in &self.all[..usize::from(self.count)] {
            let (start, stop) = (u32::from(*offset), u32::from(*offset) + u32::from(*length));
            if start == from && stop == to && (piece.more || self.end == to) {
                return Fit::Repeated;
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
        self.all[usize::from(self.count)] = (piece.offset, piece.length);
        self.count += 1;
        self.bytes += u32::from(piece.length);
        if !piece.more {
            self.end = to;
        }
        Fit::Fresh
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
        assert_eq!(pieces.add(&piece(0, 1480, true)), Fit::Fresh);
        assert_eq!(pieces.add(&piece(2960, 40, false)), Fit::Fresh);
        assert!(!pieces.is_all());
        for (offset, length, more, fit) in [
            (0, 1480, true, Fit::Repeated),
            (0, 1480, false, Fit::Overlap),
            (2960, 40, false, Fit::Repeated),
            (2960, 40, true, Fit::Repeated),
            (1472, 1488, true, Fit::Overlap),
            (0, 8, true, Fit::Overlap),
            (3000, 1000, true, Fit::Overlap),
            (1480, 40, false, Fit::Overlap),
        ] {
            assert_eq!(
                pieces.add(&piece(offset, length, more)),
                fit,
                "{offset} {length} {more}"
            );
        }
        assert_eq!(pieces.add(&piece(1480, 1480, true)), Fit::Fresh);
        assert!(pieces.is_all());
    }

    #[test]
    fn parts_are_bounded() {
        let mut pieces = Pieces::NONE;
        for n in 0..PIECES_MAX as u16 {
            assert_eq!(pieces.add(&piece(16 * n, 8, true)), Fit::Fresh);
        }
        assert_eq!(pieces.add(&piece(8, 8, true)), Fit::TooMany);
    }

    proptest! {
        /// Against a map of bytes.
        #[test]
        fn agrees_with_a_map_of_bytes(
            parts in prop::collection::vec((0u16..24, 1u16..6, any::<bool>()), 1..40)
        ) {
            let mut pieces = Pieces::NONE;
            let mut owner = [usize::MAX; 256];
            let mut taken: std::vec::Vec<(u16, u16, bool)> = std::vec::Vec::new();
            for (offset, length, more) in parts {
                let (offset, length) = (offset * 8, length * 8);
                let fit = pieces.add(&piece(offset, length, more));
                let range = usize::from(offset)..usize::from(offset + length);
                let end = taken.iter().find(|p| !p.2).map(|p| p.0 + p.1);
                let over = owner[range.clone()].iter().any(|o| *o != usize::MAX)
                    || end.is_some_and(|end| offset + length > end || !more)
                    || (!more && taken.iter().any(|p| p.0 + p.1 > offset + length));
                match fit {
                    Fit::Fresh => {
                        prop_assert!(!over);
                        owner[range].fill(taken.len());
                        taken.push((offset, length, more));
                    }
                    Fit::Repeated => prop_assert!(taken.iter().any(|p| (p.0, p.1) == (offset, length))),
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
