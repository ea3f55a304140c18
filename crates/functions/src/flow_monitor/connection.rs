//! The TCP side of a flow: each end's state as an observer between them can know it, and the
//! letters its packets make.
//!
//! ```text
//!               SYN / SYN+ACK by the opener          SYN by the other end
//!   Inactive ──────────────────────────▶ SynSent ─────────────────────────▶ Established   (both ends)
//!      │                                 SynAckSent                             │
//!      │ anything else                                                          │
//!      ▼                                                                        │
//!   Partial ── FIN ──▶ Closed ◀────────────────────── FIN ──────────────────────┤
//!      │                  │ RST, while the other end is not Closed              │
//!      │                  ▼                                                     │
//!      │              ClosedReset                                               │
//!      └── RST ───▶  Reset  ◀──────────────────────── RST ──────────────────────┘
//! ```
//!
//! From both ends' states when the flow is over follows Zeek's word for the connection ([`State`]):
//!
//! ```text
//!   opener's SYN  →  reply's RST                       "Sr"         REJ
//!   opener's SYN  →  SYN+ACK → ACK, data, FIN, FIN     "ShADadFf"   SF
//! ```
//!
//! Invariants: an end never goes back to Inactive; the tests hold the table of transitions and of
//! states.
//!
//! Where Zeek knows more, because it reassembles and checks sums, this differs: no `c` (bad
//! checksum: outbound packets of a host that leaves sums to its card would all be bad) and no `g`
//! (gap). A SYN, FIN or RST repeats its letter if its sequence number is another than the last
//! one's, as in Zeek. `t` and `w` stand at the first, tenth and hundredth time.
//!
//! The opener is the end that sent the first packet, with one exception, which is Zeek's and
//! Arkime's too: the first segment is a SYN,ACK. That answers a SYN which was not seen, so the
//! opener is the end that it is sent to. The connection is *turned*, and its history begins with
//! `^`. Zeek also turns a connection whose first packet comes from a well-known port, which is a
//! guess; here it stays as it came.
//!
//! ```text
//!   192.0.2.1:80 > 10.0.0.1:1024   SYN,ACK      "^h"       opener 10.0.0.1:1024
//!   10.0.0.1:1024 > 192.0.2.1:80   ACK          "^hA"      S1
//! ```
//!
//! Not here: counting (`state`), the record (`record`).
//!
//! Source: Zeek's `TCPSessionAdapter` and `scripts/base/protocols/conn/main.zeek`, fields `history`
//! and `conn_state`.

use super::history::{History, Letter};
use crate::marks::marks;
use nf::{Direction, Plain};
use wire::tcp::{Tcp, flags};

/// The state of one end of a TCP connection.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum End {
    /// Nothing, or nothing that counts.
    #[default]
    Inactive = 0,
    /// Opened.
    SynSent = 1,
    /// Began with a SYN+ACK: the other end's SYN was not seen.
    SynAckSent = 2,
    /// Was in the midst of it when first seen.
    Partial = 3,
    /// Has a peer that answered, or answered itself.
    Established = 4,
    /// Sent a FIN.
    Closed = 5,
    /// Sent a RST.
    Reset = 6,
    /// Sent a FIN and later a RST.
    ClosedReset = 7,
}

impl End {
    fn is_reset(self) -> bool {
        matches!(self, End::Reset | End::ClosedReset)
    }

    fn is_inactive(self) -> bool {
        matches!(self, End::Inactive | End::Partial)
    }
}

/// How a connection went, in Zeek's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "`State::name` documents each")]
pub enum State {
    S0,
    S1,
    S2,
    S3,
    Sf,
    Rej,
    Rsto,
    Rstr,
    Rstos0,
    Rstrh,
    Sh,
    Shr,
    Oth,
}

impl State {
    /// The word in the record.
    pub fn name(self) -> &'static str {
        match self {
            // Attempt seen, no reply. Of UDP: only the opener sent.
            State::S0 => "S0",
            // Established, not ended.
            State::S1 => "S1",
            // Established, the opener closed, the other end did not.
            State::S2 => "S2",
            // Established, the other end closed, the opener did not.
            State::S3 => "S3",
            // Established and ended by both. Of UDP: both sent.
            State::Sf => "SF",
            // The attempt was answered with a RST.
            State::Rej => "REJ",
            // Established, the opener sent a RST.
            State::Rsto => "RSTO",
            // The other end sent a RST.
            State::Rstr => "RSTR",
            // The opener sent SYN and RST, the other end nothing.
            State::Rstos0 => "RSTOS0",
            // The other end sent a RST, the opener no SYN.
            State::Rstrh => "RSTRH",
            // The opener sent SYN and FIN, the other end no SYN+ACK.
            State::Sh => "SH",
            // The other end sent SYN+ACK and FIN, the opener no SYN. Of UDP: only the other end
            // sent.
            State::Shr => "SHR",
            // No beginning seen, and no end either; or a protocol without connections.
            State::Oth => "OTH",
        }
    }
}

