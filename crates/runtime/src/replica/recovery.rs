//! Flows of a runtime that failed go on here.
//!
//! ```text
//!   copies ─► Heir of every switch that is there ─► blocks claimed ─► flows, some each step: group, bytes checked, arrived(Recovered), Routed
//!          ─► Recovered, behind all that ─► copies are forgotten
//! ```
//!
//! Installed flows are announced as a runtime announces new ones: switches have suspended the
//! routes of the failed runtime and turn each that is announced. A group is announced behind the
//! last of its flows: until then its packets wait at the switches. Groups that rest
//! ([`crate::flows::resting`]) come behind all flows.
//!
//! A flow's keys and its functions' entries lie anywhere in tables. So each flow is *staged* first:
//! it gets an actor, a group and its bytes, and the lines that its arrival needs are fetched. It
//! arrives when [`AHEAD`] others have been staged behind it. No flow is staged at the end of a
//! step.
//!
//! A copy may be of another configuration than the one in force ([`super::generations`]): its flow
//! goes on by the chain that follows its own, and is asked as it arrives. Flows that may not go on
//! end behind all flows of the recovery.
//!
//! A group may begin here by itself behind the claims: a switch that has come since leads it here.
//! It has none of the blocks that were claimed for it ([`Core::disclaim`]), and its copy is lost,
//! even if it ends before that has its turn: others may get these blocks.
//!
//! Invariants: a copy is installed once, or counted as lost; a copied group that has blocks is
//! installed only while the last of them is claimed for it; nothing is installed before every
//! switch that is there, and one at least, has let the failed runtime go; bytes that are no states
//! of their functions end there (`recovered[1]`).

use super::generations::SuccessorChains;
use super::keeper::{Copies, FlowCopy, GroupCopy, Keeper};
use crate::flows::actor::{Change, NO_GROUP, Phase, flag};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::parts::Core;
use crate::record::{FlowHeader, NO_DEADLINE};
use crate::runner::change::ASKED;
use crate::stats::{RECOVERED, RecoveryReceipt};
use crate::watch::flows::Change as Flow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use nf::{Affinity, Arrival};
use protocols::ownership::recovery::{Report, may_begin};
use protocols::ownership::{RuntimeId, Switches};
use wire::{FlowKey, planted};

/// Flows installed in a step: packets of flows that go on wait behind them.
const INSTALLS: usize = 128;
/// Slots looked at in a step; most may be empty.
const LOOKED: u32 = 4096;
/// How many flows are staged ahead of the flow that arrives; how many ahead of these the lines of
/// their keys are fetched, and how many ahead of those the copies themselves.
const AHEAD: usize = 16;
/// Receipts of recoveries that are kept.
const RECEIPTS: usize = 8;
/// How long, in nanoseconds, no group begins to move from here, at most.
const STILL: u64 = 2_000_000_000;
/// How long, in nanoseconds, switches are waited for.
pub(crate) const PATIENCE: u64 = 30_000_000_000;

/// A runtime whose flows are to go on here.
pub(crate) struct Recovery {
    pub failed: u16,
    copies: Copies,
    /// When it is given up, if switches do not let it go; a recovery that has begun, too, as far as
    /// it has not come: a switch that comes meanwhile is waited for.
    until: u64,
    began: u64,
    /// When all switches had let it go; `None` before.
    ready: Option<u64>,
    /// Flows that were installed, and that could not be.
    flows: [u64; 2],
    /// Which switches have let it go.
    let_go: Switches,
    /// The next slot; `None` before the blocks are claimed.
    next: Option<u32>,
    /// By slot of a group: one more than its place here; 0 for none.
    groups: Vec<u32>,
    /// By slot of a group: flows of it whose turn has not come.
    left: Vec<u32>,
    /// By slot of a flow, of the last flows that were fetched: hashes of its keys.
    hashes: [[u64; 2]; 2 * AHEAD],
    /// Empty between steps.
    staged: VecDeque<Staging>,
    /// By which chains flows go on.
    successor_chains: SuccessorChains,
}

