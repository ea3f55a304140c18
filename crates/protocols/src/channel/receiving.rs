//! The receiving half: frames into their order, records into messages.
//!
//! ```text
//!        expected                           expected + window
//!   ─────────┼──────────────────────────────────┼──────────
//!    queued  │ missing │ early │ missing │ early │ no place
//!    or gone
//! ```
//!
//! A frame in order goes into the queue of outputs, an early one waits in its slot. `window` is
//! `receive_frames` buffers less those queued, so every frame of the window has a buffer, and an
//! offered place is never taken back: delivering moves the window's end, arriving does not.
//!
//! A message of several records is put together in one buffer of `message_max` bytes. Records are
//! in order by then, so there is one such message at a time.

use super::ChannelSettings;
use super::counters::DropReason;
use super::replay::Replay;
use super::wire::{HEAD, TAG, record, well_formed};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// A frame in order, waiting to be delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    buffer: u16,
    length: u16,
    /// Of which session: a message of several records does not go on in another.
    session: u32,
}

/// A message, complete.
pub(super) enum Message {
    /// In a frame: buffer, start and end.
    Whole(usize, usize),
    /// Put together.
    Assembled,
}

pub(super) struct Receiving {
    frames: Box<[u8]>,
    stride: usize,
    free: Vec<u16>,
    /// Buffer and length of early frames, by sequence.
    slots: Box<[(u16, u16)]>,
    /// Which slots have an early frame: bit `sequence % receive_frames`.
    early: Box<[u64]>,
    early_count: usize,
    /// The sequence after the last early one, if there is one.
    early_end: u64,
    expected: u64,
    /// Frames queued or being delivered.
    undelivered: usize,
    /// `expected + window` as it was last said.
    offered: u64,
    session: u32,
    /// The frame that is being delivered, and how far it is.
    current: Option<(Arrived, usize)>,
    /// The message that is being put together: of which session, and whether all of it so far fits.
    assembling: Option<(u32, bool)>,
    assembly: Vec<u8>,
    message_max: usize,
    pub(super) replay: Replay,
    /// Frames of messages not acknowledged.
    pub(super) unacknowledged: u16,
}

impl Receiving {
    pub(super) fn new(settings: &ChannelSettings) -> Receiving {
        let count = usize::from(settings.receive_frames);
        // The longest payload that a sender with other words and tags may put into a frame of this
        // length.
        let stride = (settings.frame_max - HEAD).next_multiple_of(64);
        Receiving {
            frames: vec![0; count * stride].into(),
            stride,
            free: (0..settings.receive_frames).rev().collect(),
            slots: vec![(0, 0); count].into(),
            early: vec![0; count / 64].into(),
            early_count: 0,
            early_end: 0,
            expected: settings.first_sequence,
            undelivered: 0,
            offered: settings.first_sequence,
            session: 0,
            current: None,
            assembling: None,
            assembly: Vec::with_capacity(settings.message_max),
            message_max: settings.message_max,
            replay: Replay::new(settings.first_number),
            unacknowledged: 0,
        }
    }

    /// The first sequence that is not here.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// Frames from `expected` on that have a place.
    pub(super) fn window(&self) -> u16 {
        (self.slots.len() - self.undelivered) as u16
    }

