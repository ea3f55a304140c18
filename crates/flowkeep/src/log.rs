//! Lines for people on standard error, and which of them are said (`--log`, `FLOWKEEP_LOG`).
//!
//! | level | what is said |
//! |---|---|
//! | error | something does not work: a port, a socket, a file; the coordinator decides nothing |
//! | warn | it goes on with less: a store waits, a line has no room, something was refused |
//! | info | what is ready, and what has changed; the default |
//! | debug | each request to the control socket, and each of another member |
//!
//! Why a process ends is said at every level, and so is its report. A reader that is gone is no reason to end.
//!
//! Not here: the event log (`run`), which is for programs.

use clap::ValueEnum;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much a line matters.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something does not work.
    Error,
    /// It goes on with less.
    Warn,
    /// What is ready, and what has changed.
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

/// From now on lines of this level are said, and those that matter more.
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

#[cfg(test)]
mod tests {
    use super::*;

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
