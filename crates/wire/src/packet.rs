//! Packets and the pool their buffers come from.
//!
//! A buffer is one piece of memory: a cache line of notes ([`Packet`]'s fields), headroom, the frame, tailroom.
//!
//! ```text
//!   64 B notes │ headroom 128 B │ frame … │ tailroom
//!              └ storage ─────────────────┘  `capacity` bytes
//! ```
//!
//! A [`PacketBox`] *is* the right to a buffer. It moves: from the pool to a port, over rings to other workers, out of a port,
//! back to the pool it came from. Nothing counts references and nothing is freed on drop: whoever has a box either passes it on or
//! gives it back to a [`Pool`], and the conservation tests (in = out + held + dropped, all buffers home) prove that everybody does.

mod ethernet;
mod way;

use crate::memory::Region;
use crate::{Addr, Endpoint, LinkType};
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// Bytes kept free before a received frame, for headers that a function or a link puts in front.
pub const HEADROOM: usize = 128;
/// The longest frame a buffer can hold, whatever its pool's size.
pub const FRAME_MAX: usize = 65_535;

/// Which side of the network a packet came in from, or leaves to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Side {
    /// The protected or private side.
    #[default]
    Inside = 0,
    /// The public side.
    Outside = 1,
}

impl Side {
    /// The other side.
    #[inline]
    #[must_use]
    pub fn opposite(self) -> Side {
        match self {
            Side::Inside => Side::Outside,
            Side::Outside => Side::Inside,
        }
    }
}

/// What a buffer carries on a link between workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Kind {
    /// A frame from or for the network.
    #[default]
    Data = 0,
    /// A frame of messages between workers (`runtime::message`).
    Message = 1,
    /// Nothing: the buffer is on its way home to its pool.
    Empty = 2,
}

/// What parsing found, beyond offsets: bits of [`Packet::flags`].
pub mod flag {
    /// A fragment that is not the first: it has no transport header.
    pub const LATER_FRAGMENT: u16 = 1;
    /// The first fragment of several.
    pub const FIRST_FRAGMENT: u16 = 2;
    /// An ICMP error that quotes a packet; the flow key is the quoted packet's.
    pub const ICMP_ERROR: u16 = 4;
    /// An ICMP query or answer (echo and its kind); the identifier stands for both ports.
    pub const ICMP_QUERY: u16 = 8;
    /// The capture holds less than the wire carried.
    pub const CUT_SHORT: u16 = 16;
    /// `parse` has run on this frame and it holds.
    pub const PARSED: u16 = 32;
    /// The last function sends the packet back to its own side by way of the outside (hairpin, RFC 4787 5).
    pub const TURN_AROUND: u16 = 64;
    /// The IP header has options (IPv4) or extension headers (IPv6).
    pub const HAS_OPTIONS: u16 = 128;
    /// A source route (option, routing header) leads on: the checksum covers the final destination (RFC 8200 8.1).
    pub const SOURCE_ROUTED: u16 = 256;
    /// Both ends are inside (of an ICMP error: of the packet it quotes): it does not cross the border, and leaves to inside.
    pub const LATERAL: u16 = 512;
    /// A fragment that is followed: it has the ports of its first one.
    pub const FOLLOWED: u16 = 1024;
}

/// A packet: the frame's bytes and what is known of them.
#[repr(C)]
pub struct Packet {
    notes: Notes,
    storage: [u8],
}

/// The first cache line of a buffer.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Notes {
    capacity: u32,
    length: u32,
    wire_length: u32,
    ports: [u16; 2],
    timestamp: u64,
    hash: u64,
    next: Option<NonNull<Notes>>,
    start: u16,
    network: u16,
    transport: u16,
    payload: u16,
    end: u16,
    vlan: u16,
    flags: u16,
    protocol: u8,
    version: u8,
    side: Side,
    exit: Side,
    kind: Kind,
    link: LinkType,
    origin: u8,
    port: u8,
    turns: u8,
    egress: u8,
}

const _: () = assert!(size_of::<Notes>() == 64);

impl Packet {
    /// The whole frame, link header included.
    #[inline]
    pub fn frame(&self) -> &[u8] {
        let start = self.notes.start as usize;
        &self.storage[start..start + self.notes.length as usize]
    }

