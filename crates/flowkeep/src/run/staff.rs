//! Runtimes that come and go while the process runs.
//!
//! # Theory of operation
//!
//! All links are laid at the start for as many runtimes as there may be. The ends of those that are not there are *parked*: nobody is at them
//! (session 0), so the others choose them for nothing.
//!
//! ```text
//!   parked ──add: made, with the configuration in force; a seat at the thread with the fewest; its ends say a new session──► there
//!     ▲                                                                                                                        │
//!     │                                                                                                       drained (`runtime drain`)
//!     │                                                                                                                        ▼
//!     └── taken apart: every buffer home, all others have seen it go ◄── its ends say 0 ◄── no route leads there, nothing is in it
//! ```
//!
//! Making one takes hundreds of megabytes that the kernel has to find and clear. All of that is done before anybody hears of the runtime, by a thread that
//! workers go before ([`aside`]): whoever asks waits, flows do not.
//!
//! What a runtime leaves behind is its functions and figures: blocks of ports of its share may be elsewhere, and come back to the next of its number.
//!
//! Who removes is told what it waits for if that takes too long; until the ends say 0, everything is as before, and the runtime is a drained one.
//!
//! Invariants: no packet is in a runtime that goes, nor on its way there; a change of configuration and this are never at once.
//!
//! Not here: moving its flows away (`mobility`, asked for by the tool); runtimes of other processes, which come and go with these.

use super::build::RunError;
use super::driver::{Answer, Handle, Question, Seat, Worker};
use super::links::WorkerLink;
use super::{Shared, silent};
use crate::moving::Removal;
use nf::{Generation, WorkerInfo};
use runtime::Runtime;
use runtime::chain::{Plan, Stages};
use runtime::stats::RuntimeStats;
use runtime::worker::change::Prepared;
use runtime::worker::parking::{Legacy, Remains};
use std::collections::BTreeMap;
use std::mem;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The ends of the links of a runtime that is not there, and what the last one left.
pub(super) struct Parked {
    pub links: Vec<WorkerLink>,
    pub peers: Vec<Option<WorkerLink>>,
    pub legacy: Option<Legacy>,
    pub last: RuntimeStats,
}

impl Parked {
    /// Of a runtime that was never there.
    pub fn new(links: Vec<WorkerLink>, peers: Vec<Option<WorkerLink>>) -> Self {
        let mut parked = Parked {
            links,
            peers,
            legacy: None,
            last: RuntimeStats::default(),
        };
        parked.say(0);
        parked
    }

    /// Says who is at these ends.
    fn say(&mut self, session: u64) {
        for link in self.links.iter_mut().chain(self.peers.iter_mut().flatten()) {
            link.set_session(session);
        }
    }
}

/// Makes runtimes as they were made at the start.
pub(super) struct Maker {
    /// Those of runtime 0.
    pub settings: runtime::Settings,
    /// The one that the cluster began with: room for a flow's state is as much as that wants, at every runtime.
    pub plan: Plan,
}

impl Maker {
    pub fn info(&self, number: u16) -> WorkerInfo {
        WorkerInfo {
            runtime: number,
            ..self.settings.info
        }
    }

    /// Makes a runtime at the ends that `slot` has. Where that fails they are still there. `others_follow`: another configuration's functions replace its own
    /// before the first packet.
    fn make(
        &self,
        number: u16,
        slot: &mut Slot,
        others_follow: bool,
    ) -> Result<Runtime<WorkerLink>, RunError> {
        let settings = runtime::Settings {
            info: self.info(number),
            ..self.settings.clone()
        };
        let origin = usize::from(settings.switches) + usize::from(number);
        let pool = super::build::own_pool(origin, settings.held_max);
        adapters::large::at_once(|| {
            let plan = self.plan.clone();
            let make = match others_follow || slot.legacy.is_some() {
                true => Stages::detached,
                false => Stages::new,
            };
            let stages = make(&plan, &settings.info)
                .map_err(|(function, source)| RunError::Function { function, source })?;
            // From here on nothing fails.
            let (links, peers) = (mem::take(&mut slot.links), mem::take(&mut slot.peers));
            let mut runtime = Runtime::with_stages(settings, plan, stages, links, pool, super::build::region);
            runtime.join(peers);
            if let Some(legacy) = slot.legacy.take() {
                runtime.inherit(legacy);
            }
            Ok(runtime)
        })
    }
}

/// What a runtime that is being made takes over.
struct Slot {
    links: Vec<WorkerLink>,
    peers: Vec<Option<WorkerLink>>,
    legacy: Option<Legacy>,
}

