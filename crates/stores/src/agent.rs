//! The agent: the thread that talks with a store, and the handle by which others reach it.
//!
//! # Theory of operation
//!
//! ```text
//!                      ┌──────────────────────── agent ────────────────────────┐
//!   partition ═ ring ═►│ held: up to 2 batches of each partition, in their order│──► driver ──► store
//!   partition ═ ring ═►│                                                       │◄── outcomes
//!             ◄═ ring ═│ acknowledgements, with the buffers                    │
//!   other threads ────►│ calls: open, load, and whatever runs with the driver  │
//!                      └───────────────────────────────────────────────────────┘
//! ```
//!
//! The agent writes the batches of all partitions in one call of the driver. *A call that fails*
//! may have been done: the agent keeps the batches and repeats them, first after [`RETRY_FIRST`],
//! then ever later up to [`RETRY_LAST`]. Their versions make the repetition harmless. The workers
//! get no acknowledgement meanwhile, so they send nothing more, and their changes coalesce.
//!
//! *A store that has forgotten* changes that it acknowledged (it was started again without its
//! data, or a replica took over) is found out by the next batch, and at rest within [`LOOK`]. The
//! agent sets the partition's version there and tells the worker, which writes everything.
//!
//! *A later writer* of a partition fences this one: the agent tells the worker and drops its
//! batches.
//!
//! *A partition that fails* alone (a key of another type, a batch that cannot be read) goes behind
//! the others: their batches are answered, at the pace of the tries.
//!
//! The first failure is reported, and so is its end. The thread sleeps while there is nothing to
//! do, but for a look at the version of each partition at rest.
//!
//! Invariants: a batch is acknowledged only after the store has said that it has it, and only if
//! all of it can be read (`a_batch_that_cannot_be_read_is_a_failure`); batches of a partition reach
//! the driver in the order of their sequence; the agent holds no more than 2 batches of a
//! partition.

use crate::batch::Batch;
use crate::driver::{Driver, Ending, Failure, Outcome, Version};
use crate::late::{self, Oldest, Watcher};
use crate::name::{NameError, PartitionName, VariableName};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime};
use variables::BATCHES_MAX;
use variables::buffer::Buffer;

/// How long after a failure the agent tries again, at first.
pub const RETRY_FIRST: Duration = Duration::from_millis(10);
/// How long at last.
pub const RETRY_LAST: Duration = Duration::from_millis(500);
/// How often the agent looks whether a store at rest still has what it had.
pub const LOOK: Duration = Duration::from_secs(1);
/// How long calls may last once the agent is to end: a call under way, and the calls that it still
/// makes. A batch of many flows takes a slow store tens of seconds.
pub const LAST: Duration = Duration::from_secs(60);

/// The remedy for an error of our own.
const REPORT: &str = "begin again, and report it";

/// A batch on its way to the agent.
pub(crate) struct Sent {
    pub sequence: u64,
    pub buffer: Buffer,
}

/// The agent's word on a batch, and its buffer; or on a partition, without one.
pub(crate) struct Acknowledged {
    pub sequence: u64,
    pub outcome: Outcome,
    pub buffer: Option<Buffer>,
}

/// A worker's end of a partition that it opens.
pub(crate) struct Opened {
    pub number: u64,
    pub batches: rtrb::Producer<Sent>,
    pub acknowledged: rtrb::Consumer<Acknowledged>,
    pub agent: Thread,
}

/// Why a partition or a variable cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] Failure),
    /// The store did not answer in time.
    #[error("the store has not answered for {0} seconds; see that it runs, or set a longer `patience`")]
    Silent(u64),
    /// There is no agent any more.
    #[error("the store is closed; open it again")]
    Closed,
    /// The name cannot be one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The store's content has another type.
    #[error("{0} at the store is no {1}; give the variable another name, or remove it there")]
    Other(String, &'static str),
    /// A variable cannot be opened.
    #[error(transparent)]
    Variable(#[from] variables::OpenError),
    /// A lock's record is none.
    #[error("the record {0} is no lock; give the lock another name, or remove the record")]
    Lock(String),
}

/// How a store does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether the last call failed.
    pub failing: bool,
    /// Calls that failed so far.
    pub failures: u64,
    /// Batches that it has taken.
    pub batches: u64,
    /// The last failure.
    pub last_failure: Option<Failure>,
}

