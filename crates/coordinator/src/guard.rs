//! A process that starts the coordinator again when it ends by accident, or hangs (NFVactor IV-B3).
//!
//! ```text
//!   guard ── starts ──► coordinator ─┬─ ends with 0 or 2 (asked to, or cannot start as it is told to) ─► guard ends too
//!     ▲  ▲                  │        ├─ ends otherwise, or by a signal ──► pause ─┐
//!     │  └── beats ─────────┘        └─ no beat for SILENT ──► SIGKILL ──► pause ─┤
//!     └───────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The pause begins with [`PAUSE`], doubles to [`PAUSE_MAX`], and begins again after an incarnation
//! of [`GOOD`]. A guard that is told to end tells the coordinator and waits for it. A guard that is
//! killed takes the coordinator with it: the kernel sends that one SIGTERM.
//!
//! # Beats
//!
//! Standard input of the coordinator is a pipe to its guard ([`Beats`]). A byte says that all of
//! its threads that must not wait have taken turns, another byte says that it begins long work: it
//! reads its log. A process that is stopped (SIGSTOP), or has a thread that hangs, is silent.
//!
//! The guard counts silence in its own turns, of which none counts for more than [`TURN_MAX`].
//! Where processors or memory are short the guard gets few turns, too, so a coordinator is not
//! killed for the machine's slowness. A machine that sleeps, or both processes stopped together,
//! count for one turn.

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::io::{self, PipeReader, Stdin};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Before the first restart.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Before any restart, at most.
pub const PAUSE_MAX: Duration = Duration::from_secs(5);
/// After such an incarnation the coordinator counts as well.
pub const GOOD: Duration = Duration::from_secs(10);
/// How often a coordinator beats that is well.
pub const BEAT: Duration = Duration::from_millis(500);
/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(20);
/// For how much of a silence one look counts at most.
const TURN_MAX: Duration = Duration::from_millis(100);

const ALIVE: u8 = b'+';
const LONG: u8 = b'-';

/// Exit codes after which nothing is started again.
const ENDS: [i32; 2] = [0, 2];

/// After which silence a coordinator is killed.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Behind a beat: twenty of them. Members need no coordinator meanwhile, so a longer time costs
    /// little, and a shorter one kills a good coordinator on a busy machine.
    pub beats: Duration,
    /// Behind its start, and behind the word that it begins long work.
    pub long: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            beats: BEAT * 20,
            long: Duration::from_secs(600),
        }
    }
}

/// For the coordinator itself: it ends when its guard does.
pub fn end_with_guard() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Into::into)
}

/// For the coordinator itself: its words to its guard, if it has one.
#[derive(Debug)]
pub struct Beats(Option<Stdin>);

impl Beats {
    /// By standard input, where that is the writing end of a pipe, as no other caller has it.
    pub fn of_process() -> Self {
        let input = io::stdin();
        let is_pipe = fstat(&input).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        let is_written = fcntl_getfl(&input).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::WRONLY);
        Beats((is_pipe && is_written).then_some(input))
    }

    /// All threads that must not wait have taken turns.
    pub fn alive(&self) {
        self.say(ALIVE);
    }

    /// Something begins that may take long.
    pub fn long(&self) {
        self.say(LONG);
    }

    /// A beat without room is not said: the guard has not read the earlier ones.
    fn say(&self, what: u8) {
        let _ = self.0.as_ref().map(|input| rustix::io::write(input, &[what]));
    }
}

/// How long a coordinator has been silent, as its guard counts.
struct Silence {
    beats: PipeReader,
    allowed: Duration,
    lasts: Duration,
    looked: Instant,
}

impl Silence {
    /// Starts the coordinator, with the pipe.
    fn start(mut command: Command, patience: Patience) -> io::Result<(Child, Self)> {
        let (beats, end) = io::pipe()?;
        fcntl_setfl(&beats, OFlags::NONBLOCK)?;
        fcntl_setfl(&end, OFlags::NONBLOCK)?;
        // A group of its own: a terminal's signal is for the guard, which passes it on.
        let child = command.stdin(end).process_group(0).spawn()?;
        let silence = Silence {
            beats,
            allowed: patience.long,
            lasts: Duration::ZERO,
            looked: Instant::now(),
        };
        Ok((child, silence))
    }

