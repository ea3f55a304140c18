//! Words from workers of other processes may be anything: a switch among runtimes, and a runtime
//! among switches, that say whatever they like.
//!
//! The other ends are made up here: words of every kind that name present and absent things, bytes
//! that are no words, packets that come back changed or not at all, sessions that end. No worker
//! panics, everything that is kept has its bound, every packet is accounted for, and when the
//! others are gone nothing of theirs is left.
//!
//! Not here: words between runtimes (`hostile`), where real moves are tampered with.

use super::flows::{Hosts, Masquerade, Meter};
use super::groups::Leaser;
use super::spread::{Link, link};
use super::*;
use crate::group::GroupKey;
use crate::message::{Message, Reroute, Taken};
use crate::mobility::{MoveOrder, Selector};
use crate::switch::{Policy, SideRule, Switch};
use nf::{Addr, Block, WorkerInfo};
use proptest::prelude::*;
use protocols::ownership::{Epoch, RuntimeId, SwitchMessage};
use std::vec;
use wire::packet::{Kind, flag};
use wire::{FlowKey, HashSeed};

/// A key of a group that there may be, of a group that there is not, or words that are no key.
fn group() -> impl Strategy<Value = GroupKey> {
    (0u8..12, any::<[u64; 5]>()).prop_map(|(what, words)| match what {
        0..4 => GroupKey::of_address(Addr::v4([10, 0, 0, what + 1])),
        4..10 => GroupKey::of_flow(key(what % 3 + 1, u16::from(what) % 4)),
        _ => GroupKey::from_words(words),
    })
}

/// The key of a packet that is fed.
fn key(host: u8, flow: u16) -> FlowKey {
    let mut pool = pool(1, 0);
    let (_, frame) = udp(host, 1000 + flow, 1, 80, false, b"");
    parsed(&mut pool, &(Side::Inside, frame), |packet| {
        FlowKey::of(packet).unwrap().0
    })
}

fn block() -> impl Strategy<Value = Block> {
    (0u8..3, any::<u16>(), any::<u16>()).prop_map(|(what, first, ports)| Block {
        addr: Addr::v4([203, 0, 113, 1]),
        first: if what == 0 { first } else { first % 16 * 64 },
        ports: if what == 0 { ports } else { 64 },
    })
}

/// Of three runtimes, and some that are not there.
fn runtime() -> impl Strategy<Value = RuntimeId> {
    prop_oneof![0u16..3, Just(3), Just(u16::MAX)].prop_map(RuntimeId)
}

fn epoch() -> impl Strategy<Value = Epoch> {
    let number = || prop_oneof![0u32..4, Just(u32::MAX)];
    (number(), number()).prop_map(|(view, count)| Epoch { view, count })
}

fn taken() -> impl Strategy<Value = Taken> {
    prop_oneof![Just(Taken::Not), Just(Taken::Back), Just(Taken::Late)]
}

