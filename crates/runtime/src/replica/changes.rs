//! A change that takes several records is at the replica whole, or not at all.
//!
//! ```text
//!   primary                                   replica
//!   a packet's ends, blocks, group, flow ───► change ─► records, gathered ─► changed ─► all noted, counted
//!                                                          └─ the primary is gone, or another base begins ─► forgotten
//! ```
//!
//! A group and its flow depend on each other: a count of flows, a port that is free. A state of
//! more than a record has room for is of one time only. So what a packet changed is one change, and
//! so is what ends at once. Most changes are one record: those go without marks, and so *change* is
//! sent with the first record of one that may have more.
//!
//! The replica counts a change's records when it is whole. So no packet leaves that waits for one
//! of them, and a primary may number its marks by any of them.
//!
//! Invariants: between two records copies have all of a change, or nothing of it; no more is
//! gathered than a change of all copies of a primary would be. Where a record of a change cannot be
//! kept, those before it are noted, and none is acknowledged: the primary sends all again.

use super::keeper::Copies;
use crate::parts::Core;
use crate::record::{Copy, Record};
use alloc::vec::Vec;

/// Bytes that there is room for from the start, besides a flow and a group.
const ROOM: usize = 4096;

/// What a primary's records are part of.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Change {
    /// Each is a change of its own.
    #[default]
    None,
    /// One change, of which nothing is sent.
    Begins,
    /// One change, of which the replica has heard.
    Sent,
}

/// A change that has not come whole.
pub(super) struct Gathered {
    records: Vec<u8>,
    count: u64,
    is_open: bool,
    /// The most bytes.
    most: usize,
}

impl Gathered {
    /// None. Has room for a change of so many bytes, and takes no more than `most`.
    pub fn new(usual: usize, most: usize) -> Self {
        Gathered {
            records: Vec::with_capacity((usual + ROOM).min(most)),
            count: 0,
            is_open: false,
            most,
        }
    }

    /// Forgets what has come.
    pub fn clear(&mut self) {
        self.records.clear();
        (self.count, self.is_open) = (0, false);
    }

    fn begin(&mut self) -> bool {
        self.count = 1;
        !core::mem::replace(&mut self.is_open, true)
    }

    fn add(&mut self, copy: &Copy<'_>) -> bool {
        copy.append_to(&mut self.records);
        self.count += 1;
        self.records.len() <= self.most
    }
}

impl Copies {
    /// Takes in a record; `false` if it cannot be kept.
    pub(super) fn take(&mut self, copy: Copy<'_>, now: u64) -> bool {
        match copy {
            Copy::Change | Copy::Changed if super::is_broken("changes are whole") => {
                self.count += 1;
                true
            }
            Copy::Change => self.gathered.begin(),
            Copy::Changed => self.keep_change(now),
            _ if self.gathered.is_open => self.gathered.add(&copy),
            _ => {
                let is_kept = self.note(copy, now);
                self.count += u64::from(is_kept);
                is_kept
            }
        }
    }

    /// The change is whole.
    fn keep_change(&mut self, now: u64) -> bool {
        if !self.gathered.is_open {
            return false;
        }
        let records = core::mem::take(&mut self.gathered.records);
        let mut rest = records.as_slice();
        let mut is_kept = true;
        while is_kept && let Some((copy, behind)) = Record::read_copy(rest) {
            is_kept = self.note(copy, now);
            rest = behind;
        }
        if is_kept {
            self.count += self.gathered.count + 1;
        }
        self.gathered.records = records;
        self.gathered.clear();
        is_kept
    }
}

impl Core {
    /// What is sent until [`Core::end_change`] is one change, or part of one. Whether it begins
    /// here, which that function is to be told.
    #[must_use = "the change ends"]
    pub(super) fn begin_change(&mut self) -> bool {
        let begins = self.sender.change == Change::None;
        if begins {
            self.sender.change = Change::Begins;
        }
        begins
    }

    /// Tells the replica that a change begins, before its first record.
    #[inline]
    pub(super) fn send_change(&mut self) {
        if self.sender.change == Change::Begins
            && let Some(to) = self.sender.to
        {
            self.sender.change = Change::Sent;
            self.out.send_record(to, &Record::Copy(Copy::Change));
            self.sender.sent += 1;
        }
    }

    /// The change is whole, if it began where this is known of.
    #[inline]
    pub(super) fn end_change(&mut self, has_begun: bool) {
        if has_begun
            && core::mem::take(&mut self.sender.change) == Change::Sent
            && let Some(to) = self.sender.to
        {
            self.out.send_record(to, &Record::Copy(Copy::Changed));
            self.sender.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gathered_is_bounded() {
        let mut gathered = Gathered::new(8, 64);
        assert!(gathered.begin() && !gathered.begin());
        let piece = Copy::More(&[0; 20]);
        assert!(gathered.add(&piece) && gathered.add(&piece));
        assert!(!gathered.add(&piece));
        gathered.clear();
        assert!(gathered.begin() && gathered.add(&piece));
    }
}
