//! TCP seen from in between: which segments belong to a connection, and what they do to it.
//!
//! **Theory of operation.** Neither end tells us its state; we infer it. A segment has a *kind*
//! (SYN, SYN+ACK, FIN, ACK, RST) and a *sender* (the connection's opener or its responder);
//! [`next`] gives for phase, sender and kind what follows: a phase, *watch* (let it through, change
//! nothing, but remember it: the ends may know better than we do) or *refuse*. Then `window` checks
//! that sequence and acknowledgement numbers are what the two ends can have sent, in the manner of
//! van Rooij's "Real stateful TCP packet filtering in IP Filter" (2000), which Linux's tracker
//! follows, too.
//!
//! ```text
//!              SYN                SYN+ACK                 ACK
//!   New ─────────────► SynSent ───────────► SynReceived ───────► Established
//!    │                    │ SYN from the      ▲     │                ▲   │
//!    │                    ▼ other end         │     │ FIN            │   │ FIN
//!    │               BothSynSent ─ SYN+ACK ───┘     ▼                │   ▼
//!    └── ACK, in mid-stream, if `loose` ────────────┼────────────────┘ FinWait
//!                                                   └──────────────────►│  │ ACK
//!                                                                   FIN │  ▼
//!                      SYN                   ACK                        │ CloseWait
//!   SynSent ◄─────────────── TimeWait ◄─────────────── LastAck ◄────────┴──┘ FIN
//!
//!   RST, from any phase but New ─► Closed ── SYN from the opener ─► SynSent
//! ```
//!
//! **Example.** A client sends SYN (seq 100, window 1000), the server SYN+ACK (seq 500, ack 101),
//! the client ACK. Now `halves[0]` = {end 101, limit 101 + the server's window}. A segment of the
//! client's with seq 5_000_000 lies behind that limit: it is refused as out of window, so an
//! attacker cannot blindly inject a RST or data (RFC 5961's concern).
//!
//! A few courtesies, each a case of its own in [`judge`]: a SYN to a live connection is watched,
//! since the opener may have restarted; if the responder then answers it with SYN+ACK, that is
//! believed. The ACK with which it may "challenge" the SYN (RFC 5961 4) is not mistaken for the
//! acknowledgement of a FIN. A RST must be at the sequence number expected, or merely leaves the
//! connection as it is for the challenge that follows (RFC 5961 3).
//!
//! **Invariants** (checked in `tests`): without `loose`, `Established` is only reached through a
//! SYN and a SYN+ACK; no sequence of segments panics; the established fast path (`quick`) does
//! exactly what [`judge`] would.
//!
//! Not here: rules, timeouts (`mod`), the window arithmetic (`window`).
//!
//! Sources: RFC 9293 (states, 3.10.7.4 acceptance), RFC 7323 (scaling), RFC 2018 (SACK), RFC 5961.

pub use super::segment::{Kind, Segment};
use super::state::{Connection, Half, Marks, Options, Phase, mark, offer, option};
use super::window::{self, Fit, after, before};
use wire::Packet;
use wire::packet::flag;
use wire::tcp::flags;

/// The step that follows from a phase, a sender and a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// On to a phase (or staying in it).
    To(Phase),
    /// Let it through and remember it, but believe nothing yet.
    Watch,
    /// No such segment can come here.
    Refuse,
}

/// The transitions: by phase, by sender (`false`: the opener) and by kind.
#[inline]
pub fn next(phase: Phase, responder: bool, kind: Kind) -> Step {
    let rows = TRANSITIONS.get(phase as usize).unwrap_or(&[[Step::Refuse; 5]; 2]);
    let row = &rows[usize::from(responder)];
    row.get(kind as usize).copied().unwrap_or(Step::Refuse)
}

