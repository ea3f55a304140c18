//! What leaves a runtime: packets, messages, and buffers on their way home.
//!
//! Messages go first: before any packet is transmitted on any link, all messages said so far are on all links. That is the
//! whole of "told before the first packet that uses it leaves", but for switches of other processes (`unheard.rs`).
//!
//! A message for which no buffer is free is kept, and so is each message behind it. Until all are written no packet leaves
//! (empty buffers do: their owners wait for them), and the worker takes up no packet and ends no flow: so the messages that are
//! kept are those of one burst and of one flow that ends. No other use of buffers takes the last ones
//! ([`Runtime::message_frames`]), and a frame comes home when its switch has read it: so each message is written in the end.
//!
//! ```text
//!   message ─► frame at hand ─────────────────────────► link, ahead of packets
//!         └──► unsaid, while no buffer is free ─► frame ─► link      packets of the step wait meanwhile
//! ```

use super::Runtime;
use crate::env::{Burst, Port, give_or_keep};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::stats::DropReason;
use crate::switch::home_of;
use alloc::collections::VecDeque;
use nf::cx::{BlockEffect, RawCx, effect};
use protocols::ownership::RuntimeId;
use wire::packet::{Kind, flag as packet_flag};
use wire::{PacketBox, PacketList};

/// What waits to be transmitted on one link.
#[derive(Default)]
pub(super) struct Output {
    burst: Burst,
    pub(super) messages: Option<PacketBox>,
    /// Packets that wait for messages that are kept.
    waiting: PacketList,
    /// Packets of this link processed, counted as the switch counts what it sends.
    pub(super) consumed: u64,
}

/// Frames of messages that one step may need per link: 32 packets and 64 ended flows, a few records each.
const MESSAGE_FRAMES: usize = 16;

/// Messages to switches for which no buffer was free, in order; each with its link.
pub(super) type Unsaid = VecDeque<(u8, Message)>;

/// Messages that there is room for from the start: more than a burst has to say, as a rule.
pub(super) const UNSAID: usize = 256;

impl<P: Port> Runtime<P> {
    /// Whether whatever one step wants to tell the switches has room.
    pub(super) fn has_room_for_messages(&self) -> bool {
        self.settings.switches == 0 || self.unsaid.is_empty() && self.pool.free() >= self.message_frames()
    }

    /// Buffers that are kept for what one step wants to say.
    pub(super) fn message_frames(&self) -> usize {
        MESSAGE_FRAMES * usize::from(self.settings.switches)
    }

    /// Takes off the links what has come, since the buffers that are wanting may be on their way home behind packets; packets
    /// and messages are put aside, in order. Whether there are enough now.
    #[cold]
    pub(super) fn fetch_home(&mut self) -> bool {
        if wire::planted::is("buffers_not_fetched_home") {
            return false;
        }
        for link in 0..self.links.len() {
            while !self.is_session_over(link) {
                let mut burst = Burst::new();
                self.links[link].receive(self.now, &mut self.pool, &mut burst);
                if burst.is_empty() {
                    break;
                }
                for packet in burst {
                    if packet.kind() == Kind::Empty {
                        // Somebody else's, too (a link to another process has done with it): its owner may be waiting as this one is.
                        self.recycle(packet);
                    } else {
                        self.backlog[link].push(packet);
                    }
                }
                self.write_unsaid();
                if self.has_room_for_messages() {
                    return true;
                }
            }
        }
        false
    }

    /// Passes a processed packet on.
    #[inline(always)]
    pub(super) fn pass(&mut self, mut packet: PacketBox) {
        if self.settings.switches == 0 {
            if packet.has(packet_flag::TURN_AROUND) {
                return self.turn(packet);
            }
            self.passed += 1;
            return self.push(0, packet);
        }
        packet.set_kind(Kind::Data);
        self.passed += 1;
        let link = match packet.egress() {
            None => self.settings.egress[packet.exit() as usize],
            Some(port) => port % self.settings.switches,
        };
        self.push(usize::from(link), packet);
    }

    /// Takes a packet that goes back in from outside up again, once.
    #[cold]
    fn turn(&mut self, mut packet: PacketBox) {
        if packet.turns() > 0 {
            return self.drop_packet(packet, DropReason::HairpinLoop);
        }
        turn_around(&mut packet);
        self.turned.push(packet);
    }

    #[inline(always)]
    fn push(&mut self, link: usize, packet: PacketBox) {
        if self.outputs[link].burst.is_full() {
            self.transmit_all();
        }
        self.outputs[link].burst.push(packet);
    }

    /// Transmits messages, then packets and empty buffers, on all links; then what is for other runtimes.
    pub(super) fn transmit_all(&mut self) {
        self.transmit_links();
        self.moves.transmit(self.now, &mut self.pool);
    }

    fn transmit_links(&mut self) {
        self.close_round();
        self.write_unsaid();
        for (link, output) in self.links.iter_mut().zip(&mut self.outputs) {
            if let Some(frame) = output.messages.take() {
                let mut burst = Burst::new();
                burst.push(frame);
                link.transmit(self.now, &mut self.pool, &mut burst);
            }
        }
        if !self.unsaid.is_empty() {
            return self.hold_packets_back();
        }
        for (link, output) in self.links.iter_mut().zip(&mut self.outputs) {
            while !output.waiting.is_empty() {
                let mut burst = Burst::new();
                while !burst.is_full()
                    && let Some(packet) = output.waiting.pop()
                {
                    burst.push(packet);
                }
                link.transmit(self.now, &mut self.pool, &mut burst);
            }
            if !output.burst.is_empty() {
                link.transmit(self.now, &mut self.pool, &mut output.burst);
            }
        }
    }

