//! Messages that are waited for until they are heard, word by word: workers among others that are
//! played by hand, and moves that wait.
//!
//! A worker that is played says the words that the test has it say, no more: so each condition of
//! `outbox::barrier` has a test that fails without it.
//!
//! Not here: whole clusters in which first packets wait (`first_packets`).

use super::flows::{Masquerade, Meter};
use super::lent::Lender;
use super::sessions::{Members, SECOND, everywhere};
use super::*;
use crate::group::GroupKey;
use crate::message::Message;
use crate::switch::{Policy, home_of};
use nf::Addr;
use std::vec;
use wire::packet::Kind;
use wire::{FlowKey, HashSeed};

/// Three switches that are played, and the second of two runtimes. Packets come by the first
/// switch, and leave by the last.
struct Rig {
    members: Members,
    is_grouped: bool,
}

const ME: usize = 4;
/// Ports that are translated into the first block of the runtime's share.
const PORT: u16 = 24;

fn rig(functions: Vec<Box<dyn Factory>>) -> Rig {
    let mut rig = rig_of([true; 3], functions);
    for switch in 0..3 {
        // Switches that begin with it have nothing to tell, and are told that there is nothing.
        rig.says(switch, &[Message::Resynced]);
    }
    rig.step();
    let asked = rig.asked();
    (0..3).for_each(|switch| rig.hears(switch, asked[switch].unwrap()));
    rig
}

fn rig_of(there: [bool; 3], functions: Vec<Box<dyn Factory>>) -> Rig {
    let plan = plan(functions);
    let is_grouped = plan.affinity() != nf::Affinity::Flow;
    let mut members = Members::none(3, 2, Policy::RoundRobin, plan);
    members.now = SECOND;
    (0..3).for_each(|switch| members.play(switch, there[switch]));
    members.start(ME);
    let mut rig = Rig { members, is_grouped };
    // Each is told in a step of its own.
    rig.steps(4);
    rig
}