    /// The whole frame, to be changed. Whoever moves headers calls [`crate::parse()`] again.
    #[inline]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let start = self.notes.start as usize;
        &mut self.storage[start..start + self.notes.length as usize]
    }

    /// Makes `frame` the packet's bytes and forgets what was known; `false` (and no change) if it does not fit.
    pub fn set_frame(&mut self, frame: &[u8], link: LinkType) -> bool {
        if frame.len() > FRAME_MAX || HEADROOM + frame.len() > self.storage.len() {
            return false;
        }
        self.storage[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
        self.reset(frame.len(), link);
        true
    }

    /// Forgets what was known of the frame and makes it `length` bytes long (their content is whatever the buffer held), for
    /// whoever fills it by itself. The length is cut to what fits. What is known of the packet's way (sides, port, time, turns)
    /// stays: a function that writes an answer over a packet does not send it elsewhere.
    pub fn reset(&mut self, length: usize, link: LinkType) {
        let length = length.min(FRAME_MAX).min(self.storage.len() - HEADROOM);
        let Notes {
            capacity,
            origin,
            side,
            exit,
            port,
            timestamp,
            turns,
            ..
        } = self.notes;
        self.notes = Notes {
            capacity,
            origin,
            side,
            exit,
            port,
            timestamp,
            turns,
            start: HEADROOM as u16,
            length: length as u32,
            wire_length: length as u32,
            link,
            ..Notes::EMPTY
        };
    }

    /// The longest frame [`Packet::set_frame`] takes here, in bytes.
    pub fn room(&self) -> usize {
        (self.storage.len() - HEADROOM).min(FRAME_MAX)
    }

    /// Puts `count` bytes in front of the frame; `false` if the headroom is used up.
    pub fn grow_front(&mut self, count: usize) -> bool {
        if count > self.notes.start as usize || self.notes.length as usize + count > FRAME_MAX {
            return false;
        }
        self.notes.start -= count as u16;
        self.notes.length += count as u32;
        self.notes.wire_length = self.notes.wire_length.saturating_add(count as u32);
        self.notes.flags &= !flag::PARSED;
        true
    }

    /// Makes the frame `length` bytes long, cutting or extending its end; `false` if the tailroom is used up.
    pub fn set_length(&mut self, length: usize) -> bool {
        if length > FRAME_MAX || self.notes.start as usize + length > self.storage.len() {
            return false;
        }
        self.notes.length = length as u32;
        self.notes.wire_length = length as u32;
        self.notes.flags &= !flag::PARSED;
        true
    }

    /// Length of the frame as it was on the wire; more than [`Packet::frame`] has where a capture was cut short.
    #[inline]
    pub fn wire_length(&self) -> u32 {
        self.notes.wire_length
    }

    /// Says how long the frame was on the wire.
    #[inline]
    pub fn set_wire_length(&mut self, bytes: u32) {
        self.notes.wire_length = bytes;
    }

    /// When the packet was received, in nanoseconds of the worker's clock.
    #[inline]
    pub fn timestamp(&self) -> u64 {
        self.notes.timestamp
    }

    /// Sets the time of reception in nanoseconds.
    #[inline]
    pub fn set_timestamp(&mut self, nanoseconds: u64) {
        self.notes.timestamp = nanoseconds;
    }

    /// The link layer of [`Packet::frame`].
    #[inline]
    pub fn link(&self) -> LinkType {
        self.notes.link
    }

    /// What the buffer carries.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.notes.kind
    }

    /// Says what the buffer carries.
    #[inline]
    pub fn set_kind(&mut self, kind: Kind) {
        self.notes.kind = kind;
    }

    /// Number of the pool the buffer belongs to.
    #[inline]
    pub fn origin(&self) -> u8 {
        self.notes.origin
    }

    /// Hash of the flow key.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.notes.hash
    }

    /// Notes the hash of the flow key.
    #[inline]
    pub fn set_hash(&mut self, hash: u64) {
        self.notes.hash = hash;
    }

    /// Bits of [`flag`].
    #[inline]
    pub fn flags(&self) -> u16 {
        self.notes.flags
    }

    /// Whether any of the bits of [`flag`] is set.
    #[inline]
    pub fn has(&self, flags: u16) -> bool {
        self.notes.flags & flags != 0
    }

    /// Sets bits of [`flag`].
    #[inline]
    pub fn set_flags(&mut self, flags: u16) {
        self.notes.flags |= flags;
    }

    /// Clears bits of [`flag`].
    #[inline]
    pub fn clear_flags(&mut self, flags: u16) {
        self.notes.flags &= !flags;
    }

    /// IP version, 4 or 6; 0 before parsing.
    #[inline]
    pub fn version(&self) -> u8 {
        self.notes.version
    }

    /// The transport protocol (the last Next Header of IPv6).
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.notes.protocol
    }

    /// Identifier of the innermost VLAN tag, 0 without one.
    #[inline]
    pub fn vlan(&self) -> u16 {
        self.notes.vlan
    }

    /// Offset of the IP header in the frame.
    #[inline]
    pub fn network_offset(&self) -> usize {
        self.notes.network as usize
    }

    /// Offset of the transport header in the frame. For a later fragment: of its data.
    #[inline]
    pub fn transport_offset(&self) -> usize {
        self.notes.transport as usize
    }

    /// Offset of the transport payload in the frame.
    #[inline]
    pub fn payload_offset(&self) -> usize {
        self.notes.payload as usize
    }

    /// Offset of the end of the IP packet in the frame: behind it is only link padding.
    #[inline]
    pub fn end_offset(&self) -> usize {
        self.notes.end as usize
    }

    /// The IP packet, header included, without link padding.
    #[inline]
    pub fn network(&self) -> &[u8] {
        self.slice(self.notes.network, self.notes.end)
    }

    /// The transport header and its payload.
    #[inline]
    pub fn transport(&self) -> &[u8] {
        self.slice(self.notes.transport, self.notes.end)
    }

    /// The transport header and its payload, to be changed.
    #[inline]
    pub fn transport_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.notes.transport as usize, self.notes.end as usize);
        self.frame_mut().get_mut(from..to).unwrap_or_default()
    }

    /// The IP packet, to be changed.
    #[inline]
    pub fn network_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.notes.network as usize, self.notes.end as usize);
        self.frame_mut().get_mut(from..to).unwrap_or_default()
    }

    /// What the transport carries.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.slice(self.notes.payload, self.notes.end)
    }

    #[inline]
    fn slice(&self, from: u16, to: u16) -> &[u8] {
        self.frame().get(from as usize..to as usize).unwrap_or_default()
    }

    /// Source address of the IP header.
    #[inline]
    pub fn source_addr(&self) -> Addr {
        self.addr_at(12, 8)
    }

    /// Destination address of the IP header.
    #[inline]
    pub fn destination_addr(&self) -> Addr {
        self.addr_at(16, 24)
    }

    #[inline]
    fn addr_at(&self, v4: usize, v6: usize) -> Addr {
        let header = self.network();
        if self.notes.version == 4 {
            match header.get(v4..v4 + 4) {
                Some(b) => Addr::v4([b[0], b[1], b[2], b[3]]),
                None => Addr::UNSPECIFIED,
            }
        } else {
            match header.get(v6..).and_then(|rest| rest.first_chunk::<16>()) {
                Some(b) => Addr::v6(*b),
                None => Addr::UNSPECIFIED,
            }
        }
    }

    /// Source and destination address of an IPv4 header, as they stand there; `None` for IPv6.
    #[inline]
    pub fn v4_addrs(&self) -> Option<([u8; 4], [u8; 4])> {
        if self.notes.version != 4 {
            return None;
        }
        let at = self.notes.network as usize + 12;
        let addrs: &[u8; 8] = self.frame().get(at..)?.first_chunk()?;
        let [a, b, c, d, w, x, y, z] = *addrs;
        Some(([a, b, c, d], [w, x, y, z]))
    }

    /// Source port, or the ICMP identifier, or 0.
    #[inline]
    pub fn source_port(&self) -> u16 {
        self.notes.ports[0]
    }

    /// Destination port, or the ICMP identifier, or 0.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        self.notes.ports[1]
    }

    /// Notes the ports: of a fragment, whose first one had them, or of a packet just rewritten. Who gives a later fragment
    /// of an ICMP query its identifier also sets [`flag::ICMP_QUERY`].
    #[inline]
    pub fn set_ports(&mut self, source: u16, destination: u16) {
        self.notes.ports = [source, destination];
    }

    /// Notes the transport protocol: of a later fragment of IPv6, whose own header need not tell (RFC 8200 4.5).
    #[inline]
    pub fn set_protocol(&mut self, protocol: u8) {
        self.notes.protocol = protocol;
    }

    /// Source address and port.
    #[inline]
    pub fn source(&self) -> Endpoint {
        Endpoint::new(self.source_addr(), self.source_port())
    }

    /// Destination address and port.
    #[inline]
    pub fn destination(&self) -> Endpoint {
        Endpoint::new(self.destination_addr(), self.destination_port())
    }

    /// Time to live (IPv4) or hop limit (IPv6).
    #[inline]
    pub fn ttl(&self) -> u8 {
        let at = if self.notes.version == 4 { 8 } else { 7 };
        self.network().get(at).copied().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn note_layers(&mut self, layers: &crate::parse::Layers) {
        self.notes.network = layers.network;
        self.notes.transport = layers.transport;
        self.notes.payload = layers.payload;
        self.notes.end = layers.end;
        self.notes.vlan = layers.vlan;
        self.notes.protocol = layers.protocol;
        self.notes.version = layers.version;
        self.notes.ports = layers.ports;
        self.notes.flags =
            (self.notes.flags & (flag::TURN_AROUND | flag::LATERAL)) | layers.flags | flag::PARSED;
    }

    /// Copies frame and notes (all but what ties a buffer to its pool) from another packet; `false` if it does not fit.
    pub fn copy_from(&mut self, other: &Packet) -> bool {
        let frame = other.frame();
        let start = other.notes.start as usize;
        if start + frame.len() > self.storage.len() {
            return false;
        }
        self.storage[start..start + frame.len()].copy_from_slice(frame);
        let Notes {
            capacity,
            origin,
            next,
            ..
        } = self.notes;
        self.notes = Notes {
            capacity,
            origin,
            next,
            ..other.notes
        };
        true
    }
}

