//! Fragments follow the flow of their first one, in whatever order they come (RFC 4787 REQ-14).
//!
//! Only the first fragment of a packet has ports. A worker that computes flow keys looks here: a
//! later fragment gets the ports of its first one, so both have one key. A fragment that comes
//! before its first is held until that has come.
//!
//! ```text
//!   10.0.0.1 > 10.0.0.2  id 7  at byte 1480             held: its flow is not known
//!   10.0.0.1 > 10.0.0.2  id 7  UDP 5000 > 53, first     goes on: ports 5000 > 53; and behind it the held one
//!   10.0.0.1 > 10.0.0.2  id 7  at byte 2960, last       goes on with the same ports; all is there
//!   10.0.0.1 > 10.0.0.2  id 7  at byte 2960, last       a copy: goes on with the same ports
//!   10.0.0.1 > 10.0.0.2  id 7  at byte 2960, other data the next datagram's, then: held
//! ```
//!
//! # Theory of operation
//!
//! A table of sets of eight places, one for each datagram that is followed; the hash is seeded. A
//! datagram takes, in the set that its key hashes to, a place that is free or out of date, or else
//! that of a whole datagram, or else that of a datagram that waits for its first fragment, or else
//! the oldest. So a flood of fragments costs others their place only in the sets it hits, and later
//! ones never cost a datagram its place whose first one is known, as long as one waits.
//!
//! ```text
//!            first                 all there           another datagram, one second, place taken
//!   free ──────────────► followed ───────────► whole ─────────────────────────────────────────────► free
//!    │                    ▲   │ overlap, too many parts
//!    │ later        first │   ▼                      timeout
//!    └─────────────► waiting ─► refused ──────────────────► free
//!                         │ five seconds, held table full, place taken: held ones are dropped
//!                         └──────────────────────────────────────────────────────────────► free
//! ```
//!
//! *Bounds.* Held fragments: a quarter of the datagrams that fit, in all; [`PIECES_MAX`] of one
//! datagram and as many copies; [`HOLD`] long. With one too many, the datagram that has waited
//! longest is given up: the usual disorder is a matter of milliseconds, so a flood's own fragments
//! go.
//!
//! *Overlaps.* A host that reassembles behind us must not read what no function judged. A fragment
//! that overlaps another, or lies behind the end, makes its datagram refused: nothing more of it
//! passes (RFC 5722 for IPv6, and the same for IPv4, as in Linux). Fragments that have passed by
//! then are without overlap and incomplete. A fragment in the place of another with other data is
//! dropped alone: else a forged one would end the datagram.
//!
//! *Copies.* Networks duplicate packets, and captures of both sides of a bridge have each twice. A
//! fragment with the place and the data of another is no attack: a host reads the same whichever it
//! takes (RFC 8200 4.5). It goes where its datagram goes, and waits as that does. So a datagram
//! that is whole is known for [`COPIES`]: a fragment that is no copy begins the next one of its
//! number. A next one whose later fragment comes first, and is equal to that of the one before,
//! gets the ports of that one.
//!
//! *Several switches.* A datagram's fragments may come in at different ones, and then its *home*
//! ([`Tracker::home`], by the hash of what its fragments have in common; ports are not among that)
//! is where they are followed: a switch hands every fragment there first, and then, with its ports,
//! to the home of its group.
//!
//! Invariants: memory is taken at the start only; no two parts of a datagram pass that overlap, but
//! copies; held fragments are within the bounds; the held fragments of a datagram are released
//! behind its first one in the order in which they came, or refused.
//!
//! Not here: putting fragments together. An ICMP error's own later fragments: they say nothing of
//! whose packet it quoted.
//!
//! Source: RFC 791 (2.3, identification by source, destination, protocol and id), RFC 8200 4.5 (by
//! source, destination and id; the protocol is the first fragment's), 60 seconds there; 30 seconds
//! for IPv4 as in Linux (`ipfrag_time`).

mod pieces;

pub use pieces::PIECES_MAX;

