//! A link to a worker in another process: a [`Port`] that keeps order and loses nothing while its
//! session lasts.
//!
//! # Theory of operation
//!
//! To its worker it is a ring. The worker's packets and messages are copied into messages of a
//! [`Channel`], packets behind their `head`, messages between workers behind one byte; frames of
//! these go over a [`FrameLink`], are kept until they are acknowledged, and come out at the other
//! end once each and in order, into buffers of the receiver's pool.
//!
//! ```text
//!   worker A                                                                    worker B
//!   transmit ─► [waiting] ─► say ─► channel ─► frames ~~~ network ~~~► channel ─► receive: a buffer of B's pool
//!      └─► buffer: A's own to its pool, others' home by A's next receive
//! ```
//!
//! *Buffers.* No buffer crosses. A buffer that [`Port::transmit`] took is done with once its
//! content is in the channel: an own buffer goes to the pool. Another pool's buffer comes out of
//! [`Port::receive`] as [`Kind::Empty`], as on a ring, and the worker sends it home to its
//! neighbour in the same process. A buffer on its way home is never transmitted here: its home is
//! this process.
//!
//! *Back-pressure.* Packets and messages that the channel has no room for stay here, in their
//! buffers, in order; there are no more of these than buffers, so nothing is refused and nothing
//! allocated, and a worker that sends more than can be sent runs out of buffers. [`Port::room`]
//! says how many usual packets the channel has room for, so a switch stops before that. Messages
//! that the worker cannot receive, because its pool has no more than [`PeerSettings::spared`]
//! buffers, stay in the channel, which offers the other end less room; acknowledgements and frames
//! to be sent go on.
//!
//! Two workers that both have all their buffers waiting here would wait for ever, for neither can
//! receive. So a worker whose packets are only passing through (a switch) stops at `room`, and does
//! not fall below it with what it keeps; and a runtime spares more where what it receives goes on
//! by other such links than where it ends with it: [`PeerSettings::spared`] is the order in which
//! links are read no more.
//!
//! *When.* Transmitted packets and messages go out with the next `receive`, which a worker calls on
//! each of its links once a step and at least once more before it sleeps: so frames are as full as
//! a step fills them, acknowledgements ride on them, and a system call takes many.
//!
//! *Sessions.* [`Port::session`] is 0 until the other end is met, and then a number that both ends
//! know and that only grows: the sum of the two ends' incarnations. It changes in a
//! [`Port::receive`] that appends nothing. From the moment at which the channel knows that a
//! session is over, until the worker has been told of the next, all that the worker transmits is
//! lost and counted: no worker is to have it.
//!
//! ```text
//!                 met                        the other end restarted, or is silent for `dead_after_ns`
//!   ┌──────────┐ ───────► ┌───────────────┐ ─────────────────────────────────────────────────────► ┌──────────┐
//!   │ session 0│          │ session a + b │   what came in order is received; what waits is lost    │ session 0│ ─► …
//!   └──────────┘          └───────────────┘                                                         └──────────┘
//! ```
//!
//! *Silence.* An end from which nothing came for a quarter of `dead_after_ns` is asked to answer,
//! each quarter again; after the fourth it is dead. Only frames of an end that has met this one
//! count, so an end that is heard but hears nothing is dead, too. A worker that was not stepped for
//! long has asked nothing, so it blames no peer for its own absence. Where the network says that no
//! process is there ([`FrameLink::refusals`]), looks are 5 ms apart: a killed process is dead some
//! 20 ms behind the first frame to it, which on a link without traffic is a question, up to a
//! quarter of `dead_after_ns` later. An end that lives answers, unless it has no processor for as
//! long. On a long way, looks are two round trips apart. Where views decide which workers are gone,
//! the network's word changes nothing. Frames that were sent are given up then, and perhaps the
//! other end lives and has half of them. So this end takes its next incarnation
//! ([`Channel::renew`]): the other end finds it restarted, and both begin again. A cut shorter than
//! that ends nothing: lost frames are sent again.
//!
//! ```text
//!   A: dead_after … ✂ renew: a' = a + 1, session 0 ── hello from a' ──► B: Restarted, session 0
//!                              session a' + b ◄───────────────────────── session a' + b
//! ```
//!
//! This is no fencing: B, cut off but alive, sends what it has by other links until it hears of its
//! end. The coordinator's views say which worker may still speak for a group after that, where
//! there is a coordinator.
//!
//! *Time.* Timeouts are looked at in `receive`, which a worker calls in every step, with a clock
//! that goes on by itself: where packets carry the time (a replay), links between processes have no
//! timeouts, and are not to be used.
//!
//! # Invariants
//!
//! | promise | held by |
//! |---|---|
//! | within a session each packet and message is received once, in order, as it was | `tests::two_peers_are_a_ring` |
//! | all buffers come home, whatever happens | the same |
//! | a session's end is seen at both ends before anything of the next | the same, `a_long_cut_ends_the_session_at_both_ends` |
//! | a short cut ends nothing | `a_short_cut_ends_nothing` |
//! | hostile bytes are counted refusals | `head::tests`, the fuzz target `peer` |
//! | nothing is allocated after the start | `nothing_is_allocated_after_the_start` (testkit) |
//!
//! Not here: sockets (`adapters::udp`, `adapters::ether`), which processes are members and which
//! worker is where (`flowkeep`), rings and shared memory.

