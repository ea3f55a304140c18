//! Addresses that a port answers for although they are not this host's: the kernel would not, and
//! neighbours could not reach them.
//!
//! # Theory of operation
//!
//! A NAT's pool and a load balancer's virtual addresses may lie in a network that the gateway is
//! connected to. A neighbour there that sends to one asks for its link address, and the gateway's
//! kernel does not know it. So these addresses are *claimed*: the filter leaves requests for them
//! to Flowkeep ([`Claims`]), and the port that receives such a request answers it with its
//! interface's own link address, at once ([`Responder`]). When the port starts it announces where
//! the addresses are, so that neighbours that knew them at another gateway send here.
//!
//! ```text
//!   who-has 203.0.113.5 tell 203.0.113.254 ─► filter: claimed ─► port ─► 203.0.113.5 is-at (this interface)
//!   who-has 203.0.113.1 …                  ─► filter: not claimed, or this host's own ─► kernel
//! ```
//!
//! Requests that were answered are neither received nor sent packets; they are counted apart
//! ([`PortCounters::answered_packets`](runtime::PortCounters)). A frame that looks like a request
//! and is none (RFC 826, RFC 4861 7.1.1) goes on as any frame does, and is dropped and counted
//! where it makes no sense.
//!
//! Invariants: only requests for claimed addresses are answered, one answer each, never to a group
//! address; announcements are at most [`ANNOUNCED_MAX`] frames.
//!
//! The interface's link address is that of the port's start: an interface that gets another one
//! needs a restart.
//!
//! Not here: which addresses those are (functions say so), this host's own ([`super::addresses`]).
//!
//! Sources: RFC 826; RFC 5227 2.4 (announcements); RFC 4861 7.1.1, 7.2.4, 7.2.6.

use super::Interface;
use super::bpf::{Map, MapKind};
use super::system::{set_option, socket};
use runtime::env::{Burst, PortCounters};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use wire::checksum::{fold, sum};
use wire::{Addr, LinkType, Packet, Pool, Prefix};

/// The most prefixes that are claimed.
pub const CLAIMS_MAX: u32 = 4096;
/// The most addresses about which something is said unasked.
pub const ANNOUNCED_MAX: u32 = 256;

/// The claimed prefixes of an interface, in a map that its filter reads. It is empty until
/// something is claimed.
#[derive(Debug)]
pub struct Claims {
    map: Map<20, 1>,
    /// Keeps the device receiving frames to the groups of claimed IPv6 addresses.
    groups: Mutex<Option<OwnedFd>>,
}

impl Claims {
    /// Nothing claimed.
    pub fn new() -> io::Result<Self> {
        Ok(Claims {
            map: Map::new(MapKind::Prefixes, CLAIMS_MAX, "fk_claims")?,
            groups: Mutex::default(),
        })
    }

    /// The map's descriptor, for the filter.
    pub fn descriptor(&self) -> i32 {
        self.map.descriptor()
    }

    /// From now on requests for these addresses are Flowkeep's, on the interface that the filter is
    /// on.
    pub fn add(&self, prefixes: &[Prefix], interface: &Interface) -> io::Result<()> {
        for prefix in prefixes {
            self.insert(prefix)?;
        }
        let mut groups = self
            .groups
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if groups.is_none() && prefixes.iter().any(|prefix| !prefix.is_v4()) {
            *groups = Some(receive_all_groups(interface)?);
        }
        Ok(())
    }

    /// Requests for these are the kernel's again.
    pub fn remove<'a>(&self, prefixes: impl IntoIterator<Item = &'a Prefix>) -> io::Result<()> {
        for prefix in prefixes {
            match self.map.remove(&key_of(prefix)) {
                // Another port of the interface has done it.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                done => done?,
            }
        }
        Ok(())
    }

    pub(super) fn insert(&self, prefix: &Prefix) -> io::Result<()> {
        self.map.insert(&key_of(prefix), &[1])
    }
}

/// Length in bits over the mapped form, in this machine's order, then the address.
fn key_of(prefix: &Prefix) -> [u8; 20] {
    let bits = u32::from(prefix.length()) + if prefix.is_v4() { 96 } else { 0 };
    let mut key = [0; 20];
    key[..4].copy_from_slice(&bits.to_ne_bytes());
    key[4..].copy_from_slice(prefix.addr().octets());
    key
}

