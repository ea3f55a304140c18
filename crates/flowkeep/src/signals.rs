//! When to stop: Ctrl-C, `kill`, a time that is over, or a word over the control socket.
//!
//! The first SIGINT or SIGTERM asks for a graceful end: packets inside are finished, records are
//! written. A second one ends the process at once, with exit code 130. SIGHUP has the
//! configuration's file applied again ([`crate::apply`]), SIGUSR1 the event log opened again by its
//! name. SIGXFSZ, a limit on a file's size, ends nothing: the write fails, as on a full disk.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Exit code after a second signal.
pub const BROKEN_OFF: i32 = 130;

/// Whether to stop. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct StopSignal {
    asked: Arc<AtomicBool>,
    at: Option<Instant>,
    lowered: Arc<AtomicBool>,
}

impl StopSignal {
    /// A signal that the process's signals raise, and the end of `after`.
    pub fn of_process(after: Option<Duration>) -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: when the first signal comes, the flag is not yet up for this one.
            flag::register_conditional_shutdown(signal, BROKEN_OFF, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        // A file that has reached a limit is a write that fails, as on a full disk.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(StopSignal {
            asked,
            at: after.and_then(|after| Instant::now().checked_add(after)),
            lowered: Arc::default(),
        })
    }

    /// Asks for the end.
    pub fn raise(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// The end that was asked for is under way. (A second signal ends the process by itself.)
    pub fn lower(&self) {
        self.lowered.store(true, Ordering::Release);
    }

    /// Whether the end was asked for, or the time is over.
    pub fn is_raised(&self) -> bool {
        let over = self.at.is_some_and(|at| Instant::now() >= at);
        (self.asked.load(Ordering::Acquire) || over) && !self.lowered.load(Ordering::Acquire)
    }
}

/// SIGHUP: the configuration's file shall be applied again.
#[derive(Debug)]
pub struct Hangup(Arc<AtomicBool>);

impl Hangup {
    /// Has the process's signal heard from now on.
    pub fn of_process() -> io::Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, Arc::clone(&raised))?;
        Ok(Hangup(raised))
    }

    /// Whether it was sent since this was asked last.
    pub fn was_raised(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// SIGUSR1, from now on: the flag that it raises says that the event log is to be opened again by
/// its name.
pub fn event_log_again() -> io::Result<Arc<AtomicBool>> {
    let raised = Arc::new(AtomicBool::new(false));
    flag::register(SIGUSR1, Arc::clone(&raised))?;
    Ok(raised)
}

/// From now on none of them does anything: another process ends this one.
pub fn ignore() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR1] {
        flag::register(signal, Arc::default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_by_a_clone_or_by_time() {
        let signal = StopSignal::default();
        assert!(!signal.is_raised());
        signal.clone().raise();
        assert!(signal.is_raised());
        let over = StopSignal {
            at: Some(Instant::now()),
            ..StopSignal::default()
        };
        assert!(over.is_raised());
    }

    #[test]
    fn the_first_signal_raises_it() {
        let signal = StopSignal::of_process(None).unwrap();
        assert!(!signal.is_raised());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(signal.is_raised());
    }
}
