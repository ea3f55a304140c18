//! `store`: the content of stores of variables.
//!
//! Not here: the work itself (`crate::store::job`).

use super::Failure;
use crate::control;
use crate::store::job;
use clap::Subcommand;
use std::io::Write;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(super) enum StoreVerb {
    /// List the variables that a store has
    #[command(after_help = "\
A line for each variable: function, member, runtime, kind and name; how many elements it has; of counters their sum. A file that a running Flowkeep \
has (`redb:`), and a store in its memory (`memory:`), are read by way of its control socket. With \
--merged a line for each variable of a function, over all its \
runtimes and members, ended ones included: how many parts it has, how many different keys or \
elements, and of counters the sum.

Examples:
  flowkeep store inspect redis://127.0.0.1
  flowkeep store inspect redis://127.0.0.1 --merged
  flowkeep store inspect redb:variables.redb --json
  flowkeep store inspect memory: --socket /run/flowkeep/flowkeep.sock")]
    Inspect {
        /// The store
        #[arg(value_name = "URI")]
        uri: String,
        /// The control socket of a running Flowkeep that has the store; else what the environment
        /// variable FLOWKEEP_SOCKET says
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Merge the parts that runtimes and members have of a variable
        #[arg(long)]
        merged: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write all variables of a store into another
    #[command(after_help = "\
The other store's state of the same variables is replaced. Flowkeep may go on with the first store where --follow is given: changes are copied \
every second. End Flowkeep when most is there; a line says when all of it is; begin it with the other store then, and the copying ends.

Examples:
  flowkeep store migrate redb:variables.redb redis://127.0.0.1
  flowkeep store migrate --follow redis://127.0.0.1 cassandra://10.0.0.1,10.0.0.2/flowkeep?replication=2")]
    Migrate {
        /// The store that has the variables
        #[arg(value_name = "FROM")]
        from: String,
        /// The store to write them to
        #[arg(value_name = "TO")]
        to: String,
        /// The control socket of a running Flowkeep that has FROM; else what the environment
        /// variable FLOWKEEP_SOCKET says
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Copy changes until Flowkeep has the other store
        #[arg(long)]
        follow: bool,
    },
}

pub(super) fn store(verb: &StoreVerb, out: &mut dyn Write) -> Result<(), Failure> {
    let done = match verb {
        StoreVerb::Inspect {
            uri,
            socket,
            merged,
            json,
        } => job::show(uri, &at(socket), *merged, *json, out),
        StoreVerb::Migrate {
            from,
            to,
            socket,
            follow,
        } => job::take_over(from, &at(socket), to, *follow, out),
    };
    done.map_err(|failure| Failure::failed(failure.to_string()))
}

fn at(socket: &Option<PathBuf>) -> PathBuf {
    let said = socket.clone().or_else(control::path_of_environment);
    said.unwrap_or_else(control::default_path)
}
