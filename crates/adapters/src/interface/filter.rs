//! Whose packet is it? A program in the kernel that tells the frames Flowkeep takes from those the
//! kernel keeps.
//!
//! # Theory of operation
//!
//! The kernel keeps the control plane it is good at: it answers ARP and neighbour discovery, and
//! packets to its own addresses are its own. Everything else that is IP is Flowkeep's, and the
//! kernel must not see it: it would forward it a second time, or answer a translated connection
//! with a reset.
//!
//! ```text
//!   frame ─► to another station of the link ────────────────────► kernel
//!         ─► ARP request, ND solicitation for a claimed address ► Flowkeep, unless the address is this host's
//!         ─► to a group of stations: all, or some ──────────────► kernel
//!         ─► not IP (ARP, LLDP, …) ─────────────────────────────► kernel
//!         ─► IPv4 to 224.0.0.0/24, 255.255.255.255 ─────────────► kernel
//!         ─► IPv6 to multicast of host or link, fe80::/10, ND ──► kernel
//!         ─► to an address of this host ────────────────────────► kernel
//!         ─► all other IP ──────────────────────────────────────► Flowkeep
//! ```
//!
//! One program text, three places, whose answers differ:
//!
//! | place | Flowkeep's | the kernel's |
//! |---|---|---|
//! | XDP (`afxdp`) | redirected to the queue's socket; dropped if it has none | passed on |
//! | socket (`afpacket`) | received | not received |
//! | tc ingress (`afpacket`) | dropped: the socket has its copy | passed on |
//!
//! A router takes no frames but its own (RFC 1812 5.3.4): a frame that a switch has flooded is on
//! its way to another station, and a packet in a broadcast frame would be forwarded by all routers
//! of the link. The kernel drops both, wherever it has no use of its own for them.
//!
//! A bridge takes every frame ([`Take::Everything`]).
//!
//! Invariants: a frame is either the kernel's or Flowkeep's; the program answers every frame,
//! however short. Checked in the tests against a second opinion in Rust, by running the real
//! program in the kernel.
//!
//! A frame that ends inside a header is the kernel's: the kernel drops it.
//!
//! Not here: which addresses and stations are this host's ([`super::addresses`]), which are claimed
//! ([`super::claims`]).

use super::assembler::{Assembler, Condition, Instruction, Label, Register, Width};
use Condition::{Above, Below, Equal, NotEqual};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where a driver hands frames over.
    Xdp {
        /// Descriptor of the map of sockets by queue.
        sockets: i32,
    },
    /// In front of a packet socket.
    Socket,
    /// In front of the kernel's stack, behind packet sockets.
    Ingress,
}

/// Which frames are Flowkeep's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// All of them: a bridge.
    Everything,
    /// Frames that are not the kernel's by the rules above.
    Routed {
        /// Descriptor of the map of this host's addresses.
        addresses: i32,
        /// Descriptor of the map of claimed prefixes.
        claims: i32,
        /// Descriptor of the map of this host's stations.
        stations: i32,
        /// The number of the interface that the program is for.
        interface: u32,
    },
}

/// An address as the map of addresses has it: IPv6, or IPv4 mapped into it.
pub type Key = [u8; 16];

/// A link address at which this host receives frames, as the map of stations has it: the number of
/// the interface in this machine's byte order, the address, two zeros.
pub type Station = [u8; 12];

/// The key of a link address of an interface.
pub fn station(interface: u32, [a, b, c, d, e, f]: [u8; 6]) -> Station {
    let [i, j, k, l] = interface.to_ne_bytes();
    [i, j, k, l, a, b, c, d, e, f, 0, 0]
}

const LOOKUP: i32 = 1;
const LOAD_BYTES: i32 = 26;
const REDIRECT: i32 = 51;
const LOAD_BYTES_XDP: i32 = 189;

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const TRAFFIC_NEXT: i32 = -1;
const TRAFFIC_DROP: i32 = 2;

/// Tags looked behind; a frame with more is the kernel's.
const TAGS_MAX: usize = 2;
/// Where headers are put on the stack.
const HEADER: i16 = -48;
/// Where the key of an address is put.
const KEY: i16 = -64;
/// Where the length of a prefix is put, in front of the key.
const PREFIX: i16 = KEY - 4;

/// A program that tells whose a frame is.
pub fn program(place: Place, take: Take) -> Vec<Instruction> {
    let mut text = Text {
        assembler: Assembler::new(),
        place,
    };
    text.write(take);
    text.assembler.finish()
}

struct Text {
    assembler: Assembler,
    place: Place,
}

/// A 16-bit field as a load on this machine has it.
fn wire(field: u16) -> i32 {
    i32::from(u16::from_ne_bytes(field.to_be_bytes()))
}

