//! A process that has a part of the cluster: what is different from having all of it.
//!
//! # Theory of operation
//!
//! *The end of a node.* When it is asked to end it first leaves: switches choose others for new groups, and its groups move to the
//! runtimes of other processes that are there. What cannot move (there is nobody, or nobody has room) ends with it.
//!
//! ```text
//!   stop ─► leaving ─► all groups to the others ─► none left, or none that moves ─► draining ─► finishing ─► done
//!            └ again, for what has come meanwhile, [`ROUNDS`] times at most
//! ```
//!
//! *The end of a switch.* It reads no more, and waits until nothing has come from anybody for [`QUIET`]: which of its packets others still have it
//! cannot see. A packet that a function holds for longer is lost with it.
//!
//! *Changes of the configuration* are in force everywhere or nowhere, so they are asked for over the cluster (`decided.rs`) and not at one member. Keys of links may
//! change, one member after another.
//!
//! Not here: how groups move (`runtime::mobility`), who is there (the links).

use super::driver::{Answer, Question, Unanswered, Worker};
use super::links::WorkerLink;
use super::{Handle, LOOK, Shared};
use crate::cluster::{Cluster, OtherMember};
use crate::config::layout::{Layout, WorkerId};
use crate::config::{Config, Member};
use crate::member::{Membership, socket_of};
use crate::moving::Order;
use protocols::channel::{AGREED, Protection};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing has come for so long: all is home.
pub(super) const QUIET: Duration = Duration::from_millis(300);
/// How often groups that have come meanwhile are moved on.
const ROUNDS: usize = 5;
/// How long an order may make no progress.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long switches may go on with what they were told before they hear that a runtime leaves.
const HEARD: Duration = Duration::from_millis(50);

/// Which part this process has.
pub(super) struct Part {
    /// The member's name.
    pub name: String,
    /// By runtime, the member that has it, and that one's control socket.
    pub runtimes: Vec<(String, PathBuf)>,
    /// By switch, the member that has it.
    pub switches: Vec<String>,
    /// All other members.
    pub others: Vec<OtherMember>,
    /// Its file, for what is to be typed.
    pub file: PathBuf,
    /// Its functions, in the order in which members agree on them.
    pub functions: Arc<[String]>,
}

impl Part {
    pub fn of(config: &Config, member: &Membership) -> Self {
        let of = |worker| Some(&config.member[Layout::member_of(config, worker)?]);
        let socket = |member: &Member| member.socket.clone().unwrap_or_else(|| socket_of(&member.name));
        let runtime = |runtime| {
            let member = of(WorkerId::Runtime(runtime))?;
            Some((member.name.clone(), socket(member)))
        };
        let switch = |switch| Some(of(WorkerId::Switch(switch))?.name.clone());
        let others = config.member.iter().filter(|other| other.name != member.name);
        Part {
            name: member.name.clone(),
            runtimes: (0..member.layout.runtimes).filter_map(runtime).collect(),
            switches: (0..member.layout.switches).filter_map(switch).collect(),
            others: others
                .map(|other| OtherMember {
                    name: other.name.clone(),
                    host: other.host.clone(),
                    socket: socket(other),
                })
                .collect(),
            file: member.file.clone(),
            functions: Arc::clone(&member.secrets.functions),
        }
    }

    /// The member that has a worker.
    pub fn member_of(&self, worker: WorkerId) -> &str {
        match worker {
            WorkerId::Switch(number) => self.switches.get(number).map_or("", String::as_str),
            WorkerId::Runtime(number) => self.runtimes.get(number).map_or("", |(name, _)| name),
        }
    }

    /// Why no flow of this process can be meant by an order, if so: those that are to move are others' to give away, or who is to take them is
    /// not there. `here`: the runtimes of this process; `is_there`: whether a runtime of another is.
    pub fn cannot_move(&self, order: &Order, here: &[u16], is_there: impl Fn(u16) -> bool) -> Option<String> {
        let all = 0..self.runtimes.len() as u16;
        let gives = |number: &u16| match order.from {
            Some(from) => from == *number,
            None => !order.to.contains(number),
        };
        if !here.iter().any(gives) {
            let others = all.filter(gives).map(|number| {
                let (member, socket) = &self.runtimes[usize::from(number)];
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
        let (member, _) = &self.runtimes[usize::from(*number)];
        Some(format!(
            "runtime {number} is not there: member `{member}` does not run, or is not met (`flowkeep status` shows which links have somebody at the \
             other end); nothing has moved. Start it: flowkeep node {} --member {member}",
            self.file.display()
        ))
    }

    /// Why the configuration does not change by this process alone. `is_joined`: it has a coordinator.
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

/// Moves all groups of this process to others, as far as they can.
pub(super) fn leave(shared: &Shared, each: &mut impl FnMut(&dyn Cluster)) {
    if shared.part.is_none() || shared.runtimes().is_empty() {
        return;
    }
    // What an operator ordered may lead to runtimes that end, too.
    shared.take_all_back();
    for handle in shared.runtimes().values() {
        // Whether anybody else is there or not: it ends.
        drop(handle.ask(Question::Leaving(true)));
    }
    pause(HEARD, shared, each);
    for _ in 0..ROUNDS {
        if kept(shared) == Some(0) {
            return;
        }
        let mut parts = Vec::new();
        for (number, handle) in &shared.runtimes() {
            let others = match handle.ask(Question::Others) {
                Ok(Answer::Others(others)) => others,
                _ => Vec::new(),
            };
            // Not to one that leaves, too.
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
fn carried_out(parts: &[crate::moving::Part], shared: &Shared, each: &mut impl FnMut(&dyn Cluster)) -> bool {
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
        Ok(Answer::Runtime(stats)) => Some(stats.flows + stats.groups_resting),
        _ => None,
    };
    shared.runtimes().values().map(kept).sum()
}

/// Has all links take other keys.
pub(super) fn protect(shared: &Shared, protection: &Protection) -> Result<(), String> {
    let protection = protection.clone();
    let done = at_each_link(shared, move |link| link.protect(&protection));
    done.map_err(|why| format!("a worker did not answer: {why}; its links have the keys they had; try again"))
}

/// Has all links meet others by the words of another configuration. Sessions go on.
pub(super) fn agree(shared: &Shared, agreed: &[u64; AGREED]) -> Result<(), String> {
    let agreed = *agreed;
    let done = at_each_link(shared, move |link| link.agree(&agreed));
    done.map_err(|why| {
        format!("a worker did not answer: {why}; its links meet nobody that has the new configuration")
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
