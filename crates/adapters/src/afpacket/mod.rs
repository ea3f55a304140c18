//! A network interface by way of packet sockets (`AF_PACKET`): works with every driver, costs a
//! copy each way.
//!
//! # Theory of operation
//!
//! ```text
//!                     ┌── socket filter: the kernel's own frames are left out
//!   interface ──┬─────▼────────► ring of slots ──► receive: tag, checksum, segments ──► packet buffers
//!               └─► tc ingress: Flowkeep's frames end here ──► the kernel's stack sees its own only
//!
//!   packet buffers ──► sendmmsg ──► queueing discipline ──► interface
//! ```
//!
//! *Receive.* The kernel copies each frame into the next slot of a ring that both sides see
//! (`ring.rs`) and sets its status; the port copies it into a packet buffer and hands the slot
//! back. A frame may be a super-frame of 64 KiB with a partial checksum: the header before it says
//! so, and it becomes as many packets as it has segments ([`crate::interface::offload`]), over
//! several calls if the burst is full. A VLAN tag that the driver took off is put back.
//!
//! *Transmit.* One `sendmmsg` for a burst, straight from the packet buffers, with checksums
//! complete (`send.rs`). A ring of slots for sending was not chosen: its slots are not free before
//! the *receiver* has read the data when both ends are on one machine, and it saves no copy
//! ([decision 10](../../../docs/decisions/0010-live-ports.md)).
//!
//! *The kernel.* A packet socket sees a copy; the original goes on to the kernel's stack, which
//! would forward it a second time or answer it with a reset. A program at the interface's ingress,
//! behind the copies, drops Flowkeep's frames. A descriptor holds the program, so that it is gone
//! when this process is, however that ends.
//!
//! *Fanout.* Several ports with the same `fanout` number share what one interface receives, by flow
//! or by queue.
//!
//! Invariants: frames of the ring = packets received (segments counted each) + refused; frames lost
//! because the ring was full are counted apart ([`PortCounters::lost_packets`]); a slot is read
//! only while it is ours.
//!
//! Not here: receiving without a copy ([`crate::afxdp`]).

mod ring;
mod send;

use crate::consume;
use crate::interface::addresses::Addresses;
use crate::interface::bpf::{Attachment, Link, Program, ProgramKind};
use crate::interface::claims::{CLAIMS_MAX, Claims, Responder};
use crate::interface::filter::{Place, Take, program};
use crate::interface::offload::{Cut, Work, complete_checksum};
use crate::interface::rights::{Capability, Rights};
use crate::interface::system::{bind, set_option, socket};
use crate::interface::{Interface, InterfaceError, LINK_HEADER_MAX};
use crate::report::Reports;
use ring::{Received, Ring};
use runtime::env::{AttachError, Burst, Port, PortCounters};
use send::Sender;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use wire::{LinkType, Packet, PacketBox, Pool, Prefix};

/// How several ports share what one interface receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanoutBy {
    /// Both directions of a flow go to one port.
    #[default]
    Hash,
    /// By the device's queue.
    Queue,
}

/// Which frames the port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// IP in frames to this host that is not for this host itself.
    #[default]
    Routed,
    /// Every frame: a bridge.
    Everything,
}

/// How an interface is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSettings {
    /// Which frames are taken; default: those that are not for this host itself.
    pub taking: Taking,
    /// A number that ports share which share an interface's frames; default: none.
    pub fanout: Option<u16>,
    /// How they share them.
    pub fanout_by: FanoutBy,
}

/// Which half of a port is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Packets come from it.
    Receive,
    /// Packets go to it.
    Transmit,
    /// Both.
    Both,
}

/// An interface by way of packet sockets.
pub struct PacketPort {
    name: String,
    receiver: Option<Receiver>,
    sender: Option<Sender>,
    /// The longest frame that the interface carries.
    frame_max: usize,
    counters: PortCounters,
    /// Answers for claimed addresses.
    responder: Responder,
    interface: Interface,
    reports: Reports,
    /// Whether it has been said that frames were refused.
    told: bool,
}

