//! The local copy of a variable: elements, and which of them the store has yet to be told of.
//!
//! ```text
//!             insert                     shipped
//!    free ─────────────► waiting, new ─────────────► at rest ──┐ changed
//!     ▲                     │     ▲                     │  ▲   ▼
//!     │ removed: no store   │     └─ changed again ─┐   │  └─ waiting
//!     │ has heard of it     │                       │   │       │
//!     ├─────────────────────┘                       │   │ removed
//!     │          shipped                            │   ▼
//!     └──────────────────────────────── waiting, gone ◄─────────┘
//! ```
//!
//! Elements that wait are in a list, in the order in which they began to; a change of a waiting
//! element costs nothing more. So a thousand additions to a counter are one write, and the memory
//! is bounded by the capacity: elements, and as many again that are gone and whose removal waits.
//! Nothing is allocated after [`Cells::new`], but what keys and values own.
//!
//! Invariants: an element is in the list once if it waits, else not at all; an element without a
//! value is in the list; the index has each element that is not free. Checkers:
//! `random_calls_equal_a_map_here_and_at_the_store` and `check`.

use crate::buffer::{Buffer, ELEMENT_BYTES_MAX, NoRoom};
use crate::ticket::Progress;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use hashbrown::{DefaultHashBuilder, HashTable};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The bounds of keys and values: plain data that a store can keep (by `postcard`) and that is
/// cheap to clone.
pub trait Stored: Serialize + DeserializeOwned + Clone + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + 'static> Stored for T {}

/// Further bounds of keys.
pub trait Key: Stored + Eq + Hash {}

impl<T: Stored + Eq + Hash> Key for T {}

/// Why a variable did not take a change. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The capacity is reached, by elements that are there, or by removed ones that the store has
    /// not been told of.
    #[error("the variable is full; give it a larger capacity")]
    Full,
    /// The element is too long, or cannot be encoded.
    #[error("the element does not encode into {ELEMENT_BYTES_MAX} bytes; keep less in one")]
    Large,
    /// The variable is being iterated over.
    #[error("the variable cannot change while it is iterated over")]
    Busy,
    /// The instance is not in force yet: it is prepared, and has its variables from `take_over` on.
    #[error("the variable is still the instance's before; change it in `take_over` or later")]
    Early,
    /// A list has no such position.
    #[error("the list has no such position")]
    Position,
}

const NONE: u32 = u32::MAX;

/// Where an element was when it was changed last: it is looked for there first. Kept beside the key
/// by a caller that changes the same elements again and again; of another element it costs a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Near(u32);

impl Default for Near {
    fn default() -> Self {
        Near(NONE)
    }
}

struct Slot<K, V> {
    /// `None` where the slot is free.
    key: Option<K>,
    /// `None` where the element is gone.
    value: Option<V>,
    /// Whether a store may have it.
    known: bool,
    waits: bool,
    /// Of the change by which it began to wait.
    number: u64,
    /// When that was.
    since: u64,
    before: u32,
    after: u32,
}

pub(crate) struct Cells<K, V> {
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    capacity: usize,
    live: usize,
    first: u32,
    last: u32,
    /// The store's copy is emptied before the next change; since when that waits.
    clear: Option<u64>,
    /// Elements that could not be encoded in the end, although they were measured.
    unwritable: u64,
}

/// Looks up an element.
fn slot_of<K, V>(slots: &[Slot<K, V>], at: u32) -> Option<&Slot<K, V>> {
    slots.get(at as usize)
}

impl<K: Key, V: Stored> Cells<K, V> {
    pub fn new(capacity: usize) -> Self {
        let slots = capacity.saturating_mul(2).clamp(2, NONE as usize - 1);
        Cells {
            slots: Vec::with_capacity(slots),
            free: Vec::with_capacity(slots),
            // Twice the elements: so marks of removed entries are swept in place, and the index
            // never grows.
            index: HashTable::with_capacity(slots.saturating_mul(2)),
            hasher: DefaultHashBuilder::default(),
            capacity: slots / 2,
            live: 0,
            first: NONE,
            last: NONE,
            clear: None,
            unwritable: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.live
    }

    pub fn unwritable(&self) -> u64 {
        self.unwritable
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.slots.get(self.find(key)? as usize)?.value.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots
            .iter()
            .filter_map(|slot| Some((slot.key.as_ref()?, slot.value.as_ref()?)))
    }

    /// Sets an element's value; answers the one before.
    pub fn insert(&mut self, key: &K, value: V, progress: &Progress) -> Result<Option<V>, Refusal> {
        measure(key, &value)?;
        let at = self.place(key)?;
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return Err(Refusal::Full);
        };
        let before = slot.value.replace(value);
        self.live += usize::from(before.is_none());
        self.wait(at, progress);
        Ok(before)
    }