#[derive(Default)]
struct Shared {
    failing: AtomicBool,
    failures: AtomicU64,
    batches: AtomicU64,
    ending: AtomicBool,
    /// Of the control side only: no worker reads or writes it.
    last_failure: Mutex<Option<Failure>>,
    watcher: Watcher,
}

/// Something to be reported to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The store fails a call; the agent tries it again.
    Failing(Failure),
    /// The store works again, after so long.
    Again(Duration),
    /// The store has lost changes that it had acknowledged for this partition; everything is
    /// written again.
    Forgotten(PartitionName),
    /// Another instance has claimed the partition.
    Fenced(PartitionName),
    /// The store has not had a change for longer than its bound.
    Late {
        /// The partition of the change.
        partition: PartitionName,
        /// How old it is.
        age: Duration,
        /// How old it may become.
        bound: Duration,
    },
    /// The store has the partition's changes within their bounds again, after so long.
    InTime(PartitionName, Duration),
}

/// A field and its value.
pub(crate) type Element = (Vec<u8>, Vec<u8>);

type Call = Box<dyn FnOnce(&mut Agent) + Send>;
/// Reports go there, from the agent's thread and the watcher's.
type Reporter = Arc<Mutex<Box<dyn FnMut(Report) + Send>>>;

fn tell(reporter: &Reporter, report: Report) {
    let mut reporter = reporter.lock().unwrap_or_else(|held| held.into_inner());
    (*reporter)(report);
}

/// A store that is open: its agent runs until the last handle is gone and the workers' partitions
/// are.
#[derive(Clone)]
pub struct Store {
    calls: Sender<Call>,
    agent: Thread,
    shared: Arc<Shared>,
    patience: Duration,
}

impl Store {
    /// Starts the agent of a store. `report` is called from its threads. Calls that wait for the
    /// store do so for `patience`.
    pub fn start(
        driver: Box<dyn Driver>,
        patience: Duration,
        report: impl FnMut(Report) + Send + 'static,
    ) -> std::io::Result<(Self, Agency)> {
        let (calls, incoming) = channel();
        let shared = Arc::new(Shared::default());
        let report: Reporter = Arc::new(Mutex::new(Box::new(report)));
        let (watched, teller) = (Arc::clone(&shared), Arc::clone(&report));
        let driver_ending = driver.ending();
        let agent = Agent {
            driver,
            incoming,
            partitions: Vec::new(),
            next: 0,
            shared: Arc::clone(&shared),
            report,
            outage: None,
            looked: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("store".into());
        let thread = thread.spawn(move || agent.run())?;
        let watcher = std::thread::Builder::new().name("store watcher".into());
        let watcher = watcher.spawn(move || {
            let mut is_over = false;
            while !is_over {
                is_over = watched.ending.load(Ordering::Acquire);
                for report in watched.watcher.look() {
                    tell(&teller, report);
                }
                if !is_over {
                    std::thread::park_timeout(late::LOOK);
                }
            }
        })?;
        let store = Store {
            calls,
            agent: thread.thread().clone(),
            shared,
            patience,
        };
        let agency = Agency {
            shared: Arc::clone(&store.shared),
            driver_ending,
            thread: Some(thread),
            watcher: Some(watcher),
        };
        Ok((store, agency))
    }

    /// The same store, whose calls wait for it so long.
    pub fn within(&self, patience: Duration) -> Store {
        Store {
            patience,
            ..self.clone()
        }
    }

    /// How it does.
    pub fn health(&self) -> Health {
        let last = self.shared.last_failure.lock();
        Health {
            failing: self.shared.failing.load(Ordering::Relaxed),
            failures: self.shared.failures.load(Ordering::Relaxed),
            batches: self.shared.batches.load(Ordering::Relaxed),
            last_failure: last.map_or(None, |last| last.clone()),
        }
    }

    /// Runs something with the driver, on the agent's thread, and waits for the answer. A failure
    /// is tried again until patience is over: the call must be harmless when it is repeated.
    pub fn with<R: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Driver) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, OpenError> {
        let mut work = work;
        self.call(move |agent| work(agent.driver.as_mut()))
    }

