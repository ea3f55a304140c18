use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;
use wire::memory::Region;
use wire::{LinkType, PacketBox, Pool};

const FOLLOW: Follow = Follow {
    pick_up: false,
    early_max: 8,
    hold: false,
};

/// Buffers of the pool, of which one is for the packet at hand.
const BUFFERS: usize = 12;

/// Segments made, taken in, and their fates.
struct Observer {
    waiting: Waiting,
    streams: Streams,
    /// Bytes by direction, zeros for gaps.
    read: [Vec<u8>; 2],
    gaps: u32,
}

/// Packets that wait, by direction, and the pool that all of them share.
struct Waiting {
    pool: Pool,
    half: usize,
    held: [Vec<PacketBox>; 2],
}

impl Early for Waiting {
    fn held(&self) -> impl Iterator<Item = &Packet> {
        self.held[self.half].iter().map(|held| &**held)
    }

    fn count(&self) -> usize {
        self.held[self.half].len()
    }

    fn has_room(&self, _: &Packet, _: bool) -> bool {
        self.pool.free() > 0
    }
}

impl Observer {
    fn new() -> Self {
        let region = Region::heap(Pool::region_length(BUFFERS, 4096));
        Observer {
            waiting: Waiting {
                pool: Pool::new(region, BUFFERS, 4096, 0),
                half: 0,
                held: [Vec::new(), Vec::new()],
            },
            streams: Streams::default(),
            read: [Vec::new(), Vec::new()],
            gaps: 0,
        }
    }

    fn take(
        &mut self,
        half: usize,
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
        payload: &[u8],
    ) -> Accepted {
        let mut frame = Vec::new();
        let mut header = etherparse::TcpHeader::new(1000 + half as u16, 1001 - half as u16, sequence, 1000);
        (header.syn, header.ack) = (flags & flags::SYN != 0, flags & flags::ACK != 0);
        (header.fin, header.rst) = (flags & flags::FIN != 0, flags & flags::RST != 0);
        header.acknowledgment_number = acknowledgement;
        etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp_header(header)
            .write(&mut frame, payload)
            .unwrap();
        let mut packet = self.waiting.pool.take().unwrap();
        assert!(packet.set_frame(&frame, LinkType::Ethernet));
        wire::parse(&mut packet).unwrap();
        self.waiting.half = half;
        let Observer {
            waiting,
            streams,
            read,
            gaps,
        } = self;
        let read = &mut read[half];
        let accepted = streams.accept(&packet, half, FOLLOW, waiting, &mut |_, piece| match piece {
            Piece::Bytes { bytes, position, .. } => {
                assert_eq!(position, read.len() as u64, "positions count what was handed on");
                read.extend(bytes);
            }
            Piece::Gap { length } => {
                *gaps += 1;
                read.extend(core::iter::repeat_n(0, length as usize));
            }
        });
        if accepted.refused {
            self.read[1 - half].clear();
        }
        for half in 0..2 {
            assert_eq!(self.streams.half(half).position(), self.read[half].len() as u64);
        }
        match accepted.taken {
            Taken::Kept => self.waiting.held[half].push(packet),
            _ => self.waiting.pool.give(packet),
        }
        let held = core::mem::take(&mut self.waiting.held[half]);
        for packet in held {
            match self.streams.has_read(half, &packet) {
                true => self.waiting.pool.give(packet),
                false => self.waiting.held[half].push(packet),
            }
        }
        assert!(self.waiting.held[half].len() <= FOLLOW.early_max);
        accepted
    }

    fn open(&mut self, first: u32) {
        let accepted = self.take(0, first.wrapping_sub(1), 0, flags::SYN, b"");
        assert!(accepted.begins);
        self.take(1, 499, first, flags::SYN | flags::ACK, b"");
        assert!(!self.streams.is_established());
        self.take(0, first, 500, flags::ACK, b"");
        assert!(self.streams.is_established());
    }

