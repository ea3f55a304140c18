//! A counter.

use crate::Kind;
use crate::open::{OpenError, Variables};
use crate::shelf::Options;
use crate::table::Table;
use crate::ticket::Ticket;

/// A counter, 0 at first. It stops at the ends of its range.
#[derive(Clone)]
pub struct Counter(Table<(), i64>);

impl Counter {
    pub(crate) fn open(variables: &mut Variables, name: &str, options: Options) -> Result<Self, OpenError> {
        let options = Options {
            capacity: 1,
            ..options
        };
        Table::open(variables, Kind::Counter, name, options).map(Counter)
    }

    /// This core's count. The whole function's is a merge (`Store::sum`).
    pub fn get(&self) -> i64 {
        self.0.get(&()).unwrap_or(0)
    }

    /// Adds to it; answers the sum.
    pub fn add(&self, count: i64) -> i64 {
        let add = |sum: &mut i64| {
            *sum = sum.saturating_add(count);
            *sum
        };
        // A single element always has room, and none of its calls runs another's code.
        self.0.change(&(), 0, add).unwrap_or(0)
    }

    /// Sets it; answers its value of before.
    pub fn set(&self, count: i64) -> i64 {
        let set = |sum: &mut i64| core::mem::replace(sum, count);
        self.0.change(&(), 0, set).unwrap_or(0)
    }

    /// Removes it from the store; it is 0 then. Answers its value of before.
    pub fn delete(&self) -> i64 {
        self.0.remove(&()).ok().flatten().unwrap_or(0)
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
