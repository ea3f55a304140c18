//! Runtimes that come and go by load, with packets that come as fast as workers take them and then
//! not at all: each socket keeps its external endpoint, and no packet is lost.

use crate::cluster::{finish, start};
use adapters::memory::{Frame, MemoryEnd};
use adapters::open::Ports;
use flowkeep::cluster::Cluster;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::LinkType;

const HOSTS: u16 = 200;
/// Packets on their way at most: fewer than any queue has places.
const WINDOW: u64 = 512;
const PATIENCE: Duration = Duration::from_secs(60);

type End = ([u8; 4], u16);

fn packet(host: u16) -> Vec<u8> {
    let [high, low] = host.to_be_bytes();
    let mut frame = Vec::new();
    let packet = etherparse::PacketBuilder::ipv4([10, 0, high, low], [192, 0, 2, 1], 64).udp(5000, 53);
    packet
        .write(&mut frame, &host.to_be_bytes())
        .expect("a vector grows");
    frame
}

/// Which host's it is, and its source.
fn read(bytes: &[u8]) -> (u16, End) {
    let sliced = etherparse::SlicedPacket::from_ip(bytes).expect("a packet");
    let (Some(etherparse::NetSlice::Ipv4(ip)), Some(etherparse::TransportSlice::Udp(udp))) =
        (sliced.net, sliced.transport)
    else {
        panic!("not UDP over IPv4")
    };
    let host = udp.payload().try_into().expect("two bytes");
    (
        u16::from_be_bytes(host),
        (ip.header().source(), udp.source_port()),
    )
}

/// All hosts, and the world.
struct Hosts {
    lan: MemoryEnd,
    world: MemoryEnd,
    sent: u64,
    got: u64,
    endpoints: BTreeMap<u16, End>,
}

impl Hosts {
    /// A packet of each host in turn, as fast as they go through, until this is so.
    fn talk(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(
                began.elapsed() < PATIENCE,
                "{what} did not come to be: {} packets",
                self.sent
            );
            if self.sent - self.got < WINDOW {
                let host = (self.sent % u64::from(HOSTS)) as u16;
                self.lan.push(&packet(host), LinkType::Raw);
                self.sent += 1;
            }
            self.take();
        }
        self.run_until_quiet();
    }

    fn take(&mut self) {
        while let Some(Frame { bytes, .. }) = self.world.take() {
            let (host, source) = read(&bytes);
            let before = *self.endpoints.entry(host).or_insert(source);
            assert_eq!(before, source, "host {host} has another endpoint");
            self.got += 1;
        }
    }

    /// Until all that was sent has come.
    fn run_until_quiet(&mut self) {
        let began = Instant::now();
        while self.got < self.sent {
            assert!(began.elapsed() < PATIENCE, "{} of {} came", self.got, self.sent);
            self.take();
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn there(cluster: &Arc<dyn Cluster>) -> usize {
    let snapshot = cluster.snapshot();
    snapshot.runtimes.len() - snapshot.absent.len()
}

#[test]
fn runtimes_come_and_go_by_load_and_no_endpoint_changes() {
    // Two percent of the time are much here, so that a busy machine is no matter.
    let toml = "clock = \"machine\"\nidle = \"nap\"\nruntimes = 1\nruntimes_max = 2\nflows_max = 4096\n\
        [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"memory:lan\"\noutput = \"memory:lan\"\n\
        [[port]]\nname = \"world\"\nside = \"outside\"\ninput = \"memory:world\"\noutput = \"memory:world\"\n\
        [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n[function.nat]\npool = [\"203.0.113.0/28\"]\n\
        [scaling]\nhigh = 2\nlow = 1\ninterval = \"50ms\"\nout_after = \"100ms\"\nin_after = \"300ms\"\n";
    let mut ports = Ports::new();
    let (lan, world) = (ports.memory("lan"), ports.memory("world"));
    let (running, lines) = start(toml, ports);
    let cluster = running.cluster();
    let mut hosts = Hosts {
        lan,
        world,
        sent: 0,
        got: 0,
        endpoints: BTreeMap::new(),
    };
    let mut looked = Instant::now();
    hosts.talk("the second runtime", |_| {
        let is_time = looked.elapsed() > Duration::from_millis(20);
        if is_time {
            looked = Instant::now();
        }
        is_time && there(&cluster) == 2
    });
    assert_eq!(hosts.endpoints.len(), usize::from(HOSTS));
    // There is nothing to do: a runtime goes.
    let began = Instant::now();
    while there(&cluster) > 1 {
        assert!(began.elapsed() < PATIENCE, "{} runtimes stay", there(&cluster));
        std::thread::sleep(Duration::from_millis(20));
    }
    let flows: u64 = cluster.snapshot().runtimes.iter().map(|of| of.flows).sum();
    assert_eq!(flows, u64::from(HOSTS));
    // All are as they were.
    let end = hosts.sent + u64::from(HOSTS);
    hosts.talk("a packet of each host", |hosts| hosts.sent >= end);
    hosts.lan.close();
    hosts.world.close();
    let ran = finish(running.wait(|_| {}), &lines, "scaling");
    assert_eq!(ran.packets.dropped_total(), 0, "{:?}", ran.packets.dropped);
    assert_eq!((ran.packets.received, ran.packets.sent), (hosts.sent, hosts.sent));
    let events = |name: &str| ran.lines.lines().filter(|line| line.contains(name)).count();
    assert!(events("runtime_added") >= 1, "{}", ran.lines);
    assert!(events("runtime_removed") >= 1, "{}", ran.lines);
    assert_eq!(events("scaling_failed"), 0, "{}", ran.lines);
}
