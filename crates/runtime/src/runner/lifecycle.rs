//! The incarnations of states: a flow's and a group's, over the functions of its chain.
//!
//! ```text
//!   create ─► arrived(New) ──────────────────────────────┐
//!   bytes ─► is_flow? ─► rebase ─► arrived(Migrated) ────┼─► adapt (another configuration) ─► departed ─► group_ended
//! ```
//!
//! Each step is one loop ([`Runner::each_step`]), given what to call. Effects of these calls are
//! blocks of ports alone: there is no packet at hand.

use super::Runner;
use crate::chain::{Owned, Stages, Step};
use crate::flows::FlowStore;
use crate::flows::actor::{Header, NO_GROUP, flag};
use crate::flows::group::GroupKey;
use crate::outbox::Outbox;
use crate::record::Travelling;
use alloc::format;
use alloc::string::String;
use core::ptr::NonNull;
use nf::cx::{EFFECTS_MAX, RawCx};
use nf::{Affinity, Arrival, Block, BlockWas, Departure, Direction, Loan, PoolState, Side};
use wire::planted;

/// Calls of a function for the end of one group, at most: enough for all ports of an address, one
/// by one.
const GROUP_CALLS: usize = 65_536 / EFFECTS_MAX;

/// The side from which a flow was opened.
pub(super) fn opened_from(header: &Header) -> Side {
    if header.flags & flag::FROM_OUTSIDE != 0 {
        Side::Outside
    } else {
        Side::Inside
    }
}

impl Runner {
    /// Calls each function of an actor's chain with its state, the group's at hand.
    ///
    /// # Safety
    /// The actor's states are laid out for its chain, and no call of it waits.
    pub(super) unsafe fn each_step(
        &mut self,
        actor: u32,
        flows: &mut FlowStore,
        out: &mut Outbox,
        mut call: impl FnMut(&Owned, NonNull<u8>, &mut RawCx),
    ) {
        let header = flows.header(actor);
        let state = flows.state(actor);
        let group = flows.group_state(header.group, state);
        let cx = self.prepare(actor, opened_from(header), Direction::Opening, flows);
        let steps = core::ptr::from_ref(self.steps_of(actor, flows));
        // SAFETY: stages change between two steps of the worker only (`change`): these stay where
        // they are.
        for step in unsafe { &*steps } {
            // SAFETY: the group's state has room for all functions' parts, and the actor's for its
            // chain's.
            let state = unsafe {
                cx.group = group.add(step.group as usize);
                state.add(step.flow as usize)
            };
            cx.counters = step.counters;
            call(&self.stages.functions[usize::from(step.function)], state, cx);
            self.apply_block_effects(cx, actor, flows, out);
        }
    }

    /// Default states for a flow that begins, and word to its functions that it has arrived.
    pub fn create(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) {
        let header = flows.header(actor);
        let (group, chain) = (header.group, header.chain);
        let state = flows.state(actor);
        if group == NO_GROUP && self.stages.group_size > 0 {
            self.create_group(flows.group_state(NO_GROUP, state));
        }
        let fresh = self.stages.fresh(chain);
        // SAFETY: the state is this actor's, with room for every chain's, and nothing else uses it.
        unsafe { core::ptr::copy_nonoverlapping(fresh.as_ptr(), state.as_ptr(), fresh.len()) };
        // SAFETY: the state was laid out for this chain just now.
        unsafe {
            self.each_step(actor, flows, out, |stage, flow, cx| {
                stage.arrived(flow, Arrival::New, cx);
            });
        }
    }

    /// Default states of a group.
    pub fn create_group(&self, state: NonNull<u8>) {
        for (stage, offset) in self.stages.functions.iter().zip(&self.stages.group_offsets) {
            // SAFETY: group state was sized for all functions in this order.
            unsafe { stage.create_group(state.add(*offset as usize)) };
        }
    }

    /// Tells a flow's functions that it has come from another runtime.
    pub fn arrive(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) {
        if !planted::is("arrived_not_called") {
            let _ = self.arrive_as(actor, Arrival::Migrated, flows, out);
        }
    }

