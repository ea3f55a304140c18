//! A switch's packets, messages and buffers on their way home, as they leave for other workers.
//!
//! # Theory of operation
//!
//! ```text
//!   push_packet ──────────────► burst ─────────────────────────────► link
//!   push_message ─► queue ─► (flush: a buffer, room) ─► frame ─► burst, behind all packets pushed before
//! ```
//!
//! A runtime's packets wait in a burst, its messages in a queue, which has memory of its own: a
//! buffer is taken when a message leaves. [`Outbox::flush`] puts the messages behind the packets,
//! so a message is behind everything that was pushed before it; its reader concludes no more than
//! that from its place. An acknowledged *route barrier* ([`Outbox::acknowledge`]) leaves behind all
//! messages, and beyond a link's room: the runtime holds packets until it comes.
//!
//! A link's session says which worker is at the other end, 0 for none. Messages about moves for a
//! runtime that this switch has not met yet are kept until it is met: other switches may have met
//! it, and groups move to it.
//!
//! Invariants: messages to a runtime leave in order, each once, or are counted as rejected; a
//! buffer of another pool goes home over that pool's link.
//!
//! Not here: the meaning of messages (`directory`, `presence`), how many there may be (`messages`).

use super::Local;
use crate::env::{BURST, Burst, LinkTo, Port, give_or_keep};
use crate::members::End;
use crate::message::Message;
use crate::stats::DropReason;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use protocols::membership::{Role, View, WorkerId};
use wire::packet::Kind;
use wire::{PacketBox, PacketList, Pool, planted};

/// Probes in a step: of so many messages in a burst, the answers fit into what a runtime keeps for
/// one step.
pub(super) const PROBES: usize = 8;

/// Messages for one runtime that there is room for from the start: more than a burst causes, as a
/// rule.
const QUEUED: usize = 256;

/// A runtime at the other end of a link.
struct Peer<L> {
    link: L,
    /// The session whose end this switch has not seen yet.
    session: u64,
    /// The same end, as views have it.
    end: End,
    /// Which incarnation it has said in this session that it is, if not by views; 0 for none.
    said: u64,
    /// The link is down, and the runtime a member still: nothing is sent there.
    is_suspended: bool,
    burst: Burst,
    queue: VecDeque<Message>,
    /// For the runtime that this switch has yet to meet.
    early: VecDeque<Message>,
    /// The last route barrier that all before has been read.
    acknowledged: Option<u64>,
    /// With less room than this its queue counts as full: two bursts, or all of a queue that does
    /// not hold as many, so that ports are read at all.
    enough: usize,
}

/// See the module's page.
pub(super) struct Outbox<L> {
    runtimes: Vec<Peer<L>>,
    /// The other switches by number, `None` for this one.
    switches: Vec<Option<L>>,
    /// Messages and acknowledgements that wait.
    waiting: usize,
    /// Messages that may wait for one runtime.
    most: usize,
    rejected: u64,
    /// The runtime whose messages go first when there are buffers again.
    next: usize,
    /// Whether a runtime is gone only by a view.
    by_views: bool,
}

impl<L: Port> Outbox<L> {
    pub fn new(runtimes: Vec<L>, switches: Vec<Option<L>>, most: usize) -> Self {
        let runtimes = runtimes.into_iter().map(|link| Peer {
            session: link.session(),
            end: End::default(),
            said: 0,
            is_suspended: false,
            enough: link.room().min(2 * BURST),
            link,
            burst: Burst::new(),
            queue: VecDeque::with_capacity(QUEUED),
            early: VecDeque::new(),
            acknowledged: None,
        });
        Outbox {
            runtimes: runtimes.collect(),
            switches,
            waiting: 0,
            most,
            rejected: 0,
            next: 0,
            by_views: false,
        }
    }

    // Runtimes.

    /// How many runtimes there may be.
    pub fn runtimes(&self) -> usize {
        self.runtimes.len()
    }

    /// So many messages may wait for a runtime, if that is more than before.
    pub fn make_room(&mut self, most: usize) {
        self.most = self.most.max(most);
    }

    /// Whether a runtime is at the other end of its link.
    pub fn is_there(&self, runtime: usize) -> bool {
        self.runtimes.get(runtime).is_some_and(|peer| peer.session != 0)
    }

