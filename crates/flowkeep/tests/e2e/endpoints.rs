//! The demands of RFC 4787 on NAT's endpoints, in the threaded cluster: one mapping for one socket
//! whatever it talks with, the three filterings, hairpinning. Hosts and the world are `memory:`
//! ports of this test.

use crate::cluster::{Lines, Ran, Shape, finish, start};
use adapters::memory::{Frame, MemoryEnd};
use adapters::open::Ports;
use flowkeep::run::Running;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::LinkType;

type End = ([u8; 4], u16);

/// A cluster with NAT between two queues.
struct Rig {
    running: Running,
    lines: Lines,
    lan: MemoryEnd,
    world: MemoryEnd,
}

/// Longer than any packet takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a packet takes that is not dropped, mostly; packets that must not come are also
/// counted.
const NOTHING: Duration = Duration::from_millis(50);

impl Rig {
    fn new(shape: Shape, settings: &str) -> Self {
        let port = |name: &str, side: &str| {
            let uri = format!("memory:{name}");
            format!("[[port]]\nname = \"{name}\"\nside = \"{side}\"\ninput = \"{uri}\"\noutput = \"{uri}\"\n")
        };
        let toml = format!(
            "clock = \"machine\"\n{}{}{}[[chain]]\nname = \"gateway\"\nfunctions = [\"nat\"]\n\
             [function.nat]\npool = [\"203.0.113.0/30\"]\n{settings}\n",
            shape.toml(4096),
            port("lan", "inside"),
            port("world", "outside"),
        );
        let mut ports = Ports::new();
        let (lan, world) = (ports.memory("lan"), ports.memory("world"));
        let (running, lines) = start(&toml, ports);
        Rig {
            running,
            lines,
            lan,
            world,
        }
    }

