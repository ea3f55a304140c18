//! Links between workers, of any kind, and which worker has which end.
//!
//! # Theory of operation
//!
//! Workers take any [`Port`] for a link and do not know its kind ([decision
//! 13](../../../../docs/decisions/0013-links-between-processes.md)). Here each link of a worker of
//! this process is a [`WorkerLink`]; all are laid at the start, and each end is taken out once, by
//! its worker.
//!
//! ```text
//!   both workers in this process           ring
//!   the other in another process           shared memory, where both members' `host` is the same
//!                                          channel over Geneve and UDP, where not
//!   the other of a member that the         a berth (`berth.rs`), in which either of these is laid when a view has the
//!   configuration does not list            member
//! ```
//!
//! Invariant: a pair of workers has one link. A ring can hold every buffer there is.
//!
//! Not here: the work of a link (`adapters`).

use super::berth::Berth;
use super::build::RunError;
use crate::cluster::LinkStats;
use crate::config::layout::{Layout, WorkerId};
use adapters::ring::RingPort;
use adapters::shm::ShmLink;
use protocols::channel::{AGREED, DropReason, Protection};
use runtime::env::{AttachError, Burst, LinkTo, Port, PortCounters};
use runtime::peer::{FrameLink, Peer, Refused};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::{Pool, Prefix};

/// A link between two workers. Its kind is decided at the start, so a processor foresees the way
/// that each call takes.
pub(crate) enum WorkerLink {
    /// In this process.
    Ring(RingPort),
    /// To another process of this host.
    Memory(Box<ShmLink>),
    /// To another host.
    Channel(Box<Channel>),
    /// To a member that the configuration does not list, if one is there.
    Berth(Box<Berth>),
}

/// A link to another host, whatever carries its frames.
pub(crate) type Channel = Peer<Box<dyn FrameLink + Send>>;

/// Calls the same method of whatever a link is.
macro_rules! of_each {
    ($link:expr, $port:ident => $call:expr) => {
        match $link {
            WorkerLink::Ring($port) => $call,
            WorkerLink::Memory($port) => $call,
            WorkerLink::Channel($port) => $call,
            WorkerLink::Berth($port) => $call,
        }
    };
}

impl Port for WorkerLink {
    fn frame_max(&self) -> usize {
        of_each!(self, port => port.frame_max())
    }
    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        of_each!(self, port => port.attach(pool))
    }
    fn claim(&mut self, addresses: &[Prefix]) -> Result<(), AttachError> {
        of_each!(self, port => port.claim(addresses))
    }
    #[inline]
    fn reap_transmitted(&mut self, pool: &mut Pool) {
        of_each!(self, port => port.reap_transmitted(pool));
    }
    fn reserved(&self) -> usize {
        of_each!(self, port => port.reserved())
    }
    #[inline]
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        of_each!(self, port => port.receive(now, pool, burst));
    }
    #[inline]
    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        of_each!(self, port => port.transmit(now, pool, burst));
    }
    fn finished(&self) -> bool {
        of_each!(self, port => port.finished())
    }
    fn answers(&self) -> bool {
        of_each!(self, port => port.answers())
    }
    fn waits(&self) -> bool {
        of_each!(self, port => port.waits())
    }
    #[inline]
    fn room(&self) -> usize {
        of_each!(self, port => port.room())
    }
    fn next_at(&self) -> Option<u64> {
        of_each!(self, port => port.next_at())
    }
    fn wakes_by(&self) -> Option<Vec<i32>> {
        of_each!(self, port => port.wakes_by())
    }
    #[inline]
    fn session(&self) -> u64 {
        of_each!(self, port => port.session())
    }
    fn is_apart(&self) -> bool {
        of_each!(self, port => port.is_apart())
    }
    #[inline]
    fn is_still(&self) -> bool {
        match self {
            WorkerLink::Ring(ring) => ring.is_still(),
            WorkerLink::Memory(_) | WorkerLink::Channel(_) | WorkerLink::Berth(_) => false,
        }
    }
    fn has_other_clock(&self) -> bool {
        of_each!(self, port => port.has_other_clock())
    }
    fn flush(&mut self) {
        of_each!(self, port => port.flush());
    }
    fn counters(&self) -> PortCounters {
        of_each!(self, port => port.counters())
    }
}

