//! A member's half of a change over the cluster: prepared here, decided by the coordinator,
//! committed here.
//!
//! # Theory of operation
//!
//! ```text
//!   operator ── Prepare(text) ──► each member: read ─► compare ─► prepare at its runtimes ─► survey ─► hold, 30 s at most
//!            ◄─ digests, flows that would be cut ──┘        └─ refused: nothing is held
//!            ── TakeBack ───────► each member                             (one has refused, or was silent)
//!            ── Configure(text) ► coordinator ── log ── Decided(number, digest) ──► each member: commit the held one
//!                                                                                   or read the text, and take it on
//! ```
//!
//! The *number* is the cluster's, the generation is this process's. The *digest* stands for chains
//! and functions, as links compare them, so equal numbers with other digests are seen.
//!
//! | a member has | and hears | does |
//! |---|---|---|
//! | a change held | that it is decided | commits |
//! | a change held | nothing, for [`HOLD_MAX`] | takes it back |
//! | nothing, or another one held | that a change is decided | takes the text on, and cuts flows as all others have |
//! | nothing held | that it is decided, and cannot | says so, is seen as lagging, tries again |
//!
//! Switches are told when all members of the view have it in force (`Decided::reached`), as in one
//! process they are told behind its runtimes.
//!
//! Invariants: a held change is in force only if it is decided by its number and digest; a change
//! that is taken back has changed nothing; numbers only grow.
//!
//! Not here: how a change is prepared and decided (`crate::control::changing`), the coordinator's
//! log (`coordinator::decider`), the thread that hears of decisions (`crate::run`).

use super::report::{Change, Fixed, Outcome, Receipt};
use super::settings::{Difference, changes_copies};
use super::{Held, Live, Read, Source, Stop, Wanted, Workers, adopt, refused, wait_until_asked};
use crate::config::chains::{chains_of, with_chains};
use crate::config::{self, Config};
use crate::member::secrets::{Agreement, digest};
use coordinator::agent::Decided;
use coordinator::proto::Configuration;
use protocols::channel::AGREED;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a member holds a change that the coordinator does not decide.
pub const HOLD_MAX: Duration = Duration::from_secs(30);

/// The settings that a member starts with, beside its source.
pub struct Own {
    /// Derives words.
    pub agreement: Agreement,
    /// Its file's text.
    pub text: String,
    /// The chains and functions in force at its start, and the words on that configuration.
    pub chains: String,
    /// The words.
    pub words: [u64; AGREED],
    /// The number that the coordinator gave to it.
    pub number: u64,
    /// Which is decided, and in force here.
    pub decided: Arc<Decided>,
}

/// Which of the cluster's configurations a member has in force.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// From 1: the configuration that members start with by their files.
    pub number: u64,
    /// Stands for its chains and functions.
    pub digest: String,
    /// Why a decided configuration that is newer cannot be put in force here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The same, with the words and the text for other members.
pub(super) struct Standing {
    number: u64,
    words: [u64; AGREED],
    chains: String,
}

/// A change that is held.
pub(super) struct Ready {
    wanted: Wanted,
    number: u64,
    by: u64,
    chains: String,
    until: Instant,
    prepared: Duration,
}

/// The state of a member with a coordinator, beside [`Live`]'s.
pub struct Joined {
    agreement: Agreement,
    text: String,
    decided: Arc<Decided>,
    in_force: Mutex<InForce>,
    /// The number and the receipt of the last decided change.
    receipt: Mutex<Option<(u64, Receipt)>>,
}

/// The change that a member is to prepare.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PartRequest {
    /// The number that it is to have.
    pub number: u64,
    /// The file, for messages.
    pub file: String,
    /// The file's text; with `is_chains`, chains and functions only.
    pub text: String,
    /// All other settings are those of this member's file.
    pub is_chains: bool,
    /// Only say the effects.
    pub dry: bool,
    /// Cut flows, if it must be.
    pub cut: bool,
    /// List so many of the flows that are cut.
    pub listed: usize,
    /// A random word of the command that asks: no other command takes back a change that it holds.
    #[serde(default)]
    pub by: u64,
}

/// A member's answer to that.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The configuration in force there.
    pub in_force: InForce,
    /// The digest of the configuration that it is to have; empty where it cannot be read.
    pub digest: String,
    /// The change that would be made. If it is `Possible` or `WouldCut` and not dry, it is held.
    pub change: Change,
}

