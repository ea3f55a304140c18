//! NAT on the real workers: switches and runtimes in one thread, stepped in turn, over links made
//! of queues.
//!
//! Facts that NAT's own tests cannot show: that packets from outside, hairpinned ones and ICMP
//! errors find the runtime that has the mapping, whatever the number of runtimes and switches; and
//! that nothing is left when all flows are over.

use flowkeep_testkit::{Link, link};
use functions::nat::{Config, Filtering, Nat, StaticMapping, StaticProtocol};
use nf::{Side, WorkerInfo};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::env::{Burst, Port, PortCounters, dispose};
use runtime::mobility::{MoveOrder, Selector};
use runtime::stage::{Configured, Factory};
use runtime::switch::{self, Policy, SideRule, Switch};
use runtime::{Runtime, Settings};
use std::collections::VecDeque;
use wire::memory::Region;
use wire::{HashSeed, LinkType, Pool};

type V4 = ([u8; 4], u16);

/// A port to the world: frames in, frames out with the side they left by.
#[derive(Default)]
struct World {
    input: VecDeque<Vec<u8>>,
    output: Vec<(Side, Vec<u8>)>,
}

impl Port for World {
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full()
            && let Some(frame) = self.input.pop_front()
        {
            let mut packet = pool.take().expect("a buffer");
            assert!(packet.set_frame(&frame, LinkType::Raw));
            burst.push(packet);
        }
    }
    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        let sent = burst.iter().map(|p| (p.exit(), p.frame().to_vec()));
        self.output.extend(sent);
        dispose(pool, burst);
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

fn pool(origin: u8) -> Pool {
    Pool::new(Region::heap(Pool::region_length(512, 2048)), 512, 2048, origin)
}

struct Cluster {
    switches: Vec<Switch<World, Link>>,
    runtimes: Vec<Runtime<Link>>,
    events: String,
    now: u64,
    /// Whether all flows of each runtime move to the next one with every packet.
    moving: bool,
    moved: u64,
}

impl Cluster {
    fn new(switches: u8, runtimes: u16, config: Config) -> Self {
        Cluster::planned(switches, runtimes, runtimes, config)
    }

    /// The pool is divided among so many of the runtimes.
    fn planned(switches: u8, runtimes: u16, parts: u16, config: Config) -> Self {
        let mut cluster = Cluster::apart(switches, runtimes, parts, config);
        let count = usize::from(runtimes);
        let mut between: Vec<Vec<Option<Link>>> =
            (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
        for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
            let (near, far) = link();
            (between[a][b], between[b][a]) = (Some(near), Some(far));
        }
        let runtimes = cluster.runtimes.iter_mut().zip(between);
        runtimes.for_each(|(runtime, peers): (&mut Runtime<Link>, _)| runtime.join(peers));
        cluster
    }

