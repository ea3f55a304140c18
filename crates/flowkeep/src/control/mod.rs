//! The control socket: how the tool asks a running cluster.
//!
//! A Unix socket that only the user that runs the cluster may open. A request is a line of JSON,
//! and so is its answer; a connection may ask again and again.
//!
//! ```text
//! → {"ask":"flow","protocol":"tcp","source":"10.0.0.1:40000","destination":"192.0.2.1:443","vlan":0}
//! ← {"ok":{"flow":{…}}}
//! → {"ask":"function","name":"nat","words":["mappings"]}
//! ← {"error":"there is no function `nat`"}
//! ```
//!
//! A client that watches (`{"ask":"watch",…}`) asks again and again for observations
//! (`{"ask":"observed"}`). The watch ends with its connection, however the client goes. Over the
//! cluster each member is asked by itself, and its part of the watch has a number ([`watches`]).
//!
//! Bounds: a request is at most [`REQUEST_MAX`] bytes, a list of flows comes in pages of at most
//! [`FLOWS_MAX`], and at most [`server::CONNECTIONS_MAX`] connections are served at once.
//!
//! Members of a cluster with a coordinator answer the same requests when it relays them; then
//! certificates give rights ([`rights`]), and the tool asks all members as one ([`members`]). A
//! user that may open the socket may do everything.
//!
//! ```text
//!   client ─┬─ socket ─────────────────────────────── server ─┬─► service ─► the cluster
//!           └─ members ── TLS ── coordinator ── TLS ──────────┘
//! ```

mod changing;
pub mod client;
pub mod counted;
pub mod members;
mod merging;
mod observing;
pub mod rights;
pub mod scribe;
pub mod server;
pub mod service;
pub mod watches;

use crate::apply::report::Change;
use crate::apply::{Ask, joined};
use crate::capture::Wanted;
use crate::cluster::{Cursor, Observed, Subject, ThreadShare};
use crate::config::ReplicationPolicy;
use crate::explain::{Explain, Explanation};
use crate::following;
use crate::moving::{self, Deletion, Killed, Order, OrderPart, Receipt, Removal, UnderWay};
use crate::report::{Flow, FlowList, Status};
use crate::tables::Told;
use rustix::fs::{Mode, OFlags, open};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wire::{Endpoint, FlowKey};

/// Bytes of the name of a socket's file, at most.
pub const NAME_MAX: usize = 80;
/// Bytes of a path that the system takes for a socket as it is (`sun_path`, unix(7)).
const PATH_MAX: usize = 100;

/// A path that the system takes for a socket's, however long that is: of a long one by way of its
/// folder, which is to stay open meanwhile.
fn reachable(path: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path.to_owned(), None));
    };
    if path.as_os_str().len() <= PATH_MAX || folder.as_os_str().is_empty() {
        return Ok((path.to_owned(), None));
    }
    let folder = open(
        folder,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    Ok((short.join(name), Some(folder)))
}

/// The most bytes of a request.
pub const REQUEST_MAX: u64 = 64 * 1024;
/// The most flows in one answer.
pub const FLOWS_MAX: usize = 1000;

