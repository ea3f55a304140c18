//! Packets and fragments made by hand, an oracle that forgets nothing, and damaged fragments.

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;
use wire::memory::Region;
use wire::{LinkType, Pool, protocol};

const SECOND: u64 = 1_000_000_000;

/// The outcome of a fragment: its offset in bytes, with protocol and ports if it went on, else why
/// it was dropped.
type Seen = (u16, Result<(u8, u16, u16), DropReason>);

struct Bench {
    pool: Pool,
    tracker: Tracker,
}

const MINE: (u8, u16, u16) = (17, 5000, 53);

impl Bench {
    fn new(capacity: usize) -> Self {
        let buffers = capacity + 8;
        Bench {
            pool: Pool::new(Region::heap(Pool::region_length(buffers, 2048)), buffers, 2048, 0),
            tracker: Tracker::new(capacity, HashSeed::FIXED),
        }
    }

    /// The fragments that a fragment sets free, itself included, in order; then dropped ones.
    fn see(&mut self, frame: &[u8], now: u64) -> Vec<Seen> {
        let mut packet = self.pool.take().unwrap();
        assert!(packet.set_frame(frame, LinkType::Raw));
        wire::parse(&mut packet).unwrap();
        let next = self.tracker.take(packet, now);
        self.collect(next)
    }

    fn expire(&mut self, now: u64) -> Vec<Seen> {
        self.tracker.expire(now);
        self.collect(None)
    }

    fn collect(&mut self, first: Option<PacketBox>) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut next = first;
        while let Some(packet) = next {
            let offset = fragment(&packet).map_or(0, |part| part.offset);
            assert!(!is_astray(&packet) || packet.has(flag::FOLLOWED));
            seen.push((
                offset,
                Ok((packet.protocol(), packet.source_port(), packet.destination_port())),
            ));
            self.pool.give(packet);
            next = self.tracker.released();
        }
        let mut dropped = Vec::new();
        while let Some((packet, reason)) = self.tracker.refused() {
            dropped.push((fragment(&packet).map_or(0, |part| part.offset), Err(reason)));
            self.pool.give(packet);
        }
        dropped.reverse();
        seen.extend(dropped);
        assert_eq!(self.pool.total() - self.pool.free(), self.tracker.held());
        assert!(self.tracker.held() <= self.tracker.held_max());
        seen
    }
}

fn on(offset: u16) -> Seen {
    (offset, Ok(MINE))
}

fn gone(offset: u16, reason: DropReason) -> Seen {
    (offset, Err(reason))
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

/// The same of IPv6, with destination options between fragment header and UDP, which only the first
/// fragment has.
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
    assert_eq!(bench.see(&v4(1, 7, 0, false), 0), [on(0)], "whole");
    assert_eq!(bench.see(&v4(1, 7, 0, true), 0), [on(0)]);
    assert_eq!(bench.see(&v4(1, 7, 16, true), 1), [on(16)]);
    // Another datagram's, another host's, another protocol's.
    assert_eq!(bench.see(&v4(1, 8, 16, true), 2), []);
    assert_eq!(bench.see(&v4(3, 7, 16, true), 2), []);
    let mut tcp = v4(1, 7, 16, true);
    tcp[9] = protocol::TCP;
    assert_eq!(bench.see(&tcp, 2), []);
    assert_eq!(bench.tracker.held(), 3);
    assert_eq!(bench.see(&v4(1, 7, 32, false), 2), [on(32)]);
}

#[test]
fn those_that_come_first_wait_and_go_behind_their_first() {
    let mut bench = Bench::new(64);
    for (turn, order) in [[48, 32, 16], [16, 48, 32], [32, 16, 48]].into_iter().enumerate() {
        // All is there each time, so the next datagram may have this number.
        let part = |offset, more| {
            let mut frame = v4(1, 7, offset, more);
            *frame.last_mut().unwrap() = turn as u8;
            frame
        };
        for offset in order {
            assert_eq!(bench.see(&part(offset, offset < 48), 0), []);
        }
        let all = bench.see(&part(0, true), 1);
        assert_eq!(all, [on(0), on(order[0]), on(order[1]), on(order[2])]);
        assert_eq!(bench.tracker.held(), 0);
    }
}

