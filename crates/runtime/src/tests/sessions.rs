//! Workers that come and go: links as between processes, which copy, and whose sessions end when a
//! worker does.

use super::flows::{Masquerade, Meter};
use super::groups::{Leaser, Service, packets};
use super::*;
use crate::mobility::{MoveOrder, Selector};
use crate::replica::policy::{Copying, Storing};
use crate::switch::{Policy, SideRule, Switch};
use nf::WorkerInfo;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::vec;
use wire::HashSeed;
use wire::packet::Kind;

mod checks;
mod random;
mod resync;

pub(super) const SECOND: u64 = 1_000_000_000;
/// How long switches that begin again wait to be told, where that is not tested.
pub(super) const WAIT: u64 = 100_000 * SECOND;

/// A frame on its way from one worker to another: from which incarnation of the one, to which of
/// the other.
pub(super) struct Sent {
    from: u64,
    to: u64,
    packet: PacketBox,
}

pub(super) type Queue = Rc<RefCell<VecDeque<Sent>>>;
pub(super) type SharedIncarnation = Rc<Cell<u64>>;

/// The state that all links share: buffers for frames on their way, and how many packets were lost.
struct Ether {
    pool: RefCell<Pool>,
    lost: Cell<u64>,
}

impl Ether {
    fn give(&self, packet: PacketBox) {
        self.pool.borrow_mut().give(packet);
    }

    fn lose(&self, packet: &PacketBox) {
        if packet.kind() == Kind::Data {
            self.lost.set(self.lost.get() + 1);
        }
    }
}

/// One end of a link.
pub(super) struct Wire {
    ether: Rc<Ether>,
    incoming: Queue,
    outgoing: Queue,
    /// The incarnation of this end's worker, of the other end's, and the other one's when last
    /// looked.
    here: u64,
    there: SharedIncarnation,
    session: u64,
}