/// A flow that is staged.
struct Staging {
    slot: u32,
    actor: u32,
    /// Of its keys.
    hashes: [u64; 2],
    /// Whether another configuration let it in, or may have.
    is_of_before: bool,
    /// Of a copy of another runtime's flow: the time in it is none of its state. This runtime's
    /// entry in a store has the time that was left when it was written.
    lives_by_state: bool,
}

impl Recovery {
    pub fn new(failed: u16, copies: Copies, now: u64) -> Self {
        Recovery {
            failed,
            copies,
            until: now.saturating_add(PATIENCE),
            began: now,
            ready: None,
            flows: [0, 0],
            let_go: Switches::NONE,
            next: None,
            groups: Vec::new(),
            left: Vec::new(),
            hashes: [[0; 2]; 2 * AHEAD],
            staged: VecDeque::with_capacity(AHEAD),
            successor_chains: SuccessorChains::default(),
        }
    }

    /// The hashes of a slot's flow, which was fetched not long ago.
    fn hashes_of(&self, slot: usize) -> [u64; 2] {
        self.hashes.get(slot % (2 * AHEAD)).copied().unwrap_or_default()
    }

    /// Fetches what staging a slot's flow looks at, and what its arrival looks at first.
    fn fetch(&mut self, core: &Core, slot: usize) {
        let copies = &self.copies;
        copies.flows.prefetch(slot + AHEAD);
        let Some(copy) = copies.flows.get(slot as u32) else {
            return;
        };
        let flow_header = copies.flow_header(slot as u32, copy);
        let [first, second] = [&flow_header.key, &flow_header.second].map(|key| core.flows.hash(key));
        core.flows.prefetch_key(first);
        if flow_header.flags & flag::REPLY_KEY != 0 {
            core.flows.prefetch_key(second);
        }
        core.flows.prefetch_free_ahead(AHEAD);
        if let Some(place) = self.hashes.get_mut(slot % (2 * AHEAD)) {
            *place = [first, second];
        }
    }

    /// Whether it has not begun, and the configuration of some of the copies is prepared here.
    fn waits_for_change(&self, core: &Core) -> bool {
        let (now, prepared) = (core.runner.identity(), core.runner.identity_prepared());
        let is_other = |prepared: &u64| *prepared != now;
        let prepared = prepared.filter(is_other);
        let is_known = prepared.is_some_and(|prepared| self.copies.generations.has(prepared));
        is_known && self.next.is_none() && core.now < self.until
    }

    /// Whether it is of this incarnation of its runtime, and has not begun.
    pub fn is_of_incarnation(&self, incarnation: u64) -> bool {
        self.next.is_none() && self.copies.incarnation == incarnation
    }
}

impl Keeper {
    /// A switch has let an incarnation of a runtime go, whose flows are to go on here.
    pub fn note_heir(&mut self, switch: usize, failed: RuntimeId, incarnation: u64) {
        // The switch may have told late of a recovery that is over, or of an incarnation before.
        let is_it = |recovery: &&mut Recovery| {
            recovery.failed == failed.0 && recovery.copies.incarnation == incarnation
        };
        if let Some(recovery) = self.recoveries.iter_mut().find(is_it) {
            recovery.let_go = recovery.let_go.with(switch as u8);
        }
    }

    /// A switch waits no longer for a recovery here: that begins now, by the configuration in
    /// force, or not at all. Until it hears which, nothing of it begins elsewhere.
    #[cold]
    pub fn note_late(&mut self, core: &mut Core, switch: usize, failed: RuntimeId, incarnation: u64) {
        let is_it = |recovery: &&mut Recovery| {
            recovery.failed == failed.0 && recovery.copies.incarnation == incarnation
        };
        match self.recoveries.iter_mut().find(is_it) {
            Some(recovery) => recovery.until = core.now,
            // It is over, or its runtime was met again.
            None => core.out.send(switch, &Message::Keeps(failed, 0, incarnation)),
        }
    }

