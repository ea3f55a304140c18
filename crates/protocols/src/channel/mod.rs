//! The channel between two workers: messages in order and exactly once, beside data packets on the
//! same path.
//!
//! # Theory of operation
//!
//! Each of two workers has a [`Channel`] to the other. The worker's messages and packets, and the
//! link's frames, go in as [`Input`]; out of [`Channel::poll`] come frames for the link and
//! messages for the worker, each in their order, or by themselves from [`Channel::poll_link`],
//! [`Channel::poll_message`] and [`Channel::poll_event`]: a worker that cannot take messages still
//! acknowledges. The driver brings the time along, and calls again at [`Channel::next_timeout`].
//!
//! ```text
//!   A: "a" "b" flush, packet P, "c" flush             B
//!      messages 1 [a b]  ──────────────────────────►  "a" "b"
//!      packet      [P]   ──────────────────────────►  P
//!      messages 2 [c]    ────────────── lost
//!      messages 3 [d]    ──────────────────────────►  (early: waits)
//!                        ◄──────────────────────────  acknowledged 2, arrived {3}
//!      messages 2 [c]    ──────────────────────────►  "c" "d"
//! ```
//!
//! Messages are collected in a frame until it is full, or the driver flushes at the end of its
//! burst, or a packet follows them. A frame of messages is numbered, kept until it is acknowledged
//! and sent again as it is. A message longer than a frame goes over several. A data packet is not
//! kept: it takes its place among the frames, so messages said after it are behind it as long as
//! the network keeps order; where it does not, or a frame is sent again, messages keep their order
//! among themselves.
//!
//! *Acknowledgement.* Every frame of messages says what has arrived in the other direction: all
//! before a sequence, which of the later ones, the highest frame number seen, and how many frames
//! have a place. Without a frame to ride on, it goes alone: at once where a frame is missing or
//! repeated or several are unacknowledged, otherwise within `acknowledge_ns_max`.
//!
//! *Loss* is found by numbers (`sending.rs`): each transmission has one, so a frame that was sent
//! before others that arrived, and has not arrived itself, is lost, however often it was sent. A
//! frame that no other follows is sent again by a timeout (`timeout.rs`).
//!
//! *Sessions.* A worker has a new, greater incarnation each time it starts. A session is a pair of
//! incarnations; a frame names both and is dropped unless they are this session's. An end that does
//! not know the other says hello; it counts as met when a frame names the present incarnation of
//! this end, which no frame names that was recorded before it began.
//!
//! *Keys.* Between hosts all frames but hellos are encrypted (`seal.rs`) with keys that follow from
//! the cluster's key, both incarnations and a random salt of each end. A hello has its sender's
//! salt and repeats the receiver's. So an end is known by its hello alone, and a hello to an
//! earlier start of the same incarnation makes no session.
//!
//! ```text
//!                 a good hello of a worker                a frame for this incarnation
//!   ┌─────────┐  with a greater incarnation  ┌───────┐                               ┌─────┐
//!   │ unheard │ ────────────────────────────►│ heard │──────────────────────────────►│ met │ messages flow
//!   └─────────┘                              └───▲───┘           `Met`               └──┬──┘
//!     hello, hello …            hello to it, … │ └──────── greater incarnation: `Restarted`
//!                                              └── still greater: hello to that one
//! ```
//!
//! So a restarted peer is recognised by the first frame it sends, a hello, and messages for its
//! predecessor are given up, counted and told. Messages queued before a peer was met are for the
//! first peer that is.
//!
//! *Agreement.* A hello says, in 19 words, what both ends must have alike
//! ([`ChannelSettings::agreed`]). A peer that says other words is not met, and it is known in which
//! of them the two differ ([`Channel::differs`]). Both ends come to know it, as both say hello.
//!
//! An end that hears nothing for longer than its worker waits may give the session up: it takes a
//! greater incarnation itself ([`Channel::renew`]), and for the other end, dead or alive, it has
//! restarted.
//!
//! *Back-pressure.* A message is refused when all `send_frames` are in use ([`Refusal::Full`],
//! counted); [`Output::Room`] says when a quarter is free again. The other end never has to hold
//! more than it offered.
//!
//! # The other end
//!
//! The other end may do anything. Every frame is checked before it changes anything: form, pair,
//! incarnations, tag, number, then what it acknowledges, then its place and its records. A frame
//! that fails is a drop with a reason ([`DropReason`]). No frame makes a channel take more memory
//! than it was made with, or do more than a few steps per byte of it and per frame it acknowledges.
//!
//! # Invariants
//!
//! | promise | held by |
//! |---|---|
//! | within a session each message is delivered once and in order | `any_network_delivers_in_order_exactly_once` |
//! | after the network is whole, everything is delivered in bounded time | the same, its second half |
//! | memory is bounded by the settings, nothing is allocated after the start | `memory_stays_bounded`, `nothing_is_allocated_after_the_start` |
//! | an end that has something else than both must have alike is not met, and both know why | `who_disagrees_is_not_met` |
//! | a frame that is not this session's, or forged, or repeated, changes nothing | `a_frame_is_good_once_and_in_its_session`, `hostile_frames_are_counted`, `tests/sealed.rs` |
//! | with keys, nothing that is said can be read on the wire | `nothing_that_is_said_can_be_read_on_the_wire` |
//! | same inputs, same outputs | `the_same_seed_makes_the_same_run` |
//!
//! Each checker fires on a bug planted in this code: `each_checker_fires`.
//!
//! Source: NFVactor VI-B, which sends one message per frame, retransmits after ten round trips, and
//! never recognises a restarted peer. Acknowledgement and loss after RFC 9002, the timeout RFC
//! 6298, the window of numbers RFC 6479.
//!
//! Not here: which worker is where, the meaning of messages, heartbeats, congestion control
//! (windows are fixed).

