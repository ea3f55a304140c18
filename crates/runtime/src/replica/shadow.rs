//! Committed bytes of a state beside what they were before a packet's chain, compared in line.
//!
//! ```text
//!   committed ranges ─► Shape: lines of 64 bytes, single words, each with a mask     made with the chain
//!   state ── note ──► shadow (words as they were) ── chain ──► differs? ── no ──► nothing is sent
//!                                                                └─ yes ─► runs of what changed, and the shadow is as the state is
//! ```
//!
//! A word is little-endian, so that byte n of the state is bits 8n of its word. Lazy bytes are outside all
//! masks: they are copied to the shadow and never compared or sent.
//!
//! Invariants: each committed byte is in one mask; no place lies behind the state's last whole word.

use alloc::vec::Vec;
use core::ops::Range;

/// Words of a line.
const LINE: usize = 8;
/// Bytes of a word.
const WORD: usize = 8;
/// Fewer words of a line than this are taken one by one.
const LINE_MIN: usize = 3;
/// The longest run.
const RUN_MAX: usize = 248;

type Line = [u64; LINE];

/// Where the committed bytes of a state are.
#[derive(Clone, Default)]
pub struct Shape {
    lines: Vec<(usize, Line)>,
    words: Vec<(usize, u64)>,
}

impl Shape {
    /// Of these ranges in a state of so many bytes.
    pub fn of(ranges: &[Range<usize>], length: usize) -> Self {
        let mut masks = alloc::vec![0_u64; length.div_ceil(WORD)];
        for at in ranges.iter().cloned().flatten().filter(|at| *at < length) {
            masks[at / WORD] |= 0xFF << (at % WORD * 8);
        }
        let mut shape = Shape::default();
        for (number, line) in masks.chunks(LINE).enumerate() {
            let first = number * LINE * WORD;
            let is_whole = first + LINE * WORD <= length;
            let count = line.iter().filter(|mask| **mask != 0).count();
            match line.try_into() {
                Ok(line) if is_whole && count >= LINE_MIN => shape.lines.push((first, line)),
                _ => {
                    let words = line.iter().enumerate().filter(|(_, mask)| **mask != 0);
                    let words = words.map(|(word, mask)| (first + word * WORD, *mask));
                    shape.words.extend(words);
                }
            }
        }
        shape
    }

    /// Its masks in the first line of a state, of which it begins at `offset`, beside others there;
    /// `false` if it reaches further.
    pub fn mask_line(&self, offset: usize, masks: &mut [u64; LINE]) -> bool {
        let lines = self.lines.iter().flat_map(|(at, line)| {
            let words = line.iter().enumerate();
            words.map(|(word, mask)| (*at + word * WORD, *mask))
        });
        let mut all = lines
            .chain(self.words.iter().copied())
            .filter(|(_, mask)| *mask != 0);
        all.all(|(at, mask)| {
            let place = masks.get_mut((offset + at) / WORD);
            let is_there = place.is_some() && offset.is_multiple_of(WORD);
            if let Some(place) = place {
                *place |= mask.to_le();
            }
            is_there
        })
    }

    /// Whether no byte is committed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.words.is_empty()
    }

    /// Makes a shadow as long as this state needs it.
    fn fit(&self, shadow: &mut Vec<u64>) {
        shadow.resize(self.lines.len() * LINE + self.words.len(), 0);
    }

    /// Notes a state in a shadow.
    #[inline]
    pub fn note(&self, state: &[u8], shadow: &mut Vec<u64>) {
        if shadow.len() != self.lines.len() * LINE + self.words.len() {
            self.fit(shadow);
        }
        let (lines, words) = shadow.split_at_mut(self.lines.len() * LINE);
        for ((at, _), into) in self.lines.iter().zip(lines.as_chunks_mut::<LINE>().0) {
            *into = line_at(state, *at);
        }
        for ((at, _), into) in self.words.iter().zip(words) {
            *into = word_at(state, *at);
        }
    }

    /// Whether committed bytes are others than the shadow's.
    #[inline]
    pub fn differs(&self, state: &[u8], shadow: &[u64]) -> bool {
        let Some((lines, words)) = shadow.split_at_checked(self.lines.len() * LINE) else {
            return true;
        };
        let mut other = 0;
        for ((at, masks), before) in self.lines.iter().zip(lines.as_chunks::<LINE>().0) {
            let now = line_at(state, *at);
            for word in 0..LINE {
                other |= (now[word] ^ before[word]) & masks[word];
            }
        }
        for ((at, mask), before) in self.words.iter().zip(words) {
            other |= (word_at(state, *at) ^ before) & mask;
        }
        other != 0
    }

    /// Appends runs of what differs, each at its place as `place` says, and notes it in the shadow.
    pub fn runs(&self, state: &[u8], shadow: &mut [u64], runs: &mut Vec<u8>, place: impl Fn(usize) -> usize) {
        let mut run = Run::NONE;
        let lines = self.lines.iter().flat_map(|(at, masks)| {
            let words = masks.iter().enumerate();
            words.map(|(word, mask)| (*at + word * WORD, *mask))
        });
        for ((at, mask), before) in lines.chain(self.words.iter().copied()).zip(shadow) {
            let now = word_at(state, at);
            let other = (now ^ *before) & mask;
            if other != 0 {
                *before = now;
                run.append(place(at), now, other, mask, runs);
            }
        }
    }
}

