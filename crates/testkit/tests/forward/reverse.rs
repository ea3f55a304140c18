//! Sources that no route leads back to (RFC 3704).

use crate::frames::{error, seen, udp, udp_tagged};
use crate::ip;
use crate::rig::{DMZ, LAN, Router, WAN, neighbour, route};
use functions::forward::Config;
use functions::forward::config::{Check, ReversePath};

fn with(inside: Check, outside: Check) -> Router {
    let config = Config {
        reverse_path: ReversePath { inside, outside },
        ..Config::default()
    };
    Router::with(1, false, config)
}

fn from(source: &str, port: u16) -> Vec<u8> {
    udp_tagged(source, "192.0.2.9", (port, 53), 64, 0, b"x")
}

#[test]
fn each_check_is_what_it_says() {
    // From, source, and whether it passes: strict, loose.
    let cases = [
        (LAN, "10.0.0.5", true, true),
        (LAN, "10.0.0.200", true, true),
        (LAN, "10.9.0.9", false, true),
        (LAN, "198.51.100.7", false, true),
        (LAN, "10.0.0.1", false, false),
        (DMZ, "10.9.0.9", true, true),
        (DMZ, "10.8.0.8", false, true),
        (DMZ, "10.0.0.5", false, true),
    ];
    for check in [Check::Strict, Check::Loose, Check::Off] {
        let mut router = with(check, check);
        for (by, source, strict, loose) in cases {
            let passes = match check {
                Check::Strict => strict,
                Check::Loose => loose,
                Check::Off => true,
            };
            let packet = from(source, 1000);
            match passes {
                true => assert_eq!(router.one(by, packet).0, WAN, "{check:?} {source} by {by}"),
                false => assert_eq!(router.refused(by, packet), "reverse_path", "{check:?} {source}"),
            }
        }
        // From outside, to inside.
        let inside = |source| udp(source, "10.0.0.5", 64, b"x");
        assert_eq!(router.one(WAN, inside("198.51.100.7")).0, LAN);
        let spoofed = inside("10.9.0.9");
        match check {
            Check::Strict => assert_eq!(router.refused(WAN, spoofed), "reverse_path"),
            _ => assert_eq!(router.one(WAN, spoofed).0, LAN),
        }
    }
}

#[test]
fn without_a_route_to_it_no_source_is_believed() {
    let mut router = Router::new(false);
    router.routes.retain(|route| route.to.length() != 0);
    router.publish();
    let packet = udp("198.51.100.7", "10.0.0.5", 64, b"x");
    assert_eq!(router.refused(WAN, packet.clone()), "reverse_path");
    router
        .routes
        .push(route("198.51.100.0/24", 3, Some("203.0.113.254")));
    router.publish();
    assert_eq!(router.one(WAN, packet).0, LAN);
}

#[test]
fn a_flow_is_held_to_its_interface() {
    let mut router = Router::new(false);
    assert_eq!(router.one(LAN, from("10.0.0.5", 1000)).0, WAN);
    // The same endpoints, by another port.
    assert_eq!(router.refused(DMZ, from("10.0.0.5", 1000)), "reverse_path");
    assert_eq!(router.one(LAN, from("10.0.0.5", 1000)).0, WAN);
    assert_eq!(router.counter("looked_up"), 1);
    // The routes have changed: it is elsewhere now.
    router.routes.push(route("10.0.0.5/32", 4, Some("10.9.0.9")));
    router.publish();
    assert_eq!(router.refused(LAN, from("10.0.0.5", 1000)), "reverse_path");
    assert_eq!(router.one(DMZ, from("10.0.0.5", 1000)).0, WAN);
    // Its replies, and errors about it, are no matter of this.
    let reply = udp_tagged("192.0.2.9", "10.0.0.5", (53, 1000), 64, 0, b"y");
    assert_eq!(router.one(WAN, reply).0, DMZ);
}

/// Of two ways to a network both are right.
#[test]
fn any_of_several_ways_back_will_do() {
    let mut router = Router::new(false);
    let mut several = route("10.5.0.0/16", 2, Some("10.0.0.5"));
    several
        .ways
        .extend(route("10.5.0.0/16", 4, Some("10.9.0.9")).ways);
    router.routes.push(several);
    router.publish();
    for (by, port) in [(LAN, 1), (DMZ, 2)] {
        assert_eq!(router.one(by, from("10.5.1.1", port)).0, WAN);
    }
}

/// A function's answer, and an error of a router on the way, came by no such route.
#[test]
fn answers_and_errors_pass() {
    let mut router = Router::new(true);
    let (_, out) = router.one(LAN, udp("10.0.0.5", "192.0.2.9", 64, b"x"));
    let mapped = seen(&out);
    // The last hop of a reply: the answer runs as the flow was opened, with an address of the
    // router's.
    let reply = udp_tagged("192.0.2.9", "203.0.113.8", (53, mapped.about.0), 1, 0, b"y");
    let (by, frame) = router.one(WAN, reply);
    assert_eq!((by, seen(&frame).about), (WAN, (11, 0)));
    // An error from a router behind the LAN, about a packet that came in.
    let back = udp_tagged("192.0.2.9", "203.0.113.8", (53, mapped.about.0), 64, 0, b"y");
    let (_, arrived) = router.one(WAN, back);
    let (by, frame) = router.one(LAN, error("10.77.0.1", "192.0.2.9", (3, 1), [0; 4], &arrived));
    assert_eq!((by, seen(&frame).about), (WAN, (3, 1)));
}

/// Two thousand spoofed sources through a NAT, of which none is one of the LAN's.
#[test]
fn spoofed_sources_take_nothing_from_a_nat() {
    let mut router = Router::new(true);
    for n in 0..2016_u32 {
        let [_, _, c, d] = n.to_be_bytes();
        let packet = udp(&format!("10.0.{}.{d}", 100 + c), "192.0.2.9", 64, b"x");
        router.feed_in(LAN, [packet]);
    }
    let host = router.feed_in(LAN, [udp("10.0.0.5", "192.0.2.9", 64, b"x")]);
    let [(by, frame)] = &host[..] else {
        panic!("a host is locked out: {:?}", router.stats().dropped);
    };
    assert_eq!((*by, seen(frame).source), (WAN, ip("203.0.113.8")));
    assert_eq!((router.dropped("reverse_path"), router.stats().flows), (2016, 1));
}

/// A connection between two inside hosts by the NAT's outside address turns in the NAT, before the
/// step.
#[test]
fn a_hairpinned_source_is_checked_where_it_came_in() {
    let mut router = Router::new(true);
    router.neighbours.push(neighbour(2, "10.0.0.6", 6));
    router.publish();
    let (_, out) = router.one(LAN, udp("10.0.0.6", "192.0.2.9", 64, b"x"));
    let mapped = seen(&out);
    let spoofed = |source, port| udp_tagged(source, "203.0.113.8", (port, mapped.about.0), 64, 0, b"y");
    let flows = router.stats().flows;
    assert_eq!(router.refused(LAN, spoofed("10.0.99.9", 2000)), "reverse_path");
    assert_eq!(router.stats().flows, flows, "it has left nothing behind");
    // It turns, and the NAT's filter judges it as if it came from outside.
    assert_eq!(router.refused(LAN, spoofed("10.0.0.5", 2000)), "filtered");
}
