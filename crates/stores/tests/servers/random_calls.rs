//! Random calls of every variable, on each driver, equal those of the standard library's types,
//! through restarts.

use crate::conformance::{all, everywhere, name, process, through};
use flowkeep_stores::{Counter, CounterMap, List, Map, OpenError, Partition, Refusal, Set, Value as Single};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CAPACITY: usize = 16;

#[derive(Clone, Debug)]
enum Call {
    Insert(u8, String),
    Remove(u8),
    Add(u8, i64),
    Forget(u8),
    PushBack(u8),
    PushFront(u8),
    PopBack,
    PopFront,
    Replace(usize, u8),
    InsertAt(usize, u8),
    RemoveAt(usize),
    Truncate(usize),
    Enter(u8),
    Leave(u8),
    KeepBelow(u8),
    Put(String),
    Update(String),
    Delete,
    Count(i64),
    CountTo(i64),
    Uncount,
    Clear(usize),
    Step,
    Restart,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let key = || 0..10u8;
    let text = || "[a-z\u{0}\r\n]{0,5}";
    let of_maps = prop_oneof![
        6 => (key(), text()).prop_map(|(key, value)| Call::Insert(key, value)),
        4 => key().prop_map(Call::Remove),
        6 => (key(), -5..5i64).prop_map(|(key, count)| Call::Add(key, count)),
        2 => key().prop_map(Call::Forget),
    ];
    let at = || 0..CAPACITY + 2;
    let of_lists = prop_oneof![
        4 => any::<u8>().prop_map(Call::PushBack),
        4 => any::<u8>().prop_map(Call::PushFront),
        2 => Just(Call::PopBack),
        2 => Just(Call::PopFront),
        2 => (at(), any::<u8>()).prop_map(|(at, n)| Call::Replace(at, n)),
        4 => (at(), any::<u8>()).prop_map(|(at, n)| Call::InsertAt(at, n)),
        2 => at().prop_map(Call::RemoveAt),
        1 => at().prop_map(Call::Truncate),
    ];
    let of_sets = prop_oneof![
        4 => key().prop_map(Call::Enter),
        2 => key().prop_map(Call::Leave),
        1 => key().prop_map(Call::KeepBelow),
    ];
    let of_singles = prop_oneof![
        3 => text().prop_map(Call::Put),
        2 => text().prop_map(Call::Update),
        1 => Just(Call::Delete),
        3 => any::<i32>().prop_map(|count| Call::Count(count.into())),
        1 => any::<i64>().prop_map(|count| Call::CountTo(count / 2)),
        1 => Just(Call::Uncount),
    ];
    let call = prop_oneof![
        8 => of_maps,
        8 => of_lists,
        3 => of_sets,
        3 => of_singles,
        1 => (0..4usize).prop_map(Call::Clear),
        8 => Just(Call::Step),
        1 => Just(Call::Restart),
    ];
    prop::collection::vec(call, 0..100)
}

/// The content of the variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    map: BTreeMap<u8, String>,
    counts: BTreeMap<u8, i64>,
    list: VecDeque<u8>,
    set: BTreeSet<u8>,
    single: Option<String>,
    count: i64,
}

struct Variables {
    map: Map<u8, String>,
    counts: CounterMap<u8>,
    list: List<u8>,
    set: Set<u8>,
    single: Single<String>,
    count: Counter,
}

impl Variables {
    fn open(partition: &mut Partition) -> Result<Self, OpenError> {
        Ok(Variables {
            map: partition.map("m@%", through(CAPACITY))?,
            counts: partition.counter_map("c", through(CAPACITY))?,
            list: partition.list("l", through(CAPACITY))?,
            set: partition.set("s", through(CAPACITY))?,
            single: partition.value("v", through(1))?,
            count: partition.counter("n", through(1))?,
        })
    }

    fn read(&self) -> Model {
        let mut model = Model {
            map: all(&self.map),
            single: self.single.get(),
            count: self.count.get(),
            ..Model::default()
        };
        self.counts.for_each(|key, count| {
            model.counts.insert(*key, count);
        });
        self.list.for_each(|n| model.list.push_back(*n));
        self.set.for_each(|n| {
            model.set.insert(*n);
        });
        model
    }