    /// Whether a runtime is not there, and nothing of one is to be read.
    #[inline]
    pub fn is_still(&self, runtime: usize) -> bool {
        let peer = &self.runtimes[runtime];
        peer.session == 0 && peer.link.is_still()
    }

    /// Whether frames on a link when a port is read were put there before the packets that come of
    /// it.
    pub fn is_ring(&self, runtime: usize) -> bool {
        !self.runtimes[runtime].link.is_apart()
    }

    /// The burst that a runtime's link has brought.
    pub fn receive(&mut self, runtime: usize, local: &mut Local) -> Burst {
        let mut burst = Burst::new();
        let peer = &mut self.runtimes[runtime];
        if peer.link.session() != peer.session {
            self.receive_none(runtime, local);
            return burst;
        }
        peer.link.receive(local.now, &mut local.pool, &mut burst);
        burst
    }

    /// [`Outbox::receive`] of a link that brings nothing that counts: frames of a fenced runtime
    /// are dropped, and a session that begins while the one before is suspended waits.
    #[cold]
    fn receive_none(&mut self, runtime: usize, local: &mut Local) {
        let peer = &mut self.runtimes[runtime];
        let session = peer.link.session();
        peer.is_suspended = peer.end.is_suspended(peer.session, session, self.by_views);
        if !peer.end.is_fenced(session) {
            return;
        }
        let mut burst = Burst::new();
        peer.link.receive(local.now, &mut local.pool, &mut burst);
        self.drop_unheard(burst, local);
    }

    /// Drops packets, and messages unread.
    pub fn drop_unheard(&mut self, packets: impl IntoIterator<Item = PacketBox>, local: &mut Local) {
        for packet in packets {
            match packet.kind() {
                Kind::Data => self.drop_packet(packet, DropReason::PeerGone, local),
                Kind::Message | Kind::Empty => self.give_home(packet, local),
            }
        }
    }

    /// From now on a runtime is gone only by a view.
    pub fn go_by_views(&mut self) {
        self.by_views = true;
    }

    /// A runtime says which incarnation it is; whether that is another than was known.
    pub fn note_incarnation(&mut self, runtime: usize, incarnation: u64, since: u32, view: &View) -> bool {
        let Some(peer) = self.runtimes.get_mut(runtime) else {
            return false;
        };
        let is_other = peer.end.incarnation() != incarnation;
        let id = WorkerId::runtime(runtime as u16);
        peer.end
            .note_incarnation(id, incarnation, since, peer.session, view);
        is_other
    }

    /// A view is in force: whether the session of a runtime is over by it.
    pub fn look_at_view(&mut self, runtime: usize, view: &View) -> bool {
        let peer = &mut self.runtimes[runtime];
        let id = WorkerId::runtime(runtime as u16);
        peer.end.look_at_view(id, peer.session, view)
    }

    /// Which incarnation it is; 0 while it has not said so.
    pub fn incarnation(&self, runtime: usize) -> u64 {
        self.runtimes[runtime].end.incarnation()
    }

    /// A runtime says which incarnation it is, not by views.
    pub fn note_said(&mut self, runtime: usize, incarnation: u64) {
        if let Some(peer) = self.runtimes.get_mut(runtime) {
            peer.said = incarnation;
        }
    }

    /// Which incarnation of a runtime is met, by the name that sources of moves have for it: that
    /// of views, or, without views, that of its own messages. 0 before one was said.
    pub fn incarnation_to_name(&self, runtime: usize) -> u64 {
        let named = |peer: &Peer<L>| match peer.end.incarnation() {
            0 if !self.by_views => peer.said,
            incarnation => incarnation,
        };
        self.runtimes.get(runtime).map_or(0, named)
    }

    /// Whether the session that is known is one of an incarnation that a view has removed.
    #[inline]
    pub fn is_fenced(&self, runtime: usize) -> bool {
        let peer = &self.runtimes[runtime];
        peer.end.is_fenced(peer.session)
    }

    /// Incarnations of a runtime up to this one are over; whether its session is by that.
    pub fn remove(&mut self, runtime: usize, incarnation: u64) -> bool {
        let by_views = self.by_views;
        let peer = self.runtimes.get_mut(runtime);
        peer.is_some_and(|peer| peer.end.remove(incarnation, peer.session, by_views))
    }

