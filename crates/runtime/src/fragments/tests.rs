//! Packets and fragments made by hand, an oracle that forgets nothing, and damaged fragments.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;
use wire::memory::Region;
use wire::{LinkType, Pool, protocol};

const SECOND: u64 = 1_000_000_000;

struct Bench {
    pool: Pool,
    tracker: Tracker,
}

impl Bench {
    fn new(capacity: usize) -> Self {
        Bench {
            pool: Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0),
            tracker: Tracker::new(capacity, HashSeed::FIXED),
        }
    }

    /// What the tracker says, with protocol and ports afterwards.
    fn see(&mut self, frame: &[u8], now: u64) -> (Resolution, u8, u16, u16) {
        let mut packet = self.pool.take().unwrap();
        assert!(packet.set_frame(frame, LinkType::Raw));
        wire::parse(&mut packet).unwrap();
        let resolution = self.tracker.resolve(&mut packet, now);
        let seen = (
            resolution,
            packet.protocol(),
            packet.source_port(),
            packet.destination_port(),
        );
        self.pool.give(packet);
        seen
    }
}

/// A UDP packet or fragment from 10.0.0.`host`, at `offset` bytes.
fn v4(host: u8, id: u16, offset: u16, more: bool) -> Vec<u8> {
    let [i, d] = id.to_be_bytes();
    let [f, g] = ((offset / 8) | (u16::from(more) << 13)).to_be_bytes();
    let mut bytes = Vec::from([
        0x45, 0, 0, 36, i, d, f, g, 64, 17, 0, 0, 10, 0, 0, host, 10, 0, 0, 2,
    ]);
    bytes.extend_from_slice(&[0x13, 0x88, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    bytes
}

/// The same of IPv6, with destination options between fragment header and UDP, which only the first fragment has.
fn v6(id: u32, offset: u16, more: bool) -> Vec<u8> {
    let mut bytes = Vec::from([0x60, 0, 0, 0, 0, 0, 44, 64]);
    bytes.extend_from_slice(&[0xfd; 16]);
    bytes.extend_from_slice(&[0xfe; 16]);
    let [f, g] = (offset | u16::from(more)).to_be_bytes();
    bytes.extend_from_slice(&[60, 0, f, g]);
    bytes.extend_from_slice(&id.to_be_bytes());
    if offset == 0 {
        bytes.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[0x13, 0x88, 0, 53, 0, 16, 0, 0]);
    } else {
        bytes.extend_from_slice(&[9; 16]);
    }
    let length = (bytes.len() - 40) as u16;
    bytes[4..6].copy_from_slice(&length.to_be_bytes());
    bytes
}

#[test]
fn later_fragments_get_the_first_ones_ports() {
    let mut bench = Bench::new(64);
    assert_eq!(
        bench.see(&v4(1, 7, 0, false), 0),
        (Resolution::Whole, 17, 5000, 53)
    );
    assert_eq!(bench.see(&v4(1, 7, 16, true), 0), (Resolution::Unknown, 17, 0, 0));
    assert_eq!(
        bench.see(&v4(1, 7, 0, true), 0),
        (Resolution::First, 17, 5000, 53)
    );
    assert_eq!(
        bench.see(&v4(1, 7, 16, true), 1),
        (Resolution::Known, 17, 5000, 53)
    );
    assert_eq!(
        bench.see(&v4(1, 7, 32, false), 2),
        (Resolution::Known, 17, 5000, 53)
    );
    // Another packet's, another host's, another protocol's.
    assert_eq!(bench.see(&v4(1, 8, 16, true), 2).0, Resolution::Unknown);
    assert_eq!(bench.see(&v4(3, 7, 16, true), 2).0, Resolution::Unknown);
    let mut tcp = v4(1, 7, 16, true);
    tcp[9] = protocol::TCP;
    assert_eq!(bench.see(&tcp, 2).0, Resolution::Unknown);
}

#[test]
fn the_first_fragment_of_ipv6_tells_the_protocol_too() {
    let mut bench = Bench::new(64);
    assert_eq!(bench.see(&v6(7, 16, false), 0), (Resolution::Unknown, 60, 0, 0));
    assert_eq!(bench.see(&v6(7, 0, true), 0), (Resolution::First, 17, 5000, 53));
    assert_eq!(
        bench.see(&v6(7, 16, false), 59 * SECOND),
        (Resolution::Known, 17, 5000, 53)
    );
    assert_eq!(bench.see(&v6(7, 16, false), 60 * SECOND).0, Resolution::Unknown);
    // The fragment header need not be the first extension.
    let behind_hop_by_hop = |offset, more| {
        let mut bytes = v6(8, offset, more);
        bytes.splice(40..40, [44, 0, 1, 4, 0, 0, 0, 0]);
        bytes[5] += 8;
        bytes[6] = 0;
        bytes
    };
    assert_eq!(bench.see(&behind_hop_by_hop(0, true), 0).0, Resolution::First);
    assert_eq!(bench.see(&behind_hop_by_hop(16, false), 0).0, Resolution::Known);
    assert_eq!(bench.see(&v6(8, 16, false), 0).0, Resolution::Known);
    // An atomic fragment is whole (RFC 6946).
    assert_eq!(bench.see(&v6(9, 0, false), 0), (Resolution::Whole, 17, 5000, 53));
}

#[test]
fn a_first_fragment_is_forgotten_after_its_time() {
    let mut bench = Bench::new(64);
    bench.see(&v4(1, 7, 0, true), SECOND);
    assert_eq!(
        bench.see(&v4(1, 7, 16, true), 31 * SECOND - 1).0,
        Resolution::Known
    );
    assert_eq!(bench.see(&v4(1, 7, 16, true), 31 * SECOND).0, Resolution::Unknown);
}

#[test]
fn an_identification_used_again_means_the_newer_packet() {
    let mut bench = Bench::new(64);
    bench.see(&v4(1, 7, 0, true), 0);
    let mut other = v4(1, 7, 0, true);
    other[20..22].copy_from_slice(&6000u16.to_be_bytes());
    bench.see(&other, 1);
    assert_eq!(
        bench.see(&v4(1, 7, 16, false), 2),
        (Resolution::Known, 17, 6000, 53)
    );
}

#[test]
fn a_full_set_loses_its_oldest() {
    let mut bench = Bench::new(PLACES);
    assert_eq!(bench.tracker.capacity(), PLACES);
    for id in 0..=PLACES as u16 {
        bench.see(&v4(1, id, 0, true), u64::from(id));
    }
    let known = |bench: &mut Bench, id| bench.see(&v4(1, id, 16, true), 100).0 == Resolution::Known;
    assert!(!known(&mut bench, 0));
    for id in 1..=PLACES as u16 {
        assert!(known(&mut bench, id), "{id}");
    }
}

#[test]
fn an_icmp_error_leaves_no_ports_behind() {
    // An unreachable that quotes a UDP packet, itself fragmented.
    let quoted = v4(1, 1, 0, false);
    let mut error = v4(9, 7, 0, true);
    error[9] = protocol::ICMP;
    error.truncate(20);
    error.extend_from_slice(&[3, 1, 0, 0, 0, 0, 0, 0]);
    error.extend_from_slice(&quoted);
    let total = error.len() as u16;
    error[2..4].copy_from_slice(&total.to_be_bytes());
    let mut later = v4(9, 7, 64, false);
    later[9] = protocol::ICMP;
    let mut bench = Bench::new(64);
    assert_eq!(bench.see(&error, 0).0, Resolution::First);
    assert_eq!(bench.see(&later, 0).0, Resolution::Unknown);
}

proptest! {
    /// Against a map that forgets nothing: what is Known is right, and a table with room knows all.
    #[test]
    fn a_table_with_room_knows_what_a_map_knows(
        packets in prop::collection::vec((0u8..4, 0u16..6, any::<bool>(), 0u64..20), 0..200)
    ) {
        let mut bench = Bench::new(4096);
        let mut oracle = std::collections::HashMap::new();
        let mut now = 0;
        for (host, id, first, step) in packets {
            now += step * SECOND / 4;
            if first {
                bench.see(&v4(host, id, 0, true), now);
                oracle.insert((host, id), now);
            } else {
                let (resolution, _, source, _) = bench.see(&v4(host, id, 16, false), now);
                let known = oracle.get(&(host, id)).is_some_and(|seen| now < seen + V4_TIMEOUT);
                prop_assert_eq!(resolution, if known { Resolution::Known } else { Resolution::Unknown });
                prop_assert_eq!(source, if known { 5000 } else { 0 });
            }
        }
    }

    /// Whatever parses can be resolved.
    #[test]
    fn hostile_fragments_do_no_harm(
        head in prop::sample::select(std::vec![v4(1, 7, 0, true), v4(1, 7, 16, false), v6(7, 0, true), v6(7, 16, false)]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in any::<prop::sample::Index>(),
    ) {
        let mut frame = head;
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(1 + length.index(frame.len()));
        let mut bench = Bench::new(8);
        let mut packet = bench.pool.take().unwrap();
        prop_assert!(packet.set_frame(&frame, LinkType::Raw));
        if wire::parse(&mut packet).is_ok() {
            let whole = !packet.has(flag::FIRST_FRAGMENT | flag::LATER_FRAGMENT);
            let resolution = bench.tracker.resolve(&mut packet, 1);
            prop_assert_eq!(resolution == Resolution::Whole, whole);
        }
        bench.pool.give(packet);
    }
}
