//! A whole cluster in this process: switches and runtimes on threads, a thread that watches them.
//!
//! # Theory of operation
//!
//! ```text
//!  build.rs   configuration ──► ports, rings, pools, switches, runtimes
//!  driver.rs  a thread: step its workers in turn, answer commands, nap when idle
//!  orders.rs  orders to move flows, and those under way
//!  watching.rs observations of watches while it runs
//!  mod.rs     watches: running ──(inputs finished, or stop)──► draining ──(all buffers home)──► finishing ──► done
//! ```
//!
//! *Draining*: ports are read no more; packets inside are finished. In a replay, time goes on by
//! itself until no call waits. *Finishing*: every flow ends as if expired, so that functions give
//! back their resources and write their last records. Both ends are seen from the workers' own
//! figures: buffers out of the switches' pools, packets held, flows left.
//!
//! Invariant: after a graceful stop nothing is held, and packets received and made equal packets
//! sent and dropped.
//!
//! Not here: the control socket and metrics, which ask through [`Cluster`].

mod adopting;
mod berth;
mod build;
mod changing;
mod checking;
mod counted;
mod decided;
mod driver;
mod event_lines;
mod events;
mod explaining;
mod export;
mod following;
mod handle;
mod inheriting;
pub mod job;
mod kernel;
mod laying;
mod links;
mod listing;
mod member_slots;
mod neighbours;
mod notices;
mod objects;
mod orders;
pub(crate) mod part;
mod placing;
pub mod privileges;
mod ready;
pub mod refusals;
mod scaling;
mod stamps;
mod stats;
mod threads;
mod trial;
mod watching;
mod worker_pool;

use crate::apply::report::Change;
use crate::apply::{Ask, Live, Source, joined};
use crate::cluster::{Cluster, Cursor, LinkStats, Snapshot, Subject, ThreadShare, Watching};
use crate::config::layout::{Layout, PortPlace};
use crate::config::{Config, ReplicationPolicy};
use crate::control::counted::Counts;
use crate::explain::{Explain, Explanation};
use crate::health::Board;
use crate::member::Membership;
use crate::moving::{self, Deletion, Killed, Leaving, Order, Receipt, Removal, UnderWay, no_such_runtime};
use crate::tables::Told;
use adapters::open::Ports;
use adapters::report::{Report, Reports};
use coordinator::agent::Agent;
use handle::{End, Handle, Question, Unanswered, WorkerAnswer};
use part::{MEMBERS_RUNTIMES, ProcessPart};
use runtime::worker::FlowView;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::FlowKey;
use worker_pool::{ThreadInbox, WorkerPool};

pub use build::RunError;
pub use build::memory::Memory;
pub use part::Links;
pub(crate) use watching::flag_letters;

/// The memory that a configuration needs; `None` where that cannot be counted. An error is one with
/// which it does not start. Takes its functions.
pub fn memory(config: &mut Config) -> Result<Option<Memory>, RunError> {
    build::memory::of(config)
}

/// Where event lines go.
pub struct Events {
    out: Box<dyn std::io::Write + Send>,
    name: String,
}

impl Events {
    /// To a writer with a name for messages. Bytes that it refuses are offered again.
    pub fn to(name: impl Into<String>, out: Box<dyn std::io::Write + Send>) -> Self {
        Events {
            out,
            name: name.into(),
        }
    }
}

/// A running cluster. Dropping it does not stop it; [`Running::wait`] waits for its end.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    writer: Option<JoinHandle<Result<(), String>>>,
    /// Says to the writer of events that the end has begun.
    ending: events::Ending,
    reports: Reports,
    /// Follows the kernel's tables, for chains that forward; ends when this does.
    kernel: Vec<kernel::Kernel>,
    /// The threads of the stores of variables.
    agencies: Vec<stores::Agency>,
    /// Of a cluster of several processes: that this process, and no other, is this member. Held
    /// until its links are gone.
    member: Option<Membership>,
    /// With a coordinator: the agent, and whether a view has removed a worker of this process.
    agent: Option<Agent>,
    fence: member_slots::Fence,
}

/// The state of a cluster when it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The last figures.
    pub snapshot: Snapshot,
    /// The failures at ports.
    pub reports: Vec<Report>,
    /// Whether the event log was written whole.
    pub events: Result<(), String>,
    /// Whether it had to be broken off with packets inside.
    pub broken_off: bool,
}

