//! Frames of every kind over a cable, from port to port in this process: the frames that arrive
//! equal those sent, and everything is counted.

use crate::network::{Turn, alone};
use adapters::buffers;
use adapters::open::{BoxPort, OpenError, Ports};
use adapters::report::Report;
use lab::{Lab, Namespace};
use runtime::env::{BURST, Burst, Port};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::packet::Kind;
use wire::{LinkType, Pool};

/// Runs in a namespace, on a thread of its own.
fn inside<T: Send>(host: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            host.enter().unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// Ports of one host, and their pool.
pub struct Host {
    ports: Vec<BoxPort>,
    pool: Pool,
    opener: Ports,
}

impl Host {
    fn try_new(host: &Namespace, uris: &[&str], buffers: usize) -> Result<Host, OpenError> {
        inside(host, || {
            let mut opener = Ports::new();
            let mut ports = uris
                .iter()
                .map(|uri| opener.open(uri, uri))
                .collect::<Result<Vec<_>, _>>()?;
            opener.complete()?;
            let frame_max = ports.iter().map(Port::frame_max).max().unwrap();
            let mut pool = buffers::pool(buffers, frame_max, 0).unwrap();
            for port in &mut ports {
                port.attach(&mut pool)?;
            }
            Ok(Host { ports, pool, opener })
        })
    }

    pub fn new(host: &Namespace, uri: &str) -> Host {
        Self::try_new(host, &[uri], 8192).unwrap()
    }

    /// Sends frames by the first port, as many at a time as a burst has.
    pub fn send(&mut self, frames: &[Vec<u8>]) {
        for some in frames.chunks(BURST) {
            let mut burst = Burst::new();
            for frame in some {
                let mut packet = self.pool.take().unwrap();
                assert!(packet.set_frame(frame, LinkType::Ethernet));
                burst.push(packet);
            }
            self.ports[0].transmit(0, &mut self.pool, &mut burst);
            assert!(burst.is_empty());
            self.ports[0].reap_transmitted(&mut self.pool);
        }
    }

    /// Takes frames, by port, until there are `count`, or none comes for longer than any machine
    /// pauses.
    fn receive(&mut self, count: usize) -> Vec<(usize, Vec<u8>)> {
        let mut frames = Vec::new();
        let mut last = Instant::now();
        while frames.len() < count && last.elapsed() < Duration::from_secs(5) {
            for (index, port) in self.ports.iter_mut().enumerate() {
                let mut burst = Burst::new();
                port.receive(77, &mut self.pool, &mut burst);
                for packet in burst.drain(..) {
                    assert_eq!((packet.timestamp(), packet.link()), (77, LinkType::Ethernet));
                    frames.push((index, packet.frame().to_vec()));
                    self.pool.give(packet);
                    last = Instant::now();
                }
            }
        }
        frames
    }

    /// Whether all buffers come home, but those kept for reception.
    fn all_home(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            let mut reserved = 0;
            for port in &mut self.ports {
                port.reap_transmitted(&mut self.pool);
                reserved += port.reserved();
            }
            if self.pool.free() + reserved == self.pool.total() {
                return true;
            }
        }
        false
    }

    fn reports(&self) -> Vec<Report> {
        self.opener.reports().take()
    }
}

/// A lab, and the right to be the only one.
type Alone = (Lab, Turn);

/// Two hosts and a cable, eth0 to eth0, that nothing else talks on.
fn cable(queues: u32) -> Option<(Alone, Namespace, Namespace)> {
    let (mut lab, alone) = alone(&[("ethtool", "ethtool")])?;
    let (one, other) = (lab.namespace("one").unwrap(), lab.namespace("other").unwrap());
    for host in [&one, &other] {
        // No neighbour discovery in between.
        host.set("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        host.set("net.ipv6.conf.all.disable_ipv6", "1").unwrap();
    }
    lab.cable_with_queues((&one, "eth0"), (&other, "eth0"), queues)
        .unwrap();
    Some(((lab, alone), one, other))
}

const KINDS: [&str; 3] = [
    "afpacket:eth0?take=everything",
    "afxdp:eth0?take=everything",
    "afxdp:eth0?take=everything&mode=generic",
];

/// Frames of all lengths and with all sorts of tags; the first bytes of each tell which it is.
fn assorted(count: usize) -> Vec<Vec<u8>> {
    let mut state = 88172645463325252_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count)
        .map(|number| {
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0];
            frame.extend((number as u32).to_be_bytes());
            let tags: &[&[u8]] = match random() % 6 {
                0 => &[&[0x81, 0x00, 0xe0, 0x07]],
                1 => &[&[0x88, 0xa8, 0x00, 0x09], &[0x81, 0x00, 0x0f, 0xff]],
                2 => &[&[0x81, 0x00, 0x00, 0x00]],
                _ => &[],
            };
            tags.iter().for_each(|tag| frame.extend(*tag));
            let ether_type: [u8; 2] = match random() % 5 {
                0 => [0x08, 0x00],
                1 => [0x86, 0xdd],
                2 => [0x08, 0x06],
                3 => [0x89, 0x47],
                _ => [0x88, 0xb5],
            };
            frame.extend(ether_type);
            // One 802.1Q tag comes on top of the MTU, others do not. The kernel takes no frame with
            // less than two bytes of payload for a tagged one.
            let longest = if tags.len() == 1 { 1518 } else { 1514 };
            let room = longest - frame.len();
            let length = match random() % 4 {
                0 => 2 + random() as usize % 46,
                1 => room,
                _ => 48 + random() as usize % (room - 48),
            };
            // Nothing in it makes sense.
            frame.extend((0..length).map(|_| random() as u8));
            frame
        })
        .collect()
}

