//! All figures of a cluster, asked of its workers.
//!
//! Not here: their meaning ([`crate::cluster::Snapshot`]), how they are shown ([`crate::report`],
//! [`crate::metrics`]).

use super::handle::{PATIENCE, Question, WorkerAnswer};
use super::{ProcessPart, Shared, WorkerPool};
use crate::apply::joined::Joined;
use crate::cluster::{LinkStats, PortStats, Snapshot};
use crate::store::stats::{StoreStatus, VariablesStatus};
use runtime::PortCounters;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Shared {
    pub(super) fn ask_all(&self) -> Snapshot {
        let trial = self.live.trials().status();
        let mut snapshot = Snapshot {
            uptime: self.began.elapsed(),
            numbers: [self.switches.keys().copied().collect(), Vec::new()],
            member: self.part.as_ref().map(|part| part.name.clone()),
            others: self.part.as_ref().map(ProcessPart::others).unwrap_or_default(),
            links: self.links(),
            trial: trial.0,
            went_back: trial.1,
            configuration: self.live.joined().map(Joined::in_force),
            backends: self.checks.status(),
            ..Snapshot::default()
        };
        for ((number, switch), names) in self.switches.iter().zip(&self.ports) {
            if let Ok(WorkerAnswer::Switch { stats, ports }) = switch.ask(Question::Stats) {
                snapshot.switches.push(*stats);
                let named = names.iter().zip(ports);
                snapshot
                    .ports
                    .extend(named.map(|(name, counters): (&String, PortCounters)| PortStats {
                        name: name.clone(),
                        switch: *number,
                        counters,
                    }));
            } else {
                snapshot.unanswered.push(format!("switch {number}"));
            }
        }
        // First the absent runtimes: a runtime that goes meanwhile is in one of the two.
        let mut absent = self
            .worker_pool
            .as_ref()
            .map(WorkerPool::absent)
            .unwrap_or_default();
        let mut all = BTreeMap::new();
        for (number, runtime) in self.runtimes() {
            if let Ok(WorkerAnswer::Runtime(stats)) = runtime.ask(Question::Stats) {
                all.insert(number, *stats);
                absent.remove(&number);
            } else {
                snapshot.unanswered.push(format!("runtime {number}"));
            }
        }
        if !self.stores.is_empty() {
            snapshot.stores = self.stores.iter().map(StoreStatus::of).collect();
            for (number, runtime) in self.runtimes() {
                if let Ok(all) = runtime.runtime(|runtime| runtime.variables()) {
                    let status = |(function, figures)| VariablesStatus::of(number, function, &figures);
                    snapshot.variables.extend(all.into_iter().map(status));
                }
            }
        }
        snapshot.absent = absent.keys().copied().collect();
        all.extend(absent);
        if let Some(worker_pool) = &self.worker_pool {
            worker_pool.go_on(&mut all);
        }
        for (number, stats) in all {
            snapshot.numbers[1].push(number);
            snapshot.runtimes.push(stats);
        }
        snapshot
    }

    /// Links to other processes, if there are others.
    pub(super) fn links(&self) -> Vec<LinkStats> {
        let Some(part) = &self.part else { return Vec::new() };
        let mut all = Vec::new();
        for worker in self.workers() {
            let asked = worker.call(|worker| Some(worker.links()));
            all.extend(
                asked
                    .and_then(|links| Ok(links.recv_timeout(PATIENCE)?))
                    .unwrap_or_default(),
            );
        }
        for link in &mut all {
            link.member = part.member_of(link.to);
            link.functions = Arc::clone(&part.functions);
        }
        all
    }
}
