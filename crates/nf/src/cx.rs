//! [`Cx`]: a function's view of the packet at hand, and its requests to the runtime.
//!
//! A `Cx` owns its facts (clock, side, direction, key) and a short list of *effects* that the
//! worker applies when the function has returned or waits. Nothing of the worker is borrowed across
//! an await; so a waiting function can sit in its slot while the worker goes on.
//!
//! `Cx<F>` is a typed view of [`RawCx`], which the runtime fills and reads. Only the runtime makes
//! one.

use crate::{Event, FlowState, Keep, Listed, NetworkFunction, Reason, Time, Verdict};
use alloc::sync::Arc;
use arrayvec::ArrayVec;
use core::fmt::{self, Write};
use core::marker::{PhantomData, PhantomPinned};
use core::ptr::NonNull;
use variables::Tokens;
use wire::packet::{Side, flag};
use wire::{Addr, FlowKey, Orientation, Packet, PacketBox, PacketList};

const MILLISECOND: u64 = 1_000_000;

/// Which way a packet of a connection runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Direction {
    /// As the packet that opened the flow.
    Opening = 0,
    /// Against it.
    Reply = 1,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Direction::Opening => Direction::Reply,
            Direction::Reply => Direction::Opening,
        }
    }
}

/// Where a packet goes that a function emits beside the one at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the functions still ahead, and out as the packet at hand would.
    Onward,
    /// Through the functions already passed, backward, and out where the packet at hand came in.
    Back,
}

/// A block of external ports that a group owns. The switches route packets to these ports to the
/// group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Block {
    /// The external address.
    pub addr: Addr,
    /// The first port; a multiple of `ports`.
    pub first: u16,
    /// How many ports, a power of two.
    pub ports: u16,
}

/// A change of block ownership, in the order in which it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockEffect {
    /// The group of the flow at hand owns the block from now on; told to the switches before the
    /// packet leaves.
    Claimed(Block),
    /// The block is free again.
    Released(Block),
    /// The block is free again, and the pool of this runtime's.
    Returned(Block, u16),
}

/// Changes of blocks that a call may ask for. One call is one call of a method of
/// [`NetworkFunction`]; a call of `process` that waits is one call to its end.
pub const EFFECTS_MAX: usize = 4;

/// Packets that a call may emit: with the packet at hand, as many as a frame of 9,216 bytes makes
/// over the smallest MTU of IPv6 (`forward` cuts it).
pub const EMITTED_MAX: usize = 7;

/// More than the longest beginning of a line.
const STAMP_MAX: usize = 80;

/// Lines for the event log, bounded. The worker's owner takes them out.
pub struct EventLog {
    text: alloc::string::String,
    capacity: usize,
    lost: u64,
    runtime: u16,
    /// How lines of `stamped` begin: the lines of a burst have one time, and writing it out costs
    /// as much as the rest.
    stamp: alloc::string::String,
    stamped: u64,
    is_group_taken: bool,
    /// The wall clock's time where the worker's is 0, in nanoseconds.
    wall: u64,
}

impl EventLog {
    /// A log that holds up to `capacity` bytes until the worker takes them.
    pub fn new(capacity: usize, runtime: u16) -> Self {
        EventLog {
            text: alloc::string::String::with_capacity(capacity),
            capacity,
            lost: 0,
            runtime,
            stamp: alloc::string::String::with_capacity(STAMP_MAX),
            stamped: 0,
            is_group_taken: false,
            wall: 0,
        }
    }

    /// The wall clock shows so many nanoseconds where the worker's clock shows 0.
    pub fn set_wall(&mut self, wall: u64) {
        self.wall = wall;
    }

    /// Milliseconds since 1970 where the worker's clock shows so many nanoseconds.
    #[inline]
    pub fn wall_ms(&self, now: u64) -> u64 {
        self.wall.saturating_add(now) / MILLISECOND
    }

