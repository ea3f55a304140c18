//! Which row of the table has which element of a variable: [`Slots`].
//!
//! ```text
//!   take k ─► it has slot 3: 3          give k ─► it has slot 3: 3, free once the batch is applied
//!          └► the last free one, or one more        └► it has none: nothing is to be written
//! ```
//!
//! All statements of a batch have one time stamp. So a slot that a batch frees is no other
//! element's before the next batch.
//!
//! Invariants: no two elements have one slot, and a slot that is free is none's; there are as many
//! slots as there were elements, and elements that went in one batch, at once
//! (`elements_have_slots_of_their_own_and_slots_are_used_again`).
//!
//! Not here: when the slots are forgotten (the driver, where a batch was not applied).

use std::collections::HashMap;

/// More elements than any variable has.
const SLOTS_MAX: i64 = 1 << 24;

/// Of one variable, as the writer of its partition knows it.
#[derive(Default)]
pub struct Slots {
    of: HashMap<Box<[u8]>, i64>,
    free: Vec<i64>,
    /// Freed by the batch that is under way.
    freed: Vec<i64>,
    /// One more than the largest so far.
    end: i64,
}

impl Slots {
    /// Takes a row of the table; `None` where it is none of ours.
    pub fn read(&mut self, slot: i64, field: Option<Vec<u8>>) -> Option<()> {
        if !(0..SLOTS_MAX).contains(&slot) {
            return None;
        }
        self.end = self.end.max(slot + 1);
        match field {
            Some(field) => self.of.insert(field.into(), slot).is_none().then_some(()),
            None => Some(()),
        }
    }

    /// All rows were taken.
    pub fn have_read(&mut self) {
        let mut held: Vec<i64> = self.of.values().copied().collect();
        held.sort_unstable();
        self.free = (0..self.end)
            .rev()
            .filter(|slot| held.binary_search(slot).is_err())
            .collect();
    }

    /// The slot of an element that is to be written.
    pub fn take(&mut self, field: &[u8]) -> i64 {
        if let Some(slot) = self.of.get(field) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            let next = self.end;
            self.end = next.saturating_add(1);
            next
        });
        self.of.insert(field.into(), slot);
        slot
    }

    /// The slot of an element that goes, if it has one.
    pub fn give(&mut self, field: &[u8]) -> Option<i64> {
        let slot = self.of.remove(field)?;
        self.freed.push(slot);
        Some(slot)
    }

    /// The batch was applied.
    pub fn settle(&mut self) {
        self.free.append(&mut self.freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        /// A table of rows is written by slots, and read now and then, as by a writer that begins
        /// again.
        #[test]
        fn elements_have_slots_of_their_own_and_slots_are_used_again(
            batches in prop::collection::vec((prop::collection::btree_map(0..20u8, any::<bool>(), 0..6), any::<bool>()), 1..60),
        ) {
            let mut table: BTreeMap<i64, Option<u8>> = BTreeMap::new();
            let mut model = BTreeSet::new();
            let mut slots = Slots::default();
            let mut most = 0;
            for (changes, begins_again) in batches {
                let mut written = BTreeSet::new();
                let before = model.len();
                for (field, stays) in &changes {
                    let slot = match stays {
                        true => Some(slots.take(&[*field])),
                        false => slots.give(&[*field]),
                    };
                    prop_assert_eq!(slot.is_some(), *stays || model.contains(field));
                    if let Some(slot) = slot {
                        prop_assert!(written.insert(slot), "a row is written twice with one time stamp");
                        table.insert(slot, stays.then_some(*field));
                    }
                }
                for (field, stays) in changes {
                    match stays {
                        true => model.insert(field),
                        false => model.remove(&field),
                    };
                }
                slots.settle();
                let held: Vec<u8> = table.values().flatten().copied().collect();
                prop_assert_eq!(held.len(), model.len());
                prop_assert_eq!(&held.into_iter().collect::<BTreeSet<u8>>(), &model);
                most = most.max(before + 6);
                prop_assert!(table.len() <= most, "{} rows", table.len());
                if begins_again {
                    slots = Slots::default();
                    for (slot, field) in &table {
                        prop_assert!(slots.read(*slot, field.map(|field| vec![field])).is_some());
                    }
                    slots.have_read();
                }
            }
        }
    }

    #[test]
    fn rows_that_contradict_each_other_are_refused() {
        let mut slots = Slots::default();
        assert_eq!(slots.read(4, Some(vec![1])), Some(()));
        assert_eq!(slots.read(7, None), Some(()));
        assert_eq!(slots.read(5, Some(vec![1])), None);
        assert_eq!(slots.read(-1, Some(vec![2])), None);
        assert_eq!(slots.read(SLOTS_MAX, Some(vec![2])), None);
    }
}