impl Port for Wire {
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        let mut queue = self.incoming.borrow_mut();
        let before = burst.len();
        while !burst.is_full() {
            let Some(sent) = queue.front() else {
                if burst.len() == before {
                    self.session = self.there.get();
                }
                return;
            };
            if sent.to == self.here && sent.from != self.session {
                // Behind everything from before.
                if burst.len() == before {
                    self.session = sent.from;
                }
                return;
            }
            if sent.to == self.here && pool.free() == 0 {
                return;
            }
            let sent = queue.pop_front().unwrap();
            if sent.to == self.here {
                let mut packet = pool.take().unwrap();
                assert!(packet.copy_from(&sent.packet));
                burst.push(packet);
            } else {
                self.ether.lose(&sent.packet);
            }
            self.ether.give(sent.packet);
        }
    }

    fn transmit(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        for packet in burst.iter() {
            assert!(packet.kind() != Kind::Empty, "buffers stay where they are");
            if self.session == 0 {
                self.ether.lose(packet);
                continue;
            }
            let mut copy = self.ether.pool.borrow_mut().take().unwrap();
            assert!(copy.copy_from(packet));
            self.outgoing.borrow_mut().push_back(Sent {
                from: self.here,
                to: self.session,
                packet: copy,
            });
        }
        dispose(pool, burst);
        assert!(burst.is_empty(), "all buffers are this worker's own");
    }

    fn room(&self) -> usize {
        match self.session {
            0 => 0,
            _ => 128_usize.saturating_sub(self.outgoing.borrow().len()),
        }
    }

    fn session(&self) -> u64 {
        self.session
    }

    fn is_apart(&self) -> bool {
        true
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// Workers, numbered with switches first; each can be gone.
pub(super) struct Members {
    plan: Plan,
    policy: Policy,
    ether: Rc<Ether>,
    pub(super) incarnations: Vec<SharedIncarnation>,
    begun: u64,
    /// By sender and receiver.
    pub(super) queues: HashMap<(usize, usize), Queue>,
    pub(super) switches: Vec<Option<Switch<QueuePort, Wire>>>,
    pub(super) runtimes: Vec<Option<Runtime<Wire>>>,
    pub(super) now: u64,
    /// Of workers that are gone.
    received: u64,
    pub(super) emitted: u64,
    pub(super) left: u64,
    gone: Vec<super::Sent>,
    pub(super) is_replicated: bool,
    /// Whether switches wait for runtimes that come back with flows out of a store.
    pub(super) is_returning: bool,
    pub(super) copying: Copying,
    pub(super) storing: Option<Storing>,
    pub(super) wall: u64,
    pub(super) replica_ranks: Vec<Vec<Option<u8>>>,
    /// How long packets of a failed runtime wait.
    pub(super) recovery_max: u64,
    /// Two workers that do not meet, and whose incarnations each end has not seen.
    pub(super) apart: Option<(usize, usize)>,
    unseen: Vec<(usize, SharedIncarnation)>,
}

impl Members {
    /// No worker is there yet.
    pub(super) fn none(switches: usize, runtimes: usize, policy: Policy, plan: Plan) -> Self {
        let ether = Ether {
            pool: RefCell::new(pool(8192, 200)),
            lost: Cell::new(0),
        };
        Members {
            plan,
            policy,
            ether: Rc::new(ether),
            incarnations: (0..switches + runtimes)
                .map(|_| SharedIncarnation::default())
                .collect(),
            begun: 0,
            queues: HashMap::new(),
            switches: (0..switches).map(|_| None).collect(),
            runtimes: (0..runtimes).map(|_| None).collect(),
            now: 0,
            received: 0,
            emitted: 0,
            left: 0,
            gone: Vec::new(),
            is_replicated: false,
            is_returning: false,
            copying: Copying::default(),
            storing: None,
            wall: 0,
            replica_ranks: Vec::new(),
            recovery_max: 100 * SECOND,
            apart: None,
            unseen: Vec::new(),
        }
    }

    /// All are there, and know of each other.
    pub(super) fn all(switches: usize, runtimes: usize, policy: Policy, plan: Plan) -> Self {
        let mut members = Members::none(switches, runtimes, policy, plan);
        (0..switches + runtimes).for_each(|worker| members.start(worker));
        members.run_until_quiet();
        members
    }

    fn end(&mut self, here: usize, there: usize) -> Wire {
        let seen = match self.apart == Some((here.min(there), here.max(there))) {
            true => {
                let unseen = SharedIncarnation::default();
                self.unseen.push((there, unseen.clone()));
                unseen
            }
            false => self.incarnations[there].clone(),
        };
        Wire {
            ether: self.ether.clone(),
            incoming: self.queues.entry((there, here)).or_default().clone(),
            outgoing: self.queues.entry((here, there)).or_default().clone(),
            here: self.incarnations[here].get(),
            there: seen,
            session: 0,
        }
    }

    /// Workers that did not meet meet now, and see each other as they are, until this is called
    /// again.
    pub(super) fn meet(&mut self) {
        self.apart = None;
        for (there, incarnation) in &self.unseen {
            incarnation.set(self.incarnations[*there].get());
        }
    }

    /// Workers that began apart, and have met, see each other no more; all others see both.
    pub(super) fn part(&mut self) {
        for (_, incarnation) in &self.unseen {
            incarnation.set(0);
        }
    }

    /// A worker begins, again if it was there before.
    pub(super) fn start(&mut self, worker: usize) {
        self.stop(worker);
        self.begun += 1;
        self.incarnations[worker].set(self.begun);
        let (switches, runtimes) = (self.switches.len(), self.runtimes.len());
        match worker.checked_sub(switches) {
            None => {
                let settings = crate::switch::SwitchSettings {
                    switch: worker as u8,
                    switches: switches as u8,
                    seed: HashSeed::FIXED,
                    routes_max: 8192,
                    policy: self.policy,
                    fragments_max: 64,
                    packet_clock: false,
                    lead_max: u64::MAX,
                    recovery_max: match self.is_replicated || self.is_returning {
                        true => self.recovery_max,
                        false => 0,
                    },
                    patient: true,
                    egress: [(worker == 0).then_some(0), (worker + 1 == switches).then_some(0)],
                    now: self.now,
                };
                let links = (switches..switches + runtimes)
                    .map(|r| self.end(worker, r))
                    .collect();
                let peers = (0..switches)
                    .map(|peer| (peer != worker).then(|| self.end(worker, peer)))
                    .collect();
                let rule = SideRule::BySource(vec!["10.0.0.0/8".parse().unwrap()]);
                let ports = vec![(QueuePort::default(), rule)];
                let pool = pool(512, worker as u8);
                let mut switch = Switch::new(
                    settings,
                    self.plan.clone(),
                    ports,
                    links,
                    peers,
                    pool,
                    Region::heap,
                );
                if self.is_returning {
                    switch.expect_returns(self.is_replicated);
                }
                self.switches[worker] = Some(switch);
            }
            Some(runtime) => {
                let settings = Settings {
                    info: WorkerInfo {
                        runtime: runtime as u16,
                        runtimes: runtimes as u16,
                        flows_max: 2048,
                        seed: self.begun,
                    },
                    switches: switches as u8,
                    egress: [0, switches as u8 - 1],
                    inside: vec!["10.0.0.0/8".parse().unwrap()],
                    replicated: self.is_replicated,
                    copying: self.copying,
                    storing: self.storing,
                    wall: self.wall,
                    replica_ranks: self.replica_ranks.get(runtime).cloned().unwrap_or_default(),
                    now: self.now,
                    ..Settings::alone(2048)
                };
                let links = (0..switches).map(|switch| self.end(worker, switch)).collect();
                let peers = (switches..switches + runtimes)
                    .map(|peer| (peer != worker).then(|| self.end(worker, peer)))
                    .collect();
                let mut made = Runtime::new(
                    settings,
                    self.plan.clone(),
                    links,
                    pool(256, worker as u8),
                    Region::heap,
                )
                .unwrap();
                made.join(peers);
                self.runtimes[runtime] = Some(made);
            }
        }
    }

    /// Others see a worker's sessions end (0), or begin as they were; it lives all the while.
    /// Answers the incarnation that they saw.
    pub(super) fn set_seen(&mut self, worker: usize, incarnation: u64) -> u64 {
        self.incarnations[worker].replace(incarnation)
    }

    /// A worker is gone, with all it had in hand.
    pub(super) fn stop(&mut self, worker: usize) {
        self.incarnations[worker].set(0);
        match worker.checked_sub(self.switches.len()) {
            None => {
                if let Some(mut switch) = self.switches[worker].take() {
                    let stats = switch.stats();
                    self.received += stats.received;
                    self.gone.append(&mut switch.port_mut(0).output);
                    let dropped: u64 = stats.dropped.iter().map(|d| d.count).sum();
                    self.left += dropped + stats.held;
                }
            }
            Some(runtime) => {
                if let Some(runtime) = self.runtimes[runtime].take() {
                    let stats = runtime.stats();
                    self.emitted += stats.emitted;
                    let dropped: u64 = stats.dropped.iter().map(|d| d.count).sum();
                    // Packets that it had received and not yet looked at count as lost on the link.
                    self.left += dropped + stats.held;
                }
            }
        }
    }

    pub(super) fn switch(&mut self, switch: usize) -> &mut Switch<QueuePort, Wire> {
        self.switches[switch].as_mut().unwrap()
    }

    pub(super) fn runtime(&mut self, runtime: usize) -> &mut Runtime<Wire> {
        self.runtimes[runtime].as_mut().unwrap()
    }

    /// Frames that one worker sent another, and that have not been read, never arrive.
    pub(super) fn lose(&mut self, from: usize, to: usize) {
        let lost = self.queues.get(&(from, to)).map(|queue| queue.take());
        for sent in lost.into_iter().flatten() {
            self.ether.lose(&sent.packet);
            self.ether.give(sent.packet);
        }
    }

    /// Whether a worker is played by hand, in the place of a worker that takes no steps: it says
    /// the messages given to [`Members::say`].
    pub(super) fn play(&mut self, worker: usize, is_there: bool) {
        self.begun += u64::from(is_there);
        self.incarnations[worker].set(if is_there { self.begun } else { 0 });
    }

    /// Sends a packet in the name of a worker that is played.
    pub(super) fn say(&mut self, from: usize, to: usize, fill: impl FnOnce(&mut wire::Packet)) {
        let mut packet = self.ether.pool.borrow_mut().take().unwrap();
        fill(&mut packet);
        let (incarnation, other) = (self.incarnations[from].get(), self.incarnations[to].get());
        let sent = Sent {
            from: incarnation,
            to: other,
            packet,
        };
        self.queues
            .entry((from, to))
            .or_default()
            .borrow_mut()
            .push_back(sent);
    }

    /// Shows what one worker sent to another that is played.
    pub(super) fn read(&mut self, from: usize, to: usize, mut look: impl FnMut(&wire::Packet)) {
        let sent = self.queues.get(&(from, to)).map(|queue| queue.take());
        for sent in sent.into_iter().flatten() {
            look(&sent.packet);
            self.ether.give(sent.packet);
        }
    }

    /// No other worker sees this one while something is done; it lives.
    pub(super) fn cut_off(&mut self, worker: usize, meanwhile: impl FnOnce(&mut Self)) {
        let incarnation = self.incarnations[worker].replace(0);
        meanwhile(self);
        self.incarnations[worker].set(incarnation);
    }

    pub(super) fn workers(&self) -> usize {
        self.incarnations.len()
    }

    pub(super) fn step(&mut self, worker: usize) -> usize {
        match worker.checked_sub(self.switches.len()) {
            None => self.switches[worker]
                .as_mut()
                .map_or(0, |switch| switch.step(self.now)),
            Some(runtime) => self.runtimes[runtime].as_mut().map_or(0, |runtime| {
                let done = runtime.step(self.now);
                done.packets + done.other
            }),
        }
    }

    /// Steps every worker until nothing moves.
    pub(super) fn run_until_quiet(&mut self) {
        let (mut idle, mut rounds) = (0, 0);
        while idle < 3 {
            rounds += 1;
            assert!(rounds < 100_000, "it never comes to rest");
            self.now += 1000;
            let workers = self.incarnations.len();
            let work: usize = (0..workers).map(|worker| self.step(worker)).sum();
            idle = if work == 0 { idle + 1 } else { 0 };
        }
    }

    pub(super) fn feed(&mut self, switch: usize, packets: impl IntoIterator<Item = (Side, Vec<u8>)>) {
        self.switch(switch).port_mut(0).input.extend(packets);
        self.run_until_quiet();
    }

    pub(super) fn sent(&mut self) -> Vec<super::Sent> {
        let mut sent = self.gone.clone();
        for switch in self.switches.iter_mut().flatten() {
            sent.extend(switch.port_mut(0).output.iter().cloned());
        }
        sent
    }

    pub(super) fn flows(&self) -> Vec<u64> {
        let flows = |runtime: &Option<Runtime<Wire>>| runtime.as_ref().map_or(0, |r| r.stats().flows);
        self.runtimes.iter().map(flows).collect()
    }

    fn routes(&self) -> u64 {
        self.switches
            .iter()
            .flatten()
            .map(|switch| switch.stats().routes)
            .sum()
    }

    pub(super) fn dropped(&self, reason: &str) -> u64 {
        let switches = self
            .switches
            .iter()
            .flatten()
            .flat_map(|switch| switch.stats().dropped);
        let runtimes = self
            .runtimes
            .iter()
            .flatten()
            .flat_map(|runtime| runtime.stats().dropped);
        let of = switches.chain(runtimes).filter(|dropped| dropped.name == reason);
        of.map(|dropped| dropped.count).sum()
    }
}

fn out(port: u16, n: u8) -> (Side, Vec<u8>) {
    udp(1, port, 1, 80, false, &[n])
}

fn reply(port: u16, n: u8) -> (Side, Vec<u8>) {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [203, 0, 113, 1], 64)
        .udp(80, port + 1000)
        .write(&mut frame, &[n])
        .unwrap();
    (Side::Outside, frame)
}

