//! Service chains: which functions a flow passes, chosen by rules (NFActor 3.1).
//!
//! A rule matches the packet that *opens* a flow, by its 5-tuple and side. The most specific rule
//! that matches wins ([`crate::rules`]); a flow that matches none is dropped (`no_chain`). All
//! chains of a runtime share the instances of their functions, so one NAT serves two chains with
//! one pool.
//!
//! The coarsest affinity of all functions in all chains decides how flows are grouped, for every
//! chain alike: a coarser grouping than a chain needs is always right, and the switch need not know
//! a packet's chain to route it.
//!
//! Not here: the functions' code ([`crate::stage`]) and the actors' layout ([`crate::actor`]).

mod step;

use crate::fused::{Fused, Whole, Wholes};
use crate::replica::policy::{Policy, STORED_AS, Storing};
use crate::replica::shadow::Shape;
pub use crate::rules::Match;
use crate::rules::Rules;
use crate::stage::{Factory, Stage};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;
use nf::objects::WorkerObjects;
use nf::variables::{Bytes, Consistency, Keeper, Map, Options, Variables, WorkerVariables};
use nf::{Affinity, ConfigError, Direction, WorkerInfo};
pub use step::Step;
use wire::Packet;
use wire::memory::Region;
use wire::packet::flag;

/// The most functions in a chain.
pub const FUNCTIONS_MAX: usize = 16;
/// The most chains at once.
pub const CHAINS_MAX: usize = 64;

/// One chain as configured: its name, the flows that it is for, and its functions by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainRule {
    /// Its name.
    pub name: String,
    /// The flows that it is for.
    pub matching: Match,
    /// Names of its functions, in the order in which the opening direction passes them.
    pub functions: Vec<String>,
    /// How its flows are copied, if other than [`crate::Settings::copying`] says of all chains.
    pub replication: Option<Policy>,
}

/// The chains of a cluster and the functions they are made of; shared by all its workers.
#[derive(Clone)]
pub struct Plan {
    chains: Arc<[ChainRule]>,
    rules: Arc<Rules>,
    factories: Arc<[Box<dyn Factory>]>,
    affinity: Affinity,
    icmp_errors: bool,
    keeper: Keeper,
    fused: Arc<[Fused]>,
    pub(crate) digest: u64,
}

/// Why a plan cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// There is no chain.
    NoChain,
    /// More than [`CHAINS_MAX`] chains.
    TooManyChains,
    /// A chain without functions.
    Empty {
        /// The chain.
        chain: String,
    },
    /// More than [`FUNCTIONS_MAX`] functions in a chain.
    TooLong {
        /// The chain.
        chain: String,
    },
    /// A function that is not there.
    Unknown {
        /// The chain.
        chain: String,
        /// The name.
        function: String,
    },
    /// A function named twice in a chain: its flow state is one, so it can run once.
    Twice {
        /// The chain.
        chain: String,
        /// The name.
        function: String,
    },
    /// A function that must be the last of its chain, and is not.
    NotLast {
        /// The chain.
        chain: String,
        /// The name.
        function: String,
    },
    /// Two functions that need different flows together, so that no worker could serve both.
    Affinities {
        /// A function.
        one: String,
        /// Another.
        other: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::NoChain => f.write_str("there is no chain; add a [[chain]] with its functions"),
            PlanError::TooManyChains => write!(f, "there are more than {CHAINS_MAX} chains"),
            PlanError::Empty { chain } => write!(f, "chain `{chain}` has no functions; name at least one"),
            PlanError::TooLong { chain } => {
                write!(f, "chain `{chain}` has more than {FUNCTIONS_MAX} functions")
            }
            PlanError::Unknown { chain, function } => {
                write!(
                    f,
                    "chain `{chain}` names the function `{function}`, which is not there"
                )
            }
            PlanError::Twice { chain, function } => write!(
                f,
                "chain `{chain}` names `{function}` twice; give the second one a table and a name of its own"
            ),
            PlanError::NotLast { chain, function } => write!(
                f,
                "chain `{chain}` has functions behind `{function}`, which decides how packets leave; put it at the end"
            ),
            PlanError::Affinities { one, other } => write!(
                f,
                "`{one}` and `{other}` need different flows together, so no runtime could serve both; run them in separate clusters"
            ),
        }
    }
}

