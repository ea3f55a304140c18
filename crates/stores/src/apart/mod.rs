//! A driver in a process of its own: a node's answer can end that process, and not Flowkeep.
//!
//! The library that speaks to Cassandra trusts its nodes. It reserves memory for as many columns as
//! an answer claims to have, and reads types within types by recursion. The library that speaks to
//! Redis keeps an answer of any length until it is whole. So one answer of a hostile server ends
//! the process, by an allocation that fails or a stack that is full. Neither can be caught. So both
//! libraries run apart (decision 39).
//!
//! # Theory of operation
//!
//! ```text
//!   flowkeep                                           flowkeep store-driver (/proc/self/exe)
//!   agent ──► Apart ══ Claim, Write, Load … ═ socket ══► driver ──► server
//!             │     ◄═ Working … Epoch, Written … ═════  at most MEMORY, no rights, no other files
//!             └ keeper ◄── standard error, end ────────┘
//!
//!                 next call, not before its pause is over
//!        ┌────────┐ ───── start, Open ──► ┌─────────┐ ── answers, and failures of the store ──┐
//!        │ absent │                       │ running │ ◄────────────────────────────────────────┘
//!        └────────┘ ◄──── kill, reap ──── └─────────┘
//!              its end; a patience or what Ending says is over; bytes that are no answer
//! ```
//!
//! *A call* is one [`Request`] and its [`DriverAnswer`]; there is one at a time. A beat says each
//! [`BEAT`] that the call goes on, so a process that is stopped is told from a slow store. Whatever
//! is not an answer ends the process, so no answer is taken for that of another call. A call
//! without a whole answer is a [`Failure`], and may have been done: the trait's rules for failures
//! hold, and the agent repeats the call.
//!
//! *An answer that never ends* is whole at no time, and each of its bytes is in time for the
//! library. So a call is over with [`Patience::call`], and [`crate::agent::LAST`] behind the
//! agent's order to end ([`Ending`]): from then on each call fails at once.
//!
//! *A start* costs some ten milliseconds. The pause before it doubles from [`PAUSE`] to
//! [`PAUSE_MAX`] while processes live for less than [`GOOD`]; calls fail at once meanwhile, with
//! the cause of the last one's end.
//!
//! *Secrets.* The URI goes over the socket: no password is among the words or in the environment of
//! a process. Files that the URI names are read there, by the same user.
//!
//! *Limits.* The process may have [`MEMORY`] of data: an answer that claims to have 2^31 columns,
//! which is 223 GB, fails at once, and a machine keeps its memory. It is far more than a good
//! driver needs: slots of ten million elements are 1 GB. It has its standard input, output and
//! error and none of the other descriptors, none of the rights, and cannot get any.
//!
//! *The end.* The socket is the process's standard input: however Flowkeep ends, the other end is
//! closed, and a thread that reads it ends the process. The kernel kills a stopped process with the
//! thread that started it. The process is not in the terminal's group.
//!
//! *An upgrade* that replaces the program's file changes nothing for a running Flowkeep:
//! `/proc/self/exe` is the file that it runs, also when it has no name any more.
//!
//! # Invariants
//!
//! | | checker |
//! |---|---|
//! | what comes from the process takes no more memory than it has bytes and [`OVERHEAD`] for each element, and is at most [`ANSWER_MAX`] for a call | `whatever_comes_is_read_or_refused`, `elements_and_names_count_beyond_their_bytes`, `what_is_no_answer_ends_the_process_and_nothing_else` |
//! | no call counts as done that the process did not say was done | `counts_are_exact_while_the_process_is_killed` |
//! | the process does not outlive Flowkeep | `the_process_ends_with_flowkeep` |
//! | an agent that is to end does so, whatever the server answers | `a_trickle_without_an_end_does_not_hold_the_agents_end` |
//! | a driver that runs apart does what it does otherwise | the conformance suite |
//!
//! Not here: which stores run apart ([`crate::uri`]); how a program is told to run one (the tool).

mod child;
mod message;
mod process;

