//! Whether a process is about to be gone.
//!
//! The kernel closes a killed process's connections behind its memory: on a busy machine that is a
//! second later than its last instruction. `/proc/PID/stat` says it from the first moment: the
//! signal waits, then the process is exiting, then it is a zombie (proc_pid_stat(5)).
//!
//! A process of which nothing can be read is not said to be dying: its connection tells.

use std::fs::File;
use std::io::Read;

/// The place of the state in the line, behind the name.
const STATE: usize = 0;
/// The kernel's flags of the process.
const FLAGS: usize = 6;
/// Signals that wait, a bit each.
const PENDING: usize = 28;
/// `PF_EXITING`.
const EXITING: u64 = 4;
/// SIGKILL's bit.
const KILL: u64 = 1 << 8;

/// Whether this process runs no more instruction of its own.
pub(super) fn is_dying(process: u32) -> bool {
    let mut text = [0; 1024];
    let read = File::open(format!("/proc/{process}/stat")).and_then(|mut file| file.read(&mut text));
    read.is_ok_and(|length| says_dying(&text[..length]))
}

fn says_dying(stat: &[u8]) -> bool {
    // The name is in parentheses, and may have any byte.
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else {
        return false;
    };
    let Ok(rest) = std::str::from_utf8(&stat[end + 1..]) else {
        return false;
    };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let has = |place: usize, bits: u64| {
        let number = fields.get(place).and_then(|field| field.parse::<u64>().ok());
        number.is_some_and(|number| number & bits != 0)
    };
    matches!(fields.get(STATE), Some(&("Z" | "X"))) || has(FLAGS, EXITING) || has(PENDING, KILL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_killed_process_is_dying_and_one_that_stands_still_is_not() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(!is_dying(child.id()) && !is_dying(std::process::id()));
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert!(!is_dying(child.id()));
        kill_process(pid, Signal::KILL).unwrap();
        let began = Instant::now();
        while !is_dying(child.id()) {
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        child.wait().unwrap();
        assert!(!is_dying(child.id()), "nothing can be read of it");
    }

    #[test]
    fn a_name_may_look_like_fields() {
        let fields = "S 1 1 1 0 -1 4194560 5 0 0 0 0 0 0 0 20 0 1 0 7 8 9 10 11 12 13 14 15 0 0";
        assert!(!says_dying(format!("7 (a) Z (b) {fields}").as_bytes()));
        let exiting = fields.replace("4194560", "4194564");
        assert!(says_dying(format!("7 (a) {exiting}").as_bytes()));
        let killed = fields.replace(" 15 0 0", " 15 256 0");
        assert!(says_dying(format!("7 (a) {killed}").as_bytes()));
        for text in ["", "7", "7 (a", "7 (a)", "7 (a) Z"] {
            assert_eq!(says_dying(text.as_bytes()), text.ends_with('Z'), "{text}");
        }
    }
}