struct Shared {
    began: Instant,
    /// The switches of this process, by their numbers in the cluster.
    switches: BTreeMap<u16, Handle>,
    runtimes: RwLock<BTreeMap<u16, Handle>>,
    /// Port names of each of these switches.
    ports: Vec<Vec<String>>,
    layout: Layout,
    /// Of a cluster of several processes.
    part: Option<ProcessPart>,
    /// Makes links to other processes.
    neighbours: Option<Mutex<neighbours::Neighbours>>,
    /// Where runtimes come and go.
    worker_pool: Option<WorkerPool>,
    stop: AtomicBool,
    break_off: AtomicBool,
    last: Mutex<Option<Snapshot>>,
    /// The counts of functions at a member.
    own: counted::Own,
    packet_clock: bool,
    watch_registry: watching::WatchRegistry,
    threads: Vec<Thread>,
    /// Itself, for watches.
    me: Weak<Shared>,
    live: Live,
    notices: notices::Notices,
    /// The results of checks of servers, and whether they are made.
    checks: Arc<Board>,
    is_checking: AtomicBool,
    /// Orders to move flows, and words about which runtimes take them. No runtime is asked while it
    /// is held.
    orders: Mutex<orders::OrderTable>,
    /// The stores of variables, by their URIs.
    stores: Vec<crate::store::Named>,
    /// A member's switches whose ports bring nothing by themselves end when it is told to.
    has_inputs: bool,
}

/// A thread of workers, and the system's number for it; 0 before it has begun.
struct Thread {
    inbox: ThreadInbox,
    number: AtomicI32,
}

/// Starts a cluster. Event lines go to `events`, if anywhere.
pub fn start(config: Config, events: Option<Events>) -> Result<Running, RunError> {
    start_with(config, Ports::new(), events)
}

/// Starts a cluster whose `memory:` ports have their other ends in `ports`, for programs that embed
/// one.
pub fn start_with(config: Config, ports: Ports, events: Option<Events>) -> Result<Running, RunError> {
    start_from(config, ports, events, None)
}

/// As [`start_with`], of a configuration that can be changed while it runs, since it is known where
/// it came from.
pub fn start_from(
    config: Config,
    ports: Ports,
    events: Option<Events>,
    source: Option<Source>,
) -> Result<Running, RunError> {
    let layout = Layout::whole(&config);
    launch(config, layout, None, ports, events, source, None)
}

/// Starts all of a cluster or a member's part, by a configuration; once the ports are open this
/// thread, and all that it starts from then on, have no other rights than `privileges` leaves.
fn start_with_less(
    config: Config,
    member: Option<Membership>,
    events: Option<Events>,
    source: Option<Source>,
    privileges: &privileges::Privileges,
) -> Result<Running, RunError> {
    let layout = match &member {
        Some(member) => member.layout.clone(),
        None => Layout::whole(&config),
    };
    launch(
        config,
        layout,
        member,
        Ports::new(),
        events,
        source,
        Some(privileges),
    )
}

/// Starts the workers of one member of a cluster of several processes; the others are found when
/// they are there.
pub fn start_member(
    config: Config,
    member: Membership,
    ports: Ports,
    events: Option<Events>,
) -> Result<Running, RunError> {
    let layout = member.layout.clone();
    launch(config, layout, Some(member), ports, events, None, None)
}