#[test]
fn interleaved_datagrams_do_not_mix() {
    let mut bench = Bench::new(64);
    for id in 0..8 {
        assert_eq!(bench.see(&v4(1, id, 32, false), 0), []);
    }
    for id in 0..8 {
        assert_eq!(bench.see(&v4(1, id, 16, true), 0), []);
    }
    for id in (0..8).rev() {
        assert_eq!(bench.see(&v4(1, id, 0, true), 0), [on(0), on(32), on(16)]);
    }
}

#[test]
fn waiting_ends_by_its_time() {
    let mut bench = Bench::new(64);
    bench.see(&v4(1, 7, 16, true), SECOND);
    bench.see(&v4(1, 7, 32, false), 5 * SECOND);
    bench.see(&v4(1, 8, 16, true), 3 * SECOND);
    assert_eq!(bench.expire(6 * SECOND - 1), []);
    let unknown = DropReason::FragmentUnknown;
    assert_eq!(bench.expire(6 * SECOND), [gone(16, unknown), gone(32, unknown)]);
    assert_eq!(
        bench.see(&v4(1, 7, 0, true), 6 * SECOND),
        [on(0)],
        "too late for them"
    );
    assert_eq!(bench.tracker.held(), 1);
    bench.tracker.finish();
    assert_eq!(bench.collect(None), [gone(16, unknown)]);
}

#[test]
fn the_fragment_header_of_ipv6() {
    let mut bench = Bench::new(64);
    assert_eq!(bench.see(&v6(7, 16, false), 0), []);
    assert_eq!(
        bench.see(&v6(7, 0, true), 0),
        [on(0), on(16)],
        "and it tells the protocol, too"
    );
    // The fragment header need not be the first extension.
    let behind_hop_by_hop = |offset, more| {
        let mut bytes = v6(8, offset, more);
        bytes.splice(40..40, [44, 0, 1, 4, 0, 0, 0, 0]);
        bytes[5] += 8;
        bytes[6] = 0;
        bytes
    };
    assert_eq!(bench.see(&behind_hop_by_hop(0, true), 0), [on(0)]);
    assert_eq!(bench.see(&v6(8, 16, true), 0), [on(16)]);
    assert_eq!(bench.see(&behind_hop_by_hop(32, false), 0), [on(32)]);
    // An atomic fragment is whole (RFC 6946).
    assert_eq!(bench.see(&v6(9, 0, false), 0), [on(0)]);
    // Sixty seconds, where IPv4 has thirty.
    bench.see(&v6(10, 0, true), 0);
    bench.see(&v4(1, 10, 0, true), 0);
    assert_eq!(bench.see(&v6(10, 16, true), 60 * SECOND - 1), [on(16)]);
    assert_eq!(bench.see(&v6(10, 32, false), 60 * SECOND), []);
    assert_eq!(bench.see(&v4(1, 10, 16, false), 30 * SECOND), []);
}

#[test]
fn an_overlap_ends_its_datagram() {
    let overlap = DropReason::FragmentOverlap;
    for make in [
        |offset, more| v4(1, 7, offset, more),
        |offset, more| v6(7, offset, more),
    ] {
        // Behind the first one.
        let mut bench = Bench::new(64);
        bench.see(&make(0, true), 0);
        assert_eq!(bench.see(&make(16, true), 0), [on(16)]);
        assert_eq!(bench.see(&make(24, true), 0), [gone(24, overlap)]);
        assert_eq!(
            bench.see(&make(48, false), 0),
            [gone(48, overlap)],
            "nothing more of it"
        );
        assert_eq!(bench.see(&make(0, true), 0), [gone(0, overlap)]);
        // Among waiting fragments: none of them goes on.
        let mut bench = Bench::new(64);
        bench.see(&make(32, false), 0);
        assert_eq!(
            bench.see(&make(24, true), 0),
            [gone(32, overlap), gone(24, overlap)]
        );
        assert_eq!(bench.see(&make(0, true), 0), [gone(0, overlap)]);
        assert_eq!(bench.tracker.held(), 0);
    }
}