/// The run that was appended last.
struct Run {
    /// Where its length is.
    length_at: usize,
    /// Behind its last place.
    end: usize,
}

impl Run {
    const NONE: Run = Run {
        length_at: 0,
        end: usize::MAX,
    };

    /// Appends the bytes of a word that differ; those between two of them go along if they are committed.
    #[inline]
    fn append(&mut self, place: usize, word: u64, mut other: u64, mask: u64, runs: &mut Vec<u8>) {
        while other != 0 {
            let from = other.trailing_zeros() as usize / 8;
            // As far as bytes are committed, one behind the other, up to the last that differs.
            let committed = (!(mask >> (8 * from))).trailing_zeros() as usize / 8;
            let last = (63 - other.leading_zeros() as usize) / 8;
            let to = (last + 1).min(from + committed);
            let bytes = word.to_le_bytes();
            self.push(place + from, bytes.get(from..to).unwrap_or_default(), runs);
            other = if to < WORD {
                other >> (8 * to) << (8 * to)
            } else {
                0
            };
        }
    }

    #[inline]
    fn push(&mut self, place: usize, bytes: &[u8], runs: &mut Vec<u8>) {
        if self.end == place
            && let Some(length) = runs.get_mut(self.length_at)
            && usize::from(*length) + bytes.len() <= RUN_MAX
        {
            *length += bytes.len() as u8;
        } else {
            runs.extend_from_slice(&(place as u16).to_be_bytes());
            self.length_at = runs.len();
            runs.push(bytes.len() as u8);
        }
        for byte in bytes {
            runs.push(*byte);
        }
        self.end = place + bytes.len();
    }
}

#[inline(always)]
fn line_at(state: &[u8], at: usize) -> Line {
    let line: Option<&[u8; LINE * WORD]> = state.get(at..).and_then(<[u8]>::first_chunk);
    let line = line.unwrap_or(&[0; LINE * WORD]);
    let mut words = [0; LINE];
    for (word, bytes) in words.iter_mut().zip(line.as_chunks::<WORD>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// The last word of a state may lack bytes, which are 0 then.
#[inline(always)]
fn word_at(state: &[u8], at: usize) -> u64 {
    match state.get(at..at + WORD).and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => short_word(state, at),
    }
}

#[cold]
fn short_word(state: &[u8], at: usize) -> u64 {
    let rest = state.get(at..).unwrap_or_default().iter().take(WORD);
    rest.rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(runs: &[u8], to: &mut [u8]) {
        let mut rest = runs;
        while let [high, low, length, tail @ ..] = rest {
            let (place, length) = (
                usize::from(u16::from_be_bytes([*high, *low])),
                usize::from(*length),
            );
            to[place..place + length].copy_from_slice(&tail[..length]);
            rest = &tail[length..];
        }
    }

    proptest! {
        /// Committed bytes arrive, lazy ones do not, and a second comparison finds nothing.
        #[test]
        fn what_changed_and_is_committed_is_sent(
            length in 1_usize..400,
            cuts in prop::collection::vec(0_usize..400, 0..8),
            changes in prop::collection::vec((0_usize..400, any::<u8>()), 0..300),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(length)).collect();
            cuts.sort_unstable();
            let ranges: Vec<_> = cuts.as_chunks::<2>().0.iter().map(|[from, to]| *from..*to).collect();
            let before: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let shape = Shape::of(&ranges, length);
            let (mut shadow, mut runs) = (Vec::new(), Vec::new());
            shape.note(&before, &mut shadow);
            prop_assert!(!shape.differs(&before, &shadow));
            let mut now = before.clone();
            for (at, byte) in changes {
                now[at % length] = byte;
            }
            let mut expected = before.clone();
            for range in &ranges {
                expected[range.clone()].copy_from_slice(&now[range.clone()]);
            }
            prop_assert_eq!(shape.differs(&now, &shadow), expected != before);
            shape.runs(&now, &mut shadow, &mut runs, |at| at);
            let mut copy = before.clone();
            apply(&runs, &mut copy);
            prop_assert_eq!(copy, expected);
            prop_assert!(!shape.differs(&now, &shadow));
        }
    }

    #[test]
    fn a_count_is_one_short_run() {
        let shape = Shape::of(&[0..8, 64..128], 128);
        let (mut shadow, mut runs) = (Vec::new(), Vec::new());
        let mut state = [0; 128];
        shape.note(&state, &mut shadow);
        state[0] = 1;
        state[70..74].copy_from_slice(&[1, 2, 3, 4]);
        shape.runs(&state, &mut shadow, &mut runs, |at| at);
        assert_eq!(runs, [0, 70, 4, 1, 2, 3, 4, 0, 0, 1, 1]);
    }
}
