//! The replica's side: copies of other runtimes' flows, as bytes in slots.
//!
//! ```text
//!   link ─► record ─► slot of the primary's copies ─► counted ─► behind the burst: acknowledged
//! ```
//!
//! A slot has the number that the flow, or group, has at its primary. It has room for the longest
//! state there is, and is memory that the system gives when it is written first. Of a flow's keys a
//! copy has two words each, which is all of a key over IPv4; the remaining words of other keys lie
//! apart, in memory that is written for them only.
//!
//! A record that cannot be kept is *refused*, and with it all that follows it: the copies stay as
//! they were acknowledged last, and the primary, which hears of it, begins another base
//! (`sender`). Should it fail before, its flows go on from there: no packet has left that depends
//! on more.
//!
//! Invariants: acknowledged records are kept, as the primary counts them; a record that cannot be
//! kept is counted as rejected; no slot is beyond the most flows, or groups, of a runtime.
//!
//! Not here: recovery from the copies of a failed primary (`recovery`).

use super::changes::Gathered;
use super::generations::Generations;
use super::recovery::{Recovery, still_until};
use crate::flows::actor::NO_GROUP;
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::parts::Core;
use crate::record::{Copy, DEADLINE_MAX, FlowHeader, Record};
use crate::stats::{Durations, RecoveryReceipt};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use nf::{Addr, Block};
use protocols::ownership::RuntimeId;
use protocols::ownership::recovery::Report;
use wire::FlowKey;
use wire::memory::prefetch;
use wire::planted;

/// Bytes of a cache line.
const LINE: usize = 64;
/// More than a record has in front of its bytes.
const HEAD_MAX: usize = 128;
/// As many lines of a state are fetched at most.
const LINES_MAX: usize = 8;

/// A copy's facts besides its state; all of its facts: [`Copies::flow_header`]. Numbers of eight
/// bytes are kept as bytes: there are as many copies as flows, and alignment would take four more
/// bytes of each.
#[derive(Clone, Copy)]
pub(crate) struct FlowCopy {
    /// The first words of both keys.
    keys: [[u8; 16]; 2],
    time_left: [u8; 8],
    /// Slot of its group, or [`NO_GROUP`].
    pub group: u32,
    pub length: u16,
    /// How much of the state has come.
    has: u16,
    pub chain: u8,
    /// By which of its primary's configurations it goes.
    pub generation: u8,
    flags: u8,
    marks: Marks,
}

/// Whether a flow was answered, and whether a key of it has more than two words. In one byte with
/// values to spare: `Option<FlowCopy>` takes no more than a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    Neither,
    Answered,
    Wide,
    Both,
}

impl Marks {
    fn new(is_answered: bool, is_wide: bool) -> Self {
        match (is_answered, is_wide) {
            (false, false) => Marks::Neither,
            (true, false) => Marks::Answered,
            (false, true) => Marks::Wide,
            (true, true) => Marks::Both,
        }
    }

    fn is_answered(self) -> bool {
        matches!(self, Marks::Answered | Marks::Both)
    }

    fn is_wide(self) -> bool {
        matches!(self, Marks::Wide | Marks::Both)
    }
}

const _: () = assert!(size_of::<Option<FlowCopy>>() == 52);

/// The words of keys behind their first two: the first key, then the second.
type Wide = [u64; 6];

#[derive(Clone, Copy)]
pub(crate) struct GroupCopy {
    pub key: GroupKey,
    pub length: u16,
    /// Until when it rests, by the clock here, if it does.
    pub rests_until: Option<u64>,
    pub by: i64,
    has: u16,
}

