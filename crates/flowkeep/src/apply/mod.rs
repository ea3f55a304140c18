//! Another configuration for a running cluster: the differences, the live flows that it would cut,
//! and putting it in force.
//!
//! # Theory of operation
//!
//! ```text
//!   chain diff    read ─► compare ─► prepare at all runtimes ─► survey ─► abandon
//!   chain apply   read ─► compare ─► prepare at all runtimes ─► survey ─► commit at all ─► switches ─► sweep ─► receipt
//!                                    └─ any refusal, or flows would be cut without leave: abandon, nothing has changed
//! ```
//!
//! All slow work (reading, compiling, allocating) happens on the thread of the control connection
//! that asks; a worker takes the results in between two bursts ([`runtime::worker::change`] has the
//! worker's half).
//!
//! *Compare* ([`settings`]). Settings below `function` and `chain` may change; a function itself
//! refuses a setting that it cannot change ([`nf::NetworkFunction::succeed`]). Everything else
//! (ports, workers, sizes) is fixed when the cluster starts, and is named with its remedy.
//!
//! *Survey.* The functions of the new configuration are asked about a copy of each live flow. Flows
//! that they would end are counted by function and reason, and listed up to a bound. Flows come and
//! go meanwhile: the receipt counts how they ended or went on.
//!
//! *Commit.* All runtimes are told at once. If a runtime does not answer in time, its word is taken
//! back ([`Ticket`]), and the runtimes that did commit go back to the configuration before, as a
//! generation of its own. Switches follow the runtimes: a packet that they send by the plan before
//! is dropped by a runtime that does not expect it, as the rules before would have it. Ports answer
//! for new addresses before the commit, and for gone addresses until behind it.
//!
//! *Rollback* is the same with the configuration before, whose plan is kept: no file is read again.
//!
//! *Of several processes* ([`joined`]) each member does the first half and holds it, until the
//! coordinator has decided.
//!
//! *On trial* ([`trial`]) a configuration goes back by itself, unless an operator confirms it.
//!
//! Invariants: one change at a time; a refused change has changed nothing; a receipt's generation
//! is in force at every runtime.
//!
//! Not here: how a command prints this ([`report`]'s `Display`), the socket ([`crate::control`]).

pub mod joined;
pub mod report;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod trial;

use crate::config::{self, Config, Problem};
use crate::member::secrets;
use crate::registry::Registry;
use joined::{Joined, Own, Ready, Standing};
use nf::{Generation, WorkerInfo};
use protocols::channel::AGREED;
use report::{Change, CutCount, Listed, Outcome, Receipt};
use runtime::chain::Plan;
use runtime::stats::Named;
use runtime::switch::SideRule;
use runtime::worker::change::{Before, ChangeError, ChangeState, CutFlow, Prepared, fits};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use trial::{Trials, WentBack};
use wire::Prefix;

/// The most flows that are listed.
pub const LISTED_MAX: usize = 100_000;
/// How long a survey, or a sweep, may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long flows whose calls wait are waited for.
const CALLS: Duration = Duration::from_secs(2);
/// How often it is looked how far the runtimes are.
const LOOK: Duration = Duration::from_millis(1);

/// The request of an operator.
#[derive(serde::Serialize, serde::Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The configuration's file; none for the one the cluster was started with, or with `rollback`
    /// for the configuration before.
    pub path: Option<PathBuf>,
    /// Only say the effects.
    pub dry: bool,
    /// Cut flows, if it must be.
    pub cut: bool,
    /// Go back.
    pub rollback: bool,
    /// List so many of the flows that are cut, at most [`LISTED_MAX`].
    pub listed: usize,
    /// Wait for another change that is under way, instead of being refused for it: the sender of a
    /// signal hears of no refusal.
    #[serde(default)]
    pub waits: bool,
    /// Go back after so many milliseconds, unless it is confirmed ([`trial`]).
    #[serde(default)]
    pub confirm_ms: Option<u64>,
}

/// Where a running cluster's configuration came from.
pub struct Source {
    /// Which functions there are.
    pub registry: Registry,
    /// The file.
    pub path: PathBuf,
    /// Its settings as a tree.
    pub tree: toml::Table,
    /// Puts in the options of the command line.
    pub overrides: Box<Override>,
    /// Of a member with a coordinator: its further settings.
    pub own: Option<Own>,
}

/// Changes a configuration that was just read, or says why it cannot.
pub type Override = dyn Fn(&mut Config) -> Result<(), String> + Send + Sync;

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({})", self.path.display())
    }
}

