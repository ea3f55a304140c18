//! Opening, following and adopting, without a store.

use crate::open::{Keeper, Variables, WorkerVariables};
use crate::{OpenError, Options, Refusal};
use alloc::string::ToString;

fn small() -> Options {
    Options {
        capacity: 8,
        ..Options::default()
    }
}

/// A function's handles on one worker, and the worker's side.
fn worker(variables: Variables) -> WorkerVariables {
    let mut all = WorkerVariables::default();
    all.take(3, variables);
    all
}

#[test]
fn a_changed_function_goes_on_with_its_variables() {
    let keeper = Keeper::default();
    let mut variables = keeper.begin("f", 0);
    let counts = variables.counter_map::<u8>("c", small()).unwrap();
    let list = variables.list::<u8>("l", small()).unwrap();
    let timers = variables.timers::<u8, u8>("t", small()).unwrap();
    let mut first = worker(variables);
    counts.add(&1, 5).unwrap();
    list.push_front(7).unwrap();
    timers.arm(&1, 10, 11).unwrap();

    let mut variables = keeper.follow("f", 0);
    let next = variables.counter_map::<u8>("c", small()).unwrap();
    let next_list = variables.list::<u8>("l", small()).unwrap();
    let next_timers = variables.timers::<u8, u8>("t", small()).unwrap();
    let new = variables.counter("n", small()).unwrap();
    let mut second = worker(variables);
    // Prepared: nothing is there yet, and nothing is lost by that.
    assert_eq!((next.get(&1), next.add(&1, 1)), (0, Err(Refusal::Early)));
    assert_eq!((next_list.push_back(1), new.add(1)), (Err(Refusal::Early), 0));
    counts.add(&1, 2).unwrap();
    second.adopt(&mut first);
    assert!(first.is_empty());
    assert_eq!((next.add(&1, 1), counts.get(&1)), (Ok(8), 8));
    // Both generations see one list and one order of timers: a call that waited may still be of the
    // first.
    list.push_front(6).unwrap();
    next_list.push_back(8).unwrap();
    let mut seen = alloc::vec::Vec::new();
    next_list.for_each(|element| seen.push(*element));
    assert_eq!(seen, [6, 7, 8]);
    timers.arm(&2, 5, 12).unwrap();
    let fired: alloc::vec::Vec<_> = core::iter::from_fn(|| next_timers.fire(20)).collect();
    assert_eq!((fired, new.add(4)), (alloc::vec![(2, 12), (1, 11)], 4));

    // A third generation finds the variables that the second opened, and an instance that was given
    // up has taken nothing.
    drop(worker({
        let mut variables = keeper.follow("f", 0);
        variables.counter("given up", small()).unwrap();
        variables
    }));
    let mut variables = keeper.follow("f", 0);
    let again = variables.counter("n", small()).unwrap();
    let once = variables.counter("given up", small()).unwrap();
    let mut third = worker(variables);
    third.adopt(&mut second);
    assert_eq!((again.get(), once.add(1)), (4, 1));
    // A variable that it does not open stays, for the generation after it.
    let mut variables = keeper.follow("f", 0);
    let counts = variables.counter_map::<u8>("c", small()).unwrap();
    worker(variables).adopt(&mut third);
    assert_eq!(counts.get(&1), 8);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let keeper = Keeper::default();
    let mut variables = keeper.begin("f", 0);
    variables.counter_map::<u8>("c", small()).unwrap();
    let twice = variables.counter_map::<u8>("c", small()).err();
    assert!(matches!(twice, Some(OpenError::Twice(_))), "{twice:?}");
    let _first = worker(variables);
    let mut variables = keeper.follow("f", 0);
    let other = variables.counter_map::<u16>("c", small()).err();
    assert!(matches!(other, Some(OpenError::Other(..))), "{other:?}");
    let larger = Options {
        capacity: 9,
        ..small()
    };
    let resized = variables.counter_map::<u8>("c", larger).err().unwrap();
    assert_eq!(
        resized.to_string(),
        "CounterMap `c` has a capacity of 8 and cannot get one of 9 while it is open; restart"
    );
    // An instance that begins again begins with nothing, and hinders no other.
    let mut variables = keeper.begin("f", 0);
    assert!(variables.counter_map::<u8>("c", larger).is_ok());
}

#[test]
fn a_function_that_opens_for_the_first_time_when_it_is_changed_has_its_variables_then() {
    let keeper = Keeper::default();
    let mut first = worker(keeper.begin("f", 0));
    let mut variables = keeper.follow("f", 0);
    let count = variables.counter("n", small()).unwrap();
    let mut second = worker(variables);
    second.adopt(&mut first);
    count.add(2);
    let mut variables = keeper.follow("f", 0);
    let next = variables.counter("n", small()).unwrap();
    worker(variables).adopt(&mut second);
    assert_eq!(next.add(1), 3);
}