impl core::error::Error for PlanError {}

impl Plan {
    /// Checks chains against functions.
    pub fn new(chains: Vec<ChainRule>, factories: Vec<Box<dyn Factory>>) -> Result<Self, PlanError> {
        if chains.is_empty() {
            return Err(PlanError::NoChain);
        }
        if chains.len() > CHAINS_MAX {
            return Err(PlanError::TooManyChains);
        }
        let mut affinity = Affinity::Flow;
        let mut icmp_errors = false;
        let mut decided_by: Option<&str> = None;
        for chain in &chains {
            let name = || chain.name.clone();
            if chain.functions.is_empty() {
                return Err(PlanError::Empty { chain: name() });
            }
            if chain.functions.len() > FUNCTIONS_MAX {
                return Err(PlanError::TooLong { chain: name() });
            }
            for (position, function) in chain.functions.iter().enumerate() {
                let Some(factory) = factories.iter().find(|f| f.name() == function) else {
                    return Err(PlanError::Unknown {
                        chain: name(),
                        function: function.clone(),
                    });
                };
                if chain.functions[..position].contains(function) {
                    return Err(PlanError::Twice {
                        chain: name(),
                        function: function.clone(),
                    });
                }
                if factory.is_last() && position + 1 < chain.functions.len() {
                    return Err(PlanError::NotLast {
                        chain: name(),
                        function: function.clone(),
                    });
                }
                icmp_errors |= factory.icmp_errors();
                let Some(joined) = affinity.join(factory.affinity()) else {
                    let one = decided_by.unwrap_or_default().to_string();
                    return Err(PlanError::Affinities {
                        one,
                        other: function.clone(),
                    });
                };
                if joined != affinity {
                    affinity = joined;
                    decided_by = Some(function);
                }
            }
        }
        Ok(Plan {
            rules: Arc::new(Rules::new(chains.iter().map(|chain| &chain.matching))),
            chains: chains.into(),
            factories: factories.into(),
            affinity,
            icmp_errors,
            keeper: Keeper::default(),
            fused: Arc::default(),
            digest: 0,
        })
    }

    /// By this digest other processes know a plan that is as this one; 0 where there are none.
    #[must_use]
    pub fn known_by(mut self, digest: u64) -> Self {
        self.digest = digest;
        self
    }

    /// Chains of these functions are run in one piece ([`crate::fused`]).
    #[must_use]
    pub fn fusing(mut self, fused: &[Fused]) -> Self {
        self.fused = fused.into();
        self
    }

    /// Has the functions' variables kept there.
    #[must_use]
    pub fn keeping(mut self, keeper: Keeper) -> Self {
        self.keeper = keeper;
        self
    }

    /// Where the functions' variables are kept.
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// How flows are grouped.
    pub fn affinity(&self) -> Affinity {
        self.affinity
    }

    /// Makes an ICMP error a packet between its own addresses, if no function wants it with the
    /// flow it quotes.
    #[inline]
    pub fn judge_icmp_error(&self, packet: &mut Packet) {
        if !self.icmp_errors {
            packet.clear_flags(flag::ICMP_ERROR);
        }
    }

    /// The chains.
    pub fn chains(&self) -> &[ChainRule] {
        &self.chains
    }

    /// The functions.
    pub fn factories(&self) -> &[Box<dyn Factory>] {
        &self.factories
    }

