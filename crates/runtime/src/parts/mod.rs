//! The life of flows at one runtime: a packet that has passed its chain, the reply key that it
//! teaches, the flow's end.
//!
//! # Theory of operation
//!
//! The parts that all protocols of flows work on are here together: the store, the runner, the hold
//! and the outbox. Calls go one way:
//!
//! ```text
//!   worker ─► mobility ─► Core ─► runner, hold ─► flows, outbox
//!   run ─► Through ─► deadline ─► reply key learned ─► hold ─► out
//!       └─► End ────► functions' `departed` ─► keys, group ─► *GroupEmpty*, unless the key is silent ([`Silent`])
//! ```
//!
//! # Reply keys
//!
//! A chain that translates gives a flow's replies another key than its opening packets have. The
//! flow is *settled* when the table knows both. The reply key's bucket is a cache miss for each
//! new flow, so the runtime does not wait for it: the bucket is fetched, the packet put aside, and
//! at the end of the burst, when the lines have come, all reply keys go into the table and the
//! packets go out.
//!
//! ```text
//!   launched ──first packet passes, key as before──► settled
//!       └─────first packet passes, translated──► settling ──burst ends, or it is looked up──► settled, or waits until switches have heard (`outbox::barrier`)
//!                                                    └────another flow has the key──► over, nothing has left
//! ```
//!
//! Two flows cannot have one reply key: replies would all be the first one's. The second flow is
//! refused, as a kernel's connection tracking refuses it, with its first packet dropped; the client
//! tries again, and gets another server or finds the first flow over. Where the first is at another
//! runtime, the switch knows ([`Message::RouteConflict`]).
//!
//! Invariants: packets of one flow leave in the order they came (a second packet of a settling flow
//! settles it first); no look-up misses a key that is being settled ([`Core::find`]); a flow does
//! not end while it settles; nothing is settling between two steps.

mod following;
mod holding;
mod life;
mod messages;
mod pools;
pub mod presence;
mod witness;

use crate::env::BURST;
use crate::flows::FlowStore;
use crate::flows::actor::{Phase, flag};
use crate::flows::group::GroupKey;
use crate::hold::gate::Gate;
use crate::hold::lines::HeldLines;
use crate::hold::{OutputHold, is_held};
use crate::message::Message;
use crate::outbox::Outbox;
use crate::replica::ledger::Ledger;
use crate::replica::sender::Sender;
use crate::runner::{Effect, Job, Runner, Through};
use crate::settings::Settings;
use crate::stats::DropReason;
use crate::watch::Ends;
use crate::watch::flows::{Change, Followers};
use crate::watch::trace::Event;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
#[cfg(test)]
pub(crate) use following::BEGUN;
pub(crate) use following::Following;
use hashbrown::HashSet;
use nf::{Affinity, Departure, Direction, Recall, Side};
use pools::Pools;
use presence::Sessions;
use wire::packet::flag as packet_flag;
use wire::{FlowKey, HashSeed, Orientation, Packet, PacketBox};

/// The packets whose flows are settling, in the order in which they passed their chains.
#[derive(Default)]
struct Queue {
    packets: ArrayVec<Settling, BURST>,
    /// A bit for each hash in the queue: most look-ups need not look further.
    bits: u64,
}

impl Queue {
    #[inline]
    fn bit(hash: u64) -> u64 {
        1 << (hash >> 24 & 63)
    }

    /// Whether a key of this hash is about to get into the table.
    #[inline]
    fn has(&self, hash: u64) -> bool {
        self.bits & Self::bit(hash) != 0 && self.packets.iter().any(|settling| settling.hash == hash)
    }
}

/// A flow's first packet, waiting for its reply key to get into the table. The key itself is in
/// the actor already.
struct Settling {
    actor: u32,
    way: Orientation,
    hash: u64,
    packet: PacketBox,
}

