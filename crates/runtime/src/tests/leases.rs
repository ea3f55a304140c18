//! Leases and views: a worker without its lease has no effect, and a worker is gone by a view and
//! not before.

use super::flows::Meter;
use super::groups::{Leaser, OURS, Service};
use super::sessions::Members;
use super::timers::Alarm;
use super::*;
use crate::group::GroupKey;
use crate::members::{WorkerGone, gone_between};
use crate::message::Message;
use crate::mobility::{MoveOrder, Selector};
use crate::record::Record;
use crate::switch::Policy;
use protocols::membership::{Incarnation, Member, Membership, Standing, Term, View, WorkerId};
use protocols::ownership::{Epoch, Phase, RuntimeId};
use std::boxed::Box;
use std::string::String;
use std::vec;
use wire::packet::Kind;

pub(super) const LEASE: u64 = 1_000_000;
pub(super) const TERM: Term = Term { lease: LEASE };

/// One switch and two runtimes, as workers.
const ALL: [WorkerId; 3] = [WorkerId::switch(0), WorkerId::runtime(0), WorkerId::runtime(1)];

pub(super) fn view(number: u32, incarnations: &[(WorkerId, u64)]) -> View {
    let member = |(id, incarnation): &(WorkerId, u64)| Member {
        id: *id,
        incarnation: Incarnation(*incarnation),
        standing: Standing::Running,
    };
    View::new(number, incarnations.iter().map(member).collect())
}

fn first() -> View {
    view(1, &ALL.map(|id| (id, 1)))
}

/// Of one switch, and runtimes.
pub(super) fn id(worker: usize) -> WorkerId {
    match worker {
        0 => WorkerId::switch(0),
        _ => WorkerId::runtime(worker as u16 - 1),
    }
}

/// A worker begins with a membership.
pub(super) fn begin(members: &mut Members, worker: usize, incarnation: u64, view: View) {
    let machine = Membership::new(id(worker), Incarnation(incarnation), TERM, view);
    match worker {
        0 => members.switch(0).begin_membership(machine),
        _ => members.runtime(worker - 1).begin_membership(machine),
    }
}

/// A worker hears of a view.
pub(super) fn hear(members: &mut Members, worker: usize, view: &View) {
    let machine = match worker {
        0 => members.switch(0).membership_mut(),
        _ => members.runtime(worker - 1).membership_mut(),
    };
    let machine = machine.unwrap();
    let gone = gone_between(machine.view(), view);
    machine.adopt(view.clone(), |_| ());
    match worker {
        0 => members.switch(0).members(view.number, &gone),
        _ => members.runtime(worker - 1).members(view.number, &gone),
    }
}

fn with_leases() -> Members {
    leased(factory::<Meter>())
}

fn leased(function: Box<dyn Factory>) -> Members {
    let mut members = Members::none(1, 2, Policy::LeastLoaded, plan(vec![function]));
    for worker in 0..3 {
        members.start(worker);
        begin(&mut members, worker, 1, first());
    }
    // Some questions and answers.
    for _ in 0..8 {
        members.run_until_quiet();
        members.now += LEASE / 4;
    }
    members.run_until_quiet();
    members
}

pub(super) fn packets(flows: core::ops::Range<u8>) -> Vec<(Side, Vec<u8>)> {
    flows.map(|host| udp(host, 1000, 1, 53, false, b"x")).collect()
}

fn sent(members: &mut Members) -> usize {
    members.switch(0).port_mut(0).output.len()
}

#[test]
fn with_leases_traffic_passes_and_leases_are_renewed() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    assert_eq!((sent(&mut members), members.flows()), (8, vec![4, 4]));
    for _ in 0..40 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    members.feed(0, packets(1..9));
    assert_eq!((sent(&mut members), members.dropped("no_lease")), (16, 0));
    members.check();
}

#[test]
fn a_runtime_that_stood_still_transmits_nothing_after_its_lease() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    let before = sent(&mut members);
    // Packets are on their way to both, and one stands still.
    members.switch(0).port_mut(0).input.extend(packets(1..9));
    for _ in 0..4 {
        members.now += 1000;
        members.step(0);
    }
    for _ in 0..20 {
        members.now += LEASE / 4;
        for _ in 0..4 {
            members.now += 1000;
            members.step(0);
            members.step(2);
        }
    }
    let of_the_other = sent(&mut members) - before;
    assert_eq!(of_the_other, 4, "the one that runs has its lease");
    members.now += 1000;
    members.step(1);
    members.step(0);
    assert_eq!(sent(&mut members) - before, 4);
    assert_eq!(members.dropped("no_lease"), 4);
    // It is a member still: it has its lease again, and its flows.
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    members.feed(0, packets(1..9));
    assert_eq!(sent(&mut members) - before, 12);
    members.check();
}