    /// The worker's time, in nanoseconds, where the wall clock shows so many milliseconds.
    pub fn clock_at(&self, wall_ms: u64) -> u64 {
        wall_ms.saturating_mul(MILLISECOND).saturating_sub(self.wall)
    }

    /// Whether a call has taken a group's state, which it may have written, since that was
    /// forgotten.
    #[inline(always)]
    pub fn is_group_taken(&self) -> bool {
        self.is_group_taken
    }

    /// Calls are watched from now on for whether they take a group's state.
    #[inline(always)]
    pub fn forget_group_taken(&mut self) {
        self.is_group_taken = false;
    }

    /// Counts a line that is not written.
    fn lose(&mut self) {
        self.lost += 1;
    }

    /// Appends one JSON line; counts it as lost if there is no room. A debug build panics if a
    /// field is not declared.
    pub fn write(&mut self, now: u64, function: &str, event: &Event, fields: fmt::Arguments<'_>) {
        if cfg!(debug_assertions)
            && let Some(field) = event.undeclared(fields)
        {
            panic!(
                "the event `{}` of `{function}` has no field `{field}`: declare it",
                event.name
            );
        }
        let before = self.text.len();
        self.stamp(now);
        let mut bounded = Bounded {
            text: &mut self.text,
            capacity: self.capacity,
        };
        let parts = [&self.stamp, function, "\",\"event\":\"", event.name, "\","];
        let result = parts
            .iter()
            .try_for_each(|part| bounded.write_str(part))
            .and_then(|()| bounded.write_fmt(fields))
            .and_then(|()| bounded.write_str("}\n"));
        if result.is_err() {
            self.text.truncate(before);
            self.lost += 1;
        }
    }

    fn stamp(&mut self, now: u64) {
        if self.stamped == now && !self.stamp.is_empty() {
            return;
        }
        self.stamped = now;
        self.stamp.clear();
        let (seconds, rest, runtime) = (now / 1_000_000_000, now % 1_000_000_000, self.runtime);
        // A string takes whatever is written.
        let _ = write!(
            self.stamp,
            "{{\"time\":{seconds}.{rest:09},\"runtime\":{runtime},\"function\":\""
        );
    }

    /// Bytes still free.
    pub fn room(&self) -> usize {
        self.capacity - self.text.len()
    }

    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Lines that found no room, since the start.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Throws the lines so far away.
    pub fn clear(&mut self) {
        self.text.clear();
    }

    /// Hands out the lines so far and starts again.
    pub fn take(&mut self, out: &mut alloc::string::String) {
        self.take_first(self.text.len(), out);
    }

    /// Hands out the first bytes, which are whole lines; the rest stays.
    pub fn take_first(&mut self, length: usize, out: &mut alloc::string::String) {
        let Some((first, _)) = self.text.split_at_checked(length) else {
            return;
        };
        out.push_str(first);
        self.text.drain(..length);
    }
}

struct Bounded<'a> {
    text: &'a mut alloc::string::String,
    capacity: usize,
}

impl Write for Bounded<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.text.len() + s.len() > self.capacity {
            return Err(fmt::Error);
        }
        self.text.push_str(s);
        Ok(())
    }
}

