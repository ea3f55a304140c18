//! The coordinator's own orders to members: moves, copies, the removal of a runtime that lives; and
//! the loads of runtimes, as all members hear them.

use super::rig::*;
use flowkeep_coordinator::agent::{CallError, Serving};
use flowkeep_coordinator::identity::{Caller, Right};
use flowkeep_coordinator::log::Embedded;
use flowkeep_coordinator::operator::{Line, Operator};
use flowkeep_coordinator::refusal::{self, Refusal};
use flowkeep_coordinator::relay::MemberOrder;
use flowkeep_coordinator::server::Server;
use protocols::membership::{Role, WorkerId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Orders of these tests are said as they are shown.
fn scribe(order: MemberOrder<'_>) -> Result<Vec<u8>, String> {
    match order {
        MemberOrder::Copy { policy: "some", .. } => Err("no policy is called `some`".to_owned()),
        order => Ok(format!("{order:?}").into_bytes()),
    }
}

fn start(cluster: &Cluster) -> Server {
    let mut settings = cluster.settings("127.0.0.1:0".parse().unwrap());
    settings.scribe = scribe;
    let log = Embedded::open(&cluster.log_path()).unwrap();
    let server = Server::start(settings, Box::new(log)).unwrap();
    std::thread::sleep(Duration::from_nanos(TIMING.settling));
    server
}

fn line(cluster: &Cluster, server: &Server, right: Right) -> Line {
    let operator = Operator {
        addresses: vec![server.address().to_string()],
        identity: cluster.operator(right),
    };
    operator.connect().unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, CallError>, by: Refusal) {
    match answer {
        Err(CallError::Refused(status)) if refusal::is(&status, by) => {}
        other => panic!("{by:?}, but {other:?}"),
    }
}

/// A switch, and two members with a runtime each, whose answers repeat their requests.
fn cluster_of_two(cluster: &Cluster, server: &Server) -> (Arc<Links>, [Process; 3], Vec<Serving>) {
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let of = |name: &str, role| Process::join(cluster.member(name, 1, &[role], at), &links).unwrap();
    let all = [
        of("edge", Role::Switch),
        of("a", Role::Runtime),
        of("b", Role::Runtime),
    ];
    let answerer = |request: &[u8]| [b"did: ", request].concat();
    let serving = ["a", "b"].map(|name| {
        let identity = cluster.identity(&Caller::Member(name.into()));
        Serving::start(vec![at.to_string()], identity, Arc::new(answerer)).unwrap()
    });
    let read = cluster.operator(Right::Read);
    until("all run and serve", || {
        status(&read, at)
            .is_some_and(|status| running(&status) == ["edge", "a", "b"] && status.serving == ["a", "b"])
    });
    (links, all, serving.into())
}

#[test]
fn orders_go_to_the_members_that_they_concern() {
    unsuspected(orders);
}

fn orders() {
    let cluster = Cluster::new("orders");
    let server = start(&cluster);
    let (_links, _all, serving) = cluster_of_two(&cluster, &server);
    let mut operate = line(&cluster, &server, Right::Operate);
    let mut read = line(&cluster, &server, Right::Read);

    let said = |order: MemberOrder<'_>| [b"did: ", format!("{order:?}").as_bytes()].concat();
    let order = MemberOrder::Migrate {
        source: 1,
        target: 0,
        flows: 7,
    };
    let answer = operate.migrate(1, 0, 7).unwrap();
    assert_eq!((answer.member.as_str(), answer.answer), ("b", said(order)));
    let order = MemberOrder::Replica {
        runtime: 0,
        replica: Some(1),
    };
    let answers = operate.replica(0, Some(1)).unwrap();
    assert_eq!(answers.len(), 1);
    assert_eq!(
        (answers[0].member.as_str(), &answers[0].answer),
        ("a", &said(order))
    );
    let order = MemberOrder::Copy {
        chain: "all",
        policy: "commit",
    };
    let answers = operate.copies("all", "commit").unwrap();
    let whose: Vec<_> = answers.iter().map(|answer| answer.member.as_str()).collect();
    assert_eq!(whose, ["a", "b"]);
    assert!(answers.iter().all(|answer| answer.answer == said(order)));

    refused(read.migrate(1, 0, 7), Refusal::Role);
    refused(read.replica(0, None), Refusal::Role);
    refused(read.copies("all", ""), Refusal::Role);
    refused(read.recover(0), Refusal::Role);
    refused(operate.migrate(9, 0, 7), Refusal::NoMember);
    refused(operate.migrate(0, 9, 7), Refusal::NoMember);
    refused(operate.replica(0, Some(9)), Refusal::NoMember);
    refused(operate.copies("all", "some"), Refusal::Malformed);
    refused(operate.recover(9), Refusal::NoMember);
    drop(serving);
    until("it serves no more", || operate.migrate(0, 1, 1).is_err());
    refused(operate.migrate(0, 1, 1), Refusal::MemberAway);
}

#[test]
fn a_runtime_is_removed_though_it_lives() {
    unsuspected(removed);
}

fn removed() {
    let cluster = Cluster::new("removed");
    let server = start(&cluster);
    let (links, [edge, a, b], _serving) = cluster_of_two(&cluster, &server);
    until("all act", || {
        let mut all = edge.workers.iter().chain(&a.workers).chain(&b.workers);
        all.all(|worker| links.acts(worker.id))
    });
    let mut operate = line(&cluster, &server, Right::Operate);
    let before = operate.status().unwrap().view;
    let view = operate.recover(1).unwrap();
    assert!(view > before, "{view}");
    let read = cluster.operator(Right::Read);
    let after = status(&read, server.address()).unwrap();
    assert_eq!(running(&after), ["edge", "a"]);
    until("it knows", || {
        b.workers[0].is_fenced.load(Ordering::Relaxed) && !links.acts(WorkerId::runtime(1))
    });
    refused(operate.recover(1), Refusal::NoMember);
    // The removed incarnation is no member by a word of its own: another incarnation of it is.
    drop(b);
    let again = cluster.member("b", 2, &[Role::Runtime], server.address());
    let _again = Process::join(again, &links).unwrap();
    until("it runs again", || {
        status(&read, server.address()).is_some_and(|status| running(&status) == ["edge", "a", "b"])
    });
    links.check();
}

#[test]
fn members_hear_what_runtimes_do() {
    let cluster = Cluster::new("loads");
    let server = start(&cluster);
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let edge = cluster.member("edge", 1, &[Role::Switch], at);
    let loads = edge.loads.clone();
    let _edge = Process::join(edge, &links).unwrap();
    let a = flowkeep_coordinator::agent::Agent::join(cluster.member("a", 1, &[Role::Runtime], at));
    let (_agent, mut member_slots) = a.unwrap();
    member_slots[0]
        .figures()
        .packet_rate
        .store(1234, Ordering::Relaxed);
    member_slots[0].figures().cpu.store(567, Ordering::Relaxed);
    let begun = std::time::Instant::now();
    until("the switch has heard", || {
        member_slots[0].turn(begun.elapsed().as_nanos() as u64);
        let loads = loads.newest();
        loads.len() == 1 && (loads[0].runtime, loads[0].packet_rate, loads[0].cpu) == (0, 1234, 567)
    });
    // A runtime that says nothing is left out, and is not taken for idle.
    until("it is known no more", || loads.newest().is_empty());
}
