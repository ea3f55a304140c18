//! Locks for functions: a thread that takes, renews and frees them, each a lease ([`crate::lock`]).
//!
//! ```text
//!   Variables::lock ──► job ──► thread:  wanted ──► acquire ──► granted, with token and value
//!                                          held  ──► renewed at a third of its lease; lost where another has it
//!                                          freed ──► released
//! ```
//!
//! The record is named `FUNCTION@LOCK`, each part escaped, and a holder
//! `VIEW@RUNTIME@INCARNATION@MEMBER@PROCESS@NUMBER`.
//!
//! *The value.* The thread writes it once more with its own token when it takes the lock: an
//! earlier holder's writes are refused from then on, and the value read is the last of them.
//!
//! *The view.* With a coordinator the cluster's view says which lives of runtimes there are
//! ([`Views`]). A runtime takes a lock while it is in the view, and its holder's name has that
//! view. A lock is void where its view, or a later one, is known here and has not its holder: the
//! next one takes it at once, with a token of its own, and does not wait for the lease.
//!
//! While the store does not answer, leases are not renewed: a holder has the lock until its lease
//! is over by its own clock, and others get it later than that, since they watch it for a whole
//! lease.
//!
//! Invariants: a grant's lease ends here before it ends for others ([`crate::lock`]); a lock held
//! for a wish that is over is released before the lock is taken again
//! (`functions_have_a_lock_in_turn_and_a_holder_that_died_frees_it`).

use crate::agent::{OpenError, Store};
use crate::lock::Lock;
use crate::merge::Bell;
use crate::name::{Part, PartitionName};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use variables::locks::Locking;
use variables::merged::Merger;

/// How often a lock that another has is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long the thread sleeps at most, until it finds out that it has nothing more to do.
const REST: Duration = Duration::from_secs(1);
/// How long a call waits for the store here.
const PATIENCE: Duration = Duration::from_secs(1);

/// The last view that this process was told of.
#[derive(Default)]
pub struct Views(Mutex<View>);

#[derive(Default)]
struct View {
    number: u32,
    /// Numbers and incarnations of its runtimes.
    runtimes: Vec<(u32, u64)>,
    /// This process' incarnation.
    own: u64,
}

impl Views {
    /// A view: its number, its runtimes with their incarnations, and the incarnation of this
    /// process.
    pub fn tell(&self, number: u32, runtimes: impl Iterator<Item = (u32, u64)>, own: u64) {
        let mut view = self.0.lock().unwrap_or_else(|held| held.into_inner());
        if number > view.number {
            *view = View {
                number,
                runtimes: runtimes.collect(),
                own,
            };
        }
    }

    /// The view's number; 0 before the first.
    pub fn number(&self) -> u32 {
        self.0.lock().unwrap_or_else(|held| held.into_inner()).number
    }

    /// The view's number and its runtimes.
    pub fn runtimes(&self) -> (u32, Vec<u32>) {
        let view = self.0.lock().unwrap_or_else(|held| held.into_inner());
        let runtimes = view.runtimes.iter().map(|(number, _)| *number);
        (view.number, runtimes.collect())
    }

    /// Whether a runtime of this process is in it.
    pub fn has(&self, runtime: u32) -> bool {
        self.named(runtime).is_some()
    }

    /// How a runtime of this process is named in the view; `None` where it is not in it.
    pub(crate) fn named(&self, runtime: u32) -> Option<String> {
        let view = self.0.lock().unwrap_or_else(|held| held.into_inner());
        let is_in = view.runtimes.contains(&(runtime, view.own));
        is_in.then(|| format!("{}@{runtime}@{}", view.number, view.own))
    }

    /// Whether a holder is in the view no more.
    pub(crate) fn is_void(&self, holder: &str) -> bool {
        let mut parts = holder.split('@');
        let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (Some(since), Some(runtime), Some(incarnation)) = (next(), next(), next()) else {
            return false;
        };
        let view = self.0.lock().unwrap_or_else(|held| held.into_inner());
        let has = |(number, life): &(u32, u64)| (u64::from(*number), *life) == (runtime, incarnation);
        u64::from(view.number) >= since && !view.runtimes.iter().any(has)
    }
}

/// Takes the locks of functions, on a thread of its own.
#[derive(Clone)]
pub struct Locks(Arc<Inside>);

struct Inside {
    store: Store,
    views: Option<Arc<Views>>,
    thread: Mutex<Option<(Sender<Job>, Arc<Bell>)>>,
}

struct Job {
    locking: Box<dyn Locking>,
    lock: Lock,
    runtime: u32,
    /// The holder's name, behind what the view says.
    holder: String,
    views: Option<Arc<Views>>,
    /// For which wish it is held, and its token.
    held: Option<(u32, u64)>,
    /// The last wish for which it was lost.
    lost: u32,
    /// When the store is asked next.
    next: Instant,
}