#[test]
fn any_frame_arrives_as_it_was_sent_in_order() {
    for kind in KINDS {
        let Some((_lab, one, other)) = cable(1) else {
            return;
        };
        let (mut here, mut there) = (Host::new(&one, kind), Host::new(&other, kind));
        let frames = assorted(3000);
        for some in frames.chunks(100) {
            here.send(some);
            let got: Vec<Vec<u8>> = there
                .receive(some.len())
                .into_iter()
                .map(|(_, frame)| frame)
                .collect();
            if got.len() < some.len() {
                let missing: Vec<_> = some.iter().filter(|frame| !got.contains(frame)).collect();
                panic!(
                    "{kind}: {} {missing:02x?} {:?}",
                    missing[0].len(),
                    here.ports[0].counters()
                );
            }
            for (got, sent) in got.iter().zip(some) {
                assert_eq!(got, sent, "{kind}");
            }
        }
        let (sent, received) = (here.ports[0].counters(), there.ports[0].counters());
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(
            (sent.sent_packets, sent.sent_bytes, sent.unsent_packets),
            (3000, bytes as u64, 0),
            "{kind}"
        );
        assert_eq!(
            (received.received_packets, received.received_bytes),
            (3000, bytes as u64),
            "{kind}"
        );
        assert_eq!(
            (received.refused_packets, received.lost_packets),
            (0, 0),
            "{kind}"
        );
        assert!(here.all_home() && there.all_home(), "{kind}");
        assert_eq!((here.reports(), there.reports()), (vec![], vec![]), "{kind}");
    }
}

#[test]
fn what_nobody_fetches_in_time_is_counted_as_lost() {
    for kind in KINDS {
        let Some((_lab, one, other)) = cable(1) else {
            return;
        };
        let (mut here, mut there) = (Host::new(&one, kind), Host::new(&other, kind));
        let frames = assorted(20_000);
        here.send(&frames);
        assert!(here.all_home(), "{kind}");
        let got = there.receive(frames.len()).len() as u64;
        let counters = there.ports[0].counters();
        println!("{kind}: {got} received, {} lost", counters.lost_packets);
        assert_eq!(got, counters.received_packets);
        assert!(got >= 500 && counters.lost_packets > 0, "{kind} {counters:?}");
        let sent = here.ports[0].counters();
        assert_eq!(sent.sent_packets + sent.unsent_packets, 20_000, "{kind}");
        // veth's own queue, in front of a native program, holds 256 frames and loses more without
        // telling us.
        if kind != KINDS[1] {
            assert_eq!(got + counters.lost_packets, sent.sent_packets, "{kind}");
        }
        assert!(there.all_home(), "{kind}");
    }
}

#[test]
fn buffers_of_other_pools_and_empty_ones_go_where_they_belong() {
    for kind in KINDS {
        let Some((_lab, one, other)) = cable(1) else {
            return;
        };
        let (mut here, mut there) = (Host::new(&one, kind), Host::new(&other, kind));
        let mut foreign = Pool::new(
            wire::memory::Region::heap(Pool::region_length(4, 2048)),
            4,
            2048,
            9,
        );
        let mut burst = Burst::new();
        for (own, kind, fill) in [
            (true, Kind::Data, 1),
            (false, Kind::Data, 2),
            (false, Kind::Empty, 3),
            (true, Kind::Empty, 4),
        ] {
            let pool = if own { &mut here.pool } else { &mut foreign };
            let mut packet = pool.take().unwrap();
            assert!(packet.set_frame(&[fill; 60], LinkType::Ethernet));
            packet.set_kind(kind);
            burst.push(packet);
        }
        here.ports[0].transmit(0, &mut here.pool, &mut burst);
        assert_eq!(burst.len(), 2, "{kind}");
        for packet in burst.drain(..) {
            assert_eq!((packet.kind(), packet.origin()), (Kind::Empty, 9), "{kind}");
            foreign.give(packet);
        }
        let got: Vec<u8> = there.receive(3).iter().map(|(_, frame)| frame[0]).collect();
        assert_eq!(got, [1, 2], "{kind}");
        assert_eq!(here.ports[0].counters().sent_packets, 2, "{kind}");
        assert!(here.all_home() && there.all_home(), "{kind}");
    }
}

