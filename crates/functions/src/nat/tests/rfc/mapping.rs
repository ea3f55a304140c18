//! Mappings, their ports and their lives: RFC 4787 REQ-1 to REQ-7, REQ-11, REQ-14.

use super::*;

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
    // Of one parity there are 128 in a block: the next block is taken for it rather than a port of
    // the other parity.
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
    // A later fragment whose first was not seen.
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
