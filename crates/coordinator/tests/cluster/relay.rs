//! Requests of operators to members, over real connections: rights, members that answer anything,
//! members that are not there.

use super::rig::*;
use flowkeep_coordinator::agent::{CallError, Serving, connect};
use flowkeep_coordinator::identity::{Caller, Identity, Right};
use flowkeep_coordinator::kept::Keeper;
use flowkeep_coordinator::log::Embedded;
use flowkeep_coordinator::operator::Operator;
use flowkeep_coordinator::proto::{self, served::What};
use flowkeep_coordinator::refusal::{self, Refusal};
use flowkeep_coordinator::relay::{ANSWER_MAX, REQUEST_MAX, Unfit};
use flowkeep_coordinator::server::Server;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_stream::StreamExt;

/// Requests of these tests say by their first letter which right they need.
fn judge(request: &[u8]) -> Result<Right, Unfit> {
    match request.first() {
        Some(b'r') => Ok(Right::Read),
        Some(b'o') => Ok(Right::Operate),
        Some(b'a') => Ok(Right::Admin),
        Some(b'w') => Err(Unfit::OneProcess("it is of one process".to_owned())),
        _ => Err(Unfit::Unknown("it is no request".to_owned())),
    }
}

fn start(cluster: &Cluster) -> Server {
    let mut settings = cluster.settings("127.0.0.1:0".parse().unwrap());
    settings.judge = judge;
    let log = Embedded::open(&cluster.log_path()).unwrap();
    Server::start(settings, Box::new(log)).unwrap()
}

/// A member that answers with its name and the request.
fn member(cluster: &Cluster, name: &str, at: SocketAddr) -> Serving {
    let identity = cluster.identity(&Caller::Member(name.into()));
    let says = name.as_bytes().to_vec();
    let answerer = move |request: &[u8]| match request {
        b"r long" => vec![0; ANSWER_MAX + 1],
        b"r panic" => panic!("on purpose"),
        request => [&says[..], b": ", request].concat(),
    };
    Serving::start(vec![at.to_string()], identity, Arc::new(answerer)).unwrap()
}

fn ask(identity: &Identity, at: SocketAddr, member: &str, request: &[u8]) -> Result<Vec<u8>, CallError> {
    let operator = Operator {
        addresses: vec![at.to_string()],
        identity: identity.clone(),
    };
    let mut line = operator.connect().unwrap();
    line.relay(vec![(member.to_owned(), request.to_vec())]).remove(0)
}

#[track_caller]
fn refused(answer: Result<Vec<u8>, CallError>, by: Refusal) {
    match answer {
        Err(CallError::Refused(status)) if refusal::is(&status, by) => {}
        other => panic!("{by:?}, but {other:?}"),
    }
}

fn until_serving(reader: &Identity, at: SocketAddr, members: &[&str]) {
    until("they serve", || {
        status(reader, at).is_some_and(|status| status.serving == members)
    });
}

#[test]
fn requests_are_relayed_as_rights_allow() {
    let cluster = Cluster::new("relay");
    let server = start(&cluster);
    let at = server.address();
    let [read, operate, admin] =
        [Right::Read, Right::Operate, Right::Admin].map(|right| cluster.operator(right));
    let (_a, b) = (member(&cluster, "a", at), member(&cluster, "b", at));
    until_serving(&read, at, &["a", "b"]);
    for (identity, may) in [(&read, "r"), (&operate, "ro"), (&admin, "roa")] {
        for need in ["r", "o", "a"] {
            let answer = ask(identity, at, "a", need.as_bytes());
            match may.contains(need) {
                true => assert_eq!(answer.unwrap(), format!("a: {need}").into_bytes()),
                false => refused(answer, Refusal::Role),
            }
        }
    }
    assert_eq!(ask(&read, at, "b", b"r").unwrap(), b"b: r");
    // A member has no right to ask, and an operator none to answer.
    let as_member = cluster.identity(&Caller::Member("a".into()));
    refused(ask(&as_member, at, "b", b"r"), Refusal::Role);
    let answers = block_on(async {
        let mut client = connect(&at.to_string(), &admin).await.unwrap();
        client.serve(tokio_stream::empty()).await.map(|_| Vec::new())
    });
    refused(answers.map_err(CallError::from), Refusal::Role);
    // Bytes that are no request, or too long for one.
    refused(ask(&admin, at, "a", b"\xff\x00"), Refusal::Malformed);
    refused(ask(&admin, at, "a", b""), Refusal::Malformed);
    refused(ask(&admin, at, "a", b"w"), Refusal::OneProcess);
    refused(ask(&admin, at, "A/b", b"r"), Refusal::Malformed);
    refused(ask(&admin, at, "a", &[b'r'; REQUEST_MAX + 1]), Refusal::Malformed);
    // Requests that the member does not answer, or answers at too great a length.
    refused(ask(&read, at, "a", b"r long"), Refusal::TooLong);
    refused(ask(&read, at, "a", b"r panic"), Refusal::MemberFailed);
    refused(ask(&read, at, "c", b"r"), Refusal::MemberAway);
    assert_eq!(ask(&read, at, "a", b"r").unwrap(), b"a: r");
    drop(b);
    until_serving(&read, at, &["a"]);
    refused(ask(&read, at, "b", b"r"), Refusal::MemberAway);
    assert_eq!(server.refused(Refusal::TooLong), 1);
}

