//! The primary's side: which runtime is the replica, what is sent to it, and which packets wait for that.
//!
//! ```text
//!   observe(actor): committed bytes as they are ─► chain ─► commit(actor): ends, blocks; group, flow: runs or all bytes ─► mark at the gate
//! ```
//!
//! A flow is sent whole, and its group with it, when its copy is not up to date, or when its bytes
//! were not observed before the call: a call that waited goes on. A group is sent whole when a flow
//! of it is over, which functions are told of; not if a packet's chain ends the flow, since the
//! group was observed before that chain.
//!
//! Invariant: after [`Core::commit`] the records sent so far have all committed bytes of the flow and its group.

use crate::flows::Ended;
use crate::flows::actor::{Header, NO_GROUP, Phase, flag};
use crate::flows::group::GroupKey;
use crate::hold::mark_of;
use crate::parts::Core;
use crate::record::{Copy, Facts, NO_DEADLINE, Record, Travelling};
use alloc::vec::Vec;
use core::ops::Range;
use wire::PacketBox;

/// Flows sent in a step while a base is sent.
const WALK: usize = 64;
/// Bytes of a state in one record.
const PIECE: usize = 1024;
/// Bytes compared at a time.
const CHUNK: usize = 64;
/// Bases are numbered from 1 to this in a flow's header.
const BASES: u32 = 127;

/// What a flow's state was before its packet's chain.
#[derive(Default)]
struct Before {
    /// Whose, if any.
    actor: Option<u32>,
    /// Its committed bytes, in the order of their ranges.
    flow: Vec<u8>,
    answered: bool,
    flags: u8,
    /// Its group, if that has a copy, and its committed bytes.
    group: Option<u32>,
    group_bytes: Vec<u8>,
    /// A flow that begins: its group was looked at before functions were told.
    begins: Option<u32>,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct Sender {
    is_wanted: bool,
    /// The replica.
    to: Option<u16>,
    /// How many bases were begun.
    number: u32,
    /// Records of this base.
    sent: u64,
    /// The next actor that the base has not got.
    walk: Option<u32>,
    /// How many records *whole* was.
    whole: Option<u64>,
    /// By group: under which base it was copied.
    groups: Vec<u8>,
    before: Before,
    /// Flows that came from other runtimes and are to be copied.
    arrived: Vec<u32>,
    unprotected: u64,
    runs: Vec<u8>,
}

/// Flags of a flow that its copy has.
const COPIED: u8 = !(flag::HOLDS | flag::SETTLING);

impl Sender {
    /// `is_wanted`: whether copies are to be kept of this runtime's flows.
    pub fn new(is_wanted: bool) -> Self {
        Sender {
            is_wanted,
            ..Sender::default()
        }
    }

    /// Whether a replica is in use.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.to.is_some()
    }

    /// Whether packets are to wait for copies, if there is a replica.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// The replica, if it is one.
    pub fn replica(&self) -> Option<u16> {
        self.to
    }

    /// Packets that left without a copy.
    pub fn unprotected(&self) -> u64 {
        self.unprotected
    }

    /// Whether all flows have copies, with so many records acknowledged.
    pub fn is_whole(&self, acknowledged: u64) -> bool {
        self.whole.is_some_and(|whole| whole <= acknowledged)
    }

    /// Whether it has anything to do besides packets.
    #[inline]
    fn is_idle(&self) -> bool {
        self.walk.is_none() && self.arrived.is_empty()
    }

    /// The base's number as flows have it.
    #[inline(always)]
    fn base(&self) -> u8 {
        (self.number % BASES + 1) as u8
    }

    /// A flow has come from another runtime, or was recovered.
    pub fn note_arrived(&mut self, actor: u32) {
        if self.is_on() {
            self.arrived.push(actor);
        }
    }

    fn has_group(&self, group: u32) -> bool {
        self.groups.get(group as usize) == Some(&self.base())
    }

    fn set_group(&mut self, group: u32, base: u8) {
        let index = group as usize;
        if index >= self.groups.len() {
            self.groups.resize(index + 1, 0);
        }
        self.groups[index] = base;
    }
}