impl FlowCopy {
    /// Of a flow with these facts, of which no bytes of the state have come; and what of its keys
    /// goes elsewhere, if anything does.
    fn new(flow_header: &FlowHeader, generation: u8, group: u32, length: u16) -> (Self, Option<Wide>) {
        let [a, b, c, d, e] = *flow_header.key.words();
        let [v, w, x, y, z] = *flow_header.second.words();
        let wide = [c, d, e, x, y, z];
        let is_wide = wide != Wide::default();
        let copy = FlowCopy {
            keys: [narrow(a, b), narrow(v, w)],
            time_left: flow_header.time_left.to_ne_bytes(),
            group,
            length,
            has: 0,
            chain: flow_header.chain,
            generation,
            flags: flow_header.flags,
            marks: Marks::new(flow_header.answered, is_wide),
        };
        (copy, is_wide.then_some(wide))
    }

    /// The first words of both keys.
    fn words(&self) -> [[u64; 2]; 2] {
        self.keys.map(|key| {
            let both = u128::from_ne_bytes(key);
            [both as u64, (both >> 64) as u64]
        })
    }

    /// Whether all of it is here.
    pub fn is_whole(&self) -> bool {
        self.has == self.length
    }
}

fn narrow(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) | u128::from(second) << 64).to_ne_bytes()
}

impl GroupCopy {
    /// Whether all of it is here.
    pub fn is_whole(&self) -> bool {
        self.has == self.length
    }
}

/// Slots with records and states of one length.
pub(crate) struct Slots<T> {
    pub records: Vec<Option<T>>,
    states: Vec<u8>,
    stride: usize,
    most: usize,
    pub used: usize,
}

impl<T> Slots<T> {
    pub(super) fn new(most: usize, stride: usize) -> Self {
        Slots {
            // So much is reserved, and taken as it is used.
            records: Vec::with_capacity(most),
            // Zeroed memory of this size is not touched before it is used.
            states: alloc::vec![0; most * stride],
            stride,
            most,
            used: 0,
        }
    }

    /// Puts a record into a slot; returns the record before it. `None` if there is no such slot.
    fn put(&mut self, slot: u32, record: T) -> Option<Option<T>> {
        let index = slot as usize;
        if index >= self.most {
            return None;
        }
        if index >= self.records.len() {
            self.records.resize_with(index + 1, || None);
        }
        let before = self.records.get_mut(index)?.replace(record);
        self.used += usize::from(before.is_none());
        Some(before)
    }

    /// Whether a slot may have a state of this length.
    pub(super) fn has_room(&self, slot: u32, length: u16) -> bool {
        (slot as usize) < self.most && usize::from(length) <= self.stride
    }

    fn clear(&mut self) {
        self.records.clear();
        self.used = 0;
    }

    fn remove(&mut self, slot: u32) -> Option<T> {
        let removed = self.records.get_mut(slot as usize).and_then(Option::take);
        self.used -= usize::from(removed.is_some());
        removed
    }

    pub fn get(&self, slot: u32) -> Option<&T> {
        self.records.get(slot as usize)?.as_ref()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.records.get_mut(slot as usize)?.as_mut()
    }

    /// The state in a slot, as long as it may be.
    pub fn state(&self, slot: u32) -> &[u8] {
        let at = slot as usize * self.stride;
        self.states.get(at..at + self.stride).unwrap_or_default()
    }

    /// Fetches the lines of a slot's record and state.
    pub fn prefetch(&self, slot: usize) {
        let state = self.states.get(slot * self.stride..).unwrap_or_default();
        let state = state.get(..self.stride).unwrap_or_default();
        if let Some(record) = self.records.get(slot) {
            let record = core::ptr::from_ref(record).cast::<u8>();
            let last = size_of::<Option<T>>() - 1;
            let lines = (0..last).step_by(LINE).chain([last]);
            lines.for_each(|at| prefetch(record.wrapping_add(at)));
        }
        state
            .iter()
            .step_by(LINE)
            .take(LINES_MAX)
            .for_each(|byte| prefetch(byte));
    }