pub mod auth;
pub mod counters;
mod polling;
mod receiving;
mod replay;
mod seal;
mod sending;
pub mod settings;
mod timeout;
pub mod wire;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
pub use auth::{Key, Keys, Protection};
pub use counters::{Counters, DropReason};
use receiving::{Arrived, Receiving};
pub use seal::SALT;
use seal::Seals;
use sending::{Parts, Sending};
pub use settings::{AGREED, BadSettings, ChannelSettings, IN_HEAD};
use wire::{HEAD, Head, Kind, flag};

/// An input of a channel.
#[derive(Debug)]
pub enum Input<'a> {
    /// A message for the other end.
    Message(&'a [u8]),
    /// A data packet takes its place among the frames; its bytes stay with the driver, under this
    /// name.
    Packet(u64),
    /// The end of a burst: messages wait no longer for others to fill their frame.
    Flush,
    /// The link received these bytes; encrypted ones are decrypted in place. If they are a packet,
    /// the driver keeps them, under this name. Otherwise they are of no further use.
    Frame(&'a mut [u8], u64),
    /// It may be [`Channel::next_timeout`].
    Timeout,
}

/// The result of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a refused message is not sent, a kept packet is not done with"]
pub enum Handled {
    /// It was taken in.
    Done,
    /// A packet: the driver keeps its frame until it comes out of the queue.
    Kept,
    /// A message or packet that is not sent.
    Refused(Refusal),
}

/// Why a message or packet is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// All frames are in use, or all places for packets: once outputs are polled and
    /// acknowledgements come, there is room.
    Full,
    /// Longer than `message_max`.
    TooLong,
    /// A packet, and no peer is met to send it to.
    NotMet,
}