/// Keys of which it is not said that they are idle, though they have no flow.
#[derive(Default)]
pub(crate) struct Silent {
    /// While packets are taken up that waited behind a call: a group and a reply key.
    deferred: ArrayVec<GroupKey, 2>,
    /// While packets are processed that were kept for a group that moved: keys that have become
    /// idle meanwhile.
    draining: Option<Vec<GroupKey>>,
    /// Of groups on their way, by hash.
    moving: HashSet<u64>,
}

impl Silent {
    /// Whether a key is on its way.
    pub fn is_moving(&self, key: &GroupKey, seed: &HashSeed) -> bool {
        !self.moving.is_empty() && self.moving.contains(&key.hash(seed))
    }

    /// Whether it is not yet to be said that a key is idle: that is looked at later.
    pub fn defers(&mut self, key: GroupKey, seed: &HashSeed) -> bool {
        if self.deferred.contains(&key) {
            return true;
        }
        if let Some(draining) = &mut self.draining {
            draining.push(key);
            return true;
        }
        self.is_moving(&key, seed)
    }

    /// Packets that were kept for a group with these keys are about to be processed.
    pub fn begin_draining(&mut self, keys: Vec<GroupKey>) {
        self.draining = Some(keys);
    }

    /// They are: those keys, and the others that it was not said of, are to be looked at.
    pub fn end_draining(&mut self) -> Vec<GroupKey> {
        self.draining.take().unwrap_or_default()
    }

    /// A key is on its way, or is no more.
    pub fn set_moving(&mut self, hash: u64, is_moving: bool) {
        if is_moving {
            self.moving.insert(hash);
        } else {
            self.moving.remove(&hash);
        }
    }
}

/// Flows, and what runs them, keeps them and tells of them.
pub(crate) struct Core {
    pub settings: Settings,
    pub now: u64,
    /// Until when the latest of its leases lasts; without leases for ever.
    pub leased_until: u64,
    pub flows: FlowStore,
    pub runner: Runner,
    pub hold: OutputHold,
    pub out: Outbox,
    pub sessions: Sessions,
    pub silent: Silent,
    pub gate: Gate,
    /// Where packets wait for a data store.
    pub store_gate: Gate,
    /// Where lines of the event log wait for copies.
    pub lines: HeldLines,
    pub sender: Sender,
    pub ledger: Ledger,
    /// Where blocks of ports are short, and which runtimes were asked.
    pub pools: Pools,
    /// Whether changes by packets are followed, and for what.
    pub is_followed: bool,
    pub following: Following,
    /// Whether packets may have to wait for that.
    pub is_gated: bool,
    /// Actors that accepted moves will need.
    pub reserved: usize,
    /// Until when no group begins to move from here: flows of a failed runtime are to go on here.
    pub still_until: u64,
    /// Whether an operator wants no more groups here.
    pub is_leaving: bool,
    /// Actors that packets without room may still have looked at in this step.
    pub early_looks: usize,
    /// The followers of flows.
    pub followers: Followers,
    pub flows_opened: u64,
    pub flows_ended: u64,
    /// Groups that rested, and whose places others got.
    pub groups_evicted: u64,
    /// First packets whose flows' reply keys are not yet in the table.
    settling: Queue,
    /// Why a settling flow was refused last.
    refused_for: DropReason,
    /// Where [`Core::end_all`] goes on.
    finish_cursor: u32,
}

impl Core {
    /// Of these parts, without a flow.
    pub fn new(
        settings: Settings,
        flows: FlowStore,
        runner: Runner,
        out: Outbox,
        sessions: Sessions,
    ) -> Self {
        let is_replicated = settings.replicated && settings.switches > 0;
        let copying = settings.copying;
        let mut core = Core {
            now: settings.now,
            leased_until: u64::MAX,
            settings,
            flows,
            runner,
            hold: OutputHold::default(),
            out,
            sessions,
            silent: Silent::default(),
            gate: Gate::new(DropReason::ReplicaFull),
            store_gate: Gate::new(DropReason::StoreFull),
            lines: HeldLines::default(),
            sender: Sender::new(is_replicated, copying),
            ledger: Ledger::default(),
            pools: Pools::default(),
            is_followed: false,
            following: Following::All,
            is_gated: false,
            reserved: 0,
            still_until: 0,
            is_leaving: false,
            early_looks: 0,
            followers: Followers::default(),
            flows_opened: 0,
            flows_ended: 0,
            groups_evicted: 0,
            settling: Queue::default(),
            refused_for: DropReason::ReplyKeyTaken,
            finish_cursor: 0,
        };
        core.copy_as_configured();
        core.begin_pools();
        core
    }

