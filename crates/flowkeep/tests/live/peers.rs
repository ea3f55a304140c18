//! Links between processes over a cable that loses, doubles and reorders: all packets are
//! delivered, once each and in order, both ways, and a peer that goes away and comes back is
//! noticed. Their text cannot be read on the cable.
//!
//! The kernel makes the cable bad (netem); where it cannot, each end does it to its own frames.

use crate::network::alone;
use adapters::clock::monotonic_ns;
use adapters::ether::EtherLink;
use adapters::interface::Interface;
use adapters::report::Reports;
use adapters::udp::{UdpLink, UdpSettings};
use lab::process::Run;
use lab::{LabError, Namespace};
use protocols::channel::{DropReason, Key, Keys, Protection};
use protocols::link::geneve::Front;
use runtime::env::{BURST, Burst, Port};
use runtime::message::Message;
use runtime::peer::{FrameLink, Peer, PeerSettings};
use rustix::net;
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::memory::Region;
use wire::packet::Kind;
use wire::{LinkType, PacketBox, Pool};

const COUNT: u64 = 30_000;
const BUFFERS: usize = 512;
const LENGTH: usize = 3712;
/// From the losses here no peer is to conclude that the other end is dead.
const DEAD_AFTER: u64 = 1_500_000_000;
const PATIENCE: u64 = 120_000_000_000;
const NETEM: &str = "netem limit 100000 delay 500us 200us loss 1% duplicate 1% reorder 5%";

/// Opens a host's link: its own number, and the other's.
type Open = fn(host: u16, peer: u16) -> Box<dyn FrameLink>;

struct End {
    peer: Peer<Box<dyn FrameLink>>,
    tap: Tap,
    pool: Pool,
    sent: u64,
    received: u64,
}

/// Looks at all frames of the host's interfaces, whatever they are.
struct Tap {
    socket: OwnedFd,
    frames: u64,
}

impl Tap {
    fn open() -> Tap {
        let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
        let all = Some(net::eth::ALL);
        let socket = net::socket_with(net::AddressFamily::PACKET, net::SocketType::RAW, flags, all).unwrap();
        Tap { socket, frames: 0 }
    }

    /// Checks that no frame has a stretch that [`fill`] writes: a byte many times. Zeros and ones
    /// are in heads, too.
    fn look(&mut self) {
        let mut frame = [0; 2000];
        while let Ok((length, _)) = net::recv(&self.socket, &mut frame[..], net::RecvFlags::empty()) {
            self.frames += u64::from(length > 500);
            let mut runs = frame[..length].chunk_by(|a, b| a == b);
            let clear = runs.find(|run| run.len() >= 24 && ![0, 0xff].contains(&run[0]));
            assert_eq!(clear, None, "a packet can be read in a frame of {length} bytes");
        }
    }
}

fn protection() -> Protection {
    Protection::Keyed(Keys::new(Key::new(3, [9; 32]).unwrap()))
}

/// A link that is as bad as the cable would be.
struct Worse {
    link: Box<dyn FrameLink>,
    random: u64,
    /// Sent behind the next one.
    late: Option<Vec<u8>>,
}

impl FrameLink for Worse {
    fn frame_max(&self) -> usize {
        self.link.frame_max()
    }
    fn receive(&mut self) -> Option<&mut [u8]> {
        self.link.receive()
    }
    fn send(&mut self, frame: &[u8]) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        match self.random % 100 {
            0 => return,
            1 => self.link.send(frame),
            2..=6 if self.late.is_none() => {
                self.late = Some(frame.to_vec());
                return;
            }
            _ => {}
        }
        self.link.send(frame);
        if let Some(late) = self.late.take() {
            self.link.send(&late);
        }
    }
    fn flush(&mut self) {
        self.link.flush();
    }
    fn counters(&self) -> runtime::PortCounters {
        self.link.counters()
    }
}

impl End {
    fn new(host: u16, open: Open, is_cable_good: bool) -> End {
        let peer = 3 - host;
        let incarnation = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let mut link = open(host, peer);
        if is_cable_good {
            link = Box::new(Worse {
                link,
                random: u64::from(host),
                late: None,
            });
        }
        let mut settings = PeerSettings::new(host, peer, incarnation, protection());
        settings.channel.frame_max = link.frame_max();
        settings.channel.salt = adapters::keys::salt().unwrap();
        settings.dead_after_ns = DEAD_AFTER;
        let mut end = End {
            peer: Peer::new(link, settings, monotonic_ns()).unwrap(),
            pool: Pool::new(
                Region::heap(Pool::region_length(BUFFERS, LENGTH)),
                BUFFERS,
                LENGTH,
                host as u8,
            ),
            tap: Tap::open(),
            sent: 0,
            received: 0,
        };
        end.peer.attach(&mut end.pool).unwrap();
        end
    }

    /// Receives packets, and compares them with those that must have been sent.
    fn receive(&mut self) {
        self.tap.look();
        let mut burst = Burst::new();
        self.peer.receive(monotonic_ns(), &mut self.pool, &mut burst);
        for packet in burst {
            let (kind, length) = shape(self.received);
            assert_eq!((packet.kind(), packet.frame().len()), (kind, length));
            assert_eq!(packet.frame()[..8], self.received.to_be_bytes());
            self.received += 1;
            self.pool.give(packet);
        }
    }

    fn send(&mut self, until: u64) {
        let mut burst = Burst::new();
        while self.sent < until && burst.len() < self.peer.room().min(BURST) {
            let mut packet = self
                .pool
                .take()
                .expect("as much as there is room for, and no more");
            fill(&mut packet, self.sent);
            burst.push(packet);
            self.sent += 1;
        }
        self.peer.transmit(monotonic_ns(), &mut self.pool, &mut burst);
        assert!(burst.is_empty());
    }

