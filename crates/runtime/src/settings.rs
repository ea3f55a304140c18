//! The settings that a runtime is made with.

use crate::replica::policy::{Copying, Storing};
use alloc::vec::Vec;
use nf::{Affinity, Prefix, WorkerInfo};
use wire::HashSeed;

/// No runtime has more groups on their way to others at once.
pub const MOVES_MAX: u32 = 256;

/// The settings that a runtime is made with. All bounds are per runtime.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its number and the cluster's size, for the functions.
    pub info: WorkerInfo,
    /// Seed of the tables; the same for all workers of a cluster.
    pub seed: HashSeed,
    /// The most groups.
    pub groups_max: u32,
    /// The most calls waiting at once.
    pub waiting_max: u32,
    /// The most packets queued behind waiting calls.
    pub queued_max: u32,
    /// The most packets that wait for the same thing ([`nf::Cx::changed`]), in calls and behind
    /// them.
    pub share_max: u32,
    /// The most packets held for functions.
    pub held_max: u32,
    /// How long a flow lives for which no function asks for anything, in nanoseconds.
    pub timeout_default: u64,
    /// Datagrams whose fragments are followed at once.
    pub fragments_max: u32,
    /// The most groups on their way from here at once; [`MOVES_MAX`] at most, by which others bound
    /// what they keep.
    pub moves_max: u32,
    /// Flows of groups on their way from here at once, after which no other group begins to move.
    pub moved_flows_max: u32,
    /// The most packets kept for groups that are on their way.
    pub kept_max: u32,
    /// How long a move may take before it is given up, in nanoseconds, as far as it may be.
    pub move_timeout: u64,
    /// Bytes of event log between two visits of its reader.
    pub events_max: usize,
    /// How many switches there are, which is also the number of links; 0 for a runtime alone on one
    /// port.
    pub switches: u8,
    /// The switch whose ports are inside, and the one whose are outside.
    pub egress: [u8; 2],
    /// The addresses that are inside, where switches tell the side by them; else none.
    pub inside: Vec<Prefix>,
    /// Whether another runtime keeps copies of this one's flows, if there is one
    /// ([`crate::replica`]).
    pub replicated: bool,
    /// How copies are kept, if they are.
    pub copying: Copying,
    /// How flows are kept in a store, where chains have that policy
    /// ([`crate::replication::Policy::Store`]).
    pub storing: Option<Storing>,
    /// By runtime, how far away it keeps this one's copies: the lowest is chosen first, and one
    /// without a number never. Empty: all are alike.
    pub replica_ranks: Vec<Option<u8>>,
    /// Take the packets' own timestamps for the time (a replay), as far as they are ahead of what
    /// `step` is told.
    pub packet_clock: bool,
    /// The time at the start, in nanoseconds.
    pub now: u64,
    /// The time of the wall clock where the worker's shows 0, in nanoseconds.
    pub wall: u64,
}

impl Settings {
    /// How many groups there may be.
    pub fn groups(&self, affinity: Affinity) -> usize {
        match affinity {
            Affinity::Flow => 0,
            _ => self.groups_max as usize,
        }
    }

    /// How many entries a store has of a runtime's flows at most: flows, and groups, of which none
    /// is without a flow.
    pub fn entries(&self, affinity: Affinity) -> usize {
        let flows = self.info.flows_max as usize;
        flows + self.groups(affinity).min(flows)
    }

    /// A runtime alone on one port, for up to `flows_max` flows.
    pub fn alone(flows_max: u32) -> Self {
        Settings {
            info: WorkerInfo {
                runtime: 0,
                runtimes: 1,
                flows_max,
                seed: 1,
            },
            seed: HashSeed::FIXED,
            groups_max: flows_max,
            waiting_max: 1024,
            queued_max: 4096,
            // About what Linux keeps for a neighbour that it resolves (`unres_qlen`).
            share_max: 128,
            held_max: 1024,
            // RFC 4787 REQ-5 recommends five minutes for a mapping; a flow whose functions name no
            // time is no better.
            timeout_default: 300_000_000_000,
            fragments_max: 1024,
            moves_max: MOVES_MAX,
            moved_flows_max: 256,
            kept_max: 4096,
            move_timeout: 1_000_000_000,
            events_max: 1 << 20,
            switches: 0,
            egress: [0, 0],
            inside: Vec::new(),
            replicated: false,
            copying: Copying::default(),
            storing: None,
            replica_ranks: Vec::new(),
            packet_clock: false,
            now: 0,
            wall: 0,
        }
    }
}
