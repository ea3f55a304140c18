//! `flow`, `capture`, `top`: flows and their packets.

use crate::cli::listing::{self, between_looks};
use crate::cli::reach::{Asking, Over};
use clap::{Args, Subcommand};
use nf::{ByteSize, Period};
use std::net::SocketAddr;
use std::path::PathBuf;

/// How many flows to list, and the words of [`Asking`].
#[derive(Args, Debug)]
pub(in crate::cli) struct Listing {
    /// List at most so many of the flows that would be cut
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(in crate::cli) limit: usize,
    #[command(flatten)]
    pub(in crate::cli) asking: Asking,
}

#[derive(Subcommand, Debug)]
pub(in crate::cli) enum FlowVerb {
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
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=4094))]
        vlan: u16,
        #[command(flatten)]
        asking: Asking,
    },
    /// Say which way a packet that came in now would take: chain, runtime, functions. No packet is
    /// sent
    #[command(after_help = "\
By the state that switches and runtimes have at this moment. A flow that is there is shown with \
its \
runtime, its chain and its functions' states. For any other flow, the answer has the chain whose \
rule \
matches, the runtime that has its group or would be chosen, and the functions that it would pass. \
Only a packet shows a function's verdict: `flowkeep flow trace` follows packets that come.

Examples:
  flowkeep flow explain tcp 10.0.0.1:40000 192.0.2.1:443
  flowkeep flow explain udp 192.0.2.1:53 10.0.0.1:40000 --side outside --json")]
    Explain {
        /// Its protocol, by name or number
        protocol: String,
        /// Its sender, address and port
        #[arg(value_parser = end)]
        source: SocketAddr,
        /// Its receiver
        #[arg(value_parser = end)]
        destination: SocketAddr,
        /// Its VLAN
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=4094))]
        vlan: u16,
        /// The side from which it comes; without, by its address where a port tells sides so, else
        /// inside
        #[arg(long, value_enum)]
        side: Option<crate::explain::From>,
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
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=4094))]
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
A flow opens when its first packet has passed the chain; a flow whose first packet is dropped has \
no line \
(capture --drops shows it). The command ends with Ctrl-C, with --count, or with the cluster. \
Lines without room are lost, counted and told; packets never wait for the reader.

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

Exit codes: 0 all flows have moved, or no flow was meant; 1 some flows have not, and are where \
they were; 2 wrong usage.

Examples:
  flowkeep flow migrate --all --to 1
  flowkeep flow migrate tcp 10.0.0.1:40000 192.0.2.1:443 --to 1
  flowkeep flow migrate --address 10.0.0.0/24 --from 0
  flowkeep flow migrate --all --from 0 --count 500
  flowkeep flow migrate --all --from 0 --to 1 --json | jq .pause_longest_ns")]
    Migrate {
        #[command(flatten)]
        which: Which,
        /// Only from this runtime; otherwise from all runtimes except those of --to, which is
        /// needed then
        #[arg(long, value_name = "RUNTIME")]
        from: Option<u16>,
        /// To this runtime; several take turns. Without it, all others that are neither drained nor
        /// full take turns
        #[arg(long, value_name = "RUNTIME")]
        to: Vec<u16>,
        /// So many flows at most; groups move whole, so fewer may move. One runtime gives them:
        /// --from names it, where several have some
        #[arg(long, value_name = "N", conflicts_with = "protocol", value_parser = clap::value_parser!(u32).range(1..))]
        count: Option<u32>,
        #[command(flatten)]
        asking: Asking,
    },
    /// End flows now, as if they had expired: functions give back their resources
    #[command(after_help = "\
