//! The machine's own noise, which a bound on time must not blame on the program under test.
//!
//! ```text
//!   Pauses:     a thread on each processor sleeps for 1 ms ── how much later it wakes ──► pauses
//!   wake_cost:  a thread that sleeps and wakes ── processor time of one wake ──► how dear the machine is
//! ```
//!
//! - [`Pauses`] watches from another process than the one under test: a lock, a page fault or a
//!   busy loop of that process holds no watcher up, so it does not excuse itself.
//! - [`unless_paused`] excuses a failure only where a pause was seen, and a few times only: a test
//!   that fails on a quiet machine fails at once, and a test that always fails does so on any
//!   machine.
//! - [`unless_excused`] tries a test again, too, that held only since the machine had a long pause.
//!   Such an attempt counts where no other one shows more.
//!
//! A test is tried again as a whole, with all its checks: a run that was paused shows nothing, of
//! loss and order neither. Which attempt passed is printed.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a test is tried that the machine has paused.
const ATTEMPTS: u32 = 4;
const NAP: Duration = Duration::from_millis(1);
/// The cost of a wake on a machine of 2020 with nothing else to do.
const WAKE_COST: Duration = Duration::from_micros(20);

/// Shorter pauses are not kept one by one.
const KEPT: Duration = Duration::from_millis(5);

/// Threads that only sleep, and how much too long they did.
pub struct Pauses {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    longest_ns: AtomicU64,
    /// When each ended, and how long it was.
    kept: Mutex<Vec<(Instant, Duration)>>,
}

impl Pauses {
    /// Begins to watch; the watchers end with this.
    pub fn watch() -> Self {
        let shared = Arc::new(Shared::default());
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let watcher = |processor| {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor);
                // A watcher that may not stay on one processor sees pauses of some.
                let _ = sched_setaffinity(None, &only);
                while !shared.is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    thread::sleep(NAP);
                    let late = began.elapsed().saturating_sub(NAP);
                    let late_ns = late.as_nanos() as u64;
                    shared.longest_ns.fetch_max(late_ns, Ordering::Relaxed);
                    if late >= KEPT {
                        let mut kept = shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
                        kept.push((Instant::now(), late));
                    }
                }
            })
        };
        let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        let threads = processors.map(watcher).collect();
        Pauses { shared, threads }
    }

    /// The longest pause of which some is in this time, of those of 5 ms and more that have ended.
    pub fn longest_within(&self, time: RangeInclusive<Instant>) -> Duration {
        let kept = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let within = kept
            .iter()
            .filter(|(end, length)| time.start() <= end && *end - *length <= *time.end());
        within.map(|(_, length)| *length).max().unwrap_or_default()
    }

    /// The longest pause so far.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.shared.longest_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Runs a test, and again where it fails and the machine has paused for this long meanwhile. A test
/// with a limit of zero is tried again in any case: it may go wrong by chance, but not each time.
pub fn unless_paused(limit: Duration, test: impl Fn()) {
    judged(ATTEMPTS, limit, || {
        test();
        true
    });
}

/// The same of a test that answers whether it held without a long pause of the machine.
pub fn unless_excused(limit: Duration, test: impl Fn() -> bool) {
    judged(ATTEMPTS, limit, test);
}

/// As [`unless_excused`], so many times at most.
pub fn judged(attempts: u32, limit: Duration, test: impl Fn() -> bool) {
    let mut excused = 0;
    for attempt in 1..=attempts {
        let pauses = Pauses::watch();
        let held = catch_unwind(AssertUnwindSafe(&test));
        let longest = pauses.longest();
        match held {
            Ok(true) => {
                if attempt > 1 {
                    println!("passed in attempt {attempt}");
                }
                return;
            }
            Ok(false) => {
                println!("attempt {attempt} held by a long pause; the machine's longest was {longest:?}");
                excused += 1;
            }
            Err(failure) => {
                println!("attempt {attempt} failed; the machine's longest pause was {longest:?}");
                if longest < limit || attempt == attempts && excused == 0 {
                    resume_unwind(failure);
                }
            }
        }
    }
    println!("of {attempts} attempts {excused} held, each by a long pause of the machine");
}

