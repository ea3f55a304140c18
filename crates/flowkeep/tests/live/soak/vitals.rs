//! A process's use of the machine, once a second: memory, descriptors, threads; and the kernel's
//! own memory.
//!
//! Theory of operation. A process's memory is of two sorts, told apart by the kernel's figures of
//! each mapping (`/proc/…/smaps`):
//!
//! ```text
//!   large    pieces of 1 MiB and more (tables, pools), in mappings of their own that want large pages (`adapters::large`, `pages`)
//!   rest     everything else: small pieces of the heap, stacks, the program itself
//! ```
//!
//! Large pieces are laid out at the start and touched when they are used first, 2 MiB at a time:
//! the resident part of a table grows, in jumps, until as many flows, fragments or blocks have been
//! there at a time as ever are, on whichever day that is. So not their resident part is judged but
//! their length, which is the most that they can hold: a leak there needs a new piece or a longer
//! one. The rest is judged by its resident part. A leak raises the *least* of it, so the least of a
//! stretch of time is compared with the least of another: memory that a reload or a question takes
//! for a while is no leak.
//!
//! All kinds of traffic come round in [`ROUND`]. A process is warm after two such rounds, or a
//! third of the time if that is less. The first third of the time from then on is compared with the
//! last.
//!
//! Not here: entries of tables that are never given back. They make no memory grow; NAT's tests
//! hold its tables empty behind the last flow.

use super::traffic::ROUND;
use std::fs;
use std::time::Duration;

/// How much longer all large pieces may be at the end: one of the smallest of them, for a table
/// that has to be longer.
const LARGE_GROWTH_MAX_KB: u64 = 2 << 10;
/// How much more of the rest there may be at the end. In an hour, a kilobyte a second is 2.4 MB
/// between the two thirds' least.
const REST_GROWTH_MAX_KB: u64 = 2 << 10;
/// The kernel's memory that it cannot take back is the whole machine's, with all other programs
/// there.
const KERNEL_GROWTH_MAX_KB: u64 = 128 << 10;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    memory: Memory,
    descriptors: usize,
    threads: usize,
    kernel_kb: u64,
}

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// Length of all large pieces.
    large: u64,
    /// The resident part of them.
    touched: u64,
    /// The resident part of the rest.
    rest: u64,
}

impl Memory {
    /// From `/proc/…/smaps`: of each mapping, lines with its figures and at the end one with its
    /// flags; a mapping with `hg` wants large pages, one with `ht` has reserved ones.
    fn of(smaps: &str) -> Memory {
        let (mut memory, mut size, mut resident) = (Memory::default(), 0, 0);
        for line in smaps.lines() {
            let figure = |text: &str| text.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            if let Some(text) = line.strip_prefix("Size:") {
                size = figure(text);
            } else if let Some(text) = line.strip_prefix("Rss:") {
                resident = figure(text);
            } else if let Some(flags) = line.strip_prefix("VmFlags:") {
                if flags.split_whitespace().any(|flag| matches!(flag, "hg" | "ht")) {
                    memory.large += size;
                    memory.touched += resident;
                } else {
                    memory.rest += resident;
                }
            }
        }
        memory
    }
}

/// A process, looked at again and again.
pub struct Vitals {
    process: u32,
    samples: Vec<Sample>,
}

/// The number behind a word at the beginning of a line.
fn number(text: &str, word: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(word)).expect(word);
    line.split_whitespace().next().unwrap().parse().unwrap()
}

impl Vitals {
    pub fn of(process: u32) -> Self {
        Vitals {
            process,
            samples: Vec::new(),
        }
    }

    pub fn look(&mut self, at: Duration) {
        let of = |name: &str| format!("/proc/{}/{name}", self.process);
        let count = |name: &str| fs::read_dir(of(name)).unwrap().count();
        self.samples.push(Sample {
            at,
            memory: Memory::of(&fs::read_to_string(of("smaps")).unwrap()),
            descriptors: count("fd"),
            threads: count("task"),
            kernel_kb: number(&fs::read_to_string("/proc/meminfo").unwrap(), "SUnreclaim:"),
        });
    }

