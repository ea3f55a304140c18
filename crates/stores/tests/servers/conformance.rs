//! The duties of any driver, tried on each.
//!
//! A driver is given as a way to open it, again and again, on the same data. To try another one,
//! add it to [`everywhere`]. The same calls go to the driver and to `memory:`, the model; the
//! answers of both are compared.

use crate::apart::apart;
use crate::cassandra;
use crate::redis::Server;
use crate::redis_cluster::Cluster;
use flowkeep_stores::batch::KeptBatch;
use flowkeep_stores::driver::Swapped;
use flowkeep_stores::drivers::memory::Memory;
use flowkeep_stores::drivers::redis::Redis;
use flowkeep_stores::{
    Consistency, Driver, Map, Mirror, Options, Outcome, Partition, PartitionName, Store, Version,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Opens a store; each opening is a new connection to the same data.
pub type Open<'o> = &'o dyn Fn() -> Box<dyn Driver>;

/// Runs a check on each driver. Prints which could not be had.
pub fn everywhere(check: impl Fn(&str, Open<'_>)) {
    let memory = Memory::default();
    check("memory", &|| Box::new(memory.clone()));
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("redb:{}", folder.path().join("store").display());
    check("redb", &|| flowkeep_stores::driver_of(&uri).unwrap());
    for program in ["redis-server", "valkey-server"] {
        match Server::start_program(program, &[]) {
            Ok(server) => check(program, &|| flowkeep_stores::driver_of(&server.uri()).unwrap()),
            Err(why) => println!("not run: {why}"),
        }
    }
    match Server::start(&[]) {
        Ok(server) => {
            let memory = Memory::default();
            check("mirror", &|| mirrored(&memory, &server.uri()));
        }
        Err(why) => println!("not run: mirror: {why}"),
    }
    match Server::start(&[]) {
        Ok(server) => check("apart", &|| apart(&server.uri())),
        Err(why) => println!("not run: apart: {why}"),
    }
    match Cluster::start(&[]) {
        Ok(cluster) => check("cluster", &|| flowkeep_stores::driver_of(&cluster.uri()).unwrap()),
        Err(why) => println!("not run: {why}"),
    }
    match cassandra::shared() {
        Ok(node) => {
            let uri = node.uri();
            check("cassandra", &|| flowkeep_stores::driver_of(&uri).unwrap());
            let over_tls = node.uri_over_tls();
            // As the program has it.
            check("cassandra over TLS, apart", &|| apart(&over_tls));
        }
        Err(why) => println!("not run: cassandra: {why}"),
    }
}

/// Memory, and a server as its mirror. Neither fails, so both have all of it, always.
fn mirrored(memory: &Memory, uri: &str) -> Box<dyn Driver> {
    let first = ("memory:".to_owned(), Box::new(memory.clone()) as Box<dyn Driver>);
    let second = Box::new(Redis::new(uri, PATIENCE).unwrap()) as Box<dyn Driver>;
    let second = (uri.to_owned(), second);
    let (mirror, _watch) = Mirror::start(first, second, |told| panic!("{told:?}")).unwrap();
    Box::new(mirror)
}

pub fn name(function: &str, runtime: u32) -> PartitionName {
    PartitionName::new(function, "m", runtime).unwrap()
}

pub fn through(capacity: usize) -> Options {
    Options {
        capacity,
        consistency: Consistency::THROUGH,
    }
}

/// Opens a partition as a process does when it starts; all is stored when this is over.
pub fn process<R>(driver: Box<dyn Driver>, name: PartitionName, work: impl FnOnce(&mut Partition) -> R) -> R {
    let (store, agency) = Store::start(driver, PATIENCE, |_| ()).unwrap();
    let mut partition = Partition::open(&store, name).unwrap();
    let done = work(&mut partition);
    assert!(partition.finish(PATIENCE), "{:?}", store.health());
    drop(partition);
    assert_eq!(agency.end(), 0);
    done
}

pub fn all<K: flowkeep_stores::Key + Ord, V: flowkeep_stores::Stored>(map: &Map<K, V>) -> BTreeMap<K, V> {
    let mut all = BTreeMap::new();
    map.for_each(|key, value| {
        all.insert(key.clone(), value.clone());
    });
    all
}

/// A driver that does each call, and then says in some cases that it has not; and that does some
/// calls again later, as a network does that keeps bytes of a connection that is given up.
struct Ambiguous {
    inner: Box<dyn Driver>,
    random: u64,
    /// Batches of an earlier call that the network keeps.
    kept: Vec<KeptBatch>,
}

impl Ambiguous {
    fn fails(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.is_multiple_of(3)
    }

    fn lost() -> flowkeep_stores::Failure {
        flowkeep_stores::Failure::new("test", "the answer was lost", "none")
    }
}

impl Driver for Ambiguous {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, flowkeep_stores::Failure> {
        self.inner.claim(partition, at_least)
    }
    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, flowkeep_stores::Failure> {
        self.inner.version(partition)
    }
    fn restore(
        &mut self,
        partition: &PartitionName,
        version: Version,
    ) -> Result<Outcome, flowkeep_stores::Failure> {
        self.inner.restore(partition, version)
    }
    fn write(
        &mut self,
        batches: &[flowkeep_stores::batch::Batch<'_>],
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), flowkeep_stores::Failure> {
        let mut said = Vec::new();
        if self.fails() {
            // Only some of them arrive.
            let some = batches.get(..batches.len() / 2).unwrap_or_default();
            self.inner.write(some, &mut said)?;
            return Err(Self::lost());
        }
        self.inner.write(batches, &mut said)?;
        if self.fails() {
            return Err(Self::lost());
        }
        // An earlier call's batches arrive once more: they must change nothing.
        let kept: Vec<_> = self.kept.iter().map(KeptBatch::batch).collect();
        self.inner.write(&kept, &mut Vec::new())?;
        self.kept = batches.iter().map(KeptBatch::of).collect();
        outcomes.append(&mut said);
        Ok(())
    }
    fn load(
        &mut self,
        variable: &flowkeep_stores::VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), flowkeep_stores::Failure> {
        self.inner.load(variable, element)
    }
    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, flowkeep_stores::Failure> {
        self.inner.partitions(function)
    }
    fn variables(&mut self) -> Result<Vec<flowkeep_stores::VariableName>, flowkeep_stores::Failure> {
        self.inner.variables()
    }
    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, flowkeep_stores::Failure> {
        self.inner.record(name)
    }
    fn records(&mut self) -> Result<Vec<String>, flowkeep_stores::Failure> {
        self.inner.records()
    }
    fn swap(
        &mut self,
        name: &str,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swapped, flowkeep_stores::Failure> {
        self.inner.swap(name, expected, new)
    }
}

#[test]
fn ambiguous_batches_count_once() {
    everywhere(|driver, open| {
        let ambiguous = Ambiguous {
            inner: open(),
            random: 0x9e37_79b9_7f4a_7c15,
            kept: Vec::new(),
        };
        let (store, agency) = Store::start(Box::new(ambiguous), PATIENCE, |_| ()).unwrap();
        let mut partition = Partition::open(&store, name("ambiguous", 0)).unwrap();
        let counter = partition.counter("n", through(1)).unwrap();
        let map = partition.counter_map::<u16>("c", through(64)).unwrap();
        for n in 0..3000u16 {
            counter.add(1);
            map.add(&(n % 50), 1).unwrap();
            partition.step(u64::from(n));
            if n % 100 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        assert!(partition.finish(PATIENCE), "{driver}");
        assert!(store.health().failures > 0, "{driver}");
        drop(partition);
        agency.end();
        process(open(), name("ambiguous", 0), |partition| {
            assert_eq!(
                partition.counter("n", through(1)).unwrap().get(),
                3000,
                "{driver}"
            );
            let map = partition.counter_map::<u16>("c", through(64)).unwrap();
            let mut sum = 0;
            map.for_each(|_, count| {
                assert_eq!(count, 60, "{driver}");
                sum += count;
            });
            assert_eq!(sum, 3000);
        });
    });
}

#[test]
fn what_is_written_behind_a_clear_of_the_same_batch_is_there() {
    everywhere(|driver, open| {
        process(open(), name("cleared", 0), |partition| {
            let map = partition.map::<u8, u8>("m", through(16)).unwrap();
            for key in 0..9 {
                map.insert(&key, 1).unwrap();
            }
            assert!(partition.finish(PATIENCE), "{driver}");
            for round in 2..5 {
                map.clear().unwrap();
                map.insert(&1, round).unwrap();
                map.insert(&(10 + round), round).unwrap();
                map.insert(&3, round).unwrap();
                map.remove(&3).unwrap();
                assert!(partition.finish(PATIENCE), "{driver}");
            }
        });
        process(open(), name("cleared", 0), |partition| {
            let map = partition.map::<u8, u8>("m", through(16)).unwrap();
            assert_eq!(all(&map), BTreeMap::from([(1, 4), (14, 4)]), "{driver}");
            map.insert(&3, 5).unwrap();
        });
        process(open(), name("cleared", 0), |partition| {
            let map = partition.map::<u8, u8>("m", through(16)).unwrap();
            assert_eq!(all(&map), BTreeMap::from([(1, 4), (3, 5), (14, 4)]), "{driver}");
        });
    });
}

#[test]
fn an_earlier_writer_changes_nothing() {
    everywhere(|driver, open| {
        let (store, _agency) = Store::start(open(), PATIENCE, |_| ()).unwrap();
        let mut first = Partition::open(&store, name("fenced", 0)).unwrap();
        let counter = first.counter("n", through(1)).unwrap();
        counter.add(1);
        assert!(first.finish(PATIENCE));
        let mut second = Partition::open(&store, name("fenced", 0)).unwrap();
        let later = second.counter("n", through(1)).unwrap();
        counter.add(100);
        assert!(!first.finish(PATIENCE) && first.figures().fenced, "{driver}");
        later.add(10);
        assert!(second.finish(PATIENCE), "{driver}");
        let mut third = Partition::open(&store, name("fenced", 0)).unwrap();
        assert_eq!(third.counter("n", through(1)).unwrap().get(), 11, "{driver}");
    });
}

#[test]
fn partitions_are_each_their_own_at_the_same_time() {
    everywhere(|driver, open| {
        let (store, agency) = Store::start(open(), PATIENCE, |_| ()).unwrap();
        std::thread::scope(|scope| {
            for runtime in 0..4u32 {
                let store = store.clone();
                scope.spawn(move || {
                    let mut partition = Partition::open(&store, name("many", runtime)).unwrap();
                    let map = partition.counter_map::<u32>("c", through(2000)).unwrap();
                    for n in 0..6000u32 {
                        map.add(&(n % 1500), i64::from(runtime) + 1).unwrap();
                        partition.step(u64::from(n));
                    }
                    assert!(partition.finish(PATIENCE));
                });
            }
        });
        agency.end();
        let mut driver_itself = open();
        let mut found = driver_itself.partitions("many").unwrap();
        found.sort();
        assert_eq!(
            found,
            (0..4).map(|runtime| name("many", runtime)).collect::<Vec<_>>()
        );
        assert_eq!(driver_itself.partitions("man").unwrap(), []);
        drop(driver_itself);
        for runtime in 0..4u32 {
            process(open(), name("many", runtime), |partition| {
                let map = partition.counter_map::<u32>("c", through(2000)).unwrap();
                assert_eq!(map.len(), 1500, "{driver}");
                map.for_each(|_, count| assert_eq!(count, 4 * (i64::from(runtime) + 1), "{driver}"));
            });
        }
    });
}

#[test]
fn a_record_is_swapped_if_it_is_as_expected() {
    everywhere(|driver, open| {
        let mut store = open();
        let odd: &[u8] = b"\x00\r\n$-1";
        type Bytes<'b> = Option<&'b [u8]>;
        let steps: [(Bytes<'_>, Bytes<'_>, Swapped); 7] = [
            (None, None, Swapped::Done),
            (Some(b""), Some(odd), Swapped::Other(None)),
            (None, Some(odd), Swapped::Done),
            (None, Some(b"x"), Swapped::Other(Some(odd.to_vec()))),
            (Some(odd), Some(b""), Swapped::Done),
            (Some(odd), None, Swapped::Other(Some(Vec::new()))),
            (Some(b""), None, Swapped::Done),
        ];
        for (expected, new, said) in steps {
            assert_eq!(
                store.swap("a@%{}", expected, new).unwrap(),
                said,
                "{driver} {expected:?}"
            );
        }
        assert_eq!(store.record("a@%{}").unwrap(), None, "{driver}");
        store.swap("a", None, Some(odd)).unwrap();
        assert_eq!(store.record("a").unwrap().as_deref(), Some(odd), "{driver}");
    });
}

#[test]
fn a_version_that_is_restored_goes_on_from_there() {
    everywhere(|driver, open| {
        let mut store = open();
        let partition = name("version", 0);
        assert_eq!(store.version(&partition).unwrap(), None, "{driver}");
        let first = store.claim(&partition, 1_900_000_000_000).unwrap();
        assert_eq!(
            (first, store.claim(&partition, 5).unwrap()),
            (1_900_000_000_000, first + 1)
        );
        let version = |epoch, sequence| Version { epoch, sequence };
        assert_eq!(
            store.version(&partition).unwrap(),
            Some(version(first + 1, 0)),
            "{driver}"
        );
        let mut restore = |epoch, sequence| store.restore(&partition, version(epoch, sequence)).unwrap();
        assert_eq!(restore(first, 7), Outcome::Fenced, "{driver}");
        assert_eq!(restore(first + 1, 7), Outcome::Stored, "{driver}");
        assert_eq!(restore(first + 1, 3), Outcome::Stored, "{driver}");
        assert_eq!(
            store.version(&partition).unwrap(),
            Some(version(first + 1, 7)),
            "{driver}"
        );
        // A store that has lost everything has the partition again, for merges too.
        let lost = name("lost", 3);
        assert_eq!(store.restore(&lost, version(5, 9)).unwrap(), Outcome::Stored);
        assert_eq!(store.partitions("lost").unwrap(), [lost], "{driver}");
    });
}

#[test]
fn what_a_store_has_is_listed_and_taken_over_whole() {
    use flowkeep_stores::migrate::{Migrated, inspect, migrate};
    everywhere(|driver, open| {
        for (function, runtime) in [("a@{}b", 0), ("a@{}b", 1), ("c", 0)] {
            process(open(), name(function, runtime), |partition| {
                let counts = partition.counter_map::<u32>("counts %", through(20_000)).unwrap();
                // More than a batch of them.
                for key in 0..20_000 {
                    counts.add(&key, i64::from(runtime) + 1).unwrap();
                }
                partition.counter("n", through(1)).unwrap().add(7);
                partition
                    .set::<u8>("gone", through(4))
                    .unwrap()
                    .insert(&1)
                    .unwrap();
                partition.step(1);
                partition.set::<u8>("never", through(4)).unwrap();
            });
            process(open(), name(function, runtime), |partition| {
                partition
                    .set::<u8>("gone", through(4))
                    .unwrap()
                    .remove(&1)
                    .unwrap();
            });
        }
        // Locks, and the values that they guard, are records.
        let records = [("lock/c@a%{b", &b"held"[..]), ("guarded/c@a", b"")];
        for (record, value) in records {
            open().swap(record, None, Some(value)).unwrap();
        }
        let mut listed = open().records().unwrap();
        listed.retain(|record| records.iter().any(|(name, _)| name == record));
        listed.sort();
        assert_eq!(listed, ["guarded/c@a", "lock/c@a%{b"], "{driver}");
        let found = inspect(open().as_mut()).unwrap();
        let named: Vec<(String, u64, Option<i64>)> = found
            .iter()
            .map(|found| (found.variable.to_string(), found.elements, found.sum))
            .collect();
        let expected = [
            ("a%40%7B%7Db@m@0@Counter@n", 1, 7),
            ("a%40%7B%7Db@m@0@CounterMap@counts%20%25", 20_000, 20_000),
            ("a%40%7B%7Db@m@1@Counter@n", 1, 7),
            ("a%40%7B%7Db@m@1@CounterMap@counts%20%25", 20_000, 40_000),
            ("c@m@0@Counter@n", 1, 7),
            ("c@m@0@CounterMap@counts%20%25", 20_000, 20_000),
        ];
        let expected = expected.map(|(name, elements, sum)| (name.to_owned(), elements, Some(sum)));
        assert_eq!(named, expected, "{driver}");
        // Into a store that has something else of one of them.
        let other = Memory::default();
        process(Box::new(other.clone()), name("c", 0), |partition| {
            partition
                .counter_map::<u32>("counts %", through(20_000))
                .unwrap()
                .add(&99_999, 1)
                .unwrap();
        });
        let migrated = migrate(open().as_mut(), &mut other.clone()).unwrap();
        let all = Migrated {
            partitions: 3,
            variables: 6,
            elements: 60_003,
        };
        assert_eq!(migrated, all, "{driver}");
        assert_eq!(inspect(&mut other.clone()).unwrap(), found, "{driver}");
        for (record, value) in records {
            assert_eq!(
                other.clone().record(record).unwrap().as_deref(),
                Some(value),
                "{driver}"
            );
        }
        // And back, over the elements there; a function goes on with it.
        migrate(&mut other.clone(), open().as_mut()).unwrap();
        assert_eq!(inspect(open().as_mut()).unwrap(), found, "{driver}");
        process(open(), name("c", 0), |partition| {
            assert_eq!(partition.counter("n", through(1)).unwrap().add(1), 8);
        });
    });
}

/// Tells a thread that all is over, however this one ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_follower_has_all_of_it_once_the_writer_has_ended() {
    use flowkeep_stores::migrate::{Follower, inspect};
    everywhere(|driver, open| {
        // A file is of one process, and of one opening.
        if driver == "redb" {
            return;
        }
        let (store, agency) = Store::start(open(), PATIENCE, |_| ()).unwrap();
        let over = AtomicBool::new(false);
        let target = Memory::default();
        std::thread::scope(|scope| {
            let (over, store) = (&over, store.clone());
            // A failure here ends the worker, too.
            let _over = Over(over);
            let worker = scope.spawn(move || {
                let mut partition = Partition::open(&store, name("followed", 0)).unwrap();
                let counts = partition.counter_map::<u32>("c", through(3000)).unwrap();
                let passing = partition.set::<u32>("gone", through(8)).unwrap();
                passing.insert(&1).unwrap();
                let mut n = 0u32;
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..50 {
                        counts.add(&(n % 2000), 1).unwrap();
                        n += 1;
                    }
                    partition.step(u64::from(n));
                    std::thread::sleep(Duration::from_micros(100));
                }
                passing.clear().unwrap();
                assert!(partition.finish(PATIENCE), "{driver}");
                n
            });
            let (mut from, mut to) = (open(), target.clone());
            let mut follower = Follower::new(from.as_mut(), &mut to);
            let (mut was_behind, began) = (0, std::time::Instant::now());
            while follower.pass().unwrap().copied.elements == 0 {
                assert!(began.elapsed() < PATIENCE, "{driver}: nothing is written");
            }
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(20));
                was_behind += follower.pass().unwrap().behind.len();
            }
            println!("{driver}: behind in {was_behind} of 5 passes");
            over.store(true, Ordering::Relaxed);
            let count = worker.join().unwrap();
            let last = follower.pass().unwrap();
            assert!(
                last.behind.is_empty() && last.taken.is_empty(),
                "{driver} {last:?}"
            );
            let found = inspect(&mut target.clone()).unwrap();
            assert_eq!(found, inspect(open().as_mut()).unwrap(), "{driver}");
            assert_eq!(
                (found.len(), found[0].sum),
                (1, Some(i64::from(count))),
                "{driver}"
            );
            // Nothing has changed: nothing is copied.
            assert_eq!(follower.pass().unwrap(), Default::default(), "{driver}");
            // The function goes on at the target, and has it from then on.
            process(Box::new(target.clone()), name("followed", 0), |partition| {
                partition
                    .counter_map::<u32>("c", through(3000))
                    .unwrap()
                    .add(&7, 1)
                    .unwrap();
            });
            process(open(), name("followed", 0), |partition| {
                partition
                    .counter_map::<u32>("c", through(3000))
                    .unwrap()
                    .add(&8, 1)
                    .unwrap();
            });
            assert_eq!(follower.pass().unwrap().taken, [name("followed", 0)], "{driver}");
            let sum = inspect(&mut target.clone()).unwrap()[0].sum;
            assert_eq!(sum, Some(i64::from(count) + 1), "{driver}");
        });
        agency.end();
    });
}
