//! Timers of runtimes that do not begin again are armed at the runtimes that do, before the first
//! packet.
//!
//! ```text
//!   the store: partitions of this member, of no runtime that begins ── their timers
//!     └─► armed at a runtime ─► the store has them there ─► removed where they were ─► workers begin
//! ```
//!
//! No worker steps before all of that is done, so no timer fires between. A process that is killed
//! in between leaves timers at both places, with the same keys. The next start arms none twice, and
//! removes the left ones. So each fires once.
//!
//! Not here: timers of a runtime that goes while its process stays (`worker_pool`); timers of
//! another member (`inheriting`), which may come between, and then leaves one of two that are the
//! same.

use super::build::RunError;
use super::links::WorkerLink;
use crate::config::store::Store;
use crate::events::{Declared, TIMERS_LEFT, TIMERS_TAKEN_OVER};
use crate::store::{LAST_CHANGES, line};
use nf::ConfigError;
use nf::variables::open::{Element, Handed, Left};
use nf::variables::{Keeper, OpenError};
use runtime::Runtime;
use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;

/// By number, the runtimes that this process begins with.
type Runtimes = [(u16, Runtime<WorkerLink>)];

/// Has the runtimes that begin arm the timers that others of this member have left.
pub(super) fn adopt(
    (config, member): (&Store, &str),
    keeper: &Keeper,
    runtimes: &mut Runtimes,
    events: &SyncSender<String>,
) -> Result<(), RunError> {
    let begins: Vec<u32> = runtimes.iter().map(|(number, _)| u32::from(*number)).collect();
    let functions = runtimes.first().map(|(_, runtime)| runtime.timer_names());
    for (function, name, timers) in functions.unwrap_or_default() {
        let failed = |error: OpenError| RunError::Function {
            function: name.clone(),
            source: ConfigError::from(error),
        };
        let uri = config.of(&name).map(|(uri, _)| stores::without_secret(uri));
        let uri = uri.unwrap_or_default();
        for left in keeper.left(&name, &timers, &begins).map_err(failed)? {
            let (taken, rest) = arm(function, &left, runtimes).map_err(failed)?;
            let tell = |event: &'static Declared, timers: &[Element]| {
                let more = [
                    ("partition", format!("{name}@{member}@{}", left.runtime)),
                    ("timers", timers.len().to_string()),
                ];
                if !timers.is_empty() {
                    let _ = events.try_send(line(&uri, event, &more));
                }
            };
            tell(&TIMERS_TAKEN_OVER, &taken);
            tell(&TIMERS_LEFT, &rest);
            if !taken.is_empty() {
                let taken = Left {
                    timers: taken,
                    ..left.clone()
                };
                keeper.remove_left(&name, &taken).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Arms timers at the first runtimes that have room, each runtime's at another one first. Answers
/// which the store has there, and which have found no place.
fn arm(
    function: usize,
    left: &Left,
    runtimes: &mut Runtimes,
) -> Result<(Vec<Element>, Vec<Element>), OpenError> {
    let mut rest = vec![Handed {
        function,
        name: left.name.clone(),
        timers: left.timers.clone(),
    }];
    let turn = left.runtime as usize % runtimes.len().max(1);
    let (before, from) = runtimes.split_at_mut(turn);
    for (number, heir) in from.iter_mut().chain(before) {
        if rest.is_empty() {
            break;
        }
        rest = heir.take_in_timers(rest);
        if !heir.finish_variables(LAST_CHANGES) {
            let said = format!(
                "it has not taken timers of runtime {} at runtime {number} within {} s; see that it answers, and start again",
                left.runtime,
                LAST_CHANGES.as_secs()
            );
            return Err(OpenError::Store(said));
        }
    }
    let rest: Vec<Element> = rest.into_iter().flat_map(|handed| handed.timers).collect();
    let places: BTreeSet<&[u8]> = rest.iter().map(|(field, _)| &field[..]).collect();
    let all = left.timers.iter();
    let taken = all.filter(|(field, _)| !places.contains(&field[..])).cloned();
    Ok((taken.collect(), rest))
}
