//! Network functions with their types erased: the parts of a chain.
//!
//! # Theory of operation
//!
//! [`Configured`] binds a function's type to its configuration; as a [`Factory`] it makes one
//! [`Stage`] per worker. A stage works on raw state: `flow` points at the function's part of an
//! actor, `cx` at the facts of the packet at hand.
//!
//! ```text
//!  worker ──run──► process_now ──Some(verdict)──────────────────► code
//!                       └─None─► future built in the frame, polled ─► code, or WAITING: the frame now holds the rest
//!  worker ──poll the frame later──────────────────────────────────► code
//! ```
//!
//! A verdict travels as a [`Code`], a plain number, so that the common answer (forward) is one
//! compare. The measured reasons for this shape are in `docs/decisions/0001-stage-api.md`.
//!
//! Invariants: a frame's future is dropped exactly once, when it is done or cancelled; its borrows
//! (packet, flow state, cx, the instance) do not move and are not used by other code while it
//! exists. The worker keeps the second half (`runner::waiting`).

mod through;

use crate::microthread::{Finished, Frame, FutureSlot};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt::Debug;
use core::ptr::NonNull;
use nf::cx::RawCx;
use nf::objects::{Objects, ObjectsHere};
use nf::plain::Plain;
use nf::variables::Variables;
use nf::variables::through::Through;
use nf::{
    Affinity, Arrival, Check, Claim, ConfigError, Cx, Departure, FlowState, Keep, NetworkFunction, Packet,
    TimerCx, Verdict, WorkerInfo,
};
use wire::{Endpoint, FlowKey};

/// A verdict as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Code(u32);

impl Code {
    /// On to the next function.
    pub const FORWARD: Code = Code(0);
    /// Goes back.
    pub const ANSWER: Code = Code(1);
    /// Held with the flow.
    pub const CONSUME: Code = Code(2);
    /// The function waits; its future is in the frame.
    pub const WAITING: Code = Code(3);
    const DROP: u32 = 0x100;
    /// Behind a call that was watched: committed bytes of the flow's state are others now.
    const OTHER: u32 = 1 << 31;

    /// The same, and whether committed bytes are others: in one number, so that an answer stays in
    /// two registers.
    #[inline(always)]
    pub(crate) fn with(self, is_other: bool) -> Code {
        Code(self.0 | if is_other { Self::OTHER } else { 0 })
    }

    /// A watched call's verdict, and whether committed bytes of the flow's state are others.
    #[inline(always)]
    pub(crate) fn split(self) -> (Code, bool) {
        (Code(self.0 & !Self::OTHER), self.0 & Self::OTHER != 0)
    }

    /// As a plain number; 0 for [`Code::FORWARD`].
    #[inline(always)]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The index of the drop reason, if this is a drop.
    #[inline]
    pub fn drop_reason(self) -> Option<usize> {
        self.0.checked_sub(Self::DROP).map(|reason| reason as usize)
    }
}

impl From<Verdict> for Code {
    #[inline(always)]
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Forward => Code::FORWARD,
            Verdict::Answer => Code::ANSWER,
            Verdict::Consume => Code::CONSUME,
            Verdict::Drop(reason) => Code(Code::DROP + reason.index() as u32),
        }
    }
}

/// The answer of a call: in two registers, so that nothing of it goes through memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallAnswer {
    /// How long the flow is to live from now on, in nanoseconds, if this is more than others ask; 0
    /// for no wish.
    pub timeout: u64,
    /// The verdict; of a call that was watched with what it has changed ([`Code::split`]).
    pub code: Code,
}

/// Sizes in bytes of what a function keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// Flow state: size and alignment.
    pub flow: (usize, usize),
    /// Group state: size and alignment.
    pub group: (usize, usize),
    /// Bytes of a waiting call: the size of its future, exactly.
    pub future: usize,
    /// How many bytes at the start of flow and group state are committed
    /// ([`FlowState::COMMITTED`]).
    pub committed: [usize; 2],
}

