//! Objects with one writer, as a function has them: the object comes to the flow that uses it (S6
//! 4.2).

use super::lent::Got;
use super::pending_calls::Key;
use super::{Asking, Ended, Removing, SharedCalls, Waits, What, Words};
use crate::cx::RawCx;
use crate::plain::{Plain, bytes_of, from_bytes};
use crate::{Cx, NetworkFunction};
use alloc::sync::Arc;
use core::future::Future;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

/// An object that one call at a time changes in place, wherever it is: plain data, and answers to
/// calls that read it.
///
/// ```
/// use nf::Plain;
/// use nf::objects::SingleWriter;
///
/// #[derive(Plain, Default, Clone, Copy, Debug)]
/// #[repr(C)]
/// struct Session { packets: u64, bytes: u64 }
///
/// impl SingleWriter for Session {
///     type Call = ();
///     type Answer = u64;
///     fn read(&self, _: &()) -> u64 {
///         self.bytes
///     }
/// }
/// ```
///
/// Contents, calls and answers are plain data without times: clocks differ between hosts.
pub trait SingleWriter: Plain + Default {
    /// The question of [`Single::read`], at most [`super::CALL_MAX`] bytes.
    type Call: Plain;
    /// Its answer, at most [`super::ANSWER_MAX`] bytes.
    type Answer: Plain;

    /// How long an object lives without being used; `None`: until it is removed. It ends between
    /// that time and twice that time behind its last use.
    const IDLE: Option<Duration> = None;

    /// A call that changes nothing.
    fn read(&self, call: &Self::Call) -> Self::Answer;
}

/// A kind of objects with one writer, as a function has it.
pub struct Single<T> {
    pub(super) shared_calls: Arc<SharedCalls>,
    pub(super) kind: u16,
    pub(super) content: PhantomData<fn(T)>,
}

impl<T> core::fmt::Debug for Single<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Single({})", self.kind)
    }
}

impl<T: SingleWriter> Single<T> {
    /// The object of a key, which is made if it is absent, for this call alone until [`Held`] is
    /// dropped. An object that is at this runtime, and in no other call, is there at once: no
    /// message is sent, and the packet does not wait. Else it comes when calls that wanted it
    /// before have had it.
    #[must_use = "the object comes with `.await`"]
    pub fn get<'s: 'c, 'c, F: NetworkFunction>(
        &'s self,
        cx: &'c mut Cx<F>,
        key: &[u8],
    ) -> Getting<'s, 'c, T> {
        let raw = cx.raw_mut();
        let state = match Key::try_from(key) {
            Err(_) => State::Over(Ended::KeyTooLong),
            Ok(key) => {
                let at = (self.kind, key);
                let got = self
                    .shared_calls
                    .with(|pending_calls| pending_calls.get(&at, from_bytes::<T>));
                match got.unwrap_or(Err(Ended::Full)) {
                    Ok(Got::Here(number, value)) => {
                        State::Here(Held::new(&self.shared_calls, at, number, value))
                    }
                    Ok(Got::Waits(token)) => {
                        State::Waits(Waits::new(&self.shared_calls, raw, Ok(token)), at, token)
                    }
                    Err(ended) => State::Over(ended),
                }
            }
        };
        Getting {
            shared_calls: &self.shared_calls,
            state,
        }
    }

    /// The answer of a key's object, as it was put back last, to a call that changes nothing: an
    /// absent object answers as the default. An answer that was asked for no longer ago than
    /// `stale` may be given again.
    #[must_use = "the answer comes with `.await`"]
    pub fn read<'a, F: NetworkFunction>(
        &'a self,
        cx: &'a mut Cx<F>,
        key: &[u8],
        call: &T::Call,
        stale: Duration,
    ) -> Asking<'a, T::Answer> {
        let bound = u64::try_from(stale.as_nanos()).unwrap_or(u64::MAX);
        let what = What::Read(Words::of(call), bound);
        Asking::new(Waits::ask(
            &self.shared_calls,
            cx.raw_mut(),
            (self.kind, key),
            what,
        ))
    }

    /// Ends the object of a key, if there is one, when no call has it. A call that has it itself
    /// waits in vain.
    #[must_use = "the object has ended when `.await` is over"]
    pub fn remove<'a, F: NetworkFunction>(&'a self, cx: &'a mut Cx<F>, key: &[u8]) -> Removing<'a> {
        Removing(Waits::ask(
            &self.shared_calls,
            cx.raw_mut(),
            (self.kind, key),
            What::Remove,
        ))
    }
}

