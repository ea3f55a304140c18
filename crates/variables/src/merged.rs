//! A variable of the whole function, over all its runtimes and members (FlexState VI-B).
//!
//! Each runtime has a part of a variable. A function that needs the whole opens a merged view of
//! it beside its own part, and reads the view without waiting:
//!
//! ```text
//!   worker                                     the store's thread of merges
//!   Merged ── ask ──► asked: 3 ── rings ─────► a merge begins: it answers questions up to 3
//!     │                                          reads each partition at the store, and folds
//!     ◄── looks ── exchange: the new view ◄───── the view, and when its merge began
//!     └─────────── exchange: the view before ──► freed there
//! ```
//!
//! A merge is made on a cycle, and when a function asks. A view is as of the moment its merge
//! began, less changes that the store had not been told of by then: its age says the former. It has
//! the counts of instances that have ended, since the store has their partitions.
//!
//! Invariants: the worker takes views and gives them back without waiting or freeing memory, since
//! the thread empties the exchange before each view. A question is answered by a merge that began
//! after it (`a_question_is_answered_by_a_merge_that_began_after_it`).
//!
//! Not here: the thread, and reading partitions (`stores::merge`).

use crate::cells::{Key, Stored};
use crate::open::{OpenError, Variables};
use crate::wake::{Bell, Token};
use crate::{Kind, decoded};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use hashbrown::{HashMap, HashSet};
use spin::Mutex;

/// Counts of the whole function, by key.
pub type Sums<K> = HashMap<K, i64>;
/// Elements that are in the set of some runtime.
pub type Union<T> = HashSet<T>;

/// The store made no merge: it did not answer, it has something else by this name, or there is
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store made no merge; `flowkeep status` says how it does, and `[store]` names it")]
pub struct Unmerged;

/// A merge that the store's thread makes. It is asked for its part between two looks at the store.
pub trait Merging: Send {
    /// The variable's kind.
    fn kind(&self) -> Kind;
    /// Its name.
    fn name(&self) -> &str;
    /// Whether a function has the view.
    fn is_wanted(&self) -> bool;
    /// The number of the last question.
    fn asked(&self) -> u32;
    /// A merge begins.
    fn begin(&mut self);
    /// An element of some partition; `false`: it is none of this variable's type.
    fn element(&mut self, field: &[u8], value: &[u8]) -> bool;
    /// All partitions were read: it answers questions up to `asked`, as of `began_ns`.
    fn publish(&mut self, asked: u32, began_ns: u64);
    /// There is no merge for questions up to `asked`.
    fn fail(&mut self, asked: u32);
}

/// The thread that makes merges, as a view reaches it.
pub trait Merger: Send + Sync {
    /// A view was asked for.
    fn ring(&self);
    /// Its clock, in nanoseconds.
    fn now_ns(&self) -> u64;
}

struct View<R> {
    merged: R,
    asked: u32,
    began_ns: u64,
}

struct Exchange<R> {
    new: Option<Box<View<R>>>,
    old: Option<Box<View<R>>>,
}

struct Shared<R> {
    asked: AtomicU32,
    failed: AtomicU32,
    /// Views and failures so far.
    heard: AtomicU32,
    /// Held for as long as a pointer needs to change places; the worker only tries.
    exchange: Mutex<Exchange<R>>,
    /// Calls that wait for an answer.
    bell: Bell,
}

struct Inside<R> {
    shared: Arc<Shared<R>>,
    merger: Arc<dyn Merger>,
    view: RefCell<Option<Box<View<R>>>>,
    heard: Cell<u32>,
}

impl<R> Inside<R> {
    /// Takes the newest view, if there is one.
    fn look(&self) {
        let heard = self.shared.heard.load(Ordering::Acquire);
        if heard == self.heard.get() {
            return;
        }
        // While it is being read, it stays.
        let (Some(mut exchange), Ok(mut view)) =
            (self.shared.exchange.try_lock(), self.view.try_borrow_mut())
        else {
            return;
        };
        if exchange.new.is_some() {
            let new = exchange.new.take();
            exchange.old = core::mem::replace(&mut *view, new);
        }
        self.heard.set(heard);
    }
}

/// Whether `number` was reached by `last`: both count on past their range.
fn is_reached(last: u32, number: u32) -> bool {
    last.wrapping_sub(number) < u32::MAX / 2
}

/// A variable of the whole function: a merge of all its parts, as the store has them.
pub struct Merged<R>(Option<Rc<Inside<R>>>);

impl<R> Clone for Merged<R> {
    fn clone(&self) -> Self {
        Merged(self.0.clone())
    }
}

