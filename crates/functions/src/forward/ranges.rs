//! Longest prefix match: a sorted list of ranges, searched by halving.
//!
//! ```text
//!   0.0.0.0/0 ↦ a   10.0.0.0/8 ↦ b   10.1.0.0/16 ↦ c
//!
//!   from   0.0.0.0   10.0.0.0   10.1.0.0   10.2.0.0   11.0.0.0
//!   value  a         b          c          b          a
//! ```
//!
//! A look-up is one search among the beginnings: five steps for a gateway's routes, twenty for
//! those of the whole Internet. It is done for a flow's first packet and after a change only
//! ([`super::state`]). The list is made once and never changed.
//!
//! Invariant: the same value as that of the longest of all prefixes that contain the address
//! (`tests::agrees_with_a_look_at_every_prefix`).

use alloc::vec::Vec;

/// Nothing matches.
pub const NOTHING: u32 = u32::MAX;

/// A number of as many bits as an address.
pub trait Number: Copy + Ord {
    /// The smallest.
    const ZERO: Self;
    /// One more, unless this is the largest.
    fn next(self) -> Option<Self>;
}

impl Number for u32 {
    const ZERO: u32 = 0;
    fn next(self) -> Option<u32> {
        self.checked_add(1)
    }
}

impl Number for u128 {
    const ZERO: u128 = 0;
    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }
}

/// Values by prefix.
#[derive(Clone, Debug, Default)]
pub struct Ranges<N> {
    starts: Vec<N>,
    values: Vec<u32>,
}

impl<N: Number> Ranges<N> {
    /// Of prefixes as their first and last address, each with a value; of equal ones, the last has
    /// it.
    pub fn new(mut prefixes: Vec<(N, N, u32)>) -> Self {
        // An outer prefix before those inside it; stable, so that of equal ones the last comes
        // last.
        prefixes.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let mut ranges = Ranges {
            starts: Vec::new(),
            values: Vec::new(),
        };
        ranges.put(N::ZERO, NOTHING);
        let mut open: Vec<(N, u32)> = Vec::new();
        for (first, last, value) in prefixes {
            ranges.close(&mut open, Some(first));
            ranges.put(first, value);
            open.push((last, value));
        }
        ranges.close(&mut open, None);
        ranges
    }

    /// Ends the prefixes that end before `before`, or all.
    fn close(&mut self, open: &mut Vec<(N, u32)>, before: Option<N>) {
        while let Some((last, _)) = open.last().copied() {
            if before.is_some_and(|before| last >= before) {
                return;
            }
            open.pop();
            if let Some(next) = last.next() {
                self.put(next, open.last().map_or(NOTHING, |(_, value)| *value));
            }
        }
    }

    fn put(&mut self, start: N, value: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    /// The value of the longest prefix that contains an address, or [`NOTHING`].
    pub fn find(&self, address: N) -> u32 {
        let behind = self.starts.partition_point(|start| *start <= address);
        match behind.checked_sub(1) {
            Some(at) => self.values[at],
            None => NOTHING,
        }
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(address: u32, length: u32, value: u32) -> (u32, u32, u32) {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        (address & mask, address | !mask, value)
    }

    proptest! {
        #[test]
        fn agrees_with_a_look_at_every_prefix(
            prefixes in prop::collection::vec((any::<u32>(), 0u32..33, 0u32..9), 0..40),
            clustered in prop::collection::vec((0u32..64, 26u32..33, 0u32..9), 0..40),
            addresses in prop::collection::vec(any::<u32>(), 20),
        ) {
            let all: Vec<_> = prefixes.into_iter().chain(clustered).collect();
            let ranges = Ranges::new(all.iter().map(|(a, l, v)| prefix(*a, *l, *v)).collect());
            let probes = addresses.into_iter().chain(0..64).chain(all.iter().map(|p| p.0)).chain([u32::MAX]);
            for address in probes {
                // Of equal prefixes the last.
                let best = all
                    .iter()
                    .filter(|(a, l, _)| { let (first, last, _) = prefix(*a, *l, 0); (first..=last).contains(&address) })
                    .max_by_key(|(_, length, _)| *length);
                prop_assert_eq!(ranges.find(address), best.map_or(NOTHING, |(_, _, value)| *value));
            }
            prop_assert!(ranges.len() <= 2 * all.len() + 1);
        }
    }

    #[test]
    fn the_whole_internet_and_nothing() {
        let none = Ranges::<u128>::new(Vec::new());
        assert_eq!(none.find(7), NOTHING);
        let all = Ranges::new(std::vec![(0_u128, u128::MAX, 3)]);
        assert_eq!((all.find(0), all.find(u128::MAX), all.len()), (3, 3, 1));
    }
}
