//! A replica takes another's place without a moment in which flows have no copy: the replica before
//! is let go when the other one has all.
//!
//! # Theory of operation
//!
//! ```text
//!   old ◄──────── records ──────────┐ packets wait for its word │ none any more: it keeps what it has ──► void
//!                                primary                        │                                         ▲
//!   next ◄─ base ─ walk, and what ──┘───── walk is done ──► whole ─ records, packets wait for its word ── acknowledged
//!                  of it changes                             swap
//! ```
//!
//! An operator orders another replica, or the replica in use leaves. The base for the next replica
//! is sent *beside* the records for the replica in use, in slots' order. Records for the replica in
//! use go to the next one, too, as far as the walk has come ([`Next::mirror`]): behind that, the
//! walk takes a flow as it is. So nothing but the walk's place is noted of flows: the next replica
//! has a copy in a slot if the slot is behind the walk and the replica in use has a copy there.
//!
//! *Swap.* With *whole* the next one is the replica, in the same step: packets that have yet to
//! leave wait from there on for its word ([`crate::hold::gate::Gate::rebase`]), and nothing more is
//! sent to the replica before. That replica keeps its copies until *whole* is acknowledged.
//!
//! *Heirs.* A keeper counts such a base only behind *whole*: before, it reports that it has none.
//!
//! | the primary fails | next has | heir | why that is right |
//! |---|---|---|---|
//! | before the swap | no *whole* | old | all packets that left were acknowledged by old |
//! | behind it | no *whole* | old | nothing that old has not acknowledged has left since the swap |
//! | behind it | *whole* | next: its number is higher | *whole* is behind all that was sent before it, by one link |
//!
//! | it fails itself | effect |
//! |---|---|
//! | next, before the swap | it is forgotten, another one is chosen |
//! | next reads too little, before the swap | it is given up, another one is chosen; if there is none and old leaves, it begins again |
//! | old, before the swap | next is forgotten: a base begins as where there was none |
//! | old, behind it | nothing |
//! | next, behind it, before its word | old is void: a base begins as where there was none |
//! | next refuses a record, behind it, before its word | the same |
//!
//! The marks of a change are not sent to the next one: records before *whole* count with it or not
//! at all, and no change is under way at the swap.
//!
//! Invariants: there is one heir; a packet leaves when all that it depends on is at a runtime that
//! would be the heir; a packet that passes costs one test here, with its record; of buffers a next
//! one that reads nothing has those that it began with, and 65,536 at most; it may begin again
//! each 50 ms, until its session ends.
//!
//! Not here: which runtime is chosen (`choosing`); the copies at the next one (`keeper`); the same
//! for a replica that has refused a record and is sent all again: it has no room for both.

use super::records;
use super::sender::{Pace, Sender};
use crate::flows::FlowStore;
use crate::flows::actor::{NO_GROUP, STALE};
use crate::flows::group::GroupKey;
use crate::outbox::Outbox;
use crate::parts::Core;
use crate::record::{Copy, Record};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Records that a next replica has not acknowledged, besides those that it began with: beyond that
/// it is given up unless it has just acknowledged some.
pub(super) const BEHIND_MAX: u64 = 4096;
/// So many times that it may be behind, however much it acknowledges.
const MOST: u64 = 16;
/// How long ago it acknowledged some, in nanoseconds, if it has *just* done so.
const MOMENT: u64 = 50_000_000;
/// The same of a time in which it acknowledges nothing, in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;

/// See the module's page.
pub(super) struct Next {
    pub to: u16,
    pub number: u32,
    /// Records of its base.
    sent: u64,
    /// How many of them it began with: those that are not of flows, and are not paced.
    at_once: u64,
    acknowledged: u64,
    began: u64,
    /// The next actor that it has not got.
    walk: u32,
    /// Behind the last actor: the next place of a group.
    walk_groups: u32,
    pace: Pace,
    /// When it acknowledged something last, began, or had nothing to acknowledge.
    heard: u64,
    /// By place: whether it has the group.
    groups: Vec<bool>,
    /// Whether it has the state at hand, and so further pieces.
    has_current: bool,
}

/// The replica before, until the replica in use has all.
#[derive(Clone, Copy)]
pub(super) struct Former {
    pub to: u16,
    /// Whether it had all.
    pub was_whole: bool,
}

impl Next {
    fn send(&mut self, copy: &Copy<'_>, out: &mut Outbox) {
        out.send_record(self.to, &Record::Copy(*copy));
        self.sent += 1;
    }

    fn has_group(&self, group: u32) -> bool {
        self.groups.get(group as usize) == Some(&true)
    }

    fn set_group(&mut self, group: u32, has: bool) {
        let index = group as usize;
        if index >= self.groups.len() {
            self.groups.resize(index + 1, false);
        }
        if let Some(known) = self.groups.get_mut(index) {
            *known = has;
        }
    }

