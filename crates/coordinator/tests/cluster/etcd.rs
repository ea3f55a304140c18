//! The log in a real etcd, and the election of one of several coordinators by its lease. Needs
//! Debian's `etcd-server`.

use super::rig::*;
use flowkeep_coordinator::agent::{CallError, enrol, enrol_at};
use flowkeep_coordinator::identity::{Right, Token};
use flowkeep_coordinator::log::{Etcd, Log, LogError};
use flowkeep_coordinator::proto::etcd;
use flowkeep_coordinator::proto::etcd::kv_client::KvClient;
use flowkeep_coordinator::refusal::{self, Refusal};
use flowkeep_coordinator::server::{Server, since_1970};
use protocols::membership::Role;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Endpoint;

/// Three members of etcd on loopback, killed and gone with this.
struct Store {
    members: Vec<Child>,
    addresses: Vec<String>,
    _directory: Directory,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Store {
    /// `None` where there is no etcd.
    fn start(name: &str) -> Option<Self> {
        Command::new("etcd")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .ok()?;
        let directory = Directory::new(name);
        let ports: Vec<_> = (0..3).map(|_| (free_port(), free_port())).collect();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all = ports.iter().enumerate();
        let all: Vec<_> = all
            .map(|(number, (_, peer))| format!("m{number}={}", url(*peer)))
            .collect();
        let members = ports.iter().enumerate().map(|(number, (client, peer))| {
            let name = format!("m{number}");
            Command::new("etcd")
                .args(["--name", &name, "--unsafe-no-fsync", "--log-level", "error"])
                .args([
                    "--initial-cluster",
                    &all.join(","),
                    "--initial-cluster-state",
                    "new",
                ])
                .args([
                    "--listen-client-urls",
                    &url(*client),
                    "--advertise-client-urls",
                    &url(*client),
                ])
                .args([
                    "--listen-peer-urls",
                    &url(*peer),
                    "--initial-advertise-peer-urls",
                    &url(*peer),
                ])
                .arg("--data-dir")
                .arg(directory.path().join(&name))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        Some(Store {
            members: members.collect(),
            addresses: ports.iter().map(|(client, _)| url(*client)).collect(),
            _directory: directory,
        })
    }

    fn elected(&self, name: &str) -> Etcd {
        let end = std::time::Instant::now() + PATIENCE;
        let over = || std::time::Instant::now() > end;
        let log = Etcd::elected(&self.addresses, "flowkeep/test", name, over).unwrap();
        log.expect("elected in time")
    }

    /// Gives a key another value, as a program other than a coordinator.
    fn write_over(&self, key: &str, value: &[u8]) {
        let put = etcd::PutRequest {
            key: key.into(),
            value: value.to_vec(),
            lease: 0,
        };
        let put = etcd::RequestOp {
            request: Some(etcd::request_op::Request::RequestPut(put)),
        };
        let request = etcd::TxnRequest {
            success: vec![put],
            ..Default::default()
        };
        let address = self.addresses[1].clone();
        block_on(async {
            let channel = Endpoint::from_shared(address).unwrap().connect().await;
            KvClient::new(channel.unwrap()).txn(request).await.unwrap();
        });
    }

    fn signal(&self, member: usize, signal: &str) {
        let id = self.members[member].id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    fn kill(&mut self, member: usize) {
        self.members[member].kill().unwrap();
        self.members[member].wait().unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

#[test]
fn one_coordinator_writes_and_one_that_was_deposed_does_not() {
    let Some(mut store) = Store::start("etcd-log") else {
        return println!("not run: needs etcd (apt install etcd-server)");
    };
    let mut first = store.elected("first");
    assert_eq!(first.read().unwrap(), vec![]);
    for number in 0..600_u64 {
        first.append(number, &number.to_be_bytes()).unwrap();
    }
    // The same again is no error; another one of this number is.
    first.append(599, &599_u64.to_be_bytes()).unwrap();
    assert!(matches!(first.append(599, b"another"), Err(LogError::Other(599))));
    first.forget(&(0..550).collect::<Vec<_>>()).unwrap();
    // No other is elected meanwhile.
    let begun = std::time::Instant::now();
    let over = || begun.elapsed() > Duration::from_secs(4);
    let second = Etcd::elected(&store.addresses, "flowkeep/test", "second", over).unwrap();
    assert!(second.is_none());

    // Any one of etcd's members may die: a majority is there. If it was their leader, they answer
    // when they have elected another one. A coordinator that has no answer for longer than its
    // lease rightly takes itself for deposed; the machine may be so slow.
    let killed = std::time::Instant::now();
    store.kill(0);
    until("it is written without that member", || {
        first.append(600, b"600").is_ok()
    });
    let is_soon = killed.elapsed() < Duration::from_secs(2);
    assert!(!is_soon || !first.held().is_over());

    // Deposed behind its back, as by a lease that was over while it was stopped.
    let removed = Command::new("curl")
        .args([
            "-sS",
            "-X",
            "POST",
            "-d",
            "{\"key\": \"Zmxvd2tlZXAvdGVzdC9sZWFkZXI=\"}",
        ])
        .arg(format!("{}/v3/kv/deleterange", store.addresses[1]))
        .output();
    let Ok(removed) = removed else {
        return println!("not run: needs curl");
    };
    assert!(
        String::from_utf8_lossy(&removed.stdout).contains("deleted"),
        "{removed:?}"
    );
    let mut second = store.elected("second");
    assert!(matches!(first.append(601, b"first"), Err(LogError::Deposed)));
    assert!(matches!(first.forget(&[600]), Err(LogError::Deposed)));
    let read = second.read().unwrap();
    assert_eq!(read.len(), 51);
    assert_eq!(read.last(), Some(&(600, b"600".to_vec())));
    second.append(601, b"second").unwrap();

    // Another program writes over a record: its checksum is not that, and it is named.
    store.write_over("flowkeep/test/records/0000000000000258", b"not by a coordinator");
    assert!(matches!(second.read(), Err(LogError::Damaged(600))));
}

#[test]
fn another_coordinator_goes_on_where_the_one_before_ended() {
    unsuspected(another_goes_on);
}

fn another_goes_on() {
    let Some(store) = Store::start("etcd-election") else {
        return println!("not run: needs etcd (apt install etcd-server)");
    };
    let cluster = Cluster::new("etcd-cluster");
    let ports = [free_port(), free_port()];
    let listen = |which: usize| format!("127.0.0.1:{}", ports[which]).parse().unwrap();
    let start = |which: usize| {
        let log = Box::new(store.elected(&format!("c{which}")));
        Server::start(cluster.settings(listen(which)), log).unwrap()
    };
    let links = Arc::new(Links::default());
    let reader = cluster.operator(Right::Read);
    let member = |name: &str, roles: &[Role]| {
        let mut settings = cluster.member(name, 1, roles, listen(0));
        settings.coordinators = vec![listen(0).to_string(), listen(1).to_string()];
        settings
    };
    let one = start(0);
    let switch = Process::join(member("edge", &[Role::Switch]), &links).unwrap();
    let a = Process::join(member("a", &[Role::Runtime]), &links).unwrap();
    until("both run", || {
        status(&reader, listen(0)).is_some_and(|status| running(&status) == ["edge", "a"])
    });
    let token = Token::make(&cluster.authority, "c", since_1970(), 10 * PATIENCE).unwrap();
    block_on(enrol(&listen(0).to_string(), &token)).unwrap();
    let before = status(&reader, listen(0)).unwrap().view;
    drop(one);
    let _other = start(1);
    let heard = |status: &flowkeep_coordinator::proto::StatusAnswer| {
        status.members.iter().all(|member| member.load.is_some())
    };
    until("the other hears all members", || {
        status(&reader, listen(1)).is_some_and(|status| heard(&status))
    });
    let after = status(&reader, listen(1)).unwrap();
    assert_eq!((after.view, after.trouble.as_str()), (before, ""));
    assert_eq!(running(&after), ["edge", "a"]);
    // The other coordinator knows which tokens were used, and decides: one more member.
    let refused = enrol_at(&[listen(1).to_string()], &token, PATIENCE);
    let Err(CallError::Refused(refused)) = refused else {
        panic!("not refused");
    };
    assert!(refusal::is(&refused, Refusal::TokenReplayed), "{refused:?}");
    let b = Process::join(member("b", &[Role::Runtime]), &links).unwrap();
    assert_eq!(b.ids(), [protocols::membership::WorkerId::runtime(1)]);
    until("all act", || {
        let mut all = switch.workers.iter().chain(&a.workers).chain(&b.workers);
        all.all(|worker| links.acts(worker.id))
    });
    links.check();
}

/// A member of etcd that is stopped, or whose host is off, refuses nothing: it is silent.
#[test]
fn a_silent_member_of_etcd_is_one_that_is_away() {
    let Some(store) = Store::start("etcd-silent") else {
        return println!("not run: needs etcd (apt install etcd-server)");
    };
    // Etcd's members have elected a leader of their own: the others elect one again if it was the
    // first.
    store.elected("before").append(0, b"0").unwrap();
    store.signal(0, "-STOP");
    let mut log = store.elected("first");
    assert_eq!(log.read().unwrap().len(), 1);
    // As long as two of its leases.
    for number in 1..=12_u64 {
        log.append(number, b"again").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(!log.held().is_over(), "at record {number}");
    }
    // The silent member is back, and another one falls silent while the coordinator is elected.
    store.signal(0, "-CONT");
    until("all three are there", || log.append(13, b"13").is_ok());
    std::thread::sleep(Duration::from_secs(1));
    store.signal(1, "-STOP");
    until("it is written without that member", || {
        log.append(14, b"14").is_ok()
    });
    store.signal(1, "-CONT");
}
