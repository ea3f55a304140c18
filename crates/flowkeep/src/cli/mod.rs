//! The command line.
//!
//! The first word names a noun, the next the verb: `flow list`, `chain check`. Every command that
//! prints figures can print them as JSON. Commands that drive workers are [`jobs::Jobs`] functions;
//! all others are done here.
//!
//! ```text
//! run, node, switch, bench, new, port, lab ──▶ Jobs (crate::run, crate::bench, crate::new, crate::bridge, crate::lab)
//! sim ─────────────────────────▶ Jobs (crate::sim)
//! coordinator ─────────────────▶ coordinator.rs   a coordinator, and its guard
//! cluster ─────────────────────▶ clusters.rs  certificates; asks a coordinator
//! chain ───────────────────────▶ chains.rs    reads the configuration
//! status, flow, function, stop ▶ asking.rs    over the control socket, or all members by a coordinator (reach.rs)
//! flow list ───────────────────▶ listing.rs   the same, page after page
//! schema ──────────────────────▶ shapes.rs
//! flow trace, flow events, capture, top ▶ watching.rs  the same, again and again
//! completions, man ────────────▶ pages.rs
//! failures with --json ────────▶ failed.rs
//! ```
//!
//! The words behind each verb are in `words`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 flows would be cut
//! (`chain diff`, `chain apply`), 130 broken off by a second signal.

mod arguments;
mod asking;
mod balancing;
mod chains;
mod clusters;
mod coordinator;
pub(crate) mod failed;
pub mod jobs;
mod listing;
mod mistyped;
mod moving;
mod newcomer;
mod orders;
mod pages;
mod reach;
mod runtimes;
mod scaling;
mod shapes;
mod storing;
mod watching;

#[cfg(test)]
mod shown;
#[cfg(test)]
mod tests;

use crate::member::Kind;
use crate::registry::Registry;
use arguments::{
    Bench, Capture, ChainVerb, Ending, FlowVerb, FunctionVerb, LabVerb, Listing, MemberWords, New, NodeWords,
    PortVerb, ReplicationVerb, Run, RuntimeVerb, Said, Sim, Top, Which,
};
pub use arguments::{PageSize, Scenario};
use clap::{Parser, Subcommand};
use jobs::Jobs;
use reach::Asking;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of a command that failed.
pub const FAILURE: u8 = 1;
/// Exit code of wrong usage and of configurations with errors.
pub const USAGE: u8 = 2;
/// Exit code of a change that would cut flows.
pub const WOULD_CUT: u8 = 3;

/// Stateful network functions whose flows move, and survive failures where copies are kept.
#[derive(Parser, Debug)]
#[command(
    name = "flowkeep",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 flows would be cut; 130 broken off by a second signal.

