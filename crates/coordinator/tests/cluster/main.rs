//! A coordinator and members in threads and processes on loopback, with real TLS, logs and clocks.

mod aged;
mod configured;
mod enlisted;
mod etcd;
mod hostile;
mod lies;
#[path = "../../../flowkeep/tests/live/machine.rs"]
mod machine;
mod orders;
mod relay;
mod rig;
mod silent;
mod standings;
mod terms;

use flowkeep_coordinator::agent::{AgentError, CallError, connect, enrol};
use flowkeep_coordinator::identity::{Right, Token};
use flowkeep_coordinator::log::Embedded;
use flowkeep_coordinator::proto;
use flowkeep_coordinator::refusal::{self, Refusal};
use flowkeep_coordinator::server::{Event, Server, since_1970};
use protocols::membership::{Role, WorkerId};
use rig::*;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const SWITCH: WorkerId = WorkerId::switch(0);

#[test]
fn members_join_by_token_get_numbers_drain_and_leave() {
    unsuspected(join_drain_leave);
}

fn join_drain_leave() {
    let cluster = Cluster::new("join");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = cluster.member("edge", 5, &[Role::Switch], at);
    let switch = Process::join(switch, &links).unwrap();
    assert_eq!(switch.ids(), [SWITCH]);

    // A process that has nothing but a token.
    let minute = Duration::from_secs(60);
    let token = Token::make(&cluster.authority, "a", since_1970(), minute).unwrap();
    let (name, identity) = block_on(enrol(&at.to_string(), &token)).unwrap();
    assert_eq!(name, "a");
    let two = [Role::Runtime, Role::Runtime];
    let mut settings = cluster.member("a", 7, &two, at);
    settings.identity = identity;
    let mut a = Process::join(settings, &links).unwrap();
    assert_eq!(a.ids(), [WorkerId::runtime(0), WorkerId::runtime(1)]);
    let b = cluster.member("b", 1, &[Role::Runtime], at);
    let b = Process::join(b, &links).unwrap();
    assert_eq!(b.ids(), [WorkerId::runtime(2)]);

    // Each becomes running as it is ready, with its load; all have the newest view, and leases of
    // each other.
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a", "a", "b"])
    });
    until("load is told", || {
        let status = status(&reader, at).unwrap();
        let is_told = |load: proto::Load| load.packets > 0 && load.dropped_packets >= 3;
        status
            .members
            .iter()
            .all(|member| member.load.is_some_and(is_told) && !member.suspected)
    });
    let all = || switch.workers.iter().chain(&a.workers).chain(&b.workers);
    until("all have one view", || {
        let number = u64::from(status(&reader, at).unwrap().view);
        all().all(|worker| worker.view() == number)
    });
    until("all act", || all().all(|worker| links.acts(worker.id)));

    // Drained, then gone.
    let operator = cluster.operator(Right::Operate);
    let drained = block_on(async {
        let mut client = connect(&at.to_string(), &operator).await.unwrap();
        let member = "a".to_owned();
        client.drain(proto::DrainRequest { member }).await
    });
    drained.unwrap();
    assert_eq!(running(&status(&reader, at).unwrap()), ["edge", "b"]);
    let agent = a.agent.take().unwrap();
    for worker in &mut a.workers {
        worker.end();
    }
    agent.leave().unwrap();
    let left = status(&reader, at).unwrap();
    assert_eq!(running(&left), ["edge", "b"]);
    assert_eq!(left.members.len(), 2);

    // Its numbers are its own when it comes back, with its certificate.
    let again = cluster.member("a", 8, &two, at);
    let again = Process::join(again, &links).unwrap();
    assert_eq!(again.ids(), [WorkerId::runtime(0), WorkerId::runtime(1)]);
    links.check();
}

#[test]
fn a_member_leaves_when_its_workers_have_ended() {
    let cluster = Cluster::new("acting");
    let server = cluster.start();
    let links = Arc::new(Links::default());
    let settings = cluster.member("a", 1, &[Role::Switch], server.address());
    let mut a = Process::join(settings, &links).unwrap();
    let agent = a.agent.take().unwrap();
    assert!(matches!(agent.leave(), Err(AgentError::Acting(SWITCH))));
}

