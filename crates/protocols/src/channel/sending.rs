//! The sending half: messages into frames, frames until they are acknowledged.
//!
//! ```text
//!      oldest            next                 tail
//!   ─────┼─────────────────┼────────────────────┼───────────────────
//!        │ in flight       │ sealed: the window │ open: being filled
//!        │ (some arrived)  │ has no place yet   │
//! ```
//!
//! *Loss.* Each transmission has a number. The other end says the highest it saw; a frame sent
//! three numbers or more before that, and not arrived, is lost: the path keeps order or nearly.
//! `flight` has the transmissions in the order of their numbers, so finding what is lost costs a
//! step per transmission, whatever an acknowledgement says. A frame is in the queue of outputs at
//! most once.
//!
//! Invariants: `oldest ≤ next ≤ tail`, `tail - oldest` (and one for the open frame) buffers are in
//! use, never more than `send_frames`; a buffer is free only before `oldest`.

use super::Pending;
use super::timeout::Timeout;
use super::wire::{HEAD, Head, RECORD_HEAD, record_head};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// A frame sent so many numbers before the highest seen, and not arrived, is lost (RFC 9002 6.1.1).
const REORDERING: u64 = 3;
/// Frames sent again when a timeout runs out: enough to learn what else is lost.
const PROBES: usize = 2;

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Of its last transmission.
    number: u64,
    sent_at: u64,
    buffer: u16,
    /// Bytes of payload.
    length: u16,
    /// Was transmitted.
    sent: bool,
    /// Is in the queue of outputs.
    queued: bool,
    /// Is at the other end, as it says.
    arrived: bool,
}

struct Open {
    buffer: u16,
    /// Bytes of payload so far.
    length: usize,
    since: u64,
}

/// A frame to be transmitted: where its payload is, and whether it was sent before.
pub(super) struct Transmission {
    pub(super) number: u64,
    pub(super) sequence: u64,
    pub(super) buffer: usize,
    pub(super) length: usize,
    pub(super) again: bool,
}

/// Why a message is not taken now.
pub(super) struct Full;

/// A message in two parts, one behind the other, so that a caller that puts something in front need
/// not copy what is behind.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a>(pub(super) &'a [u8], pub(super) &'a [u8]);

impl<'a> Parts<'a> {
    #[inline]
    pub(super) fn len(self) -> usize {
        self.0.len() + self.1.len()
    }

    fn split_at(self, at: usize) -> (Parts<'a>, Parts<'a>) {
        let (a, b) = self.0.split_at(at.min(self.0.len()));
        let (c, d) = self.1.split_at(at.saturating_sub(self.0.len()));
        (Parts(a, c), Parts(b, d))
    }

    #[inline]
    fn copy_to(self, place: &mut [u8]) {
        let (head, rest) = place.split_at_mut(self.0.len());
        head.copy_from_slice(self.0);
        rest.copy_from_slice(self.1);
    }
}

pub(super) struct Sending {
    frames: Box<[u8]>,
    stride: usize,
    /// Where a payload begins in its buffer: all words fit before it.
    payload_at: usize,
    payload_max: usize,
    free: Vec<u16>,
    slots: Box<[Slot]>,
    oldest: u64,
    next: u64,
    tail: u64,
    /// The first sequence that has no place at the other end.
    limit: u64,
    open: Option<Open>,
    flight: VecDeque<(u64, u64)>,
    /// Number of the next frame of any kind.
    number: u64,
    /// When the timeout runs out, if it runs.
    pub(super) retransmit_at: Option<u64>,
    pub(super) timeout: Timeout,
}

fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

impl Sending {
    pub(super) fn new(settings: &super::ChannelSettings) -> Sending {
        let count = usize::from(settings.send_frames);
        let stride = settings.frame_max.next_multiple_of(64);
        let first = settings.first_sequence;
        Sending {
            frames: vec![0; count * stride].into(),
            stride,
            payload_at: HEAD + 8 * settings.words(),
            payload_max: settings.payload_max(),
            free: (0..settings.send_frames).rev().collect(),
            slots: vec![Slot::default(); count].into(),
            oldest: first,
            next: first,
            tail: first,
            limit: first,
            open: None,
            flight: VecDeque::with_capacity(2 * count + 1),
            number: settings.first_number,
            retransmit_at: None,
            timeout: Timeout::new(
                settings.timeout_ns_initial,
                settings.timeout_ns_min,
                settings.timeout_ns_max,
            ),
        }
    }