    /// Whether it has no lease at all.
    #[inline(always)]
    pub fn is_unleased(&self) -> bool {
        self.now >= self.leased_until && !wire::planted::is("runtime_without_lease")
    }

    /// Goes on to a time, if it is later.
    #[inline(always)]
    pub fn go_on_to(&mut self, now: u64) {
        self.now = self.now.max(now);
        self.out.set_now(self.now);
        self.runner.set_now(self.now);
    }

    /// Runs a packet's chain from the start, and whatever else that leaves to do. `FOLLOWED`: the
    /// packet may have to wait for what it changes. `WATCHED`: the runner says what that is.
    #[inline(always)]
    fn begin<const SEEN: bool, const FOLLOWED: bool, const WATCHED: bool>(
        &mut self,
        actor: u32,
        mut packet: PacketBox,
        direction: Direction,
    ) {
        following::note_begun(FOLLOWED, WATCHED);
        let exit = if packet.has(packet_flag::INSIDE_TO_INSIDE) {
            Side::Inside
        } else {
            packet.side().opposite()
        };
        packet.set_exit(exit);
        let job = Job {
            actor,
            packet,
            direction,
            passed: 0,
            timeout: 0,
            whole: true,
        };
        let through = self
            .runner
            .run::<SEEN, WATCHED>(job, &mut self.flows, &mut self.out);
        if let Some(through) = through {
            self.leave_chain::<FOLLOWED, WATCHED>(through);
        }
        if self.runner.has_more() {
            self.run_more();
        }
    }

    /// Works off what calls have left to do.
    #[cold]
    pub fn run_more(&mut self) {
        while let Some(effect) = self.runner.next(&mut self.flows, &mut self.out) {
            match effect {
                Effect::Through(through) => self.leave_chain::<true, false>(through),
                Effect::End(actor) => {
                    if self.flows.header(actor).phase == Phase::Active {
                        self.end_actor(actor);
                    }
                }
            }
        }
        self.sender.note_more_calls();
        self.ledger.note_more_calls();
    }

    /// A packet has passed its chain: its flow's deadline moves, and it goes out.
    #[inline(always)]
    fn leave_chain<const FOLLOWED: bool, const WATCHED: bool>(&mut self, through: Through) {
        let Through {
            actor,
            packet,
            direction,
            timeout,
            whole,
        } = through;
        if !whole {
            // Begun in the middle (released, emitted): the functions before have had their say
            // about the timeout.
            self.runner.keep_at_least(actor, timeout, &mut self.flows);
        }
        // An error keeps no flow alive, but an error that opened a flow must give it some end.
        if !packet.has(packet_flag::ICMP_ERROR) || self.flows.header(actor).deadline == 0 {
            if whole {
                self.runner.extend(actor, timeout, &mut self.flows);
            }
            if self.flows.header(actor).flags & flag::SETTLED == 0 {
                return self.learn_reply_key(actor, packet, direction);
            }
        } else {
            self.learn_reply_keys();
            if is_held(self.flows.header(actor).flags) {
                return self.hold_behind(actor, packet);
            }
        }
        self.pass_if::<FOLLOWED, WATCHED>(actor, packet);
    }

    /// The actor, and which of its keys, that has this key.
    pub fn find(&mut self, hash: u64, key: &FlowKey) -> Option<u32> {
        if self.settling.has(hash) {
            self.learn_reply_keys();
        }
        self.flows.find_hashed(hash, key)
    }