/// The outputs of a channel, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output<'a> {
    /// Bytes for the link.
    Frame(&'a [u8]),
    /// The packet of this name goes to the link now, wrapped by [`Channel::wrap`].
    SendPacket(u64),
    /// A message from the other end.
    Message(&'a [u8]),
    /// The packet in the frame of this name, from the other end, is at these bytes of it.
    Packet {
        /// The frame's name.
        name: u64,
        /// Where the packet begins.
        start: usize,
        /// Its length.
        length: usize,
    },
    /// A session begins: the other end, of this incarnation, knows this one.
    Met {
        /// Of the other end.
        incarnation: u64,
    },
    /// The session is over: the other end is of another incarnation now.
    Restarted {
        /// Of the other end, now.
        incarnation: u64,
        /// Frames of messages that were not acknowledged: whether the one before had them is not
        /// known.
        given_up_frames: u64,
    },
    /// The session is over: this end gave it up ([`Channel::renew`]).
    Over {
        /// Frames of messages that were not acknowledged: whether the other end had them is not
        /// known.
        given_up_frames: u64,
    },
    /// After a refused message: there is room again.
    Room,
}

/// An entry in the queue of outputs.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Send(u64),
    SendPacket(u64),
    Deliver(Arrived),
    Packet { name: u64, start: u16, length: u16 },
    Met(u64),
    Restarted(u64, u64),
    Over(u64),
}

/// Sessions that may begin or end before the worker looks.
const EVENTS_MAX: usize = 8;

/// One end of a channel.
pub struct Channel {
    settings: ChannelSettings,
    counters: Counters,
    sending: Sending,
    receiving: Receiving,
    /// For the worker.
    queue: VecDeque<Pending>,
    queue_max: usize,
    /// For the link.
    frames: VecDeque<Pending>,
    /// Packets in the queue, in both directions.
    packets: usize,
    /// Sessions' beginnings and ends in the queue.
    events: usize,
    /// The other end, if it was heard.
    heard: Option<seal::End>,
    seals: Seals,
    /// It knows this one.
    met: bool,
    /// The bits that differed in the last hello that was refused for them.
    differs: [u64; AGREED],
    /// Why the last frame was refused that came while no peer was met.
    not_met_for: Option<DropReason>,
    /// A message was refused and `Room` not said since.
    refused: bool,
    /// Something is to be acknowledged, or a hello answered, at once.
    answer: bool,
    /// The other end is to acknowledge at once.
    ask: bool,
    acknowledge_at: Option<u64>,
    hello_at: u64,
    now: u64,
    /// Room for a frame that is put together when it is sent.
    alone: Box<[u8]>,
    #[cfg(test)]
    planted: Option<Bug>,
}

/// Mistakes that tests plant in a channel, to see that they would be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    TakesOldSessions,
    TakesAnyTag,
    TakesAnyNumber,
    ForgetsTimeouts,
    DeliversRepeated,
    IgnoresWindow,
}

impl Channel {
    /// A channel that has met no peer. The first hello is due at once.
    pub fn new(settings: ChannelSettings, now: u64) -> Result<Channel, BadSettings> {
        settings.check()?;
        let queue_max = usize::from(settings.receive_frames) + settings.packets_max + EVENTS_MAX;
        let frames_max = usize::from(settings.send_frames) + settings.packets_max;
        Ok(Channel {
            sending: Sending::new(&settings),
            receiving: Receiving::new(&settings),
            counters: Counters::default(),
            queue: VecDeque::with_capacity(queue_max),
            queue_max,
            frames: VecDeque::with_capacity(2 * frames_max),
            packets: 0,
            events: 0,
            heard: None,
            seals: Seals::new(),
            met: false,
            differs: [0; AGREED],
            not_met_for: None,
            refused: false,
            answer: false,
            ask: false,
            acknowledge_at: None,
            hello_at: now,
            now,
            alone: vec![0; settings.frame_max].into(),
            settings,
            #[cfg(test)]
            planted: None,
        })
    }

    /// Takes an input in. `now` is in nanoseconds and never goes back.
    #[inline]
    pub fn handle(&mut self, now: u64, input: Input<'_>) -> Handled {
        debug_assert!(now >= self.now, "time goes forward");
        self.now = now;
        match input {
            Input::Message(message) => self.on_message(Parts(message, &[])),
            Input::Packet(name) => self.on_packet(name),
            Input::Flush => {
                // Before a peer is met there is no use in frames that are not full.
                if self.met {
                    self.sending.seal(&mut self.frames);
                    self.sending.watch(now);
                }
                Handled::Done
            }
            Input::Frame(frame, name) => self.on_frame(frame, name),
            Input::Timeout => {
                self.on_timeout();
                Handled::Done
            }
        }
    }