impl Rig {
    fn step(&mut self) -> usize {
        self.members.now += 1000;
        self.members.step(ME)
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    fn says(&mut self, switch: usize, words: &[Message]) {
        self.members.say(switch, ME, |frame| {
            Message::begin(frame);
            assert!(words.iter().all(|word| word.append(frame)));
        });
    }

    /// A packet of a host comes by the first switch.
    fn feed(&mut self, host: u8, ports: (u16, u16), number: u8) {
        let (side, frame) = udp(host, ports.0, 1, ports.1, false, &[number]);
        let is_grouped = self.is_grouped;
        self.members.say(0, ME, |packet| {
            packet.reset(0, LinkType::Raw);
            assert!(packet.set_frame(&frame, LinkType::Raw));
            packet.set_side(side);
            packet.set_kind(Kind::Data);
            wire::parse(packet).unwrap();
            let group = match is_grouped {
                true => GroupKey::of_address(packet.source_addr()),
                false => GroupKey::of_flow(FlowKey::of(packet).unwrap().0),
            };
            packet.set_hash(group.hash(&HashSeed::FIXED));
        });
    }

    /// The same, and a step: whether it waits.
    fn waits(&mut self, port: u16, number: u8) -> bool {
        let before = self.held();
        self.feed(1, (port, 80), number);
        self.step();
        self.held() > before
    }

    fn held(&mut self) -> u64 {
        self.members.runtime(1).stats().held
    }

    fn told(&mut self, switch: usize) -> Vec<Message> {
        let mut words = Vec::new();
        self.members.read(ME, switch, |packet| {
            let mut bytes = packet.frame();
            while packet.kind() == Kind::Message
                && let Some((word, rest)) = Message::read(bytes)
            {
                words.push(word);
                bytes = rest;
            }
        });
        words
    }

    /// The numbers of the packets that have left, in their order.
    fn left(&mut self) -> Vec<u8> {
        let mut numbers = Vec::new();
        self.members.read(ME, 2, |packet| {
            if packet.kind() == Kind::Data {
                numbers.push(*packet.frame().last().unwrap());
            }
        });
        numbers
    }

    /// Which switches are asked for which round, if they are. Packets that have left by the last
    /// are lost.
    fn asked(&mut self) -> [Option<u64>; 3] {
        [0, 1, 2].map(|switch| {
            let words = self.told(switch);
            let mut rounds = words.iter().filter_map(|word| match word {
                Message::BarrierAsked(round) => Some(*round),
                _ => None,
            });
            let round = rounds.next();
            assert_eq!(rounds.next(), None, "asked once");
            round
        })
    }

    /// A switch has heard all up to a round.
    fn hears(&mut self, switch: usize, round: u64) {
        self.says(switch, &[Message::BarrierAcknowledged(round)]);
        self.step();
    }
}

/// A port of the first host's whose reply key has this switch for its home.
fn port_at(home: u8, from: u16) -> u16 {
    let mut spare = pool(1, 9);
    let is_at = |port: &u16| {
        let (side, mut frame) = udp(1, *port, 1, 80, false, &[0]);
        // As `Masquerade` has it.
        frame[12..16].copy_from_slice(&[203, 0, 113, 1]);
        frame[20..22].copy_from_slice(&(port + 1000).to_be_bytes());
        let key = parsed(&mut spare, &(side, frame), |packet| {
            FlowKey::of(packet).unwrap().0
        });
        home_of(GroupKey::of_flow(key).hash(&HashSeed::FIXED), 3) == home
    };
    (from..from + 200).find(is_at).unwrap()
}

/// So many such ports.
fn ports_at<const N: usize>(home: u8) -> [u16; N] {
    let mut from = 1000;
    core::array::from_fn(|_| {
        let port = port_at(home, from);
        from = port + 1;
        port
    })
}

fn masquerade() -> Vec<Box<dyn Factory>> {
    vec![factory::<Masquerade>()]
}

#[test]
fn more_than_was_said_is_not_heard_nor_less_than_before() {
    let mut rig = rig(masquerade());
    let ports: [u16; 2] = ports_at(1);
    // Before anything is said, and ahead of all words.
    rig.hears(1, u64::MAX);
    assert!(rig.waits(ports[0], 1), "it has heard of nothing");
    let [None, Some(first), None] = rig.asked() else {
        panic!("one is asked");
    };
    rig.hears(1, u64::MAX);
    assert_eq!((rig.held(), rig.left()), (0, vec![1]));
    assert!(rig.waits(ports[1], 2), "nor of this");
    assert_eq!(rig.asked(), [None, Some(first + 1), None]);
    rig.hears(1, first);
    assert_eq!(rig.held(), 1, "of the round before");
    rig.hears(1, first + 1);
    assert_eq!((rig.held(), rig.left()), (0, vec![2]));
    // A repeated word of before changes nothing.
    rig.hears(1, first);
    assert!(rig.waits(port_at(0, 1000), 3));
    assert_eq!(rig.asked(), [Some(first + 2), None, None]);
    rig.hears(0, first + 2);
    assert_eq!((rig.held(), rig.left()), (0, vec![3]));
}

#[test]
fn a_block_that_is_claimed_again_for_a_switch_is_waited_for() {
    let mut rig = rig(vec![factory::<Lender>(), factory::<Masquerade>()]);
    assert!(rig.waits(PORT, 1), "it has got a block");
    let claimed = rig.told(1);
    let [Message::BlockClaimed(block, group), Message::BarrierAsked(round)] = claimed[..] else {
        panic!("{claimed:?}");
    };
    assert_eq!(block.first, 1000 + PORT);
    assert_eq!(group, GroupKey::of_address(Addr::v4([10, 0, 0, 1])));
    (0..3).for_each(|switch| rig.hears(switch, round));
    assert_eq!((rig.held(), rig.left()), (0, vec![1]));
    // Later flows of the host use the block, of which all have heard.
    assert!(!rig.waits(PORT + 1, 2));
    assert_eq!(rig.left(), [2]);
    // One switch has forgotten it with a worker that is gone.
    rig.says(1, &[Message::BlockSuspect(block, group)]);
    rig.step();
    assert!(rig.waits(PORT + 2, 3), "replies that come in there would miss");
    let again = [
        Message::BlockClaimed(block, group),
        Message::BarrierAsked(round + 1),
    ];
    assert_eq!((rig.told(1), rig.left()), (again.to_vec(), vec![]));
    rig.hears(1, round + 1);
    assert_eq!((rig.held(), rig.left()), (0, vec![3]));
}

#[test]
fn a_flow_waits_for_its_round_and_its_packets_with_it() {
    let mut rig = rig(masquerade());
    let [one, two, three, again] = ports_at::<4>(0);
    let round = {
        assert!(rig.waits(one, 1));
        rig.asked()[0].unwrap()
    };
    assert!(rig.waits(two, 2));
    assert!(rig.waits(three, 3));
    // Behind its first packet, whatever is said since.
    assert!(rig.waits(one, 11));
    rig.hears(0, round);
    assert_eq!(rig.left(), [1, 11]);
    // The places of the others are the same.
    assert!(rig.waits(two, 12));
    // It is settled, whatever others wait for.
    assert!(!rig.waits(one, 21));
    assert_eq!(rig.left(), [21]);
    rig.hears(0, round + 1);
    assert_eq!((rig.left(), rig.held()), (vec![2, 12], 1));
    rig.hears(0, round + 2);
    assert_eq!((rig.left(), rig.held()), (vec![3], 0));
    // All are over, and other flows have their places, and wait in their turn.
    rig.members.now += 400 * SECOND;
    rig.steps(4);
    assert_eq!(rig.members.flows()[1], 0);
    assert!(rig.waits(again, 4));
    assert!(rig.waits(again, 14));
    assert!(rig.left().is_empty());
    rig.hears(0, u64::MAX);
    assert_eq!((rig.left(), rig.held()), (vec![4, 14], 0));
}

#[test]
fn what_waits_of_a_flow_that_is_over_settles_no_other() {
    let mut rig = rig(masquerade());
    let [one, two] = ports_at::<2>(0);
    assert!(rig.waits(one, 1));
    let round = rig.asked()[0].unwrap();
    rig.members.now += 400 * SECOND;
    rig.steps(4);
    assert_eq!((rig.members.flows()[1], rig.held()), (0, 1));
    // In its place.
    assert!(rig.waits(two, 2));
    rig.hears(0, round);
    assert_eq!(rig.left(), [1]);
    assert!(rig.waits(two, 12), "its first packet waits");
    rig.hears(0, u64::MAX);
    assert_eq!((rig.left(), rig.held()), (vec![2, 12], 0));
}

#[test]
fn nothing_waits_while_half_of_the_buffers_are_out() {
    let mut rig = rig(vec![factory::<Meter>(), factory::<Masquerade>()]);
    // Which the function holds.
    for packet in 2..92 {
        rig.feed(1, (5000, 5), packet);
    }
    rig.steps(4);
    assert_eq!(rig.held(), 90);
    assert!(rig.waits(1000, 200), "there is room");
    for packet in 2..52 {
        rig.feed(1, (5000, 5), packet);
    }
    rig.steps(4);
    let held = rig.held();
    assert_eq!(held, 141);
    assert!(!rig.waits(1000, 201) && !rig.waits(1001, 202));
    assert_eq!(rig.members.dropped("unheard_full"), 2);
}

#[test]
fn what_waits_leaves_with_the_runtime() {
    let mut rig = rig(masquerade());
    assert!(rig.waits(1000, 1));
    let runtime = rig.members.runtime(1);
    while !runtime.finish(10) {}
    assert_eq!((rig.held(), rig.left()), (0, vec![1]));
}

#[test]
fn a_switch_that_was_never_met_is_waited_for_two_seconds() {
    let mut rig = rig_of([true, false, true], masquerade());
    let asked = rig.asked();
    rig.hears(0, asked[0].unwrap());
    rig.hears(2, asked[2].unwrap());
    let port = port_at(0, 1000);
    assert!(rig.waits(port, 1));
    let round = rig.asked()[0].unwrap();
    rig.hears(0, round);
    assert_eq!(rig.held(), 1, "it may be at work");
    // The runtime began at one second.
    rig.members.now = 3 * SECOND - 1001;
    rig.step();
    assert_eq!((rig.held(), rig.left()), (1, vec![]));
    // 3 s, and there is something done, though nothing has come.
    assert!(rig.step() > 0);
    assert_eq!((rig.held(), rig.left()), (0, vec![1]));
}

#[test]
fn a_switch_that_begins_again_has_heard_nothing() {
    let mut rig = rig(masquerade());
    let ([one], [two]) = (ports_at::<1>(0), ports_at::<1>(1));
    rig.feed(1, (one, 80), 1);
    assert!(rig.waits(two, 2));
    let [Some(round), Some(_), None] = rig.asked() else {
        panic!("both are asked");
    };
    rig.hears(0, round);
    assert_eq!(rig.held(), 2, "the other has not");
    rig.members.play(0, true);
    rig.step();
    rig.step();
    let next = rig.asked()[0].expect("it is told all, and asked");
    rig.hears(1, round);
    assert_eq!((rig.held(), rig.left()), (2, vec![]), "the first is another now");
    rig.hears(0, next);
    assert_eq!((rig.held(), rig.left()), (0, vec![1, 2]));
    // A switch that was there is not waited for when it is gone.
    rig.members.play(1, false);
    rig.step();
    assert!(!rig.waits(port_at(1, two + 1), 3));
}

/// Which packets leave by the last switch, which is met again, before all others have answered,
/// and behind that.
fn left_by_one_met_again() -> (Vec<u8>, Vec<u8>) {
    let mut rig = rig(vec![factory::<Meter>()]);
    assert!(!rig.waits(1000, 1));
    assert_eq!(rig.left(), [1]);
    rig.members.play(2, true);
    rig.steps(4);
    let told = rig.asked()[2].expect("it is told all, and asked");
    rig.hears(2, told);
    rig.waits(1000, 2);
    assert!(rig.left().is_empty(), "it may have let this one go");
    rig.says(2, &[Message::Resynced]);
    rig.step();
    let asked = rig.asked();
    let (Some(first), Some(second)) = (asked[0], asked[1]) else {
        panic!("the others are asked: {asked:?}");
    };
    rig.waits(1000, 3);
    rig.hears(0, first);
    rig.waits(1000, 4);
    let before = rig.left();
    rig.hears(1, second);
    rig.step();
    rig.waits(1000, 5);
    (before, rig.left())
}

/// A runtime that stood still sees late that a session is over. The switch there knows that a group
/// is another's, and its packets would leave by the switch that is met again.
#[test]
fn no_packet_leaves_by_a_switch_met_again_before_the_others_have_answered() {
    assert_eq!(left_by_one_met_again(), (vec![], vec![5]));
    crate::replica::BROKEN.set("others are asked before packets leave");
    let (before, _) = left_by_one_met_again();
    crate::replica::BROKEN.set("");
    assert!(!before.is_empty(), "the rule is broken");
}

const FLOWS: u8 = 32;
/// Of three switches, the switch that takes no turns: packets come in at the first, and leave by
/// the last.
const SLOW: usize = 1;
const EXIT: usize = 2;

fn three(runtimes: usize, functions: Vec<Box<dyn Factory>>) -> Members {
    Members::all(3, runtimes, Policy::RoundRobin, plan(functions))
}

fn step_others(members: &mut Members, steps: usize) {
    for _ in 0..steps {
        members.now += 1000;
        for worker in (0..members.workers()).filter(|worker| *worker != SLOW) {
            members.step(worker);
        }
    }
}

fn feed_others(members: &mut Members, packets: impl IntoIterator<Item = (Side, Vec<u8>)>) {
    members.switch(0).port_mut(0).input.extend(packets);
    step_others(members, 20);
}

fn left(members: &mut Members) -> Vec<u8> {
    let port = members.switch(EXIT).port_mut(0);
    port.output.iter().map(number).collect()
}

/// A packet of each of some flows of a host, numbered from `first`.
fn packets(host: u8, first: u8) -> impl Iterator<Item = (Side, Vec<u8>)> {
    let ports = 1000 + 100 * u16::from(host);
    (0..FLOWS).map(move |flow| udp(host, ports + u16::from(flow), 1, 80, false, &[first + flow]))
}

#[test]
fn a_group_does_not_move_before_what_waits_of_it_has_left() {
    let mut members = three(2, masquerade());
    // Behind a word that one switch does not hear, all first packets wait, whatever their homes.
    feed_others(&mut members, packets(1, 100));
    let early = left(&mut members).len() as u64;
    feed_others(&mut members, packets(2, 0));
    let waiting = members.runtime(0).stats().held;
    assert!(waiting > 10);
    assert!(left(&mut members).iter().all(|n| *n >= 100));
    let there = members.flows();
    // To the other runtime, where homes let them go.
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    step_others(&mut members, 20);
    assert_eq!(members.runtime(0).stats().held, waiting);
    assert!(members.flows()[1] - there[1] <= early, "a flow that waits stays");
    feed_others(&mut members, packets(2, FLOWS));
    assert!(
        left(&mut members).iter().all(|n| *n >= 100),
        "behind the first packets"
    );
    members.run_until_quiet();
    members.check();
}

#[test]
fn a_switch_that_is_being_told_is_waited_for() {
    let mut members = three(1, masquerade());
    // More than it is told of in a step.
    for flows in 0..30 {
        let ports = 2000 + 32 * flows;
        members.feed(
            0,
            (0..FLOWS).map(|flow| udp(3, ports + u16::from(flow), 1, 80, false, &[200])),
        );
    }
    assert!(members.flows()[0] > 600);
    feed_others(&mut members, packets(1, 0));
    let waiting = members.runtime(0).stats().held;
    let before = left(&mut members).len();
    assert!(waiting > 0);
    members.start(SLOW);
    for _ in 0..3 {
        members.step(3);
        members.step(EXIT);
        assert_eq!(members.runtime(0).stats().held, waiting, "it has yet to be told");
    }
    assert_eq!(left(&mut members).len(), before);
    members.run_until_quiet();
    assert_eq!(members.runtime(0).stats().held, 0);
    assert_eq!(left(&mut members).len(), before + waiting as usize);
    members.check();
}

/// The words of a switch to a runtime that wants another's keys, in the order in which they are
/// sent.
fn said_of_refused(keys: usize, fill: usize) -> Vec<Message> {
    const FIRST: usize = 1;
    const OTHER: usize = 2;
    let mut members = Members::none(1, 2, Policy::RoundRobin, plan(masquerade()));
    members.start(0);
    members.play(FIRST, true);
    members.play(OTHER, true);
    let mut spare = pool(1, 9);
    let keys: Vec<GroupKey> = (0..keys as u16)
        .map(|flow| {
            let sent = udp(1, 1000 + flow, 1, 80, false, &[0]);
            GroupKey::of_flow(parsed(&mut spare, &sent, |packet| FlowKey::of(packet).unwrap().0))
        })
        .collect();
    let say = |members: &mut Members, from: usize, last: &[Message]| {
        // As many as a frame has room for.
        let words: Vec<Message> = keys.iter().map(|key| Message::Routed(*key)).collect();
        for words in words.chunks(40).chain([last]) {
            members.say(from, 0, |frame| {
                Message::begin(frame);
                assert!(words.iter().all(|word| word.append(frame)));
            });
        }
    };
    let step = |members: &mut Members| {
        members.now += 1000;
        members.step(0);
    };
    step(&mut members);
    say(&mut members, OTHER, &[]);
    step(&mut members);
    members.read(0, FIRST, |_| ());
    // The frames on the link already leave no room.
    for _ in 0..fill {
        members.say(0, FIRST, Message::begin);
    }
    say(&mut members, FIRST, &[Message::BarrierAsked(7)]);
    step(&mut members);
    let mut said = Vec::new();
    for _ in 0..8 {
        members.read(0, FIRST, |packet| {
            let mut bytes = packet.frame();
            while let Some((word, rest)) = Message::read(bytes) {
                said.push(word);
                bytes = rest;
            }
        });
        step(&mut members);
    }
    for key in &keys {
        assert!(
            said.contains(&Message::RouteConflict(*key)),
            "among {}",
            said.len()
        );
    }
    said
}

#[test]
fn taken_is_said_before_heard_whatever_room_there_is() {
    for (keys, fill) in [(1, 0), (60, 0), (1, 128), (60, 128)] {
        let said = said_of_refused(keys, fill);
        assert_eq!(
            said.last(),
            Some(&Message::BarrierAcknowledged(7)),
            "{keys} keys, {fill} on the link"
        );
        let heard = said
            .iter()
            .filter(|word| matches!(word, Message::BarrierAcknowledged(_)));
        assert_eq!(heard.count(), 1);
    }
}
