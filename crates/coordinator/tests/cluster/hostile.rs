//! Connections and calls from outside that are refused, by name; the members that are there go on.

use super::configured::configuration;
use super::rig::*;
use super::why;
use flowkeep_coordinator::agent::{
    Agent, AgentSettings, CallError, connect, connect_without, enlist_at, enrol,
};
use flowkeep_coordinator::identity::{Authority, Caller, Identity, Right, Token};
use flowkeep_coordinator::log::{Log, LogError};
use flowkeep_coordinator::operator::{Line, Operator};
use flowkeep_coordinator::proto;
use flowkeep_coordinator::refusal::{self, Refusal};
use flowkeep_coordinator::server::{Server, since_1970};
use protocols::membership::Role;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A call by an identity that must not succeed: how it fails.
///
/// The server says why in an alert and closes the connection. A client that still writes may see
/// that it is closed before it reads the alert, so the server's counts decide.
fn status_refused(identity: &Identity, at: SocketAddr) -> CallError {
    block_on(async {
        let mut client = connect(&at.to_string(), identity).await?;
        client.status(proto::StatusRequest {}).await?;
        Ok::<_, CallError>(())
    })
    .expect_err("it is refused")
}

#[test]
fn certificates_tokens_and_rights_are_refused_by_name_and_nobody_else_notices() {
    unsuspected(refused_by_name);
}

