//! RFC 5508: ICMP queries and errors.

use super::packets::SYN;
use super::packets::{End, Ip, error, query, tcp, udp};
use super::rig::{GATEWAY_IN, GATEWAY_OUT, POOL, R, S, T, X, Y, in_time, rig, timed};
use std::time::{Duration, Instant};

const X1: End = (X, 5000);
const Y1: End = (Y, 6001);
const R1: End = (R, 5353);
const ECHO: u8 = 8;
const OPEN: &str = "filtering = \"endpoint-independent\"";

#[test]
fn nat_5508_req1_queries_and_answers_pass() {
    let Some(mut rig) = rig("") else { return };
    // Echo, timestamp, information and address mask: each with its answer.
    for (ask, answer) in [(ECHO, 0), (13, 14), (15, 16), (17, 18)] {
        let sent = rig.sent(&query(ask, X, R, 700));
        assert_eq!((sent.source, sent.icmp().0), (POOL, ask));
        let identifier = sent.ends().0.1;
        let seen = rig.arrived(&query(answer, R, POOL, identifier));
        assert_eq!((seen.ends(), seen.icmp().0), (((R, 700), (X, 700)), answer));
    }
    // REQ-1 a: for every remote host.
    let identifier = rig.sent(&query(ECHO, X, R, 700)).ends().0.1;
    for remote in [S, T] {
        assert_eq!(rig.sent(&query(ECHO, X, remote, 700)).ends().0.1, identifier);
    }
    assert_ne!(rig.sent(&query(ECHO, Y, R, 700)).ends().0.1, identifier);
    // An answer that no inside host asked for, either way, and a query from outside.
    rig.refused(&query(0, S, POOL, identifier ^ 1));
    rig.refused(&query(ECHO, S, POOL, identifier ^ 1));
    rig.end(&[("nat/icmp_unrelated", 1), ("nat/no_mapping", 1)]);
}

#[test]
fn nat_5508_req2_queries_live_as_long_as_is_set() {
    timed(|scale| {
        let (second, timeout) = (Duration::from_secs(1) * scale, Duration::from_secs(3) * scale);
        let Some(mut rig) = rig(&short(scale)) else {
            return Some(());
        };
        let began = Instant::now();
        let identifier = rig.sent(&query(ECHO, X, R, 700)).ends().0.1;
        std::thread::sleep(second);
        in_time(began, timeout)?;
        assert_eq!(rig.arrived(&query(0, R, POOL, identifier)).ends().1, (X, 700));
        std::thread::sleep(timeout + second);
        rig.refused(&query(0, R, POOL, identifier));
        rig.end(&[("nat/icmp_unrelated", 1)]);
        Some(())
    });
}

/// The timeout of queries: three seconds, or so many times that.
fn short(scale: u32) -> String {
    format!(
        "timeouts = {{ icmp_query = \"{}s\", below_rfc = true }}",
        3 * scale
    )
}

#[test]
fn nat_5508_req3_what_is_checked_of_an_error() {
    let Some(mut rig) = rig("") else { return };
    let sent = rig.sent(&udp(X1, R1, b"out"));
    let whole = |about: &Ip| error(S, POOL, (3, 3), 0, about);
    rig.refused(&whole(&sent).damaged());
    // REQ-3 a: the quoted header's checksum, the error's own being right.
    let mut broken = whole(&sent);
    broken.payload[8 + 10] ^= 1;
    rig.refused(&broken.mended());
    // REQ-3 c: the quoted transport's is not looked at.
    let about = sent.clone().damaged();
    assert_eq!(rig.arrived(&whole(&about)).quoted().ends(), (X1, R1));
    // A quotation of eight bytes is enough.
    let mut short = whole(&sent);
    short.payload.truncate(8 + 20 + 8);
    let seen = rig.arrived(&short.mended());
    assert_eq!(seen.quoted().ends(), (X1, R1));
    // REQ-3 d: extensions behind a quotation padded to 128 bytes stay as they are (RFC 4884).
    let extension = [0x20, 0, 0xde, 0xff, 0, 8, 1, 1, 0, 1, 2, 3];
    let mut extended = whole(&sent);
    extended.payload.resize(8 + 128, 0);
    extended.payload[5] = 32;
    extended.payload.extend(extension);
    let seen = rig.arrived(&extended.mended());
    assert_eq!(seen.payload[8 + 128..], extension);
    assert_eq!(seen.quoted().ends(), (X1, R1));
    // REQ-3 b: options in the quoted header.
    let mut optional = sent.clone();
    optional.options = vec![1, 1, 1, 0];
    assert_eq!(rig.arrived(&whole(&optional)).quoted().ends(), (X1, R1));
    rig.end(&[("nat/icmp_malformed", 2)]);
}

