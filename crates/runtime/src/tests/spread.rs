//! A switch and several runtimes, stepped in one thread over links made of queues.

use super::flows::{Hosts, Masquerade, Meter};
use super::*;
use crate::replica::policy::Storing;
use crate::switch::{Policy, SideRule, Switch};
use nf::WorkerInfo;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::vec;
use wire::HashSeed;
use wire::packet::Kind;

pub(super) type Queue = Rc<RefCell<VecDeque<PacketBox>>>;

/// The session with the worker at the other end of a link.
type Session = Rc<Cell<u64>>;

/// One end of a link.
pub(super) struct Link {
    pub incoming: Queue,
    pub outgoing: Queue,
    depth: usize,
    pub session: Session,
    /// The session that is over only when a burst has shown it.
    seen: u64,
    has_other_clock: bool,
}

pub(super) fn link(depth: usize) -> (Link, Link) {
    let (a, b) = (Queue::default(), Queue::default());
    let session = Session::new(Cell::new(1));
    let end = |incoming: &Queue, outgoing: &Queue| Link {
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        depth,
        session: session.clone(),
        seen: 1,
        has_other_clock: false,
    };
    (end(&a, &b), end(&b, &a))
}

impl Port for Link {
    fn receive(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        if core::mem::replace(&mut self.seen, self.session.get()) != self.seen {
            return;
        }
        let mut queue = self.incoming.borrow_mut();
        while !burst.is_full() {
            match queue.pop_front() {
                Some(packet) => burst.push(packet),
                None => return,
            }
        }
    }
    fn transmit(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        self.outgoing.borrow_mut().extend(burst.drain(..));
    }
    fn finished(&self) -> bool {
        self.incoming.borrow().is_empty()
    }
    fn room(&self) -> usize {
        self.depth.saturating_sub(self.outgoing.borrow().len())
    }
    fn session(&self) -> u64 {
        self.seen
    }
    fn has_other_clock(&self) -> bool {
        self.has_other_clock
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

pub(super) struct Cluster {
    pub switches: Vec<Switch<QueuePort, Link>>,
    pub runtimes: Vec<Runtime<Link>>,
    /// Of the links between runtimes: the frames on them, and their sessions.
    pub between: Vec<(Vec<Queue>, Session)>,
    pub now: u64,
    /// By how much runtimes' clocks are ahead of that.
    pub ahead: Vec<u64>,
}

/// The most packets that the functions of each runtime hold.
const HELD_MAX: u32 = 1024;

pub(super) fn cluster(switches: u8, runtimes: u16, policy: Policy, plan: &Plan, flows_max: u32) -> Cluster {
    cluster_with_routes(switches, runtimes, policy, plan, flows_max, 4096)
}

/// A switch and two runtimes whose functions hold so many packets at most.
pub(super) fn cluster_that_holds(plan: &Plan, held_max: u32) -> Cluster {
    make(
        1,
        2,
        Policy::RoundRobin,
        plan,
        [64, 4096, held_max],
        [128, 256],
        &[0, 0],
        None,
    )
}

pub(super) fn cluster_with_routes(
    switches: u8,
    runtimes: u16,
    policy: Policy,
    plan: &Plan,
    flows_max: u32,
    routes_max: u32,
) -> Cluster {
    cluster_with(switches, runtimes, policy, plan, flows_max, routes_max, 128)
}

/// With so many buffers for each runtime.
pub(super) fn cluster_with_buffers(
    switches: u8,
    runtimes: u16,
    plan: &Plan,
    flows_max: u32,
    buffers: usize,
) -> Cluster {
    let sizes = [flows_max, 4 * flows_max, HELD_MAX];
    make(
        switches,
        runtimes,
        Policy::RoundRobin,
        plan,
        sizes,
        [128, buffers],
        &vec![0; usize::from(runtimes)],
        None,
    )
}

/// A runtime for each of these, each on a host of its own whose clock is ahead by so many
/// nanoseconds.
pub(super) fn cluster_of_clocks(switches: u8, plan: &Plan, flows_max: u32, ahead: &[u64]) -> Cluster {
    make(
        switches,
        ahead.len() as u16,
        Policy::RoundRobin,
        plan,
        [flows_max, 4 * flows_max, HELD_MAX],
        [128, 256],
        ahead,
        None,
    )
}

/// The same, whose flows are in a store; and what the wall clock shows where the clocks show 0.
pub(super) fn stored_cluster(
    switches: u8,
    plan: &Plan,
    flows_max: u32,
    ahead: &[u64],
    storing: (Storing, u64),
) -> Cluster {
    make(
        switches,
        ahead.len() as u16,
        Policy::RoundRobin,
        plan,
        [flows_max, 4 * flows_max, HELD_MAX],
        [128, 256],
        ahead,
        Some(storing),
    )
}

pub(super) fn cluster_with(
    switches: u8,
    runtimes: u16,
    policy: Policy,
    plan: &Plan,
    flows_max: u32,
    routes_max: u32,
    depth: usize,
) -> Cluster {
    make(
        switches,
        runtimes,
        policy,
        plan,
        [flows_max, routes_max, HELD_MAX],
        [depth, 256],
        &vec![0; usize::from(runtimes)],
        None,
    )
}

#[expect(clippy::too_many_arguments, reason = "each test says one or two of them")]
fn make(
    switches: u8,
    runtimes: u16,
    policy: Policy,
    plan: &Plan,
    [flows_max, routes_max, held_max]: [u32; 3],
    [depth, buffers]: [usize; 2],
    ahead: &[u64],
    storing: Option<(Storing, u64)>,
) -> Cluster {
    let mut switch_links: Vec<Vec<Link>> = (0..switches).map(|_| Vec::new()).collect();
    let mut made = Vec::new();
    for runtime in 0..runtimes {
        let mut ends = Vec::new();
        for links in &mut switch_links {
            let (near, far) = link(depth);
            links.push(near);
            ends.push(far);
        }
        let settings = Settings {
            info: WorkerInfo {
                runtime,
                runtimes,
                flows_max,
                seed: 7,
            },
            switches,
            egress: [0, switches - 1],
            inside: vec!["10.0.0.0/8".parse().unwrap()],
            now: ahead[usize::from(runtime)],
            storing: storing.map(|(storing, _)| storing),
            wall: storing.map_or(0, |(_, wall)| wall),
            held_max,
            // Small groups begin beside a large one.
            moved_flows_max: 1024,
            ..Settings::alone(flows_max)
        };
        made.push(
            Runtime::new(
                settings,
                plan.clone(),
                ends,
                pool(buffers, switches + runtime as u8),
                Region::heap,
            )
            .unwrap(),
        );
    }
    let count = usize::from(runtimes);
    let mut between: Vec<Vec<Option<Link>>> =
        (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
    let mut on_links = Vec::new();
    for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
        let (mut near, mut far) = link(usize::MAX);
        (near.has_other_clock, far.has_other_clock) = (ahead[a] != ahead[b], ahead[a] != ahead[b]);
        on_links.push((
            vec![near.incoming.clone(), near.outgoing.clone()],
            near.session.clone(),
        ));
        between[a][b] = Some(near);
        between[b][a] = Some(far);
    }
    for (runtime, peers) in made.iter_mut().zip(between) {
        runtime.join(peers);
    }
    let mut peers: Vec<Vec<Option<Link>>> = (0..switches)
        .map(|_| (0..switches).map(|_| None).collect())
        .collect();
    for (a, b) in (0..switches).flat_map(|a| (a + 1..switches).map(move |b| (usize::from(a), usize::from(b))))
    {
        let (near, far) = link(usize::MAX);
        peers[a][b] = Some(near);
        peers[b][a] = Some(far);
    }
    let switches = switch_links
        .into_iter()
        .zip(peers)
        .enumerate()
        .map(|(index, (links, peers))| {
            let settings = crate::switch::SwitchSettings {
                switch: index as u8,
                switches,
                seed: HashSeed::FIXED,
                routes_max,
                policy,
                fragments_max: 64,
                packet_clock: false,
                lead_max: u64::MAX,
                recovery_max: 0,
                patient: true,
                egress: [
                    (index == 0).then_some(0),
                    (index == usize::from(switches) - 1).then_some(0),
                ],
                now: 0,
            };
            // Tests say the side by the port for one switch each, or by the source with one switch.
            let rule = SideRule::BySource(vec!["10.0.0.0/8".parse().unwrap()]);
            let mut switch = Switch::new(
                settings,
                plan.clone(),
                vec![(QueuePort::default(), rule)],
                links,
                peers,
                pool(512, index as u8),
                Region::heap,
            );
            if storing.is_some() {
                switch.wait_for_stored(u64::MAX / 4);
            }
            switch
        })
        .collect();
    Cluster {
        switches,
        runtimes: made,
        between: on_links,
        now: 0,
        ahead: ahead.to_vec(),
    }
}

impl Cluster {
    /// Steps every worker until nothing moves.
    pub(super) fn run_until_quiet(&mut self) {
        let mut idle = 0;
        let mut rounds = 0;
        while idle < 3 {
            rounds += 1;
            assert!(rounds < 100_000, "it never comes to rest");
            self.now += 1000;
            let mut work = 0;
            for switch in &mut self.switches {
                work += switch.step(self.now);
            }
            for (runtime, ahead) in self.runtimes.iter_mut().zip(&self.ahead) {
                let done = runtime.step(self.now + ahead);
                work += done.packets + done.other;
            }
            idle = if work == 0 { idle + 1 } else { 0 };
        }
    }

    /// Has all sessions between runtimes end, and loses the frames on their links. The buffers go
    /// home.
    pub(super) fn lose_sessions(&mut self, now: u64) {
        for (queues, session) in &self.between {
            session.set(now);
            for mut packet in queues.iter().flat_map(|queue| queue.take()) {
                packet.set_kind(Kind::Empty);
                // The worker that gets it first sends it home.
                queues[0].borrow_mut().push_back(packet);
            }
        }
    }

    pub(super) fn feed(&mut self, switch: usize, packets: impl IntoIterator<Item = (Side, Vec<u8>)>) {
        self.switches[switch].port_mut(0).input.extend(packets);
        self.run_until_quiet();
    }

    pub(super) fn sent(&mut self) -> Vec<Sent> {
        (0..self.switches.len())
            .flat_map(|s| self.switches[s].port_mut(0).output.clone())
            .collect()
    }

    /// How many routes there are, at all switches.
    pub(super) fn routes(&self) -> u64 {
        self.switches.iter().map(|s| s.stats().routes).sum()
    }

    pub(super) fn check(&self) {
        let refused: u64 = self.switches.iter().map(|s| s.stats().words_refused).sum();
        assert_eq!(refused, 0, "real runtimes say nothing that they may not");
        let received: u64 = self.switches.iter().map(|s| s.stats().received).sum();
        let sent: u64 = self.switches.iter().map(|s| s.stats().sent).sum();
        let mut dropped: u64 = self
            .switches
            .iter()
            .flat_map(|s| s.stats().dropped)
            .map(|d| d.count)
            .sum();
        let mut held: u64 = self.switches.iter().map(|s| s.stats().held).sum();
        let mut emitted = 0;
        for runtime in &self.runtimes {
            assert_conserved(runtime);
            let stats = runtime.stats();
            assert_eq!(stats.words_refused, 0, "of what real workers say");
            dropped += stats.dropped.iter().map(|d| d.count).sum::<u64>();
            held += stats.held;
            emitted += stats.emitted;
        }
        assert_eq!(received + emitted, sent + held + dropped);
        if held == 0 {
            for switch in &self.switches {
                assert_eq!(
                    switch.pool().free(),
                    switch.pool().total(),
                    "all buffers are home"
                );
            }
        }
    }
}

/// Two bursts never fit into such a queue: packets that fit are read all the same.
#[test]
fn ports_are_read_however_short_the_queues_of_runtimes_are() {
    for waits in [false, true] {
        let plan = plan(vec![factory::<Meter>()]);
        let mut cluster = cluster_with(1, 2, Policy::RoundRobin, &plan, 64, 4096, 8);
        cluster.switches[0].port_mut(0).is_a_wire = !waits;
        for n in 0..20 {
            cluster.feed(0, [udp(1, 1000 + n, 1, 80, false, b"")]);
        }
        cluster.check();
        assert_eq!(cluster.sent().len(), 20, "waits: {waits}");
    }
}

#[test]
fn a_flow_stays_where_it_is_and_policies_spread() {
    for policy in [Policy::LeastLoaded, Policy::RoundRobin, Policy::Maglev] {
        let plan = plan(vec![factory::<Meter>()]);
        let mut cluster = cluster(1, 4, policy, &plan, 512);
        // Miri takes a quarter of an hour over so many.
        let count: u16 = if cfg!(miri) { 40 } else { 400 };
        for _ in 0..3 {
            cluster.feed(
                0,
                (0..count).flat_map(|n| {
                    [
                        udp(1, 1000 + n, 1, 80, false, b""),
                        udp(1, 1000 + n, 1, 80, true, b""),
                    ]
                }),
            );
        }
        cluster.check();
        assert_eq!(cluster.sent().len(), 6 * usize::from(count));
        let flows: Vec<u64> = cluster.runtimes.iter().map(|r| r.stats().flows).collect();
        assert_eq!(
            flows.iter().sum::<u64>(),
            u64::from(count),
            "{policy:?}: {flows:?}"
        );
        assert!(
            cfg!(miri) || flows.iter().all(|f| *f > 60),
            "{policy:?}: {flows:?}"
        );
    }
}

#[test]
fn routes_end_with_their_groups_and_flows_can_come_again() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(2, 2, Policy::LeastLoaded, &plan, 512);
    cluster.feed(0, (0..50).map(|n| udp(1, 1000 + n, 1, 80, false, b"")));
    let routes = |c: &Cluster| c.switches.iter().map(|s| s.stats().routes).sum::<u64>();
    assert_eq!(routes(&cluster), 50);
    assert!(
        cluster.switches[0].stats().handed_over > 5,
        "half of the groups have their home at the other switch"
    );
    cluster.now += 30_000_000_000;
    cluster.run_until_quiet();
    assert_eq!(routes(&cluster), 0);
    cluster.feed(1, (0..50).map(|n| udp(1, 1000 + n, 1, 80, true, b"")));
    assert_eq!(routes(&cluster), 50);
    cluster.check();
}

#[test]
fn replies_to_translated_flows_find_them_through_any_switch() {
    let plan = plan(vec![factory::<Masquerade>()]);
    let mut cluster = cluster(2, 3, Policy::RoundRobin, &plan, 512);
    cluster.feed(0, (0..60).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
    let reply = |n: u16| {
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [203, 0, 113, 1], 64)
            .udp(80, 2000 + n)
            .write(&mut frame, b"y")
            .unwrap();
        (Side::Outside, frame)
    };
    cluster.feed(1, (0..60).map(reply));
    let mut spare = pool(1, 99);
    let to_inside: Vec<_> = cluster
        .sent()
        .into_iter()
        .filter(|s| s.0 == Side::Inside)
        .collect();
    assert_eq!(to_inside.len(), 60);
    for sent in &to_inside {
        let to = parsed(&mut spare, sent, |p| p.destination());
        assert_eq!(to.addr, "10.0.0.1".parse().unwrap());
    }
    assert_eq!(cluster.runtimes.iter().map(|r| r.stats().flows).sum::<u64>(), 60);
    cluster.check();
    // All gone: the reply keys' routes, too.
    cluster.now += 400_000_000_000;
    cluster.run_until_quiet();
    assert_eq!(cluster.switches.iter().map(|s| s.stats().routes).sum::<u64>(), 0);
}

#[test]
fn a_flow_whose_replies_get_no_route_is_refused() {
    let plan = plan(vec![factory::<Masquerade>()]);
    // A route for each of two flows, and for the replies of one.
    let mut cluster = cluster_with_routes(1, 2, Policy::RoundRobin, &plan, 64, 3);
    for _ in 0..3 {
        cluster.feed(0, (0..2).map(|n| udp(1, 1000 + n, 1, 80, false, b"")));
        cluster.check();
    }
    assert_eq!((cluster.sent().len(), cluster.routes()), (3, 2));
    let dropped = cluster.switches[0].stats().dropped;
    assert_eq!(
        dropped.iter().map(|d| (d.name, d.count)).collect::<Vec<_>>(),
        [("routes_full", 3)]
    );
    assert_eq!(cluster.runtimes.iter().map(|r| r.stats().flows).sum::<u64>(), 1);
}

#[test]
fn blocks_lead_packets_from_outside_to_their_group() {
    let plan = plan(vec![factory::<Hosts>()]);
    let mut cluster = cluster(2, 4, Policy::RoundRobin, &plan, 512);
    cluster.feed(0, (1..20).map(|n| udp(n, 1000, 1, 80, false, b"")));
    let before: Vec<u64> = cluster.runtimes.iter().map(|r| r.stats().groups).collect();
    assert_eq!(before.iter().sum::<u64>(), 19);
    // To each host's block, from a new host.
    let inbound = |n: u8| {
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ipv4([198, 51, 100, 1], [203, 0, 113, 1], 64)
            .udp(5, u16::from(n) * 256 + 17)
            .write(&mut frame, b"")
            .unwrap();
        (Side::Outside, frame)
    };
    cluster.feed(1, (1..20).map(inbound));
    let after: Vec<u64> = cluster.runtimes.iter().map(|r| r.stats().groups).collect();
    assert_eq!(before, after, "no group was made for them: they met the hosts'");
    assert_eq!(cluster.runtimes.iter().map(|r| r.stats().flows).sum::<u64>(), 38);
    cluster.check();
}

#[test]
fn what_a_peer_took_to_be_at_home_here_is_not_handed_back() {
    let (near, far) = link(16);
    let settings = crate::switch::SwitchSettings {
        switch: 0,
        switches: 2,
        seed: HashSeed::FIXED,
        routes_max: 64,
        policy: Policy::LeastLoaded,
        fragments_max: 64,
        packet_clock: false,
        lead_max: u64::MAX,
        recovery_max: 0,
        patient: false,
        egress: [None, None],
        now: 0,
    };
    let (to_runtime, _runtime) = link(64);
    let rule = || SideRule::Fixed(Side::Inside);
    let plan = plan(vec![factory::<Meter>()]);
    let mut switch: Switch<QueuePort, Link> = Switch::new(
        settings,
        plan,
        vec![(QueuePort::default(), rule())],
        vec![to_runtime],
        vec![None, Some(near)],
        pool(64, 0),
        Region::heap,
    );
    // Of sixteen flows read from a port, some are at home at the peer: these come back as if it
    // took them to be at home here.
    switch
        .port_mut(0)
        .input
        .extend((0..16).map(|n| udp(n, 1, 1, 80, false, &[n])));
    switch.step(1);
    let handed: Vec<PacketBox> = far.incoming.borrow_mut().drain(..).collect();
    let strangers = handed.len() as u64;
    assert!((1..16).contains(&strangers), "{strangers}");
    far.outgoing.borrow_mut().extend(handed);
    switch.step(2);
    assert!(far.incoming.borrow().is_empty(), "none goes back");
    let dropped = switch.stats().dropped;
    let over = dropped
        .iter()
        .find(|d| d.name == "route_over")
        .map_or(0, |d| d.count);
    assert_eq!(over, strangers);
}

#[test]
fn a_runtime_short_of_buffers_finds_them_behind_packets() {
    let (near, far) = link(usize::MAX);
    let settings = Settings {
        switches: 1,
        ..Settings::alone(4096)
    };
    // Its buffers for a turn, and few more.
    let plan = plan(vec![factory::<Masquerade>()]);
    let mut runtime = Runtime::new(settings, plan, vec![far], pool(24, 1), Region::heap).unwrap();
    let mut buffers = pool(512, 0);
    let mut send = |n: u16| {
        let mut packet = buffers.take().unwrap();
        let (side, frame) = udp(1, 1000 + n, 1, 80, false, b"");
        assert!(packet.set_frame(&frame, wire::LinkType::Raw));
        packet.set_side(side);
        near.outgoing.borrow_mut().push_back(packet);
    };
    // Each turn begins a flow whose reply key is announced, and the switch takes nothing off.
    for n in 0..12 {
        send(n);
        runtime.step(u64::from(n));
    }
    assert!(runtime.stats().stalls > 0 && runtime.stats().received < 12);
    // More packets come, and then the buffers go home.
    for n in 12..200 {
        send(n);
    }
    let mut out = near.incoming.borrow_mut();
    let (messages, packets): (Vec<_>, Vec<_>) = out
        .drain(..)
        .partition(|p| p.kind() == wire::packet::Kind::Message);
    drop(out);
    let mut passed = packets.len();
    for mut message in messages {
        message.set_kind(wire::packet::Kind::Empty);
        near.outgoing.borrow_mut().push_back(message);
    }
    for turn in 0..400 {
        runtime.step(100 + turn);
        for mut packet in near.incoming.borrow_mut().drain(..) {
            passed += usize::from(packet.kind() == wire::packet::Kind::Data);
            if packet.origin() == 1 {
                packet.set_kind(wire::packet::Kind::Empty);
                near.outgoing.borrow_mut().push_back(packet);
            }
        }
    }
    assert_eq!((passed, runtime.stats().received), (200, 200));
    assert_conserved(&runtime);
}
