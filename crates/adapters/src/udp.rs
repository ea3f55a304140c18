//! A link to a worker in another process: channel frames in Geneve over UDP.
//!
//! Theory of operation. What is transmitted is a channel frame; [`Front`] goes before it into the buffer's headroom, and the
//! kernel sends it. What is received is held against the network, the two workers and the other end's address, and passed on
//! without what stood in front. The channel judges the rest: its tag, its session, its number.
//!
//! ```text
//!   channel ── frame ─► transmit: │ Geneve, 16 │ frame │ ─► UDP ─► receive ── frame ─► channel
//! ```
//!
//! A datagram that the kernel does not take is lost (counted as unsent), and the channel sends it again.
//!
//! Invariants: buffers go home; a datagram that is not this link's is counted as refused and changes nothing.
//!
//! Not here: several datagrams a call, a source port for each pair, keys, who the peers are.

use protocols::link::geneve::{FRONT, Front};
use runtime::env::{Burst, Port, PortCounters};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use wire::packet::Kind;
use wire::{LinkType, Pool};

/// One end of a link over UDP.
pub struct UdpLink {
    socket: UdpSocket,
    peer: SocketAddr,
    front: Front,
    counters: PortCounters,
}

impl UdpLink {
    /// A link from `local` to `peer` for the workers of `front`, which is what this end writes.
    pub fn open(local: SocketAddr, peer: SocketAddr, front: Front) -> io::Result<UdpLink> {
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        Ok(UdpLink {
            socket,
            peer,
            front,
            counters: PortCounters::default(),
        })
    }

    /// Where this end receives.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The channel frame of a datagram that is this link's: where it begins.
    fn judge(&self, datagram: &[u8], source: SocketAddr) -> Option<usize> {
        let (front, frame) = Front::read(datagram, self.front.network).ok()?;
        let is_ours = source == self.peer && (front.from, front.to) == (self.front.to, self.front.from);
        is_ours.then_some(datagram.len() - frame.len())
    }
}

impl Port for UdpLink {
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() {
            let Some(mut buffer) = pool.take() else { return };
            let room = buffer.room();
            buffer.reset(room, LinkType::Raw);
            let Ok((length, source)) = self.socket.recv_from(buffer.frame_mut()) else {
                // Nothing there, or an error that says nothing of a datagram.
                return pool.give(buffer);
            };
            // As long as the buffer: it may have been cut.
            let whole = length < room;
            match self.judge(&buffer.frame()[..length], source).filter(|_| whole) {
                Some(start) => {
                    buffer.frame_mut().copy_within(start..length, 0);
                    buffer.reset(length - start, LinkType::Raw);
                    buffer.set_kind(Kind::Message);
                    buffer.set_timestamp(now);
                    self.counters.received_packets += 1;
                    self.counters.received_bytes += length as u64;
                    burst.push(buffer);
                }
                None => {
                    self.counters.refused_packets += 1;
                    pool.give(buffer);
                }
            }
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        for buffer in burst.iter_mut().filter(|buffer| buffer.kind() != Kind::Empty) {
            let mut sent = false;
            if buffer.grow_front(FRONT) {
                let front = buffer.frame_mut().first_chunk_mut().expect("just grown");
                self.front.write(front);
                sent = self.socket.send_to(buffer.frame(), self.peer).is_ok();
            }
            if sent {
                self.counters.sent_packets += 1;
                self.counters.sent_bytes += buffer.frame().len() as u64;
            } else {
                self.counters.unsent_packets += 1;
            }
        }
        crate::consume(pool, burst, |_| {});
    }

