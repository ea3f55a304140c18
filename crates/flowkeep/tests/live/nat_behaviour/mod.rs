//! NAT as a host on either side of it sees it: the requirements of RFC 4787, 5382, 5508 and 7857,
//! one by one, of a running `flowkeep run` with `nat` and `forward`.
//!
//! ```text
//!   inside wire ═══ left   gateway   right ═══ outside wire
//!   any 10.0.1.x    .254  (flowkeep)  203.0.113.254    any address: 203.0.113.1 is the next hop to all others
//!                         pool 203.0.113.64
//! ```
//!
//! A wire is a packet socket in a namespace that has no addresses: it sends and sees IP packets as
//! they are, for as many hosts as a test wants, and no kernel answers for them. `packets` makes and
//! judges the packets; it shares no code with the cluster. A packet that must not pass is waited
//! for and is a counted drop of the cluster's, by name, when it ends.
//!
//! The table of requirements with their verdicts is `docs/nat-behaviour.md`; a test in
//! `documents.rs` sees to it that each test it names is there, and that each requirement has a row.
//!
//! Not here: timeouts of hours, which units of NAT's own pin; many real connections at a time
//! (`chain`).

mod icmp;
mod packets;
mod rig;
mod tcp;
mod udp;
mod updates;
mod whole;