    /// Changes an element's value, which is `default` where it is not there. For values of a
    /// bounded length.
    pub fn change<R>(
        &mut self,
        key: &K,
        near: &mut Near,
        default: V,
        change: impl FnOnce(&mut V) -> R,
        progress: &Progress,
    ) -> Result<R, Refusal> {
        let is_near = slot_of(&self.slots, near.0).is_some_and(|slot| slot.key.as_ref() == Some(key));
        let known = match is_near {
            true => Some(near.0),
            false => self.find(key),
        };
        let at = match known {
            Some(at) => at,
            None => {
                measure(key, &default)?;
                self.place(key)?
            }
        };
        near.0 = at;
        // A removed element comes again; there may be no room for it.
        let gone = slot_of(&self.slots, at).is_none_or(|slot| slot.value.is_none());
        if gone && self.live >= self.capacity {
            return Err(Refusal::Full);
        }
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return Err(Refusal::Full);
        };
        let answer = change(slot.value.get_or_insert(default));
        self.live += usize::from(gone);
        self.wait(at, progress);
        Ok(answer)
    }

    /// Removes an element.
    pub fn remove(&mut self, key: &K, progress: &Progress) -> Option<V> {
        let at = self.find(key)?;
        let slot = self.slots.get_mut(at as usize)?;
        let value = slot.value.take()?;
        let known = slot.known;
        self.live = self.live.saturating_sub(1);
        if known {
            self.wait(at, progress);
        } else {
            progress.change();
            self.release(at);
        }
        Some(value)
    }

    /// Removes all elements; the store is told so in one change.
    pub fn clear(&mut self, progress: &Progress) {
        self.slots.clear();
        self.free.clear();
        self.index.clear();
        (self.live, self.first, self.last) = (0, NONE, NONE);
        self.clear = Some(self.clear.unwrap_or(progress.now()));
        progress.change();
    }

    /// An element as a store has it.
    pub fn load(&mut self, key: K, value: V) -> Result<(), Refusal> {
        let at = self.place(&key)?;
        if let Some(slot) = self.slots.get_mut(at as usize) {
            self.live += usize::from(slot.value.is_none());
            slot.value = Some(value);
            slot.known = true;
        }
        Ok(())
    }

    /// Whether the store has yet to be told of something.
    pub fn waits(&self) -> bool {
        self.clear.is_some() || self.first != NONE
    }

    /// Since when the oldest change waits.
    pub fn waits_since(&self) -> Option<u64> {
        let first = slot_of(&self.slots, self.first).map(|slot| slot.since);
        match (self.clear, first) {
            (Some(clear), Some(first)) => Some(clear.min(first)),
            (clear, first) => clear.or(first),
        }
    }

    /// The store has lost its elements, or some of them: all of it is to be written again.
    pub fn spoil(&mut self, progress: &Progress) {
        // Changes that the store has lost have waited since they were sent.
        self.clear = Some(progress.sent_since().unwrap_or(progress.now()));
        progress.change();
        // A ticket of an earlier change waits until all of it is written again.
        let number = progress.stored().saturating_add(1);
        for at in 0..self.slots.len() {
            let Ok(at) = u32::try_from(at) else {
                return;
            };
            let is_there = slot_of(&self.slots, at).is_some_and(|slot| slot.value.is_some());
            if is_there {
                self.wait(at, progress);
            } else {
                self.release(at);
            }
            if let Some(slot) = self.slots.get_mut(at as usize) {
                (slot.known, slot.number) = (false, number);
            }
        }
    }

    /// Writes waiting elements, as far as there is room. Answers up to which number the store then
    /// has all, and since when the oldest written change had waited.
    pub fn ship(&mut self, variable: u32, into: &mut Buffer, progress: &Progress) -> (u64, Option<u64>) {
        let mut oldest = self.clear;
        if self.clear.is_some() {
            if into.clear(variable) == Err(NoRoom) {
                return (0, None);
            }
            self.clear = None;
        }
        while let Some(slot) = self.slots.get_mut(self.first as usize) {
            let at = self.first;
            let Some(key) = &slot.key else {
                self.unlink(at);
                continue;
            };
            let written = match &slot.value {
                Some(value) => into.put(variable, key, value),
                None if slot.known => into.remove(variable, key),
                None => Ok(()),
            };
            if written == Err(NoRoom) {
                if !into.is_empty() {
                    return (slot.number.saturating_sub(1), oldest);
                }
                // The element was measured when it was set, and encodes otherwise now.
                self.unwritable += 1;
            }
            slot.known = true;
            oldest = Some(oldest.map_or(slot.since, |oldest| oldest.min(slot.since)));
            let gone = slot.value.is_none();
            self.unlink(at);
            if gone {
                self.release(at);
            }
        }
        (progress.changed(), oldest)
    }

    fn find(&self, key: &K) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let is_it = |at: &u32| slot_of(&self.slots, *at).is_some_and(|slot| slot.key.as_ref() == Some(key));
        self.index.find(hash, is_it).copied()
    }

    /// The key's slot, or a free slot that becomes it; there is room for its value.
    fn place(&mut self, key: &K) -> Result<u32, Refusal> {
        if let Some(at) = self.find(key) {
            let is_there = slot_of(&self.slots, at).is_some_and(|slot| slot.value.is_some());
            return if is_there || self.live < self.capacity {
                Ok(at)
            } else {
                Err(Refusal::Full)
            };
        }
        if self.live >= self.capacity {
            return Err(Refusal::Full);
        }
        let slot = Slot {
            key: Some(key.clone()),
            value: None,
            known: false,
            waits: false,
            number: 0,
            since: 0,
            before: NONE,
            after: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.slots.get_mut(at as usize) {
                    *place = slot;
                }
                at
            }
            None if self.slots.len() < self.capacity.saturating_mul(2) => {
                let at = u32::try_from(self.slots.len()).map_err(|_| Refusal::Full)?;
                self.slots.push(slot);
                at
            }
            None => return Err(Refusal::Full),
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash = |at: &u32| match slot_of(slots, *at).and_then(|slot| slot.key.as_ref()) {
            Some(key) => hasher.hash_one(key),
            None => 0,
        };
        self.index.insert_unique(hasher.hash_one(key), at, hash);
        Ok(at)
    }

    /// Puts an element at the end of the list, unless it waits already.
    fn wait(&mut self, at: u32, progress: &Progress) {
        let number = progress.change();
        let last = self.last;
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        if slot.waits {
            return;
        }
        (slot.waits, slot.number, slot.since) = (true, number, progress.made_at());
        (slot.before, slot.after) = (last, NONE);
        match self.slots.get_mut(last as usize) {
            Some(before) => before.after = at,
            None => self.first = at,
        }
        self.last = at;
    }

    fn unlink(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        if !slot.waits {
            return;
        }
        slot.waits = false;
        let (before, after) = (slot.before, slot.after);
        match self.slots.get_mut(before as usize) {
            Some(before) => before.after = after,
            None => self.first = after,
        }
        match self.slots.get_mut(after as usize) {
            Some(after) => after.before = before,
            None => self.last = before,
        }
    }

    /// Makes a slot free.
    fn release(&mut self, at: u32) {
        self.unlink(at);
        let Some(key) = self.slots.get_mut(at as usize).and_then(|slot| slot.key.take()) else {
            return;
        };
        let hash = self.hasher.hash_one(&key);
        if let Ok(entry) = self.index.find_entry(hash, |known| *known == at) {
            entry.remove();
        }
        self.free.push(at);
    }

    /// Panics where an invariant does not hold.
    #[cfg(test)]
    pub fn check(&self) {
        let mut listed = std::collections::HashSet::new();
        let (mut at, mut before, mut number) = (self.first, NONE, 0);
        while at != NONE {
            let slot = &self.slots[at as usize];
            assert!(slot.waits && slot.before == before && slot.number >= number && listed.insert(at));
            (before, number, at) = (at, slot.number, slot.after);
        }
        assert_eq!(self.last, before);
        let (mut live, mut taken) = (0, 0);
        for (at, slot) in self.slots.iter().enumerate() {
            let at = u32::try_from(at).unwrap();
            assert_eq!(slot.waits, listed.contains(&at));
            assert_eq!(slot.key.is_none(), self.free.contains(&at));
            if let Some(key) = &slot.key {
                assert_eq!(self.find(key), Some(at));
                assert!(slot.value.is_some() || slot.waits);
                taken += 1;
            }
            live += usize::from(slot.value.is_some());
        }
        assert_eq!((live, taken), (self.live, self.index.len()));
        assert!(self.live <= self.capacity && self.slots.len() <= 2 * self.capacity);
    }
}

