//! From hits to matches: whether a rule's contents stand where they must.
//!
//! **Theory of operation.** A packet's hits, and those kept in the flow, are put into chains, one
//! per pattern, the newest first. A rule's contents are gone through in order; for each, every hit
//! in its window is tried until the rest fits as well. Contents need not stand in the order in
//! which they are written: only `distance` and `within` tie one to the one before.
//!
//! ```text
//!   content:"user"; content:"root"; distance:1; within:8;        "user user  root"
//!   hits   user 4   user 9   root 15
//!   user ends at 9: root must begin at 10 or later and end by 18: 11..15 does
//! ```
//!
//! A match in a stream must have a hit that the packet at hand has brought, or it has been reported
//! before.
//!
//! Invariants: a packet costs at most [`HITS_PER_PACKET`] hits and [`TRIES_PER_PACKET`] tries,
//! whatever it is made of; hits beyond are counted, and not found. Nothing is allocated after the
//! start.
//!
//! Not here: the automata (`automaton`), a rule's other questions (`facts`).

use super::ruleset::{Compiled, Pattern, RuleSet};
use super::state::{BACK_MAX, HITS_MAX, Hit, Way};
use alloc::vec;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// Hits of one packet.
pub(super) const HITS_PER_PACKET: usize = 4096;
/// Hits that are tried for contents, over all rules of a packet.
const TRIES_PER_PACKET: u32 = 1 << 17;
/// No hit.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Found {
    /// The hit of the same pattern before it.
    before: u32,
    /// Position behind it.
    end: u64,
}

/// The scope of a search: positions that hits may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// From here `offset` counts; nothing begins before it.
    pub base: u64,
    /// Nothing ends behind it.
    pub end: u64,
    /// A hit that ends behind it is new.
    pub new_from: u64,
}

/// Memory for one packet's search, used again for the next.
#[derive(Debug)]
pub(super) struct Search {
    hits: Vec<Found>,
    /// How many of them are the flow's.
    old: usize,
    /// By pattern: its newest hit.
    newest: Vec<u32>,
    /// Patterns that have hits, each once.
    patterns: Vec<u32>,
    tries: u32,
    /// Hits that found no room.
    pub overflow: u64,
    /// Rules by number.
    pub candidates: Vec<u64>,
}

impl Search {
    /// Memory for a rule set.
    pub fn new(rules: &RuleSet) -> Self {
        let patterns = rules.patterns.len();
        Search {
            hits: Vec::with_capacity(HITS_PER_PACKET),
            old: 0,
            newest: vec![NONE; patterns],
            patterns: Vec::with_capacity(patterns),
            tries: 0,
            overflow: 0,
            candidates: vec![0; rules.len().div_ceil(64)],
        }
    }

    /// Forgets the packet before.
    pub fn begin(&mut self) {
        self.forget_hits();
        self.tries = TRIES_PER_PACKET;
        self.overflow = 0;
        self.candidates.fill(0);
    }

    /// Forgets all hits.
    pub fn forget_hits(&mut self) {
        for pattern in self.patterns.drain(..) {
            self.newest[pattern as usize] = NONE;
        }
        self.hits.clear();
        self.old = 0;
    }

    /// Takes the hits that a flow remembers; `position` is where its stream stands.
    pub fn recall(&mut self, way: &Way, position: u64) {
        for hit in way.hits().iter().rev() {
            let back = u64::from((position as u32).wrapping_sub(hit.end));
            // Foreign state may say anything.
            if back <= position && (hit.pattern as usize) < self.newest.len() {
                self.add(hit.pattern, position - back);
            }
        }
        self.old = self.hits.len();
    }

    /// Reads bytes from the automata's states on; `position` is that of the first byte.
    pub fn read(&mut self, rules: &RuleSet, states: &mut [u32; 2], bytes: &[u8], position: u64) {
        for (which, state) in states.iter_mut().enumerate() {
            if let Some(automaton) = &rules.automata[which] {
                let first = if which == 0 { 0 } else { rules.first_folded };
                *state = automaton.read(*state, bytes, &mut |pattern, read| {
                    self.add(first + pattern, position.saturating_add(read as u64));
                });
            }
        }
    }

    fn add(&mut self, pattern: u32, end: u64) {
        if self.hits.len() == HITS_PER_PACKET {
            self.overflow += 1;
            return;
        }
        let newest = &mut self.newest[pattern as usize];
        if *newest == NONE {
            self.patterns.push(pattern);
        }
        let before = core::mem::replace(newest, self.hits.len() as u32);
        self.hits.push(Found { before, end });
    }

    /// Whether the packet has brought a hit of a pattern.
    fn is_new(&self, pattern: u32) -> bool {
        let newest = self.newest[pattern as usize];
        newest != NONE && newest as usize >= self.old
    }

    /// Adds the rules all of whose contents have hits, one of them new, to the candidates.
    pub fn add_candidates(&mut self, rules: &RuleSet) {
        for pattern in &self.patterns {
            for &number in &rules.patterns[*pattern as usize].fast_of {
                let rule = &rules.rules[number as usize];
                let contents = || rule.rule.contents.iter().zip(&rule.patterns);
                let needed = || {
                    contents()
                        .filter(|(content, _)| !content.negated)
                        .map(|pair| *pair.1)
                };
                if needed().all(|pattern| self.newest[pattern as usize] != NONE)
                    && needed().any(|pattern| self.is_new(pattern))
                {
                    self.candidates[number as usize / 64] |= 1 << (number % 64);
                }
            }
        }
    }