    fn state_mut(&mut self, slot: u32) -> &mut [u8] {
        let at = slot as usize * self.stride;
        self.states.get_mut(at..at + self.stride).unwrap_or_default()
    }
}

/// The copies of one primary.
pub(crate) struct Copies {
    pub number: u32,
    /// Of which incarnation of the primary.
    pub incarnation: u64,
    /// By how much the clock here is ahead of the primary's, in nanoseconds.
    pub by: i64,
    /// Records that are kept.
    pub(super) count: u64,
    acknowledged: u64,
    pub flows: Slots<FlowCopy>,
    pub groups: Slots<GroupCopy>,
    /// By slot of a flow, if its copy says so.
    wide: Vec<Wide>,
    /// By slot of a flow, where their times are by several clocks.
    flows_by: Vec<i64>,
    /// By slot of a group: how many flows' copies name it.
    flows_of: Vec<u32>,
    /// In an order that is the same each time.
    pub blocks: BTreeMap<(Addr, u16), (Block, GroupKey)>,
    pub(super) blocks_max: usize,
    /// By words of a group: the last of its blocks, which are claimed as it is to go on.
    pub(super) claimed: BTreeMap<[u64; 5], Block>,
    /// Groups that have moved to the primary and ended there, by their words, whose sources may
    /// have them yet.
    pub over: BTreeSet<[u64; 5]>,
    /// The slot that further pieces belong to.
    current: Option<(u32, bool)>,
    /// A change that has not come whole.
    pub(super) gathered: Gathered,
    /// The configurations that the generations of flows stand for.
    pub(super) generations: Generations,
    /// A record could not be kept: none is from there on.
    is_refused: bool,
    /// Whether this runtime would be the heir: of a base beside another one, behind *whole*.
    pub(super) counts: bool,
}

/// All copies that a runtime keeps.
#[derive(Default)]
pub(crate) struct Keeper {
    /// By primary.
    pub(super) primaries: Vec<Option<Copies>>,
    pub(super) recoveries: Vec<Recovery>,
    /// Flows that were recovered, and that the configuration in force does not let go on.
    pub(super) cut: Vec<u32>,
    /// Whether each peer has another clock.
    other_clocks: Vec<bool>,
    /// Which incarnation each peer said that it is; 0 for none.
    pub(super) incarnations: Vec<u64>,
    /// Which incarnation of each peer switches were told is gone; 0 for none.
    pub(super) reported: Vec<u64>,
    /// Whether each peer is of this process.
    pub(super) is_mate: Vec<bool>,
    is_unacknowledged: bool,
    /// Flows that were recovered here, and that could not be.
    pub(super) recovered: [u64; 2],
    /// Groups without flows that were.
    pub(super) groups_recovered: u64,
    /// Of the last recoveries, the oldest first.
    pub(super) receipts: Vec<RecoveryReceipt>,
    /// Of all recoveries.
    pub(super) recovery_times: Durations,
}

impl Keeper {
    /// There are these other runtimes: whether each has another clock, and is of this process.
    pub fn join(&mut self, other_clocks: Vec<bool>, is_mate: Vec<bool>) {
        self.is_mate = is_mate;
        self.primaries.resize_with(other_clocks.len(), || None);
        self.incarnations = alloc::vec![0; other_clocks.len()];
        self.reported = self.incarnations.clone();
        self.other_clocks = other_clocks;
    }

    /// Whether the clock of a runtime to which another link was laid is another one.
    pub fn set_clock(&mut self, runtime: usize, is_other: bool) {
        if let Some(known) = self.other_clocks.get_mut(runtime) {
            *known = is_other;
        }
    }

    /// Copies that are kept now.
    pub fn copies(&self) -> u64 {
        self.primaries
            .iter()
            .flatten()
            .map(|copies| copies.flows.used as u64)
            .sum()
    }

