//! All variables of a store, and their way into another store.
//!
//! A [`Follower`] claims each partition at the target once, clears its variables there and writes
//! the source's elements, in batches. Other variables of a partition at the target stay. Functions
//! may go on writing at the source: a pass copies the partitions whose version has changed since
//! they were copied.
//!
//! ```text
//!   pass:  version at the source ─► copy ─► version at the source
//!            the same as at the last copy: nothing to do      └─ another one: written meanwhile, the copy is of no one moment: behind
//! ```
//!
//! A batch and its version are written as one, so a copy between two equal versions is exact. While
//! functions write, some partitions are behind. Once they have ended, the next pass has all of it,
//! and copies what changed since the last one only. A process that claims a partition at the target
//! has it from then on: the follower is fenced there, and says so.
//!
//! *Records* (locks, and values that they guard) are copied as they are: a lock's token goes on
//! growing, and its lease is watched at the target as any other holder's. A record that changes
//! while it is copied is copied again with the next pass. A record that is gone at the source is
//! removed at the target, where it has still the value that was copied. A taking of timers
//! ([`crate::taking`]) that an earlier follower copied is known by its partition: it would have
//! timers removed that are the partition's by now.
//!
//! *A copy of its own* ([`copy_whole`]) has the versions of the store: for a process that lets
//! others look into a store which it alone has.

use crate::agent::elements;
use crate::batch::Batch;
use crate::driver::{Driver, Failure, Outcome, Version};
use crate::name::{Kind, PartitionName, VariableName};
use crate::taking::record_of;
use std::collections::{BTreeMap, HashSet};
use std::time::SystemTime;
use variables::buffer::Buffer;
use variables::decoded;

/// A variable as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The variable.
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
            // A value that is no count is not added up.
            let count = decoded::<i64>(value);
            found.sum = found.sum.zip(count).map(|(sum, count)| sum.saturating_add(count));
        })?;
        all.push(found);
    }
    Ok(all)
}

/// A function's variable as a store has it, over all runtimes and members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The function.
    pub function: String,
    /// The variable's kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// How many runtimes and members have a part of it, or had when they ended.
    pub parts: u64,
    /// How many different keys; in a list, positions of any part.
    pub elements: u64,
    /// The sum of its counters, of a counter or a map of counters.
    pub sum: Option<i64>,
}

/// Every variable that a store has, merged over the partitions of its function, in the order of
/// names.
pub fn inspect_merged(driver: &mut dyn Driver) -> Result<Vec<Whole>, Failure> {
    let mut wholes: BTreeMap<(String, Kind, String), Whole> = BTreeMap::new();
    let mut names = driver.variables()?;
    names.sort_by_cached_key(whole_name);
    let mut keys: HashSet<Vec<u8>> = HashSet::new();
    let mut last = None;
    for variable in names {
        let whole = whole_name(&variable);
        if last.as_ref() != Some(&whole) {
            keys.clear();
            last = Some(whole.clone());
        }
        let counts = matches!(variable.kind(), Kind::Counter | Kind::CounterMap);
        let merged = wholes
            .entry(whole)
            .or_insert_with_key(|(function, kind, name)| Whole {
                function: function.clone(),
                kind: *kind,
                name: name.clone(),
                parts: 0,
                elements: 0,
                sum: counts.then_some(0),
            });
        merged.parts += 1;
        let is_list = variable.kind() == Kind::List;
        driver.load(&variable, &mut |field, value| {
            if is_list || keys.insert(field.to_vec()) {
                merged.elements += 1;
            }
            let count = decoded::<i64>(value);
            merged.sum = merged
                .sum
                .zip(count)
                .map(|(sum, count)| sum.saturating_add(count));
        })?;
    }
    Ok(wholes.into_values().collect())
}

fn whole_name(variable: &VariableName) -> (String, Kind, String) {
    let function = variable.partition().function().to_owned();
    (function, variable.kind(), variable.name().to_owned())
}