#[test]
fn a_copy_goes_with_its_datagram() {
    for make in [
        |offset, more| v4(1, 7, offset, more),
        |offset, more| v6(7, offset, more),
    ] {
        let mut bench = Bench::new(64);
        // Before the first one it waits like that of which it is a copy.
        assert_eq!(bench.see(&make(32, true), 0), []);
        assert_eq!(bench.see(&make(32, true), 0), []);
        assert_eq!(bench.see(&make(0, true), 0), [on(0), on(32), on(32)]);
        // Behind it each goes on at once.
        assert_eq!(bench.see(&make(0, true), 1), [on(0)]);
        assert_eq!(bench.see(&make(16, true), 1), [on(16)]);
        assert_eq!(bench.see(&make(16, true), 1), [on(16)]);
        // A capture of both sides of a bridge: copies come when all is there, too.
        assert_eq!(bench.see(&make(48, false), 2), [on(48)]);
        for offset in [48, 0, 16, 32] {
            assert_eq!(bench.see(&make(offset, offset < 48), 2), [on(offset)]);
        }
        assert_eq!(bench.tracker.held(), 0);
    }
}

#[test]
fn a_copy_that_says_something_else_is_dropped_alone() {
    let mut bench = Bench::new(64);
    let repeated = DropReason::FragmentRepeated;
    bench.see(&v4(1, 7, 16, true), 0);
    let altered = |mut frame: Vec<u8>, at: usize| {
        frame[at] ^= 1;
        frame
    };
    assert_eq!(
        bench.see(&altered(v4(1, 7, 16, true), 35), 0),
        [gone(16, repeated)]
    );
    assert_eq!(bench.see(&v4(1, 7, 0, true), 0), [on(0), on(16)]);
    // Another port, or other data: the judged fragment stays.
    for at in [21, 28, 35] {
        assert_eq!(bench.see(&altered(v4(1, 7, 0, true), at), 0), [gone(0, repeated)]);
    }
    // A hop further on it is the same.
    assert_eq!(bench.see(&altered(v4(1, 7, 0, true), 8), 0), [on(0)]);
    assert_eq!(bench.see(&v4(1, 7, 32, false), 0), [on(32)]);
}

/// No checksum covers the protocol of an IPv6 fragment. A copy with another one has another flow.
#[test]
fn a_copy_of_the_first_that_names_another_protocol_is_dropped_alone() {
    let mut bench = Bench::new(8);
    let mut damaged = v6(1, 0, true);
    damaged[40] = 49;
    assert_eq!(bench.see(&damaged, 0), [(0, Ok((49, 0, 0)))]);
    assert_eq!(
        bench.see(&v6(1, 0, true), 0),
        [gone(0, DropReason::FragmentRepeated)]
    );
    assert_eq!(bench.see(&damaged, 0), [(0, Ok((49, 0, 0)))], "a copy");
}

#[test]
fn the_next_datagram_of_a_number_is_no_copy() {
    let mut bench = Bench::new(64);
    bench.see(&v4(1, 7, 0, true), 0);
    assert_eq!(bench.see(&v4(1, 7, 16, false), 0), [on(16)]);
    // Of other ports: its first part begins it, and the later one is its own.
    let mut first = v4(1, 7, 0, true);
    first[20..22].copy_from_slice(&6000u16.to_be_bytes());
    let mine = (17, 6000, 53);
    assert_eq!(bench.see(&first, 1), [(0, Ok(mine))]);
    assert_eq!(bench.see(&v4(1, 7, 16, false), 1), [(16, Ok(mine))]);
    // A fragment long after its datagram is no copy either.
    assert_eq!(bench.see(&v4(1, 7, 16, false), 1 + COPIES), []);
    assert_eq!(bench.tracker.held(), 1);
}

#[test]
fn copies_that_wait_are_bounded() {
    let mut bench = Bench::new(1024);
    assert!(bench.tracker.held_max() > 3 * PIECES_MAX);
    let mut dropped = 0;
    for _ in 0..1000 {
        for gone_on in bench.see(&v4(1, 7, 16, true), 0) {
            assert_eq!(gone_on, gone(16, DropReason::FragmentRepeated));
            dropped += 1;
        }
    }
    assert_eq!((bench.tracker.held(), dropped), (PIECES_MAX, 1000 - PIECES_MAX));
    // They are in no other part's way.
    assert_eq!(bench.see(&v4(1, 7, 32, false), 0), []);
    assert_eq!(bench.see(&v4(1, 7, 0, true), 0).len(), PIECES_MAX + 2);
}

