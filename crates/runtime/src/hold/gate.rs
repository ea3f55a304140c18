//! Packets that wait until another runtime has acknowledged the copies that they depend on (output
//! commit; NFVactor V-C).
//!
//! # Theory of operation
//!
//! ```text
//!   packet changes committed state ─► record n to the replica ─► ticket n ─► waits ── acknowledged ≥ n ──► out
//!   packet changes nothing ─► ticket of the latest record of its flow, or group ─► acknowledged: out, else behind
//! ```
//!
//! Records to the replica are numbered; acknowledgements are cumulative. A flow, or its group where
//! flows are grouped, has a *mark*: the number of its latest record. Marks share places by the low
//! bits of their index: a shared place makes a packet wait longer, never shorter.
//!
//! A switch that ends its session may have let this runtime go, and its flows may be at their heir
//! by the next one. So packets that wait here for its link are lost with the session: they would
//! overtake, or repeat, what the heir does. The same holds for waiting packets of a flow that is
//! another runtime's ([`Gate::refuse`]). A flow whose reply key a switch has refused takes along
//! its waiting packets: the switch drops such packets only until it hears of the flow's end.
//!
//! Invariants: no packet leaves before the record that its mark numbers is acknowledged; packets of
//! one flow leave in order, since the queue is one, tickets in it never fall, and a flow's mark is
//! at least the ticket of its packet in it; no more wait than a quarter of the pool's buffers, nor
//! any while half of them are out: beyond is a counted drop (`replica_full`).
//!
//! Where packets wait for a data store ([`crate::replica::ledger::through`]) it is a gate of its
//! own, which numbers the changes of the runtime's variable there; its reason is `store_full`.
//!
//! Not here: records (`replica`); barriers of routes ([`super::OutputHold`]), which come first.

use super::{has_room, key_of, mark_of};
use crate::flows::actor::Header;
use crate::outbox::Outbox;
use crate::stats::DropReason;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use protocols::ownership::recovery::may_leave;
use wire::{FlowKey, PacketBox, PacketList, planted};

const _: () = assert!(crate::chain::CHAINS_MAX <= 64, "a chain is a bit");

/// Places of marks: 64 KiB.
const MARKS: usize = 8192;
/// Packets that there is room for from the start.
const WAITING: usize = 1024;

/// A packet and its ticket.
pub(crate) struct Waiting {
    pub ticket: u64,
    pub actor: u32,
    pub packet: PacketBox,
}

/// See the module's page.
pub(crate) struct Gate {
    /// By the low bits of a flow's or group's index. `None` while no replica is in use.
    marks: Option<Box<[u64; MARKS]>>,
    acknowledged: u64,
    /// The latest record of any flow.
    latest: u64,
    /// Which chains' packets wait, a bit each.
    waiting: u64,
    /// The same of flows that are yet to be asked whether they go on: their generation, by which
    /// chains have other numbers.
    waiting_before: Option<(u8, u64)>,
    /// Packets of other chains wait for this record: an earlier packet of theirs may.
    loose: u64,
    /// Why a packet is dropped that finds no room.
    full: DropReason,
    queue: VecDeque<Waiting>,
}

impl Gate {
    /// Open.
    pub fn new(full: DropReason) -> Self {
        Gate {
            marks: None,
            acknowledged: 0,
            latest: 0,
            waiting: u64::MAX,
            waiting_before: None,
            loose: 0,
            full,
            queue: VecDeque::new(),
        }
    }

