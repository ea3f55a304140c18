//! Followers hear of each flow's beginning and end, and of nothing else.

use super::flows::{Masquerade, Meter, feed};
use super::spread::cluster;
use super::*;
use crate::switch::Policy;
use crate::watch::flows::{Change, Choice, FlowEvent, Follower};
use std::vec;

const SECOND: u64 = 1_000_000_000;

fn gateway() -> Runtime<QueuePort> {
    alone(
        Settings::alone(64),
        vec![factory::<Meter>(), factory::<Masquerade>()],
    )
}

/// The events that a follower has heard since the last time, and how many of them were lost.
fn heard<P: Port>(runtime: &mut Runtime<P>, id: u32, room: usize) -> (Vec<FlowEvent>, u64) {
    let mut events = Vec::with_capacity(room);
    let lost = runtime.followed(id, &mut events).unwrap();
    (events, lost)
}

fn changes(events: &[FlowEvent]) -> Vec<(Change, u16)> {
    events
        .iter()
        .map(|event| (event.change, event.ends.0.port))
        .collect()
}

#[test]
fn a_flow_opens_once_with_both_keys_and_ends_once() {
    let mut runtime = gateway();
    runtime.follow(Follower::new(7, Choice::default(), 16)).unwrap();
    let open = udp(1, 1000, 1, 80, false, b"");
    feed(&mut runtime, [open.clone(), open.clone(), open], 1);
    let (events, lost) = heard(&mut runtime, 7, 16);
    assert_eq!((changes(&events), lost), (vec![(Change::Opened, 1000)], 0));
    let event = events[0];
    assert_eq!(
        (event.at, event.protocol, event.vlan, &event.chain[..]),
        (1, 17, 0, "test")
    );
    assert_eq!(event.ends.1.to_string(), "192.0.2.1:80");
    let translated = event
        .translated
        .map(|(source, to)| (source.to_string(), to.to_string()));
    assert_eq!(
        translated,
        Some(("203.0.113.1:2000".into(), "192.0.2.1:80".into()))
    );
    feed(&mut runtime, [], 12 * SECOND);
    let (events, _) = heard(&mut runtime, 7, 16);
    assert_eq!(changes(&events), [(Change::Ended, 1000)]);
    assert_eq!(events[0].translated, event.translated);
}

#[test]
fn a_flow_whose_first_packet_is_dropped_never_was() {
    let mut runtime = gateway();
    runtime.follow(Follower::new(7, Choice::default(), 16)).unwrap();
    // Refused by its function; and a second flow with the key of the first one's replies.
    feed(&mut runtime, [udp(1, 1000, 1, 9, false, b"")], 1);
    feed(
        &mut runtime,
        [udp(1, 1000, 1, 80, false, b""), udp(2, 1000, 1, 80, false, b"")],
        2,
    );
    assert_eq!(runtime.stats().flows_ended, 2, "{:?}", runtime.stats().dropped);
    let (events, _) = heard(&mut runtime, 7, 16);
    assert_eq!(changes(&events), [(Change::Opened, 1000)]);
    // Without a translation too, each opens once.
    let mut plain = alone(Settings::alone(8), vec![factory::<Meter>()]);
    plain.follow(Follower::new(1, Choice::default(), 16)).unwrap();
    let both = [udp(1, 1000, 1, 80, false, b""), udp(1, 1000, 1, 80, true, b"")];
    feed(&mut plain, both.iter().cloned().chain(both.iter().cloned()), 1);
    let (events, _) = heard(&mut plain, 1, 16);
    assert_eq!(
        (changes(&events), events[0].translated),
        (vec![(Change::Opened, 1000)], None)
    );
}

#[test]
fn what_has_no_room_is_counted_and_what_is_not_chosen_takes_none() {
    let mut runtime = gateway();
    let prefix = |text: &str| Some(text.parse().unwrap());
    let near = Choice {
        address: prefix("10.0.0.2/32"),
        protocol: Some(17),
    };
    let small = Follower::new(1, Choice::default(), 4);
    runtime.follow(small).unwrap();
    runtime.follow(Follower::new(2, near, 64)).unwrap();
    assert!(runtime.follow(Follower::new(3, near, 64)).is_err(), "two at once");
    let packets = |first: u16| (0..10).map(move |n| udp(1 + n as u8 % 2, first + n, 1, 80, false, b""));
    feed(&mut runtime, packets(1000), 1);
    let (events, lost) = heard(&mut runtime, 1, 4);
    assert_eq!((events.len(), lost), (4, 6));
    let (events, lost) = heard(&mut runtime, 2, 64);
    assert_eq!((events.len(), lost), (5, 0));
    assert!(
        events
            .iter()
            .all(|event| event.ends.0.addr == "10.0.0.2".parse().unwrap())
    );
    // A follower goes, and there is room; its number is not known any more.
    runtime.unwatch(2);
    assert_eq!(runtime.followed(2, &mut Vec::new()), None);
    let behind = Choice {
        address: prefix("203.0.113.0/24"),
        protocol: None,
    };
    runtime.follow(Follower::new(3, behind, 64)).unwrap();
    feed(&mut runtime, packets(3000), 2);
    assert_eq!(heard(&mut runtime, 3, 64).0.len(), 10);
    assert_eq!(
        heard(&mut runtime, 1, 4).1,
        6,
        "what was lost before was told before"
    );
}

#[test]
fn a_flow_that_moves_leaves_here_and_arrives_there() {
    let plan = plan(vec![factory::<Meter>(), factory::<Masquerade>()]);
    let mut cluster = cluster(2, 2, Policy::RoundRobin, &plan, 64);
    for runtime in &mut cluster.runtimes {
        runtime.follow(Follower::new(1, Choice::default(), 64)).unwrap();
    }
    cluster.feed(0, (0..10).map(|n| udp(1, 1000 + n, 1, 80, false, b"x")));
    let opened: Vec<_> = (0..2)
        .map(|at| heard(&mut cluster.runtimes[at], 1, 64).0)
        .collect();
    assert_eq!(opened[0].len() + opened[1].len(), 10);
    let receipt = cluster.move_all(0, 1);
    assert_eq!(receipt.moved as usize, opened[0].len());
    let ports = |events: &[FlowEvent], change: Change| {
        assert!(events.iter().all(|event| event.change == change), "{events:?}");
        let mut ports: Vec<_> = events
            .iter()
            .map(|event| (event.ends, event.translated))
            .collect();
        ports.sort_by_key(|(ends, _)| ends.0.port);
        ports
    };
    let gone = ports(&heard(&mut cluster.runtimes[0], 1, 64).0, Change::MovedOut);
    let came = ports(&heard(&mut cluster.runtimes[1], 1, 64).0, Change::MovedIn);
    assert_eq!(gone, ports(&opened[0], Change::Opened));
    assert_eq!(gone, came);
}
