//! Which flow a later fragment belongs to: ports of first fragments, remembered for a while.
//!
//! Only the first fragment of an IP packet has the transport header. The worker shows every parsed packet to
//! [`Tracker::resolve`] before it looks for the flow; a later fragment whose first one was seen gets its ports, so both
//! have one key.
//!
//! ```text
//!   10.0.0.1 > 10.0.0.2  id 7  UDP 5000 > 53, first of several   First: (10.0.0.1, 10.0.0.2, 7, UDP) ↦ 5000, 53
//!   10.0.0.1 > 10.0.0.2  id 7  at byte 1480                      Known: ports 5000 > 53
//!   10.0.0.1 > 10.0.0.2  id 8  at byte 1480                      Unknown: ports stay 0
//! ```
//!
//! Theory of operation: a table of sets of eight places. A first fragment takes, in the set its key hashes to, the place of
//! the same key, or one that is free or out of date, or else the oldest one's. So a flood of first fragments costs
//! others their place only in the sets it hits, and the hash is seeded. Nothing is held back: a later fragment that
//! overtakes its first one is `Unknown`.
//!
//! Invariants: memory is taken at the start only; a place is never believed for longer than its version's timeout.
//!
//! Not here: putting fragments together.
//!
//! Source: RFC 791 (2.3, identification by source, destination, protocol and id), RFC 8200 4.5 (by source, destination and
//! id; the protocol is the first fragment's), 60 seconds there; 30 seconds for IPv4 as in Linux (`ipfrag_time`).

use alloc::boxed::Box;
use alloc::vec;
use wire::packet::flag;
use wire::{Addr, HashSeed, Packet, parse};

/// How long a first fragment of IPv4 is remembered, in nanoseconds.
pub const V4_TIMEOUT: u64 = 30_000_000_000;
/// How long a first fragment of IPv6 is remembered, in nanoseconds.
pub const V6_TIMEOUT: u64 = 60_000_000_000;

const PLACES: usize = 8;

/// What a packet is, as to fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// No fragment: nothing was done.
    Whole,
    /// The first of several: its ports are remembered.
    First,
    /// A later one, and it has its first one's ports now.
    Known,
    /// A later one whose first one was not seen, or too long ago: its ports are 0.
    Unknown,
}

/// What fragments of one packet have in common.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Key {
    source: Addr,
    destination: Addr,
    identification: u32,
    vlan: u16,
    /// 0 for IPv6.
    protocol: u8,
    version: u8,
}

#[derive(Clone, Copy, Default)]
struct Place {
    key: Key,
    ports: [u16; 2],
    protocol: u8,
    /// 0: the place is free.
    until: u64,
}

/// The table of first fragments of one worker.
pub struct Tracker {
    sets: Box<[[Place; PLACES]]>,
    seed: HashSeed,
}

impl Tracker {
    /// A table for at least `capacity` first fragments, rounded up to sets of eight whose number is a power of two.
    pub fn new(capacity: usize, seed: HashSeed) -> Self {
        let sets = capacity.div_ceil(PLACES).next_power_of_two();
        Tracker {
            sets: vec![[Place::default(); PLACES]; sets].into_boxed_slice(),
            seed,
        }
    }

    /// How many first fragments fit.
    pub fn capacity(&self) -> usize {
        self.sets.len() * PLACES
    }

    /// Looks at a parsed packet; `now` is the worker's clock in nanoseconds.
    #[inline]
    pub fn resolve(&mut self, packet: &mut Packet, now: u64) -> Resolution {
        if packet.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT) {
            self.resolve_fragment(packet, now)
        } else {
            Resolution::Whole
        }
    }

    #[cold]
    fn resolve_fragment(&mut self, packet: &mut Packet, now: u64) -> Resolution {
        let first = packet.has(flag::FIRST_FRAGMENT);
        let Some(key) = Key::of(packet) else {
            // Parsed, so this does not happen; and if it did, the packet would be like one never seen.
            return if first {
                Resolution::First
            } else {
                Resolution::Unknown
            };
        };
        let set = (key.hash(&self.seed) as usize) & (self.sets.len() - 1);
        let set = &mut self.sets[set];
        if first {
            // An ICMP error belongs to the flow it quotes; its later fragments cannot.
            if !packet.has(flag::ICMP_ERROR) {
                remember(set, key, packet, now);
            }
            return Resolution::First;
        }
        match set.iter().find(|place| place.until > now && place.key == key) {
            Some(place) => {
                packet.set_protocol(place.protocol);
                packet.set_ports(place.ports[0], place.ports[1]);
                Resolution::Known
            }
            None => Resolution::Unknown,
        }
    }
}

fn remember(set: &mut [Place; PLACES], key: Key, packet: &Packet, now: u64) {
    let timeout = if key.version == 4 { V4_TIMEOUT } else { V6_TIMEOUT };
    // Its own place; one that is free or out of date; the one that was there first.
    let rank = |place: &Place| match (place.until != 0 && place.key == key, place.until <= now) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => place.until,
    };
    if let Some(place) = set.iter_mut().min_by_key(|place| rank(place)) {
        *place = Place {
            key,
            ports: [packet.source_port(), packet.destination_port()],
            protocol: packet.protocol(),
            until: now.saturating_add(timeout),
        };
    }
}

impl Key {
    fn of(packet: &Packet) -> Option<Key> {
        let version = packet.version();
        let (identification, protocol) = if version == 4 {
            let bytes = packet.network().get(4..6)?;
            (
                u32::from(u16::from_be_bytes([bytes[0], bytes[1]])),
                packet.protocol(),
            )
        } else {
            (parse::fragment_identification(packet)?, 0)
        };
        Some(Key {
            source: packet.source_addr(),
            destination: packet.destination_addr(),
            identification,
            vlan: packet.vlan(),
            protocol,
            version,
        })
    }

    fn hash(&self, seed: &HashSeed) -> u64 {
        let (source, destination) = (
            u128::from_be_bytes(*self.source.octets()),
            u128::from_be_bytes(*self.destination.octets()),
        );
        let rest = u64::from(self.identification) << 32
            | u64::from(self.vlan) << 16
            | u64::from(self.protocol) << 8
            | u64::from(self.version);
        let words = [
            source as u64,
            (source >> 64) as u64,
            destination as u64,
            (destination >> 64) as u64,
            rest,
        ];
        words.iter().fold(seed.0[0], |hash, word| {
            let product = u128::from(hash ^ word) * u128::from(seed.0[1] | 1);
            (product as u64) ^ ((product >> 64) as u64) ^ seed.0[2]
        })
    }
}

#[cfg(test)]
mod tests;
