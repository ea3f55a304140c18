//! Objects that are listed: over all runtimes each of them once, with what it was given last.

use super::*;
use nf::row;

/// Of all runtimes, in order.
fn listed(world: &World) -> Vec<nf::Row> {
    let runtimes = world.process.runtimes.iter().flatten();
    let tables = runtimes.map(|runtime| runtime.table("limit", &["objects"]).unwrap().unwrap());
    let mut rows: Vec<nf::Row> = tables.flat_map(|table| table.rows).collect();
    rows.sort();
    rows
}

#[test]
fn all_objects_are_listed_once_wherever_they_are() {
    let mut world = World::new(3, set(0..3));
    let one_each = |what: &'static [u8], ports: core::ops::Range<u16>| {
        let hosts = (1..=8).flat_map(move |host| ports.clone().map(move |port| (host, port)));
        hosts.map(move |(host, port)| udp(1, port, host, 53, false, what))
    };
    assert_eq!(listed(&world), Vec::<nf::Row>::new());
    world.feed(one_each(b"u", 1000..1006));
    world.feed(one_each(b"g", 1000..1004));
    let rows = |calls: u64, gets: u64| -> Vec<nf::Row> {
        let shared = (1..=8_u64).map(|host| row!["shared", host, calls]);
        shared
            .chain((1..=8_u64).map(|host| row!["single", host, gets]))
            .collect()
    };
    assert_eq!(listed(&world), rows(6, 4));
    let stats: Vec<u64> = world.kinds().iter().map(|of| of.objects).collect();
    assert!(stats.iter().filter(|count| **count > 0).count() > 1, "{stats:?}");

    // A runtime leaves with its objects, and comes again; another one fails.
    assert!(world.conductor.change(set([1, 2])));
    world.conduct();
    assert_eq!(listed(&world), rows(6, 4));
    world.begin(0, 2);
    world.conduct();
    world.process.fail(2);
    world.process.run_until_quiet();
    world.conductor.fail(set([2]));
    world.conduct();
    assert_eq!(listed(&world), rows(6, 4));
    world.feed(one_each(b"u", 1000..1002));
    world.feed(one_each(b"f", 1000..1003));
    world.pass_merged();
    assert_eq!(listed(&world), rows(8, 7));
}
