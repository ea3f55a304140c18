//! Microthreads: order, bounds, and locals that live across an await.

use super::*;
use crate::mobility::{MoveOrder, Selector};
use nf::{Affinity, Block, Cx, FlowState, Packet, Verdict, Way, WorkerInfo, network_function};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

const MS: u64 = 1_000_000;

/// Waits as many milliseconds as the payload's first byte says, twice, holding a local across.
pub struct Sleeper;

#[network_function]
impl NetworkFunction for Sleeper {
    const NAME: &'static str = "sleeper";
    const COUNTERS: &'static [&'static str] = &["woke"];
    const REASONS: &'static [&'static str] = &["odd"];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Sleeper)
    }
    async fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let [wait, local @ ..] = *packet.payload().first_chunk::<2>().unwrap();
        let began = cx.now();
        if wait > 0 {
            cx.sleep(Duration::from_millis(u64::from(wait))).await;
            cx.sleep(Duration::from_millis(u64::from(wait))).await;
            assert!(cx.now().nanoseconds_since(began) >= 2 * MS * u64::from(wait));
            cx.count("woke");
        }
        // Both the local and what the packet holds are as they were.
        assert_eq!(packet.payload()[1], local[0]);
        if local[0] == 255 {
            cx.drop("odd")
        } else {
            Verdict::Forward
        }
    }
}

/// Waits for something that is not the runtime's.
struct Stuck;

#[network_function]
impl NetworkFunction for Stuck {
    const NAME: &'static str = "stuck";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Stuck)
    }
    async fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
        core::future::pending().await
    }
}

/// Waits five milliseconds with every packet.
pub struct Nap;

#[network_function]
impl NetworkFunction for Nap {
    const NAME: &'static str = "nap";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Nap)
    }
    async fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        cx.sleep(Duration::from_millis(5)).await;
        Verdict::Forward
    }
}

/// Plays a flow's packets behind a [`Meter`](super::flows::Meter) whose packets all wait
/// afterwards.
fn behind_a_meter(waiting_max: u32, packets: impl IntoIterator<Item = Sent>) -> Runtime<QueuePort> {
    let mut settings = Settings::alone(16);
    settings.waiting_max = waiting_max;
    let mut runtime = alone(settings, vec![factory::<super::flows::Meter>(), factory::<Nap>()]);
    runtime.links_mut()[0].input.extend(packets);
    for now in 1..=60 {
        runtime.step(now * MS);
        assert_conserved(&runtime);
    }
    assert_eq!(runtime.stats().held, 0);
    runtime
}

#[test]
fn what_is_emitted_waits_behind_a_call_that_waits() {
    // One packet goes on, one is emitted onward and one back, which has passed the meter.
    let runtime = behind_a_meter(16, [udp(1, 1, 1, 6, false, &[1])]);
    let stats = runtime.stats();
    assert_eq!((stats.passed, stats.emitted, stats.dropped.len()), (3, 2, 0));
}

#[test]
fn what_is_released_waits_behind_a_call_that_waits() {
    let packets = (2..6).chain([1]).map(|n| udp(1, 1, 1, 5, false, &[n]));
    let mut runtime = behind_a_meter(16, packets);
    assert_eq!(order(&mut runtime), [2, 3, 4, 5, 1]);
}

#[test]
fn what_is_emitted_by_a_flow_that_is_over_is_a_counted_drop() {
    // No call may wait: the first is refused, and the flow with it.
    let runtime = behind_a_meter(0, [udp(1, 1, 1, 6, false, &[1])]);
    let stats = runtime.stats();
    assert_eq!((stats.flows, stats.flows_opened, stats.flows_ended), (0, 1, 1));
    assert_eq!(
        stats.passed + stats.dropped.iter().map(|d| d.count).sum::<u64>(),
        3
    );
}

/// Claims a block of ports for its host and emits packets, waits, and emits others. The payload
/// says how many milliseconds it waits, and how many packets it emits before and behind that.
struct Early;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Claimed {
    first: u16,
}

