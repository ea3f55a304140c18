//! The key layer: which runtime serves a key, and how its owner handles a request.

use super::inputs::Phase;
use super::members::Key;
use super::message::{Body, Gen, Message, Op, Record, Request};
use super::state::Objects;
use super::{Bug, FORWARDS_MAX, has};
use crate::ownership::RuntimeId;

/// Where a request is to go.
enum Place {
    Here,
    There(RuntimeId),
    /// To the next owner, with authority over the key: after the record, if there is one.
    Relinquished(RuntimeId),
}

impl<B: Body> Objects<B> {
    /// A request comes, or is begun here: it is served, or sent on.
    pub(super) fn on_request(&mut self, mut request: Request<B>) {
        let max = self.settings.queue_max;
        if let Some(recovery) = &mut self.recovery {
            match recovery.delayed.len() < max {
                true => recovery.delayed.push_back(request),
                false => self.put_off(&request),
            }
            return;
        }
        match self.place(&request) {
            Some(Place::Here) => self.serve(request),
            Some(Place::There(to)) => {
                request.relinquished = 0;
                self.send_on(to, request);
            }
            Some(Place::Relinquished(to)) => {
                if !has(Bug::RelinquishesFirst) {
                    self.grant(request.key);
                }
                request.relinquished = self.stage.view.wrapping_add(1);
                if has(Bug::RelinquishesFirst) {
                    self.send_on(to, request.clone());
                    return self.grant(request.key);
                }
                self.send_on(to, request);
            }
            None => self.refuse(),
        }
    }

    /// Rules K1 to K3.
    fn place(&self, request: &Request<B>) -> Option<Place> {
        let (me, seed, key) = (self.me.runtime, self.settings.seed, &request.key);
        let (a, b) = (self.members.first(key, seed)?, self.next.first(key, seed)?);
        let is_relinquished = request.relinquished == self.stage.view.wrapping_add(1);
        let has_record = self.record(key).is_some();
        Some(match self.stage.phase {
            _ if me == a && a == b => Place::Here,
            Phase::Normal if me == a => Place::Here,
            Phase::Prepared if me == a && !has(Bug::PreparedStops) => Place::Here,
            Phase::Prepared if me == a => Place::There(b),
            Phase::Prepared if me == b && (has_record || is_relinquished) && !has(Bug::PreparedWaits) => {
                Place::Here
            }
            Phase::Prepared if me == b && has(Bug::PreparedServes) => Place::Here,
            Phase::Normal | Phase::Prepared => Place::There(a),
            Phase::Scaling if me == a && has(Bug::ScalingServes) => Place::Here,
            Phase::Scaling if me == a => Place::Relinquished(b),
            Phase::Scaling
                if me == b
                    && (has_record || is_relinquished || self.swept.has(a) || has(Bug::ScalingTakes)) =>
            {
                Place::Here
            }
            Phase::Scaling if me == b => Place::There(a),
            Phase::Scaling if has(Bug::AllRelinquish) => Place::Relinquished(b),
            Phase::Scaling => Place::There(b),
        })
    }

    fn send_on(&mut self, to: RuntimeId, mut request: Request<B>) {
        let is_bound = matches!(request.op, Op::Gone(_) | Op::Offer(_) | Op::Expire(..));
        if request.forwards >= FORWARDS_MAX && !is_bound {
            return self.put_off(&request);
        }
        request.forwards = request.forwards.saturating_add(1);
        self.send(to, Message::Request(request));
    }

    /// The requester is to ask again.
    fn put_off(&mut self, request: &Request<B>) {
        if request.id != 0 {
            self.send(request.caller.runtime, Message::Retry(request.key, request.id));
        }
    }

    /// The record goes to the next owner of its key, and requests that wait for the object's end go
    /// behind it.
    pub(super) fn grant(&mut self, key: Key) {
        let Some(to) = self.next.first(&key, self.settings.seed) else {
            return;
        };
        let view = self.stage.view.wrapping_add(1);
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(record) = entry.record.take() else {
            return;
        };
        let queue = core::mem::take(&mut entry.queue);
        self.send(to, Message::Grant(view, key, record));
        for mut request in queue {
            request.relinquished = view;
            self.send_on(to, request);
        }
        self.tidy(&key);
    }

    /// A record comes.
    pub(super) fn on_grant(&mut self, view: u32, key: Key, record: Record) {
        let is_next = view == self.stage.view.wrapping_add(1) && self.stage.phase != Phase::Normal;
        let is_mine = self.next.first(&key, self.settings.seed) == Some(self.me.runtime);
        if !is_next || !is_mine || self.recovery.is_some() {
            return self.refuse();
        }
        match self.entry(key) {
            Some(entry) if entry.record.is_none() => entry.record = Some(record),
            _ => self.refuse(),
        }
    }