impl Notes {
    const EMPTY: Notes = Notes {
        capacity: 0,
        length: 0,
        wire_length: 0,
        ports: [0; 2],
        timestamp: 0,
        hash: 0,
        next: None,
        start: 0,
        network: 0,
        transport: 0,
        payload: 0,
        end: 0,
        vlan: 0,
        flags: 0,
        protocol: 0,
        version: 0,
        side: Side::Inside,
        exit: Side::Inside,
        kind: Kind::Data,
        link: LinkType::Ethernet,
        origin: 0,
        port: 0,
        turns: 0,
        egress: 0,
    };
}

impl core::fmt::Debug for Packet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (from, to) = (self.source(), self.destination());
        write!(
            f,
            "{from} > {to} protocol {} ({} bytes)",
            self.protocol(),
            self.frame().len()
        )
    }
}

/// The right to one packet buffer. See the module's page: it is passed on, never dropped.
#[must_use = "a packet is passed on or given back to its pool"]
pub struct PacketBox(NonNull<Notes>);

// SAFETY: a box is the only handle to its buffer, and a buffer is plain memory.
unsafe impl Send for PacketBox {}

impl PacketBox {
    /// Asks the processor to fetch the notes and the first line of the frame.
    #[inline]
    pub fn prefetch(&self) {
        let notes = self.0.as_ptr().cast::<u8>();
        crate::memory::prefetch(notes);
        crate::memory::prefetch(notes.wrapping_add(64 + HEADROOM));
    }
}

