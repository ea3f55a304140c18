//! The thread that steps workers.
//!
//! A thread has one or more workers and steps them in turn. Between steps it answers questions.
//! When nothing has happened for a moment it sleeps until a port or another thread has something:
//! two processors are not burnt for nothing. How far that goes is configured ([`Idle`]); where some
//! port cannot say that it has something (a paced capture), it spins, yields, and naps instead.
//!
//! ```text
//!   without work, block   0 ─ spin ─ 5 µs ─ lie down, one more round, sleep 10 ms at most
//!   rounds, otherwise     0 ─ spin ─ 200 ─ yield ─ 400 ─ nap 0.1 ms each
//! ```
//!
//! A sleep and a wake cost some microseconds, so packets that come that soon are worth the wait;
//! longer spinning was a third of all core time at loads at which packets come in bursts (see
//! `bench live`).
//!
//! Not here: questions and answers ([`super::handle`]).

use super::berth;
use super::handle::{Command, End, Inbox, Question, WorkerAnswer};
use super::links::WorkerLink;
use super::member_slots::{self, JoinedWorker};
use crate::cluster::LinkStats;
use crate::config::Idle;
use crate::config::layout::WorkerId;
use adapters::clock::{monotonic_ns, pin_to};
use adapters::idle::{Sleeper, Wanted, handed_over};
use adapters::open::BoxPort;
use runtime::Runtime;
use runtime::env::{LinkTo, Port};
use runtime::stats::{RuntimeStats, SwitchStats};
use runtime::switch::Switch;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// Chunks of event lines on their way to the writer.
pub(super) const EVENT_CHUNKS: usize = 64;
/// Questions are looked for every so many rounds.
const ROUNDS: u32 = 32;
/// Rounds without work before yielding, and before napping.
const SPINS: u32 = 200;
const YIELDS: u32 = 400;
const NAP: Duration = Duration::from_micros(100);
/// Time without work before sleeping until there is some.
const SPIN_NS: u64 = 5_000;
/// The longest sleep: how late a question, or a flow's end, may be.
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// The longest sleep, in nanoseconds, while a call waits.
const LOOK_NS: u64 = 2_000_000;
/// How often the wall clock is looked at.
const WALL_NS: u64 = 1_000_000_000;
/// How long calls may still wait when all flows are to end.
const GRACE: Duration = Duration::from_secs(1);
/// Flows ended per round when finishing.
const ENDED: usize = 256;

/// A switch or a runtime.
pub(super) enum Worker {
    Switch(Box<Switch<BoxPort, WorkerLink>>),
    Runtime(Box<Runtime<WorkerLink>>),
}

impl Worker {
    /// Which worker it is.
    pub fn id(&self) -> WorkerId {
        match self {
            Worker::Switch(switch) => WorkerId::Switch(switch.number().into()),
            Worker::Runtime(runtime) => WorkerId::Runtime(runtime.number().into()),
        }
    }

    /// The runtime, if it is one.
    pub fn runtime(&mut self) -> Option<&mut Runtime<WorkerLink>> {
        match self {
            Worker::Runtime(runtime) => Some(runtime),
            Worker::Switch(_) => None,
        }
    }

    /// The switch, if it is one.
    pub fn switch(&mut self) -> Option<&mut Switch<BoxPort, WorkerLink>> {
        match self {
            Worker::Switch(switch) => Some(switch),
            Worker::Runtime(_) => None,
        }
    }

    /// The figures of its links to other processes.
    pub fn links(&mut self) -> Vec<LinkStats> {
        let mut all = Vec::new();
        self.each_link(|from, to, link| {
            if link.is_to_another() && !link.is_vacant() {
                all.push(link.stats(from, to));
            }
        });
        all
    }

    /// Shows each link, its worker and the worker at the other end.
    pub fn each_link(&mut self, mut show: impl FnMut(WorkerId, LinkTo, &mut WorkerLink)) {
        match self {
            Worker::Switch(switch) => {
                let from = WorkerId::Switch(switch.number().into());
                switch.each_link(|to, link| show(from, to, link));
            }
            Worker::Runtime(runtime) => {
                let from = WorkerId::Runtime(runtime.number().into());
                runtime.each_link(|to, link| show(from, to, link));
            }
        }
    }
}

