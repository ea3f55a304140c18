//! Two ends over a network that loses, repeats, reorders and damages, in one thread, from one seed.
//!
//! The packets that an end transmits are noted under the session that it believes in, which has the
//! same number at both ends; the packets that the other receives in that session must be the same,
//! from the beginning, in order, without a gap. Buffers are of three pools on each side: its own,
//! and a neighbour's in the same process.

use super::*;
use crate::env::{Burst, Port};
use protocols::channel::{Key, Keys};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;
use wire::memory::Region;
use wire::packet::{Side, flag};
use wire::{LinkType, Packet};

const MS: u64 = 1_000_000;
const DEAD_AFTER: u64 = 20 * MS;
const BUFFERS: usize = 96;
const LENGTH: usize = 4000;
const NEIGHBOUR: u8 = 9;

/// Small and good enough (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn once_in(&mut self, times: u64) -> bool {
        times != 0 && self.below(times) == 0
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lose: u64,
    repeat: u64,
    damage: u64,
    disorder_ns: u64,
    restart: u64,
    cut: u64,
}

struct Network {
    random: Random,
    faults: Faults,
    now: u64,
    serial: u64,
    cut: [bool; 2],
    wires: [BTreeMap<(u64, u64), Vec<u8>>; 2],
    /// How often an end was told that no process is at the other.
    refusals: [u64; 2],
    /// Whether the network says so of each frame of an end, which hears it when it looks for it.
    refuses: [bool; 2],
    /// Frames of an end that it says so of.
    refused: [u64; 2],
}

/// An end's access to the network.
struct Wire {
    network: Rc<RefCell<Network>>,
    side: usize,
    frame: Vec<u8>,
}

impl FrameLink for Wire {
    fn frame_max(&self) -> usize {
        1400
    }

    fn receive(&mut self) -> Option<&mut [u8]> {
        let mut network = self.network.borrow_mut();
        let now = network.now;
        let entry = network.wires[1 - self.side].first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        self.frame = entry.remove();
        Some(&mut self.frame)
    }

    fn send(&mut self, frame: &[u8]) {
        let network = &mut *self.network.borrow_mut();
        let faults = network.faults;
        network.refused[self.side] += u64::from(network.refuses[self.side]);
        if network.cut[self.side] || network.random.once_in(faults.lose) {
            return;
        }
        for _ in 0..1 + u64::from(network.random.once_in(faults.repeat)) {
            let mut frame = frame.to_vec();
            if network.random.once_in(faults.damage) {
                let at = network.random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << network.random.below(8);
            }
            let late = network.random.below(faults.disorder_ns + 1);
            network.serial += 1;
            let at = (network.now + 20_000 + late, network.serial);
            network.wires[self.side].insert(at, frame);
        }
    }

    fn flush(&mut self) {}

    fn refusals(&self) -> u64 {
        self.network.borrow().refusals[self.side]
    }