    /// Frames that wait here, in order or early.
    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn place(&self, sequence: u64) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }

    fn is_early(&self, place: usize) -> bool {
        self.early[place / 64] & (1 << (place % 64)) != 0
    }

    /// The frames that have arrived beyond `expected`, as words of the head.
    #[inline]
    pub(super) fn arrived(&self) -> ArrayVec<u64, { super::wire::WORDS_MAX }> {
        let mut words = ArrayVec::new();
        if self.early_count == 0 {
            return words;
        }
        let last = self.early_end.wrapping_sub(self.expected) - 2;
        let count = self.early.len();
        for word in 0..=last / 64 {
            let start = self.place(self.expected.wrapping_add(1 + 64 * word));
            let (place, shift) = (start / 64, start % 64);
            let low = self.early[place] >> shift;
            let high = match shift {
                0 => 0,
                _ => self.early[(place + 1) % count] << (64 - shift),
            };
            words.push(low | high);
        }
        words
    }

    /// Notes that this end said what it has: how much it offered.
    #[inline]
    pub(super) fn on_said(&mut self) {
        self.unacknowledged = 0;
        self.offered = self.expected.wrapping_add(u64::from(self.window()));
    }

    /// Whether so much more can be offered than was that the other end should know.
    pub(super) fn has_more_to_offer(&self) -> bool {
        let half = self.slots.len() as u64 / 2;
        let said = self.offered.wrapping_sub(self.expected);
        said < half && u64::from(self.window()) >= half
    }

    /// Takes a frame of messages in: `Ok(true)` if it was the one expected and no other waited for
    /// it. `queue` gets frames that are in order.
    #[inline]
    pub(super) fn take(
        &mut self,
        sequence: u64,
        payload: &[u8],
        repeats: bool,
        mut queue: impl FnMut(Arrived),
    ) -> Result<bool, DropReason> {
        let ahead = sequence.wrapping_sub(self.expected);
        let place = self.place(sequence);
        if repeats
            && ahead >= 1 << 63
            && let Some(buffer) = self.free.pop()
        {
            // Planted: an earlier frame is delivered again.
            self.frames[usize::from(buffer) * self.stride..][..payload.len()].copy_from_slice(payload);
            self.advance(buffer, payload.len() as u16, &mut queue);
            self.expected = self.expected.wrapping_sub(1);
            return Ok(true);
        }
        if ahead >= 1 << 63 || (ahead < self.slots.len() as u64 && self.is_early(place)) {
            return Err(DropReason::Duplicate);
        }
        if ahead >= u64::from(self.window()) {
            return Err(DropReason::BeyondWindow);
        }
        if payload.len() > self.stride {
            return Err(DropReason::TooLong);
        }
        if !well_formed(payload) {
            return Err(DropReason::Records);
        }
        // Each frame of the window has a buffer.
        let buffer = self.free.pop().ok_or(DropReason::BeyondWindow)?;
        self.frames[usize::from(buffer) * self.stride..][..payload.len()].copy_from_slice(payload);
        let length = payload.len() as u16;
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        if ahead > 0 {
            self.slots[place] = (buffer, length);
            self.early[place / 64] |= 1 << (place % 64);
            let end = sequence.wrapping_add(1);
            if self.early_count == 0 || (end.wrapping_sub(self.early_end) as i64) > 0 {
                self.early_end = end;
            }
            self.early_count += 1;
            return Ok(false);
        }
        let smooth = self.early_count == 0;
        self.advance(buffer, length, &mut queue);
        while self.early_count > 0 {
            let place = self.place(self.expected);
            if !self.is_early(place) {
                break;
            }
            self.early[place / 64] &= !(1 << (place % 64));
            self.early_count -= 1;
            let (buffer, length) = self.slots[place];
            self.advance(buffer, length, &mut queue);
        }
        Ok(smooth)
    }

    fn advance(&mut self, buffer: u16, length: u16, queue: &mut impl FnMut(Arrived)) {
        self.expected = self.expected.wrapping_add(1);
        self.undelivered += 1;
        queue(Arrived {
            buffer,
            length,
            session: self.session,
        });
    }

    /// Whether no message of the frame that is being delivered, if there is one, is still to come;
    /// then it is done with.
    pub(super) fn is_between_messages(&mut self) -> bool {
        let Some((arrived, at)) = self.current else {
            return true;
        };
        if at < usize::from(arrived.length) {
            return false;
        }
        self.finish(arrived);
        true
    }

    fn finish(&mut self, arrived: Arrived) {
        self.current = None;
        self.free.push(arrived.buffer);
        self.undelivered -= 1;
    }

    /// Begins to deliver a frame.
    #[inline]
    pub(super) fn begin(&mut self, arrived: Arrived) {
        debug_assert!(self.current.is_none());
        self.current = Some((arrived, 0));
    }

    /// The next message of the frame that is being delivered; `None` when it is done with. `Err`: a
    /// message that was not one.
    #[inline]
    pub(super) fn next_message(&mut self) -> Option<Result<Message, DropReason>> {
        let (arrived, at) = self.current.as_mut()?;
        let start = usize::from(arrived.buffer) * self.stride;
        let payload = &self.frames[start..start + usize::from(arrived.length)];
        while let Some(record) = record(payload, *at) {
            *at = record.end;
            if record.first && record.last && self.assembling.is_none() {
                return Some(if record.end - record.start <= self.message_max {
                    Ok(Message::Whole(start + record.start, start + record.end))
                } else {
                    Err(DropReason::LongMessage)
                });
            }
            let session = arrived.session;
            let goes_on = matches!(self.assembling, Some((of, _)) if of == session);
            if record.first == goes_on {
                // A message that was begun does not end, or one goes on that was not begun: this
                // record is looked at again as if nothing had been begun.
                self.assembling = None;
                if record.first {
                    *at = record.start - super::wire::RECORD_HEAD;
                }
                return Some(Err(DropReason::BrokenMessage));
            }
            if record.first {
                self.assembly.clear();
                self.assembling = Some((session, true));
            }
            let piece = &payload[record.start..record.end];
            let fits = matches!(self.assembling, Some((_, true)))
                && self.assembly.len() + piece.len() <= self.message_max;
            if fits {
                self.assembly.extend_from_slice(piece);
            }
            self.assembling = (!record.last).then_some((session, fits));
            if record.last {
                return Some(if fits {
                    Ok(Message::Assembled)
                } else {
                    Err(DropReason::LongMessage)
                });
            }
        }
        let arrived = *arrived;
        self.finish(arrived);
        None
    }

    /// The bytes of a message that [`Receiving::next_message`] found.
    #[inline]
    pub(super) fn bytes(&self, message: Message) -> &[u8] {
        match message {
            Message::Whole(start, end) => &self.frames[start..end],
            Message::Assembled => &self.assembly,
        }
    }

    #[cfg(test)]
    pub(super) fn assembly_capacity(&self) -> usize {
        self.assembly.capacity()
    }

    /// Another session begins: early frames of this one are given up; frames in order are still
    /// delivered.
    pub(super) fn restart(&mut self, settings: &ChannelSettings) {
        while self.early_count > 0 {
            let last = self.early_end.wrapping_sub(1);
            let place = self.place(last);
            if self.is_early(place) {
                self.free.push(self.slots[place].0);
                self.early[place / 64] &= !(1 << (place % 64));
                self.early_count -= 1;
            }
            self.early_end = last;
        }
        self.expected = settings.first_sequence;
        self.offered = self.expected;
        self.unacknowledged = 0;
        self.session = self.session.wrapping_add(1);
        self.replay = Replay::new(settings.first_number);
    }
}

// A payload's length is counted in 16 bits.
const _: () = assert!(super::wire::RECORD_MAX + TAG <= u16::MAX as usize);