    fn data(&mut self, at: u32, bytes: &[u8]) -> Taken {
        self.take(0, at, 500, flags::ACK, bytes).taken
    }
}

proptest! {
    /// Segments that repeat, overlap and overtake each other within the buffer: every byte once, in
    /// order, and where segments contradict each other the first one's.
    #[test]
    fn every_byte_is_handed_on_once(
        first in prop_oneof![any::<u32>(), Just(u32::MAX - 500), Just(u32::MAX)],
        segments in prop::collection::vec((0u32..1500, 1usize..400, any::<u8>()), 1..60),
    ) {
        let mut observer = Observer::new();
        observer.open(first);
        let mut model: Vec<Option<u8>> = std::vec![None; 4000];
        let mut kept_model = model.clone();
        for (offset, length, fill) in segments {
            let bytes: Vec<u8> = (0..length).map(|n| fill.wrapping_add(n as u8) | 1).collect();
            let taken = observer.data(first.wrapping_add(offset), &bytes);
            if taken == Taken::Beyond {
                continue;
            }
            for (at, byte) in bytes.iter().enumerate() {
                kept_model[offset as usize + at].get_or_insert(*byte);
            }
            model.clone_from(&kept_model);
            let known: Vec<u8> = model.iter().map_while(|byte| *byte).collect();
            prop_assert_eq!(&observer.read[0], &known, "after {} bytes at {}: {:?}", length, offset, taken);
        }
        prop_assert_eq!(observer.gaps, 0);
    }

    #[test]
    fn any_state_is_served(
        bytes in prop::collection::vec(any::<u8>(), size_of::<Streams>()),
        segments in prop::collection::vec((0usize..2, any::<u32>(), any::<u32>(), any::<u8>(), 0usize..100), 1..20),
    ) {
        let mut observer = Observer::new();
        observer.streams = nf::plain::from_bytes(&bytes).unwrap();
        let Observer { waiting, streams, .. } = &mut observer;
        for (half, sequence, acknowledgement, flags, length) in segments {
            let mut packet = waiting.pool.take().unwrap();
            let mut frame = Vec::new();
            let mut header = etherparse::TcpHeader::new(1, 2, sequence, 1000);
            (header.syn, header.ack) = (flags & 1 != 0, flags & 2 != 0);
            (header.fin, header.rst) = (flags & 4 != 0, flags & 8 != 0);
            header.acknowledgment_number = acknowledgement;
            etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                .tcp_header(header)
                .write(&mut frame, &std::vec![7; length])
                .unwrap();
            prop_assert!(packet.set_frame(&frame, LinkType::Ethernet));
            wire::parse(&mut packet).unwrap();
            waiting.half = half;
            let follow = Follow { pick_up: flags & 16 != 0, ..FOLLOW };
            streams.accept(&packet, half, follow, waiting, &mut |_, _| {});
            // Any packet may wait: another runtime may say so.
            match flags & 32 != 0 && waiting.pool.free() > 1 {
                true => waiting.held[half].push(packet),
                false => waiting.pool.give(packet),
            }
        }
    }
}

#[test]
fn the_bounds_of_what_waits() {
    let mut observer = Observer::new();
    observer.open(1000);
    assert_eq!(observer.data(1000 + AHEAD_MAX - 9, b"0123456789"), Taken::Beyond);
    assert_eq!(observer.data(1000 + AHEAD_MAX - 10, b"0123456789"), Taken::Kept);
    for place in 1..FOLLOW.early_max as u32 {
        assert_eq!(observer.data(1000 + 100 * place, b"xy"), Taken::Kept);
    }
    assert_eq!(observer.data(1900, b"x"), Taken::Beyond, "too many segments");
    assert_eq!(
        observer.data(1101, b"z"),
        Taken::Old,
        "what is there is not kept again"
    );
    // The other direction has room of its own, but the room that all share ends.
    let mut back = |at: u32| observer.take(1, at, 1000, flags::ACK, b"x").taken;
    let kept: Vec<Taken> = (0..4).map(|n| back(510 + 10 * n)).collect();
    assert_eq!(kept, [Taken::Kept, Taken::Kept, Taken::Kept, Taken::Full]);
    assert!(observer.read.iter().all(Vec::is_empty));
    // Bytes that are read make room.
    assert_eq!(
        observer.take(1, 500, 1000, flags::ACK, &[b'-'; 11]).taken,
        Taken::New
    );
    assert_eq!(observer.read[1], b"----------x", "the first that came");
    assert_eq!(observer.waiting.pool.free(), 2);
}