/// Counts of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Partitions.
    pub partitions: u64,
    /// Their variables.
    pub variables: u64,
    /// Their elements.
    pub elements: u64,
}

/// The result of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Counts of its copies.
    pub copied: Migrated,
    /// Partitions that were written at the source while they were copied.
    pub behind: Vec<PartitionName>,
    /// Partitions that another process has claimed at the target.
    pub taken: Vec<PartitionName>,
}

/// Writes all variables of a store into another one, once.
pub fn migrate(from: &mut dyn Driver, to: &mut dyn Driver) -> Result<Migrated, Failure> {
    let pass = Follower::new(from, to).pass()?;
    match (pass.taken.first(), pass.behind.first()) {
        (Some(taken), _) => Err(Failure::new(
            &taken.to_string(),
            "another process writes these variables at the target",
            "end it, and migrate again",
        )),
        (None, Some(behind)) => Err(Failure::new(
            &behind.to_string(),
            "a process writes these variables at the source: the target has no one moment of them",
            "end it and migrate again, or follow it (--follow) until it has ended",
        )),
        (None, None) => Ok(pass.copied),
    }
}

/// A partition as it was copied.
struct Copied {
    /// Every variable that was ever copied: an empty one is cleared.
    variables: Vec<VariableName>,
    /// The source's version before it was copied.
    source: Option<Version>,
    target: Version,
    taken: bool,
}

/// Copies a store into another one, again and again.
pub struct Follower<'d> {
    from: &'d mut dyn Driver,
    to: &'d mut dyn Driver,
    copied: BTreeMap<PartitionName, Copied>,
    /// Records that the target has of the source.
    records: Records,
    buffer: Buffer,
}

type Records = BTreeMap<String, Vec<u8>>;

impl<'d> Follower<'d> {
    /// Has copied nothing.
    pub fn new(from: &'d mut dyn Driver, to: &'d mut dyn Driver) -> Self {
        Follower {
            from,
            to,
            copied: BTreeMap::new(),
            records: Records::new(),
            buffer: Buffer::new(),
        }
    }

    /// Copies every partition that has changed since it was copied.
    pub fn pass(&mut self) -> Result<Pass, Failure> {
        let mut by_partition: BTreeMap<PartitionName, Vec<VariableName>> = BTreeMap::new();
        for variable in self.from.variables()? {
            let partition = variable.partition().clone();
            by_partition.entry(partition).or_default().push(variable);
        }
        for (partition, copied) in &self.copied {
            let variables = by_partition.entry(partition.clone()).or_default();
            let gone = copied.variables.iter().filter(|known| !variables.contains(known));
            let gone: Vec<_> = gone.cloned().collect();
            variables.extend(gone);
        }
        let mut pass = Pass::default();
        for (partition, variables) in by_partition {
            self.copy(partition, variables, &mut pass)?;
        }
        if pass.taken.is_empty() {
            copy_records(&mut *self.from, &mut *self.to, &mut self.records)?;
        }
        Ok(pass)
    }

    fn copy(
        &mut self,
        partition: PartitionName,
        variables: Vec<VariableName>,
        pass: &mut Pass,
    ) -> Result<(), Failure> {
        let source = self.from.version(&partition)?;
        let target = match self.copied.get(&partition) {
            Some(last) if last.taken => {
                pass.taken.push(partition);
                return Ok(());
            }
            Some(last) if last.source == source => return Ok(()),
            Some(last) => last.target,
            None => {
                let taking = record_of(&partition);
                let has = self.to.record(&taking)?;
                self.records.extend(has.map(|value| (taking, value)));
                Version {
                    epoch: self.to.claim(&partition, at_least())?,
                    sequence: 0,
                }
            }
        };
        let mut writer = Writer {
            version: target,
            partition: partition.clone(),
            variables: &variables,
            to: &mut *self.to,
        };
        let elements = writer.copy(&mut *self.from, &mut self.buffer)?;
        let target = writer.version;
        let is_behind = self.from.version(&partition)? != source;
        match elements {
            Some(elements) => {
                pass.copied.partitions += 1;
                pass.copied.variables += variables.len() as u64;
                pass.copied.elements += elements;
                if is_behind {
                    pass.behind.push(partition.clone());
                }
            }
            None => pass.taken.push(partition.clone()),
        }
        let copied = Copied {
            variables,
            source,
            target,
            taken: elements.is_none(),
        };
        self.copied.insert(partition, copied);
        Ok(())
    }
}