    fn call<R: Send + 'static>(
        &self,
        work: impl FnMut(&mut Agent) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, OpenError> {
        let until = Instant::now() + self.patience;
        let work = Arc::new(Mutex::new(work));
        loop {
            let (answer, answered) = channel();
            let work = Arc::clone(&work);
            let call: Call = Box::new(move |agent| {
                let done = match work.lock() {
                    Ok(mut work) => work(agent),
                    Err(_) => return,
                };
                // The caller may have gone.
                let _ = answer.send(done);
            });
            self.calls.send(call).map_err(|_| OpenError::Closed)?;
            self.agent.unpark();
            let left = until.saturating_duration_since(Instant::now());
            match answered.recv_timeout(left) {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(failure)) if Instant::now() + RETRY_LAST >= until => return Err(failure.into()),
                Ok(Err(_)) => std::thread::sleep(RETRY_LAST / 5),
                Err(RecvTimeoutError::Timeout) => {
                    let last = self.health().last_failure;
                    return Err(last.map_or(OpenError::Silent(self.patience.as_secs()), OpenError::Store));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(OpenError::Closed),
            }
        }
    }

    pub(crate) fn open(&self, name: &PartitionName) -> Result<Opened, OpenError> {
        let name = name.clone();
        let (number, batches, acknowledged) = self.call(move |agent| agent.open(&name))?;
        Ok(Opened {
            number,
            batches,
            acknowledged,
            agent: self.agent.clone(),
        })
    }

    /// Has the ages of a partition's changes watched.
    pub(crate) fn watch(&self, name: &PartitionName) -> Arc<Oldest> {
        self.shared.watcher.watch(name)
    }

    pub(crate) fn load(
        &self,
        partition: u64,
        number: u32,
        variable: &VariableName,
        is_kept: bool,
    ) -> Result<Vec<Element>, OpenError> {
        let variable = variable.clone();
        self.call(move |agent| {
            // First: a variable that cannot be read now has its number all the same.
            agent.name(partition, number, &variable)?;
            match is_kept {
                true => elements(agent.driver.as_mut(), &variable),
                false => Ok(Vec::new()),
            }
        })
    }
}

/// The least epoch that a claim may give: a store that has lost its data gives none that an earlier
/// writer had, as far as the clock is right.
pub(crate) fn least_epoch() -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    clock.map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(1))
}

/// All elements of a variable.
pub(crate) fn elements(driver: &mut dyn Driver, variable: &VariableName) -> Result<Vec<Element>, Failure> {
    let mut elements = Vec::new();
    driver.load(variable, &mut |field, value| {
        elements.push((field.to_vec(), value.to_vec()))
    })?;
    Ok(elements)
}

/// Has the agent's thread: the caller that opened the store keeps it, and ends it.
pub struct Agency {
    shared: Arc<Shared>,
    driver_ending: Ending,
    thread: Option<JoinHandle<u64>>,
    watcher: Option<JoinHandle<()>>,
}

impl Agency {
    /// Ends the agent. It tries once more what it holds, within [`LAST`] where the driver hears of
    /// it; answers how many batches it had to leave.
    pub fn end(self) -> u64 {
        self.end_within(LAST)
    }

    /// The same, within another time.
    pub fn end_within(mut self, last: Duration) -> u64 {
        self.stop(last)
    }

    fn stop(&mut self, last: Duration) -> u64 {
        self.shared.ending.store(true, Ordering::Release);
        self.driver_ending.say(Instant::now() + last);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            let _ = watcher.join();
        }
        let Some(thread) = self.thread.take() else {
            return 0;
        };
        thread.thread().unpark();
        thread.join().unwrap_or(0)
    }
}

impl Drop for Agency {
    fn drop(&mut self) {
        self.stop(LAST);
    }
}

/// A partition as the agent has it.
struct Client {
    number: u64,
    name: PartitionName,
    epoch: u64,
    variables: Vec<VariableName>,
    incoming: rtrb::Consumer<Sent>,
    outgoing: rtrb::Producer<Acknowledged>,
    held: VecDeque<Sent>,
    /// Of the last batch that the store has.
    stored: u64,
    /// Whether the store has answered a batch since the last look.
    has_heard: bool,
    fenced: bool,
}

