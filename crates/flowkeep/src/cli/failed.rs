//! The object that a failed command prints with `--json`.
//!
//! ```text
//!   { "error": "…", "code": 1, "version": 1 }     on standard output, if there is no other object
//! ```
//!
//! Text for people goes to standard error, with and without `--json`.
//!
//! Not here: exit codes ([`super`]).

use crate::shape::{self, Shape};
use schemars::JsonSchema;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command failed.
#[derive(Serialize, JsonSchema)]
pub struct Failed {
    /// Its text on standard error.
    pub error: String,
    /// The exit code.
    pub code: u8,
}

impl Shape for Failed {
    const NAME: &'static str = "failed";
}

/// Prints it, if objects are wanted.
pub(super) fn print(is_wanted: bool, error: &str, code: u8) {
    if is_wanted {
        let error = error.to_owned();
        let _ = writeln!(io::stdout(), "{}", shape::object(&Failed { error, code }));
    }
}

/// Says on standard error why a command failed, and prints it, if objects are wanted.
pub fn ends(is_wanted: bool, error: impl std::fmt::Display, code: u8) -> ExitCode {
    let error = error.to_string();
    let _ = writeln!(io::stderr(), "{error}");
    print(is_wanted, &error, code);
    ExitCode::from(code)
}

/// Whether the words ask for objects; behind `--` they are another program's, or a function's.
pub(super) fn wants_objects(words: &[OsString]) -> bool {
    let own = words.iter().take_while(|word| *word != "--");
    own.into_iter().any(|word| word == "--json")
}

/// Standard output, and whether anything went there.
pub(super) struct Output {
    out: io::Stdout,
    pub is_used: bool,
}

impl Output {
    /// Nothing went there. Standard output is not locked: a running cluster writes its events from
    /// a thread of its own.
    pub fn new() -> Self {
        Output {
            out: io::stdout(),
            is_used: false,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_used |= !bytes.is_empty();
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_wanted_by_a_word_of_the_tool() {
        let wants = |words: &str| wants_objects(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(wants("flowkeep status --json"));
        assert!(!wants("flowkeep status"));
        assert!(!wants("flowkeep function f -- --json"));
    }
}
