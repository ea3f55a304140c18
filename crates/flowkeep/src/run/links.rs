//! Links between workers, whatever they are made of, and who has which end.
//!
//! # Theory of operation
//!
//! Workers take any [`Port`] for a link and do not know what it is made of
//! ([decision 13](../../../../docs/decisions/0013-links-between-processes.md)). Here each link of a worker of this process is a
//! [`WorkerLink`]; all are laid at the start, and each end is taken out once, by its worker.
//!
//! Invariant: a pair of workers has one link. A ring can hold every buffer there is.
//!
//! Not here: what a link does (`adapters`).

use adapters::ring::RingPort;
use runtime::env::{AttachError, Burst, Port, PortCounters};
use wire::{Pool, Prefix};

/// A link between two workers. What it is made of is decided at the start, so a processor foresees the way that each call takes.
pub(crate) enum WorkerLink {
    /// In this process.
    Ring(RingPort),
}

/// Calls the same method of whatever a link is.
macro_rules! of_each {
    ($link:expr, $port:ident => $call:expr) => {
        match $link {
            WorkerLink::Ring($port) => $call,
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
    fn settle(&mut self, pool: &mut Pool) {
        of_each!(self, port => port.settle(pool));
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
    fn flush(&mut self) {
        of_each!(self, port => port.flush());
    }
    fn counters(&self) -> PortCounters {
        of_each!(self, port => port.counters())
    }
}

/// How large links are.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// All buffers of all pools of this process.
    pub buffers: usize,
    /// Packets that may wait in a runtime's queue.
    pub queue: usize,
}

/// The ends of all links, taken out one by one. Those of workers that are elsewhere are not there.
pub(super) struct Links {
    /// By switch and runtime: the switch's end and the runtime's.
    runtime: Vec<Vec<(Option<WorkerLink>, Option<WorkerLink>)>>,
    /// By switch and peer.
    peer: Vec<Vec<Option<WorkerLink>>>,
    /// By runtime and other runtime.
    between: Vec<Vec<Option<WorkerLink>>>,
}

impl Links {
    /// All links of so many workers.
    pub fn new(switches: usize, runtimes: usize, sizes: Sizes) -> Self {
        let pair = || {
            let (near, far) = RingPort::pair_with_limit(sizes.buffers, sizes.queue);
            (Some(WorkerLink::Ring(near)), Some(WorkerLink::Ring(far)))
        };
        let runtime = (0..switches)
            .map(|_| (0..runtimes).map(|_| pair()).collect())
            .collect();
        Links {
            runtime,
            peer: Self::among(switches, sizes.buffers),
            between: Self::among(runtimes, sizes.buffers),
        }
    }

    /// A ring between each two of so many workers.
    fn among(count: usize, capacity: usize) -> Vec<Vec<Option<WorkerLink>>> {
        let mut links: Vec<Vec<Option<WorkerLink>>> =
            (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
        for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
            let (near, far) = RingPort::pair(capacity);
            links[a][b] = Some(WorkerLink::Ring(near));
            links[b][a] = Some(WorkerLink::Ring(far));
        }
        links
    }

    /// A switch's links: to all runtimes, and to the other switches by their numbers.
    pub fn of_switch(&mut self, switch: usize) -> (Vec<WorkerLink>, Vec<Option<WorkerLink>>) {
        let runtimes = self.runtime[switch]
            .iter_mut()
            .map(|(near, _)| near.take().expect("taken once"))
            .collect();
        (runtimes, std::mem::take(&mut self.peer[switch]))
    }

    /// A runtime's links: to all switches, and to the other runtimes by their numbers.
    pub fn of_runtime(&mut self, runtime: usize) -> (Vec<WorkerLink>, Vec<Option<WorkerLink>>) {
        let switches = self
            .runtime
            .iter_mut()
            .map(|links| links[runtime].1.take().expect("taken once"))
            .collect();
        (switches, std::mem::take(&mut self.between[runtime]))
    }
}
