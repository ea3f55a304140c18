//! A packet's way: where it came in, where it is to leave, how often it has been turned.
//!
//! Ports are numbered over a whole cluster. A packet leaves by the port that a function named, or
//! else by that of its side.

use super::{Packet, Side};

impl Packet {
    /// The side it came in from.
    #[inline]
    pub fn side(&self) -> Side {
        self.notes.side
    }

    /// Sets the side it came in from.
    #[inline]
    pub fn set_side(&mut self, side: Side) {
        self.notes.side = side;
    }

    /// The side it leaves to, once processed.
    #[inline]
    pub fn exit(&self) -> Side {
        self.notes.exit
    }

    /// Sets the side it leaves to.
    #[inline]
    pub fn set_exit(&mut self, side: Side) {
        self.notes.exit = side;
    }

    /// Number of the port it came in at, among all ports of a cluster.
    #[inline]
    pub fn port(&self) -> u8 {
        self.notes.port
    }

    /// Sets the number of the port it came in at.
    #[inline]
    pub fn set_port(&mut self, port: u8) {
        self.notes.port = port;
    }

    /// How often the packet was hairpinned: 0 or 1.
    #[inline]
    pub fn hairpins(&self) -> u8 {
        self.notes.hairpins
    }

    /// Forgets hairpins: the packet has just come in.
    #[inline]
    pub fn clear_hairpins(&mut self) {
        self.notes.hairpins = 0;
    }

    /// Counts a hairpin.
    #[inline]
    pub fn add_hairpin(&mut self) {
        self.notes.hairpins = self.notes.hairpins.saturating_add(1);
    }

    /// Number of the port it leaves by, if a function said so; otherwise its side decides.
    #[inline]
    pub fn egress(&self) -> Option<u8> {
        self.notes.egress.checked_sub(1)
    }

    /// Says by which port it leaves, by the number of [`Packet::port`]; below 255.
    #[inline]
    pub fn set_egress(&mut self, port: u8) {
        self.notes.egress = port.saturating_add(1);
    }
}