const POLICIES: [Policy; 3] = [Policy::LeastLoaded, Policy::RoundRobin, Policy::Maglev];

#[test]
fn who_is_not_there_is_chosen_for_nothing_and_who_comes_is() {
    for policy in POLICIES {
        let mut members = Members::none(1, 4, policy, plan(vec![factory::<Meter>()]));
        members.start(0);
        members.feed(0, (0..10).map(|n| out(1000 + n, 0)));
        assert_eq!((members.dropped("no_runtime"), members.sent().len()), (10, 0));
        // Two of four, and the two that are missing leave their shares to both.
        members.start(1);
        members.start(3);
        members.run_until_quiet();
        members.feed(0, (0..400).map(|n| out(2000 + n, 0)));
        let flows = members.flows();
        assert_eq!(
            (flows[1], flows[3], flows.iter().sum::<u64>()),
            (0, 0, 400),
            "{policy:?}"
        );
        assert!(flows[0] > 150 && flows[2] > 150, "{policy:?}: {flows:?}");
        members.start(2);
        members.run_until_quiet();
        members.feed(0, (0..400).map(|n| out(3000 + n, 0)));
        assert!(members.flows()[1] > 90, "{policy:?}: {:?}", members.flows());
        assert_eq!(members.sent().len(), 800);
        members.check();
        members.assert_nothing_stays();
    }
}

