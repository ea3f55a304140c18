//! Runtimes that fail with a switch, or while a switch begins: incarnations that it has not met,
//! and others' copies of them.

use super::lent::{Lender, fill};
use super::replica::*;
use super::sessions::{Members, SECOND};
use super::*;
use crate::switch::Policy;
use protocols::ownership::Phase;
use std::vec;

/// A runtime fails with a switch, and both begin again: the switch, which has never met the failed
/// incarnation, hears of the copies. With another incarnation in between, too.
fn fail_with_a_switch(switches: usize, incarnations: usize, runs_until_quiet: bool) {
    let what = std::format!("{switches} switches, {incarnations} incarnations, {runs_until_quiet}");
    let mut members = Members::copied(switches, 3, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..10);
    let before = members.flows();
    let failed = switches;
    members.stop(0);
    members.stop(failed);
    for _ in 0..incarnations {
        members.start(failed);
        if runs_until_quiet {
            // The other runtimes see that it failed before there is a switch to tell.
            for _ in 0..200 {
                members.now += 1000;
                for runtime in failed..failed + 3 {
                    members.step(runtime);
                }
            }
        }
    }
    members.start(0);
    members.switch(0).wait_for_resync(SECOND);
    members.run_until_quiet();
    assert_eq!(members.runtime(1).stats().recovered, [before[0], 0], "{what}");
    assert_eq!(members.flows().iter().sum::<u64>(), 9, "{what}");
    members.assert_one_home();
    members.assert_blocks_are_known(&what);
    // The runtime that is there again gives out nothing that is in use.
    fill(&mut members, 0, 1..10);
    fill(&mut members, switches - 1, 20..35);
    members.assert_one_home();
    members.assert_blocks_are_known(&what);
    members.assert_nothing_stays();
}

#[test]
fn flows_go_on_when_a_switch_fails_with_their_runtime() {
    for (switches, incarnations, runs_until_quiet) in [
        (1, 1, false),
        (1, 1, true),
        (1, 2, false),
        (2, 1, false),
        (2, 1, true),
    ] {
        fail_with_a_switch(switches, incarnations, runs_until_quiet);
    }
    crate::replica::BROKEN.set("unmet incarnations are suspended");
    let outcome = std::panic::catch_unwind(|| fail_with_a_switch(1, 1, false));
    crate::replica::BROKEN.set("");
    assert!(outcome.is_err(), "the broken rule is noticed");
}