#[test]
fn parts_that_cannot_be_are_dropped() {
    let mut bench = Bench::new(64);
    let malformed = DropReason::FrameMalformed;
    let mut odd = v4(1, 7, 16, true);
    odd.pop();
    odd[3] -= 1;
    assert_eq!(bench.see(&odd, 0), [gone(16, malformed)]);
    let mut empty = v4(1, 7, 16, false);
    empty.truncate(20);
    empty[3] = 20;
    assert_eq!(bench.see(&empty, 0), [gone(16, malformed)]);
    assert_eq!(bench.tracker.held(), 0);
}

#[test]
fn a_first_part_of_an_odd_length_goes_on_and_nothing_fits_behind_it() {
    let mut bench = Bench::new(64);
    let mut odd = v4(1, 7, 0, true);
    odd.pop();
    odd[3] -= 1;
    assert_eq!(bench.see(&odd, 0), [on(0)]);
    let before_its_end = (odd.len() - 20) as u16 / 8 * 8;
    assert_eq!(
        bench.see(&v4(1, 7, before_its_end, false), 0),
        [gone(before_its_end, DropReason::FragmentOverlap)]
    );
}

#[test]
fn a_tiny_table_keeps_its_bounds() {
    let full = DropReason::FragmentsFull;
    let mut bench = Bench::new(PLACES);
    assert_eq!((bench.tracker.capacity(), bench.tracker.held_max()), (PLACES, 2));
    // Held: the datagram that has waited longest goes.
    bench.see(&v4(1, 1, 16, true), 0);
    bench.see(&v4(1, 2, 16, true), 1);
    assert_eq!(bench.see(&v4(1, 3, 16, true), 2), [gone(16, full)]);
    assert_eq!(bench.see(&v4(1, 1, 0, true), 3), [on(0)], "its later one is gone");
    assert_eq!(bench.see(&v4(1, 3, 0, true), 3), [on(0), on(16)]);
    // One datagram alone: it goes itself.
    bench.see(&v4(1, 2, 32, true), 4);
    let all = bench.see(&v4(1, 2, 48, true), 4);
    assert_eq!(all, [gone(16, full), gone(32, full), gone(48, full)]);
    assert_eq!(bench.tracker.held(), 0);
}

#[test]
fn a_full_set_loses_first_what_waits_then_its_oldest() {
    let mut bench = Bench::new(PLACES);
    for id in 0..PLACES as u16 - 1 {
        bench.see(&v4(1, id, 0, true), u64::from(id));
    }
    assert_eq!(bench.see(&v4(1, 100, 16, true), 50), []);
    assert_eq!(
        bench.see(&v4(1, 7, 0, true), 51),
        [on(0), gone(16, DropReason::FragmentsFull)]
    );
    assert_eq!(bench.see(&v4(1, 8, 0, true), 52), [on(0)]);
    assert_eq!(bench.see(&v4(1, 1, 16, true), 60), [on(16)]);
    assert_eq!(bench.see(&v4(1, 0, 16, true), 60), [], "the oldest is forgotten");
}

#[test]
fn a_datagram_has_so_many_parts() {
    let mut bench = Bench::new(512);
    bench.see(&v4(1, 7, 0, true), 0);
    for n in 1..PIECES_MAX as u16 {
        assert_eq!(bench.see(&v4(1, 7, 16 * n, true), 0), [on(16 * n)]);
    }
    let last = 16 * PIECES_MAX as u16;
    assert_eq!(
        bench.see(&v4(1, 7, last, false), 0),
        [gone(last, DropReason::FragmentsFull)]
    );
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
    error.extend_from_slice(&[0; 4]);
    let total = error.len() as u16;
    error[2..4].copy_from_slice(&total.to_be_bytes());
    let mut later = v4(9, 7, 80, false);
    later[9] = protocol::ICMP;
    let mut bench = Bench::new(64);
    assert_eq!(bench.see(&later, 0), []);
    let unknown = DropReason::FragmentUnknown;
    assert_eq!(bench.see(&error, 0), [(0, Ok((1, 0, 0))), gone(80, unknown)]);
    assert_eq!(bench.see(&error, 0), [(0, Ok((1, 0, 0)))], "a copy of the error");
    let mut another = v4(9, 7, 96, false);
    another[9] = protocol::ICMP;
    assert_eq!(bench.see(&another, 0).len(), 1);
    assert_eq!(bench.tracker.held(), 0);
}