Examples:
  flowkeep run --input pcap:in.pcap            a record per flow of a capture
  flowkeep run gateway.toml                    a cluster as configured
  flowkeep status                              figures of the running one
  flowkeep flow show tcp 10.0.0.1:40000 192.0.2.1:443")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run a cluster in this process
    Run(Run),
    /// Run one member's runtimes of a cluster of several processes
    Node(NodeWords),
    /// Run one member's switches, with their ports, of a cluster of several processes
    Switch(MemberWords),
    /// Run the coordinator of a cluster of several processes: it decides which processes are
    /// members
    Coordinator(coordinator::Words),
    /// Certificates and tokens of a cluster of several processes, and its members
    #[command(subcommand)]
    Cluster(clusters::ClusterVerb),
    /// Look at configurations
    #[command(subcommand)]
    Chain(ChainVerb),
    /// Figures of the running cluster: packets, flows, runtimes, ports
    #[command(
        after_help = "Examples:\n  flowkeep status\n  flowkeep status --json | jq .packets\n  flowkeep status --wait 30s   # behind `flowkeep run … &`"
    )]
    Status {
        /// Wait so long for a cluster that does not answer yet
        #[arg(long, value_name = "TIME")]
        wait: Option<nf::Period>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Load of the running cluster, second by second, on the terminal
    Top(Top),
    /// Packets of the running cluster, printed or as a pcapng file
    Capture(Capture),
    /// The objects that `--json` prints, as JSON schemas: all names, or one of them
    #[command(after_help = "\
Each object has a `version`: it grows when a field goes or means something else. Fields may be added without that.

Examples:
  flowkeep schema
  flowkeep schema status > status.schema.json")]
    Schema {
        /// Which
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Look at flows of the running cluster, and move them
    #[command(subcommand)]
    Flow(FlowVerb),
    /// Look at runtimes of the running cluster, empty them, start and end them
    #[command(subcommand)]
    Runtime(RuntimeVerb),
    /// Say how flows are copied
    #[command(subcommand)]
    Replication(ReplicationVerb),
    /// Look at orders to move flows that are under way, and take them back
    #[command(subcommand)]
    Order(orders::OrderVerb),
    /// Try ports without a chain
    #[command(subcommand)]
    Port(PortVerb),
    /// A network of this machine's own to try a gateway in: client, gateway, servers (root)
    #[command(subcommand)]
    Lab(LabVerb),
    /// Say something to a function of the running cluster
    Function(FunctionVerb),
    /// Look at stores of functions' variables
    #[command(subcommand)]
    Store(storing::StoreVerb),
    /// End the running cluster gracefully, and wait until it has ended
    #[command(after_help = "\
Asked again, the cluster ends at once. Of a member of another host or process namespace, the \
command sees only that it begins to end.

Exit codes: 0 it has ended, or was asked to with --wait 0s or over a coordinator; 1 it has not ended yet.

Examples:
  flowkeep stop
  flowkeep stop --wait 0s")]
    Stop(Ending),
    /// Measure, compared with a baseline and a floor in the same run
    Bench(Bench),
    /// Run the workers in a simulated network with faults, and check its invariants
    Sim(Sim),
    /// Begin a network function of your own: a crate with a test, ready to run
    New(New),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  flowkeep completions bash > /etc/bash_completion.d/flowkeep")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, or all commands as one page
    #[command(after_help = "Examples:\n  flowkeep man /usr/local/share/man/man1\n  flowkeep man --page")]
    Man {
        /// The directory to write them to
        #[arg(required_unless_present = "page")]
        directory: Option<PathBuf>,
        /// Print the reference of all commands, as Markdown
        #[arg(long, conflicts_with = "directory")]
        page: bool,
    },
}

/// Why a command failed: an exit code, and a message if it has not been printed yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// [`FAILURE`] or [`USAGE`].
    pub code: u8,
    /// The text.
    pub message: String,
}

impl Failure {
    fn failed(message: impl Into<String>) -> Self {
        Failure {
            code: FAILURE,
            message: message.into(),
        }
    }

    fn usage(message: impl Into<String>) -> Self {
        Failure {
            code: USAGE,
            message: message.into(),
        }
    }
}

/// Does what the words say, and tells how it went.
pub fn main(words: impl IntoIterator<Item = OsString>, registry: &Registry, jobs: &Jobs) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    let wants_objects = failed::wants_objects(&words);
    let mut stdout = failed::Output::new();
    let done = Cli::try_parse_from(words)
        .map_err(Stop::Clap)
        .and_then(|cli| run(cli, registry, jobs, &mut stdout).map_err(Stop::Failure));
    match done {
        Ok(code) => code,
        Err(Stop::Clap(error)) => {
            if let Err(unwritten) = say(&error) {
                let _ = writeln!(io::stderr(), "standard output: {unwritten}");
                return ExitCode::from(FAILURE);
            }
            let text = mistyped::plain(&error.render().to_string());
            failed::print(wants_objects && error.use_stderr(), text.trim_end(), USAGE);
            code_of(&error)
        }
        Err(Stop::Failure(failure)) => {
            let _ = writeln!(io::stderr(), "{}", failure.message);
            failed::print(wants_objects && !stdout.is_used, &failure.message, failure.code);
            ExitCode::from(failure.code)
        }
    }
}

