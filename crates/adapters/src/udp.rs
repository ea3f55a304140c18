//! A link to a worker on another host: channel frames in Geneve over UDP.
//!
//! # Theory of operation
//!
//! [`Front`] goes before a frame, and a batch of them to the kernel. A datagram is held against the
//! network and the two workers, and handed on without its front. The channel judges the rest: its
//! tag, its session, its number.
//!
//! ```text
//!   channel ── frame ─► send: │ Geneve, 16 │ frame │ ─► UDP ─► receive ── frame ─► channel
//! ```
//!
//! Each pair of workers has a link of its own, and it two sockets at each end. Datagrams go to
//! Geneve's port, 6081, from one that follows from the pair ([`source_port`]): networks that spread
//! by ports keep a pair's order, and the kernel knows by the sender's port which of the sockets at
//! 6081 a datagram is for, as each is connected to one.
//!
//! ```text
//!   host A, worker 1                             host B, worker 2
//!   sends    A:source_port(1, 2) ──────────────► B:6081, connected to A:source_port(1, 2)    receives
//!   receives A:6081, connected   ◄────────────── B:source_port(2, 1)                         sends
//! ```
//!
//! A process that is started twice is told so: a pair's sending port can be had once. A frame that
//! the kernel does not take is lost, counted as unsent, and told once; the channel sends it again.
//!
//! Invariants: a datagram that is not this link's, or was cut off, is counted as refused and
//! changes nothing; nothing is allocated after the start.
//!
//! Not here: keys, which workers the peers are.

use crate::datagrams::{Incoming, Outgoing, widen};
use crate::report::Reports;
use protocols::link::geneve::{FRONT, Front, PORT, source_port};
use runtime::env::PortCounters;
use runtime::peer::FrameLink;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The longest frame for a path that carries IP packets of so many bytes.
pub fn frame_max(mtu: usize, address: IpAddr) -> usize {
    let header = if address.is_ipv4() { 20 } else { 40 };
    mtu.saturating_sub(header + 8 + FRONT)
}

/// The settings of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpSettings {
    /// This host's address.
    pub local: IpAddr,
    /// The other host's.
    pub peer: IpAddr,
    /// The port that frames go to, at both ends.
    pub port: u16,
    /// This end's front: network, its worker, and the other end's.
    pub front: Front,
    /// The longest frame, in bytes.
    pub frame_max: usize,
}

impl UdpSettings {
    /// Geneve's port, and frames for an MTU of 1500 bytes.
    pub fn new(local: IpAddr, peer: IpAddr, front: Front) -> Self {
        UdpSettings {
            local,
            peer,
            port: PORT,
            front,
            frame_max: frame_max(1500, local),
        }
    }
}

