//! Two threads, each with its end of a channel, joined by the ring that joins workers; frames are
//! buffers that go over and come home. The *bare ring* has one message per buffer and nothing else:
//! what a link can do without a channel.
//!
//! With losses, every hundredth frame on average, of either way, is drawn by a seeded generator and
//! not passed on.

use super::{BUFFERS, MESSAGE, Processors, ROUND_TRIPS, number, pool};
use adapters::clock::monotonic_ns;
use adapters::ring::RingPort;
use protocols::channel::{Channel, ChannelSettings, Handled, Input, Output, Protection, SALT};
use runtime::env::{Burst, Port};
use std::sync::Barrier;
use wire::packet::Kind;
use wire::{LinkType, Pool};

/// Messages given to the channel before its outputs are taken.
const ROUND: usize = 512;

/// One end: a channel, its side of the ring, its buffers.
struct End {
    channel: Channel,
    port: RingPort,
    pool: Pool,
    out: Burst,
    incoming: Burst,
    /// Frames lost of 10,000.
    lost: u64,
    random: u64,
}

fn ends(lost: u64, seed: u64, protection: &Protection) -> [End; 2] {
    let (a, b) = RingPort::pair(2 * BUFFERS);
    let end = |worker: u16, port| {
        let settings = ChannelSettings {
            // Two threads may have to share processors with others: a peer that is not run for a
            // while has lost nothing.
            timeout_ns_min: 2_000_000,
            salt: [1 + worker as u8; SALT],
            ..ChannelSettings::new(worker, 1 - worker, 1, protection.clone())
        };
        End {
            channel: Channel::new(settings, monotonic_ns()).expect("good settings"),
            port,
            pool: pool(worker as u8),
            out: Burst::new(),
            incoming: Burst::new(),
            lost,
            random: seed * 2 + u64::from(worker) + 1,
        }
    };
    [end(0, a), end(1, b)]
}

impl End {
    fn is_lost(&mut self) -> bool {
        if self.lost == 0 {
            return false;
        }
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32 < (self.lost << 32) / 10_000
    }

    /// Takes frames from the ring, and passes waiting ones on; each message goes to `hear`.
    #[inline]
    fn step(&mut self, now: u64, mut hear: impl FnMut(&[u8])) {
        self.port.receive(now, &mut self.pool, &mut self.incoming);
        let mut incoming = core::mem::take(&mut self.incoming);
        for mut buffer in incoming.drain(..) {
            if buffer.kind() == Kind::Empty {
                self.pool.give(buffer);
                continue;
            }
            let _ = self.channel.handle(now, Input::Frame(buffer.frame_mut(), 0));
            buffer.set_kind(Kind::Empty);
            self.pass(now, buffer);
        }
        if self.channel.next_timeout().is_some_and(|at| at <= now) {
            let _ = self.channel.handle(now, Input::Timeout);
        }
        self.take_outputs(now, &mut hear);
        self.port.transmit(now, &mut self.pool, &mut self.out);
    }

    #[inline]
    fn pass(&mut self, now: u64, buffer: wire::PacketBox) {
        if self.out.is_full() {
            self.port.transmit(now, &mut self.pool, &mut self.out);
        }
        self.out.push(buffer);
    }

    #[inline]
    fn take_outputs(&mut self, now: u64, hear: &mut impl FnMut(&[u8])) {
        loop {
            // An output is polled once a buffer is there for it.
            let Some(mut buffer) = self.pool.take() else {
                return;
            };
            loop {
                match self.channel.poll() {
                    Some(Output::Frame(frame)) => {
                        assert!(
                            buffer.set_frame(frame, LinkType::Raw),
                            "a frame fits into a buffer"
                        );
                        buffer.set_kind(Kind::Message);
                        break;
                    }
                    Some(Output::Message(message)) => hear(message),
                    Some(_) => {}
                    None => return self.pool.give(buffer),
                }
            }
            if self.is_lost() {
                self.pool.give(buffer);
            } else {
                self.pass(now, buffer);
            }
        }
    }
}

/// Runs the two ends of something on two threads; answers what the second measured.
fn together<A: Send, B: Send>(
    processors: &Processors,
    ends: (A, B),
    first: impl FnOnce(A, &Barrier) + Send,
    second: impl FnOnce(B, &Barrier) -> f64 + Send,
) -> f64 {
    let barrier = Barrier::new(2);
    let (a, b) = ends;
    std::thread::scope(|scope| {
        let barrier = &barrier;
        scope.spawn(move || {
            processors.first();
            first(a, barrier);
        });
        let second = scope.spawn(move || {
            processors.second();
            second(b, barrier)
        });
        second.join().expect("the receiver ends well")
    })
}

