//! What is said and sent to other runtimes, in order, and waits where there is no buffer for it.
//!
//! ```text
//!   records, packets ─► unsaid, while buffers are wanting ─► frames ─► link
//! ```
//!
//! Whatever comes behind something that is unsaid waits behind it, but empty buffers, which have no order and which somebody waits for.
//! Words leave so many buffers alone ([`Moves::spared`](super::Moves)) that what other runtimes say can be heard and answered to switches: the others come
//! home by themselves, so what waits is said in the end, however many runtimes are short of buffers.
//!
//! Invariants: a record or packet that was taken here is sent, once, behind all that was taken before it.

use super::super::Runtime;
use super::bytes::Record;
use super::{MOVES_MAX, Moves};
use crate::env::{Burst, Port};
use crate::message::Message;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::packet::Kind;
use wire::{PacketBox, Pool};

/// What is for one runtime.
#[derive(Default)]
pub(super) struct Outgoing {
    /// To be transmitted.
    frames: VecDeque<PacketBox>,
    /// Behind that, when there are buffers.
    unsaid: VecDeque<Unsaid>,
    /// How many of those say something of a group.
    says: usize,
}

enum Unsaid {
    Record(Vec<u8>),
    Packet(PacketBox),
}

impl Outgoing {
    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.unsaid.is_empty()
    }

    /// The frame of records at hand, if there is one.
    pub fn frame(&mut self) -> Option<&mut PacketBox> {
        self.frames
            .back_mut()
            .filter(|frame| frame.kind() == Kind::Message)
    }

    /// How much waits for buffers.
    pub fn unsaid(&self) -> usize {
        self.unsaid.len()
    }

    /// Of that, what says something of a group.
    pub fn says(&self) -> usize {
        self.says
    }

    /// All buffers that have not left.
    pub fn into_packets(self) -> impl Iterator<Item = PacketBox> {
        let waiting = self.unsaid.into_iter().filter_map(|unsaid| match unsaid {
            Unsaid::Record(_) => None,
            Unsaid::Packet(packet) => Some(packet),
        });
        self.frames.into_iter().chain(waiting)
    }
}

impl<P: Port> Moves<P> {
    /// Whether something for a runtime waits for a buffer.
    pub(super) fn has_unsaid(&self, to: u16) -> bool {
        self.outgoing
            .get(usize::from(to))
            .is_some_and(|outgoing| !outgoing.unsaid.is_empty())
    }

    /// How much waits for buffers.
    pub fn unsaid(&self) -> usize {
        self.unsaid
    }

    /// Sends a buffer to another runtime, behind what was said to it.
    #[cold]
    pub(in super::super) fn send(&mut self, to: u16, packet: PacketBox) {
        let Some(outgoing) = self.outgoing.get_mut(usize::from(to)) else {
            // Buffers belong to pools that there are, and packets to groups that go to somebody (`Moves::has_peer`).
            debug_assert!(false, "there is no link to runtime {to}");
            return;
        };
        if outgoing.unsaid.is_empty() || packet.kind() == Kind::Empty {
            outgoing.frames.push_back(packet);
        } else {
            outgoing.unsaid.push_back(Unsaid::Packet(packet));
            self.unsaid += 1;
        }
    }

    /// Transmits what is for other runtimes.
    #[inline]
    pub(in super::super) fn transmit(&mut self, now: u64, pool: &mut Pool) {
        if self.unsaid > 0 {
            self.say(pool);
        }
        for (outgoing, peer) in self.outgoing.iter_mut().zip(&mut self.peers) {
            while !outgoing.frames.is_empty()
                && let Some(peer) = peer
            {
                let mut burst = Burst::new();
                while !burst.is_full()
                    && let Some(packet) = outgoing.frames.pop_front()
                {
                    burst.push(packet);
                }
                peer.transmit(now, pool, &mut burst);
            }
        }
    }

