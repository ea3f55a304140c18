//! A runtime's requests, and what it gets: references, answers, results that may be stale.

use super::inputs::{Ended, How, Output};
use super::members::{Key, Members};
use super::message::{Body, Gen, Image, Message, Op, Request};
use super::state::{Cached, Objects, Pending, Waiter};
use super::{Bug, has};

impl<B: Body> Objects<B> {
    /// A reference is wanted.
    pub(super) fn acquire(&mut self, now: u64, key: Key, token: u64, birth: Option<B>) {
        let max = self.settings.queue_max;
        if self.is_leaving() {
            return self.over(token, Ended::Leaving);
        }
        let Some(entry) = self.own_entry(key) else {
            return self.over(token, Ended::Full);
        };
        match &mut entry.object {
            Some(object) if object.leave.is_none() => {
                object.references = object.references.saturating_add(1);
                self.outputs.push_back(Output::Granted(key, token));
            }
            _ if entry.awaiting.waiters.len() >= max => self.over(token, Ended::Full),
            _ => {
                entry.awaiting.waiters.push_back(Waiter { token, birth });
                self.await_object(now, key);
            }
        }
    }

    /// Asks for the object that is waited for, unless it comes already.
    pub(super) fn await_object(&mut self, now: u64, key: Key) {
        if let Some(id) = self.begin_await(key) {
            self.send_pending(now, id);
        }
    }

    fn begin_await(&mut self, key: Key) -> Option<u64> {
        let entry = self.entries.get(&key)?;
        if entry.awaiting.is_any() || entry.awaiting.waiters.is_empty() {
            return None;
        }
        let birth = entry
            .awaiting
            .waiters
            .iter()
            .find_map(|waiter| waiter.birth.clone());
        let op = if birth.is_some() { Op::Create } else { Op::GetWrite };
        let id = self.begin(key, op, 0);
        match self.entries.get_mut(&key) {
            Some(entry) if id.is_some() => (entry.awaiting.request, entry.awaiting.birth) = (id, birth),
            _ => self.give_up(key, |_| true, Ended::Full),
        }
        id
    }

    /// A method that changes the object is called.
    pub(super) fn call(&mut self, now: u64, key: Key, call: B::Call, token: u64, how: How) {
        if self.is_leaving() {
            return self.over(token, Ended::Leaving);
        }
        if how == How::Merged && self.fold(now, &key, &call) {
            return;
        }
        let has_room = self.own_entry(key).is_some_and(|entry| !entry.calls.is_full());
        let begun = match has_room {
            true => self.begin(key, Op::Call(call), token),
            false => None,
        };
        let Some(id) = begun else {
            self.tidy(&key);
            return self.over(token, Ended::Full);
        };
        if let Some(entry) = self.entries.get_mut(&key) {
            let _ = entry.calls.try_push(id);
        }
        if how == How::Waits {
            return self.send_pending(now, id);
        }
        let due = now.saturating_add(self.settings.flush_ns);
        self.put_off_until(id, due);
    }

    /// Adds a change to one that is still here.
    fn fold(&mut self, now: u64, key: &Key, call: &B::Call) -> bool {
        let max = self.settings.folds_max;
        let Some(id) = self
            .entries
            .get(key)
            .and_then(|entry| entry.calls.last().copied())
        else {
            return false;
        };
        let Some(pending) = self.pending.get_mut(&id) else {
            return false;
        };
        let is_here = pending.due.is_some() && pending.sent_at == u64::MAX;
        let Op::Call(earlier) = &mut pending.op else {
            return false;
        };
        if !is_here || !B::fold(earlier, call) {
            return false;
        }
        pending.folds += 1;
        if pending.folds >= max {
            self.send_pending(now, id);
        }
        true
    }

