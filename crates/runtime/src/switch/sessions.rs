//! Who is at the other ends of links: runtimes that are not there yet, that have gone, and that begin anew.
//!
//! # Theory of operation
//!
//! A link's session ([`Port::session`]) is looked at behind each burst that it brings.
//!
//! ```text
//!   0: nobody ──n──► present ──another number, or 0──► over: what leads there is forgotten
//!                      │ chosen for new groups, unless it is leaving and another is not
//! ```
//!
//! *A session that is over.* The runtime is gone, and with it all its flows: no other can have them active, so a packet of theirs may begin anew
//! anywhere. Routes are looked through some each step; a packet that meets one before, forgets it and is routed anew. A route knows by which *life* of
//! its runtime it was made, so a runtime that begins anew gets nothing that was the one's before. Both ends count what is sent and consumed
//! from 0 again. Blocks are forgotten with the runtime that had their group: a look at all of them, a millisecond for 65,536, and none where it
//! had none. Where a group moves, or has moved, and the other end lives, that one may have it, and its blocks: it is asked about each (`BlockDoubted`), says that it has it
//! (`BlockClaimed`) or not (`BlockDoubted`), and nobody who begins anew is told *all* before it has.
//!
//! ```text
//!   holder S ─Reroute─► S, other T ─Behind─► T, other S;  a claim by another than the holder makes that one it, and the one before the other
//!   the holder goes ─► the other lives: it is the holder, and asked │ else: forgotten
//! ```
//!
//! *Moves.* What is re-routed to a runtime that is not there is refused ([`HomeInput::Reroute`](protocols::ownership::HomeInput)'s `is_removed`). A group whose
//! target goes before it has said that it is installed is still its source's: the route goes back there. If the source goes first, the target has the
//! group or will say that it has not: it is asked.
//!
//! *A switch that begins anew* knows no routes, and its runtimes tell it theirs ([`Message::AllTold`](crate::message::Message) is the last word). Until all
//! have, or the time for it is over ([`Switch::wait_to_be_told`]), it reads neither ports nor peers. A group that moves to a runtime which it has yet to meet is the source's until
//! that one says that it has it, and that one's from then on ([`Sessions::note_unmet`]). Who tells later what another has been chosen for
//! meanwhile, is told that it is [taken](crate::message::Message::Taken), and ends it: a group is at one runtime.
//!
//! *A runtime that begins anew* knows nothing of blocks of its pool that it had lent with groups that moved. When it has told what it has (a runtime that lives tells
//! a switch that begins anew, too), it is told which blocks are in use elsewhere, some each step, and *all told* behind them; the switch itself must have been told before. Until
//! then it is not chosen for new groups here. Until all switches have told it, it says that it is leaving (`worker::sessions`), and a switch that begins where nobody
//! else is to be chosen waits for that before it reads its ports.
//!
//! Invariants: a route leads to a life of a runtime that is there, or is forgotten before it is used; nothing is sent to nobody, but buffers on their way home.
//!
//! Not here: what runtimes tell (`worker::sessions`), who decides whether somebody is there (the link).

use super::choice::maglev_table;
use super::routes::NO_RUNTIME;
use super::{Lane, NOBODY, Policy, Switch};
use crate::env::{Burst, Port};
use crate::group::{GroupKey, room_for};
use crate::message::Message;
use crate::owners::blocks_at_start;
use alloc::vec::Vec;
use hashbrown::{HashMap, HashSet};
use nf::{Addr, Block};
use protocols::ownership::{Epoch, RuntimeId};
use wire::packet::Kind;

/// Routes looked at in a step.
const LOOKS: usize = 512;
/// Blocks told in a step: some frames.
const TOLD: usize = 256;
/// Where packets carry the time and it does not go on without them: what a step counts for, in nanoseconds.
const STEP: u64 = 1000;

/// Where blocks begin.
type Places = Vec<(Addr, u16)>;

/// Who has a group with blocks.
#[derive(Clone, Copy)]
struct Holder {
    runtime: u16,
    blocks: u32,
    /// Who else may have it, should that one go: it moves, or has moved, from or to there.
    other: u16,
    /// Both have claimed blocks: the group began anew at one before it was known to be over at the other.
    is_mixed: bool,
}