mod head;
#[cfg(test)]
mod tests;

pub use head::{HEAD, Refused, read, read_packet, write};

use crate::env::{AttachError, BURST, Burst, Port, PortCounters, give_or_keep};
use crate::message;
use alloc::format;
use alloc::vec::Vec;
use head::WORDS;
pub use protocols::channel::Protection;
use protocols::channel::{self, BadSettings, Channel, Counters, Handled, Input, Output, Refusal};
use wire::packet::Kind;
use wire::{PacketBox, PacketList, Pool};

/// Carries frames of a channel to another process, and perhaps loses some.
pub trait FrameLink {
    /// The longest frame it carries, in bytes.
    fn frame_max(&self) -> usize;

    /// The next frame that was received, if there is one, to be decrypted where it is. It may be
    /// anything. Never blocks.
    fn receive(&mut self) -> Option<&mut [u8]>;

    /// Takes a frame to be sent, at the latest with the next [`FrameLink::flush`]. A frame that
    /// cannot be sent is lost and counted.
    fn send(&mut self, frame: &[u8]);

    /// Sends the frames that were taken. Never blocks.
    fn flush(&mut self);

    /// By which descriptors something that was received is noticed; `None`: it is not.
    fn wakes_by(&self) -> Option<Vec<i32>> {
        None
    }

    /// How often the network said that there is no process where frames go. That is a hint: any
    /// host may say it.
    fn refusals(&self) -> u64 {
        0
    }

    /// Looks whether the network has said so of the last frames. Else that is heard with the next
    /// frame only, and a link that has nothing to say sends none for long.
    fn look_for_refusals(&mut self) {}

    /// Frames and their bytes, and frames that were refused because they were not this link's.
    fn counters(&self) -> PortCounters;
}

impl<L: FrameLink + ?Sized> FrameLink for alloc::boxed::Box<L> {
    fn frame_max(&self) -> usize {
        (**self).frame_max()
    }
    fn receive(&mut self) -> Option<&mut [u8]> {
        (**self).receive()
    }
    fn send(&mut self, frame: &[u8]) {
        (**self).send(frame);
    }
    fn flush(&mut self) {
        (**self).flush();
    }
    fn wakes_by(&self) -> Option<Vec<i32>> {
        (**self).wakes_by()
    }
    fn refusals(&self) -> u64 {
        (**self).refusals()
    }
    fn look_for_refusals(&mut self) {
        (**self).look_for_refusals();
    }
    fn counters(&self) -> PortCounters {
        (**self).counters()
    }
}