#[test]
fn who_is_leaving_says_so_itself_and_is_chosen_when_nobody_else_is_there() {
    for policy in POLICIES {
        let mut members = Members::all(2, 2, policy, plan(vec![factory::<Meter>()]));
        members.runtime(0).set_leaving(true);
        members.run_until_quiet();
        members.feed(0, (0..50).map(|n| out(1000 + n, 0)));
        assert_eq!(members.flows(), [0, 50], "{policy:?}");
        assert!(members.runtime(1).knows_leaving(0), "{policy:?}");
        // A switch that begins again hears it, too.
        members.start(0);
        members.run_until_quiet();
        members.feed(0, (0..50).map(|n| out(2000 + n, 0)));
        assert_eq!(members.flows(), [0, 100], "{policy:?}");
        members.stop(3);
        members.run_until_quiet();
        members.feed(0, (0..50).map(|n| out(3000 + n, 0)));
        assert_eq!(members.flows(), [50, 0], "{policy:?}");
        // So does a runtime.
        members.start(3);
        members.run_until_quiet();
        assert!(members.runtime(1).knows_leaving(0), "{policy:?}");
        members.runtime(0).set_leaving(false);
        members.run_until_quiet();
        assert!(!members.runtime(1).knows_leaving(0), "{policy:?}");
        members.feed(0, (0..100).map(|n| out(4000 + n, 0)));
        assert!(members.flows()[0] > 60, "{policy:?}: {:?}", members.flows());
        members.assert_nothing_stays();
    }
}

