//! A port that makes traffic: flows that begin, live and end, in virtual time, the same for the
//! same seed.
//!
//! # Theory of operation
//!
//! `flows` keeps the flows and says which packet is due next; `packets` writes it; `paced` is the
//! port, which hands packets to the reader either when the worker's clock has come to their time
//! ([`Pace::Clock`]) or as fast as they are taken ([`Pace::Reader`]); the packets are the same in
//! both cases, and so are their distances in time.
//!
//! ```text
//!   flows = 2, rate = { per_flow = 10.0 }, seed = 1        0.031 s  A  SYN
//!                                                          0.087 s  B  SYN
//!                                                          0.131 s  A  ACK, 6 bytes
//!                                                          0.187 s  B  ACK, 6 bytes …
//! ```
//!
//! Packets transmitted to the port are counted and vanish: it is also the sink at the end of a
//! bench. Servers' answers come from the generator itself (`replies`), where the chain translates
//! nothing, or from the `reflect` port, which answers the packets that really arrive.
//!
//! Invariants (`tests::conversations`): packets depend on the profile alone, not on bursts or
//! clocks (`the_same_seed_gives_the_same_packets`); they parse and their checksums hold
//! (`every_packet_is_sound`).
//!
//! Not here: applications' contents; all data is the beginning of one pattern. [`applications`]
//! plays recorded ones.
//!
//! Sources: NFVactor VII-B (the short-and-long mixture), RFC 2544 and RFC 6985 (sizes), and for the
//! distributions [`distribution`].

pub mod applications;
pub mod distribution;
mod flows;
mod order;
mod paced;
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
use paced::{Made, Paced, Source};
use packets::Pattern;
use wire::Packet;
use wire::packet::Side;

/// Conversations that a [`Profile`] describes.
pub struct Conversations {
    traffic: Traffic,
    pattern: Pattern,
}

/// A port that receives what a [`Profile`] says.
pub type Generator = Paced<Conversations>;

impl Generator {
    /// A generator; reads the tables that the profile names.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        let source = Conversations {
            traffic: Traffic::new(profile)?,
            pattern: Pattern::new(profile.seed),
        };
        Ok(Paced::over(source, profile))
    }

    /// Flows begun so far.
    pub fn flows_begun(&self) -> u64 {
        self.source.traffic.begun()
    }
}

impl Source for Conversations {
    #[inline]
    fn peek(&mut self) -> u64 {
        self.traffic.peek()
    }

    #[inline]
    fn take(&mut self, emit: Emit, packet: &mut Packet) -> Made {
        let segment = self.traffic.take();
        if !emit.wants(segment.from_client) {
            return Made::OtherEnds;
        }
        if !self.pattern.write(packet, &segment) {
            return Made::Refused;
        }
        packet.set_side(if segment.from_client {
            Side::Inside
        } else {
            Side::Outside
        });
        Made::Packet
    }
}
