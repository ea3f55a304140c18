//! Objects that a function's flows share, whichever runtime they are at (S6 4.3).
//!
//! # Theory of operation
//!
//! A function says what an object is ([`SharedObject`]: plain data, a call, an answer), and opens a
//! kind of them when its instance is made ([`crate::NetworkFunction::with_objects`]). An object has
//! a key of the function's own; it begins as the default with the first call, and has one place in
//! the cluster, to which calls go. So each call sees the changes of all earlier ones, wherever they
//! were made.
//!
//! ```text
//!   process ─ update(key, call) ─► PendingCalls ─► runtime ─► holder: apply ─► copies ─┐
//!      └── waits ◄──────────────── answer ◄──────────────────────────────────┘
//!   process, departed ─ send(key, call) ─► the same, and nothing waits
//! ```
//!
//! | | waits | the answer |
//! |---|---|---|
//! | [`Shared::update`] | until the call is applied, and the copies have it | the method's |
//! | [`Shared::send`] | no; it goes within 0.1 ms, in any order with others | none |
//! | [`Shared::merge`] | no; it goes with others of its key, as one call, within 10 ms or what the object says | none |
//! | [`Shared::read`] | until the holder answers, if no answer is here that is fresh enough | the method's |
//! | [`Shared::remove`] | until the object and its copies are gone | none |
//! | [`Single::get`] | until the object is at this runtime, and no other call has it | the object, until it is dropped |
//!
//! *Output commit*: a packet whose `process` awaits an `update` leaves behind the answer, and the
//! answer comes behind the copies. So no packet has left for an update that one failure undoes.
//!
//! *Twice or never.* A call is applied once, through moves and failures of other runtimes. When its
//! own runtime fails, it may have been applied, and the packet is lost. A call that was applied
//! before a failure and is asked about behind it has lost its answer ([`Ended::Unknown`]).
//!
//! Invariants: a token is answered once, to the call that has it (`answers_go_to_their_calls`); a
//! full table of pending calls refuses, and allocates nothing.
//!
//! Not here: where an object is and how it survives (`protocols::objects`), and the worker that
//! takes calls off the table of pending calls (`runtime::objects`).

mod deltas;
mod here;
mod kinds;
mod lent;
mod pending_calls;
mod single;

pub use here::{Collection, ObjectsHere, Shelf};
pub use kinds::{ANSWER_MAX, CALL_MAX, CONTENT_MAX, KINDS_MAX, Kind, Methods, Words};
pub use lent::Put;
use pending_calls::WAIT_TURNS;
pub use pending_calls::{Asked, Ended, Key, PendingCalls, WAIT_NS, What};
pub use single::{Getting, Held, Releasing, Single, SingleWriter};

use crate::cx::RawCx;
use crate::plain::{Plain, bytes_of, from_bytes};
use crate::{ConfigError, Cx, NetworkFunction};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// The longest key, in bytes.
pub const KEY_MAX: usize = 40;

/// An object that flows anywhere share: a content, and the calls that change it or read it.
///
/// ```
/// # use nf::{Plain, objects::SharedObject};
/// #[derive(Plain, Default, Clone, Copy, Debug)]
/// #[repr(C)]
/// struct Count { calls: u64 }
///
/// impl SharedObject for Count {
///     type Call = u64;
///     type Answer = u64;
///     fn apply(&mut self, by: &u64) -> u64 {
///         self.calls += by;
///         self.calls
///     }
///     fn read(&self, _: &u64) -> u64 {
///         self.calls
///     }
/// }
/// ```
///
/// Contents, calls and answers are plain data without times: clocks differ between hosts.
pub trait SharedObject: Plain + Default {
    /// A method with its arguments, at most [`CALL_MAX`] bytes.
    type Call: Plain;
    /// A method's result, at most [`ANSWER_MAX`] bytes.
    type Answer: Plain;

    /// A call that changes the object. It depends on nothing but the two.
    fn apply(&mut self, call: &Self::Call) -> Self::Answer;

    /// A call that changes nothing.
    fn read(&self, call: &Self::Call) -> Self::Answer;

    /// How long an object lives without a call; `None`: until it is removed. It ends between that
    /// time and twice that time behind its last call.
    const IDLE: Option<Duration> = None;

    /// How long calls of [`Shared::merge`] are collected before they go to the object, counted from
    /// the first of them.
    const MERGE_WITHIN: Duration = Duration::from_millis(10);

    /// Makes a later call a part of an earlier one that has not gone: to apply the result is to
    /// apply both. `false` if that cannot be, and nothing is changed: then the earlier one goes by
    /// itself. Calls that are merged must commute with each other: several runtimes merge theirs,
    /// and their order is none.
    fn merge(_earlier: &mut Self::Call, _later: &Self::Call) -> bool {
        false
    }
}

