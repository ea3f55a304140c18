//! Links of a member's workers to those of other members: which kind, between which places.
//!
//! ```text
//!   same `host`       shared memory; both meet in a directory named by the cluster
//!   different `host`  channel, with the cluster's keys: on Ethernet where both have an interface for it, else
//!                     over Geneve and UDP, whose network is the cluster's name
//! ```
//!
//! Either kind says the words that members must agree on when it meets, and meets no peer with
//! other words.
//!
//! Not here: the links themselves (`adapters::shm`, `runtime::peer`).

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
use protocols::channel::{AGREED, Protection};
use protocols::link::geneve::Front;
use runtime::peer::{self, FrameLink, Peer};
use std::path::PathBuf;

/// Buffers of a worker's pool that links do not receive into: for the worker's own messages. A
/// quarter of the smallest pool.
const SPARED: usize = 2048;
/// Where views say which workers are gone: after how long, in nanoseconds, a link gives a silent
/// end up by itself. A cut that is shorter ends no session.
const SUSPENDED: u64 = 3_600_000_000_000;

/// Makes links for one member.
#[derive(Clone)]
pub(super) struct Neighbours {
    /// This member, and its place among those of the configuration.
    here: Member,
    place: usize,
    file: PathBuf,
    meeting: PathBuf,
    layout: Layout,
    incarnation: u64,
    protection: Protection,
    agreed: [u64; AGREED],
    network: u32,
    /// UDP port of links to other hosts, if it is said.
    port: Option<u16>,
    /// After how long a silent end is given up, in nanoseconds, if another than this link says
    /// that.
    dead_after: Option<u64>,
    frame_max: usize,
    /// Runtimes of members that the configuration lists.
    listed: usize,
    /// One more than the highest number of a port.
    ports: u8,
    /// Packets that may wait for a worker.
    queue: usize,
    reports: Reports,
}

impl Neighbours {
    /// Links of this member's workers.
    pub fn new(config: &Config, member: &Membership, queue: usize, reports: Reports) -> Self {
        let copies = config.keeps_copies();
        let silence = copies.then(|| config.replication.silence.duration().as_nanos() as u64);
        Neighbours {
            here: config.member[member.place].clone(),
            place: member.place,
            file: member.file.clone(),
            meeting: member.meeting.clone(),
            layout: member.layout.clone(),
            incarnation: member.incarnation.number(),
            protection: member.secrets.protection.clone(),
            agreed: member.secrets.agreed,
            network: member.secrets.network,
            port: config.cluster.port,
            dead_after: member.joining.as_ref().map(|_| SUSPENDED).or(silence),
            frame_max: frame_max(config),
            listed: config.runtimes.into(),
            ports: ports(config, &member.layout),
            queue,
            reports,
        }
    }

    /// This member.
    pub fn here(&self) -> &Member {
        &self.here
    }

    /// Runtimes of members that the configuration lists.
    pub fn listed(&self) -> usize {
        self.listed
    }

    /// Links that are made from now on have these keys.
    pub fn protect(&mut self, protection: &Protection) {
        self.protection = protection.clone();
    }

    /// Links that are made from now on meet others by these words.
    pub fn agree(&mut self, agreed: &[u64; AGREED]) {
        self.agreed = *agreed;
    }

    /// This process's end of a link at the start. A runtime that the configuration does not list
    /// has a berth.
    pub fn begin(&self, config: &Config, near: WorkerId, far: WorkerId) -> Result<WorkerLink, RunError> {
        match Layout::member_of(config, far) {
            Some(place) => self.link(near, far, &config.member[place]),
            None => Ok(WorkerLink::Berth(Box::default())),
        }
    }

    /// This process's end of the link between a worker of it and one of the member `there`.
    pub fn link(&self, near: WorkerId, far: WorkerId, there: &Member) -> Result<WorkerLink, RunError> {
        let made = match there.host == self.here.host {
            true => self.memory(near, far),
            false => self.channel(near, far, there),
        };
        made.map_err(|source| RunError::Link { near, far, source })
    }

    /// This machine's refusal of a setting of this member.
    fn of_setting(&self, setting: &str, what: &dyn std::fmt::Display) -> Failed {
        let name = &self.here.name;
        match self.here.first {
            Some(_) => format!(
                "{what}. The command line of member `{name}` says so (--{})",
                setting.replace('_', "-")
            ),
            None => {
                let (file, place) = (self.file.display(), self.place);
                format!("{what}. {file} says so: member[{place}].{setting}, of member `{name}`")
            }
        }
        .into()
    }

    fn memory(&self, near: WorkerId, far: WorkerId) -> Result<WorkerLink, Failed> {
        let layout = &self.layout;
        let settings = shm::ShmSettings {
            directory: self.meeting.clone(),
            near: layout.number(near),
            far: layout.number(far),
            bytes: shm::BYTES,
            limit: self.queue,
            spared: SPARED,
            ports: self.ports,
            frame_max: self.frame_max,
            agreed: self.agreed,
        };
        let link = shm::ShmLink::open(settings, self.reports.clone())?;
        Ok(WorkerLink::Memory(Box::new(link)))
    }

    fn channel(&self, near: WorkerId, far: WorkerId, there: &Member) -> Result<WorkerLink, Failed> {
        let (from, to) = (self.layout.number(near), self.layout.number(far));
        let here = &self.here;
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
                    network: self.network,
                    from,
                    to,
                };
                let address = |member: &Member| {
                    member.address.ok_or_else(|| {
                        format!("member `{}` has no address for links to other hosts", member.name)
                    })
                };
                let mut settings = UdpSettings::new(address(here)?, address(there)?, front);
                if let Some(port) = self.port {
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
        let mut settings = peer::PeerSettings::new(from, to, self.incarnation, self.protection.clone());
        settings.channel.frame_max = frame_max;
        settings.channel.agreed = self.agreed;
        settings.channel.salt = adapters::keys::salt()?;
        settings.frame_max = self.frame_max;
        settings.spared = SPARED;
        settings.ports = self.ports;
        if let Some(dead_after) = self.dead_after {
            settings.dead_after_ns = dead_after;
        }
        let channel = Peer::new(link, settings, monotonic_ns())?;
        Ok(WorkerLink::Channel(Box::new(channel)))
    }
}

/// The problem of a link address.
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
    longest(config)
}

/// The longest frame that ports may have.
pub(super) fn longest(config: &Config) -> usize {
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
