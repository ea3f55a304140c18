//! The duties of a data store: one small trait, [`Driver`].
//!
//! A driver keeps three things. Of a *partition*: its [`Version`], and of each of its variables a
//! table from field to value, both bytes. Beside them *records*: single values that are swapped by
//! comparison, for locks and pools.
//!
//! One call is answered before the next begins, and a call that fails may have been done or not. So
//! the agent can repeat each call: batches carry the version that they make, records are compared.

use crate::batch::Batch;
use crate::name::{PartitionName, VariableName};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Which writer, and how much of what it wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// The writer: each claim of the partition makes a larger one.
    pub epoch: u64,
    /// The number of its last batch; 0 before the first.
    pub sequence: u64,
}

/// The fate of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The store has it, now or from an earlier try.
    Stored,
    /// A later writer has claimed the partition: nothing of this one is taken any more.
    Fenced,
    /// The store lacks batches that it had acknowledged, or its content contradicts itself. Nothing
    /// was written.
    Forgotten,
}

impl Version {
    /// The outcome of a batch of version `batch` at a store that has `self`: `None` means that it
    /// writes the batch.
    ///
    /// | the store has | and the batch | |
    /// |---|---|---|
    /// | a later epoch | | fenced |
    /// | the same epoch, its sequence or a later one | is repeated | stored |
    /// | the same epoch, the sequence before | is the next | written |
    /// | anything earlier | leaves a gap | forgotten |
    pub fn judge(self, batch: Version) -> Option<Outcome> {
        if self.epoch > batch.epoch {
            Some(Outcome::Fenced)
        } else if self.epoch == batch.epoch && self.sequence >= batch.sequence {
            Some(Outcome::Stored)
        } else if self.epoch == batch.epoch && self.sequence.checked_add(1) == Some(batch.sequence) {
            None
        } else {
            Some(Outcome::Forgotten)
        }
    }
}

/// Why a store did not do a call. It may have been done all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("store {store}: {problem}; {remedy}")]
pub struct Failure {
    /// Its URI, without a password.
    pub store: String,
    /// Its error, or that it did not answer.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl Failure {
    /// A failure of the store at this URI.
    pub fn new(store: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Failure {
            store: store.to_owned(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// The result of [`Driver::swap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The record was as expected, and is the new one.
    Done,
    /// It is this, and was left.
    Other(Option<Vec<u8>>),
}

/// When calls of a driver are over at the latest, one under way too: its agent's word when the
/// agent is to end. Of a driver of two stores both hear it.
#[derive(Clone, Debug, Default)]
pub struct Ending(Vec<Arc<OnceLock<Instant>>>);

impl Ending {
    /// Of a driver that looks there, while a call is under way too.
    pub fn of(looked_at: &Arc<OnceLock<Instant>>) -> Self {
        Ending(vec![Arc::clone(looked_at)])
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, other: Ending) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Has calls be over at this moment. The first moment that was said counts.
    pub fn say(&self, last: Instant) {
        for looked_at in &self.0 {
            let _ = looked_at.set(last);
        }
    }
}

/// A data store, as the agent uses it. Each call waits for the store, for a time that the driver
/// bounds.
pub trait Driver: Send {
    /// The place for the last moment of calls, where an agent that is to end says it. A driver
    /// whose bound of a call is short has none.
    fn ending(&self) -> Ending {
        Ending::default()
    }

    /// Makes the caller the partition's writer: a new epoch, larger than the one before and at
    /// least `at_least`.
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure>;

    /// The store's version of the partition; `None` if it has nothing of it.
    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure>;

    /// Sets the version of a partition that the store has forgotten in whole or in part, unless a
    /// later epoch has it ([`Outcome::Fenced`]).
    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure>;

    /// Writes batches in their order, each whole or not at all, as [`Version::judge`] says; pushes
    /// an outcome for each.
    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure>;

    /// Reads all fields of a variable, in any order. Of a call that fails, some may have been told.
    fn load(&mut self, variable: &VariableName, element: &mut dyn FnMut(&[u8], &[u8]))
    -> Result<(), Failure>;

    /// All partitions of a function that have ever been claimed, in any order.
    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure>;

    /// All variables of which the store has an element, in any order.
    fn variables(&mut self) -> Result<Vec<VariableName>, Failure>;

    /// Reads a record.
    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure>;

    /// The names of all records, in any order.
    fn records(&mut self) -> Result<Vec<String>, Failure>;

    /// Makes a record `new` if it is `expected`; `None` is a record that is not there.
    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_written_once_in_its_order_by_the_last_writer() {
        let v = |epoch, sequence| Version { epoch, sequence };
        let cases = [
            (v(2, 9), v(1, 10), Some(Outcome::Fenced)),
            (v(2, 9), v(2, 9), Some(Outcome::Stored)),
            (v(2, 9), v(2, 3), Some(Outcome::Stored)),
            (v(2, 9), v(2, 10), None),
            (v(2, 9), v(2, 11), Some(Outcome::Forgotten)),
            (v(2, 9), v(3, 1), Some(Outcome::Forgotten)),
            (v(0, 0), v(7, 1), Some(Outcome::Forgotten)),
            (v(7, 0), v(7, 1), None),
        ];
        for (has, batch, said) in cases {
            assert_eq!(has.judge(batch), said, "{has:?} {batch:?}");
        }
    }
}
