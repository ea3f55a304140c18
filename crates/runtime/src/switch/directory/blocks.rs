//! Which group has which block of external ports, and which runtime has that group.
//!
//! # Theory of operation
//!
//! Runtimes claim blocks for their groups, at every switch, whether that is the group's home or
//! not. So the runtime that has a group with blocks, its *holder*, is known here too, and another
//! that may have the group, should the holder go: where it moves to, or came from.
//!
//! ```text
//!   holder S ─Reroute─► S, other T ─Behind─► T, other S;  a claim by another than the holder makes that one it, and the one before the other
//!   the holder goes ─► the other is there: it is the holder, and asked │ else: the blocks end with it
//! ```
//!
//! A holder that has gone is looked for among all groups with blocks: a millisecond for 65,536. The
//! other one is asked about each block (`BlockSuspect`), and says that it has it (`BlockClaimed`)
//! or not (`BlockSuspect`). No runtime that restarts is told *all* before these answers are there.
//!
//! *A block that its holder has not got* may be the other's: that is asked, and if it has not got
//! it either, the block ends. A word about one block says nothing of others of the group: its
//! holder stays the same until the other claims.
//!
//! A block that goes back to a runtime that is not there is *pending return* until it is.
//!
//! Invariants: a group has a holder as long as it has blocks, with their number.
//!
//! Not here: when a runtime is told which blocks are in use (`presence`).

use super::NO_RUNTIME;
use crate::env::Port;
use crate::group::{GroupKey, room_for};
use crate::message::Message;
use crate::owners::{BlockOwners, blocks_at_start};
use crate::switch::outbox::Outbox;
use alloc::vec::Vec;
use hashbrown::{HashMap, HashSet};
use nf::{Addr, Block, Endpoint};
use protocols::lending::Register;
use protocols::ownership::RuntimeId;
use wire::HashSeed;

/// Blocks that go home in a step, behind their quarantine.
const RETURNED: usize = 256;

/// Where a block begins.
pub(in crate::switch) type BlockStart = (Addr, u16);

/// Which runtime has a group with blocks.
#[derive(Clone, Copy)]
struct Holder {
    runtime: u16,
    /// The incarnation of that runtime, among those that this switch has met.
    incarnation: u16,
    blocks: u32,
    /// The other runtime that may have it, should that one go: it moves, or has moved, from or to
    /// there.
    other: u16,
    /// Both have claimed blocks: the group began again at one before it was known to be over at the
    /// other.
    is_mixed: bool,
}

/// See the module's page.
pub(in crate::switch) struct Blocks {
    owners: BlockOwners,
    holders: HashMap<GroupKey, Holder>,
    /// Blocks that runtimes are asked about, and have not answered: of which group, and whether all
    /// others that may have the block have not got it.
    asked: HashMap<(u16, Block), (GroupKey, bool)>,
    /// Blocks that go back to runtimes that are not there.
    returning: HashSet<(u16, Block)>,
    /// Blocks that runtimes have lent each other.
    lent: Register<Block>,
    /// By runtime: how many of its incarnations have ended.
    incarnations: Vec<u16>,
    runtimes: usize,
}

/// How many incarnations of a runtime have ended.
fn incarnation_of(incarnations: &[u16], runtime: u16) -> u16 {
    incarnations
        .get(usize::from(runtime))
        .copied()
        .unwrap_or_default()
}

impl Blocks {
    pub fn new(blocks: usize, runtimes: usize, seed: HashSeed) -> Self {
        Blocks {
            owners: BlockOwners::new(blocks, seed),
            holders: HashMap::with_capacity(room_for(blocks_at_start(blocks))),
            asked: HashMap::new(),
            returning: HashSet::new(),
            lent: Register::default(),
            incarnations: alloc::vec![0; runtimes],
            runtimes,
        }
    }

    /// Notes so many from now on, if that is more than before.
    pub fn make_room(&mut self, blocks: usize) {
        self.owners.note_more(blocks);
    }

    /// The group that has the block in which an endpoint lies.
    #[inline(always)]
    pub fn owner(&self, end: Endpoint) -> Option<GroupKey> {
        self.owners.owner(end)
    }

    /// How many blocks have owners.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// How many blocks are noted at most.
    pub fn most(&self) -> usize {
        self.owners.most()
    }

    /// Whether a runtime's word about a block may be true.
    pub fn may_note(&self, block: &Block) -> bool {
        self.owners.may_note(block)
    }

