//! What a process has taken of the machine, once a second: memory, descriptors, threads; and the kernel's own memory.
//!
//! Tables lie in memory that is taken at the start and touched when it is used first, so memory grows until as much has been in use at a
//! time as ever is. All kinds of traffic come round in [`ROUND`]; what is there after two of them, or a third of the
//! time if that is less, is what everything later is compared with.

use super::traffic::ROUND;
use std::fs;
use std::time::Duration;

/// How much more memory there may be at any later time.
const GROWTH_MAX_KB: u64 = 8 << 10;
/// The kernel's memory that it cannot take back is the whole machine's, with whatever else runs there.
const KERNEL_GROWTH_MAX_KB: u64 = 128 << 10;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    memory_kb: u64,
    descriptors: usize,
    threads: usize,
    kernel_kb: u64,
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
            memory_kb: number(&fs::read_to_string(of("status")).unwrap(), "VmRSS:"),
            descriptors: count("fd"),
            threads: count("task"),
            kernel_kb: number(&fs::read_to_string("/proc/meminfo").unwrap(), "SUnreclaim:"),
        });
    }

    /// The samples when it was warm, and from then on.
    fn warm(&self) -> (&[Sample], Sample) {
        let end = self.samples.last().expect("a sample").at;
        let from = (ROUND * 2).min(end / 3);
        let at = self.samples.iter().position(|sample| sample.at >= from);
        let later = &self.samples[at.unwrap_or(0)..];
        (later, later[0])
    }

    /// Prints some of the samples.
    pub fn tell(&self) {
        println!(
            "{:>8} {:>10} {:>6} {:>8} {:>12}",
            "second", "memory KiB", "files", "threads", "kernel KiB"
        );
        let step = self.samples.len().div_ceil(30);
        for sample in self
            .samples
            .iter()
            .step_by(step.max(1))
            .chain(self.samples.last())
        {
            println!(
                "{:>8} {:>10} {:>6} {:>8} {:>12}",
                sample.at.as_secs(),
                sample.memory_kb,
                sample.descriptors,
                sample.threads,
                sample.kernel_kb
            );
        }
    }

    pub fn judge(&self) {
        let (later, warm) = self.warm();
        let most = |of: fn(&Sample) -> u64| later.iter().map(of).max().unwrap_or(0);
        let last = later[later.len() - 1];
        println!(
            "memory: {} KiB after {} s, {} at most later, {} at the end; the kernel's: {}, {} at the end",
            warm.memory_kb,
            warm.at.as_secs(),
            most(|sample| sample.memory_kb),
            last.memory_kb,
            warm.kernel_kb,
            last.kernel_kb
        );
        assert!(
            most(|sample| sample.memory_kb) <= warm.memory_kb + GROWTH_MAX_KB,
            "memory grows"
        );
        assert!(
            last.kernel_kb <= warm.kernel_kb + KERNEL_GROWTH_MAX_KB,
            "the kernel's memory grows"
        );
        // A question over the control socket has a descriptor and a thread while it is answered.
        assert!(
            last.descriptors <= warm.descriptors + 2,
            "descriptors: {warm:?}, {last:?}"
        );
        assert!(last.threads <= warm.threads + 2, "threads: {warm:?}, {last:?}");
    }
}
