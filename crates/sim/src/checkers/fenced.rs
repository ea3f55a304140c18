//! Invariant 9, where members act by leases: a worker that a view has removed has no further
//! effect, and has no lease from that moment on. And views of one number are the same everywhere.
//!
//! A view is in force when it is in the coordinator's log, before any member hears of it. From that
//! moment an incarnation that it does not have
//!
//! - has no lease, by its own clock;
//! - neither reads a port nor sends by one, if it is a switch;
//! - passes no packet on, if it is a runtime.
//!
//! So its flows have no effect, and [`super::one_actor`] does not look at them: there is at most
//! one actor that has effect.

use super::Violation;
use crate::coordinator::Instance;
use protocols::membership::View;
use std::collections::BTreeMap;

const NAME: &str = "fenced";

/// An incarnation that a view removes as it comes into force may act still, until so much later by
/// its own clock.
pub(crate) fn may_act(view: u32, worker: &str, left: u64) -> Violation {
    let what = format!("view {view} removes {worker}, which has its lease for {left} ns more");
    Violation::new(NAME, what)
}

/// An incarnation that was removed has done something.
pub(crate) fn has_effect(worker: &str, what: &str) -> Violation {
    Violation::new(NAME, format!("{worker} is removed, and {what}"))
}

/// The views that were seen, by number.
#[derive(Default)]
pub(crate) struct Views {
    seen: BTreeMap<u32, View>,
    /// The newest that each incarnation had.
    newest: BTreeMap<Instance, u32>,
}

impl Views {
    /// The coordinator, or a member, has this view.
    pub fn see(&mut self, by: Option<Instance>, view: &View) -> Result<(), Violation> {
        let known = self.seen.entry(view.number).or_insert_with(|| view.clone());
        if known != view {
            let what = format!(
                "two views have the number {}: {:?} and {:?}",
                view.number,
                known.members(),
                view.members()
            );
            return Err(Violation::new("views", what));
        }
        let Some(incarnation) = by else { return Ok(()) };
        let before = self.newest.insert(incarnation, view.number).unwrap_or(0);
        match before > view.number {
            true => Err(Violation::new(
                "views",
                format!(
                    "{incarnation:?} had view {before} and goes back to {}",
                    view.number
                ),
            )),
            false => Ok(()),
        }
    }
}

/// The coordinator has forgotten what a member knows.
pub(crate) fn forgotten(what: &str) -> Violation {
    Violation::new("views", what)
}
