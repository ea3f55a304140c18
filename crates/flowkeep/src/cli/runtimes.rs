//! `runtime add`, `runtime remove`, `runtime kill`, and `replication set`.
//!
//! Removing is draining, over and over while flows keep beginning, and then a word to the cluster,
//! which ends the runtime if it is empty or says what it waits for. Until it is gone it is a
//! drained runtime, which goes on with its flows.

use super::asking::{ask, complete, connect, foreign, show};
use super::moving::{carry_out, move_away, reasons, runtimes, set_leaving};
use super::{Asking, Failure};
use crate::config::ReplicationPolicy;
use crate::control::client::Client;
use crate::control::{Answer, Request};
use crate::moving::{Killed, Leaving, Order, Receipt};
use crate::report::{RuntimeStatus, Status};
use crate::shape::Shape;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often removing is tried.
const LOOK: Duration = Duration::from_millis(50);

/// The outcome of adding or removing.
#[derive(Serialize, JsonSchema)]
pub(super) struct Changed {
    runtime: u16,
    absent: bool,
    #[serde(flatten)]
    receipt: Option<Receipt>,
}

impl Shape for Changed {
    const NAME: &'static str = "runtime-change";
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(receipt) = &self.receipt {
            write!(f, "{receipt}")?;
        }
        let number = self.runtime;
        match self.absent {
            true => writeln!(
                f,
                "runtime  {number} is gone; `flowkeep runtime add {number}` starts it again"
            ),
            false => writeln!(f, "runtime  {number} is there and takes new flows"),
        }
    }
}

/// `runtime add`
pub fn add(
    runtime: Option<u16>,
    rebalance: bool,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let Answer::Added(runtime) = ask(&mut client, &Request::Add { runtime })? else {
        return Err(foreign());
    };
    let added = |problem: Failure| Failure {
        message: format!(
            "{}\nruntime {runtime} is there and takes new flows; those of the others that have not moved stay where they are",
            problem.message
        ),
        ..problem
    };
    let mut receipt = None;
    if rebalance {
        let there = runtimes(&mut client).map_err(added)?;
        let there = there.iter().filter(|of| !of.absent).count();
        let order = Order {
            one_in: Some(there as u16),
            to: vec![runtime],
            ..Order::default()
        };
        receipt = Some(carry_out(&mut client, order).map_err(added)?);
    }
    let changed = Changed {
        runtime,
        absent: false,
        receipt,
    };
    show(&changed, asking, out)
}

