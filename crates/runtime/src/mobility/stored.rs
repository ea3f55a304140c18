//! Words of a move that wait for a data store: *Done* until it has the target's records of the
//! group, *Gone* until it has none of the source's ([`crate::replica::ledger::handed`]).
//!
//! ```text
//!   install ─► records written ─► store has them ─► Done ─► source: records removed ─► store has none ─► Gone
//! ```
//!
//! Invariant: a word that waits is said, or its hearer is gone.

use super::Moves;
use crate::flows::group::GroupKey;
use crate::parts::Core;
use alloc::collections::VecDeque;
use protocols::ownership::{Phase as Part, Says};

/// A word that waits for the store.
pub(super) struct Handing {
    pub to: u16,
    group: GroupKey,
    says: Says,
    /// The target's place of the move, for *Done*.
    id: Option<u32>,
    /// The change that the store is to have; none before that is written.
    change: Option<u64>,
    /// Of *Done*: whether the store has the group's flows, and `change` says so in its record.
    has_flows: bool,
    until: u64,
}

impl Moves {
    /// Whether words wait for the store.
    pub(crate) fn waits_for_store(&self) -> bool {
        !self.handing.is_empty()
    }

    /// The group is installed: its source hears so when the store has its records.
    pub(super) fn say_done_when_stored(
        &mut self,
        core: &mut Core,
        id: u32,
        to: u16,
        group: GroupKey,
        says: Says,
    ) {
        let is_broken = crate::replica::is_broken("the target's records are waited for");
        if !core.is_coming(&group) || is_broken {
            return self.say_done(core, id, to, says);
        }
        let handing = Handing {
            to,
            group,
            says,
            id: Some(id),
            change: None,
            has_flows: false,
            until: core.store_patience(),
        };
        self.handing.push_back(handing);
        self.go_on_handing(core);
    }

    /// The group has left: its target hears so when the store has no record of it.
    pub(super) fn say_gone_when_stored(&mut self, core: &mut Core, to: u16, group: GroupKey, says: Says) {
        let Some(change) = core.write_gone() else {
            return self.tell_runtime(core, to, group, says);
        };
        let handing = Handing {
            to,
            group,
            says,
            id: None,
            change: Some(change),
            has_flows: true,
            until: u64::MAX,
        };
        self.handing.push_back(handing);
        self.go_on_handing(core);
    }

    /// Says what the store has been waited for; answers how many words.
    pub(super) fn go_on_handing(&mut self, core: &mut Core) -> usize {
        let mut count = 0;
        let mut left = VecDeque::new();
        for mut handing in core::mem::take(&mut self.handing) {
            let is_stored = is_stored(core, &mut handing);
            if !is_stored && handing.until > core.now {
                left.push_back(handing);
                continue;
            }
            count += 1;
            self.say_handing(core, &handing);
        }
        self.handing = left;
        count
    }

    fn say_handing(&mut self, core: &mut Core, handing: &Handing) {
        let (to, group, says) = (handing.to, handing.group, handing.says);
        let Some(id) = handing.id else {
            return self.tell_runtime(core, to, group, says);
        };
        let is_it = self.moving(id).is_some_and(|moving| {
            moving.group == group && matches!(moving.machine.phase(), Part::Announcing { .. })
        });
        if is_it {
            self.say_done(core, id, to, says);
        }
    }
}

/// Writes what is next, and says whether the store has all that the word waits for.
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
