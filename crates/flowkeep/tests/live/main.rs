//! Real clients and servers over real ports, in network namespaces of this test's own.
//!
//! Everything here needs root, `ip`, and the servers and clients that each test names; a line that
//! begins with `not run:` says what is missing, and such a test does not count as passed. A test
//! that tried nothing fails.

mod bench;
mod bridge;
mod chain;
mod cluster;
mod floods;
mod frames;
mod ftp;
mod impair;
mod ipv6;
mod kernel;
mod lab;
mod log;
mod machine;
mod moving;
mod mtu;
mod nat_behaviour;
mod nat_settings;
mod network;
mod peers;
mod refusals;
mod reload;
mod sip;
mod site;
mod soak;
mod ssh;
mod unlisted;
