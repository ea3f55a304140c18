//! Facts about the machine, for the JSON of a bench: a figure without them means nothing.
//!
//! [`Machine::read`] takes what `/proc` and `/sys` say; missing facts are left out, never guessed.
//! [`CpuTimes`] read before and after a run says how much of the time the hypervisor gave to others
//! (steal): a run with more than a percent of it is no measurement.
//!
//! Not here: the clocks ([`crate::clock`]).

use crate::clock::allowed_cpus;
use serde::Serialize;
use std::fs;

/// The machine that a bench ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Processors of the machine.
    pub cpus: usize,
    /// Processors that this process may use.
    pub cpus_allowed: usize,
    /// Whether a hypervisor is below.
    pub virtual_machine: bool,
    /// The frequency governor of the first processor, where there is one.
    pub governor: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// Bytes of a reserved huge page.
    pub huge_page_bytes: u64,
    /// Huge pages reserved.
    pub huge_pages_reserved: u64,
    /// Huge pages reserved and free.
    pub huge_pages_free: u64,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Mean number of threads that ran or wanted to, over the last minute.
    pub load_average: f64,
}

impl Machine {
    /// Reads the facts.
    pub fn read() -> Self {
        let cpuinfo = text("/proc/cpuinfo");
        let meminfo = text("/proc/meminfo");
        let cpus = cpuinfo
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count();
        Machine {
            cpu_model: field(&cpuinfo, "model name").map(str::to_owned),
            cpus: cpus.max(1),
            cpus_allowed: allowed_cpus().len(),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|f| f.split(' ').any(|f| f == "hypervisor")),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            kernel: word("/proc/sys/kernel/osrelease").unwrap_or_default(),
            memory_bytes: number(&meminfo, "MemTotal") << 10,
            page_bytes: rustix::param::page_size() as u64,
            huge_page_bytes: number(&meminfo, "Hugepagesize") << 10,
            huge_pages_reserved: number(&meminfo, "HugePages_Total"),
            huge_pages_free: number(&meminfo, "HugePages_Free"),
            transparent_huge_pages: chosen(&text("/sys/kernel/mm/transparent_hugepage/enabled")),
            load_average: load_average(),
        }
    }
}

/// Mean number of threads that ran or wanted to, over the last minute.
pub fn load_average() -> f64 {
    let text = text("/proc/loadavg");
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// The work of all processors together since the machine started, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// All ticks.
    pub total: u64,
    /// Ticks that the hypervisor gave to others while a thread here wanted to run.
    pub steal: u64,
    /// Ticks in which nothing ran.
    pub idle: u64,
}

impl CpuTimes {
    /// Reads the times.
    pub fn read() -> Self {
        Self::parse(&text("/proc/stat"))
    }

    /// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; the guests' are in
    /// user's already.
    fn parse(stat: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
        let ticks: Vec<u64> = line
            .unwrap_or_default()
            .split_whitespace()
            .take(8)
            .flat_map(str::parse)
            .collect();
        CpuTimes {
            total: ticks.iter().sum(),
            idle: ticks.get(3).copied().unwrap_or(0) + ticks.get(4).copied().unwrap_or(0),
            steal: ticks.get(7).copied().unwrap_or(0),
        }
    }

    /// The part of the time since `before` that was stolen, 0 to 1.
    pub fn stolen_since(&self, before: &CpuTimes) -> f64 {
        let total = self.total.saturating_sub(before.total);
        if total == 0 {
            return 0.0;
        }
        self.steal.saturating_sub(before.steal) as f64 / total as f64
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn word(path: &str) -> Option<String> {
    let text = text(path);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The value behind `name` and a colon, on the first line that has it.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then(|| value.trim())
    })
}

fn number(text: &str, name: &str) -> u64 {
    field(text, name)
        .and_then(|value| value.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_machine() {
        let machine = Machine::read();
        println!("{machine:?}");
        assert!(machine.cpus >= 1 && machine.cpus_allowed >= 1);
        assert!(machine.memory_bytes > 1 << 20 && machine.page_bytes >= 4096);
        assert!(!machine.kernel.is_empty());
        assert!(CpuTimes::read().total > 0);
    }

    #[test]
    fn steal_is_a_part_of_the_time() {
        let before = CpuTimes::parse("cpu  10 0 10 70 5 0 0 5 3 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        assert_eq!((before.total, before.idle, before.steal), (100, 75, 5));
        let after = CpuTimes::parse("cpu  60 0 10 80 5 0 0 45 3 0\n");
        assert_eq!(after.stolen_since(&before), 0.4);
        assert_eq!(before.stolen_since(&before), 0.0);
        assert_eq!(CpuTimes::parse("nothing here"), CpuTimes::default());
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some Processor 9\nflags\t\t: fpu hypervisor lahf_lm\n";
        assert_eq!(field(cpuinfo, "model name"), Some("Some Processor 9"));
        assert_eq!(number("MemTotal:       24684084 kB\n", "MemTotal"), 24_684_084);
        assert_eq!(number("", "MemTotal"), 0);
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen(""), None);
    }
}
