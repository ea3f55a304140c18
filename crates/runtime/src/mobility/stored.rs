//! Words of a move that wait: *Done* until the target has a lease, and the data store, or its
//! replica, has its records of the group; *Gone* until the store has none of the source's
//! ([`crate::replica::ledger::handed`], [`crate::replica`]).
//!
//! ```text
//!   install ─► records written ─► store, or replica, has them ─► Done ─► source: records removed ─► store has none ─► Gone
//! ```
//!
//! Invariant: a word that waits is said, or its hearer is gone.

use super::Moves;
use crate::flows::group::GroupKey;
use crate::parts::Core;
use protocols::ownership::recovery::Withdrawn;
use protocols::ownership::{Phase as Part, RuntimeMessage};

/// A word that waits for the store, or for a replica.
pub(super) struct Handing {
    pub to: u16,
    group: GroupKey,
    message: RuntimeMessage,
    /// The target's place of the move, for *Done*.
    id: Option<u32>,
    /// Of *Done*: records that the replica is to have.
    copies: Withdrawn,
    /// Whether the store is waited for.
    is_for_store: bool,
    /// The change that the store is to have; `None` before it is written.
    change: Option<u64>,
    /// Of *Done*: whether the store has the group's flows, and `change` says so in its record.
    has_flows: bool,
    until: u64,
}

impl Moves {
    /// Whether words wait for the store.
    pub(crate) fn waits_for_store(&self) -> bool {
        self.handing.iter().any(|handing| handing.is_for_store)
    }

    /// The group is installed: its source hears so when the store, and the replica, have its
    /// records.
    pub(super) fn say_done_when_kept(
        &mut self,
        core: &mut Core,
        id: u32,
        to: u16,
        group: GroupKey,
        message: RuntimeMessage,
    ) {
        let is_broken = crate::replica::is_broken("the target's records are waited for");
        let is_for_store = core.is_coming(&group) && !is_broken;
        let mut copies = core.copies_of_arrived(&group);
        if !is_for_store && !core.awaits_arrived(&mut copies) && may_say_done(core) {
            return self.say_done(core, id, to, message);
        }
        // Said again: it waits already.
        let waiting = self
            .moving(id)
            .and_then(|moving| moving.done_waiting.replace(message));
        if waiting == Some(message) {
            return;
        }
        let handing = Handing {
            to,
            group,
            message,
            id: Some(id),
            copies,
            is_for_store,
            change: None,
            has_flows: false,
            until: core.store_patience(),
        };
        self.handing.push_back(handing);
        self.go_on_handing(core);
    }

    /// The group has left: its target hears so when the store has no record of it.
    pub(super) fn say_gone_when_stored(
        &mut self,
        core: &mut Core,
        to: u16,
        group: GroupKey,
        message: RuntimeMessage,
    ) {
        let Some(change) = core.write_gone() else {
            return self.tell_runtime(core, to, group, message);
        };
        let handing = Handing {
            to,
            group,
            message,
            id: None,
            copies: Withdrawn::default(),
            is_for_store: true,
            change: Some(change),
            has_flows: true,
            until: u64::MAX,
        };
        self.handing.push_back(handing);
        self.go_on_handing(core);
    }

    /// Says words whose condition is met; answers how many.
    pub(super) fn go_on_handing(&mut self, core: &mut Core) -> usize {
        let mut count = 0;
        for _ in 0..self.handing.len() {
            let Some(mut handing) = self.handing.pop_front() else {
                break;
            };
            let is_stored = !handing.is_for_store || is_stored(core, &mut handing);
            let is_copied = !core.awaits_arrived(&mut handing.copies);
            if !is_copied && !handing.is_for_store {
                // Copies behind it are not there either.
                self.handing.push_front(handing);
                break;
            }
            let is_early = handing.id.is_some() && !may_say_done(core);
            if !is_copied || is_early || !is_stored && handing.until > core.now {
                self.handing.push_back(handing);
                continue;
            }
            count += 1;
            self.say_handing(core, &handing);
        }
        count
    }

    fn say_handing(&mut self, core: &mut Core, handing: &Handing) {
        let (to, group, message) = (handing.to, handing.group, handing.message);
        let Some(id) = handing.id else {
            return self.tell_runtime(core, to, group, message);
        };
        // It may have left since, and come again, or another group be at its place.
        let moving = self.moving(id).filter(|moving| moving.group == group);
        let is_it = moving.is_some_and(|moving| {
            moving.done_waiting.take_if(|waiting| *waiting == message);
            matches!(moving.machine.phase(), Part::Announcing { .. })
        });
        if is_it {
            self.say_done(core, id, to, message);
        }
    }
}

/// A target without a lease may be removed, and its source have heard nothing of that. Of a view
/// without switches none is granted, and nodes that end behind them move their groups all the same.
fn may_say_done(core: &Core) -> bool {
    let may_have_one = !core.sessions.listed.is_empty();
    !(may_have_one && core.is_unleased()) || crate::replica::is_broken("done waits for a lease")
}

/// Writes the next records, and says whether the store has all that the word waits for.
fn is_stored(core: &mut Core, handing: &mut Handing) -> bool {
    loop {
        let group = &handing.group;
        let change = handing.change.or_else(|| match handing.has_flows {
            false => core.write_coming(group),
            true => core.write_come(group),
        });
        handing.change = change;
        if !change.is_some_and(|change| core.has_stored(change)) {
            return false;
        }
        if core::mem::replace(&mut handing.has_flows, true) {
            return true;
        }
        handing.change = None;
    }
}
