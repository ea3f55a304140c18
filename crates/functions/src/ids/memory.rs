//! Which hits of a content a flow must remember to decide a rule when the rest of it comes.
//!
//! **Theory of operation.** `distance` and `within` tie contents together to a chain. The head of a
//! chain has a place from the beginning, or none. The rule shows which hits can still matter:
//!
//! | the content | hits that matter |
//! |---|---|
//! | the next of its chain may stand anywhere behind it, or there is none | the first in its place |
//! | ends its chain, and may stand anywhere behind the content before it | the newest |
//! | any other | all |
//! | no content that may still come reaches back to it | none |
//!
//! Of "all" a flow keeps the newest [`SAME_MAX`] and counts the others as forgotten. The first hit
//! serves wherever a later hit does, as its successor has the more room.
//!
//! ```text
//!   content:"USER"; depth:4; content:"PASS";            USER: the first within 4 bytes; PASS: the first
//!   content:"AB"; content:"CD"; distance:2; within:6;   AB: those of the last 8 bytes; CD: none
//! ```
//!
//! The last row holds for rules of a single chain: each complete match has been told already, so
//! only hits that a later content can reach are of use. Of two chains each may wait for the other
//! forever.
//!
//! Invariant: a rule that matches a whole text matches its parts, or a hit is counted as forgotten
//! (`what_is_found_in_the_whole_is_found_in_parts`).
//!
//! Not here: the memory itself (`state`), and filling it (`search`).

use super::rule::{Content, Rule};
use super::state::SAME_MAX;
use alloc::vec::Vec;

/// Where a content without a content before it must stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    offset: u64,
    /// Behind its last byte.
    until: u64,
}

impl Place {
    fn of(content: &Content) -> Self {
        let offset = u64::from(content.offset.unwrap_or(0));
        let until = content.depth.map_or(u64::MAX, |depth| offset + u64::from(depth));
        Place { offset, until }
    }

    /// Whether bytes from a position to another are inside.
    pub fn has(&self, from: u64, end: u64) -> bool {
        from >= self.offset && end <= self.until
    }
}

/// Hits of which the newest matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Recent {
    /// Only those whose end is fewer bytes back.
    pub reach: u64,
    /// A newer hit serves wherever an older one does.
    pub newest_only: bool,
}

impl Recent {
    /// How many are kept.
    pub fn most(&self) -> usize {
        if self.newest_only { 1 } else { SAME_MAX }
    }
}

/// The hits of a pattern that matter to the rules that have it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Memory {
    /// The first hit in each of these places.
    pub firsts: Vec<Place>,
    /// And the newest ones.
    pub recent: Option<Recent>,
}

impl Memory {
    fn add_first(&mut self, place: Place) {
        if !self.firsts.contains(&place) {
            self.firsts.push(place);
        }
    }

    fn add_recent(&mut self, reach: u64, newest_only: bool) {
        let recent = self.recent.get_or_insert(Recent { reach, newest_only });
        recent.reach = recent.reach.max(reach);
        recent.newest_only &= newest_only;
    }

    /// Adds the hits that a rule needs of the pattern of its content number `index`.
    pub fn add(&mut self, rule: &Rule, index: usize) {
        let contents = &rule.contents;
        let content = &contents[index];
        if contents.len() == 1 || rule.is_about_packet() || !rule.protocol.has_streams() {
            return;
        }
        let reach = reach(contents, index);
        if content.negated && !content.is_relative() {
            self.add_first(Place::of(content));
        } else if reach > 0 {
            let mut behind = tied(contents, index);
            if !content.is_relative() && behind.all(|next| !next.negated && next.within.is_none()) {
                self.add_first(Place::of(content));
            } else {
                let ends_chain = content.negated || tied(contents, index).next().is_none();
                let newest_only = content.is_relative() && ends_chain && content.within.is_none();
                self.add_recent(reach, newest_only);
            }
        }
    }
}

/// The contents whose place is counted from content `index`: the negated contents behind it, and
/// the next content that must be there.
fn tied(contents: &[Content], index: usize) -> impl Iterator<Item = &Content> {
    let behind = &contents[index + 1..];
    let next = behind.iter().position(|content| !content.negated);
    let until = next.map_or(behind.len(), |next| next + 1);
    behind[..until].iter().filter(|content| content.is_relative())
}

/// How many bytes behind a hit of a content the rest of its rule may still come.
fn reach(contents: &[Content], index: usize) -> u64 {
    let needed = |content: &&Content| !content.negated;
    let heads = contents
        .iter()
        .filter(needed)
        .filter(|content| !content.is_relative());
    let backward = |content: &Content| content.distance.is_some_and(|distance| distance < 0);
    if heads.count() != 1 || contents.iter().any(backward) {
        return u64::MAX;
    }
    let behind = contents[index + 1..].iter().filter(needed);
    behind.fold(0, |far, next| {
        let distance = next
            .distance
            .map_or(0, |distance| u64::from(distance.unsigned_abs()));
        next.within.map_or(u64::MAX, |within| {
            far.saturating_add(distance).saturating_add(u64::from(within))
        })
    })
}
