//! Once warm, the packet path allocates nothing: calls, steps, batches and acknowledgements; while
//! the store is down, too.

use flowkeep_stores::batch::Batch;
use flowkeep_stores::driver::Swapped;
use flowkeep_stores::drivers::memory::Memory;
use flowkeep_stores::{
    Consistency, Driver, Failure, Options, Outcome, Partition, PartitionName, Store, VariableName, Version,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A store that is down while its flag is set.
struct Downable(Memory, Arc<AtomicBool>);

impl Downable {
    fn up(&mut self) -> Result<&mut Memory, Failure> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(Failure::new("memory:", "it is down", "wait")),
            false => Ok(&mut self.0),
        }
    }
}

impl Driver for Downable {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        self.up()?.claim(partition, at_least)
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        self.up()?.version(partition)
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        self.up()?.restore(partition, version)
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        self.up()?.write(batches, outcomes)
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        self.up()?.load(variable, element)
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        self.up()?.partitions(function)
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        self.up()?.variables()
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.up()?.record(name)
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.up()?.records()
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        self.up()?.swap(name, expected, new)
    }
}

#[global_allocator]
static ALLOCATOR: testkit::CountingAllocator = testkit::CountingAllocator;

#[test]
fn changes_allocate_nothing_once_warm() {
    let down = Arc::new(AtomicBool::new(false));
    let driver = Box::new(Downable(Memory::default(), Arc::clone(&down)));
    let (store, _agency) = Store::start(driver, Duration::from_secs(20), |_| ()).unwrap();
    let mut partition = Partition::open(&store, PartitionName::new("f", "", 0).unwrap()).unwrap();
    let options = Options {
        capacity: 256,
        consistency: Consistency::Behind {
            interval_ns: 1000,
            bound_ns: 1_000_000_000,
        },
    };
    let counter = partition.counter("n", options).unwrap();
    let value = partition.value::<[u64; 2]>("v", options).unwrap();
    let counts = partition.counter_map::<u64>("c", options).unwrap();
    let map = partition.map::<(u32, u16), u64>("m", options).unwrap();
    let set = partition.set::<u64>("s", options).unwrap();
    let list = partition.list::<u64>("l", options).unwrap();
    let mut now = 0;
    let mut run = |packets: u64| {
        for n in 0..packets {
            now += 100;
            counter.add(1);
            value.set([n, now]).unwrap();
            // Keys that come and go, until nothing is where it was at first.
            counts.add(&(now % 7919), 1).unwrap_or_default();
            counts.remove(&((now + 4000) % 7919)).unwrap();
            let _ = map.insert(&(n as u32, 7), n);
            map.remove(&((n as u32).wrapping_sub(100), 7)).unwrap();
            let _ = set.insert(&now);
            set.remove(&now.wrapping_sub(5000)).unwrap();
            let _ = list.push_back(n);
            if list.len() > 50 {
                list.pop_front().unwrap();
            }
            partition.step(now);
        }
        partition.figures()
    };
    run(50_000);
    let before = run(0).batches;
    let count = testkit::allocations(|| {
        run(100_000);
        // The agent has a processor when it gets one.
        while run(1_000).batches <= before + 10 {}
    });
    assert_eq!(count, 0);
    down.store(true, Ordering::Relaxed);
    while !store.health().failing {
        run(1000);
        std::thread::sleep(Duration::from_millis(1));
    }
    let count = testkit::allocations(|| {
        run(100_000);
    });
    assert_eq!(count, 0);
    assert!(store.health().failing);
    // Waiting changes go out when the store is back, without a piece of memory either.
    let before = run(0).batches;
    down.store(false, Ordering::Relaxed);
    while store.health().failing {
        std::thread::sleep(Duration::from_millis(1));
    }
    let count = testkit::allocations(|| {
        run(100_000);
    });
    assert_eq!(count, 0);
    assert!(run(0).batches > before);
}
