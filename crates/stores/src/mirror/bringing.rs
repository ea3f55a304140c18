//! Bringing a store up that is behind: step by step, while the other goes on alone.
//!
//! Not here: the batches for the other store meanwhile ([`super`]), and the changes that the store
//! lacks ([`Debt`]).

use super::debt::Debt;
use super::side::Asked;
use super::{Mirror, Raise, lost};
use crate::agent::{Element, elements};
use crate::batch::KeptBatch;
use crate::driver::{Driver, Failure, Outcome, Version};
use crate::name::{PartitionName, VariableName};
use std::time::Duration;

/// A debt of so many bytes is written in the call that ends it.
const LAST_BYTES: usize = 64 << 10;
/// How long a call that brings a store up is waited for when it is made. Later it is only looked
/// at.
pub(super) const GLANCE: Duration = Duration::from_millis(20);

/// A call that brings a store up.
pub(super) enum Step {
    Claim(Asked<Claimed>),
    Read(Asked<Vec<(VariableName, Vec<Element>)>>),
    Write(Asked<Version>, Debt),
}

/// The result of a claim at a store.
pub(super) struct Claimed {
    /// Nothing where another process has the partition.
    epoch: Option<u64>,
    /// Whether everything has to be copied.
    needs_copy: bool,
    /// The partition's variables, where it has.
    variables: Vec<VariableName>,
}

impl Mirror {
    /// Brings up partitions that are behind, as far as that goes without waiting.
    pub(super) fn bring_up(&mut self) {
        for at in 0..2 {
            while self.step(at) {}
        }
    }

    /// A step of bringing a store up; answers whether another may follow at once.
    fn step(&mut self, at: usize) -> bool {
        let Some((partition, step)) = self.steps[at].take() else {
            return self.begin(at);
        };
        let patience = Duration::ZERO;
        let (step, done) = match step {
            Step::Claim(asked) => match asked.poll(patience) {
                Some(answer) => (None, self.claimed(at, &partition, answer)),
                None => (Some(Step::Claim(asked)), false),
            },
            Step::Read(asked) => match asked.poll(patience) {
                Some(answer) => (None, self.read(at, &partition, answer)),
                None => (Some(Step::Read(asked)), false),
            },
            Step::Write(asked, sent) => match asked.poll(patience) {
                Some(answer) => (None, self.written(at, &partition, answer, sent)),
                None => (Some(Step::Write(asked, sent)), false),
            },
        };
        if let Some(step) = step {
            self.steps[at] = Some((partition, step));
        }
        done
    }

    /// Begins with the first partition that the store is behind with.
    fn begin(&mut self, at: usize) -> bool {
        if !self.sides[at].may_try() || !self.sides[at].is_idle() {
            return false;
        }
        let mut behind = self
            .parts
            .iter()
            .filter(|(_, part)| part.debts[at].is_some() && !part.fenced);
        let Some(partition) = behind.next().map(|(partition, _)| partition.clone()) else {
            return false;
        };
        if !self.raise_other(at, &partition) {
            return false;
        }
        let Some(part) = self.parts.get_mut(&partition) else {
            return false;
        };
        let (epoch, Some(debt)) = (part.epoch, part.debts[at].as_mut()) else {
            return false;
        };
        let Some(made) = debt.made.filter(|_| !debt.needs_copy) else {
            let (of, needs_copy, least) = (partition.clone(), debt.needs_copy, debt.least);
            let asked = self.sides[at].ask(move |driver| claim_behind(driver, &of, epoch, needs_copy, least));
            return self.await_step(at, partition, Step::Claim(asked));
        };
        if debt.bytes() <= LAST_BYTES && !debt.has_copy() {
            return self.finish(at, &partition, made);
        }
        let sent = debt.take();
        let batches = sent.batches(&partition, made);
        let asked = self.sides[at].ask(move |driver| write_debt(driver, &batches, made));
        self.await_step(at, partition, Step::Write(asked, sent))
    }

    /// Waits a moment for a step that was just begun.
    fn await_step(&mut self, at: usize, partition: PartitionName, step: Step) -> bool {
        self.steps[at] = Some((partition, step));
        let until = std::time::Instant::now() + GLANCE;
        while !self.sides[at].is_idle() && std::time::Instant::now() < until {
            std::thread::sleep(GLANCE / 100);
        }
        self.sides[at].is_idle()
    }

    /// Has the store that goes on alone hear of its epoch, before the other is claimed.
    fn raise_other(&mut self, at: usize, partition: &PartitionName) -> bool {
        let Some(part) = self.parts.get(partition).filter(|part| part.must_raise) else {
            return true;
        };
        if !self.sides[1 - at].may_try() {
            return false;
        }
        let raise = Raise {
            partition: partition.clone(),
            least: part.least(),
            version: part.version(),
        };
        let raised = self.sides[1 - at].call(move |driver| raise.tell(driver));
        let Some(part) = self.parts.get_mut(partition) else {
            return false;
        };
        match raised {
            Ok(Outcome::Stored) => part.has_raised(),
            Ok(Outcome::Fenced) => part.fenced = true,
            // The next batch, or the next look, finds out its losses.
            Ok(Outcome::Forgotten) | Err(_) => {}
        }
        !part.must_raise
    }

