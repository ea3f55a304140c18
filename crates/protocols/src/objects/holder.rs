//! The object layer: a holder with its object, and a copy holder with its copy.

use super::applied::Novelty;
use super::inputs::{Output, Phase};
use super::members::{Key, Members};
use super::message::{Body, Gen, Image, Message, Op, Request};
use super::state::{Leave, Object, Objects, Reply, Target};
use super::{Bug, has};
use crate::ownership::RuntimeId;

/// The token of a change of which nothing is to be said.
pub const UNANSWERED: u64 = u64::MAX;

impl<B: Body> Objects<B> {
    /// The object is here now, from another holder, by birth or from a copy.
    pub(super) fn install(&mut self, key: Key, image: Image<B>, copies: Members) {
        let (me, everyone) = (self.me.runtime, self.everyone());
        let mut object = Object::new(image, copies.and(everyone).without(me));
        object.image.applied.retain(|caller| everyone.has(caller.runtime));
        if let Some(entry) = self.entry(key) {
            entry.copy = None;
            entry.object = Some(object);
            self.touch(&key);
            self.retarget(key);
        }
    }

    /// A recall: it is obeyed when it can be, or waits for the object of its lease.
    pub(super) fn on_recall(&mut self, key: Key, generation: Gen, lease: u64, leave: Leave) {
        let max = self.settings.queue_max;
        let Some(entry) = self.entries.get_mut(&key) else {
            return self.refuse();
        };
        match &mut entry.object {
            Some(object) if (object.image.generation, object.image.lease) == (generation, lease) => {
                let was_idle = object.leave == Some(Leave::Idle);
                object.leave = Some(leave);
                if object.references > 0 && !has(Bug::RecallsUnsaid) {
                    self.outputs.push_back(Output::Recalled(key));
                }
                if was_idle && leave != Leave::End {
                    self.ask_parked(key);
                }
                self.copy_out(key);
            }
            _ if entry.awaiting.is_any() && entry.parked.len() < max => {
                entry.parked.push_back(match leave {
                    Leave::To(to, request) => Message::Recall(key, generation, lease, to, request),
                    Leave::End | Leave::Idle => Message::Kill(key, generation, lease),
                });
            }
            _ => self.refuse(),
        }
    }

    /// A read or a call, from the key owner.
    pub(super) fn on_forward(&mut self, request: Request<B>) {
        let max = self.settings.queue_max;
        let entry = self.entries.get_mut(&request.key);
        match entry {
            Some(entry) if entry.object.as_ref().is_some_and(|object| object.leave.is_none()) => {
                self.serve_here(request);
            }
            Some(entry)
                if entry.parked.len() < max
                    && entry
                        .object
                        .as_ref()
                        .is_some_and(|object| object.leave == Some(Leave::Idle)) =>
            {
                match has(Bug::IdleServes) {
                    true => self.serve_here(request),
                    false => entry.parked.push_back(Message::Forward(request)),
                }
            }
            Some(entry) if entry.awaiting.is_any() && entry.parked.len() < max => {
                entry.parked.push_back(Message::Forward(request));
            }
            _ => self.ask(request),
        }
    }

    /// A read or a call on the object that is here.
    pub(super) fn serve_here(&mut self, request: Request<B>) {
        let max = self.settings.queue_max;
        let Request {
            key,
            caller,
            id,
            answered_below,
            ..
        } = request;
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        if object.replies.len() >= max {
            return self.send(caller.runtime, Message::Retry(key, id));
        }
        let answer = match &request.op {
            Op::Read(call) => Some(object.image.body.read(call)),
            Op::Call(call) => match object.image.applied.add(caller, id, answered_below) {
                Novelty::Repeated if !has(Bug::AppliesAgain) => None,
                Novelty::Refused => return self.refuse(),
                _ => {
                    object.image.version = object.image.version.wrapping_add(1);
                    Some(object.image.body.apply(call))
                }
            },
            _ => return self.refuse(),
        };
        let version = object.image.version;
        object
            .replies
            .push_back((version, Reply::Result(caller.runtime, id, answer)));
        self.touch(&key);
        self.copy_out(key);
    }