impl Claimed {
    fn block(self) -> Block {
        Block {
            addr: "203.0.113.1".parse().unwrap(),
            first: self.first,
            ports: 64,
        }
    }
}

#[network_function]
impl NetworkFunction for Early {
    const NAME: &'static str = "early";
    const BEGINS_AGAIN: bool = true;
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const COUNTERS: &'static [&'static str] = &["emitted"];
    type Config = NoConfig;
    type Flow = ();
    type Group = Claimed;
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Early)
    }
    async fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        let [wait, before, behind] = *packet.payload().first_chunk::<3>().unwrap();
        if cx.group().first == 0 {
            cx.group().first = 64 * u16::from(packet.source_addr().octets()[15]);
            let block = cx.group().block();
            assert!(cx.claim_block(block));
        }
        let frame = packet.frame().to_vec();
        for _ in 0..before {
            let emitted = cx.emit(Way::Onward, |spare| spare.set_frame(&frame, LinkType::Raw));
            cx.count_by("emitted", u64::from(emitted));
        }
        if wait > 0 {
            cx.sleep(Duration::from_millis(u64::from(wait))).await;
        }
        for _ in 0..behind {
            let emitted = cx.emit(Way::Onward, |spare| spare.set_frame(&frame, LinkType::Raw));
            cx.count_by("emitted", u64::from(emitted));
        }
        Verdict::Forward
    }
    fn group_ended(&self, group: &mut Claimed, cx: &mut Cx<Self>) {
        if group.first != 0 {
            assert!(cx.release_block(group.block()));
        }
    }
}

/// Whose packets have left since the last look: the hosts' numbers.
fn hosts(runtime: &mut Runtime<QueuePort>) -> Vec<u8> {
    let sent = core::mem::take(&mut runtime.links_mut()[0].output);
    sent.iter().map(|(_, frame)| frame[15]).collect()
}

/// There are two frames, so each is used by one flow after the other.
#[test]
fn what_a_call_emits_before_it_waits_leaves_once_for_its_own_flow() {
    let mut settings = Settings::alone(64);
    settings.waiting_max = 1;
    let mut runtime = alone(settings, vec![factory::<Early>()]);
    let mut now = 0;
    // The last asks for more than a call may emit.
    for (host, before, behind, emitted) in [
        (1, 2, 1, 3),
        (2, 0, 1, 1),
        (3, 3, 1, 4),
        (4, 1, 0, 1),
        (5, 9, 9, 7),
    ] {
        let told = runtime.stats().counters[0].count;
        let packet = udp(host, 1, 1, 80, false, &[5, before, behind]);
        runtime.links_mut()[0].input.push_back(packet);
        for _ in 0..10 {
            now += MS;
            runtime.step(now);
            assert_conserved(&runtime);
        }
        let told = runtime.stats().counters[0].count - told;
        assert_eq!(
            (told, hosts(&mut runtime)),
            (emitted, vec![host; emitted as usize + 1])
        );
    }
    while !runtime.finish(64) {}
    assert_eq!(runtime.stats().flows, 0);
}

/// Another flow of the group may use the block meanwhile, so switches know of it before the call is
/// over.
#[test]
fn what_a_call_claims_before_it_waits_is_claimed_at_once() {
    let plan = plan(vec![factory::<Early>()]);
    let mut cluster = super::spread::cluster(1, 1, crate::switch::Policy::RoundRobin, &plan, 64);
    for host in 1..4 {
        cluster.feed(0, [udp(host, 1000, 1, 80, false, &[5, 1, 0])]);
    }
    assert_eq!(
        (
            cluster.runtimes[0].stats().waiting,
            cluster.switches[0].stats().blocks
        ),
        (3, 3)
    );
    cluster.now += 20 * MS;
    cluster.run_until_quiet();
    assert_eq!((cluster.sent().len(), cluster.switches[0].stats().blocks), (6, 3));
    super::groups::assert_nothing_stays(&mut cluster);
}

