//! `flowkeep top`: asks, subtracts, shows.

use super::busiest::{Busiest, SNAP};
use super::terminal::{Terminal, refusal};
use super::{Rates, TopSample, render};
use crate::capture::Wanted;
use crate::control::client::Client;
use crate::control::{Answer, FOREIGN, Observe, Request};
use crate::shape;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often to show figures, and how.
#[derive(Debug)]
pub struct TopJob {
    /// How often.
    pub interval: Duration,
    /// One interval, as text.
    pub once: bool,
    /// A line of JSON per interval.
    pub json: bool,
}

/// Why there is nothing to show.
#[derive(Debug)]
pub enum TopError {
    /// There is no terminal.
    NoTerminal(&'static str),
    /// The call failed.
    Failed(String),
}

impl From<String> for TopError {
    fn from(error: String) -> Self {
        TopError::Failed(error)
    }
}

/// How often packets are sampled, and keys are looked for.
const LOOK: Duration = Duration::from_millis(200);
/// Memory for the sample: a hundred packets or so at each switch.
const SAMPLE: u64 = 64 * 1024;
/// Columns and rows where standard output is no terminal.
const PLAIN: (usize, usize) = (100, 1000);

struct Source<'a> {
    client: &'a mut Client,
    samples: bool,
    busiest: Busiest,
    before: TopSample,
    at: Instant,
}

impl<'a> Source<'a> {
    fn new(client: &'a mut Client) -> Result<Self, String> {
        let sample = Wanted {
            incoming: true,
            snap_length: SNAP,
            buffer_bytes: Some(SAMPLE),
            ..Wanted::default()
        };
        // Without, if others watch already: the sample is the least of the figures shown.
        let samples = !client.is_wide()
            && client
                .ask(&Request::Watch(Box::new(Observe::Packets(sample))))
                .is_ok();
        let before = figures(client)?;
        Ok(Source {
            client,
            samples,
            busiest: Busiest::default(),
            before,
            at: Instant::now(),
        })
    }

    fn sample(&mut self) -> Result<(), String> {
        if self.samples {
            let observed = self.client.observed(false)?;
            observed.frames.iter().for_each(|frame| self.busiest.count(frame));
        }
        Ok(())
    }

    fn rates(&mut self) -> Result<Rates, String> {
        let after = figures(self.client)?;
        let now = Instant::now();
        let mut rates = Rates::between(&self.before, &after, now - self.at);
        (self.before, self.at) = (after, now);
        self.busiest.take(&mut rates);
        Ok(rates)
    }
}

fn figures(client: &mut Client) -> Result<TopSample, String> {
    let Answer::Status(status) = client.ask(&Request::Status)? else {
        return Err(FOREIGN.into());
    };
    let Answer::Threads(threads) = client.ask(&Request::Threads)? else {
        return Err(FOREIGN.into());
    };
    Ok(TopSample {
        status: *status,
        threads,
    })
}

/// Shows until `q`, a signal, or the cluster's end.
pub fn run(job: &TopJob, client: &mut Client, out: &mut dyn Write) -> Result<(), TopError> {
    if !job.once
        && !job.json
        && let Some(refusal) = refusal()
    {
        return Err(TopError::NoTerminal(refusal));
    }
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&asked)).map_err(|error| error.to_string())?;
    }
    let mut source = Source::new(client)?;
    if job.once || job.json {
        lines(job, &mut source, &asked, out)
    } else {
        screen(job, &mut source, &asked)
    }
}

/// Text or JSON, for scripts.
fn lines(job: &TopJob, source: &mut Source, asked: &AtomicBool, out: &mut dyn Write) -> Result<(), TopError> {
    while !asked.load(Ordering::Relaxed) {
        let until = source.at + job.interval;
        while Instant::now() < until && !asked.load(Ordering::Relaxed) {
            source.sample()?;
            std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        source.sample()?;
        let rates = source.rates()?;
        let written = if job.json {
            writeln!(out, "{}", shape::object(&rates))
        } else {
            let screen = render(&rates, PLAIN.0, PLAIN.1, "");
            screen
                .iter()
                .try_for_each(|line| writeln!(out, "{}", line.trim_end()))
        };
        match written.and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(format!("standard output: {error}").into()),
            Ok(()) => {}
        }
        if job.once {
            break;
        }
    }
    Ok(())
}

/// On a terminal. When the cluster has ended its last figures stay, until a key is pressed.
fn screen(job: &TopJob, source: &mut Source, asked: &AtomicBool) -> Result<(), TopError> {
    let failed = |error: io::Error| TopError::Failed(format!("the terminal: {error}"));
    let terminal = Terminal::enter().map_err(failed)?;
    let mut rates = Rates::default();
    let mut ended = None;
    let mut note = "the first figures come in a moment   q quits".to_owned();
    let mut due = source.at + job.interval;
    loop {
        let (columns, rows) = terminal.size();
        terminal
            .draw(&render(&rates, columns, rows, &note))
            .map_err(failed)?;
        let wait = due.saturating_duration_since(Instant::now()).min(LOOK);
        let key = terminal.key(wait).map_err(failed)?;
        // Ctrl-C and Ctrl-D come as keys.
        if matches!(key, Some(b'q' | b'Q' | 3 | 4)) || asked.load(Ordering::Relaxed) {
            break;
        }
        if ended.is_some() {
            due = Instant::now() + LOOK;
            continue;
        }
        let mut look = || -> Result<(), String> {
            source.sample()?;
            if Instant::now() >= due {
                rates = source.rates()?;
                due = source.at + job.interval;
                note = format!("every {:.1} s   q quits", job.interval.as_secs_f64());
            }
            Ok(())
        };
        if let Err(error) = look() {
            note = format!("THE CLUSTER HAS STOPPED: these were its last figures   q quits   ({error})");
            ended = Some(error);
        }
    }
    drop(terminal);
    match ended {
        Some(error) => Err(TopError::Failed(error)),
        None => Ok(()),
    }
}