fn word() -> impl Strategy<Value = Message> {
    let to_switch = prop_oneof![
        (block(), group()).prop_map(|(block, group)| Message::BlockClaimed(block, group)),
        (block(), group()).prop_map(|(block, group)| Message::BlockTentative(block, group)),
        block().prop_map(Message::BlockReleased),
        group().prop_map(Message::Routed),
        (group(), any::<u64>()).prop_map(|(group, consumed)| Message::GroupEmpty(group, consumed)),
        (
            group(),
            group(),
            runtime(),
            runtime(),
            0u64..4,
            epoch(),
            any::<bool>(),
            taken()
        )
            .prop_map(|(group, key, from, to, incarnation, epoch, is_last, taken)| {
                Message::Reroute(Reroute {
                    group,
                    key,
                    from,
                    to,
                    incarnation,
                    epoch,
                    is_last,
                    taken,
                })
            }),
        (group(), epoch()).prop_map(|(key, epoch)| Message::Installed(key, epoch)),
        (group(), runtime(), epoch()).prop_map(|(group, to, epoch)| Message::DrainMarker(group, to, epoch)),
        any::<bool>().prop_map(Message::Leaving),
    ];
    let says = (0u8..5, epoch(), runtime()).prop_map(|(what, epoch, to)| match what {
        0 => SwitchMessage::Rerouted(epoch),
        1 => SwitchMessage::Refused(epoch),
        2 => SwitchMessage::Moved(to, epoch),
        3 => SwitchMessage::Drained(epoch),
        _ => SwitchMessage::Fenced(epoch),
    });
    let to_runtime = prop_oneof![
        group().prop_map(Message::RouteSuspect),
        group().prop_map(Message::RouteConflict),
        (block(), group()).prop_map(|(block, group)| Message::BlockSuspect(block, group)),
        (block(), runtime()).prop_map(|(block, runtime)| Message::BlockReturned(block, runtime)),
        (block(), runtime()).prop_map(|(block, runtime)| Message::BlockKept(block, runtime)),
        (block(), runtime(), runtime()).prop_map(|(block, home, to)| Message::BlockLent(block, home, to)),
        runtime().prop_map(Message::LendsOver),
        (group(), says).prop_map(|(group, says)| Message::Switch(group, says)),
        Just(Message::Resynced),
    ];
    prop_oneof![to_switch, to_runtime]
}

#[derive(Clone, Debug)]
enum Event {
    /// A packet comes in.
    Packet {
        host: u8,
        flow: u16,
    },
    /// One end says words, and so many times over.
    Words(u8, Vec<Message>, u8),
    /// It says bytes.
    Bytes(u8, Vec<u8>),
    /// It sends a packet, of a key or bytes.
    Sends(u8, u8, u16, Vec<u8>),
    /// It gives back some of what it got: as packets, with such notes, or as empty buffers.
    Returns(u8, u8, bool, u8),
    /// It begins again, or is gone.
    Session(u8, bool),
    /// Everything moves, as far as it may.
    Order(u8),
    Step(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let end = || 0u8..4;
    let event = prop_oneof![
        3 => (1u8..4, 0u16..4).prop_map(|(host, flow)| Event::Packet { host, flow }),
        5 => (end(), proptest::collection::vec(word(), 1..30), 1u8..40)
            .prop_map(|(end, words, times)| Event::Words(end, words, times)),
        2 => (end(), proptest::collection::vec(any::<u8>(), 0..200)).prop_map(|(end, bytes)| Event::Bytes(end, bytes)),
        3 => (end(), 1u8..4, 0u16..4, proptest::collection::vec(any::<u8>(), 0..60))
            .prop_map(|(end, host, flow, bytes)| Event::Sends(end, host, flow, bytes)),
        3 => (end(), 1u8..32, any::<bool>(), any::<u8>())
            .prop_map(|(end, count, whole, notes)| Event::Returns(end, count, whole, notes)),
        1 => (end(), any::<bool>()).prop_map(|(end, there)| Event::Session(end, there)),
        1 => (0u8..2).prop_map(Event::Order),
        6 => (1u64..10_000_000).prop_map(Event::Step),
    ];
    proptest::collection::vec(event, 1..100)
}

/// A made-up worker at the other end of a link, with buffers of its own.
struct Stranger {
    link: Link,
    pool: Pool,
    /// Buffers that it got and has not given back.
    kept: VecDeque<PacketBox>,
    /// Data that it was given and lost.
    lost: u64,
    /// Data that it sent of its own.
    made: u64,
    sessions: u64,
}

/// How many packets a link to a stranger has room for.
const DEPTH: usize = 24;

impl Stranger {
    fn new(origin: u8) -> (Self, Link) {
        let (link, other) = link(DEPTH);
        let stranger = Stranger {
            link,
            pool: pool(64, origin),
            kept: VecDeque::new(),
            lost: 0,
            made: 0,
            sessions: 1,
        };
        (stranger, other)
    }