    /// Tells a flow's functions that it has come, and why. Of a recovered flow, answers how long
    /// they say that it lives by the state that it has, in nanoseconds; 0 if none says so.
    pub fn arrive_as(&mut self, actor: u32, why: Arrival, flows: &mut FlowStore, out: &mut Outbox) -> u64 {
        let chain = 1u64.checked_shl(u32::from(flows.header(actor).chain));
        let is_kept = why == Arrival::Recovered && self.lazy_kept & chain.unwrap_or(0) != 0;
        let mut timeout = 0;
        // SAFETY: the state is this actor's, with bytes that `is_flow` has found to be its
        // functions'.
        unsafe {
            self.each_step(actor, flows, out, |stage, flow, cx| {
                cx.lazy_kept = is_kept;
                stage.arrived(flow, why, cx);
                cx.lazy_kept = false;
                if why == Arrival::Recovered {
                    timeout = stage.timeout(flow).max(timeout);
                }
            });
        }
        timeout
    }

    /// How long a flow's functions say that it lives by the state that it has, in nanoseconds; 0 if
    /// none says so.
    pub fn timeout_of(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) -> u64 {
        let mut timeout = 0;
        // SAFETY: the state is this actor's, and its functions have been told that it arrived.
        unsafe {
            self.each_step(actor, flows, out, |stage, flow, _| {
                timeout = stage.timeout(flow).max(timeout);
            });
        }
        timeout
    }

    /// Copies of flows of these chains, by bits, have lazy bytes as committed ones.
    pub fn keep_lazy(&mut self, chains: u64) {
        self.lazy_kept = chains;
    }

    /// A chain's policy of copies was set while it runs. One runtime hears of that before another:
    /// until another configuration is in force, a copy may be of either policy, and functions are
    /// told the less.
    pub fn doubt_lazy(&mut self, chain: usize) {
        let chain = u32::try_from(chain)
            .ok()
            .and_then(|chain| 1u64.checked_shl(chain));
        self.lazy_kept &= !chain.unwrap_or(0);
    }

    /// Tells a flow's functions that it goes, and why.
    pub fn depart(&mut self, actor: u32, why: Departure, flows: &mut FlowStore, out: &mut Outbox) {
        let is_moving = why == Departure::Migrated;
        if is_moving && planted::is("departed_not_called") {
            return;
        }
        let why = match is_moving && planted::is("departs_as_expired") {
            true => Departure::Expired,
            false => why,
        };
        // SAFETY: the state is this actor's, laid out for its chain; no call of it waits.
        unsafe {
            self.each_step(actor, flows, out, |stage, flow, cx| {
                stage.departed(flow, why, cx);
            });
        }
    }

    /// Hands the state of an actor's group, whose last flow that is, to each function for the last
    /// time.
    pub fn end_group(&mut self, actor: u32, flows: &mut FlowStore, out: &mut Outbox) {
        if self.stages.group_size == 0 {
            return;
        }
        let group = flows.group_state(flows.header(actor).group, flows.state(actor));
        let key = flows.group_key(actor);
        let cx = self.prepare(actor, Side::Inside, Direction::Opening, flows);
        self.end_group_with(cx, (key, group), flows, out);
    }

    /// The same of a group that rests, so that no flow is at hand.
    pub fn end_resting(&mut self, index: u32, flows: &mut FlowStore, out: &mut Outbox) {
        if self.stages.group_size == 0 {
            return;
        }
        let group = (flows.groups().key(index), flows.groups().state(index));
        let cx = self.prepare_without();
        self.end_group_with(cx, group, flows, out);
    }

    fn end_group_with(
        &mut self,
        cx: &mut RawCx,
        (key, group): (GroupKey, NonNull<u8>),
        flows: &mut FlowStore,
        out: &mut Outbox,
    ) {
        // Every function of the runtime may have state in the group, in whichever chain it is, or
        // was.
        for function in 0..self.stages.functions.len() {
            cx.counters = self.stages.counters_of(function);
            for _ in 0..GROUP_CALLS {
                // SAFETY: the group's state was made for all functions, and its last flow's calls
                // are over.
                unsafe {
                    cx.group = group.add(self.stages.group_offsets[function] as usize);
                    self.stages.functions[function].group_ended(cx);
                }
                let has_more = cx.blocks.is_full();
                self.apply_block_effects_of(cx, key, flows, out);
                if !has_more {
                    break;
                }
            }
        }
    }