/// An end frees ports, and is a line of the event log: another runtime may have the flow by then.
#[test]
fn a_runtime_without_a_lease_ends_no_flow() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    members.now += 3600 * 1_000_000_000;
    for _ in 0..8 {
        members.now += 1000;
        members.step(1);
    }
    assert_eq!(members.flows(), [4, 4]);
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    assert_eq!(members.flows(), [0, 0]);
    members.check();
}

/// The effect of a timer's call is another runtime's by then.
#[test]
fn a_runtime_without_a_lease_fires_no_timer() {
    let mut members = leased(factory::<Alarm>());
    // Each flow arms a timer that is due long after the lease is over.
    members.feed(0, (1..9).map(|host| udp(host, 1000, 1, 60_000, false, b"x")));
    let lines = |members: &mut Members| {
        let mut lines = String::new();
        members.runtime(0).take_events(&mut lines);
        lines.matches("\"fired\"").count()
    };
    members.now += 61_000_000_000;
    for _ in 0..8 {
        members.now += 1000;
        members.step(1);
    }
    assert_eq!(lines(&mut members), 0, "a timer's call writes one");
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    assert_ne!(lines(&mut members), 0);
}

/// Which incarnations of their target the re-routes name that the first runtime says to the switch.
fn incarnations_named(members: &mut Members) -> Vec<u64> {
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1],
    };
    members.runtime(0).order(order).unwrap();
    let mut incarnations = Vec::new();
    for worker in [1, 2].into_iter().cycle().take(16) {
        members.now += 1000;
        members.step(worker);
        members.read(1, 0, |packet| {
            let mut bytes = packet.frame();
            while packet.kind() == Kind::Message
                && let Some((message, rest)) = Message::read(bytes)
            {
                if let Message::Reroute(reroute) = message {
                    incarnations.push(reroute.incarnation);
                }
                bytes = rest;
            }
        });
    }
    incarnations
}

/// A switch takes no other incarnation than that which has agreed, so its source names it.
#[test]
fn a_source_names_the_incarnation_of_a_target() {
    let incarnations = [(ALL[0], 1), (ALL[1], 1), (ALL[2], 7)];
    let mut members = Members::none(1, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    for (worker, (_, incarnation)) in incarnations.into_iter().enumerate() {
        members.start(worker);
        begin(&mut members, worker, incarnation, view(1, &incarnations));
    }
    for _ in 0..8 {
        members.run_until_quiet();
        members.now += LEASE / 4;
    }
    members.feed(0, packets(1..9));
    assert_eq!(members.flows(), vec![4, 4]);
    assert_eq!(incarnations_named(&mut members), [7; 4]);
    // Without views each runtime says which incarnation it is, whether there are copies or not.
    for is_copied in [false, true] {
        let make = if is_copied { Members::copied } else { Members::all };
        let mut members = make(1, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
        members.feed(0, packets(1..9));
        let [source, target] = [0, 1].map(|runtime| members.runtime(runtime).said_incarnation());
        assert_ne!(source, target);
        assert_eq!(incarnations_named(&mut members), [target; 4], "{is_copied}");
    }
}

/// Groups of a runtime in a phase of a move.
fn moving(members: &mut Members, runtime: usize, is_it: fn(&Phase) -> bool) -> usize {
    let moves = members.runtime(runtime).moves_under_way();
    moves.iter().filter(|(_, phase)| is_it(phase)).count()
}

fn processed(members: &mut Members) -> u64 {
    members.runtime(1).stats().counters[0].count
}

/// Four groups move. Their target has kept a packet of each, stands still for longer than its
/// lease, and reads their states then.
fn with_states_that_came_late() -> Members {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    assert_eq!(members.flows(), vec![4, 4]);
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1],
    };
    members.runtime(0).order(order).unwrap();
    let buffering =
        |members: &mut Members| moving(members, 1, |phase| matches!(phase, Phase::Buffering { .. }));
    // The source asks for slots, has them, and tells the switch.
    for worker in [1, 2, 1, 2] {
        members.now += 1000;
        if buffering(&mut members) == 0 {
            members.step(worker);
        }
    }
    for worker in [1, 0] {
        members.now += 1000;
        members.step(worker);
    }
    // The next packets are for the target: four packets of its own flows, four that it keeps.
    members.switch(0).port_mut(0).input.extend(packets(1..9));
    for worker in [0, 2] {
        members.now += 1000;
        members.step(worker);
    }
    assert_eq!((buffering(&mut members), processed(&mut members)), (4, 8));
    // It stands still; the states come into its link.
    for _ in 0..12 {
        members.now += LEASE / 4;
        for worker in [1, 0] {
            members.now += 1000;
            members.step(worker);
        }
    }
    for _ in 0..4 {
        members.now += 1000;
        members.step(2);
    }
    assert_eq!(buffering(&mut members), 0, "all are installed");
    members
}

