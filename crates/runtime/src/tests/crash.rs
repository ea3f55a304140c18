//! Who crashes while groups with blocks of ports move: the blocks are with their groups afterwards, at every switch, and given to nobody else.

use super::lent::{Lender, fill};
use super::sessions::{Members, SECOND, everywhere};
use super::*;
use crate::switch::Policy;
use std::format;
use std::vec;

/// Two switches, then the source and the target of a move.
const SWITCHES: usize = 2;
const SOURCE: usize = 2;
const TARGET: usize = 3;

/// In which order workers take single steps: none ahead; the target ahead of the switches; switches that are slow.
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

/// Whether who crashed begins anew.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Anew {
    AtOnce,
    Later,
    /// Behind new flows at the other one.
    MuchLater,
}

/// `lost`: to which switches what it had just sent is lost with it.
fn crash_after(order: &[usize], steps: usize, who: usize, lost: &[usize], anew: Anew) {
    let what = format!("{who} after {steps} steps of {order:?}, lost {lost:?}, {anew:?}");
    let mut members = on_their_way(order, steps);
    members.stop(who);
    for switch in lost {
        members.lose(who, *switch);
    }
    if anew == Anew::AtOnce {
        members.start(who);
    }
    members.settle();
    members.assert_one_home();
    members.assert_blocks_are_known(&what);
    if anew == Anew::MuchLater {
        fill(&mut members, 1, 20..23);
        members.assert_blocks_are_known(&what);
    }
    if anew != Anew::AtOnce {
        members.start(who);
        members.settle();
    }
    // Who begins anew has blocks to give, but those that are in use.
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
            for anew in [Anew::AtOnce, Anew::Later, Anew::MuchLater] {
                for who in [SOURCE, TARGET] {
                    for lost in [&[][..], &[0], &[1], &[0, 1]] {
                        crash_after(order, steps, who, lost, anew);
                    }
                }
            }
        }
    }
}
