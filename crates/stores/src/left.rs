//! Timers that runtimes of a member have left, which do not begin again: found, and removed once
//! others have armed them.
//!
//! ```text
//!   partitions of the function: this member's, of no runtime that begins
//!     └─ timers? ── claim ── read ──► armed elsewhere, and stored there ──► claim ── remove
//! ```
//!
//! The claim has a process that still runs under this member's name learn that it is over, and its
//! writes are refused. A process that is killed before the removal leaves timers at both places.
//! None has fired by then, and the next start finds them again.
//!
//! Not here: arming them (`flowkeep`, `run/adopting.rs`); timers of other members
//! ([`crate::taking`]).

use crate::agent::{OpenError, Store, elements, least_epoch};
use crate::batch::KeptBatch;
use crate::driver::{Driver, Failure, Outcome, Version};
use crate::name::{Kind, PartitionName, VariableName};
use std::slice;
use variables::buffer::{Buffer, NoRoom};
use variables::open::{Element, Left};

/// Timers of these names that runtimes of the member have left which are not among `begins`.
pub(crate) fn find(
    store: &Store,
    function: &str,
    member: &str,
    names: &[String],
    begins: &[u32],
) -> Result<Vec<Left>, OpenError> {
    let (function, member) = (function.to_owned(), member.to_owned());
    let (names, begins) = (names.to_vec(), begins.to_vec());
    store.with(move |driver| {
        let mut found = Vec::new();
        let partitions = driver.partitions(&function)?.into_iter();
        let gone = partitions.filter(|of| of.member() == member && !begins.contains(&of.runtime()));
        for partition in gone {
            for name in &names {
                let Ok(variable) = partition.variable(Kind::Timers, name.clone()) else {
                    continue;
                };
                if elements(driver, &variable)?.is_empty() {
                    continue;
                }
                driver.claim(&partition, least_epoch())?;
                found.push(Left {
                    runtime: partition.runtime(),
                    name: name.clone(),
                    timers: elements(driver, &variable)?,
                });
            }
        }
        Ok(found)
    })
}

/// Removes timers from where a runtime has left them.
pub(crate) fn remove(store: &Store, function: &str, member: &str, left: &Left) -> Result<(), OpenError> {
    let partition = PartitionName::new(function, member, left.runtime)?;
    let variable = partition.variable(Kind::Timers, left.name.clone())?;
    let timers = left.timers.clone();
    store.with(move |driver| {
        let epoch = driver.claim(&partition, least_epoch())?;
        write_removals(driver, &variable, epoch, &timers)
    })
}

/// Removes timers of a variable, by a claim of its partition that has written nothing yet.
pub(crate) fn write_removals(
    driver: &mut dyn Driver,
    variable: &VariableName,
    epoch: u64,
    timers: &[Element],
) -> Result<(), Failure> {
    let partition = variable.partition();
    let mut outcomes = Vec::new();
    for (sequence, bytes) in (1..).zip(removals(timers)) {
        let version = Version { epoch, sequence };
        let batch = KeptBatch::new(partition, version, slice::from_ref(variable), bytes);
        driver.write(&[batch.batch()], &mut outcomes)?;
    }
    match outcomes.iter().all(|outcome| *outcome == Outcome::Stored) {
        true => Ok(()),
        false => Err(Failure::new(
            &partition.to_string(),
            "another process has claimed it while its timers were taken over",
            "see that one process has this member's name",
        )),
    }
}

/// Batches that remove these elements of a partition's only variable.
fn removals(timers: &[Element]) -> Vec<Vec<u8>> {
    let (mut batches, mut buffer) = (Vec::new(), Buffer::new());
    for (field, _) in timers {
        if buffer.remove_encoded(0, field) == Err(NoRoom) {
            batches.push(buffer.bytes().to_vec());
            buffer.empty();
            // Any element fits into an empty batch.
            let _ = buffer.remove_encoded(0, field);
        }
    }
    batches.push(buffer.bytes().to_vec());
    batches
}
