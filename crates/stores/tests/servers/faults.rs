//! A real redis-server, and in [`crate::cassandra_faults`] a real Cassandra, that dies, stalls,
//! refuses and lies, under load: counters are exact when the dust settles.

use crate::proxies::{cutting_proxy, slow_proxy};
use crate::redis::Server;
use flowkeep_stores::drivers::cassandra::Cassandra;
use flowkeep_stores::drivers::redis::Redis;
use flowkeep_stores::{
    Consistency, Driver, Health, OpenError, Options, Partition, PartitionName, Report, Store,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(120);
/// How long the driver waits for an answer here.
pub const ANSWER: Duration = Duration::from_millis(300);
const KEYS: u32 = 200;

pub fn options() -> Options {
    Options {
        capacity: 2 * KEYS as usize,
        consistency: Consistency::Behind {
            interval_ns: 1_000_000,
            bound_ns: 100_000_000,
        },
    }
}

pub fn name(runtime: u32) -> PartitionName {
    PartitionName::new("load", "m", runtime).unwrap()
}

pub type Reports = Arc<Mutex<Vec<Report>>>;

pub fn driver(uri: &str) -> Box<dyn Driver> {
    // Handshakes, disks and collectors of garbage take longer now and then.
    let long = Duration::from_secs(2);
    match uri.split(':').next() {
        Some("redis") => Box::new(Redis::new(uri, ANSWER).unwrap()),
        Some("rediss") => Box::new(Redis::new(uri, long).unwrap()),
        Some("cassandra" | "cassandras") => Box::new(Cassandra::new(uri, long).unwrap()),
        _ => flowkeep_stores::driver_of(uri).unwrap(),
    }
}

pub fn open(uri: &str) -> (Store, flowkeep_stores::Agency, Reports) {
    let reports = Reports::default();
    let told = Arc::clone(&reports);
    let driver = driver(uri);
    let report = move |report| told.lock().unwrap().push(report);
    let (store, agency) = Store::start(driver, PATIENCE, report).unwrap();
    (store, agency, reports)
}

/// A worker's observations.
pub struct Seen {
    pub packets: u64,
    pub was_late: bool,
    pub rewritten: u64,
    /// The rest of a map of keys that come and go.
    left: Vec<(u64, u64)>,
}

/// Runs two workers that count, while `disturb` does its harm; then all is stored, and the content
/// of the server at `at` is exact.
pub fn under_load(
    uri: &str,
    at: &str,
    disturb: impl FnOnce(&Store, &AtomicU64),
) -> (Vec<Seen>, Health, Vec<Report>) {
    let (seen, health, reports) = under_load_of(open(uri), disturb);
    verify(at, &seen);
    (seen, health, reports)
}

/// As [`under_load`], with a store that is open; its content is still to be looked at.
pub fn under_load_of(
    (store, agency, reports): (Store, flowkeep_stores::Agency, Reports),
    disturb: impl FnOnce(&Store, &AtomicU64),
) -> (Vec<Seen>, Health, Vec<Report>) {
    let over = AtomicBool::new(false);
    let packets = AtomicU64::new(0);
    let working = AtomicU64::new(0);
    let work = |runtime| {
        let mut partition = Partition::open(&store, name(runtime)).unwrap();
        let total = partition.counter("total", options()).unwrap();
        let each = partition.counter_map::<u32>("each", options()).unwrap();
        // Keys that come and go, so that there are removals that must not be lost.
        let passing = partition.map::<u64, u64>("passing", options()).unwrap();
        let (began, mut seen) = (
            Instant::now(),
            Seen {
                packets: 0,
                was_late: false,
                rewritten: 0,
                left: Vec::new(),
            },
        );
        working.fetch_add(1, Ordering::Relaxed);
        while !over.load(Ordering::Relaxed) {
            for _ in 0..32 {
                let n = seen.packets;
                total.add(1);
                each.add(&(n as u32 % KEYS), 1).unwrap();
                let _ = passing.insert(&(n / 8), n);
                passing.remove(&((n / 8).saturating_sub(20))).unwrap();
                seen.packets += 1;
            }
            packets.fetch_add(32, Ordering::Relaxed);
            partition.step(began.elapsed().as_nanos() as u64);
            seen.was_late |= partition.figures().late;
            std::thread::sleep(Duration::from_micros(50));
        }
        assert!(partition.finish(PATIENCE), "{:?}", store.health());
        seen.rewritten = partition.figures().rewritten;
        assert_eq!(total.get() as u64, seen.packets);
        let mut left = Vec::new();
        passing.for_each(|key, value| left.push((*key, *value)));
        left.sort_unstable();
        seen.left = left;
        seen
    };
    let seen = std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..2).map(|runtime| scope.spawn(move || work(runtime))).collect();
        let began = Instant::now();
        while working.load(Ordering::Relaxed) < 2 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(100));
        let disturbed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disturb(&store, &packets)));
        over.store(true, Ordering::Relaxed);
        let seen: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        disturbed.unwrap();
        seen
    });
    let health = store.health();
    assert_eq!(agency.end(), 0);
    let reports = reports.lock().unwrap().clone();
    (seen, health, reports)
}

