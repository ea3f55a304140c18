//! Calls on their way from functions to their worker, and answers on the way back.
//!
//! ```text
//!   ask ─► Asked, in order ─► next (the worker)
//!    └ token ─► slot: waits ─► answer ─► answered ─► take: free
//!                       └ leave: left ─► answer: free
//! ```

use super::deltas::{Deltas, Merged};
use super::lent::{At, Got, Lent, Put};
use super::{KEY_MAX, KINDS_MAX, Words};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;
use hashbrown::HashMap;

/// The most calls whose answers are awaited at a worker, abandoned calls among them.
const SLOTS_MAX: usize = 2048;
/// The most calls that the worker has not taken yet.
const ASKED_MAX: usize = 4096;
/// How long a call waits for its answer, in nanoseconds.
pub const WAIT_NS: u64 = 5_000_000_000;
/// And how many turns of its worker at least: in a replay, seconds pass between two packets.
pub(super) const WAIT_TURNS: u64 = 1000;
/// In each token, so that none is a number of [`crate::Cx::changed`] that functions commonly use.
const MARK: u64 = 1 << 63;
const PLACE_BITS: u32 = 16;

/// Names an object among those of its kind: a function's own bytes.
pub type Key = arrayvec::ArrayVec<u8, KEY_MAX>;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The key is longer than [`KEY_MAX`].
    KeyTooLong,
    /// A bound is reached, of calls or of objects. Nothing was applied.
    Full,
    /// This runtime is on its way out of the cluster. Nothing was applied.
    Leaving,
    /// No answer came within [`WAIT_NS`]; the call may be applied all the same.
    Late,
    /// The call was applied, once, before a runtime failed, and its answer is lost.
    Unknown,
}

impl core::fmt::Display for Ended {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Ended::KeyTooLong => "the key is longer than 40 bytes",
            Ended::Full => "there are too many objects or calls",
            Ended::Leaving => "the runtime is leaving",
            Ended::Late => "no answer came in time",
            Ended::Unknown => "the answer was lost with a runtime",
        })
    }
}

impl core::error::Error for Ended {}

/// A question to an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A call that changes it, with an answer.
    Update(Words),
    /// The same without.
    Send(Words),
    /// So many calls that were merged into one.
    Merged(Words, u32),
    /// A call that changes nothing; an answer that was asked for so many nanoseconds ago will do.
    Read(Words, u64),
    /// Its end.
    Remove,
    /// The object itself, for one call at a time.
    Get,
}

/// A call on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// To be answered by; 0 of a call without an answer.
    pub token: u64,
    /// The kind.
    pub kind: u16,
    /// The object.
    pub key: Key,
    /// The call.
    pub what: What,
}

#[derive(Debug)]
pub(super) enum State {
    Free,
    Waits,
    Answered(Result<Words, Ended>),
    Left,
}

#[derive(Debug)]
pub(super) struct Slot {
    sequence: u64,
    pub(super) state: State,
}

#[derive(Default, Debug)]
pub(super) struct Inner {
    slots: Vec<Slot>,
    free: Vec<u16>,
    asked: VecDeque<Asked>,
    deltas: Deltas,
    /// Objects with one writer that are here.
    pub(super) lent: HashMap<At, Lent>,
    /// How many were lent so far, and by kind how often one was wanted.
    pub(super) loans: u64,
    pub(super) gets: Vec<u64>,
    /// Objects that were changed, and that come back.
    pub(super) changed: VecDeque<At>,
    pub(super) returned: VecDeque<At>,
    /// When unused objects are looked for again.
    pub(super) unused_at: u64,
    /// A call was told that an object is its own.
    pub(super) has_told: bool,
    turns: u64,
    pub(super) now: u64,
    /// The worker takes no calls any more.
    is_closed: bool,
}

/// See the module's page. Of one worker.
#[derive(Default, Debug)]
pub struct PendingCalls(RefCell<Inner>);

impl PendingCalls {
    /// Makes room for all there may be: once, when the first kind is opened.
    pub(super) fn make_room(&self) {
        let Ok(mut inner) = self.0.try_borrow_mut() else {
            return;
        };
        if !inner.slots.is_empty() {
            return;
        }
        let slot = || Slot {
            sequence: 0,
            state: State::Free,
        };
        inner.slots = core::iter::repeat_with(slot).take(SLOTS_MAX).collect();
        inner.free = (0..SLOTS_MAX as u16).rev().collect();
        inner.asked.reserve(ASKED_MAX);
        inner.deltas.make_room();
        inner.gets = core::iter::repeat_n(0, KINDS_MAX).collect();
    }

