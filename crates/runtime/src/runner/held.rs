//! Packets that functions hold (`Verdict::Consume`), copies that they keep, and packets of calls
//! that were given up.
//!
//! Invariants: packets held at one place keep their order; functions hold no more than
//! [`Bounds::held_max`](super::Bounds::held_max), and packets of calls that were given up take no
//! room of theirs; half of the own buffers stay free of copies.

use super::{Ahead, Job, Runner};
use crate::chain::FUNCTIONS_MAX;
use crate::flows::FlowStore;
use crate::flows::actor::flag;
use crate::flows::group::room_for;
use crate::outbox::Outbox;
use crate::stats::DropReason;
use core::ptr::NonNull;
use nf::cx::{RawCx, effect};
use nf::{Direction, Reason};
use wire::packet::flag as packet_flag;
use wire::{PacketBox, PacketList};

/// In the keys of held packets, behind the numbers of functions: those of a call that was given up
/// for a move.
pub(super) const GIVEN_UP: u8 = FUNCTIONS_MAX as u8;
/// Behind all places.
pub(crate) const HELD_END: u8 = GIVEN_UP + 1;

/// Actor, place in its chain, and whether in the opening direction.
pub(crate) type HeldPlace = (u32, u8, bool);

/// Held packets.
pub(super) struct Held {
    lists: hashbrown::HashMap<HeldPlace, PacketList>,
    /// Packets that functions hold.
    count: u32,
    /// Copies among them.
    copies: u32,
    /// Packets of calls that were given up.
    given_up: u32,
    most: u32,
    /// How many more functions may hold now.
    room: u32,
}

impl Held {
    pub fn new(most: u32) -> Self {
        Held {
            lists: hashbrown::HashMap::with_capacity(room_for(most as usize)),
            count: 0,
            copies: 0,
            given_up: 0,
            most,
            room: 0,
        }
    }

    /// How many packets more functions may hold.
    #[inline(always)]
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Packets held that are no copies.
    pub fn originals(&self) -> u32 {
        self.count - self.copies + self.given_up
    }

    /// The packets held at a place, for a call.
    #[cold]
    pub fn list(&mut self, place: HeldPlace) -> Option<NonNull<PacketList>> {
        self.lists.get_mut(&place).map(NonNull::from)
    }

    fn measure(&mut self, out: &Outbox) {
        let is_scarce = out.pool().free() * 2 < out.pool().total();
        let room = self.most.saturating_sub(self.count);
        self.room = if is_scarce { 0 } else { room };
    }

    /// Adds a packet that a function holds, or a copy; there is room.
    fn put(&mut self, place: HeldPlace, packet: PacketBox, flows: &mut FlowStore, out: &Outbox) {
        self.count += 1;
        self.copies += u32::from(packet.has(packet_flag::COPY));
        flows.header_mut(place.0).flags |= flag::HOLDS;
        self.lists.entry(place).or_default().push(packet);
        self.measure(out);
    }

    /// A function holds a packet no more; `None` for a copy, which is gone.
    fn leave(&mut self, mut packet: PacketBox, out: &mut Outbox) -> Option<PacketBox> {
        self.count -= 1;
        let is_copy = packet.has(packet_flag::COPY);
        packet.clear_flags(packet_flag::COPY);
        if is_copy {
            self.copies -= 1;
            out.recycle(packet);
            self.measure(out);
            return None;
        }
        self.measure(out);
        Some(packet)
    }

    /// Hands out all held packets: the runtime fails.
    pub fn take_all(&mut self, lost: &mut PacketList) {
        for list in self.lists.values_mut() {
            lost.append(list);
        }
    }

    /// Takes out all packets held at a place; they count no more.
    fn take(&mut self, place: HeldPlace) -> Option<PacketList> {
        let list = self.lists.remove(&place)?;
        let count = match place.1 {
            GIVEN_UP => &mut self.given_up,
            _ => &mut self.count,
        };
        *count -= list.len() as u32;
        Some(list)
    }
}

impl Runner {
    /// Measures how many packets more may be held: half of the own buffers stay free of copies.
    pub fn measure_held_room(&mut self, out: &Outbox) {
        self.held.measure(out);
    }

    /// Holds a packet for a function.
    pub(super) fn hold(&mut self, job: Job, at: usize, flows: &mut FlowStore, out: &mut Outbox) {
        if self.held.count >= self.held.most {
            return out.drop_packet(job.packet, DropReason::HeldFull);
        }
        let place = (job.actor, at as u8, job.direction == Direction::Opening);
        self.held.put(place, job.packet, flows, out);
    }

