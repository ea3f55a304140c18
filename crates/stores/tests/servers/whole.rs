//! Calls that concern more than one partition: merges, locks, timers that are taken over.

use crate::conformance::everywhere;
use flowkeep_stores::{
    Consistency, Cycle, Driver, Fenced, Kind, OpenError, Options, Partition, PartitionName, Store,
};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(driver: Box<dyn Driver>) -> (Store, flowkeep_stores::Agency) {
    Store::start(driver, PATIENCE, |_| ()).unwrap()
}

fn options() -> Options {
    Options {
        capacity: 64,
        consistency: Consistency::THROUGH,
    }
}

fn open(store: &Store, function: &str, member: &str, runtime: u32) -> Partition {
    let name = PartitionName::new(function, member, runtime).unwrap();
    Partition::open(store, name).unwrap()
}

#[test]
fn a_merge_has_all_cores_and_instances_those_that_ended_too() {
    everywhere(|_, driver| {
        let (store, _agency) = start(driver());
        for (member, runtime, count) in [("a", 0, 1), ("a", 1, 20), ("b", 0, 300)] {
            let mut partition = open(&store, "lb", member, runtime);
            partition.counter("flows", options()).unwrap().add(count);
            let load = partition.counter_map::<u8>("load", options()).unwrap();
            load.add(&1, count).unwrap();
            load.add(&(runtime as u8 + 2), 7).unwrap();
            partition
                .set("seen", options())
                .unwrap()
                .insert(&(count % 7))
                .unwrap();
            let most = partition.value("most", options()).unwrap();
            most.set(count).unwrap();
            assert!(partition.finish(PATIENCE));
        }
        open(&store, "lb2", "a", 0)
            .counter("flows", options())
            .unwrap()
            .add(5000);
        assert_eq!(store.sum("lb", "flows").unwrap(), 321);
        assert_eq!(
            store.sums("lb", "load").unwrap(),
            [(1u8, 321), (2, 14), (3, 7)].into()
        );
        assert_eq!(store.union::<i64>("lb", "seen").unwrap(), [1, 6].into());
        let most = store.fold("lb", Kind::Value, "most", 0, |most: i64, _, (), n: i64| {
            most.max(n)
        });
        assert_eq!(most.unwrap(), 300);
        assert_eq!(store.sum("nothing", "flows").unwrap(), 0);
        let wrong = store.union::<String>("lb", "seen").unwrap_err();
        assert!(matches!(wrong, OpenError::Other(..)), "{wrong}");

        let cycle = Cycle::start(&store, Duration::from_millis(5), |store| store.sum("lb", "flows")).unwrap();
        let mut partition = open(&store, "lb", "c", 9);
        partition.counter("flows", options()).unwrap().add(4000);
        assert!(partition.finish(PATIENCE));
        let began = Instant::now();
        while cycle.last() != Some(Ok(4321)) {
            assert!(began.elapsed() < PATIENCE, "{:?}", cycle.last());
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

#[test]
fn a_lock_has_one_holder_and_a_dead_ones_ends() {
    everywhere(|_, driver| {
        // A machine that pauses for longer than the short time ends leases that it should not.
        let in_time = [150, 1500, 15_000]
            .into_iter()
            .any(|short| one_holder(driver, Duration::from_millis(short)).is_some());
        assert!(in_time, "this machine is too slow for it");
    });
}

/// `None` where so much time went by that the holder may have lost the lock before the test looked.
fn one_holder(driver: &dyn Fn() -> Box<dyn Driver>, short: Duration) -> Option<()> {
    let (store, _agency) = start(driver());
    let name = |what: &str| format!("{what}-{}", short.as_millis());
    let (lock, guarded) = (name("l"), name("g"));
    let (mut a, mut b) = (
        store.lock(&lock, "a", short),
        store.lock(&lock, "b", Duration::from_secs(600)),
    );
    let began = Instant::now();
    let got = (a.acquire().unwrap(), a.token());
    if began.elapsed() >= short {
        return None;
    }
    assert_eq!(got, (Some(1), Some(1)));
    assert_eq!((b.acquire().unwrap(), b.token()), (None, None));
    // Renewed, it is watched from its beginning again.
    std::thread::sleep(short);
    assert_eq!((a.token(), a.acquire().unwrap()), (None, Some(1)));
    assert_eq!(b.acquire().unwrap(), None);
    assert_eq!(store.write_guarded(&guarded, 1, b"a").unwrap(), Ok(()));
    // The holder dies; or sleeps, and writes later.
    std::thread::sleep(short + Duration::from_millis(20));
    assert_eq!(b.acquire().unwrap(), Some(2));
    assert_eq!(store.write_guarded(&guarded, 2, b"b").unwrap(), Ok(()));
    assert_eq!(store.write_guarded(&guarded, 1, b"late").unwrap(), Err(Fenced));
    assert_eq!(store.read_guarded(&guarded).unwrap().as_deref(), Some(&b"b"[..]));
    a.release().unwrap();
    assert_eq!((a.acquire().unwrap(), b.token()), (None, Some(2)));
    b.release().unwrap();
    assert_eq!(a.acquire().unwrap(), Some(3));
    Some(())
}

#[test]
fn of_many_that_want_a_lock_one_has_it() {
    everywhere(|_, driver| {
        let (store, _agency) = start(driver());
        let tokens: Vec<_> = std::thread::scope(|scope| {
            let contend = |n: u32| {
                let mut lock = store.lock("many", format!("holder {n}"), Duration::from_secs(600));
                move || lock.acquire().unwrap()
            };
            let threads: Vec<_> = (0..6).map(|n| scope.spawn(contend(n))).collect();
            let got = threads.into_iter().map(|thread| thread.join().unwrap());
            got.flatten().collect()
        });
        assert_eq!(tokens, [1]);
    });
}

#[test]
fn timers_fire_once_in_order_at_the_successor() {
    everywhere(|_, driver| {
        let (store, _agency) = start(driver());
        let mut first = open(&store, "t", "a", 0);
        let timers = first.timers::<u8, String>("t", options()).unwrap();
        for (key, at) in [(1, 100), (2, 50), (3, 300), (4, 70)] {
            timers.arm(&key, at, format!("{key} at {at}")).unwrap();
        }
        timers.arm(&1, 200, "1 again".into()).unwrap();
        assert_eq!(timers.cancel(&4), Ok(Some("4 at 70".into())));
        assert_eq!((timers.next_at(), timers.fire(49)), (Some(50), None));
        assert_eq!(timers.fire(120), Some((2, "2 at 50".into())));
        assert_eq!(timers.fire(120), None);
        assert!(first.finish(PATIENCE));
        // Fired and not stored: the store has neither the effect nor that it has fired.
        let fired = first.counter("fired", options()).unwrap();
        assert!(timers.fire(250).is_some());
        fired.add(1);
        drop((first, timers, fired));

        let mut second = open(&store, "t", "a", 0);
        let timers = second.timers::<u8, String>("t", options()).unwrap();
        assert_eq!(second.counter("fired", options()).unwrap().get(), 0);
        assert_eq!((timers.len(), timers.next_at()), (2, Some(200)));
        assert_eq!(timers.fire(1000), Some((1, "1 again".into())));
        assert_eq!(timers.fire(1000), Some((3, "3 at 300".into())));
        assert!(timers.fire(u64::MAX).is_none() && timers.is_empty());
        for n in 0..1000 {
            timers.arm(&7, n, String::new()).unwrap();
        }
        assert!(timers.fire(998).is_none() && timers.fire(999).is_some() && timers.is_empty());
        assert_eq!(timers.next_at(), None);
    });
}

#[test]
fn timers_that_another_has_claimed_fire_there_alone() {
    everywhere(|_, driver| {
        let (store, _agency) = start(driver());
        let mut first = open(&store, "t", "a", 0);
        let timers = first.timers::<u8, u8>("t", options()).unwrap();
        timers.arm(&1, 10, 11).unwrap();
        assert!(first.finish(PATIENCE));
        let mut second = open(&store, "t", "a", 0);
        let taken = second.timers::<u8, u8>("t", options()).unwrap();
        // The first one is told with its next change.
        timers.arm(&2, 20, 22).unwrap();
        assert!(!first.finish(PATIENCE) && first.figures().fenced);
        assert_eq!(
            (timers.len(), timers.next_at(), timers.fire(100)),
            (2, None, None)
        );
        assert_eq!(
            (taken.next_at(), taken.fire(100), taken.fire(100)),
            (Some(10), Some((1, 11)), None)
        );
    });
}