fn refused_by_name() {
    let cluster = Cluster::new("refused");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    let view = status(&reader, at).unwrap().view;

    // Another cluster's certificate, with this one's authority to trust.
    let other = Authority::create(YEAR).unwrap();
    let member = Caller::Member("a".into());
    let mut foreign = other.issue(&member, YEAR).unwrap();
    foreign.authority = cluster.identity(&member).authority;
    status_refused(&foreign, at);
    until("it is counted by its name", || {
        server.refused(Refusal::CertificateUnknown) >= 1
    });

    // A certificate that is over.
    let expired = cluster.authority.issue(&member, Duration::ZERO).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let said = why(&status_refused(&expired, at));
    until("it is counted by its name", || {
        server.refused(Refusal::CertificateExpired) >= 1
    });
    let is_told = |how: &str| said.contains(how);
    assert!(
        ["xpired", "closed", "reset", "roken pipe"]
            .into_iter()
            .any(is_told),
        "{said}"
    );

    // A coordinator of another authority is not trusted by members.
    let distrusts = other.issue(&member, YEAR).unwrap();
    let said = why(&status_refused(&distrusts, at));
    assert!(said.contains("certificate"), "{said}");

    // Tokens: replayed, over, forged, none.
    let make = |authority: &Authority, valid| Token::make(authority, "c", since_1970(), valid).unwrap();
    let token = make(&cluster.authority, MINUTE);
    let place = at.to_string();
    block_on(enrol(&place, &token)).unwrap();
    let refused = |token: &str| match block_on(enrol(&place, token)) {
        Err(CallError::Refused(status)) => *status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("enrolled"),
    };
    assert!(refusal::is(&refused(&token), Refusal::TokenReplayed));
    let over = make(&cluster.authority, Duration::ZERO);
    assert!(refusal::is(&refused(&over), Refusal::TokenExpired));
    let fresh = make(&cluster.authority, MINUTE);
    let forged = fresh.replacen("fk1.c.", "fk1.d.", 1);
    assert!(refusal::is(&refused(&forged), Refusal::TokenForged));
    assert!(matches!(
        block_on(enrol(&place, "fk1.no")),
        Err(CallError::Token(_))
    ));
    // A token of another cluster: its authority is not that of the coordinator that answers.
    let elsewhere = make(&other, MINUTE);
    assert!(matches!(
        block_on(enrol(&place, &elsewhere)),
        Err(CallError::Connection { .. })
    ));

    // Without a certificate only a token may be shown.
    block_on(async {
        let read = Token::read(&fresh).unwrap();
        let (mut client, _) = connect_without(&place, read.fingerprint).await.unwrap();
        let status = client.status(proto::StatusRequest {}).await.map(|_| ());
        let drain = proto::DrainRequest { member: "a".into() };
        for refused in [status, client.drain(drain).await.map(|_| ())] {
            let refused = refused.expect_err("it is refused");
            assert!(refusal::is(&refused, Refusal::NoCertificate), "{refused:?}");
        }
    });
    assert_eq!(server.refused(Refusal::NoCertificate), 2);

    // Rights.
    block_on(async {
        let admin = cluster.operator(Right::Admin);
        let operate = cluster.operator(Right::Operate);
        let (member, reader) = (cluster.identity(&member), reader.clone());
        let drain = || proto::DrainRequest { member: "a".into() };
        let token = || proto::MakeTokenRequest {
            member: "d".into(),
            valid: 60,
        };
        let mut as_reader = connect(&place, &reader).await.unwrap();
        let mut as_member = connect(&place, &member).await.unwrap();
        let mut as_operator = connect(&place, &operate).await.unwrap();
        let mut as_admin = connect(&place, &admin).await.unwrap();
        for refused in [
            as_reader.drain(drain()).await.map(|_| ()),
            as_member.drain(drain()).await.map(|_| ()),
            as_operator.make_token(token()).await.map(|_| ()),
            as_member.make_token(token()).await.map(|_| ()),
            as_admin
                .join(proto::JoinRequest {
                    incarnation: 1,
                    numbers: Vec::new(),
                    roles: vec![1],
                    ..proto::JoinRequest::default()
                })
                .await
                .map(|_| ()),
            as_reader
                .recover(proto::RecoverRequest { runtime: 0 })
                .await
                .map(|_| ()),
        ] {
            let refused = refused.unwrap_err();
            assert!(refusal::is(&refused, Refusal::Role), "{refused:?}");
        }
        as_admin.make_token(token()).await.unwrap();
        // Runtimes that are not there, and numbers that no runtime has.
        for (runtime, by) in [(9, Refusal::NoMember), (65_536, Refusal::Malformed)] {
            let refused = as_operator.recover(proto::RecoverRequest { runtime }).await;
            let refused = refused.unwrap_err();
            assert!(refusal::is(&refused, by), "{refused:?}");
        }
        // Numbers that cannot be.
        for roles in [vec![], vec![7], vec![1; 257]] {
            let incarnation = 1;
            let request = proto::JoinRequest {
                incarnation,
                roles,
                numbers: Vec::new(),
                ..proto::JoinRequest::default()
            };
            let refused = as_member.join(request).await.unwrap_err();
            assert!(refusal::is(&refused, Refusal::Malformed), "{refused:?}");
        }
    });
    assert_eq!(server.refused(Refusal::Role), 6);

    // Another member's worker: neither its heartbeats nor its end are taken from this one.
    let thief = cluster.identity(&Caller::Member("c".into()));
    block_on(async {
        let mut client = connect(&place, &thief).await.unwrap();
        let worker = proto::Worker {
            role: proto::WorkerRole::Runtime.into(),
            number: 0,
            incarnation: 1,
        };
        let beat = proto::Heartbeat {
            worker: Some(worker),
            view: u32::MAX,
            ..Default::default()
        };
        let workload = proto::Workload {
            configuration: 0,
            heartbeats: vec![beat],
            stopped: vec![worker],
        };
        let stopped = proto::Workload {
            configuration: 0,
            heartbeats: Vec::new(),
            stopped: vec![worker],
        };
        let stream = tokio_stream::iter([workload, stopped]);
        client.poll_workload(stream).await.unwrap();
    });
    until("it is refused", || server.refused(Refusal::Foreign) >= 1);

    let after = status(&reader, at).unwrap();
    assert_eq!((after.view, after.trouble.as_str()), (view, ""));
    assert!(after.members.iter().all(|member| !member.suspected));
    until("both act", || {
        links.acts(switch.workers[0].id) && links.acts(a.workers[0].id)
    });
    links.check();

    // By the log the token is used for the next coordinator, too.
    drop((switch, a, server));
    let server = cluster.start();
    let Err(CallError::Refused(refused)) = block_on(enrol(&server.address().to_string(), &token)) else {
        panic!("not refused");
    };
    assert!(refusal::is(&refused, Refusal::TokenReplayed), "{refused:?}");
    assert_eq!(server.refused(Refusal::TokenReplayed), 1);
}

#[test]
fn garbage_and_slow_clients_cost_themselves_only() {
    unsuspected(garbage_and_slow_clients);
}