#[test]
fn flows_of_a_runtime_that_goes_begin_anew_at_once() {
    for policy in POLICIES {
        let mut members = Members::all(
            1,
            3,
            policy,
            plan(vec![factory::<Meter>(), factory::<Masquerade>()]),
        );
        // More than are looked at in a step.
        let flows = 1500;
        members.feed(0, (0..flows).map(|n| out(1000 + n, 1)));
        let there = members.flows()[1];
        assert!(there > 300, "{policy:?}: {there}");
        assert_eq!(members.routes(), 2 * u64::from(flows));
        members.stop(2);
        // In one step the switch notices, and routes packets of which some lead to no runtime.
        members
            .switch(0)
            .port_mut(0)
            .input
            .extend((0..32).map(|n| out(1000 + n, 2)));
        members.now += 1000;
        members.step(0);
        assert!(
            members.routes() > u64::from(flows),
            "{policy:?}: not all is forgotten at once"
        );
        members.feed(0, (0..flows).map(|n| out(1000 + n, 3)));
        assert_eq!(members.flows().iter().sum::<u64>(), u64::from(flows));
        members.feed(0, (0..flows).map(|n| reply(1000 + n, 4)));
        let inside = members
            .sent()
            .iter()
            .filter(|sent| sent.0 == Side::Inside)
            .count();
        assert_eq!(
            (inside, members.sent().len()),
            (1500, 3 * 1500 + 32),
            "{policy:?}"
        );
        members.check();
        // It comes again, and gets nothing that was the one's before; both count from 0 again.
        members.start(2);
        members.run_until_quiet();
        assert_eq!(members.flows()[1], 0);
        members.feed(0, (0..300).map(|n| out(5000 + n, 1)));
        assert!(members.flows()[1] > 50, "{policy:?}");
        members.assert_nothing_stays();
    }
}

