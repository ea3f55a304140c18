//! The chain firewall → NAT → load balancer in one thread, on a runtime alone or behind a switch,
//! with a port of which a test holds the other end.
//!
//! Neither the port nor the loop that drives the workers allocates, so that counted allocations are
//! theirs.

use crate::frames::{self, MARK, SERVICE, Segment, V4};
use adapters::ring::RingPort;
use functions::firewall::Firewall;
use functions::load_balancer::LoadBalancer;
use functions::nat::Nat;
use nf::{Side, WorkerInfo};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::env::{BURST, Burst, Port, PortCounters, dispose};
use runtime::stage::{Configured, Factory};
use runtime::switch::{self, Policy, SideRule, Switch};
use runtime::watch::Watch;
use runtime::{Runtime, Settings};
use std::collections::BTreeMap;
use wire::memory::Region;
use wire::{HashSeed, LinkType, Pool};

/// Rules that let inside hosts open connections to port 80.
pub const WEB_ONLY: &str = "[[rules]]\nname='web'\nfrom='inside'\ndestination_ports=80\naction='allow'";
/// Rules that let everything in.
pub const ALL: &str = "[[rules]]\nname='all'\naction='allow'";

const FRAME_MAX: usize = 2048;

/// A frame that left.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub source: V4,
    pub destination: V4,
}

/// Both sides of the world.
pub struct World {
    queue: Vec<(Side, LinkType, Vec<u8>)>,
    queued: usize,
    taken: usize,
    /// Packets that left lately, in order.
    pub sent: Vec<Sent>,
    /// Marked packets that left.
    pub served: u64,
    counters: PortCounters,
}

impl Default for World {
    fn default() -> Self {
        World {
            queue: (0..BURST)
                .map(|_| (Side::Inside, LinkType::Raw, Vec::with_capacity(FRAME_MAX)))
                .collect(),
            queued: 0,
            taken: 0,
            sent: Vec::with_capacity(4 * BURST),
            served: 0,
            counters: PortCounters::default(),
        }
    }
}

impl World {
    fn put(&mut self, side: Side, link: LinkType, frame: &[u8]) {
        let slot = &mut self.queue[self.queued];
        slot.0 = side;
        slot.1 = link;
        slot.2.clear();
        // A longer one would not fit into a buffer, either.
        slot.2.extend_from_slice(&frame[..frame.len().min(FRAME_MAX)]);
        self.queued += 1;
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

impl Port for World {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while self.taken < self.queued && !burst.is_full() {
            let (side, link, frame) = &self.queue[self.taken];
            let mut packet = pool.take().expect("a buffer");
            self.taken += 1;
            if !packet.set_frame(frame, *link) {
                self.counters.refused_packets += 1;
                pool.give(packet);
                continue;
            }
            packet.set_side(*side);
            packet.set_timestamp(now);
            burst.push(packet);
        }
        if self.taken == self.queued {
            (self.taken, self.queued) = (0, 0);
        }
    }

    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.iter() {
            let frame = packet.frame();
            if packet.link() != LinkType::Raw || frame.len() < frames::TCP_LENGTH {
                continue;
            }
            if (word(frame, 4), word(frame, 34)) == MARK {
                self.served += 1;
            }
            if self.sent.len() < self.sent.capacity() {
                self.sent.push(Sent {
                    source: (long(frame, 12), word(frame, 20)),
                    destination: (long(frame, 16), word(frame, 22)),
                });
            }
        }
        self.counters.sent_packets += burst.len() as u64;
        dispose(pool, burst);
    }

