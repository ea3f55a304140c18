//! What a runtime is to become, and what it was before: plans, instances, and counts of what flows said.
//!
//! Invariant: a plan that follows another has the same functions in the same order ([`fits`]), so that the states of flows and groups, whose
//! places follow from them, are read by both alike.
//!
//! Not here: when which of them is used ([`super`]).

use crate::chain::{Plan, Stages, Step};
use crate::stats::Named;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use nf::cx::{EventLog, RawCx};
use nf::{ConfigError, Direction, Endpoint, Generation, Keep, Reason, Side, WorkerInfo};
use wire::memory::Region;
use wire::{FlowKey, Orientation};

/// Why a configuration cannot follow another while flows live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// A function that is not there, or not any more.
    Functions {
        /// Its name.
        function: String,
        /// Whether it is the new configuration that has it.
        is_new: bool,
    },
    /// Flows would be grouped in another way.
    Affinity,
    /// A chain's flow state is larger than what flows have.
    Room {
        /// The chain.
        chain: String,
    },
    /// A function refuses its settings.
    Function {
        /// Its name.
        function: String,
        /// Why.
        source: ConfigError,
    },
    /// Flows of the configuration before have calls that wait.
    Unsettled {
        /// How many flows.
        flows: u64,
    },
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Functions { function, is_new: true } => write!(
                f,
                "function `{function}` is new: flows have no room for its state; restart to add it"
            ),
            ChangeError::Functions { function, is_new: false } => write!(
                f,
                "function `{function}` is gone, and live flows have state of it; keep its table [function.{function}], even if no chain names it, or restart"
            ),
            ChangeError::Affinity => f.write_str(
                "the chains' functions need other flows together than before, so flows would have to move; restart",
            ),
            ChangeError::Room { chain } => write!(
                f,
                "chain `{chain}` keeps more state of a flow than any chain did at the start; restart, or shorten it"
            ),
            ChangeError::Function { function, source } => write!(f, "function `{function}`: {source}"),
            ChangeError::Unsettled { flows } => write!(
                f,
                "the change before is not over: {flows} flows wait for something; try again in a moment"
            ),
        }
    }
}

impl core::error::Error for ChangeError {}

/// How many flows go on, and why the others end.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) kept: u64,
    /// A call of theirs waits; they are asked when it is done.
    pub(super) waiting: u64,
    pub(super) chain_gone: u64,
    /// By function and reason; the last reason is one that was not declared.
    pub(super) by_function: Vec<Vec<u64>>,
}

/// Why a flow ends: a function and its reason, or no function where its chain is gone.
pub(super) type Cut = Option<(u8, Reason)>;

impl Tally {
    pub(super) fn new(stages: &Stages) -> Self {
        let reasons = |stage: &crate::chain::Owned| alloc::vec![0; stage.reasons().len() + 1];
        Tally {
            by_function: stages.functions.iter().map(reasons).collect(),
            ..Tally::default()
        }
    }

    pub(super) fn cut(&mut self, why: Cut) {
        match why {
            None => self.chain_gone += 1,
            Some((function, reason)) => {
                let reasons = &mut self.by_function[usize::from(function)];
                let index = reason.index().min(reasons.len() - 1);
                reasons[index] += 1;
            }
        }
    }

    pub(super) fn named(&self, stages: &Stages) -> Vec<Named> {
        let mut all = Vec::new();
        if self.chain_gone > 0 {
            all.push(Named {
                function: String::new(),
                name: CHAIN_GONE,
                count: self.chain_gone,
            });
        }
        for (function, counts) in self.by_function.iter().enumerate() {
            for (reason, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                all.push(Named {
                    function: stages.names[function].clone(),
                    name: reason_name(stages, function, reason),
                    count: *count,
                });
            }
        }
        all
    }
}

/// The reason of a flow whose chain the new configuration has not.
pub const CHAIN_GONE: &str = "chain_gone";

pub(super) fn reason_name(stages: &Stages, function: usize, reason: usize) -> &'static str {
    let reasons = stages.functions[function].reasons();
    reasons.get(reason).copied().unwrap_or("undeclared")
}