    fn look_for_refusals(&mut self) {
        let network = &mut *self.network.borrow_mut();
        network.refusals[self.side] += core::mem::take(&mut network.refused[self.side]);
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// All that a worker sees of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    kind: Kind,
    frame: Vec<u8>,
    link: LinkType,
    way: (Side, Side, u8, Option<u8>, u8),
    lengths: (u32, u64),
    parsed: (u16, u8, u8, u16, u16, u16),
    offsets: [usize; 4],
}

pub(super) fn seen(packet: &Packet) -> Seen {
    let offsets = [
        packet.network_offset(),
        packet.transport_offset(),
        packet.payload_offset(),
        packet.end_offset(),
    ];
    if packet.kind() == Kind::Message {
        // Nothing else of it means anything.
        return Seen {
            kind: Kind::Message,
            frame: packet.frame().to_vec(),
            link: packet.link(),
            way: Default::default(),
            lengths: (0, 0),
            parsed: (0, 0, 0, 0, 0, 0),
            offsets: [0; 4],
        };
    }
    Seen {
        kind: packet.kind(),
        frame: packet.frame().to_vec(),
        link: packet.link(),
        way: (
            packet.side(),
            packet.exit(),
            packet.port(),
            packet.egress(),
            packet.hairpins(),
        ),
        lengths: (packet.wire_length(), packet.timestamp()),
        parsed: (
            packet.flags(),
            packet.version(),
            packet.protocol(),
            packet.vlan(),
            packet.source_port(),
            packet.destination_port(),
        ),
        offsets,
    }
}

struct End {
    peer: Peer<Wire>,
    pool: Pool,
    neighbour: Pool,
    held: Vec<PacketBox>,
    incarnation: u64,
    /// How many of the other end's were received in this session.
    received: usize,
    total: u64,
}

struct World {
    random: Random,
    network: Rc<RefCell<Network>>,
    ends: [End; 2],
    /// By side and session.
    sent: [BTreeMap<u64, Vec<Seen>>; 2],
    heal_at: u64,
    sessions: u64,
}

type Found = Result<(), String>;

macro_rules! demand {
    ($holds:expr, $($say:tt)*) => {
        if !$holds {
            return Err(std::format!($($say)*));
        }
    };
}

fn pool(count: usize, origin: u8) -> Pool {
    Pool::new(
        Region::heap(Pool::region_length(count, LENGTH)),
        count,
        LENGTH,
        origin,
    )
}

fn settings(side: usize, incarnation: u64) -> PeerSettings {
    let keys = Keys::new(Key::new(1, [5; 32]).unwrap());
    let usual = PeerSettings::new(side as u16, 1 - side as u16, incarnation, Protection::Keyed(keys));
    PeerSettings {
        channel: channel::ChannelSettings {
            frame_max: 600,
            salt: [1 + side as u8; channel::SALT],
            send_frames: 64,
            receive_frames: 64,
            hello_ns: MS,
            timeout_ns_max: 2 * MS,
            ..usual.channel
        },
        dead_after_ns: DEAD_AFTER,
        spared: 4,
        same_clock: true,
        ..usual
    }
}

impl End {
    fn new(network: &Rc<RefCell<Network>>, side: usize, incarnation: u64) -> End {
        let now = network.borrow().now;
        let wire = Wire {
            network: network.clone(),
            side,
            frame: Vec::new(),
        };
        End {
            peer: Peer::new(wire, settings(side, incarnation), now).unwrap(),
            pool: pool(BUFFERS, side as u8),
            neighbour: pool(BUFFERS, NEIGHBOUR),
            held: Vec::new(),
            incarnation,
            received: 0,
            total: 0,
        }
    }