/// The group's state says that the block is its own, whatever becomes of the packet.
#[test]
fn what_a_call_that_may_not_wait_has_asked_for_is_not_the_next_ones() {
    let mut settings = Settings::alone(64);
    settings.waiting_max = 0;
    let mut runtime = alone(settings, vec![factory::<Early>()]);
    let packets = [
        udp(1, 1, 1, 9, false, &[0, 0, 0]),
        udp(1, 1, 1, 80, false, &[5, 2, 0]),
        udp(2, 1, 1, 80, false, &[0, 1, 0]),
    ];
    runtime.links_mut()[0].input.extend(packets);
    runtime.step(MS);
    assert_conserved(&runtime);
    assert_eq!((hosts(&mut runtime), runtime.stats().emitted), (vec![1, 2, 2], 3));
    let dropped: u64 = runtime.stats().dropped.iter().map(|drop| drop.count).sum();
    assert_eq!(dropped, 3);
}

fn sleeper(waiting_max: u32, flows: u32) -> Runtime<QueuePort> {
    let mut settings = Settings::alone(flows);
    settings.waiting_max = waiting_max;
    settings.queued_max = 8;
    alone(settings, vec![factory::<Sleeper>()])
}

fn order(runtime: &mut Runtime<QueuePort>) -> Vec<u8> {
    runtime.links_mut()[0].output.iter().map(number).collect()
}

#[test]
fn a_waiting_packet_delays_its_flow_only_and_keeps_its_order() {
    let mut runtime = sleeper(16, 16);
    runtime.links_mut()[0].input.extend([
        udp(1, 1, 1, 80, false, &[10, 1]),
        udp(1, 1, 1, 80, false, &[0, 2]),
        udp(2, 1, 1, 80, false, &[0, 3]),
        udp(1, 1, 1, 80, true, &[0, 4]),
        udp(3, 1, 1, 80, false, &[5, 5]),
    ]);
    runtime.step(MS);
    assert_eq!(order(&mut runtime), [3]);
    assert_eq!(runtime.stats().held, 4);
    assert_eq!(runtime.next_at(), Some(6 * MS));
    for now in 2..=30 {
        runtime.step(now * MS);
        assert_conserved(&runtime);
    }
    assert_eq!(order(&mut runtime), [3, 5, 1, 2, 4]);
    assert_eq!(runtime.stats().counters[0].count, 2);
    assert_eq!(runtime.stats().held, 0);
}

/// Waits forty milliseconds with a packet that says so, and lives for twenty.
struct Doze;

#[network_function]
impl NetworkFunction for Doze {
    const NAME: &'static str = "doze";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Doze)
    }
    async fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        if packet.payload()[0] > 0 {
            cx.sleep(Duration::from_millis(40)).await;
        }
        Verdict::Forward
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }
}

#[test]
fn a_flow_that_was_due_while_it_waited_ends_later() {
    let mut runtime = alone(Settings::alone(16), vec![factory::<Doze>()]);
    let packets = [udp(1, 1, 1, 80, false, &[0, 1]), udp(1, 1, 1, 80, false, &[1, 2])];
    runtime.links_mut()[0].input.extend(packets);
    for now in 1..=400 {
        runtime.step(now * MS);
        if now < 40 {
            assert_eq!(runtime.stats().flows, 1, "it was due at 21 ms; at {now} ms");
        }
    }
    assert_eq!(order(&mut runtime), [1, 2]);
    assert_eq!((runtime.stats().flows, runtime.stats().flows_ended), (0, 1));
}

#[test]
fn the_oldest_ready_goes_first() {
    let mut runtime = sleeper(16, 16);
    for n in 0..5 {
        runtime.links_mut()[0]
            .input
            .push_back(udp(n, 1, 1, 80, false, &[5, n]));
    }
    runtime.step(0);
    runtime.step(5 * MS);
    runtime.step(40 * MS);
    assert_eq!(order(&mut runtime), [0, 1, 2, 3, 4]);
}