/// A flow that would end.
#[derive(Clone, Copy, Debug)]
pub struct CutFlow {
    /// The runtime that has it.
    pub runtime: u16,
    /// The key its first packet had.
    pub key: FlowKey,
    /// Who sent the first packet.
    pub source: Endpoint,
    /// To whom.
    pub destination: Endpoint,
    /// How the first packet left, if the chain translated it.
    pub translated: Option<(Endpoint, Endpoint)>,
    /// Its chain, in the plan in force.
    pub chain: u8,
    /// The function that would end it, in the plan's order; none where its chain is gone.
    pub function: Option<u8>,
    /// Why.
    pub reason: &'static str,
}

/// How far a change has come at a runtime.
#[derive(Clone, Debug, Default)]
pub struct ChangeState {
    /// The configuration in force.
    pub generation: Generation,
    /// Whether another one is prepared.
    pub is_prepared: bool,
    /// Whether the survey of what is prepared, or the sweep behind a commit, has been at every flow.
    pub is_through: bool,
    /// Flows that go on.
    pub kept: u64,
    /// Flows of which a call waits: they are asked when it is done.
    pub waiting: u64,
    /// Flows that end, by function (empty: their chain is gone) and reason.
    pub cut: Vec<Named>,
}

/// What a runtime is to become. Made away from it, since compiling and allocating take time.
pub struct Prepared {
    pub(super) generation: Generation,
    pub(super) plan: Plan,
    pub(super) stages: Stages,
    /// For each chain of the plan in force, which of the new plan's its flows go on with.
    pub(super) chains: Vec<Option<u8>>,
    pub(super) translates: Vec<bool>,
    pub(super) survey: Survey,
}

/// The walk that asks beforehand.
pub(super) struct Survey {
    pub(super) cursor: u32,
    pub(super) done: bool,
    pub(super) tally: Tally,
    pub(super) listed: Vec<CutFlow>,
    pub(super) listed_max: usize,
    /// A copy of a flow's state, and of its group's.
    pub(super) flow: Region,
    pub(super) group: Region,
    /// Counters and a log that nobody reads.
    pub(super) counters: Vec<u64>,
    pub(super) log: Box<EventLog>,
}

// SAFETY: instances are made for one worker and move to it as a whole; the rest is `Send` by itself.
unsafe impl Send for Prepared {}

/// What was in force before, until no flow is of it any more.
pub struct Before {
    pub(super) plan: Plan,
    pub(super) stages: Stages,
    pub(super) chains: Vec<Option<u8>>,
    pub(super) translates: Vec<bool>,
    /// Flows that are still of it.
    pub(super) left: u64,
    /// Where the sweep goes on.
    pub(super) cursor: u32,
    pub(super) tally: Tally,
}

// SAFETY: as for `Prepared`; it leaves the worker when no call waits in its instances.
unsafe impl Send for Before {}

impl Prepared {
    /// Instances of `plan` for one worker, which shall follow `before`. Of the flows that would end at most `listed_max` are listed.
    pub fn new(
        generation: Generation,
        plan: Plan,
        before: &Plan,
        worker: &WorkerInfo,
        listed_max: usize,
    ) -> Result<Box<Self>, ChangeError> {
        fits(&plan, before)?;
        let stages = Stages::new(&plan, worker)
            .map_err(|(function, source)| ChangeError::Function { function, source })?;
        let counters = stages.functions.iter().map(|stage| stage.counters().len());
        let most_counters = counters.max().unwrap_or(0) + 1;
        let translates = plan.factories().iter().map(|factory| factory.translates());
        Ok(Box::new(Prepared {
            generation,
            chains: heirs(&plan, before),
            translates: translates.collect(),
            survey: Survey {
                cursor: 0,
                done: false,
                tally: Tally::new(&stages),
                listed: Vec::with_capacity(listed_max),
                listed_max,
                // As long as any chain's that is asked about.
                flow: Region::heap(longest(before).max(stages.flow_size).max(1)),
                group: Region::heap(stages.group_size.max(1)),
                counters: alloc::vec![0; most_counters],
                log: Box::new(EventLog::new(0, worker.runtime)),
            },
            stages,
            plan,
        }))
    }
}

