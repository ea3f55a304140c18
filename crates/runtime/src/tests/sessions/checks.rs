//! Checks of all workers together.

use super::*;
use crate::group::GroupKey;
use std::collections::{HashMap, HashSet};

impl Members {
    /// Every packet in is out, held, dropped, or was lost with a worker that is gone.
    pub(in super::super) fn check(&mut self) {
        let sent = self.sent().len() as u64;
        let (mut received, mut emitted, mut left) = (self.received, self.emitted, self.left);
        for switch in self.switches.iter().flatten() {
            let stats = switch.stats();
            received += stats.received;
            left += stats.held + stats.dropped.iter().map(|d| d.count).sum::<u64>();
            assert_eq!(
                switch.pool().free(),
                switch.pool().total(),
                "all buffers are home"
            );
        }
        for runtime in self.runtimes.iter().flatten() {
            let stats = runtime.stats();
            emitted += stats.emitted;
            left += stats.held + stats.dropped.iter().map(|d| d.count).sum::<u64>();
        }
        let lost = self.ether.lost.get();
        assert_eq!(
            received + emitted,
            sent + left + lost,
            "{sent} sent, {left} left, {lost} lost"
        );
    }

    /// No key has an actor at two runtimes, and no group is at two.
    pub(in super::super) fn assert_one_home(&self) {
        let (mut groups, mut keys) = (HashSet::new(), HashSet::new());
        for runtime in self.runtimes.iter().flatten() {
            let has_groups = self.plan.affinity() != nf::Affinity::Flow;
            for group in has_groups.then(|| runtime.group_keys()).into_iter().flatten() {
                assert!(groups.insert(group), "{group:?} is at two runtimes");
            }
            for flow in runtime.flows(0, 10_000).0 {
                assert!(keys.insert(flow.key), "{} is at two runtimes", flow.key);
            }
        }
    }

    /// Each block is one group's, and all switches that are there know it, and no other.
    pub(in super::super) fn assert_blocks_are_known(&self, what: &str) {
        let mut blocks = HashMap::new();
        for runtime in self.runtimes.iter().flatten() {
            for (place, group) in runtime.blocks() {
                assert!(
                    blocks.insert(place, group).is_none(),
                    "{place:?} is given twice: {what}"
                );
            }
        }
        for (index, switch) in self.switches.iter().flatten().enumerate() {
            let known: HashMap<_, _> = switch.blocks_known().into_iter().collect();
            assert_eq!(known, blocks, "at switch {index}: {what}");
        }
    }

    /// When all flows are over, no flow and no route is left.
    pub(in super::super) fn assert_no_route_stays(&mut self) {
        self.run_until_quiet();
        self.now += 400 * SECOND;
        self.run_until_quiet();
        self.check();
        let routes: Vec<Vec<(GroupKey, u16)>> =
            self.switches.iter().flatten().map(|s| s.route_keys()).collect();
        assert_eq!(
            (self.flows().iter().sum::<u64>(), self.routes()),
            (0, 0),
            "{routes:?}"
        );
    }

    /// Nor any block.
    pub(in super::super) fn assert_nothing_stays(&mut self) {
        self.assert_no_route_stays();
        for switch in self.switches.iter().flatten() {
            assert_eq!((switch.stats().reply_keys, switch.stats().blocks), (0, 0));
        }
    }
}