    /// Says what waits, as far as there are buffers.
    #[cold]
    fn say(&mut self, pool: &mut Pool) {
        for outgoing in &mut self.outgoing {
            while let Some(next) = outgoing.unsaid.pop_front() {
                match next {
                    Unsaid::Packet(packet) => outgoing.frames.push_back(packet),
                    Unsaid::Record(bytes) => {
                        outgoing.says -= usize::from(Record::is_says(&bytes));
                        let fits = outgoing.frame().is_some_and(|frame| append(frame, &bytes));
                        if !fits {
                            let Some(mut frame) = take_frame(pool, self.spared) else {
                                outgoing.says += usize::from(Record::is_says(&bytes));
                                outgoing.unsaid.push_front(Unsaid::Record(bytes));
                                return;
                            };
                            let fits = append(&mut frame, &bytes);
                            debug_assert!(fits, "a record fits into an empty frame");
                            outgoing.frames.push_back(frame);
                        }
                    }
                }
                self.unsaid -= 1;
            }
        }
    }
}

/// An empty frame of records, as long as so many buffers are left.
fn take_frame(pool: &mut Pool, spared: usize) -> Option<PacketBox> {
    if pool.free() <= spared {
        return None;
    }
    let mut frame = pool.take()?;
    Message::begin(&mut frame);
    Some(frame)
}

/// Appends a record that is written already; `false` if it does not fit.
fn append(frame: &mut PacketBox, bytes: &[u8]) -> bool {
    let at = frame.frame().len();
    if at + bytes.len() > crate::message::room(frame) || !frame.set_length(at + bytes.len()) {
        return false;
    }
    frame.frame_mut()[at..].copy_from_slice(bytes);
    true
}

impl<P: Port> Runtime<P> {
    /// Puts a record behind all that was said to a runtime.
    pub(super) fn append_record(&mut self, to: u16, record: &Record<'_>) {
        let Some(outgoing) = self.moves.outgoing.get_mut(usize::from(to)) else {
            debug_assert!(false, "there is no link to runtime {to}");
            return;
        };
        if outgoing.unsaid.is_empty() {
            if outgoing.frame().is_some_and(|frame| record.append(frame)) {
                return;
            }
            if let Some(mut frame) = take_frame(&mut self.pool, self.moves.spared) {
                let fits = record.append(&mut frame);
                debug_assert!(fits, "a record fits into an empty frame");
                outgoing.frames.push_back(frame);
                return;
            }
        }
        let bytes = record.bytes();
        outgoing.says += usize::from(Record::is_says(&bytes));
        outgoing.unsaid.push_back(Unsaid::Record(bytes));
        self.moves.unsaid += 1;
    }

    /// Tells another runtime whether this one takes no groups.
    pub(in super::super) fn tell_leaving(&mut self, to: u16, is_leaving: bool) {
        self.append_record(to, &Record::Leaving(is_leaving));
    }

    /// Whether no more may wait to be said of groups to a runtime. Of each group on its way between the two (each has [`MOVES_MAX`] at most, and begins no other
    /// before it is answered) at most eight words wait, and two more for each switch that says where it has gone: what is more
    /// answers words that nobody had reason to say.
    pub(super) fn has_said_too_much(&self, to: u16) -> bool {
        let most = 2 * MOVES_MAX as usize * (8 + 2 * usize::from(self.settings.switches));
        let outgoing = self.moves.outgoing.get(usize::from(to));
        outgoing.is_some_and(|outgoing| outgoing.says() >= most)
    }

    /// Room in the frame at hand for a runtime.
    pub(super) fn frame_room(&mut self, to: u16) -> usize {
        match self.moves.outgoing[usize::from(to)].frame() {
            Some(frame) => crate::message::room(frame) - frame.frame().len(),
            None => 0,
        }
    }

    pub(super) fn new_frame(&mut self, to: u16) -> bool {
        let Some(frame) = take_frame(&mut self.pool, 0) else {
            debug_assert!(false, "`has_room_to_send` made sure of buffers");
            return false;
        };
        self.moves.outgoing[usize::from(to)].frames.push_back(frame);
        true
    }

    /// How many words to other runtimes wait for buffers.
    pub fn words_unsaid(&self) -> usize {
        self.moves.unsaid()
    }
}