    /// Another switch is at the end of a link: it is told which copies wait for it, of which
    /// runtimes that are not here there are none, and which incarnations are here.
    pub fn switch_came(&mut self, core: &mut Core, switch: usize) {
        if core.sender.is_wanted() {
            for (runtime, copies) in (0..).zip(&self.primaries) {
                let mut recoveries = self.recoveries.iter();
                let has_any = copies.is_some() || recoveries.any(|recovery| recovery.failed == runtime);
                let is_other = runtime != core.settings.info.runtime;
                if is_other && !has_any && !core.sessions.has_runtime(runtime) {
                    let none = Message::Keeps(RuntimeId(runtime), 0, Report::OF_NONE);
                    core.out.send(switch, &none);
                }
                let incarnation = self.incarnations.get(usize::from(runtime)).copied();
                if let Some(incarnation) = incarnation.filter(|incarnation| *incarnation != 0) {
                    let later = Message::Keeps(RuntimeId(runtime), Report::LATER, incarnation);
                    core.out.send(switch, &later);
                }
            }
        }
        for recovery in &mut self.recoveries {
            recovery.let_go = recovery.let_go.without(switch as u8);
            let copies = &recovery.copies;
            let keeps = Message::Keeps(RuntimeId(recovery.failed), copies.number, copies.incarnation);
            core.out.send(switch, &keeps);
        }
        for (runtime, incarnation) in self.mates() {
            core.out.send(switch, &Message::Meets(runtime, incarnation));
        }
    }

