//! Objects of a kind that are at one runtime, one after the other (S6 5.1, iterators).
//!
//! An object has one holder. So the lists of all runtimes, taken together, are the whole
//! collection: a function lists its objects as rows of a table ([`NetworkFunction::object_rows`]),
//! and the tables of all runtimes are one ([`crate::table`]).
//!
//! Invariant: a look changes nothing, neither an object nor when it ends by time.
//!
//! Not here: an object's copies, which another runtime lists.
//!
//! [`NetworkFunction::object_rows`]: crate::NetworkFunction::object_rows

use super::{Shared, SharedObject, Single, SingleWriter};
use crate::plain::{Plain, from_bytes};
use alloc::boxed::Box;

/// A runtime's objects, by kind.
pub trait Shelf {
    /// Keys and contents of a kind: shorter keys first, then by their bytes.
    fn contents(&self, kind: u16) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_>;
}

/// A kind of objects that can be listed: [`Shared`] or [`Single`].
pub trait Collection {
    /// The type of an object.
    type Object: Plain;
    /// The kind's number at this worker.
    #[doc(hidden)]
    fn kind(&self) -> u16;
}

impl<T: SharedObject> Collection for Shared<T> {
    type Object = T;
    fn kind(&self) -> u16 {
        self.kind
    }
}

impl<T: SingleWriter> Collection for Single<T> {
    type Object = T;
    fn kind(&self) -> u16 {
        self.kind
    }
}

/// The shared objects that are at this runtime, while an operator's question is answered.
#[derive(Clone, Copy, Default)]
pub struct ObjectsHere<'a>(Option<&'a dyn Shelf>);

impl<'a> ObjectsHere<'a> {
    /// The objects of a runtime.
    pub fn of(shelf: &'a dyn Shelf) -> Self {
        ObjectsHere(Some(shelf))
    }

    /// The objects of a kind that are here: shorter keys first, then by their bytes. An object
    /// with one writer is as it was given back last.
    pub fn iter<C: Collection>(self, kind: &C) -> impl Iterator<Item = (&'a [u8], C::Object)> + use<'a, C> {
        let number = kind.kind();
        let all = self.0.into_iter().flat_map(move |shelf| shelf.contents(number));
        all.filter_map(|(key, content)| Some((key, from_bytes::<C::Object>(content)?)))
    }
}

impl core::fmt::Debug for ObjectsHere<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ObjectsHere")
    }
}
