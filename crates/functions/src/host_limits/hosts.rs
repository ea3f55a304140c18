//! The hosts of one instance: how many flows each has, and what is left in its buckets.
//!
//! Theory of operation. A host has an entry from its first flow on. When its last flow has gone the
//! entry stays, at the end of a list of *idle* ones: its bucket is still filling, and a host that
//! closes what it opens would otherwise have a full one each time. A host that is new takes an
//! unused entry, or the first of the idle list, which has been without flows for the longest time:
//!
//! ```text
//!   10.0.0.1 ─► 3 flows           10.0.0.9 ─► idle ─► 10.0.0.4 ─► idle ─► …        a new host takes 10.0.0.9's place
//! ```
//!
//! Invariants (checked in `tests` against an oracle): a host's count is the number of flows that
//! are counted for it here; an entry is idle exactly if it has none. Memory is taken at the start.
//!
//! Not here: the limits ([`super`]).

use super::state::{Bucket, DIRECTIONS, Host};
use alloc::vec;
use alloc::vec::Vec;
use nf::{Addr, Time};

/// A host's entry. Numbers of entries count from 1; 0 is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub host: Addr,
    /// Flows by the side that opened them.
    pub flows: [u32; DIRECTIONS],
    pub buckets: [Bucket; DIRECTIONS],
    /// Flows refused.
    pub refused: [u64; DIRECTIONS],
    /// When that was last told.
    pub told: [Time; DIRECTIONS],
    next: u32,
    older: u32,
    newer: u32,
}

impl Entry {
    fn new(host: Addr) -> Self {
        Entry {
            host,
            flows: [0; DIRECTIONS],
            buckets: [Bucket::default(); DIRECTIONS],
            refused: [0; DIRECTIONS],
            told: [Time::NEVER; DIRECTIONS],
            next: 0,
            older: 0,
            newer: 0,
        }
    }

    /// Takes in the host's refusals elsewhere, and when they were told last.
    pub fn hear(&mut self, group: &Host) {
        for direction in 0..DIRECTIONS {
            self.refused[direction] = self.refused[direction].max(group.refused[direction]);
            self.told[direction] = self.told[direction].max(group.told[direction]);
        }
    }

    fn is_idle(&self) -> bool {
        self.flows == [0; DIRECTIONS]
    }
}

/// A host's entry, and how it came to it.
pub(super) struct Entered {
    pub at: u32,
    /// It had none.
    pub new: bool,
    /// Whose place it took.
    pub displaced: Option<Entry>,
}

/// The table. See the module's page.
pub(super) struct Hosts {
    entries: Vec<Entry>,
    heads: Vec<u32>,
    capacity: usize,
    /// Both ends of the list of idle ones.
    oldest: u32,
    newest: u32,
    seed: u64,
}

impl Hosts {
    /// Room for so many hosts.
    pub fn new(capacity: usize, seed: u64) -> Self {
        let mut entries = Vec::with_capacity(capacity + 1);
        entries.push(Entry::new(Addr::UNSPECIFIED));
        Hosts {
            entries,
            heads: vec![0; (2 * capacity).next_power_of_two()],
            capacity,
            oldest: 0,
            newest: 0,
            seed,
        }
    }

    fn head(&self, host: Addr) -> usize {
        let mut hash = self.seed | 1;
        for half in host.octets().chunks_exact(8) {
            let word = half.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    pub fn find(&self, host: Addr) -> Option<u32> {
        let mut at = self.heads[self.head(host)];
        while at != 0 {
            let entry = &self.entries[at as usize];
            if entry.host == host {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// The host's entry, made if there is none; `None` if every entry has flows.
    pub fn enter(&mut self, host: Addr) -> Option<Entered> {
        if let Some(at) = self.find(host) {
            return Some(Entered {
                at,
                new: false,
                displaced: None,
            });
        }
        let (at, displaced) = if self.entries.len() <= self.capacity {
            self.entries.push(Entry::new(host));
            ((self.entries.len() - 1) as u32, None)
        } else if self.oldest != 0 {
            let at = self.oldest;
            let before = self.entries[at as usize];
            self.wake(at);
            self.unlink(at);
            self.entries[at as usize] = Entry::new(host);
            (at, Some(before))
        } else {
            return None;
        };
        let head = self.head(host);
        self.entries[at as usize].next = self.heads[head];
        self.heads[head] = at;
        self.rest(at);
        Some(Entered {
            at,
            new: true,
            displaced,
        })
    }

    pub fn at(&mut self, at: u32) -> &mut Entry {
        &mut self.entries[at as usize]
    }

    /// One more flow.
    pub fn add(&mut self, at: u32, direction: usize) {
        if self.entries[at as usize].is_idle() {
            self.wake(at);
        }
        self.entries[at as usize].flows[direction] += 1;
    }

    /// One flow less.
    pub fn leave(&mut self, host: Addr, direction: usize) {
        let found = self.find(host);
        debug_assert!(
            found.is_some_and(|at| self.entries[at as usize].flows[direction] > 0),
            "a flow is given back once"
        );
        let Some(at) = found else { return };
        let entry = &mut self.entries[at as usize];
        if entry.flows[direction] == 0 {
            return;
        }
        entry.flows[direction] -= 1;
        if entry.is_idle() {
            self.rest(at);
        }
    }

    /// Hosts that have flows or were refused some, those with the most flows first.
    pub fn top(&self, count: usize) -> Vec<Entry> {
        let all = self.entries.iter().skip(1);
        let mut known: Vec<Entry> = all
            .filter(|e| !e.is_idle() || e.refused != [0; DIRECTIONS])
            .copied()
            .collect();
        known.sort_by_key(|e| {
            let flows = u64::from(e.flows[0]) + u64::from(e.flows[1]);
            let refused = e.refused[0].saturating_add(e.refused[1]);
            (core::cmp::Reverse((flows, refused)), e.host)
        });
        known.truncate(count);
        known
    }

    /// Takes an entry out of the idle list.
    fn wake(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match older {
            0 => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            0 => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }

    /// Puts an entry at the end of the idle list.
    fn rest(&mut self, at: u32) {
        let last = core::mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (last, 0);
        match last {
            0 => self.oldest = at,
            last => self.entries[last as usize].newer = at,
        }
    }

    /// Takes an entry out of its chain.
    fn unlink(&mut self, at: u32) {
        let Entry { host, next, .. } = self.entries[at as usize];
        let head = self.head(host);
        if self.heads[head] == at {
            self.heads[head] = next;
            return;
        }
        let mut link = self.heads[head];
        while self.entries[link as usize].next != at {
            link = self.entries[link as usize].next;
        }
        self.entries[link as usize].next = next;
    }

    /// Flows in all.
    #[cfg(test)]
    pub fn flows(&self) -> u64 {
        let all = self.entries.iter().flat_map(|entry| entry.flows);
        all.map(u64::from).sum()
    }

    /// How many entries the idle list has, counted from either end.
    #[cfg(test)]
    pub fn idle(&self) -> [usize; 2] {
        let count = |first: u32, next: fn(&Entry) -> u32| {
            core::iter::successors(Some(first), |at| Some(next(&self.entries[*at as usize])))
                .take_while(|at| *at != 0)
                .inspect(|at| assert!(self.entries[*at as usize].is_idle()))
                .count()
        };
        [count(self.oldest, |e| e.newer), count(self.newest, |e| e.older)]
    }

    /// Entries in use.
    #[cfg(test)]
    pub fn known(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip(1)
    }
}
