//! The loads of the cluster's runtimes, as the coordinator said last.
//!
//! The agent writes it and never waits for readers for long. Loads said longer ago than [`FRESH`]
//! are not answered: without a coordinator, nothing is known.

use crate::proto::RuntimeLoad;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Loads count for so long: some words of the coordinator may be late.
const FRESH: Duration = Duration::from_secs(5);
/// Runtimes whose load is kept, at most.
const RUNTIMES_MAX: usize = 4096;

/// See the module's page.
#[derive(Debug, Default)]
pub struct Loads(Mutex<Option<(Instant, Vec<RuntimeLoad>)>>);

impl Loads {
    /// The agent has heard this.
    pub(super) fn hear(&self, loads: &[RuntimeLoad]) {
        let loads = loads.iter().take(RUNTIMES_MAX).copied().collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), loads));
    }

    /// The loads said lately; none, if that is long ago.
    pub fn newest(&self) -> Vec<RuntimeLoad> {
        self.newest_at(Instant::now())
    }

    fn newest_at(&self, now: Instant) -> Vec<RuntimeLoad> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = said
            .as_ref()
            .filter(|(at, _)| now.saturating_duration_since(*at) <= FRESH);
        fresh.map(|(_, loads)| loads.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_long_ago_is_not_known() {
        let loads = Loads::default();
        assert!(loads.newest().is_empty());
        let load = RuntimeLoad {
            runtime: 3,
            packet_rate: 1000,
            cpu: 500,
        };
        loads.hear(&[load]);
        let now = Instant::now();
        assert_eq!(loads.newest_at(now), [load]);
        assert!(loads.newest_at(now + FRESH + FRESH).is_empty());
    }
}