/// Of all holders of this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Locks {
    /// Of a store. There is no thread before the first lock. With a coordinator: where views are
    /// told.
    pub fn of(store: &Store, views: Option<Arc<Views>>) -> Self {
        Locks(Arc::new(Inside {
            store: store.within(PATIENCE),
            views,
            thread: Mutex::new(None),
        }))
    }

    /// Has a function's lock taken when it is wanted, from now on.
    pub(crate) fn take(
        &self,
        name: &PartitionName,
        locking: Box<dyn Locking>,
    ) -> std::io::Result<Arc<dyn Merger>> {
        let record = format!("{}@{}", Part(name.function()), Part(locking.name()));
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let holder = format!(
            "{}@{}.{}@{}",
            Part(name.member()),
            std::process::id(),
            started.unwrap_or_default().as_nanos(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let views = self.0.views.clone();
        let mut lock = self.0.store.lock(&record, String::new(), locking.lease());
        if let Some(views) = views.clone() {
            lock = lock.void_where(move |holder| views.is_void(holder));
        }
        let mut thread = self.0.thread.lock().unwrap_or_else(|held| held.into_inner());
        let (jobs, bell) = match thread.take() {
            Some(there) => there,
            None => started_thread()?,
        };
        let job = Job {
            locking,
            lock,
            runtime: name.runtime(),
            holder,
            views,
            held: None,
            lost: 0,
            next: Instant::now(),
        };
        // The thread ends after this.
        let _ = jobs.send(job);
        bell.ring();
        let ringing = Arc::clone(&bell);
        *thread = Some((jobs, bell));
        Ok(ringing)
    }
}

fn started_thread() -> std::io::Result<(Sender<Job>, Arc<Bell>)> {
    let (jobs, incoming) = channel();
    let since = Instant::now();
    let thread = std::thread::Builder::new().name("locks".into());
    let thread = thread.spawn(move || hold(&incoming, since))?;
    Ok((
        jobs,
        Arc::new(Bell {
            thread: thread.thread().clone(),
            since,
        }),
    ))
}

fn hold(incoming: &Receiver<Job>, since: Instant) {
    let mut jobs: Vec<Job> = Vec::new();
    loop {
        loop {
            match incoming.try_recv() {
                Ok(job) => jobs.push(job),
                Err(TryRecvError::Empty) => break,
                // No function has a lock any more: held locks are freed below, as their handles
                // have gone.
                Err(TryRecvError::Disconnected) if jobs.is_empty() => return,
                Err(TryRecvError::Disconnected) => break,
            }
        }
        let mut wait = REST;
        jobs.retain_mut(|job| {
            if job.step(since).is_err() {
                // The store is closed.
                return false;
            }
            wait = wait.min(job.rest());
            job.locking.is_there()
        });
        std::thread::park_timeout(wait);
    }
}

impl Job {
    fn rest(&self) -> Duration {
        let wish = self.locking.wish();
        match self.held.is_some() || (wish % 2 == 1 && wish != self.lost) {
            true => self.next.saturating_duration_since(Instant::now()),
            false => REST,
        }
    }

    /// Does the work that is due.
    fn step(&mut self, since: Instant) -> Result<(), OpenError> {
        let wish = self.locking.wish();
        let wants = wish % 2 == 1 && self.locking.is_there();
        if let Some((held, _)) = self.held
            && (!wants || held != wish)
        {
            self.put()?;
            self.held = None;
            self.locking.lose(held);
            known(self.lock.release())?;
            // Another that looks meanwhile gets it first.
            self.next = Instant::now() + LOOK + LOOK / 5;
        }
        if wants && wish != self.lost && Instant::now() >= self.next {
            self.acquire(wish, since)?;
        }
        self.put()
    }

    fn acquire(&mut self, wish: u32, since: Instant) -> Result<(), OpenError> {
        let lease = self.locking.lease();
        let named = self
            .views
            .as_ref()
            .map_or(Some("0@0@0".to_owned()), |views| views.named(self.runtime));
        let token = match named {
            Some(named) => {
                self.lock.hold_as(format!("{named}@{}", self.holder));
                known(self.lock.acquire())?.flatten()
            }
            None => None,
        };
        let until = self
            .lock
            .until()
            .map(|until| until.saturating_duration_since(since));
        let until_ns = until.map_or(0, |until| u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
        match (token, self.held) {
            (Some(token), Some((_, held))) if token == held => self.locking.renew(until_ns),
            (Some(token), None) => {
                // Else it took longer than the lease, or the store gave no answer: the next time.
                if let Some(Ok(value)) = known(self.lock.seal(token))? {
                    self.held = Some((wish, token));
                    self.locking.hold(wish, token, until_ns, value);
                }
            }
            // Another has it by now, or had it in between.
            (_, Some(_)) if token.is_some() || self.lock.until().is_none() => {
                self.held = None;
                self.lost = wish;
                self.locking.lose(wish);
                known(self.lock.release())?;
            }
            (None, _) | (Some(_), Some(_)) => (),
        }
        self.next = Instant::now()
            + match self.held {
                Some(_) => lease / 3,
                None => LOOK.min(lease / 4),
            };
        Ok(())
    }

    /// Writes the waiting value. A store that does not answer is asked until the lease is over:
    /// then it is not known whether the value was written, and the holder is told that it was not.
    fn put(&mut self) -> Result<(), OpenError> {
        let Some((token, value)) = self.locking.to_put() else {
            return Ok(());
        };
        loop {
            match known(self.lock.put(token, &value))? {
                Some(Ok(())) => self.locking.put_done(true),
                Some(Err(_)) => self.locking.put_done(false),
                None if self.lock.token() == Some(token) => continue,
                None => self.locking.put_done(false),
            }
            return Ok(());
        }
    }
}

/// An answer; `None` where the store gave none this time. A store that is closed gives none any
/// more.
fn known<R>(answer: Result<R, OpenError>) -> Result<Option<R>, OpenError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(OpenError::Closed) => Err(OpenError::Closed),
        Err(_) => Ok(None),
    }
}
