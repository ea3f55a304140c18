//! One of the two stores of a mirror: its driver on a thread of its own, so that a stalled store
//! holds the other up once and no more.

use crate::driver::{Driver, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long after a failure the store is asked again, at first.
const RETRY_FIRST: Duration = Duration::from_millis(10);
/// How long at last.
const RETRY_LAST: Duration = Duration::from_millis(500);

type Work = Box<dyn FnOnce(&mut dyn Driver) + Send>;

/// An answer that is on its way.
pub struct Asked<R>(Receiver<Result<R, Failure>>);

impl<R> Asked<R> {
    /// The answer, once it is there; for so long it is waited for. Drivers bound their calls.
    pub fn poll(&self, patience: Duration) -> Option<Result<R, Failure>> {
        match self.0.recv_timeout(patience) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(ended())),
        }
    }

    /// Waits for it.
    pub fn wait(self) -> Result<R, Failure> {
        self.0.recv().unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> Failure {
    Failure::new(
        "mirror",
        "a thread of it has ended",
        "begin again, and report what is in the log",
    )
}

struct Outage {
    wait: Duration,
    next: Instant,
}

/// A store, its thread, and how it does.
pub struct Side {
    /// Its URI, without a password.
    pub name: String,
    /// Nothing once it ends.
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// Calls that it has not answered.
    under_way: Arc<AtomicUsize>,
    outage: Option<Outage>,
    /// Calls that failed so far.
    pub failures: u64,
    pub last_failure: Option<Failure>,
}

impl Side {
    /// Starts its thread, which ends with this.
    pub fn start(name: String, mut driver: Box<dyn Driver>) -> std::io::Result<Self> {
        let (work, incoming) = channel::<Work>();
        let thread = std::thread::Builder::new().name("mirror".into());
        let thread = thread.spawn(move || incoming.into_iter().for_each(|work| work(driver.as_mut())))?;
        Ok(Side {
            name,
            work: Some(work),
            thread: Some(thread),
            under_way: Arc::default(),
            outage: None,
            failures: 0,
            last_failure: None,
        })
    }

    /// Whether it has answered all that it was asked.
    pub fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    /// Whether its last call failed.
    pub fn is_out(&self) -> bool {
        self.outage.is_some()
    }

    /// Whether it may be asked again behind a failure.
    pub fn may_try(&self) -> bool {
        self.outage
            .as_ref()
            .is_none_or(|outage| Instant::now() >= outage.next)
    }

    /// Has its thread do this with the driver, behind earlier calls.
    pub fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Driver) -> Result<R, Failure> + Send + 'static,
    ) -> Asked<R> {
        let (answer, answered) = channel();
        let under_way = Arc::clone(&self.under_way);
        under_way.fetch_add(1, Ordering::AcqRel);
        let work: Work = Box::new(move |driver| {
            let done = work(driver);
            under_way.fetch_sub(1, Ordering::AcqRel);
            // The caller may not wait any more.
            let _ = answer.send(done);
        });
        // Without a thread, the answer says so.
        if let Some(thread) = &self.work {
            let _ = thread.send(work);
        }
        Asked(answered)
    }

    /// Asks, waits, and remembers how it went. Behind an earlier call that is not answered it waits
    /// for both, unless the store was failing already.
    pub fn call<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut dyn Driver) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, Failure> {
        if self.is_out() && !self.is_idle() {
            return Err(Failure::new(
                &self.name,
                "it has not answered an earlier call",
                "see that it runs; changes wait meanwhile",
            ));
        }
        let done = self.ask(work).wait();
        self.note(&done);
        done
    }

    /// Remembers how a call went.
    pub fn note<R>(&mut self, done: &Result<R, Failure>) {
        match done {
            Ok(_) => self.outage = None,
            Err(failure) => self.fail(failure.clone()),
        }
    }

    /// Remembers a failure.
    pub fn fail(&mut self, failure: Failure) {
        let wait = match &self.outage {
            Some(outage) => (outage.wait * 2).min(RETRY_LAST),
            None => RETRY_FIRST,
        };
        self.failures += 1;
        self.last_failure = Some(failure);
        self.outage = Some(Outage {
            wait,
            next: Instant::now() + wait,
        });
    }
}

impl Drop for Side {
    /// Waits for its call, which the driver bounds: a file is free for another process then.
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
