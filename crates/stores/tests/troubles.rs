//! The agent over a store that fails, or is slow, with some partitions or some calls: the others go
//! on, and nothing is acknowledged that the store does not have.

use flowkeep_stores::batch::Batch;
use flowkeep_stores::driver::Swapped;
use flowkeep_stores::drivers::memory::Memory;
use flowkeep_stores::{
    Agency, Consistency, Counter, Driver, Failure, Options, Outcome, Partition, PartitionName, Report, Store,
    VariableName, Version,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// The troubles of a store in memory.
#[derive(Default)]
struct Troubles {
    /// Variables of these names cannot be read.
    unread: Mutex<Vec<&'static str>>,
    /// Batches of this runtime's partition fail, and looks at its version.
    failing: Mutex<Option<u32>>,
    /// How long a call with batches takes.
    slow_ms: AtomicU64,
    /// The server starts again without its data at the next call.
    forgets: AtomicBool,
}

struct Troubled {
    inner: Memory,
    troubles: Arc<Troubles>,
}

fn trouble() -> Failure {
    Failure::new("test", "this part of it is broken", "none")
}

impl Troubled {
    fn inner(&mut self) -> &mut Memory {
        if self.troubles.forgets.swap(false, Ordering::Relaxed) {
            self.inner = Memory::default();
        }
        &mut self.inner
    }

    fn see(&self, partition: &PartitionName) -> Result<(), Failure> {
        let failing = *self.troubles.failing.lock().unwrap();
        (failing != Some(partition.runtime()))
            .then_some(())
            .ok_or_else(trouble)
    }
}

impl Driver for Troubled {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        self.inner().claim(partition, at_least)
    }
    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        self.see(partition)?;
        self.inner().version(partition)
    }
    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        self.inner().restore(partition, version)
    }
    /// Writes the batches that can be, and answers up to the first that cannot, as a server's
    /// driver does.
    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        let slow = self.troubles.slow_ms.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(slow));
        let mut done = Ok(());
        for batch in batches {
            match self.see(batch.partition) {
                Err(failure) => done = done.and(Err(failure)),
                Ok(()) => {
                    let mut outcome = Vec::new();
                    self.inner().write(std::slice::from_ref(batch), &mut outcome)?;
                    if done.is_ok() {
                        outcomes.append(&mut outcome);
                    }
                }
            }
        }
        done
    }
    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        if self.troubles.unread.lock().unwrap().contains(&variable.name()) {
            return Err(trouble());
        }
        self.inner().load(variable, element)
    }
    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        self.inner().partitions(function)
    }
    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        self.inner().variables()
    }
    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.inner().record(name)
    }
    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.inner().records()
    }
    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        self.inner().swap(name, expected, new)
    }
}

struct Setting {
    memory: Memory,
    troubles: Arc<Troubles>,
    store: Store,
    reports: Receiver<Report>,
    _agency: Agency,
}

/// A store whose calls wait for it so long.
fn started(patience: Duration) -> Setting {
    let (memory, troubles) = (Memory::default(), Arc::<Troubles>::default());
    let driver = Troubled {
        inner: memory.clone(),
        troubles: Arc::clone(&troubles),
    };
    let (told, reports) = std::sync::mpsc::channel();
    let report = move |report| drop(told.send(report));
    let (store, _agency) = Store::start(Box::new(driver), patience, report).unwrap();
    Setting {
        memory,
        troubles,
        store,
        reports,
        _agency,
    }
}

fn name(runtime: u32) -> PartitionName {
    PartitionName::new("f", "m", runtime).unwrap()
}

fn small() -> Options {
    Options {
        capacity: 16,
        consistency: Consistency::THROUGH,
    }
}