impl Text {
    fn write(&mut self, take: Take) {
        let (ours, kernels) = (self.assembler.label(), self.assembler.label());
        self.assembler.copy(R6, R1);
        if let Take::Routed {
            addresses,
            claims,
            stations,
            interface,
        } = take
        {
            self.judge_station(stations, interface, kernels);
            self.judge((addresses, claims), ours, kernels);
        }
        self.assembler.place(ours);
        self.answer_ours();
        if take != Take::Everything {
            self.assembler.place(kernels);
            let answer = match self.place {
                Place::Xdp { .. } => XDP_PASS,
                Place::Socket => 0,
                Place::Ingress => TRAFFIC_NEXT,
            };
            self.assembler.set(R0, answer);
            self.assembler.exit();
        }
    }

    fn answer_ours(&mut self) {
        let a = &mut self.assembler;
        match self.place {
            Place::Xdp { sockets } => {
                // xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index
                a.load(Width::Word, R2, R6, 16);
                a.load_map(R1, sockets);
                a.set(R3, XDP_DROP);
                a.call(REDIRECT);
            }
            // As many bytes as there are.
            Place::Socket => a.set(R0, i32::MAX),
            Place::Ingress => a.set(R0, TRAFFIC_DROP),
        }
        a.exit();
    }

    /// Puts `count` bytes of the frame, from R7 on, on the stack. A frame that has not so many is
    /// the kernel's.
    fn fetch(&mut self, count: i32, kernels: Label) {
        let a = &mut self.assembler;
        a.copy(R1, R6);
        a.copy(R2, R7);
        a.copy(R3, R10);
        a.add(R3, i32::from(HEADER));
        a.set(R4, count);
        a.call(match self.place {
            Place::Xdp { .. } => LOAD_BYTES_XDP,
            _ => LOAD_BYTES,
        });
        a.jump(NotEqual, R0, 0, kernels);
    }

    /// Leaves frames to other stations to the kernel. R9 is not zero from here on if the frame is to
    /// a group of stations. The link header stays on the stack.
    fn judge_station(&mut self, stations: i32, interface: u32, kernels: Label) {
        self.assembler.set(R7, 0);
        self.fetch(14, kernels);
        let a = &mut self.assembler;
        let group = a.label();
        a.load(Width::Byte, R9, R10, HEADER);
        a.and(R9, 1);
        a.jump(NotEqual, R9, 0, group);
        a.store_number(Width::Word, R10, KEY, interface as i32);
        a.load(Width::Word, R8, R10, HEADER);
        a.store(Width::Word, R10, KEY + 4, R8);
        a.load(Width::Half, R8, R10, HEADER + 4);
        a.store(Width::Half, R10, KEY + 8, R8);
        a.store_number(Width::Half, R10, KEY + 10, 0);
        self.find(stations, KEY);
        self.assembler.jump(Equal, R0, 0, kernels);
        self.assembler.place(group);
    }

    /// R7 is where the next header starts in the frame, R8 the EtherType.
    fn judge(&mut self, maps: (i32, i32), ours: Label, kernels: Label) {
        self.assembler.load(Width::Half, R8, R10, HEADER + 12);
        self.assembler.set(R7, 14);
        let ip = self.assembler.label();
        for _ in 0..TAGS_MAX {
            let tag = self.assembler.label();
            self.assembler.jump(Equal, R8, wire(0x8100), tag);
            self.assembler.jump(NotEqual, R8, wire(0x88a8), ip);
            self.assembler.place(tag);
            self.fetch(4, kernels);
            self.assembler.load(Width::Half, R8, R10, HEADER + 2);
            self.assembler.add(R7, 4);
        }
        self.assembler.place(ip);
        let (v6, look_up) = (self.assembler.label(), self.assembler.label());
        let (arp, claimed) = (self.assembler.label(), self.assembler.label());
        self.assembler.jump(Equal, R8, wire(0x86dd), v6);
        self.assembler.jump(Equal, R8, wire(0x0806), arp);
        self.assembler.jump(NotEqual, R8, wire(0x0800), kernels);
        self.version_4(kernels);
        self.assembler.jump(NotEqual, R9, 0, kernels);
        self.assembler.go(look_up);
        self.assembler.place(v6);
        self.version_6(claimed, kernels);
        self.assembler.jump(NotEqual, R9, 0, kernels);
        self.assembler.go(look_up);
        self.assembler.place(arp);
        self.arp(kernels);
        self.assembler.place(claimed);
        self.assembler.store_number(Width::Word, R10, PREFIX, 128);
        self.find(maps.1, PREFIX);
        self.assembler.jump(Equal, R0, 0, kernels);
        self.assembler.place(look_up);
        self.find(maps.0, KEY);
        self.assembler.jump(NotEqual, R0, 0, kernels);
        self.assembler.go(ours);
    }

