//! TCP streams as an observer in between sees them: every byte once, in order, from a small, plain
//! state.
//!
//! **Theory of operation.** Each direction has the sequence number that comes next. A segment that
//! begins there is handed on at once, straight from the packet; bytes of it that have been handed
//! on before (a retransmission) are cut off. A segment that comes too early waits as a held packet
//! of its flow ([`Early`]), or as a held copy where the segment itself goes on, and is handed on
//! when the gap before it is filled.
//!
//! ```text
//!   next = 1000                                    handed on            waits           next
//!   1000 "GET /et"   in order                      "GET /et"                            1007
//!   1010 " HTTP/1"   early                                              1010..1017      1007
//!   1003 " /etc/p"   three bytes are new           "c/p", " HTTP/1"                     1017
//!   1000 "GET /et"   seen before                   nothing                              1017
//! ```
//!
//! The state has numbers only. Early bytes stand in packet buffers, of which all flows of a runtime
//! share a bounded number; they move with the flow as held packets do (docs/decisions/0015). A
//! caller asks [`Streams::accept`] what a segment is, judges it, and then does what its verdict and
//! [`Taken`] say: holds it, or a copy, and lets go of what [`Streams::has_read`]. A segment that
//! the caller drops leaves no trace: the caller puts the state back as it was.
//!
//! **Where segments overlap the first wins.** A byte that was handed on or waits is never replaced
//! by what a later segment says of its place (Suricata's default, BSD, prefers the old as well
//! where the new segment does not begin before it). The two are not compared: bytes that were
//! handed on are not here any more.
//!
//! **Bounds.** Of one direction of a flow [`Follow::early_max`] segments wait, none of which ends
//! further than [`AHEAD_MAX`] behind the next byte; of all flows together as many as the runtime
//! holds packets. Another segment is [`Taken::Beyond`] or [`Taken::Full`]: it is not part of the
//! stream. A caller that must look at every byte looks at it by itself, or drops it, so that it is
//! sent again in order.
//!
//! **Gaps.** Bytes that the receiver has acknowledged and that were not seen here are lost to us:
//! when a later segment comes, the bytes missing before it, as far as they were acknowledged, are
//! reported ([`Piece::Gap`]) and passed over. An acknowledgement alone never moves anything: an
//! acknowledgement of bytes that have not been sent would make us blind for it.
//!
//! **Openings.** A stream begins with SYN; a segment that begins before the first byte is not part
//! of it. Data on a SYN are handed on at once. The first acknowledgement of the other end shows
//! whether it has taken them (RFC 7413); if not, the stream is at its beginning again
//! ([`Accepted::refused`]). Only where the old stream is closed, by RST or two FINs, does a SYN
//! begin a new stream; any other SYN is not believed. A stream whose beginning was not seen is
//! picked up where that is asked for.
//!
//! **Resets.** A reset counts if its number is the next (RFC 9293 3.10.7.4, RFC 5961 3.2); windows
//! are not known here. Later data of its receiver are part of no stream. Later data of its sender
//! show that the reset was none. A FIN counts if its number is the next, or the other end has
//! acknowledged it: else a SYN behind two forged ones would begin a stream in the middle of
//! another.
//!
//! **Invariants.** Bytes handed on are, in order and once each, those at their positions in the
//! first segment that had them (`every_byte_is_handed_on_once`); [`Half::position`] counts bytes
//! handed on and passed over; whatever bytes the state is made of, and whatever packets are held,
//! nothing here panics (`any_state_is_served`).
//!
//! Not here: windows and the validity of resets (`firewall`), the content of the stream (`ids`,
//! `http_parser`), checksums.
//!
//! Sources: RFC 9293 3.4 and 3.10, RFC 7413, RFC 5722 and Ptacek and Newsham 1998 for what overlaps
//! do to observers.

mod early;
#[cfg(test)]
mod tests;

pub use early::{AHEAD_MAX, EARLY_MAX, Early, early_max};

use crate::marks::marks;
use nf::Plain;
use wire::Packet;
use wire::tcp::{Tcp, flags};

