//! A runtime's state of a key: a record, the object, a copy, messages that wait; and what the
//! runtime knows of the cluster.

use super::applied::{Applied, WINDOW};
use super::idle::Idle;
use super::inputs::{ObjectSettings, Output, Stage, Stats};
use super::members::{Key, Members};
use super::message::{Body, Caller, Gen, Image, Message, Op, Rank, Record, Request};
use crate::ownership::RuntimeId;
use alloc::collections::{BTreeMap, VecDeque};
use arrayvec::ArrayVec;
use core::ops::Bound;

/// The most runtimes that a copy is awaited of.
pub const COPIES_MAX: usize = 4;

/// The shared objects of one runtime: as a key owner, as a holder, as a requester.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Objects<B: Body> {
    pub(super) me: Caller,
    pub(super) settings: ObjectSettings,
    /// The stage; in `Prepared` and `Scaling` of the view that is left.
    pub(super) stage: Stage,
    /// The members of the stage's view.
    pub(super) members: Members,
    /// The members of the next view; in `Normal` the same.
    pub(super) next: Members,
    /// Scaling: whose sweep is over, this one's own among them.
    pub(super) swept: Members,
    /// Scaling: where the own sweep is.
    pub(super) cursor: Option<Key>,
    /// Scaling: it is said that this runtime is complete.
    pub(super) is_complete: bool,
    pub(super) recovery: Option<Recovery<B>>,
    /// Runtimes that a failure view has removed: their frames are discarded.
    pub(super) removed: Members,
    /// Which runtimes have said `Flush`, of the highest view that was heard of.
    pub(super) flushed: (u32, Members),
    pub(super) entries: BTreeMap<Key, Entry<B>>,
    pub(super) pending: BTreeMap<u64, Pending<B>>,
    /// Results of stale reads, one for each key.
    pub(super) cache: BTreeMap<Key, Cached<B>>,
    pub(super) next_id: u64,
    pub(super) next_gen: u64,
    /// By kind: how long an object may be without use, 0 for ever; and how objects are looked at
    /// for that.
    pub(super) idle: Idle,
    /// The time of the input.
    pub(super) now: u64,
    /// When the next step of a sweep, of a flush or of a repetition is due.
    pub(super) tick_at: Option<u64>,
    /// Messages of this runtime to itself.
    pub(super) local: VecDeque<Message<B>>,
    pub(super) outputs: VecDeque<Output<B>>,
    pub(super) stats: Stats,
}

/// A failure view that is not in force yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Recovery<B: Body> {
    /// Every `Flush` has come, and the claims are sent.
    pub(super) is_claiming: bool,
    /// Which runtimes have sent all of their claims.
    pub(super) done: Members,
    /// By key: the best claim, whose it is, and all that claim.
    pub(super) claims: BTreeMap<Key, (Rank, RuntimeId, Members)>,
    /// Requests that came before this runtime serves.
    pub(super) delayed: VecDeque<Request<B>>,
}

/// A runtime's entry for one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Entry<B: Body> {
    pub(super) record: Option<Record>,
    /// Requests that wait for the object's end.
    pub(super) queue: VecDeque<Request<B>>,
    pub(super) object: Option<Object<B>>,
    pub(super) copy: Option<Image<B>>,
    pub(super) awaiting: Awaiting<B>,
    /// Recalls, kills and forwards for an object that is still to come.
    pub(super) parked: VecDeque<Message<B>>,
    /// Numbers of unanswered calls, lowest first.
    pub(super) calls: ArrayVec<u64, WINDOW>,
}

/// For what this runtime will get the object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Awaiting<B: Body> {
    /// The unanswered Create or GetWrite.
    pub(super) request: Option<u64>,
    /// Of a Create: the content that the object is to have. Its waiters may have been served by an
    /// adoption, and the object have ended since.
    pub(super) birth: Option<B>,
    /// It was recalled from a holder that leaves.
    pub(super) adoption: bool,
    pub(super) waiters: VecDeque<Waiter<B>>,
}

/// A part of the driver that waits for the object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Waiter<B: Body> {
    pub(super) token: u64,
    /// The content that it is to have if it is absent.
    pub(super) birth: Option<B>,
}

/// The order to give an object up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Leave {
    /// To this one, whose request that ends.
    To(RuntimeId, u64),
    /// For good.
    End,
    /// The key owner is asked to end it, since it was not used for long. Until it answers, nothing
    /// is served here.
    Idle,
}

