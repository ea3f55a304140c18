//! RFC 4787: UDP.

use super::packets::{End, Ip, error, query, udp};
use super::rig::{GATEWAY_IN, POOL, R, S, T, X, Y, in_time, rig, rig_of, timed};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const X1: End = (X, 5000);
const Y1: End = (Y, 6001);
const R1: End = (R, 5353);
const S1: End = (S, 7777);
const OPEN: &str = "filtering = \"endpoint-independent\"";

#[test]
fn nat_4787_req1_one_mapping_whoever_it_is_for() {
    let Some(mut rig) = rig("") else { return };
    let first = rig.out(X1, R1);
    for remote in [(R, 5354), S1, (S, 53), (T, 5353), R1] {
        assert_eq!(rig.out(X1, remote), first);
    }
    assert_ne!(rig.out((X, 5001), R1), first);
    rig.end(&[]);
    let Some(mut rig) = rig_of("[\"203.0.113.64\"]", "mapping = \"address-and-port-dependent\"") else {
        return;
    };
    let seen: BTreeSet<End> = [R1, (R, 5354), S1, (T, 5353)]
        .map(|remote| rig.out(X1, remote))
        .into();
    assert_eq!(seen.len(), 4);
    rig.end(&[]);
}

#[test]
fn nat_4787_req2_addresses_are_paired() {
    let Some(mut rig) = rig_of("[\"203.0.113.64/29\"]", "block_size = 64\nblocks_per_host = 24") else {
        return;
    };
    let mut used = BTreeSet::new();
    // All sixteen hosts at the same of eight addresses would be no chance: 8 to the power of -15.
    for host in 1..=16 {
        let host = [10, 0, 1, host];
        // More than a block holds, and of each protocol.
        let mut own: BTreeSet<[u8; 4]> = (0..80).map(|n| rig.out((host, 4000 + n), R1).0).collect();
        own.insert(rig.sent(&query(8, host, R, 9)).source);
        assert_eq!(own.len(), 1, "{host:?}");
        used.extend(own);
    }
    assert!(used.len() > 1, "hosts spread over the pool");
    rig.end(&[]);
}

#[test]
fn nat_4787_req3_no_port_is_overloaded() {
    let Some(mut rig) = rig("") else { return };
    let mut seen = BTreeSet::new();
    for host in 1..=9 {
        for port in [1024, 5000, 5001, 40_000, 65_535] {
            // All to one remote endpoint.
            let outside = rig.out(([10, 0, 1, host], port), R1);
            assert!(seen.insert(outside), "{outside:?} twice");
            assert!(outside.1 >= 1024, "REQ-3 a: a port above 1023 stays above");
        }
    }
    // REQ-3 a, its other half: not so by default, and not at all.
    assert!(rig.out((X, 500), R1).1 >= 1024);
    rig.end(&[]);
}

#[test]
fn nat_4787_req4_parity_is_kept() {
    let Some(mut rig) = rig("") else { return };
    for host in [X, Y] {
        for port in [3000, 3001, 3002, 3003, 7777, 7778] {
            assert_eq!(rig.out((host, port), R1).1 % 2, port % 2, "{host:?} {port}");
        }
    }
    rig.end(&[]);
}

/// UDP's timeouts: four seconds and one, or so many times that.
fn short(scale: u32) -> String {
    let (udp, well_known) = (4 * scale, scale);
    format!("timeouts = {{ udp = \"{udp}s\", udp_well_known = \"{well_known}s\", below_rfc = true }}")
}

#[test]
fn nat_4787_req5_mappings_live_as_long_as_is_set() {
    timed(|scale| {
        let (second, udp_timeout) = (Duration::from_secs(1) * scale, Duration::from_secs(4) * scale);
        let short = short(scale);
        let Some(mut rig) = rig(&format!("preserve_ports = false\n{OPEN}\n{short}")) else {
            return Some(());
        };
        let began = Instant::now();
        let outside = rig.out(X1, R1);
        std::thread::sleep(second);
        in_time(began, udp_timeout)?;
        let began = Instant::now();
        assert_eq!(rig.back(S1, outside), X1, "before its time is over");
        // The answered one was a flow of its own, which has the same time. REQ-5 a: a flow to a
        // well-known port has a shorter one.
        let short = rig.out((X, 5353), (R, 53));
        std::thread::sleep(second * 3 / 2);
        rig.refused(&udp(S1, short, b"too late"));
        in_time(began, udp_timeout)?;
        assert_eq!(rig.back(S1, outside), X1);
        std::thread::sleep(udp_timeout + second);
        rig.refused(&udp(S1, outside, b"too late"));
        rig.end(&[("nat/no_mapping", 2)]);
        Some(())
    });
}

