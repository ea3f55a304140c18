//! The runtime: workers that run flow actors, and switches that spread flows over them.
//!
//! No thread, no system call, no clock and no global: a worker's caller hands it ports, memory and
//! the time, so the binary, the tests and the simulator run the same code.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod chain;
pub mod env;
pub mod flows;
pub mod fragments;
pub mod fused;
mod hold;

pub mod members;
pub mod message;
pub mod microthread;
pub mod mobility;
pub mod objects;
mod outbox;
mod parts;

pub mod peer;
mod record;
mod replica;
pub mod rules;
mod runner;
mod settings;
pub mod stage;
pub mod stats;
pub mod switch;

pub mod watch;
pub mod worker;

#[cfg(test)]
mod tests;

pub use env::{AttachError, BURST, Burst, Port, PortCounters};
pub use flows::{actor, group, owners, table, timer};
pub use replica::policy as replication;
pub use worker::{Runtime, Settings};
