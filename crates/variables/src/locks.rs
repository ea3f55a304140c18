//! Locks of functions: one holder over all runtimes and members of a function (FlexState VI-B).
//!
//! ```text
//!   worker                                        the store's thread of locks
//!   Lock ── wants it: 3 ────────── rings ───────► takes it when it is free, and renews it
//!     ◄── held: token, value, until when ────────
//!     ── put: value ──────────────────────────► writes it with the token, unless a later token has
//!     ◄── stored, or fenced ──────────────────
//!     ── wants it no more: 4 ───────────────────► frees it
//!
//!   free ── wait ──► wanted ── held ──► taken (`Held`) ── dropped, or the flow goes ──► freed
//! ```
//!
//! A lock has a value, which its holder reads and writes. The store keeps the value with the token
//! that it was written with, and refuses an earlier token. Tokens only grow. So a holder that lost
//! its lease (it slept, its process was stopped, its store was away) changes nothing any more.
//!
//! A number, the wish, counts when this runtime wants the lock: it wants the lock while the wish is
//! odd. A lock held for an earlier wish is not this wish's.
//!
//! Locks are a last resort: each waits for the store several times. Calls here neither wait nor
//! lock, but values are allocated and freed.
//!
//! Invariants: of one runtime's calls one at a time has the lock
//! (`one_call_at_a_time_has_a_lock_and_the_next_asks_again`); a call that goes leaves no lock
//! behind (the same).
//!
//! Not here: the thread, leases, and records (`stores::locks`, `stores::lock`).

use crate::merged::Merger;
use crate::open::{OpenError, Variables};
use crate::wake::{Bell, Token};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use spin::Mutex;

/// Why a lock is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeld {
    /// The variables are in no store.
    #[error("the function's variables are in no store, so there are no locks; `[store]` names one")]
    NoStore,
    /// Another had it all the time, or the store did not answer.
    #[error("the lock was not free in time; `flowkeep status` says how the store does")]
    Patience,
    /// The lease is over, or a later holder has written. A value that was on its way then is not
    /// written, or where the store did not answer in time, perhaps: the next holder reads which.
    #[error("the lock is another's by now: the value is not written, or the store did not say so in time")]
    Lost,
}

/// A lock that the store's thread takes. All calls are that thread's.
pub trait Locking: Send {
    /// Its name.
    fn name(&self) -> &str;
    /// How long it is held without a renewal.
    fn lease(&self) -> Duration;
    /// Whether the handle is there.
    fn is_there(&self) -> bool;
    /// The number of the last wish; odd: the lock is wanted.
    fn wish(&self) -> u32;
    /// The lock is held for this wish, until a time of the thread's clock.
    fn hold(&mut self, wish: u32, token: u64, until_ns: u64, value: Vec<u8>);
    /// The lease is longer.
    fn renew(&mut self, until_ns: u64);
    /// The lock is not held any more for this wish, and not again.
    fn lose(&mut self, wish: u32);
    /// The value to be written, and its token.
    fn to_put(&mut self) -> Option<(u64, Vec<u8>)>;
    /// The value to be written is stored, or was refused.
    fn put_done(&mut self, is_stored: bool);
}

struct Grant {
    wish: u32,
    token: u64,
    value: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    wish: AtomicU32,
    /// Until when the lease is, 0 for none.
    until_ns: AtomicU64,
    /// The last wish for which it was held and was lost.
    lost: AtomicU32,
    /// Each is held for as long as a pointer needs to change places; the worker only tries.
    grant: Mutex<Option<Grant>>,
    put: Mutex<Option<(u64, Vec<u8>)>>,
    /// Writes that are over, and whether the last one was refused.
    puts: AtomicU32,
    is_refused: AtomicBool,
    /// Answers of any kind.
    heard: AtomicU32,
    /// Calls that wait for the lock, and the call that waits for a write.
    bell: Bell,
    written: Bell,
}

struct Inside {
    shared: Arc<Shared>,
    thread: Arc<dyn Merger>,
    /// The grant for the current wish.
    grant: RefCell<Option<Grant>>,
    waiting: Cell<u32>,
    is_taken: Cell<bool>,
    asked_puts: Cell<u32>,
}

impl Inside {
    /// Wants it, or no more.
    fn turn(&self, wants: bool) {
        let wish = self.shared.wish.load(Ordering::Acquire);
        if (wish % 2 == 1) != wants {
            if let Ok(mut grant) = self.grant.try_borrow_mut() {
                *grant = None;
            }
            self.shared.wish.store(wish.wrapping_add(1), Ordering::Release);
            self.thread.ring();
        }
    }

    /// Takes the thread's grant for the current wish.
    fn look(&self) {
        let wish = self.shared.wish.load(Ordering::Acquire);
        if let (Some(mut there), Ok(mut mine)) = (self.shared.grant.try_lock(), self.grant.try_borrow_mut())
            && let Some(grant) = there.take_if(|grant| grant.wish == wish)
        {
            *mine = Some(grant);
        }
    }