/// How streams are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Follow {
    /// Whether streams are begun whose SYN was not seen.
    pub pick_up: bool,
    /// How many early segments of one direction wait for a gap, at most.
    pub early_max: usize,
    /// Whether early segments are held themselves; else copies are.
    pub hold: bool,
}

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

marks!(
    /// The marks of a direction: bits of [`mark`].
    Marks,
    [
        (mark::KNOWN, "known"),
        (mark::SYN, "syn"),
        (mark::FIN, "fin"),
        (mark::ACKED, "acked"),
        (mark::SYN_DATA, "syn_data"),
    ]
);

/// One direction.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Half {
    /// Bytes handed on and passed over so far; it stays at the largest number there is.
    position: u64,
    /// Sequence number of the next byte.
    next: u32,
    /// Behind what the other direction has acknowledged of this one.
    acked: u32,
    /// Sequence number of its FIN, if that was seen.
    fin: u32,
    /// Bits of [`mark`].
    marks: Marks,
    reserved: [u8; 3],
}

impl Half {
    fn has(&self, marks: u8) -> bool {
        self.marks & marks == marks
    }

    /// Whether its FIN is behind all that it has sent: it is the next, or the other end has taken
    /// it.
    pub fn has_ended(&self) -> bool {
        let ahead = distance(self.fin, self.next);
        let is_acknowledged = self.has(mark::ACKED) && distance(self.acked, self.fin) > 0;
        self.has(mark::FIN) && (!self.has(mark::KNOWN) || ahead == 0 || (ahead > 0 && is_acknowledged))
    }

    /// A FIN with this sequence number was seen; of several the one that ends the direction counts.
    fn on_fin(&mut self, number: u32) {
        if !self.has_ended() {
            (self.fin, self.marks) = (number, self.marks | mark::FIN);
        }
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

marks!(
    /// The marks of a connection: bits of [`whole`].
    Whole,
    [
        (whole::ESTABLISHED, "established"),
        (whole::REVERSED, "reversed"),
        (whole::reset(0), "reset_0"),
        (whole::reset(1), "reset_1"),
    ]
);

/// Both directions of a connection. Index 0 is the direction of the flow's first packet.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Streams {
    halves: [Half; 2],
    marks: Whole,
    reserved: [u8; 7],
}

/// A piece that is handed on.
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

/// The fate of a segment's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// There was none.
    Nothing,
    /// At least some of it was new and handed on; or there was none, and something that waited was.
    New,
    /// All of it had been handed on or waits.
    Old,
    /// It came early: if it is held, or a copy, it is handed on when the gap before it is filled.
    /// There is room.
    Kept,
    /// It came early, and too far ahead, or too many of its direction wait: not part of the stream.
    Beyond,
    /// It came early, and the room that all flows share is full: not part of the stream.
    Full,
    /// It belongs to no stream known here: before the first byte, behind a reset, or the beginning
    /// was not seen.
    Outside,
}

