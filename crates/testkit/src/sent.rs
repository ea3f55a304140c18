//! Packets as a test looks at them: copies in buffers of their own, and in words.
//!
//! # Theory of operation
//! A buffer of the runtime's pool goes back when its packet has left, so a packet that left is
//! copied first, notes included: a [`Sent`] answers whatever a [`Packet`] does.
//!
//! Not here: which step a packet belongs to (`outcome`).

use nf::{Packet, Side};
use std::fmt::{self, Display};
use std::ops::Deref;
use std::time::Duration;
use wire::memory::Region;
use wire::packet::flag;
use wire::tcp::flags;
use wire::{LinkType, PacketBox, Pool};

/// A packet that left. It derefs to [`Packet`], for all that can be asked of one.
pub struct Sent {
    packet: Copied,
    /// Whether the function made it ([`nf::Cx::emit`]).
    pub emitted: bool,
    /// When it left, from the script's beginning.
    pub at: Duration,
}

impl Sent {
    pub(crate) fn new(packet: &Packet, emitted: bool, at: Duration) -> Self {
        Sent {
            packet: Copied::of(packet),
            emitted,
            at,
        }
    }
}

impl Deref for Sent {
    type Target = Packet;
    fn deref(&self) -> &Packet {
        &self.packet
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", side_name(self.exit()), Words(self))
    }
}

/// A copy of a packet in a buffer of its own.
pub(crate) struct Copied {
    pool: Pool,
    /// Present until the drop.
    packet: Option<PacketBox>,
}

impl Copied {
    pub(crate) fn of(packet: &Packet) -> Self {
        // Its start in the buffer stays, which may lie behind a header that was taken off.
        let mut copied = Self::room(packet.frame().len() + wire::packet::HEADROOM);
        let fits = copied.packet.as_mut().is_some_and(|copy| copy.copy_from(packet));
        assert!(fits, "the buffer was made long enough");
        copied
    }

    /// Of a frame that has not been received yet.
    pub(crate) fn of_frame(frame: &[u8], link: LinkType, side: Side) -> Self {
        let mut copied = Self::room(frame.len());
        if let Some(packet) = copied.packet.as_mut() {
            let fits = packet.set_frame(frame, link);
            assert!(fits, "the buffer was made long enough");
            packet.set_side(side);
            // A packet that cannot be parsed is described as such.
            let _ = wire::parse(packet);
        }
        copied
    }

    /// Changes the copy.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Packet) -> T) -> T {
        change(self.packet.as_mut().expect("it is there until the drop"))
    }

    fn room(length: usize) -> Self {
        let mut pool = Pool::new(Region::heap(Pool::region_length(1, length)), 1, length, 0);
        let packet = pool.take();
        Copied { pool, packet }
    }
}

impl Deref for Copied {
    type Target = Packet;
    fn deref(&self) -> &Packet {
        self.packet.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Some(packet) = self.packet.take() {
            self.pool.give(packet);
        }
    }
}

/// A packet in words: `tcp 10.0.0.1:1000 > 192.0.2.1:80 SYN, 3 bytes`.
pub(crate) struct Words<'a>(pub &'a Packet);

impl Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packet = self.0;
        if !packet.has(flag::PARSED) {
            return write!(
                f,
                "a frame of {} bytes that is no IP packet",
                packet.frame().len()
            );
        }
        let name = wire::key::protocol_name(packet.protocol());
        if packet.has(flag::ICMP_ERROR) {
            write!(
                f,
                "{name} error {} > {}",
                packet.source_addr(),
                packet.destination_addr()
            )?;
            if let Some(quoted) = wire::parse::quoted(packet) {
                let name = wire::key::protocol_name(quoted.protocol);
                write!(f, " about {name} {} > {}", quoted.source, quoted.destination)?;
            }
            return Ok(());
        }
        write!(f, "{name} {} > {}", packet.source(), packet.destination())?;
        if packet.vlan() != 0 {
            write!(f, " vlan {}", packet.vlan())?;
        }
        if let Some(tcp) = packet.tcp() {
            for (bit, word) in FLAGS {
                if tcp.flags() & bit != 0 {
                    write!(f, " {word}")?;
                }
            }
        }
        match packet.payload().len() {
            0 => Ok(()),
            length => write!(f, ", {length} bytes"),
        }
    }
}

const FLAGS: [(u8, &str); 8] = [
    (flags::SYN, "SYN"),
    (flags::FIN, "FIN"),
    (flags::RST, "RST"),
    (flags::PSH, "PSH"),
    (flags::ACK, "ACK"),
    (flags::URG, "URG"),
    (flags::ECE, "ECE"),
    (flags::CWR, "CWR"),
];

pub(crate) fn side_name(side: Side) -> &'static str {
    match side {
        Side::Inside => "inside ",
        Side::Outside => "outside",
    }
}
