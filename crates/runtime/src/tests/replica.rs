//! Runtimes that fail: their flows go on at the runtime that has copies, and nothing has left that
//! a copy does not know.

use super::groups::{frame, inside, outside};
use super::lent::{Lender, fill};
use super::sessions::{Members, everywhere};
use super::*;
use crate::env::BURST;
use crate::replica::BROKEN;
use crate::replica::compare::PENDING_MAX;
use crate::replica::policy::Copying;
use crate::replica::sender::BASE_AHEAD;
use crate::switch::Policy;
use nf::{Cx, Endpoint, FlowState, Packet, Verdict, WorkerInfo, network_function};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

impl Members {
    /// The same, with copies.
    pub(super) fn copied(switches: usize, runtimes: usize, policy: Policy, plan: Plan) -> Self {
        Self::copying(Copying::default(), switches, runtimes, policy, plan)
    }

    pub fn copying(copying: Copying, switches: usize, runtimes: usize, policy: Policy, plan: Plan) -> Self {
        let mut members = Members::none(switches, runtimes, policy, plan);
        members.copying = copying;
        members.is_replicated = true;
        (0..switches + runtimes).for_each(|worker| members.start(worker));
        members.run_until_quiet();
        members
    }
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Stamped {
    /// Packets with odd and with even numbers: no packet changes all of it.
    counts: [u32; 2],
}

/// Writes into each packet how many of its flow came before, and translates the source: port +
/// 1000.
pub(super) struct Stamp;

#[network_function]
impl NetworkFunction for Stamp {
    const NAME: &'static str = "stamp";
    type Config = NoConfig;
    type Flow = Stamped;
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Stamp)
    }
    fn process(&self, packet: &mut Packet, flow: &mut Stamped, cx: &mut Cx<Self>) -> Verdict {
        let before: u32 = flow.counts.iter().sum();
        flow.counts[before as usize % 2] += 1;
        packet.frame_mut()[28..32].copy_from_slice(&(before + 1).to_be_bytes());
        let (inside, _) = cx.opened_by();
        match cx.direction() {
            nf::Direction::Opening => {
                packet.set_source(Endpoint::new("203.0.113.1".parse().unwrap(), inside.port + 1000))
            }
            nf::Direction::Reply => packet.set_destination(inside),
        };
        Verdict::Forward
    }
    fn timeout(&self, _: &Stamped) -> Option<Duration> {
        Some(Duration::from_secs(100))
    }
}

pub(super) fn out(port: u16) -> (Side, Vec<u8>) {
    udp(1, port, 1, 80, false, &[0; 8])
}

pub(super) fn reply(port: u16) -> (Side, Vec<u8>) {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [203, 0, 113, 1], 64)
        .udp(80, port + 1000)
        .write(&mut frame, &[0; 8])
        .unwrap();
    (Side::Outside, frame)
}

/// By inside port: the stamps that left, in order.
pub(super) fn stamps(members: &mut Members) -> HashMap<u16, Vec<u32>> {
    stamps_of(members.sent())
}

pub(super) fn stamps_of(sent: Vec<super::Sent>) -> HashMap<u16, Vec<u32>> {
    let mut stamps: HashMap<u16, Vec<u32>> = HashMap::new();
    for (side, frame) in sent {
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let port = match side {
            Side::Outside => port(20) - 1000,
            Side::Inside => port(22),
        };
        let stamp = u32::from_be_bytes(frame[28..32].try_into().unwrap());
        stamps.entry(port).or_default().push(stamp);
    }
    stamps
}

/// No flow has begun again or gone back, and each packet left once.
fn assert_stamps_grow(members: &mut Members, what: &str) {
    for (port, mut stamps) in stamps(members) {
        let count = stamps.len();
        // Packets of both directions leave by several switches, so in the order of these.
        stamps.sort_unstable();
        stamps.dedup();
        assert_eq!(stamps.len(), count, "a stamp of {port} was given twice: {what}");
    }
}