    /// No runtime has a link to another.
    fn apart(switches: u8, runtimes: u16, parts: u16, config: Config) -> Self {
        let nat: Box<dyn Factory> = Box::new(Configured::<Nat>::new("nat", config));
        let rule = ChainRule {
            name: "all".to_string(),
            matching: Match::default(),
            functions: vec!["nat".to_string()],
            replication: None,
        };
        let plan = Plan::new(vec![rule], vec![nat]).unwrap();
        let mut links: Vec<Vec<Link>> = (0..switches).map(|_| Vec::new()).collect();
        let mut made = Vec::new();
        for number in 0..runtimes {
            let (near, far): (Vec<_>, Vec<_>) = (0..switches).map(|_| link()).unzip();
            links
                .iter_mut()
                .zip(near)
                .for_each(|(links, end)| links.push(end));
            let info = WorkerInfo {
                runtime: number,
                runtimes: parts,
                flows_max: 1024,
                seed: 7,
            };
            let settings = Settings {
                info,
                switches,
                egress: [0, switches - 1],
                ..Settings::alone(1024)
            };
            let pool = pool(switches + number as u8);
            made.push(Runtime::new(settings, plan.clone(), far, pool, Region::heap).unwrap());
        }
        let mut peers: Vec<Vec<Option<Link>>> = (0..switches)
            .map(|_| (0..switches).map(|_| None).collect())
            .collect();
        if let [a, b] = &mut peers[..] {
            let (near, far) = link();
            (a[1], b[0]) = (Some(near), Some(far));
        }
        let make = |(number, (links, peers)): (usize, (Vec<Link>, Vec<Option<Link>>))| {
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
                egress: [
                    (number == 0).then_some(0),
                    (number + 1 == usize::from(switches)).then_some(0),
                ],
                now: 0,
            };
            let rule = SideRule::BySource(vec!["10.0.0.0/8".parse().unwrap()]);
            let ports = vec![(World::default(), rule)];
            let pool = pool(number as u8);
            Switch::new(settings, plan.clone(), ports, links, peers, pool, Region::heap)
        };
        Cluster {
            switches: links.into_iter().zip(peers).enumerate().map(make).collect(),
            runtimes: made,
            events: String::new(),
            now: 0,
            moving: false,
            moved: 0,
        }
    }

    fn run_until_quiet(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            self.now += 1000;
            let mut work: usize = self.switches.iter_mut().map(|s| s.step(self.now)).sum();
            for runtime in &mut self.runtimes {
                let done = runtime.step(self.now);
                work += done.packets + done.other;
            }
            idle = if work == 0 { idle + 1 } else { 0 };
        }
        for runtime in &mut self.runtimes {
            runtime.take_events(&mut self.events);
        }
    }

    /// Has every flow move on to the next runtime, with a packet on its way.
    fn move_around(&mut self) {
        let count = self.runtimes.len() as u16;
        for (at, runtime) in self.runtimes.iter_mut().enumerate() {
            let to = vec![(at as u16 + 1) % count];
            let order = MoveOrder {
                selector: Selector::All,
                to,
            };
            runtime.order(order).unwrap();
        }
        self.moved += 1;
    }

    /// Sends one packet; from 10.0.0.0/8 it comes in at the first switch, else at the last.
    fn send(&mut self, frame: Vec<u8>) -> (Side, Vec<u8>) {
        let sent = self.try_send(frame);
        let dropped: Vec<_> = self.runtimes.iter().map(|r| r.stats().dropped).collect();
        sent.unwrap_or_else(|| panic!("{dropped:?}"))
    }

    /// [`Cluster::send`] of a packet that may be refused.
    fn try_send(&mut self, frame: Vec<u8>) -> Option<(Side, Vec<u8>)> {
        let at = if frame[12] == 10 {
            0
        } else {
            self.switches.len() - 1
        };
        self.switches[at].port_mut(0).input.push_back(frame);
        if self.moving {
            self.move_around();
        }
        self.run_until_quiet();
        let mut sent: Vec<_> = self
            .switches
            .iter_mut()
            .flat_map(|s| s.port_mut(0).output.split_off(0))
            .collect();
        assert!(sent.len() <= 1);
        sent.pop()
    }

    fn count(&self, name: &str) -> u64 {
        let counters = self.runtimes.iter().flat_map(|r| r.stats().counters);
        counters.filter(|c| c.name == name).map(|c| c.count).sum()
    }

    fn assert_over(&self) {
        assert!(self.runtimes.iter().all(|r| r.stats().flows == 0));
        for switch in &self.switches {
            assert_eq!((switch.stats().blocks, switch.stats().routes), (0, 0));
        }
        assert_eq!(self.count("blocks_claimed"), self.count("blocks_released"));
        assert_eq!(self.count("mappings_created"), self.count("mappings_released"));
    }

    fn wait_for_the_end(&mut self) {
        for _ in 0..5 {
            self.now += 400_000_000_000;
            self.run_until_quiet();
        }
    }
}

fn udp(from: V4, to: V4) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4(from.0, to.0, 64)
        .udp(from.1, to.1)
        .write(&mut frame, b"x")
        .unwrap();
    frame
}

