//! To be filled.
extern crate alloc;

pub mod firewall;