    /// [`Input::Message`] of a message in two parts, one behind the other.
    #[inline]
    pub fn say(&mut self, now: u64, head: &[u8], body: &[u8]) -> Handled {
        debug_assert!(now >= self.now, "time goes forward");
        self.now = now;
        self.on_message(Parts(head, body))
    }

    #[inline]
    fn on_message(&mut self, message: Parts<'_>) -> Handled {
        if message.len() > self.settings.message_max {
            self.counters.refused_too_long += 1;
            return Handled::Refused(Refusal::TooLong);
        }
        match self.sending.push(message, self.now, &mut self.frames) {
            Ok(()) => {
                self.counters.messages_sent += 1;
                Handled::Done
            }
            Err(sending::Full) => {
                self.refused = true;
                self.counters.refused_full += 1;
                self.sending.watch(self.now);
                Handled::Refused(Refusal::Full)
            }
        }
    }

    fn on_packet(&mut self, name: u64) -> Handled {
        let refusal = if !self.met {
            Refusal::NotMet
        } else if self.packets == self.settings.packets_max {
            Refusal::Full
        } else {
            self.sending.seal(&mut self.frames);
            self.packets += 1;
            self.frames.push_back(Pending::SendPacket(name));
            return Handled::Done;
        };
        self.counters.refused_packets += 1;
        Handled::Refused(refusal)
    }

    #[inline]
    fn on_frame(&mut self, frame: &mut [u8], name: u64) -> Handled {
        match self.judge(frame, name) {
            Ok(handled) => handled,
            Err(reason) => {
                self.counters.drop(reason);
                if !self.met {
                    self.not_met_for = Some(reason);
                }
                Handled::Done
            }
        }
    }

    #[inline]
    fn judge(&mut self, frame: &mut [u8], name: u64) -> Result<Handled, DropReason> {
        let head = Head::read(frame)?;
        if head.from != self.settings.peer || head.to != self.settings.worker {
            return Err(DropReason::OtherPair);
        }
        let heard = self.heard.map(|heard| heard.incarnation);
        if heard.is_some_and(|heard| head.from_incarnation < heard) && !self.has(Bug::TakesOldSessions) {
            return Err(DropReason::OldSession);
        }
        if head.kind == Kind::Hello {
            self.on_hello(&head, frame)?;
            self.is_for_this_incarnation(&head)?;
        } else {
            self.is_for_this_incarnation(&head)?;
            // A hello brings the salt of the other end. Without it there are no keys.
            if heard != Some(head.from_incarnation) {
                return Err(DropReason::UnknownSession);
            }
            self.open(&head, frame)?;
        }
        // From here on the frame is the other end's own, of some time.
        match self.receiving.replay.judge(head.number) {
            replay::Number::New => {}
            _ if self.has(Bug::TakesAnyNumber) => {}
            replay::Number::Seen => return Err(DropReason::Replayed),
            replay::Number::Old => return Err(DropReason::OldNumber),
        }
        let acknowledges = matches!(head.kind, Kind::Messages | Kind::Acknowledgement);
        if acknowledges && !self.sending.is_possible(&head, head.arrived(frame)) {
            return Err(DropReason::Acknowledgement);
        }
        self.receiving.replay.note(head.number);
        self.counters.frames_received += 1;
        // A hello may be of a peer that hears nothing.
        self.counters.answers_received += u64::from(head.kind != Kind::Hello);
        if head.to_incarnation == 0 {
            self.answer = true;
            return Ok(Handled::Done);
        }
        if !self.met {
            self.on_met(head.from_incarnation)?;
        }
        if acknowledges {
            self.sending
                .acknowledge(&head, head.arrived(frame), self.now, &mut self.frames);
            if self.has(Bug::IgnoresWindow) {
                self.sending.ignore_window();
            }
            self.sending.release(&mut self.frames);
            self.sending.watch(self.now);
        }
        self.answer |= head.flags & flag::ASK != 0;
        match head.kind {
            Kind::Hello => self.answer = true,
            Kind::Acknowledgement => {}
            Kind::Messages => self.on_messages(&head, frame)?,
            Kind::Packet => {
                if self.packets == self.settings.packets_max {
                    return Err(DropReason::QueueFull);
                }
                self.packets += 1;
                self.counters.packets_received += 1;
                self.queue.push_back(Pending::Packet {
                    name,
                    start: head.payload_at() as u16,
                    length: head.length,
                });
                return Ok(Handled::Kept);
            }
        }
        Ok(Handled::Done)
    }