/// The phases of TCP, in their order.
const PHASES: [Phase; 10] = [
    Phase::New,
    Phase::TcpSynSent,
    Phase::TcpBothSynSent,
    Phase::TcpSynReceived,
    Phase::TcpEstablished,
    Phase::TcpFinWait,
    Phase::TcpCloseWait,
    Phase::TcpLastAck,
    Phase::TcpTimeWait,
    Phase::TcpClosed,
];

static TRANSITIONS: [[[Step; 5]; 2]; PHASES.len()] = {
    let mut table = [[[Step::Refuse; 5]; 2]; PHASES.len()];
    let mut at = 0;
    while at < PHASES.len() {
        assert!(
            PHASES[at] as usize == at,
            "the phases of TCP come first, in this order"
        );
        table[at] = [row(PHASES[at], false), row(PHASES[at], true)];
        at += 1;
    }
    table
};

/// The steps in a phase for segments of its opener, or of its responder: by kind, in the order of
/// [`Kind`].
const fn row(phase: Phase, responder: bool) -> [Step; 5] {
    use Phase::{
        TcpBothSynSent as Both, TcpCloseWait as CloseWait, TcpClosed as Closed, TcpEstablished as Open,
        TcpFinWait as FinWait, TcpLastAck as LastAck, TcpSynReceived as Received, TcpSynSent as Sent,
        TcpTimeWait as TimeWait,
    };
    use Step::{Refuse, To, Watch};
    match (phase, responder) {
        //                             SYN          SYN+ACK       FIN           ACK            RST
        (Phase::New, false) => [To(Sent), Refuse, Refuse, To(Open), Refuse],
        (Phase::New, true) => [Refuse; 5],
        (Sent, false) => [To(Sent), Refuse, Refuse, Refuse, To(Closed)],
        (Sent, true) => [To(Both), To(Received), Refuse, Watch, To(Closed)],
        (Both, false) => [To(Both), To(Received), Refuse, Refuse, To(Closed)],
        (Both, true) => [To(Both), To(Received), Refuse, Watch, To(Closed)],
        (Received, false) => [Watch, To(Received), To(FinWait), To(Open), To(Closed)],
        (Received, true) => [Refuse, Watch, To(FinWait), To(Received), To(Closed)],
        (Open, false) => [Watch, Refuse, To(FinWait), To(Open), To(Closed)],
        (Open, true) => [Refuse, Watch, To(FinWait), To(Open), To(Closed)],
        (FinWait | CloseWait, false) => [Watch, Refuse, To(LastAck), To(CloseWait), To(Closed)],
        (FinWait | CloseWait, true) => [Refuse, Watch, To(LastAck), To(CloseWait), To(Closed)],
        (LastAck, false) => [Watch, Refuse, To(LastAck), To(TimeWait), To(Closed)],
        (LastAck, true) => [Refuse, Watch, To(LastAck), To(TimeWait), To(Closed)],
        (TimeWait, false) => [To(Sent), Refuse, To(TimeWait), To(TimeWait), To(Closed)],
        (TimeWait, true) => [To(Sent), Watch, To(TimeWait), To(TimeWait), To(Closed)],
        (Closed, false) => [To(Sent), Refuse, To(Closed), To(Closed), To(Closed)],
        (Closed, true) => [Refuse, Watch, To(Closed), To(Closed), To(Closed)],
        _ => [Refuse; 5],
    }
}

/// Why a segment is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No such segment can come in this phase.
    State,
    /// Its sequence or acknowledgement number is none that its sender can have sent.
    Window,
    /// A reset before bytes that were already acknowledged.
    Reset,
}

/// The judgement of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It passes.
    Accept,
    /// It passes, and the flow is over: a connection refused before anything was answered.
    Finish,
    /// A SYN that opens a new connection between the ends of an old one: judge it as a flow's
    /// first.
    Reopen,
    /// It does not belong to the connection.
    Refuse(Fault),
}

