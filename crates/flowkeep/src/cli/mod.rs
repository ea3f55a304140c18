//! The command line.
//!
//! A word says what it is about, the next what to do with it: `flow list`, `chain check`. Everything that prints figures can
//! print them as JSON. What drives workers is a [`jobs::Jobs`] function; everything else is done here.
//!
//! ```text
//! run, node, switch, bench, new, port, lab ──▶ Jobs (crate::run, crate::bench, crate::new, crate::bridge, crate::lab::job)
//! sim ─────────────────────────▶ Jobs (crate::sim)
//! coordinator ─────────────────▶ coordinator.rs   a coordinator, and its guard
//! cluster ─────────────────────▶ clusters.rs  certificates; asks a coordinator
//! chain ───────────────────────▶ chains.rs    reads the configuration
//! status, flow, function, stop ▶ asking.rs    over the control socket, or all members by a coordinator (reach.rs)
//! flow list ───────────────────▶ listing.rs   the same, page after page
//! schema ──────────────────────▶ shapes.rs
//! flow trace, flow events, capture, top ▶ watching.rs  the same, again and again
//! completions, man ────────────▶ pages.rs
//! ```
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 flows would be cut (`chain diff`, `chain apply`), 130 broken off by a second signal.

mod asking;
mod balancing;
mod chains;
mod clusters;
mod coordinator;
pub mod jobs;
mod listing;
mod mistyped;
mod moving;
mod newcomer;
mod orders;
mod pages;
mod reach;
mod scaling;
mod shapes;
mod staff;
mod storing;
mod watching;

#[cfg(test)]
mod shown;
#[cfg(test)]
mod tests;

use crate::log::{self, Level};
use crate::member::Kind;
use crate::registry::Registry;
use clap::{Args, Parser, Subcommand, ValueEnum};
use jobs::Jobs;
use nf::{ByteSize, Period};
use reach::Asking;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of what was asked for and did not succeed.
pub const FAILURE: u8 = 1;
/// Exit code of wrong usage and of configurations with errors.
pub const USAGE: u8 = 2;
/// Exit code of a change that would cut flows.
pub const WOULD_CUT: u8 = 3;

/// Stateful network functions whose flows survive.
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
  flowkeep status                              what the running one does
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
    Node(MemberWords),
    /// Run one member's switches, with their ports, of a cluster of several processes
    Switch(MemberWords),
    /// Run the coordinator of a cluster of several processes: it says who is a member
    Coordinator(coordinator::Words),
    /// Certificates and tokens of a cluster of several processes, and its members
    #[command(subcommand)]
    Cluster(clusters::ClusterVerb),
    /// Look at configurations
    #[command(subcommand)]
    Chain(ChainVerb),
    /// What the running cluster does: packets, flows, runtimes, ports
    #[command(after_help = "Examples:\n  flowkeep status\n  flowkeep status --json | jq .packets")]
    Status(Asking),
    /// What the running cluster does, second by second, on the terminal
    Top(Top),
    /// Packets of the running cluster, printed or as a pcapng file
    Capture(Capture),
    /// What `--json` prints, as JSON schemas: all names, or one of them
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
    /// Say what is copied of flows
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
Asked again, it ends at once. Of another host's member, or of another process namespace's, only the begin is seen.

Exit codes: 0 it has ended, or was asked to with --wait 0s or over a coordinator; 1 it has not ended yet.

Examples:
  flowkeep stop
  flowkeep stop --wait 0s")]
    Stop(Ending),
    /// Measure, compared with a baseline and a floor in the same run
    Bench(Bench),
    /// Run the workers in a simulated network with faults, and check what must hold
    Sim(Sim),
    /// Begin a network function of your own: a crate with a test, ready to run
    New(New),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  flowkeep completions bash > /etc/bash_completion.d/flowkeep")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages
    #[command(after_help = "Example:\n  flowkeep man /usr/local/share/man/man1")]
    Man {
        /// The directory to write them to
        directory: PathBuf,
    },
}

/// Run a cluster in this process.
#[derive(Args, Debug)]
#[command(after_help = "\
Without a configuration, the flow monitor runs over the input and writes a record per flow to standard output. What is given here counts \
more than what the configuration says; --input and --output are its first port's.

