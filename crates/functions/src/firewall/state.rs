//! The firewall's state of a flow: 52 bytes of plain data.
//!
//! The first four bytes are *committed*: the phase, a few marks, and what the two ends agreed on
//! when they opened. The rest, TCP's windows, is *lazy*: it changes with every segment and is
//! learnt again after a recovery (`relearn`), unless it was copied like the rest; a mark says so
//! until that is done.
//!
//! ```text
//! phase marks scales options │ halves[0]  halves[1] │ began last_end last_ack last_window last_offer last_seen
//! └────────── 4 B ─────────┘ └──────── 32 B ───────┘ └───────────────────── 16 B ──────────────────────────┘
//! ```
//!
//! `halves[0]` belongs to the end that sent the flow's first packet, `halves[1]` to the other one,
//! whichever of them has opened the connection that is tracked now (see [`mark::REVERSED`]).
//!
//! Example: a client has opened a connection to a web server and asked for a page. `phase` is
//! `TcpEstablished`, `marks` are `REPLIED | ASSURED`; `halves[0].end` is the sequence number behind
//! the client's request, `halves[0].limit` how far the server lets it send, `halves[0].window` the
//! largest window the client has offered, `halves[0].acked` the newest byte of the server's that it
//! has acknowledged.
//!
//! Invariants: `Default` is a flow of which nothing is known; 52 bytes (asserted here); `committed`
//! fields come first (the derive's check).
//!
//! Not here: the steps from phase to phase (`tcp`, `mod`).

use crate::marks::marks;
use nf::{FlowState, Plain, Tick};

/// The phase of a flow.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// No packet has been accepted yet.
    #[default]
    New = 0,
    /// TCP: the opener has sent SYN.
    TcpSynSent,
    /// TCP: both ends have sent SYN (simultaneous open, RFC 9293 3.5).
    TcpBothSynSent,
    /// TCP: SYN has been answered by SYN and ACK.
    TcpSynReceived,
    /// TCP: data flows.
    TcpEstablished,
    /// TCP: one end has sent FIN.
    TcpFinWait,
    /// TCP: a FIN was acknowledged; the other end may still send.
    TcpCloseWait,
    /// TCP: both ends have sent FIN.
    TcpLastAck,
    /// TCP: both FINs are acknowledged.
    TcpTimeWait,
    /// TCP: reset.
    TcpClosed,
    /// UDP: one end has spoken.
    UdpUnreplied,
    /// UDP: both have.
    UdpReplied,
    /// UDP: both have, and still do two seconds after the first packet.
    UdpStream,
    /// ICMP: a query has no answer yet.
    IcmpAsked,
    /// ICMP: queries are answered.
    IcmpAnswered,
    /// Another protocol: one end has spoken.
    OtherUnreplied,
    /// Another protocol: both have.
    OtherReplied,
}

impl Phase {
    /// How many phases there are.
    pub const COUNT: usize = Phase::OtherReplied as usize + 1;

    /// Whether a TCP connection is on its way down, so that its end points may already be used
    /// again.
    pub(super) fn is_closing(self) -> bool {
        matches!(
            self,
            Phase::TcpFinWait
                | Phase::TcpCloseWait
                | Phase::TcpLastAck
                | Phase::TcpTimeWait
                | Phase::TcpClosed
        )
    }
}

/// Bits of [`Connection::marks`].
pub mod mark {
    /// A packet has come against the opening direction.
    pub const REPLIED: u8 = 1;
    /// TCP: established by a handshake, or picked up and answered.
    pub const ASSURED: u8 = 2;
    /// TCP: the connection tracked now was opened by the end that answered the flow's first one.
    pub const REVERSED: u8 = 8;
    /// ICMP: the answering end asks, too, and may.
    pub const CROSSED: u8 = 16;
    /// ICMP: and has been answered.
    pub const CROSSED_REPLIED: u8 = 32;
    /// TCP: behind a recovery the windows are learnt again; till those of both ends are known they
    /// condemn nothing.
    pub const RELEARNS: u8 = 64;
}

marks!(
    /// The marks of a flow: bits of [`mark`].
    pub Marks,
    [
        (mark::REPLIED, "replied"),
        (mark::ASSURED, "assured"),
        (mark::REVERSED, "reversed"),
        (mark::CROSSED, "crossed"),
        (mark::CROSSED_REPLIED, "crossed_replied"),
        (mark::RELEARNS, "relearns"),
    ]
);

/// Bits of [`Connection::options`]: facts learnt from TCP options. Bits for both halves stand side
/// by side, the lower one for `halves[0]`.
pub(super) mod option {
    /// The half has offered window scaling.
    pub const SCALES: u8 = 1;
    /// The half accepts selective acknowledgements.
    pub const SACKS: u8 = 4;
    /// The half has acknowledged something: `acked` counts.
    pub const ACKED: u8 = 16;
    /// Picked up in mid-stream: the windows may be wrong, so they condemn nothing.
    pub const LIBERAL: u8 = 64;
    /// A FIN has been seen where data flowed.
    pub const CLOSING: u8 = 128;