    /// Whether every buffer is home.
    fn is_whole(&self) -> bool {
        self.pool.free() == BUFFERS && self.neighbour.free() == BUFFERS
    }
}

/// An IPv4 datagram in Ethernet, as a switch or runtime would send it, or some other.
fn fill_packet(packet: &mut Packet, random: &mut Random, number: u64, now: u64) {
    let body = random.below(1400) as usize;
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [3; 6]);
    let [a, b, c] = [0; 3].map(|_| random.below(256) as u8);
    let mut frame = Vec::new();
    let payload: Vec<u8> = (0..body).map(|at| (at as u64 + number) as u8).collect();
    match random.below(4) {
        0 => builder
            .ipv6([a; 16], [b; 16], 9)
            .tcp(80, u16::from(c), number as u32, 100)
            .write(&mut frame, &payload),
        _ => builder
            .ipv4([10, 0, a, b], [192, 0, 2, c], 64)
            .udp(4000, 53)
            .write(&mut frame, &payload),
    }
    .unwrap();
    let is_fragment = random.once_in(5) && frame[12] == 8;
    if is_fragment {
        frame[20] = 0x20 * (random.below(2) as u8);
        frame[21] = random.below(3) as u8;
    }
    assert!(packet.set_frame(&frame, LinkType::Ethernet));
    packet.set_timestamp(now);
    if !random.once_in(10) {
        wire::parse(packet).unwrap();
        if packet.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT) && random.once_in(2) {
            packet.set_flags(flag::FOLLOWED);
            if packet.has(flag::LATER_FRAGMENT) {
                packet.set_ports(4000, 53);
                packet.set_protocol(c);
            }
        }
    }
    packet.set_hash(number ^ u64::from(a) << 40);
    packet.set_side([Side::Inside, Side::Outside][usize::from(a & 1)]);
    packet.set_exit([Side::Inside, Side::Outside][usize::from(b & 1)]);
    packet.set_port(c & 7);
    if random.once_in(3) {
        packet.set_egress(a & 7);
    }
    if random.once_in(9) {
        packet.add_hairpin();
    }
    for of in [flag::INSIDE_TO_INSIDE, flag::HAIRPIN, flag::COPY, 0x4000, 0x8000] {
        if random.once_in(4) {
            packet.set_flags(of);
        }
    }
    if random.once_in(6) {
        packet.set_wire_length(9000);
    }
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let network = Rc::new(RefCell::new(Network {
            random: Random(seed ^ 0x5eed),
            faults,
            now: 0,
            serial: 0,
            cut: [false; 2],
            wires: [BTreeMap::new(), BTreeMap::new()],
            refusals: [0; 2],
            refuses: [false; 2],
            refused: [0; 2],
        }));
        World {
            random: Random(seed),
            ends: [0, 1].map(|side| End::new(&network, side, 1 << 20)),
            network,
            sent: [BTreeMap::new(), BTreeMap::new()],
            heal_at: 0,
            sessions: 0,
        }
    }

    fn now(&self) -> u64 {
        self.network.borrow().now
    }

    /// A worker transmits a few packets and messages.
    fn transmit(&mut self, at: usize) {
        let now = self.now();
        let end = &mut self.ends[at];
        let mut burst = Burst::new();
        for _ in 0..self.random.below(12) {
            let from = if self.random.once_in(3) {
                &mut end.neighbour
            } else {
                &mut end.pool
            };
            // A worker leaves buffers to be received into: two that have none left wait for each
            // other.
            if from.origin() != NEIGHBOUR && from.free() <= BUFFERS / 4 {
                break;
            }
            let Some(mut buffer) = from.take() else { break };
            end.total += 1;
            if self.random.once_in(4) {
                crate::message::Message::begin(&mut buffer);
                let length = self.random.below(message::FRAME_MAX as u64 + 1) as usize;
                assert!(buffer.set_length(length));
                let byte = end.total as u8;
                buffer.frame_mut().fill(byte);
            } else {
                buffer.set_kind(Kind::Data);
                fill_packet(&mut buffer, &mut self.random, end.total, now);
            }
            burst.push(buffer);
        }
        // Believed in by the worker and known to the channel to be going on: packets lost otherwise
        // are counted.
        let lost = end.peer.own.lost_messages + end.peer.own.lost_packets;
        let noted: Vec<Seen> = burst.iter().map(|packet| seen(packet)).collect();
        end.peer.transmit(now, &mut end.pool, &mut burst);
        assert!(burst.is_empty());
        let lost = end.peer.own.lost_messages + end.peer.own.lost_packets - lost;
        assert!(lost == 0 || lost == noted.len() as u64);
        if lost == 0 && !noted.is_empty() {
            self.sent[at].entry(end.peer.session()).or_default().extend(noted);
        }
    }

    /// A worker receives, and gives back what it received, now or later.
    fn receive(&mut self, at: usize) -> Found {
        let now = self.now();
        let end = &mut self.ends[at];
        let before = end.peer.session();
        let mut burst = Burst::new();
        end.peer.receive(now, &mut end.pool, &mut burst);
        let session = end.peer.session();
        if session != before {
            demand!(
                burst.is_empty(),
                "a session changed with {} received",
                burst.len()
            );
            demand!(session != 0 || before != 0, "no change");
            end.received = 0;
            self.sessions += 1;
        }
        for packet in burst {
            match packet.kind() {
                Kind::Empty => {
                    demand!(
                        packet.origin() == NEIGHBOUR,
                        "an own buffer did not go to its pool"
                    );
                    end.neighbour.give(packet);
                }
                _ => {
                    let sent = self.sent[1 - at].get(&before);
                    let expected = sent.and_then(|sent| sent.get(end.received));
                    demand!(
                        expected == Some(&seen(&packet)),
                        "in session {before}, received {:?} where {expected:?} was next ({})",
                        seen(&packet),
                        end.received
                    );
                    end.received += 1;
                    end.held.push(packet);
                }
            }
        }
        let hoards = self.random.once_in(4);
        if !hoards {
            end.held.drain(..).for_each(|packet| end.pool.give(packet));
        }
        Ok(())
    }

    fn step(&mut self) -> Found {
        let at = self.random.below(2) as usize;
        self.transmit(at);
        for at in [0, 1] {
            if !self.random.once_in(3) {
                self.receive(at)?;
            }
        }
        let now = self.now();
        let mut network = self.network.borrow_mut();
        network.now += self.random.below(100_000);
        let faults = network.faults;
        if network.cut != [false; 2] && now >= self.heal_at {
            network.cut = [false; 2];
        }
        if self.random.once_in(faults.cut) {
            network.cut = [self.random.once_in(2), self.random.once_in(2)];
            self.heal_at = now + self.random.below(3 * DEAD_AFTER);
        }
        drop(network);
        if self.random.once_in(faults.restart) {
            let at = self.random.below(2) as usize;
            let incarnation = self.ends[at].incarnation + (1 << 20);
            let total = self.ends[at].total;
            self.ends[at] = End::new(&self.network, at, incarnation);
            self.ends[at].total = total;
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        let session = self.ends[0].peer.session();
        session != 0
            && session == self.ends[1].peer.session()
            && [0, 1].into_iter().all(|at| {
                let sent = self.sent[1 - at].get(&session).map_or(0, Vec::len);
                let end = &self.ends[at];
                end.received == sent && end.is_whole() && end.peer.is_drained()
            })
    }

    /// With a whole network everything arrives, and all buffers come home.
    fn converge(&mut self) -> Found {
        let until = {
            let mut network = self.network.borrow_mut();
            network.faults = Faults::default();
            network.cut = [false; 2];
            network.now + 200 * MS
        };
        while !self.is_drained() {
            demand!(
                self.now() < until,
                "not everything arrived, or came home: {}",
                self.state()
            );
            for at in [0, 1] {
                self.receive(at)?;
            }
            self.network.borrow_mut().now += 20_000;
        }
        Ok(())
    }

    fn state(&self) -> String {
        let of = |at: usize| {
            let end = &self.ends[at];
            let sent = self.sent[1 - at].get(&end.peer.session()).map_or(0, Vec::len);
            std::format!(
                "session {}, received {} of {sent}, free {} and {}",
                end.peer.session(),
                end.received,
                end.pool.free(),
                end.neighbour.free()
            )
        };
        std::format!("{}; {}", of(0), of(1))
    }
}

