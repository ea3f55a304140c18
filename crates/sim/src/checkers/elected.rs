//! Where there are several coordinators: nothing is decided twice, and none decides without knowing
//! all that was decided (invariants 9 and 11, of the coordinator itself).
//!
//! - A record is put by the coordinator that is elected just then.
//! - A number has one record for ever, though it be forgotten.
//! - No two take themselves for elected at once, each by its own clock: no clock is slower than the
//!   store's.
//! - A coordinator that begins to lead knows all that is in force.

use super::Violation;
use crate::store::Written;
use std::collections::BTreeMap;

const NAME: &str = "elected";

/// Numbers that were put, and by which coordinator.
#[derive(Default)]
pub(crate) struct Records {
    put: BTreeMap<u64, u8>,
}

impl Records {
    /// A record is in the store.
    pub fn see(&mut self, written: Written) -> Result<(), Violation> {
        let Written { number, by, leader } = written;
        if leader != Some(by) {
            let what = match leader {
                Some(leader) => format!("coordinator {by} writes record {number}, and {leader} is elected"),
                None => format!("coordinator {by} writes record {number}, and none is elected"),
            };
            return Err(Violation::new(NAME, what));
        }
        match self.put.insert(number, by) {
            None => Ok(()),
            Some(before) => {
                let what = format!("record {number} of coordinator {before} is written again, by {by}");
                Err(Violation::new(NAME, what))
            }
        }
    }
}

/// Coordinators that take themselves for elected.
pub(crate) fn are_few(elected: &[u8]) -> Result<(), Violation> {
    match elected {
        [one, other, ..] => {
            let what = format!("coordinators {one} and {other} take themselves for elected");
            Err(Violation::new(NAME, what))
        }
        _ => Ok(()),
    }
}

/// A coordinator leads with this view and list of suspects; these are in force.
pub(crate) fn knows(by: u8, has: (u32, u64), in_force: (u32, u64)) -> Result<(), Violation> {
    if has.0 >= in_force.0 && has.1 >= in_force.1 {
        return Ok(());
    }
    let what = format!("coordinator {by} leads with view and list {has:?}, and {in_force:?} are in force");
    Err(Violation::new(NAME, what))
}