/// What a copy has of a flow besides its states.
pub(crate) fn facts(header: &Header, second: wire::FlowKey, now: u64) -> Facts {
    Facts {
        key: header.key,
        second,
        time_left: match header.deadline {
            0 => NO_DEADLINE,
            deadline => deadline.saturating_sub(now).min(NO_DEADLINE - 1),
        },
        chain: header.chain,
        flags: header.flags & COPIED,
        answered: header.answered,
    }
}

/// Where the bytes of an actor's state are in its copy.
fn place_in_copy(at: usize, state: &Travelling) -> usize {
    match at < state.own || state.group.1 == 0 {
        true => at,
        false => at - state.group.0 + state.own,
    }
}

impl Core {
    // The replica.

    /// Chooses a replica if none is in use: the next runtime that is there, one that takes flows first.
    #[cold]
    pub fn choose_replica(&mut self) {
        if !self.sender.is_wanted {
            return;
        }
        let has_one = self.sender.to.is_some_and(|to| self.sessions.has_runtime(to));
        if has_one && self.flows.active() > 0 {
            // Another choice would leave flows without a copy for a while.
            return;
        }
        let (me, count) = (self.settings.info.runtime, self.sessions.runtimes.len() as u16);
        let others = (1..count).map(|step| (me + step) % count);
        let mut there: Vec<u16> = others.filter(|other| self.sessions.has_runtime(*other)).collect();
        there.sort_by_key(|other| self.sessions.is_runtime_leaving(*other));
        let chosen = there.first().copied();
        if has_one && chosen == self.sender.to {
            return;
        }
        if has_one {
            self.send_copy(Copy::Base { number: 0, now: 0 });
        }
        self.use_replica(chosen);
    }

    /// The session of a link to a runtime is over: if it was the replica, its copies are no longer this runtime's.
    #[cold]
    pub fn replica_gone(&mut self, runtime: u16) {
        if self.sender.to == Some(runtime) {
            self.sender.to = None;
        }
        self.choose_replica();
    }

    fn use_replica(&mut self, to: Option<u16>) {
        self.sender.to = to;
        self.sender.whole = None;
        self.sender.before.actor = None;
        self.sender.before.group = None;
        self.sender.arrived.clear();
        let Some(to) = to else {
            self.sender.walk = None;
            self.sender.unprotected += self.gate.open(&mut self.out) as u64;
            return;
        };
        self.sender.number += 1;
        self.sender.sent = 0;
        self.flows.take_ended();
        self.flows.owners.note_changes();
        self.flows.owners.take_changes();
        let base = Copy::Base {
            number: self.sender.number,
            now: self.now,
        };
        self.sender.to = Some(to);
        self.send_copy(base);
        self.sender.walk = Some(0);
        let blocks: Vec<_> = self.flows.owners.places();
        for (addr, first) in blocks {
            if let Some(group) = self.flows.owners.at(addr, first) {
                let ports = self.flows.owners.size_at(first);
                self.send_copy(Copy::Block {
                    is_claimed: true,
                    block: nf::Block { addr, first, ports },
                    group,
                });
            }
        }
        for waiting in self.gate.begin() {
            // What it depends on is in this base; its flow may be over, and then what is left of that is.
            if waiting.actor as usize >= self.flows.capacity() {
                self.gate.pass_behind_all(waiting.packet, &mut self.out);
                continue;
            }
            self.commit(waiting.actor);
            let index = mark_of(self.flows.header(waiting.actor), waiting.actor);
            self.gate.mark(index, self.sender.sent);
            self.gate
                .pass(waiting.actor, index, waiting.packet, &mut self.out);
        }
    }

    /// The runtime ends: nothing waits for copies any more.
    pub fn close_copies(&mut self) {
        self.sender.is_wanted = false;
        if self.sender.is_on() {
            // No flow of this runtime goes on elsewhere.
            self.send_copy(Copy::Base { number: 0, now: 0 });
        }
        self.use_replica(None);
    }

    /// The runtime that has a copy of every flow.
    pub fn protected_by(&self) -> Option<u16> {
        let is_whole = self.sender.is_whole(self.gate.acknowledged());
        self.sender.replica().filter(|_| is_whole)
    }

