//! A port that answers as the outside world would: a packet transmitted to it comes back with its
//! ends swapped.
//!
//! Theory of operation. The swap is made on the packet as it left the chain, so an answer goes to
//! the *translated* address: NAT runs on captures and generated traffic without a network. The
//! buffer itself comes back; nothing is copied.
//!
//! ```text
//!   inside host            chain with NAT                     reflector
//!   10.0.0.5:4000 ► 192.0.2.9:80 ─► 203.0.113.1:50000 ► 192.0.2.9:80 ─┐
//!   10.0.0.5:4000 ◄ 192.0.2.9:80 ◄─ 203.0.113.1:50000 ◄ 192.0.2.9:80 ◄┘
//! ```
//!
//! Two ways to answer ([`Mode`]):
//!
//! - `mirror` (`swap`): MAC addresses, IP addresses and ports are swapped, everything else stays
//!   byte for byte. A checksum does not notice that two words it covers changed places, so none is
//!   touched (but SCTP's CRC).
//! - `answer` (`answer`): a host's answer, made from the packet alone: SYN gets SYN,ACK; data gets
//!   ACK; FIN gets FIN,ACK; echo requests get replies; UDP comes back; RST, bare ACK and ICMP
//!   errors get nothing.
//!
//! The answer has its packet's timestamp: the outside world is infinitely near.
//!
//! Invariants: sent + unsent = transmitted, received + waiting = answered (tests). The queue is
//! bounded; a packet that does not fit is unsent. No parse error, whatever is transmitted, does
//! more than leave a packet without an answer.
//!
//! Not here: retransmission, congestion, delay; an outside that opens connections by itself.

mod answer;
mod swap;

#[cfg(test)]
mod tests;

pub use answer::first_sequence;

use runtime::env::{Burst, Port, PortCounters};
use wire::packet::{Kind, PacketList, flag};
use wire::{Packet, Pool};

/// How a packet is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The packet itself, its ends swapped.
    #[default]
    Mirror,
    /// A host's answer.
    Answer,
}

/// How a reflector works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectSettings {
    /// How a packet is answered; default: mirrored.
    pub mode: Mode,
    /// Answers that can wait to be received, in packets; default 4096, the customary receive ring
    /// of a fast interface.
    pub queue: usize,
}

impl Default for ReflectSettings {
    fn default() -> Self {
        ReflectSettings {
            mode: Mode::Mirror,
            queue: 4096,
        }
    }
}

/// A port whose outside answers.
pub struct ReflectPort {
    settings: ReflectSettings,
    waiting: PacketList,
    counters: PortCounters,
}

impl ReflectPort {
    /// A reflector.
    pub fn new(settings: ReflectSettings) -> Self {
        ReflectPort {
            settings,
            waiting: PacketList::new(),
            counters: PortCounters::default(),
        }
    }

    /// Makes the packet its own answer; `false` if it gets none.
    #[inline]
    fn answer(&self, packet: &mut Packet) -> bool {
        if !packet.has(flag::PARSED) && wire::parse(packet).is_err() {
            return false;
        }
        let answered = match self.settings.mode {
            Mode::Mirror => {
                swap::swap_ends(packet);
                true
            }
            Mode::Answer => answer::answer(packet),
        };
        // The answer is not parsed, and carries no marks of the chain that its packet went through.
        packet.clear_flags(u16::MAX);
        answered
    }
}

impl Port for ReflectPort {
    fn receive(&mut self, _now: u64, _pool: &mut Pool, burst: &mut Burst) {
        while !burst.is_full() {
            let Some(packet) = self.waiting.pop() else { return };
            self.counters.received_packets += 1;
            self.counters.received_bytes += u64::from(packet.wire_length());
            burst.push(packet);
        }
    }

    fn transmit(&mut self, _now: u64, pool: &mut Pool, burst: &mut Burst) {
        let mut rest = Burst::new();
        for mut packet in burst.drain(..) {
            if packet.kind() != Kind::Data {
                rest.push(packet);
                continue;
            }
            if self.waiting.len() >= self.settings.queue {
                self.counters.unsent_packets += 1;
                rest.push(packet);
                continue;
            }
            self.counters.sent_packets += 1;
            self.counters.sent_bytes += u64::from(packet.wire_length());
            if self.answer(&mut packet) {
                self.waiting.push(packet);
            } else {
                rest.push(packet);
            }
        }
        crate::consume(pool, &mut rest, |_| {});
        *burst = rest;
    }

    fn finished(&self) -> bool {
        self.waiting.is_empty()
    }

    fn answers(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }

    fn room(&self) -> usize {
        self.settings.queue.saturating_sub(self.waiting.len())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