    /// The packet that comes out of a queue within the time.
    fn take(from: &MemoryEnd, within: Duration) -> Option<(End, End)> {
        let began = Instant::now();
        loop {
            if let Some(Frame { bytes, .. }) = from.take() {
                return Some(ends(&bytes));
            }
            if began.elapsed() > within {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// From a host to the world: the source that the world sees.
    #[track_caller]
    fn out(&self, from: End, to: End) -> End {
        self.lan.push(&udp(from, to), LinkType::Raw);
        let (source, destination) = Self::take(&self.world, PATIENCE).expect("it leaves");
        assert_eq!(destination, to);
        source
    }

    /// From the world: the host that it reaches.
    fn back(&self, from: End, to: End, within: Duration) -> Option<End> {
        self.world.push(&udp(from, to), LinkType::Raw);
        let (source, destination) = Self::take(&self.lan, within)?;
        assert_eq!(source, from);
        Some(destination)
    }

    fn stop(self, what: &str) -> Ran {
        self.lan.close();
        self.world.close();
        finish(self.running.wait(|_| {}), &self.lines, what)
    }
}

fn udp(from: End, to: End) -> Vec<u8> {
    let mut frame = Vec::new();
    let packet = etherparse::PacketBuilder::ipv4(from.0, to.0, 64).udp(from.1, to.1);
    packet.write(&mut frame, b"hello").expect("a vector grows");
    frame
}

fn ends(packet: &[u8]) -> (End, End) {
    let sliced = etherparse::SlicedPacket::from_ip(packet).expect("a packet");
    let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else {
        panic!("not IPv4")
    };
    let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else {
        panic!("not UDP")
    };
    let ip = ip.header();
    (
        (ip.source(), udp.source_port()),
        (ip.destination(), udp.destination_port()),
    )
}

const HOST: End = ([10, 0, 0, 1], 5000);
const OTHER: End = ([10, 0, 0, 2], 6000);

#[test]
fn a_socket_that_talks_with_a_thousand_has_one_mapping() {
    let rig = Rig::new(Shape::of(4), "");
    for number in 0..1000_u16 {
        let [high, low] = number.to_be_bytes();
        rig.lan.push(
            &udp(HOST, ([198, 51, 100 + high, low], 53 + number)),
            LinkType::Raw,
        );
    }
    let seen: Vec<_> = (0..1000)
        .map(|_| Rig::take(&rig.world, PATIENCE).expect("it leaves"))
        .collect();
    let sources: BTreeSet<End> = seen.iter().map(|(source, _)| *source).collect();
    let destinations: BTreeSet<End> = seen.iter().map(|(_, destination)| *destination).collect();
    assert_eq!((sources.len(), destinations.len()), (1, 1000));
    let outside = *sources.first().expect("one");
    assert!(
        destinations
            .iter()
            .all(|remote| rig.back(*remote, outside, PATIENCE) == Some(HOST))
    );
    let ran = rig.stop("a thousand destinations");
    assert_eq!(
        (ran.counter("mappings_created"), ran.counter("mappings_released")),
        (1, 1)
    );
    assert_eq!(ran.counter("flows_from_inside"), 1000);
}

#[test]
fn filtering_is_as_set() {
    let friend: End = ([198, 51, 100, 7], 53);
    let friend_elsewhere: End = ([198, 51, 100, 7], 99);
    let stranger: End = ([192, 0, 2, 9], 53);
    for (filtering, elsewhere, strange) in [
        ("endpoint-independent", true, true),
        ("address-dependent", true, false),
        ("address-and-port-dependent", false, false),
    ] {
        let rig = Rig::new(Shape::of(4), &format!("filtering = \"{filtering}\""));
        let outside = rig.out(HOST, friend);
        assert_eq!(rig.back(friend, outside, PATIENCE), Some(HOST), "{filtering}");
        for (from, allowed) in [(friend_elsewhere, elsewhere), (stranger, strange)] {
            let reached = rig.back(from, outside, if allowed { PATIENCE } else { NOTHING });
            assert_eq!(reached, allowed.then_some(HOST), "{filtering}: {from:?}");
        }
        let ran = rig.stop(filtering);
        let refused = u64::from(!elsewhere) + u64::from(!strange);
        let filtered = ran.dropped().get(&("nat", "filtered")).copied().unwrap_or(0);
        assert_eq!(
            (filtered, ran.packets.dropped_total()),
            (refused, refused),
            "{filtering}"
        );
    }
}

#[test]
fn hosts_reach_each_other_by_their_external_endpoints() {
    let remote: End = ([198, 51, 100, 7], 53);
    for shape in [Shape::of(1), Shape::of(4), Shape::of(3).with_switches(2)] {
        let what = format!("{shape:?}");
        let rig = Rig::new(shape, "filtering = \"endpoint-independent\"");
        let (host, other) = (rig.out(HOST, remote), rig.out(OTHER, remote));
        rig.lan.push(&udp(HOST, other), LinkType::Raw);
        assert_eq!(
            Rig::take(&rig.lan, PATIENCE),
            Some((host, OTHER)),
            "{what}: RFC 4787 REQ-9 a"
        );
        rig.lan.push(&udp(OTHER, host), LinkType::Raw);
        assert_eq!(Rig::take(&rig.lan, PATIENCE), Some((other, HOST)), "{what}");
        assert_eq!(
            Rig::take(&rig.world, Duration::ZERO),
            None,
            "{what}: nothing of it leaves"
        );
        let ran = rig.stop(&what);
        let turned: u64 = ran.snapshot.switches.iter().map(|s| s.turned).sum();
        assert_eq!((turned, ran.packets.dropped_total()), (2, 0), "{what}");
    }
    let rig = Rig::new(Shape::of(4), "hairpinning = false");
    let other = rig.out(OTHER, remote);
    rig.lan.push(&udp(HOST, other), LinkType::Raw);
    assert_eq!(Rig::take(&rig.lan, NOTHING), None);
    let ran = rig.stop("hairpinning off");
    assert_eq!(ran.dropped(), [(("nat", "hairpin_off"), 1)].into());
}
