//! Runtimes that fail between two steps in a process that goes on: links hand buffers over, and all
//! of these come home.

use super::ends::Keeper;
use super::flows::Meter;
use super::groups::{frame, inside, outside, packet_of};
use super::lent::Lender;
use super::replica::{Stamp, out, reply, stamps_of};
use super::waits::Sleeper;
use super::*;
use crate::env::LinkTo;
use crate::mobility::{MoveOrder, Selector};
use crate::switch::{Policy, SideRule, Switch};
use crate::worker::failing::Wreck;
use nf::WorkerInfo;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::vec;
use wire::HashSeed;

const SECOND: u64 = 1_000_000_000;

type Queue = Rc<RefCell<VecDeque<PacketBox>>>;

/// One end of a link within a process, as `adapters::ring` has it: a session is seen behind all
/// frames that were sent before.
pub(super) struct Ring {
    pub incoming: Queue,
    outgoing: Queue,
    here: Rc<Cell<u64>>,
    there: Rc<Cell<u64>>,
    session: u64,
}

fn ring() -> (Ring, Ring) {
    let (a, b) = (Queue::default(), Queue::default());
    let (at_a, at_b) = (Rc::new(Cell::new(1)), Rc::new(Cell::new(1)));
    let end = |incoming: &Queue, outgoing: &Queue, here: &Rc<Cell<u64>>, there: &Rc<Cell<u64>>| Ring {
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        here: here.clone(),
        there: there.clone(),
        session: 1,
    };
    (end(&a, &b, &at_a, &at_b), end(&b, &a, &at_b, &at_a))
}

