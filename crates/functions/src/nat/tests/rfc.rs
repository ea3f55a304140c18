//! The requirements of RFC 4787, 5382, 5508, 6888 by number, as far as they are a NAT's alone.

extern crate std;

use super::frames::{Tcp, assert_checksums, echo, ends, mend_ip, other, tcp, udp, unchanged_part};
use super::rig::{Out, Rig, pool_of};
use crate::nat::{Config, Filtering, Log, MappingBehavior, OtherProtocols, StaticMapping, StaticProtocol};
use core::time::Duration;
use nf::{Addr, Side};
use std::collections::HashSet;
use std::vec;
use std::vec::Vec;
use wire::packet::flag;

const X1: ([u8; 4], u16) = ([10, 0, 0, 1], 5000);
const X2: ([u8; 4], u16) = ([10, 0, 0, 2], 6001);
const R1: ([u8; 4], u16) = ([198, 51, 100, 7], 5353);
const R2: ([u8; 4], u16) = ([192, 0, 2, 9], 7777);
const EXT: [u8; 4] = [203, 0, 113, 1];
const HOURS_2_04: Duration = Duration::from_secs(7440);

fn one_address() -> Config {
    pool_of("203.0.113.1/32")
}

fn with_filtering(filtering: Filtering) -> Rig {
    Rig::new(Config {
        filtering,
        ..one_address()
    })
}

/// Sends from inside and answers the external endpoint it left with.
fn open(rig: &mut Rig, from: ([u8; 4], u16), to: ([u8; 4], u16)) -> ([u8; 4], u16) {
    let sent = rig.send_inside(&udp(from, to)).sent();
    assert_checksums(&sent);
    let (outside, remote) = ends(&sent);
    assert_eq!(remote, to);
    outside
}