    /// Says something of leases, beyond a link's room; whether it could.
    pub fn send_of_lease(&mut self, to: WorkerId, message: Message, local: &mut Local) -> bool {
        let number = usize::from(to.number);
        let is_there = match to.role {
            Role::Switch => matches!(self.switches.get(number), Some(Some(link)) if link.session() != 0),
            Role::Runtime => self.is_there(number) && !self.runtimes[number].is_suspended,
        };
        if !is_there {
            return false;
        }
        let Some(mut frame) = local.pool.take() else {
            return false;
        };
        Message::begin(&mut frame);
        let fits = message.append(&mut frame);
        debug_assert!(fits, "a record fits into an empty frame");
        match to.role {
            Role::Runtime => self.runtimes[number].push(frame, local),
            Role::Switch => {
                if let Some(Some(link)) = self.switches.get_mut(number) {
                    let mut burst = Burst::from_iter([frame]);
                    link.transmit(local.now, &mut local.pool, &mut burst);
                }
            }
        }
        true
    }

    /// Whether the runtime at the other end is another one, or gone.
    pub fn is_over(&self, runtime: usize) -> bool {
        let peer = &self.runtimes[runtime];
        let session = peer.link.session();
        let has_changed = session != peer.session || peer.end.is_fenced(session);
        has_changed && peer.end.is_over(peer.session, session, self.by_views)
    }

    /// Notes that a session is over. Messages for the runtime that was there are handed back,
    /// buffers on their way home are left.
    pub fn end_session(&mut self, runtime: usize, local: &mut Local) -> VecDeque<Message> {
        let peer = &mut self.runtimes[runtime];
        let session = peer.end.session(peer.link.session());
        let before = core::mem::replace(&mut peer.session, session);
        peer.end.begin();
        peer.said = 0;
        peer.is_suspended = false;
        if before == 0 {
            return VecDeque::new();
        }
        let burst = core::mem::take(&mut peer.burst);
        let (frames, others): (Burst, Burst) = burst
            .into_iter()
            .partition(|packet| packet.kind() == Kind::Message);
        peer.burst = others;
        for frame in frames {
            self.give_home(frame, local);
        }
        if self.by_views {
            self.drop_unsent(runtime, local);
        }
        self.take_queue(runtime)
    }

    /// Packets for a runtime that is gone, which another would get.
    fn drop_unsent(&mut self, runtime: usize, local: &mut Local) {
        let burst = core::mem::take(&mut self.runtimes[runtime].burst);
        self.drop_unheard(burst, local);
    }

    /// A runtime is met: messages that waited for it are to be said.
    pub fn begin_session(&mut self, runtime: usize) {
        for message in core::mem::take(&mut self.runtimes[runtime].early) {
            self.push_message(runtime, message);
        }
    }

    /// Whether each runtime that is there has room for two bursts.
    pub fn all_have_room(&self) -> bool {
        let mut there = self.runtimes.iter().filter(|peer| peer.session != 0);
        there.all(|peer| peer.link.room() >= peer.enough)
    }

    /// Whether no runtime that is there has room. Where none is there, packets are counted drops:
    /// none will have room.
    pub fn all_are_full(&self) -> bool {
        let mut there = self.runtimes.iter().filter(|peer| peer.session != 0);
        let is_full = |peer: &Peer<L>| peer.link.room() < peer.enough;
        there.next().is_some_and(is_full) && there.all(is_full)
    }

    /// Whether a packet pushed now would leave with the next flush.
    #[inline(always)]
    pub fn has_room(&self, runtime: usize) -> bool {
        let peer = &self.runtimes[runtime];
        peer.burst.len() < peer.link.room()
    }

    /// Whether a probe pushed now would leave with the next flush.
    pub fn has_room_for_probe(&self, runtime: usize) -> bool {
        self.has_room(runtime) && self.runtimes[runtime].queue.len() < PROBES
    }

    /// Sends a packet; hands it back if its runtime has no room.
    #[inline(always)]
    pub fn push_packet(
        &mut self,
        runtime: usize,
        packet: PacketBox,
        local: &mut Local,
    ) -> Result<(), PacketBox> {
        let peer = &mut self.runtimes[runtime];
        if peer.is_suspended {
            return Err(packet);
        }
        if peer.burst.is_full() {
            peer.link.transmit(local.now, &mut local.pool, &mut peer.burst);
        }
        if peer.burst.len() >= peer.link.room() && !planted::is("ring_room_ignored") {
            return Err(packet);
        }
        peer.burst.push(packet);
        Ok(())
    }