/// The settings that an end is made with.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// Of the channel: which workers, this end's incarnation, how many frames, how they are
    /// protected. `frame_max` is the link's; `message_max` and `packets_max` are set by
    /// [`Peer::new`].
    pub channel: channel::ChannelSettings,
    /// The longest frame of a packet; at both ends the same, and no shorter than
    /// [`message::FRAME_MAX`]. The worker's buffers have room for it.
    pub frame_max: usize,
    /// After so many nanoseconds without an answer the other end is dead. `u64::MAX`: never.
    pub dead_after_ns: u64,
    /// So many of the pool's buffers are not received into: they are for the worker's own messages.
    /// A step of a runtime wants 16 for each switch; 48 more are for its answers to other runtimes.
    /// So: both together on its links to switches, 16 on those to other runtimes, which are read on
    /// when the others are not; at a switch one burst.
    pub spared: usize,
    /// How many ports the cluster has: a packet with a higher number is refused.
    pub ports: u8,
    /// Both ends' clocks are one (processes of one host, a simulation): packets keep their time of
    /// reception. Otherwise it is the time at which they are received here, because another host's
    /// clock says nothing here.
    pub same_clock: bool,
}

impl PeerSettings {
    /// Usual settings for a pair of workers. The incarnation is that of
    /// [`channel::ChannelSettings`]; a incarnation may take as many as it has sessions that it gave
    /// up, so incarnations must not follow each other faster: nanoseconds since 1970 will do.
    pub fn new(worker: u16, peer: u16, incarnation: u64, protection: Protection) -> PeerSettings {
        PeerSettings {
            channel: channel::ChannelSettings {
                send_frames: 512,
                receive_frames: 512,
                hello_ns: 20_000_000,
                ..channel::ChannelSettings::new(worker, peer, incarnation, protection)
            },
            frame_max: message::FRAME_MAX,
            dead_after_ns: 2_000_000_000,
            spared: 64,
            ports: u8::MAX,
            same_clock: false,
        }
    }
}

/// An end's own figures, beside those of its port, its channel and its link.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PeerCounters {
    /// Refused of what the other end said, by [`Refused`].
    pub refused: [u64; Refused::COUNT],
    /// Messages of workers that were lost because a session was over before they were in the
    /// channel.
    pub lost_messages: u64,
    /// Packets that were lost for that.
    pub lost_packets: u64,
    /// Packets that are longer than the other end takes.
    pub too_long: u64,
    /// Sessions that this end gave up because the other one was silent.
    pub given_up_sessions: u64,
}

/// One end of a link between workers of two processes, over `L`.
pub struct Peer<L: FrameLink> {
    link: L,
    channel: Channel,
    incarnation: u64,
    frame_max: usize,
    spared: usize,
    ports: u8,
    same_clock: bool,
    now: u64,
    /// The session as the worker was told, and the channel's session that it stands for.
    session: u64,
    sessions: u64,
    /// The packet or message that the channel had no room for, and those behind it.
    next: Option<PacketBox>,
    waiting: PacketList,
    /// Others' buffers that are to go home.
    homeward: PacketList,
    /// Frames of the channel that a usual packet takes.
    usual: usize,
    silence: Silence,
    counters: PortCounters,
    own: PeerCounters,
}

/// Whether the other end answers.
struct Silence {
    /// A quarter of the time after which a silent end is dead.
    quarter: u64,
    look_at: u64,
    /// Answers that had come at the last look.
    answers: u64,
    /// Looks since, and questions.
    looks: u32,
    /// The network's figure at the last look ([`FrameLink::refusals`]).
    refusals: u64,
    /// Whether it has said so since the last answer.
    is_refused: bool,
}

impl Silence {
    /// The time between two looks, with so long a way there and back.
    fn pause(&self, round_trip: u64) -> u64 {
        match self.is_refused {
            true => self.quarter.min(REFUSED.max(2 * round_trip)),
            false => self.quarter,
        }
    }
}

