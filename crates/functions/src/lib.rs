//! The network functions that come with Flowkeep.

pub mod nat;