/// Which runtimes are there to be chosen, and what is to be forgotten of those that were.
#[derive(Default)]
pub(super) struct Sessions {
    /// Runtimes that new groups may go to.
    pub available: Vec<u16>,
    /// Routes not looked at since a session ended: those below.
    unseen: usize,
    /// Whose blocks there are, by group.
    holders: HashMap<GroupKey, Holder>,
    /// What runtimes are asked about blocks whose holder has gone, and have not answered.
    asked: HashSet<(u16, Block, GroupKey)>,
    /// Keys whose route is at the source of their move, since the target has not been met: source, target, and which change of hands.
    unmet: HashMap<GroupKey, (u16, u16, Epoch)>,
    /// Blocks that go back to runtimes that are not there.
    kept: HashSet<(u16, Block)>,
    /// Until when to wait for runtimes to tell what they have, and then for one that new groups may go to.
    told_by: Option<u64>,
    ready_by: Option<u64>,
    /// Whether runtimes of other processes may be there, which say what they have when they meet this switch.
    is_among_others: bool,
    /// Who is told which blocks are in use, and those yet to be looked at once it has begun.
    telling: Vec<(usize, Option<Places>)>,
    waited: u64,
}

impl Sessions {
    /// Room for what is known of so many groups' blocks.
    pub fn new(groups: usize) -> Self {
        Sessions {
            holders: HashMap::with_capacity(room_for(blocks_at_start(groups))),
            ..Self::default()
        }
    }

    /// Whether routes may lead to runtimes that are gone.
    #[inline]
    pub fn is_forgetting(&self) -> bool {
        self.unseen > 0
    }

    /// A block is this group's, which is there.
    pub fn note_claim(&mut self, group: GroupKey, runtime: usize, is_new: bool) {
        let runtime = runtime as u16;
        let holder = self.holders.entry(group).or_insert(Holder {
            runtime,
            blocks: 0,
            other: NO_RUNTIME,
            is_mixed: false,
        });
        if holder.runtime != runtime {
            (holder.runtime, holder.other) = (runtime, holder.runtime);
            holder.is_mixed = true;
        }
        holder.blocks += u32::from(is_new);
    }

    /// A block is this group's no more.
    pub fn note_release(&mut self, group: &GroupKey) {
        if let Some(holder) = self.holders.get_mut(group) {
            holder.blocks -= 1;
            if holder.blocks == 0 {
                self.holders.remove(group);
            }
        }
    }

    /// A group, and its blocks with it, goes there, if it is there where it comes from.
    pub fn note_move(&mut self, group: &GroupKey, from: usize, to: u16) {
        let holder = self.holders.get_mut(group);
        if let Some(holder) = holder.filter(|holder| usize::from(holder.runtime) == from) {
            (holder.runtime, holder.other) = (to, holder.runtime);
        }
    }

    /// A group begins to move.
    pub fn note_reroute(&mut self, group: &GroupKey, from: usize, to: u16) {
        let holder = self.holders.get_mut(group);
        if let Some(holder) =
            holder.filter(|holder| usize::from(holder.runtime) == from && holder.runtime != to)
        {
            holder.other = to;
        }
    }

    /// A key that has a route is re-routed from who has it to a runtime that is not there: it may be, and have the group, before this switch has met it.
    pub fn note_unmet(&mut self, key: GroupKey, from: u16, to: u16, epoch: Epoch) {
        self.unmet.insert(key, (from, to, epoch));
    }

    /// A key's route is turned, or forgotten.
    #[inline]
    pub fn forget_unmet(&mut self, key: &GroupKey) {
        if !self.unmet.is_empty() {
            self.unmet.remove(key);
        }
    }

    /// Whether a key whose route is at the one runtime was on its way to the other, and of which change of hands that was.
    pub fn unmet(&self, key: &GroupKey, from: u16, to: u16) -> Option<Epoch> {
        let (source, target, epoch) = self.unmet.get(key)?;
        ((*source, *target) == (from, to)).then_some(*epoch)
    }

