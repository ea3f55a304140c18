//! A worker's needs from outside: ports.
//!
//! A port is where bursts of packets come from and go to: a capture, a network interface, a
//! generator, or the link to another worker. Buffers move by ownership; a port that is done with
//! one gives it to the pool it is handed, if the buffer is that pool's ([`give_or_keep`] says), and
//! a link passes foreign ones home.

use alloc::string::String;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use wire::packet::FRAME_MAX;
use wire::{PacketBox, Pool, Prefix};

/// The most packets handled at a time.
pub const BURST: usize = 32;

/// Some packets on their way.
pub type Burst = ArrayVec<PacketBox, BURST>;

/// Packets and bytes that passed a port, and what it could not pass.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received, link headers included, as on the wire.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, link headers included.
    pub sent_bytes: u64,
    /// Frames that came in but could not be made packets (too long for a buffer, cut off file):
    /// never counted as received.
    pub refused_packets: u64,
    /// Packets to be sent that were lost at the port (queue full, write error).
    pub unsent_packets: u64,
    /// Frames that the kernel or the device lost before the port could have them (its queue was
    /// full): never counted as received.
    pub lost_packets: u64,
    /// Requests for claimed addresses that the port answered by itself: counted neither as received
    /// nor as sent.
    pub answered_packets: u64,
}

/// Why a port cannot work with a pool's buffers, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError(pub String);

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for AttachError {}

/// The worker at the other end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LinkTo {
    /// A switch, by its number.
    Switch(u16),
    /// A runtime, by its number.
    Runtime(u16),
}

/// Where packets come from and go to.
pub trait Port {
    /// The longest frame that it may receive, in bytes, so that buffers can be made for it.
    fn frame_max(&self) -> usize {
        FRAME_MAX
    }

    /// Called once, before the first burst, with the pool that all bursts will come with. A port
    /// whose device writes into the pool's memory by itself tells it where that is, and takes
    /// buffers for packets to be received.
    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        let _ = pool;
        Ok(())
    }

    /// Has the port answer each host that asks for the link address of one of these. No host on the
    /// link has them, and packets for them shall come here. Each call replaces the prefixes of the
    /// call before; it comes before the first burst, or between bursts. A port that is on no link
    /// answers no host.
    fn claim(&mut self, addresses: &[Prefix]) -> Result<(), AttachError> {
        let _ = addresses;
        Ok(())
    }

    /// Goes on with queued buffers, and gives buffers that the device is done with back to `pool`.
    /// Its caller calls it again and again, also when the port is not read any more. Never blocks.
    fn reap_transmitted(&mut self, pool: &mut Pool) {
        let _ = pool;
    }

    /// How many of the pool's buffers the port keeps ready for what it will receive: they are not
    /// packets, and do not come home before the port goes.
    fn reserved(&self) -> usize {
        0
    }

    /// Appends received packets to `burst`, at most its remaining capacity, in buffers taken from
    /// `pool`. Sets each packet's frame, link type, wire length and timestamp; `now` is the
    /// worker's clock in nanoseconds. Never blocks.
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst);

    /// Takes all packets of `burst`: each is sent, queued, or counted as unsent. A buffer that is
    /// done with goes to `pool` if it came from there; a foreign one is left in `burst`, for the
    /// caller to send home ([`dispose`] does both). A link hands all of them over, empty ones too.
    /// Never blocks.
    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst);

    /// Whether nothing more will ever be received, unless something is transmitted first.
    fn finished(&self) -> bool {
        false
    }

    /// Whether all packets received here answer packets transmitted here: such a port is read to
    /// its end when the others are read no more.
    fn answers(&self) -> bool {
        false
    }

    /// Whether the port waits for its reader instead of losing packets: a capture or a generator at
    /// full speed does, a network interface does not.
    fn waits(&self) -> bool {
        false
    }

    /// How many packets [`Port::transmit`] can take just now without loss.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// When the next packet will be there, in nanoseconds, if the port knows; so that an idle
    /// worker can sleep.
    fn next_at(&self) -> Option<u64> {
        None
    }

    /// By which of the system's descriptors, once something is to be read from them, the port says
    /// that it has received something; empty if nothing will ever be received. `None`: it does not
    /// say.
    fn wakes_by(&self) -> Option<Vec<i32>> {
        None
    }

    /// Of a link between workers: the number of its session with the worker at the other end. Each
    /// session has another number; 0 stands for no worker. It changes in [`Port::receive`] only;
    /// the burst of that call came from the worker of the number before. Frames transmitted while
    /// the number is 0 are lost and counted. Frames that the worker before was sent, or had in
    /// hand, are lost.
    fn session(&self) -> u64 {
        1
    }

    /// Of a link between workers: whether a frame transmitted here may be there later than a frame
    /// transmitted afterwards on another link, since the other end is another process. A ring's is
    /// there before.
    fn is_apart(&self) -> bool {
        false
    }

    /// Of a link between workers: whether no worker has been at the other end since
    /// [`Port::session`] became 0 and nothing is on the way from there, as far as that can be told
    /// at once: then there is no need to receive.
    fn is_still(&self) -> bool {
        false
    }

    /// Of a link between workers: whether the other end's clock is another one, whose times mean
    /// nothing here. Packets received over such a link have the time at which they were received.
    fn has_other_clock(&self) -> bool {
        false
    }

    /// Writes out buffered packets.
    fn flush(&mut self) {}

    /// The figures so far.
    fn counters(&self) -> PortCounters;
}