/// Bits of [`Connection::seen`]: letters that stand once, or again only with another sequence
/// number.
mod seen {
    pub const SYN: u8 = 1;
    pub const FIN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PAYLOAD: u8 = 8;
    pub const ACK: u8 = 16;
    pub const QUESTIONABLE: u8 = 32;
    pub const INCONSISTENT: u8 = 64;
    /// No letter of an end's: of the opener alone, that the connection is turned.
    pub const TURNED: u8 = 128;
}

marks!(
    /// Which letters of an end stand: bits of [`seen`].
    pub Seen,
    [
        (seen::SYN, "syn"),
        (seen::FIN, "fin"),
        (seen::RST, "rst"),
        (seen::PAYLOAD, "payload"),
        (seen::ACK, "ack"),
        (seen::QUESTIONABLE, "questionable"),
        (seen::INCONSISTENT, "inconsistent"),
        (seen::TURNED, "turned"),
    ]
);

marks!(
    /// TCP flags that were seen.
    pub Flags,
    [
        (flags::FIN, "fin"),
        (flags::SYN, "syn"),
        (flags::RST, "rst"),
        (flags::PSH, "psh"),
        (flags::ACK, "ack"),
        (flags::URG, "urg"),
        (flags::ECE, "ece"),
        (flags::CWR, "cwr"),
    ]
);

/// A SYN or RST whose sequence number is farther off than this says nothing about the stream (as in
/// Zeek).
const JUMP_MAX: u32 = 1 << 20;

/// An observer's state of a TCP connection; index 0 is the opener, turned or not.
#[derive(Plain, Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Connection {
    /// One past the highest sequence number sent; after a RST, that RST's.
    pub top: [u32; 2],
    /// The letters.
    pub history: History,
    /// All TCP flags that were seen.
    pub flags: [Flags; 2],
    /// Both ends.
    pub ends: [End; 2],
    /// Which letters stand.
    pub seen: [Seen; 2],
    /// Segments whose payload had been sent before, up to 255.
    pub repeats: [u8; 2],
    /// Segments that advertised a window of zero, up to 255.
    pub zero_windows: [u8; 2],
    /// ICMP errors about the flow, up to 65,535.
    pub icmp_errors: u16,
}

impl Connection {
    /// Takes in a TCP packet; `direction` is the flow's.
    pub fn on_segment(&mut self, tcp: &Tcp<'_>, direction: Direction) {
        let segment = Segment {
            flags: tcp.flags(),
            sequence: tcp.sequence(),
            payload: tcp.payload_length(),
        };
        if segment.is_handshake() && self.flags == [Flags::default(); 2] {
            self.turn(direction);
        }
        let direction = match self.is_turned() {
            true => direction.reversed(),
            false => direction,
        };
        let me = direction as usize;
        self.flags[me] |= segment.flags;
        self.on_start(&segment, me);
        self.note(&segment, direction);
        if tcp.window() == 0
            && !segment.has(flags::RST)
            && self.ends[1 - me] != End::Closed
            && !self.ends[me].is_reset()
        {
            Self::tally(
                &mut self.zero_windows[me],
                &mut self.history,
                Letter::ZeroWindow,
                direction,
            );
        }
        self.advance(&segment, direction);
        step(&mut self.ends, &segment, direction);
    }

    /// Whether the end that opened the flow is not the connection's opener.
    #[inline]
    pub fn is_turned(&self) -> bool {
        self.seen[0] & seen::TURNED != 0
    }

    /// The first segment is a SYN,ACK: the end that it is sent to had opened.
    #[cold]
    fn turn(&mut self, direction: Direction) {
        // A SYN,ACK of the end that did not open the flow is a reply as it stands.
        if direction == Direction::Opening {
            self.seen[0] |= seen::TURNED;
            self.history.push(Letter::Turned, Direction::Opening);
        }
    }

