//! The one Cassandra of this process dies, stalls and is cut off, under load: counters are exact
//! when the dust settles.

use crate::cassandra::{self, Node};
use crate::faults::{
    PATIENCE, await_failure, await_recovery, goes_on, is_slow, name, open, options, under_load,
};
use crate::proxies::{altering_proxy, cutting_proxy, slow_proxy};
use flowkeep_stores::batch::ELEMENT_BYTES_MAX;
use flowkeep_stores::drivers::cassandra::Cassandra;
use flowkeep_stores::{Consistency, Driver, Options, Partition, Report};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

impl Node {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid).unwrap(), signal).unwrap();
    }
}

#[test]
fn a_node_that_is_killed_has_every_count_and_one_that_lost_its_data_has_it_again() {
    let Ok(mut node) = cassandra::alone().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let uri = node.uri();
    let (seen, health, reports) = under_load(&uri, &uri, |store, packets| {
        goes_on(packets, Duration::from_secs(2));
        node.kill();
        await_failure(store);
        goes_on(packets, Duration::from_millis(500));
        node.launch();
        await_recovery(store);
        goes_on(packets, Duration::from_secs(3));
    });
    // With `commitlog_sync: periodic` it may have lost the last tenth of a second, which is written
    // again.
    assert!(seen.iter().all(|seen| seen.was_late));
    println!("written again: {} {}", seen[0].rewritten, seen[1].rewritten);
    assert!(health.failures > 0 && !health.failing);
    assert!(reports.iter().any(|report| matches!(report, Report::Failing(_))));
    assert!(reports.iter().any(|report| matches!(report, Report::Again(_))));
    // Counts begin at nothing there.
    let uri = node.uri();
    let (seen, health, reports) = under_load(&uri, &uri, |store, packets| {
        goes_on(packets, Duration::from_secs(1));
        node.kill();
        node.forget();
        await_failure(store);
        node.launch();
        await_recovery(store);
        goes_on(packets, Duration::from_secs(3));
    });
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten >= 1));
    assert!(!health.failing && reports.contains(&Report::Forgotten(name(1))));
}

#[test]
fn a_node_that_stalls_for_ten_seconds_holds_no_packet_up_and_nothing_counts_twice() {
    let Ok(node) = cassandra::alone().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let uri = node.uri();
    let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
        goes_on(packets, Duration::from_secs(1));
        node.signal(Signal::STOP);
        goes_on(packets, Duration::from_secs(10));
        await_failure(store);
        node.signal(Signal::CONT);
        await_recovery(store);
        goes_on(packets, Duration::from_secs(2));
    });
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
    assert!(health.failures > 0);
}

#[test]
fn connections_that_are_cut_in_mid_batch_cost_nothing() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let uri = node.uri();
    let (cuts, whole) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
    // The answers when a session begins are several thousand bytes.
    let after = [(6000, 100_000), (6000, 8000)];
    let port = cutting_proxy(node.port, Arc::clone(&cuts), Arc::clone(&whole), after);
    let through = uri.replace(&node.port.to_string(), &port.to_string());
    let (seen, health, _) = under_load(&through, &uri, |_, packets| {
        whole.store(false, Ordering::Relaxed);
        let began = Instant::now();
        while cuts.load(Ordering::Relaxed) < 30 {
            assert!(began.elapsed() < PATIENCE, "{cuts:?}");
            goes_on(packets, Duration::from_millis(20));
        }
        whole.store(true, Ordering::Relaxed);
    });
    assert!(health.failures >= 5, "{health:?}");
    assert!(seen.iter().all(|seen| seen.rewritten == 0));
}

#[test]
fn a_slow_node_stretches_the_interval_and_holds_no_packet_up() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let uri = node.uri();
    let port = slow_proxy(node.port, 50..200);
    let through = uri.replace(&node.port.to_string(), &port.to_string());
    is_slow(&through, &uri, Duration::from_secs(5));
}

