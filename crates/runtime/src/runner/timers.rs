//! Functions that a timer wakes without a packet ([`nf::NetworkFunction::timer_due`]).
//!
//! ```text
//!   step ─► is there a function with timers? ─no─► nothing
//!             └─yes─► its next timer, by the wall clock ─not due─► the next function
//!                                                       └─due────► `timer_due`, up to CALLS times
//! ```
//!
//! Invariants: a worker without such functions looks at nothing; a step calls each function a
//! bounded number of times; a timer waits while the event log has no room for what its call says.
//!
//! Not here: which timers there are, and that they outlast the process (`variables`).

use super::Runner;
use nf::cx::effect;

/// Calls of one function in a step at most.
const CALLS: usize = 32;

impl Runner {
    /// Calls functions whose timers are due; answers how often.
    #[inline(always)]
    pub fn run_timers(&mut self) -> usize {
        match self.stages.timed.is_empty() {
            true => 0,
            false => self.call_timers(),
        }
    }

    fn call_timers(&mut self) -> usize {
        let mut calls = 0;
        let now_ms = self.log.wall_ms(self.now);
        for index in 0..self.stages.timed.len() {
            let function = self.stages.timed[index];
            for _ in 0..CALLS {
                let next = self.stages.functions[function].next_timer();
                if next.is_none_or(|at_ms| at_ms > now_ms) || !self.may_end() {
                    break;
                }
                self.call_timer(function);
                calls += 1;
            }
        }
        calls
    }

    #[cold]
    fn call_timer(&mut self, function: usize) {
        let counters = self.stages.counters_of(function);
        let cx = self.prepare_without();
        cx.counters = counters;
        // SAFETY: the counters are the function's, and the log is the worker's; nothing else uses
        // either during the call.
        unsafe { self.stages.functions[function].timer_due(cx) };
        self.recalls |= core::mem::take(&mut cx.effects) & effect::RECALL != 0;
    }

    /// When the first timer is due, by the worker's clock. Where packets carry the time, time goes
    /// on with them alone.
    pub fn next_timer(&self) -> Option<u64> {
        if self.bounds.packet_clock {
            return None;
        }
        let timed = self.stages.timed.iter();
        let next = timed.filter_map(|function| self.stages.functions[*function].next_timer());
        next.min().map(|at_ms| self.log.clock_at(at_ms))
    }

    /// The wall clock shows so many nanoseconds where the worker's clock shows 0.
    pub fn set_wall(&mut self, wall: u64) {
        self.log.set_wall(wall);
    }
}