struct Receiver {
    ring: Ring,
    /// The frame in front, if it is being cut, and its next segment.
    cutting: Option<(Cut, usize)>,
    /// Keeps Flowkeep's frames from the kernel's stack.
    _ingress: Link,
    /// The maps that the programs look at.
    taken: Option<(Arc<Addresses>, Claims)>,
}

/// The fate of the frame in front.
enum Taken {
    /// The frame, or a segment of it, is a packet now.
    Packet,
    /// The frame can be no packet.
    Refused(&'static str),
    /// The buffer is as before; this is no packet either, and nothing is wrong.
    Long(usize),
}

impl PacketPort {
    /// The checks before anything is opened: rights, and the interface.
    pub fn look(name: &str, half: Half) -> Result<Interface, InterfaceError> {
        let needed: &[Capability] = match half {
            Half::Transmit => &[Capability::NetRaw],
            Half::Receive | Half::Both => &[Capability::NetRaw, Capability::NetAdmin, Capability::Bpf],
        };
        Rights::of_this_thread().need(&format!("afpacket:{name}"), needed)?;
        Interface::find(name)
    }

    /// Opens the interface called `name`. `addresses` is asked for where the settings need to know
    /// this host's own.
    pub fn open(
        name: &str,
        settings: PacketSettings,
        half: Half,
        addresses: impl FnOnce() -> Result<Arc<Addresses>, InterfaceError>,
        reports: Reports,
    ) -> Result<Self, InterfaceError> {
        let port = format!("afpacket:{name}");
        let receives = half != Half::Transmit;
        let interface = Self::look(name, half)?;
        let receiver = match receives {
            true => Some(Receiver::open(&port, &interface, settings, addresses)?),
            false => None,
        };
        let sender = match half {
            Half::Receive => None,
            _ => {
                Some(Sender::open(&interface).map_err(failed(&port, "its sending socket cannot be opened"))?)
            }
        };
        Ok(PacketPort {
            name: port,
            receiver,
            sender,
            frame_max: interface.frame_max(),
            responder: Responder::new(interface.mac),
            interface,
            counters: PortCounters::default(),
            reports,
            told: false,
        })
    }
}

/// An error of the system, and the step that failed.
fn failed(port: &str, what: &'static str) -> impl Fn(io::Error) -> InterfaceError {
    advised(port, what, "")
}

fn advised(port: &str, what: &'static str, advice: &str) -> impl Fn(io::Error) -> InterfaceError {
    move |source| InterfaceError::System {
        port: port.to_owned(),
        what,
        source,
        advice: advice.to_owned(),
    }
}

/// Bytes that the kernel keeps for a port that receives from this interface, all of them there from
/// the start; of an interface that cannot be looked at the most.
pub fn ring_bytes(interface: &str) -> u64 {
    ring::bytes(interface) as u64
}

impl Receiver {
    fn open(
        port: &str,
        interface: &Interface,
        settings: PacketSettings,
        addresses: impl FnOnce() -> Result<Arc<Addresses>, InterfaceError>,
    ) -> Result<Self, InterfaceError> {
        let taken = match settings.taking {
            Taking::Everything => None,
            Taking::Routed => {
                let claims = Claims::new().map_err(failed(port, "no map for claimed addresses"))?;
                Some((addresses()?, claims))
            }
        };
        let take = match &taken {
            None => Take::Everything,
            Some((addresses, claims)) => Take::Routed {
                addresses: addresses.descriptor(),
                claims: claims.descriptor(),
                stations: addresses.stations(),
                interface: interface.index,
            },
        };
        // First the kernel is kept out: for a moment neither it nor Flowkeep has the packets,
        // rather than both.
        let load = |kind, place| {
            Program::load(kind, &program(place, take), "flowkeep")
                .map_err(failed(port, "the kernel refuses the filter"))
        };
        let ingress = load(ProgramKind::Traffic, Place::Ingress)?
            .attach(interface.index, Attachment::TrafficIngress)
            .map_err(advised(
                port,
                "the kernel cannot be kept from handling the same packets",
                "it needs Linux 6.6 or later for that; on an older one use afxdp",
            ))?;
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(failed(port, "no packet socket"))?;
        let ring = Ring::open(fd, interface).map_err(advised(
            port,
            "its ring cannot be made",
            "the ring takes up to 64 MiB of the kernel's memory; see whether so much is free",
        ))?;
        let filter = load(ProgramKind::SocketFilter, Place::Socket)?;
        set_option(
            ring.fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            &filter.descriptor(),
        )
        .map_err(failed(port, "the filter cannot be attached to its socket"))?;
        if settings.taking == Taking::Everything {
            promiscuous(ring.fd(), interface).map_err(failed(port, "promiscuous mode"))?;
        }
        join(ring.fd(), interface).map_err(failed(port, "its socket cannot be bound"))?;
        if let Some(number) = settings.fanout {
            let by = match settings.fanout_by {
                FanoutBy::Hash => libc::PACKET_FANOUT_HASH,
                FanoutBy::Queue => libc::PACKET_FANOUT_QM,
            };
            let value = libc::c_int::from(number) | (by as libc::c_int) << 16;
            set_option(ring.fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &value).map_err(advised(
                port,
                "it cannot join the others with its fanout number",
                "another program uses the number on another interface or in another way: choose another one",
            ))?;
        }
        Ok(Receiver {
            ring,
            cutting: None,
            _ingress: ingress,
            taken,
        })
    }
}

/// The error for a claim that the kernel does not take.
pub(crate) fn claim_failed(source: io::Error) -> AttachError {
    AttachError(format!(
        "the addresses that functions answer for cannot be claimed: {source}; at most {CLAIMS_MAX} prefixes can be"
    ))
}

/// Has the device receive frames for all link addresses, for as long as the socket lives.
fn promiscuous(fd: &OwnedFd, interface: &Interface) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: interface.index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// From now on the socket receives what the interface does.
fn join(fd: &OwnedFd, interface: &Interface) -> io::Result<()> {
    // SAFETY: it is the address structure of packet sockets.
    unsafe { bind(fd, &address(interface, libc::ETH_P_ALL as u16)) }
}

/// The interface as packet sockets name it.
pub(crate) fn address(interface: &Interface, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface.index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Makes the frame in front, or the next segment of it, the packet's.
fn take(received: &Received<'_>, cutting: &mut Option<(Cut, usize)>, packet: &mut Packet) -> Taken {
    if received.bytes.len() < received.length {
        return Taken::Long(received.length);
    }
    if cutting.is_none() {
        match received.header.work(received.bytes) {
            Err(_) => return Taken::Refused("a super-frame that cannot be cut into segments"),
            Ok(Work::Cut(cut)) => *cutting = Some((cut, 0)),
            Ok(work) => {
                if !packet.set_frame(received.bytes, LinkType::Ethernet) {
                    return Taken::Long(received.length);
                }
                if let Work::Checksum { start, offset } = work {
                    complete_checksum(packet.frame_mut(), start, offset);
                }
            }
        }
    }
    if let Some((cut, next)) = cutting {
        let index = *next;
        *next += 1;
        if !cut.write(received.bytes, index, packet) {
            return Taken::Long(cut.length_max());
        }
    }
    match received.tag {
        Some(tag) if !put_tag_back(packet, tag) => Taken::Refused("a frame with a tag too long for a buffer"),
        _ => Taken::Packet,
    }
}

/// Puts a VLAN tag that the driver took off behind the addresses again.
fn put_tag_back(packet: &mut Packet, (protocol, control): (u16, u16)) -> bool {
    if packet.frame().len() < 12 || !packet.grow_front(4) {
        return false;
    }
    let frame = packet.frame_mut();
    frame.copy_within(4..16, 0);
    frame[12..14].copy_from_slice(&protocol.to_be_bytes());
    frame[14..16].copy_from_slice(&control.to_be_bytes());
    true
}

impl PacketPort {
    /// Says once why a frame was refused; each refusal is counted.
    #[cold]
    fn refuse(&mut self, why: &Taken) {
        self.counters.refused_packets += 1;
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        match why {
            Taken::Refused(what) => self.reports.tell(&self.name, *what, "it is counted as refused"),
            Taken::Long(length) => self.reports.tell(
                &self.name,
                format_args!("a frame of {length} bytes is too long for a buffer"),
                "counted as refused; lower the interface's MTU, or restart Flowkeep if it was raised meanwhile",
            ),
            Taken::Packet => {}
        }
    }
}

impl Port for PacketPort {
    fn frame_max(&self) -> usize {
        match self.receiver {
            Some(_) => self.frame_max,
            None => 0,
        }
    }

    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        let room = Pool::frame_max_of(pool.memory().stride);
        if self.frame_max() <= room {
            return Ok(());
        }
        Err(AttachError(format!(
            "frames of {} bytes do not fit into buffers for {room}; lower its MTU with: ip link set dev {} mtu {}",
            self.frame_max,
            self.name.trim_start_matches("afpacket:"),
            room - LINK_HEADER_MAX as usize
        )))
    }

    fn claim(&mut self, addresses: &[Prefix]) -> Result<(), AttachError> {
        // A bridge's ports are on a link of others, and a port that only receives cannot answer.
        let taken = self
            .receiver
            .as_ref()
            .and_then(|receiver| receiver.taken.as_ref());
        if let (Some((_, claims)), Some(_)) = (taken, &self.sender) {
            claims.add(addresses, &self.interface).map_err(claim_failed)?;
            claims
                .remove(self.responder.beyond(addresses))
                .map_err(claim_failed)?;
            self.responder.claim(addresses);
        }
        Ok(())
    }

    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        let before = burst.len();
        self.receive_frames(now, pool, burst);
        if !self.responder.is_idle() && (burst.len() > before || self.responder.has_news()) {
            self.respond(now, pool, burst, before);
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        match &mut self.sender {
            Some(sender) => sender.send(burst, &mut self.counters, &self.name, &self.reports),
            None => self.counters.unsent_packets += crate::count_packets(burst),
        }
        consume(pool, burst, |_| ());
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        let receiver = self.receiver.iter();
        Some(receiver.map(|receiver| receiver.ring.fd().as_raw_fd()).collect())
    }

    fn counters(&self) -> PortCounters {
        let lost_packets = self.receiver.as_ref().map_or(0, |receiver| receiver.ring.lost());
        PortCounters {
            lost_packets,
            ..self.counters
        }
    }
}

impl PacketPort {
    fn receive_frames(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() {
            let Some(receiver) = &mut self.receiver else {
                return;
            };
            let Some(received) = receiver.ring.front() else {
                return;
            };
            let Some(mut packet) = pool.take() else { return };
            let taken = take(&received, &mut receiver.cutting, &mut packet);
            let whole = receiver.cutting.is_none_or(|(cut, next)| next >= cut.count());
            if whole {
                receiver.cutting = None;
                receiver.ring.release();
            }
            if let Taken::Packet = taken {
                self.received(now, &mut packet);
                burst.push(packet);
            } else {
                pool.give(packet);
                self.refuse(&taken);
            }
        }
    }

    /// Answers requests for claimed addresses, and says unasked where they are.
    fn respond(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst, before: usize) {
        let mut answers = Burst::new();
        self.responder
            .pick(burst, before, &mut answers, &mut self.counters);
        self.responder.announce(pool, &mut answers);
        if answers.is_empty() {
            return;
        }
        // They are no packets of the cluster's: neither sent nor, if there is no room, unsent.
        let before = self.counters;
        self.transmit(now, pool, &mut answers);
        self.counters = before;
    }

    #[inline]
    fn received(&mut self, now: u64, packet: &mut PacketBox) {
        packet.set_timestamp(now);
        self.counters.received_packets += 1;
        self.counters.received_bytes += packet.frame().len() as u64;
    }
}