    pub fn group_of(&self, packet: &PacketBox, key: FlowKey) -> GroupKey {
        GroupKey::of(self.flows.affinity(), packet, key, |end, protocol| {
            self.flows
                .owners
                .owner(end)
                .or_else(|| owner_by_plan(self.runner.plan(), self.flows.affinity(), end, protocol))
        })
    }

    /// Looks at up to `budget` actors whose time may have come.
    pub fn expire(&mut self, budget: usize) -> usize {
        let mut looked = 0;
        while looked < budget && self.runner.may_end() && self.out.is_clear() {
            // One flow at a time: ending a flow needs the whole runtime.
            let (due, count) = self.flows.due(self.now, budget - looked);
            looked += count;
            let Some(actor) = due else {
                break;
            };
            self.end_actor(actor);
        }
        looked + self.expire_groups(budget - looked)
    }

    /// Where flows or groups are at their bound, ends some whose time is over before a packet that
    /// would open another is refused: the step looks for them behind its packets only. Flows looked
    /// at here count among those that the step looks at.
    pub fn make_room(&mut self, link: usize) {
        let is_full = self.flows.free() <= self.reserved
            || self.flows.affinity() != Affinity::Flow && self.flows.groups().room() == 0;
        if !is_full || self.early_looks == 0 {
            return;
        }
        // Flows that end here have not seen the packet at hand.
        self.out.uncount_consumed(link);
        self.early_looks -= self.expire(self.early_looks);
        self.out.count_consumed(link);
    }

    /// Ends flows that functions want ended ([`nf::NetworkFunction::recall`]); answers how many
    /// were asked for. They count among the actors that the step looks at, since each end takes
    /// room for messages.
    pub fn recall(&mut self) -> usize {
        if !self.runner.take_recalls() {
            return 0;
        }
        let (mut asked, mut is_left) = (0, false);
        for function in 0..self.runner.stages().functions.len() {
            loop {
                if asked == self.early_looks || !self.runner.may_end() || !self.out.is_clear() {
                    self.runner.note_recalls();
                    is_left = true;
                    break;
                }
                match self.runner.recall(function) {
                    Recall::Flow(actor) => {
                        asked += 1;
                        let is_there = (actor as usize) < self.flows.capacity();
                        if is_there && self.flows.header(actor).phase == Phase::Active {
                            self.end_actor(actor);
                        }
                    }
                    Recall::Later => {
                        self.runner.note_recalls();
                        is_left = true;
                        break;
                    }
                    Recall::Nothing => break,
                }
            }
        }
        self.early_looks -= asked;
        // A step that is asked again soon is no idle one.
        asked.max(usize::from(is_left))
    }

    /// Asks a flow of the configuration before, whose calls are over: `false`, and it has ended, if
    /// it does not go on.
    #[cold]
    pub fn goes_on(&mut self, actor: u32) -> bool {
        self.learn_reply_keys();
        if self.flows.header(actor).phase != Phase::Active {
            return false;
        }
        let goes_on = self.runner.judge(actor, &mut self.flows, &mut self.out);
        if !goes_on {
            self.end_adapted(actor);
        } else {
            self.note_arrived(actor);
        }
        goes_on
    }

    /// Ends a flow: its functions give back what it took, its keys and, with its last flow, its
    /// group go.
    pub fn end_actor(&mut self, actor: u32) {
        self.learn_reply_keys();
        if self.flows.header(actor).phase == Phase::Free {
            // Settling it has ended it.
            return;
        }
        if self.runner.is_of_before(actor, &self.flows) {
            // Its functions are told of its end in the words of the configuration in force.
            let _ = self.runner.adapt(actor, &mut self.flows, &mut self.out);
        }
        self.end_adapted(actor);
    }