    /// Whether there is anything to recover.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.recoveries.is_empty() || !self.cut.is_empty()
    }

    /// Goes on with recoveries; answers how many flows were installed.
    #[cold]
    pub fn go_on(&mut self, core: &mut Core) -> usize {
        let mut count = 0;
        let mut left = Vec::new();
        for mut recovery in core::mem::take(&mut self.recoveries) {
            let switches = (0..core.settings.switches).filter(|switch| is_awaited(core, *switch));
            let awaited = switches.fold(Switches::NONE, Switches::with);
            let is_ready = may_begin(recovery.let_go, awaited)
                || recovery.let_go == Switches::NONE
                    && awaited.is_empty()
                    && planted::is("heir_without_word");
            if is_ready && recovery.waits_for_change(core) {
                // The step is no idle one: the prepared change is decided soon.
            } else if is_ready {
                count += self.install_some(core, &mut recovery);
            } else if recovery.until <= core.now {
                let none = Message::Keeps(RuntimeId(recovery.failed), 0, recovery.copies.incarnation);
                match recovery.next {
                    None => self.recovered[1] += recovery.copies.flows.used as u64,
                    // A switch has come since it began, and does not let the runtime go.
                    Some(_) if super::is_broken("what has begun is given up") => {
                        left.push(recovery);
                        continue;
                    }
                    Some(next) => self.end_early(core, &mut recovery, next),
                }
                // Switches that wait for it go on without.
                core.out.announce(none);
                continue;
            }
            if recovery
                .next
                .is_some_and(|next| next as usize >= slots(core, &recovery.copies))
            {
                self.end_recovery(core, &recovery);
            } else {
                left.push(recovery);
            }
        }
        self.recoveries = left;
        core.still_until = still_until(&self.recoveries);
        if self.recoveries.iter().all(|recovery| recovery.next.is_none()) {
            count += end_cut(core, &mut self.cut);
        }
        if !self.cut.is_empty() {
            // Flows that are to end do not go on elsewhere.
            core.still_until = core.now.saturating_add(STILL);
        }
        count
    }

    /// Installs all copies that a store had of this runtime's own flows, before its first step.
    pub fn install_all(&mut self, core: &mut Core, copies: Copies) {
        let is_empty = copies.flows.records.is_empty() && copies.groups.records.is_empty();
        let end = slots(core, &copies);
        let mut recovery = Recovery::new(core.settings.info.runtime, copies, core.now);
        while recovery.next.is_none_or(|next| (next as usize) < end) {
            self.install_some(core, &mut recovery);
        }
        if !is_empty {
            self.end_recovery(core, &recovery);
        }
    }

    fn install_some(&mut self, core: &mut Core, recovery: &mut Recovery) -> usize {
        let mut count = 0;
        recovery.ready.get_or_insert(core.now);
        let Some(mut next) = recovery.next else {
            begin(core, recovery);
            return 1;
        };
        // The configuration may have changed between two steps.
        let identity = core.runner.identity();
        if !recovery.successor_chains.is_by(identity) {
            recovery.successor_chains = recovery
                .copies
                .generations
                .successor_chains(core.runner.plan(), identity);
        }
        let flows = recovery.copies.flows.records.len();
        let end = slots(core, &recovery.copies);
        let until = next.saturating_add(LOOKED);
        while count < INSTALLS && next < until && core.out.has_room() && (next as usize) < end {
            if let Some(slot) = (next as usize).checked_sub(flows) {
                self.all_arrive(core, recovery);
                count += 1;
                let copies = &recovery.copies;
                self.groups_recovered += u64::from(install_resting(core, copies, slot as u32));
            } else {
                recovery.fetch(core, next as usize + AHEAD);
                count += usize::from(self.stage_next(core, recovery, next));
            }
            next += 1;
        }
        self.all_arrive(core, recovery);
        recovery.next = Some(next);
        count.max(1)
    }

    /// Stages the flow of a slot, and has the longest staged flow arrive; whether there is a copy.
    fn stage_next(&mut self, core: &mut Core, recovery: &mut Recovery, slot: u32) -> bool {
        let hashes = recovery.hashes_of(slot as usize);
        let (copies, groups) = (&recovery.copies, &mut recovery.groups);
        let Some(copy) = copies.flows.get(slot) else {
            return false;
        };
        let Some((chain, is_of_before)) = recovery.successor_chains.of(copy.generation, copy.chain) else {
            self.count(core, recovery, slot, false);
            return true;
        };
        let is_from_store = recovery.failed == core.settings.info.runtime;
        match stage(core, groups, copies, slot, (copy, chain), hashes) {
            Staged::As(actor) => recovery.staged.push_back(Staging {
                slot,
                actor,
                hashes,
                // A store does not say under which settings a flow was opened: its functions are
                // asked.
                is_of_before: is_of_before || is_from_store && !super::is_broken("restored flows are asked"),
                lives_by_state: !is_from_store,
            }),
            Staged::Here => self.count(core, recovery, slot, true),
            Staged::Lost => self.count(core, recovery, slot, false),
        }
        if recovery.staged.len() == AHEAD
            && let Some(staged) = recovery.staged.pop_front()
        {
            let is_there = arrive(core, &staged, &mut self.cut);
            self.count(core, recovery, staged.slot, is_there);
        }
        true
    }

    fn all_arrive(&mut self, core: &mut Core, recovery: &mut Recovery) {
        while let Some(staged) = recovery.staged.pop_front() {
            let is_there = arrive(core, &staged, &mut self.cut);
            self.count(core, recovery, staged.slot, is_there);
        }
    }

    /// The turn of a slot's flow has come: it goes on, or is lost.
    fn count(&mut self, core: &mut Core, recovery: &mut Recovery, slot: u32, is_there: bool) {
        self.recovered[usize::from(!is_there)] += 1;
        recovery.flows[usize::from(!is_there)] += 1;
        announce_if_whole(core, recovery, slot);
    }

    /// A runtime has failed. If it has before, and there are copies of its next incarnation, no
    /// older copy is installed any more: older copies that were not are lost. Groups of which some
    /// flows are here go on with these.
    pub fn cut_off(&mut self, core: &mut Core, failed: u16) {
        let copies = self.primaries.get(usize::from(failed));
        if copies.is_none_or(Option::is_none) {
            return;
        }
        let (cut, left): (Vec<_>, Vec<_>) = core::mem::take(&mut self.recoveries)
            .into_iter()
            .partition(|recovery| recovery.failed == failed);
        self.recoveries = left;
        for mut recovery in cut {
            let Some(next) = recovery.next else {
                // Nothing of them is here.
                self.recovered[1] += recovery.copies.flows.used as u64;
                recovery.flows[1] += recovery.copies.flows.used as u64;
                self.write_receipt(core, &recovery);
                continue;
            };
            if super::is_broken("what has begun to go on ends") {
                continue;
            }
            self.end_early(core, &mut recovery, next);
        }
    }

    /// No more flows of a begun recovery are installed: the others are lost, and its blocks are
    /// free.
    #[cold]
    fn end_early(&mut self, core: &mut Core, recovery: &mut Recovery, next: u32) {
        for slot in next..recovery.copies.flows.records.len() as u32 {
            if recovery.copies.flows.get(slot).is_some() {
                self.count(core, recovery, slot, false);
            }
        }
        self.end_recovery(core, recovery);
    }

    fn end_recovery(&mut self, core: &mut Core, recovery: &Recovery) {
        for (block, group) in recovery.copies.blocks.values() {
            if core.flows.owners.at(block.addr, block.first) == Some(*group) && !core.has_group(group) {
                core.flows.owners.release(*block);
                core.out.announce(Message::BlockReleased(*block));
            }
        }
        core.out.announce(Message::Recovered(RuntimeId(recovery.failed)));
        self.write_receipt(core, recovery);
    }

    fn write_receipt(&mut self, core: &mut Core, recovery: &Recovery) {
        let ready = recovery.ready.unwrap_or(core.now);
        let receipt = RecoveryReceipt {
            failed: recovery.failed,
            flows: recovery.flows[0],
            lost: recovery.flows[1],
            waited: ready.saturating_sub(recovery.began),
            installed: core.now.saturating_sub(ready),
        };
        let (now, milliseconds) = (core.now, |ns: u64| ns as f64 / 1e6);
        core.runner.log().write(
            now,
            "runtime",
            &RECOVERED,
            format_args!(
                "\"failed\":{},\"flows\":{},\"lost\":{},\"waited_ms\":{:.3},\"installed_ms\":{:.3}",
                receipt.failed,
                receipt.flows,
                receipt.lost,
                milliseconds(receipt.waited),
                milliseconds(receipt.installed),
            ),
        );
        self.recovery_times
            .note(receipt.waited.saturating_add(receipt.installed));
        if self.receipts.len() == RECEIPTS {
            self.receipts.remove(0);
        }
        self.receipts.push(receipt);
    }
}