/// A runtime's leave to commit: given, used or taken back, once.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<AtomicU8>);

impl Ticket {
    const USED: u8 = 1;
    const TAKEN_BACK: u8 = 2;

    fn decide(&self, how: u8) -> bool {
        self.0
            .compare_exchange(0, how, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// For the runtime: whether it may commit.
    pub fn redeem(&self) -> bool {
        self.decide(Self::USED)
    }

    /// For the change that gave it: whether it was not used, and cannot be any more.
    pub fn take_back(&self) -> bool {
        self.decide(Self::TAKEN_BACK)
    }
}

/// The workers of a cluster, as far as a change needs them. `None`: no answer in time.
pub trait Workers {
    /// How many runtimes.
    fn runtimes(&self) -> usize;
    /// Hands a runtime the configuration that it may go over to.
    fn prepare(&self, runtime: usize, prepared: Box<Prepared>) -> Option<Result<(), ChangeError>>;
    /// The prepared configuration is not wanted.
    fn abandon(&self, runtime: usize);
    /// Tells all of them to commit, and waits; which have.
    fn commit(&self, tickets: &[Ticket]) -> Vec<bool>;
    /// How far a runtime is.
    fn state(&self, runtime: usize) -> Option<ChangeState>;
    /// The flows that its survey has listed.
    fn listed(&self, runtime: usize) -> Vec<CutFlow>;
    /// The configuration that was in force before, once nothing is of it.
    fn before(&self, runtime: usize) -> Option<Box<Before>>;
    /// Has each port of a switch answer for these addresses.
    fn claim(&self, switch: usize, addresses: Vec<Vec<Prefix>>) -> Result<(), String>;
    /// Another plan is in force.
    fn follow(&self, switch: usize, plan: Plan);
}

/// The configuration in force, and the one before.
struct Held {
    generation: u64,
    plan: Plan,
    config: Config,
    tree: toml::Table,
    previous: Option<Box<(Plan, Config, toml::Table)>>,
    /// Of a member with a coordinator: which of the cluster's configurations it is.
    standing: Option<Standing>,
    /// Prepared, and not decided yet.
    ready: Option<Box<Ready>>,
    /// The plan is in force at the runtimes, and switches have not been told.
    is_switch_behind: bool,
}

/// A cluster's configuration while it runs.
pub struct Live {
    held: Mutex<Held>,
    source: Option<Source>,
    /// Of the runtimes that are there.
    infos: Mutex<Vec<WorkerInfo>>,
    /// The side of each port, by switch.
    sides: Vec<Vec<SideRule>>,
    trials: Arc<Trials>,
    joined: Option<Joined>,
}

/// A configuration that was read.
struct Read {
    file: String,
    text: String,
    config: Config,
    tree: toml::Table,
}

/// The configuration to be put in force, read and compared.
struct Wanted {
    plan: Plan,
    config: Config,
    tree: toml::Table,
    /// Of a member: the words by which others know it.
    words: [u64; AGREED],
}

/// Why there is nothing to be put in force; `Err` of [`Live::change`] is for errors that are not
/// about the configuration.
enum Stop {
    /// Said in the answer already.
    Said,
    Failed(String),
}

impl From<String> for Stop {
    fn from(problem: String) -> Self {
        Stop::Failed(problem)
    }
}

impl Live {
    /// Of a cluster that was just made of `config`.
    pub fn new(
        config: Config,
        plan: Plan,
        source: Option<Source>,
        infos: Vec<WorkerInfo>,
        sides: Vec<Vec<SideRule>>,
    ) -> Self {
        let mut tree = source
            .as_ref()
            .map(|source| source.tree.clone())
            .unwrap_or_default();
        let mut source = source;
        let own = source.as_mut().and_then(|source| source.own.take());
        if own.is_some() {
            tree = secrets::shared(&tree);
        }
        let (joined, standing) = own.map(Joined::begin).unzip();
        let trials = Trials::default();
        trials.note_in_force(source.as_ref().map(|source| source.path.display().to_string()));
        Live {
            held: Mutex::new(Held {
                generation: 1,
                plan,
                config,
                tree,
                previous: None,
                standing,
                ready: None,
                is_switch_behind: false,
            }),
            joined,
            source,
            infos: Mutex::new(infos),
            sides,
            trials: Arc::new(trials),
        }
    }

    fn infos(&self) -> Vec<WorkerInfo> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration in force, unless another change has it in hand.
    fn try_held(&self) -> Result<MutexGuard<'_, Held>, String> {
        match self.held.try_lock() {
            Ok(held) => Ok(held),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err("another change is under way; try again when it is done".into())
            }
        }
    }

