//! Limits, exhaustion, blocks and their log, hosts that move: RFC 6888.

use super::*;

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
fn rfc5508_req8_who_gets_no_port_can_be_told_so() {
    let mut rig = Rig::new(Config {
        blocks_per_host: 1,
        block_size: 64,
        refusals: Refusals::Answer,
        ..one_address()
    });
    for n in 0..64 {
        open(&mut rig, (X1.0, 2000 + n), R1);
    }
    for protocol in [udp((X1.0, 9999), R1), udp((X1.0, 9998), R2)] {
        let Out::Answered(answer) = rig.send_inside(&protocol) else {
            panic!("no answer")
        };
        assert_checksums(&answer);
        // From the packet's destination, to its sender, quoting the packet as it was.
        let (question, (from, to)) = (ends(&protocol), ends(&answer));
        assert_eq!((from.0, to.0), (question.1.0, question.0.0));
        assert_eq!(answer[34..36], [3, 13]);
        assert_eq!(answer[42..], protocol[14..]);
    }
    assert_eq!((rig.flow_count(), rig.count("refusals_answered")), (64, 2));
    // Errors have a budget, and behind it a drop has its reason.
    let mut refused = Vec::new();
    for n in 0..2000 {
        refused.push(rig.send_inside(&udp((X1.0, 10_000 + n), R1)));
    }
    let dropped = refused
        .iter()
        .filter(|out| **out == Out::Dropped("host_ports_exhausted"))
        .count();
    assert_eq!((rig.count("refusals_answered"), dropped), (1000, 1002));
    // A packet from outside to a free endpoint is never answered.
    assert_eq!(rig.send_outside(&udp(R2, (EXT, 1))).reason(), "no_mapping");
    rig.expire_all();
    rig.assert_empty();
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
    rig.nats[0] = nf::NetworkFunction::new(&rig.config, &crate::nat::tests::rig::worker(0, 1, 1000)).unwrap();
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

/// The flow that keeps the host holds no block: of a static mapping, or untouched.
#[test]
fn an_empty_block_of_a_host_that_moves_is_free_at_home_again() {
    let config = Config {
        static_mappings: vec![StaticMapping {
            inside: "10.0.0.1:80".parse().unwrap(),
            outside: "192.0.2.77:80".parse().unwrap(),
            protocol: StaticProtocol::Udp,
        }]
        .into(),
        other_protocols: OtherProtocols::Pass,
        ..one_address()
    };
    for keeps in [udp((X1.0, 80), R1), other(X1.0, R1.0, 47)] {
        let mut rig = Rig::with(config.clone(), 2, 1000).unwrap();
        let free = |rig: &Rig| [0, 1].map(|at: usize| rig.nats[at].tables.borrow().ports.free_blocks());
        let slots = |rig: &Rig| [0, 1].map(|at: usize| rig.nats[at].tables.borrow().ports.slots_used());
        let before = free(&rig);
        rig.send_inside(&keeps).sent();
        let keeper = *rig.actors.keys().next().unwrap();
        open(&mut rig, X1, R1);
        let home = usize::from(free(&rig)[1] < before[1]);
        let end_others = |rig: &mut Rig| {
            let ids: Vec<_> = rig.actors.keys().copied().filter(|id| *id != keeper).collect();
            ids.into_iter().for_each(|id| rig.expire(id));
        };
        end_others(&mut rig);
        assert_eq!(
            (rig.blocks.len(), slots(&rig)[home]),
            (1, 1),
            "an empty block is kept"
        );
        // Away, used and empty there, home and away again: no runtime but the host's has a slot.
        for to in [1 - home, home, 1 - home] {
            rig.migrate(Addr::v4(X1.0), to, nf::Arrival::Migrated);
            assert_eq!(slots(&rig), [0, 0]);
            open(&mut rig, X1, R1);
            end_others(&mut rig);
            assert_eq!((slots(&rig)[to], slots(&rig)[1 - to]), (1, 0));
        }
        rig.expire_all();
        assert_eq!((free(&rig), slots(&rig)), (before, [0, 0]));
        rig.assert_empty();
    }
}

/// Flows out of a store, and another pool meanwhile: they end, and begin with an endpoint of this
/// one.
#[test]
fn a_recovered_host_whose_address_is_gone_begins_again() {
    let mut rig = Rig::with(one_address(), 2, 1000).unwrap();
    for n in 0..3 {
        open(&mut rig, (X1.0, 3000 + n), R1);
    }
    let other = std::sync::Arc::new(crate::nat::tests::rig::pool_of("198.18.7.0/32"));
    rig.nats[1] = nf::NetworkFunction::new(&other, &crate::nat::tests::rig::worker(1, 2, 1000)).unwrap();
    rig.migrate(Addr::v4(X1.0), 1, nf::Arrival::Recovered);
    assert_eq!((rig.count("arrivals_refused"), rig.flow_count()), (3, 3));
    rig.recall();
    assert_eq!(
        (rig.flow_count(), rig.blocks.len()),
        (0, 0),
        "nothing of them is left"
    );
    let frame = rig.send_inside(&udp((X1.0, 3000), R1)).sent();
    assert_eq!(frame[26..30], [198, 18, 7, 0]);
    // A host that still has a flow that was refused has a port, too.
    rig.nats[1] =
        nf::NetworkFunction::new(&rig.config.clone(), &crate::nat::tests::rig::worker(1, 2, 1000)).unwrap();
    rig.migrate(Addr::v4(X1.0), 1, nf::Arrival::Recovered);
    let frame = rig.send_inside(&udp((X1.0, 4000), R1)).sent();
    assert_eq!(frame[26..29], [203, 0, 113]);
}

/// A host comes out of a store, or moves, to its block's home or another runtime, and a static
/// mapping has a port of the block there; the home has heard that the block is in use, or has not.
#[test]
fn a_block_that_a_static_mapping_has_meanwhile_is_given_to_no_host() {
    let small = Config {
        block_size: 64,
        ports: (1024, 1024 + 16 * 64 - 1),
        ..one_address()
    };
    let reserving = std::sync::Arc::new(Config {
        static_mappings: vec![StaticMapping {
            inside: "10.0.0.9:80".parse().unwrap(),
            outside: "203.0.113.1:1290".parse().unwrap(),
            protocol: StaticProtocol::Udp,
        }]
        .into(),
        ..small.clone()
    });
    let free = |rig: &Rig| [0, 1].map(|at: usize| rig.nats[at].tables.borrow().ports.free_blocks());
    for (to, is_told) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut rig = Rig::with(small.clone(), 2, 1000).unwrap();
        for n in 0..2 {
            assert_eq!(open(&mut rig, (X1.0, 1290 + n), R1), (EXT, 1290 + n));
        }
        rig.nats = (0..2)
            .map(|n| {
                nf::NetworkFunction::new(&reserving, &crate::nat::tests::rig::worker(n, 2, 1000)).unwrap()
            })
            .collect();
        let before = free(&rig);
        if is_told {
            let block = *rig.blocks.keys().next().unwrap();
            for nat in &rig.nats {
                nf::NetworkFunction::block_in_use(nat, block);
            }
        }
        rig.migrate(Addr::v4(X1.0), to, nf::Arrival::Recovered);
        assert_eq!((rig.count("arrivals_refused"), rig.mappings()), (2, 0));
        for n in 0..64 {
            let outside = open(&mut rig, (X1.0, 1290 + n), R1);
            assert_ne!(outside.1 & !63, 1280, "{outside:?}");
        }
        rig.expire_all();
        assert!(rig.blocks.is_empty() && rig.mappings() == 0);
        assert_eq!(free(&rig), before, "to {to}, told {is_told}");
    }
}

