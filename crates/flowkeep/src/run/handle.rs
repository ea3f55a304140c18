//! The way to a worker: the questions, and the queue by which it is asked.
//!
//! A question blocks no worker: it is put into a queue that the worker looks at every few steps,
//! and the answer comes back through a queue of its own. The queue of a worker has [`QUESTIONS`]
//! places. A question that finds it full is refused, and the error says so: a worker that does not
//! answer takes no more memory than that. The end of a worker is not in the queue ([`End`]), so a
//! full queue does not delay it.
//!
//! Not here: the thread that answers ([`super::driver`]).

use super::driver::Worker;
use super::links::WorkerLink;
use adapters::open::BoxPort;
use runtime::mobility;
use runtime::stats::{RuntimeStats, SwitchStats};
use runtime::switch::Switch;
use runtime::watch::{Seen, Watch};
use runtime::{PortCounters, Runtime};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;
use wire::FlowKey;

/// How long the thread that asks waits for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Questions that wait for a worker at most. The orders of a cluster ask for 16 receipts at once,
/// and each connection for one answer.
pub(super) const QUESTIONS: usize = 128;
/// Places for the ends of watches: each watch took a question before, or is one of the few that a
/// worker has.
const ENDS_OF_WATCHES: usize = QUESTIONS + 64;

/// Something to do for a worker.
pub(super) enum Command {
    /// Answer a question.
    Ask(Question, Sender<WorkerAnswer>),
    /// Make a call.
    Call(Box<dyn FnOnce(&mut Worker) + Send>),
    /// A watch is over.
    Unwatch(u32),
    /// A trace has learned a key elsewhere.
    Learn(u32, FlowKey),
    /// A runtime that is empty goes.
    Leave(Sender<Box<Runtime<WorkerLink>>>),
}

/// How far the end of a worker has come. It only goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    /// The worker works.
    None,
    /// The worker reads no more from ports.
    StopReading,
    /// The worker ends all flows.
    Finish,
    /// The thread may go.
    Quit,
}

impl End {
    const ALL: [End; 4] = [End::None, End::StopReading, End::Finish, End::Quit];
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unanswered {
    /// The queue of the worker is full.
    Full,
    /// The worker has not answered in time.
    Late,
    /// The worker is gone.
    Gone,
    /// The answer is to another question.
    Foreign,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Full => write!(
                f,
                "its queue is full ({QUESTIONS} questions wait there unanswered)"
            ),
            Unanswered::Late => write!(f, "it did not answer within {} s", PATIENCE.as_secs()),
            Unanswered::Gone => f.write_str("it has ended"),
            Unanswered::Foreign => f.write_str("it answered another question"),
        }
    }
}

/// The questions.
pub(super) enum Question {
    Stats,
    Finished,
    Drained,
    /// Begin to watch.
    Watch(Box<Watch>),
    /// The observations of a watch, for empty memory.
    Watched(u32, Box<Seen>),
    /// For runtimes: an order, the others that may be offered the flows that do not move, and of
    /// how many flows at most.
    Order(mobility::MoveOrder, Vec<u16>, u32),
    Receipt(u32),
    /// For runtimes: an order is taken back.
    Cancel(u32),
    /// For runtimes.
    Leaving(bool),
    /// For runtimes: which others there are, and whether each has said that it takes no flows.
    Others,
    /// For switches: their knowledge of a runtime.
    Presence(u16),
    /// For runtimes: whether they are empty, and nothing came just now.
    Empty,
    /// For runtimes: the session of its links' ends.
    Session(u64),
}

/// The answers.
pub(super) enum WorkerAnswer {
    Switch {
        stats: Box<SwitchStats>,
        ports: Vec<PortCounters>,
    },
    Runtime(Box<RuntimeStats>),
    Finished(bool),
    /// Whether all is done, how many of its buffers are out, how many packets it holds, and a
    /// number that changes when anything moves.
    Drained {
        home: bool,
        out: u64,
        held: u64,
        moved: u64,
    },
    /// Whether it does, or as many as may do.
    Watching(bool),
    /// The observations, and at a runtime the names of functions and chains by their numbers.
    Watched(Box<Seen>, Option<Names>),
    Ordered(Result<u32, String>),
    Receipt(Option<Box<mobility::Receipt>>),
    Leaving,
    Others(Vec<(u16, bool)>),
    Presence {
        there: bool,
        leaving: bool,
        groups: u64,
    },
    Empty(bool),
    Done,
    /// Not a question for this kind of worker.
    NotMine,
}

/// Names of functions, and of chains, by their numbers.
pub(super) type Names = (Vec<String>, Vec<String>);

/// The way to a worker.
#[derive(Clone)]
pub(super) struct Handle {
    commands: SyncSender<Command>,
    shared: Arc<Front>,
}

/// The part of a queue that both ends see.
struct Front {
    /// Questions that wait.
    waiting: AtomicUsize,
    end: AtomicU8,
}