pub(super) fn stamped(switches: usize, runtimes: usize, policy: Policy) -> Members {
    Members::copied(switches, runtimes, policy, plan(vec![factory::<Stamp>()]))
}

/// One switch and two runtimes, which can be parted from each other alone.
pub(super) fn stamped_apart() -> Members {
    let mut members = Members::none(1, 2, Policy::RoundRobin, plan(vec![factory::<Stamp>()]));
    members.is_replicated = true;
    members.apart = Some((1, 2));
    (0..3).for_each(|worker| members.start(worker));
    members.meet();
    members.run_until_quiet();
    members
}

#[test]
fn flows_go_on_when_their_runtime_fails() {
    for switches in [1, 2] {
        let mut members = stamped(switches, 3, Policy::RoundRobin);
        let first = switches;
        members.feed(0, (0..60).map(|n| out(2000 + n)));
        members.feed(0, (0..60).map(|n| out(2000 + n)));
        let before = members.flows();
        assert_eq!(before.iter().sum::<u64>(), 60);
        for runtime in 0..3 {
            let stats = members.runtime(runtime).stats();
            assert_eq!(stats.protected_by, Some((runtime as u16 + 1) % 3), "{switches}");
            assert_eq!(stats.copies, before[(runtime + 2) % 3]);
        }
        members.stop(first);
        members.run_until_quiet();
        let stats = members.runtime(1).stats();
        assert_eq!(stats.recovered, [before[0], 0]);
        assert_eq!(members.flows().iter().sum::<u64>(), 60);
        // Replies first: they find their flows by keys that only the failed runtime had announced.
        members.feed(switches - 1, (0..60).map(|n| reply(2000 + n)));
        members.feed(0, (0..60).map(|n| out(2000 + n)));
        for (port, mut stamps) in stamps(&mut members) {
            stamps.sort_unstable();
            assert_eq!(stamps, [1, 2, 3, 4], "{port}");
        }
        members.assert_one_home();
        // All is protected again, so the next may fail, too.
        members.stop(first + 1);
        members.run_until_quiet();
        members.feed(0, (0..60).map(|n| out(2000 + n)));
        for (port, stamps) in stamps(&mut members) {
            assert_eq!(stamps.iter().max(), Some(&5), "{port}");
        }
        assert_stamps_grow(&mut members, "two failures");
        assert_eq!(members.flows()[2], 60);
        members.assert_nothing_stays();
    }
}

/// Ten flows of the first runtime have begun, and the second, its replica, takes no step: it
/// acknowledges nothing.
pub(super) fn with_a_stuck_replica() -> Members {
    let mut members = stamped(1, 2, Policy::LeastLoaded);
    members
        .switch(0)
        .port_mut(0)
        .input
        .extend((0..20).map(|n| out(3000 + n)));
    for _ in 0..200 {
        members.now += 1000;
        members.step(0);
        members.step(1);
    }
    members
}

/// How many records each copy of the first runtime's flows is behind.
fn behind(members: &mut Members) -> Vec<u64> {
    let flows = members.runtime(0).flows(0, 100).0;
    let copies = flows.iter().map(|flow| flow.copy.expect("there is a replica"));
    copies.map(|copy| copy.behind).collect()
}

#[test]
fn no_packet_leaves_before_its_copy_is_acknowledged() {
    let mut members = with_a_stuck_replica();
    let held = members.runtime(0).stats().held;
    assert_eq!((members.sent().len(), held), (0, 10));
    // Of each flow there is a record, and none is acknowledged.
    let sent = members.runtime(0).records_unacknowledged();
    let late = behind(&mut members);
    assert!(
        late.iter().all(|records| (1..=sent).contains(records)),
        "{late:?}"
    );
    assert!(late.len() == 10 && late.iter().max() >= Some(&10), "{late:?}");
    members.run_until_quiet();
    assert_eq!(behind(&mut members), [0; 10]);
    assert_eq!(members.sent().len(), 20);
    assert_eq!(members.runtime(0).stats().unprotected, 0);
}

