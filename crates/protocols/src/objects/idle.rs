//! Objects that were not used for their kind's time end.
//!
//! ```text
//!   holder H                                    key owner K
//!   not used, no reference, all is copied
//!   leave = Idle ── Expire{gen, lease} ────────► this lease is the latest, and nothing removes it: removing
//!   calls that come are parked  ◄── Kill ─────── later requests wait for the end
//!   copies dropped ── Gone ────────────────────► the record goes, and waiting requests find no object
//!   parked calls ── again ─────────────────────► behind it
//! ```
//!
//! A lease that is not the latest: a recall is on its way, and the object goes on at its next
//! holder. So an update that was acknowledged after the holder had asked is in no object that ends
//! (`tests::explore`, `Do::Expire`).
//!
//! Not here: how long (the driver says it by kind); a reference that the driver has keeps an
//! object.

use super::members::Key;
use super::message::{Body, Message, Op, Request};
use super::state::{Leave, Objects};
use super::{Bug, has};
use alloc::vec::Vec;

/// All objects are looked at within so many steps, each an eighth of the shortest time behind the
/// one before.
const STEPS: u64 = 8;
/// Keys that a step looks at, besides its share of them.
const STEP_MIN: usize = 64;

/// How long objects live without use.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Idle {
    /// By kind, in nanoseconds; 0: for ever.
    of: Vec<u64>,
    /// When the next step is due; `None`: nothing is here that could end.
    due: Option<u64>,
    /// The key that was looked at last.
    cursor: Option<Key>,
}

impl Idle {
    fn step_ns(&self) -> Option<u64> {
        let shortest = self.of.iter().copied().filter(|ns| *ns > 0).min();
        shortest.map(|ns| (ns / STEPS).max(1))
    }
}

impl<B: Body> Objects<B> {
    /// Objects of these kinds end when they were not used for so many nanoseconds; 0: for ever. A
    /// kind's number is its place.
    #[must_use]
    pub fn with_idle(mut self, idle: Vec<u64>) -> Self {
        self.idle.of = idle;
        self
    }

    /// An object is used.
    pub(super) fn touch(&mut self, key: &Key) {
        let now = self.now;
        let Some(step) = self.idle.step_ns() else { return };
        let entry = self.entries.get_mut(key);
        if let Some(object) = entry.and_then(|entry| entry.object.as_mut()) {
            object.used_at = now;
            let due = *self.idle.due.get_or_insert(now.saturating_add(step));
            self.wake(due);
        }
    }

    /// A step of the look at all objects.
    pub(super) fn look_for_idle(&mut self, now: u64) {
        let (Some(due), Some(step)) = (self.idle.due, self.idle.step_ns()) else {
            return;
        };
        if now < due {
            return self.wake(due);
        }
        let count = self.entries.len() / STEPS as usize + STEP_MIN;
        for _ in 0..count {
            self.idle.cursor = self.key_after(self.idle.cursor);
            let Some(key) = self.idle.cursor else { break };
            let incarnation = self.idle.of.get(usize::from(key.kind())).copied();
            let entry = self.entries.get(&key);
            let used_at = entry.and_then(|entry| Some(entry.object.as_ref()?.used_at));
            if let (Some(incarnation @ 1..), Some(used_at)) = (incarnation, used_at)
                && used_at.saturating_add(incarnation) <= now
            {
                self.expire(key);
            }
        }
        self.idle.due = (!self.entries.is_empty()).then(|| now.saturating_add(step));
        if let Some(due) = self.idle.due {
            self.wake(due);
        }
    }

    /// Asks for the end of an object that is here, without a reference, and copied.
    pub(super) fn expire(&mut self, key: Key) {
        if self.recovery.is_some() {
            return;
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let waits = entry.awaiting.is_any() || !entry.awaiting.waiters.is_empty();
        let Some(object) = entry.object.as_mut().filter(|_| !waits) else {
            return;
        };
        let is_free = object.leave.is_none() && !object.is_offered && object.references == 0;
        if !is_free || !object.has_all_copied() || !object.replies.is_empty() {
            return;
        }
        object.leave = Some(Leave::Idle);
        let (generation, lease) = (object.image.generation, object.image.lease);
        self.ask(Request {
            key,
            caller: self.me,
            id: 0,
            answered_below: 0,
            forwards: 0,
            relinquished: 0,
            op: Op::Expire(generation, lease),
        });
    }

    /// Messages that came for an object while its end was asked for go to the key owner again.
    pub(super) fn ask_parked(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let parked = core::mem::take(&mut entry.parked);
        if has(Bug::IdleForgets) {
            return;
        }
        for message in parked {
            match message {
                Message::Forward(request) => self.ask(request),
                other => self.local.push_back(other),
            }
        }
    }
}