    fn holder(&self, group: &GroupKey) -> Option<usize> {
        self.holders.get(group).map(|holder| usize::from(holder.runtime))
    }

    /// A runtime lends another a free block: the other is told so, unless it is not there.
    #[cold]
    pub fn lend<L: Port>(&mut self, block: Block, home: RuntimeId, to: RuntimeId, outbox: &mut Outbox<L>) {
        if outbox.is_there(usize::from(to.0)) && self.lent.len() < self.runtimes * self.most() {
            self.lent.lend(block, home, to);
            outbox.push_message(usize::from(to.0), Message::BlockLent(block, home, to));
        } else {
            self.give_back(home, block, outbox);
        }
    }

    /// A group at a runtime is over, which keeps its block as if the home had lent it.
    #[cold]
    pub fn keep<L: Port>(&mut self, block: Block, home: RuntimeId, at: RuntimeId, outbox: &mut Outbox<L>) {
        self.lend_no_more(block);
        self.release(block);
        match self.lent.len() < self.runtimes * self.most() {
            true => self.lent.lend(block, home, at),
            false => outbox.reject(),
        }
    }

    /// A block is its home's again, whatever was lent.
    #[inline]
    pub fn lend_no_more(&mut self, block: Block) {
        if !self.lent.is_empty() {
            self.lent.forget(block);
        }
    }

    /// A runtime has gone, and its flows have ended or gone on elsewhere: the blocks that it had
    /// borrowed are to go home.
    #[cold]
    pub fn let_lent_go(&mut self, runtime: usize, now: u64) {
        let owners = &self.owners;
        let has_owner = |block: Block| owners.at(block.addr, block.first).is_some();
        self.lent.let_go(RuntimeId(runtime as u16), now, has_owner);
    }

    /// Whether lent blocks are in quarantine.
    #[inline]
    pub fn is_in_quarantine(&self) -> bool {
        self.lent.is_waiting()
    }

    /// Lent blocks whose quarantine is over go home.
    #[cold]
    pub fn end_quarantine<L: Port>(&mut self, now: u64, outbox: &mut Outbox<L>) {
        for _ in 0..RETURNED {
            let Some((block, home)) = self.lent.take_due(now) else {
                return;
            };
            self.give_back(home, block, outbox);
        }
    }

    /// Tells a runtime which blocks of its part are lent.
    pub fn tell_lent<L: Port>(&self, runtime: usize, outbox: &mut Outbox<L>) {
        for block in self.lent.of_home(RuntimeId(runtime as u16)) {
            let no_group = GroupKey::from_words([0; 5]);
            outbox.push_message(runtime, Message::BlockClaimed(block, no_group));
        }
    }

    /// A group at a runtime has a block.
    pub fn claimed(&mut self, runtime: usize, block: Block, group: GroupKey) {
        let before = self.owners.at(block.addr, block.first);
        if before.is_some_and(|before| before != group) {
            // Its group was on its way when this switch was told of it, and has let go of it since.
            self.release(block);
        }
        self.owners.claim(block, group);
        if !self.lent.is_empty() {
            self.lent.claim(block, RuntimeId(runtime as u16));
        }
        self.note_claim(group, runtime, before != Some(group));
        self.note_answer(runtime, block, group);
        if self.asked.is_empty() {
            return;
        }
        // A runtime that has not got it said so before this.
        for runtime in 0..self.runtimes as u16 {
            if let Some((_, is_last)) = self.asked.get_mut(&(runtime, block)) {
                *is_last = false;
            }
        }
    }

    /// Whether a group of another runtime has a block.
    pub fn is_anothers(&self, runtime: usize, block: &Block, group: &GroupKey) -> bool {
        let before = self.owners.at(block.addr, block.first);
        let holder = before
            .filter(|before| before != group)
            .and_then(|before| self.holder(&before));
        holder.is_some_and(|holder| holder != runtime)
    }

    /// A group on its way has a block, unless another has claimed it. The runtime that is known to
    /// have the group is to be asked.
    pub fn claimed_tentatively(&mut self, runtime: usize, block: Block, group: GroupKey) {
        if self.owners.at(block.addr, block.first).is_none() {
            let holder = self.holder(&group).unwrap_or(runtime);
            self.owners.claim(block, group);
            self.note_claim(group, holder, true);
        }
    }