    /// The samples from when it was warm on.
    fn warm(&self) -> &[Sample] {
        let end = self.samples.last().expect("a sample").at;
        let from = (ROUND * 2).min(end / 3);
        let at = self.samples.iter().position(|sample| sample.at >= from);
        &self.samples[at.unwrap_or(0)..]
    }

    /// Prints some of the samples.
    pub fn tell(&self) {
        println!(
            "{:>8} {:>10} {:>11} {:>9} {:>6} {:>8} {:>12}",
            "second", "large KiB", "touched KiB", "rest KiB", "files", "threads", "kernel KiB"
        );
        let step = self.samples.len().div_ceil(30);
        for sample in self
            .samples
            .iter()
            .step_by(step.max(1))
            .chain(self.samples.last())
        {
            println!(
                "{:>8} {:>10} {:>11} {:>9} {:>6} {:>8} {:>12}",
                sample.at.as_secs(),
                sample.memory.large,
                sample.memory.touched,
                sample.memory.rest,
                sample.descriptors,
                sample.threads,
                sample.kernel_kb
            );
        }
    }

    pub fn judge(&self) {
        let warm = self.warm();
        let third = warm.len().div_ceil(3);
        let (first, last) = (&warm[..third], &warm[warm.len() - third..]);
        let least = |samples: &[Sample], of: fn(&Sample) -> u64| samples.iter().map(of).min().unwrap_or(0);
        for (what, of, most) in [
            (
                "large pieces",
                (|sample| sample.memory.large) as fn(&Sample) -> u64,
                LARGE_GROWTH_MAX_KB,
            ),
            ("the rest", |sample| sample.memory.rest, REST_GROWTH_MAX_KB),
            ("the kernel's", |sample| sample.kernel_kb, KERNEL_GROWTH_MAX_KB),
            // A question over the control socket has a descriptor and a thread while it is
            // answered.
            ("descriptors", |sample| sample.descriptors as u64, 2),
            ("threads", |sample| sample.threads as u64, 2),
        ] {
            let (before, after) = (least(first, of), least(last, of));
            println!(
                "{what}: at least {before} from second {}, {after} from second {}, by {most} more is too much",
                first[0].at.as_secs(),
                last[0].at.as_secs()
            );
            assert!(after <= before + most, "{what}: {before} has grown to {after}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once a second for `seconds`: so many KiB of the rest more with each, and a table that is
    /// touched more and more.
    fn vitals(seconds: u64, rest_of: impl Fn(u64) -> u64, large: u64) -> Vitals {
        let samples = (1..=seconds).map(|second| Sample {
            at: Duration::from_secs(second),
            memory: Memory {
                large: 400_000 + large * second,
                touched: 300_000 + 1000 * second,
                rest: rest_of(second),
            },
            descriptors: 18 + (second % 3) as usize,
            threads: 7,
            kernel_kb: 100_000,
        });
        Vitals {
            process: 0,
            samples: samples.collect(),
        }
    }

    #[test]
    fn tables_that_are_touched_are_no_leak() {
        // Nor is the memory of a reload for a second.
        vitals(20, |second| 16_000 + u64::from(second % 7 == 0) * 5000, 0).judge();
        vitals(3600, |_| 16_000, 0).judge();
    }

    #[test]
    #[should_panic = "the rest: 16016 has grown to 18406"]
    fn a_kilobyte_a_second_is_found_in_an_hour() {
        vitals(3600, |second| 16_000 + second, 0).judge();
    }

    #[test]
    #[should_panic = "large pieces: 400112"]
    fn a_table_that_becomes_longer_is_found() {
        vitals(3600, |_| 16_000, 7).judge();
    }

    #[test]
    fn mappings_are_told_apart() {
        let smaps = "7f00-7f10 rw-p 0 00:00 0\nSize:              10240 kB\nRss:                4096 kB\nVmFlags: rd wr mr hg\n\
                     7f20-7f30 rw-p 0 00:00 0\nSize:              65536 kB\nRss:                 180 kB\nVmFlags: rd wr mr\n";
        let memory = Memory::of(smaps);
        assert_eq!((memory.large, memory.touched, memory.rest), (10_240, 4096, 180));
    }
}
