//! A flow that is a group by itself has just moved: its source keeps it until the target's replica
//! has it. The target fails behind any of its records, and each flow goes on.

use super::copied_moves::cut;
use super::failing::Process;
use super::replica::{Stamp, out, stamps_of};
use super::{factory, plan};
use crate::mobility::{MoveOrder, Selector};
use crate::replica::BROKEN;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

const SECOND: u64 = 1_000_000_000;
const FLOWS: u16 = 6;
/// Of three runtimes the first has the flows.
const SOURCE: usize = 0;

fn packets() -> impl Iterator<Item = super::Sent> {
    (0..FLOWS).map(|n| out(3000 + n))
}

/// All flows are at the first runtime, and have had two packets each.
fn begun() -> Process {
    let mut process = Process::new(1, 3, true, plan(vec![factory::<Stamp>()]));
    process.feed(0, packets());
    for other in [1, 2] {
        order(&mut process, other, SOURCE);
        process.run_until_quiet();
    }
    process.feed(0, packets());
    assert_eq!(process.flows()[SOURCE], u64::from(FLOWS));
    process
}

fn order(process: &mut Process, from: usize, to: usize) {
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![to as u16],
    };
    process.runtimes[from].as_mut().unwrap().order(order).unwrap();
}

/// The flows move, and their target fails when it has installed all of them: of what it has sent
/// its replica reads so many records, and the source nothing, or all. With `another`, its replica
/// fails before, so that another base is under way. Whether there were more records, and the stamps
/// of each flow's packets, if one has not gone on.
fn target_fails(
    (target, is_heard): (usize, bool),
    records: usize,
    another: Option<usize>,
) -> (bool, Result<(), String>) {
    let replica = (target + 1) % 3;
    let mut process = begun();
    let before = process.runtimes[target].as_ref().unwrap().stats().flows_moved[0];
    order(&mut process, SOURCE, target);
    // The replica takes no step from the first flow on.
    let third = 3 - SOURCE - target;
    let mut workers = vec![0, 1 + SOURCE, 1 + third, 1 + target];
    let moved = |process: &Process| {
        let stats = process.runtimes[target].as_ref().unwrap().stats();
        stats.flows_moved[0] - before
    };
    for at in 0..800 {
        match moved(&process) {
            n if n == u64::from(FLOWS) => break,
            1.. if replica != SOURCE => workers.retain(|worker| *worker != 1 + replica),
            _ => {}
        }
        process.now += 1000;
        process.step(workers[at % workers.len()]);
    }
    assert_eq!(moved(&process), u64::from(FLOWS), "they are installed");
    let mut rounds = 4;
    if let Some(replica) = another {
        process.fail(replica);
        rounds = 1;
    }
    for _ in 0..rounds {
        process.now += 1000;
        process.step(1 + target);
    }
    let to = match another {
        Some(_) => SOURCE,
        None => replica,
    };
    let is_cut = cut(&mut process, [target, to], records);
    if to != SOURCE {
        if !is_heard {
            cut(&mut process, [target, SOURCE], 0);
        } else {
            process.now += 1000;
            process.step(1 + SOURCE);
        }
    }
    process.fail(target);
    for _ in 0..8 {
        process.run_until_quiet();
        process.now += SECOND / 2;
    }
    process.feed(0, packets());
    process.feed(0, packets());
    let what = format!("to {target}, heard: {is_heard}, {records} records, another: {another:?}");
    let stamps = stamps_of(process.switches[0].port_mut(0).output.clone());
    let is_on = |stamps: &Vec<u32>| stamps.as_slice() == [1, 2, 3, 4];
    let goes_on = stamps.len() == usize::from(FLOWS) && stamps.values().all(is_on);
    let flows = process.flows();
    match goes_on && flows.iter().sum::<u64>() == u64::from(FLOWS) {
        true => (is_cut, Ok(())),
        false => (is_cut, Err(format!("{what}: {flows:?}, {stamps:?}"))),
    }
}

/// Behind how many records a failure is seen.
fn target_fails_behind_each(target: (usize, bool), another: Option<usize>) -> Result<usize, String> {
    let mut records = 0;
    loop {
        let (is_cut, goes_on) = target_fails(target, records, another);
        goes_on?;
        if !is_cut {
            return Ok(records);
        }
        records += 1;
    }
}

#[test]
fn a_flow_that_has_just_moved_is_at_the_replica_or_at_its_source() {
    for target in [(1, false), (1, true), (2, false)] {
        let records = target_fails_behind_each(target, None);
        assert!(records.as_ref().is_ok_and(|records| *records > 5), "{records:?}");
    }
}

#[test]
fn of_another_base_all_of_it_is_waited_for() {
    let records = target_fails_behind_each((1, true), Some(2));
    assert!(records.as_ref().is_ok_and(|records| *records > 5), "{records:?}");
}

#[test]
fn a_flow_that_is_done_before_it_is_copied_is_noticed() {
    BROKEN.set("copies are there before done");
    let outcome = target_fails_behind_each((1, true), None);
    BROKEN.set("");
    assert!(outcome.is_err(), "a rule that is broken is noticed");
}