fn garbage_and_slow_clients() {
    let cluster = Cluster::new("garbage");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    until("it runs", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge"])
    });
    let view = status(&reader, at).unwrap().view;
    let garbage: [&[u8]; 3] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0; 4096],
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(bytes).unwrap();
        stream.set_read_timeout(Some(MINUTE)).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    until("garbage is refused", || server.refused(Refusal::NotTls) >= 3);
    // Clients that begin a handshake and say no more, more than there is room for.
    let mut slow: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(at).unwrap()).collect();
    for stream in &mut slow {
        // A record of 200 bytes, of which 4 are there.
        let _ = stream.write_all(&[0x16, 3, 1, 0, 200, 1, 0, 0, 196]);
    }
    until("the rest has no room", || {
        server.refused(Refusal::Connections) >= 1
    });
    until("the others take too long", || {
        server.refused(Refusal::SlowHandshake) >= 60
    });
    // The member that was there all the time has noticed nothing.
    let after = status(&reader, at).unwrap();
    assert_eq!(after.view, view);
    assert!(after.members.iter().all(|member| !member.suspected));
    until("it acts", || links.acts(switch.workers[0].id));
    links.check();
}

fn admin(cluster: &Cluster, at: SocketAddr) -> Line {
    let operator = Operator {
        addresses: vec![at.to_string()],
        identity: cluster.operator(Right::Admin),
    };
    operator.connect().unwrap()
}

#[test]
fn clients_that_do_not_read_cost_themselves_only() {
    unsuspected(unread);
}

fn unread() {
    const CHANGES: u64 = 20;
    let cluster = Cluster::new("unread");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    until("it runs", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge"])
    });
    // Readers whose async runtimes stand still read neither views nor answers.
    let readers: Vec<_> = (0..16)
        .map(|_| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            let stream = runtime.block_on(async {
                let mut client = connect(&at.to_string(), &reader).await.unwrap();
                for _ in 0..50 {
                    let mut asks = client.clone();
                    tokio::spawn(async move { asks.status(proto::StatusRequest {}).await });
                }
                let views = client.notify_view(proto::NotifyViewRequest {}).await;
                views.unwrap().into_inner()
            });
            (runtime, stream)
        })
        .collect();
    // Changes are decided meanwhile, a member joins, and all act.
    let mut admin = admin(&cluster, at);
    let view = admin.status().unwrap().view;
    for number in 2..2 + CHANGES {
        admin.configure(view, configuration(number, "[[chain]]")).unwrap();
    }
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("both run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    until("both act", || {
        links.acts(switch.workers[0].id) && links.acts(a.workers[0].id)
    });
    let after = status(&reader, at).unwrap();
    assert!(after.members.iter().all(|member| !member.suspected));
    // A reader that reads at last gets the newest, unless its connection has ended by then.
    for (runtime, mut stream) in readers {
        let newest = async {
            while let Ok(Some(said)) = stream.message().await {
                let view = said.view.map_or(0, |view| view.number);
                let number = said.configuration.map_or(0, |of| of.number);
                if (view, number) == (after.view, 1 + CHANGES) {
                    return;
                }
            }
        };
        let newest = runtime.block_on(async { tokio::time::timeout(PATIENCE, newest).await });
        assert!(newest.is_ok(), "an older one was the last");
    }
    links.check();
}

/// A store that takes nothing while it is full.
#[derive(Clone, Default)]
struct Full {
    is_full: Arc<AtomicBool>,
    records: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
}

impl Log for Full {
    fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let records = self.records.lock().unwrap();
        Ok(records
            .iter()
            .map(|(number, record)| (*number, record.clone()))
            .collect())
    }

    fn append(&mut self, number: u64, record: &[u8]) -> Result<(), LogError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(LogError::Store("No space left on device".to_owned()));
        }
        self.records.lock().unwrap().insert(number, record.to_vec());
        Ok(())
    }

    fn has(&mut self, number: u64) -> Result<Option<bool>, LogError> {
        Ok(Some(self.records.lock().unwrap().contains_key(&number)))
    }

    fn forget(&mut self, numbers: &[u64]) -> Result<(), LogError> {
        self.records
            .lock()
            .unwrap()
            .retain(|number, _| !numbers.contains(number));
        Ok(())
    }
}

