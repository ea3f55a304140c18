//! `bench message`: messages of 64 bytes between two workers (NFVactor VII-A2, figure 6d).
//!
//! Two threads, each with its end of a channel, joined by the ring that joins workers; frames are buffers that go over and come home. The
//! *bare ring* has one message per buffer and nothing else: what a link can do without a channel. With losses, every
//! hundredth frame on average, of either way, is drawn by a seeded generator and not passed on.
//!
//! The one-way time is half of a round trip of one message that is answered by one, with nothing else under way. The receiver
//! checks that each message is the next one.
//!
//! *Both ends on one thread* has no waiting for the other: it says what a message takes of processors in all, on a busy machine too.
//!
//! Runs of all cases alternate. Each thread has a processor of its own, if there are two; on a machine that does other work the figures
//! say little.

use super::report::{Case, Parameters};
use super::{Memory, Options};
use adapters::clock::{allowed_cpus, monotonic_ns, pin_to};
use adapters::ring::RingPort;
use protocols::channel::{Channel, Handled, Input, Key, Keys, Output, Protection, Settings};
use runtime::env::{Burst, Port};
use std::sync::Barrier;
use wire::memory::Region;
use wire::packet::Kind;
use wire::{LinkType, Pool};

const MESSAGE: usize = 64;
/// Buffers of each end.
const BUFFERS: usize = 1024;
/// Messages given to the channel before its outputs are taken.
const ROUND: usize = 512;
/// Round trips of a run.
const ROUND_TRIPS: usize = 20_000;

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

fn pool(origin: u8) -> Pool {
    let room = 2048;
    Pool::new(
        Region::heap(Pool::region_length(BUFFERS, room)),
        BUFFERS,
        room,
        origin,
    )
}

fn ends(lost: u64, seed: u64, protection: &Protection) -> [End; 2] {
    let (a, b) = RingPort::pair(2 * BUFFERS);
    let end = |worker: u16, port| {
        let settings = Settings {
            // Two threads may have to share processors with others: a peer that is not run for a while has lost nothing.
            timeout_ns_min: 2_000_000,
            ..Settings::new(worker, 1 - worker, 1, protection.clone())
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

    /// Takes what came over the ring, and passes on what there is to pass; each message goes to `hear`.
    #[inline]
    fn step(&mut self, now: u64, mut hear: impl FnMut(&[u8])) {
        self.port.receive(now, &mut self.pool, &mut self.incoming);
        let mut incoming = core::mem::take(&mut self.incoming);
        for mut buffer in incoming.drain(..) {
            if buffer.kind() == Kind::Empty {
                self.pool.give(buffer);
                continue;
            }
            let _ = self.channel.handle(now, Input::Frame(buffer.frame(), 0));
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

fn number(message: &[u8]) -> u64 {
    u64::from_be_bytes(*message.first_chunk().expect("64 bytes"))
}

/// Runs the two ends of something on two threads; answers what the second measured.
fn together<A: Send, B: Send>(
    ends: (A, B),
    first: impl FnOnce(A, &Barrier) + Send,
    second: impl FnOnce(B, &Barrier) -> f64 + Send,
) -> f64 {
    let cpus = allowed_cpus();
    let barrier = Barrier::new(2);
    let (a, b) = ends;
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let (cpu_a, cpu_b) = (cpus.first().copied(), cpus.last().copied());
        scope.spawn(move || {
            let _ = cpu_a.map(pin_to);
            first(a, barrier);
        });
        let second = scope.spawn(move || {
            let _ = cpu_b.map(pin_to);
            second(b, barrier)
        });
        second.join().expect("the receiver ends well")
    })
}

/// Million messages per second over a channel that loses `lost` of 10,000 frames.
fn channel_rate(messages: u64, lost: u64, seed: u64) -> f64 {
    let [a, b] = ends(lost, seed, &Protection::SharedMemory);
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
    together((a, b), send, hear)
}

/// Million messages per second with both ends, and the ring between them, on one thread: what they take of processors.
fn both_rate(messages: u64, lost: u64, seed: u64, protection: &Protection) -> f64 {
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
fn channel_one_way(_: u64, seed: u64) -> f64 {
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
    together((a, b), answer, ask)
}

/// Million messages per second over the bare ring, a buffer each.
fn ring_rate(messages: u64) -> f64 {
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
    together((a, b), send, hear)
}

/// Measures rate, rate with losses and one-way time, with the bare ring beside them.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    memory.begin_case();
    let messages = 16 * options.packets as u64;
    let (mut ring, mut channel, mut lossy) = (Vec::new(), Vec::new(), Vec::new());
    let (mut both, mut both_lossy, mut both_keyed) = (Vec::new(), Vec::new(), Vec::new());
    let mut one_way = Vec::new();
    let key = Key::new(1, [1; 32]).expect("1 is a number of a key");
    let keyed = Protection::Keyed(Keys::new(key));
    for run in 0..options.runs as u64 {
        let seed = options.seed * 1000 + run;
        ring.push(ring_rate(messages));
        channel.push(channel_rate(messages, 0, seed));
        lossy.push(channel_rate(messages, 100, seed));
        both.push(both_rate(messages, 0, seed, &Protection::SharedMemory));
        both_lossy.push(both_rate(messages, 100, seed, &Protection::SharedMemory));
        both_keyed.push(both_rate(messages, 0, seed, &keyed));
        one_way.push(channel_one_way(messages, seed));
    }
    let case = |name: &str, metric, unit, samples| {
        let parameters = Parameters {
            flows: 0,
            popularity: "-",
            frame_bytes: MESSAGE,
            packets_per_run: messages as usize,
            live: None,
        };
        Case::new(name, parameters, metric, unit, samples)
    };
    let rate = |name: &str, samples| {
        case(
            name,
            "million messages per second (one way: nanoseconds)",
            "M/s",
            samples,
        )
    };
    let ring = rate("bare ring", ring);
    let channel = rate("channel", channel).against(&ring).goal(Some(15.0));
    let lossy = rate("channel, 1 % of frames lost", lossy).against(&channel);
    let both = rate("both ends on one thread", both);
    let both_lossy = rate("the same, 1 % of frames lost", both_lossy).against(&both);
    let both_keyed = rate("the same, authenticated", both_keyed).against(&both);
    let one_way = case("one way, unloaded: ns", "nanoseconds", "ns", one_way).goal(Some(2000.0));
    vec![channel, lossy, both, both_lossy, both_keyed, one_way, ring]
}
