//! Workers that learn late: of a runtime's end, of its heir, of a refusal.

use super::flows::Masquerade;
use super::groups::{frame, outside, packet_of};
use super::replica::{Stamp, moving, out, stamps};
use super::sessions::{Members, SECOND, everywhere};
use super::*;
use crate::replica::BROKEN;
use crate::switch::Policy;
use std::vec;

/// Flows of the first runtime move to the third, and after so many steps the first fails. The
/// target sees that before the switch does, which sends it more packets. How many flows there are
/// then at most.
fn fail_unseen_by_a_switch(steps: usize) -> u64 {
    let mut members = moving(steps);
    let incarnation = members.incarnations[1].get();
    members.lose(1, 3);
    members.stop(1);
    let mut most = 0;
    let mut go_on = |members: &mut Members, worker: usize| {
        members.now += 1000;
        members.step(worker);
        most = members.flows().iter().sum::<u64>().max(most);
    };
    for worker in [3, 2, 3] {
        go_on(&mut members, worker);
    }
    members.incarnations[1].set(incarnation);
    let packets = (0..30).map(|n| out(3000 + n));
    members.switch(0).port_mut(0).input.extend(packets);
    go_on(&mut members, 0);
    members.incarnations[1].set(0);
    for worker in [3, 3, 0, 2].into_iter().cycle().take(400) {
        go_on(&mut members, worker);
    }
    most
}

#[test]
fn a_target_begins_no_group_again_whose_source_a_switch_takes_for_alive() {
    for (is_broken, most) in [(false, 30), (true, 40)] {
        if is_broken {
            BROKEN.set("slots of failed sources are barred");
        }
        let flows = (0..60).map(fail_unseen_by_a_switch).max();
        BROKEN.set("");
        assert_eq!(flows, Some(most));
    }
}

fn steps(members: &mut Members, workers: &[usize], count: usize) {
    for worker in workers.iter().cycle().take(count) {
        members.now += 1000;
        members.step(*worker);
    }
}

/// A runtime fails, and its heir, once it has reported, takes no step for longer than packets wait.
/// Then the heir alone takes some.
fn stand_still_as_heir() {
    let mut members = Members::none(1, 3, Policy::RoundRobin, plan(vec![factory::<Stamp>()]));
    (members.is_replicated, members.recovery_max) = (true, SECOND);
    (0..4).for_each(|worker| members.start(worker));
    members.run_until_quiet();
    members.feed(0, (0..60).map(|n| out(2000 + n)));
    let before = members.flows();
    members.stop(1);
    steps(&mut members, &[2], 3);
    steps(&mut members, &[0, 3], 40);
    members.now += SECOND;
    let packets = (0..60).map(|n| out(2000 + n));
    members.switch(0).port_mut(0).input.extend(packets);
    steps(&mut members, &[0, 3], 40);
    for _ in 0..20 {
        steps(&mut members, &[2], 1);
        members.assert_one_home();
    }
    members.run_until_quiet();
    assert_eq!(members.runtime(1).stats().recovered, [before[0], 0]);
    for (port, stamps) in stamps(&mut members) {
        assert_eq!(stamps.iter().max(), Some(&2), "{port}");
    }
    members.assert_one_home();
    members.assert_nothing_stays();
}

#[test]
fn an_heir_that_stood_still_longer_than_packets_wait_has_what_no_other_has() {
    stand_still_as_heir();
    BROKEN.set("late heirs are told");
    let outcome = std::panic::catch_unwind(stand_still_as_heir);
    BROKEN.set("");
    assert!(outcome.is_err(), "the broken rule is noticed");
}

/// Two flows of one key move to each other's runtimes at once: the second is ordered as said, while
/// the first one's question is on its way.
fn move_past_each_other(order_second: impl FnOnce(&mut Members)) {
    let mut members = Members::all(1, 2, Policy::RoundRobin, plan(vec![factory::<Masquerade>()]));
    // A flow that began with a reply, at the second runtime.
    members.feed(0, [frame((outside(1), 53), ([203, 0, 113, 1], 2000))]);
    assert_eq!(members.flows(), [0, 1]);
    // Another at the first one, whose reply key is that one's key: the switch is about to refuse
    // it.
    members.switch(0).port_mut(0).input.push_back(packet_of(1));
    members.step(0);
    members.step(1);
    assert_eq!(members.flows(), [1, 1]);
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    members.step(1);
    let held = members.queues[&(1, 2)].take();
    order_second(&mut members);
    members.queues[&(1, 2)].replace(held);
    members.run_until_quiet();
    let refused = [0, 1].map(|r| members.runtime(r).stats().words_refused);
    members.assert_one_home();
    members.check();
    assert_eq!(refused, [0, 0]);
}

#[test]
fn flows_of_one_key_that_move_past_each_other_are_no_refused_word() {
    move_past_each_other(|members| {
        members.runtime(1).order(everywhere(1, 2)).unwrap();
        members.step(2);
    });
}

#[test]
fn a_move_given_up_before_it_hears_that_it_is_refused_is_no_refused_word() {
    move_past_each_other(|members| {
        members.runtime(1).set_move_timeout(0);
        members.runtime(1).order(everywhere(1, 2)).unwrap();
        // Time is looked at in each 64th step.
        for _ in 0..65 {
            members.step(2);
        }
    });
}
