//! Flows of all runtimes of a process, listed one after the other.

use super::{Shared, silent};
use crate::cluster::Cursor;
use runtime::worker::FlowView;

/// Flows asked of a runtime in one question, so that none keeps its packets waiting.
const FLOWS_AT_ONCE: usize = 64;

/// [`crate::cluster::Cluster::flows`].
pub(super) fn flows(
    shared: &Shared,
    cursor: Cursor,
    limit: usize,
) -> Result<(Vec<FlowView>, Option<Cursor>), String> {
    let mut views = Vec::new();
    let mut at = Some(cursor);
    while let Some(Cursor { runtime, actor }) = at {
        let runtimes = shared.runtimes();
        let Some((&number, handle)) = runtimes.range(runtime..).next() else {
            return Ok((views, None));
        };
        let actor = if number == runtime { actor } else { 0 };
        let room = limit - views.len();
        if room == 0 {
            return Ok((views, at));
        }
        let limit = room.min(FLOWS_AT_ONCE);
        let asked = handle.runtime(move |runtime| runtime.flows(actor, limit));
        let Ok((mut more, next)) = asked else {
            return Err(silent(
                number,
                &asked,
                "flows are not listed, since its own would be left out",
            ));
        };
        views.append(&mut more);
        at = Some(match next {
            Some(actor) => Cursor {
                runtime: number,
                actor,
            },
            None => Cursor {
                runtime: number + 1,
                actor: 0,
            },
        });
    }
    Ok((views, None))
}
