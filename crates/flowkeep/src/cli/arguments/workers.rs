//! `runtime`, `replication`, `port`: workers, their copies and their ports.

use crate::cli::listing::between_looks;
use crate::cli::reach::Asking;
use crate::cli::runtimes::PolicyWord;
use clap::Subcommand;
use nf::Period;

#[derive(Subcommand, Debug)]
pub(in crate::cli) enum ReplicationVerb {
    /// Say how a chain's flows are copied, at the runtimes of one process or, with --cluster, of
    /// all, while traffic passes
    #[command(after_help = "\
Flows that lack a copy get one, and copies that are no longer wanted end. The configuration stays as it is: the next change of it, or start, goes by that.

Examples:
  flowkeep replication set web snapshot
  flowkeep replication set web default --socket /run/flowkeep/left.sock")]
    Set {
        /// The chain's name
        chain: String,
        /// The policy
        policy: PolicyWord,
        #[command(flatten)]
        asking: Asking,
    },
    /// Say which runtime keeps the copies of another runtime's flows
    #[command(after_help = "\
All copies are sent again; until they are there, the replica before keeps its own. The runtime is \
of another process; when it is gone, another runtime is chosen, as ever. \
Without --at, the layout's runtime is chosen again. --least-loaded goes by the heartbeats now, and not by hosts and racks; the chosen runtime \
stays until it is gone.

Examples:
  flowkeep replication place 0 --at 2 --cluster 192.0.2.1:4400 --identity cluster/ --name operate
  flowkeep replication place 0 --least-loaded --cluster 192.0.2.1:4400 --identity cluster/ --name operate
  flowkeep replication place 0 --socket /run/flowkeep/left.sock")]
    Place {
        /// The runtime whose flows are copied
        runtime: u16,
        /// The runtime that is to keep the copies
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
pub(in crate::cli) enum RuntimeVerb {
    /// List runtimes
    #[command(
        after_help = "Examples:\n  flowkeep runtime list\n  flowkeep runtime list --json | jq '.runtimes[].flows'"
    )]
    List(Asking),
    /// Send a runtime no new flows, move those it has to the others, and answer with a receipt
    #[command(after_help = "\
Its flows go to the other runtimes in turn, but to no drained or full runtime; flows that a \
runtime refuses all the same are offered to another, once. \
The drained runtime stays in the cluster, without flows, until it is resumed.

The last runtime that takes flows is refused. With --force it is drained all the same: flows that \
no runtime takes \
stay there and go on, and do not move by themselves when another runtime takes flows again. \
New flows go to the runtimes that are not drained, also to a full one, which drops them; as long \
as all are drained, they go to all of them.

Exit codes: 0 it has no flows any more; 1 it has, or nothing was changed: the message tells which.

Examples:
  flowkeep runtime drain 1
  flowkeep runtime drain 0 --force
  flowkeep runtime drain 1 --json | jq .flows_moved")]
    Drain {
        /// Its number
        runtime: u16,
        /// Even if no other runtime is known to take flows: its own flows stay there and go on then
        #[arg(long, alias = "last")]
        force: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Start another runtime while the others go on
    #[command(after_help = "\
As many may be there as the setting `runtimes_max` says, and without it 8 more than at the start. \
The new runtime begins with the configuration in force, and new flows go to it as to the others.

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
    /// Move flows from runtimes that do more than the average to runtimes that do less
    #[command(after_help = "\
The load of each is looked at for the interval: packets, and processor time. A runtime that does 1.5 times the average gives a third of its flows, \
in turn to runtimes below the average. The command does not know which flows do most: say it again \
to come closer. New flows go by load anyway, where the \
policy is least_loaded.

Exit codes: 0 loads are even enough, or flows have moved; 1 some flows that were meant have not.

Examples:
  flowkeep runtime rebalance
  flowkeep runtime rebalance --interval 10s --cluster 192.0.2.1:4400 --identity cluster/ --name operate")]
    Rebalance {
        /// How long to look
        #[arg(long, value_name = "TIME", default_value = "2s", value_parser = between_looks)]
        interval: Period,
        #[command(flatten)]
        asking: Asking,
    },
    /// Move a runtime's flows to the others, and end it; its memory is given back
    #[command(after_help = "\
Its counts stay in the figures. Until the runtime is gone, it goes on as a drained runtime.

Exit codes: 0 it is gone; 1 it is not: the message tells what state things are in.

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
        /// Its number; without --cluster, of a runtime of the socket's process
        runtime: u16,
        /// Even if flows have no copy at another runtime: such flows end
        #[arg(long)]
        unprotected: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Send a drained runtime new flows again; moved flows stay where they are
    #[command(after_help = "\
The order of a drain that is still under way is canceled: groups that are on their way arrive, the others stay.

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
pub(in crate::cli) enum PortVerb {
    /// Pass every frame from one port to the other, and back
    #[command(after_help = "\
Nothing stands between the two: a failure here is not a chain's fault.

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