    /// Bytes of states that there is room for, for tests.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let kept = self.primaries.iter().flatten();
        kept.map(|copies| copies.flows.states.len() + copies.groups.states.len())
            .sum()
    }

    /// Flows that were recovered here, and that could not be.
    pub fn recovered(&self) -> [u64; 2] {
        self.recovered
    }

    /// Groups without flows that were recovered here.
    pub fn groups_recovered(&self) -> u64 {
        self.groups_recovered
    }

    /// Of the last recoveries, the oldest first.
    pub fn receipts(&self) -> &[RecoveryReceipt] {
        &self.receipts
    }

    /// How long recoveries took.
    pub fn recovery_times(&self) -> Durations {
        self.recovery_times
    }

    /// Takes in a record of copies from another runtime.
    pub fn take(&mut self, core: &mut Core, peer: usize, copy: Copy<'_>) {
        if let Copy::Acknowledged { number, count } = copy {
            return core.copies_acknowledged(peer as u16, number, count);
        }
        if let Copy::Refused { number } = copy {
            return core.copies_refused(peer as u16, number);
        }
        if let Copy::Base {
            number,
            now,
            incarnation,
            is_second,
        } = copy
        {
            core.sessions.note_said(peer, incarnation);
            let is_mate = self.is_mate.get(peer) == Some(&true);
            if let Some(known) = self.incarnations.get_mut(peer)
                && core::mem::replace(known, incarnation) == 0
                && is_mate
            {
                core.out
                    .announce(Message::Meets(RuntimeId(peer as u16), incarnation));
            }
            return self.begin(core, peer, (number, is_second), (now, incarnation));
        }
        let Some(Some(copies)) = self.primaries.get_mut(peer) else {
            return core.out.reject();
        };
        if copies.is_refused {
            return;
        }
        if copies.take(copy, core.now) {
            self.is_unacknowledged = true;
            return;
        }
        copies.is_refused = true;
        let number = copies.number;
        core.out.reject();
        core.out
            .send_record(peer as u16, &Record::Copy(Copy::Refused { number }));
    }

    fn begin(
        &mut self,
        core: &mut Core,
        peer: usize,
        (number, is_second): (u32, bool),
        (now, incarnation): (u64, u64),
    ) {
        // It lives, so copies of its incarnation before a cut are not to be recovered.
        self.recoveries.retain(|recovery| {
            usize::from(recovery.failed) != peer || !recovery.is_of_incarnation(incarnation)
        });
        core.still_until = still_until(&self.recoveries);
        self.note_alive(core, peer, incarnation);
        // No base has the number by which a switch is told of none.
        let Some(place) = self.primaries.get_mut(peer).filter(|_| number != Report::LATER) else {
            return core.out.reject();
        };
        if number == 0 {
            *place = None;
            return;
        }
        let is_other = self.other_clocks.get(peer).copied().unwrap_or(false);
        let difference = i128::from(core.now) - i128::from(now);
        let by = match is_other {
            true => difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            false => 0,
        };
        match place {
            Some(copies) if copies.is_for(core) => copies.begin(number, incarnation, by),
            _ => *place = Some(Copies::new(core, number, incarnation, by)),
        }
        if let Some(copies) = place {
            copies.counts = !is_second || super::is_broken("a second base counts when it is whole");
        }
        self.is_unacknowledged = true;
    }

    /// Acknowledges the records that have come since this was called last.
    #[inline]
    pub fn acknowledge(&mut self, core: &mut Core) {
        if self.is_unacknowledged {
            self.acknowledge_all(core);
        }
    }

    fn acknowledge_all(&mut self, core: &mut Core) {
        self.is_unacknowledged = false;
        for (peer, copies) in self.primaries.iter_mut().enumerate() {
            if let Some(copies) = copies
                && copies.acknowledged != copies.count
            {
                copies.acknowledged = copies.count;
                let acknowledged = Copy::Acknowledged {
                    number: copies.number,
                    count: copies.count,
                };
                core.out.send_record(peer as u16, &Record::Copy(acknowledged));
            }
        }
    }
}