/// Whether an element can be stored.
pub(crate) fn measure<K: Serialize, V: Serialize>(key: &K, value: &V) -> Result<(), Refusal> {
    match postcard::experimental::serialized_size(&(key, value)) {
        Ok(length) if length <= ELEMENT_BYTES_MAX => Ok(()),
        _ => Err(Refusal::Large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{CLEAR, PUT, tests::read};
    use alloc::rc::Rc;
    use alloc::string::String;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[derive(Clone, Debug)]
    enum Call {
        Insert(u8, u16),
        Add(u8, u16),
        Remove(u8),
        Clear,
        Spoil,
        Ship,
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            6 => (0..12u8, any::<u16>()).prop_map(|(key, value)| Call::Insert(key, value)),
            4 => (0..12u8, any::<u16>()).prop_map(|(key, value)| Call::Add(key, value)),
            6 => (0..12u8).prop_map(Call::Remove),
            1 => Just(Call::Clear),
            1 => Just(Call::Spoil),
            3 => Just(Call::Ship),
        ]
    }

    proptest! {
        #[test]
        fn random_calls_equal_a_map_here_and_at_the_store(calls in prop::collection::vec(call(), 0..200)) {
            let progress = Progress::new(Rc::default());
            let mut cells = Cells::<u8, u16>::new(8);
            let mut model = HashMap::new();
            // Places of elements, some of which are another's by now.
            let mut near = [Near::default(); 5];
            let mut store = HashMap::<Vec<u8>, Vec<u8>>::new();
            let mut buffer = Buffer::new();
            for call in calls.into_iter().chain([Call::Ship]) {
                match call {
                    Call::Insert(key, value) => match cells.insert(&key, value, &progress) {
                        Ok(before) => prop_assert_eq!(before, model.insert(key, value)),
                        Err(refusal) => prop_assert_eq!(refusal, Refusal::Full),
                    },
                    Call::Add(key, value) => {
                        let near = &mut near[usize::from(key) % 5];
                        match cells.change(&key, near, 0, |n| { *n = n.wrapping_add(value); *n }, &progress) {
                            Ok(now) => {
                                let expected: &mut u16 = model.entry(key).or_default();
                                *expected = expected.wrapping_add(value);
                                prop_assert_eq!(now, *expected);
                            }
                            Err(refusal) => prop_assert_eq!(refusal, Refusal::Full),
                        }
                    }
                    Call::Remove(key) => prop_assert_eq!(cells.remove(&key, &progress), model.remove(&key)),
                    Call::Clear => {
                        cells.clear(&progress);
                        model.clear();
                    }
                    Call::Spoil => {
                        cells.spoil(&progress);
                        store.insert(alloc::vec![99], alloc::vec![99]);
                    }
                    Call::Ship => {
                        buffer.empty();
                        prop_assert_eq!(cells.ship(0, &mut buffer, &progress).0, progress.changed());
                        prop_assert!(!cells.waits());
                        for (form, _, field, value) in read(buffer.bytes()) {
                            match form {
                                CLEAR => store.clear(),
                                PUT => drop(store.insert(field, value)),
                                _ => prop_assert!(store.remove(&field).is_some()),
                            }
                        }
                        let expected: HashMap<_, _> = model
                            .iter()
                            .map(|(k, v)| (postcard::to_allocvec(k).unwrap(), postcard::to_allocvec(v).unwrap()))
                            .collect();
                        prop_assert_eq!(&store, &expected);
                    }
                }
                cells.check();
                prop_assert_eq!(cells.len(), model.len());
                prop_assert_eq!(cells.iter().map(|(k, v)| (*k, *v)).collect::<HashMap<_, _>>(), model.clone());
            }
        }
    }

    #[test]
    fn an_element_that_is_too_long_is_refused_when_it_is_set() {
        let progress = Progress::new(Rc::default());
        let mut cells = Cells::<u8, String>::new(1);
        let long: String = "x".repeat(ELEMENT_BYTES_MAX);
        assert_eq!(cells.insert(&0, long, &progress), Err(Refusal::Large));
        assert_eq!((cells.len(), cells.waits()), (0, false));
        cells.check();
    }
}
