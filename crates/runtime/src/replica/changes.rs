//! A change that takes several records is at the replica whole, or not at all.
//!
//! ```text
//!   primary                                   replica
//!   a packet's ends, blocks, group, flow ───► change ─► records, gathered ─► changed ─► all noted, counted
//!                                                          └─ the primary is gone, or another base begins ─► forgotten
//! ```
//!
//! A group and its flow depend on each other: a count of flows, a port that is free. A state of
//! more than a record has room for is of one time only. So all that a packet changed is one change,
//! and so are all ends of a moment. Most changes are one record: those go without marks, and so
//! *change* is sent with the first record of a change that may have more.
//!
//! The replica counts a change's records when it is whole. So no packet leaves that waits for one
//! of them, and a primary may number its marks by any of them.
//!
//! All records of a change are checked before the first is noted ([`Checked`]). So where one cannot
//! be kept none is, and the copies stay as they were acknowledged last; the primary, which hears of
//! it, sends all again.
//!
//! The memory of a change is kept for the next one, but what a large one took is given back: one
//! such is of a group that has come ([`super::arriving`]).
//!
//! Invariants: copies have all of a change, or nothing of it; no more is gathered than a change of
//! all copies of a primary would be.

use super::generations::may_note;
use super::keeper::{Copies, split_run};
use crate::flows::actor::NO_GROUP;
use crate::parts::Core;
use crate::record::{Copy, Record};
use alloc::vec::Vec;
use hashbrown::HashMap;
use nf::Addr;

/// Bytes that there is room for from the start, besides a flow and a group.
const ROOM: usize = 4096;
/// So much more than that is kept for the next change.
const KEPT: usize = 1 << 16;
/// Slots that a change puts or ends, and blocks, that there is room for from then on.
const NAMED: usize = 448;

/// The change that a primary's records are part of.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Change {
    /// Each is a change of its own.
    #[default]
    None,
    /// One change, of which no record is sent.
    Begins,
    /// One change, of whose beginning the replica has been told.
    Sent,
}

/// A change that has not come whole.
pub(super) struct Gathered {
    records: Vec<u8>,
    count: u64,
    is_open: bool,
    /// Bytes that there is room for from the start.
    usual: usize,
    /// The most bytes.
    most: usize,
    checked: Checked,
}

/// The content of the copies after those records of a change that are checked.
#[derive(Default)]
struct Checked {
    /// By slot, and whether it is a group's: the length of the state; `None` if it has ended.
    slots: HashMap<(u32, bool), Option<u16>>,
    /// Whether blocks that it names are claimed.
    blocks: HashMap<(Addr, u16), bool>,
    /// How many more there are.
    more: isize,
    /// How many groups that came are over.
    over: usize,
    /// How much of the state at hand has come, and its length.
    current: Option<(usize, usize)>,
}

impl Checked {
    fn clear(&mut self) {
        // A table that a large change made grow is not kept for the next.
        if !self.slots.is_empty() {
            self.slots.clear();
            self.slots.shrink_to(NAMED);
        }
        if !self.blocks.is_empty() {
            self.blocks.clear();
            self.blocks.shrink_to(NAMED);
        }
        (self.more, self.over, self.current) = (0, 0, None);
    }

    /// A state begins in a slot.
    fn put(&mut self, place: (u32, bool), length: u16, piece: &[u8]) -> bool {
        self.slots.insert(place, Some(length));
        self.current = Some((0, usize::from(length)));
        self.append(piece)
    }

    fn append(&mut self, piece: &[u8]) -> bool {
        let Some((has, length)) = &mut self.current else {
            return false;
        };
        *has += piece.len();
        has <= length
    }
}

impl Gathered {
    /// Empty. Has room for a change of so many bytes, and takes no more than `most`.
    pub fn new(usual: usize, most: usize) -> Self {
        let usual = (usual + ROOM).min(most);
        Gathered {
            records: Vec::with_capacity(usual),
            count: 0,
            is_open: false,
            usual,
            most,
            checked: Checked::default(),
        }
    }

