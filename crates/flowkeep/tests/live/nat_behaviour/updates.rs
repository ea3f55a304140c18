//! The changes of RFC 7857.

use super::packets::{End, Ip, SYN, query, tcp, udp};
use super::rig::{POOL, R, S, X, Y, in_time, rig, rig_of, timed};
use std::time::{Duration, Instant};

const X1: End = (X, 5000);
const R1: End = (R, 5353);
const OPEN: &str = "filtering = \"endpoint-independent\"";

#[test]
fn nat_7857_4_a_host_whose_address_is_used_up_gets_no_other() {
    // An address has one block here.
    let Some(mut rig) = rig_of("[\"203.0.113.64/30\"]", "ports = \"1024-1087\"\nblock_size = 64") else {
        return;
    };
    let address = rig.out((X, 2000), R1).0;
    for n in 1..64 {
        assert_eq!(rig.out((X, 2000 + n), R1).0, address);
    }
    rig.inside.send(&udp((X, 9000), R1, b"one too many"));
    rig.outside.silent();
    rig.end(&[("nat/ports_exhausted", 1)]);
}

#[test]
fn nat_7857_5_6_each_protocol_has_mappings_and_filters_of_its_own() {
    let Some(mut rig) = rig(OPEN) else { return };
    let outside = rig.out(X1, R1);
    // To the same external port by another protocol: no mapping.
    rig.refused(&tcp((S, 1), outside, SYN, (1, 0), b""));
    rig.refused(&query(8, S, POOL, outside.1));
    assert_eq!(rig.back((S, 1), outside), X1);
    // And the port is free for another host's TCP.
    let seen = rig.sent(&tcp((Y, outside.1), R1, SYN, (1, 0), b""));
    rig.refused(&udp(R1, (POOL, seen.ends().0.1 ^ 3), b"absent"));
    rig.end(&[("nat/no_mapping", 3)]);
}

#[test]
fn nat_7857_9_ports_cannot_be_guessed() {
    let Some(mut rig) = rig("preserve_ports = false\npreserve_parity = false") else {
        return;
    };
    // Of 40 million orders 352 had eight such steps or more, so one host alone may be that unlucky;
    // not three, each with a block of its own.
    let orders = [X, Y, [10, 0, 1, 77]]
        .map(|host| -> Vec<u16> { (0..64).map(|n| rig.out((host, 2000 + n), R1).1).collect() });
    let is_guessed = |ports: &&Vec<u16>| {
        ports
            .windows(2)
            .filter(|pair| pair[0].abs_diff(pair[1]) == 1)
            .count()
            >= 8
    };
    assert!(orders.iter().filter(is_guessed).count() < 3, "{orders:?}");
    rig.end(&[]);
    // Where ports are kept, a port that is taken is replaced by one from elsewhere.
    let Some(mut rig) = rig_of("[\"203.0.113.64\"]", "") else {
        return;
    };
    let mut near = 0;
    for port in 4000..4016 {
        let first = rig.out((X, port), R1);
        let second = rig.out((Y, port), R1);
        near += u32::from(first.1.abs_diff(second.1) <= 2);
    }
    assert!(near < 8, "{near} of 16");
    rig.end(&[]);
}

#[test]
fn nat_7857_10_the_identification_stays_as_it_was() {
    let Some(mut rig) = rig("") else { return };
    let outside = rig.out(X1, R1);
    for id in [0, 1, 0xffff] {
        assert_eq!(rig.sent(&udp(X1, R1, b"out").id(id)).id, id);
        assert_eq!(rig.arrived(&udp(R1, outside, b"back").id(id)).id, id);
    }
    // RFC 6864 demands that of atomic datagrams; identifications of two hosts may clash when
    // datagrams come in parts, and then each part still has its own host's ports.
    let text: Vec<u8> = (0..2000).map(|n| n as u8).collect();
    let mut seen = Vec::new();
    for host in [X, Y] {
        let parts = udp((host, 5000), R1, &text).id(77).parts(1400);
        parts.iter().for_each(|part| rig.inside.send(part));
        seen.push(Ip::whole(rig.outside.take(2)));
    }
    assert!(
        seen.iter()
            .all(|whole| whole.transport_holds() && whole.text() == text)
    );
    assert_ne!(seen[0].ends().0, seen[1].ends().0);
    assert_eq!(seen[0].id, seen[1].id);
    rig.end(&[]);
}

#[test]
fn nat_7857_11_a_query_mapping_goes_with_its_last_session() {
    timed(|scale| {
        let (second, timeout) = (Duration::from_secs(1) * scale, Duration::from_secs(4) * scale);
        let times = format!(
            "timeouts = {{ icmp_query = \"{}s\", below_rfc = true }}",
            4 * scale
        );
        let Some(mut rig) = rig(&format!("{OPEN}\n{times}")) else {
            return Some(());
        };
        let began = Instant::now();
        let identifier = rig.sent(&query(8, X, R, 700)).ends().0.1;
        std::thread::sleep(second * 5 / 2);
        in_time(began, timeout)?;
        let again = Instant::now();
        assert_eq!(rig.sent(&query(8, X, S, 700)).ends().0.1, identifier);
        std::thread::sleep(second * 2);
        // The first session is over, the mapping is not.
        in_time(again, timeout)?;
        assert_eq!(rig.arrived(&query(0, S, POOL, identifier)).ends().1, (X, 700));
        std::thread::sleep(timeout + second);
        rig.refused(&query(8, S, POOL, identifier));
        rig.end(&[("nat/no_mapping", 1)]);
        Some(())
    });
}

#[test]
fn nat_7857_12_a_query_has_no_second_identifier_for_a_hairpin() {
    let Some(mut rig) = rig(OPEN) else { return };
    let y = rig.sent(&query(8, Y, R, 800)).ends().0;
    // Its packet outside would have X's identifier, and so would be for X.
    rig.inside.send(&query(8, X, POOL, y.1));
    rig.inside.send(&query(8, X, POOL, 801));
    rig.inside.silent();
    rig.outside.silent();
    rig.end(&[("nat/hairpin_to_itself", 2)]);
}
