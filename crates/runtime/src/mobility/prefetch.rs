//! Parts of groups that are fetched before they are looked at: with very many flows, none is in a
//! cache.
//!
//! ```text
//!   groups that begin next ─► their places and blocks of ports      words in a frame ─► the groups that they are of
//! ```
//!
//! Nothing depends on it but time. A burst from a link is looked at here before it is checked: by
//! no more than a line's fetching.
//!
//! Not here: flows' lines, which `order`, `source` and `target` fetch as they go through lists of
//! flows, and where blocks will be found (`source`, `target`).

use super::Moves;
use crate::env::Burst;
use crate::parts::Core;
use crate::record::Record;
use nf::Affinity;
use wire::packet::Kind;

/// How many groups that will begin next are fetched together.
const NEXT: usize = 32;

impl Moves {
    /// Fetches the parts of the next groups that will be looked at.
    pub(crate) fn prefetch_waiting(&self, core: &Core) {
        if core.flows.affinity() == Affinity::Flow {
            return;
        }
        let next = || self.orders.next(NEXT);
        for group in next() {
            core.flows.groups().prefetch(core.flows.groups().hash(*group));
            core.flows.owners.prefetch(group);
        }
        for group in next() {
            core.flows
                .groups()
                .prefetch_candidate(core.flows.groups().hash(*group));
            core.flows.owners.prefetch_latest(group);
        }
    }

    /// Fetches the parts of groups that are looked at when groups are spoken of: with many groups,
    /// they are in no cache.
    pub(crate) fn prefetch_groups_named(&self, core: &Core, burst: &Burst) {
        if core.flows.affinity() == Affinity::Flow {
            return;
        }
        let frames = burst.iter().filter(|packet| packet.kind() == Kind::Message);
        for group in frames.flat_map(|packet| Record::groups_named(packet.frame())) {
            core.flows.groups().prefetch(core.flows.groups().hash(group));
            core.flows.owners.prefetch(&group);
        }
    }
}