#[test]
fn log_before_act() {
    unsuspected(nothing_is_done_before_it_is_written);
}

fn nothing_is_done_before_it_is_written() {
    let cluster = Cluster::new("full");
    let log = Full::default();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(cluster.settings(listen), Box::new(log.clone())).unwrap();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let switch = Process::join(cluster.member("edge", 1, &[Role::Switch], at), &links).unwrap();
    let a = Process::join(cluster.member("a", 1, &[Role::Runtime], at), &links).unwrap();
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    let view = status(&reader, at).unwrap().view;

    // From now on nothing can be written: a configuration is refused, a token is not used up, no
    // member joins, none is removed; and the coordinator says why.
    let mut operator = admin(&cluster, at);
    log.is_full.store(true, Ordering::Relaxed);
    let written = log.records.lock().unwrap().clone();
    let decided = operator.configure(view, configuration(2, "[[chain]]"));
    let Err(CallError::Refused(refused)) = decided else {
        panic!("not refused");
    };
    let is_withdrawn = refused.message().contains("does not come later");
    assert!(
        refusal::is(&refused, Refusal::LogUnwritable) && is_withdrawn,
        "{refused:?}"
    );
    drop(operator);
    a.workers[0].hang(true);
    until("it says so", || {
        status(&reader, at).is_some_and(|status| status.trouble.contains("No space left"))
    });
    let token = Token::make(&cluster.authority, "c", since_1970(), MINUTE).unwrap();
    let refused = block_on(enrol(&at.to_string(), &token));
    let Err(CallError::Refused(refused)) = refused else {
        panic!("not refused");
    };
    assert!(refusal::is(&refused, Refusal::LogUnwritable), "{refused:?}");
    let mut hasty = cluster.member("c", 1, &[Role::Runtime], at);
    hasty.patience = Duration::from_millis(300);
    assert!(Agent::join(hasty).is_err());
    std::thread::sleep(Duration::from_millis(1500));
    let now = status(&reader, at).unwrap();
    assert_eq!((now.view, now.members.len()), (view, 2));
    assert!(
        now.members.iter().all(|member| !member.suspected),
        "not before it is in the log"
    );
    assert_eq!(*log.records.lock().unwrap(), written);
    until("it acts", || links.acts(switch.workers[0].id));

    // There is room again: the pending decisions are made.
    log.is_full.store(false, Ordering::Relaxed);
    until("the silent one is gone", || {
        status(&reader, at).is_some_and(|status| status.trouble.is_empty() && status.members.len() == 1)
    });
    block_on(enrol(&at.to_string(), &token)).unwrap();
    links.check();

    // But not the refused configuration. An operator asks for it again, and the next coordinator
    // has it by the log.
    let mut operator = admin(&cluster, at);
    assert_eq!(operator.configuration().unwrap().number, 1);
    let view = operator.status().unwrap().view;
    operator.configure(view, configuration(2, "again")).unwrap();
    drop((operator, server));
    let server = Server::start(cluster.settings(listen), Box::new(log)).unwrap();
    let newest = admin(&cluster, server.address()).configuration().unwrap();
    assert_eq!((newest.number, newest.text.as_str()), (2, "again"));
}

/// The settings of a member whose configuration lists it, by these words.
fn listed(
    cluster: &Cluster,
    (name, incarnation): (&str, u64),
    role: Role,
    words: &[u64],
    at: SocketAddr,
) -> AgentSettings {
    AgentSettings {
        numbers: vec![0],
        plan: Some(plan_of(words)),
        ..cluster.member(name, incarnation, &[role], at)
    }
}

fn plan_of(words: &[u64]) -> proto::Plan {
    proto::Plan {
        listed: 1,
        most: 4,
        words: words.to_vec(),
    }
}

const WORDS: [u64; 4] = [11, 12, 13, 14];
const SWITCHES: i32 = 1;
const RUNTIMES: i32 = 2;

/// How a request to join is refused.
fn join_refused(identity: &Identity, at: SocketAddr, request: proto::JoinRequest) -> tonic::Status {
    block_on(async {
        let mut client = connect(&at.to_string(), identity).await.unwrap();
        let joined = client.join(request).await;
        joined.expect_err("it is refused")
    })
}

#[test]
fn no_certificate_brings_workers_that_are_not_its_own() {
    unsuspected(workers_of_others);
}