/// The count of a process that begins now.
fn count(memory: &Memory, variable: &str) -> i64 {
    let (store, _agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
    let mut f = Partition::open(&store, name(0)).unwrap();
    f.counter(variable, small()).unwrap().get()
}

/// A variable that cannot be opened takes no other's place.
#[test]
fn what_is_opened_behind_a_failed_opening_is_stored() {
    let setting = started(Duration::from_millis(100));
    *setting.troubles.unread.lock().unwrap() = vec!["alpha"];
    let mut f = Partition::open(&setting.store, name(0)).unwrap();
    assert!(f.counter("alpha", small()).is_err());
    // The store is not asked for a name that can be none.
    assert!(f.counter(&"x".repeat(300), small()).is_err());
    let beta = f.counter("beta", small()).unwrap();
    let gamma = f.counter("gamma", small()).unwrap();
    beta.add(5);
    gamma.add(7);
    assert!(f.finish(PATIENCE));
    setting.troubles.unread.lock().unwrap().clear();
    let alpha = f.counter("alpha", small()).unwrap();
    alpha.add(3);
    assert!(f.finish(PATIENCE));
    assert_eq!(count(&setting.memory, "beta"), 5);
    assert_eq!(count(&setting.memory, "gamma"), 7);
    assert_eq!(count(&setting.memory, "alpha"), 3);
}

/// A partition whose batches and looks fail is no other one's trouble.
#[test]
fn a_partition_that_fails_holds_no_other_up() {
    let setting = started(PATIENCE);
    let mut all: Vec<_> = (0..3)
        .map(|runtime| {
            let mut f = Partition::open(&setting.store, name(runtime)).unwrap();
            let counter = f.counter("n", small()).unwrap();
            counter.add(1);
            assert!(f.finish(PATIENCE));
            (f, counter)
        })
        .collect();
    *setting.troubles.failing.lock().unwrap() = Some(0);
    for (runtime, (f, counter)) in all.iter_mut().enumerate() {
        counter.add(10);
        f.step(1);
        // Also where each has a second batch behind the first.
        counter.add(100);
        f.step(2);
        assert_eq!(f.finish(Duration::from_secs(3)), runtime != 0, "{runtime}");
    }
    assert!(setting.store.health().failing);
    *setting.troubles.failing.lock().unwrap() = None;
    let (f, _) = &mut all[0];
    assert!(f.finish(PATIENCE));
    assert_eq!(count(&setting.memory, "n"), 111);
}

/// Waits for the report that the store has lost what it had of a partition, while `busy` works.
fn await_forgotten(setting: &Setting, runtime: u32, mut busy: impl FnMut()) -> Duration {
    let began = Instant::now();
    loop {
        busy();
        match setting.reports.try_recv() {
            Ok(Report::Forgotten(of)) if of == name(runtime) => return began.elapsed(),
            _ => assert!(began.elapsed() < PATIENCE, "it is not found out"),
        }
    }
}

#[test]
fn a_partition_that_cannot_be_looked_at_hides_no_other() {
    let setting = started(PATIENCE);
    let mut all = [0, 1].map(|runtime| {
        let mut f = Partition::open(&setting.store, name(runtime)).unwrap();
        f.counter("n", small()).unwrap().add(1);
        assert!(f.finish(PATIENCE));
        f
    });
    *setting.troubles.failing.lock().unwrap() = Some(0);
    setting.troubles.forgets.store(true, Ordering::Relaxed);
    let passed = await_forgotten(&setting, 1, || {
        all[1].step(1);
        std::thread::sleep(Duration::from_millis(1));
    });
    assert!(passed < Duration::from_secs(5), "{passed:?}");
}

/// Of two partitions there is always a batch, by turns; another is at rest while the store loses
/// its data.
#[test]
fn a_store_that_lost_its_data_is_found_out_at_rest_though_others_are_busy() {
    let setting = started(PATIENCE);
    setting.troubles.slow_ms.store(30, Ordering::Relaxed);
    let mut all = [0, 1, 2].map(|runtime| {
        let mut f = Partition::open(&setting.store, name(runtime)).unwrap();
        let counter = f.counter("n", small()).unwrap();
        counter.add(1);
        assert!(f.finish(PATIENCE));
        (f, counter)
    });
    let (mut now, mut began) = (1, Instant::now());
    let mut work = |[first, second, _]: &mut [(Partition, Counter); 3]| {
        // Each begins in the middle of the other one's batch.
        let is_free = began.elapsed() > Duration::from_millis(10);
        for ((f, counter), other) in [(first, second.0.is_stored()), (second, false)] {
            now += 1000;
            if f.is_stored() && (is_free || other) {
                counter.add(1);
                began = Instant::now();
                f.step(now);
                break;
            }
            f.step(now);
        }
        std::thread::sleep(Duration::from_micros(20));
    };
    for _ in 0..1000 {
        work(&mut all);
    }
    setting.troubles.forgets.store(true, Ordering::Relaxed);
    let passed = await_forgotten(&setting, 2, || work(&mut all));
    assert!(passed < Duration::from_secs(3), "{passed:?}");
    let (rests, _) = &mut all[2];
    assert!(rests.finish(PATIENCE) && rests.figures().rewritten == 1);
}