/// `runtime remove`
pub fn remove(runtime: u16, timeout: Duration, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    // A member's runtimes stay as long as it does: they are not drained for a word that is refused
    // in the end.
    if let Answer::Status(status) = ask(&mut client, &Request::Status)?
        && (status.member.is_some() || !status.members.is_empty())
    {
        return Err(Failure::failed(crate::run::part::MEMBERS_RUNTIMES));
    }
    set_leaving(&mut client, runtime, Leaving::Drained)?;
    let deadline = Instant::now() + timeout;
    let mut whole = Receipt::empty();
    loop {
        let (receipt, _) = move_away(&mut client, runtime)?;
        whole.add_later(&receipt);
        if receipt.groups_canceled > 0 {
            show(&whole, asking, out)?;
            return Err(Failure::failed(format!(
                "runtime {runtime} is not gone, and takes no flows any more: {}. Say `flowkeep runtime remove {runtime}` again, or \
                 `flowkeep runtime resume {runtime}` to have it as it was",
                reasons(&receipt)
            )));
        }
        let Answer::Removed(removal) = ask(&mut client, &Request::Remove { runtime })? else {
            return Err(foreign());
        };
        if removal.done {
            let changed = Changed {
                runtime,
                absent: true,
                receipt: Some(whole),
            };
            return show(&changed, asking, out);
        }
        if Instant::now() > deadline {
            show(&whole, asking, out)?;
            return Err(Failure::failed(format!(
                "runtime {runtime} is not gone, and takes no flows any more: {removal}. Say `flowkeep runtime remove {runtime}` again, or \
                 `flowkeep runtime resume {runtime}` to have it as it was"
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// How long a process that was sent SIGKILL may take to be gone.
const GONE: Duration = Duration::from_secs(5);
/// How long a view may take that is without a member that was killed.
const REMOVED: Duration = Duration::from_secs(60);

/// The outcome of killing: the process that is gone, or the figures of a runtime whose process goes
/// on.
#[derive(Serialize, JsonSchema)]
pub(super) struct Gone {
    runtime: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<i32>,
    /// Asked over the cluster: the member whose process has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    #[serde(flatten)]
    had: Option<Killed>,
}

impl Shape for Gone {
    const NAME: &'static str = "runtime-kill";
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = self.runtime;
        match (&self.process, &self.had) {
            (Some(process), _) => writeln!(f, "runtime  {runtime} is gone, with its process {process}"),
            (None, Some(had)) => writeln!(
                f,
                "runtime  {runtime} is gone; of its {} flows {} had copies at another runtime, and {} packets are lost. \
                 `flowkeep runtime add {runtime}` starts it again",
                had.flows, had.protected_flows, had.packets
            ),
            (None, None) => match &self.member {
                Some(member) => writeln!(
                    f,
                    "runtime  {runtime} is gone, with the process of member {member}"
                ),
                None => writeln!(f, "runtime  {runtime} is gone"),
            },
        }
    }
}

/// `runtime kill`
pub fn kill(runtime: u16, unprotected: bool, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let Answer::Status(status) = ask(&mut client, &Request::Status)? else {
        return Err(foreign());
    };
    may_kill(&status, runtime, unprotected)?;
    if client.is_wide() {
        return show(&kill_member(&mut client, runtime)?, asking, out);
    }
    let gone = match &status.member {
        Some(_) => Gone {
            runtime,
            member: None,
            process: Some(kill_process(&client, runtime)?),
            had: None,
        },
        None => match ask(&mut client, &Request::Kill { runtime })? {
            Answer::Killed(had) => Gone {
                runtime,
                process: None,
                member: None,
                had: Some(had),
            },
            _ => return Err(foreign()),
        },
    };
    show(&gone, asking, out)
}

/// Has the process of a runtime's member end, and waits until a view is without that incarnation.
fn kill_member(client: &mut Client, runtime: u16) -> Result<Gone, Failure> {
    let incarnation = client.incarnation_of(runtime).map_err(Failure::failed)?;
    let member = client.member_of(runtime).map(ToString::to_string);
    let Answer::Stopping = ask(client, &Request::Fail { runtime })? else {
        return Err(foreign());
    };
    let began = Instant::now();
    while client.incarnation_of(runtime).map_err(Failure::failed)? == incarnation {
        if began.elapsed() > REMOVED {
            return Err(Failure::failed(format!(
                "the process of runtime {runtime} was told to end, and the coordinator's view has it still after {} s: `flowkeep cluster status` shows why",
                REMOVED.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Gone {
        runtime,
        process: None,
        member,
        had: None,
    })
}

/// Whether a runtime is there, and no flow would end with it that is not meant to.
fn may_kill(status: &Status, runtime: u16, unprotected: bool) -> Result<(), Failure> {
    let is_here = |here: &&RuntimeStatus| !here.absent;
    let Some(killed) = status
        .runtimes
        .iter()
        .filter(is_here)
        .find(|here| here.runtime == runtime)
    else {
        let here = status.runtimes.iter().filter(is_here);
        let here: Vec<String> = here.map(|here| here.runtime.to_string()).collect();
        return Err(Failure::failed(format!(
            "runtime {runtime} is not in this process, which has runtimes {}{}. Nothing was killed",
            match here.is_empty() {
                true => "none".to_owned(),
                false => here.join(", "),
            },
            match status.member {
                Some(_) => "; name the socket of its process with --socket",
                None => "",
            }
        )));
    };
    // All runtimes of a member go with its process.
    let is_one_process = status.member.is_some() || killed.member.is_some();
    let goes = |other: &&RuntimeStatus| {
        other.runtime == runtime || (is_one_process && other.member == killed.member)
    };
    let going: Vec<&RuntimeStatus> = status.runtimes.iter().filter(is_here).filter(goes).collect();
    let is_going = |keeper: u16| going.iter().any(|here| here.runtime == keeper);
    let copied_of = |here: &RuntimeStatus| match here.protected_by {
        Some(keeper) if is_going(keeper) => 0,
        _ => here.protected_flows.min(here.flows),
    };
    let flows: u64 = going.iter().map(|here| here.flows).sum();
    let copied: u64 = going.iter().map(|here| copied_of(here)).sum();
    let with = match going.len() {
        1 => "",
        _ => ", with all others of its process,",
    };
    // Where the heir's figures are not here, its room is not known.
    let keepers = going.iter().filter_map(|here| here.protected_by);
    let keepers: BTreeSet<u16> = keepers.filter(|keeper| !is_going(*keeper)).collect();
    for keeper in keepers {
        let kept = going.iter().filter(|here| here.protected_by == Some(keeper));
        let kept: u64 = kept.map(|here| copied_of(here)).sum();
        let mut heir = status.runtimes.iter().filter(is_here);
        let Some(heir) = heir.find(|here| here.runtime == keeper) else {
            continue;
        };
        let room = heir.flows_max.saturating_sub(heir.flows);
        if kept > room && !unprotected {
            return Err(Failure::failed(format!(
                "runtime {runtime}{with} has {kept} flows with copies at runtime {keeper}, which has room for {room} more: {} of them would end. Nothing was \
                 killed. Say `flowkeep runtime kill {runtime} --unprotected` all the same, or raise `flows_max` (docs/replication.md)",
                kept - room
            )));
        }
    }
    match flows - copied {
        lost if lost > 0 && !unprotected => Err(Failure::failed(format!(
            "runtime {runtime}{with} has {flows} flows, and {lost} of them have no copy at another runtime: they would end. Nothing was killed. Say \
             `flowkeep runtime kill {runtime} --unprotected` all the same, or have copies kept: `[replication]` (docs/replication.md)"
        ))),
        _ => Ok(()),
    }
}

/// Sends SIGKILL to the process at the other end, and waits until it is gone.
fn kill_process(client: &Client, runtime: u16) -> Result<i32, Failure> {
    let failed =
        |error: std::io::Error| Failure::failed(format!("runtime {runtime} was not killed: {error}"));
    let process = client.process().map_err(failed)?;
    let handle = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty());
    let handle = handle.map_err(|error| failed(error.into()))?;
    let killed = rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::KILL);
    killed.map_err(|error| failed(error.into()))?;
    match has_ended(&handle, GONE) {
        Ok(true) => Ok(process.as_raw_nonzero().get()),
        Ok(false) => Err(Failure::failed(format!(
            "process {} was sent SIGKILL and is there after {} s",
            process.as_raw_nonzero(),
            GONE.as_secs()
        ))),
        Err(error) => Err(failed(error)),
    }
}

/// Waits until a process has ended, for as long as `patience`.
pub(super) fn has_ended(process: &OwnedFd, patience: Duration) -> std::io::Result<bool> {
    // A process that has ended can be read from its handle.
    let mut ended = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
    let patience = rustix::time::Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: patience.subsec_nanos().into(),
    };
    Ok(rustix::event::poll(&mut ended, Some(&patience))? > 0)
}

/// A policy as it is typed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyWord {
    /// Nothing is copied
    None,
    /// Copies from time to time; no packet waits
    Snapshot,
    /// Packets wait until their changes are copied
    Commit,
    /// Flows are in a data store; no packet waits
    Store,
    /// Packets wait until their changes are in the data store
    #[value(name = "store_commit")]
    StoreCommit,
    /// As the configuration says
    Default,
}

impl From<PolicyWord> for Option<ReplicationPolicy> {
    fn from(word: PolicyWord) -> Self {
        match word {
            PolicyWord::None => Some(ReplicationPolicy::None),
            PolicyWord::Snapshot => Some(ReplicationPolicy::Snapshot),
            PolicyWord::Commit => Some(ReplicationPolicy::Commit),
            PolicyWord::Store => Some(ReplicationPolicy::Store),
            PolicyWord::StoreCommit => Some(ReplicationPolicy::StoreCommit),
            PolicyWord::Default => None,
        }
    }
}

/// The outcome of setting a policy.
#[derive(Serialize, JsonSchema)]
pub(super) struct Set {
    chain: String,
    policy: Option<ReplicationPolicy>,
}

impl Shape for Set {
    const NAME: &'static str = "replication-set";
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = match self.policy {
            Some(ReplicationPolicy::None) => "nothing is copied",
            Some(ReplicationPolicy::Snapshot) => "copies are sent from time to time, and no packet waits",
            Some(ReplicationPolicy::Store) => "flows are written into the store, and no packet waits",
            Some(ReplicationPolicy::StoreCommit) => "packets wait until their changes are in the store",
            Some(ReplicationPolicy::Commit) => "packets wait until their changes are copied",
            None => "as the configuration says",
        };
        writeln!(f, "chain  {}: {policy}", self.chain)
    }
}

/// `replication set`
pub fn set_replication(
    chain: String,
    policy: PolicyWord,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let policy = policy.into();
    let mut client = connect(asking)?;
    let request = Request::Replication {
        chain: chain.clone(),
        policy,
    };
    match ask(&mut client, &request)? {
        Answer::Replication => {
            show(&Set { chain, policy }, asking, out)?;
            complete(&client)
        }
        _ => Err(foreign()),
    }
}

/// The outcome of placing copies.
#[derive(Serialize, JsonSchema)]
pub(super) struct Placed {
    runtime: u16,
    replica: Option<u16>,
}

impl Shape for Placed {
    const NAME: &'static str = "replication-place";
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placed { runtime, replica } = self;
        match replica {
            Some(replica) => writeln!(
                f,
                "runtime  {replica} keeps the copies of the flows of runtime {runtime}"
            ),
            None => writeln!(f, "runtime  {runtime} has its copies where the layout says"),
        }
    }
}

/// `replication place`
pub fn place_replica(
    runtime: u16,
    (replica, by_load): (Option<u16>, bool),
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut client = connect(asking)?;
    let replica = match by_load {
        true => Some(client.replica_by_load(runtime).map_err(Failure::failed)?),
        false => replica,
    };
    match ask(&mut client, &Request::Replica { runtime, replica })? {
        Answer::Replication => show(&Placed { runtime, replica }, asking, out),
        _ => Err(foreign()),
    }
}