#[test]
fn there_and_back() {
    let mut rig = Rig::new(one_address());
    let question = udp(X1, R1);
    let sent = rig.send_inside(&question).sent();
    let (outside, _) = ends(&sent);
    assert_eq!(outside.0, EXT);
    assert_eq!(unchanged_part(&sent), unchanged_part(&question));
    let back = rig.send_outside(&udp(R1, outside)).sent();
    assert_checksums(&back);
    assert_eq!(ends(&back), (R1, X1));
    assert_eq!(rig.flow_count(), 1);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn rfc4787_req1_mapping_is_endpoint_independent() {
    let mut rig = Rig::with(one_address(), 4, 10_000).unwrap();
    let seen: HashSet<_> = (0..1000u16)
        .map(|n| {
            open(
                &mut rig,
                X1,
                ([198, 51, (n / 200) as u8, (n % 200) as u8 + 1], 1000 + n),
            )
        })
        .collect();
    assert_eq!(seen.len(), 1);
    assert_eq!((rig.flow_count(), rig.mappings()), (1000, 1));
    assert_eq!(rig.count("mappings_created"), 1);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn mapping_can_be_address_and_port_dependent() {
    let mut rig = Rig::new(Config {
        mapping: MappingBehavior::AddressAndPortDependent,
        ..one_address()
    });
    let seen: HashSet<_> = (0..100).map(|n| open(&mut rig, X1, (R1.0, 1000 + n))).collect();
    assert_eq!(seen.len(), 100);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn rfc4787_req2_addresses_are_paired() {
    let mut rig = Rig::new(Config {
        blocks_per_host: 24,
        ..pool_of("203.0.113.0/28")
    });
    for host in 1..=20 {
        let seen: HashSet<_> = (0..450)
            .map(|n| open(&mut rig, ([10, 0, 0, host], 1024 + n), R1).0)
            .collect();
        assert_eq!(seen.len(), 1, "host {host}");
    }
    let addresses: HashSet<_> = rig.blocks.keys().map(|b| b.addr).collect();
    assert!(
        addresses.len() > 5,
        "hosts spread over the pool: {}",
        addresses.len()
    );
}

#[test]
fn rfc4787_req3_no_port_is_overloaded_and_high_ports_stay_high() {
    let mut rig = Rig::new(one_address());
    let mut seen = HashSet::new();
    for host in 1..=100 {
        for port in 0..50 {
            let outside = open(&mut rig, ([10, 0, 0, host], 2000 + port), R1);
            assert!(outside.1 >= 1024);
            assert!(seen.insert(outside), "{outside:?} twice");
        }
    }
}

#[test]
fn rfc4787_req4_parity_is_kept() {
    let mut rig = Rig::new(one_address());
    for port in 3000..3200 {
        let outside = open(&mut rig, (X1.0, port), R1);
        assert_eq!(outside.1 % 2, port % 2);
    }
    // Of one parity there are 128 in a block: the next block is taken for it rather than a port of the other parity.
    for port in (10_000..10_400).step_by(2) {
        assert_eq!(open(&mut rig, (X1.0, port), R1).1 % 2, 0);
    }
}

#[test]
fn rfc4787_req4_a_port_of_the_other_parity_is_better_than_none() {
    let mut rig = Rig::new(Config {
        blocks_per_host: 1,
        ..one_address()
    });
    let even = (0..256)
        .filter(|n| open(&mut rig, (X1.0, 2000 + 2 * n), R1).1.is_multiple_of(2))
        .count();
    assert_eq!(even, 128);
}

#[test]
fn ports_are_preserved_where_possible() {
    let mut rig = Rig::new(one_address());
    assert_eq!(open(&mut rig, X1, R1).1, X1.1);
    assert_eq!(open(&mut rig, (X1.0, X1.1 + 1), R1).1, X1.1 + 1);
    // Another host with the same port cannot have it.
    assert_ne!(open(&mut rig, (X2.0, X1.1), R1).1, X1.1);
    let mut rig = Rig::new(Config {
        preserve_ports: false,
        ..one_address()
    });
    let kept = (0..50)
        .filter(|n| open(&mut rig, ([10, 0, 1, *n], 40_000), R1).1 == 40_000)
        .count();
    assert_eq!(kept, 0);
}

#[test]
fn rfc4787_req5_udp_timeouts() {
    let mut rig = Rig::new(one_address());
    open(&mut rig, X1, R1);
    assert_eq!(rig.timeout(), Some(Duration::from_secs(300)));
    let mut rig = Rig::new(Config {
        timeouts: crate::nat::Timeouts {
            udp_well_known: Duration::from_secs(17),
            ..Default::default()
        },
        ..one_address()
    });
    open(&mut rig, X1, (R1.0, 53));
    assert_eq!(rig.timeout(), Some(Duration::from_secs(17)));
}

#[test]
fn rfc4787_req8_filtering_address_dependent_is_the_default() {
    let mut rig = Rig::new(one_address());
    let outside = open(&mut rig, X1, R1);
    // The same address, another port: in. Another address: out, with a count and no trace.
    let sent = rig.send_outside(&udp((R1.0, 9), outside)).sent();
    assert_eq!(ends(&sent), ((R1.0, 9), X1));
    assert_eq!(rig.send_outside(&udp(R2, outside)).reason(), "filtered");
    assert_eq!(rig.flow_count(), 2);
    open(&mut rig, X1, R2);
    assert_eq!(rig.send_outside(&udp((R2.0, 9), outside)).reason(), "sent");
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn filtering_closes_when_the_flows_with_an_address_are_gone() {
    let mut rig = Rig::new(one_address());
    let outside = open(&mut rig, X1, R1);
    open(&mut rig, X1, R2);
    open(&mut rig, X1, (R2.0, 8));
    rig.expire(2);
    assert_eq!(rig.send_outside(&udp((R2.0, 9), outside)).reason(), "sent");
    let ids: Vec<_> = rig.actors.keys().copied().filter(|id| *id != 1).collect();
    ids.into_iter().for_each(|id| rig.expire(id));
    assert_eq!(rig.send_outside(&udp((R2.0, 9), outside)).reason(), "filtered");
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "sent");
}

#[test]
fn filtering_forgets_the_first_remote_address_as_any_other() {
    let mut rig = Rig::new(one_address());
    let outside = open(&mut rig, X1, R1);
    open(&mut rig, X1, R2);
    open(&mut rig, X1, (R1.0, 8));
    rig.expire(1);
    assert_eq!(
        rig.send_outside(&udp((R1.0, 9), outside)).reason(),
        "sent",
        "another flow with it"
    );
    rig.expire(3);
    rig.expire(4);
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "filtered");
    open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "sent");
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn filtering_endpoint_independent_lets_all_in() {
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let outside = open(&mut rig, X1, R1);
    let sent = rig.send_outside(&udp(R2, outside)).sent();
    assert_checksums(&sent);
    assert_eq!(ends(&sent), (R2, X1));
    // And the answer goes out by the same external endpoint.
    assert_eq!(open(&mut rig, X1, R2), outside);
    assert_eq!(rig.flow_count(), 2);
    assert_eq!(
        rig.send_outside(&udp(R2, (EXT, outside.1 ^ 1))).reason(),
        "no_mapping"
    );
    rig.expire(1);
    assert_eq!(rig.mappings(), 1, "the flow from outside still uses it");
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn filtering_address_and_port_dependent_lets_only_the_remote_end_in() {
    let mut rig = with_filtering(Filtering::AddressAndPortDependent);
    let outside = open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp(R1, outside)).reason(), "sent");
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "filtered");
    assert_eq!(rig.send_outside(&udp(R2, outside)).reason(), "filtered");
}