/// A runtime fails with the only switch, and both begin again before the other runtime, which has
/// copies, sees that it failed. Answers how many flows there were, how many went on, and how many
/// there are.
fn fail_unseen() -> [u64; 3] {
    let mut members = Members::none(1, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    (members.is_replicated, members.apart) = (true, Some((1, 2)));
    (0..3).for_each(|worker| members.start(worker));
    members.meet();
    members.run_until_quiet();
    fill(&mut members, 0, 1..10);
    let before = members.flows();
    members.stop(0);
    members.stop(1);
    members.apart = Some((1, 2));
    members.start(1);
    members.start(0);
    members.switch(0).wait_for_resync(SECOND);
    fill(&mut members, 0, 1..10);
    members.meet();
    members.run_until_quiet();
    members.assert_one_home();
    members.assert_blocks_are_known("seen");
    let recovered = members.runtime(1).stats().recovered[0];
    [before[0], recovered, members.flows().iter().sum()]
}

#[test]
fn a_switch_that_begins_waits_for_those_that_have_not_seen_a_runtime_fail() {
    assert_eq!(fail_unseen(), [5, 5, 9]);
    crate::replica::BROKEN.set("words of removed incarnations are awaited");
    let outcome = std::panic::catch_unwind(|| assert_eq!(fail_unseen(), [5, 5, 9]));
    crate::replica::BROKEN.set("");
    assert!(outcome.is_err(), "the broken rule is noticed");
}

/// A runtime has begun apart from a switch when the other one fails, whose copies it has. Answers
/// how many flows there were, how many went on before it met the switch, and how many then.
fn fail_beside_an_heir_that_begins() -> [u64; 3] {
    let mut members = Members::none(2, 2, Policy::LeastLoaded, plan(vec![factory::<Stamp>()]));
    (members.is_replicated, members.apart) = (true, Some((1, 3)));
    (0..4).for_each(|worker| members.start(worker));
    members.run_until_quiet();
    for switch in [0, 1] {
        members.feed(switch, (0..20).map(|n| out(2000 + n)));
    }
    let before = members.flows();
    assert_eq!(before[1], 0);
    members.stop(2);
    members.run_until_quiet();
    let early = members.runtime(1).stats().recovered[0];
    members.meet();
    members.run_until_quiet();
    for switch in [0, 1] {
        members.feed(switch, (0..20).map(|n| out(2000 + n)));
    }
    members.assert_one_home();
    members.assert_nothing_stays();
    [before[0], early, members.runtime(1).stats().recovered[0]]
}

#[test]
fn an_heir_that_begins_waits_for_switches_that_it_has_not_met() {
    assert_eq!(fail_beside_an_heir_that_begins(), [20, 0, 20]);
    crate::replica::BROKEN.set("members that were not met are waited for");
    let outcome = std::panic::catch_unwind(fail_beside_an_heir_that_begins);
    crate::replica::BROKEN.set("");
    let is_noticed = outcome.map_or(true, |[_, early, _]| early > 0);
    assert!(is_noticed, "the broken rule is noticed");
}

/// A switch begins again while a runtime has claimed the blocks of copies and installed none, and
/// does not wait to be told: it leads a group of the copies there as a new one.
#[test]
fn a_group_that_begins_anew_at_an_heir_has_none_of_the_blocks_of_its_copy() {
    let (failed, heir) = (2, 3);
    let mut members = Members::copied(2, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..7);
    assert_eq!(members.flows(), [3, 3]);
    members.stop(failed);
    for step in 0.. {
        members.now += 1000;
        for worker in [0, 1, heir] {
            members.step(worker);
        }
        if members.runtime(1).blocks().len() == 6 {
            break;
        }
        assert!(step < 1000, "the heir claims blocks");
    }
    members.start(1);
    let packets = (1..7).map(super::groups::packet_of);
    members.switch(1).port_mut(0).input.extend(packets);
    for worker in [1, 1, heir, heir] {
        members.now += 1000;
        members.step(worker);
    }
    assert_eq!(members.runtime(1).stats().recovered, [0, 0]);
    let begun = members.flows()[1] - 3;
    assert!(begun > 0, "a group begins at the heir");
    members.run_until_quiet();
    // A flow that is here counts as gone on.
    assert_eq!(members.runtime(1).stats().recovered, [3, 0]);
    members.assert_one_home();
    members.assert_blocks_are_known("at the heir");
    members.start(failed);
    members.run_until_quiet();
    members.assert_blocks_are_known("beside the next incarnation");
    members.assert_nothing_stays();
}

const SOURCE: usize = 1;
const TARGET: usize = 3;

/// All flows of the first runtime are to move to the third, which has agreed, and the source has
/// said where they go: how many.
fn told_where_they_go(members: &mut Members) -> usize {
    let order = crate::mobility::MoveOrder {
        selector: crate::mobility::Selector::All,
        to: vec![2],
    };
    members.runtime(0).order(order).unwrap();
    for worker in [SOURCE, TARGET, SOURCE] {
        members.now += 1000;
        members.step(worker);
    }
    let told = members.runtime(0).moves_under_way();
    let is_told = |phase: &Phase| matches!(phase, Phase::Rerouting { .. });
    told.iter().filter(|(_, phase)| is_told(phase)).count()
}

/// Flows of the first runtime move to the third, which has agreed when it dies and begins again.
/// Their source stands still: the switch meets the next incarnation before it reads where they go,
/// and the source hears that switch before it sees the end of the incarnation that has agreed
/// (`bridge` 100531824). Answers how many stamps were given twice.
fn move_to_an_incarnation_before() -> usize {
    let mut members = stamped(1, 3, Policy::LeastLoaded);
    members.feed(0, (0..30).map(|n| out(2000 + n)));
    let flows = members.flows()[0] as usize;
    assert!(flows > 0);
    assert_eq!(told_where_they_go(&mut members), flows);
    // The source's messages are on their way.
    let word = members.queues[&(SOURCE, 0)].take();
    let before = members.incarnations[TARGET].get();
    members.start(TARGET);
    for worker in [0, TARGET, 2].into_iter().cycle().take(60) {
        members.now += 1000;
        members.step(worker);
    }
    members.queues[&(SOURCE, 0)].replace(word);
    for _ in 0..4 {
        members.now += 1000;
        members.step(0);
    }
    // It goes on, and has not heard of the next incarnation.
    let unseen = members.queues[&(TARGET, SOURCE)].take();
    let next = members.set_seen(TARGET, before);
    for _ in 0..4 {
        members.now += 1000;
        members.step(SOURCE);
    }
    members.set_seen(TARGET, next);
    members.queues[&(TARGET, SOURCE)].replace(unseen);
    for _ in 0..12 {
        let packets = (0..30).map(|n| out(2000 + n));
        members.switch(0).port_mut(0).input.extend(packets);
        members.run_until_quiet();
        members.now += SECOND / 2;
    }
    members.run_until_quiet();
    members.assert_one_home();
    let left = [0, 1, 2].map(|runtime| members.runtime(runtime).moves_left().len());
    assert_eq!(left, [0; 3]);
    let twice = stamps_of(members.sent()).into_values().map(|mut stamps| {
        let count = stamps.len();
        stamps.sort_unstable();
        stamps.dedup();
        count - stamps.len()
    });
    twice.sum()
}

#[test]
fn a_group_is_not_led_to_the_next_incarnation_of_the_target_that_has_agreed() {
    assert_eq!(move_to_an_incarnation_before(), 0);
    crate::replica::BROKEN.set("a target's incarnation is named");
    let twice = move_to_an_incarnation_before();
    crate::replica::BROKEN.set("");
    assert_ne!(twice, 0, "a rule that is broken is noticed");
}

/// The same without copies, and the source is cut off from the switch alone: it sees the end of the
/// incarnation that has agreed, and calls the flows back behind the word that they go (`inspect`
/// 101504750). Answers how many begin at the next incarnation, by a packet between the two words.
fn begun_at_the_next_incarnation() -> u64 {
    const FLOWS: u16 = 10;
    let plan = plan(vec![factory::<Stamp>()]);
    let mut members = Members::all(1, 3, Policy::LeastLoaded, plan);
    for other in [1, 2] {
        members.switch(0).set_leaving(other, true);
    }
    let packets = || (0..FLOWS).map(|n| out(2000 + n));
    members.feed(0, packets());
    assert_eq!(members.flows(), [u64::from(FLOWS), 0, 0]);
    assert!(told_where_they_go(&mut members) > 0);
    let word = members.queues[&(SOURCE, 0)].take();
    members.start(TARGET);
    for worker in [0, TARGET, 2].into_iter().cycle().take(60) {
        members.now += 1000;
        members.step(worker);
    }
    assert_eq!(members.flows(), [u64::from(FLOWS), 0, 0]);
    // The first word comes, and packets, before the source says more.
    members.queues[&(SOURCE, 0)].replace(word);
    members.step(0);
    members.switch(0).port_mut(0).input.extend(packets());
    for worker in [0, TARGET].into_iter().cycle().take(20) {
        members.now += 1000;
        members.step(worker);
    }
    let begun = members.flows()[2];
    if begun == 0 {
        members.run_until_quiet();
        assert!(members.runtime(0).moves_left().is_empty());
        assert_eq!(members.flows(), [u64::from(FLOWS), 0, 0]);
    }
    begun
}

#[test]
fn without_copies_a_group_begins_at_no_incarnation_that_has_not_agreed() {
    assert_eq!(begun_at_the_next_incarnation(), 0);
    crate::replica::BROKEN.set("a target's incarnation is named");
    let begun = begun_at_the_next_incarnation();
    crate::replica::BROKEN.set("");
    assert_ne!(begun, 0, "a rule that is broken is noticed");
}
