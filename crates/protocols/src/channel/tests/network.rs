//! Two ends over a network that does what networks do, in one thread, from one seed.
//!
//! The messages of each end's worker have numbers: which incarnation of it, which session as it
//! counts them, which message; a checker at the other end knows what must come next. Packets say
//! how many messages were said before them, and messages how many packets.
//!
//! A run has two halves: faults, in which only safety is asked for, and then a whole network, in
//! which everything that was said in the session must arrive within [`HEALED_NS`].

use super::super::*;
use std::collections::{BTreeMap, VecDeque};
use std::string::String;
use std::vec::Vec;

/// Small and good enough, and the same everywhere (splitmix64).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Once in so many times; never of 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        times != 0 && self.below(times) == 0
    }
}

/// The faults: once in so many frames, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub repeat: u64,
    pub damage: u64,
    /// Frames overtake each other by up to so many nanoseconds.
    pub disorder_ns: u64,
    /// Each way of the network, whether frames are lost altogether.
    pub cut: [bool; 2],
    /// Restarts, once in so many steps.
    pub restart: u64,
    /// Ends that give their session up, once in so many steps.
    pub renew: u64,
    /// Frames of long ago come again.
    pub replay: u64,
    /// Ends that send with the other of two keys from now on, once in so many steps.
    pub rotate: u64,
}

/// After the last fault, everything arrives within this.
pub const HEALED_NS: u64 = 1_000_000_000;
const DELAY_NS: u64 = 20_000;

pub struct End {
    pub channel: Channel,
    pub incarnation: u64,
    /// How often the other end was found restarted: which session this is, as this end counts.
    epoch: u64,
    /// Messages accepted in this epoch, and packets.
    said: u64,
    packets_said: u64,
    /// The other end's words, as far as they were heard: incarnation, epoch, messages.
    hears: Option<(u64, u64, u64)>,
    /// Of the session that was met: the other end's incarnation.
    met: Option<u64>,
    /// Whether a message has come in this session.
    fresh: bool,
    /// The most packets that a message said were before it.
    packets_before: u64,
    packets_heard: Vec<(u64, u64, u64)>,
    pub messages_heard: u64,
}

pub struct World {
    pub random: Random,
    pub now: u64,
    pub ends: [End; 2],
    wires: [BTreeMap<(u64, u64), Vec<u8>>; 2],
    recorded: VecDeque<(usize, Vec<u8>)>,
    serial: u64,
    pub faults: Faults,
    settings: ChannelSettings,
    planted: Option<Bug>,
    /// Everything that happened, for comparing runs.
    pub timeline: u64,
    pub frames: Vec<(usize, Vec<u8>)>,
    pub keep_frames: bool,
    capacities: [usize; 2],
    /// Pairs of key and nonce that ends before a restart sealed with.
    pub used: Vec<([u8; 32], u64)>,
}

/// The checkers' result.
pub type Found = Result<(), String>;

macro_rules! demand {
    ($holds:expr, $($say:tt)*) => {
        if !$holds {
            return Err(std::format!($($say)*));
        }
    };
}

fn body(incarnation: u64, epoch: u64, number: u64, packets: u64, length: usize) -> Vec<u8> {
    let mut body: Vec<u8> = [incarnation, epoch, number, packets]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    while body.len() < length {
        body.push((number as usize + body.len()) as u8);
    }
    body
}

fn words(body: &[u8]) -> Option<[u64; 4]> {
    let (words, _) = body.as_chunks::<8>();
    let words: Vec<u64> = words
        .iter()
        .take(4)
        .map(|word| u64::from_be_bytes(*word))
        .collect();
    words.try_into().ok()
}

impl World {
    pub fn new(seed: u64, faults: Faults, settings: &ChannelSettings, planted: Option<Bug>) -> World {
        let mut random = Random(seed);
        let end = |worker: u16, incarnation: u64| End::new(settings, worker, incarnation, 0, planted);
        let ends = [end(0, 1 + random.below(100)), end(1, 1 + random.below(100))];
        let capacities = [ends[0].channel.queue.capacity(), ends[1].channel.queue.capacity()];
        World {
            random,
            now: 0,
            ends,
            wires: [BTreeMap::new(), BTreeMap::new()],
            recorded: VecDeque::new(),
            serial: 0,
            faults,
            settings: settings.clone(),
            planted,
            timeline: 0,
            frames: Vec::new(),
            keep_frames: false,
            capacities,
            used: Vec::new(),
        }
    }

