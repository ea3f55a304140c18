//! The ends of groups: with their last flow, or behind a rest ([`crate::flows::resting`]).
//!
//! ```text
//!   last flow ends ─► its functions say a time? ─► rests ─► over, evicted, or all is to end ─┐
//!                                     └─► none ──────────────────────────────────────────────┴─► `group_ended` ─► *GroupEmpty*
//! ```
//!
//! Invariants: a group that is on its way to or from another runtime does not end here; no group
//! ends for whose words there is no room.

use super::Core;
use crate::flows::actor::{Header, NO_GROUP};
use crate::flows::group::GroupKey;
use crate::message::Message;
use alloc::vec::Vec;
use nf::Block;

/// How many resting groups are looked at for a group that may be evicted.
const EVICTED_LOOKS: usize = 8;

impl Core {
    /// A flow that is over leaves its group: with the last one the group ends, or rests.
    pub(super) fn leave_group(&mut self, actor: u32) {
        let is_last = self.flows.is_last_of_group(actor);
        let Header { group, deadline, .. } = *self.flows.header(actor);
        // A flow that expired was over at its deadline, whenever that is noticed.
        let over = match deadline {
            0 => self.now,
            deadline => deadline.min(self.now),
        };
        if is_last
            && let Some(until) = self.rest_of(group, over)
            && until > self.now
        {
            return self.flows.rest_group(actor, until);
        }
        if is_last {
            self.runner.end_group(actor, &mut self.flows, &mut self.out);
        }
        let has_copy = self.has_copy(actor);
        if let Some(key) = self.flows.leave_group(actor) {
            self.note_over(&key);
            self.end_route(key, has_copy);
        }
    }

    /// Until when a group rests that has no flow from `since` on, if it does.
    pub fn rest_of(&self, index: u32, since: u64) -> Option<u64> {
        if !self.runner.stages().outlives || index == NO_GROUP {
            return None;
        }
        match self.runner.group_timeout(index, &self.flows) {
            0 => None,
            timeout => Some(since.saturating_add(timeout)),
        }
    }

    /// Ends groups whose rest is over; answers how many were looked at.
    pub(super) fn expire_groups(&mut self, budget: usize) -> usize {
        if self.flows.groups().resting().is_empty() {
            return 0;
        }
        let mut looked = 0;
        while looked < budget && self.runner.may_end() && self.out.is_clear() {
            let (due, count) = self.flows.due_group(self.now, budget - looked);
            looked += count;
            let Some(index) = due else {
                break;
            };
            match self.is_moving(index) {
                true => self.flows.look_again(index, self.now),
                false => self.end_resting(index),
            }
        }
        looked
    }

    fn is_moving(&self, index: u32) -> bool {
        let key = self.flows.groups().key(index);
        self.silent.is_moving(&key, &self.settings.seed)
    }

    /// Ends a group that rests, whatever its time.
    pub fn end_resting(&mut self, index: u32) {
        self.runner.end_resting(index, &mut self.flows, &mut self.out);
        let has_copy = self.sender.had_group(index);
        let key = self.flows.forget_resting(index);
        self.note_over(&key);
        self.end_route(key, has_copy);
    }

    /// Where no place for a group is free, ends the group that has rested longest; whether there is
    /// a place now.
    #[cold]
    pub fn evict_group(&mut self) -> bool {
        if self.flows.groups().room() > 0 {
            return true;
        }
        if !self.may_end_now() {
            return false;
        }
        let mut oldest = self.flows.groups().resting().oldest().take(EVICTED_LOOKS);
        let Some(index) = oldest.find(|index| !self.is_moving(*index)) else {
            return false;
        };
        drop(oldest);
        self.groups_evicted += 1;
        self.end_resting(index);
        true
    }