/// The fate of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// A new connection begins: the state of an old one is void.
    pub begins: bool,
    /// The direction's numbers are new: its held packets are of an old connection.
    pub renumbered: bool,
    /// The fate of its data.
    pub taken: Taken,
    /// With [`Taken::New`]: how many bytes of this direction come before its first one.
    pub start: u64,
    /// This direction did not take the data of the other direction's SYN: they are void.
    pub refused: bool,
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

    /// Whether the connection was seen to be established: SYN both ways and an acknowledgement; or,
    /// where it was picked up, data both ways.
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
        self.marks & (whole::reset(0) | whole::reset(1)) != 0 || self.halves.iter().all(Half::has_ended)
    }

    /// Whether all of a held segment of direction `half` has been handed on: nothing waits in it.
    pub fn has_read(&self, half: usize, held: &Packet) -> bool {
        let state = &self.halves[half & 1];
        early::segment(held).is_none_or(|(start, bytes)| {
            let behind = start.wrapping_add(bytes.len() as u32);
            !state.has(mark::KNOWN) || distance(behind, state.next) <= 0
        })
    }

    /// Takes in a TCP packet of direction `half` and hands on what of the stream it makes known,
    /// with `early`, where early segments of that direction wait.
    pub fn accept<E: Early>(
        &mut self,
        packet: &Packet,
        half: usize,
        follow: Follow,
        early: &mut E,
        on: &mut impl FnMut(&mut E, Piece<'_>),
    ) -> Accepted {
        let half = half & 1;
        let mut accepted = Accepted {
            begins: false,
            renumbered: false,
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
            (accepted.begins, accepted.renumbered) = self.on_syn(&segment, half);
        }
        if segment.has(flags::ACK) {
            accepted.refused = self.on_acknowledgement(&segment, tcp.acknowledgement(), half);
        }
        if segment.has(flags::RST) {
            // A reset's payload is no part of the stream (RFC 9293 3.5.3).
            self.on_reset(&segment, half);
            return accepted;
        }
        let mut run = Run {
            half,
            state: &mut self.halves[half],
            marks: &mut self.marks,
            early,
            on,
        };
        if segment.length > 0 {
            (accepted.taken, accepted.start) = match run.place(&segment, packet, follow) {
                Ok(known) => run.on_new(&segment, known),
                Err(taken) => (taken, 0),
            };
        } else if segment.has(flags::FIN) {
            let start = run.state.position;
            run.pass_over_lost(segment.sequence);
            if run.state.position != start {
                (accepted.taken, accepted.start) = (Taken::New, run.state.position);
            }
        }
        if segment.has(flags::FIN) {
            self.halves[half].on_fin(segment.sequence.wrapping_add(segment.length));
        }
        accepted
    }

    /// Whether a packet begins a connection, so that all that was read of an old connection is
    /// void.
    pub fn begins(&self, packet: &Packet) -> bool {
        let flags = packet.tcp().map_or(0, |tcp| tcp.flags());
        let answers = flags & flags::ACK != 0;
        flags & flags::SYN != 0 && (self.is_fresh() || (self.is_closed() && !answers))
    }

    fn is_fresh(&self) -> bool {
        self.halves.iter().all(|half| half.marks == Marks::default())
    }

    /// Whether a new connection begins, and whether the direction's numbers do.
    fn on_syn(&mut self, segment: &Segment<'_>, half: usize) -> (bool, bool) {
        let answers = segment.has(flags::ACK);
        let fresh = self.is_fresh();
        let again = !fresh && self.is_closed() && !answers;
        if again {
            *self = Streams::default();
            self.marks = Whole::from(if half == 1 { whole::REVERSED } else { 0 });
        } else if fresh && answers {
            // The client is the other one.
            self.marks |= if half == 0 { whole::REVERSED } else { 0 };
        }
        let renumbered = !self.halves[half].has(mark::KNOWN);
        if renumbered {
            self.halves[half] = Half {
                next: segment.sequence,
                marks: self.halves[half].marks | mark::KNOWN | mark::SYN,
                ..self.halves[half]
            };
        }
        (fresh || again, renumbered)
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
}

/// One segment's way into its direction.
struct Run<'r, E, F> {
    half: usize,
    state: &'r mut Half,
    /// Of both directions.
    marks: &'r mut Whole,
    early: &'r mut E,
    on: &'r mut F,
}