    /// Puts a call on the table of pending calls; the token of its answer, 0 where there will be
    /// none.
    pub(super) fn ask(&self, kind: u16, key: &[u8], what: What) -> Result<u64, Ended> {
        let key = Key::try_from(key).map_err(|_| Ended::KeyTooLong)?;
        let mut inner = self.0.try_borrow_mut().map_err(|_| Ended::Full)?;
        if inner.is_closed {
            return Err(Ended::Leaving);
        }
        // A read that is not to be stale comes behind the calls merged here.
        if let What::Read(_, 0) = what
            && let Some((call, calls)) = inner.deltas.take((kind, &key))
        {
            inner.push(0, kind, key.clone(), What::Merged(call, calls));
        }
        if inner.asked.len() >= ASKED_MAX {
            return Err(Ended::Full);
        }
        let token = match what {
            What::Send(_) | What::Merged(..) => 0,
            _ => inner.begin().ok_or(Ended::Full)?,
        };
        inner.push(token, kind, key, what);
        Ok(token)
    }

    /// Adds a call to the others of its key that have not gone, which go at most `within` later
    /// than the first of them.
    pub(super) fn merge(
        &self,
        (kind, key): (u16, &[u8]),
        call: Words,
        within: u64,
        fold: impl FnOnce(&mut Words) -> bool,
    ) -> Result<(), Ended> {
        let key = Key::try_from(key).map_err(|_| Ended::KeyTooLong)?;
        let mut inner = self.0.try_borrow_mut().map_err(|_| Ended::Full)?;
        if inner.is_closed {
            return Err(Ended::Leaving);
        }
        // A call in no delta has a place in the queue.
        if inner.asked.len() >= ASKED_MAX {
            return Err(Ended::Full);
        }
        let due = inner.now.saturating_add(within);
        if let Merged::Goes(call, calls) = inner.deltas.add((kind, &key), call, due, fold) {
            inner.push(0, kind, key, What::Merged(call, calls));
        }
        Ok(())
    }

    /// Takes an answer off the table of pending calls.
    pub(super) fn take(&self, token: u64) -> Option<Result<Words, Ended>> {
        let mut inner = self.0.try_borrow_mut().ok()?;
        let slot = inner.slot(token)?;
        match core::mem::replace(&mut slot.state, State::Free) {
            State::Answered(answer) => {
                inner.end(token);
                Some(answer)
            }
            other => {
                slot.state = other;
                None
            }
        }
    }

    /// The answer of this token is not awaited any more.
    pub(super) fn leave(&self, token: u64) {
        let Ok(mut inner) = self.0.try_borrow_mut() else {
            return;
        };
        let Some(slot) = inner.slot(token) else { return };
        match slot.state {
            State::Waits => slot.state = State::Left,
            State::Answered(_) => {
                slot.state = State::Free;
                inner.end(token);
            }
            State::Free | State::Left => {}
        }
    }

    /// How many turns the worker has had.
    pub(super) fn turns(&self) -> u64 {
        self.0.try_borrow().map_or(0, |inner| inner.turns)
    }

    /// An object for a call.
    pub(super) fn get<T>(&self, at: &At, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Got<T>, Ended> {
        let mut inner = self.0.try_borrow_mut().map_err(|_| Ended::Full)?;
        match (inner.is_closed, inner.asked.len() >= ASKED_MAX) {
            (true, _) => Err(Ended::Leaving),
            (_, true) => Err(Ended::Full),
            _ => inner.get(at, read),
        }
    }

    /// The object that a call was told to be its own.
    pub(super) fn collect<T>(
        &self,
        at: &At,
        token: u64,
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<(u64, T)> {
        self.0.try_borrow_mut().ok()?.collect(at, token, read)
    }

    /// A call that was told so, and has not collected, is no more.
    pub(super) fn abandon(&self, at: &At, token: u64) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.abandon(at, token);
        }
    }

    /// A call has done with an object of this loan; the token that is answered when its change
    /// survives a failure, if it waits for that.
    pub(super) fn put(
        &self,
        at: &At,
        number: u64,
        changed: Option<&[u8]>,
        is_awaited: bool,
    ) -> Result<Option<u64>, Ended> {
        let mut inner = self.0.try_borrow_mut().map_err(|_| Ended::Full)?;
        inner.put(at, number, changed, is_awaited)
    }