/// A worker with its queue and its state.
pub(super) struct WorkerSlot {
    pub worker: Worker,
    /// In a cluster with a coordinator.
    pub place: Option<JoinedWorker>,
    pub inbox: Inbox,
    /// How far its end has come.
    pub end: End,
    /// Since when all flows are to end.
    pub finishing: Option<Instant>,
    pub lines: String,
    /// The last step had nothing to do.
    pub rests: bool,
    /// Nanoseconds in steps that had something to do.
    pub busy: u64,
    /// The last step had something to do.
    pub has_worked: bool,
    /// The runtime leaves the thread by this.
    pub leaves: Option<Sender<Box<Runtime<WorkerLink>>>>,
}

/// A thread's work.
pub(super) struct Driver {
    pub worker_slots: Vec<WorkerSlot>,
    /// Processor to stay on.
    pub cpu: Option<usize>,
    /// Whether packets carry the time.
    pub packet_clock: bool,
    pub events: SyncSender<String>,
    /// No port knows when its next packet comes: it is by the machine's clock.
    pub timed: bool,
    /// How the thread waits without work.
    pub idle: Idle,
    /// Where each of the cluster's threads sleeps, and which of them is this one's; empty if no
    /// thread sleeps.
    pub sleepers: Arc<[Sleeper]>,
    pub index: usize,
    /// Slots that come while it runs; closed when none will.
    pub arrivals: Receiver<WorkerSlot>,
}

