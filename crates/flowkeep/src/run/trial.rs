//! The thread that has a configuration on trial go back when its time is over
//! ([`crate::apply::trial`]).
//!
//! The thread is there before the change is made: where none can be started, nothing has changed.
//! It holds nothing of the cluster while it waits.
//!
//! Each change that was made is an event, whichever command or signal asked for it.
//!
//! Not here: going back itself ([`crate::apply::Live::end_trial`]).

use super::{Shared, checking};
use crate::apply::Ask;
use crate::apply::report::Change;
use crate::events;
use std::io::Write as _;
use std::sync::{Weak, mpsc};

/// Makes a change, or says its effects; a change that is to be confirmed goes back by itself.
pub(super) fn change(shared: &Shared, ask: &Ask) -> Result<Change, String> {
    if let Some(part) = &shared.part {
        return Err(part.no_change(shared.live.joined().is_some()));
    }
    if ask.confirm_ms.is_none() {
        let changed = shared.live.change(ask, shared);
        checking::begin(shared);
        if let Ok(change) = &changed {
            tell(shared, ask, change);
        }
        return changed;
    }
    if ask.dry || ask.rollback {
        return Err("only `chain apply FILE` can be confirmed".into());
    }
    let (begun, begins) = mpsc::channel();
    let me = shared.me.clone();
    let trials = shared.live.trials();
    let watching = std::thread::Builder::new().name("trial".into()).spawn(move || {
        // No number comes where no configuration was applied.
        if let Ok(generation) = begins.recv() {
            while trials.wait(generation) && !go_back(&me, generation) {}
        }
    });
    watching.map_err(|error| format!("no thread can be started to go back: {error}; nothing has changed"))?;
    let change = shared.live.change(ask, shared)?;
    checking::begin(shared);
    tell(shared, ask, &change);
    if let Some(receipt) = &change.receipt {
        let _ = begun.send(receipt.generation);
    }
    Ok(change)
}

/// Confirms the configuration on trial; its number.
pub(super) fn confirm(shared: &Shared) -> Result<u64, String> {
    let generation = shared.live.trials().confirm()?;
    let fields = [("generation", generation.into())];
    shared.notices.tell(&events::CONFIGURATION_CONFIRMED, &fields);
    Ok(generation)
}

/// The event of a change that is in force.
fn tell(shared: &Shared, ask: &Ask, change: &Change) {
    let Some(receipt) = &change.receipt else { return };
    let mut fields = vec![
        ("generation", receipt.generation.into()),
        ("flows_kept", receipt.flows_kept.into()),
        ("flows_cut", receipt.flows_cut.into()),
    ];
    if ask.rollback {
        fields.push(("file", shared.live.trials().file_in_force().into()));
        shared.notices.tell(&events::CONFIGURATION_ROLLED_BACK, &fields);
        return;
    }
    fields.push(("file", shared.live.file_of(ask).into()));
    if let Some(seconds) = receipt.confirm_seconds {
        fields.push(("confirm_seconds", seconds.into()));
    }
    shared.notices.tell(&events::CONFIGURATION_APPLIED, &fields);
}

/// Goes back, and says so; `false` if it is to be tried again.
fn go_back(cluster: &Weak<Shared>, generation: u64) -> bool {
    let Some(shared) = cluster.upgrade() else {
        return true;
    };
    let mut err = std::io::stderr();
    match shared.live.end_trial(generation, &*shared) {
        None => true,
        Some(Ok(went)) => {
            let _ = writeln!(err, "{went}");
            let fields = [
                ("file", went.file.as_str().into()),
                ("generation", went.generation.into()),
                ("now", went.now.into()),
                ("flows_cut", went.flows_cut.into()),
            ];
            shared.notices.tell(&events::CONFIGURATION_WENT_BACK, &fields);
            checking::begin(&shared);
            true
        }
        Some(Err(problem)) => {
            let _ = writeln!(
                err,
                "generation {generation} was not confirmed and cannot go back yet: {problem}"
            );
            let fields = [("generation", generation.into()), ("problem", problem.into())];
            shared.notices.tell(&events::CONFIGURATION_STAYS, &fields);
            false
        }
    }
}