#[test]
fn nat_4787_req6_packets_out_and_in_refresh() {
    timed(|scale| {
        let (second, udp_timeout) = (Duration::from_secs(1) * scale, Duration::from_secs(4) * scale);
        let Some(mut rig) = rig(&short(scale)) else {
            return Some(());
        };
        let (first, mut began) = (Instant::now(), Instant::now());
        let (out, back) = (rig.out(X1, R1), rig.out((X, 5001), R1));
        while first.elapsed() < udp_timeout * 2 {
            std::thread::sleep(second * 3 / 2);
            in_time(began, udp_timeout)?;
            began = Instant::now();
            assert_eq!(rig.out(X1, R1), out);
            assert_eq!(rig.back(R1, back), (X, 5001), "REQ-6 a");
        }
        assert_eq!(rig.back(R1, out), X1, "twice its time after it began");
        rig.end(&[]);
        Some(())
    });
}

#[test]
fn nat_4787_req8_filtering_is_as_set() {
    let elsewhere: End = (R, 99);
    for (filtering, of_host, of_all) in [
        ("endpoint-independent", true, true),
        ("address-dependent", true, false),
        ("address-and-port-dependent", false, false),
    ] {
        let Some(mut rig) = rig(&format!("filtering = \"{filtering}\"")) else {
            return;
        };
        let outside = rig.out(X1, R1);
        assert_eq!(rig.back(R1, outside), X1);
        let mut filtered = 0;
        for (from, allowed) in [(elsewhere, of_host), (S1, of_all), ((S, 5353), of_all)] {
            if allowed {
                assert_eq!(rig.back(from, outside), X1, "{filtering}");
            } else {
                rig.refused(&udp(from, outside, b"stranger"));
                filtered += 1;
            }
        }
        // A port that no mapping has lets no packet in.
        rig.refused(&udp(R1, (POOL, outside.1 ^ 1), b"absent"));
        let drops = [("nat/filtered", filtered), ("nat/no_mapping", 1)];
        rig.end(&drops[usize::from(filtered == 0)..]);
    }
    // By default it is the stricter of the two that are recommended.
    let Some(mut rig) = rig_of("[\"203.0.113.64\"]", "") else {
        return;
    };
    let outside = rig.out(X1, R1);
    assert_eq!(rig.back(elsewhere, outside), X1);
    rig.refused(&udp(S1, outside, b"stranger"));
    rig.end(&[("nat/filtered", 1)]);
}

#[test]
fn nat_4787_req9_hairpinning_shows_the_external_source() {
    let Some(mut rig) = rig(OPEN) else { return };
    let (x, y) = (rig.out(X1, R1), rig.out(Y1, R1));
    for _ in 0..2 {
        rig.inside.send(&udp(X1, y, b"hello"));
        let seen = rig.inside.next();
        assert_eq!((seen.ends(), seen.text()), ((x, Y1), &b"hello"[..]));
        rig.inside.send(&udp(Y1, x, b"hello"));
        assert_eq!(rig.inside.next().ends(), (y, X1));
    }
    rig.outside.silent();
    rig.end(&[]);
}

#[test]
fn nat_4787_req10_no_alg_touches_what_packets_carry() {
    let Some(mut rig) = rig("") else { return };
    let texts: [&[u8]; 3] = [
        b"INVITE sip:a@198.51.100.7 SIP/2.0\r\nContact: <sip:b@10.0.1.1:5060>\r\n\r\nc=IN IP4 10.0.1.1\r\nm=audio 5000 RTP/AVP 0\r\n",
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x0110\x0110\x07in-addr\x04arpa\x00\x00\x0c\x00\x01",
        &[10, 0, 1, 1, 19, 136, 10, 0, 1, 1],
    ];
    for (port, text) in [5060, 53, 69].into_iter().zip(texts) {
        let sent = rig.sent(&udp((X, port), (R, port), text));
        assert_eq!(sent.text(), text);
        let outside = sent.ends().0;
        let back = rig.arrived(&udp((R, port), outside, text));
        assert_eq!((back.text(), back.ends().1), (text, (X, port)));
    }
    rig.end(&[]);
}

