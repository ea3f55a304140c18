//! The whole tool in one process: the output of a cluster of switches and runtimes on captures,
//! compared with other programs' results.
//!
//! ```text
//!   configuration ──► run::start ──► threads, as `flowkeep run` has them ──► outcome, event log, what was sent
//!                                                                              └──► compared with an independent oracle
//! ```
//!
//! | module | oracle |
//! |---|---|
//! | `flow_tables` | nDPI's, Arkime's and Zeek's flow tables |
//! | `firewall` | a Linux kernel's verdicts |
//! | `nat` | the capture itself, mirrored here; tshark for checksums |
//! | `endpoints` | RFC 4787: mapping, filtering, hairpinning |
//! | `forward` | a Linux kernel's tables, in a namespace |
//! | `fragments` | etherparse, and the datagrams that PcapPlusPlus puts together |
//! | `tagged` | the packets made for it: VLAN tags, fragments, minutes between |
//! | `watching` | the packets that came out, and the figures |
//! | `filters` | tcpdump |
//! | `moving` | nDPI's flow tables, while all flows move |
//! | `egress` | which ports a configuration says packets leave by |
//! | `host_limits` | plain sums of what each host has opened |
//! | `scaling` | which endpoint each host had before |
//! | `objects` | the function's own counters, which are no objects |
//! | `reload` | the rules before and behind a change; the sums |
//! | `conservation` | the sum: in + made = out + held + dropped, and nothing left after a stop |
//!
//! Invariant: every run in here adds up, holds nothing afterwards and loses no event line
//! ([`cluster::Cluster::run`]).
//!
//! Not here: the command line (`tests/command.rs`), functions by themselves (their own crate's
//! tests).

mod cluster;
mod conservation;
mod egress;
mod endpoints;
mod filters;
mod firewall;
mod flow_tables;
mod forward;
mod fragments;
mod frames;
mod host_limits;
mod moving;
mod nat;
mod objects;
mod reload;
mod runtimes;
mod scaling;
mod tagged;
mod watching;

/// Independent flow tables, and the comparison with them.
#[path = "../../../functions/tests/flow_monitor/manifest.rs"]
mod manifest;
#[path = "../../../functions/tests/flow_monitor/tables/mod.rs"]
mod tables;
