//! Segments that came before their turn: packets that a function holds of one direction of a flow,
//! or copies.
//!
//! ```text
//!   next = 1000      held, in the order in which they came
//!   2460..3920       ├ 1,460 bytes behind the gap
//!   3920..5380       ├
//!   2000..2500       └ of which 2460..2500 are the first one's
//! ```
//!
//! Nothing is noted of them: a segment's place is its sequence number, and of several that have one
//! byte the oldest has it. So a state and the held packets can never contradict each other,
//! whatever becomes of either: copies that are gone leave a gap.
//!
//! Each question reads the headers of all that wait; there are [`Follow::early_max`] at most, and
//! segments in order ask nothing.
//!
//! Not here: when a gap is filled or given up (the parent module).

use super::{Follow, Taken, distance};
use nf::{Cx, NetworkFunction};
use serde::de::{Deserialize, Deserializer, Error};
use wire::Packet;
use wire::tcp::flags;

/// How far behind the next byte, in bytes, an early segment may end: more than most receivers'
/// windows.
pub const AHEAD_MAX: u32 = 1 << 20;
/// [`Follow::early_max`] where nothing else is asked for: about as many as one loss on a path of
/// 100 Mbit/s and 10 ms makes early.
pub const EARLY_MAX: usize = 64;

/// The most that may be asked for.
const EARLY_MOST: u16 = 4096;

/// Reads [`Follow::early_max`] as a setting.
pub fn early_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    match u16::deserialize(deserializer)? {
        count @ 0..=EARLY_MOST => Ok(count),
        count => Err(D::Error::custom(format_args!(
            "{count} segments are more than wait for a gap; write {EARLY_MOST}, or less"
        ))),
    }
}

/// The held packets of one direction of a flow.
pub trait Early {
    /// The packets, the oldest first.
    fn held(&self) -> impl Iterator<Item = &Packet>;

    /// How many there are.
    fn count(&self) -> usize;

    /// Whether the room that all flows share has place for this packet, or for a copy of it.
    fn has_room(&self, packet: &Packet, copy: bool) -> bool;

    /// Whether any waits.
    fn waits(&self) -> bool {
        self.count() > 0
    }

    /// The fate of a segment (its sequence number and bytes) that begins behind `next`.
    fn place(&self, packet: &Packet, (start, bytes): (u32, &[u8]), next: u32, follow: Follow) -> Taken {
        let ahead = start.wrapping_sub(next) as usize;
        if bytes.is_empty() || ahead.saturating_add(bytes.len()) > AHEAD_MAX as usize {
            return Taken::Beyond;
        }
        // Seen before, by one or by several together.
        let behind = start.wrapping_add(bytes.len() as u32);
        let mut from = start;
        while let Some((held, held_bytes)) = self.at(from) {
            from = held.wrapping_add(held_bytes.len() as u32);
            if distance(behind, from) <= 0 {
                return Taken::Old;
            }
        }
        if self.count() >= follow.early_max {
            return Taken::Beyond;
        }
        match self.has_room(packet, !follow.hold) {
            true => Taken::Kept,
            false => Taken::Full,
        }
    }

    /// The oldest segment that has the byte `at`.
    fn at(&self, at: u32) -> Option<(u32, &[u8])> {
        let has = |held: &(u32, &[u8])| (at.wrapping_sub(held.0) as usize) < held.1.len();
        self.held().filter_map(segment).find(has)
    }

    /// How far behind `next` the nearest segment begins that begins behind it.
    fn ahead(&self, next: u32) -> Option<u32> {
        let ahead = |(start, _): (u32, &[u8])| u32::try_from(distance(start, next)).ok();
        let ahead = self.held().filter_map(segment).filter_map(ahead);
        ahead.filter(|ahead| *ahead > 0).min()
    }

    /// Copies the waiting bytes from `next` on, up to where an older segment has the bytes: how
    /// many.
    fn copy_at(&self, next: u32, to: &mut [u8]) -> usize {
        let mut until = to.len();
        for (start, bytes) in self.held().filter_map(segment) {
            let ahead = distance(start, next);
            if ahead > 0 {
                until = until.min(ahead as usize);
                continue;
            }
            let from = next.wrapping_sub(start) as usize;
            let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) else {
                continue;
            };
            let length = rest.len().min(until);
            to[..length].copy_from_slice(&rest[..length]);
            return length;
        }
        0
    }
}

/// Sequence number and bytes of a packet that may wait; bytes from another runtime may be anything.
pub fn segment(packet: &Packet) -> Option<(u32, &[u8])> {
    let tcp = packet.tcp()?;
    let bytes = packet.payload();
    let bytes = &bytes[..bytes.len().min(tcp.payload_length() as usize)];
    (tcp.flags() & (flags::SYN | flags::RST) == 0 && !bytes.is_empty()).then(|| (tcp.sequence(), bytes))
}

impl<F: NetworkFunction> Early for Cx<F> {
    fn held(&self) -> impl Iterator<Item = &Packet> {
        Cx::held(self)
    }

    fn count(&self) -> usize {
        self.held_count()
    }

    fn has_room(&self, packet: &Packet, copy: bool) -> bool {
        match copy {
            true => self.may_hold_copy(packet),
            false => self.may_hold(),
        }
    }
}