    /// Checks a frame's protection, and decrypts in place what is encrypted.
    #[inline]
    fn open(&mut self, head: &Head, frame: &mut [u8]) -> Result<(), DropReason> {
        match self.settings.protection.open(&mut self.seals, head, frame) {
            Err(_) if self.has(Bug::TakesAnyTag) => Ok(()),
            opened => Ok(opened?),
        }
    }

    /// Whether a frame is for the present incarnation of this end, or for whichever there is.
    #[inline]
    fn is_for_this_incarnation(&self, head: &Head) -> Result<(), DropReason> {
        match head.to_incarnation {
            0 => Ok(()),
            incarnation if incarnation == self.settings.incarnation => Ok(()),
            incarnation if incarnation < self.settings.incarnation => Err(DropReason::OldSession),
            _ => Err(DropReason::UnknownSession),
        }
    }

    /// A hello: the other end, as it is now.
    fn on_hello(&mut self, head: &Head, frame: &mut [u8]) -> Result<(), DropReason> {
        self.open(head, frame)?;
        self.compare(head.agreed(frame))?;
        let [salt, ours] = head.salts(frame);
        let heard = seal::End {
            worker: self.settings.peer,
            incarnation: head.from_incarnation,
            salt,
        };
        if self.heard != Some(heard) {
            // Two that have one incarnation: neither is known to be the later one. A session goes
            // on as it is.
            if self.met
                && self
                    .heard
                    .is_some_and(|known| known.incarnation == heard.incarnation)
            {
                return Err(DropReason::UnknownSession);
            }
            self.on_incarnation(heard)?;
        }
        // To one of the same incarnation that had another salt.
        if head.to_incarnation == self.settings.incarnation && ours != self.settings.salt {
            return Err(DropReason::UnknownSession);
        }
        Ok(())
    }

    #[inline]
    fn on_messages(&mut self, head: &Head, frame: &[u8]) -> Result<(), DropReason> {
        let repeats = self.has(Bug::DeliversRepeated);
        let queue = &mut self.queue;
        let taken = self
            .receiving
            .take(head.sequence, head.payload(frame), repeats, |arrived| {
                queue.push_back(Pending::Deliver(arrived));
            });
        debug_assert!(self.queue.len() <= self.queue_max);
        // Frames that are repeated, leave a gap or fill one are answered at once.
        let smooth = taken == Ok(true) && head.flags & flag::AGAIN == 0;
        if !smooth || self.receiving.unacknowledged >= self.settings.acknowledge_every {
            self.answer = true;
        } else if self.acknowledge_at.is_none() {
            self.acknowledge_at = Some(self.now.saturating_add(self.settings.acknowledge_ns_max));
        }
        taken.map(|_| ())
    }

    /// Holds what a hello says against what both ends must have alike. A peer that has something
    /// else hears none of this end's hellos either, so no other frame of it is for this
    /// incarnation.
    fn compare(&mut self, theirs: [u64; AGREED]) -> Result<(), DropReason> {
        let ours = self.settings.agreed;
        if theirs == ours {
            return Ok(());
        }
        self.differs = core::array::from_fn(|part| ours[part] ^ theirs[part]);
        Err(DropReason::Disagreement)
    }