#[test]
fn the_bounds_on_waiting_and_queueing_hold() {
    let mut runtime = sleeper(3, 64);
    for n in 0..10 {
        runtime.links_mut()[0]
            .input
            .push_back(udp(n, 1, 1, 80, false, &[5, n]));
    }
    for n in 0..12 {
        runtime.links_mut()[0]
            .input
            .push_back(udp(0, 1, 1, 80, false, &[0, n]));
    }
    runtime.step(0);
    assert_conserved(&runtime);
    let stats = runtime.stats();
    assert_eq!((stats.waiting, stats.flows), (3, 3));
    let count = |name: &str| {
        stats
            .dropped
            .iter()
            .find(|d| d.name == name)
            .map_or(0, |d| d.count)
    };
    assert_eq!((count("waiting_full"), count("waiting_queue_full")), (7, 4));
    runtime.step(100 * MS);
    runtime.step(200 * MS);
    assert_eq!(order(&mut runtime).len(), 3 + 8);
    assert_conserved(&runtime);
}

#[test]
fn a_late_drop_is_obeyed_and_the_new_flow_is_gone() {
    let mut runtime = sleeper(3, 4);
    runtime.links_mut()[0]
        .input
        .push_back(udp(1, 1, 1, 80, false, &[5, 255]));
    for now in [0, 10, 20] {
        runtime.step(now * MS);
    }
    let stats = runtime.stats();
    assert_eq!((stats.flows, stats.passed, stats.dropped[0].name), (0, 0, "odd"));
}

#[test]
fn a_wait_does_not_change_how_long_a_flow_lives() {
    let runtime = &mut behind_a_meter(16, [udp(1, 1, 1, 80, false, b"")]);
    assert_eq!(runtime.stats().flows, 1);
    // The meter asks for ten seconds; the function that waits behind it asks for nothing.
    runtime.step(9_000 * MS);
    assert_eq!(runtime.stats().flows, 1);
    runtime.step(11_000 * MS);
    assert_eq!(runtime.stats().flows, 0);
}

#[test]
fn waiting_for_nothing_is_a_counted_drop() {
    let mut runtime = alone(Settings::alone(4), vec![factory::<Stuck>()]);
    runtime.links_mut()[0]
        .input
        .push_back(udp(1, 1, 1, 80, false, b""));
    runtime.step(0);
    assert_eq!(runtime.stats().dropped[0].name, "waits_for_nothing");
    assert_eq!(runtime.stats().flows, 0);
    assert_conserved(&runtime);
}

#[test]
fn a_hundred_thousand_calls_wait_in_bounded_memory() {
    // Miri takes hours over so many.
    let count = if cfg!(miri) { 128_u32 } else { 100_000 };
    let mut settings = Settings::alone(count);
    settings.waiting_max = count;
    let plan = plan(vec![factory::<Sleeper>()]);
    let mut regions = 0;
    let mut runtime = Runtime::new(
        settings,
        plan,
        vec![QueuePort::default()],
        pool(count as usize + 64, 0),
        |length| {
            regions += length;
            Region::heap(length)
        },
    )
    .unwrap();
    // The memory for calls that wait is known before the first packet: frames, actors and table
    // together.
    assert!(regions < 200 << 20, "{regions} bytes");
    for n in 0..count {
        let (side, frame) = udp((n >> 16) as u8, n as u16, 1, 80, false, &[10, 1]);
        runtime.links_mut()[0].input.push_back((side, frame));
        if n % 32 == 31 {
            runtime.step(0);
        }
    }
    assert_eq!(runtime.stats().waiting, u64::from(count));
    let mut now = 10 * MS;
    while runtime.stats().waiting > 0 {
        runtime.step(now);
        now += 10_000;
    }
    assert_eq!(runtime.stats().passed, u64::from(count));
    assert_conserved(&runtime);
}

#[test]
fn stopping_cancels_what_waits_and_counts_it() {
    let mut runtime = sleeper(8, 8);
    for n in 0..4 {
        runtime.links_mut()[0]
            .input
            .push_back(udp(n, 1, 1, 80, false, &[200, n]));
    }
    runtime.step(0);
    while !runtime.finish(2) {}
    assert_conserved(&runtime);
    assert_eq!(runtime.stats().dropped[0].count, 4);
    assert_eq!(runtime.stats().flows, 0);
}