    /// The driver gives a reference back; with a token, after a change.
    pub(super) fn on_release(&mut self, key: Key, changed: Option<u64>) {
        let Some(object) = self.object_mut(&key) else {
            return self.refuse();
        };
        object.references = object.references.saturating_sub(1);
        match changed {
            Some(token) => self.on_changed(key, token),
            None => {
                self.touch(&key);
                self.copy_out(key);
            }
        }
    }

    /// The content was changed by a reference.
    pub(super) fn on_changed(&mut self, key: Key, token: u64) {
        let Some(object) = self.object_mut(&key) else {
            return self.refuse();
        };
        object.image.version = object.image.version.wrapping_add(1);
        if token != UNANSWERED {
            let version = object.image.version;
            object.replies.push_back((version, Reply::Written(token)));
        }
        self.touch(&key);
        self.copy_out(key);
    }

    /// Sends what is to be copied, says what is copied, and gives the object up if it is to be and
    /// can be.
    pub(super) fn copy_out(&mut self, key: Key) {
        self.send_copies(key);
        self.say_copied(key);
        self.drop_superfluous(key);
        self.try_leave(key);
    }

    /// Chooses which runtimes are to have a copy. Runtimes that have one of this lease keep it.
    pub(super) fn retarget(&mut self, key: Key) {
        let (me, seed, copies) = (self.me.runtime, self.settings.seed, self.settings.copies);
        let members = match self.stage.phase {
            Phase::Scaling => self.next,
            Phase::Normal | Phase::Prepared => self.members,
        };
        let wanted = members.without(me).foremost(&key, seed, copies);
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        for former in object.targets.iter().filter(|target| !wanted.has(target.to)) {
            if former.sent > former.acked {
                object.draining = object.draining.with(former.to);
            }
        }
        object.targets.retain(|target| wanted.has(target.to));
        for to in wanted.iter() {
            let is_new = object.targets.iter().all(|target| target.to != to);
            // A copy that is under way to it is acknowledged first.
            if is_new && !object.draining.has(to) {
                let target = Target {
                    to,
                    sent: 0,
                    acked: 0,
                };
                let _ = object.targets.try_push(target);
            }
        }
        self.copy_out(key);
    }

    fn send_copies(&mut self, key: Key) {
        if self.is_flushing() {
            return;
        }
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        let version = object.image.version;
        let mut to = Members::NONE;
        for target in &mut object.targets {
            if target.sent == target.acked && target.acked < version {
                target.sent = version;
                to = to.with(target.to);
            }
        }
        object.copies = object.copies.or(to);
        object.dropping = object.dropping.minus(to);
        let image = (!to.is_empty()).then(|| object.image.clone());
        for to in to.iter() {
            if let Some(image) = &image {
                self.send(to, Message::Copy(key, image.clone()));
            }
        }
    }

    fn say_copied(&mut self, key: Key) {
        if self.is_flushing() {
            return;
        }
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        let acked = match has(Bug::AcksBeforeCopy) {
            true => object.image.version,
            false => object.acked(),
        };
        while let Some(reply) = self.next_reply(&key, acked) {
            match reply {
                Reply::Result(to, id, answer) => self.send(to, Message::Result(key, id, answer)),
                Reply::Written(token) => self.outputs.push_back(Output::Written(key, token)),
            }
        }
    }

    /// The next answer that waits for no later version than this.
    fn next_reply(&mut self, key: &Key, acked: u64) -> Option<Reply<B>> {
        let replies = &mut self.object_mut(key)?.replies;
        replies.front().filter(|(version, _)| *version <= acked)?;
        replies.pop_front().map(|(_, reply)| reply)
    }

    fn drop_superfluous(&mut self, key: Key) {
        if self.is_flushing() {
            return;
        }
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        let is_end = object.leave == Some(Leave::End) && object.references == 0 && object.has_all_copied();
        if is_end {
            object.targets.clear();
        } else if !object.is_copied() {
            return;
        }
        let targets = object
            .targets
            .iter()
            .fold(Members::NONE, |all, target| all.with(target.to));
        let drops = object
            .copies
            .minus(targets)
            .minus(object.draining)
            .minus(object.dropping);
        object.dropping = object.dropping.or(drops);
        let (generation, lease) = (object.image.generation, object.image.lease);
        for to in drops.iter() {
            self.send(to, Message::Drop(key, generation, lease));
        }
    }

