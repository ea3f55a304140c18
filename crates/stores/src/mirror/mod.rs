//! Two stores that mirror each other (FlexState VI-C): `[store] mirror = "…"`.
//!
//! # Theory of operation
//!
//! A [`Mirror`] is a driver over two. A batch is acknowledged when both stores have it, or when one
//! has it and the other is known to lack it. The mirror reads from the first, unless that store
//! lacks something: of a partition that this process has not claimed, unless the second store has
//! the higher version.
//!
//! ```text
//!   agent ──► Mirror ══ thread ══► first store          per partition and store:
//!                │                                                     a call failed, or data was lost
//!                ╞═════ thread ══► second store          in step ──────────────────────────► behind (debt)
//!                └ debt: the last change of each element     ▲                                  │
//!                                                            └── claimed, debt or copy written, version set
//! ```
//!
//! *Which has the truth.* Both have the same version of a partition while they are in step. Before
//! the first batch that only one takes is acknowledged, that one's epoch is raised by [`GAP`]. So
//! of two stores the one with the higher version has all that was acknowledged, whatever dies and
//! when; a start compares them, and the other one gets a copy.
//!
//! ```text
//!   first (7, 41)   second (7, 41)                 in step
//!   first dead      second (7+G, 41) (7+G, 42) …   alone
//!   first (8, 0) (8, 1) …  second (7+G, 90)        brought up, in an epoch below: dead or alive, the second has the truth
//!   first (7+G, 90) second (7+G, 90)               in step
//! ```
//!
//! *Bringing up.* The store that is behind is claimed first: batches that were given up and are
//! executed late are fenced by that. Then it gets the debt, and at last, in one call with the rest
//! of it, the version of the other. A debt beyond its bound ([`debt::BYTES_MAX`]), and a store that
//! has lost its data, is a copy of all variables. Calls for that run beside the agent's writing;
//! only the last one is waited for.
//!
//! *Epochs.* The agent keeps the epoch that its claim gave; batches go out with the epoch that the
//! partition has by now.
//!
//! Invariants: of a partition at most one store is behind (`leave`); a store that is behind has a
//! lower version than the other, until it has everything; an acknowledged batch is at a store that
//! a start will read. Checkers: the tests in `tests/servers/mirror.rs`,
//! `one_of_two_stores_may_fail_at_any_call`.
//!
//! Not here: records (locks, guarded writes), which are in the first store alone; a start while one
//! of both is away, which is refused, since the store that answers may be behind.

mod bringing;
mod debt;
mod side;
#[cfg(test)]
mod tests;

use crate::agent::elements;
use crate::batch::{Batch, KeptBatch};
use crate::driver::{Driver, Ending, Failure, Outcome, Swapped, Version};
use crate::name::{PartitionName, VariableName};
use bringing::{GLANCE, Step};
use debt::Debt;
use side::{Asked, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// By how much an epoch is raised where one store goes on alone: more than the other is claimed
/// until it is brought up.
const GAP: u64 = 1 << 20;
/// How often a batch is sent in one call: to both, to the store that goes on alone, and once more.
const ROUNDS: usize = 3;

/// How one of the two does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideHealth {
    /// Its URI, without a password.
    pub store: String,
    /// Whether its last call failed.
    pub failing: bool,
    /// Calls that failed so far.
    pub failures: u64,
    /// Partitions that it lacks something of.
    pub behind: u64,
    /// Bytes of changes that wait for it, about.
    pub waiting_bytes: u64,
    /// Copies of whole partitions that it was given.
    pub copies: u64,
    /// The last failure.
    pub last_failure: Option<Failure>,
}

/// How both do, as of the last call.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<[SideHealth; 2]>>);

impl Watch {
    /// The first, and its mirror.
    pub fn sides(&self) -> [SideHealth; 2] {
        self.0
            .lock()
            .map_or_else(|_| Default::default(), |sides| sides.clone())
    }
}

/// Something to be reported to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// This store lacks changes from now on; the other one goes on alone.
    Behind(String, Failure),
    /// This store has everything again.
    InStep(String),
}

