//! Flows in a data store: a runtime's ledger of its flows and groups, from which they go on after
//! every process was killed (StatelessNF; FlexState III-C, write-behind).
//!
//! # Theory of operation
//!
//! The ledger is a map of the runtime's partition `replication` (`variables`): whole flows and
//! whole groups as bytes ([`form`]), each under a number that is given once. A packet of a chain
//! with the policy `store` that changes committed bytes notes its flow ([`noting`]); no packet of
//! it waits. Its other changes are written within `lazy` ([`lazy`]).
//!
//! ```text
//!   packet ─► chain ─► noted: flow in the queue, group marked          ends, as they come
//!               │         │ `interval` later, some flows a step              │
//!       touched ▼         ▼                                                  ▼
//!        walk ──► group, if marked ─► flow ───────► map ◄────────────── entry removed
//!                                                   │ at once
//!                                                   ▼
//!                                        the store's agent (`stores`) ══► store
//! ```
//!
//! A flow is in the queue once, however many packets pass. So a packet's changes are handed to the
//! store's agent `interval` later, and the store has them when the agent's call is done: that is
//! the window of loss. Entries are dated by the packet: ages at the store are that window. A flow's
//! state is written as it is then, so a flow may be ahead of another by that much; but a group is
//! written before each flow of it that knows more, and the store takes a batch whole. So no flow in
//! the store has a port of a block that its group does not have there.
//!
//! *Numbers.* An entry's number is never given again. An actor's place may have another flow before
//! the store has heard of the last one's end, and a batch may be cut between the two.
//!
//! *Blocks of ports* are part of their group's entry: both change in the same packets.
//!
//! *A group that rests* ([`crate::flows::resting`]) has an entry with the time that it has left:
//! from its rest on, though none of its flows had one.
//!
//! # After the kill
//!
//! ```text
//!   map, loaded ─► checked ([`restore`]) ─► copies as a replica has them ─► `recovery`: blocks, groups, flows, arrived(Recovered)
//!                                                                              │ nothing is announced: no switch has met this incarnation
//!   switch: reads no port before every runtime has told ◄── routes, reply keys, blocks, *all told* (`worker::sessions`)
//! ```
//!
//! All of it is installed before the runtime's first step, and told as to a switch that restarts.
//! So no packet opens a flow that is in the store, and of two runtimes that have one group (it
//! moved just before the kill) the second to tell it learns that it is taken.
//!
//! *Clocks.* An entry has what the worker's clock and the wall clock showed when it was written.
//! The difference of both says by how much times in states are re-based, and the wall clock alone
//! for how long the flow had no process: its deadline goes on meanwhile.
//!
//! *Layouts.* An entry has a digest of the states that its functions keep: names, versions,
//! layouts, in the chain's order. An entry of another digest is refused and removed, and an event
//! says so. It is never interpreted.
//!
//! # Packets that wait
//!
//! Of a chain with the policy `store_commit` a packet that changes committed bytes is written at
//! once, and waits until the store has that ([`through`]).
//!
//! # Moves
//!
//! Source and target of a move have partitions of their own, so for a moment both have records of
//! the group. Which may write which, and when, is in [`handed`].
//!
//! Invariants: an actor is in the queue at most once, and has a bit at most besides; an entry has
//! one flow or group; a chain without the policy notes nothing; bytes of the store are checked
//! before they are a state, as those of a peer are.
//!
//! Not here: the store and its agent (`stores`); copies at another runtime ([`super`]).

pub(crate) mod form;
pub(crate) mod handed;
mod lazy;
pub(crate) mod noting;
pub(crate) mod restore;
pub(crate) mod through;
mod writing;

use crate::chain::Plan;
use crate::flows::actor::{Header, Phase};
use crate::parts::Core;
use crate::replica::policy::{Policy, Storing};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nf::Affinity;
use nf::variables::{Bytes, Map, Near};

/// Flows and groups written in a step.
const WRITES: usize = 64;
/// In the queue: it is a group.
const GROUP: u32 = 1 << 31;

/// The ledger's facts about a flow's actor, or a group's place.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The number of its entry; 0 for none.
    entry: u64,
    /// Where the map has that.
    near: Near,
    is_queued: bool,
    /// Of a group: it has changed since it was written.
    is_changed: bool,
    /// Of a group that rests: it gets an entry, though none of its flows has one.
    is_wanted: bool,
    /// Of a group: it comes from another runtime, and not all of its flows are written.
    is_coming: bool,
    /// Its entry at the store may lack changes that packets were to wait for.
    is_behind: bool,
}

