//! One `AF_XDP` socket: a device's queue, whose frames the kernel puts into, and takes out of, the
//! worker's own packet buffers.
//!
//! # Theory of operation
//!
//! The pool's memory *is* the memory that the kernel knows (its UMEM): each buffer of the pool is a
//! chunk, and the kernel leaves the first 256 bytes of a chunk alone, where the packet's notes and
//! headroom are:
//!
//! ```text
//!   chunk, 4096 B   │ notes 64 │ headroom 192 │ frame, up to 3840 …            │
//!                   └ the pool's ─────────────┘ └ where the kernel receives
//! ```
//!
//! So a frame that comes in is a packet without having been copied by us, and a packet of the same
//! pool that goes out is a frame. (The kernel still copies once each way where the driver has no
//! zero-copy: veth, and every driver in generic mode.) Several sockets can share a pool: each tells
//! the kernel about the memory for itself, and a buffer is with one of them at a time. A packet of
//! another worker's pool is copied into a buffer of ours.
//!
//! Invariant: a buffer is a box, or in one of this socket's queues, or in the kernel;
//! [`XdpSocket::reserved`] and [`XdpSocket::in_flight`] say how many.

use super::queue::{Incoming, Outgoing};
use super::{Copying, XdpSettings};
use crate::interface::offload::complete_if_partial;
use crate::interface::system::{bind, option, set_option, socket};
use arrayvec::ArrayVec;
use runtime::env::{BURST, Burst, PortCounters};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::memory::prefetch;
use wire::packet::{Kind, PoolMemory};
use wire::{LinkType, Packet, PacketBox, Pool};

/// How long the kernel may take to give back a queue whose socket was closed.
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// Entries of each queue.
const ENTRIES: u32 = 2048;
/// Bytes that the kernel leaves free before a received frame (`XDP_PACKET_HEADROOM`).
const KERNEL_HEADROOM: usize = 256;
/// Bytes of a chunk: of those the kernel takes, the size that holds frames of the usual MTU and
/// more.
pub const CHUNK: usize = 4096;
/// The longest frame that a chunk holds.
pub const FRAME: usize = CHUNK - KERNEL_HEADROOM;
/// How often the kernel is asked to go on sending in one call: it sends 32 frames each time where
/// the driver cannot by itself.
const KICKS: usize = 4;

/// The part of a pool that is left for other uses than reception.
const KEPT: usize = 8;

const _: () = assert!(Packet::NOTES < KERNEL_HEADROOM);

/// Why a socket cannot be, and at which step.
pub(super) struct SocketError {
    pub what: &'static str,
    pub source: io::Error,
}

/// A device's queue.
pub(super) struct XdpSocket {
    fill: Outgoing<u64>,
    completion: Incoming<u64>,
    receive: Option<Incoming<libc::xdp_desc>>,
    transmit: Option<Outgoing<libc::xdp_desc>>,
    // Behind the queues: their mappings go first.
    fd: OwnedFd,
    memory: PoolMemory,
    /// Buffers that are kept ready for reception.
    reserved: usize,
    /// The most of them.
    reserved_max: usize,
    /// Buffers that are being sent.
    in_flight: usize,
    /// Whether received frames may lack checksums that their sender's stack left to a device.
    partial: bool,
    /// The longest frame that the interface sends.
    frame_max: usize,
    zero_copy: bool,
}

// SAFETY: the memory is the pool's, which may be used from any one thread; the socket and its pool
// are one worker's.
unsafe impl Send for XdpSocket {}

/// The purpose of a socket.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub interface: u32,
    pub queue: u32,
    pub receives: bool,
    pub transmits: bool,
    /// See [`XdpSocket`].
    pub partial: bool,
    /// The most buffers kept ready for reception.
    pub reserved_max: usize,
    /// The longest frame that the interface sends.
    pub frame_max: usize,
}

