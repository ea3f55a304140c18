//! A map of counters.

use crate::Kind;
use crate::cells::{Key, Refusal};
use crate::open::{OpenError, Variables};
use crate::shelf::Options;
use crate::table::Table;
use crate::ticket::Ticket;

/// A counter for each key. A key that is not there counts 0; a counter stops at the ends of its
/// range.
#[derive(Clone)]
pub struct CounterMap<K>(Table<K, i64>);

impl<K: Key> CounterMap<K> {
    pub(crate) fn open(variables: &mut Variables, name: &str, options: Options) -> Result<Self, OpenError> {
        Table::open(variables, Kind::CounterMap, name, options).map(CounterMap)
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key's count.
    pub fn get(&self, key: &K) -> i64 {
        self.0.get(key).unwrap_or(0)
    }

    /// Whether it has the key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.0.read(|cells| cells.get(key).is_some()) == Some(true)
    }

    /// Adds to the key's count; answers the sum.
    pub fn add(&self, key: &K, count: i64) -> Result<i64, Refusal> {
        self.0.change(key, 0, |sum| {
            *sum = sum.saturating_add(count);
            *sum
        })
    }

    /// Sets the key's count; answers the one before, if it was there.
    pub fn set(&self, key: &K, count: i64) -> Result<Option<i64>, Refusal> {
        self.0.insert(key, count)
    }

    /// Removes a key; answers its count.
    pub fn remove(&self, key: &K) -> Result<Option<i64>, Refusal> {
        self.0.remove(key)
    }

    /// Removes each key that `keep` refuses. Allocates.
    pub fn retain(&self, mut keep: impl FnMut(&K, i64) -> bool) -> Result<(), Refusal> {
        self.0.retain(|key, count| keep(key, *count))
    }

    /// Removes all keys, at the store in one change.
    pub fn clear(&self) -> Result<(), Refusal> {
        self.0.clear()
    }

    /// Shows each key and its count. The map cannot change meanwhile.
    pub fn for_each(&self, mut each: impl FnMut(&K, i64)) {
        self.0.for_each(|key, count| each(key, *count));
    }

    /// Whether `test` holds for a key and its count: it sees no other behind the first.
    pub fn any(&self, mut test: impl FnMut(&K, i64) -> bool) -> bool {
        self.find_map(|key, count| test(key, count).then_some(()))
            .is_some()
    }

    /// The result of `find` for the first key and count for which it has one, in no order: it sees
    /// no other behind that.
    pub fn find_map<R>(&self, mut find: impl FnMut(&K, i64) -> Option<R>) -> Option<R> {
        self.0.find_map(|key, count| find(key, *count))
    }

    /// Changes when tickets of this variable may be over: for `NetworkFunction::generation`, by
    /// which calls that wait go on.
    pub fn heard(&self) -> u32 {
        self.0.heard()
    }

    /// Waits until the store has every change so far.
    pub fn stored(&self) -> Ticket {
        self.0.stored()
    }
}