    /// Has runtimes come or go while no change is under way, and none begins. `change` gets the
    /// plan in force, and the workers that are there.
    pub fn with_workers<R>(
        &self,
        change: impl FnOnce(&Plan, Generation, &mut Vec<WorkerInfo>) -> R,
    ) -> Result<R, String> {
        let held = self.try_held()?;
        let mut infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(change(&held.plan, Generation(held.generation), &mut infos))
    }

    /// Says what a change would do, or makes it.
    pub fn change(&self, ask: &Ask, workers: &dyn Workers) -> Result<Change, String> {
        let mut held = if ask.waits {
            self.held.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            self.try_held()?
        };
        self.change_held(ask, workers, &mut held)
    }

    /// The trial of this cluster.
    pub fn trials(&self) -> Arc<Trials> {
        self.trials.clone()
    }

    /// The time of a trial is over: the configuration before is in force again, whatever flows that
    /// cuts. `None` if the trial has ended meanwhile; an error says why it could not go back, and
    /// that is tried again.
    pub fn end_trial(&self, generation: u64, workers: &dyn Workers) -> Option<Result<WentBack, String>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (trial, _) = self.trials.status();
        if !self.trials.begin_going_back(generation) {
            return None;
        }
        let ask = Ask {
            rollback: true,
            cut: true,
            ..Ask::default()
        };
        let change = match self.change_held(&ask, workers, &mut held) {
            Ok(change) => change,
            Err(problem) => {
                self.trials.retry();
                return Some(Err(problem));
            }
        };
        let Some(receipt) = &change.receipt else {
            self.trials.retry();
            return Some(Err(change.to_string()));
        };
        held.previous = None;
        let file = trial.map(|trial| trial.file).unwrap_or_default();
        let went = self
            .trials
            .note(file, generation, receipt.generation, receipt.flows_cut);
        Some(Ok(went))
    }

    fn change_held(&self, ask: &Ask, workers: &dyn Workers, held: &mut Held) -> Result<Change, String> {
        let time = ask.confirm_ms.map(trial::time_of).transpose()?;
        if !ask.dry && !ask.rollback {
            self.trials.refuse()?;
        }
        // Parts that an earlier change left for calls that waited.
        (0..workers.runtimes()).for_each(|runtime| drop(workers.before(runtime)));
        let mut change = Change {
            generation: held.generation,
            ..Change::default()
        };
        match self.steps(ask, workers, held, &mut change) {
            Ok(()) | Err(Stop::Said) => {}
            Err(Stop::Failed(problem)) => return Err(problem),
        }
        if let Some(receipt) = &mut change.receipt {
            self.trials.forget_last();
            self.trials
                .note_in_force((!ask.rollback).then(|| self.file_of(ask)));
            match time {
                _ if ask.rollback => self.trials.end(),
                Some(time) => {
                    receipt.confirm_seconds = Some(time.as_secs_f64());
                    self.trials.begin(self.file_of(ask), receipt.generation, time);
                }
                None => {}
            }
        }
        Ok(change)
    }

    /// The name of the file that is asked for.
    pub fn file_of(&self, ask: &Ask) -> String {
        let path = ask.path.as_deref();
        let path = path.or(self.source.as_ref().map(|source| source.path.as_path()));
        path.map(|path| path.display().to_string()).unwrap_or_default()
    }

    fn steps(
        &self,
        ask: &Ask,
        workers: &dyn Workers,
        held: &mut Held,
        change: &mut Change,
    ) -> Result<(), Stop> {
        let began = Instant::now();
        let wanted = self.wanted(ask, held, change)?;
        if change.differences.is_empty() {
            change.outcome = Outcome::Same;
            return Ok(());
        }
        self.rehearse(&wanted, ask.listed, held, workers, change)?;
        if ask.dry || (change.flows_cut > 0 && !ask.cut) {
            abandon(workers, workers.runtimes());
            change.outcome = match (ask.dry, change.flows_cut) {
                (true, 0) => Outcome::Possible,
                (true, _) => Outcome::WouldCut,
                (false, _) => Outcome::RefusedToCut,
            };
            return Ok(());
        }
        let prepared = began.elapsed();
        self.claim_both(&wanted, held, workers)?;
        self.put_in_force(wanted, held, workers, change, prepared)
    }

    /// Has each runtime prepare, and look at all its flows.
    fn rehearse(
        &self,
        wanted: &Wanted,
        listed: usize,
        held: &Held,
        workers: &dyn Workers,
        change: &mut Change,
    ) -> Result<(), Stop> {
        let listed_max = listed.min(LISTED_MAX);
        self.prepare(&wanted.plan, held, listed_max, workers, change)?;
        survey(held, listed_max, workers, change).map_err(|problem| {
            abandon(workers, workers.runtimes());
            problem.into()
        })
    }

    /// Answers for addresses of both configurations; if that cannot be, nothing has changed.
    fn claim_both(&self, wanted: &Wanted, held: &Held, workers: &dyn Workers) -> Result<(), String> {
        self.claim(workers, &[&held.plan, &wanted.plan])
            .inspect_err(|_| self.take_back(held, workers))
    }

    /// The prepared configuration is not wanted: all is as it was.
    fn take_back(&self, held: &Held, workers: &dyn Workers) {
        // The ports could answer for these addresses before, so they can again.
        let _ = self.claim(workers, &[&held.plan]);
        abandon(workers, workers.runtimes());
    }

    /// Reads and compares. Its problems go into `change`.
    fn wanted(&self, ask: &Ask, held: &Held, change: &mut Change) -> Result<Wanted, Stop> {
        if ask.rollback {
            let Some(previous) = &held.previous else {
                return Err(Stop::Failed(
                    "there is no configuration to go back to: none was applied since the start, or the last one went back by itself".into(),
                ));
            };
            let (plan, config, tree) = &**previous;
            change.differences = settings::differences(&held.tree, tree);
            return Ok(Wanted {
                plan: plan.clone(),
                config: config.without_functions(),
                tree: tree.clone(),
                words: [0; AGREED],
            });
        }
        let Some(source) = &self.source else {
            return Err(Stop::Failed(
                "this cluster was started without a configuration file; start one with `flowkeep run CONFIG`"
                    .into(),
            ));
        };
        let path = ask.path.as_deref().unwrap_or(&source.path);
        let read = config::read_tree(path, &source.registry);
        let (config, tree, text) = read.map_err(|problems| refused(change, problems))?;
        let file = path.display().to_string();
        let read = Read {
            file,
            text,
            config,
            tree,
        };
        self.compare(source, read, held, change)
    }

    /// Compares the configuration that was read with the one in force.
    fn compare(&self, source: &Source, read: Read, held: &Held, change: &mut Change) -> Result<Wanted, Stop> {
        let Read {
            file,
            text,
            mut config,
            mut tree,
        } = read;
        (source.overrides)(&mut config)?;
        let mut words = [0; AGREED];
        if let Some(joined) = &self.joined {
            words = joined.words(&tree, &config);
            tree = secrets::shared(&tree);
        }
        change.differences = settings::differences(&held.tree, &tree);
        change.fixed = match self.joined {
            Some(_) => joined::fixed(&held.config, &config, &change.differences),
            None => settings::fixed(&held.config, &config, &change.differences),
        };
        if !change.fixed.is_empty() {
            change.outcome = Outcome::Refused;
            return Err(Stop::Said);
        }
        let point = |at: &str, problem: &str, remedy: &str| {
            vec![config::point(&file, &text, &source.registry, at, problem, remedy)]
        };
        let mut factories = config.take_factories();
        for factory in &mut factories {
            let Some(before) = held.plan.factories().iter().find(|f| f.name() == factory.name()) else {
                // `fits` has the words for that.
                continue;
            };
            if let Err(error) = factory.succeed(&**before) {
                let at = format!("function.{}.{}", factory.name(), error.at);
                let problem = format!("{} while the cluster runs", error.problem);
                return Err(refused(
                    change,
                    point(at.trim_end_matches('.'), &problem, &error.remedy),
                ));
            }
        }
        let plan = config
            .plan(factories)
            .map_err(|error| refused(change, point("chain", &error.to_string(), "")))?
            .keeping(held.plan.keeper().clone())
            .known_by(secrets::number(&words));
        if let Err(error) = fits(&plan, &held.plan) {
            return Err(refused(change, point(&place_of(&error), &error.to_string(), "")));
        }
        Ok(Wanted {
            plan,
            config,
            tree,
            words,
        })
    }

    /// Has every runtime look at the configuration that it may go over to.
    fn prepare(
        &self,
        plan: &Plan,
        held: &Held,
        listed_max: usize,
        workers: &dyn Workers,
        change: &mut Change,
    ) -> Result<(), Stop> {
        let generation = Generation(held.generation + 1);
        let infos = self.infos();
        for (runtime, info) in infos.iter().enumerate() {
            let made = Prepared::new(generation, plan.clone(), &held.plan, info, listed_max);
            let refusal = match made.map(|prepared| workers.prepare(runtime, prepared)) {
                Ok(Some(Ok(()))) => continue,
                Ok(Some(Err(error))) | Err(error) => error.to_string(),
                Ok(None) => "it does not answer".to_owned(),
            };
            abandon(workers, infos.len());
            change.refusal = Some(format!("runtime {}: {refusal}", info.runtime));
            change.outcome = Outcome::Refused;
            return Err(Stop::Said);
        }
        Ok(())
    }

    fn claim(&self, workers: &dyn Workers, plans: &[&Plan]) -> Result<(), String> {
        let claims: Vec<nf::Claim> = plans
            .iter()
            .flat_map(|plan| plan.factories().iter().flat_map(|factory| factory.claims()))
            .collect();
        for (switch, sides) in self.sides.iter().enumerate() {
            let addresses = sides.iter().map(|side| claimed_by(side, &claims)).collect();
            workers.claim(switch, addresses)?;
        }
        Ok(())
    }

    fn put_in_force(
        &self,
        wanted: Wanted,
        held: &mut Held,
        workers: &dyn Workers,
        change: &mut Change,
        prepared: Duration,
    ) -> Result<(), Stop> {
        let began = Instant::now();
        self.commit(&wanted, held, workers)?;
        let mut receipt = Receipt {
            prepared_seconds: prepared.as_secs_f64(),
            commit_seconds: began.elapsed().as_secs_f64(),
            ..Receipt::default()
        };
        adopt(wanted, held);
        receipt.warning = self.follow(held, workers).err();
        receipt.generation = held.generation;
        receipt.runtimes = self.infos().len();
        wait_until_asked(workers, &mut receipt);
        receipt.seconds = (prepared + began.elapsed()).as_secs_f64();
        change.receipt = Some(receipt);
        change.outcome = Outcome::Applied;
        Ok(())
    }

    /// Tells the switches the plan in force, and has them answer for its addresses alone.
    fn follow(&self, held: &mut Held, workers: &dyn Workers) -> Result<(), String> {
        for switch in 0..self.sides.len() {
            workers.follow(switch, held.plan.clone());
        }
        held.is_switch_behind = false;
        self.claim(workers, &[&held.plan])
    }

    /// Has all runtimes commit. If one does not, all are as they were.
    fn commit(&self, wanted: &Wanted, held: &mut Held, workers: &dyn Workers) -> Result<(), Stop> {
        let tickets: Vec<Ticket> = self.infos().iter().map(|_| Ticket::default()).collect();
        let mut committed = workers.commit(&tickets);
        for (done, ticket) in committed.iter_mut().zip(&tickets) {
            // A commit that has begun will end.
            *done |= !ticket.take_back();
        }
        if committed.contains(&false) {
            let stuck: Vec<String> = (0..committed.len())
                .filter(|runtime| !committed[*runtime])
                .map(|runtime| runtime.to_string())
                .collect();
            self.go_back(held, &wanted.plan, workers, &committed);
            let _ = self.claim(workers, &[&held.plan]);
            return Err(Stop::Failed(format!(
                "runtime {} did not commit, so all went back: the configuration is the one before",
                stuck.join(", ")
            )));
        }
        Ok(())
    }

    /// Has the runtimes that have committed to a plan go back to the configuration of the others,
    /// once their flows have been asked.
    fn go_back(&self, held: &mut Held, plan: &Plan, workers: &dyn Workers, committed: &[bool]) {
        wait_until_asked(workers, &mut Receipt::default());
        // Numbers are never used twice; runtimes that never left stay at theirs.
        let generation = Generation(held.generation + 2);
        let back: Vec<usize> = (0..committed.len())
            .filter(|runtime| committed[*runtime])
            .collect();
        for runtime in 0..committed.len() {
            workers.abandon(runtime);
        }
        for runtime in &back {
            let info = self.infos()[*runtime];
            if let Ok(prepared) = Prepared::new(generation, held.plan.clone(), plan, &info, 0) {
                workers.prepare(*runtime, prepared);
            }
        }
        let tickets: Vec<Ticket> = committed
            .iter()
            .map(|committed| {
                let ticket = Ticket::default();
                if !committed {
                    ticket.take_back();
                }
                ticket
            })
            .collect();
        workers.commit(&tickets);
        wait_until_asked(workers, &mut Receipt::default());
        held.generation += 2;
    }
}