use crate::stats::DropReason;
use crate::switch::home_of;
use alloc::boxed::Box;
use alloc::vec::Vec;
use pieces::{Fit, Pieces};
use wire::fragment::{Fragment, fragment};
use wire::packet::flag;
use wire::{Addr, HashSeed, Packet, PacketBox, PacketList, planted};

/// How long a datagram of IPv4 is followed, in nanoseconds.
pub const V4_TIMEOUT: u64 = 30_000_000_000;
/// How long a datagram of IPv6 is followed, in nanoseconds.
pub const V6_TIMEOUT: u64 = 60_000_000_000;
/// How long a later fragment waits for its first one, in nanoseconds. Disorder takes milliseconds,
/// retransmission has new fragments.
pub const HOLD: u64 = 5_000_000_000;
/// How long copies of a datagram's fragments are known once all is there, in nanoseconds: as long
/// as a sender of 65,536 datagrams a second takes to use a number of IPv4 again.
pub const COPIES: u64 = 1_000_000_000;

const PLACES: usize = 8;
const NO_PLACE: u32 = u32::MAX;
/// Marks that a first fragment has for the others, besides ports: that they are an identifier, and
/// that both ends are inside.
const INHERITED: u16 = flag::ICMP_QUERY | flag::INSIDE_TO_INSIDE;

/// The fields that fragments of one packet have in common.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Key {
    source: Addr,
    destination: Addr,
    identification: u32,
    vlan: u16,
    /// 0 for IPv6.
    protocol: u8,
    version: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// For its first fragment; fragments that came are held.
    Waiting,
    Followed,
    /// All have come: a further fragment is a copy, or of the next datagram.
    Whole,
    /// Its fragments are dropped for this.
    Refused(DropReason),
}

struct Place {
    key: Key,
    state: State,
    /// When it is out of date; of a datagram that waits, when it is given up.
    until: u64,
    ports: [u16; 2],
    protocol: u8,
    /// The first fragment's marks of [`INHERITED`].
    flags: u16,
    held: PacketList,
    /// Neighbours in the order of waiting.
    before: u32,
    behind: u32,
    pieces: Pieces,
}

/// The datagrams that one worker follows.
pub struct Tracker {
    places: Box<[Place]>,
    seed: HashSeed,
    held: usize,
    held_max: usize,
    /// Of datagrams that wait.
    oldest: u32,
    newest: u32,
    released: PacketList,
    refused: Vec<(PacketBox, DropReason)>,
}

impl Tracker {
    /// A table for at least `capacity` datagrams, rounded up to sets of eight whose number is a
    /// power of two.
    pub fn new(capacity: usize, seed: HashSeed) -> Self {
        let places = capacity.div_ceil(PLACES).next_power_of_two() * PLACES;
        let free = || Place {
            key: Key::default(),
            state: State::Free,
            until: 0,
            ports: [0; 2],
            protocol: 0,
            flags: 0,
            held: PacketList::new(),
            before: NO_PLACE,
            behind: NO_PLACE,
            pieces: Pieces::NONE,
        };
        let held_max = places / 4;
        Tracker {
            places: core::iter::repeat_with(free).take(places).collect(),
            seed,
            held: 0,
            held_max,
            oldest: NO_PLACE,
            newest: NO_PLACE,
            released: PacketList::new(),
            // The most that one call refuses: all held fragments, and the packet at hand.
            refused: Vec::with_capacity(held_max + 1),
        }
    }

    /// How many datagrams fit.
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Fragments held now.
    pub fn held(&self) -> usize {
        self.held
    }

    /// The most fragments that are held at once.
    pub fn held_max(&self) -> usize {
        self.held_max
    }

    /// The switch where a fragment's datagram is followed.
    pub fn home(&self, packet: &Packet, switches: u8) -> u8 {
        match fragment(packet) {
            Some(part) => home_of(Key::of(packet, &part).hash(&self.seed), switches),
            None => 0,
        }
    }

