//! Checks of servers behind functions: this process tries them, and the functions hear the results.
//!
//! # Theory of operation
//!
//! ```text
//!   configuration in force ──checks──► list of servers ──each `interval`──► [`attempt`] ──passed, failed──► [`standing`]
//!                                                                                                             │ changed
//!   runtimes' instances ◄── command `check SERVICE BACKEND up|down` ──┬── event, figures ◄────────────────────┘
//!                            again to all: another configuration, one more runtime
//! ```
//!
//! One thread makes all checks, over sockets that never block: [`AT_ONCE`] at a time, others wait
//! their turn. It looks for another configuration every [`LOOK`]. A server that both configurations
//! check alike keeps its standing.
//!
//! A lack of this process (a file descriptor, a port) fails no server: such a check has no result,
//! and standard error says so.
//!
//! Each process of a cluster checks for itself, and its runtimes hear its own results. Where
//! workers go by a capture's time nothing is checked.
//!
//! Invariants: no worker waits for a check; a function hears of each change, and of all standings
//! where it may have missed one.
//!
//! Not here: which servers, and the effect of a result ([`nf::Check`], `functions::load_balancer`);
//! the thread (`crate::run`).

mod attempt;
mod standing;
pub mod stats;
#[cfg(test)]
mod tests;

use crate::log::{self, Level};
use attempt::{Attempt, Ended, NotMade};
use nf::Check;
use rustix::event::{PollFd, Timespec, poll};
use standing::Standing;
use stats::BackendStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most checks under way at once.
const AT_ONCE: usize = 128;
/// How often it is looked for another configuration, and for the end.
const LOOK: Duration = Duration::from_millis(200);
/// Results said to an instance at once: it keeps its packets waiting meanwhile.
const WORDS: usize = 32;

/// A server to be checked, and the function that wants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The function, as chains name it.
    pub function: String,
    /// How.
    pub check: Check,
}

/// A result: the function, and the words of its command.
pub type Words = (String, [String; 4]);

/// A cluster, as a checker has it.
pub trait Checked {
    /// The configuration in force and the checks that it wants, if it is not this one and none is
    /// about to come.
    fn wanted(&self, known: u64) -> Option<(u64, Vec<Wanted>)>;
    /// Says results to all instances; whether all of them have heard.
    fn tell(&self, words: &[Words]) -> bool;
    /// A server is up or down now.
    fn note(&self, status: &BackendStatus);
}

/// The results of a checker, for others.
#[derive(Debug, Default)]
pub struct Board {
    servers: Mutex<Vec<(BackendStatus, Instant)>>,
    is_over: AtomicBool,
    says_again: AtomicBool,
}

impl Board {
    /// The process ends.
    pub fn close(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// There are instances that have heard nothing.
    pub fn say_again(&self) {
        self.says_again.store(true, Ordering::Release);
    }

    /// Each server that is checked.
    pub fn status(&self) -> Vec<BackendStatus> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let status = |(status, since): &(BackendStatus, Instant)| BackendStatus {
            seconds: since.elapsed().as_secs_f64(),
            ..status.clone()
        };
        servers.iter().map(status).collect()
    }
}

/// A server, and its standing.
struct Server {
    wanted: Wanted,
    standing: Standing,
    why: String,
    since: Instant,
    next: Instant,
    attempt: Option<Attempt>,
    /// Something has come of the check under way.
    is_ready: bool,
}

impl Server {
    fn status(&self) -> BackendStatus {
        let check = &self.wanted.check;
        BackendStatus {
            function: self.wanted.function.clone(),
            service: check.service.clone(),
            backend: check.backend.clone(),
            endpoint: check.at.to_string(),
            up: self.standing.is_up(),
            why: self.why.clone(),
            seconds: 0.0,
        }
    }

    /// The words for its function.
    fn words(&self) -> Option<Words> {
        let state = if self.standing.is_up()? { "up" } else { "down" };
        let check = &self.wanted.check;
        let words = [
            "check".to_owned(),
            check.service.clone(),
            check.backend.clone(),
            state.to_owned(),
        ];
        Some((self.wanted.function.clone(), words))
    }
}

/// All servers.
#[derive(Default)]
pub struct Checker {
    generation: u64,
    servers: Vec<Server>,
    looks_at: Option<Instant>,
    /// Not all instances have heard all.
    owes: bool,
    has_complained: bool,
}

impl Checker {
    /// Checks until it is the end; `cluster` answers nothing when that has come.
    pub fn run<C: Checked>(mut self, board: &Board, cluster: impl Fn() -> Option<C>) {
        while !board.is_over.load(Ordering::Acquire) {
            let Some(there) = cluster() else { return };
            self.look(&there, board);
            self.begin();
            self.go_on(&there, board);
            drop(there);
            self.wait();
        }
    }

