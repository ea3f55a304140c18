//! Bytes on the wire: packets and their buffers, link layers, headers, checksums, addresses and
//! flow keys.
//!
//! Everything here is plain data and checked access to it. Whatever comes from the network is
//! hostile: [`parse::parse`] looks at every length once and records where the headers are; the
//! accessors of [`Packet`] then work from those records.
//!
//! Not here: the meaning of a flow to a function (`flowkeep-nf`), any table, any clock.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "planted"))]
extern crate std;

pub mod addr;
pub mod answer;
pub mod checksum;
pub mod fragment;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod integrity;
pub mod key;
pub mod link;
pub mod memory;
pub mod packet;
pub mod parse;
pub mod planted;
pub mod rewrite;
pub mod tcp;
#[cfg(test)]
mod testing;

pub use addr::{Addr, Endpoint, Prefix};
pub use key::{FlowKey, HashSeed, Orientation};
pub use link::LinkType;
pub use packet::{Packet, PacketBox, PacketList, Pool};
pub use parse::{ParseError, parse};

/// IP protocol numbers that Flowkeep knows by name (IANA).
pub mod protocol {
    #![allow(missing_docs, reason = "the names are the IANA names")]
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const SCTP: u8 = 132;
    pub const UDPLITE: u8 = 136;
}
