//! Timers of a node that is killed and stays away, with a coordinator: another node fires them.

use super::timers::COUNT;
use super::{Site, chain, most, said, sum};
use crate::rig::Member;
use crate::storing::{Server, output, server, wait};
use std::process::Command;

/// A node that joins later gets new flows.
const LIFE: &str = "life = { packets = { fixed = 20.0 } }";

fn site(name: &str, server: &Server) -> Site {
    let more = "[replication]\nreturn_max = \"2s\"\n";
    let chain = chain("alarms", "apart_ms = 20", &server.uri()) + more;
    Site::of(name, 2000.0, LIFE, &chain)
}

/// The store's sums of all runtimes: how many timers have fired, and how often in all.
fn fired(server: &Server) -> Option<(u64, u64)> {
    let words = ["store", "inspect", &server.uri(), "--merged", "--json"];
    let (done, said, error) = output(&words);
    assert!(done, "{error}");
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let rows = said["variables"].as_array()?;
    let row = rows.iter().find(|row| row["name"] == "fired")?;
    Some((row["elements"].as_u64()?, row["sum"].as_u64()?))
}

/// Both nodes have armed their timers, and the left one has fired some.
fn wait_for_all(left: &Member, right: &Member) {
    for node in [left, right] {
        wait("all are armed, and some have fired", || {
            let said = said(node, "alarms", "state")?;
            (sum(&said, "armed") == COUNT && sum(&said, "fired") > 10).then_some(())
        });
    }
}

/// All timers of both nodes have fired, each once, by the store.
fn each_has_fired_once(right: &Member, server: &Server) {
    let said = wait("all have fired", || {
        said(right, "alarms", "state").filter(|said| sum(said, "waiting") == 0)
    });
    assert_eq!(most(&said, "most"), 1, "{said:?}");
    let all = (2 * COUNT, 2 * COUNT);
    wait("the store has it", || fired(server).filter(|fired| *fired == all));
}

/// The killed node begins again while the other fires them, too, and fires none.
#[test]
fn timers_of_a_node_that_is_killed_fire_once_at_another() {
    let Some(server) = server(&[]) else { return };
    let mut site = site("timers-view", &server);
    let _coordinator = site.joins();
    let (_front, mut left, right) = (site.start("front"), site.start("left"), site.start("right"));
    wait_for_all(&left, &right);
    left.kill();
    let events = wait("they are taken over", || {
        let events = std::fs::read_to_string(site.folder.0.join("right.jsonl")).ok()?;
        events.contains("\"timers_taken_over\"").then_some(events)
    });
    let taken = events.lines().find(|line| line.contains("\"timers_taken_over\""));
    let taken: serde_json::Value = serde_json::from_str(taken.expect("a line")).expect("JSON");
    assert_eq!(taken["partition"], "alarms@left@0", "{taken}");
    let left = site.start("left");
    let state = wait("it begins", || said(&left, "alarms", "state"));
    assert_eq!(
        (sum(&state, "armed"), sum(&state, "waiting")),
        (COUNT, 0),
        "{state:?}"
    );
    each_has_fired_once(&right, &server);
    let state = said(&left, "alarms", "state").expect("an answer");
    assert_eq!(sum(&state, "waiting"), 0, "{state:?}");
    assert_eq!(fired(&server), Some((2 * COUNT, 2 * COUNT)));
}

/// The heir is killed while it takes them over, and begins again; the other stays away.
#[test]
fn an_heir_that_is_killed_amid_taking_over_begins_again_and_fires_each_once() {
    let Some(server) = server(&[]) else { return };
    let mut site = site("timers-amid", &server);
    let _coordinator = site.joins();
    let (_front, mut left, mut right) = (site.start("front"), site.start("left"), site.start("right"));
    wait_for_all(&left, &right);
    left.kill();
    let has_record = || {
        let said = server.try_say("EXISTS flowkeep@record@taking%2Falarms%40right%401");
        said.is_ok_and(|said| said.starts_with(":1"))
    };
    let began = std::time::Instant::now();
    while !has_record() {
        assert!(began.elapsed().as_secs() < 60, "nothing is taken over");
    }
    // No step of it is done any more at the store.
    let stop = |signal: &str| {
        let server = server.child.as_ref().expect("it runs").id().to_string();
        let done = Command::new("kill").args([signal, &server]).status();
        assert!(done.expect("kill").success());
    };
    stop("-STOP");
    right.kill();
    stop("-CONT");
    println!("killed amid taking over: {}", has_record());
    let right = site.start("right");
    wait("it begins", || said(&right, "alarms", "state"));
    // A member that this life has not seen in a view is waited for.
    wait("none waits at the left one", || {
        (waiting_at(&server, "left") == 0).then_some(())
    });
    each_has_fired_once(&right, &server);
    assert!(!has_record());
}

/// Timers that the store has of a member.
fn waiting_at(server: &Server, member: &str) -> u64 {
    let (done, said, error) = output(&["store", "inspect", &server.uri(), "--json"]);
    assert!(done, "{error}");
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let rows = said["variables"].as_array().cloned().unwrap_or_default();
    let own = rows
        .iter()
        .filter(|row| row["member"] == member && row["kind"] == "Timers");
    own.filter_map(|row| row["elements"].as_u64()).sum()
}
