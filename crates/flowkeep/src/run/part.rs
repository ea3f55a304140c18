//! A process that has a part of the cluster: the differences from having all of it.
//!
//! # Theory of operation
//!
//! *The end of a node.* When it is asked to end it first leaves: switches choose others for new
//! groups, and its groups move to the runtimes of other processes that are there. Groups that
//! cannot move (no runtime is there, or none has room) end with it.
//!
//! ```text
//!   stop ─► leaving ─► all groups to the others ─► none left, or none that moves ─► draining ─► finishing ─► done
//!            └ again, for groups that have come meanwhile, [`ROUNDS`] times at most
//! ```
//!
//! *The end of a switch.* It reads no more, and waits until nothing has come from any worker for
//! [`QUIET`]: it cannot see which of its packets others still have. A packet that a function holds
//! for longer is lost with it.
//!
//! *Changes of the configuration* are in force everywhere or nowhere, so they are asked for over
//! the cluster (`decided.rs`) and not at one member. Keys of links may change, one member after
//! another.
//!
//! Not here: how groups move (`runtime::mobility`), which members are there (the links).

use super::driver::Worker;
use super::handle::{Question, Unanswered, WorkerAnswer};
use super::links::WorkerLink;
use super::{Handle, LOOK, Shared};
use crate::cluster::{Cluster, LinkStats, OtherMember};
use crate::config::layout::{Layout, WorkerId};
use crate::config::{Config, Member};
use crate::member::{Membership, socket_of};
use crate::moving::Order;
use protocols::channel::{AGREED, Protection};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Why runtimes do not come and go here.
pub(crate) const MEMBERS_RUNTIMES: &str =
    "the runtimes of a member come and go with its process: start another member, or stop this one";

/// If nothing has come for so long, all is home.
pub(super) const QUIET: Duration = Duration::from_millis(300);
/// How often groups that have come meanwhile are moved on.
const ROUNDS: usize = 5;
/// Between the answer to the caller that has this process fail, and its end.
const FAILS_AFTER: Duration = Duration::from_millis(200);
/// How long an order may make no progress.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long switches may go on by earlier words before they hear that a runtime leaves.
const HEARD: Duration = Duration::from_millis(50);
/// How long a runtime that ends waits for others whose copies it keeps to have them elsewhere, at
/// most.
pub(super) const COPIED: Duration = Duration::from_secs(2);

/// Which part this process has.
pub(super) struct ProcessPart {
    /// The member's name.
    pub name: String,
    /// By switch, the member that has it.
    pub switches: Vec<String>,
    /// The others, of which some come and go.
    others: RwLock<Others>,
    /// Its file, for commands to be typed.
    pub file: PathBuf,
    /// Its functions, in the order in which members agree on them.
    pub functions: Arc<[String]>,
}

/// The other members.
struct Others {
    /// By runtime, the member that has it, and that one's control socket.
    runtimes: BTreeMap<u16, (String, PathBuf)>,
    /// All other members.
    members: Vec<OtherMember>,
}

fn socket_at(member: &Member) -> PathBuf {
    member.socket.clone().unwrap_or_else(|| socket_of(&member.name))
}

impl From<&Member> for OtherMember {
    fn from(member: &Member) -> Self {
        OtherMember {
            name: member.name.clone(),
            host: member.host.clone(),
            socket: socket_at(member),
        }
    }
}