    /// Takes in the frames that have come; words are read and forgotten.
    fn look(&mut self) {
        for packet in self.link.incoming.take() {
            if packet.origin() != self.pool.origin() {
                self.kept.push_back(packet);
                continue;
            }
            self.lost += u64::from(packet.kind() == Kind::Data);
            self.pool.give(packet);
        }
    }

    fn say(&mut self, fill: impl FnOnce(&mut wire::Packet)) {
        self.look();
        if self.link.session.get() == 0 {
            return;
        }
        let Some(mut packet) = self.pool.take() else {
            return;
        };
        fill(&mut packet);
        self.made += u64::from(packet.kind() == Kind::Data);
        self.link.outgoing.borrow_mut().push_back(packet);
    }

    fn say_words(&mut self, words: &[Message], times: u8) {
        let mut words = words
            .iter()
            .cycle()
            .take(words.len() * usize::from(times))
            .peekable();
        while words.peek().is_some() {
            self.say(|frame| {
                Message::begin(frame);
                while let Some(word) = words.peek() {
                    if !word.append(frame) {
                        break;
                    }
                    words.next();
                }
            });
            if self.pool.free() == 0 || self.link.session.get() == 0 {
                return;
            }
        }
    }

    fn say_bytes(&mut self, bytes: &[u8]) {
        self.say(|frame| {
            Message::begin(frame);
            assert!(frame.set_frame(bytes, LinkType::Raw));
            frame.set_kind(Kind::Message);
        });
    }

    /// A packet that says it was routed by this hash.
    fn send(&mut self, host: u8, flow: u16, bytes: &[u8], is_none: bool) {
        let (side, frame) = udp(host, 1000 + flow, 1, 80, is_none, bytes);
        self.say(|packet| {
            packet.reset(0, LinkType::Raw);
            assert!(packet.set_frame(if bytes.len() > 40 { bytes } else { &frame }, LinkType::Raw));
            packet.clear_hairpins();
            packet.set_side(side);
            packet.set_kind(Kind::Data);
            if wire::parse(packet).is_ok()
                && let Some((key, _)) = FlowKey::of(packet)
            {
                let group = match bytes.len() % 2 {
                    0 => GroupKey::of_address(packet.source_addr()),
                    _ => GroupKey::of_flow(key),
                };
                packet.set_hash(group.hash(&HashSeed::FIXED));
            }
        });
    }

    fn give_back(&mut self, count: u8, is_whole: bool, notes: u8) {
        self.look();
        for _ in 0..count {
            let Some(mut packet) = self.kept.pop_front() else {
                return;
            };
            if packet.kind() != Kind::Data || !is_whole || self.link.session.get() == 0 {
                self.lost += u64::from(packet.kind() == Kind::Data);
                packet.set_kind(Kind::Empty);
            } else if notes & 1 != 0 {
                packet.set_egress(notes);
            } else if notes & 2 != 0 {
                packet.set_flags(flag::HAIRPIN);
            }
            packet.set_exit(if notes & 4 == 0 {
                Side::Inside
            } else {
                Side::Outside
            });
            self.link.outgoing.borrow_mut().push_back(packet);
        }
    }