#[test]
fn rfc4787_req9_hairpinning_with_external_source() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
        let mut rig = with_filtering(filtering);
        let e2 = open(&mut rig, X2, R1);
        let e1 = open(&mut rig, X1, R1);
        if filtering == Filtering::AddressDependent {
            assert_eq!(rig.send_inside(&udp(X1, e2)).reason(), "filtered");
            // X2 sends to the first address, too: then both may.
            open_hairpin(&mut rig, X2, (EXT, 1024));
        }
        let there = rig.send_inside(&udp(X1, e2));
        let Out::Sent(side, frame) = there else {
            panic!("{there:?}")
        };
        assert_eq!(side, Side::Inside);
        assert_checksums(&frame);
        assert_eq!(ends(&frame), (e1, X2), "{filtering:?}");
        let back = rig.send_inside(&udp(X2, e1)).sent();
        assert_checksums(&back);
        assert_eq!(ends(&back), (e2, X1));
        // And again, established.
        assert_eq!(ends(&rig.send_inside(&udp(X1, e2)).sent()), (e1, X2));
        assert_eq!(ends(&rig.send_inside(&udp(X2, e1)).sent()), (e2, X1));
        rig.expire_all();
        rig.assert_empty();
    }
}

/// Sends to an external endpoint that nobody has: refused behind the turn, but the sender's flow is there.
fn open_hairpin(rig: &mut Rig, from: ([u8; 4], u16), to: ([u8; 4], u16)) {
    assert_eq!(rig.send_inside(&udp(from, to)).reason(), "no_mapping");
}

#[test]
fn hairpinned_flows_that_both_ends_open_are_one_pair() {
    let mut rig = with_filtering(Filtering::AddressAndPortDependent);
    let (e1, e2) = (open(&mut rig, X1, R1), open(&mut rig, X2, R1));
    // The first is filtered, as by any NAT in the way of a hole punch; the second meets the first's flow.
    assert_eq!(rig.send_inside(&udp(X1, e2)).reason(), "filtered");
    assert_eq!(ends(&rig.send_inside(&udp(X2, e1)).sent()), (e2, X1));
    assert_eq!(ends(&rig.send_inside(&udp(X1, e2)).sent()), (e1, X2));
    assert_eq!(rig.flow_count(), 4);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn hairpinning_can_be_off_and_never_reaches_itself() {
    let mut rig = Rig::new(Config {
        hairpinning: false,
        ..one_address()
    });
    let e2 = open(&mut rig, X2, R1);
    assert_eq!(rig.send_inside(&udp(X1, e2)).reason(), "hairpin_off");
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let e1 = open(&mut rig, X1, R1);
    assert_eq!(rig.send_inside(&udp(X1, e1)).reason(), "hairpin_to_itself");
    // Also with the port that is about to be given out.
    assert_eq!(
        rig.send_inside(&udp((X2.0, 9000), (EXT, 9000))).reason(),
        "hairpin_to_itself"
    );
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn an_external_source_from_outside_is_forged() {
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let e1 = open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp((EXT, 4444), e1)).reason(), "spoofed");
}

