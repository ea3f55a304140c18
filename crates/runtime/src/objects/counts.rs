//! Figures of shared objects, by kind.

use super::content::{Content, Kinds};
use crate::stats::ObjectStats;
use alloc::vec::Vec;
use nf::objects::{PendingCalls, What};
use protocols::objects::{Caller, Message, Objects};

/// The place of [`What::Get`] in [`ObjectStats::HOW`].
const GET: usize = 3;

/// Figures that only grow; a place for each kind.
#[derive(Clone)]
pub(super) struct Counts(Vec<ObjectStats>);

impl Counts {
    pub fn new(kinds: usize) -> Self {
        let counts = core::iter::repeat_with(ObjectStats::default);
        Counts(counts.take(kinds).collect())
    }

    /// A function has made a call.
    pub fn call(&mut self, kind: u16, what: &What) {
        let (how, calls) = match what {
            What::Update(_) => (0, 1),
            What::Send(_) => (1, 1),
            What::Merged(_, calls) => (2, u64::from(*calls)),
            // The table of pending calls counts those.
            What::Get => return,
            What::Read(..) => (4, 1),
            What::Remove => (5, 1),
        };
        let count = self.of(kind).and_then(|of| of.calls.get_mut(how));
        if let Some(count) = count {
            *count += calls;
        }
    }

    /// A call ended without an answer.
    pub fn fail(&mut self, kind: u16) {
        if let Some(of) = self.of(kind) {
            of.failed += 1;
        }
    }

    /// A message of so many bytes goes to another runtime.
    pub fn sent(&mut self, me: Caller, message: &Message<Content>, bytes: usize) {
        let Some(of) = message.key().and_then(|key| self.of(key.kind())) else {
            return;
        };
        of.sent_bytes += bytes as u64;
        match message {
            Message::Forward(request) | Message::Request(request) if request.caller == me => {
                of.remote += 1;
            }
            Message::Forward(_) | Message::Request(_) => of.forwards += 1,
            Message::Object(..) => of.moves += 1,
            Message::Copy(..) => of.copied += 1,
            _ => {}
        }
    }

    pub fn calls(&self) -> u64 {
        self.0.iter().map(ObjectStats::calls).sum()
    }

    pub fn failed(&self) -> u64 {
        self.0.iter().map(|of| of.failed).sum()
    }

    /// With the present numbers.
    pub fn stats(
        &self,
        kinds: &Kinds,
        machine: &Objects<Content>,
        pending_calls: &PendingCalls,
    ) -> Vec<ObjectStats> {
        let mut all = self.0.clone();
        for ((of, kind), number) in all.iter_mut().zip(kinds.iter()).zip(0..) {
            (of.function, of.kind) = (kind.function.clone(), kind.name.clone());
            if let Some(count) = of.calls.get_mut(GET) {
                *count = pending_calls.gets(number);
            }
        }
        for (key, object, copy) in machine.contents() {
            let Some(of) = all.get_mut(usize::from(key.kind())) else {
                continue;
            };
            of.objects += u64::from(object.is_some());
            of.copies += u64::from(copy.is_some());
            let bytes = object.into_iter().chain(copy).map(Content::len);
            of.bytes += bytes.sum::<usize>() as u64;
        }
        all
    }

    fn of(&mut self, kind: u16) -> Option<&mut ObjectStats> {
        self.0.get_mut(usize::from(kind))
    }
}