/// A call's context: the runtime fills it in before the call and reads it after. Authors see
/// [`Cx`].
///
/// The runtime keeps its own pointer to it while a function, or the future of a waiting call, has a
/// reference. The runtime uses it only between calls and polls, but the references are then still
/// there: so the context is pinned, which takes the promise of exclusive access from `&mut`
/// references to it.
pub struct RawCx {
    /// The burst's clock in nanoseconds.
    pub now: u64,
    /// When a waiting function wants to go on; [`RawCx::NO_WAKE`] if it said nothing.
    pub wake_at: u64,
    /// The function's own number of the thing that it waits for ([`Cx::changed`]); 0 for the time
    /// only.
    pub waits_for: u64,
    /// The number of the token that a waiting function waits for ([`Cx::token`]); 0 for none.
    pub token: u64,
    /// Where calls wait, and this call's place there; `None` where none can.
    pub tokens: Option<Arc<Tokens>>,
    /// See above.
    pub place: u32,
    /// The longest timeout a function of the chain has asked for, in nanoseconds.
    pub timeout: u64,
    /// The key that opened the flow, as its first packet had it; the actor's own.
    pub key: NonNull<FlowKey>,
    /// The flow's number ([`Cx::flow_number`]).
    pub flow: u32,
    /// The orientation of the opening direction in `key`.
    pub opening: Orientation,
    /// Where the packet came in.
    pub side: Side,
    /// Which way it runs.
    pub direction: Direction,
    /// Bits of [`effect`].
    pub effects: u8,
    /// The flow that arrives was recovered with its lazy fields ([`Cx::lazy_is_kept`]).
    pub lazy_kept: bool,
    /// Group state of the function being called; dangling for a zero-sized one.
    pub group: NonNull<u8>,
    /// The function's counters.
    pub counters: NonNull<u64>,
    /// The worker's event log.
    pub log: NonNull<EventLog>,
    /// Empty buffers for [`Cx::emit`].
    pub spares: ArrayVec<PacketBox, EMITTED_MAX>,
    /// Packets the function emitted.
    pub emitted: ArrayVec<(PacketBox, Way), EMITTED_MAX>,
    /// Blocks it claimed or released.
    pub blocks: ArrayVec<BlockEffect, EFFECTS_MAX>,
    /// The packets held for the function of the flow and direction at hand; `None` for none, and
    /// where no packet is at hand.
    pub held: Option<NonNull<PacketList>>,
    /// How many more packets may be held.
    pub held_room: u32,
    /// The copy that is to be held, with [`effect::HELD`].
    pub copy: Option<PacketBox>,
    /// Held packets that go on behind the packet at hand, with [`effect::HELD`].
    pub let_go: PacketList,
    /// Why it discards held packets, with [`effect::DISCARD`].
    pub discard: Reason,
    /// See above.
    pub pinned: PhantomPinned,
}

/// Bits of [`RawCx::effects`].
pub mod effect {
    /// `emitted` is not empty.
    pub const EMIT: u8 = 1;
    /// `blocks` is not empty.
    pub const BLOCKS: u8 = 2;
    /// The flow ends behind this packet.
    pub const END: u8 = 4;
    /// Held packets go on.
    pub const RELEASE: u8 = 8;
    /// Held packets are dropped.
    pub const DISCARD: u8 = 16;
    /// The flow is kept, though its first packet may be dropped.
    pub const KEEP: u8 = 32;
    /// The function wants other flows ended.
    pub const RECALL: u8 = 64;
    /// `copy` is to be held, or `let_go` goes on.
    pub const HELD: u8 = 128;
}

impl RawCx {
    /// In [`RawCx::wake_at`]: the function did not ask to be woken.
    pub const NO_WAKE: u64 = u64::MAX;

    /// Milliseconds since 1970.
    #[inline]
    pub(crate) fn wall_ms(&self) -> u64 {
        // SAFETY: the log is the worker's, and no code writes to it while a call reads.
        unsafe { self.log.as_ref() }.wall_ms(self.now)
    }

    /// Writes a line of one of a function's events.
    ///
    /// # Safety
    /// Nothing else uses the log.
    pub(crate) unsafe fn event_of<F: NetworkFunction>(&mut self, name: &str, fields: fmt::Arguments<'_>) {
        // SAFETY: the caller's promise.
        let log = unsafe { self.log.as_mut() };
        let declared = F::EVENTS.iter().find(|event| event.name == name);
        debug_assert!(
            declared.is_some(),
            "`{name}` is not in the EVENTS of `{}`",
            F::NAME
        );
        match declared {
            Some(event) => log.write(self.now, F::NAME, event, fields),
            None => log.lose(),
        }
    }