/// Another instance that takes over the identities at this server finds every count.
pub fn verify(at: &str, seen: &[Seen]) {
    let (store, _agency, _) = open(at);
    for (runtime, seen) in (0..).zip(seen) {
        let mut partition = Partition::open(&store, name(runtime)).unwrap();
        assert_eq!(
            partition.counter("total", options()).unwrap().get() as u64,
            seen.packets
        );
        let each = partition.counter_map::<u32>("each", options()).unwrap();
        for key in 0..KEYS {
            let expected =
                seen.packets / u64::from(KEYS) + u64::from(seen.packets % u64::from(KEYS) > u64::from(key));
            assert_eq!(each.get(&key) as u64, expected);
        }
        let mut found = Vec::new();
        let passing = partition.map::<u64, u64>("passing", options()).unwrap();
        passing.for_each(|key, value| found.push((*key, *value)));
        found.sort_unstable();
        assert_eq!(found, seen.left);
    }
}

/// Packets go on: workers count on while this lasts, four in a millisecond at least. Steps that
/// waited for the server's patience would be seven in a second, of 32 packets each.
pub fn goes_on(packets: &AtomicU64, time: Duration) {
    // The time that a busy machine takes besides.
    const SLACK: Duration = Duration::from_secs(3);
    let (before, until) = (packets.load(Ordering::Relaxed), Instant::now() + time);
    let least = before + u64::try_from(4 * time.as_millis()).unwrap().max(1000);
    while Instant::now() < until || packets.load(Ordering::Relaxed) < least {
        assert!(Instant::now() < until + SLACK, "packets stand still");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Server {
    /// Says a command, and gives the answer's first bytes.
    fn say(&self, command: &str) -> String {
        self.try_say(command).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Refuses each byte behind so many of any of its files from now on, as a full disk does.
    fn limit_files(&self, bytes: Option<u64>) {
        let pid = self.child.as_ref().map(std::process::Child::id).unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        let maximum = getrlimit(Resource::Fsize).maximum;
        let current = bytes.or(maximum);
        prlimit(pid, Resource::Fsize, Rlimit { current, maximum }).unwrap();
    }

    /// How long its log is, with `--appendonly yes`.
    fn log_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.folder.path().join("appendonlydir")).unwrap();
        let lengths = files.map(|file| file.unwrap().metadata().unwrap().len());
        lengths.max().unwrap()
    }

    pub fn restart(&mut self) {
        self.launch().unwrap();
    }
}

/// The server, or a line that says why not.
fn server(settings: &[&str]) -> Option<Server> {
    Server::start(settings)
        .map_err(|why| println!("not run: {why}"))
        .ok()
}

pub fn await_failure(store: &Store) {
    let began = Instant::now();
    while !store.health().failing {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Until the failed part goes again.
pub fn await_recovery(store: &Store) {
    let began = Instant::now();
    while store.health().failing {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.health());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_server_that_is_killed_and_has_lost_everything_has_it_again() {
    let Some(mut server) = server(&[]) else { return };
    let uri = server.uri();
    let (seen, health, reports) = under_load(&uri, &uri, |store, packets| {
        for _ in 0..3 {
            server.kill();
            goes_on(packets, Duration::from_millis(300));
            await_failure(store);
            server.restart();
            await_recovery(store);
            goes_on(packets, Duration::from_millis(700));
        }
    });
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten >= 3));
    assert!(health.failures > 0 && !health.failing);
    assert!(reports.iter().any(|report| matches!(report, Report::Failing(_))));
    assert!(reports.iter().any(|report| matches!(report, Report::Again(_))));
    assert!(reports.contains(&Report::Forgotten(name(1))));
}

#[test]
fn a_server_that_keeps_a_log_and_is_killed_loses_nothing() {
    let Some(mut server) = server(&["--appendonly", "yes", "--appendfsync", "everysec"]) else {
        return;
    };
    let uri = server.uri();
    under_load(&uri, &uri, |store, packets| {
        for _ in 0..2 {
            server.kill();
            await_failure(store);
            server.restart();
            await_recovery(store);
            goes_on(packets, Duration::from_millis(500));
        }
    });
}

#[test]
fn a_server_that_lost_its_data_at_rest_is_found_out() {
    let Some(mut server) = server(&[]) else { return };
    let (store, _agency, reports) = open(&server.uri());
    let mut partition = Partition::open(&store, name(0)).unwrap();
    let total = partition.counter("total", options()).unwrap();
    total.add(7);
    assert!(partition.finish(PATIENCE));
    server.kill();
    server.restart();
    let began = Instant::now();
    while !reports.lock().unwrap().contains(&Report::Forgotten(name(0))) {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    partition.step(1);
    assert!(partition.figures().rewritten == 1 && partition.finish(PATIENCE));
    let mut next = Partition::open(&store, name(0)).unwrap();
    assert_eq!(next.counter("total", options()).unwrap().get(), 7);
}

#[test]
fn a_server_that_stalls_holds_no_packet_up_and_nothing_counts_twice() {
    let Some(server) = server(&[]) else { return };
    let uri = server.uri();
    let (seen, health, reports) = under_load(&uri, &uri, |store, packets| {
        server.signal(Signal::STOP);
        goes_on(packets, Duration::from_secs(10));
        await_failure(store);
        server.signal(Signal::CONT);
        await_recovery(store);
        goes_on(packets, Duration::from_millis(700));
    });
    let mut more: Vec<Report> = reports.clone();
    more.retain(|report| !matches!(report, Report::Failing(_) | Report::Again(_)));
    alarms(&more);
    // Batches that were given up were in the stopped server's buffers, and came to be written when
    // it went on.
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
    assert!(health.failures > 0);
}

/// That the reports are alarms of late changes, that there is one, and that each is over before the
/// next, and in the end.
fn alarms(reports: &[Report]) {
    let bound = Duration::from_millis(100);
    let mut late = std::collections::HashSet::new();
    let mut count = 0;
    for report in reports {
        let is_right = match report {
            Report::Late {
                partition,
                age,
                bound: of,
            } => {
                count += 1;
                late.insert(partition.clone()) && *of == bound && *age > bound
            }
            Report::InTime(partition, _) => late.remove(partition),
            _ => false,
        };
        assert!(is_right, "{report:?} in {reports:?}");
    }
    assert!(count > 0 && late.is_empty(), "{reports:?}");
}

/// A store at `at` whose answers are late on the way `through` has batches less often, in this
/// time; a trip to it takes 50 ms and more.
pub fn is_slow(through: &str, at: &str, time: Duration) {
    let mut calm = 0;
    let (seen, health, reports) = under_load(through, at, |store, packets| {
        let [batches, before] = [store.health().batches, packets.load(Ordering::Relaxed)];
        goes_on(packets, time);
        calm = packets.load(Ordering::Relaxed) - before;
        // Two buffers of each of two workers are on their way at most, and each go takes 50 ms: the
        // interval of 1 ms has become 25 ms and more.
        let written = store.health().batches - batches;
        let most = u64::try_from(4 * time.as_millis() / 50).unwrap();
        assert!((10..=most).contains(&written), "{written}, {most} at most");
    });
    // Steps that waited for the server would be a hundred in five seconds, of 64 packets together.
    let least = 4 * u64::try_from(time.as_millis()).unwrap();
    assert!(calm > least, "{calm}");
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
    assert!(health.failures == 0, "{health:?} {reports:?}");
    // Its bound is a tenth of a second.
    alarms(&reports);
}

#[test]
fn a_slow_server_stretches_the_interval_and_holds_no_packet_up() {
    let Some(server) = server(&[]) else { return };
    let port = slow_proxy(server.port, 50..200);
    let through = format!("redis://127.0.0.1:{port}");
    is_slow(&through, &server.uri(), Duration::from_secs(5));
}

#[test]
fn connections_that_are_cut_in_mid_batch_cost_nothing() {
    let Some(server) = server(&[]) else { return };
    let (cuts, whole) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
    let after = [(2000, 60_000), (40, 400)];
    let port = cutting_proxy(server.port, Arc::clone(&cuts), Arc::clone(&whole), after);
    let (seen, health, _) = under_load(
        &format!("redis://127.0.0.1:{port}"),
        &server.uri(),
        |_, packets| {
            whole.store(false, Ordering::Relaxed);
            let began = Instant::now();
            while cuts.load(Ordering::Relaxed) < 30 {
                assert!(began.elapsed() < PATIENCE, "{cuts:?}");
                goes_on(packets, Duration::from_millis(20));
            }
            whole.store(true, Ordering::Relaxed);
        },
    );
    assert!(health.failures >= 10, "{health:?}");
    assert!(seen.iter().all(|seen| seen.rewritten == 0));
}

/// The server refuses while `wrong` holds; its error says what to do, and everything is there when
/// `right` does.
fn refuses(wrong: &str, right: &str, code: &str, remedy: &str) {
    let Some(server) = server(&[]) else { return };
    let uri = server.uri();
    let (_, health, _) = under_load(&uri, &uri, |store, packets| {
        assert!(server.say(wrong).starts_with("+OK"), "{wrong}");
        await_failure(store);
        goes_on(packets, Duration::from_millis(200));
        let said = store.health().last_failure.unwrap().to_string();
        assert!(said.contains(code) && said.contains(remedy), "{said}");
        assert!(server.say(right).starts_with("+OK"), "{right}");
        await_recovery(store);
        goes_on(packets, Duration::from_millis(600));
    });
    assert!(!health.failing);
}

#[test]
fn a_server_without_memory_is_named_and_loses_nothing() {
    refuses(
        "CONFIG SET maxmemory 1",
        "CONFIG SET maxmemory 0",
        "OOM",
        "raise the server's `maxmemory`",
    );
}

#[test]
fn a_replica_is_named_and_loses_nothing() {
    refuses(
        "REPLICAOF 127.0.0.1 1",
        "REPLICAOF NO ONE",
        "read only replica",
        "name the primary",
    );
}

impl Server {
    /// Says a command as the user of this password, and gives the answer's first bytes.
    fn say_by(&self, password: &str, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut say = |command: &str| {
            stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
            let mut answer = [0; 4096];
            let length = stream.read(&mut answer).unwrap();
            String::from_utf8_lossy(&answer[..length]).into_owned()
        };
        let said = say(&format!("AUTH {password}"));
        assert!(said.starts_with("+OK"), "{said}");
        say(command)
    }
}

#[test]
fn a_password_that_changes_under_load_costs_no_count_once_it_is_set_back() {
    let Some(server) = server(&["--requirepass", "f1rst"]) else {
        return;
    };
    let uri = format!("redis://:f1rst@127.0.0.1:{}", server.port);
    let (seen, health, reports) = under_load(&uri, &uri, |store, packets| {
        let said = server.say_by("f1rst", "CONFIG SET requirepass s3cond");
        assert!(said.starts_with("+OK"), "{said}");
        // Connections that there are have their rights until they end.
        server.say_by("s3cond", "CLIENT KILL TYPE normal");
        let began = Instant::now();
        let said = loop {
            let said = store.health().last_failure.map(|failure| failure.to_string());
            match said {
                Some(said) if said.contains("user and the password that the server knows") => break said,
                said => assert!(began.elapsed() < PATIENCE, "{said:?}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let port = server.port;
        assert!(
            said.contains(&format!("redis://…@127.0.0.1:{port}"))
                && !said.contains("f1rst")
                && !said.contains("s3cond"),
            "{said}"
        );
        let batches = store.health().batches;
        goes_on(packets, Duration::from_millis(700));
        let health = store.health();
        assert!(health.failing && health.batches == batches, "{health:?}");
        let said = server.say_by("s3cond", "CONFIG SET requirepass f1rst");
        assert!(said.starts_with("+OK"), "{said}");
        await_recovery(store);
        goes_on(packets, Duration::from_millis(300));
    });
    // The server has lost nothing, so nothing is written again.
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
    assert!(health.failures > 0 && !health.failing);
    let failing = |report: &&Report| matches!(report, Report::Failing(_));
    let again = |report: &&Report| matches!(report, Report::Again(_));
    assert_eq!(
        reports.iter().filter(failing).count(),
        reports.iter().filter(again).count()
    );
}

/// The disk is full by a limit, which the kernel tells the server of as it does of a full disk.
#[test]
fn a_server_whose_disk_is_full_is_named_and_loses_nothing() {
    let settings = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let Some(mut server) = server(&settings) else {
        return;
    };
    let uri = server.uri();
    let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
        for bytes in [0, 100_000] {
            server.limit_files(Some(server.log_bytes() + bytes));
            await_failure(store);
            goes_on(packets, Duration::from_millis(300));
            let health = store.health();
            let said = health.last_failure.unwrap().to_string();
            assert!(
                health.failing && said.contains("MISCONF") && said.contains("cannot write to its disk"),
                "{said}"
            );
            server.limit_files(None);
            await_recovery(store);
            goes_on(packets, Duration::from_millis(300));
        }
    });
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
    assert!(health.failures > 0 && !health.failing);
    // Its log is whole: so it begins again with every count.
    server.kill();
    server.restart();
    verify(&uri, &seen);
}

#[test]
fn a_key_of_another_kind_is_named() {
    let key = "{load@m@0}@Counter@total";
    let Some(server) = server(&[]) else { return };
    let (store, _agency, _) = open(&server.uri());
    let mut partition = Partition::open(&store, name(0)).unwrap();
    let each = partition.counter_map::<u32>("each", options()).unwrap();
    let total = partition.counter("total", options()).unwrap();
    assert!(server.say(&format!("SET {key} x")).starts_with("+OK"));
    total.add(3);
    each.add(&1, 2).unwrap();
    assert!(!partition.finish(Duration::from_millis(200)));
    await_failure(&store);
    let said = store.health().last_failure.unwrap().to_string();
    assert!(said.contains("WRONGTYPE") && said.contains("remove it"), "{said}");
    assert!(server.say(&format!("DEL {key}")).starts_with(":1"));
    assert!(partition.finish(PATIENCE));
    let mut next = Partition::open(&store, name(0)).unwrap();
    assert_eq!(next.counter("total", options()).unwrap().get(), 3);
    assert_eq!(next.counter_map::<u32>("each", options()).unwrap().get(&1), 2);
}

#[test]
fn users_and_passwords_are_those_of_the_server() {
    let settings =
        "--requirepass other --user mine on >right ~{* ~flowkeep@* +@read +@write +@scripting +@connection";
    let Some(server) = server(&settings.split(' ').collect::<Vec<_>>()) else {
        return;
    };
    let opened = |secret: &str| {
        let uri = format!("redis://{secret}@127.0.0.1:{}", server.port);
        let driver = Redis::new(&uri, ANSWER).unwrap();
        let (store, _agency) = Store::start(Box::new(driver), Duration::from_secs(1), |_| ()).unwrap();
        let mut partition = Partition::open(&store, name(0))?;
        let total = partition.counter("total", options())?;
        total.add(1);
        assert!(partition.finish(PATIENCE), "{:?}", store.health());
        Ok::<_, OpenError>(total.get())
    };
    for wrong in ["mine:wrong", ":wrong", "unknown:right"] {
        let said = opened(wrong).unwrap_err().to_string();
        assert!(
            said.contains("redis://USER:PASSWORD@HOST") && !said.contains(wrong),
            "{said}"
        );
    }
    assert_eq!(opened("mine:right").unwrap(), 1);
    assert_eq!(opened(":other").unwrap(), 2);
}

#[test]
fn a_version_that_something_else_has_overwritten_is_not_believed() {
    let Some(server) = server(&[]) else { return };
    let (store, _agency, _) = open(&server.uri());
    let mut partition = Partition::open(&store, name(0)).unwrap();
    let total = partition.counter("total", options()).unwrap();
    for field in ["epoch", "sequence"] {
        let has = server.say(&format!("HGET {{load@m@0}} {field}"));
        server.say(&format!("HSET {{load@m@0}} {field} nonsense"));
        total.add(5);
        assert!(!partition.finish(Duration::from_millis(200)), "{field}");
        let right = has.lines().nth(1).unwrap();
        server.say(&format!("HSET {{load@m@0}} {field} {right}"));
        assert!(partition.finish(PATIENCE), "{field}");
    }
    let mut next = Partition::open(&store, name(0)).unwrap();
    assert_eq!(next.counter("total", options()).unwrap().get(), 10);
}
