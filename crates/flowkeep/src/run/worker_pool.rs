//! Runtimes that come and go while the process runs.
//!
//! # Theory of operation
//!
//! All links are laid at the start for as many runtimes as there may be. The ends of absent ones
//! are *dormant*: no runtime is at them (session 0), so the other workers never choose them.
//!
//! ```text
//!   dormant ──add: made, with the configuration in force; a worker slot at the thread with the fewest; its ends say a new session─► there
//!     ▲                                                                                                                        │
//!     │                                                                                                       drained (`runtime drain`)
//!     │                                                                                                                        ▼
//!     └── taken apart: every buffer home, all others have seen it go ◄── its ends say 0 ◄── no shared object ◄── no route, no flow
//! ```
//!
//! A new runtime takes hundreds of megabytes that the kernel has to find and clear. All of that is
//! done before any worker hears of the runtime, by a thread that workers go before ([`aside`]): the
//! caller waits, flows do not.
//!
//! A runtime leaves its functions and figures behind: blocks of ports of its share may be
//! elsewhere, and come back to the next of its number.
//!
//! A runtime that is *killed* fails between two of its steps (`runtime::worker::failing`): its
//! thread gives it away as it is, and it says nothing.
//!
//! ```text
//!   there ──kill: its thread gives it away; its ends say 0──► wreck: its ends are cleared ──all others have seen it go──► dormant, with its pool
//! ```
//!
//! The next of its number has new functions. It goes on with the pool, since buffers of it may
//! still be at others, and with the figures.
//!
//! A caller that removes a runtime is told what the removal waits for if it takes too long. Until
//! the ends say 0, everything is as before, and the runtime is a drained one.
//!
//! Invariants: no packet is in a runtime that is removed, nor on its way there; packets of a killed
//! one are counted as dropped; a change of configuration and this are never at once.
//!
//! Not here: moving its flows away (`mobility`, asked for by the tool); runtimes of other
//! processes, which come and go with these.

use super::build::{RUNTIMES_MAX, RunError};
use super::counted::Ended;
use super::driver::{Worker, WorkerSlot};
use super::handle::{Handle, Question, WorkerAnswer};
use super::links::WorkerLink;
use super::objects::Views;
use super::{Shared, part, silent};
use crate::moving::{Killed, Removal};
use crate::tables::Gone;
use nf::{Generation, WorkerInfo};
use runtime::Runtime;
use runtime::chain::{Plan, Stages};
use runtime::stats::RuntimeStats;
use runtime::worker::change::Prepared;
use runtime::worker::failing::Wreck;
use runtime::worker::handover::{Dismantled, Handover};
use std::collections::BTreeMap;
use std::mem;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::Pool;

/// A runtime that is not there: the remains of the last one, and its figures.
pub(super) struct Dormant {
    slot: Slot,
    last: RuntimeStats,
    /// No runtime of its number has been there, and no setting speaks of it: it is no news.
    is_unheard_of: bool,
}

impl Dormant {
    /// Of a runtime that was never there; whether the configuration counts on it.
    pub fn new(mut links: Vec<WorkerLink>, mut peers: Vec<Option<WorkerLink>>, is_planned: bool) -> Self {
        for link in links.iter_mut().chain(peers.iter_mut().flatten()) {
            link.set_session(0);
        }
        Dormant {
            slot: Slot {
                links,
                peers,
                ..Slot::default()
            },
            last: RuntimeStats::default(),
            is_unheard_of: !is_planned,
        }
    }

    /// Of a runtime that has failed.
    fn of_wreck(wreck: Wreck<WorkerLink>) -> Self {
        Dormant {
            slot: Slot {
                links: wreck.links,
                peers: wreck.peers,
                handover: None,
                pool: Some(wreck.pool),
            },
            last: wreck.stats,
            is_unheard_of: false,
        }
    }

