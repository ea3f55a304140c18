//! The flows of one runtime: their keys, where their state lies, when they are over, and which
//! group they belong to.
//!
//! # Theory of operation
//!
//! ```text
//!   key ─hash─► table ─► actor ─► slab: header │ states │ reply key
//!                          ├────► wheel: when it is looked at
//!                          └────► groups: record ◄─list─► flows         owners: block of ports ─► group
//! ```
//!
//! A flow is in the table by its first key and, once its chain has translated it, by its reply key.
//! A value of the table is the actor's number and, lowest, which of its keys that is. A group's
//! record has the flows that name it in a list.
//!
//! | file | content |
//! |---|---|
//! | `actor` | the slab: headers, phases, states |
//! | `table` | from hashes to values |
//! | `timer` | the lazy wheel |
//! | `group` | groups, their state, their lists of flows |
//! | `resting` | groups that live on without flows |
//! | `owners` | which group has which block of external ports |
//!
//! Invariants: an active, waiting or leaving actor's first key is in the table, its reply key if it
//! has the flag; an actor that names a group is in that group's list.
//!
//! Not here: packets, functions, links, messages. This part calls none of the worker's others.

pub mod actor;
pub mod group;
pub mod owners;
pub mod parting;
pub mod resting;
pub mod table;
pub mod timer;

use actor::{Header, NO_GROUP, Phase, Slab, flag};
use alloc::vec::Vec;
use core::ptr::NonNull;
use group::{GroupKey, Groups};
use nf::Affinity;
use owners::BlockOwners;
use parting::Parting;
use protocols::lending::Borrower;
use resting::Resting;
use table::{Full, Table};
use timer::Wheel;
use wire::memory::Region;
use wire::{FlowKey, HashSeed};

/// How much a [`FlowStore`] has room for.
pub(crate) struct Room {
    /// Flows at once.
    pub flows: usize,
    /// Groups at once; 0 where flows are by themselves.
    pub groups: usize,
    /// Bytes of the longest chain's flow state.
    pub flow_state: usize,
    /// Bytes of a group's state.
    pub group_state: usize,
    /// Whether groups may rest.
    pub rests: bool,
}

/// All flows of a runtime. See the module's page.
pub(crate) struct FlowStore {
    table: Table,
    slab: Slab,
    wheel: Wheel,
    groups: Groups,
    /// Blocks of external ports, by their groups.
    pub owners: BlockOwners,
    /// Blocks that leave this runtime.
    pub parting: Parting,
    /// Blocks that are free here and that other runtimes have lent.
    pub borrowed: Borrower<nf::Block>,
    affinity: Affinity,
    seed: HashSeed,
    /// Where flows are by themselves: how far behind the flow's states its group's begin.
    group_offset: usize,
    /// Flows and groups of which copies may exist and that are over, since they were taken.
    ended: Vec<Ended>,
    /// The same, of all flows and groups, where they are in a store.
    ended_stored: Option<Vec<Ended>>,
}

/// A flow or group that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// A flow, by its actor, and what its header said of its copy.
    Flow(u32, u8),
    /// A group, by its place.
    Group(u32),
    /// A flow of this group, which goes on and knows of that.
    InGroup(u32),
    /// The last flow of this group, which rests; the flow's generation and chain.
    Rests(u32, (u8, u8)),
}

impl FlowStore {
    /// Room for so much, in memory that `memory` provides, zeroed.
    pub fn new(
        room: &Room,
        affinity: Affinity,
        seed: HashSeed,
        now: u64,
        memory: &mut dyn FnMut(usize) -> Region,
    ) -> Self {
        let Room { flows, groups, .. } = *room;
        let group_offset = room.flow_state.next_multiple_of(16);
        // Flows that are by themselves keep their group state, if a function has any, behind their
        // flow state.
        let state = match affinity {
            Affinity::Flow => group_offset + room.group_state,
            _ => room.flow_state,
        };
        let keys = 2 * flows;
        let resting = if room.rests { groups } else { 0 };
        FlowStore {
            table: Table::new(memory(Table::region_length(keys)), keys),
            slab: Slab::new(memory(Slab::region_length(flows, state)), flows, state),
            wheel: Wheel::new(flows, now),
            groups: Groups::new(
                memory(Groups::region_length(groups, room.group_state)),
                memory(Table::region_length(groups)),
                groups,
                flows,
                room.group_state,
                Resting::new(resting, now),
                seed,
            ),
            parting: Parting::default(),
            borrowed: Borrower::default(),
            // A group with a block has a flow in it, rests, or is about to give the block back.
            owners: BlockOwners::listed(
                if affinity == Affinity::Flow {
                    0
                } else {
                    flows + resting
                },
                seed,
            ),
            affinity,
            seed,
            group_offset,
            ended: Vec::new(),
            ended_stored: None,
        }
    }

