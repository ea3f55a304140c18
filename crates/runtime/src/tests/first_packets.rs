//! First packets that wait until switches of other processes have heard of their flows.

use super::flows::Masquerade;
use super::sessions::{Members, SECOND, everywhere};
use super::spread::{Link, Queue, link};
use super::waits::Sleeper;
use super::*;
use crate::group::GroupKey;
use crate::message::Message;
use crate::switch::{Policy, SideRule, Switch, home_of};
use protocols::ownership::{Epoch, RuntimeId, SwitchMessage};
use std::vec;
use wire::packet::Kind;
use wire::{FlowKey, HashSeed};

const FLOWS: u8 = 32;
/// Of three switches, the switch that takes no turns: packets come in at the first, and leave by
/// the last.
const SLOW: usize = 1;
const EXIT: usize = 2;

fn three(runtimes: usize) -> Members {
    Members::all(
        3,
        runtimes,
        Policy::RoundRobin,
        plan(vec![factory::<Masquerade>()]),
    )
}

/// A packet of each of the flows, numbered from `first`.
fn packets(first: u8) -> impl Iterator<Item = (Side, Vec<u8>)> {
    (0..FLOWS).map(move |flow| udp(1, 1000 + u16::from(flow), 1, 80, false, &[first + flow]))
}

/// Every worker but the slow switch takes some turns.
fn step_others(members: &mut Members) {
    for _ in 0..20 {
        members.now += 1000;
        for worker in (0..members.workers()).filter(|worker| *worker != SLOW) {
            members.step(worker);
        }
    }
}

/// Packets come in while one switch hears nothing.
fn feed_others(members: &mut Members, packets: impl IntoIterator<Item = (Side, Vec<u8>)>) {
    members.switch(0).port_mut(0).input.extend(packets);
    step_others(members);
}

fn left(members: &mut Members) -> Vec<u8> {
    members
        .switch(EXIT)
        .port_mut(0)
        .output
        .iter()
        .map(number)
        .collect()
}

#[test]
fn a_first_packet_waits_until_every_switch_has_heard() {
    let mut members = three(1);
    feed_others(&mut members, packets(0));
    let waiting = members.runtime(0).stats().held;
    assert!(waiting > u64::from(FLOWS) / 3);
    assert!(left(&mut members).is_empty());
    // Later ones wait behind it, those of established flows do not.
    feed_others(&mut members, packets(FLOWS));
    assert_eq!(members.runtime(0).stats().held, 2 * waiting);
    assert!(left(&mut members).is_empty());
    members.run_until_quiet();
    let out = left(&mut members);
    assert_eq!(out.len(), 2 * usize::from(FLOWS));
    for flow in 0..FLOWS {
        let of_flow: Vec<u8> = out.iter().copied().filter(|n| n % FLOWS == flow).collect();
        assert_eq!(of_flow, [flow, FLOWS + flow], "in their order");
    }
    feed_others(&mut members, packets(2 * FLOWS));
    assert_eq!(members.runtime(0).stats().held, 0);
    members.run_until_quiet();
    members.check();
    // So a reply finds its flow wherever it comes in.
    for switch in 0..3 {
        let replies = (0..FLOWS).map(|flow| {
            let (_, frame) = udp(1, 1000, 1, 80, true, &[flow]);
            (Side::Outside, readdressed(frame, 2000 + u16::from(flow)))
        });
        members.feed(switch, replies);
        let back = members.switch(0).port_mut(0).output.len();
        assert_eq!(back, (switch + 1) * usize::from(FLOWS));
    }
    assert_eq!(members.flows(), [u64::from(FLOWS)]);
}