    /// Bytes of flow state that the functions of a chain keep.
    pub fn flow_size(&self, chain: usize) -> usize {
        self.chains[chain].functions.iter().fold(0, |offset, name| {
            let factory = self.factories.iter().find(|factory| factory.name() == name);
            let (size, align) = factory.map_or((0, 1), |factory| factory.layout().flow);
            aligned(offset, align) + size
        })
    }

    /// Whether the states of a chain's flows can be copied, where so many bytes can
    /// ([`check_copied`]).
    pub fn check_copied(&self, chain: usize, most: usize) -> Result<(), TooLongToCopy> {
        let known = |name: &String| self.factories.iter().find(|factory| factory.name() == name);
        let own = self
            .chains
            .get(chain)
            .into_iter()
            .flat_map(|chain| &chain.functions);
        let own: Vec<_> = own.filter_map(known).map(|factory| &**factory).collect();
        let all: Vec<_> = self.factories.iter().map(|factory| &**factory).collect();
        check_copied(&own, &all, self.affinity, most)
    }

    /// Which chain a flow that this packet opens takes.
    #[inline]
    pub fn classify(&self, packet: &Packet) -> Option<u8> {
        self.rules.find(packet)
    }

    /// The inside endpoint that owns an outside one by configuration (static mappings).
    pub fn owner_of(&self, outside: wire::Endpoint, protocol: u8) -> Option<wire::Endpoint> {
        self.factories
            .iter()
            .find_map(|factory| factory.owner_of(outside, protocol))
    }
}

/// The longest state of a flow or group that is copied: a record has 16 bits for its length.
pub const COPIED_MAX: usize = u16::MAX as usize;

/// A state that is too long to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLongToCopy {
    /// The function that has most of it.
    pub function: String,
    /// Bytes that the function has of it.
    pub own: usize,
    /// Bytes in all.
    pub length: usize,
    /// Whether it is a group's.
    pub is_group: bool,
    /// The most bytes.
    pub most: usize,
}

impl fmt::Display for TooLongToCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, length) = (self.own, self.length);
        let of = if self.is_group { "group" } else { "flow" };
        write!(
            f,
            "`{}` keeps {own} bytes for each {of}, which makes {length} in all; at most {} are copied",
            self.function, self.most
        )
    }
}

/// Whether states of flows of a chain of functions, and of their groups with `all`, have `most`
/// bytes.
pub fn check_copied(
    chain: &[&dyn Factory],
    all: &[&dyn Factory],
    affinity: Affinity,
    most: usize,
) -> Result<(), TooLongToCopy> {
    let check = |parts: &[(&dyn Factory, usize, usize)], is_group| {
        let length = parts
            .iter()
            .fold(0, |at, (_, size, align)| aligned(at, *align) + size);
        match parts.iter().max_by_key(|(_, size, _)| *size) {
            Some((factory, own, _)) if length > most => Err(TooLongToCopy {
                function: factory.name().to_string(),
                own: *own,
                length,
                is_group,
                most,
            }),
            _ => Ok(()),
        }
    };
    let flows = chain.iter().map(|factory| {
        let (size, align) = factory.layout().flow;
        (*factory, size, align)
    });
    let groups = all.iter().map(|factory| {
        let (size, align) = factory.layout().group;
        (*factory, size, align)
    });
    if affinity == Affinity::Flow {
        // A flow that is by itself has its group's state behind its own.
        return check(&flows.chain(groups).collect::<Vec<_>>(), false);
    }
    check(&flows.collect::<Vec<_>>(), false)?;
    check(&groups.collect::<Vec<_>>(), true)
}

/// The number of the ledger's partition among the functions'.
pub const LEDGER: usize = usize::MAX;

/// A chain on one worker: its functions, in the order in which its opening direction passes them.
pub struct Steps {
    steps: ArrayVec<Step, FUNCTIONS_MAX>,
    /// How many of them replies pass backward: all but a function that is always the last.
    backward: usize,
}

