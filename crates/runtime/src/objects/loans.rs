//! Objects with one writer: from the machine to the table of pending calls, and back.
//!
//! ```text
//!   a call wants it ─► asked ──Granted──► lent ──Recalled──► recalled ──returned──► asked again, if calls wait still
//!                                          └── changed: copied, and those that wait for that are answered
//! ```
//!
//! The machine's reference is held for as long as the object is lent, so it goes to no other
//! runtime before it is returned.
//!
//! Not here: which call has it (`nf::objects`, `lent`).

use super::content::Content;
use super::{Doing, Flight, SharedObjects};
use alloc::collections::VecDeque;
use nf::objects::{PendingCalls, Put};
use protocols::objects::{Input, Key, UNANSWERED};

/// An object that calls here want or have.
#[derive(Default)]
pub(super) struct Loan {
    is_lent: bool,
    /// Calls that wait while it is asked for, or behind its return.
    waiting: VecDeque<u64>,
}

impl SharedObjects {
    /// A call wants an object.
    pub(super) fn want(&mut self, now: u64, key: Key, number: u64, pending_calls: &PendingCalls) {
        let token = self.flights.all.get(&number).map_or(0, |flight| flight.token);
        match self.loans.get_mut(&key) {
            Some(loan)
                if loan.is_lent
                    && pending_calls_key(&key, |key| pending_calls.wait(key.0, &key.1, token)) =>
            {
                self.flights.all.remove(&number);
            }
            Some(loan) => loan.waiting.push_back(number),
            None => {
                self.loans.insert(key, Loan::default());
                self.acquire(now, key, number);
            }
        }
    }

    fn acquire(&mut self, now: u64, key: Key, number: u64) {
        let born = self.kinds.get(usize::from(key.kind())).map(Content::born);
        self.machine.handle(now, Input::Acquire(key, number, born));
    }

    /// The machine has the object for a call that wants it.
    pub(super) fn lend(&mut self, key: Key, number: u64, pending_calls: &PendingCalls) {
        let (Some(flight), Some((_, _, body))) = (self.flights.all.remove(&number), self.machine.held(&key))
        else {
            return;
        };
        pending_calls_key(&key, |at| {
            pending_calls.lend(at.0, &at.1, body.bytes(), flight.token)
        });
        let loan = self.loans.entry(key).or_default();
        loan.is_lent = true;
        for number in core::mem::take(&mut loan.waiting) {
            let token = self.flights.all.remove(&number).map_or(0, |flight| flight.token);
            if !pending_calls_key(&key, |at| pending_calls.wait(at.0, &at.1, token)) {
                // It is to come back at once, since too many are lent.
                self.wait_again(key, token);
            }
        }
    }

    fn wait_again(&mut self, key: Key, token: u64) {
        let number = self.flights.begin(Flight::of(token, key, Doing::Getting));
        self.loans.entry(key).or_default().waiting.push_back(number);
    }

    /// The machine wants the object back.
    pub(super) fn recall(&mut self, key: &Key, pending_calls: &PendingCalls) {
        pending_calls_key(key, |at| pending_calls.recall(at.0, &at.1));
    }

    /// A call cannot have the object: calls that wait behind it ask in turn.
    pub(super) fn refuse_loan(&mut self, now: u64, key: Key) {
        let next = self.loans.get_mut(&key).and_then(|loan| loan.waiting.pop_front());
        match next {
            Some(number) => self.acquire(now, key, number),
            None => {
                self.loans.remove(&key);
            }
        }
    }

    /// Takes what calls have changed, and what they return.
    pub(super) fn take_back(&mut self, now: u64, pending_calls: &PendingCalls) -> usize {
        let mut work = 0;
        while let Some(put) = pending_calls.next_put() {
            self.take_put(now, put);
            work += 1;
        }
        work
    }

    fn take_put(&mut self, now: u64, put: Put) {
        let Some(key) = Key::new(put.kind, &put.key) else {
            return;
        };
        let is_changed = put.changed.is_some();
        if let (Some(bytes), Some(body)) = (&put.changed, self.machine.body_mut(&key)) {
            body.set(bytes);
        }
        for token in &put.writers {
            let number = self.flights.begin(Flight::of(*token, key, Doing::Writing));
            self.machine.handle(now, Input::Changed(key, number));
        }
        if is_changed && put.writers.is_empty() {
            self.machine.handle(now, Input::Changed(key, UNANSWERED));
        }
        let Some(waiters) = put.returned else { return };
        self.machine.handle(now, Input::Release(key, None));
        let mut waiting = self
            .loans
            .remove(&key)
            .map_or_else(VecDeque::new, |loan| loan.waiting);
        for token in waiters.into_iter().rev() {
            let number = self.flights.begin(Flight::of(token, key, Doing::Getting));
            waiting.push_front(number);
        }
        if let Some(first) = waiting.pop_front() {
            let is_lent = false;
            self.loans.insert(key, Loan { is_lent, waiting });
            self.acquire(now, key, first);
        }
    }
}

/// A key as the table of pending calls has it.
fn pending_calls_key<T>(key: &Key, what: impl FnOnce((u16, nf::objects::Key)) -> T) -> T {
    let bytes = nf::objects::Key::try_from(key.bytes()).unwrap_or_default();
    what((key.kind(), bytes))
}
