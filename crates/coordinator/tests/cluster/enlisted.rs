//! Members that no configuration lists: numbers, contacts, and refusals.

use super::rig::*;
use flowkeep_coordinator::agent::{CallError, enlist_at};
use flowkeep_coordinator::identity::{Caller, Right};
use flowkeep_coordinator::proto::{self, Contact, EnlistAnswer, EnlistRequest, Plan};
use flowkeep_coordinator::refusal::{self, Refusal};
use protocols::membership::{Role, WorkerId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const PLAN: [u32; 2] = [2, 5];

fn plan([listed, most]: [u32; 2]) -> Plan {
    Plan {
        listed,
        most,
        words: vec![7, 8],
    }
}

fn request(host: &str, address: &str, runtimes: u32) -> EnlistRequest {
    EnlistRequest {
        contact: Some(Contact {
            host: host.to_owned(),
            address: address.to_owned(),
            ..Contact::default()
        }),
        runtimes,
        plan: Some(plan(PLAN)),
    }
}

fn enlist(
    cluster: &Cluster,
    at: SocketAddr,
    member: &str,
    request: &EnlistRequest,
) -> Result<EnlistAnswer, CallError> {
    let identity = cluster.identity(&Caller::Member(member.into()));
    enlist_at(&[at.to_string()], &identity, request, Duration::ZERO)
}

#[track_caller]
fn refused(answer: Result<EnlistAnswer, CallError>, by: Refusal, says: &[&str]) {
    let why = answer.expect_err("it is refused").to_string();
    let name = why.split(':').next().unwrap_or_default().to_owned();
    assert!(
        name == by.name() && says.iter().all(|word| why.contains(word)),
        "{why}"
    );
}

#[test]
fn members_that_are_not_listed_get_numbers_and_are_told_of() {
    unsuspected(numbers);
}

fn numbers() {
    let cluster = Cluster::new("enlisted");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let good = request("h", "10.0.0.9", 2);
    refused(
        enlist(&cluster, at, "d", &good),
        Refusal::MemberAway,
        &["start one of them"],
    );
    let mut listed = cluster.member("a", 1, &[Role::Runtime], at);
    listed.numbers = vec![0];
    listed.plan = Some(plan(PLAN));
    let heard = listed.contacts.clone();
    let a = Process::join(listed, &links).unwrap();

    // A malformed contact or plan is refused and changes nothing.
    let contact = |change: &dyn Fn(&mut Contact)| {
        let mut wrong = good.clone();
        wrong.contact.iter_mut().for_each(change);
        wrong
    };
    for wrong in [
        EnlistRequest::default(),
        EnlistRequest {
            runtimes: 0,
            ..good.clone()
        },
        EnlistRequest {
            runtimes: 65,
            ..good.clone()
        },
        EnlistRequest {
            plan: None,
            ..good.clone()
        },
        EnlistRequest {
            plan: Some(plan([3, 2])),
            ..good.clone()
        },
        EnlistRequest {
            plan: Some(plan([1, 65])),
            ..good.clone()
        },
        EnlistRequest {
            plan: Some(Plan {
                words: vec![0; 33],
                ..plan(PLAN)
            }),
            ..good.clone()
        },
        contact(&|of| of.host.clear()),
        contact(&|of| of.host = "x".repeat(108)),
        contact(&|of| of.socket = "a\u{7}b".to_owned()),
        contact(&|of| of.address = "somewhere".to_owned()),
        contact(&|of| of.address = "0.0.0.0".to_owned()),
        contact(&|of| of.link_address = vec![2; 5]),
        contact(&|of| of.interface = "eth0".to_owned()),
    ] {
        refused(enlist(&cluster, at, "d", &wrong), Refusal::Malformed, &[]);
    }
    let other = EnlistRequest {
        plan: Some(plan([2, 6])),
        ..good.clone()
    };
    refused(
        enlist(&cluster, at, "d", &other),
        Refusal::PlanDiffers,
        &["2 runtimes of 6", "2 of 5"],
    );
    refused(enlist(&cluster, at, "a", &good), Refusal::NameTaken, &["`a`"]);
    refused(
        enlist(&cluster, at, "d", &request("h", "10.0.0.9", 4)),
        Refusal::NoRoom,
        &["runtimes_max"],
    );
    let operator = cluster.operator(Right::Admin);
    let asked = enlist_at(&[at.to_string()], &operator, &good, Duration::ZERO);
    refused(asked, Refusal::Role, &["a member"]);

    let answer = enlist(&cluster, at, "d", &good).unwrap();
    assert_eq!((answer.numbers.as_slice(), answer.incarnation), (&[2, 3][..], 0));
    assert_eq!(answer.plan, Some(plan(PLAN)));
    assert_eq!(
        enlist(&cluster, at, "d", &good).unwrap().numbers,
        [2, 3],
        "asked twice"
    );
    assert!(
        heard.wait(&[], Duration::ZERO).unwrap().is_empty(),
        "it is in no view"
    );
    let mut settings = cluster.member("d", 5, &[Role::Runtime, Role::Runtime], at);
    settings.numbers = vec![2, 3];
    let mut d = Process::join(settings.clone(), &links).unwrap();
    assert_eq!(d.ids(), [WorkerId::runtime(2), WorkerId::runtime(3)]);
    let told = |incarnation| {
        let heard = heard.wait(&[], Duration::ZERO).unwrap();
        let of = |contact: &Contact| {
            let workers = contact
                .workers
                .iter()
                .map(|worker| (worker.number, worker.incarnation));
            (
                contact.member.clone(),
                contact.address.clone(),
                workers.collect::<Vec<_>>(),
            )
        };
        let all: Vec<_> = heard.iter().map(of).collect();
        all == [(
            "d".to_owned(),
            "10.0.0.9".to_owned(),
            vec![(2, incarnation), (3, incarnation)],
        )]
    };
    until("others are told", || told(5));

    // While it is in view, its name, its address and its numbers are its own.
    refused(
        enlist(&cluster, at, "d", &request("h", "10.0.0.8", 2)),
        Refusal::NameTaken,
        &["10.0.0.9"],
    );
    refused(
        enlist(&cluster, at, "e", &request("i", "10.0.0.9", 1)),
        Refusal::AddressTaken,
        &["`d`"],
    );
    refused(
        enlist(&cluster, at, "e", &request("i", "10.0.0.8", 2)),
        Refusal::NoRoom,
        &["2 (d)"],
    );

    // Another coordinator has all of it by the log.
    drop(server);
    let server = cluster.start();
    let at = server.address();
    assert_eq!(enlist(&cluster, at, "d", &good).unwrap().numbers, [2, 3]);
    refused(
        enlist(&cluster, at, "e", &request("i", "10.0.0.9", 1)),
        Refusal::AddressTaken,
        &["`d`"],
    );

    // `d` dies; when a view is without it, its numbers may pass to another member, above its
    // incarnation.
    d.workers.clear();
    d.agent.take();
    let reader = cluster.operator(Right::Read);
    // Live members know the first coordinator only: the next ones join at the second.
    drop(a);
    let mut listed = cluster.member("a", 2, &[Role::Runtime], at);
    listed.numbers = vec![0];
    listed.plan = Some(plan(PLAN));
    listed.first = 1;
    let heard = listed.contacts.clone();
    let _a = Process::join(listed, &links).unwrap();
    settings.coordinators = vec![at.to_string()];
    settings.incarnation = 6;
    settings.first = 5;
    let mut d = Process::join(settings, &links).unwrap();
    until("it is told of again", || {
        let heard = heard.wait(&[], Duration::ZERO).unwrap();
        heard.len() == 1 && heard[0].workers.iter().all(|worker| worker.incarnation == 6)
    });
    d.workers.clear();
    d.agent
        .take()
        .map(flowkeep_coordinator::agent::Agent::leave)
        .unwrap()
        .unwrap();
    until("it is in no view", || {
        status(&reader, at).is_some_and(|status| status.members.iter().all(|member| member.name != "d"))
    });
    until("others are told", || {
        heard.wait(&[], Duration::ZERO).unwrap().is_empty()
    });
    let passed = enlist(&cluster, at, "e", &request("i", "10.0.0.9", 2)).unwrap();
    // No member has had 4, but one has had 3: `e` gets the two that `d` had.
    assert_eq!((passed.numbers.as_slice(), passed.incarnation), (&[2, 3][..], 6));
    let early = proto::JoinRequest {
        incarnation: 6,
        roles: vec![proto::WorkerRole::Runtime.into(); 2],
        numbers: vec![2, 3],
        ..proto::JoinRequest::default()
    };
    let identity = cluster.identity(&Caller::Member("e".into()));
    let early = block_on(async {
        let mut client = flowkeep_coordinator::agent::connect(&at.to_string(), &identity)
            .await
            .unwrap();
        client.join(early).await.unwrap_err()
    });
    assert!(refusal::is(&early, Refusal::Incarnation), "{early:?}");
    drop(server);
    let server = cluster.start();
    let again = enlist(&cluster, server.address(), "e", &request("i", "10.0.0.9", 2));
    // No listed member has joined that coordinator; it knows `a` by the log.
    assert_eq!(again.unwrap().numbers, [2, 3]);
}

/// A name that has lost one of its numbers to another gets others, and by the log, too.
#[test]
fn a_member_whose_numbers_passed_on_in_part_gets_others() {
    let cluster = Cluster::new("passed-on");
    let server = cluster.start();
    let at = server.address();
    let mut listed = cluster.member("a", 1, &[Role::Runtime], at);
    listed.numbers = vec![0];
    listed.plan = Some(plan(PLAN));
    let links = Arc::new(Links::default());
    let a = Process::join(listed, &links).unwrap();
    let numbers = |at, member: &str, runtimes| {
        let answer = enlist(&cluster, at, member, &request("h", "", runtimes));
        answer.map(|answer| answer.numbers)
    };
    assert_eq!(numbers(at, "d", 2).unwrap(), [2, 3]);
    assert_eq!(numbers(at, "e", 1).unwrap(), [4]);
    // No number is free.
    assert_eq!(numbers(at, "f", 1).unwrap(), [2]);
    drop((a, server));
    let server = cluster.start();
    let at = server.address();
    // None of them is in view, and two follow each other.
    assert_eq!(numbers(at, "d", 2).unwrap(), [2, 3]);
    drop(server);
    let server = cluster.start();
    assert_eq!(numbers(server.address(), "d", 2).unwrap(), [2, 3]);
    assert_eq!(numbers(server.address(), "f", 1).unwrap(), [2]);
}

/// An incarnation that never came into a view, since a later one asked, holds no number.
#[test]
fn an_incarnation_that_came_too_late_holds_no_number() {
    unsuspected(came_too_late);
}

fn came_too_late() {
    let cluster = Cluster::new("too-late");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let mut settings = cluster.member("a", 1, &[Role::Switch], at);
    settings.numbers = vec![0];
    settings.plan = Some(plan([2, 3]));
    let edge = Process::join(settings, &links).unwrap();
    let one = |host: &str| EnlistRequest {
        plan: Some(plan([2, 3])),
        ..request(host, "", 1)
    };
    assert_eq!(enlist(&cluster, at, "d", &one("h")).unwrap().numbers, [2]);
    until("it runs", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["a"])
    });
    let identity = cluster.identity(&Caller::Member("d".into()));
    let join = |incarnation| proto::JoinRequest {
        incarnation,
        roles: vec![proto::WorkerRole::Runtime.into()],
        numbers: vec![2],
        ..proto::JoinRequest::default()
    };
    let b = cluster.identity(&Caller::Member("b".into()));
    block_on(async {
        let place = at.to_string();
        let mut client = flowkeep_coordinator::agent::connect(&place, &identity)
            .await
            .unwrap();
        let mut of_b = flowkeep_coordinator::agent::connect(&place, &b).await.unwrap();
        // The switch takes no view, so none follows that which has `b`.
        edge.workers[0].hang(true);
        let joins = proto::JoinRequest {
            numbers: vec![1],
            plan: Some(plan([2, 3])),
            ..join(1)
        };
        of_b.join(joins).await.unwrap();
        let first = client.join(join(5));
        let late = tokio::time::timeout(Duration::from_millis(100), first).await;
        assert!(late.is_err(), "{late:?}");
        let mut other = client.clone();
        let second = other.join(join(6));
        let goes_on = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            edge.workers[0].hang(false);
        };
        let (joined, ()) = tokio::join!(second, goes_on);
        let worker = joined.unwrap().into_inner().workers[0];
        assert_eq!((worker.number, worker.incarnation), (2, 6));
        let leaves = proto::LeaveRequest { incarnation: 6 };
        client.leave(leaves).await.unwrap();
    });
    assert_eq!(enlist(&cluster, at, "e", &one("i")).unwrap().numbers, [2]);
    drop(edge);
}
