//! A group that has just moved ends at its target, which fails before its source has read *Done*:
//! the heir says that it is over, and the source does not take its older state back.

use super::copied_moves::cut;
use super::copied_whole;
use super::failing::Process;
use super::replica::{Stamp, out};
use super::{factory, plan};
use crate::chain::Plan;
use crate::mobility::{MoveOrder, Selector};
use crate::replica::BROKEN;
use crate::replica::policy::Policy as Copied;
use std::vec;
use std::vec::Vec;

const FLOWS: u16 = 5;
/// Of three runtimes the first has the flows.
const SOURCE: usize = 0;
const SECOND: u64 = 1_000_000_000;

fn order(process: &mut Process, from: usize, to: usize) {
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![to as u16],
    };
    process.runtimes[from].as_mut().unwrap().order(order).unwrap();
}

/// Steps of workers in turn.
fn steps(process: &mut Process, workers: &[usize], rounds: usize) {
    for _ in 0..rounds {
        for worker in workers {
            process.now += 1000;
            process.step(*worker);
        }
    }
}

/// Flows move, and end at their target, which fails then: of what it has sent its replica reads so
/// many records, and the source nothing. Whether there were more, and how many flows there are.
fn ends_at_the_target(plan: Plan, packets: &[super::Sent], target: usize, records: usize) -> (bool, u64) {
    let replica = (target + 1) % 3;
    let mut process = Process::new(1, 3, true, plan);
    process.feed(0, packets.iter().cloned());
    for other in [1, 2] {
        order(&mut process, other, SOURCE);
        process.run_until_quiet();
    }
    assert_eq!(process.flows()[SOURCE], u64::from(FLOWS));
    let before = process.runtimes[target].as_ref().unwrap().stats().flows_moved[0];
    order(&mut process, SOURCE, target);
    let third = 3 - SOURCE - target;
    for worker in [0, 1 + SOURCE, 1 + third, 1 + target]
        .into_iter()
        .cycle()
        .take(800)
    {
        let runtime = process.runtimes[target].as_ref().unwrap();
        if runtime.stats().flows_moved[0] == before + u64::from(FLOWS) {
            break;
        }
        process.now += 1000;
        process.step(worker);
    }
    assert_eq!(process.flows()[target], u64::from(FLOWS), "they are installed");
    let deleted = process.runtimes[target]
        .as_mut()
        .unwrap()
        .delete_flows(&Selector::All, 0);
    assert_eq!(deleted.ended, u64::from(FLOWS));
    steps(&mut process, &[1 + target], 2);
    let is_cut = cut(&mut process, [target, replica], records);
    if replica != SOURCE {
        // It acknowledges, so that the target says *Done*, which the source does not hear.
        steps(&mut process, &[1 + replica, 1 + target], 4);
        cut(&mut process, [target, SOURCE], 0);
    }
    process.fail(target);
    for _ in 0..8 {
        process.run_until_quiet();
        process.now += SECOND / 2;
    }
    let left = process.flows().iter().sum();
    // Flows that go on have their routes and blocks, and end; nothing else is left.
    process.assert_all_is_home("the flows are over");
    (is_cut, left)
}

/// How many flows there are behind each number of records, and behind all.
fn ends_behind_each(plan: &Plan, packets: &[super::Sent], target: usize) -> Vec<u64> {
    let mut left = Vec::new();
    loop {
        let (is_cut, flows) = ends_at_the_target(plan.clone(), packets, target, left.len());
        left.push(flows);
        if !is_cut {
            return left;
        }
    }
}

fn all() -> [(Plan, Vec<super::Sent>); 2] {
    let alone = (0..FLOWS).map(|n| out(3000 + n)).collect();
    let grouped = (1..=FLOWS).map(copied_whole::from).collect();
    [
        (plan(vec![factory::<Stamp>()]), alone),
        (copied_whole::plan(Copied::Commit), grouped),
    ]
}

#[test]
fn a_source_takes_no_group_back_that_has_ended_at_its_target() {
    for (plan, packets) in all() {
        for target in [1, 2] {
            let left = ends_behind_each(&plan, &packets, target);
            // Before the replica knows of the first end all go on.
            assert!(left.len() > 2, "{left:?}");
            assert!(left.iter().all(|flows| *flows <= u64::from(FLOWS)), "{left:?}");
            assert!(left.is_sorted_by(|a, b| a >= b), "{target}: {left:?}");
            assert_eq!(left.last(), Some(&0), "{target}: {left:?}");
        }
    }
}

#[test]
fn an_heir_that_does_not_say_what_has_ended_is_noticed() {
    for (plan, packets) in all() {
        for target in [1, 2] {
            BROKEN.set("the heir hears of ends");
            let (_, left) = ends_at_the_target(plan.clone(), &packets, target, usize::MAX);
            BROKEN.set("");
            assert_eq!(
                left,
                u64::from(FLOWS),
                "to {target}: the older state is taken back"
            );
        }
    }
}
