//! A list.
//!
//! An element is stored under its place, a number that grows from front to back and stays while the
//! element does: the front's place is `front`, and places are without gaps. So both ends are cheap.
//! `insert` and `remove` in the middle move the elements behind, as in a `VecDeque`, and each that
//! is moved is a change.
//!
//! Places on a line, after two `push_back` and a `push_front`:
//!
//! ```text
//!   place   -1   0   1
//!           c    a   b        front = -1, length = 3
//! ```
//!
//! An element is measured with the longest place that there is, so that it can stand anywhere once
//! it has been taken.
//!
//! A process that dies after some batches of a change of many elements and before the rest leaves
//! gaps at the store. The list closes them when it is opened.

use crate::Kind;
use crate::cells::{Cells, Refusal, Stored, measure};
use crate::open::{OpenError, Variables};
use crate::shelf::Options;
use crate::table::Table;
use crate::ticket::Ticket;
use alloc::vec::Vec;
use core::cell::Cell;

/// A list with two ends.
#[derive(Clone)]
pub struct List<T>(Table<i64, T>);

/// The front's place: the part that all handles of a list share besides the elements.
struct Front(Cell<i64>);

impl<T: Stored> List<T> {
    pub(crate) fn open(variables: &mut Variables, name: &str, options: Options) -> Result<Self, OpenError> {
        let list = List(Table::open(variables, Kind::List, name, options)?);
        // Gaps are closed before the first packet.
        list.front_place();
        Ok(list)
    }

    /// Where the elements begin, once gaps are closed.
    fn close_gaps(table: &Table<i64, T>) -> Front {
        let mut places = Vec::with_capacity(table.len());
        table.for_each(|place, _| places.push(*place));
        places.sort_unstable();
        let front = places.first().copied().unwrap_or(0);
        // Front to back: a place that is taken has been moved away from before.
        for (position, place) in places.into_iter().enumerate() {
            let to = at(front, position);
            if to != place
                && let Some(element) = table.remove(&place).ok().flatten()
            {
                let _ = table.insert(&to, element);
            }
        }
        Front(Cell::new(front))
    }

    fn front_place(&self) -> Option<&Front> {
        self.0.extra(|| Self::close_gaps(&self.0))
    }

    fn first(&self) -> i64 {
        self.front_place().map_or(0, |front| front.0.get())
    }

    fn set_first(&self, place: i64) {
        if let Some(front) = self.front_place() {
            front.0.set(place);
        }
    }

