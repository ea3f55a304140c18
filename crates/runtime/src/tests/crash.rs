//! A worker crashes while groups with blocks of ports move: the blocks are with their groups
//! afterwards, at every switch, and given to no other group.

use super::flows::{Masquerade, Meter};
use super::groups::{frame, inside, outside, packet_of};
use super::lent::{Lender, fill};
use super::replica::{out, stamped, stamps_of};
use super::sessions::{Members, SECOND, everywhere};
use super::*;
use crate::message::Message;
use crate::mobility;
use crate::switch::Policy;
use protocols::ownership::{Epoch, RuntimeId, SwitchMessage};
use std::format;
use std::string::String;
use std::vec;

/// Two switches, then the source and the target of a move.
const SOURCE: usize = 2;
const TARGET: usize = 3;

/// In which order workers take single steps: none ahead; the target ahead of the switches; switches
/// that are slow.
const ORDERS: [&[usize]; 4] = [
    &[SOURCE, 0, TARGET, 1],
    &[SOURCE, TARGET, SOURCE, 1, TARGET, 0],
    &[
        SOURCE, TARGET, SOURCE, TARGET, SOURCE, TARGET, 0, SOURCE, TARGET, SOURCE, TARGET, 1,
    ],
    &[1, 0, TARGET, SOURCE],
];

/// Three hosts of the source, with a block each, on their way to the target, which has three, too.
fn on_their_way(order: &[usize], steps: usize) -> Members {
    let mut members = Members::all(2, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..7);
    assert_eq!(members.flows(), [3, 3]);
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    for step in 0..steps {
        members.now += 1000;
        members.step(order[step % order.len()]);
    }
    members
}

/// When the runtime that crashed begins again.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Again {
    AtOnce,
    Later,
    /// Behind new flows at the other one.
    MuchLater,
}

/// `lost`: to which switches what it had just sent is lost with it.
fn crash_after(order: &[usize], steps: usize, worker: usize, lost: &[usize], again: Again) {
    let what = format!("{worker} after {steps} steps of {order:?}, lost {lost:?}, {again:?}");
    let mut members = on_their_way(order, steps);
    members.stop(worker);
    for switch in lost {
        members.lose(worker, *switch);
    }
    if again == Again::AtOnce {
        members.start(worker);
    }
    members.run_until_quiet();
    members.assert_one_home();
    members.assert_blocks_are_known(&what);
    if again == Again::MuchLater {
        fill(&mut members, 1, 20..23);
        members.assert_blocks_are_known(&what);
    }
    if again != Again::AtOnce {
        members.start(worker);
        members.run_until_quiet();
    }
    // The runtime that begins again has blocks to give, without those in use.
    fill(&mut members, 1, 10..15);
    members.assert_one_home();
    members.assert_blocks_are_known(&what);
    members.check();
    assert_eq!(
        members.runtime(0).moves_left().len() + members.runtime(1).moves_left().len(),
        0,
        "{what}"
    );
    members.assert_nothing_stays();
}

#[test]
fn blocks_stay_with_their_groups_when_a_runtime_crashes() {
    for order in ORDERS {
        for steps in (0..40).step_by(if cfg!(miri) { 9 } else { 1 }) {
            for again in [Again::AtOnce, Again::Later, Again::MuchLater] {
                for worker in [SOURCE, TARGET] {
                    for lost in [&[][..], &[0], &[1], &[0, 1]] {
                        crash_after(order, steps, worker, lost, again);
                    }
                }
            }
        }
    }
}

#[test]
fn a_group_that_begins_anew_before_a_switch_knows_leaves_no_block_there() {
    let mut members = Members::all(2, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..7);
    assert_eq!(members.flows(), [3, 3]);
    members.stop(TARGET);
    let packets = (1..7).map(packet_of);
    members.switch(0).port_mut(0).input.extend(packets);
    // The second switch is stuck meanwhile; then it hears of their new blocks before it sees that
    // the second runtime is gone.
    for _ in 0..20 {
        members.now += 1000;
        members.step(0);
        members.step(SOURCE);
    }
    assert!(
        members.flows()[0] > 3,
        "some have begun again: {:?}",
        members.flows()
    );
    members.run_until_quiet();
    members.assert_blocks_are_known("without it");
    members.start(TARGET);
    members.run_until_quiet();
    members.assert_blocks_are_known("with it");
    members.check();
    members.assert_nothing_stays();
}

