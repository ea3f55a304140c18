//! `flowkeep flow trace`: asks, and prints steps until there are enough.

use super::{Printer, Step};
use crate::control::client::Client;
use crate::control::{Answer, FOREIGN, Key, Observe, Request};
use crate::signals::StopSignal;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

/// Which flow to trace, and how.
#[derive(Debug)]
pub struct TraceJob {
    /// The flow.
    pub key: Key,
    /// Packets, at most.
    pub packets: u32,
    /// Print JSON lines.
    pub json: bool,
    /// When to end.
    pub stop: StopSignal,
}

/// How often observations are fetched.
const LOOK: Duration = Duration::from_millis(50);
/// Rounds without a step after which packets that have not left are not waited for.
const ROUNDS: u32 = 20;

/// The result of a trace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Packets seen.
    pub packets: u64,
    /// Steps that there was no room for.
    pub steps_lost: u64,
    /// Whether the cluster ended meanwhile.
    pub ended: bool,
}

/// Traces until there are enough packets, the time is over, or the cluster ends.
pub fn run(job: &TraceJob, client: &mut Client, out: &mut dyn Write) -> Result<Traced, String> {
    let observe = Observe::Flow {
        key: job.key,
        packets: job.packets,
    };
    match client.ask(&Request::Watch(Box::new(observe)))? {
        Answer::Watching { .. } => {}
        _ => return Err(FOREIGN.into()),
    }
    let mut traced = Traced::default();
    let mut printer = Printer::default();
    let (mut inside, mut quiet) = (BTreeSet::new(), 0);
    loop {
        let stopped = job.stop.is_raised();
        let observed = client.observed(stopped)?;
        quiet = if observed.steps.is_empty() { quiet + 1 } else { 0 };
        for step in &observed.steps {
            traced.packets = traced.packets.max(step.packet);
            if step.event.is_last() {
                inside.remove(&step.packet);
            } else {
                inside.insert(step.packet);
            }
        }
        traced.steps_lost += observed.steps_lost;
        // The last of them may have been marked just behind this look.
        let all = observed.left == Some(0) && quiet > if inside.is_empty() { 2 } else { ROUNDS };
        let mut printed = print(observed.steps, job.json, &mut printer, out);
        if !job.json {
            printed = printed.and_then(|()| {
                printer
                    .round()
                    .iter()
                    .try_for_each(|text| writeln!(out, "{text}"))
            });
        }
        let done = stopped || all || observed.is_over;
        if done {
            let rest = printer.finish();
            printed = printed.and_then(|()| rest.iter().try_for_each(|text| writeln!(out, "{text}")));
        }
        match printed.and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(traced),
            Err(error) => return Err(format!("standard output: {error}")),
            Ok(()) => {}
        }
        if done {
            traced.ended = observed.is_over;
            return Ok(traced);
        }
        std::thread::sleep(LOOK);
    }
}

fn print(steps: Vec<Step>, json: bool, printer: &mut Printer, out: &mut dyn Write) -> std::io::Result<()> {
    for step in steps {
        if json {
            writeln!(out, "{}", crate::shape::object(&step))?;
        } else if let Some(text) = printer.take(step) {
            writeln!(out, "{text}")?;
        }
    }
    Ok(())
}
