//! All contents of a rule set in two automata, one of which does not tell upper from lower case.
//!
//! **Theory of operation.** Aho-Corasick: a state stands for the longest end of the bytes read that
//! begins a pattern, so that one look per byte finds every pattern, wherever packets divide it.
//! Only a state's number is kept between two packets.
//!
//! ```text
//!   patterns "/etc/", "tc/p"      "GET /et" leaves state "/et";  "c/passwd" goes on:  "/etc/" ends at 1, "tc/p" at 3
//! ```
//!
//! The library's own numbers depend on how it lays its tables out; ours are counted breadth first,
//! byte by byte, from the start, so that two workers with the same patterns have the same numbers,
//! whatever library built them. They are looked up once at the beginning and once at the end of a
//! run of bytes.
//!
//! Invariants: a number that is none of ours is the start's (`any_number_is_a_state`); dividing a
//! text anywhere changes nothing (`tests::split`).
//!
//! Not here: which rules a pattern belongs to (`ruleset`), where matches are remembered (`state`).
//!
//! Source: Aho and Corasick 1975, by the crate `aho-corasick`.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError, MatchKind, StartKind};
use alloc::collections::VecDeque;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;

/// Beyond so many bytes of patterns the table of all states by all bytes is not worth its memory.
const DENSE_BYTES_MAX: usize = 16_384;

#[derive(Debug)]
enum Engine {
    /// A table of all states by all classes of bytes.
    Dense(DFA),
    /// States with few ways on are lists.
    Compact(NFA),
}

/// An automaton whose states are numbers.
#[derive(Debug)]
pub(super) struct Patterns {
    engine: Engine,
    /// The library's number of each of our states.
    states: Vec<StateID>,
    /// Ours of each of the library's.
    numbers: BTreeMap<u32, u32>,
}

impl Patterns {
    /// The automaton of some patterns, `None` if there are none.
    pub fn new(patterns: &[&[u8]], fold_case: bool) -> Result<Option<Patterns>, BuildError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let bytes: usize = patterns.iter().map(|pattern| pattern.len()).sum();
        let engine = if bytes <= DENSE_BYTES_MAX {
            Engine::Dense(
                DFA::builder()
                    .match_kind(MatchKind::Standard)
                    .start_kind(StartKind::Unanchored)
                    .ascii_case_insensitive(fold_case)
                    .prefilter(false)
                    .build(patterns)?,
            )
        } else {
            Engine::Compact(
                NFA::builder()
                    .match_kind(MatchKind::Standard)
                    .ascii_case_insensitive(fold_case)
                    .prefilter(false)
                    .build(patterns)?,
            )
        };
        let (states, numbers) = match &engine {
            Engine::Dense(dfa) => number(dfa),
            Engine::Compact(nfa) => number(nfa),
        };
        Ok(Some(Patterns {
            engine,
            states,
            numbers,
        }))
    }

    /// How many states there are.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// Reads bytes from a state on; `on` is told each pattern that ends and how many bytes were
    /// read by then. Returns the state behind them.
    pub fn read(&self, state: u32, bytes: &[u8], on: &mut impl FnMut(u32, usize)) -> u32 {
        let start = self.states.get(state as usize).unwrap_or(&self.states[0]);
        let last = match &self.engine {
            Engine::Dense(dfa) => read(dfa, *start, bytes, on),
            Engine::Compact(nfa) => read(nfa, *start, bytes, on),
        };
        self.numbers.get(&last.as_u32()).copied().unwrap_or(0)
    }
}

fn read<A: Automaton>(
    automaton: &A,
    start: StateID,
    bytes: &[u8],
    on: &mut impl FnMut(u32, usize),
) -> StateID {
    let mut state = start;
    for (index, byte) in bytes.iter().enumerate() {
        state = automaton.next_state(Anchored::No, state, *byte);
        // Special are the states that match and the start.
        if automaton.is_special(state) && automaton.is_match(state) {
            for each in 0..automaton.match_len(state) {
                on(automaton.match_pattern(state, each).as_u32(), index + 1);
            }
        }
    }
    state
}

/// Numbers the states that can be reached from the start.
fn number<A: Automaton>(automaton: &A) -> (Vec<StateID>, BTreeMap<u32, u32>) {
    let Ok(start) = automaton.start_state(Anchored::No) else {
        // Built for unanchored reading, so it has such a start.
        unreachable!("an unanchored automaton has an unanchored start");
    };
    let mut states = Vec::from([start]);
    let mut numbers = BTreeMap::from([(start.as_u32(), 0)]);
    let mut queue = VecDeque::from([start]);
    while let Some(state) = queue.pop_front() {
        for byte in 0..=u8::MAX {
            let next = automaton.next_state(Anchored::No, state, byte);
            if let Entry::Vacant(vacant) = numbers.entry(next.as_u32()) {
                vacant.insert(states.len() as u32);
                states.push(next);
                queue.push_back(next);
            }
        }
    }
    (states, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(patterns: &Patterns, text: &[u8], parts: &[usize]) -> Vec<(u32, usize)> {
        let (mut state, mut found, mut base) = (0, Vec::new(), 0);
        for part in parts {
            let bytes = &text[base..base + part];
            state = patterns.read(state, bytes, &mut |pattern, at| found.push((pattern, base + at)));
            base += part;
        }
        found
    }

    #[test]
    fn dividing_a_text_changes_nothing() {
        let patterns: [&[u8]; 4] = [b"/etc/", b"tc/p", b"p", b"ETC"];
        for fold in [false, true] {
            let automaton = Patterns::new(&patterns, fold).unwrap().unwrap();
            let text = b"GET /etc/passwd /ETC/P";
            let whole = all(&automaton, text, &[text.len()]);
            assert!(whole.contains(&(0, 9)) && whole.contains(&(3, 20)));
            assert_eq!(whole.contains(&(1, 22)), fold);
            for cut in 0..=text.len() {
                assert_eq!(all(&automaton, text, &[cut, text.len() - cut]), whole);
            }
        }
    }

    #[test]
    fn any_number_is_a_state() {
        let automaton = Patterns::new(&[b"abc"], false).unwrap().unwrap();
        assert_eq!(automaton.states(), 4);
        for state in [0, 3, 4, u32::MAX] {
            automaton.read(state, b"abcabc", &mut |_, _| {});
        }
    }

    #[test]
    fn both_engines_have_the_same_numbers() {
        let many: Vec<Vec<u8>> = (0..2000u32)
            .map(|n| alloc::format!("pattern-{n:05}").into_bytes())
            .collect();
        let few: Vec<&[u8]> = many.iter().take(300).map(Vec::as_slice).collect();
        let all: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
        let dense = Patterns::new(&few, false).unwrap().unwrap();
        assert!(matches!(dense.engine, Engine::Dense(_)));
        let compact = Patterns::new(&all, false).unwrap().unwrap();
        assert!(matches!(compact.engine, Engine::Compact(_)));
        let (states, _) = number(&NFA::builder().prefilter(false).build(&few).unwrap());
        assert_eq!(states.len(), dense.states());
        let text = b"a pattern-00123 and pattern-001";
        for engine in [&dense, &compact] {
            let mut found = Vec::new();
            engine.read(0, text, &mut |pattern, at| found.push((pattern, at)));
            assert_eq!(found, [(123, 15)]);
        }
    }
}