/// The marks that other builds must have alike to take a state's bytes for the same state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schema {
    /// [`FlowState::VERSION`].
    pub version: u32,
    /// Bytes.
    pub size: usize,
    /// How many of them, at the start, are committed.
    pub committed: usize,
    /// [`Plain::LAYOUT`].
    pub layout: u64,
}

impl Schema {
    fn of<S: FlowState>() -> Self {
        Schema {
            version: S::VERSION,
            size: size_of::<S>(),
            committed: S::COMMITTED,
            layout: S::LAYOUT,
        }
    }
}

/// Runs a function on a packet: the hot entry of a stage, without a look into a vtable.
///
/// # Safety
/// See [`Stage::entry`].
pub type Entry = unsafe fn(*const (), &mut Packet, NonNull<u8>, NonNull<Frame>) -> CallAnswer;

/// The same of a call that is watched: the last argument is where committed bytes are noted as they
/// were before it.
///
/// # Safety
/// See [`Stage::entry`]; the place is valid for as many bytes, and nothing else is there.
pub type Watched = unsafe fn(*const (), &mut Packet, NonNull<u8>, NonNull<Frame>, NonNull<u8>) -> CallAnswer;

/// One instance of a function on one worker.
///
/// # Safety
/// The methods that take pointers need: `flow` (and `cx.group`) points to a valid state of this
/// function that no other code uses during the call, and `cx` is filled in as `Cx::of` demands.
pub unsafe trait Stage {
    /// The function's name.
    fn name(&self) -> &'static str;
    /// Names of its counters.
    fn counters(&self) -> &'static [&'static str];
    /// Names of its drop reasons.
    fn reasons(&self) -> &'static [&'static str];
    /// The layout of its states.
    fn layout(&self) -> Layout;
    /// The entry and its first argument. The entry's packet, flow state and frame must stay where
    /// they are until the frame's future is done or cancelled, if the entry answers
    /// [`Code::WAITING`].
    fn entry(&self) -> (*const (), Entry);
    /// The entry of calls that are watched, with the same first argument.
    fn watched(&self) -> Watched;
    /// Writes default flow state.
    ///
    /// # Safety
    /// `flow` is valid for writes of the flow layout.
    unsafe fn create(&self, flow: NonNull<u8>);
    /// Whether the bytes there are a flow state.
    ///
    /// # Safety
    /// `flow` is valid for reads of the flow layout, all bytes have a value, and no code writes to
    /// them meanwhile.
    unsafe fn is_valid(&self, flow: NonNull<u8>) -> bool;
    /// Whether the bytes there are a group state.
    ///
    /// # Safety
    /// As for [`Stage::is_valid`], with the group layout.
    unsafe fn is_valid_group(&self, group: NonNull<u8>) -> bool;
    /// Writes default group state.
    ///
    /// # Safety
    /// `group` is valid for writes of the group layout.
    unsafe fn create_group(&self, group: NonNull<u8>);
    /// [`Plain::rebase`] of a flow state.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn rebase(&self, flow: NonNull<u8>, by: i64);
    /// [`Plain::rebase`] of a group state.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn rebase_group(&self, group: NonNull<u8>, by: i64);
    /// [`NetworkFunction::prefetch`].
    fn prefetch(&self, packet: &Packet);
    /// [`NetworkFunction::prefetch_moving`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn prefetch_moving(&self, flow: NonNull<u8>, key: &FlowKey, leaves: bool);
    /// [`NetworkFunction::arrived`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn arrived(&self, flow: NonNull<u8>, why: Arrival, cx: &mut RawCx);
    /// [`NetworkFunction::departed`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn departed(&self, flow: NonNull<u8>, why: Departure, cx: &mut RawCx);
    /// [`NetworkFunction::group_ended`], on `cx.group`.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn group_ended(&self, cx: &mut RawCx);
    /// [`NetworkFunction::timeout`], in nanoseconds; 0 if it says none.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn timeout(&self, flow: NonNull<u8>) -> u64;
    /// [`NetworkFunction::group_timeout`], in nanoseconds.
    ///
    /// # Safety
    /// `group` is a valid state of this function's groups, to which no code writes meanwhile.
    unsafe fn group_timeout(&self, group: NonNull<u8>) -> u64;
    /// Whether it may be another than 0.
    fn outlives(&self) -> bool;
    /// [`NetworkFunction::configured`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn configured(&self, flow: NonNull<u8>, cx: &mut RawCx) -> Keep;
    /// [`NetworkFunction::recovered_of_before`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn recovered_of_before(&self, flow: NonNull<u8>, cx: &mut RawCx) -> Keep;
    /// [`NetworkFunction::take_over`], from an instance of the same function; of another there is
    /// nothing to take over.
    fn take_over(&self, before: &dyn Stage);
    /// The instance itself.
    fn instance(&self) -> &dyn Any;
    /// [`NetworkFunction::recall`].
    fn recall(&self) -> nf::Recall;
    /// [`NetworkFunction::block_returned`].
    fn block_returned(&self, block: nf::Block);
    /// [`NetworkFunction::block_in_use`].
    fn block_in_use(&self, block: nf::Block) -> nf::BlockWas;
    /// [`NetworkFunction::pool`].
    fn pool(&self) -> Option<nf::PoolState>;
    /// [`NetworkFunction::lend_blocks`].
    fn lend_blocks(&self, loan: &nf::Loan, lend: &mut dyn FnMut(nf::Block));
    /// [`NetworkFunction::borrow_block`].
    fn borrow_block(&self, block: nf::Block, home: u16) -> bool;
    /// [`NetworkFunction::forsake_block`].
    fn forsake_block(&self, block: nf::Block);
    /// [`NetworkFunction::pools_heard`].
    fn pools_heard(&self, others: Option<(u32, u32)>);
    /// [`FlowState::each_field`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn each_field(&self, flow: NonNull<u8>, see: &mut dyn FnMut(&'static str, &dyn Debug));
    /// [`NetworkFunction::TABLES`].
    fn tables(&self) -> &'static [nf::Table];
    /// [`NetworkFunction::object_rows`].
    fn rows(&self, table: &str, most: usize, here: ObjectsHere<'_>) -> Vec<nf::Row>;
    /// [`NetworkFunction::row_count`].
    fn row_count(&self, table: &str, here: ObjectsHere<'_>) -> usize;
    /// [`NetworkFunction::command`].
    fn command(&self, words: &[&str]) -> Result<String, String>;
    /// [`NetworkFunction::command_rows`].
    fn command_rows(&self, words: &[&str]) -> Option<nf::table::Answer>;
    /// [`NetworkFunction::said`].
    fn said(&self) -> Vec<Vec<String>>;
    /// [`NetworkFunction::generation`].
    fn generation(&self) -> u32;
    /// Whether it has a [`NetworkFunction::timer_due`].
    fn is_timed(&self) -> bool;
    /// [`NetworkFunction::next_timer`].
    fn next_timer(&self) -> Option<u64>;
    /// [`NetworkFunction::timer_due`].
    ///
    /// # Safety
    /// `cx` is filled in as `TimerCx::of` demands.
    unsafe fn timer_due(&self, cx: &mut RawCx);
    /// [`NetworkFunction::BEGINS_AGAIN`].
    fn begins_again(&self) -> bool;
}

/// A function with its configuration, ready to be instantiated on every worker.
pub trait Factory: Send + Sync {
    /// The name under which chains refer to it.
    fn name(&self) -> &str;
    /// Which flows it needs together.
    fn affinity(&self) -> Affinity;
    /// [`NetworkFunction::ICMP_ERRORS`].
    fn icmp_errors(&self) -> bool;
    /// [`NetworkFunction::LAST`].
    fn is_last(&self) -> bool;
    /// [`NetworkFunction::TRANSLATES`].
    fn translates(&self) -> bool;
    /// The function's own name, which chains may call otherwise.
    fn kind(&self) -> &'static str;
    /// Itself, for [`Factory::succeed`].
    fn as_any(&self) -> &dyn Any;
    /// [`NetworkFunction::succeed`]: this one, of which there are no instances yet, shall follow `before`.
    fn succeed(&mut self, before: &dyn Factory) -> Result<(), ConfigError>;
    /// [`NetworkFunction::feed`].
    fn feed(&self) -> Option<Arc<dyn Any + Send + Sync>>;
    /// The layout of its states.
    fn layout(&self) -> Layout;
    /// The schemas of its flow state and its group state.
    fn schemas(&self) -> [Schema; 2];
    /// Makes the instance of one worker.
    fn instantiate(
        &self,
        worker: &WorkerInfo,
        variables: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Box<dyn Stage>, ConfigError>;
    /// [`NetworkFunction::owner_of`].
    fn owner_of(&self, outside: Endpoint, protocol: u8) -> Option<Endpoint>;
    /// [`NetworkFunction::claims`].
    fn claims(&self) -> Vec<Claim>;
    /// [`NetworkFunction::checks`].
    fn checks(&self) -> Vec<Check>;
}

/// The [`Factory`] of a function's type.
pub struct Configured<F: NetworkFunction> {
    name: String,
    config: Arc<F::Config>,
}

impl<F: NetworkFunction> Configured<F> {
    /// Binds a configuration; `name` is what chains call it.
    pub fn new(name: impl Into<String>, config: F::Config) -> Self {
        Configured {
            name: name.into(),
            config: Arc::new(config),
        }
    }
}

impl<F: NetworkFunction> Factory for Configured<F> {
    fn name(&self) -> &str {
        &self.name
    }
    fn affinity(&self) -> Affinity {
        F::AFFINITY
    }
    fn icmp_errors(&self) -> bool {
        F::ICMP_ERRORS
    }
    fn is_last(&self) -> bool {
        F::LAST
    }
    fn translates(&self) -> bool {
        F::TRANSLATES
    }
    fn kind(&self) -> &'static str {
        F::NAME
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn succeed(&mut self, before: &dyn Factory) -> Result<(), ConfigError> {
        let Some(before) = before.as_any().downcast_ref::<Self>() else {
            let problem = alloc::format!("it is `{}` now and was `{}`", F::NAME, before.kind());
            return Err(ConfigError::new(
                "kind",
                problem,
                "give it another name, or restart",
            ));
        };
        match Arc::get_mut(&mut self.config) {
            Some(config) => F::succeed(config, &before.config),
            None => Err(ConfigError::new(
                "",
                "an instance of it is there already",
                "restart",
            )),
        }
    }
    fn feed(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        F::feed(&self.config)
    }
    fn layout(&self) -> Layout {
        layout_of::<F>()
    }
    fn schemas(&self) -> [Schema; 2] {
        [Schema::of::<F::Flow>(), Schema::of::<F::Group>()]
    }
    fn instantiate(
        &self,
        worker: &WorkerInfo,
        variables: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Box<dyn Stage>, ConfigError> {
        let instance = F::with_objects(&self.config, worker, variables, objects)?;
        Ok(Box::new(Instance {
            function: instance,
            through: variables.through().map(Box::new),
        }))
    }
    fn owner_of(&self, outside: Endpoint, protocol: u8) -> Option<Endpoint> {
        F::owner_of(&self.config, outside, protocol)
    }
    fn claims(&self) -> Vec<Claim> {
        F::claims(&self.config)
    }
    fn checks(&self) -> Vec<Check> {
        F::checks(&self.config)
    }
}

/// A call that may wait, as it is in a frame.
async fn call<F: NetworkFunction>(
    function: &'static F,
    packet: &'static mut Packet,
    state: &'static mut F::Flow,
    cx: &'static mut Cx<F>,
) -> Finished {
    let verdict = function.process(packet, &mut *state, cx).await;
    (verdict, function.timeout(state))
}

fn layout_of<F: NetworkFunction>() -> Layout {
    fn future_size<A, B, C, D, U>(_call: impl FnOnce(A, B, C, D) -> U) -> usize {
        size_of::<U>()
    }
    Layout {
        flow: (size_of::<F::Flow>(), align_of::<F::Flow>()),
        group: (size_of::<F::Group>(), align_of::<F::Group>()),
        future: future_size(call::<F>),
        committed: [F::Flow::COMMITTED, F::Group::COMMITTED],
    }
}

struct Instance<F> {
    function: F,
    /// Of variables that are written through.
    through: Option<Box<Through>>,
}

/// # Safety
/// As [`Stage::entry`] says, with `instance` an `Instance<F>`.
#[inline(always)]
pub(crate) unsafe fn run<F: NetworkFunction>(
    instance: *const (),
    packet: &mut Packet,
    flow: NonNull<u8>,
    frame: NonNull<Frame>,
) -> CallAnswer {
    // SAFETY: the caller's promise: the instance outlives the call.
    let instance = unsafe { &*instance.cast::<Instance<F>>() };
    let function = &instance.function;
    if let Some(through) = &instance.through {
        // SAFETY: the caller's promise, handed on.
        return unsafe { through::run::<F>((function, through), packet, flow, frame) };
    }
    // SAFETY: the caller's promise: the state is this function's alone.
    let state = unsafe { flow.cast::<F::Flow>().as_mut() };
    // SAFETY: the frame's cx is filled in for this function.
    let cx = unsafe { Cx::<F>::of(&mut (*frame.as_ptr()).cx) };
    match function.process_now(packet, state, cx) {
        Some(verdict) => CallAnswer {
            timeout: match verdict {
                Verdict::Drop(_) => 0,
                // SAFETY: the state is still ours; `process_now` has returned.
                _ => nanoseconds(function.timeout(unsafe { flow.cast::<F::Flow>().as_ref() })),
            },
            code: verdict.into(),
        },
        // SAFETY: the caller's promise, handed on.
        None => unsafe { start::<F>(function, packet, flow, frame) },
    }
}

/// [`run`], and whether it has changed committed bytes of the flow's state. The compiler knows how
/// many those are, so both looks at them are some moves in line.
///
/// # Safety
/// As for [`run`]; `shadow` as for [`Watched`].
#[inline(always)]
pub(crate) unsafe fn run_watched<F: NetworkFunction>(
    instance: *const (),
    packet: &mut Packet,
    flow: NonNull<u8>,
    frame: NonNull<Frame>,
    shadow: NonNull<u8>,
) -> CallAnswer {
    // SAFETY: the caller's promise: a state has so many bytes, and so has the place.
    unsafe { shadow.copy_from_nonoverlapping(flow, F::Flow::COMMITTED) };
    // SAFETY: the caller's promise.
    let mut answer = unsafe { run::<F>(instance, packet, flow, frame) };
    if answer.code != Code::WAITING {
        // SAFETY: the call is over, so no code has the state; it is plain data, and all of its
        // bytes have a value.
        let (now, before) = unsafe {
            (
                core::slice::from_raw_parts(flow.as_ptr(), F::Flow::COMMITTED),
                core::slice::from_raw_parts(shadow.as_ptr(), F::Flow::COMMITTED),
            )
        };
        answer.code = answer.code.with(now != before);
    }
    answer
}

#[inline(always)]
fn nanoseconds(timeout: Option<core::time::Duration>) -> u64 {
    match timeout {
        Some(timeout) => timeout
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::from(timeout.subsec_nanos())),
        None => 0,
    }
}

/// Builds the future of `process` in the frame and polls it once.
///
/// # Safety
/// As for [`run`].
#[inline(never)]
unsafe fn start<F: NetworkFunction>(
    function: &F,
    packet: &mut Packet,
    flow: NonNull<u8>,
    frame: NonNull<Frame>,
) -> CallAnswer {
    // SAFETY: the worker keeps packet, flow state, frame and instance in place and untouched until
    // this future is gone.
    unsafe {
        let function: &'static F = &*core::ptr::from_ref(function);
        let packet: &'static mut Packet = &mut *core::ptr::from_mut(packet);
        let state: &'static mut F::Flow = &mut *flow.cast::<F::Flow>().as_ptr();
        let cx: &'static mut Cx<F> = Cx::<F>::of(&mut *core::ptr::addr_of_mut!((*frame.as_ptr()).cx));
        let code = FutureSlot::start(frame, call(function, packet, state, cx));
        CallAnswer {
            timeout: (*frame.as_ptr()).cx.timeout,
            code,
        }
    }
}

// SAFETY: `entry` and the methods use `flow` and `cx.group` only as the trait promises, for this
// function's own types.
unsafe impl<F: NetworkFunction> Stage for Instance<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }
    fn counters(&self) -> &'static [&'static str] {
        F::COUNTERS
    }
    fn reasons(&self) -> &'static [&'static str] {
        F::REASONS
    }
    fn layout(&self) -> Layout {
        let layout = layout_of::<F>();
        let held = self.through.as_ref().map_or(0, |_| through::future_size::<F>());
        Layout {
            future: layout.future.max(held),
            ..layout
        }
    }
    fn entry(&self) -> (*const (), Entry) {
        (core::ptr::from_ref(self).cast(), run::<F>)
    }
    fn watched(&self) -> Watched {
        run_watched::<F>
    }
    unsafe fn create(&self, flow: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { flow.cast::<F::Flow>().write(F::Flow::default()) }
    }
    unsafe fn is_valid(&self, flow: NonNull<u8>) -> bool {
        // SAFETY: the caller's promise.
        let bytes = unsafe { core::slice::from_raw_parts(flow.as_ptr(), size_of::<F::Flow>()) };
        F::Flow::is_valid(bytes)
    }
    unsafe fn is_valid_group(&self, group: NonNull<u8>) -> bool {
        // SAFETY: the caller's promise.
        let bytes = unsafe { core::slice::from_raw_parts(group.as_ptr(), size_of::<F::Group>()) };
        F::Group::is_valid(bytes)
    }
    unsafe fn create_group(&self, group: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { group.cast::<F::Group>().write(F::Group::default()) }
    }
    unsafe fn rebase(&self, flow: NonNull<u8>, by: i64) {
        // SAFETY: the caller's promise.
        unsafe { flow.cast::<F::Flow>().as_mut().rebase(by) }
    }
    unsafe fn rebase_group(&self, group: NonNull<u8>, by: i64) {
        // SAFETY: the caller's promise.
        unsafe { group.cast::<F::Group>().as_mut().rebase(by) }
    }
    fn prefetch(&self, packet: &Packet) {
        self.function.prefetch(packet);
    }
    unsafe fn prefetch_moving(&self, flow: NonNull<u8>, key: &FlowKey, leaves: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            self.function
                .prefetch_moving(flow.cast::<F::Flow>().as_ref(), key, leaves);
        }
    }
    unsafe fn arrived(&self, flow: NonNull<u8>, why: Arrival, cx: &mut RawCx) {
        // SAFETY: the caller's promise.
        unsafe {
            self.function
                .arrived(flow.cast::<F::Flow>().as_mut(), why, Cx::of(cx))
        }
    }
    unsafe fn departed(&self, flow: NonNull<u8>, why: Departure, cx: &mut RawCx) {
        // SAFETY: the caller's promise.
        unsafe {
            self.function
                .departed(flow.cast::<F::Flow>().as_ref(), why, Cx::of(cx))
        }
    }
    unsafe fn group_ended(&self, cx: &mut RawCx) {
        // SAFETY: the caller's promise; the group's state is plain data, so a copy stands in while
        // `cx` is lent.
        unsafe {
            let place = cx.group.cast::<F::Group>();
            let mut state = place.read();
            self.function.group_ended(&mut state, Cx::of(cx));
            place.write(state);
        }
    }
    unsafe fn timeout(&self, flow: NonNull<u8>) -> u64 {
        // SAFETY: the caller's promise.
        nanoseconds(self.function.timeout(unsafe { flow.cast::<F::Flow>().as_ref() }))
    }
    unsafe fn group_timeout(&self, group: NonNull<u8>) -> u64 {
        // SAFETY: the caller's promise.
        nanoseconds(Some(
            self.function
                .group_timeout(unsafe { group.cast::<F::Group>().as_ref() }),
        ))
    }
    fn outlives(&self) -> bool {
        F::OUTLIVES
    }
    unsafe fn configured(&self, flow: NonNull<u8>, cx: &mut RawCx) -> Keep {
        // SAFETY: the caller's promise.
        unsafe {
            self.function
                .configured(flow.cast::<F::Flow>().as_mut(), Cx::of(cx))
        }
    }
    unsafe fn recovered_of_before(&self, flow: NonNull<u8>, cx: &mut RawCx) -> Keep {
        // SAFETY: the caller's promise.
        unsafe {
            self.function
                .recovered_of_before(flow.cast::<F::Flow>().as_mut(), Cx::of(cx))
        }
    }
    fn take_over(&self, before: &dyn Stage) {
        if let Some(before) = before.instance().downcast_ref::<F>() {
            self.function.take_over(before);
        }
    }
    fn instance(&self) -> &dyn Any {
        &self.function
    }
    fn recall(&self) -> nf::Recall {
        self.function.recall()
    }
    fn block_returned(&self, block: nf::Block) {
        self.function.block_returned(block);
    }
    fn block_in_use(&self, block: nf::Block) -> nf::BlockWas {
        self.function.block_in_use(block)
    }
    fn pool(&self) -> Option<nf::PoolState> {
        self.function.pool()
    }
    fn lend_blocks(&self, loan: &nf::Loan, lend: &mut dyn FnMut(nf::Block)) {
        self.function.lend_blocks(loan, lend);
    }
    fn borrow_block(&self, block: nf::Block, home: u16) -> bool {
        self.function.borrow_block(block, home)
    }
    fn forsake_block(&self, block: nf::Block) {
        self.function.forsake_block(block);
    }
    fn pools_heard(&self, others: Option<(u32, u32)>) {
        self.function.pools_heard(others);
    }
    unsafe fn each_field(&self, flow: NonNull<u8>, see: &mut dyn FnMut(&'static str, &dyn Debug)) {
        // SAFETY: the caller's promise.
        unsafe { flow.cast::<F::Flow>().as_ref().each_field(see) }
    }
    fn said(&self) -> Vec<Vec<String>> {
        self.function.said()
    }
    fn generation(&self) -> u32 {
        self.function.generation()
    }
    fn is_timed(&self) -> bool {
        F::TIMED
    }
    fn next_timer(&self) -> Option<u64> {
        self.function.next_timer()
    }
    unsafe fn timer_due(&self, cx: &mut RawCx) {
        // SAFETY: the caller's promise.
        self.function.timer_due(&mut unsafe { TimerCx::of(cx) });
    }
    fn begins_again(&self) -> bool {
        // A call would write its writes through once more.
        F::BEGINS_AGAIN && self.through.is_none()
    }
    fn tables(&self) -> &'static [nf::Table] {
        F::TABLES
    }
    fn rows(&self, table: &str, most: usize, here: ObjectsHere<'_>) -> Vec<nf::Row> {
        self.function.object_rows(table, most, here)
    }
    fn row_count(&self, table: &str, here: ObjectsHere<'_>) -> usize {
        self.function.row_count(table, here)
    }
    fn command(&self, words: &[&str]) -> Result<String, String> {
        self.function.command(words)
    }
    fn command_rows(&self, words: &[&str]) -> Option<nf::table::Answer> {
        self.function.command_rows(words)
    }
}

const _: () = {
    // Group state is copied around `group_ended`; that is right because it is plain.
    const fn plain<T: Plain>() {}
    plain::<()>();
};
