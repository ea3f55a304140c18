//! Addresses and ports of flows, each different from the others at the same time.
//!
//! All pairs of source address and source port are numbered; flow n takes the pair at place n · m
//! mod the number of pairs, with an m that has no factor in common with it. That is a permutation
//! which looks scattered: pairs repeat only when all have been used, and then the destination is
//! another.
//!
//! ```text
//!   2 addresses, 5 ports: 10 pairs, m = 7:  flows 0 1 2 3 … take pairs 0 7 4 1 8 5 2 9 6 3, then 0 again
//! ```
//!
//! Not here: which version and protocol a flow has ([`super::flows`]).

use super::profile::{Profile, ProfileError};
use super::random::mix;
use wire::{Addr, Prefix};

/// Addresses used of one prefix at most.
const ADDRESSES_MAX: u64 = 1 << 24;

/// The addresses and ports of one IP version.
pub struct Tuples {
    sources: Pool,
    destinations: Pool,
    first_port: u16,
    ports: Vec<u16>,
    pairs: u64,
    step: u64,
    seed: u64,
    begun: u64,
}

/// Numbers of a flow's ends; [`Tuples::source`] and [`Tuples::destination`] say the addresses.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tuple {
    /// Number of the source address.
    pub source: u32,
    /// Number of the destination address.
    pub destination: u32,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// Addresses of several prefixes, numbered through.
struct Pool {
    /// First address, and how many addresses there are up to and with this prefix's.
    prefixes: Vec<(u128, u64)>,
    count: u64,
}

impl Pool {
    fn new(prefixes: &[Prefix]) -> Self {
        let mut count = 0;
        let mut numbered = Vec::new();
        for prefix in prefixes {
            let host_bits = if prefix.is_v4() { 32 } else { 128 } - u32::from(prefix.length());
            let first = u128::from_be_bytes(*prefix.addr().octets());
            let all = 1u64.checked_shl(host_bits.min(40)).unwrap_or(u64::MAX);
            // Not the network's own address, nor its broadcast address.
            let (first, usable) = match host_bits {
                0 | 1 => (first, all),
                _ => (first + 1, all - 2),
            };
            count += usable.min(ADDRESSES_MAX);
            numbered.push((first, count));
        }
        Pool {
            prefixes: numbered,
            count,
        }
    }

    #[inline]
    fn address(&self, number: u32) -> u128 {
        let number = u64::from(number);
        let mut below = 0;
        for &(first, up_to) in &self.prefixes {
            if number < up_to {
                return first + u128::from(number - below);
            }
            below = up_to;
        }
        0
    }
}

impl Tuples {
    /// The tuples of IP version 4 or 6, `None` where no prefix of a list is of that version.
    pub fn new(profile: &Profile, version: u8) -> Result<Option<Self>, ProfileError> {
        let sources = Pool::new(&Profile::prefixes("sources", &profile.sources, version)?);
        let destinations = Pool::new(&Profile::prefixes(
            "destinations",
            &profile.destinations,
            version,
        )?);
        if sources.count == 0 || destinations.count == 0 {
            return Ok(None);
        }
        let (first_port, last_port) = profile.source_ports;
        let pairs = sources.count * (u64::from(last_port - first_port) + 1);
        Ok(Some(Tuples {
            sources,
            destinations,
            first_port,
            ports: profile.destination_ports.clone(),
            pairs,
            step: step(pairs),
            seed: mix(profile.seed ^ u64::from(version)),
            begun: 0,
        }))
    }

    /// The next flow's.
    pub fn next(&mut self) -> Tuple {
        let (lap, place) = (self.begun / self.pairs, self.begun % self.pairs);
        self.begun += 1;
        let pair =
            (u128::from(place) * u128::from(self.step) + u128::from(self.seed)) % u128::from(self.pairs);
        let pair = pair as u64;
        let ends = self.destinations.count * self.ports.len() as u64;
        let end = (mix(pair ^ self.seed) % ends + lap) % ends;
        Tuple {
            source: (pair % self.sources.count) as u32,
            source_port: self.first_port + (pair / self.sources.count) as u16,
            destination: (end % self.destinations.count) as u32,
            destination_port: self.ports[(end / self.destinations.count) as usize],
        }
    }

    /// The source address, in the sixteen-byte form.
    #[inline]
    pub fn source(&self, tuple: &Tuple) -> Addr {
        Addr::v6(self.sources.address(tuple.source).to_be_bytes())
    }

    /// The destination address, in the sixteen-byte form.
    #[inline]
    pub fn destination(&self, tuple: &Tuple) -> Addr {
        Addr::v6(self.destinations.address(tuple.destination).to_be_bytes())
    }
}

/// A step near the golden section of the whole that has no factor in common with it.
fn step(pairs: u64) -> u64 {
    let near = (pairs as f64 * 0.618_033_988_749) as u64;
    (near.max(1)..).find(|s| gcd(*s, pairs) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
