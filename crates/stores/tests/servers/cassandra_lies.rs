//! A node that is none, and a real one whose answers are altered on their way: nothing panics, and
//! a clean connection goes on again. In a process of its own the driver takes any answers; lies of
//! no real node are in [`crate::apart`].

use crate::apart::apart;
use crate::cassandra;
use crate::faults::{PATIENCE, await_recovery, name, options};
use crate::proxies::altering_proxy;
use flowkeep_stores::batch::KeptBatch;
use flowkeep_stores::drivers::cassandra::Cassandra;
use flowkeep_stores::{Driver, Kind, Partition, PartitionName, Store, Version};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn what_is_no_node_of_cassandra_is_not_believed() {
    let lies: [&[u8]; 6] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+OK\r\n",
        b"",
        // An answer of the protocol, longer than it says; an answer that claims 4 GB; an answer to
        // another stream.
        b"\x84\x00\x00\x00\x02\x00\x00\x00\x00xx",
        b"\x84\x00\x00\x00\x08\xff\xff\xff\xffxx",
        b"\x84\x00\x00\x77\x06\x00\x00\x00\x02\x00\x00",
    ];
    for lie in lies {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    if stream.write_all(lie).is_err() {
                        break;
                    }
                }
            }
        });
        let uri = format!("cassandra://me:secret@127.0.0.1:{port}");
        let mut driver = Cassandra::new(&uri, Duration::from_millis(300)).unwrap();
        let began = Instant::now();
        let said = driver.claim(&name(0), 1).unwrap_err().to_string();
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{lie:?} {:?}",
            began.elapsed()
        );
        assert!(
            said.contains("see that a node runs") && !said.contains("secret"),
            "{said}"
        );
    }
}

/// Panics of the library's threads, which end nothing and would not be noticed.
fn panics() -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let (seen, before) = (Arc::clone(&count), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() == Some("cassandra") {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        before(panic);
    }));
    count
}

/// Which byte of an answer is altered. `version flags stream(2) opcode length(4)` is the head of
/// one. Unless `is_any`, what says of how many columns it is stays: for so many the library
/// reserves memory, without which the process ends.
fn place(answer: &[u8], random: u64, is_any: bool) -> Option<usize> {
    let length = answer.get(5..9)?.try_into().ok()?;
    if answer.len() != 9 + u32::from_be_bytes(length) as usize {
        return None;
    }
    let begins = match (answer[4], answer.get(9..13)) {
        // An error; rows; and that it is done.
        (0x00, _) => 9,
        (0x08, Some([0, 0, 0, 2])) if is_any => 13,
        (0x08, Some([0, 0, 0, 2])) => 21,
        (0x08, Some([0, 0, 0, 1])) => 12,
        _ => return None,
    };
    let behind = answer.len().checked_sub(begins).filter(|behind| *behind > 0)?;
    Some(match random % 16 {
        // Which request it answers, and how long it is.
        0 => 3,
        1 => 5 + (random >> 4) as usize % 4,
        _ => begins + (random >> 4) as usize % behind,
    })
}

/// Makes each call once. Its answer may be wrong; there is one.
fn every_call(driver: &mut dyn Driver, partition: &PartitionName) -> u32 {
    let variable = partition.variable(Kind::Map, "m").unwrap();
    let epoch = driver.claim(partition, 1).unwrap_or(1);
    let put = b"\x01\0\0\0\0\x01\0\0\0\x01\0\0\0kv".to_vec();
    let version = Version { epoch, sequence: 1 };
    let batch = KeptBatch::new(partition, version, std::slice::from_ref(&variable), put);
    let mut outcomes = Vec::new();
    let done = [
        driver.write(&[batch.batch()], &mut outcomes).is_ok(),
        driver.version(partition).is_ok(),
        driver.load(&variable, &mut |_, _| ()).is_ok(),
        driver.restore(partition, Version { epoch, sequence: 2 }).is_ok(),
        driver.partitions(partition.function()).is_ok(),
        driver.variables().is_ok(),
        driver.swap("r", None, Some(b"x")).is_ok(),
        driver.record("r").is_ok(),
        driver.swap("r", Some(b"x"), None).is_ok(),
        driver.records().is_ok(),
    ];
    assert!(outcomes.len() <= 1);
    done.into_iter().map(u32::from).sum()
}