    /// Its frames that its peer has not read are lost with its session.
    fn renew(&mut self, is_there: bool) {
        for packet in self.link.outgoing.borrow_mut().iter_mut() {
            self.lost += u64::from(packet.kind() == Kind::Data);
            packet.set_kind(Kind::Empty);
        }
        self.sessions += 1;
        self.link.session.set(if is_there { self.sessions } else { 0 });
    }
}

fn plan_of(chain: usize) -> Plan {
    match chain {
        0 => plan(vec![
            factory::<Hosts>(),
            factory::<Meter>(),
            factory::<Masquerade>(),
        ]),
        1 => plan(vec![factory::<Leaser>()]),
        _ => plan(vec![factory::<Meter>(), factory::<Masquerade>()]),
    }
}

const ROUTES: u32 = 16;

/// A switch, three runtimes and another switch that are strangers.
fn strange_switch(chain: usize) -> (Switch<QueuePort, Link>, Vec<Stranger>) {
    let settings = crate::switch::SwitchSettings {
        switch: 0,
        switches: 2,
        seed: HashSeed::FIXED,
        routes_max: ROUTES,
        policy: Policy::RoundRobin,
        fragments_max: 16,
        packet_clock: false,
        lead_max: u64::MAX,
        recovery_max: 0,
        patient: false,
        egress: [Some(0), Some(0)],
        now: 0,
    };
    let (mut strangers, mut links) = (Vec::new(), Vec::new());
    // Runtimes are behind both switches.
    for origin in [2, 3, 4, 1] {
        let (stranger, link) = Stranger::new(origin);
        strangers.push(stranger);
        links.push(link);
    }
    let peer = links.pop();
    let rule = SideRule::BySource(vec!["10.0.0.0/8".parse().unwrap()]);
    let port = QueuePort {
        is_a_wire: true,
        ..QueuePort::default()
    };
    let ports = vec![(port, rule)];
    let switch = Switch::new(
        settings,
        plan_of(chain),
        ports,
        links,
        vec![None, peer],
        pool(96, 0),
        Region::heap,
    );
    (switch, strangers)
}

/// Runtime 1 of three, two switches and two other runtimes that are strangers.
fn strange_runtime(chain: usize) -> (Runtime<Link>, Vec<Stranger>) {
    let settings = Settings {
        info: WorkerInfo {
            runtime: 1,
            runtimes: 3,
            flows_max: 16,
            seed: 7,
        },
        switches: 2,
        egress: [0, 1],
        inside: vec!["10.0.0.0/8".parse().unwrap()],
        moves_max: 4,
        kept_max: 16,
        ..Settings::alone(16)
    };
    let (mut strangers, mut links) = (Vec::new(), Vec::new());
    for origin in [0, 1, 2, 4] {
        let (stranger, link) = Stranger::new(origin);
        strangers.push(stranger);
        links.push(link);
    }
    let mut peers = links.split_off(2).into_iter();
    let mut runtime = Runtime::new(settings, plan_of(chain), links, pool(140, 3), Region::heap).unwrap();
    runtime.join(vec![peers.next(), None, peers.next()]);
    (runtime, strangers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]
    #[test]
    fn whatever_runtimes_say_does_a_switch_no_harm(chain in 0usize..3, events in events()) {
        let (mut switch, mut strangers) = strange_switch(chain);
        let mut now = 0;
        for event in events {
            match event {
                Event::Packet { host, flow } => {
                    let packet = udp(host, 1000 + flow, 1, 80, false, b"");
                    switch.port_mut(0).input.push_back(packet);
                }
                Event::Words(end, words, times) => strangers[usize::from(end)].say_words(&words, times),
                Event::Bytes(end, bytes) => strangers[usize::from(end)].say_bytes(&bytes),
                Event::Sends(end, host, flow, bytes) => {
                    strangers[usize::from(end)].send(host, flow, &bytes, flow % 2 == 0);
                }
                Event::Returns(end, count, is_whole, notes) => {
                    strangers[usize::from(end)].give_back(count, is_whole, notes);
                }
                Event::Session(end, is_there) if end < 3 => strangers[usize::from(end)].renew(is_there),
                Event::Session(..) | Event::Order(_) => {}
                Event::Step(time) => now += time,
            }
            switch.step(now);
            let stats = switch.stats();
            prop_assert!(stats.routes <= u64::from(ROUTES) && stats.blocks <= 1 << 16, "{stats:?}");
            // A frame of questions goes to each besides, and the frames in its burst; words wait
            // here for a stranger that does not read.
            for stranger in &strangers[..3] {
                let words = stranger.link.incoming.borrow().iter().filter(|p| p.kind() == Kind::Message).count();
                prop_assert!(words <= DEPTH + 1, "{words} words for a stranger that does not read");
            }
        }
        // Every stranger is gone, and gives back its buffers.
        for (end, stranger) in strangers.iter_mut().enumerate() {
            if end < 3 {
                stranger.renew(false);
            }
        }
        for _ in 0..200 {
            now += 1_000_000_000;
            switch.step(now);
            strangers.iter_mut().for_each(|stranger| stranger.give_back(u8::MAX, false, 0));
        }
        strangers.iter_mut().for_each(Stranger::look);
        let stats = switch.stats();
        prop_assert_eq!((stats.routes, stats.reply_keys, stats.blocks, stats.held), (0, 0, 0, 0));
        prop_assert_eq!(&stats.groups, &vec![0; 3]);
        prop_assert!(switch.finished() || !switch.port_mut(0).input.is_empty(), "something waits to be said");
        prop_assert_eq!(switch.pool().free(), switch.pool().total(), "buffers are missing");
        for stranger in &strangers {
            prop_assert_eq!(stranger.pool.free(), stranger.pool.total(), "buffers of others are missing");
        }
        let dropped: u64 = stats.dropped.iter().map(|named| named.count).sum();
        let (made, lost) = strangers.iter().fold((0, 0), |(made, lost), s| (made + s.made, lost + s.lost));
        prop_assert_eq!(stats.received + made, stats.sent + dropped + lost, "{:?}", stats);
    }

    /// The first two ends are switches, the others runtimes, of which one number is the runtime's
    /// own.
    #[test]
    fn whatever_others_say_does_a_runtime_no_harm(chain in 0usize..3, events in events()) {
        let (mut runtime, mut strangers) = strange_runtime(chain);
        let mut now = 0;
        for event in events {
            match event {
                Event::Packet { host, flow } => strangers[usize::from(flow % 2)].send(host, flow, &[0; 1][..chain / 2], false),
                Event::Words(end, words, times) => strangers[usize::from(end)].say_words(&words, times),
                Event::Bytes(end, mut bytes) => {
                    // A record that there is, as a rule.
                    if let Some(first) = bytes.first_mut() {
                        *first %= 17;
                    }
                    strangers[usize::from(end)].say_bytes(&bytes);
                }
                Event::Sends(end, host, flow, bytes) => {
                    strangers[usize::from(end)].send(host, flow, &bytes, flow % 2 == 0);
                }
                Event::Returns(end, count, is_whole, notes) => {
                    strangers[usize::from(end)].give_back(count, is_whole && end >= 2, notes);
                }
                Event::Session(end, is_there) => strangers[usize::from(end)].renew(is_there),
                Event::Order(to) => {
                    let to = vec![u16::from(to) * 2];
                    let _ = runtime.order(MoveOrder { selector: Selector::All, to });
                }
                Event::Step(time) => now += time,
            }
            runtime.step(now);
            assert_conserved(&runtime);
        }
        strangers.iter_mut().for_each(|stranger| stranger.renew(false));
        for _ in 0..50 {
            now += 10_000_000_000;
            runtime.step(now);
            strangers.iter_mut().for_each(|stranger| stranger.give_back(u8::MAX, false, 0));
        }
        while !runtime.finish(100) {}
        for _ in 0..5 {
            runtime.step(now);
            strangers.iter_mut().for_each(|stranger| stranger.give_back(u8::MAX, false, 0));
        }
        strangers.iter_mut().for_each(Stranger::look);
        prop_assert_eq!(runtime.moves_left(), Vec::<std::string::String>::new());
        let stats = runtime.stats();
        prop_assert_eq!((stats.flows, stats.held, stats.groups), (0, 0, 0));
        assert_conserved(&runtime);
        for stranger in &strangers {
            prop_assert_eq!(stranger.pool.free(), stranger.pool.total(), "buffers of others are missing");
        }
    }
}