    /// Reads the beats that have come. Whether the silence has lasted too long.
    fn is_too_long(&mut self, patience: Patience) -> bool {
        let passed = self.looked.elapsed().min(TURN_MAX);
        self.looked += self.looked.elapsed();
        self.lasts += passed;
        let mut heard = [0; 64];
        // No byte: no beat has come, or the coordinator has ended.
        while let Ok(count @ 1..) = rustix::io::read(&self.beats, &mut heard) {
            self.lasts = Duration::ZERO;
            self.allowed = match heard.get(count - 1) {
                Some(&LONG) => patience.long,
                _ => patience.beats,
            };
        }
        self.lasts >= self.allowed
    }
}

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = id.map(|id| kill_process(id, signal));
}

/// Runs the commands that `command` makes, one after another, until one ends by itself or
/// `is_over`. Says the exit code.
pub fn watch(
    mut command: impl FnMut() -> Command,
    patience: Patience,
    is_over: impl Fn() -> bool,
    mut say: impl FnMut(String),
) -> io::Result<u8> {
    let mut pause = PAUSE;
    loop {
        let (mut child, mut silence) = Silence::start(command(), patience)?;
        let begun = Instant::now();
        let (mut is_told, mut is_killed) = (false, false);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if is_over() && !is_told {
                is_told = true;
                signal(&child, Signal::TERM);
            }
            if silence.is_too_long(patience) && !is_killed {
                is_killed = true;
                say(format!(
                    "the coordinator is silent for {:?}: it is killed",
                    silence.lasts
                ));
                signal(&child, Signal::KILL);
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
            Patience::default(),
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
        let code = watch(command, Patience::default(), over, |line| panic!("{line}"));
        assert_eq!(code.unwrap(), 0);
    }

    const SHORT: Patience = Patience {
        beats: Duration::from_millis(500),
        long: Duration::from_secs(3),
    };

    #[test]
    fn what_is_silent_is_killed_and_started_again_and_what_beats_or_takes_long_is_not() {
        let starts = AtomicU32::new(0);
        let mut said = Vec::new();
        let code = watch(
            || match starts.fetch_add(1, Ordering::Relaxed) {
                // Beats and stops as by SIGSTOP.
                0 => shell("printf + >&0; kill -STOP $$"),
                // Begins in 1 s, beats, takes long, and ends.
                1 => shell(
                    "sleep 1; for n in 1 2 3 4 5 6; do printf + >&0; sleep 0.2; done; printf - >&0; sleep 1; exit 3",
                ),
                _ => shell("exit 0"),
            },
            SHORT,
            || false,
            |line| said.push(line),
        );
        assert_eq!((code.unwrap(), starts.into_inner()), (0, 3), "{said:?}");
        assert!(said[0].contains("silent for 5"), "{said:?}");
        assert!(said[1].contains("signal 9"), "{said:?}");
        assert!(said[2].contains("exit code 3") && said.len() == 3, "{said:?}");
    }

    #[test]
    fn a_guard_that_gets_no_turns_blames_no_coordinator() {
        let (mut child, mut silence) = Silence::start(shell("printf + >&0; read never"), SHORT).unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while silence.allowed == SHORT.long && Instant::now() < end {
            assert!(!silence.is_too_long(SHORT));
            thread::sleep(LOOK);
        }
        thread::sleep(SHORT.beats * 2);
        assert!(!silence.is_too_long(SHORT), "one turn counts for {TURN_MAX:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_guard_that_is_told_to_end_kills_what_hangs() {
        let begun = Instant::now();
        let over = || begun.elapsed() > Duration::from_millis(200);
        let mut said = Vec::new();
        let command = || shell("trap '' TERM; printf + >&0; while :; do sleep 1; done");
        let code = watch(command, SHORT, over, |line| said.push(line));
        assert_eq!(code.unwrap(), 0);
        assert!(
            begun.elapsed() < Duration::from_secs(5) && said.len() == 1,
            "{said:?}"
        );
    }
}