    fn token(&self) -> Option<u64> {
        let grant = self.grant.try_borrow().ok()?;
        let lasts = self.thread.now_ns() < self.shared.until_ns.load(Ordering::Acquire);
        grant.as_ref().filter(|_| lasts).map(|grant| grant.token)
    }

    fn settle(&self) {
        if self.waiting.get() == 0 && !self.is_taken.get() {
            self.turn(false);
        }
    }
}

/// A lock by its name, for one runtime of a function. Its calls share it.
#[derive(Clone)]
pub struct Lock(Option<Rc<Inside>>);

impl Lock {
    /// Begins to wait for it; `Cx::locked` does that.
    pub fn wait(&self) -> Result<Wait, NotHeld> {
        let inside = self.0.clone().ok_or(NotHeld::NoStore)?;
        inside.waiting.set(inside.waiting.get().saturating_add(1));
        Ok(Wait(inside))
    }

    /// Changes when a call that waits for it may go on: for `NetworkFunction::generation`.
    pub fn heard(&self) -> u32 {
        self.0
            .as_deref()
            .map_or(0, |inside| inside.shared.heard.load(Ordering::Acquire))
    }
}

/// A call that waits for a lock: from here on it is wanted, until this is dropped.
pub struct Wait(Rc<Inside>);

impl Wait {
    /// The lock, where it is held and no other call of this runtime has it.
    pub fn take(&self) -> Option<Held> {
        if self.0.is_taken.get() {
            return None;
        }
        if self.0.shared.lost.load(Ordering::Acquire) == self.0.shared.wish.load(Ordering::Acquire) {
            self.0.turn(false);
        }
        self.0.turn(true);
        self.0.look();
        self.0.token()?;
        self.0.is_taken.set(true);
        Some(Held(Rc::clone(&self.0)))
    }

    /// Has the token given when the lock may be had. `false`: the caller has to look by itself.
    pub fn until(&self, token: &Token) -> bool {
        self.0.shared.bell.join(token, 0)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get().saturating_sub(1));
        self.0.settle();
        // A token may have been given for a call that has gone.
        if !self.0.is_taken.get() && self.0.waiting.get() > 0 {
            self.0.shared.bell.try_ring();
        }
    }
}

/// A lock that this call has, until it is dropped.
pub struct Held(Rc<Inside>);

impl Held {
    /// Its token, while the lease lasts by this process' clock. Something else than a store that
    /// the lock guards is to refuse a token that is less than the last one.
    pub fn token(&self) -> Option<u64> {
        self.0.token()
    }