fn workers_of_others() {
    let cluster = Cluster::new("workers");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let edge = listed(&cluster, ("edge", 1), Role::Switch, &WORDS, at);
    let edge = Process::join(edge, &links).unwrap();
    let a = listed(&cluster, ("a", 1), Role::Runtime, &WORDS, at);
    let a = Process::join(a, &links).unwrap();
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    let view = status(&reader, at).unwrap().view;
    let ask = |roles: Vec<i32>, plan: Option<proto::Plan>| proto::JoinRequest {
        incarnation: 5,
        roles,
        plan,
        ..proto::JoinRequest::default()
    };
    let many = || vec![SWITCHES; 200];
    let refused = |identity: &Identity, request, by: Refusal, says: &str| {
        let refused = join_refused(identity, at, request);
        assert!(
            refusal::is(&refused, by) && refused.message().contains(says),
            "{refused:?}"
        );
    };

    // A name that no file lists, by a token: with no plan, and with the plan of another site.
    let token = Token::make(&cluster.authority, "c", since_1970(), MINUTE).unwrap();
    let (_, c) = block_on(enrol(&at.to_string(), &token)).unwrap();
    refused(&c, ask(many(), None), Refusal::NotListed, "--runtimes");
    refused(&c, ask(vec![RUNTIMES], None), Refusal::NotListed, "--runtimes");
    let other = Some(plan_of(&[11, 12, 77, 14]));
    refused(&c, ask(many(), other.clone()), Refusal::PlanDiffers, "file");
    let one = proto::JoinRequest {
        numbers: vec![1],
        ..ask(vec![SWITCHES], other)
    };
    refused(&c, one, Refusal::PlanDiffers, "file");
    // With that of the members: a runtime behind the listed ones.
    let behind = proto::JoinRequest {
        numbers: vec![1],
        ..ask(vec![RUNTIMES], Some(plan_of(&WORDS)))
    };
    refused(&c, behind, Refusal::NotListed, "--runtimes");

    // A node that has numbers is told no word on settings that it does not know already, and has
    // the runtimes that it asked for.
    let d = cluster.identity(&Caller::Member("d".into()));
    let enlist = |words: &[u64]| {
        let contact = proto::Contact {
            host: "h".to_owned(),
            ..proto::Contact::default()
        };
        let request = proto::EnlistRequest {
            contact: Some(contact),
            runtimes: 1,
            plan: Some(plan_of(words)),
        };
        enlist_at(&[at.to_string()], &d, &request, Duration::ZERO).unwrap()
    };
    assert_eq!(enlist(&[11, 12, 77, 14]).plan.unwrap().words, [11, 12, 0, 14]);
    let answer = enlist(&WORDS);
    assert_eq!((answer.numbers, answer.plan), (vec![1], Some(plan_of(&WORDS))));
    for roles in [
        many(),
        vec![SWITCHES],
        vec![RUNTIMES, SWITCHES],
        vec![RUNTIMES; 2],
    ] {
        for plan in [None, Some(plan_of(&WORDS))] {
            refused(&d, ask(roles.clone(), plan), Refusal::NotListed, "1 runtime");
        }
    }

    // A listed member has the workers that it joined with by the same file.
    let thief = cluster.identity(&Caller::Member("edge".into()));
    for roles in [many(), vec![SWITCHES, RUNTIMES], vec![RUNTIMES]] {
        let refusal = Refusal::NotListed;
        refused(&thief, ask(roles, Some(plan_of(&WORDS))), refusal, "1 switch");
    }
    assert_eq!(status(&reader, at).unwrap().view, view);

    let mut settings = cluster.member("d", 5, &[Role::Runtime], at);
    settings.numbers = vec![1];
    let d = Process::join(settings, &links).unwrap();
    until("the node runs", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a", "d"])
    });
    until("all act", || {
        let mut all = edge.workers.iter().chain(&a.workers).chain(&d.workers);
        all.all(|worker| links.acts(worker.id))
    });
    links.check();
}

/// Members that were killed and have another file now: they join when no member of the file before
/// is left in view, and their files' locks say that none is.
#[test]
fn members_that_all_have_another_file_join_when_those_before_have_ended() {
    unsuspected(another_file);
}

