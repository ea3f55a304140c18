//! Maglev's lookup table (Eisenbud et al., NSDI 2016, 3.4): a hash picks an entry, the entry a
//! server.
//!
//! Each server has its own order of preference over the entries, `(offset + j · skip) mod size`;
//! with a prime size each such walk meets every entry once. In turns, each server takes the first
//! entry of its walk that is still free, until none is. So shares are even to within a turn, and
//! when a server goes, little but its own entries changes hands.
//!
//! ```text
//!   size 7           turns: A 3, B 0, C 3 taken so 4, A 0 and 4 taken so 1, B 0 so 2, C 5, A 5 and 2 so 6
//!   A  3 0 4 1 5 2 6
//!   B  0 2 4 6 1 3 5    entries  0 1 2 3 4 5 6
//!   C  3 4 5 6 0 1 2             B A B A C C A        (the paper's Table 1)
//! ```
//!
//! Weights: a server saves up its weight in every round and pays the heaviest server's weight for a
//! turn; so turns are in proportion and no server has two in one round.
//!
//! Invariants: every entry is a server that is up, or "none" in all of them if no one is. The table
//! depends on names, weights, states and the seed only: all runtimes have the same one.
//!
//! Not here: connection tracking. The paper's second half of consistency is the flow's own state.

use super::policy::Load;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

/// The paper's smaller table.
pub const TABLE_SIZE_DEFAULT: u32 = 65_537;
/// 32 MiB of entries are enough.
pub const TABLE_SIZE_MAX: u32 = 1 << 24;

const NONE: u16 = u16::MAX;

/// A lookup table over the servers of one service.
pub struct Table {
    entries: Box<[Cell<u16>]>,
    walks: Vec<Walk>,
}

#[derive(Clone, Copy)]
struct Walk {
    offset: u32,
    skip: u32,
}

impl Table {
    /// An empty table; [`Table::fill`] it. `size` is a prime (checked with the configuration).
    pub fn new<'a>(size: u32, names: impl Iterator<Item = &'a str>, seed: u64) -> Self {
        let walks = names
            .map(|name| Walk {
                offset: (hash(name.as_bytes(), seed) % u64::from(size)) as u32,
                skip: (hash(name.as_bytes(), !seed) % u64::from(size - 1) + 1) as u32,
            })
            .collect();
        Table {
            entries: (0..size).map(|_| Cell::new(NONE)).collect(),
            walks,
        }
    }

    /// Index of the server for a hash, `None` if no server is up.
    #[inline]
    pub fn choose(&self, hash: u64) -> Option<usize> {
        let entry = &self.entries[(hash % self.entries.len() as u64) as usize];
        match entry.get() {
            NONE => None,
            server => Some(usize::from(server)),
        }
    }

    /// Deals the entries out again, after a change of health. Takes some milliseconds for the
    /// default size.
    pub fn fill(&self, loads: &[Load]) {
        let size = self.entries.len() as u32;
        self.entries.iter().for_each(|e| e.set(NONE));
        let heaviest = loads
            .iter()
            .filter(|l| l.takes())
            .map(|l| u32::from(l.weight))
            .max();
        let Some(heaviest) = heaviest else { return };
        let mut next: Vec<u32> = self.walks.iter().map(|w| w.offset).collect();
        let mut saved = vec![0u32; loads.len()];
        let mut free = size;
        loop {
            for (index, load) in loads.iter().enumerate().filter(|(_, l)| l.takes()) {
                saved[index] += u32::from(load.weight);
                if saved[index] < heaviest {
                    continue;
                }
                saved[index] -= heaviest;
                let entry = self.first_free(&mut next[index], self.walks[index].skip);
                entry.set(index as u16);
                free -= 1;
                if free == 0 {
                    return;
                }
            }
        }
    }

    /// Walks to the next free entry. There is one: the caller counts.
    fn first_free(&self, next: &mut u32, skip: u32) -> &Cell<u16> {
        let size = self.entries.len() as u32;
        loop {
            let entry = &self.entries[*next as usize];
            *next = (*next + skip) % size;
            if entry.get() == NONE {
                return entry;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> Vec<u16> {
        self.entries.iter().map(Cell::get).collect()
    }

    #[cfg(test)]
    pub(super) fn with_walks(size: u32, walks: &[(u32, u32)]) -> Self {
        let mut table = Table::new(size, core::iter::empty(), 0);
        table.walks = walks
            .iter()
            .map(|&(offset, skip)| Walk { offset, skip })
            .collect();
        table
    }
}

/// A hash that is the same on every machine and in every version: FNV-1a over the bytes, then the
/// finishing step of splitmix64, which spreads FNV's weak high bits.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ mix(seed);
    mix(bytes.iter().fold(start, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// The finishing step of splitmix64.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whether a number is a prime, by trial: sizes are below 2^24.
pub fn is_prime(n: u32) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}
