//! The time that work took, both processors' and the threads' that take part, and the frames that
//! have arrived.
//!
//! Two accounts, of which neither trusts the other. *The machine's* (`/proc/stat`): wall time of
//! all processors less idle or stolen time, and less the time that was burnt to keep others off
//! ([`Burner`], and the sender's waiting), whichever process worked. *The threads'* (nanoseconds):
//! the sender's in its calls that send, by its own clock; Flowkeep's, and the kernel's that take
//! softirqs over, by `schedstat`. A softirq that runs in the course of a thread's system call is in
//! that thread's time. They say the same as far as no other process works.

use adapters::clock::{pin_to, thread_ns};
use adapters::machine::CpuTimes;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Ticks of `/proc/stat` in a second.
const TICKS: f64 = 100.0;

/// The threads whose time is taken.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    /// Processes, all of whose threads count.
    pub processes: Vec<u32>,
}

/// A moment.
#[derive(Debug)]
pub struct Moment {
    at: Instant,
    machine: CpuTimes,
    own_ns: u64,
    burnt_ns: u64,
    others_ns: u64,
    /// Frames that have arrived, by interface.
    arrived: Vec<u64>,
}

/// The time and work between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Wall time.
    pub seconds: f64,
    /// Core seconds of the machine, whichever process worked; stolen time is not in it.
    pub machine: f64,
    /// Core seconds that the calling thread, which sends, has spent in its calls.
    pub sender: f64,
    /// Core seconds of the other threads that take part.
    pub others: f64,
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
    /// Now, as seen by the calling thread, with what these of its namespace's interfaces have
    /// received.
    pub fn now(&self, interfaces: &[&str], burnt: Option<&Burner>) -> Moment {
        let tasks = self.processes.iter().flat_map(|process| {
            let folder = fs::read_dir(format!("/proc/{process}/task"));
            folder.into_iter().flatten().flatten().map(|task| task.path())
        });
        let kernels = softirqd().iter().map(|id| format!("/proc/{id}").into());
        let others_ns = tasks
            .chain(kernels)
            .map(|task| ran_ns(&task.join("schedstat")))
            .sum();
        Moment {
            arrived: arrived(interfaces),
            machine: CpuTimes::read(),
            others_ns,
            own_ns: thread_ns(),
            burnt_ns: burnt.map_or(0, Burner::ns),
            at: Instant::now(),
        }
    }
}

impl Moment {
    /// The time and work since an earlier moment, in which the calling thread has sent for so long.
    pub fn since(&self, before: &Moment, sending_ns: u64) -> Passed {
        let all = self.machine.total.saturating_sub(before.machine.total);
        let off = |times: &CpuTimes| times.idle + times.steal;
        let busy = all.saturating_sub(off(&self.machine).saturating_sub(off(&before.machine)));
        let waited = self
            .own_ns
            .saturating_sub(before.own_ns)
            .saturating_sub(sending_ns);
        let burnt = (waited + self.burnt_ns.saturating_sub(before.burnt_ns)) as f64 / 1e9;
        let sum = |arrived: &[u64]| arrived.iter().sum::<u64>();
        Passed {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            machine: (busy as f64 / TICKS - burnt).max(0.001),
            sender: sending_ns as f64 / 1e9,
            others: self.others_ns.saturating_sub(before.others_ns) as f64 / 1e9,
            arrived: sum(&self.arrived).saturating_sub(sum(&before.arrived)),
        }
    }
}

/// A thread that keeps a processor from other work while something is measured, behind everything
/// that takes part.
pub struct Burner {
    /// Its number.
    pub thread: u32,
    state: Arc<(AtomicBool, AtomicBool, AtomicU64)>,
}

impl Burner {
    /// A burner on this processor; it sleeps so far.
    pub fn on(cpu: usize) -> Self {
        let state = Arc::new((AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0)));
        let (theirs, (said, thread)) = (state.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let _ = pin_to(cpu);
            let _ = said.send(rustix::thread::gettid().as_raw_pid() as u32);
            let (ends, burns, ns) = &*theirs;
            while !ends.load(Ordering::Relaxed) {
                if burns.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                    ns.store(thread_ns(), Ordering::Relaxed);
                } else {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Burner {
            thread: thread.recv().unwrap_or(0),
            state,
        }
    }

    /// Begins, or ends.
    pub fn burn(&self, on: bool) {
        self.state.1.store(on, Ordering::Relaxed);
    }

    fn ns(&self) -> u64 {
        self.state.2.load(Ordering::Relaxed)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.state.0.store(true, Ordering::Relaxed);
    }
}

fn ran_ns(path: &std::path::Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0)
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
    use rustix::process::{Pid, Signal, kill_process};

    /// A process of one thread that only works; ended with this.
    struct Worker(std::process::Child);

    impl Worker {
        fn begin() -> Self {
            let mut shell = std::process::Command::new("sh");
            Worker(shell.args(["-c", "while :; do :; done"]).spawn().unwrap())
        }
    }

    impl Drop for Worker {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what} does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Not of this process: threads of other tests come and go in it, and take their time along.
    #[test]
    fn work_and_sleep_are_told_apart() {
        let worker = Worker::begin();
        let threads = Threads {
            processes: vec![worker.0.id()],
        };
        let burner = Burner::on(adapters::clock::allowed_cpus()[0]);
        let before = threads.now(&["lo"], Some(&burner));
        until("work", || threads.now(&[], None).since(&before, 0).others >= 0.05);
        kill_process(Pid::from_child(&worker.0), Signal::STOP).unwrap();
        let task = format!("/proc/{}", worker.0.id());
        let ran = || ran_ns(format!("{task}/schedstat").as_ref());
        until("a stop", || {
            let before = ran();
            std::thread::sleep(Duration::from_millis(5));
            let stat = fs::read_to_string(format!("{task}/stat")).unwrap();
            stat.contains(") T ") && ran() == before
        });
        // The kernel's threads count in any case.
        let kernels_before = Threads::default().now(&[], None);
        let worked = threads.now(&["lo"], Some(&burner));
        let work = worked.since(&before, 7_000_000);
        assert!(
            work.seconds > 0.0 && work.sender == 0.007 && work.others >= 0.05,
            "{work:?}"
        );
        let burnt = burner.ns();
        burner.burn(true);
        until("what is burnt", || burner.ns() > burnt + 1_000_000);
        burner.burn(false);
        let slept = threads.now(&["lo"], Some(&burner)).since(&worked, 0);
        let kernels = Threads::default().now(&[], None).since(&kernels_before, 0);
        assert!(
            slept.seconds > 0.0 && slept.sender == 0.0 && slept.others <= kernels.others,
            "{slept:?}, {kernels:?}"
        );
        assert!(arrived(&["no such interface"]) == [0]);
    }
}
