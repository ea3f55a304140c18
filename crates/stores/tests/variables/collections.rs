//! Collections against those of the standard library, through restarts.

use super::{opened, small};
use flowkeep_stores::drivers::memory::Memory;
use flowkeep_stores::{Partition, Refusal};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Debug)]
enum Call {
    PushBack(u8),
    PushFront(u8),
    PopBack,
    PopFront,
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Truncate(usize),
    Extend(Vec<u8>),
    Update(usize, u8),
    Swap(usize, usize),
    /// Removes elements without remainder by this number.
    Retain(u8),
    Clear,
    Restart,
}

fn call() -> impl Strategy<Value = Call> {
    let position = 0..18usize;
    prop_oneof![
        3 => any::<u8>().prop_map(Call::PushBack),
        3 => any::<u8>().prop_map(Call::PushFront),
        1 => Just(Call::PopBack),
        1 => Just(Call::PopFront),
        1 => (position.clone(), any::<u8>()).prop_map(|(at, n)| Call::Set(at, n)),
        3 => (position.clone(), any::<u8>()).prop_map(|(at, n)| Call::Insert(at, n)),
        1 => position.clone().prop_map(Call::Remove),
        1 => position.clone().prop_map(Call::Truncate),
        1 => prop::collection::vec(any::<u8>(), 0..6).prop_map(Call::Extend),
        2 => (position.clone(), any::<u8>()).prop_map(|(at, n)| Call::Update(at, n)),
        2 => (position.clone(), position).prop_map(|(one, other)| Call::Swap(one, other)),
        2 => (2..6u8).prop_map(Call::Retain),
        1 => Just(Call::Clear),
        1 => Just(Call::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_list_is_a_deque_through_restarts(calls in prop::collection::vec(call(), 0..60)) {
        let memory = Memory::default();
        let mut model = VecDeque::<u8>::new();
        let mut calls = calls.into_iter();
        let mut more = true;
        while more {
            more = opened(&memory, |f| {
                let list = f.list::<u8>("l", small()).unwrap();
                let same = |model: &VecDeque<u8>| {
                    let mut all = VecDeque::new();
                    list.for_each(|n| all.push_back(*n));
                    assert_eq!(&all, model);
                    assert_eq!((list.front(), list.back()), (model.front().copied(), model.back().copied()));
                    for n in [0, 7, 128] {
                        assert_eq!(list.contains(&n), model.contains(&n));
                        assert_eq!(list.any(|other| *other > n), model.iter().any(|other| *other > n));
                        let mut looked = (0, 0);
                        let found = list.position(|other| { looked.0 += 1; *other > n });
                        let expected = model.iter().position(|other| { looked.1 += 1; *other > n });
                        assert_eq!(found, expected);
                        assert_eq!(looked.0, looked.1, "it looks no further than the standard library");
                        let half = |other: &u8| (*other > n).then_some(*other / 2);
                        assert_eq!(list.find_map(half), model.iter().find_map(half));
                    }
                };
                same(&model);
                for call in calls.by_ref() {
                    let room = model.len() < 16;
                    match call {
                        Call::PushBack(n) => if list.push_back(n).is_ok() { model.push_back(n) } else { assert!(!room) },
                        Call::PushFront(n) => if list.push_front(n).is_ok() { model.push_front(n) } else { assert!(!room) },
                        Call::PopBack => assert_eq!(list.pop_back(), Ok(model.pop_back())),
                        Call::PopFront => assert_eq!(list.pop_front(), Ok(model.pop_front())),
                        Call::Set(at, n) => match model.get_mut(at) {
                            Some(place) => assert_eq!(list.set(at, n), Ok(std::mem::replace(place, n))),
                            None => assert_eq!(list.set(at, n), Err(Refusal::Position)),
                        },
                        Call::Insert(at, n) => match list.insert(at, n) {
                            Ok(()) => model.insert(at, n),
                            Err(Refusal::Position) => assert!(at > model.len()),
                            Err(refusal) => assert_eq!((refusal, room), (Refusal::Full, false)),
                        },
                        Call::Remove(at) => assert_eq!(list.remove(at), Ok(model.remove(at))),
                        Call::Truncate(count) => {
                            list.truncate(count).unwrap();
                            model.truncate(count);
                        }
                        Call::Extend(more) => {
                            let room = 16 - model.len();
                            let fits = if more.len() > room { Err(Refusal::Full) } else { Ok(()) };
                            assert_eq!(list.extend(more.iter().copied()), fits);
                            model.extend(more.into_iter().take(room));
                        }
                        Call::Update(at, n) => {
                            let update = |place: &mut u8| { *place ^= n; *place };
                            let expected = model.get_mut(at).map(update).ok_or(Refusal::Position);
                            assert_eq!(list.update(at, update), expected);
                        }
                        Call::Swap(one, other) => {
                            let is_there = one.max(other) < model.len();
                            let expected = if is_there { Ok(()) } else { Err(Refusal::Position) };
                            assert_eq!(list.swap(one, other), expected);
                            if is_there {
                                model.swap(one, other);
                            }
                        }
                        Call::Retain(by) => {
                            list.retain(|n| n % by != 0).unwrap();
                            model.retain(|n| n % by != 0);
                        }
                        Call::Clear => {
                            list.clear().unwrap();
                            model.clear();
                        }
                        Call::Restart => return true,
                    }
                    f.step(0);
                    same(&model);
                }
                false
            });
        }
    }
}

#[derive(Clone, Debug)]
enum Word {
    Insert(u8, u8),
    Remove(u8),
    Retain(u8),
    Restart,
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        6 => (0..12u8, any::<u8>()).prop_map(|(key, n)| Word::Insert(key, n)),
        2 => (0..12u8).prop_map(Word::Remove),
        1 => (2..5u8).prop_map(Word::Retain),
        1 => Just(Word::Restart),
    ]
}

/// A set, a map and a map of counters after the same words, and searches in them.
fn searched(f: &mut Partition, model: &mut BTreeMap<u8, u8>, words: &mut impl Iterator<Item = Word>) -> bool {
    let map = f.map::<u8, u8>("m", small()).unwrap();
    let (set, whole) = (f.set("s", small()).unwrap(), f.set("w", small()).unwrap());
    let counts = f.counter_map("c", small()).unwrap();
    let same = |model: &BTreeMap<u8, u8>| {
        for n in [0, 5, 11, 200] {
            let is_over = |key: &u8, value: i64| *key > n || value > i64::from(n);
            let expected = model.iter().any(|(key, value)| is_over(key, i64::from(*value)));
            assert_eq!(map.any(|key, value| is_over(key, i64::from(*value))), expected);
            assert_eq!(counts.any(is_over), expected);
            assert_eq!(set.any(|key| *key > n), model.keys().any(|key| *key > n));
            let value = model.get(&n).copied();
            assert_eq!(map.find_map(|key, value| (*key == n).then_some(*value)), value);
            let count = counts.find_map(|key, count| (*key == n).then_some(count));
            assert_eq!(count, value.map(i64::from));
            assert_eq!(set.find_map(|key| (*key == n).then_some(())), value.map(drop));
        }
        // The first that it sees is the last.
        let mut seen = 0;
        assert_eq!(
            map.any(|_, _| {
                seen += 1;
                true
            }),
            !model.is_empty()
        );
        assert_eq!(seen, usize::from(!model.is_empty()));
        let all: BTreeSet<u8> = model.keys().copied().collect();
        let evens: BTreeSet<u8> = (0..12).step_by(2).collect();
        assert_eq!(
            (set.is_subset(&whole), whole.is_subset(&set)),
            (all.is_subset(&evens), evens.is_subset(&all))
        );
        assert!(set.is_subset(&set));
    };
    for n in (0..12).step_by(2) {
        whole.insert(&n).unwrap();
    }
    same(model);
    for word in words {
        match word {
            Word::Insert(key, n) => {
                assert_eq!(map.insert(&key, n).unwrap(), model.insert(key, n));
                set.insert(&key).unwrap();
                counts.set(&key, i64::from(n)).unwrap();
            }
            Word::Remove(key) => {
                assert_eq!(map.remove(&key).unwrap(), model.remove(&key));
                set.remove(&key).unwrap();
                counts.remove(&key).unwrap();
            }
            Word::Retain(by) => {
                map.retain(|key, _| key % by != 0).unwrap();
                set.retain(|key| key % by != 0).unwrap();
                counts.retain(|key, _| key % by != 0).unwrap();
                model.retain(|key, _| key % by != 0);
            }
            Word::Restart => return true,
        }
        f.step(0);
        same(model);
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn searches_find_what_those_of_the_standard_library_do(words in prop::collection::vec(word(), 0..40)) {
        let memory = Memory::default();
        let (mut model, mut words) = (BTreeMap::new(), words.into_iter());
        while opened(&memory, |f| searched(f, &mut model, &mut words)) {}
    }
}

/// The longest element that a list takes at one place it takes at each, also where it moves to.
#[test]
fn an_element_of_a_list_can_stand_anywhere() {
    let memory = Memory::default();
    opened(&memory, |f| {
        let list = f.list::<Vec<u8>>("l", small()).unwrap();
        let longest = (0..70_000).rev().map(|length| vec![7; length]);
        let longest = longest
            .into_iter()
            .find(|element| list.push_back(element.clone()).is_ok());
        let longest = longest.expect("one that it takes");
        // Places have one byte up to 63 and down to -64, and more beyond.
        for _ in 0..100 {
            list.push_front(Vec::new()).unwrap();
            list.swap(0, 1).unwrap();
            assert_eq!(list.pop_back(), Ok(Some(Vec::new())));
        }
        assert_eq!((list.len(), list.front()), (1, Some(longest.clone())));
        let mut longer = longest.clone();
        longer.push(7);
        assert_eq!(list.set(0, longer), Err(Refusal::Large));
        assert_eq!(list.update(0, |element| element.push(7)), Err(Refusal::Large));
        list.extend([vec![1], vec![2]]).unwrap();
        list.retain(|element| element.len() > 1 || *element == [2])
            .unwrap();
        assert_eq!(
            (list.len(), list.get(0), list.get(1)),
            (2, Some(longest), Some(vec![2]))
        );
    });
}

#[test]
fn maps_and_sets_are_those_of_the_standard_library() {
    let memory = Memory::default();
    opened(&memory, |f| {
        let (map, set) = (f.map("m", small()).unwrap(), f.set("s", small()).unwrap());
        let (mut map_model, mut set_model) = (BTreeMap::new(), BTreeSet::new());
        for n in 0..12u8 {
            assert_eq!(map.insert(&(n % 5), n), Ok(map_model.insert(n % 5, n)));
            assert_eq!(set.insert(&(n % 5)), Ok(set_model.insert(n % 5)));
        }
        map.update(&2, |n| n.unwrap_or(0) + 100).unwrap();
        map_model.entry(2).and_modify(|n| *n += 100);
        map.retain(|key, _| key % 2 == 0).unwrap();
        map_model.retain(|key, _| key % 2 == 0);
        set.retain(|key| *key > 1).unwrap();
        set_model.retain(|key| *key > 1);
        let (mut map_all, mut set_all) = (BTreeMap::new(), BTreeSet::new());
        map.for_each(|key, n| {
            map_all.insert(*key, *n);
        });
        set.for_each(|n| {
            set_all.insert(*n);
        });
        assert_eq!((map_all, set_all), (map_model, set_model));
        assert!(map.contains_key(&0) && !map.contains_key(&1) && set.remove(&3) == Ok(true));
        map.clear().unwrap();
        assert!(map.is_empty() && map.insert(&1, 1) == Ok(None));
    });
    opened(&memory, |f| {
        let map = f.map::<u8, u8>("m", small()).unwrap();
        assert_eq!((map.len(), map.get(&1)), (1, Some(1)));
        assert_eq!(f.set::<u8>("s", small()).unwrap().len(), 2);
    });
}