    /// Takes in a UDP packet: as in Zeek, its history says only which end sent.
    pub fn on_datagram(&mut self, direction: Direction) {
        self.once(seen::PAYLOAD, Letter::Payload, direction);
    }

    /// The first segment of an end says where its sequence numbers begin.
    fn on_start(&mut self, segment: &Segment, me: usize) {
        if self.ends[me] == End::Inactive {
            self.top[me] = segment.sequence;
        }
    }

    fn note(&mut self, segment: &Segment, direction: Direction) {
        let me = direction as usize;
        let control = segment.flags & (flags::SYN | flags::FIN | flags::RST);
        match control {
            0 if segment.payload > 0 => self.once(seen::PAYLOAD, Letter::Payload, direction),
            0 if segment.has(flags::ACK) => self.once(seen::ACK, Letter::Ack, direction),
            0 => {}
            flags::SYN => {
                let letter = if segment.has(flags::ACK) {
                    Letter::Handshake
                } else {
                    Letter::Syn
                };
                let differs = segment.sequence.wrapping_add(1) != self.top[me];
                self.again_if(differs, seen::SYN, letter, direction);
                // Another SYN before the end closed: perhaps the one that sets the connection up.
                if differs && self.ends[me] != End::Closed && !self.ends[me].is_reset() {
                    self.top[me] = segment.sequence;
                }
            }
            flags::FIN => {
                let differs = segment.end() != self.top[me];
                self.again_if(differs, seen::FIN, Letter::Fin, direction);
            }
            flags::RST => {
                let differs = segment.sequence != self.top[me];
                self.again_if(differs, seen::RST, Letter::Reset, direction);
            }
            both if both & (flags::FIN | flags::RST) == flags::FIN | flags::RST => {
                self.once(seen::INCONSISTENT, Letter::Inconsistent, direction);
            }
            _ => self.once(seen::QUESTIONABLE, Letter::Questionable, direction),
        }
    }

    fn advance(&mut self, segment: &Segment, direction: Direction) {
        let me = direction as usize;
        let end = segment.end();
        let ahead = end.wrapping_sub(self.top[me]) as i32;
        let jumps = ahead.unsigned_abs() > JUMP_MAX && segment.has(flags::SYN | flags::RST);
        if !jumps && !self.ends[me].is_reset() {
            if ahead > 0 {
                self.top[me] = end;
            } else if segment.payload > 0 {
                Self::tally(
                    &mut self.repeats[me],
                    &mut self.history,
                    Letter::Repeat,
                    direction,
                );
            }
        }
        if segment.has(flags::RST) {
            self.top[me] = segment.sequence;
        }
    }

    fn once(&mut self, bit: u8, letter: Letter, direction: Direction) {
        self.again_if(false, bit, letter, direction);
    }

    fn again_if(&mut self, differs: bool, bit: u8, letter: Letter, direction: Direction) {
        let seen = &mut self.seen[direction as usize];
        if *seen & bit == 0 || differs {
            *seen |= bit;
            self.history.push(letter, direction);
        }
    }

    fn tally(count: &mut u8, history: &mut History, letter: Letter, direction: Direction) {
        if *count < u8::MAX {
            *count += 1;
            if matches!(*count, 1 | 10 | 100) {
                history.push(letter, direction);
            }
        }
    }

    /// Whether nothing more is to be expected: both ends closed, or one reset.
    pub fn is_over(&self) -> bool {
        self.ends == [End::Closed; 2] || self.ends.iter().any(|end| end.is_reset())
    }

    /// How a TCP connection went so far.
    pub fn tcp_state(&self) -> State {
        let [opener, other] = self.ends;
        let no_payload = (self.seen[0] | u8::from(self.seen[1])) & seen::PAYLOAD == 0;
        match (opener, other) {
            (End::SynSent | End::SynAckSent, End::Reset | End::ClosedReset) => State::Rej,
            (End::Reset | End::ClosedReset, End::Reset | End::ClosedReset) if no_payload => State::Rej,
            (_, End::Reset | End::ClosedReset) if opener.is_inactive() => State::Rstrh,
            (_, End::Reset | End::ClosedReset) => State::Rstr,
            (End::Reset | End::ClosedReset, _) if !other.is_inactive() => State::Rsto,
            (End::Reset | End::ClosedReset, _) if self.history.opener_gave_up() => State::Rstos0,
            (End::Reset | End::ClosedReset, _) => State::Oth,
            (End::Closed, End::Closed) => State::Sf,
            (End::Closed, _) if other.is_inactive() => State::Sh,
            (End::Closed, _) => State::S2,
            (_, End::Closed) if opener.is_inactive() => State::Shr,
            (_, End::Closed) => State::S3,
            (End::SynSent, End::Inactive) => State::S0,
            (End::Established, End::Established) => State::S1,
            _ => State::Oth,
        }
    }