    /// Adds to one of a function's counters.
    ///
    /// # Safety
    /// `counters` points to `F::COUNTERS.len() + 1` numbers.
    #[inline(always)]
    pub(crate) unsafe fn count_of<F: NetworkFunction>(&mut self, name: &'static str, by: u64) {
        let index = position(F::COUNTERS, name);
        debug_assert!(
            index < F::COUNTERS.len(),
            "`{name}` is not in the COUNTERS of `{}`",
            F::NAME
        );
        // SAFETY: `index` is at most `COUNTERS.len()`, and one more number than that is there.
        unsafe { *self.counters.as_ptr().add(index) += by };
    }
}

// SAFETY: the pointers are the worker's own (its counters, log and groups), and a `RawCx` moves
// between threads only together with the worker that owns it.
unsafe impl Send for RawCx {}

/// A function's view of the packet at hand and of the runtime.
#[repr(transparent)]
pub struct Cx<F: ?Sized> {
    raw: RawCx,
    function: PhantomData<fn(&F)>,
}

impl<F: NetworkFunction> Cx<F> {
    /// For the runtime: the typed view of what it filled in.
    ///
    /// # Safety
    /// `raw.key` points to the flow's key, `raw.group` to a valid `F::Group` that nothing else
    /// refers to, `raw.counters` to `F::COUNTERS.len() + 1` numbers, `raw.log` to a log,
    /// `raw.held`, if to anything, to a list that nothing else refers to, all for as long as the
    /// view is used.
    #[inline(always)]
    pub unsafe fn of(raw: &mut RawCx) -> &mut Cx<F> {
        // SAFETY: `repr(transparent)`; the rest is the caller's promise.
        unsafe { &mut *core::ptr::from_mut(raw).cast::<Cx<F>>() }
    }

    /// The same view for a function that `F` wraps and hands its packets on to: where `F` watches
    /// another in tests, or samples for it. The inner function's counters and reasons must be the
    /// first of `F`'s, so that their numbers agree.
    #[inline(always)]
    pub fn lend<G: NetworkFunction<Group = F::Group>>(&mut self) -> &mut Cx<G> {
        const {
            assert!(
                G::COUNTERS.len() <= F::COUNTERS.len() && G::REASONS.len() <= F::REASONS.len(),
                "a function that wraps another has the other's COUNTERS and REASONS first in its own"
            );
        }
        // SAFETY: the group is of the same type; there are at least as many counters; the log is
        // the same.
        unsafe { Cx::of(&mut self.raw) }
    }

    /// For waits of this crate's own.
    pub(crate) fn raw_mut(&mut self) -> &mut RawCx {
        &mut self.raw
    }

    /// The burst's clock: of the capture in a replay, of the machine otherwise. It never goes back.
    /// A state may keep it: a flow that moves to a worker with another clock has its times
    /// re-based.
    #[inline]
    pub fn now(&self) -> Time {
        Time::from_nanoseconds(self.raw.now)
    }

    /// The same in nanoseconds, for times that an instance keeps at this worker. A state has a
    /// [`Time`]: another worker's clock may be years away.
    #[inline]
    pub fn clock(&self) -> u64 {
        self.raw.now
    }

    /// The wall clock, in milliseconds since 1970; the capture's in a replay. For times that
    /// outlast the process, as those of [`variables::Timers`] do. It goes back where the machine's
    /// clock is set back.
    #[inline]
    pub fn wall_ms(&self) -> u64 {
        self.raw.wall_ms()
    }

    /// The side the packet came in from.
    #[inline]
    pub fn side(&self) -> Side {
        self.raw.side
    }

