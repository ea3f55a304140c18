//! A change of views: its stages, the sweep that hands records and objects over, and when it is
//! complete.

use super::inputs::{Output, Phase, Stage};
use super::members::{Key, Members};
use super::message::{Body, Message, Op, Request};
use super::state::{Entry, Objects};
use super::{Bug, has};
use crate::ownership::RuntimeId;

impl<B: Body> Objects<B> {
    /// The coordinator's stage; a stage that is not above the own is only acknowledged.
    pub(super) fn on_stage(&mut self, now: u64, stage: Stage, members: Members) {
        if stage <= self.stage {
            if stage < self.stage || stage.phase != Phase::Scaling || self.is_complete {
                self.outputs.push_back(Output::Reached(stage));
            }
            return;
        }
        if self.recovery.is_some() {
            return self.refuse();
        }
        let before = self.stage;
        let is_follower = before.phase == Phase::Scaling && stage.view == before.view.wrapping_add(1);
        match stage.phase {
            Phase::Prepared if is_follower || stage == Stage::prepared(before.view) => {
                if is_follower {
                    self.enter_normal(stage.view);
                }
                self.enter_prepared(now, stage, members);
            }
            Phase::Scaling if before == Stage::prepared(stage.view) => {
                (self.stage, self.cursor, self.is_complete) = (stage, None, false);
                self.wake(now);
                return;
            }
            Phase::Normal if is_follower => self.enter_normal(stage.view),
            _ => return self.refuse(),
        }
        self.outputs.push_back(Output::Reached(stage));
    }

    fn enter_prepared(&mut self, now: u64, stage: Stage, members: Members) {
        (self.stage, self.next, self.swept) = (stage, members, Members::NONE);
        self.removed = self.removed.minus(members);
        if self.is_leaving() {
            self.send_buffered(now);
        }
    }

    fn enter_normal(&mut self, view: u32) {
        (self.stage, self.members) = (Stage::normal(view), self.next);
        self.swept = Members::NONE;
        let members = self.members;
        if self.is_leaving() {
            // Their holders want them elsewhere, and have them there.
            self.entries.values_mut().for_each(|entry| entry.copy = None);
            self.entries.retain(|_, entry| !entry.is_empty());
        }
        for object in self
            .entries
            .values_mut()
            .filter_map(|entry| entry.object.as_mut())
        {
            object.copies = object.copies.and(members);
            object.dropping = object.dropping.and(members);
            object.image.applied.retain(|caller| members.has(caller.runtime));
        }
        let mut from = None;
        while let Some(key) = self.key_after(from) {
            self.copy_out(key);
            from = Some(key);
        }
    }

    /// A step of the sweep (K4, K5): so many keys, and at the end of a round a look at whether all
    /// is done.
    pub(super) fn sweep(&mut self, now: u64) {
        if self.stage.phase != Phase::Scaling || self.is_complete {
            return;
        }
        for _ in 0..self.settings.pace.max(1) {
            self.cursor = self.key_after(self.cursor);
            let Some(key) = self.cursor else { break };
            self.sweep_key(key);
        }
        if self.cursor.is_none() {
            self.end_round();
        }
        if !self.is_complete {
            self.wake(now.saturating_add(self.settings.pace_ns));
        }
    }

    fn sweep_key(&mut self, key: Key) {
        let (me, seed) = (self.me.runtime, self.settings.seed);
        if self.record(&key).is_some() && self.next.first(&key, seed) != Some(me) && !has(Bug::IdleKeysStay) {
            self.grant(key);
        }
        self.retarget(key);
        let is_leaving = self.is_leaving();
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        if is_leaving && object.leave.is_none() && !object.is_offered {
            object.is_offered = true;
            let generation = object.image.generation;
            self.ask(Request {
                key,
                caller: self.me,
                id: 0,
                answered_below: 0,
                forwards: 0,
                relinquished: 0,
                op: Op::Offer(generation),
            });
        }
    }

    fn end_round(&mut self) {
        let me = self.me.runtime;
        if !self.swept.has(me) {
            self.swept = self.swept.with(me);
            if self.members.has(me) {
                let view = self.stage.view.wrapping_add(1);
                for to in self.everyone().without(me).iter() {
                    self.send(to, Message::Swept(view));
                }
            }
        }
        let is_swept = self.members.minus(self.swept).is_empty() || has(Bug::CompleteAlone);
        if is_swept && self.is_done() {
            self.is_complete = true;
            self.outputs.push_back(Output::Reached(self.stage));
        }
    }

    /// Nothing that a transition moves is left here, and copies are where the next view wants them.
    fn is_done(&self) -> bool {
        let is_leaving = self.is_leaving() && !has(Bug::LeavesEarly);
        let is_left = |entry: &Entry<B>| {
            // A copy may be of an object that is under way to where no copy of it is.
            let has_copy = entry.copy.is_some() && !has(Bug::LeavesCopies);
            let waits = entry.awaiting.is_any() || !entry.parked.is_empty();
            entry.object.is_some() || has_copy || waits
        };
        let is_copied = |entry: &Entry<B>| entry.object.as_ref().is_none_or(super::state::Object::is_copied);
        match is_leaving {
            true => self.pending.is_empty() && !self.entries.values().any(is_left),
            false => self.entries.values().all(is_copied),
        }
    }

    /// An old member has no record of another's keys any more.
    pub(super) fn on_swept(&mut self, from: RuntimeId, view: u32) {
        let is_next = view == self.stage.view.wrapping_add(1) && self.stage.phase != Phase::Normal;
        match is_next && self.members.has(from) {
            true => self.swept = self.swept.with(from),
            false => self.refuse(),
        }
    }
}
