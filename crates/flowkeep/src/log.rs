//! Lines for people on standard error, and which of them are said (`--log`, `FLOWKEEP_LOG`).
//!
//! | level | lines |
//! |---|---|
//! | error | something does not work: a port, a socket, a file; the coordinator decides nothing |
//! | warn | it goes on with less: a store waits, a line has no room, something was refused |
//! | info | a part is ready, or has changed; the default |
//! | debug | each request to the control socket, and each of another member |
//!
//! Why a process ends is said at every level, and so is its report. A reader that is gone is no
//! reason to end.
//!
//! Not here: the event log (`run`), which is for programs.

use clap::ValueEnum;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How much a line matters.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something does not work.
    Error,
    /// A part goes on with less.
    Warn,
    /// A part is ready, or has changed.
    Info,
    /// Each request.
    Debug,
}

/// The environment variable that says the level where the command line does not.
pub const VARIABLE: &str = "FLOWKEEP_LOG";

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// The level of `--log`, else of the environment, else info. The error says which there are.
pub fn level_of(word: Option<Level>, environment: Option<&str>) -> Result<Level, String> {
    match (word, environment) {
        (Some(level), _) => Ok(level),
        (None, None | Some("")) => Ok(Level::Info),
        (None, Some(text)) => Level::from_str(text, false)
            .map_err(|_| format!("{VARIABLE}: `{text}` is no level; write error, warn, info or debug")),
    }
}

/// From now on lines of this level are said, and lines that matter more.
pub fn set(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether lines of this level are said.
pub fn is_said(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Says a line.
pub fn say(level: Level, line: impl Display) {
    if is_said(level) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Lines that wait for a reader of standard error at most.
const WAITING: usize = 256;
/// How long the last lines are waited for.
const LAST: Duration = Duration::from_millis(200);

/// Says lines by a thread of its own, so that their writers never wait for a reader. Lines that
/// have no room are counted.
pub struct Later {
    lines: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    ended: Mutex<Receiver<()>>,
}

impl Later {
    /// For standard error.
    pub fn begin() -> Self {
        Self::to(|line| {
            let _ = writeln!(std::io::stderr(), "{line}");
        })
    }

    fn to(mut write: impl FnMut(&str) + Send + 'static) -> Self {
        let (lines, waiting) = sync_channel::<String>(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (over, ended) = sync_channel(1);
        let unsaid = lost.clone();
        // Without the thread lines are lost, and nothing else.
        let _ = thread::Builder::new().name("lines".to_owned()).spawn(move || {
            for line in waiting {
                write(&line);
                match unsaid.swap(0, Ordering::Relaxed) {
                    0 => {}
                    count => write(&format!(
                        "{count} lines were not said: standard error was not read"
                    )),
                }
            }
            let _ = over.send(());
        });
        Later {
            lines: Some(lines),
            lost,
            ended: Mutex::new(ended),
        }
    }

    /// Says a line, soon.
    pub fn say(&self, level: Level, line: impl Display) {
        if !is_said(level) {
            return;
        }
        let sent = self.lines.as_ref().map(|lines| lines.try_send(line.to_string()));
        if !matches!(sent, Some(Ok(()))) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.lines = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(LAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that stands still makes no thread wait.
    #[test]
    fn what_has_no_reader_is_counted() {
        let (gate, closed) = sync_channel::<()>(0);
        let (seen, lines) = sync_channel(1000);
        let later = Later::to(move |line| {
            let _ = closed.recv();
            let _ = seen.send(line.to_owned());
        });
        for number in 0..600 {
            later.say(Level::Error, number);
        }
        drop(gate);
        assert_eq!(lines.recv().unwrap(), "0");
        let told = lines.recv().unwrap();
        let count: usize = told.split(' ').next().unwrap().parse().unwrap();
        drop(later);
        let rest = lines.iter().count();
        assert_eq!(1 + count + rest, 600, "{told}");
        assert!(rest <= WAITING, "{rest}");
    }

    #[test]
    fn the_command_line_goes_before_the_environment() {
        assert_eq!(level_of(None, None), Ok(Level::Info));
        assert_eq!(level_of(None, Some("")), Ok(Level::Info));
        assert_eq!(level_of(None, Some("debug")), Ok(Level::Debug));
        assert_eq!(level_of(Some(Level::Error), Some("debug")), Ok(Level::Error));
        let said = level_of(None, Some("loud")).unwrap_err();
        assert!(
            said.contains("FLOWKEEP_LOG: `loud`") && said.contains("error, warn, info or debug"),
            "{said}"
        );
    }
}
