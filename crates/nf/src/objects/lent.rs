//! Objects with one writer that are at their runtime: one call after another has each of them (S6
//! 4.2).
//!
//! # Theory of operation
//!
//! The worker lends an object to the table of pending calls when the first call wants it. From then
//! on a call takes it and puts it back with no message, and without waiting if no other call has
//! it. The worker is told of the change, and has the object copied. When the object is to go to
//! another runtime, the worker recalls it: the call that has it ends, the object is returned, and
//! waiting calls ask again, like any other runtime.
//!
//! ```text
//!   get ─► not lent ─► asked ─► the worker has it ─► lend ─► taken
//!    └──► lent: free ─► taken ─► put ─► the next that waits takes it, or free ─► taken …
//!                                 └─► recalled: returned, with those that wait
//! ```
//!
//! Invariants: one call at a time has an object; the next call, here or at another runtime, takes
//! it as it was put last; each change is told once.

use super::Words;
use super::pending_calls::{Ended, Inner, Key, State};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// An object by its kind and key.
pub(super) type At = (u16, Key);

/// The most objects that are lent without being used.
const FREE_MAX: usize = 4096;
/// An object that was not used for so long is returned.
const UNUSED_NS: u64 = 1_000_000_000;

/// An object that is lent.
#[derive(Debug)]
pub(super) struct Lent {
    /// The loan's number: a call with an earlier loan is told apart by it.
    number: u64,
    bytes: Vec<u8>,
    /// The call that has it, by what it was told; 0: it has been told.
    taken: Option<u64>,
    waiters: VecDeque<u64>,
    is_changed: bool,
    /// Calls that wait until the change survives a failure.
    writers: Vec<u64>,
    is_recalled: bool,
    used_at: u64,
}

/// The message to a worker about an object that was changed, or comes back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// The kind.
    pub kind: u16,
    /// The object.
    pub key: Key,
    /// Its content, if that was changed.
    pub changed: Option<Vec<u8>>,
    /// Calls that wait until the change survives a failure.
    pub writers: Vec<u64>,
    /// It comes back; and these wait for it still.
    pub returned: Option<Vec<u64>>,
}

/// The answer to a call that wants an object.
pub(super) enum Got<T> {
    /// The object, of this loan.
    Here(u64, T),
    /// The token of the question that is to be answered first.
    Waits(u64),
}