impl<R: Send + 'static> Merged<R> {
    /// Reads the last view. `None`: no merge has been made yet, or the variables are in no store.
    pub fn read<T>(&self, read: impl FnOnce(&R) -> T) -> Option<T> {
        let inside = self.0.as_deref()?;
        inside.look();
        let view = inside.view.try_borrow().ok()?;
        view.as_ref().map(|view| read(&view.merged))
    }

    /// The last view.
    pub fn get(&self) -> Option<R>
    where
        R: Clone,
    {
        self.read(R::clone)
    }

    /// How long ago the merge of the last view began. Changes that the store was told of later are
    /// not in it.
    pub fn age(&self) -> Option<Duration> {
        let inside = self.0.as_deref()?;
        inside.look();
        let view = inside.view.try_borrow().ok()?;
        let began = view.as_ref()?.began_ns;
        Some(Duration::from_nanos(inside.merger.now_ns().saturating_sub(began)))
    }

    /// Asks for a merge that begins from now on, whatever the cycle; `cx.merged(&asked).await`
    /// waits for it.
    pub fn ask(&self) -> Asked<R> {
        let number = self.0.as_deref().map_or(0, |inside| {
            let number = inside.shared.asked.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            inside.merger.ring();
            number
        });
        Asked {
            inside: self.0.clone(),
            number,
        }
    }

    /// Changes when a question may be answered: for `NetworkFunction::generation`, by which calls
    /// that wait go on.
    pub fn heard(&self) -> u32 {
        self.0
            .as_deref()
            .map_or(0, |inside| inside.shared.heard.load(Ordering::Acquire))
    }
}

/// A merge that was asked for.
#[must_use = "a question that is dropped is still answered, and says nothing"]
pub struct Asked<R> {
    inside: Option<Rc<Inside<R>>>,
    number: u32,
}

/// Something that was asked for and comes later: calls of functions wait for it.
pub trait Answer {
    /// Whether it is there: `None` while that is not known.
    fn state(&self) -> Option<Result<(), Unmerged>>;

    /// Has the token given when it is there. `false`: the caller has to look by itself.
    fn until(&self, token: &Token) -> bool;
}

impl<R: Send + 'static> Answer for Asked<R> {
    fn state(&self) -> Option<Result<(), Unmerged>> {
        let Some(inside) = self.inside.as_deref() else {
            return Some(Err(Unmerged));
        };
        inside.look();
        let view = inside.view.try_borrow().ok()?;
        if view
            .as_ref()
            .is_some_and(|view| is_reached(view.asked, self.number))
        {
            return Some(Ok(()));
        }
        is_reached(inside.shared.failed.load(Ordering::Acquire), self.number).then_some(Err(Unmerged))
    }

    fn until(&self, token: &Token) -> bool {
        let inside = self.inside.as_deref();
        inside.is_some_and(|inside| inside.shared.bell.join(token, self.number))
    }
}

/// The thread's half of a view.
struct Fold<K, V, R, F> {
    kind: Kind,
    name: String,
    shared: Weak<Shared<R>>,
    fold: F,
    merged: R,
    types: PhantomData<fn(K, V)>,
}

impl<K, V, R, F> Merging for Fold<K, V, R, F>
where
    K: Key,
    V: Stored,
    R: Default + Send + 'static,
    F: FnMut(&mut R, K, V) + Send,
{
    fn kind(&self) -> Kind {
        self.kind
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_wanted(&self) -> bool {
        self.shared.strong_count() > 0
    }

    fn asked(&self) -> u32 {
        let shared = self.shared.upgrade();
        shared.map_or(0, |shared| shared.asked.load(Ordering::Acquire))
    }

    fn begin(&mut self) {
        self.merged = R::default();
    }

    fn element(&mut self, field: &[u8], value: &[u8]) -> bool {
        let (Some(key), Some(value)) = (decoded::<K>(field), decoded::<V>(value)) else {
            return false;
        };
        (self.fold)(&mut self.merged, key, value);
        true
    }

    fn publish(&mut self, asked: u32, began_ns: u64) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut view = Some(Box::new(View {
            merged: core::mem::take(&mut self.merged),
            asked,
            began_ns,
        }));
        let mut exchange = shared.exchange.lock();
        core::mem::swap(&mut exchange.new, &mut view);
        let old = exchange.old.take();
        drop(exchange);
        shared.heard.fetch_add(1, Ordering::AcqRel);
        shared.bell.reach(|number| is_reached(asked, number));
        // A view that no worker took, and a view that a worker gave back: freed here, with no lock
        // held.
        drop((view, old));
    }

    fn fail(&mut self, asked: u32) {
        if let Some(shared) = self.shared.upgrade() {
            shared.failed.store(asked, Ordering::Release);
            shared.heard.fetch_add(1, Ordering::AcqRel);
            shared.bell.reach(|number| is_reached(asked, number));
        }
    }
}

impl Variables {
    /// Opens a merged view of a counter: its sum over all runtimes and members.
    pub fn merged_counter(&mut self, name: &str) -> Result<Merged<i64>, OpenError> {
        self.merged(Kind::Counter, name, |sum: &mut i64, (), count: i64| {
            *sum = sum.saturating_add(count);
        })
    }

