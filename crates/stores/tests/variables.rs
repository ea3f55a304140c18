//! Variables on a store in memory: their content after a restart, against models.

#[path = "variables/collections.rs"]
mod collections;

use flowkeep_stores::batch::Batch;
use flowkeep_stores::driver::Swapped;
use flowkeep_stores::drivers::memory::Memory;
use flowkeep_stores::{
    Consistency, Failure, Options, Outcome, Partition, PartitionName, Refusal, Store, VariableName, Version,
};
use std::time::Duration;
use variables::OpenError;

const PATIENCE: Duration = Duration::from_secs(20);

/// Opens the partition `f` on a store, as a process does when it starts.
fn opened<R>(memory: &Memory, work: impl FnOnce(&mut Partition) -> R) -> R {
    let (store, agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
    let mut partition = Partition::open(&store, PartitionName::new("f", "m", 0).unwrap()).unwrap();
    let done = work(&mut partition);
    assert!(partition.finish(PATIENCE));
    drop(partition);
    assert_eq!(agency.end(), 0);
    done
}

fn small() -> Options {
    Options {
        capacity: 16,
        consistency: Consistency::THROUGH,
    }
}

#[test]
fn every_variable_is_there_after_a_restart() {
    let memory = Memory::default();
    opened(&memory, |f| {
        assert_eq!(f.counter("n", small()).unwrap().add(3), 3);
        assert_eq!(f.value("v", small()).unwrap().set("x".to_owned()), Ok(None));
        let list = f.list("l", small()).unwrap();
        for n in 0..4u32 {
            list.push_front(n).unwrap();
        }
        assert_eq!(list.remove(1), Ok(Some(2)));
        f.set("s", small()).unwrap().insert(&7u8).unwrap();
        f.map("m", small())
            .unwrap()
            .insert(&(1u8, 2u16), Some(3i8))
            .unwrap();
        f.counter_map("c", small())
            .unwrap()
            .add(&"k".to_owned(), -2)
            .unwrap();
        f.counter(
            "here",
            Options {
                consistency: Consistency::Local,
                ..small()
            },
        )
        .unwrap()
        .add(5);
    });
    opened(&memory, |f| {
        let counter = f.counter("n", small()).unwrap();
        assert_eq!((counter.get(), counter.add(1)), (3, 4));
        assert_eq!(
            f.value::<String>("v", small()).unwrap().get().as_deref(),
            Some("x")
        );
        let list = f.list::<u32>("l", small()).unwrap();
        let mut all = Vec::new();
        list.for_each(|n| all.push(*n));
        assert_eq!(all, [3, 1, 0]);
        assert!(f.set::<u8>("s", small()).unwrap().contains(&7));
        assert_eq!(f.map("m", small()).unwrap().get(&(1u8, 2u16)), Some(Some(3i8)));
        assert_eq!(f.counter_map("c", small()).unwrap().get(&"k".to_owned()), -2);
        assert_eq!(f.counter("here", small()).unwrap().get(), 0);
        // The same name of another kind is another variable.
        assert!(f.map::<u8, u8>("n", small()).unwrap().is_empty());
    });
}

#[test]
fn a_thousand_additions_are_one_write() {
    opened(&Memory::default(), |f| {
        let options = Options {
            capacity: 16,
            consistency: Consistency::Behind {
                interval_ns: 1_000_000,
                bound_ns: 1_000_000_000,
            },
        };
        let counter = f.counter("n", options).unwrap();
        let counts = f.counter_map::<u8>("c", options).unwrap();
        for round in 1..=3u64 {
            for _ in 0..1000 {
                counter.add(1);
                counts.add(&7, 1).unwrap();
            }
            f.step(round * 10_000_000);
            let figures = f.figures();
            // A change of each variable, and both in one batch.
            assert_eq!((figures.batches, figures.changes), (round, 2 * round));
            assert!(f.finish(PATIENCE));
        }
        assert_eq!((f.figures().batches, f.figures().changes), (3, 6));
        assert_eq!((counter.get(), counts.get(&7)), (3000, 3000));
    });
}

/// A timer's removal and its effect: a process that is killed between two batches would have one
/// without the other.
#[test]
fn what_is_changed_in_one_step_is_in_one_batch() {
    opened(&Memory::default(), |f| {
        let options = Options {
            capacity: 16,
            consistency: Consistency::Behind {
                interval_ns: 1_000_000,
                bound_ns: 1_000_000_000,
            },
        };
        let timers = f.timers::<u8, ()>("t", options).unwrap();
        let fired = f.counter("fired", options).unwrap();
        let stored = |f: &mut Partition, at: u64| {
            f.step(at);
            let began = std::time::Instant::now();
            while !f.is_stored() && began.elapsed() < PATIENCE {
                f.step(at);
            }
            (f.figures().batches, f.figures().changes)
        };
        timers.arm(&1, 0, ()).unwrap();
        assert_eq!(stored(f, 10_000_000), (1, 1));
        fired.add(1);
        assert_eq!(stored(f, 12_000_000), (2, 2));
        timers.arm(&2, u64::MAX, ()).unwrap();
        assert_eq!(stored(f, 12_500_000), (3, 3));
        // The timers' interval is not over, and the count's is.
        assert_eq!((timers.fire(1), fired.add(1)), (Some((1, ())), 2));
        assert_eq!(stored(f, 13_200_000), (4, 5));
    });
}

#[test]
fn what_cannot_be_opened_is_told_so() {
    let memory = Memory::default();
    opened(&memory, |f| {
        let map = f.map("m", small()).unwrap();
        for key in 0..16u8 {
            map.insert(&key, "long".to_owned()).unwrap();
        }
        assert_eq!(map.insert(&16, String::new()), Err(Refusal::Full));
        map.for_each(|_, _| assert_eq!(map.remove(&3), Err(Refusal::Busy)));
        let again = f.map::<u8, String>("m", small()).err().unwrap();
        assert_eq!(
            again.to_string(),
            "f@m@0@Map@m is opened twice; open it once, or give one of the two another name"
        );
    });
    opened(&memory, |f| {
        let other = f.map::<u8, u64>("m", small()).err().unwrap();
        assert!(matches!(other, OpenError::Other(..)), "{other}");
        let less = Options {
            capacity: 3,
            ..small()
        };
        let full = f.map::<u8, String>("m", less).err().unwrap();
        assert_eq!(
            full.to_string(),
            "f@m@0@Map@m has 16 elements at the store and a capacity of 3; give it a larger one"
        );
        // Neither has taken the place of a variable that can be.
        assert_eq!(f.map::<u8, String>("m", small()).unwrap().len(), 16);
        f.counter("n", small()).unwrap().add(1);
    });
    opened(&memory, |f| assert_eq!(f.counter("n", small()).unwrap().get(), 1));
}

#[test]
fn an_identity_that_is_taken_over_fences_the_earlier_one() {
    let memory = Memory::default();
    let (store, _agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
    let mut first = Partition::open(&store, PartitionName::new("f", "m", 0).unwrap()).unwrap();
    let counter = first.counter("n", small()).unwrap();
    counter.add(1);
    assert!(first.finish(PATIENCE));
    let count = opened(&memory, |f| f.counter("n", small()).unwrap().add(10));
    assert_eq!(count, 11);
    counter.add(100);
    let ticket = counter.stored();
    assert!(!first.finish(PATIENCE));
    assert!(first.figures().fenced && ticket.state() == Some(Err(flowkeep_stores::Fenced)));
    assert_eq!(opened(&memory, |f| f.counter("n", small()).unwrap().get()), 11);
}

#[test]
fn ages_are_of_what_was_stored_though_there_is_always_more() {
    let (store, _agency) = Store::start(Box::new(Memory::default()), PATIENCE, |_| ()).unwrap();
    let mut partition = Partition::open(&store, PartitionName::new("f", "m", 0).unwrap()).unwrap();
    let keys = 30_000;
    let options = Options {
        capacity: keys as usize,
        ..Options::default()
    };
    let counts = partition.counter_map::<u32>("c", options).unwrap();
    let ms = 1_000_000;
    for now in 1..=40 {
        for key in 0..keys {
            counts.add(&key, 1_000_000).unwrap();
        }
        partition.step(now * ms);
        // Two batches take them all, and there are always more by then.
        let began = std::time::Instant::now();
        while store.health().batches < partition.figures().batches {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    let ages = partition.figures().ages;
    assert!(
        !partition.is_stored() && ages.max_ns() >= ms && ages.max_ns() < 8 * ms,
        "{}",
        ages.max_ns()
    );
}

#[test]
fn what_is_taken_back_before_the_store_heard_of_it_is_waited_for_by_none() {
    let memory = Memory::default();
    opened(&memory, |f| {
        let (set, map) = (f.set("s", small()).unwrap(), f.map("m", small()).unwrap());
        set.insert(&1u8).unwrap();
        set.remove(&1).unwrap();
        let ticket = set.stored();
        f.step(1);
        assert_eq!(ticket.state(), Some(Ok(())));
        // Also where another variable has something to say.
        map.insert(&1u8, 1u8).unwrap();
        set.insert(&1u8).unwrap();
        set.remove(&1).unwrap();
    });
}

/// A worker that had nothing to do for long, and a worker that begins: their changes are not as old
/// as the worker's rest, or as its clock.
#[test]
fn a_change_is_dated_by_the_step_that_makes_it() {
    use flowkeep_stores::{Defaults, Stores};
    use variables::open::{Keeper, WorkerVariables};
    let (store, _agency) = Store::start(Box::<Memory>::default(), PATIENCE, |_| ()).unwrap();
    let consistency = Consistency::THROUGH;
    let stores = Stores {
        member: String::new(),
        has_clock: false,
        usual: Some(Defaults::new(store, consistency)),
        functions: Default::default(),
    };
    let mut variables = Keeper::of(Box::new(stores)).begin("f", 0);
    let counter = variables.counter("n", Options::default()).unwrap();
    let mut worker = WorkerVariables::default();
    worker.take(0, variables);
    let mut now = 19_000_000_000_000;
    for _ in 0..3 {
        now += 100_000_000_000;
        worker.begin(now);
        counter.add(1);
        worker.step(now + 1000);
        let (_, figures) = worker.figures()[0];
        assert!(!figures.late);
        assert!(worker.finish(PATIENCE));
    }
    let (_, figures) = worker.figures()[0];
    assert!(
        figures.ages.max_ns() < 90_000_000_000,
        "{:?}",
        figures.ages.max_ns()
    );
}

/// Steps a function's variables until the store has them.
fn finish_writing(worker: &mut variables::open::WorkerVariables, at: u64) {
    worker.begin(at);
    worker.step(at + 1000);
    assert!(worker.finish(PATIENCE));
}

/// Merged views of two runtimes, on demand: each has the counts of both, and the counts of a
/// runtime that has ended.
#[test]
fn a_merged_view_has_the_whole_function_as_instances_come_and_go() {
    use flowkeep_stores::{Defaults, Stores};
    use variables::merged::Answer;
    use variables::open::{Keeper, WorkerVariables};
    let (store, _agency) = Store::start(Box::<Memory>::default(), PATIENCE, |_| ()).unwrap();
    let on_demand = Defaults {
        merge_every: None,
        ..Defaults::new(store, Consistency::THROUGH)
    };
    let stores = Stores {
        member: String::new(),
        has_clock: false,
        usual: Some(on_demand),
        functions: Default::default(),
    };
    let keeper = Keeper::of(Box::new(stores));
    let begin = |runtime: u32| {
        let mut variables = keeper.begin("f", runtime);
        let counter = variables.counter("n", small()).unwrap();
        let counts = variables.counter_map::<u8>("c", small()).unwrap();
        let (whole, wholes) = (
            variables.merged_counter("n").unwrap(),
            variables.merged_counter_map::<u8>("c").unwrap(),
        );
        let mut worker = WorkerVariables::default();
        worker.take(0, variables);
        (worker, counter, counts, whole, wholes)
    };
    let answered = |asked: &dyn Answer| {
        let until = std::time::Instant::now() + PATIENCE;
        while asked.state().is_none() {
            assert!(std::time::Instant::now() < until, "no answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        asked.state().unwrap()
    };
    let (mut first, n, c, whole, wholes) = begin(0);
    // Nothing was asked for.
    assert_eq!((whole.get(), whole.age()), (None, None));
    let (mut second, other_n, other_c, other_whole, _) = begin(1);
    n.add(3);
    other_n.add(4);
    c.add(&1, 5).unwrap();
    other_c.add(&1, 6).unwrap();
    other_c.add(&2, 7).unwrap();
    finish_writing(&mut first, 1_000_000);
    finish_writing(&mut second, 1_000_000);
    for view in [&whole, &other_whole] {
        assert_eq!(answered(&view.ask()), Ok(()));
        assert_eq!(view.get(), Some(7));
        assert!(view.age().unwrap() < PATIENCE);
    }
    assert_eq!(answered(&wholes.ask()), Ok(()));
    let sums = wholes.get().unwrap();
    assert_eq!((sums[&1], sums[&2], sums.len()), (11, 7, 2));
    // One runtime ends, another comes.
    drop((second, other_n, other_c, other_whole));
    let (mut third, third_n, _, _, _) = begin(7);
    third_n.add(100);
    finish_writing(&mut third, 1_000_000);
    assert_eq!(whole.get(), Some(7), "nothing was asked for");
    assert_eq!(answered(&whole.ask()), Ok(()));
    assert_eq!(whole.get(), Some(107));
    // A runtime that comes again finds its part, and adds nothing twice.
    let (_second, other_n, _, _, _) = begin(1);
    assert_eq!(other_n.get(), 4);
    assert_eq!(answered(&whole.ask()), Ok(()));
    assert_eq!(whole.get(), Some(107));
}

/// On a cycle; a variable that has another type at the store is answered with an error.
#[test]
fn a_merged_view_is_made_on_its_cycle_and_refuses_another_type() {
    use flowkeep_stores::{Defaults, Stores};
    use variables::merged::{Answer, Unmerged};
    use variables::open::{Keeper, WorkerVariables};
    let (store, _agency) = Store::start(Box::<Memory>::default(), PATIENCE, |_| ()).unwrap();
    let often = Defaults {
        merge_every: Some(Duration::from_millis(5)),
        ..Defaults::new(store, Consistency::THROUGH)
    };
    let stores = Stores {
        member: String::new(),
        has_clock: false,
        usual: Some(often),
        functions: Default::default(),
    };
    let mut variables = Keeper::of(Box::new(stores)).begin("f", 0);
    let counter = variables.counter("n", small()).unwrap();
    let names = variables.set::<String>("s", small()).unwrap();
    let whole = variables.merged_counter("n").unwrap();
    let wrong = variables.merged_set::<u64>("s").unwrap();
    let mut worker = WorkerVariables::default();
    worker.take(0, variables);
    names.insert(&"x".repeat(3)).unwrap();
    for sum in 1..=3 {
        counter.add(1);
        finish_writing(&mut worker, sum * 1_000_000);
        let until = std::time::Instant::now() + PATIENCE;
        while whole.get() != Some(sum as i64) {
            assert!(std::time::Instant::now() < until, "{:?}", whole.get());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let asked = wrong.ask();
    let until = std::time::Instant::now() + PATIENCE;
    while asked.state().is_none() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((asked.state(), wrong.get()), (Some(Err(Unmerged)), None));
}

/// A store in memory that takes no batch while it is stalled.
struct Stalling(Memory, std::sync::Arc<std::sync::atomic::AtomicBool>);

impl flowkeep_stores::Driver for Stalling {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        self.0.claim(partition, at_least)
    }
    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        self.0.version(partition)
    }
    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        self.0.restore(partition, version)
    }
    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        while self.1.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.write(batches, outcomes)
    }
    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        self.0.load(variable, element)
    }
    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        self.0.partitions(function)
    }
    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        self.0.variables()
    }
    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.0.record(name)
    }
    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.0.records()
    }
    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        self.0.swap(name, expected, new)
    }
}

