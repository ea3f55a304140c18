//! All members of a cluster as one, asked by its coordinator.
//!
//! # Theory of operation
//!
//! ```text
//!   request ─► which members are there? (the coordinator's status, looked at again each second)
//!           ─► which does it concern? ─► Relay to each of them, at once ─► answers, merged (merging.rs) ─► one answer
//!                                                                      └─ none, or an error ─► missing: member, why
//! ```
//!
//! | request | goes to |
//! |---|---|
//! | `Status`, `Flow`, `Threads`, `Function`, `Replication` | all members; the two last to those with runtimes |
//! | `Flows` | the member of the cursor's runtime; behind its last flow, the next member with runtimes |
//! | `Leaving`, `Remove`, `Kill`, `Fail`, `Replica` | the member that has the runtime |
//! | `Move`, `Delete` | the member of the flow, or of the runtime that gives; otherwise all with a runtime that gives. A count without a target goes to the least load |
//! | `Receipt` | the members of its parts; a member that does not answer is an error here, since an order may go on there |
//! | `Orders`, `Cancel`, `Add`, `Stop` | one member, which must be said |
//! | `Change` | all members, in two phases ([`super::changing`]) |
//! | `Watch` | all members, each of which has a part of it ([`super::observing`]) |
//!
//! Members are the processes that the newest view has, and those that are connected to answer.
//! Numbers of runtimes are the cluster's, and the view says whose they are.
//!
//! Members without an answer are in [`Members::missing`]; if none answers, that is an error. Merged
//! answers name their member (`member`).
//!
//! Not here: which requests the coordinator relays, and which callers it refuses
//! (`coordinator::relay`, [`super::rights`]).

use super::changing;
use super::counted::Counts;
use super::merging::{merged, tagged};
use super::observing;
use super::rights::Reach;
use super::{Answer, FOREIGN, Key, Reply, Request};
use crate::apply::trial::TrialStatus;
use crate::cluster::{Cursor, Observed};
use crate::moving::{Deletion, Order, OrderPart, Receipt};
use crate::report::FlowList;
use crate::run::part::MEMBERS_RUNTIMES;
use crate::tables::{Said, Told};
use coordinator::agent::{CallError, Tried};
use coordinator::operator::{Line, Operator};
use coordinator::proto::{Decided, Standing, StatusAnswer, WorkerRole};
use coordinator::refusal::{self, Refusal};
use runtime::switch::Load;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The coordinator's status is looked at again after so long.
const LOOK: Duration = Duration::from_secs(1);
/// Flows in an answer at first; where they are longer than an answer may be, fewer are asked for.
const FLOWS_AT_ONCE: usize = 250;

/// The members that are there, and the member of each runtime.
#[derive(Default, Debug)]
struct Plan {
    members: BTreeSet<String>,
    runtimes: BTreeMap<u16, String>,
    /// The loads of runtimes that get new groups.
    loads: BTreeMap<u16, Load>,
    /// Incarnations of members with runtimes.
    incarnations: BTreeMap<String, u64>,
    /// Members whose earlier counts the coordinator has.
    counted: Vec<String>,
    /// The configuration on trial.
    trial: Option<TrialStatus>,
}

impl Plan {
    fn of(status: &StatusAnswer) -> Self {
        let mut plan = Plan {
            members: status.serving.iter().cloned().collect(),
            runtimes: BTreeMap::new(),
            loads: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            counted: status.counted.clone(),
            trial: status.configuration.as_ref().and_then(trial_of),
        };
        for member in &status.members {
            plan.members.insert(member.name.clone());
            let worker = member.member.as_ref().and_then(|member| member.worker.as_ref());
            if let Some(worker) = worker.filter(|worker| worker.role() == WorkerRole::Runtime)
                && let Ok(number) = u16::try_from(worker.number)
            {
                plan.runtimes.insert(number, member.name.clone());
                plan.incarnations.insert(member.name.clone(), worker.incarnation);
                let standing = member.member.as_ref().map(|member| member.standing());
                let load = member.load.filter(|_| !member.suspected);
                if let (Some(Standing::Running), Some(load)) = (standing, load) {
                    let of = Load {
                        packets: load.packet_rate,
                        cpu: load.cpu.into(),
                    };
                    plan.loads.insert(number, of);
                }
            }
        }
        plan
    }

