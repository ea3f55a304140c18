//! Links of a member's workers to those of other members: which kind, between which places.
//!
//! ```text
//!   same `host`       shared memory; both meet in a directory named by the cluster and what its members agree on
//!   different `host`  channel over Geneve and UDP; the network is what members agree on, the keys are the cluster's
//! ```
//!
//! *Ports of UDP.* A member's address names the first of as many UDP ports as the cluster has workers: the link to worker `n` is at the `n`th. Two
//! workers of one member that speak with the same worker share a port here and differ in the port there, by which the kernel tells them apart.
//!
//! Not here: what the links do (`adapters::shm`, `runtime::peer`).

use super::build::RunError;
use super::links::WorkerLink;
use crate::config::layout::{Layout, WorkerId};
use crate::config::{Config, Member};
use crate::member::Membership;
use adapters::report::Reports;

/// What frames from other processes may be long where all ports are network interfaces: a page without what a buffer begins with.
const OF_INTERFACES: usize = 3648;
/// What they may be long otherwise: any packet.
const OF_ANYTHING: usize = wire::packet::FRAME_MAX;

/// The longest frame that passes between processes.
pub(super) fn frame_max(config: &Config) -> usize {
    if let Some(said) = config.cluster.frame_max {
        return usize::from(said);
    }
    let mut uris = config.port.iter().flat_map(|port| [&port.input, &port.output]).flatten();
    let is_interface = |uri: &crate::config::Uri| {
        let kind = uri.as_str().split(':').next();
        matches!(kind, Some("afpacket" | "afxdp"))
    };
    match uris.all(is_interface) {
        true => OF_INTERFACES,
        false => OF_ANYTHING,
    }
}