#[test]
fn a_flow_that_begins_anew_behind_a_call_keeps_its_route() {
    let plan = plan(vec![factory::<Sleeper>()]);
    let mut cluster = super::spread::cluster(1, 3, crate::switch::Policy::RoundRobin, &plan, 64);
    let flow = |number: u8, wait: u8| udp(1, 1000, 1, 80, false, &[wait, number]);
    // Two wait behind a call that refuses the first packet, and so ends the flow.
    cluster.feed(0, [flow(255, 5), flow(1, 0), flow(2, 0)]);
    for _ in 0..2 {
        cluster.now += 20 * MS;
        cluster.run_until_quiet();
    }
    assert_eq!(cluster.sent().len(), 2);
    cluster.feed(0, [flow(3, 0)]);
    cluster.check();
    let flows: Vec<u64> = cluster.runtimes.iter().map(|r| r.stats().flows).collect();
    assert_eq!((flows.iter().sum::<u64>(), cluster.routes()), (1, 1), "{flows:?}");
    cluster.now += 400_000 * MS;
    cluster.run_until_quiet();
    assert_eq!(cluster.routes(), 0);
}

/// Packets behind a call that waited go behind the next one, not behind packets kept since.
#[test]
fn what_waited_goes_before_what_a_group_called_back_has_kept() {
    let plan = plan(vec![factory::<Sleeper>()]);
    let mut cluster = super::spread::cluster(1, 2, crate::switch::Policy::RoundRobin, &plan, 64);
    let flow = |number: u8, wait: u8| udp(1, 1000, 1, 80, false, &[wait, number]);
    cluster.feed(0, [flow(1, 0)]);
    let from = (0..2)
        .find(|index| cluster.runtimes[*index].stats().flows == 1)
        .unwrap();
    cluster.runtimes[from].set_move_timeout(MS);
    // The first two wait, the third behind them.
    cluster.feed(0, [flow(2, 10), flow(3, 10), flow(4, 0)]);
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1 - from as u16],
    };
    let moving = cluster.runtimes[from].order(order).unwrap();
    cluster.run_until_quiet();
    // Called back; its target takes no turn, so the move is not over.
    let stand_still = |cluster: &mut super::spread::Cluster, ms: u32| {
        // Moves are looked at in some steps only.
        for _ in 0..ms * 50 {
            cluster.now += MS / 50;
            cluster.switches[0].step(cluster.now);
            cluster.runtimes[from].step(cluster.now);
        }
    };
    stand_still(&mut cluster, 5);
    cluster.switches[0].port_mut(0).input.push_back(flow(5, 0));
    stand_still(&mut cluster, 50);
    assert_eq!(cluster.runtimes[from].receipt(moving).unwrap().under_way, 1);
    cluster.run_until_quiet();
    let receipt = cluster.runtimes[from].receipt(moving).unwrap();
    assert_eq!((receipt.is_over, receipt.failed), (true, 1), "{receipt:?}");
    let order: Vec<u8> = cluster.sent().iter().map(number).collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
    cluster.check();
}

std::thread_local! {
    /// The generation that calls of [`Gate`] wait for: each test has a thread of its own.
    static GENERATION: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// Waits until the generation is as large as the payload's first byte; the second names what it
/// waits for.
struct Gate;

#[network_function]
impl NetworkFunction for Gate {
    const NAME: &'static str = "gate";
    const COUNTERS: &'static [&'static str] = &["looked"];
    const BEGINS_AGAIN: bool = true;
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Gate)
    }
    fn generation(&self) -> u32 {
        GENERATION.get()
    }
    async fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        while GENERATION.get() < u32::from(packet.payload()[0]) {
            cx.changed(u64::from(packet.payload()[1]), 1000 * MS).await;
            cx.count("looked");
        }
        Verdict::Forward
    }
}

