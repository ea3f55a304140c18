//! A configuration on trial: it goes back by itself unless an operator confirms it in time.
//!
//! # Theory of operation
//!
//! ```text
//!   apply --confirm 60s ─► in force, on trial ─┬─ `chain confirm` ──► it stays
//!                           ▲                  ├─ `chain rollback` ─► the configuration before
//!                           │                  └─ the time is over ─► going back ─► the configuration before
//!                           └──── a runtime refused: again after 5 s ─────┘
//! ```
//!
//! The trial is in the running process: the command that began it may be gone. A process that ends
//! forgets it, and a new start reads its file. Going back is an operator's `chain rollback` with
//! leave to cut flows.
//!
//! A rollback that an operator says just behind the one by time would put the unconfirmed
//! configuration in force again. So after going back by itself there is no configuration to go back
//! to.
//!
//! Invariants: one trial at a time; no other configuration is applied meanwhile; a confirmed
//! configuration does not go back. Tests: `super::tests`, `tests/operator/trial.rs`.
//!
//! Not here: the thread that waits (`crate::run`), the change itself ([`super::Live`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time of a trial, in milliseconds.
pub const TRIAL_MIN_MS: u64 = 1000;
/// The longest: a day.
pub const TRIAL_MAX_MS: u64 = 86_400_000;
/// A configuration that could not go back tries again after this time.
const RETRY: Duration = Duration::from_secs(5);

/// A configuration on trial, as `status` shows it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct TrialStatus {
    /// Its file.
    pub file: String,
    /// Its number.
    pub generation: u64,
    /// Until it goes back by itself.
    pub seconds_left: f64,
}

/// A configuration that went back by itself, as `status` shows the last one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct WentBack {
    /// Its file.
    pub file: String,
    /// Its number.
    pub generation: u64,
    /// The number of the configuration in force since.
    pub now: u64,
    /// Flows that ended by going back.
    pub flows_cut: u64,
}

impl fmt::Display for TrialStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "generation {} ({}) is on trial: it goes back in {:.0} s unless `flowkeep chain confirm` is said",
            self.generation,
            self.file,
            self.seconds_left.ceil()
        )
    }
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "generation {} ({}) was not confirmed and went back: generation {} is in force, {} flows cut",
            self.generation, self.file, self.now, self.flows_cut
        )
    }
}

struct Trial {
    file: String,
    generation: u64,
    until: Instant,
    is_going_back: bool,
}

impl Trial {
    fn left(&self) -> f64 {
        self.until.saturating_duration_since(Instant::now()).as_secs_f64()
    }
}

#[derive(Default)]
struct State {
    trial: Option<Trial>,
    last: Option<WentBack>,
    /// Of the configuration in force, and of the one before.
    files: [String; 2],
    /// The process ends.
    is_over: bool,
}

/// The trial of a cluster, if there is one, and how the last one ended.
#[derive(Default)]
pub struct Trials {
    state: Mutex<State>,
    changed: Condvar,
}

impl Trials {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file's configuration is in force, or with none the one before again.
    pub(super) fn note_in_force(&self, file: Option<String>) {
        let files = &mut self.state().files;
        files.reverse();
        if let Some(file) = file {
            files[0] = file;
        }
    }

    /// The file of the configuration in force.
    pub fn file_in_force(&self) -> String {
        self.state().files[0].clone()
    }

    /// Why no other configuration may be applied now.
    pub(super) fn refuse(&self) -> Result<(), String> {
        match &self.state().trial {
            None => Ok(()),
            Some(trial) => Err(format!(
                "{} is on trial for {:.0} s more: say `flowkeep chain confirm` or `flowkeep chain rollback` first",
                trial.file,
                trial.left().ceil()
            )),
        }
    }

    /// A configuration is in force, for a time.
    pub(super) fn begin(&self, file: String, generation: u64, time: Duration) {
        self.state().trial = Some(Trial {
            file,
            generation,
            until: Instant::now() + time,
            is_going_back: false,
        });
        self.changed.notify_all();
    }

    /// The configuration on trial stays; its number.
    pub fn confirm(&self) -> Result<u64, String> {
        let mut state = self.state();
        match &state.trial {
            None => Err(
                "no configuration is on trial: `flowkeep chain apply --confirm TIME FILE` begins one".into(),
            ),
            Some(trial) if trial.is_going_back => Err(format!(
                "{} is going back already: its time was over; apply it again",
                trial.file
            )),
            Some(trial) => {
                let generation = trial.generation;
                state.trial = None;
                self.changed.notify_all();
                Ok(generation)
            }
        }
    }

    /// The configuration before is in force again.
    pub(super) fn end(&self) {
        self.state().trial = None;
        self.changed.notify_all();
    }

    /// A change was made by hand: how a trial before it ended is no news any more.
    pub(super) fn forget_last(&self) {
        self.state().last = None;
    }

    /// Whether the time of this trial is over. From then on it cannot be confirmed.
    pub(super) fn begin_going_back(&self, generation: u64) -> bool {
        match &mut self.state().trial {
            Some(trial) if trial.generation == generation && trial.left() <= 0.0 => {
                trial.is_going_back = true;
                true
            }
            _ => false,
        }
    }

    /// The configuration could not go back: it may be confirmed again, and goes back later.
    pub(super) fn retry(&self) {
        if let Some(trial) = &mut self.state().trial {
            trial.is_going_back = false;
            trial.until = Instant::now() + RETRY;
        }
    }

    /// Notes how the last trial ended.
    pub(super) fn note(&self, file: String, generation: u64, now: u64, flows_cut: u64) -> WentBack {
        let went = WentBack {
            file,
            generation,
            now,
            flows_cut,
        };
        self.state().last = Some(went.clone());
        went
    }

    /// Waits until the time of this trial is over; `false` if it has ended before, or the process
    /// ends.
    pub fn wait(&self, generation: u64) -> bool {
        let mut state = self.state();
        loop {
            let left = match &state.trial {
                Some(trial) if trial.generation == generation && !state.is_over => {
                    trial.until.saturating_duration_since(Instant::now())
                }
                _ => return false,
            };
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The process ends: no configuration goes back any more.
    pub fn close(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// The configuration on trial, and the one that went back last.
    pub fn status(&self) -> (Option<TrialStatus>, Option<WentBack>) {
        let state = self.state();
        let trial = state.trial.as_ref().map(|trial| TrialStatus {
            file: trial.file.clone(),
            generation: trial.generation,
            seconds_left: trial.left(),
        });
        (trial, state.last.clone())
    }
}

/// The time of a trial, if it is within the bounds.
pub(crate) fn time_of(ms: u64) -> Result<Duration, String> {
    match ms {
        TRIAL_MIN_MS..=TRIAL_MAX_MS => Ok(Duration::from_millis(ms)),
        _ => Err(format!(
            "{} s is no time to confirm in: write 1s to 24h",
            Duration::from_millis(ms).as_secs_f64()
        )),
    }
}
