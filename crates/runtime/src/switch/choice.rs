//! How a runtime is chosen for a new group.

use alloc::vec::Vec;
use wire::planted;

/// How a runtime is chosen for a new group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The runtime with the smallest workload (NFVactor III-C): the fewest groups, and the handicap
    /// that [`super::placing`] adds.
    #[default]
    LeastLoaded,
    /// Runtimes one after the other (NFActor 3.2).
    RoundRobin,
    /// By the group's hash over a Maglev table: all switches choose alike, and few groups change
    /// when runtimes do.
    Maglev,
}

/// The runtimes that new groups may go to, and which is next.
pub(super) struct Choice {
    policy: Policy,
    available: Vec<u16>,
    next: usize,
    maglev: Vec<u16>,
    /// By runtime: for how many groups it counts besides those that it has here. Empty: for no
    /// more.
    handicaps: Vec<u32>,
    /// The same of the available runtimes, in their order.
    added: Vec<u64>,
}

impl Choice {
    pub fn new(policy: Policy) -> Self {
        Choice {
            policy,
            available: Vec::new(),
            next: 0,
            maglev: Vec::new(),
            handicaps: Vec::new(),
            added: Vec::new(),
        }
    }

    /// From now on runtimes count for so many groups more than they have here.
    pub fn set_handicaps(&mut self, handicaps: Vec<u32>) {
        self.handicaps = handicaps;
        self.add_handicaps();
    }

    fn add_handicaps(&mut self) {
        let handicap = |index: &u16| self.handicaps.get(usize::from(*index));
        let added = self.available.iter().map(handicap);
        self.added = added
            .map(|groups| groups.map_or(0, |groups| u64::from(*groups)))
            .collect();
    }

    /// From now on new groups may go to these.
    pub fn offer(&mut self, available: Vec<u16>) {
        if self.available == available {
            return;
        }
        self.available = available;
        self.add_handicaps();
        if self.policy == Policy::Maglev {
            self.maglev = maglev_table(&self.available);
        }
    }

    /// The runtimes that new groups may go to.
    pub fn available(&self) -> &[u16] {
        &self.available
    }

    /// A runtime for a group of this hash; `groups` says how many a runtime has.
    pub fn choose(&mut self, hash: u64, groups: impl Fn(usize) -> u64) -> Option<usize> {
        if self.policy == Policy::RoundRobin && planted::is("choice_by_history") {
            self.next = planted::turns() as usize % 7;
        }
        let chosen = self.would_choose(hash, groups);
        if self.policy == Policy::RoundRobin {
            self.next = self.after();
        }
        chosen.map(usize::from)
    }

    /// The same, and nothing comes of it.
    pub fn would_choose(&self, hash: u64, groups: impl Fn(usize) -> u64) -> Option<u16> {
        let chosen = match self.policy {
            Policy::LeastLoaded => {
                let both = self.available.iter().zip(&self.added);
                let least = both.min_by_key(|(index, added)| groups(usize::from(**index)) + **added);
                least.map(|(index, _)| index)
            }
            Policy::RoundRobin => self.available.get(self.after()),
            Policy::Maglev => self.maglev.get(hash as usize % MAGLEV_ENTRIES),
        };
        chosen.copied()
    }

    /// Whose turn is next.
    fn after(&self) -> usize {
        match self.next + 1 {
            next if next >= self.available.len() => 0,
            next => next,
        }
    }
}

/// Entries of the Maglev table: a prime well above the number of runtimes (Maglev 3.4).
const MAGLEV_ENTRIES: usize = 4093;

/// The look-up table of Maglev (NSDI 2016, 3.4) over the backends of these numbers: each has a
/// permutation of the entries, and they take turns.
fn maglev_table(backends: &[u16]) -> Vec<u16> {
    if backends.is_empty() {
        return Vec::new();
    }
    let mix = |n: u64, salt: u64| {
        let product = u128::from(n ^ salt) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    };
    let size = MAGLEV_ENTRIES as u64;
    let steps: Vec<(u64, u64)> = backends
        .iter()
        .map(|number| {
            let n = u64::from(*number) + 1;
            (
                mix(n, 0x51_7cc1_b727_2202) % size,
                1 + mix(n, 0x2545_f491_4f6c_dd1d) % (size - 1),
            )
        })
        .collect();
    let mut tried = alloc::vec![0_u64; backends.len()];
    let mut table = alloc::vec![u16::MAX; MAGLEV_ENTRIES];
    let mut filled = 0;
    loop {
        for (backend, (offset, skip)) in steps.iter().enumerate() {
            loop {
                let entry = ((offset + tried[backend] * skip) % size) as usize;
                tried[backend] += 1;
                if table[entry] == u16::MAX {
                    table[entry] = backends[backend];
                    filled += 1;
                    break;
                }
            }
            if filled == MAGLEV_ENTRIES {
                return table;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maglev_shares_are_even_and_changes_are_small() {
        let (four, five) = (maglev_table(&[0, 1, 2, 3]), maglev_table(&[0, 1, 2, 3, 4]));
        for backend in 0..4_u16 {
            let share = four.iter().filter(|b| **b == backend).count();
            assert!(share.abs_diff(MAGLEV_ENTRIES / 4) <= 1, "{share}");
        }
        let moved = four.iter().zip(&five).filter(|(a, b)| a != b).count();
        assert!(
            moved < MAGLEV_ENTRIES * 2 / 5,
            "{moved} of {MAGLEV_ENTRIES} moved for a fifth runtime"
        );
    }
}
