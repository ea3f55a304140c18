//! A file whose disk is full, under load: packets go on, and the store has every count when there
//! is room.
//!
//! The disk is full by a limit (`RLIMIT_FSIZE`), in a process of its own, which needs no rights:
//! each byte behind the limit is refused (`EFBIG`), in the middle of a write too.

use crate::faults::{await_failure, await_recovery, goes_on, under_load};
use flowkeep_stores::Report;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;
use std::time::Duration;

/// Says that the test is in the process of its own.
const LIMITED: &str = "FLOWKEEP_TEST_LIMITED";

fn limit(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = bytes.or(maximum);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

/// Whether this is the process of the test's own; where it is not, the test is run in one.
fn is_own(test: &str) -> bool {
    if std::env::var_os(LIMITED).is_some() {
        return true;
    }
    // A signal that the shell ignores stays ignored: the limit is an error then, and no end.
    let done = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// A disk that is full when the file is made leaves no file that is none.
#[test]
fn a_full_disk_at_the_making_of_a_file_leaves_nothing_behind() {
    if !is_own("redb_faults::a_full_disk_at_the_making_of_a_file_leaves_nothing_behind") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("redb:{}", folder.path().join("store").display());
    for bytes in [0, 320, 4096, 20_000] {
        limit(Some(bytes));
        let said = flowkeep_stores::driver_of(&uri).err().unwrap().to_string();
        assert!(said.contains("make room"), "{said}");
        limit(None);
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{bytes}: {left:?}");
    }
    // A making that was killed left this.
    std::fs::write(folder.path().join("store.new"), [0; 100]).unwrap();
    assert!(flowkeep_stores::driver_of(&uri).is_err());
    let claim = || {
        flowkeep_stores::driver_of(&uri)
            .unwrap()
            .claim(&crate::faults::name(0), 5)
    };
    assert_eq!(claim().unwrap(), 5);
    assert_eq!(claim().unwrap(), 6);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_full_disk_holds_no_packet_up_and_loses_nothing() {
    if !is_own("redb_faults::a_full_disk_holds_no_packet_up_and_loses_nothing") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("redb:{}", folder.path().join("store").display());
    // Nothing can be written, the head can, the head and some pages can.
    let limits = [0, 320, 4096, 20_000];
    let (seen, health, reports) = under_load(&uri, &uri, |store, packets| {
        for bytes in limits {
            limit(Some(bytes));
            await_failure(store);
            goes_on(packets, Duration::from_millis(300));
            let health = store.health();
            assert!(health.failing);
            let said = health.last_failure.unwrap().to_string();
            assert!(
                said.contains(&uri) && said.contains("File too large") && said.contains("make room"),
                "{said}"
            );
            limit(None);
            await_recovery(store);
            goes_on(packets, Duration::from_millis(300));
        }
    });
    // Acknowledged changes are in the file.
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
    assert!(health.failures >= limits.len() as u64 && !health.failing);
    let again = reports.iter().filter(|report| matches!(report, Report::Again(_)));
    assert!(again.count() >= limits.len());
}