    /// The runtime with the smallest load of those that are meant; none, if loads are not known.
    fn least_loaded(&self, is_meant: impl Fn(u16) -> bool) -> Option<u16> {
        let takers = self.loads.iter().filter(|(number, _)| is_meant(**number));
        let (numbers, loads): (Vec<u16>, Vec<Option<Load>>) =
            takers.map(|(number, load)| (*number, Some(*load))).unzip();
        let shares = Load::shares(&loads).into_iter().zip(numbers);
        let known = shares.filter_map(|(share, number)| Some((share?, number)));
        known.min().map(|(_, number)| number)
    }

    /// Members with a runtime that is meant.
    fn with_runtimes(&self, is_meant: impl Fn(u16) -> bool) -> Vec<String> {
        let meant = self.runtimes.iter().filter(|(number, _)| is_meant(**number));
        let members: BTreeSet<&String> = meant.map(|(_, member)| member).collect();
        members.into_iter().cloned().collect()
    }
}

/// The configuration on trial, by the coordinator.
fn trial_of(decided: &Decided) -> Option<TrialStatus> {
    (decided.trial > 0).then(|| TrialStatus {
        file: format!("configuration {} of the cluster", decided.number),
        generation: decided.number,
        seconds_left: Duration::from_millis(decided.trial).as_secs_f64(),
    })
}

/// A member, and its answer or why there is none.
pub(super) type OfMember = (String, Result<Answer, String>);

/// All members, or one of them.
pub struct Members {
    line: Line,
    only: Option<String>,
    plan: Plan,
    looked: Option<Instant>,
    flows_at_once: usize,
    missing: BTreeMap<String, String>,
    pub(super) watch: Option<observing::Watch>,
}

