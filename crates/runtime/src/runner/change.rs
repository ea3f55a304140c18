//! Another configuration while flows live: prepared elsewhere, put in between two bursts, taken to
//! each flow afterwards.
//!
//! # Theory of operation
//!
//! ```text
//!   control thread    Prepared::new: instances of the new plan, compiled and allocated away from the worker
//!   worker  prepare   does it fit? nothing changes. Then, a few flows a step, the survey: which would end?
//!           commit    between two steps: the new instances take over what the old ones hold, plan and instances change places
//!           sweep     a few flows a step: each is asked once whether it goes on, and ends if it may not
//!                     a packet that comes for a flow not yet asked has it asked first
//!           settled   no flow is of the old configuration: its instances go back to the control thread, to be dropped there
//! ```
//!
//! A flow's header has the low bits of the number of the configuration (its *generation*) under
//! which it was judged last, beside its phase: a packet of an established flow compares both at
//! once, and pays nothing for that there may be changes. There are never flows of more than two
//! generations, since a change is only prepared when the one before has settled.
//!
//! *A packet is judged by one configuration*: it passes its chain within a step, and the change is
//! between steps. A packet that waits in a function ([`super::waiting`]) is the exception: it
//! waits, and ends its call, in the old instance, which is kept for that; then its flow is asked,
//! and only if it may go on does the packet pass the rest of its chain, by the new instances. So it
//! passes if both let it.
//!
//! *Chains.* A flow goes on with a chain of the new plan that has the same functions in the same
//! order, preferably of the same name. Where there is none it ends (`chain_gone`). Which chain a
//! new flow takes is the new plan's to say.
//!
//! ```text
//!   settled ──prepare──► prepared ──commit──► sweeping ──the last flow asked──► settled
//!      ▲                    │
//!      └──────abandon───────┘
//! ```
//!
//! Invariants: a flow is asked exactly once for each change, before its next packet and before its
//! end; the functions' `departed` always sees the instances in force; the survey changes nothing
//! (it asks about copies); functions, their order, their states and the affinity stay the same for
//! a runtime's whole incarnation ([`Prepared::new`] sees to it).
//!
//! Not here: differences and their limits (the tool), a function's answer to them
//! ([`nf::NetworkFunction::configured`]).

mod recovered;

use super::lifecycle::opened_from;
use super::{Runner, empty_cx};
use crate::chain::{Plan, Stages, Step};
use crate::flows::FlowStore;
use crate::flows::actor::{Phase, flag};
use crate::outbox::Outbox;
use crate::stats::Named;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;
use nf::cx::{EventLog, RawCx};
use nf::{ConfigError, Direction, Endpoint, Generation, Keep, Reason, Side, WorkerInfo};
use wire::memory::Region;
use wire::{FlowKey, Orientation, planted};

/// Actors looked at in a step at most, and how many of them are asked about.
pub(crate) const LOOKS: u32 = 128;
pub(crate) const ASKED: u32 = 32;

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
    /// Flows are on their way from or to another runtime.
    Moving,
    /// A function opens other kinds of shared objects than before.
    Objects,
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
            ChangeError::Moving => {
                f.write_str("flows are moving between runtimes; try again when they have arrived")
            }
            ChangeError::Objects => f.write_str(
                "a function opens other kinds of shared objects than before; restart",
            ),
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
struct Tally {
    kept: u64,
    /// A call of theirs waits; they are asked when it is done.
    waiting: u64,
    chain_gone: u64,
    /// By function and reason; the last place is for undeclared reasons.
    by_function: Vec<Vec<u64>>,
}

/// Why a flow ends: a function and its reason, or no function where its chain is gone.
type Cut = Option<(u8, Reason)>;

impl Tally {
    fn new(stages: &Stages) -> Self {
        let reasons = |stage: &crate::chain::Owned| alloc::vec![0; stage.reasons().len() + 1];
        Tally {
            by_function: stages.functions.iter().map(reasons).collect(),
            ..Tally::default()
        }
    }

    fn cut(&mut self, why: Cut) {
        match why {
            None => self.chain_gone += 1,
            Some((function, reason)) => {
                let reasons = &mut self.by_function[usize::from(function)];
                let index = reason.index().min(reasons.len() - 1);
                reasons[index] += 1;
            }
        }
    }