impl Port for Ring {
    fn receive(&mut self, _: u64, _: &mut Pool, burst: &mut Burst) {
        let mut queue = self.incoming.borrow_mut();
        if queue.is_empty() && burst.is_empty() {
            self.session = self.there.get();
        }
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
        128_usize.saturating_sub(self.outgoing.borrow().len())
    }
    fn session(&self) -> u64 {
        self.session
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// A cluster of one process.
pub(super) struct Process {
    plan: Plan,
    is_replicated: bool,
    pub switches: Vec<Switch<QueuePort, Ring>>,
    pub runtimes: Vec<Option<Runtime<Ring>>>,
    wrecks: Vec<Option<Wreck<Ring>>>,
    /// Packets lost, and made, by runtimes that have been followed.
    before: [u64; 2],
    begun: u64,
    pub now: u64,
}

impl Process {
    pub fn new(switches: usize, runtimes: usize, is_replicated: bool, plan: Plan) -> Self {
        let mut to_runtimes: Vec<Vec<Ring>> = (0..switches).map(|_| Vec::new()).collect();
        let mut between: Vec<Vec<Option<Ring>>> = grid(runtimes);
        for (a, b) in pairs(runtimes) {
            let (near, far) = ring();
            (between[a][b], between[b][a]) = (Some(near), Some(far));
        }
        let mut among: Vec<Vec<Option<Ring>>> = grid(switches);
        for (a, b) in pairs(switches) {
            let (near, far) = ring();
            (among[a][b], among[b][a]) = (Some(near), Some(far));
        }
        let mut process = Process {
            plan,
            is_replicated,
            switches: Vec::new(),
            runtimes: Vec::new(),
            wrecks: (0..runtimes).map(|_| None).collect(),
            before: [0; 2],
            begun: 1,
            now: 0,
        };
        for (number, peers) in between.into_iter().enumerate() {
            let mut ends = Vec::new();
            for links in &mut to_runtimes {
                let (near, far) = ring();
                links.push(near);
                ends.push(far);
            }
            let pool = pool(256, (switches + number) as u8);
            let runtime = process.make(number, switches, runtimes, (ends, peers), pool);
            process.runtimes.push(Some(runtime));
        }
        for (number, (links, peers)) in to_runtimes.into_iter().zip(among).enumerate() {
            let settings = crate::switch::SwitchSettings {
                switch: number as u8,
                switches: switches as u8,
                seed: HashSeed::FIXED,
                routes_max: 4096,
                policy: Policy::RoundRobin,
                fragments_max: 64,
                packet_clock: false,
                lead_max: u64::MAX,
                recovery_max: if is_replicated { SECOND } else { 0 },
                patient: true,
                egress: [(number == 0).then_some(0), (number + 1 == switches).then_some(0)],
                now: 0,
            };
            let rule = SideRule::BySource(vec!["10.0.0.0/8".parse().unwrap()]);
            let port = (QueuePort::default(), rule);
            let pool = pool(512, number as u8);
            let plan = process.plan.clone();
            let switch = Switch::new(settings, plan, vec![port], links, peers, pool, Region::heap);
            process.switches.push(switch);
        }
        process
    }

    fn make(
        &self,
        number: usize,
        switches: usize,
        runtimes: usize,
        (links, peers): (Vec<Ring>, Vec<Option<Ring>>),
        pool: Pool,
    ) -> Runtime<Ring> {
        let settings = Settings {
            info: WorkerInfo {
                runtime: number as u16,
                runtimes: runtimes as u16,
                flows_max: 2048,
                seed: self.begun,
            },
            switches: switches as u8,
            egress: [0, switches as u8 - 1],
            inside: vec!["10.0.0.0/8".parse().unwrap()],
            replicated: self.is_replicated,
            now: self.now,
            ..Settings::alone(2048)
        };
        let mut made = Runtime::new(settings, self.plan.clone(), links, pool, Region::heap).unwrap();
        made.join(peers);
        made
    }

    /// A runtime fails between two steps.
    pub fn fail(&mut self, number: usize) {
        let mut runtime = self.runtimes[number].take().unwrap();
        runtime.each_link(|_, end| end.here.set(0));
        self.wrecks[number] = Some(runtime.fail());
    }

    /// Another begins in its place.
    pub fn follow(&mut self, number: usize) {
        let mut wreck = self.wrecks[number].take().unwrap();
        wreck.clear();
        let lost: u64 = wreck.stats.dropped.iter().map(|named| named.count).sum();
        self.before[0] += lost;
        self.before[1] += wreck.stats.emitted;
        self.begun += 1;
        let (switches, runtimes) = (self.switches.len(), self.runtimes.len());
        let ends = (wreck.links, wreck.peers);
        let mut runtime = self.make(number, switches, runtimes, ends, wreck.pool);
        runtime.each_link(|_, end| end.here.set(self.begun));
        self.runtimes[number] = Some(runtime);
    }

    /// Whether all others have seen that a runtime is gone.
    pub fn is_forgotten(&mut self, number: usize) -> bool {
        let mut sees = false;
        for runtime in self.runtimes.iter_mut().flatten() {
            runtime.each_link(|to, end| sees |= to == LinkTo::Runtime(number as u16) && end.session() != 0);
        }
        let by_switch = |switch: &Switch<QueuePort, Ring>| switch.presence(number as u16).unwrap().0;
        !sees && !self.switches.iter().any(by_switch)
    }

    pub fn step(&mut self, worker: usize) -> usize {
        match worker.checked_sub(self.switches.len()) {
            None => self.switches[worker].step(self.now),
            Some(number) => match (&mut self.runtimes[number], &mut self.wrecks[number]) {
                (Some(runtime), _) => {
                    let done = runtime.step(self.now);
                    done.packets + done.other
                }
                (_, Some(wreck)) => {
                    wreck.clear();
                    0
                }
                _ => 0,
            },
        }
    }

    pub fn run_until_quiet(&mut self) {
        let (mut idle, mut rounds) = (0, 0);
        while idle < 3 {
            rounds += 1;
            assert!(rounds < 100_000, "it never comes to rest");
            self.now += 1000;
            let workers = self.switches.len() + self.runtimes.len();
            let work: usize = (0..workers).map(|worker| self.step(worker)).sum();
            idle = if work == 0 { idle + 1 } else { 0 };
        }
    }

    pub fn feed(&mut self, switch: usize, packets: impl IntoIterator<Item = super::Sent>) {
        self.switches[switch].port_mut(0).input.extend(packets);
        self.run_until_quiet();
    }

    pub fn sent(&mut self) -> Vec<super::Sent> {
        let ports = self.switches.iter_mut().map(|switch| switch.port_mut(0));
        ports.flat_map(|port| port.output.clone()).collect()
    }

    pub fn flows(&self) -> Vec<u64> {
        let flows = |runtime: &Option<Runtime<Ring>>| runtime.as_ref().map_or(0, |r| r.stats().flows);
        self.runtimes.iter().map(flows).collect()
    }

    /// Every packet that came in or was made has left, is held, or is a counted drop.
    pub fn assert_conserved(&mut self, what: &str) {
        let sent = self.sent().len() as u64;
        let (mut there, mut accounted) = (self.before[1], sent + self.before[0]);
        for switch in &self.switches {
            let stats = switch.stats();
            there += stats.received;
            accounted += stats.held + stats.dropped.iter().map(|named| named.count).sum::<u64>();
        }
        let living = self.runtimes.iter().flatten().map(Runtime::stats);
        let failed = self.wrecks.iter().flatten().map(|wreck| wreck.stats.clone());
        for stats in living.chain(failed) {
            there += stats.emitted;
            accounted += stats.held + stats.dropped.iter().map(|named| named.count).sum::<u64>();
        }
        assert_eq!(there, accounted, "{what}");
    }

    /// When all flows are over, every buffer is in its pool, and no route is left.
    pub fn assert_all_is_home(&mut self, what: &str) {
        // Packets behind a call wait twice each.
        while self.runtimes.iter().flatten().any(Runtime::has_waiting) {
            self.now += SECOND / 100;
            self.run_until_quiet();
        }
        self.now += 400 * SECOND;
        self.run_until_quiet();
        self.assert_conserved(what);
        for switch in &self.switches {
            let (pool, stats) = (switch.pool(), switch.stats());
            assert_eq!(pool.free(), pool.total(), "{what}");
            assert_eq!((switch.route_keys(), stats.blocks), (vec![], 0), "{what}");
        }
        for runtime in self.runtimes.iter_mut().flatten() {
            assert!(runtime.is_empty(), "{what}");
        }
        for wreck in self.wrecks.iter().flatten() {
            assert_eq!(wreck.pool.free(), wreck.pool.total(), "{what}");
        }
    }
}

fn grid(count: usize) -> Vec<Vec<Option<Ring>>> {
    (0..count).map(|_| (0..count).map(|_| None).collect()).collect()
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)))
}

