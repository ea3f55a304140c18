//! RFC 5382: TCP.

use super::packets::{ACK, End, FIN, Ip, RST, SYN, error, tcp};
use super::rig::{POOL, R, Rig, S, T, X, Y, in_time, rig, timed};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const X1: End = (X, 5000);
const Y1: End = (Y, 6001);
const R1: End = (R, 443);
const S1: End = (S, 7777);
const OPEN: &str = "filtering = \"endpoint-independent\"";

fn syn(from: End, to: End) -> Ip {
    tcp(from, to, SYN, (1000, 0), b"")
}

/// A SYN from inside: the external endpoint that it leaves with.
#[track_caller]
fn opens(rig: &mut Rig, from: End, to: End) -> End {
    let seen = rig.sent(&syn(from, to));
    assert_eq!((seen.flags(), seen.ends().1), (SYN, to));
    seen.ends().0
}

/// A segment from inside, as it must be seen outside; and one from outside, as it must be seen
/// inside.
#[track_caller]
fn says(rig: &mut Rig, from: End, to: End, outside: End, flags: u8, text: &[u8]) {
    let seen = rig.sent(&tcp(from, to, flags, (1001, 9001), text));
    assert_eq!(
        (seen.ends(), seen.flags(), seen.text()),
        ((outside, to), flags, text)
    );
}

#[track_caller]
fn hears(rig: &mut Rig, from: End, to: End, inside: End, flags: u8, text: &[u8]) {
    let seen = rig.arrived(&tcp(from, to, flags, (9000, 1001), text));
    assert_eq!(
        (seen.ends(), seen.flags(), seen.text()),
        ((from, inside), flags, text)
    );
}

#[test]
fn nat_5382_req1_one_mapping_whoever_it_is_for() {
    let Some(mut rig) = rig("") else { return };
    let first = opens(&mut rig, X1, R1);
    for remote in [(R, 80), S1, (T, 443)] {
        assert_eq!(opens(&mut rig, X1, remote), first);
    }
    rig.end(&[]);
}

#[test]
fn nat_5382_req2_every_valid_sequence_passes() {
    let to = "static = [{ inside = \"10.0.1.2:6001\", outside = \"203.0.113.64:8080\", protocol = \"tcp\" }]";
    let Some(mut rig) = rig(to) else { return };
    // Three-way, data both ways, one half closed and the other still sending, then closed.
    let outside = opens(&mut rig, X1, R1);
    hears(&mut rig, R1, outside, X1, SYN | ACK, b"");
    says(&mut rig, X1, R1, outside, ACK, b"");
    says(&mut rig, X1, R1, outside, ACK, b"question");
    hears(&mut rig, R1, outside, X1, ACK, b"answer");
    says(&mut rig, X1, R1, outside, FIN | ACK, b"");
    hears(&mut rig, R1, outside, X1, ACK, b"more of it");
    hears(&mut rig, R1, outside, X1, FIN | ACK, b"");
    says(&mut rig, X1, R1, outside, ACK, b"");
    // The same ends again.
    assert_eq!(opens(&mut rig, X1, R1), outside);
    hears(&mut rig, R1, outside, X1, SYN | ACK, b"");
    // REQ-2 a: both at once, with the other end's SYN second, and then both acknowledge.
    let outside = opens(&mut rig, (X, 5001), S1);
    hears(&mut rig, S1, outside, (X, 5001), SYN, b"");
    says(&mut rig, (X, 5001), S1, outside, SYN | ACK, b"");
    hears(&mut rig, S1, outside, (X, 5001), SYN | ACK, b"");
    says(&mut rig, (X, 5001), S1, outside, ACK, b"data");
    // From outside, where that is allowed.
    let published = (POOL, 8080);
    hears(&mut rig, S1, published, Y1, SYN, b"");
    says(&mut rig, Y1, S1, published, SYN | ACK, b"");
    hears(&mut rig, S1, published, Y1, ACK, b"question");
    says(&mut rig, Y1, S1, published, FIN | ACK, b"answer");
    hears(&mut rig, S1, published, Y1, FIN | ACK, b"");
    rig.end(&[]);
}

