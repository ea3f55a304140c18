//! Addresses as a whole: a host's own external address, with all protocols; pings of an external
//! address; a host's place in the pool; blocks of few ports; segment sizes.

extern crate std;

use super::frames::{
    Tcp, V4, assert_checksums, echo, ends, other, quoted, tcp, udp, unchanged_part, unreachable,
};
use super::rig::{Out, Rig, pool_of};
use crate::nat::{Config, Filtering, StaticMapping, StaticProtocol};
use nf::Addr;
use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

const HOST: [u8; 4] = [10, 0, 0, 5];
const OWN: [u8; 4] = [203, 0, 113, 9];
const R1: V4 = ([198, 51, 100, 7], 5353);
const GRE: u8 = 47;

fn mapping(inside: &str, outside: &str, protocol: StaticProtocol) -> StaticMapping {
    let end = |text: &str| match text.parse::<Addr>() {
        Ok(addr) => nf::Endpoint::new(addr, 0),
        Err(_) => text.parse().unwrap(),
    };
    StaticMapping {
        inside: end(inside),
        outside: end(outside),
        protocol,
    }
}

fn with(mappings: Vec<StaticMapping>) -> Rig {
    Rig::new(Config {
        static_mappings: mappings.into(),
        ..pool_of("203.0.113.8/31")
    })
}