/// A store that stalls is told once, though its agent waits for it; so is its end. Figures say how
/// long changes wait meanwhile.
#[test]
fn a_store_that_is_late_is_told_and_its_interval_is_as_long_as_it_has_become() {
    use flowkeep_stores::Report;
    use std::sync::atomic::{AtomicBool, Ordering};
    const MS: u64 = 1_000_000;
    let stalls = std::sync::Arc::new(AtomicBool::new(false));
    let driver = Stalling(Memory::default(), std::sync::Arc::clone(&stalls));
    let (told, reports) = std::sync::mpsc::channel();
    let report = move |report| drop(told.send(report));
    let (store, _agency) = Store::start(Box::new(driver), PATIENCE, report).unwrap();
    let partition = PartitionName::new("f", "m", 0).unwrap();
    let mut f = Partition::open(&store, partition.clone()).unwrap();
    let behind = Options {
        capacity: 16,
        consistency: Consistency::Behind {
            interval_ns: MS,
            bound_ns: 100 * MS,
        },
    };
    let counter = f.counter("n", behind).unwrap();
    // Changes that are rare are collected no longer than the interval.
    for round in 1..=3 {
        f.step(round * 1000 * MS);
        counter.add(1);
        f.step(round * 1000 * MS);
        assert!(f.finish(PATIENCE));
    }
    let figures = f.figures();
    assert!(figures.interval_ns <= MS, "{}", figures.interval_ns);
    assert_eq!((figures.interval_set_ns, figures.bound_ns), (MS, 100 * MS));
    assert!(!figures.late && figures.oldest_ns == 0);
    stalls.store(true, Ordering::Relaxed);
    for step in 0..200 {
        f.step((5000 + step) * MS);
        counter.add(1);
        f.step((5000 + step) * MS);
    }
    let figures = f.figures();
    assert!(figures.late && figures.oldest_ns > 190 * MS, "{figures:?}");
    // Two batches are out; the rest is being collected.
    assert!(figures.interval_ns > 150 * MS, "{figures:?}");
    match reports.recv_timeout(PATIENCE).unwrap() {
        Report::Late {
            partition: of,
            age,
            bound,
        } => assert!(of == partition && bound == Duration::from_nanos(100 * MS) && age > bound),
        other => panic!("{other:?}"),
    }
    stalls.store(false, Ordering::Relaxed);
    assert!(f.finish(PATIENCE));
    let in_time = reports.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(in_time, Report::InTime(of, _) if of == partition));
    // The stretched interval is that of the last batch until the next.
    f.step(9000 * MS);
    counter.add(1);
    f.step(9000 * MS);
    assert!(f.figures().interval_ns <= MS);
    assert!(f.finish(PATIENCE));
    assert!(reports.try_recv().is_err());
}

