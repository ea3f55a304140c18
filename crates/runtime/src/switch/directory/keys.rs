//! From the hash of a key to the number of its route, in tables that grow.
//!
//! # Theory of operation
//!
//! Room for the routes of all runtimes that there may be is a gigabyte, of which few clusters use
//! much; and a table is touched all over by its first entries. So there are tables of several
//! sizes, each four times the one before. All are mapped at the start, and one is touched when the
//! one before is full. Then both are in use, until the entries of the one before have been moved,
//! some each step.
//!
//! ```text
//!   now ──full──► now = the next, before = the full one ──all moved──► before = none
//!                 find: now, then before; insert: now; remove: either
//! ```
//!
//! Invariants: an entry is in one of the two; the next table is not begun before all entries are in
//! `now`.
//!
//! Not here: keys and routes, so the caller moves the entries.

use crate::table::{Full, Table};
use alloc::vec::Vec;
use wire::memory::Region;

/// Entries of the first table: 1 MiB.
const FIRST: usize = 1 << 16;
/// How many times larger than a table the next one is.
const GROWTH: usize = 4;

/// See the module's page.
pub(super) struct Keys {
    now: Table,
    before: Option<Table>,
    /// Tables not in use yet, the largest first.
    larger: Vec<Table>,
}

impl Keys {
    /// Room for so many entries, in memory that `memory` provides, zeroed.
    pub fn new(most: usize, memory: &mut impl FnMut(usize) -> Region) -> Self {
        let mut table = |room: usize| Table::new(memory(Table::region_length(room)), room);
        let sizes = core::iter::successors(Some(FIRST), |size| size.checked_mul(GROWTH));
        let sizes: Vec<usize> = sizes.take_while(|size| *size < most).collect();
        let mut larger: Vec<Table> = sizes.iter().skip(1).copied().map(&mut table).collect();
        let now = match sizes.first() {
            Some(first) => {
                larger.push(table(most));
                table(*first)
            }
            None => table(most),
        };
        larger.reverse();
        Keys {
            now,
            before: None,
            larger,
        }
    }

    /// Has room for so many entries from now on, more than before.
    #[cold]
    pub fn make_room(&mut self, most: usize, memory: &mut impl FnMut(usize) -> Region) {
        let table = Table::new(memory(Table::region_length(most)), most);
        self.larger.insert(0, table);
    }

    /// Asks the processor for the line that finding a key of this hash begins with.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.now.prefetch(hash);
    }

    /// The entry that has, by all likelihood, a key of this hash.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        self.now.candidate(hash)
    }

    /// The entry for which `is_it` holds.
    #[inline(always)]
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.now.find(hash, &is_it);
        match &self.before {
            Some(before) if found.is_none() => before.find(hash, is_it),
            _ => found,
        }
    }

    /// Adds an entry; there is no room if the table is full: see [`Keys::grow`].
    pub fn insert(&mut self, hash: u64, value: u32) -> Result<(), Full> {
        self.now.insert(hash, value)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, hash: u64, value: u32) {
        let removed = self.now.remove(hash, value)
            || self
                .before
                .as_mut()
                .is_some_and(|before| before.remove(hash, value));
        debug_assert!(removed, "a route's key is in a table");
        self.before.take_if(|before| before.is_empty());
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.now.len() + self.before.as_ref().map_or(0, Table::len)
    }

    /// Begins the next table; `false` if there is none. All entries have been moved.
    #[cold]
    pub fn grow(&mut self) -> bool {
        debug_assert!(!self.is_moving());
        let Some(next) = self.larger.pop() else {
            return false;
        };
        self.before = Some(core::mem::replace(&mut self.now, next));
        true
    }

    /// Whether entries are to be moved.
    #[inline(always)]
    pub fn is_moving(&self) -> bool {
        self.before.is_some()
    }

    /// Moves an entry, if it is in the table before; which goes with its last one.
    pub fn move_entry(&mut self, hash: u64, value: u32) {
        if let Some(before) = &mut self.before
            && before.remove(hash, value)
        {
            let fits = self.now.insert(hash, value).is_ok();
            debug_assert!(fits, "the next table has room for all entries");
        }
        self.before.take_if(|before| before.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u32) -> u64 {
        let x = u64::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 32)).wrapping_mul(0xd1b5_4a32_d192_ed03)
    }

    #[test]
    fn entries_are_found_while_tables_grow() {
        let most = 8 * FIRST as u32;
        let mut keys = Keys::new(most as usize, &mut Region::heap);
        let (mut moved, mut growths) = (0, 0);
        let is_in = |n: u32, upto: u32| n < upto && !n.is_multiple_of(7);
        for n in 0..most {
            if keys.insert(hash(n), n).is_err() {
                assert!(!keys.is_moving(), "all have been moved long before");
                assert!(keys.grow());
                assert!(keys.insert(hash(n), n).is_ok());
                (moved, growths) = (0, growths + 1);
            }
            if n.is_multiple_of(7) {
                keys.remove(hash(n), n);
            }
            for _ in 0..4 * usize::from(keys.is_moving()) {
                keys.move_entry(hash(moved), moved);
                moved += 1;
            }
            if n.is_multiple_of(5000) || n + 1 == most {
                let step = if n + 1 == most { 1 } else { 101 };
                for other in (0..most).step_by(step) {
                    let found = keys.find(hash(other), |value| value == other);
                    assert_eq!(found, is_in(other, n + 1).then_some(other), "{other} after {n}");
                }
            }
        }
        assert_eq!((growths, keys.is_moving()), (2, false));
        assert_eq!(keys.len(), (0..most).filter(|n| is_in(*n, most)).count());
        // A key that is not in the table before is not moved into the table of now.
        keys.move_entry(hash(0), 0);
        assert_eq!(keys.find(hash(0), |value| value == 0), None);
    }

    #[test]
    fn room_that_is_made_later_is_used_when_the_tables_before_are_full() {
        let mut keys = Keys::new(FIRST, &mut Region::heap);
        for n in 0..FIRST as u32 {
            assert!(keys.insert(hash(n), n).is_ok());
        }
        assert!(keys.insert(hash(FIRST as u32), 0).is_err());
        keys.make_room(2 * FIRST, &mut Region::heap);
        assert!(keys.grow());
        for n in FIRST as u32..2 * FIRST as u32 {
            assert!(keys.insert(hash(n), n).is_ok());
            keys.move_entry(hash(n - FIRST as u32), n - FIRST as u32);
        }
        assert_eq!((keys.len(), keys.grow()), (2 * FIRST, false));
        for n in 0..2 * FIRST as u32 {
            assert_eq!(keys.find(hash(n), |value| value == n), Some(n));
        }
    }

    #[test]
    fn the_last_table_takes_the_most_and_no_more() {
        let most = FIRST + 3;
        let mut keys = Keys::new(most, &mut Region::heap);
        for n in 0..most as u32 {
            if keys.insert(hash(n), n).is_err() {
                assert!(keys.grow());
                assert!(keys.insert(hash(n), n).is_ok());
                (0..n).for_each(|n| keys.move_entry(hash(n), n));
            }
        }
        assert_eq!((keys.len(), keys.grow()), (most, false));
    }
}