    /// Reads its value, as the holder before left it; empty before the first write.
    pub fn read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let grant = self.0.grant.try_borrow().ok()?;
        grant.as_ref().map(|grant| read(&grant.value))
    }

    /// Writes its value; `Cx::put` waits for the answer. `None`: the lease is over, or a write is
    /// under way.
    pub fn begin_put(&self, value: Vec<u8>) -> Option<u32> {
        let token = self.0.token()?;
        let mut put = self.0.shared.put.try_lock()?;
        let number = self.0.asked_puts.get();
        if put.is_some() || number != self.0.shared.puts.load(Ordering::Acquire) {
            return None;
        }
        *put = Some((token, value));
        drop(put);
        self.0.asked_puts.set(number.wrapping_add(1));
        self.0.thread.ring();
        Some(number.wrapping_add(1))
    }

    /// Has the token given when a write is answered. `false`: the caller has to look by itself.
    pub fn until(&self, token: &Token) -> bool {
        self.0.shared.written.join(token, 0)
    }

    /// Whether a write is stored; `None` while that is not known.
    pub fn put_state(&self, number: u32) -> Option<Result<(), NotHeld>> {
        let shared = &self.0.shared;
        let is_over = shared.puts.load(Ordering::Acquire) == number;
        is_over.then(|| match shared.is_refused.load(Ordering::Acquire) {
            true => Err(NotHeld::Lost),
            false => Ok(()),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
        // Others get it in between, though a call of this runtime waits.
        self.0.turn(false);
        self.0.shared.heard.fetch_add(1, Ordering::AcqRel);
        self.0.shared.bell.try_ring();
    }
}

/// The thread's half.
struct Half {
    name: String,
    lease: Duration,
    shared: Weak<Shared>,
}

impl Half {
    fn say(&self, say: impl FnOnce(&Shared)) {
        if let Some(shared) = self.shared.upgrade() {
            say(&shared);
            shared.heard.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Locking for Half {
    fn name(&self) -> &str {
        &self.name
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn is_there(&self) -> bool {
        self.shared.strong_count() > 0
    }

    fn wish(&self) -> u32 {
        self.shared
            .upgrade()
            .map_or(0, |shared| shared.wish.load(Ordering::Acquire))
    }

    fn hold(&mut self, wish: u32, token: u64, until_ns: u64, value: Vec<u8>) {
        self.say(|shared| {
            shared.until_ns.store(until_ns, Ordering::Release);
            let before = shared.grant.lock().replace(Grant { wish, token, value });
            drop(before);
            shared.bell.ring();
        });
    }

    fn renew(&mut self, until_ns: u64) {
        if let Some(shared) = self.shared.upgrade() {
            shared.until_ns.store(until_ns, Ordering::Release);
        }
    }

    fn lose(&mut self, wish: u32) {
        self.say(|shared| {
            shared.until_ns.store(0, Ordering::Release);
            shared.lost.store(wish, Ordering::Release);
            let before = shared.grant.lock().take();
            drop(before);
            shared.bell.ring();
        });
    }

    fn to_put(&mut self) -> Option<(u64, Vec<u8>)> {
        self.shared.upgrade()?.put.lock().take()
    }

    fn put_done(&mut self, is_stored: bool) {
        self.say(|shared| {
            shared.is_refused.store(!is_stored, Ordering::Release);
            shared.puts.fetch_add(1, Ordering::AcqRel);
            shared.written.ring();
        });
    }
}

fn pair(name: &str, lease: Duration) -> (Arc<Shared>, Half) {
    let shared = Arc::new(Shared::default());
    let half = Half {
        name: name.to_string(),
        lease,
        shared: Arc::downgrade(&shared),
    };
    (shared, half)
}

fn lock(shared: Arc<Shared>, thread: Arc<dyn Merger>) -> Lock {
    Lock(Some(Rc::new(Inside {
        shared,
        thread,
        grant: RefCell::new(None),
        waiting: Cell::new(0),
        is_taken: Cell::new(false),
        asked_puts: Cell::new(0),
    })))
}

impl Variables {
    /// Opens a lock of the function's, for all its runtimes and members. A holder that dies frees
    /// it after `lease`.
    pub fn lock(&mut self, name: &str, lease: Duration) -> Result<Lock, OpenError> {
        let (shared, half) = pair(name, lease);
        let loader = self.catalog()?.loader.clone();
        let thread = match loader {
            Some(loader) => loader.lock(Box::new(half))?,
            None => None,
        };
        Ok(thread.map_or(Lock(None), |thread| lock(shared, thread)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock(AtomicU64);

    impl Merger for Clock {
        fn ring(&self) {}
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn one_call_at_a_time_has_a_lock_and_the_next_asks_again() {
        let clock = Arc::new(Clock(AtomicU64::new(5)));
        let (shared, mut half) = pair("l", Duration::from_secs(1));
        let handle = lock(shared, Arc::clone(&clock) as Arc<dyn Merger>);
        let (first, second) = (handle.wait().expect("a store"), handle.wait().expect("a store"));
        assert!(first.take().is_none() && half.wish() == 1);
        half.hold(1, 7, 10, alloc::vec![1]);
        let held = first.take().expect("held");
        assert_eq!(
            (held.token(), held.read(|value| value == [1])),
            (Some(7), Some(true))
        );
        assert!(second.take().is_none());
        let put = held.begin_put(alloc::vec![2]).expect("a write");
        assert!(held.begin_put(alloc::vec![3]).is_none());
        assert_eq!(
            (held.put_state(put), half.to_put()),
            (None, Some((7, alloc::vec![2])))
        );
        half.put_done(true);
        assert_eq!(held.put_state(put), Some(Ok(())));
        // Its lease is over by the clock, and is renewed.
        clock.0.store(10, Ordering::Relaxed);
        assert_eq!((held.token(), held.begin_put(alloc::vec![4])), (None, None));
        half.renew(20);
        assert_eq!(held.token(), Some(7));
        drop((held, first));
        // Freed; a lock held for an earlier wish is not the next call's.
        assert_eq!(half.wish(), 2);
        assert!(second.take().is_none() && half.wish() == 3);
        half.hold(1, 7, 20, Vec::new());
        assert!(second.take().is_none());
        half.hold(3, 8, 20, Vec::new());
        let held = second.take().expect("held");
        let put = held.begin_put(alloc::vec![5]).expect("a write");
        half.put_done(false);
        assert_eq!(
            (held.token(), held.put_state(put)),
            (Some(8), Some(Err(NotHeld::Lost)))
        );
        drop(held);
        assert!(second.take().is_none() && half.wish() == 5);
        half.hold(5, 9, 30, Vec::new());
        half.lose(5);
        // A lock that was lost before a call had it is asked for again.
        assert!(second.take().is_none() && half.wish() == 7);
        drop(second);
        assert_eq!(half.wish(), 8);
        // A call that goes before it has the lock wants none any more.
        let gone = handle.wait().expect("a store");
        assert!(gone.take().is_none() && half.wish() == 9);
        drop(gone);
        assert_eq!(half.wish(), 10);
        drop(handle);
        assert!(!half.is_there());
    }

    #[test]
    fn without_a_store_there_is_no_lock() {
        let lock = Variables::local()
            .lock("l", Duration::from_secs(1))
            .expect("opened");
        assert_eq!((lock.wait().err(), lock.heard()), (Some(NotHeld::NoStore), 0));
    }
}