    /// A runtime has said whether a group has a block there.
    pub fn note_answer(&mut self, runtime: usize, block: Block, group: GroupKey) {
        if !self.asked.is_empty() {
            self.asked.remove(&(runtime as u16, block, group));
        }
    }

    /// Who has a group that has blocks.
    pub fn holder(&self, group: &GroupKey) -> Option<usize> {
        self.holders.get(group).map(|holder| usize::from(holder.runtime))
    }
}

impl<P: Port, L: Port> Switch<P, L> {
    /// Reads no ports before all runtimes have told which groups they have, or for so long, in nanoseconds: for a switch that begins where
    /// runtimes of other processes may be at work. Those whose links were there from the beginning have begun with it and have none.
    pub fn wait_to_be_told(&mut self, at_most: u64) {
        self.sessions.told_by = Some(self.now.saturating_add(at_most));
        self.sessions.is_among_others = true;
        // Those that began with it in one process have lost what they knew with it.
        let there = (0..self.runtimes.len()).filter(|index| self.runtimes[*index].session != 0);
        self.sessions.telling.extend(there.map(|index| (index, None)));
        self.sessions.ready_by = Some(self.now.saturating_add(at_most.saturating_mul(2)));
    }

    /// Whether ports are not read yet.
    pub fn is_waiting_to_be_told(&self) -> bool {
        self.sessions.ready_by.is_some()
    }

    /// Whether a runtime is at the other end of its link, and whether it gets no new groups.
    pub fn presence(&self, runtime: u16) -> Option<(bool, bool)> {
        let link = self.runtimes.get(usize::from(runtime))?;
        Some((link.session != 0, link.is_leaving))
    }

    /// Whether it is too early to read ports and peers.
    #[inline]
    pub(super) fn is_too_early(&mut self) -> bool {
        self.sessions.ready_by.is_some() && self.wait_on()
    }

    #[cold]
    fn wait_on(&mut self) -> bool {
        self.sessions.waited += STEP;
        let now = match self.settings.packet_clock {
            true => self.settings.now + self.sessions.waited,
            false => self.now,
        };
        if let Some(until) = self.sessions.told_by {
            if until > now && !self.runtimes.iter().all(|link| link.has_told) {
                return true;
            }
            self.sessions.told_by = None;
        }
        let has_ready = self
            .sessions
            .available
            .iter()
            .any(|index| !self.runtimes[usize::from(*index)].is_leaving);
        if (!has_ready || !self.sessions.telling.is_empty())
            && self.sessions.ready_by.is_some_and(|until| until > now)
        {
            return true;
        }
        self.sessions.ready_by = None;
        false
    }

    /// Chooses a runtime for no new group, or does again.
    pub fn set_leaving(&mut self, runtime: u16, is_leaving: bool) {
        if let Some(link) = self.runtimes.get_mut(usize::from(runtime)) {
            link.is_leaving = is_leaving;
            self.see_who_is_there();
        }
    }

    /// Who is at the other end of a runtime's link has changed.
    #[cold]
    pub(super) fn session_over(&mut self, runtime: usize) {
        let link = &mut self.runtimes[runtime];
        let before = core::mem::replace(&mut link.session, link.link.session());
        link.has_told = false;
        link.is_new = link.session != 0;
        self.sessions.telling.retain(|(to, _)| *to != runtime);
        let link = &mut self.runtimes[runtime];
        if before != 0 {
            link.life = link.life.wrapping_add(1);
            (link.sent, link.is_leaving, link.heard) = (0, false, None);
            // Words for the one before; buffers go home all the same.
            let mut words: Burst = link.questions.take().into_iter().collect();
            let (said, others) = link
                .burst
                .drain(..)
                .partition(|packet| packet.kind() == Kind::Message);
            link.burst = others;
            let said: Burst = said;
            words.extend(said);
            for frame in words {
                self.send_home(frame);
            }
            self.refused.retain(|(_, to, _)| *to != runtime);
            for message in self.moves.forget(runtime) {
                // Whoever begins in its place in this process goes on with its pool.
                if let Message::BlockReturned(block, _) = message {
                    self.keep_block(runtime as u16, block);
                }
            }
            self.sessions.unseen = self.routes.len();
            let gone = runtime as u16;
            let is_its = |from: u16, to: u16| from == gone || to == gone;
            self.sessions.unmet.retain(|_, (from, to, _)| !is_its(*from, *to));
            self.forget_blocks(runtime);
        }
        if self.runtimes[runtime].session != 0 {
            let is_its = |(home, _): &(u16, Block)| usize::from(*home) == runtime;
            let mut blocks: Vec<_> = self.sessions.kept.extract_if(is_its).collect();
            // The same order each time.
            blocks.sort_unstable_by_key(|(_, block)| (*block.addr.octets(), block.first, block.ports));
            for (home, block) in blocks {
                self.moves
                    .say(runtime, Message::BlockReturned(block, RuntimeId(home)));
            }
        }
        if self.runtimes[runtime].session != 0 {
            self.moves.say_to_new(runtime);
            self.sessions.telling.push((runtime, None));
        }
        self.see_who_is_there();
    }