    /// Ends up to `budget` groups that rest, those on their way excepted; `true` when none is left.
    pub(super) fn end_all_resting(&mut self, budget: usize) -> bool {
        for _ in 0..budget {
            let mut oldest = self.flows.groups().resting().oldest();
            let next = oldest.find(|index| !self.is_moving(*index));
            drop(oldest);
            match next {
                Some(index) if self.may_end_now() => self.end_resting(index),
                _ => break,
            }
        }
        self.flows.groups().resting().is_empty()
    }

    /// A group begins here, or comes, and has no block yet: copies of it for which some were
    /// claimed ([`crate::replica`]) do not go on, and these are not here.
    #[cold]
    pub fn disclaim(&mut self, group: GroupKey) {
        let claimed: Vec<Block> = self.flows.owners.of(&group).collect();
        for block in claimed {
            self.flows.owners.release(block);
            self.out.announce(Message::BlockSuspect(block, group));
        }
    }

    /// Whether a group is here that has no flow.
    pub fn is_resting(&self, group: &GroupKey) -> bool {
        self.flows.resting_at(group).is_some()
    }

    /// Says that a group, or reply key, has no flow here; unless that is yet to be seen, or waits
    /// for the replica to know of it.
    pub fn tell_idle(&mut self, group: GroupKey) {
        let waits = self.silent.defers(group, &self.settings.seed) || self.flows.parting.has_idle(&group);
        if !waits && !wire::planted::is("idle_not_told") {
            self.out.announce(Message::GroupEmpty(group, 0));
        }
    }

    /// A group, or reply key, has lost its last flow: it is said that it is idle, when the replica
    /// knows of that if it has a copy; unless it is yet to be seen.
    pub(super) fn end_route(&mut self, group: GroupKey, has_copy: bool) {
        if !has_copy || crate::replica::is_broken("routes wait for copies") {
            return self.tell_idle(group);
        }
        if !self.silent.defers(group, &self.settings.seed) && !wire::planted::is("idle_not_told") {
            self.end_route_behind_copies(group);
        }
    }

    /// The same of keys of which that was looked at.
    pub fn end_route_behind_copies(&mut self, group: GroupKey) {
        let idle = Message::GroupEmpty(group, 0);
        self.flows.parting.part(idle, &mut self.out);
    }

    /// Whether the replica has, or is about to have, a copy of a flow's group; where flows are by
    /// themselves, of the flow.
    pub(super) fn has_copy(&self, actor: u32) -> bool {
        let header = self.flows.header(actor);
        self.sender.is_on()
            && match header.group {
                NO_GROUP => header.copied != 0,
                group => self.sender.had_group(group),
            }
    }

    /// Says messages that waited until the replica knew of the end, as far as there is room;
    /// answers how many. A key of a flow that is here again is not idle.
    #[cold]
    pub fn go_on_parting(&mut self) -> usize {
        self.flows.parting.note_sent(self.sender.sent());
        let mut count = 0;
        while self.out.has_room()
            && let Some(message) = self.flows.parting.next(self.gate.acknowledged())
        {
            count += 1;
            let is_here = match &message {
                Message::GroupEmpty(key, _) => {
                    self.flows.has_group(key) || self.silent.defers(*key, &self.settings.seed)
                }
                _ => false,
            };
            match message {
                _ if is_here => {}
                Message::BlockKept(block, home) => self.keep_or_return(block, home),
                message => self.out.announce(message),
            }
        }
        count
    }

    /// Whether there is room for what the end of a flow, or group, has to say.
    pub fn may_end_now(&self) -> bool {
        self.out.has_room() && self.runner.may_end()
    }

    /// Ends a group, if it rests: it is another runtime's.
    pub fn end_group_resting(&mut self, group: &GroupKey) {
        if let Some(index) = self.flows.resting_at(group) {
            self.end_resting(index);
        }
    }

    /// A group that rests has gone on elsewhere: nothing is given back here.
    pub fn forget_resting(&mut self, group: &GroupKey) {
        if let Some(index) = self.flows.resting_at(group) {
            self.flows.forget_resting(index);
        }
    }
}