fn launch(
    config: Config,
    layout: Layout,
    mut member: Option<Membership>,
    ports: Ports,
    events: Option<Events>,
    source: Option<Source>,
    privileges: Option<&privileges::Privileges>,
) -> Result<Running, RunError> {
    let part = member.as_ref().map(|member| ProcessPart::of(&config, member));
    let has_inputs = part.is_none() || layout.has_inputs(&config);
    let (lines, incoming) = mpsc::sync_channel::<String>(driver::EVENT_CHUNKS);
    let build::Built {
        threads,
        switches,
        runtimes,
        ports,
        reports,
        kernel,
        packet_clock,
        config,
        plan,
        infos,
        sides,
        inboxes,
        worker_pool,
        stores,
        neighbours,
    } = build::build(config, &layout, member.as_ref(), ports, &lines, privileges)?;
    let count = threads.len();
    let here: Vec<u16> = runtimes.keys().copied().collect();
    let on_threads = inboxes.into_iter().enumerate().map(|(thread, inbox)| {
        *lock(&inbox.workers) = threads::worker_names(&layout, &here, count, thread);
        Thread {
            inbox,
            number: AtomicI32::new(0),
        }
    });
    let on_threads = on_threads.collect();
    let fence = member_slots::Fence::default();
    let mut threads = threads;
    let (mut agent, mut loads) = (None, None);
    let policy = config.policy;
    let patience = config.replication.return_max.duration();
    let scaling = config.scaling.map(|scaling| {
        let rules = scaling.rules(config.runtimes, config.most_runtimes());
        (rules, scaling.interval())
    });
    if let Some(member) = &mut member
        && let Some(joining) = member.joining.take()
    {
        loads = Some(joining.loads());
        let (joined, all) = joining.join(&member.layout, &member.incarnation)?;
        agent = Some(joined);
        member_slots::assign_member_slots(&mut threads, all, &fence, stores.views.as_ref());
    }
    let own = counted::Own::of(member.as_ref());
    let shared = Arc::new_cyclic(|me| Shared {
        began: Instant::now(),
        switches,
        runtimes: RwLock::new(runtimes),
        ports,
        layout,
        part,
        neighbours: neighbours.map(Mutex::new),
        worker_pool,
        stop: AtomicBool::new(false),
        break_off: AtomicBool::new(false),
        last: Mutex::new(None),
        own,
        packet_clock,
        watch_registry: watching::WatchRegistry::default(),
        threads: on_threads,
        me: Weak::clone(me),
        live: Live::new(config, plan, source, infos, sides),
        notices: notices::Notices::to(lines),
        checks: Arc::default(),
        is_checking: AtomicBool::new(false),
        orders: Mutex::default(),
        stores: stores.stores,
        has_inputs,
    });
    let ending = events::Ending::default();
    let writer = std::thread::Builder::new().name("events".into());
    let known = (Weak::clone(&shared.me), packet_clock);
    let write = threads::writer_of(events, known, reports.clone(), ending.clone());
    let writer = writer.spawn(move || write(incoming)).map_err(RunError::Thread)?;
    let mut started = Vec::new();
    for (index, driver) in threads.into_iter().enumerate() {
        let thread = std::thread::Builder::new().name(format!("worker-{index}"));
        let known = Arc::clone(&shared);
        let work = move || {
            let number = rustix::thread::gettid().as_raw_nonzero().get();
            known.threads[index].number.store(number, Ordering::Relaxed);
            drop(known);
            driver.run();
        };
        started.push(thread.spawn(work).map_err(RunError::Thread)?);
    }
    checking::begin(&shared);
    placing::begin(&shared, policy, loads);
    scaling::begin(&shared, scaling);
    inheriting::begin(&shared, stores.common, patience);
    Ok(Running {
        shared,
        threads: started,
        writer: Some(writer),
        ending,
        reports,
        kernel,
        agencies: stores.agencies,
        member,
        agent,
        fence,
    })
}

/// How often the watching thread looks.
const LOOK: Duration = Duration::from_millis(2);
/// A cluster that makes no progress for so long while draining is broken off.
const STUCK: Duration = Duration::from_secs(10);

impl Running {
    /// Failures at ports, while it runs; reports that are taken here are not in the outcome.
    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// The links to other processes, for the thread that changes their keys.
    pub fn links(&self) -> Links {
        Links(self.shared.clone())
    }

    /// By which view a worker of this process was removed; 0 while none was. It has no effect any
    /// more, and the process is to begin again, or to end at once if its end is under way.
    pub fn fence(&self) -> Arc<AtomicU32> {
        self.fence.clone()
    }

    /// Says whether the end has begun, or was asked for.
    fn is_ending(&self) -> impl Fn() -> bool + use<> {
        let (shared, ending) = (self.shared.clone(), self.ending.clone());
        move || ending.has_begun() || shared.stop.load(Ordering::Relaxed)
    }

    /// The cluster, for threads that ask it things.
    pub fn cluster(&self) -> Arc<dyn Cluster> {
        self.shared.clone()
    }