    /// Opens a merged view of a map of counters: the sum of each key.
    pub fn merged_counter_map<K: Key + Send>(&mut self, name: &str) -> Result<Merged<Sums<K>>, OpenError> {
        self.merged(
            Kind::CounterMap,
            name,
            |sums: &mut Sums<K>, key: K, count: i64| {
                let sum = sums.entry(key).or_default();
                *sum = sum.saturating_add(count);
            },
        )
    }

    /// Opens a merged view of a set: elements that are in some runtime's.
    pub fn merged_set<T: Key + Send>(&mut self, name: &str) -> Result<Merged<Union<T>>, OpenError> {
        self.merged(Kind::Set, name, |all: &mut Union<T>, element: T, ()| {
            all.insert(element);
        })
    }

    /// Opens a merged view of a variable of any kind: `fold` takes each element of each runtime's
    /// part, in no order. A list's keys are positions, a value's is `()`.
    pub fn merged<K: Key, V: Stored, R: Default + Send + 'static>(
        &mut self,
        kind: Kind,
        name: &str,
        fold: impl FnMut(&mut R, K, V) + Send + 'static,
    ) -> Result<Merged<R>, OpenError> {
        let shared = Arc::new(Shared {
            asked: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            exchange: Mutex::new(Exchange { new: None, old: None }),
            bell: Bell::default(),
        });
        let merging = Fold {
            kind,
            name: name.to_string(),
            shared: Arc::downgrade(&shared),
            fold,
            merged: R::default(),
            types: PhantomData,
        };
        let loader = self.catalog()?.loader.clone();
        let merger = match loader {
            Some(loader) => loader.merge(Box::new(merging))?,
            None => None,
        };
        Ok(Merged(merger.map(|merger| {
            Rc::new(Inside {
                shared,
                merger,
                view: RefCell::new(None),
                heard: Cell::new(0),
            })
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock;

    impl Merger for Clock {
        fn ring(&self) {}
        fn now_ns(&self) -> u64 {
            50
        }
    }

    type Sum = (Merged<i64>, Box<dyn Merging>);

    fn pair() -> Sum {
        let shared = Arc::new(Shared {
            asked: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            exchange: Mutex::new(Exchange { new: None, old: None }),
            bell: Bell::default(),
        });
        let fold = Fold {
            kind: Kind::Counter,
            name: "n".to_string(),
            shared: Arc::downgrade(&shared),
            fold: |sum: &mut i64, (), count: i64| *sum += count,
            merged: 0,
            types: PhantomData,
        };
        let inside = Inside {
            shared,
            merger: Arc::new(Clock),
            view: RefCell::new(None),
            heard: Cell::new(0),
        };
        (Merged(Some(Rc::new(inside))), Box::new(fold))
    }

    fn merge(merging: &mut dyn Merging, counts: &[i8], began_ns: u64) {
        let asked = merging.asked();
        merging.begin();
        for count in counts {
            // Small counts as postcard has them: twice the number.
            let byte = u8::try_from(count * 2).expect("a small count");
            assert!(merging.element(&[], &[byte]));
        }
        merging.publish(asked, began_ns);
    }

    #[test]
    fn a_question_is_answered_by_a_merge_that_began_after_it() {
        let (merged, mut merging) = pair();
        assert_eq!((merged.get(), merged.age()), (None, None));
        merge(&mut *merging, &[1, 2], 10);
        assert_eq!(
            (merged.get(), merged.age()),
            (Some(3), Some(Duration::from_nanos(40)))
        );
        // The merge began before the question.
        let before = merging.asked();
        let asked = merged.ask();
        merging.begin();
        merging.publish(before, 20);
        assert_eq!((merged.get(), asked.state()), (Some(0), None));
        merge(&mut *merging, &[5], 30);
        assert_eq!((asked.state(), merged.get()), (Some(Ok(())), Some(5)));
        let asked = merged.ask();
        let heard = merged.heard();
        merging.fail(merging.asked());
        assert_ne!(merged.heard(), heard);
        // The last view stays.
        assert_eq!((asked.state(), merged.get()), (Some(Err(Unmerged)), Some(5)));
        let asked = merged.ask();
        merge(&mut *merging, &[6], 40);
        assert_eq!(asked.state(), Some(Ok(())));
    }

    #[test]
    fn a_view_stays_while_it_is_read_and_the_last_one_counts() {
        let (merged, mut merging) = pair();
        merge(&mut *merging, &[1], 1);
        let during = merged.read(|first| {
            merge(&mut *merging, &[2], 2);
            (*first, merged.get())
        });
        assert_eq!(during, Some((1, Some(1))));
        merge(&mut *merging, &[3], 3);
        merge(&mut *merging, &[4], 4);
        assert_eq!(merged.get(), Some(4));
        assert!(!merging.element(&[], &[]));
        drop(merged);
        assert!(!merging.is_wanted());
        merge(&mut *merging, &[], 5);
    }

    #[test]
    fn without_a_store_there_is_no_view() {
        let merged = Variables::local().merged_counter("n").expect("opened");
        assert_eq!((merged.get(), merged.age(), merged.heard()), (None, None, 0));
        assert_eq!(merged.ask().state(), Some(Err(Unmerged)));
    }
}