/// The time between two looks, in nanoseconds, while the network says that there is no process at
/// the other end.
const REFUSED: u64 = 5_000_000;
/// Where a quarter of the silence takes longer, in nanoseconds, views decide which workers are
/// gone: the network's word changes nothing.
const TRUSTED: u64 = 60_000_000_000;

/// Looks without an answer after which the other end is dead.
const LOOKS: u32 = 4;
/// Frames that are taken off the link at a time, so that sending keeps up with receiving.
const FRAMES: usize = 2 * BURST;
/// A packet that is not longer than this is usual.
const USUAL: usize = 1600;

impl<L: FrameLink> Peer<L> {
    /// An end that has met no other.
    pub fn new(link: L, settings: PeerSettings, now: u64) -> Result<Peer<L>, BadSettings> {
        let mut channel = settings.channel;
        if channel.frame_max > link.frame_max() {
            return Err(BadSettings {
                name: "frame_max",
                value: channel.frame_max as u64,
                remedy: format!("is at most {}, what the link carries", link.frame_max()),
            });
        }
        let frame_max = settings.frame_max.max(message::FRAME_MAX);
        channel.message_max = HEAD + frame_max;
        channel.packets_max = 0;
        let made = Channel::new(channel.clone(), now)?;
        Ok(Peer {
            channel: made,
            link,
            incarnation: channel.incarnation,
            usual: (HEAD + frame_max.min(USUAL)).div_ceil(channel.payload_max()),
            frame_max,
            spared: settings.spared,
            ports: settings.ports,
            same_clock: settings.same_clock,
            now,
            session: 0,
            sessions: 0,
            next: None,
            waiting: PacketList::new(),
            homeward: PacketList::new(),
            silence: Silence {
                quarter: settings.dead_after_ns / u64::from(LOOKS),
                look_at: 0,
                answers: 0,
                looks: 0,
                refusals: 0,
                is_refused: false,
            },
            counters: PortCounters::default(),
            own: PeerCounters::default(),
        })
    }

    /// Other keys from now on, for sent and received frames. Whether there are any cannot be
    /// changed.
    pub fn protect(&mut self, protection: Protection) {
        self.channel.protect(protection);
    }

    /// Other words on what both ends must have alike, for each end that is met from now on.
    pub fn agree(&mut self, agreed: [u64; channel::AGREED]) {
        self.channel.agree(agreed);
    }

    /// The channel's figures.
    pub fn channel_counters(&self) -> &Counters {
        self.channel.counters()
    }

    /// In which bits of what both ends must have alike the other end, which is not met for that,
    /// differs.
    pub fn differs(&self) -> [u64; channel::AGREED] {
        self.channel.differs()
    }

    /// Why the last frame was refused that came while no other end was met.
    pub fn not_met_for(&self) -> Option<channel::DropReason> {
        self.channel.not_met_for()
    }

    /// This end's own figures.
    pub fn own_counters(&self) -> PeerCounters {
        self.own
    }

    /// Figures of the link below: frames, and those that were not this link's.
    pub fn link_counters(&self) -> PortCounters {
        self.link.counters()
    }

    /// The smoothed round trip in nanoseconds, if one was measured.
    pub fn round_trip(&self) -> Option<u64> {
        self.channel.round_trip()
    }