    /// Waits until all inputs are finished or [`Cluster::stop`] was called, drains, and answers
    /// with the outcome. `each` is called every few milliseconds with nothing, for progress bars
    /// and signals.
    pub fn wait(mut self, mut each: impl FnMut(&dyn Cluster)) -> Outcome {
        let mut look = LOOK / 8;
        while !self.shared.stop.load(Ordering::Relaxed) && !self.shared.inputs_finished() {
            std::thread::sleep(look);
            look = (look * 2).min(LOOK);
            each(&*self.shared);
        }
        self.ending.begin();
        self.shared.live.trials().close();
        self.shared.checks.close();
        part::leave(&self.shared, &mut each);
        objects::leave(&self.shared, &mut each);
        for switch in self.shared.switches.values() {
            switch.end(End::StopReading);
        }
        let mut drained = self.drain(&mut each);
        if drained {
            for worker in self.shared.workers() {
                worker.end(End::Finish);
            }
            drained = self.drain(&mut each);
        }
        self.shared.watch_registry.close();
        self.shared.own.end(&self.shared);
        let snapshot = self.shared.ask_all();
        *self
            .shared
            .last
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(snapshot.clone());
        for handle in self.shared.workers() {
            handle.end(End::Quit);
        }
        for thread in &self.shared.threads {
            lock(&thread.inbox.worker_slots).take();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.kernel.clear();
        // Its flows have ended or are elsewhere, and its worker slots are given up. If no
        // coordinator hears this, one sees the process's end later.
        let left = self.agent.take().map(Agent::leave);
        if let Some(Err(why)) = left {
            use std::io::Write as _;
            let _ = writeln!(
                std::io::stderr(),
                "the coordinator has not heard that this member leaves: {why}"
            );
        }
        let left: u64 = self.agencies.drain(..).map(stores::Agency::end).sum();
        if left > 0 {
            let problem = format!("the last {left} batches of changes of variables are not in their store");
            self.reports
                .tell("store", problem, "see what it says above; those changes are lost");
        }
        drop(self.member.take());
        self.shared.notices.close();
        let events = match self.writer.take().map(JoinHandle::join) {
            Some(Ok(written)) => written,
            _ => Err("the thread that writes the event log has failed".into()),
        };
        // An operator that did not wait has lost nothing where nothing was inside.
        let is_empty = self.shared.is_to_break_off() && snapshot.is_empty();
        Outcome {
            snapshot,
            reports: self.reports.take(),
            events,
            broken_off: !drained && !is_empty,
        }
    }

    /// Waits until no packet is inside; `false` if that does not come to pass.
    fn drain(&self, each: &mut impl FnMut(&dyn Cluster)) -> bool {
        // Packets of this process at other ones do not show here: they are home when nothing has
        // come for a while.
        let quiet = self.shared.part.as_ref().map_or(Duration::ZERO, |_| part::QUIET);
        let mut before = None;
        let mut progress = Instant::now();
        let mut look = LOOK / 8;
        loop {
            let state = self.shared.drained();
            if before != Some(state) {
                progress = Instant::now();
            }
            if state.done && before == Some(state) && progress.elapsed() >= quiet {
                return true;
            }
            if progress.elapsed() > STUCK || self.shared.break_off.load(Ordering::Relaxed) {
                return false;
            }
            before = Some(state);
            std::thread::sleep(look);
            look = (look * 2).min(LOOK);
            each(&*self.shared);
        }
    }
}

/// How far a drain has come; equal twice in a row, it has come no further.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Drained {
    done: bool,
    moved: u64,
}

impl Shared {
    /// Whether all is to end at once.
    fn is_to_break_off(&self) -> bool {
        self.break_off.load(Ordering::Relaxed)
    }

    /// Does something with the maker of links to other processes, if there are others.
    fn with_neighbours<T>(&self, act: impl FnOnce(&mut neighbours::Neighbours) -> T) -> Option<T> {
        self.neighbours
            .as_ref()
            .map(|neighbours| act(&mut lock(neighbours)))
    }

    /// All workers of this process that are there now.
    fn workers(&self) -> impl Iterator<Item = Handle> {
        let all: Vec<Handle> = self.switches.values().cloned().collect();
        all.into_iter().chain(self.runtimes().into_values())
    }