/// Begins a connection with a flow's first segment, sent by `half`'s end. `false`: no connection
/// begins like this.
pub fn open(flow: &mut Connection, segment: &Segment<'_>, half: usize, loose: bool) -> bool {
    let step = next(Phase::New, false, segment.kind());
    let Step::To(phase) = step else { return false };
    if phase == Phase::TcpEstablished && !loose {
        return false;
    }
    *flow = Connection {
        marks: Marks::from(if half == 0 { 0 } else { mark::REVERSED }),
        last_seen: seen(Kind::None, half),
        ..Connection::default()
    };
    let window = u32::from(segment.window).max(1);
    let end = segment.end();
    flow.halves[half] = Half {
        end,
        window,
        limit: end,
        acked: 0,
    };
    if phase == Phase::TcpSynSent {
        window::read_options(flow, half, segment);
    } else {
        // The scale of its window, and what lies behind, stay unknown.
        flow.halves[half].limit = end.wrapping_add(window);
        flow.options |= option::LIBERAL | option::of(option::SACKS, 0) | option::of(option::SACKS, 1);
    }
    true
}

/// [`Connection::last_seen`] of a segment.
#[inline(always)]
const fn seen(kind: Kind, half: usize) -> u8 {
    (kind as u8) | ((half as u8) << 4)
}

/// Judges a segment sent by `half`'s end, and takes what it tells into `flow`. A flow's first
/// segment goes through [`open`] before.
pub fn judge(flow: &mut Connection, segment: &Segment<'_>, half: usize) -> Judgement {
    let kind = segment.kind();
    let responder = half != flow.reversed();
    let before_phase = flow.phase;
    let mut to = match next(flow.phase, responder, kind) {
        Step::Refuse => return Judgement::Refuse(Fault::State),
        Step::Watch => match watch(flow, segment, kind, half, responder) {
            Some(phase) => phase,
            None => return Judgement::Accept,
        },
        // A SYN where a connection has been.
        Step::To(Phase::TcpSynSent) if before_phase >= Phase::TcpTimeWait => {
            if flow.options & option::CLOSING != 0 || flow.last_seen == seen(Kind::Rst, half) {
                return Judgement::Reopen;
            }
            match watch(flow, segment, kind, half, responder) {
                Some(phase) => phase,
                None => return Judgement::Accept,
            }
        }
        Step::To(phase) => phase,
    };
    match to {
        Phase::TcpTimeWait if is_challenge(flow, kind, half) => {
            flow.last_offer &= !offer::CHALLENGE;
            return Judgement::Accept;
        }
        Phase::TcpBothSynSent => flow.last_offer |= offer::SIMULTANEOUS,
        Phase::TcpSynReceived
            if responder && kind == Kind::Ack && flow.last_offer & offer::SIMULTANEOUS != 0 =>
        {
            to = Phase::TcpEstablished;
        }
        _ => {}
    }
    let reset = match kind {
        Kind::Rst => judge_reset(flow, segment, half, responder),
        _ => Reset::ByWindow,
    };
    match reset {
        Reset::Refuse => return Judgement::Refuse(Fault::Reset),
        Reset::Believe => {}
        Reset::ByWindow | Reset::Challenged => {
            if reset == Reset::Challenged {
                to = before_phase;
            }
            match window::check(flow, segment, half, responder) {
                Fit::Inside => {}
                Fit::Tolerated => return Judgement::Accept,
                Fit::Outside => return Judgement::Refuse(Fault::Window),
            }
        }
    }
    flow.last_seen = seen(kind, half);
    advance(flow, before_phase, to);
    if kind == Kind::Rst && !flow.is(mark::REPLIED) {
        return Judgement::Finish;
    }
    Judgement::Accept
}

