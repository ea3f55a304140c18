//! A switch with more groups than its first table has room for.

use super::spread::{Link, link};
use super::*;
use crate::group::GroupKey;
use crate::message::Message;
use crate::switch::{Policy, SideRule, Switch};
use std::collections::HashMap;
use std::vec;
use wire::packet::Kind;
use wire::{FlowKey, HashSeed};

/// More than the first table has room for (65,536), fewer than the second.
const GROUPS: u32 = 100_000;

/// One more packet of each of these groups, and the runtime that got it.
fn feed(
    switch: &mut Switch<QueuePort, Link>,
    ends: &[Link],
    groups: impl Iterator<Item = u32>,
) -> HashMap<FlowKey, usize> {
    let mut got = HashMap::new();
    let frames = groups.map(|n| udp((n >> 16) as u8, n as u16, 1, 80, false, b""));
    switch.port_mut(0).input.extend(frames);
    while !switch.port_mut(0).input.is_empty() {
        switch.step(1);
        for (runtime, end) in ends.iter().enumerate() {
            for mut packet in end.incoming.borrow_mut().drain(..) {
                if packet.kind() == Kind::Data {
                    got.insert(FlowKey::of(&packet).unwrap().0, runtime);
                }
                packet.set_kind(Kind::Empty);
                end.outgoing.borrow_mut().push_back(packet);
            }
        }
    }
    got
}

#[test]
fn groups_stay_where_they_are_while_tables_grow() {
    let settings = crate::switch::SwitchSettings {
        switch: 0,
        switches: 1,
        seed: HashSeed::FIXED,
        routes_max: 4 * GROUPS,
        policy: Policy::RoundRobin,
        fragments_max: 64,
        packet_clock: false,
        lead_max: u64::MAX,
        recovery_max: 0,
        patient: false,
        egress: [None, None],
        now: 0,
    };
    let (links, ends): (Vec<Link>, Vec<Link>) = (0..3).map(|_| link(64)).unzip();
    let mut switch: Switch<QueuePort, Link> = Switch::new(
        settings,
        plan(vec![factory::<super::flows::Meter>()]),
        vec![(QueuePort::default(), SideRule::Fixed(Side::Inside))],
        links,
        vec![None],
        pool(128, 0),
        Region::heap,
    );
    let mut first = feed(&mut switch, &ends, 0..65_536);
    assert_eq!(switch.stats().routes, 65_536);
    // The next group begins the next table; those before are found in either while they are moved,
    // the first ones first.
    first.extend(feed(&mut switch, &ends, 65_536..65_537));
    assert_eq!(feed(&mut switch, &ends, (0..65_537).rev()), first);
    first.extend(feed(&mut switch, &ends, 65_537..GROUPS));
    assert_eq!(switch.stats().routes, u64::from(GROUPS));
    assert_eq!(feed(&mut switch, &ends, 0..GROUPS), first);
    // Each ends, by its runtime's message.
    let mut frames = pool(1, 1);
    for (key, runtime) in first {
        let mut frame = frames.take().unwrap();
        Message::begin(&mut frame);
        assert!(Message::GroupEmpty(GroupKey::of_flow(key), u64::MAX).append(&mut frame));
        ends[runtime].outgoing.borrow_mut().push_back(frame);
        switch.step(2);
        ends[0]
            .incoming
            .borrow_mut()
            .drain(..)
            .for_each(|frame| frames.give(frame));
    }
    let stats = switch.stats();
    assert_eq!((stats.routes, stats.groups), (0, vec![0; 3]));
    assert_eq!(switch.pool().free(), switch.pool().total());
}