/// A reply to what the function under test translates to.
fn readdressed(mut frame: Vec<u8>, port: u16) -> Vec<u8> {
    frame[16..20].copy_from_slice(&[203, 0, 113, 1]);
    frame[22..24].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn with_one_switch_nothing_waits() {
    let mut members = Members::all(1, 1, Policy::RoundRobin, plan(vec![factory::<Masquerade>()]));
    members.switch(0).port_mut(0).input.extend(packets(0));
    for worker in [0, 1] {
        members.step(worker);
    }
    let stats = members.runtime(0).stats();
    assert_eq!((stats.passed, stats.held), (FLOWS.into(), 0));
    members.run_until_quiet();
    members.check();
}

#[test]
fn who_is_gone_is_not_waited_for_and_who_comes_is_told() {
    let mut members = three(1);
    feed_others(&mut members, packets(0));
    assert!(members.runtime(0).stats().held > 0);
    members.stop(SLOW);
    members.run_until_quiet();
    let waited = left(&mut members).len();
    assert!(waited > 0 && members.runtime(0).stats().held == 0);
    // A switch that begins again is waited for until it has heard all there is.
    members.start(SLOW);
    step_others(&mut members);
    members.step(SLOW);
    members.step(3);
    members
        .switch(0)
        .port_mut(0)
        .input
        .push_back(udp(9, 9000, 1, 80, false, &[200]));
    step_others(&mut members);
    let is_here = members.flows()[0] > waited as u64;
    assert_eq!(members.runtime(0).stats().held, u64::from(is_here));
    members.run_until_quiet();
    assert!(left(&mut members).contains(&200));
    assert_eq!(members.runtime(0).stats().held, 0);
    members.check();
}

#[test]
fn no_more_wait_than_may() {
    let mut members = three(1);
    for round in 0..6 {
        feed_others(&mut members, packets(round * FLOWS));
    }
    let stats = members.runtime(0).stats();
    assert_eq!(stats.held, 64, "a quarter of its buffers");
    assert!(members.dropped("unheard_full") > 0);
    members.run_until_quiet();
    assert_eq!(members.runtime(0).stats().held, 0);
    members.check();
}

#[test]
fn a_flow_without_room_whose_next_packet_waits_for_its_call_is_its_own() {
    let functions = vec![factory::<Masquerade>(), factory::<Sleeper>()];
    let mut members = Members::all(3, 1, Policy::RoundRobin, plan(functions));
    for _ in 0..6 {
        let waiting = (0..u16::from(FLOWS)).map(|flow| udp(1, 1000 + flow, 1, 80, false, &[0, 1]));
        feed_others(&mut members, waiting);
    }
    let (refused, flows) = (members.dropped("unheard_full"), members.flows()[0]);
    assert_eq!(members.runtime(0).stats().held, 64, "no room");
    // The first passes, and is settled when the next waits.
    let both = (0..8).flat_map(|flow| [0, 5].map(|wait| udp(1, 1100 + flow, 1, 80, false, &[wait, 1])));
    feed_others(&mut members, both);
    assert!(members.flows()[0] > flows && members.dropped("unheard_full") > refused);
    for _ in 0..20 {
        members.now += 1_000_000;
        members.run_until_quiet();
    }
    assert_eq!(members.dropped("reply_key_taken"), 0);
    assert_eq!(members.flows()[0], flows + 8);
    assert_eq!(members.runtime(0).stats().held, 0);
    members.check();
}

#[test]
fn what_waits_of_a_flow_that_ends_leaves_all_the_same() {
    let mut members = three(1);
    feed_others(&mut members, packets(0));
    let waiting = members.runtime(0).stats().held;
    members.now += 400 * SECOND;
    step_others(&mut members);
    assert_eq!(
        (members.flows()[0], members.runtime(0).stats().held),
        (0, waiting)
    );
    // The places of their actors are others' by now.
    feed_others(&mut members, packets(FLOWS));
    members.run_until_quiet();
    let out = left(&mut members);
    assert_eq!(out.len(), 2 * usize::from(FLOWS));
    assert!((0..FLOWS).all(|flow| {
        let mut of_flow = out.iter().filter(|n| **n % FLOWS == flow);
        of_flow.next() == Some(&flow)
    }));
    members.check();
}

/// A switch says that flows whose packets wait are at the other runtime, which took this one for
/// gone.
#[test]
fn what_waits_of_a_flow_that_another_runtime_has_is_lost() {
    let mut members = three(2);
    members.feed(0, packets(0));
    // The other runtime has moved flows to here before.
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    members.run_until_quiet();
    let keys = |members: &mut Members| -> Vec<FlowKey> {
        let flows = members.runtime(1).flows(0, 1000).0;
        flows.into_iter().map(|flow| flow.key).collect()
    };
    let before = keys(&mut members);
    assert_eq!(before.len(), usize::from(FLOWS));
    let others = (0..FLOWS).map(|flow| udp(1, 2000 + u16::from(flow), 1, 80, false, &[FLOWS + flow]));
    feed_others(&mut members, others);
    let held = members.runtime(1).stats().held;
    let mut waiting = keys(&mut members);
    waiting.retain(|key| !before.contains(key));
    assert_eq!(waiting.len() as u64, held);
    assert_ne!(held, 0);
    for key in waiting {
        let moved = SwitchMessage::Moved(RuntimeId(0), Epoch::default().next());
        members.say(0, 4, |frame| {
            Message::begin(frame);
            assert!(Message::Switch(GroupKey::of_flow(key), moved).append(frame));
        });
    }
    step_others(&mut members);
    assert_eq!(members.runtime(1).stats().held, 0);
    assert_eq!(members.dropped("peer_gone"), held);
    members.run_until_quiet();
    let rest = 2 * usize::from(FLOWS) - held as usize;
    assert_eq!(left(&mut members).len(), rest);
}

#[test]
fn nothing_of_a_flow_leaves_whose_replies_are_anothers() {
    let mut members = three(2);
    members.feed(0, packets(0));
    // Another host's, with the same reply keys.
    let others = (0..FLOWS).map(|flow| udp(2, 1000 + u16::from(flow), 1, 80, false, &[FLOWS + flow]));
    members.feed(0, others);
    let mut out = left(&mut members);
    out.sort_unstable();
    assert_eq!(out, (0..FLOWS).collect::<Vec<u8>>());
    assert_eq!(members.dropped("reply_key_taken"), u64::from(FLOWS));
    assert_eq!(members.flows().iter().sum::<u64>(), u64::from(FLOWS));
    members.check();
}

/// A port to which a packet comes just when it is read: behind the links, on which there is
/// something only since.
struct Late {
    frame: Option<Vec<u8>>,
    word: Option<(Queue, PacketBox)>,
}

impl Port for Late {
    fn receive(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) {
        if let Some((queue, word)) = self.word.take() {
            queue.borrow_mut().push_back(word);
        }
        if let Some(frame) = self.frame.take() {
            let mut packet = pool.take().unwrap();
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

/// To which runtime a switch sends a packet of no flow that it knows, if runtime 0 says just before
/// that it has the flow.
fn chosen(is_said: bool) -> usize {
    let mut words = pool(1, 2);
    let is_at_home = |frame: &Vec<u8>, pool: &mut Pool| {
        let key = parsed(pool, &(Side::Outside, frame.clone()), |packet| {
            FlowKey::of(packet).unwrap().0
        });
        let group = GroupKey::of_flow(key);
        (home_of(group.hash(&HashSeed::FIXED), 2) == 0).then_some(group)
    };
    let mut frames = (0..64).map(|port| udp(1, 1000 + port, 1, 80, true, &[1]).1);
    let found = frames.find_map(|frame| Some((is_at_home(&frame, &mut words)?, frame)));
    let (group, frame) = found.unwrap();
    let (ends, others): (Vec<Link>, Vec<Link>) = (0..2).map(|_| link(128)).unzip();
    let mut word = words.take().unwrap();
    Message::begin(&mut word);
    assert!(Message::Routed(group).append(&mut word));
    let port = Late {
        frame: Some(frame),
        word: is_said.then(|| (ends[0].incoming.clone(), word)),
    };
    let settings = crate::switch::SwitchSettings {
        switch: 0,
        switches: 2,
        seed: HashSeed::FIXED,
        routes_max: 64,
        policy: Policy::RoundRobin,
        fragments_max: 4,
        packet_clock: false,
        lead_max: u64::MAX,
        recovery_max: 0,
        patient: false,
        egress: [Some(0), None],
        now: 0,
    };
    let rule = SideRule::Fixed(Side::Outside);
    let plan = plan(vec![factory::<Masquerade>()]);
    let peers = vec![None, Some(link(128).0)];
    let ports = vec![(port, rule)];
    let mut switch = Switch::new(settings, plan, ports, ends, peers, pool(16, 0), Region::heap);
    switch.step(1);
    let has = |end: &Link| {
        end.incoming
            .borrow()
            .iter()
            .any(|packet| packet.kind() == Kind::Data)
    };
    others.iter().position(has).unwrap()
}

#[test]
fn what_is_on_a_ring_before_a_packet_comes_in_counts_for_it() {
    assert_eq!([chosen(false), chosen(true)], [1, 0]);
}