#[test]
fn nat_4787_req11_conflicts_change_no_behaviour() {
    let Some(mut rig) = rig("") else { return };
    // Both hosts want the same port: the second one's mapping behaves as the first one's.
    for host in [X, Y] {
        let outside = rig.out((host, 5000), R1);
        for remote in [S1, (T, 9), (R, 6)] {
            assert_eq!(rig.out((host, 5000), remote), outside);
        }
        assert_eq!(rig.back((R, 77), outside), (host, 5000));
        rig.refused(&udp(([198, 51, 100, 99], 77), outside, b"stranger"));
    }
    rig.end(&[("nat/filtered", 2)]);
}

#[test]
fn nat_4787_req12_icmp_ends_no_mapping() {
    let Some(mut rig) = rig("") else { return };
    let sent = rig.sent(&udp(X1, R1, b"out"));
    let outside = sent.ends().0;
    let router = [192, 0, 2, 201];
    let kinds = [(3, 0), (3, 1), (3, 3), (3, 10), (3, 13), (4, 0), (11, 0), (12, 0)];
    for kind in kinds {
        // REQ-12 a: from any sender. REQ-12 b: Destination Unreachable reaches its receiver.
        for from in [R, router] {
            let seen = rig.arrived(&error(from, POOL, kind, 0, &sent));
            assert_eq!((seen.source, seen.destination, seen.icmp()), (from, X, kind));
            assert_eq!(seen.quoted().ends(), (X1, R1));
        }
    }
    assert_eq!(rig.out(X1, S1), outside);
    assert_eq!(rig.back(R1, outside), X1);
    rig.end(&[]);
}

#[test]
fn nat_4787_req13_what_is_too_long_is_refused_or_sent_in_parts() {
    let Some(mut rig) = rig("") else { return };
    rig.network.gateway.ip("link set right mtu 1280").unwrap();
    // The kernel tells of it; nothing shows when that is heard.
    std::thread::sleep(Duration::from_secs(3));
    let long = udp(X1, R1, &[7; 1400]);
    rig.inside.send(&long.clone().df());
    let told = rig.inside.next();
    assert_eq!(
        (told.source, told.destination, told.icmp(), told.rest()),
        (GATEWAY_IN, X, (3, 4), 1280)
    );
    assert_eq!(told.quoted().ends(), (X1, R1));
    // REQ-13 a: and in order.
    rig.inside.send(&long);
    let parts = rig.outside.take(2);
    assert!(parts[0].offset == 0 && parts[0].more && parts[1].offset > 0);
    let whole = Ip::whole(parts);
    assert!(whole.transport_holds());
    assert_eq!((whole.ends().1, whole.text()), (R1, &[7; 1400][..]));
    rig.end(&[]);
}

#[test]
fn nat_4787_req14_fragments_in_any_order_and_a_flood_of_them() {
    let Some(mut rig) = rig("") else { return };
    let outside = rig.out(X1, R1);
    let text: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
        let id = order[0] as u16 * 100 + order[1] as u16;
        let out = udp(X1, R1, &text).id(id).parts(1400);
        order.iter().for_each(|at| rig.inside.send(&out[*at]));
        let seen = Ip::whole(rig.outside.take(3));
        assert!(seen.transport_holds(), "{order:?}");
        assert_eq!((seen.ends(), seen.text()), ((outside, R1), &text[..]));
        let back = udp(R1, outside, &text).id(id).parts(1400);
        order.iter().for_each(|at| rig.outside.send(&back[*at]));
        let seen = Ip::whole(rig.inside.take(3));
        assert!(seen.transport_holds(), "{order:?}");
        assert_eq!((seen.ends(), seen.text()), ((R1, X1), &text[..]));
    }
    // REQ-14 a: parts whose first ones never come; everything else goes on meanwhile, whole or in
    // parts.
    for id in 0..3000_u16 {
        let parts = udp((T, 1), outside, &text).id(1000 + id).parts(1400);
        rig.outside.send(&parts[1]);
        if id % 500 == 0 {
            assert_eq!(rig.out(X1, R1), outside);
            assert_eq!(rig.back(R1, outside), X1);
        }
    }
    let back = udp(R1, outside, &text).id(7).parts(1400);
    back.iter().for_each(|part| rig.outside.send(part));
    assert_eq!(Ip::whole(rig.inside.take(3)).text(), &text[..]);
    rig.inside.silent();
    // Every one of them is counted.
    let dropped = rig.dropped();
    println!("{dropped:?}");
    assert_eq!(dropped.values().sum::<u64>(), 3000);
}