/// In the queue.
#[derive(Clone, Copy)]
struct Queued {
    /// An actor, or a group with [`GROUP`].
    place: u32,
    /// When it is to be written.
    at: u64,
    /// Since when it is other than at the store.
    since: u64,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct Ledger {
    is_on: bool,
    interval: u64,
    /// The time of the wall clock where the worker's shows 0.
    wall: u64,
    /// Chains with the policy, a bit each.
    chains: u64,
    /// The same of flows that are yet to be asked whether they go on: their generation, by which
    /// chains have other numbers. Such are not written; the remains of their ends are.
    chains_before: Option<(u8, u64)>,
    /// By chain, the layout in its flows' entries; and the layout in groups' entries.
    layouts: Vec<form::Layout>,
    /// By chain, the facts that its packets are compared by.
    kept: Vec<noting::Kept>,
    /// Whether no group is to be noted before packets.
    is_simple: bool,
    /// Whether flows have groups.
    has_groups: bool,
    group_layout: u64,
    /// The next entry's number.
    next: u64,
    flows: Vec<Place>,
    groups: Vec<Place>,
    /// Actors, and groups, and when they are to be written, in that order.
    queue: VecDeque<Queued>,
    /// How long ago the change that is written now was made.
    age: u64,
    lazy: lazy::Lazy,
    /// Memory of entries that are gone.
    spares: Vec<Bytes>,
    /// A policy has changed: the next actor to be looked at.
    walk: Option<u32>,
    /// The flows and groups that packets wait for.
    through: through::Through,
    handed: handed::Handed,
}

impl Ledger {
    /// Whether flows are written.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// When the next flow is to be written.
    pub fn next_at(&self) -> Option<u64> {
        let queued = self.queue.front().map(|queued| queued.at);
        queued.into_iter().chain(self.lazy.next_at()).min()
    }

    /// Whether any chain's flows are in the store.
    pub fn is_for_any(&self) -> bool {
        self.chains != 0
    }

    fn has_policy(&self, chain: u8) -> bool {
        self.chains >> (chain % 64) & 1 == 1
    }

    /// The same of a chain that flows of this generation go by.
    fn has_policy_of(&self, (generation, chain): (u8, u8)) -> bool {
        match self.chains_before {
            Some((before, chains))
                if before == generation && !crate::replica::is_broken("chains are of generations") =>
            {
                chains >> (chain % 64) & 1 == 1
            }
            _ => self.has_policy(chain),
        }
    }

    /// Another configuration is about to be in force, behind this generation.
    pub fn follow(&mut self, before: u8) {
        self.chains_before = Some((before, self.chains));
    }

    /// Whether packets of this flow have had written what they commit.
    fn is_whole(&self, actor: u32, chain: u8) -> bool {
        let known = self.flows.get(actor as usize);
        self.waits(chain) && known.is_some_and(|known| known.entry != 0 && !known.is_behind)
    }

    /// The chains of another configuration, or their policies, are in force.
    pub fn set_policies(&mut self, policies: &[Policy], plan: &Plan) {
        let bits = policies.iter().zip(0..64);
        let (mut chains, mut waiting) = (0, 0);
        for (policy, chain) in bits {
            chains |= u64::from(policy.is_stored()) << chain;
            waiting |= u64::from(*policy == Policy::StoreCommit) << chain;
        }
        if self.through.set_chains(waiting) {
            // They were written later than their packets left.
            let places = self.flows.iter_mut().chain(&mut self.groups);
            places.for_each(|place| place.is_behind = true);
        }
        self.layouts = form::layouts(plan);
        self.group_layout = form::group_layout(plan);
        if chains != self.chains && self.is_on {
            self.walk = Some(0);
        }
        self.chains = chains;
    }

    /// A packet of a flow has run its chain.
    #[inline]
    fn note(&mut self, actor: u32, header: &Header, now: u64) {
        let has_policy = self.has_policy(header.chain);
        if let Some(group) = self.groups.get_mut(header.group as usize) {
            group.is_changed = true;
            // Its own flows are not written, but those of another chain may be.
            let is_alone = !has_policy && group.entry != 0;
            if is_alone && !core::mem::replace(&mut group.is_queued, true) {
                self.put(header.group | GROUP, now);
            }
        }
        // A flow that has lost the policy has an entry yet.
        if let Some(flow) = self.flows.get_mut(actor as usize)
            && (has_policy || flow.entry != 0)
            && !core::mem::replace(&mut flow.is_queued, true)
        {
            self.put(actor, now);
        }
    }

