//! The agent's thread: joins, attends, connects again.
//!
//! A coordinator ends each connection after an hour. The agent has opened the next one by then, and
//! lets the old one go when the new one is heard, so it is never silent for that.
//!
//! A coordinator that says nothing for [`SILENCE`] counts as gone, and the next address is tried
//! first: its sockets may be open though it stands still, or its host is off. It says loads each
//! second. An agent counts silence in its own turns, so an agent that stood still itself leaves no
//! coordinator for that.

use super::connecting::{CallError, Client, connect, said};
use super::contacts::Contacts;
use super::decided::Decided;
use super::loads::Loads;
use super::member_slot::{AgentEnd, MemberSlot};
use crate::identity::Identity;
use crate::proto;
use crate::refusal::{self, Refusal};
use crate::translate;
use protocols::membership::{Role, Term, WorkerId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc as channel, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Between two attempts to connect: at first, and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Workloads that wait for the network at most; a further one is not sent, and the next one is.
const WORKLOADS_MAX: usize = 4;
/// A connection that lasted so long was good: the next one is tried at once.
pub(super) const LASTING: Duration = Duration::from_secs(1);
/// After such a silence of a coordinator the next one is tried; and where there are several, each
/// may take so long to be reached.
pub(crate) const SILENCE: Duration = Duration::from_millis(2500);
/// For how many heartbeats of a silence one turn counts at most.
const TURN_MAX: u32 = 10;
/// Between two attempts to take another connection while there is one.
const RENEWAL_AGAIN: Duration = Duration::from_secs(10);
/// How long a call may take to be answered.
const CALL: Duration = Duration::from_secs(30);

/// An agent's reports on itself.
#[derive(Clone, Debug)]
pub enum AgentEvent {
    /// The coordinator at this address is heard.
    Attends(String),
    /// No coordinator is heard, and why the last one was not.
    Alone(String),
}

/// Writes an incarnation down.
pub type Keep = Arc<dyn Fn(u64) -> Result<(), String> + Send + Sync>;

/// The settings that an agent begins with.
#[derive(Clone)]
pub struct AgentSettings {
    /// Where coordinators may be.
    pub coordinators: Vec<String>,
    /// The member's certificate.
    pub identity: Identity,
    /// Above that of every earlier incarnation of this member.
    pub incarnation: u64,
    /// The first incarnation of the file that this one is of; 0: not known. No process has an
    /// earlier one of that file any more: its workers act no more.
    pub first: u64,
    /// A worker for each.
    pub roles: Vec<Role>,
    /// The number of each, as the members' configuration has it; none at all: any.
    pub numbers: Vec<u16>,
    /// The plan of the member's configuration, if that lists the member.
    pub plan: Option<proto::Plan>,
    /// How the members are reached that no configuration lists.
    pub contacts: Arc<Contacts>,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// After which time it takes another connection, before the coordinator ends the one there is.
    pub renewal: Duration,
    /// How long to try to join.
    pub patience: Duration,
    /// Which configuration was decided, and is in force here.
    pub decided: Arc<Decided>,
    /// The loads of the cluster's runtimes.
    pub loads: Arc<Loads>,
    /// Writes a higher incarnation down before it is used; or why it is not written.
    pub keep: Keep,
    /// For the agent's events. Called by its thread.
    pub events: Arc<dyn Fn(AgentEvent) + Send + Sync>,
}

/// Why a member did not join, or did not leave.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No coordinator took it in. The last answer.
    #[error("not joined: {0}")]
    NotJoined(CallError),
    /// The answer is none.
    #[error("the coordinator's answer is not what it must be")]
    Answer,
    /// A worker acts still.
    #[error("worker {0:?} has not ended: a member leaves when all of its workers have")]
    Acting(WorkerId),
    /// It is not known whether it has left.
    #[error("not left: {0}")]
    NotLeft(String),
    /// A thread.
    #[error("no thread: {0}")]
    Thread(#[from] std::io::Error),
}

enum Order {
    Leave(oneshot::Sender<Result<(), String>>),
}

/// A member's agent. Its thread ends when this is dropped.
pub struct Agent {
    orders: Option<channel::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    shared: Vec<(WorkerId, Arc<super::member_slot::Shared>)>,
}

impl Agent {
    /// Joins, and starts to attend: the agent, and a member slot for each worker.
    pub fn join(settings: AgentSettings) -> Result<(Self, Vec<MemberSlot>), AgentError> {
        let (orders, queue) = channel::channel(1);
        let (joined, answer) = mpsc::channel();
        let thread = thread::Builder::new().name("agent".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(run(settings, queue, &joined)),
                Err(why) => {
                    let _ = joined.send(Err(why.into()));
                }
            }
        })?;
        let answer = answer.recv().unwrap_or(Err(AgentError::Answer));
        let (member_slots, shared) = match answer {
            Ok(joined) => joined,
            Err(why) => {
                let _ = thread.join();
                return Err(why);
            }
        };
        let agent = Agent {
            orders: Some(orders),
            thread: Some(thread),
            shared,
        };
        Ok((agent, member_slots))
    }

    /// The member's workers have no flow left and their member slots are dropped: they are members
    /// no more when this returns.
    pub fn leave(self) -> Result<(), AgentError> {
        let acting =
            |(_, shared): &&(WorkerId, Arc<super::member_slot::Shared>)| !shared.gone.load(Ordering::Acquire);
        if let Some((id, _)) = self.shared.iter().find(acting) {
            return Err(AgentError::Acting(*id));
        }
        let (answer, answered) = oneshot::channel();
        let order = self
            .orders
            .as_ref()
            .map(|orders| orders.try_send(Order::Leave(answer)));
        match order {
            Some(Ok(())) => {}
            _ => return Err(AgentError::NotLeft("the agent has ended".to_owned())),
        }
        let answered = answered.blocking_recv();
        answered
            .unwrap_or_else(|_| Err("the agent has ended".to_owned()))
            .map_err(AgentError::NotLeft)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

type Joined = Result<(Vec<MemberSlot>, Vec<(WorkerId, Arc<super::member_slot::Shared>)>), AgentError>;

/// Addresses in turn, with longer and longer pauses.
pub(super) struct Ways {
    addresses: Vec<String>,
    next: usize,
    pause: Duration,
}

impl Ways {
    pub(super) fn new(addresses: Vec<String>) -> Self {
        Ways {
            addresses,
            next: 0,
            pause: PAUSE,
        }
    }

    pub(super) async fn connect(&mut self, identity: &Identity) -> Result<(String, Client), CallError> {
        let address = self.addresses.get(self.next).cloned().unwrap_or_default();
        self.next = (self.next + 1) % self.addresses.len().max(1);
        let connecting = connect(&address, identity);
        let client = match self.addresses.len() {
            ..=1 => connecting.await?,
            _ => timeout(SILENCE, connecting)
                .await
                .map_err(|_| silent(&address))??,
        };
        Ok((address, client))
    }

    /// The address that worked last is tried first.
    pub(super) fn keep(&mut self) {
        let count = self.addresses.len().max(1);
        self.next = (self.next + count - 1) % count;
        self.pause = PAUSE;
    }

    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

fn silent(address: &str) -> CallError {
    CallError::Connection {
        address: address.to_owned(),
        why: "it does not answer in time".to_owned(),
    }
}

/// For how long a coordinator has been silent, in an agent's own turns.
struct Silence {
    looked: Instant,
    lasts: Duration,
}

impl Silence {
    fn begin() -> Self {
        Silence {
            looked: Instant::now(),
            lasts: Duration::ZERO,
        }
    }

    /// Another turn. Whether it has lasted too long.
    fn is_too_long(&mut self, turn_max: Duration) -> bool {
        let passed = self.looked.elapsed();
        self.looked += passed;
        self.lasts += passed.min(turn_max);
        self.lasts >= SILENCE
    }
}

pub(super) async fn within<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    let answered = timeout(CALL, call).await;
    let answered = answered.map_err(|_| Status::deadline_exceeded("no answer in time"))?;
    answered.map(tonic::Response::into_inner)
}

async fn run(settings: AgentSettings, mut orders: channel::Receiver<Order>, joined: &mpsc::Sender<Joined>) {
    let mut ways = Ways::new(settings.coordinators.clone());
    let mut settings = settings;
    let answer = match join(&mut settings, &mut ways).await {
        Ok(answer) => answer,
        Err(why) => {
            let _ = joined.send(Err(AgentError::NotJoined(why)));
            return;
        }
    };
    let Some((member_slots, mut agent_ends)) = member_slots(&answer, settings.roles.len()) else {
        let _ = joined.send(Err(AgentError::Answer));
        return;
    };
    let shared = agent_ends
        .iter()
        .map(|agent_end| (agent_end.id, agent_end.shared.clone()))
        .collect();
    if joined.send(Ok((member_slots, shared))).is_err() {
        return;
    }
    let mut is_alone = true;
    loop {
        let mut begun = None;
        let over = match ways.connect(&settings.identity).await {
            Ok((address, client)) => {
                begun = Some(Instant::now());
                let ended = attend(
                    (client, &address),
                    &settings,
                    &mut agent_ends,
                    &mut orders,
                    || {
                        if std::mem::take(&mut is_alone) {
                            (settings.events)(AgentEvent::Attends(address.clone()));
                        }
                    },
                )
                .await;
                match ended {
                    Ended::Agent => return,
                    Ended::Silent => format!("{address} has said nothing for {SILENCE:?}"),
                    Ended::Connection(status) => {
                        ways.keep();
                        said(&status)
                    }
                }
            }
            Err(why) => why.to_string(),
        };
        if !std::mem::replace(&mut is_alone, true) {
            (settings.events)(AgentEvent::Alone(over.clone()));
        }
        if orders.is_closed() {
            return;
        }
        if let Ok(Order::Leave(answer)) = orders.try_recv() {
            let _ = answer.send(Err(over));
        }
        // Others suspect a member that pauses.
        if begun.is_none_or(|begun| begun.elapsed() < LASTING) {
            ways.pause().await;
        }
    }
}

async fn join(settings: &mut AgentSettings, ways: &mut Ways) -> Result<proto::JoinAnswer, CallError> {
    let end = Instant::now() + settings.patience;
    let mut kept = settings.incarnation;
    loop {
        if std::mem::replace(&mut kept, settings.incarnation) != settings.incarnation {
            (settings.keep)(settings.incarnation).map_err(Status::internal)?;
        }
        let tried = async {
            let (_, mut client) = ways.connect(&settings.identity).await?;
            let request = proto::JoinRequest {
                incarnation: settings.incarnation,
                roles: settings.roles.iter().map(|role| translate::role(*role)).collect(),
                numbers: settings.numbers.iter().map(|number| u32::from(*number)).collect(),
                plan: settings.plan.clone(),
                first: settings.first,
            };
            Ok::<_, CallError>(within(client.join(request)).await?)
        };
        let why = match tried.await {
            Ok(answer) => {
                ways.keep();
                return Ok(answer);
            }
            Err(why) => why,
        };
        let is_final = match &why {
            // No worker of this incarnation has acted, and none will, so it may as well be a later
            // one. A clock that was ahead once may be years behind the newest.
            CallError::Refused(status) if refusal::is(status, Refusal::Incarnation) => {
                let newest = refusal::newest(status).unwrap_or(0).max(settings.incarnation);
                let next = newest
                    .checked_add(1)
                    .filter(|next| *next < translate::INCARNATIONS_END);
                settings.incarnation = next.unwrap_or(settings.incarnation);
                next.is_none()
            }
            CallError::Refused(status) => [
                Refusal::Role,
                Refusal::Malformed,
                Refusal::NoCertificate,
                Refusal::Full,
                Refusal::NumberTaken,
                Refusal::NotListed,
            ]
            .into_iter()
            .any(|refusal| refusal::is(status, refusal)),
            CallError::Connection { .. } => false,
            _ => true,
        };
        if is_final || Instant::now() >= end {
            return Err(why);
        }
        ways.pause().await;
    }
}

/// A member slot and an agent's end for each worker, if the answer has as many as were asked for,
/// all in its view.
fn member_slots(answer: &proto::JoinAnswer, count: usize) -> Option<(Vec<MemberSlot>, Vec<AgentEnd>)> {
    let view = translate::to_view(answer.view.as_ref()?)?;
    let incarnations = translate::to_workers(&answer.workers)?;
    let term = Term { lease: answer.lease };
    let is_good = incarnations.len() == count
        && incarnations
            .iter()
            .all(|(id, incarnation)| view.has(*id, *incarnation));
    is_good.then_some(())?;
    let both = incarnations
        .iter()
        .map(|(id, incarnation)| MemberSlot::new(*id, *incarnation, term, view.clone()));
    Some(both.unzip())
}

enum Ended {
    /// The member does not want the agent any more.
    Agent,
    /// The coordinator says nothing.
    Silent,
    /// Another connection is needed.
    Connection(Status),
}

/// The calls of a connection by which a member is heard, and hears.
struct Line {
    client: Client,
    workloads: channel::Sender<proto::Workload>,
    polled: JoinPoll,
    notifications: tonic::Streaming<proto::Notification>,
}

type JoinPoll = tokio::task::JoinHandle<Result<tonic::Response<proto::PollWorkloadAnswer>, Status>>;

impl Line {
    async fn open(mut client: Client) -> Result<Self, Status> {
        let (workloads, stream) = channel::channel(WORKLOADS_MAX);
        let mut beating = client.clone();
        let polled = tokio::spawn(async move { beating.poll_workload(ReceiverStream::new(stream)).await });
        let notifications = within(client.notify_view(proto::NotifyViewRequest {})).await?;
        Ok(Line {
            client,
            workloads,
            polled,
            notifications,
        })
    }

    /// Another connection to the same coordinator, in time before that ends the present one. Each
    /// member has its own share of the time, so they do not come all at once.
    async fn next(settings: &AgentSettings, address: &str) -> Self {
        let share = (settings.incarnation % 1000) as u32;
        let mut pause = settings.renewal + settings.renewal / 6 * share / 1000;
        loop {
            tokio::time::sleep(pause).await;
            if let Ok(client) = connect(address, &settings.identity).await
                && let Ok(line) = Line::open(client).await
            {
                return line;
            }
            pause = RENEWAL_AGAIN;
        }
    }
}

async fn attend(
    (client, address): (Client, &str),
    settings: &AgentSettings,
    agent_ends: &mut [AgentEnd],
    orders: &mut channel::Receiver<Order>,
    mut heard: impl FnMut(),
) -> Ended {
    let mut line = match timeout(SILENCE, Line::open(client)).await {
        Ok(Ok(line)) => line,
        Ok(Err(status)) => return Ended::Connection(status),
        Err(_) => return Ended::Silent,
    };
    let mut silence = Silence::begin();
    let mut next = std::pin::pin!(Line::next(settings, address));
    let mut beat = tokio::time::interval(settings.heartbeat);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Loads come each second, with a view and suspects that workers have.
    let mut known = (None, None);
    let mut shared = None;
    loop {
        tokio::select! {
            _ = beat.tick() => {
                if silence.is_too_long(settings.heartbeat * TURN_MAX) {
                    return Ended::Silent;
                }
                for agent_end in agent_ends.iter_mut() {
                    agent_end.hand();
                }
                let mut workload = workload(agent_ends);
                workload.configuration = settings.decided.in_force();
                if !workload.heartbeats.is_empty() || !workload.stopped.is_empty() {
                    // The network is slow: the next one says the same, newer.
                    let _ = line.workloads.try_send(workload);
                }
            }
            other = &mut next => {
                // Workloads that the old one has on their way still arrive.
                line = other;
                next.set(Line::next(settings, address));
            }
            notification = line.notifications.message() => match notification {
                Ok(Some(notification)) => {
                    silence = Silence::begin();
                    heard();
                    let newest = (notification.view.as_ref(), notification.suspects.as_ref());
                    let newest = (newest.0.map(|view| view.number), newest.1.map(|all| all.list));
                    if std::mem::replace(&mut known, newest) != newest {
                        take_over(agent_ends, &notification);
                    }
                    if let Some(sharing) = notification.sharing.as_ref().filter(|sharing| shared.as_ref() != Some(*sharing)) {
                        decide(agent_ends, sharing);
                        shared = Some(sharing.clone());
                    }
                    settings.loads.hear(&notification.loads);
                    settings.contacts.hear(&notification.contacts);
                    if let Some(decided) = &notification.configuration {
                        settings.decided.hear(decided);
                    }
                }
                Ok(None) => return Ended::Connection(Status::unavailable("the coordinator has ended the connection")),
                Err(status) => return Ended::Connection(status),
            },
            ended = &mut line.polled => {
                let status = match ended {
                    Ok(Err(status)) => status,
                    _ => Status::unavailable("the coordinator hears no heartbeats"),
                };
                return Ended::Connection(status);
            }
            order = orders.recv() => match order {
                None => return Ended::Agent,
                Some(Order::Leave(answer)) => {
                    let incarnation = agent_ends.first().map_or(0, |agent_end| agent_end.incarnation.0);
                    let left = within(line.client.leave(proto::LeaveRequest { incarnation })).await;
                    let _ = answer.send(left.map(|_| ()).map_err(|status| status.message().to_owned()));
                }
            },
        }
    }
}

/// The workers' heartbeats since the last time.
fn workload(agent_ends: &mut [AgentEnd]) -> proto::Workload {
    let mut workload = proto::Workload::default();
    for agent_end in agent_ends {
        let worker = translate::worker(agent_end.id, agent_end.incarnation);
        if agent_end.shared.gone.load(Ordering::Acquire) {
            workload.stopped.push(worker);
            continue;
        }
        let steps = agent_end.shared.steps.load(Ordering::Relaxed);
        if std::mem::replace(&mut agent_end.steps, steps) == steps {
            continue;
        }
        let mut withdrawn = Vec::new();
        while let Ok((id, incarnation, list)) = agent_end.withdrawn.pop() {
            let worker = Some(translate::worker(id, incarnation));
            withdrawn.push(proto::Withdrawn { worker, list });
        }
        while let Ok(unheard) = agent_end.unheards.pop() {
            agent_end.unheard = unheard;
        }
        while let Ok(report) = agent_end.reports.pop() {
            agent_end.report = Some(report);
        }
        let figures = &agent_end.shared.figures;
        workload.heartbeats.push(proto::Heartbeat {
            worker: Some(worker),
            view: agent_end.shared.view.load(Ordering::Acquire),
            list: agent_end.shared.list.load(Ordering::Acquire),
            ready: agent_end.shared.ready.load(Ordering::Relaxed),
            load: Some(proto::Load {
                packets: figures.packets.load(Ordering::Relaxed),
                dropped_packets: figures.dropped_packets.load(Ordering::Relaxed),
                cpu: figures.cpu.load(Ordering::Relaxed),
                memory: figures.memory.load(Ordering::Relaxed),
                flows: figures.flows.load(Ordering::Relaxed),
                packet_rate: figures.packet_rate.load(Ordering::Relaxed),
            }),
            withdrawn,
            unheard: translate::workers(&agent_end.unheard),
            shares: agent_end.report.as_ref().map(translate::shares),
        });
    }
    workload
}

/// Keeps the newest for each worker. A malformed view or list changes nothing.
fn take_over(agent_ends: &mut [AgentEnd], notification: &proto::Notification) {
    let view = notification.view.as_ref().and_then(translate::to_view);
    let suspects = notification.suspects.as_ref();
    let suspects = suspects.and_then(|all| Some((all.list, translate::to_workers(&all.workers)?)));
    for agent_end in agent_ends {
        agent_end.view = view.clone().or_else(|| agent_end.view.take());
        agent_end.suspects = suspects.clone().or_else(|| agent_end.suspects.take());
        agent_end.hand();
    }
}

/// Hands all runtimes a decision on which of them share objects. A malformed one changes nothing.
fn decide(agent_ends: &mut [AgentEnd], sharing: &proto::Sharing) {
    let Some(decision) = translate::to_sharing(sharing) else {
        return;
    };
    for agent_end in agent_ends
        .iter_mut()
        .filter(|agent_end| agent_end.id.role == Role::Runtime)
    {
        agent_end.decision = Some(decision.clone());
        agent_end.hand();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_stood_still_itself_leaves_no_coordinator_for_that() {
        let mut silence = Silence::begin();
        let turn = Duration::from_millis(1);
        silence.lasts = SILENCE - 2 * turn;
        thread::sleep(50 * turn);
        assert!(!silence.is_too_long(turn));
        thread::sleep(turn);
        assert!(silence.is_too_long(turn));
    }
}