    fn note(&mut self, what: &[u8]) {
        for byte in what.iter().chain(&self.now.to_be_bytes()) {
            self.timeline = (self.timeline ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// Puts a frame on the wire from `from`, with what happens to it there.
    fn transmit(&mut self, from: usize, frame: &[u8]) {
        self.note(frame);
        if self.keep_frames {
            self.frames.push((from, frame.to_vec()));
        }
        if self.faults.replay != 0 && self.random.once_in(20) {
            self.recorded.push_back((from, frame.to_vec()));
            if self.recorded.len() > 200 {
                self.recorded.pop_front();
            }
        }
        if self.faults.cut[from] || self.random.once_in(self.faults.lose) {
            return;
        }
        let copies = 1 + usize::from(self.random.once_in(self.faults.repeat));
        for _ in 0..copies {
            let mut frame = frame.to_vec();
            if self.random.once_in(self.faults.damage) {
                match self.random.below(3) {
                    0 => {
                        let at = self.random.below(frame.len() as u64) as usize;
                        frame[at] ^= 1 << self.random.below(8);
                    }
                    1 => frame.truncate(self.random.below(frame.len() as u64) as usize),
                    _ => frame.push(self.random.next() as u8),
                }
            }
            let late = match self.faults.disorder_ns {
                0 => 0,
                most => self.random.below(most),
            };
            self.serial += 1;
            let key = (self.now + DELAY_NS + late, self.serial);
            self.wires[from].insert(key, frame);
        }
    }

    /// Has a worker say something, if it is taken.
    pub fn say(&mut self, side: usize, length: usize) -> bool {
        let end = &mut self.ends[side];
        let message = body(
            end.incarnation,
            end.epoch,
            end.said,
            end.packets_said,
            length.max(32),
        );
        let taken = end.channel.handle(self.now, Input::Message(&message)) == Handled::Done;
        end.said += u64::from(taken);
        taken
    }

    /// Has a worker send a packet.
    pub fn send_packet(&mut self, side: usize) -> bool {
        let end = &mut self.ends[side];
        let taken = end.channel.handle(self.now, Input::Packet(end.packets_said)) == Handled::Done;
        end.packets_said += u64::from(taken);
        taken
    }

    /// Takes all outputs of an end.
    pub fn carry_out(&mut self, side: usize, arrived: &[u8]) -> Found {
        let keeps_order = self.faults.disorder_ns == 0 && self.faults.replay == 0;
        let mut out: Vec<Vec<u8>> = Vec::new();
        let end = &mut self.ends[side];
        let mut events = Vec::new();
        loop {
            match end.channel.poll() {
                None => break,
                Some(Output::Frame(frame)) => out.push(frame.to_vec()),
                Some(Output::Message(message)) => {
                    let message = message.to_vec();
                    end.hear(&message)?;
                    events.extend_from_slice(&message[..32]);
                }
                Some(Output::Packet { start, length, .. }) => {
                    end.hear_packet(&arrived[start..start + length], keeps_order)?;
                }
                Some(Output::SendPacket(number)) => {
                    let (incarnation, epoch, said) = (end.incarnation, end.epoch, end.said);
                    let packet = body(incarnation, epoch, number, said, 40);
                    let mut frame = std::vec![0; Channel::FRONT + packet.len() + end.channel.back()];
                    frame[Channel::FRONT..][..packet.len()].copy_from_slice(&packet);
                    if end.channel.wrap(&mut frame) {
                        out.push(frame);
                    }
                }
                Some(Output::Met { incarnation }) => {
                    demand!(end.met.is_none(), "met twice");
                    end.met = Some(incarnation);
                    end.fresh = true;
                }
                Some(Output::Restarted { incarnation, .. }) => {
                    let before = end.met.take();
                    demand!(
                        before.is_some_and(|before| before < incarnation),
                        "restarted backwards"
                    );
                    end.epoch += 1;
                    end.said = 0;
                }
                Some(Output::Over { .. }) => {
                    demand!(end.met.take().is_some(), "over before it began");
                    end.epoch += 1;
                    end.said = 0;
                }
                Some(Output::Room) => {}
            }
        }
        let (sending, receiving) = end.channel.in_use();
        demand!(
            sending <= usize::from(self.settings.send_frames)
                && receiving <= usize::from(self.settings.receive_frames)
                && end.channel.queue.capacity() == self.capacities[side],
            "memory grew: {sending} frames to send, {receiving} received"
        );
        let no_replays = self.faults.replay == 0 && self.faults.restart == 0;
        demand!(
            !no_replays || end.channel.counters().dropped(DropReason::BeyondWindow) == 0,
            "a frame came that no place was offered to"
        );
        self.note(&events);
        for frame in out {
            self.transmit(side, &frame);
        }
        Ok(())
    }

    /// Restarts an end: it forgets everything and has a greater incarnation.
    pub fn restart(&mut self, side: usize) {
        let incarnation = self.ends[side].incarnation + 1 + self.random.below(3);
        let heard = self.ends[side].messages_heard;
        self.used.append(&mut self.ends[side].channel.seals.used);
        self.ends[side] = End::new(&self.settings, side as u16, incarnation, self.now, self.planted);
        self.ends[side].messages_heard = heard;
    }

    /// Has an end give the session up, and take a greater incarnation; the other one need not know.
    pub fn renew(&mut self, side: usize) -> Found {
        let end = &mut self.ends[side];
        // Messages said before a peer was met are for the first peer.
        if end.met.is_none() && end.said > 0 {
            return Ok(());
        }
        end.incarnation += 1 + self.random.below(3);
        end.channel.renew(end.incarnation);
        self.carry_out(side, &[])
    }

    /// Has an end send with the other key.
    fn rotate(&mut self, side: usize) {
        let channel = &mut self.ends[side].channel;
        if let (flags, number @ 1..) = channel.settings.protection.marks()
            && flags & flag::KEYED != 0
        {
            channel.protect(super::ring(3 - number, Some(number)));
        }
    }

    /// Lets an end's channel know the time.
    fn tick(&mut self, side: usize) -> Found {
        let _ = self.ends[side].channel.handle(self.now, Input::Timeout);
        self.carry_out(side, &[])
    }

    /// Goes on to whatever is next, at most to `until`.
    pub fn advance(&mut self, until: u64) -> Found {
        let arrival = |wire: &BTreeMap<(u64, u64), Vec<u8>>| wire.keys().next().map(|key| key.0);
        let next = [
            arrival(&self.wires[0]),
            arrival(&self.wires[1]),
            self.ends[0].channel.next_timeout(),
            self.ends[1].channel.next_timeout(),
        ];
        let next = next.into_iter().flatten().min().unwrap_or(until);
        // Forward at least a little: a channel that is overdue for ever must not stop the world.
        self.now = next.clamp(self.now + 1000, until.max(self.now + 1000));
        for from in [0, 1] {
            while let Some(entry) = self.wires[from].first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let mut frame = entry.remove();
                let _ = self.ends[1 - from]
                    .channel
                    .handle(self.now, Input::Frame(&mut frame, 0));
                self.carry_out(1 - from, &frame)?;
            }
        }
        for side in [0, 1] {
            if self.ends[side]
                .channel
                .next_timeout()
                .is_some_and(|at| at <= self.now)
            {
                self.tick(side)?;
            }
        }
        Ok(())
    }

    /// Something a worker or the world may do at any step.
    pub fn act(&mut self) -> Found {
        let side = self.random.below(2) as usize;
        match self.random.below(20) {
            0..=9 => {
                let length = match self.random.below(20) {
                    0 => self.random.below(self.settings.message_max as u64 + 1),
                    1..=3 => self.random.below(3000).min(self.settings.message_max as u64),
                    _ => 32 + self.random.below(64),
                };
                self.say(side, length as usize);
            }
            10..=12 => {
                self.send_packet(side);
            }
            _ => {
                let _ = self.ends[side].channel.handle(self.now, Input::Flush);
            }
        }
        self.carry_out(side, &[])?;
        if self.random.once_in(self.faults.restart) {
            let side = self.random.below(2) as usize;
            self.restart(side);
        }
        if self.random.once_in(self.faults.renew) {
            let side = self.random.below(2) as usize;
            self.renew(side)?;
        }
        if self.random.once_in(self.faults.rotate) {
            let side = self.random.below(2) as usize;
            self.rotate(side);
        }
        if self.random.once_in(self.faults.replay) && !self.recorded.is_empty() {
            let which = self.random.below(self.recorded.len() as u64) as usize;
            let (from, frame) = self.recorded[which].clone();
            self.serial += 1;
            self.wires[from].insert((self.now + 1, self.serial), frame);
        }
        Ok(())
    }

    /// Faults end.
    pub fn heal(&mut self) {
        self.faults = Faults {
            disorder_ns: self.faults.disorder_ns,
            ..Faults::default()
        };
        self.recorded.clear();
    }

    fn is_settled(&self) -> bool {
        [0, 1].into_iter().all(|side| {
            let (here, there) = (&self.ends[side], &self.ends[1 - side]);
            let heard = there
                .hears
                .filter(|(incarnation, epoch, _)| (*incarnation, *epoch) == (here.incarnation, here.epoch));
            here.met == Some(there.incarnation) && heard.map_or(0, |(.., messages)| messages) == here.said
        })
    }

    /// Demands that everything said arrives.
    pub fn converge(&mut self) -> Found {
        self.heal();
        let until = self.now + HEALED_NS;
        for side in [0, 1] {
            let _ = self.ends[side].channel.handle(self.now, Input::Flush);
            self.carry_out(side, &[])?;
        }
        while !self.is_settled() {
            demand!(
                self.now < until,
                "not everything has arrived: said {} and {}, heard {:?} and {:?}, met {:?} and {:?}",
                self.ends[0].said,
                self.ends[1].said,
                self.ends[1].hears,
                self.ends[0].hears,
                self.ends[0].met,
                self.ends[1].met
            );
            self.advance(until)?;
        }
        Ok(())
    }

    /// A whole run.
    pub fn run(&mut self, steps: usize) -> Found {
        for step in 0..steps {
            self.act()?;
            if step % 3 == 0 {
                let until = self.now + self.random.below(50_000);
                self.advance(until)?;
            }
            if step % 97 == 0 {
                // A cut now and then, of one way or both, for longer than a timeout.
                let cut = self.faults.restart != 0 && self.random.once_in(3);
                self.faults.cut = [cut && self.random.once_in(2), cut && self.random.once_in(2)];
            }
        }
        self.converge()
    }
}

impl End {
    fn new(settings: &ChannelSettings, worker: u16, incarnation: u64, now: u64, planted: Option<Bug>) -> End {
        let settings = ChannelSettings {
            worker,
            peer: 1 - worker,
            incarnation,
            salt: [1 + worker as u8 + 2 * (incarnation % 100) as u8; SALT],
            ..settings.clone()
        };
        let mut channel = Channel::new(settings, now).expect("good settings");
        if channel.settings.protection.encrypts() {
            channel.protect(super::ring(1, Some(2)));
        }
        channel.planted = planted;
        End {
            channel,
            incarnation,
            epoch: 0,
            said: 0,
            packets_said: 0,
            hears: None,
            met: None,
            fresh: false,
            packets_before: 0,
            packets_heard: Vec::new(),
            messages_heard: 0,
        }
    }

    /// A message: the next of this session, or its first.
    fn hear(&mut self, message: &[u8]) -> Found {
        let said = words(message).ok_or("a message too short to be one")?;
        let [incarnation, epoch, number, packets] = said;
        demand!(
            message == body(incarnation, epoch, number, packets, message.len()),
            "a message that was not said like this"
        );
        demand!(
            self.met == Some(incarnation),
            "a message of incarnation {incarnation}, met is {:?}",
            self.met
        );
        let expected = if core::mem::take(&mut self.fresh) {
            // A session's first; the other end's count of sessions is its own.
            self.packets_before = 0;
            (incarnation, epoch, 0)
        } else {
            self.hears.ok_or("a message before any session")?
        };
        demand!(
            (incarnation, epoch, number) == expected,
            "message {number} of incarnation {incarnation}, session {epoch}, where {expected:?} was next"
        );
        self.hears = Some((incarnation, epoch, number + 1));
        self.messages_heard += 1;
        self.packets_before = self.packets_before.max(packets);
        Ok(())
    }

    /// A packet: never twice, and never behind a message that was said after it.
    fn hear_packet(&mut self, packet: &[u8], keeps_order: bool) -> Found {
        let [incarnation, epoch, number, said] = words(packet).ok_or("a packet too short to be one")?;
        demand!(
            packet == body(incarnation, epoch, number, said, packet.len()),
            "a packet that was not sent like this"
        );
        let this = (incarnation, epoch, number);
        demand!(!self.packets_heard.contains(&this), "packet {this:?} came twice");
        self.packets_heard.push(this);
        let same_session = self.hears.is_some_and(|(l, e, _)| (l, e) == (incarnation, epoch)) && !self.fresh;
        demand!(
            !keeps_order || !same_session || number >= self.packets_before,
            "packet {number} came behind a message said after {} packets",
            self.packets_before
        );
        Ok(())
    }
}