/// After how long a switch on another host is missed: two seconds
/// (`peer::PeerSettings::dead_after_ns`).
const MISSED_AFTER: u64 = 2 * SECOND;

/// A switch that is stuck, alone with two runtimes while all flows of the first move, until it is
/// missed; and then whatever was on its way.
fn move_behind_a_dead_switch(timeout: u64) -> (Members, mobility::Receipt) {
    let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..13);
    assert_eq!(members.flows(), [6, 6]);
    (0..2).for_each(|runtime| members.runtime(runtime).set_move_timeout(timeout));
    let number = members.runtime(0).order(everywhere(0, 2)).unwrap();
    let until = members.now + MISSED_AFTER;
    while members.now < until {
        members.now += SECOND / 1000;
        for runtime in 1..3 {
            members.step(runtime);
        }
    }
    assert_eq!(members.flows()[0], 6, "no home has answered");
    members.stop(0);
    // Moves that take too long are looked for at every 64th step.
    for _ in 0..3 {
        members.run_until_quiet();
        members.now += SECOND;
        for step in 0..128 {
            members.step(1 + step % 2);
        }
    }
    members.run_until_quiet();
    let receipt = members.runtime(0).receipt(number).unwrap();
    (members, receipt)
}

#[test]
fn a_move_whose_only_switch_dies_goes_on_without_it() {
    // As members do (`flowkeep`: `run::build`): longer than it takes to miss a switch.
    let (members, receipt) = move_behind_a_dead_switch(4 * SECOND);
    assert_eq!(
        (receipt.is_over, receipt.moved, receipt.failed),
        (true, 6, 0),
        "{receipt:?}"
    );
    assert_eq!(members.flows(), [0, 12]);
    back_with_a_switch(members);
}

#[test]
fn a_group_that_is_called_back_without_a_switch_comes_back() {
    let (mut members, receipt) = move_behind_a_dead_switch(SECOND);
    assert_eq!(
        (receipt.is_over, receipt.moved, receipt.failed),
        (true, 0, 6),
        "{receipt:?}"
    );
    assert_eq!(members.flows(), [6, 6]);
    let left = [members.runtime(0).moves_left(), members.runtime(1).moves_left()];
    assert_eq!(left, [vec![], vec![]] as [Vec<std::string::String>; 2]);
    back_with_a_switch(members);
}

#[test]
fn a_target_that_has_not_heard_of_a_call_back_is_told_again() {
    let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..13);
    assert_eq!(members.flows(), [6, 6]);
    (0..2).for_each(|runtime| members.runtime(runtime).set_move_timeout(SECOND));
    let number = members.runtime(0).order(everywhere(0, 2)).unwrap();
    // The two agree while the switch is stuck, until the source has waited for it too long.
    for step in 0..40 {
        members.step(1 + step % 2);
    }
    members.now += SECOND;
    for step in 0..128 {
        members.step(1 + step % 2);
    }
    // The switch says so to a target that is no more, as far as it knows by then.
    for _ in 0..8 {
        members.step(0);
    }
    members.lose(0, 2);
    members.run_until_quiet();
    let receipt = members.runtime(0).receipt(number).unwrap();
    assert_eq!((receipt.is_over, receipt.under_way), (false, 6), "{receipt:?}");
    members.now += SECOND;
    members.run_until_quiet();
    let receipt = members.runtime(0).receipt(number).unwrap();
    assert_eq!(
        (receipt.is_over, receipt.moved, receipt.failed),
        (true, 0, 6),
        "{receipt:?}"
    );
    let left = [members.runtime(0).moves_left(), members.runtime(1).moves_left()];
    assert_eq!(left, [vec![], vec![]] as [Vec<std::string::String>; 2]);
    members.assert_one_home();
    members.check();
    members.assert_nothing_stays();
}

/// A switch begins again: flows are where they were, and take packets.
fn back_with_a_switch(mut members: Members) {
    let there = members.flows();
    members.start(0);
    members.run_until_quiet();
    members.assert_blocks_are_known("with a switch again");
    let before: u64 = (0..2)
        .map(|runtime| members.runtime(runtime).stats().passed)
        .sum();
    fill(&mut members, 0, 1..13);
    let after: u64 = (0..2)
        .map(|runtime| members.runtime(runtime).stats().passed)
        .sum();
    assert_eq!((members.flows(), after - before), (there, 12));
    members.assert_one_home();
    members.check();
    members.assert_nothing_stays();
}

