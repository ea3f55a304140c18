//! Which runtime has a group: any key, a group's own or a flow's reply key, leads to a route; a
//! block of ports leads to a group (`blocks`).
//!
//! # Theory of operation
//!
//! A route begins when a runtime is chosen ([`Directory::add`]) or by a runtime's message
//! (`Routed`). It ends by a runtime's message alone (`GroupEmpty`), and only if nothing has been
//! sent for it since. A runtime says so when its last flow of the group ends. Two cases are left in
//! which no flow of the group ends there, so that no runtime would say it:
//!
//! - The packet that made the route began no flow of the group: it met a flow that another group
//!   opened (both ends of an exchange that is not between inside and outside may send), or its
//!   block of ports has changed hands on its way.
//! - *GroupEmpty* came while packets were on their way, and these do not begin the group again
//!   either.
//!
//! In both the route is *suspect*, and its runtime is *probed*, behind everything that was sent for
//! it: a runtime without the group says idle again, which ends the route as ever; a runtime with
//! the group is silent, and will say so in time.
//!
//! ```text
//!   chosen, or GroupEmpty refused ─► suspect ──probe, in band──► the runtime has it: silence, the route stays
//!                                                    └────► it has not: GroupEmpty with the count, the route ends or is suspect again
//! ```
//!
//! Each probe has a packet, or a *GroupEmpty*, before it, so there are no more of them than these.
//! Where flows are by themselves a route that was chosen is not probed: such a packet begins or
//! meets the flow whose key its route has, or is declined, which says idle. A *GroupEmpty* that is
//! refused is probed there, too: no packet was sent for a route that a runtime's message has made,
//! or turned.
//!
//! *A runtime that has gone* has taken all its flows with it: no other can have them active, so a
//! packet of theirs may begin them again anywhere. Routes are looked through some each step; a
//! packet that meets one before, ends it and is routed again. A route knows by which *incarnation*
//! of its runtime it was made, so a runtime that restarts gets nothing that was its predecessor's.
//! A group whose target goes before it has said that it is installed is still its source's: the
//! route goes back there, once no heir of the target has announced the group. If the source goes
//! first, the target has the group or will say that it has not: it is probed. A key re-routed to a
//! runtime that this switch has not met stays with the source until that one says that it has it,
//! and is that one's from then on.
//!
//! Invariants: a group has one route, at its home; a route for which nothing is on its way has a
//! group at its runtime, or a probe or a *GroupEmpty* on the way (`one_home_per_group`, where
//! nothing is left at the end); a route leads to an incarnation of a runtime that is there, or ends
//! before it is used.
//!
//! Not here: routes of groups that move (`moves`), which runtime is chosen (`choice`), links.

mod blocks;
mod keys;
mod moves;
mod route;
#[cfg(test)]
mod tests;

pub(super) use blocks::{BlockStart, Blocks};

use super::SwitchSettings;
use super::outbox::{Outbox, PROBES};
use crate::env::Port;
use crate::group::GroupKey;
use crate::message::Message;
use crate::stats::DropReason;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use hashbrown::HashMap;
use keys::Keys;
use nf::Affinity;
use protocols::ownership::recovery::{Course, Standing};
use protocols::ownership::{Epoch, RuntimeId, SwitchMessage};
use route::{AWAITED, NO_RUNTIME, Route, SUSPECT};
use wire::memory::{Region, prefetch};
use wire::packet::flag;
use wire::{FlowKey, HashSeed, PacketBox, planted};

/// Routes looked at in a step.
const LOOKS: usize = 512;
/// Reply keys that were rejected and whose flows have not ended yet, as far as is known, at most.
const REJECTED: usize = 64;

/// The directory's facts about a runtime.
#[derive(Clone, Copy, Default)]
struct RuntimeEntry {
    is_there: bool,
    /// The incarnation before has failed, and its routes stay until it is known where they lead.
    is_suspended: bool,
    /// The incarnation before is at the link again: its routes lead to this one.
    is_back: bool,
    /// How many were before it.
    incarnation: u16,
    /// Packets sent in this session, counted as the runtime counts what it consumes.
    sent: u64,
    sent_total: u64,
    groups: u64,
}

/// A key on its way to a runtime that this switch has not met.
#[derive(Clone, Copy)]
struct Pending {
    source: u16,
    target: u16,
    epoch: Epoch,
}

/// A key without a route, of a group that its source takes back from a target that is gone.
#[derive(Clone, Copy)]
struct Unrouted {
    source: u16,
    epoch: Epoch,
}