    /// The replica has so many records of a base.
    pub fn copies_acknowledged(&mut self, peer: u16, number: u32, count: u64) {
        if self.sender.to != Some(peer) || self.sender.number != number {
            // Of a base that is void by now.
            return;
        }
        if count > self.sender.sent {
            return self.out.reject();
        }
        self.gate.acknowledge(count, &mut self.out);
    }

    /// Goes on with the base, and with what came or is over; answers how much was done.
    #[inline]
    pub fn go_on_copying(&mut self) -> usize {
        if !self.sender.is_on() {
            // Nothing is told of what is over.
            self.flows.take_ended();
            self.flows.owners.take_changes();
            return 0;
        }
        if self.flows.has_ended() || self.flows.owners.has_changes() {
            self.send_ends();
        }
        match self.sender.is_idle() {
            true => 0,
            false => self.copy_some(),
        }
    }

    #[cold]
    fn copy_some(&mut self) -> usize {
        let mut count = 0;
        while count < WALK && self.has_room_to_copy() {
            if let Some(actor) = self.sender.arrived.pop() {
                self.copy_if_needed(actor);
                count += 1;
                continue;
            }
            let Some(actor) = self.sender.walk else {
                break;
            };
            if actor >= self.flows.used() {
                self.sender.walk = None;
                self.send_copy(Copy::Whole);
                self.sender.whole = Some(self.sender.sent);
                break;
            }
            self.copy_if_needed(actor);
            self.sender.walk = Some(actor + 1);
            count += 1;
        }
        count.max(usize::from(!self.sender.is_idle()))
    }

    fn has_room_to_copy(&self) -> bool {
        self.out.records_pending() == 0 && self.out.has_spare()
    }

    fn copy_if_needed(&mut self, actor: u32) {
        let header = self.flows.header(actor);
        // A flow on its way from here is the target's soon; one that settles is sent when it has.
        let is_here =
            matches!(header.phase, Phase::Active | Phase::Waiting) && header.flags & flag::SETTLING == 0;
        if is_here && header.copied != self.sender.base() {
            self.commit(actor);
        }
    }

    /// The state of a group is at another runtime, which decides from now on what becomes of it: its copies are void.
    pub fn withdraw_copies(&mut self, group: GroupKey, actors: &[u32]) {
        if !self.sender.is_on() {
            return;
        }
        for actor in actors {
            let header = self.flows.header_mut(*actor);
            if core::mem::take(&mut header.copied) != 0 {
                self.send_copy(Copy::End {
                    slot: *actor,
                    is_group: false,
                });
            }
        }
        if let Some(slot) = self.flows.groups().at(group)
            && self.sender.has_group(slot)
        {
            self.sender.set_group(slot, 0);
            self.send_copy(Copy::End { slot, is_group: true });
        }
        self.send_blocks_of(group, false);
    }

    /// The group is this runtime's after all.
    pub fn restore_copies(&mut self, group: GroupKey, actors: &[u32]) {
        if self.sender.is_on() {
            self.send_blocks_of(group, true);
            self.sender.arrived.extend_from_slice(actors);
        }
    }

    fn send_blocks_of(&mut self, group: GroupKey, is_claimed: bool) {
        let blocks: Vec<_> = self.flows.owners.of(&group).collect();
        for block in blocks {
            self.send_copy(Copy::Block {
                is_claimed,
                block,
                group,
            });
        }
    }

    // Packets.

    /// Passes a packet of a flow on, once the copy that it depends on is acknowledged.
    #[inline(always)]
    pub fn pass(&mut self, actor: u32, packet: PacketBox) {
        if self.sender.is_on() {
            self.pass_committed(actor, packet);
        } else {
            self.out.pass(packet);
        }
    }

    #[inline(never)]
    fn pass_committed(&mut self, actor: u32, packet: PacketBox) {
        self.commit(actor);
        let index = mark_of(self.flows.header(actor), actor);
        self.gate.pass(actor, index, packet, &mut self.out);
    }

