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
use adapters::shm;

/// Makes links for one member.
pub(super) struct Neighbours<'a> {
    config: &'a Config,
    member: &'a Membership,
    frame_max: usize,
    /// Packets that may wait for a worker.
    queue: usize,
    reports: Reports,
}

impl<'a> Neighbours<'a> {
    /// Links of this member's workers.
    pub fn new(config: &'a Config, member: &'a Membership, queue: usize, reports: Reports) -> Self {
        Neighbours {
            config,
            member,
            frame_max: frame_max(config),
            queue,
            reports,
        }
    }

    /// This process's end of the link between a worker of it and one elsewhere.
    pub fn link(&self, near: WorkerId, far: WorkerId) -> Result<WorkerLink, RunError> {
        let there = Layout::member_of(self.config, far).expect("each worker is a member's");
        let members = &self.config.member;
        let made = match members[there].host == members[self.member.place].host {
            true => self.memory(near, far),
            false => self.channel(near, far, &members[there]),
        };
        made.map_err(|source| RunError::Link { near, far, source })
    }

    fn memory(&self, near: WorkerId, far: WorkerId) -> Result<WorkerLink, Failed> {
        let layout = &self.member.layout;
        let settings = shm::Settings {
            directory: self.member.meeting.clone(),
            near: layout.number(near),
            far: layout.number(far),
            bytes: shm::BYTES,
            limit: self.queue,
            frame_max: self.frame_max,
        };
        let link = shm::ShmLink::open(settings, self.reports.clone())?;
        Ok(WorkerLink::Memory(Box::new(link)))
    }

    fn channel(&self, near: WorkerId, far: WorkerId, there: &Member) -> Result<WorkerLink, Failed> {
        Err(format!(
            "{near}, {far}: links to `{}`, on another host, are not there yet",
            there.name
        )
        .into())
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The longest frame that passes between processes.
pub(super) fn frame_max(config: &Config) -> usize {
    if let Some(said) = config.cluster.frame_max {
        return usize::from(said);
    }
    let mut uris = config
        .port
        .iter()
        .flat_map(|port| [&port.input, &port.output])
        .flatten();
    let is_interface = |uri: &crate::config::Uri| {
        let kind = uri.as_str().split(':').next();
        matches!(kind, Some("afpacket" | "afxdp"))
    };
    match uris.all(is_interface) {
        true => adapters::afxdp::FRAME,
        false => wire::packet::FRAME_MAX,
    }
}
