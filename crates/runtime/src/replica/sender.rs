//! The primary's side: which runtime is the replica, and what it is sent besides what packets
//! change.
//!
//! ```text
//!   a replica is chosen ─► base, blocks ─► flows, some each step ─► whole: it protects this runtime
//!                             ▲  the replica is gone ─► another ─┘
//! ```
//!
//! A replica that cannot keep a record says so ([`Copy::Refused`]) and acknowledges nothing more of
//! the base: another one begins. A replica that has refused [`REFUSALS_MAX`] bases in a session is
//! none any more, until its session ends.
//!
//! Where the replica in use is there, and another is to take its place, that happens when the other
//! one has all ([`super::next`]).
//!
//! Invariant: a runtime is protected only when the record *whole* of this base is acknowledged.
//!
//! Not here: which runtime is chosen (`choosing`); changes by packets (`compare`), how records are
//! written (`records`).

use super::changes::Change;
use super::compare::{Before, NONE};
use super::next::{Former, Next};
use super::policy::{Copying, Policy, Snapshots};
use crate::flows::actor::{Header, STALE, flag};
use crate::flows::group::GroupKey;
use crate::hold::mark_of;
use crate::parts::Core;
use crate::record::{Copy, FlowHeader, NO_DEADLINE};
use crate::worker::CopyView;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use protocols::ownership::recovery::Withdrawn;

/// Flows sent in a step while a base is sent.
pub(super) const WALK: usize = 64;
/// Records of a base that are sent before the replica has acknowledged earlier ones, besides those
/// of packets. A packet of a flow that is copied waits behind them.
pub(crate) const BASE_AHEAD: u64 = 512;
/// Flows ahead of a flow whose snapshot is taken are fetched.
const AHEAD: usize = 8;
/// So many bases may a replica refuse in a session.
pub(super) const REFUSALS_MAX: u32 = 8;
/// Bases are numbered from 1 to this in a flow's header.
const BASES: u8 = 127;

/// See the module's page.
#[derive(Default)]
pub(crate) struct Sender {
    pub(super) is_wanted: bool,
    /// The replica.
    pub(super) to: Option<u16>,
    /// The ordered replica.
    pub(super) ordered: Option<u16>,
    /// By runtime: how many bases it has refused in its session.
    pub(super) refusals: BTreeMap<u16, u32>,
    /// By runtime: until when it counts as late, since it has read too little as the next replica.
    pub(super) late: BTreeMap<u16, u64>,
    /// Bases of this incarnation with lower numbers are void: packets have left since that no copy
    /// of theirs knows of.
    pub(super) least: u32,
    /// The replica that is to take its place.
    pub(super) next: Option<Box<Next>>,
    /// The replica whose place it took, until it has all.
    pub(super) former: Option<Former>,
    /// The replica in use has refused a record of this base, and the next one goes on.
    pub(super) is_refused: bool,
    /// Another is to be chosen when that one is let go.
    pub(super) is_asked: bool,
    /// How many bases were begun.
    pub(super) numbers: u32,
    /// The number of this one.
    pub(super) number: u32,
    /// The number of this one as flows have it.
    pub(super) base: u8,
    /// Records of this base.
    pub(super) sent: u64,
    /// From which of them on its keeper counts: the first; of a replica that took another's place,
    /// *whole*.
    pub(super) first: u64,
    /// The change that the records sent now are part of.
    pub(super) change: Change,
    /// The next actor that the base has not got.
    pub(super) walk: Option<u32>,
    /// Behind the last actor: the next place of a group that may rest.
    pub(super) walk_groups: u32,
    pub(super) pace: Pace,
    /// How many records *whole* was.
    pub(super) whole: Option<u64>,
    /// By group: under which base it was copied.
    pub(super) groups: Vec<u8>,
    pub(super) before: Before,
    /// Flows that came from other runtimes and are to be copied.
    pub(super) arrived: Vec<u32>,
    /// Groups that came from other runtimes, whose sources may have them ([`super::arriving`]).
    pub(super) arriving: Vec<GroupKey>,
    /// Groups, by their words, that came from other runtimes, whose sources may have them: whether
    /// each has ended here.
    pub(super) come: BTreeMap<[u64; 5], bool>,
    /// Of those, groups that have ended since the replica was told last.
    pub(super) over: Vec<GroupKey>,
    /// Records of this base up to the last group of those that it began with.
    pub(super) arriving_sent: u64,
    pub(super) unprotected: u64,
    pub(super) runs: Vec<u8>,
    /// Chains, a bit each, of which a packet took its group's state lately: that is noted before
    /// their packets.
    pub(super) taking: u64,
    /// Chains whose packets wait for copies, a bit each.
    pub(super) commits: u64,
    pub(super) copying: Copying,
    /// By chain of the configuration in force.
    pub(super) policies: Vec<Policy>,
    /// Which generation that is, and the same of the one before.
    generation: u8,
    before_change: Option<(u8, Vec<Policy>)>,
    pub(super) snapshots: Snapshots,
    /// Flows with copies of this base.
    pub(super) flows: u64,
    /// When this base began.
    pub(super) began: u64,
    /// How long it took, in nanoseconds, until all flows had copies; 0 as long as they have not.
    pub(super) took: u64,
}