    /// The ends since this was called last, in order: of flows that were copied, and of groups.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        core::mem::take(&mut self.ended)
    }

    /// Whether anything is.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Hands the memory of that back.
    pub fn give_ended(&mut self, mut ended: Vec<Ended>) {
        if self.ended.is_empty() {
            ended.clear();
            self.ended = ended;
        }
    }

    /// From now on notes ends for a store, too.
    pub fn note_ends(&mut self) {
        self.ended_stored.get_or_insert_default();
    }

    /// Whether anything of that is over.
    #[inline]
    pub fn has_ended_stored(&self) -> bool {
        self.ended_stored.as_ref().is_some_and(|ended| !ended.is_empty())
    }

    /// Those ends since this was called last, in order.
    pub fn take_ended_stored(&mut self) -> Vec<Ended> {
        self.ended_stored
            .as_mut()
            .map(core::mem::take)
            .unwrap_or_default()
    }

    /// Hands the memory of that back.
    pub fn give_ended_stored(&mut self, mut memory: Vec<Ended>) {
        if let Some(ended) = self.ended_stored.as_mut().filter(|ended| ended.is_empty()) {
            memory.clear();
            *ended = memory;
        }
    }

    fn note_end(&mut self, over: Ended) {
        if let Some(ended) = &mut self.ended_stored {
            ended.push(over);
        }
    }

    /// Which flows are together.
    #[inline(always)]
    pub fn affinity(&self) -> Affinity {
        self.affinity
    }

    // Keys.

    /// The hash of a key in the table.
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        key.hash(&self.seed)
    }

    /// Asks the processor for the line that finding a key of this hash begins with.
    #[inline(always)]
    pub fn prefetch_key(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// The value that has, by all likelihood, a key of this hash.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        self.table.candidate(hash)
    }

    /// Whether a value stands for this key, or did.
    #[inline(always)]
    pub fn has_key(&self, value: u32, key: &FlowKey) -> bool {
        self.slab.nth_key(value >> 1, value & 1) == key
    }

    /// The value of a key whose hash this is.
    #[inline]
    pub fn find_hashed(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.table.find(hash, |value| self.has_key(value, key))
    }

    /// The value of a key.
    pub fn find(&self, key: &FlowKey) -> Option<u32> {
        self.find_hashed(self.hash(key), key)
    }

    /// Has a value found by a hash. The caller knows that its key is not there yet.
    #[inline]
    pub fn insert(&mut self, hash: u64, value: u32) -> Result<(), Full> {
        self.table.insert(hash, value)
    }

    /// Takes a new actor whose first key has this hash; `None` if only the spared room is left.
    #[inline]
    pub fn launch(&mut self, hash: u64, spared: usize) -> Option<u32> {
        if self.slab.free() <= spared {
            return None;
        }
        let actor = self.slab.launch()?;
        if self.table.insert(hash, actor << 1).is_err() {
            self.slab.end(actor);
            return None;
        }
        Some(actor)
    }

    /// Takes a launched actor back that is no flow after all.
    pub fn unlaunch(&mut self, hash: u64, actor: u32) {
        self.table.remove(hash, actor << 1);
        self.slab.end(actor);
    }

    /// A flow that came from another runtime is found by its keys from now on. Whether that was
    /// possible: a flow that has one of its keys already keeps it, and the table has room for every
    /// actor's.
    pub fn insert_keys(&mut self, actor: u32) -> bool {
        let keys = [0, 1].map(|which| self.hash(self.slab.nth_key(actor, which)));
        self.insert_hashed(actor, keys)
    }

    /// The same with the hashes of both keys.
    pub fn insert_hashed(&mut self, actor: u32, [first, second]: [u64; 2]) -> bool {
        let header = self.slab.header(actor);
        let mut is_free = self.find_hashed(first, &header.key).is_none();
        let second = (header.flags & flag::REPLY_KEY != 0).then_some(second);
        if let Some(hash) = second {
            is_free &= self.find_hashed(hash, self.slab.reply_key(actor)).is_none();
        }
        let mut fits = self.table.insert(first, actor << 1).is_ok();
        if let Some(second) = second {
            fits &= self.table.insert(second, actor << 1 | 1).is_ok();
        }
        debug_assert!(fits, "the table has room for every actor's keys");
        is_free && fits
    }

    /// A flow is found by its keys no more. Its reply key, if that was announced.
    pub fn remove_keys(&mut self, actor: u32) -> Option<GroupKey> {
        let header = *self.slab.header(actor);
        let removed = self.table.remove(self.hash(&header.key), actor << 1);
        debug_assert!(removed, "a flow's key is in the table");
        if header.flags & flag::REPLY_KEY == 0 {
            return None;
        }
        let key = *self.slab.reply_key(actor);
        self.table.remove(self.hash(&key), actor << 1 | 1);
        (header.flags & flag::ANNOUNCED != 0).then(|| GroupKey::of_flow(key))
    }

    /// Fetches the lines by which a flow's keys are found.
    pub fn prefetch_keys(&self, actor: u32) {
        let header = self.slab.header(actor);
        self.table.prefetch(self.hash(&header.key));
        if header.flags & flag::REPLY_KEY != 0 {
            self.table.prefetch(self.hash(self.slab.reply_key(actor)));
        }
    }

    // Flows.

    /// An actor's header.
    #[inline(always)]
    pub fn header(&self, actor: u32) -> &Header {
        self.slab.header(actor)
    }

    /// An actor's header, to be changed.
    #[inline(always)]
    pub fn header_mut(&mut self, actor: u32) -> &mut Header {
        self.slab.header_mut(actor)
    }

    /// Whether an actor has one of these bits of [`flag`].
    #[inline]
    pub fn has_flag(&self, actor: u32, bits: u8) -> bool {
        self.slab.header(actor).flags & bits != 0
    }

    /// Where an actor's first key is.
    #[inline(always)]
    pub fn key(&self, actor: u32) -> NonNull<FlowKey> {
        self.slab.key(actor)
    }

    /// An actor's first (0) or reply (1) key.
    #[inline(always)]
    pub fn nth_key(&self, actor: u32, which: u32) -> &FlowKey {
        self.slab.nth_key(actor, which)
    }

    /// An actor's reply key; meaningful with [`flag::REPLY_KEY`].
    #[inline]
    pub fn reply_key(&self, actor: u32) -> &FlowKey {
        self.slab.reply_key(actor)
    }

    /// Writes an actor's reply key.
    pub fn set_reply_key(&mut self, actor: u32, key: FlowKey) {
        self.slab.set_reply_key(actor, key);
    }

    /// Where an actor's flow states begin.
    #[inline(always)]
    pub fn state(&self, actor: u32) -> NonNull<u8> {
        self.slab.state(actor)
    }

    /// How many bytes those are.
    pub fn state_length(&self) -> usize {
        self.slab.state_length()
    }

    /// All states of an actor as bytes, and of its group if it is by itself.
    #[inline(always)]
    pub fn state_bytes(&self, actor: u32) -> &[u8] {
        self.slab.state_bytes(actor)
    }

    /// The same, to be written.
    pub fn state_bytes_mut(&mut self, actor: u32) -> &mut [u8] {
        self.slab.state_bytes_mut(actor)
    }

    /// Asks the processor for all of an actor.
    #[inline(always)]
    pub fn prefetch(&self, actor: u32) {
        self.slab.prefetch(actor);
    }

    /// Asks the processor for an actor's header alone.
    #[inline(always)]
    pub fn prefetch_header(&self, actor: u32) {
        self.slab.prefetch_header(actor);
    }

    /// Asks the processor for the actors that the next launches will take.
    #[inline]
    pub fn prefetch_free(&self, count: usize) {
        for actor in self.slab.next_free(count) {
            self.slab.prefetch(actor);
            self.prefetch_joining(actor);
        }
    }

    /// Asks the processor for the actor that the arrival behind the next `count` will take.
    pub fn prefetch_free_ahead(&self, count: usize) {
        if let Some(actor) = self.slab.free_ahead(count) {
            self.slab.prefetch(actor);
        }
    }

    /// Asks the processor for what an actor is filed and listed by.
    #[inline]
    pub fn prefetch_joining(&self, actor: u32) {
        self.wheel.prefetch(actor);
        self.groups.prefetch_member(actor);
    }

    /// Takes an actor for a flow that comes from another runtime.
    pub fn arrive(&mut self) -> Option<u32> {
        self.slab.arrive()
    }

    /// Gives an actor back. It is in no table and no list any more.
    #[inline]
    pub fn end(&mut self, actor: u32) {
        let copied = self.slab.header(actor).copied;
        if copied != 0 {
            self.ended.push(Ended::Flow(actor, copied));
        }
        self.note_end(Ended::Flow(actor, copied));
        self.slab.end(actor);
    }

    /// Actors on the free list.
    pub fn free(&self) -> usize {
        self.slab.free()
    }

    /// Actors in use.
    pub fn active(&self) -> usize {
        self.slab.active()
    }

    /// Actors there are.
    pub fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    /// Actors that were ever used have numbers below this one.
    pub fn used(&self) -> u32 {
        self.slab.used()
    }

    /// Moves a flow's deadline.
    #[inline(always)]
    pub fn set_deadline(&mut self, actor: u32, deadline: u64) {
        let header = self.slab.header_mut(actor);
        let before = core::mem::replace(&mut header.deadline, deadline);
        // A later deadline is found out when the wheel looks; an earlier one must be told.
        if deadline < before || before == 0 {
            self.wheel.file_by(actor, deadline);
        }
    }

    /// Files an arrived flow by the deadline in its header.
    pub fn file(&mut self, actor: u32) {
        self.wheel.file_by(actor, self.slab.header(actor).deadline);
    }

    /// Looks at up to `budget` actors whose time may have come. An actor whose time is over, and
    /// how many were looked at; fewer than `budget` and `None`: done for now.
    pub fn due(&mut self, now: u64, budget: usize) -> (Option<u32>, usize) {
        let (mut due, mut looked) = (None, 0);
        let slab = &self.slab;
        while looked < budget && due.is_none() {
            let offered = self.wheel.poll(now, 1, |actor| {
                let header = slab.header(actor);
                match header.phase {
                    Phase::Free => None,
                    Phase::Waiting | Phase::Arriving | Phase::Leaving => Some(now),
                    Phase::Active if header.deadline > now => Some(header.deadline),
                    Phase::Active => {
                        due = Some(actor);
                        None
                    }
                }
            });
            looked += offered;
            if offered == 0 {
                break;
            }
        }
        (due, looked)
    }

    // Groups.

    /// The groups, to be looked at.
    #[inline(always)]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The group of this key, made if need be, and whether it is new; `None` if there is no room. A
    /// new one is joined next, or abandoned.
    pub fn enter_group(&mut self, group: GroupKey) -> Option<(u32, bool)> {
        self.groups.enter(group)
    }

    /// Forgets a group that has no flow.
    pub fn abandon_group(&mut self, index: u32) {
        if self.owners.is_noting() {
            self.ended.push(Ended::Group(index));
        }
        self.note_end(Ended::Group(index));
        self.groups.abandon(index);
    }

    /// A flow belongs to a group from now on; to none, if it is by itself.
    #[inline]
    pub fn join_group(&mut self, actor: u32, index: u32) {
        self.slab.header_mut(actor).group = index;
        if index != NO_GROUP {
            self.groups.join(index, actor);
        }
    }

    /// Whether no other flow has an actor's group.
    pub fn is_last_of_group(&self, actor: u32) -> bool {
        let index = self.slab.header(actor).group;
        index == NO_GROUP || self.groups.is_last(index)
    }

    /// A flow leaves its group; the group's key if it was its last.
    pub fn leave_group(&mut self, actor: u32) -> Option<GroupKey> {
        let header = self.slab.header(actor);
        match header.group {
            NO_GROUP => Some(GroupKey::of_flow(header.key)),
            index => {
                let left = self.groups.leave(index, actor);
                // A later group may have its place.
                let over = match left {
                    Some(_) => Ended::Group(index),
                    None => Ended::InGroup(index),
                };
                if self.owners.is_noting() {
                    self.ended.push(over);
                }
                self.note_end(over);
                left
            }
        }
    }

    /// A group's last flow leaves it, and the group rests.
    pub fn rest_group(&mut self, actor: u32, until: u64) {
        let Header {
            group,
            generation,
            chain,
            ..
        } = *self.slab.header(actor);
        self.groups.leave_to_rest(group, actor, until);
        let over = Ended::Rests(group, (generation, chain));
        if self.owners.is_noting() {
            self.ended.push(over);
        }
        self.note_end(over);
    }

    /// A group that has come without a flow rests.
    pub fn rest_arrived(&mut self, index: u32, until: u64) {
        self.groups.rest(index, until);
    }

    /// The place of a group, if it rests.
    pub fn resting_at(&self, group: &GroupKey) -> Option<u32> {
        if self.groups.resting().is_empty() {
            return None;
        }
        let index = self.groups.at(*group);
        index.filter(|index| self.groups.resting().until(*index).is_some())
    }

    /// Forgets a group that rests.
    pub fn forget_resting(&mut self, index: u32) -> GroupKey {
        if self.owners.is_noting() {
            self.ended.push(Ended::Group(index));
        }
        self.note_end(Ended::Group(index));
        self.groups.forget_resting(index)
    }

    /// Looks at up to `budget` groups that rest ([`Resting::due`]).
    pub fn due_group(&mut self, now: u64, budget: usize) -> (Option<u32>, usize) {
        self.groups.resting_mut().due(now, budget)
    }

    /// A group whose time is over cannot end now.
    pub fn look_again(&mut self, index: u32, now: u64) {
        self.groups.resting_mut().look_again(index, now);
    }

    /// A group's state as bytes, to be written.
    pub fn group_bytes_mut(&mut self, index: u32) -> &mut [u8] {
        self.groups.state_bytes_mut(index)
    }

    /// Where in an actor's state that of its group begins, of a flow that is by itself.
    pub fn group_offset(&self) -> usize {
        self.group_offset
    }

    /// Where the state of an actor's group begins.
    #[inline(always)]
    pub fn group_state(&self, index: u32, state: NonNull<u8>) -> NonNull<u8> {
        if index != NO_GROUP {
            return self.groups.state(index);
        }
        self.slab.behind(state, self.group_offset)
    }

    /// The key of an actor's group.
    pub fn group_key(&self, actor: u32) -> GroupKey {
        let header = self.slab.header(actor);
        match header.group {
            NO_GROUP => GroupKey::of_flow(header.key),
            index => self.groups.key(index),
        }
    }

    /// Whether an actor is a flow of a group.
    pub fn is_of(&self, actor: u32, group: GroupKey) -> bool {
        self.slab.header(actor).phase != Phase::Free && self.group_key(actor) == group
    }

    /// How many flows a group has.
    pub fn count_of(&self, group: GroupKey) -> usize {
        if self.affinity == Affinity::Flow {
            return 1;
        }
        let index = self.groups.at(group);
        index.map_or(0, |index| self.groups.flows(index) as usize)
    }

    /// The flows of a group.
    pub fn flows_of(&self, group: GroupKey) -> Vec<u32> {
        if self.affinity == Affinity::Flow {
            let value = self.find(&group.flow()).filter(|value| value & 1 == 0);
            return value.map(|value| value >> 1).into_iter().collect();
        }
        let Some(index) = self.groups.at(group) else {
            return Vec::new();
        };
        let mut actors = Vec::with_capacity(self.groups.flows(index) as usize);
        // Their headers are fetched together.
        actors.extend(
            self.groups
                .members(index)
                .inspect(|actor| self.slab.prefetch_header(*actor)),
        );
        actors
    }

    /// Whether a flow's end will say that this group, or reply key, has no flow.
    pub fn has_group(&self, group: &GroupKey) -> bool {
        if self.affinity != Affinity::Flow && !group.is_reply_key(self.affinity) {
            return self.groups.has(*group);
        }
        match self.find(&group.flow()) {
            None => false,
            Some(value) if value & 1 == 0 => self.affinity == Affinity::Flow,
            Some(value) => self.has_flag(value >> 1, flag::ANNOUNCED),
        }
    }

    /// The reply keys that were announced for these flows.
    pub fn announced_keys(&self, actors: &[u32]) -> Vec<GroupKey> {
        let announced = actors
            .iter()
            .filter(|actor| self.has_flag(**actor, flag::ANNOUNCED));
        announced
            .map(|actor| GroupKey::of_flow(*self.slab.reply_key(*actor)))
            .collect()
    }
}