#[test]
fn nat_5508_req4_errors_from_outside_are_translated_back() {
    let Some(mut rig) = rig("") else { return };
    for packet in [
        udp(X1, R1, b"out"),
        tcp(X1, R1, SYN, (1, 0), b""),
        query(ECHO, X, R, 700),
    ] {
        let sent = rig.sent(&packet);
        for kind in [(3, 1), (3, 3), (11, 0), (12, 0)] {
            let seen = rig.arrived(&error(S, POOL, kind, 0, &sent));
            // a: the quotation as the host sent it, one hop less; b: type and code; c: to the host.
            assert_eq!((seen.source, seen.destination, seen.icmp()), (S, X, kind));
            let quoted = seen.quoted();
            assert!(quoted.header_holds && quoted.transport_holds());
            assert_eq!(quoted, packet.clone().ttl(63));
        }
    }
    let stranger = udp((POOL, 4000), R1, b"not ours");
    rig.refused(&error(S, POOL, (3, 3), 0, &stranger));
    rig.end(&[("nat/icmp_unrelated", 1)]);
}

#[test]
fn nat_5508_req5_errors_from_inside_hide_who_sends_them() {
    let Some(mut rig) = rig("") else { return };
    let outside = rig.out(X1, R1);
    let packet = udp(R1, outside, b"back");
    let delivered = rig.arrived(&packet);
    // The host, and a router in front of it.
    for from in [X, [10, 0, 1, 9]] {
        let seen = rig.sent(&error(from, R, (3, 3), 0, &delivered));
        assert_eq!((seen.source, seen.destination, seen.icmp()), (POOL, R, (3, 3)));
        let quoted = seen.quoted();
        assert!(quoted.header_holds && quoted.transport_holds());
        assert_eq!(quoted, packet.clone().ttl(63));
    }
    rig.inside
        .send(&error(X, R, (3, 3), 0, &udp(R1, (X, 1), b"never came")));
    rig.outside.silent();
    rig.end(&[("nat/icmp_unrelated", 1)]);
}

#[test]
fn nat_5508_req6_errors_neither_keep_nor_end_a_query() {
    timed(|scale| {
        let (second, timeout) = (Duration::from_secs(1) * scale, Duration::from_secs(3) * scale);
        let Some(mut rig) = rig(&short(scale)) else {
            return Some(());
        };
        let began = Instant::now();
        let sent = rig.sent(&query(ECHO, X, R, 700));
        let identifier = sent.ends().0.1;
        in_time(began, timeout)?;
        rig.arrived(&error(S, POOL, (3, 1), 0, &sent));
        in_time(began, timeout)?;
        let began = Instant::now();
        assert_eq!(
            rig.sent(&query(ECHO, X, R, 700)).ends().0.1,
            identifier,
            "not ended"
        );
        // An error in the query's last third, and then for as long again: the query would still be
        // there if the error had kept it.
        std::thread::sleep(second * 9 / 5);
        in_time(began, timeout)?;
        rig.arrived(&error(S, POOL, (3, 1), 0, &sent));
        let kept = Instant::now();
        std::thread::sleep(second * 3 / 2);
        in_time(kept, timeout)?;
        rig.refused(&query(0, R, POOL, identifier));
        rig.end(&[("nat/icmp_unrelated", 1)]);
        Some(())
    });
}