impl Steps {
    /// How many functions an answer of the one at `at`, made to a packet of `direction`, has passed
    /// already, seen its own way.
    pub fn passed_by_answer(&self, at: usize, direction: Direction) -> usize {
        if at >= self.backward {
            0
        } else if direction == Direction::Opening {
            self.backward - at
        } else {
            at + 1
        }
    }
}

impl core::ops::Deref for Steps {
    type Target = [Step];
    #[inline(always)]
    fn deref(&self) -> &[Step] {
        &self.steps
    }
}

/// The steps of a chain in the order in which a direction's packets pass them.
struct Way {
    steps: Box<[Step]>,
    /// All of them in one piece, if they are known as that.
    fused: Option<Wholes>,
}

/// The instances of all functions on one worker, and the chains over them.
pub struct Stages {
    /// The chains, by the index that [`Plan::classify`] answers.
    pub chains: Vec<Steps>,
    /// The same in the order in which packets pass them: twice a chain's index, plus the direction.
    ways: Vec<Way>,
    /// The flow state of a new flow of each chain, byte for byte: flow state is plain data.
    fresh: Vec<Box<[u8]>>,
    /// The instances, in the plan's order.
    pub functions: Vec<Owned>,
    /// The names under which the configuration knows them.
    pub names: Vec<String>,
    counters: Vec<Vec<u64>>,
    /// Where each function's group state begins.
    pub group_offsets: Vec<u32>,
    /// Committed bytes of flow state by chain, as places in an actor's state.
    committed: Vec<Shape>,
    /// Committed bytes of group state, as places in a group's.
    group_committed: Shape,
    /// The committed bytes of a flow's state as they were, as long as the longest.
    shadow: Region,
    /// Whether changes of a flow by calls are seen by watching them.
    pub is_watchable: bool,
    /// Bytes of flow state in an actor.
    pub flow_size: usize,
    /// Bytes of group state in a group.
    pub group_size: usize,
    /// Whether groups may outlive their flows: some function says for how long.
    pub outlives: bool,
    /// Functions that timers wake, by their numbers.
    pub timed: Vec<usize>,
    /// The largest future.
    pub future_size: usize,
    /// Variables that the functions have opened.
    pub variables: WorkerVariables,
    /// The kinds of shared objects that they have opened, and the table of their pending calls.
    pub objects: WorkerObjects,
    /// The runtime's own variable: its flows in a store (`replica::ledger`). Its partition is with
    /// the functions'.
    pub ledger: Option<Map<u64, Bytes>>,
}

// SAFETY: the pointers in steps point into `functions` and `counters`, boxes that move with the
// whole, as do `variables` and the functions' handles of them. Handles of `objects` count their
// references atomically, and use the table of pending calls at the worker only.
unsafe impl Send for Stages {}

impl Stages {
    /// Of a runtime that is taken apart.
    pub fn none() -> Self {
        Stages {
            chains: Vec::new(),
            ways: Vec::new(),
            fresh: Vec::new(),
            functions: Vec::new(),
            names: Vec::new(),
            counters: Vec::new(),
            group_offsets: Vec::new(),
            committed: Vec::new(),
            group_committed: Shape::default(),
            shadow: Region::heap(0),
            is_watchable: false,
            flow_size: 0,
            group_size: 0,
            outlives: false,
            timed: Vec::new(),
            future_size: 0,
            variables: WorkerVariables::default(),
            objects: WorkerObjects::default(),
            ledger: None,
        }
    }

    /// Instantiates a plan's functions for one worker.
    pub fn new(plan: &Plan, worker: &WorkerInfo) -> Result<Self, (String, ConfigError)> {
        Self::opening(plan, worker, Keeper::begin)
    }

    /// The same, of instances that shall replace the worker's: their variables are those that are
    /// there.
    pub fn following(plan: &Plan, worker: &WorkerInfo) -> Result<Self, (String, ConfigError)> {
        Self::opening(plan, worker, Keeper::follow)
    }