Ends when all inputs have ended, or on SIGINT, SIGTERM or `flowkeep stop`: then what is inside is finished and records are written. A second \
signal ends it at once.

Examples:
  flowkeep run --input pcap:in.pcap
  flowkeep run gateway.toml --input pcap:in.pcap --output pcap:out.pcap --json
  flowkeep run gateway.toml --runtimes 4 --for 1m")]
struct Run {
    /// The configuration
    config: Option<PathBuf>,
    /// Where packets come from, like pcap:in.pcap
    #[arg(long, value_name = "URI")]
    input: Option<String>,
    /// Where packets go, like pcap:out.pcap
    #[arg(long, value_name = "URI")]
    output: Option<String>,
    /// Workers that run flows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    runtimes: Option<u16>,
    /// Where to write events (flow records, mappings); - is standard output
    #[arg(long, value_name = "FILE")]
    events: Option<String>,
    /// End gracefully after this time, like 90s or 1h30m
    #[arg(long = "for", value_name = "TIME")]
    stop_after: Option<Period>,
    /// Path of the control socket; else what the environment variable FLOWKEEP_SOCKET says
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// End with one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    said: Said,
}

/// Which lines a process says on standard error.
#[derive(Args, Debug)]
struct Said {
    /// Lines on standard error: of this level, and those that matter more; else what the environment variable FLOWKEEP_LOG says, else info
    #[arg(long, value_name = "LEVEL")]
    log: Option<Level>,
}

impl Said {
    /// From now on, in this process.
    fn begin(&self) -> Result<(), Failure> {
        let environment = std::env::var_os(log::VARIABLE).map(|text| text.to_string_lossy().into_owned());
        let level = log::level_of(self.log, environment.as_deref()).map_err(Failure::usage)?;
        log::set(level);
        Ok(())
    }
}

/// Run one member of a cluster of several processes.
#[derive(Args, Debug)]
#[command(after_help = "\
The configuration says who the members are ([[member]]); all of them read the same one. They may be started in any order: who is not there yet is \
waited for, and who is gone is done without.

A node that is asked to end (SIGINT, SIGTERM, `flowkeep stop`) moves its flows to other nodes first. SIGHUP reads the keys again.

Examples:
  flowkeep switch cluster.toml --member front
  flowkeep node cluster.toml --member left")]
struct MemberWords {
    /// The configuration
    config: PathBuf,
    /// Which of its members this is
    #[arg(long, value_name = "NAME")]
    member: String,
    /// Where to write events (flow records, mappings); - is standard output
    #[arg(long, value_name = "FILE")]
    events: Option<String>,
    /// End gracefully after this time, like 90s or 1h30m
    #[arg(long = "for", value_name = "TIME")]
    stop_after: Option<Period>,
    /// Path of the control socket; else what the environment variable FLOWKEEP_SOCKET says
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// End with one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Be a member by the coordinator's views: where coordinators may be. All members of a cluster join, or none
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',')]
    join: Vec<String>,
    /// The word by which this process gets its certificate (flowkeep cluster token), the first time
    #[arg(long, value_name = "WORD", requires = "join")]
    token: Option<String>,
    /// Where the certificate is, or goes: ca.pem, MEMBER.pem, MEMBER.key
    #[arg(long, value_name = "DIRECTORY", requires = "join")]
    identity: Option<PathBuf>,
    #[command(flatten)]
    newcomer: newcomer::NewcomerWords,
    #[command(flatten)]
    said: Said,
}