/// Takes note of a segment that passes unbelieved. If it is a SYN+ACK that answers a SYN which
/// passed so before, then the two ends have agreed behind our back on a new connection: we follow
/// them, and the answer is the phase to go to.
fn watch(
    flow: &mut Connection,
    segment: &Segment<'_>,
    kind: Kind,
    half: usize,
    responder: bool,
) -> Option<Phase> {
    let other = 1 - half;
    if kind == Kind::SynAck && flow.last_seen == seen(Kind::Syn, other) && segment.ack == flow.last_end {
        flow.halves[other] = Half {
            end: flow.last_end,
            limit: flow.last_end,
            window: u32::from(flow.last_window).max(1),
            acked: 0,
        };
        flow.halves[half] = Half::default();
        flow.scales = 0;
        flow.set_scale(other, flow.last_offer & offer::SCALE);
        flow.options = Options::default();
        flow.marks &= !mark::RELEARNS;
        if flow.last_offer & offer::SCALES != 0 {
            flow.options |= option::of(option::SCALES, other);
        }
        if flow.last_offer & offer::SACKS != 0 {
            flow.options |= option::of(option::SACKS, other);
        }
        flow.last_offer &= !offer::CHALLENGE;
        return Some(Phase::TcpSynReceived);
    }
    flow.last_seen = seen(kind, half);
    flow.last_end = segment.end();
    flow.last_window = segment.window;
    if kind == Kind::Syn && !responder {
        flow.last_offer = window::offered(segment);
        if flow.phase == Phase::TcpLastAck {
            flow.last_offer |= offer::CHALLENGE;
        }
    }
    if flow.phase == Phase::TcpSynSent && kind == Kind::Ack && responder {
        flow.last_ack = segment.ack;
    }
    None
}

/// Whether an ACK that seems to acknowledge the last FIN answers a SYN that went through before.
fn is_challenge(flow: &Connection, kind: Kind, half: usize) -> bool {
    flow.phase == Phase::TcpLastAck
        && kind == Kind::Ack
        && flow.last_seen == seen(Kind::Syn, 1 - half)
        && flow.last_offer & offer::CHALLENGE != 0
}

/// The worth of a RST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reset {
    /// Believed as it stands.
    Believe,
    /// Believed if it fits the windows.
    ByWindow,
    /// Passes if it fits the windows, but the connection stays: its receiver will challenge it.
    Challenged,
    /// A forgery or a straggler.
    Refuse,
}

fn judge_reset(flow: &Connection, segment: &Segment<'_>, half: usize, responder: bool) -> Reset {
    let other = 1 - half;
    // The ends may long use the same ports again; the old state would only be in the way.
    if flow.phase.is_closing() {
        return Reset::Believe;
    }
    let assured_open = flow.phase == Phase::TcpEstablished && flow.is(mark::ASSURED);
    let last_kind = flow.last_seen & 15;
    // The numbers of a watched SYN are not in `acked`.
    if flow.options & option::of(option::ACKED, other) != 0 && last_kind != Kind::Syn as u8 {
        let expected = flow.halves[other].acked;
        // An answer to a SYN that passed unbelieved has sequence number 0 (RFC 9293 3.5.2).
        if segment.seq == 0 && !assured_open {
            return Reset::ByWindow;
        }
        if before(segment.seq, expected) {
            return Reset::Refuse;
        }
        let follows_own = flow.last_seen == seen(Kind::Ack, half) && segment.seq == flow.last_end;
        if !assured_open || segment.seq == expected || follows_own {
            return Reset::ByWindow;
        }
        return Reset::Challenged;
    }
    // The reset answers a SYN, or an ACK to our half-open connection, that passed unbelieved: the
    // windows know nothing of those.
    let answers_watched = (flow.is(mark::REPLIED) && last_kind == Kind::Syn as u8)
        || (!flow.is(mark::ASSURED) && last_kind == Kind::Ack as u8);
    if answers_watched && segment.ack == flow.last_end {
        return Reset::Believe;
    }
    // The reset answers the challenge to a SYN.
    if flow.phase == Phase::TcpSynSent
        && !responder
        && flow.last_seen == seen(Kind::Ack, other)
        && segment.seq == flow.last_ack
    {
        return Reset::Believe;
    }
    Reset::ByWindow
}

