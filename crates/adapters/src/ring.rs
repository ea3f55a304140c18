//! The link between two workers of one process: two single-producer single-consumer rings of
//! buffers.
//!
//! Theory of operation. A buffer's ownership is passed, nothing is copied. Each end is a [`Port`]:
//! the other end receives all buffers that one transmits, in order: frames, messages between
//! workers, and empty buffers on their way home.
//!
//! ```text
//!   worker A ── transmit ─► [ ring ] ── receive ─► worker B
//!            ◄─ receive ─── [ ring ] ◄─ transmit ──
//! ```
//!
//! A ring never loses anything, so it must hold all buffers that can be in it: its capacity is at
//! least the number of buffers in all pools that reach it, which the maker of the pair guarantees
//! and `transmit` asserts. So that a slow reader is noticed before it has all of them,
//! [`RingPort::room`](Port::room) counts up to a lower limit; messages and buffers on their way
//! home pass beyond it.
//!
//! ```text
//!   open ─► closed (this end says it sends no more, or is dropped) ─► finished (… and the ring is empty)
//! ```
//!
//! *Sessions.* A ring outlives the workers at its ends, where these come and go while the process
//! runs. A worker that begins or ends at a ring says so ([`RingPort::set_session`]), and the other
//! end sees it behind everything that was sent before. Buffers sent to an end without a worker stay
//! in the ring: buffers on their way home, for the next worker there, and at first buffers for the
//! last worker, which its wreck takes off and sends home (`runtime::worker::failing`).
//!
//! Invariants: order; nothing lost, nothing twice; an empty buffer is not counted as a packet; an
//! end that sees the other closed sees all it sent before. The tests below with two threads hold
//! them; `cargo xtask nightly` runs these under miri with many seeds, each another order of the
//! threads and other values that atomics may show. The ring itself is `rtrb`'s, used as it is; ours
//! are the flags of the ends, and how they go with the ring.
//!
//! Not here: links between processes and hosts, which copy.

use rtrb::{Consumer, Producer, RingBuffer};
use runtime::env::{BURST, Burst, Port, PortCounters};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wire::packet::Kind;
use wire::{PacketBox, Pool};

/// One end of a link between two workers.
pub struct RingPort {
    out: Producer<PacketBox>,
    incoming: Consumer<PacketBox>,
    closed_here: Arc<AtomicBool>,
    closed_there: Arc<AtomicBool>,
    /// The sessions of the worker here, of the one there, and of the one there at the last look.
    session_here: Arc<AtomicU64>,
    session_there: Arc<AtomicU64>,
    session: u64,
    limit: usize,
    counters: PortCounters,
}

/// With so much room by the last look at the other end's progress, no new look is taken: it costs a
/// cache line from the other core.
const PLENTY: usize = 4 * BURST;

impl RingPort {
    /// Two ends. `capacity` is the number of buffers each direction holds: at least as many as
    /// there are in all pools whose buffers may pass.
    pub fn pair(capacity: usize) -> (RingPort, RingPort) {
        Self::pair_with_limit(capacity, capacity)
    }

    /// Two ends whose [`room`](Port::room) ends at `limit` waiting buffers, at most `capacity`.
    pub fn pair_with_limit(capacity: usize, limit: usize) -> (RingPort, RingPort) {
        let (to_b, from_a) = RingBuffer::new(capacity);
        let (to_a, from_b) = RingBuffer::new(capacity);
        let (a, b) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (at_a, at_b) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(1)));
        let end = |out,
                   incoming,
                   (closed_here, closed_there): (&Arc<_>, &Arc<_>),
                   (here, there): (&Arc<_>, &Arc<_>)| {
            RingPort {
                out,
                incoming,
                closed_here: Arc::clone(closed_here),
                closed_there: Arc::clone(closed_there),
                session_here: Arc::clone(here),
                session_there: Arc::clone(there),
                session: 1,
                limit: limit.min(capacity),
                counters: PortCounters::default(),
            }
        };
        (
            end(to_b, from_b, (&a, &b), (&at_a, &at_b)),
            end(to_a, from_a, (&b, &a), (&at_b, &at_a)),
        )
    }

    /// Says that this end transmits no more: the other is finished when it has received all buffers
    /// on the way. This end may go on receiving.
    pub fn close(&mut self) {
        self.closed_here.store(true, Ordering::Release);
    }

    /// Sets the session at this end from now on: 0 without a worker; a number never used before for
    /// a worker that begins.
    pub fn set_session(&mut self, session: u64) {
        self.session_here.store(session, Ordering::Release);
    }

    /// Takes over the other end's session, unless something is still on the way from there. For
    /// links that no worker reads yet.
    pub fn look(&mut self) {
        let there = self.session_there.load(Ordering::Acquire);
        // In this order: buffers sent before are in the ring by the time that the session is seen.
        if there != self.session && self.incoming.is_empty() {
            self.session = there;
        }
    }

    /// Buffers that wait to be received here.
    pub fn waiting(&self) -> usize {
        self.incoming.slots()
    }

    /// The other end is gone, and with it the worker that would have taken these.
    #[cold]
    fn lose(&mut self, pool: &mut Pool, burst: &mut Burst) {
        let unsent = &mut self.counters.unsent_packets;
        crate::consume(pool, burst, |packet| {
            *unsent += u64::from(packet.kind() == Kind::Data)
        });
    }
}