impl ProcessPart {
    pub fn of(config: &Config, member: &Membership) -> Self {
        let of = |worker| Some(&config.member[Layout::member_of(config, worker)?]);
        let runtime = |runtime| {
            let member = of(WorkerId::Runtime(runtime))?;
            Some((runtime as u16, (member.name.clone(), socket_at(member))))
        };
        let switch = |switch| Some(of(WorkerId::Switch(switch))?.name.clone());
        let others = config.member.iter().filter(|other| other.name != member.name);
        ProcessPart {
            name: member.name.clone(),
            switches: (0..member.layout.switches).filter_map(switch).collect(),
            others: RwLock::new(Others {
                runtimes: (0..member.layout.runtimes).filter_map(runtime).collect(),
                members: others.map(OtherMember::from).collect(),
            }),
            file: member.file.clone(),
            functions: Arc::clone(&member.secrets.functions),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Others> {
        self.others.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime of a member that the configuration does not list is there, or has gone (`None`).
    pub fn set_runtime(&self, runtime: u16, member: Option<&Member>) {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        let before = others.runtimes.remove(&runtime).map(|(name, _)| name);
        if let Some(name) = before
            && !others.runtimes.values().any(|(other, _)| *other == name)
        {
            others.members.retain(|other| other.name != name);
        }
        if let Some(member) = member {
            let owner = (member.name.clone(), socket_at(member));
            others.runtimes.insert(runtime, owner);
            others.members.retain(|other| other.name != member.name);
            others.members.push(OtherMember::from(member));
        }
    }

    /// All other members.
    pub fn others(&self) -> Vec<OtherMember> {
        self.read().members.clone()
    }

    /// The member that has a worker.
    pub fn member_of(&self, worker: WorkerId) -> String {
        match worker {
            WorkerId::Switch(number) => self.switches.get(number).cloned().unwrap_or_default(),
            WorkerId::Runtime(number) => {
                let owner = u16::try_from(number).ok().and_then(|number| self.owner(number));
                owner.map(|(name, _)| name).unwrap_or_default()
            }
        }
    }

    /// The member that has a runtime, and that one's control socket.
    pub fn owner(&self, runtime: u16) -> Option<(String, PathBuf)> {
        self.read().runtimes.get(&runtime).cloned()
    }

    /// Why no flow of this process can be meant by an order, if so: other members have the sources,
    /// or a target is not there. `here`: the runtimes of this process; `is_there`: whether a
    /// runtime of another is.
    pub fn cannot_move(&self, order: &Order, here: &[u16], is_there: impl Fn(u16) -> bool) -> Option<String> {
        let known = self.read();
        let gives = |number: &u16| match order.from {
            Some(from) => from == *number,
            None => !order.to.contains(number),
        };
        if !here.iter().any(gives) {
            let others = known.runtimes.iter().filter(|(number, _)| gives(number));
            let others = others.map(|(number, (member, socket))| {
                format!(
                    "runtime {number}: --socket {} (member `{member}`)",
                    socket.display()
                )
            });
            let others: Vec<String> = others.collect();
            return Some(format!(
                "member `{}` has no runtime that would give flows away; nothing has moved. A runtime is told to by its own member's socket: {}",
                self.name,
                others.join(", ")
            ));
        }
        let absent = |number: &&u16| !here.contains(number) && !is_there(**number);
        let number = order.to.iter().find(absent)?;
        let Some((member, _)) = known.runtimes.get(number) else {
            return Some(format!(
                "runtime {number} is not there: it is for a member that the configuration does not list, and none has joined with it; nothing has moved. \
                 `flowkeep cluster status` shows which runtimes there are"
            ));
        };
        Some(format!(
            "runtime {number} is not there: member `{member}` does not run, or is not met (`flowkeep status` shows which links have a peer at the \
             other end); nothing has moved. Start it: flowkeep node {} --member {member}",
            self.file.display()
        ))
    }

    /// Why the configuration does not change by this process alone. `is_joined`: it has a
    /// coordinator.
    pub fn no_change(&self, is_joined: bool) -> String {
        let remedy = match is_joined {
            true => {
                "Ask the coordinator: flowkeep chain apply FILE --cluster ADDRESS:PORT --identity DIRECTORY --name admin"
            }
            false => {
                "That needs a coordinator (docs/coordinator.md). Without one, stop all members, change the file, and start them again; flows end with that"
            }
        };
        format!(
            "member `{}` is one of several processes, and a change must be in force in all of them or in none. {remedy}. Keys alone can be changed while \
             they run (SIGHUP)",
            self.name
        )
    }
}

/// Moves all groups of this process to others, as far as they can, and waits until those have their
/// copies elsewhere, and free blocks of ports.
pub(super) fn leave(shared: &Shared, each: &mut impl FnMut(&dyn Cluster)) {
    if shared.part.is_none() || shared.runtimes().is_empty() {
        return;
    }
    // An operator's orders may lead to runtimes that end, too.
    shared.take_all_back();
    for handle in shared.runtimes().values() {
        // Whether another runtime is there or not: it ends.
        drop(handle.ask(Question::Leaving(true)));
    }
    pause(HEARD, shared, each);
    move_all(shared, each);
    let until = Instant::now() + COPIED;
    while Instant::now() < until && !shared.is_to_break_off() && has_others_things(shared) {
        pause(LOOK, shared, each);
    }
}

/// Whether others that go on have their copies here alone, or are to have blocks of ports.
fn has_others_things(shared: &Shared) -> bool {
    let runtimes = shared.runtimes();
    runtimes
        .values()
        .any(|runtime| has_others_copies(runtime) || has_blocks_to_lend(runtime))
}

fn has_blocks_to_lend(runtime: &Handle) -> bool {
    runtime
        .runtime(|runtime| runtime.has_blocks_to_lend())
        .unwrap_or(false)
}

/// The same of a runtime; `false` if it does not answer.
pub(super) fn has_others_copies(runtime: &Handle) -> bool {
    runtime
        .runtime(|runtime| runtime.keeps_for_others())
        .unwrap_or(false)
}

fn move_all(shared: &Shared, each: &mut impl FnMut(&dyn Cluster)) {
    for _ in 0..ROUNDS {
        if kept(shared) == Some(0) {
            return;
        }
        let mut parts = Vec::new();
        for (number, handle) in &shared.runtimes() {
            let others = match handle.ask(Question::Others) {
                Ok(WorkerAnswer::Others(others)) => others,
                _ => Vec::new(),
            };
            // Not to a runtime that leaves, too.
            let takes = |(other, leaving): &(u16, bool)| !leaving && !shared.runtimes().contains_key(other);
            let to: Vec<u16> = others
                .iter()
                .filter(|other| takes(other))
                .map(|(other, _)| *other)
                .collect();
            if to.is_empty() {
                continue;
            }
            let order = Order {
                from: Some(*number),
                to,
                ..Order::default()
            };
            parts.extend(shared.order(&order).unwrap_or_default());
        }
        if parts.is_empty() || !carried_out(&parts, shared, each) {
            return;
        }
    }
}

/// Waits until an order is over; `false` if it makes no progress, or all is to end at once.
fn carried_out(
    parts: &[crate::moving::OrderPart],
    shared: &Shared,
    each: &mut impl FnMut(&dyn Cluster),
) -> bool {
    let mut before = None;
    let mut progress = Instant::now();
    loop {
        let Ok(receipt) = shared.receipt(parts) else {
            return false;
        };
        if receipt.over {
            return receipt.flows_moved > 0;
        }
        let state = (
            receipt.flows_moved,
            receipt.groups_waiting,
            receipt.groups_under_way,
        );
        if before != Some(state) {
            (before, progress) = (Some(state), Instant::now());
        }
        if progress.elapsed() > PATIENCE || shared.is_to_break_off() {
            return false;
        }
        pause(LOOK, shared, each);
    }
}

fn pause(time: Duration, shared: &Shared, each: &mut impl FnMut(&dyn Cluster)) {
    std::thread::sleep(time);
    each(shared);
}

/// How many flows are here, and groups that live on without, if all runtimes say.
fn kept(shared: &Shared) -> Option<u64> {
    let kept = |runtime: &Handle| match runtime.ask(Question::Stats) {
        Ok(WorkerAnswer::Runtime(stats)) => Some(stats.flows + stats.groups_resting),
        _ => None,
    };
    shared.runtimes().values().map(kept).sum()
}

/// Has all links take other keys.
pub(super) fn protect(shared: &Shared, protection: &Protection) -> Result<(), String> {
    // Links that are laid meanwhile have them already.
    shared.with_neighbours(|neighbours| neighbours.protect(protection));
    let protection = protection.clone();
    let done = at_each_link(shared, move |link| link.protect(&protection));
    done.map_err(|why| format!("a worker did not answer: {why}; its links have the keys they had; try again"))
}

/// Has all links meet others by the words of another configuration. Sessions go on.
pub(super) fn agree(shared: &Shared, agreed: &[u64; AGREED]) -> Result<(), String> {
    shared.with_neighbours(|neighbours| neighbours.agree(agreed));
    let agreed = *agreed;
    let done = at_each_link(shared, move |link| link.agree(&agreed));
    done.map_err(|why| {
        format!("a worker did not answer: {why}; its links meet no member that has the new configuration")
    })
}

fn at_each_link(
    shared: &Shared,
    act: impl Fn(&mut WorkerLink) + Clone + Send + 'static,
) -> Result<(), Unanswered> {
    for worker in shared.workers() {
        let act = act.clone();
        let asked = worker.call(move |worker: &mut Worker| {
            worker.each_link(|_, _, link| act(link));
            Some(())
        })?;
        asked.recv_timeout(PATIENCE)?;
    }
    Ok(())
}
/// Ends the process as a failure does, with all its runtimes; this is one of them.
pub(super) fn fail(shared: &Shared, runtime: u16) -> Result<(), String> {
    if shared.part.is_none() || !shared.runtimes().contains_key(&runtime) {
        return Err(format!(
            "runtime {runtime} is not in this process. Nothing was killed"
        ));
    }
    let end = || {
        // The answer goes out first.
        std::thread::sleep(FAILS_AFTER);
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    };
    let thread = std::thread::Builder::new().name("failing".into()).spawn(end);
    thread
        .map(drop)
        .map_err(|error| format!("no thread can be started: {error}; nothing was killed"))
}

/// The links to other processes of a running member.
#[derive(Clone)]
pub struct Links(pub(super) Arc<Shared>);

impl Links {
    /// Has them take other keys, for frames both ways. Keys can be neither introduced nor given up.
    pub fn protect(&self, protection: &Protection) -> Result<(), String> {
        protect(&self.0, protection)
    }

    /// The words that they meet others by, where those change with the configuration.
    pub fn words(&self) -> Option<[u64; AGREED]> {
        self.0.live.words()
    }

    /// How they are.
    pub fn stats(&self) -> Vec<LinkStats> {
        self.0.links()
    }
}