/// Beyond a bound of records that wait in memory, no packet makes another: its chain does not run.
#[test]
fn records_for_a_replica_that_stands_still_are_bounded() {
    let mut members = with_a_stuck_replica();
    // Frames on a link of one host are the primary's own buffers.
    let buffers = members.runtime(0).take_buffers(34);
    let mut pending = 0;
    for _ in 0..3000 {
        members
            .switch(0)
            .port_mut(0)
            .input
            .extend((0..20).map(|n| out(3000 + n)));
        for _ in 0..3 {
            members.now += 1000;
            members.step(0);
            members.step(1);
        }
        pending = members.runtime(0).records_pending();
    }
    // A burst is taken up whole.
    assert!((PENDING_MAX..PENDING_MAX + BURST).contains(&pending), "{pending}");
    assert_eq!(members.sent().len(), 0, "nothing leaves without a copy");
    assert!(members.dropped("replica_full") > 0);
    members.runtime(0).give_buffers(buffers);
    // It goes on: all changes are copied, and packets leave again.
    members.run_until_quiet();
    assert_eq!(members.runtime(0).records_pending(), 0);
    assert_eq!(members.runtime(0).stats().protected_by, Some(1));
    let before = members.sent().len();
    assert!(before > 0);
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    assert_eq!(members.sent().len(), before + 20);
}

/// How many records a base is ahead of its replica at most, which takes one step while the others
/// take ten. In each of these so many packets come.
fn most_ahead(rule: &'static str, packets: u16) -> u64 {
    BROKEN.set(rule);
    let mut members = stamped(1, 2, Policy::LeastLoaded);
    members.stop(2);
    members.run_until_quiet();
    const FLOWS: u16 = 2000;
    members.feed(0, (0..FLOWS).map(|n| out(3000 + n)));
    assert_eq!(members.flows()[0], u64::from(FLOWS));
    members.start(2);
    let (mut most, mut rounds) = (0, 0);
    while members.runtime(0).stats().protected_by.is_none() {
        for _ in 0..10 {
            let input = &mut members.switch(0).port_mut(0).input;
            input.extend((0..packets).map(|n| out(3000 + n)));
            members.now += 1000;
            members.step(0);
            members.step(1);
        }
        members.step(2);
        most = most.max(members.runtime(0).records_unacknowledged());
        rounds += 1;
        assert!(rounds < 1000, "no base is whole");
    }
    assert_eq!(members.runtime(1).stats().copies, u64::from(FLOWS));
    BROKEN.set("");
    most
}

/// A base is sent as its replica takes it: a packet that comes meanwhile waits behind a part of it.
#[test]
fn a_base_is_little_ahead_of_its_replica() {
    let [most, otherwise] = ["", "bases are paced"].map(|rule| most_ahead(rule, 0));
    // Each of these flows is one record, and a step adds a few.
    assert!((BASE_AHEAD / 2..BASE_AHEAD + 100).contains(&most), "{most}");
    assert!(otherwise > BASE_AHEAD + 200, "{otherwise}");
}

/// Packets that make more records in a round than a base may be ahead by hold it up by no more than
/// that.
#[test]
fn a_base_comes_to_its_end_under_load() {
    let most = most_ahead("", 200);
    assert!(most > 2 * BASE_AHEAD, "{most}");
}

#[test]
fn without_a_replica_packets_leave_and_are_counted_when_they_have_waited() {
    let mut members = with_a_stuck_replica();
    members.stop(2);
    members.run_until_quiet();
    let stats = members.runtime(0).stats();
    assert_eq!((stats.protected_by, stats.unprotected), (None, 10));
    // A replica comes: the base is sent.
    members.start(2);
    members.run_until_quiet();
    assert_eq!(members.runtime(0).stats().protected_by, Some(1));
    assert_eq!(members.runtime(1).stats().copies, members.flows()[0]);
}

