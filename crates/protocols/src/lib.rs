//! The protocols between workers, as pure state machines.
//!
//! Each takes the time and an input, and has one queue of outputs: `handle(now, input)`, `poll() ->
//! output`, `next_timeout()`. No thread, no system call, no clock and no global, so the worker and
//! the simulator drive the same code, and a run is a function of its inputs. State that is moved or
//! copied is bytes here; the caller that made them reads them.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod channel;
pub mod election;
pub mod lending;
pub mod link;
pub mod membership;
pub mod objects;
pub mod ownership;
