//! The port of every generator: hands a source's packets to the reader at their times.
//!
//! A [`Source`] says when its next packet is due, in virtual time from 0 on, and writes it. The
//! port gives it out when the worker's clock has come to that time ([`Pace::Clock`]) or as soon as
//! it is asked for ([`Pace::Reader`]), until so many packets are made or the virtual time is over.
//! With `emit` it gives out one end's packets only, and the other end's are made all the same: so
//! two ports, one for each end, together give the packets of one for both.
//!
//! ```text
//!   source: 0.031 s A, 0.087 s B, …      Clock: at start + 0.031 s, start + 0.087 s      Reader: now, now
//! ```
//!
//! Invariants: a source's packets depend on neither bursts nor clocks; a buffer that is not given
//! out goes back to its pool (`tests::conversations::the_same_seed_gives_the_same_packets`).
//!
//! Not here: the packets themselves ([`super::Conversations`], [`super::applications`]).

use super::{Emit, Pace, Profile};
use runtime::env::{BURST, Burst, Port, PortCounters};
use wire::{Packet, PacketBox, Pool};

/// Packets in the order of their times.
pub trait Source {
    /// When the next packet is due, in nanoseconds; never before the one before. `u64::MAX`: there
    /// is none.
    fn peek(&mut self) -> u64;

    /// Takes the packet that is due: writes it, with its side, if `emit` asks for it.
    fn take(&mut self, emit: Emit, packet: &mut Packet) -> Made;
}

/// The fate of a packet that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// The packet is in the buffer.
    Packet,
    /// The other end's port gives it out.
    OtherEnds,
    /// The buffer is too small.
    Refused,
}

impl Emit {
    /// Whether a packet of that end is given out.
    pub(super) fn wants(self, from_client: bool) -> bool {
        match self {
            Emit::Both => true,
            Emit::Client => from_client,
            Emit::Server => !from_client,
        }
    }
}

/// A port that receives what a source makes. Packets transmitted to it are counted and vanish.
pub struct Paced<S> {
    pub(super) source: S,
    pace: Pace,
    emit: Emit,
    /// The worker's clock at the first look; 0 if the reader sets the pace.
    start: Option<u64>,
    /// Packets still to be made, the other end's included.
    left: u64,
    /// The end in virtual time.
    end: u64,
    /// The worker's clock at the next packet; at once until the worker has looked.
    next_at: Option<u64>,
    finished: bool,
    counters: PortCounters,
}

/// The end of a run in virtual time, in nanoseconds.
pub fn end(profile: &Profile) -> u64 {
    profile.seconds_max.map_or(u64::MAX, |s| (s * 1e9) as u64)
}

impl<S: Source> Paced<S> {
    /// A port with the profile's pace, limits and `emit`.
    pub(super) fn over(source: S, profile: &Profile) -> Self {
        let end = end(profile);
        let left = profile.packets_max.unwrap_or(u64::MAX);
        Paced {
            source,
            pace: profile.pace,
            emit: profile.emit,
            start: (profile.pace == Pace::Reader).then_some(0),
            left,
            end,
            next_at: Some(0),
            finished: left == 0 || end == 0,
            counters: PortCounters::default(),
        }
    }

    /// Makes the packet that is due and puts it into `burst`, unless the other end's port gives it
    /// out.
    #[inline]
    fn make(&mut self, at: u64, mut packet: PacketBox, pool: &mut Pool, burst: &mut Burst) {
        match self.source.take(self.emit, &mut packet) {
            Made::Packet => {
                packet.set_timestamp(at);
                self.counters.received_packets += 1;
                self.counters.received_bytes += u64::from(packet.wire_length());
                burst.push(packet);
            }
            Made::OtherEnds => pool.give(packet),
            Made::Refused => {
                self.counters.refused_packets += 1;
                pool.give(packet);
            }
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
    }
}

impl<S: Source> Port for Paced<S> {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        let start = *self.start.get_or_insert(now);
        // Bounded, too, where all that is due is the other end's.
        for _ in 0..4 * BURST {
            if self.finished || burst.is_full() {
                return;
            }
            let due = self.source.peek();
            let at = start.saturating_add(due);
            self.next_at = Some(at);
            if self.left == 0 || due >= self.end {
                self.finished = true;
                self.next_at = None;
                return;
            }
            if self.pace == Pace::Clock && at > now {
                return;
            }
            let Some(packet) = pool.take() else { return };
            self.make(at, packet, pool, burst);
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        let counters = &mut self.counters;
        crate::consume(pool, burst, |packet| {
            counters.sent_packets += 1;
            counters.sent_bytes += u64::from(packet.wire_length());
        });
    }

    fn finished(&self) -> bool {
        self.finished
    }

    fn waits(&self) -> bool {
        self.pace == Pace::Reader
    }

    fn next_at(&self) -> Option<u64> {
        match self.pace {
            Pace::Reader => None,
            Pace::Clock => self.next_at,
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
