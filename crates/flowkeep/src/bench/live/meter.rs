//! Who has worked how long: both processors' time, the threads' that take part, and what has arrived.
//!
//! Two accounts, of which neither trusts the other. *The machine's* (`/proc/stat`): wall time of all processors less what was idle or
//! stolen, whoever worked. *The threads'* (`schedstat`, nanoseconds): who sends, Flowkeep's, and the kernel's that poll or take
//! softirqs over; a softirq that runs in the course of a thread's system call is in that thread's time. On a quiet machine they say the
//! same; what the machine's says more is others' work (`foreign`), by which a run can be judged.

use adapters::machine::CpuTimes;
use std::fs;
use std::time::Instant;

/// Ticks of `/proc/stat` in a second.
const TICKS: f64 = 100.0;

/// Whose time is taken.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    /// Processes, all of whose threads count.
    pub processes: Vec<u32>,
    /// The kernel's threads that poll.
    pub pollers: Vec<u32>,
}

/// A moment.
#[derive(Debug)]
pub struct Moment {
    at: Instant,
    machine: CpuTimes,
    own_ns: u64,
    others_ns: u64,
    /// Frames that have arrived, by interface.
    arrived: Vec<u64>,
}

/// What lies between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Wall time.
    pub seconds: f64,
    /// Core seconds of the machine, whoever worked; stolen time is not in it.
    pub machine: f64,
    /// Core seconds of the calling thread, which sends.
    pub sender: f64,
    /// Core seconds of the other threads that take part.
    pub others: f64,
    /// The part of the processors' time that the hypervisor gave to others.
    pub stolen: f64,
    /// Frames that arrived.
    pub arrived: u64,
}

impl Passed {
    /// Core seconds of all that take part.
    pub fn threads(&self) -> f64 {
        self.sender + self.others
    }
}

impl Threads {
    /// Now, as seen by the calling thread, with what these of its namespace's interfaces have received.
    pub fn now(&self, interfaces: &[&str]) -> Moment {
        let tasks = self.processes.iter().flat_map(|process| {
            let folder = fs::read_dir(format!("/proc/{process}/task"));
            folder.into_iter().flatten().flatten().map(|task| task.path())
        });
        let kernels = self
            .pollers
            .iter()
            .copied()
            .chain(softirqd().iter().copied())
            .map(|id| format!("/proc/{id}").into());
        let others_ns = tasks.chain(kernels).map(|task| ran_ns(&task.join("schedstat"))).sum();
        Moment {
            arrived: arrived(interfaces),
            machine: CpuTimes::read(),
            others_ns,
            own_ns: ran_ns("/proc/thread-self/schedstat".as_ref()),
            at: Instant::now(),
        }
    }
}

impl Moment {
    /// What has passed since an earlier moment.
    pub fn since(&self, before: &Moment) -> Passed {
        let all = self.machine.total.saturating_sub(before.machine.total);
        let off = |times: &CpuTimes| times.idle + times.steal;
        let busy = all.saturating_sub(off(&self.machine).saturating_sub(off(&before.machine)));
        let sum = |arrived: &[u64]| arrived.iter().sum::<u64>();
        Passed {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            machine: busy as f64 / TICKS,
            sender: self.own_ns.saturating_sub(before.own_ns) as f64 / 1e9,
            others: self.others_ns.saturating_sub(before.others_ns) as f64 / 1e9,
            stolen: self.machine.stolen_since(&before.machine),
            arrived: sum(&self.arrived).saturating_sub(sum(&before.arrived)),
        }
    }
}

fn ran_ns(path: &std::path::Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Frames received, by interface of the calling thread's namespace.
pub fn arrived(interfaces: &[&str]) -> Vec<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let of = |interface: &&str| {
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(*interface)?.strip_prefix(':'));
        let packets = line.and_then(|line| line.split_whitespace().nth(1));
        packets.and_then(|packets| packets.parse().ok()).unwrap_or(0)
    };
    interfaces.iter().map(of).collect()
}

/// The kernel's threads whose names begin so.
pub fn kernel_threads(beginning: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let named = processes.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(beginning).then_some(id)
    });
    named.collect()
}

/// The threads that take softirqs over.
fn softirqd() -> &'static [u32] {
    static THEM: std::sync::OnceLock<Vec<u32>> = std::sync::OnceLock::new();
    THEM.get_or_init(|| kernel_threads("ksoftirqd/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn work_and_sleep_are_told_apart() {
        let threads = Threads {
            processes: vec![std::process::id()],
            pollers: Vec::new(),
        };
        let before = threads.now(&["lo"]);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let worked = threads.now(&["lo"]);
        std::thread::sleep(Duration::from_millis(200));
        let slept = threads.now(&["lo"]);
        let (work, sleep) = (worked.since(&before), slept.since(&worked));
        assert!(work.seconds >= 0.05 && work.sender > 0.0 && work.others >= work.sender);
        assert!(sleep.seconds >= 0.2 && sleep.sender < 0.05, "{sleep:?}");
        assert!(arrived(&["no such interface"]) == [0]);
    }
}
