//! Flows that come from copies while the configuration changes, or behind that: the configurations
//! that the heir's runner knows, and how it asks such a flow.
//!
//! ```text
//!   arrives by a chain of the plan in force ─► recovered_of_before ─┬─► young: goes on
//!                                                                   └─► cut: ends behind the recovery, or with its next packet
//! ```
//!
//! Not here: which chain that is (`replica::generations`).

use super::{Cut, last_translating, subject};
use crate::chain::Plan;
use crate::flows::FlowStore;
use crate::outbox::Outbox;
use crate::record::Travelling;
use crate::runner::Runner;
use alloc::vec::Vec;
use nf::{Generation, Keep};

impl Runner {
    /// A flow that other settings let in arrives from a copy, by a chain of the plan in force:
    /// whether it goes on. A flow that does not is to be ended ([`Runner::is_cut`]).
    #[cold]
    pub fn recover_of_before(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) -> bool {
        let (subject, mut at) = (subject(actor, flows), 0);
        let factories = self.plan.factories();
        let last = last_translating(self.steps_of(actor, flows), |function| {
            factories
                .get(function)
                .is_some_and(|factory| factory.translates())
        });
        let mut cut: Cut = None;
        // SAFETY: the state is this actor's, with bytes that `is_flow` has found to be its
        // functions'.
        unsafe {
            self.each_step(actor, flows, out, |stage, flow, cx| {
                (cx.key, cx.opening) = subject.seen_at(at, last);
                if let (Keep::End(reason), None) = (stage.recovered_of_before(flow, cx), cut) {
                    cut = Some((at as u8, reason));
                }
                at += 1;
            });
        }
        let Some((place, reason)) = cut else {
            return true;
        };
        let function = self
            .steps_of(actor, flows)
            .get(usize::from(place))
            .map(|step| step.function);
        if let (Some(before), Some(function)) = (self.before.as_deref_mut(), function) {
            before.tally.cut(Some((function, reason)));
        }
        flows.header_mut(actor).generation = self.cut_number();
        false
    }

    /// The identity of the configuration in force, the same everywhere.
    pub fn identity(&self) -> u64 {
        identity(&self.plan, self.generation)
    }

    /// The same of the prepared configuration.
    pub fn identity_prepared(&self) -> Option<u64> {
        let prepared = self.prepared.as_deref()?;
        Some(identity(&prepared.plan, prepared.generation))
    }

    /// The plans that flows go by, the one in force last, with their numbers in headers and what
    /// they are.
    pub fn plans(&self) -> Vec<(Plan, u8, u64)> {
        let before = self.before.as_deref();
        let before = before.map(|before| {
            let (plan, generation) = (&before.plan, before.generation);
            (plan.clone(), generation.0 as u8, identity(plan, generation))
        });
        let current = (self.plan.clone(), self.current_generation(), self.identity());
        before.into_iter().chain([current]).collect()
    }

    /// The moving parts of a flow's states, by the chain that it goes by.
    pub fn travelling_of(&self, actor: u32, flows: &FlowStore) -> Option<Travelling> {
        let header = flows.header(actor);
        match self.before.as_deref() {
            Some(before) if header.generation == before.generation.0 as u8 => {
                self.travelling_by(&before.stages, header.chain, flows)
            }
            _ => self.travelling(header.chain, flows),
        }
    }
}

/// The identity of a configuration in all processes, or its number in this one.
fn identity(plan: &Plan, generation: Generation) -> u64 {
    match plan.digest {
        0 => generation.0,
        digest => digest,
    }
}
