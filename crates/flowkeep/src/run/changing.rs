//! The workers as a change of configuration has them (`crate::apply`): each asked by its thread.

use super::Shared;
use super::driver::{self, Answer, Question, Unanswered};
use crate::apply::{Ticket, Workers};
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
        match self.runtime_at(runtime)?.ask(Question::Prepare(prepared)).ok()? {
            Answer::Prepared(answer) => Some(answer.map_err(|(error, _)| error)),
            _ => None,
        }
    }

    fn abandon(&self, runtime: usize) {
        let asked = self
            .runtime_at(runtime)
            .map(|runtime| runtime.ask(Question::Abandon));
        if let Some(Ok(Answer::Abandoned(prepared))) = asked {
            // Here, not at the worker.
            drop(prepared);
        }
    }

    fn commit(&self, tickets: &[Ticket]) -> Vec<bool> {
        let runtimes = self.runtimes();
        let each = runtimes.values().zip(tickets);
        let asked: Vec<_> = each
            .map(|(runtime, ticket)| runtime.ask_later(Question::Commit(ticket.clone())))
            .collect();
        let deadline = Instant::now() + driver::PATIENCE;
        let done = |answer: &Result<mpsc::Receiver<Answer>, Unanswered>| {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = answer.as_ref().ok().map(|answer| answer.recv_timeout(left));
            matches!(answer, Some(Ok(Answer::Committed(true))))
        };
        asked.iter().map(done).collect()
    }

    fn state(&self, runtime: usize) -> Option<ChangeState> {
        match self.runtime_at(runtime)?.ask(Question::Change).ok()? {
            Answer::Change(state) => Some(*state),
            _ => None,
        }
    }

    fn listed(&self, runtime: usize) -> Vec<CutFlow> {
        match self
            .runtime_at(runtime)
            .map(|runtime| runtime.ask(Question::Listed))
        {
            Some(Ok(Answer::Listed(listed))) => listed,
            _ => Vec::new(),
        }
    }

    fn before(&self, runtime: usize) -> Option<Box<Before>> {
        match self.runtime_at(runtime)?.ask(Question::Before).ok()? {
            Answer::Before(before) => before,
            _ => None,
        }
    }

    fn claim(&self, switch: usize, addresses: Vec<Vec<Prefix>>) -> Result<(), String> {
        let handle = self.switches.values().nth(switch);
        match handle.map(|handle| handle.ask(Question::Claim(addresses))) {
            Some(Ok(Answer::Claimed(done))) => done,
            Some(Err(why)) => Err(format!("switch {switch} did not answer: {why}")),
            _ => Err(format!("switch {switch} did not answer")),
        }
    }

    fn follow(&self, switch: usize, plan: Plan) {
        let handle = self.switches.values().nth(switch);
        drop(handle.map(|handle| handle.ask(Question::Follow(plan))));
    }
}
