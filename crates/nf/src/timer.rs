//! [`TimerCx`]: a function's context where a timer wakes it without a packet
//! ([`NetworkFunction::timer_due`]).
//!
//! ```text
//!   worker, between two bursts ─ next_timer() ─► not yet, or none
//!                              └────────────────► due ─ timer_due(cx) ─► variables, counters, events, `recall`
//! ```
//!
//! There is no packet and no flow, so nothing of a [`crate::Cx`] that needs one is here. Not here:
//! which timers there are ([`variables::Timers`]), when a worker asks (`flowkeep-runtime`).

use crate::cx::{RawCx, effect};
use crate::{Listed, NetworkFunction, Time};
use core::fmt;
use core::marker::PhantomData;

/// A function's view of its worker, and its questions to it, where no packet is at hand.
pub struct TimerCx<'a, F: ?Sized> {
    raw: &'a mut RawCx,
    function: PhantomData<fn(&F)>,
}

impl<'a, F: NetworkFunction> TimerCx<'a, F> {
    /// For the runtime: the typed view of what it filled in.
    ///
    /// # Safety
    /// `raw.counters` points to `F::COUNTERS.len() + 1` numbers, and `raw.log` to a log that
    /// nothing else uses, for as long as the view is there.
    pub unsafe fn of(raw: &'a mut RawCx) -> Self {
        TimerCx {
            raw,
            function: PhantomData,
        }
    }

    /// The same view for a function that `F` wraps, as [`crate::Cx::lend`].
    pub fn lend<G: NetworkFunction>(&mut self) -> TimerCx<'_, G> {
        const {
            assert!(
                G::COUNTERS.len() <= F::COUNTERS.len(),
                "a function that wraps another has the other's COUNTERS first in its own"
            );
        }
        // SAFETY: there are at least as many counters; the log is the same.
        unsafe { TimerCx::of(self.raw) }
    }
}

impl<F: NetworkFunction> TimerCx<'_, F> {
    /// The worker's clock, as [`crate::Cx::now`].
    pub fn now(&self) -> Time {
        Time::from_nanoseconds(self.raw.now)
    }

    /// The same in nanoseconds, as [`crate::Cx::clock`].
    pub fn clock(&self) -> u64 {
        self.raw.now
    }

    /// The wall clock, in milliseconds since 1970, as [`crate::Cx::wall_ms`].
    pub fn wall_ms(&self) -> u64 {
        self.raw.wall_ms()
    }

    /// Adds one to a counter named in [`NetworkFunction::COUNTERS`].
    pub fn count(&mut self, name: impl Listed) {
        self.count_by(name, 1);
    }

    /// Adds to a counter named in [`NetworkFunction::COUNTERS`].
    pub fn count_by(&mut self, name: impl Listed, by: u64) {
        // SAFETY: the view's maker promised that the counters are `F`'s.
        unsafe { self.raw.count_of::<F>(name.name(), by) };
    }

    /// Writes a line to the event log, as [`crate::Cx::event`].
    pub fn event(&mut self, name: impl Listed, fields: fmt::Arguments<'_>) {
        // SAFETY: promised by the caller that made the view.
        unsafe { self.raw.event_of::<F>(name.name(), fields) };
    }

    /// The function wants flows ended, as [`crate::Cx::recall`].
    pub fn recall(&mut self) {
        self.raw.effects |= effect::RECALL;
    }
}

impl<F: NetworkFunction> fmt::Debug for TimerCx<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerCx<{}> at {} ns", F::NAME, self.raw.now)
    }
}