/// Steps what a call of a function does until it has a lock.
fn has_lock(wait: &variables::locks::Wait) -> variables::locks::Held {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(held) = wait.take() {
            return held;
        }
        assert!(std::time::Instant::now() < until, "no lock");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn put(held: &variables::locks::Held, value: &[u8]) -> Result<(), variables::NotHeld> {
    let number = held.begin_put(value.to_vec()).ok_or(variables::NotHeld::Lost)?;
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(state) = held.put_state(number) {
            return state;
        }
        assert!(std::time::Instant::now() < until, "no answer");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts in the value of a lock, as runtimes on threads of their own: no count is lost. A holder
/// that dies with the lock frees it by its lease, and its later writes are refused.
#[test]
fn functions_have_a_lock_in_turn_and_a_holder_that_died_frees_it() {
    let memory = Memory::default();
    let open = |store: &Store, runtime: u32, lease: Duration| {
        let mut partition = Partition::open(store, PartitionName::new("f", "m", runtime).unwrap()).unwrap();
        let lock = partition.lock("l", lease).unwrap();
        (partition, lock)
    };
    let count =
        |held: &variables::locks::Held| held.read(|value| value.first().copied().unwrap_or(0)).unwrap();
    let (store, _agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
    std::thread::scope(|scope| {
        for runtime in 0..3 {
            let (store, open, count) = (&store, &open, &count);
            scope.spawn(move || {
                let (_partition, lock) = open(store, runtime, Duration::from_secs(60));
                for _ in 0..5 {
                    let wait = lock.wait().unwrap();
                    let held = has_lock(&wait);
                    let next = count(&held) + 1;
                    std::thread::sleep(Duration::from_millis(2));
                    put(&held, &[next]).unwrap();
                }
            });
        }
    });
    // A machine that pauses for as long ends leases that it should not.
    let lease = Duration::from_secs(3);
    // As another process that dies with it: its agent ends, and nothing is freed.
    let (other, agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
    let (_partition, lock) = open(&other, 7, lease);
    let wait = lock.wait().unwrap();
    let dead = has_lock(&wait);
    assert_eq!(count(&dead), 15);
    agency.end();
    let ended = std::time::Instant::now();
    let (_partition, lock) = open(&store, 8, lease);
    let wait = lock.wait().unwrap();
    let held = has_lock(&wait);
    assert!(ended.elapsed() >= lease, "{:?}", ended.elapsed());
    assert!(held.token() > dead.token() && count(&held) == 15);
    // By its own clock it has lost it before.
    assert_eq!(
        (dead.token(), put(&dead, &[99])),
        (None, Err(variables::NotHeld::Lost))
    );
    put(&held, &[16]).unwrap();
    // The lease is renewed for as long as the lock is held.
    std::thread::sleep(2 * lease);
    put(&held, &[17]).unwrap();
    let late = store.write_guarded("f@l", 1, &[99]).unwrap();
    assert!(late.is_err() && store.read_guarded("f@l").unwrap() == Some(vec![17]));
}

/// With a view: a removed runtime's lock is void at once, however long its lease; one of a later
/// view than ours is not.
#[test]
fn a_removed_runtimes_lock_is_void_at_once() {
    use flowkeep_stores::{Defaults, Locks, Stores, Views};
    use std::sync::Arc;
    use variables::open::Keeper;
    let memory = Memory::default();
    let process = |views: &Arc<Views>| {
        let (store, agency) = Store::start(Box::new(memory.clone()), PATIENCE, |_| ()).unwrap();
        let defaults = Defaults {
            locks: Locks::of(&store, Some(Arc::clone(views))),
            ..Defaults::new(store.clone(), Consistency::THROUGH)
        };
        let stores = Stores {
            member: "m".to_owned(),
            has_clock: false,
            usual: Some(defaults),
            functions: Default::default(),
        };
        (store, agency, Keeper::of(Box::new(stores)))
    };
    let long = Duration::from_secs(3600);
    let (first, second) = (Arc::<Views>::default(), Arc::<Views>::default());
    let (_store, _agency, keeper) = process(&first);
    let mut variables = keeper.begin("f", 0);
    let lock = variables.lock("l", long).unwrap();
    let wait = lock.wait().unwrap();
    // The runtime is in no view yet.
    assert!(wait.take().is_none());
    std::thread::sleep(Duration::from_millis(200));
    assert!(wait.take().is_none());
    second.tell(4, [(1, 60)].into_iter(), 60);
    first.tell(5, [(0, 50), (1, 60)].into_iter(), 50);
    let removed = has_lock(&wait);
    let (_other_store, _other_agency, keeper) = process(&second);
    let mut variables = keeper.begin("f", 1);
    let lock = variables.lock("l", long).unwrap();
    let wait = lock.wait().unwrap();
    assert!(wait.take().is_none());
    std::thread::sleep(Duration::from_millis(300));
    // The other took it in a view that this one does not know.
    assert!(wait.take().is_none());
    second.tell(5, [(0, 50), (1, 60)].into_iter(), 60);
    std::thread::sleep(Duration::from_millis(300));
    assert!(wait.take().is_none());
    // Another life of the runtime is in the next.
    second.tell(6, [(0, 51), (1, 60)].into_iter(), 60);
    let held = has_lock(&wait);
    assert!(held.token() > removed.token());
    put(&held, &[1]).unwrap();
    // The removed holder does not know of the view, and its lease is long: its token tells.
    assert!(removed.token().is_some());
    assert_eq!(put(&removed, &[2]), Err(variables::NotHeld::Lost));
}
