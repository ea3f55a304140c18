//! Runs chains: packets through functions, calls that wait, packets that functions hold, and the
//! lives of their states.
//!
//! # Theory of operation
//!
//! A packet's way through its chain is a [`Job`]: which actor, which direction, how many functions
//! it has passed. The common job starts at none and runs to the end ([`Runner::run`]). A call's
//! other wishes are worked off afterwards, in order:
//!
//! ```text
//!   run ─► function ─► plain forward ─► next function ─► … ─► Through
//!             └─► anything else (`verdict`): what it has released ─► the packet itself ─► what it lets go behind it     `ahead`
//!                                                     ─► what it has emitted or answered                                `jobs`
//!                                                     ─► the flow's end, if it asked for it                             `ending`
//!   next ─► Effect: a packet is through, or a flow ends; until nothing is left
//! ```
//!
//! The caller applies an effect before it asks for the next: so packets leave in this order, and a
//! flow ends behind all of its packets. All jobs at hand are of one flow.
//!
//! | file | content |
//! |---|---|
//! | `run` | the way through the chain, and the work left |
//! | `verdict` | the steps behind a call |
//! | `accounts` | effects without a packet |
//! | `waiting` | calls that wait, and packets behind them |
//! | `held` | packets that functions hold |
//! | `lifecycle` | states: create, arrive, depart, re-base, validate; groups' ends |
//! | `timers` | functions that a timer wakes without a packet |
//! | `change` | another configuration while flows live |
//! | `watching` | notes of watched packets |
//! | `sampling` | the cost of functions |
//!
//! Invariants: between two packets nothing is left to be worked off; a waiting actor is not touched
//! but by its own call; every packet given to the runner is handed back, held, dropped and counted,
//! or waits.
//!
//! Not here: which flow a packet is of, where it leaves, which workers are told that a flow ends
//! ([`crate::worker`]).

mod accounts;
pub mod change;
mod held;
mod lifecycle;
mod run;
mod sampling;
mod timers;
mod verdict;
mod waiting;
mod watching;

pub(crate) use held::HELD_END;
pub(crate) use waiting::{Call, Woken, middle, told_place};

use crate::chain::Step;
use crate::chain::{Plan, Stages};
use crate::flows::FlowStore;
use crate::microthread::{Frame, Frames};
use crate::outbox::Outbox;
use crate::stats::DropReason;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ptr::NonNull;
use nf::cx::{EventLog, RawCx};
use nf::variables::{Tokens, WorkerVariables};
use nf::{Direction, Generation, Reason, Recall, Side};
use watching::Look;
use wire::memory::Region;
use wire::{FlowKey, Orientation, PacketBox, PacketList};

/// Jobs a packet may cause at once; more are counted drops.
const JOBS_MAX: usize = 16;

/// Event log bytes that must be free before another flow is ended: its functions' records must not
/// be lost.
pub(crate) const EVENT_ROOM: usize = 8 * 1024;

/// A packet on its way through a chain.
pub(crate) struct Job {
    pub actor: u32,
    pub packet: PacketBox,
    pub direction: Direction,
    /// Functions passed, counted in the packet's direction.
    pub passed: u8,
    /// How long the functions passed want the flow to live, as far as they were passed as this job.
    pub timeout: u64,
    /// Whether it began at the start, so that all functions will have spoken.
    pub whole: bool,
}

/// A packet that has passed its chain.
pub(crate) struct Through {
    pub actor: u32,
    pub packet: PacketBox,
    pub direction: Direction,
    /// How long its functions want the flow to live.
    pub timeout: u64,
    /// Whether all of them have spoken.
    pub whole: bool,
}

/// Whether the calls of a watched packet have changed committed bytes of its flow. The stages'
/// shadow has them as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changed {
    Nothing,
    Something,
    /// A call has stopped the packet, or had effects, and so has more behind it.
    Unknown,
}

/// The effect that the caller applies.
pub(crate) enum Effect {
    /// A packet has passed its chain.
    Through(Through),
    /// This flow is to end, if it does not wait.
    End(u32),
}

/// Work that goes before everything else, the last first.
enum Ahead {
    /// The flow ends: work behind this is dropped.
    Drop,
    Job(Job),
    /// Packets that a function held and has let go.
    Released {
        list: PacketList,
        actor: u32,
        direction: Direction,
        function: u8,
        passed: u8,
    },
}

/// Bounds, and how long a flow lives whose functions do not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most calls waiting at once.
    pub waiting_max: u32,
    /// The most packets queued behind waiting calls.
    pub queued_max: u32,
    /// The most packets that wait for the same thing.
    pub share_max: u32,
    /// The most packets held for functions.
    pub held_max: u32,
    /// Nanoseconds.
    pub timeout_default: u64,
    /// Whether packets carry the time.
    pub packet_clock: bool,
    /// Bytes of event log between two visits of its reader.
    pub events_max: usize,
    /// The runtime's number.
    pub runtime: u16,
}