    /// A runtime has not got a group's block: none has, if that one had the group, and no other may
    /// have it.
    pub fn suspected<L: Port>(
        &mut self,
        runtime: usize,
        block: Block,
        group: GroupKey,
        outbox: &mut Outbox<L>,
    ) {
        let is_last = self.note_answer(runtime, block, group);
        if self.owners.at(block.addr, block.first) != Some(group) {
            return;
        }
        let Some(holder) = self.holders.get(&group).copied() else {
            return self.release(block);
        };
        let (has, other) = (usize::from(holder.runtime), usize::from(holder.other));
        if is_last && [has, other].contains(&runtime) {
            // Neither has it.
            return self.release(block);
        }
        if has != runtime {
            return outbox.push_message(has, Message::BlockSuspect(block, group));
        }
        if !outbox.is_there(other) {
            return self.release(block);
        }
        // The holder may have claimed this, too, when it was met again, and have let go of others'
        // blocks; or the group began again there, where other blocks of it are.
        self.asked.insert((holder.other, block), (group, true));
        outbox.push_message(other, Message::BlockSuspect(block, group));
    }

    /// A block has no owner any more.
    pub fn release(&mut self, block: Block) {
        if let Some(group) = self.owners.release(block)
            && let Some(holder) = self.holders.get_mut(&group)
        {
            holder.blocks -= 1;
            if holder.blocks == 0 {
                self.holders.remove(&group);
            }
        }
    }

    /// A block goes back to the runtime whose pool it is of, and which is told so when it is there.
    /// Each block that was lent when that one went has a flow in it somewhere, so there are no more
    /// of one runtime's than there may be blocks; of all together, no more than so many for each.
    pub fn give_back<L: Port>(&mut self, home: RuntimeId, block: Block, outbox: &mut Outbox<L>) {
        let runtime = usize::from(home.0);
        if runtime >= self.runtimes || outbox.is_there(runtime) {
            outbox.push_message(runtime, Message::BlockReturned(block, home));
        } else if self.returning.len() < self.runtimes * self.most() {
            self.returning.insert((home.0, block));
        } else {
            outbox.reject();
        }
    }

    fn note_claim(&mut self, group: GroupKey, runtime: usize, is_new: bool) {
        let runtime = runtime as u16;
        let incarnation = incarnation_of(&self.incarnations, runtime);
        let holder = self.holders.entry(group).or_insert(Holder {
            runtime,
            incarnation,
            blocks: 0,
            other: NO_RUNTIME,
            is_mixed: false,
        });
        if holder.runtime != runtime {
            (holder.runtime, holder.other) = (runtime, holder.runtime);
            holder.is_mixed = true;
        }
        // Others of its blocks are of an incarnation before.
        holder.is_mixed |= holder.incarnation != incarnation;
        holder.incarnation = incarnation;
        holder.blocks += u32::from(is_new);
    }

    /// A runtime has said whether a group has a block there; whether it was the last to be asked.
    fn note_answer(&mut self, runtime: usize, block: Block, group: GroupKey) -> bool {
        let question = (runtime as u16, block);
        let known = self.asked.get(&question).copied();
        // An answer about a group before tells nothing of the one that has it now.
        let Some((_, is_last)) = known.filter(|(of, _)| *of == group) else {
            return false;
        };
        self.asked.remove(&question);
        is_last
    }

    /// A runtime does not answer a question of a session that is over.
    pub(super) fn ask_no_more(&mut self, runtime: usize) {
        self.asked.retain(|(to, ..), _| usize::from(*to) != runtime);
    }

    /// A group begins to move.
    pub fn note_reroute(&mut self, group: &GroupKey, from: usize, to: u16) {
        let holder = self.holders.get_mut(group);
        let is_its = |holder: &&mut Holder| usize::from(holder.runtime) == from && holder.runtime != to;
        if let Some(holder) = holder.filter(is_its) {
            holder.other = to;
        }
    }

    /// A group, and its blocks with it, goes there, if it is where it comes from.
    pub fn note_move(&mut self, group: &GroupKey, from: usize, to: u16) {
        let Some(holder) = self.holders.get_mut(group) else {
            return;
        };
        if usize::from(holder.runtime) == from {
            (holder.runtime, holder.other) = (to, holder.runtime);
            holder.incarnation = incarnation_of(&self.incarnations, to);
        } else if usize::from(holder.other) == from && holder.runtime != to {
            // The holder may have let go of it.
            holder.other = to;
        }
    }

    /// An incarnation of a runtime is over: blocks noted from now on are of the next one.
    pub(super) fn leave(&mut self, runtime: usize) {
        if let Some(incarnation) = self.incarnations.get_mut(runtime) {
            *incarnation = incarnation.wrapping_add(1);
        }
    }