impl Drop for Members {
    fn drop(&mut self) {
        observing::end(self);
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members")
            .field("only", &self.only)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Members {
    /// By this coordinator: all members, or a named one.
    pub fn connect(operator: &Operator, only: Option<String>) -> Result<Self, String> {
        let mut members = Members {
            line: operator.connect().map_err(|error| error.to_string())?,
            only,
            plan: Plan::default(),
            looked: None,
            flows_at_once: FLOWS_AT_ONCE,
            missing: BTreeMap::new(),
            watch: None,
        };
        members.look()?;
        Ok(members)
    }

    /// Which coordinator answers, and why those before it did not.
    pub fn tried(&self) -> Tried {
        self.line.tried()
    }

    /// Members of which an answer is missing, and why.
    pub fn missing(&self) -> &BTreeMap<String, String> {
        &self.missing
    }

    /// The same, of the questions since the last time.
    pub fn take_missing(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.missing)
    }

    /// The runtimes of each member that is in view, looked at now.
    pub fn runtimes_of(&mut self) -> Result<BTreeMap<u16, String>, String> {
        self.looked = None;
        self.look()?;
        Ok(self.plan.runtimes.clone())
    }

    /// A token by which one process becomes this member, good for so many seconds.
    pub fn token(&mut self, member: &str, valid: u64) -> Result<String, String> {
        self.line
            .token(member, valid)
            .map_err(|error| with_remedy(&error))
    }

    /// One member is told to end.
    pub fn stop(&mut self, member: &str) -> Result<(), String> {
        match self.ask_one(member, &Request::Stop)? {
            Answer::Stopping => Ok(()),
            _ => Err(FOREIGN.to_owned()),
        }
    }

    /// Whose runtime it is.
    pub fn member_of(&self, runtime: u16) -> Option<&str> {
        self.plan.runtimes.get(&runtime).map(String::as_str)
    }

    /// Looks which members are there, if the last look is long ago; whether it did.
    pub(super) fn look(&mut self) -> Result<bool, String> {
        let is_long_ago = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if is_long_ago {
            let status = self.line.status().map_err(|error| error.to_string())?;
            self.plan = Plan::of(&status);
            self.looked = Some(Instant::now());
        }
        Ok(is_long_ago)
    }

    /// The members that a watch concerns.
    pub(super) fn there(&self) -> Vec<String> {
        match &self.only {
            Some(only) => vec![only.clone()],
            None => self.plan.members.iter().cloned().collect(),
        }
    }

    /// These have not answered.
    pub(super) fn miss(&mut self, members: BTreeMap<String, String>) {
        self.missing.extend(members);
    }

    /// The observations of the watch since the last time; with `is_last`, all of them.
    pub fn observed(&mut self, is_last: bool) -> Result<Observed, String> {
        observing::observed(self, is_last)
    }

    /// Asks the members that a request concerns.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        if let (Request::Change(ask), None) = (request, &self.only) {
            let change = changing::change(self, ask)?;
            return Ok(Answer::Change(Box::new(change)));
        }
        if let (Request::Confirm, None) = (request, &self.only) {
            return changing::confirm(self).map(Answer::Confirmed);
        }
        if let Request::Watch(observe) = request {
            return observing::begin(self, observe);
        }
        if let Reach::OneProcess(why) = request.reach() {
            return Err(why.to_owned());
        }
        self.look()?;
        if let Some(only) = self.only.clone() {
            return match request {
                Request::Flows { from, limit } => self.flows_of(&only, *from, *limit).map(Answer::Flows),
                _ => self.ask_one(&only, request),
            };
        }
        let all = || self.plan.members.iter().cloned().collect();
        let with_runtimes = || self.plan.with_runtimes(|_| true);
        match request {
            Request::Status => {
                let trial = self.plan.trial.clone();
                let mut answer = self.ask_several(all(), request)?;
                if let Answer::Status(status) = &mut answer {
                    status.trial = trial;
                }
                Ok(answer)
            }
            Request::Flow(_) | Request::Explain(_) | Request::Threads => self.ask_several(all(), request),
            Request::Function { name, words } => {
                let mut answer = self.ask_several(with_runtimes(), request)?;
                if let Answer::Function(answers) = &mut answer {
                    self.add_what_is_gone(answers, name, words);
                }
                Ok(answer)
            }
            Request::Replication { .. } => self.ask_several(with_runtimes(), request),
            Request::Flows { from, limit } => self.page(*from, *limit),
            Request::Leaving { runtime, .. }
            | Request::Remove { runtime }
            | Request::Kill { runtime }
            | Request::Fail { runtime } => {
                let owner = self.owner(*runtime)?;
                self.ask_one(&owner, request)
            }
            Request::Replica { runtime, replica } => {
                if let Some(replica) = replica {
                    self.owner(*replica)?;
                }
                let owner = self.owner(*runtime)?;
                self.ask_one(&owner, request)
            }
            Request::Move(order) => self.order(order),
            Request::Delete(order) => match self.givers(order)? {
                none if none.is_empty() => Ok(Answer::Deleted(Deletion::default())),
                givers => self.ask_several(givers, request),
            },
            Request::Receipt { parts } => self.receipt(parts),
            Request::Counted => Err(self.say_member("a member says what it has counted")),
            Request::Orders | Request::Cancel { .. } => {
                Err(self.say_member("orders have numbers at each member"))
            }
            Request::Add { .. } => Err(MEMBERS_RUNTIMES.to_owned()),
            Request::Stop => Err(self.say_member("one member is told to end at a time")),
            Request::Prepare(_) | Request::TakeBack { .. } | Request::PartDone { .. } | Request::Chains => {
                Err(self.say_member("a member is asked for its half"))
            }
            Request::WatchPart { .. } | Request::ObservedPart { .. } | Request::EndWatch { .. } => {
                Err(self.say_member("a member is asked for its part"))
            }
            Request::Change(_)
            | Request::Confirm
            | Request::Watch(_)
            | Request::Observed
            | Request::CopyStore { .. } => Err(FOREIGN.to_owned()),
        }
    }

    /// Of the runtimes of other members, the one with the least load: it may keep the copies of
    /// this one's flows.
    pub fn replica_by_load(&mut self, runtime: u16) -> Result<u16, String> {
        self.look()?;
        let owner = self.owner(runtime)?;
        let is_apart = |other: u16| {
            self.plan
                .runtimes
                .get(&other)
                .is_some_and(|member| *member != owner)
        };
        self.plan.least_loaded(is_apart).ok_or_else(|| {
            format!(
                "no runtime of another member than `{owner}` runs, or they do too little to tell which has the least load: name one with --at"
            )
        })
    }

    /// Which incarnation of a runtime the newest view has.
    pub fn incarnation_of(&mut self, runtime: u16) -> Result<Option<u64>, String> {
        let status = self.line.status().map_err(|error| error.to_string())?;
        let all = status
            .members
            .iter()
            .filter_map(|member| member.member.as_ref()?.worker);
        let mut its =
            all.filter(|worker| worker.role() == WorkerRole::Runtime && worker.number == u32::from(runtime));
        Ok(its.next().map(|worker| worker.incarnation))
    }

    /// Adds the counts of ended members, if a request is for one of a function's tables. Unknown
    /// counts are missing.
    fn add_what_is_gone(&mut self, answers: &mut Vec<Told>, function: &str, words: &[String]) {
        let is_table = answers.iter().any(|told| matches!(told.said, Said::Rows(_)));
        let (true, Some(table)) = (is_table, words.first()) else {
            return;
        };
        for member in self.plan.counted.clone() {
            let counts = match self.line.counted(&member) {
                Ok(counts) => serde_json::from_slice::<Counts>(&counts).unwrap_or_default(),
                Err(error) => {
                    let why = format!("its earlier counts: {}", with_remedy(&error));
                    self.missing.entry(member).or_insert(why);
                    continue;
                }
            };
            let living = self.plan.incarnations.get(&member).copied();
            answers.extend(counts.gone(living, &member, function, table));
        }
        answers.sort_by_key(|told| (told.runtime, told.gone));
    }

    fn say_member(&self, why: &str) -> String {
        let members: Vec<&str> = self.plan.members.iter().map(String::as_str).collect();
        format!("{why}: say which one with --member ({})", members.join(", "))
    }

    fn owner(&self, runtime: u16) -> Result<String, String> {
        self.plan.runtimes.get(&runtime).cloned().ok_or_else(|| {
            let there = self.plan.runtimes.iter();
            let there: Vec<String> = there
                .map(|(number, member)| format!("{number} ({member})"))
                .collect();
            format!(
                "no member has runtime {runtime} by the coordinator's view, which has runtimes {}",
                if there.is_empty() {
                    "none".to_owned()
                } else {
                    there.join(", ")
                }
            )
        })
    }

    /// Asks one, which must answer.
    fn ask_one(&mut self, member: &str, request: &Request) -> Result<Answer, String> {
        let (_, answer) = self.relay(vec![(member.to_owned(), request.clone())])?.remove(0);
        Ok(tagged(answer?, member))
    }

    /// Asks several members; silent ones are missing.
    fn ask_several(&mut self, members: Vec<String>, request: &Request) -> Result<Answer, String> {
        let requests = members.into_iter().map(|member| (member, request.clone()));
        let mut answers = Vec::new();
        for (member, answer) in self.relay(requests.collect())? {
            match answer {
                Ok(answer) => answers.push((member, answer)),
                Err(why) => drop(self.missing.insert(member, why)),
            }
        }
        if answers.is_empty() {
            let missing: BTreeSet<&str> = self.missing.values().map(String::as_str).collect();
            return Err(match missing.is_empty() {
                true => "no member is there by the coordinator's view; `flowkeep cluster status` shows it"
                    .to_owned(),
                false => missing.into_iter().collect::<Vec<_>>().join("\n"),
            });
        }
        merged(answers, &self.missing).ok_or_else(|| FOREIGN.to_owned())
    }

    /// The way to the coordinator itself.
    pub(super) fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    /// Each member's answer, or why there is none; an error is one of all of them.
    pub(super) fn relay(&mut self, requests: Vec<(String, Request)>) -> Result<Vec<OfMember>, String> {
        let mut bytes = Vec::new();
        for (member, request) in &requests {
            let request = serde_json::to_vec(request).map_err(|error| error.to_string())?;
            bytes.push((member.clone(), request));
        }
        let answers = self.line.relay(bytes);
        let mut all = Vec::new();
        for ((member, _), answer) in requests.into_iter().zip(answers) {
            let answer = match answer {
                Ok(bytes) => read(&member, &bytes),
                Err(error) if is_of_member(&error) => Err(error.to_string()),
                Err(error) => return Err(with_remedy(&error)),
            };
            all.push((member, answer));
        }
        Ok(all)
    }

    /// Flows behind a cursor, of one member; the next cursor may be another member's.
    fn page(&mut self, from: Cursor, limit: usize) -> Result<Answer, String> {
        let Some((&number, member)) = self.plan.runtimes.range(from.runtime..).next() else {
            return Ok(Answer::Flows(FlowList::default()));
        };
        let member = member.clone();
        let cursor = match number == from.runtime {
            true => from,
            false => Cursor {
                runtime: number,
                actor: 0,
            },
        };
        let mut list = match self.flows_of(&member, cursor, limit) {
            Ok(list) => list,
            Err(why) => {
                self.missing.insert(member.clone(), why);
                FlowList::default()
            }
        };
        if list.next.is_none() {
            let mut behind = self.plan.runtimes.range(number..);
            let next = behind.find(|(_, other)| **other != member);
            list.next = next.map(|(number, _)| Cursor {
                runtime: *number,
                actor: 0,
            });
        }
        Ok(Answer::Flows(list))
    }

    /// As many of a member's flows as an answer may have.
    fn flows_of(&mut self, member: &str, from: Cursor, limit: usize) -> Result<FlowList, String> {
        loop {
            let limit = limit.min(self.flows_at_once);
            let request = serde_json::to_vec(&Request::Flows { from, limit });
            let request = request.map_err(|error| error.to_string())?;
            let mut answers = self.line.relay(vec![(member.to_owned(), request)]);
            match answers.remove(0) {
                Err(CallError::Refused(status)) if refusal::is(&status, Refusal::TooLong) && limit > 1 => {
                    self.flows_at_once = limit / 2;
                }
                Err(error) => return Err(with_remedy(&error)),
                Ok(bytes) => match tagged(read(member, &bytes)?, member) {
                    Answer::Flows(list) => return Ok(list),
                    _ => return Err(FOREIGN.to_owned()),
                },
            }
        }
    }

    /// Members that are to give flows away, or to end them.
    fn givers(&mut self, order: &Order) -> Result<Vec<String>, String> {
        if let Some(from) = order.from {
            return Ok(vec![self.owner(from)?]);
        }
        if let Some(key) = order.flow {
            return self.at(key);
        }
        Ok(self.plan.with_runtimes(|number| !order.to.contains(&number)))
    }

    /// The member that has a flow.
    fn at(&mut self, key: Key) -> Result<Vec<String>, String> {
        match self.ask(&Request::Flow(key))? {
            Answer::Flow(Some(flow)) => Ok(vec![self.owner(flow.runtime)?]),
            Answer::Flow(None) => Ok(Vec::new()),
            _ => Err(FOREIGN.to_owned()),
        }
    }

    /// Runtimes that take no flows, as they say themselves: drained or full.
    fn closed(&mut self) -> Result<BTreeSet<u16>, String> {
        let Answer::Status(status) = self.ask(&Request::Status)? else {
            return Err(FOREIGN.to_owned());
        };
        let closed = status.runtimes.iter();
        let closed = closed.filter(|of| of.leaving || of.absent || of.flows >= of.flows_max);
        Ok(closed.map(|of| of.runtime).collect())
    }

    fn order(&mut self, order: &Order) -> Result<Answer, String> {
        for to in &order.to {
            self.owner(*to)?;
        }
        let givers = self.givers(order)?;
        let mut order = order.clone();
        // Some flows of one runtime leave it, and go to the runtime with the least load.
        if order.to.is_empty() && order.count.is_some() {
            let closed = self.closed()?;
            let takes = |number| Some(number) != order.from && !closed.contains(&number);
            order.to.extend(self.plan.least_loaded(takes));
        }
        if order.count.is_some() && order.from.is_none() && givers.len() > 1 {
            return Err(
                "a count is of one runtime, and several members have runtimes that give; say which: --from N"
                    .to_owned(),
            );
        }
        match givers.is_empty() {
            true => Ok(Answer::Ordered(Vec::new())),
            false => self.ask_several(givers, &Request::Move(order)),
        }
    }

    /// The receipt of parts of an order, all of them.
    fn receipt(&mut self, parts: &[OrderPart]) -> Result<Answer, String> {
        let mut of_member: BTreeMap<String, Vec<OrderPart>> = BTreeMap::new();
        for part in parts {
            of_member.entry(self.owner(part.0)?).or_default().push(*part);
        }
        let requests = of_member.into_iter();
        let requests = requests.map(|(member, parts)| (member, Request::Receipt { parts }));
        let mut whole = Receipt::empty();
        for (_, answer) in self.relay(requests.collect())? {
            match answer? {
                Answer::Receipt(receipt) => whole.add_beside(&receipt),
                _ => return Err(FOREIGN.to_owned()),
            }
        }
        Ok(Answer::Receipt(whole))
    }
}