struct Part {
    /// As the agent knows it.
    agent: u64,
    /// At the stores, once they have heard of it.
    epoch: u64,
    /// That they have heard of.
    heard: u64,
    /// Of the last batch that was acknowledged.
    stored: u64,
    /// Whether the store that goes on alone has yet to be told its epoch.
    must_raise: bool,
    fenced: bool,
    /// By store; `None`: it is in step.
    debts: [Option<Debt>; 2],
}

impl Part {
    fn new(version: Version, debts: [Option<Debt>; 2]) -> Self {
        Part {
            agent: version.epoch,
            epoch: version.epoch,
            heard: version.epoch,
            stored: version.sequence,
            must_raise: false,
            fenced: false,
            debts,
        }
    }

    fn version(&self) -> Version {
        Version {
            epoch: self.epoch,
            sequence: self.stored,
        }
    }

    /// The least version of a store in step that has lost nothing.
    fn least(&self) -> Version {
        Version {
            epoch: self.heard,
            sequence: self.stored,
        }
    }

    fn has_raised(&mut self) {
        (self.must_raise, self.heard) = (false, self.epoch);
    }

    fn is_in_step(&self, at: usize) -> bool {
        self.debts.get(at).is_some_and(Option::is_none)
    }

    /// A store lacks something from now on; answers whether the other is there to go on alone.
    fn leave(&mut self, at: usize, debt: Debt) -> bool {
        if !self.is_in_step(at) || !self.is_in_step(1 - at) {
            return false;
        }
        let least = self.least();
        if let Some(place) = self.debts.get_mut(at) {
            *place = Some(debt.behind(least));
        }
        self.raise();
        true
    }

    fn raise(&mut self) {
        self.epoch = self.epoch.saturating_add(GAP);
        self.must_raise = true;
    }
}

/// An epoch that a store is told before it goes on alone: the one that it has to have, and the one
/// that it has then.
#[derive(Clone)]
struct Raise {
    partition: PartitionName,
    least: Version,
    version: Version,
}

/// The outcomes of a partition's part of a call.
type Said = (Vec<Outcome>, Option<Failure>);

/// Two stores as one driver.
pub struct Mirror {
    sides: [Side; 2],
    ending: Ending,
    parts: BTreeMap<PartitionName, Part>,
    steps: [Option<(PartitionName, Step)>; 2],
    was_behind: [bool; 2],
    copies: [u64; 2],
    watch: Watch,
    report: Box<dyn FnMut(Told) + Send>,
}

impl Mirror {
    /// Over a store and its mirror, each with its URI without a password. `report` is called from
    /// the agent's thread.
    pub fn start(
        first: (String, Box<dyn Driver>),
        second: (String, Box<dyn Driver>),
        report: impl FnMut(Told) + Send + 'static,
    ) -> std::io::Result<(Self, Watch)> {
        let watch = Watch::default();
        let mirror = Mirror {
            ending: first.1.ending().and(second.1.ending()),
            sides: [Side::start(first.0, first.1)?, Side::start(second.0, second.1)?],
            parts: BTreeMap::new(),
            steps: [None, None],
            was_behind: [false; 2],
            copies: [0; 2],
            watch: watch.clone(),
            report: Box::new(report),
        };
        Ok((mirror, watch))
    }

    /// Shows the sides' health to the watch, and reports changes.
    fn show(&mut self) {
        let mut shown: [SideHealth; 2] = Default::default();
        for (at, (side, shown)) in self.sides.iter().zip(&mut shown).enumerate() {
            let debts = self.parts.values().filter_map(|part| part.debts[at].as_ref());
            let (behind, bytes) =
                debts.fold((0, 0), |(count, bytes), debt| (count + 1, bytes + debt.bytes()));
            *shown = SideHealth {
                store: side.name.clone(),
                failing: side.is_out(),
                failures: side.failures,
                behind,
                waiting_bytes: bytes as u64,
                copies: self.copies[at],
                last_failure: side.last_failure.clone(),
            };
            let is_behind = behind > 0;
            if is_behind != std::mem::replace(&mut self.was_behind[at], is_behind) {
                let why = || {
                    Failure::new(
                        &side.name,
                        "it has lost what it had",
                        "nothing: it is given a copy",
                    )
                };
                (self.report)(match is_behind {
                    true => Told::Behind(side.name.clone(), side.last_failure.clone().unwrap_or_else(why)),
                    false => Told::InStep(side.name.clone()),
                });
            }
        }
        if let Ok(mut watched) = self.watch.0.lock() {
            *watched = shown;
        }
    }

