//! The workers as a change of configuration has them (`crate::apply`): each asked by its thread.

use super::Shared;
use super::handle::{PATIENCE, Unanswered};
use crate::apply::{Ticket, Workers};
use runtime::Runtime;
use runtime::chain::Plan;
use runtime::worker::change::{Before, ChangeError, ChangeState, CutFlow, Prepared};
use std::sync::mpsc;
use std::time::Instant;
use wire::Prefix;

impl Workers for Shared {
    fn runtimes(&self) -> usize {
        self.runtimes().len()
    }

    fn prepare(&self, runtime: usize, prepared: Box<Prepared>) -> Option<Result<(), ChangeError>> {
        // A refused change comes back, to be dropped here and not at the worker.
        let handle = self.runtime_at(runtime)?;
        let answer = handle.runtime(|runtime| runtime.prepare_change(prepared)).ok()?;
        Some(answer.map_err(|(error, _)| error))
    }

    fn abandon(&self, runtime: usize) {
        // The prepared change is dropped here, not at the worker.
        let handle = self.runtime_at(runtime);
        drop(handle.map(|handle| handle.runtime(Runtime::abandon_change)));
    }

    fn commit(&self, tickets: &[Ticket]) -> Vec<bool> {
        let runtimes = self.runtimes();
        let asked: Vec<_> = (runtimes.values().zip(tickets.iter().cloned()))
            .map(|(handle, ticket)| {
                handle.call(move |worker| {
                    let runtime = worker.runtime()?;
                    Some(ticket.redeem() && runtime.commit_change())
                })
            })
            .collect();
        let deadline = Instant::now() + PATIENCE;
        let done = |answer: Result<mpsc::Receiver<bool>, Unanswered>| {
            let left = deadline.saturating_duration_since(Instant::now());
            answer.is_ok_and(|answer| answer.recv_timeout(left) == Ok(true))
        };
        asked.into_iter().map(done).collect()
    }

    fn state(&self, runtime: usize) -> Option<ChangeState> {
        let handle = self.runtime_at(runtime)?;
        handle.runtime(|runtime| runtime.change()).ok()
    }

    fn listed(&self, runtime: usize) -> Vec<CutFlow> {
        let handle = self.runtime_at(runtime);
        let listed = handle.and_then(|handle| handle.runtime(Runtime::take_listed).ok());
        listed.unwrap_or_default()
    }

    fn before(&self, runtime: usize) -> Option<Box<Before>> {
        let handle = self.runtime_at(runtime)?;
        handle.runtime(Runtime::take_before).ok()?
    }

    fn claim(&self, switch: usize, addresses: Vec<Vec<Prefix>>) -> Result<(), String> {
        let handle = self.switches.values().nth(switch);
        let asked = handle.map(|handle| handle.switch(move |switch| switch.claim(&addresses)));
        match asked {
            Some(Ok(done)) => done.map_err(|error| error.to_string()),
            Some(Err(why)) => Err(format!("switch {switch} did not answer: {why}")),
            None => Err(format!("switch {switch} is not there")),
        }
    }

    fn follow(&self, switch: usize, plan: Plan) {
        let handle = self.switches.values().nth(switch);
        let _ = handle.map(|handle| handle.switch(move |switch| switch.change(plan)));
    }
}