    fn slot(&mut self, sequence: u64) -> &mut Slot {
        let place = sequence as usize & (self.slots.len() - 1);
        &mut self.slots[place]
    }

    /// Sequence of the next frame of messages.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Frames that are free.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Frames unacknowledged, unsent or open.
    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// When the open frame was begun.
    pub(super) fn open_since(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.since)
    }

    /// The number for a frame that is transmitted now.
    #[inline]
    pub(super) fn take_number(&mut self) -> u64 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }

    /// The buffer of a frame, from where a head of `words` words begins, as long as head and
    /// payload and tag.
    #[inline]
    pub(super) fn frame_mut(&mut self, buffer: usize, words: usize, length: usize, tag: usize) -> &mut [u8] {
        let start = buffer * self.stride + self.payload_at - HEAD - 8 * words;
        &mut self.frames[start..][..HEAD + 8 * words + length + tag]
    }

    /// The payload of a frame.
    #[inline]
    pub(super) fn payload(&self, buffer: usize, length: usize) -> &[u8] {
        let start = buffer * self.stride + self.payload_at;
        &self.frames[start..start + length]
    }

    /// The same bytes, to be read.
    pub(super) fn frame(&self, buffer: usize, words: usize, length: usize) -> &[u8] {
        let start = buffer * self.stride + self.payload_at - HEAD - 8 * words;
        &self.frames[start..start + length]
    }

    /// Appends a message to the open frame, or opens another.
    #[inline]
    pub(super) fn push(
        &mut self,
        message: Parts<'_>,
        now: u64,
        queue: &mut VecDeque<Pending>,
    ) -> Result<(), Full> {
        if let Some(open) = &mut self.open {
            let length = open.length + RECORD_HEAD + message.len();
            if length <= self.payload_max {
                let start = usize::from(open.buffer) * self.stride + self.payload_at;
                let record = &mut self.frames[start..][open.length..length];
                record[..RECORD_HEAD].copy_from_slice(&record_head(true, true, message.len()));
                message.copy_to(&mut record[RECORD_HEAD..]);
                open.length = length;
                return Ok(());
            }
        }
        self.push_beyond(message, now, queue)
    }

    /// A message that the open frame has no room for.
    #[inline(never)]
    fn push_beyond(
        &mut self,
        message: Parts<'_>,
        now: u64,
        queue: &mut VecDeque<Pending>,
    ) -> Result<(), Full> {
        let most = self.payload_max - RECORD_HEAD;
        if message.len() <= most {
            self.seal(queue);
            let open = self.open(now).ok_or(Full)?;
            self.append(open, true, true, message);
            return Ok(());
        }
        // Over several frames: all of it or nothing, beginning in what the open frame has left.
        let left = match &self.open {
            Some(open) => (self.payload_max - open.length).saturating_sub(RECORD_HEAD),
            None => 0,
        };
        if (message.len() - left).div_ceil(most) > self.free.len() {
            self.seal(queue);
            return Err(Full);
        }
        let (mut rest, mut first) = (message, true);
        if left > 0 {
            let (piece, behind) = rest.split_at(left);
            let open = self.open.take().ok_or(Full)?;
            self.append(open, true, false, piece);
            (rest, first) = (behind, false);
        }
        while rest.len() > 0 {
            self.seal(queue);
            // Its buffers were counted above.
            let open = self.open(now).ok_or(Full)?;
            let (piece, behind) = rest.split_at(rest.len().min(most));
            self.append(open, first, behind.len() == 0, piece);
            (rest, first) = (behind, false);
        }
        Ok(())
    }

    fn open(&mut self, now: u64) -> Option<Open> {
        let buffer = self.free.pop()?;
        Some(Open {
            buffer,
            length: 0,
            since: now,
        })
    }

    fn append(&mut self, mut open: Open, first: bool, last: bool, piece: Parts<'_>) {
        let start = usize::from(open.buffer) * self.stride + self.payload_at + open.length;
        let (head, rest) = self.frames[start..].split_at_mut(RECORD_HEAD);
        head.copy_from_slice(&record_head(first, last, piece.len()));
        piece.copy_to(&mut rest[..piece.len()]);
        open.length += RECORD_HEAD + piece.len();
        self.open = Some(open);
    }

    /// Ends the open frame; it goes out as the window has a place for it.
    pub(super) fn seal(&mut self, queue: &mut VecDeque<Pending>) {
        let Some(open) = self.open.take() else { return };
        let sequence = self.tail;
        *self.slot(sequence) = Slot {
            buffer: open.buffer,
            length: open.length as u16,
            ..Slot::default()
        };
        self.tail = sequence.wrapping_add(1);
        self.release(queue);
    }

    /// Queues sealed frames that have a place at the other end.
    #[inline]
    pub(super) fn release(&mut self, queue: &mut VecDeque<Pending>) {
        if self.oldest == self.next {
            // Nothing is in flight: the timeout has no purpose.
            self.retransmit_at = None;
        }
        while self.next != self.tail && is_before(self.next, self.limit) {
            let sequence = self.next;
            self.slot(sequence).queued = true;
            queue.push_back(Pending::Send(sequence));
            self.next = sequence.wrapping_add(1);
        }
    }

    fn is_outstanding(&self, sequence: u64) -> bool {
        sequence.wrapping_sub(self.oldest) < self.next.wrapping_sub(self.oldest)
    }

    /// A queued frame whose turn it is: `None` if it has arrived meanwhile.
    #[inline]
    pub(super) fn transmit(&mut self, sequence: u64, now: u64) -> Option<Transmission> {
        if !self.is_outstanding(sequence) {
            return None;
        }
        let number = self.number;
        let slot = self.slot(sequence);
        slot.queued = false;
        if slot.arrived {
            return None;
        }
        let transmission = Transmission {
            number,
            sequence,
            buffer: usize::from(slot.buffer),
            length: usize::from(slot.length),
            again: slot.sent,
        };
        slot.number = number;
        slot.sent_at = now;
        slot.sent = true;
        self.number = number.wrapping_add(1);
        if self.flight.len() == 2 * self.slots.len() {
            self.forget_stale();
        }
        self.flight.push_back((number, sequence));
        if self.retransmit_at.is_none() {
            self.retransmit_at = Some(now.saturating_add(self.timeout.nanoseconds()));
        }
        Some(transmission)
    }

    /// Removes transmissions that are not the last of a frame outstanding; at most one for each
    /// frame stays.
    #[cold]
    fn forget_stale(&mut self) {
        let mut flight = core::mem::take(&mut self.flight);
        flight.retain(|&(number, sequence)| {
            self.is_outstanding(sequence) && self.slot(sequence).number == number
        });
        self.flight = flight;
    }

    /// Whether an acknowledgement is of frames that were sent.
    #[inline]
    pub(super) fn is_possible(&self, head: &Head, arrived: impl Iterator<Item = u64>) -> bool {
        let in_flight = self.next.wrapping_sub(self.oldest);
        let acknowledged = head.acknowledged.wrapping_sub(self.oldest);
        // An acknowledgement may be older than one that came before it.
        let behind = self.oldest.wrapping_sub(head.acknowledged);
        let is_late = behind != 0 && behind < 1 << 63;
        if !is_late && acknowledged > in_flight {
            return false;
        }
        let next_ahead = self.next.wrapping_sub(head.acknowledged);
        let past_next = arrived.enumerate().any(|(word, bits)| {
            let top = 64 * word as u64 + u64::from(64 - bits.leading_zeros());
            bits != 0 && top >= next_ahead
        });
        !past_next && is_before(head.seen, self.number)
    }

    /// Takes in what a possible acknowledgement says; `true` if anything new has arrived.
    #[inline]
    pub(super) fn acknowledge(
        &mut self,
        head: &Head,
        arrived: impl Iterator<Item = u64>,
        now: u64,
        queue: &mut VecDeque<Pending>,
    ) -> bool {
        let mut progress = false;
        let mut sent_at = None;
        while is_before(self.oldest, head.acknowledged) {
            let slot = *self.slot(self.oldest);
            if slot.sent && slot.number == head.seen && !slot.arrived {
                sent_at = Some(slot.sent_at);
            }
            self.free.push(slot.buffer);
            self.oldest = self.oldest.wrapping_add(1);
            progress = true;
        }
        for (word, mut bits) in arrived.enumerate() {
            while bits != 0 {
                let bit = u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                let sequence = head.acknowledged.wrapping_add(1 + 64 * word as u64 + bit);
                if !self.is_outstanding(sequence) {
                    continue;
                }
                let slot = self.slot(sequence);
                if !slot.arrived {
                    slot.arrived = true;
                    progress = true;
                    if slot.sent && slot.number == head.seen {
                        sent_at = Some(slot.sent_at);
                    }
                }
            }
        }
        let limit = head.acknowledged.wrapping_add(u64::from(head.window));
        if is_before(self.limit, limit) {
            self.limit = limit;
        }
        if let Some(sent_at) = sent_at {
            self.timeout.measure(now.saturating_sub(sent_at));
        }
        if progress {
            self.timeout.on_progress();
            self.retransmit_at = None;
        }
        if self.oldest == self.next {
            self.flight.clear();
        } else {
            if self.retransmit_at.is_none() {
                self.retransmit_at = Some(now.saturating_add(self.timeout.nanoseconds()));
            }
            self.find_lost(head.seen, queue);
        }
        progress
    }

    /// Queues again the frames that were sent well before `seen` and have not arrived.
    #[inline]
    fn find_lost(&mut self, seen: u64, queue: &mut VecDeque<Pending>) {
        while let Some(&(number, sequence)) = self.flight.front() {
            if is_before(seen, number.wrapping_add(REORDERING)) {
                break;
            }
            self.flight.pop_front();
            if !self.is_outstanding(sequence) {
                continue;
            }
            let slot = self.slot(sequence);
            if slot.number == number && !slot.arrived && !slot.queued {
                slot.queued = true;
                queue.push_back(Pending::Send(sequence));
            }
        }
    }

    /// The timeout ran out: the oldest frames that have not arrived are sent again. Answers how
    /// many; none if all frames here wait for a place at the other end, which then has to be asked
    /// for.
    pub(super) fn on_timeout(&mut self, now: u64, queue: &mut VecDeque<Pending>) -> usize {
        self.timeout.on_expiry();
        let mut probes = 0;
        let mut sequence = self.oldest;
        while sequence != self.next && probes < PROBES {
            let slot = self.slot(sequence);
            if !slot.arrived {
                probes += 1;
                if !slot.queued {
                    slot.queued = true;
                    queue.push_back(Pending::Send(sequence));
                }
            }
            sequence = sequence.wrapping_add(1);
        }
        self.retransmit_at = Some(now.saturating_add(self.timeout.nanoseconds()));
        probes
    }

    /// Has the timeout run where frames wait for a place at the other end while nothing is in
    /// flight: the place may have been offered and the offer lost.
    #[inline]
    pub(super) fn watch(&mut self, now: u64) {
        if self.oldest == self.next && self.next != self.tail && self.retransmit_at.is_none() {
            self.retransmit_at = Some(now.saturating_add(self.timeout.nanoseconds()));
        }
    }

    /// As if the other end had a place for everything.
    pub(super) fn ignore_window(&mut self) {
        self.limit = self.oldest.wrapping_add(u64::from(u16::MAX));
    }

    /// The smoothed round trip in nanoseconds, if one was measured.
    pub(super) fn round_trip(&self) -> Option<u64> {
        self.timeout.round_trip()
    }

    /// A session is over: its frames are given up. Answers how many frames of messages that were.
    pub(super) fn restart(&mut self, settings: &super::ChannelSettings) -> u64 {
        let mut given_up = self.tail.wrapping_sub(self.oldest);
        while self.oldest != self.tail {
            let buffer = self.slot(self.oldest).buffer;
            self.free.push(buffer);
            self.oldest = self.oldest.wrapping_add(1);
        }
        if let Some(open) = self.open.take() {
            self.free.push(open.buffer);
            given_up += 1;
        }
        let first = settings.first_sequence;
        (self.oldest, self.next, self.tail, self.limit) = (first, first, first, first);
        self.flight.clear();
        self.retransmit_at = None;
        self.timeout = Timeout::new(
            settings.timeout_ns_initial,
            settings.timeout_ns_min,
            settings.timeout_ns_max,
        );
        given_up
    }
}
