//! The end of flows and groups.

use super::Runtime;
use super::unheard::is_unheard;
use crate::env::Port;
use crate::flows::actor::{Phase, flag};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::stats::DropReason;
use alloc::vec::Vec;
use nf::cx::EFFECTS_MAX;
use nf::{Affinity, Departure, Direction, Recall, Side};
use wire::PacketBox;

/// Event log bytes that must be free before another flow is ended: its functions' records must not be lost.
pub(super) const EVENT_ROOM: usize = 8 * 1024;

/// Calls of a function for the end of one group, at most: enough for all ports of an address, one by one.
const GROUP_CALLS: usize = 65_536 / EFFECTS_MAX;

impl<P: Port> Runtime<P> {
    /// Looks at up to `budget` actors whose time may have come.
    pub(super) fn expire(&mut self, budget: usize) -> usize {
        let mut looked = 0;
        while looked < budget && self.log.room() >= EVENT_ROOM && self.unsaid.is_empty() {
            // One at a time: ending a flow needs the whole runtime.
            let (due, count) = self.flows.due(self.now, budget - looked);
            looked += count;
            let Some(actor) = due else {
                break;
            };
            self.end_actor(actor);
        }
        looked
    }

    /// Where flows or groups are at their bound, ends some whose time is over before a packet that would open another is refused: the
    /// step looks for them behind its packets only. What is looked at here counts among what the step looks at.
    pub(super) fn make_room(&mut self, link: usize) {
        let is_full = self.flows.free() <= self.moves.reserved_flows()
            || self.flows.affinity() != Affinity::Flow && self.flows.groups().room() == 0;
        if !is_full || self.early_looks == 0 {
            return;
        }
        // What ends here has not seen the packet at hand.
        self.outputs[link].consumed = self.outputs[link].consumed.wrapping_sub(1);
        self.early_looks -= self.expire(self.early_looks);
        self.outputs[link].consumed = self.outputs[link].consumed.wrapping_add(1);
    }

    /// Ends flows that functions want ended ([`nf::NetworkFunction::recall`]); answers how many were asked for. They count
    /// among the actors that the step looks at, since each end takes room for messages.
    pub(super) fn recall(&mut self) -> usize {
        if !core::mem::take(&mut self.recalls) {
            return 0;
        }
        let mut asked = 0;
        for function in 0..self.stages.functions.len() {
            loop {
                if asked == self.early_looks || self.log.room() < EVENT_ROOM || !self.unsaid.is_empty() {
                    self.recalls = true;
                    break;
                }
                match self.stages.functions[function].recall() {
                    Recall::Flow(actor) => {
                        asked += 1;
                        let is_there = (actor as usize) < self.flows.capacity();
                        if is_there && self.flows.header(actor).phase == Phase::Active {
                            self.end_actor(actor);
                        }
                    }
                    Recall::Later => {
                        self.recalls = true;
                        break;
                    }
                    Recall::Nothing => break,
                }
            }
        }
        self.early_looks -= asked;
        // A step that is asked again soon is no idle one.
        asked.max(usize::from(self.recalls))
    }

    /// Ends a flow: its functions give back what it took, its keys and, with its last flow, its group go.
    pub(super) fn end_actor(&mut self, actor: u32) {
        self.settle_all();
        if self.flows.header(actor).phase == Phase::Free {
            // Settling it has ended it.
            return;
        }
        if self.is_of_before(actor) {
            // Its functions are told of its end in the words of the configuration in force.
            let _ = self.adapt(actor);
        }
        self.end_adapted(actor);
    }

    /// [`Runtime::end_actor`] for a flow that is settled and whose states are of the instances in force.
    pub(super) fn end_adapted(&mut self, actor: u32) {
        let is_of_before = self.is_of_before(actor);
        self.drop_held(actor);
        if is_unheard(self.flows.header(actor).flags) {
            self.end_unheard(actor);
        }
        let header = *self.flows.header(actor);
        let state = self.flows.state(actor);
        let group = self.flows.group_state(header.group, state);
        let side = if header.flags & flag::FROM_OUTSIDE != 0 {
            Side::Outside
        } else {
            Side::Inside
        };
        let cx = self.prepare(actor, side, Direction::Opening);
        for at in 0..self.steps_of(actor).len() {
            let step = self.steps_of(actor)[at];
            // SAFETY: the state is this actor's, laid out for this chain; no call of it waits.
            unsafe {
                cx.group = group.add(step.group as usize);
                cx.counters = step.counters;
                let stage = &self.stages.functions[usize::from(step.function)];
                stage.departed(state.add(step.flow as usize), Departure::Expired, cx);
            }
            self.settle_accounts(cx, actor);
        }
        if let Some(key) = self.flows.remove_keys(actor) {
            self.tell_idle(key);
        }
        if self.flows.is_last_of_group(actor) {
            self.end_group(actor, group);
        }
        if let Some(key) = self.flows.leave_group(actor) {
            self.tell_idle(key);
        }
        self.flows.end(actor);
        self.flows_ended += 1;
        if is_of_before {
            self.note_end_of_old();
        }
    }