use crate::batch::Batch;
use crate::driver::{Driver, Ending, Failure, Outcome, Swapped, Version};
use crate::name::{PartitionName, VariableName};
use crate::uri::without_secret;
pub use child::serve;
use message::{Bytes, DriverAnswer, FORM, Failed, Request, Sent, frame, parsed};
use process::{Process, plain};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The last word of a program that is to be a driver.
pub const WORD: &str = "store-driver";
/// The most memory for data that the process may have, in bytes.
pub const MEMORY: u64 = 2 << 30;
/// The most bytes of all messages that answer a call, with [`OVERHEAD`] for each of their elements
/// and names: a good process has no more.
pub const ANSWER_MAX: usize = 2 << 30;
/// The memory that an element or a name takes here beside its bytes: an element of two bytes in a
/// message is two vectors.
const OVERHEAD: usize = 64;
/// How often the process says that it works.
pub const BEAT: Duration = Duration::from_secs(1);
/// Before a process is started again, at first.
pub const PAUSE: Duration = Duration::from_millis(100);
/// And at last.
pub const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Behind a process that has lived for so long, there is no pause.
pub const GOOD: Duration = Duration::from_secs(10);

const HOSTILE: &str = "see that its server is whole and your own (over TLS, with `ca`): an answer that cannot be read \
                       ends that process, and so does one that takes 2 GiB; it is started again, and changes wait meanwhile";
const ENDS: &str = "nothing: Flowkeep ends, and says which changes are not in the store";
const STARTS: &str = "see that /proc is mounted, and that this program may start itself (sandbox, number of processes); \
                      it is tried again, and changes wait meanwhile";

/// The program to start, with which words before [`WORD`].
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// Its words.
    pub words: Vec<String>,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// From now on drivers that should run apart do so, in this process: by its own program, which has
/// to call [`serve`] where its only word is [`WORD`].
pub fn run_apart() {
    let _ = PROGRAM.set(Program {
        path: "/proc/self/exe".into(),
        words: Vec::new(),
    });
}

/// The program that drivers which should run apart run in, if they do.
#[cfg(any(feature = "redis", feature = "cassandra"))]
pub(crate) fn program() -> Option<&'static Program> {
    PROGRAM.get()
}

/// How long the process may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until it says anything: an answer, a part of it, or that it works.
    pub silence: Duration,
    /// Until a call is over.
    pub call: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            silence: 10 * BEAT,
            call: Duration::from_secs(600),
        }
    }
}

/// The driver of a store, in a process of its own.
pub struct Apart {
    program: Program,
    uri: String,
    /// Without a password.
    name: String,
    patience: Patience,
    /// The most memory of an answer: [`ANSWER_MAX`], but in a test.
    answer_max: usize,
    /// When all calls are to be over, once that is said.
    last: Arc<OnceLock<Instant>>,
    process: Option<Process>,
    pause: Duration,
    /// When it may be started again, and the last failure.
    absent: Option<(Instant, Failure)>,
}

/// An answer's place in a call.
enum Step<R> {
    More,
    Last(R),
    /// None of it.
    Wrong,
}

/// Why there is no good answer.
enum Trouble {
    Said(Failed),
    Ended,
    Silent,
    Wrong,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Trouble::Silent,
            io::ErrorKind::InvalidData => Trouble::Wrong,
            _ => Trouble::Ended,
        }
    }
}