impl Deref for PacketBox {
    type Target = Packet;
    #[inline]
    fn deref(&self) -> &Packet {
        // SAFETY: the box alone owns the buffer; `capacity` was set by the pool that made it and never changes.
        unsafe {
            let capacity = (*self.0.as_ptr()).capacity as usize;
            &*(core::ptr::slice_from_raw_parts(self.0.as_ptr().cast::<u8>(), capacity) as *const Packet)
        }
    }
}

impl DerefMut for PacketBox {
    #[inline]
    fn deref_mut(&mut self) -> &mut Packet {
        // SAFETY: as above, and `&mut self` makes this the only reference.
        unsafe {
            let capacity = (*self.0.as_ptr()).capacity as usize;
            &mut *(core::ptr::slice_from_raw_parts_mut(self.0.as_ptr().cast::<u8>(), capacity) as *mut Packet)
        }
    }
}

impl core::fmt::Debug for PacketBox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

/// A queue of packets, first in first out, linked through the buffers themselves: it allocates nothing.
#[derive(Default)]
pub struct PacketList {
    head: Option<NonNull<Notes>>,
    tail: Option<NonNull<Notes>>,
    length: u32,
}

// SAFETY: a list owns the boxes in it, which are `Send`.
unsafe impl Send for PacketList {}