/// Takes an accepted segment's effect on phase and marks.
fn advance(flow: &mut Connection, from: Phase, to: Phase) {
    flow.phase = to;
    if to == Phase::TcpFinWait && from != to {
        flow.options |= option::CLOSING;
    }
    if flow.is(mark::REPLIED)
        && to == Phase::TcpEstablished
        && matches!(from, Phase::TcpSynReceived | Phase::TcpEstablished)
    {
        flow.marks |= mark::ASSURED;
    }
}

/// Packets that are more than one plain segment.
const NOT_PLAIN: u16 = flag::LATER_FRAGMENT | flag::FIRST_FRAGMENT | flag::ICMP_ERROR | flag::CUT_SHORT;
/// The committed bytes that [`quick`] looks at …
const HEAD: u32 = u32::from_le_bytes([
    0xff,
    mark::REPLIED | mark::ASSURED,
    0,
    option::of(option::ACKED, 0) | option::of(option::ACKED, 1),
]);
/// … and what they are in an established connection whose windows are known.
const SETTLED: u32 = u32::from_le_bytes([
    Phase::TcpEstablished as u8,
    mark::REPLIED | mark::ASSURED,
    0,
    option::of(option::ACKED, 0) | option::of(option::ACKED, 1),
]);

/// The fast path: a plain segment, in window, of an established connection. `false`, and nothing
/// changed, for anything else; [`judge`] then decides.
#[inline(always)]
pub(super) fn quick(flow: &mut Connection, packet: &Packet, half: usize) -> bool {
    let head = u32::from_le_bytes([
        flow.phase as u8,
        flow.marks.into(),
        flow.scales,
        flow.options.into(),
    ]);
    if head & HEAD != SETTLED || packet.has(NOT_PLAIN) {
        return false;
    }
    let header = packet.transport();
    let Some(fixed) = header.first_chunk::<20>() else {
        return false;
    };
    if fixed[13] & (flags::FIN | flags::SYN | flags::RST | flags::ACK) != flags::ACK {
        return false;
    }
    let data_at = packet.payload_offset() - packet.transport_offset();
    if data_at != 20 && !(data_at == 32 && has_only_timestamps(header)) {
        return false;
    }
    let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let (seq, ack) = (word(4), word(8));
    let end = seq.wrapping_add((header.len() - data_at) as u32);
    let window = u32::from(u16::from_be_bytes([fixed[14], fixed[15]])) << flow.scale(half);
    // Which half sends is as good as random to the branch predictor: indices, no branches.
    let (from, to) = (half & 1, (half & 1) ^ 1);
    let (sender, receiver) = (flow.halves[from], flow.halves[to]);
    // One sum of faults in place of four branches: in a healthy connection none of them is ever
    // taken. Both halves' windows are known, since both have acknowledged something (`HEAD`).
    let fault = after(end, sender.limit)
        | after(ack, receiver.end)
        | !after(end, sender.end.wrapping_sub(receiver.window).wrapping_sub(1))
        | !after(
            ack,
            receiver
                .end
                .wrapping_sub(window::ack_reach(sender.window))
                .wrapping_sub(1),
        );
    if fault {
        return false;
    }
    let room = ack.wrapping_add(window);
    flow.halves[from].window = sender.window.max(window);
    flow.halves[from].end = if after(end, sender.end) { end } else { sender.end };
    flow.halves[from].acked = if after(ack, sender.acked) {
        ack
    } else {
        sender.acked
    };
    flow.halves[to].limit = if after(room, receiver.limit.wrapping_sub(1)) {
        // As in `window`: a closed window still lets one byte through.
        room.wrapping_add(u32::from(window == 0))
    } else {
        receiver.limit
    };
    flow.last_seen = seen(Kind::Ack, half);
    flow.last_end = end;
    true
}

/// Whether the twelve bytes of options are the usual ones: two fillers and a timestamp. Any others
/// may be a SACK.
#[inline(always)]
fn has_only_timestamps(header: &[u8]) -> bool {
    matches!(header.get(20..24), Some([1, 1, 8, 10]))
}