fn unreachable(from: [u8; 4], to: [u8; 4], about: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4(from, to, 64)
        .icmpv4_raw(3, 3, [0; 4])
        .write(&mut frame, about)
        .unwrap();
    frame
}

/// Source and destination of an IPv4 packet with ports.
fn ends(packet: &[u8]) -> (V4, V4) {
    let end = |addr: usize, port: usize| {
        let addr = [packet[addr], packet[addr + 1], packet[addr + 2], packet[addr + 3]];
        (addr, u16::from_be_bytes([packet[port], packet[port + 1]]))
    };
    (end(12, 20), end(16, 22))
}

/// The quoted packet's ends and the outer destination.
fn error(frame: &[u8]) -> ((V4, V4), [u8; 4]) {
    (ends(&frame[28..]), ends(frame).1.0)
}

const R1: V4 = ([198, 51, 100, 7], 5353);
const R2: V4 = ([192, 0, 2, 9], 7777);
const ROUTER: [u8; 4] = [198, 18, 0, 1];

fn talk_with_the_world(cluster: &mut Cluster) -> Vec<(V4, V4)> {
    let each = |host: u8| {
        let x = ([10, 0, 0, host], 5000);
        let (side, sent) = cluster.send(udp(x, R1));
        let outside = ends(&sent).0;
        assert_eq!(side, Side::Outside);
        assert_eq!(ends(&cluster.send(udp(x, R2)).1).0, outside, "one mapping");
        assert_eq!(ends(&cluster.send(udp(R1, outside)).1), (R1, x));
        let stranger = ([198, 51, 100, 99], 1);
        assert_eq!(ends(&cluster.send(udp(stranger, outside)).1), (stranger, x));
        let (side, told) = cluster.send(unreachable(ROUTER, outside.0, &sent));
        assert_eq!((side, error(&told)), (Side::Inside, ((x, R1), x.0)));
        (x, outside)
    };
    (1..=12).map(each).collect()
}

fn talk_with_each_other(cluster: &mut Cluster, hosts: &[(V4, V4)]) {
    for (x1, e1) in hosts {
        for (x2, e2) in hosts.iter().filter(|(x2, _)| x2 != x1) {
            let (side, there) = cluster.send(udp(*x1, *e2));
            assert_eq!((side, ends(&there)), (Side::Inside, (*e1, *x2)));
            let (side, back) = cluster.send(udp(*x2, *e1));
            assert_eq!((side, ends(&back)), (Side::Inside, (*e2, *x1)));
            let (side, told) = cluster.send(unreachable(x2.0, e1.0, &there));
            assert_eq!((side, error(&told)), (Side::Inside, ((*x1, *e2), x1.0)));
        }
    }
}

fn talk_with_a_server(cluster: &mut Cluster) {
    let (server, public) = (([10, 0, 0, 200], 80), ([203, 0, 113, 0], 8080));
    assert_eq!(ends(&cluster.send(udp(R2, public)).1), (R2, server));
    let (_, answer) = cluster.send(udp(server, R2));
    assert_eq!(ends(&answer), (public, R2));
    let (side, told) = cluster.send(unreachable(ROUTER, public.0, &answer));
    assert_eq!((side, error(&told)), (Side::Inside, ((server, R2), server.0)));
}