#[test]
fn a_frame_longer_than_the_mtu_is_unsent_and_the_rest_goes_on() {
    for kind in KINDS {
        let Some((_lab, one, other)) = cable(1) else {
            return;
        };
        let (mut here, mut there) = (Host::new(&one, kind), Host::new(&other, kind));
        here.send(&[vec![1; 60], vec![2; 1600], vec![3; 60]]);
        let got: Vec<u8> = there.receive(3).iter().map(|(_, frame)| frame[0]).collect();
        assert_eq!(got, [1, 3], "{kind}");
        let counters = here.ports[0].counters();
        assert_eq!((counters.sent_packets, counters.unsent_packets), (2, 1), "{kind}");
        assert!(here.all_home(), "{kind}");
    }
}

/// UDP packets of so many flows, a few of each; the source port tells the flow.
fn flows(count: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..5 {
        for flow in 0..count {
            let mut frame = Vec::new();
            etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                .udp(1000 + flow, 53)
                .write(&mut frame, &[0; 20])
                .unwrap();
            frames.push(frame);
        }
    }
    frames
}

fn flow_of(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

#[test]
fn ports_with_one_fanout_number_share_flows() {
    let Some((_lab, one, other)) = cable(1) else {
        return;
    };
    let mut here = Host::new(&one, KINDS[0]);
    let uri = "afpacket:eth0?take=everything&fanout=7";
    let mut there = Host::try_new(&other, &[uri, uri], 8192).unwrap();
    let frames = flows(100);
    here.send(&frames);
    let got = there.receive(frames.len());
    assert_eq!(got.len(), frames.len());
    let of: [BTreeSet<u16>; 2] = [0, 1].map(|port| {
        got.iter()
            .filter(|(at, _)| *at == port)
            .map(|(_, frame)| flow_of(frame))
            .collect()
    });
    println!("{} flows at one, {} at the other", of[0].len(), of[1].len());
    assert!(of[0].len() > 10 && of[1].len() > 10);
    assert!(of[0].is_disjoint(&of[1]));
}

#[test]
fn all_queues_of_an_interface_are_read_or_none() {
    let Some((_lab, one, other)) = cable(4) else {
        return;
    };
    let mut here = Host::new(&one, KINDS[0]);
    let partly = Host::try_new(&other, &["afxdp:eth0?take=everything&queue=1"], 8192);
    let error = partly.err().unwrap().to_string();
    assert!(
        error.starts_with("no port reads queue 0, 2, 3 of `eth0`"),
        "{error}"
    );
    let error = Host::try_new(&other, &["afxdp:eth0?queue=4"], 8192)
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("`eth0` has no queue 4"), "{error}");
    let twice = ["afxdp:eth0?take=everything", "afxdp:eth0?take=everything&queue=2"];
    let error = Host::try_new(&other, &twice, 8192).err().unwrap().to_string();
    assert!(error.starts_with("two ports read queue 2 of `eth0`"), "{error}");
    let differing = ["afxdp:eth0?take=everything&queue=1", "afxdp:eth0?queue=2"];
    let error = Host::try_new(&other, &differing, 8192).err().unwrap().to_string();
    assert!(error.contains("with different `mode` or `take`"), "{error}");

    for uris in [
        vec!["afxdp:eth0?take=everything"],
        vec![
            "afxdp:eth0?take=everything&queue=0",
            "afxdp:eth0?take=everything&queue=1",
            "afxdp:eth0?take=everything&queue=2",
            "afxdp:eth0?take=everything&queue=3",
        ],
    ] {
        let mut there = Host::try_new(&other, &uris, 8192).unwrap();
        let frames = flows(100);
        here.send(&frames);
        let got = there.receive(frames.len());
        assert_eq!(got.len(), frames.len(), "{uris:?}");
        let at: BTreeSet<usize> = got.iter().map(|(port, _)| *port).collect();
        println!("frames at {} of {} ports", at.len(), uris.len());
        assert!(at.len() == uris.len() || at.len() > 1, "{at:?}");
        assert!(there.all_home());
    }
}