fn random_faults(random: &mut Random) -> Faults {
    let mut maybe = |value| if random.once_in(2) { value } else { 0 };
    Faults {
        lose: maybe(8),
        repeat: maybe(10),
        damage: maybe(15),
        disorder_ns: maybe(200_000),
        restart: maybe(400),
        cut: maybe(300),
    }
}

#[test]
fn two_peers_are_a_ring() {
    let (mut received, mut sessions) = (0, 0);
    for seed in 0..40 {
        let mut random = Random(seed ^ 0xfa17);
        let faults = random_faults(&mut random);
        let mut world = World::new(seed, faults);
        let run = |world: &mut World| {
            for _ in 0..1500 {
                world.step()?;
            }
            world.converge()
        };
        if let Err(found) = run(&mut world) {
            panic!("seed {seed}, {faults:?}: {found}");
        }
        received += world.ends[0].received + world.ends[1].received;
        sessions += world.sessions;
    }
    assert!(received > 20_000 && sessions > 200, "{received} {sessions}");
}

/// A world whose two ends have met.
fn met() -> World {
    let mut world = World::new(1, Faults::default());
    world.converge().unwrap();
    assert_ne!(world.ends[0].peer.session(), 0);
    world
}

/// Goes on for so long, both ends speaking.
fn go_on(world: &mut World, duration: u64) {
    let until = world.now() + duration;
    while world.now() < until {
        for at in [0, 1] {
            world.transmit(at);
            world.receive(at).unwrap();
        }
        world.network.borrow_mut().now += 50_000;
    }
}

fn cut(world: &World, ways: [bool; 2]) {
    world.network.borrow_mut().cut = ways;
}

#[test]
fn a_short_cut_ends_nothing() {
    let mut world = met();
    let before = world.ends[0].peer.session();
    for ways in [[true, true], [true, false], [false, true]] {
        cut(&world, ways);
        go_on(&mut world, DEAD_AFTER * 3 / 4);
        assert!(
            world.ends[0].peer.waiting() > 0,
            "there is more than goes into the channel"
        );
        cut(&world, [false; 2]);
        world.converge().unwrap();
        assert_eq!(world.ends[0].peer.session(), before);
    }
    assert_eq!(world.ends[0].peer.own_counters(), PeerCounters::default());
}