    /// Gives the object up: no reference is left, and everything is copied.
    fn try_leave(&mut self, key: Key) {
        if self.is_flushing() {
            return;
        }
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        if object.references > 0 || (!object.has_all_copied() && !has(Bug::ShipsUncopied)) {
            return;
        }
        match object.leave {
            Some(Leave::To(to, request)) => self.ship(key, to, request),
            Some(Leave::End) if object.copies.is_empty() || has(Bug::GoneBeforeDropped) => self.end(key),
            Some(Leave::End | Leave::Idle) | None => {}
        }
    }

    /// The object goes to the next holder; a copy stays.
    fn ship(&mut self, key: Key, to: RuntimeId, request: u64) {
        let (me, copies) = (self.me.runtime, self.settings.copies);
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(object) = entry.object.take() else { return };
        let (mut image, mut others) = (object.image, object.copies);
        if copies > 0 {
            entry.copy = Some(image.clone());
            others = others.with(me);
        }
        if has(Bug::TwoHolders) {
            entry.object = Some(Object::new(image.clone(), Members::NONE));
        }
        image.lease = image.lease.wrapping_add(u64::from(!has(Bug::LeaseStands)));
        self.send(to, Message::Object(key, request, image, others));
        self.tidy(&key);
    }

    /// The object is no more.
    fn end(&mut self, key: Key) {
        let Some(object) = self.entries.get_mut(&key).and_then(|entry| entry.object.take()) else {
            return;
        };
        self.ask(Request {
            key,
            caller: self.me,
            id: 0,
            answered_below: 0,
            forwards: 0,
            relinquished: 0,
            op: Op::Gone(object.image.generation),
        });
        self.ask_parked(key);
        self.tidy(&key);
    }

    /// A state to keep; a holder waits for the acknowledgement.
    pub(super) fn on_copy(&mut self, from: RuntimeId, key: Key, image: Image<B>) {
        let Some(entry) = self.entry(key) else { return };
        let rank = image.rank(false);
        let is_newer = entry.copy.as_ref().is_none_or(|copy| copy.rank(false) <= rank);
        if !is_newer || entry.object.is_some() {
            return self.refuse();
        }
        entry.copy = Some(image);
        self.send(
            from,
            Message::CopyAck(key, rank.generation, rank.lease, rank.version),
        );
    }

    /// A copy is kept there.
    pub(super) fn on_copy_ack(&mut self, from: RuntimeId, key: Key, name: (Gen, u64), version: u64) {
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        if (object.image.generation, object.image.lease) != name {
            return;
        }
        object.copies = object.copies.with(from);
        object.draining = object.draining.without(from);
        let target = object.targets.iter_mut().find(|target| target.to == from);
        match target {
            Some(target) => target.acked = target.acked.max(version.min(target.sent)),
            None => return self.retarget(key),
        }
        self.copy_out(key);
    }

    /// A copy of this lease, or an earlier one, is needed no more.
    pub(super) fn on_drop(&mut self, from: RuntimeId, key: Key, generation: Gen, lease: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            let is_later = |copy: &Image<B>| (copy.generation, copy.lease) > (generation, lease);
            entry.copy = entry.copy.take().filter(is_later);
            self.tidy(&key);
        }
        self.send(from, Message::DropAck(key, generation, lease));
    }

    /// No copy is there.
    pub(super) fn on_drop_ack(&mut self, from: RuntimeId, key: Key, name: (Gen, u64)) {
        let Some(object) = self.object_mut(&key) else {
            return;
        };
        let is_this = (object.image.generation, object.image.lease) == name;
        if is_this && object.dropping.has(from) {
            object.dropping = object.dropping.without(from);
            object.copies = object.copies.without(from);
            self.copy_out(key);
        }
    }

    /// The object that is here.
    pub(super) fn object_mut(&mut self, key: &Key) -> Option<&mut Object<B>> {
        self.entries.get_mut(key)?.object.as_mut()
    }

    /// Whether frames from before a failure view may still come: nothing ships, is copied or is
    /// said to be.
    pub(super) fn is_flushing(&self) -> bool {
        self.recovery
            .as_ref()
            .is_some_and(|recovery| !recovery.is_claiming)
    }
}