#[test]
fn every_packet_finds_its_mapping_on_any_number_of_workers() {
    for (switches, runtimes, moving) in [
        (1, 1, false),
        (1, 4, false),
        (2, 3, false),
        (2, 4, false),
        (1, 2, true),
        (2, 3, true),
    ] {
        let server = StaticMapping {
            inside: "10.0.0.200:80".parse().unwrap(),
            outside: "203.0.113.0:8080".parse().unwrap(),
            protocol: StaticProtocol::Udp,
        };
        let config = Config {
            pool: vec!["203.0.113.0/31".parse().unwrap()],
            filtering: Filtering::EndpointIndependent,
            static_mappings: vec![server].into(),
            ..Config::default()
        };
        let mut cluster = Cluster::new(switches, runtimes, config);
        cluster.moving = moving;
        let hosts = talk_with_the_world(&mut cluster);
        talk_with_each_other(&mut cluster, &hosts);
        talk_with_a_server(&mut cluster);
        // Long after: no flow, no block, no route, and the log tells of each mapping twice.
        for _ in 0..5 {
            cluster.now += 400_000_000_000;
            cluster.run_until_quiet();
        }
        assert!(cluster.runtimes.iter().all(|r| r.stats().flows == 0));
        assert!(
            cluster
                .switches
                .iter()
                .all(|s| s.stats().blocks == 0 && s.stats().routes == 0)
        );
        let told = |event: &str| cluster.events.matches(event).count();
        assert_eq!((told("mapping_created"), told("mapping_released")), (12, 12));
        let moved: u64 = cluster.runtimes.iter().map(|r| r.stats().flows_moved[0]).sum();
        assert_eq!(moving, moved > 10 * cluster.moved / 2, "{moved} flows moved");
    }
}

/// As many blocks as hosts want, again in each round: a block that did not come back would be
/// missing.
#[test]
fn blocks_that_end_elsewhere_go_back_to_their_pool() {
    let config = Config {
        pool: vec!["203.0.113.0/32".parse().unwrap()],
        block_size: 4096,
        ..Config::default()
    };
    let mut cluster = Cluster::new(2, 3, config);
    cluster.moving = true;
    for round in 0..8 {
        for host in 1..=9 {
            let (exit, _) = cluster.send(udp(([10, 0, 0, host], 5000 + round), R1));
            assert_eq!(exit, Side::Outside, "round {round}, host {host}");
        }
        for _ in 0..5 {
            cluster.now += 400_000_000_000;
            cluster.run_until_quiet();
        }
        assert!(cluster.runtimes.iter().all(|r| r.stats().flows == 0));
        assert!(cluster.switches.iter().all(|s| s.stats().blocks == 0));
    }
}

/// Sixteen blocks, eight of each runtime's part, and sixteen hosts that all go to the first, since
/// the other is leaving; answers how many have a port, and how many packets were dropped for want
/// of one.
fn hosts_with_ports(mut cluster: Cluster) -> (usize, u64) {
    cluster.runtimes[1].set_leaving(true);
    cluster.run_until_quiet();
    let mut given = Vec::new();
    for host in 1..=16 {
        cluster.now += 2_000_000;
        cluster.run_until_quiet();
        if let Some((side, frame)) = cluster.try_send(udp(([10, 0, 0, host], 5000), R1)) {
            assert_eq!(side, Side::Outside);
            given.push((host, ends(&frame).0));
        }
    }
    // Each has an endpoint of its own, and answers find it.
    for (host, outside) in &given {
        let inside = ([10, 0, 0, *host], 5000);
        assert_eq!(ends(&cluster.send(udp(R1, *outside)).1), (R1, inside));
        assert_eq!(given.iter().filter(|(_, other)| other == outside).count(), 1);
    }
    let stats = cluster
        .runtimes
        .iter()
        .flat_map(|runtime| runtime.stats().dropped);
    let dropped = stats.filter(|dropped| dropped.name == "ports_exhausted");
    let dropped = dropped.map(|dropped| dropped.count).sum();
    assert_eq!(cluster.runtimes[1].stats().flows, 0);
    let alarms = cluster.count("pool_alarms");
    assert!(alarms > 0, "all are dry, or none lends: {}", given.len());
    cluster.wait_for_the_end();
    for _ in 0..20 {
        cluster.now += 1_000_000;
        cluster.run_until_quiet();
    }
    cluster.assert_over();
    let free = cluster.runtimes.iter().map(|runtime| pool_of(runtime)[1]);
    assert_eq!(free.sum::<u64>(), 16, "every block is free at one runtime");
    (given.len(), dropped)
}

