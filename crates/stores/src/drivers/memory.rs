//! `memory:`, tables in this process.
//!
//! Clones share them, so a function that ends and begins again finds its variables as long as the
//! process is there. The conformance suite and benchmarks compare other drivers with it.

use crate::batch::{Batch, Change};
use crate::driver::{Driver, Failure, Outcome, Swapped, Version};
use crate::name::{PartitionName, VariableName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
struct Tables {
    versions: BTreeMap<PartitionName, Version>,
    variables: BTreeMap<VariableName, Fields>,
    records: BTreeMap<String, Vec<u8>>,
}

/// A store in memory.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Tables>>);

impl Memory {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // No call leaves the tables half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Memory {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        let mut tables = self.tables();
        let version = tables.versions.entry(partition.clone()).or_default();
        let epoch = version.epoch.saturating_add(1).max(at_least);
        *version = Version { epoch, sequence: 0 };
        Ok(epoch)
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        Ok(self.tables().versions.get(partition).copied())
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        let mut tables = self.tables();
        let has = tables.versions.entry(partition.clone()).or_default();
        if has.epoch > version.epoch {
            return Ok(Outcome::Fenced);
        }
        *has = version.max(*has);
        Ok(Outcome::Stored)
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        let mut tables = self.tables();
        let Tables {
            versions, variables, ..
        } = &mut *tables;
        for batch in batches {
            let has = versions.entry(batch.partition.clone()).or_default();
            if let Some(outcome) = has.judge(batch.version) {
                outcomes.push(outcome);
                continue;
            }
            for change in batch.changes() {
                apply(variables, change);
            }
            *has = batch.version;
            outcomes.push(Outcome::Stored);
        }
        Ok(())
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let tables = self.tables();
        for (field, value) in tables.variables.get(variable).into_iter().flatten() {
            element(field, value);
        }
        Ok(())
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        let tables = self.tables();
        let all = tables.versions.keys();
        Ok(all.filter(|name| name.function() == function).cloned().collect())
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        let tables = self.tables();
        let kept = tables.variables.iter().filter(|(_, fields)| !fields.is_empty());
        Ok(kept.map(|(name, _)| name.clone()).collect())
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.tables().records.get(name).cloned())
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        Ok(self.tables().records.keys().cloned().collect())
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        let mut tables = self.tables();
        let has = tables.records.get(name);
        if has.map(Vec::as_slice) != expected {
            return Ok(Swapped::Other(has.cloned()));
        }
        match new {
            Some(new) => tables.records.insert(name.to_owned(), new.to_vec()),
            None => tables.records.remove(name),
        };
        Ok(Swapped::Done)
    }
}

fn apply(variables: &mut BTreeMap<VariableName, Fields>, change: Change<'_>) {
    match change {
        Change::Clear { variable } => {
            variables.remove(variable);
        }
        Change::Put {
            variable,
            field,
            value,
        } => match variables.get_mut(variable) {
            Some(fields) => {
                fields.insert(field.to_vec(), value.to_vec());
            }
            None => {
                variables.insert(variable.clone(), [(field.to_vec(), value.to_vec())].into());
            }
        },
        Change::Remove { variable, field } => {
            if let Some(fields) = variables.get_mut(variable) {
                fields.remove(field);
                if fields.is_empty() {
                    variables.remove(variable);
                }
            }
        }
    }
}
