//! A replica takes another's place, and the primary fails behind any step of that.

use super::copied_whole;
use super::lent::{Lender, fill};
use super::replica::{out, stamped, stamps_of};
use super::sessions::Members;
use super::{factory, plan, udp};
use crate::replica::policy::Policy as Copied;
use crate::replica::{BEHIND, BROKEN, WALKED};
use crate::switch::Policy;
use std::collections::HashMap;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// Flows, by their ports: a third of them is at the first runtime.
const PORTS: core::ops::Range<u16> = 2000..2060;
/// Workers: a switch, the primary, its replica, and the next one.
const WORKERS: usize = 4;
/// In which orders the workers take their steps.
const ORDERS: [[usize; WORKERS]; 3] = [[1, 0, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]];

/// Why another replica takes the place of the one in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Ordered,
    Leaves,
}

fn replace(members: &mut Members, why: Why) {
    match why {
        Why::Ordered => members.runtime(0).set_replica(Some(2)).unwrap(),
        Why::Leaves => members.runtime(1).set_leaving(true),
    }
}

/// The primary fails behind so many single steps of the workers in this order, packets coming with
/// each; its last records are lost or not. Which runtime its flows went on at.
fn fail_behind(why: Why, steps: usize, order: usize, is_lost: bool) -> Result<usize, String> {
    let what = format!("{why:?}, {steps} steps in order {order}, lost {is_lost}");
    let mut members = stamped(1, 3, Policy::RoundRobin);
    members.feed(0, PORTS.map(out));
    let before = members.flows();
    if before != [20, 20, 20] || members.runtime(0).stats().protected_by != Some(1) {
        return Err(format!("{before:?}: {what}"));
    }
    replace(&mut members, why);
    let mut ports = PORTS.cycle();
    for step in 0..steps {
        // Of flows of each runtime; one in eight begins.
        let mut packets: Vec<_> = ports.by_ref().take(7).map(out).collect();
        if step % 8 == 0 {
            packets.push(out(3000 + step as u16));
        }
        members.switch(0).port_mut(0).input.extend(packets);
        members.now += 1000;
        members.step(ORDERS[order][step % WORKERS]);
    }
    if is_lost {
        (0..WORKERS).for_each(|other| members.lose(1, other));
    }
    // Frames that it has not read are lost with it.
    members.lose(0, 1);
    members.stop(1);
    members.run_until_quiet();
    for _ in 0..2 {
        members.feed(0, PORTS.map(out));
    }
    members.assert_one_home();
    let recovered = [1, 2].map(|runtime| members.runtime(runtime).stats().recovered);
    let [[at_old, lost], [at_next, lost_too]] = recovered;
    if at_old + at_next < before[0] || at_old.min(at_next) != 0 || lost + lost_too != 0 {
        return Err(format!("recovered: {recovered:?}, {what}"));
    }
    for (port, stamps) in stamps_of(members.sent()) {
        let grow = stamps.is_sorted_by(|a, b| a < b);
        if !grow || PORTS.contains(&port) && stamps.len() < 3 {
            return Err(format!("{port}: {stamps:?}, {what}"));
        }
    }
    members.assert_nothing_stays();
    Ok(if at_old > 0 { 1 } else { 2 })
}

/// Whether each failure lets all go on: how many times at either runtime.
fn fail_behind_each(orders: usize) -> Result<HashMap<usize, usize>, String> {
    WALKED.set(4);
    let mut heirs = HashMap::new();
    for why in [Why::Ordered, Why::Leaves] {
        for order in 0..orders {
            for steps in 0..56 {
                for is_lost in [false, true] {
                    *heirs.entry(fail_behind(why, steps, order, is_lost)?).or_default() += 1;
                }
            }
        }
    }
    Ok(heirs)
}

#[test]
fn flows_go_on_while_another_replica_takes_the_place_of_theirs() {
    let heirs = fail_behind_each(ORDERS.len()).unwrap();
    // Before that is done, and behind it.
    assert!(heirs[&1] > 40 && heirs[&2] > 40, "{heirs:?}");
}

#[test]
fn rules_of_another_replica_are_noticed_if_they_are_broken() {
    for rule in [
        "the one before is kept until then",
        "a second base counts when it is whole",
        "what waits goes by the other base",
        "changes go to both",
    ] {
        BROKEN.set(rule);
        let outcome = std::panic::catch_unwind(|| fail_behind_each(1).is_err());
        BROKEN.set("");
        assert!(
            outcome.unwrap_or(true),
            "{rule}: a rule that is broken is noticed"
        );
    }
}

/// From this port of one host: its flows are one group, with blocks of ports.
fn of_host(port: u16) -> super::Sent {
    copied_whole::from(port)
}