    /// A flow's group is here before the flow is, if the walk is behind the flow.
    #[cold]
    pub fn lead(&mut self, flow: Option<u32>, group: u32, (flows, now): (&FlowStore, u64), out: &mut Outbox) {
        if flow.is_some_and(|flow| flow >= self.walk) || group == NO_GROUP || self.has_group(group) {
            return;
        }
        records::each_of_group(group, flows, |copy| self.send(&copy, out));
        if let Some(left) = records::time_left(group, flows, now) {
            self.send(&Copy::Rests { slot: group, left }, out);
        }
        self.set_group(group, true);
    }

    /// A record goes to the replica in use: it goes here, too, if it is of something that is here.
    #[cold]
    pub fn mirror(&mut self, copy: &Copy<'_>, out: &mut Outbox) {
        let is_here = |next: &Self, slot: u32, is_group: bool| match is_group {
            true => next.has_group(slot),
            false => slot < next.walk,
        };
        let goes = match *copy {
            Copy::Flow { slot, .. } => {
                self.has_current = slot < self.walk;
                self.has_current
            }
            Copy::Group { slot, .. } => {
                self.set_group(slot, true);
                self.has_current = true;
                true
            }
            Copy::More(_) => self.has_current,
            Copy::Runs { slot, is_group, .. } => is_here(self, slot, is_group),
            Copy::End { slot, is_group } => {
                let goes = is_here(self, slot, is_group);
                if is_group {
                    self.set_group(slot, false);
                }
                goes
            }
            Copy::Rests { slot, .. } => is_here(self, slot, true),
            Copy::Block { .. } | Copy::Plan { .. } | Copy::Over { .. } => true,
            Copy::Change | Copy::Changed | Copy::Whole => false,
            Copy::Base { .. } | Copy::Acknowledged { .. } | Copy::Refused { .. } => false,
        };
        if goes && !super::is_broken("changes go to both") {
            self.send(copy, out);
        }
    }
}

impl Sender {
    /// Sends a record to the replica in use, and to the next one, if there is one.
    #[inline]
    pub(super) fn put(&mut self, to: u16, copy: &Copy<'_>, out: &mut Outbox) {
        out.send_record(to, &Record::Copy(*copy));
        self.sent += 1;
        if let Some(next) = &mut self.next {
            next.mirror(copy, out);
        }
    }

    /// The same of changed bytes.
    #[inline]
    pub(super) fn put_runs(&mut self, to: u16, (slot, is_group): (u32, bool), runs: &[u8], out: &mut Outbox) {
        out.send_runs(to, slot, is_group, runs);
        self.sent += 1;
        if let Some(next) = &mut self.next {
            next.mirror(&Copy::Runs { slot, is_group, runs }, out);
        }
    }

    /// The number of another base.
    pub(super) fn another_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }
}

impl Core {
    /// This runtime is to take the place of the replica in use when it has all.
    #[cold]
    pub(super) fn begin_next(&mut self, to: u16) {
        if self.sender.former.is_some() {
            // That one has to be void before it may be the next.
            self.sender.is_asked = true;
            return;
        }
        if self.sender.next.as_ref().is_some_and(|next| next.to == to) {
            return;
        }
        self.drop_next();
        let number = self.sender.another_number();
        let mut next = Box::new(Next {
            to,
            number,
            sent: 0,
            at_once: 0,
            acknowledged: 0,
            began: self.now,
            walk: 0,
            walk_groups: 0,
            pace: Pace::default(),
            heard: self.now,
            groups: Vec::new(),
            has_current: false,
        });
        let base = Copy::Base {
            number,
            now: self.now,
            incarnation: self.incarnation(),
            is_second: true,
        };
        next.send(&base, &mut self.out);
        self.each_plan(true, |core, plan| next.send(&plan, &mut core.out));
        for (addr, first) in self.flows.owners.places() {
            if let Some(group) = self.flows.owners.at(addr, first) {
                let ports = self.flows.owners.size_at(first);
                let block = nf::Block { addr, first, ports };
                let is_claimed = true;
                let copy = Copy::Block {
                    is_claimed,
                    block,
                    group,
                };
                next.send(&copy, &mut self.out);
            }
        }
        // Ends that the replica in use is yet to be told of go to both.
        let sender = &self.sender;
        let over = sender.come.iter().filter(|(_, is_over)| **is_over);
        for group in over.map(|(words, _)| GroupKey::from_words(*words)) {
            if !sender.over.contains(&group) {
                let copy = Copy::Over { group, is_over: true };
                next.send(&copy, &mut self.out);
            }
        }
        next.at_once = next.sent;
        self.sender.next = Some(next);
        if super::is_broken("the one before is kept until then") {
            let void = self.no_base();
            self.out
                .send_record(self.sender.to.unwrap_or(to), &Record::Copy(void));
        }
    }

