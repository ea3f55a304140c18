//! Connections that end by their age, and connections that keep others out.

use super::rig::*;
use flowkeep_coordinator::agent::AgentEvent;
use flowkeep_coordinator::log::Embedded;
use flowkeep_coordinator::refusal::Refusal;
use flowkeep_coordinator::server::Server;
use protocols::membership::Role;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// When an agent heard a coordinator, and when it did not.
type Said = Arc<Mutex<Vec<(Instant, AgentEvent)>>>;

/// A coordinator whose connections last so long.
fn start(cluster: &Cluster, age: Duration) -> Server {
    let mut settings = cluster.settings("127.0.0.1:0".parse().unwrap());
    settings.age = age;
    let log = Embedded::open(&cluster.log_path()).unwrap();
    let server = Server::start(settings, Box::new(log)).unwrap();
    thread::sleep(Duration::from_nanos(TIMING.settling));
    server
}

fn join(cluster: &Cluster, at: SocketAddr, renewal: Duration, links: &Arc<Links>) -> (Process, Said) {
    let said = Said::default();
    let mut settings = cluster.member("a", 1, &[Role::Runtime], at);
    settings.renewal = renewal;
    let noted = said.clone();
    settings.events = Arc::new(move |event| noted.lock().unwrap().push((Instant::now(), event)));
    (Process::join(settings, links).unwrap(), said)
}

/// A member has its next connection before the coordinator ends the one there is: it is heard all
/// the time.
#[test]
fn a_connection_that_ends_by_age_is_no_silence() {
    unsuspected(|| {
        let cluster = Cluster::new("aged");
        let server = start(&cluster, Duration::from_secs(2));
        let links = Arc::default();
        let (process, said) = join(&cluster, server.address(), Duration::from_secs(1), &links);
        thread::sleep(Duration::from_secs(10));
        let said = said.lock().unwrap();
        assert!(
            matches!(said[..], [(_, AgentEvent::Attends(_))]),
            "once heard, always heard: {said:?}"
        );
        assert_eq!(suspicions(&cluster), 0);
        assert!(!process.workers[0].is_fenced.load(Ordering::Relaxed));
    });
}

/// An agent that did not get the next connection in time asks for it at once.
#[test]
fn behind_a_good_connection_there_is_no_pause() {
    unsuspected(|| {
        let cluster = Cluster::new("no-pause");
        let server = start(&cluster, Duration::from_secs(2));
        let links = Arc::default();
        let (_process, said) = join(&cluster, server.address(), Duration::from_secs(3600), &links);
        let gaps = || -> Vec<Duration> {
            let said = said.lock().unwrap();
            let gap = |two: &[(Instant, AgentEvent)]| {
                matches!(two[0].1, AgentEvent::Alone(_)).then(|| two[1].0.duration_since(two[0].0))
            };
            said.windows(2).filter_map(gap).collect()
        };
        until("three connections have ended", || gaps().len() >= 3);
        let shortest = gaps().into_iter().min().unwrap();
        assert!(shortest < Duration::from_millis(45), "{:?}", gaps());
    });
}

/// Processes without a certificate that connect and say nothing, again and again.
struct Silent(Arc<AtomicBool>);

impl Silent {
    fn begin(at: SocketAddr, count: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..count {
            let over = over.clone();
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = TcpStream::connect(at) {
                        let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
                        let _ = stream.read(&mut [0; 16]);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        Silent(over)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn silent_connections_keep_no_member_out() {
    let cluster = Cluster::new("silent");
    let server = start(&cluster, Duration::from_secs(3600));
    let at = server.address();
    let _silent = Silent::begin(at, 70);
    until("the house is full", || server.refused(Refusal::Connections) > 20);
    let links = Arc::default();
    for (name, role) in [("edge", Role::Switch), ("a", Role::Runtime), ("b", Role::Runtime)] {
        let began = Instant::now();
        let mut settings = cluster.member(name, 1, &[role], at);
        settings.patience = Duration::from_secs(10);
        let joined = Process::join(settings, &links);
        assert!(
            joined.is_ok(),
            "{name} after {:?}: {:?}",
            began.elapsed(),
            joined.err()
        );
    }
}