/// The requests.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// All figures.
    Status,
    /// A page of flows.
    Flows {
        /// Where to begin.
        from: Cursor,
        /// The most flows; [`FLOWS_MAX`] is the bound.
        limit: usize,
    },
    /// One flow.
    Flow(Key),
    /// Which way a packet would take.
    Explain(Explain),
    /// Words to a function.
    Function {
        /// The function, as chains name it.
        name: String,
        /// The words.
        words: Vec<String>,
    },
    /// The counts of functions here, for the coordinator.
    Counted,
    /// Another configuration: to tell its effects, or to put it in force.
    Change(Ask),
    /// One member's half of a change over all members: its effects, held until it is decided.
    Prepare(Box<joined::PartRequest>),
    /// The change that is held with this number is not wanted.
    TakeBack {
        /// The number.
        number: u64,
        /// The word of the command that has it held.
        #[serde(default)]
        by: u64,
    },
    /// The result of a decision.
    PartDone {
        /// Its number.
        number: u64,
    },
    /// The chains and functions in force, as text.
    Chains,
    /// The configuration that is on trial stays.
    Confirm,
    /// To move flows.
    Move(Order),
    /// To end the flows that an order names.
    Delete(Order),
    /// How an order goes, by its parts.
    Receipt {
        /// The parts.
        parts: Vec<OrderPart>,
    },
    /// A runtime is to take no new flows, or to take them again.
    Leaving {
        /// The runtime.
        runtime: u16,
        /// Which, and whether that is forced.
        leaving: moving::Leaving,
    },
    /// The orders that are under way.
    Orders,
    /// An order is taken back.
    Cancel {
        /// Its number.
        number: u32,
    },
    /// Starts a runtime: that one, or the first that is not there.
    Add {
        /// The runtime.
        runtime: Option<u16>,
    },
    /// Ends a drained runtime.
    Remove {
        /// The runtime.
        runtime: u16,
    },
    /// Has a runtime fail.
    Kill {
        /// The runtime.
        runtime: u16,
    },
    /// Has a member's process end at once, as a failure does, with all its runtimes.
    Fail {
        /// One of them.
        runtime: u16,
    },
    /// How a chain's flows are copied.
    Replication {
        /// The chain.
        chain: String,
        /// The policy; without, as the configuration says.
        policy: Option<ReplicationPolicy>,
    },
    /// Which runtime keeps the copies of another runtime's flows.
    Replica {
        /// The runtime whose flows are copied.
        runtime: u16,
        /// The runtime that keeps them; without, the one by the layout.
        #[serde(default)]
        replica: Option<u16>,
    },
    /// The end.
    Stop,
    /// Begins to watch, for as long as the connection is open; a connection watches one thing.
    Watch(Box<Observe>),
    /// The observations since the last time.
    Observed,
    /// Over the cluster: one member begins to watch, for as long as it is asked for observations.
    WatchPart {
        /// The watch's number, which the asker chooses by chance.
        watch: u64,
        /// The subject.
        observe: Box<Observe>,
        /// Of a trace: the mark of its packets, which is the same at all members.
        #[serde(default)]
        slot: Option<u8>,
    },
    /// This member's observations since the last time.
    ObservedPart {
        /// The watch's number.
        watch: u64,
    },
    /// The watch is over at this member.
    EndWatch {
        /// Its number.
        watch: u64,
    },
    /// The threads that step workers.
    Threads,
    /// A copy of a store that this process has, as a `redb:` file.
    CopyStore {
        /// Its URI, without a password.
        store: String,
        /// The file, which is not there yet.
        to: PathBuf,
    },
}

/// The subject of a watch.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Observe {
    /// A flow's packets.
    Flow {
        /// Any of its keys.
        key: Key,
        /// Packets, at most.
        packets: u32,
    },
    /// Packets at ports, or where they are dropped.
    Packets(Wanted),
    /// The lives of flows.
    Flows(following::Choice),
}

impl Observe {
    /// The same for a cluster; of a trace over several members, with the mark of its packets.
    fn subject(self, slot: Option<u8>) -> Subject {
        match self {
            Observe::Flow { key, packets } => match slot {
                Some(slot) => Subject::FlowPart {
                    key: key.into(),
                    packets,
                    slot,
                },
                None => Subject::Flow {
                    key: key.into(),
                    packets,
                },
            },
            Observe::Packets(wanted) => Subject::Packets(wanted),
            Observe::Flows(choice) => Subject::Flows(choice),
        }
    }
}

/// Of an answer to something else: the two ends are not of the same version.
pub const FOREIGN: &str = "this answer is to another question: is the running Flowkeep of another version?";

/// A flow's key as people write it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// IP protocol: by name, as everywhere; a number is understood, too.
    #[serde(with = "by_name")]
    #[schemars(with = "String")]
    pub protocol: u8,
    /// One end.
    pub source: SocketAddr,
    /// The other end.
    pub destination: SocketAddr,
    /// The VLAN; 0 for none.
    #[serde(default)]
    pub vlan: u16,
}