    /// Transmits empty buffers, and has packets wait for messages that are kept.
    #[cold]
    fn hold_packets_back(&mut self) {
        for (link, output) in self.links.iter_mut().zip(&mut self.outputs) {
            let mut empty = Burst::new();
            for packet in output.burst.drain(..) {
                match packet.kind() {
                    Kind::Empty => empty.push(packet),
                    Kind::Data | Kind::Message => output.waiting.push(packet),
                }
            }
            if !empty.is_empty() {
                link.transmit(self.now, &mut self.pool, &mut empty);
            }
        }
    }

    /// Gives a buffer back: to the own pool, or home over the link it belongs to.
    #[inline]
    pub(super) fn recycle(&mut self, packet: PacketBox) {
        if let Some(mut packet) = give_or_keep(&mut self.pool, packet) {
            packet.set_kind(Kind::Empty);
            let home = usize::from(packet.origin());
            match home.checked_sub(usize::from(self.settings.switches.max(1))) {
                None => self.push(home, packet),
                Some(runtime) => self.moves.send(runtime as u16, packet),
            }
        }
    }

    /// Drops a packet for a reason of the runtime's own.
    pub(super) fn drop_packet(&mut self, packet: PacketBox, reason: DropReason) {
        if !wire::planted::is("drop_not_counted") {
            self.drops.count(reason);
        }
        if let Some(eye) = &mut self.eye {
            eye.dropped(&packet, self.now, None, reason.name());
        }
        self.recycle(packet);
    }

    /// Tells the switches that must know. Blocks concern all of them; a group its home only, and so does a second key where
    /// flows are by themselves. Where they are grouped, any switch may see a second key before it knows the home.
    pub(super) fn tell(&mut self, message: Message) {
        if self.settings.switches == 0 {
            return;
        }
        let home = |group: &GroupKey| home_of(group.hash(&self.settings.seed), self.settings.switches);
        let only = match &message {
            Message::Idle(group, _) if !group.is_second_key(self.flows.affinity()) => Some(home(group)),
            Message::Routed(group) if !group.is_second_key(self.flows.affinity()) => Some(home(group)),
            _ => None,
        };
        let is_needed = matches!(message, Message::BlockClaimed(..) | Message::Routed(_));
        for link in 0..self.links.len() {
            if only.is_none_or(|only| usize::from(only) == link) && self.sessions.has_switch(link) {
                self.append(link, &message);
                if is_needed {
                    self.unheard.note(link);
                }
            }
        }
    }

    /// Tells one switch, behind all messages before.
    pub(super) fn append(&mut self, link: usize, message: &Message) {
        let message = match message {
            Message::Idle(group, _) => Message::Idle(*group, self.outputs[link].consumed),
            other => *other,
        };
        if !self.unsaid.is_empty() || !self.write(link, &message) {
            self.unsaid.push_back((link as u8, message));
        }
    }

    /// Writes a message into the link's frame at hand; `false` if a buffer is wanting.
    fn write(&mut self, link: usize, message: &Message) -> bool {
        if let Some(frame) = &mut self.outputs[link].messages {
            if message.append(frame) {
                return true;
            }
            // Full: it goes out now, ahead of any packet.
            self.transmit_messages(link);
        }
        let Some(mut frame) = self.pool.take() else {
            return false;
        };
        Message::begin(&mut frame);
        let fits = message.append(&mut frame);
        debug_assert!(fits, "a record fits into an empty frame");
        self.outputs[link].messages = Some(frame);
        true
    }

    /// Writes the messages that are kept, as far as there are buffers.
    #[inline]
    pub(super) fn write_unsaid(&mut self) {
        while let Some((link, message)) = self.unsaid.front().copied() {
            if !self.write(usize::from(link), &message) {
                return;
            }
            self.unsaid.pop_front();
        }
    }

    /// Routes for blocks change here and, by message, at the switches.
    #[inline]
    pub(super) fn apply_blocks(&mut self, cx: &mut RawCx, actor: u32) {
        if cx.effects & effect::BLOCKS != 0 {
            cx.effects &= !effect::BLOCKS;
            self.apply_each_block(cx, actor);
        }
    }

    fn apply_each_block(&mut self, cx: &mut RawCx, actor: u32) {
        let group = self.flows.group_key(actor);
        for change in core::mem::take(&mut cx.blocks) {
            match change {
                BlockEffect::Claimed(block) => {
                    if !self.flows.owners.claim(block, group) {
                        // Another runtime has said that it is its group's, and it was free here: the function knows. Switches do the same.
                        self.refuse_word();
                        self.flows.owners.release(block);
                        self.flows.owners.claim(block, group);
                    }
                    self.tell(Message::BlockClaimed(block, group));
                }
                BlockEffect::Released(block) => {
                    self.flows.owners.release(block);
                    self.tell(Message::BlockReleased(block));
                }
                BlockEffect::Returned(block, runtime) => {
                    self.flows.owners.release(block);
                    self.tell(Message::BlockReturned(block, RuntimeId(runtime)));
                }
            }
        }
    }

    /// As if so many packets of other groups had come by each link.
    #[cfg(test)]
    pub fn age_links(&mut self, packets: u64) {
        for output in &mut self.outputs {
            output.consumed += packets;
        }
    }

    fn transmit_messages(&mut self, link: usize) {
        if let Some(frame) = self.outputs[link].messages.take() {
            let mut burst = Burst::new();
            burst.push(frame);
            self.links[link].transmit(self.now, &mut self.pool, &mut burst);
        }
    }
}

/// Makes a packet that left for outside one that came in from there.
pub(crate) fn turn_around(packet: &mut PacketBox) {
    packet.add_turn();
    packet.clear_flags(packet_flag::TURN_AROUND | packet_flag::LATERAL);
    packet.set_side(nf::Side::Outside);
}