    /// In which bits of what both ends must have alike the other end, which is not met for that,
    /// differs.
    pub fn differs(&self) -> [u64; AGREED] {
        self.differs
    }

    /// Why the last frame was refused that came while no peer was met: this may keep the two from
    /// meeting.
    pub fn not_met_for(&self) -> Option<DropReason> {
        self.not_met_for.filter(|_| !self.met)
    }

    /// The other end, in an incarnation that was not known.
    #[cold]
    fn on_incarnation(&mut self, heard: seal::End) -> Result<(), DropReason> {
        if self.met {
            if self.events + 1 >= EVENTS_MAX {
                return Err(DropReason::QueueFull);
            }
            let given_up = self.give_up();
            self.queue
                .push_back(Pending::Restarted(heard.incarnation, given_up));
        }
        self.forget();
        self.heard = Some(heard);
        self.begin();
        Ok(())
    }

    /// Frames are sealed with the keys of this end and the other, as they are now.
    fn begin(&mut self) {
        let Some(there) = self.heard else { return };
        let here = seal::End {
            worker: self.settings.worker,
            incarnation: self.settings.incarnation,
            salt: self.settings.salt,
        };
        self.seals.begin(here, there);
    }

    /// The session is over: frames that wait are not sent. Answers how many frames of messages that
    /// were.
    fn give_up(&mut self) -> u64 {
        self.frames.retain(|pending| !matches!(pending, Pending::Send(_)));
        let given_up = self.sending.restart(&self.settings);
        self.counters.given_up_frames += given_up;
        self.events += 1;
        given_up
    }

    /// No peer is met any more.
    fn forget(&mut self) {
        self.receiving.restart(&self.settings);
        self.met = false;
        self.answer = true;
        self.ask = false;
        self.acknowledge_at = None;
    }

    /// Gives the session up: from now on this end is of this incarnation, greater than any before,
    /// as if it had started again. The other end finds it restarted, so both begin again; messages
    /// received in order are still delivered before [`Output::Over`]. For a worker that thinks the
    /// other end dead: it may be alive, and must not go on with a session that this end has given
    /// up.
    #[cold]
    pub fn renew(&mut self, incarnation: u64) {
        assert!(
            incarnation > self.settings.incarnation,
            "an incarnation comes after those before"
        );
        self.settings.incarnation = incarnation;
        if self.met {
            // The worker that has yet to hear of so many sessions hears of the last.
            debug_assert!(self.events < EVENTS_MAX);
            let given_up = self.give_up();
            self.queue.push_back(Pending::Over(given_up));
        }
        self.forget();
        self.begin();
    }

    /// Asks a met other end to acknowledge at once: whether it is there.
    pub fn ask(&mut self) {
        self.ask = self.met;
    }

    #[cold]
    fn on_met(&mut self, incarnation: u64) -> Result<(), DropReason> {
        if self.events == EVENTS_MAX {
            return Err(DropReason::QueueFull);
        }
        self.met = true;
        self.answer = true;
        self.differs = [0; AGREED];
        self.not_met_for = None;
        self.counters.sessions += 1;
        self.events += 1;
        self.queue.push_back(Pending::Met(incarnation));
        Ok(())
    }