#[test]
fn answers_whose_bytes_are_altered_end_nothing() {
    goes_on_behind(false, &|uri, patience| {
        Box::new(Cassandra::new(uri, patience).unwrap())
    });
}

/// A count of columns is one of them.
#[test]
fn answers_of_which_any_bytes_are_altered_end_nothing_but_a_process_of_its_own() {
    goes_on_behind(true, &|uri, _| apart(uri));
}

/// The effect of an altered byte cannot always be known: a count may be another, and a version a
/// later writer's. The test asks that nothing panics or hangs, and that the store goes on.
fn goes_on_behind(is_any: bool, drive: &dyn Fn(&str, Duration) -> Box<dyn Driver>) {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    let (flips, flipping) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, is_on) = (Arc::clone(&flips), Arc::clone(&flipping));
    let random = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let port = altering_proxy(node.port, move |passing| {
        // The answers when a session begins are several thousand bytes.
        let is_begun = passing.is_answer && passing.before > 6000;
        if !is_begun || !is_on.load(Ordering::Relaxed) {
            return;
        }
        let next = random.load(Ordering::Relaxed);
        let next = next ^ (next << 13);
        let next = next ^ (next >> 7);
        let next = next ^ (next << 17);
        random.store(next, Ordering::Relaxed);
        if next.is_multiple_of(3)
            && let Some(at) = place(passing.bytes, next >> 8, is_any)
        {
            passing.bytes[at] ^= 1 << ((next >> 40) % 8);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let panics = panics();
    let uri = node.uri();
    let through = uri.replace(&node.port.to_string(), &port.to_string());
    let usual = drive(&through, Duration::from_secs(2));
    let (store, agency) = Store::start(usual, PATIENCE, |_| ()).unwrap();
    let mut partition = Partition::open(&store, name(0)).unwrap();
    let total = partition.counter("total", options()).unwrap();
    total.add(1000);
    assert!(partition.finish(PATIENCE), "{:?}", store.health());

    flipping.store(true, Ordering::Relaxed);
    let mut driver = drive(&through, Duration::from_millis(300));
    let (began, mut done, mut rounds) = (Instant::now(), 0, 0);
    // Of the agent's own calls one has failed, too; or one was told of a later writer, and the
    // agent asks no more.
    let is_enough = |fenced| (fenced || store.health().failures > 0) && flips.load(Ordering::Relaxed) >= 30;
    while began.elapsed() < Duration::from_secs(8) || !is_enough(partition.figures().fenced) {
        let now = (store.health(), partition.figures().fenced);
        assert!(began.elapsed() < PATIENCE, "{flips:?} {now:?}");
        done += every_call(driver.as_mut(), &name(1));
        rounds += 1;
        // While there is no process, calls fail at once.
        std::thread::sleep(Duration::from_millis(1));
        total.add(1);
        partition.step(began.elapsed().as_nanos() as u64);
    }
    println!(
        "{flips:?} bytes altered, {done} of {} calls answered, {:?}",
        10 * rounds,
        store.health()
    );
    assert!(done > 0 && done < 10 * rounds, "{done} of {rounds}");
    flipping.store(false, Ordering::Relaxed);
    await_recovery(&store);
    // The first calls meet connections that are made again. They use another partition: changes
    // written by an altered answer are at the store for good.
    while every_call(driver.as_mut(), &name(2)) < 10 {
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", store.health());
    }
    goes_on_by_the_same_agent(&store, partition, 1000 + rounds);
    assert_eq!(agency.end(), 0);
    assert_eq!(panics.load(Ordering::Relaxed), 0);
}

fn goes_on_by_the_same_agent(store: &Store, mut partition: Partition, counted: u32) {
    let is_fenced = !partition.finish(PATIENCE);
    assert_eq!(is_fenced, partition.figures().fenced, "{:?}", store.health());
    drop(partition);
    let mut next = Partition::open(store, name(0)).unwrap();
    let total = next.counter("total", options()).unwrap();
    let has = total.get();
    let counted = i64::from(counted);
    assert!(
        has == counted || is_fenced && (1000..counted).contains(&has),
        "{has} of {counted}"
    );
    total.add(5);
    assert!(next.finish(PATIENCE), "{:?}", store.health());
    let mut last = Partition::open(store, name(0)).unwrap();
    assert_eq!(last.counter("total", options()).unwrap().get(), has + 5);
}
