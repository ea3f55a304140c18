//! Which configuration is decided: by which caller, in which order, and how members and a new
//! coordinator learn of it.

use super::rig::*;
use flowkeep_coordinator::agent::{Agent, CallError, configuration_at};
use flowkeep_coordinator::identity::{Caller, Right};
use flowkeep_coordinator::operator::Operator;
use flowkeep_coordinator::proto;
use flowkeep_coordinator::refusal::{self, Refusal};
use protocols::membership::Role;
use std::sync::Arc;
use std::time::Duration;

pub fn configuration(number: u64, text: &str) -> proto::Configuration {
    proto::Configuration {
        number,
        digest: format!("{number:02x}"),
        text: text.to_owned(),
        digest_before: "01".to_owned(),
        text_before: "before".to_owned(),
        ..proto::Configuration::default()
    }
}

fn on_trial(number: u64, text: &str, trial: u64) -> proto::Configuration {
    proto::Configuration {
        trial,
        ..configuration(number, text)
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
        addresses: vec![at.to_string()],
        identity: cluster.operator(right),
    };
    let mut admin = operator(Right::Admin).connect().unwrap();
    let first = admin.configuration().unwrap();
    assert_eq!((first.number, first.text.as_str()), (1, ""));
    let view = admin.status().unwrap().view;
    let text = "[[chain]]";

    // A caller without the right, malformed configurations, numbers that do not follow, and another
    // view.
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

    // The member ends as if killed, and comes again: the decided configuration stays.
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

#[test]
fn one_on_trial_goes_back_by_itself_whichever_coordinator_reads_the_log() {
    unsuspected(tried);
}

fn tried() {
    let cluster = Cluster::new("trial");
    let server = cluster.start();
    let member = cluster.identity(&Caller::Member("b".into()));
    let newest = |server: &flowkeep_coordinator::server::Server| {
        let at = server.address().to_string();
        let newest = configuration_at(&[at], &member, PATIENCE).unwrap();
        (newest.number, newest.text)
    };
    let admin = |server: &flowkeep_coordinator::server::Server| {
        let operator = Operator {
            addresses: vec![server.address().to_string()],
            identity: cluster.operator(Right::Admin),
        };
        operator.connect().unwrap()
    };
    let left = |line: &mut flowkeep_coordinator::operator::Line| {
        let status = line.status().unwrap();
        status.configuration.unwrap().trial
    };
    let mut line = admin(&server);
    assert!(is(line.confirm().map(drop), Refusal::NoTrial));
    for wrong in [1, 999, 86_400_001, u64::MAX] {
        assert!(is(
            line.configure(1, on_trial(2, "new", wrong)),
            Refusal::Malformed
        ));
    }
    let mut other = Operator {
        addresses: vec![server.address().to_string()],
        identity: cluster.operator(Right::Operate),
    }
    .connect()
    .unwrap();
    assert!(is(other.confirm().map(drop), Refusal::Role));

    // Confirmed: it stays, and there is nothing more to confirm.
    line.configure(1, on_trial(2, "new", 60_000)).unwrap();
    assert!((1..=60_000).contains(&left(&mut line)));
    assert!(is(
        line.configure(1, configuration(3, "another")),
        Refusal::OnTrial
    ));
    assert_eq!(line.confirm().unwrap(), 2);
    assert_eq!(left(&mut line), 0);
    assert!(is(line.confirm().map(drop), Refusal::NoTrial));

    // Not confirmed: the text before has another number, and the one on trial is not to be had by a
    // rollback.
    line.configure(1, on_trial(3, "newer", 1000)).unwrap();
    until("it goes back", || newest(&server) == (4, "before".to_owned()));
    let back = line.configuration().unwrap();
    assert_eq!(
        (back.digest.as_str(), back.text_before.as_str(), back.trial),
        ("01", "", 0)
    );
    assert!(is(line.confirm().map(drop), Refusal::NoTrial));

    // An operator goes back before the time is over.
    line.configure(1, on_trial(5, "third", 60_000)).unwrap();
    let before = proto::Configuration {
        digest: "01".to_owned(),
        ..configuration(6, "before")
    };
    line.configure(1, before).unwrap();
    assert_eq!((newest(&server).0, left(&mut line)), (6, 0));

    // The coordinator ends during a trial, and another begins: by the log it is on trial still.
    line.configure(1, on_trial(7, "fourth", 4000)).unwrap();
    drop((line, other, server));
    let server = cluster.start();
    let mut line = admin(&server);
    assert!((1..=4000).contains(&left(&mut line)));
    until("the next coordinator has it go back", || {
        newest(&server) == (8, "before".to_owned())
    });
    // A confirmed configuration is so for the next coordinator.
    line.configure(1, on_trial(9, "fifth", 2000)).unwrap();
    assert_eq!(line.confirm().unwrap(), 9);
    drop((line, server));
    let server = cluster.start();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(newest(&server), (9, "fifth".to_owned()));
}