    /// R0 is not null if the map has the key at this place of the stack.
    fn find(&mut self, map: i32, key: i16) {
        let a = &mut self.assembler;
        a.load_map(R1, map);
        a.copy(R2, R10);
        a.add(R2, i32::from(key));
        a.call(LOOKUP);
    }

    /// The key of an IPv4 address that is at this place of the stack.
    fn key_of_version_4(&mut self, at: i16) {
        let a = &mut self.assembler;
        a.load(Width::Word, R8, R10, at);
        a.store(Width::Word, R10, KEY + 12, R8);
        a.store_number(Width::Word, R10, KEY + 8, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
        a.store_number(Width::Double, R10, KEY, 0);
    }

    /// The key of an IPv6 address that is at this place of the stack.
    fn key_of_version_6(&mut self, at: i16) {
        let a = &mut self.assembler;
        for part in [0, 8] {
            a.load(Width::Double, R8, R10, at + part);
            a.store(Width::Double, R10, KEY + part, R8);
        }
    }

    /// The key of what a request asks for; all else is the kernel's.
    fn arp(&mut self, kernels: Label) {
        self.fetch(28, kernels);
        // Ethernet, IPv4, their lengths, a request.
        for (at, field) in [(0, 1), (2, 0x0800), (4, 0x0604), (6, 1)] {
            self.assembler.load(Width::Half, R8, R10, HEADER + at);
            self.assembler.jump(NotEqual, R8, wire(field), kernels);
        }
        self.key_of_version_4(HEADER + 24);
    }

    fn version_4(&mut self, kernels: Label) {
        self.fetch(20, kernels);
        let a = &mut self.assembler;
        let (unicast, not_link) = (a.label(), a.label());
        a.load(Width::Half, R8, R10, HEADER + 16);
        a.jump(NotEqual, R8, wire(0xe000), not_link);
        a.load(Width::Byte, R8, R10, HEADER + 18);
        a.jump(Equal, R8, 0, kernels);
        a.go(unicast);
        a.place(not_link);
        // By halves: a load of four bytes has no sign, the number of a jump has one.
        a.jump(NotEqual, R8, 0xffff, unicast);
        a.load(Width::Half, R8, R10, HEADER + 18);
        a.jump(Equal, R8, 0xffff, kernels);
        a.place(unicast);
        self.key_of_version_4(HEADER + 16);
    }

    fn version_6(&mut self, claimed: Label, kernels: Label) {
        self.fetch(40, kernels);
        let (solicitation, other) = (self.assembler.label(), self.assembler.label());
        self.assembler.load(Width::Byte, R8, R10, HEADER + 6);
        self.assembler.jump(NotEqual, R8, 58, other);
        // A solicitation is to a group, or to the address itself: its target says whose it is.
        self.assembler.add(R7, 40);
        self.fetch(1, kernels);
        self.assembler.load(Width::Byte, R8, R10, HEADER);
        self.assembler.jump(Equal, R8, 135, solicitation);
        self.assembler.add(R7, -40);
        self.fetch(40, kernels);
        self.assembler.go(other);
        self.assembler.place(solicitation);
        self.fetch(24, kernels);
        self.key_of_version_6(HEADER + 8);
        self.assembler.go(claimed);
        self.assembler.place(other);
        let a = &mut self.assembler;
        let (not_multicast, unicast) = (a.label(), a.label());
        a.load(Width::Byte, R8, R10, HEADER + 24);
        a.jump(NotEqual, R8, 0xff, not_multicast);
        a.load(Width::Byte, R8, R10, HEADER + 25);
        a.and(R8, 0x0f);
        a.jump(Below, R8, 3, kernels);
        a.go(unicast);
        a.place(not_multicast);
        a.jump(NotEqual, R8, 0xfe, unicast);
        a.load(Width::Byte, R8, R10, HEADER + 25);
        a.and(R8, 0xc0);
        a.jump(Equal, R8, 0x80, kernels);
        a.place(unicast);
        self.key_of_version_6(HEADER + 24);
        let a = &mut self.assembler;
        let ip = a.label();
        a.load(Width::Byte, R8, R10, HEADER + 6);
        a.jump(NotEqual, R8, 58, ip);
        // Neighbour discovery, unicast too.
        a.add(R7, 40);
        self.fetch(1, kernels);
        let a = &mut self.assembler;
        a.load(Width::Byte, R8, R10, HEADER);
        a.jump(Below, R8, 133, ip);
        a.jump(Above, R8, 137, ip);
        a.go(kernels);
        a.place(ip);
    }
}

#[cfg(test)]
mod tests;
