//! Errors of a port, in words, for the operator.
//!
//! A port has no return value for "the disk is full": packets go on, are counted as unsent, and the
//! reason is put here once. [`Reports`] is a handle to one list; every port opened with it writes
//! there, and the binary takes the reports out and prints them.
//!
//! ```
//! use flowkeep_adapters::report::Reports;
//! let reports = Reports::default();
//! let of_the_port = reports.clone();
//! of_the_port.tell("pcap:out.pcap", "no space left on device", "free some space or write elsewhere");
//! assert_eq!(reports.take()[0].port, "pcap:out.pcap");
//! ```
//!
//! Invariant: at most [`KEPT`] reports wait; a port that fails per packet cannot fill the memory.
//!
//! Not here: logging, and counters (those are `runtime::env::PortCounters`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Reports that wait to be taken; further ones are dropped.
pub const KEPT: usize = 64;

/// An error of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The port, as its URI or path.
    pub port: String,
    /// The problem.
    pub problem: String,
    /// The remedy; empty if there is none.
    pub remedy: String,
    /// Whether something is lost that was to be there: a run with such a report has failed.
    pub is_failure: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.port, self.problem)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// A list that ports write to and their owner reads.
#[derive(Clone, Default, Debug)]
pub struct Reports(Arc<Mutex<Vec<Report>>>);

impl Reports {
    /// Adds a report of a failure.
    pub fn tell(&self, port: impl fmt::Display, problem: impl fmt::Display, remedy: impl fmt::Display) {
        self.add(port.to_string(), problem.to_string(), remedy.to_string(), true);
    }

    /// Adds a report of what an operator should know, and loses nothing that was to be there.
    pub fn warn(&self, port: impl fmt::Display, problem: impl fmt::Display, remedy: impl fmt::Display) {
        self.add(port.to_string(), problem.to_string(), remedy.to_string(), false);
    }

    fn add(&self, port: String, problem: String, remedy: String, is_failure: bool) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < KEPT {
            list.push(Report {
                port,
                problem,
                remedy,
                is_failure,
            });
        }
    }

    /// Takes all reports, oldest first.
    pub fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