    /// Bytes of marks, for tests.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.marks.as_ref().map_or(0, |marks| size_of_val(&**marks))
    }

    /// Packets that wait.
    pub fn packets(&self) -> usize {
        self.queue.len()
    }

    /// Records are numbered from 1 again, of another base or for another replica; waiting packets
    /// are handed out, to be passed again.
    pub fn begin(&mut self) -> VecDeque<Waiting> {
        self.marks = Some(Box::new([0; MARKS]));
        (self.acknowledged, self.latest, self.loose) = (0, 0, 0);
        core::mem::replace(&mut self.queue, VecDeque::with_capacity(WAITING))
    }

    /// Another runtime acknowledges from now on, by other numbers, and has no less than the replica
    /// before when it has this many records. Packets that wait for the replica before wait for
    /// these.
    #[cold]
    pub fn rebase(&mut self, number: u64, acknowledged: u64) {
        let before = core::mem::replace(&mut self.acknowledged, acknowledged);
        let renumbered = match crate::replica::is_broken("what waits goes by the other base") {
            true => 0,
            false => number,
        };
        let marks = self.marks.iter_mut().flat_map(|marks| marks.iter_mut());
        marks.for_each(|mark| *mark = if *mark > before { renumbered } else { 0 });
        self.queue
            .iter_mut()
            .for_each(|waiting| waiting.ticket = renumbered);
        self.latest = number;
        self.loose = if self.queue.is_empty() { 0 } else { number };
    }

    /// So many records were sent.
    pub fn note_sent(&mut self, number: u64) {
        self.latest = self.latest.max(number);
    }

    /// No replica is in use: nothing waits any more.
    pub fn open(&mut self, out: &mut Outbox) -> usize {
        self.end();
        let count = self.queue.len();
        for waiting in self.queue.drain(..) {
            out.pass(waiting.packet);
        }
        count
    }

    /// No packet waits from now on; waiting ones are dropped.
    #[cold]
    pub fn close(&mut self, reason: DropReason, out: &mut Outbox) {
        self.end();
        for waiting in self.queue.drain(..) {
            out.drop_packet(waiting.packet, reason);
        }
    }

    /// No record is acknowledged any more, so no later packet may wait for one.
    fn end(&mut self) {
        self.marks = None;
        (self.acknowledged, self.latest, self.loose) = (0, 0, 0);
    }

    /// The latest record of a flow or group has this number.
    #[inline]
    pub fn mark(&mut self, index: u32, number: u64) {
        if let Some(marks) = &mut self.marks {
            let mark = &mut marks[index as usize % MARKS];
            *mark = number.max(*mark);
            self.latest = self.latest.max(number);
        }
    }

    /// The packets of these chains, a bit each, wait for copies. Later packets of flows that did,
    /// and do so no longer, do not overtake waiting packets.
    #[cold]
    pub fn set_waiting(&mut self, chains: u64) {
        self.waiting = chains;
        self.loose = self.latest;
    }

    /// Another configuration is in force: flows of this generation go by the chains before as long
    /// as they are not asked.
    #[cold]
    pub fn follow(&mut self, before: u8) {
        self.waiting_before = Some((before, self.waiting));
    }

    /// Whether packets of this chain, of flows of this generation, wait here.
    #[inline]
    pub fn is_for(&self, generation: u8, chain: u8) -> bool {
        self.marks.is_some() && self.waits(generation, chain)
    }

    #[inline]
    fn waits(&self, generation: u8, chain: u8) -> bool {
        let waiting = match self.waiting_before {
            Some((before, waiting)) if before == generation => waiting,
            _ => self.waiting,
        };
        waiting >> (chain % 64) & 1 == 1
    }

    /// Whether records are numbered.
    pub fn is_closed(&self) -> bool {
        self.marks.is_some()
    }

    /// Passes a packet whose flow is over, behind all records so far.
    #[cold]
    pub fn pass_behind_all(&mut self, packet: PacketBox, out: &mut Outbox) {
        self.pass_with(self.latest, u32::MAX, packet, out);
    }

    /// Passes a packet of a flow, or has it wait.
    #[inline(always)]
    pub fn pass(&mut self, actor: u32, header: &Header, packet: PacketBox, out: &mut Outbox) {
        match self.latest <= self.acknowledged {
            // No mark is above that, and no packet waits.
            true => out.pass(packet),
            false => self.pass_behind_mark(actor, header, packet, out),
        }
    }

    #[inline(never)]
    fn pass_behind_mark(&mut self, actor: u32, header: &Header, packet: PacketBox, out: &mut Outbox) {
        let index = mark_of(header, actor);
        let mark = self.mark_at(index);
        let ticket = match self.waits(header.generation, header.chain) {
            false => mark.min(self.loose),
            true => mark,
        };
        if let Some(ticket) = self.pass_with(ticket, actor, packet, out) {
            self.mark(index, ticket);
            // The next packet of a flow that does not wait stays behind this one.
            self.loose = self.loose.max(ticket);
        }
    }

    /// Passes a packet with a ticket; the one with which it waits, if it does.
    #[inline]
    fn pass_with(&mut self, ticket: u64, actor: u32, packet: PacketBox, out: &mut Outbox) -> Option<u64> {
        let is_broken =
            crate::replica::is_broken("copies are waited for") || planted::is("copy_not_waited_for");
        if may_leave(ticket, self.acknowledged) || is_broken {
            out.pass(packet);
            None
        } else if has_room(self.queue.len(), out.pool()) {
            // The queue is let go from its front: a packet waits for the records that those before
            // it wait for, and so do later ones of its flow.
            let ticket = self.queue.back().map_or(ticket, |last| last.ticket.max(ticket));
            self.queue.push_back(Waiting {
                ticket,
                actor,
                packet,
            });
            Some(ticket)
        } else {
            out.drop_packet(packet, self.full);
            None
        }
    }

    /// Whether packets of a flow or group may wait.
    pub fn may_hold(&self, index: u32) -> bool {
        !self.queue.is_empty() && self.behind(index) > 0
    }

    /// How many records must be acknowledged until the latest of a flow or group is.
    pub fn behind(&self, index: u32) -> u64 {
        self.mark_at(index).saturating_sub(self.acknowledged)
    }

    #[inline]
    fn mark_at(&self, index: u32) -> u64 {
        self.marks
            .as_ref()
            .map_or(0, |marks| marks[index as usize % MARKS])
    }

    /// A switch is gone, or has let this runtime go: packets that would leave by its link are
    /// dropped.
    #[cold]
    pub fn switch_gone(&mut self, link: usize, out: &mut Outbox) {
        for waiting in core::mem::take(&mut self.queue) {
            match out.link_of(&waiting.packet) == link {
                true => out.drop_packet(waiting.packet, DropReason::PeerGone),
                false => self.queue.push_back(waiting),
            }
        }
    }

    /// Drops waiting packets of a flow that must have no effect. A later flow may have its place by
    /// now, so its packets are known by its keys, too.
    #[cold]
    pub fn refuse(&mut self, actor: u32, keys: &[FlowKey], reason: DropReason, out: &mut Outbox) {
        for _ in 0..self.queue.len() {
            let Some(waiting) = self.queue.pop_front() else {
                return;
            };
            let is_its =
                waiting.actor == actor && key_of(&waiting.packet).is_some_and(|key| keys.contains(&key));
            match is_its {
                true => out.drop_packet(waiting.packet, reason),
                false => self.queue.push_back(waiting),
            }
        }
    }

    /// The replica has all records up to this number; answers how many packets that let go.
    pub fn acknowledge(&mut self, number: u64, out: &mut Outbox) -> usize {
        self.acknowledged = self.acknowledged.max(number);
        let acknowledged = self.acknowledged;
        let mut count = 0;
        while let Some(waiting) = self
            .queue
            .pop_front_if(|waiting| may_leave(waiting.ticket, acknowledged))
        {
            out.pass(waiting.packet);
            count += 1;
        }
        count
    }

    /// Drops all waiting packets: they will not be acknowledged.
    #[cold]
    pub fn drop_all(&mut self, out: &mut Outbox) {
        for waiting in core::mem::take(&mut self.queue) {
            out.drop_packet(waiting.packet, self.full);
        }
    }

    /// Hands out all packets that wait: the runtime fails.
    pub fn take_all(&mut self, lost: &mut PacketList) {
        for waiting in core::mem::take(&mut self.queue) {
            lost.push(waiting.packet);
        }
    }

    /// The number up to which the replica has all records.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}
