//! The network functions that come with Flowkeep: a folder each, all with the same file names.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod budget;
pub mod firewall;
pub mod flow_monitor;
pub mod forward;
pub mod load_balancer;
pub mod nat;