    /// A block goes back to a runtime that is not there. Each that was lent when that one went has a flow in it somewhere, so there are no more of one
    /// runtime's than there may be blocks; of all together, no more than so many for each.
    pub(super) fn keep_block(&mut self, home: u16, block: Block) {
        if self.sessions.kept.len() < self.runtimes.len() * self.blocks.most() {
            self.sessions.kept.insert((home, block));
        } else {
            self.refuse_word();
        }
    }

    pub(super) fn see_who_is_there(&mut self) {
        let there = self.runtimes.iter().enumerate();
        let there = there.filter(|(_, link)| link.session != 0 && !link.is_new);
        let (leaving, mut staying): (Vec<_>, Vec<_>) = there.partition(|(_, link)| link.is_leaving);
        if staying.is_empty() {
            staying = leaving;
        }
        self.sessions.available = staying.into_iter().map(|(index, _)| index as u16).collect();
        if self.settings.policy == Policy::Maglev {
            self.maglev = maglev_table(&self.sessions.available);
        }
    }

    /// Tells runtimes that have begun which blocks are others', behind all that was to be said to them before; answers how much was done.
    #[inline]
    pub(super) fn tell_blocks(&mut self) -> usize {
        if self.sessions.telling.is_empty() || self.sessions.told_by.is_some() {
            return 0;
        }
        self.tell_some()
    }

    #[cold]
    fn tell_some(&mut self) -> usize {
        let mut done = 0;
        for (runtime, mut blocks) in core::mem::take(&mut self.sessions.telling) {
            let link = &self.runtimes[runtime];
            if (self.sessions.is_among_others && !link.has_told)
                || self.moves.has_unsaid(runtime)
                || !self.sessions.asked.is_empty()
                || link.link.room() <= link.burst.len()
            {
                self.sessions.telling.push((runtime, blocks));
                continue;
            }
            done += 1;
            let left = blocks.get_or_insert_with(|| self.blocks.places());
            let now = left.split_off(left.len().saturating_sub(TOLD));
            for (addr, first) in now {
                self.tell_block(runtime, addr, first);
            }
            if !left.is_empty() {
                self.sessions.telling.push((runtime, blocks));
                continue;
            }
            self.moves.say(runtime, Message::AllTold);
            self.runtimes[runtime].is_new = false;
            self.see_who_is_there();
        }
        self.answer_moves();
        done
    }

    /// Tells a runtime of a block, if that is in use at another.
    fn tell_block(&mut self, runtime: usize, addr: Addr, first: u16) {
        let Some(group) = self.blocks.at(addr, first) else {
            return;
        };
        let holder = self.sessions.holders.get(&group);
        if holder.is_some_and(|holder| usize::from(holder.runtime) == runtime) {
            return;
        }
        let ports = self.blocks.size_at(first);
        self.moves.say(
            runtime,
            Message::BlockClaimed(Block { addr, first, ports }, group),
        );
    }