    /// Which stores take part in a call for this partition: stores in step, but not a store known
    /// to fail while the other is not.
    fn takers(&mut self, partition: &PartitionName) -> [bool; 2] {
        let out = [self.sides[0].is_out(), self.sides[1].is_out()];
        let Some(part) = self.parts.get_mut(partition) else {
            return [false; 2];
        };
        for at in 0..2 {
            if out[at] && !out[1 - at] {
                part.leave(at, Debt::default());
            }
        }
        [part.is_in_step(0), part.is_in_step(1)]
    }

    /// Sends batches to each store that is in step; answers their outcomes by store and batch.
    fn send(&mut self, batches: &[Batch<'_>], open: &[usize]) -> [BTreeMap<usize, Outcome>; 2] {
        let mut jobs: [Vec<KeptBatch>; 2] = Default::default();
        let mut raises: [Vec<Raise>; 2] = Default::default();
        let mut whose: [Vec<usize>; 2] = Default::default();
        for &number in open {
            let batch = &batches[number];
            let takers = self.takers(batch.partition);
            let Some(part) = self.parts.get(batch.partition) else {
                continue;
            };
            for at in (0..2).filter(|at| takers[*at]) {
                let version = Version {
                    epoch: part.epoch,
                    sequence: batch.version.sequence,
                };
                let is_new = raises[at].iter().all(|raise| raise.partition != *batch.partition);
                if part.must_raise && is_new {
                    raises[at].push(Raise {
                        partition: batch.partition.clone(),
                        least: part.least(),
                        version: part.version(),
                    });
                }
                jobs[at].push(KeptBatch::of(batch).with_version(version));
                whose[at].push(number);
            }
        }
        let mut asked: [Option<Asked<Said>>; 2] = [None, None];
        for (at, (jobs, raises)) in jobs.into_iter().zip(&raises).enumerate() {
            let side = &self.sides[at];
            if jobs.is_empty() {
                continue;
            }
            let raises = raises.clone();
            asked[at] = Some(side.ask(move |driver| Ok(write(driver, &raises, &jobs))));
        }
        let mut heard: [BTreeMap<usize, Outcome>; 2] = Default::default();
        for (at, asked) in asked.into_iter().enumerate() {
            let Some(asked) = asked else { continue };
            let (outcomes, failure) = asked.wait().unwrap_or_else(|failure| (Vec::new(), Some(failure)));
            match failure {
                Some(failure) => self.sides[at].fail(failure),
                None => self.sides[at].note(&Ok(())),
            }
            heard[at] = whose[at].iter().copied().zip(outcomes).collect();
            if !self.sides[at].is_out() {
                for raise in &raises[at] {
                    if let Some(part) = self.parts.get_mut(&raise.partition) {
                        part.has_raised();
                    }
                }
            }
        }
        heard
    }

    /// A batch's outcome, by the answers of the stores in step; nothing where it has to be sent
    /// again.
    fn judge(&mut self, batch: &Batch<'_>, said: [Option<Outcome>; 2]) -> Option<Outcome> {
        let part = self.parts.get_mut(batch.partition)?;
        let in_step = [part.is_in_step(0), part.is_in_step(1)];
        let of_both = |outcome| (0..2).all(|at| !in_step[at] || said[at] == Some(outcome));
        if part.must_raise {
            return None;
        }
        if said.contains(&Some(Outcome::Fenced)) {
            part.fenced = true;
            return Some(Outcome::Fenced);
        }
        if of_both(Outcome::Stored) {
            return Some(Outcome::Stored);
        }
        if of_both(Outcome::Forgotten) {
            return Some(Outcome::Forgotten);
        }
        for at in 0..2 {
            let other_has = said[1 - at] == Some(Outcome::Stored);
            match said[at] {
                Some(Outcome::Forgotten) if other_has => part.leave(at, Debt::of_everything()),
                None if other_has => part.leave(at, Debt::default()),
                _ => false,
            };
        }
        None
    }

    /// A batch is acknowledged: the store that is behind owes it.
    fn note_acknowledged(&mut self, batch: &Batch<'_>) {
        let Some(part) = self.parts.get_mut(batch.partition) else {
            return;
        };
        // A repetition is owed already.
        if batch.version.sequence <= part.stored {
            return;
        }
        part.stored = batch.version.sequence;
        for debt in part.debts.iter_mut().flatten() {
            debt.add(batch);
        }
    }

    /// Asks both at once; a store that fails is waited for a moment only.
    fn both<R: Send + 'static>(
        &mut self,
        work: impl Fn(&mut dyn Driver) -> Result<R, Failure> + Clone + Send + 'static,
    ) -> [Option<R>; 2] {
        let mut asked: [Option<Asked<R>>; 2] = [None, None];
        for (side, asked) in self.sides.iter().zip(&mut asked) {
            if !side.is_out() || side.may_try() && side.is_idle() {
                *asked = Some(side.ask(work.clone()));
            }
        }
        let mut answers = [None, None];
        for ((side, asked), answer) in self.sides.iter_mut().zip(asked).zip(&mut answers) {
            let done = match asked {
                Some(asked) if side.is_out() => asked.poll(GLANCE),
                Some(asked) => Some(asked.wait()),
                None => None,
            };
            if let Some(done) = done {
                side.note(&done);
                *answer = done.ok();
            }
        }
        answers
    }

