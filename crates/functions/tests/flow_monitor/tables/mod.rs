//! Independent flow tables, and the comparison of the flow monitor's records with them.
//!
//! `records` reads JSON lines as the monitor writes them; `ndpi`, `arkime` and `zeek` each read one
//! kind of expected file and say where the records differ; `manifest` says how many of them there
//! are. None of them knows how the lines came to be.
//!
//! How the tables read a capture, which is how the monitor must: the IP header behind Ethernet,
//! VLAN tags and PPPoE makes the flow, and of several tags the innermost (nDPI, Zeek; Arkime looks
//! into tunnels); bytes are of the frame on the wire (nDPI, Arkime) or of the IP packet by its
//! length field (Zeek); an ICMP error is a packet between its own addresses, not one of the flow
//! that it quotes; a later fragment belongs to the flow of the first.

pub mod arkime;
pub mod ndpi;
pub mod records;
pub mod zeek;