#[test]
fn nat_5508_req7_errors_take_the_hairpin_back() {
    let Some(mut rig) = rig(OPEN) else { return };
    let (x, y) = (rig.out(X1, R1), rig.out(Y1, R1));
    rig.inside.send(&udp(X1, y, b"hello"));
    let delivered = rig.inside.next();
    assert_eq!(delivered.ends(), (x, Y1));
    rig.inside.send(&error(Y, POOL, (3, 3), 0, &delivered));
    let seen = rig.inside.next();
    assert_eq!((seen.source, seen.destination, seen.icmp()), (POOL, X, (3, 3)));
    // As the host sent it.
    assert_eq!(seen.quoted().ends(), (X1, y));
    assert!(seen.quoted().header_holds && seen.quoted().transport_holds());
    rig.outside.silent();
    rig.end(&[]);
}

#[test]
fn nat_5508_req8_who_gets_no_port_is_told_so_if_set() {
    let little = "block_size = 64\nblocks_per_host = 1\n";
    let Some(mut rig) = rig(&format!("{little}refusals = \"answer\"")) else {
        return;
    };
    for n in 0..64 {
        rig.out((X, 2000 + n), R1);
    }
    let refused = udp((X, 9000), R1, b"one too many");
    rig.inside.send(&refused);
    let told = rig.inside.next();
    assert_eq!((told.source, told.destination, told.icmp()), (R, X, (3, 13)));
    assert_eq!(told.quoted(), refused);
    // Other hosts' flows go on, and so do those that are there.
    rig.out(Y1, R1);
    rig.out((X, 2000), R1);
    rig.end(&[]);
}

#[test]
fn nat_5508_req10_messages_that_a_router_sends_and_passes() {
    let Some(mut rig) = rig("") else { return };
    // a: Time Exceeded of its own, both ways, quoting the sender's packet.
    let out = udp(X1, R1, b"out").ttl(1);
    rig.inside.send(&out);
    let told = rig.inside.next();
    assert_eq!(
        (told.source, told.destination, told.icmp()),
        (GATEWAY_IN, X, (11, 0))
    );
    assert_eq!(told.quoted().ends(), out.ends());
    let outside = rig.out(X1, R1);
    let back = udp(R1, outside, b"back").ttl(1);
    rig.outside.send(&back);
    let told = rig.outside.next();
    assert_eq!((told.destination, told.icmp()), (R, (11, 0)));
    assert!(
        [GATEWAY_OUT, POOL].contains(&told.source),
        "no inside address: {told:?}"
    );
    assert_eq!(told.quoted().ends(), back.ends());
    // TTL goes down by one each way.
    assert_eq!(rig.sent(&udp(X1, R1, b"out").ttl(9)).ttl, 8);
    assert_eq!(rig.arrived(&udp(R1, outside, b"back").ttl(9)).ttl, 8);
    // Fragmentation Needed from a router behind, with its MTU.
    let sent = rig.sent(&udp(X1, R1, &[1; 900]).df());
    assert!(sent.df);
    let seen = rig.arrived(&error(S, POOL, (3, 4), 576, &sent));
    assert_eq!(
        (seen.icmp(), seen.rest(), seen.quoted().ends()),
        ((3, 4), 576, (X1, R1))
    );
    rig.end(&[]);
}

#[test]
fn nat_5508_req11_other_messages_are_dropped() {
    let Some(mut rig) = rig("") else { return };
    // Router solicitation and advertisement, and types that NAT does not know.
    for kind in [10, 9, 44, 253] {
        rig.inside.send(&query(kind, X, R, 0));
    }
    rig.outside.silent();
    rig.end(&[("nat/icmp_unrelated", 4)]);
}
