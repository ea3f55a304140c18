//! Tickets for a packet whose call has changed variables with [`Consistency::Through`]
//! (write-through; FlexState III-C).
//!
//! ```text
//!   marks before ─► a function's call ─► marks behind it
//!                                          ├─ the same: on
//!                                          └─ others: the packet waits for a ticket of each ─► the store has them: on
//! ```
//!
//! A mark is the number of a variable's last change. All calls of a worker are of one thread, so
//! changes between two marks around a step of a call are that call's.
//!
//! Not here: the wait (`runtime::stage`), tickets ([`crate::ticket`]).
//!
//! [`Consistency::Through`]: crate::Consistency::Through

use crate::cells::{Key, Stored};
use crate::table::Slot;
use crate::ticket::{Progress, Ticket};
use alloc::rc::Rc;
use alloc::vec::Vec;

/// The most variables of a function that are written through.
pub const THROUGH_MAX: usize = 8;

/// A handle's variable, whatever its type.
pub(crate) trait Kept {
    /// `None` while the variable is not at the worker.
    fn progress(&self) -> Option<&Rc<Progress>>;
}

impl<K: Key, V: Stored> Kept for Slot<K, V> {
    fn progress(&self) -> Option<&Rc<Progress>> {
        self.inner().map(|inner| &inner.progress)
    }
}

/// The number of the last change of each variable that is written through.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Marks([u64; THROUGH_MAX]);

impl Marks {
    /// From `before` to `now` a call has made a step: the last change of each variable that the
    /// step has changed.
    pub fn note(&mut self, before: Marks, now: Marks) {
        let steps = before.0.into_iter().zip(now.0);
        for (mark, (before, now)) in self.0.iter_mut().zip(steps) {
            if now > before {
                *mark = now;
            }
        }
    }
}

/// The variables of a function's instance that are written through.
pub struct Through(pub(crate) Vec<Rc<dyn Kept>>);

impl Through {
    /// The last change of each.
    pub fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        for (mark, variable) in marks.0.iter_mut().zip(&self.0) {
            *mark = variable.progress().map_or(0, |progress| progress.changed());
        }
        marks
    }

    /// Tickets that are over when the store has these changes, and all before them.
    pub fn tickets(&self, marks: Marks) -> [Ticket; THROUGH_MAX] {
        let mut tickets = core::array::from_fn(|_| Ticket::over());
        for ((ticket, mark), variable) in tickets.iter_mut().zip(marks.0).zip(&self.0) {
            if let (Some(progress), 1..) = (variable.progress(), mark) {
                *ticket = Ticket::up_to(progress, mark);
            }
        }
        tickets
    }
}
