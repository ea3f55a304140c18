//! Which runtime is the replica, and what begins when another one is.
//!
//! ```text
//!   a runtime comes, goes, leaves; an order ─► best ─┬─ the one in use is gone, or there is nothing to copy ─► a base
//!                                                    └─ it is there ─► a base beside it (`next`)
//! ```
//!
//! Invariant: all flows are sent again for an order, for a replica that is gone or leaves, and for
//! nothing else.
//!
//! Not here: how a base goes on (`sender`), and one beside another (`next`).

use super::changes::Change;
use super::sender::{Pace, REFUSALS_MAX, Unfit};
use crate::hold::mark_of;
use crate::message::Message;
use crate::parts::Core;
use crate::record::Copy;
use crate::stats::DropReason;
use alloc::vec::Vec;
use protocols::ownership::RuntimeId;

/// For so long a runtime that has read too little as the next replica comes behind others, in
/// nanoseconds.
const LATE: u64 = 1_000_000_000;

impl Core {
    /// Chooses a replica if none is in use: among the runtimes that are there and take flows, the
    /// ordered one, or the farthest, of these the next.
    #[cold]
    pub fn choose_replica(&mut self) {
        if !self.sender.is_wanted {
            return;
        }
        let there = self.sender.to.filter(|to| self.sessions.has_runtime(*to));
        if let Some(to) = there
            && self.has_any()
        {
            // All flows are sent again for another choice: for no better place, but where it
            // leaves.
            let is_leaving = |runtime: u16| self.sessions.is_runtime_leaving(runtime);
            let next = self.sender.next.as_ref().map(|next| next.to);
            if next.is_some_and(is_leaving) {
                return self.choose_now(true);
            }
            let is_coming = next.is_some();
            if !is_leaving(to) || is_coming || self.best().is_none_or(is_leaving) {
                return;
            }
        }
        self.choose_now(there.is_some());
    }

    /// Whether there is anything to copy.
    fn has_any(&self) -> bool {
        let is_empty = self.flows.active() + self.flows.groups().resting().len() == 0;
        !is_empty || !self.sender.come.is_empty()
    }

    /// The next replica reads too little: another takes its place, or it begins again.
    #[cold]
    pub(super) fn give_next_up(&mut self) {
        if let Some(next) = &self.sender.next {
            if super::is_broken("a next one has time") {
                self.sender.refusals.insert(next.to, REFUSALS_MAX);
            }
            self.sender.late.insert(next.to, self.now.saturating_add(LATE));
            self.drop_next();
            self.choose_now(true);
        }
    }

    /// How many bases a runtime has refused in its session.
    fn refusals(&self, runtime: u16) -> u32 {
        self.sender.refusals.get(&runtime).map_or(0, |times| *times)
    }

    fn is_late(&self, runtime: u16) -> bool {
        let until = self.sender.late.get(&runtime);
        until.is_some_and(|until| *until > self.now)
    }

    /// This runtime is to keep the copies; `None`: the replica that the layout says. The replica in
    /// use has them until it has all of them.
    #[cold]
    pub fn order_replica(&mut self, replica: Option<u16>) -> Result<(), Unfit> {
        if !self.sender.is_wanted {
            return Err(Unfit::NoCopies);
        }
        if let Some(replica) = replica {
            let ranks = &self.settings.replica_ranks;
            let is_known = usize::from(replica) < self.sessions.runtimes.len();
            let is_apart = match ranks.is_empty() {
                true => replica != self.settings.info.runtime,
                false => ranks.get(usize::from(replica)).is_some_and(Option::is_some),
            };
            if !is_known || !self.sessions.may_keep_copies(replica) && is_apart {
                return Err(Unfit::NotThere);
            }
            if !is_apart || replica == self.settings.info.runtime {
                return Err(Unfit::SameProcess);
            }
        }
        if let Some(replica) = replica {
            // The operator may know better.
            self.sender.refusals.remove(&replica);
            self.sender.late.remove(&replica);
        }
        self.sender.ordered = replica;
        let has_one = self.sender.to.is_some_and(|to| self.sessions.has_runtime(to));
        self.choose_now(has_one);
        Ok(())
    }