impl Inner {
    /// An object for a call. `read` makes its value of bytes.
    pub(super) fn get<T>(&mut self, at: &At, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Got<T>, Ended> {
        let now = self.now;
        if let Some(count) = self.gets.get_mut(usize::from(at.0)) {
            *count += 1;
        }
        if let Some(lent) = self.lent.get_mut(at).filter(|lent| !lent.is_recalled)
            && lent.taken.is_none()
            && let Some(value) = read(&lent.bytes)
        {
            (lent.taken, lent.used_at) = (Some(0), now);
            return Ok(Got::Here(lent.number, value));
        }
        let token = self.begin().ok_or(Ended::Full)?;
        match self.lent.get_mut(at).filter(|lent| !lent.is_recalled) {
            Some(lent) => lent.waiters.push_back(token),
            None => self.push(token, at.0, at.1.clone(), super::What::Get),
        }
        Ok(Got::Waits(token))
    }

    /// The object that a call was told to be its own.
    pub(super) fn collect<T>(
        &mut self,
        at: &At,
        token: u64,
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<(u64, T)> {
        let lent = self.lent.get_mut(at).filter(|lent| lent.taken == Some(token))?;
        lent.taken = Some(0);
        Some((lent.number, read(&lent.bytes)?))
    }

    /// A call that was told, and has not collected, is no more.
    pub(super) fn abandon(&mut self, at: &At, token: u64) {
        if let Some(lent) = self.lent.get_mut(at)
            && lent.taken == Some(token)
        {
            lent.taken = None;
            self.pass_on(at);
        }
    }

    /// A call has done with an object. `is_awaited`: it waits until the change survives a failure,
    /// and is answered then.
    pub(super) fn put(
        &mut self,
        at: &At,
        number: u64,
        changed: Option<&[u8]>,
        is_awaited: bool,
    ) -> Result<Option<u64>, Ended> {
        let is_it = |lent: &&mut Lent| lent.number == number;
        if self.lent.get_mut(at).filter(is_it).is_none() {
            // Another incarnation of the runtime: the loan is over.
            return Err(Ended::Unknown);
        }
        let token = match is_awaited {
            true => self.begin(),
            false => None,
        };
        let Some(lent) = self.lent.get_mut(at) else {
            return Err(Ended::Unknown);
        };
        let is_told = lent.is_changed || !lent.writers.is_empty();
        lent.taken = None;
        lent.writers.extend(token);
        if let Some(bytes) = changed {
            lent.bytes.clear();
            lent.bytes.extend_from_slice(bytes);
        }
        lent.is_changed |= changed.is_some();
        if (lent.is_changed || token.is_some()) && !is_told {
            self.changed.push_back(at.clone());
        }
        self.pass_on(at);
        match is_awaited && token.is_none() {
            true => Err(Ended::Full),
            false => Ok(token),
        }
    }

    /// An object that no call has goes to the next waiting call, or back to the worker.
    fn pass_on(&mut self, at: &At) {
        while let Some(lent) = self.lent.get_mut(at).filter(|lent| lent.taken.is_none()) {
            if lent.is_recalled {
                return self.returned.push_back(at.clone());
            }
            let Some(token) = lent.waiters.pop_front() else {
                return;
            };
            if self.tell(token, Ok(Words::default())) {
                if let Some(lent) = self.lent.get_mut(at) {
                    lent.taken = Some(token);
                }
                self.has_told = true;
            }
        }
    }

    /// The worker has the object, for a call that waits for it.
    pub(super) fn lend(&mut self, at: At, bytes: &[u8], token: u64) {
        self.loans = self.loans.wrapping_add(1);
        let lent = Lent {
            number: self.loans,
            bytes: bytes.to_vec(),
            taken: None,
            waiters: VecDeque::from([token]),
            is_changed: false,
            writers: Vec::new(),
            is_recalled: false,
            used_at: self.now,
        };
        self.lent.insert(at.clone(), lent);
        self.pass_on(&at);
        if self.lent.len() > FREE_MAX {
            self.recall(&at);
        }
    }

    /// One more call waits for an object that is lent; `false` if it is not, or is to come back.
    pub(super) fn wait(&mut self, at: &At, token: u64) -> bool {
        let Some(lent) = self.lent.get_mut(at).filter(|lent| !lent.is_recalled) else {
            return false;
        };
        lent.waiters.push_back(token);
        self.pass_on(at);
        true
    }

    /// An object is to come back.
    pub(super) fn recall(&mut self, at: &At) {
        if let Some(lent) = self.lent.get_mut(at).filter(|lent| !lent.is_recalled) {
            lent.is_recalled = true;
            self.pass_on(at);
        }
    }

    /// Objects that were not used for long come back; a look now and then.
    pub(super) fn recall_unused(&mut self) {
        if self.now < self.unused_at || self.lent.is_empty() {
            return;
        }
        self.unused_at = self.now.saturating_add(UNUSED_NS / 2);
        let before = self.now.saturating_sub(UNUSED_NS);
        let is_unused = |lent: &Lent| lent.taken.is_none() && !lent.is_recalled && lent.used_at <= before;
        let unused = self.lent.iter().filter(|(_, lent)| is_unused(lent));
        let unused: Vec<At> = unused.map(|(at, _)| at.clone()).collect();
        unused.iter().for_each(|at| self.recall(at));
    }

    /// The next message to the worker.
    pub(super) fn next_put(&mut self) -> Option<Put> {
        if let Some(at) = self.changed.pop_front() {
            return self.put_of(at, false).or_else(|| self.next_put());
        }
        let at = self.returned.pop_front()?;
        self.put_of(at, true)
    }

    fn put_of(&mut self, at: At, is_returned: bool) -> Option<Put> {
        let lent = self.lent.get_mut(&at)?;
        let is_changed = core::mem::take(&mut lent.is_changed);
        let changed = is_changed.then(|| lent.bytes.clone());
        let writers = core::mem::take(&mut lent.writers);
        let returned = is_returned.then(|| lent.waiters.drain(..).collect());
        if is_returned {
            self.lent.remove(&at);
        }
        let (kind, key) = at;
        Some(Put {
            kind,
            key,
            changed,
            writers,
            returned,
        })
    }

    /// Another incarnation of the runtime: nothing is lent, and waiting calls are told so.
    pub(super) fn forget_lent(&mut self) {
        for (_, lent) in core::mem::take(&mut self.lent) {
            for token in lent.waiters.into_iter().chain(lent.writers) {
                self.tell(token, Err(Ended::Late));
            }
        }
        self.changed.clear();
        self.returned.clear();
    }

    /// Answers a call; `false` if it is no more.
    fn tell(&mut self, token: u64, answer: Result<Words, Ended>) -> bool {
        let Some(slot) = self.slot(token) else {
            return false;
        };
        match slot.state {
            State::Waits => {
                slot.state = State::Answered(answer);
                true
            }
            State::Left => {
                slot.state = State::Free;
                self.end(token);
                false
            }
            State::Free | State::Answered(_) => false,
        }
    }
}
