//! Alarms: changes that the store has not had for longer than their bound.
//!
//! ```text
//!   worker ── each 10 ms: age and bound of the oldest change ──► Oldest ◄── each 50 ms ── watcher ──► reports
//!
//!   in time ── age > bound ──► late (`Report::Late`) ── age ≤ bound ──► in time (`Report::InTime`)
//! ```
//!
//! The agent's thread may be waiting for the very store that is late, so the watcher is a thread of
//! its own. The worker writes two numbers and waits for nothing. A partition whose worker has ended
//! is forgotten: where its changes were late then, no `InTime` follows.
//!
//! Invariant: between two `Late` of a partition is one `InTime`
//! (`a_server_that_stalls_holds_no_packet_up_and_nothing_counts_twice`,
//! `a_store_that_is_late_is_told_and_its_interval_is_as_long_as_it_has_become`).

use crate::agent::Report;
use crate::name::PartitionName;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often a worker says how old its oldest change is, in nanoseconds.
pub(crate) const SAID_NS: u64 = 10_000_000;
/// How often the watcher looks.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A worker's word on the oldest change that the store does not have.
#[derive(Default)]
pub(crate) struct Oldest {
    age_ns: AtomicU64,
    bound_ns: AtomicU64,
}

impl Oldest {
    /// Age and bound; `None`: the store has everything.
    pub fn say(&self, oldest: Option<(u64, u64)>) {
        let (age, bound) = oldest.unwrap_or_default();
        self.bound_ns.store(bound, Ordering::Release);
        self.age_ns.store(age, Ordering::Release);
    }
}

struct Watched {
    name: PartitionName,
    oldest: Arc<Oldest>,
    late_since: Option<Instant>,
}

/// The partitions that are watched.
#[derive(Default)]
pub(crate) struct Watcher(Mutex<Vec<Watched>>);

impl Watcher {
    /// Watches a partition for as long as its worker has the returned value.
    pub fn watch(&self, name: &PartitionName) -> Arc<Oldest> {
        let oldest = Arc::new(Oldest::default());
        let mut all = self.0.lock().unwrap_or_else(|held| held.into_inner());
        all.push(Watched {
            name: name.clone(),
            oldest: Arc::clone(&oldest),
            late_since: None,
        });
        oldest
    }

    /// Looks at all of them; answers the reports to be told.
    pub fn look(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut all = self.0.lock().unwrap_or_else(|held| held.into_inner());
        all.retain_mut(|watched| {
            // First: a worker's last word is read.
            let is_there = Arc::strong_count(&watched.oldest) > 1;
            let nanoseconds = |said: &AtomicU64| Duration::from_nanos(said.load(Ordering::Acquire));
            let (age, bound) = (
                nanoseconds(&watched.oldest.age_ns),
                nanoseconds(&watched.oldest.bound_ns),
            );
            match watched.late_since {
                None if age > bound && is_there => {
                    watched.late_since = Some(Instant::now());
                    let partition = watched.name.clone();
                    reports.push(Report::Late {
                        partition,
                        age,
                        bound,
                    });
                }
                Some(since) if age <= bound => {
                    watched.late_since = None;
                    reports.push(Report::InTime(watched.name.clone(), since.elapsed()));
                }
                _ => (),
            }
            is_there
        });
        reports
    }
}