#[test]
fn nat_5382_req3_filtering_is_as_set() {
    for (filtering, of_host, of_all) in [
        ("endpoint-independent", true, true),
        ("address-dependent", true, false),
        ("address-and-port-dependent", false, false),
    ] {
        let Some(mut rig) = rig(&format!("filtering = \"{filtering}\"")) else {
            return;
        };
        let outside = opens(&mut rig, X1, R1);
        let mut filtered = 0;
        for (from, allowed) in [((R, 99), of_host), (S1, of_all)] {
            if allowed {
                hears(&mut rig, from, outside, X1, SYN, b"");
            } else {
                rig.refused(&syn(from, outside));
                filtered += 1;
            }
        }
        let drops = [("nat/filtered", filtered)];
        rig.end(&drops[usize::from(filtered == 0)..]);
    }
}

#[test]
fn nat_5382_req4_unsolicited_syns_are_met_with_silence() {
    let Some(mut rig) = rig("") else { return };
    let outside = opens(&mut rig, X1, R1);
    // To a mapping that is not for this sender, and to none. Not within six seconds, and not after
    // them: REQ-4 a.
    rig.outside.send(&syn(S1, outside));
    rig.outside.send(&syn(S1, (POOL, 1)));
    rig.outside.silent_for(Duration::from_secs(7));
    rig.inside.silent();
    // A SYN that the inside end answers with a SYN of its own in time is a simultaneous open.
    rig.outside.send(&syn(S1, outside));
    rig.inside.silent();
    assert_eq!(opens(&mut rig, X1, S1), outside);
    rig.outside.silent();
    hears(&mut rig, S1, outside, X1, SYN, b"");
    // A segment other than a SYN opens nothing either.
    rig.refused(&tcp((R, 1), outside, ACK, (5, 5), b"data"));
    rig.refused(&tcp((R, 1), outside, SYN | ACK, (5, 5), b""));
    rig.end(&[
        ("nat/filtered", 2),
        ("nat/no_mapping", 1),
        ("nat/tcp_not_opening", 2),
    ]);
}

#[test]
fn nat_5382_req5_sessions_live_as_long_as_is_set() {
    timed(|scale| {
        let (second, established) = (Duration::from_secs(1) * scale, Duration::from_secs(6) * scale);
        let times = format!(
            "timeouts = {{ tcp_established = \"{}s\", tcp_opening = \"{scale}s\", tcp_closing = \"{scale}s\", below_rfc = true }}",
            6 * scale
        );
        let Some(mut rig) = rig(&times) else {
            return Some(());
        };
        let began = Instant::now();
        let half = opens(&mut rig, X1, R1);
        let whole = opens(&mut rig, (X, 5001), R1);
        in_time(began, second)?;
        hears(&mut rig, R1, whole, (X, 5001), SYN | ACK, b"");
        let opened = Instant::now();
        let closed = opens(&mut rig, (X, 5002), R1);
        in_time(opened, second)?;
        hears(&mut rig, R1, closed, (X, 5002), SYN | ACK, b"");
        says(&mut rig, (X, 5002), R1, closed, FIN | ACK, b"");
        hears(&mut rig, R1, closed, (X, 5002), FIN | ACK, b"");
        std::thread::sleep(second * 2);
        rig.refused(&tcp(R1, half, SYN | ACK, (1, 1), b""));
        rig.refused(&tcp(R1, closed, ACK, (1, 1), b""));
        in_time(began, established)?;
        hears(&mut rig, R1, whole, (X, 5001), ACK, b"still there");
        std::thread::sleep(established + second);
        rig.refused(&tcp(R1, whole, ACK, (1, 1), b"gone"));
        rig.end(&[("nat/no_mapping", 3)]);
        Some(())
    });
}