    fn waits(&self) -> bool {
        true
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Where all packets are.
#[derive(Default, Debug, Clone, PartialEq)]
pub struct Books {
    pub received: u64,
    pub emitted: u64,
    pub sent: u64,
    pub held: u64,
    /// By `function.reason`, the workers' own as `.reason`.
    pub dropped: BTreeMap<String, u64>,
    pub flows: u64,
}

impl Books {
    #[track_caller]
    pub fn check(&self) {
        let dropped: u64 = self.dropped.values().sum();
        assert_eq!(
            self.received + self.emitted,
            self.sent + self.held + dropped,
            "{self:?}"
        );
    }

    pub fn drops(&self, reason: &str) -> u64 {
        self.dropped.get(reason).copied().unwrap_or(0)
    }

    fn add(&mut self, dropped: Vec<runtime::stats::Named>) {
        for named in dropped {
            *self
                .dropped
                .entry(format!("{}.{}", named.function, named.name))
                .or_default() += named.count;
        }
    }
}

fn plan(rules: &str) -> Plan {
    let firewall = testkit::config::<Firewall>(rules);
    let nat = testkit::config::<Nat>("pool=['203.0.113.0/24']");
    let balancer = testkit::config::<LoadBalancer>(
        "[[services]]\nname='web'\naddresses=['198.51.100.10']\nports=80\nprotocol='tcp'\nbackends=[\
         {name='a',endpoint='192.0.2.1:8080'},{name='b',endpoint='192.0.2.2:8080',weight=2}]",
    );
    let factories: Vec<Box<dyn Factory>> = vec![
        Box::new(Configured::<Firewall>::new("firewall", firewall)),
        Box::new(Configured::<Nat>::new("nat", nat)),
        Box::new(Configured::<LoadBalancer>::new("load_balancer", balancer)),
    ];
    let rule = ChainRule {
        name: "gateway".to_string(),
        matching: Match::default(),
        functions: vec!["firewall".into(), "nat".into(), "load_balancer".into()],
        replication: None,
    };
    Plan::new(vec![rule], factories).unwrap()
}

fn pool(origin: u8) -> Pool {
    Pool::new(
        Region::heap(Pool::region_length(1024, FRAME_MAX)),
        1024,
        FRAME_MAX,
        origin,
    )
}

/// Workers and the world around them.
pub trait Rig {
    fn new(rules: &str, flows_max: u32) -> Self
    where
        Self: Sized;
    fn world(&mut self) -> &mut World;
    fn clock(&mut self) -> &mut u64;
    /// Each worker's turn; how much was done.
    fn round(&mut self) -> usize;
    fn books(&self) -> Books;
    /// Has every worker watch.
    fn watch(&mut self, watch: &dyn Fn() -> Watch);

    /// Turns until no worker has anything to do.
    fn run_until_quiet(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            *self.clock() += 1000;
            idle = if self.round() == 0 { idle + 1 } else { 0 };
        }
    }

    /// Time passes, and flows whose time is over end.
    fn pass(&mut self, seconds: u64) {
        *self.clock() += seconds * 1_000_000_000;
        self.run_until_quiet();
    }

    fn offer(&mut self, side: Side, frame: &[u8]) {
        self.offer_on(LinkType::Raw, side, frame);
    }

    /// Puts a frame where it will be received; a full burst is received at once.
    fn offer_on(&mut self, link: LinkType, side: Side, frame: &[u8]) {
        self.world().put(side, link, frame);
        if self.world().queued == BURST {
            *self.clock() += 1000;
            self.world().sent.clear();
            self.round();
            while self.world().queued == BURST {
                self.round();
            }
        }
    }

    /// Sends one frame and answers how it left.
    fn exchange(&mut self, side: Side, frame: &[u8]) -> Option<Sent> {
        self.run_until_quiet();
        self.world().sent.clear();
        self.offer(side, frame);
        self.run_until_quiet();
        self.world().sent.first().copied()
    }
}

/// A runtime alone on the world.
pub struct Alone {
    pub runtime: Runtime<World>,
    now: u64,
    events: String,
}

impl Rig for Alone {
    fn new(rules: &str, flows_max: u32) -> Self {
        let settings = Settings::alone(flows_max);
        let made = Runtime::new(
            settings,
            plan(rules),
            vec![World::default()],
            pool(0),
            Region::heap,
        );
        Alone {
            runtime: made.unwrap(),
            now: 0,
            events: String::with_capacity(2 << 20),
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.runtime.links_mut()[0]
    }

    fn clock(&mut self) -> &mut u64 {
        &mut self.now
    }

    fn round(&mut self) -> usize {
        let work = self.runtime.step(self.now);
        self.events.clear();
        self.runtime.take_events(&mut self.events);
        work.packets + work.other
    }

    fn books(&self) -> Books {
        let stats = self.runtime.stats();
        let mut books = Books {
            received: stats.received,
            emitted: stats.emitted,
            sent: stats.passed,
            held: stats.held,
            flows: stats.flows,
            ..Books::default()
        };
        books.add(stats.dropped);
        books
    }

    fn watch(&mut self, watch: &dyn Fn() -> Watch) {
        self.runtime.watch(watch()).unwrap();
    }
}

/// A switch and two runtimes, with rings between them.
pub struct Cluster {
    switch: Switch<World, RingPort>,
    pub runtimes: Vec<Runtime<RingPort>>,
    now: u64,
    events: String,
}

const RUNTIMES: u16 = 2;

impl Rig for Cluster {
    fn new(rules: &str, flows_max: u32) -> Self {
        let plan = plan(rules);
        let (mut near, mut runtimes) = (Vec::new(), Vec::new());
        for runtime in 0..RUNTIMES {
            // As many as all pools have.
            let (here, there) = RingPort::pair_with_limit(4096, 256);
            near.push(here);
            let info = WorkerInfo {
                runtime,
                runtimes: RUNTIMES,
                flows_max,
                seed: 7,
            };
            let settings = Settings {
                info,
                switches: 1,
                ..Settings::alone(flows_max)
            };
            let pool = pool(1 + runtime as u8);
            runtimes.push(Runtime::new(settings, plan.clone(), vec![there], pool, Region::heap).unwrap());
        }
        let settings = switch::SwitchSettings {
            switch: 0,
            switches: 1,
            seed: HashSeed::FIXED,
            routes_max: 2 * flows_max * u32::from(RUNTIMES),
            policy: Policy::LeastLoaded,
            fragments_max: 1024,
            packet_clock: false,
            lead_max: u64::MAX,
            recovery_max: 0,
            patient: false,
            egress: [Some(0), Some(0)],
            now: 0,
        };
        let rule = SideRule::BySource(vec!["10.0.0.0/8".parse().unwrap()]);
        let ports = vec![(World::default(), rule)];
        Cluster {
            switch: Switch::new(settings, plan, ports, near, vec![None], pool(0), Region::heap),
            runtimes,
            now: 0,
            events: String::with_capacity(2 << 20),
        }
    }