    /// The runtimes of this process that are there now.
    fn runtimes(&self) -> BTreeMap<u16, Handle> {
        self.runtimes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn put_runtime(&self, number: u16, handle: Handle) {
        let mut runtimes = self.runtimes.write().unwrap_or_else(PoisonError::into_inner);
        runtimes.insert(number, handle);
        drop(runtimes);
        self.checks.say_again();
    }

    fn drop_runtime(&self, number: u16) {
        let mut runtimes = self.runtimes.write().unwrap_or_else(PoisonError::into_inner);
        runtimes.remove(&number);
        let name = format!("runtime {number}");
        for thread in &self.threads {
            lock(&thread.inbox.workers).retain(|worker| *worker != name);
        }
    }

    /// Why a runtime cannot be asked here.
    fn elsewhere(&self, runtime: u16) -> String {
        let part = self.part.as_ref();
        match part.and_then(|part| part.owner(runtime)) {
            Some((member, socket)) => format!(
                "runtime {runtime} is of member `{member}`; ask that one: --socket {}",
                socket.display()
            ),
            None => no_such_runtime(runtime),
        }
    }

    /// A runtime of this process, by its place among them.
    fn runtime_at(&self, place: usize) -> Option<Handle> {
        self.runtimes().into_values().nth(place)
    }

    /// The names of this process's ports, by their numbers in the cluster.
    fn port_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (switch, ports) in self.switches.keys().zip(&self.ports) {
            for (place, name) in ports.iter().enumerate() {
                let switch = usize::from(*switch);
                let number = PortPlace { switch, place }.number(self.layout.switches);
                if names.len() <= number {
                    names.resize(number + 1, String::new());
                }
                names[number].clone_from(name);
            }
        }
        names
    }

    fn inputs_finished(&self) -> bool {
        // A process without ports ends when it is told to; so does a member whose ports only take
        // others' packets, or answer them.
        !self.switches.is_empty()
            && self.has_inputs
            && self
                .switches
                .values()
                .all(|switch| matches!(switch.ask(Question::Finished), Ok(WorkerAnswer::Finished(true))))
    }

    fn drained(&self) -> Drained {
        let mut state = Drained { done: true, moved: 0 };
        let (mut buffers_out, mut packets_held) = (0, 0);
        for handle in self.workers() {
            let Ok(WorkerAnswer::Drained {
                home,
                out,
                held,
                moved,
            }) = handle.ask(Question::Drained)
            else {
                // The number of its packets is not known.
                state.done = false;
                continue;
            };
            state.done &= home;
            state.moved = state.moved.wrapping_add(moved);
            buffers_out += out;
            packets_held += held;
        }
        // A buffer that is out of the switches' pools and not held by a function is on its way.
        state.done &= buffers_out <= packets_held;
        state
    }
}

impl Cluster for Shared {
    fn snapshot(&self) -> Snapshot {
        let last = self
            .last
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*last {
            Some(last) => last.clone(),
            None => {
                drop(last);
                self.ask_all()
            }
        }
    }

    fn flows(&self, cursor: Cursor, limit: usize) -> Result<(Vec<FlowView>, Option<Cursor>), String> {
        listing::flows(self, cursor, limit)
    }

    fn flow(&self, key: &FlowKey) -> Option<FlowView> {
        let (runtimes, key) = (self.runtimes(), *key);
        let asked = |handle: &Handle| handle.runtime(move |runtime| runtime.flow(&key)).ok()?;
        runtimes.values().find_map(asked)
    }

    fn explain(&self, ask: &Explain) -> Option<Explanation> {
        explaining::explain(self, ask)
    }

    fn command(&self, function: &str, words: &[&str]) -> Result<Vec<Told>, String> {
        counted::ask(self, function, words)
    }

    fn counted(&self) -> Counts {
        self.own.counts(self)
    }

    fn watch(&self, subject: &Subject) -> Result<Box<dyn Watching>, String> {
        let me = self.me.upgrade().ok_or("the cluster is ending")?;
        watching::begin(me, subject)
    }

    fn copy_store(&self, store: &str, to: &std::path::Path) -> Result<(), String> {
        crate::store::copy::write(&self.stores, store, to)
    }

    fn threads(&self) -> Vec<ThreadShare> {
        let share = |thread: &Thread| ThreadShare {
            workers: lock(&thread.inbox.workers).clone(),
            cpu_ns: threads::cpu_ns(thread.number.load(Ordering::Relaxed)),
        };
        // A thread without a worker waits for one that comes.
        let all = self.threads.iter().map(share);
        all.filter(|thread| !thread.workers.is_empty()).collect()
    }

