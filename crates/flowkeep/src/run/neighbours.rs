//! Links of a member's workers to those of other members: which kind, between which places.
//!
//! ```text
//!   same `host`       shared memory; both meet in a directory named by the cluster
//!   different `host`  channel, with the cluster's keys: on Ethernet where both have an interface for it, else
//!                     over Geneve and UDP, whose network is the cluster's name
//! ```
//!
//! Either kind says what members must agree on when it meets, and meets nobody who says something else.
//!
//! Not here: what the links do (`adapters::shm`, `runtime::peer`).

use super::build::RunError;
use super::links::WorkerLink;
use crate::config::layout::{Layout, WorkerId};
use crate::config::{Config, Member};
use crate::member::Membership;
use adapters::clock::monotonic_ns;
use adapters::ether::EtherLink;
use adapters::interface::Interface;
use adapters::report::Reports;
use adapters::shm;
use adapters::udp::{UdpError, UdpLink, UdpSettings};
use protocols::link::geneve::Front;
use runtime::peer::{self, FrameLink, Peer};

/// Buffers of a worker's pool that links do not receive into: for what the worker itself has to say. A quarter of the smallest pool.
const SPARED: usize = 2048;
/// Where views say who is gone: after how long, in nanoseconds, a link gives a silent end up by itself. A cut that is shorter ends no session.
const SUSPENDED: u64 = 3_600_000_000_000;

/// Makes links for one member.
pub(super) struct Neighbours<'a> {
    config: &'a Config,
    member: &'a Membership,
    frame_max: usize,
    /// One more than the highest number of a port.
    ports: u8,
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
            ports: ports(config, &member.layout),
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

    /// What this machine says of a setting of this member.
    fn of_setting(&self, setting: &str, what: &dyn std::fmt::Display) -> Failed {
        let (place, member) = (self.member.place, self.member);
        format!(
            "{what}. It is what {} says: member[{place}].{setting}, of member `{}`",
            member.file.display(),
            member.name
        )
        .into()
    }

    fn memory(&self, near: WorkerId, far: WorkerId) -> Result<WorkerLink, Failed> {
        let layout = &self.member.layout;
        let settings = shm::Settings {
            directory: self.member.meeting.clone(),
            near: layout.number(near),
            far: layout.number(far),
            bytes: shm::BYTES,
            limit: self.queue,
            spared: SPARED,
            ports: self.ports,
            frame_max: self.frame_max,
            agreed: self.member.secrets.agreed,
        };
        let link = shm::ShmLink::open(settings, self.reports.clone())?;
        Ok(WorkerLink::Memory(Box::new(link)))
    }

    fn channel(&self, near: WorkerId, far: WorkerId, there: &Member) -> Result<WorkerLink, Failed> {
        let (layout, secrets) = (&self.member.layout, &self.member.secrets);
        let (from, to) = (layout.number(near), layout.number(far));
        let here = &self.config.member[self.member.place];
        let (link, frame_max): (Box<dyn FrameLink + Send>, usize) = match (here.segment(), there.segment()) {
            (Some((name, own)), Some((_, peer))) => {
                let interface =
                    Interface::find(name).map_err(|error| self.of_setting("interface", &error))?;
                if interface.mac != own {
                    return Err(self.of_setting("link_address", &not_its(&interface, own)));
                }
                let link = EtherLink::open(&interface, peer, (from, to), &self.reports)?;
                (Box::new(link), interface.mtu as usize)
            }
            _ => {
                let front = Front {
                    network: secrets.network,
                    from,
                    to,
                };
                let address =
                    |member: &Member| member.address.expect("members of several hosts have addresses");
                let mut settings = UdpSettings::new(address(here), address(there), front);
                if let Some(port) = self.config.cluster.port {
                    settings.port = port;
                }
                let frame_max = settings.frame_max;
                let opened = UdpLink::open(settings, &self.reports);
                let link = opened.map_err(|error| match error {
                    UdpError::NotHere { .. } => self.of_setting("address", &error),
                    error => error.into(),
                })?;
                (Box::new(link), frame_max)
            }
        };
        let incarnation = self.member.incarnation.number();
        let mut settings = peer::Settings::new(from, to, incarnation, secrets.protection.clone());
        settings.channel.frame_max = frame_max;
        settings.channel.agreed = secrets.agreed;
        settings.channel.salt = adapters::keys::salt()?;
        settings.frame_max = self.frame_max;
        settings.spared = SPARED;
        settings.ports = self.ports;
        if self.config.keeps_copies() {
            settings.dead_after_ns = self.config.replication.silence.duration().as_nanos() as u64;
        }
        if self.member.joining.is_some() {
            settings.dead_after_ns = SUSPENDED;
        }
        let channel = Peer::new(link, settings, monotonic_ns())?;
        Ok(WorkerLink::Channel(Box::new(channel)))
    }
}

/// What is wrong with a link address.
fn not_its(interface: &Interface, said: [u8; 6]) -> String {
    let text = |address: [u8; 6]| address.map(|byte| format!("{byte:02x}")).join(":");
    format!(
        "interface `{}` has the link address {}, and the configuration says {}; write link_address = \"{}\"",
        interface.name,
        text(interface.mac),
        text(said),
        text(interface.mac)
    )
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

/// So many numbers of ports there may be.
fn ports(config: &Config, layout: &Layout) -> u8 {
    let numbers = layout.ports.iter().map(|port| port.number(layout.switches) + 1);
    debug_assert_eq!(config.port.len(), layout.ports.len());
    u8::try_from(numbers.max().unwrap_or(0)).unwrap_or(u8::MAX)
}