    fn claimed(&mut self, at: usize, partition: &PartitionName, answer: Result<Claimed, Failure>) -> bool {
        self.sides[at].note(&answer);
        let (Ok(claimed), Some(part)) = (answer, self.parts.get_mut(partition)) else {
            return false;
        };
        let Some(epoch) = claimed.epoch else {
            part.fenced = true;
            return false;
        };
        if epoch >= part.epoch {
            // The partition was claimed more often than the gap is wide.
            part.epoch = epoch;
            part.raise();
        }
        let Some(debt) = &mut part.debts[at] else {
            return false;
        };
        debt.has_made(Version { epoch, sequence: 0 });
        if claimed.needs_copy {
            // Changes from now on come on top of the copy.
            debt.begin_copy();
            let (of, known) = (partition.clone(), claimed.variables);
            let asked = self.sides[1 - at].ask(move |driver| read_all(driver, &of, known));
            self.steps[at] = Some((partition.clone(), Step::Read(asked)));
            return false;
        }
        true
    }

    fn read(
        &mut self,
        at: usize,
        partition: &PartitionName,
        answer: Result<Vec<(VariableName, Vec<Element>)>, Failure>,
    ) -> bool {
        self.sides[1 - at].note(&answer);
        let part = self.parts.get_mut(partition);
        let Some(debt) = part.and_then(|part| part.debts[at].as_mut()) else {
            return false;
        };
        let Ok(variables) = answer else {
            *debt = Debt::of_everything();
            return false;
        };
        let mut copy = Debt::default();
        for (variable, elements) in variables {
            copy.replace(&variable, elements);
        }
        debt.put_under(copy);
        self.copies[at] += 1;
        true
    }

    fn written(
        &mut self,
        at: usize,
        partition: &PartitionName,
        answer: Result<Version, Failure>,
        sent: Debt,
    ) -> bool {
        self.sides[at].note(&answer);
        let part = self.parts.get_mut(partition);
        let Some(debt) = part.and_then(|part| part.debts[at].as_mut()) else {
            return false;
        };
        match answer {
            Ok(made) => debt.has_made(made),
            Err(_) => {
                // The batch may be executed late: the next claim fences it.
                debt.made = None;
                if sent.has_copy() {
                    *debt = Debt::of_everything();
                } else {
                    debt.put_under(sent);
                }
            }
        }
        true
    }

    /// Writes the rest and the version, in one call that is waited for: nothing comes in between.
    fn finish(&mut self, at: usize, partition: &PartitionName, made: Version) -> bool {
        let Some(part) = self.parts.get_mut(partition) else {
            return false;
        };
        let version = part.version();
        let Some(debt) = part.debts[at].as_mut() else {
            return false;
        };
        let sent = debt.take();
        let (of, batches) = (partition.clone(), sent.batches(partition, made));
        let done = self.sides[at].call(move |driver| {
            let made = write_debt(driver, &batches, made)?;
            match driver.version(&of)? == Some(made) {
                true => driver.restore(&of, version),
                false => Err(lost(&of)),
            }
        });
        let Some(part) = self.parts.get_mut(partition) else {
            return false;
        };
        match done {
            Ok(Outcome::Fenced) => part.fenced = true,
            Ok(_) => part.debts[at] = None,
            Err(_) => {
                // The store may have the other's version by now: that one has to be ahead of it
                // again.
                part.raise();
                if let Some(debt) = part.debts[at].as_mut() {
                    debt.made = None;
                    debt.put_under(sent);
                }
                return false;
            }
        }
        true
    }
}

/// Claims a partition at a store that is behind, unless another process has it.
fn claim_behind(
    driver: &mut dyn Driver,
    partition: &PartitionName,
    epoch: u64,
    needs_copy: bool,
    least: Version,
) -> Result<Claimed, Failure> {
    let has = driver.version(partition)?.unwrap_or_default();
    let mut claimed = Claimed {
        epoch: None,
        // A debt is worth nothing to a store that has lost the changes before it.
        needs_copy: needs_copy || has < least,
        variables: Vec::new(),
    };
    if has.epoch > epoch {
        return Ok(claimed);
    }
    if claimed.needs_copy {
        claimed.variables = driver.variables()?;
        claimed
            .variables
            .retain(|variable| variable.partition() == partition);
    }
    claimed.epoch = Some(driver.claim(partition, 0)?);
    Ok(claimed)
}

/// Reads all variables of a partition, and these, which may be gone.
fn read_all(
    driver: &mut dyn Driver,
    partition: &PartitionName,
    known: Vec<VariableName>,
) -> Result<Vec<(VariableName, Vec<Element>)>, Failure> {
    let mut all = driver.variables()?;
    all.retain(|variable| variable.partition() == partition);
    all.extend(known);
    all.sort();
    all.dedup();
    let read = |variable: VariableName| {
        let elements = elements(driver, &variable)?;
        Ok((variable, elements))
    };
    all.into_iter().map(read).collect()
}

/// Writes the batches of a debt; answers the version that they make.
fn write_debt(driver: &mut dyn Driver, batches: &[KeptBatch], made: Version) -> Result<Version, Failure> {
    let mut version = made;
    for kept in batches {
        let mut outcomes = Vec::new();
        driver.write(&[kept.batch()], &mut outcomes)?;
        if outcomes.first() != Some(&Outcome::Stored) {
            return Err(lost(kept.batch().partition));
        }
        version = kept.batch().version;
    }
    Ok(version)
}
