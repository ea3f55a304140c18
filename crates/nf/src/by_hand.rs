//! A function called by hand, without a runtime: for tests of a function's own, and as a runtime's
//! measure.
//!
//! [`ByHand`] owns what a [`Cx`] points to (counters, event log, one group's state), so making a
//! `Cx` is safe here.
//!
//! Not here: flows, chains, effects: the caller applies, or ignores, what the function asks for.

use crate::cx::{EventLog, RawCx};
use crate::{Cx, Direction, NetworkFunction, Reason};
use alloc::boxed::Box;
#[doc(hidden)]
pub use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ptr::NonNull;
use wire::packet::Side;
use wire::{FlowKey, Orientation};

/// One function with everything its `Cx` needs.
pub struct ByHand<F: NetworkFunction> {
    /// The function.
    pub function: F,
    raw: Box<RawCx>,
    /// Behind the raw context's pointers; they are only used through it while it lives.
    _counters: Vec<u64>,
    _log: Box<EventLog>,
    _group: Box<F::Group>,
    key: Box<FlowKey>,
}

impl<F: NetworkFunction> ByHand<F> {
    /// Takes a function in hand.
    pub fn new(function: F) -> Self {
        let mut counters = vec![0; F::COUNTERS.len() + 1];
        let mut log = Box::new(EventLog::new(1 << 16, 0));
        let mut group = Box::<F::Group>::default();
        let mut key = Box::<FlowKey>::default();
        let raw = Box::new(RawCx {
            now: 0,
            wake_at: RawCx::NO_WAKE,
            waits_for: 0,
            token: 0,
            tokens: None,
            place: 0,
            timeout: 0,
            key: NonNull::from(&mut *key),
            flow: 0,
            opening: Orientation::Along,
            side: Side::Inside,
            direction: Direction::Opening,
            effects: 0,
            lazy_kept: false,
            group: NonNull::from(&mut *group).cast(),
            counters: NonNull::from(&mut counters[..]).cast(),
            log: NonNull::from(&mut *log),
            spares: ArrayVec::new(),
            held: None,
            held_room: 0,
            copy: None,
            let_go: Default::default(),
            emitted: ArrayVec::new(),
            blocks: ArrayVec::new(),
            discard: Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        });
        ByHand {
            function,
            raw,
            _counters: counters,
            _log: log,
            _group: group,
            key,
        }
    }

    /// The facts and effects of the next call.
    #[inline(always)]
    pub fn raw(&mut self) -> &mut RawFacts {
        // Only plain facts can be changed through this view: see `RawFacts`.
        RawFacts::of(&mut self.raw)
    }

    /// Sets the flow's key and which way its opening direction runs.
    #[inline(always)]
    pub fn set_key(&mut self, key: FlowKey, opening: Orientation) {
        *self.key = key;
        self.raw.key = NonNull::from(&mut *self.key);
        self.raw.opening = opening;
    }

    /// Calls `process_now` with a packet and a flow's state.
    #[inline(always)]
    pub fn process_now(&mut self, packet: &mut crate::Packet, flow: &mut F::Flow) -> Option<crate::Verdict> {
        // SAFETY: the pointers are to parts of this value, of the right types, and nothing else
        // uses them meanwhile.
        let cx = unsafe { Cx::of(&mut self.raw) };
        self.function.process_now(packet, flow, cx)
    }

    /// Calls `arrived`.
    pub fn arrived(&mut self, flow: &mut F::Flow, why: crate::Arrival) {
        // SAFETY: as in `process_now`.
        let cx = unsafe { Cx::of(&mut self.raw) };
        self.function.arrived(flow, why, cx);
    }

    /// Calls `departed`.
    pub fn departed(&mut self, flow: &F::Flow, why: crate::Departure) {
        // SAFETY: as in `process_now`.
        let cx = unsafe { Cx::of(&mut self.raw) };
        self.function.departed(flow, why, cx);
    }

    /// The group's state, to look at or to exchange for another group's.
    pub fn group(&mut self) -> &mut F::Group {
        // SAFETY: as in `process_now`.
        unsafe { Cx::<F>::of(&mut self.raw) }.group()
    }

    /// Forgets effects that the caller does not apply.
    pub fn forget_effects(&mut self) {
        self.raw.effects = 0;
        self.raw.blocks.clear();
        // SAFETY: as in `process_now`.
        let log: &mut EventLog = unsafe { self.raw.log.as_mut() };
        log.clear();
    }
}

/// The facts of a call that may be set by hand.
#[repr(transparent)]
pub struct RawFacts(RawCx);

impl RawFacts {
    #[inline(always)]
    fn of(raw: &mut RawCx) -> &mut RawFacts {
        // SAFETY: `repr(transparent)`.
        unsafe { &mut *core::ptr::from_mut(raw).cast::<RawFacts>() }
    }

    /// Sets clock, side and direction.
    #[inline(always)]
    pub fn set(&mut self, now: u64, side: Side, direction: Direction) -> &mut Self {
        self.0.now = now;
        self.0.side = side;
        self.0.direction = direction;
        self
    }
}