    fn wakes_by(&self) -> Option<Vec<i32>> {
        use std::os::fd::AsRawFd;
        Some(vec![self.socket.as_raw_fd()])
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;
    use protocols::channel::{Channel, Handled, Input, Key, Keys, Output, Protection, Settings};
    use wire::memory::Region;

    const MESSAGES: u64 = 20_000;
    const BUFFERS: usize = 128;

    struct End {
        channel: Channel,
        link: UdpLink,
        pool: Pool,
        /// Frames counted to lose every so many.
        frames: u64,
    }

    fn front(from: u16) -> Front {
        Front {
            network: 9,
            from,
            to: 1 - from,
        }
    }

    fn end(worker: u16, link: UdpLink) -> End {
        let protection = Protection::Keyed(Keys::new(Key::new(1, [3; 32]).unwrap()));
        let pool = Pool::new(
            Region::heap(Pool::region_length(BUFFERS, 2048)),
            BUFFERS,
            2048,
            worker as u8,
        );
        let settings = Settings::new(worker, 1 - worker, 1, protection);
        End {
            channel: Channel::new(settings, monotonic_ns()).unwrap(),
            link,
            pool,
            frames: 0,
        }
    }

    impl End {
        fn step(&mut self, lose_every: u64, mut hear: impl FnMut(&[u8])) {
            let mut burst = Burst::new();
            let now = monotonic_ns();
            self.link.receive(now, &mut self.pool, &mut burst);
            for buffer in burst.drain(..) {
                let _ = self.channel.handle(now, Input::Frame(buffer.frame(), 0));
                self.pool.give(buffer);
            }
            let _ = self.channel.handle(now, Input::Timeout);
            while let Some(output) = self.channel.poll() {
                match output {
                    Output::Message(message) => hear(message),
                    Output::Frame(frame) => {
                        self.frames += 1;
                        let mut buffer = self.pool.take().expect("buffers come home");
                        assert!(buffer.set_frame(frame, LinkType::Raw));
                        buffer.set_kind(Kind::Message);
                        if self.frames.is_multiple_of(lose_every) {
                            self.pool.give(buffer);
                        } else {
                            burst.push(buffer);
                        }
                    }
                    _ => {}
                }
                if burst.is_full() {
                    self.link.transmit(now, &mut self.pool, &mut burst);
                }
            }
            self.link.transmit(now, &mut self.pool, &mut burst);
            assert!(burst.is_empty() && self.pool.free() == BUFFERS);
        }
    }

    /// Two links on loopback, each on the address and a port of its own.
    fn links() -> (UdpLink, UdpLink) {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut a = UdpLink::open(any, any, front(0)).unwrap();
        let b = UdpLink::open(any, a.local().unwrap(), front(1)).unwrap();
        a.peer = b.local().unwrap();
        (a, b)
    }

    /// Messages between two threads over real sockets, authenticated, with every 50th frame lost: once each and in order.
    #[test]
    fn a_channel_passes_over_udp() {
        let (a, b) = links();
        let receiver = std::thread::spawn(move || {
            let mut end = end(1, b);
            let mut heard = 0u64;
            let until = monotonic_ns() + 60_000_000_000;
            while heard < MESSAGES {
                assert!(
                    monotonic_ns() < until,
                    "{heard} messages heard, {:?}",
                    end.channel.counters()
                );
                end.step(50, |message| {
                    assert_eq!(message, heard.to_be_bytes());
                    heard += 1;
                });
                std::thread::yield_now();
            }
            // The last acknowledgement may be lost: the sender asks again for a while.
            for _ in 0..200 {
                end.step(u64::MAX, |_| panic!("there are no more"));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            end.link.counters()
        });
        let mut end = end(0, a);
        let mut said = 0u64;
        while said < MESSAGES || (end.channel.in_use().0 > 0 && !receiver.is_finished()) {
            let now = monotonic_ns();
            while said < MESSAGES
                && end.channel.handle(now, Input::Message(&said.to_be_bytes())) == Handled::Done
            {
                said += 1;
            }
            let _ = end.channel.handle(now, Input::Flush);
            end.step(50, |_| {});
            std::thread::yield_now();
        }
        let counters = receiver.join().unwrap();
        assert!(counters.received_packets > 0);
        assert_eq!(counters.refused_packets, 0);
        assert_eq!(end.channel.in_use().0, 0);
    }

    /// Datagrams of others, and what is no datagram of ours, are counted and not passed on.
    #[test]
    fn what_is_not_this_links_is_refused() {
        let (mut a, b) = links();
        let there = a.local().unwrap();
        let mut good = [0; FRONT + 4];
        front(1).write(good.first_chunk_mut().unwrap());
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(&good, there).unwrap();
        let mut other = good;
        other[15] = 5;
        for bytes in [&good[..5], &other, &[0xff; 100], &[]] {
            b.socket.send_to(bytes, there).unwrap();
        }
        b.socket.send_to(&good, there).unwrap();
        let mut pool = Pool::new(Region::heap(Pool::region_length(8, 256)), 8, 256, 0);
        let mut burst = Burst::new();
        a.receive(0, &mut pool, &mut burst);
        assert_eq!(burst.len(), 1);
        assert_eq!(burst[0].frame(), &good[FRONT..]);
        assert_eq!(
            (a.counters().received_packets, a.counters().refused_packets),
            (1, 5)
        );
        burst.drain(..).for_each(|buffer| pool.give(buffer));
        assert_eq!(pool.free(), 8);
    }
}
