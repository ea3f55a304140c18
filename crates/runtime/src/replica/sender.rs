//! The primary's side: which runtime is the replica, what is sent to it, and which packets wait for that.
//!
//! ```text
//!   observe(actor): committed bytes as they are ─► chain ─► commit(actor): ends, blocks; group, flow: runs or all bytes ─► mark at the gate
//! ```
//!
//! A packet that passes is compared once: again only if functions were called behind it
//! (`Before::passed`). A group is compared only if a function has taken its state
//! (`Runner::is_group_taken`), and noted before only where a packet of the chain did so lately.
//!
//! A flow is sent whole, and its group with it, when its copy is not up to date, or when its bytes
//! were not observed before the call: a call that waited goes on. A group is sent whole when a flow
//! of it is over, which functions are told of; not if a packet's chain ends the flow, since the
//! group was observed before that chain.
//!
//! Invariant: after [`Core::commit`] the records sent so far have all committed bytes of the flow and its group.

use super::policy::{Copying, Policy, Snapshots};
use crate::flows::actor::{Header, NO_GROUP, Phase, STALE, flag};
use crate::flows::group::GroupKey;
use crate::hold::mark_of;
use crate::parts::Core;
use crate::record::{Copy, Facts, NO_DEADLINE};
use crate::worker::CopyView;
use alloc::vec::Vec;
use wire::PacketBox;

/// Flows sent in a step while a base is sent.
const WALK: usize = 64;
/// Bases are numbered from 1 to this in a flow's header.
const BASES: u32 = 127;

