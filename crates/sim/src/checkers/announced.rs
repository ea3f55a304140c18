//! Invariant 11: a new owner is not announced before it holds the state.
//!
//! A runtime announces a key by `Routed`, as a failed runtime's heir and when it tells a switch
//! what it has, or by `Installed`, as a move's target. A key that it announces in a step is there
//! at the end of that step, or it says behind it that it is not: a flow may end at once. A group of
//! which nothing was left to move is installed without anything; but then its source has no flow of
//! it that is active. The checker looks where nothing is ever full, so that no word waits for a
//! buffer; and at `Routed` where no group moves, since a switch that begins again is told of a
//! group on its way whether that has flows left or not.

use super::Violation;
use crate::script::Script;
use runtime::group::GroupKey;
use runtime::message::Message;

const NAME: &str = "announced";

/// A runtime has taken a step, and said this to switches. `has` says which groups are there now,
/// `is_elsewhere` which are active at others.
pub(crate) fn check(
    script: &Script,
    runtime: &str,
    said: &[(usize, Vec<u8>)],
    has: impl Fn(&GroupKey) -> bool,
    is_elsewhere: impl Fn(&GroupKey) -> bool,
) -> Result<(), Violation> {
    let is_still = script.moves.is_empty() && script.goings.is_empty();
    let mut open: Vec<(usize, GroupKey, bool)> = Vec::new();
    for (switch, frame) in said {
        let mut bytes = frame.as_slice();
        while let Some((message, rest)) = Message::read(bytes) {
            bytes = rest;
            match message {
                Message::Installed(key, _) => open.push((*switch, key, true)),
                Message::Routed(key) if is_still => open.push((*switch, key, false)),
                Message::GroupEmpty(key, _) => open.retain(|(to, known, _)| (*to, *known) != (*switch, key)),
                _ => {}
            }
        }
    }
    let is_early =
        |(_, key, is_move): &&(usize, GroupKey, bool)| !has(key) && (!is_move || is_elsewhere(key));
    match open.iter().find(is_early) {
        Some((switch, key, _)) => {
            let what = format!("{runtime} says to switch {switch} that it has {key:?}, and has not");
            Err(Violation::new(NAME, what))
        }
        None => Ok(()),
    }
}