impl<E: Early, F: FnMut(&mut E, Piece<'_>)> Run<'_, E, F> {
    /// How many bytes of a segment's data were handed on before; or the segment's fate if none is
    /// to be handed on now.
    fn place(&mut self, segment: &Segment<'_>, packet: &Packet, follow: Follow) -> Result<u32, Taken> {
        let state = &mut *self.state;
        if segment.has(flags::SYN) && (state.position, state.next) == (0, segment.sequence) {
            state.marks |= mark::SYN_DATA;
            return Ok(0);
        }
        let goes_on = distance(segment.sequence, state.next) >= 0;
        if segment.has(flags::SYN) {
            return Err(if goes_on { Taken::Outside } else { Taken::Old });
        }
        if goes_on {
            *self.marks &= !whole::reset(self.half);
        }
        if *self.marks & whole::reset(1 - self.half) != 0 {
            return Err(Taken::Outside);
        }
        if !self.state.has(mark::KNOWN) {
            if !follow.pick_up {
                return Err(Taken::Outside);
            }
            self.state.next = segment.sequence;
            self.state.marks |= mark::KNOWN;
        }
        if distance(segment.sequence, self.state.next) > 0 {
            self.pass_over_lost(segment.sequence);
            if distance(segment.sequence, self.state.next) > 0 {
                let held = (segment.sequence, segment.held());
                return Err(self.early.place(packet, held, self.state.next, follow));
            }
        }
        // `pass_over` may have handed on some of what this segment brings.
        let known = self.state.next.wrapping_sub(segment.sequence);
        // The other end was not heard yet: if it refuses the data of the SYN, it reads these.
        if u64::from(known) > self.state.position || (known > 0 && self.state.has(mark::SYN_DATA)) {
            return Err(Taken::Outside);
        }
        match known < segment.length {
            true => Ok(known),
            false => Err(Taken::Old),
        }
    }

    /// Passes over bytes that were lost before a segment, as far as the other end has them.
    fn pass_over_lost(&mut self, segment: u32) {
        let is_void = *self.marks & whole::reset(1 - self.half) != 0;
        if self.state.has(mark::KNOWN | mark::ACKED) && !is_void {
            // No further than this segment: its sender may not have sent what lies behind.
            let is_behind = distance(self.state.acked, segment) > 0;
            self.pass_over(if is_behind { segment } else { self.state.acked });
        }
    }

    /// Hands on the new bytes of a segment, and those that waited for it. Waiting bytes were the
    /// first, so they go before the segment's.
    fn on_new(&mut self, segment: &Segment<'_>, known: u32) -> (Taken, u64) {
        let start = self.state.position - u64::from(known);
        let held = segment.held();
        loop {
            self.hand_on_waiting();
            let next = self.state.next;
            let from = next.wrapping_sub(segment.sequence) as usize;
            let Some(rest) = held.get(from..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            // At least one byte: waiting bytes begin behind the next one.
            let until = self.early.ahead(next).map_or(rest.len(), |ahead| ahead as usize);
            self.hand_on(&rest[..until.min(rest.len())]);
        }
        let behind = segment.sequence.wrapping_add(segment.length);
        if held.len() < segment.length as usize && distance(behind, self.state.next) > 0 {
            // The capture was cut short: bytes that it does not hold are passed over at once.
            self.pass_over(behind);
        }
        self.hand_on_waiting();
        (Taken::New, start)
    }

    /// Gives up gaps up to a sequence number, handing on what waits between them.
    fn pass_over(&mut self, until: u32) {
        loop {
            self.hand_on_waiting();
            let next = self.state.next;
            let missing = distance(until, next);
            if missing <= 0 {
                return;
            }
            let gap = self
                .early
                .ahead(next)
                .map_or(missing, |ahead| missing.min(ahead as i32));
            self.skip(gap as u32);
        }
    }

    fn skip(&mut self, length: u32) {
        self.state.next = self.state.next.wrapping_add(length);
        self.state.position = self.state.position.saturating_add(length.into());
        (self.on)(self.early, Piece::Gap { length });
    }

    fn hand_on(&mut self, bytes: &[u8]) {
        let position = self.state.position;
        self.state.next = self.state.next.wrapping_add(bytes.len() as u32);
        self.state.position = position.saturating_add(bytes.len() as u64);
        (self.on)(self.early, Piece::Bytes { bytes, position });
    }

    /// Hands on the waiting bytes that have come to their turn.
    fn hand_on_waiting(&mut self) {
        if !self.early.waits() {
            return;
        }
        // The function whose packet it is may be what `on` needs, too: so the bytes go through a
        // buffer.
        let mut bytes = [0; 2048];
        loop {
            let length = self.early.copy_at(self.state.next, &mut bytes);
            if length == 0 {
                return;
            }
            self.hand_on(&bytes[..length]);
        }
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

    /// The data that the packet holds.
    fn held(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len().min(self.length as usize)]
    }
}