/// A protocol's number, by its name.
mod by_name {
    use crate::config::values::protocol_number;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(number: &u8, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&wire::key::protocol_name(*number))
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Said {
        Number(u8),
        Name(String),
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
        match Said::deserialize(from)? {
            Said::Number(number) => Ok(number),
            Said::Name(name) => protocol_number(&name).map_err(D::Error::custom),
        }
    }
}

impl From<Key> for FlowKey {
    fn from(key: Key) -> FlowKey {
        let end = |address: SocketAddr| Endpoint::new(address.ip().into(), address.port());
        FlowKey::new(end(key.source), end(key.destination), key.protocol, key.vlan).0
    }
}

/// The answers.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Flows`].
    Flows(FlowList),
    /// To [`Request::Flow`]; none if there is no such flow.
    Flow(Option<Flow>),
    /// To [`Request::Explain`]; none where no switch is.
    Explained(Option<Box<Explanation>>),
    /// To [`Request::Function`]: each runtime's answer, and the last counts of gone runtimes.
    Function(Vec<Told>),
    /// To [`Request::Counted`].
    Counted(counted::Counts),
    /// To [`Request::Change`].
    Change(Box<Change>),
    /// To [`Request::Prepare`].
    Prepared(Box<joined::Prepared>),
    /// To [`Request::TakeBack`]: no change of that number is held.
    TakenBack,
    /// To [`Request::PartDone`].
    PartDone(Box<joined::PartDone>),
    /// To [`Request::Chains`].
    Chains(String),
    /// To [`Request::Confirm`]: the number of the configuration that stays.
    Confirmed(u64),
    /// To [`Request::Move`]: it has begun; its parts. To [`Request::Cancel`]: they end.
    Ordered(Vec<OrderPart>),
    /// To [`Request::Delete`].
    Deleted(Deletion),
    /// To [`Request::Receipt`].
    Receipt(Receipt),
    /// To [`Request::Leaving`]: so it is; parts of orders that were taken back with that.
    Leaving(Vec<OrderPart>),
    /// To [`Request::Orders`].
    Orders(Vec<UnderWay>),
    /// To [`Request::Add`]: which.
    Added(u16),
    /// To [`Request::Remove`].
    Removed(Removal),
    /// To [`Request::Kill`]: the runtime's figures.
    Killed(Killed),
    /// To [`Request::Replication`] and [`Request::Replica`]: so it is.
    Replication,
    /// To [`Request::Stop`] and [`Request::Fail`]: it has begun.
    Stopping,
    /// To [`Request::Watch`] and [`Request::WatchPart`]: it has begun.
    Watching {
        /// The ports' names, by their numbers.
        ports: Vec<String>,
    },
    /// To [`Request::Observed`] and [`Request::ObservedPart`].
    Observed(Box<Observed>),
    /// To [`Request::EndWatch`].
    WatchEnded,
    /// To [`Request::Threads`].
    Threads(Vec<ThreadShare>),
    /// To [`Request::CopyStore`]: it is there.
    StoreCopied,
}

/// An answer or why there is none, as it goes over the socket.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The answer.
    Ok(Answer),
    /// The problem.
    Error(String),
}

/// The environment variable that says where the socket is, where the command line does not.
pub const SOCKET_VARIABLE: &str = "FLOWKEEP_SOCKET";

/// Where [`SOCKET_VARIABLE`] says that the socket is.
pub fn path_of_environment() -> Option<PathBuf> {
    let path = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty())?;
    Some(PathBuf::from(path))
}

/// Where the socket is, if neither the command line nor the environment nor the configuration says.
pub fn default_path() -> PathBuf {
    if let Some(directory) = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        return PathBuf::from(directory).join("flowkeep.sock");
    }
    // Of the directory that the kernel keeps for this process, the owner is the user.
    let user = std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid());
    std::env::temp_dir()
        .join(format!("flowkeep-{user}"))
        .join("flowkeep.sock")
}

/// Whether a socket is named as one that no operator has named, and lies in their directory. That
/// directory is made where it is missing, and has to be this user's alone.
fn is_default(path: &Path) -> bool {
    let default = default_path();
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_members = name.starts_with("flowkeep-") && name.ends_with(".sock");
    path == default || is_members && path.parent() == default.parent()
}
