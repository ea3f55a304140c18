//! Functions and ports for the worker's tests, and the tests by subject.

mod accounts;
mod alone;
mod at_once;
mod barriers;
mod change;
mod clocks;
mod copied;
mod copied_moves;
mod copied_whole;
mod copies_uncalled;
mod copy_policies;
mod crash;
mod delays;
mod ends;
mod failing;
mod fenced;
mod flows;
mod following;
mod fragments;
mod fused;
mod groups;
mod grown;
mod heirs;
mod hostile;
mod large_group;
mod late;
mod leases;
mod leases_and_copies;
mod lending;
mod lent;
mod life;
mod moved_alone;
mod moves;
mod objects;
mod ordered;
mod orders;
mod over;
mod parted;
mod planted;
mod reconfigured;
mod refused;
mod replaced;
mod replica;
mod replica_and_switch;
mod returned;
mod sampling;
mod sessions;
mod spread;
mod store_commit;
mod stored;
mod stored_lazy;
mod stored_rests;

mod event_lines;
mod first_packets;
mod messages;
mod through;
mod timers;
mod tokens;
mod unsaid;
mod variables;
mod void;
mod waiting;
mod waits;
mod watched;
mod watching;
mod wire_read;

use crate::chain::{ChainRule, Match, Plan};
use crate::env::{Burst, Port, PortCounters, dispose};
use crate::stage::{Configured, Factory};
use crate::worker::{Runtime, Settings};
use nf::{ConfigError, NetworkFunction, NoConfig, Side};
use std::boxed::Box;
use std::collections::VecDeque;
use std::string::ToString;
use std::vec::Vec;
use wire::memory::Region;
use wire::{LinkType, PacketBox, Pool};

/// A packet that left: by which side, and the frame.
pub type Sent = (Side, Vec<u8>);

/// A port over queues.
#[derive(Default)]
pub struct QueuePort {
    /// Cannot wait for its reader.
    pub is_a_wire: bool,
    pub input: VecDeque<(Side, Vec<u8>)>,
    pub output: Vec<Sent>,
    /// The most that `output` takes, if there is a limit.
    pub output_max: Option<usize>,
    pub counters: PortCounters,
}

impl Port for QueuePort {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() && !self.input.is_empty() {
            let Some(mut packet) = pool.take() else { return };
            let (side, frame) = self.input.pop_front().unwrap();
            assert!(packet.set_frame(&frame, LinkType::Raw));
            packet.set_side(side);
            packet.set_timestamp(now);
            self.counters.received_packets += 1;
            burst.push(packet);
        }
    }
    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.iter() {
            if self.room() == 0 {
                self.counters.unsent_packets += 1;
                continue;
            }
            self.output.push((packet.exit(), packet.frame().to_vec()));
            self.counters.sent_packets += 1;
        }
        dispose(pool, burst);
    }
    fn finished(&self) -> bool {
        self.input.is_empty()
    }
    fn waits(&self) -> bool {
        !self.is_a_wire
    }
    fn room(&self) -> usize {
        self.output_max
            .map_or(usize::MAX, |most| most.saturating_sub(self.output.len()))
    }
    fn counters(&self) -> PortCounters {
        self.counters
    }
}

pub fn pool(count: usize, origin: u8) -> Pool {
    Pool::new(
        Region::heap(Pool::region_length(count, 2048)),
        count,
        2048,
        origin,
    )
}

pub fn factory<F: NetworkFunction<Config = NoConfig>>() -> Box<dyn Factory> {
    Box::new(Configured::<F>::new(F::NAME, NoConfig {}))
}

pub fn plan(factories: Vec<Box<dyn Factory>>) -> Plan {
    let functions = factories.iter().map(|f| f.name().to_string()).collect();
    Plan::new(
        std::vec![ChainRule {
            name: "test".to_string(),
            matching: Match::default(),
            functions,
            replication: None,
        }],
        factories,
    )
    .unwrap()
}

/// A runtime alone on a queue port.
pub fn alone(settings: Settings, factories: Vec<Box<dyn Factory>>) -> Runtime<QueuePort> {
    let plan = plan(factories);
    let no_error = |e: (std::string::String, ConfigError)| panic!("{e:?}");
    Runtime::new(
        settings,
        plan,
        std::vec![QueuePort::default()],
        pool(512, 0),
        Region::heap,
    )
    .unwrap_or_else(no_error)
}

/// A UDP packet between 10.0.0.`a`:`ap` and 192.0.2.`b`:`bp`, from the first; `from_b` the other
/// way.
pub fn udp(a: u8, ap: u16, b: u8, bp: u16, from_b: bool, payload: &[u8]) -> (Side, Vec<u8>) {
    let (inside, outside) = ([10, 0, 0, a], [192, 0, 2, b]);
    let (src, dst, sp, dp, side) = if from_b {
        (outside, inside, bp, ap, Side::Outside)
    } else {
        (inside, outside, ap, bp, Side::Inside)
    };
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4(src, dst, 64)
        .udp(sp, dp)
        .write(&mut frame, payload)
        .unwrap();
    (side, frame)
}

/// The last byte of a frame: tests number their packets by it.
pub fn number(sent: &Sent) -> u8 {
    *sent.1.last().unwrap()
}

/// Every packet in is out, held or dropped.
pub fn assert_conserved<P: Port>(runtime: &Runtime<P>) {
    let stats = runtime.stats();
    let dropped: u64 = stats.dropped.iter().map(|d| d.count).sum();
    assert_eq!(
        stats.received + stats.emitted + stats.packets_moved[0],
        stats.passed + stats.held + dropped + stats.packets_moved[1],
        "{stats:?}"
    );
}

/// Reads what a raw frame is about.
pub fn parsed<T>(pool: &mut Pool, sent: &Sent, look: impl FnOnce(&wire::Packet) -> T) -> T {
    let mut packet: PacketBox = pool.take().unwrap();
    assert!(packet.set_frame(&sent.1, LinkType::Raw));
    wire::parse(&mut packet).unwrap();
    let seen = look(&packet);
    pool.give(packet);
    seen
}