/// The end that is cut off and the end that hears but is not heard both begin again, and packets in
/// between are counted as lost.
#[test]
fn a_long_cut_ends_the_session_at_both_ends() {
    for ways in [[true, true], [true, false], [false, true]] {
        let mut world = met();
        let before = world.ends[0].peer.session();
        cut(&world, ways);
        go_on(&mut world, 2 * DEAD_AFTER);
        assert_eq!(
            world.ends.each_ref().map(|end| end.peer.session()),
            [0, 0],
            "{ways:?}"
        );
        assert!(
            world
                .ends
                .iter()
                .all(|end| end.is_whole() || !end.held.is_empty())
        );
        cut(&world, [false; 2]);
        world.converge().unwrap();
        assert!(world.ends[0].peer.session() > before);
        let lost = world.ends.iter().map(|end| end.peer.own_counters().lost_packets);
        assert!(lost.sum::<u64>() > 0);
        go_on(&mut world, MS);
        world.converge().unwrap();
    }
}

/// A process that is gone, and of which the network says so, is given up long before its silence
/// would be enough; a process that answers is not.
#[test]
fn a_process_that_the_network_says_is_gone_is_given_up_early() {
    for is_gone in [true, false] {
        let mut world = met();
        world.ends[0].peer.silence.quarter = 50 * MS;
        go_on(&mut world, 50 * MS);
        cut(&world, [is_gone; 2]);
        let began = world.network.borrow().now;
        let mut ended = None;
        while world.network.borrow().now < began + 100 * MS {
            world.network.borrow_mut().refusals[0] += 1;
            for at in [0, 1] {
                world.receive(at).unwrap();
            }
            world.network.borrow_mut().now += 100_000;
            if world.ends[0].peer.session() == 0 && ended.is_none() {
                ended = Some(world.network.borrow().now - began);
            }
        }
        match is_gone {
            true => assert!(ended.is_some_and(|after| after <= 25 * MS), "{ended:?}"),
            false => assert_eq!(ended, None),
        }
    }
}

/// The same of a link without traffic: its first frame is a question, a quarter of the silence
/// later at most, and the network's word on that is looked for.
#[test]
fn a_process_that_is_gone_is_given_up_early_where_nothing_is_said() {
    let mut world = met();
    world.ends[0].peer.silence.quarter = 50 * MS;
    go_on(&mut world, 120 * MS);
    cut(&world, [true; 2]);
    world.network.borrow_mut().refuses[0] = true;
    let began = world.network.borrow().now;
    while world.ends[0].peer.session() != 0 && world.network.borrow().now < began + 500 * MS {
        world.receive(0).unwrap();
        world.network.borrow_mut().now += 100_000;
    }
    let after = world.network.borrow().now - began;
    assert!(after <= (50 + 20) * MS, "{after}");
}

/// An end that has nothing to say says that it is there.
#[test]
fn silence_is_not_death() {
    let mut world = met();
    let before = world.ends[0].peer.session();
    for _ in 0..4000 {
        for at in [0, 1] {
            world.receive(at).unwrap();
        }
        world.network.borrow_mut().now += 100_000;
    }
    assert_eq!(world.ends[0].peer.session(), before);
    let asked = world.ends[0].peer.channel_counters().acknowledgements_sent;
    assert!((20..400).contains(&asked), "{asked}");
}

/// A worker that was not stepped for long blames no peer.
#[test]
fn an_absence_of_ones_own_ends_nothing() {
    let mut world = met();
    let before = world.ends[0].peer.session();
    world.network.borrow_mut().now += 50 * DEAD_AFTER;
    world.converge().unwrap();
    assert_eq!(world.ends[0].peer.session(), before);
}

/// An end that does not receive is waited for, at the sender, and acknowledges all the while.
#[test]
fn a_slow_reader_is_seen_by_room_and_not_thought_dead() {
    let mut world = met();
    let before = world.ends[0].peer.session();
    let all = world.ends[0].peer.room();
    assert!(all > 0);
    // No buffer to receive into.
    let taken: Vec<PacketBox> = core::iter::from_fn(|| world.ends[1].pool.take()).collect();
    let until = world.now() + 4 * DEAD_AFTER;
    while world.now() < until {
        world.transmit(0);
        for at in [0, 1] {
            world.receive(at).unwrap();
        }
        world.network.borrow_mut().now += 50_000;
    }
    assert_eq!(world.ends[0].peer.room(), 0);
    assert_eq!(world.ends[0].peer.session(), before);
    assert_eq!(world.ends[1].received, 0);
    taken
        .into_iter()
        .for_each(|buffer| world.ends[1].pool.give(buffer));
    world.converge().unwrap();
    assert!(world.ends[0].peer.room() == all && world.ends[1].received > 64);
}
