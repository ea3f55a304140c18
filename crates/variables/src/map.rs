//! A map.

use crate::Kind;
use crate::cells::{Key, Near, Refusal, Stored};
use crate::open::{OpenError, Variables};
use crate::shelf::Options;
use crate::table::Table;
use crate::ticket::Ticket;

/// A map, in no order.
#[derive(Clone)]
pub struct Map<K, V>(Table<K, V>);

impl<K: Key, V: Stored> Map<K, V> {
    pub(crate) fn open(variables: &mut Variables, name: &str, options: Options) -> Result<Self, OpenError> {
        Table::open(variables, Kind::Map, name, options).map(Map)
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key's value.
    pub fn get(&self, key: &K) -> Option<V> {
        self.0.get(key)
    }

    /// Whether it has the key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.0.read(|cells| cells.get(key).is_some()) == Some(true)
    }

    /// Sets the key's value; answers the one before.
    pub fn insert(&self, key: &K, value: V) -> Result<Option<V>, Refusal> {
        self.0.insert(key, value)
    }

    /// Sets the key's value to the result of `update`.
    pub fn update(&self, key: &K, update: impl FnOnce(Option<V>) -> V) -> Result<(), Refusal> {
        self.insert(key, update(self.get(key))).map(drop)
    }

    /// Changes the key's value where it is, which is `default` where there is none. For values of a
    /// bounded length.
    pub fn change<R>(&self, key: &K, default: V, change: impl FnOnce(&mut V) -> R) -> Result<R, Refusal> {
        self.0.change(key, default, change)
    }

    /// [`Map::change`] of an element that is probably where it was when it was changed last. The
    /// cause of the change was there `age` nanoseconds ago, which dates the change.
    pub fn change_near<R>(
        &self,
        key: &K,
        (near, age): (&mut Near, u64),
        default: V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, Refusal> {
        self.0.change_near(key, (near, age), default, change)
    }

    /// Removes a key; answers its value.
    pub fn remove(&self, key: &K) -> Result<Option<V>, Refusal> {
        self.0.remove(key)
    }

    /// Removes each element that `keep` refuses. Allocates.
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) -> Result<(), Refusal> {
        self.0.retain(keep)
    }

    /// Removes all elements, at the store in one change.
    pub fn clear(&self) -> Result<(), Refusal> {
        self.0.clear()
    }

    /// Shows each element. The map cannot change meanwhile.
    pub fn for_each(&self, each: impl FnMut(&K, &V)) {
        self.0.for_each(each);
    }

    /// Whether `test` holds for an element: it sees no other behind the first.
    pub fn any(&self, mut test: impl FnMut(&K, &V) -> bool) -> bool {
        self.find_map(|key, value| test(key, value).then_some(()))
            .is_some()
    }

    /// The result of `find` for the first element for which it has one, in no order: it sees no
    /// other behind that.
    pub fn find_map<R>(&self, find: impl FnMut(&K, &V) -> Option<R>) -> Option<R> {
        self.0.find_map(find)
    }

    /// Changes when tickets of this variable may be over: for `NetworkFunction::generation`, by
    /// which calls that wait go on.
    pub fn heard(&self) -> u32 {
        self.0.heard()
    }

    /// The number of the last change: each has one more than that before.
    pub fn changes(&self) -> u64 {
        self.0.changes()
    }

    /// Up to which number the store has all changes. Of a variable without a store: up to the last.
    pub fn stored_up_to(&self) -> u64 {
        self.0.stored_up_to()
    }

    /// Waits until the store has every change so far.
    pub fn stored(&self) -> Ticket {
        self.0.stored()
    }
}