#[test]
fn blocks_come_home_while_a_switch_is_not_there() {
    let mut members = Members::all(2, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..7);
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    members.run_until_quiet();
    assert_eq!(members.flows(), [0, 6]);
    members.stop(1);
    members.run_until_quiet();
    members.now += 20 * SECOND;
    members.run_until_quiet();
    assert_eq!(members.flows(), [0, 0]);
    // Each runtime gives as many hosts a block as it has of its own.
    let mut hosts = 10..200;
    while members.dropped("no_block") == 0 {
        let host = hosts.next().unwrap();
        fill(&mut members, 0, host..host + 1);
    }
    assert_eq!(
        members.flows()[0],
        8,
        "the first has all of its blocks again: {:?}",
        members.flows()
    );
}

#[test]
fn a_slot_whose_source_is_gone_leaves_no_route_where_flows_are_by_themselves() {
    for order in ORDERS {
        for steps in 0..24 {
            let mut members = Members::all(2, 2, Policy::RoundRobin, plan(vec![factory::<Meter>()]));
            fill(&mut members, 0, 1..41);
            members.runtime(0).order(everywhere(0, 2)).unwrap();
            for step in 0..steps {
                members.now += 1000;
                members.step(order[step % order.len()]);
            }
            members.stop(SOURCE);
            // More than the target reads in a step: its word about the slot is behind some of them,
            // and it says none about others.
            members
                .switch(0)
                .port_mut(0)
                .input
                .extend((50..250).map(packet_of));
            for worker in [0, 1, 0, 1, 0, 1] {
                members.now += 1000;
                members.step(worker);
            }
            members.assert_nothing_stays();
        }
    }
}

#[test]
fn a_late_word_of_a_slot_leaves_no_block_of_what_began_when_it_was_closed() {
    const FROM: usize = 1;
    const TO: usize = 2;
    let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..7);
    members.runtime(0).set_move_timeout(SECOND);
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    for worker in [FROM, TO, FROM] {
        members.now += 1000;
        members.step(worker);
    }
    // The groups are re-routed, with more packets behind that than the target reads in a step;
    // their source never hears of it, and calls them back.
    let packets = (0..8).flat_map(|_| (1..7).map(packet_of));
    members.switch(0).port_mut(0).input.extend(packets);
    for _ in 0..3 {
        members.now += 1000;
        members.step(0);
    }
    members.lose(0, FROM);
    members.now += 2 * SECOND;
    for _ in 0..128 {
        members.step(FROM);
    }
    members.step(0);
    members.stop(FROM);
    members.run_until_quiet();
    members.assert_one_home();
    members.assert_blocks_are_known("with the source gone");
    fill(&mut members, 0, 1..7);
    assert_eq!(members.flows(), [0, 6]);
    members.assert_blocks_are_known("again");
    members.start(FROM);
    members.run_until_quiet();
    members.check();
    members.assert_nothing_stays();
}

#[test]
fn a_flow_that_begins_with_a_reply_while_its_group_moves_is_at_one_runtime() {
    let mut members = Members::all(1, 2, Policy::RoundRobin, plan(vec![factory::<Masquerade>()]));
    fill(&mut members, 0, 1..2);
    assert_eq!(members.flows(), [0, 1]);
    members.runtime(1).order(everywhere(1, 2)).unwrap();
    // The source has asked, and the flow is over when a reply to it comes, which opens another by
    // the key that the reply has.
    members.step(2);
    let reply = || frame((outside(1), 53), ([203, 0, 113, 1], 2000));
    members.switch(0).port_mut(0).input.push_back(reply());
    members.step(0);
    members.now += 400 * SECOND;
    members.step(2);
    members.feed(0, [reply(), reply()]);
    members.assert_one_home();
    assert_eq!(members.flows(), [1, 0]);
    members.check();
    members.assert_nothing_stays();
}