    /// How long, in nanoseconds, a group lives without a flow: as long as any function says; 0 if
    /// none does.
    pub fn group_timeout(&self, index: u32, flows: &FlowStore) -> u64 {
        if !self.stages.outlives {
            return 0;
        }
        let group = flows.groups().state(index);
        let functions = self.stages.functions.iter().zip(&self.stages.group_offsets);
        // SAFETY: the place has all functions' states, made or found valid, and no call is under
        // way.
        let timeouts =
            functions.map(|(stage, offset)| unsafe { stage.group_timeout(group.add(*offset as usize)) });
        timeouts.max().unwrap_or(0)
    }

    /// A block of ports that a group at another runtime has: how it stood in some function's pool.
    pub fn block_in_use(&self, block: Block) -> BlockWas {
        // All are to hear of it: each knows its own.
        let functions = self.stages.functions.iter();
        let were = functions.map(|function| function.block_in_use(block));
        were.max().unwrap_or(BlockWas::Anothers)
    }

    /// How a function's pool stands; `None` if it has none, or is not there.
    pub fn pool(&self, function: usize) -> Option<PoolState> {
        self.stages.functions.get(function)?.pool()
    }

    /// How many functions there are.
    pub fn functions(&self) -> usize {
        self.stages.functions.len()
    }

    /// A function's blocks that it lends.
    pub fn lend_blocks(&self, function: usize, loan: &Loan, lend: &mut dyn FnMut(Block)) {
        if let Some(stage) = self.stages.functions.get(function) {
            stage.lend_blocks(loan, lend);
        }
    }

    /// A borrowed block is free here; whether some function's pool has it.
    pub fn borrow_block(&self, block: Block, home: u16) -> bool {
        let functions = self.stages.functions.iter();
        functions
            .filter(|function| function.borrow_block(block, home))
            .count()
            > 0
    }

    /// A borrowed block goes home.
    pub fn forsake_block(&self, block: Block) {
        self.stages
            .functions
            .iter()
            .for_each(|function| function.forsake_block(block));
    }

    /// The free blocks of a function's pool at other runtimes.
    pub fn pools_heard(&self, function: usize, others: Option<(u32, u32)>) {
        if let Some(stage) = self.stages.functions.get(function) {
            stage.pools_heard(others);
        }
    }

    /// A block of ports is back in its pool.
    pub fn block_returned(&self, block: Block) {
        for function in &self.stages.functions {
            function.block_returned(block);
        }
    }