/// What a flow's state was before its packet's chain.
#[derive(Default)]
pub(super) struct Before {
    /// Whose, if any.
    pub(super) actor: Option<u32>,
    /// Its committed bytes ([`super::shadow`]).
    pub(super) flow: Vec<u64>,
    pub(super) answered: bool,
    pub(super) flags: u8,
    /// Its group, if that has a copy: calls are watched since for whether they take its state.
    pub(super) group: Option<u32>,
    /// Whether the group's committed bytes were noted, too.
    pub(super) is_group_noted: bool,
    /// The bytes of that group, or of a flow that is its own.
    pub(super) group_words: Vec<u64>,
    /// A packet of this flow has left, what it changed is sent, and no function was called since.
    pub(super) passed: Option<u32>,
    /// A flow that begins: its group was looked at before functions were told.
    pub(super) begins: Option<u32>,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct Sender {
    pub(super) is_wanted: bool,
    /// The replica.
    pub(super) to: Option<u16>,
    /// How many bases were begun.
    pub(super) number: u32,
    /// Records of this base.
    pub(super) sent: u64,
    /// The next actor that the base has not got.
    pub(super) walk: Option<u32>,
    /// How many records *whole* was.
    pub(super) whole: Option<u64>,
    /// By group: under which base it was copied.
    pub(super) groups: Vec<u8>,
    pub(super) before: Before,
    /// Flows that came from other runtimes and are to be copied.
    pub(super) arrived: Vec<u32>,
    pub(super) unprotected: u64,
    pub(super) runs: Vec<u8>,
    /// Chains, a bit each, of which a packet took its group's state lately: that is noted before their packets.
    pub(super) taking: u64,
    pub(super) copying: Copying,
    /// By chain of the configuration in force.
    pub(super) policies: Vec<Policy>,
    pub(super) snapshots: Snapshots,
    /// Flows with copies of this base.
    pub(super) flows: u64,
    /// When this base began.
    pub(super) began: u64,
    /// How long it took, in nanoseconds, until all flows had copies; 0 as long as they have not.
    pub(super) took: u64,
}

/// Flags of a flow that its copy has.
const COPIED: u8 = !(flag::HOLDS | flag::SETTLING);

impl Sender {
    /// `is_wanted`: whether copies are to be kept of this runtime's flows.
    pub fn new(is_wanted: bool, copying: Copying) -> Self {
        Sender {
            is_wanted,
            copying,
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

    /// Flows of which the replica has, or is about to have, copies.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// How long, in nanoseconds, all flows were without copies when this replica was chosen; 0 as long as some are.
    pub fn took(&self) -> u64 {
        self.took
    }

    #[inline]
    pub(super) fn policy(&self, chain: u8) -> Policy {
        self.policies
            .get(usize::from(chain))
            .copied()
            .unwrap_or(self.copying.policy)
    }

    /// The copy that a flow had, by its header, is void.
    pub(super) fn forget(&mut self, copied: u8) {
        self.flows -= u64::from(copied & !STALE == self.base() && self.flows > 0);
    }

    /// Whether all flows have copies, with so many records acknowledged.
    pub fn is_whole(&self, acknowledged: u64) -> bool {
        self.whole.is_some_and(|whole| whole <= acknowledged)
    }

    /// Whether it has anything to do besides packets.
    #[inline]
    fn is_idle(&self, now: u64) -> bool {
        self.walk.is_none() && self.arrived.is_empty() && !self.snapshots.is_due(now)
    }

    /// The base's number as flows have it.
    #[inline(always)]
    pub(super) fn base(&self) -> u8 {
        (self.number % BASES + 1) as u8
    }

    /// A flow has come from another runtime, or was recovered.
    pub fn note_arrived(&mut self, actor: u32) {
        if self.is_on() {
            self.arrived.push(actor);
        }
    }

    /// Functions were called behind the packet that has passed.
    pub fn note_more_calls(&mut self) {
        self.before.passed = None;
    }

    pub(super) fn has_group(&self, group: u32) -> bool {
        self.groups.get(group as usize) == Some(&self.base())
    }

    pub(super) fn set_group(&mut self, group: u32, base: u8) {
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

impl Core {
    // The replica.

    /// Chooses a replica if none is in use: of the runtimes that are there one that takes flows, of these the farthest, of these the next.
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
        let ranks = &self.settings.replica_ranks;
        let rank = |other: u16| match ranks.is_empty() {
            true => Some(0),
            false => ranks.get(usize::from(other)).copied().flatten(),
        };
        let there = others.filter(|other| self.sessions.has_runtime(*other));
        let ranked =
            there.filter_map(|other| Some((self.sessions.is_runtime_leaving(other), rank(other)?, other)));
        // The first of equals.
        let chosen = ranked.min_by_key(|(is_leaving, rank, _)| (*is_leaving, *rank));
        let chosen = chosen.map(|(.., other)| other);
        if has_one && chosen == self.sender.to {
            return;
        }
        if has_one {
            self.send_copy(self.no_base());
        }
        self.use_replica(chosen);
    }

    /// Another configuration is in force, or the first one.
    pub fn copy_as_configured(&mut self) {
        if !self.sender.is_wanted {
            return;
        }
        if self.sender.copying.has_lazy {
            self.runner.stages_mut().commit_all();
        }
        (self.sender.before.actor, self.sender.before.group) = (None, None);
        let chains = self.runner.plan().chains().iter();
        let policies: Vec<_> = chains.map(|chain| chain.replication).collect();
        self.set_policies(policies.into_iter());
    }

    /// What is copied of the chains' flows from now on: of each, or as the settings say. Flows that lack a copy get one, and
    /// copies that are no longer wanted are void.
    #[cold]
    pub fn set_policies(&mut self, policies: impl Iterator<Item = Option<Policy>>) {
        let default = self.sender.copying.policy;
        let policies: Vec<Policy> = policies.map(|policy| policy.unwrap_or(default)).collect();
        if policies.contains(&Policy::Snapshot) {
            self.sender.snapshots.reserve(self.flows.capacity());
        }
        let is_other = policies != self.sender.policies;
        if is_other && self.sender.policies.contains(&Policy::Snapshot) {
            // A snapshot is older than its flow: what changes from now on cannot be compared with it.
            (0..self.flows.used()).for_each(|actor| self.flows.header_mut(actor).outdate_copy());
        }
        let commits = policies.iter().map(|policy| *policy == Policy::Commit);
        let bits = commits
            .zip(0..64)
            .fold(0, |bits, (commits, chain)| bits | u64::from(commits) << chain);
        self.gate.set_waiting(bits);
        self.sender.policies = policies;
        if is_other && self.sender.is_on() {
            self.begin_walk();
        }
    }

    /// What is copied of the flows of each chain of the configuration in force.
    pub fn policies(&self) -> &[Policy] {
        &self.sender.policies
    }

    fn mark_sent(&mut self, actor: u32) {
        let index = mark_of(self.flows.header(actor), actor);
        self.gate.mark(index, self.sender.sent);
    }

    fn begin_walk(&mut self) {
        self.sender.walk = Some(0);
        self.sender.whole = None;
        self.sender.began = self.now;
        self.sender.took = 0;
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
        (self.sender.flows, self.sender.took) = (0, 0);
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
            life: self.life(),
        };
        self.sender.to = Some(to);
        self.send_copy(base);
        self.begin_walk();
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
        let waiting_at_gate = self.gate.begin();
        self.gate.note_sent(self.sender.sent);
        // First packets that wait for switches come behind their copies, too.
        for actor in self.hold.actors() {
            self.commit(actor);
            self.mark_sent(actor);
        }
        for waiting in waiting_at_gate {
            // What it depends on is in this base; its flow may be over, and then what is left of that is.
            if waiting.actor as usize >= self.flows.capacity() {
                self.gate.pass_behind_all(waiting.packet, &mut self.out);
                continue;
            }
            self.commit(waiting.actor);
            self.mark_sent(waiting.actor);
            let header = self.flows.header(waiting.actor);
            self.gate
                .pass(waiting.actor, header, waiting.packet, &mut self.out);
        }
    }

    /// The runtime ends: nothing waits for copies any more.
    pub fn close_copies(&mut self) {
        self.sender.is_wanted = false;
        if self.sender.is_on() {
            // No flow of this runtime goes on elsewhere.
            self.send_copy(self.no_base());
        }
        self.use_replica(None);
    }

    /// The copy of a flow.
    pub fn copy_of(&self, actor: u32) -> Option<CopyView> {
        let header = self.flows.header(actor);
        let replica = self.sender.replica()?;
        Some(CopyView {
            replica,
            is_there: header.copied & !STALE == self.sender.base(),
            behind: self.gate.behind(mark_of(header, actor)),
        })
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
        if self.sender.took == 0 && self.sender.is_whole(count) {
            self.sender.took = self.now.saturating_sub(self.sender.began).max(1);
        }
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
        // No packet is under way: what ends has no group that was looked at before.
        self.sender.before.group = None;
        if self.flows.has_ended() || self.flows.owners.has_changes() {
            self.send_ends();
        }
        match self.sender.is_idle(self.now) {
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
            if let Some(actor) = self.sender.snapshots.next(self.now) {
                self.take_snapshot(actor);
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
        count.max(usize::from(!self.sender.is_idle(self.now)))
    }

    fn is_to_be_judged(&self, actor: u32) -> bool {
        self.flows.header(actor).phase != Phase::Free && self.runner.is_of_before(actor, &self.flows)
    }

    fn has_room_to_copy(&self) -> bool {
        self.out.records_pending() == 0 && self.out.has_spare()
    }

    fn copy_if_needed(&mut self, actor: u32) {
        if self.is_to_be_judged(actor) {
            // Its chain is one of the configuration before; it comes again when it has been asked.
            return;
        }
        let header = self.flows.header(actor);
        // A flow on its way from here is the target's soon; one that settles is sent when it has.
        let is_here = matches!(header.phase, Phase::Active | Phase::Waiting) && !is_unsettled(header);
        let has_policy = self.sender.policy(header.chain) != Policy::None;
        if is_here && (header.copied != self.sender.base() || !has_policy) {
            self.commit(actor);
        }
    }

    /// The state of a group is at another runtime, which decides from now on what becomes of it: its copies are void.
    pub fn withdraw_copies(&mut self, group: GroupKey, actors: &[u32]) {
        if !self.sender.is_on() {
            return;
        }
        for actor in actors {
            self.withdraw_copy(*actor);
        }
        if let Some(slot) = self.flows.groups().at(group)
            && self.sender.has_group(slot)
        {
            self.sender.set_group(slot, 0);
            self.send_copy(Copy::End { slot, is_group: true });
        }
        self.send_blocks_of(group, false);
    }

    fn withdraw_copy(&mut self, actor: u32) {
        let copied = core::mem::take(&mut self.flows.header_mut(actor).copied);
        if copied != 0 {
            self.sender.forget(copied);
            self.send_copy(Copy::End {
                slot: actor,
                is_group: false,
            });
        }
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
            if self.sender.is_wanted {
                self.count_unprotected(actor);
            }
            self.out.pass(packet);
        }
    }

    #[cold]
    fn count_unprotected(&mut self, actor: u32) {
        let chain = self.flows.header(actor).chain;
        self.sender.unprotected += u64::from(self.sender.policy(chain) != Policy::None);
    }

    #[inline(never)]
    fn pass_committed(&mut self, actor: u32, packet: PacketBox) {
        self.commit(actor);
        self.sender.before.passed = Some(actor);
        let header = self.flows.header(actor);
        self.gate.pass(actor, header, packet, &mut self.out);
    }

    /// Notes the committed bytes of a flow before a packet's chain runs, and watches for its group.
    #[inline]
    pub fn observe(&mut self, actor: u32) {
        let before = &mut self.sender.before;
        (before.actor, before.passed) = (None, None);
        let has_begun = before.begins.take() == Some(actor);
        if !has_begun {
            before.group = None;
        }
        if self.flows.has_ended() {
            self.send_ends();
        }
        let header = self.flows.header(actor);
        let (chain, group) = (header.chain, header.group);
        let is_copied = header.copied == self.sender.base();
        let commits = self.sender.policy(chain) == Policy::Commit;
        if is_copied && commits {
            self.observe_flow(actor);
        }
        // With a flow that lacks a copy, its group is sent whole.
        if !has_begun && (is_copied || !commits) && group != NO_GROUP && self.sender.has_group(group) {
            self.watch_group(group, chain);
        }
    }

    #[inline]
    fn observe_flow(&mut self, actor: u32) {
        let header = self.flows.header(actor);
        let before = &mut self.sender.before;
        before.actor = Some(actor);
        (before.answered, before.flags) = (header.answered, header.flags & COPIED);
        let (stages, state) = (self.runner.stages(), self.flows.state_bytes(actor));
        if let Some(shape) = stages.committed(header.chain) {
            shape.note(state, &mut before.flow);
        }
        if header.group == NO_GROUP && !stages.group_committed().is_empty() {
            let group = state.get(self.flows.group_offset()..).unwrap_or_default();
            stages.group_committed().note(group, &mut before.group_words);
        }
    }

    /// From now on it is known whether a function takes a group's state. That is noted if packets of
    /// the chain took it lately; if not, and one does, it is sent whole.
    #[inline]
    fn watch_group(&mut self, group: u32, chain: u8) {
        let taking = 1 << (chain % 64);
        if self.sender.taking & taking != 0 {
            self.sender.taking &= !taking;
            return self.observe_group(group);
        }
        self.runner.watch_groups();
        self.sender.before.group = Some(group);
        self.sender.before.is_group_noted = false;
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
        self.sender.before.group = None;
        if self.flows.has_ended() {
            self.send_ends();
        }
        self.sender.before.begins = Some(actor);
        let group = self.flows.header(actor).group;
        if group != NO_GROUP && self.sender.has_group(group) {
            self.observe_group(group);
        }
    }

    /// A call that waited goes on: its changes were not observed. Answers its flow's group.
    pub fn observe_woken(&mut self, actor: u32) -> u32 {
        self.sender.before.group = None;
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
        self.sender.before.group = None;
        if self.flows.has_ended() {
            self.send_ends();
        }
        let is_observed = self.sender.before.actor.take() == Some(actor);
        let header = *self.flows.header(actor);
        if is_observed && header.phase == Phase::Active {
            // What a later packet of the same call changed goes with all bytes.
            self.flows.header_mut(actor).outdate_copy();
        }
        if self.is_to_be_sent(actor) {
            self.commit(actor);
            return;
        }
        let is_sent = header.phase == Phase::Active && self.sender.policy(header.chain) != Policy::None;
        if !is_sent && self.sender.has_group(group) {
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
        is_here && !is_unsettled(header) && self.sender.policy(header.chain) != Policy::None
    }

    /// Notes a group's committed bytes.
    fn observe_group(&mut self, group: u32) {
        self.runner.watch_groups();
        let before = &mut self.sender.before;
        (before.group, before.is_group_noted) = (Some(group), true);
        let state = self.flows.groups().state_bytes(group);
        let shape = self.runner.stages().group_committed();
        shape.note(state, &mut before.group_words);
    }

    /// Behind a packet's chain, whatever became of the packet: what it changed is sent.
    #[inline]
    pub fn commit_after(&mut self, actor: u32) {
        let header = self.flows.header(actor);
        if header.phase == Phase::Active && self.sender.policy(header.chain) == Policy::Snapshot {
            self.note_for_snapshot(actor);
        }
        // What has passed is sent, and no function was called since.
        if self.sender.before.passed != Some(actor) || self.flows.has_ended() {
            self.commit_rest(actor);
        }
        let before = &mut self.sender.before;
        (before.actor, before.group) = (None, None);
    }

    /// The same where the packet did not pass, or more was done behind it.
    #[inline(never)]
    fn commit_rest(&mut self, actor: u32) {
        let group = self.sender.before.group;
        let header = self.flows.header(actor);
        let chain = header.chain;
        let is_observed = header.phase == Phase::Active && self.sender.before.actor == Some(actor);
        if is_observed || self.is_to_be_sent(actor) {
            self.commit(actor);
        } else if let Some(group) = group {
            if self.flows.has_ended() {
                self.send_ends();
            }
            if self.sender.has_group(group) {
                self.commit_group(group, chain, Policy::None);
                self.gate.mark(group, self.sender.sent);
            }
        }
    }

    /// Sends what the copies of a flow and its group lack.
    #[inline]
    pub fn commit(&mut self, actor: u32) {
        if super::is_broken("state is copied") && self.sender.sent > 20 {
            return;
        }
        if self.flows.has_ended() || self.flows.owners.has_changes() {
            self.send_ends();
        }
        if !self.lacks_nothing(actor) {
            self.commit_changes(actor);
        }
    }

    /// Whether the copies of a flow and its group are as they are, as far as that is seen at a glance.
    #[inline]
    fn lacks_nothing(&self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        let policy = self.sender.policy(header.chain);
        let before = &self.sender.before;
        let is_group_known = match header.group {
            NO_GROUP => true,
            group if before.group == Some(group) => !self.runner.is_group_taken(),
            group => policy != Policy::Commit && !self.sender.has_group(group),
        };
        let is_flow_known = || match policy {
            Policy::None => header.copied == 0,
            Policy::Snapshot => header.copied == self.sender.base(),
            Policy::Commit => {
                let is_noted = header.copied == self.sender.base() && before.actor == Some(actor);
                is_noted && self.is_as_before(header) && !self.differs(actor, header)
            }
        };
        is_group_known && is_flow_known()
    }

    #[inline]
    fn differs(&self, actor: u32, header: &Header) -> bool {
        let (stages, before) = (self.runner.stages(), &self.sender.before);
        let state = self.flows.state_bytes(actor);
        let shared = stages.group_committed();
        let shape = stages.committed(header.chain);
        if header.group == NO_GROUP && !shared.is_empty() {
            let group = state.get(self.flows.group_offset()..).unwrap_or_default();
            if shared.differs(group, &before.group_words) {
                return true;
            }
        }
        shape.is_none_or(|shape| shape.differs(state, &before.flow))
    }

    #[inline(never)]
    fn commit_changes(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        if header.phase == Phase::Free || header.phase == Phase::Arriving {
            return;
        }
        let sent = self.sender.sent;
        let policy = self.sender.policy(header.chain);
        if header.group != NO_GROUP {
            self.commit_group(header.group, header.chain, policy);
        }
        if policy == Policy::Commit {
            self.commit_flow(actor, &header);
        }
        if self.sender.sent != sent {
            let index = mark_of(self.flows.header(actor), actor);
            self.gate.mark(index, self.sender.sent);
        }
        match policy {
            Policy::Commit => {}
            Policy::Snapshot if header.copied == self.sender.base() => {}
            Policy::Snapshot => self.take_snapshot(actor),
            Policy::None => self.withdraw_copy(actor),
        }
    }

    /// Sends what the copy of a group lacks, as far as it is to have one.
    fn commit_group(&mut self, group: u32, chain: u8, policy: Policy) {
        let has_copy = self.sender.has_group(group);
        let is_watched = self.sender.before.group == Some(group);
        let is_noted = is_watched && self.sender.before.is_group_noted;
        if has_copy && is_watched {
            if !self.runner.is_group_taken() {
                return;
            }
            self.sender.taking |= 1 << (chain % 64);
        }
        if has_copy && is_noted {
            self.send_group_runs(group);
        } else if has_copy || policy == Policy::Commit {
            self.send_group(group);
            self.observe_group(group);
        }
    }

    /// Sends what the copy of a flow lacks.
    fn commit_flow(&mut self, actor: u32, header: &Header) {
        let base = self.sender.base();
        if header.copied == base && self.sender.before.actor == Some(actor) && self.is_as_before(header) {
            self.send_runs(actor, header);
        } else {
            self.send_flow(actor);
            // A later packet of the same call is compared with what was sent.
            self.observe_flow(actor);
        }
    }

    // Snapshots.

    /// A packet of a flow has run its chain.
    #[inline(never)]
    fn note_for_snapshot(&mut self, actor: u32) {
        if self.flows.header(actor).copied != self.sender.base() {
            // A flow has its first snapshot when its first packet passes.
            return;
        }
        let (now, copying) = (self.now, self.sender.copying);
        if self.sender.snapshots.note(actor, now, &copying) {
            self.take_snapshot(actor);
        }
    }

    #[cold]
    fn take_snapshot(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        let is_here = matches!(header.phase, Phase::Active | Phase::Waiting) && !self.is_to_be_judged(actor);
        if !is_here || self.sender.policy(header.chain) != Policy::Snapshot {
            return;
        }
        if header.group != NO_GROUP && !self.sender.has_group(header.group) {
            self.send_group(header.group);
            self.gate.mark(header.group, self.sender.sent);
        }
        self.send_flow(actor);
        self.sender.snapshots.taken(actor);
    }

    fn is_as_before(&self, header: &Header) -> bool {
        let before = &self.sender.before;
        (before.answered, before.flags) == (header.answered, header.flags & COPIED)
    }
}

/// Whether a flow's first packet is yet to settle it, by which it is sent. One that waits for
/// switches has settled its flow, and the flow has a copy.
fn is_unsettled(header: &Header) -> bool {
    header.flags & flag::SETTLING != 0 && header.copied == 0
}