    /// Which stores have all of a partition, in the order in which they are asked. Of a partition
    /// that is not claimed here the versions tell, as behind a start; where one store does not
    /// answer, that is not known, and the other one is all that can be read.
    fn readable(&mut self, partition: &PartitionName) -> Vec<usize> {
        let mut order: Vec<usize> = match self.parts.get(partition) {
            Some(part) => (0..2).filter(|at| part.is_in_step(*at)).collect(),
            None => {
                let of = partition.clone();
                match self.both(move |driver| driver.version(&of)) {
                    [Some(first), Some(second)] if first > second => vec![0],
                    [Some(first), Some(second)] if first < second => vec![1],
                    [Some(_), None] => vec![0],
                    [None, Some(_)] => vec![1],
                    _ => vec![0, 1],
                }
            }
        };
        order.sort_by_key(|at| self.sides[*at].is_out());
        order
    }

    /// Asks the stores that have all of a partition, until one answers.
    fn first_of<R: Send + 'static>(
        &mut self,
        partition: &PartitionName,
        work: impl Fn(&mut dyn Driver) -> Result<R, Failure> + Clone + Send + 'static,
    ) -> Result<R, Failure> {
        let order = self.readable(partition);
        let mut failed = None;
        for at in order {
            match self.sides[at].call(work.clone()) {
                Ok(done) => return Ok(done),
                Err(failure) => failed = Some(failure),
            }
        }
        Err(failed.unwrap_or_else(|| self.neither()))
    }

    fn neither(&self) -> Failure {
        let mut failures = self.sides.iter().filter_map(|side| side.last_failure.clone());
        failures.next_back().unwrap_or_else(|| {
            let both = format!("{} and {}", self.sides[0].name, self.sides[1].name);
            Failure::new(
                &both,
                "neither takes it",
                "see that both run; changes wait meanwhile",
            )
        })
    }

    /// Sets the version of a partition that was not claimed here. A store that had less than the
    /// other gets a copy, as behind a claim.
    fn restore_unclaimed(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        let versions = self.versions(partition)?;
        let truth = usize::from(versions[1] > versions[0]);
        let is_alike = versions[0] == versions[1];
        for at in [truth, 1 - truth].into_iter().take(1 + usize::from(is_alike)) {
            let of = partition.clone();
            let outcome = self.sides[at].call(move |driver| driver.restore(&of, version))?;
            if outcome != Outcome::Stored {
                return Ok(outcome);
            }
        }
        let mut debts = [None, None];
        if !is_alike {
            debts[1 - truth] = Some(Debt::of_everything());
        }
        // The store's version may be later in the same epoch, and stays.
        let has = versions[truth].filter(|has| *has > version).unwrap_or(version);
        self.parts.insert(partition.clone(), Part::new(has, debts));
        self.show();
        Ok(Outcome::Stored)
    }

    /// The partition's version at both, or why it cannot be had.
    fn versions(&mut self, partition: &PartitionName) -> Result<[Option<Version>; 2], Failure> {
        let mut versions = [None; 2];
        for (side, version) in self.sides.iter_mut().zip(&mut versions) {
            let of = partition.clone();
            *version = side.call(move |driver| driver.version(&of)).map_err(|failure| Failure {
                remedy: format!(
                    "{}; which of two stores has the later state is known when both answer: see that it runs, or \
                     name the one that you trust as `uri`, without a mirror",
                    failure.remedy
                ),
                ..failure
            })?;
        }
        Ok(versions)
    }
}