/// The keeper takes a member's answers to its own question only.
const LAST: Keeper = Keeper {
    question: || b"r counted".to_vec(),
    add: |_, said| said.ends_with(b": r counted").then(|| said.to_vec()),
};

#[test]
fn what_a_member_had_counted_stays_when_it_is_gone() {
    let cluster = Cluster::new("relay-counted");
    let mut settings = cluster.settings("127.0.0.1:0".parse().unwrap());
    settings.judge = judge;
    settings.keeper = Some(LAST);
    let log = Embedded::open(&cluster.log_path()).unwrap();
    let server = Server::start(settings, Box::new(log)).unwrap();
    let at = server.address();
    let [read, operate] = [Right::Read, Right::Operate].map(|right| cluster.operator(right));
    let counted = |identity: &Identity, member: &str| {
        let operator = Operator {
            addresses: vec![at.to_string()],
            identity: identity.clone(),
        };
        operator.connect().unwrap().counted(member)
    };
    let (a, b) = (member(&cluster, "a", at), member(&cluster, "b", at));
    until_serving(&read, at, &["a", "b"]);
    until("both are heard", || {
        status(&read, at).is_some_and(|status| status.counted == ["a", "b"])
    });
    drop((a, b));
    until_serving(&read, at, &[]);
    assert_eq!(counted(&operate, "a").unwrap(), b"a: r counted");
    assert_eq!(counted(&operate, "c").unwrap(), b"");
    refused(counted(&read, "a"), Refusal::Role);
    refused(
        counted(&cluster.identity(&Caller::Member("a".into())), "a"),
        Refusal::Role,
    );
}

#[test]
fn a_member_that_answers_noise_disturbs_no_other() {
    let cluster = Cluster::new("relay-noise");
    let server = start(&cluster);
    let at = server.address();
    let read = cluster.operator(Right::Read);
    let _a = member(&cluster, "a", at);
    // The member answers a request that it never got, and then with more than a message may have.
    let hostile = cluster.identity(&Caller::Member("b".into()));
    let noise = std::thread::spawn(move || {
        block_on(async {
            let mut client = connect(&at.to_string(), &hostile).await.unwrap();
            let (answers, stream) = tokio::sync::mpsc::channel(8);
            let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
            let mut asked = client.serve(stream).await.unwrap().into_inner();
            let say = async |number, bytes: usize| {
                let what = Some(What::Answer(vec![b'x'; bytes]));
                let _ = answers.send(proto::Served { number, what }).await;
            };
            for number in 0..1000 {
                say(number, 10).await;
            }
            let first = asked.next().await.unwrap().unwrap();
            say(first.number, ANSWER_MAX + 1).await;
            let second = asked.next().await.unwrap().unwrap();
            say(second.number, 1 << 20).await;
            // The coordinator ends the stream.
            while let Some(Ok(_)) = asked.next().await {}
        })
    });
    until_serving(&read, at, &["a", "b"]);
    refused(ask(&read, at, "b", b"r"), Refusal::TooLong);
    refused(ask(&read, at, "b", b"r"), Refusal::MemberAway);
    noise.join().unwrap();
    until_serving(&read, at, &["a"]);
    assert_eq!(ask(&read, at, "a", b"r").unwrap(), b"a: r");
}

#[test]
fn the_first_coordinator_that_answers_is_asked_and_another_when_it_is_gone() {
    let (cluster, other) = (Cluster::new("relay-first"), Cluster::new("relay-second"));
    let read = cluster.operator(Right::Read);
    // No program listens there: a port that is free now may be another test's soon.
    let refuses = "127.0.0.1:1".to_owned();
    // This socket takes connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silence = silent.local_addr().unwrap().to_string();
    let operator = |addresses: &[&String]| Operator {
        addresses: addresses.iter().map(|address| (*address).clone()).collect(),
        identity: read.clone(),
    };
    // A coordinator of another cluster has another authority.
    let foreign = other.start();
    let foreign_at = foreign.address().to_string();
    match operator(&[&refuses, &silence, &foreign_at]).connect() {
        Err(why @ CallError::Unreached(_)) => {
            let why = why.to_string();
            let refused = format!("no coordinator answers: {refuses}: Connection refused");
            assert!(why.starts_with(&refused), "{why}");
            assert!(
                why.contains(&format!("{silence}: it does not answer in time")),
                "{why}"
            );
            assert!(
                why.contains(&format!("{foreign_at}: invalid peer certificate")),
                "{why}"
            );
        }
        Err(why) => panic!("{why}"),
        Ok(line) => panic!("{}", line.tried()),
    }
    let settings = |name: &str| {
        let mut settings = cluster.settings("127.0.0.1:0".parse().unwrap());
        settings.judge = judge;
        let log = Embedded::open(&cluster.log_path().with_extension(name)).unwrap();
        Server::start(settings, Box::new(log)).unwrap()
    };
    let (first, second) = (settings("one"), settings("two"));
    let [first_at, second_at] = [&first, &second].map(|server| server.address().to_string());
    let mut line = operator(&[&refuses, &silence, &first_at, &second_at])
        .connect()
        .unwrap();
    line.status().unwrap();
    assert_eq!(line.tried().answered.as_ref(), Some(&first_at));
    let failed: Vec<_> = line
        .tried()
        .failed
        .into_iter()
        .map(|(address, _)| address)
        .collect();
    assert_eq!(failed, [refuses, silence]);
    // The same connection goes on at the other one.
    drop(first);
    until("the second one answers", || line.status().is_ok());
    assert_eq!(line.tried().answered, Some(second_at));
}