#[test]
fn gaps_are_passed_over_when_acknowledged_and_followed() {
    let mut observer = Observer::new();
    observer.open(1000);
    assert_eq!(observer.data(1010, b"kept"), Taken::Kept);
    // An end that acknowledges bytes that were not sent moves nothing.
    observer.take(1, 500, 1100, flags::ACK, b"");
    assert_eq!(observer.read[0], b"");
    assert_eq!(observer.data(1000, b"first"), Taken::New);
    assert_eq!(observer.data(1020, b"later"), Taken::New);
    assert_eq!(observer.read[0], b"first\0\0\0\0\0kept\0\0\0\0\0\0later");
    assert_eq!(observer.gaps, 2);
}

#[test]
fn gaps_are_passed_over_as_far_as_they_are_acknowledged() {
    let mut observer = Observer::new();
    observer.open(1000);
    assert_eq!(observer.data(1010, b"kept"), Taken::Kept);
    observer.take(1, 500, 1014, flags::ACK, b"");
    // The first gap is lost, the second one may still come.
    assert_eq!(observer.data(1020, b"later"), Taken::Kept);
    assert_eq!(observer.read[0], b"\0\0\0\0\0\0\0\0\0\0kept");
    assert_eq!(observer.data(1014, b"second"), Taken::New);
    assert_eq!(observer.read[0], b"\0\0\0\0\0\0\0\0\0\0keptsecondlater");
    assert_eq!(observer.gaps, 1);
}

#[test]
fn what_is_no_part_of_a_stream() {
    let mut observer = Observer::new();
    assert_eq!(observer.data(1000, b"unknown data"), Taken::Outside);
    observer.take(0, 999, 0, flags::SYN, b"");
    observer.take(1, 499, 1000, flags::SYN | flags::ACK, b"");
    assert_eq!(observer.data(998, b"before the first"), Taken::Outside);
    assert_eq!(observer.data(1000, b"first"), Taken::New);
    assert_eq!(
        observer.take(0, 1005, 0, flags::RST, b"on a reset").taken,
        Taken::Nothing
    );
    assert_eq!(observer.read[0], b"first");
}

#[test]
fn data_on_a_syn_count_once_they_are_acknowledged() {
    for taken in [0, 4, 10] {
        let mut observer = Observer::new();
        let syn = observer.take(0, 999, 0, flags::SYN, b"on the SYN");
        assert_eq!((syn.begins, syn.taken), (true, Taken::New));
        assert_eq!(
            observer.take(0, 999, 0, flags::SYN, b"on the SYN").taken,
            Taken::Old
        );
        assert_eq!(
            observer.data(1000, b"ON THE SYN"),
            Taken::Outside,
            "not known yet"
        );
        let answer = observer.take(1, 499, 1000 + taken, flags::SYN | flags::ACK, b"");
        assert_eq!(answer.refused, taken == 0);
        assert_eq!(observer.data(1000, b"ON THE SYN, and more"), Taken::New);
        let expected: &[u8] = match taken {
            0 => b"ON THE SYN, and more",
            _ => b"on the SYN, and more",
        };
        assert_eq!(observer.read[0], expected, "{taken} bytes taken");
    }
}