impl XdpSocket {
    /// Makes the pool's memory known to the kernel and takes over a queue of a device. The pool's
    /// buffers are chunks of the right size (the caller has seen to it).
    pub fn open(purpose: Use, settings: &XdpSettings, pool: &Pool) -> Result<Self, SocketError> {
        let step = |what| move |source| SocketError { what, source };
        let fd = socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(step("no AF_XDP socket"))?;
        let memory = pool.memory();
        let register = libc::xdp_umem_reg {
            addr: memory.start.addr().get() as u64,
            len: memory.length as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        // From here on the kernel may write into buffers that are put into the fill queue, and
        // reads buffers that are put into the transmit queue. Both stop being boxes first.
        set_option(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &register)
            .map_err(step("the buffers' memory cannot be shared with the kernel"))?;
        let entries = ENTRIES as libc::c_int;
        let queues = [
            (libc::XDP_UMEM_FILL_RING, true),
            (libc::XDP_UMEM_COMPLETION_RING, true),
            (libc::XDP_RX_RING, purpose.receives),
            (libc::XDP_TX_RING, purpose.transmits),
        ];
        for (name, wanted) in queues {
            if wanted {
                set_option(&fd, libc::SOL_XDP, name, &entries).map_err(step("its queues cannot be made"))?;
            }
        }
        let map = step("its queues cannot be mapped");
        let offsets: libc::xdp_mmap_offsets =
            option(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS).map_err(map)?;
        let fill_page = libc::XDP_UMEM_PGOFF_FILL_RING;
        let completion_page = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let fill = Outgoing::map(&fd, fill_page, ENTRIES, &offsets.fr).map_err(map)?;
        let completion = Incoming::map(&fd, completion_page, ENTRIES, &offsets.cr).map_err(map)?;
        let receive = match purpose.receives {
            true => {
                Some(Incoming::map(&fd, libc::XDP_PGOFF_RX_RING as u64, ENTRIES, &offsets.rx).map_err(map)?)
            }
            false => None,
        };
        let transmit = match purpose.transmits {
            true => {
                Some(Outgoing::map(&fd, libc::XDP_PGOFF_TX_RING as u64, ENTRIES, &offsets.tx).map_err(map)?)
            }
            false => None,
        };
        let copying = match settings.copying {
            Copying::Auto => 0,
            Copying::Copy => libc::XDP_COPY,
            Copying::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copying,
            sxdp_ifindex: purpose.interface,
            sxdp_queue_id: purpose.queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: it is the address structure of AF_XDP.
        let take_over = || unsafe { bind(&fd, &address) };
        let began = Instant::now();
        let mut taken = take_over();
        // The kernel gives a queue back some time after its socket is closed: a program that starts
        // again at once finds it busy.
        while let Err(error) = &taken
            && error.raw_os_error() == Some(libc::EBUSY)
            && began.elapsed() < GIVEN_BACK
        {
            std::thread::sleep(Duration::from_millis(10));
            taken = take_over();
        }
        taken.map_err(step("its queue cannot be taken over"))?;
        if purpose.transmits {
            // Frames on their way count against the socket with all of their buffers; as many as
            // the queue holds may be. Without the right to ask for it, it stays as it is.
            let bytes = (ENTRIES as usize * CHUNK) as libc::c_int;
            let _ = set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes);
        }
        let options = option::<libc::xdp_options>(&fd, libc::SOL_XDP, libc::XDP_OPTIONS);
        Ok(XdpSocket {
            zero_copy: options.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0),
            fill,
            completion,
            receive,
            transmit,
            fd,
            memory,
            reserved: 0,
            reserved_max: purpose.reserved_max.min(ENTRIES as usize),
            in_flight: 0,
            partial: purpose.partial,
            frame_max: purpose.frame_max,
        })
    }