    /// Takes up another configuration, and says results again that may not have been heard.
    fn look(&mut self, cluster: &impl Checked, board: &Board) {
        let now = Instant::now();
        if self.looks_at.is_some_and(|at| now < at) {
            return;
        }
        self.looks_at = Some(now + LOOK);
        if let Some((generation, wanted)) = cluster.wanted(self.generation) {
            self.generation = generation;
            self.take_up(wanted, now);
            self.show(board);
            self.owes = true;
        }
        if board.says_again.swap(false, Ordering::AcqRel) || self.owes {
            let words: Vec<Words> = self.servers.iter().filter_map(Server::words).collect();
            // All of them, though one may not answer.
            let heard: Vec<bool> = words.chunks(WORDS).map(|words| cluster.tell(words)).collect();
            self.owes = heard.contains(&false);
        }
    }

    fn take_up(&mut self, wanted: Vec<Wanted>, now: Instant) {
        let mut before = std::mem::take(&mut self.servers);
        self.servers = wanted
            .into_iter()
            .map(
                |wanted| match before.iter().position(|old| old.wanted == wanted) {
                    Some(at) => before.swap_remove(at),
                    None => Server {
                        wanted,
                        standing: Standing::default(),
                        why: String::new(),
                        since: now,
                        next: now,
                        attempt: None,
                        is_ready: false,
                    },
                },
            )
            .collect();
    }

    /// Begins the checks whose time has come, as far as there may be more.
    fn begin(&mut self) {
        let now = Instant::now();
        let mut room = AT_ONCE.saturating_sub(
            self.servers
                .iter()
                .filter(|server| server.attempt.is_some())
                .count(),
        );
        let mut idle: Vec<&mut Server> = self
            .servers
            .iter_mut()
            .filter(|server| server.attempt.is_none())
            .collect();
        // The server that has waited longest is first.
        idle.sort_by_key(|server| server.next);
        for server in idle {
            if room == 0 || server.next > now {
                return;
            }
            server.next = now + server.wanted.check.interval;
            match Attempt::begin(&server.wanted.check, now) {
                Ok(attempt) => {
                    server.attempt = Some(attempt);
                    // There may be no way there: that is known at once.
                    server.is_ready = true;
                    room -= 1;
                }
                Err(NotMade(why)) if !self.has_complained => {
                    self.has_complained = true;
                    log::say(
                        Level::Warn,
                        format_args!("servers are not checked at the moment: {why}"),
                    );
                }
                Err(NotMade(_)) => {}
            }
        }
    }

    /// Goes on with all checks, and says the changed standings.
    fn go_on(&mut self, cluster: &impl Checked, board: &Board) {
        let now = Instant::now();
        let mut changed = Vec::new();
        for server in &mut self.servers {
            let Some(attempt) = &mut server.attempt else {
                continue;
            };
            let is_ready = std::mem::take(&mut server.is_ready);
            let ended: Ended = match is_ready.then(|| attempt.go_on()).flatten() {
                Some(ended) => ended,
                None if attempt.deadline() <= now => {
                    Err(format!("no answer within {:?}", server.wanted.check.timeout))
                }
                None => continue,
            };
            server.attempt = None;
            let check = &server.wanted.check;
            let is_first = server.standing.is_up().is_none();
            if !server.standing.note(ended.is_ok(), check.rise, check.fall) {
                continue;
            }
            server.why = ended.err().unwrap_or_default();
            server.since = now;
            changed.extend(server.words());
            // A server that was taken for up and is up has not changed.
            if !(is_first && server.standing.is_up() == Some(true)) {
                cluster.note(&server.status());
            }
        }
        if !changed.is_empty() {
            self.show(board);
            for words in changed.chunks(WORDS) {
                self.owes |= !cluster.tell(words);
            }
        }
    }

    fn show(&self, board: &Board) {
        let all = self.servers.iter().map(|server| (server.status(), server.since));
        *board.servers.lock().unwrap_or_else(PoisonError::into_inner) = all.collect();
    }

    /// Waits until something has come of a check, one is due, or it is time to look.
    fn wait(&mut self) {
        let now = Instant::now();
        let mut until = self.looks_at.unwrap_or(now);
        let under_way: Vec<&Attempt> = self
            .servers
            .iter()
            .filter_map(|server| server.attempt.as_ref())
            .collect();
        let is_full = under_way.len() >= AT_ONCE;
        let idle = self
            .servers
            .iter()
            .filter(|server| server.attempt.is_none() && !is_full);
        let times = idle
            .map(|server| server.next)
            .chain(under_way.iter().map(|one| one.deadline()));
        until = times.fold(until, Instant::min);
        let sockets: Vec<_> = under_way.iter().map(|attempt| attempt.waits_for()).collect();
        let mut sockets: Vec<PollFd<'_>> = (sockets.iter())
            .map(|(socket, flags)| PollFd::new(socket, *flags))
            .collect();
        let wait = Timespec::try_from(until.saturating_duration_since(now)).ok();
        // A signal in between is no harm: it is looked again.
        let _ = poll(&mut sockets, wait.as_ref());
        let ready: Vec<bool> = sockets
            .iter()
            .map(|socket| !socket.revents().is_empty())
            .collect();
        let under_way = self.servers.iter_mut().filter(|server| server.attempt.is_some());
        for (server, is_ready) in under_way.zip(ready) {
            server.is_ready = is_ready;
        }
    }
}
