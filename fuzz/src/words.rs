//! A switch, or a runtime, among workers of other processes that say whatever an input has them
//! say.
//!
//! ```text
//!   bit 0: at a switch, or at a runtime; bit 1: NAT, or the flow monitor; bit 2: rings, or links to other processes │ events …
//!   event: what, which, length (two bytes) │ so many bytes
//! ```
//!
//! | what | which | the bytes |
//! |---|---|---|
//! | 0 words | the end | a frame of records, as it is |
//! | 1 packet | the end; a switch's port where there is no such end | its hash (8), which host and port, which way; or a frame |
//! | 2 time goes on | – | milliseconds (2) |
//! | 3 session | the end | whether a worker is there (1) |
//! | 4 order | to which runtime | – |
//! | 5 gives back | the end | how many packets it got (1), and as what (1) |
//!
//! The ends of a switch are runtimes 0, 1, 2 and another switch; those of runtime 1 are a switch,
//! or two where links are to other processes, and runtimes 0 and 2. So there a translated flow's
//! first packet waits until both have heard.

use functions::flow_monitor::{self, FlowMonitor};
use functions::nat::{Config, Nat};
use nf::{Side, WorkerInfo};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::env::{Burst, Port, PortCounters, dispose};
use runtime::message::Message;
use runtime::mobility::{MoveOrder, Selector};
use runtime::stage::{Configured, Factory};
use runtime::switch::{self, Policy, SideRule, Switch};
use runtime::{Runtime, Settings};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use wire::memory::Region;
use wire::packet::Kind;
use wire::{HashSeed, LinkType, PacketBox, Pool};

/// Links that no worker reads have room for so many.
const DEPTH: usize = 24;
/// Words that may be for one end when it does not read: those that its link has room for, and a
/// frame of questions.
const UNREAD_MAX: usize = DEPTH + 1;
const ROUTES: u32 = 16;
const FLOWS: u32 = 16;
const MS: u64 = 1_000_000;

type Queue = Rc<RefCell<VecDeque<PacketBox>>>;

/// One end of a link.
pub struct Link {
    incoming: Queue,
    outgoing: Queue,
    session: Rc<Cell<u64>>,
    seen: u64,
    is_apart: bool,
}

