//! Time: the monotonic clock that drives workers, the time-stamp counter that benches read, and
//! pinning to a processor.
//!
//! Theory of operation. A worker reads [`monotonic_ns`] once per burst. A bench counts *cycles* of
//! the time-stamp counter ([`cycles`]), which on every processor of the last fifteen years ticks at
//! one constant rate whatever the core's clock does; [`CycleRate::calibrate`] compares it with the
//! monotonic clock, so that cycles can be told as nanoseconds and packets per second. Neither means
//! much on a thread that moves between processors: [`pin_to`].
//!
//! ```
//! use flowkeep_adapters::clock::{CycleRate, cycles};
//! let rate = CycleRate::calibrate(std::time::Duration::from_millis(5));
//! let before = cycles();
//! let took = rate.nanoseconds(cycles() - before);
//! assert!(took < 1e9);
//! ```
//!
//! Invariant: [`monotonic_ns`] never goes back.
//!
//! Not here: the time of day; packets from captures bring their own.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

/// Nanoseconds of the system's monotonic clock.
#[inline]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds that the calling thread has run, softirqs in its course included.
#[inline]
pub fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time-stamp counter, read after all earlier instructions are done; nanoseconds where the
/// processor has none.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: both are part of every x86-64 processor and touch no memory.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    monotonic_ns()
}

/// How fast [`cycles`] counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleRate {
    /// Cycles per second.
    pub hertz: f64,
}

impl CycleRate {
    /// Compares with the monotonic clock for this long: 5 ms give four digits.
    pub fn calibrate(duration: Duration) -> Self {
        let (cycles_before, before) = reading();
        let until = before + duration.as_nanos().max(1) as u64;
        loop {
            let (cycles_after, after) = reading();
            if after >= until {
                let hertz = (cycles_after - cycles_before) as f64 * 1e9 / (after - before) as f64;
                return CycleRate { hertz };
            }
            std::hint::spin_loop();
        }
    }

    /// So many cycles in nanoseconds.
    pub fn nanoseconds(&self, cycles: u64) -> f64 {
        cycles as f64 * 1e9 / self.hertz
    }
}

/// Both clocks at nearly the same moment: the closest of a few pairs, so that an interruption in
/// between does not count.
fn reading() -> (u64, u64) {
    let pair = || {
        let before = cycles();
        let now = monotonic_ns();
        let after = cycles();
        (after - before, before + (after - before) / 2, now)
    };
    let best = (0..5).map(|_| pair()).min_by_key(|(apart, _, _)| *apart);
    best.map_or((0, 0), |(_, cycles, now)| (cycles, now))
}

/// The processors this thread may run on.
pub fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Keeps the calling thread on one processor.
pub fn pin_to(cpu: usize) -> Result<(), PinError> {
    let failed = |source| PinError {
        cpu,
        allowed: allowed_cpus(),
        source,
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| failed(errno.into()))
}

/// A thread could not be kept on a processor.
#[derive(Debug, thiserror::Error)]
#[error("processor {cpu} cannot be used: {source}; this process may use {allowed:?}")]
pub struct PinError {
    cpu: usize,
    allowed: Vec<usize>,
    source: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let (a, c) = (monotonic_ns(), cycles());
        std::thread::sleep(Duration::from_millis(1));
        assert!(monotonic_ns() >= a + 1_000_000);
        assert!(cycles() > c);
    }

    #[test]
    fn the_rate_fits_the_clock() {
        let rate = CycleRate::calibrate(Duration::from_millis(20));
        assert!((1e8..1e11).contains(&rate.hertz), "{rate:?}");
        let (cycles_before, before) = reading();
        std::thread::sleep(Duration::from_millis(20));
        let (cycles_after, after) = reading();
        let took = rate.nanoseconds(cycles_after - cycles_before);
        let ratio = took / (after - before) as f64;
        // Beside other work a reading can be interrupted; a wrong rate would be wrong by more.
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let allowed = allowed_cpus();
        let cpu = *allowed.last().unwrap();
        std::thread::spawn(move || {
            pin_to(cpu).unwrap();
            assert_eq!(allowed_cpus(), [cpu]);
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus(), allowed, "other threads are left alone");
        for nowhere in [CpuSet::MAX_CPU - 1, usize::MAX] {
            let error = pin_to(nowhere).unwrap_err().to_string();
            assert!(error.contains("this process may use"), "{error}");
        }
    }
}
