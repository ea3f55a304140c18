//! How channel frames travel between processes and hosts: the bytes in front of them.
//!
//! | link | in front | for |
//! |---|---|---|
//! | [`ether`] | 14 bytes: an Ethernet header with an EtherType of our own | one network segment, no overhead |
//! | [`geneve`] | 16 bytes in UDP: Geneve with one option | routed networks and clouds |
//!
//! Both carry the same bytes ([`crate::channel::wire`]), and add no more than their sender and
//! receiver: frames are judged by the channel, which knows keys and sessions. A link between
//! workers of one process needs nothing in front.
//!
//! Not here: sockets, addresses of peers, the IP and UDP headers that the kernel or a port writes.

pub mod ether;
pub mod geneve;

/// IEEE 802's first EtherType for local experiments: channel frames, on Ethernet and as what Geneve
/// carries.
pub const ETHERTYPE: u16 = 0x88b5;

/// Why bytes are no frame of a link's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotOurs {
    /// Shorter than what stands in front.
    Short,
    /// Of another version.
    Version,
    /// Carries something else.
    Protocol,
    /// Of another network (Geneve's identifier).
    Network,
    /// Options that end beyond their end, or ours is missing or malformed.
    Options,
    /// An option that must be understood and is not.
    Critical,
}

impl NotOurs {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            NotOurs::Short => "short",
            NotOurs::Version => "version",
            NotOurs::Protocol => "protocol",
            NotOurs::Network => "network",
            NotOurs::Options => "options",
            NotOurs::Critical => "critical",
        }
    }
}