    /// Opening direction or reply.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.raw.direction
    }

    /// Of a flow that arrives as [`Recovered`](crate::Arrival::Recovered): whether its lazy fields
    /// are as its last packet left them, since they were copied as committed ones are
    /// (`commit_lazy`). Otherwise they may be older than the committed ones, or the default.
    pub fn lazy_is_kept(&self) -> bool {
        self.raw.lazy_kept
    }

    /// Source and destination of the flow's first packet, as the first function of the chain saw
    /// it.
    pub fn opened_by(&self) -> (wire::Endpoint, wire::Endpoint) {
        self.key().ends(self.raw.opening)
    }

    /// The flow's key.
    #[inline]
    pub fn key(&self) -> &FlowKey {
        // SAFETY: promised by the caller that made the view (`Cx::of`).
        unsafe { self.raw.key.as_ref() }
    }

    /// The flow's number at its runtime, below
    /// [`WorkerInfo::flows_max`](crate::WorkerInfo::flows_max). It is the flow's own from
    /// [`arrived`](NetworkFunction::arrived) to [`departed`](NetworkFunction::departed), and
    /// another flow's afterwards. A flow that moves gets another number, so the number has no place
    /// in a state.
    #[inline]
    pub fn flow_number(&self) -> u32 {
        self.raw.flow
    }

    /// The state of the flow's group.
    #[inline]
    pub fn group(&mut self) -> &mut F::Group {
        // SAFETY: the log is the worker's, and this view has it alone during the call (`Cx::of`).
        unsafe { self.raw.log.as_mut() }.is_group_taken = true;
        // SAFETY: promised by the caller that made the view (`Cx::of`); the borrow of `self` keeps
        // it the only one.
        unsafe { self.raw.group.cast::<F::Group>().as_mut() }
    }

    /// Adds one to a counter named in [`NetworkFunction::COUNTERS`].
    #[inline(always)]
    pub fn count(&mut self, name: impl Listed) {
        self.count_by(name, 1);
    }

    /// Adds to a counter named in [`NetworkFunction::COUNTERS`].
    #[inline(always)]
    pub fn count_by(&mut self, name: impl Listed, by: u64) {
        // SAFETY: the view's maker promised that the counters are `F`'s (`Cx::of`).
        unsafe { self.raw.count_of::<F>(name.name(), by) };
    }

    /// The verdict that drops the packet, for a reason named in [`NetworkFunction::REASONS`].
    #[inline(always)]
    pub fn drop(&self, reason: impl Listed) -> Verdict {
        let reason = reason.name();
        let index = position(F::REASONS, reason);
        debug_assert!(
            index < F::REASONS.len(),
            "`{reason}` is no reason of `{}`",
            F::NAME
        );
        Verdict::Drop(if index < F::REASONS.len() {
            Reason(index as u8)
        } else {
            Reason::UNDECLARED
        })
    }

    /// The answer of [`NetworkFunction::configured`] that ends the flow, for a reason named in
    /// [`NetworkFunction::REASONS`].
    pub fn cut(&self, reason: impl Listed) -> Keep {
        match self.drop(reason) {
            Verdict::Drop(reason) => Keep::End(reason),
            _ => Keep::End(Reason::UNDECLARED),
        }
    }

    /// Sends another packet beside the one at hand: `fill` writes it into an empty buffer (start
    /// with [`Packet::set_frame`] or [`Packet::copy_from`]) and says whether it is to be sent.
    /// `false`, and nothing is sent, when the call has emitted [`EMITTED_MAX`] packets already, no
    /// buffer is free, or `fill` declined. Packets that a call emits before it waits are sent when
    /// the call is over.
    pub fn emit(&mut self, way: Way, fill: impl FnOnce(&mut Packet) -> bool) -> bool {
        if self.raw.emitted.is_full() {
            return false;
        }
        let Some(spare) = self.raw.spares.last_mut() else {
            return false;
        };
        if !fill(spare) {
            return false;
        }
        self.raw.effects |= effect::EMIT;
        let spare = self.raw.spares.pop();
        spare.is_some_and(|spare| self.raw.emitted.try_push((spare, way)).is_ok())
    }

    /// The flow's group owns a block of external ports from now on. `false`: there is no room for
    /// it ([`Cx::blocks_room`]); the group does not own the block, and no packet may use a port of
    /// it.
    #[must_use = "a block that was refused is not the group's"]
    pub fn claim_block(&mut self, block: Block) -> bool {
        self.change_block(BlockEffect::Claimed(block))
    }

    /// The block is free again. `false`: there is no room for it ([`Cx::blocks_room`]); the group
    /// still owns the block.
    #[must_use = "a block that was refused is still the group's"]
    pub fn release_block(&mut self, block: Block) -> bool {
        self.change_block(BlockEffect::Released(block))
    }

    /// The block is free again, and belongs to the pool of another runtime, from which its group
    /// came: that one hears of it ([`crate::NetworkFunction::block_returned`]) once no switch knows
    /// it any more. `false`: as of [`Cx::release_block`].
    #[must_use = "a block that was refused is still the group's"]
    pub fn return_block(&mut self, block: Block, runtime: u16) -> bool {
        self.change_block(BlockEffect::Returned(block, runtime))
    }

    /// How many blocks this call may still claim, release or return: [`EFFECTS_MAX`] at its
    /// beginning, and when it goes on after a wait. [`NetworkFunction::group_ended`] is called
    /// again when it has left no room, so it releases any number.
    pub fn blocks_room(&self) -> usize {
        self.raw.blocks.remaining_capacity()
    }

    fn change_block(&mut self, change: BlockEffect) -> bool {
        let fits = self.raw.blocks.try_push(change).is_ok();
        if fits {
            self.raw.effects |= effect::BLOCKS;
        }
        fits
    }

    /// Ends the flow behind this packet, as if it had expired.
    pub fn end_flow(&mut self) {
        self.raw.effects |= effect::END;
    }

    /// Keeps the flow though its first packet is dropped: the next packets come with this state.
    /// Without this call the runtime forgets a flow of which nothing has left yet.
    pub fn keep_flow(&mut self) {
        self.raw.effects |= effect::KEEP;
    }

    /// The function wants other flows of this runtime ended: the runtime asks which
    /// ([`NetworkFunction::recall`]) when the packets at hand have passed.
    pub fn recall(&mut self) {
        self.raw.effects |= effect::RECALL;
    }

    /// Lets the packets held by [`Verdict::Consume`] go on, oldest first, before the packet at
    /// hand.
    pub fn release(&mut self) {
        self.raw.effects |= effect::RELEASE;
    }

    /// The packets that this function holds of the flow, of the direction at hand, and copies that
    /// it holds: the oldest first.
    pub fn held(&self) -> impl Iterator<Item = &Packet> {
        // SAFETY: promised by the caller that made the view; the borrow of `self` keeps the list as
        // it is.
        let list = self.raw.held.map(|list| unsafe { list.as_ref() });
        list.into_iter().flat_map(PacketList::iter)
    }

    /// How many [`Cx::held`] are.
    pub fn held_count(&self) -> usize {
        // SAFETY: as in `held`.
        self.raw.held.map_or(0, |list| unsafe { list.as_ref() }.len())
    }

    /// Whether the bound that all flows of the runtime share has room for one more held packet.
    pub fn may_hold(&self) -> bool {
        self.raw.held_room > 0
    }

    /// Whether [`Cx::hold_copy`] has room for a copy of this packet.
    pub fn may_hold_copy(&self, packet: &Packet) -> bool {
        let fits = |spare: &PacketBox| packet.frame().len() <= spare.room();
        self.may_hold() && self.raw.copy.is_none() && self.raw.spares.last().is_some_and(fits)
    }

    /// Holds a copy of the packet at hand, which itself goes where the verdict sends it: for
    /// reading it later. The copy is among the held packets ([`Cx::held`]), counts against their
    /// bound, and moves with the flow. The copy is no packet of its own: let go, discarded or at
    /// its flow's end it is gone, and no counter shows it. One copy a call; `false` where there is
    /// no room.
    pub fn hold_copy(&mut self, packet: &Packet) -> bool {
        if !self.may_hold_copy(packet) {
            return false;
        }
        let Some(mut spare) = self.raw.spares.pop() else {
            return false;
        };
        if !spare.copy_from(packet) {
            self.raw.spares.push(spare);
            return false;
        }
        spare.set_flags(flag::COPY);
        self.raw.copy = Some(spare);
        self.raw.effects |= effect::HELD;
        true
    }

    /// Lets those of [`Cx::held`] go on that `which` names, the oldest first, behind the packet at
    /// hand. Copies among them are gone.
    pub fn release_some(&mut self, mut which: impl FnMut(&Packet) -> bool) {
        let Some(mut list) = self.raw.held else {
            return;
        };
        // SAFETY: as in `held`; `&mut self` makes this the only reference.
        let list = unsafe { list.as_mut() };
        if !list.iter().any(&mut which) {
            return;
        }
        let mut all = core::mem::take(list);
        while let Some(packet) = all.pop() {
            match which(&packet) {
                true => self.raw.let_go.push(packet),
                false => list.push(packet),
            }
        }
        self.raw.effects |= effect::HELD;
    }

    /// Drops the packets held by [`Verdict::Consume`], of both directions.
    pub fn discard(&mut self, reason: impl Listed) {
        if let Verdict::Drop(reason) = self.drop(reason) {
            self.raw.discard = reason;
            self.raw.effects |= effect::DISCARD;
        }
    }

    /// Writes a line to the event log: an event of [`NetworkFunction::EVENTS`], by its name.
    /// `fields` is the inside of a JSON object, like `"inside":"10.0.0.1:1"`. An undeclared event
    /// is not written, and counts as lost.
    pub fn event(&mut self, name: impl Listed, fields: fmt::Arguments<'_>) {
        // SAFETY: promised by the caller that made the view.
        unsafe { self.raw.event_of::<F>(name.name(), fields) };
    }
}

