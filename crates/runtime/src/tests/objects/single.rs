//! Objects with one writer, and objects that end by time.

use super::super::{Sent, udp};
use super::{World, set};
use crate::stats::ObjectStats;
use std::vec::Vec;

/// A packet of each of so many flows to one host, with this payload.
fn those(ports: core::ops::Range<u16>, what: &'static [u8]) -> impl Iterator<Item = Sent> {
    ports.map(move |port| udp(1, port, 1, 53, false, what))
}

#[test]
fn an_object_with_one_writer_goes_to_the_runtime_that_uses_it() {
    let mut world = World::new(3, set(0..3));
    for what in [b"f", b"g"] {
        world.feed(those(1000..1100, what));
    }
    assert_eq!((world.sent(), world.dropped("late")), (200, 0));
    assert_eq!(world.count(b"q", 1, 1), 200);
    let totals = world.kind("totals");
    let sum = |of: fn(&ObjectStats) -> u64| totals.iter().map(of).sum::<u64>();
    assert_eq!((sum(|of| of.objects), sum(|of| of.copies)), (1, 1));
    assert_eq!((sum(|of| of.calls[3]), sum(|of| of.failed)), (200, 0));
    let moves = sum(|of| of.moves);
    assert!(moves >= 2, "all three runtimes have had it: {moves}");
    assert!(moves <= 200, "{moves} moves: at most one for each call");
    world.process.assert_conserved("single");
    world.process.assert_all_is_home("single");
}

/// At one runtime, and once it is there: no message, and no packet waits.
#[test]
fn an_object_that_is_here_is_had_without_a_message() {
    let mut world = World::new(2, set(0..2));
    // One flow, so one runtime.
    world.feed(those(1000..1001, b"f"));
    let before = world.kind("totals");
    for _ in 0..50 {
        world.process.feed(0, those(1000..1001, b"f"));
        let waiting = world.process.runtimes.iter().flatten().map(|r| r.stats().waiting);
        assert_eq!(waiting.sum::<u64>(), 0);
    }
    world.pass();
    let after = world.kind("totals");
    let remote = |of: &[ObjectStats]| of.iter().map(|of| (of.remote, of.moves)).collect::<Vec<_>>();
    assert_eq!(remote(&before), remote(&after));
    assert_eq!(world.count(b"q", 1, 1), 51);
    // An object that was not used for a while comes back to the runtime, and is had again.
    world.process.now += 2_000_000_000;
    world.pass();
    world.feed(those(1000..1001, b"g"));
    assert_eq!(world.count(b"q", 1, 1), 52);
    world.feed(those(1000..1001, b"y"));
    assert_eq!(world.count(b"q", 1, 1), 0);
    world.process.assert_all_is_home("here");
}

#[test]
fn no_released_change_is_lost_with_a_runtime() {
    for failing in 0..3 {
        let mut world = World::new(3, set(0..3));
        world.feed(those(1000..1050, b"g"));
        world.process.switches[0]
            .port_mut(0)
            .input
            .extend(those(1050..1080, b"g"));
        for step in 0..7 {
            world.process.now += 1000;
            world.process.step(step % 5);
        }
        world.process.fail(failing);
        world.process.run_until_quiet();
        world.conductor.fail(set([failing as u16]));
        world.conduct();
        let sent = world.sent();
        let count = world.count(b"q", 1, 1);
        assert!(
            count >= sent && count <= 80,
            "{failing}: {sent} left, {count} counted"
        );
        world.process.follow(failing);
        world.begin(failing as u16, 2);
        world.conduct();
        world.feed(those(2000..2100, b"g"));
        assert_eq!((world.sent(), world.count(b"q", 2, 1)), (sent + 101, count + 100));
        world.process.assert_all_is_home("single, failure");
    }
}

#[test]
fn a_runtime_that_leaves_gives_up_what_it_has_alone() {
    let mut world = World::new(3, set(0..3));
    for leaving in 0..3 {
        world.feed(those(1000..1040, b"f"));
        let members = set((0..3).filter(|runtime| *runtime != leaving));
        assert!(world.conductor.change(members));
        world.conduct();
        let left = world.process.runtimes[usize::from(leaving)].as_ref().unwrap();
        assert_eq!(left.objects().unwrap().keys, 0);
        world.begin(leaving, u64::from(leaving) + 2);
        world.conduct();
    }
    assert_eq!((world.count(b"q", 1, 1), world.dropped("late")), (120, 0));
    world.process.assert_all_is_home("single, leaving");
}

#[test]
fn an_object_that_is_not_called_for_long_ends() {
    let mut world = World::new(3, set(0..3));
    let objects = |world: &World| {
        let brief = world.kind("brief");
        let sum = |of: fn(&ObjectStats) -> u64| brief.iter().map(of).sum::<u64>();
        (sum(|of| of.objects), sum(|of| of.copies))
    };
    for host in 1..20 {
        assert_eq!(world.count(b"i", 1, host), 1);
    }
    // The first one has ended since, and begins again.
    for _ in 0..30 {
        // A call in each 2 ms, for 60 ms: longer than the others live.
        world.count(b"i", 2, 1);
    }
    assert_eq!((objects(&world), world.count(b"i", 3, 1)), ((1, 1), 31));
    for _ in 0..20 {
        world.pass();
    }
    assert_eq!(objects(&world), (0, 0));
    assert_eq!(world.count(b"i", 4, 1), 1);
    let figures = world
        .process
        .runtimes
        .iter()
        .flatten()
        .map(|r| r.objects().unwrap());
    assert!(
        figures
            .into_iter()
            .all(|figures| figures.refused == 0 && figures.failed == 0)
    );
    world.process.assert_all_is_home("idle");
}
