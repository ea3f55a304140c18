//! A network interface by way of `AF_XDP`: frames go between the driver and the worker's own packet
//! buffers.
//!
//! # Theory of operation
//!
//! ```text
//!   redirect.rs   interface ─► program: the kernel's own frames pass on, the rest goes to the queue's socket
//!   socket.rs     a socket of a queue: the pool's buffers are the memory that the kernel receives into and sends from
//!   queue.rs      the four queues that a socket shares with the kernel
//!   mod.rs        the port: a socket for each queue of the interface
//! ```
//!
//! The program sits in the driver (`mode=native`), or before the kernel's stack on whatever driver
//! (`mode=generic`), and runs before anything else sees the frame: the kernel's stack has only the
//! frames that the program passes on.
//!
//! *Opening* first looks at rights, the interface, its MTU, its driver's offloads, and how much
//! memory may be locked. The program is put on the interface then, and from that moment frames that
//! are Flowkeep's are dropped until there are sockets. Sockets are made when the pool is there
//! ([`Port::attach`]).
//!
//! *Frames that are not as on a wire.* Behind XDP nothing says that a checksum is partial. On
//! interfaces whose frames come straight from another stack of this machine (veth) each packet's
//! checksum is looked at: a wrong checksum that is just the pseudo-header's sum is completed
//! ([`crate::interface::offload`]). Super-frames do not fit into a chunk: with a native program
//! veth's other end does not make them; with a generic one they must be turned off at the other
//! end, since this process cannot see it; they are counted as lost.
//!
//! Invariants: frames of the queues = packets received + refused; frames that the kernel lost are
//! counted apart; a packet that goes out is sent or counted as unsent.
//!
//! Not here: packet sockets ([`crate::afpacket`]), which work with every driver and any length of
//! frame.

mod queue;
mod redirect;
mod socket;

use crate::afpacket::{Half, Taking, claim_failed};
use crate::interface::addresses::Addresses;
use crate::interface::claims::Responder;
use crate::interface::rights::{Capability, Rights, locked_memory_max};
use crate::interface::{Interface, InterfaceError, LINK_HEADER_MAX};
use crate::report::Reports;
pub use redirect::{Redirect, Redirects};
use runtime::env::{AttachError, Burst, Port, PortCounters};
pub use socket::{CHUNK, FRAME};
use socket::{SocketError, Use, XdpSocket};
use std::cell::Cell;
use std::sync::Arc;
use wire::{Pool, Prefix};

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    #[default]
    Native,
    /// Before the kernel's stack, on any driver.
    Generic,
}

/// Whether the device itself writes into the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// If the driver can.
    #[default]
    Auto,
    /// The kernel copies.
    Copy,
    /// The driver must.
    ZeroCopy,
}

/// How an interface is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpSettings {
    /// Which frames are taken; default: those that are not for this host itself.
    pub taking: Taking,
    /// Where the program runs; default: in the driver.
    pub mode: Mode,
    /// Whether the device itself writes into the buffers; default: if the driver can.
    pub copying: Copying,
    /// The one queue that is read; default: all.
    pub queue: Option<u32>,
}

/// An interface by way of `AF_XDP`.
pub struct XdpPort {
    name: String,
    interface: Interface,
    settings: XdpSettings,
    half: Half,
    redirect: Option<Arc<Redirect>>,
    queues: Vec<u32>,
    sockets: Vec<XdpSocket>,
    /// Which socket is read first.
    turn: usize,
    /// Answers for claimed addresses.
    responder: Responder,
    counters: PortCounters,
    reports: Reports,
    told_sending: bool,
    told_too_long: Cell<bool>,
}

/// The part of a pool that a port keeps ready for reception, at most.
const SHARE: usize = 4;

impl XdpPort {
    /// The checks before anything is opened: rights, the interface, and which of its queues the
    /// port has.
    pub fn look(name: &str, settings: &XdpSettings) -> Result<(Interface, Vec<u32>), InterfaceError> {
        let needed = [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf];
        Rights::of_this_thread().need(&format!("afxdp:{name}"), &needed)?;
        let interface = Interface::find(name)?;
        check(&interface, settings)?;
        let there = interface.receive_queues;
        match settings.queue {
            Some(queue) if queue >= there => Err(InterfaceError::NoQueue {
                name: name.to_owned(),
                queue,
                queues: there,
            }),
            Some(queue) => Ok((interface, vec![queue])),
            None => Ok((interface, (0..there).collect())),
        }
    }

