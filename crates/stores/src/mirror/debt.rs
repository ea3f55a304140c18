//! Changes that one of two stores lacks: of each element the last change, whatever came before it.

use crate::batch::{Batch, Change, KeptBatch};
use crate::driver::Version;
use crate::name::{PartitionName, VariableName};
use std::collections::BTreeMap;
use variables::buffer::{BATCH_BYTES, CLEAR, PUT, REMOVE};

/// The most bytes of a partition's changes that are kept. Beyond that the store gets a copy of
/// everything.
pub const BYTES_MAX: usize = 16 << 20;
/// The memory of a change besides its bytes, about.
const OVERHEAD: usize = 128;

#[derive(Default)]
struct Changed {
    /// All that the store had is gone, before the rest.
    cleared: bool,
    /// Values by field; `None` is a field that is gone.
    fields: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The changes of a partition that a store lacks.
#[derive(Default)]
pub struct Debt {
    variables: BTreeMap<VariableName, Changed>,
    bytes: usize,
    /// The store needs everything: changes are not kept until it is read.
    pub needs_copy: bool,
    /// Whether a copy of everything is among the waiting changes.
    has_copy: bool,
    /// The version that bringing it up has made there; nothing before the partition was claimed for
    /// that.
    pub made: Option<Version>,
    /// A store that has less has lost its data.
    pub least: Version,
}

impl Debt {
    /// Of a store that lacks everything, or may.
    pub fn of_everything() -> Self {
        Debt {
            needs_copy: true,
            ..Debt::default()
        }
    }

    /// Of a store that had this version.
    pub fn behind(self, least: Version) -> Self {
        Debt { least, ..self }
    }

    /// The store has been brought to this version.
    pub fn has_made(&mut self, version: Version) {
        (self.made, self.least) = (Some(version), version);
    }

    /// The copy of everything is being read: changes from now on are kept.
    pub fn begin_copy(&mut self) {
        self.variables.clear();
        (self.bytes, self.needs_copy, self.has_copy) = (0, false, false);
    }

    /// Whether a copy of everything is among the waiting changes.
    pub fn has_copy(&self) -> bool {
        self.has_copy
    }

    /// How many bytes of changes wait, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A batch that the other store has.
    pub fn add(&mut self, batch: &Batch<'_>) {
        if self.needs_copy {
            return;
        }
        for change in batch.changes() {
            match change {
                Change::Clear { variable } => {
                    let changed = self.variables.entry(variable.clone()).or_default();
                    let fields = changed.fields.iter();
                    let gone: usize = fields.map(|(field, value)| size(field, value.as_deref())).sum();
                    changed.fields.clear();
                    changed.cleared = true;
                    self.bytes = self.bytes.saturating_sub(gone);
                }
                Change::Put {
                    variable,
                    field,
                    value,
                } => self.set(variable, field, Some(value)),
                Change::Remove { variable, field } => self.set(variable, field, None),
            }
        }
        if self.bytes > BYTES_MAX {
            self.variables.clear();
            (self.bytes, self.needs_copy, self.has_copy) = (0, true, false);
        }
    }

    /// A variable as the other store has it.
    pub fn replace(&mut self, variable: &VariableName, elements: Vec<(Vec<u8>, Vec<u8>)>) {
        let fields = elements.into_iter().map(|(field, value)| (field, Some(value)));
        let changed = Changed {
            cleared: true,
            fields: fields.collect(),
        };
        self.variables.insert(variable.clone(), changed);
        self.has_copy = true;
    }

    /// Puts earlier changes under these.
    pub fn put_under(&mut self, older: Debt) {
        self.bytes += older.bytes;
        self.has_copy |= older.has_copy;
        for (variable, before) in older.variables {
            let now = self.variables.entry(variable).or_default();
            if now.cleared {
                continue;
            }
            now.cleared = before.cleared;
            for (field, value) in before.fields {
                now.fields.entry(field).or_insert(value);
            }
        }
    }

    /// Takes the changes out, which are sent now; changes that come meanwhile are kept.
    pub fn take(&mut self) -> Debt {
        Debt {
            variables: std::mem::take(&mut self.variables),
            bytes: std::mem::take(&mut self.bytes),
            has_copy: std::mem::take(&mut self.has_copy),
            ..Debt::default()
        }
    }

    fn set(&mut self, variable: &VariableName, field: &[u8], value: Option<&[u8]>) {
        // Most changes are of a variable that is here already.
        if !self.variables.contains_key(variable) {
            self.variables.insert(variable.clone(), Changed::default());
        }
        let Some(changed) = self.variables.get_mut(variable) else {
            return;
        };
        self.bytes += size(field, value);
        let before = changed.fields.insert(field.to_vec(), value.map(<[u8]>::to_vec));
        if let Some(before) = before {
            self.bytes = self.bytes.saturating_sub(size(field, before.as_deref()));
        }
    }