#[test]
fn a_silent_worker_is_suspected_fenced_and_removed() {
    let cluster = Cluster::new("silent");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    let b = Process::join(cluster.member("b", 1, &[Role::Runtime], at), &links).unwrap();
    until("all act", || {
        let mut all = switch.workers.iter().chain(&a.workers).chain(&b.workers);
        all.all(|worker| links.acts(worker.id))
    });

    // The switch hangs too: it grants nothing, and withdraws nothing. So no worker is removed,
    // though both are suspected.
    a.workers[0].hang(true);
    switch.workers[0].hang(true);
    until("both are suspected", || {
        let status = status(&reader, at).unwrap();
        status.members.iter().filter(|member| member.suspected).count() == 2
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(status(&reader, at).unwrap().members.len(), 3);

    // The switch goes on, is restored, and withdraws: then the runtime is fenced, and goes.
    switch.workers[0].hang(false);
    until("the runtime is gone", || {
        let status = status(&reader, at).unwrap();
        status.members.len() == 2 && status.members.iter().all(|member| !member.suspected)
    });
    until("the others act", || {
        links.acts(SWITCH) && links.acts(b.workers[0].id)
    });
    // The removed member lives, and learns that it is no member.
    a.workers[0].hang(false);
    until("it is fenced", || {
        a.workers[0].is_fenced.load(std::sync::atomic::Ordering::Relaxed)
    });
    links.check();

    // A later incarnation of it joins, under the same number.
    drop(a);
    let a = Process::join(cluster.member("a", 2, &[Role::Runtime], at), &links).unwrap();
    assert_eq!(a.ids(), [WorkerId::runtime(0)]);
    until("it acts", || links.acts(a.workers[0].id));
    links.check();
}

/// A coordinator in a process of its own: this test binary, which runs [`be_a_coordinator`].
struct Killable {
    child: Child,
    address: SocketAddr,
}

const PLACE: &str = "FLOWKEEP_TEST_COORDINATOR";

impl Killable {
    fn start(cluster: &Cluster, listen: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["--exact", "be_a_coordinator", "--nocapture"])
            .env(PLACE, format!("{} {listen}", cluster.directory.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let said = lines.find_map(|line| line.split_once("listening at ").map(|(_, at)| at.to_owned()));
        let address = said.expect("it listens").parse().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Killable { child, address }
    }

    /// kill -9
    fn kill(self) {
        drop(self);
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: the code of a process that [`Killable`] has started. The process ends with its
/// standard input.
#[test]
fn be_a_coordinator() {
    let Ok(place) = std::env::var(PLACE) else {
        return;
    };
    let (directory, listen) = place.split_once(' ').unwrap();
    let directory = std::path::Path::new(directory);
    let say = Arc::new(|event: Event| println!("{event}"));
    let mut settings =
        flowkeep_coordinator::server::CoordinatorSettings::read(directory, listen.parse().unwrap(), say)
            .unwrap();
    settings.timing = TIMING;
    let log = Embedded::open(&directory.join("log")).unwrap();
    let _server = Server::start(settings, Box::new(log)).unwrap();
    let _ = std::io::stdin().lines().count();
}

#[test]
fn killed_and_started_again_it_decides_nothing_twice() {
    unsuspected(killed_and_started_again);
}

fn killed_and_started_again() {
    let cluster = Cluster::new("killed");
    let coordinator = Killable::start(&cluster, "127.0.0.1:0");
    let (at, links) = (coordinator.address, Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    let b = Process::join(cluster.member("b", 1, &[Role::Runtime], at), &links).unwrap();
    let all = || switch.workers.iter().chain(&a.workers).chain(&b.workers);
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a", "b"])
    });
    let before = status(&reader, at).unwrap();
    until("all have the view", || {
        all().all(|worker| worker.view() == u64::from(before.view))
    });
    coordinator.kill();

    // Without it all act, for longer than any lease lasts.
    let alone = std::time::Instant::now();
    while alone.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(100));
        assert!(all().all(|worker| worker.view() == u64::from(before.view)));
    }
    until("all act without it", || all().all(|worker| links.acts(worker.id)));

    // The coordinator begins again where it ended: the same view, no worker suspected, and numbers
    // are kept.
    let coordinator = Killable::start(&cluster, &at.to_string());
    until("it answers", || status(&reader, at).is_some());
    std::thread::sleep(Duration::from_nanos(3 * TIMING.settling + TIMING.suspicion));
    let after = status(&reader, at).unwrap();
    assert_eq!(after.view, before.view);
    assert_eq!(running(&after), ["edge", "a", "b"]);
    assert!(after.members.iter().all(|member| !member.suspected));
    assert_eq!(after.trouble, "");

    // The coordinator decides again.
    let c = Process::join(cluster.member("c", 1, &[Role::Runtime], at), &links).unwrap();
    assert_eq!(c.ids(), [WorkerId::runtime(2)]);
    until("all have its view", || {
        all().all(|worker| worker.view() > u64::from(before.view))
    });
    links.check();
    coordinator.kill();
}

#[test]
fn a_log_is_one_coordinators() {
    let cluster = Cluster::new("locked");
    let _server = cluster.start();
    let second = Embedded::open(&cluster.log_path());
    let why = second.err().expect("it is locked").to_string();
    assert!(why.contains("log"), "{why}");
}

#[test]
fn a_log_that_has_lost_records_decides_nothing() {
    unsuspected(lost_records);
}

fn lost_records() {
    let cluster = Cluster::new("lost");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    until("it runs", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge"])
    });
    let copy = cluster.directory.path().join("copy");
    drop(server);
    std::fs::copy(cluster.log_path(), &copy).unwrap();
    let begin = || {
        let log = Embedded::open(&cluster.log_path()).unwrap();
        Server::start(cluster.settings(at), Box::new(log)).unwrap()
    };
    let server = begin();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("members have a later view", || {
        switch.workers[0].view() > 2 && a.workers[0].view() > 2
    });
    drop(server);

    // The store goes back to an earlier state: it lacks records that it has said to have.
    std::fs::copy(&copy, cluster.log_path()).unwrap();
    let server = begin();
    until("it says so", || {
        status(&reader, at).is_some_and(|status| status.trouble.contains("lost records"))
    });
    let view = status(&reader, at).unwrap().view;
    let operator = cluster.operator(Right::Operate);
    let refused = block_on(async {
        let mut client = connect(&at.to_string(), &operator).await.unwrap();
        let member = "edge".to_owned();
        client.drain(proto::DrainRequest { member }).await.unwrap_err()
    });
    assert!(refusal::is(&refused, Refusal::LogBehind), "{refused:?}");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(status(&reader, at).unwrap().view, view);
    until("members go on", || {
        links.acts(SWITCH) && links.acts(a.workers[0].id)
    });
    links.check();
    drop(server);
}

#[test]
fn an_incarnation_that_is_over_is_refused() {
    let cluster = Cluster::new("incarnation");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let a = Process::join(cluster.member("a", 9, &[Role::Switch], at), &links).unwrap();
    let identity = cluster.identity(&flowkeep_coordinator::identity::Caller::Member("a".into()));
    let joined = block_on(async {
        let mut client = connect(&at.to_string(), &identity).await.unwrap();
        let roles = vec![proto::WorkerRole::Switch.into()];
        let ask = |incarnation| proto::JoinRequest {
            incarnation,
            roles: roles.clone(),
            ..proto::JoinRequest::default()
        };
        // The same incarnation again is answered as before: the answer may have been lost.
        let same = client.join(ask(9)).await.unwrap().into_inner();
        assert_eq!(same.workers.len(), 1);
        client.join(ask(8)).await.unwrap_err()
    });
    assert!(refusal::is(&joined, Refusal::Incarnation), "{joined:?}");
    assert_eq!(server.refused(Refusal::Incarnation), 1);
    drop(a);
}

/// A switch began many times while no coordinator decided, and the runtime alone cannot say that it
/// is fenced: the process that asks has the lock that all before it had.
#[test]
fn however_often_it_began_a_member_joins_again() {
    unsuspected(began_often);
}

fn began_often() {
    let cluster = Cluster::new("often");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let incarnation = |incarnation| {
        let mut settings = cluster.member("edge", incarnation, &[Role::Switch], at);
        settings.first = 100;
        settings
    };
    let mut edge = Process::join(incarnation(100), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("both run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    edge.workers.clear();
    edge.agent.take();
    let edge = Process::join(incarnation(107), &links).unwrap();
    assert_eq!(edge.ids(), [SWITCH]);
    until("it runs again", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    links.check();
    drop((edge, a, server));
}

/// The text of why a call was refused.
fn why(error: &CallError) -> String {
    error.to_string()
}