struct Outage {
    since: Instant,
    wait: Duration,
    next: Instant,
}

struct Agent {
    driver: Box<dyn Driver>,
    incoming: Receiver<Call>,
    partitions: Vec<Client>,
    next: u64,
    shared: Arc<Shared>,
    report: Reporter,
    outage: Option<Outage>,
    looked: Instant,
}

type Rings = (u64, rtrb::Producer<Sent>, rtrb::Consumer<Acknowledged>);

impl Agent {
    fn run(mut self) -> u64 {
        loop {
            while let Ok(call) = self.incoming.try_recv() {
                call(&mut self);
            }
            let ending = self.shared.ending.load(Ordering::Acquire);
            for client in &mut self.partitions {
                while client.held.len() < BATCHES_MAX
                    && let Ok(sent) = client.incoming.pop()
                {
                    client.held.push_back(sent);
                }
            }
            // Batches that a worker left behind when it went are written all the same.
            self.partitions.retain(|client| {
                !client.outgoing.is_abandoned() || !client.held.is_empty() || !client.incoming.is_empty()
            });
            let has_work = self.partitions.iter().any(|client| !client.held.is_empty());
            let may_try = self
                .outage
                .as_ref()
                .is_none_or(|outage| Instant::now() >= outage.next);
            let mut done = None;
            if has_work && (may_try || ending) {
                done = Some(self.write());
            }
            // Also where there is always work: of partitions at rest no batch tells.
            if self.looked.elapsed() >= LOOK && may_try && !ending {
                self.looked = Instant::now();
                let looked = self.look();
                done = Some(done.unwrap_or(Ok(())).and(looked));
            }
            if let Some(done) = done {
                self.note(done);
            }
            if ending {
                let left = self
                    .partitions
                    .iter()
                    .map(|client| client.held.len() as u64)
                    .sum();
                let more = self.partitions.iter().any(|client| !client.incoming.is_empty());
                if self.outage.is_some() || !(more || left > 0) {
                    return left;
                }
                continue;
            }
            self.rest(has_work);
        }
    }

    /// Sleeps until there is something to do.
    fn rest(&self, had_work: bool) {
        let wait = match &self.outage {
            Some(outage) => outage.next.saturating_duration_since(Instant::now()),
            None if had_work => return,
            None if self.partitions.is_empty() => LOOK,
            None => LOOK.saturating_sub(self.looked.elapsed()),
        };
        std::thread::park_timeout(wait);
    }

