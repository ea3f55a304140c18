//! Committed bytes of a state beside what they were before a packet's chain, compared in line.
//!
//! ```text
//!   committed ranges ─► Shape: pieces of 16, 8, 4 or 1 bytes              made with the chain
//!   state ── note ──► shadow (pieces as they were) ── chain ──► differs? ── no ──► nothing is sent
//!                                                                 └─ yes ─► runs of changed bytes, and the shadow is as the state is
//! ```
//!
//! A range is cut into pieces of the largest size that it has room for; the last one ends with it,
//! and may lie over the one before.
//!
//! Invariants: each committed byte is in a piece, and no other is; no piece lies behind the state's
//! end.

use alloc::vec::Vec;
use core::ops::Range;

/// The longest run.
const RUN_MAX: usize = 248;
/// Bytes that are compared at once. Of one word all from the first to the last that differ are a
/// run: another one would have a head of three bytes.
const WORD: usize = 8;

/// Where the committed bytes of a state are: by size, the places of pieces in order.
#[derive(Clone, Default)]
pub struct Shape {
    of_16: Vec<usize>,
    of_8: Vec<usize>,
    of_4: Vec<usize>,
    of_1: Vec<usize>,
    /// Bytes of the state.
    length: usize,
}

/// A state as it was: its committed bytes, each at its place.
#[derive(Default)]
pub struct Shadow(Vec<u8>);

impl Shadow {
    /// How many there is room for, for tests.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn room(&mut self, length: usize) -> &mut [u8] {
        if self.0.len() < length {
            self.grow(length);
        }
        &mut self.0
    }

    #[cold]
    fn grow(&mut self, length: usize) {
        self.0.resize(length, 0);
    }
}

impl Shape {
    /// Of these ranges, in order, in a state of so many bytes.
    pub fn of(ranges: &[Range<usize>], length: usize) -> Self {
        let mut shape = Shape {
            length,
            ..Shape::default()
        };
        for range in ranges {
            let (start, end) = (range.start, range.end.min(length));
            let (places, size) = match end.saturating_sub(start) {
                16.. => (&mut shape.of_16, 16),
                8.. => (&mut shape.of_8, 8),
                4.. => (&mut shape.of_4, 4),
                _ => (&mut shape.of_1, 1),
            };
            places.extend((start..end).step_by(size).map(|at| at.min(end - size)));
        }
        shape
    }

    /// Whether no byte is committed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.of_16.is_empty() && self.of_8.is_empty() && self.of_4.is_empty() && self.of_1.is_empty()
    }

    /// Notes a state in a shadow.
    #[inline]
    pub fn note(&self, state: &[u8], shadow: &mut Shadow) {
        self.note_in(state, shadow.room(self.length));
    }

    /// The same in a shadow that is as long as the state at least.
    #[inline]
    pub fn note_in(&self, state: &[u8], shadow: &mut [u8]) {
        note::<16>(&self.of_16, state, shadow);
        note::<8>(&self.of_8, state, shadow);
        note::<4>(&self.of_4, state, shadow);
        note::<1>(&self.of_1, state, shadow);
    }

    /// Whether committed bytes are others than the shadow's.
    #[inline]
    pub fn differs(&self, state: &[u8], shadow: &Shadow) -> bool {
        self.differs_from(state, &shadow.0)
    }

    /// The same, of a shadow that is as long as the state at least.
    #[inline]
    pub fn differs_from(&self, state: &[u8], shadow: &[u8]) -> bool {
        differs::<16>(&self.of_16, state, shadow)
            || differs::<8>(&self.of_8, state, shadow)
            || differs::<4>(&self.of_4, state, shadow)
            || differs::<1>(&self.of_1, state, shadow)
    }

    /// Appends runs of what differs, each at its place as `place` says, and notes it in the shadow.
    pub fn runs(
        &self,
        state: &[u8],
        shadow: &mut Shadow,
        runs: &mut Vec<u8>,
        place: impl Fn(usize) -> usize,
    ) {
        self.runs_from(state, shadow.room(self.length), runs, place);
    }

    /// The same, of a shadow that is as long as the state at least.
    pub fn runs_from(
        &self,
        state: &[u8],
        shadow: &mut [u8],
        runs: &mut Vec<u8>,
        place: impl Fn(usize) -> usize,
    ) {
        let mut run = Run::NONE;
        changed::<16>(&self.of_16, state, shadow, &mut run, runs, &place);
        changed::<8>(&self.of_8, state, shadow, &mut run, runs, &place);
        changed::<4>(&self.of_4, state, shadow, &mut run, runs, &place);
        changed::<1>(&self.of_1, state, shadow, &mut run, runs, &place);
    }
}

