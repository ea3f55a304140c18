//! The outputs of a channel: two queues, one for the worker and one for the link, which need not
//! wait for each other.
//!
//! Invariant: an entry of a queue comes out once, in order; a frame is sealed when it comes out,
//! with what has arrived by then.

use super::receiving;
use super::seal::SALT;
use super::wire::{Head, Kind, SALTS, flag};
use super::{Channel, Output, Pending};

/// The next output for the worker, without borrowing anything yet.
enum ForWorker {
    Message(receiving::Message),
    Other(Output<'static>),
}

/// The next output for the link, without borrowing anything yet.
enum Next {
    Frame {
        buffer: usize,
        words: usize,
        length: usize,
    },
    Alone {
        length: usize,
    },
}

impl Channel {
    /// The next output; `None` when there is no more until the next input.
    #[inline]
    pub fn poll(&mut self) -> Option<Output<'_>> {
        match self.next_for_worker() {
            Some(next) => Some(self.tell(next)),
            None => self.poll_link(),
        }
    }

    /// The next message for the worker; `None` where a session begins or ends before it. A worker
    /// that does not take messages lets the other end wait, and nothing else.
    #[inline]
    pub fn poll_message(&mut self) -> Option<&[u8]> {
        match self.next_message()? {
            ForWorker::Message(message) => Some(self.receiving.bytes(message)),
            ForWorker::Other(_) => None,
        }
    }

    /// `Met`, `Restarted` or `Over`, if that is what the worker is to be told next.
    pub fn poll_event(&mut self) -> Option<Output<'static>> {
        if !self.receiving.is_between_messages() {
            return None;
        }
        let output = match *self.queue.front()? {
            Pending::Met(incarnation) => Output::Met { incarnation },
            Pending::Restarted(incarnation, given_up_frames) => Output::Restarted {
                incarnation,
                given_up_frames,
            },
            Pending::Over(given_up_frames) => Output::Over { given_up_frames },
            _ => return None,
        };
        self.events -= 1;
        self.queue.pop_front();
        Some(output)
    }

    #[inline]
    fn tell(&self, next: ForWorker) -> Output<'_> {
        match next {
            ForWorker::Message(message) => Output::Message(self.receiving.bytes(message)),
            ForWorker::Other(output) => output,
        }
    }

    #[inline]
    fn next_for_worker(&mut self) -> Option<ForWorker> {
        self.next_message()
            .or_else(|| self.poll_event().map(ForWorker::Other))
    }

    /// The next message or packet.
    #[inline]
    fn next_message(&mut self) -> Option<ForWorker> {
        loop {
            match self.receiving.next_message() {
                Some(Ok(message)) => {
                    self.counters.messages_received += 1;
                    return Some(ForWorker::Message(message));
                }
                Some(Err(reason)) => {
                    self.counters.drop(reason);
                    continue;
                }
                None => {}
            }
            match *self.queue.front()? {
                Pending::Deliver(arrived) => {
                    self.queue.pop_front();
                    self.receiving.begin(arrived);
                }
                Pending::Packet { name, start, length } => {
                    self.queue.pop_front();
                    self.packets -= 1;
                    return Some(ForWorker::Other(Output::Packet {
                        name,
                        start: start.into(),
                        length: length.into(),
                    }));
                }
                _ => return None,
            }
        }
    }

    /// The next output that is for the link, or `Room`. Acknowledges all frames that have come,
    /// delivered or not.
    #[inline]
    pub fn poll_link(&mut self) -> Option<Output<'_>> {
        let next = loop {
            match self.frames.pop_front() {
                Some(Pending::SendPacket(name)) => {
                    self.packets -= 1;
                    return Some(Output::SendPacket(name));
                }
                Some(Pending::Send(sequence)) => {
                    if let Some(next) = self.send(sequence) {
                        break next;
                    }
                }
                Some(_) => debug_assert!(false, "all others are the worker's"),
                None => match self.speak() {
                    Some(next) => break next,
                    None if self.refused && self.has_room() => {
                        self.refused = false;
                        return Some(Output::Room);
                    }
                    None => return None,
                },
            }
        };
        Some(Output::Frame(match next {
            Next::Frame {
                buffer,
                words,
                length,
            } => self.sending.frame(buffer, words, length),
            Next::Alone { length } => &self.alone[..length],
        }))
    }

    /// A frame of messages whose turn it is; `None` if it has arrived meanwhile.
    #[inline]
    fn send(&mut self, sequence: u64) -> Option<Next> {
        let transmission = self.sending.transmit(sequence, self.now)?;
        let mut head = self.head(Kind::Messages, transmission.number);
        let arrived = self.receiving.arrived();
        head.sequence = transmission.sequence;
        head.length = transmission.length as u16;
        head.words = arrived.len() as u8;
        if transmission.again {
            head.flags |= flag::AGAIN;
            self.counters.retransmissions += 1;
        }
        self.acknowledge_in(&mut head);
        let (buffer, words, tag) = (transmission.buffer, arrived.len(), head.tag_length());
        if self.settings.protection.encrypts() {
            // A frame that may have to be sent again stays as it is.
            let length = head.payload_at() + transmission.length + tag;
            let payload = self.sending.payload(buffer, transmission.length);
            self.alone[head.payload_at()..][..payload.len()].copy_from_slice(payload);
            return self.seal_alone(&head, &arrived, length);
        }
        let frame = self.sending.frame_mut(buffer, words, transmission.length, tag);
        head.write(frame, &arrived);
        if !self.settings.protection.seal(&mut self.seals, &head, frame) {
            return None;
        }
        let length = frame.len();
        self.counters.frames_sent += 1;
        Some(Next::Frame {
            buffer,
            words,
            length,
        })
    }

    /// A frame without messages, if one is due: a hello while no peer is met, an acknowledgement
    /// afterwards.
    #[inline]
    fn speak(&mut self) -> Option<Next> {
        let mut head;
        let arrived: arrayvec::ArrayVec<u64, { super::wire::WORDS_MAX }>;
        if self.met {
            if !self.answer && !self.ask && !self.receiving.has_more_to_offer() {
                return None;
            }
            let number = self.sending.take_number();
            head = self.head(Kind::Acknowledgement, number);
            arrived = self.receiving.arrived();
            head.words = arrived.len() as u8;
            head.sequence = self.sending.tail();
            self.acknowledge_in(&mut head);
            self.counters.acknowledgements_sent += 1;
        } else {
            if !self.answer && self.now < self.hello_at {
                return None;
            }
            let number = self.sending.take_number();
            head = self.head(Kind::Hello, number);
            arrived = head.agree(&self.settings.agreed).iter().copied().collect();
            head.length = SALTS as u16;
            let theirs = self.heard.map_or([0; SALT], |heard| heard.salt);
            for (place, salt) in self.alone[head.payload_at()..]
                .chunks_exact_mut(SALT)
                .zip([self.settings.salt, theirs])
            {
                place.copy_from_slice(&salt);
            }
            self.answer = false;
            self.hello_at = self.now.saturating_add(self.settings.hello_ns);
        }
        let length = head.payload_at() + usize::from(head.length) + head.tag_length();
        self.seal_alone(&head, &arrived, length)
    }

    /// Writes the head of a frame whose payload is in place, and seals it.
    #[inline]
    fn seal_alone(&mut self, head: &Head, arrived: &[u64], length: usize) -> Option<Next> {
        let frame = &mut self.alone[..length];
        head.write(frame, arrived);
        if !self.settings.protection.seal(&mut self.seals, head, frame) {
            return None;
        }
        self.counters.frames_sent += 1;
        Some(Next::Alone { length })
    }
}
