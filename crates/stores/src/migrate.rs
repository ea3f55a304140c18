//! All variables of a store, and their way into another store.
//!
//! [`migrate`] claims each partition at the target, clears its variables there and writes what the source has, in batches. What the target has of a partition
//! besides stays. A process that writes at the source meanwhile is not followed, and one that writes at the target is fenced: end both first.
//!
//! Not here: records (locks, guarded writes). They are of the store that they were made in.

use crate::agent::elements;
use crate::batch::Batch;
use crate::driver::{Driver, Failure, Outcome, Version};
use crate::name::{Kind, PartitionName, VariableName};
use std::collections::BTreeMap;
use std::time::SystemTime;
use variables::buffer::Buffer;
use variables::decoded;

/// What a store has of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub variable: VariableName,
    /// How many elements.
    pub elements: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The sum of its counters, of a counter or a map of counters.
    pub sum: Option<i64>,
}

/// Everything that a store has, in the order of names.
pub fn inspect(driver: &mut dyn Driver) -> Result<Vec<Found>, Failure> {
    let mut names = driver.variables()?;
    names.sort();
    let mut all = Vec::with_capacity(names.len());
    for variable in names {
        let counts = matches!(variable.kind(), Kind::Counter | Kind::CounterMap);
        let mut found = Found {
            variable: variable.clone(),
            elements: 0,
            bytes: 0,
            sum: counts.then_some(0),
        };
        driver.load(&variable, &mut |field, value| {
            found.elements += 1;
            found.bytes += (field.len() + value.len()) as u64;
            // What is no count is not added up.
            let count = decoded::<i64>(value);
            found.sum = found.sum.zip(count).map(|(sum, count)| sum.saturating_add(count));
        })?;
        all.push(found);
    }
    Ok(all)
}

/// What was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Partitions.
    pub partitions: u64,
    /// Their variables.
    pub variables: u64,
    /// Their elements.
    pub elements: u64,
}

/// Writes all variables of a store into another one.
pub fn migrate(from: &mut dyn Driver, to: &mut dyn Driver) -> Result<Migrated, Failure> {
    let mut by_partition: BTreeMap<PartitionName, Vec<VariableName>> = BTreeMap::new();
    for variable in from.variables()? {
        let partition = variable.partition().clone();
        by_partition.entry(partition).or_default().push(variable);
    }
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let at_least = clock.map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(1));
    let mut migrated = Migrated::default();
    let mut buffer = Buffer::new();
    for (partition, variables) in by_partition {
        let mut writer = Writer {
            version: Version {
                epoch: to.claim(&partition, at_least)?,
                sequence: 0,
            },
            partition,
            variables: &variables,
            to: &mut *to,
        };
        buffer.empty();
        for (number, variable) in (0u32..).zip(&variables) {
            if buffer.clear(number).is_err() {
                writer.write(&mut buffer)?;
                let _ = buffer.clear(number);
            }
            for (field, value) in elements(&mut *from, variable)? {
                if buffer.put_encoded(number, &field, &value).is_err() {
                    writer.write(&mut buffer)?;
                    // An element fits into an empty batch; one that does not is of another version of Flowkeep.
                    buffer.put_encoded(number, &field, &value).map_err(|_| {
                        let problem = format!("an element of {variable} is too long");
                        Failure::new("migrate", problem, "remove it at the source")
                    })?;
                }
                migrated.elements += 1;
            }
            migrated.variables += 1;
        }
        writer.write(&mut buffer)?;
        migrated.partitions += 1;
    }
    Ok(migrated)
}

struct Writer<'w> {
    to: &'w mut dyn Driver,
    partition: PartitionName,
    variables: &'w [VariableName],
    version: Version,
}

impl Writer<'_> {
    fn write(&mut self, buffer: &mut Buffer) -> Result<(), Failure> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.version.sequence += 1;
        let batch = Batch {
            partition: &self.partition,
            version: self.version,
            variables: self.variables,
            bytes: buffer.bytes(),
        };
        let mut outcomes = Vec::new();
        self.to.write(&[batch], &mut outcomes)?;
        buffer.empty();
        match outcomes.first() {
            Some(Outcome::Stored) => Ok(()),
            _ => Err(Failure::new(
                &self.partition.to_string(),
                "another process writes these variables at the target",
                "end it, and migrate again",
            )),
        }
    }
}
