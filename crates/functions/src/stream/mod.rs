//! TCP streams as an observer in between sees them: every byte once, in order, from a bounded, plain state.
//!
//! **Theory of operation.** Each direction has the sequence number that comes next. A segment that begins there is handed on at
//! once, straight from the packet; what of it has been handed on before (a retransmission) is cut off. A segment that comes
//! too early is kept, in a buffer of [`EARLY_BYTES`] that both directions share, and handed on when the gap before it is
//! filled.
//!
//! ```text
//!   next = 1000                                    handed on            kept            next
//!   1000 "GET /et"   in order                      "GET /et"                            1007
//!   1010 " HTTP/1"   early                                              1010..1017      1007
//!   1003 " /etc/p"   three bytes are new           "c/p", " HTTP/1"                     1017
//!   1000 "GET /et"   seen before                   nothing                              1017
//! ```
//!
//! **Who wins where segments overlap: the first.** A byte that was handed on or kept is never replaced by what a later segment
//! says of its place (Suricata's default, BSD, prefers the old as well where the new segment does not begin before it). The
//! two are not compared: what was handed on is not here any more.
//!
//! **What is bounded.** An early segment must end within [`EARLY_BYTES`] behind the next byte, leave no more than
//! [`SPANS_MAX`] separate pieces, and only one direction at a time keeps any. Another is [`Taken::Beyond`]: it is not part of
//! the stream, and who must look at every byte looks at it by itself, or drops it, so that it is sent again in order.
//!
//! **Gaps.** What the receiver has acknowledged and was not seen here is lost to us: when a later segment comes, the gap before
//! it is reported ([`Piece::Gap`]) and passed over. An acknowledgement alone never moves anything: who acknowledges what
//! has not been sent would make us blind for it.
//!
//! **Openings.** A stream begins with SYN; a segment that begins before the first byte is not part of
//! it. Data on a SYN are handed on at once. The first acknowledgement of the other end shows whether it
//! has taken them (RFC 7413); if not, the stream is at its beginning again ([`Accepted::refused`]).
//! Only where the old stream is closed, by RST or two FINs, does a SYN begin a new stream; any other
//! SYN is not believed. A stream whose beginning was not seen is picked up where that is asked for.
//!
//! **Resets.** A reset counts if its number is the next (RFC 9293 3.10.7.4, RFC 5961 3.2); windows are
//! not known here. Later data of its receiver are part of no stream. Later data of its sender show that
//! the reset was none.
//!
//! **Invariants.** Bytes handed on are, in order and once each, those at their positions in the first segment that had them
//! (`every_byte_is_handed_on_once`); [`Half::position`] counts bytes handed on and passed over; spans are sorted, apart, and
//! end within the buffer; whatever bytes the state is made of, nothing here panics (`any_state_is_served`).
//!
//! Not here: windows and the validity of resets (`firewall`), what is in the stream (`ids`, `http_parser`), checksums.
//!
//! Sources: RFC 9293 3.4 and 3.10, RFC 7413, RFC 5722 and Ptacek and Newsham 1998 for what overlaps do to observers.

mod early;
#[cfg(test)]
mod tests;

pub use early::{EARLY_BYTES, SPANS_MAX};

use early::Early;
use nf::Plain;
use wire::Packet;
use wire::tcp::{Tcp, flags};

/// Bits of [`Half::marks`].
mod mark {
    /// `next` is known.
    pub const KNOWN: u8 = 1;
    /// Its SYN was seen.
    pub const SYN: u8 = 2;
    /// Its FIN was seen.
    pub const FIN: u8 = 4;
    /// It has acknowledged something.
    pub const ACKED: u8 = 8;
    /// Data of its SYN were handed on, and it is not known whether the other end has taken them.
    pub const SYN_DATA: u8 = 16;
}

/// One direction.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Half {
    /// Bytes handed on and passed over so far.
    position: u64,
    /// Sequence number of the next byte.
    next: u32,
    /// Behind what the other direction has acknowledged of this one.
    acked: u32,
    /// Bits of [`mark`].
    marks: u8,
    reserved: [u8; 7],
}

impl Half {
    fn has(&self, marks: u8) -> bool {
        self.marks & marks == marks
    }