#[derive(Subcommand, Debug)]
enum ChainVerb {
    /// Check a configuration, and show its chains
    #[command(
        after_help = "Exit codes: 0 it is good; 2 it is not.\n\nExample:\n  flowkeep chain check gateway.toml"
    )]
    Check {
        /// The configuration
        config: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what another configuration would change in the running cluster, and which live flows it would cut
    #[command(after_help = "\
Exit codes: 0 nothing differs, or it can be applied without cutting a flow; 1 failed; 2 it cannot be applied while the cluster runs, or is \
wrong; 3 it would cut flows.

Example:
  flowkeep chain diff gateway.toml")]
    Diff {
        /// The configuration
        config: PathBuf,
        #[command(flatten)]
        listing: Listing,
    },
    /// Put another configuration in force in the running cluster, without a restart
    #[command(after_help = "\
It says first what chain diff says. Flows that the new configuration lets go on are kept as they are; if it cut any, nothing is changed \
unless --cut is given.

Exit codes: 0 it is in force; 1 failed; 2 it cannot be applied while the cluster runs, or is wrong; 3 it would cut flows. But for 0, nothing \
has changed.

Examples:
  flowkeep chain apply gateway.toml
  flowkeep chain apply gateway.toml --cut
  flowkeep chain apply --confirm 60s gateway.toml
  flowkeep chain apply --rollback

With --confirm the configuration goes back by itself after that time, unless `flowkeep chain confirm` is said: a mistake that cuts you off \
mends itself. Going back cuts the flows that the configuration before does not allow. Until then no other configuration is applied.

With --cluster, chains and functions change at all members or at none, and all other settings must be those in force; it takes the role \
admin. A member that is away takes the configuration on when it comes back. With --confirm the coordinator has all members go back; the \
command, the coordinator and members may end meanwhile.")]
    Apply {
        /// The configuration
        #[arg(required_unless_present = "rollback")]
        config: Option<PathBuf>,
        /// Cut the flows that the new configuration does not allow
        #[arg(long)]
        cut: bool,
        /// Go back to the configuration before
        #[arg(long, conflicts_with = "config")]
        rollback: bool,
        /// Go back after this time, 1s to 24h, unless `flowkeep chain confirm` is said
        #[arg(long, value_name = "TIME", conflicts_with = "rollback")]
        confirm: Option<Period>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Keep the configuration that is on trial (chain apply --confirm)
    #[command(after_help = "\
Exit codes: 0 it stays; 1 none is on trial, or it is going back already.

Example:
  flowkeep chain confirm")]
    Confirm(Asking),
    /// Put the configuration before in force again: the same as chain apply --rollback
    #[command(after_help = "Example:\n  flowkeep chain rollback --cut")]
    Rollback {
        /// Cut the flows that that configuration does not allow
        #[arg(long)]
        cut: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the JSON schema of configurations, for editors
    #[command(after_help = "\
Examples:
  flowkeep chain schema > flowkeep.schema.json
  and as the first line of the configuration:  #:schema flowkeep.schema.json
  flowkeep chain schema --page > settings.md")]
    Schema {
        /// Print the reference of all settings instead, as a page (Markdown)
        #[arg(long)]
        page: bool,
    },
}

/// How many flows to list, and what [`Asking`] says.
#[derive(Args, Debug)]
struct Listing {
    /// List at most so many of the flows that would be cut
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Args, Debug)]
struct Ending {
    /// How long its end may take; 0s does not wait
    #[arg(long, value_name = "TIME", default_value = "30s")]
    wait: Period,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Subcommand, Debug)]
