//! Stateful network functions whose flows survive: the tool, and the library behind it.
//!
//! A binary is a registry of functions and one call: see [`mod@registry`]. Everything a person meets is here: the
//! configuration ([`config`]), the commands ([`cli`]), the control socket ([`control`]), the figures ([`metrics`],
//! [`report`]).
//!
//! Not here: what happens to a packet (`flowkeep-runtime`), and where packets come from (`flowkeep-adapters`).

pub mod bench;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod control;
pub mod generate;
pub mod metrics;
pub mod registry;
pub mod report;
pub mod run;
pub mod signals;

use std::process::ExitCode;

pub use nf;

/// The whole tool, with these functions: reads the command line and does what it says.
pub fn main(registry: registry::Registry) -> ExitCode {
    cli::main(std::env::args_os(), &registry)
}

/// The functions that come with Flowkeep.
pub fn shipped() -> registry::Registry {
    registry![
        functions::firewall::Firewall,
        functions::flow_monitor::FlowMonitor,
        functions::load_balancer::LoadBalancer,
        functions::nat::Nat,
    ]
}