/// Chains, and their packets at hand.
pub(crate) struct Runner {
    bounds: Bounds,
    now: u64,
    plan: Plan,
    /// In front of `stages` and `before`: a call that waits borrows its function, and is dropped
    /// first.
    frames: Frames<waiting::Parked>,
    stages: Stages,
    shares: waiting::Shares,
    /// Of calls that wait, by their frames.
    tokens: Arc<Tokens>,
    /// The frame in hand.
    frame: u32,
    frame_ptr: NonNull<Frame>,
    ahead: Vec<Ahead>,
    jobs: ArrayVec<Job, JOBS_MAX>,
    ending: Option<u32>,
    /// Whether any of the three may have something.
    has_more: bool,
    held: held::Held,
    queued_count: u32,
    log: Box<EventLog>,
    function_drops: Vec<Vec<u64>>,
    emitted: u64,
    /// Of the packet that was watched last.
    changed: Changed,
    /// Whether functions are to be asked which flows they want ended.
    recalls: bool,
    /// Of which chains copies have lazy bytes as committed ones, by bits.
    lazy_kept: u64,
    /// The cost of functions.
    pub sampling: sampling::Sampling,
    /// The look at a packet whose call waits from now on.
    parking: Look,
    /// Of the configuration in force; see [`change`].
    generation: Generation,
    prepared: Option<Box<change::Prepared>>,
    before: Option<Box<change::Before>>,
}

// SAFETY: the frame pointer points into `frames`, which moves with the runner; stages are made for
// one worker and move with it; everything else is `Send` by itself. A runner is used by one thread
// at a time.
unsafe impl Send for Runner {}

/// Functions and figures of a runner that has ended, for the next of its number.
pub(crate) struct Handover {
    pub plan: Plan,
    pub generation: Generation,
    stages: Stages,
    function_drops: Vec<Vec<u64>>,
    emitted: u64,
}

// SAFETY: instances are made for one worker and move as a whole; the rest is `Send` by itself.
unsafe impl Send for Handover {}

impl Runner {
    /// With these functions. `memory` provides zeroed regions of the lengths asked for.
    pub fn new(
        bounds: Bounds,
        plan: Plan,
        stages: Stages,
        now: u64,
        memory: &mut impl FnMut(usize) -> Region,
    ) -> Self {
        let mut log = Box::new(EventLog::new(bounds.events_max, bounds.runtime));
        let log_ptr = NonNull::from(&mut *log);
        let waiting = bounds.waiting_max as usize;
        let region = memory(Frames::<waiting::Parked>::region_length(
            waiting,
            stages.future_size,
        ));
        let tokens = Tokens::new(waiting + 1);
        let mut frames = Frames::new(region, waiting, stages.future_size, |place| RawCx {
            tokens: Some(Arc::clone(&tokens)),
            place,
            ..empty_cx(log_ptr)
        });
        let frame = frames.take().expect("there is one frame more than may wait");
        let function_drops = stages
            .functions
            .iter()
            .map(|stage| alloc::vec![0; stage.reasons().len() + 1])
            .collect();
        Runner {
            bounds,
            now,
            frame_ptr: frames.frame(frame),
            frame,
            frames,
            shares: waiting::Shares::new(waiting),
            tokens,
            ahead: Vec::with_capacity(JOBS_MAX),
            jobs: ArrayVec::new(),
            ending: None,
            has_more: false,
            held: held::Held::new(bounds.held_max),
            queued_count: 0,
            log,
            function_drops,
            emitted: 0,
            changed: Changed::Unknown,
            recalls: false,
            lazy_kept: 0,
            sampling: sampling::Sampling::new(),
            parking: Look::NONE,
            generation: Generation(1),
            prepared: None,
            before: None,
            plan,
            stages,
        }
    }

    /// Goes on to a time, in nanoseconds.
    #[inline(always)]
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// The plan in force.
    #[inline(always)]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The functions in force.
    #[inline(always)]
    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    /// The same, to change how their states are copied.
    pub fn stages_mut(&mut self) -> &mut Stages {
        &mut self.stages
    }

    /// The event log.
    pub fn log(&mut self) -> &mut EventLog {
        &mut self.log
    }

    /// Whether a call has taken a group's state since [`Runner::watch_groups`].
    #[inline(always)]
    pub fn is_group_taken(&self) -> bool {
        self.log.is_group_taken()
    }

    /// Calls are watched from now on for whether they take a group's state.
    #[inline(always)]
    pub fn watch_groups(&mut self) {
        self.log.forget_group_taken();
    }