    /// Notes the committed bytes of a flow and its group before a packet's chain runs.
    #[inline]
    pub fn observe(&mut self, actor: u32) {
        if self.flows.has_ended() {
            self.send_ends();
        }
        let base = self.sender.base();
        let header = *self.flows.header(actor);
        let is_copied = header.copied == base;
        self.sender.before.actor = None;
        if is_copied {
            let before = &mut self.sender.before;
            before.actor = Some(actor);
            (before.answered, before.flags) = (header.answered, header.flags & COPIED);
            before.flow.clear();
            let ranges = self.runner.stages().committed(header.chain);
            gather(self.flows.state_bytes(actor), ranges, &mut before.flow);
            if header.group == NO_GROUP {
                let (offset, ranges) = (self.flows.group_offset(), self.runner.stages().group_committed());
                let group = self.flows.state_bytes(actor).get(offset..).unwrap_or_default();
                gather(group, ranges, &mut before.flow);
            }
        }
        if self.sender.before.begins.take() == Some(actor) {
            return;
        }
        self.sender.before.group = None;
        if is_copied && header.group != NO_GROUP && self.sender.has_group(header.group) {
            self.observe_group(header.group);
        }
    }

    /// Notes the committed bytes of a group before functions are told of a flow that begins in it.
    #[inline]
    pub fn observe_beginning(&mut self, actor: u32) {
        if self.sender.is_on() {
            self.observe_group_of(actor);
        }
    }

    #[inline(never)]
    fn observe_group_of(&mut self, actor: u32) {
        if self.flows.has_ended() {
            self.send_ends();
        }
        self.sender.before.begins = Some(actor);
        self.sender.before.group = None;
        let group = self.flows.header(actor).group;
        if group != NO_GROUP && self.sender.has_group(group) {
            self.observe_group(group);
        }
    }

    /// A call that waited goes on: its changes were not observed. Answers its flow's group.
    pub fn observe_woken(&mut self, actor: u32) -> u32 {
        let header = self.flows.header_mut(actor);
        header.outdate_copy();
        header.group
    }

    /// Behind such a call: what it may have changed is sent, unless a packet of it has taken that
    /// along.
    pub fn commit_woken(&mut self, actor: u32, group: u32) {
        if !self.sender.is_on() {
            return;
        }
        if self.flows.has_ended() {
            self.send_ends();
        }
        if self.is_to_be_sent(actor) {
            self.commit(actor);
        } else if self.flows.header(actor).phase != Phase::Active && self.sender.has_group(group) {
            self.send_group(group);
            self.gate.mark(group, self.sender.sent);
        }
    }

    /// Whether a flow is to be sent though no packet has passed: a function keeps it, its copy is
    /// too old, or its first packet waits in a call. Its group knows of that flow already, and
    /// without a copy the group would never be told of its end.
    fn is_to_be_sent(&self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        let is_here = match header.phase {
            Phase::Active => header.copied != self.sender.base(),
            Phase::Waiting => header.copied == 0,
            _ => false,
        };
        is_here && header.flags & flag::SETTLING == 0
    }

    fn observe_group(&mut self, group: u32) {
        let before = &mut self.sender.before;
        before.group = Some(group);
        before.group_bytes.clear();
        let ranges = self.runner.stages().group_committed();
        gather(
            self.flows.groups().state_bytes(group),
            ranges,
            &mut before.group_bytes,
        );
    }

    /// Behind a packet's chain, whatever became of the packet: what it changed is sent.
    #[inline]
    pub fn commit_after(&mut self, actor: u32) {
        let group = self.sender.before.group;
        let is_observed =
            self.sender.before.actor == Some(actor) && self.flows.header(actor).phase == Phase::Active;
        if is_observed || self.is_to_be_sent(actor) {
            self.commit(actor);
        } else if let Some(group) = group {
            if self.flows.has_ended() {
                self.send_ends();
            }
            if self.sender.has_group(group) {
                self.send_group_runs(group);
                self.gate.mark(group, self.sender.sent);
            }
        }
        self.sender.before.actor = None;
        self.sender.before.group = None;
    }

