//! A test that needs root says so and does not count as passed.

use super::*;

/// A lab, or a line that says why not.
fn lab() -> Option<Lab> {
    match Lab::new() {
        Ok(lab) => Some(lab),
        Err(error @ (LabError::NotRoot | LabError::NoProgram { .. })) => {
            println!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_name_tells_its_owner() {
    let owner = Owner {
        process: 4711,
        began: 88,
    };
    assert_eq!(Owner::of("fk-4711-88-0-client"), Some(owner));
    assert_eq!(Owner::of("fk-4711-88-0-a-b"), Some(owner));
    for other in [
        "fk-ports-x",
        "fk-4711",
        "fk-4711-88",
        "fk-4711-88-0",
        "other",
        "fk-4711-88-x-client",
    ] {
        assert_eq!(Owner::of(other), None, "{other}");
    }
    assert!(Owner::this().is_alive());
    let reused = Owner {
        began: Owner::this().began + 1,
        ..Owner::this()
    };
    assert!(!reused.is_alive());
}

#[test]
fn hosts_joined_by_a_cable_reach_each_other_and_are_gone_afterwards() {
    let Some(mut lab) = lab() else { return };
    let (one, other) = (lab.namespace("one").unwrap(), lab.namespace("other").unwrap());
    lab.cable((&one, "eth0"), (&other, "eth0")).unwrap();
    for (host, number) in [(&one, 1), (&other, 2)] {
        host.address("eth0", &format!("10.0.0.{number}/24")).unwrap();
        host.address("eth0", &format!("2001:db8::{number}/64")).unwrap();
    }
    let limit = || Run::within(Duration::from_secs(10));
    one.run("ip route get 10.0.0.2", limit()).unwrap();
    let names = [one.name().to_owned(), other.name().to_owned()];
    // A program that runs in it is ended with it.
    let _sleeper = one.start("sleep 1000").unwrap();
    let error = one.run("ip route get 192.0.2.1", limit()).unwrap_err();
    assert!(matches!(error, LabError::Failed { .. }), "{error}");
    let error = one
        .run("sleep 1000", Run::within(Duration::from_millis(50)))
        .unwrap_err();
    assert!(matches!(error, LabError::TooLong { .. }), "{error}");
    assert!(names.iter().all(|name| Path::new(NAMES).join(name).exists()));
    drop(lab);
    assert!(!names.iter().any(|name| Path::new(NAMES).join(name).exists()));
}

#[test]
fn what_a_dead_process_left_is_taken_down_and_what_lives_stays() {
    let Some(mut lab) = lab() else { return };
    let alive = lab.namespace("alive").unwrap();
    // As if a process had been killed: no process has this number with that beginning.
    let left = format!("fk-{}-1-0-left", std::process::id());
    ip(&["netns", "add", &left]).unwrap();
    let mut sleeper = Command::new("ip")
        .args(["netns", "exec", &left, "sleep", "1000"])
        .spawn()
        .unwrap();
    while Command::new("ip")
        .args(["netns", "pids", &left])
        .output()
        .unwrap()
        .stdout
        .is_empty()
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Another test's lab may sweep in the same moment; gone it is in any case.
    sweep().unwrap();
    assert!(!Path::new(NAMES).join(&left).exists());
    assert!(Path::new(NAMES).join(alive.name()).exists());
    assert!(
        !sleeper.wait().unwrap().success(),
        "what ran in it has been ended"
    );
}