/// The object, at its holder.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Object<B: Body> {
    pub(super) image: Image<B>,
    /// References that the driver has.
    pub(super) references: u32,
    pub(super) leave: Option<Leave>,
    /// A leaving holder has offered it.
    pub(super) is_offered: bool,
    /// Every runtime that may have a copy.
    pub(super) copies: Members,
    /// The runtimes that are to have one.
    pub(super) targets: ArrayVec<Target, COPIES_MAX>,
    /// The runtimes that were to have one, with a copy under way.
    pub(super) draining: Members,
    /// The runtimes that were told to drop theirs.
    pub(super) dropping: Members,
    /// Replies that wait until their version is copied.
    pub(super) replies: VecDeque<(u64, Reply<B>)>,
    /// When it was used last, where it ends by time.
    pub(super) used_at: u64,
}

/// A runtime that is to have a copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Target {
    pub(super) to: RuntimeId,
    /// The version that was sent last.
    pub(super) sent: u64,
    /// The version that it has, of this lease; 0 for none.
    pub(super) acked: u64,
}

/// A reply that is sent once a version is copied.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Reply<B: Body> {
    Result(RuntimeId, u64, Option<B::Answer>),
    Written(u64),
}

/// An operation that is not answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pending<B: Body> {
    pub(super) key: Key,
    pub(super) op: Op<B>,
    pub(super) token: u64,
    /// When it is to be sent: buffered, or to be repeated. `None`: it is sent, or will be when this
    /// runtime serves.
    pub(super) due: Option<u64>,
    /// When it was sent last.
    pub(super) sent_at: u64,
    /// The answer of a read is kept.
    pub(super) is_kept: bool,
    /// Local changes that were added to it.
    pub(super) folds: u32,
}

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cached<B: Body> {
    pub(super) call: B::Call,
    pub(super) answer: B::Answer,
    /// When the read was sent.
    pub(super) sent_at: u64,
}

impl<B: Body> Default for Entry<B> {
    fn default() -> Self {
        Entry {
            record: None,
            queue: VecDeque::new(),
            object: None,
            copy: None,
            awaiting: Awaiting {
                request: None,
                birth: None,
                adoption: false,
                waiters: VecDeque::new(),
            },
            parked: VecDeque::new(),
            calls: ArrayVec::new(),
        }
    }
}

impl<B: Body> Entry<B> {
    /// Whether nothing of the key is here.
    pub(super) fn is_empty(&self) -> bool {
        self.record.is_none()
            && self.object.is_none()
            && self.copy.is_none()
            && !self.awaiting.is_any()
            && self.awaiting.waiters.is_empty()
            && self.parked.is_empty()
            && self.queue.is_empty()
            && self.calls.is_empty()
    }
}

impl<B: Body> Awaiting<B> {
    pub(super) fn is_any(&self) -> bool {
        self.request.is_some() || self.adoption
    }
}

impl<B: Body> Object<B> {
    pub(super) fn new(image: Image<B>, copies: Members) -> Self {
        Object {
            image,
            references: 0,
            leave: None,
            is_offered: false,
            copies,
            targets: ArrayVec::new(),
            draining: Members::NONE,
            dropping: Members::NONE,
            replies: VecDeque::new(),
            used_at: 0,
        }
    }

    /// The version that every target has.
    pub(super) fn acked(&self) -> u64 {
        let acked = self.targets.iter().map(|target| target.acked).min();
        acked.unwrap_or(self.image.version)
    }

    /// Whether each target has some state of this lease, and nothing is under way to a former one.
    pub(super) fn is_copied(&self) -> bool {
        self.draining.is_empty() && self.targets.iter().all(|target| target.acked > 0)
    }

    /// Whether everything is copied, and no copy is under way.
    pub(super) fn has_all_copied(&self) -> bool {
        self.draining.is_empty() && self.acked() == self.image.version
    }
}

