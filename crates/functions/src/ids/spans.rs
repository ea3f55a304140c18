//! Sets of numbers as sorted runs: a rule's addresses (IPv4 as mapped into IPv6) and ports.
//!
//! ```text
//!   [10.0.0.0/8, !10.1.0.0/16]    10.0.0.0–10.0.255.255, 10.2.0.0–10.255.255.255
//!   [80, 8000:8100, !8080]        80–80, 8000–8079, 8081–8100
//! ```
//!
//! Invariants: runs are sorted and neither touch nor overlap (`agrees_with_membership`).
//!
//! Not here: how they are written (`header`).

use alloc::vec::Vec;

/// A set of numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Spans(Vec<(u128, u128)>);

impl Spans {
    /// Every number.
    pub fn all() -> Self {
        Spans(Vec::from([(0, u128::MAX)]))
    }

    /// The numbers from `first` to `last`, both included.
    pub fn run(first: u128, last: u128) -> Self {
        Spans(Vec::from([(first, last)]))
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everything is.
    pub fn is_all(&self) -> bool {
        self.0 == [(0, u128::MAX)]
    }

    /// The union of many sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Spans>) -> Self {
        let mut runs: Vec<(u128, u128)> = sets.into_iter().flat_map(|set| set.0.iter().copied()).collect();
        runs.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(runs.len());
        for (first, last) in runs {
            match joined.last_mut() {
                Some(before) if before.1 == u128::MAX || first <= before.1 + 1 => {
                    before.1 = before.1.max(last)
                }
                _ => joined.push((first, last)),
            }
        }
        Spans(joined)
    }

    /// The numbers that are not in it.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut runs = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for &(first, last) in &self.0 {
            if let Some(from) = next
                && from < first
            {
                runs.push((from, first - 1));
            }
            next = last.checked_add(1);
        }
        if let Some(from) = next {
            runs.push((from, u128::MAX));
        }
        Spans(runs)
    }

    /// The numbers in this one and not in the other.
    #[must_use]
    pub fn without(&self, other: &Spans) -> Self {
        Spans::union([&self.complement(), other]).complement()
    }

    /// Whether a number is in it.
    #[inline]
    pub fn contains(&self, number: u128) -> bool {
        let behind = self.0.partition_point(|run| run.0 <= number);
        behind > 0 && number <= self.0[behind - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_membership(
            a in prop::collection::vec((0u128..40, 0u128..9), 0..6),
            b in prop::collection::vec((0u128..40, 0u128..9), 0..6),
        ) {
            let set = |runs: &[(u128, u128)]| {
                let each: Vec<Spans> = runs.iter().map(|(first, more)| Spans::run(*first, first + more)).collect();
                Spans::union(&each)
            };
            let (left, right) = (set(&a), set(&b));
            let inside = |runs: &[(u128, u128)], n: u128| runs.iter().any(|(f, m)| (*f..=f + m).contains(&n));
            for n in 0..60 {
                prop_assert_eq!(left.contains(n), inside(&a, n));
                prop_assert_eq!(left.without(&right).contains(n), inside(&a, n) && !inside(&b, n));
            }
            prop_assert!(left.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            prop_assert_eq!(left.complement().complement(), left);
        }
    }

    #[test]
    fn the_ends_of_the_numbers() {
        assert_eq!(Spans::all().complement(), Spans::default());
        assert_eq!(Spans::default().complement(), Spans::all());
        let low = Spans::run(0, 5);
        assert_eq!(low.complement(), Spans::run(6, u128::MAX));
        assert!(low.complement().contains(u128::MAX) && !low.complement().contains(5));
    }
}
