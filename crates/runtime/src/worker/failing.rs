//! A runtime that fails between two steps while its process goes on, its wreck, and the next of its
//! number.
//!
//! # Theory of operation
//!
//! ```text
//!   step ─► its ends say session 0 ─► [`Runtime::fail`] ─► Wreck ─► clear … until all others have seen session 0 ─► parked
//!                                       functions, flows,   │ takes packets off the ends,                              │
//!                                       copies, memory: gone└─► foreign buffers go home                                ▼
//!                                        the next of its number: the same ends and pool, another session and seed ◄────┘
//! ```
//!
//! Nothing is said, no flow ends, no function is called: to all others it is as if a process had
//! died. But buffers change hands in one process, so buffers that the runtime had in hand must not
//! die with it.
//!
//! | whose buffer | where | its way |
//! |---|---|---|
//! | another's | in hand, or on a link to the runtime | goes home over its link; a packet is counted as `runtime_failed` |
//! | its own | in hand, or come home | is in its pool again |
//! | its own | at others, or on a link from it | comes home by its link whenever its holder is done with it, so the pool outlives the runtime |
//!
//! Frames that were transmitted before are delivered: a step that is done has put all its messages
//! on all links before its packets.
//!
//! The next of its number has new functions, which know nothing of blocks of ports that are in use:
//! each switch tells it, and gives it no group before (`switch::presence`). Its seed is another
//! one, since its *incarnation* and its draws follow from that (`replica`).
//!
//! Invariants: each buffer has one owner; each packet that the runtime had is counted as lost,
//! once.
//!
//! Not here: the process that it runs in has it fail, and sees that the others have noticed; their
//! answer to that (`switch::recovery`, `replica`).

use super::Runtime;
use crate::env::{Burst, Port, give_or_keep};
use crate::stats::{DropReason, Named, ObjectStats, RuntimeStats, add_to};
use alloc::string::String;
use alloc::vec::Vec;
use wire::packet::{Kind, flag};
use wire::{PacketBox, PacketList, Pool};

/// The remains of a runtime that has failed.
pub struct Wreck<P> {
    /// The ends of its links to switches.
    pub links: Vec<P>,
    /// The ends of its links to other runtimes.
    pub peers: Vec<Option<P>>,
    /// Its buffers, as far as they are home.
    pub pool: Pool,
    /// Its figures, with all that it lost.
    pub stats: RuntimeStats,
}

impl<P: Port> Runtime<P> {
    /// Fails. The ends must say so before, and be cleared ([`Wreck::clear`]) until all others have
    /// seen it. For a runtime behind switches.
    pub fn fail(mut self) -> Wreck<P> {
        let mut lost = PacketList::new();
        for put_aside in &mut self.backlog {
            self.received += data(put_aside);
            lost.append(put_aside);
        }
        self.fragments.take_all(&mut lost);
        self.moves.take_all(&mut lost);
        self.core.runner.take_all(&mut lost);
        self.core.hold.take_all(&mut lost);
        self.core.gate.take_all(&mut lost);
        self.core.store_gate.take_all(&mut lost);
        self.core.out.take_all(&mut lost);
        let stats = self.stats();
        let mut wreck = Wreck {
            links: core::mem::take(&mut self.links),
            peers: core::mem::take(&mut self.peers),
            pool: self.core.out.take_pool(),
            stats: RuntimeStats {
                flows_ended: stats.flows_ended + stats.flows,
                flows: 0,
                flows_max: 0,
                groups: 0,
                groups_resting: 0,
                held: 0,
                waiting: 0,
                copies: 0,
                protected_flows: 0,
                protected_by: None,
                leaving: false,
                dry: false,
                tables: Vec::new(),
                objects: stats.objects.into_iter().map(ObjectStats::in_the_end).collect(),
                ..stats
            },
        };
        wreck.lose(lost);
        wreck
    }
}

impl<P: Port> Wreck<P> {
    /// Packets that were lost so far.
    pub fn lost(&self) -> u64 {
        let name = DropReason::RuntimeFailed.name();
        let failed = self.stats.dropped.iter().filter(|named| named.name == name);
        failed.map(|named| named.count).sum()
    }

    /// Takes the frames that have come off the ends: packets are lost, foreign buffers go home.
    pub fn clear(&mut self) {
        for link in 0..self.links.len() + self.peers.len() {
            loop {
                let mut burst = Burst::new();
                match self.end(link) {
                    Some((end, pool)) => end.receive(0, pool, &mut burst),
                    None => break,
                }
                if burst.is_empty() {
                    break;
                }
                let mut came = PacketList::new();
                burst.into_iter().for_each(|packet| came.push(packet));
                self.stats.received += data(&came);
                self.lose(came);
            }
        }
    }

    /// A link's end, by the number of the worker at its other end: switches first.
    fn end(&mut self, worker: usize) -> Option<(&mut P, &mut Pool)> {
        let end = match worker.checked_sub(self.links.len()) {
            None => self.links.get_mut(worker),
            Some(runtime) => self.peers.get_mut(runtime)?.as_mut(),
        };
        Some((end?, &mut self.pool))
    }

    /// Counts packets, and gives their buffers home.
    fn lose(&mut self, mut lost: PacketList) {
        let packets = data(&lost);
        if packets > 0 {
            add_to(
                &mut self.stats.dropped,
                &Named {
                    function: String::new(),
                    name: DropReason::RuntimeFailed.name(),
                    count: packets,
                },
            );
        }
        while let Some(packet) = lost.pop() {
            self.give_home(packet);
        }
    }

    fn give_home(&mut self, packet: PacketBox) {
        let Some(mut packet) = give_or_keep(&mut self.pool, packet) else {
            return;
        };
        packet.set_kind(Kind::Empty);
        let origin = usize::from(packet.origin());
        if let Some((end, pool)) = self.end(origin) {
            end.transmit(0, pool, &mut Burst::from_iter([packet]));
        }
    }
}

/// How many of these are packets, which count: copies do not.
fn data(list: &PacketList) -> u64 {
    let packets = list
        .iter()
        .filter(|packet| packet.kind() == Kind::Data && !packet.has(flag::COPY));
    packets.count() as u64
}