/// See the module's page.
pub(super) struct Directory {
    affinity: Affinity,
    seed: HashSeed,
    keys: Keys,
    /// Routes whose keys have been moved since the tables grew: those below.
    moved: usize,
    routes: Vec<Route>,
    routes_max: usize,
    free: Vec<u32>,
    /// Routes to be probed, each once.
    suspects: VecDeque<u32>,
    /// Routes not looked at since a session ended: those below.
    unseen: usize,
    reply_keys: usize,
    /// Reply keys that got no route, with their runtimes and why.
    rejected: ArrayVec<(GroupKey, usize, DropReason), REJECTED>,
    pending: HashMap<GroupKey, Pending>,
    unrouted: HashMap<GroupKey, Unrouted>,
    /// By runtime: a group that it takes back, of whose keys, which it is saying, one waits.
    waiting: Vec<Option<GroupKey>>,
    runtimes: Vec<RuntimeEntry>,
    /// Which group has which block.
    pub blocks: Blocks,
}

impl Directory {
    pub fn new(
        settings: &SwitchSettings,
        affinity: Affinity,
        runtimes: usize,
        memory: &mut impl FnMut(usize) -> Region,
    ) -> Self {
        let routes = settings.routes_max as usize;
        Directory {
            affinity,
            seed: settings.seed,
            keys: Keys::new(routes, memory),
            moved: 0,
            routes: Vec::with_capacity(routes),
            routes_max: routes,
            free: Vec::with_capacity(routes),
            suspects: VecDeque::with_capacity(routes),
            unseen: 0,
            reply_keys: 0,
            rejected: ArrayVec::new(),
            pending: HashMap::new(),
            unrouted: HashMap::new(),
            waiting: alloc::vec![None; runtimes],
            runtimes: alloc::vec![RuntimeEntry::default(); runtimes],
            blocks: Blocks::new(
                if affinity == Affinity::Flow { 0 } else { routes },
                runtimes,
                settings.seed,
            ),
        }
    }

    /// Has room for so many routes from now on, if that is more than before: runtimes have come for
    /// which there was none.
    #[cold]
    pub fn make_room(&mut self, most: usize, memory: &mut impl FnMut(usize) -> Region) {
        if most <= self.routes_max {
            return;
        }
        self.keys.make_room(most, memory);
        self.routes.reserve_exact(most - self.routes.len());
        self.free.reserve_exact(most - self.free.len());
        self.suspects.reserve_exact(most - self.suspects.len());
        if self.affinity != Affinity::Flow {
            self.blocks.make_room(most);
        }
        self.routes_max = most;
    }

    // Finding.

    /// The hash of a key in the table.
    #[inline(always)]
    pub fn hash(&self, key: &GroupKey) -> u64 {
        key.hash(&self.seed)
    }