    /// Packets and messages that wait for room in the channel.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.next.is_some())
    }

    /// Whether all messages transmitted in this session have arrived at the other end.
    pub fn is_drained(&self) -> bool {
        self.waiting() == 0 && self.channel.in_use().0 == 0
    }

    /// The link below, for tests and drivers.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// Whether the session that the worker knows of is going on.
    #[inline]
    fn is_current(&self) -> bool {
        self.session != 0 && self.channel.is_met() && self.channel.counters().sessions == self.sessions
    }

    /// Has the channel take a packet or message; the buffer, if it has no room.
    #[inline]
    fn say(&mut self, packet: PacketBox, pool: &mut Pool) -> Option<PacketBox> {
        let body = packet.frame();
        let handled = match packet.kind() {
            Kind::Message => self.channel.say(self.now, &[WORDS], body),
            _ => self.channel.say(self.now, &write(&packet), body),
        };
        match handled {
            Handled::Done => {
                if packet.kind() == Kind::Data {
                    self.counters.sent_packets += 1;
                    self.counters.sent_bytes += u64::from(packet.wire_length());
                }
                self.send_home(packet, pool);
                None
            }
            Handled::Refused(Refusal::Full) => Some(packet),
            _ => {
                debug_assert!(packet.kind() == Kind::Data, "messages of workers are no longer");
                self.own.too_long += 1;
                self.counters.unsent_packets += 1;
                self.send_home(packet, pool);
                None
            }
        }
    }

    /// A buffer that is done with.
    #[inline]
    fn send_home(&mut self, packet: PacketBox, pool: &mut Pool) {
        if let Some(mut packet) = give_or_keep(pool, packet) {
            packet.set_kind(Kind::Empty);
            self.homeward.push(packet);
        }
    }

    #[cold]
    fn lose(&mut self, packet: PacketBox, pool: &mut Pool) {
        match packet.kind() {
            Kind::Data => {
                self.counters.unsent_packets += 1;
                self.own.lost_packets += 1;
            }
            Kind::Message => self.own.lost_messages += 1,
            Kind::Empty => {}
        }
        self.send_home(packet, pool);
    }

    /// Empties an end that is taken down: waiting messages are lost and counted, and others'
    /// buffers are in `burst`, as many as it takes. Whether nothing is left.
    pub fn clear(&mut self, pool: &mut Pool, burst: &mut Burst) -> bool {
        while let Some(packet) = self.next.take().or_else(|| self.waiting.pop()) {
            self.lose(packet, pool);
        }
        while !burst.is_full()
            && let Some(buffer) = self.homeward.pop()
        {
            burst.push(buffer);
        }
        self.homeward.is_empty()
    }

    /// Says the waiting messages, as far as there is room now; all are lost if the session is over.
    fn say_what_waits(&mut self, pool: &mut Pool) {
        while let Some(packet) = self.next.take().or_else(|| self.waiting.pop()) {
            if !self.is_current() {
                self.lose(packet, pool);
                continue;
            }
            self.next = self.say(packet, pool);
            if self.next.is_some() {
                return;
            }
        }
    }

    /// Gives the link what the channel has for it.
    #[inline]
    fn send_frames(&mut self) {
        let mut sent = false;
        while let Some(output) = self.channel.poll_link() {
            if let Output::Frame(frame) = output {
                self.link.send(frame);
                sent = true;
            }
        }
        if sent {
            self.link.flush();
        }
    }

    /// Asks a silent end, and gives it up if it does not answer.
    fn look(&mut self) {
        let answers = self.channel.counters().answers_received;
        if self.silence.looks > 0 {
            // It was asked, and nothing else may be sent until the next look.
            self.link.look_for_refusals();
        }
        let refusals = self.link.refusals();
        let silence = &mut self.silence;
        if !self.channel.is_met() || answers != silence.answers {
            (silence.answers, silence.refusals) = (answers, refusals);
            (silence.looks, silence.is_refused) = (0, false);
            silence.look_at = self.now.saturating_add(silence.quarter);
            return;
        }
        let is_trusted = silence.quarter <= TRUSTED;
        if refusals != silence.refusals && !silence.is_refused && is_trusted {
            // The other end is asked now, and more often from now on.
            (silence.looks, silence.is_refused) = (0, true);
            silence.look_at = self.now;
        }
        silence.refusals = refusals;
        if self.now < silence.look_at {
            return;
        }
        // From now on, however late this look is.
        let round_trip = self.channel.round_trip().unwrap_or(0);
        silence.look_at = self.now.saturating_add(silence.pause(round_trip));
        silence.looks += 1;
        if silence.looks < LOOKS {
            return self.channel.ask();
        }
        // The worker hears of a session's end after its beginning.
        if self.is_current() {
            self.own.given_up_sessions += 1;
            self.incarnation += 1;
            self.channel.renew(self.incarnation);
        }
    }

    /// Gives the worker the messages that have come, or else one change of session.
    fn deliver(&mut self, pool: &mut Pool, burst: &mut Burst) {
        let mut is_empty = self.homeward.is_empty();
        while !burst.is_full()
            && let Some(buffer) = self.homeward.pop()
        {
            burst.push(buffer);
        }
        while !burst.is_full() && pool.free() > self.spared {
            let Some(message) = self.channel.poll_message() else {
                break;
            };
            let Some(mut buffer) = pool.take() else { break };
            let time = if self.same_clock { None } else { Some(self.now) };
            match read(message, &mut buffer, self.ports, time) {
                Ok(()) => {
                    if buffer.kind() == Kind::Data {
                        self.counters.received_packets += 1;
                        self.counters.received_bytes += u64::from(buffer.wire_length());
                    }
                    is_empty = false;
                    burst.push(buffer);
                }
                Err(refused) => {
                    self.own.refused[refused as usize] += 1;
                    self.counters.refused_packets += 1;
                    pool.give(buffer);
                }
            }
        }
        if is_empty && let Some(event) = self.channel.poll_event() {
            self.on_event(event);
        }
    }

    #[cold]
    fn on_event(&mut self, event: Output<'static>) {
        self.session = match event {
            Output::Met { incarnation } => {
                self.sessions += 1;
                // Each of the two only grows, so this does; both ends have the same.
                incarnation.wrapping_add(self.incarnation).max(1)
            }
            _ => 0,
        };
    }
}