/// Puts a configuration in force, as far as the fields here record it.
fn adopt(wanted: Wanted, held: &mut Held) {
    let Wanted {
        plan, config, tree, ..
    } = wanted;
    let old_plan = std::mem::replace(&mut held.plan, plan);
    let old_config = std::mem::replace(&mut held.config, config);
    let old_tree = std::mem::replace(&mut held.tree, tree);
    held.previous = Some(Box::new((old_plan, old_config, old_tree)));
    held.generation += 1;
    held.is_switch_behind = true;
}

/// The answer has its problems.
fn refused(change: &mut Change, problems: Vec<Problem>) -> Stop {
    change.problems = problems;
    change.outcome = Outcome::Refused;
    Stop::Said
}

/// The claimed addresses that a port of this side answers for.
pub fn claimed_by(side: &SideRule, claims: &[nf::Claim]) -> Vec<Prefix> {
    let here = |claim: &&nf::Claim| match (side, claim.side) {
        (SideRule::Fixed(side), Some(other)) => *side == other,
        _ => true,
    };
    let mut addresses: Vec<Prefix> = Vec::new();
    for claim in claims.iter().filter(here) {
        if !addresses.contains(&claim.addresses) {
            addresses.push(claim.addresses);
        }
    }
    addresses
}

/// Where a refusal's setting is.
fn place_of(error: &ChangeError) -> String {
    match error {
        ChangeError::Functions { function, .. } | ChangeError::Function { function, .. } => {
            format!("function.{function}")
        }
        _ => "chain".to_owned(),
    }
}