/// Whether a plan can follow another while flows live, as far as the plans say.
pub fn fits(plan: &Plan, before: &Plan) -> Result<(), ChangeError> {
    let has = |plan: &Plan, name: &str| plan.factories().iter().any(|f| f.name() == name);
    for (of, other, is_new) in [(plan, before, true), (before, plan, false)] {
        let names = of.factories().iter().map(|factory| factory.name());
        if let Some(name) = names.into_iter().find(|name| !has(other, name)) {
            let function = name.to_string();
            return Err(ChangeError::Functions { function, is_new });
        }
    }
    for (one, other) in plan.factories().iter().zip(before.factories()) {
        if (one.name(), one.kind()) != (other.name(), other.kind()) {
            let function = one.name().to_string();
            return Err(ChangeError::Functions {
                function,
                is_new: true,
            });
        }
    }
    if plan.affinity() != before.affinity() {
        return Err(ChangeError::Affinity);
    }
    Ok(())
}

fn longest(plan: &Plan) -> usize {
    let sizes = (0..plan.chains().len()).map(|chain| plan.flow_size(chain));
    sizes.max().unwrap_or(0)
}

/// For each chain of `before`, the one of `plan` that its flows go on with.
fn heirs(plan: &Plan, before: &Plan) -> Vec<Option<u8>> {
    let heir = |old: &crate::chain::ChainRule| {
        let same = |new: &&crate::chain::ChainRule| new.functions == old.functions;
        let all = || plan.chains().iter().enumerate().filter(|(_, new)| same(new));
        let named = all().find(|(_, new)| new.name == old.name);
        named.or_else(|| all().next()).map(|(index, _)| index as u8)
    };
    before.chains().iter().map(heir).collect()
}

/// A flow as it is put to the functions: who it is, and where its states are.
pub(super) struct Subject {
    pub(super) side: Side,
    pub(super) first: (NonNull<FlowKey>, Orientation),
    /// As its first packet left the chain.
    pub(super) last: (NonNull<FlowKey>, Orientation),
    pub(super) flow: NonNull<u8>,
    pub(super) group: NonNull<u8>,
}

/// Asks each function of a chain whether a flow goes on: the first that ends it, if any does. All are asked, since all must make the
/// state theirs.
///
/// # Safety
/// `subject.flow` and `subject.group` are states of the functions that `steps` name, laid out as `steps` say, which nobody else
/// uses; `cx` is filled in but for what follows from the subject, and its counters are set by `counters`.
pub(super) unsafe fn ask(
    pub(super) stages: &Stages,
    pub(super) translates: &[bool],
    steps: &[Step],
    subject: &Subject,
    cx: &mut RawCx,
    mut counters: impl FnMut(&Step) -> NonNull<u64>,
) -> Option<(u8, Reason)> {
    let translating = |step: &Step| translates[usize::from(step.function)];
    let (first, last) = (
        steps.iter().position(translating),
        steps.iter().rposition(translating),
    );
    let mut ends = None;
    cx.side = subject.side;
    cx.direction = Direction::Opening;
    for (at, step) in steps.iter().enumerate() {
        // Between two functions that translate, nobody knows what the packet looked like: as it came, then.
        let is_behind = last.is_some_and(|last| at > last) && first.is_some();
        (cx.key, cx.opening) = if is_behind { subject.last } else { subject.first };
        cx.counters = counters(step);
        // SAFETY: the caller's promise.
        let answer = unsafe {
            cx.group = subject.group.add(step.group as usize);
            stages.functions[usize::from(step.function)].configured(subject.flow.add(step.flow as usize), cx)
        };
        if let (Keep::End(reason), None) = (answer, ends) {
            ends = Some((step.function, reason));
        }
    }
    ends
}

