//! A configuration on trial: the one before it is in force again unless an operator confirms it in
//! time.
//!
//! # Theory of operation
//!
//! ```text
//!   Configure(trial) ─► log: number N, until when ─► in force, on trial ─┬─ Confirm ─► log: N without a trial ─► it stays
//!                                                     ▲                  ├─ Configure(the text before) ─► log: N + 1
//!                        another coordinator reads it ┘                  └─ the time is over ─► log: N + 1, the text before
//! ```
//!
//! The record says that it is a trial, so neither the command nor this coordinator need live:
//! whichever reads the log has it go back. To go back is a decision like any other: in the log, and
//! taken on by all members, however late they come. Without any coordinator nothing goes back until
//! one begins.
//!
//! The time is by the coordinator's clock, since another one has to know when it began. It is never
//! more than was asked for, whatever the clocks of two coordinators say.
//!
//! A configuration that went back by itself has none before it to go back to: a rollback would put
//! the unconfirmed one in force.
//!
//! Invariants: one trial at a time; nothing else is decided meanwhile but the configuration before;
//! a confirmed configuration does not go back, and one that goes back is not confirmed.

use super::configured::Configured;
use super::{Decider, DeciderAnswer};
use crate::proto::Configuration;
use crate::refusal::Refusal;
use crate::server::{Event, since_1970};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The shortest and the longest trial, in milliseconds.
pub const TRIAL_MS: std::ops::RangeInclusive<u64> = 1000..=86_400_000;

fn now_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// With the moment of its end, if it is on trial.
pub(super) fn dated(configuration: Configuration) -> Configuration {
    let trial_until = match configuration.trial {
        0 => 0,
        time => now_ms().saturating_add(time),
    };
    Configuration {
        trial_until,
        ..configuration
    }
}

/// When it goes back.
pub(super) fn until(configuration: &Configuration) -> Option<Instant> {
    let left = configuration.trial_until.saturating_sub(now_ms());
    let left = Duration::from_millis(left.min(configuration.trial));
    (configuration.trial > 0).then(|| Instant::now() + left)
}

impl Configured {
    /// Milliseconds until the one on trial goes back, 1 at least; 0 if there is none.
    pub fn trial_left(&self, now: Instant) -> u64 {
        let left = self.trial_until.map(|until| until.saturating_duration_since(now));
        left.map_or(0, |left| {
            u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)
        })
    }

    /// Whether a record of the log says that the one on trial stays.
    pub fn confirms(&self, configuration: &Configuration) -> bool {
        let stays = Configuration {
            trial: 0,
            trial_until: 0,
            ..self.newest.clone()
        };
        self.newest.trial > 0 && *configuration == stays
    }

    /// During a trial the only allowed decision is to go back.
    pub fn why_not_during_trial(&self, configuration: &Configuration) -> Option<String> {
        let goes_back = configuration.digest == self.newest.digest_before && configuration.trial == 0;
        let left = Duration::from_millis(self.trial_left(Instant::now()));
        (self.trial_until.is_some() && !goes_back).then(|| {
            format!(
                "configuration {} is on trial for {:.0} s more: say `flowkeep chain confirm` or `flowkeep chain rollback` first",
                self.newest.number,
                left.as_secs_f64().ceil()
            )
        })
    }
}

impl Decider {
    /// The one on trial stays.
    pub(super) fn on_confirm(&mut self, answer: oneshot::Sender<DeciderAnswer>) {
        let number = self.configured.newest.number;
        let why = match (self.configured.trial_until, self.configured.is_deciding) {
            (Some(until), false) if until > Instant::now() => None,
            (Some(_), _) => Some(format!(
                "configuration {number} goes back already: its time was over, or another was decided"
            )),
            (None, _) => Some(
                "no configuration is on trial: `flowkeep chain apply --confirm TIME FILE --cluster` begins one"
                    .to_owned(),
            ),
        };
        if let Some(why) = why {
            let _ = answer.send(DeciderAnswer::Refused(Refusal::NoTrial, why));
            return;
        }
        let stays = Configuration {
            trial: 0,
            trial_until: 0,
            ..self.configured.newest.clone()
        };
        self.decide_configuration(stays, Some(answer));
    }

    /// Has the one on trial go back when its time is over. Only where decisions are made.
    pub(super) fn look_at_trial(&mut self, now: Instant) {
        let is_over = self.configured.trial_until.is_some_and(|until| until <= now);
        if !is_over || self.configured.is_deciding {
            return;
        }
        let newest = &self.configured.newest;
        let Some(number) = newest.number.checked_add(1) else {
            return;
        };
        let before = Configuration {
            number,
            digest: newest.digest_before.clone(),
            text: newest.text_before.clone(),
            ..Configuration::default()
        };
        (self.events)(Event::GoesBack {
            number: newest.number,
            now: number,
        });
        self.decide_configuration(before, None);
    }
}