    /// A runtime is there: blocks that are pending return to it go back.
    pub fn came<L: Port>(&mut self, runtime: usize, outbox: &mut Outbox<L>) {
        let is_its = |(home, _): &(u16, Block)| usize::from(*home) == runtime;
        let mut blocks: Vec<_> = self.returning.extract_if(is_its).collect();
        // The same order each time.
        blocks.sort_unstable_by_key(|(_, block)| (*block.addr.octets(), block.first, block.ports));
        for (home, block) in blocks {
            outbox.push_message(runtime, Message::BlockReturned(block, RuntimeId(home)));
        }
    }

    /// Ends the blocks of a runtime that has gone, but for those of groups that another may have:
    /// that one is asked.
    pub(super) fn gone<L: Port>(&mut self, runtime: usize, outbox: &mut Outbox<L>) {
        let gone = runtime as u16;
        self.ask_no_more(runtime);
        let (holders, incarnations) = (&mut self.holders, &self.incarnations);
        // Blocks that a next incarnation has claimed meanwhile are that one's.
        let now = incarnation_of(incarnations, gone);
        let (mut is_one, mut suspect) = (false, HashSet::new());
        for (group, holder) in holders.iter_mut() {
            if holder.runtime != gone || holder.incarnation == now {
                // Some blocks may have been the gone incarnation's. And its messages about a group
                // that it moved may be gone with it.
                let came_from_it = holder.other == gone;
                if core::mem::take(&mut holder.is_mixed) || came_from_it {
                    suspect.insert(*group);
                }
                if came_from_it {
                    holder.other = NO_RUNTIME;
                }
                continue;
            }
            is_one = true;
            let other = core::mem::replace(&mut holder.other, NO_RUNTIME);
            if outbox.is_there(usize::from(other)) {
                holder.runtime = other;
                holder.incarnation = incarnation_of(incarnations, other);
                suspect.insert(*group);
            }
        }
        if is_one {
            let stays = |holder: &Holder| holder.runtime != gone || holder.incarnation == now;
            self.owners.retain(|group| holders.get(group).is_none_or(stays));
            holders.retain(|_, holder| stays(holder));
        }
        if !suspect.is_empty() {
            self.ask_about(&suspect, outbox);
        }
    }

    /// A runtime that was let go is there again as it was, and is asked which blocks its groups
    /// have.
    pub(super) fn back<L: Port>(&mut self, runtime: usize, outbox: &mut Outbox<L>) {
        let back = runtime as u16;
        self.ask_no_more(runtime);
        let holders = self.holders.iter();
        let its = holders.filter(|(_, holder)| holder.runtime == back || holder.other == back);
        let suspect: HashSet<GroupKey> = its.map(|(group, _)| *group).collect();
        if !suspect.is_empty() {
            self.ask_about(&suspect, outbox);
        }
    }

    /// Asks the runtimes that may have these groups about their blocks.
    fn ask_about<L: Port>(&mut self, groups: &HashSet<GroupKey>, outbox: &mut Outbox<L>) {
        for (addr, first) in self.owners.places() {
            let group = self.owners.at(addr, first).filter(|group| groups.contains(group));
            if let Some(group) = group
                && let Some(holder) = self.holder(&group)
            {
                let ports = self.owners.size_at(first);
                let block = Block { addr, first, ports };
                self.asked.insert((holder as u16, block), (group, false));
                outbox.push_message(holder, Message::BlockSuspect(block, group));
            }
        }
    }

    /// Whether runtimes have yet to answer about blocks.
    pub fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Where all blocks begin, in an order that is the same each time.
    pub fn places(&self) -> Vec<BlockStart> {
        self.owners.places()
    }

    /// Tells a runtime of a block, if that is in use at another.
    pub fn tell<L: Port>(&self, runtime: usize, (addr, first): BlockStart, outbox: &mut Outbox<L>) {
        let Some(group) = self.owners.at(addr, first) else {
            return;
        };
        if self.holder(&group) == Some(runtime) {
            return;
        }
        let ports = self.owners.size_at(first);
        outbox.push_message(
            runtime,
            Message::BlockClaimed(Block { addr, first, ports }, group),
        );
    }

    /// The blocks there are, and their groups.
    #[cfg(test)]
    pub fn known(&self) -> Vec<(BlockStart, GroupKey)> {
        let places = self.places().into_iter();
        places
            .filter_map(|(addr, first)| Some(((addr, first), self.owners.at(addr, first)?)))
            .collect()
    }
}