/// A member's answer, of bytes that may be anything.
fn read(member: &str, bytes: &[u8]) -> Result<Answer, String> {
    match serde_json::from_slice(bytes) {
        Ok(Reply::Ok(answer)) => Ok(answer),
        Ok(Reply::Error(problem)) => Err(format!("member `{member}`: {problem}")),
        Err(error) => Err(format!(
            "member `{member}`: this answer cannot be read (is it of another version?): {error}"
        )),
    }
}

/// Whether it is one member that has no answer: others may have.
fn is_of_member(error: &CallError) -> bool {
    const OF_MEMBER: [Refusal; 5] = [
        Refusal::MemberAway,
        Refusal::MemberSilent,
        Refusal::MemberBusy,
        Refusal::MemberFailed,
        Refusal::TooLong,
    ];
    match error {
        CallError::Refused(status) => OF_MEMBER.into_iter().any(|of| refusal::is(status, of)),
        _ => false,
    }
}

pub(super) fn with_remedy(error: &CallError) -> String {
    match error {
        CallError::Refused(status) if refusal::is(status, Refusal::Role) => {
            format!("{error}. Nothing was done; show another certificate: --name operate, or --name admin")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::proto;

    fn member(number: u32, standing: Standing, packet_rate: u64, suspected: bool) -> proto::MemberStatus {
        let worker = proto::Worker {
            role: WorkerRole::Runtime.into(),
            number,
            incarnation: 1,
        };
        proto::MemberStatus {
            name: format!("m{number}"),
            member: Some(proto::Member {
                worker: Some(worker),
                standing: standing.into(),
            }),
            load: Some(proto::Load {
                packet_rate,
                cpu: 10,
                ..proto::Load::default()
            }),
            suspected,
            ..proto::MemberStatus::default()
        }
    }

    #[test]
    fn the_least_loaded_is_one_that_takes_flows() {
        let plan = Plan::of(&StatusAnswer {
            members: vec![
                member(0, Standing::Running, 900, false),
                member(1, Standing::Running, 300, false),
                member(2, Standing::Leaving, 100, false),
                member(3, Standing::Running, 100, true),
                member(70_000, Standing::Running, 0, false),
            ],
            ..StatusAnswer::default()
        });
        assert_eq!(plan.least_loaded(|_| true), Some(1));
        assert_eq!(plan.least_loaded(|number| number != 1), Some(0));
        assert_eq!(plan.least_loaded(|_| false), None);
        // Too little is done to say.
        let idle = vec![
            member(0, Standing::Running, 3, false),
            member(1, Standing::Running, 2, false),
        ];
        let plan = Plan::of(&StatusAnswer {
            members: idle,
            ..StatusAnswer::default()
        });
        assert_eq!(plan.least_loaded(|_| true), None);
    }
}