#[test]
fn rfc4787_req11_the_same_packets_give_the_same_translation() {
    let run = || {
        let mut rig = Rig::new(Config {
            preserve_ports: false,
            ..one_address()
        });
        (0..300)
            .map(|n| open(&mut rig, ([10, 0, 0, (n % 7) as u8], 3000 + n), R1))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn rfc4787_req14_later_fragments_are_translated_with_the_ports_of_the_first() {
    let mut rig = Rig::new(one_address());
    let outside = open(&mut rig, X1, R1);
    let mut later = udp(X1, R1);
    later[20..22].copy_from_slice(&[0, 5]);
    mend_ip(&mut later);
    let sent = rig
        .send_with(Side::Inside, &later, |p| {
            assert!(p.has(flag::LATER_FRAGMENT));
            p.set_ports(X1.1, R1.1);
        })
        .sent();
    assert_checksums(&sent);
    assert_eq!(&sent[26..30], &outside.0);
    assert_eq!(sent[34..], later[34..], "a later fragment has no ports to write");
    // One whose first fragment nobody saw.
    assert_eq!(rig.send_inside(&later).reason(), "fragment_without_flow");
}

#[test]
fn packets_with_ip_options_are_translated() {
    let mut rig = Rig::new(one_address());
    let plain = udp(X1, R1);
    let mut frame = plain[..34].to_vec();
    frame.extend_from_slice(&[1, 1, 1, 0]);
    frame.extend_from_slice(&plain[34..]);
    frame[14] = 0x46;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let sum = wire::checksum::checksum(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    for _ in 0..2 {
        let sent = rig.send_inside(&frame).sent();
        assert_checksums(&sent);
        let (outside, _) = ends(&sent);
        assert_eq!(outside.0, EXT);
        assert_eq!(ends(&rig.send_outside(&udp(R1, outside)).sent()), (R1, X1));
    }
}

#[test]
fn a_udp_checksum_of_zero_stays_zero() {
    let mut rig = Rig::new(one_address());
    let mut frame = udp(X1, R1);
    frame[40..42].fill(0);
    for _ in 0..2 {
        let sent = rig.send_inside(&frame).sent();
        assert_eq!(&sent[40..42], &[0, 0]);
        assert_checksums(&sent);
    }
}

#[test]
fn rfc5382_req1_tcp_mapping_is_endpoint_independent() {
    let mut rig = Rig::new(one_address());
    let seen: HashSet<_> = (0..100)
        .map(|n| ends(&rig.send_inside(&tcp(X1, (R1.0, 1000 + n), Tcp::Syn)).sent()).0)
        .collect();
    assert_eq!((seen.len(), rig.mappings()), (1, 1));
}

fn tcp_open(rig: &mut Rig) -> ([u8; 4], u16) {
    let sent = rig.send_inside(&tcp(X1, R1, Tcp::Syn)).sent();
    assert_checksums(&sent);
    ends(&sent).0
}

fn from_r1(rig: &mut Rig, outside: ([u8; 4], u16), kind: Tcp) {
    let sent = rig.send_outside(&tcp(R1, outside, kind)).sent();
    assert_checksums(&sent);
    assert_eq!(ends(&sent), (R1, X1));
}

#[test]
fn rfc5382_req2_simultaneous_open() {
    let mut rig = Rig::new(one_address());
    let outside = tcp_open(&mut rig);
    from_r1(&mut rig, outside, Tcp::Syn);
    rig.send_inside(&tcp(X1, R1, Tcp::SynAck)).sent();
    from_r1(&mut rig, outside, Tcp::SynAck);
    assert_eq!((rig.flow_count(), rig.timeout()), (1, Some(HOURS_2_04)));
}

#[test]
fn rfc5382_req3_req4_unsolicited_syns_are_filtered_in_silence() {
    let mut rig = Rig::new(one_address());
    let outside = tcp_open(&mut rig);
    assert_eq!(rig.send_outside(&tcp(R2, outside, Tcp::Syn)).reason(), "filtered");
    assert_eq!(
        rig.send_outside(&tcp((R1.0, 1), outside, Tcp::Ack)).reason(),
        "tcp_not_opening"
    );
    assert_eq!(
        rig.send_outside(&tcp((R1.0, 1), outside, Tcp::Syn)).reason(),
        "sent"
    );
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let outside = tcp_open(&mut rig);
    assert_eq!(rig.send_outside(&tcp(R2, outside, Tcp::Syn)).reason(), "sent");
}

#[test]
fn rfc5382_req5_tcp_timeouts_by_phase() {
    let transitory = Some(Duration::from_secs(240));
    let mut rig = Rig::new(one_address());
    let outside = tcp_open(&mut rig);
    assert_eq!(rig.timeout(), transitory);
    from_r1(&mut rig, outside, Tcp::SynAck);
    rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
    rig.send_inside(&tcp(X1, R1, Tcp::Fin)).sent();
    assert_eq!(
        rig.timeout(),
        Some(HOURS_2_04),
        "half closed, the other half may still send"
    );
    from_r1(&mut rig, outside, Tcp::Fin);
    assert_eq!(rig.timeout(), transitory);
    rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), transitory);
    // The same endpoints again.
    assert_eq!(tcp_open(&mut rig), outside);
    from_r1(&mut rig, outside, Tcp::SynAck);
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
    // A reset may be forged: what follows it takes it back (RFC 6146 3.5.2.2).
    from_r1(&mut rig, outside, Tcp::Rst);
    assert_eq!(rig.timeout(), transitory);
    rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
}

#[test]
fn tcp_can_be_picked_up_in_the_middle_from_inside() {
    let mut rig = Rig::new(one_address());
    let sent = rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), Some(Duration::from_secs(240)));
    from_r1(&mut rig, ends(&sent).0, Tcp::Ack);
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
}