    /// A method that changes nothing is called.
    pub(super) fn read(&mut self, now: u64, key: Key, call: B::Call, token: u64, bound: u64) {
        if let Some(cached) = self.cache.get(&key).filter(|cached| cached.call == call)
            && now < cached.sent_at.saturating_add(bound)
        {
            let answer = Some(cached.answer.clone());
            return self.outputs.push_back(Output::Answered(token, answer));
        }
        if self.is_leaving() {
            return self.over(token, Ended::Leaving);
        }
        let Some(id) = self.begin(key, Op::Read(call), token) else {
            return self.over(token, Ended::Full);
        };
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.is_kept = bound > 0;
        }
        self.send_pending(now, id);
    }

    /// The object is to end.
    pub(super) fn remove(&mut self, now: u64, key: Key, token: u64) {
        if self.is_leaving() {
            return self.over(token, Ended::Leaving);
        }
        match self.begin(key, Op::Remove, token) {
            Some(id) => self.send_pending(now, id),
            None => self.over(token, Ended::Full),
        }
    }

    fn over(&mut self, token: u64, how: Ended) {
        self.outputs.push_back(Output::Ended(token, how));
    }

    fn begin(&mut self, key: Key, op: Op<B>, token: u64) -> Option<u64> {
        if self.pending.len() >= self.settings.requests_max {
            self.stats.full += 1;
            return None;
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let pending = Pending {
            key,
            op,
            token,
            due: None,
            sent_at: u64::MAX,
            is_kept: false,
            folds: 0,
        };
        self.pending.insert(id, pending);
        Some(id)
    }

    fn put_off_until(&mut self, id: u64, due: u64) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.due = Some(due);
            self.wake(due);
        }
    }

    /// Sends an operation; to the object itself if that is here. After a failure view it waits
    /// until this runtime serves.
    pub(super) fn send_pending(&mut self, now: u64, id: u64) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        pending.due = None;
        let key = pending.key;
        let op = pending.op.clone();
        let object = self.entries.get(&key).and_then(|entry| entry.object.as_ref());
        let is_method = matches!(op, Op::Read(_) | Op::Call(_));
        let is_here = is_method && object.is_some_and(|object| object.leave.is_none());
        if self.recovery.is_some() && !is_here {
            return;
        }
        pending.sent_at = pending.sent_at.min(now);
        let lowest = self.entries.get(&key).and_then(|entry| entry.calls.first());
        let request = Request {
            key,
            caller: self.me,
            id,
            answered_below: lowest.copied().unwrap_or(id),
            forwards: 0,
            relinquished: 0,
            op,
        };
        match is_here {
            true => self.serve_here(request),
            false => self.ask(request),
        }
    }

    /// Sends the requests that are due.
    pub(super) fn send_due(&mut self, now: u64) {
        if self.recovery.is_some() {
            return;
        }
        self.send_those(now, |pending| pending.due.is_some_and(|due| due <= now));
        let next = self.pending.values().filter_map(|pending| pending.due).min();
        if let Some(next) = next {
            self.wake(next);
        }
    }

    /// Sends everything that was buffered: this runtime leaves.
    pub(super) fn send_buffered(&mut self, now: u64) {
        self.send_those(now, |pending| pending.due.is_some());
    }

    fn send_those(&mut self, now: u64, is_it: impl Fn(&Pending<B>) -> bool) {
        let mut after = 0;
        while let Some(id) = self.first_pending(after, &is_it) {
            self.send_pending(now, id);
            after = id.saturating_add(1);
        }
    }

    fn first_pending(&self, from: u64, is_it: impl Fn(&Pending<B>) -> bool) -> Option<u64> {
        let mut all = self.pending.range(from..);
        all.find(|(_, pending)| is_it(pending)).map(|(id, _)| *id)
    }

    /// Sends every unanswered operation again, with its number.
    pub(super) fn resubmit(&mut self, now: u64) {
        self.send_those(now, |pending| pending.due.is_none());
        let mut from = None;
        while let Some(key) = self.key_after(from) {
            self.await_object(now, key);
            from = Some(key);
        }
        self.send_due(now);
    }

    /// The object comes.
    pub(super) fn on_object(&mut self, key: Key, request: u64, image: Image<B>, copies: Members) {
        let is_recovering = self.recovery.is_some();
        let Some(entry) = self.entries.get_mut(&key) else {
            return self.absorb(key, image, copies);
        };
        let is_asked = match request {
            0 => entry.awaiting.adoption || is_recovering,
            id => entry.awaiting.request == Some(id) || is_recovering,
        };
        let is_later = |object: &super::state::Object<B>| object.image.rank(true) >= image.rank(true);
        if !is_asked || entry.object.as_ref().is_some_and(is_later) {
            return self.refuse();
        }
        match request {
            0 => entry.awaiting.adoption = false,
            id => {
                if entry.awaiting.request.take_if(|asked| *asked == id).is_some() {
                    entry.awaiting.birth = None;
                }
                self.pending.remove(&id);
            }
        }
        self.install(key, image, copies);
        self.serve_waiters(key);
    }

    /// An object of which nothing is known: after a failure view it may be one whose recall was
    /// forgotten.
    fn absorb(&mut self, key: Key, image: Image<B>, copies: Members) {
        match self.recovery.is_some() {
            true => self.install(key, image, copies),
            false => self.refuse(),
        }
    }

    /// The object is born here.
    pub(super) fn on_created(&mut self, key: Key, id: u64, generation: Gen) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return self.refuse();
        };
        let is_asked = entry.awaiting.request == Some(id) && entry.object.is_none();
        match entry.awaiting.birth.take_if(|_| is_asked) {
            Some(body) => {
                entry.awaiting.request = None;
                self.pending.remove(&id);
                self.install(key, Image::born(generation, body), Members::NONE);
                self.serve_waiters(key);
            }
            None => self.refuse(),
        }
    }

    /// This runtime has the latest lease: the object is here, or was, or comes by an adoption.
    pub(super) fn on_yours(&mut self, now: u64, key: Key, id: u64) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return self.refuse();
        };
        if entry.awaiting.request != Some(id) {
            return self.refuse();
        }
        (entry.awaiting.request, entry.awaiting.birth) = (None, None);
        self.pending.remove(&id);
        let is_here = entry.object.as_ref().is_some_and(|object| object.leave.is_none());
        match is_here {
            true => self.serve_waiters(key),
            false if has(Bug::YoursIsTrusted) => {}
            // A recall of the next key owner was faster: it went again. It is asked for later, so
            // that no wrong record makes a circle.
            false => {
                let due = now.saturating_add(self.settings.retry_ns);
                if let Some(id) = self.begin_await(key) {
                    self.put_off_until(id, due);
                }
            }
        }
    }

    /// The object is here: waiters get references, then parked messages are handled.
    fn serve_waiters(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(object) = &mut entry.object else { return };
        for waiter in entry.awaiting.waiters.drain(..) {
            object.references = object.references.saturating_add(1);
            self.outputs.push_back(Output::Granted(key, waiter.token));
        }
        if !has(Bug::ForgetsParked) {
            self.local.extend(entry.parked.drain(..));
        }
    }

    /// There is no object.
    pub(super) fn on_absent(&mut self, now: u64, key: Key, id: u64) {
        let is_it = |pending: &Pending<B>| pending.key == key && pending.op != Op::Create;
        if !self.pending.get(&id).is_some_and(is_it) {
            return self.discard();
        }
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        if pending.op != Op::GetWrite {
            self.note_answered(key, id);
            return self.over(pending.token, Ended::Absent);
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.awaiting.request = None;
        let parked = core::mem::take(&mut entry.parked);
        for message in parked {
            match message {
                Message::Forward(request) => self.ask(request),
                other => self.local.push_back(other),
            }
        }
        self.give_up(key, |waiter| waiter.birth.is_none(), Ended::Absent);
        self.await_object(now, key);
        self.tidy(&key);
    }

    fn give_up(&mut self, key: Key, is_it: impl Fn(&Waiter<B>) -> bool, how: Ended) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.awaiting.waiters.retain(|waiter| {
            let is_over = is_it(waiter);
            if is_over {
                self.outputs.push_back(Output::Ended(waiter.token, how));
            }
            !is_over
        });
    }

    /// A read or a call is answered.
    pub(super) fn on_result(&mut self, key: Key, id: u64, answer: Option<B::Answer>) {
        let is_it =
            |pending: &Pending<B>| pending.key == key && matches!(pending.op, Op::Read(_) | Op::Call(_));
        if !self.pending.get(&id).is_some_and(is_it) {
            return self.discard();
        }
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        self.note_answered(key, id);
        if let (true, Op::Read(call), Some(answer)) = (pending.is_kept, pending.op, &answer) {
            let sent_at = pending.sent_at;
            self.keep_result(key, call, answer.clone(), sent_at);
        }
        self.outputs.push_back(Output::Answered(pending.token, answer));
    }

    fn keep_result(&mut self, key: Key, call: B::Call, answer: B::Answer, sent_at: u64) {
        if self.cache.len() >= self.settings.cache_max && !self.cache.contains_key(&key) {
            self.cache.pop_first();
        }
        let result = Cached {
            call,
            answer,
            sent_at,
        };
        self.cache.insert(key, result);
    }

    /// The object is removed.
    pub(super) fn on_removed(&mut self, key: Key, id: u64) {
        let is_it = |pending: &Pending<B>| pending.key == key && pending.op == Op::Remove;
        match self.pending.get(&id).filter(|pending| is_it(pending)) {
            Some(pending) => {
                let token = pending.token;
                self.pending.remove(&id);
                self.over(token, Ended::Removed);
            }
            None => self.discard(),
        }
    }

    /// The request could not be served: it is sent again, later.
    pub(super) fn on_retry(&mut self, now: u64, key: Key, id: u64) {
        self.stats.retries += 1;
        let due = now.saturating_add(self.settings.retry_ns);
        match self.pending.get(&id).is_some_and(|pending| pending.key == key) {
            true => self.put_off_until(id, due),
            false => self.discard(),
        }
    }

    /// A call is answered: its number will not be sent again.
    fn note_answered(&mut self, key: Key, id: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.calls.retain(|call| *call != id);
            self.tidy(&key);
        }
    }

    /// An answer to a request that was answered before: it was sent again after a failure view.
    pub(super) fn discard(&mut self) {
        self.stats.discarded += 1;
    }
}