#[test]
fn a_host_with_an_address_of_its_own_keeps_ports_and_identifiers() {
    let mut rig = with(vec![mapping("10.0.0.5", "203.0.113.9", StaticProtocol::Any)]);
    for frame in [
        udp((HOST, 1), R1),
        tcp((HOST, 80), R1, Tcp::Syn),
        echo(HOST, R1.0, 77, true),
        other(HOST, R1.0, GRE),
        other(HOST, R1.0, 50),
    ] {
        let sent = rig.send_inside(&frame).sent();
        assert_checksums(&sent);
        assert_eq!(ends(&sent).0, (OWN, ends(&frame).0.1));
        assert_eq!(unchanged_part(&sent), unchanged_part(&frame));
    }
    // And from outside.
    for frame in [
        udp(R1, (OWN, 9)),
        tcp(R1, (OWN, 443), Tcp::Syn),
        echo(R1.0, OWN, 78, true),
        other([192, 0, 2, 1], OWN, GRE),
    ] {
        let sent = rig.send_outside(&frame).sent();
        assert_checksums(&sent);
        assert_eq!(ends(&sent).1, (HOST, ends(&frame).1.1));
    }
    assert_eq!(
        rig.send_outside(&tcp(R1, (OWN, 444), Tcp::Ack)).reason(),
        "tcp_not_opening"
    );
    assert_eq!(rig.count("mappings_created"), 0);
    // No other host gets a port there.
    for n in 10..200 {
        let sent = rig.send_inside(&udp(([10, 0, 0, n], 5000), R1)).sent();
        assert_eq!(ends(&sent).0.0, [203, 0, 113, 8]);
    }
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn an_error_about_a_packet_without_ports_finds_its_host() {
    let mut rig = with(vec![mapping("10.0.0.5", "203.0.113.9", StaticProtocol::Any)]);
    let sent = rig.send_inside(&other(HOST, R1.0, GRE)).sent();
    let told = rig
        .send_outside(&unreachable([198, 18, 0, 1], OWN, &sent, 64))
        .sent();
    assert_checksums(&told);
    assert_eq!((ends(&told).1.0, ends(&quoted(&told)).0.0), (HOST, HOST));
}

#[test]
fn a_protocol_without_ports_goes_through_one_address_of_the_pool() {
    let mut rig = with(vec![mapping("10.0.0.5", "203.0.113.9", StaticProtocol::Gre)]);
    let sent = rig.send_outside(&other(R1.0, OWN, GRE)).sent();
    assert_eq!(ends(&sent).1.0, HOST);
    assert_eq!(ends(&rig.send_inside(&other(HOST, R1.0, GRE)).sent()).0.0, OWN);
    assert_eq!(
        rig.send_outside(&other(R1.0, OWN, 50)).reason(),
        "protocol_not_translated"
    );
    assert_eq!(
        rig.send_inside(&other([10, 0, 0, 6], R1.0, GRE)).reason(),
        "protocol_not_translated"
    );
    // The address is still the pool's: of many hosts some get it.
    let given: HashSet<[u8; 4]> = (10..60)
        .map(|n| ends(&rig.send_inside(&udp(([10, 0, 0, n], 5000), R1)).sent()).0.0)
        .collect();
    assert!(given.contains(&OWN) && given.len() == 2, "{given:?}");
}

#[test]
fn an_endpoint_goes_before_its_address() {
    let mut rig = with(vec![
        mapping("10.0.0.5", "203.0.113.9", StaticProtocol::Any),
        mapping("10.0.0.6:8080", "203.0.113.9:80", StaticProtocol::Tcp),
    ]);
    let to = |rig: &mut Rig, port| ends(&rig.send_outside(&tcp(R1, (OWN, port), Tcp::Syn)).sent()).1;
    assert_eq!(to(&mut rig, 80), ([10, 0, 0, 6], 8080));
    assert_eq!(to(&mut rig, 81), (HOST, 81));
    // An endpoint taken from the address is not the address's host's.
    let sent = rig.send_inside(&tcp((HOST, 80), R1, Tcp::Syn)).sent();
    assert_eq!(ends(&sent).0.0, [203, 0, 113, 8], "a port of the pool");
}

#[test]
fn hosts_reach_an_address_of_a_hosts_own_from_inside() {
    let mut rig = with(vec![mapping("10.0.0.5", "203.0.113.9", StaticProtocol::Any)]);
    let other_host = ([10, 0, 0, 6], 6000);
    let out = rig.send_inside(&udp(other_host, (OWN, 53)));
    let seen = ends(&out.sent());
    assert_eq!(seen.1, (HOST, 53));
    let back = rig.send_inside(&udp((HOST, 53), seen.0)).sent();
    assert_eq!(ends(&back), ((OWN, 53), other_host));
    // The host has all identifiers there, so a ping turns around, too.
    let there = ends(&rig.send_inside(&echo([10, 0, 0, 6], OWN, 99, true)).sent());
    assert_eq!(there.1.0, HOST);
    let back = rig.send_inside(&echo(HOST, there.0.0, there.0.1, false)).sent();
    assert_eq!(ends(&back), ((OWN, 99), ([10, 0, 0, 6], 99)));
    assert_eq!(
        rig.send_inside(&echo(HOST, OWN, 1, true)).reason(),
        "hairpin_to_itself"
    );
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn a_ping_of_an_external_address_is_answered() {
    let mut rig = Rig::new(Config {
        answer_pings: true,
        ..pool_of("203.0.113.8/31")
    });
    for (side, from) in [(nf::Side::Outside, R1.0), (nf::Side::Inside, [10, 0, 0, 6])] {
        let asked = echo(from, OWN, 7, true);
        let Out::Answered(answer) = rig.send(side, &asked) else {
            panic!("no answer on {side:?}")
        };
        assert_checksums(&answer);
        assert_eq!(ends(&answer), ((OWN, 7), (from, 7)));
        assert_eq!((answer[34], &answer[38..]), (0, &asked[38..]));
    }
    assert_eq!((rig.flow_count(), rig.count("pings_answered")), (0, 2));
    // Neither an answer nor another question; nor more than a thousand a second.
    assert_eq!(
        rig.send_outside(&echo(R1.0, OWN, 7, false)).reason(),
        "icmp_unrelated"
    );
    let answered = (0..3000).filter(|n| {
        let out = rig.send_outside(&echo(R1.0, OWN, *n, true));
        matches!(out, Out::Answered(_))
    });
    assert_eq!(answered.count(), 998);
    rig.assert_empty();
    let mut silent = Rig::new(pool_of("203.0.113.8/31"));
    assert_eq!(
        silent.send_outside(&echo(R1.0, OWN, 7, true)).reason(),
        "no_mapping"
    );
    assert_eq!(
        silent.send_inside(&echo([10, 0, 0, 6], OWN, 7, true)).reason(),
        "hairpin_to_itself"
    );
}

/// RFC 4787 REQ-2, and more: while the pool has room there, a host comes back to its address after
/// all of its flows have ended.
#[test]
fn a_host_keeps_its_address() {
    let mut rig = Rig::new(pool_of("203.0.113.0/28"));
    let address =
        |rig: &mut Rig, n: u8, port| ends(&rig.send_inside(&udp(([10, 0, 0, n], port), R1)).sent()).0.0;
    let first: Vec<[u8; 4]> = (0..100).map(|n| address(&mut rig, n, 5000)).collect();
    let distinct: HashSet<&[u8; 4]> = first.iter().collect();
    assert!(distinct.len() > 8, "hosts are spread: {distinct:?}");
    rig.expire(1);
    for (n, before) in first.iter().enumerate() {
        assert_eq!(address(&mut rig, n as u8, 6000), *before, "host {n} has flows");
    }
    rig.expire_all();
    for (n, before) in first.iter().enumerate().rev() {
        assert_eq!(address(&mut rig, n as u8, 7000), *before, "host {n} comes back");
    }
}

#[test]
fn blocks_are_as_small_as_a_port() {
    for (block_size, blocks_per_host) in [(1, 24), (2, 12), (8, 3)] {
        let mut rig = Rig::new(Config {
            block_size,
            blocks_per_host,
            ports: (1024, 1024 + 47),
            filtering: Filtering::EndpointIndependent,
            ..pool_of("203.0.113.9/32")
        });
        let mut given = HashSet::new();
        for host in [1, 2] {
            for n in 0..24 {
                let from = ([10, 0, 0, host], 6000 + n);
                let sent = rig.send_inside(&udp(from, R1)).sent();
                let outside = ends(&sent).0;
                assert!(given.insert(outside), "{outside:?} twice");
                assert_eq!(ends(&rig.send_outside(&udp(R1, outside)).sent()).1, from);
            }
            let more = rig.send_inside(&udp(([10, 0, 0, host], 9999), R1)).reason();
            assert_eq!(more, "host_ports_exhausted");
        }
        assert_eq!(given.len(), 48);
        assert_eq!(
            rig.send_inside(&udp(([10, 0, 0, 3], 1), R1)).reason(),
            "ports_exhausted"
        );
        rig.expire_all();
        rig.assert_empty();
    }
}

#[test]
fn a_block_of_one_port_has_the_parity_that_is_asked_for() {
    let mut rig = Rig::new(Config {
        block_size: 1,
        blocks_per_host: 24,
        ports: (1025, 1124),
        ..pool_of("203.0.113.9/32")
    });
    for n in 0..20 {
        let sent = rig.send_inside(&udp(([10, 0, 0, 1], 6000 + n), R1)).sent();
        assert_eq!(ends(&sent).0.1 % 2, n % 2);
    }
}

fn offer(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[14 + 20 + 22], frame[14 + 20 + 23]])
}

