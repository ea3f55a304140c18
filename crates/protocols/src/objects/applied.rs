//! Which calls an object has seen: for each runtime a watermark, and the numbers of calls above it.
//!
//! A caller numbers its calls, and says with each the lowest number of its unanswered calls of that
//! key. Lower numbers were answered, and are never sent again: they need no place. At most
//! [`WINDOW`] calls of a caller and a key are unanswered, so the numbers above the watermark have a
//! place each. A highest number alone would take an earlier call that overtakes no one for one that
//! was applied.

use super::message::Caller;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// The most unanswered calls of one runtime to one object.
pub const WINDOW: usize = 16;

/// The calls of one caller.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Calls {
    pub(super) caller: Caller,
    /// All below it were applied, or will never come.
    pub(super) watermark: u64,
    /// Applied, and not below it.
    pub(super) above: ArrayVec<u64, WINDOW>,
}

/// The calls that were applied to an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Applied {
    /// One entry for each runtime, of its newest incarnation: no more than there may be runtimes.
    pub(super) callers: Vec<Calls>,
}

/// Whether a call is new to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Novelty {
    /// It was not applied.
    New,
    /// It was.
    Repeated,
    /// An earlier incarnation's, or one too many: it is not to be applied.
    Refused,
}

impl Applied {
    /// Takes a call in, if it is new; all below `answered_below` were answered.
    pub fn add(&mut self, caller: Caller, id: u64, answered_below: u64) -> Novelty {
        let at = self
            .callers
            .iter()
            .position(|calls| calls.caller.runtime == caller.runtime);
        let fresh = Calls {
            caller,
            watermark: 0,
            above: ArrayVec::new(),
        };
        let calls = match at.and_then(|at| self.callers.get_mut(at)) {
            Some(calls) if calls.caller.incarnation > caller.incarnation => return Novelty::Refused,
            Some(calls) if calls.caller.incarnation < caller.incarnation => {
                *calls = fresh;
                calls
            }
            Some(calls) => calls,
            None => {
                self.callers.push(fresh);
                let Some(calls) = self.callers.last_mut() else {
                    return Novelty::Refused;
                };
                calls
            }
        };
        calls.add(id, answered_below.min(id))
    }

    /// Forgets the calls of runtimes of which `stays` is false: they are members no more.
    pub fn retain(&mut self, stays: impl Fn(Caller) -> bool) {
        self.callers.retain(|calls| stays(calls.caller));
    }
}

impl Calls {
    fn add(&mut self, id: u64, answered_below: u64) -> Novelty {
        if answered_below > self.watermark {
            self.watermark = answered_below;
            self.above.retain(|above| *above >= answered_below);
        }
        if id < self.watermark || self.above.contains(&id) {
            return Novelty::Repeated;
        }
        match self.above.try_push(id) {
            Ok(()) => Novelty::New,
            Err(_) => Novelty::Refused,
        }
    }
}
