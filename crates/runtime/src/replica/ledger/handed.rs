//! Records of groups that change hands: a move hands them over before its source lets go.
//!
//! # Theory of operation
//!
//! Each runtime writes a partition of its own, so a group that moves has records in two of them for
//! a moment. Two words of the move ([`protocols::ownership`]) wait for the stores, so that at each
//! instant at least one partition has all of the group, and both have it only while they are alike.
//!
//! ```text
//!   partition of the source      partition of the target              all die here: goes on
//!   ─────────────────────────    ─────────────────────────────────    ──────────────────────────
//!   written by the source        –                                    source
//!   State is sent: as it is      group, marked *coming*; its flows    source: *coming* is not read
//!   as it is                     stored: the mark goes                either of two that are alike
//!   as it is                     stored ─► Done                       the same
//!   group removed, then flows    written by the target                target: flows alone are refused
//!   stored ─► Gone               its packets leave                    target
//! ```
//!
//! *Done* is said when the target's store has all of the group's records, *Gone* when the source's
//! has none of them. Until *Gone* the target's gate acknowledges nothing behind the first of these
//! records (`limit`), so no packet leaves that shows a state which the source's records lack. Other
//! packets that wait for the store wait for that, too.
//!
//! A flow that is a group by itself has one record, and a batch is taken whole: it needs no mark.
//!
//! *With `store`* no packet waits. *Gone* is said at once, and *Done* waits for the store as long
//! as a change may be late (`bound`), so a store that is down stops no move.
//!
//! *One end dies alone.* The other goes on, as with any move (`mobility::peer_failure`), and the
//! dead one's records are refused when its next incarnation tells of them. Should all die before
//! that incarnation has begun, the older records may be those that go on.
//!
//! Invariants: a group's mark goes when all of its flows are written; the source's records stay
//! until *Done*. Checkers: `tests::store_commit`, with moves.
//!
//! Not here: the words (`mobility::stored`).

use crate::flows::actor::NO_GROUP;
use crate::flows::group::GroupKey;
use crate::parts::Core;
use alloc::vec::Vec;

/// Groups that have come, and are the source's as well, as far as the store knows.
#[derive(Default)]
pub(crate) struct Handed {
    /// Each with the number of the last change before its records.
    coming: Vec<(GroupKey, u64)>,
}

impl Handed {
    /// Up to which change packets may leave, where the store has all up to `stored`.
    #[inline]
    pub fn limit(&self, stored: u64) -> u64 {
        if crate::replica::is_broken("the source's records are waited for") {
            return stored;
        }
        self.coming
            .iter()
            .fold(stored, |least, (_, floor)| least.min(*floor))
    }
}

impl Core {
    /// A group has come from another runtime: its records are written from now on.
    pub fn begin_coming(&mut self, group: GroupKey, place: u32) {
        let Some(entries) = &self.runner.stages().ledger else {
            return;
        };
        if !self.ledger.is_on || !self.ledger.is_for_any() {
            return;
        }
        self.ledger.handed.coming.push((group, entries.changes()));
        if place != NO_GROUP
            && let Some(known) = self.ledger.groups.get_mut(place as usize)
        {
            known.is_coming = true;
        }
    }

    /// Whether its source is still to hear that this group's records are written.
    pub fn is_coming(&self, group: &GroupKey) -> bool {
        self.ledger.handed.coming.iter().any(|(key, _)| key == group)
    }

    /// Writes the unwritten parts of a group that has come. The change that the store is to have
    /// then; `None` where it found no room.
    pub fn write_coming(&mut self, group: &GroupKey) -> Option<u64> {
        let mut is_written = true;
        for actor in self.flows_of(*group) {
            let chain = self.flows.header(actor).chain;
            let known = self.ledger.flows.get(actor as usize);
            let is_there = known.is_some_and(|known| known.entry != 0 && !known.is_behind);
            if !is_there && self.ledger.has_policy(chain) {
                is_written &= self.store_flow(actor);
            }
        }
        self.last_change().filter(|_| is_written)
    }

    /// The store has all flows of a group that has come: its record says so from now on. The change
    /// that the store is to have then; `None` where it found no room.
    pub fn write_come(&mut self, group: &GroupKey) -> Option<u64> {
        let index = self.flows.groups().at(*group);
        let known = index.and_then(|index| self.ledger.groups.get_mut(index as usize));
        if let (Some(index), Some(known)) = (index, known)
            && core::mem::take(&mut known.is_coming)
            && (known.entry != 0 || known.is_wanted)
        {
            known.is_changed = true;
            if !self.store_group(index) {
                self.ledger.groups.get_mut(index as usize)?.is_coming = true;
                return None;
            }
        }
        self.last_change()
    }

    fn last_change(&self) -> Option<u64> {
        let entries = self.runner.stages().ledger.as_ref()?;
        Some(entries.changes())
    }

    /// The source's store has none of the group's records any more, or the source is gone.
    pub fn end_coming(&mut self, group: &GroupKey) {
        let coming = &mut self.ledger.handed.coming;
        let before = coming.len();
        coming.retain(|(key, _)| key != group);
        if coming.len() != before {
            self.write_coming(group);
            self.write_come(group);
        }
    }

    /// A group leaves: its record goes before those of its flows, which are nothing without it.
    pub fn begin_going(&mut self, group: &GroupKey) {
        let index = self.flows.groups().at(*group);
        if let Some(index) = index
            && !crate::replica::is_broken("a group's record goes first")
            && let Some(entries) = &self.runner.stages().ledger
        {
            self.ledger.remove(entries, true, index);
        }
    }

    /// A group has left, with its records: the change with which the store has none of them.
    pub fn write_gone(&mut self) -> Option<u64> {
        if !self.ledger.has_waiting() {
            return None;
        }
        self.store_ends();
        self.last_change()
    }

    /// Whether the store has all changes up to this one.
    pub fn has_stored(&self, change: u64) -> bool {
        let entries = self.runner.stages().ledger.as_ref();
        entries.is_none_or(|entries| entries.stored_up_to() >= change)
    }

    /// Until when a word of a move waits for the store.
    pub fn store_patience(&self) -> u64 {
        match self.settings.storing {
            Some(storing) if !self.ledger.has_waiting() => self.now.saturating_add(storing.bound),
            _ => u64::MAX,
        }
    }
}