/// Packets were kept under a lease. It is looked at again when they go on.
#[test]
fn a_target_that_stood_still_processes_nothing_that_it_has_kept_after_its_lease() {
    let mut members = with_states_that_came_late();
    assert_eq!((processed(&mut members), members.dropped("no_lease")), (8, 4));
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    members.feed(0, packets(1..9));
    assert_eq!((members.flows(), processed(&mut members)), (vec![0, 8], 16));
    members.check();
}

/// A view may have removed it, and its source have heard nothing of that: with its own copies let
/// go of, the groups would be lost.
#[test]
fn a_target_without_a_lease_does_not_say_that_groups_have_arrived() {
    for (rule, kept) in [("", 4), ("done waits for a lease", 0)] {
        crate::replica::BROKEN.set(rule);
        let mut members = with_states_that_came_late();
        members.step(1);
        let forwarding = |phase: &Phase| matches!(phase, Phase::Forwarding { .. });
        assert_eq!(moving(&mut members, 0, forwarding), kept, "{rule}");
        crate::replica::BROKEN.set("");
        for _ in 0..12 {
            members.now += LEASE / 4;
            members.run_until_quiet();
        }
        assert_eq!(
            (moving(&mut members, 0, |_| true), members.flows()),
            (0, vec![0, 8])
        );
        members.check();
    }
}

/// Switches end first, and none is left that would grant a lease.
#[test]
fn groups_move_between_runtimes_of_a_view_without_switches() {
    let mut members = with_states_that_came_late();
    let without = view(2, &[(ALL[1], 1), (ALL[2], 1)]);
    hear(&mut members, 1, &without);
    hear(&mut members, 2, &without);
    for worker in [2, 1].into_iter().cycle().take(8) {
        members.now += 1000;
        members.step(worker);
    }
    assert_eq!(
        (moving(&mut members, 0, |_| true), members.flows()),
        (0, vec![0, 8])
    );
}

#[test]
fn a_switch_without_a_majority_reads_no_port_and_sends_nothing() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    let before = sent(&mut members);
    // Both runtimes stand still: of four votes the switch has two.
    members.switch(0).port_mut(0).input.extend(packets(1..9));
    members.now += 2 * LEASE;
    for _ in 0..20 {
        members.now += 1000;
        members.step(0);
    }
    assert_eq!(members.switch(0).port_mut(0).input.len(), 8);
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    // Packets that waited have come in, and those that a runtime had before its own lease was back
    // are counted.
    assert!(members.switch(0).port_mut(0).input.is_empty());
    let dropped = members.dropped("no_lease") as usize;
    assert_eq!(sent(&mut members) - before + dropped, 8);
    members.feed(0, packets(1..9));
    assert_eq!(sent(&mut members) - before + dropped, 16);
    members.check();
}

#[test]
fn a_link_that_ends_suspends_and_a_view_removes() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    members.stop(1);
    members.run_until_quiet();
    let before = sent(&mut members);
    members.feed(0, packets(1..9));
    // No runtime has its flows meanwhile.
    assert_eq!(members.flows(), vec![0, 4]);
    assert_eq!(
        (sent(&mut members) - before, members.dropped("runtime_busy")),
        (4, 4)
    );
    // Another incarnation of it begins; before the view it is not heard.
    members.start(1);
    begin(
        &mut members,
        1,
        2,
        view(2, &[(ALL[0], 1), (ALL[1], 2), (ALL[2], 1)]),
    );
    members.run_until_quiet();
    members.feed(0, packets(1..9));
    assert_eq!(members.flows(), vec![0, 4]);
    let second = view(2, &[(ALL[0], 1), (ALL[1], 2), (ALL[2], 1)]);
    hear(&mut members, 0, &second);
    hear(&mut members, 2, &second);
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    let before = sent(&mut members);
    members.feed(0, packets(1..9));
    assert_eq!((sent(&mut members) - before, members.flows()), (8, vec![4, 4]));
    assert_eq!(members.switch(0).view_number(), 2);
    members.check();
}