    /// [`Core::end_actor`] for a flow that is settled and whose states are of the instances in
    /// force.
    pub fn end_adapted(&mut self, actor: u32) {
        let is_of_before =
            self.runner.is_of_before(actor, &self.flows) && !self.runner.is_cut(actor, &self.flows);
        self.runner.drop_held(actor, &mut self.flows, &mut self.out);
        if is_held(self.flows.header(actor).flags) {
            self.hold.forget(actor);
        }
        self.witness(actor, Change::Ended);
        self.runner
            .depart(actor, Departure::Expired, &mut self.flows, &mut self.out);
        let has_copy = self.flows.header(actor).copied != 0 && self.sender.is_on();
        if let Some(key) = self.flows.remove_keys(actor) {
            self.end_route(key, has_copy);
        }
        self.leave_group(actor);
        self.flows.end(actor);
        self.flows_ended += 1;
        if is_of_before {
            self.runner.note_end_of_old();
        }
    }

    /// Notes what a flow is known by: packets that waited behind its call are about to be taken up,
    /// and where it ends before, they begin it again. The switch counts them as seen long ago, so
    /// *GroupEmpty* in between would have the group begin again without a route.
    pub fn defer_idle(&mut self, actor: u32) {
        self.silent.deferred.push(self.flows.group_key(actor));
        if self.flows.has_flag(actor, flag::ANNOUNCED) {
            self.silent
                .deferred
                .push(GroupKey::of_flow(*self.flows.reply_key(actor)));
        }
    }

    /// Says now which keys are idle, of those that were not said since [`Core::defer_idle`], as far
    /// as it holds.
    pub fn end_deferred(&mut self) {
        for group in core::mem::take(&mut self.silent.deferred) {
            if !self.has_group(&group) {
                self.end_route_behind_copies(group);
            }
        }
    }

    /// The flows of a group.
    pub fn flows_of(&mut self, group: GroupKey) -> Vec<u32> {
        self.learn_reply_keys();
        self.flows.flows_of(group)
    }

    /// Whether a flow's end will say that this group, or reply key, is idle.
    pub fn has_group(&mut self, group: &GroupKey) -> bool {
        if self.settling.has(group.hash(&self.settings.seed)) {
            self.learn_reply_keys();
        }
        self.flows.has_group(group)
    }

    /// Whether a new group may begin with this packet: the switch has a route for it to here. A
    /// packet that was sent by another route, which was over or changed hands meanwhile, would make
    /// a group that is, or will be, elsewhere.
    pub fn is_routed_here(&self, packet: &PacketBox, group: &GroupKey) -> bool {
        self.settings.switches == 0
            || packet.hash() == group.hash(&self.settings.seed)
            || self.silent.deferred.contains(group)
    }

    /// Ends up to `budget` flows that do not wait, whatever their deadline; `true` when none is
    /// left.
    pub fn end_all(&mut self, budget: usize) -> bool {
        self.runner.cancel_waiting(budget, &mut self.flows, &mut self.out);
        let mut left = budget;
        for actor in self.finish_cursor..self.flows.capacity() as u32 {
            if left == 0 || !self.runner.may_end() || !self.out.has_room() {
                return false;
            }
            self.finish_cursor = actor;
            if self.flows.header(actor).phase == Phase::Active {
                self.end_actor(actor);
                left -= 1;
            }
        }
        self.finish_cursor = 0;
        self.flows.active() == 0 && self.end_all_resting(left)
    }