impl Copies {
    /// No copies yet.
    pub fn new(core: &Core, number: u32, incarnation: u64, by: i64) -> Self {
        let flows = Slots::new(core.flows.capacity(), core.flows.state_length());
        let groups = Slots::new(
            core.settings.groups_max as usize,
            core.flows.groups().state_length(),
        );
        Copies {
            number,
            incarnation,
            by,
            ..Copies::with_room(flows, groups, core.flows.owners.most())
        }
    }

    /// Whether they have the room that is needed here.
    fn is_for(&self, core: &Core) -> bool {
        let lengths = (core.flows.state_length(), core.flows.groups().state_length());
        (self.flows.stride, self.groups.stride) == lengths
    }

    /// No copies, in the same memory: another base begins.
    fn begin(&mut self, number: u32, incarnation: u64, by: i64) {
        (self.number, self.incarnation, self.by) = (number, incarnation, by);
        (self.count, self.acknowledged, self.is_refused) = (1, 0, false);
        self.flows.clear();
        self.groups.clear();
        self.flows_by.clear();
        self.flows_of.clear();
        self.blocks.clear();
        self.over.clear();
        self.generations.clear();
        self.gathered.clear();
        self.current = None;
    }

    pub(super) fn with_room(flows: Slots<FlowCopy>, groups: Slots<GroupCopy>, blocks_max: usize) -> Self {
        let states = flows.states.len() + groups.states.len();
        let heads = HEAD_MAX * (flows.most + groups.most + blocks_max);
        Copies {
            // Runs have heads of their own.
            gathered: Gathered::new(flows.stride + groups.stride, 2 * states + heads),
            number: 0,
            incarnation: 0,
            by: 0,
            count: 1,
            acknowledged: 0,
            wide: alloc::vec![Wide::default(); flows.most],
            flows,
            groups,
            flows_by: Vec::new(),
            flows_of: Vec::new(),
            blocks: BTreeMap::new(),
            blocks_max,
            claimed: BTreeMap::new(),
            over: BTreeSet::new(),
            current: None,
            generations: Generations::default(),
            is_refused: false,
            counts: true,
        }
    }

    /// The group of each flow, and each group.
    pub(super) fn group_keys(&self) -> impl Iterator<Item = GroupKey> {
        let groups = self.groups.records.iter().flatten().map(|group| group.key);
        let flows = self.flows.records.iter().zip(0..);
        let flows = flows.filter_map(|(flow, slot)| Some((flow.as_ref()?, slot)));
        let alone = flows.filter(|(flow, _)| flow.group == NO_GROUP);
        groups.chain(alone.map(|(flow, slot)| GroupKey::of_flow(self.flow_header(slot, flow).key)))
    }

    /// The facts of a flow's copy, which is in this slot.
    pub fn flow_header(&self, slot: u32, copy: &FlowCopy) -> FlowHeader {
        let wide = match copy.marks.is_wide() {
            true => self.wide.get(slot as usize).copied().unwrap_or_default(),
            false => Wide::default(),
        };
        let [[a, b], [v, w]] = copy.words();
        let [c, d, e, x, y, z] = wide;
        FlowHeader {
            key: FlowKey::from_words([a, b, c, d, e]),
            second: FlowKey::from_words([v, w, x, y, z]),
            time_left: u64::from_ne_bytes(copy.time_left),
            chain: copy.chain,
            flags: copy.flags,
            answered: copy.marks.is_answered(),
        }
    }