#[test]
fn resets_count_if_their_number_is_the_next() {
    let mut observer = Observer::new();
    observer.open(1000);
    assert_eq!(observer.data(1000, b"data"), Taken::New);
    observer.take(0, 1000, 0, flags::RST, b"");
    observer.take(1, 501, 0, flags::RST, b"");
    assert!(!observer.streams.is_closed());
    observer.take(1, 500, 0, flags::RST, b"");
    assert!(observer.streams.is_closed());
    assert_eq!(observer.data(1004, b"into the void"), Taken::Outside);
    // Its sender goes on, so the reset was none.
    assert_eq!(
        observer.take(1, 500, 1004, flags::ACK, b"still here").taken,
        Taken::New
    );
    assert!(!observer.streams.is_closed());
    assert_eq!(observer.data(1004, b"heard"), Taken::New);
    // The receiver has acknowledged bytes that were not seen here.
    observer.take(1, 510, 1100, flags::ACK, b"");
    observer.take(0, 1100, 0, flags::RST, b"");
    assert!(observer.streams.is_closed());
}

#[test]
fn a_connection_begins_again_only_when_the_old_one_is_closed() {
    let mut observer = Observer::new();
    observer.open(1000);
    assert!(!observer.take(0, 7000, 0, flags::SYN, b"").begins);
    assert_eq!(observer.data(1000, b"old"), Taken::New);
    observer.take(0, 1003, 500, flags::FIN | flags::ACK, b"");
    assert!(!observer.streams.is_closed());
    observer.take(1, 500, 1004, flags::FIN | flags::ACK, b"");
    assert!(observer.streams.is_closed());
    observer.read = Default::default();
    assert!(observer.take(1, 8000, 0, flags::SYN, b"").begins);
    assert_eq!(observer.streams.client(), 1);
    assert_eq!(observer.take(1, 8001, 0, flags::ACK, b"new").taken, Taken::New);
}

#[test]
fn a_fin_counts_behind_all_that_was_sent() {
    let fin = flags::FIN | flags::ACK;
    let closed = |observer: &Observer| observer.streams.is_closed();
    let begun = || {
        let mut observer = Observer::new();
        observer.open(1000);
        observer.take(1, 500, 1000, fin, b"");
        observer
    };
    // A FIN that comes before data that were lost on their way here counts when those have come, or
    // the other end has them.
    let mut observer = begun();
    observer.take(0, 1004, 501, fin, b"");
    assert!(!closed(&observer));
    assert_eq!(observer.data(1000, b"data"), Taken::New);
    assert!(closed(&observer));
    let mut observer = begun();
    observer.take(0, 1004, 501, fin, b"");
    observer.take(1, 501, 1004, flags::ACK, b"");
    assert!(!closed(&observer));
    observer.take(1, 501, 1005, flags::ACK, b"");
    assert!(closed(&observer));
    // An end that sends more has not meant its FIN, and another FIN may come.
    let mut observer = begun();
    observer.take(0, 1000, 501, fin, b"");
    assert!(closed(&observer));
    assert_eq!(observer.data(1000, b"more"), Taken::New);
    assert!(!closed(&observer));
    observer.take(0, 900_000, 501, fin, b"");
    observer.take(0, 1000, 501, fin, b"");
    assert!(!closed(&observer));
    observer.take(0, 1004, 501, fin, b"");
    assert!(closed(&observer));
    // With data, over the end of the numbers.
    let mut observer = Observer::new();
    observer.open(u32::MAX - 1);
    observer.take(1, 500, 0, fin, b"");
    observer.take(0, u32::MAX - 1, 501, fin, b"four");
    assert!(closed(&observer));
}

#[test]
fn a_server_that_speaks_first_is_told() {
    let mut observer = Observer::new();
    observer.take(0, 499, 1000, flags::SYN | flags::ACK, b"");
    assert_eq!(observer.streams.client(), 1);
}