    /// Drops packets held for a function, if it asked for that; else hands out those before the
    /// packet at hand.
    pub(super) fn let_go(
        &mut self,
        job: &Job,
        at: usize,
        effects: u8,
        discard: Reason,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> PacketList {
        let opening = job.direction == Direction::Opening;
        let mut released = PacketList::new();
        if effects & effect::DISCARD != 0 {
            for opening in [opening, !opening] {
                let mut list = self.take_held((job.actor, at as u8, opening), out);
                while let Some(packet) = list.pop() {
                    let function = self.function_at(job.actor, at, flows);
                    self.drop_for(packet, function, discard.index(), out);
                }
            }
        } else {
            released = self.take_held((job.actor, at as u8, opening), out);
        }
        self.note_held(job.actor, flows);
        released
    }

    /// Takes out packets that are held; copies among them are gone.
    fn take_held(&mut self, place: HeldPlace, out: &mut Outbox) -> PacketList {
        if place.1 == GIVEN_UP {
            return self.held.take(place).unwrap_or_default();
        }
        let mut packets = PacketList::new();
        let mut list = self.held.lists.remove(&place).unwrap_or_default();
        while let Some(packet) = list.pop() {
            if let Some(packet) = self.held.leave(packet, out) {
                packets.push(packet);
            }
        }
        packets
    }

    /// Holds the copy that a call has made, and hands out what it has let go behind its packet;
    /// copies among that are gone.
    pub(super) fn keep_copies(
        &mut self,
        job: &Job,
        at: usize,
        cx: &mut RawCx,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) -> PacketList {
        let mut behind = PacketList::new();
        let mut let_go = core::mem::take(&mut cx.let_go);
        let some = !let_go.is_empty();
        while let Some(packet) = let_go.pop() {
            if let Some(packet) = self.held.leave(packet, out) {
                behind.push(packet);
            }
        }
        let place = (job.actor, at as u8, job.direction == Direction::Opening);
        if let Some(copy) = cx.copy.take() {
            match self.held.count < self.held.most {
                true => self.held.put(place, copy, flows, out),
                false => out.recycle(copy),
            }
        }
        if some && self.held.lists.get(&place).is_some_and(PacketList::is_empty) {
            self.held.lists.remove(&place);
            self.note_held(job.actor, flows);
        }
        behind
    }

    /// The same for a call that is over without a verdict: packets that it let go are dropped.
    pub(super) fn forget_let_go(&mut self, cx: &mut RawCx, out: &mut Outbox) {
        let mut let_go = core::mem::take(&mut cx.let_go);
        while let Some(packet) = let_go.pop() {
            if let Some(packet) = self.held.leave(packet, out) {
                out.drop_packet(packet, DropReason::HeldAtEnd);
            }
        }
        if let Some(copy) = cx.copy.take() {
            out.recycle(copy);
        }
    }

    /// Packets let go by a function go on through the rest of the chain.
    pub(super) fn released(list: PacketList, job: &Job, function: usize) -> Ahead {
        Ahead::Released {
            list,
            actor: job.actor,
            direction: job.direction,
            function: function as u8,
            passed: job.passed + 1,
        }
    }

    /// Some held packets of a flow are not held any more: its packets are looked after no longer if
    /// those were all.
    fn note_held(&mut self, actor: u32, flows: &mut FlowStore) {
        let functions = self.steps_of(actor, flows).len() as u8;
        let holds = (0..functions).chain([GIVEN_UP]).any(|at| {
            [false, true]
                .iter()
                .any(|opening| self.held.lists.contains_key(&(actor, at, *opening)))
        });
        if !holds {
            flows.header_mut(actor).flags &= !flag::HOLDS;
        }
    }

    /// Packets held when a flow ends are dropped, and counted.
    pub fn drop_held(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) {
        let header = flows.header_mut(actor);
        if header.flags & flag::HOLDS == 0 {
            return;
        }
        header.flags &= !flag::HOLDS;
        for at in 0..HELD_END {
            for opening in [false, true] {
                let mut list = self.take_held((actor, at, opening), out);
                while let Some(packet) = list.pop() {
                    out.drop_packet(packet, DropReason::HeldAtEnd);
                }
            }
        }
    }

    // Packets that are held of a flow that moves.

    /// Adds a packet of a call that was given up.
    pub(super) fn put_given_up(&mut self, actor: u32, packet: PacketBox, flows: &mut FlowStore) {
        self.held.given_up += 1;
        flows.header_mut(actor).flags |= flag::HOLDS;
        self.held
            .lists
            .entry((actor, GIVEN_UP, false))
            .or_default()
            .push(packet);
    }

    /// Takes out the packets of calls that were given up.
    pub(super) fn take_given_up(&mut self, actor: u32, flows: &FlowStore) -> Option<PacketList> {
        if flows.header(actor).flags & flag::HOLDS == 0 {
            return None;
        }
        self.held.take((actor, GIVEN_UP, false))
    }

    /// Takes out all packets held at a place, copies too, of a flow that leaves.
    pub fn take_leaving(&mut self, place: HeldPlace) -> Option<PacketList> {
        let mut list = self.held.take(place)?;
        let mut packets = PacketList::new();
        while let Some(packet) = list.pop() {
            self.held.copies -= u32::from(packet.has(packet_flag::COPY));
            packets.push(packet);
        }
        Some(packets)
    }

    /// Takes in a packet that was held for a flow at another runtime, at a place as it was told.
    pub fn hold_told(
        &mut self,
        actor: u32,
        (at, opening): (u8, bool),
        mut packet: PacketBox,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) {
        let Some((at, opening, place)) = super::waiting::QueuedPlace::read(at, opening) else {
            return out.drop_packet(packet, DropReason::HeldAtEnd);
        };
        if let Some(place) = place {
            // Functions do not hold it: as many as may wait here, in calls and behind them.
            let most = self.bounds.waiting_max.saturating_add(self.bounds.queued_max);
            if self.held.given_up >= most {
                return out.drop_packet(packet, DropReason::WaitingQueueFull);
            }
            packet.set_hash(place.0);
            return self.put_given_up(actor, packet, flows);
        }
        if self.held.count >= self.held.most {
            return out.drop_packet(packet, DropReason::HeldFull);
        }
        self.held.put((actor, at, opening), packet, flows, out);
    }

    /// Takes in a copy that another runtime held; a copy without room, or without such a place, is
    /// gone, as copies are.
    pub fn hold_copy_told(
        &mut self,
        place: Option<HeldPlace>,
        mut packet: PacketBox,
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) {
        match place.filter(|place| usize::from(place.1) < FUNCTIONS_MAX) {
            Some(place) if self.held.count < self.held.most => {
                packet.set_flags(packet_flag::COPY);
                self.held.put(place, packet, flows, out);
            }
            _ => out.recycle(packet),
        }
    }
}