/// Single steps of workers in turn, a packet of either direction before each.
fn step_on(process: &mut Process, steps: usize, packet: impl Fn(u16) -> super::Sent) {
    let (switches, runtimes) = (process.switches.len(), process.runtimes.len());
    for step in 0..steps {
        let packet = packet(step as u16);
        let at = if packet.0 == Side::Inside { 0 } else { switches - 1 };
        process.switches[at].port_mut(0).input.push_back(packet);
        process.now += 1000;
        process.step(step % (switches + runtimes));
    }
}

#[test]
fn with_copies_flows_go_on_after_any_step() {
    for (switches, steps) in [1, 2]
        .iter()
        .flat_map(|switches| (0..60).map(move |steps| (*switches, steps)))
    {
        let what = std::format!("{switches} switches, {steps} steps");
        let mut process = Process::new(switches, 2, true, plan(vec![factory::<Stamp>()]));
        process.feed(0, (0..12).map(|n| out(3000 + n)));
        let before = process.flows();
        assert_eq!(before, [6, 6], "{what}");
        step_on(&mut process, steps, |step| match step % 3 {
            0 => reply(3000 + step % 12),
            _ => out(3000 + step % 16),
        });
        process.fail(0);
        process.run_until_quiet();
        let stats = process.runtimes[1].as_ref().unwrap().stats();
        assert!(
            stats.recovered[0] >= before[0] && stats.recovered[1] == 0,
            "{what}"
        );
        process.feed(0, (0..16).map(|n| out(3000 + n)));
        process.feed(switches - 1, (0..16).map(|n| reply(3000 + n)));
        let stamps = stamps_of(process.sent());
        assert_eq!(stamps.len(), 16, "{what}");
        for (port, mut stamps) in stamps {
            let count = stamps.len();
            stamps.sort_unstable();
            stamps.dedup();
            assert_eq!(stamps.len(), count, "a stamp of {port} was given twice: {what}");
        }
        process.assert_conserved(&what);
        process.assert_all_is_home(&what);
    }
}

