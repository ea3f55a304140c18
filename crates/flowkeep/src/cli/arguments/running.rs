//! Processes: `run`, `node`, `switch`, `stop`; commands to a function; new functions.

use crate::cli::reach::Asking;
use crate::cli::{Failure, newcomer};
use crate::log::{self, Level};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use nf::Period;
use std::path::PathBuf;

/// Run a cluster in this process.
#[derive(Args, Debug)]
#[command(after_help = "\
Without a configuration, the flow monitor runs over the input and writes a record per flow to standard output. Options given here count more than \
the configuration; --input and --output are its first port's.

Ends when all inputs have ended, or on SIGINT, SIGTERM or `flowkeep stop`: then packets inside are finished and records are written. A second \
signal ends it at once.

Examples:
  flowkeep run --input pcap:in.pcap
  flowkeep run gateway.toml --input pcap:in.pcap --output pcap:out.pcap --json
  flowkeep run gateway.toml --runtimes 4 --for 1m")]
pub(in crate::cli) struct Run {
    /// The configuration
    pub(in crate::cli) config: Option<PathBuf>,
    /// Where packets come from, like pcap:in.pcap
    #[arg(long, value_name = "URI")]
    pub(in crate::cli) input: Option<String>,
    /// Where packets go, like pcap:out.pcap
    #[arg(long, value_name = "URI")]
    pub(in crate::cli) output: Option<String>,
    /// Workers that run flows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(in crate::cli) runtimes: Option<u16>,
    /// Where to write events (flow records, mappings); - is standard output
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    pub(in crate::cli) events: Option<String>,
    /// End gracefully after this time, like 90s or 1h30m
    #[arg(long = "for", value_name = "TIME")]
    pub(in crate::cli) stop_after: Option<Period>,
    /// Path of the control socket; else what the environment variable FLOWKEEP_SOCKET says
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) socket: Option<PathBuf>,
    /// End with one JSON object instead of a table
    #[arg(long)]
    pub(in crate::cli) json: bool,
    #[command(flatten)]
    pub(in crate::cli) said: Said,
}

/// Which lines a process says on standard error.
#[derive(Args, Debug)]
pub(in crate::cli) struct Said {
    /// Lines on standard error: of this level, and lines that matter more; else what the
    /// environment variable FLOWKEEP_LOG says, else info
    #[arg(long, value_name = "LEVEL")]
    pub(in crate::cli) log: Option<Level>,
}

impl Said {
    /// From now on, in this process.
    pub(in crate::cli) fn begin(&self) -> Result<(), Failure> {
        let environment = std::env::var_os(log::VARIABLE).map(|text| text.to_string_lossy().into_owned());
        let level = log::level_of(self.log, environment.as_deref()).map_err(Failure::usage)?;
        log::set(level);
        Ok(())
    }
}

/// Run one member of a cluster of several processes.
#[derive(Args, Debug)]
#[command(after_help = "\
The configuration lists the members ([[member]]); all of them read the same one. They may be started in any order: members that are not there yet \
are waited for, and the others go on without members that are gone.

A node that is asked to end (SIGINT, SIGTERM, `flowkeep stop`) moves its flows to other nodes first. SIGHUP reads the keys again.

Examples:
  flowkeep switch cluster.toml --member front
  flowkeep node cluster.toml --member left")]
pub(in crate::cli) struct MemberWords {
    /// The configuration
    pub(in crate::cli) config: PathBuf,
    /// Which of its members this is
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) member: String,
    /// Where to write events (flow records, mappings); - is standard output
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    pub(in crate::cli) events: Option<String>,
    /// End gracefully after this time, like 90s or 1h30m
    #[arg(long = "for", value_name = "TIME")]
    pub(in crate::cli) stop_after: Option<Period>,
    /// Path of the control socket; else what the environment variable FLOWKEEP_SOCKET says
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) socket: Option<PathBuf>,
    /// End with one JSON object instead of a table
    #[arg(long)]
    pub(in crate::cli) json: bool,
    /// Be a member by the coordinator's views: where coordinators may be. All members of a cluster
    /// join, or none
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',')]
    pub(in crate::cli) join: Vec<String>,
    /// The word by which this process gets its certificate (flowkeep cluster token), the first time
    #[arg(long, value_name = "WORD", requires = "join")]
    pub(in crate::cli) token: Option<String>,
    /// Where the certificate is, or goes: ca.pem, MEMBER.pem, MEMBER.key
    #[arg(long, value_name = "DIRECTORY", requires = "join")]
    pub(in crate::cli) identity: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) said: Said,
}

/// Run one member's runtimes.
#[derive(Args, Debug)]
pub(in crate::cli) struct NodeWords {
    #[command(flatten)]
    pub(in crate::cli) member: MemberWords,
    #[command(flatten)]
    pub(in crate::cli) newcomer: newcomer::NewcomerWords,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct Ending {
    /// How long its end may take; 0s does not wait
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(in crate::cli) wait: Period,
    #[command(flatten)]
    pub(in crate::cli) asking: Asking,
}

/// Say something to a function of the running cluster.
#[derive(Args, Debug)]
#[command(after_help = "\
A function's words are in its documentation. Each runtime's instance answers. The tables of all \
runtimes are merged into one; with --json each runtime's rows are in it, too. Where all answer \
alike \
in words, the answer is printed once.

Examples:
  flowkeep function load_balancer backends
  flowkeep function firewall rules 10 --json
  flowkeep function load_balancer backend web1 drain
  flowkeep function host_limits hosts 10")]
pub(in crate::cli) struct FunctionVerb {
    /// The function, as chains name it
    pub(in crate::cli) name: String,
    /// The words to say
    pub(in crate::cli) words: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) asking: Asking,
}

/// Begin a network function of your own.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  flowkeep new my-counter && cd my-counter && cargo test")]
pub(in crate::cli) struct New {
    /// Its name: lower case, with - or _
    pub(in crate::cli) name: String,
    /// The work that it begins with
    #[arg(long, value_enum, default_value_t)]
    pub(in crate::cli) kind: crate::new::Kind,
    /// Where to make its directory, which has the name; by default here
    #[arg(long, value_name = "DIRECTORY")]
    pub(in crate::cli) directory: Option<PathBuf>,
}
