//! `bench`, `sim`, `lab`: measurements, the simulator, networks of the machine's own.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use nf::Period;
use std::path::PathBuf;

/// By which kind of port the gateway is connected.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Wire {
    /// Packet sockets
    Afpacket,
    /// AF_XDP
    Afxdp,
}

impl Wire {
    pub(in crate::cli) fn scheme(self) -> &'static str {
        match self {
            Wire::Afpacket => "afpacket",
            Wire::Afxdp => "afxdp",
        }
    }
}

#[derive(Subcommand, Debug)]
pub(in crate::cli) enum LabVerb {
    /// Build a lab, and keep it until Ctrl-C or `flowkeep lab down`
    #[command(after_help = "Example:\n  flowkeep lab up")]
    Up {
        /// By which kind of port
        #[arg(long, value_enum, value_name = "KIND", default_value_t = Wire::Afpacket)]
        port: Wire,
        /// Take it down after this time, like 90s or 1h30m
        #[arg(long = "for", value_name = "TIME")]
        stop_after: Option<Period>,
    },
    /// Build a lab, send ping, downloads and streams through firewall, NAT and load balancer, and
    /// take it down
    #[command(after_help = "\
Exit codes: 0 everything passed; 1 something did not.

Examples:
  flowkeep lab demo
  flowkeep lab demo --port afxdp --json")]
    Demo {
        /// By which kind of port
        #[arg(long, value_enum, value_name = "KIND", default_value_t = Wire::Afpacket)]
        port: Wire,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take all labs of this machine down, and remove the remains of killed ones
    #[command(after_help = "Example:\n  flowkeep lab down")]
    Down,
}

/// The scenarios of `bench`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// firewall, NAT and load balancer on one core
    Chain,
    /// Routing groups of flows to runtimes
    Switch,
    /// The cost of a new flow
    Launch,
    /// Calling a function through the erased interface
    Stage,
    /// Messages between two workers
    Message,
    /// Flows moved between two runtimes
    Migrate,
    /// Delay and loss of packets while a cluster scales out and in
    Scale,
    /// Objects that runtimes share
    Objects,
    /// Copies of flows at another runtime
    Replicate,
    /// Flows whose runtime is killed
    Recover,
    /// Counts that are kept in stores
    Store,
    /// The cost of leases and views for a packet, beside workers without a coordinator
    Leases,
    /// Port, switch, runtime, switch, port: rate and delay
    System,
    /// The papers' figures and ours in one table, in minutes
    Papers,
    /// On veth pairs, against the kernel's nftables (root)
    Live,
}

/// Size of memory pages.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 2 MiB, as far as there are any
    Large,
    /// 4 KiB
    Small,
}

/// Measure, compared with a baseline and a floor in the same run.
#[derive(Args, Debug)]
#[command(after_help = "\
Figures mean something on an idle machine, in a release build, and compared within one run.

`live` makes namespaces and veth pairs of its own, and removes them.

Examples:
  flowkeep bench papers --runs 3
  flowkeep bench chain --flows 10000,100000 --json
  flowkeep bench chain --flows 10000,100000 --plot chain.svg
  flowkeep bench live --flows 10000 --loads 200000,400000,0")]
pub(in crate::cli) struct Bench {
    /// The scenario to measure
    #[arg(value_enum)]
    pub(in crate::cli) scenario: Scenario,
    /// Numbers of flows; by default 10000,100000,1000000; 1000,10000 with `live`, 50000 with
    /// `store`, 10000,100000 with `replicate` and `recover`, 10000 with `objects`,
    /// 500,1000,100000,200000 with `migrate`, 8000,100000 with `scale`
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(in crate::cli) flows: Vec<u32>,
    /// How often each case is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(in crate::cli) runs: u16,
    /// Which pages tables and flows lie in: large ones (2 MiB) or small ones (4 KiB)
    #[arg(long, value_enum, value_name = "SIZE", default_value_t = PageSize::Large)]
    pub(in crate::cli) pages: PageSize,
    /// Print one JSON object, raw samples included
    #[arg(long)]
    pub(in crate::cli) json: bool,
    /// Draw the medians, each between its smallest and largest run, into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) plot: Option<PathBuf>,
    /// Of `live`: by which kind of port
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Wire::Afxdp)]
    pub(in crate::cli) port: Wire,
    /// Of `live`: packets per second to offer, both directions together; 0 is as fast as can be
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_200_000, 1_400_000, 0])]
    pub(in crate::cli) loads: Vec<u32>,
    /// Of `live`: how long a load is kept up, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=10_000))]
    pub(in crate::cli) moment: u32,
}

impl Bench {
    pub(in crate::cli) fn flows(&self) -> Vec<u32> {
        match (&self.flows[..], self.scenario) {
            ([], Scenario::Live) => vec![1000, 10_000],
            ([], Scenario::Replicate | Scenario::Recover) => vec![10_000, 100_000],
            ([], Scenario::Store) => vec![50_000],
            ([], Scenario::Objects) => vec![10_000],
            ([], Scenario::Scale) => vec![8000, 100_000],
            ([], Scenario::Migrate) => vec![500, 1000, 100_000, 200_000],
            ([], _) => vec![10_000, 100_000, 1_000_000],
            (flows, _) => flows.to_vec(),
        }
    }
}

/// Run the workers in a simulated network with faults, and check its invariants.
#[derive(Args, Debug)]
#[command(after_help = "\
Each seed is a cluster, hosts around it and faults, in one thread, the same each time. A failure is made small and shown, with the command that \
repeats it.

Exit codes: 0 nothing found; 1 something found; 2 wrong usage.

Examples:
  flowkeep sim --seeds 10000
  flowkeep sim --seeds 1000 --from 5000 --scenario nat --json
  flowkeep sim --scenario gateway --seed 4711")]
pub(in crate::cli) struct Sim {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "seed")]
    pub(in crate::cli) seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with = "seed")]
    pub(in crate::cli) from: u64,
    /// This seed alone
    #[arg(long)]
    pub(in crate::cli) seed: Option<u64>,
    /// Only this scenario; by default each seed says which
    #[arg(
        long,
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(sim::Scenario::ALL.map(sim::Scenario::name))
    )]
    pub(in crate::cli) scenario: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(in crate::cli) json: bool,
}