fn syn(from: V4, to: V4, is_answer: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(from.0, to.0, 64)
        .tcp(from.1, to.1, 1000, 4096)
        .options(&[etherparse::TcpOptionElement::MaximumSegmentSize(1460)])
        .unwrap();
    let builder = if is_answer {
        builder.syn().ack(7)
    } else {
        builder.syn()
    };
    builder.write(&mut frame, b"").unwrap();
    frame
}

#[test]
fn segment_sizes_are_clamped_both_ways() {
    let mut rig = Rig::new(Config {
        mss_clamp: Some(1360),
        static_mappings: vec![mapping("10.0.0.5", "203.0.113.9", StaticProtocol::Any)].into(),
        ..pool_of("203.0.113.8/32")
    });
    for host in [([10, 0, 0, 6], 4000), (HOST, 4000)] {
        let sent = rig.send_inside(&syn(host, R1, false)).sent();
        assert_checksums(&sent);
        assert_eq!(offer(&sent), 1360);
        let back = rig.send_outside(&syn(R1, ends(&sent).0, true)).sent();
        assert_checksums(&back);
        assert_eq!(offer(&back), 1360);
    }
    let inward = rig.send_outside(&syn(R1, (OWN, 80), false)).sent();
    assert_checksums(&inward);
    assert_eq!(offer(&inward), 1360);
    let mut plain = Rig::new(pool_of("203.0.113.8/32"));
    assert_eq!(offer(&plain.send_inside(&syn((HOST, 1), R1, false)).sent()), 1460);
}