#[test]
fn a_call_that_waits_for_a_change_looks_when_there_is_one() {
    let mut runtime = alone(Settings::alone(64), vec![factory::<Gate>()]);
    for n in 0..40 {
        let packet = udp(n, 1, 1, 80, false, &[2, 1]);
        runtime.links_mut()[0].input.push_back(packet);
    }
    runtime.step(MS);
    runtime.step(2 * MS);
    let looked = |runtime: &Runtime<QueuePort>| runtime.stats().counters[0].count;
    let first = looked(&runtime);
    assert!(first <= 80, "{first}");
    for now in 3..900 {
        runtime.step(now * MS);
    }
    assert_eq!(looked(&runtime), first, "nothing has changed");
    // Another thing has: it looks once, and waits on.
    GENERATION.set(1);
    for _ in 0..4 {
        runtime.step(900 * MS);
    }
    assert_eq!((looked(&runtime), runtime.stats().waiting), (first + 40, 40));
    GENERATION.set(2);
    for _ in 0..4 {
        runtime.step(900 * MS);
    }
    let passed: Vec<(Side, Vec<u8>)> = runtime.links_mut()[0].output.split_off(0);
    assert_eq!((passed.len(), runtime.stats().waiting), (40, 0));
    assert!(
        passed.iter().zip(0..).all(|((_, frame), n)| frame[15] == n),
        "the oldest first"
    );
    // Its time comes all the same.
    runtime.links_mut()[0]
        .input
        .push_back(udp(1, 1, 1, 80, false, &[9, 1]));
    runtime.step(1000 * MS);
    runtime.step(1000 * MS);
    let before = looked(&runtime);
    runtime.step(2001 * MS);
    assert_eq!(looked(&runtime), before + 1);
    assert_conserved(&runtime);
}

#[test]
fn what_waits_for_one_thing_shares_a_bound() {
    let mut settings = Settings::alone(64);
    (settings.share_max, settings.waiting_max, settings.queued_max) = (8, 32, 64);
    let mut runtime = alone(settings, vec![factory::<Gate>()]);
    let input = |runtime: &mut Runtime<QueuePort>, n, what| {
        let packet = udp(n, 1, 1, 80, false, &[1, what]);
        runtime.links_mut()[0].input.push_back(packet);
    };
    // Three flows wait for the first thing, with more behind them than may; others for another.
    for n in 0..30 {
        input(&mut runtime, n % 3, 1);
    }
    for n in 3..13 {
        input(&mut runtime, n, 1);
        input(&mut runtime, 50 + n, 2);
    }
    for _ in 0..4 {
        runtime.step(MS);
        assert_conserved(&runtime);
    }
    let stats = runtime.stats();
    assert_eq!((stats.held, stats.waiting), (16, 3 + 8));
    assert_eq!(stats.dropped.len(), 1, "{:?}", stats.dropped);
    assert_eq!(
        (stats.dropped[0].name, stats.dropped[0].count),
        ("waiting_share_full", 22 + 10 + 2)
    );
    // A call that has waited counts no longer, whichever way it ended.
    GENERATION.set(1);
    for _ in 0..4 {
        runtime.step(MS);
    }
    assert_eq!((runtime.stats().passed, runtime.stats().held), (16, 0));
    GENERATION.set(0);
    for n in 0..8 {
        input(&mut runtime, n, 1);
    }
    runtime.step(MS);
    assert_eq!((runtime.stats().held, runtime.stats().waiting), (8, 8));
    while !runtime.finish(8) {}
    assert_conserved(&runtime);
    assert_eq!(runtime.stats().held, 0);
}