    /// Sends what the copies of a flow and its group lack.
    pub fn commit(&mut self, actor: u32) {
        if super::is_broken("state is copied") && self.sender.sent > 20 {
            return;
        }
        if self.flows.has_ended() || self.flows.owners.has_changes() {
            self.send_ends();
        }
        let header = *self.flows.header(actor);
        if header.phase == Phase::Free || header.phase == Phase::Arriving {
            return;
        }
        let (sent, base) = (self.sender.sent, self.sender.base());
        if header.group != NO_GROUP {
            if !self.sender.has_group(header.group) {
                self.send_group(header.group);
            } else if self.sender.before.group == Some(header.group) {
                self.send_group_runs(header.group);
            } else {
                self.send_group(header.group);
            }
        }
        if header.copied == base && self.sender.before.actor == Some(actor) && self.is_as_before(&header) {
            self.send_runs(actor, &header);
        } else {
            self.send_flow(actor);
            self.flows.header_mut(actor).copied = base;
            if self.sender.before.actor == Some(actor) {
                // A later packet of the same call is compared with what was sent.
                self.sender.before.actor = None;
            }
        }
        if self.sender.sent != sent {
            let index = mark_of(self.flows.header(actor), actor);
            self.gate.mark(index, self.sender.sent);
        }
    }

    fn is_as_before(&self, header: &Header) -> bool {
        let before = &self.sender.before;
        (before.answered, before.flags) == (header.answered, header.flags & COPIED)
    }

    // Records.

    fn send_copy(&mut self, copy: Copy<'_>) {
        if let Some(to) = self.sender.to {
            self.out.send_record(to, &Record::Copy(copy));
            self.sender.sent += 1;
        }
    }

    /// Ends and blocks, before any record that follows them.
    #[cold]
    fn send_ends(&mut self) {
        if self.flows.owners.has_changes() {
            for change in self.flows.owners.take_changes() {
                self.send_copy(Copy::Block {
                    is_claimed: change.is_claimed,
                    block: change.block,
                    group: change.group,
                });
            }
        }
        let ended = self.flows.take_ended();
        for over in &ended {
            let (slot, is_group) = match *over {
                Ended::Flow(actor) => (actor, false),
                Ended::Group(group) => {
                    self.sender.set_group(group, 0);
                    (group, true)
                }
                Ended::InGroup(_) => continue,
            };
            self.send_copy(Copy::End { slot, is_group });
        }
        let mut sent = None;
        for over in &ended {
            if let Ended::InGroup(group) = *over
                && sent != Some(group)
                && self.sender.before.group != Some(group)
                && self.sender.has_group(group)
            {
                sent = Some(group);
                self.send_group(group);
                self.gate.mark(group, self.sender.sent);
            }
        }
        self.flows.give_ended(ended);
    }

    fn send_group(&mut self, group: u32) {
        let key = self.flows.groups().key(group);
        let bytes = self.flows.groups().state_bytes(group);
        let length = bytes.len() as u16;
        let mut pieces = bytes.chunks(PIECE);
        let Some(to) = self.sender.to else {
            return;
        };
        let first = Copy::Group {
            slot: group,
            group: key,
            length,
            piece: pieces.next().unwrap_or_default(),
        };
        self.out.send_record(to, &Record::Copy(first));
        self.sender.sent += 1;
        for piece in pieces {
            self.out.send_record(to, &Record::Copy(Copy::More(piece)));
            self.sender.sent += 1;
        }
        self.sender.set_group(group, self.sender.base());
        if self.sender.before.group == Some(group) {
            self.sender.before.group = None;
        }
    }

    fn send_flow(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        let Some(state) = self.runner.travelling(header.chain, &self.flows) else {
            return;
        };
        let Some(to) = self.sender.to else {
            return;
        };
        let mut sent = 0;
        let mut is_first = true;
        while is_first || sent < state.length() {
            let place = state.place(sent);
            let place = place.start..place.end.min(place.start + PIECE);
            let piece = self.flows.state_bytes(actor).get(place).unwrap_or_default();
            sent += piece.len();
            let copy = match is_first {
                true => Copy::Flow {
                    slot: actor,
                    group: header.group,
                    length: state.length() as u16,
                    facts: facts(&header, *self.flows.second_key(actor), self.now),
                    piece,
                },
                false => Copy::More(piece),
            };
            self.out.send_record(to, &Record::Copy(copy));
            self.sender.sent += 1;
            if piece.is_empty() {
                break;
            }
            is_first = false;
        }
    }