enum FlowVerb {
    /// List flows
    #[command(after_help = "\
Examples:
  flowkeep flow list
  flowkeep flow list --protocol tcp --address 10.0.0.0/24 --limit 20
  flowkeep flow list --state established --runtime 1
  flowkeep flow list --json | jq '.flows[].source'")]
    List(listing::Wanted),
    /// Show a flow: its runtime, its translation, each function's state
    #[command(after_help = "\
Either direction finds it, and before or behind a translation.

Examples:
  flowkeep flow show tcp 10.0.0.1:40000 192.0.2.1:443
  flowkeep flow show udp '[2001:db8::1]:5353' '[2001:db8::2]:53' --json")]
    Show {
        /// Its protocol, by name or number
        protocol: String,
        /// One end, address and port
        #[arg(value_parser = end)]
        source: SocketAddr,
        /// The other end
        #[arg(value_parser = end)]
        destination: SocketAddr,
        /// Its VLAN
        #[arg(long, default_value_t = 0)]
        vlan: u16,
        #[command(flatten)]
        asking: Asking,
    },
    /// Follow a flow's packets through the cluster: every step, with reasons
    #[command(after_help = "\
Either direction's key will do, before or behind a translation; the flow need not be there yet. With --json, each step is a line.

Examples:
  flowkeep flow trace tcp 10.0.0.1:40000 192.0.2.1:443
  flowkeep flow trace icmp 10.0.0.1:77 192.0.2.1:77 --packets 2 --for 1m --json")]
    Trace {
        /// Its protocol, by name or number
        protocol: String,
        /// One end, address and port
        #[arg(value_parser = end)]
        source: SocketAddr,
        /// The other end
        #[arg(value_parser = end)]
        destination: SocketAddr,
        /// Its VLAN
        #[arg(long, default_value_t = 0)]
        vlan: u16,
        /// End after so many packets
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        packets: u32,
        /// End after this time, like 90s or 1h30m
        #[arg(long = "for", value_name = "TIME", default_value = "10s")]
        stop_after: Period,
        #[command(flatten)]
        asking: Asking,
    },
    /// Print a line for each flow that opens, ends or moves, as it does
    #[command(after_help = "\
A flow opens when its first packet has passed the chain; one whose first packet is dropped has no line (capture --drops shows it). It ends with Ctrl-C, with --count, or with the cluster. \
What there is no room for is lost, counted and told; packets never wait for the reader.

Examples:
  flowkeep flow events
  flowkeep flow events --protocol tcp --address 10.0.0.0/24 --count 20
  flowkeep flow events --json | jq 'select(.event == \"opened\")'")]
    Events {
        /// Only this protocol
        #[arg(long)]
        protocol: Option<String>,
        /// Only flows with an end in this prefix, before or behind a translation
        #[arg(long, value_name = "PREFIX")]
        address: Option<wire::Prefix>,
        /// End after so many lines
        #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Move flows to another runtime while their packets flow, and answer with a receipt
    #[command(after_help = "\
Which flows: one (either direction's key, before or behind a translation), those with an end in a prefix, or all. Flows that share state (a NAT's inside host, say) move together. New flows of a group wait until it has arrived; established ones go on. Broken off, the command no longer waits for what it has ordered, and flows go on moving: order list shows it, order cancel takes it back.

Exit codes: 0 all have moved, or none was meant; 1 some have not, and are where they were; 2 wrong usage.

Examples:
  flowkeep flow migrate --all --to 1
  flowkeep flow migrate tcp 10.0.0.1:40000 192.0.2.1:443 --to 1
  flowkeep flow migrate --address 10.0.0.0/24 --from 0
  flowkeep flow migrate --all --from 0 --count 500
  flowkeep flow migrate --all --from 0 --to 1 --json | jq .pause_longest_ns")]
    Migrate {
        #[command(flatten)]
        which: Which,
        /// Only from this runtime; otherwise from all but those of --to, which must be said then
        #[arg(long, value_name = "RUNTIME")]
        from: Option<u16>,
        /// To this one; several take turns; otherwise all others that are neither drained nor full do
        #[arg(long, value_name = "RUNTIME")]
        to: Vec<u16>,
        /// So many flows at most; groups move whole, so it may be fewer. One runtime gives them: --from says which, where several have some
        #[arg(long, value_name = "N", conflicts_with = "protocol", value_parser = clap::value_parser!(u32).range(1..))]
        count: Option<u32>,
        #[command(flatten)]
        asking: Asking,
    },
    /// End flows now, as if they had expired: functions give back what they took
    #[command(after_help = "\
Which flows: one (either direction's key, before or behind a translation), those with an end in a prefix, or all. Of one flow its group's others go on. No packet is sent to \
its ends: the next packet of a flow opens it again, if the functions let it. Flows of which a call waits go on, and are counted.

Exit codes: 0 all that were meant have ended, or none was; 1 there is no such flow, or some go on; 2 wrong usage.

Examples:
  flowkeep flow delete tcp 10.0.0.1:40000 192.0.2.1:443
  flowkeep flow delete --address 10.0.0.7/32
  flowkeep flow delete --all --from 1 --json")]
    Delete {
        #[command(flatten)]
        which: Which,
        /// Only at this runtime
        #[arg(long, value_name = "RUNTIME")]
        from: Option<u16>,
        #[command(flatten)]
        asking: Asking,
    },
}

/// Which flows are meant.
#[derive(Args, Debug)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("flows").required(true).args(["protocol", "address", "all"])))]
struct Which {
    /// One flow: its protocol, by name or number
    #[arg(requires_all = ["source", "destination"])]
    protocol: Option<String>,
    /// One end, address and port
    #[arg(value_parser = end)]
    source: Option<SocketAddr>,
    /// The other end
    #[arg(value_parser = end)]
    destination: Option<SocketAddr>,
    /// Its VLAN
    #[arg(long, default_value_t = 0, requires = "protocol")]
    vlan: u16,
    /// Flows with an end in this prefix, before translation
    #[arg(long, value_name = "PREFIX")]
    address: Option<wire::Prefix>,
    /// All flows
    #[arg(long)]
    all: bool,
}

/// Packets of the running cluster.
#[derive(Args, Debug)]
#[command(after_help = "\
Without --in, --out or --drops: what comes in and what goes out. A filter is what tcpdump understands, which compiles it. What there is no \
room for is counted, never waited for. Over the cluster (--cluster) packets of all members come by time, each with its member.

Examples:
  flowkeep capture --filter 'tcp port 443' --count 20
  flowkeep capture --drops -w drops.pcapng     the reasons are the packets' comments
  flowkeep capture --in -w - | tshark -r -")]
struct Capture {
    /// Only packets that match this tcpdump expression
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Dropped packets, with the reason
    #[arg(long)]
    drops: bool,
    /// Packets that come in
    #[arg(long = "in")]
    incoming: bool,
    /// Packets that go out
    #[arg(long = "out")]
    outgoing: bool,
    /// End after so many packets
    #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, like 90s or 1h30m
    #[arg(long = "for", value_name = "TIME")]
    stop_after: Option<Period>,
    /// Write them to this file, as pcapng; - is standard output
    #[arg(long = "write", short = 'w', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Bytes of each packet that are kept
    #[arg(long = "snap-length", short = 's', value_name = "BYTES", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..=262_144))]
    snap_length: u32,
    /// Memory of the cluster for packets on their way to here, like 256MiB
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// Path of the control socket; else what the environment variable FLOWKEEP_SOCKET says
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    over: reach::Over,
}

/// What the running cluster does, second by second.
#[derive(Args, Debug)]
#[command(after_help = "\
Ends with q. The busiest flows are estimated from a sample.

Examples:
  flowkeep top
  flowkeep top --once
  flowkeep top --json --interval 5s | jq .in.packets")]
struct Top {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Period,
    /// Look once, and print text
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Subcommand, Debug)]
enum ReplicationVerb {
    /// Say what is copied of a chain's flows, at the runtimes of one process or, with --cluster, of all, while traffic passes
    #[command(after_help = "\
Flows that lack a copy get one, and copies that are no longer wanted end. The configuration stays as it is: the next change of it, or start, goes by that.

Examples:
  flowkeep replication set web snapshot
  flowkeep replication set web default --socket /run/flowkeep/left.sock")]
    Set {
        /// The chain's name
        chain: String,
        /// The policy
        policy: staff::PolicyWord,
        #[command(flatten)]
        asking: Asking,
    },
    /// Say which runtime keeps the copies of another one's flows
    #[command(after_help = "\
All copies are sent again, and until they are there, flows go without one. The runtime is of another process; when it is gone, another one is chosen, as ever. \
Without --at, the one that the layout says is chosen again. \
--least-loaded goes by what heartbeats say now, and not by hosts and racks; what is chosen stays until it is gone.

Examples:
  flowkeep replication place 0 --at 2 --cluster 192.0.2.1:4400 --identity cluster/ --name operate
  flowkeep replication place 0 --least-loaded --cluster 192.0.2.1:4400 --identity cluster/ --name operate
  flowkeep replication place 0 --socket /run/flowkeep/left.sock")]
    Place {
        /// The runtime whose flows are copied
        runtime: u16,
        /// The runtime that is to keep them
        #[arg(long, value_name = "NUMBER")]
        at: Option<u16>,
        /// The runtime of another member with the least load; over the cluster
        #[arg(long, conflicts_with = "at")]
        least_loaded: bool,
        #[command(flatten)]
        asking: Asking,
    },
}

#[derive(Subcommand, Debug)]
enum RuntimeVerb {
    /// List runtimes
    #[command(
        after_help = "Examples:\n  flowkeep runtime list\n  flowkeep runtime list --json | jq '.runtimes[].flows'"
    )]
    List(Asking),
    /// Send a runtime no new flows, move those it has to the others, and answer with a receipt
    #[command(after_help = "\