    /// Opens the interface called `name`, as far as that can be without buffers.
    pub fn open(
        name: &str,
        settings: XdpSettings,
        half: Half,
        redirects: &Redirects,
        addresses: impl FnOnce() -> Result<Arc<Addresses>, InterfaceError>,
        reports: Reports,
    ) -> Result<Self, InterfaceError> {
        let port = format!("afxdp:{name}");
        let (interface, queues) = Self::look(name, &settings)?;
        let redirect = match half {
            Half::Transmit => None,
            _ => Some(redirects.of(&port, &interface, &settings, addresses)?),
        };
        for queue in &queues {
            if redirect
                .as_ref()
                .is_some_and(|redirect| !redirect.take_queue(*queue))
            {
                return Err(InterfaceError::QueueTwice {
                    name: name.to_owned(),
                    queue: *queue,
                });
            }
        }
        Ok(XdpPort {
            name: port,
            responder: Responder::new(interface.mac),
            interface,
            settings,
            half,
            redirect,
            queues,
            sockets: Vec::new(),
            turn: 0,
            counters: PortCounters::default(),
            reports,
            told_sending: false,
            told_too_long: Cell::new(false),
        })
    }

    /// Whether the device itself writes into the buffers, once the port is attached.
    pub fn is_zero_copy(&self) -> bool {
        !self.sockets.is_empty() && self.sockets.iter().all(XdpSocket::is_zero_copy)
    }
}

/// The conditions before frames can flow; an error names the command that meets one.
fn check(interface: &Interface, settings: &XdpSettings) -> Result<(), InterfaceError> {
    let name = interface.name.clone();
    let room = FRAME as u32 - LINK_HEADER_MAX;
    if interface.mtu > room {
        let remedy = format!("lower it with: ip link set dev {name} mtu {room}, or use afpacket:{name}");
        return Err(InterfaceError::FrameTooLong {
            name,
            mtu: interface.mtu,
            room,
            remedy,
        });
    }
    let offloads = interface.offloads;
    let refused = |what, words: &str| {
        let command = format!("ethtool -K {} {words}", interface.name);
        Err(InterfaceError::Offload {
            name: interface.name.clone(),
            what,
            command,
        })
    };
    if offloads.receive_merge_device {
        return refused(
            "the device puts received segments together, to frames longer than a buffer",
            "lro off",
        );
    }
    // Generic programs run behind the merging, native ones before it.
    if offloads.receive_merge && settings.mode == Mode::Generic {
        return refused(
            "the kernel puts received segments together, to frames longer than a buffer",
            "gro off",
        );
    }
    // Of veth the flag means nothing.
    if offloads.receive_vlan && !interface.is_virtual() {
        return refused(
            "the driver takes VLAN tags off, and AF_XDP does not say which",
            "rxvlan off",
        );
    }
    Ok(())
}

/// Buffers must be chunks, and this process must be allowed to keep `length` bytes of them in
/// memory for each of its queues.
pub(crate) fn check_buffers(
    name: &str,
    is_of_chunks: bool,
    length: usize,
    queues: usize,
) -> Result<(), AttachError> {
    if !is_of_chunks {
        return Err(AttachError(format!(
            "afxdp needs buffers of {CHUNK} bytes, and another port of the same switch needs longer ones (a capture as \
             an input does, and an interface with a large MTU): give them switches of their own (`switches = 2`), or \
             use afpacket:{name}"
        )));
    }
    let all = length as u64 * queues as u64;
    match locked_memory_max() {
        Some(limit) if limit < all && !Rights::of_this_thread().has(Capability::IpcLock) => {
            Err(AttachError(format!(
                "it keeps {} KiB of buffers in memory, and this process may keep {}: raise the limit with `ulimit -l {}` \
                 (of a systemd unit: LimitMEMLOCK={all}), or give it CAP_IPC_LOCK",
                all >> 10,
                limit >> 10,
                all >> 10
            )))
        }
        _ => Ok(()),
    }
}

impl XdpPort {
    /// The pool's buffers must be chunks.
    fn check_pool(&self, pool: &Pool) -> Result<(), AttachError> {
        let memory = pool.memory();
        let is_of_chunks = memory.stride == CHUNK && memory.start.addr().get().is_multiple_of(CHUNK);
        check_buffers(
            &self.interface.name,
            is_of_chunks,
            memory.length,
            self.queues.len(),
        )
    }

    /// The meaning of a socket's failure.
    fn explained(&self, SocketError { what, source }: SocketError, queue: u32) -> AttachError {
        let driver = self.interface.driver.as_deref().unwrap_or("its");
        let advice = match (source.raw_os_error(), self.settings.copying) {
            (Some(libc::EBUSY), _) => "; another program has this queue: end that one".into(),
            (Some(libc::ENOBUFS), _) => {
                "; too little memory may be locked: raise the limit with `ulimit -l`".into()
            }
            (Some(libc::EOPNOTSUPP | libc::EINVAL), Copying::ZeroCopy) => {
                format!("; the driver `{driver}` may have no zero-copy: leave `copy=no` out")
            }
            _ => String::new(),
        };
        AttachError(format!("queue {queue}: {what}: {source}{advice}"))
    }
}