    fn serve(&mut self, request: Request<B>) {
        let Request { key, id, .. } = request;
        let origin = request.caller.runtime;
        let Some(record) = self.record(&key).copied() else {
            return match request.op {
                Op::Create => self.create(key, origin, id),
                Op::Gone(_) | Op::Offer(_) | Op::Expire(..) => {}
                _ => self.send(origin, Message::Absent(key, id)),
            };
        };
        match request.op {
            Op::Gone(generation) => self.on_gone(key, record, generation),
            Op::Offer(generation) => self.adopt(key, record, generation, origin),
            Op::Expire(generation, lease) => {
                let is_it = (record.generation, record.lease, record.tail) == (generation, lease, origin);
                if (is_it || has(Bug::IdleUnchecked)) && record.removing.is_none() {
                    self.kill(key, record, (origin, 0));
                }
            }
            _ if record.removing.is_some() && !has(Bug::ServesRemoving) => self.queue_up(request),
            Op::Create | Op::GetWrite if record.tail == origin => {
                self.send(origin, Message::Yours(key, id));
            }
            Op::Create | Op::GetWrite => self.hand_over(key, record, origin, id),
            // The tail sends on what it has not got: to here again, if the record is wrong.
            Op::Read(_) | Op::Call(_) if request.forwards >= FORWARDS_MAX => self.put_off(&request),
            Op::Read(_) | Op::Call(_) => {
                let mut request = request;
                request.forwards = request.forwards.saturating_add(1);
                self.send(record.tail, Message::Forward(request));
            }
            Op::Remove => self.kill(key, record, (origin, id)),
        }
    }

    /// The latest holder is told to end the object; `removing` is told when it has.
    fn kill(&mut self, key: Key, record: Record, removing: (RuntimeId, u64)) {
        self.send(record.tail, Message::Kill(key, record.generation, record.lease));
        self.keep_record(
            key,
            Record {
                removing: Some(removing),
                ..record
            },
        );
    }

    fn create(&mut self, key: Key, origin: RuntimeId, id: u64) {
        let generation = Gen {
            view: self.view_of(&key),
            count: self.next_gen.wrapping_add(1),
            owner: self.me.runtime,
        };
        let Some(entry) = self.own_entry(key) else {
            // Room comes when other objects end.
            return self.send(origin, Message::Retry(key, id));
        };
        entry.record = Some(Record {
            generation,
            lease: 1,
            tail: origin,
            removing: None,
        });
        self.next_gen = generation.count;
        self.send(origin, Message::Created(key, id, generation));
    }

    /// The view as whose key owner this runtime serves: the next owner's objects come after those
    /// of the owner before it.
    fn view_of(&self, key: &Key) -> u32 {
        let is_first = self.members.first(key, self.settings.seed) == Some(self.me.runtime);
        match self.stage.phase {
            _ if has(Bug::OldViewsObjects) => self.stage.view,
            Phase::Normal => self.stage.view,
            Phase::Prepared if is_first => self.stage.view,
            Phase::Prepared | Phase::Scaling => self.stage.view.wrapping_add(1),
        }
    }

    /// The holder is told to which runtime the object goes next: the lease is the ticket.
    fn hand_over(&mut self, key: Key, record: Record, to: RuntimeId, request: u64) {
        let Record {
            generation,
            lease,
            tail,
            ..
        } = record;
        self.send(tail, Message::Recall(key, generation, lease, to, request));
        self.keep_record(
            key,
            Record {
                lease: lease.wrapping_add(1),
                tail: if has(Bug::TailStands) { tail } else { to },
                ..record
            },
        );
    }

    /// A holder that leaves has the object: this runtime takes it.
    fn adopt(&mut self, key: Key, record: Record, generation: Gen, holder: RuntimeId) {
        let me = self.me.runtime;
        let is_it = record.tail == holder && record.generation == generation && holder != me;
        if is_it && record.removing.is_none() {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.awaiting.adoption = !has(Bug::AdoptsUnawaited);
            }
            self.hand_over(key, record, me, 0);
        }
    }

    fn queue_up(&mut self, request: Request<B>) {
        let max = self.settings.queue_max;
        match self.entries.get_mut(&request.key) {
            Some(entry) if entry.queue.len() < max => entry.queue.push_back(request),
            _ => self.put_off(&request),
        }
    }

    /// The object is no more: its record goes, and requests that waited for that are served.
    fn on_gone(&mut self, key: Key, record: Record, generation: Gen) {
        let Some((origin, id)) = record.removing.filter(|_| record.generation == generation) else {
            return self.refuse();
        };
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.record = None;
        let queue = core::mem::take(&mut entry.queue);
        if id != 0 {
            self.send(origin, Message::Removed(key, id));
        }
        self.local.extend(queue.into_iter().map(Message::Request));
        self.tidy(&key);
    }

    fn keep_record(&mut self, key: Key, record: Record) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.record = Some(record);
        }
    }
}