    /// By slot of a group, how many flows it has; for the recovery, behind which nothing more is
    /// noted.
    pub fn take_flows_of(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.flows_of)
    }

    fn put_flow(&mut self, slot: u32, (copy, wide): (FlowCopy, Option<Wide>)) -> bool {
        let group = copy.group;
        let Some(before) = self.flows.put(slot, copy) else {
            return false;
        };
        if let (Some(wide), Some(place)) = (wide, self.wide.get_mut(slot as usize)) {
            *place = wide;
        }
        if let Some(before) = before {
            self.leave_group(before.group);
        }
        if group != NO_GROUP {
            let index = group as usize;
            if index >= self.flows_of.len() {
                self.flows_of.resize(index + 1, 0);
            }
            if let Some(count) = self.flows_of.get_mut(index) {
                *count += 1;
            }
        }
        true
    }

    fn leave_group(&mut self, group: u32) {
        if let Some(count) = self.flows_of.get_mut(group as usize) {
            *count = count.saturating_sub(1);
        }
    }

    /// Of a flow whose times are by a clock of their own.
    pub fn set_flow_by(&mut self, slot: u32, by: i64) {
        let index = slot as usize;
        if index >= self.flows_by.len() {
            self.flows_by.resize(index + 1, self.by);
        }
        if let Some(known) = self.flows_by.get_mut(index) {
            *known = by;
        }
    }

    /// By how much the clock here is ahead of the clock of a flow's times, in nanoseconds.
    pub fn flow_by(&self, slot: u32) -> i64 {
        self.flows_by.get(slot as usize).copied().unwrap_or(self.by)
    }

    /// The same of a group.
    pub fn set_group_by(&mut self, slot: u32, by: i64) {
        if let Some(copy) = self.groups.get_mut(slot) {
            copy.by = by;
        }
    }

    /// Notes a record; `false` if it cannot be.
    pub fn note(&mut self, copy: Copy<'_>, now: u64) -> bool {
        match copy {
            Copy::Group {
                slot,
                group,
                length,
                piece,
            } => {
                let record = GroupCopy {
                    key: group,
                    length,
                    rests_until: None,
                    by: self.by,
                    has: 0,
                };
                if usize::from(length) > self.groups.stride || self.groups.put(slot, record).is_none() {
                    return false;
                }
                self.current = Some((slot, true));
                self.append(piece)
            }
            Copy::Flow {
                slot,
                group,
                length,
                generation,
                flow_header,
                piece,
            } => {
                let has_group = match self.groups.get_mut(group) {
                    Some(known) => {
                        known.rests_until = None;
                        true
                    }
                    None => group == NO_GROUP,
                };
                let fits = usize::from(length) <= self.flows.stride;
                let copy = FlowCopy::new(&flow_header, generation, group, length);
                if !fits || !has_group || !self.put_flow(slot, copy) {
                    return false;
                }
                self.current = Some((slot, false));
                self.append(piece)
            }
            Copy::More(piece) => self.append(piece),
            Copy::Runs { .. } if planted::is("change_not_kept") => true,
            Copy::Runs { .. } if super::is_broken("changes are kept") => false,
            Copy::Runs { slot, is_group, runs } => self.change(slot, is_group, runs),
            Copy::End { .. } if planted::is("end_not_kept") => true,
            Copy::End { slot, is_group } => {
                self.current = None;
                // A copy may have ended before it was sent.
                if is_group {
                    self.groups.remove(slot);
                } else if let Some(copy) = self.flows.remove(slot) {
                    self.leave_group(copy.group);
                }
                true
            }
            Copy::Block {
                is_claimed,
                block,
                group,
            } => {
                let place = (block.addr, block.first);
                if !is_claimed {
                    self.blocks.remove(&place);
                } else if self.blocks.len() >= self.blocks_max && !self.blocks.contains_key(&place) {
                    return false;
                } else {
                    self.blocks.insert(place, (block, group));
                }
                true
            }
            Copy::Whole => {
                self.counts = true;
                true
            }
            Copy::Rests { slot, left } => match self.groups.get_mut(slot) {
                Some(group) => {
                    group.rests_until = Some(now.saturating_add(left.min(DEADLINE_MAX)));
                    true
                }
                None => false,
            },
            Copy::Plan {
                generation,
                identity,
                chains,
            } => self.generations.note(generation, identity, chains),
            Copy::Over { group, is_over } => {
                let may = !is_over || self.may_be_over(1);
                match is_over {
                    true if may => self.over.insert(*group.words()),
                    _ => self.over.remove(group.words()),
                };
                may
            }
            Copy::Base { .. } | Copy::Acknowledged { .. } | Copy::Refused { .. } => false,
            Copy::Change | Copy::Changed => false,
        }
    }

    /// Whether so many more groups may have ended: as many as there may be at most.
    pub(super) fn may_be_over(&self, more: usize) -> bool {
        self.over.len() + more <= self.flows.most + self.groups.most
    }

    /// A further piece of the state at hand.
    fn append(&mut self, piece: &[u8]) -> bool {
        let Some((slot, is_group)) = self.current else {
            return false;
        };
        let record = match is_group {
            true => self
                .groups
                .get_mut(slot)
                .map(|record| (&mut record.has, record.length)),
            false => self
                .flows
                .get_mut(slot)
                .map(|record| (&mut record.has, record.length)),
        };
        let Some((has, length)) = record else {
            return false;
        };
        let (from, to) = (usize::from(*has), usize::from(*has) + piece.len());
        if to > usize::from(length) {
            return false;
        }
        *has = to as u16;
        let state = match is_group {
            true => self.groups.state_mut(slot),
            false => self.flows.state_mut(slot),
        };
        match state.get_mut(from..to) {
            Some(place) => place.copy_from_slice(piece),
            None => return false,
        }
        true
    }

    fn change(&mut self, slot: u32, is_group: bool, runs: &[u8]) -> bool {
        let length = match is_group {
            true => self.groups.get(slot).map(|record| record.length),
            false => self.flows.get(slot).map(|record| record.length),
        };
        let Some(length) = length else {
            return false;
        };
        let state = match is_group {
            true => self.groups.state_mut(slot),
            false => self.flows.state_mut(slot),
        };
        let Some(state) = state.get_mut(..usize::from(length)) else {
            return false;
        };
        let mut rest = runs;
        while let Some((at, run, behind)) = split_run(rest) {
            let Some(place) = state.get_mut(at..at + run.len()) else {
                return false;
            };
            place.copy_from_slice(run);
            rest = behind;
        }
        rest.is_empty()
    }
}

