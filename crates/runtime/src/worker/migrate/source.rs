//! The source's end of a move: what is asked, sent and dropped.

use super::super::Runtime;
use super::super::unheard::is_unheard;
use super::super::waiting::HELD_END;
use super::bytes::{Facts, Figures, NO_DEADLINE, Record};
use super::{AHEAD, Class, Kept};
use crate::env::Port;
use crate::flows::actor::{Change, NO_GROUP, Phase, flag};
use crate::stats::DropReason;
use alloc::vec::Vec;
use hashbrown::HashSet;
use nf::{Affinity, Block, Departure, Direction, Side};
use protocols::ownership::{Epoch, Finished, Input, Phase as Part, Says};
use wire::packet::flag as packet_flag;
use wire::{PacketBox, planted};

/// A state on its way out.
pub(super) struct Sending {
    pub id: u32,
    pub to: u16,
    epoch: Epoch,
    /// Blocks and group state are sent.
    is_begun: bool,
    /// How many of its flows are.
    sent: usize,
    /// When it was begun.
    began: u64,
}

/// States of moves that are begun in one step, in buffers: as long as so many are left for everything else.
const SPARE: usize = 64;

impl<P: Port> Runtime<P> {
    /// Asks the target for room: first which second keys lead to the group, then for how many flows.
    pub(super) fn open(&mut self, id: u32, to: u16, says: Says) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (group, flows) = (moving.group, moving.actors.len() as u32);
        for key in moving.aliases.clone() {
            self.append_record(to, &Record::Alias { group, key });
        }
        self.append_record(
            to,
            &Record::Says {
                group,
                says,
                flows,
                figures: Figures::default(),
            },
        );
    }

    /// Says of groups that nothing comes for any more that they are settled, where no call waits; answers how many.
    pub(super) fn settle_moves(&mut self) -> usize {
        if self.moves.settling.is_empty() {
            return 0;
        }
        self.settle_all();
        let mut ready = Vec::new();
        for id in core::mem::take(&mut self.moves.settling) {
            let Some(moving) = self.moves.moving(id).filter(|moving| moving.is_settling) else {
                continue;
            };
            if !matches!(moving.machine.phase(), Part::Settling { .. }) {
                continue;
            }
            let group = moving.group;
            let mut actors = core::mem::take(&mut moving.actors);
            let known = core::mem::take(&mut moving.aliases);
            // Those that have ended meanwhile, and whose places others may have.
            let (before, order) = (actors.len(), moving.order);
            let mut place = NO_GROUP;
            actors.retain(|actor| {
                let header = self.flows.header(*actor);
                // One of the group is enough to know the others by.
                let is_known = place != NO_GROUP && header.group == place && header.phase != Phase::Free;
                let is_of_it = is_known || self.flows.is_of(*actor, group);
                if is_of_it {
                    place = header.group;
                }
                is_of_it
            });
            if let Some(receipt) = self.moves.orders.receipt(order) {
                receipt.asked -= (before - actors.len()) as u64;
            }
            let mut is_waiting = actors
                .iter()
                .any(|actor| self.flows.header(*actor).phase == Phase::Waiting);
            is_waiting &= !planted::is("call_not_waited_for");
            // What switches have yet to hear of leaves before *behind* is said.
            let has_unheard = self.unheard.has_over()
                || actors
                    .iter()
                    .any(|actor| is_unheard(self.flows.header(*actor).flags));
            // A flow that was not settled when the move began may have got a second key that no home was told about.
            let announced: HashSet<_> = known.iter().collect();
            let is_known = self
                .flows
                .announced_keys(&actors)
                .iter()
                .all(|key| announced.contains(key));
            drop(announced);
            if is_waiting && !has_unheard && is_known {
                is_waiting = !self.give_up_calls(&actors);
            }
            let Some(moving) = self.moves.moving(id) else {
                continue;
            };
            (moving.actors, moving.aliases) = (actors, known);
            if !is_known {
                moving.deadline = 0;
            }
            if is_waiting || has_unheard || !is_known {
                self.moves.settling.push(id);
            } else {
                moving.is_settling = false;
                ready.push(id);
            }
        }
        if ready.is_empty() {
            return 0;
        }
        // *Behind* goes behind all that these groups have sent.
        self.transmit_all();
        for id in &ready {
            self.drive(*id, Input::Settled);
        }
        ready.len()
    }

    pub(super) fn send_state(&mut self, id: u32, to: u16, epoch: Epoch) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        for actor in moving.actors.clone() {
            if planted::is("goes_on_after_state") {
                break;
            }
            self.flows.header_mut(actor).change(Change::Leave);
        }
        self.moves.sending.push_back(Sending {
            id,
            to,
            epoch,
            is_begun: false,
            sent: 0,
            began: 0,
        });
    }

    /// Sends states as far as there are buffers; answers how many flows.
    pub(super) fn send_states(&mut self) -> usize {
        if self.moves.sending.is_empty() {
            return 0;
        }
        let mut count = 0;
        while let Some(mut sending) = self.moves.sending.pop_front() {
            if !sending.is_begun {
                sending.began = self.now;
                sending.is_begun = self.send_group(&sending);
            }
            let is_done = sending.is_begun && self.send_flows(&mut sending, &mut count);
            if !is_done {
                self.moves.sending.push_front(sending);
                break;
            }
        }
        self.moves.transmit(self.now, &mut self.pool);
        count + 1
    }

    /// Whether there are buffers for so many bytes more to a runtime, and nothing waits for some before them.
    fn has_room_to_send(&self, to: u16, bytes: usize) -> bool {
        !self.moves.has_unsaid(to)
            && self.pool.free() > self.message_frames() + SPARE + 2 * bytes.div_ceil(1024)
    }

    /// Sends what belongs to the group as a whole; `false` if there is no room.
    fn send_group(&mut self, sending: &Sending) -> bool {
        let Some(moving) = self.moves.moving(sending.id) else {
            return true;
        };
        let group = moving.group;
        let mine: Vec<Block> = self.flows.owners.of(&group).collect();
        for block in &mine {
            self.flows.owners.prefetch_place(block);
        }
        moving.blocks.clone_from(&mine);
        let size = self.stages.group_size;
        if !self.has_room_to_send(sending.to, size + 64 * (1 + mine.len())) {
            return false;
        }
        let now = sending.began;
        self.append_record(sending.to, &Record::Begin { group, now });
        for block in mine {
            self.append_record(sending.to, &Record::Block(block));
        }
        let mut bytes = 0;
        if self.flows.affinity() != Affinity::Flow
            && let Some(index) = self.flows.groups().at(group)
        {
            let state = self.flows.groups().state_bytes(index).to_vec();
            bytes = state.len();
            for piece in state.chunks(PIECE) {
                self.append_record(sending.to, &Record::Group(piece));
            }
        }
        self.count_bytes(sending.id, bytes);
        true
    }

    /// Sends flows, packets held for them, first packets, and `State`; `false` if the buffers are used up first.
    fn send_flows(&mut self, sending: &mut Sending, count: &mut usize) -> bool {
        let (id, to) = (sending.id, sending.to);
        let Some(moving) = self.moves.moving(id) else {
            return true;
        };
        let group = moving.group;
        let actors = core::mem::take(&mut moving.actors);
        let mut bytes = 0;
        for actor in actors.iter().skip(sending.sent).take(AHEAD) {
            self.flows.prefetch(*actor);
        }
        while let Some(actor) = actors.get(sending.sent) {
            // A chain's own states, not the largest chain's.
            let state = self.travelling(self.flows.header(*actor).chain);
            let stride = state.map_or(0, |state| state.length()) + super::bytes::FLOW_HEAD;
            if !self.has_room_to_send(to, stride) {
                break;
            }
            if let Some(ahead) = actors.get(sending.sent + AHEAD) {
                self.flows.prefetch(*ahead);
            }
            if sending.sent == 0 || !planted::is("second_flow_not_sent") {
                self.send_flow(to, actors[sending.sent], sending.began);
            }
            bytes += stride;
            sending.sent += 1;
            *count += 1;
        }
        let is_done = sending.sent == actors.len();
        if let Some(moving) = self.moves.moving(id) {
            moving.actors = actors;
        }
        self.count_bytes(id, bytes);
        if is_done {
            self.hand_over_kept(id, to, None);
            self.tell_runtime(to, group, Says::State(sending.epoch));
        }
        is_done
    }

    fn count_bytes(&mut self, id: u32, bytes: usize) {
        if let Some(order) = self.moves.moving(id).map(|moving| moving.order)
            && let Some(receipt) = self.moves.orders.receipt(order)
        {
            receipt.bytes += bytes as u64;
        }
    }

    fn send_flow(&mut self, to: u16, actor: u32, began: u64) {
        // Straight from the slab into the frame at hand, as far as that has room.
        let Some(state) = self.travelling(self.flows.header(actor).chain) else {
            return;
        };
        let length = state.length();
        let mut sent = 0;
        let mut is_first = true;
        while is_first || sent < length {
            let room = self.frame_room(to);
            let head = if is_first { super::bytes::FLOW_HEAD } else { 3 };
            let place = state.place(sent);
            let take = room.saturating_sub(head).min(place.len());
            if (take == 0 && sent < length) || room < head {
                if !self.new_frame(to) {
                    return;
                }
                continue;
            }
            let Some(frame) = self.moves.outgoing[usize::from(to)].frame() else {
                return;
            };
            let place = place.start..place.start + take;
            let piece = self.flows.state_bytes(actor).get(place).unwrap_or_default();
            let fits = if is_first {
                let header = self.flows.header(actor);
                let facts = Facts {
                    key: header.key,
                    second: *self.flows.second_key(actor),
                    time_left: match header.deadline {
                        0 => NO_DEADLINE,
                        deadline => deadline.saturating_sub(began).min(NO_DEADLINE - 1),
                    },
                    chain: header.chain,
                    flags: header.flags,
                    answered: header.answered,
                };
                facts.append(piece, frame)
            } else {
                Record::More(piece).append(frame)
            };
            debug_assert!(fits, "there was room");
            sent += take;
            is_first = false;
        }
        if self.flows.header(actor).flags & flag::HOLDS != 0 {
            self.send_held(to, actor);
        }
    }

    /// Packets that functions hold go with their flow.
    fn send_held(&mut self, to: u16, actor: u32) {
        for at in 0..HELD_END {
            for opening in [false, true] {
                let Some(mut list) = self.held.remove(&(actor, at, opening)) else {
                    continue;
                };
                self.held_count -= list.len() as u32;
                let told = |packet: &PacketBox| {
                    let copies = packet.has(packet_flag::COPY);
                    (Self::told_place(at, opening, packet), copies)
                };
                let (mut said, mut run) = (((at, opening), false), Vec::new());
                while let Some(packet) = list.pop() {
                    if told(&packet) != said {
                        self.send_held_run(to, said, &mut run);
                        said = told(&packet);
                    }
                    run.push(packet);
                }
                self.send_held_run(to, said, &mut run);
            }
        }
    }

    /// Packets that are held at one place, or copies.
    fn send_held_run(
        &mut self,
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
        self.append_record(to, &record);
        for packet in run.drain(..) {
            if copies {
                self.copies -= 1;
                self.moves.send(to, packet);
            } else {
                self.send_packet(to, packet);
            }
        }
    }

    fn send_packet(&mut self, to: u16, packet: PacketBox) {
        self.moves.packets_moved[1] += 1;
        self.moves.send(to, packet);
    }

    /// Hands one packet over, late.
    pub(super) fn hand_over(&mut self, id: u32, to: u16, home: u8, packet: PacketBox) {
        let Some(group) = self.moves.moving(id).map(|moving| moving.group) else {
            return self.drop_packet(packet, DropReason::MovingFull);
        };
        self.append_record(
            to,
            &Record::Handed {
                group,
                home,
                count: 1,
            },
        );
        self.send_packet(to, packet);
    }

    /// Hands over what was kept, from one home or from all, in order.
    pub(super) fn hand_over_kept(&mut self, id: u32, to: u16, home: Option<u8>) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (group, order) = (moving.group, moving.order);
        let all = core::mem::take(&mut moving.kept);
        let (mut going, staying): (Vec<Kept>, Vec<Kept>) = all
            .into_iter()
            .partition(|kept| home.is_none_or(|home| home == kept.home));
        moving.kept = staying;
        // The target of a recalled group has kept what it was handed, too: that came first.
        going.sort_by_key(|kept| kept.class != Class::Handed);
        self.moves.kept -= going.len();
        if let Some(receipt) = self.moves.orders.receipt(order) {
            receipt.handed_on += going.len() as u64;
        }
        // A word for as many as come by one home, one behind the other.
        let runs: Vec<u16> = going
            .chunk_by(|one, next| one.home == next.home)
            .flat_map(|run| run.chunks(u16::MAX as usize))
            .map(|run| run.len() as u16)
            .collect();
        let (mut runs, mut left) = (runs.into_iter(), 0);
        for Kept { packet, home, .. } in going {
            if planted::is("kept_packet_lost") {
                self.drop_packet(packet, DropReason::HeldAtEnd);
                continue;
            }
            if left == 0 {
                left = runs.next().unwrap_or(1);
                self.append_record(
                    to,
                    &Record::Handed {
                        group,
                        home,
                        count: left,
                    },
                );
            }
            left -= 1;
            self.send_packet(to, packet);
        }
    }

    /// The target has the group: its flows leave here, with what they took.
    pub(super) fn depart(&mut self, id: u32) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (group, actors, blocks) = (
            moving.group,
            moving.actors.clone(),
            core::mem::take(&mut moving.blocks),
        );
        self.depart_flows(&actors);
        self.moves.flows_moved[1] += actors.len() as u64;
        for block in blocks {
            self.flows.owners.release(block);
        }
        debug_assert!(
            self.flows.affinity() == Affinity::Flow || !self.flows.groups().has(group),
            "a group leaves with its flows"
        );
    }

    fn depart_flows(&mut self, actors: &[u32]) {
        // Each would wait for its own cache misses. They were sent a moment ago, so their own lines are near.
        for actor in actors.iter().take(2 * AHEAD) {
            self.flows.prefetch(*actor);
        }
        for actor in actors.iter().take(AHEAD) {
            self.prefetch_moving(*actor, true);
        }
        for (at, actor) in actors.iter().enumerate() {
            if let Some(ahead) = actors.get(at + 2 * AHEAD) {
                self.flows.prefetch(*ahead);
            }
            if let Some(ahead) = actors.get(at + AHEAD) {
                self.prefetch_moving(*ahead, true);
            }
            self.depart_flow(*actor);
        }
    }

    pub(super) fn depart_flow(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        let state = self.flows.state(actor);
        let group = self.flows.group_state(header.group, state);
        let side = if header.flags & flag::FROM_OUTSIDE != 0 {
            Side::Outside
        } else {
            Side::Inside
        };
        if is_unheard(header.flags) {
            // A copy that is nobody's; one that moves has none that wait.
            self.end_unheard(actor);
        }
        let cx = self.prepare(actor, side, Direction::Opening);
        for at in 0..self.stages.way(header.chain, Direction::Opening).len() {
            let step = self.stages.way(header.chain, Direction::Opening)[at];
            // SAFETY: the state is this actor's, laid out for this chain; no call of it waits.
            unsafe {
                cx.group = group.add(step.group as usize);
                cx.counters = step.counters;
                let stage = &self.stages.functions[usize::from(step.function)];
                if planted::is("departed_not_called") {
                    break;
                }
                let why = if planted::is("departs_as_expired") {
                    Departure::Expired
                } else {
                    Departure::Migrated
                };
                stage.departed(state.add(step.flow as usize), why, cx);
            }
            self.settle_accounts(cx, actor);
        }
        self.flows.remove_keys(actor);
        self.flows.leave_group(actor);
        self.flows.end(actor);
    }

    /// The target's figures, before its `Done` is acted on. The pause is by the clock here alone, so it is longer by the word's way back.
    pub(super) fn note_done(&mut self, id: u32, figures: Figures) {
        let now = self.moving_time();
        let is_awaited =
            |moving: &&mut super::Moving| matches!(moving.machine.phase(), Part::Forwarding { .. });
        let Some(moving) = self.moves.moving(id).filter(is_awaited) else {
            return;
        };
        if figures.is_unclear {
            moving.is_told_late = true;
            moving.blocks_told.extend_from_slice(&moving.blocks);
        }
        let (order, pause) = (moving.order, now.saturating_sub(moving.rerouted_at));
        if let Some(receipt) = self.moves.orders.receipt(order) {
            receipt.buffered += u64::from(figures.kept);
            receipt.dropped += u64::from(figures.dropped);
            self.moves.orders.note_pause(order, pause);
        }
    }

    pub(super) fn finished_moving(&mut self, id: u32, how: Finished) {
        let Some(moving) = self.moves.moving(id) else {
            return;
        };
        let (order, flows, dropped) = (moving.order, moving.actors.len() as u64, moving.dropped);
        // A group that is not here has no other target to go to: its copy ends.
        let is_here = matches!(moving.machine.phase(), Part::Active);
        if let Some(receipt) = self.moves.orders.receipt(order) {
            receipt.dropped += u64::from(dropped);
        }
        if how != Finished::Moved && is_here && self.offer_again(id) {
            return;
        }
        self.note_finished(order, flows, how);
    }
}

/// Bytes of a group's state in a record.
const PIECE: usize = 1024;