/// Until when no group begins to move: a flow that had come here from a failed runtime, and went on
/// to another, would be recovered from its copy.
pub(super) fn still_until(recoveries: &[Recovery]) -> u64 {
    let ends = recoveries
        .iter()
        .map(|recovery| recovery.began.saturating_add(STILL));
    ends.max().unwrap_or(0)
}

/// Whether a switch is to let a failed runtime go before its flows go on here: it is there, or it
/// may have routes: a member is, or, where no view says which are members, a switch that this
/// runtime waits for as it begins.
fn is_awaited(core: &Core, switch: u8) -> bool {
    let sessions = &core.sessions;
    let may_have_routes =
        sessions.listed.has(switch) || !sessions.by_views && sessions.is_beginning_without(switch);
    let is_unmet = may_have_routes && !super::is_broken("members that were not met are waited for");
    core.out.is_present(usize::from(switch)) || is_unmet
}

/// Claims all blocks, before any flow is installed.
fn begin(core: &mut Core, recovery: &mut Recovery) {
    let copies = &recovery.copies;
    let anothers = copies.blocks.values().skip(1).map(|(_, group)| group);
    let anothers = anothers.chain(copies.blocks.values().take(1).map(|(_, group)| group));
    let mut claimed = BTreeMap::new();
    for ((block, group), anothers) in copies.blocks.values().zip(anothers) {
        let group = match planted::is("heir_claims_anothers") {
            true => anothers,
            false => group,
        };
        // A group that is here has its own: it began again, or came with them.
        if planted::is("heir_claims_nothing") {
            continue;
        }
        claimed.insert(*group.words(), *block);
        if !core.has_group(group) && core.flows.owners.claim(*block, *group) {
            core.out.announce(Message::BlockClaimed(*block, *group));
            if wire::planted::is("heir_announces_early") {
                core.out.announce(Message::Routed(*group));
            }
        }
    }
    if !copies.over.is_empty() {
        end_over(core, copies);
    }
    recovery.groups = alloc::vec![0; copies.groups.records.len()];
    recovery.copies.claimed = claimed;
    recovery.left = recovery.copies.take_flows_of();
    recovery.next = Some(0);
    (0..AHEAD).for_each(|slot| recovery.fetch(core, slot));
}