    /// The socket's descriptor, for the map by which frames find it.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Whether the device itself writes into the buffers.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Buffers that are kept ready for reception.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Buffers that are being sent.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How far a box's buffer is from where the memory starts, if it is the pool's that this socket
    /// shares.
    #[inline]
    fn distance(&self, packet: &PacketBox) -> Option<u64> {
        let frame = packet.frame().as_ptr().addr();
        let distance = frame.checked_sub(self.memory.start.addr().get())?;
        (distance < self.memory.length).then_some(distance as u64)
    }

    /// Makes the buffer at this distance a box again.
    ///
    /// # Safety
    /// The kernel has just handed the address back from one of this socket's queues, where it was
    /// put by this socket.
    #[inline]
    unsafe fn reclaim(memory: &PoolMemory, address: u64) -> PacketBox {
        let chunk = address as usize & !(CHUNK - 1);
        debug_assert!(chunk < memory.length);
        // SAFETY: the kernel hands back addresses of chunks that it was handed, so the chunk lies
        // in the pool's memory and was a box that became raw; it has left the queue, so it becomes
        // a box once; the kernel does not touch it any more, and never writes the first 256 bytes.
        unsafe { PacketBox::from_raw(memory.start.add(chunk)) }
    }

    /// Keeps so many buffers ready for the kernel to receive into as there should be, as far as the
    /// pool has some.
    pub fn refill(&mut self, pool: &mut Pool) {
        // Few enough are missing that it is not worth the look.
        if self.reserved + BURST > self.reserved_max {
            return;
        }
        let spare = pool.free().saturating_sub(pool.total() / KEPT);
        let mut room = (self.fill.room() as usize)
            .min(self.reserved_max - self.reserved)
            .min(spare);
        let before = self.reserved;
        while room > 0
            && let Some(packet) = pool.take()
        {
            let raw = packet.into_raw();
            self.fill
                .push((raw.addr().get() - self.memory.start.addr().get()) as u64);
            self.reserved += 1;
            room -= 1;
        }
        if self.reserved > before {
            self.fill.publish();
        }
    }