impl Port for RingPort {
    #[inline]
    fn receive(&mut self, _now: u64, _pool: &mut Pool, burst: &mut Burst) {
        let count = self.incoming.slots().min(burst.remaining_capacity());
        if count == 0 {
            if burst.is_empty() {
                self.look();
            }
            return;
        }
        let Ok(chunk) = self.incoming.read_chunk(count) else {
            return;
        };
        let before = burst.len();
        for packet in chunk {
            // The other core wrote it: fetch all of them at once before looking at the first.
            packet.prefetch();
            burst.push(packet);
        }
        for packet in &burst[before..] {
            if packet.kind() == Kind::Data {
                self.counters.received_packets += 1;
                self.counters.received_bytes += u64::from(packet.wire_length());
            }
        }
    }

    #[inline]
    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        if burst.is_empty() {
            return;
        }
        if self.out.is_abandoned() {
            self.lose(pool, burst);
            return;
        }
        for packet in burst.iter() {
            if packet.kind() == Kind::Data {
                self.counters.sent_packets += 1;
                self.counters.sent_bytes += u64::from(packet.wire_length());
            }
        }
        let count = burst.len();
        let chunk = self.out.write_chunk_uninit(count);
        let chunk = chunk.expect("a ring holds all buffers of all pools that reach it");
        chunk.fill_from_iter(burst.drain(..));
    }

    fn finished(&self) -> bool {
        // In this order: buffers sent before the end closed are in the ring by the time that is
        // seen.
        let closed = self.closed_there.load(Ordering::Acquire) || self.incoming.is_abandoned();
        closed && self.incoming.is_empty()
    }

    fn waits(&self) -> bool {
        true
    }

    #[inline]
    fn session(&self) -> u64 {
        self.session
    }

    #[inline]
    fn is_still(&self) -> bool {
        self.session == 0 && self.session_there.load(Ordering::Acquire) == 0 && self.incoming.is_empty()
    }

    #[inline]
    fn room(&self) -> usize {
        let capacity = self.out.buffer().capacity();
        let room = |slots: usize| self.limit.saturating_sub(capacity - slots);
        // Slots free at the last look are free still: only this end fills.
        match room(self.out.cached_slots()) {
            plenty @ PLENTY.. => plenty,
            _ => room(self.out.slots()),
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::LinkType;
    use wire::memory::Region;

    fn pool(count: usize, origin: u8) -> Pool {
        Pool::new(Region::heap(Pool::region_length(count, 64)), count, 64, origin)
    }

    fn fill(pool: &mut Pool, burst: &mut Burst, count: usize, kind: Kind) {
        for n in 0..count {
            let mut packet = pool.take().unwrap();
            assert!(packet.set_frame(&[n as u8; 40], LinkType::Raw));
            packet.set_kind(kind);
            burst.push(packet);
        }
    }

    #[test]
    fn everything_passes_in_order_and_only_frames_are_counted() {
        let mut pool = pool(16, 3);
        let mut other = self::pool(1, 4);
        let (mut a, mut b) = RingPort::pair(16);
        let mut burst = Burst::new();
        fill(&mut pool, &mut burst, 4, Kind::Data);
        fill(&mut pool, &mut burst, 1, Kind::Message);
        fill(&mut pool, &mut burst, 1, Kind::Empty);
        a.transmit(0, &mut pool, &mut burst);
        assert!(burst.is_empty());
        b.receive(0, &mut other, &mut burst);
        assert_eq!(
            burst.iter().map(|p| p.frame()[0]).collect::<Vec<_>>(),
            [0, 1, 2, 3, 0, 0]
        );
        assert_eq!((a.counters().sent_packets, b.counters().received_packets), (4, 4));
        for packet in burst.drain(..) {
            pool.give(packet);
        }
        assert_eq!((pool.free(), other.free()), (16, 1));
    }

    #[test]
    fn an_end_is_finished_when_the_other_closed_and_the_ring_is_empty() {
        let mut pool = pool(2, 0);
        let (mut a, mut b) = RingPort::pair(2);
        let mut burst = Burst::new();
        fill(&mut pool, &mut burst, 1, Kind::Data);
        a.transmit(0, &mut pool, &mut burst);
        a.close();
        assert!(!b.finished() && !a.finished());
        b.receive(0, &mut pool, &mut burst);
        assert!(b.finished() && !a.finished());
        b.transmit(0, &mut pool, &mut burst);
        drop(b);
        assert!(!a.finished());
        a.receive(0, &mut pool, &mut burst);
        assert!(a.finished());
        // The other end is gone: a sent packet is counted, and the buffer comes home.
        a.transmit(0, &mut pool, &mut burst);
        assert_eq!((a.counters().unsent_packets, pool.free()), (1, 2));
    }

    #[test]
    fn who_is_at_the_other_end_is_seen_behind_what_was_sent_before() {
        let mut pool = pool(4, 0);
        let (mut a, mut b) = RingPort::pair(4);
        assert_eq!((a.session(), b.session()), (1, 1));
        let mut burst = Burst::new();
        fill(&mut pool, &mut burst, 2, Kind::Data);
        a.transmit(0, &mut pool, &mut burst);
        a.set_session(0);
        a.set_session(2);
        b.receive(0, &mut pool, &mut burst);
        assert_eq!((burst.len(), b.session()), (2, 1));
        burst.drain(..).for_each(|packet| pool.give(packet));
        b.receive(0, &mut pool, &mut burst);
        assert_eq!((burst.len(), b.session(), a.session()), (0, 2, 1));
    }

    #[test]
    fn room_ends_at_the_limit_and_comes_back() {
        let mut pool = pool(300, 0);
        let (mut a, mut b) = RingPort::pair_with_limit(300, 200);
        let mut burst = Burst::new();
        for sent in 1..=9 {
            fill(&mut pool, &mut burst, BURST, Kind::Data);
            a.transmit(0, &mut pool, &mut burst);
            assert_eq!(a.room(), 200usize.saturating_sub(sent * BURST));
        }
        assert_eq!(b.room(), 200);
        for _ in 0..9 {
            b.receive(0, &mut pool, &mut burst);
            burst.drain(..).for_each(|packet| pool.give(packet));
        }
        assert_eq!(a.room(), 200);
    }

    #[test]
    #[should_panic(expected = "a ring holds all buffers")]
    fn a_ring_too_small_is_a_programmers_error() {
        let mut pool = pool(3, 0);
        let (mut a, _b) = RingPort::pair(2);
        let mut burst = Burst::new();
        fill(&mut pool, &mut burst, 3, Kind::Data);
        a.transmit(0, &mut pool, &mut burst);
    }

    /// Closed, or dropped, right behind the last packet: an end that sees the other finished has
    /// all that was sent before.
    #[test]
    fn threads_what_was_sent_before_the_end_is_received() {
        const ROUNDS: usize = if cfg!(miri) { 4 } else { 2000 };
        const PACKETS: usize = 3;
        for round in 0..ROUNDS {
            let (mut a, mut b) = RingPort::pair(PACKETS);
            let receiver = std::thread::spawn(move || {
                let mut pool = pool(1, 9);
                let (mut burst, mut received) = (Burst::new(), Vec::new());
                while !b.finished() {
                    b.receive(0, &mut pool, &mut burst);
                    received.extend(burst.drain(..));
                    std::hint::spin_loop();
                }
                received
            });
            let mut pool = pool(PACKETS, 0);
            let mut burst = Burst::new();
            fill(&mut pool, &mut burst, PACKETS, Kind::Data);
            a.transmit(0, &mut pool, &mut burst);
            let open = round.is_multiple_of(2).then(|| {
                a.close();
                a
            });
            let received = receiver.join().unwrap();
            drop(open);
            let first_bytes: Vec<u8> = received.iter().map(|packet| packet.frame()[0]).collect();
            assert_eq!(first_bytes, [0, 1, 2]);
            received.into_iter().for_each(|packet| pool.give(packet));
        }
    }

    /// One worker numbers packets, the other checks the numbers and sends the buffers home: none
    /// lost, none twice, in order, however the threads run.
    #[test]
    fn threads_pass_numbered_packets() {
        const PACKETS: u64 = if cfg!(miri) { 100 } else { 300_000 };
        const BUFFERS: usize = if cfg!(miri) { 13 } else { 97 };
        let (mut a, mut b) = RingPort::pair(BUFFERS);
        let checker = std::thread::spawn(move || {
            let mut pool = pool(1, 9);
            let mut burst = Burst::new();
            let mut expected = 0;
            while !b.finished() {
                b.receive(0, &mut pool, &mut burst);
                for packet in burst.iter_mut() {
                    assert_eq!(packet.timestamp(), expected);
                    assert_eq!(packet.frame(), [expected as u8; 20]);
                    expected += 1;
                    packet.set_kind(Kind::Empty);
                }
                if burst.is_empty() {
                    std::thread::yield_now();
                }
                b.transmit(0, &mut pool, &mut burst);
            }
            expected
        });
        let mut pool = pool(BUFFERS, 0);
        let mut burst = Burst::new();
        let mut number = 0;
        while number < PACKETS || pool.free() < BUFFERS {
            while number < PACKETS && !burst.is_full() {
                let Some(mut packet) = pool.take() else { break };
                assert!(packet.set_frame(&[number as u8; 20], LinkType::Raw));
                packet.set_timestamp(number);
                burst.push(packet);
                number += 1;
            }
            a.transmit(0, &mut pool, &mut burst);
            a.receive(0, &mut pool, &mut burst);
            if burst.is_empty() {
                std::thread::yield_now();
            }
            for packet in burst.drain(..) {
                assert_eq!(packet.kind(), Kind::Empty);
                pool.give(packet);
            }
        }
        a.close();
        assert_eq!(checker.join().unwrap(), PACKETS);
        assert_eq!(a.counters().sent_packets, PACKETS);
        assert_eq!(a.counters().received_packets, 0);
    }
}