/// Groups that had come to the failed runtime and have ended there: should their sources take them
/// back, a switch tells them that another has them. Groups that began there again have copies.
#[cold]
fn end_over(core: &mut Core, copies: &Copies) {
    let mut over = copies.over.clone();
    for group in copies.group_keys() {
        over.remove(group.words());
    }
    for words in over {
        let group = GroupKey::from_words(words);
        if !core.has_group(&group) {
            core.out.announce(Message::Routed(group));
            core.out.announce(Message::GroupEmpty(group, 0));
        }
    }
}

/// The outcome of staging a copy.
enum Staged {
    /// Its bytes are an actor's, which is in its group and in no table.
    As(u32),
    /// It moved here when its runtime failed, and has been installed.
    Here,
    Lost,
}

fn stage(
    core: &mut Core,
    groups: &mut [u32],
    copies: &Copies,
    slot: u32,
    (copy, chain): (&FlowCopy, u8),
    [first, _]: [u64; 2],
) -> Staged {
    if slot % 2 == 1 && planted::is("flow_not_recovered") {
        return Staged::Lost;
    }
    let travelling = core.runner.travelling(chain, &core.flows);
    let Some((travelling, bytes)) = travelling.and_then(|travelling| {
        let bytes = copies.flows.state(slot).get(..travelling.length())?;
        let is_it = copy.is_whole() && usize::from(copy.length) == travelling.length();
        is_it.then_some((travelling, bytes))
    }) else {
        return Staged::Lost;
    };
    let flow_header = FlowHeader {
        chain,
        ..copies.flow_header(slot, copy)
    };
    if core.find(first, &flow_header.key).is_some() {
        return Staged::Here;
    }
    let Some(group) = install_group(core, groups, copies, copy, flow_header.key) else {
        return Staged::Lost;
    };
    // The room promised to groups on their way is theirs.
    let has_room = core.flows.free() > core.reserved;
    let Some(actor) = has_room.then(|| core.flows.arrive()).flatten() else {
        abandon_if_empty(core, group);
        return Staged::Lost;
    };
    write_header(core, actor, &flow_header);
    let (own, group_bytes) = bytes.split_at(travelling.own.min(bytes.len()));
    let state = core.flows.state_bytes_mut(actor);
    for (at, piece) in [(0, own), (travelling.group.0, group_bytes)] {
        if let Some(place) = state.get_mut(at..at + piece.len()) {
            place.copy_from_slice(piece);
        }
    }
    if !core.runner.is_flow(actor, &core.flows) {
        core.flows.end(actor);
        abandon_if_empty(core, group);
        return Staged::Lost;
    }
    core.flows.join_group(actor, group);
    core.runner
        .rebase_flows(&[actor], copies.flow_by(slot), &core.flows);
    core.runner.prefetch_functions(actor, false, &core.flows);
    core.flows.prefetch_joining(actor);
    Staged::As(actor)
}

