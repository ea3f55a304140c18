//! Two real stores that mirror each other, under load: either one dies, stalls or loses its data,
//! and both have every count in the end.

use crate::faults::{PATIENCE, Reports, Seen, driver, goes_on, under_load_of, verify};
use crate::redis::Server;
use flowkeep_stores::mirror::{SideHealth, Told, Watch};
use flowkeep_stores::{Agency, Mirror, Store};
use rustix::process::Signal;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

struct Pair {
    watch: Watch,
    told: Arc<Mutex<Vec<Told>>>,
}

fn open(first: &str, second: &str) -> ((Store, Agency, Reports), Pair) {
    let told = Arc::<Mutex<Vec<Told>>>::default();
    let tell = Arc::clone(&told);
    let named = |uri: &str| (uri.to_owned(), driver(uri));
    let report = move |word| tell.lock().unwrap().push(word);
    let (mirror, watch) = Mirror::start(named(first), named(second), report).unwrap();
    let reports = Reports::default();
    let heard = Arc::clone(&reports);
    let report = move |report| heard.lock().unwrap().push(report);
    let (store, agency) = Store::start(Box::new(mirror), PATIENCE, report).unwrap();
    ((store, agency, reports), Pair { watch, told })
}

impl Pair {
    fn await_side(&self, at: usize, what: &str, is: impl Fn(&SideHealth) -> bool) {
        let began = Instant::now();
        while !is(&self.watch.sides()[at]) {
            assert!(began.elapsed() < PATIENCE, "{what}: {:?}", self.watch.sides());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn await_behind(&self, at: usize) {
        self.await_side(at, "behind", |side| side.behind > 0);
    }

    fn await_in_step(&self) {
        for at in [0, 1] {
            self.await_side(at, "in step", |side| side.behind == 0 && !side.failing);
        }
    }
}

/// Of two stores the agent sees no failure, and no worker writes everything again.
fn was_not_noticed(store: &Store, seen: &[Seen]) {
    assert_eq!(store.health().failures, 0, "{:?}", store.health());
    assert!(seen.iter().all(|seen| seen.rewritten == 0));
}

#[test]
fn a_server_beside_a_file_dies_again_and_again() {
    let Ok(mut server) = Server::start(&[]).map_err(|why| println!("not run: {why}")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (redis, file) = (
        server.uri(),
        format!("redb:{}", folder.path().join("store").display()),
    );
    // The server is the first, from which is read, and then the second.
    for (first, second, at) in [(&redis, &file, 0), (&file, &redis, 1)] {
        let (opened, pair) = open(first, second);
        let store = opened.0.clone();
        let (seen, _, _) = under_load_of(opened, |_, packets| {
            for _ in 0..2 {
                server.kill();
                pair.await_behind(at);
                goes_on(packets, Duration::from_millis(400));
                assert!(pair.watch.sides()[at].waiting_bytes > 0);
                server.restart();
                pair.await_in_step();
                goes_on(packets, Duration::from_millis(200));
            }
        });
        was_not_noticed(&store, &seen);
        drop(store);
        let told = pair.told.lock().unwrap().clone();
        assert!(
            told.iter()
                .any(|told| matches!(told, Told::Behind(store, _) if *store == redis))
        );
        assert!(told.contains(&Told::InStep(redis.clone())), "{told:?}");
        verify(&redis, &seen);
        verify(&file, &seen);
        server.try_say("FLUSHALL").unwrap();
        std::fs::remove_file(folder.path().join("store")).unwrap();
    }
}

#[test]
fn either_of_two_servers_dies_stalls_and_loses_its_data() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let [Ok(first), Ok(second)] = servers else {
        println!("not run: needs redis-server");
        return;
    };
    let (uris, mut servers) = ([first.uri(), second.uri()], [first, second]);
    let (opened, pair) = open(&uris[0], &uris[1]);
    let store = opened.0.clone();
    let (seen, _, _) = under_load_of(opened, |_, packets| {
        for at in [0, 1, 0] {
            servers[at].kill();
            pair.await_behind(at);
            goes_on(packets, Duration::from_millis(300));
            // The server comes back without its data, which the other has.
            servers[at].restart();
            pair.await_in_step();
            servers[at].signal(Signal::STOP);
            pair.await_behind(at);
            goes_on(packets, Duration::from_millis(1500));
            servers[at].signal(Signal::CONT);
            pair.await_in_step();
            // Lost while it runs: its next batch finds out.
            let copies = pair.watch.sides()[at].copies;
            servers[at].try_say("FLUSHALL").unwrap();
            pair.await_side(at, "copied", |side| side.copies > copies);
            pair.await_in_step();
        }
    });
    was_not_noticed(&store, &seen);
    assert!(
        pair.watch.sides().iter().all(|side| side.copies > 0),
        "{:?}",
        pair.watch.sides()
    );
    // Each of them has everything.
    verify(&uris[0], &seen);
    verify(&uris[1], &seen);
}