    /// Bytes handed on and passed over so far.
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// Bits of [`Streams::marks`].
mod whole {
    /// Both have sent SYN, and one has acknowledged after that.
    pub const ESTABLISHED: u8 = 1;
    /// The flow's first packet was a SYN+ACK: its sender is the server.
    pub const REVERSED: u8 = 4;

    /// A direction has sent a reset.
    pub const fn reset(half: usize) -> u8 {
        [2, 8][half & 1]
    }
}

/// Both directions of a connection. Index 0 is the direction of the flow's first packet.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Streams {
    halves: [Half; 2],
    marks: u8,
    reserved: [u8; 7],
    early: Early,
}

/// What is handed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// The next bytes.
    Bytes {
        /// They.
        bytes: &'a [u8],
        /// How many bytes of this direction came before.
        position: u64,
    },
    /// Bytes that were acknowledged but not seen here.
    Gap {
        /// How many.
        length: u32,
    },
}

/// What became of a segment's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// There was none.
    Nothing,
    /// At least some of it was new and handed on.
    New,
    /// All of it had been handed on or kept before.
    Old,
    /// It is kept until the gap before it is filled.
    Kept,
    /// It came early and there is no room to keep it: not part of the stream.
    Beyond,
    /// It belongs to no stream known here: before the first byte, behind a reset, or the beginning was not seen.
    Outside,
}

/// What became of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// A new connection begins: what is remembered of an old one is void.
    pub begins: bool,
    /// What became of its data.
    pub taken: Taken,
    /// With [`Taken::New`]: how many bytes of this direction come before its first one.
    pub start: u64,
    /// This direction did not take the data of the other direction's SYN: they are void.
    pub refused: bool,
}

/// What [`Streams::restore`] needs.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    halves: [Half; 2],
    marks: u8,
    spans: early::Spans,
}

/// `a - b` modulo 2³², as a signed distance.
fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

impl Streams {
    /// One direction.
    pub fn half(&self, half: usize) -> &Half {
        &self.halves[half & 1]
    }

    /// Whether the connection was seen to be established: SYN both ways and an acknowledgement; or, where it was picked up,
    /// data both ways.
    pub fn is_established(&self) -> bool {
        let picked_up = |half: &Half| half.has(mark::KNOWN) && !half.has(mark::SYN);
        self.marks & whole::ESTABLISHED != 0 || self.halves.iter().all(picked_up)
    }

    /// Which direction's sender has opened the connection.
    pub fn client(&self) -> usize {
        usize::from(self.marks & whole::REVERSED != 0)
    }

    /// Whether nothing more is to come: a reset, or FIN both ways.
    pub fn is_closed(&self) -> bool {
        self.marks & (whole::reset(0) | whole::reset(1)) != 0
            || self.halves.iter().all(|half| half.has(mark::FIN))
    }

    /// Bytes kept of segments that came early.
    pub fn kept(&self) -> usize {
        self.early.kept()
    }

    /// All that [`Streams::accept`] may change but for kept bytes themselves, for a packet that may be dropped.
    pub fn before(&self) -> Before {
        Before {
            halves: self.halves,
            marks: self.marks,
            spans: self.early.spans(),
        }
    }

    /// Forgets the last segment, which was dropped: its bytes will come again, perhaps other ones.
    pub fn restore(&mut self, before: &Before) {
        self.halves = before.halves;
        self.marks = before.marks;
        self.early.set_spans(before.spans);
    }