#[test]
fn what_a_removed_incarnation_says_is_dropped() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    // It has packets in hand, and what it makes of them comes when it is removed already.
    members.switch(0).port_mut(0).input.extend(packets(1..9));
    for _ in 0..3 {
        members.now += 1000;
        members.step(0);
    }
    members.now += 1000;
    members.step(1);
    let second = view(2, &[(ALL[0], 1), (ALL[2], 1)]);
    hear(&mut members, 0, &second);
    hear(&mut members, 2, &second);
    let before = sent(&mut members);
    members.run_until_quiet();
    assert_eq!(sent(&mut members) - before, 4, "the other one's");
    assert_eq!(members.dropped("peer_gone"), 4);
    // Its flows begin at the other.
    members.feed(0, packets(1..9));
    assert_eq!(members.runtime(1).stats().flows, 8);
    assert_eq!(sent(&mut members) - before, 12);
    // It hears of it in the end, and has no effect.
    hear(&mut members, 1, &second);
    assert!(members.runtime(0).membership_mut().unwrap().is_fenced());
    members.run_until_quiet();
    members.check();
}

#[test]
fn a_worker_that_joins_meets_the_next_incarnation_of_one_that_was_removed_before() {
    let mut members = with_leases();
    // Both runtimes are removed. The first begins again, and meets the second, which has not heard
    // of it.
    let third = view(3, &[(ALL[0], 1)]);
    hear(&mut members, 0, &third);
    let fourth = view(4, &[(ALL[0], 1), (ALL[1], 2)]);
    members.stop(1);
    members.start(1);
    begin(&mut members, 1, 2, fourth.clone());
    hear(&mut members, 0, &fourth);
    members.run_until_quiet();
    // Then the second begins again.
    let fifth = view(5, &[(ALL[0], 1), (ALL[1], 2), (ALL[2], 2)]);
    members.stop(2);
    members.start(2);
    begin(&mut members, 2, 2, fifth.clone());
    hear(&mut members, 0, &fifth);
    hear(&mut members, 1, &fifth);
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    // They know each other: groups move between them.
    members.feed(0, packets(1..9));
    assert_eq!(members.flows(), vec![4, 4]);
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1],
    };
    members.runtime(0).order(order).unwrap();
    members.run_until_quiet();
    assert_eq!(members.flows(), vec![0, 8]);
    members.check();
}

#[test]
fn a_switch_that_joins_late_waits_from_then_on_to_be_told() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    assert_eq!(members.flows(), vec![4, 4]);
    members.stop(0);
    members.run_until_quiet();
    // To join takes longer than the switch waits at most.
    members.start(0);
    members.switch(0).wait_for_resync(LEASE / 2);
    members.now += 4 * LEASE;
    let second = view(2, &[(ALL[0], 2), (ALL[1], 1), (ALL[2], 1)]);
    begin(&mut members, 0, 2, second.clone());
    hear(&mut members, 1, &second);
    hear(&mut members, 2, &second);
    members.switch(0).port_mut(0).input.extend(packets(1..9));
    // One runtime's grant is enough to act, and the other has not told what it has.
    for _ in 0..40 {
        members.now += 1000;
        members.step(0);
        members.step(2);
    }
    assert_eq!(members.flows(), vec![4, 4]);
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    assert_eq!(members.flows(), vec![4, 4]);
    members.check();
}