    /// Forgets the blocks of a runtime that is gone, but for those of groups that another may have: that one is asked.
    fn forget_blocks(&mut self, runtime: usize) {
        let gone = runtime as u16;
        self.sessions.asked.retain(|(to, ..)| *to != gone);
        let (holders, runtimes) = (&mut self.sessions.holders, &self.runtimes);
        let (mut is_one, mut doubtful) = (false, HashSet::new());
        for (group, holder) in holders.iter_mut() {
            if holder.runtime != gone {
                // Some may have been those of who is gone. And what that one sent of a group that it moved may be gone with it.
                let came_from_it = holder.other == gone;
                if core::mem::take(&mut holder.is_mixed) || came_from_it {
                    doubtful.insert(*group);
                }
                if came_from_it {
                    holder.other = NO_RUNTIME;
                }
                continue;
            }
            is_one = true;
            let other = core::mem::replace(&mut holder.other, NO_RUNTIME);
            if runtimes
                .get(usize::from(other))
                .is_some_and(|link| link.session != 0)
            {
                holder.runtime = other;
                doubtful.insert(*group);
            }
        }
        if is_one {
            self.blocks.retain(|group| {
                let holder = holders.get(group);
                holder.is_none_or(|holder| holder.runtime != gone)
            });
            holders.retain(|_, holder| holder.runtime != gone);
        }
        if !doubtful.is_empty() {
            self.ask_about(&doubtful);
        }
    }

    /// Asks those who may have these groups about their blocks.
    fn ask_about(&mut self, groups: &HashSet<GroupKey>) {
        for (addr, first) in self.blocks.places() {
            let group = self.blocks.at(addr, first).filter(|group| groups.contains(group));
            if let Some(group) = group
                && let Some(holder) = self.sessions.holder(&group)
            {
                let ports = self.blocks.size_at(first);
                let block = Block { addr, first, ports };
                self.sessions.asked.insert((holder as u16, block, group));
                self.moves.say(holder, Message::BlockDoubted(block, group));
            }
        }
    }

    /// Looks through some of the routes for such as lead to nobody; answers how many it looked at.
    #[inline]
    pub(super) fn forget_routes(&mut self) -> usize {
        if self.sessions.unseen == 0 {
            return 0;
        }
        self.forget_some()
    }

    #[cold]
    fn forget_some(&mut self) -> usize {
        let from = self.sessions.unseen.saturating_sub(LOOKS);
        let looked = self.sessions.unseen - from;
        for index in (from..self.sessions.unseen).rev() {
            self.see_route(index as u32);
        }
        self.sessions.unseen = from;
        looked
    }

    /// Forgets a route that leads to nobody, or turns it to who has its group; whether it is there.
    pub(super) fn see_route(&mut self, index: u32) -> bool {
        let route = self.routes[index as usize];
        if route.runtime == NO_RUNTIME {
            return false;
        }
        let lives = |runtime: u16, life: u16| {
            let link = self.runtimes.get(usize::from(runtime));
            link.is_some_and(|link| link.session != 0 && link.life == life)
        };
        let has_source = route.source != NO_RUNTIME && lives(route.source, route.source_life);
        if lives(route.runtime, route.life) {
            if route.is_awaited() && !has_source {
                self.routes[index as usize].set_awaited(false);
                self.doubt_anyway(index);
            }
            return true;
        }
        if route.is_awaited() && has_source {
            // Its source has not let go of it, or has when the other one's last word was lost with it: it is asked.
            self.turn_route(index, route.source);
            self.routes[index as usize].set_awaited(false);
            self.doubt_anyway(index);
            return true;
        }
        self.remove_route(index);
        false
    }

    /// Before a burst is routed: what it would find that leads to nobody is forgotten.
    #[cold]
    pub(super) fn weed(&mut self, lanes: &mut [Lane]) {
        for lane in lanes {
            for key in lane.second.into_iter().chain([lane.group]) {
                self.find_live(&key);
            }
            lane.candidate = NOBODY;
        }
    }

    /// The route of a key that leads to somebody.
    pub(super) fn find_live(&mut self, key: &GroupKey) -> Option<u32> {
        let index = self.find(key)?;
        if !self.sessions.is_forgetting() || self.see_route(index) {
            return Some(index);
        }
        None
    }
}