    fn send_runs(&mut self, actor: u32, header: &Header) {
        let Some(state) = self.runner.travelling(header.chain, &self.flows) else {
            return;
        };
        let mut runs = core::mem::take(&mut self.sender.runs);
        let mut at = 0;
        let own = self.runner.stages().committed(header.chain).len();
        let shared = match header.group {
            NO_GROUP => self.runner.stages().group_committed().len(),
            _ => 0,
        };
        let offset = self.flows.group_offset();
        for index in 0..own + shared {
            let range = match index.checked_sub(own) {
                None => self.runner.stages().committed(header.chain).get(index).cloned(),
                Some(index) => {
                    let range = self.runner.stages().group_committed().get(index);
                    range.map(|range| offset + range.start..offset + range.end)
                }
            };
            let Some(range) = range else {
                break;
            };
            let first = place_in_copy(range.start, &state);
            let now = self.flows.state_bytes(actor).get(range).unwrap_or_default();
            let length = now.len();
            match self.sender.before.flow.get_mut(at..at + length) {
                Some(before) => compare(before, now, first, &mut runs),
                None => self.flows.header_mut(actor).outdate_copy(),
            }
            at += length;
            self.send_full_runs(actor, false, &mut runs, PIECE);
        }
        self.send_full_runs(actor, false, &mut runs, 0);
        self.sender.runs = runs;
    }

    fn send_group_runs(&mut self, group: u32) {
        let mut runs = core::mem::take(&mut self.sender.runs);
        let mut at = 0;
        for index in 0..self.runner.stages().group_committed().len() {
            let Some(range) = self.runner.stages().group_committed().get(index).cloned() else {
                break;
            };
            let first = range.start;
            let now = self
                .flows
                .groups()
                .state_bytes(group)
                .get(range)
                .unwrap_or_default();
            let length = now.len();
            match self.sender.before.group_bytes.get_mut(at..at + length) {
                Some(before) => compare(before, now, first, &mut runs),
                None => self.sender.groups.clear(),
            }
            at += length;
            self.send_full_runs(group, true, &mut runs, PIECE);
        }
        self.send_full_runs(group, true, &mut runs, 0);
        self.sender.runs = runs;
    }

    /// Sends runs once they are longer than that.
    fn send_full_runs(&mut self, slot: u32, is_group: bool, runs: &mut Vec<u8>, longer_than: usize) {
        if runs.len() > longer_than {
            for piece in split_runs(runs) {
                self.send_copy(Copy::Runs {
                    slot,
                    is_group,
                    runs: piece,
                });
            }
            runs.clear();
        }
    }
}

/// Appends the bytes of these places.
#[inline]
fn gather(bytes: &[u8], ranges: &[Range<usize>], into: &mut Vec<u8>) {
    for range in ranges {
        into.extend_from_slice(bytes.get(range.clone()).unwrap_or_default());
    }
}

/// Appends a run for what differs, at places from `first` on, and notes the new bytes.
#[inline]
fn compare(before: &mut [u8], now: &[u8], first: usize, runs: &mut Vec<u8>) {
    if before == now {
        return;
    }
    for (index, (old, new)) in before.chunks_mut(CHUNK).zip(now.chunks(CHUNK)).enumerate() {
        let Some(from) = old.iter().zip(new).position(|(old, new)| old != new) else {
            continue;
        };
        let differs = |(old, new): (&u8, &u8)| old != new;
        let to = old.len() - old.iter().zip(new).rev().position(differs).unwrap_or(0);
        let run = &new[from..to];
        let place = (first + index * CHUNK + from) as u16;
        runs.extend_from_slice(&place.to_be_bytes());
        runs.push(run.len() as u8);
        runs.extend_from_slice(run);
        old.copy_from_slice(new);
    }
}

/// Runs in records of bounded length.
fn split_runs(runs: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = runs;
    core::iter::from_fn(move || {
        let mut length = 0;
        while let Some(run) = rest.get(length + 2) {
            let next = length + 3 + usize::from(*run);
            if next > PIECE && length > 0 {
                break;
            }
            length = next.min(rest.len());
        }
        let (piece, left) = rest.split_at(length);
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}