    /// The bit of one half.
    #[inline(always)]
    pub const fn of(bit: u8, half: usize) -> u8 {
        bit << half
    }
}

marks!(
    /// Facts from TCP options: bits of [`option`]. The first of two words is of the end that sent
    /// the flow's first packet.
    pub Options,
    [
        (option::SCALES, "scales_0"),
        (option::of(option::SCALES, 1), "scales_1"),
        (option::SACKS, "sacks_0"),
        (option::of(option::SACKS, 1), "sacks_1"),
        (option::ACKED, "acked_0"),
        (option::of(option::ACKED, 1), "acked_1"),
        (option::LIBERAL, "liberal"),
        (option::CLOSING, "closing"),
    ]
);

/// Bits of [`Connection::last_offer`]: scale in the low four.
pub(super) mod offer {
    /// The watched SYN's scale.
    pub const SCALE: u8 = 0x0f;
    /// It offered scaling at all.
    pub const SCALES: u8 = 0x10;
    /// It accepts selective acknowledgements.
    pub const SACKS: u8 = 0x20;
    /// A SYN went through in `TcpLastAck`: an ACK now may be a challenge (RFC 5961 4), not the last
    /// FIN's.
    pub const CHALLENGE: u8 = 0x40;
    /// Both ends sent a SYN.
    pub const SIMULTANEOUS: u8 = 0x80;
}

/// One end's half of a TCP connection, as seen from in between. All sequence numbers are modulo
/// 2³².
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Half {
    /// Behind the last byte this end has sent.
    pub end: u32,
    /// Behind the last byte the other end has left room for.
    pub limit: u32,
    /// The largest window this end has offered, scaled, in bytes; 0 when nothing is known of it.
    pub window: u32,
    /// The highest acknowledgement this end has sent.
    pub acked: u32,
}

/// A flow, as the firewall sees it.
#[derive(FlowState, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[flow_state(version = 2)]
#[repr(C)]
pub struct Connection {
    /// The stage it is in.
    pub phase: Phase,
    /// Bits of [`mark`].
    pub marks: Marks,
    /// Window scales (RFC 7323): `halves[0]`'s in the low four bits, `halves[1]`'s in the high
    /// four.
    pub scales: u8,
    /// Facts from TCP options, and whether the windows can be trusted.
    pub options: Options,
    /// TCP's windows by end.
    #[flow_state(lazy)]
    pub halves: [Half; 2],
    /// UDP: when the flow began.
    #[flow_state(lazy)]
    pub began: Tick,
    /// TCP: behind the last segment.
    #[flow_state(lazy)]
    pub last_end: u32,
    /// TCP: the acknowledgement number of an ACK that was watched while SYN had no answer.
    #[flow_state(lazy)]
    pub last_ack: u32,
    /// TCP: the window of a watched SYN.
    #[flow_state(lazy)]
    pub last_window: u16,
    /// TCP: options of a watched SYN.
    #[flow_state(lazy)]
    pub last_offer: u8,
    /// TCP: kind of the last segment and the half that sent it. ICMP: type of the last query.
    #[flow_state(lazy)]
    pub last_seen: u8,
}

const _: () = assert!(size_of::<Connection>() == 52);

impl Connection {
    /// Whether all bits are set.
    #[inline(always)]
    pub(super) fn is(&self, marks: u8) -> bool {
        self.marks & marks == marks
    }

    /// 1 when the connection tracked now was opened by `halves[1]`'s end.
    #[inline(always)]
    pub(super) fn reversed(&self) -> usize {
        usize::from(self.marks & mark::REVERSED != 0)
    }

    /// The scale of one half.
    #[inline(always)]
    pub(super) fn scale(&self, half: usize) -> u32 {
        u32::from(self.scales >> (4 * half)) & 15
    }

    /// Sets the scale of one half; RFC 7323 2.3 allows 14 at most.
    pub(super) fn set_scale(&mut self, half: usize, scale: u8) {
        let at = 4 * half;
        self.scales = (self.scales & !(15 << at)) | (scale.min(14) << at);
    }

    /// Forgets the windows, which a replica knows late or not at all: each end's next segment tells
    /// them, and till both are known they condemn nothing ([`mark::RELEARNS`]).
    pub(super) fn relearn(&mut self) {
        for half in &mut self.halves {
            half.window = 0;
        }
        self.marks |= mark::RELEARNS;
        self.options &= !(option::of(option::ACKED, 0) | option::of(option::ACKED, 1));
    }
}
