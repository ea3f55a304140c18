//! A router on the real workers: switches with ports, a runtime, a chain that ends in the
//! forwarding step; tables as a test says.
//!
//! ```text
//!   lan   port 0  eth 2  10.0.0.1/24, fd00:1::1/64         10.0.0.5 fd00:1::5    inside
//!   wan   port 1  eth 3  203.0.113.1/24, fd00:2::1/64      203.0.113.254 and beyond it everything
//!   dmz   port 2  eth 4  10.9.0.1/24 and, tagged 20, eth 5 10.8.0.1/24
//! ```

use flowkeep_testkit::{Link, link};
use functions::forward::tables::{Interface, Kind, Neighbour, Route, Way};
use functions::forward::{Config, Feed, Forward};
use functions::nat::Nat;
use nf::{Addr, Side, WorkerInfo};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::env::{Burst, Port, PortCounters, dispose};
use runtime::stage::{Configured, Factory};
use runtime::switch::{self, Policy, SideRule, Switch};
use runtime::{Runtime, Settings};
use std::collections::VecDeque;
use std::sync::Arc;
use wire::memory::Region;
use wire::{HashSeed, LinkType, Pool};

pub const LAN: u8 = 0;
pub const WAN: u8 = 1;
pub const DMZ: u8 = 2;

/// Link addresses of the router's ports and of its neighbours, by interface.
pub fn own_link(interface: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, interface as u8]
}

pub fn their_link(interface: u32, host: u8) -> [u8; 6] {
    [2, 0, 0, 1, interface as u8, host]
}

pub fn addr(text: &str) -> Addr {
    text.parse().unwrap()
}

/// A port: Ethernet frames in and out.
#[derive(Default)]
pub struct World {
    input: VecDeque<Vec<u8>>,
    output: Vec<Vec<u8>>,
}

impl Port for World {
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full()
            && let Some(frame) = self.input.pop_front()
        {
            let mut packet = pool.take().expect("a buffer");
            assert!(packet.set_frame(&frame, LinkType::Ethernet));
            burst.push(packet);
        }
    }
    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        self.output.extend(burst.iter().map(|p| p.frame().to_vec()));
        dispose(pool, burst);
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

fn pool(origin: u8, count: usize) -> Pool {
    // Jumbo frames.
    let longest = 9400;
    let region = Region::heap(Pool::region_length(count, longest));
    Pool::new(region, count, longest, origin)
}

pub struct Router {
    switches: Vec<Switch<World, Link>>,
    runtime: Runtime<Link>,
    pub feed: Arc<Feed>,
    pub interfaces: Vec<Interface>,
    pub routes: Vec<Route>,
    pub neighbours: Vec<Neighbour>,
    pub now: u64,
}

pub fn route(to: &str, interface: u32, gateway: Option<&str>) -> Route {
    Route {
        to: to.parse().unwrap(),
        kind: Kind::Forward,
        ways: vec![Way {
            interface,
            gateway: gateway.map(addr),
            weight: 1,
        }],
        metric: 0,
        mtu: 0,
    }
}

pub fn special(to: &str, kind: Kind) -> Route {
    Route {
        kind,
        ways: Vec::new(),
        ..route(to, 0, None)
    }
}

pub fn neighbour(interface: u32, address: &str, host: u8) -> Neighbour {
    Neighbour {
        interface,
        address: addr(address),
        link: their_link(interface, host),
    }
}

impl Router {
    /// With one switch; `nat` before the forwarding step.
    pub fn new(nat: bool) -> Self {
        Self::with(1, nat, Config::default())
    }

    pub fn with(switches: u8, nat: bool, config: Config) -> Self {
        Self::made(switches, nat, config, (8, 16))
    }

    /// With room for so many calls that wait, and so many packets behind them.
    pub fn with_room(room: u32) -> Self {
        Self::made(1, false, Config::default(), (room, room))
    }