    /// Asks the processor for the line that finding a key of this hash begins with.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.keys.prefetch(hash);
    }

    /// The route that has, by all likelihood, a key of this hash; the processor is asked for its
    /// line.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let index = self.keys.candidate(hash)?;
        prefetch(self.routes.as_ptr().wrapping_add(index as usize));
        Some(index)
    }

    /// Whether a route has this key.
    #[inline(always)]
    pub fn has_key(&self, index: u32, key: &GroupKey) -> bool {
        self.routes[index as usize].key == *key
    }

    /// The route of a key of this hash.
    #[inline]
    pub fn find_hashed(&self, hash: u64, key: &GroupKey) -> Option<u32> {
        self.keys.find(hash, |index| self.has_key(index, key))
    }

    /// The route of a key.
    #[inline]
    pub fn find(&self, key: &GroupKey) -> Option<u32> {
        self.find_hashed(self.hash(key), key)
    }

    /// The route of a key that leads to a runtime that is there.
    pub fn find_live(&mut self, key: &GroupKey) -> Option<u32> {
        let index = self.find(key)?;
        (!self.is_forgetting() || self.look_at(index)).then_some(index)
    }

    /// Asks the processor for the routes of a frame's keys, if it is about groups that move: they
    /// do so many at a time.
    pub fn prefetch_rerouted(&self, frame: &[u8]) {
        for key in Message::keys_rerouted(frame) {
            self.prefetch(self.hash(&key));
        }
        for key in Message::keys_rerouted(frame) {
            self.candidate(self.hash(&key));
        }
    }

    /// Where a route leads.
    #[inline(always)]
    pub fn runtime(&self, index: u32) -> usize {
        usize::from(self.routes[index as usize].runtime)
    }

    /// Which runtime gave a route's group away last, and in which change of hands.
    pub fn moved(&self, index: u32) -> Option<(u16, Epoch)> {
        let route = self.routes.get(index as usize)?;
        (route.source != NO_RUNTIME).then_some((route.source, route.epoch))
    }

    /// Counts a packet that was sent by a route.
    #[inline(always)]
    pub fn count_sent(&mut self, index: u32) {
        let route = &mut self.routes[index as usize];
        let entry = &mut self.runtimes[usize::from(route.runtime)];
        entry.sent += 1;
        entry.sent_total += 1;
        route.set_last_sent(entry.sent);
    }

    /// Whether reply keys have routes of their own.
    #[inline(always)]
    pub fn has_reply_keys(&self) -> bool {
        self.reply_keys > 0
    }

    // Beginning and end.

    /// A group gets a route to a runtime that was chosen; `None` if there is no room. The packet
    /// that it is for may begin no flow of the group.
    pub fn choose(&mut self, key: GroupKey, runtime: usize) -> Option<u32> {
        let index = self.add(key, runtime)?;
        if self.affinity != Affinity::Flow {
            self.suspect(index);
        }
        Some(index)
    }

    fn add(&mut self, key: GroupKey, runtime: usize) -> Option<u32> {
        if self.free.is_empty() && self.routes.len() == self.routes_max {
            return None;
        }
        let index = self.free.last().copied().unwrap_or(self.routes.len() as u32);
        let hash = self.hash(&key);
        if self.keys.insert(hash, index).is_err() {
            self.move_keys(usize::MAX);
            if !self.keys.grow() || self.keys.insert(hash, index).is_err() {
                return None;
            }
            self.moved = 0;
        }
        let entry = &mut self.runtimes[runtime];
        let mut route = Route::new(key, runtime as u16, entry.incarnation, entry.sent);
        entry.groups += 1;
        match self.free.pop() {
            Some(index) => {
                let place = &mut self.routes[index as usize];
                route.set(SUSPECT, place.has(SUSPECT));
                *place = route;
            }
            None => self.routes.push(route),
        }
        self.reply_keys += usize::from(key.is_reply_key(self.affinity));
        Some(index)
    }

    fn remove(&mut self, index: u32) {
        let Route { key, runtime, .. } = self.routes[index as usize];
        self.forget_pending(&key);
        self.keys.remove(self.hash(&key), index);
        self.routes[index as usize].runtime = NO_RUNTIME;
        self.free.push(index);
        self.runtimes[usize::from(runtime)].groups -= 1;
        self.reply_keys -= usize::from(key.is_reply_key(self.affinity));
    }

    /// A runtime says that it has a group, or a flow with a reply key.
    pub fn routed<L: Port>(
        &mut self,
        runtime: usize,
        key: GroupKey,
        is_heir_of: impl Fn(usize) -> bool,
        goes_on: impl Fn() -> bool,
        outbox: &mut Outbox<L>,
    ) {
        let found = self.find_live(&key);
        if let Some(index) = found
            && let standing = self.standing(index)
            && standing.is_taken_over(is_heir_of(self.runtime(index)), is_heir_of(self.source(index)))
        {
            let (failed, source) = (self.runtime(index), self.source(index));
            let epoch = standing.fences_source(self.routes[index as usize].epoch);
            if let Some(epoch) = epoch.filter(|_| source != runtime && !key.is_reply_key(self.affinity))
                && !crate::replica::is_broken("sources hear of heirs")
            {
                outbox.push_message(source, Message::Switch(key, SwitchMessage::Fenced(epoch)));
            }
            self.set_source(index, None, Epoch::default());
            self.routes[index as usize].set(AWAITED, false);
            if failed != runtime && self.runtimes[failed].is_there {
                // It may be the same incarnation, which has told what it has.
                outbox.push_message(failed, Message::RouteConflict(key));
            }
            return self.turn(index, runtime as u16);
        }
        if let Some(index) = found
            && let Some(Pending {
                source,
                target,
                epoch,
            }) = self.pending.get(&key).copied()
            && usize::from(source) == self.runtime(index)
            && usize::from(source) != runtime
            && is_heir_of(usize::from(target))
        {
            // The target had it installed before this switch began.
            if !key.is_reply_key(self.affinity) {
                let fenced = Message::Switch(key, SwitchMessage::Fenced(epoch.next()));
                outbox.push_message(usize::from(source), fenced);
            }
            self.forget_pending(&key);
            self.set_source(index, None, Epoch::default());
            self.routes[index as usize].set(AWAITED, false);
            return self.turn(index, runtime as u16);
        }
        if let Some(index) = found {
            self.on_met(index, runtime as u16);
        }
        if let Some(Unrouted { source, epoch }) = self.unrouted.remove(&key)
            && usize::from(source) != runtime
            && !key.is_reply_key(self.affinity)
        {
            outbox.push_message(
                usize::from(source),
                Message::Switch(key, SwitchMessage::Fenced(epoch.next())),
            );
        }
        let reason = match found {
            // An existing route wins: its flow is older. So is one of an incarnation before, which
            // an heir may go on with; unless what that incarnation had is here.
            Some(index) if self.runtime(index) != runtime || (self.is_suspended(index) && !goes_on()) => {
                DropReason::ReplyKeyTaken
            }
            None if self.add(key, runtime).is_none() => DropReason::RoutesFull,
            _ => return,
        };
        if self.rejected.is_full() {
            // As far as is remembered; the oldest is over by now, or its flow goes without replies.
            self.rejected.remove(0);
        }
        self.rejected.push((key, runtime, reason));
        // Before the route barrier is acknowledged, which lets go packets that wait of its flow.
        outbox.push_message(runtime, Message::RouteConflict(key));
    }

    /// A runtime has the group of a route: if that was on its way there before this switch had met
    /// it, it leads there.
    fn on_met(&mut self, index: u32, runtime: u16) {
        let Route {
            key, runtime: has, ..
        } = self.routes[index as usize];
        if has == runtime {
            // It has come back, or says behind this where it goes.
            return self.forget_pending(&key);
        }
        let pending = self.pending.get(&key).copied();
        let Some(Pending { epoch, .. }) = pending.filter(|key| (key.source, key.target) == (has, runtime))
        else {
            return;
        };
        self.turn(index, runtime);
        self.set_source(index, Some(RuntimeId(has)), epoch);
        self.routes[index as usize].set(AWAITED, false);
    }

    /// Whether sources that take groups back have yet to ask again for keys without a route.
    pub fn has_unrouted(&self) -> bool {
        !self.unrouted.is_empty()
    }

    /// Whether any reply key is rejected.
    #[inline(always)]
    pub fn has_rejected(&self) -> bool {
        !self.rejected.is_empty()
    }

    /// Why a packet from a runtime is dropped, if it belongs to a flow whose reply key was
    /// rejected.
    #[cold]
    pub fn rejection(&self, runtime: usize, packet: &PacketBox) -> Option<DropReason> {
        let (key, way) = FlowKey::of(packet)?;
        let key = if packet.has(flag::HAIRPIN) {
            key.turned(way.reversed())
        } else {
            key
        };
        let wanted = (GroupKey::of_flow(key), runtime);
        let mut rejected = self.rejected.iter();
        rejected.find_map(|(key, to, reason)| ((*key, *to) == wanted).then_some(*reason))
    }

    /// A runtime says that a group has no flow there, so many packets having been consumed.
    pub fn group_empty(&mut self, runtime: usize, key: GroupKey, consumed: u64) {
        self.rejected.retain(|(its, to, _)| (*its, *to) != (key, runtime));
        let Some(index) = self.find_live(&key) else {
            return;
        };
        let route = &self.routes[index as usize];
        if usize::from(route.runtime) != runtime || route.has(AWAITED) {
            return;
        }
        // Packets were sent since: the runtime has begun the group again, or will, as a rule; but
        // not if a message has made the route, or turned it: then all those packets are others'.
        if consumed < route.last_sent() && !planted::is("route_over_too_early") {
            return self.suspect(index);
        }
        self.remove(index);
    }

    // Suspicion.

    fn suspect(&mut self, index: u32) {
        let route = &mut self.routes[index as usize];
        if !route.has(SUSPECT) {
            route.set(SUSPECT, true);
            // Each place is in it once at most.
            self.suspects.push_back(index);
        }
    }

    /// Whether routes are to be probed.
    pub fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Probes suspect routes, behind everything that was sent for them; routes of runtimes without
    /// room now come later. Answers how many.
    pub fn probe<L: Port>(&mut self, outbox: &mut Outbox<L>) -> usize {
        let mut probed = 0;
        for _ in 0..PROBES {
            let Some(&index) = self.suspects.front() else {
                break;
            };
            let is_live = !self.is_forgetting() || self.look_at(index);
            let Route { key, runtime, .. } = self.routes[index as usize];
            if is_live && runtime != NO_RUNTIME {
                if !outbox.has_room_for_probe(usize::from(runtime)) {
                    // Other runtimes may have room.
                    self.suspects.rotate_left(1);
                    continue;
                }
                outbox.push_message(usize::from(runtime), Message::RouteSuspect(key));
                probed += 1;
            }
            self.routes[index as usize].set(SUSPECT, false);
            self.suspects.pop_front();
        }
        probed
    }

    // Moves: more in `moves`.

    fn set_source(&mut self, index: u32, source: Option<RuntimeId>, epoch: Epoch) {
        let route = &mut self.routes[index as usize];
        route.epoch = epoch;
        route.source = source.map_or(NO_RUNTIME, |source| source.0);
        route.source_incarnation =
            source.map_or(0, |source| self.runtimes[usize::from(source.0)].incarnation);
    }

    /// A route leads elsewhere from now on.
    fn turn(&mut self, index: u32, to: u16) {
        let key = self.routes[index as usize].key;
        self.forget_pending(&key);
        let route = &mut self.routes[index as usize];
        let before = usize::from(core::mem::replace(&mut route.runtime, to));
        let entry = &mut self.runtimes[usize::from(to)];
        route.set_last_sent(entry.sent);
        route.incarnation = entry.incarnation;
        entry.groups += 1;
        self.runtimes[before].groups -= 1;
    }

    #[inline]
    fn forget_pending(&mut self, key: &GroupKey) {
        if !self.pending.is_empty() {
            self.pending.remove(key);
        }
    }

    // Runtimes that come and go.

    /// A runtime is there.
    pub fn came(&mut self, runtime: usize) {
        self.runtimes[runtime].is_there = true;
    }

    /// A runtime that was there is not any more.
    pub fn leave(&mut self, runtime: usize) {
        let entry = &mut self.runtimes[runtime];
        (entry.is_there, entry.is_back) = (false, false);
        self.blocks.leave(runtime);
        self.waiting[runtime] = None;
        self.unrouted.retain(|_, key| usize::from(key.source) != runtime);
        entry.incarnation = entry.incarnation.wrapping_add(1);
        entry.sent = 0;
    }

    /// A runtime that was met, and has said nothing, is not there any more.
    pub fn part(&mut self, runtime: usize) {
        let entry = &mut self.runtimes[runtime];
        (entry.is_there, entry.sent) = (false, 0);
        self.blocks.ask_no_more(runtime);
    }

    /// From now on routes to the last incarnation of a runtime stay, or do no more.
    pub fn suspend(&mut self, runtime: usize, is_suspended: bool) {
        self.runtimes[runtime].is_suspended = is_suspended;
        // Routes of groups on their way there go back to their sources.
        self.unseen = self.routes.len();
    }

    /// Whether a route leads to a runtime that is suspended.
    #[inline]
    pub fn is_suspended(&self, index: u32) -> bool {
        let route = &self.routes[index as usize];
        let entry = self.runtimes.get(usize::from(route.runtime));
        entry
            .is_some_and(|entry| entry.is_suspended && route.incarnation.wrapping_add(1) == entry.incarnation)
    }

    /// How a route stands while runtimes go.
    fn standing(&self, index: u32) -> Standing {
        let route = &self.routes[index as usize];
        let entry = |runtime: u16| self.runtimes.get(usize::from(runtime));
        let incarnations = |runtime: u16, incarnation: u16| {
            entry(runtime).is_some_and(|entry| entry.is_there && entry.incarnation == incarnation)
        };
        Standing {
            is_there: incarnations(route.runtime, route.incarnation),
            is_awaited: route.has(AWAITED),
            has_source: incarnations(route.source, route.source_incarnation),
            is_suspended: self.is_suspended(index),
            is_source_suspended: entry(route.source).is_some_and(|entry| {
                entry.is_suspended && route.source_incarnation.wrapping_add(1) == entry.incarnation
            }),
        }
    }

    /// The suspended runtime that a route's packets wait for: the runtime that it leads to, or the
    /// source of a move that its target has not installed.
    #[inline]
    pub fn suspended(&self, index: u32) -> Option<usize> {
        if self.is_suspended(index) {
            return Some(self.runtime(index));
        }
        let waits = self.standing(index).waits_for_source();
        waits.then(|| self.source(index))
    }

    fn source(&self, index: u32) -> usize {
        usize::from(self.routes[index as usize].source)
    }

    /// Routes, blocks and messages of a runtime that is not there any more end.
    pub fn gone<L: Port>(&mut self, runtime: usize, outbox: &mut Outbox<L>) {
        self.rejected.retain(|(_, to, _)| *to != runtime);
        self.unseen = self.routes.len();
        let gone = runtime as u16;
        self.pending
            .retain(|_, key| key.source != gone && key.target != gone);
        self.blocks.gone(runtime, outbox);
    }

    /// A runtime that was let go is there again as it was: its old routes lead to it again. It
    /// disclaims groups that it no longer has when it is asked.
    pub fn back<L: Port>(&mut self, runtime: usize, outbox: &mut Outbox<L>) {
        self.runtimes[runtime].is_back = true;
        self.rejected.retain(|(_, to, _)| *to != runtime);
        self.unseen = self.routes.len();
        self.blocks.back(runtime, outbox);
    }

    /// Has a route lead to an incarnation that is back, as it did.
    fn bring_back(&mut self, index: u32) {
        let route = self.routes[index as usize];
        let is_back = |runtime: u16, incarnation: u16| {
            let entry = self.runtimes.get(usize::from(runtime));
            entry.filter(|entry| entry.is_back && incarnation.wrapping_add(1) == entry.incarnation)
        };
        if let Some(entry) = is_back(route.source, route.source_incarnation) {
            self.routes[index as usize].source_incarnation = entry.incarnation;
        }
        if is_back(route.runtime, route.incarnation).is_some() {
            self.turn(index, route.runtime);
            self.suspect(index);
        }
    }

    /// Whether routes may lead to runtimes that have gone.
    #[inline(always)]
    pub fn is_forgetting(&self) -> bool {
        self.unseen > 0
    }

    /// Goes on with what concerns all routes, some each step; answers how many it looked at.
    #[inline]
    pub fn tidy(&mut self) -> usize {
        match (self.is_forgetting(), self.keys.is_moving()) {
            (false, false) => 0,
            (false, true) => self.move_keys(LOOKS),
            (true, _) => self.forget_some(),
        }
    }

    /// Moves the keys of so many routes into the table that has been begun.
    #[cold]
    fn move_keys(&mut self, most: usize) -> usize {
        let left = self.routes.iter().enumerate().skip(self.moved).take(most);
        let mut looked = 0;
        for (index, route) in left {
            if !self.keys.is_moving() {
                break;
            }
            looked += 1;
            if route.runtime != NO_RUNTIME {
                self.keys.move_entry(route.key.hash(&self.seed), index as u32);
            }
        }
        self.moved += looked;
        looked
    }

    /// Looks through some of the routes for such as lead to no runtime.
    #[cold]
    fn forget_some(&mut self) -> usize {
        let from = self.unseen.saturating_sub(LOOKS);
        let looked = self.unseen - from;
        for index in (from..self.unseen).rev() {
            self.look_at(index as u32);
        }
        self.unseen = from;
        looked
    }

    /// Ends a route that leads to no runtime, or turns it to the runtime that has its group;
    /// whether it is there.
    fn look_at(&mut self, index: u32) -> bool {
        if self.routes[index as usize].runtime == NO_RUNTIME {
            return false;
        }
        self.bring_back(index);
        match Course::of(self.standing(index)) {
            Course::Stays => return true,
            Course::IsAsked => {}
            Course::Returns => self.turn(index, self.routes[index as usize].source),
            Course::Ends => {
                self.remove(index);
                return false;
            }
        }
        self.routes[index as usize].set(AWAITED, false);
        self.suspect(index);
        true
    }

    // Figures.

    /// Routes there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Of these, routes of reply keys.
    pub fn reply_keys(&self) -> usize {
        self.reply_keys
    }

    /// Routes that lead to a runtime.
    pub fn groups(&self, runtime: usize) -> u64 {
        self.runtimes[runtime].groups
    }

    /// Packets sent to each runtime.
    pub fn sent_totals(&self) -> Vec<u64> {
        self.runtimes.iter().map(|entry| entry.sent_total).collect()
    }

    /// As if so many packets of other groups had been sent to each runtime.
    #[cfg(test)]
    pub fn age(&mut self, packets: u64) {
        self.runtimes.iter_mut().for_each(|entry| entry.sent += packets);
    }

    /// The routes there are, and their runtimes.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<(GroupKey, u16)> {
        let routes = self.routes.iter().filter(|route| route.runtime != NO_RUNTIME);
        routes.map(|route| (route.key, route.runtime)).collect()
    }
}
