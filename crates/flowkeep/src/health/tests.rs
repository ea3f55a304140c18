//! A checker with servers that come and go, and a cluster that may not hear.

use super::*;
use nf::{Endpoint, Probe};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

#[derive(Default)]
struct Cluster {
    wants: Mutex<(u64, Vec<Wanted>)>,
    heard: Mutex<Vec<String>>,
    noted: Mutex<Vec<String>>,
    is_deaf: AtomicBool,
}

impl Checked for Arc<Cluster> {
    fn wanted(&self, known: u64) -> Option<(u64, Vec<Wanted>)> {
        let wants = self.wants.lock().unwrap();
        (wants.0 != known).then(|| wants.clone())
    }
    fn tell(&self, words: &[Words]) -> bool {
        if self.is_deaf.load(Ordering::Relaxed) {
            return false;
        }
        let said = words
            .iter()
            .map(|(function, words)| format!("{function} {}", words.join(" ")));
        self.heard.lock().unwrap().extend(said);
        true
    }
    fn note(&self, status: &BackendStatus) {
        let text = format!("{} {} {}", status.backend, status.state(), status.why);
        self.noted.lock().unwrap().push(text.trim_end().to_owned());
    }
}

fn wanted(backend: &str, at: SocketAddr, probe: Probe) -> Wanted {
    Wanted {
        function: "balancer".into(),
        check: Check {
            service: "web".into(),
            backend: backend.into(),
            at: Endpoint::new(at.ip().into(), at.port()),
            probe,
            interval: Duration::from_millis(100),
            timeout: Duration::from_millis(80),
            rise: 2,
            fall: 3,
        },
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_that_goes_and_comes_is_said_once_each_and_all_is_said_again_to_who_has_not_heard() {
    let cluster = Arc::new(Cluster::default());
    let board = Arc::new(Board::default());
    let good = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = good.local_addr().unwrap();
    *cluster.wants.lock().unwrap() = (
        1,
        vec![
            wanted("good", at, Probe::Tcp),
            wanted("mute", mute.local_addr().unwrap(), Probe::Http("/".into())),
        ],
    );
    let thread = {
        let (cluster, board) = (cluster.clone(), board.clone());
        std::thread::spawn(move || Checker::default().run(&board, || Some(cluster.clone())))
    };
    let heard = |words: &str| {
        cluster
            .heard
            .lock()
            .unwrap()
            .iter()
            .filter(|one| *one == words)
            .count()
    };
    until("both", || {
        heard("balancer check web good up") > 0 && heard("balancer check web mute down") > 0
    });
    let status = board.status();
    assert_eq!(
        (status[0].up, status[1].up),
        (Some(true), Some(false)),
        "{status:?}"
    );
    assert_eq!(status[1].why, "no answer within 80ms");
    // Being up at first is no change.
    assert_eq!(
        *cluster.noted.lock().unwrap(),
        ["mute failing no answer within 80ms"]
    );

    drop(good);
    until("down", || heard("balancer check web good down") > 0);
    assert_eq!(
        cluster.noted.lock().unwrap()[1],
        "good failing it refuses connections"
    );
    cluster.is_deaf.store(true, Ordering::Relaxed);
    let good = TcpListener::bind(at).unwrap();
    until("up", || board.status()[0].up == Some(true));
    // The cluster is deaf for longer than one try.
    std::thread::sleep(LOOK * 3);
    let before = heard("balancer check web good up");
    cluster.is_deaf.store(false, Ordering::Relaxed);
    until("said again", || heard("balancer check web good up") > before);
    assert_eq!(cluster.noted.lock().unwrap().len(), 3);

    // One more instance hears of all of them, though nothing has changed.
    let before = heard("balancer check web mute down");
    board.say_again();
    until("all again", || heard("balancer check web mute down") > before);
    // Another configuration without the mute one: its check ends, and the other keeps its standing.
    *cluster.wants.lock().unwrap() = (2, vec![wanted("good", at, Probe::Tcp)]);
    until("fewer", || board.status().len() == 1);
    assert_eq!(board.status()[0].up, Some(true));
    board.close();
    thread.join().unwrap();
    assert_eq!(cluster.noted.lock().unwrap().len(), 3);
    drop(good);
}

/// Three hundred servers that accept and say nothing: never more than so many are asked at once,
/// and each has its turn.
#[test]
fn many_servers_take_turns() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = mute.local_addr().unwrap();
    let all = (0..300).map(|number| wanted(&format!("b{number}"), at, Probe::Http("/".into())));
    let mut checker = Checker::default();
    checker.take_up(all.collect(), Instant::now());
    let (cluster, board) = (Arc::new(Cluster::default()), Board::default());
    let began = Instant::now();
    while checker
        .servers
        .iter()
        .any(|server| server.standing.is_up().is_none())
    {
        checker.begin();
        let under_way = checker
            .servers
            .iter()
            .filter(|server| server.attempt.is_some())
            .count();
        assert!(under_way <= AT_ONCE, "{under_way}");
        checker.go_on(&cluster, &board);
        checker.looks_at = Some(Instant::now() + LOOK);
        checker.wait();
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    assert_eq!(cluster.noted.lock().unwrap().len(), 300);
}