    /// Takes in a TCP packet of direction `half` and hands on what of the stream it makes known. `pick_up` begins streams
    /// whose SYN was not seen.
    pub fn accept(
        &mut self,
        packet: &Packet,
        half: usize,
        pick_up: bool,
        on: &mut impl FnMut(Piece<'_>),
    ) -> Accepted {
        let half = half & 1;
        let mut accepted = Accepted {
            begins: false,
            taken: Taken::Nothing,
            start: 0,
            refused: false,
        };
        let Some(tcp) = packet.tcp() else {
            accepted.taken = Taken::Outside;
            return accepted;
        };
        let segment = Segment {
            sequence: first_byte(&tcp),
            flags: tcp.flags(),
            // A capture may hold less than there was.
            length: tcp.payload_length(),
            bytes: packet.payload(),
        };
        if segment.has(flags::SYN) {
            accepted.begins = self.on_syn(&segment, half);
        }
        if segment.has(flags::ACK) {
            accepted.refused = self.on_acknowledgement(&segment, tcp.acknowledgement(), half);
        }
        if segment.has(flags::RST) {
            // What a reset carries is no part of the stream (RFC 9293 3.5.3).
            self.on_reset(&segment, half);
            return accepted;
        }
        if segment.length > 0 {
            (accepted.taken, accepted.start) = match self.place(&segment, half, pick_up, on) {
                Ok(known) => self.on_new(&segment, known, half, on),
                Err(taken) => (taken, 0),
            };
        }
        if segment.has(flags::FIN) {
            self.halves[half].marks |= mark::FIN;
        }
        accepted
    }

    /// Whether a packet begins a connection, so that all that was read of an old connection is void.
    pub fn begins(&self, packet: &Packet) -> bool {
        let flags = packet.tcp().map_or(0, |tcp| tcp.flags());
        let answers = flags & flags::ACK != 0;
        flags & flags::SYN != 0 && (self.is_fresh() || (self.is_closed() && !answers))
    }

    fn is_fresh(&self) -> bool {
        self.halves.iter().all(|half| half.marks == 0)
    }

    /// Whether a connection begins anew.
    fn on_syn(&mut self, segment: &Segment<'_>, half: usize) -> bool {
        let answers = segment.has(flags::ACK);
        let fresh = self.is_fresh();
        let again = !fresh && self.is_closed() && !answers;
        if again {
            *self = Streams::default();
            self.marks = if half == 1 { whole::REVERSED } else { 0 };
        } else if fresh && answers {
            // The client is the other one.
            self.marks |= if half == 0 { whole::REVERSED } else { 0 };
        }
        if !self.halves[half].has(mark::KNOWN) {
            self.halves[half] = Half {
                next: segment.sequence,
                marks: self.halves[half].marks | mark::KNOWN | mark::SYN,
                ..self.halves[half]
            };
        }
        fresh || again
    }

    /// Whether the data of the other direction's SYN turn out not to have been taken.
    fn on_acknowledgement(&mut self, segment: &Segment<'_>, number: u32, half: usize) -> bool {
        let opened = self.halves.iter().all(|half| half.has(mark::SYN));
        if opened && !segment.has(flags::SYN | flags::RST) {
            self.marks |= whole::ESTABLISHED;
        }
        let other = &mut self.halves[1 - half];
        if !other.has(mark::ACKED) || distance(number, other.acked) > 0 {
            other.acked = number;
            other.marks |= mark::ACKED;
        }
        let first = other.next.wrapping_sub(other.position as u32);
        if !other.has(mark::SYN_DATA) || distance(number, first) < 0 {
            return false;
        }
        other.marks &= !mark::SYN_DATA;
        let refused = number == first;
        if refused {
            (other.next, other.position) = (first, 0);
        }
        refused
    }

    fn on_reset(&mut self, segment: &Segment<'_>, half: usize) {
        let state = &self.halves[half];
        let is_behind = state.has(mark::ACKED) && distance(state.acked, state.next) > 0;
        let expected = if is_behind { state.acked } else { state.next };
        if !state.has(mark::KNOWN) || segment.sequence == expected {
            self.marks |= whole::reset(half);
        }
    }

    /// How many bytes of a segment's data were handed on before; or what becomes of it if none is to be handed on now.
    fn place(
        &mut self,
        segment: &Segment<'_>,
        half: usize,
        pick_up: bool,
        on: &mut impl FnMut(Piece<'_>),
    ) -> Result<u32, Taken> {
        let state = &mut self.halves[half];
        if segment.has(flags::SYN) && (state.position, state.next) == (0, segment.sequence) {
            state.marks |= mark::SYN_DATA;
            return Ok(0);
        }
        let goes_on = distance(segment.sequence, state.next) >= 0;
        if segment.has(flags::SYN) {
            return Err(if goes_on { Taken::Outside } else { Taken::Old });
        }
        if goes_on {
            self.marks &= !whole::reset(half);
        }
        if self.marks & whole::reset(1 - half) != 0 {
            return Err(Taken::Outside);
        }
        if !state.has(mark::KNOWN) {
            if !pick_up {
                return Err(Taken::Outside);
            }
            state.next = segment.sequence;
            state.marks |= mark::KNOWN;
        }
        if distance(segment.sequence, state.next) > 0 {
            let acked = state.has(mark::ACKED) && distance(state.acked, segment.sequence) >= 0;
            if !acked {
                return Err(self
                    .early
                    .keep(half, state.next, segment.sequence, segment.held()));
            }
            self.pass_over(segment.sequence, half, on);
        }
        // `pass_over` may have handed on some of what this segment brings.
        let state = &self.halves[half];
        let known = state.next.wrapping_sub(segment.sequence);
        // The other end was not heard yet: if it refuses the data of the SYN, it reads these.
        if u64::from(known) > state.position || (known > 0 && state.has(mark::SYN_DATA)) {
            return Err(Taken::Outside);
        }
        match known < segment.length {
            true => Ok(known),
            false => Err(Taken::Old),
        }
    }

    /// Hands on what is new of a segment, and what is kept and was waiting for it. Kept bytes were the first, so they go before
    /// the segment's.
    fn on_new(
        &mut self,
        segment: &Segment<'_>,
        known: u32,
        half: usize,
        on: &mut impl FnMut(Piece<'_>),
    ) -> (Taken, u64) {
        let start = self.halves[half].position - u64::from(known);
        let held = segment.held();
        for _ in 0..=SPANS_MAX {
            self.hand_on_kept(half, on);
            let next = self.halves[half].next;
            let from = next.wrapping_sub(segment.sequence) as usize;
            let Some(rest) = held.get(from..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let until_kept = self
                .early
                .first(half)
                .map(|kept| kept.wrapping_sub(next) as usize);
            self.hand_on(
                &rest[..until_kept.unwrap_or(rest.len()).min(rest.len())],
                half,
                on,
            );
        }
        let behind = segment.sequence.wrapping_add(segment.length);
        if held.len() < segment.length as usize && distance(behind, self.halves[half].next) > 0 {
            // The capture was cut short: what it does not hold is passed over at once.
            self.pass_over(behind, half, on);
        }
        self.hand_on_kept(half, on);
        (Taken::New, start)
    }

    /// Gives up gaps up to a sequence number, handing on what is kept between them.
    fn pass_over(&mut self, until: u32, half: usize, on: &mut impl FnMut(Piece<'_>)) {
        for _ in 0..=SPANS_MAX {
            self.hand_on_kept(half, on);
            let next = self.halves[half].next;
            let missing = distance(until, next);
            if missing <= 0 {
                return;
            }
            let kept = self.early.first(half).map(|start| distance(start, next));
            let gap = kept.filter(|gap| (1..missing).contains(gap)).unwrap_or(missing);
            self.skip(gap as u32, half, on);
        }
    }

    fn skip(&mut self, length: u32, half: usize, on: &mut impl FnMut(Piece<'_>)) {
        let state = &mut self.halves[half];
        state.next = state.next.wrapping_add(length);
        state.position += u64::from(length);
        on(Piece::Gap { length });
    }

    fn hand_on(&mut self, bytes: &[u8], half: usize, on: &mut impl FnMut(Piece<'_>)) {
        let state = &mut self.halves[half];
        let position = state.position;
        state.next = state.next.wrapping_add(bytes.len() as u32);
        state.position += bytes.len() as u64;
        on(Piece::Bytes { bytes, position });
    }

    /// Hands on what is kept and has come to its turn.
    fn hand_on_kept(&mut self, half: usize, on: &mut impl FnMut(Piece<'_>)) {
        let state = &mut self.halves[half];
        self.early.release(half, &mut state.next, &mut |bytes| {
            let position = state.position;
            state.position += bytes.len() as u64;
            on(Piece::Bytes { bytes, position });
        });
    }
}

/// The sequence number of a segment's first byte of data: SYN has one of its own before it.
fn first_byte(tcp: &Tcp<'_>) -> u32 {
    let syn = u32::from(tcp.flags() & flags::SYN != 0);
    tcp.sequence().wrapping_add(syn)
}

struct Segment<'a> {
    /// Of its first byte of data.
    sequence: u32,
    flags: u8,
    length: u32,
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    fn has(&self, any: u8) -> bool {
        self.flags & any != 0
    }

    /// What the packet holds of its data.
    fn held(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len().min(self.length as usize)]
    }
}
