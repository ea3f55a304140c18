//! By which configuration a copied flow goes, and which of its chains in the configuration in force
//! at the heir it goes on with.
//!
//! # Theory of operation
//!
//! Members change their configuration one by one, and each asks its flows some a step
//! ([`crate::runner::change`]). Meanwhile copies of one primary are of two configurations, and
//! neither need be the heir's. So the copy of a flow has the *generation*, the low bits of the
//! number that its configuration has at the primary, and the primary says once what it means by
//! that: a record *plan*, with the base and with each change.
//!
//! ```text
//!   primary                                              heir, when the primary has failed
//!   plan: generation, identity, chains: layout, name ──► known, the last few
//!   flow: generation, chain, … ───────────────────────►  same identity ──► same chain, arrived(Recovered)
//!                                                        another ──► chain of the same layout, by name if there is one
//!                                                                      ├─► recovered_of_before: goes on, or ends behind the recovery
//!                                                                      └─► no such chain: lost
//! ```
//!
//! The *identity* is the digest by which links compare configurations ([`Plan::known_by`]), or in
//! one process the number: numbers of several processes say nothing of each other. The digest of
//! the ledger ([`Layout`]) tells which states a chain's flows keep.
//!
//! An heir that has prepared the very configuration of a copy waits for it, as long as it would
//! wait for switches. An heir that lags without having prepared it judges by its own, as it judges
//! all that comes to it; when it follows, it asks again.
//!
//! A flow that is *cut* stays as it is until all flows of the recovery are there: its group is
//! not to end before its other flows have come. No packet passes by it meanwhile: the first one
//! ends it.
//!
//! Invariants: no state is read by another layout than it was written by; a flow that other
//! settings let in is asked before its first packet; of a primary no more plans are known than
//! [`KNOWN_MAX`].

use super::keeper::Copies;
use super::ledger::form::{Layout, layouts};
use crate::chain::{CHAINS_MAX, Plan};
use crate::parts::Core;
use crate::record::Copy;
use alloc::vec::Vec;

/// Plans of a primary that are known: two that its flows are of, and two whose flows it may have
/// yet to send again.
const KNOWN_MAX: usize = 4;
/// Bytes of a chain in a record.
const CHAIN: usize = 16;

/// The configurations that a primary's generations stand for.
#[derive(Default)]
pub(crate) struct Generations(Vec<Known>);

struct Known {
    generation: u8,
    identity: u64,
    chains: Vec<Layout>,
}

/// Whether these may be what a record says of chains.
pub(super) fn may_note(chains: &[u8]) -> bool {
    chains.len().is_multiple_of(CHAIN) && chains.len() / CHAIN <= CHAINS_MAX
}

impl Generations {
    /// Notes a record; `false` if it is none.
    pub fn note(&mut self, generation: u8, identity: u64, chains: &[u8]) -> bool {
        let (all, _) = chains.as_chunks::<CHAIN>();
        if !may_note(chains) {
            return false;
        }
        let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let layout = |chain: &[u8; CHAIN]| Layout {
            kept: word(chain.first_chunk()),
            name: word(chain.last_chunk()),
        };
        self.0.retain(|known| known.generation != generation);
        if self.0.len() >= KNOWN_MAX {
            self.0.remove(0);
        }
        self.0.push(Known {
            generation,
            identity,
            chains: all.iter().map(layout).collect(),
        });
        true
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether one of them is this configuration.
    pub fn has(&self, identity: u64) -> bool {
        self.0.iter().any(|known| known.identity == identity)
    }

    /// The chains that flows go on with, by a plan.
    pub fn successor_chains(&self, plan: &Plan, identity: u64) -> SuccessorChains {
        let own = layouts(plan);
        let of = self.0.iter().map(|known| {
            let is_own = known.identity == identity;
            let successor = |(at, old): (usize, &Layout)| {
                let same = |new: &Layout| new.kept == old.kept;
                let at_place = own.get(at).filter(|_| is_own);
                let named = || own.iter().position(|new| same(new) && new.name == old.name);
                let any = || own.iter().position(same);
                let place = at_place.map(|_| at).or_else(named).or_else(any)?;
                own.get(place).filter(|new| same(new))?;
                u8::try_from(place).ok()
            };
            let chains = known.chains.iter().enumerate().map(successor).collect();
            (known.generation, is_own, chains)
        });
        SuccessorChains {
            identity: Some(identity),
            of: of.collect(),
        }
    }
}

/// The chains that copied flows go on with.
#[derive(Default)]
pub(super) struct SuccessorChains {
    /// By which configuration; `None` before one was looked at.
    identity: Option<u64>,
    /// By generation: whether it is the configuration in force, and chain by chain the chain that
    /// flows go on with.
    of: Vec<(u8, bool, Vec<Option<u8>>)>,
}

impl SuccessorChains {
    pub fn is_by(&self, identity: u64) -> bool {
        self.identity == Some(identity)
    }

    /// The chain that a flow goes on with, and whether it is to be asked.
    pub fn of(&self, generation: u8, chain: u8) -> Option<(u8, bool)> {
        let known = self.of.iter().find(|(known, ..)| *known == generation);
        let (_, is_own, chains) = known?;
        let chain = chains.get(usize::from(chain)).copied().flatten()?;
        Some((chain, !is_own))
    }
}

/// Shows a record on a plan.
pub(super) fn show(plan: &Plan, generation: u8, identity: u64, mut show: impl FnMut(Copy<'_>)) {
    let mut chains = Vec::with_capacity(CHAIN * plan.chains().len());
    for layout in layouts(plan) {
        chains.extend_from_slice(&layout.kept.to_be_bytes());
        chains.extend_from_slice(&layout.name.to_be_bytes());
    }
    show(Copy::Plan {
        generation,
        identity,
        chains: &chains,
    });
}

impl Copies {
    /// Copies go by the configuration in force here: they are from a store, and their chains were
    /// found.
    pub fn know_own(&mut self, core: &Core) {
        let (generation, identity) = (core.runner.current_generation(), core.runner.identity());
        show(core.runner.plan(), generation, identity, |copy| {
            self.note(copy, core.now);
        });
    }
}

impl Core {
    /// Says which configuration is in force, and at the beginning of a base which one was before.
    #[cold]
    pub(super) fn send_plans(&mut self, with_before: bool) {
        self.each_plan(with_before, |core, plan| core.send_copy(plan));
    }

    /// The records of [`Core::send_plans`].
    pub(super) fn each_plan(&mut self, with_before: bool, mut each: impl FnMut(&mut Self, Copy<'_>)) {
        let plans = self.runner.plans();
        let skipped = usize::from(!with_before && plans.len() > 1);
        for (plan, generation, identity) in plans.into_iter().skip(skipped) {
            show(&plan, generation, identity, |copy| each(self, copy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_generations_mean_is_bounded_and_checked() {
        let mut known = Generations::default();
        for generation in 0..=u8::MAX {
            assert!(known.note(generation, u64::from(generation), &[0; CHAIN]));
            assert!(known.note(generation, u64::from(generation), &[0; CHAIN]));
            assert!(known.0.len() <= KNOWN_MAX);
        }
        assert!(known.has(255) && known.has(252) && !known.has(251));
        assert!(!known.note(7, 7, &[0; CHAIN - 1]));
        assert!(!known.note(7, 7, &[0; CHAIN * (CHAINS_MAX + 1)]));
    }
}