#[test]
fn rfc5508_req1_queries_are_mapped_by_identifier() {
    let mut rig = Rig::new(one_address());
    let first = rig.send_inside(&echo(X1.0, R1.0, 700, true)).sent();
    assert_checksums(&first);
    let (a, _) = ends(&first);
    let (b, _) = ends(&rig.send_inside(&echo(X2.0, R1.0, 700, true)).sent());
    assert_ne!(a, b, "two hosts with one identifier");
    let (again, _) = ends(&rig.send_inside(&echo(X1.0, R2.0, 700, true)).sent());
    assert_eq!(a, again, "endpoint-independent, too");
    let answer = rig.send_outside(&echo(R1.0, EXT, a.1, false)).sent();
    assert_checksums(&answer);
    assert_eq!(ends(&answer), ((R1.0, 700), (X1.0, 700)));
    assert_eq!(
        rig.send_inside(&echo(X1.0, R2.0, 701, false)).reason(),
        "icmp_unrelated"
    );
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn rfc5508_req2_query_timeout() {
    let mut rig = Rig::new(one_address());
    rig.send_inside(&echo(X1.0, R1.0, 700, true)).sent();
    assert_eq!(rig.timeout(), Some(Duration::from_secs(60)));
}

#[test]
fn protocols_have_ports_of_their_own() {
    let mut rig = Rig::new(one_address());
    assert_eq!(open(&mut rig, X1, R1).1, X1.1);
    assert_eq!(ends(&rig.send_inside(&tcp(X1, R1, Tcp::Syn)).sent()).0.1, X1.1);
    assert_eq!(
        ends(&rig.send_inside(&echo(X1.0, R1.0, X1.1, true)).sent()).0.1,
        X1.1
    );
    assert_eq!((rig.blocks.len(), rig.mappings()), (1, 3));
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn other_protocols_are_dropped_or_passed() {
    let mut rig = Rig::new(one_address());
    assert_eq!(
        rig.send_inside(&other(X1.0, R1.0, 47)).reason(),
        "protocol_not_translated"
    );
    let mut rig = Rig::new(Config {
        other_protocols: OtherProtocols::Pass,
        ..one_address()
    });
    let frame = other(X1.0, R1.0, 47);
    assert_eq!(rig.send_inside(&frame).sent(), frame);
    assert_eq!(rig.count("flows_untouched"), 1);
}

#[test]
fn only_inside_prefixes_are_translated_and_nobody_reaches_them_directly() {
    let mut rig = Rig::new(Config {
        inside: vec!["10.0.0.0/8".parse().unwrap()],
        ..one_address()
    });
    let public = udp(([192, 0, 2, 200], 99), R1);
    assert_eq!(rig.send_inside(&public).sent(), public);
    let back = udp(R1, ([192, 0, 2, 200], 99));
    assert_eq!(rig.send_outside(&back).sent(), back);
    assert_eq!(rig.send_outside(&udp(R2, X1)).reason(), "no_mapping");
    assert_eq!(rig.send_inside(&udp((EXT, 5000), R1)).reason(), "spoofed");
    // Not by the key of an existing flow either, neither from the wrong side nor to the untranslated address.
    open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp(X1, R1)).reason(), "wrong_endpoint");
    assert_eq!(rig.send_outside(&udp(R1, X1)).reason(), "wrong_endpoint");
    assert_eq!(rig.send_inside(&udp(R1, X1)).reason(), "wrong_endpoint");
}