/// An object that this call alone has. The next call has the changes when this is dropped; a call
/// that is given up leaves the changes that it has made so far.
pub struct Held<'s, T: SingleWriter> {
    shared_calls: &'s SharedCalls,
    at: (u16, Key),
    number: u64,
    value: T,
    is_changed: bool,
    is_put: bool,
}

impl<'s, T: SingleWriter> Held<'s, T> {
    fn new(shared_calls: &'s SharedCalls, at: (u16, Key), number: u64, value: T) -> Self {
        Held {
            shared_calls,
            at,
            number,
            value,
            is_changed: false,
            is_put: false,
        }
    }

    /// Gives the object to the next call, and waits until the changes of this one survive the
    /// failure of a runtime: a packet that leaves behind it depends on nothing that one failure
    /// undoes.
    pub fn release<'c, F: NetworkFunction>(mut self, cx: &'c mut Cx<F>) -> Releasing<'c>
    where
        's: 'c,
    {
        let token = match self.is_changed {
            true => self.put(true),
            false => self.put(false).map(|_| None),
        };
        match token {
            Ok(Some(token)) => Releasing(Some(Waits::new(self.shared_calls, cx.raw_mut(), Ok(token)))),
            Ok(None) => Releasing(None),
            Err(ended) => Releasing(Some(Waits::new(self.shared_calls, cx.raw_mut(), Err(ended)))),
        }
    }

    fn put(&mut self, is_awaited: bool) -> Result<Option<u64>, Ended> {
        if core::mem::replace(&mut self.is_put, true) {
            return Ok(None);
        }
        let changed = self.is_changed.then(|| bytes_of(&self.value));
        let (at, number) = (&self.at, self.number);
        let put = self
            .shared_calls
            .with(|pending_calls| pending_calls.put(at, number, changed, is_awaited));
        put.unwrap_or(Err(Ended::Full))
    }
}

impl<T: SingleWriter> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: SingleWriter> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_changed = true;
        &mut self.value
    }
}

impl<T: SingleWriter> Drop for Held<'_, T> {
    fn drop(&mut self) {
        let _ = self.put(false);
    }
}

enum State<'s, 'c, T: SingleWriter> {
    Here(Held<'s, T>),
    /// For the answer of this token.
    Waits(Waits<'c>, (u16, Key), u64),
    Over(Ended),
}

/// The wait of [`Single::get`].
pub struct Getting<'s, 'c, T: SingleWriter> {
    shared_calls: &'s SharedCalls,
    state: State<'s, 'c, T>,
}

impl<'s, T: SingleWriter> Future for Getting<'s, '_, T> {
    type Output = Result<Held<'s, T>, Ended>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let shared_calls = this.shared_calls;
        if let State::Waits(waits, at, token) = &mut this.state {
            let token = *token;
            match waits.poll() {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(ended)) => {
                    this.state = State::Over(ended);
                }
                Poll::Ready(Ok(_)) => {
                    let got = shared_calls
                        .with(|pending_calls| pending_calls.collect(at, token, from_bytes::<T>))
                        .flatten();
                    let at = at.clone();
                    this.state = match got {
                        Some((number, value)) => State::Here(Held::new(shared_calls, at, number, value)),
                        None => State::Over(Ended::Unknown),
                    };
                }
            }
        }
        match core::mem::replace(&mut this.state, State::Over(Ended::Unknown)) {
            State::Here(held) => Poll::Ready(Ok(held)),
            State::Over(ended) => Poll::Ready(Err(ended)),
            waits => {
                this.state = waits;
                Poll::Pending
            }
        }
    }
}

impl<T: SingleWriter> Unpin for Getting<'_, '_, T> {}

impl<T: SingleWriter> Drop for Getting<'_, '_, T> {
    fn drop(&mut self) {
        if let State::Waits(_, at, token) = &self.state {
            self.shared_calls
                .with(|pending_calls| pending_calls.abandon(at, *token));
        }
    }
}

/// The wait of [`Held::release`].
pub struct Releasing<'c>(Option<Waits<'c>>);

impl Future for Releasing<'_> {
    type Output = Result<(), Ended>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            None => Poll::Ready(Ok(())),
            Some(waits) => waits.poll().map(|answer| answer.map(|_| ())),
        }
    }
}

impl<'c> Waits<'c> {
    pub(super) fn ask(
        shared_calls: &'c SharedCalls,
        raw: &'c mut RawCx,
        (kind, key): (u16, &[u8]),
        what: What,
    ) -> Self {
        let asked = shared_calls.with(|pending_calls| pending_calls.ask(kind, key, what));
        Waits::new(shared_calls, raw, asked.unwrap_or(Err(Ended::Full)))
    }
}
