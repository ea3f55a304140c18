//! A runtime's packets, messages to switches, records to runtimes, and buffers on their way home,
//! as they leave.
//!
//! # Theory of operation
//!
//! ```text
//!   chain ─── packet ────► lane of a switch ──┐
//!   flows ─── message ───► frame at hand ─────┼─ transmit ─► links: all messages, then all packets
//!        └──► pending, while no buffer is free ┘
//!   moves ─── record, packet ─► lane of a runtime (`runtimes`)
//! ```
//!
//! Messages go first: before any packet is transmitted on any link, all messages sent so far are on
//! all links. That is the whole of "announced before the first packet that uses it leaves", but for
//! switches of other processes ([`barrier`]).
//!
//! A message for which no buffer is free is pending, and so is each message behind it. Until all
//! are written no packet leaves. Empty buffers do leave: their owners wait for them. Meanwhile the
//! worker takes up no packet and ends no flow, so pending messages are those of one burst and of
//! one flow that ends. No other use of buffers takes the last ones ([`Outbox::reserve`]). A frame
//! comes home when its switch has read it, so each message is written in the end.
//!
//! With a switch in front, buffers that are done with go home over the link they belong to. Alone
//! on a port they go to the pool, and hairpinned packets are kept for the worker to take up again
//! ([`Outbox::next_hairpin`]).
//!
//! Invariants: each packet given to the outbox is transmitted, kept, or counted as a drop, once;
//! packets to one link keep their order; messages to one switch keep theirs.
//!
//! Not here: links, which the worker hands in; the meaning of messages.

pub mod barrier;
mod runtimes;

use crate::env::{Burst, Port, give_or_keep};
use crate::flows::group::GroupKey;
use crate::message::Message;
use crate::stats::{DropReason, Drops};
use crate::switch::home_of;
use crate::watch::MaybeTap;
use crate::watch::trace::Event;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use barrier::Barrier;
use nf::Affinity;
use protocols::ownership::Switches;
use wire::memory::Region;
use wire::packet::{Kind, flag as packet_flag};
use wire::{HashSeed, Packet, PacketBox, PacketList, Pool};

/// Messages, packets and buffers that wait to be transmitted on one link.
#[derive(Default)]
struct Lane {
    /// Whether a worker is at the other end, and whether one ever was.
    is_present: bool,
    is_met: bool,
    packets: Burst,
    /// Behind those.
    more: PacketList,
    /// Packets that wait for messages that are pending.
    held_back: PacketList,
    /// Frames of messages that are full, and the one at hand.
    full: PacketList,
    frame: Option<PacketBox>,
    /// Packets of this link processed, counted as the switch counts what it sends.
    consumed: u64,
}

impl Lane {
    #[inline(always)]
    fn push(&mut self, packet: PacketBox) {
        if self.packets.is_full() {
            self.more.push(packet);
        } else {
            self.packets.push(packet);
        }
    }
}

/// Frames of messages that one step may need per link: 32 packets and 64 ended flows, a few records
/// each.
const FRAMES: usize = 16;

/// Pending messages that there is room for from the start: more than a burst has to say, as a rule.
const PENDING: usize = 256;

/// The settings that an outbox is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// How many switches there are; 0 for a runtime alone on one port.
    pub switches: u8,
    /// The switch whose ports are inside, and the one whose are outside.
    pub egress: [u8; 2],
    /// Seed of the cluster's hashes.
    pub seed: HashSeed,
    /// Which flows are together.
    pub affinity: Affinity,
    /// The time at the start, in nanoseconds.
    pub now: u64,
}

/// The packets, messages, records and buffers that leave one runtime.
pub(crate) struct Outbox {
    shape: Shape,
    now: u64,
    pool: Pool,
    /// By link to a switch, or the one port.
    lanes: Vec<Lane>,
    /// Messages to switches for which no buffer was free, in order; each with its link.
    pending: VecDeque<(u8, Message)>,
    /// Switches that have been met again, and by which no packet leaves yet.
    unreconciled: Switches,
    barrier: Barrier,
    runtimes: runtimes::Lanes,
    /// Hairpinned packets, where no switch turns them.
    hairpins: PacketList,
    drops: Drops,
    passed: u64,
    refused: u64,
    /// Open while packets are watched.
    pub tap: MaybeTap,
    /// Before the first step: switches are told all there is behind it.
    is_muted: bool,
}

impl Outbox {
    /// For these links, whose buffers are made in `pool`.
    pub fn new<P: Port>(shape: Shape, links: &[P], pool: Pool) -> Self {
        let lane = |link: &P| Lane {
            is_present: link.session() != 0,
            is_met: link.session() != 0,
            ..Lane::default()
        };
        Outbox {
            shape,
            now: shape.now,
            pool,
            lanes: links.iter().map(lane).collect(),
            pending: VecDeque::with_capacity(PENDING),
            unreconciled: Switches::NONE,
            barrier: Barrier::new(links, shape.switches, shape.now),
            runtimes: runtimes::Lanes::default(),
            hairpins: PacketList::new(),
            drops: Drops::default(),
            passed: 0,
            refused: 0,
            tap: None,
            is_muted: false,
        }
    }