/// The worker's end of its queue.
pub(super) struct Inbox {
    commands: Receiver<Command>,
    shared: Arc<Front>,
}

impl Inbox {
    /// The first command, if there is one.
    pub fn take(&self) -> Option<Command> {
        let command = self.commands.try_recv().ok()?;
        self.note_taken(&command);
        Some(command)
    }

    /// The same; it waits until something is there, and answers nothing when nothing can come any
    /// more.
    #[cfg(test)]
    pub fn wait(&self) -> Option<Command> {
        let command = self.commands.recv().ok()?;
        self.note_taken(&command);
        Some(command)
    }

    fn note_taken(&self, command: &Command) {
        if !matches!(command, Command::Unwatch(_)) {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn end(&self) -> End {
        End::ALL[usize::from(self.shared.end.load(Ordering::Acquire)).min(3)]
    }
}

impl Handle {
    /// A handle and the queue that its worker reads.
    pub fn new() -> (Self, Inbox) {
        let (sender, commands) = sync_channel(QUESTIONS + ENDS_OF_WATCHES);
        let shared = Arc::new(Front {
            waiting: AtomicUsize::new(0),
            end: AtomicU8::new(End::None as u8),
        });
        let handle = Handle {
            commands: sender,
            shared: Arc::clone(&shared),
        };
        (handle, Inbox { commands, shared })
    }

    /// Has the worker go on towards its end.
    pub fn end(&self, end: End) {
        self.shared.end.fetch_max(end as u8, Ordering::Release);
    }

    /// Says that a watch is over; a worker that has gone does not hear it.
    pub fn unwatch(&self, id: u32) {
        // There is a place: `ENDS_OF_WATCHES`.
        let _ = self.commands.try_send(Command::Unwatch(id));
    }

    /// Says that a trace has learned a key elsewhere. A worker whose queue is full does not hear
    /// it, and traces less.
    pub fn learn(&self, id: u32, key: FlowKey) {
        let _ = self.put(Command::Learn(id, key));
    }

    /// Puts something into the queue, if there is a place.
    fn put(&self, command: Command) -> Result<(), Unanswered> {
        let waiting = &self.shared.waiting;
        if waiting.fetch_add(1, Ordering::Relaxed) >= QUESTIONS {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Unanswered::Full);
        }
        self.commands.try_send(command).map_err(|error| {
            waiting.fetch_sub(1, Ordering::Relaxed);
            match error {
                TrySendError::Full(_) => Unanswered::Full,
                TrySendError::Disconnected(_) => Unanswered::Gone,
            }
        })
    }

    /// Asks; the answer comes by the returned receiver.
    pub fn ask_later(&self, question: Question) -> Result<Receiver<WorkerAnswer>, Unanswered> {
        let (sender, receiver) = channel();
        self.put(Command::Ask(question, sender))?;
        Ok(receiver)
    }

    /// Has a worker make a call between two steps; its answer comes by the returned receiver. A
    /// worker of the other kind answers nothing.
    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Worker) -> Option<T> + Send + 'static,
    ) -> Result<Receiver<T>, Unanswered> {
        let (sender, receiver) = channel();
        let made = move |worker: &mut Worker| drop(call(worker).map(|answer| sender.send(answer)));
        self.put(Command::Call(Box::new(made)))?;
        Ok(receiver)
    }

    /// Calls a runtime and waits for the answer, [`PATIENCE`] at most.
    pub fn runtime<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Runtime<WorkerLink>) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let answer = self.call(move |worker| worker.runtime().map(call))?;
        answer.recv_timeout(PATIENCE).map_err(Unanswered::from)
    }

    /// Calls a switch and waits for the answer, [`PATIENCE`] at most.
    pub fn switch<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Switch<BoxPort, WorkerLink>) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let answer = self.call(move |worker| worker.switch().map(call))?;
        answer.recv_timeout(PATIENCE).map_err(Unanswered::from)
    }

    /// Has an empty runtime go, and answers with it.
    pub fn leave(&self) -> Result<Box<Runtime<WorkerLink>>, Unanswered> {
        let (sender, receiver) = channel();
        self.put(Command::Leave(sender))?;
        receiver.recv_timeout(PATIENCE).map_err(Unanswered::from)
    }

    /// Asks and waits for the answer, [`PATIENCE`] at most.
    pub fn ask(&self, question: Question) -> Result<WorkerAnswer, Unanswered> {
        let answer = self.ask_later(question)?.recv_timeout(PATIENCE);
        answer.map_err(Unanswered::from)
    }
}

impl From<RecvTimeoutError> for Unanswered {
    fn from(error: RecvTimeoutError) -> Self {
        match error {
            RecvTimeoutError::Timeout => Unanswered::Late,
            RecvTimeoutError::Disconnected => Unanswered::Gone,
        }
    }
}