impl WorkerLink {
    /// Whether the other end is in another process.
    pub fn is_to_another(&self) -> bool {
        !matches!(self, WorkerLink::Ring(_))
    }

    /// Other keys from now on; of no meaning to links within the host.
    pub fn protect(&mut self, protection: &Protection) {
        match self {
            WorkerLink::Channel(peer) => peer.protect(protection.clone()),
            WorkerLink::Berth(berth) => berth.each(|link| link.protect(protection)),
            WorkerLink::Ring(_) | WorkerLink::Memory(_) => {}
        }
    }

    /// Other words on the settings that both ends must have alike, for peers that are met from now
    /// on.
    pub fn agree(&mut self, agreed: &[u64; AGREED]) {
        match self {
            WorkerLink::Ring(_) => {}
            WorkerLink::Memory(link) => link.agree(*agreed),
            WorkerLink::Channel(peer) => peer.agree(*agreed),
            WorkerLink::Berth(berth) => berth.each(|link| link.agree(agreed)),
        }
    }

    /// Empties an end that is taken down; whether nothing is left of others' buffers.
    pub fn clear(&mut self, pool: &mut Pool, burst: &mut Burst) -> bool {
        match self {
            WorkerLink::Ring(_) | WorkerLink::Berth(_) => true,
            WorkerLink::Memory(link) => link.clear(pool, burst),
            WorkerLink::Channel(peer) => peer.clear(pool, burst),
        }
    }

    /// Whether it may be to a member that the configuration does not list, and none is there.
    pub fn is_vacant(&self) -> bool {
        matches!(self, WorkerLink::Berth(berth) if berth.is_vacant())
    }

    /// The kind and the figures of a link to another process.
    pub fn stats(&self, from: WorkerId, to: LinkTo) -> LinkStats {
        if let WorkerLink::Berth(berth) = self
            && let Some(link) = berth.link()
        {
            return LinkStats {
                session: self.session(),
                counters: self.counters(),
                ..link.stats(from, to)
            };
        }
        let to = match to {
            LinkTo::Switch(number) => WorkerId::Switch(number.into()),
            LinkTo::Runtime(number) => WorkerId::Runtime(number.into()),
        };
        let (mut refused, mut repeated, mut meetings) = (BTreeMap::new(), 0, 0);
        let (mut differs, mut not_met_for) = (Default::default(), None);
        let kind = match self {
            WorkerLink::Ring(_) => "ring",
            WorkerLink::Berth(_) => "none",
            WorkerLink::Memory(link) => {
                differs = link.differs();
                // The link says no more of them than that they were none.
                refused.insert("not_ours", self.counters().refused_packets);
                "memory"
            }
            WorkerLink::Channel(peer) => {
                (differs, not_met_for) = (peer.differs(), peer.not_met_for());
                let channel = peer.channel_counters();
                // Sent again, although the first had come: that is how nothing is lost.
                repeated = channel.dropped(DropReason::Duplicate);
                meetings = channel.sessions;
                let dropped = DropReason::ALL
                    .iter()
                    .filter(|reason| **reason != DropReason::Duplicate)
                    .map(|reason| (reason.name(), channel.drops[*reason as usize]));
                let own = peer.own_counters();
                let words = Refused::ALL
                    .iter()
                    .map(|reason| (reason.name(), own.refused[*reason as usize]));
                let others = ("not_ours", peer.link_counters().refused_packets);
                for (name, count) in dropped.chain(words).chain([others]) {
                    *refused.entry(name).or_default() += count;
                }
                "channel"
            }
        };
        refused.retain(|_, count| *count > 0);
        LinkStats {
            from,
            to,
            kind,
            session: self.session(),
            counters: self.counters(),
            refused,
            repeated,
            meetings,
            // The process fills it in: a link does not know the members.
            member: String::new(),
            differs,
            // The same.
            functions: Arc::default(),
            not_met_for,
        }
    }
}

/// How large rings are.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// All buffers of all pools of this process.
    pub buffers: usize,
    /// Packets that may wait in a runtime's queue.
    pub queue: usize,
}