    /// Looks at a parsed packet; `now` is the worker's clock in nanoseconds. The answer is the
    /// packet if it goes on now, with its ports; behind it go what [`Tracker::released`] answers.
    /// Dropped packets are in [`Tracker::refused`].
    #[cold]
    pub fn take(&mut self, mut packet: PacketBox, now: u64) -> Option<PacketBox> {
        self.expire(now);
        let Some(part) = fragment(&packet) else {
            return Some(packet);
        };
        if !part.is_sound() {
            return self.refuse(packet, DropReason::FrameMalformed);
        }
        let key = Key::of(&packet, &part);
        let digest = digest(&packet, &part, &self.seed);
        let at = match self.find(&key, now) {
            Some(at) if self.is_next(at, &part, digest) => self.open(at, key, now),
            Some(at) => at,
            None => self.begin(key, now),
        };
        let place = &mut self.places[at];
        if let State::Refused(reason) = place.state {
            // An ICMP error's first fragment is in the flow that it quotes, and so are copies of
            // it.
            if packet.has(flag::ICMP_ERROR) && place.pieces.has(&part, digest) {
                return Some(error_goes_on(packet));
            }
            return self.refuse(packet, reason);
        }
        match place.pieces.add(&part, digest) {
            Fit::Fresh => {}
            Fit::Copy if place.state != State::Waiting => {
                self.give_ports(at, &mut packet);
                return Some(packet);
            }
            Fit::Copy if place.held.len() < PIECES_MAX => {}
            Fit::Copy | Fit::Altered => return self.refuse(packet, DropReason::FragmentRepeated),
            Fit::Overlap => return self.refuse_all(at, packet, DropReason::FragmentOverlap, now),
            Fit::TooMany => return self.refuse_all(at, packet, DropReason::FragmentsFull, now),
        }
        if part.offset == 0 {
            return self.follow(at, packet, now);
        }
        if place.state == State::Waiting {
            self.hold(at, packet);
            return None;
        }
        Some(self.pass(at, packet, now))
    }

    /// The next of the fragments that were held for the packet that [`Tracker::take`] has let go
    /// on.
    pub fn released(&mut self) -> Option<PacketBox> {
        self.released.pop()
    }

    /// The next packet to be dropped, and why.
    pub fn refused(&mut self) -> Option<(PacketBox, DropReason)> {
        self.refused.pop()
    }

    /// Gives those up that have waited too long; answers whether there was one.
    #[inline]
    pub fn expire(&mut self, now: u64) -> bool {
        self.oldest != NO_PLACE && self.expire_oldest(now)
    }

    #[cold]
    fn expire_oldest(&mut self, now: u64) -> bool {
        let mut any = false;
        while self.oldest != NO_PLACE && self.places[self.oldest as usize].until <= now {
            self.give_up(self.oldest as usize, DropReason::FragmentUnknown);
            any = true;
        }
        any
    }

    /// Gives all up that wait: nothing more comes in.
    pub fn finish(&mut self) {
        self.expire_oldest(u64::MAX);
    }

    /// Hands out all fragments that wait: the runtime fails.
    pub fn take_all(&mut self, lost: &mut PacketList) {
        for place in &mut self.places {
            lost.append(&mut place.held);
        }
    }

    fn find(&self, key: &Key, now: u64) -> Option<usize> {
        let set = self.set_of(key);
        let places = &self.places[set..set + PLACES];
        let found = places
            .iter()
            .position(|place| place.state != State::Free && place.until > now && place.key == *key)?;
        Some(set + found)
    }

    fn set_of(&self, key: &Key) -> usize {
        (key.hash(&self.seed) as usize % (self.places.len() / PLACES)) * PLACES
    }

