//! Packets and the pool their buffers come from.
//!
//! A buffer is one piece of memory: a cache line of notes ([`Packet`]'s fields), headroom, the
//! frame, tailroom.
//!
//! ```text
//!   64 B notes │ headroom 128 B │ frame … │ tailroom
//!              └ storage ─────────────────┘  `capacity` bytes
//! ```
//!
//! A [`PacketBox`] *is* the right to a buffer. It moves: from the pool to a port, over rings to
//! other workers, out of a port, back to the pool it came from. Nothing counts references and
//! nothing is freed on drop: the owner of a box either passes it on or gives it back to a [`Pool`].
//! The conservation tests (in = out + held + dropped, all buffers home) prove that every owner
//! does.

mod ethernet;
mod pool;
mod way;

use crate::{Addr, Endpoint, LinkType};
use core::ptr::NonNull;
pub use pool::{PacketBox, PacketList, Pool, PoolMemory};

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

/// The kind of a buffer's content on a link between workers.
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

/// Results of parsing, beyond offsets: bits of [`Packet::flags`].
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
    /// The last function sends the packet back to its own side by way of the outside (hairpin, RFC
    /// 4787 5).
    pub const HAIRPIN: u16 = 64;
    /// The IP header has options (IPv4) or extension headers (IPv6).
    pub const HAS_OPTIONS: u16 = 128;
    /// A source route (option, routing header) leads on: the checksum covers the final destination
    /// (RFC 8200 8.1).
    pub const SOURCE_ROUTED: u16 = 256;
    /// Both ends are inside (of an ICMP error: of the packet it quotes): it does not cross the
    /// border, and leaves to inside.
    pub const INSIDE_TO_INSIDE: u16 = 512;
    /// A fragment that is followed: it has the ports of its first one.
    pub const FOLLOWED: u16 = 1024;
    /// A function made it, here: an answer, or a packet beside another. It came in by no port.
    pub const MADE: u16 = 2048;
    /// It lies under MPLS labels, which lead one way: it leaves with them, and has no answer (RFC
    /// 3031 3.18).
    pub const LABELLED: u16 = 4096;
    /// A copy that is held in its packet's place: it leaves nowhere.
    pub const COPY: u16 = 8192;
    /// Its flow is watched: a bit for each watch (`runtime::watch`).
    pub const WATCHED: u16 = 0xc000;
}

/// A packet: the frame's bytes and notes on them.
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
    hairpins: u8,
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

    /// The whole frame, to be changed. A caller that moves headers calls [`crate::parse()`] again.
    #[inline]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let start = self.notes.start as usize;
        &mut self.storage[start..start + self.notes.length as usize]
    }

    /// Makes `frame` the packet's bytes and forgets the notes; `false` (and no change) if it does
    /// not fit.
    pub fn set_frame(&mut self, frame: &[u8], link: LinkType) -> bool {
        if frame.len() > FRAME_MAX || HEADROOM + frame.len() > self.storage.len() {
            return false;
        }
        self.storage[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
        self.reset(frame.len(), link);
        true
    }

    /// Forgets the notes on the frame and makes it `length` bytes long (their content is whatever
    /// the buffer held), for a caller that fills it by itself. The length is cut to the buffer's
    /// room. Notes on the packet's way (sides, port, time, hairpins) stay: a function that writes
    /// an answer over a packet does not send it elsewhere.
    pub fn reset(&mut self, length: usize, link: LinkType) {
        let length = length.min(FRAME_MAX).min(self.storage.len() - HEADROOM);
        let Notes {
            capacity,
            origin,
            side,
            exit,
            port,
            timestamp,
            hairpins,
            ..
        } = self.notes;
        self.notes = Notes {
            capacity,
            origin,
            side,
            exit,
            port,
            timestamp,
            hairpins,
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

    /// Makes the frame `length` bytes long, cutting or extending its end; `false` if the tailroom
    /// is used up.
    pub fn set_length(&mut self, length: usize) -> bool {
        if length > FRAME_MAX || self.notes.start as usize + length > self.storage.len() {
            return false;
        }
        self.notes.length = length as u32;
        self.notes.wire_length = length as u32;
        self.notes.flags &= !flag::PARSED;
        true
    }

    /// Length of the frame as it was on the wire; more than [`Packet::frame`] has where a capture
    /// was cut short.
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

    /// The kind of the buffer's content.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.notes.kind
    }

    /// Sets the kind of the buffer's content.
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

    /// The transport's payload.
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

    /// Notes the ports: of a fragment, whose first one had them, or of a packet just rewritten. A
    /// caller that gives a later fragment of an ICMP query its identifier also sets
    /// [`flag::ICMP_QUERY`].
    #[inline]
    pub fn set_ports(&mut self, source: u16, destination: u16) {
        self.notes.ports = [source, destination];
    }

    /// Notes the transport protocol: of a later fragment of IPv6, whose own header need not tell
    /// (RFC 8200 4.5).
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
        self.notes.flags = (self.notes.flags
            & (flag::HAIRPIN | flag::INSIDE_TO_INSIDE | flag::MADE | flag::WATCHED))
            | layers.flags
            | flag::PARSED;
    }

    /// Copies frame and notes (all but what ties a buffer to its pool) from another packet; `false`
    /// if it does not fit.
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
        hairpins: 0,
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
