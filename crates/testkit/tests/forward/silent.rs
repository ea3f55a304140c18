//! Neighbours that do not answer: packets that wait for them, for how long, and the room that they
//! take from others.

use crate::frames::{seen, udp_tagged};
use crate::rig::{DMZ, LAN, Router, WAN, neighbour};
use crate::{SECOND, ip};

/// A datagram from the client to an address of the WAN's own network, of which no host has said
/// that it has it.
fn to(host: u8, port: u16) -> Vec<u8> {
    udp_tagged("10.0.0.5", &format!("203.0.113.{host}"), (port, 9), 64, 0, b"x")
}

/// Goes on for so long in steps of ten milliseconds; the packets that left.
fn go_on(router: &mut Router, time: u64) -> Vec<(u8, Vec<u8>)> {
    let mut left = Vec::new();
    for _ in 0..time / 10_000_000 {
        router.now += 10_000_000;
        router.run_until_quiet();
        left.extend(router.left());
    }
    left
}

fn unreachable_at_client(told: &[(u8, Vec<u8>)]) -> usize {
    let is_one = |(by, frame): &&(u8, Vec<u8>)| {
        let seen = seen(frame);
        (*by, seen.about, seen.source) == (LAN, (3, 1), ip("10.0.0.1"))
    };
    told.iter().filter(is_one).count()
}

#[test]
fn all_that_wait_for_a_silent_neighbour_are_answered_at_once() {
    let mut router = Router::new(false);
    // One flow: a call, and the packets behind it (the rig has room for 16).
    assert_eq!(router.feed_in(LAN, (0..12).map(|_| to(77, 1))).len(), 0);
    assert_eq!(router.stats().held, 12);
    assert_eq!(unreachable_at_client(&go_on(&mut router, 2 * SECOND)), 0);
    let told = go_on(&mut router, SECOND + 20_000_000);
    assert_eq!((told.len(), unreachable_at_client(&told)), (12, 12));
    assert_eq!((router.stats().held, router.stats().waiting), (0, 0));
    assert_eq!(router.counter("waited"), 1);
    // The silent neighbour is remembered: other flows to it are answered without a wait, and it is
    // asked for again each second.
    let mut asked = Vec::new();
    for port in 2..40 {
        router.now += SECOND / 10;
        let told = router.feed_in(LAN, [to(77, port)]);
        assert_eq!(unreachable_at_client(&told), 1);
        router.feed.take_wanted(&mut asked);
    }
    assert_eq!(router.counter("waited"), 1);
    assert!((4..=5).contains(&asked.len()), "{}", asked.len());
    // The neighbour comes up.
    router.neighbours.push(neighbour(3, "203.0.113.77", 77));
    router.publish();
    assert_eq!(router.one(LAN, to(77, 50)).0, WAN);
    // The neighbour is gone again, and asked for as any other.
    router.neighbours.pop();
    router.publish();
    assert_eq!(router.feed_in(LAN, [to(77, 51)]).len(), 0);
    assert_eq!(router.stats().waiting, 1);
}

/// Packets that wait for a silent neighbour leave room for packets that wait for others.
#[test]
fn what_waits_for_one_neighbour_is_bounded() {
    let mut router = Router::with_room(4096);
    // Of one flow, and of many.
    router.feed_in(LAN, (0..6000).map(|_| to(77, 1)));
    router.feed_in(LAN, (0..6000).map(|n| to(78, 1 + n % 100)));
    let held = router.stats().held;
    assert!(held <= 256, "{held} packets wait for two neighbours");
    // Others are resolved meanwhile.
    for host in 80..90 {
        let packets = |n| (0..4).map(move |_| to(host, n));
        assert_eq!(router.feed_in(LAN, packets(1).chain(packets(2))).len(), 0);
        router
            .neighbours
            .push(neighbour(3, &format!("203.0.113.{host}"), host));
        router.publish();
        router.run_until_quiet();
        assert_eq!(router.left().len(), 8, "to {host}");
    }
    let told = go_on(&mut router, 3 * SECOND + 20_000_000);
    assert_eq!(unreachable_at_client(&told) as u64, held);
    assert_eq!((router.stats().held, router.stats().waiting), (0, 0));
    assert_eq!(
        router.dropped("waiting_queue_full") + router.dropped("waiting_full"),
        0
    );
    assert_eq!(router.dropped("waiting_share_full"), 12_000 - held);
}

/// Tables come, and change nothing that waits: nothing is lost by looking at them, and nothing
/// looks while none come.
#[test]
fn what_waits_looks_when_tables_come() {
    let mut router = Router::new(false);
    assert_eq!(router.feed_in(LAN, [to(77, 1)]).len(), 0);
    let steps = |router: &mut Router| {
        let mut resumed = 0;
        for _ in 0..100 {
            router.now += 1_000_000;
            resumed += router.step_runtime();
        }
        resumed
    };
    let idle = steps(&mut router);
    assert!(idle <= 1, "{idle} looks in a tenth of a second");
    router.neighbours.push(neighbour(4, "10.9.0.77", 7));
    router.publish();
    assert_eq!((steps(&mut router), router.stats().held), (1, 1));
    router.neighbours.push(neighbour(3, "203.0.113.77", 77));
    router.publish();
    assert!(router.step_runtime() >= 1);
    router.run_until_quiet();
    assert_eq!(router.left().len(), 1);
    assert_eq!(
        router
            .one(LAN, udp_tagged("10.0.0.5", "10.9.0.9", (1, 2), 64, 0, b"x"))
            .0,
        DMZ
    );
}
