//! Stateful network functions whose flows survive: the tool, and the library behind it.
//!
//! A binary is a registry of functions and one call: see [`registry`]. Everything a person meets is here: the
//! configuration ([`config`]), the commands, the control socket, the metrics.
//!
//! Not here: what happens to a packet (`flowkeep-runtime`), and where packets come from (`flowkeep-adapters`).

pub mod bench;
pub mod config;
pub mod new;
pub mod registry;

pub use nf;