    /// Until it is so, or the test's time is over.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut End) -> bool) {
        let end = monotonic_ns() + PATIENCE;
        while !is_so(self) {
            let (sent, received) = (self.sent, self.received);
            assert!(
                monotonic_ns() < end,
                "{what}: sent {sent}, received {received}, {:?}",
                self.peer.channel_counters()
            );
            self.receive();
            std::thread::yield_now();
        }
    }
}

/// The kind and the length of this number's packet.
fn shape(number: u64) -> (Kind, usize) {
    match number % 7 {
        0 => (Kind::Message, 8 + (number as usize * 37) % 3000),
        _ => (Kind::Data, 60 + (number as usize * 101) % 1400),
    }
}

fn fill(packet: &mut PacketBox, number: u64) {
    let (kind, length) = shape(number);
    match kind {
        Kind::Message => Message::begin(packet),
        _ => {
            packet.reset(0, LinkType::Ethernet);
            packet.set_kind(Kind::Data);
        }
    }
    assert!(packet.set_length(length));
    packet.frame_mut().fill(number as u8);
    packet.frame_mut()[..8].copy_from_slice(&number.to_be_bytes());
}

fn over(prepare: impl Fn(&Namespace, u16), open: Open) {
    let Some((mut lab, _alone)) = alone(&[("tc", "iproute2")]) else {
        return;
    };
    let hosts = [1, 2].map(|number| lab.namespace(&format!("host{number}")).unwrap());
    lab.cable((&hosts[0], "eth0"), (&hosts[1], "eth0")).unwrap();
    let mut is_cable_good = true;
    for (number, host) in [1, 2].into_iter().zip(&hosts) {
        prepare(host, number);
        let tried = host.run(
            &format!("tc qdisc add dev eth0 root {NETEM}"),
            Run::within(Duration::from_secs(10)),
        );
        match tried {
            Ok(_) => is_cable_good = false,
            Err(LabError::Failed { .. }) => {
                println!("this kernel has no netem: the ends lose frames by themselves")
            }
            Err(error) => panic!("{error}"),
        }
    }
    let meeting = Barrier::new(2);
    std::thread::scope(|scope| {
        for (number, host) in [1u16, 2].into_iter().zip(&hosts) {
            let meeting = &meeting;
            scope.spawn(move || {
                host.enter().unwrap();
                at_host(number, &|| End::new(number, open, is_cable_good), meeting);
            });
        }
    });
}

fn at_host(number: u16, begin: &dyn Fn() -> End, meeting: &Barrier) {
    let mut end = begin();
    end.until("they meet", |end| end.peer.session() != 0);
    let session = end.peer.session();
    end.until("all is delivered", |end| {
        end.send(COUNT);
        end.sent == COUNT && end.received == COUNT && end.peer.is_drained()
    });
    assert_eq!((end.peer.session(), end.pool.free()), (session, BUFFERS));
    let counters = end.peer.channel_counters().clone();
    assert!(counters.retransmissions > 50, "frames were lost: {counters:?}");
    assert!(
        counters.dropped(DropReason::Replayed) > 50,
        "frames came twice: {counters:?}"
    );
    assert_eq!(counters.dropped(DropReason::Tag), 0);
    assert!(end.tap.frames > 1000, "the cable was looked at");
    assert_eq!(end.peer.own_counters(), Default::default());
    println!(
        "host {number}: {} frames sent, {} of them again, {} timeouts, round trip {} µs, {} refused by the link",
        counters.frames_sent,
        counters.retransmissions,
        counters.timeouts,
        end.peer.round_trip().unwrap_or(0) / 1000,
        end.peer.link_mut().counters().refused_packets,
    );
    // The last acknowledgement may have been lost: an end that is done answers until the other is.
    linger(&mut end);
    meeting.wait();
    if number == 2 {
        // The second host's end goes, and comes back with nothing.
        drop(end);
        meeting.wait();
        end = begin();
        end.until("it is met again", |end| end.peer.session() != 0);
    } else {
        end.until("its death is noticed", |end| end.peer.session() == 0);
        meeting.wait();
        end.until("it is met again", |end| end.peer.session() != 0);
        (end.sent, end.received) = (0, 0);
    }
    assert!(end.peer.session() > session);
    end.until("what is new is delivered", |end| {
        end.send(1000);
        end.sent == 1000 && end.received == 1000 && end.peer.is_drained()
    });
    linger(&mut end);
    meeting.wait();
}

/// Goes on for a while, in which the other end may ask again for packets that it did not hear.
fn linger(end: &mut End) {
    let until = monotonic_ns() + 1_000_000_000;
    while monotonic_ns() < until {
        end.receive();
        std::thread::yield_now();
    }
}

#[test]
fn a_link_over_udp_loses_nothing() {
    over(
        |host, number| host.address("eth0", &format!("10.0.0.{number}/24")).unwrap(),
        |host, peer| {
            let address = |number| format!("10.0.0.{number}").parse().unwrap();
            let front = Front {
                network: 5,
                from: host,
                to: peer,
            };
            let settings = UdpSettings::new(address(host), address(peer), front);
            Box::new(UdpLink::open(settings, &Reports::default()).unwrap())
        },
    );
}

#[test]
fn a_link_on_ethernet_loses_nothing() {
    over(
        |host, number| {
            host.ip(&format!("link set eth0 address 02:00:00:00:00:0{number}"))
                .unwrap();
        },
        |host, peer| {
            let interface = Interface::find("eth0").unwrap();
            let there = [2, 0, 0, 0, 0, peer as u8];
            Box::new(EtherLink::open(&interface, there, (host, peer), &Reports::default()).unwrap())
        },
    );
}
