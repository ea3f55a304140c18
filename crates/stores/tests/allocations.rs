//! Once warm, the packet path allocates nothing: calls, steps, batches and acknowledgements.

use flowkeep_stores::drivers::memory::Memory;
use flowkeep_stores::{Consistency, Options, Partition, PartitionName, Store};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: testkit::CountingAllocator = testkit::CountingAllocator;

#[test]
fn changes_allocate_nothing_once_warm() {
    let (store, _agency) =
        Store::start(Box::new(Memory::default()), Duration::from_secs(20), |_| ()).unwrap();
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
    });
    assert_eq!(count, 0);
    assert!(run(0).batches > before + 10);
}