/// A runtime has in hand: calls that wait, packets behind them, packets and copies that functions
/// hold, groups on their way.
#[test]
fn without_copies_what_was_in_hand_is_lost_and_its_buffers_come_home() {
    let plans = [
        || plan(vec![factory::<Meter>(), factory::<Sleeper>()]),
        || plan(vec![factory::<Keeper>()]),
    ];
    let mut lost = 0;
    for (made, switches, moves, steps) in plans.iter().flat_map(|made| {
        let of = |n: usize| (n % 2 + 1, n / 2 % 2 == 1, n / 4);
        (0..160).map(move |n| (made, of(n).0, of(n).1, of(n).2))
    }) {
        let what = std::format!("{switches} switches, {steps} steps, moves {moves}");
        let mut process = Process::new(switches, 2, false, made());
        step_on(&mut process, 20 + steps, |step| {
            let port = [80, 5, 6][usize::from(step) % 3];
            let wait = if moves { 0 } else { 2 * (step % 2) as u8 };
            udp(1, 1000 + step % 7, 1, port, step % 5 == 0, &[wait, 9])
        });
        if moves {
            // From the runtime that fails, or to it.
            let from = steps % 2;
            let order = MoveOrder {
                selector: Selector::All,
                to: vec![1 - from as u16],
            };
            process.runtimes[from].as_mut().unwrap().order(order).unwrap();
            step_on(&mut process, steps, |step| {
                udp(1, 1000 + step % 14, 1, 80, false, &[0, 9])
            });
        }
        process.fail(0);
        process.run_until_quiet();
        let stats = &process.wrecks[0].as_ref().unwrap().stats;
        let failed = stats.dropped.iter().find(|named| named.name == "runtime_failed");
        lost += failed.map_or(0, |named| named.count);
        assert_eq!((stats.flows, stats.held), (0, 0), "{what}");
        process.assert_conserved(&what);
        process.feed(0, (0..14).map(|n| udp(1, 1000 + n, 1, 80, false, &[1, 9])));
        process.assert_all_is_home(&what);
    }
    assert!(lost > 1000, "{lost}");
}

#[test]
fn one_that_follows_gives_out_no_block_that_is_in_use() {
    for steps in 0..30 {
        let what = std::format!("{steps} steps");
        let mut process = Process::new(2, 2, true, plan(vec![factory::<Lender>()]));
        process.feed(0, (1..9).map(packet_of));
        let before = process.flows();
        assert!(before[0] > 2 && before[0] + before[1] == 8, "{what}");
        process.fail(0);
        // At once: its flows are not at the other one yet; flows of a runtime that failed once more
        // before would be lost.
        let fails_again = steps % 2 == 1;
        if fails_again {
            process.run_until_quiet();
        }
        for worker in (0..4).cycle() {
            if process.is_forgotten(0) {
                break;
            }
            process.now += 1000;
            process.step(worker);
        }
        process.follow(0);
        // It may fail again before anything is known of it.
        for step in 0..steps {
            process.now += 1000;
            process.step(step % 4);
        }
        if fails_again {
            process.fail(0);
            process.run_until_quiet();
            process.follow(0);
            process.run_until_quiet();
            // A runtime that has not met it reports no copies: that is waited for.
            process.now += 2 * SECOND;
        }
        process.run_until_quiet();
        assert_eq!(process.flows(), [0, 8], "{what}");
        process.feed(0, (20..24).map(packet_of));
        let flows = process.flows();
        assert!(flows[0] > 0 && flows[0] + flows[1] == 12, "{what}: {flows:?}");
        let blocks = process.runtimes.iter().flatten().flat_map(Runtime::blocks);
        let places: Vec<_> = blocks.map(|(place, _)| place).collect();
        let different: HashSet<_> = places.iter().collect();
        assert_eq!((places.len(), different.len()), (12, 12), "{what}");
        // Its flows are at it once the other has failed.
        process.fail(1);
        process.run_until_quiet();
        assert_eq!(process.flows(), [12, 0], "{what}");
        process.assert_conserved(&what);
        process.assert_all_is_home(&what);
    }
}