/// The same of a group of flows with wide states and blocks: both are of one time.
fn group_goes_on(why: Why, steps: usize, is_lost: bool) -> Result<(), String> {
    let what = format!("{why:?}, {steps} steps, lost {is_lost}");
    let mut members = Members::copied(1, 3, Policy::RoundRobin, copied_whole::plan(Copied::Commit));
    // Groups of other hosts are at the others.
    for host in [2, 3] {
        members.feed(0, [udp(host, u16::from(host) + 18, 1, 80, false, &[0; 8])]);
    }
    members.feed(0, (1..=9).map(of_host));
    if members.flows() != [9, 1, 1] {
        return Err(format!("{:?}: {what}", members.flows()));
    }
    replace(&mut members, why);
    for step in 0..steps {
        let port = 1 + step as u16 % 12;
        members.switch(0).port_mut(0).input.push_back(of_host(port));
        members.now += 1000;
        members.step(ORDERS[0][step % WORKERS]);
    }
    if is_lost {
        (0..WORKERS).for_each(|other| members.lose(1, other));
    }
    // Frames that it has not read are lost with it.
    members.lose(0, 1);
    members.stop(1);
    members.run_until_quiet();
    let before = members.sent().len();
    members.feed(0, (1..=12).map(of_host));
    let flows = members.flows();
    if flows[0] != 0 || flows[1].min(flows[2]) != 1 || flows[1].max(flows[2]) != 13 {
        return Err(format!("{flows:?}: {what}"));
    }
    let number = |frame: &[u8], at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let sent = members.sent();
    let (mut seen, mut sum) = (HashMap::new(), 0);
    for (index, (_, frame)) in sent.iter().enumerate() {
        let (port, count) = (u16::from_be_bytes([frame[20], frame[21]]), number(frame, 28));
        if port > 12 {
            continue;
        }
        if seen.insert(port, count).is_some_and(|known| known >= count) {
            return Err(format!("{count} packets of {port}: {what}"));
        }
        sum = number(frame, 32);
        if index >= before && port <= 9 && count < 2 {
            return Err(format!("{port} begins again: {what}"));
        }
    }
    // The group has counted what its flows have.
    match sum == seen.values().sum::<u32>() {
        true => Ok(()),
        false => Err(format!("{sum} of {seen:?}: {what}")),
    }
}

fn group_goes_on_behind_each() -> Result<(), String> {
    WALKED.set(2);
    for why in [Why::Ordered, Why::Leaves] {
        for steps in 0..60 {
            for is_lost in [false, true] {
                group_goes_on(why, steps, is_lost)?;
            }
        }
    }
    Ok(())
}

#[test]
fn groups_go_on_while_another_replica_takes_the_place_of_theirs() {
    assert_eq!(group_goes_on_behind_each(), Ok(()));
    BROKEN.set("changes go to both");
    let outcome = std::panic::catch_unwind(|| group_goes_on_behind_each().is_err());
    BROKEN.set("");
    assert!(outcome.unwrap_or(true), "a rule that is broken is noticed");
}

/// Blocks of ports are sent at once, and are more than a next replica may be behind.
fn with_blocks() -> Option<u16> {
    BEHIND.set(3);
    let mut members = Members::copied(1, 3, Policy::LeastLoaded, plan(vec![factory::<Lender>()]));
    fill(&mut members, 0, 1..22);
    assert_eq!(members.runtime(0).stats().protected_by, Some(1));
    replace(&mut members, Why::Leaves);
    members.run_until_quiet();
    members.runtime(0).stats().protected_by
}

/// The next replica takes no step for some milliseconds, and then reads.
fn with_a_late_one() -> Option<u16> {
    BEHIND.set(64);
    WALKED.set(1);
    let mut members = stamped(1, 3, Policy::RoundRobin);
    members.feed(0, PORTS.map(out));
    replace(&mut members, Why::Leaves);
    for _ in 0..80 {
        members.switch(0).port_mut(0).input.extend(PORTS.map(out));
        for worker in [0, 1, 2, 0] {
            members.now += 1_000_000;
            members.step(worker);
        }
    }
    members.run_until_quiet();
    members.runtime(0).stats().protected_by
}

#[test]
fn a_next_replica_has_time_to_read() {
    for protected_by in [with_blocks, with_a_late_one] {
        assert_eq!(protected_by(), Some(2));
        BROKEN.set("a next one has time");
        let outcome = std::panic::catch_unwind(protected_by);
        BROKEN.set("");
        assert_ne!(outcome.ok(), Some(Some(2)), "a rule that is broken is noticed");
    }
}