#[test]
fn a_call_back_that_is_heard_twice_takes_nothing_that_began_again_meanwhile() {
    let mut members = Members::all(
        2,
        2,
        Policy::RoundRobin,
        plan(vec![factory::<Meter>(), factory::<Masquerade>()]),
    );
    let open = |j: u8| frame((inside(1), 4), (outside(j), 80));
    let reply = |j: u8| frame((outside(j), 80), ([203, 0, 113, 1], 1004));
    members.feed(0, (1..25).map(open));
    members.runtime(0).set_move_timeout(SECOND);
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    // The two agree while switches are slow, until the source has waited for them too long.
    for step in 0..40 {
        members.step(SOURCE + step % 2);
    }
    members.now += SECOND;
    for step in 0..128 {
        members.step(SOURCE + step % 2);
    }
    members.now += 2 * SECOND;
    // Both switches answer, and bring replies, which end the flows when they are back.
    members.switch(1).port_mut(0).input.extend((1..25).map(reply));
    for _ in 0..4 {
        members.step(1);
        members.step(0);
    }
    // The source hears that, and says it again; the second switch is stuck from here on.
    for _ in 0..8 {
        members.step(SOURCE);
    }
    for _ in 0..64 {
        members.now += 1000;
        for worker in [TARGET, SOURCE, 0] {
            members.step(worker);
        }
    }
    assert_eq!(members.runtime(0).moves_left(), [] as [std::string::String; 0]);
    assert_eq!(members.flows(), [0, 0]);
    // They begin again, each at the other runtime.
    members
        .switch(0)
        .port_mut(0)
        .input
        .push_back(frame((inside(2), 4), (outside(1), 80)));
    members.switch(0).port_mut(0).input.extend((1..25).map(open));
    for _ in 0..64 {
        members.now += 1000;
        for worker in [0, TARGET, SOURCE] {
            members.step(worker);
        }
    }
    members.run_until_quiet();
    members.check();
    let moved = [0, 1].map(|runtime| members.runtime(runtime).stats().flows_moved);
    assert_eq!(
        moved,
        [[0, 0]; 2],
        "no runtime has taken them, and no runtime has them"
    );
}

/// A move goes on for so many steps, then for others in which the source stands still; then the
/// target dies, and its last words to the source are lost. The source may have the target's copies
/// itself. The worker `first` sees it before the others do. `with_home`: the switch dies with the
/// target, and begins again when all have seen that.
fn last_word_is_lost(
    [source, target]: [usize; 2],
    [before, steps]: [usize; 2],
    first: usize,
    with_home: bool,
) -> Result<(), String> {
    let mut members = stamped(1, 3, Policy::RoundRobin);
    members.feed(0, (0..30).map(|n| out(2000 + n)));
    let order = mobility::MoveOrder {
        selector: mobility::Selector::All,
        to: vec![target as u16],
    };
    members.runtime(source).order(order).unwrap();
    for step in 0..before {
        members.now += 1000;
        members.step(step % 4);
    }
    let packets = (0..30).map(|n| out(2000 + n));
    members.switch(0).port_mut(0).input.extend(packets);
    let others = [0, 1 + target, 1 + (3 - source - target)];
    for step in 0..steps {
        members.now += 1000;
        members.step(others[step % 3]);
    }
    members.stop(1 + target);
    members.lose(1 + target, 1 + source);
    if with_home {
        members.stop(0);
    }
    for _ in 0..20 {
        members.now += 1000;
        members.step(first);
    }
    if with_home {
        members.run_until_quiet();
        members.start(0);
        members.switch(0).wait_for_resync(SECOND);
    }
    for _ in 0..12 {
        members.run_until_quiet();
        members.now += SECOND / 2;
    }
    members.feed(0, (0..30).map(|n| out(2000 + n)));
    let what = format!("{source} to {target} after {before} and {steps}, {first} first, {with_home}");
    members.assert_one_home();
    if members.flows().iter().sum::<u64>() != 30 {
        return Err(format!("{:?} flows: {what}", members.flows()));
    }
    let left = [source, 3 - source - target].map(|runtime| members.runtime(runtime).moves_left().len());
    assert_eq!(left, [0, 0], "{what}");
    for (port, mut stamps) in stamps_of(members.sent()) {
        let count = stamps.len();
        stamps.sort_unstable();
        stamps.dedup();
        if stamps.len() != count {
            return Err(format!("a stamp of {port} was given twice: {what}"));
        }
    }
    Ok(())
}

#[test]
fn a_source_takes_no_group_back_that_an_heir_has() {
    let all = || -> Result<(), String> {
        for ends in [[0, 1], [1, 0]] {
            for first in [0, 1 + ends[0], 3] {
                for before in 0..40 {
                    for steps in [6, 12, 36] {
                        last_word_is_lost(ends, [before, steps], first, false)?;
                    }
                }
            }
        }
        Ok(())
    };
    assert_eq!(all(), Ok(()));
    crate::replica::BROKEN.set("what is taken back waits for an heir");
    let outcome = all();
    crate::replica::BROKEN.set("");
    assert!(outcome.is_err(), "a rule that is broken is noticed");
}