    /// Announces nothing, or again what there is.
    pub fn set_muted(&mut self, is_muted: bool) {
        self.is_muted = is_muted;
    }

    /// Goes on to a time, in nanoseconds.
    #[inline(always)]
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    // Buffers.

    /// The pool, to be looked at.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool, for ports and for what makes packets.
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Buffers that are kept for the messages of one step.
    pub fn reserve(&self) -> usize {
        FRAMES * usize::from(self.shape.switches)
    }

    /// Whether all messages of one step have room.
    pub fn has_room(&self) -> bool {
        self.shape.switches == 0 || self.is_clear() && self.pool.free() >= self.reserve()
    }

    /// Whether a buffer is free that no message of this step needs, and no message is pending.
    pub fn has_spare(&self) -> bool {
        self.is_clear() && self.pool.free() > self.reserve()
    }

    /// Whether no message to a switch is pending.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.pending.is_empty()
    }

    /// Gives a buffer back: to the own pool, or home over the link it belongs to.
    #[inline]
    pub fn recycle(&mut self, packet: PacketBox) {
        if let Some(mut packet) = give_or_keep(&mut self.pool, packet) {
            packet.set_kind(Kind::Empty);
            let home = usize::from(packet.origin());
            match home.checked_sub(usize::from(self.shape.switches.max(1))) {
                None => self.lanes[home].push(packet),
                Some(runtime) => self.runtimes.send(runtime as u16, packet),
            }
        }
    }

    // Packets.

    /// Passes a processed packet on.
    #[inline(always)]
    pub fn pass(&mut self, mut packet: PacketBox) {
        if self.shape.switches == 0 {
            if packet.has(packet_flag::HAIRPIN) {
                return self.hairpin(packet);
            }
            self.passed += 1;
            return self.lanes[0].push(packet);
        }
        packet.set_kind(Kind::Data);
        self.passed += 1;
        let link = self.link_of(&packet);
        self.lanes[link].push(packet);
    }

    /// By which switch's link a packet leaves.
    #[inline(always)]
    pub fn link_of(&self, packet: &PacketBox) -> usize {
        let link = match packet.egress() {
            None => self.shape.egress[packet.exit() as usize],
            Some(port) => port % self.shape.switches.max(1),
        };
        usize::from(link)
    }

    /// Keeps a packet that goes back in from outside, once.
    #[cold]
    fn hairpin(&mut self, mut packet: PacketBox) {
        if packet.hairpins() > 0 {
            return self.drop_packet(packet, DropReason::HairpinLoop);
        }
        turn_around(&mut packet);
        self.hairpins.push(packet);
    }

    /// A hairpinned packet, to be taken up as if it had been received.
    pub fn next_hairpin(&mut self) -> Option<PacketBox> {
        self.hairpins.pop()
    }

    /// Drops a packet for a reason of the runtime's own.
    pub fn drop_packet(&mut self, packet: PacketBox, reason: DropReason) {
        if !wire::planted::is("drop_not_counted") {
            self.drops.count(reason);
        }
        if let Some(tap) = &mut self.tap {
            tap.dropped(&packet, self.now, None, reason.name());
        }
        self.recycle(packet);
    }

    /// Notes a step of a packet, if it is watched.
    #[inline(always)]
    pub fn observe(&mut self, packet: &Packet, event: Event) {
        if self.tap.is_some() {
            self.see_now(packet, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn see_now(&mut self, packet: &Packet, event: Event) {
        if let Some(tap) = &mut self.tap
            && packet.has(packet_flag::WATCHED)
        {
            tap.note(packet, self.now, event);
        }
    }

    /// Counts a packet of a link as processed.
    #[inline(always)]
    pub fn count_consumed(&mut self, link: usize) {
        self.lanes[link].consumed += 1;
    }

    /// Does something before the packet at hand is counted: groups that end have not seen it.
    pub fn uncount_consumed(&mut self, link: usize) {
        self.lanes[link].consumed = self.lanes[link].consumed.wrapping_sub(1);
    }

    // Messages to switches.

    /// Whether a worker is at the other end of a link.
    pub fn is_present(&self, link: usize) -> bool {
        self.lanes[link].is_present
    }

    /// The barrier of routes.
    pub fn barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// The barrier of routes, to be told what switches acknowledge.
    pub fn barrier_mut(&mut self) -> &mut Barrier {
        &mut self.barrier
    }

    /// Another worker, or none, is at the end of a link: all that was for the worker before is
    /// forgotten.
    #[cold]
    pub fn session_over(&mut self, link: usize, is_present: bool) {
        let lane = &mut self.lanes[link];
        let is_again = is_present && lane.is_met && !wire::planted::is("left_before_known");
        self.unreconciled = match is_again {
            true => self.unreconciled.with(link as u8),
            false => self.unreconciled.without(link as u8),
        };
        (lane.is_present, lane.consumed) = (is_present, 0);
        lane.is_met |= is_present;
        let mut frames = core::mem::take(&mut lane.full);
        if let Some(frame) = lane.frame.take() {
            frames.push(frame);
        }
        while let Some(frame) = frames.pop() {
            self.recycle(frame);
        }
        self.pending.retain(|(to, _)| usize::from(*to) != link);
        self.barrier.session_over(link, is_present);
    }

    /// Sends a message to the switches that must know. Blocks concern all of them; a group its home
    /// only, and so does a reply key where flows are by themselves. Where they are grouped, any
    /// switch may see a reply key before it knows the home.
    pub fn announce(&mut self, message: Message) {
        if self.shape.switches == 0 || self.is_muted {
            return;
        }
        let affinity = self.shape.affinity;
        let home = |group: &GroupKey| home_of(group.hash(&self.shape.seed), self.shape.switches);
        let only = match &message {
            Message::GroupEmpty(group, _) if !group.is_reply_key(affinity) => Some(home(group)),
            Message::Routed(group) if !group.is_reply_key(affinity) => Some(home(group)),
            _ => None,
        };
        let is_needed = matches!(message, Message::BlockClaimed(..) | Message::Routed(_));
        for link in 0..self.lanes.len() {
            if only.is_none_or(|only| usize::from(only) == link) && self.lanes[link].is_present {
                self.send(link, &message);
                if is_needed {
                    self.barrier.note(link);
                }
            }
        }
    }

    /// Sends a message to one switch, behind all messages before.
    pub fn send(&mut self, link: usize, message: &Message) {
        let message = match message {
            Message::GroupEmpty(group, _) => Message::GroupEmpty(*group, self.lanes[link].consumed),
            other => *other,
        };
        if !self.pending.is_empty() || !self.write(link, &message) {
            self.pending.push_back((link as u8, message));
        }
    }

    /// Writes a message into the link's frame at hand; `false` if a buffer is wanting.
    fn write(&mut self, link: usize, message: &Message) -> bool {
        let lane = &mut self.lanes[link];
        if let Some(frame) = &mut lane.frame {
            if message.append(frame) {
                return true;
            }
            if let Some(frame) = lane.frame.take() {
                lane.full.push(frame);
            }
        }
        let Some(mut frame) = self.pool.take() else {
            return false;
        };
        Message::begin(&mut frame);
        let fits = message.append(&mut frame);
        debug_assert!(fits, "a record fits into an empty frame");
        lane.frame = Some(frame);
        true
    }

    /// Writes pending messages, as far as there are buffers.
    #[inline]
    pub fn write_pending(&mut self) {
        while let Some((link, message)) = self.pending.front().copied() {
            if !self.write(usize::from(link), &message) {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// Counts a message or record that its sender may not send.
    #[cold]
    pub fn reject(&mut self) {
        self.refused += 1;
    }

    // Links.

    /// Transmits messages, then packets and empty buffers, on the links to switches; then records
    /// and packets for other runtimes, with which `known` are the sessions.
    pub fn transmit<P: Port>(&mut self, links: &mut [P], peers: &mut [Option<P>], known: &[u64]) {
        if self.unreconciled != Switches::NONE {
            self.drop_unreconciled();
        }
        self.ask_for_acknowledgements();
        self.write_pending();
        for (link, lane) in links.iter_mut().zip(&mut self.lanes) {
            transmit_list(link, &mut lane.full, self.now, &mut self.pool);
            if let Some(frame) = lane.frame.take() {
                let mut burst = Burst::new();
                burst.push(frame);
                link.transmit(self.now, &mut self.pool, &mut burst);
            }
        }
        for (link, lane) in links.iter_mut().zip(&mut self.lanes) {
            if !self.pending.is_empty() {
                hold_back(link, lane, self.now, &mut self.pool);
                continue;
            }
            transmit_list(link, &mut lane.held_back, self.now, &mut self.pool);
            if !lane.packets.is_empty() {
                link.transmit(self.now, &mut self.pool, &mut lane.packets);
                transmit_list(link, &mut lane.more, self.now, &mut self.pool);
            }
        }
        self.runtimes.transmit(peers, known, self.now, &mut self.pool);
    }

    /// Drops the packets that wait to be transmitted: the worker has no lease.
    #[cold]
    pub fn drop_unleased(&mut self) {
        for link in 0..self.lanes.len() {
            self.drop_packets_for(link, DropReason::NoLease);
        }
    }

    fn drop_packets_for(&mut self, link: usize, reason: DropReason) {
        let lane = &mut self.lanes[link];
        let mut all = core::mem::take(&mut lane.held_back);
        lane.packets.drain(..).for_each(|packet| all.push(packet));
        while let Some(packet) = lane.more.pop() {
            all.push(packet);
        }
        while let Some(packet) = all.pop() {
            match packet.kind() {
                Kind::Data => {
                    self.passed -= 1;
                    self.drop_packet(packet, reason);
                }
                // On their way home.
                Kind::Empty | Kind::Message => self.lanes[link].push(packet),
            }
        }
    }

    /// Switches that have been met again, and may have let this runtime go: no packet leaves by
    /// them before they have said which groups are others'.
    #[inline(always)]
    pub fn unreconciled(&self) -> Switches {
        self.unreconciled
    }

    /// Packets leave by a switch again, but those that wait for it now are dropped.
    #[cold]
    pub fn reconcile(&mut self, link: usize) {
        self.drop_packets_for(link, DropReason::PeerGone);
        self.unreconciled = self.unreconciled.without(link as u8);
    }

    #[cold]
    fn drop_unreconciled(&mut self) {
        for link in 0..self.lanes.len() {
            if self.unreconciled.has(link as u8) {
                self.drop_packets_for(link, DropReason::PeerGone);
            }
        }
    }

    /// Hands out all frames that have not left: the runtime fails. Its packets were passed on and
    /// are so no more.
    pub fn take_all(&mut self, lost: &mut PacketList) {
        let mut passed = PacketList::new();
        for lane in &mut self.lanes {
            passed.append(&mut lane.held_back);
            lane.packets.drain(..).for_each(|packet| passed.push(packet));
            passed.append(&mut lane.more);
            lost.append(&mut lane.full);
            lane.frame.take().into_iter().for_each(|frame| lost.push(frame));
        }
        let packets = passed.iter().filter(|packet| packet.kind() == Kind::Data);
        self.passed -= packets.count() as u64;
        lost.append(&mut passed);
        lost.append(&mut self.hairpins);
        self.runtimes.take_all(lost);
    }

    /// Takes the pool of a runtime that has failed.
    pub fn take_pool(&mut self) -> Pool {
        let none = Pool::new(Region::heap(0), 0, 0, self.pool.origin());
        core::mem::replace(&mut self.pool, none)
    }

    /// Asks switches that a message was sent to since, and that are apart, to say when they have
    /// read it.
    #[inline]
    fn ask_for_acknowledgements(&mut self) {
        while let Some((link, number)) = self.barrier.next_question() {
            self.send(link, &Message::BarrierAsked(number));
        }
    }

    // Figures.

    /// Counted drops.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Packets passed on.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Messages and records refused ([`Outbox::reject`]).
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Hairpinned packets that are kept.
    pub fn hairpins(&self) -> usize {
        self.hairpins.len()
    }

    /// Figures: drops, and packets passed on.
    pub fn counts(&self) -> (Drops, u64) {
        (self.drops, self.passed)
    }

    /// Goes on with the counts of a predecessor.
    pub fn inherit(&mut self, (drops, passed): (Drops, u64)) {
        (self.drops, self.passed) = (drops, passed);
    }

    /// As if so many packets of other groups had come by each link.
    #[cfg(test)]
    pub fn age_links(&mut self, packets: u64) {
        for lane in &mut self.lanes {
            lane.consumed += packets;
        }
    }
}

fn transmit_list<P: Port>(link: &mut P, list: &mut PacketList, now: u64, pool: &mut Pool) {
    while !list.is_empty() {
        let mut burst = Burst::new();
        while !burst.is_full()
            && let Some(packet) = list.pop()
        {
            burst.push(packet);
        }
        link.transmit(now, pool, &mut burst);
    }
}

/// Transmits a lane's empty buffers, and has its packets wait for pending messages.
#[cold]
fn hold_back<P: Port>(link: &mut P, lane: &mut Lane, now: u64, pool: &mut Pool) {
    let mut empty = PacketList::new();
    let mut sort = |packet: PacketBox| match packet.kind() {
        Kind::Empty => empty.push(packet),
        Kind::Data | Kind::Message => lane.held_back.push(packet),
    };
    lane.packets.drain(..).for_each(&mut sort);
    while let Some(packet) = lane.more.pop() {
        sort(packet);
    }
    transmit_list(link, &mut empty, now, pool);
}

/// Makes a packet that left for outside a packet that came in from there.
pub(crate) fn turn_around(packet: &mut PacketBox) {
    packet.add_hairpin();
    packet.clear_flags(packet_flag::HAIRPIN | packet_flag::INSIDE_TO_INSIDE);
    packet.set_side(nf::Side::Outside);
}