/// Copies records that are other at the target, and removes those of `copied` that are gone.
fn copy_records(from: &mut dyn Driver, to: &mut dyn Driver, copied: &mut Records) -> Result<(), Failure> {
    let mut gone = copied.clone();
    for name in from.records()? {
        let (value, there) = (from.record(&name)?, to.record(&name)?);
        let Some(value) = value else { continue };
        gone.remove(&name);
        if Some(&value) != there.as_ref() {
            // A record that another process changes there is that process's own.
            to.swap(&name, there.as_deref(), Some(&value))?;
        }
        copied.insert(name, value);
    }
    for (name, value) in gone {
        to.swap(&name, Some(&value), None)?;
        copied.remove(&name);
    }
    Ok(())
}

/// Copies a store into an empty one, with its versions: a reader of the copy sees by them which
/// partitions have changed since another copy.
pub fn copy_whole(from: &mut dyn Driver, to: &mut dyn Driver) -> Result<(), Failure> {
    let mut by_partition: BTreeMap<PartitionName, Vec<VariableName>> = BTreeMap::new();
    for variable in from.variables()? {
        let partition = variable.partition().clone();
        by_partition.entry(partition).or_default().push(variable);
    }
    let mut buffer = Buffer::new();
    for (partition, variables) in by_partition {
        let version = from.version(&partition)?;
        let mut writer = Writer {
            version: Version {
                epoch: to.claim(&partition, 0)?,
                sequence: 0,
            },
            partition: partition.clone(),
            variables: &variables,
            to: &mut *to,
        };
        writer.copy(&mut *from, &mut buffer)?;
        if let Some(version) = version {
            to.restore(&partition, version)?;
        }
    }
    copy_records(from, to, &mut Records::new())
}

/// No epoch that a writer before this one had, as far as the clock is right.
fn at_least() -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    clock.map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(1))
}

struct Writer<'w> {
    to: &'w mut dyn Driver,
    partition: PartitionName,
    variables: &'w [VariableName],
    version: Version,
}

impl Writer<'_> {
    /// Clears the variables and writes them; answers how many elements, or nothing where another
    /// process has the partition.
    fn copy(&mut self, from: &mut dyn Driver, buffer: &mut Buffer) -> Result<Option<u64>, Failure> {
        buffer.empty();
        let mut count = 0;
        for (number, variable) in (0u32..).zip(self.variables) {
            if buffer.clear(number).is_err() {
                if !self.write(buffer)? {
                    return Ok(None);
                }
                let _ = buffer.clear(number);
            }
            for (field, value) in elements(&mut *from, variable)? {
                if buffer.put_encoded(number, &field, &value).is_err() {
                    if !self.write(buffer)? {
                        return Ok(None);
                    }
                    // An element fits into an empty batch; a longer element is of another version
                    // of Flowkeep.
                    buffer.put_encoded(number, &field, &value).map_err(|_| {
                        let problem = format!("an element of {variable} is too long");
                        Failure::new("migrate", problem, "remove it at the source")
                    })?;
                }
                count += 1;
            }
        }
        Ok(self.write(buffer)?.then_some(count))
    }

    /// Writes the buffer's changes; answers whether the partition is still ours.
    fn write(&mut self, buffer: &mut Buffer) -> Result<bool, Failure> {
        if buffer.is_empty() {
            return Ok(true);
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
        Ok(outcomes.first() == Some(&Outcome::Stored))
    }
}
