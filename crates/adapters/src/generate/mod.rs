//! A port that makes traffic: flows that begin, live and end, in virtual time, the same for the same seed.
//!
//! # Theory of operation
//!
//! `flows` keeps the flows and says which packet is due next; `packets` writes it. This module hands packets to the
//! reader, either when the worker's clock has come to their time ([`Pace::Clock`]) or as fast as they are taken
//! ([`Pace::Reader`]); the packets are the same in both cases, and so are their distances in time.
//!
//! ```text
//!   flows = 2, rate = { per_flow = 10.0 }, seed = 1        0.031 s  A  SYN
//!                                                          0.087 s  B  SYN
//!                                                          0.131 s  A  ACK, 6 bytes
//!                                                          0.187 s  B  ACK, 6 bytes …
//! ```
//!
//! What is transmitted to the port is counted and vanishes: it is also the sink at the end of a bench. Servers' answers
//! come from the generator itself (`replies`), where the chain translates nothing, or from the `reflect` port, which
//! answers what really arrives.
//!
//! Invariants (`tests::conversations`): packets depend on the profile alone, not on bursts or clocks
//! (`the_same_seed_gives_the_same_packets`); they parse and their checksums hold (`every_packet_is_sound`).
//!
//! Not here: applications' contents; all data is the beginning of one pattern. [`applications`] plays recorded ones.
//!
//! Sources: NFVactor VII-B (the short-and-long mixture), RFC 2544 and RFC 6985 (sizes), and for the distributions
//! [`distribution`].

pub mod applications;
pub mod distribution;
mod flows;
mod order;
mod packets;
pub mod profile;
mod random;
mod tuples;
mod wheel;

#[cfg(test)]
mod tests;

pub use applications::{Applications, ApplicationsProfile};
pub use distribution::Distribution;
pub use profile::{
    Class, Emit, Life, Pace, Popularity, Profile, ProfileError, Rate, SharesOf, Size, Spacing,
};

use flows::Traffic;
use packets::Pattern;
use runtime::env::{BURST, Burst, Port, PortCounters};
use wire::packet::Side;
use wire::{PacketBox, Pool};

/// A port that receives what a [`Profile`] says.
pub struct Generator {
    traffic: Traffic,
    pattern: Pattern,
    pace: Pace,
    emit: Emit,
    /// The worker's clock at the first look; 0 if it is the reader who sets the pace.
    start: Option<u64>,
    /// Packets still to be made, the other end's included.
    left: u64,
    /// The end in virtual time.
    end: u64,
    /// The worker's clock at the next packet; at once as long as nobody has looked.
    next_at: Option<u64>,
    finished: bool,
    counters: PortCounters,
}

impl Generator {
    /// A generator; reads the tables that the profile names.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        let end = profile.seconds_max.map_or(u64::MAX, |s| (s * 1e9) as u64);
        let left = profile.packets_max.unwrap_or(u64::MAX);
        Ok(Generator {
            traffic: Traffic::new(profile)?,
            pattern: Pattern::new(profile.seed),
            pace: profile.pace,
            emit: profile.emit,
            start: (profile.pace == Pace::Reader).then_some(0),
            left,
            end,
            next_at: Some(0),
            finished: left == 0 || end == 0,
            counters: PortCounters::default(),
        })
    }

    /// Flows begun so far.
    pub fn flows_begun(&self) -> u64 {
        self.traffic.begun()
    }

    fn wants(&self, from_client: bool) -> bool {
        match self.emit {
            Emit::Both => true,
            Emit::Client => from_client,
            Emit::Server => !from_client,
        }
    }

    /// Makes the packet that is due and puts it into `burst`, unless the other end's port gives it out.
    #[inline]
    fn make(&mut self, at: u64, mut packet: PacketBox, pool: &mut Pool, burst: &mut Burst) {
        let segment = self.traffic.take();
        if !self.wants(segment.from_client) {
            pool.give(packet);
        } else if self.pattern.write(&mut packet, &segment) {
            packet.set_timestamp(at);
            packet.set_side(if segment.from_client {
                Side::Inside
            } else {
                Side::Outside
            });
            self.counters.received_packets += 1;
            self.counters.received_bytes += u64::from(packet.wire_length());
            burst.push(packet);
        } else {
            self.counters.refused_packets += 1;
            pool.give(packet);
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
    }
}

impl Port for Generator {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        let start = *self.start.get_or_insert(now);
        // Bounded, too, where all that is due is the other end's.
        for _ in 0..4 * BURST {
            if self.finished || burst.is_full() {
                return;
            }
            let due = self.traffic.peek();
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