    /// Shows each field of what a function keeps of a flow, by name and value. No call of the flow
    /// waits.
    pub fn each_field(
        &self,
        actor: u32,
        step: &Step,
        flows: &FlowStore,
        mut show: impl FnMut(&'static str, String),
    ) {
        let stage = &self.stages.functions[usize::from(step.function)];
        // SAFETY: the state is this actor's, laid out for this chain, and no call uses it now.
        unsafe {
            let flow = flows.state(actor).add(step.flow as usize);
            stage.each_field(flow, &mut |name, value| show(name, format!("{value:?}")));
        }
    }

    // States that travel.

    /// The moving parts of the states of a flow of a chain; `None` if there is no such chain.
    pub fn travelling(&self, chain: u8, flows: &FlowStore) -> Option<Travelling> {
        self.travelling_by(&self.stages, chain, flows)
    }

    /// The same by the stages of the configuration in force, or before.
    pub(super) fn travelling_by(&self, stages: &Stages, chain: u8, flows: &FlowStore) -> Option<Travelling> {
        let group = match flows.affinity() {
            Affinity::Flow => (flows.group_offset(), self.stages.group_size),
            _ => (0, 0),
        };
        let own = stages.fresh_of(chain)?.len();
        Some(Travelling { own, group })
    }

    /// Bytes of a group's state.
    pub fn group_size(&self) -> usize {
        self.stages.group_size
    }

    /// Whether the bytes that came for a flow are one, all of it: its chain is there, and its
    /// functions' states are states.
    pub fn is_flow(&self, actor: u32, flows: &FlowStore) -> bool {
        let header = flows.header(actor);
        if usize::from(header.chain) >= self.stages.chains() {
            return false;
        }
        let has = |bit: u8| header.flags & bit != 0;
        if has(flag::ANNOUNCED) && !has(flag::REPLY_KEY) {
            return false;
        }
        let state = flows.state(actor);
        let mut steps = self.stages.way(header.chain, Direction::Opening).iter();
        // SAFETY: the actor's state has room for every chain's, and nothing has a reference to it.
        let is_sound = steps.all(|step| unsafe {
            let stage = &self.stages.functions[usize::from(step.function)];
            stage.is_valid(state.add(step.flow as usize))
        });
        is_sound
            && (flows.affinity() != Affinity::Flow
                // SAFETY: a flow that is by itself has the group's state behind its own.
                || unsafe { self.is_group_state(flows.group_state(NO_GROUP, state)) })
    }

    /// Whether the bytes that came for a group are its states of all functions.
    pub fn is_group(&self, index: u32, flows: &FlowStore) -> bool {
        // SAFETY: the group's place has room for all functions' states.
        unsafe { self.is_group_state(flows.groups().state(index)) }
    }

    /// # Safety
    /// There are so many bytes, aligned as groups' states are, and nothing writes to them
    /// meanwhile.
    unsafe fn is_group_state(&self, state: NonNull<u8>) -> bool {
        let mut functions = self.stages.functions.iter().zip(&self.stages.group_offsets);
        // SAFETY: the caller's promise.
        functions.all(|(stage, offset)| unsafe { stage.is_valid_group(state.add(*offset as usize)) })
    }

    /// Has all times in the states of flows that have come be by the clock here, which is ahead of
    /// theirs by so many nanoseconds.
    pub fn rebase_flows(&self, actors: &[u32], by: i64, flows: &FlowStore) {
        if by == 0 {
            return;
        }
        for actor in actors {
            let chain = flows.header(*actor).chain;
            let state = flows.state(*actor);
            for step in self.stages.way(chain, Direction::Opening) {
                let stage = &self.stages.functions[usize::from(step.function)];
                // SAFETY: the state is this actor's, with bytes that `is_flow` has found to be its
                // functions'; no call of it waits.
                unsafe { stage.rebase(state.add(step.flow as usize), by) };
            }
            if flows.affinity() == Affinity::Flow {
                // SAFETY: a flow that is by itself has the group's state behind its own, and
                // `is_flow` has looked at that, too.
                unsafe { self.rebase_group_state(flows.group_state(NO_GROUP, state), by) };
            }
        }
    }

    /// The same of a group's state.
    pub fn rebase_group(&self, group: u32, by: i64, flows: &FlowStore) {
        if by != 0 {
            // SAFETY: the place has all functions' states, and `is_group_state` has found them to
            // be such.
            unsafe { self.rebase_group_state(flows.groups().state(group), by) };
        }
    }

    /// # Safety
    /// These are the group's states of all functions, and nothing else has a reference to them.
    unsafe fn rebase_group_state(&self, state: NonNull<u8>, by: i64) {
        for (stage, offset) in self.stages.functions.iter().zip(&self.stages.group_offsets) {
            // SAFETY: the caller's promise.
            unsafe { stage.rebase_group(state.add(*offset as usize), by) };
        }
    }

    /// Fetches what the arrival, or departure, of a flow will look at in tables: the store's and
    /// the functions'.
    pub fn prefetch_moving(&self, actor: u32, leaves: bool, flows: &FlowStore) {
        flows.prefetch_keys(actor);
        self.prefetch_functions(actor, leaves, flows);
    }

    /// The same of the functions' tables.
    pub fn prefetch_functions(&self, actor: u32, leaves: bool, flows: &FlowStore) {
        let header = flows.header(actor);
        let state = flows.state(actor);
        for step in self.stages.way(header.chain, Direction::Opening) {
            let stage = &self.stages.functions[usize::from(step.function)];
            // SAFETY: the state is this actor's, laid out for this chain; no call of it waits.
            unsafe { stage.prefetch_moving(state.add(step.flow as usize), &header.key, leaves) };
        }
    }
}