    /// Hands a group's state to each function for the last time.
    fn end_group(&mut self, actor: u32, group: core::ptr::NonNull<u8>) {
        if self.stages.group_size == 0 {
            return;
        }
        let cx = self.prepare(actor, Side::Inside, Direction::Opening);
        // Every function of the runtime may have state in the group, in whichever chain it is, or was.
        for function in 0..self.stages.functions.len() {
            cx.counters = self.stages.counters_of(function);
            for _ in 0..GROUP_CALLS {
                // SAFETY: the group's state was made for all functions, and its last flow's calls are over.
                unsafe {
                    cx.group = group.add(self.stages.group_offsets[function] as usize);
                    self.stages.functions[function].group_ended(cx);
                }
                let has_more = cx.blocks.is_full();
                self.settle_accounts(cx, actor);
                if !has_more {
                    break;
                }
            }
        }
    }

    /// Effects of a call without a packet: blocks change hands; there is no packet at hand to emit others beside.
    pub(super) fn settle_accounts(&mut self, cx: &mut nf::cx::RawCx, actor: u32) {
        if cx.effects == 0 {
            return;
        }
        self.apply_blocks(cx, actor);
        self.recalls |= core::mem::take(&mut cx.effects) & nf::cx::effect::RECALL != 0;
        self.forget_held(cx);
        for (packet, _) in core::mem::take(&mut cx.emitted) {
            self.emitted += 1;
            self.drop_packet(packet, DropReason::EmitOverflow);
        }
    }

    /// Says that a group, or second key, has no flow left; unless that is yet to be seen.
    pub(super) fn tell_idle(&mut self, group: GroupKey) {
        if !self.lingering.contains(&group)
            && !self.moves.defers(group, &self.settings.seed)
            && !wire::planted::is("idle_not_told")
        {
            self.tell(Message::Idle(group, 0));
        }
    }

    /// Notes what a flow is known by: packets that waited behind its call are about to be taken up, and where it ends before,
    /// they begin it anew. The switch counts them as seen long ago, so *idle* in between would have the group begin anew without
    /// a route.
    pub(super) fn linger(&mut self, actor: u32) {
        self.lingering.push(self.flows.group_key(actor));
        if self.flows.has_flag(actor, flag::ANNOUNCED) {
            self.lingering
                .push(GroupKey::of_flow(*self.flows.second_key(actor)));
        }
    }

    /// Says now what was not said since [`Runtime::linger`], as far as it holds.
    pub(super) fn stop_lingering(&mut self) {
        for group in core::mem::take(&mut self.lingering) {
            if !self.has_group(&group) {
                self.tell(Message::Idle(group, 0));
            }
        }
    }

    /// Acts on what a switch says and asks, all packets before them being processed.
    #[cold]
    pub(super) fn hear(&mut self, link: usize, frame: &PacketBox) {
        let mut bytes = frame.frame();
        while let Some((message, rest)) = Message::read(bytes) {
            bytes = rest;
            match message {
                Message::Doubted(key) => self.hear_doubted(link, key),
                Message::BlockDoubted(block, group) => self.hear_block_doubted(link, block, group),
                Message::Taken(group) => self.hear_taken(group),
                Message::Switch(group, says) => self.hear_switch(link, group, says),
                Message::BlockReturned(block, home) if home.0 == self.settings.info.runtime => {
                    self.hear_returned(block, link);
                }
                Message::BlockClaimed(block, _) => self.hear_in_use(link, block),
                Message::AllTold => self.hear_all_told(link),
                Message::Heard(round) => self.unheard.hear(link, round),
                // Nothing that a switch says.
                _ => self.refuse_word(),
            }
        }
        if !bytes.is_empty() {
            // No record.
            self.refuse_word();
        }
    }

    /// The flows of a group.
    pub(super) fn flows_of(&mut self, group: GroupKey) -> Vec<u32> {
        self.settle_all();
        self.flows.flows_of(group)
    }

    /// Whether a flow's end will say that this group, or second key, is idle.
    pub(super) fn has_group(&mut self, group: &GroupKey) -> bool {
        if self.settling.has(group.hash(&self.settings.seed)) {
            self.settle_all();
        }
        self.flows.has_group(group)
    }

    /// Whether a new group may begin with this packet: the switch has a route for it to here. A packet that was sent by another
    /// route, which was over or changed hands meanwhile, would make a group that is, or will be, elsewhere.
    pub(super) fn is_routed_here(&self, packet: &PacketBox, group: &GroupKey) -> bool {
        self.settings.switches == 0
            || packet.hash() == group.hash(&self.settings.seed)
            || self.lingering.contains(group)
    }

    /// Ends up to `budget` flows that do not wait, whatever their deadline; `true` when none is left.
    pub(super) fn end_all(&mut self, budget: usize) -> bool {
        self.cancel_waiting(budget);
        let mut left = budget;
        for actor in self.finish_cursor..self.flows.capacity() as u32 {
            if left == 0 || self.log.room() < EVENT_ROOM || !self.has_room_for_messages() {
                return false;
            }
            self.finish_cursor = actor;
            if self.flows.header(actor).phase == Phase::Active {
                self.end_actor(actor);
                left -= 1;
            }
        }
        self.finish_cursor = 0;
        self.flows.active() == 0
    }
}