    /// A place for a datagram of which nothing is known.
    fn begin(&mut self, key: Key, now: u64) -> usize {
        let set = self.set_of(&key);
        let rank = |place: &Place| match place.state {
            State::Free => (0, 0),
            _ if place.until <= now => (0, 0),
            State::Whole => (1, place.until),
            State::Waiting => (2, place.until),
            State::Followed | State::Refused(_) => (3, place.until),
        };
        let places = &self.places[set..set + PLACES];
        let (at, _) = places
            .iter()
            .enumerate()
            .min_by_key(|(_, place)| rank(place))
            .unwrap_or((0, &places[0]));
        self.open(set + at, key, now)
    }

    /// Whether a fragment is of the datagram that has the number of a whole one next.
    fn is_next(&self, at: usize, part: &Fragment, digest: u32) -> bool {
        let place = &self.places[at];
        place.state == State::Whole && !place.pieces.has(part, digest)
    }

    /// Gives a place to a datagram of which nothing is known.
    fn open(&mut self, at: usize, key: Key, now: u64) -> usize {
        self.give_up(at, DropReason::FragmentsFull);
        let place = &mut self.places[at];
        place.key = key;
        place.state = State::Waiting;
        place.until = now.saturating_add(HOLD);
        place.pieces.clear();
        at
    }

    /// Frees a place, and refuses the fragments held there.
    fn give_up(&mut self, at: usize, reason: DropReason) {
        self.unlink(at);
        let place = &mut self.places[at];
        place.state = State::Free;
        let mut held = core::mem::take(&mut place.held);
        self.held -= held.len();
        while let Some(packet) = held.pop() {
            self.refused.push((packet, reason));
        }
    }

    fn refuse(&mut self, packet: PacketBox, reason: DropReason) -> Option<PacketBox> {
        self.refused.push((packet, reason));
        None
    }

    /// Nothing more of this datagram passes.
    fn refuse_all(
        &mut self,
        at: usize,
        packet: PacketBox,
        reason: DropReason,
        now: u64,
    ) -> Option<PacketBox> {
        let was_followed = self.places[at].state == State::Followed;
        self.give_up(at, reason);
        let place = &mut self.places[at];
        place.state = State::Refused(reason);
        if !was_followed {
            place.until = now.saturating_add(timeout_of(place.key.version));
        }
        self.refuse(packet, reason)
    }

    /// The first fragment has come: it goes on, and fragments held for it behind.
    fn follow(&mut self, at: usize, packet: PacketBox, now: u64) -> Option<PacketBox> {
        if packet.has(flag::ICMP_ERROR) {
            // It belongs to the flow it quotes; its later fragments cannot.
            self.give_up(at, DropReason::FragmentUnknown);
            self.places[at].state = State::Refused(DropReason::FragmentUnknown);
            self.places[at].until = now.saturating_add(timeout_of(packet.version()));
            return Some(error_goes_on(packet));
        }
        self.unlink(at);
        let place = &mut self.places[at];
        place.state = State::Followed;
        place.until = now.saturating_add(timeout_of(place.key.version));
        place.ports = [packet.source_port(), packet.destination_port()];
        place.protocol = packet.protocol();
        place.flags = packet.flags() & INHERITED;
        let mut held = core::mem::take(&mut place.held);
        self.held -= held.len();
        while let Some(mut later) = held.pop() {
            match planted::is("held_fragment_without_ports") {
                true => later.set_flags(flag::FOLLOWED),
                false => self.give_ports(at, &mut later),
            }
            self.released.push(later);
        }
        Some(self.pass(at, packet, now))
    }

    /// A new fragment of a datagram that is followed.
    fn pass(&mut self, at: usize, mut packet: PacketBox, now: u64) -> PacketBox {
        self.give_ports(at, &mut packet);
        let place = &mut self.places[at];
        if place.pieces.is_all() {
            place.state = State::Whole;
            place.until = now.saturating_add(COPIES);
        }
        packet
    }

    fn give_ports(&self, at: usize, packet: &mut Packet) {
        let place = &self.places[at];
        packet.set_protocol(place.protocol);
        packet.set_ports(place.ports[0], place.ports[1]);
        packet.clear_flags(INHERITED);
        packet.set_flags(flag::FOLLOWED | place.flags);
    }