/// Where an instance's handles find the table of pending calls: a changed configuration's handles
/// get the worker's.
#[derive(Default)]
struct SharedCalls(RefCell<Arc<PendingCalls>>);

impl SharedCalls {
    fn with<T>(&self, what: impl FnOnce(&PendingCalls) -> T) -> Option<T> {
        self.0.try_borrow().ok().map(|pending_calls| what(&pending_calls))
    }
}

/// Opens kinds of objects, for one instance.
pub struct Objects<'a> {
    all: &'a mut WorkerObjects,
    function: String,
}

/// The kinds that all instances of a worker have opened, in their order, and the table of pending
/// calls.
#[derive(Default)]
pub struct WorkerObjects {
    shared_calls: Arc<SharedCalls>,
    kinds: Vec<Kind>,
}

impl WorkerObjects {
    /// For the instance of a function by its name in the configuration.
    pub fn of(&mut self, function: &str) -> Objects<'_> {
        Objects {
            all: self,
            function: function.to_string(),
        }
    }

    /// The kinds, by number.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The table of the worker's pending calls.
    pub fn pending_calls(&self) -> Arc<PendingCalls> {
        self.shared_calls
            .0
            .try_borrow()
            .map(|pending_calls| (*pending_calls).clone())
            .unwrap_or_default()
    }

    /// These instances follow others at a worker: calls go over its table of pending calls. To be
    /// called at the worker.
    pub fn adopt(&mut self, before: &WorkerObjects) {
        if let Ok(mut pending_calls) = self.shared_calls.0.try_borrow_mut() {
            *pending_calls = before.pending_calls();
        }
    }
}

impl Objects<'_> {
    /// Opens a kind of objects under a name of its own within the function.
    pub fn open<T: SharedObject>(&mut self, name: &str) -> Result<Shared<T>, ConfigError> {
        let kind = self.add(Kind::of::<T>(&self.function, name))?;
        Ok(Shared {
            shared_calls: self.all.shared_calls.clone(),
            kind,
            content: PhantomData,
        })
    }

    /// Opens a kind of objects with one writer, as [`Objects::open`] does.
    pub fn open_single<T: SingleWriter>(&mut self, name: &str) -> Result<Single<T>, ConfigError> {
        let kind = self.add(Kind::of_single::<T>(&self.function, name))?;
        Ok(Single {
            shared_calls: self.all.shared_calls.clone(),
            kind,
            content: PhantomData,
        })
    }

    fn add(&mut self, kind: Kind) -> Result<u16, ConfigError> {
        let name = kind.name.clone();
        let kinds = &mut self.all.kinds;
        let is_there = |kind: &Kind| kind.function == self.function && kind.name == name;
        let problem = if kinds.iter().any(is_there) {
            "is opened twice; open it once, and keep the handle"
        } else if kinds.len() >= KINDS_MAX {
            "is one more kind of shared objects than there may be (64); put several into one kind"
        } else {
            let number = kinds.len() as u16;
            kinds.push(kind);
            self.all.pending_calls().make_room();
            return Ok(number);
        };
        let (what, remedy) = problem.split_once("; ").unwrap_or((problem, ""));
        let what = alloc::format!("`{name}` {what}");
        Err(ConfigError::new("objects", what, remedy))
    }
}

/// A kind of objects, as a function has it.
pub struct Shared<T> {
    shared_calls: Arc<SharedCalls>,
    kind: u16,
    content: PhantomData<fn(T)>,
}

impl<T> core::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Shared({})", self.kind)
    }
}