    /// For the worker: it has the object that a call waits for.
    pub fn lend(&self, kind: u16, key: &Key, bytes: &[u8], token: u64) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.lend((kind, key.clone()), bytes, token);
        }
    }

    /// For the worker: one more call waits for an object that was lent; `false` if it is not any
    /// more, or not for long.
    pub fn wait(&self, kind: u16, key: &Key, token: u64) -> bool {
        let inner = self.0.try_borrow_mut();
        inner.is_ok_and(|mut inner| inner.wait(&(kind, key.clone()), token))
    }

    /// For the worker: an object is to come back.
    pub fn recall(&self, kind: u16, key: &Key) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.recall(&(kind, key.clone()));
        }
    }

    /// For the worker: objects that were changed, or come back.
    pub fn next_put(&self) -> Option<Put> {
        self.0.try_borrow_mut().ok()?.next_put()
    }

    /// For the worker: another incarnation of it, to which nothing is lent.
    pub fn forget_lent(&self) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.forget_lent();
        }
    }

    /// For the worker: whether calls were told since that an object is theirs.
    pub fn has_told(&self) -> bool {
        let inner = self.0.try_borrow_mut();
        inner.is_ok_and(|mut inner| core::mem::take(&mut inner.has_told))
    }

    /// How often objects of a kind were wanted.
    pub fn gets(&self, kind: u16) -> u64 {
        let inner = self.0.try_borrow().ok();
        inner
            .and_then(|inner| inner.gets.get(usize::from(kind)).copied())
            .unwrap_or(0)
    }

    /// For the worker: it has a turn.
    pub fn turn(&self, now: u64) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.turns = inner.turns.wrapping_add(1);
            inner.now = now;
            inner.recall_unused();
        }
    }

    /// For the worker: takes calls, or none any more.
    pub fn open(&self, is_open: bool) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.is_closed = !is_open;
        }
    }

    /// For the worker: when merged calls are due, or objects that are not used are to come back.
    pub fn next_due(&self) -> Option<u64> {
        let inner = self.0.try_borrow().ok()?;
        let unused = (!inner.lent.is_empty()).then_some(inner.unused_at);
        inner.deltas.next_due().into_iter().chain(unused).min()
    }

    /// For the worker: merged calls that are due, or all. A delta that `send` does not take stays
    /// until `later`.
    pub fn close(
        &self,
        now: u64,
        is_all: bool,
        later: u64,
        send: impl FnMut(u16, &Key, &Words, u32) -> bool,
    ) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.deltas.close(now, is_all, later, send);
        }
    }

    /// For the worker: the next call, in order.
    pub fn next(&self) -> Option<Asked> {
        self.0.try_borrow_mut().ok()?.asked.pop_front()
    }

    /// For the worker: the answer of a token, or why there is none.
    pub fn answer(&self, token: u64, answer: Result<Words, Ended>) {
        let Ok(mut inner) = self.0.try_borrow_mut() else {
            return;
        };
        let Some(slot) = inner.slot(token) else { return };
        match slot.state {
            State::Waits => slot.state = State::Answered(answer),
            State::Left => {
                slot.state = State::Free;
                inner.end(token);
            }
            State::Free | State::Answered(_) => {}
        }
    }

    /// For the worker: whether a call waits ([`crate::cx::RawCx::waits_for`]) for an answer that is
    /// here.
    pub fn is_answered(&self, token: u64) -> bool {
        let Ok(mut inner) = self.0.try_borrow_mut() else {
            return false;
        };
        let slot = inner.slot(token);
        slot.is_some_and(|slot| matches!(slot.state, State::Answered(_)))
    }
}

impl Inner {
    pub(super) fn push(&mut self, token: u64, kind: u16, key: Key, what: What) {
        self.asked.push_back(Asked {
            token,
            kind,
            key,
            what,
        });
    }

    pub(super) fn begin(&mut self) -> Option<u64> {
        let place = self.free.pop()?;
        let slot = self.slots.get_mut(usize::from(place))?;
        slot.sequence = slot.sequence.wrapping_add(1) & ((MARK >> PLACE_BITS) - 1);
        slot.state = State::Waits;
        Some(MARK | slot.sequence << PLACE_BITS | u64::from(place))
    }

    /// The slot of a token, if it is that token's still.
    pub(super) fn slot(&mut self, token: u64) -> Option<&mut Slot> {
        let place = token & ((1 << PLACE_BITS) - 1);
        let slot = self.slots.get_mut(place as usize)?;
        let is_its = token & MARK != 0 && (token & !MARK) >> PLACE_BITS == slot.sequence;
        is_its.then_some(slot)
    }

    /// The slot is free; there is room in the list for each.
    pub(super) fn end(&mut self, token: u64) {
        self.free.push((token & ((1 << PLACE_BITS) - 1)) as u16);
    }
}