/// The first run of changed bytes: its place, its bytes, and the rest behind it.
#[inline]
pub(super) fn split_run(runs: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let ([high, low, count], behind) = runs.split_first_chunk::<3>()?;
    let (run, behind) = behind.split_at_checked(usize::from(*count))?;
    Some((usize::from(u16::from_be_bytes([*high, *low])), run, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap as Model;

    proptest! {
        /// Flows of both families come, come again in a group's or another's name, and end, in any
        /// order: each copy has the facts that came last, and each group as many flows as name it.
        #[test]
        fn copies_have_the_header_that_came_last(
            ops in proptest::collection::vec((0..4_u8, 0..6_u32, 0..3_u32, any::<[u64; 5]>(), any::<bool>()), 0..80),
        ) {
            let mut copies = Copies::with_room(Slots::new(5, 8), Slots::new(3, 8), 1);
            let mut flows: Model<u32, (FlowHeader, u32, u8)> = Model::new();
            let mut groups = std::collections::BTreeSet::new();
            for (what, slot, group, words, is_v4) in ops {
                let [a, b, c, d, e] = words;
                let key = |a: u64| match is_v4 {
                    true => FlowKey::from_words([a & !0xff | 4, b, 0, 0, 0]),
                    false => FlowKey::from_words([a & !0xff | 6, b, c, d, e]),
                };
                let (chain, flags, answered, v) = (a as u8, b as u8, c & 1 != 0, e as u8);
                let flow_header = FlowHeader { key: key(a), second: key(e), time_left: d, chain, flags, answered };
                match what {
                    0 => {
                        let state: &[u8] = &[];
                        let known = GroupKey::of_flow(flow_header.key);
                        copies.note(Copy::Group { slot: group, group: known, length: 0, piece: state }, 0);
                        groups.insert(group);
                    }
                    1 => {
                        let is_taken = copies.note(Copy::End { slot, is_group: false }, 0);
                        prop_assert!(is_taken);
                        flows.remove(&slot);
                    }
                    _ => {
                        let is_alone = what == 3 && is_v4;
                        let group = if is_alone { NO_GROUP } else { group };
                        let flow = Copy::Flow { slot, group, length: 1, generation: v, flow_header, piece: &[1] };
                        let fits = slot < 5 && (is_alone || groups.contains(&group));
                        prop_assert_eq!(copies.note(flow, 0), fits);
                        if fits {
                            flows.insert(slot, (flow_header, group, v));
                        }
                    }
                }
                prop_assert_eq!(copies.flows.used, flows.len());
                for slot in 0..6 {
                    let copy = copies.flows.get(slot);
                    let found = copy.map(|copy| (copies.flow_header(slot, copy), copy.group, copy.generation));
                    prop_assert_eq!(found, flows.get(&slot).copied());
                }
            }
            let counts = copies.take_flows_of();
            for group in 0..3 {
                let named = flows.values().filter(|(_, known, _)| *known == group).count();
                prop_assert_eq!(counts.get(group as usize).copied().unwrap_or(0) as usize, named);
            }
        }
    }

    /// A peer that begins one base after the other has no memory taken for that.
    #[test]
    fn another_base_has_the_memory_of_the_one_before_and_nothing_else_of_it() {
        let mut copies = Copies::with_room(Slots::new(5, 8), Slots::new(3, 8), 1);
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
        let block = Block {
            addr: "192.0.2.1".parse().unwrap(),
            first: 64,
            ports: 64,
        };
        let records = [
            Copy::Plan {
                generation: 1,
                identity: 7,
                chains: &[],
            },
            Copy::Block {
                is_claimed: true,
                block,
                group,
            },
            Copy::Group {
                slot: 2,
                group,
                length: 1,
                piece: &[1],
            },
            Copy::Flow {
                slot: 4,
                group: 2,
                length: 1,
                generation: 1,
                flow_header,
                piece: &[1],
            },
        ];
        assert!(records.into_iter().all(|record| copies.take(record, 0)));
        copies.set_flow_by(4, 9);
        assert!(copies.take(Copy::Change, 0) && copies.take(records[3], 0));
        let memory = |copies: &Copies| {
            let (flows, groups) = (&copies.flows, &copies.groups);
            [
                flows.states.as_ptr(),
                groups.states.as_ptr(),
                flows.records.as_ptr().cast(),
            ]
        };
        let before = memory(&copies);
        copies.begin(2, 3, 4);
        assert_eq!(memory(&copies), before);
        assert_eq!((copies.number, copies.incarnation, copies.by), (2, 3, 4));
        assert_eq!((copies.count, copies.flows.used, copies.groups.used), (1, 0, 0));
        assert!(copies.blocks.is_empty() && !copies.generations.has(7) && copies.take_flows_of().is_empty());
        assert_eq!(copies.flow_by(4), 4);
        // No change is open, and no group is there.
        assert!(!copies.take(Copy::Changed, 0) && !copies.take(records[3], 0));
    }

    #[test]
    fn a_flow_may_have_a_clock_of_its_own() {
        let mut copies = Copies::with_room(Slots::new(5, 8), Slots::new(3, 8), 1);
        copies.by = 7;
        copies.set_flow_by(2, -3);
        assert_eq!([0, 1, 2, 3].map(|slot| copies.flow_by(slot)), [7, 7, -3, 7]);
    }
}