/// A block goes home while its last record is on its way to a replica that does not get it: with
/// the failure of its runtime it would be two groups'.
#[test]
fn a_block_that_goes_home_has_no_group_at_the_replica() {
    for rule in ["", "blocks wait for copies"] {
        crate::replica::BROKEN.set(rule);
        let mut process = Process::new(1, 3, true, plan(vec![factory::<Lender>()]));
        process.feed(0, (1..4).map(packet_of));
        assert_eq!(process.flows(), [1, 1, 1]);
        // The group of the third runtime goes to the first one, with its block.
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![0],
        };
        process.runtimes[2].as_mut().unwrap().order(order).unwrap();
        process.run_until_quiet();
        assert_eq!(process.flows(), [2, 1, 0]);
        // It ends there, while the replica, which is the second, stands still; and the third gives
        // its blocks to other hosts.
        process.now += 11 * SECOND;
        let go_on = |process: &mut Process| {
            for worker in [0, 1, 3].into_iter().cycle().take(300) {
                process.now += 1000;
                process.step(worker);
            }
        };
        go_on(&mut process);
        let others = (10..18).map(packet_of);
        process.switches[0].port_mut(0).input.extend(others);
        go_on(&mut process);
        assert!(process.flows()[2] > 0);
        // Records on their way to the replica are lost with the first runtime.
        let replica = process.runtimes[1].as_mut().unwrap();
        replica.each_link(|to, end| {
            if to == LinkTo::Runtime(0) {
                core::mem::forget(core::mem::take(&mut *end.incoming.borrow_mut()));
            }
        });
        process.fail(0);
        process.run_until_quiet();
        let blocks = process.runtimes.iter().flatten().flat_map(Runtime::blocks);
        let places: Vec<_> = blocks.map(|(place, _)| place).collect();
        let different: HashSet<_> = places.iter().collect();
        assert_eq!(places.len() == different.len(), rule.is_empty(), "{places:?}");
        crate::replica::BROKEN.set("");
    }
}

/// An heir installs some flows a step: no packet of a flow whose turn has not come begins it again
/// there.
#[test]
fn flows_of_a_group_that_is_half_recovered_do_not_begin_again() {
    let flows = |host: u8| (0..600).map(move |n| frame((inside(host), 1000 + n), (outside(1), 53)));
    for rounds in 0..24 {
        let mut process = Process::new(1, 2, true, plan(vec![factory::<Lender>()]));
        process.feed(0, flows(1).chain(flows(2)));
        assert_eq!(process.flows(), [600, 600], "{rounds}");
        process.fail(0);
        for step in 0..rounds {
            process.now += 1000;
            process.step(step % 3);
        }
        process.feed(0, flows(1).chain(flows(2)).rev());
        let stats = process.runtimes[1].as_ref().unwrap().stats();
        let counts = (stats.flows, stats.flows_opened, stats.recovered);
        assert_eq!(counts, (1200, 600, [600, 0]), "{rounds} steps");
    }
}