impl Driver {
    /// Steps the workers until all have been told to quit.
    pub fn run(mut self) {
        if let Some(cpu) = self.cpu {
            let _ = pin_to(cpu);
        }
        let mut idle = 0_u32;
        let mut worked_at = 0_u64;
        let mut round = 0_u32;
        let mut wall_at = 0_u64;
        let mut descriptors = self.descriptors();
        let mut changes = berth::changes();
        let sleepers = self.sleepers.clone();
        let mine = sleepers.get(self.index).filter(|_| descriptors.is_some());
        let mut is_lying = false;
        // Workers that had something to do in the last round, and when it began.
        let (mut busy, mut began) = (0, 0);
        while !self.is_over() {
            round = round.wrapping_add(1);
            // A replay's time is its packets'; ports that keep to the capture's timing still need
            // the machine's.
            let now = if self.packet_clock && !self.timed {
                0
            } else {
                monotonic_ns()
            };
            self.account(busy, now.saturating_sub(began));
            (began, busy) = (now, 0);
            if !self.packet_clock && now >= wall_at {
                wall_at = now + WALL_NS;
                self.tell_wall();
            }
            for worker_slot in &mut self.worker_slots {
                worker_slot.has_worked = worker_slot.step(now, self.packet_clock, &self.events);
                busy += u64::from(worker_slot.has_worked);
                if round.is_multiple_of(ROUNDS) || idle > 0 {
                    worker_slot.listen();
                }
            }
            if round.is_multiple_of(ROUNDS) || idle > 0 {
                self.come_and_go();
            }
            idle = if busy > 0 { 0 } else { idle.saturating_add(1) };
            worked_at = if busy > 0 { now } else { worked_at };
            if busy > 0 && !sleepers.is_empty() {
                handed_over();
                let others = sleepers.iter().enumerate().filter(|(at, _)| *at != self.index);
                others.for_each(|(_, other)| other.wake());
            }
            if is_lying {
                if std::mem::replace(&mut changes, berth::changes()) != changes {
                    descriptors = self.descriptors();
                }
                if let (Some(mine), Some(descriptors), 0) = (mine, &mut descriptors, busy) {
                    mine.sleep(descriptors, self.sleep_max(now));
                }
                mine.inspect(|mine| mine.get_up());
                is_lying = false;
                continue;
            }
            match (idle, mine) {
                (_, Some(mine)) if now.saturating_sub(worked_at) > SPIN_NS => {
                    mine.lie_down();
                    is_lying = true;
                }
                (0..SPINS, _) | (_, Some(_)) => std::hint::spin_loop(),
                _ if self.idle == Idle::Spin => std::hint::spin_loop(),
                (SPINS..YIELDS, _) => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
        self.worker_slots
            .iter_mut()
            .for_each(|worker_slot| worker_slot.finish_variables(&self.events));
    }

    /// A round took so long: so many of its workers had something to do, and share that time.
    #[inline]
    fn account(&mut self, busy: u64, took: u64) {
        let each = match busy {
            0 => return,
            1 => took,
            _ => took / busy,
        };
        let worked = self
            .worker_slots
            .iter_mut()
            .filter(|worker_slot| worker_slot.has_worked);
        worked.for_each(|worker_slot| worker_slot.busy += each);
    }

    /// Whether no worker here goes on, and none comes.
    fn is_over(&mut self) -> bool {
        if !self.worker_slots.is_empty() {
            return self
                .worker_slots
                .iter()
                .all(|worker_slot| worker_slot.end == End::Quit);
        }
        // Without a worker it waits for one, and takes no processor.
        match self.arrivals.recv() {
            Ok(worker_slot) => self.worker_slots.push(worker_slot),
            Err(_) => return true,
        }
        false
    }

    /// Tells runtimes the wall clock's time: it may have been set.
    #[cold]
    fn tell_wall(&mut self) {
        let wall = super::stamps::clock_offset(false);
        let runtimes = self
            .worker_slots
            .iter_mut()
            .filter_map(|worker_slot| worker_slot.worker.runtime());
        runtimes.for_each(|runtime| runtime.set_wall(wall));
    }

    /// Slots that others have sent are taken up, and worker slots that leave are given away, behind
    /// the lines that they have yet to hand over: replicas know the events of those lines, so no
    /// other runtime tells them again.
    fn come_and_go(&mut self) {
        self.worker_slots.extend(self.arrivals.try_iter());
        while let Some(at) = self.worker_slots.iter().position(WorkerSlot::may_leave) {
            let mut worker_slot = self.worker_slots.remove(at);
            let to = worker_slot.leaves.take();
            match (worker_slot.worker, to) {
                (Worker::Runtime(runtime), Some(to)) => {
                    let kept = to.send(runtime).err();
                    // Its receiver is gone: it stays.
                    worker_slot.worker = match kept {
                        Some(kept) => Worker::Runtime(kept.0),
                        None => continue,
                    };
                }
                (worker, _) => worker_slot.worker = worker,
            }
            self.worker_slots.push(worker_slot);
        }
    }

    /// The descriptors by which this thread's ports say that they have something; `None` if a port
    /// has none.
    fn descriptors(&mut self) -> Option<Vec<Wanted>> {
        let mut all = Some(Vec::new());
        let mut add = |said: Option<Vec<i32>>| match (said, &mut all) {
            (Some(said), Some(all)) => all.extend(said.into_iter().map(Wanted::of)),
            _ => all = None,
        };
        for worker_slot in &mut self.worker_slots {
            if let Worker::Switch(switch) = &worker_slot.worker {
                add(switch.wakes_by());
            }
            // A worker of this process that hands something over wakes the thread itself.
            worker_slot.worker.each_link(|_, _, link| {
                if link.is_to_another() {
                    add(link.wakes_by());
                }
            });
        }
        all
    }

    /// How long this thread may sleep: until something that it knows of is due.
    fn sleep_max(&mut self, now: u64) -> Duration {
        let mut due: Option<u64> = None;
        let mut add = |at: Option<u64>| due = due.into_iter().chain(at).min();
        for worker_slot in &mut self.worker_slots {
            match &worker_slot.worker {
                Worker::Switch(switch) => add(switch.next_at()),
                Worker::Runtime(runtime) => {
                    add(runtime.next_at());
                    if runtime.has_waiting() {
                        // Its answer may come from a thread that wakes no other.
                        add(Some(now.saturating_add(LOOK_NS)));
                    }
                }
            }
            if worker_slot.place.is_some() {
                add(Some(now.saturating_add(member_slots::LOOK)));
            }
            worker_slot.worker.each_link(|_, _, link| add(link.next_at()));
        }
        let wait = due.map(|at| Duration::from_nanos(at.saturating_sub(now)));
        wait.map_or(SLEEP_MAX, |wait| wait.min(SLEEP_MAX))
    }
}

/// Hands event lines to the writer; if it is behind, they wait here and the runtime's log fills
/// up.
fn pass_on(lines: &mut String, events: &SyncSender<String>) -> bool {
    if lines.is_empty() {
        return false;
    }
    match events.try_send(std::mem::take(lines)) {
        Ok(()) => true,
        Err(TrySendError::Full(kept)) => {
            *lines = kept;
            false
        }
        Err(TrySendError::Disconnected(_)) => false,
    }
}

impl WorkerSlot {
    fn step(&mut self, now: u64, packet_clock: bool, events: &SyncSender<String>) -> bool {
        if let Some(place) = &mut self.place {
            place.attend(now, &mut self.worker);
        }
        match &mut self.worker {
            Worker::Switch(switch) => switch.step(now) > 0,
            Worker::Runtime(runtime) => {
                let work = runtime.step(now);
                let mut busy = !work.is_idle();
                self.rests = !busy;
                if !busy && packet_clock && self.end >= End::Finish {
                    // Time goes on by itself once the last packet is in, so that waiting calls come
                    // to an end.
                    if let Some(next) = runtime.next_at() {
                        busy |= !runtime.step(next).is_idle();
                    }
                }
                if let Some(since) = self.finishing {
                    // Where packets carry the time, it goes on above, and no grace is needed.
                    let waits = runtime.has_waiting() && (packet_clock || since.elapsed() < GRACE);
                    busy |= !waits && !runtime.finish(ENDED);
                }
                busy |= pass_on(&mut self.lines, events);
                // While the writer is behind, they wait in the runtime's log, which is bounded.
                if self.lines.is_empty() {
                    runtime.take_events(&mut self.lines);
                    busy |= pass_on(&mut self.lines, events);
                }
                busy
            }
        }
    }

    /// The last changes of variables go to their stores, as far as those take them.
    fn finish_variables(&mut self, events: &SyncSender<String>) {
        if let Worker::Runtime(runtime) = &mut self.worker
            && !runtime.finish_variables(crate::store::LAST_CHANGES)
        {
            let _ = events.try_send(crate::store::line("", &crate::events::VARIABLES_LEFT, &[]));
        }
    }

    fn may_leave(&self) -> bool {
        self.leaves.is_some() && self.lines.is_empty()
    }

    fn listen(&mut self) {
        self.go_on_ending();
        while let Some(command) = self.inbox.take() {
            match command {
                Command::Ask(question, answer) => {
                    let _ = answer.send(self.answer(question));
                }
                Command::Call(call) => call(&mut self.worker),
                Command::Unwatch(id) => match &mut self.worker {
                    Worker::Switch(switch) => switch.unwatch(id),
                    Worker::Runtime(runtime) => runtime.unwatch(id),
                },
                Command::Learn(id, key) => match &mut self.worker {
                    Worker::Switch(switch) => switch.learn_key(id, key),
                    Worker::Runtime(runtime) => runtime.learn_key(id, key),
                },
                Command::Leave(to) => self.leaves = Some(to),
            }
        }
    }

    /// Takes the steps of its end that were asked for since, in their order.
    fn go_on_ending(&mut self) {
        let (before, end) = (self.end, self.inbox.end());
        if before == end {
            return;
        }
        self.end = end;
        if before < End::Finish && end >= End::Finish {
            self.finishing = Some(Instant::now());
        }
        let Worker::Switch(switch) = &mut self.worker else {
            return;
        };
        let is_new = |step| before < step && step <= end;
        if is_new(End::StopReading) {
            switch.stop_reading();
        }
        if is_new(End::Finish) {
            switch.finish();
        }
        if is_new(End::Quit) {
            switch.flush();
        }
    }

    fn answer(&mut self, question: Question) -> WorkerAnswer {
        match (&mut self.worker, question) {
            (Worker::Switch(switch), Question::Stats) => {
                switch.flush();
                WorkerAnswer::Switch {
                    stats: Box::new(SwitchStats {
                        busy: self.busy,
                        ..switch.stats()
                    }),
                    ports: switch.port_counters(),
                }
            }
            (Worker::Switch(switch), Question::Finished) => WorkerAnswer::Finished(switch.finished()),
            (Worker::Switch(switch), Question::Drained) => {
                let (stats, pool) = (switch.stats(), switch.pool());
                let moved = stats.received + stats.sent + pool.free() as u64;
                let out = (pool.total() - pool.free() - switch.reserved()) as u64;
                WorkerAnswer::Drained {
                    home: switch.finished(),
                    out,
                    held: stats.held,
                    moved,
                }
            }
            (Worker::Runtime(runtime), Question::Stats) => WorkerAnswer::Runtime(Box::new(RuntimeStats {
                busy: self.busy,
                ..runtime.stats()
            })),
            (Worker::Runtime(runtime), Question::Drained) => {
                let stats = runtime.stats();
                let moved = stats.received
                    + stats.passed
                    + stats.flows_ended
                    + stats.groups_resting
                    + stats.held
                    + stats.waiting;
                let is_over = stats.flows + stats.groups_resting == 0;
                // Switches hear of the last ends of groups behind the moves that are under way.
                let is_late = self.finishing.is_some_and(|since| since.elapsed() >= GRACE);
                let has_said_all = runtime.is_at_rest() || is_late;
                let home = self.end < End::Finish || is_over && has_said_all && self.lines.is_empty();
                WorkerAnswer::Drained {
                    home,
                    out: 0,
                    held: stats.held,
                    moved,
                }
            }
            (Worker::Switch(switch), Question::Watch(watch)) => {
                WorkerAnswer::Watching(switch.watch(*watch).is_ok())
            }
            (Worker::Runtime(runtime), Question::Watch(watch)) => {
                WorkerAnswer::Watching(runtime.watch(*watch).is_ok())
            }
            (Worker::Switch(switch), Question::Watched(id, mut seen)) => {
                switch.watched(id, &mut seen);
                WorkerAnswer::Watched(seen, None)
            }
            (Worker::Runtime(runtime), Question::Watched(id, mut seen)) => {
                runtime.watched(id, &mut seen);
                WorkerAnswer::Watched(seen, Some((runtime.function_names(), runtime.chain_names())))
            }
            (Worker::Runtime(runtime), Question::Order(order, others, count)) => {
                let given = runtime.order_some(order, &others, count);
                WorkerAnswer::Ordered(given.map_err(|error| error.to_string()))
            }
            (Worker::Runtime(runtime), Question::Cancel(number)) => {
                runtime.cancel(number);
                WorkerAnswer::Done
            }
            (Worker::Runtime(runtime), Question::Receipt(number)) => {
                WorkerAnswer::Receipt(runtime.receipt(number).map(Box::new))
            }
            (Worker::Runtime(worker), Question::Leaving(leaving)) => {
                worker.set_leaving(leaving);
                WorkerAnswer::Leaving
            }
            (Worker::Switch(switch), Question::Presence(runtime)) => {
                let (there, leaving) = switch.presence(runtime).unwrap_or_default();
                let groups = switch.stats().groups;
                WorkerAnswer::Presence {
                    there,
                    leaving,
                    groups: groups.get(usize::from(runtime)).copied().unwrap_or(0),
                }
            }
            (Worker::Runtime(runtime), Question::Empty) => {
                WorkerAnswer::Empty(self.rests && self.lines.is_empty() && runtime.is_empty())
            }
            (Worker::Runtime(runtime), Question::Session(session)) => {
                runtime.each_link(|_, link| link.set_session(session));
                WorkerAnswer::Done
            }
            (Worker::Runtime(runtime), Question::Others) => {
                let mut others = Vec::new();
                runtime.each_link(|to, link| match to {
                    LinkTo::Runtime(number) if link.session() != 0 => others.push((number, false)),
                    _ => {}
                });
                for (number, leaving) in &mut others {
                    *leaving = runtime.knows_leaving(*number);
                }
                WorkerAnswer::Others(others)
            }
            _ => WorkerAnswer::NotMine,
        }
    }
}