/// Where a thread takes up seats, and which it has.
pub(super) struct Door {
    pub seats: Mutex<Option<SyncSender<Seat>>>,
    pub workers: Mutex<Vec<String>>,
}

/// Those that are not there, and how they would be made; none where runtimes do not come and go.
pub(super) struct Staff {
    maker: Maker,
    parked: Mutex<BTreeMap<u16, Parked>>,
    /// The next session of whoever begins.
    sessions: Mutex<u64>,
}

/// What workers do goes before making one: hundreds of megabytes are found and cleared by the kernel, on their processors. With the first
/// niceness whoever makes has a tenth of a processor where another wants all of it; the others are for a machine so busy that it would not come to an end,
/// each for when it has taken [`LONGER`] more.
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
        let maker = std::thread::Builder::new().name("maker".into());
        let making = maker.spawn_scoped(scope, nicely).map_err(RunError::Thread)?;
        let thread = begun.recv().ok();
        for nice in NICE {
            // That thread's alone. Less can always be asked for; who may not have it back goes on with that.
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

/// How long removing waits for the rest to be done.
const REST: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Staff {
    pub fn new(maker: Maker, parked: BTreeMap<u16, Parked>) -> Self {
        Staff {
            maker,
            parked: Mutex::new(parked),
            sessions: Mutex::new(2),
        }
    }

    /// The last figures of those that are not there.
    pub fn absent(&self) -> BTreeMap<u16, RuntimeStats> {
        let parked = lock(&self.parked);
        parked
            .iter()
            .map(|(number, parked)| (*number, parked.last.clone()))
            .collect()
    }

    /// Starts a runtime: that one, or the first that is not there.
    pub fn add(&self, shared: &Shared, number: Option<u16>) -> Result<u16, String> {
        shared
            .live
            .staffing(|plan, generation, infos| self.add_under(shared, number, plan, generation, infos))?
    }

    fn add_under(
        &self,
        shared: &Shared,
        number: Option<u16>,
        plan: &Plan,
        generation: Generation,
        infos: &mut Vec<WorkerInfo>,
    ) -> Result<u16, String> {
        let mut parked = lock(&self.parked);
        let number = self.choose(shared, &parked, number)?;
        let info = self.maker.info(number);
        // Whatever may refuse, before the ends are out of hand.
        let had = parked[&number].legacy.as_ref().map(Legacy::plan);
        let (before, at) = had.unwrap_or((&self.maker.plan, Generation(1)));
        let prepared =
            match at == generation {
                true => None,
                false => Some(Prepared::new(generation, plan.clone(), before, &info, 0).map_err(
                    |error| format!("runtime {number} cannot begin: {error}; nothing has changed"),
                )?),
            };
        // Its figures stay to be looked at meanwhile; nobody else adds or removes.
        let taken = parked.get_mut(&number).expect("it was there just now");
        let mut slot = Slot {
            links: mem::take(&mut taken.links),
            peers: mem::take(&mut taken.peers),
            legacy: taken.legacy.take(),
        };
        drop(parked);
        let made = aside(|| {
            let mut runtime = self.maker.make(number, &mut slot, prepared.is_some())?;
            drop(prepared.map(|prepared| runtime.catch_up(prepared)));
            Ok(runtime)
        });
        let mut parked = lock(&self.parked);
        let mut runtime = match made {
            Ok(runtime) => runtime,
            Err(error) => {
                if let Some(place) = parked.get_mut(&number) {
                    (place.links, place.peers, place.legacy) = (slot.links, slot.peers, slot.legacy);
                }
                return Err(format!(
                    "runtime {number} cannot begin: {error}; nothing has changed"
                ));
            }
        };
        parked.remove(&number);
        drop(parked);
        let mut sessions = lock(&self.sessions);
        runtime.each_link(|_, link| link.set_session(*sessions));
        *sessions += 1;
        let (handle, inbox) = Handle::new();
        let mut seat = Some(super::build::seat(Worker::Runtime(Box::new(runtime)), inbox));
        let mut threads: Vec<_> = shared.threads.iter().collect();
        threads.sort_by_key(|thread| lock(&thread.door.workers).len());
        for thread in threads {
            if let Some(door) = &*lock(&thread.door.seats)
                && let Some(taken) = seat.take()
            {
                match door.send(taken) {
                    Ok(()) => lock(&thread.door.workers).push(format!("runtime {number}")),
                    Err(refused) => seat = Some(refused.0),
                }
            }
        }
        if seat.is_some() {
            return Err("the cluster is ending".into());
        }
        shared.put_runtime(number, handle);
        let at = infos.partition_point(|info| info.runtime < number);
        infos.insert(at, info);
        Ok(number)
    }

    fn choose(
        &self,
        shared: &Shared,
        parked: &BTreeMap<u16, Parked>,
        number: Option<u16>,
    ) -> Result<u16, String> {
        let most = shared.layout.runtimes;
        match number {
            None => parked.keys().next().copied().ok_or_else(|| {
                format!(
                    "all runtimes that there may be ({most}) are there; write `runtimes_max = {}`, or more, into the configuration and start it \
                     again",
                    most + 1
                )
            }),
            Some(number) if parked.contains_key(&number) => Ok(number),
            Some(number) if usize::from(number) < most => Err(format!("runtime {number} is there already")),
            Some(number) => Err(format!(
                "there may be {most} runtimes, 0 to {}, so there is no runtime {number}; write a higher `runtimes_max` into the configuration and start \
                 it again",
                most - 1
            )),
        }
    }

    /// Ends a runtime that is drained and empty. If it is not, nothing has changed, and the answer says why.
    pub fn remove(&self, shared: &Shared, number: u16) -> Result<Removal, String> {
        shared
            .live
            .staffing(|_, _, infos| self.remove_under(shared, number, infos))?
    }

    fn remove_under(
        &self,
        shared: &Shared,
        number: u16,
        infos: &mut Vec<WorkerInfo>,
    ) -> Result<Removal, String> {
        if lock(&self.parked).contains_key(&number) {
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
        let last = match handle.ask(Question::Stats) {
            Ok(Answer::Runtime(stats)) => stats,
            other => return Err(silent(number, &other, "it is drained and goes on")),
        };
        self.close(shared, number, &handle, last, infos)
    }

    /// Nobody sends there, and nothing is in it: it goes.
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
            let mut sessions = lock(&self.sessions);
            *sessions += 1;
            drop(handle.ask(Question::Session(*sessions)));
        };
        let answer = handle.ask(Question::Session(0));
        if !matches!(answer, Ok(Answer::Done)) {
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
        // What a store has not taken goes on with the next of this number.
        runtime.finish_variables(crate::store::LAST_CHANGES);
        let Remains { links, peers, legacy } = runtime.dismantle();
        let last = RuntimeStats {
            flows_max: 0,
            leaving: false,
            ..last
        };
        lock(&self.parked).insert(
            number,
            Parked {
                links,
                peers,
                legacy: Some(legacy),
                last,
            },
        );
        Ok(Removal {
            done: true,
            ..Removal::default()
        })
    }
}

/// What is still to be done before a runtime can go; `None` if nothing is.
fn rest(shared: &Shared, number: u16, handle: &Handle) -> Result<Option<Removal>, String> {
    let stats = match handle.ask(Question::Stats) {
        Ok(Answer::Runtime(stats)) => stats,
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
            Ok(Answer::Presence { leaving, groups, .. }) => {
                rest.routes += groups;
                rest.unheard += u64::from(!leaving);
            }
            Err(why) => return Err(format!("a switch did not answer: {why}; nothing has changed")),
            Ok(_) => return Err("a switch did not answer; nothing has changed".into()),
        }
    }
    let is_over = (rest.flows, rest.packets, rest.routes, rest.unheard) == (0, 0, 0, 0) && is_empty(handle);
    Ok((!is_over).then_some(rest))
}

fn is_empty(handle: &Handle) -> bool {
    matches!(handle.ask(Question::Empty), Ok(Answer::Empty(true)))
}

/// Whether all others have seen that nobody is there.
fn is_forgotten(shared: &Shared, number: u16) -> bool {
    let by_switches = shared.switches.values().all(|switch| {
        matches!(
            switch.ask(Question::Presence(number)),
            Ok(Answer::Presence { there: false, .. })
        )
    });
    let runtimes = shared.runtimes();
    let mut others = runtimes.iter().filter(|(other, _)| **other != number);
    by_switches
        && others.all(|(_, handle)| {
            matches!(handle.ask(Question::Others), Ok(Answer::Others(others)) if others.iter().all(|(other, _)| *other != number))
        })
}

impl WorkerLink {
    /// Says who is at this end, where the other is in this process.
    pub(super) fn set_session(&mut self, session: u64) {
        if let WorkerLink::Ring(ring) = self {
            ring.set_session(session);
        }
    }
}