    /// The changes by the packet that was watched last.
    #[inline(always)]
    pub fn changed(&self) -> Changed {
        self.changed
    }

    /// Whether the event log has room for what a flow's end has to say.
    pub fn may_end(&self) -> bool {
        self.log.room() >= EVENT_ROOM
    }

    /// Lines of the event log that found no room.
    pub fn events_lost(&self) -> u64 {
        self.log.lost()
    }

    /// The number of the configuration in force.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Calls whose answer a look found: no token had reported it.
    pub fn untold(&self) -> u64 {
        self.tokens.untold()
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.frames.waiting()
    }

    /// When the next waiting call is due.
    pub fn next_wake(&self) -> Option<u64> {
        match self.tokens.is_given() && self.frames.waiting() > 0 {
            true => Some(self.now),
            false => self.frames.next_wake(),
        }
    }

    /// Packets that are in calls, behind them, or held by functions; copies do not count.
    pub fn packets(&self) -> u64 {
        u64::from(self.held.originals() + self.queued_count) + self.frames.waiting() as u64
    }

    /// Packets that functions have made.
    pub fn emitted(&self) -> u64 {
        self.emitted
    }

    /// By function and reason, packets dropped; the last place is for undeclared reasons.
    pub fn function_drops(&self) -> &[Vec<u64>] {
        &self.function_drops
    }

    // Functions without a packet.

    /// Whether a function has asked to be asked which flows it wants ended; asked once.
    pub fn take_recalls(&mut self) -> bool {
        core::mem::take(&mut self.recalls)
    }

    /// Functions are to be asked which flows they want ended.
    pub fn note_recalls(&mut self) {
        self.recalls = true;
    }

    /// Asks a function for a flow that it wants ended.
    pub fn recall(&self, function: usize) -> Recall {
        self.stages.functions[function].recall()
    }

    // Packets.

    /// Fills in what a function may ask about the packet at hand.
    #[inline(always)]
    fn prepare<'a>(&self, actor: u32, side: Side, direction: Direction, flows: &FlowStore) -> &'a mut RawCx {
        // SAFETY: the frame in hand is valid and nothing else uses it: its last call is over.
        let cx = unsafe { &mut (*self.frame_ptr.as_ptr()).cx };
        cx.now = self.now;
        cx.wake_at = RawCx::NO_WAKE;
        cx.timeout = 0;
        cx.key = flows.key(actor);
        cx.flow = actor;
        cx.opening = flows.header(actor).opening(0);
        cx.side = side;
        cx.direction = direction;
        cx.effects = 0;
        cx.held = None;
        cx.held_room = self.held.room();
        cx
    }

    /// The same of a call without a packet and a flow.
    fn prepare_without<'a>(&self) -> &'a mut RawCx {
        // SAFETY: the frame in hand is valid and nothing else uses it: its last call is over.
        let cx = unsafe { &mut (*self.frame_ptr.as_ptr()).cx };
        let log = cx.log;
        let (spares, tokens, place) = (core::mem::take(&mut cx.spares), cx.tokens.take(), cx.place);
        *cx = RawCx {
            now: self.now,
            key: NonNull::from(&NO_KEY),
            flow: u32::MAX,
            spares,
            tokens,
            place,
            ..empty_cx(log)
        };
        cx
    }

    /// Whether something is to be worked off.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Puts a job ahead of all others.
    pub fn put_ahead(&mut self, job: Job) {
        self.ahead.push(Ahead::Job(job));
        self.has_more = true;
    }

    fn release(&mut self, released: Ahead) {
        self.ahead.push(released);
        self.has_more = true;
    }

    fn push_job(&mut self, job: Job, out: &mut Outbox) {
        self.has_more = true;
        if let Err(full) = self.jobs.try_push(job) {
            out.drop_packet(full.element().packet, DropReason::EmitOverflow);
        }
    }

    /// A flow ends behind the packet at hand, and what that has caused; packets that an earlier one
    /// has released are dropped.
    fn end_behind(&mut self, actor: u32) {
        self.ahead.push(Ahead::Drop);
        self.ending = Some(actor);
        self.has_more = true;
    }

    fn drop_ahead(&mut self, out: &mut Outbox) {
        while let Some(ahead) = self.ahead.pop() {
            match ahead {
                Ahead::Drop => {}
                Ahead::Job(job) => out.drop_packet(job.packet, DropReason::HeldAtEnd),
                Ahead::Released { mut list, .. } => {
                    while let Some(packet) = list.pop() {
                        out.drop_packet(packet, DropReason::HeldAtEnd);
                    }
                }
            }
        }
    }

    /// Moves a flow's deadline to `timeout` from now.
    #[inline(always)]
    pub fn extend(&self, actor: u32, timeout: u64, flows: &mut FlowStore) {
        let timeout = if timeout == 0 {
            self.bounds.timeout_default
        } else {
            timeout
        };
        flows.set_deadline(actor, self.now.saturating_add(timeout));
    }