    /// Appends received packets to `burst`.
    pub fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst, counters: &mut PortCounters) {
        let Some(receive) = &mut self.receive else { return };
        let (memory, partial) = (self.memory, self.partial);
        let mut descriptors = ArrayVec::<libc::xdp_desc, BURST>::new();
        let taken = receive.take(burst.remaining_capacity().min(BURST), |descriptor| {
            // Another processor has written the frame: all are fetched together, then looked at.
            let chunk = memory
                .start
                .as_ptr()
                .wrapping_add(descriptor.addr as usize & !(CHUNK - 1));
            prefetch(chunk);
            prefetch(chunk.wrapping_add(descriptor.addr as usize & (CHUNK - 1)));
            descriptors.push(descriptor);
        });
        for descriptor in descriptors {
            // SAFETY: from the receive queue, where the kernel puts what it took from the fill
            // queue.
            let mut packet = unsafe { Self::reclaim(&memory, descriptor.addr) };
            let offset = descriptor.addr as usize & (CHUNK - 1);
            if !packet.received_at(offset, descriptor.len as usize, LinkType::Ethernet) {
                counters.refused_packets += 1;
                pool.give(packet);
                continue;
            }
            if partial {
                complete_if_partial(packet.frame_mut());
            }
            packet.set_timestamp(now);
            counters.received_packets += 1;
            counters.received_bytes += u64::from(descriptor.len);
            burst.push(packet);
        }
        self.reserved -= taken;
        self.refill(pool);
        if self.fill.needs_wakeup() {
            self.wake_receiver();
        }
    }

    /// The driver waits for buffers: there are some now.
    #[cold]
    fn wake_receiver(&self) {
        // SAFETY: no buffer is handed over; the socket does not block.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Takes all packets of `burst`; foreign buffers stay in it, empty.
    pub fn transmit(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        self.complete(pool);
        let mut room = self.transmit.as_mut().map_or(0, Outgoing::room);
        let mut foreign = Burst::new();
        for packet in burst.drain(..) {
            let own = match self.distance(&packet) {
                Some(distance) => Some((packet, distance)),
                None => self.copied(pool, packet, room > 0, counters, &mut foreign),
            };
            let Some((packet, distance)) = own else { continue };
            let length = packet.frame().len();
            if packet.kind() == Kind::Empty || room == 0 || length > self.frame_max {
                counters.unsent_packets += u64::from(packet.kind() != Kind::Empty);
                pool.give(packet);
                continue;
            }
            counters.sent_packets += 1;
            counters.sent_bytes += length as u64;
            // The packet is the kernel's from here on, by its distance.
            let _ = packet.into_raw();
            if let Some(transmit) = &mut self.transmit {
                transmit.push(libc::xdp_desc {
                    addr: distance,
                    len: length as u32,
                    options: 0,
                });
            }
            self.in_flight += 1;
            room -= 1;
        }
        *burst = foreign;
        if let Some(transmit) = &self.transmit {
            transmit.publish();
        }
        self.kick()
    }

    /// A copy of another pool's packet in a buffer of ours, if there is `room` to send it; the
    /// original stays in `foreign`.
    #[cold]
    fn copied(
        &self,
        pool: &mut Pool,
        mut packet: PacketBox,
        room: bool,
        counters: &mut PortCounters,
        foreign: &mut Burst,
    ) -> Option<(PacketBox, u64)> {
        let mut own = None;
        if packet.kind() != Kind::Empty {
            own = room.then(|| pool.take()).flatten();
            let fits = own
                .as_mut()
                .is_some_and(|own| own.set_frame(packet.frame(), packet.link()));
            if !fits {
                counters.unsent_packets += 1;
                if let Some(own) = own.take() {
                    pool.give(own);
                }
            }
            packet.set_kind(Kind::Empty);
        }
        foreign.push(packet);
        let own = own?;
        let distance = self.distance(&own)?;
        Some((own, distance))
    }

    /// Takes buffers back whose frames have left.
    pub fn complete(&mut self, pool: &mut Pool) {
        if self.in_flight == 0 {
            return;
        }
        let memory = self.memory;
        self.in_flight -= self.completion.take(usize::MAX, |address| {
            // SAFETY: from the completion queue, where the kernel puts what it took from the
            // transmit queue.
            pool.give(unsafe { Self::reclaim(&memory, address) });
        });
    }

    /// Has the kernel send the queued frames, if it does not do so by itself; an error if it
    /// cannot, and will not soon.
    pub fn kick(&mut self) -> io::Result<()> {
        let Some(transmit) = &mut self.transmit else {
            return Ok(());
        };
        for _ in 0..KICKS {
            if !transmit.is_waiting() || !transmit.needs_wakeup() {
                break;
            }
            // SAFETY: no buffer is handed over; the socket does not block.
            let sent = unsafe {
                libc::sendto(
                    self.fd.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            if sent < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // It has sent as many as it does at a time.
                    Some(libc::EAGAIN) => {}
                    Some(libc::EBUSY | libc::ENOBUFS | libc::EINTR) => break,
                    _ => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// The kernel's counts since the socket was made.
    pub fn counted(&self) -> KernelCounts {
        let statistics = option::<libc::xdp_statistics>(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS);
        statistics.map_or(KernelCounts::default(), |counted| KernelCounts {
            lost: counted.rx_dropped + counted.rx_ring_full,
            // Frames dropped, but not for want of a buffer.
            too_long: counted
                .rx_dropped
                .saturating_sub(counted.rx_fill_ring_empty_descs),
            unsent: counted.tx_invalid_descs,
        })
    }
}

/// The kernel's counts of a socket's frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelCounts {
    /// Received, and lost for want of a buffer or of room in the queue, or because they were too
    /// long.
    pub lost: u64,
    /// Of those, longer than a buffer.
    pub too_long: u64,
    /// Not sent, for the kernel found something wrong with them.
    pub unsent: u64,
}