#[test]
fn nat_5382_req6_no_alg_touches_what_packets_carry() {
    let Some(mut rig) = rig("") else { return };
    for (remote, text) in [
        ((R, 21), &b"PORT 10,0,1,1,19,137\r\n"[..]),
        ((R, 21), b"EPRT |1|10.0.1.1|5001|\r\n"),
        ((R, 1723), &[10, 0, 1, 1]),
        (
            (R, 554),
            b"SETUP rtsp://198.51.100.7/a RTSP/1.0\r\nTransport: RTP/AVP;client_port=5000-5001\r\n\r\n",
        ),
    ] {
        let outside = opens(&mut rig, X1, remote);
        hears(&mut rig, remote, outside, X1, SYN | ACK, b"");
        says(&mut rig, X1, remote, outside, ACK, text);
        hears(&mut rig, remote, outside, X1, ACK, text);
    }
    rig.end(&[]);
}

#[test]
fn nat_5382_req7_no_port_is_overloaded() {
    let Some(mut rig) = rig("") else { return };
    let mut seen = BTreeSet::new();
    for host in 1..=9 {
        for port in [5000, 5001, 40_000] {
            assert!(seen.insert(opens(&mut rig, ([10, 0, 1, host], port), R1)));
        }
    }
    rig.end(&[]);
}

#[test]
fn nat_5382_req8_hairpinning_shows_the_external_source() {
    let Some(mut rig) = rig(OPEN) else { return };
    let (x, y) = (opens(&mut rig, X1, R1), opens(&mut rig, Y1, R1));
    let across = |rig: &mut Rig, from: End, to: End, flags: u8, seen: (End, End)| {
        rig.inside.send(&tcp(from, to, flags, (1, 1), b""));
        let packet = rig.inside.next();
        assert_eq!((packet.ends(), packet.flags()), (seen, flags));
    };
    across(&mut rig, X1, y, SYN, (x, Y1));
    across(&mut rig, Y1, x, SYN | ACK, (y, X1));
    across(&mut rig, X1, y, ACK, (x, Y1));
    across(&mut rig, Y1, x, FIN | ACK, (y, X1));
    rig.outside.silent();
    rig.end(&[]);
}

#[test]
fn nat_5382_req9_req10_unreachable_is_translated_and_ends_nothing() {
    let Some(mut rig) = rig("") else { return };
    let sent = rig.sent(&syn(X1, R1));
    let outside = sent.ends().0;
    for kind in [(3, 0), (3, 1), (3, 3), (3, 4), (3, 13), (11, 0)] {
        let seen = rig.arrived(&error(S, POOL, kind, 1400, &sent));
        assert_eq!(
            (seen.source, seen.destination, seen.icmp(), seen.rest()),
            (S, X, kind, 1400)
        );
        let quoted = seen.quoted();
        assert!(quoted.header_holds && quoted.transport_holds());
        assert_eq!(quoted.ends(), (X1, R1));
    }
    hears(&mut rig, R1, outside, X1, SYN | ACK, b"");
    says(&mut rig, X1, R1, outside, ACK, b"data");
    let sent = rig.sent(&tcp(X1, R1, ACK, (2000, 9001), b"more"));
    rig.arrived(&error(S, POOL, (3, 1), 0, &sent));
    hears(&mut rig, R1, outside, X1, ACK, b"still there");
    rig.end(&[]);
}

#[test]
fn nat_7857_2_2_resets_pass_and_the_mapping_stays() {
    let Some(mut rig) = rig("") else { return };
    let outside = opens(&mut rig, X1, R1);
    hears(&mut rig, R1, outside, X1, SYN | ACK, b"");
    hears(&mut rig, R1, outside, X1, RST, b"");
    // Forged, perhaps: the ends go on.
    says(&mut rig, X1, R1, outside, ACK, b"data");
    hears(&mut rig, R1, outside, X1, ACK, b"data");
    says(&mut rig, X1, R1, outside, RST, b"");
    hears(&mut rig, R1, outside, X1, ACK, b"late");
    assert_eq!(opens(&mut rig, X1, S1), outside);
    rig.end(&[]);
}