    /// Takes packets that have come since off the ends of a runtime that has failed.
    fn clear(&mut self) {
        if let Some(pool) = self.slot.pool.take() {
            let Slot { links, peers, .. } = mem::take(&mut self.slot);
            let stats = mem::take(&mut self.last);
            let mut wreck = Wreck {
                links,
                peers,
                pool,
                stats,
            };
            wreck.clear();
            *self = Dormant::of_wreck(wreck);
        }
    }
}

/// Operators' words to functions of runtimes that are there, as the first that answers has them.
fn said_elsewhere(shared: &Shared) -> Vec<(String, Vec<String>)> {
    let runtimes = shared.runtimes();
    let mut asked = runtimes
        .values()
        .map(|handle| handle.runtime(|runtime| runtime.said()));
    asked.find_map(Result::ok).unwrap_or_default()
}

/// Makes runtimes as they were made at the start.
pub(super) struct RuntimeFactory {
    /// The settings of runtime 0.
    pub settings: runtime::Settings,
    /// The plan that the cluster began with: room for a flow's state is as much as it wants, at
    /// every runtime.
    pub plan: Plan,
}

impl RuntimeFactory {
    /// The data on a runtime for its functions. `incarnation` is 0. For a runtime that follows a
    /// failed one it is new: the runtime draws other numbers, and is told from that one.
    pub fn info(&self, number: u16, incarnation: u64) -> WorkerInfo {
        let before = self.settings.info.seed;
        WorkerInfo {
            runtime: number,
            seed: before ^ incarnation.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            ..self.settings.info
        }
    }

    /// Makes a runtime at the ends that `slot` has. Where that fails they are still there.
    /// `others_follow`: another configuration's functions replace its own before the first packet.
    fn make(
        &self,
        info: WorkerInfo,
        slot: &mut Slot,
        others_follow: bool,
    ) -> Result<Runtime<WorkerLink>, RunError> {
        let settings = runtime::Settings {
            info,
            ..self.settings.clone()
        };
        let origin = usize::from(settings.switches) + usize::from(info.runtime);
        adapters::large::at_once(|| {
            let plan = self.plan.clone();
            let make = match others_follow || slot.handover.is_some() {
                true => Stages::detached,
                false => Stages::new,
            };
            let failed = |(function, source)| RunError::Function { function, source };
            let mut stages = make(&plan, &settings.info).map_err(failed)?;
            if let (Some(storing), None) = (&settings.storing, &slot.handover) {
                let entries = settings.entries(plan.affinity());
                stages
                    .open_ledger(&plan, info.runtime, storing, entries)
                    .map_err(failed)?;
            }
            // From here on nothing fails.
            let (links, peers) = (mem::take(&mut slot.links), mem::take(&mut slot.peers));
            let own = || super::build::own_pool(origin, settings.held_max);
            let pool = slot.pool.take().unwrap_or_else(own);
            let is_timed = !settings.packet_clock;
            let mut runtime = Runtime::with_stages(settings, plan, stages, links, pool, super::build::region);
            runtime.join(peers);
            if let Some(handover) = slot.handover.take() {
                runtime.inherit(handover);
            }
            if is_timed {
                runtime.sample_costs(adapters::clock::cycles);
            }
            Ok(runtime)
        })
    }
}

/// The parts that a new runtime takes over: the ends of its links, and of the last one its
/// functions, if that was removed, or its pool, if it failed.
#[derive(Default)]
struct Slot {
    links: Vec<WorkerLink>,
    peers: Vec<Option<WorkerLink>>,
    handover: Option<Handover>,
    pool: Option<Pool>,
}

/// Where a thread takes up worker slots, and which it has.
pub(super) struct ThreadInbox {
    pub worker_slots: Mutex<Option<SyncSender<WorkerSlot>>>,
    pub workers: Mutex<Vec<String>>,
}

