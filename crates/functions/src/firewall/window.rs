//! TCP's windows seen from in between: the bytes that each end can have sent, by the room that the
//! other has allowed.
//!
//! **Theory of operation.** For each half we keep `end` (behind its last byte seen), `limit` (how
//! far the other end has allowed it to send), `window` (the largest it has itself offered). A
//! segment from S to R, covering `seq..end` and acknowledging `ack`, fits if
//!
//! ```text
//!   I    seq  ≤ S.limit                  not beyond what R has room for
//!   II   end  ≥ S.end − R.window         not older than R can still be asking for
//!   III  ack  ≤ R.end                    acknowledges only what we have seen R send
//!   IV   ack  ≥ R.end − max(S.window, 66000)   and not something long ago
//! ```
//!
//! Then S.end, S.window grow, and R may send up to ack + window. With SACK, the highest block
//! counts as acknowledged.
//!
//! **Example.** R offers 1000 bytes from 501 on, so S.limit is 1501. S sends 501..1501: fits. S
//! sends 2501..: beyond I. S sends 501..1501 again: II holds as long as S.end is at most R.window
//! ahead.
//!
//! I broken by no more than a window, by a sender that otherwise fits, is *tolerated*: some stacks
//! overshoot, and R will say what it makes of it. So is a segment that is too old (II, IV): a late
//! duplicate does no harm, and dropping it would make the sender wait. A segment in the future (I,
//! III) is refused. A connection picked up in mid-stream has unknown windows, and then nothing is
//! refused.
//!
//! **Behind a recovery** the windows are unknown, too, but the ends tell them again. Each segment
//! tells its sender's place, and all that the other end has room for: that end may have sent it
//! before. When both ends have told, a segment that fits shows that they agree, and from then on
//! the windows count. A segment that does not fit (late, or forged) begins this again.
//!
//! Invariant: arithmetic is modulo 2³² throughout; nothing here can overflow.
//!
//! Sources: Guido van Rooij, "Real stateful TCP packet filtering in IP Filter" (2000), for I–IV;
//! RFC 7323 2.2 and 2.3 for scaling (the window of a SYN is never scaled; both ends must offer it);
//! RFC 2018 for SACK.

use super::segment::{Kind, Segment};
use super::state::{Connection, Half, Phase, mark, offer, option};

use wire::tcp::{TcpOptions, flags};

/// How old an acknowledgement may be at least, in bytes: a little more than the largest window
/// without scaling.
const ACK_REACH_MIN: u32 = 66_000;