Its flows go to the other runtimes in turn, but to none that is drained or full; what one of them refuses all the same is offered to another, once. It stays in the cluster, without flows, until it is resumed.

The last one that takes flows is refused. With --last it is drained all the same: flows that no runtime takes stay there and go on, and none moves by itself when another takes flows again. \
New flows go to the runtimes that are not drained, also to one that is full, which drops them; as long as all are drained, they go to all of them.

Exit codes: 0 it has no flows any more; 1 it has, or nothing was changed: what is said tells which.

Examples:
  flowkeep runtime drain 1
  flowkeep runtime drain 0 --last
  flowkeep runtime drain 1 --json | jq .flows_moved")]
    Drain {
        /// Its number
        runtime: u16,
        /// Even if no other is known to take flows: those that it has stay there and go on then
        #[arg(long)]
        last: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Start another runtime while the others go on
    #[command(after_help = "\
As many may be there as the setting `runtimes_max` says. It begins with the configuration in force, and new flows go to it as to the others.

Examples:
  flowkeep runtime add
  flowkeep runtime add 3 --rebalance")]
    Add {
        /// Its number; without, the first that is not there
        runtime: Option<u16>,
        /// Move its share of the others' flows to it
        #[arg(long)]
        rebalance: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Move flows from runtimes that do more than the average to those that do less
    #[command(after_help = "\
What each does is looked at for the interval: packets, and processor time. One that does 1.5 times the average gives a third of its flows, in turn to those below the average. \
Nothing is said of which flows do most: say it again to come closer. New flows go by load anyway, where the policy is least_loaded.

Exit codes: 0 loads are even enough, or flows have moved; 1 some that were meant have not.

Examples:
  flowkeep runtime rebalance
  flowkeep runtime rebalance --interval 10s --cluster 192.0.2.1:4400 --identity cluster/ --name operate")]
    Rebalance {
        /// How long to look
        #[arg(long, value_name = "TIME", default_value = "2s")]
        interval: Period,
        #[command(flatten)]
        asking: Asking,
    },
    /// Move a runtime's flows to the others, and end it; its memory is given back
    #[command(after_help = "\
What it has counted stays in the figures. Until it is gone, it goes on as a drained one.

Exit codes: 0 it is gone; 1 it is not: what is said tells what state things are in.

Examples:
  flowkeep runtime remove 1
  flowkeep runtime remove 1 --timeout 5s --json")]
    Remove {
        /// Its number
        runtime: u16,
        /// How long to try
        #[arg(long, value_name = "TIME", default_value = "60s")]
        timeout: Period,
        #[command(flatten)]
        asking: Asking,
    },
    /// End a runtime at once, as a failure does: its flows go on where their copies are
    #[command(after_help = "\
Where the whole cluster is one process, the runtime stops between two of its steps and says nothing; the others go on, and `flowkeep runtime add` starts it again. A member's process is sent SIGKILL; \
whatever started the process may start it again. Over the cluster (--cluster, --name operate) the member ends itself as by SIGKILL, and the command waits until a view is without it.

With copies (`[replication]`), its flows go on at another runtime; without, they end. So it is refused where a flow has no copy, unless --unprotected says that this is meant.

Exit codes: 0 the runtime is gone; 1 it is not, or it was not tried.

Examples:
  flowkeep runtime kill 1
  flowkeep runtime kill 1 --unprotected --json
  flowkeep runtime kill 1 --socket /run/flowkeep/left.sock")]
    Kill {
        /// Its number; without --cluster it must be the socket's process that has it
        runtime: u16,
        /// Even if flows have no copy at another runtime: those end
        #[arg(long)]
        unprotected: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Send a drained runtime new flows again; those that were moved stay where they are
    #[command(after_help = "\
What a drain that is still under way has ordered is taken back: groups that are on their way arrive, the others stay.

Examples:
  flowkeep runtime resume 1")]
    Resume {
        /// Its number
        runtime: u16,
        #[command(flatten)]
        asking: Asking,
    },
}

#[derive(Subcommand, Debug)]
enum PortVerb {
    /// Pass every frame from one port to the other, and back
    #[command(after_help = "\
Nothing stands between the two: what does not work here is not a chain's fault.

Example:
  flowkeep port bridge 'afpacket:eth0?take=everything' 'afpacket:eth1?take=everything'")]
    Bridge {
        /// One port
        #[arg(value_name = "URI")]
        one: String,
        /// The other
        #[arg(value_name = "URI")]
        other: String,
        /// End after this time, like 90s or 1h30m
        #[arg(long = "for", value_name = "TIME")]
        stop_after: Option<Period>,
        /// End with one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// By which kind of port the gateway is connected.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    /// Packet sockets
    Afpacket,
    /// AF_XDP
    Afxdp,
}

impl Wire {
    fn scheme(self) -> &'static str {
        match self {
            Wire::Afpacket => "afpacket",
            Wire::Afxdp => "afxdp",
        }
    }
}

#[derive(Subcommand, Debug)]
enum LabVerb {
    /// Build one, and keep it until Ctrl-C or `flowkeep lab down`
    #[command(after_help = "Example:\n  flowkeep lab up")]
    Up {
        /// By which kind of port
        #[arg(long, value_enum, value_name = "KIND", default_value_t = Wire::Afpacket)]
        port: Wire,
        /// Take it down after this time, like 90s or 1h30m
        #[arg(long = "for", value_name = "TIME")]
        stop_after: Option<Period>,
    },
    /// Build one, send ping, downloads and streams through firewall, NAT and load balancer, and take it down
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
    /// Take all labs of this machine down, and remove what killed ones left
    #[command(after_help = "Example:\n  flowkeep lab down")]
    Down,
}

/// An end of a flow. Protocols without ports have port 0, ICMP its identifier.
fn end(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let bare = text.trim_matches(['[', ']']);
        match bare.parse::<std::net::IpAddr>() {
            Ok(address) => format!("it has no port; write {}", SocketAddr::new(address, 443)),
            Err(_) => "write an address and a port, like 10.0.0.1:443 or [2001:db8::1]:443".to_owned(),
        }
    })
}