/// The runtimes that are not there, and how they would be made; absent where runtimes do not come
/// and go.
pub(super) struct WorkerPool {
    factory: RuntimeFactory,
    dormant: Mutex<BTreeMap<u16, Dormant>>,
    /// The next session of a runtime that begins.
    sessions: Mutex<u64>,
    /// Which of them share objects.
    views: Views,
    /// By number, the figures of runtimes that have failed.
    before: Mutex<BTreeMap<u16, RuntimeStats>>,
    /// The counts of functions at gone runtimes.
    pub counted: Ended,
}

/// The workers' work goes before making a runtime: the kernel finds and clears hundreds of
/// megabytes, on their processors. With the first niceness the making thread has a tenth of a
/// processor where another thread wants all of it. The others are for a machine so busy that making
/// would not come to an end, each for when it has taken [`LONGER`] more.
const NICE: [i32; 3] = [10, 5, 0];
const LONGER: Duration = Duration::from_secs(5);

/// Does something in a thread that others go before.
fn aside<T: Send>(make: impl FnOnce() -> Result<T, RunError> + Send) -> Result<T, RunError> {
    let (begin, begun) = channel();
    let (end, ended) = channel::<()>();
    let nicely = move || {
        let _ended = end;
        let _ = begin.send(rustix::thread::gettid());
        make()
    };
    std::thread::scope(|scope| {
        let factory = std::thread::Builder::new().name("factory".into());
        let making = factory.spawn_scoped(scope, nicely).map_err(RunError::Thread)?;
        let thread = begun.recv().ok();
        for nice in NICE {
            // That thread's alone. Less can always be asked for; a process that may not have it
            // back goes on with that.
            if let Some(thread) = thread {
                let _ = rustix::process::setpriority_process(Some(thread), nice);
            }
            if ended.recv_timeout(LONGER) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        let failed = |_| Err(RunError::Thread(std::io::Error::other("it panicked")));
        making.join().unwrap_or_else(failed)
    })
}

/// How long removing waits for the rest to be done, and adding until groups are taken.
const REST: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The remedy where more runtimes are wanted than there may be.
fn more_runtimes(wanted: usize) -> String {
    match wanted > RUNTIMES_MAX {
        true => format!("{RUNTIMES_MAX} are the most that a configuration may have"),
        false => {
            format!("write `runtimes_max = {wanted}`, or more, into the configuration and start it again")
        }
    }
}

impl WorkerPool {
    pub fn new(factory: RuntimeFactory, dormant: BTreeMap<u16, Dormant>, views: Views) -> Self {
        WorkerPool {
            factory,
            dormant: Mutex::new(dormant),
            sessions: Mutex::new(2),
            views,
            before: Mutex::default(),
            counted: Ended::default(),
        }
    }

    fn next_session(&self) -> u64 {
        let mut next = lock(&self.sessions);
        *next += 1;
        *next - 1
    }

    /// Adds the figures of failed runtimes to those of their numbers.
    pub fn go_on(&self, figures: &mut BTreeMap<u16, RuntimeStats>) {
        for (number, before) in lock(&self.before).iter() {
            if let Some(stats) = figures.get_mut(number) {
                stats.go_on_from(before);
            }
        }
    }

    /// The last figures of absent runtimes.
    pub fn absent(&self) -> BTreeMap<u16, RuntimeStats> {
        let dormant = lock(&self.dormant);
        dormant
            .iter()
            .filter(|(_, dormant)| !dormant.is_unheard_of)
            .map(|(number, dormant)| (*number, dormant.last.clone()))
            .collect()
    }

    /// Starts a runtime: that one, or the first that is not there.
    pub fn add(&self, shared: &Shared, number: Option<u16>) -> Result<u16, String> {
        let number = shared.live.with_workers(|plan, generation, infos| {
            self.add_under(shared, number, plan, generation, infos)
        })??;
        wait_until_it_takes_groups(shared, number);
        Ok(number)
    }

    fn add_under(
        &self,
        shared: &Shared,
        number: Option<u16>,
        plan: &Plan,
        generation: Generation,
        infos: &mut Vec<WorkerInfo>,
    ) -> Result<u16, String> {
        let (number, has_failed) = {
            let dormant = lock(&self.dormant);
            let number = self.choose(shared, &dormant, number)?;
            let has_failed = |dormant: &Dormant| dormant.slot.pool.is_some();
            (number, dormant.get(&number).is_some_and(has_failed))
        };
        // Whatever may refuse, before the ends are out of hand.
        if has_failed && !is_forgotten(shared, number) {
            return Err(format!(
                "not every worker has seen yet that runtime {number} was killed; nothing has changed. Try again"
            ));
        }
        self.make_room(shared)?;
        let said = said_elsewhere(shared);
        let session = self.next_session();
        let info = self.factory.info(number, if has_failed { session } else { 0 });
        let mut dormant = lock(&self.dormant);
        // No other command adds, removes or kills meanwhile.
        let Some(taken) = dormant.get_mut(&number) else {
            return Err(format!("runtime {number} is there already"));
        };
        taken.clear();
        let had = taken.slot.handover.as_ref().map(Handover::plan);
        let (before, at) = had.unwrap_or((&self.factory.plan, Generation(1)));
        let prepared =
            match at == generation {
                true => None,
                false => Some(Prepared::new(generation, plan.clone(), before, &info, 0).map_err(
                    |error| format!("runtime {number} cannot begin: {error}; nothing has changed"),
                )?),
            };
        // Its figures stay to be looked at meanwhile; no other command adds or removes.
        let mut slot = mem::take(&mut taken.slot);
        drop(dormant);
        let made = aside(|| {
            let mut runtime = self.factory.make(info, &mut slot, prepared.is_some())?;
            drop(prepared.map(|prepared| runtime.catch_up(prepared)));
            for (function, words) in &said {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                // A function that the configuration in force does not know is refused.
                let _ = runtime.command(function, &words);
            }
            Ok(runtime)
        });
        let mut dormant = lock(&self.dormant);
        let mut runtime = match made {
            Ok(runtime) => runtime,
            Err(error) => {
                if let Some(place) = dormant.get_mut(&number) {
                    place.slot = slot;
                }
                return Err(format!(
                    "runtime {number} cannot begin: {error}; nothing has changed"
                ));
            }
        };
        let last = dormant.remove(&number).map(|dormant| dormant.last);
        if let (true, Some(last)) = (has_failed, last) {
            lock(&self.before).entry(number).or_default().go_on_from(&last);
        }
        let stored = runtime.variables().into_iter().map(|(function, _)| function);
        self.counted.is_back(number, &stored.collect::<Vec<_>>());
        drop(dormant);
        self.views.make(&mut runtime, number);
        runtime.each_link(|_, link| link.set_session(session));
        let (handle, inbox) = Handle::new();
        let mut worker_slot = Some(super::build::worker_slot(
            Worker::Runtime(Box::new(runtime)),
            inbox,
        ));
        let mut threads: Vec<_> = shared.threads.iter().collect();
        threads.sort_by_key(|thread| lock(&thread.inbox.workers).len());
        for thread in threads {
            if let Some(inbox) = &*lock(&thread.inbox.worker_slots)
                && let Some(taken) = worker_slot.take()
            {
                match inbox.send(taken) {
                    Ok(()) => lock(&thread.inbox.workers).push(format!("runtime {number}")),
                    Err(refused) => worker_slot = Some(refused.0),
                }
            }
        }
        if worker_slot.is_some() {
            return Err("the cluster is ending".into());
        }
        shared.put_runtime(number, handle);
        let at = infos.partition_point(|info| info.runtime < number);
        infos.insert(at, info);
        let said = |why| format!("runtime {number} is there, and shares no objects: {why}");
        self.views.add(shared, number).map_err(said)?;
        Ok(number)
    }

    /// Has switches know as many routes as one runtime more may have.
    fn make_room(&self, shared: &Shared) -> Result<(), String> {
        let there = shared.runtimes().len() as u16;
        let routes = super::build::routes_max(self.factory.settings.info.flows_max, there + 1);
        for switch in shared.switches.values() {
            switch
                .switch(move |switch| switch.make_room(routes, wire::memory::Region::heap))
                .map_err(|why| format!("a switch did not answer: {why}; nothing has changed. Try again"))?;
        }
        Ok(())
    }

    fn choose(
        &self,
        shared: &Shared,
        dormant: &BTreeMap<u16, Dormant>,
        number: Option<u16>,
    ) -> Result<u16, String> {
        let most = shared.layout.runtimes;
        match number {
            None => dormant.keys().next().copied().ok_or_else(|| {
                let remedy = more_runtimes(most + 1);
                format!("all runtimes that there may be ({most}) are there; {remedy}")
            }),
            Some(number) if dormant.contains_key(&number) => Ok(number),
            Some(number) if usize::from(number) < most => Err(format!("runtime {number} is there already")),
            Some(number) => Err(format!(
                "there may be {most} runtimes, 0 to {}, so there is no runtime {number}; {}",
                most - 1,
                more_runtimes(usize::from(number) + 1)
            )),
        }
    }

    /// Ends a runtime that is drained and empty. If it is not, nothing has changed, and the answer
    /// says why.
    pub fn remove(&self, shared: &Shared, number: u16) -> Result<Removal, String> {
        shared
            .live
            .with_workers(|_, _, infos| self.remove_under(shared, number, infos))?
    }

    fn remove_under(
        &self,
        shared: &Shared,
        number: u16,
        infos: &mut Vec<WorkerInfo>,
    ) -> Result<Removal, String> {
        if lock(&self.dormant).contains_key(&number) {
            return Err(format!("runtime {number} is not there"));
        }
        let Some(handle) = shared.runtimes().remove(&number) else {
            return Err(shared.elsewhere(number));
        };
        let deadline = Instant::now() + REST;
        loop {
            let rest = rest(shared, number, &handle)?;
            if rest.is_none() {
                break;
            }
            if rest.as_ref().is_some_and(|rest| rest.flows > 0) || Instant::now() > deadline {
                return Ok(rest.unwrap_or_default());
            }
            std::thread::sleep(LOOK);
        }
        // Others that have their copies here have another keep them first.
        let until = Instant::now() + part::COPIED;
        while Instant::now() < until && part::has_others_copies(&handle) {
            std::thread::sleep(LOOK);
        }
        let last = match handle.ask(Question::Stats) {
            Ok(WorkerAnswer::Runtime(stats)) => *stats,
            other => return Err(silent(number, &other, "it is drained and goes on")),
        };
        let stays = |why| format!("runtime {number} is drained and goes on: {why}");
        self.views.leave(shared, number).map_err(stays)?;
        self.close(shared, number, &handle, last, infos)
    }

    /// No worker sends to the runtime, and it is empty: it goes.
    fn close(
        &self,
        shared: &Shared,
        number: u16,
        handle: &Handle,
        last: RuntimeStats,
        infos: &mut Vec<WorkerInfo>,
    ) -> Result<Removal, String> {
        let stuck = |what: &str| {
            format!(
                "runtime {number} has no flows and is not chosen for any more, but {what}; it goes on, drained. Say `flowkeep runtime remove {number}` again"
            )
        };
        let reopen = || {
            drop(handle.ask(Question::Session(self.next_session())));
            // The next addition or removal says a failure of this.
            drop(self.views.stay(shared, number, handle));
        };
        let answer = handle.ask(Question::Session(0));
        if !matches!(answer, Ok(WorkerAnswer::Done)) {
            // The question may be answered yet, and then no switch would send there.
            reopen();
            return Err(silent(number, &answer, "it is drained and goes on"));
        }
        let deadline = Instant::now() + REST;
        while !is_forgotten(shared, number) || !is_empty(handle) {
            if Instant::now() > deadline {
                reopen();
                return Err(stuck("something of it is still on its way"));
            }
            std::thread::sleep(LOOK);
        }
        let mut runtime = match handle.leave() {
            Ok(runtime) => runtime,
            Err(why) => {
                reopen();
                return Err(stuck(&format!("its thread does not let it go: {why}")));
            }
        };
        shared.drop_runtime(number);
        infos.retain(|info| info.runtime != number);
        hand_timers_over(shared, &mut runtime);
        // Changes that a store has not taken go on with the next of this number.
        runtime.finish_variables(crate::store::LAST_CHANGES);
        self.counted
            .note(number, Gone::Removed, runtime.counted_rows(usize::MAX));
        let Dismantled {
            links,
            peers,
            handover,
        } = runtime.dismantle();
        let last = RuntimeStats {
            flows_max: 0,
            leaving: false,
            dry: false,
            ..last
        };
        lock(&self.dormant).insert(
            number,
            Dormant {
                slot: Slot {
                    links,
                    peers,
                    handover: Some(handover),
                    pool: None,
                },
                last,
                is_unheard_of: false,
            },
        );
        Ok(Removal {
            done: true,
            ..Removal::default()
        })
    }

    /// Has a runtime fail between two of its steps, as if it were a process that is killed; its
    /// figures.
    pub fn kill(&self, shared: &Shared, number: u16) -> Result<Killed, String> {
        shared
            .live
            .with_workers(|_, _, infos| self.kill_under(shared, number, infos))?
    }

    fn kill_under(
        &self,
        shared: &Shared,
        number: u16,
        infos: &mut Vec<WorkerInfo>,
    ) -> Result<Killed, String> {
        if lock(&self.dormant).contains_key(&number) {
            return Err(format!("runtime {number} is not there; nothing was killed"));
        }
        let Some(handle) = shared.runtimes().remove(&number) else {
            return Err(shared.elsewhere(number));
        };
        let given = handle.leave();
        let mut runtime = given.map_err(|why| {
            format!(
                "runtime {number} was not killed: its thread does not let it go: {why}; it goes on. Try again"
            )
        })?;
        // From here on no step of it is taken.
        runtime.each_link(|_, link| link.set_session(0));
        shared.drop_runtime(number);
        infos.retain(|info| info.runtime != number);
        hand_timers_over(shared, &mut runtime);
        let before = runtime.stats();
        self.counted
            .note(number, Gone::Failed, runtime.counted_rows(usize::MAX));
        let mut wreck = runtime.fail();
        let deadline = Instant::now() + REST;
        loop {
            let is_seen = is_forgotten(shared, number);
            // Behind that: packets that were on their way when the last worker saw it are lost,
            // too.
            wreck.clear();
            if is_seen || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(LOOK);
        }
        let killed = Killed {
            flows: before.flows,
            protected_flows: before.protected_flows,
            packets: wreck.lost(),
        };
        let counted = mem::take(&mut wreck.stats);
        lock(&self.before).entry(number).or_default().go_on_from(&counted);
        lock(&self.dormant).insert(number, Dormant::of_wreck(wreck));
        let said = |why| format!("runtime {number} was killed, and others do not share objects yet: {why}");
        self.views.fail(shared, number).map_err(said)?;
        Ok(killed)
    }
}

/// Has another runtime of this process arm the timers of a runtime that takes no more step, and
/// waits until the store has them there: then they are removed here. So a process that is killed in
/// between may find them twice, and never not at all. A store that does not answer in time gets
/// both later, in this order. Without another runtime they stay, and fire when the next of this
/// number begins.
fn hand_timers_over(shared: &Shared, runtime: &mut Runtime<WorkerLink>) {
    let timers = runtime.timers();
    let heir = shared.runtimes().into_values().next();
    let (false, Some(heir)) = (timers.is_empty(), heir) else {
        return;
    };
    let Ok(left) = heir.runtime(move |heir| heir.take_in_timers(timers)) else {
        return;
    };
    let deadline = Instant::now() + crate::store::LAST_CHANGES;
    while !heir.runtime(|heir| heir.are_variables_stored()).unwrap_or(false) {
        if Instant::now() > deadline {
            break;
        }
        std::thread::sleep(LOOK);
    }
    // The timers that the heir has would fire twice, if they stayed.
    runtime.keep_timers(left);
    runtime.finish_variables(crate::store::LAST_CHANGES);
}

/// The figures that keep a runtime from going; `None` if there are none.
fn rest(shared: &Shared, number: u16, handle: &Handle) -> Result<Option<Removal>, String> {
    let stats = match handle.ask(Question::Stats) {
        Ok(WorkerAnswer::Runtime(stats)) => stats,
        other => return Err(silent(number, &other, "nothing has changed; try again")),
    };
    let mut rest = Removal {
        flows: stats.flows,
        packets: stats.held + stats.waiting,
        ..Removal::default()
    };
    if !stats.leaving {
        return Err(format!(
            "runtime {number} is not drained, and goes on; `flowkeep runtime drain {number}` first"
        ));
    }
    for switch in shared.switches.values() {
        match switch.ask(Question::Presence(number)) {
            Ok(WorkerAnswer::Presence { leaving, groups, .. }) => {
                rest.routes += groups;
                rest.unheard += u64::from(!leaving);
            }
            Err(why) => return Err(format!("a switch did not answer: {why}; nothing has changed")),
            Ok(_) => return Err("a switch did not answer; nothing has changed".into()),
        }
    }
    // Buffers of it may be away: as long as it owns keys of shared objects, it answers others.
    let is_over = (rest.flows, rest.packets, rest.routes, rest.unheard) == (0, 0, 0, 0)
        && handle.runtime(|runtime| runtime.has_no_flows()).unwrap_or(false);
    Ok((!is_over).then_some(rest))
}

fn is_empty(handle: &Handle) -> bool {
    matches!(handle.ask(Question::Empty), Ok(WorkerAnswer::Empty(true)))
}

/// Waits until a runtime that has just come takes groups and all workers have heard so: an order
/// right after the command would find every group refused. A runtime that waits for longer, as for
/// a block of ports that another has to lend, is there all the same.
fn wait_until_it_takes_groups(shared: &Shared, number: u16) {
    let takes_groups = || {
        let runtimes = shared.runtimes();
        let own = runtimes.get(&number);
        own.is_none_or(|own| own.runtime(|runtime| runtime.takes_groups()).unwrap_or(true))
            && shared.switches.values().all(|switch| {
                !matches!(
                    switch.ask(Question::Presence(number)),
                    Ok(WorkerAnswer::Presence { there, leaving, .. }) if !there || leaving
                )
            })
            && runtimes
                .iter()
                .filter(|(other, _)| **other != number)
                .all(|(_, handle)| match handle.ask(Question::Others) {
                    Ok(WorkerAnswer::Others(others)) => others.contains(&(number, false)),
                    _ => true,
                })
    };
    let deadline = Instant::now() + REST;
    while !takes_groups() && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
}

/// Whether all other workers have seen that the runtime is gone.
fn is_forgotten(shared: &Shared, number: u16) -> bool {
    let by_switches = shared.switches.values().all(|switch| {
        matches!(
            switch.ask(Question::Presence(number)),
            Ok(WorkerAnswer::Presence { there: false, .. })
        )
    });
    let runtimes = shared.runtimes();
    let mut others = runtimes.iter().filter(|(other, _)| **other != number);
    by_switches
        && others.all(|(_, handle)| {
            matches!(handle.ask(Question::Others), Ok(WorkerAnswer::Others(others)) if others.iter().all(|(other, _)| *other != number))
        })
}

impl WorkerLink {
    /// Says which session is at this end, where the other end is in this process.
    pub(super) fn set_session(&mut self, session: u64) {
        if let WorkerLink::Ring(ring) = self {
            ring.set_session(session);
        }
    }
}
