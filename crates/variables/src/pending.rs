//! Handles that wait until their variable is at the worker.

use crate::cells::{Cells, Key, Stored};
use crate::shelf::{Consistency, Inner, Shelf, Ship};
use crate::table::Slot;
use alloc::boxed::Box;
use alloc::rc::Rc;

/// A handle that waits for the worker's copy.
pub(crate) trait Bind {
    fn number(&self) -> u32;
    fn bind(self: Box<Self>, shelf: &mut Shelf);
}

/// One of them.
pub(crate) struct Pending<K, V> {
    /// Where its handles look.
    pub slot: Rc<Slot<K, V>>,
    /// The variable's.
    pub number: u32,
    /// A resolved one.
    pub consistency: Consistency,
    /// The store's elements of a variable that is not open at the worker.
    pub cells: Option<Cells<K, V>>,
}

impl<K: Key, V: Stored> Bind for Pending<K, V> {
    fn number(&self) -> u32 {
        self.number
    }

    fn bind(self: Box<Self>, shelf: &mut Shelf) {
        let there = shelf.get(self.number).map(Rc::clone).map(Ship::any);
        let there = there.and_then(|variable| variable.downcast::<Inner<K, V>>().ok());
        let inner = match (there, self.cells) {
            (Some(inner), _) => {
                inner.set_consistency(self.consistency);
                inner
            }
            (None, Some(cells)) => {
                let inner = Inner::new(shelf, self.number, cells, self.consistency);
                shelf.put(self.number, Rc::clone(&inner) as Rc<dyn Ship>);
                inner
            }
            // The book says that it is there, so this is not reached.
            (None, None) => return,
        };
        self.slot.bind(inner);
    }
}