    /// The best replica among the present runtimes.
    fn best(&self) -> Option<u16> {
        let (me, count) = (self.settings.info.runtime, self.sessions.runtimes.len() as u16);
        let others = (1..count).map(|step| (me + step) % count);
        let ranks = &self.settings.replica_ranks;
        let rank = |other: u16| match ranks.is_empty() || wire::planted::is("copies_in_own_process") {
            true => Some(0),
            false => ranks.get(usize::from(other)).copied().flatten(),
        };
        let is_fit = |other: &u16| self.refusals(*other) < REFUSALS_MAX;
        let there = others.filter(|other| self.sessions.may_keep_copies(*other) && is_fit(other));
        let is_other = |other| self.sender.ordered.is_some_and(|ordered| ordered != other);
        let ranked = there.filter_map(|other| {
            let is_leaving = self.sessions.is_runtime_leaving(other);
            Some((
                (is_leaving, self.is_late(other), is_other(other), rank(other)?),
                other,
            ))
        });
        // The first of equals.
        let chosen = ranked.min_by_key(|(rank, _)| *rank);
        chosen.map(|(_, other)| other)
    }

    /// `has_one`: the replica in use is there.
    pub(super) fn choose_now(&mut self, has_one: bool) {
        let chosen = self.best();
        if has_one && chosen == self.sender.to {
            self.sender.is_asked = false;
            return self.drop_next();
        }
        if let Some(to) = chosen
            && has_one
            && self.has_any()
        {
            return self.begin_next(to);
        }
        if has_one {
            self.send_copy(self.no_base());
        }
        self.use_replica(chosen);
    }