fn abandon(workers: &dyn Workers, runtimes: usize) {
    (0..runtimes).for_each(|runtime| workers.abandon(runtime));
}

/// Waits until each runtime has been at all its flows.
fn survey(held: &Held, listed_max: usize, workers: &dyn Workers, change: &mut Change) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    for runtime in 0..workers.runtimes() {
        let state = loop {
            match workers.state(runtime) {
                Some(state) if state.is_through => break state,
                None => return Err(format!("runtime {runtime} does not answer; nothing has changed")),
                _ if Instant::now() > deadline => {
                    return Err(format!(
                        "runtime {runtime} is too busy to look at its flows; nothing has changed"
                    ));
                }
                _ => std::thread::sleep(LOOK),
            }
        };
        change.flows_kept += state.kept;
        change.flows_waiting += state.waiting;
        change.flows_cut += count(&mut change.cut, &state.cut);
        let room = listed_max.saturating_sub(change.listed.len());
        let listed = workers.listed(runtime).into_iter().take(room);
        change
            .listed
            .extend(listed.map(|flow| Listed::of(&flow, &held.plan)));
    }
    change.unlisted = change.flows_cut.saturating_sub(change.listed.len() as u64);
    Ok(())
}

/// Adds counts up, by function and reason; how many they are.
fn count(sum: &mut Vec<CutCount>, more: &[Named]) -> u64 {
    for named in more {
        let same = |one: &&mut CutCount| one.function == named.function && one.reason == named.name;
        match sum.iter_mut().find(same) {
            Some(one) => one.flows += named.count,
            None => sum.push(CutCount {
                function: named.function.clone(),
                reason: named.name.to_owned(),
                flows: named.count,
            }),
        }
    }
    more.iter().map(|named| named.count).sum()
}

/// Waits until every flow has been asked, but for those whose calls go on waiting.
fn wait_until_asked(workers: &dyn Workers, receipt: &mut Receipt) {
    let (deadline, calls) = (Instant::now() + PATIENCE, Instant::now() + CALLS);
    for runtime in 0..workers.runtimes() {
        while let Some(state) = workers.state(runtime) {
            let now = Instant::now();
            let is_over = state.is_through && (state.waiting == 0 || now > calls);
            if !is_over && now <= deadline {
                std::thread::sleep(LOOK);
                continue;
            }
            receipt.flows_kept += state.kept;
            receipt.flows_waiting += state.waiting;
            receipt.flows_cut += count(&mut receipt.cut, &state.cut);
            break;
        }
        drop(workers.before(runtime));
    }
}

/// Where a path leads, whatever directory another process is in.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