/// Why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The two addresses are of two families.
    #[error(
        "there is no way from {local} to {peer}: one is IPv4 and the other IPv6; give both hosts' addresses in one of them"
    )]
    Families {
        /// This host's.
        local: IpAddr,
        /// The other's.
        peer: IpAddr,
    },
    /// The address is not this host's.
    #[error("{address} is not an address of this host; `ip address` lists those that are")]
    NotHere {
        /// The address.
        address: IpAddr,
    },
    /// Another socket has the port.
    #[error(
        "UDP port {port} of {address} is taken: perhaps this member runs already, or another program speaks Geneve here (`ss -ulnp` tells)"
    )]
    Taken {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// Anything else.
    #[error("a link from {local} to {peer} cannot be opened: {source}")]
    System {
        /// From where.
        local: IpAddr,
        /// To where.
        peer: IpAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// One end of a link over UDP.
pub struct UdpLink {
    receiver: OwnedFd,
    sender: OwnedFd,
    settings: UdpSettings,
    front: [u8; FRONT],
    incoming: Incoming,
    outgoing: Outgoing,
    counters: PortCounters,
    reports: Reports,
    told: Option<i32>,
}

impl UdpLink {
    /// Opens one end. `reports` gets later errors.
    pub fn open(settings: UdpSettings, reports: &Reports) -> Result<UdpLink, UdpError> {
        let UdpSettings {
            local,
            peer,
            port,
            front: Front { from, to, .. },
            ..
        } = settings;
        if local.is_ipv4() != peer.is_ipv4() {
            return Err(UdpError::Families { local, peer });
        }
        // Others' sockets at Geneve's port are this program's, too.
        let receiver = socket(
            SocketAddr::new(local, port),
            SocketAddr::new(peer, source_port(to, from)),
            true,
        );
        let sender = socket(
            SocketAddr::new(local, source_port(from, to)),
            SocketAddr::new(peer, port),
            false,
        );
        let explain = |port| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::AddrNotAvailable => UdpError::NotHere { address: local },
                io::ErrorKind::AddrInUse => UdpError::Taken { address: local, port },
                _ => UdpError::System { local, peer, source },
            }
        };
        let mut front = [0; FRONT];
        settings.front.write(&mut front);
        // With options of others in front of ours.
        let longest = settings.frame_max + FRONT + 256;
        Ok(UdpLink {
            receiver: receiver.map_err(explain(port))?,
            sender: sender.map_err(explain(source_port(from, to)))?,
            front,
            incoming: Incoming::new(longest),
            outgoing: Outgoing::new(settings.frame_max + FRONT),
            counters: PortCounters::default(),
            reports: reports.clone(),
            told: None,
            settings,
        })
    }

    fn send_batch(&mut self) {
        if let Some(error) = self.outgoing.send(self.sender.as_fd(), &mut self.counters) {
            self.tell(&error);
        }
    }

    /// Says what fails, once for each way in turn.
    #[cold]
    fn tell(&mut self, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(0);
        if self.told.replace(code) == Some(code) {
            return;
        }
        let UdpSettings {
            local,
            peer,
            frame_max,
            ..
        } = self.settings;
        let remedy = match code {
            libc::EMSGSIZE => {
                format!("the path carries no IP packets for frames of {frame_max} bytes: raise its MTU")
            }
            libc::ENETUNREACH | libc::EHOSTUNREACH => {
                "there is no route to the other host: `ip route get` tells".into()
            }
            libc::EPERM => "a packet filter of this host forbids it".into(),
            _ => String::new(),
        };
        let link = format_args!("link from {local} to {peer}").to_string();
        self.reports
            .tell(link, format_args!("a frame cannot be sent: {error}"), remedy);
    }
}

/// A socket that is bound and connected; with others at the same port, if they may be.
fn socket(local: SocketAddr, peer: SocketAddr, is_shared: bool) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if is_shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    widen(&socket)?;
    net::bind(&socket, &local)?;
    net::connect(&socket, &peer)?;
    Ok(socket)
}

impl FrameLink for UdpLink {
    fn frame_max(&self) -> usize {
        self.settings.frame_max
    }

    fn receive(&mut self) -> Option<&mut [u8]> {
        let ours = self.settings.front;
        self.incoming
            .next(self.receiver.as_fd(), &mut self.counters, |datagram| {
                let (front, frame) = Front::read(datagram, ours.network).ok()?;
                let is_ours = (front.from, front.to) == (ours.to, ours.from);
                is_ours.then(|| datagram.len() - frame.len())
            })
    }

    fn send(&mut self, frame: &[u8]) {
        if self.outgoing.is_full() {
            self.send_batch();
        }
        if !self.outgoing.push(&self.front, frame) {
            self.counters.unsent_packets += 1;
        }
    }

    fn flush(&mut self) {
        self.send_batch();
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        Some(vec![self.receiver.as_raw_fd()])
    }

    fn refusals(&self) -> u64 {
        self.outgoing.refusals
    }

