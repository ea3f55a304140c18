//! A flow's second key: learned from its first packet, once that has passed the chain.
//!
//! # Theory of operation
//!
//! A chain that translates gives a flow's replies another key than its opening packets have. The flow is *settled* when the
//! table knows both. The second key's bucket is a cache miss for each new flow, so nobody waits for it: the bucket is
//! fetched, the packet put aside, and at the end of the burst, when the lines have come, all second keys go into the table
//! and the packets go out.
//!
//! ```text
//!   launched ──first packet passes, key as before──► settled
//!       └─────first packet passes, translated──► settling ──burst ends, or somebody looks──► settled, or waits until switches have heard (`unheard`)
//!                                                    └────another flow has the key──► over, nothing has left
//! ```
//!
//! Two flows cannot have one second key: replies would all be the first one's. Who comes second is refused, as a kernel's
//! connection tracking refuses it, with its first packet dropped; the client tries again, and gets another server or finds the first
//! flow over. Where the first is at another runtime, the switch knows ([`Message::Taken`]).
//!
//! Invariants: packets of one flow leave in the order they came (a second packet of a settling flow settles it first); no
//! look-up misses a key that is being settled ([`Runtime::find`]); a flow does not end while it settles; nothing is settling
//! between two steps.

use super::Runtime;
use super::unheard::is_unheard;
use crate::env::{BURST, Port};
use crate::flows::actor::{Phase, flag};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::stats::DropReason;
use arrayvec::ArrayVec;
use nf::{Affinity, Direction, Side};
use wire::packet::flag as packet_flag;
use wire::{FlowKey, Orientation, PacketBox};

/// The packets whose flows are settling, in the order in which they passed their chains.
#[derive(Default)]
pub(super) struct Queue {
    packets: ArrayVec<Settling, BURST>,
    /// A bit for each hash in the queue: most look-ups need not look further.
    bits: u64,
}

impl Queue {
    #[inline]
    fn bit(hash: u64) -> u64 {
        1 << (hash >> 24 & 63)
    }

    /// Whether a key of this hash is about to get into the table.
    #[inline]
    pub(super) fn has(&self, hash: u64) -> bool {
        self.bits & Self::bit(hash) != 0 && self.packets.iter().any(|settling| settling.hash == hash)
    }
}

/// A flow's first packet, waiting for its second key to get into the table. The key itself is in the actor already.
pub(super) struct Settling {
    actor: u32,
    way: Orientation,
    hash: u64,
    packet: PacketBox,
}

impl<P: Port> Runtime<P> {
    /// Passes a packet of a flow that is not settled: with its first packet it begins to.
    #[cold]
    pub(super) fn settle(&mut self, actor: u32, packet: PacketBox, direction: Direction) {
        if is_unheard(self.flows.header(actor).flags) {
            return self.wait_behind(actor, packet);
        }
        if self.flows.header(actor).flags & flag::SETTLING != 0 {
            // Its first packet leaves before this one.
            if wire::planted::is("second_packet_overtakes") {
                return self.pass(packet);
            }
            self.settle_all();
            if self.flows.header(actor).phase == Phase::Free {
                return self.drop_packet(packet, self.refused_for);
            }
            if is_unheard(self.flows.header(actor).flags) {
                return self.wait_behind(actor, packet);
            }
            return self.pass(packet);
        }
        if direction == Direction::Reply {
            return self.pass(packet);
        }
        if self.flows.header(actor).flags & flag::SECOND_KEY != 0 {
            return self.settle_again(actor, packet);
        }
        let Some((mut key, way)) = FlowKey::of(&packet) else {
            self.flows.header_mut(actor).flags |= flag::SETTLED;
            return self.pass(packet);
        };
        if packet.has(packet_flag::TURN_AROUND) {
            // Its replies come back as turned packets, and only they.
            key = key.turned(way.reversed());
        } else if key == self.flows.header(actor).key {
            self.flows.header_mut(actor).flags |= flag::SETTLED;
            return self.pass(packet);
        }
        let hash = key.hash(&self.settings.seed);
        self.flows.prefetch_key(hash);
        self.flows.set_second_key(actor, key);
        self.see_second_key(actor, key, &packet);
        self.flows.header_mut(actor).flags |= flag::SETTLING;
        if self.settling.packets.is_full() {
            self.settle_all();
        }
        self.settling.bits |= Queue::bit(hash);
        self.settling.packets.push(Settling {
            actor,
            way,
            hash,
            packet,
        });
        if !self.jobs.is_empty() {
            // What this packet caused leaves behind it.
            self.settle_all();
        }
    }