#[test]
fn an_identifier_is_passed_on_as_one() {
    let mut bench = Bench::new(64);
    let mut echo = v4(1, 7, 0, true);
    echo[9] = protocol::ICMP;
    echo[20..28].copy_from_slice(&[8, 0, 0, 0, 0x12, 0x34, 0, 1]);
    let mut later = v4(1, 7, 16, false);
    later[9] = protocol::ICMP;
    bench.see(&echo, 0);
    let mut packet = bench.pool.take().unwrap();
    assert!(packet.set_frame(&later, LinkType::Raw));
    wire::parse(&mut packet).unwrap();
    let packet = bench.tracker.take(packet, 0).unwrap();
    assert!(packet.has(flag::ICMP_QUERY));
    assert_eq!(
        (packet.source_port(), packet.destination_port()),
        (0x1234, 0x1234)
    );
    bench.pool.give(packet);
}

#[test]
fn homes_are_spread_and_the_same_for_all_fragments() {
    let bench = Bench::new(64);
    let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
    let mut home = |frame: Vec<u8>| {
        let mut packet = pool.take().unwrap();
        assert!(packet.set_frame(&frame, LinkType::Raw));
        wire::parse(&mut packet).unwrap();
        let home = bench.tracker.home(&packet, 3);
        pool.give(packet);
        usize::from(home)
    };
    let mut counts = [0; 3];
    for id in 0..300 {
        let at = home(v4(1, id, 0, true));
        assert_eq!(home(v4(1, id, 16, true)), at);
        assert_eq!(
            home(v6(u32::from(id), 0, true)),
            home(v6(u32::from(id), 16, false))
        );
        counts[at] += 1;
    }
    assert!(counts.iter().all(|count| *count > 60), "{counts:?}");
}

/// A datagram's fragments: (datagram, part) of 16 bytes each, `PARTS` of them.
const PARTS: u16 = 5;

proptest! {
    /// In whatever order, with copies: each goes on as often as it came, none before its first one,
    /// and with room all of every datagram whose first one came.
    #[test]
    fn every_datagram_goes_on_behind_its_first(
        order in prop::collection::vec((0u16..6, 0..PARTS), 0..120),
    ) {
        let mut bench = Bench::new(1024);
        let mut out: Vec<(u16, u16)> = vec![];
        let mut came: Vec<(u16, u16)> = vec![];
        for (id, part) in order {
            came.push((id, part));
            for (offset, what) in bench.see(&v4(1, id, 16 * part, part < PARTS - 1), 0) {
                prop_assert_eq!(what, Ok(MINE));
                prop_assert!(offset == 0 || out.contains(&(id, 0)));
                out.push((id, offset / 16));
            }
        }
        let mut due: Vec<_> = came.iter().filter(|(id, _)| came.contains(&(*id, 0))).copied().collect();
        prop_assert_eq!(bench.tracker.held(), came.len() - due.len());
        due.sort_unstable();
        out.sort_unstable();
        prop_assert_eq!(out, due);
    }

    /// Whatever parses can be taken, and comes out again.
    #[test]
    fn hostile_fragments_do_no_harm(
        frames in prop::collection::vec((
            0usize..4,
            prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            any::<prop::sample::Index>(),
            0u64..4,
        ), 1..40),
    ) {
        let heads = [v4(1, 7, 0, true), v4(1, 7, 16, false), v6(7, 0, true), v6(7, 16, false)];
        let mut bench = Bench::new(8);
        let mut now = 0;
        for (head, changes, length, pass) in frames {
            now += pass * SECOND;
            let mut frame = heads[head].clone();
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            frame.truncate(1 + length.index(frame.len()));
            let mut packet = bench.pool.take().unwrap();
            prop_assert!(packet.set_frame(&frame, LinkType::Raw));
            if wire::parse(&mut packet).is_ok() && is_astray(&packet) {
                let next = bench.tracker.take(packet, now);
                bench.collect(next);
            } else {
                bench.pool.give(packet);
            }
        }
        bench.tracker.finish();
        bench.collect(None);
        prop_assert_eq!(bench.pool.free(), bench.pool.total());
    }
}