/// Gone and there again between two looks: the switch sees one number, then another.
#[test]
fn who_begins_anew_unseen_has_none_of_the_old_flows() {
    let mut members = Members::all(1, 1, Policy::LeastLoaded, plan(vec![factory::<Leaser>()]));
    members.feed(0, [out(1000, 1)]);
    assert_eq!((members.routes(), members.switch(0).stats().blocks), (1, 1));
    members.start(1);
    members.run_until_quiet();
    assert_eq!((members.routes(), members.switch(0).stats().blocks), (0, 0));
    members.feed(0, [out(1000, 2), out(1001, 2)]);
    assert_eq!(members.flows(), [2]);
    members.check();
    members.assert_nothing_stays();
}

#[test]
fn a_switch_that_begins_anew_is_told_all_before_it_reads() {
    for switches in [1, 2] {
        let plan = plan(vec![factory::<Meter>(), factory::<Masquerade>()]);
        let mut members = Members::all(switches, 3, Policy::RoundRobin, plan);
        let flows = 1200;
        members.feed(0, (0..flows).map(|n| out(1000 + n, 1)));
        let before = (members.routes(), members.flows());
        members.start(0);
        members.switch(0).wait_for_resync(WAIT);
        let input = (0..flows).flat_map(|n| [out(1000 + n, 2), reply(1000 + n, 2)]);
        members.switch(0).port_mut(0).input.extend(input);
        for worker in 0..members.incarnations.len() {
            members.step(worker);
            assert!(members.switch(0).is_waiting_for_resync());
            assert_eq!(members.switch(0).stats().received, 0);
        }
        members.run_until_quiet();
        assert_eq!((members.routes(), members.flows()), before);
        for runtime in 0..3 {
            for flow in members.runtime(runtime).flows(0, 2000).0 {
                let counts: Vec<_> = flow.state[0].1.iter().map(|(_, count)| count.as_str()).collect();
                assert_eq!(counts, ["2", "1"], "{flow:?}");
            }
        }
        members.check();
        members.assert_nothing_stays();
    }
}

#[test]
fn a_switch_that_begins_anew_is_told_of_groups_and_their_blocks() {
    let plan = plan(vec![factory::<Leaser>(), factory::<Service>()]);
    let mut members = Members::all(2, 2, Policy::RoundRobin, plan);
    members.feed(0, (1..20).map(|host| udp(host, 1000, 1, 53, false, b"x")));
    let known = |members: &mut Members| {
        let blocks: Vec<u64> = (0..2).map(|s| members.switch(s).stats().blocks).collect();
        (members.routes(), blocks, members.flows())
    };
    let before = known(&mut members);
    assert_eq!((before.0, &before.1), (19, &vec![19, 19]));
    for switch in [0, 1, 0] {
        members.start(switch);
        members.run_until_quiet();
        assert_eq!(known(&mut members), before);
    }
    members.feed(1, (1..20).map(|host| udp(host, 1000, 1, 53, false, b"x")));
    assert_eq!(known(&mut members), before);
    members.check();
    members.assert_nothing_stays();
}

