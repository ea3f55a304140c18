//! Which groups begin to move, which are settled, and which take too long.
//!
//! Not here: the groups that orders select (`order`).

use super::order::{Tried, tried};
use super::{AGAIN, Moves, Moving};
use crate::flows::actor::{NO_GROUP, Phase};
use crate::flows::group::GroupKey;
use crate::hold::{is_held, mark_of};
use crate::parts::Core;
use alloc::vec::Vec;
use hashbrown::HashSet;
use protocols::ownership::{Input, Ownership, Phase as Part, RuntimeId, Timer};
use wire::planted;

impl Moves {
    /// Sends the next groups on their way, if half of those that may be have arrived; answers how
    /// many.
    pub(crate) fn begin_moves(&mut self, core: &mut Core) -> usize {
        if core.runner.is_changing()
            || core.sessions.is_resyncing()
            || core.now < core.still_until
            || !self.answers.is_empty()
        {
            return 0;
        }
        let (most, flows_max) = (
            core.settings.moves_max as usize,
            core.settings.moved_flows_max as usize,
        );
        let orders = &self.orders;
        if orders.waiting == 0 || orders.under_way > most / 2 || orders.flows > flows_max / 2 {
            return 0;
        }
        let mut flows = orders.flows;
        self.prefetch_waiting(core);
        let mut batch = Vec::new();
        let mut left_out = 0;
        for at in 0..self.orders.all.len() {
            while self.orders.under_way + batch.len() < most && flows < flows_max {
                let ordered = &mut self.orders.all[at];
                let (group, to, before) = if let Some(again) = ordered.again.pop_front() {
                    again
                } else if let Some(group) = ordered.waiting.pop_front() {
                    if !ordered.take_of_count(core.flows.count_of(group)) {
                        left_out += 1;
                        continue;
                    }
                    let to = ordered.to[ordered.next % ordered.to.len()];
                    ordered.next += 1;
                    (group, to, 0)
                } else {
                    break;
                };
                // Each before the first begins: an order is not over while any of them may.
                ordered.receipt.under_way += 1;
                flows += core.flows.count_of(group);
                batch.push((group, to, before, at));
            }
        }
        self.orders.waiting -= batch.len() + left_out;
        if left_out > 0 {
            let numbers: Vec<u32> = self.orders.all.iter().map(|ordered| ordered.number).collect();
            numbers
                .into_iter()
                .for_each(|number| self.see_whether_over(core, number));
        }
        self.orders.under_way += batch.len();
        let count = batch.len();
        for (group, to, before, at) in batch {
            let actors = core.flows_of(group);
            let order = self.orders.all[at].number;
            if self.has_room_to_begin(core, actors.len()) {
                self.begin_move(core, group, (to, before), order, actors);
                continue;
            }
            // Words about so many reply keys have to wait for buffers.
            let orders = &mut self.orders;
            orders.under_way -= 1;
            orders.all[at].receipt.under_way -= 1;
            orders.waiting += 1;
            match before {
                0 => {
                    orders.all[at].give_to_count(actors.len());
                    orders.all[at].waiting.push_back(group);
                }
                before => orders.all[at].again.push_back((group, to, before)),
            }
        }
        count
    }

    /// Whether there are buffers for whatever is said of a group of so many flows; for more than
    /// half of them there always are.
    pub(super) fn has_room_to_begin(&self, core: &Core, flows: usize) -> bool {
        let words = 2 + flows * (1 + usize::from(core.settings.switches)) / 10;
        core.out.pool().free() > core.out.reserve() + words.min(core.out.pool().total() / 2)
    }

    pub(super) fn begin_move(
        &mut self,
        core: &mut Core,
        group: GroupKey,
        (to, before): (u16, Tried),
        order: u32,
        actors: Vec<u32>,
    ) {
        let hash = group.hash(&core.settings.seed);
        if actors.is_empty() && !core.is_resting(&group) || self.at(hash).is_some() {
            // Over, or on its way already by another order.
            return self.leave_order(core, order);
        }
        // Where no runtime is there any more to hear of it, another may take it.
        let other = match self.is_there(core, to) {
            true => Some((to, before)),
            false => {
                let before = before | tried(to);
                self.another(core, order, before).map(|other| (other, before))
            }
        };
        let Some((to, before)) = other else {
            if let Some(receipt) = self.orders.receipt(order) {
                receipt.asked += actors.len() as u64;
                receipt.failed += actors.len() as u64;
            }
            return self.leave_order(core, order);
        };
        let reply_keys = core.flows.announced_keys(&actors);
        let homes = self.homes(core, &group, &reply_keys);
        let machine = Ownership::active(self.me(core), self.clock, homes, self.all_switches(core));
        self.clock = self.clock.next();
        if let Some(receipt) = self.orders.receipt(order) {
            receipt.asked += actors.len() as u64;
        }
        let deadline = self.moving_time(core).saturating_add(core.settings.move_timeout);
        let weight = actors.len() as u32;
        self.orders.flows += weight as usize;
        let id = self.insert(
            hash,
            &core.settings.seed,
            Moving {
                actors,
                reply_keys,
                deadline,
                order,
                to,
                tried: before | tried(to),
                weight,
                ..Moving::new(machine, group)
            },
        );
        self.drive(core, id, Input::Move(RuntimeId(to)));
    }

