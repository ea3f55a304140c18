//! Asks for events of flows and prints them until there are enough.
//!
//! ```text
//!   cluster ◄── asks, each LOOK ── thread ──batches, BATCHES at most──► printing ──► standard output
//! ```
//!
//! A reader that is slow, or stands still, has the queue between the two fill: events that come
//! then are lost and counted here. The thread goes on asking, so that the connection lives.

use super::{Choice, FlowLine, LostLine};
use crate::control::client::Client;
use crate::control::{Answer, FOREIGN, Observe, Request};
use crate::shape;
use crate::signals::StopSignal;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// How often events are fetched.
const LOOK: Duration = Duration::from_millis(50);
/// Batches that wait to be printed.
const BATCHES: usize = 16;

/// Which flows to follow, and how.
#[derive(Debug)]
pub struct FollowJob {
    /// Which flows.
    pub choice: Choice,
    /// Events, at most.
    pub count: Option<u64>,
    /// Print JSON lines.
    pub json: bool,
    /// When to end.
    pub stop: StopSignal,
}

/// The result of following.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Events printed.
    pub events: u64,
    /// Events that there was no room for.
    pub lost: u64,
    /// Whether the cluster ended meanwhile.
    pub ended: bool,
}

#[derive(Default)]
struct Batch {
    lines: Vec<FlowLine>,
    lost: u64,
    is_over: bool,
}

/// Follows flows until there are enough events, it is stopped, or the cluster ends.
pub fn run(job: &FollowJob, client: &mut Client, out: &mut dyn Write) -> Result<Followed, String> {
    let observe = Observe::Flows(job.choice.clone());
    match client.ask(&Request::Watch(Box::new(observe)))? {
        Answer::Watching { .. } => {}
        _ => return Err(FOREIGN.into()),
    }
    let has_enough = AtomicBool::new(false);
    let (batches, incoming) = sync_channel(BATCHES);
    std::thread::scope(|scope| {
        let fetching = scope.spawn(|| fetch(job, client, batches, &has_enough));
        let mut followed = Followed::default();
        let mut printed = Ok(());
        for batch in incoming {
            printed = print(job, batch, &mut followed, out);
            let is_done = job.count.is_some_and(|count| followed.events >= count);
            if printed.is_err() || is_done {
                break;
            }
        }
        has_enough.store(true, Ordering::Release);
        let fetched = fetching
            .join()
            .unwrap_or_else(|_| Err("the thread that fetches events has failed".into()));
        match printed {
            // The reader has gone (`| head`), and wants no more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(followed),
            Err(error) => Err(format!("standard output: {error}")),
            Ok(()) => fetched.map(|()| followed),
        }
    })
}

fn print(job: &FollowJob, batch: Batch, followed: &mut Followed, out: &mut dyn Write) -> io::Result<()> {
    followed.lost += batch.lost;
    followed.ended = batch.is_over;
    if batch.lost > 0 && job.json {
        writeln!(out, "{}", shape::object(&LostLine::of(batch.lost)))?;
    } else if batch.lost > 0 {
        let _ = writeln!(
            io::stderr(),
            "{} events are missing here: there was no room for them; narrow it with --address or --protocol",
            batch.lost
        );
    }
    for line in batch.lines {
        if job.count.is_some_and(|count| followed.events >= count) {
            break;
        }
        followed.events += 1;
        match job.json {
            true => {
                writeln!(out, "{}", shape::object(&line))?;
            }
            false => writeln!(out, "{line}")?,
        }
    }
    out.flush()
}

fn fetch(
    job: &FollowJob,
    client: &mut Client,
    batches: SyncSender<Batch>,
    has_enough: &AtomicBool,
) -> Result<(), String> {
    let mut lost = 0;
    loop {
        let is_last = job.stop.is_raised() || has_enough.load(Ordering::Acquire);
        let observed = client.observed(is_last)?;
        lost += observed.flows_lost;
        let is_over = observed.is_over;
        let batch = Batch {
            lines: observed.flows,
            lost,
            is_over,
        };
        if is_last || is_over {
            // The last one waits until it is printed; a printer that has enough does not take it.
            let _ = batches.send(batch);
            return Ok(());
        }
        if !batch.lines.is_empty() || batch.lost > 0 {
            lost = match batches.try_send(batch) {
                Ok(()) => 0,
                Err(TrySendError::Full(batch)) => batch.lost + batch.lines.len() as u64,
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            };
        }
        std::thread::sleep(LOOK);
    }
}