    fn world(&mut self) -> &mut World {
        self.switch.port_mut(0)
    }

    fn clock(&mut self) -> &mut u64 {
        &mut self.now
    }

    fn round(&mut self) -> usize {
        let mut work = self.switch.step(self.now);
        for runtime in &mut self.runtimes {
            let done = runtime.step(self.now);
            work += done.packets + done.other;
            self.events.clear();
            runtime.take_events(&mut self.events);
        }
        work
    }

    fn books(&self) -> Books {
        let stats = self.switch.stats();
        let mut books = Books {
            received: stats.received,
            sent: stats.sent,
            held: stats.held,
            ..Books::default()
        };
        books.add(stats.dropped);
        for runtime in &self.runtimes {
            let stats = runtime.stats();
            books.emitted += stats.emitted;
            books.held += stats.held;
            books.flows += stats.flows;
            books.add(stats.dropped);
        }
        books
    }

    fn watch(&mut self, watch: &dyn Fn() -> Watch) {
        self.switch.watch(watch()).unwrap();
        for runtime in &mut self.runtimes {
            runtime.watch(watch()).unwrap();
        }
    }
}

impl Cluster {
    /// Nothing is on its way: all of the switch's buffers are with it, and it has no route or
    /// block.
    pub fn is_empty(&self) -> bool {
        let stats = self.switch.stats();
        let pool = self.switch.pool();
        pool.free() == pool.total() && stats.routes == 0 && stats.blocks == 0
    }
}

/// A connection's two packets, as they come in from either side.
pub struct Established {
    pub forward: Segment,
    pub back: Segment,
}

/// The `n`-th of the connections that are to be served, of inside hosts that no flood names.
pub fn establish(rig: &mut impl Rig, n: u32) -> Established {
    let inside = (0x0afa_0000 + n / 32, 20_000 + (n % 32) as u16);
    let syn = frames::tcp(inside, SERVICE, frames::SYN, false);
    let out = rig.exchange(Side::Inside, &syn).expect("the SYN is let through");
    let (us, server) = (out.source, out.destination);
    let syn_ack = frames::tcp(server, us, frames::SYN_ACK, false);
    let back = rig
        .exchange(Side::Outside, &syn_ack)
        .expect("the answer is let through");
    assert_eq!((back.source, back.destination), (SERVICE, inside));
    let forward = frames::tcp(inside, SERVICE, frames::ACK, true);
    assert!(rig.exchange(Side::Inside, &forward).is_some());
    Established {
        forward,
        back: frames::tcp(server, us, frames::ACK_BACK, true),
    }
}