/// Million messages per second over a channel that loses `lost` of 10,000 frames.
pub(super) fn rate(
    processors: &Processors,
    messages: u64,
    lost: u64,
    seed: u64,
    protection: &Protection,
) -> f64 {
    let [a, b] = ends(lost, seed, protection);
    let send = move |mut end: End, barrier: &Barrier| {
        let mut message = [7; MESSAGE];
        let mut said = 0;
        while !end.channel.is_met() {
            end.step(monotonic_ns(), |_| {});
        }
        barrier.wait();
        loop {
            let now = monotonic_ns();
            let until = messages.min(said + ROUND as u64);
            while said < until {
                message[..8].copy_from_slice(&said.to_be_bytes());
                if end.channel.handle(now, Input::Message(&message)) != Handled::Done {
                    break;
                }
                said += 1;
            }
            let _ = end.channel.handle(now, Input::Flush);
            end.step(now, |_| {});
            if said == messages && end.channel.in_use().0 == 0 {
                return;
            }
        }
    };
    let hear = move |mut end: End, barrier: &Barrier| {
        while !end.channel.is_met() {
            end.step(monotonic_ns(), |_| {});
        }
        barrier.wait();
        let before = monotonic_ns();
        let mut heard = 0;
        while heard < messages {
            end.step(monotonic_ns(), |message| {
                assert_eq!(number(message), heard, "the next message");
                heard += 1;
            });
        }
        let rate = messages as f64 * 1e3 / (monotonic_ns() - before) as f64;
        // The sender ends when all is acknowledged.
        while !end.port.finished() {
            end.step(monotonic_ns(), |_| {});
        }
        rate
    };
    together(processors, (a, b), send, hear)
}

/// Million messages per second with both ends, and the ring between them, on one thread: the whole
/// cost in processor time.
pub(super) fn both_rate(messages: u64, lost: u64, seed: u64, protection: &Protection) -> f64 {
    let [mut a, mut b] = ends(lost, seed, protection);
    let (mut said, mut heard) = (0, 0);
    let mut message = [7; MESSAGE];
    let before = monotonic_ns();
    while heard < messages {
        let now = monotonic_ns();
        let until = messages.min(said + ROUND as u64);
        while said < until && a.channel.is_met() {
            message[..8].copy_from_slice(&said.to_be_bytes());
            if a.channel.handle(now, Input::Message(&message)) != Handled::Done {
                break;
            }
            said += 1;
        }
        let _ = a.channel.handle(now, Input::Flush);
        a.step(now, |_| {});
        b.step(now, |message| {
            assert_eq!(number(message), heard, "the next message");
            heard += 1;
        });
    }
    messages as f64 * 1e3 / (monotonic_ns() - before) as f64
}

/// Nanoseconds one way for a lone message.
pub(super) fn one_way(processors: &Processors, seed: u64) -> f64 {
    let [a, b] = ends(0, seed, &Protection::SharedMemory);
    let answer = |mut end: End, barrier: &Barrier| {
        let mut answered = 0;
        while !end.channel.is_met() {
            end.step(monotonic_ns(), |_| {});
        }
        barrier.wait();
        while !end.port.finished() {
            let mut asked = 0;
            end.step(monotonic_ns(), |_| asked += 1);
            for _ in 0..asked {
                answered += 1;
                let _ = end.channel.handle(monotonic_ns(), Input::Message(&[7; MESSAGE]));
            }
            if asked > 0 {
                let now = monotonic_ns();
                let _ = end.channel.handle(now, Input::Flush);
                end.step(now, |_| asked += 1);
            }
        }
        assert_eq!(answered, ROUND_TRIPS);
    };
    let ask = |mut end: End, barrier: &Barrier| {
        while !end.channel.is_met() {
            end.step(monotonic_ns(), |_| {});
        }
        barrier.wait();
        let before = monotonic_ns();
        for _ in 0..ROUND_TRIPS {
            let now = monotonic_ns();
            let _ = end.channel.handle(now, Input::Message(&[7; MESSAGE]));
            let _ = end.channel.handle(now, Input::Flush);
            let mut answers = 0;
            while answers == 0 {
                end.step(monotonic_ns(), |_| answers += 1);
            }
        }
        (monotonic_ns() - before) as f64 / (2 * ROUND_TRIPS) as f64
    };
    together(processors, (a, b), answer, ask)
}

/// Million messages per second over the bare ring, a buffer each.
pub(super) fn ring_rate(processors: &Processors, messages: u64) -> f64 {
    let (a, b) = RingPort::pair(2 * BUFFERS);
    let send = move |mut port: RingPort, barrier: &Barrier| {
        let (mut pool, mut out, mut home) = (pool(0), Burst::new(), Burst::new());
        let (mut said, mut message) = (0u64, [7; MESSAGE]);
        barrier.wait();
        while said < messages || pool.free() < BUFFERS {
            while said < messages && !out.is_full() {
                let Some(mut buffer) = pool.take() else { break };
                message[..8].copy_from_slice(&said.to_be_bytes());
                assert!(buffer.set_frame(&message, LinkType::Raw));
                buffer.set_kind(Kind::Message);
                out.push(buffer);
                said += 1;
            }
            port.transmit(0, &mut pool, &mut out);
            port.receive(0, &mut pool, &mut home);
            home.drain(..).for_each(|buffer| pool.give(buffer));
        }
    };
    let hear = move |mut port: RingPort, barrier: &Barrier| {
        let (mut pool, mut burst) = (pool(1), Burst::new());
        barrier.wait();
        let before = monotonic_ns();
        let mut heard = 0;
        while heard < messages {
            port.receive(0, &mut pool, &mut burst);
            for buffer in &mut burst {
                assert_eq!(number(buffer.frame()), heard, "the next message");
                heard += 1;
                buffer.set_kind(Kind::Empty);
            }
            port.transmit(0, &mut pool, &mut burst);
        }
        messages as f64 * 1e3 / (monotonic_ns() - before) as f64
    };
    together(processors, (a, b), send, hear)
}