/// Say something to a function of the running cluster.
#[derive(Args, Debug)]
#[command(after_help = "\
What a function understands is in its documentation. Each runtime's instance answers; equal answers are printed once.

Examples:
  flowkeep function load_balancer backends
  flowkeep function load_balancer backend web1 drain
  flowkeep function host_limits hosts 10")]
struct FunctionVerb {
    /// The function, as chains name it
    name: String,
    /// What to say
    words: Vec<String>,
    #[command(flatten)]
    asking: Asking,
}

/// What to measure.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// firewall, NAT and load balancer on one core
    Chain,
    /// Routing groups of flows to runtimes
    Switch,
    /// What a new flow costs
    Launch,
    /// Calling a function through the erased interface
    Stage,
    /// Messages between two workers
    Message,
    /// Flows moved between two runtimes
    Migrate,
    /// What packets feel while a cluster scales out and in
    Scale,
    /// Objects that runtimes share
    Objects,
    /// Copies of flows at another runtime
    Replicate,
    /// Flows whose runtime is killed
    Recover,
    /// Counts that are kept in stores
    Store,
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
  flowkeep bench live --flows 10000 --loads 200000,400000,0")]
struct Bench {
    /// What to measure
    #[arg(value_enum)]
    scenario: Scenario,
    /// Numbers of flows; by default 10000,100000,1000000; 1000,10000 with `live`, 50000 with `store`, 10000,100000 with `replicate` and `recover`, 10000 with `objects`, 500,1000,100000,200000 with `migrate`, 8000,100000 with `scale`
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    flows: Vec<u32>,
    /// How often each case is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Which pages tables and flows lie in: large ones (2 MiB) or small ones (4 KiB)
    #[arg(long, value_enum, value_name = "SIZE", default_value_t = PageSize::Large)]
    pages: PageSize,
    /// Print one JSON object, raw samples included
    #[arg(long)]
    json: bool,
    /// Of `live`: by which kind of port
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Wire::Afxdp)]
    port: Wire,
    /// Of `live`: packets per second to offer, both directions together; 0 is as fast as can be
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_200_000, 1_400_000, 0])]
    loads: Vec<u32>,
    /// Of `live`: how long a load is kept up, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=10_000))]
    moment: u32,
}

