//! Waiting until a store has a change: [`Ticket`].
//!
//! A variable numbers its changes. Each goes to the store in the order of its number, unless a
//! later one of the same element takes it along. `stored` is the number up to which the store has
//! all. A ticket has the number of the last change before it was asked for, and is over when
//! `stored` reaches that:
//!
//! ```text
//!   change 1  change 2  ticket(2)  change 3      batch {1, 2}   acknowledged: stored = 2, the ticket is over
//! ```
//!
//! A function's call waits for a ticket with `nf::Cx::stored`: the call leaves a token with the
//! variable, which is given when `stored` reaches the ticket's number. So an acknowledgement has
//! only the calls go on that wait for it. A ticket is over with an error where the partition has
//! another writer.

use crate::wake::{Token, Waiters};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

/// How many batches of a partition are on their way at once.
pub const BATCHES_MAX: usize = 2;

/// Another instance has claimed the identity: this one's changes are not stored any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another instance has claimed these variables; end one of the two, or give each a name of its own")]
pub struct Fenced;

/// A batch on its way, as one variable knows it.
struct Sent {
    sequence: u64,
    /// All changes up to this one are in it, or were in one before.
    number: u64,
    /// When the oldest change in it was made.
    since: u64,
}

/// How far a store has a variable.
#[derive(Default)]
pub(crate) struct Progress {
    /// The partition's clock.
    now: Rc<Cell<u64>>,
    /// How long ago the change at hand was made where its caller noted it, in nanoseconds.
    age: Cell<u64>,
    changed: Cell<u64>,
    stored: Cell<u64>,
    fenced: Cell<bool>,
    /// How often the store was heard of.
    heard: Cell<u32>,
    sent: RefCell<VecDeque<Sent>>,
    waiters: Waiters,
}

impl Progress {
    pub fn new(now: Rc<Cell<u64>>) -> Rc<Self> {
        let progress = Progress {
            now,
            ..Progress::default()
        };
        progress.sent.borrow_mut().reserve(BATCHES_MAX);
        Rc::new(progress)
    }

    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// By when a change is dated.
    pub fn made_at(&self) -> u64 {
        self.now().saturating_sub(self.age.get())
    }

    /// Changes until the next call of this were made so long ago.
    pub fn set_age(&self, age: u64) {
        self.age.set(age);
    }

    /// Numbers a change.
    pub fn change(&self) -> u64 {
        let number = self.changed.get().saturating_add(1);
        self.changed.set(number);
        number
    }

    pub fn changed(&self) -> u64 {
        self.changed.get()
    }

    pub fn stored(&self) -> u64 {
        self.stored.get()
    }

    /// All changes up to `number` are in batches up to this one.
    pub fn send(&self, sequence: u64, number: u64, since: u64) {
        self.sent.borrow_mut().push_back(Sent {
            sequence,
            number,
            since,
        });
    }

    /// Nothing is left to send: changes are in batches that are on their way, if any.
    pub fn nothing_to_send(&self) {
        if self.sent.borrow().is_empty() {
            self.reach(self.changed.get());
        }
    }

    /// The store has the batch; answers since when its oldest change of this variable had waited.
    pub fn acknowledge(&self, sequence: u64) -> Option<u64> {
        let mut oldest = None;
        loop {
            let mut sent = self.sent.borrow_mut();
            if sent.front().is_none_or(|first| first.sequence > sequence) {
                return oldest;
            }
            let first = sent.pop_front();
            drop(sent);
            if let Some(first) = first {
                oldest = oldest.or(Some(first.since));
                self.reach(first.number);
            }
        }
    }

    /// The store lacks the changes that were sent: they are sent again, as new changes.
    pub fn forget_sent(&self) {
        self.sent.borrow_mut().clear();
    }

    /// Since when the oldest change that is on its way has waited.
    pub fn sent_since(&self) -> Option<u64> {
        self.sent.borrow().front().map(|sent| sent.since)
    }

    pub fn fence(&self) {
        self.fenced.set(true);
        self.waiters.reach(u64::MAX);
        self.hear();
    }

    pub fn is_fenced(&self) -> bool {
        self.fenced.get()
    }

    pub fn is_stored(&self) -> bool {
        self.stored.get() >= self.changed.get()
    }

    fn reach(&self, number: u64) {
        if number > self.stored.get() {
            self.stored.set(number);
            self.waiters.reach(number);
            self.hear();
        }
    }

    pub fn heard(&self) -> u32 {
        self.heard.get()
    }

    fn hear(&self) {
        self.heard.set(self.heard.get().wrapping_add(1));
    }
}

/// Whether the store has all changes of a variable that were made before it was asked for.
#[must_use = "a ticket that is dropped says nothing"]
pub struct Ticket {
    /// `None`: it is over.
    progress: Option<Rc<Progress>>,
    number: u64,
}

impl Ticket {
    pub(crate) fn of(progress: &Rc<Progress>) -> Self {
        Ticket::up_to(progress, progress.changed())
    }

    /// Of all changes up to this one.
    pub(crate) fn up_to(progress: &Rc<Progress>, number: u64) -> Self {
        Ticket {
            progress: Some(Rc::clone(progress)),
            number,
        }
    }

    /// A ticket that is over.
    pub(crate) fn over() -> Self {
        Ticket {
            progress: None,
            number: 0,
        }
    }

    /// Whether it is over: `None` while the store has not said.
    pub fn state(&self) -> Option<Result<(), Fenced>> {
        let Some(progress) = &self.progress else {
            return Some(Ok(()));
        };
        if progress.stored.get() >= self.number {
            Some(Ok(()))
        } else {
            progress.is_fenced().then_some(Err(Fenced))
        }
    }

    /// Has the token given when the ticket is over, until the returned waiter is dropped. `None`:
    /// the caller has to look by itself.
    pub fn wait(&self, token: Token) -> Option<Waiter<'_>> {
        let progress = self.progress.as_deref()?;
        let waiters = &progress.waiters;
        waiters
            .join(&token, self.number)
            .then_some(Waiter { waiters, token })
    }
}

/// A call that waits for a ticket.
pub struct Waiter<'t> {
    waiters: &'t Waiters,
    token: Token,
}

impl Waiter<'_> {
    /// The token to be given.
    pub fn token(&self) -> &Token {
        &self.token
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiters.leave(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_over_with_the_acknowledgement_that_it_waits_for() {
        let progress = Progress::new(Rc::default());
        progress.change();
        let number = progress.change();
        let ticket = Ticket::of(&progress);
        assert_eq!(ticket.state(), None);
        progress.send(1, 1, 10);
        progress.send(2, number, 11);
        assert_eq!(progress.acknowledge(1), Some(10));
        assert_eq!((progress.heard(), ticket.state()), (1, None));
        assert_eq!(progress.acknowledge(2), Some(11));
        assert_eq!((progress.heard(), ticket.state()), (2, Some(Ok(()))));
        assert!(progress.is_stored());
        progress.change();
        let ticket = Ticket::of(&progress);
        assert_eq!(ticket.state(), None);
        progress.fence();
        assert_eq!((progress.heard(), ticket.state()), (3, Some(Err(Fenced))));
    }
}
