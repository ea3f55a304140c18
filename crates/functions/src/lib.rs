//! The network functions that come with Flowkeep: a folder each, all with the same file names.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Tests ask how often packets made a function allocate.
#[cfg(test)]
#[global_allocator]
static COUNTING: testkit::CountingAllocator = testkit::CountingAllocator;

mod budget;
pub mod counter;
pub mod firewall;
pub mod flow_monitor;
pub mod forward;
pub mod host_limits;
pub mod http_parser;
pub mod ids;
mod json;
pub mod load_balancer;
mod marks;
pub mod nat;
pub mod stream;