    fn change(&self, ask: &Ask) -> Result<Change, String> {
        trial::change(self, ask)
    }

    fn confirm(&self) -> Result<u64, String> {
        trial::confirm(self)
    }

    fn prepare_part(&self, part: &joined::PartRequest) -> Result<joined::Prepared, String> {
        self.live.prepare_part(part, self)
    }

    fn take_back_part(&self, number: u64, by: u64) {
        self.live.take_back_part((number, by), self);
    }

    fn part_done(&self, number: u64) -> Result<joined::PartDone, String> {
        self.live.part_done(number)
    }

    fn chains(&self) -> Result<String, String> {
        self.live.chains()
    }

    fn order(&self, order: &Order) -> Result<Vec<moving::OrderPart>, String> {
        let parts = self.give(order)?;
        event_lines::order(self, order, &parts);
        Ok(parts)
    }

    fn delete(&self, order: &Order) -> Result<Deletion, String> {
        event_lines::deleted(self, order, self.end_flows(order))
    }

    fn receipt(&self, parts: &[moving::OrderPart]) -> Result<Receipt, String> {
        self.receipt_of(parts)
    }

    fn orders(&self) -> Vec<UnderWay> {
        self.under_way()
    }

    fn cancel(&self, number: u32) -> Result<Vec<moving::OrderPart>, String> {
        self.take_back(number)
    }

    fn set_leaving(&self, runtime: u16, leaving: Leaving) -> Result<Vec<moving::OrderPart>, String> {
        event_lines::leaving(self, runtime, leaving, self.leave(runtime, leaving))
    }

    fn add_runtime(&self, runtime: Option<u16>) -> Result<u16, String> {
        match &self.worker_pool {
            Some(worker_pool) => event_lines::added(self, worker_pool.add(self, runtime)),
            None => Err(MEMBERS_RUNTIMES.into()),
        }
    }

    fn set_replication(&self, chain: &str, policy: Option<ReplicationPolicy>) -> Result<(), String> {
        let policy = policy.map(Into::into);
        for (number, handle) in self.runtimes().iter() {
            let chain = chain.to_owned();
            let asked = handle.runtime(move |runtime| runtime.set_replication(&chain, policy));
            match asked {
                Ok(answer) => answer?,
                other => return Err(silent(*number, &other, "the others before it have done it")),
            }
        }
        Ok(())
    }

    fn set_replica(&self, runtime: u16, replica: Option<u16>) -> Result<(), String> {
        let handle = self.runtimes().get(&runtime).cloned();
        let handle = handle.ok_or_else(|| no_such_runtime(runtime))?;
        match handle.runtime(move |runtime| runtime.set_replica(replica)) {
            Ok(answer) => answer,
            other => Err(silent(runtime, &other, "it may do it yet")),
        }
    }

    fn remove_runtime(&self, runtime: u16) -> Result<Removal, String> {
        match &self.worker_pool {
            Some(worker_pool) => event_lines::removed(self, runtime, worker_pool.remove(self, runtime)),
            None => Err(MEMBERS_RUNTIMES.into()),
        }
    }

    fn kill_runtime(&self, runtime: u16) -> Result<Killed, String> {
        match &self.worker_pool {
            Some(worker_pool) => event_lines::killed(self, runtime, worker_pool.kill(self, runtime)),
            None => Err(MEMBERS_RUNTIMES.into()),
        }
    }

    fn fail(&self, runtime: u16) -> Result<(), String> {
        part::fail(self, runtime)
    }

    fn stop(&self) {
        if self.stop.swap(true, Ordering::Relaxed) {
            // Asked twice: at once, then.
            self.break_off.store(true, Ordering::Relaxed);
        }
    }
}

/// How long switches may take to hear that a runtime is leaving.
const HEARD: Duration = Duration::from_secs(5);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of a runtime that has not answered, and why.
fn silent<T>(runtime: u16, asked: &Result<T, Unanswered>, state: &str) -> String {
    let why = asked.as_ref().err().unwrap_or(&Unanswered::Foreign);
    format!("runtime {runtime} did not answer: {why}; {state}")
}