fn write_header(core: &mut Core, actor: u32, flow_header: &FlowHeader) {
    let (now, timeout) = (core.now, core.settings.timeout_default);
    let generation = core.runner.current_generation();
    let header = core.flows.header_mut(actor);
    header.generation = generation;
    header.key = flow_header.key;
    header.deadline = match flow_header.time_left {
        NO_DEADLINE => now.saturating_add(timeout),
        _ if planted::is("recovered_for_ever") => u64::MAX,
        left => now.saturating_add(left).max(1),
    };
    header.chain = flow_header.chain;
    header.flags = flow_header.flags & !(flag::HOLDS | flag::SETTLING);
    header.answered = flow_header.answered;
    header.group = NO_GROUP;
    header.frame = 0;
    core.flows.set_reply_key(actor, flow_header.second);
}

/// A staged flow goes into the tables, and its functions are told, or asked. Whether it is there; a
/// flow that may not go on is among those that are cut.
fn arrive(core: &mut Core, staged: &Staging, cut: &mut Vec<u32>) -> bool {
    let actor = staged.actor;
    let header = core.flows.header_mut(actor);
    header.change(Change::Install);
    let (first, flags) = (header.key, header.flags);
    let is_found = core.flows.insert_hashed(actor, staged.hashes);
    core.flows.file(actor);
    let mut timeout = 0;
    if staged.is_of_before {
        let goes_on = core
            .runner
            .recover_of_before(actor, &mut core.flows, &mut core.out);
        if !goes_on {
            cut.push(actor);
        }
        timeout = core.runner.timeout_of(actor, &mut core.flows, &mut core.out);
    } else {
        let times = 1 + usize::from(planted::is("recovered_arrives_twice"));
        for _ in 0..times {
            timeout = core
                .runner
                .arrive_as(actor, Arrival::Recovered, &mut core.flows, &mut core.out);
        }
    }
    // The copy has the time that was left when all of the flow was sent, of another state maybe.
    if staged.lives_by_state && timeout > 0 && !planted::is("recovered_for_ever") {
        core.runner.extend(actor, timeout, &mut core.flows);
    }
    if core.flows.affinity() == Affinity::Flow {
        core.out.announce(Message::Routed(GroupKey::of_flow(first)));
    }
    if flags & flag::ANNOUNCED != 0 {
        let second = *core.flows.reply_key(actor);
        core.out.announce(Message::Routed(GroupKey::of_flow(second)));
    }
    core.note_arrived(actor);
    core.witness(actor, Flow::Recovered);
    if !is_found {
        core.end_actor(actor);
    }
    is_found
}

/// Ends flows that were recovered and may not go on; answers how many were looked at.
#[cold]
fn end_cut(core: &mut Core, cut: &mut Vec<u32>) -> usize {
    let mut count = 0;
    while count < ASKED as usize && core.runner.may_end() && core.out.is_clear() {
        let Some(actor) = cut.pop() else {
            break;
        };
        count += 1;
        let is_there = (actor as usize) < core.flows.capacity();
        if is_there
            && core.flows.header(actor).phase == Phase::Active
            && core.runner.is_cut(actor, &core.flows)
        {
            core.end_actor(actor);
        }
    }
    count
}

/// The place of a flow's group, installed with its first flow; `None` if it cannot be.
fn install_group(
    core: &mut Core,
    groups: &mut [u32],
    copies: &Copies,
    copy: &FlowCopy,
    key: FlowKey,
) -> Option<u32> {
    if core.flows.affinity() == Affinity::Flow {
        return may_go_on(core, copies, &GroupKey::of_flow(key)).then_some(NO_GROUP);
    }
    let known = groups.get_mut(copy.group as usize)?;
    let group = copies.groups.get(copy.group)?;
    if *known != 0 && core.flows.groups().at_place(*known - 1) == Some(group.key) {
        return Some(*known - 1);
    }
    if core.flows.groups().at(group.key).is_none() {
        core.evict_group();
    }
    let index = install_state(core, copies, copy.group, group)?;
    *known = index + 1;
    Some(index)
}

