//! Calls that are merged at their runtime.

use super::super::{Sent, udp};
use super::{World, set};
use crate::stats::ObjectStats;

/// A packet of each of so many flows to one host, that is counted with others.
fn merged(ports: core::ops::Range<u16>) -> impl Iterator<Item = Sent> {
    ports.map(|port| udp(1, port, 1, 53, false, b"m"))
}

#[test]
fn what_is_merged_is_counted_in_few_messages() {
    let mut world = World::new(3, set(0..3));
    for _ in 0..3 {
        world.feed(merged(1000..1100));
    }
    assert_eq!(world.sent(), 300, "no packet waits");
    world.pass_merged();
    assert_eq!(world.read(1), 300);
    let kinds = world.kinds();
    let sum = |of: fn(&ObjectStats) -> u64| kinds.iter().map(of).sum::<u64>();
    assert_eq!((sum(|of| of.calls[2]), sum(|of| of.failed)), (300, 0));
    // Two runtimes merged within 10 ms, twice at most; the read went to another one at most.
    assert!(sum(|of| of.remote) <= 5, "{kinds:?}");
    world.process.assert_all_is_home("merged");
}

/// A read that is not to be stale sees what its own runtime has merged before.
#[test]
fn a_read_has_what_its_runtime_has_merged() {
    let mut world = World::new(2, set(0..2));
    world.pass();
    for _ in 0..10 {
        world.process.feed(0, merged(1000..1001));
    }
    let waiting = |world: &World| world.kinds().iter().map(|of| of.calls[2]).sum::<u64>();
    assert_eq!((world.sent(), waiting(&world)), (10, 0), "nothing was due");
    // Of the same flow, so at the same runtime.
    world.feed([udp(1, 1000, 1, 53, false, b"r")]);
    assert_eq!((world.counted("read"), waiting(&world)), (10, 10));
}

/// Nothing was due yet when each of them left.
#[test]
fn a_runtime_that_leaves_has_sent_what_it_merged() {
    let mut world = World::new(3, set(0..3));
    for leaving in 0..3 {
        world.process.feed(0, merged(1000..1100));
        let members = set((0..3).filter(|runtime| *runtime != leaving));
        assert!(world.conductor.change(members));
        world.tell();
        // Calls that come while it leaves, and cannot be counted there any more, are refused.
        world.process.feed(0, merged(1100..1120));
        world.conduct();
        world.pass_merged();
        world.begin(leaving, u64::from(leaving) + 2);
        world.conduct();
    }
    let (sent, refused) = (world.sent(), world.dropped("late"));
    assert_eq!((sent + refused, world.read(1)), (360, sent));
    assert!(sent >= 300 && refused > 0, "{sent}, {refused}");
    world.process.assert_all_is_home("merged, leaving");
}

/// A runtime that fails takes with it what it had merged within the last 10 ms, and nothing is
/// counted twice.
#[test]
fn a_runtime_that_fails_loses_what_had_not_gone() {
    for failing in 0..3 {
        let mut world = World::new(3, set(0..3));
        world.feed(merged(1000..1100));
        world.pass_merged();
        world.process.feed(0, merged(1100..1150));
        world.process.fail(failing);
        world.process.run_until_quiet();
        world.conductor.fail(set([failing as u16]));
        world.conduct();
        world.pass_merged();
        let count = world.read(1);
        assert!((100..=150).contains(&count), "{failing}: {count} counted");
        world.process.assert_all_is_home("merged, failure");
    }
}
