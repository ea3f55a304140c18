//! Checks and chores of this repository.
//!
//! `cargo xtask ci` runs every check and every test, the same on a desk and in continuous
//! integration. Each step prints one line with its time; a failing step shows its output and the
//! command that repeats it, and the others still run. The last line is the sum over all test
//! binaries: `N passed, N failed`.
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
  nightly [--short] [--fuzz-seconds N]
                               what takes longer: the tests with many more random cases, a soak of an hour, full load
                               for ten minutes, the unsafe code under miri, and the fuzzers, each for N seconds (60).
                               Each step has a limit, and one that fails does not end the run. With --short some of
                               each: half an hour
  check [NAME]                 the checks that only read the sources: all of them, or one
  help                         this list
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["ci"] => steps::ci(),
        ["nightly", ref more @ ..] => match nightly(more) {
            Ok((is_short, fuzz_seconds)) => steps::nightly(is_short, fuzz_seconds),
            Err(problem) => {
                eprintln!("{problem}");
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

/// Whether a nightly run is to be short, and how long each fuzzer is to run if that is said.
fn nightly(words: &[&str]) -> Result<(bool, Option<u32>), String> {
    match words {
        [] => Ok((false, None)),
        ["--short", rest @ ..] => Ok((true, nightly(rest)?.1)),
        ["--fuzz-seconds", seconds, rest @ ..] => match seconds.parse() {
            Ok(seconds @ 1..) => Ok((nightly(rest)?.0, Some(seconds))),
            _ => Err(format!(
                "`{seconds}` is no number of seconds; write for example --fuzz-seconds 60"
            )),
        },
        [word, ..] => Err(format!(
            "`{word}` is none of `--short`, `--fuzz-seconds N` with its number"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::nightly;

    #[test]
    fn a_nightly_run_is_what_was_said() {
        assert_eq!(nightly(&[]), Ok((false, None)));
        assert_eq!(nightly(&["--short"]), Ok((true, None)));
        let both = Ok((true, Some(7)));
        assert_eq!(nightly(&["--short", "--fuzz-seconds", "7"]), both);
        assert_eq!(nightly(&["--fuzz-seconds", "7", "--short"]), both);
        for wrong in [&["--fuzz-seconds", "0"][..], &["--fuzz-seconds"], &["--shrt"]] {
            assert!(nightly(wrong).is_err(), "{wrong:?}");
        }
    }
}