impl<P: Port + ?Sized> Port for alloc::boxed::Box<P> {
    fn frame_max(&self) -> usize {
        (**self).frame_max()
    }
    fn attach(&mut self, pool: &mut Pool) -> Result<(), AttachError> {
        (**self).attach(pool)
    }
    fn claim(&mut self, addresses: &[Prefix]) -> Result<(), AttachError> {
        (**self).claim(addresses)
    }
    fn reap_transmitted(&mut self, pool: &mut Pool) {
        (**self).reap_transmitted(pool);
    }
    fn reserved(&self) -> usize {
        (**self).reserved()
    }
    fn receive(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        (**self).receive(now, pool, burst);
    }
    fn transmit(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) {
        (**self).transmit(now, pool, burst);
    }
    fn finished(&self) -> bool {
        (**self).finished()
    }
    fn answers(&self) -> bool {
        (**self).answers()
    }
    fn waits(&self) -> bool {
        (**self).waits()
    }
    fn room(&self) -> usize {
        (**self).room()
    }
    fn next_at(&self) -> Option<u64> {
        (**self).next_at()
    }
    fn wakes_by(&self) -> Option<Vec<i32>> {
        (**self).wakes_by()
    }
    fn session(&self) -> u64 {
        (**self).session()
    }
    fn is_apart(&self) -> bool {
        (**self).is_apart()
    }
    #[inline]
    fn is_still(&self) -> bool {
        (**self).is_still()
    }
    fn has_other_clock(&self) -> bool {
        (**self).has_other_clock()
    }
    fn flush(&mut self) {
        (**self).flush();
    }
    fn counters(&self) -> PortCounters {
        (**self).counters()
    }
}

/// Gives the buffers of a burst that a port is done with to `pool`, and leaves foreign ones in it.
pub fn dispose(pool: &mut Pool, burst: &mut Burst) {
    let mut foreign = Burst::new();
    for packet in burst.drain(..) {
        if let Some(packet) = give_or_keep(pool, packet) {
            foreign.push(packet);
        }
    }
    *burst = foreign;
}

/// Gives a buffer to `pool` if it came from there; otherwise hands it back.
#[must_use = "a foreign buffer must still go home"]
pub fn give_or_keep(pool: &mut Pool, packet: PacketBox) -> Option<PacketBox> {
    if packet.origin() == pool.origin() {
        pool.give(packet);
        None
    } else {
        Some(packet)
    }
}