    fn hold(&mut self, at: usize, packet: PacketBox) {
        if self.places[at].held.is_empty() {
            self.link(at);
        }
        if self.held == self.held_max {
            // It may be this very datagram.
            self.give_up(self.oldest as usize, DropReason::FragmentsFull);
            if self.places[at].state == State::Free {
                self.refused.push((packet, DropReason::FragmentsFull));
                return;
            }
        }
        self.places[at].held.push(packet);
        self.held += 1;
    }

    /// Puts a place at the end of those in wait.
    fn link(&mut self, at: usize) {
        let newest = core::mem::replace(&mut self.newest, at as u32);
        self.places[at].before = newest;
        self.places[at].behind = NO_PLACE;
        match self.places.get_mut(newest as usize) {
            Some(place) => place.behind = at as u32,
            None => self.oldest = at as u32,
        }
    }

    /// Takes a place out of those in wait, if it is among them.
    fn unlink(&mut self, at: usize) {
        if self.places[at].held.is_empty() && self.oldest != at as u32 {
            return;
        }
        let Place { before, behind, .. } = self.places[at];
        match self.places.get_mut(before as usize) {
            Some(place) => place.behind = behind,
            None => self.oldest = behind,
        }
        match self.places.get_mut(behind as usize) {
            Some(place) => place.before = before,
            None => self.newest = before,
        }
    }
}

/// The first fragment of an ICMP error: it is in no flow of the fragments behind it.
fn error_goes_on(mut packet: PacketBox) -> PacketBox {
    packet.set_flags(flag::FOLLOWED);
    packet
}

/// A digest of a fragment's data, to be compared with others'. Headers are no part of it: on its
/// way a copy loses hops. But the protocol of a first one is: it is a part of the flow, and no
/// checksum of IPv6 covers it.
fn digest(packet: &Packet, part: &Fragment, seed: &HashSeed) -> u32 {
    let begins = match part.header {
        0 => packet.transport_offset() - packet.network_offset(),
        header => usize::from(header) + 8,
    };
    let data = packet.network().get(begins..).unwrap_or_default();
    let (words, rest) = data.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    let protocol = match part.offset {
        0 => packet.protocol(),
        _ => 0,
    };
    let begun = seed.0[0] ^ u64::from(protocol);
    let hash = words.fold(begun, |hash, word| mix(hash, word, seed));
    (hash ^ hash >> 32) as u32
}

/// Takes a word into a hash.
fn mix(hash: u64, word: u64, seed: &HashSeed) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(seed.0[1] | 1);
    (product as u64) ^ ((product >> 64) as u64) ^ seed.0[2]
}

/// Whether a packet is a fragment whose flow is not known yet.
#[inline]
pub fn is_astray(packet: &Packet) -> bool {
    packet.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT) && !packet.has(flag::FOLLOWED)
}

fn timeout_of(version: u8) -> u64 {
    if version == 4 { V4_TIMEOUT } else { V6_TIMEOUT }
}

impl Key {
    fn of(packet: &Packet, part: &Fragment) -> Key {
        let version = packet.version();
        Key {
            source: packet.source_addr(),
            destination: packet.destination_addr(),
            identification: part.identification,
            vlan: packet.vlan(),
            protocol: if version == 4 { packet.protocol() } else { 0 },
            version,
        }
    }

    fn hash(&self, seed: &HashSeed) -> u64 {
        let (source, destination) = (
            u128::from_be_bytes(*self.source.octets()),
            u128::from_be_bytes(*self.destination.octets()),
        );
        let rest = u64::from(self.identification) << 32
            | u64::from(self.vlan) << 16
            | u64::from(self.protocol) << 8
            | u64::from(self.version);
        let words = [
            source as u64,
            (source >> 64) as u64,
            destination as u64,
            (destination >> 64) as u64,
            rest,
        ];
        words.iter().fold(seed.0[0], |hash, word| mix(hash, *word, seed))
    }
}

#[cfg(test)]
mod tests;
