//! The source's end of a move: its questions, the state that it sends, and drops.

use super::AHEAD;
use super::Moves;
use crate::flows::actor::{Change, Phase, flag};
use crate::flows::group::GroupKey;
use crate::hold::is_held;
use crate::message::Message;
use crate::parts::Core;
use crate::record::{FlowHeader, InstallStats, NO_DEADLINE, Record};
use crate::runner::{HELD_END, told_place};
use crate::watch::flows::Change as Flow;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nf::{Affinity, Block, Departure};
use protocols::ownership::recovery::Withdrawn;
use protocols::ownership::{Epoch, Finished, Phase as Part, RuntimeMessage};
use wire::packet::flag as packet_flag;
use wire::{PacketBox, planted};

/// A state on its way out.
pub(crate) struct Sending {
    pub id: u32,
    pub to: u16,
    epoch: Epoch,
    /// Blocks and group state are sent.
    is_begun: bool,
    /// How many of its flows are.
    sent: usize,
    /// When it was begun.
    began: u64,
    /// Its copies are withdrawn: the records of that which the replica has yet to acknowledge.
    /// `State` waits for them.
    withdrawn: Option<Withdrawn>,
}

/// States of moves that are begun in one step, in buffers: as long as so many are left for
/// everything else.
const SPARE: usize = 64;