    /// Groups for which no packet comes any more, and of which no call waits: to be settled behind
    /// all that they have sent.
    pub(crate) fn quiesced_moves(&mut self, core: &mut Core) -> Vec<u32> {
        if self.quiescing.is_empty() {
            return Vec::new();
        }
        core.learn_reply_keys();
        let mut ready = Vec::new();
        for id in core::mem::take(&mut self.quiescing) {
            let Some(moving) = self.moving(id).filter(|moving| moving.is_quiescing) else {
                continue;
            };
            if !matches!(moving.machine.phase(), Part::Quiescing { .. }) {
                continue;
            }
            let group = moving.group;
            let mut actors = core::mem::take(&mut moving.actors);
            let known = core::mem::take(&mut moving.reply_keys);
            // Drops flows that have ended meanwhile, and whose places others may have.
            let (before, order) = (actors.len(), moving.order);
            let mut place = NO_GROUP;
            actors.retain(|actor| {
                let header = core.flows.header(*actor);
                // One flow of the group is enough to know the others by.
                let is_known = place != NO_GROUP && header.group == place && header.phase != Phase::Free;
                let is_of_it = is_known || core.flows.is_of(*actor, group);
                if is_of_it {
                    place = header.group;
                }
                is_of_it
            });
            if let Some(receipt) = self.orders.receipt(order) {
                receipt.asked -= (before - actors.len()) as u64;
            }
            let mut is_waiting = actors
                .iter()
                .any(|actor| core.flows.header(*actor).phase == Phase::Waiting);
            is_waiting &= !planted::is("call_not_waited_for");
            // Messages that switches have yet to hear, and packets that wait for a copy, leave
            // before *behind* is said.
            let has_unacknowledged = core.hold.has_over()
                || actors
                    .iter()
                    .any(|actor| is_held(core.flows.header(*actor).flags))
                || actors.iter().any(|actor| {
                    let mark = mark_of(core.flows.header(*actor), *actor);
                    core.gate.may_hold(mark) || core.store_gate.may_hold(mark)
                });
            // A flow that was not settled when the move began may have got a reply key that no
            // home was told about.
            let announced: HashSet<_> = known.iter().collect();
            let is_known = core
                .flows
                .announced_keys(&actors)
                .iter()
                .all(|key| announced.contains(key));
            drop(announced);
            if is_waiting && !has_unacknowledged && is_known {
                is_waiting = !core.runner.give_up_calls(&actors, &mut core.flows, &mut core.out);
            }
            let Some(moving) = self.moving(id) else {
                continue;
            };
            (moving.actors, moving.reply_keys) = (actors, known);
            if !is_known {
                moving.deadline = 0;
            }
            if is_waiting || has_unacknowledged || !is_known {
                self.quiescing.push(id);
            } else {
                moving.is_quiescing = false;
                ready.push(id);
            }
        }
        ready
    }

    /// A group is settled, and all that it has sent is on its way.
    pub(crate) fn quiesced(&mut self, core: &mut Core, id: u32) {
        self.drive(core, id, Input::Quiesced);
    }

    /// Goes on with messages about keys, and begins moves; answers how much was done.
    pub(crate) fn go_on(&mut self, core: &mut Core) -> usize {
        self.steps += 1;
        self.go_on_sending_keys(core)
            + self.go_on_answering(core)
            + self.go_on_selecting(core)
            + self.go_on_handing(core)
            + self.begin_moves(core)
    }

    /// Gives up moves that take too long, and pins again flows that have woken up.
    pub(crate) fn watch_moves(&mut self, core: &mut Core) {
        let now = self.moving_time(core);
        if self.pinned == 0 && !self.steps.is_multiple_of(64) {
            // Nothing there is urgent, and there may be many.
            return;
        }
        for id in 0..self.all.len() as u32 {
            let Some(moving) = self.moving(id) else {
                continue;
            };
            let is_late = moving.deadline <= now;
            if is_late && moving.machine.is_armed(Timer::Deadline) {
                self.drive(core, id, Input::Fired(Timer::Deadline));
            } else if moving.is_pinned {
                self.pin(core, id);
                if is_late {
                    self.call_back_again(core, id, now);
                }
            }
        }
    }

    /// Tells the homes of a group that is called back so once more, if all have answered, and the
    /// target has not; the homes of a group that is taken back, if some have yet to answer.
    #[cold]
    pub(super) fn call_back_again(&mut self, core: &mut Core, id: u32, now: u64) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        moving.deadline = now.saturating_add(moving.again);
        let is_taken_back = moving.machine.is_taken_back();
        if let Part::Returning { unanswered, .. } = moving.machine.phase()
            && (unanswered.is_empty() || is_taken_back)
        {
            moving.again = moving.again.saturating_mul(2);
            if is_taken_back {
                // Its packets wait for the answer.
                moving.again = moving.again.min(AGAIN);
            }
            self.drive(core, id, Input::Fired(Timer::Retry));
        }
    }
}