    fn on_timeout(&mut self) {
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= self.now);
        if is_due(self.acknowledge_at) {
            self.acknowledge_at = None;
            self.answer = true;
        }
        if is_due(self.flush_at()) {
            self.sending.seal(&mut self.frames);
            self.sending.watch(self.now);
        }
        if self.met && is_due(self.sending.retransmit_at) && !self.has(Bug::ForgetsTimeouts) {
            self.counters.timeouts += 1;
            let probes = self.sending.on_timeout(self.now, &mut self.frames);
            self.ask = probes == 0;
        }
    }

    fn flush_at(&self) -> Option<u64> {
        let since = self.sending.open_since().filter(|_| self.met)?;
        Some(since.saturating_add(self.settings.flush_ns_max))
    }

    /// When [`Input::Timeout`] is due, or a poll where a hello is: nothing happens by itself
    /// before, unless something comes in.
    pub fn next_timeout(&self) -> Option<u64> {
        let hello = (!self.met).then_some(self.hello_at);
        let retransmit = self.sending.retransmit_at.filter(|_| self.met);
        [self.acknowledge_at, self.flush_at(), retransmit, hello]
            .into_iter()
            .flatten()
            .min()
    }

    #[cfg(test)]
    fn has(&self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    #[cfg(not(test))]
    const fn has(&self, _: Bug) -> bool {
        false
    }

    fn has_room(&self) -> bool {
        self.sending.room() >= usize::from(self.settings.send_frames) / 4
    }

    /// A head for a frame that is sent now.
    #[inline]
    fn head(&self, kind: Kind, number: u64) -> Head {
        let (flags, key) = self.settings.protection.marks();
        Head {
            kind,
            flags,
            key,
            from: self.settings.worker,
            to: self.settings.peer,
            from_incarnation: self.settings.incarnation,
            to_incarnation: self.heard.map_or(0, |heard| heard.incarnation),
            number,
            sequence: 0,
            acknowledged: 0,
            seen: 0,
            window: 0,
            length: 0,
            words: 0,
        }
    }

    /// Has a head say what has arrived.
    #[inline]
    fn acknowledge_in(&mut self, head: &mut Head) {
        head.acknowledged = self.receiving.expected();
        head.seen = self.receiving.replay.highest();
        head.window = self.receiving.window();
        if self.ask {
            head.flags |= flag::ASK;
        }
        self.ask = false;
        self.answer = false;
        self.acknowledge_at = None;
        self.receiving.on_said();
    }

    /// Bytes that [`Channel::wrap`] puts in front of a packet.
    pub const FRONT: usize = HEAD;

    /// Bytes that it puts behind it.
    pub fn back(&self) -> usize {
        self.settings.protection.tag_length()
    }

    /// Makes a frame of a packet, for [`Output::SendPacket`]: `frame` is [`Channel::FRONT`] bytes,
    /// the packet, and [`Channel::back`] bytes. `false` if the packet cannot be sent: it is longer
    /// than the link's frames, or the session it was for is over.
    pub fn wrap(&mut self, frame: &mut [u8]) -> bool {
        let around = Self::FRONT + self.back();
        let fits = frame.len() > around && frame.len() <= self.settings.frame_max;
        if !self.met || !fits {
            self.counters.refused_packets += 1;
            return false;
        }
        let number = self.sending.take_number();
        let mut head = self.head(Kind::Packet, number);
        head.length = (frame.len() - around) as u16;
        head.write(frame, &[]);
        let sealed = self.settings.protection.seal(&mut self.seals, &head, frame);
        self.counters.packets_sent += u64::from(sealed);
        sealed
    }

    /// Other keys from now on: they seal frames that are sent next, and judge frames that come in.
    pub fn protect(&mut self, protection: Protection) {
        assert!(
            protection.tag_length() == self.settings.protection.tag_length(),
            "frames that wait have room for the tag they were begun with"
        );
        self.settings.protection = protection;
        self.seals.forget();
    }

    /// Other words on what both ends must have alike, for hellos from now on. A session that there
    /// is goes on.
    pub fn agree(&mut self, agreed: [u64; AGREED]) {
        self.settings.agreed = agreed;
        self.differs = [0; AGREED];
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the other end is met.
    pub fn is_met(&self) -> bool {
        self.met
    }

    /// The smoothed round trip in nanoseconds, if one was measured.
    pub fn round_trip(&self) -> Option<u64> {
        self.sending.round_trip()
    }

    /// Frames of messages that are free here, at most `send_frames`.
    pub fn room(&self) -> usize {
        self.sending.room()
    }

    /// Frames of messages unacknowledged here, and received ones not yet delivered.
    pub fn in_use(&self) -> (usize, usize) {
        (self.sending.in_use(), self.receiving.in_use())
    }
}