    /// A group has changed behind its packets, or rests from now on. `is_wanted`: it gets an entry,
    /// if it has none.
    pub fn note_group(&mut self, index: u32, is_wanted: bool, now: u64) {
        if let Some(group) = self.groups.get_mut(index as usize)
            && (group.entry != 0 || is_wanted)
        {
            group.is_changed = true;
            group.is_wanted |= is_wanted;
            if !core::mem::replace(&mut group.is_queued, true) {
                self.put(index | GROUP, now);
            }
        }
    }

    /// A place is to be written: it is other than at the store from now on.
    fn put(&mut self, place: u32, now: u64) {
        self.queue.push_back(Queued {
            place,
            at: now.saturating_add(self.interval),
            since: now,
        });
    }

    /// The next that is due.
    fn next(&mut self, now: u64) -> Option<Queued> {
        self.queue.pop_front_if(|queued| queued.at <= now)
    }

    fn remove(&mut self, entries: &Map<u64, Bytes>, is_group: bool, index: u32) {
        let places = if is_group {
            &mut self.groups
        } else {
            &mut self.flows
        };
        let Some(place) = places.get_mut(index as usize) else {
            return;
        };
        if !is_group {
            self.lazy.forget(index);
        }
        let entry = core::mem::take(&mut place.entry);
        *place = Place {
            is_queued: place.is_queued,
            ..Place::default()
        };
        if entry != 0
            && let Ok(Some(mut bytes)) = entries.remove(&entry)
        {
            bytes.0.clear();
            self.spares.push(bytes);
        }
    }

    /// Writes an entry; whether the map took it.
    fn write(
        &mut self,
        entries: &Map<u64, Bytes>,
        is_group: bool,
        index: u32,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let places = if is_group {
            &mut self.groups
        } else {
            &mut self.flows
        };
        let Some(place) = places.get_mut(index as usize) else {
            return false;
        };
        let (number, fresh) = match place.entry {
            0 => (self.next, self.spares.pop().unwrap_or_default()),
            known => (known, Bytes::default()),
        };
        let written = entries.change_near(&number, (&mut place.near, self.age), fresh, |bytes| {
            bytes.0.clear();
            write(&mut bytes.0);
        });
        if written.is_ok() && place.entry == 0 {
            place.entry = number;
            self.next += 1;
        }
        written.is_ok()
    }
}

impl Core {
    /// Has flows written from now on, if the runtime is to, and a store has room for them; answers
    /// whether.
    pub fn open_ledger(&mut self) -> bool {
        let Some(Storing { interval, lazy, .. }) = self.settings.storing else {
            return false;
        };
        let wall = self.settings.wall;
        if self.runner.stages().ledger.is_none() {
            return false;
        }
        let (flows, groups) = (self.flows.capacity(), self.settings.groups(self.flows.affinity()));
        self.ledger = Ledger {
            interval,
            wall,
            next: 1,
            lazy: lazy::Lazy::new(flows, lazy, interval),
            has_groups: self.flows.affinity() != Affinity::Flow,
            flows: alloc::vec![Place::default(); flows],
            groups: alloc::vec![Place::default(); groups],
            ..Ledger::default()
        };
        self.flows.note_ends();
        self.flows.owners.note_groups();
        self.copy_as_configured();
        true
    }

    /// From here on what packets change is written.
    pub fn begin_storing(&mut self) {
        self.ledger.is_on = true;
        self.wait_for_store_as_configured();
        self.follow();
    }

    /// A flow has come from another runtime, or goes on under another configuration.
    pub fn note_arrived(&mut self, actor: u32) {
        self.sender.note_arrived(actor);
        self.ledger.forget_observed();
        self.note_stored(actor);
    }

    /// A flow may have changed, and what it was is not known.
    #[inline(always)]
    pub fn note_stored(&mut self, actor: u32) {
        if self.ledger.is_on {
            self.note_now(actor);
        }
    }

    #[inline(never)]
    fn note_now(&mut self, actor: u32) {
        if self.ledger.has_waiting() {
            self.commit_stored_rest(actor);
        }
        self.note(actor);
        self.ledger.forget_observed();
    }

