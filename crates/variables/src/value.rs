//! A single value.

use crate::Kind;
use crate::cells::{Refusal, Stored};
use crate::open::{OpenError, Variables};
use crate::shelf::Options;
use crate::table::Table;
use crate::ticket::Ticket;

/// A single value, or none.
#[derive(Clone)]
pub struct Value<T>(Table<(), T>);

impl<T: Stored> Value<T> {
    pub(crate) fn open(variables: &mut Variables, name: &str, options: Options) -> Result<Self, OpenError> {
        let options = Options {
            capacity: 1,
            ..options
        };
        Table::open(variables, Kind::Value, name, options).map(Value)
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<T> {
        self.0.get(&())
    }

    /// Sets it; answers the one before.
    pub fn set(&self, value: T) -> Result<Option<T>, Refusal> {
        self.0.insert(&(), value)
    }

    /// Sets it to the result of `update`.
    pub fn update(&self, update: impl FnOnce(Option<T>) -> T) -> Result<(), Refusal> {
        self.set(update(self.get())).map(drop)
    }

    /// Removes it; answers its value of before.
    pub fn delete(&self) -> Result<Option<T>, Refusal> {
        self.0.remove(&())
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