    /// The same, of instances that others replace before the first packet: no store hears of them.
    pub fn detached(plan: &Plan, worker: &WorkerInfo) -> Result<Self, (String, ConfigError)> {
        Self::opening(plan, worker, |_, _, _| Variables::local())
    }

    /// Opens the variable in which the runtime keeps its flows, where they are to be in a store:
    /// for up to so many entries.
    pub fn open_ledger(
        &mut self,
        plan: &Plan,
        runtime: u16,
        storing: &Storing,
        entries: usize,
    ) -> Result<(), (String, ConfigError)> {
        let mut opened = plan.keeper.begin(STORED_AS, u32::from(runtime));
        let options = Options {
            capacity: entries,
            // Changes are collected before they get there.
            consistency: Consistency::Behind {
                interval_ns: 0,
                bound_ns: storing.bound,
            },
        };
        let ledger = opened.map("flows", options).map_err(|error| {
            let error = ConfigError {
                at: "flows in the store".to_string(),
                ..ConfigError::from(error)
            };
            (STORED_AS.to_string(), error)
        })?;
        self.variables.take(LEDGER, opened);
        self.ledger = Some(ledger);
        Ok(())
    }

    fn opening(
        plan: &Plan,
        worker: &WorkerInfo,
        open: impl Fn(&Keeper, &str, u32) -> Variables,
    ) -> Result<Self, (String, ConfigError)> {
        let mut variables = WorkerVariables::default();
        let mut objects = WorkerObjects::default();
        let mut functions = Vec::new();
        let mut names = Vec::new();
        let mut counters: Vec<Vec<u64>> = Vec::new();
        let mut group_offsets = Vec::new();
        let (mut group_size, mut future_size) = (0, 0);
        let mut group_committed = Vec::new();
        for factory in plan.factories() {
            let mut opened = open(&plan.keeper, factory.name(), u32::from(worker.runtime));
            let stage = factory
                .instantiate(worker, &mut opened, &mut objects.of(factory.name()))
                .map_err(|error| (factory.name().to_string(), error))?;
            variables.take(functions.len(), opened);
            let layout = stage.layout();
            group_size = aligned(group_size, layout.group.1);
            group_offsets.push(group_size as u32);
            push_range(&mut group_committed, group_size, layout.committed[1]);
            group_size += layout.group.0;
            future_size = future_size.max(layout.future);
            counters.push(alloc::vec![0; stage.counters().len() + 1]);
            names.push(factory.name().to_string());
            functions.push(Owned::new(stage));
        }
        let outlives = functions.iter().any(|function| function.outlives());
        let is_timed = |number: &usize| functions.get(*number).is_some_and(|function| function.is_timed());
        let timed = (0..functions.len()).filter(is_timed).collect();
        let longest = (0..plan.chains().len()).map(|chain| plan.flow_size(chain)).max();
        let mut stages = Stages {
            chains: Vec::new(),
            ways: Vec::new(),
            fresh: Vec::new(),
            functions,
            names,
            counters,
            group_offsets,
            committed: Vec::new(),
            // Groups' committed bytes are not looked at where they are in the flow's state.
            is_watchable: plan.affinity() != Affinity::Flow || group_committed.is_empty(),
            group_committed: Shape::of(&group_committed, group_size),
            shadow: Region::heap(longest.unwrap_or(0)),
            flow_size: 0,
            group_size,
            outlives,
            timed,
            future_size,
            variables,
            objects,
            ledger: None,
        };
        for chain in plan.chains() {
            let mut committed = Vec::new();
            let mut flow_offset = 0;
            let mut steps = ArrayVec::new();
            for name in &chain.functions {
                let index = stages
                    .names
                    .iter()
                    .position(|n| n == name)
                    .expect("the plan was checked");
                let stage = &stages.functions[index];
                let layout = stage.layout();
                flow_offset = aligned(flow_offset, layout.flow.1);
                push_range(&mut committed, flow_offset, layout.committed[0]);
                let (instance, entry) = stage.entry();
                let [own, _] = layout.committed;
                // SAFETY: the shadow is as long as the chain's states.
                let shadow = unsafe { stages.shadow.start().add(flow_offset) };
                steps.push(Step {
                    entry,
                    watched: stage.watched(),
                    instance,
                    shadow,
                    committed: own as u32,
                    flow: flow_offset as u32,
                    group: stages.group_offsets[index],
                    counters: NonNull::from(&mut stages.counters[index][..]).cast(),
                    function: index as u8,
                    at: steps.len() as u8,
                });
                flow_offset += layout.flow.0;
            }
            stages.flow_size = stages.flow_size.max(flow_offset);
            let last = |name: &String| plan.factories().iter().any(|f| f.name() == name && f.is_last());
            let backward = steps.len() - usize::from(chain.functions.last().is_some_and(last));
            let (turned, last) = steps.split_at(backward);
            stages.fresh.push(stages.fresh_state(&steps, flow_offset));
            let factories = || {
                let names = chain.functions.iter();
                let of = |name: &String| plan.factories().iter().find(|f| f.name() == name);
                names.filter_map(of).map(|factory| &**factory)
            };
            let mut fused = plan.fused.iter();
            let entries = fused.find_map(|fused| fused.entries_of(factories()));
            stages.ways.push(Way {
                steps: steps.iter().copied().collect(),
                fused: entries.map(|[opening, _]| opening),
            });
            stages.ways.push(Way {
                steps: turned.iter().rev().chain(last).copied().collect(),
                fused: entries.map(|[_, reply]| reply),
            });
            stages.chains.push(Steps { steps, backward });
            stages.committed.push(Shape::of(&committed, flow_offset));
        }
        Ok(stages)
    }

