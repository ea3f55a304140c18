//! A command with a limit: when it takes longer, it and all it has started are ended.
//!
//! The processes share the terminal's group with us, so that Ctrl-C ends all. So the processes to
//! end are read from `/proc`: the child, its children, and so on, all read before the first of them
//! ends and its children have another parent. The processes are not asked (SIGKILL): a process that
//! hangs does not listen, and a test's process has nothing to say at its end.
//!
//! Not here: a process that was given up by its parent before the limit; nothing in the steps does
//! that.

use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A process, with the time that tells it from a later one of its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Process {
    number: u32,
    parent: u32,
    /// In the kernel's ticks since it started.
    began: u64,
}

/// Waits until the child has ended, and does something meanwhile again and again; `None` if the
/// child had to be ended.
pub fn wait(child: &mut Child, limit: Duration, meanwhile: impl FnMut()) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = within(child, limit, meanwhile)? {
        return Ok(Some(status));
    }
    kill(&family(child.id()));
    child.wait()?;
    Ok(None)
}

fn within(child: &mut Child, limit: Duration, mut meanwhile: impl FnMut()) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || begin.elapsed() >= limit {
            return Ok(status);
        }
        meanwhile();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The process and all that have come from it.
fn family(number: u32) -> Vec<Process> {
    let all: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| process(entry.file_name().to_str()?.parse().ok()?))
        .collect();
    let mut family: Vec<Process> = all
        .iter()
        .copied()
        .filter(|process| process.number == number)
        .collect();
    let mut at = 0;
    while at < family.len() {
        let parent = family[at].number;
        family.extend(all.iter().filter(|process| process.parent == parent));
        at += 1;
    }
    family
}

fn process(number: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name in the second field may have spaces and brackets in it. Behind it: the state, the
    // parent, and as the twentieth the beginning.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Process {
        number,
        parent: fields.get(1)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
    })
}

/// Ends processes that are there still.
fn kill(processes: &[Process]) {
    let there: Vec<String> = processes
        .iter()
        .filter(|is| process(is.number).is_some_and(|now| now.began == is.began))
        .map(|process| process.number.to_string())
        .collect();
    if !there.is_empty() {
        // The shell's own: a bare machine has no program of that name. A process that has ended
        // meanwhile is no failure.
        let _ = Command::new("sh")
            .args(["-c", &format!("kill -KILL {}", there.join(" "))])
            .stderr(Stdio::null())
            .status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn a_process_that_ends_in_time_is_left_alone() {
        let status = wait(&mut shell("exit 3"), Duration::from_secs(60), || ()).unwrap();
        assert_eq!(status.unwrap().code(), Some(3));
    }

    #[test]
    fn a_process_that_does_not_end_is_ended_with_all_it_has_started() {
        // A child's child that does not listen, and a shell that waits for it.
        let mut child = shell("sh -c 'trap \"\" TERM; while :; do sleep 1; done' & sleep 1000 & wait");
        let begin = Instant::now();
        let all = loop {
            let all = family(child.id());
            if all.len() >= 4 {
                break all;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", all.len());
        };
        assert!(wait(&mut child, Duration::ZERO, || ()).unwrap().is_none());
        while all
            .iter()
            .any(|is| process(is.number).is_some_and(|now| now.began == is.began && now.parent == is.parent))
        {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