#[inline(always)]
fn piece<const N: usize>(state: &[u8], at: usize) -> Option<&[u8; N]> {
    state.get(at..)?.first_chunk()
}

#[inline(always)]
fn piece_mut<const N: usize>(shadow: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    shadow.get_mut(at..)?.first_chunk_mut()
}

/// Notes pieces of one size.
#[inline(always)]
fn note<const N: usize>(places: &[usize], state: &[u8], shadow: &mut [u8]) {
    for at in places {
        if let (Some(before), Some(now)) = (piece_mut::<N>(shadow, *at), piece(state, *at)) {
            *before = *now;
        }
    }
}

/// Whether a piece of one size is another than it was.
#[inline(always)]
fn differs<const N: usize>(places: &[usize], state: &[u8], shadow: &[u8]) -> bool {
    let mut places = places.iter();
    places.any(|at| piece::<N>(state, *at) != piece::<N>(shadow, *at))
}

/// Pushes what differs in pieces of one size, and notes it.
#[inline(always)]
fn changed<const N: usize>(
    places: &[usize],
    state: &[u8],
    shadow: &mut [u8],
    run: &mut Run,
    runs: &mut Vec<u8>,
    place: &impl Fn(usize) -> usize,
) {
    for at in places {
        let (Some(now), Some(before)) = (piece::<N>(state, *at), piece_mut::<N>(shadow, *at)) else {
            return;
        };
        let mut word = *at;
        for (now, before) in now.chunks(WORD).zip(before.chunks(WORD)) {
            let (now_word, before_word) = (word_of(now), word_of(before));
            if now_word != before_word {
                run.push(word, now_word, now_word ^ before_word, place, runs);
            }
            word += now.len();
        }
        *before = *now;
    }
}

/// Up to eight bytes as a number, the first one lowest.
#[inline(always)]
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    for (place, byte) in word.iter_mut().zip(bytes) {
        *place = *byte;
    }
    u64::from_le_bytes(word)
}

/// The run that was appended last.
struct Run {
    /// Where its length is.
    length_at: usize,
    /// Behind its last byte, as a place in the state.
    end: usize,
}

impl Run {
    const NONE: Run = Run {
        length_at: 0,
        end: usize::MAX,
    };

    /// Appends what differs of a word at a place, all from its first to its last byte: to the last
    /// run if that ends there.
    #[inline(always)]
    fn push(
        &mut self,
        at: usize,
        now: u64,
        differs: u64,
        place: &impl Fn(usize) -> usize,
        runs: &mut Vec<u8>,
    ) {
        let first = differs.trailing_zeros() as usize / 8;
        let behind = WORD - differs.leading_zeros() as usize / 8;
        let length = behind - first;
        let bytes = (now >> (8 * first)).to_le_bytes();
        if self.end == at + first
            && let Some(known) = runs.get_mut(self.length_at)
            && usize::from(*known) + length <= RUN_MAX
        {
            *known += length as u8;
            runs.extend_from_slice(&bytes);
            runs.truncate(runs.len() - WORD + length);
        } else {
            let [high, low] = (place(at + first) as u16).to_be_bytes();
            let [a, b, c, d, e, f, g, h] = bytes;
            self.length_at = runs.len() + 2;
            runs.extend_from_slice(&[high, low, length as u8, a, b, c, d, e, f, g, h]);
            runs.truncate(runs.len() - WORD + length);
        }
        self.end = at + behind;
    }
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
            let (mut shadow, mut runs) = (Shadow::default(), Vec::new());
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
        let (mut shadow, mut runs) = (Shadow::default(), Vec::new());
        let mut state = [0; 128];
        shape.note(&state, &mut shadow);
        state[0] = 1;
        state[70..74].copy_from_slice(&[1, 2, 3, 4]);
        shape.runs(&state, &mut shadow, &mut runs, |at| at);
        assert_eq!(runs, [0, 70, 4, 1, 2, 3, 4, 0, 0, 1, 1]);
    }
}