/// Processor time that this thread has had.
fn run_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// How many times dearer than usual it is to wake, at least 1: measured for this long. A processor
/// whose time the hypervisor takes makes each wake dearer, for the program under test as well.
pub fn wake_cost(time: Duration) -> f64 {
    let measure = move || {
        let (began, before) = (Instant::now(), run_time()?);
        let mut wakes = 0;
        while began.elapsed() < time {
            thread::sleep(NAP);
            wakes += 1;
        }
        Some((run_time()? - before) / wakes)
    };
    let cost = thread::spawn(measure).join().ok().flatten().unwrap_or(WAKE_COST);
    (cost.as_secs_f64() / WAKE_COST.as_secs_f64()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_failure_is_excused_by_a_pause_and_by_nothing_else() {
        // No machine pauses for an hour: it fails at once.
        let tried = Cell::new(0);
        let fail = || {
            tried.set(tried.get() + 1);
            panic!("on purpose");
        };
        let hour = Duration::from_secs(3600);
        assert!(catch_unwind(AssertUnwindSafe(|| unless_paused(hour, fail))).is_err());
        assert_eq!(tried.get(), 1);
        // A test that always fails does so however noisy the machine is.
        assert!(catch_unwind(AssertUnwindSafe(|| unless_paused(Duration::ZERO, fail))).is_err());
        assert_eq!(tried.get(), 1 + ATTEMPTS);
        // A test that fails by chance does not.
        tried.set(0);
        unless_paused(Duration::ZERO, || {
            tried.set(tried.get() + 1);
            assert!(tried.get() > 2);
        });
        assert_eq!(tried.get(), 3);
    }

    #[test]
    fn a_long_pause_is_an_excuse_where_no_attempt_does_without() {
        let tried = Cell::new(0);
        // The outcome of each attempt, from the first on.
        let passes = |attempts: &[Option<bool>]| {
            tried.set(0);
            let test = || {
                tried.set(tried.get() + 1);
                attempts[tried.get() as usize - 1].expect("a failure on purpose")
            };
            let passes = catch_unwind(AssertUnwindSafe(|| unless_excused(Duration::ZERO, test)));
            (passes.is_ok(), tried.get())
        };
        assert_eq!(passes(&[Some(false); ATTEMPTS as usize]), (true, ATTEMPTS));
        assert_eq!(passes(&[Some(false), Some(true)]), (true, 2));
        assert_eq!(passes(&[None, Some(false), None, None]), (true, ATTEMPTS));
        assert_eq!(passes(&[None; ATTEMPTS as usize]), (false, ATTEMPTS));
        // A test that fails on a quiet machine fails, whatever was excused before.
        let hour = Duration::from_secs(3600);
        tried.set(0);
        let excused_then_fails = || {
            tried.set(tried.get() + 1);
            assert!(tried.get() == 1, "on purpose");
            false
        };
        let passes = catch_unwind(AssertUnwindSafe(|| unless_excused(hour, excused_then_fails)));
        assert_eq!((passes.is_ok(), tried.get()), (false, 2));
    }

    #[test]
    fn pauses_are_found_by_when_they_were() {
        let [ms, second] = [Duration::from_millis(1), Duration::from_secs(1)];
        let begin = Instant::now() + second;
        let pauses = Pauses {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        // From 60 to 100 ms, and from 200 to 210.
        let kept = [(begin + 100 * ms, 40 * ms), (begin + 210 * ms, 10 * ms)];
        *pauses.shared.kept.lock().unwrap() = kept.into();
        let within = |from, to| pauses.longest_within(begin + from * ms..=begin + to * ms);
        assert_eq!(within(0, 59), Duration::ZERO);
        assert_eq!([within(0, 60), within(70, 80), within(100, 199)], [40 * ms; 3]);
        assert_eq!([within(101, 300), within(205, 206)], [10 * ms; 2]);
        assert_eq!([within(101, 199), within(211, 300)], [Duration::ZERO; 2]);
    }

    #[test]
    fn sleepers_notice_how_late_they_are() {
        let pauses = Pauses::watch();
        while pauses.longest().is_zero() {
            thread::sleep(NAP);
        }
        assert!(wake_cost(Duration::from_millis(50)) >= 1.0);
    }
}