/// A switch ends its session while packets wait for copies: how many leave by the next one, and how
/// many are dropped.
pub(super) fn waiting_as_a_session_ends() -> (usize, u64) {
    let mut members = with_a_stuck_replica();
    members.start(0);
    // The replica stands still until the next session has begun.
    for _ in 0..2000 {
        members.now += 1000;
        members.step(0);
        members.step(1);
    }
    members.run_until_quiet();
    (members.sent().len(), members.dropped("peer_gone"))
}

/// A switch that ends its session may have let the runtime go: packets held for it would overtake
/// what the heir does.
#[test]
fn what_waits_for_copies_leaves_by_no_later_session_of_its_switch() {
    assert_eq!(waiting_as_a_session_ends(), (0, 20));
    let mut members = with_a_stuck_replica();
    members.start(0);
    members.run_until_quiet();
    assert_eq!(members.runtime(0).stats().held, 0);
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    assert_eq!(members.sent().len(), 20);
}

#[test]
fn flows_that_are_deleted_leave_no_copy_and_no_route() {
    use crate::mobility::Selector;
    let mut members = stamped(2, 2, Policy::LeastLoaded);
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    let before = members.flows()[0];
    let key = members.runtime(0).flows(0, 1).0[0].key;
    let one = members.runtime(0).delete_flows(&Selector::Flow(key), 0);
    assert_eq!((one.ended, one.next), (1, None));
    let again = members.runtime(0).delete_flows(&Selector::Flow(key), 0);
    assert_eq!(again.ended, 0);
    let none = Selector::Ends("192.168.0.0/16".parse().unwrap());
    assert_eq!(members.runtime(0).delete_flows(&none, 0).ended, 0);
    let ends = Selector::Ends("10.0.0.0/8".parse().unwrap());
    let all = members.runtime(0).delete_flows(&ends, 0);
    assert_eq!((all.ended, all.busy, all.next), (before - 1, 0, None));
    members.run_until_quiet();
    assert_eq!((members.flows()[0], members.runtime(1).stats().copies), (0, 0));
    members.check();
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    assert_eq!(members.flows().iter().sum::<u64>(), 20);
    members.assert_one_home();
    members.assert_nothing_stays();
}

#[test]
fn without_a_replica_nothing_is_noted_for_one() {
    let mut members = Members::copied(1, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..10);
    members.stop(2);
    members.run_until_quiet();
    members.now += 100_000_000_000;
    members.run_until_quiet();
    assert_eq!(members.flows()[0], 0, "all have ended, and their blocks are home");
    assert!(!members.runtime(0).has_noted());
}

#[test]
fn a_replica_that_begins_anew_is_sent_all_again() {
    let mut members = stamped(1, 2, Policy::LeastLoaded);
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    let before = members.flows()[0];
    // At once: no step of the primary sees that the replica is gone.
    members.start(2);
    members.run_until_quiet();
    assert_eq!(members.runtime(0).stats().protected_by, Some(1));
    assert!(members.runtime(1).stats().copies >= before);
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    assert_eq!(members.sent().len(), 40);
}

#[test]
fn groups_and_their_blocks_go_on() {
    let mut members = Members::copied(2, 3, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..10);
    let before = members.flows();
    members.stop(2);
    members.run_until_quiet();
    assert_eq!(members.runtime(1).stats().recovered, [before[0], 0]);
    members.assert_one_home();
    members.assert_blocks_are_known("recovered");
    members.start(2);
    members.run_until_quiet();
    // Blocks that it had lent before are in use.
    fill(&mut members, 1, 20..35);
    members.assert_one_home();
    members.assert_blocks_are_known("it is there again");
    members.check();
    members.assert_nothing_stays();
}