    /// Settles whatever is settling, and lets the packets go.
    #[inline(always)]
    pub(super) fn settle_all(&mut self) {
        if self.settling.bits != 0 {
            self.settle_each();
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_each(&mut self) {
        for settling in core::mem::take(&mut self.settling).packets {
            let actor = settling.actor;
            let header = self.flows.header_mut(actor);
            header.flags = header.flags & !flag::SETTLING | flag::SETTLED;
            let key = *self.flows.second_key(actor);
            if self.is_taken(settling.hash, &key) {
                self.refuse_flow(actor, settling.packet, DropReason::ReplyKeyTaken);
                continue;
            }
            if self.flows.insert(settling.hash, actor << 1 | 1).is_err() {
                self.refuse_flow(actor, settling.packet, DropReason::FlowsFull);
                continue;
            }
            let header = self.flows.header_mut(actor);
            header.flags |= flag::SECOND_KEY;
            if settling.way == Orientation::Along {
                header.flags |= flag::SECOND_ALONG;
            }
            self.announce_second_key(actor, key, &settling.packet);
            if !self.has_unheard() {
                self.pass(settling.packet);
            } else if let Some(packet) = self.wait_unheard(actor, settling.packet) {
                self.refuse_flow(actor, packet, DropReason::UnheardFull);
            }
        }
    }

    /// Whether another flow has this key; if its time is over, it no longer has.
    #[inline]
    fn is_taken(&mut self, hash: u64, key: &FlowKey) -> bool {
        let Some(value) = self.flows.find_hashed(hash, key) else {
            return false;
        };
        let header = self.flows.header(value >> 1);
        let is_over = header.phase == Phase::Active && header.deadline <= self.now;
        if is_over {
            self.end_actor(value >> 1);
        }
        !is_over
    }

    /// Drops the first packet of a flow whose replies would not find it, and ends the flow: nothing of it leaves. Functions
    /// that hand out endpoints never let two flows have one second key; two flows that a rule sends to the same server may.
    #[cold]
    fn refuse_flow(&mut self, actor: u32, packet: PacketBox, reason: DropReason) {
        self.refused_for = reason;
        self.drop_packet(packet, reason);
        let header = self.flows.header_mut(actor);
        match header.phase {
            Phase::Active => self.end_actor(actor),
            // Its next packet waits: with that it is tried again.
            _ => header.flags &= !flag::SETTLED,
        }
    }

    /// Passes the next packet of a flow whose first found no room to wait in, while the next waited for its call: its second key is its own, and told.
    #[cold]
    fn settle_again(&mut self, actor: u32, packet: PacketBox) {
        if !self.has_unheard() {
            self.flows.header_mut(actor).flags |= flag::SETTLED;
            self.pass(packet);
        } else if let Some(packet) = self.wait_unheard(actor, packet) {
            self.refuse_flow(actor, packet, DropReason::UnheardFull);
        }
    }

    /// Ends a flow whose second key got no route, or has one to another runtime already: the switch drops what it sent.
    #[cold]
    pub(super) fn second_key_refused(&mut self, key: FlowKey) {
        let hash = key.hash(&self.settings.seed);
        if let Some(value) = self.find(hash, &key)
            && value & 1 == 1
        {
            if is_unheard(self.flows.header(value >> 1).flags) {
                self.refuse_unheard(value >> 1);
            }
            match self.flows.header(value >> 1).phase {
                Phase::Active => self.end_actor(value >> 1),
                _ => self.note_refused(key),
            }
        }
    }

    /// Tells the switch whose packets have the second key, where it could not know by itself.
    fn announce_second_key(&mut self, actor: u32, key: FlowKey, packet: &PacketBox) {
        if self.settings.switches == 0 {
            return;
        }
        let group = self.flows.group_key(actor);
        // How the switch will see a reply: its source is where this packet goes.
        let (near, far) = match packet.exit() {
            Side::Outside => (packet.source(), packet.destination()),
            Side::Inside => (packet.destination(), packet.source()),
        };
        let is_inside = |end: nf::Endpoint| self.settings.inside.iter().any(|p| p.contains(end.addr));
        let known = match self.flows.affinity() {
            Affinity::Flow => false,
            _ if is_inside(near) && is_inside(far) => GroupKey::between(self.flows.affinity(), key) == group,
            Affinity::OutsideAddress => GroupKey::of_address(far.addr) == group,
            // A reply from outside finds its block's owner; one from inside names its host itself.
            _ if packet.exit() == Side::Outside => {
                self.flows.owners.owner(near) == Some(group)
                    || self.inside_group(near, packet.protocol()) == group
            }
            _ => self.inside_group(near, packet.protocol()) == group,
        };
        if !known {
            self.flows.header_mut(actor).flags |= flag::ANNOUNCED;
            self.tell(Message::Routed(GroupKey::of_flow(key)));
        }
    }

    fn inside_group(&self, inside: nf::Endpoint, protocol: u8) -> GroupKey {
        match self.flows.affinity() {
            Affinity::InsideEndpoint => GroupKey::of_endpoint(inside, protocol),
            _ => GroupKey::of_address(inside.addr),
        }
    }
}