impl Moves {
    /// Asks the target for room: first which reply keys lead to the group, then for how many
    /// flows.
    pub(crate) fn open(&mut self, core: &mut Core, id: u32, to: u16, message: RuntimeMessage) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (group, flows) = (moving.group, moving.actors.len() as u32);
        for key in moving.reply_keys.clone() {
            core.out.send_record(to, &Record::ReplyKey { group, key });
        }
        core.out.send_record(
            to,
            &Record::Ownership {
                group,
                message,
                flows,
                install_stats: InstallStats::default(),
            },
        );
    }

    pub(crate) fn send_state(&mut self, core: &mut Core, id: u32, to: u16, epoch: Epoch) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        for actor in moving.actors.clone() {
            if planted::is("goes_on_after_state") {
                break;
            }
            core.flows.header_mut(actor).change(Change::Leave);
        }
        self.sending.push_back(Sending {
            id,
            to,
            epoch,
            is_begun: false,
            sent: 0,
            began: 0,
            withdrawn: None,
        });
    }

    /// Sends states as far as there are buffers; answers how many flows.
    pub(crate) fn send_states(&mut self, core: &mut Core) -> usize {
        if self.sending.is_empty() {
            return 0;
        }
        let mut count = 0;
        let (mut waiting, mut done) = (VecDeque::new(), 0);
        while let Some(mut sending) = self.sending.pop_front() {
            if sending.withdrawn.is_some() {
                match self.send_end(core, &mut sending) {
                    true => done = 1,
                    false => waiting.push_back(sending),
                }
                continue;
            }
            done = 1;
            if !sending.is_begun {
                sending.began = core.now;
                sending.is_begun = self.send_group(core, &sending);
            }
            if !sending.is_begun || !self.send_flows(core, &mut sending, &mut count) {
                self.sending.push_front(sending);
                break;
            }
            if let Some(moving) = self.moving(sending.id) {
                let group = moving.group;
                sending.withdrawn = Some(core.withdraw_copies(group, &moving.actors, sending.to));
                if !self.send_end(core, &mut sending) {
                    waiting.push_back(sending);
                }
            }
        }
        waiting.append(&mut self.sending);
        self.sending = waiting;
        count + done
    }

    /// Sends first packets, and `State`, once no replica has a copy that could go on while the
    /// target has the group; whether it has.
    fn send_end(&mut self, core: &mut Core, sending: &mut Sending) -> bool {
        if sending
            .withdrawn
            .as_mut()
            .is_some_and(|withdrawn| core.is_awaited(withdrawn))
        {
            return false;
        }
        let (id, to) = (sending.id, sending.to);
        self.hand_over_kept(core, id, to, None);
        if let Some(group) = self.moving(id).map(|moving| moving.group) {
            self.tell_runtime(core, to, group, RuntimeMessage::State(sending.epoch));
        }
        true
    }

    /// Whether there are buffers for so many bytes more to a runtime, and nothing waits for some
    /// before them.
    fn has_room_to_send(&self, core: &Core, to: u16, bytes: usize) -> bool {
        core.out.has_room_for(to, bytes, SPARE)
    }

    /// Sends what belongs to the group as a whole; `false` if there is no room.
    fn send_group(&mut self, core: &mut Core, sending: &Sending) -> bool {
        let Some(moving) = self.moving(sending.id) else {
            return true;
        };
        let group = moving.group;
        let mine: Vec<Block> = core.flows.owners.of(&group).collect();
        for block in &mine {
            core.flows.owners.prefetch_place(block);
        }
        moving.blocks.clone_from(&mine);
        let size = core.runner.group_size();
        if !self.has_room_to_send(core, sending.to, size + 64 * (1 + mine.len())) {
            return false;
        }
        let now = sending.began;
        core.out.send_record(sending.to, &Record::Begin { group, now });
        let sent = match planted::is("later_blocks_not_sent") {
            true => 1,
            false => mine.len(),
        };
        for block in mine.into_iter().take(sent) {
            core.out.send_record(sending.to, &Record::Block(block));
        }
        let mut bytes = 0;
        if core.flows.affinity() != Affinity::Flow
            && let Some(index) = core.flows.groups().at(group)
        {
            let state = core.flows.groups().state_bytes(index).to_vec();
            bytes = state.len();
            for piece in state.chunks(PIECE) {
                core.out.send_record(sending.to, &Record::Group(piece));
            }
            if let Some(until) = core.flows.groups().resting().until(index) {
                let left = until.saturating_sub(now);
                core.out.send_record(sending.to, &Record::Rests { left });
            }
        }
        self.count_bytes(sending.id, bytes);
        true
    }

    /// Sends flows, and packets held for them; `false` if the buffers are used up first.
    fn send_flows(&mut self, core: &mut Core, sending: &mut Sending, count: &mut usize) -> bool {
        let (id, to) = (sending.id, sending.to);
        let Some(moving) = self.moving(id) else {
            return true;
        };
        let actors = core::mem::take(&mut moving.actors);
        let mut bytes = 0;
        for actor in actors.iter().skip(sending.sent).take(AHEAD) {
            core.flows.prefetch(*actor);
        }
        while let Some(actor) = actors.get(sending.sent) {
            // A chain's own states, not the largest chain's.
            let state = core
                .runner
                .travelling(core.flows.header(*actor).chain, &core.flows);
            let stride = state.map_or(0, |state| state.length()) + crate::record::FLOW_HEAD;
            if !self.has_room_to_send(core, to, stride) {
                break;
            }
            if let Some(ahead) = actors.get(sending.sent + AHEAD) {
                core.flows.prefetch(*ahead);
            }
            if sending.sent == 0 || !planted::is("second_flow_not_sent") {
                self.send_flow(core, to, actors[sending.sent], sending.began);
            }
            bytes += stride;
            sending.sent += 1;
            *count += 1;
        }
        let is_done = sending.sent == actors.len();
        if let Some(moving) = self.moving(id) {
            moving.actors = actors;
        }
        self.count_bytes(id, bytes);
        is_done
    }

    fn count_bytes(&mut self, id: u32, bytes: usize) {
        if let Some(order) = self.moving(id).map(|moving| moving.order)
            && let Some(receipt) = self.orders.receipt(order)
        {
            receipt.bytes += bytes as u64;
        }
    }

    fn send_flow(&mut self, core: &mut Core, to: u16, actor: u32, began: u64) {
        // Straight from the slab into the frame at hand, as far as that has room.
        let Some(state) = core
            .runner
            .travelling(core.flows.header(actor).chain, &core.flows)
        else {
            return;
        };
        let length = state.length();
        let mut sent = 0;
        let mut is_first = true;
        while is_first || sent < length {
            let room = core
                .out
                .frame_for(to)
                .map_or(0, |frame| crate::message::room(frame) - frame.frame().len());
            let head = if is_first { crate::record::FLOW_HEAD } else { 3 };
            let place = state.place(sent);
            let take = room.saturating_sub(head).min(place.len());
            if (take == 0 && sent < length) || room < head {
                if !core.out.begin_frame(to) {
                    return;
                }
                continue;
            }
            let Some(frame) = core.out.frame_for(to) else {
                return;
            };
            let place = place.start..place.start + take;
            let piece = core.flows.state_bytes(actor).get(place).unwrap_or_default();
            let fits = if is_first {
                let header = core.flows.header(actor);
                let flow_header = FlowHeader {
                    key: header.key,
                    second: *core.flows.reply_key(actor),
                    time_left: match header.deadline {
                        0 => NO_DEADLINE,
                        deadline => deadline.saturating_sub(began).min(NO_DEADLINE - 1),
                    },
                    chain: header.chain,
                    flags: header.flags,
                    answered: header.answered,
                };
                flow_header.append(piece, frame)
            } else {
                Record::More(piece).append(frame)
            };
            debug_assert!(fits, "there was room");
            sent += take;
            is_first = false;
        }
        if core.flows.header(actor).flags & flag::HOLDS != 0 {
            self.send_held(core, to, actor);
        }
    }

    /// Packets that functions hold go with their flow.
    fn send_held(&mut self, core: &mut Core, to: u16, actor: u32) {
        for at in 0..HELD_END {
            for opening in [false, true] {
                let Some(mut list) = core.runner.take_leaving((actor, at, opening)) else {
                    continue;
                };
                let told = |packet: &PacketBox| {
                    let copies = packet.has(packet_flag::COPY);
                    (told_place(at, opening, packet), copies)
                };
                let (mut said, mut run) = (((at, opening), false), Vec::new());
                while let Some(packet) = list.pop() {
                    if told(&packet) != said {
                        self.send_held_run(core, to, said, &mut run);
                        said = told(&packet);
                    }
                    run.push(packet);
                }
                self.send_held_run(core, to, said, &mut run);
            }
        }
    }

    /// Packets that are held at one place, or copies.
    fn send_held_run(
        &mut self,
        core: &mut Core,
        to: u16,
        ((at, opening), copies): ((u8, bool), bool),
        run: &mut Vec<PacketBox>,
    ) {
        if run.is_empty() {
            return;
        }
        let record = Record::Held {
            at,
            opening,
            copies,
            count: run.len() as u16,
        };
        core.out.send_record(to, &record);
        for packet in run.drain(..) {
            if copies {
                core.out.send_packet(to, packet);
            } else {
                self.send_packet(core, to, packet);
            }
        }
    }

    /// The target has the group: its flows leave here, with what they took.
    pub(crate) fn depart(&mut self, core: &mut Core, id: u32) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (group, actors, blocks) = (
            moving.group,
            moving.actors.clone(),
            core::mem::take(&mut moving.blocks),
        );
        core.begin_going(&group);
        self.depart_flows(core, &actors);
        core.forget_resting(&group);
        self.flows_moved[1] += actors.len() as u64;
        for block in blocks {
            core.flows.owners.release(block);
        }
        debug_assert!(
            core.flows.affinity() == Affinity::Flow || !core.flows.groups().has(group),
            "a group leaves with its flows"
        );
    }

    fn depart_flows(&mut self, core: &mut Core, actors: &[u32]) {
        // Each would wait for its own cache misses. They were sent a moment ago, so their own lines
        // are near.
        for actor in actors.iter().take(2 * AHEAD) {
            core.flows.prefetch(*actor);
        }
        for actor in actors.iter().take(AHEAD) {
            core.runner.prefetch_moving(*actor, true, &core.flows);
        }
        for (at, actor) in actors.iter().enumerate() {
            if let Some(ahead) = actors.get(at + 2 * AHEAD) {
                core.flows.prefetch(*ahead);
            }
            if let Some(ahead) = actors.get(at + AHEAD) {
                core.runner.prefetch_moving(*ahead, true, &core.flows);
            }
            self.depart_flow(core, *actor);
        }
    }

    pub(crate) fn depart_flow(&mut self, core: &mut Core, actor: u32) {
        if is_held(core.flows.header(actor).flags) {
            // A copy that belongs to no group here; a copy of a flow that moves has no packets that
            // wait.
            core.hold.forget(actor);
        }
        core.witness(actor, Flow::MovedOut);
        core.runner
            .depart(actor, Departure::Migrated, &mut core.flows, &mut core.out);
        core.flows.remove_keys(actor);
        core.flows.leave_group(actor);
        core.flows.end(actor);
    }

    /// The target's figures, before its `Done` is acted on. The pause is by the clock here alone,
    /// so it is longer by the word's way back.
    pub(crate) fn note_done(&mut self, core: &mut Core, id: u32, install_stats: InstallStats) {
        let now = self.moving_time(core);
        let is_awaited =
            |moving: &&mut super::Moving| matches!(moving.machine.phase(), Part::Forwarding { .. });
        let Some(moving) = self.moving(id).filter(is_awaited) else {
            return;
        };
        if install_stats.is_unclear {
            moving.is_resynced_late = true;
            moving.blocks_tentative.extend_from_slice(&moving.blocks);
        }
        let (order, pause) = (moving.order, now.saturating_sub(moving.rerouted_at));
        if let Some(receipt) = self.orders.receipt(order) {
            receipt.buffered += u64::from(install_stats.buffered);
            receipt.dropped += u64::from(install_stats.dropped);
            self.orders.note_pause(order, pause);
        }
    }

    pub(crate) fn finished_moving(&mut self, core: &mut Core, id: u32, how: Finished) {
        let Some(moving) = self.moving(id) else {
            return;
        };
        let (order, flows, dropped) = (moving.order, moving.actors.len() as u64, moving.dropped);
        // A group that is not here has no other target to go to: its copy ends.
        let is_here = matches!(moving.machine.phase(), Part::Active);
        if let Some(receipt) = self.orders.receipt(order) {
            receipt.dropped += u64::from(dropped);
        }
        if how != Finished::Moved && is_here && self.offer_again(core, id) {
            return;
        }
        self.note_finished(core, order, flows, how);
    }

    /// A machine was fenced: another runtime has the group. Homes that were told of the move ask
    /// the runtimes that they think have its keys and blocks.
    pub(crate) fn stop(&mut self, core: &mut Core, id: u32, group: GroupKey) {
        let blocks: Vec<_> = core.flows.owners.of(&group).collect();
        let Some(moving) = self.moving(id) else {
            return;
        };
        moving.is_resynced_late = true;
        moving.blocks_tentative.extend(blocks);
        let (order, flows) = (moving.order, moving.actors.len() as u64);
        self.drop_copy(core, group);
        self.note_finished(core, order, flows, Finished::Aborted);
    }

    /// Another runtime was given the group: its state here is a copy, and leaves as a group that
    /// has moved. Packets of it that wait to leave are dropped, and calls.
    #[cold]
    pub(crate) fn drop_copy(&mut self, core: &mut Core, group: GroupKey) {
        let flows = core.flows_of(group);
        core.drop_waiting(&flows);
        let reply_keys = core.flows.announced_keys(&flows);
        for actor in flows {
            if matches!(core.flows.header(actor).phase, Phase::Active | Phase::Leaving) {
                core.runner.drop_held(actor, &mut core.flows, &mut core.out);
                self.depart_flow(core, actor);
                self.flows_moved[1] += 1;
            }
        }
        core.forget_resting(&group);
        if core.flows.affinity() == Affinity::Flow || !core.flows.groups().has(group) {
            let blocks: Vec<_> = core.flows.owners.of(&group).collect();
            for block in blocks {
                core.flows.owners.release(block);
            }
        }
        // Routes that were called back before.
        self.say_group_empty(core, group, reply_keys);
    }

    /// The same, and switches are told which blocks are here no more: the other may have begun
    /// again, with other blocks.
    #[cold]
    pub(crate) fn give_up_copy(&mut self, core: &mut Core, group: GroupKey) {
        let blocks: Vec<_> = core.flows.owners.of(&group).collect();
        self.drop_copy(core, group);
        for block in blocks {
            if core.flows.owners.at(block.addr, block.first) != Some(group) {
                core.out.announce(Message::BlockSuspect(block, group));
            }
        }
    }

    /// Another runtime has the group, or had it and is gone, and the group here began again when
    /// its slot was closed: it ends, at once as far as there is room to say so.
    #[cold]
    pub(crate) fn end_what_began(&mut self, core: &mut Core, group: GroupKey) {
        let flows = core.flows_of(group);
        for actor in flows {
            let may = core.out.has_room() && core.runner.may_end();
            if may && core.flows.header(actor).phase == Phase::Active {
                core.end_actor(actor);
            }
        }
        // A group that rests now ends there, too.
        if core.has_group(&group) {
            core.handle_route_conflict(group);
        }
    }
}

/// Bytes of a group's state in a record.
const PIECE: usize = 1024;