#[test]
fn a_source_takes_no_group_back_that_an_heir_has_when_its_home_is_gone_too() {
    let all = || -> Result<(), String> {
        for ends in [[0, 1], [1, 0]] {
            for first in [1 + ends[0], 3] {
                for before in 0..40 {
                    for steps in [6, 12, 36] {
                        last_word_is_lost(ends, [before, steps], first, true)?;
                    }
                }
            }
        }
        Ok(())
    };
    assert_eq!(all(), Ok(()));
    crate::replica::BROKEN.set("what is taken back waits for its home");
    let outcome = all();
    crate::replica::BROKEN.set("");
    assert!(outcome.is_err(), "a rule that is broken is noticed");
}

/// A source calls groups back from an incarnation of its target that is over; the next incarnation,
/// where they have begun by themselves, is told. It was offered others before, or not.
fn word_for_an_incarnation_before(was_offered: bool) -> Members {
    let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..9);
    let groups = members.runtime(1).group_keys();
    assert_eq!(groups.len(), 4);
    if was_offered {
        members.runtime(0).order(everywhere(0, 2)).unwrap();
        members.run_until_quiet();
        assert_eq!(members.flows(), [0, 8]);
    }
    for group in groups {
        members.say(0, 2, |frame| {
            Message::begin(frame);
            let back = SwitchMessage::Moved(RuntimeId(0), Epoch::default().next());
            assert!(Message::Switch(group, back).append(frame));
        });
    }
    members.run_until_quiet();
    assert_eq!(members.flows().iter().sum::<u64>(), 4);
    members
}

#[test]
fn switches_forget_the_blocks_of_a_group_that_a_late_word_ends() {
    for was_offered in [false, true] {
        let mut members = word_for_an_incarnation_before(was_offered);
        members.assert_blocks_are_known("others' alone");
        members.assert_nothing_stays();
    }
    crate::replica::BROKEN.set("blocks of a copy are doubted");
    let mut members = word_for_an_incarnation_before(true);
    crate::replica::BROKEN.set("");
    assert_eq!(members.switch(0).stats().blocks, 8, "the broken rule is noticed");
}

#[test]
fn a_group_that_a_word_for_the_incarnation_before_ends_gives_its_block_back() {
    for rule in ["", "incarnations that were offered none"] {
        crate::replica::BROKEN.set(rule);
        let mut members = word_for_an_incarnation_before(false);
        crate::replica::BROKEN.set("");
        // Both runtimes have room for eight groups.
        fill(&mut members, 0, 20..32);
        let has_room = members.flows() == [8, 8];
        assert_eq!(has_room, rule.is_empty(), "{rule}: {:?}", members.flows());
    }
}

/// A switch's word that groups go back to a source's incarnation before comes when that is over;
/// later they move, and are called back with the same epochs. Returns the moves left at the target.
fn called_back_as_in_the_incarnation_before(steps: usize) -> Vec<String> {
    let mut members = Members::all(1, 2, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..3);
    assert_eq!(members.flows(), [1, 1]);
    for group in members.runtime(0).group_keys() {
        // As the second change of hands: of the first one the target hears as an offer.
        let epoch = Epoch::default().next().next();
        members.say(0, 2, |frame| {
            Message::begin(frame);
            let back = SwitchMessage::Moved(RuntimeId(0), epoch);
            assert!(Message::Switch(group, back).append(frame));
        });
    }
    members.run_until_quiet();
    members.runtime(0).order(everywhere(0, 2)).unwrap();
    for step in 0..steps {
        members.now += 1000;
        members.step([1, 2, 1, 0][step % 4]);
    }
    members.runtime(0).call_back_all();
    members.run_until_quiet();
    assert_eq!(members.flows().iter().sum::<u64>(), 2);
    members.runtime(1).moves_left()
}

#[test]
fn a_slot_hears_that_it_is_called_back_though_an_incarnation_before_had_the_same_said() {
    let left = || -> Vec<String> {
        (0..16)
            .flat_map(called_back_as_in_the_incarnation_before)
            .collect()
    };
    assert_eq!(left(), Vec::<String>::new());
    crate::replica::BROKEN.set("words that slots await are heard");
    let left = left();
    crate::replica::BROKEN.set("");
    assert!(!left.is_empty(), "the broken rule is noticed");
}