impl Driver for Mirror {
    fn ending(&self) -> Ending {
        self.ending.clone()
    }

    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        let versions = self.versions(partition)?;
        // The first, where they are alike.
        let truth = usize::from(versions[1] > versions[0]);
        let is_alike = versions[0] == versions[1];
        let highest = versions.iter().flatten().map(|version| version.epoch).max();
        let gap = if is_alike { 1 } else { GAP };
        let at_least = at_least.max(highest.unwrap_or(0).saturating_add(gap));
        let of = partition.clone();
        let epoch = self.sides[truth].call(move |driver| driver.claim(&of, at_least))?;
        let mut debts = [None, None];
        if is_alike {
            let of = partition.clone();
            let other = self.sides[1 - truth].call(move |driver| driver.claim(&of, epoch))?;
            if other != epoch {
                let problem = format!("another process claims {partition} at the same time");
                return Err(Failure::new(
                    &self.sides[1 - truth].name,
                    problem,
                    "end one of them",
                ));
            }
        } else {
            debts[1 - truth] = Some(Debt::of_everything());
        }
        for step in &mut self.steps {
            step.take_if(|(of, _)| of == partition);
        }
        self.parts.insert(
            partition.clone(),
            Part::new(Version { epoch, sequence: 0 }, debts),
        );
        self.show();
        Ok(epoch)
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        self.bring_up();
        if !self.parts.contains_key(partition) {
            let of = partition.clone();
            let answers = self.both(move |driver| driver.version(&of));
            return answers.into_iter().flatten().max().ok_or_else(|| self.neither());
        }
        let takers = self.takers(partition);
        let mut found = [None; 2];
        for at in (0..2).filter(|at| takers[*at]) {
            let of = partition.clone();
            found[at] = self.sides[at].call(move |driver| driver.version(&of)).ok();
        }
        self.show();
        let Some(part) = self.parts.get_mut(partition) else {
            return Ok(None);
        };
        let ours = part.least();
        let has = |found: &Option<Version>| found.unwrap_or_default();
        let answers: Vec<Version> = found.iter().flatten().map(has).collect();
        let Some(most) = answers.iter().max() else {
            return Err(self.neither());
        };
        if part.fenced || most.epoch > part.epoch {
            return Ok(Some(Version {
                epoch: part.agent.saturating_add(1),
                sequence: 0,
            }));
        }
        // The other store still has the changes that a store has lost.
        let has_all =
            |found: &Option<Option<Version>>| found.as_ref().is_some_and(|found| has(found) >= ours);
        for at in 0..2 {
            if found[at].is_some() && !has_all(&found[at]) && has_all(&found[1 - at]) {
                part.leave(at, Debt::of_everything());
            }
        }
        let known = Version {
            epoch: part.agent,
            sequence: part.stored,
        };
        Ok((*most >= ours).then_some(known))
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        if !self.parts.contains_key(partition) {
            return self.restore_unclaimed(partition, version);
        }
        let takers = self.takers(partition);
        let Some(part) = self
            .parts
            .get(partition)
            .filter(|part| part.agent == version.epoch)
        else {
            return Ok(Outcome::Fenced);
        };
        let to = Version {
            epoch: part.epoch,
            sequence: version.sequence,
        };
        let mut said = [None; 2];
        for at in (0..2).filter(|at| takers[*at]) {
            let of = partition.clone();
            said[at] = self.sides[at].call(move |driver| driver.restore(&of, to)).ok();
        }
        let neither = self.neither();
        let Some(part) = self.parts.get_mut(partition) else {
            return Err(neither);
        };
        if said.contains(&Some(Outcome::Fenced)) {
            part.fenced = true;
            return Ok(Outcome::Fenced);
        }
        if said == [None, None] {
            return Err(neither);
        }
        part.stored = part.stored.max(version.sequence);
        part.has_raised();
        for at in (0..2).filter(|at| takers[*at] && said[*at].is_none()) {
            part.leave(at, Debt::of_everything());
        }
        Ok(Outcome::Stored)
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        self.bring_up();
        let mut known: Vec<Option<Outcome>> = batches
            .iter()
            .map(|batch| {
                let part = self.parts.get(batch.partition);
                let is_ours = part.is_some_and(|part| part.agent == batch.version.epoch && !part.fenced);
                (!is_ours).then_some(Outcome::Fenced)
            })
            .collect();
        for _ in 0..ROUNDS {
            let open: Vec<usize> = (0..known.len()).filter(|at| known[*at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let heard = self.send(batches, &open);
            for number in open {
                let said = [heard[0].get(&number).copied(), heard[1].get(&number).copied()];
                known[number] = self.judge(&batches[number], said);
                if known[number] == Some(Outcome::Stored) {
                    self.note_acknowledged(&batches[number]);
                }
            }
            if heard.iter().all(BTreeMap::is_empty) {
                break;
            }
        }
        let mut done = Ok(());
        for known in known {
            match known {
                Some(outcome) => outcomes.push(outcome),
                // Outcomes are in the batches' order: those behind wait for the repetition too.
                None => {
                    done = Err(self.neither());
                    break;
                }
            }
        }
        self.show();
        done
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let of = variable.clone();
        let found = self.first_of(variable.partition(), move |driver| elements(driver, &of))?;
        found.iter().for_each(|(field, value)| element(field, value));
        Ok(())
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        let function = function.to_owned();
        // A partition may be in one of them, until a process claims it.
        let answers = self.both(move |driver| driver.partitions(&function));
        if answers.iter().all(Option::is_none) {
            return Err(self.neither());
        }
        let all: BTreeSet<_> = answers.into_iter().flatten().flatten().collect();
        Ok(all.into_iter().collect())
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        let (first, second) = match self.both(|driver| driver.variables()) {
            [Some(first), Some(second)] => (first, second),
            [Some(one), None] | [None, Some(one)] => return Ok(one),
            [None, None] => return Err(self.neither()),
        };
        // Of each partition those that the store has from which it is read.
        let mut from: BTreeMap<PartitionName, Option<usize>> = BTreeMap::new();
        let mut all = BTreeSet::new();
        for (at, variable) in first
            .into_iter()
            .map(|of| (0, of))
            .chain(second.into_iter().map(|of| (1, of)))
        {
            let partition = variable.partition();
            let read = match from.get(partition) {
                Some(read) => *read,
                None => {
                    let read = self.readable(partition).first().copied();
                    from.insert(partition.clone(), read);
                    read
                }
            };
            if read == Some(at) {
                all.insert(variable);
            }
        }
        Ok(all.into_iter().collect())
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let name = name.to_owned();
        self.sides[0].call(move |driver| driver.record(&name))
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.sides[0].call(|driver| driver.records())
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let (name, expected, new) = (name.to_owned(), owned(expected), owned(new));
        self.sides[0].call(move |driver| driver.swap(&name, expected.as_deref(), new.as_deref()))
    }
}

impl Raise {
    /// Tells a store; a store that has lost changes stays as it is, and answers the next batch with
    /// `Forgotten`.
    fn tell(&self, driver: &mut dyn Driver) -> Result<Outcome, Failure> {
        let has = driver.version(&self.partition)?.unwrap_or_default();
        match has < self.least {
            true => Ok(Outcome::Forgotten),
            false => driver.restore(&self.partition, self.version),
        }
    }
}

fn lost(partition: &PartitionName) -> Failure {
    let problem = "it has lost what it was given, or another process writes it";
    Failure::new(&partition.to_string(), problem, "it is tried again")
}

/// Raises epochs and writes; outcomes before a failure count.
fn write(driver: &mut dyn Driver, raises: &[Raise], batches: &[KeptBatch]) -> Said {
    for raise in raises {
        if let Err(failure) = raise.tell(driver) {
            return (Vec::new(), Some(failure));
        }
    }
    let batches: Vec<Batch<'_>> = batches.iter().map(KeptBatch::batch).collect();
    let mut outcomes = Vec::with_capacity(batches.len());
    let failure = driver.write(&batches, &mut outcomes).err();
    (outcomes, failure)
}