    fn place(&self, position: usize) -> i64 {
        at(self.first(), position)
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a position, from 0.
    pub fn get(&self, position: usize) -> Option<T> {
        self.0.get(&self.place(position))
    }

    /// The first element.
    pub fn front(&self) -> Option<T> {
        self.get(0)
    }

    /// The last element.
    pub fn back(&self) -> Option<T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Adds an element behind all others.
    pub fn push_back(&self, element: T) -> Result<(), Refusal> {
        fits(&element)?;
        self.0.insert(&self.place(self.len()), element).map(drop)
    }

    /// Adds elements behind all others, until one is refused: those before it are there.
    pub fn extend(&self, elements: impl IntoIterator<Item = T>) -> Result<(), Refusal> {
        elements
            .into_iter()
            .try_for_each(|element| self.push_back(element))
    }

    /// Adds an element before all others.
    pub fn push_front(&self, element: T) -> Result<(), Refusal> {
        fits(&element)?;
        let place = self.first().saturating_sub(1);
        self.0.insert(&place, element)?;
        self.set_first(place);
        Ok(())
    }

    /// Removes the last element.
    pub fn pop_back(&self) -> Result<Option<T>, Refusal> {
        match self.len().checked_sub(1) {
            Some(last) => self.0.remove(&self.place(last)),
            None => Ok(None),
        }
    }

    /// Removes the first element.
    pub fn pop_front(&self) -> Result<Option<T>, Refusal> {
        let place = self.first();
        let element = self.0.remove(&place)?;
        if element.is_some() {
            self.set_first(place.saturating_add(1));
        }
        Ok(element)
    }

    /// Sets the element at a position; answers the one before.
    pub fn set(&self, position: usize, element: T) -> Result<T, Refusal> {
        if position >= self.len() {
            return Err(Refusal::Position);
        }
        fits(&element)?;
        let before = self.0.insert(&self.place(position), element)?;
        before.ok_or(Refusal::Position)
    }

    /// Changes the element at a position; answers the result of `update`. An element that has
    /// become too long is refused, and is as it was. Clones it.
    pub fn update<R>(&self, position: usize, update: impl FnOnce(&mut T) -> R) -> Result<R, Refusal> {
        let mut element = self.get(position).ok_or(Refusal::Position)?;
        let answer = update(&mut element);
        self.set(position, element)?;
        Ok(answer)
    }

    /// Swaps the elements at two positions.
    pub fn swap(&self, one: usize, other: usize) -> Result<(), Refusal> {
        let (Some(first), Some(second)) = (self.get(one), self.get(other)) else {
            return Err(Refusal::Position);
        };
        if one != other {
            self.set(one, second)?;
            self.set(other, first)?;
        }
        Ok(())
    }

    /// Puts an element at a position; those from there on move by one.
    pub fn insert(&self, position: usize, element: T) -> Result<(), Refusal> {
        let count = self.len();
        if position > count {
            return Err(Refusal::Position);
        }
        // The last one first: should the list be full, nothing has changed.
        let Some(last) = count.checked_sub(1).and_then(|last| self.get(last)) else {
            return self.push_back(element);
        };
        if position == count {
            return self.push_back(element);
        }
        // An element that cannot be stored is refused before anything moves.
        fits(&element)?;
        self.push_back(last)?;
        for at in (position..count).rev() {
            if let Some(moved) = at
                .checked_sub(1)
                .filter(|_| at > position)
                .and_then(|from| self.get(from))
            {
                self.set(at, moved)?;
            }
        }
        self.set(position, element).map(drop)
    }

    /// Removes the element at a position; those behind move by one.
    pub fn remove(&self, position: usize) -> Result<Option<T>, Refusal> {
        let count = self.len();
        let Some(element) = self.get(position) else {
            return Ok(None);
        };
        if position == 0 {
            return self.pop_front();
        }
        for at in position..count.saturating_sub(1) {
            if let Some(moved) = self.get(at + 1) {
                self.set(at, moved)?;
            }
        }
        self.pop_back()?;
        Ok(Some(element))
    }

    /// Removes each element that `keep` refuses; the others stay in their order. Elements at the
    /// front go without a change of others; each element moved behind another gap is a change.
    /// Allocates.
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) -> Result<(), Refusal> {
        let mut kept = Vec::with_capacity(self.len());
        self.for_each(|element| kept.push(keep(element)));
        let gone = kept.iter().take_while(|kept| !**kept).count();
        for _ in 0..gone {
            self.pop_front()?;
        }
        let mut to = 0;
        for (from, _) in kept.iter().skip(gone).enumerate().filter(|(_, kept)| **kept) {
            if let Some(element) = self.get(from).filter(|_| from != to) {
                self.set(to, element)?;
            }
            to += 1;
        }
        self.truncate(to)
    }

    /// Keeps the first `count` elements.
    pub fn truncate(&self, count: usize) -> Result<(), Refusal> {
        while self.len() > count {
            self.pop_back()?;
        }
        Ok(())
    }

    /// Removes all elements, at the store in one change.
    pub fn clear(&self) -> Result<(), Refusal> {
        self.0.clear()?;
        self.set_first(0);
        Ok(())
    }

    /// Whether an element equals this one.
    pub fn contains(&self, element: &T) -> bool
    where
        T: PartialEq,
    {
        self.any(|other| other == element)
    }

    /// Whether `test` holds for an element: it sees no other behind the first.
    pub fn any(&self, test: impl FnMut(&T) -> bool) -> bool {
        self.position(test).is_some()
    }

    /// The position of the first element for which `test` holds: it sees no other behind that.
    pub fn position(&self, mut test: impl FnMut(&T) -> bool) -> Option<usize> {
        let mut position = 0;
        self.find_map(|element| match test(element) {
            true => Some(position),
            false => {
                position += 1;
                None
            }
        })
    }

    /// The result of `find` for the first element, from the front on, for which it has one: it sees
    /// no other behind that.
    pub fn find_map<R>(&self, mut find: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let first = self.first();
        let find = |cells: &Cells<i64, T>| {
            let mut places = (0..cells.len()).map(|position| at(first, position));
            places.find_map(|place| find(cells.get(&place)?))
        };
        self.0.read(find).flatten()
    }

    /// Shows each element, from the front on.
    pub fn for_each(&self, mut each: impl FnMut(&T)) {
        self.0.read(|cells| {
            let places = (0..cells.len()).filter_map(|position| cells.get(&self.place(position)));
            places.for_each(&mut each);
        });
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

/// Whether an element can be stored, wherever in the list it is.
fn fits<T: Stored>(element: &T) -> Result<(), Refusal> {
    measure(&i64::MIN, element)
}

/// The place of a position.
fn at(front: i64, position: usize) -> i64 {
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    front.saturating_add(position)
}