impl<F: NetworkFunction> fmt::Debug for Cx<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cx<{}> {:?} {:?}", F::NAME, self.raw.side, self.raw.direction)
    }
}

/// Where `name` stands; `names.len()` if nowhere. Both are constants where it is called, so this
/// folds away.
#[inline(always)]
fn position(names: &[&str], name: &str) -> usize {
    let mut index = 0;
    while index < names.len() {
        if names[index] == name {
            return index;
        }
        index += 1;
    }
    index
}

const _: () = {
    // Zero-sized groups cost nothing: no memory is touched for them.
    const fn zero_sized<T: FlowState>() -> bool {
        size_of::<T>() == 0
    }
    assert!(zero_sized::<()>());
};

#[cfg(test)]
mod tests {
    use super::EventLog;
    use alloc::string::String;

    #[test]
    fn lines_are_whole_or_lost() {
        let mut log = EventLog::new(170, 3);
        log.write(0, "nat", &crate::Event::named("a"), format_args!("\"x\":{}", 1));
        log.write(
            1_000_000_007,
            "nat",
            &crate::Event::named("b"),
            format_args!("\"x\":\"y\""),
        );
        log.write(
            1_000_000_007,
            "lb",
            &crate::Event::named("c"),
            format_args!("\"x\":2"),
        );
        assert_eq!(log.lost(), 1);
        let mut text = String::new();
        log.take(&mut text);
        let lines = concat!(
            "{\"time\":0.000000000,\"runtime\":3,\"function\":\"nat\",\"event\":\"a\",\"x\":1}\n",
            "{\"time\":1.000000007,\"runtime\":3,\"function\":\"nat\",\"event\":\"b\",\"x\":\"y\"}\n",
        );
        assert_eq!(text, lines);
        assert!(log.is_empty());
    }
}