    fn look_for_refusals(&mut self) {
        // The socket tells each error once: here, or to the next datagram.
        match sockopt::socket_error(&self.sender) {
            Ok(Err(Errno::CONNREFUSED)) => self.outgoing.refusals += 1,
            Ok(Err(error)) => self.tell(&error.into()),
            Ok(Ok(())) | Err(_) => {}
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Two addresses of this host that no other test has.
    fn addresses() -> [IpAddr; 2] {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let host = NEXT.fetch_add(2, Ordering::Relaxed);
        let process = std::process::id();
        [0, 1].map(|end| {
            IpAddr::V4(Ipv4Addr::new(
                127,
                (process >> 8) as u8 | 1,
                process as u8,
                host + end,
            ))
        })
    }

    fn front(from: u16, to: u16) -> Front {
        Front { network: 9, from, to }
    }

    fn open(local: IpAddr, peer: IpAddr, front: Front) -> UdpLink {
        UdpLink::open(UdpSettings::new(local, peer, front), &Reports::default()).unwrap()
    }

    fn received(link: &mut UdpLink) -> Vec<Vec<u8>> {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut all: Vec<Vec<u8>> = Vec::new();
        while all.is_empty() && std::time::Instant::now() < until {
            while let Some(frame) = link.receive() {
                all.push(frame.to_vec());
            }
        }
        all
    }

    /// Several pairs between two hosts, both ways, more than a batch.
    #[test]
    fn each_pair_has_its_own() {
        let [a, b] = addresses();
        let pairs = [(1, 2), (1, 3), (4, 2)];
        let mut links: Vec<(UdpLink, UdpLink)> = pairs
            .iter()
            .map(|&(from, to)| (open(a, b, front(from, to)), open(b, a, front(to, from))))
            .collect();
        for (index, (near, far)) in links.iter_mut().enumerate() {
            for number in 0..100u8 {
                near.send(&[index as u8, number]);
                far.send(&[index as u8, number, 0]);
            }
            near.flush();
            far.flush();
        }
        for (index, (near, far)) in links.iter_mut().enumerate() {
            let (to_far, to_near) = (received(far), received(near));
            let expected =
                |extra: usize| (0..100u8).map(move |n| [vec![index as u8, n], vec![0; extra]].concat());
            assert!(to_far.into_iter().eq(expected(0)) && to_near.into_iter().eq(expected(1)));
            assert_eq!(
                far.counters().refused_packets + near.counters().refused_packets,
                0
            );
            assert_eq!(
                (near.counters().sent_packets, far.counters().received_packets),
                (100, 100)
            );
        }
    }

    #[test]
    fn it_goes_over_ipv6_too() {
        let host = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let unique = std::process::id() as u16 & 0x3f;
        let settings = |from, to| UdpSettings {
            port: 20_000 + unique,
            ..UdpSettings::new(host, host, front(from, to))
        };
        let ends = (unique | 64, unique);
        let mut a = UdpLink::open(settings(ends.0, ends.1), &Reports::default()).unwrap();
        let mut b = UdpLink::open(settings(ends.1, ends.0), &Reports::default()).unwrap();
        a.send(b"frame");
        a.flush();
        assert_eq!(received(&mut b), [b"frame"]);
    }

    /// Datagrams that are not this link's are counted and not passed on.
    #[test]
    fn what_is_not_this_links_is_refused() {
        let [a, b] = addresses();
        let mut here = open(a, b, front(1, 2));
        let there = UdpSocket::bind((b, source_port(2, 1))).unwrap();
        let stranger = UdpSocket::bind((b, 0)).unwrap();
        let mut good = [0; FRONT + 4];
        front(2, 1).write(good.first_chunk_mut().unwrap());
        // The kernel keeps this one off: it is of another port.
        stranger.send_to(&good, (a, PORT)).unwrap();
        let mut other = good;
        other[15] = 5;
        let long = [&good[..], &[0; 4000]].concat();
        for bytes in [&good[..5], &other, &[0xff; 100], &[], &long] {
            there.send_to(bytes, (a, PORT)).unwrap();
        }
        there.send_to(&good, (a, PORT)).unwrap();
        assert_eq!(received(&mut here), [&good[FRONT..]]);
        let counters = here.counters();
        assert_eq!((counters.received_packets, counters.refused_packets), (1, 5));
    }

    /// The sender never stops, so that the socket is never empty.
    #[test]
    fn a_flood_of_bad_fronts_does_not_keep_a_worker() {
        const FLOOD: u64 = 2000;
        let [a, b] = addresses();
        let mut here = open(a, b, front(1, 2));
        let there = UdpSocket::bind((b, source_port(2, 1))).unwrap();
        let mut good = [0; FRONT + 4];
        front(2, 1).write(good.first_chunk_mut().unwrap());
        let mut bad = good;
        bad[15] = 5;
        for _ in 0..FLOOD {
            there.send_to(&bad, (a, PORT)).unwrap();
        }
        there.send_to(&good, (a, PORT)).unwrap();
        let mut before = 0;
        let mut calls = 0;
        // Each call refuses some, and none of them more than a bounded number.
        let frame = loop {
            let frame = here.receive().map(|frame| frame.to_vec());
            let refused = here.counters().refused_packets;
            assert!(refused - before <= 96, "{} in one call", refused - before);
            before = refused;
            calls += 1;
            if frame.is_some() || calls > FLOOD {
                break frame;
            }
        };
        assert_eq!(frame, Some(good[FRONT..].to_vec()));
        assert_eq!(here.counters().refused_packets, FLOOD);
    }

    /// A batch wakes no worker that sleeps, so no frame may stay in one.
    #[test]
    fn a_frame_behind_bad_fronts_does_not_wait_outside_of_the_socket() {
        let [a, b] = addresses();
        for bad_ones in 60..70 {
            let mut here = open(a, b, front(1, 2));
            let there = UdpSocket::bind((b, source_port(2, 1))).unwrap();
            let mut good = [0; FRONT + 4];
            front(2, 1).write(good.first_chunk_mut().unwrap());
            let mut bad = good;
            bad[15] = 5;
            for _ in 0..bad_ones {
                there.send_to(&bad, (a, PORT)).unwrap();
            }
            there.send_to(&good, (a, PORT)).unwrap();
            while here.receive().is_none() {
                let fd = here.wakes_by().unwrap()[0];
                let mut poll = libc::pollfd {
                    fd,
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one structure, borrowed for the call.
                let woken = unsafe { libc::poll(&raw mut poll, 1, 10_000) };
                assert_eq!(woken, 1, "a frame behind {bad_ones} stays in a batch");
            }
        }
    }

    /// The peer is not there yet: sent frames are lost, and the link works on.
    #[test]
    fn a_missing_peer_is_no_error() {
        let [a, b] = addresses();
        let mut here = open(a, b, front(1, 2));
        for _ in 0..10 {
            here.send(b"hello");
            here.flush();
            assert!(here.receive().is_none());
        }
        let mut there = open(b, a, front(2, 1));
        here.send(b"now");
        here.flush();
        assert_eq!(received(&mut there), [b"now"]);
    }

    /// A link that sends nothing more hears it, too.
    #[test]
    fn that_nothing_listens_is_heard_without_another_frame() {
        let [a, b] = addresses();
        let mut here = open(a, b, front(1, 2));
        here.send(b"question");
        here.flush();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while here.refusals() == 0 && std::time::Instant::now() < until {
            here.look_for_refusals();
        }
        here.look_for_refusals();
        assert_eq!(here.refusals(), 1);
    }

    #[test]
    fn errors_say_what_to_do() {
        let [a, b] = addresses();
        let say = |settings| {
            UdpLink::open(settings, &Reports::default())
                .err()
                .unwrap()
                .to_string()
        };
        let good = UdpSettings::new(a, b, front(1, 2));
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert!(say(UdpSettings { peer: v6, ..good }).contains("one is IPv4"));
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert!(
            say(UdpSettings {
                local: elsewhere,
                ..good
            })
            .contains("not an address of this host")
        );
        let _first = open(a, b, front(1, 2));
        assert!(say(good).contains("runs already"));
        // Too long for the path.
        let reports = Reports::default();
        let mut link = UdpLink::open(
            UdpSettings {
                front: front(7, 8),
                frame_max: 70_000,
                ..good
            },
            &reports,
        )
        .unwrap();
        link.send(&[0; 69_000]);
        link.flush();
        assert_eq!(link.counters().unsent_packets, 1);
        assert!(reports.take()[0].to_string().contains("raise its MTU"));
    }
}