    fn named(&self, stages: &Stages) -> Vec<Named> {
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

fn reason_name(stages: &Stages, function: usize, reason: usize) -> &'static str {
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
    /// The endpoint that sent the first packet.
    pub source: Endpoint,
    /// The endpoint that it was for.
    pub destination: Endpoint,
    /// How the first packet left, if the chain translated it.
    pub translated: Option<(Endpoint, Endpoint)>,
    /// Its chain, in the plan in force.
    pub chain: u8,
    /// The function that would end it, in the plan's order; `None` where its chain is gone.
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
    /// Whether the survey of the prepared change, or the sweep behind a commit, has been at every
    /// flow.
    pub is_through: bool,
    /// Flows that go on.
    pub kept: u64,
    /// Flows of which a call waits: they are asked when it is done.
    pub waiting: u64,
    /// Flows that end, by function (empty: their chain is gone) and reason.
    pub cut: Vec<Named>,
}

/// The configuration that a runtime is to have. Made away from it, since compiling and allocating
/// take time.
pub struct Prepared {
    generation: Generation,
    plan: Plan,
    stages: Stages,
    /// For each chain of the plan in force, which of the new plan's its flows go on with.
    chains: Vec<Option<u8>>,
    translates: Vec<bool>,
    survey: Survey,
}

/// The walk that asks beforehand.
struct Survey {
    cursor: u32,
    done: bool,
    tally: Tally,
    listed: Vec<CutFlow>,
    listed_max: usize,
    /// A copy of a flow's state, and of its group's.
    flow: Region,
    group: Region,
    /// Counters and a log that are never read.
    counters: Vec<u64>,
    log: Box<EventLog>,
}

// SAFETY: instances are made for one worker and move to it as a whole; the rest is `Send` by
// itself.
unsafe impl Send for Prepared {}

/// The configuration before, until no flow is of it any more.
pub struct Before {
    generation: Generation,
    plan: Plan,
    pub(super) stages: Stages,
    chains: Vec<Option<u8>>,
    translates: Vec<bool>,
    /// Flows that are still of it.
    left: u64,
    /// Where the sweep goes on.
    cursor: u32,
    tally: Tally,
}

// SAFETY: as for `Prepared`; it leaves the worker when no call waits in its instances.
unsafe impl Send for Before {}

impl Prepared {
    /// Instances of `plan` for one worker, which shall follow `before`. Of the flows that would end
    /// at most `listed_max` are listed.
    pub fn new(
        generation: Generation,
        plan: Plan,
        before: &Plan,
        worker: &WorkerInfo,
        listed_max: usize,
    ) -> Result<Box<Self>, ChangeError> {
        fits(&plan, before)?;
        let plan = plan.keeping(before.keeper().clone());
        let stages = Stages::following(&plan, worker)
            .map_err(|(function, source)| ChangeError::Function { function, source })?;
        let counters = stages.functions.iter().map(|stage| stage.counters().len());
        let most_counters = counters.max().unwrap_or(0) + 1;
        let translates = plan.factories().iter().map(|factory| factory.translates());
        Ok(Box::new(Prepared {
            generation,
            chains: successor_chains(&plan, before),
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
fn successor_chains(plan: &Plan, before: &Plan) -> Vec<Option<u8>> {
    let heir = |old: &crate::chain::ChainRule| {
        let same = |new: &&crate::chain::ChainRule| new.functions == old.functions;
        let all = || plan.chains().iter().enumerate().filter(|(_, new)| same(new));
        let named = all().find(|(_, new)| new.name == old.name);
        let found = named.or_else(|| all().next());
        found
            .filter(|_| !planted::is("chain_not_found_again"))
            .map(|(index, _)| index as u8)
    };
    before.chains().iter().map(heir).collect()
}

/// A flow as it is put to the functions: its keys, and where its states are.
struct Subject {
    side: Side,
    first: (NonNull<FlowKey>, Orientation),
    /// As its first packet left the chain.
    last: (NonNull<FlowKey>, Orientation),
    flow: NonNull<u8>,
    group: NonNull<u8>,
}

impl Subject {
    /// Its key as a function's place in the chain sees it. Between two functions that translate,
    /// the packet's addresses are not known: as it came, then.
    fn seen_at(&self, at: usize, last: Option<usize>) -> (NonNull<FlowKey>, Orientation) {
        match last.is_some_and(|last| at > last) {
            true => self.last,
            false => self.first,
        }
    }
}

/// The last of these functions that translates.
fn last_translating(steps: &[Step], translates: impl Fn(usize) -> bool) -> Option<usize> {
    steps
        .iter()
        .rposition(|step| translates(usize::from(step.function)))
}

/// Asks each function of a chain whether a flow goes on: the first that ends it, if any does. All
/// are asked, since all must make the state theirs.
///
/// # Safety
/// `subject.flow` and `subject.group` are states of the functions that `steps` name, laid out as
/// `steps` say, which no other code uses; `cx` is filled in but for what follows from the subject,
/// and its counters are set by `counters`.
unsafe fn ask(
    stages: &Stages,
    translates: &[bool],
    steps: &[Step],
    subject: &Subject,
    cx: &mut RawCx,
    mut counters: impl FnMut(&Step) -> NonNull<u64>,
) -> Option<(u8, Reason)> {
    let last = last_translating(steps, |function| translates[function]);
    let mut ends = None;
    cx.side = subject.side;
    cx.direction = Direction::Opening;
    for (at, step) in steps.iter().enumerate() {
        (cx.key, cx.opening) = subject.seen_at(at, last);
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

impl Runner {
    /// Takes in what it may become, if that fits and no group is on its way; nothing changes.
    pub fn prepare_change(
        &mut self,
        prepared: Box<Prepared>,
        is_moving: bool,
    ) -> Result<(), (ChangeError, Box<Prepared>)> {
        if let Some(before) = &self.before {
            return Err((ChangeError::Unsettled { flows: before.left }, prepared));
        }
        if is_moving {
            return Err((ChangeError::Moving, prepared));
        }
        if let Err(error) = fits(&prepared.plan, &self.plan) {
            return Err((error, prepared));
        }
        if prepared.stages.objects.kinds() != self.stages.objects.kinds() {
            return Err((ChangeError::Objects, prepared));
        }
        if prepared.stages.flow_size > self.stages.flow_size {
            let chains = prepared.plan.chains().iter().enumerate();
            let mut too_large =
                chains.filter(|(index, _)| prepared.plan.flow_size(*index) > self.stages.flow_size);
            let chain = too_large
                .next()
                .map(|(_, chain)| chain.name.clone())
                .unwrap_or_default();
            return Err((ChangeError::Room { chain }, prepared));
        }
        self.prepared = Some(prepared);
        Ok(())
    }

    /// Whether a change has begun here and is not over. Until it is, no flow leaves and none comes:
    /// two runtimes may be of different configurations meanwhile. And none is prepared while flows
    /// are on their way, so a flow is always of the configuration that both ends have.
    pub fn is_changing(&self) -> bool {
        self.prepared.is_some() || self.before.is_some()
    }

    /// Gives back the prepared configuration, to be dropped elsewhere.
    pub fn abandon_change(&mut self) -> Option<Box<Prepared>> {
        self.prepared.take()
    }

    /// From the next packet on, the prepared configuration is in force; `false` if there is none.
    pub fn commit_change(&mut self, flows: &FlowStore) -> bool {
        let Some(prepared) = self.prepared.take() else {
            return false;
        };
        let Prepared {
            generation,
            plan,
            mut stages,
            chains,
            translates,
            survey,
        } = *prepared;
        // Where flows are by themselves, their group state lies behind the longest chain's at the
        // start.
        stages.flow_size = self.stages.flow_size;
        stages.succeed(&mut self.stages);
        let tally = Tally {
            by_function: survey
                .tally
                .by_function
                .iter()
                .map(|reasons| alloc::vec![0; reasons.len()])
                .collect(),
            ..Tally::default()
        };
        let plan = core::mem::replace(&mut self.plan, plan);
        let stages = core::mem::replace(&mut self.stages, stages);
        let generation = core::mem::replace(&mut self.generation, generation);
        self.before = Some(Box::new(Before {
            generation,
            plan,
            stages,
            chains,
            translates,
            left: flows.active() as u64,
            cursor: 0,
            tally,
        }));
        true
    }

    /// How far a change has come.
    pub fn change(&self, flows: &FlowStore) -> ChangeState {
        let mut state = ChangeState {
            generation: self.generation,
            is_prepared: self.prepared.is_some(),
            is_through: true,
            ..ChangeState::default()
        };
        if let Some(Prepared { survey, stages, .. }) = self.prepared.as_deref() {
            state.is_through = survey.done;
            (state.kept, state.waiting) = (survey.tally.kept, survey.tally.waiting);
            state.cut = survey.tally.named(stages);
        } else if let Some(before) = self.before.as_deref() {
            state.is_through = before.cursor as usize >= flows.capacity();
            (state.kept, state.waiting) = (before.tally.kept, before.left);
            state.cut = before.tally.named(&self.stages);
        }
        state
    }

    /// The flows that would end, as far as they are listed.
    pub fn take_listed(&mut self) -> Vec<CutFlow> {
        match self.prepared.as_deref_mut() {
            Some(prepared) => core::mem::take(&mut prepared.survey.listed),
            None => Vec::new(),
        }
    }

    /// The configuration before, if nothing is of it any more: to be dropped elsewhere.
    pub fn take_before(&mut self, flows: &FlowStore) -> Option<Box<Before>> {
        let before = self.before.as_deref()?;
        let over = before.left == 0 && before.cursor as usize >= flows.capacity();
        let mut before = self.before.take_if(|_| over)?;
        before.stages.drop_handles();
        Some(before)
    }

    /// Whether a survey is to go on; else, whether a sweep is.
    pub fn walks(&self) -> (bool, bool) {
        (self.prepared.is_some(), self.before.is_some())
    }

    /// Goes on with the survey; answers how many actors were looked at.
    #[cold]
    pub fn survey(&mut self, flows: &FlowStore, out: &mut Outbox) -> usize {
        let Some(mut prepared) = self.prepared.take() else {
            return 0;
        };
        let (mut looked, mut asked) = (0, 0);
        while looked < LOOKS && asked < ASKED && !prepared.survey.done {
            let actor = prepared.survey.cursor;
            if actor as usize >= flows.capacity() {
                prepared.survey.done = true;
                break;
            }
            prepared.survey.cursor += 1;
            looked += 1;
            match flows.header(actor).phase {
                Phase::Free => {}
                // Its state is its call's.
                Phase::Waiting | Phase::Arriving | Phase::Leaving => prepared.survey.tally.waiting += 1,
                Phase::Active => {
                    asked += 1;
                    self.ask_about_copy(actor, &mut prepared, flows, out);
                }
            }
        }
        self.prepared = Some(prepared);
        looked as usize
    }

    /// Asks about a flow without changing anything.
    fn ask_about_copy(&self, actor: u32, prepared: &mut Prepared, flows: &FlowStore, out: &mut Outbox) {
        let Prepared {
            stages,
            chains,
            translates,
            survey,
            ..
        } = prepared;
        let header = *flows.header(actor);
        let mut subject = subject(actor, flows);
        let steps = &self.stages.chains[usize::from(header.chain)];
        // SAFETY: the copies' regions are as long as the states copied into them, and nothing uses
        // the flow's states meanwhile.
        unsafe {
            let (flow, group) = (survey.flow.start(), survey.group.start());
            let length = self.stages.flow_size.min(survey.flow.length());
            core::ptr::copy_nonoverlapping(subject.flow.as_ptr(), flow.as_ptr(), length);
            let length = self.stages.group_size;
            core::ptr::copy_nonoverlapping(subject.group.as_ptr(), group.as_ptr(), length);
            (subject.flow, subject.group) = (flow, group);
        }
        let mut cx = empty_cx(NonNull::from(&mut *survey.log));
        cx.now = self.now;
        let counters = NonNull::from(&mut survey.counters[..]).cast();
        // SAFETY: the copies are states of the chain's functions; as many counters are there as any
        // of them has.
        let ends = unsafe { ask(stages, translates, steps, &subject, &mut cx, |_| counters) };
        for packet in cx
            .spares
            .drain(..)
            .chain(cx.emitted.drain(..).map(|(packet, _)| packet))
        {
            out.recycle(packet);
        }
        let cut = match (ends, chains[usize::from(header.chain)]) {
            (None, Some(_)) => {
                survey.tally.kept += 1;
                return;
            }
            (ends, _) => ends,
        };
        survey.tally.cut(cut);
        if survey.listed.len() < survey.listed_max {
            let (source, destination) = header.key.ends(header.opening(0));
            let translated =
                (header.flags & flag::REPLY_KEY != 0).then(|| flows.reply_key(actor).ends(header.opening(1)));
            survey.listed.push(CutFlow {
                runtime: self.bounds.runtime,
                key: header.key,
                source,
                destination,
                translated,
                chain: header.chain,
                function: cut.map(|(function, _)| function),
                reason: cut.map_or(CHAIN_GONE, |(function, reason)| {
                    reason_name(stages, usize::from(function), reason.index())
                }),
            });
        }
    }

    /// The next flow of the configuration before that is to be asked ([`Runner::judge`]), and how
    /// many actors were looked at for it.
    #[cold]
    pub fn next_to_ask(&mut self, budget: u32, flows: &FlowStore) -> (Option<u32>, u32) {
        let (current, cut) = (self.current_generation(), self.cut_number());
        let Some(before) = self.before.as_deref_mut() else {
            return (None, 0);
        };
        let mut looked = 0;
        while looked < budget && (before.cursor as usize) < flows.capacity() {
            let actor = before.cursor;
            before.cursor += 1;
            looked += 1;
            let header = flows.header(actor);
            // A call that waits has the state; its flow is asked when it is done. A flow that is
            // cut was asked.
            if header.phase == Phase::Active && ![current, cut].contains(&header.generation) {
                return (Some(actor), looked);
            }
        }
        (None, looked)
    }

    /// Asks a flow of the configuration before, whose calls are over, and which is settled: `false`
    /// if it does not go on, and is to be ended.
    #[cold]
    pub fn judge(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) -> bool {
        if self.is_cut(actor, flows) {
            return false;
        }
        let (cut, heir) = match planted::is("flow_not_asked") {
            true => (None, Some(flows.header(actor).chain)),
            false => self.adapt(actor, flows, out),
        };
        let generation = self.current_generation();
        let Some(before) = self.before.as_deref_mut() else {
            debug_assert!(false, "a flow of a configuration that is gone");
            return true;
        };
        match (cut, heir) {
            (None, Some(chain)) => {
                before.left -= 1;
                before.tally.kept += 1;
                let header = flows.header_mut(actor);
                header.chain = chain;
                header.generation = generation;
                true
            }
            (cut, _) => {
                before.tally.cut(cut);
                false
            }
        }
    }

    /// Makes a flow's states those of the instances in force. Answers which function would end it,
    /// and its chain from now on.
    pub fn adapt(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) -> (Cut, Option<u8>) {
        flows.header_mut(actor).outdate_copy();
        if self.is_cut(actor, flows) {
            return (None, None);
        }
        let Some(before) = self.before.as_deref() else {
            return (None, None);
        };
        let chain = usize::from(flows.header(actor).chain);
        let subject = subject(actor, flows);
        let cx = self.prepare(actor, subject.side, Direction::Opening, flows);
        let steps = &before.stages.chains[chain];
        // SAFETY: the states are this actor's, laid out for the chain it began with; no call of it
        // waits. A step's counters are the ones in force (`Stages::succeed`).
        let cut = unsafe {
            ask(&self.stages, &before.translates, steps, &subject, cx, |step| {
                step.counters
            })
        };
        let heir = before.chains[chain];
        self.apply_block_effects(cx, actor, flows, out);
        (cut, heir)
    }

    /// The name of an actor's chain.
    pub fn chain_name(&self, actor: u32, flows: &FlowStore) -> &str {
        let header = flows.header(actor);
        let plan = match &self.before {
            Some(before) if ![self.current_generation(), self.cut_number()].contains(&header.generation) => {
                &before.plan
            }
            _ => &self.plan,
        };
        &plan.chains()[usize::from(header.chain)].name
    }

    /// A flow of the configuration before has ended.
    pub fn note_end_of_old(&mut self) {
        if let Some(before) = self.before.as_deref_mut() {
            before.left -= 1;
        }
    }
}

fn subject(actor: u32, flows: &FlowStore) -> Subject {
    let header = flows.header(actor);
    let flow = flows.state(actor);
    let first = (flows.key(actor), header.opening(0));
    let last = if header.flags & flag::REPLY_KEY != 0 {
        (NonNull::from(flows.reply_key(actor)), header.opening(1))
    } else {
        first
    };
    Subject {
        side: opened_from(header),
        first,
        last,
        flow,
        group: flows.group_state(header.group, flow),
    }
}