/// A call that may begin again is given up where its group moves: its packet, and those behind it,
/// wait on at the target.
#[test]
fn a_call_that_may_begin_again_goes_along_with_its_group() {
    let plan = plan(vec![factory::<super::flows::Meter>(), factory::<Gate>()]);
    let mut cluster = super::spread::cluster(1, 2, crate::switch::Policy::RoundRobin, &plan, 64);
    let flow = |number: u8, needs: u8| udp(1, 1000, 1, 80, false, &[needs, 7, number]);
    let reply = |number: u8, needs: u8| udp(1, 1000, 1, 80, true, &[needs, 7, number]);
    GENERATION.set(1);
    cluster.feed(0, [flow(1, 0), flow(2, 2), reply(3, 0), flow(4, 0)]);
    assert_eq!(cluster.sent().len(), 1);
    let of = |cluster: &super::spread::Cluster| {
        let held = |runtime: usize| cluster.runtimes[runtime].stats().held;
        [held(0), held(1)]
    };
    let from = of(&cluster).iter().position(|held| *held == 3).unwrap();
    // There and back, each time at once: the clock stands still but for what the cluster's steps
    // take.
    for (from, to) in [(from, 1 - from), (1 - from, from), (from, 1 - from)] {
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![to as u16],
        };
        let moving = cluster.runtimes[from].order(order).unwrap();
        cluster.run_until_quiet();
        let receipt = cluster.runtimes[from].receipt(moving).unwrap();
        assert_eq!(
            (receipt.is_over, receipt.moved, receipt.failed),
            (true, 1, 0),
            "{receipt:?}"
        );
        assert_eq!((of(&cluster)[from], of(&cluster)[to]), (0, 3));
        assert_eq!(cluster.runtimes[to].stats().waiting, 1);
    }
    // One more packet comes behind the others, and the event that they wait for.
    cluster.feed(0, [flow(5, 0)]);
    GENERATION.set(2);
    cluster.run_until_quiet();
    let order: Vec<u8> = cluster.sent().iter().map(number).collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
    cluster.check();
    GENERATION.set(0);
}

/// Functions hold no packet of a call that is given up: however few they may hold, none is dropped.
#[test]
fn packets_of_calls_that_are_given_up_take_no_room_of_held_ones() {
    let plan = plan(vec![factory::<Gate>()]);
    let mut cluster = super::spread::cluster_that_holds(&plan, 2);
    // Two flows at each runtime, three packets each.
    for n in 0..12 {
        cluster.feed(0, [udp(1 + n % 4, 1000, 1, 80, false, &[1, 7, n])]);
    }
    let held =
        |cluster: &super::spread::Cluster| [0, 1].map(|index: usize| cluster.runtimes[index].stats().held);
    assert_eq!(held(&cluster), [6, 6]);
    for (from, all) in [(0, [0, 12]), (1, [12, 0])] {
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![1 - from as u16],
        };
        cluster.runtimes[from].order(order).unwrap();
        cluster.run_until_quiet();
        assert_eq!(held(&cluster), all);
        assert_eq!(cluster.runtimes[1 - from].stats().waiting, 4);
        cluster.check();
    }
    GENERATION.set(1);
    cluster.run_until_quiet();
    let sent = cluster.sent();
    for flow in 0..4 {
        let order = sent.iter().map(number).filter(|n| n % 4 == flow);
        assert!(order.eq([flow, flow + 4, flow + 8]));
    }
    cluster.check();
    GENERATION.set(0);
}

/// Packets emitted by a call that is given up are dropped, since it emits them once more at the
/// target.
#[test]
fn what_a_call_that_is_given_up_has_emitted_is_not_the_next_ones() {
    let plan = plan(vec![factory::<Early>()]);
    let mut cluster = super::spread::cluster(1, 2, crate::switch::Policy::RoundRobin, &plan, 64);
    cluster.feed(0, [udp(1, 1000, 1, 80, false, &[50, 2, 0])]);
    let from = (0..2)
        .find(|index| cluster.runtimes[*index].stats().waiting == 1)
        .unwrap();
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1 - from as u16],
    };
    cluster.runtimes[from].order(order).unwrap();
    cluster.run_until_quiet();
    assert_eq!(cluster.runtimes[1 - from].stats().waiting, 1);
    cluster.feed(0, (2..6).map(|host| udp(host, 1000, 1, 80, false, &[5, 1, 0])));
    cluster.now += 200 * MS;
    cluster.run_until_quiet();
    let mut hosts: Vec<u8> = cluster.sent().iter().map(|(_, frame)| frame[15]).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    super::groups::assert_nothing_stays(&mut cluster);
}
