//! Which configuration is decided: by whom, in which order, and what members and a new coordinator know of it.

use super::rig::*;
use flowkeep_coordinator::agent::{Agent, CallError, configuration_at};
use flowkeep_coordinator::identity::{Caller, Right};
use flowkeep_coordinator::operator::Operator;
use flowkeep_coordinator::proto;
use flowkeep_coordinator::refusal::{self, Refusal};
use protocols::membership::Role;
use std::sync::Arc;
use std::time::Duration;

fn configuration(number: u64, text: &str) -> proto::Configuration {
    proto::Configuration {
        number,
        digest: format!("{number:02x}"),
        text: text.to_owned(),
        digest_before: "01".to_owned(),
        text_before: "before".to_owned(),
    }
}

fn is(done: Result<(), CallError>, refusal: Refusal) -> bool {
    matches!(&done, Err(CallError::Refused(status)) if refusal::is(status, refusal))
}

#[test]
fn a_configuration_is_decided_once_and_stays_until_the_last_member_leaves() {
    unsuspected(decided);
}

fn decided() {
    let cluster = Cluster::new("configured");
    let server = cluster.start();
    let at = server.address();
    let mut settings = cluster.member("a", 1, &[Role::Runtime], at);
    let known = settings.decided.clone();
    known.put_in_force(1);
    let mut a = Process::join(settings.clone(), &Arc::default()).unwrap();
    let read = cluster.operator(Right::Read);
    until("it runs and has configuration 1", || {
        let status = status(&read, at).unwrap();
        running(&status) == ["a"] && status.members[0].configuration == 1
    });
    let operator = |right| Operator {
        address: at.to_string(),
        identity: cluster.operator(right),
    };
    let mut admin = operator(Right::Admin).connect().unwrap();
    let first = admin.configuration().unwrap();
    assert_eq!((first.number, first.text.as_str()), (1, ""));
    let view = admin.status().unwrap().view;
    let text = "[[chain]]";

    // Who may not, what is none, what does not follow, and another view.
    let mut other = operator(Right::Operate).connect().unwrap();
    assert!(is(other.configure(view, configuration(2, text)), Refusal::Role));
    assert!(
        matches!(other.configuration(), Err(CallError::Refused(why)) if refusal::is(&why, Refusal::Role))
    );
    let wrong = [
        configuration(2, ""),
        configuration(2, &"x".repeat(70_000)),
        proto::Configuration {
            digest: "no digest".to_owned(),
            ..configuration(2, text)
        },
    ];
    for wrong in wrong {
        assert!(is(admin.configure(view, wrong), Refusal::Malformed));
    }
    for number in [0, 1, 3, u64::MAX] {
        let done = admin.configure(view, configuration(number, text));
        assert!(is(done, Refusal::Overtaken), "{number}");
    }
    assert!(is(
        admin.configure(view + 1, configuration(2, text)),
        Refusal::Overtaken
    ));
    let nothing = known.wait(&proto::Decided::default(), Duration::ZERO).unwrap();
    assert_eq!(nothing.number, 1, "no member has heard of any of them");

    admin.configure(view, configuration(2, text)).unwrap();
    until("the member hears of it", || {
        let newest = known.wait(&proto::Decided::default(), Duration::ZERO).unwrap();
        (newest.number, newest.digest.as_str(), newest.reached) == (2, "02", false)
    });
    assert!(is(
        admin.configure(view, configuration(2, "twice")),
        Refusal::Overtaken
    ));
    known.put_in_force(2);
    until("all have it", || {
        let newest = known.wait(&proto::Decided::default(), Duration::ZERO).unwrap();
        newest.reached
    });
    let member = cluster.identity(&Caller::Member("b".into()));
    let kept = configuration_at(&[at.to_string()], &member, PATIENCE).unwrap();
    assert_eq!(kept, configuration(2, text));

    // Another coordinator has it by the log.
    drop((admin, other, server));
    let server = cluster.start();
    let at = server.address();
    assert_eq!(
        configuration_at(&[at.to_string()], &member, PATIENCE).unwrap(),
        kept
    );

    // It ends as if killed, and comes again: what was decided stays.
    a.workers.clear();
    a.agent.take();
    settings.coordinators = vec![at.to_string()];
    settings.incarnation = 2;
    let mut a = Process::join(settings, &Arc::default()).unwrap();
    assert_eq!(
        configuration_at(&[at.to_string()], &member, PATIENCE).unwrap(),
        kept
    );
    // The last one leaves of its own will: files count again.
    a.workers.clear();
    a.agent.take().map(Agent::leave).unwrap().unwrap();
    until("files count", || {
        let now = configuration_at(&[at.to_string()], &member, PATIENCE).unwrap();
        (now.number, now.text.as_str()) == (3, "")
    });
    drop(server);
    let server = cluster.start();
    let now = configuration_at(&[server.address().to_string()], &member, PATIENCE).unwrap();
    assert_eq!((now.number, now.text.as_str()), (3, ""));
}
