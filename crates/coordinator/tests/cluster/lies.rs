//! A store that lies, and one whose records are damaged: nothing is decided, and the coordinator
//! says which record it is; members go on.

use super::rig::*;
use flowkeep_coordinator::agent::{CallError, enrol};
use flowkeep_coordinator::identity::{Right, Token};
use flowkeep_coordinator::log::{Embedded, Log, LogError};
use flowkeep_coordinator::refusal::{self, Refusal};
use flowkeep_coordinator::server::{Server, StartError, since_1970};
use protocols::membership::Role;
use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A store's treatment of the bytes that it is handed. It says that it has written them in any
/// case.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Lie {
    #[default]
    None,
    /// It keeps nothing.
    Swallows,
    /// It keeps other bytes.
    Flips,
}

#[derive(Default, Debug)]
struct Disk {
    bytes: Vec<u8>,
    lie: Lie,
}

/// A disk in memory.
#[derive(Clone, Default, Debug)]
struct Store(Arc<Mutex<Disk>>);

impl Store {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    fn log(&self) -> Embedded {
        let store = self.clone();
        Embedded::on(move || store.clone())
    }
}

fn beyond() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

impl StorageBackend for Store {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (disk, start) = (self.disk(), offset as usize);
        let there = disk.bytes.get(start..start + out.len()).ok_or_else(beyond)?;
        out.copy_from_slice(there);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk().bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut disk, start) = (self.disk(), offset as usize);
        let lie = disk.lie;
        let there = disk.bytes.get_mut(start..start + data.len());
        let there = there.ok_or_else(beyond)?;
        if lie != Lie::Swallows {
            there.copy_from_slice(data);
        }
        if lie == Lie::Flips {
            there[data.len() / 2] ^= 1;
        }
        Ok(())
    }
}

#[test]
fn a_record_that_was_written_and_is_not_there_is_lost_by_name() {
    for lie in [Lie::Swallows, Lie::Flips] {
        let store = Store::default();
        let mut log = store.log();
        log.append(0, b"first").unwrap();
        store.disk().lie = lie;
        let why = log.append(1, b"second").expect_err("it is not there");
        assert!(matches!(why, LogError::Lost(1)), "{lie:?}: {why}");
        assert!(why.may_pass() && why.to_string().contains("record 1 was written and is not there"));
        if lie == Lie::Swallows {
            store.disk().lie = Lie::None;
            log.append(1, b"second").unwrap();
            let all = [(0, b"first".to_vec()), (1, b"second".to_vec())];
            assert_eq!(log.read().unwrap(), all);
        }
    }
}

#[test]
fn a_store_that_lies_has_nothing_decided() {
    unsuspected(nothing_is_decided);
}

fn nothing_is_decided() {
    let (cluster, store) = (Cluster::new("lies"), Store::default());
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(cluster.settings(listen), Box::new(store.log())).unwrap();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    let view = status(&reader, at).unwrap().view;
    // The members' reports are written by then.
    std::thread::sleep(Duration::from_nanos(TIMING.suspicion));

    store.disk().lie = Lie::Swallows;
    let token = Token::make(&cluster.authority, "c", since_1970(), Duration::from_secs(60)).unwrap();
    let first = block_on(enrol(&at.to_string(), &token));
    assert!(first.is_err(), "a token that is not written is not used up");
    until("it says so", || {
        status(&reader, at).is_some_and(|status| status.trouble.contains("the store lies"))
    });
    let Err(CallError::Refused(refused)) = block_on(enrol(&at.to_string(), &token)) else {
        panic!("not refused");
    };
    assert!(refusal::is(&refused, Refusal::LogUnwritable), "{refused:?}");
    a.workers[0].hang(true);
    std::thread::sleep(Duration::from_nanos(2 * TIMING.suspicion));
    let now = status(&reader, at).unwrap();
    assert_eq!((now.view, now.members.len()), (view, 2));
    assert!(now.members.iter().all(|member| !member.suspected));
    a.workers[0].hang(false);
    until("members go on", || {
        links.acts(switch.workers[0].id) && links.acts(a.workers[0].id)
    });

    // The store says the truth again: the same token is good.
    store.disk().lie = Lie::None;
    until("it goes on", || {
        status(&reader, at).is_some_and(|status| status.trouble.is_empty())
    });
    drop(server);
    let server = Server::start(cluster.settings(at), Box::new(store.log())).unwrap();
    until("it has settled", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    assert_eq!(status(&reader, at).unwrap().trouble, "");
    links.check();
    drop(server);
}

#[test]
fn a_damaged_record_is_named_and_no_coordinator_starts() {
    let cluster = Cluster::new("damaged");
    let server = cluster.start();
    let links = Arc::new(Links::default());
    let edge = cluster.member("edge", 1, &[Role::Switch], server.address());
    let edge = Process::join(edge, &links).unwrap();
    assert_eq!(edge.ids().len(), 1);
    drop((edge, server));
    let records = Embedded::open(&cluster.log_path()).unwrap().read().unwrap();
    let (number, record) = records.last().expect("some");
    let good = std::fs::read(cluster.log_path()).unwrap();
    let (mut bad, mut copies) = (good.clone(), 0);
    for start in 0..=good.len() - record.len() {
        if good[start..].starts_with(record) {
            bad[start] ^= 1;
            copies += 1;
        }
    }
    assert!(copies > 0, "the record is in the file as it is");
    std::fs::write(cluster.log_path(), bad).unwrap();

    let listen = "127.0.0.1:0".parse().unwrap();
    let start = || {
        let log = Embedded::open(&cluster.log_path()).unwrap();
        Server::start(cluster.settings(listen), Box::new(log))
    };
    let why = start().err().expect("it does not start");
    assert!(
        matches!(&why, StartError::Log(LogError::Damaged(damaged)) if damaged == number),
        "{why}"
    );
    assert!(!why.may_pass(), "its guard does not try again");
    assert!(
        why.to_string().contains(&format!("record {number} is damaged")),
        "{why}"
    );
    // The copy that it asks for.
    std::fs::write(cluster.log_path(), good).unwrap();
    start().unwrap();
}