impl XdpPort {
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

    /// Says once that nothing can be sent.
    #[inline]
    fn tell(&mut self, queued: std::io::Result<()>) {
        if let Err(error) = queued
            && !std::mem::replace(&mut self.told_sending, true)
        {
            let remedy = match error.raw_os_error() {
                Some(libc::ENETDOWN) => "bring the interface up again with: ip link set up",
                Some(libc::ENXIO | libc::ENODEV) => "the interface is gone: restart when it is back",
                _ => "",
            };
            self.reports
                .tell(&self.name, format_args!("nothing can be sent: {error}"), remedy);
        }
    }

    /// Says once that super-frames come in.
    fn tell_too_long(&self, frames: u64) {
        if frames > 0 && !self.told_too_long.replace(true) {
            self.reports.tell(
                &self.name,
                format_args!("{frames} frames were longer than a buffer and are lost"),
                "have the other end hand over no super-frames, with: ethtool -K INTERFACE tso off gso off gro off; or use afpacket",
            );
        }
    }
}

impl Port for XdpPort {
    fn frame_max(&self) -> usize {
        FRAME
    }

    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        self.check_pool(pool)?;
        for queue in self.queues.clone() {
            let purpose = Use {
                interface: self.interface.index,
                queue,
                receives: self.half != Half::Transmit,
                transmits: self.half != Half::Receive,
                partial: self.interface.is_virtual(),
                reserved_max: pool.total() / SHARE / self.queues.len(),
                frame_max: self.interface.frame_max(),
            };
            let mut socket = XdpSocket::open(purpose, &self.settings, pool)
                .map_err(|error| self.explained(error, queue))?;
            if let Some(redirect) = &self.redirect {
                redirect.lead_to(queue, socket.descriptor()).map_err(|source| {
                    let what = "its socket cannot be found by the filter";
                    self.explained(SocketError { what, source }, queue)
                })?;
            }
            socket.refill(pool);
            self.sockets.push(socket);
            // Sends by the first only.
            if self.half == Half::Transmit {
                break;
            }
        }
        Ok(())
    }

    fn claim(&mut self, addresses: &[Prefix]) -> Result<(), AttachError> {
        // A bridge's ports are on a link of others, and a port that only receives cannot answer.
        let claims = self.redirect.as_ref().and_then(|redirect| redirect.claims());
        if let (Some(claims), Half::Both) = (claims, self.half) {
            claims.add(addresses, &self.interface).map_err(claim_failed)?;
            claims
                .remove(self.responder.beyond(addresses))
                .map_err(claim_failed)?;
            self.responder.claim(addresses);
        }
        Ok(())
    }

    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        let (count, before) = (self.sockets.len(), burst.len());
        for step in 0..count {
            if burst.is_full() {
                break;
            }
            let index = (self.turn + step) % count;
            self.sockets[index].receive(now, pool, burst, &mut self.counters);
        }
        self.turn = self.turn.wrapping_add(1);
        if !self.responder.is_idle() && (burst.len() > before || self.responder.has_news()) {
            self.respond(now, pool, burst, before);
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        match self.sockets.first_mut() {
            Some(socket) => {
                let queued = socket.transmit(pool, burst, &mut self.counters);
                self.tell(queued);
            }
            None => {
                self.counters.unsent_packets += crate::count_packets(burst);
                crate::consume(pool, burst, |_| ());
            }
        }
    }

    fn reap_transmitted(&mut self, pool: &mut Pool) {
        if let Some(socket) = self.sockets.first_mut()
            && socket.in_flight() > 0
        {
            let queued = socket.kick();
            socket.complete(pool);
            self.tell(queued);
        }
    }

    fn reserved(&self) -> usize {
        self.sockets.iter().map(XdpSocket::reserved).sum()
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        Some(match self.half {
            Half::Transmit => Vec::new(),
            _ => self.sockets.iter().map(XdpSocket::descriptor).collect(),
        })
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        let mut too_long = 0;
        for counted in self.sockets.iter().map(XdpSocket::counted) {
            too_long += counted.too_long;
            counters.lost_packets += counted.lost;
            counters.unsent_packets += counted.unsent;
            counters.sent_packets = counters.sent_packets.saturating_sub(counted.unsent);
        }
        self.tell_too_long(too_long);
        counters
    }
}