/// The socket until a moment, however the bytes come.
struct Timed<'s> {
    socket: &'s UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Apart {
    /// Knows the store; the first call starts the process.
    pub fn new(program: Program, uri: &str) -> Self {
        Apart {
            program,
            uri: uri.to_owned(),
            name: without_secret(uri),
            patience: Patience::default(),
            answer_max: ANSWER_MAX,
            last: Arc::default(),
            process: None,
            pause: Duration::ZERO,
            absent: None,
        }
    }

    /// The same, with another patience.
    pub fn within(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Why the store could not be had now, as [`crate::look`] says.
    pub fn look(&mut self) -> Result<(), Failure> {
        self.call(frame(&Request::Look), done)
    }

    fn call<R>(
        &mut self,
        request: Option<Vec<u8>>,
        take: impl FnMut(DriverAnswer<'_>) -> Step<R>,
    ) -> Result<R, Failure> {
        let Some(request) = request else {
            let problem = "what it is to have is longer than a message of 16 MiB";
            return Err(Failure::new(&self.name, problem, "have it in parts"));
        };
        self.start()?;
        match self.exchange(&request, take) {
            Ok(done) => Ok(done),
            Err(Trouble::Said(failed)) => Err(self.said(&failed)),
            Err(trouble) => Err(self.lose(&trouble)),
        }
    }

    /// Starts the process where there is none.
    fn start(&mut self) -> Result<(), Failure> {
        if self.last.get().is_some_and(|last| Instant::now() >= *last) {
            return Err(Failure::new(&self.name, "its agent ends", ENDS));
        }
        if self.process.is_some() {
            return Ok(());
        }
        if let Some((next, failure)) = &self.absent
            && Instant::now() < *next
        {
            return Err(failure.clone());
        }
        match Process::start(&self.program) {
            Ok(process) => self.process = Some(process),
            Err(error) => {
                let problem = format!("the process of its driver cannot be started: {error}");
                return Err(self.put_off(Failure::new(&self.name, problem, STARTS)));
            }
        }
        let open = frame(&Request::Open {
            form: FORM,
            uri: &self.uri,
        });
        let opened = self.exchange(&open.unwrap_or_default(), |answer| match answer {
            DriverAnswer::Opened { form: FORM } => Step::Last(()),
            _ => Step::Wrong,
        });
        opened.map_err(|trouble| match trouble {
            Trouble::Said(failed) => {
                self.process = None;
                let failure = self.said(&failed);
                self.put_off(failure)
            }
            trouble => self.lose(&trouble),
        })
    }

    fn exchange<R>(
        &self,
        request: &[u8],
        mut take: impl FnMut(DriverAnswer<'_>) -> Step<R>,
    ) -> Result<R, Trouble> {
        let Some(process) = &self.process else {
            return Err(Trouble::Ended);
        };
        let now = Instant::now();
        let (end, until) = (now + self.patience.call, now + self.patience.silence);
        let mut timed = Timed {
            socket: &process.socket,
            until,
        };
        timed.write_all(request)?;
        let (mut message, mut bytes) = (Vec::new(), 0_usize);
        loop {
            timed.until = end.min(Instant::now() + self.patience.silence);
            if let Some(last) = self.last.get() {
                timed.until = timed.until.min(*last);
            }
            message::read(&mut timed, &mut message)?;
            let answer = parsed(&message).ok_or(Trouble::Wrong)?;
            bytes = bytes
                .saturating_add(message.len())
                .saturating_add(beside(&answer));
            if bytes > self.answer_max {
                break;
            }
            match answer {
                DriverAnswer::Working => {}
                DriverAnswer::Failed(failed) => return Err(Trouble::Said(failed)),
                answer => match take(answer) {
                    Step::More => {}
                    Step::Last(done) => return Ok(done),
                    Step::Wrong => return Err(Trouble::Wrong),
                },
            }
        }
        Err(Trouble::Wrong)
    }

    /// The driver's words on its store, fit to be printed.
    fn said(&self, failed: &Failed) -> Failure {
        let fit = |said: &str| plain(said, usize::MAX, 2000);
        Failure::new(&self.name, fit(&failed.problem), fit(&failed.remedy))
    }

    /// Ends the process, if it has not ended: its next message would be no answer.
    fn lose(&mut self, trouble: &Trouble) -> Failure {
        let Some(process) = self.process.take() else {
            return Failure::new(&self.name, "its driver has no process", STARTS);
        };
        let was_good = process.began.elapsed() >= GOOD;
        let end = process.kill();
        let what = match trouble {
            Trouble::Silent => "it does not answer".to_owned(),
            Trouble::Wrong => "its answer is none to what was asked".to_owned(),
            Trouble::Ended | Trouble::Said(_) => end,
        };
        let problem = format!("the process of its driver: {what}");
        let failure = Failure::new(&self.name, problem, HOSTILE);
        if was_good {
            (self.pause, self.absent) = (Duration::ZERO, None);
            return failure;
        }
        self.put_off(failure)
    }

    /// Until the next start calls fail so.
    fn put_off(&mut self, failure: Failure) -> Failure {
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
        self.absent = Some((Instant::now() + self.pause, failure.clone()));
        failure
    }

    fn names<N: FromStr>(&mut self, request: &Request<'_>) -> Result<Vec<N>, Failure> {
        let mut all = Vec::new();
        self.call(frame(request), |answer| match answer {
            DriverAnswer::Names(some) => {
                let before = all.len();
                all.extend(some.iter().map_while(|name| name.parse().ok()));
                match all.len() - before == some.len() {
                    true => Step::More,
                    false => Step::Wrong,
                }
            }
            other => done(other),
        })?;
        Ok(all)
    }
}

/// The memory of an answer beside its bytes.
fn beside(answer: &DriverAnswer<'_>) -> usize {
    let count = match answer {
        DriverAnswer::Elements(some) => some.len(),
        DriverAnswer::Names(some) => some.len(),
        _ => 0,
    };
    count.saturating_mul(OVERHEAD)
}

fn done(answer: DriverAnswer<'_>) -> Step<()> {
    match answer {
        DriverAnswer::Done => Step::Last(()),
        _ => Step::Wrong,
    }
}

impl Driver for Apart {
    fn ending(&self) -> Ending {
        Ending::of(&self.last)
    }

    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        let partition = partition.to_string();
        let request = frame(&Request::Claim { partition, at_least });
        self.call(request, |answer| match answer {
            DriverAnswer::Epoch(epoch) if epoch >= at_least => Step::Last(epoch),
            _ => Step::Wrong,
        })
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        let partition = partition.to_string();
        self.call(frame(&Request::Version { partition }), |answer| match answer {
            DriverAnswer::Version(version) => Step::Last(version),
            _ => Step::Wrong,
        })
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        let partition = partition.to_string();
        let request = frame(&Request::Restore { partition, version });
        self.call(request, |answer| match answer {
            DriverAnswer::Written(outcomes, None) => match outcomes.as_slice() {
                [outcome] => Step::Last(*outcome),
                _ => Step::Wrong,
            },
            _ => Step::Wrong,
        })
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        let request = frame(&Request::Write(batches.iter().map(Sent::of).collect()));
        if request.is_none()
            && let Some((first, rest)) = batches.split_at_checked(batches.len() / 2)
            && !first.is_empty()
        {
            self.write(first, outcomes)?;
            return self.write(rest, outcomes);
        }
        let (said, failed) = self.call(request, |answer| match answer {
            DriverAnswer::Written(said, failed)
                if said.len() == batches.len() || said.len() < batches.len() && failed.is_some() =>
            {
                Step::Last((said, failed))
            }
            _ => Step::Wrong,
        })?;
        outcomes.extend(said);
        failed.map_or(Ok(()), |failed| Err(self.said(&failed)))
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let variable = variable.to_string();
        self.call(frame(&Request::Load { variable }), |answer| match answer {
            DriverAnswer::Elements(some) => {
                some.iter().for_each(|(field, value)| element(field.0, value.0));
                Step::More
            }
            other => done(other),
        })
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        self.names(&Request::Partitions { function })
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        self.names(&Request::Variables)
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.call(frame(&Request::Record { name }), |answer| match answer {
            DriverAnswer::Record(bytes) => Step::Last(bytes),
            _ => Step::Wrong,
        })
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.names(&Request::Records)
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        let (expected, new) = (expected.map(Bytes), new.map(Bytes));
        self.call(
            frame(&Request::Swap { name, expected, new }),
            |answer| match answer {
                DriverAnswer::Done => Step::Last(Swapped::Done),
                DriverAnswer::Record(has) => Step::Last(Swapped::Other(has)),
                _ => Step::Wrong,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_ever_longer_apart_and_calls_between_fail_at_once() {
        let program = Program {
            path: "/nowhere/at/all".into(),
            words: Vec::new(),
        };
        let mut apart = Apart::new(program, "cassandra://u:secret@h");
        let mut failed = |again: bool| {
            if again {
                apart.absent = None;
            }
            let failure = apart.records().unwrap_err();
            (apart.pause.as_millis(), failure)
        };
        for pause in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert_eq!(failed(true).0, pause);
        }
        let began = Instant::now();
        let (pause, failure) = failed(false);
        assert!(pause == 5000 && began.elapsed() < PAUSE_MAX, "no other start");
        let said = failure.to_string();
        assert!(said.contains("cannot be started: No such file") && !said.contains("secret"));
    }

    /// Elements without a byte take memory all the same.
    #[test]
    fn elements_and_names_count_beyond_their_bytes() {
        let variable = PartitionName::new("f", "m", 0).unwrap();
        let variable = variable.variable(crate::name::Kind::Map, "m").unwrap();
        // The script says that the store is opened, a hundred thousand elements or names without a
        // byte, and that this is all.
        let said = |what: &str, length: &str, bytes: u32| Program {
            path: "/bin/sh".into(),
            words: vec![
                "-c".to_owned(),
                format!(
                    "printf '\\002\\000\\000\\000\\001\\001{length}\\000{what}\\240\\215\\006' >&0; \
                     head -c {bytes} /dev/zero >&0; printf '\\001\\000\\000\\000\\002' >&0; exec sleep 9"
                ),
            ],
        };
        for (most, is_taken) in [(ANSWER_MAX, true), (4 << 20, false)] {
            let mut apart = Apart::new(said("\\006", "\\104\\015\\003", 200_000), "memory:");
            apart.answer_max = most;
            let mut count = 0;
            let loaded = apart.load(&variable, &mut |_, _| count += 1);
            assert_eq!(
                (loaded.is_ok(), count),
                (is_taken, if is_taken { 100_000 } else { 0 })
            );
            let mut apart = Apart::new(said("\\007", "\\244\\206\\001", 100_000), "memory:");
            apart.answer_max = most;
            assert_eq!(apart.records().is_ok(), is_taken);
        }
    }
}