    /// The default state of all functions of a chain, as in an actor.
    fn fresh_state(&self, steps: &[Step], size: usize) -> Box<[u8]> {
        let region = Region::heap(size);
        for step in steps {
            let stage = &self.functions[usize::from(step.function)];
            // SAFETY: the region has the chain's layout and is aligned to a cache line.
            unsafe { stage.create(region.start().add(step.flow as usize)) };
        }
        // SAFETY: the region was zeroed, and only plain data was written since: every byte has a
        // value.
        unsafe { core::slice::from_raw_parts(region.start().as_ptr(), size) }.into()
    }

    /// Committed bytes of a chain's flow state, as places in an actor's state.
    #[inline]
    pub fn committed(&self, chain: u8) -> Option<&Shape> {
        self.committed.get(usize::from(chain))
    }

    /// Lazy bytes are copied as committed ones are.
    pub fn commit_all(&mut self) {
        let whole = |length: usize| Shape::of(core::slice::from_ref(&(0..length)), length);
        self.committed = self.fresh.iter().map(|fresh| whole(fresh.len())).collect();
        self.group_committed = whole(self.group_size);
        self.is_watchable = false;
    }

    /// The committed bytes of a flow's state as they were.
    #[inline]
    pub fn shadow(&self) -> &[u8] {
        // SAFETY: the region is this one's, and began zeroed; only calls of functions write to it
        // by their steps, and none is under way.
        unsafe { core::slice::from_raw_parts(self.shadow.start().as_ptr(), self.shadow.length()) }
    }

    /// The same, to be written, and where those of a chain are.
    #[inline]
    pub fn shadow_of(&mut self, chain: u8) -> Option<(&Shape, &mut [u8])> {
        let shape = self.committed.get(usize::from(chain))?;
        // SAFETY: as above; nothing else has it meanwhile.
        let shadow =
            unsafe { core::slice::from_raw_parts_mut(self.shadow.start().as_ptr(), self.shadow.length()) };
        Some((shape, shadow))
    }

    /// Committed bytes of group state, as places in a group's.
    #[inline]
    pub fn group_committed(&self) -> &Shape {
        &self.group_committed
    }