    /// The waiting changes, as batches of at most [`BATCH_BYTES`] behind a version; none where
    /// nothing waits.
    pub fn batches(&self, partition: &PartitionName, behind: Version) -> Vec<KeptBatch> {
        let names: Vec<VariableName> = self.variables.keys().cloned().collect();
        let mut batches = Vec::new();
        let mut bytes = Vec::new();
        let mut version = behind;
        let mut put = |change: &[&[u8]], is_last: bool| {
            let length: usize = change.iter().map(|part| part.len()).sum();
            if !bytes.is_empty() && (is_last || bytes.len() + length > BATCH_BYTES) {
                version.sequence += 1;
                let done = std::mem::take(&mut bytes);
                batches.push(KeptBatch::new(partition, version, &names, done));
            }
            change.iter().for_each(|part| bytes.extend_from_slice(part));
        };
        for (number, changed) in (0u32..).zip(self.variables.values()) {
            let number = number.to_le_bytes();
            if changed.cleared {
                put(&[&[CLEAR], &number], false);
            }
            for (field, value) in &changed.fields {
                // No element is longer than a batch.
                let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or_default().to_le_bytes();
                match value {
                    Some(value) => {
                        put(
                            &[&[PUT], &number, &length(field), &length(value), field, value],
                            false,
                        );
                    }
                    None => put(&[&[REMOVE], &number, &length(field), field], false),
                }
            }
        }
        put(&[], true);
        batches
    }
}

fn size(field: &[u8], value: Option<&[u8]>) -> usize {
    OVERHEAD + field.len() + value.map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::memory::Memory;
    use crate::{Driver, Kind};
    use proptest::prelude::*;
    use variables::buffer::Buffer;

    fn change() -> impl Strategy<Value = (u32, u8, Option<u8>)> {
        (0..2u32, 0..20u8, prop::option::weighted(0.7, any::<u8>()))
    }

    proptest! {
        #[test]
        fn a_debt_is_worth_its_batches(batches in prop::collection::vec(prop::collection::vec(change(), 1..20), 1..12)) {
            let partition = PartitionName::new("f", "m", 0).unwrap();
            let names = [partition.variable(Kind::Map, "a").unwrap(), partition.variable(Kind::Map, "b").unwrap()];
            let (mut whole, mut late) = (Memory::default(), Memory::default());
            let epoch = whole.claim(&partition, 1).unwrap();
            late.claim(&partition, 1).unwrap();
            let mut debt = Debt::default();
            for (number, changes) in (1..).zip(&batches) {
                let mut buffer = Buffer::new();
                for (variable, field, value) in changes {
                    match (field, value) {
                        // Now and then everything goes.
                        (0, None) => buffer.clear(*variable).unwrap(),
                        (_, Some(value)) => buffer.put(*variable, field, value).unwrap(),
                        (_, None) => buffer.remove(*variable, field).unwrap(),
                    }
                }
                let version = Version { epoch, sequence: number };
                let batch = KeptBatch::new(&partition, version, &names, buffer.bytes().to_vec());
                let mut outcomes = Vec::new();
                whole.write(&[batch.batch()], &mut outcomes).unwrap();
                // The first reached both.
                match number {
                    1 => late.write(&[batch.batch()], &mut outcomes).unwrap(),
                    _ => debt.add(&batch.batch()),
                }
            }
            let version = late.version(&partition).unwrap().unwrap();
            let kept = debt.batches(&partition, version);
            let all: Vec<_> = kept.iter().map(KeptBatch::batch).collect();
            late.write(&all, &mut Vec::new()).unwrap();
            for name in &names {
                let elements = |store: &mut Memory| crate::agent::elements(store, name).unwrap();
                prop_assert_eq!(elements(&mut whole), elements(&mut late));
            }
        }
    }

    #[test]
    fn a_debt_beyond_its_bound_is_a_copy() {
        let partition = PartitionName::new("f", "m", 0).unwrap();
        let names = [partition.variable(Kind::Map, "a").unwrap()];
        let mut debt = Debt::default();
        let mut most = 0;
        for round in 0..400u32 {
            let mut buffer = Buffer::new();
            // The same key costs once.
            buffer.put(0, &7u32, &"x".repeat(1000)).unwrap();
            buffer.put(0, &round, &"x".repeat(60_000)).unwrap();
            let batch = KeptBatch::new(&partition, Version::default(), &names, buffer.bytes().to_vec());
            debt.add(&batch.batch());
            most = most.max(debt.bytes());
        }
        assert!(debt.needs_copy && debt.bytes() == 0 && most <= BYTES_MAX);
        assert!(most > BYTES_MAX - 200_000);
        assert!(debt.batches(&partition, Version::default()).is_empty());
    }
}