/// So does a host that has no port of its block, but a flow of a static mapping's.
#[test]
fn an_empty_block_that_a_static_mapping_has_meanwhile_is_not_used_again() {
    let mapping = |inside: &str, outside: &str| StaticMapping {
        inside: inside.parse().unwrap(),
        outside: outside.parse().unwrap(),
        protocol: StaticProtocol::Udp,
    };
    let with = |mappings: Vec<StaticMapping>| Config {
        block_size: 64,
        ports: (1024, 1024 + 16 * 64 - 1),
        static_mappings: mappings.into(),
        ..one_address()
    };
    let keeps = mapping("10.0.0.1:80", "192.0.2.77:80");
    let reserving = with(vec![keeps, mapping("10.0.0.9:80", "203.0.113.1:1290")]);
    for to in [0, 1] {
        let mut rig = Rig::with(with(vec![keeps]), 2, 1000).unwrap();
        open(&mut rig, (X1.0, 80), R1);
        open(&mut rig, (X1.0, 1290), R1);
        rig.expire(2);
        assert_eq!(rig.blocks.len(), 1);
        rig.nats = (0..2)
            .map(|n| {
                let worker = crate::nat::tests::rig::worker(n, 2, 1000);
                nf::NetworkFunction::new(&std::sync::Arc::new(reserving.clone()), &worker).unwrap()
            })
            .collect();
        rig.migrate(Addr::v4(X1.0), to, nf::Arrival::Recovered);
        for n in 0..64 {
            assert_ne!(open(&mut rig, (X1.0, 1290 + n), R1).1 & !63, 1280);
        }
        rig.expire_all();
        assert!(rig.blocks.is_empty());
    }
}

