//! Two stores of which one fails, at any call: acknowledged changes are there, whatever dies.

use super::*;
use crate::drivers::memory::Memory;
use crate::name::Kind;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use variables::buffer::Buffer;

const BATCHES: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(30);

/// A store whose calls fail within a range: before they are done, or behind that.
struct Shaky {
    inner: Memory,
    calls: Arc<AtomicU64>,
    fails: Range<u64>,
    is_done: bool,
    /// How long a variable's elements take to be read.
    slow: Duration,
}

impl Shaky {
    fn call<R>(&mut self, work: impl FnOnce(&mut Memory) -> Result<R, Failure>) -> Result<R, Failure> {
        let fails = self.fails.contains(&self.calls.fetch_add(1, Ordering::Relaxed));
        let lost = Failure::new("test", "the answer was lost", "none");
        if fails && !self.is_done {
            return Err(lost);
        }
        let done = work(&mut self.inner);
        if fails { Err(lost) } else { done }
    }
}

impl Driver for Shaky {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        self.call(|inner| inner.claim(partition, at_least))
    }
    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        self.call(|inner| inner.version(partition))
    }
    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        self.call(|inner| inner.restore(partition, version))
    }
    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        let mut said = Vec::new();
        self.call(|inner| inner.write(batches, &mut said))?;
        outcomes.append(&mut said);
        Ok(())
    }
    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        std::thread::sleep(self.slow);
        self.call(|inner| inner.load(variable, element))
    }
    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        self.call(|inner| inner.partitions(function))
    }
    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        self.call(|inner| inner.variables())
    }
    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.call(|inner| inner.record(name))
    }
    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.call(|inner| inner.records())
    }
    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        self.call(|inner| inner.swap(name, expected, new))
    }
}

fn partition() -> PartitionName {
    PartitionName::new("f", "m", 0).unwrap()
}

fn variable() -> VariableName {
    partition().variable(Kind::Map, "a").unwrap()
}

fn over(first: Box<dyn Driver>, second: Box<dyn Driver>) -> (Mirror, Watch) {
    Mirror::start(("first".into(), first), ("second".into(), second), |_| ()).unwrap()
}

