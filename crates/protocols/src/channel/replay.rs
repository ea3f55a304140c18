//! Which frame numbers of a session have been received: a number is good once.
//!
//! A window of 1024 bits below the highest number (after RFC 6479, words in a circle). A number
//! older than the window is refused, seen or not: a sender repeats under a new number.

const WORDS: usize = 16;
/// How far behind the highest a number may be.
pub const REACH: u64 = (WORDS as u64 - 1) * 64;

/// The numbers received.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    highest: u64,
    words: [u64; WORDS],
}

/// The judgement of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    New,
    Seen,
    Old,
}

impl Replay {
    /// No number received; the first expected is `first`.
    pub(super) fn new(first: u64) -> Replay {
        let highest = first.wrapping_sub(1);
        // Nothing below the first can come: the window is full there.
        let mut words = [u64::MAX; WORDS];
        let (word, bit) = Self::place(highest);
        words[word] = bit | (bit - 1);
        Replay { highest, words }
    }

    /// The highest number received; one less than the first if there was none.
    #[inline]
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    fn place(number: u64) -> (usize, u64) {
        ((number / 64) as usize % WORDS, 1 << (number % 64))
    }

    /// Judges a number.
    #[inline]
    pub(super) fn judge(&self, number: u64) -> Number {
        let ahead = number.wrapping_sub(self.highest);
        if ahead != 0 && ahead < 1 << 63 {
            return Number::New;
        }
        if self.highest.wrapping_sub(number) > REACH {
            return Number::Old;
        }
        let (word, bit) = Self::place(number);
        if self.words[word] & bit == 0 {
            Number::New
        } else {
            Number::Seen
        }
    }

    /// Notes a number that was judged new.
    #[inline]
    pub(super) fn note(&mut self, number: u64) {
        let ahead = number.wrapping_sub(self.highest);
        if ahead < 1 << 63 {
            // Words between the two become new ones.
            let crossed = (number / 64).wrapping_sub(self.highest / 64) & (u64::MAX / 64);
            for step in 1..=crossed.min(WORDS as u64) {
                let word = ((self.highest / 64).wrapping_add(step) as usize) % WORDS;
                self.words[word] = 0;
            }
            self.highest = number;
        }
        let (word, bit) = Self::place(number);
        self.words[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// A set of all numbers ever, and the reach, say the same.
        #[test]
        fn agrees_with_a_set_of_numbers(
            first in prop_oneof![Just(0u64), Just(1), Just(u64::MAX - 5), Just((1 << 32) - 3), any::<u64>()],
            steps in proptest::collection::vec(prop_oneof![4 => 0u64..80, 1 => 0u64..3000], 1..400),
        ) {
            let mut replay = Replay::new(first);
            let mut seen = BTreeSet::new();
            // Offsets from `first`, drifting forward: some behind the highest, some far ahead.
            let mut base = 0u64;
            let mut highest: Option<u64> = None;
            for (turn, step) in steps.into_iter().enumerate() {
                let offset = if turn % 3 == 0 { base.saturating_sub(step) } else { base + step };
                base = base.max(offset);
                let ahead_of_start = i128::from(offset) - highest.map_or(-1, i128::from);
                let expected = if ahead_of_start > 0 {
                    Number::New
                } else if -ahead_of_start > i128::from(REACH) {
                    Number::Old
                } else if seen.contains(&offset) {
                    Number::Seen
                } else {
                    Number::New
                };
                let number = first.wrapping_add(offset);
                prop_assert_eq!(replay.judge(number), expected, "offset {}", offset);
                if expected == Number::New {
                    replay.note(number);
                    seen.insert(offset);
                    highest = Some(highest.map_or(offset, |highest| highest.max(offset)));
                    prop_assert_eq!(replay.judge(number), Number::Seen);
                }
            }
        }
    }

    #[test]
    fn what_came_before_the_first_is_not_new() {
        let replay = Replay::new(1000);
        for number in [999, 998, 500, 1000 - REACH] {
            assert_eq!(replay.judge(number), Number::Seen, "{number}");
        }
        assert_eq!(Replay::new(100_000).judge(5), Number::Old);
    }
}
