//! Flows that have come from elsewhere and have no place in the pool here: they are to end.
//!
//! Each is marked by its number until it ends, in whatever way, so that no later flow with the
//! number is taken for it. The runtime asks for marked flows one by one; the marks are looked
//! through from where the last was found, a few words for each question:
//!
//! ```text
//!   numbers   0 1 2 3 4 5 6 7 8 …
//!   marks     · · ■ · · ■ · · · …      asked: 2, 5; 2 has not ended, since a call of it waits: 2 again, in the next round
//! ```
//!
//! Invariant: `count` is the number of marks. Memory is taken at the start.

use super::alloc::vec;
use super::alloc::vec::Vec;

/// Words looked at for each question.
const LOOKS: usize = 256;

/// See the module's page.
pub(super) struct Refused {
    marks: Vec<u64>,
    count: usize,
    /// The number to look at next.
    at: usize,
}

impl Refused {
    /// Room for flows with numbers below `flows`.
    pub fn new(flows: usize) -> Self {
        Refused {
            marks: vec![0; flows.div_ceil(64)],
            count: 0,
            at: 0,
        }
    }

    /// Whether some flow is marked.
    pub fn is_any(&self) -> bool {
        self.count != 0
    }

    /// A flow is refused.
    pub fn mark(&mut self, number: u32) {
        let bit = 1 << (number % 64);
        if let Some(word) = self.marks.get_mut(number as usize / 64)
            && *word & bit == 0
        {
            *word |= bit;
            if self.count == 0 {
                self.at = number as usize;
            }
            self.count += 1;
        }
    }

    /// A flow ends, or departs; most are not marked.
    #[inline]
    pub fn end(&mut self, number: u32) {
        if self.count != 0 {
            self.unmark(number);
        }
    }

    #[cold]
    fn unmark(&mut self, number: u32) {
        let bit = 1 << (number % 64);
        if let Some(word) = self.marks.get_mut(number as usize / 64)
            && *word & bit != 0
        {
            *word &= !bit;
            self.count -= 1;
        }
    }

    /// The next marked flow of this round; `None` at its end, or if none is near.
    pub fn next_marked(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        for _ in 0..LOOKS {
            let Some(word) = self.marks.get(self.at / 64) else {
                self.at = 0;
                return None;
            };
            let left = word >> (self.at % 64);
            if left != 0 {
                let number = self.at + left.trailing_zeros() as usize;
                self.at = number + 1;
                return Some(number as u32);
            }
            self.at = (self.at / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod unit {
    use super::super::alloc::vec::Vec;
    use super::{LOOKS, Refused};

    const FLOWS: u32 = 1_000_000;

    #[test]
    fn many_end_in_as_many_questions() {
        let mut refused = Refused::new(FLOWS as usize);
        (0..FLOWS).rev().for_each(|number| refused.mark(number));
        refused.mark(7);
        let mut questions = 0;
        while refused.is_any() {
            questions += 1;
            if let Some(number) = refused.next_marked() {
                refused.end(number);
            }
        }
        // The first was found at the end.
        assert_eq!(questions, FLOWS + 1);
        assert!(refused.next_marked().is_none());
    }

    #[test]
    fn a_question_looks_at_few_marks_and_a_round_at_all() {
        let mut refused = Refused::new(FLOWS as usize);
        for number in [FLOWS - 1, 0, 64, 127, 500_000] {
            refused.mark(number);
        }
        refused.end(64);
        refused.end(65);
        // None ends: all come again in each round.
        let questions = FLOWS as usize / 64 / LOOKS + 8;
        for _ in 0..3 {
            let mut round: Vec<u32> = (0..questions).filter_map(|_| refused.next_marked()).collect();
            round.sort_unstable();
            round.dedup();
            assert_eq!(round, [0, 127, 500_000, FLOWS - 1]);
        }
    }

    #[test]
    fn a_number_beyond_the_table_is_no_flow() {
        let mut refused = Refused::new(64);
        refused.mark(64);
        refused.end(64);
        assert!(!refused.is_any() && refused.next_marked().is_none());
    }
}