    // Messages.

    /// Counts messages that may not be said, or were too many.
    #[cold]
    pub fn reject(&mut self) {
        self.rejected += 1;
    }

    /// How often that was.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Says something to a runtime before everything that waits for it.
    pub fn push_message_first(&mut self, runtime: usize, message: Message) {
        if let Some(peer) = self.runtimes.get_mut(runtime) {
            peer.queue.push_front(message);
            self.waiting += 1;
        }
    }

    /// Says something to a runtime, behind everything that was pushed for it before.
    pub fn push_message(&mut self, runtime: usize, message: Message) {
        match self.runtimes.get_mut(runtime) {
            Some(peer) if peer.queue.len() < self.most => {
                peer.queue.push_back(message);
                self.waiting += 1;
            }
            _ => self.rejected += 1,
        }
    }

    /// Says to a runtime that everything before its route barrier of this number has been read,
    /// behind all messages so far and those to come before they leave.
    pub fn acknowledge(&mut self, runtime: usize, barrier: u64) {
        let before = self.runtimes[runtime].acknowledged.replace(barrier);
        self.waiting += usize::from(before.is_none());
    }

    /// Messages that wait for a runtime.
    #[cfg(test)]
    pub fn messages_for(&self, runtime: usize) -> impl Iterator<Item = &Message> {
        let end = self.runtimes.get(runtime);
        end.into_iter().flat_map(|end| end.queue.iter())
    }

    /// Whether messages wait for any runtime.
    pub fn has_messages(&self) -> bool {
        self.waiting > 0
    }

    /// Whether messages wait for a runtime.
    pub fn has_messages_for(&self, runtime: usize) -> bool {
        !self.runtimes[runtime].queue.is_empty()
    }

    fn take_queue(&mut self, runtime: usize) -> VecDeque<Message> {
        let peer = &mut self.runtimes[runtime];
        let queue = core::mem::take(&mut peer.queue);
        self.waiting -= queue.len() + usize::from(peer.acknowledged.take().is_some());
        queue
    }

    // Leaving.

    /// Transmits the pushed packets and messages, as far as there are buffers and links have room.
    pub fn flush(&mut self, local: &mut Local) {
        if self.waiting > 0 {
            self.write_messages(local);
        }
        for peer in &mut self.runtimes {
            if !peer.burst.is_empty() && !peer.is_suspended {
                peer.link.transmit(local.now, &mut local.pool, &mut peer.burst);
            }
        }
    }

    #[cold]
    fn write_messages(&mut self, local: &mut Local) {
        let count = self.runtimes.len();
        let first = self.next;
        for runtime in (first..count).chain(0..first) {
            if !self.write_to(runtime, local) {
                self.next = runtime;
                return;
            }
        }
    }

    /// Writes messages to a runtime into frames; `false` if there is no buffer.
    fn write_to(&mut self, runtime: usize, local: &mut Local) -> bool {
        if self.runtimes[runtime].session == 0 {
            self.keep_for_later(runtime);
            return true;
        }
        let peer = &mut self.runtimes[runtime];
        if peer.is_suspended {
            return true;
        }
        while !peer.queue.is_empty() || peer.acknowledged.is_some() {
            if !peer.queue.is_empty() && peer.link.room() <= peer.burst.len() {
                return true;
            }
            let Some(mut frame) = local.pool.take() else {
                return false;
            };
            Message::begin(&mut frame);
            while peer.front().is_some_and(|message| message.append(&mut frame)) {
                if peer.queue.pop_front().is_none() {
                    peer.acknowledged = None;
                }
                self.waiting -= 1;
            }
            peer.push(frame, local);
        }
        true
    }

    /// Messages for a runtime that is not there: those about moves are kept until it is met.
    fn keep_for_later(&mut self, runtime: usize) {
        for message in self.take_queue(runtime) {
            if let Message::Switch(..) | Message::BlockSuspect(..) = message {
                let early = &mut self.runtimes[runtime].early;
                if early.len() < self.most {
                    early.push_back(message);
                } else {
                    self.rejected += 1;
                }
            }
        }
    }