    /// Begins a base for this runtime, in which all is sent; `None`: no copies are kept.
    pub(super) fn use_replica(&mut self, to: Option<u16>) {
        self.drop_others_than(to);
        self.sender.to = to;
        self.follow();
        (self.sender.whole, self.sender.change) = (None, Change::None);
        (self.sender.flows, self.sender.took) = (0, 0);
        self.sender.before.forget();
        self.sender.arrived.clear();
        if to.is_none() {
            self.sender.walk = None;
            // Packets leave that no copy of a base before knows of.
            let number = self.sender.another_number();
            self.void_before(number);
            match self.sender.drops_alone() {
                true => self.gate.close(DropReason::NoReplica, &mut self.out),
                false => self.sender.unprotected += self.gate.open(&mut self.out) as u64,
            }
            return;
        }
        self.sender.number = self.sender.another_number();
        self.void_before(self.sender.number);
        self.sender.another_base();
        (self.sender.sent, self.sender.first) = (0, 1);
        self.sender.is_refused = false;
        self.flows.take_ended();
        self.flows.owners.note_changes();
        self.flows.owners.take_changes();
        let base = Copy::Base {
            number: self.sender.number,
            now: self.now,
            incarnation: self.incarnation(),
            is_second: false,
        };
        self.send_copy(base);
        self.send_plans(true);
        self.begin_walk();
        let blocks: Vec<_> = self.flows.owners.places();
        for (addr, first) in blocks {
            let group = self.flows.owners.at(addr, first);
            if let Some(group) = group.filter(|group| !self.sender.arriving.contains(group)) {
                let ports = self.flows.owners.size_at(first);
                self.send_copy(Copy::Block {
                    is_claimed: true,
                    block: nf::Block { addr, first, ports },
                    group,
                });
            }
        }
        let waiting_at_gate = self.gate.begin();
        self.copy_arriving();
        self.gate.note_sent(self.sender.sent);
        // First packets that wait for switches come behind their copies, too.
        for actor in self.hold.actors() {
            self.commit(actor);
            self.mark_sent(actor);
        }
        for waiting in waiting_at_gate {
            // Its records are in this base; its flow may be over, and then the remains of that are.
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

    /// Copies of bases before this number are none to go on from, wherever they are: a runtime that
    /// is cut off from this one may have some. Switches hear it before packets that leave from now
    /// on.
    #[cold]
    pub(super) fn void_before(&mut self, number: u32) {
        let is_new = number > 1 && self.sender.is_wanted;
        if is_new && !super::is_broken("copies of before are void") {
            self.sender.least = number;
            self.out.announce(self.least());
        }
    }

    /// Which bases of this incarnation are not void.
    fn least(&self) -> Message {
        let me = RuntimeId(self.settings.info.runtime);
        Message::Keeps(me, self.sender.least, self.incarnation())
    }

    /// A switch is met: it hears which bases are void.
    #[cold]
    pub fn say_least(&mut self, switch: usize) {
        if self.sender.least > 0 {
            let least = self.least();
            self.out.send(switch, &least);
        }
    }

    pub(super) fn begin_walk(&mut self) {
        (self.sender.walk, self.sender.walk_groups) = (Some(0), 0);
        self.sender.pace = Pace::default();
        self.sender.whole = None;
        self.sender.began = self.now;
        self.sender.took = 0;
    }

    fn mark_sent(&mut self, actor: u32) {
        let index = mark_of(self.flows.header(actor), actor);
        self.gate.mark(index, self.sender.sent);
    }

    /// The session of a link to a runtime is over: if it was the replica, its copies are no longer
    /// this runtime's.
    #[cold]
    pub fn replica_gone(&mut self, runtime: u16) {
        let mut is_asked = false;
        self.sender.refusals.remove(&runtime);
        self.sender.late.remove(&runtime);
        if self.sender.next.as_ref().is_some_and(|next| next.to == runtime) {
            self.sender.next = None;
        }
        if self.sender.former.is_some_and(|former| former.to == runtime) {
            self.sender.former = None;
            is_asked = core::mem::take(&mut self.sender.is_asked);
        }
        if self.sender.to == Some(runtime) {
            self.sender.to = None;
            self.follow();
        }
        match is_asked && self.sender.to.is_some() {
            true => self.choose_now(true),
            false => self.choose_replica(),
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

    /// The replica cannot keep a record of this base: it is sent all again, or is none any more.
    #[cold]
    pub fn copies_refused(&mut self, peer: u16, number: u32) {
        let next = self.sender.next.as_ref();
        let has_next = next.is_some();
        let is_next = next.is_some_and(|next| (next.to, next.number) == (peer, number));
        if !is_next && (self.sender.to != Some(peer) || self.sender.number != number) {
            // Of a base that is void by now.
            return;
        }
        *self.sender.refusals.entry(peer).or_default() += 1;
        if is_next {
            self.drop_next();
            return self.choose_now(true);
        }
        if has_next {
            // It has all acknowledged records, and packets have left by no others.
            self.sender.is_refused = true;
            return;
        }
        match self.refusals(peer) < REFUSALS_MAX {
            true => self.use_replica(Some(peer)),
            false => self.choose_now(false),
        }
    }

    /// The replica has so many records of a base.
    pub fn copies_acknowledged(&mut self, peer: u16, number: u32, count: u64) {
        if self.sender.next.is_some() && self.next_acknowledged(peer, number, count) {
            return;
        }
        if self.sender.to != Some(peer) || self.sender.number != number {
            // Of a base that is void by now.
            return;
        }
        if count > self.sender.sent {
            return self.out.reject();
        }
        // A base that took another's place has *whole* as its first.
        let sender = &self.sender;
        if sender.first > 1 && sender.least < sender.number && count >= sender.first {
            // Packets leave from now on that the one before has nothing of.
            self.void_before(self.sender.number);
        }
        self.gate.acknowledge(count, &mut self.out);
        if self.sender.took == 0 && self.sender.is_whole(count) {
            self.sender.took = self.now.saturating_sub(self.sender.began).max(1);
        }
        self.let_former_go(count);
    }

    /// The replica in use has all records up to now: if it has the whole base, the replica before
    /// is let go.
    #[inline]
    pub(super) fn let_former_go(&mut self, acknowledged: u64) {
        if self.sender.former.is_some() && acknowledged >= self.sender.first {
            self.drop_former();
            match core::mem::take(&mut self.sender.is_asked) {
                true => self.choose_now(true),
                false => self.choose_replica(),
            }
        }
    }
}