/// Prints the parser's text, in color only where it is help for a terminal. A failed write to
/// standard output is an error, but for a reader that has gone away.
fn say(error: &clap::Error) -> io::Result<()> {
    if error.use_stderr() {
        let _ = write!(io::stderr(), "{}", mistyped::plain(&error.render().to_string()));
        return Ok(());
    }
    match error.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// The exit code of words that are no command. Help and version are no errors.
fn code_of(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

enum Stop {
    Clap(clap::Error),
    Failure(Failure),
}

fn run(cli: Cli, registry: &Registry, jobs: &Jobs, out: &mut dyn Write) -> Result<ExitCode, Failure> {
    match cli.verb {
        Verb::Run(run) => {
            let job = jobs::run_job(run, registry)?;
            return Ok((jobs.run)(job));
        }
        Verb::Node(NodeWords { member, newcomer }) => {
            let job = jobs::member_job(member, newcomer.words(), Kind::Node, registry)?;
            return Ok((jobs.run)(job));
        }
        Verb::Switch(words) => {
            let job = jobs::member_job(words, None, Kind::Switch, registry)?;
            return Ok((jobs.run)(job));
        }
        Verb::Coordinator(words) => return coordinator::coordinator(&words),
        Verb::Cluster(verb) => clusters::cluster(verb, out)?,
        Verb::Store(verb) => storing::store(&verb, out)?,
        Verb::Bench(bench) => {
            return Ok((jobs.bench)(
                jobs::BenchJob {
                    scenario: bench.scenario,
                    flows: bench.flows(),
                    runs: bench.runs,
                    pages: bench.pages,
                    json: bench.json,
                    plot: bench.plot,
                    port: bench.port.scheme(),
                    loads: bench.loads,
                    moment_ms: bench.moment,
                },
                registry,
            ));
        }
        Verb::Sim(sim) => {
            let job = jobs::SimJob {
                seeds: if sim.seed.is_some() { 1 } else { sim.seeds },
                first: sim.seed.unwrap_or(sim.from),
                scenario: sim.scenario,
                json: sim.json,
            };
            return Ok((jobs.sim)(job, registry));
        }
        Verb::New(new) => {
            let directory = new.directory.unwrap_or_else(|| PathBuf::from("."));
            return Ok((jobs.new)(jobs::NewJob {
                name: new.name,
                kind: new.kind,
                directory,
            }));
        }
        Verb::Chain(ChainVerb::Check { config, strict, json }) => {
            chains::check(&config, strict, json, registry, out)?;
        }
        Verb::Chain(ChainVerb::Diff { config, listing }) => {
            return chains::change(Some(&config), chains::Way::Diff, &listing, out);
        }
        Verb::Chain(ChainVerb::Apply {
            config,
            cut,
            rollback,
            confirm,
            listing,
        }) => {
            let way = if rollback {
                chains::Way::Rollback { cut }
            } else {
                chains::Way::Apply { cut, confirm }
            };
            return chains::change(config.as_deref(), way, &listing, out);
        }
        Verb::Chain(ChainVerb::Confirm(asking)) => asking::confirm(&asking, out)?,
        Verb::Chain(ChainVerb::Rollback { cut, listing }) => {
            return chains::change(None, chains::Way::Rollback { cut }, &listing, out);
        }
        Verb::Chain(ChainVerb::Schema { page }) => chains::schema(page, registry, out)?,
        Verb::Schema { name } => shapes::schema(name.as_deref(), out)?,
        Verb::Status { wait, asking } => asking::status(wait, &asking, out)?,
        Verb::Flow(FlowVerb::List(wanted)) => listing::flow_list(&wanted, out)?,
        Verb::Flow(FlowVerb::Show {
            protocol,
            source,
            destination,
            vlan,
            asking,
        }) => asking::flow_show(&protocol, source, destination, vlan, &asking, out)?,
        Verb::Flow(FlowVerb::Explain {
            protocol,
            source,
            destination,
            vlan,
            side,
            asking,
        }) => {
            let key = asking::key_of(&protocol, source, destination, vlan)?;
            asking::flow_explain(crate::explain::Explain { key, side }, &asking, out)?;
        }
        Verb::Flow(FlowVerb::Trace {
            protocol,
            source,
            destination,
            vlan,
            packets,
            stop_after,
            asking,
        }) => {
            let words = watching::TraceWords {
                protocol,
                source,
                destination,
                vlan,
                packets,
                stop_after,
            };
            watching::flow_trace(words, &asking, out)?;
        }
        Verb::Flow(FlowVerb::Events {
            protocol,
            address,
            count,
            asking,
        }) => watching::flow_events(protocol.as_deref(), address, count, &asking, out)?,
        Verb::Capture(capture) => watching::capture(capture, out)?,
        Verb::Top(top) => watching::top(&top, out)?,
        Verb::Flow(FlowVerb::Migrate {
            which,
            from,
            to,
            count,
            asking,
        }) => moving::migrate(which, from, to, count, &asking, out)?,
        Verb::Flow(FlowVerb::Delete { which, from, asking }) => moving::delete(which, from, &asking, out)?,
        Verb::Runtime(RuntimeVerb::List(asking)) => moving::list(&asking, out)?,
        Verb::Order(verb) => orders::order(verb, out)?,
        Verb::Runtime(RuntimeVerb::Drain {
            runtime,
            force,
            asking,
        }) => moving::drain(runtime, force, &asking, out)?,
        Verb::Runtime(RuntimeVerb::Add {
            runtime,
            rebalance,
            asking,
        }) => runtimes::add(runtime, rebalance, &asking, out)?,
        Verb::Runtime(RuntimeVerb::Rebalance { interval, asking }) => {
            balancing::rebalance(interval.duration(), &asking, out)?;
        }
        Verb::Runtime(RuntimeVerb::Remove {
            runtime,
            timeout,
            asking,
        }) => runtimes::remove(runtime, timeout.into(), &asking, out)?,
        Verb::Runtime(RuntimeVerb::Kill {
            runtime,
            unprotected,
            asking,
        }) => runtimes::kill(runtime, unprotected, &asking, out)?,
        Verb::Replication(ReplicationVerb::Set {
            chain,
            policy,
            asking,
        }) => runtimes::set_replication(chain, policy, &asking, out)?,
        Verb::Replication(ReplicationVerb::Place {
            runtime,
            at,
            least_loaded,
            asking,
        }) => {
            runtimes::place_replica(runtime, (at, least_loaded), &asking, out)?;
        }
        Verb::Runtime(RuntimeVerb::Resume { runtime, asking }) => {
            moving::resume(runtime, &asking, out)?;
        }
        Verb::Port(PortVerb::Bridge {
            one,
            other,
            stop_after,
            json,
        }) => {
            let stop = jobs::stop_signal(stop_after)?;
            let ports = [one, other];
            return Ok((jobs.bridge)(jobs::BridgeJob { ports, json, stop }));
        }
        Verb::Lab(verb) => {
            let job = match verb {
                LabVerb::Up { port, stop_after } => jobs::LabJob::Up {
                    scheme: port.scheme(),
                    stop: jobs::stop_signal(stop_after)?,
                },
                LabVerb::Demo { port, json } => jobs::LabJob::Demo {
                    scheme: port.scheme(),
                    json,
                },
                LabVerb::Down => jobs::LabJob::Down,
            };
            return Ok((jobs.lab)(job));
        }
        Verb::Function(FunctionVerb { name, words, asking }) => asking::function(name, words, &asking, out)?,
        Verb::Stop(stop) => asking::stop(&stop.asking, stop.wait.duration(), out)?,
        Verb::Completions { shell } => print(out, pages::completions(shell).trim_end())?,
        Verb::Man { directory, .. } => match directory {
            Some(directory) => pages::manual(&directory)?,
            None => print(out, pages::page().trim_end())?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints. A reader that has gone away (`| head`) wanted no more.
fn print(out: &mut dyn Write, text: impl std::fmt::Display) -> Result<(), Failure> {
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