    /// Passes a packet of a flow that is not settled: with its first packet it begins to.
    #[cold]
    pub fn learn_reply_key(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if is_held(self.flows.header(actor).flags) {
            return self.hold_behind(actor, packet);
        }
        if self.flows.header(actor).flags & flag::SETTLING != 0 {
            // Its first packet leaves before this one.
            if wire::planted::is("second_packet_overtakes") {
                return self.pass(actor, packet);
            }
            self.learn_reply_keys();
            if self.flows.header(actor).phase == Phase::Free {
                return self.out.drop_packet(packet, self.refused_for);
            }
            if is_held(self.flows.header(actor).flags) {
                return self.hold_behind(actor, packet);
            }
            return self.pass(actor, packet);
        }
        if direction == Direction::Reply {
            return self.pass(actor, packet);
        }
        if self.flows.header(actor).flags & flag::REPLY_KEY != 0 {
            return self.learn_reply_key_again(actor, packet);
        }
        let Some((mut key, way)) = FlowKey::of(&packet) else {
            self.flows.header_mut(actor).flags |= flag::SETTLED;
            self.witness(actor, Change::Opened);
            return self.pass(actor, packet);
        };
        if packet.has(packet_flag::HAIRPIN) {
            // Its replies come back as turned packets, and only they.
            key = key.turned(way.reversed());
        } else if key == self.flows.header(actor).key {
            self.flows.header_mut(actor).flags |= flag::SETTLED;
            self.witness(actor, Change::Opened);
            return self.pass(actor, packet);
        }
        let hash = key.hash(&self.settings.seed);
        self.flows.prefetch_key(hash);
        self.flows.set_reply_key(actor, key);
        self.observe_reply_key(actor, key, &packet);
        self.flows.header_mut(actor).flags |= flag::SETTLING;
        if self.settling.packets.is_full() {
            self.learn_reply_keys();
        }
        self.settling.bits |= Queue::bit(hash);
        self.settling.packets.push(Settling {
            actor,
            way,
            hash,
            packet,
        });
        if self.runner.has_more() {
            // Messages that this packet caused leave behind it.
            self.learn_reply_keys();
        }
    }

    /// Settles whatever is settling, and lets the packets go.
    #[inline(always)]
    pub fn learn_reply_keys(&mut self) {
        if self.settling.bits != 0 {
            self.learn_each_reply_key();
        }
    }

    #[cold]
    #[inline(never)]
    pub fn learn_each_reply_key(&mut self) {
        for settling in core::mem::take(&mut self.settling).packets {
            let actor = settling.actor;
            let header = self.flows.header_mut(actor);
            header.flags = header.flags & !flag::SETTLING | flag::SETTLED;
            let key = *self.flows.reply_key(actor);
            if self.is_taken(settling.hash, &key) {
                self.refuse_flow(actor, settling.packet, DropReason::ReplyKeyTaken);
                continue;
            }
            if self.flows.insert(settling.hash, actor << 1 | 1).is_err() {
                self.refuse_flow(actor, settling.packet, DropReason::FlowsFull);
                continue;
            }
            let header = self.flows.header_mut(actor);
            header.flags |= flag::REPLY_KEY;
            if settling.way == Orientation::Along {
                header.flags |= flag::SECOND_ALONG;
            }
            self.witness(actor, Change::Opened);
            self.announce_reply_key(actor, key, &settling.packet);
            if !self.out.barrier().holds(self.now) {
                self.pass(actor, settling.packet);
                continue;
            }
            if let Err(reason) = self.commit_held(actor) {
                self.refuse_flow(actor, settling.packet, reason);
                continue;
            }
            if let Some(packet) = self.hold.hold(actor, settling.packet, &mut self.flows, &self.out) {
                self.refuse_flow(actor, packet, DropReason::UnheardFull);
            }
        }
    }

    /// Whether another flow has this key; if its time is over, it no longer has.
    #[inline]
    pub fn is_taken(&mut self, hash: u64, key: &FlowKey) -> bool {
        let Some(value) = self.flows.find_hashed(hash, key) else {
            return false;
        };
        let header = self.flows.header(value >> 1);
        let is_over = header.phase == Phase::Active && header.deadline <= self.now;
        if is_over {
            self.end_actor(value >> 1);
        }
        !is_over
    }

    /// Drops the first packet of a flow whose replies would not find it, and ends the flow: nothing
    /// of it leaves. Functions that hand out endpoints never let two flows have one reply key; two
    /// flows that a rule sends to the same server may.
    #[cold]
    pub fn refuse_flow(&mut self, actor: u32, packet: PacketBox, reason: DropReason) {
        self.refused_for = reason;
        self.out.drop_packet(packet, reason);
        let header = self.flows.header_mut(actor);
        header.flags &= !flag::SETTLED;
        // Where its next packet waits, it is tried again with that.
        if header.phase == Phase::Active {
            self.end_actor(actor);
        }
    }