    /// No other runtime is to be the replica instead.
    #[cold]
    pub(super) fn drop_next(&mut self) {
        if let Some(next) = self.sender.next.take() {
            let void = self.no_base();
            self.out.send_record(next.to, &Record::Copy(void));
        }
    }

    /// The copies of the replica before are void.
    #[cold]
    pub(super) fn drop_former(&mut self) {
        if let Some(former) = self.sender.former.take() {
            let void = self.no_base();
            self.out.send_record(former.to, &Record::Copy(void));
        }
    }

    /// Another base begins for this runtime, or none for any.
    pub(super) fn drop_others_than(&mut self, to: Option<u16>) {
        // A base makes older copies there void.
        match self.sender.next.as_ref().is_some_and(|next| Some(next.to) == to) {
            true => self.sender.next = None,
            false => self.drop_next(),
        }
        match self.sender.former.is_some_and(|former| Some(former.to) == to) {
            true => self.sender.former = None,
            false => self.drop_former(),
        }
        self.sender.is_asked = false;
    }

    /// The next replica has so many records; whether it is the one of this base.
    pub(super) fn next_acknowledged(&mut self, peer: u16, number: u32, count: u64) -> bool {
        let next = self.sender.next.as_mut();
        let Some(next) = next.filter(|next| (next.to, next.number) == (peer, number)) else {
            return false;
        };
        match count > next.sent {
            true => self.out.reject(),
            false => (next.acknowledged, next.heard) = (count, self.now),
        }
        true
    }

    /// Goes on with the next one's base, behind all records for the replica in use; `false` if
    /// there is nothing more to do.
    #[cold]
    pub(super) fn walk_next(&mut self) -> bool {
        let Some(next) = &mut self.sender.next else {
            return false;
        };
        if next.pace.waits(next.acknowledged) {
            return false;
        }
        let before = next.sent;
        let (actor, place) = (next.walk, next.walk_groups);
        if actor < self.flows.used() {
            let header = self.flows.header(actor);
            if header.copied & !STALE == self.sender.base {
                next.lead(None, header.group, (&self.flows, self.now), &mut self.out);
                self.walk_flow(actor);
            }
            if let Some(next) = &mut self.sender.next {
                next.walk = actor + 1;
                next.pace.note(before, next.sent);
            }
            return true;
        }
        if let Some(known) = self.sender.groups.get(place as usize) {
            if *known == self.sender.base {
                next.lead(None, place, (&self.flows, self.now), &mut self.out);
            }
            next.walk_groups = place + 1;
            next.pace.note(before, next.sent);
            return true;
        }
        self.use_next();
        false
    }

    fn walk_flow(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        if let Some(next) = &mut self.sender.next {
            let (out, runner, flows) = (&mut self.out, &self.runner, &self.flows);
            let each = |copy: Copy<'_>| next.send(&copy, out);
            records::each_of_flow(actor, &header, (runner, flows, self.now), each);
        }
    }

    /// Whether the next replica reads too little for a base to come to an end. Its unread records
    /// take buffers, which packets wait in.
    pub(super) fn is_next_stuck(&mut self) -> bool {
        let Some(next) = &mut self.sender.next else {
            return false;
        };
        if next.sent == next.acknowledged {
            next.heard = self.now;
            return false;
        }
        let silent = self.now.saturating_sub(next.heard);
        let behind = next.sent - next.acknowledged.max(next.at_once);
        if super::is_broken("a next one has time") {
            return next.sent - next.acknowledged > super::behind_max();
        }
        behind > MOST * super::behind_max()
            || behind > super::behind_max() && silent > MOMENT
            || silent > PATIENCE
    }

    /// The next replica has been sent all: from now on it is the replica in use.
    fn use_next(&mut self) {
        let Some(mut next) = self.sender.next.take() else {
            return;
        };
        next.send(&Copy::Whole, &mut self.out);
        let was_whole = self.sender.is_whole(self.gate.acknowledged());
        let sender = &mut self.sender;
        sender.former = sender.to.replace(next.to).map(|to| Former { to, was_whole });
        (sender.number, sender.sent) = (next.number, next.sent);
        (sender.first, sender.whole) = (next.sent, Some(next.sent));
        (sender.arriving_sent, sender.is_refused) = (next.sent, false);
        sender.began = next.began;
        sender.took = self.now.saturating_sub(next.began).max(1);
        self.gate.rebase(next.sent, next.acknowledged);
        self.gate.acknowledge(next.acknowledged, &mut self.out);
        self.follow();
    }
}