impl PacketList {
    /// An empty list.
    pub const fn new() -> Self {
        PacketList {
            head: None,
            tail: None,
            length: 0,
        }
    }

    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Appends a packet.
    pub fn push(&mut self, packet: PacketBox) {
        let node = packet.0;
        // SAFETY: the list now owns the buffer; its tail is a buffer that the list owns, too.
        unsafe {
            (*node.as_ptr()).next = None;
            match self.tail {
                Some(tail) => (*tail.as_ptr()).next = Some(node),
                None => self.head = Some(node),
            }
        }
        self.tail = Some(node);
        self.length += 1;
    }

    /// Takes the oldest packet.
    pub fn pop(&mut self) -> Option<PacketBox> {
        let node = self.head?;
        // SAFETY: the list owns its head.
        self.head = unsafe { (*node.as_ptr()).next.take() };
        if self.head.is_none() {
            self.tail = None;
        }
        self.length -= 1;
        Some(PacketBox(node))
    }
}

/// Buffers of one size in one region; taken and given back by one worker.
pub struct Pool {
    // Field order matters for nothing: boxes do not touch the region when dropped.
    free: Vec<PacketBox>,
    total: usize,
    origin: u8,
    _region: Region,
}

impl Pool {
    /// Bytes of region that `count` buffers for frames of up to `frame_max` bytes take.
    pub fn region_length(count: usize, frame_max: usize) -> usize {
        count * Self::stride(frame_max)
    }

    fn stride(frame_max: usize) -> usize {
        (size_of::<Notes>() + HEADROOM + frame_max.min(FRAME_MAX)).next_multiple_of(64)
    }

    /// Lays `count` buffers for frames of up to `frame_max` bytes out in `region`. `origin` numbers the pool: a
    /// worker that ends up with a buffer of somebody else's sends it home by that number.
    ///
    /// # Panics
    /// If the region is smaller than [`Pool::region_length`].
    pub fn new(region: Region, count: usize, frame_max: usize, origin: u8) -> Self {
        let stride = Self::stride(frame_max);
        assert!(
            count
                .checked_mul(stride)
                .is_some_and(|length| length <= region.length()),
            "the region is too small for {count} buffers"
        );
        let mut free = Vec::with_capacity(count);
        for index in (0..count).rev() {
            // SAFETY: the offset lies within the region (asserted above) and is a multiple of 64, so aligned.
            let notes = unsafe { region.start().add(index * stride) }.cast::<Notes>();
            let capacity = (stride - size_of::<Notes>()) as u32;
            // SAFETY: the memory is the region's and nobody else has a pointer to it yet.
            unsafe {
                notes.write(Notes {
                    capacity,
                    origin,
                    start: HEADROOM as u16,
                    ..Notes::EMPTY
                })
            };
            free.push(PacketBox(notes));
        }
        Pool {
            free,
            total: count,
            origin,
            _region: region,
        }
    }

    /// Takes a buffer, or `None` when all are out.
    #[inline]
    pub fn take(&mut self) -> Option<PacketBox> {
        let mut packet = self.free.pop()?;
        // What the packet before went through is over.
        packet.clear_turns();
        Some(packet)
    }

    /// Gives a buffer back.
    #[inline]
    pub fn give(&mut self, packet: PacketBox) {
        debug_assert_eq!(packet.origin(), self.origin, "a buffer goes home to its own pool");
        debug_assert!(self.free.len() < self.total, "a buffer is given back once");
        self.free.push(packet);
    }

    /// How many buffers are free.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many buffers there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The pool's number.
    #[inline]
    pub fn origin(&self) -> u8 {
        self.origin
    }
}

