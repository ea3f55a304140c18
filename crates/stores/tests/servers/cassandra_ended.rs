//! Elements that come and go, many more than Cassandra reads past: as flows do.

use crate::cassandra;
use crate::faults::{PATIENCE, name, open};
use flowkeep_stores::{Consistency, Options, Partition};

/// Elements at once, and how often others follow.
const AT_ONCE: u32 = 4000;
const ROUNDS: u32 = 51;

/// Cassandra refuses to read a variable behind more than 100,000 rows that were deleted.
#[test]
fn a_map_is_read_again_behind_two_hundred_thousand_elements_that_ended() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let (store, _agency, _) = open(&node.uri());
    let large = Options {
        capacity: 2 * AT_ONCE as usize,
        consistency: Consistency::USUAL,
    };
    let mut partition = Partition::open(&store, name(0)).unwrap();
    let map = partition.map::<u32, u64>("m", large).unwrap();
    let mut ended = 0;
    for round in 0..ROUNDS {
        for number in 0..AT_ONCE {
            let key = round * AT_ONCE + number;
            map.insert(&key, u64::from(key) * 3).unwrap();
            if round > 0 {
                assert!(map.remove(&(key - AT_ONCE)).unwrap().is_some());
                ended += 1;
            }
        }
        assert!(partition.finish(PATIENCE), "{:?}", store.health());
    }
    assert_eq!(ended, 200_000);
    let mut next = Partition::open(&store, name(0)).unwrap();
    let map = next.map::<u32, u64>("m", large).unwrap();
    assert_eq!(map.len() as u32, AT_ONCE);
    let last = (ROUNDS - 1) * AT_ONCE;
    assert!((last..last + AT_ONCE).all(|key| map.get(&key) == Some(u64::from(key) * 3)));
    // The next writer goes on in the rows that are free.
    map.insert(&1, 1).unwrap();
    map.remove(&last).unwrap();
    assert!(next.finish(PATIENCE), "{:?}", store.health());
    let mut third = Partition::open(&store, name(0)).unwrap();
    let map = third.map::<u32, u64>("m", large).unwrap();
    assert_eq!(
        (map.get(&1), map.get(&last), map.len() as u32),
        (Some(1), None, AT_ONCE)
    );
}