impl Port for Link {
    fn receive(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        if core::mem::replace(&mut self.seen, self.session.get()) != self.seen {
            return;
        }
        let mut queue = self.incoming.borrow_mut();
        while !burst.is_full()
            && let Some(packet) = queue.pop_front()
        {
            burst.push(packet);
        }
    }
    fn transmit(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        self.outgoing.borrow_mut().extend(burst.drain(..));
    }
    fn room(&self) -> usize {
        DEPTH.saturating_sub(self.outgoing.borrow().len())
    }
    fn session(&self) -> u64 {
        self.seen
    }
    fn is_apart(&self) -> bool {
        self.is_apart
    }
    fn has_other_clock(&self) -> bool {
        self.is_apart
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// A port to the world.
#[derive(Default)]
pub struct World(VecDeque<Vec<u8>>);

impl Port for World {
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() && !self.0.is_empty() {
            let Some(mut packet) = pool.take() else { return };
            let frame = self.0.pop_front().unwrap_or_default();
            assert!(packet.set_frame(&frame, LinkType::Raw));
            burst.push(packet);
        }
    }
    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        dispose(pool, burst);
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

fn pool(count: usize, origin: u8) -> Pool {
    Pool::new(
        Region::heap(Pool::region_length(count, 1024)),
        count,
        1024,
        origin,
    )
}

/// The worker at the other end.
struct Stranger {
    link: Link,
    pool: Pool,
    kept: VecDeque<PacketBox>,
    sessions: u64,
}

impl Stranger {
    fn new(origin: u8, is_apart: bool) -> (Stranger, Link) {
        let (a, b) = (Queue::default(), Queue::default());
        let session = Rc::new(Cell::new(1));
        let end = |incoming: &Queue, outgoing: &Queue| Link {
            incoming: Rc::clone(incoming),
            outgoing: Rc::clone(outgoing),
            session: Rc::clone(&session),
            seen: 1,
            is_apart,
        };
        let (near, far) = (end(&a, &b), end(&b, &a));
        let stranger = Stranger {
            link: near,
            pool: pool(48, origin),
            kept: VecDeque::new(),
            sessions: 1,
        };
        (stranger, far)
    }

    fn look(&mut self) {
        for packet in self.link.incoming.take() {
            if packet.origin() == self.pool.origin() {
                self.pool.give(packet);
            } else {
                self.kept.push_back(packet);
            }
        }
    }

    fn say(&mut self, fill: impl FnOnce(&mut PacketBox)) {
        self.look();
        if self.link.session.get() == 0 {
            return;
        }
        if let Some(mut packet) = self.pool.take() {
            fill(&mut packet);
            self.link.outgoing.borrow_mut().push_back(packet);
        }
    }

    fn give_back(&mut self, count: u8, how: u8) {
        self.look();
        for _ in 0..count {
            let Some(mut packet) = self.kept.pop_front() else {
                return;
            };
            if how & 1 == 0 || packet.kind() != Kind::Data || self.link.session.get() == 0 {
                packet.set_kind(Kind::Empty);
            } else if how & 2 != 0 {
                packet.set_egress(how);
            } else if how & 4 != 0 {
                packet.set_flags(wire::packet::flag::HAIRPIN);
            }
            self.link.outgoing.borrow_mut().push_back(packet);
        }
    }

    fn renew(&mut self, is_there: bool) {
        for packet in self.link.outgoing.borrow_mut().iter_mut() {
            packet.set_kind(Kind::Empty);
        }
        self.sessions += 1;
        self.link.session.set(if is_there { self.sessions } else { 0 });
    }
}

/// Whether an input's links are to other processes.
fn is_apart(first: u8) -> bool {
    first & 4 != 0
}

/// How many switches an input's runtime has.
fn switches(first: u8) -> usize {
    1 + usize::from(is_apart(first))
}

fn settings(switch: u8, switches: u8, routes_max: u32) -> switch::SwitchSettings {
    switch::SwitchSettings {
        switch,
        switches,
        seed: HashSeed::FIXED,
        routes_max,
        policy: Policy::RoundRobin,
        fragments_max: 16,
        packet_clock: false,
        lead_max: u64::MAX,
        recovery_max: 0,
        patient: false,
        egress: [Some(0), Some(0)],
        now: 0,
    }
}

fn port() -> (World, SideRule) {
    let rule = SideRule::BySource(vec!["10.0.0.0/8".parse().expect("a prefix")]);
    (World::default(), rule)
}

fn plan(input: u8) -> Plan {
    let factory: Box<dyn Factory> = match input & 2 {
        0 => Box::new(Configured::<Nat>::new(
            "nat",
            Config {
                pool: vec!["203.0.113.0/31".parse().expect("a prefix")],
                block_size: 4096,
                ..Config::default()
            },
        )),
        _ => Box::new(Configured::<FlowMonitor>::new(
            "flow_monitor",
            flow_monitor::Config::default(),
        )),
    };
    let rule = ChainRule {
        name: "all".to_owned(),
        matching: Match::default(),
        functions: vec![factory.name().to_owned()],
        replication: None,
    };
    Plan::new(vec![rule], vec![factory]).expect("a plan")
}

/// The worker under test.
enum Worker {
    Switch(Box<Switch<World, Link>>),
    Runtime(Box<Runtime<Link>>),
}

impl Worker {
    fn new(first: u8) -> (Worker, Vec<Stranger>) {
        let plan = plan(first);
        let (mut strangers, mut links) = (Vec::new(), Vec::new());
        // Messages of switches first, then messages of runtimes.
        let origins: &[u8] = match first & 5 {
            0 | 4 => &[2, 3, 4, 1],
            1 => &[0, 1, 3],
            _ => &[0, 1, 2, 4],
        };
        for origin in origins {
            let (stranger, link) = Stranger::new(*origin, is_apart(first));
            strangers.push(stranger);
            links.push(link);
        }
        let worker = match first & 1 {
            0 => {
                let peer = links.pop();
                let settings = settings(0, 2, ROUTES);
                let ports = vec![port()];
                let peers = vec![None, peer];
                Worker::Switch(Box::new(Switch::new(
                    settings,
                    plan,
                    ports,
                    links,
                    peers,
                    pool(96, 0),
                    Region::heap,
                )))
            }
            _ => {
                let switches = switches(first);
                let mut runtime = runtime(plan, 1, 3, links.drain(..switches).collect(), switches as u8 + 1);
                let mut peers = links.into_iter();
                runtime.join(vec![peers.next(), None, peers.next()]);
                Worker::Runtime(Box::new(runtime))
            }
        };
        (worker, strangers)
    }

    fn step(&mut self, now: u64) {
        match self {
            Worker::Switch(switch) => {
                switch.step(now);
                let stats = switch.stats();
                assert!(stats.routes <= u64::from(ROUTES) && stats.blocks <= 1 << 16);
            }
            Worker::Runtime(runtime) => {
                runtime.step(now);
                let stats = runtime.stats();
                let dropped: u64 = stats.dropped.iter().map(|named| named.count).sum();
                let came = stats.received + stats.emitted + stats.packets_moved[0];
                let went = stats.passed + stats.held + dropped + stats.packets_moved[1];
                assert_eq!(came, went, "{stats:?}");
                runtime.take_events(&mut String::new());
            }
        }
    }
}

fn runtime(plan: Plan, number: u16, runtimes: u16, links: Vec<Link>, origin: u8) -> Runtime<Link> {
    let info = WorkerInfo {
        runtime: number,
        runtimes,
        flows_max: FLOWS,
        seed: 7,
    };
    let settings = Settings {
        info,
        switches: links.len() as u8,
        egress: [0, 0],
        inside: vec!["10.0.0.0/8".parse().expect("a prefix")],
        moves_max: 4,
        kept_max: 16,
        // Little memory, since each input has workers of its own.
        waiting_max: 4,
        held_max: 16,
        fragments_max: 16,
        events_max: 1 << 14,
        ..Settings::alone(FLOWS)
    };
    match Runtime::new(settings, plan, links, pool(140, origin), Region::heap) {
        Ok(runtime) => runtime,
        Err((name, error)) => panic!("{name}: {error}"),
    }
}

/// A datagram between an inside host and an outside one.
fn datagram(host: u8, port: u8, is_reply: bool) -> Vec<u8> {
    let mut frame = vec![
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, host, 192, 0, 2, 1, 4, port, 0, 53, 0, 8, 0, 0,
    ];
    if is_reply {
        let (inside, outside) = ([10, 0, 0, host], [192, 0, 2, 1]);
        frame[12..16].copy_from_slice(&outside);
        frame[16..20].copy_from_slice(&inside);
        frame[20..24].copy_from_slice(&[0, 53, 4, port]);
    }
    frame
}

/// An event of an input.
pub fn event(what: u8, which: u8, bytes: &[u8]) -> Vec<u8> {
    [&[what, which][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

/// Runs an input.
pub fn run(input: &[u8]) {
    let Some((first, mut rest)) = input.split_first() else {
        return;
    };
    let (mut worker, mut strangers) = Worker::new(*first);
    let mut now = 0;
    let mut events = 0;
    while let Some((&[what, which, high, low], behind)) = rest.split_first_chunk::<4>()
        && events < 200
    {
        events += 1;
        let length = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        rest = behind;
        let end = usize::from(which) % (strangers.len() + 1);
        now += MS / 10;
        match (what % 6, strangers.get_mut(end)) {
            (0, Some(stranger)) => stranger.say(|frame| {
                Message::begin(frame);
                if frame.set_frame(bytes, LinkType::Raw) {
                    frame.set_kind(Kind::Message);
                } else {
                    frame.set_kind(Kind::Empty);
                }
            }),
            (1, stranger) => {
                let Some((hash, rest)) = bytes.split_first_chunk::<8>() else {
                    continue;
                };
                let frame = match *rest {
                    [] | [_] | [_, _] => continue,
                    [host, port, way] => datagram(host % 4, port % 4, way & 1 != 0),
                    _ => rest.to_vec(),
                };
                match (stranger, &mut worker) {
                    (Some(stranger), _) => stranger.say(|packet| {
                        packet.reset(0, LinkType::Raw);
                        packet.clear_hairpins();
                        if frame.len() > 1000 || !packet.set_frame(&frame, LinkType::Raw) {
                            packet.set_kind(Kind::Empty);
                            return;
                        }
                        packet.set_kind(Kind::Data);
                        if wire::parse(packet).is_ok() {
                            let is_inside = packet.source_addr().octets()[12] == 10;
                            packet.set_side(if is_inside { Side::Inside } else { Side::Outside });
                        }
                        packet.set_hash(u64::from_be_bytes(*hash));
                    }),
                    (None, Worker::Switch(switch)) => {
                        let frame = frame[..frame.len().min(1000)].to_vec();
                        switch.port_mut(0).0.push_back(frame);
                    }
                    (None, Worker::Runtime(_)) => {}
                }
            }
            (2, _) => {
                if let Some(time) = bytes.first_chunk::<2>() {
                    now += u64::from(u16::from_be_bytes(*time)) * MS;
                }
            }
            // Switches are always there for each other.
            (3, Some(stranger)) if end < 3 => stranger.renew(bytes.first().is_some_and(|byte| byte & 1 != 0)),
            (4, _) => {
                if let Worker::Runtime(runtime) = &mut worker {
                    let order = MoveOrder {
                        selector: Selector::All,
                        to: vec![u16::from(which % 3)],
                    };
                    let _ = runtime.order(order);
                }
            }
            (5, Some(stranger)) => {
                if let Some(&[count, how]) = bytes.first_chunk::<2>() {
                    stranger.give_back(count, how);
                }
            }
            _ => {}
        }
        worker.step(now);
        for stranger in &strangers {
            let unread = stranger.link.incoming.borrow();
            let words = unread
                .iter()
                .filter(|packet| packet.kind() == Kind::Message)
                .count();
            assert!(words <= UNREAD_MAX || matches!(worker, Worker::Runtime(_)));
        }
    }
    end(worker, strangers, now);
}

/// All strangers are gone and give back their buffers: nothing of theirs is left.
fn end(mut worker: Worker, mut strangers: Vec<Stranger>, mut now: u64) {
    let sessions = if let Worker::Switch(_) = worker {
        3
    } else {
        strangers.len()
    };
    strangers[..sessions]
        .iter_mut()
        .for_each(|stranger| stranger.renew(false));
    for round in 0..30 {
        now += 10_000 * MS;
        worker.step(now);
        if let Worker::Runtime(runtime) = &mut worker
            && round > 20
        {
            while !runtime.finish(100) {
                runtime.take_events(&mut String::new());
            }
        }
        strangers
            .iter_mut()
            .for_each(|stranger| stranger.give_back(u8::MAX, 0));
    }
    strangers.iter_mut().for_each(Stranger::look);
    match &mut worker {
        Worker::Switch(switch) => {
            let stats = switch.stats();
            let left = (stats.routes, stats.reply_keys, stats.blocks, stats.held);
            assert_eq!(left, (0, 0, 0, 0), "{stats:?}");
            assert_eq!(switch.pool().free(), switch.pool().total());
        }
        Worker::Runtime(runtime) => {
            let stats = runtime.stats();
            assert_eq!((stats.flows, stats.groups, stats.held), (0, 0, 0), "{stats:?}");
            assert_eq!(runtime.words_unsaid(), 0);
        }
    }
    for stranger in &strangers {
        assert_eq!(stranger.pool.free(), stranger.pool.total());
    }
}

/// Inputs as real workers would say them: one switch or two, and two runtimes between which all
/// flows move, there and back, heard from the first switch's place and from that of the second
/// runtime.
pub fn real(first: u8) -> [Vec<u8>; 2] {
    // Each real link is two, with a tap in between.
    let mut heard = [vec![first], vec![first | 1]];
    let mut joints: Vec<(Link, Link, [Option<(usize, u8)>; 2])> = Vec::new();
    let mut tapped = |there: [Option<(usize, u8)>; 2]| {
        let end = || Stranger::new(0, is_apart(first));
        let ((a, near), (b, far)) = (end(), end());
        joints.push((a.link, b.link, there));
        (near, far)
    };
    let count = switches(first);
    // Of a joint: whose input the buffers of each way are, and as which end of it.
    let (mut links, mut to_switches): ([Vec<Link>; 2], [Vec<Link>; 2]) = Default::default();
    for number in 0..count {
        let is_heard = |end| (number == 0).then_some((0, end));
        let (switch_0, runtime_0) = tapped([None, is_heard(0)]);
        let (switch_1, runtime_1) = tapped([Some((1, number as u8)), is_heard(1)]);
        links[number].extend([switch_0, switch_1]);
        to_switches[0].push(runtime_0);
        to_switches[1].push(runtime_1);
    }
    let (between_0, between_1) = tapped([Some((1, count as u8)), None]);
    let (peer_0, peer_1) = tapped([None, Some((0, 3))]);
    let mut peers = [vec![None, Some(peer_0)], vec![Some(peer_1), None]];
    let mut switches: Vec<Switch<World, Link>> = (0..count)
        .map(|number| {
            let settings = settings(number as u8, count as u8, 64);
            let mut peers = core::mem::take(&mut peers[number]);
            peers.truncate(count);
            Switch::new(
                settings,
                plan(first),
                vec![port()],
                core::mem::take(&mut links[number]),
                peers,
                pool(96, number as u8),
                Region::heap,
            )
        })
        .collect();
    let [to_switches_0, to_switches_1] = to_switches;
    let mut runtimes = [
        runtime(plan(first), 0, 3, to_switches_0, count as u8),
        runtime(plan(first), 1, 3, to_switches_1, count as u8 + 1),
    ];
    runtimes[0].join(vec![None, Some(between_0), None]);
    runtimes[1].join(vec![Some(between_1), None, None]);
    let mut now = 0;
    for step in 0..600_u32 {
        // Behind the moves all flows end, and all buffers go home.
        let is_heard = step < 400;
        now += if is_heard { MS } else { 10_000 * MS };
        if step % 20 == 0 && is_heard {
            let number = (step / 20) as u8;
            let frame = datagram(number % 3 + 1, number % 4, false);
            switches[usize::from(number) % count]
                .port_mut(0)
                .0
                .push_back(frame);
            if number % 4 == 3 {
                let from = usize::from(number / 4 % 2);
                let order = MoveOrder {
                    selector: Selector::All,
                    to: vec![1 - from as u16],
                };
                let _ = runtimes[from].order(order);
            }
        }
        for switch in &mut switches {
            switch.step(now);
        }
        for runtime in &mut runtimes {
            runtime.step(now);
            runtime.take_events(&mut String::new());
        }
        for (a, b, whose) in &joints {
            for (from, to, whose) in [(a, b, whose[0]), (b, a, whose[1])] {
                for packet in from.incoming.take() {
                    if let Some((input, end)) = whose.filter(|_| is_heard) {
                        heard[input].extend(said(&packet, end));
                    }
                    to.outgoing.borrow_mut().push_back(packet);
                }
            }
        }
    }
    for switch in &switches {
        assert_eq!(switch.pool().free(), switch.pool().total(), "all is over");
    }
    heard
}

/// A worker's buffer, as an event.
fn said(packet: &PacketBox, end: u8) -> Vec<u8> {
    match packet.kind() {
        Kind::Message => event(0, end, packet.frame()),
        Kind::Data => event(
            1,
            end,
            &[&packet.hash().to_be_bytes()[..], packet.frame()].concat(),
        ),
        Kind::Empty => Vec::new(),
    }
}