/// Of a runtime's pool: blocks, which of them are free, which of those are borrowed.
fn pool_of(runtime: &Runtime<Link>) -> [u64; 3] {
    let pool = runtime.table("nat", &["pool"]).unwrap().unwrap();
    [0, 1, 2].map(|at| match pool.rows[0][at] {
        nf::table::Value::Number(number) => number,
        nf::table::Value::Text(_) => panic!("{pool:?}"),
    })
}

fn sixteen_blocks() -> Config {
    Config {
        pool: vec!["203.0.113.0/32".parse().unwrap()],
        ports: (1024, 2047),
        block_size: 64,
        ..Config::default()
    }
}

#[test]
fn a_runtime_whose_part_runs_dry_has_others_blocks() {
    for switches in [1, 2] {
        let without = hosts_with_ports(Cluster::apart(switches, 2, 2, sixteen_blocks()));
        let with = hosts_with_ports(Cluster::new(switches, 2, sixteen_blocks()));
        println!("hosts with ports, packets dropped: {without:?} apart, {with:?} with links");
        assert_eq!((without, with), ((8, 8), (16, 0)));
    }
}

/// A runtime that the pool was not divided among begins without a part, and has one before it has
/// hosts.
#[test]
fn a_runtime_beyond_the_planned_number_has_its_share() {
    let mut cluster = Cluster::planned(1, 3, 2, sixteen_blocks());
    for _ in 0..20 {
        cluster.now += 1_000_000;
        cluster.run_until_quiet();
    }
    let [_, free, borrowed] = pool_of(&cluster.runtimes[2]);
    assert!(free > 0 && borrowed > 0, "{free} free, {borrowed} borrowed");
    for host in 1..=12 {
        cluster.now += 2_000_000;
        cluster.send(udp(([10, 0, 0, host], 5000), R1));
    }
    assert!(cluster.runtimes[2].stats().flows > 2);
}

#[test]
fn what_inside_hosts_send_each_other_is_not_translated() {
    let (one, other, remote) = (
        ([10, 0, 0, 9], 5000),
        ([10, 0, 0, 2], 6000),
        ([198, 51, 100, 7], 53),
    );
    for (switches, runtimes) in [(1, 1), (2, 3)] {
        let config = Config {
            pool: vec!["203.0.113.0/31".parse().unwrap()],
            ..Config::default()
        };
        let mut cluster = Cluster::new(switches, runtimes, config);
        // Whether they have mappings by then or not, and whichever host begins.
        for _ in 0..2 {
            for (from, to) in [(one, other), (other, one)] {
                let sent = udp(from, to);
                assert_eq!(cluster.send(sent.clone()), (Side::Inside, sent));
            }
            for host in [one, other] {
                let (exit, frame) = cluster.send(udp(host, remote));
                assert_eq!((exit, &frame[12..15]), (Side::Outside, &[203, 0, 113][..]));
            }
        }
        assert_eq!(cluster.events.matches("mapping_created").count(), 2);
    }
}

/// More spoofed sources than the pool has blocks: the flows of those end, with blocks and routes,
/// and a new host gets through.
#[test]
fn spoofed_sources_make_room_at_every_worker() {
    for (switches, runtimes, moving) in [(1, 1, false), (2, 3, false), (2, 2, true)] {
        let config = Config {
            pool: vec!["203.0.113.0/31".parse().unwrap()],
            block_size: 2048,
            ..Config::default()
        };
        let mut cluster = Cluster::new(switches, runtimes, config);
        let spoofed = |n: u16| ([10, 7, (n >> 8) as u8, n as u8], 5000);
        for n in 0..200 {
            cluster.now += 5_000_000;
            cluster.try_send(udp(spoofed(n), R1));
        }
        assert!(cluster.count("blocks_claimed") >= 60 && cluster.count("pool_alarms") > 0);
        cluster.now += 1_000_000_000;
        cluster.moving = moving;
        for host in 1..=6 {
            let x = ([10, 0, 0, host], 5000);
            let tries = (0..8).find_map(|_| {
                cluster.now += 1_000_000_000;
                cluster.try_send(udp(x, R1))
            });
            let (side, sent) = tries.expect("a host gets through");
            assert_eq!(side, Side::Outside);
            let outside = ends(&sent).0;
            assert_eq!(ends(&cluster.send(udp(R1, outside)).1), (R1, x));
            assert_eq!(ends(&cluster.send(udp(x, R1)).1).0, outside);
        }
        assert!(cluster.count("flows_reclaimed") > 0);
        cluster.moving = false;
        cluster.wait_for_the_end();
        cluster.assert_over();
    }
}

