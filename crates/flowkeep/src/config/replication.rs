//! `[replication]`: copies of flows, and flows in a data store.

use super::values;
use nf::Period;
use runtime::replication::{Copying, Policy, Storing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a runtime's flows go on when it fails (NFVactor V-C, V-D).
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Replication {
    /// `"commit"`: another runtime has a copy of a flow's committed state before a packet that
    /// changed it leaves, and the flow goes on there when its runtime fails. `"snapshot"`: it has a
    /// copy from time to time, no packet waits, and a flow goes on as it was then. `"store"`: flows
    /// are in the data store of `[store]`, within its interval, and go on when all of the cluster
    /// was killed and begins again. `"store_commit"`: the same, and a packet that changed committed
    /// state waits until the store has that. `"none"`: its flows end. A chain may have a policy of
    /// its own. Default `"none"`.
    #[schemars(example = &"commit")]
    pub policy: ReplicationPolicy,
    /// With `"snapshot"`: a copy is sent after so many packets of a flow, 1 to 32767. Default 16.
    #[schemars(range(min = 1, max = 32767), example = 16)]
    #[serde(deserialize_with = "values::packets")]
    pub snapshot_packets: u16,
    /// With `"snapshot"`: a copy is sent so long after a packet at the latest, from `"10ms"` to
    /// `"1h"`. Default `"10ms"`.
    #[schemars(with = "String", example = &"10ms")]
    #[serde(deserialize_with = "values::wait")]
    pub snapshot_interval: Period,
    /// With `"store"` and `"store_commit"`: lazy fields of states, and how long a flow has, are in
    /// the store so long after a packet at the latest, from `"10ms"` to `"1h"`. Default `"1s"`. A
    /// flow that goes on out of the store has up to twice as long more than it had.
    #[schemars(with = "String", example = &"1s")]
    #[serde(deserialize_with = "values::wait")]
    pub lazy_interval: Period,
    /// Whether lazy fields of states are copied as committed ones are: counts of packets and bytes,
    /// for example, where they are billed. Default `false`.
    pub commit_lazy: bool,
    /// With `"commit"`: how packets are treated while no other runtime can keep copies.
    /// `"release"`: they leave and are counted as unprotected, as at the first of several runtimes
    /// that begin. `"drop"`: they are counted drops (`no_replica`). Default `"release"`.
    pub without_replica: WithoutReplica,
    /// After how long without an answer another process is taken to have failed, from `"10ms"` to
    /// `"1h"`. Default `"200ms"`. Shorter than the longest pause of a healthy process means that
    /// healthy runtimes lose their flows to others.
    #[schemars(with = "String", example = &"200ms")]
    #[serde(deserialize_with = "values::wait")]
    pub silence: Period,
    /// How long packets for a failed runtime wait at most for its flows to go on elsewhere, or with
    /// `"store"` and members for it to come back with them, from `"10ms"` to `"1h"`. Default
    /// `"2s"`.
    #[schemars(with = "String", example = &"2s")]
    #[serde(deserialize_with = "values::wait")]
    pub recovery_max: Period,
    /// With `"store"` and members: how long switches that begin wait at most for all runtimes to
    /// tell which flows they have, from `"10ms"` to `"1h"`. Then they read their ports, and flows
    /// of runtimes that are not there begin elsewhere. Default `"20s"`.
    #[schemars(with = "String", example = &"20s")]
    #[serde(deserialize_with = "values::wait")]
    pub return_max: Period,
}

/// How flows are copied, and which packets wait for it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ReplicationPolicy {
    /// No copies
    None,
    /// Copies from time to time; no packet waits
    Snapshot,
    /// Packets wait until their changes are copied
    Commit,
    /// Flows are in a data store (`[store]`), within its interval; no packet waits
    Store,
    /// Packets wait until their changes are in the data store
    StoreCommit,
}

/// How packets are treated that are to wait for copies which no runtime can keep.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum WithoutReplica {
    /// Packets leave
    Release,
    /// Packets are dropped
    Drop,
}

impl ReplicationPolicy {
    /// Whether flows are in a data store.
    pub fn is_stored(self) -> bool {
        matches!(self, ReplicationPolicy::Store | ReplicationPolicy::StoreCommit)
    }
}

impl From<ReplicationPolicy> for Policy {
    fn from(policy: ReplicationPolicy) -> Self {
        match policy {
            ReplicationPolicy::None => Self::None,
            ReplicationPolicy::Snapshot => Self::Snapshot,
            ReplicationPolicy::Commit => Self::Commit,
            ReplicationPolicy::Store => Self::Store,
            ReplicationPolicy::StoreCommit => Self::StoreCommit,
        }
    }
}

impl Default for Replication {
    fn default() -> Self {
        Replication {
            policy: ReplicationPolicy::None,
            snapshot_packets: Copying::default().packets,
            snapshot_interval: Period::new(Duration::from_millis(10)),
            lazy_interval: Period::new(Duration::from_nanos(Storing::LAZY)),
            commit_lazy: false,
            without_replica: WithoutReplica::Release,
            silence: Period::new(Duration::from_millis(200)),
            recovery_max: Period::seconds(2),
            return_max: Period::seconds(20),
        }
    }
}

impl Replication {
    /// The same for a runtime.
    pub fn copying(&self) -> Copying {
        Copying {
            policy: self.policy.into(),
            packets: self.snapshot_packets,
            interval: self.snapshot_interval.duration().as_nanos() as u64,
            has_lazy: self.commit_lazy,
            drops_alone: self.without_replica == WithoutReplica::Drop,
        }
    }
}