/// Whether `a` comes before `b`, modulo 2³².
#[inline(always)]
pub(super) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` comes after `b`, modulo 2³².
#[inline(always)]
pub(super) fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

/// The later of the two, modulo 2³².
fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

/// How far behind an acknowledgement of an end with this window may be.
#[inline(always)]
pub(super) fn ack_reach(window: u32) -> u32 {
    window.max(ACK_REACH_MIN)
}

/// How a segment fits the windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// It does; the windows have moved.
    Inside,
    /// Not quite, but it may pass. It moves the connection no further.
    Tolerated,
    /// Neither end can have sent it.
    Outside,
}

mod kind {
    pub const SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
}

/// A SYN's options, in the form of [`offer`].
pub(super) fn offered(segment: &Segment<'_>) -> u8 {
    let mut found = 0;
    for (option, value) in segment.each_option() {
        match (option, value) {
            (kind::SCALE, [scale]) => found = (found & !offer::SCALE) | (*scale).min(14) | offer::SCALES,
            (kind::SACK_PERMITTED, []) => found |= offer::SACKS,
            _ => {}
        }
    }
    found
}

/// Takes over what a half's SYN offers.
pub(super) fn read_options(flow: &mut Connection, half: usize, segment: &Segment<'_>) {
    let found = offered(segment);
    flow.options &= !(option::of(option::SCALES | option::SACKS | option::ACKED, half));
    flow.set_scale(half, found & offer::SCALE);
    if found & offer::SCALES != 0 {
        flow.options |= option::of(option::SCALES, half);
    }
    if found & offer::SACKS != 0 {
        flow.options |= option::of(option::SACKS, half);
    }
}

/// The highest of `ack` and the right edges of SACK blocks.
fn highest_sack(options: &[u8], ack: u32) -> u32 {
    let mut highest = ack;
    for (option, value) in TcpOptions::new(options) {
        let (blocks, rest) = value.as_chunks::<8>();
        if option != kind::SACK || !rest.is_empty() {
            continue;
        }
        for block in blocks {
            let right = u32::from_be_bytes([block[4], block[5], block[6], block[7]]);
            if after(right, highest) {
                highest = right;
            }
        }
    }
    highest
}

/// Begins a half with the first segment its end sends. `true`: that is all there is to the segment.
fn begin(flow: &mut Connection, segment: &Segment<'_>, half: usize, responder: bool, sack: u32) -> bool {
    let other = 1 - half;
    let end = segment.end();
    let raw = u32::from(segment.window);
    if segment.has(flags::SYN) {
        flow.halves[half] = Half {
            end,
            limit: end,
            window: raw.max(1),
            ..flow.halves[half]
        };
        read_options(flow, half, segment);
        let both = option::of(option::SCALES, 0) | option::of(option::SCALES, 1);
        if responder && flow.options & both != both {
            flow.scales = 0;
        }
        // The second SYN of a simultaneous open acknowledges nothing.
        return !segment.has(flags::ACK);
    }
    let window = (raw << flow.scale(half)).max(1);
    let Half { acked, .. } = flow.halves[half];
    flow.halves[half] = Half {
        end,
        limit: end.wrapping_add(window),
        window,
        acked,
    };
    let receiver = &mut flow.halves[other];
    if receiver.window == 0 {
        receiver.end = sack;
        receiver.limit = sack;
    } else if sack == receiver.end.wrapping_add(1) {
        // The segment answers a keep-alive, whose sequence number is one short.
        receiver.end = sack;
    }
    false
}

/// Checks a segment of `half`'s end against the windows, and moves them if it fits.
pub(super) fn check(flow: &mut Connection, segment: &Segment<'_>, half: usize, responder: bool) -> Fit {
    let other = 1 - half;
    let end = segment.end();
    let mut ack = segment.ack;
    let mut sack = ack;
    if flow.options & option::of(option::SACKS, other) != 0 {
        sack = highest_sack(segment.options, ack);
    }
    if flow.is(mark::RELEARNS) {
        learn(flow, segment, half, responder, sack);
        return Fit::Inside;
    }
    let opening = matches!(flow.phase, Phase::TcpSynSent | Phase::TcpSynReceived);
    if flow.halves[half].window == 0 {
        if begin(flow, segment, half, responder, sack) {
            return Fit::Inside;
        }
    } else if opening && segment.has(flags::SYN) && after(end, flow.halves[half].end) {
        // The end has given up its first SYN and tries another (RFC 9293 3.4.3).
        if begin(flow, segment, half, responder, sack) && responder {
            return Fit::Inside;
        }
    }
    let (sender, receiver) = (flow.halves[half], flow.halves[other]);
    // Without ACK there is no acknowledgement to judge; some stacks set it on a RST and leave the
    // number zero.
    if !segment.has(flags::ACK) || (segment.has(flags::RST) && ack == 0) {
        ack = receiver.end;
        sack = ack;
    }
    let (seq, end) = if segment.has(flags::RST) && segment.seq == 0 && flow.phase == Phase::TcpSynSent {
        (sender.end, sender.end)
    } else {
        (segment.seq, end)
    };
    let fit = judge(&sender, &receiver, seq, end, sack);
    if fit == Fit::Inside {
        apply(flow, segment, half, end, ack, sack);
        return fit;
    }
    if fit == Fit::Tolerated && after(seq, sender.limit) {
        // Its acknowledgement must find it known.
        flow.halves[half].end = end;
    }
    if flow.options & option::LIBERAL != 0 {
        return Fit::Inside;
    }
    fit
}

/// Takes the windows from a segment behind a recovery.
fn learn(flow: &mut Connection, segment: &Segment<'_>, half: usize, responder: bool, sack: u32) {
    if segment.has(flags::SYN) {
        begin(flow, segment, half, responder, sack);
        flow.relearn();
        return;
    }
    if !segment.has(flags::ACK) || segment.has(flags::RST) {
        return;
    }
    let (end, other) = (segment.end(), 1 - half);
    let (sender, receiver) = (flow.halves[half], flow.halves[other]);
    if sender.window != 0 && receiver.window != 0 {
        if judge(&sender, &receiver, segment.seq, end, sack) == Fit::Inside {
            flow.marks &= !mark::RELEARNS;
            return apply(flow, segment, half, end, segment.ack, sack);
        }
        flow.relearn();
    }
    let window = (u32::from(segment.window) << flow.scale(half)).max(1);
    let room = sack.wrapping_add(window);
    let first = flow.halves.iter().all(|half| half.window == 0);
    let place = |known: u32, told: u32| if first { told } else { later(known, told) };
    let sender = &mut flow.halves[half];
    sender.end = place(sender.end, end);
    sender.limit = place(sender.limit, end);
    sender.window = sender
        .window
        .max(window.wrapping_add(sack.wrapping_sub(segment.ack)));
    let receiver = &mut flow.halves[other];
    receiver.end = place(receiver.end, room);
    receiver.limit = place(receiver.limit, room);
}

/// Conditions I to IV.
fn judge(sender: &Half, receiver: &Half, seq: u32, end: u32, sack: u32) -> Fit {
    let oldest = sender.end.wrapping_sub(receiver.window).wrapping_sub(1);
    let recent = after(end, oldest);
    let oldest_ack = receiver
        .end
        .wrapping_sub(ack_reach(sender.window))
        .wrapping_sub(1);
    let ack_recent = after(sack, oldest_ack);
    let ack_seen = !after(sack, receiver.end);
    if after(seq, sender.limit) {
        let overshot = end.wrapping_sub(sender.limit).wrapping_add(1);
        let tolerable =
            receiver.window != 0 && recent && ack_recent && ack_seen && overshot <= receiver.window;
        return if tolerable { Fit::Tolerated } else { Fit::Outside };
    }
    if !ack_seen {
        return Fit::Outside;
    }
    if (receiver.window != 0 && !recent) || !ack_recent {
        return Fit::Tolerated;
    }
    Fit::Inside
}

/// Moves the windows by a segment that fits.
fn apply(flow: &mut Connection, segment: &Segment<'_>, half: usize, end: u32, ack: u32, sack: u32) {
    let mut window = u32::from(segment.window);
    if !segment.has(flags::SYN) {
        window <<= flow.scale(half);
    }
    let known = option::of(option::ACKED, half);
    let acked_before = flow.options & known != 0;
    let [first, second] = &mut flow.halves;
    let (sender, receiver) = if half == 0 {
        (first, second)
    } else {
        (second, first)
    };
    // The bytes that SACK covers beyond the acknowledgement are room in the same window.
    sender.window = sender.window.max(window.wrapping_add(sack.wrapping_sub(ack)));
    if after(end, sender.end) {
        sender.end = end;
    }
    if segment.has(flags::ACK) {
        if !acked_before || after(ack, sender.acked) {
            sender.acked = ack;
        }
        flow.options |= known;
    }
    if segment.kind() == Kind::Ack {
        flow.last_end = end;
    }
    if receiver.window != 0 && after(end, sender.limit) {
        receiver.window = receiver.window.wrapping_add(end.wrapping_sub(sender.limit));
    }
    if after(sack.wrapping_add(window), receiver.limit.wrapping_sub(1)) {
        // A closed window still lets one byte through, to probe it (RFC 9293 3.8.6.1).
        receiver.limit = sack.wrapping_add(window.max(1));
    }
}