    /// Passes the next packet of a flow whose first found no room to wait in, while the next waited
    /// for its call: its reply key is its own, and told.
    #[cold]
    pub fn learn_reply_key_again(&mut self, actor: u32, packet: PacketBox) {
        if let Err(reason) = self.commit_held(actor) {
            return self.refuse_flow(actor, packet, reason);
        }
        if !self.out.barrier().holds(self.now) {
            self.flows.header_mut(actor).flags |= flag::SETTLED;
            self.pass(actor, packet);
        } else if let Some(packet) = self.hold.hold(actor, packet, &mut self.flows, &self.out) {
            self.refuse_flow(actor, packet, DropReason::UnheardFull);
        }
    }

    /// Ends a flow whose reply key got no route, or has one to another runtime already: the switch
    /// drops its packets.
    #[cold]
    pub fn reply_key_refused(&mut self, key: FlowKey) {
        let hash = key.hash(&self.settings.seed);
        if let Some(value) = self.find(hash, &key)
            && value & 1 == 1
        {
            self.refuse_waiting(value >> 1, DropReason::ReplyKeyTaken);
            match self.flows.header(value >> 1).phase {
                Phase::Active => self.end_actor(value >> 1),
                _ => self.note_refused(key),
            }
        }
    }

    /// Tells the switch whose packets have the reply key, where it could not know by itself.
    pub fn announce_reply_key(&mut self, actor: u32, key: FlowKey, packet: &PacketBox) {
        if self.settings.switches == 0 {
            return;
        }
        let group = self.flows.group_key(actor);
        // How the switch will see a reply: its source is where this packet goes.
        let (near, far) = match packet.exit() {
            Side::Outside => (packet.source(), packet.destination()),
            Side::Inside => (packet.destination(), packet.source()),
        };
        let is_inside = |end: nf::Endpoint| self.settings.inside.iter().any(|p| p.contains(end.addr));
        let known = match self.flows.affinity() {
            Affinity::Flow => false,
            _ if is_inside(near) && is_inside(far) => GroupKey::between(self.flows.affinity(), key) == group,
            Affinity::OutsideAddress => GroupKey::of_address(far.addr) == group,
            // A reply from outside finds its block's owner; a reply from inside names its host
            // itself.
            _ if packet.exit() == Side::Outside => {
                self.flows.owners.owner(near) == Some(group)
                    || self.inside_group(near, packet.protocol()) == group
            }
            _ => self.inside_group(near, packet.protocol()) == group,
        };
        if !known {
            self.flows.header_mut(actor).flags |= flag::ANNOUNCED;
            self.out.announce(Message::Routed(GroupKey::of_flow(key)));
        }
    }

    pub fn inside_group(&self, inside: nf::Endpoint, protocol: u8) -> GroupKey {
        match self.flows.affinity() {
            Affinity::InsideEndpoint => GroupKey::of_endpoint(inside, protocol),
            _ => GroupKey::of_address(inside.addr),
        }
    }

    /// A flow has got its reply key.
    pub fn observe_reply_key(&mut self, actor: u32, key: FlowKey, packet: &Packet) {
        if self.out.tap.is_none() {
            return;
        }
        let first = self.flows.header(actor).key;
        let Ends { source, destination } = Ends::of(packet);
        self.out.observe(packet, Event::ReplyKey { source, destination });
        if let Some(tap) = &mut self.out.tap {
            tap.learn_both(first, key);
        }
    }

    /// A reply key was refused whose flow cannot end now.
    pub fn note_refused(&mut self, key: FlowKey) {
        // Reply keys of flows that are here, each once.
        self.sessions.refused.insert(*key.words());
    }
}

/// The group that owns an outside endpoint by configuration.
pub(crate) fn owner_by_plan(
    plan: &crate::chain::Plan,
    affinity: Affinity,
    outside: nf::Endpoint,
    protocol: u8,
) -> Option<GroupKey> {
    let inside = plan.owner_of(outside, protocol)?;
    Some(match affinity {
        Affinity::InsideEndpoint => GroupKey::of_endpoint(inside, protocol),
        _ => GroupKey::of_address(inside.addr),
    })
}
