//! How members stand: drained, and running again.

use super::rig::*;
use flowkeep_coordinator::agent::connect;
use flowkeep_coordinator::identity::Right;
use flowkeep_coordinator::proto;
use flowkeep_coordinator::refusal::{self, Refusal};
use protocols::membership::Role;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn drain(cluster: &Cluster, at: SocketAddr, member: &str) -> Result<(), tonic::Status> {
    let operator = cluster.operator(Right::Operate);
    let member = member.to_owned();
    block_on(async {
        let mut client = connect(&at.to_string(), &operator).await.unwrap();
        let drained = client.drain(proto::DrainRequest { member }).await;
        drained.map(|_| ())
    })
}

fn standing(status: &proto::StatusAnswer, name: &str) -> Option<proto::Standing> {
    let mut members = status.members.iter();
    let member = members.find(|member| member.name == name)?.member?;
    Some(member.standing())
}

/// A word that it is ready comes with each heartbeat, and an operator's word but once.
#[test]
fn a_member_that_joins_is_drained_all_the_same() {
    unsuspected(drained_as_it_joins);
}

fn drained_as_it_joins() {
    let cluster = Cluster::new("drained");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let edge = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("both run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    let view = status(&reader, at).unwrap().view;
    until("both have the view", || {
        edge.workers[0].view() == u64::from(view) && a.workers[0].view() == u64::from(view)
    });
    // One worker takes no view, so none follows that which has the newcomer.
    a.workers[0].hang(true);
    let b = Process::join(cluster.member("b", 1, &[Role::Runtime], at), &links).unwrap();
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| drain(&cluster, at, "b"));
        std::thread::sleep(Duration::from_millis(400));
        a.workers[0].hang(false);
        drained.join().unwrap().unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
    let after = status(&reader, at).unwrap();
    assert_eq!(standing(&after, "b"), Some(proto::Standing::Leaving));
    links.check();
    drop((edge, a, b));
}

#[test]
fn a_drained_member_runs_again_when_it_is_told_to() {
    unsuspected(resumed);
}

fn resumed() {
    let cluster = Cluster::new("resumed");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let edge = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("both run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    let resume = |right, member: &str| {
        let (operator, member) = (cluster.operator(right), member.to_owned());
        block_on(async {
            let mut client = connect(&at.to_string(), &operator).await.unwrap();
            let resumed = client.resume(proto::ResumeRequest { member }).await;
            resumed.map(|_| ())
        })
    };
    for _ in 0..2 {
        drain(&cluster, at, "a").unwrap();
        let drained = status(&reader, at).unwrap();
        assert_eq!(standing(&drained, "a"), Some(proto::Standing::Leaving));
        resume(Right::Operate, "a").unwrap();
        assert_eq!(running(&status(&reader, at).unwrap()), ["edge", "a"]);
    }
    // Of a member that runs nothing changes.
    let view = status(&reader, at).unwrap().view;
    resume(Right::Operate, "edge").unwrap();
    assert_eq!(status(&reader, at).unwrap().view, view);
    for (right, member, by) in [
        (Right::Read, "a", Refusal::Role),
        (Right::Operate, "nowhere", Refusal::NoMember),
        (Right::Operate, "No Name", Refusal::Malformed),
    ] {
        let refused = resume(right, member).unwrap_err();
        assert!(refusal::is(&refused, by), "{refused:?}");
    }
    links.check();
    drop((edge, a));
}