fn another_file() {
    let cluster = Cluster::new("another-file");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let join = |name, incarnation, role, words: &[u64]| {
        let mut settings = listed(&cluster, (name, incarnation), role, words, at);
        settings.first = 1;
        Process::join(settings, &links).unwrap()
    };
    let mut before = [
        join("edge", 1, Role::Switch, &WORDS),
        join("a", 1, Role::Runtime, &WORDS),
    ];
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    for process in &mut before {
        process.agent.take();
        process.workers.clear();
    }
    let words = [11, 12, 99, 14];
    let after = std::thread::scope(|scope| {
        let edge = scope.spawn(|| join("edge", 2, Role::Switch, &words));
        let a = join("a", 2, Role::Runtime, &words);
        (edge.join().unwrap(), a)
    });
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    links.check();
    drop(after);
}

/// A scaler's members each have a token of their own, and a token is remembered when it is over.
#[test]
fn tokens_that_were_used_keep_no_process_out() {
    let cluster = Cluster::new("tokens");
    let log = Full::default();
    let hour_ago = (since_1970() - 60 * MINUTE).as_secs();
    let view = proto::Decision {
        number: 0,
        entry: Some(proto::decision::Entry::View(proto::View {
            number: 1,
            members: Vec::new(),
        })),
    };
    let used = (1..=1024u128).map(|number| {
        let id = number.to_be_bytes().to_vec();
        let expires = hour_ago;
        proto::record::What::TokenUsed(proto::TokenUsed { id, expires })
    });
    let records = std::iter::once(proto::record::What::Decision(view)).chain(used);
    for (number, what) in (0..).zip(records) {
        let record = prost::Message::encode_to_vec(&proto::Record { what: Some(what) });
        log.records.lock().unwrap().insert(number, record);
    }
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(cluster.settings(listen), Box::new(log)).unwrap();
    std::thread::sleep(Duration::from_nanos(TIMING.settling));
    for name in ["c", "d"] {
        let token = Token::make(&cluster.authority, name, since_1970(), MINUTE).unwrap();
        let enrolled = block_on(enrol(&server.address().to_string(), &token));
        assert_eq!(enrolled.unwrap().0, name);
    }
}

#[test]
fn a_coordinator_whose_log_takes_nothing_ends_when_it_is_told_to() {
    let cluster = Cluster::new("ends");
    let log = Full::default();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(cluster.settings(listen), Box::new(log.clone())).unwrap();
    let at = server.address();
    std::thread::sleep(Duration::from_nanos(TIMING.settling));
    log.is_full.store(true, Ordering::Relaxed);
    let mut hasty = cluster.member("a", 1, &[Role::Switch], at);
    hasty.patience = Duration::ZERO;
    let joining = std::thread::spawn(move || Agent::join(hasty).is_err());
    let reader = cluster.operator(Right::Read);
    until("a record waits", || {
        status(&reader, at).is_some_and(|status| status.trouble.contains("No space left"))
    });
    let (dropped, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(server);
        let _ = dropped.send(());
    });
    ended.recv_timeout(Duration::from_secs(2)).expect("it ends");
    assert!(joining.join().unwrap());
}

/// As many connections as there may be, of one caller.
#[test]
fn a_caller_with_many_connections_keeps_no_member_out() {
    let cluster = Cluster::new("many");
    let server = cluster.start();
    let (at, links) = (server.address(), Arc::new(Links::default()));
    let reader = cluster.operator(Right::Read);
    let member = cluster.identity(&Caller::Member("c".into()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap();
    let mut clients = Vec::new();
    for (identity, count) in [(&reader, 512), (&member, 64)] {
        for _ in 0..count {
            clients.push(runtime.block_on(connect(&at.to_string(), identity)));
        }
    }
    assert!(server.refused(Refusal::Connections) >= 1);
    let mut settings = cluster.member("edge", 1, &[Role::Switch], at);
    settings.patience = Duration::from_secs(5);
    let edge = Process::join(settings, &links).unwrap();
    until("it acts", || links.acts(edge.workers[0].id));
    let operator = cluster.operator(Right::Operate);
    assert!(status(&operator, at).is_some());
    // Places are free again when connections end.
    drop((clients, runtime));
    until("the reader is heard", || status(&reader, at).is_some());
}