    fn made(switches: u8, nat: bool, config: Config, (waiting_max, queued_max): (u32, u32)) -> Self {
        let feed = config.feed.clone();
        let mut factories: Vec<Box<dyn Factory>> =
            vec![Box::new(Configured::<Forward>::new("forward", config))];
        let mut functions = vec!["forward".to_string()];
        if nat {
            let settings = "pool = [\"203.0.113.8/32\"]\ninside = [\"10.0.0.0/24\"]";
            let settings = flowkeep_testkit::config::<Nat>(settings);
            factories.push(Box::new(Configured::<Nat>::new("nat", settings)));
            functions.insert(0, "nat".to_string());
        }
        let rule = ChainRule {
            name: "all".to_string(),
            matching: Match::default(),
            functions,
            replication: None,
        };
        let plan = Plan::new(vec![rule], factories).unwrap();
        let info = WorkerInfo {
            runtime: 0,
            runtimes: 1,
            flows_max: 256,
            seed: 7,
        };
        let settings = Settings {
            info,
            switches,
            egress: [0, 1 % switches],
            waiting_max,
            queued_max,
            ..Settings::alone(256)
        };
        // As many as may be held, and some on their way.
        let buffers = 256 + queued_max as usize;
        let (near, far): (Vec<_>, Vec<_>) = (0..switches).map(|_| link()).unzip();
        let runtime =
            Runtime::new(settings, plan.clone(), far, pool(switches, buffers), Region::heap).unwrap();
        let mut peers: Vec<Vec<Option<Link>>> = (0..switches)
            .map(|_| (0..switches).map(|_| None).collect())
            .collect();
        if let [a, b] = &mut peers[..] {
            let (near, far) = link();
            (a[1], b[0]) = (Some(near), Some(far));
        }
        let make = |(number, (end, peers)): (usize, (Link, Vec<Option<Link>>))| {
            let settings = switch::SwitchSettings {
                switch: number as u8,
                switches,
                seed: HashSeed::FIXED,
                routes_max: 4096,
                policy: Policy::RoundRobin,
                fragments_max: 64,
                packet_clock: false,
                lead_max: u64::MAX,
                recovery_max: 0,
                patient: false,
                egress: [(number == 0).then_some(0), None],
                now: 0,
            };
            let sides = [Side::Inside, Side::Outside, Side::Inside];
            let ports = (0..3)
                .filter(|port| port % usize::from(switches) == number)
                .map(|port| (World::default(), SideRule::Fixed(sides[port])))
                .collect();
            Switch::new(
                settings,
                plan.clone(),
                ports,
                vec![end],
                peers,
                pool(number as u8, buffers),
                Region::heap,
            )
        };
        let switches = near.into_iter().zip(peers).enumerate().map(make).collect();
        let interface = |index, port, vlan, addresses: &[&str]| Interface {
            index,
            port,
            vlan,
            link: own_link(index),
            mtu: 1500,
            addresses: addresses.iter().map(|a| addr(a)).collect(),
        };
        let mut router = Router {
            switches,
            runtime,
            feed,
            interfaces: vec![
                interface(2, LAN, 0, &["10.0.0.1", "fe80::2", "fd00:1::1"]),
                interface(3, WAN, 0, &["203.0.113.1", "fe80::3", "fd00:2::1"]),
                interface(4, DMZ, 0, &["10.9.0.1"]),
                interface(5, DMZ, 20, &["10.8.0.1"]),
            ],
            routes: vec![
                route("10.0.0.0/24", 2, None),
                route("10.9.0.0/24", 4, None),
                route("10.8.0.0/24", 5, None),
                route("203.0.113.0/24", 3, None),
                route("0.0.0.0/0", 3, Some("203.0.113.254")),
                route("fd00:1::/64", 2, None),
                route("::/0", 3, Some("fe80::254")),
                special("10.0.0.1/32", Kind::Local),
                special("10.0.0.255/32", Kind::Broadcast),
            ],
            neighbours: vec![
                neighbour(2, "10.0.0.5", 5),
                neighbour(2, "fd00:1::5", 5),
                neighbour(3, "203.0.113.254", 254),
                neighbour(3, "fe80::254", 254),
                neighbour(4, "10.9.0.9", 9),
                neighbour(5, "10.8.0.8", 8),
            ],
            now: 1_000_000_000,
        };
        router.publish();
        router
    }

    /// Puts the tables in force.
    pub fn publish(&mut self) {
        self.feed
            .publish(self.interfaces.clone(), self.routes.clone(), &self.neighbours);
    }

    pub fn run_until_quiet(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            self.now += 1000;
            let mut work: usize = self.switches.iter_mut().map(|s| s.step(self.now)).sum();
            let done = self.runtime.step(self.now);
            work += done.packets + done.other;
            idle = if work == 0 { idle + 1 } else { 0 };
        }
        let received: u64 = self.switches.iter().map(|s| s.stats().received).sum();
        let sent: u64 = self.switches.iter().map(|s| s.stats().sent).sum();
        let stats = self.runtime.stats();
        let dropped: u64 = self
            .switches
            .iter()
            .flat_map(|s| s.stats().dropped)
            .chain(stats.dropped.clone())
            .map(|d| d.count)
            .sum();
        assert_eq!(received + stats.emitted, sent + stats.held + dropped, "{stats:?}");
    }

    /// One step of the runtime; how much was done in it.
    pub fn step_runtime(&mut self) -> usize {
        let work = self.runtime.step(self.now);
        work.packets + work.other
    }

    /// Frames come in by a port; the frames that leave, with the port.
    pub fn feed_in(&mut self, port: u8, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<(u8, Vec<u8>)> {
        let switches = self.switches.len();
        let (switch, index) = (usize::from(port) % switches, usize::from(port) / switches);
        self.switches[switch].port_mut(index).input.extend(frames);
        self.run_until_quiet();
        self.left()
    }

    pub fn left(&mut self) -> Vec<(u8, Vec<u8>)> {
        let switches = self.switches.len();
        let mut left = Vec::new();
        for port in 0..3 {
            let frames = self.switches[port % switches]
                .port_mut(port / switches)
                .output
                .split_off(0);
            left.extend(frames.into_iter().map(|frame| (port as u8, frame)));
        }
        left
    }

    /// One frame in, one out.
    #[track_caller]
    pub fn one(&mut self, port: u8, frame: Vec<u8>) -> (u8, Vec<u8>) {
        let mut left = self.feed_in(port, [frame]);
        assert_eq!(left.len(), 1, "{:?}", self.runtime.stats().dropped);
        left.remove(0)
    }

    /// One frame in, none out: why.
    #[track_caller]
    pub fn refused(&mut self, port: u8, frame: Vec<u8>) -> &'static str {
        let before = self.drops();
        let left = self.feed_in(port, [frame]);
        assert!(left.is_empty(), "{left:02x?}");
        let mut more: Vec<_> = self.drops();
        more.retain(|drop| !before.contains(drop));
        assert_eq!(more.len(), 1, "{more:?}");
        more[0].0
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let dropped = self.runtime.stats().dropped;
        dropped.iter().map(|d| (d.name, d.count)).collect()
    }

    pub fn dropped(&self, name: &str) -> u64 {
        self.drops().iter().filter(|d| d.0 == name).map(|d| d.1).sum()
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.runtime.stats().counters;
        counters.iter().filter(|c| c.name == name).map(|c| c.count).sum()
    }

    pub fn stats(&self) -> runtime::stats::RuntimeStats {
        self.runtime.stats()
    }
}