    /// Gives a buffer back to the pool it came from: this switch's, another's or a runtime's.
    pub fn give_home(&mut self, packet: PacketBox, local: &mut Local) {
        let Some(mut packet) = give_or_keep(&mut local.pool, packet) else {
            return;
        };
        packet.set_kind(Kind::Empty);
        let origin = usize::from(packet.origin());
        match origin.checked_sub(usize::from(local.switches)) {
            Some(runtime) => self.runtimes[runtime].push(packet, local),
            None => {
                if let Some(switch) = &mut self.switches[origin] {
                    let mut burst = Burst::from_iter([packet]);
                    switch.transmit(local.now, &mut local.pool, &mut burst);
                }
            }
        }
    }

    /// Drops a packet, for a counted reason.
    #[cold]
    pub fn drop_packet(&mut self, packet: PacketBox, reason: DropReason, local: &mut Local) {
        local.drops.count(reason);
        if let Some(tap) = &mut local.tap {
            tap.dropped(&packet, local.now, None, reason.name());
        }
        self.give_home(packet, local);
    }

    /// Buffers for the messages of a step, out of the pool while a port fills a burst, where there
    /// are so few that the port might take the last: runtimes hold packets until a message of this
    /// switch comes.
    #[inline]
    pub fn set_aside(&self, pool: &mut Pool) -> PacketList {
        let mut aside = PacketList::new();
        if pool.free() < BURST + self.runtimes.len() {
            while aside.len() < self.runtimes.len()
                && let Some(buffer) = pool.take()
            {
                aside.push(buffer);
            }
        }
        aside
    }

    // Other switches.

    /// How many switches there are.
    pub fn switches(&self) -> usize {
        self.switches.len()
    }

    /// Whether another switch has that number.
    pub fn is_switch(&self, switch: usize) -> bool {
        self.switches[switch].is_some()
    }

    /// The burst that another switch's link has brought.
    pub fn receive_of_switch(&mut self, switch: usize, local: &mut Local) -> Burst {
        let mut burst = Burst::new();
        if let Some(link) = &mut self.switches[switch] {
            link.receive(local.now, &mut local.pool, &mut burst);
        }
        burst
    }

    /// Hands a packet to another switch; hands it back, with the reason, if that is not there or
    /// has no room and the packet does not wait.
    pub fn hand_over(
        &mut self,
        home: u8,
        packet: PacketBox,
        is_patient: bool,
        local: &mut Local,
    ) -> Result<(), (PacketBox, DropReason)> {
        match self.switches.get_mut(usize::from(home)) {
            Some(Some(switch)) if switch.session() == 0 => Err((packet, DropReason::HomeAbsent)),
            // A packet that waits in a link to another process keeps its buffer: two switches
            // without any would wait for each other.
            Some(Some(switch)) if switch.room() == 0 && !is_patient => Err((packet, DropReason::HomeBusy)),
            Some(Some(switch)) => {
                let mut burst = Burst::from_iter([packet]);
                switch.transmit(local.now, &mut local.pool, &mut burst);
                Ok(())
            }
            _ => Err((packet, DropReason::NoRuntime)),
        }
    }

    // The links, for drivers.

    /// Shows each link, and the worker at its other end.
    pub fn each_link(&mut self, mut show: impl FnMut(LinkTo, &mut L)) {
        for (number, peer) in self.runtimes.iter_mut().enumerate() {
            show(LinkTo::Runtime(number as u16), &mut peer.link);
        }
        for (number, switch) in self.switches.iter_mut().enumerate() {
            if let Some(link) = switch {
                show(LinkTo::Switch(number as u16), link);
            }
        }
    }

    /// The link to a runtime.
    pub fn link_mut(&mut self, runtime: usize) -> &mut L {
        &mut self.runtimes[runtime].link
    }
}

impl<L: Port> Peer<L> {
    /// The message that leaves next.
    fn front(&self) -> Option<Message> {
        let queued = self.queue.front().copied();
        queued.or_else(|| self.acknowledged.map(Message::BarrierAcknowledged))
    }

    /// Pushes beyond a link's room: frames of messages that were counted against it, and buffers on
    /// their way home.
    fn push(&mut self, packet: PacketBox, local: &mut Local) {
        if self.burst.is_full() {
            self.link.transmit(local.now, &mut local.pool, &mut self.burst);
        }
        self.burst.push(packet);
    }
}
