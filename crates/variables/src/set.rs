//! A set.

use crate::Kind;
use crate::cells::{Key, Refusal};
use crate::open::{OpenError, Variables};
use crate::shelf::Options;
use crate::table::Table;
use crate::ticket::Ticket;

/// A set, in no order.
#[derive(Clone)]
pub struct Set<T>(Table<T, ()>);

impl<T: Key> Set<T> {
    pub(crate) fn open(variables: &mut Variables, name: &str, options: Options) -> Result<Self, OpenError> {
        Table::open(variables, Kind::Set, name, options).map(Set)
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has the element.
    pub fn contains(&self, element: &T) -> bool {
        self.0.read(|cells| cells.get(element).is_some()) == Some(true)
    }

    /// Adds an element; answers whether it is new. An element that is there is no change.
    pub fn insert(&self, element: &T) -> Result<bool, Refusal> {
        if self.contains(element) {
            return Ok(false);
        }
        self.0.insert(element, ()).map(|before| before.is_none())
    }

    /// Removes an element; answers whether it was there.
    pub fn remove(&self, element: &T) -> Result<bool, Refusal> {
        self.0.remove(element).map(|before| before.is_some())
    }

    /// Removes each element that `keep` refuses. Allocates.
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) -> Result<(), Refusal> {
        self.0.retain(|element, ()| keep(element))
    }

    /// Removes all elements, at the store in one change.
    pub fn clear(&self) -> Result<(), Refusal> {
        self.0.clear()
    }

    /// Shows each element. The set cannot change meanwhile.
    pub fn for_each(&self, mut each: impl FnMut(&T)) {
        self.0.for_each(|element, ()| each(element));
    }

    /// Whether `test` holds for an element: it sees no other behind the first.
    pub fn any(&self, mut test: impl FnMut(&T) -> bool) -> bool {
        self.find_map(|element| test(element).then_some(())).is_some()
    }

    /// The result of `find` for the first element for which it has one, in no order: it sees no
    /// other behind that.
    pub fn find_map<R>(&self, mut find: impl FnMut(&T) -> Option<R>) -> Option<R> {
        self.0.find_map(|element, ()| find(element))
    }

    /// Whether the other set has all of its elements.
    pub fn is_subset(&self, other: &Set<T>) -> bool {
        self.len() <= other.len() && !self.any(|element| !other.contains(element))
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