/// Calls until it is done, as the agent does.
fn persist<R>(mut call: impl FnMut() -> Result<R, Failure>) -> R {
    let began = Instant::now();
    loop {
        match call() {
            Ok(done) => return done,
            Err(failure) => assert!(began.elapsed() < PATIENCE, "{failure}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Writes a batch and answers its outcome; puts the stores' content of then into `model`.
fn put(mirror: &mut Mirror, epoch: u64, sequence: u64, model: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Outcome {
    let mut buffer = Buffer::new();
    let field = (sequence % 5) as u8;
    buffer.put(0, &field, &sequence).unwrap();
    let gone = ((sequence + 2) % 5) as u8;
    buffer.remove(0, &gone).unwrap();
    let version = Version { epoch, sequence };
    let kept = KeptBatch::new(&partition(), version, &[variable()], buffer.bytes().to_vec());
    let outcome = persist(|| {
        let mut outcomes = Vec::new();
        mirror.write(&[kept.batch()], &mut outcomes).map(|()| outcomes)
    });
    for change in kept.batch().changes() {
        match change {
            crate::batch::Change::Put { field, value, .. } => {
                model.insert(field.to_vec(), value.to_vec());
            }
            crate::batch::Change::Remove { field, .. } => {
                model.remove(field);
            }
            crate::batch::Change::Clear { .. } => model.clear(),
        }
    }
    outcome[0]
}

fn has(store: &mut dyn Driver) -> BTreeMap<Vec<u8>, Vec<u8>> {
    elements(store, &variable()).unwrap().into_iter().collect()
}

fn await_in_step(mirror: &mut Mirror, watch: &Watch) {
    let began = Instant::now();
    while watch.sides().iter().any(|side| side.behind > 0) {
        assert!(began.elapsed() < PATIENCE, "{:?}", watch.sides());
        let _ = mirror.version(&partition());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn one_of_two_stores_may_fail_at_any_call() {
    let mut was_behind = 0;
    for at in 0..26 {
        for (failing, is_done, length, ends) in [
            (0, false, 3, 0),
            (1, true, 1, 0),
            (1, false, 4, 7),
            (0, true, 2, 6),
        ] {
            let stores = [Memory::default(), Memory::default()];
            let shaky = |number: usize| {
                Box::new(Shaky {
                    inner: stores[number].clone(),
                    calls: Arc::default(),
                    fails: if number == failing { at..at + length } else { 0..0 },
                    is_done,
                    slow: Duration::ZERO,
                })
            };
            let (mut mirror, watch) = over(shaky(0), shaky(1));
            let epoch = persist(|| mirror.claim(&partition(), 7));
            let mut model = BTreeMap::new();
            let last = if ends == 0 { BATCHES } else { ends };
            for sequence in 1..=last {
                assert_eq!(put(&mut mirror, epoch, sequence, &mut model), Outcome::Stored);
                was_behind += watch.sides().iter().map(|side| side.behind).sum::<u64>();
            }
            if ends == 0 {
                await_in_step(&mut mirror, &watch);
                let [mut first, mut second] = stores.clone();
                assert_eq!(
                    (has(&mut first), has(&mut second)),
                    (model.clone(), model.clone()),
                    "{at}"
                );
                let version = first.version(&partition()).unwrap();
                assert_eq!(version, second.version(&partition()).unwrap());
            }
            // Otherwise the process dies as it is. Either way the next one finds all of it, and
            // both stores have it.
            drop(mirror);
            let (mut next, watch) = over(Box::new(stores[0].clone()), Box::new(stores[1].clone()));
            persist(|| next.claim(&partition(), 7));
            assert_eq!(has(&mut next), model, "{at} {failing} {is_done} {ends}");
            await_in_step(&mut next, &watch);
            let [mut first, mut second] = stores;
            assert_eq!(
                (has(&mut first), has(&mut second)),
                (model.clone(), model),
                "{at}"
            );
        }
    }
    assert!(
        was_behind > 100,
        "the failures have to leave something behind: {was_behind}"
    );
}

#[test]
fn a_store_that_lost_its_data_is_given_a_copy_and_one_that_is_away_is_missed_at_a_start() {
    let stores = [Memory::default(), Memory::default()];
    let (mut mirror, _) = over(Box::new(stores[0].clone()), Box::new(stores[1].clone()));
    let epoch = mirror.claim(&partition(), 7).unwrap();
    let mut model = BTreeMap::new();
    for sequence in 1..=9 {
        put(&mut mirror, epoch, sequence, &mut model);
    }
    drop(mirror);
    // Either store is new: the other one is the truth, and the new one gets it.
    for at in [0, 1] {
        let mut stores = stores.clone();
        stores[at] = Memory::default();
        let (mut mirror, watch) = over(Box::new(stores[0].clone()), Box::new(stores[1].clone()));
        mirror.claim(&partition(), 7).unwrap();
        assert_eq!(has(&mut mirror), model);
        await_in_step(&mut mirror, &watch);
        assert_eq!(has(&mut stores[at]), model);
        assert_eq!(watch.sides()[at].copies, 1);
    }
    let away = Shaky {
        inner: stores[1].clone(),
        calls: Arc::default(),
        fails: 0..u64::MAX,
        is_done: false,
        slow: Duration::ZERO,
    };
    let (mut mirror, _) = over(Box::new(stores[0].clone()), Box::new(away));
    let said = mirror.claim(&partition(), 7).unwrap_err().to_string();
    assert!(
        said.contains("the later state is known when both answer"),
        "{said}"
    );
}

/// A call to a store waits for its answer to an earlier call. That is no failure.
#[test]
fn a_store_that_is_read_for_a_copy_answers_all_else_behind_it() {
    let (lost, other) = (Memory::default(), PartitionName::new("f", "m", 1).unwrap());
    let read = Shaky {
        inner: Memory::default(),
        calls: Arc::default(),
        fails: 0..0,
        is_done: false,
        slow: Duration::from_millis(100),
    };
    let mut model = BTreeMap::new();
    let (mut before, _) = over(Box::new(read.inner.clone()), Box::new(Memory::default()));
    let epoch = before.claim(&partition(), 7).unwrap();
    put(&mut before, epoch, 1, &mut model);
    drop(before);
    let (mut mirror, watch) = over(Box::new(lost), Box::new(read));
    let epoch = mirror.claim(&partition(), 7).unwrap();
    let mut claims = 0;
    while watch.sides()[0].behind > 0 {
        assert_eq!(
            mirror.version(&partition()),
            Ok(Some(Version { epoch, sequence: 0 }))
        );
        // Another partition begins meanwhile.
        claims += u32::from(claims == 0 && mirror.claim(&other, 7).is_ok());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((claims, watch.sides()[0].copies), (1, 1));
    assert_eq!(has(&mut mirror), model);
}

#[test]
fn another_process_at_either_store_fences_this_one() {
    for at in [0, 1] {
        let mut stores = [Memory::default(), Memory::default()];
        let (mut mirror, _) = over(Box::new(stores[0].clone()), Box::new(stores[1].clone()));
        let epoch = mirror.claim(&partition(), 7).unwrap();
        let mut model = BTreeMap::new();
        assert_eq!(put(&mut mirror, epoch, 1, &mut model), Outcome::Stored);
        stores[at].claim(&partition(), 0).unwrap();
        assert_eq!(put(&mut mirror, epoch, 2, &mut model), Outcome::Fenced);
        assert!(mirror.version(&partition()).unwrap().unwrap().epoch > epoch);
    }
}

/// The first store came back empty, and this process has one partition of two. The other partition
/// is read where it is.
#[test]
fn a_partition_that_is_not_claimed_is_read_from_the_store_that_has_it() {
    let stores = [Memory::default(), Memory::default()];
    let other = PartitionName::new("f", "m", 1).unwrap();
    let has_other = other.variable(Kind::Map, "a").unwrap();
    let (mut mirror, _) = over(Box::new(stores[0].clone()), Box::new(stores[1].clone()));
    let epoch = mirror.claim(&other, 7).unwrap();
    let mut buffer = Buffer::new();
    buffer.put(0, &1u8, &2u8).unwrap();
    let version = Version { epoch, sequence: 1 };
    let variables = [has_other.clone()];
    let kept = KeptBatch::new(&other, version, &variables, buffer.bytes().to_vec());
    let mut outcomes = Vec::new();
    mirror.write(&[kept.batch()], &mut outcomes).unwrap();
    assert_eq!(outcomes, [Outcome::Stored]);
    drop(mirror);
    for at in [0, 1] {
        let mut stores = stores.clone();
        stores[at] = Memory::default();
        let (mut mirror, _) = over(Box::new(stores[0].clone()), Box::new(stores[1].clone()));
        mirror.claim(&partition(), 7).unwrap();
        let mut found = mirror.partitions("f").unwrap();
        found.sort();
        assert_eq!(found, [partition(), other.clone()]);
        assert_eq!(mirror.version(&other).unwrap(), Some(version));
        let all = elements(&mut mirror, &has_other).unwrap();
        assert_eq!(all, [(vec![1], vec![2])]);
        assert_eq!(mirror.variables().unwrap(), variables);
        // An element that another process has removed since is not read in a store that it left
        // behind.
        let raised = stores[1 - at].claim(&other, epoch + GAP).unwrap();
        let mut buffer = Buffer::new();
        buffer.clear(0).unwrap();
        let version = Version {
            epoch: raised,
            sequence: 1,
        };
        let kept = KeptBatch::new(&other, version, &variables, buffer.bytes().to_vec());
        let claimed = stores[at].claim(&other, epoch).unwrap();
        let mut outcomes = Vec::new();
        stores[1 - at].write(&[kept.batch()], &mut outcomes).unwrap();
        let mut buffer = Buffer::new();
        buffer.put(0, &1u8, &9u8).unwrap();
        let version = Version {
            epoch: claimed,
            sequence: 1,
        };
        let kept = KeptBatch::new(&other, version, &variables, buffer.bytes().to_vec());
        stores[at].write(&[kept.batch()], &mut outcomes).unwrap();
        assert_eq!(outcomes, [Outcome::Stored; 2]);
        assert_eq!(elements(&mut mirror, &has_other).unwrap(), []);
        assert_eq!(mirror.variables().unwrap(), []);
    }
}
