//! A process that starts the coordinator again when it ends by accident (NFVactor IV-B3).
//!
//! ```text
//!   guard ── starts ──► coordinator ─┬─ ends with 0 or 2 (asked to, or cannot start as it is told to) ─► guard ends too
//!                 ▲                  └─ ends otherwise, or by a signal ─► pause ─┐
//!                 └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! The pause begins with [`PAUSE`], doubles to [`PAUSE_MAX`], and begins again after a life of [`GOOD`]. A guard that is told to end tells
//! the coordinator and waits for it. A guard that is killed takes the coordinator with it: the kernel sends that one SIGTERM.

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Before the first restart.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Before any restart, at most.
pub const PAUSE_MAX: Duration = Duration::from_secs(5);
/// After such a life the coordinator counts as well.
pub const GOOD: Duration = Duration::from_secs(10);
/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(20);

/// Exit codes after which nothing is started again.
const ENDS: [i32; 2] = [0, 2];

/// For the coordinator itself: it ends when its guard does.
pub fn end_with_guard() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into)
}

/// Runs what `command` makes, again and again, until it ends by itself or `is_over`. Says the exit code.
pub fn watch(
    mut command: impl FnMut() -> Command,
    is_over: impl Fn() -> bool,
    mut say: impl FnMut(String),
) -> io::Result<u8> {
    let mut pause = PAUSE;
    loop {
        // A group of its own: a terminal's signal is for the guard, which passes it on.
        let mut child = command().process_group(0).spawn()?;
        let begun = Instant::now();
        let mut is_told = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if is_over() && !is_told {
                is_told = true;
                let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let _ = id.map(|id| kill_process(id, Signal::TERM));
            }
            thread::sleep(LOOK);
        };
        let code = status.code();
        if is_told || code.is_some_and(|code| ENDS.contains(&code)) {
            return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(0));
        }
        if begun.elapsed() >= GOOD {
            pause = PAUSE;
        }
        say(format!(
            "the coordinator {}; it is started again in {pause:?}",
            ended(status)
        ));
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if is_over() {
                return Ok(0);
            }
            thread::sleep(LOOK.min(pause));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("has ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "has ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_ends_by_accident_is_started_again_and_what_is_wrong_is_not() {
        let starts = AtomicU32::new(0);
        let mut said = Vec::new();
        let code = watch(
            || match starts.fetch_add(1, Ordering::Relaxed) {
                0 => shell("kill -9 $$"),
                1 => shell("exit 101"),
                _ => shell("exit 2"),
            },
            || false,
            |line| said.push(line),
        );
        assert_eq!((code.unwrap(), starts.into_inner()), (2, 3));
        assert!(
            said[0].contains("signal 9") && said[1].contains("exit code 101"),
            "{said:?}"
        );
        assert!(said[1].contains("200ms"), "{said:?}");
    }

    #[test]
    fn a_guard_that_is_told_to_end_waits_for_what_it_guards() {
        let begun = Instant::now();
        let command = || shell("trap 'exit 0' TERM; while :; do sleep 0.05; done");
        let over = || begun.elapsed() > Duration::from_millis(300);
        assert_eq!(watch(command, over, |line| panic!("{line}")).unwrap(), 0);
    }
}