    /// Remembers whether the store did what it was asked.
    fn note(&mut self, done: Result<(), Failure>) {
        match done {
            Ok(()) => {
                if let Some(outage) = self.outage.take() {
                    self.shared.failing.store(false, Ordering::Relaxed);
                    tell(&self.report, Report::Again(outage.since.elapsed()));
                }
            }
            Err(failure) => {
                let now = Instant::now();
                self.shared.failing.store(true, Ordering::Relaxed);
                self.shared.failures.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut last) = self.shared.last_failure.lock() {
                    *last = Some(failure.clone());
                }
                match &mut self.outage {
                    Some(outage) => {
                        outage.wait = (outage.wait * 2).min(RETRY_LAST);
                        outage.next = now + outage.wait;
                    }
                    None => {
                        self.outage = Some(Outage {
                            since: now,
                            wait: RETRY_FIRST,
                            next: now + RETRY_FIRST,
                        });
                        tell(&self.report, Report::Failing(failure));
                    }
                }
            }
        }
    }

    fn open(&mut self, name: &PartitionName) -> Result<Rings, Failure> {
        let epoch = self.driver.claim(name, least_epoch())?;
        let (batches, incoming) = rtrb::RingBuffer::new(BATCHES_MAX);
        // More than batches: words without a buffer.
        let (outgoing, acknowledged) = rtrb::RingBuffer::new(BATCHES_MAX + 2);
        self.next += 1;
        self.partitions.push(Client {
            number: self.next,
            name: name.clone(),
            epoch,
            variables: Vec::new(),
            incoming,
            outgoing,
            held: VecDeque::with_capacity(BATCHES_MAX),
            stored: 0,
            has_heard: false,
            fenced: false,
        });
        Ok((self.next, batches, acknowledged))
    }

    /// Numbers a variable. A number stays its variable's, though an instance that wanted it is
    /// given up; one whose variable could not be opened at all is the next one's.
    fn name(&mut self, partition: u64, number: u32, variable: &VariableName) -> Result<(), Failure> {
        let mut clients = self.partitions.iter_mut();
        let Some(client) = clients.find(|client| client.number == partition) else {
            // Its worker has gone, and sends no batch.
            return Ok(());
        };
        let numbered = client.variables.len();
        match client.variables.get_mut(number as usize) {
            Some(place) => *place = variable.clone(),
            None if numbered == number as usize => client.variables.push(variable.clone()),
            // In another place the variable's changes would be another variable's.
            None => {
                let problem = format!("its number is {number}, and {numbered} variables are numbered");
                return Err(Failure::new(&variable.to_string(), problem, REPORT));
            }
        }
        Ok(())
    }

    /// Writes all that is held. A partition whose batch gets no answer comes last from then on: the
    /// next call has the answers of those behind it, whatever is wrong with this one.
    fn write(&mut self) -> Result<(), Failure> {
        let mut batches = Vec::new();
        let mut whose = Vec::new();
        let mut unread = None;
        for (at, client) in self.partitions.iter().enumerate() {
            for sent in client.held.iter().filter(|_| !client.fenced) {
                let batch = Batch {
                    partition: &client.name,
                    version: Version {
                        epoch: client.epoch,
                        sequence: sent.sequence,
                    },
                    variables: &client.variables,
                    bytes: sent.buffer.bytes(),
                };
                // A driver would write the changes before the bad one, and say that it has all.
                if !batch.is_whole() {
                    let problem = format!("the changes of its batch {} cannot be read", sent.sequence);
                    unread = Some(Failure::new(&client.name.to_string(), problem, REPORT));
                    break;
                }
                whose.push(at);
                batches.push(batch);
            }
        }
        let mut outcomes = Vec::with_capacity(batches.len());
        let mut done = match batches.is_empty() {
            true => Ok(()),
            false => self.driver.write(&batches, &mut outcomes),
        };
        drop(batches);
        let last = done
            .is_err()
            .then(|| whose.get(outcomes.len()).copied())
            .flatten();
        // Known outcomes are passed on, though a later batch may have failed.
        let mut whose = whose.into_iter().zip(outcomes).peekable();
        while let Some((at, outcome)) = whose.next() {
            if let Err(failure) = self.conclude(at, outcome) {
                // Its next batch waits for this one.
                while whose.next_if(|(of, _)| *of == at).is_some() {}
                done = done.and(Err(failure));
            }
        }
        for client in &mut self.partitions {
            if client.fenced {
                while let Some(sent) = client.held.pop_front() {
                    acknowledge(client, sent.sequence, Outcome::Fenced, Some(sent.buffer));
                }
            }
        }
        self.put_last(last);
        done.and(unread.map_or(Ok(()), Err))
    }

    /// Has other partitions come before this one.
    fn put_last(&mut self, at: Option<usize>) {
        if let Some(behind) = at.and_then(|at| self.partitions.get_mut(at..)) {
            behind.rotate_left(1.min(behind.len()));
        }
    }

    /// Passes on the outcome of a partition's oldest batch.
    fn conclude(&mut self, at: usize, outcome: Outcome) -> Result<(), Failure> {
        let Some(client) = self.partitions.get_mut(at) else {
            return Ok(());
        };
        let Some(sequence) = client.held.front().map(|sent| sent.sequence) else {
            return Ok(());
        };
        client.has_heard = true;
        match outcome {
            Outcome::Stored => {
                client.stored = sequence;
                self.shared.batches.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Fenced => {
                if !client.fenced {
                    client.fenced = true;
                    tell(&self.report, Report::Fenced(client.name.clone()));
                }
            }
            // The worker sends it again, with all the rest.
            Outcome::Forgotten => return self.restore(at, sequence),
        }
        if let Some(sent) = client.held.pop_front() {
            acknowledge(client, sent.sequence, outcome, Some(sent.buffer));
        }
        Ok(())
    }

    /// Gives a partition its version at a store that has forgotten it, and tells the worker to
    /// write everything.
    fn restore(&mut self, at: usize, sequence: u64) -> Result<(), Failure> {
        let Some(client) = self.partitions.get_mut(at) else {
            return Ok(());
        };
        let version = Version {
            epoch: client.epoch,
            sequence,
        };
        match self.driver.restore(&client.name, version)? {
            Outcome::Fenced => client.fenced = true,
            Outcome::Stored | Outcome::Forgotten => {
                tell(&self.report, Report::Forgotten(client.name.clone()));
                client.stored = sequence;
                let buffer = if client.held.front().is_some_and(|sent| sent.sequence <= sequence) {
                    client.held.pop_front().map(|sent| sent.buffer)
                } else {
                    None
                };
                acknowledge(client, sequence, Outcome::Forgotten, buffer);
            }
        }
        Ok(())
    }

    /// Looks whether the store still has what it acknowledged, of partitions without a batch since
    /// the last look. It ends with the first failure, since each may last for as long as the driver
    /// waits; the next look begins with the partitions behind.
    fn look(&mut self) -> Result<(), Failure> {
        for at in 0..self.partitions.len() {
            let looked = self.look_at(at);
            if looked.is_err() {
                self.put_last(Some(at));
                return looked;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, at: usize) -> Result<(), Failure> {
        let Some(client) = self.partitions.get_mut(at) else {
            return Ok(());
        };
        if client.fenced || std::mem::take(&mut client.has_heard) {
            return Ok(());
        }
        let has = self.driver.version(&client.name)?.unwrap_or_default();
        let ours = Version {
            epoch: client.epoch,
            sequence: client.stored,
        };
        if has.epoch > ours.epoch {
            client.fenced = true;
            tell(&self.report, Report::Fenced(client.name.clone()));
            acknowledge(client, ours.sequence, Outcome::Fenced, None);
        } else if has < ours {
            self.restore(at, ours.sequence)?;
        }
        Ok(())
    }
}

fn acknowledge(client: &mut Client, sequence: u64, outcome: Outcome, buffer: Option<Buffer>) {
    // The places of buffers are theirs. A word that finds none follows one that the worker has not
    // read, and that says as much.
    if buffer.is_none() && client.outgoing.slots() <= BATCHES_MAX {
        return;
    }
    // A worker that has gone needs none.
    let _ = client.outgoing.push(Acknowledged {
        sequence,
        outcome,
        buffer,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::memory::Memory;
    use crate::name::Kind;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Waits for a word on a batch.
    fn heard(opened: &mut Opened, patience: Duration) -> Option<Outcome> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if let Ok(word) = opened.acknowledged.pop() {
                return Some(word.outcome);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// A batch with a number that no variable has is not acknowledged, and no other one's trouble.
    #[test]
    fn a_batch_that_cannot_be_read_is_a_failure() {
        let mut memory = Memory::default();
        let (store, agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
        let name = |runtime| PartitionName::new("f", "m", runtime).unwrap();
        let mut opened = [0, 1].map(|runtime| {
            let opened = store.open(&name(runtime)).unwrap();
            let variable = name(runtime).variable(Kind::Value, "v").unwrap();
            store.load(opened.number, 0, &variable, true).unwrap();
            opened
        });
        for (opened, number) in opened.iter_mut().zip([1, 0]) {
            let mut buffer = Buffer::new();
            buffer.put(0, &(), &1u8).unwrap();
            buffer.put(number, &(), &2u8).unwrap();
            assert!(opened.batches.push(Sent { sequence: 1, buffer }).is_ok());
            opened.agent.unpark();
        }
        let [bad, good] = &mut opened;
        assert_eq!(heard(good, PATIENCE), Some(Outcome::Stored));
        assert_eq!(heard(bad, Duration::from_millis(100)), None);
        let said = store.health().last_failure.unwrap().to_string();
        assert!(store.health().failing && said.contains("f@m@0"), "{said}");
        assert_eq!(memory.version(&name(0)).unwrap().unwrap().sequence, 0);
        // A number that leaves a gap is refused where it is given.
        let far = name(1).variable(Kind::Value, "w").unwrap();
        assert!(
            store
                .within(Duration::ZERO)
                .load(good.number, 2, &far, true)
                .is_err()
        );
        assert_eq!(agency.end(), 1);
    }
}
