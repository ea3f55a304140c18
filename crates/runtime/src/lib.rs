//! The runtime: workers that run flow actors, and switches that spread flows over them.
//!
//! No thread, no system call, no clock and no global: whoever drives a worker hands it ports, memory and the time, so
//! the binary, the tests and the simulator run the same code.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod env;