    /// Writes entries that are due; answers how much was done.
    #[inline]
    pub fn go_on_storing(&mut self) -> usize {
        if !self.ledger.is_on {
            return 0;
        }
        self.store_ends();
        self.note_blocks();
        let is_due = self
            .ledger
            .queue
            .front()
            .is_some_and(|queued| queued.at <= self.now);
        if is_due || self.ledger.walk.is_some() || self.ledger.lazy.is_due(self.now) {
            return self.store_some(self.now, WRITES);
        }
        0
    }

    /// The runtime ends: its flows stay in the store as they are.
    #[cold]
    pub fn close_ledger(&mut self) {
        if self.ledger.is_on {
            self.store_ends();
            self.note_blocks();
            while self.store_some(u64::MAX, usize::MAX) > 0 {}
            while let Some(actor) = self.ledger.lazy.any() {
                self.ledger.lazy.forget(actor);
                self.store_flow(actor);
            }
            self.ledger.is_on = false;
            self.follow();
        }
    }

    #[cold]
    fn store_some(&mut self, now: u64, budget: usize) -> usize {
        let mut count = 0;
        while count < budget {
            if let Some(queued) = self.ledger.next(now) {
                count += 1;
                // A window of loss begins with the packet, not with the writing of its changes.
                self.ledger.age = self.now.saturating_sub(queued.since);
                self.store_place(queued, now == u64::MAX);
                self.ledger.age = 0;
                continue;
            }
            let Some(actor) = self.ledger.walk else {
                break;
            };
            count += 1;
            self.walk_stored(actor);
        }
        count + self.store_touched(budget - count)
    }

    /// Goes on with flows of which only lazy bytes have changed.
    fn store_touched(&mut self, budget: usize) -> usize {
        let used = self.flows.used();
        self.ledger.lazy.begin_part(self.now, used);
        let Some(entries) = self.runner.stages().ledger.clone() else {
            return 0;
        };
        let mut count = 0;
        while count < budget && entries.changes().saturating_sub(entries.stored_up_to()) < lazy::BEHIND_MAX {
            let Some(actor) = self.ledger.lazy.next(used) else {
                break;
            };
            count += 1;
            self.ledger.lazy.forget(actor);
            if !self.store_flow(actor) {
                self.ledger.lazy.touch(actor, self.now);
                break;
            }
        }
        count
    }

    /// Behind a change of policies: a flow that has the policy is noted, and so is a flow with an
    /// entry.
    fn walk_stored(&mut self, actor: u32) {
        if actor >= self.flows.used() {
            self.ledger.walk = None;
            return;
        }
        self.ledger.walk = Some(actor + 1);
        let header = *self.flows.header(actor);
        if header.phase == Phase::Free || self.is_to_be_judged(actor) {
            return;
        }
        self.note(actor);
    }

    fn store_place(&mut self, queued: Queued, is_last: bool) {
        let place = queued.place;
        let index = place & !GROUP;
        let is_group = place & GROUP != 0;
        let places = match is_group {
            true => &mut self.ledger.groups,
            false => &mut self.ledger.flows,
        };
        let Some(known) = places.get_mut(index as usize) else {
            return;
        };
        known.is_queued = false;
        let is_written = match is_group {
            true => known.entry == 0 && !known.is_wanted || self.store_group(index),
            false => self.store_flow(index),
        };
        if !is_written && !is_last {
            // The store has yet to hear of others that are gone: there is no room before.
            let at = self.now.saturating_add(self.ledger.interval.max(1_000_000));
            let places = match is_group {
                true => &mut self.ledger.groups,
                false => &mut self.ledger.flows,
            };
            if let Some(known) = places.get_mut(index as usize) {
                known.is_queued = true;
            }
            self.ledger.queue.push_back(Queued { at, ..queued });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_flows_that_are_yet_to_be_asked_have_the_numbers_of_before() {
        let mut ledger = Ledger {
            chains: 0b10,
            ..Ledger::default()
        };
        ledger.follow(7);
        // The chains change places.
        ledger.chains = 0b01;
        let is_stored = |ledger: &Ledger| [(7, 0), (7, 1), (8, 0), (8, 1)].map(|of| ledger.has_policy_of(of));
        assert_eq!(is_stored(&ledger), [false, true, true, false]);
        crate::replica::BROKEN.set("chains are of generations");
        let by_number = is_stored(&ledger);
        crate::replica::BROKEN.set("");
        assert_eq!(by_number, [true, false, true, false], "the rule is broken");
    }
}