#[test]
fn what_an_operator_clears_ends_wherever_it_is() {
    for moving in [false, true] {
        let config = Config {
            pool: vec!["203.0.113.0/31".parse().unwrap()],
            filtering: Filtering::EndpointIndependent,
            ..Config::default()
        };
        let mut cluster = Cluster::new(2, 3, config);
        cluster.moving = moving;
        let hosts = talk_with_the_world(&mut cluster);
        cluster.moving = false;
        let clear = |cluster: &mut Cluster, which: &str| {
            for runtime in &mut cluster.runtimes {
                runtime.command("nat", &["clear", which]).unwrap();
            }
            cluster.run_until_quiet();
        };
        let flows = |cluster: &Cluster| cluster.runtimes.iter().map(|r| r.stats().flows).sum::<u64>();
        let before = flows(&cluster);
        clear(&mut cluster, "10.0.0.3");
        assert_eq!((cluster.count("flows_cleared"), flows(&cluster)), (3, before - 3));
        let (x3, outside) = hosts[2];
        assert_eq!(cluster.try_send(udp(R1, outside)), None, "its mapping is gone");
        assert_eq!(cluster.send(udp(x3, R1)).0, Side::Outside, "and it begins again");
        clear(&mut cluster, "all");
        cluster.assert_over();
    }
}

fn gre(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut frame = udp((from, 0), (to, 0));
    frame[9] = 47;
    let sum = frame[..20].chunks(2).fold(0u32, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair[1]]))
    }) - u32::from(u16::from_be_bytes([frame[10], frame[11]]));
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame
}

/// Both ways, with and without ports, while its flows move.
#[test]
fn a_whole_address_leads_to_its_host_on_any_number_of_workers() {
    let (host, own) = ([10, 0, 0, 200], [203, 0, 113, 1]);
    for (switches, runtimes, moving) in [(1, 1, false), (2, 4, false), (2, 3, true)] {
        let end = |addr| nf::Endpoint::new(nf::Addr::v4(addr), 0);
        let whole = StaticMapping {
            inside: end(host),
            outside: end(own),
            protocol: StaticProtocol::Any,
        };
        let config = Config {
            pool: vec!["203.0.113.0/31".parse().unwrap()],
            static_mappings: vec![whole].into(),
            ..Config::default()
        };
        let mut cluster = Cluster::new(switches, runtimes, config);
        cluster.moving = moving;
        for n in 0..8 {
            let peer = [192, 0, 2, n];
            let (side, came) = cluster.send(gre(peer, own));
            assert_eq!((side, ends(&came).1.0), (Side::Inside, host));
            let (side, back) = cluster.send(gre(host, peer));
            assert_eq!(
                (side, ends(&back).0.0, ends(&back).1.0),
                (Side::Outside, own, peer)
            );
            assert_eq!(
                ends(&cluster.send(udp((peer, 5), (own, 53))).1),
                ((peer, 5), (host, 53))
            );
            assert_eq!(
                ends(&cluster.send(udp((host, 53), (peer, 5))).1),
                ((own, 53), (peer, 5))
            );
            let inside = cluster.send(udp(([10, 0, 0, n + 1], 9), (own, 53)));
            assert_eq!((inside.0, ends(&inside.1).1), (Side::Inside, (host, 53)));
        }
        cluster.moving = false;
        cluster.wait_for_the_end();
        cluster.assert_over();
    }
}