#[test]
fn a_switch_that_begins_again_waits_for_each_runtime_of_its_view_and_no_time_decides() {
    for is_removed in [false, true] {
        let mut members = with_leases();
        members.feed(0, packets(1..9));
        assert_eq!(members.flows(), vec![4, 4]);
        members.stop(0);
        members.run_until_quiet();
        members.start(0);
        members.switch(0).wait_for_resync(LEASE / 2);
        let second = view(2, &[(ALL[0], 2), (ALL[1], 1), (ALL[2], 1)]);
        begin(&mut members, 0, 2, second.clone());
        hear(&mut members, 1, &second);
        hear(&mut members, 2, &second);
        members.switch(0).port_mut(0).input.extend(packets(1..9));
        // It does not hear one of them, for many times as long as it waits at most.
        for _ in 0..100 {
            members.now += LEASE / 4;
            for _ in 0..4 {
                members.now += 1000;
                members.step(0);
                members.step(2);
            }
        }
        assert_eq!(members.flows(), vec![4, 4]);
        assert_eq!(members.switch(0).port_mut(0).input.len(), 8);
        assert!(!members.switch(0).is_linked());
        let mut unheard = vec![];
        let now = members.now;
        let machine = members.switch(0).membership_mut().unwrap();
        machine.unheard(now, |id, _| unheard.push(id));
        assert_eq!(unheard, vec![ALL[1]]);
        if is_removed {
            let third = view(3, &[(ALL[0], 2), (ALL[2], 1)]);
            hear(&mut members, 0, &third);
            hear(&mut members, 2, &third);
            for _ in 0..12 {
                members.now += LEASE / 4;
                for _ in 0..4 {
                    members.now += 1000;
                    members.step(0);
                    members.step(2);
                }
            }
            assert_eq!(members.runtime(1).stats().flows, 8, "the rest begins there");
            hear(&mut members, 1, &third);
        }
        for _ in 0..12 {
            members.now += LEASE / 4;
            members.run_until_quiet();
        }
        if !is_removed {
            assert_eq!(members.flows(), vec![4, 4]);
        }
        assert!(members.switch(0).port_mut(0).input.is_empty());
    }
}

