//! Invariants 4 and 5: no packet has left whose state is not at the replica, so no flow goes back
//! when its runtime fails; and none is forgotten or reset.
//!
//! Looked at is what a function saw that stands first in the chain ([`crate::witness`]). Where
//! runtimes keep copies no flow may go on from a state before that of a packet that has left. A
//! flow that began again is forgotten, if a packet of it had left and it had not ended: not where
//! one runtime fails at a time, with all copied, and nothing is full ([`Script::keeps_flows`]). A
//! flow of which copies are taken from time to time (`snapshot`) may go back, and is not forgotten.

use super::Violation;
use crate::script::Script;
use crate::witness::Account;

const NAME: &str = "kept";

/// Looks at all flows that were seen.
pub(crate) fn check(script: &Script) -> Result<(), Violation> {
    if !script.is_copied() {
        return Ok(());
    }
    let (back, forgotten) = Account::look(|account| (account.gone_back, account.forgotten));
    // A copy that is taken from time to time is older than its flow.
    if let Some((flow, left, from)) = back.filter(|_| script.snapshots().is_none()) {
        let what = format!("{left} packets of flow {flow} had left, and it went on from {from}");
        return Err(Violation::new(NAME, what));
    }
    match forgotten.filter(|_| script.keeps_flows()) {
        Some((flow, left)) => {
            let what = format!("{left} packets of flow {flow} had left, and it began again");
            Err(Violation::new(NAME, what))
        }
        None => Ok(()),
    }
}

/// A client has heard that its connection is reset, by the cluster.
pub(crate) fn reset(script: &Script, talk: usize) -> Result<(), Violation> {
    let is_answered = script.talks.get(talk).map(|talk| talk.fate) == Some(crate::script::Fate::Answered);
    match is_answered && script.keeps_flows() {
        true => Err(Violation::new(
            NAME,
            format!("the cluster reset the connection of talk {talk}"),
        )),
        false => Ok(()),
    }
}
