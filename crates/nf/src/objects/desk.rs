//! Calls on their way from functions to their worker, and answers on the way back.
//!
//! ```text
//!   ask ─► Asked, in order ─► next (the worker)
//!    └ token ─► slot: waits ─► answer ─► answered ─► take: free
//!                       └ leave: left ─► answer: free
//! ```

use super::{KEY_MAX, Words};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;

/// The most calls whose answers are awaited at a worker, those that were left among them.
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

/// What is asked of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A call that changes it, with an answer.
    Update(Words),
    /// The same without.
    Send(Words),
    /// A call that changes nothing; an answer that was asked for so many nanoseconds ago will do.
    Read(Words, u64),
    /// Its end.
    Remove,
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
enum State {
    Free,
    Waits,
    Answered(Result<Words, Ended>),
    Left,
}

#[derive(Debug)]
struct Slot {
    sequence: u64,
    state: State,
}

#[derive(Default, Debug)]
struct Inner {
    slots: Vec<Slot>,
    free: Vec<u16>,
    asked: VecDeque<Asked>,
    turns: u64,
}

/// See the module's page. Of one worker.
#[derive(Default, Debug)]
pub struct Desk(RefCell<Inner>);

impl Desk {
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
    }

    /// Puts a call on the desk; the token of its answer, 0 where there will be none.
    pub(super) fn ask(&self, kind: u16, key: &[u8], what: What) -> Result<u64, Ended> {
        let key = Key::try_from(key).map_err(|_| Ended::KeyTooLong)?;
        let mut inner = self.0.try_borrow_mut().map_err(|_| Ended::Full)?;
        if inner.asked.len() >= ASKED_MAX {
            return Err(Ended::Full);
        }
        let token = match what {
            What::Send(_) => 0,
            _ => inner.begin().ok_or(Ended::Full)?,
        };
        inner.asked.push_back(Asked {
            token,
            kind,
            key,
            what,
        });
        Ok(token)
    }

    /// Takes an answer off the desk.
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

    /// For the worker: it has a turn.
    pub fn turn(&self) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.turns = inner.turns.wrapping_add(1);
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

    /// For the worker: whether what a call waits for ([`crate::cx::RawCx::waits_for`]) is an answer
    /// that is here.
    pub fn is_answered(&self, token: u64) -> bool {
        let Ok(mut inner) = self.0.try_borrow_mut() else {
            return false;
        };
        let slot = inner.slot(token);
        slot.is_some_and(|slot| matches!(slot.state, State::Answered(_)))
    }
}

impl Inner {
    fn begin(&mut self) -> Option<u64> {
        let place = self.free.pop()?;
        let slot = self.slots.get_mut(usize::from(place))?;
        slot.sequence = slot.sequence.wrapping_add(1) & ((MARK >> PLACE_BITS) - 1);
        slot.state = State::Waits;
        Some(MARK | slot.sequence << PLACE_BITS | u64::from(place))
    }

    /// The slot of a token, if it is that token's still.
    fn slot(&mut self, token: u64) -> Option<&mut Slot> {
        let place = token & ((1 << PLACE_BITS) - 1);
        let slot = self.slots.get_mut(place as usize)?;
        let is_its = token & MARK != 0 && (token & !MARK) >> PLACE_BITS == slot.sequence;
        is_its.then_some(slot)
    }

    /// The slot is free; there is room in the list for each.
    fn end(&mut self, token: u64) {
        self.free.push((token & ((1 << PLACE_BITS) - 1)) as u16);
    }
}