impl Bench {
    fn flows(&self) -> Vec<u32> {
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

/// Run the workers in a simulated network with faults, and check what must hold.
#[derive(Args, Debug)]
#[command(after_help = "\
Each seed is a cluster, hosts around it and faults, in one thread, the same each time. What fails is made small and shown, with the command \
that repeats it.

Exit codes: 0 nothing found; 1 something found; 2 wrong usage.

Examples:
  flowkeep sim --seeds 10000
  flowkeep sim --seeds 1000 --from 5000 --scenario nat --json
  flowkeep sim --scenario gateway --seed 4711")]
struct Sim {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "seed")]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with = "seed")]
    from: u64,
    /// This seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// Only this scenario: bridge, balance, nat, gateway, dual, edge, inspect or slow; by default each seed says which
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Begin a network function of your own.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  flowkeep new my-counter && cd my-counter && cargo test")]
struct New {
    /// Its name: lower case, with - or _
    name: String,
    /// What it does to begin with
    #[arg(long, value_enum, default_value_t)]
    kind: crate::new::Kind,
    /// Where to make its directory, which has the name; by default here
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Why a command did not do what it should: an exit code, and a message if it has not been printed yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// [`FAILURE`] or [`USAGE`].
    pub code: u8,
    /// What to tell.
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
    // Not locked: a running cluster writes its events from a thread of its own.
    let mut stdout = io::stdout();
    let done = Cli::try_parse_from(words)
        .map_err(Stop::Clap)
        .and_then(|cli| run(cli, registry, jobs, &mut stdout).map_err(Stop::Failure));
    match done {
        Ok(code) => code,
        Err(Stop::Clap(error)) => {
            say(&error);
            code_of(&error)
        }
        Err(Stop::Failure(failure)) => {
            let _ = writeln!(io::stderr(), "{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

/// Prints what the parser says, in color only where it is help for a terminal.
fn say(error: &clap::Error) {
    let _ = match error.use_stderr() {
        true => write!(io::stderr(), "{}", mistyped::plain(&error.render().to_string())),
        false => error.print(),
    };
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
        Verb::Node(words) => return Ok((jobs.run)(jobs::member_job(words, Kind::Node, registry)?)),
        Verb::Switch(words) => return Ok((jobs.run)(jobs::member_job(words, Kind::Switch, registry)?)),
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
        Verb::Chain(ChainVerb::Check { config, json }) => chains::check(&config, json, registry, out)?,
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
        Verb::Status(asking) => asking::status(&asking, out)?,
        Verb::Flow(FlowVerb::List(wanted)) => listing::flow_list(&wanted, out)?,
        Verb::Flow(FlowVerb::Show {
            protocol,
            source,
            destination,
            vlan,
            asking,
        }) => asking::flow_show(&protocol, source, destination, vlan, &asking, out)?,
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
            last,
            asking,
        }) => moving::drain(runtime, last, &asking, out)?,
        Verb::Runtime(RuntimeVerb::Add {
            runtime,
            rebalance,
            asking,
        }) => staff::add(runtime, rebalance, &asking, out)?,
        Verb::Runtime(RuntimeVerb::Rebalance { interval, asking }) => {
            balancing::rebalance(interval.duration(), &asking, out)?;
        }
        Verb::Runtime(RuntimeVerb::Remove {
            runtime,
            timeout,
            asking,
        }) => staff::remove(runtime, timeout.into(), &asking, out)?,
        Verb::Runtime(RuntimeVerb::Kill {
            runtime,
            unprotected,
            asking,
        }) => staff::kill(runtime, unprotected, &asking, out)?,
        Verb::Replication(ReplicationVerb::Set {
            chain,
            policy,
            asking,
        }) => staff::set_replication(chain, policy, &asking, out)?,
        Verb::Replication(ReplicationVerb::Place {
            runtime,
            at,
            least_loaded,
            asking,
        }) => {
            staff::place_replica(runtime, (at, least_loaded), &asking, out)?;
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
        Verb::Completions { shell } => pages::completions(shell, out),
        Verb::Man { directory } => pages::manual(&directory)?,
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