    /// Forgets the records that have come.
    pub fn clear(&mut self) {
        self.records.clear();
        if self.records.capacity() > self.usual + KEPT {
            self.records.shrink_to(self.usual);
        }
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
        let mut is_kept = self.may_keep(rest) || super::is_broken("changes are checked before");
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

impl Copies {
    /// Whether each of these records can be noted, behind those before it.
    fn may_keep(&mut self, records: &[u8]) -> bool {
        let mut checked = core::mem::take(&mut self.gathered.checked);
        let mut rest = records;
        let mut may = true;
        while may && let Some((copy, behind)) = Record::read_copy(rest) {
            may = self.may_note(&mut checked, copy);
            rest = behind;
        }
        checked.clear();
        self.gathered.checked = checked;
        may
    }

    /// The length of a state, if there is one in that slot.
    fn length_of(&self, checked: &Checked, place: (u32, bool)) -> Option<u16> {
        if !checked.slots.is_empty()
            && let Some(known) = checked.slots.get(&place)
        {
            return *known;
        }
        match place {
            (slot, true) => self.groups.get(slot).map(|group| group.length),
            (slot, false) => self.flows.get(slot).map(|flow| flow.length),
        }
    }

    /// Whether [`Copies::note`] would note it.
    fn may_note(&self, checked: &mut Checked, copy: Copy<'_>) -> bool {
        match copy {
            Copy::Group {
                slot, length, piece, ..
            } => self.groups.has_room(slot, length) && checked.put((slot, true), length, piece),
            Copy::Flow {
                slot,
                group,
                length,
                piece,
                ..
            } => {
                let has_group = group == NO_GROUP || self.length_of(checked, (group, true)).is_some();
                let fits = has_group && self.flows.has_room(slot, length);
                fits && checked.put((slot, false), length, piece)
            }
            Copy::More(piece) => checked.append(piece),
            Copy::Runs { .. } if super::is_broken("changes are kept") => false,
            Copy::Runs { slot, is_group, runs } => {
                let length = self.length_of(checked, (slot, is_group));
                length.is_some_and(|length| are_within(runs, usize::from(length)))
            }
            Copy::End { slot, is_group } => {
                checked.slots.insert((slot, is_group), None);
                checked.current = None;
                true
            }
            Copy::Block {
                is_claimed, block, ..
            } => {
                let place = (block.addr, block.first);
                let known = checked.blocks.insert(place, is_claimed);
                let was = known.unwrap_or_else(|| self.blocks.contains_key(&place));
                checked.more += isize::from(is_claimed) - isize::from(was);
                let count = self.blocks.len().saturating_add_signed(checked.more);
                !is_claimed || was || count <= self.blocks_max
            }
            Copy::Rests { slot, .. } => self.length_of(checked, (slot, true)).is_some(),
            Copy::Plan { chains, .. } => may_note(chains),
            Copy::Whole => true,
            Copy::Over { is_over, .. } => {
                checked.over += usize::from(is_over);
                self.may_be_over(checked.over)
            }
            Copy::Base { .. } | Copy::Acknowledged { .. } | Copy::Refused { .. } => false,
            Copy::Change | Copy::Changed => false,
        }
    }
}

/// Whether runs change no more than a state of this length.
fn are_within(runs: &[u8], length: usize) -> bool {
    let mut rest = runs;
    while let Some((at, run, behind)) = split_run(rest) {
        if at + run.len() > length {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

impl Core {
    /// Records sent until [`Core::end_change`] are one change, or part of one. Whether it begins
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
            self.sender.put(to, &Copy::Change, &mut self.out);
        }
    }

    /// The change is whole, if it began where this is known of.
    #[inline]
    pub(super) fn end_change(&mut self, has_begun: bool) {
        if has_begun
            && core::mem::take(&mut self.sender.change) == Change::Sent
            && let Some(to) = self.sender.to
        {
            self.sender.put(to, &Copy::Changed, &mut self.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::group::GroupKey;
    use crate::record::FlowHeader;
    use crate::replica::keeper::Slots;
    use nf::Block;
    use wire::FlowKey;

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

    /// One record goes beyond the size of a change: nothing of that change is kept.
    fn refused_copies() -> (Vec<Option<u8>>, bool) {
        let mut copies = Copies::with_room(Slots::new(4, 8), Slots::new(2, 8), 1);
        let key = FlowKey::from_words([4, 1, 2, 3, 4]);
        let flow_header = FlowHeader {
            key,
            second: key,
            time_left: 1,
            chain: 0,
            flags: 0,
            answered: false,
        };
        let group = GroupKey::of_flow(key);
        let block = |first| Copy::Block {
            is_claimed: true,
            block: Block {
                addr: Addr::v4([192, 0, 2, 1]),
                first,
                ports: 64,
            },
            group,
        };
        let flow = |slot, group| Copy::Flow {
            slot,
            group,
            length: 2,
            generation: 1,
            flow_header,
            piece: &[7],
        };
        let put = Copy::Group {
            slot: 0,
            group,
            length: 1,
            piece: &[5],
        };
        let runs = |slot, is_group, runs: &'static [u8]| Copy::Runs { slot, is_group, runs };
        let end = |slot| Copy::End {
            slot,
            is_group: false,
        };
        for record in [put, flow(1, 0), Copy::More(&[7])] {
            assert!(copies.take(record, 0));
        }
        let states = |copies: &Copies| {
            let of = |slots: &[Option<_>], states: &[u8], slot: u32| {
                slots.get(slot as usize)?.as_ref()?;
                states.first().copied()
            };
            let flows = &copies.flows;
            let each = (0..4).map(|slot| of(&flows.records, flows.state(slot), slot));
            let group = copies
                .groups
                .get(0)
                .and_then(|_| copies.groups.state(0).first().copied());
            each.chain([group, Some(copies.blocks.len() as u8)])
                .collect::<Vec<_>>()
        };
        let before = states(&copies);
        assert_eq!(before, [None, Some(7), None, None, Some(5), Some(0)]);
        let bad: [&[Copy<'_>]; 9] = [
            &[flow(4, 0)],
            &[flow(2, 1)],
            &[runs(2, false, &[0, 0, 1, 9])],
            &[runs(1, false, &[0, 1, 2, 9, 9])],
            &[Copy::More(&[1])],
            &[flow(2, 0), Copy::More(&[1, 2])],
            &[end(1), runs(1, false, &[0, 0, 1, 9])],
            &[block(64), block(128)],
            &[Copy::Rests { slot: 1, left: 9 }],
        ];
        let mut is_as_before = true;
        for records in bad {
            let count = copies.count;
            assert!(copies.take(Copy::Change, 0));
            let good = [
                runs(1, false, &[0, 0, 1, 9]),
                flow(3, 0),
                Copy::More(&[9]),
                end(3),
            ];
            for record in good.iter().chain(records) {
                assert!(copies.take(*record, 0));
            }
            assert!(!copies.take(Copy::Changed, 0), "{records:?}");
            assert_eq!(copies.count, count, "{records:?}");
            is_as_before &= states(&copies) == before;
        }
        // The good ones are kept, and what they need may be in the same change.
        let other = Copy::Group {
            slot: 1,
            group,
            length: 1,
            piece: &[6],
        };
        let good = [
            Copy::Change,
            other,
            flow(2, 1),
            Copy::More(&[1]),
            end(1),
            block(64),
            Copy::Changed,
        ];
        assert!(good.into_iter().all(|record| copies.take(record, 0)));
        (states(&copies), is_as_before)
    }

    #[test]
    fn of_a_change_that_cannot_be_kept_nothing_is() {
        let kept = [None, None, Some(7), None, Some(5), Some(1)];
        assert_eq!(refused_copies(), (kept.to_vec(), true));
        crate::replica::BROKEN.set("changes are checked before");
        let outcome = std::panic::catch_unwind(refused_copies);
        crate::replica::BROKEN.set("");
        let is_noticed = !outcome.is_ok_and(|(_, is_as_before)| is_as_before);
        assert!(is_noticed, "a rule that is broken is noticed");
    }

    #[test]
    fn what_a_large_change_took_is_given_back() {
        let most = 1 << 24;
        let mut gathered = Gathered::new(100, most);
        let usual = gathered.records.capacity();
        for pieces in [1, 2, 1000, 1, 10_000, 1] {
            assert!(gathered.begin());
            for _ in 0..pieces {
                assert!(gathered.add(&Copy::More(&[0; 1024])));
            }
            gathered.clear();
            let capacity = gathered.records.capacity();
            assert!(
                capacity >= usual && capacity <= usual + KEPT,
                "{pieces}: {capacity}"
            );
        }
    }
}