/// The result of a decision at a member.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct PartDone {
    /// The configuration in force.
    pub in_force: InForce,
    /// The receipt of putting it in force, once all flows have been asked.
    pub receipt: Option<Receipt>,
}

/// Why a decided configuration is not in force here.
#[derive(Debug, PartialEq, Eq)]
pub enum Behind {
    /// No change of this number is held: the text is to be taken on.
    NotHeld,
    /// The configuration could not be put in force.
    Failed(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Joined {
    pub(super) fn begin(own: Own) -> (Self, Standing) {
        let standing = Standing {
            number: own.number,
            words: own.words,
            chains: own.chains,
        };
        own.decided.put_in_force(own.number);
        let joined = Joined {
            agreement: own.agreement,
            text: own.text,
            decided: own.decided,
            in_force: Mutex::new(standing.in_force()),
            receipt: Mutex::new(None),
        };
        (joined, standing)
    }

    pub(super) fn words(&self, tree: &toml::Table, config: &Config) -> [u64; AGREED] {
        self.agreement.words(tree, &config.functions)
    }

    /// The configuration in force.
    pub fn in_force(&self) -> InForce {
        lock(&self.in_force).clone()
    }

    /// The decided configuration cannot be put in force.
    pub fn lags(&self, problem: String) {
        lock(&self.in_force).problem = Some(problem);
    }
}

impl Standing {
    fn in_force(&self) -> InForce {
        InForce {
            number: self.number,
            digest: digest(&self.words),
            problem: None,
        }
    }
}

/// The differences beside chains and functions, and whether other copies of flows are to be kept.
pub(super) fn fixed(before: &Config, now: &Config, differences: &[Difference]) -> Vec<Fixed> {
    let is_fixed = |difference: &&Difference| !difference.is_of("chain") && !difference.is_of("function");
    let others = differences.iter().filter(is_fixed);
    let others = others.map(|difference| difference.setting.clone());
    let copies = changes_copies(before, now).then(|| "chain.replication".to_owned());
    let all = others.chain(copies);
    all.map(|setting| Fixed {
        setting,
        remedy: "stop all members, change their files, and start them again".to_owned(),
    })
    .collect()
}

const NO_TOML: &str = "chains and functions of this text cannot be read";

impl Live {
    /// Of a member with a coordinator.
    pub fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }

    /// The words on the configuration in force, for links.
    pub fn words(&self) -> Option<[u64; AGREED]> {
        let held = lock(&self.held);
        held.standing.as_ref().map(|standing| standing.words)
    }

    fn member(&self) -> Result<(&Joined, &Source), String> {
        match (&self.joined, &self.source) {
            (Some(joined), Some(source)) => Ok((joined, source)),
            _ => Err(
                "this process is no member with a coordinator: start it with --join, or ask without --cluster".into(),
            ),
        }
    }

    /// The chains and functions in force.
    pub fn chains(&self) -> Result<String, String> {
        self.member()?;
        let held = self.try_held()?;
        Ok(held
            .standing
            .as_ref()
            .map(|standing| standing.chains.clone())
            .unwrap_or_default())
    }

    /// Says what a change would do here, and holds it unless it is dry or would cut without leave.
    pub fn prepare_part(&self, part: &PartRequest, workers: &dyn Workers) -> Result<Prepared, String> {
        let (joined, source) = self.member()?;
        let mut held = self.try_held()?;
        self.drop_late(&mut held, workers);
        if let Some(ready) = &held.ready {
            let left = ready.until.saturating_duration_since(Instant::now()).as_secs() + 1;
            return Err(format!(
                "another change is prepared here, for configuration {}: it is decided, or taken back within {left} s",
                ready.number
            ));
        }
        (0..workers.runtimes()).for_each(|runtime| drop(workers.before(runtime)));
        let mut prepared = Prepared {
            in_force: joined.in_force(),
            digest: String::new(),
            change: Change {
                generation: held.generation,
                ..Change::default()
            },
        };
        match self.rehearse_part(part, source, &mut held, workers, &mut prepared) {
            Ok(()) | Err(Stop::Said) => Ok(prepared),
            Err(Stop::Failed(problem)) => Err(problem),
        }
    }

    fn rehearse_part(
        &self,
        part: &PartRequest,
        source: &Source,
        held: &mut Held,
        workers: &dyn Workers,
        prepared: &mut Prepared,
    ) -> Result<(), Stop> {
        let began = Instant::now();
        let change = &mut prepared.change;
        let text = match part.is_chains {
            true => self.whole(&part.text)?,
            false => part.text.clone(),
        };
        let wanted = self.read_part(&part.file, text, source, held, change)?;
        prepared.digest = digest(&wanted.words);
        if change.differences.is_empty() {
            change.outcome = Outcome::Same;
            return Ok(());
        }
        self.rehearse(&wanted, part.listed, held, workers, change)?;
        let would_cut = change.flows_cut > 0;
        change.outcome = match would_cut {
            true => Outcome::WouldCut,
            false => Outcome::Possible,
        };
        if part.dry || (would_cut && !part.cut) {
            super::abandon(workers, workers.runtimes());
            return Ok(());
        }
        self.claim_both(&wanted, held, workers)?;
        held.ready = Some(Box::new(Ready {
            wanted,
            number: part.number,
            by: part.by,
            chains: chains_of(&part.text).ok_or(NO_TOML.to_owned())?,
            until: Instant::now() + HOLD_MAX,
            prepared: began.elapsed(),
        }));
        Ok(())
    }

    /// Chains and functions, with the rest of this member's file.
    fn whole(&self, chains: &str) -> Result<String, String> {
        let (joined, _) = self.member()?;
        with_chains(&joined.text, chains).ok_or_else(|| NO_TOML.to_owned())
    }

    fn read_part(
        &self,
        file: &str,
        text: String,
        source: &Source,
        held: &Held,
        change: &mut Change,
    ) -> Result<Wanted, Stop> {
        let read = config::read_text(file, &text, &source.registry);
        let (config, tree) = read.map_err(|problems| refused(change, problems))?;
        let file = file.to_owned();
        let read = Read {
            file,
            text,
            config,
            tree,
        };
        self.compare(source, read, held, change)
    }

    /// A change that is held is not wanted by the command that has it held. A change of another
    /// number or command stays.
    pub fn take_back_part(&self, (number, by): (u64, u64), workers: &dyn Workers) {
        let mut held = lock(&self.held);
        let is_it = |ready: &Ready| (ready.number, ready.by) == (number, by);
        if held.ready.as_deref().is_some_and(is_it) {
            held.ready = None;
            self.take_back(&held, workers);
        }
    }

    /// Takes back a change that the coordinator has not decided in time.
    pub fn expire_part(&self, workers: &dyn Workers) {
        if let Ok(mut held) = self.try_held() {
            self.drop_late(&mut held, workers);
        }
    }

    fn drop_late(&self, held: &mut Held, workers: &dyn Workers) {
        if held
            .ready
            .as_ref()
            .is_some_and(|ready| ready.until <= Instant::now())
        {
            held.ready = None;
            self.take_back(held, workers);
        }
    }

    /// The held change is decided, by this number and digest: it is in force when this returns.
    pub fn commit_part(&self, number: u64, decided: &str, workers: &dyn Workers) -> Result<(), Behind> {
        let mut held = lock(&self.held);
        self.drop_late(&mut held, workers);
        let is_it = |ready: &Ready| ready.number == number && digest(&ready.wanted.words) == decided;
        match held.ready.take() {
            Some(ready) if is_it(&ready) => self.put_part_in_force(*ready, &mut held, workers),
            Some(_) => {
                // Another change was decided, so the coordinator never decides this one.
                self.take_back(&held, workers);
                Err(Behind::NotHeld)
            }
            None => Err(Behind::NotHeld),
        }
    }

    /// Puts a configuration in force that was decided, and that this member has missed, whatever
    /// flows that cuts.
    pub fn take_on(&self, decided: &Configuration, workers: &dyn Workers) -> Result<(), Behind> {
        let (_, source) = self.member().map_err(Behind::Failed)?;
        let mut held = lock(&self.held);
        if held
            .standing
            .as_ref()
            .is_some_and(|standing| standing.number >= decided.number)
        {
            return Ok(());
        }
        if held.ready.take().is_some() {
            self.take_back(&held, workers);
        }
        let began = Instant::now();
        let mut change = Change::default();
        let taken = self.rehearse_decided(decided, source, &mut held, workers, &mut change);
        let wanted = match taken {
            Ok(wanted) => wanted,
            Err(Stop::Failed(problem)) => return Err(Behind::Failed(problem)),
            Err(Stop::Said) => return Err(Behind::Failed(change.to_string())),
        };
        let ready = Ready {
            wanted,
            number: decided.number,
            by: 0,
            chains: decided.text.clone(),
            until: began,
            prepared: began.elapsed(),
        };
        if change.outcome == Outcome::Same {
            self.stand(&ready, &mut held);
            return Ok(());
        }
        self.put_part_in_force(ready, &mut held, workers)
    }

    fn rehearse_decided(
        &self,
        decided: &Configuration,
        source: &Source,
        held: &mut Held,
        workers: &dyn Workers,
        change: &mut Change,
    ) -> Result<Wanted, Stop> {
        let file = format!("configuration {} of the cluster", decided.number);
        let wanted = self.read_part(&file, self.whole(&decided.text)?, source, held, change)?;
        same_digest(&wanted.words, decided)?;
        if change.differences.is_empty() {
            change.outcome = Outcome::Same;
            return Ok(wanted);
        }
        (0..workers.runtimes()).for_each(|runtime| drop(workers.before(runtime)));
        self.rehearse(&wanted, 0, held, workers, change)?;
        self.claim_both(&wanted, held, workers)?;
        change.outcome = Outcome::Possible;
        Ok(wanted)
    }

    fn put_part_in_force(&self, ready: Ready, held: &mut Held, workers: &dyn Workers) -> Result<(), Behind> {
        let began = Instant::now();
        if let Err(stop) = self.commit(&ready.wanted, held, workers) {
            return Err(Behind::Failed(match stop {
                Stop::Failed(problem) => problem,
                Stop::Said => "a runtime did not commit".to_owned(),
            }));
        }
        let mut receipt = Receipt {
            generation: held.generation + 1,
            runtimes: self.infos().len(),
            prepared_seconds: ready.prepared.as_secs_f64(),
            commit_seconds: began.elapsed().as_secs_f64(),
            ..Receipt::default()
        };
        self.stand(&ready, held);
        let (number, prepared) = (ready.number, ready.prepared);
        adopt(ready.wanted, held);
        wait_until_asked(workers, &mut receipt);
        receipt.seconds = (prepared + began.elapsed()).as_secs_f64();
        if let Some(joined) = &self.joined {
            *lock(&joined.receipt) = Some((number, receipt));
        }
        Ok(())
    }

    /// The held change is the configuration in force, for others and for links.
    fn stand(&self, ready: &Ready, held: &mut Held) {
        let standing = Standing {
            number: ready.number,
            words: ready.wanted.words,
            chains: ready.chains.clone(),
        };
        if let Some(joined) = &self.joined {
            *lock(&joined.in_force) = standing.in_force();
            joined.decided.put_in_force(standing.number);
        }
        held.standing = Some(standing);
    }

    /// All members have it in force: so switches are told.
    pub fn follow_part(&self, workers: &dyn Workers) -> Result<(), String> {
        let mut held = lock(&self.held);
        match held.is_switch_behind {
            true => self.follow(&mut held, workers),
            false => Ok(()),
        }
    }

    /// The result of a decision.
    pub fn part_done(&self, number: u64) -> Result<PartDone, String> {
        let (joined, _) = self.member()?;
        let of = lock(&joined.receipt).clone();
        Ok(PartDone {
            in_force: joined.in_force(),
            receipt: of.filter(|(of, _)| *of == number).map(|(_, receipt)| receipt),
        })
    }
}

/// Whether this configuration is the decided one; files that settings name are each host's.
pub fn same_digest(words: &[u64; AGREED], decided: &Configuration) -> Result<(), String> {
    match digest(words) == decided.digest {
        true => Ok(()),
        false => Err(format!(
            "its digest is {} here, and the cluster's is {}: a file that a setting names (rules, tables) has other content here; copy it from a member \
             that has configuration {}, or the program is of another version",
            digest(words),
            decided.digest,
            decided.number
        )),
    }
}
