//! How the members of the view are reached that no configuration lists, as the agent hears it.
//!
//! The agent writes the newest and never waits; the thread that lays links waits for others. A list
//! with more workers than a view may have is ignored.

use crate::proto;
use crate::translate::WORKERS_MAX;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
struct State {
    newest: Vec<proto::Contact>,
    is_over: bool,
}

/// The newest contacts.
#[derive(Default)]
pub struct Contacts {
    state: Mutex<State>,
    changed: Condvar,
}

impl Contacts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent has heard of these.
    pub(super) fn hear(&self, contacts: &[proto::Contact]) {
        let workers: usize = contacts.iter().map(|contact| contact.workers.len()).sum();
        let mut state = self.state();
        if workers <= WORKERS_MAX && contacts.len() <= WORKERS_MAX && state.newest != contacts {
            state.newest = contacts.to_vec();
            self.changed.notify_all();
        }
    }

    /// Waits until there are others than `known`, or `time` has passed: the newest. `None`: it is
    /// over.
    pub fn wait(&self, known: &[proto::Contact], time: Duration) -> Option<Vec<proto::Contact>> {
        let state = self.state();
        let is_same = |state: &mut State| !state.is_over && state.newest == known;
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