    /// Whether a rule's contents are there.
    pub fn finds(&mut self, rule: &Compiled, rules: &RuleSet, scope: &Scope) -> bool {
        let mut search = Step {
            search: self,
            rule,
            rules,
            scope,
        };
        search.from(
            0,
            scope.base,
            rule.rule.contents.iter().all(|content| content.negated),
        )
    }

    /// Whether rules were given up because there were too many places to try.
    pub fn gave_up(&self) -> bool {
        self.tries == 0
    }

    /// The ends of a pattern's hits, the newest first.
    fn ends(&self, pattern: u32) -> impl Iterator<Item = u64> {
        let at = |index: u32| self.hits.get(index as usize);
        core::iter::successors(at(self.newest[pattern as usize]), move |found| at(found.before))
            .map(|found| found.end)
    }

    /// Puts the hits that matter to later packets ([`super::memory`]) into a flow whose stream
    /// stands at `position`. First hits have room before newest hits, and newer before older.
    /// Returns how many hits found no room.
    pub fn remember(&self, rules: &RuleSet, way: &mut Way, position: u64) -> u64 {
        let (mut kept, mut forgotten) = (Kept::new(), 0);
        for &pattern in &self.patterns {
            let Pattern { length, memory, .. } = &rules.patterns[pattern as usize];
            let entry = |is_newest, end| (is_newest, position.saturating_sub(end), pattern);
            for place in &memory.firsts {
                let inside = |end: &u64| place.has(end.saturating_sub(u64::from(*length)), *end);
                if let Some(end) = self.ends(pattern).filter(inside).last() {
                    forgotten += keep(&mut kept, entry(false, end));
                }
            }
            let Some(recent) = &memory.recent else {
                continue;
            };
            let mut room = recent.most();
            for end in self.ends(pattern) {
                if position.saturating_sub(end) >= recent.reach {
                    break;
                }
                if kept.contains(&entry(false, end)) {
                    continue;
                }
                if let Some(left) = room.checked_sub(1) {
                    room = left;
                    forgotten += keep(&mut kept, entry(true, end));
                } else if recent.newest_only {
                    break;
                } else {
                    forgotten += 1;
                }
            }
        }
        kept.sort_unstable_by_key(|(_, back, _)| *back);
        way.set_hits(kept.iter().map(|(_, back, pattern)| Hit {
            pattern: *pattern,
            end: position.wrapping_sub(*back) as u32,
        }));
        forgotten
    }
}

/// Hits on their way into a flow, the first to go at the end. Of each: whether it is a newest hit,
/// how many bytes back it ended, its pattern.
type Kept = ArrayVec<(bool, u64, u32), HITS_MAX>;

/// Adds a hit, if it is not there. Returns how many hits, this hit included, found no room.
fn keep(kept: &mut Kept, entry: (bool, u64, u32)) -> u64 {
    let at = kept.partition_point(|other| *other < entry);
    if entry.1 > BACK_MAX || at == HITS_MAX {
        return 1;
    }
    if kept.get(at) == Some(&entry) {
        return 0;
    }
    let forgotten = u64::from(kept.is_full());
    if forgotten > 0 {
        kept.pop();
    }
    kept.insert(at, entry);
    forgotten
}

struct Step<'a> {
    search: &'a mut Search,
    rule: &'a Compiled,
    rules: &'a RuleSet,
    scope: &'a Scope,
}

impl Step<'_> {
    /// Whether the contents from `index` on are there, the one before having ended at `end`.
    fn from(&mut self, index: usize, end: u64, is_new: bool) -> bool {
        let Some(content) = self.rule.rule.contents.get(index) else {
            return is_new;
        };
        let pattern = self.rule.patterns[index];
        let length = i128::from(self.rules.patterns[pattern as usize].length);
        let (from, room) = match content.is_relative() {
            true => (
                i128::from(end) + i128::from(content.distance.unwrap_or(0)),
                content.within,
            ),
            false => (
                i128::from(self.scope.base) + i128::from(content.offset.unwrap_or(0)),
                content.depth,
            ),
        };
        let last = i128::from(self.scope.end);
        let until = room.map_or(last, |room| (from + i128::from(room)).min(last));
        let from = from.max(i128::from(self.scope.base));
        let mut next = self.search.newest[pattern as usize];
        while next != NONE {
            let Some(left) = self.search.tries.checked_sub(1) else {
                return false;
            };
            self.search.tries = left;
            let hit = self.search.hits[next as usize];
            next = hit.before;
            let hit_end = i128::from(hit.end);
            let fits = hit_end - length >= from && hit_end <= until && (!content.at_end || hit_end == last);
            if !fits {
                continue;
            }
            if content.negated {
                return false;
            }
            if self.from(index + 1, hit.end, is_new || hit.end > self.scope.new_from) {
                return true;
            }
        }
        content.negated && self.from(index + 1, end, is_new)
    }
}