Which flows: one (either direction's key, before or behind a translation), those with an end in a \
prefix, or all. The other flows of a flow's group go on. No packet is sent to \
its ends: the next packet of a flow opens it again, if the functions let it. Flows of which a call waits go on, and are counted.

Exit codes: 0 all flows that were meant have ended, or no flow was meant; 1 there is no such flow, \
or some go on; 2 wrong usage.

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
pub(in crate::cli) struct Which {
    /// One flow: its protocol, by name or number
    #[arg(requires_all = ["source", "destination"])]
    pub(in crate::cli) protocol: Option<String>,
    /// One end, address and port
    #[arg(value_parser = end)]
    pub(in crate::cli) source: Option<SocketAddr>,
    /// The other end
    #[arg(value_parser = end)]
    pub(in crate::cli) destination: Option<SocketAddr>,
    /// Its VLAN
    #[arg(long, default_value_t = 0, requires = "protocol", value_parser = clap::value_parser!(u16).range(0..=4094))]
    pub(in crate::cli) vlan: u16,
    /// Flows with an end in this prefix, before translation
    #[arg(long, value_name = "PREFIX")]
    pub(in crate::cli) address: Option<wire::Prefix>,
    /// All flows
    #[arg(long)]
    pub(in crate::cli) all: bool,
}

/// Packets of the running cluster.
#[derive(Args, Debug)]
#[command(after_help = "\
Without --in, --out or --drops: packets that come in and that go out. A filter is an expression of tcpdump, which compiles it. Packets without \
room are counted, never waited for. Over the cluster (--cluster) packets of all members come by time, each with its member.

Examples:
  flowkeep capture --filter 'tcp port 443' --count 20
  flowkeep capture --drops -w drops.pcapng     the reasons are the packets' comments
  flowkeep capture --in -w - | tshark -r -")]
pub(in crate::cli) struct Capture {
    /// Only packets that match this tcpdump expression
    #[arg(long, value_name = "EXPR")]
    pub(in crate::cli) filter: Option<String>,
    /// Dropped packets, with the reason
    #[arg(long)]
    pub(in crate::cli) drops: bool,
    /// Packets that come in
    #[arg(long = "in")]
    pub(in crate::cli) incoming: bool,
    /// Packets that go out
    #[arg(long = "out")]
    pub(in crate::cli) outgoing: bool,
    /// End after so many packets
    #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::cli) count: Option<u64>,
    /// End after this time, like 90s or 1h30m
    #[arg(long = "for", value_name = "TIME")]
    pub(in crate::cli) stop_after: Option<Period>,
    /// Write them to this file, as pcapng; - is standard output
    #[arg(long = "write", short = 'w', value_name = "FILE")]
    pub(in crate::cli) file: Option<PathBuf>,
    /// Bytes of each packet that are kept
    #[arg(long = "snap-length", short = 's', value_name = "BYTES", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub(in crate::cli) snap_length: u32,
    /// Memory of the cluster for packets on their way to here, like 256MiB
    #[arg(long, value_name = "SIZE")]
    pub(in crate::cli) buffer: Option<ByteSize>,
    /// Path of the control socket; else what the environment variable FLOWKEEP_SOCKET says
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) over: Over,
}

/// The load of the running cluster, second by second.
#[derive(Args, Debug)]
#[command(after_help = "\
Ends with q. The busiest flows are estimated from a sample.

Examples:
  flowkeep top
  flowkeep top --once
  flowkeep top --json --interval 5s | jq .in.packets")]
pub(in crate::cli) struct Top {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = between_looks)]
    pub(in crate::cli) interval: Period,
    /// Look once, and print text
    #[arg(long)]
    pub(in crate::cli) once: bool,
    #[command(flatten)]
    pub(in crate::cli) asking: Asking,
}

/// An end of a flow. Protocols without ports have port 0, ICMP its identifier.
pub(in crate::cli) fn end(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let bare = text.trim_matches(['[', ']']);
        match bare.parse::<std::net::IpAddr>() {
            Ok(address) => format!(
                "it has no port; write {} (of ICMP its identifier, of a protocol without ports 0)",
                SocketAddr::new(address, 443)
            ),
            Err(_) => "write an address and a port, like 10.0.0.1:443 or [2001:db8::1]:443".to_owned(),
        }
    })
}