#[test]
fn a_runtime_joins_when_all_switches_that_run_hear_it_and_takes_no_groups_before() {
    let (switches, runtimes) = (WorkerId::switch, WorkerId::runtime);
    let ids = [switches(0), switches(1), runtimes(0), runtimes(1)];
    let stands = |number, standing| {
        let member = |id| Member {
            id,
            incarnation: Incarnation(1),
            standing: if id == ids[2] { standing } else { Standing::Running },
        };
        View::new(number, ids.map(member).to_vec())
    };
    let first = stands(1, Standing::Joining);
    let mut members = Members::none(2, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    for (worker, id) in ids.into_iter().enumerate() {
        members.start(worker);
        let machine = Membership::new(id, Incarnation(1), TERM, first.clone());
        match worker {
            0 | 1 => members.switch(worker).begin_membership(machine),
            _ => members.runtime(worker - 2).begin_membership(machine),
        }
    }
    // The second switch does not hear it.
    for _ in 0..40 {
        members.now += LEASE / 4;
        for _ in 0..4 {
            members.now += 1000;
            for worker in [0, 2, 3] {
                members.step(worker);
            }
        }
    }
    let now = members.now;
    let machine = members.runtime(0).membership_mut().unwrap();
    assert!(machine.may_act(now), "the first one does");
    assert!(!members.runtime(0).is_linked());
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    assert!(members.runtime(0).is_linked());
    assert!(members.runtime(1).knows_leaving(0));
    let second = stands(2, Standing::Running);
    for worker in 0..4 {
        let machine = match worker {
            0 | 1 => members.switch(worker).membership_mut(),
            _ => members.runtime(worker - 2).membership_mut(),
        };
        machine.unwrap().adopt(second.clone(), |_| ());
        match worker {
            0 | 1 => members.switch(worker).members(2, &[]),
            _ => members.runtime(worker - 2).members(2, &[]),
        }
    }
    members.run_until_quiet();
    assert!(!members.runtime(1).knows_leaving(0));
}

#[test]
fn without_leases_the_door_ends_what_was_a_workers() {
    let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    members.feed(0, packets(1..9));
    let gone = [WorkerGone {
        worker: ALL[1],
        incarnation: Incarnation(1),
    }];
    members.switch(0).members(1, &gone);
    members.runtime(1).members(1, &gone);
    // Said again, it changes nothing.
    members.switch(0).members(1, &gone);
    members.feed(0, packets(1..9));
    assert_eq!(members.runtime(1).stats().flows, 8);
    members.check();
}

#[test]
fn switches_grant_each_other_over_their_own_link() {
    let ids = [WorkerId::switch(0), WorkerId::switch(1), WorkerId::runtime(0)];
    let first = view(1, &ids.map(|id| (id, 1)));
    let mut members = Members::none(2, 1, Policy::LeastLoaded, plan(vec![factory::<Meter>()]));
    for (worker, id) in ids.into_iter().enumerate() {
        members.start(worker);
        let machine = Membership::new(id, Incarnation(1), TERM, first.clone());
        match worker {
            2 => members.runtime(0).begin_membership(machine),
            _ => members.switch(worker).begin_membership(machine),
        }
    }
    for _ in 0..12 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    // Of four votes the second switch has one, and the runtime's is not enough.
    assert!((0..2).all(|switch| members.switch(switch).is_linked()));
    members.feed(1, packets(1..9));
    members.feed(0, packets(1..9));
    let out: usize = (0..2)
        .map(|switch| members.switch(switch).port_mut(0).output.len())
        .sum();
    assert_eq!((out, members.dropped("no_lease")), (16, 0));
    members.check();
}

/// Plays an incarnation that a view has removed, which meets a worker and says something behind its
/// incarnation.
fn say_as_removed(members: &mut Members, (from, to): (usize, usize), says: &[Message]) {
    members.play(from, true);
    members.step(to);
    members.say(from, to, |frame| {
        Message::begin(frame);
        for message in [Message::LeaseAsked(1, 1, 7)].iter().chain(says) {
            assert!(message.append(frame));
        }
    });
    members.say(from, to, |frame| {
        Message::begin(frame);
        for message in says {
            assert!(message.append(frame));
        }
    });
    for _ in 0..4 {
        members.now += 1000;
        members.step(to);
    }
    members.stop(from);
}

#[test]
fn what_a_removed_runtime_says_behind_its_incarnation_is_dropped() {
    let plan = plan(vec![factory::<Leaser>(), factory::<Service>()]);
    let mut members = Members::none(1, 2, Policy::LeastLoaded, plan);
    for worker in 0..3 {
        members.start(worker);
        begin(&mut members, worker, 1, first());
    }
    for _ in 0..8 {
        members.now += LEASE / 4;
        members.run_until_quiet();
    }
    members.stop(1);
    let second = view(2, &[(ALL[0], 1), (ALL[2], 1)]);
    hear(&mut members, 0, &second);
    hear(&mut members, 2, &second);
    // The host's group begins at the other runtime.
    members.feed(0, packets(1..2));
    let known = |members: &mut Members| {
        let stats = members.switch(0).stats();
        (stats.routes, stats.blocks)
    };
    let before = known(&mut members);
    assert_eq!(before, (1, 1));
    let group = GroupKey::of_address(nf::Addr::v4([10, 0, 0, 1]));
    let block = nf::Block {
        addr: nf::Addr::v4(OURS),
        first: 9024,
        ports: 64,
    };
    // It was moving the group when it was removed, and has not heard of that.
    let says = [
        Message::Routed(group),
        Message::BlockTentative(block, group),
        Message::DrainMarker(group, RuntimeId(1), Epoch::default()),
        Message::Resynced,
    ];
    say_as_removed(&mut members, (1, 0), &says);
    members.run_until_quiet();
    assert_eq!(known(&mut members), before);
    members.check();
}

#[test]
fn what_a_removed_switch_says_behind_its_incarnation_is_dropped() {
    let mut members = with_leases();
    members.feed(0, packets(1..9));
    assert_eq!(members.flows(), vec![4, 4]);
    members.stop(0);
    let second = view(2, &[(ALL[1], 1), (ALL[2], 1)]);
    hear(&mut members, 1, &second);
    hear(&mut members, 2, &second);
    let flow = members.runtime(0).flows(0, 1).0[0].key;
    let says = [Message::RouteConflict(GroupKey::of_flow(flow)), Message::Resynced];
    say_as_removed(&mut members, (0, 1), &says);
    members.step(1);
    assert_eq!(members.flows(), vec![4, 4]);
}

#[test]
fn an_incarnation_that_was_removed_before_a_worker_began_is_not_heard_there() {
    for since in [1, 9] {
        let mut members = with_leases();
        members.stop(1);
        members.stop(2);
        // Both are removed, and one begins again with a view that never had the other.
        let fourth = view(4, &[(ALL[0], 1), (ALL[2], 2)]);
        hear(&mut members, 0, &view(3, &[(ALL[0], 1)]));
        hear(&mut members, 0, &fourth);
        members.start(2);
        begin(&mut members, 2, 2, fourth);
        members.run_until_quiet();
        members.play(1, true);
        members.step(2);
        members.say(1, 2, |frame| {
            Message::begin(frame);
            for record in [Record::Incarnation(1, since), Record::Leaving(true)] {
                assert!(record.append(frame));
            }
        });
        for _ in 0..4 {
            members.now += 1000;
            members.step(2);
        }
        // An incarnation of a view that is not here yet is heard.
        assert_eq!(members.runtime(1).knows_leaving(0), since == 9);
        members.stop(1);
    }
}