#[test]
fn ipv6_passes_untouched_and_is_counted() {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([0x20; 16], [0x30; 16], 9)
        .udp(1, 2)
        .write(&mut frame, b"six")
        .unwrap();
    let mut rig = Rig::new(one_address());
    assert_eq!(rig.send_inside(&frame).sent(), frame);
    assert_eq!(rig.send_inside(&frame).sent(), frame);
    assert_eq!(rig.count("flows_untouched_ipv6"), 1);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn static_mappings_are_open_to_all_both_ways() {
    let to = |inside: &str, outside: &str, protocol| StaticMapping {
        inside: inside.parse().unwrap(),
        outside: outside.parse().unwrap(),
        protocol,
    };
    let mut rig = Rig::new(Config {
        static_mappings: vec![
            to("10.0.0.5:80", "203.0.113.1:8080", StaticProtocol::Tcp),
            to("10.0.0.5:53", "192.0.2.77:53", StaticProtocol::Udp),
        ]
        .into(),
        ..one_address()
    });
    let sent = rig.send_outside(&tcp(R2, (EXT, 8080), Tcp::Syn)).sent();
    assert_checksums(&sent);
    assert_eq!(ends(&sent), (R2, ([10, 0, 0, 5], 80)));
    let back = rig.send_inside(&tcp(([10, 0, 0, 5], 80), R2, Tcp::SynAck)).sent();
    assert_eq!(ends(&back), ((EXT, 8080), R2));
    // Outward, too, and on an address that is not in the pool; from inside by hairpin.
    assert_eq!(open(&mut rig, ([10, 0, 0, 5], 53), R1), ([192, 0, 2, 77], 53));
    let hairpin = rig.send_inside(&udp(X1, ([192, 0, 2, 77], 53))).sent();
    assert_eq!(ends(&hairpin), ((EXT, X1.1), ([10, 0, 0, 5], 53)));
    assert_eq!(
        rig.send_outside(&udp(R2, (EXT, 8080))).reason(),
        "no_mapping",
        "another protocol"
    );
    // Its block is nobody's.
    for n in 0..200 {
        open(&mut rig, ([10, 0, 1, n], 8081), R1);
    }
    let reserved = rig.blocks.keys().any(|b| b.first == 8080 & !255);
    assert!(!reserved);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn rfc6888_req4_a_host_has_a_limit_and_exhaustion_is_counted() {
    let mut rig = Rig::new(Config {
        blocks_per_host: 2,
        block_size: 64,
        ..one_address()
    });
    for n in 0..128 {
        open(&mut rig, (X1.0, 2000 + n), R1);
    }
    assert_eq!(
        rig.send_inside(&udp((X1.0, 9999), R1)).reason(),
        "host_ports_exhausted"
    );
    assert_eq!(rig.flow_count(), 128, "the refused flow left nothing");
    assert_eq!(
        rig.send_inside(&udp((X1.0, 2000), R2)).reason(),
        "sent",
        "its mappings serve on"
    );
    open(&mut rig, X2, R1);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn an_exhausted_pool_drops_new_hosts_and_serves_the_old() {
    let mut rig = Rig::new(Config {
        ports: (1024, 1024 + 4 * 256 - 1),
        ..one_address()
    });
    for host in 1..=4 {
        open(&mut rig, ([10, 0, 0, host], 4000), R1);
    }
    assert_eq!(
        rig.send_inside(&udp(([10, 0, 0, 5], 4000), R1)).reason(),
        "ports_exhausted"
    );
    for n in 0..255 {
        open(&mut rig, ([10, 0, 0, 1], 5000 + n), R1);
    }
    assert_eq!(
        rig.send_inside(&udp(([10, 0, 0, 1], 4999), R1)).reason(),
        "ports_exhausted"
    );
    rig.expire(1);
    rig.expire_all();
    rig.assert_empty();
    open(&mut rig, ([10, 0, 0, 5], 4000), R1);
}

#[test]
fn a_full_table_is_a_counted_drop() {
    let mut rig = Rig::with(one_address(), 1, 3).unwrap();
    for n in 0..3 {
        open(&mut rig, (X1.0, 4000 + n), R1);
    }
    assert_eq!(rig.send_inside(&udp((X1.0, 5000), R1)).reason(), "table_full");
}

#[test]
fn a_freed_port_is_the_last_to_be_used_again() {
    let mut rig = Rig::new(Config {
        preserve_ports: false,
        preserve_parity: false,
        ..one_address()
    });
    let first = open(&mut rig, X1, R1);
    rig.expire_all();
    let mut rig2 = Rig::new(Config {
        preserve_ports: false,
        preserve_parity: false,
        ..one_address()
    });
    open(&mut rig2, X2, R1);
    let keeper = open(&mut rig2, X1, R1);
    assert_eq!(keeper.0, first.0);
    // Within a block that stays with its host: all other ports come before the freed one.
    let mut rig = Rig::new(Config {
        preserve_ports: false,
        preserve_parity: false,
        blocks_per_host: 1,
        ..one_address()
    });
    open(&mut rig, (X1.0, 1), R1);
    let freed = open(&mut rig, (X1.0, 2), R1);
    rig.expire(2);
    let next: Vec<_> = (3..257).map(|n| open(&mut rig, (X1.0, n), R1)).collect();
    assert!(!next.contains(&freed));
    assert_eq!(open(&mut rig, (X1.0, 300), R1), freed);
}

#[test]
fn runtimes_share_the_pool_without_overlap() {
    let mut rig = Rig::with(pool_of("203.0.113.0/30"), 4, 1000).unwrap();
    let mut seen = HashSet::new();
    for host in 1..=200 {
        assert!(seen.insert(open(&mut rig, ([10, 0, 0, host], 7000), R1)));
    }
    assert_eq!(rig.blocks.len(), 200);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn a_host_moves_with_its_mappings() {
    for filtering in [Filtering::AddressDependent, Filtering::EndpointIndependent] {
        let mut rig = Rig::with(
            Config {
                filtering,
                ..one_address()
            },
            2,
            1000,
        )
        .unwrap();
        let host = Addr::v4(X1.0);
        let a = open(&mut rig, X1, R1);
        assert_eq!(a, open(&mut rig, X1, R2));
        let b = open(&mut rig, (X1.0, 6000), R1);
        let mut mapped = 2;
        rig.send_outside(&udp((R1.0, 9), a)).sent();
        for (to, why) in [
            (0, nf::Arrival::Migrated),
            (1, nf::Arrival::Migrated),
            (0, nf::Arrival::Migrated),
        ] {
            rig.migrate(host, to, why);
            assert_eq!(rig.mappings(), mapped);
            assert_eq!(a, open(&mut rig, X1, R1));
            assert_eq!(a, open(&mut rig, X1, ([192, 0, 2, 50], 1)));
            assert_eq!(b, open(&mut rig, (X1.0, 6000), R1));
            mapped += 1;
            assert_ne!(open(&mut rig, (X1.0, 6000 + mapped as u16), R1), a);
            rig.send_outside(&udp((R1.0, 10), b)).sent();
            assert_eq!(ends(&rig.send_outside(&udp(R1, a)).sent()), (R1, X1));
        }
        rig.expire_all();
        rig.assert_empty();
    }
}

#[test]
fn a_recovered_host_keeps_its_ports_from_others() {
    let mut rig = Rig::with(one_address(), 1, 1000).unwrap();
    let hosts: Vec<_> = (1..=100).map(|n| ([10, 0, 0, n], 7000)).collect();
    let before: Vec<_> = hosts.iter().map(|h| open(&mut rig, *h, R1)).collect();
    rig.nats[0] = nf::NetworkFunction::new(&rig.config, &super::rig::worker(0, 1, 1000)).unwrap();
    let groups: Vec<_> = rig.groups().collect();
    for group in groups {
        rig.migrate(group, 0, nf::Arrival::Recovered);
    }
    let after: Vec<_> = hosts.iter().map(|h| open(&mut rig, *h, R2)).collect();
    assert_eq!(before, after);
    for n in 101..=150 {
        assert!(!before.contains(&open(&mut rig, ([10, 0, 0, n], 7000), R1)));
    }
    rig.expire_all();
}

#[test]
fn rfc6888_req12_mappings_or_blocks_are_logged() {
    let mut rig = Rig::new(one_address());
    open(&mut rig, X1, R1);
    open(&mut rig, X1, R2);
    rig.expire_all();
    let lines = rig.events();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let fields = "\"inside\":\"10.0.0.1:5000\",\"outside\":\"203.0.113.1:5000\",\"protocol\":\"udp\"";
    assert!(
        lines.contains(&std::format!("\"event\":\"mapping_created\",{fields}")),
        "{lines}"
    );
    assert!(
        lines.contains(&std::format!("\"event\":\"mapping_released\",{fields}")),
        "{lines}"
    );
    let mut rig = Rig::new(Config {
        log: Log::Blocks,
        ..one_address()
    });
    open(&mut rig, X1, R1);
    rig.expire_all();
    let lines = rig.events();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(
        lines.contains("block_claimed") && lines.contains("\"ports\":\"4864-5119\""),
        "{lines}"
    );
    assert_eq!(lines.matches("\"host\":\"10.0.0.1\"").count(), 2, "{lines}");
    let mut rig = Rig::new(Config {
        log: Log::None,
        ..one_address()
    });
    open(&mut rig, X1, R1);
    assert_eq!(rig.events(), "");
}

#[test]
fn vlans_have_mappings_of_their_own() {
    let tagged = |vlan: u16, frame: &[u8]| {
        let mut tagged = frame[..12].to_vec();
        tagged.extend_from_slice(&[0x81, 0]);
        tagged.extend_from_slice(&vlan.to_be_bytes());
        tagged.extend_from_slice(&frame[12..]);
        tagged
    };
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let a = ends(&rig.send_inside(&tagged(10, &udp(X1, R1))).sent()).0;
    let b = ends(&rig.send_inside(&tagged(20, &udp(X1, R1))).sent()).0;
    assert_ne!(a, b);
    assert_eq!(rig.send_outside(&tagged(20, &udp(R2, a))).reason(), "no_mapping");
    assert_eq!(rig.send_outside(&tagged(10, &udp(R2, a))).reason(), "sent");
}

#[test]
fn one_empty_block_is_kept_and_no_more() {
    let mut rig = Rig::new(Config {
        static_mappings: vec![StaticMapping {
            inside: "10.0.0.1:80".parse().unwrap(),
            outside: "192.0.2.77:80".parse().unwrap(),
            protocol: StaticProtocol::Udp,
        }]
        .into(),
        block_size: 64,
        ..one_address()
    });
    // A flow that needs no block keeps the host there; others come and go one at a time.
    open(&mut rig, (X1.0, 80), R1);
    for n in 0..10 {
        open(&mut rig, (X1.0, 3000 + n), R1);
        rig.expire(usize::from(n) + 2);
    }
    assert_eq!((rig.claims, rig.releases, rig.blocks.len()), (1, 0, 1));
    // Many at a time: the blocks go back but for one.
    for n in 0..200 {
        open(&mut rig, (X1.0, 4000 + n), R1);
    }
    assert!(rig.blocks.len() >= 4);
    let ids: Vec<_> = rig.actors.keys().copied().filter(|id| *id != 1).collect();
    ids.into_iter().for_each(|id| rig.expire(id));
    assert_eq!((rig.flow_count(), rig.blocks.len()), (1, 1));
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn a_block_that_ends_elsewhere_stays_its_own_runtimes() {
    let mut rig = Rig::with(one_address(), 2, 1000).unwrap();
    let free = |rig: &Rig, runtime: usize| rig.nats[runtime].tables.borrow().ports.free_blocks();
    let before = (free(&rig, 0), free(&rig, 1));
    let host = Addr::v4(X1.0);
    rig.send_inside(&udp(X1, R1)).sent();
    let home = usize::from(free(&rig, 1) < before.1);
    rig.migrate(host, 1 - home, nf::Arrival::Migrated);
    rig.expire_all();
    assert_eq!(free(&rig, 1 - home), [before.0, before.1][1 - home]);
    // Back at home it is free again.
    rig.send_inside(&udp(X2, R1)).sent();
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn a_recovered_host_keeps_its_empty_block_from_others() {
    let mut rig = Rig::new(Config {
        block_size: 64,
        ports: (1024, 1024 + 3 * 64 - 1),
        ..one_address()
    });
    for n in 0..65 {
        open(&mut rig, (X1.0, 3000 + n), R1);
    }
    rig.expire(65);
    assert_eq!(rig.blocks.len(), 2);
    rig.nats[0] = nf::NetworkFunction::new(&rig.config, &super::rig::worker(0, 1, 1000)).unwrap();
    rig.migrate(Addr::v4(X1.0), 0, nf::Arrival::Recovered);
    open(&mut rig, X2, R1);
    assert_eq!(
        rig.send_inside(&udp(([10, 0, 0, 3], 1), R1)).reason(),
        "ports_exhausted"
    );
}