    /// A call here and in the model, with one answer.
    fn call(&self, call: Call, model: &mut Model) {
        match call {
            Call::Insert(key, value) => {
                let before = model.map.insert(key, value.clone());
                assert_eq!(self.map.insert(&key, value), Ok(before));
            }
            Call::Remove(key) => assert_eq!(self.map.remove(&key), Ok(model.map.remove(&key))),
            Call::Add(key, count) => {
                *model.counts.entry(key).or_default() += count;
                assert_eq!(self.counts.add(&key, count), Ok(model.counts[&key]));
            }
            Call::Forget(key) => assert_eq!(self.counts.remove(&key), Ok(model.counts.remove(&key))),
            Call::Enter(n) => assert_eq!(self.set.insert(&n), Ok(model.set.insert(n))),
            Call::Leave(n) => assert_eq!(self.set.remove(&n), Ok(model.set.remove(&n))),
            Call::KeepBelow(n) => {
                self.set.retain(|has| *has < n).unwrap();
                model.set.retain(|has| *has < n);
            }
            Call::Put(value) => {
                let before = model.single.replace(value.clone());
                assert_eq!(self.single.set(value), Ok(before));
            }
            Call::Update(more) => {
                let joined = |has: Option<String>| has.unwrap_or_default() + &more;
                assert_eq!(self.single.update(joined), Ok(()));
                model.single = Some(joined(model.single.take()));
            }
            Call::Delete => assert_eq!(self.single.delete(), Ok(model.single.take())),
            Call::Count(count) => {
                model.count += count;
                assert_eq!(self.count.add(count), model.count);
            }
            Call::CountTo(count) => {
                assert_eq!(self.count.set(count), std::mem::replace(&mut model.count, count));
            }
            Call::Uncount => assert_eq!(self.count.delete(), std::mem::take(&mut model.count)),
            Call::Clear(which) => self.clear(which, model),
            Call::Step | Call::Restart => {}
            of_list => self.call_list(of_list, &mut model.list),
        }
    }

    fn clear(&self, which: usize, model: &mut Model) {
        match which {
            0 => (self.map.clear().unwrap(), model.map.clear()),
            1 => (self.counts.clear().unwrap(), model.counts.clear()),
            2 => (self.list.clear().unwrap(), model.list.clear()),
            _ => (self.set.clear().unwrap(), model.set.clear()),
        };
    }

    fn call_list(&self, call: Call, model: &mut VecDeque<u8>) {
        let (list, room) = (&self.list, model.len() < CAPACITY);
        let full = Err(Refusal::Full);
        match call {
            Call::PushBack(n) if room => (list.push_back(n).unwrap(), model.push_back(n)).1,
            Call::PushFront(n) if room => (list.push_front(n).unwrap(), model.push_front(n)).1,
            Call::PushBack(n) => assert_eq!(list.push_back(n), full),
            Call::PushFront(n) => assert_eq!(list.push_front(n), full),
            Call::PopBack => assert_eq!(list.pop_back(), Ok(model.pop_back())),
            Call::PopFront => assert_eq!(list.pop_front(), Ok(model.pop_front())),
            Call::Replace(at, n) => match model.get_mut(at) {
                Some(place) => assert_eq!(list.set(at, n), Ok(std::mem::replace(place, n))),
                None => assert_eq!(list.set(at, n), Err(Refusal::Position)),
            },
            Call::InsertAt(at, n) => match list.insert(at, n) {
                Ok(()) => model.insert(at, n),
                Err(Refusal::Position) => assert!(at > model.len()),
                Err(refusal) => assert_eq!((refusal, room), (Refusal::Full, false)),
            },
            Call::RemoveAt(at) => assert_eq!(list.remove(at), Ok(model.remove(at))),
            Call::Truncate(count) => (list.truncate(count).unwrap(), model.truncate(count)).1,
            other => unreachable!("{other:?} is none of a list"),
        }
    }
}

#[test]
fn random_calls_are_those_of_the_standard_library_through_restarts() {
    everywhere(|driver, open| {
        let number = RefCell::new(0);
        let config = Config {
            failure_persistence: None,
            max_shrink_time: 60_000,
            ..Config::with_cases(24)
        };
        let mut runner = TestRunner::new(config);
        let tried = runner.run(&calls(), |calls| {
            let run = {
                *number.borrow_mut() += 1;
                *number.borrow()
            };
            let mut model = Model::default();
            let (mut calls, mut more) = (calls.into_iter(), true);
            while more {
                more = process(open(), name("random", run), |partition| {
                    let variables = Variables::open(partition).unwrap();
                    assert_eq!(variables.read(), model);
                    for (now, call) in calls.by_ref().enumerate() {
                        match call {
                            Call::Step => partition.step(now as u64),
                            Call::Restart => return true,
                            call => variables.call(call, &mut model),
                        }
                    }
                    assert_eq!(variables.read(), model);
                    false
                });
            }
            // The last process left all of it, too.
            process(open(), name("random", run), |partition| {
                assert_eq!(Variables::open(partition).unwrap().read(), model);
            });
            Ok(())
        });
        assert!(tried.is_ok(), "{driver}: {tried:?}");
    });
}