impl<T: SharedObject> Shared<T> {
    /// Applies a call to the object of a key, which is made if it is absent. It is on its way when
    /// this returns; the answer comes when the change survives the failure of a runtime.
    #[must_use = "the answer comes with `.await`; `send` waits for none"]
    pub fn update<'a, F: NetworkFunction>(
        &'a self,
        cx: &'a mut Cx<F>,
        key: &[u8],
        call: &T::Call,
    ) -> Asking<'a, T::Answer> {
        self.ask(cx.raw_mut(), key, What::Update(Words::of(call)))
    }

    /// Applies a call to the object of a key, and waits for nothing. Calls of several packets may
    /// be applied in any order.
    pub fn send(&self, key: &[u8], call: &T::Call) -> Result<(), Ended> {
        let what = What::Send(Words::of(call));
        let asked = self
            .shared_calls
            .with(|pending_calls| pending_calls.ask(self.kind, key, what));
        asked.unwrap_or(Err(Ended::Full)).map(|_| ())
    }

    /// Applies a call to the object of a key as a part of others: it is added to those of this
    /// runtime that have not gone yet ([`SharedObject::merge`]), and they go as one call, within
    /// [`SharedObject::MERGE_WITHIN`]. It costs a look-up here, and no message of its own, so it is
    /// cheap enough for each packet. Calls that have not gone are lost with a runtime that fails.
    pub fn merge(&self, key: &[u8], call: &T::Call) -> Result<(), Ended> {
        let within = u64::try_from(T::MERGE_WITHIN.as_nanos()).unwrap_or(u64::MAX);
        let fold = |earlier: &mut Words| {
            let Some(mut merged) = from_bytes::<T::Call>(earlier.bytes()) else {
                return false;
            };
            let is_merged = T::merge(&mut merged, call);
            if is_merged {
                *earlier = Words::of(&merged);
            }
            is_merged
        };
        let asked = self
            .shared_calls
            .with(|pending_calls| pending_calls.merge((self.kind, key), Words::of(call), within, fold));
        asked.unwrap_or(Err(Ended::Full))
    }

    /// The answer of a key's object to a call that changes nothing: an absent object answers as the
    /// default. An answer that was asked for no longer ago than `stale` may be given again.
    #[must_use = "the answer comes with `.await`"]
    pub fn read<'a, F: NetworkFunction>(
        &'a self,
        cx: &'a mut Cx<F>,
        key: &[u8],
        call: &T::Call,
        stale: Duration,
    ) -> Asking<'a, T::Answer> {
        let bound = u64::try_from(stale.as_nanos()).unwrap_or(u64::MAX);
        self.ask(cx.raw_mut(), key, What::Read(Words::of(call), bound))
    }

    /// Ends the object of a key, if there is one.
    #[must_use = "the object has ended when `.await` is over"]
    pub fn remove<'a, F: NetworkFunction>(&'a self, cx: &'a mut Cx<F>, key: &[u8]) -> Removing<'a> {
        Removing(Waits::ask(
            &self.shared_calls,
            cx.raw_mut(),
            (self.kind, key),
            What::Remove,
        ))
    }

    fn ask<'a>(&'a self, raw: &'a mut RawCx, key: &[u8], what: What) -> Asking<'a, T::Answer> {
        Asking::new(Waits::ask(&self.shared_calls, raw, (self.kind, key), what))
    }
}

/// The wait for an answer.
struct Waits<'a> {
    raw: &'a mut RawCx,
    shared_calls: &'a SharedCalls,
    token: Result<u64, Ended>,
    until: u64,
    /// The worker's turns when it was asked.
    since: u64,
}

impl<'a> Waits<'a> {
    fn new(shared_calls: &'a SharedCalls, raw: &'a mut RawCx, token: Result<u64, Ended>) -> Self {
        Waits {
            shared_calls,
            token,
            until: raw.now.saturating_add(WAIT_NS),
            since: shared_calls.with(PendingCalls::turns).unwrap_or_default(),
            raw,
        }
    }
}

impl Waits<'_> {
    fn poll(&mut self) -> Poll<Result<Words, Ended>> {
        let token = match self.token {
            Ok(token) => token,
            Err(ended) => return Poll::Ready(Err(ended)),
        };
        if let Some(answer) = self
            .shared_calls
            .with(|pending_calls| pending_calls.take(token))
            .flatten()
        {
            self.token = Err(Ended::Unknown);
            return Poll::Ready(answer);
        }
        if self.raw.now >= self.until {
            let turns = self.shared_calls.with(PendingCalls::turns).unwrap_or_default();
            if turns.wrapping_sub(self.since) >= WAIT_TURNS {
                return Poll::Ready(Err(Ended::Late));
            }
            self.until = self.raw.now.saturating_add(WAIT_NS / 1000);
        }
        self.raw.wake_at = self.until;
        self.raw.waits_for = token;
        Poll::Pending
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Ok(token) = self.token {
            self.shared_calls.with(|pending_calls| pending_calls.leave(token));
        }
    }
}

/// The wait for an answer of this type.
pub struct Asking<'a, A> {
    waits: Waits<'a>,
    answer: PhantomData<fn() -> A>,
}

impl<'a, A> Asking<'a, A> {
    fn new(waits: Waits<'a>) -> Self {
        let answer = PhantomData;
        Asking { waits, answer }
    }
}

impl<A: Plain> Future for Asking<'_, A> {
    type Output = Result<A, Ended>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let read = |words: Words| from_bytes::<A>(words.bytes()).ok_or(Ended::Unknown);
        self.waits.poll().map(|answer| answer.and_then(read))
    }
}

/// The wait of [`Shared::remove`].
pub struct Removing<'a>(Waits<'a>);

impl Future for Removing<'_> {
    type Output = Result<(), Ended>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll().map(|answer| answer.map(|_| ()))
    }
}

impl Words {
    /// The bytes of a value; no longer than [`Words`] are, as [`Kind::of`] sees to while compiling.
    fn of<T: Plain>(value: &T) -> Self {
        Words::new(bytes_of(value)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