#[test]
fn a_switch_waits_for_a_runtime_that_is_not_there_no_longer_than_it_may() {
    let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    members.feed(0, (0..20).map(|n| out(1000 + n, 1)));
    members.stop(2);
    members.start(0);
    members.switch(0).wait_for_resync(SECOND);
    members.feed(0, (0..20).map(|n| out(1000 + n, 2)));
    assert_eq!(members.switch(0).stats().received, 0);
    members.now += SECOND;
    members.run_until_quiet();
    assert_eq!(members.switch(0).stats().received, 20);
    members.check();
    members.assert_nothing_stays();
}

/// A runtime that cannot say what it has in time finds some of it at another.
#[test]
fn what_another_was_chosen_for_meanwhile_ends() {
    for by_host in [false, true] {
        let functions = match by_host {
            false => vec![factory::<Meter>()],
            true => vec![factory::<Leaser>(), factory::<Meter>()],
        };
        let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(functions));
        let packets = |n| (1..21).map(move |host| udp(host, 1000, 1, 80, false, &[n]));
        members.feed(0, packets(1));
        assert_eq!(members.flows(), [10, 10]);
        members.start(0);
        members.switch(0).wait_for_resync(5000);
        members.switch(0).port_mut(0).input.extend(packets(2));
        // The second runtime is cut off: the first is there alone.
        let incarnation = members.incarnations[2].replace(0);
        for _ in 0..20 {
            members.now += 1000;
            members.step(0);
            members.step(1);
        }
        assert_eq!(members.flows(), [20, 10], "by host: {by_host}");
        members.incarnations[2].set(incarnation);
        members.run_until_quiet();
        assert_eq!(
            (members.flows(), members.routes()),
            (vec![20, 0], 20),
            "by host: {by_host}"
        );
        members.assert_one_home();
        members.check();
        members.assert_nothing_stays();
    }
}

#[test]
fn packets_whose_home_is_not_there_are_counted_drops() {
    let mut members = Members::all(2, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    members.stop(1);
    members.run_until_quiet();
    members.feed(0, (0..100).map(|n| out(1000 + n, 1)));
    let absent = members.dropped("home_absent");
    assert!(absent > 20 && absent < 80, "{absent}");
    assert_eq!(members.flows().iter().sum::<u64>(), 100 - absent);
    members.start(1);
    members.run_until_quiet();
    members.feed(0, (0..100).map(|n| out(1000 + n, 2)));
    assert_eq!(
        (
            members.dropped("home_absent"),
            members.flows().iter().sum::<u64>()
        ),
        (absent, 100)
    );
    members.check();
    members.assert_nothing_stays();
}

/// Packets that it sent by the switch would be lost at the link.
#[test]
fn a_runtime_that_has_not_met_a_switch_is_chosen_for_no_flow() {
    let mut members = Members::none(2, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    members.apart = Some((1, 3));
    (0..4).for_each(|worker| members.start(worker));
    members.run_until_quiet();
    // They leave by the second switch.
    members.feed(0, (0..50).map(|n| out(1000 + n, 1)));
    assert_eq!((members.flows(), members.sent().len()), (vec![50, 0], 50));
    // Its time is over: the switch may never come.
    members.now += 3 * SECOND;
    members.run_until_quiet();
    members.feed(0, (0..50).map(|n| out(2000 + n, 1)));
    assert!(members.flows()[1] > 0);
    members.check();
}

pub(super) fn everywhere(from: usize, runtimes: u16) -> MoveOrder {
    MoveOrder {
        selector: Selector::All,
        to: (0..runtimes).filter(|to| usize::from(*to) != from).collect(),
    }
}
