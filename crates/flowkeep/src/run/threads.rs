//! Threads of a cluster: which workers each has, its processor time, and the work of the event
//! log's thread.

use super::handle::{Handle, Question, WorkerAnswer};
use super::{Events, Shared, events, stamps};
use crate::config::layout::Layout;
use adapters::report::Reports;
use std::sync::{Weak, mpsc};

/// The workers of a thread: they are dealt out in turn, switches first.
pub(super) fn worker_names(layout: &Layout, here: &[u16], threads: usize, thread: usize) -> Vec<String> {
    let switches = layout
        .switches_here
        .clone()
        .map(|number| format!("switch {number}"));
    let runtimes = here.iter().map(|number| format!("runtime {number}"));
    let all = switches.chain(runtimes);
    all.skip(thread).step_by(threads.max(1)).collect()
}

/// Processor time that a thread of this process has had, by the kernel's scheduler; 0 if that does
/// not say.
pub(super) fn cpu_ns(thread: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Bytes of this process that are in memory, by the kernel's count; 0 if that cannot be read.
pub(super) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = kilobytes.and_then(|of| of.split_whitespace().next()?.parse().ok());
    kilobytes.map_or(0, |of: u64| of.saturating_mul(1024))
}

/// The work of the thread of the event log.
pub(super) fn writer_of(
    events: Option<Events>,
    (shared, packet_clock): (Weak<Shared>, bool),
    reports: Reports,
    ending: events::Ending,
) -> Box<dyn FnOnce(mpsc::Receiver<String>) -> Result<(), String> + Send> {
    let Some(Events { out, name }) = events else {
        return Box::new(|incoming| {
            incoming.into_iter().for_each(drop);
            Ok(())
        });
    };
    let lost = move || {
        let runtimes = shared
            .upgrade()
            .map(|shared| shared.runtimes())
            .unwrap_or_default();
        let lost = |runtime: &Handle| match runtime.ask(Question::Stats) {
            Ok(WorkerAnswer::Runtime(stats)) => stats.events_lost,
            _ => 0,
        };
        runtimes.values().map(lost).sum()
    };
    let writer = events::Writer {
        out,
        name,
        stamps: stamps::Stamps::new(packet_clock),
        reports,
        ending,
        lost,
    };
    Box::new(move |incoming| writer.run(incoming))
}