impl<L: FrameLink> Port for Peer<L> {
    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        let room = Pool::frame_max_of(pool.memory().stride);
        if room < self.frame_max {
            return Err(AttachError(format!(
                "buffers with room for {room} bytes do not hold what comes from other processes, which has up to {}: \
                 make them as long as the port says",
                self.frame_max
            )));
        }
        if pool.total() <= self.spared {
            return Err(AttachError(format!(
                "of {} buffers, {} are kept for what the worker has to say, and none is left to receive into",
                pool.total(),
                self.spared
            )));
        }
        Ok(())
    }

    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        self.now = self.now.max(now);
        for _ in 0..FRAMES {
            let Some(frame) = self.link.receive() else { break };
            let _ = self.channel.handle(self.now, Input::Frame(frame, 0));
        }
        let _ = self.channel.handle(self.now, Input::Timeout);
        self.look();
        self.deliver(pool, burst);
        self.say_what_waits(pool);
        self.flush();
    }

    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        self.now = self.now.max(now);
        let is_current = self.is_current();
        for packet in burst.drain(..) {
            if packet.kind() == Kind::Empty {
                debug_assert_eq!(packet.origin(), pool.origin(), "its home is not here");
                self.send_home(packet, pool);
            } else if !is_current {
                self.lose(packet, pool);
            } else if self.next.is_some() {
                self.waiting.push(packet);
            } else {
                self.next = self.say(packet, pool);
            }
        }
    }

    /// Sends all messages, in frames that need not be full.
    fn flush(&mut self) {
        let _ = self.channel.handle(self.now, Input::Flush);
        self.send_frames();
    }

    fn waits(&self) -> bool {
        true
    }

    #[inline]
    fn room(&self) -> usize {
        match self.next {
            None => self.channel.room() / self.usual,
            Some(_) => 0,
        }
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        self.link.wakes_by()
    }

    /// When the next look is, where these are close to each other: a worker without work sleeps
    /// longer than that.
    fn next_at(&self) -> Option<u64> {
        self.silence.is_refused.then_some(self.silence.look_at)
    }

    #[inline]
    fn is_apart(&self) -> bool {
        true
    }
    fn has_other_clock(&self) -> bool {
        !self.same_clock
    }

    fn session(&self) -> u64 {
        self.session
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
