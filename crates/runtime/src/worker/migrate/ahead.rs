//! What of groups is fetched before it is looked at: with very many flows, none of it is in a cache.
//!
//! ```text
//!   groups that begin next ─► their places and blocks of ports      words in a frame ─► the groups that they are of
//! ```
//!
//! Nothing depends on it but time. What comes by a link is looked at here before it is checked: by no more than a line's fetching.
//!
//! Not here: flows' lines, which whoever goes through a list of them fetches (`order`, `source`, `target`), and where blocks will be found (`source`, `target`).

use super::super::Runtime;
use super::bytes::Record;
use crate::env::{Burst, Port};
use nf::Affinity;
use wire::packet::Kind;

/// How many groups that will begin next are fetched together.
const NEXT: usize = 32;

impl<P: Port> Runtime<P> {
    /// Fetches what is looked at of the groups that will be next.
    pub(super) fn prefetch_waiting(&self) {
        if self.flows.affinity() == Affinity::Flow {
            return;
        }
        let next = || self.moves.orders.next(NEXT);
        for group in next() {
            self.flows.groups().prefetch(self.flows.groups().hash(*group));
            self.flows.owners.prefetch(group);
        }
        for group in next() {
            self.flows
                .groups()
                .prefetch_candidate(self.flows.groups().hash(*group));
            self.flows.owners.prefetch_latest(group);
        }
    }

    /// Fetches what is looked at when groups are spoken of: with many groups, that is in no cache.
    pub(super) fn prefetch_groups_named(&self, burst: &Burst) {
        if self.flows.affinity() == Affinity::Flow {
            return;
        }
        let frames = burst.iter().filter(|packet| packet.kind() == Kind::Message);
        for group in frames.flat_map(|packet| Record::groups_named(packet.frame())) {
            self.flows.groups().prefetch(self.flows.groups().hash(group));
            self.flows.owners.prefetch(&group);
        }
    }
}