/// Whether a copied group has no block, or the last one is claimed for it: it lets go of all.
fn may_go_on(core: &Core, copies: &Copies, group: &GroupKey) -> bool {
    let claimed = copies.claimed.get(group.words());
    claimed.is_none_or(|block| core.flows.owners.at(block.addr, block.first) == Some(*group))
}

/// Installs the state of a copied group; `None` if it is here already, or is none.
fn install_state(core: &mut Core, copies: &Copies, slot: u32, group: &GroupCopy) -> Option<u32> {
    let length = core.flows.groups().state_length();
    let is_it = group.is_whole() && usize::from(group.length) == length;
    if !is_it || !may_go_on(core, copies, &group.key) {
        return None;
    }
    let (index, is_new) = core.flows.enter_group(group.key)?;
    if !is_new {
        // It began here by itself: the copy is older.
        return None;
    }
    let state = copies.groups.state(slot).get(..length)?;
    if !planted::is("recovered_group_empty") {
        core.flows.group_bytes_mut(index).copy_from_slice(state);
    }
    if !core.runner.is_group(index, &core.flows) {
        core.flows.abandon_group(index);
        return None;
    }
    core.runner.rebase_group(index, group.by, &core.flows);
    Some(index)
}

/// How many slots are gone through: of flows, then, where groups may rest, of groups.
fn slots(core: &Core, copies: &Copies) -> usize {
    let groups = match core.runner.stages().outlives && core.flows.affinity() != Affinity::Flow {
        true => copies.groups.records.len(),
        false => 0,
    };
    copies.flows.records.len() + groups
}

/// Installs a copied group that has no flow here, as a group that rests; behind all flows. It takes
/// no other's place. Whether it was installed.
fn install_resting(core: &mut Core, copies: &Copies, slot: u32) -> bool {
    let group = copies.groups.get(slot);
    let installed = group.and_then(|group| Some((group, install_state(core, copies, slot, group)?)));
    let Some((group, index)) = installed else {
        return false;
    };
    // For a group whose flows had no copies its functions say how long.
    let until = group.rests_until.or_else(|| core.rest_of(index, core.now));
    let Some(until) = until else {
        core.flows.abandon_group(index);
        return false;
    };
    core.flows.rest_arrived(index, until);
    core.out.announce(Message::Routed(group.key));
    core.copy_resting(index);
    true
}

/// Announces the group of a flow whose turn has come, if it was the last one's: by an earlier route
/// packets of the others would come, and begin these flows again.
fn announce_if_whole(core: &mut Core, recovery: &mut Recovery, slot: u32) {
    let copies = &recovery.copies;
    let Some(place) = copies.flows.get(slot).map(|copy| copy.group) else {
        return;
    };
    let (Some(left), Some(known), Some(group)) = (
        recovery.left.get_mut(place as usize),
        recovery.groups.get(place as usize),
        copies.groups.get(place),
    ) else {
        return;
    };
    *left = left.saturating_sub(1);
    if *left == 0 && *known != 0 && core.flows.groups().at_place(*known - 1) == Some(group.key) {
        core.out.announce(Message::Routed(group.key));
    }
}

/// Forgets a group that was made for a flow that is none.
fn abandon_if_empty(core: &mut Core, group: u32) {
    let rests = core.flows.groups().resting().until(group).is_some();
    if group != NO_GROUP && core.flows.groups().flows(group) == 0 && !rests {
        let key = core.flows.groups().key(group);
        core.flows.abandon_group(group);
        core.tell_idle(key);
    }
}
