//! Fragments through workers: one alone, and switches at which a datagram's fragments come in here
//! and there. The fragments that leave are put together again by etherparse.

use super::flows::{Masquerade, Meter};
use super::spread::{Cluster, cluster};
use super::*;
use crate::switch::Policy;
use etherparse::SlicedPacket;
use etherparse::defrag::IpDefragPool;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;

/// A datagram's payload: its port in every word, numbered.
fn body(port: u16, words: u16) -> Vec<u8> {
    (0..words)
        .flat_map(|n| [port.to_be_bytes(), n.to_be_bytes()].concat())
        .collect()
}

/// A UDP datagram from 10.0.0.`host`:`port` to 192.0.2.1:80 in fragments of `size` bytes, in their
/// order.
fn fragments(host: u8, port: u16, id: u16, words: u16, size: usize) -> Vec<(Side, Vec<u8>)> {
    let mut whole = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 0, 0, host], [192, 0, 2, 1], 64)
        .udp(port, 80)
        .write(&mut whole, &body(port, words))
        .unwrap();
    let pieces = whole[20..].chunks(size);
    let count = pieces.len();
    pieces
        .enumerate()
        .map(|(n, piece)| {
            let more = u16::from(n + 1 < count) << 13;
            let mut header = etherparse::Ipv4Header::from_slice(&whole).unwrap().0;
            header.identification = id;
            header.more_fragments = more != 0;
            header.dont_fragment = false;
            header.fragment_offset = ((n * size / 8) as u16).try_into().unwrap();
            header.total_len = 20 + piece.len() as u16;
            header.header_checksum = header.calc_header_checksum();
            let mut frame = header.to_bytes().to_vec();
            frame.extend_from_slice(piece);
            (Side::Inside, frame)
        })
        .collect()
}

/// Datagrams put together from what left: UDP header and payload, by source port, with the source
/// address.
fn joined(sent: &[Sent]) -> BTreeMap<u16, ([u8; 4], Vec<u8>)> {
    let mut pool: IpDefragPool = IpDefragPool::new();
    let mut whole = BTreeMap::new();
    for (_, frame) in sent {
        let sliced = SlicedPacket::from_ip(frame).unwrap();
        let Some(done) = pool.process_sliced_packet(&sliced, (), ()).unwrap() else {
            continue;
        };
        let header = etherparse::Ipv4Header::from_slice(frame).unwrap().0;
        let udp = etherparse::UdpHeader::from_slice(&done.payload).unwrap().0;
        assert_eq!(
            udp.checksum,
            udp.calc_checksum_ipv4(&header, &done.payload[8..]).unwrap(),
            "the checksum in the first fragment covers all of them"
        );
        whole.insert(udp.source_port, (header.source, done.payload[8..].to_vec()));
    }
    whole
}

fn drops_of(cluster: &Cluster, name: &str) -> u64 {
    let of = |dropped: Vec<crate::stats::Named>| -> u64 {
        dropped.iter().filter(|d| d.name == name).map(|d| d.count).sum()
    };
    let switches: u64 = cluster.switches.iter().map(|s| of(s.stats().dropped)).sum();
    switches
        + cluster
            .runtimes
            .iter()
            .map(|r| of(r.stats().dropped))
            .sum::<u64>()
}

#[test]
fn alone_the_order_of_a_burst_is_kept_around_fragments() {
    let mut runtime = alone(Settings::alone(8), vec![factory::<Meter>()]);
    let mut parts = fragments(1, 1000, 7, 10, 16);
    parts.reverse();
    let whole = |n: u8| udp(1, 1000, 1, 80, false, &[n]);
    let mut input = vec![whole(1)];
    input.extend(parts.clone());
    input.push(whole(2));
    runtime.links_mut()[0].input.extend(input);
    runtime.step(1);
    assert_conserved(&runtime);
    let output = runtime.links_mut()[0].output.clone();
    assert_eq!(runtime.flows(0, 10).0.len(), 1, "one flow has them all");
    let last = parts.len() - 1;
    assert_eq!(output.len(), parts.len() + 2);
    assert_eq!(number(&output[0]), 1);
    assert_eq!(
        output[1].1, parts[last].1,
        "the first fragment, then those that waited for it, as they came"
    );
    assert_eq!(output[2].1, parts[0].1);
    assert_eq!(number(&output[last + 2]), 2);
}