/// Boxes handed out point into the region: who drops a pool while some are out would leave them dangling, so the
/// region of such a pool is leaked instead. It is not an error: a killed ring may hold the last of them. A stranger's
/// buffer, given back here by mistake, counts for none of ours.
impl Drop for Pool {
    fn drop(&mut self) {
        let start = self._region.start().addr().get();
        let ours = start..start + self._region.length();
        let home = self
            .free
            .iter()
            .filter(|p| ours.contains(&p.0.addr().get()))
            .count();
        if home != self.total {
            let region = core::mem::replace(&mut self._region, Region::heap(0));
            core::mem::forget(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(count: usize) -> Pool {
        Pool::new(Region::heap(Pool::region_length(count, 2048)), count, 2048, 0)
    }

    #[test]
    fn buffers_come_and_go() {
        let mut pool = pool(2);
        let mut a = pool.take().unwrap();
        let b = pool.take().unwrap();
        assert!(pool.take().is_none());
        assert!(a.set_frame(&[7; 60], LinkType::Ethernet));
        assert_eq!(a.frame(), &[7; 60]);
        assert!(a.grow_front(HEADROOM));
        assert!(!a.grow_front(1));
        assert!(!a.set_frame(&[0; 3000], LinkType::Ethernet));
        pool.give(a);
        pool.give(b);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn a_packet_written_anew_keeps_its_way_and_a_fresh_buffer_has_none() {
        let mut pool = pool(1);
        let mut a = pool.take().unwrap();
        a.add_turn();
        a.set_exit(Side::Outside);
        assert!(a.set_frame(&[7; 60], LinkType::Ethernet));
        assert_eq!((a.turns(), a.exit()), (1, Side::Outside));
        pool.give(a);
        let a = pool.take().unwrap();
        assert_eq!(a.turns(), 0);
        pool.give(a);
    }

    #[test]
    fn lists_keep_order() {
        let mut pool = pool(3);
        let mut list = PacketList::new();
        for n in 0..3 {
            let mut p = pool.take().unwrap();
            p.set_timestamp(n);
            list.push(p);
        }
        for n in 0..3 {
            let p = list.pop().unwrap();
            assert_eq!(p.timestamp(), n);
            pool.give(p);
        }
        assert!(list.pop().is_none() && list.is_empty());
    }

    #[test]
    fn a_pool_that_goes_before_its_buffers_leaves_them_usable() {
        let mut pool = pool(1);
        let mut p = pool.take().unwrap();
        drop(pool);
        assert!(p.set_frame(&[1; 10], LinkType::Raw));
    }

    #[test]
    fn a_buffer_given_to_the_wrong_pool_stays_valid() {
        let (mut ours, mut theirs) = (pool(1), pool(1));
        let (a, b) = (ours.take().unwrap(), theirs.take().unwrap());
        ours.give(b);
        theirs.give(a);
        drop(ours);
        // It lies in the region of the pool that is gone.
        let mut a = theirs.take().unwrap();
        assert!(a.set_frame(&[1; 10], LinkType::Raw));
        assert_eq!(a.frame(), &[1; 10]);
        theirs.give(a);
    }

    #[test]
    fn packets_cross_threads_in_lists() {
        let mut pool = pool(3);
        let mut list = PacketList::new();
        for n in 0..3 {
            let mut p = pool.take().unwrap();
            assert!(p.set_frame(&[n; 20], LinkType::Raw));
            p.prefetch();
            list.push(p);
        }
        let mut list = std::thread::spawn(move || {
            let mut back = PacketList::new();
            while let Some(mut p) = list.pop() {
                p.frame_mut()[0] += 10;
                assert!(p.grow_front(4) && p.set_length(30));
                back.push(p);
            }
            back
        })
        .join()
        .unwrap();
        let mut first = list.pop().unwrap();
        let second = list.pop().unwrap();
        assert_eq!((first.frame()[4], second.frame()[4]), (10, 11));
        assert!(first.copy_from(&second));
        assert_eq!((first.frame(), first.origin()), (second.frame(), 0));
        for p in [first, second, list.pop().unwrap()] {
            pool.give(p);
        }
        assert_eq!(pool.free(), 3);
    }

    #[test]
    #[should_panic(expected = "too small")]
    fn a_region_too_small_is_no_pool() {
        Pool::new(Region::heap(4096), usize::MAX / 2048, 2048, 0);
    }
}
