//! State that several starts have in common: how long leases last, and which incarnations were
//! used.

use super::rig::*;
use flowkeep_coordinator::agent::connect;
use flowkeep_coordinator::identity::Caller;
use flowkeep_coordinator::log::Embedded;
use flowkeep_coordinator::proto;
use flowkeep_coordinator::server::{Event, Server, StartError};
use protocols::membership::{Role, Term, Timing};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

fn start(cluster: &Cluster, timing: Timing) -> Result<Server, StartError> {
    let mut settings = cluster.settings("127.0.0.1:0".parse().unwrap());
    settings.timing = timing;
    let log = Embedded::open(&cluster.log_path()).unwrap();
    let server = Server::start(settings, Box::new(log))?;
    thread::sleep(Duration::from_nanos(TIMING.settling));
    Ok(server)
}

/// The term with which a member joins.
fn term_of(cluster: &Cluster, server: &Server, name: &str) -> u64 {
    let identity = cluster.identity(&Caller::Member(name.into()));
    let joined = block_on(async {
        let mut client = connect(&server.address().to_string(), &identity).await.unwrap();
        let request = proto::JoinRequest {
            incarnation: 1,
            roles: vec![proto::WorkerRole::Runtime.into()],
            ..proto::JoinRequest::default()
        };
        client.join(request).await.unwrap().into_inner()
    });
    joined.lease
}

fn lasting(lease: u64) -> Timing {
    let term = Term { lease };
    Timing { term, ..TIMING }
}

/// A holder counts its own term and a grantor its own: members of one cluster have one.
#[test]
fn another_lease_at_a_restart_gives_no_member_another_term() {
    unsuspected(one_term);
}

fn one_term() {
    let cluster = Cluster::new("terms");
    // No member has joined yet: the words of the start count.
    drop(start(&cluster, lasting(200_000_000)).unwrap());
    let first = start(&cluster, lasting(300_000_000)).unwrap();
    let said = |what: &Event| cluster.events.lock().unwrap().contains(what);
    let is = Duration::from_millis(300);
    let other = |said: u64| Event::OtherTerm {
        said: Duration::from_millis(said),
        is,
    };
    assert!(!said(&other(200)));
    let (at, links) = (first.address(), Arc::new(Links::default()));
    let mut edge = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    drop(first);

    let short = Timing {
        suspicion: 250_000_000,
        ..lasting(40_000_000)
    };
    let refused = start(&cluster, short).err().unwrap().to_string();
    assert!(
        refused.contains("--suspicion 250ms") && refused.contains("300ms"),
        "{refused}"
    );

    let mut settings = cluster.settings(at);
    settings.timing = lasting(900_000_000);
    let log = Embedded::open(&cluster.log_path()).unwrap();
    let second = Server::start(settings, Box::new(log)).unwrap();
    assert!(said(&other(900)));
    thread::sleep(Duration::from_nanos(TIMING.settling));
    assert_eq!(term_of(&cluster, &second, "a"), 300_000_000);
    edge.workers.clear();
    drop((edge, second));
}

/// An incarnation that an agent counts up is written down before a coordinator hears of it: a clock
/// that goes back gives no second process the same incarnation.
#[test]
fn an_incarnation_that_an_agent_counts_up_is_kept_before_it_is_used() {
    unsuspected(counted_up);
}

fn counted_up() {
    let cluster = Cluster::new("counted-up");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let mut edge = Process::join(cluster.member("edge", 9, &[Role::Switch], at), &links).unwrap();
    edge.workers.clear();
    edge.agent.take().unwrap().leave().unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let noted = kept.clone();
    let mut settings = cluster.member("edge", 8, &[Role::Switch], at);
    settings.keep = Arc::new(move |incarnation| {
        noted.lock().unwrap().push(incarnation);
        Ok(())
    });
    let mut edge = Process::join(settings, &links).unwrap();
    assert_eq!(*kept.lock().unwrap(), [10]);
    edge.workers.clear();
    edge.agent.take().unwrap().leave().unwrap();
    // An incarnation that is not written is not used.
    let mut settings = cluster.member("edge", 10, &[Role::Switch], at);
    settings.keep = Arc::new(|_| Err("no room".to_owned()));
    let refused = Process::join(settings, &links).err().unwrap().to_string();
    assert!(refused.contains("no room"), "{refused}");
}

/// A member whose clock was far ahead once, and whose incarnations' file is lost.
#[test]
fn a_member_whose_clock_was_ahead_joins_again() {
    unsuspected(clock_was_ahead);
}

fn clock_was_ahead() {
    let cluster = Cluster::new("ahead");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let ahead = 1_000_000_000_000_000_000;
    let mut edge = Process::join(cluster.member("edge", ahead, &[Role::Switch], at), &links).unwrap();
    edge.workers.clear();
    edge.agent.take().unwrap().leave().unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let noted = kept.clone();
    let mut settings = cluster.member("edge", 5, &[Role::Switch], at);
    settings.patience = Duration::from_secs(10);
    settings.keep = Arc::new(move |incarnation| {
        noted.lock().unwrap().push(incarnation);
        Ok(())
    });
    let mut edge = Process::join(settings, &links).unwrap();
    assert_eq!(*kept.lock().unwrap(), [ahead + 1]);
    edge.workers.clear();
    edge.agent.take().unwrap().leave().unwrap();
    // The last number that there may be: none is behind it, and it is said at once.
    let last = i64::MAX as u64 - 1;
    let mut edge = Process::join(cluster.member("edge", last, &[Role::Switch], at), &links).unwrap();
    edge.workers.clear();
    edge.agent.take().unwrap().leave().unwrap();
    let begun = std::time::Instant::now();
    let refused = Process::join(cluster.member("edge", 5, &[Role::Switch], at), &links);
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains(&last.to_string()), "{refused}");
    assert!(begun.elapsed() < PATIENCE / 2);
}
