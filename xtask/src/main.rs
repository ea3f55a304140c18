//! Checks and chores of this repository.
//!
//! `cargo xtask ci` runs every check and every test, the same on a desk and in continuous integration. Each step prints
//! one line with its time; one that fails shows what it said and the command that repeats it, and the others still
//! run. The last line is the sum over all test binaries: `N passed, N failed`.
//!
//! ```text
//!     main ── steps: an outside command each (format, clippy, docs, tests)
//!        └─── checks: read the sources and `cargo metadata`, judge, list what is wrong
//! ```
//!
//! Not here: installing anything; that is `./x`.

mod checks;
mod steps;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask WORD

  ci                           every check and every test
  nightly [--fuzz-seconds N]   the same with many more random cases, the unsafe code under miri, and the fuzzers,
                               each for N seconds (60)
  check [NAME]                 the checks that only read the sources: all of them, or one
  help                         this list
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["ci"] => steps::ci(),
        ["nightly"] => steps::nightly(60),
        ["nightly", "--fuzz-seconds", seconds] => match seconds.parse() {
            Ok(seconds @ 1..) => steps::nightly(seconds),
            _ => {
                eprintln!("`{seconds}` is no number of seconds; write for example --fuzz-seconds 60");
                ExitCode::from(2)
            }
        },
        ["check"] => steps::only_checks(None),
        ["check", name] if checks::named(name).is_some() => steps::only_checks(Some(name)),
        ["check", name] => {
            let names: Vec<&str> = checks::ALL.iter().map(|check| check.name).collect();
            eprintln!("there is no check `{name}`; there are: {}", names.join(", "));
            ExitCode::from(2)
        }
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{HELP}");
            ExitCode::from(2)
        }
    }
}