/// A capture of both sides of a bridge has each frame twice.
#[test]
fn what_comes_twice_leaves_twice() {
    for doubled_at_once in [true, false] {
        let mut runtime = alone(Settings::alone(8), vec![factory::<Meter>()]);
        let mut input = Vec::new();
        for id in 0..20 {
            let parts = fragments(1, 1000, id, 10, 16);
            match doubled_at_once {
                true => input.extend(parts.iter().flat_map(|part| [part.clone(), part.clone()])),
                false => input.extend([parts.clone(), parts].concat()),
            }
        }
        runtime.links_mut()[0].input.extend(input.iter().cloned());
        for now in 1..20 {
            runtime.step(now);
        }
        assert_conserved(&runtime);
        let output = runtime.links_mut()[0].output.clone();
        let frames = |all: &[(Side, Vec<u8>)]| all.iter().map(|(_, frame)| frame.clone()).collect::<Vec<_>>();
        assert!(
            frames(&output) == frames(&input),
            "{} of {}",
            output.len(),
            input.len()
        );
        assert_eq!(runtime.flows(0, 10).0.len(), 1);
    }
}

#[test]
fn alone_what_waits_is_held_and_ends() {
    let mut runtime = alone(Settings::alone(8), vec![factory::<Meter>()]);
    let parts = fragments(1, 1000, 7, 10, 16);
    runtime.links_mut()[0].input.extend(parts[1..].iter().cloned());
    runtime.step(1);
    assert_eq!(runtime.stats().held, parts.len() as u64 - 1);
    assert_conserved(&runtime);
    runtime.step(1 + crate::fragments::HOLD);
    assert_eq!(runtime.stats().held, 0);
    assert_conserved(&runtime);
    runtime.links_mut()[0].input.extend(parts[1..].iter().cloned());
    runtime.step(2 + crate::fragments::HOLD);
    while !runtime.finish(10) {}
    assert_eq!(runtime.stats().held, 0);
    assert_conserved(&runtime);
    assert_eq!(
        runtime.pool().free() + nf::cx::EMITTED_MAX,
        runtime.pool().total()
    );
}

#[test]
fn a_tiny_table_holds_no_more_than_its_bound() {
    let plan = plan(vec![factory::<Meter>()]);
    let mut cluster = cluster(2, 2, Policy::LeastLoaded, &plan, 512);
    // 64 datagrams fit, and 16 fragments are held, at each switch.
    for id in 0..400 {
        cluster.feed(usize::from(id % 2), fragments(1, 1000, id, 10, 16).drain(1..));
        for switch in &cluster.switches {
            assert!(switch.stats().held <= 16);
        }
    }
    cluster.check();
    let held: u64 = cluster.switches.iter().map(|s| s.stats().held).sum();
    assert_eq!(held, 32, "both are full");
    assert_eq!(drops_of(&cluster, "fragments_full") + held, 2 * 400);
    for switch in &mut cluster.switches {
        switch.finish();
    }
    cluster.run_until_quiet();
    cluster.check();
    assert_eq!(drops_of(&cluster, "fragment_unknown"), held);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]
    /// Datagrams of several flows, their fragments shuffled and spread over two switches: every one
    /// arrives whole, translated, at one flow's runtime; once, and no switch has anything left.
    #[test]
    fn fragments_in_any_order_at_any_switch_follow_their_flow(
        datagrams in prop::collection::vec((1u8..4, 0u16..3, 1u16..40), 1..12),
        seed in any::<[u8; 32]>(),
        switches in 1u8..4,
    ) {
        let plan = plan(vec![factory::<Meter>(), factory::<Masquerade>()]);
        let mut cluster = cluster(switches, 3, Policy::RoundRobin, &plan, 512);
        let mut input = Vec::new();
        let mut expected = BTreeMap::new();
        for (id, (host, _, words)) in datagrams.iter().enumerate() {
            // A port of its own, so that the datagram put together tells whose it is.
            let port = 1000 + id as u16;
            input.extend(fragments(*host, port, id as u16, 4 + words, 16));
            expected.insert(2000 + id as u16, ([203, 0, 113, 1], body(port, 4 + words)));
        }
        let count = input.len() as u64;
        // Shuffled, and each to a switch, by a small generator.
        let mut state = u64::from_le_bytes(seed[..8].try_into().unwrap()) | 1;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for n in (1..input.len()).rev() {
            input.swap(n, random(n + 1));
        }
        for packet in input {
            let switch = random(usize::from(switches));
            cluster.switches[switch].port_mut(0).input.push_back(packet);
            if random(3) == 0 {
                let at = random(usize::from(switches));
                cluster.now += 1;
                let now = cluster.now;
                cluster.switches[at].step(now);
            }
        }
        cluster.run_until_quiet();
        cluster.check();
        // So many wait at once that a table for 64 datagrams may refuse some: nothing else goes
        // missing.
        let full = drops_of(&cluster, "fragments_full");
        let out = cluster.sent();
        prop_assert_eq!(out.len() as u64 + full, count);
        let whole = joined(&out);
        if full == 0 {
            prop_assert_eq!(whole, expected);
        } else {
            for (port, datagram) in whole {
                prop_assert_eq!(Some(&datagram), expected.get(&port));
            }
        }
        for switch in &cluster.switches {
            prop_assert_eq!(switch.stats().held, 0);
        }
    }
}