/// Why a runtime does not become the replica that was ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// No copies are kept of this runtime's flows.
    NoCopies,
    /// It is not there.
    NotThere,
    /// It would fail with this one.
    SameProcess,
}

/// Flags of a flow that its copy has.
pub(super) const COPIED: u8 = !(flag::HOLDS | flag::SETTLING);

impl Sender {
    /// `is_wanted`: whether copies are to be kept of this runtime's flows.
    pub fn new(is_wanted: bool, copying: Copying) -> Self {
        Sender {
            is_wanted,
            copying,
            base: 1,
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

    /// Whether packets that are to wait for copies are dropped where there is no replica.
    pub(super) fn drops_alone(&self) -> bool {
        self.is_wanted && self.copying.drops_alone
    }

    /// The same of packets of a chain of this generation.
    pub(super) fn drops(&self, chain: (u8, u8)) -> bool {
        self.drops_alone() && self.policy_of_chain(chain) == Policy::Commit
    }

    /// Whether a packet of a chain leaves where there is no replica; it counts as unprotected then.
    pub fn leaves_alone(&mut self, chain: (u8, u8)) -> bool {
        let leaves = !self.drops(chain);
        let is_meant = self.is_wanted && self.policy_of_chain(chain) != Policy::None;
        self.unprotected += u64::from(leaves && is_meant);
        leaves
    }

    /// The replica, if it is one.
    pub fn replica(&self) -> Option<u16> {
        self.to
    }

    /// Records of this base that were sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Packets that left without a copy.
    pub fn unprotected(&self) -> u64 {
        self.unprotected
    }

    /// Bytes of notes on groups, and of runs, for tests.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.groups.capacity() + self.runs.capacity() + self.before.group_shadow.bytes()
    }

    /// Flows of which the replica has, or is about to have, copies.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// How long, in nanoseconds, all flows were without copies when this replica was chosen; 0 as
    /// long as some are.
    pub fn took(&self) -> u64 {
        self.took
    }

    /// A flow's policy of copies; of a flow that is yet to be asked whether it goes on, by the
    /// chains that it was let in by.
    #[inline]
    pub(super) fn policy_of(&self, header: &Header) -> Policy {
        self.policy_of_chain((header.generation, header.chain))
    }

    /// The same of flows of a chain of this generation.
    #[inline]
    pub(super) fn policy_of_chain(&self, (generation, chain): (u8, u8)) -> Policy {
        match &self.before_change {
            Some((before, policies))
                if *before == generation && !super::is_broken("chains are of generations") =>
            {
                self.policy_by(policies, chain)
            }
            _ => self.policy(chain),
        }
    }

    /// The policy of copies for flows of a chain of the configuration in force.
    #[inline]
    pub(super) fn policy(&self, chain: u8) -> Policy {
        self.policy_by(&self.policies, chain)
    }

    #[inline]
    fn policy_by(&self, policies: &[Policy], chain: u8) -> Policy {
        match policies.get(usize::from(chain)) {
            // Of these no other runtime has copies.
            Some(policy) if policy.is_stored() => Policy::None,
            Some(known) => *known,
            None => self.copying.policy,
        }
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
        let is_walking = self.walk.is_some() || self.next.is_some() || self.is_refused;
        !is_walking && self.arrived.is_empty() && !self.snapshots.is_due(now)
    }

    /// Another base begins.
    pub(super) fn another_base(&mut self) {
        self.base = self.base % BASES + 1;
    }

    /// The base's number as flows have it.
    #[inline(always)]
    pub(super) fn base(&self) -> u8 {
        self.base
    }

    /// A flow has come from another runtime, or was recovered.
    pub fn note_arrived(&mut self, actor: u32) {
        if self.is_on() {
            self.arrived.push(actor);
        }
    }

    /// Functions were called behind the packet that has passed.
    pub fn note_more_calls(&mut self) {
        self.before.passed = NONE;
    }

    pub(super) fn has_group(&self, group: u32) -> bool {
        self.groups.get(group as usize) == Some(&self.base())
    }

    /// The same of any base: the base before may count yet.
    pub(crate) fn had_group(&self, group: u32) -> bool {
        self.groups.get(group as usize).is_some_and(|base| *base != 0)
    }

    pub(super) fn set_group(&mut self, group: u32, base: u8) {
        let index = group as usize;
        if index >= self.groups.len() {
            self.groups.resize(index + 1, 0);
        }
        self.groups[index] = base;
    }
}

/// The facts that a copy has of a flow besides its states.
pub(crate) fn flow_header(header: &Header, second: wire::FlowKey, now: u64) -> FlowHeader {
    FlowHeader {
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

/// How far a base is ahead of its keeper. Its own records count alone: those of packets, which come
/// as fast as they do, hold no base up.
#[derive(Default)]
pub(super) struct Pace {
    /// Records of the base since it waited last.
    walked: u64,
    /// It waits until so many of all records are acknowledged.
    until: Option<u64>,
}

impl Pace {
    /// Records before and behind a part of the base.
    pub fn note(&mut self, before: u64, sent: u64) {
        self.walked += sent - before;
        if self.walked >= BASE_AHEAD {
            self.until = Some(sent);
            self.walked = 0;
        }
    }

    /// Whether it waits.
    pub fn waits(&mut self, acknowledged: u64) -> bool {
        let waits = self.until.is_some_and(|until| acknowledged < until);
        if !waits {
            self.until = None;
        }
        waits && !super::is_broken("bases are paced")
    }
}

impl Core {
    /// Another configuration is in force, or the first one.
    pub fn copy_as_configured(&mut self) {
        if !self.sender.is_wanted && self.settings.storing.is_none() {
            return;
        }
        if self.sender.copying.has_lazy {
            self.runner.stages_mut().commit_all();
        }
        self.sender.before.forget();
        if self.sender.is_on() {
            self.send_plans(false);
        }
        let current = self.runner.current_generation();
        let before = core::mem::replace(&mut self.sender.generation, current);
        if before != current && !self.sender.policies.is_empty() {
            self.sender.before_change = Some((before, self.sender.policies.clone()));
            self.gate.follow(before);
            self.store_gate.follow(before);
            self.ledger.follow(before);
        }
        let chains = self.runner.plan().chains().iter();
        let policies: Vec<_> = chains.map(|chain| chain.replication).collect();
        self.set_policies(policies.into_iter());
        let has_lazy = self.sender.copying.has_lazy && self.sender.is_wanted;
        let kept = self.sender.commits * u64::from(has_lazy);
        self.runner.keep_lazy(kept);
    }

    /// The chains' policies of copies from now on: of each, or as the settings say. Flows that lack
    /// a copy get one, and copies that are no longer wanted are void.
    #[cold]
    pub fn set_policies(&mut self, policies: impl Iterator<Item = Option<Policy>>) {
        let default = self.sender.copying.policy;
        let policies: Vec<Policy> = policies.map(|policy| policy.unwrap_or(default)).collect();
        if policies.contains(&Policy::Snapshot) {
            self.sender.snapshots.reserve(self.flows.capacity());
        }
        if self.settings.storing.is_some() {
            self.ledger.set_policies(&policies, self.runner.plan());
            self.keep_as_configured();
            self.wait_for_store_as_configured();
        }
        let is_other = policies != self.sender.policies;
        if is_other && self.sender.policies.contains(&Policy::Snapshot) {
            // A snapshot is older than its flow: changes from now on cannot be compared with it.
            (0..self.flows.used()).for_each(|actor| self.flows.header_mut(actor).outdate_copy());
        }
        let commits = policies.iter().map(|policy| *policy == Policy::Commit);
        let bits = commits
            .zip(0..64)
            .fold(0, |bits, (commits, chain)| bits | u64::from(commits) << chain);
        self.gate.set_waiting(bits);
        self.sender.commits = bits;
        self.sender.policies = policies;
        if is_other && self.sender.is_on() {
            self.begin_walk();
        }
    }

    /// The policy of copies of each chain of the configuration in force.
    pub fn policies(&self) -> &[Policy] {
        &self.sender.policies
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
        if let Some(former) = self.sender.former {
            return former.was_whole.then_some(former.to);
        }
        let is_whole = self.sender.is_whole(self.gate.acknowledged());
        self.sender.replica().filter(|_| is_whole)
    }

    /// Goes on with the base, and with flows that came or are over; answers how much was done.
    #[inline]
    pub fn go_on_copying(&mut self) -> usize {
        if !self.sender.is_on() {
            // No replica is told of ends.
            self.flows.take_ended();
            self.flows.owners.take_changes();
            return match self.flows.parting.is_empty() {
                true => 0,
                false => self.go_on_parting(),
            };
        }
        // No packet is under way: a flow that ends has no group that was looked at before.
        self.sender.before.group = NONE;
        if self.flows.has_ended() || self.flows.owners.has_changes() || !self.sender.over.is_empty() {
            self.send_ends();
        }
        let parted = match self.flows.parting.is_empty() {
            true => 0,
            false => self.go_on_parting(),
        };
        let written = self.runner.log().len();
        if self.lines.has_work(written) {
            let (sent, acknowledged) = (self.sender.sent, self.gate.acknowledged());
            self.lines.go_on(written, sent, acknowledged);
        }
        match self.sender.is_idle(self.now) {
            true => parted,
            false => parted + self.copy_some(),
        }
    }

    /// Asks the processor for flows at these places of the queue of snapshots. Where there are many
    /// flows, their last packets are long ago.
    #[inline]
    fn prefetch_snapshots(&self, places: Range<usize>) {
        let ahead = self.sender.snapshots.at(places);
        ahead.for_each(|actor| self.flows.prefetch(actor));
    }

    #[cold]
    fn copy_some(&mut self) -> usize {
        let mut count = 0;
        if self.is_next_stuck() {
            self.give_next_up();
        }
        if self.sender.is_refused && self.sender.next.is_none() {
            self.use_replica(self.sender.to);
            return 1;
        }
        self.prefetch_snapshots(0..AHEAD);
        while count < super::walk() && self.has_room_to_copy() {
            if let Some(actor) = self.sender.arrived.pop() {
                self.copy_if_needed(actor);
                count += 1;
                continue;
            }
            if let Some(actor) = self.sender.snapshots.next(self.now) {
                self.prefetch_snapshots(AHEAD - 1..AHEAD);
                self.take_snapshot(actor);
                count += 1;
                continue;
            }
            let Some(actor) = self.sender.walk else {
                if !self.walk_next() {
                    break;
                }
                count += 1;
                continue;
            };
            if self.sender.pace.waits(self.gate.acknowledged()) {
                break;
            }
            let before = self.sender.sent;
            if actor >= self.flows.used() && self.walk_groups() {
                self.sender.pace.note(before, self.sender.sent);
                count += 1;
                continue;
            }
            if actor >= self.flows.used() {
                self.sender.walk = None;
                self.send_copy(Copy::Whole);
                self.sender.whole = Some(self.sender.sent);
                break;
            }
            self.copy_if_needed(actor);
            self.sender.pace.note(before, self.sender.sent);
            self.sender.walk = Some(actor + 1);
            count += 1;
        }
        count.max(usize::from(!self.sender.is_idle(self.now)))
    }

    /// Copies groups that rest, of some places; `false` behind the last.
    fn walk_groups(&mut self) -> bool {
        let places = match self.flows.groups().resting().is_empty() {
            true => 0,
            false => self.flows.groups().places(),
        };
        let from = self.sender.walk_groups;
        for place in from..places.min(from.saturating_add(WALK as u32)) {
            self.sender.walk_groups = place + 1;
            let rests = self.flows.groups().resting().until(place).is_some();
            if rests && !self.sender.has_group(place) {
                self.copy_resting(place);
                return true;
            }
        }
        self.sender.walk_groups < places
    }

    fn has_room_to_copy(&self) -> bool {
        // Unread records of a replica that stands still hold up none that takes its place.
        let has_read = match &self.sender.next {
            Some(next) if self.sender.walk.is_none() => !self.out.has_pending(next.to, 1),
            _ => self.out.records_pending() == 0,
        };
        has_read && self.out.has_spare()
    }

    /// The state of a group is at another runtime, which decides from now on what becomes of it:
    /// its copies are void.
    pub fn withdraw_copies(&mut self, group: GroupKey, actors: &[u32], to: u16) -> Withdrawn {
        if !self.sender.is_on() {
            return Withdrawn::default();
        }
        let begins = self.begin_change();
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
        self.end_change(begins);
        match self.sender.to == Some(to) && self.sender.former.is_none() {
            // It hears of both by one link, and no other replica counts.
            true => Withdrawn::default(),
            false => Withdrawn {
                number: self.sender.number,
                count: self.sender.sent,
            },
        }
    }

    /// Whether a replica has yet to acknowledge that copies are withdrawn.
    pub fn is_awaited(&self, withdrawn: &mut Withdrawn) -> bool {
        let sender = &self.sender;
        if withdrawn.count != 0 && withdrawn.number != sender.number {
            // Of another base it is enough that its keeper counts.
            (withdrawn.number, withdrawn.count) = (sender.number, sender.first);
        }
        sender.is_on()
            && withdrawn.is_awaited(sender.number, self.gate.acknowledged())
            && !super::is_broken("withdrawals are waited for")
    }

    /// The group is this runtime's after all.
    pub fn restore_copies(&mut self, group: GroupKey, actors: &[u32]) {
        if self.sender.is_on() {
            self.send_blocks_of(group, true);
            self.sender.arrived.extend_from_slice(actors);
            if let Some(index) = self.flows.resting_at(&group) {
                self.copy_resting(index);
            }
        }
    }
}