/// A runtime fails, and its next incarnation so many steps later, while flows of the first go on
/// elsewhere.
fn fail_again(steps: usize) {
    let what = std::format!("{steps} steps");
    let packets =
        || (1..4).flat_map(|host| (0..300).map(move |n| frame((inside(host), 1000 + n), (outside(1), 53))));
    let mut members = Members::copied(2, 3, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    members.feed(0, packets());
    assert_eq!(members.flows(), [300; 3], "{what}");
    members.start(2);
    for step in 0..steps {
        members.now += 1000;
        members.step(step % 5);
    }
    members.start(2);
    members.run_until_quiet();
    members.assert_blocks_are_known(&what);
    members.feed(1, packets().rev());
    members.assert_one_home();
    members.assert_blocks_are_known(&what);
    assert_eq!(members.flows().iter().sum::<u64>(), 900, "{what}");
    members.assert_nothing_stays();
}

#[test]
fn no_block_of_an_incarnation_stays_whose_flows_were_not_installed_as_the_next_one_failed() {
    (0..60).for_each(fail_again);
    crate::replica::BROKEN.set("what has begun to go on ends");
    let outcome = std::panic::catch_unwind(|| (0..60).for_each(fail_again));
    crate::replica::BROKEN.set("");
    assert!(outcome.is_err(), "the broken rule is noticed");
}

#[test]
fn a_runtime_that_ends_in_order_leaves_no_flow_to_be_recovered() {
    let mut members = stamped(1, 2, Policy::LeastLoaded);
    members.feed(0, (0..20).map(|n| out(3000 + n)));
    while !members.runtime(0).finish(64) {
        members.step(0);
    }
    members.run_until_quiet();
    members.stop(1);
    members.run_until_quiet();
    assert_eq!(members.runtime(1).stats().recovered, [0, 0]);
}

#[test]
fn flows_that_moved_are_copied_from_where_they_are() {
    let mut members = stamped(1, 3, Policy::LeastLoaded);
    members.feed(0, (0..30).map(|n| out(3000 + n)));
    members.runtime(0).order(everywhere(0, 3)).unwrap();
    members.run_until_quiet();
    assert_eq!(members.flows()[0], 0);
    assert_eq!(members.runtime(1).stats().copies, 0, "the source's are over");
    for failed in [1, 2] {
        members.stop(failed);
        members.run_until_quiet();
        members.feed(0, (0..30).map(|n| out(3000 + n)));
        members.start(failed);
        members.run_until_quiet();
    }
    for (port, stamps) in stamps(&mut members) {
        assert_eq!(stamps, [1, 2, 3], "{port}");
    }
    members.assert_one_home();
    members.assert_nothing_stays();
}

/// Flows of the first runtime move to the third, and the second, which has their copies, takes no
/// step: after so many steps of the others.
pub(super) fn moving(steps: usize) -> Members {
    let mut members = stamped(1, 3, Policy::LeastLoaded);
    members.feed(0, (0..30).map(|n| out(3000 + n)));
    let (selector, to) = (crate::mobility::Selector::All, std::vec![2]);
    let order = crate::mobility::MoveOrder { selector, to };
    members.runtime(0).order(order).unwrap();
    for step in 0..steps {
        members.now += 1000;
        members.step([1, 0, 3][step % 3]);
    }
    members
}

/// Flows of the first runtime move to the third, and the second, which has their copies, takes no
/// step; after so many steps of the others the first fails, and its records for the second are
/// lost. How many flows there are then at most.
fn fail_while_moving(steps: usize) -> u64 {
    let mut members = moving(steps);
    members.lose(1, 2);
    members.stop(1);
    let mut most = 0;
    for _ in 0..200 {
        members.now += 1000;
        (0..4).for_each(|worker| {
            members.step(worker);
        });
        most = members.flows().iter().sum::<u64>().max(most);
    }
    most
}

#[test]
fn a_group_that_moves_never_goes_on_at_its_target_and_its_heir() {
    for (is_broken, most) in [(false, 30), (true, 40)] {
        if is_broken {
            crate::replica::BROKEN.set("withdrawals are waited for");
        }
        let flows = (0..60).map(fail_while_moving).max();
        crate::replica::BROKEN.set("");
        assert_eq!(flows, Some(most));
    }
}

/// Traffic of both directions, in which a runtime fails after so many single steps of workers in
/// some order.
fn fail_after(order: &[u8], switches: usize, failed: usize, lost: bool) {
    let what = std::format!("{order:?}, {switches} switches, {failed} fails, lost {lost}");
    let mut members = stamped(switches, 3, Policy::LeastLoaded);
    members.feed(0, (0..12).map(|n| out(3000 + n)));
    for (index, worker) in order.iter().enumerate() {
        let n = index as u16 % 16;
        let packet = if index % 3 == 0 {
            reply(3000 + n % 12)
        } else {
            out(3000 + n)
        };
        let at = if index % 3 == 0 { switches - 1 } else { 0 };
        members.switch(at).port_mut(0).input.push_back(packet);
        members.now += 1000;
        members.step(usize::from(*worker) % (switches + 3));
    }
    members.stop(switches + failed);
    if lost {
        (0..switches + 3).for_each(|other| members.lose(switches + failed, other));
    }
    members.run_until_quiet();
    // Frames on their way to it are lost, too.
    (0..switches + 3).for_each(|other| members.lose(other, switches + failed));
    members.assert_one_home();
    members.feed(0, (0..16).map(|n| out(3000 + n)));
    members.feed(0, (0..16).map(|n| out(3000 + n)));
    assert_stamps_grow(&mut members, &what);
    let ports: HashSet<u16> = stamps(&mut members).into_keys().collect();
    assert_eq!(ports.len(), 16, "{what}");
    members.assert_nothing_stays();
}

proptest! {
    #[test]
    fn whenever_a_runtime_fails_no_flow_goes_back(
        order in proptest::collection::vec(0..5_u8, 0..120),
        switches in 1..3_usize,
        failed in 0..3_usize,
        lost: bool,
    ) {
        fail_after(&order, switches, failed, lost);
    }
}

/// A rule that is broken is noticed within some cases.
fn is_noticed(rule: &'static str) -> bool {
    let mut random = 7_u64;
    let mut draw = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    (0..200).any(|_| {
        let order: Vec<u8> = (0..draw(120)).map(|_| draw(5) as u8).collect();
        let (switches, failed, lost) = (1 + draw(2) as usize, draw(3) as usize, draw(2) == 0);
        crate::replica::BROKEN.set(rule);
        let outcome = std::panic::catch_unwind(|| fail_after(&order, switches, failed, lost));
        crate::replica::BROKEN.set("");
        outcome.is_err()
    })
}

#[test]
fn a_broken_rule_of_copies_is_noticed() {
    assert!(is_noticed("copies are waited for"));
    assert!(is_noticed("state is copied"));
    assert!(!is_noticed("none"));
}

#[test]
fn a_session_in_which_nothing_was_heard_ends_no_flow() {
    for is_broken in [false, true] {
        let plan = plan(vec![factory::<Stamp>()]);
        let mut members = Members::copying(Copying::default(), 1, 2, Policy::RoundRobin, plan);
        members.feed(0, (0..60).map(|n| out(2000 + n)));
        let before = members.flows();
        let opened = |members: &mut Members| members.runtime(0).stats().flows_opened;
        let elsewhere = opened(&mut members);
        if is_broken {
            crate::replica::BROKEN.set("sessions without a word say nothing");
        }
        // The second runtime is cut off; the heir does not know it yet, so it reports nothing.
        let incarnation = members.set_seen(2, 0);
        members.now += 1000;
        members.step(0);
        members
            .switch(0)
            .port_mut(0)
            .input
            .extend((0..60).map(|n| out(2000 + n)));
        members.now += 1000;
        members.step(0);
        // It is met, and its end of the link sees that the session before is over: so this one is,
        // too.
        for incarnation in [incarnation, 0] {
            members.set_seen(2, incarnation);
            members.now += 1000;
            members.step(0);
        }
        let switch = members.set_seen(0, 0);
        members.now += 1000;
        members.step(2);
        members.set_seen(0, switch);
        members.set_seen(2, incarnation);
        members.run_until_quiet();
        crate::replica::BROKEN.set("");
        let is_as_before = (members.flows(), opened(&mut members)) == (before, elsewhere);
        assert_eq!(is_as_before, !is_broken);
    }
}

#[test]
fn a_replica_is_as_far_away_as_can_be_and_never_in_the_same_process() {
    let mut members = Members::none(1, 4, Policy::RoundRobin, plan(vec![factory::<Stamp>()]));
    members.is_replicated = true;
    // Runtimes 0 and 1 share a process, 2 is beside it, 3 at another host.
    members.replica_ranks = vec![
        vec![None, None, Some(2), Some(1)],
        vec![None, None, Some(2), Some(1)],
        vec![Some(2), Some(2), None, Some(1)],
        vec![Some(1), Some(1), Some(1), None],
    ];
    (0..5).for_each(|worker| members.start(worker));
    members.run_until_quiet();
    let chosen = |members: &mut Members| {
        members.run_until_quiet();
        std::array::from_fn(|runtime| members.runtime(runtime).stats().protected_by)
    };
    assert_eq!(chosen(&mut members), [Some(3), Some(3), Some(3), Some(0)]);
    members.stop(4);
    members.run_until_quiet();
    let of = |members: &mut Members, runtime: usize| members.runtime(runtime).stats().protected_by;
    assert_eq!(
        [0, 1, 2].map(|runtime| of(&mut members, runtime)),
        [Some(2), Some(2), Some(0)]
    );
    members.stop(3);
    members.run_until_quiet();
    assert_eq!([0, 1].map(|runtime| of(&mut members, runtime)), [None, None]);
}

/// A packet of each of these flows comes with each step, while their runtime fails and its heir
/// takes over.
fn order_through_a_recovery() -> Result<(), std::string::String> {
    let mut members = stamped(1, 2, Policy::LeastLoaded);
    members.runtime(1).set_leaving(true);
    members.run_until_quiet();
    members.feed(0, (0..600).map(|n| out(3000 + n)));
    members.sent();
    let mut number = 0_u32;
    let mut next = |members: &mut Members| {
        number += 1;
        let mut payload = [0; 8];
        payload[4..].copy_from_slice(&number.to_be_bytes());
        for port in [3000, 3300, 3599] {
            let packet = udp(1, port, 1, 80, false, &payload);
            members.switch(0).port_mut(0).input.push_back(packet);
        }
        members.now += 1000;
    };
    members.stop(1);
    for step in 0..60 {
        next(&mut members);
        members.step(0);
        // The heir takes several steps for so many flows.
        if step % 3 == 0 {
            members.step(2);
        }
    }
    members.run_until_quiet();
    let mut last: HashMap<u16, u32> = HashMap::new();
    for (_, frame) in members.sent() {
        let port = u16::from_be_bytes([frame[20], frame[21]]);
        let number = u32::from_be_bytes(frame[32..36].try_into().unwrap());
        let before = last.insert(port, number).unwrap_or(0);
        if number > 0 && number < before {
            return Err(std::format!("{number} of {port} behind {before}"));
        }
    }
    assert_eq!(last.values().filter(|last| **last == 60).count(), 3);
    Ok(())
}

#[test]
fn packets_leave_in_order_through_a_recovery() {
    assert_eq!(order_through_a_recovery(), Ok(()));
    crate::replica::BROKEN.set("packets wait behind those that wait");
    let outcome = order_through_a_recovery();
    crate::replica::BROKEN.set("");
    assert!(outcome.is_err(), "a rule that is broken is noticed");
}