/// Has the device receive frames for all groups, for as long as the descriptor lives: solicitations
/// are sent to a group that follows from the address, and there may be as many groups as addresses.
fn receive_all_groups(interface: &Interface) -> io::Result<OwnedFd> {
    // Protocol 0: the socket itself receives nothing.
    let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let membership = libc::packet_mreq {
        mr_ifindex: interface.index as libc::c_int,
        mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(fd)
}

/// Answers requests for claimed addresses with one interface's link address.
#[derive(Debug)]
pub struct Responder {
    link: [u8; 6],
    claimed: Vec<Prefix>,
    /// The prefix, and the address of it, to announce next; how many are left to announce.
    next: (usize, u32),
    untold: u32,
}

const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Bytes of a request or reply of ARP for IPv4 over Ethernet.
const ARP_BYTES: usize = 28;
const IPV6_HEADER: usize = 40;
/// A solicitation, or advertisement, without options.
const DISCOVERY: usize = 24;
/// The option that has a link address.
const LINK_OPTION: usize = 8;
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_NODES_LINK: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const NEXT_ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

impl Responder {
    /// Nothing claimed; `link` is the interface's address.
    pub fn new(link: [u8; 6]) -> Self {
        Responder {
            link,
            claimed: Vec::new(),
            next: (0, 0),
            untold: ANNOUNCED_MAX,
        }
    }

    /// Answers for these from now on, and for no others; says unasked where those are that are new.
    pub fn claim(&mut self, prefixes: &[Prefix]) {
        self.claimed.retain(|prefix| prefixes.contains(prefix));
        let kept = self.claimed.len();
        let new = prefixes
            .iter()
            .filter(|prefix| !self.claimed[..kept].contains(prefix));
        let new: Vec<Prefix> = new.copied().collect();
        if !new.is_empty() {
            (self.next, self.untold) = ((kept, 0), ANNOUNCED_MAX);
        }
        self.claimed.extend(new);
    }

    /// Claimed prefixes that are not among `prefixes`.
    pub fn beyond<'a>(&'a self, prefixes: &'a [Prefix]) -> impl Iterator<Item = &'a Prefix> {
        self.claimed.iter().filter(|prefix| !prefixes.contains(prefix))
    }

    /// Whether nothing is claimed.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.claimed.is_empty()
    }

    /// Takes the requests out of `burst` from place `from` on, and leaves their answers in
    /// `answers`, which are to be sent. Requests are not counted as received any more.
    pub fn pick(&self, burst: &mut Burst, from: usize, answers: &mut Burst, counters: &mut PortCounters) {
        let mut at = from;
        while at < burst.len() {
            let bytes = burst[at].frame().len() as u64;
            if answers.is_full() || !self.answer(&mut burst[at]) {
                at += 1;
                continue;
            }
            counters.received_packets -= 1;
            counters.received_bytes -= bytes;
            counters.answered_packets += 1;
            answers.push(burst.remove(at));
        }
    }

    fn claims(&self, address: Addr) -> bool {
        self.claimed.iter().any(|prefix| prefix.contains(address))
    }

    /// Makes a request its answer; `false`, and nothing is changed, if it is none that is answered
    /// here.
    pub fn answer(&self, packet: &mut Packet) -> bool {
        let Some((at, ether_type)) = behind_tags(packet.frame()) else {
            return false;
        };
        // Never to a group.
        if packet.frame()[6] & 1 != 0 {
            return false;
        }
        match ether_type {
            ARP => self.answer_arp(packet, at),
            IPV6 => self.answer_solicitation(packet, at),
            _ => false,
        }
    }

    fn answer_arp(&self, packet: &mut Packet, at: usize) -> bool {
        let Some(request) = packet.frame().get(at..at + ARP_BYTES) else {
            return false;
        };
        // Ethernet, IPv4, their lengths, a request.
        if request[..8] != [0, 1, 8, 0, 6, 4, 0, 1] {
            return false;
        }
        let (sender, target): ([u8; 4], [u8; 4]) = (field(request, 14), field(request, 24));
        // A sender that announces the address asks nothing.
        if sender == target || !self.claims(Addr::v4(target)) {
            return false;
        }
        let asker: [u8; 6] = field(request, 8);
        // The answer goes where the request says, which need not be where the frame is from.
        if asker[0] & 1 != 0 {
            return false;
        }
        let frame = packet.frame_mut();
        self.address(frame, asker);
        let reply = &mut frame[at..at + ARP_BYTES];
        reply[7] = 2;
        reply[8..14].copy_from_slice(&self.link);
        reply[14..18].copy_from_slice(&target);
        reply[18..24].copy_from_slice(&asker);
        reply[24..28].copy_from_slice(&sender);
        true
    }

    fn answer_solicitation(&self, packet: &mut Packet, at: usize) -> bool {
        let frame = packet.frame();
        let Some(header) = frame.get(at..at + IPV6_HEADER) else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let Some(message) = frame.get(at + IPV6_HEADER..at + IPV6_HEADER + length) else {
            return false;
        };
        let plain = header[0] >> 4 == 6 && header[6] == NEXT_ICMPV6 && header[7] == 255;
        if !plain || length < DISCOVERY || message[..2] != [SOLICITATION, 0] {
            return false;
        }
        let (source, to): ([u8; 16], [u8; 16]) = (field(header, 8), field(header, 24));
        let target: [u8; 16] = field(message, 8);
        let whole = fold(sum(message, pseudo_sum(source, to, length))) == 0xffff;
        if !whole || !self.claims(Addr::v6(target)) {
            return false;
        }
        let asker: [u8; 6] = field(frame, 6);
        // A sender without an address asks whether this one is free: all nodes are told that it is
        // not.
        let has_no_address = source == [0; 16];
        let (to, to_link, flags) = match has_no_address {
            true => (ALL_NODES, ALL_NODES_LINK, OVERRIDE),
            false => (source, asker, SOLICITED | OVERRIDE),
        };
        if !packet.set_length(at + IPV6_HEADER + DISCOVERY + LINK_OPTION) {
            return false;
        }
        let frame = packet.frame_mut();
        self.address(frame, to_link);
        self.advertise(&mut frame[at..], target, to, flags);
        true
    }

    /// Writes the frame's link addresses: its receiver's and this port's.
    fn address(&self, frame: &mut [u8], to: [u8; 6]) {
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&self.link);
    }

    /// Writes an advertisement, IPv6 header and all.
    fn advertise(&self, packet: &mut [u8], target: [u8; 16], to: [u8; 16], flags: u8) {
        let length = DISCOVERY + LINK_OPTION;
        let (header, message) = packet.split_at_mut(IPV6_HEADER);
        header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, length as u8, NEXT_ICMPV6, 255]);
        header[8..24].copy_from_slice(&target);
        header[24..].copy_from_slice(&to);
        message[..8].copy_from_slice(&[ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
        message[8..24].copy_from_slice(&target);
        // The target's link address, in units of eight bytes.
        message[24..26].copy_from_slice(&[2, 1]);
        message[26..32].copy_from_slice(&self.link);
        let sum = !fold(sum(message, pseudo_sum(target, to, length)));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }

    /// Fills `burst` with announcements, as far as they have not been made yet.
    pub fn announce(&mut self, pool: &mut Pool, burst: &mut Burst) {
        while self.untold > 0 && !burst.is_full() {
            let Some(address) = self.next_untold() else { return };
            let Some(mut packet) = pool.take() else { return };
            self.announcement(&mut packet, address);
            burst.push(packet);
            self.untold -= 1;
            self.next.1 += 1;
        }
    }

    /// Whether announcements are left to make.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.untold > 0 && self.next.0 < self.claimed.len()
    }

    fn next_untold(&mut self) -> Option<Addr> {
        loop {
            let prefix = self.claimed.get(self.next.0)?;
            let host_bits = if prefix.is_v4() { 32 } else { 128 } - u32::from(prefix.length());
            if host_bits >= 32 || self.next.1 < 1 << host_bits {
                let first = u128::from_be_bytes(*prefix.addr().octets());
                let address = Addr::v6((first | u128::from(self.next.1)).to_be_bytes());
                return Some(address);
            }
            self.next = (self.next.0 + 1, 0);
        }
    }

    /// An ARP announcement, or an unsolicited advertisement.
    fn announcement(&self, packet: &mut Packet, address: Addr) {
        if let Some(address) = address.as_v4() {
            packet.reset(14 + ARP_BYTES, LinkType::Ethernet);
            let frame = packet.frame_mut();
            self.address(frame, [0xff; 6]);
            frame[12..14].copy_from_slice(&ARP);
            let body = &mut frame[14..];
            body[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
            body[8..14].copy_from_slice(&self.link);
            body[14..18].copy_from_slice(&address);
            body[18..24].fill(0);
            body[24..28].copy_from_slice(&address);
        } else {
            packet.reset(14 + IPV6_HEADER + DISCOVERY + LINK_OPTION, LinkType::Ethernet);
            let frame = packet.frame_mut();
            self.address(frame, ALL_NODES_LINK);
            frame[12..14].copy_from_slice(&IPV6);
            self.advertise(&mut frame[14..], *address.octets(), ALL_NODES, OVERRIDE);
        }
    }
}

/// So many bytes from `at` on, which the caller has seen to be there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|octet| bytes[at + octet])
}

/// Where the frame's packet starts, and its EtherType, behind two tags at most.
fn behind_tags(frame: &[u8]) -> Option<(usize, [u8; 2])> {
    let mut at = 12;
    for _ in 0..2 {
        match frame.get(at..at + 2)? {
            [0x81, 0x00] | [0x88, 0xa8] => at += 4,
            _ => break,
        }
    }
    let ether_type = frame.get(at..at + 2)?;
    Some((at + 2, [ether_type[0], ether_type[1]]))
}

/// The pseudo-header's part of the sum of an ICMPv6 message (RFC 8200 8.1).
fn pseudo_sum(source: [u8; 16], to: [u8; 16], length: usize) -> u32 {
    sum(&to, sum(&source, length as u32 + u32::from(NEXT_ICMPV6)))
}

#[cfg(test)]
mod tests;