/// A partition that it once refused for good: which of both rows has the element no row says, so
/// the writer's own copy replaces them.
#[test]
fn a_partition_of_which_two_rows_have_one_element_is_written_whole() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let uri = node.uri();
    let keyspace = uri.split(['/', '?']).nth(3).unwrap().to_owned();
    let (store, agency, _) = open(&uri);
    let mut partition = Partition::open(&store, name(0)).unwrap();
    let map = partition.map::<String, u8>("m", options()).unwrap();
    let keys = ["a", "b", "c", "d"].map(str::to_owned);
    for key in &keys[..3] {
        map.insert(key, 1).unwrap();
    }
    assert!(partition.finish(PATIENCE), "{:?}", store.health());
    drop(partition);
    assert_eq!(agency.end(), 0);
    cassandra::asked(&node, None, async |session| {
        let all = format!("SELECT partition, kind, name, life, field, value FROM {keyspace}.elements");
        let rows = session
            .query_unpaged(all, &[])
            .await
            .unwrap()
            .into_rows_result()
            .unwrap();
        type Row = (
            String,
            Option<String>,
            Option<String>,
            Option<i64>,
            Option<Vec<u8>>,
            Option<Vec<u8>>,
        );
        let mut row = rows.rows::<Row>().unwrap().map(Result::unwrap);
        let row = row
            .find(|row| row.1.as_deref() == Some("Map"))
            .expect("an element");
        let twice = format!(
            "INSERT INTO {keyspace}.elements (partition, kind, name, life, field, value, slot, is_held) \
             VALUES (?, ?, ?, ?, ?, ?, 77, true)"
        );
        session.query_unpaged(twice, row).await.unwrap();
    });
    // Another process, which does not know the places of elements.
    let (store, _agency, reports) = open(&uri);
    let mut next = Partition::open(&store, name(0)).unwrap();
    let map = next.map::<String, u8>("m", options()).unwrap();
    assert_eq!(map.len(), 3);
    map.insert(&keys[3], 2).unwrap();
    assert!(next.finish(PATIENCE), "{:?}", store.health());
    assert!(reports.lock().unwrap().contains(&Report::Forgotten(name(0))));
    let mut last = Partition::open(&store, name(0)).unwrap();
    let map = last.map::<String, u8>("m", options()).unwrap();
    let has = keys.clone().map(|key| map.get(&key));
    assert_eq!(has, [Some(1), Some(1), Some(1), Some(2)]);
    // The partition is as any other from then on.
    map.remove(&keys[0]).unwrap();
    assert!(last.finish(PATIENCE), "{:?}", store.health());
    assert_eq!(
        reports
            .lock()
            .unwrap()
            .iter()
            .filter(|report| **report == Report::Forgotten(name(0)))
            .count(),
        1
    );
}

/// A field is no part of the row's key, which Cassandra bounds.
#[test]
fn a_key_as_long_as_an_element_may_be_is_kept() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let (store, _agency, _) = open(&node.uri());
    let mut partition = Partition::open(&store, name(0)).unwrap();
    let through = Options {
        capacity: 4,
        consistency: Consistency::THROUGH,
    };
    let map = partition.map::<String, u8>("m", through).unwrap();
    // Three bytes are the key's length, and one the value.
    let long = "x".repeat(ELEMENT_BYTES_MAX - 4);
    map.insert(&long, 1).unwrap();
    assert!(partition.finish(PATIENCE), "{:?}", store.health());
    let mut next = Partition::open(&store, name(0)).unwrap();
    assert_eq!(
        next.map::<String, u8>("m", options()).unwrap().get(&long),
        Some(1)
    );
}

/// A proxy has the node name an earlier version.
#[test]
fn a_node_of_an_earlier_version_is_refused_by_name() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let port = altering_proxy(node.port, |passing| {
        let bytes = passing.bytes;
        for at in 0..bytes.len().saturating_sub(3) {
            if passing.is_answer && &bytes[at..at + 3] == b"5.0" {
                bytes[at..at + 3].copy_from_slice(b"3.1");
            }
        }
    });
    let mut driver =
        Cassandra::new(&format!("cassandra://127.0.0.1:{port}"), Duration::from_secs(10)).unwrap();
    let said = driver.claim(&name(0), 1).unwrap_err().to_string();
    assert!(
        said.contains("it is Cassandra 3.1") && said.contains("needs Cassandra 5 or later"),
        "{said}"
    );
}
