//! A link to a worker on the same network segment: channel frames on Ethernet, with an EtherType of
//! their own.
//!
//! # Theory of operation
//!
//! ```text
//!   channel ── frame ─► send: │ Ethernet, 14 │ frame │ ─► interface ─► filter ─► receive ── frame ─► channel
//! ```
//!
//! Each pair of workers has a packet socket of its own at each end. The kernel hands it frames of
//! the EtherType only, and a filter in the socket only frames of its two workers, which stand in
//! the frame's head; so many pairs share an interface, and each frame is copied once. The port
//! holds the remaining frames against the two link addresses.
//!
//! Invariants: as of [`crate::udp`].
//!
//! Not here: how the other end's link address is found: it is configured.

use crate::datagrams::{Incoming, Outgoing, widen};
use crate::interface::system::{bind, set_option, socket};
use crate::interface::{Interface, InterfaceError};
use crate::report::Reports;
use protocols::link::ETHERTYPE;
use protocols::link::ether::{self, Address, FRONT};
use runtime::env::PortCounters;
use runtime::peer::FrameLink;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// One end of a link on an interface.
pub struct EtherLink {
    fd: OwnedFd,
    name: String,
    own: Address,
    peer: Address,
    frame_max: usize,
    front: [u8; FRONT],
    incoming: Incoming,
    outgoing: Outgoing,
    counters: PortCounters,
    reports: Reports,
    told: Option<i32>,
}

impl EtherLink {
    /// A link by an interface to the worker `to` at a link address, for the worker `from`.
    /// `reports` gets later errors.
    pub fn open(
        interface: &Interface,
        peer: Address,
        (from, to): (u16, u16),
        reports: &Reports,
    ) -> Result<EtherLink, InterfaceError> {
        let unopened = |source: io::Error| InterfaceError::System {
            port: interface.name.clone(),
            what: "a packet socket for a link cannot be opened",
            advice: match source.kind() {
                io::ErrorKind::PermissionDenied => "it needs root, or the capability net_raw".into(),
                _ => String::new(),
            },
            source,
        };
        let fd = open(interface, (from, to)).map_err(unopened)?;
        let own = interface.mac;
        let mut front = [0; FRONT];
        ether::write(&mut front, peer, own);
        let frame_max = interface.mtu as usize;
        Ok(EtherLink {
            fd,
            name: interface.name.clone(),
            own,
            peer,
            frame_max,
            front,
            incoming: Incoming::new(frame_max + FRONT),
            outgoing: Outgoing::new(frame_max + FRONT),
            counters: PortCounters::default(),
            reports: reports.clone(),
            told: None,
        })
    }

    fn send_batch(&mut self) {
        let Some(error) = self.outgoing.send(self.fd.as_fd(), &mut self.counters) else {
            return;
        };
        let code = error.raw_os_error().unwrap_or(0);
        if self.told.replace(code) != Some(code) {
            let remedy = match code {
                libc::ENETDOWN => "bring it up again with: ip link set up",
                libc::ENXIO | libc::ENODEV => "the interface is gone: restart when it is back",
                libc::EMSGSIZE => "its MTU was lowered: restart, or raise it",
                _ => "",
            };
            let problem = format_args!("a frame cannot be sent: {error}");
            self.reports.tell(&self.name, problem, remedy);
        }
    }
}

/// A socket that receives this pair's frames.
fn open(interface: &Interface, (from, to): (u16, u16)) -> io::Result<OwnedFd> {
    // A socket of no protocol: it receives nothing before it has its filter.
    let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    // The head's two workers, as the other end writes them.
    let workers = u32::from(to) << 16 | u32::from(from);
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, FRONT as u32 + 4),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, workers),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the program, which is borrowed for the call, and keeps a copy.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    crate::interface::system::checked(result)?;
    // Frames that this host sends are not received.
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
    widen(&fd)?;
    let address = crate::afpacket::address(interface, ETHERTYPE);
    // SAFETY: it is the address structure of packet sockets.
    unsafe { bind(&fd, &address) }?;
    Ok(fd)
}

impl FrameLink for EtherLink {
    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn receive(&mut self) -> Option<&mut [u8]> {
        let ends = (self.own, self.peer);
        self.incoming.next(self.fd.as_fd(), &mut self.counters, |frame| {
            let read = ether::read(frame);
            read.is_ok_and(|(to, from, _)| (to, from) == ends)
                .then_some(FRONT)
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
        Some(vec![self.fd.as_raw_fd()])
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