    /// Moves a flow's deadline to `timeout` from now, if that is later: only some of its functions
    /// have spoken.
    #[cold]
    pub fn keep_at_least(&self, actor: u32, timeout: u64, flows: &mut FlowStore) {
        let deadline = flows.header(actor).deadline;
        if deadline == 0 || self.now.saturating_add(timeout) > deadline {
            self.extend(actor, timeout, flows);
        }
    }

    // A runtime that ends, and a runtime that begins in its place.

    /// Whether it has no change under way; how many buffers it keeps for packets to be made.
    pub fn rest(&self) -> (bool, usize) {
        // SAFETY: the frame lies in `frames`, and no call is under way.
        let spares = unsafe { (*self.frame_ptr.as_ptr()).cx.spares.len() };
        (self.prepared.is_none() && self.before.is_none(), spares)
    }

    /// Hands out the buffers it keeps for packets to be made.
    pub fn take_spares(&mut self) -> impl Iterator<Item = PacketBox> {
        // SAFETY: the frame lies in `frames`, which is still there, and no call is under way.
        core::mem::take(unsafe { &mut (*self.frame_ptr.as_ptr()).cx.spares }).into_iter()
    }

    /// The functions' variables.
    pub fn variables(&self) -> &WorkerVariables {
        &self.stages.variables
    }

    /// The same, to be stepped.
    pub fn variables_mut(&mut self) -> &mut WorkerVariables {
        &mut self.stages.variables
    }

    /// Takes out what the next of its number goes on with.
    pub fn leave_handover(&mut self) -> Handover {
        Handover {
            plan: self.plan.clone(),
            generation: self.generation,
            stages: core::mem::replace(&mut self.stages, Stages::none()),
            function_drops: core::mem::take(&mut self.function_drops),
            emitted: self.emitted,
        }
    }

    /// Goes on with the functions and figures of a predecessor, before the first packet.
    pub fn inherit(&mut self, handover: Handover) {
        self.plan = handover.plan;
        self.generation = handover.generation;
        self.stages = handover.stages;
        self.function_drops = handover.function_drops;
        self.emitted = handover.emitted;
    }

    pub(super) fn function_at(&self, actor: u32, at: usize, flows: &FlowStore) -> usize {
        let chain = flows.header(actor).chain;
        usize::from(self.stages.chains[usize::from(chain)][at].function)
    }

    /// The steps of an actor's chain: of the chains in force, or of those when it was judged last.
    #[inline]
    pub fn steps_of(&self, actor: u32, flows: &FlowStore) -> &[Step] {
        let header = flows.header(actor);
        match &self.before {
            Some(before) if ![self.current_generation(), self.cut_number()].contains(&header.generation) => {
                &before.stages.chains[usize::from(header.chain)]
            }
            _ => &self.stages.chains[usize::from(header.chain)],
        }
    }

    /// Whether an actor that is no free one is still of the configuration before.
    #[inline]
    pub fn is_of_before(&self, actor: u32, flows: &FlowStore) -> bool {
        flows.header(actor).generation != self.current_generation()
    }

    /// The number in the headers of flows that were judged under the configuration in force.
    #[inline(always)]
    pub fn current_generation(&self) -> u8 {
        self.generation.0 as u8
    }

    /// The number in the headers of flows that were recovered by a chain of the configuration in
    /// force, which does not let them go on. No configuration before has it.
    #[inline]
    fn cut_number(&self) -> u8 {
        self.current_generation() ^ 0x80
    }

    /// Whether a flow was recovered and may not go on.
    pub fn is_cut(&self, actor: u32, flows: &FlowStore) -> bool {
        flows.header(actor).generation == self.cut_number()
    }
}

/// The key of no flow.
static NO_KEY: FlowKey = FlowKey::from_words([0; 5]);

/// A `cx` with nothing at hand.
fn empty_cx(log: NonNull<EventLog>) -> RawCx {
    RawCx {
        now: 0,
        wake_at: RawCx::NO_WAKE,
        waits_for: 0,
        token: 0,
        tokens: None,
        place: 0,
        timeout: 0,
        key: NonNull::dangling(),
        flow: 0,
        opening: Orientation::Along,
        side: Side::Inside,
        direction: Direction::Opening,
        effects: 0,
        lazy_kept: false,
        group: NonNull::dangling(),
        counters: NonNull::dangling(),
        log,
        spares: ArrayVec::new(),
        held: None,
        held_room: 0,
        copy: None,
        let_go: Default::default(),
        emitted: ArrayVec::new(),
        blocks: ArrayVec::new(),
        discard: Reason::UNDECLARED,
        pinned: core::marker::PhantomPinned,
    }
}