    /// How a UDP exchange went so far.
    pub fn udp_state(&self) -> State {
        match self.seen.map(|bits| bits & seen::PAYLOAD != 0) {
            [true, true] => State::Sf,
            [true, false] => State::S0,
            [false, true] => State::Shr,
            [false, false] => State::Oth,
        }
    }
}

struct Segment {
    flags: u8,
    sequence: u32,
    payload: u32,
}

impl Segment {
    fn has(&self, any: u8) -> bool {
        self.flags & any != 0
    }

    /// SYN and ACK, and nothing that does not go with them.
    fn is_handshake(&self) -> bool {
        const CONTROLS: u8 = flags::SYN | flags::ACK | flags::FIN | flags::RST;
        self.flags & CONTROLS == flags::SYN | flags::ACK
    }

    /// One past the last sequence number it takes. A RST's payload is no part of the stream.
    fn end(&self) -> u32 {
        let payload = if self.has(flags::RST) { 0 } else { self.payload };
        let controls = u32::from(self.has(flags::SYN)) + u32::from(self.has(flags::FIN));
        self.sequence.wrapping_add(payload).wrapping_add(controls)
    }
}

/// The transition of both ends at a segment.
fn step(ends: &mut [End; 2], segment: &Segment, direction: Direction) {
    let (me, peer) = (direction as usize, 1 - direction as usize);
    match ends[me] {
        End::Inactive => first(ends, segment, direction),
        End::SynSent | End::SynAckSent => {
            if segment.has(flags::FIN) {
                ends[me] = End::Closed;
            }
            if segment.has(flags::RST) {
                ends[me] = reset(ends[me]);
            }
        }
        End::Established | End::Partial => {
            if segment.has(flags::RST) {
                ends[me] = End::Reset;
            } else if segment.has(flags::FIN) {
                ends[me] = End::Closed;
                // The peer had closed before its RST: both closed after all.
                if ends[peer] == End::ClosedReset {
                    ends[peer] = End::Closed;
                }
            } else if segment.has(flags::SYN)
                && !segment.has(flags::ACK)
                && ends == &pair(direction, End::Partial, End::Inactive)
            {
                ends[me] = End::SynSent;
            }
        }
        End::Closed => {
            if segment.has(flags::RST) && ends[peer] != End::Closed {
                ends[me] = End::ClosedReset;
            }
        }
        End::Reset | End::ClosedReset => {}
    }
}

/// The transition at the first segment of an end.
fn first(ends: &mut [End; 2], segment: &Segment, direction: Direction) {
    let (me, peer) = (direction as usize, 1 - direction as usize);
    if segment.has(flags::SYN) {
        if direction == Direction::Opening {
            ends[me] = if segment.has(flags::ACK) {
                End::SynAckSent
            } else {
                End::SynSent
            };
        } else {
            if ends[peer] == End::SynSent || (ends[peer] == End::SynAckSent && !segment.has(flags::ACK)) {
                ends[peer] = End::Established;
            }
            ends[me] = End::Established;
        }
    }
    if segment.has(flags::FIN) {
        ends[me] = End::Closed;
    }
    if segment.has(flags::RST) {
        ends[me] = reset(ends[me]);
    }
    if ends[me] != End::Inactive {
        return;
    }
    if direction == Direction::Reply && segment.payload == 0 && ends[peer] == End::SynSent {
        // Some acknowledge a SYN before they answer it.
    } else if segment.has(flags::ACK) && ends[peer] == End::Established {
        // This end's SYN was missed; the other end's SYN+ACK shows that it was there.
        ends[me] = End::Established;
    } else {
        ends[me] = End::Partial;
    }
}

fn reset(end: End) -> End {
    if end == End::Closed {
        End::ClosedReset
    } else {
        End::Reset
    }
}

fn pair(direction: Direction, me: End, peer: End) -> [End; 2] {
    match direction {
        Direction::Opening => [me, peer],
        Direction::Reply => [peer, me],
    }
}