/// A flow is refused, and its next packet opens it again. It ends by another way, and another flow
/// has its number before the runtime asks.
#[test]
fn a_refused_flow_ends_and_no_other_with_its_number() {
    let refuse = || {
        let mut rig = Rig::with(one_address(), 2, 1000).unwrap();
        open(&mut rig, X1, R1);
        let other = std::sync::Arc::new(pool_of("198.18.7.0/32"));
        rig.nats = (0..2)
            .map(|n| nf::NetworkFunction::new(&other, &crate::nat::tests::rig::worker(n, 2, 1000)).unwrap())
            .collect();
        rig.migrate(Addr::v4(X1.0), 1, nf::Arrival::Recovered);
        assert!(core::mem::take(&mut rig.recalls));
        rig
    };
    let mut rig = refuse();
    rig.send_inside(&udp(X1, R1)).sent();
    rig.recall();
    assert_eq!(rig.flow_count(), 0, "a flow that was opened again ends");
    for is_opened in [false, true] {
        let mut rig = refuse();
        if is_opened {
            rig.send_inside(&udp(X1, R1)).sent();
        }
        rig.expire(1);
        open(&mut rig, (X1.0, 6000), R1);
        rig.recall();
        assert_eq!(rig.flow_count(), 1, "opened again: {is_opened}");
    }
    // Other settings come between.
    let mut rig = refuse();
    rig.config = std::sync::Arc::new(pool_of("198.18.7.0/32"));
    rig.configure(pool_of("198.18.7.0/31")).unwrap();
    rig.recall();
    assert_eq!(rig.flow_count(), 0);
}

#[test]
fn a_recovered_host_keeps_its_empty_block_from_others() {
    let mut rig = Rig::new(Config {
        block_size: 64,
        ports: (1024, 1024 + 4 * 64 - 1),
        ..one_address()
    });
    for n in 0..65 {
        open(&mut rig, (X1.0, 3000 + n), R1);
    }
    rig.expire(65);
    assert_eq!(rig.blocks.len(), 2);
    rig.nats[0] = nf::NetworkFunction::new(&rig.config, &crate::nat::tests::rig::worker(0, 1, 1000)).unwrap();
    rig.migrate(Addr::v4(X1.0), 0, nf::Arrival::Recovered);
    open(&mut rig, X2, R1);
    open(&mut rig, ([10, 0, 0, 3], 1), R1);
    assert_eq!(
        rig.send_inside(&udp(([10, 0, 0, 4], 1), R1)).reason(),
        "ports_exhausted"
    );
}