impl<B: Body> Objects<B> {
    /// A runtime in a view whose members are these; it may join later.
    pub fn new(me: Caller, view: u32, members: Members, settings: ObjectSettings) -> Self {
        Objects {
            me,
            settings,
            stage: Stage::normal(view),
            members,
            next: members,
            swept: Members::NONE,
            cursor: None,
            is_complete: false,
            recovery: None,
            removed: Members::NONE,
            flushed: (0, Members::NONE),
            entries: BTreeMap::new(),
            pending: BTreeMap::new(),
            cache: BTreeMap::new(),
            next_id: 1,
            next_gen: 0,
            idle: Idle::default(),
            now: 0,
            tick_at: None,
            local: VecDeque::new(),
            outputs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// The next output, in order.
    pub fn poll(&mut self) -> Option<Output<B>> {
        self.outputs.pop_front()
    }

    /// When [`super::Input::Tick`] is due.
    pub fn next_timeout(&self) -> Option<u64> {
        self.tick_at
    }

    /// The stage that this runtime is in.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The content, while the driver has a reference.
    pub fn body_mut(&mut self, key: &Key) -> Option<&mut B> {
        let object = self.entries.get_mut(key)?.object.as_mut()?;
        (object.references > 0).then_some(&mut object.image.body)
    }

    /// The incarnation, the lease and the content of an object that is here.
    pub fn held(&self, key: &Key) -> Option<(Gen, u64, &B)> {
        let image = &self.entries.get(key)?.object.as_ref()?.image;
        Some((image.generation, image.lease, &image.body))
    }

    /// Keys of which something is here, operations without an answer, and results that are kept:
    /// each has a bound in the settings.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.entries.len(), self.pending.len(), self.cache.len())
    }

    /// By key, the object's content and the copy's, where there is one.
    pub fn contents(&self) -> impl Iterator<Item = (&Key, Option<&B>, Option<&B>)> {
        self.entries.iter().map(|(key, entry)| {
            let object = entry.object.as_ref().map(|object| &object.image.body);
            (key, object, entry.copy.as_ref().map(|copy| &copy.body))
        })
    }

    /// The record of a key that this runtime is the owner of.
    pub fn record(&self, key: &Key) -> Option<&Record> {
        self.entries.get(key)?.record.as_ref()
    }

    /// Whether nothing is here, and nothing is awaited.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.recovery.is_none() && self.entries.values().all(Entry::is_at_rest)
    }

    /// Members of both views of a transition.
    pub(super) fn everyone(&self) -> Members {
        self.members.or(self.next)
    }

    /// Whether this runtime is on its way out, or is out.
    pub(super) fn is_leaving(&self) -> bool {
        !self.next.has(self.me.runtime)
    }

    /// Sends a message; a message to this runtime is handled before the next input.
    pub(super) fn send(&mut self, to: RuntimeId, message: Message<B>) {
        if to == self.me.runtime {
            self.local.push_back(message);
        } else if !self.removed.has(to) {
            self.outputs.push_back(Output::Send(to, message));
        }
    }

    /// Hands a request to this runtime's key layer, which serves it or sends it on.
    pub(super) fn ask(&mut self, request: Request<B>) {
        self.local.push_back(Message::Request(request));
    }

    /// A message that no peer that keeps the rules sends.
    pub(super) fn refuse(&mut self) {
        self.stats.refused += 1;
    }

    /// A tick is due then, if none is earlier.
    pub(super) fn wake(&mut self, at: u64) {
        self.tick_at = Some(self.tick_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The entry of a key, if there is one or there is room: for what other runtimes send here.
    pub(super) fn entry(&mut self, key: Key) -> Option<&mut Entry<B>> {
        self.entry_within(key, self.settings.keys_max)
    }

    /// The same for requests that begin here: half of the places are kept for other runtimes'
    /// messages, which would be lost without one.
    pub(super) fn own_entry(&mut self, key: Key) -> Option<&mut Entry<B>> {
        self.entry_within(key, self.settings.keys_max.div_ceil(2))
    }

    fn entry_within(&mut self, key: Key, max: usize) -> Option<&mut Entry<B>> {
        if self.entries.len() < max || self.entries.contains_key(&key) {
            return Some(self.entries.entry(key).or_default());
        }
        self.stats.full += 1;
        None
    }

    /// Drops an entry in which there is nothing.
    pub(super) fn tidy(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(Entry::is_empty) {
            self.entries.remove(key);
        }
    }

    /// The first key behind this one, or of all.
    pub(super) fn key_after(&self, key: Option<Key>) -> Option<Key> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = self.entries.range((from, Bound::Unbounded));
        keys.next().map(|(key, _)| *key)
    }
}

impl<B: Body> Entry<B> {
    fn is_at_rest(&self) -> bool {
        let object = self.object.as_ref();
        self.queue.is_empty()
            && self.parked.is_empty()
            && !self.awaiting.is_any()
            && self.awaiting.waiters.is_empty()
            && object.is_none_or(|object| object.leave.is_none() && object.replies.is_empty())
    }
}

impl<B: Body> Image<B> {
    /// The order among the claims to a key.
    pub(super) fn rank(&self, is_holder: bool) -> Rank {
        Rank {
            generation: self.generation,
            lease: self.lease,
            is_holder,
            version: self.version,
        }
    }

    /// An object that is made.
    pub(super) fn born(generation: Gen, body: B) -> Self {
        Image {
            generation,
            lease: 1,
            version: 1,
            body,
            applied: Applied::default(),
        }
    }
}
