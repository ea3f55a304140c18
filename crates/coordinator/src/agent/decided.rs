//! Which configuration was decided, as the agent hears it, and which one this member has in force,
//! as the agent tells it.
//!
//! The agent writes the newest and never waits; the member's thread waits for another one.

use crate::proto;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
struct State {
    newest: proto::Decided,
    is_over: bool,
}

/// The configuration decided last, and the number of the one in force here.
#[derive(Default)]
pub struct Decided {
    state: Mutex<State>,
    changed: Condvar,
    in_force: AtomicU64,
}

impl Decided {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent has heard of this one.
    pub(super) fn hear(&self, decided: &proto::Decided) {
        let mut state = self.state();
        if decided.number >= state.newest.number && state.newest != *decided {
            state.newest = decided.clone();
            self.changed.notify_all();
        }
    }

    /// The number of the configuration that this member has in force; 0 before it has any.
    pub fn in_force(&self) -> u64 {
        self.in_force.load(Ordering::Acquire)
    }

    /// This member has another one in force.
    pub fn put_in_force(&self, number: u64) {
        self.in_force.store(number, Ordering::Release);
    }

    /// Waits until another one is decided than `known`, or `time` has passed: the newest. `None`:
    /// it is over.
    pub fn wait(&self, known: &proto::Decided, time: Duration) -> Option<proto::Decided> {
        let state = self.state();
        let is_same = |state: &mut State| !state.is_over && state.newest == *known;
        let waited = self.changed.wait_timeout_while(state, time, is_same);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.is_over).then(|| state.newest.clone())
    }

    /// Ends all waits: no thread waits any more.
    pub fn close(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(number: u64, reached: bool) -> proto::Decided {
        let digest = format!("{number:x}");
        proto::Decided {
            number,
            digest,
            reached,
            ..proto::Decided::default()
        }
    }

    #[test]
    fn the_newest_is_heard_and_an_earlier_one_is_not() {
        let all = Decided::default();
        let soon = Duration::from_millis(1);
        assert_eq!(
            all.wait(&proto::Decided::default(), soon),
            Some(proto::Decided::default())
        );
        all.hear(&decided(3, false));
        all.hear(&decided(2, true));
        let newest = all.wait(&proto::Decided::default(), Duration::from_secs(60));
        assert_eq!(newest, Some(decided(3, false)));
        all.hear(&decided(3, true));
        assert_eq!(
            all.wait(&decided(3, false), Duration::from_secs(60)),
            Some(decided(3, true))
        );
        all.close();
        assert_eq!(all.wait(&decided(3, true), Duration::from_secs(60)), None);
    }
}