/// The ends of all links of this process's workers, taken out one by one.
pub(super) struct Links {
    /// By switch and runtime: the switch's end and the runtime's.
    runtime: Vec<Vec<(Option<WorkerLink>, Option<WorkerLink>)>>,
    /// By switch and peer.
    peer: Vec<Vec<Option<WorkerLink>>>,
    /// By runtime and other runtime.
    between: Vec<Vec<Option<WorkerLink>>>,
}

/// Makes this process's end of a link to a worker of another one: which worker is here, which is
/// there.
pub(super) type ToOthers<'a> = dyn FnMut(WorkerId, WorkerId) -> Result<WorkerLink, RunError> + 'a;

impl Links {
    /// Lays all links that have an end here.
    pub fn lay(layout: &Layout, sizes: Sizes, others: &mut ToOthers<'_>) -> Result<Self, RunError> {
        let mut pair = |near: WorkerId, far: WorkerId, limit| {
            Ok(match (layout.is_here(near), layout.is_here(far)) {
                (true, true) => {
                    let (near, far) = RingPort::pair_with_limit(sizes.buffers, limit);
                    (Some(WorkerLink::Ring(near)), Some(WorkerLink::Ring(far)))
                }
                (true, false) => (Some(others(near, far)?), None),
                (false, true) => (None, Some(others(far, near)?)),
                (false, false) => (None, None),
            })
        };
        let mut runtime = Vec::new();
        for switch in 0..layout.switches {
            let to = |runtime| (WorkerId::Switch(switch), WorkerId::Runtime(runtime));
            let pairs = (0..layout.runtimes).map(to);
            runtime.push(
                pairs
                    .map(|(near, far)| pair(near, far, sizes.queue))
                    .collect::<Result<_, _>>()?,
            );
        }
        Ok(Links {
            runtime,
            peer: Self::among(layout.switches, |a, b| {
                pair(WorkerId::Switch(a), WorkerId::Switch(b), sizes.buffers)
            })?,
            between: Self::among(layout.runtimes, |a, b| {
                pair(WorkerId::Runtime(a), WorkerId::Runtime(b), sizes.buffers)
            })?,
        })
    }

    /// A link between each two of so many workers.
    fn among(
        count: usize,
        mut pair: impl FnMut(usize, usize) -> Result<(Option<WorkerLink>, Option<WorkerLink>), RunError>,
    ) -> Result<Vec<Vec<Option<WorkerLink>>>, RunError> {
        let mut links: Vec<Vec<Option<WorkerLink>>> =
            (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
        for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
            (links[a][b], links[b][a]) = pair(a, b)?;
        }
        Ok(links)
    }

    /// A switch's links: to all runtimes, and to the other switches by their numbers.
    pub fn of_switch(&mut self, switch: usize) -> (Vec<WorkerLink>, Vec<Option<WorkerLink>>) {
        let runtimes = self.runtime[switch]
            .iter_mut()
            .map(|(near, _)| near.take().expect("taken once, by a worker of this process"))
            .collect();
        (runtimes, std::mem::take(&mut self.peer[switch]))
    }

    /// The ends of a runtime that is not there from the start.
    pub fn park(&mut self, runtime: usize) -> (Vec<WorkerLink>, Vec<Option<WorkerLink>>) {
        self.of_runtime(runtime)
    }

    /// Has the others see the sessions of a runtime's ends, before anything has passed.
    pub fn look(&mut self, runtime: usize) {
        let at_switches = self
            .runtime
            .iter_mut()
            .filter_map(|links| links[runtime].0.as_mut());
        let at_others = self
            .between
            .iter_mut()
            .filter_map(|links| links.get_mut(runtime)?.as_mut());
        for link in at_switches.chain(at_others) {
            if let WorkerLink::Ring(ring) = link {
                ring.look();
            }
        }
    }

    /// A runtime's links: to all switches, and to the other runtimes by their numbers.
    pub fn of_runtime(&mut self, runtime: usize) -> (Vec<WorkerLink>, Vec<Option<WorkerLink>>) {
        let switches = self
            .runtime
            .iter_mut()
            .map(|links| {
                links[runtime]
                    .1
                    .take()
                    .expect("taken once, by a worker of this process")
            })
            .collect();
        (switches, std::mem::take(&mut self.between[runtime]))
    }
}