    /// The flow state that a new flow of a chain begins with.
    #[inline]
    pub fn fresh(&self, chain: u8) -> &[u8] {
        &self.fresh[usize::from(chain)]
    }

    /// The same; `None` if there is no such chain.
    pub fn fresh_of(&self, chain: u8) -> Option<&[u8]> {
        self.fresh.get(usize::from(chain)).map(|state| &**state)
    }

    /// How many chains there are.
    pub fn chains(&self) -> usize {
        self.chains.len()
    }

    /// A chain's steps in the order in which a packet of this direction passes them.
    #[inline(always)]
    pub fn way(&self, chain: u8, direction: Direction) -> &[Step] {
        &self.ways[2 * usize::from(chain) + direction as usize].steps
    }

    /// The same in one piece, if there is that; `WATCHED`: with a look at changed bytes.
    #[inline(always)]
    pub fn fused<const WATCHED: bool>(&self, chain: u8, direction: Direction) -> Option<Whole> {
        let way = &self.ways[2 * usize::from(chain) + direction as usize];
        let [alone, watched] = way.fused?;
        Some(if WATCHED { watched } else { alone })
    }

    /// Replaces `before` between two bursts: the instances take over what those hold, and the
    /// counters go on. They stay where they are, since calls that wait know them by address. Both
    /// have the same functions in the same order.
    pub fn succeed(&mut self, before: &mut Stages) {
        debug_assert_eq!(self.names, before.names);
        self.variables.adopt(&mut before.variables);
        self.objects.adopt(&before.objects);
        self.ledger = before.ledger.take().or(self.ledger.take());
        core::mem::swap(&mut self.counters, &mut before.counters);
        let counters = &mut self.counters;
        let steps = self.chains.iter_mut().flat_map(|chain| &mut chain.steps);
        for step in steps.chain(self.ways.iter_mut().flat_map(|way| &mut way.steps[..])) {
            step.counters = NonNull::from(&mut counters[usize::from(step.function)][..]).cast();
        }
        for (stage, before) in self.functions.iter().zip(&before.functions) {
            stage.take_over(&**before);
        }
    }

    /// Of stages that have been succeeded and are over: drops the instances that have handles of
    /// the worker's variables, since those share counts of references with what stays at the
    /// worker.
    pub fn drop_handles(&mut self) {
        let Stages {
            functions, variables, ..
        } = self;
        let mut number = 0..;
        functions.retain(|_| number.next().is_none_or(|number| !variables.was_adopted(number)));
    }

    /// Where a function's counters are.
    pub fn counters_of(&mut self, function: usize) -> NonNull<u64> {
        NonNull::from(&mut self.counters[function][..]).cast()
    }

    /// The counters of a function, in the order of its names.
    pub fn counters(&self, function: usize) -> &[u64] {
        let names = self.functions[function].counters().len();
        // Read through the pointer that the steps write through, so that both agree.
        &self.counters[function][..names]
    }
}

/// A stage at a fixed address: steps keep pointers to it, which moving a `Box` would invalidate.
pub struct Owned(NonNull<dyn Stage>);

impl Owned {
    fn new(stage: Box<dyn Stage>) -> Self {
        Owned(NonNull::from(Box::leak(stage)))
    }
}

impl core::ops::Deref for Owned {
    type Target = dyn Stage;
    fn deref(&self) -> &(dyn Stage + 'static) {
        // SAFETY: it was a box, and no code makes `&mut` references to a stage.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was leaked from a box in `new`, and this is its end.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Adds so many bytes from `start` on to a list of places, to the last one if they follow it.
fn push_range(ranges: &mut Vec<Range<usize>>, start: usize, length: usize) {
    match ranges.last_mut() {
        Some(last) if last.end == start => last.end += length,
        _ if length > 0 => ranges.push(start..start + length),
        _ => {}
    }
}

fn aligned(offset: usize, align: usize) -> usize {
    offset.next_multiple_of(align.max(1))
}
