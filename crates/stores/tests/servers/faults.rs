//! A real redis-server, and in [`crate::cassandra_faults`] a real Cassandra, that dies, stalls,
//! refuses and lies, under load: counters are exact when the dust settles.

use crate::redis::Server;
use flowkeep_stores::drivers::cassandra::Cassandra;
use flowkeep_stores::drivers::redis::Redis;
use flowkeep_stores::{
    Consistency, Driver, Health, OpenError, Options, Partition, PartitionName, Report, Store,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(120);
/// How long the driver waits for an answer here.
const ANSWER: Duration = Duration::from_millis(300);
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

/// What a worker saw.
pub struct Seen {
    pub packets: u64,
    pub was_late: bool,
    pub rewritten: u64,
    /// What was left in a map of keys that come and go.
    left: Vec<(u64, u64)>,
}

/// Runs two workers that count, while `disturb` does its harm; then all is stored, and what the
/// server at `at` has is exact.
pub fn under_load(
    uri: &str,
    at: &str,
    disturb: impl FnOnce(&Store, &AtomicU64),
) -> (Vec<Seen>, Health, Vec<Report>) {
    let (seen, health, reports) = under_load_of(open(uri), disturb);
    verify(at, &seen);
    (seen, health, reports)
}

/// As [`under_load`], with a store that is open; what it has is still to be looked at.
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

/// Packets go on: workers count on while this lasts.
pub fn goes_on(packets: &AtomicU64, time: Duration) {
    let (before, until) = (packets.load(Ordering::Relaxed), Instant::now() + time);
    while Instant::now() < until || packets.load(Ordering::Relaxed) < before + 1000 {
        assert!(Instant::now() < until + PATIENCE, "packets stand still");
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

/// Until what failed goes again.
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

/// Hands bytes on between a client and the server, and cuts each connection after some of them:
/// either way, anywhere. The one that goes to the server is cut after `sent` bytes at least, the
/// other after `heard`; each after up to so many more.
pub fn cutting_proxy(
    to: u16,
    cuts: Arc<AtomicU64>,
    whole: Arc<AtomicBool>,
    [sent, heard]: [(u64, u64); 2],
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) else {
                return;
            };
            let mut next = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let left = [sent.0 + next(sent.1), heard.0 + next(heard.1)];
            for (from, into, mut left) in [(&client, &server, left[0]), (&server, &client, left[1])] {
                let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                let (cuts, whole) = (Arc::clone(&cuts), Arc::clone(&whole));
                std::thread::spawn(move || {
                    let mut buffer = [0; 1500];
                    while let Ok(length @ 1..) = from.read(&mut buffer) {
                        let mut pass = length;
                        if !whole.load(Ordering::Relaxed) {
                            pass = length.min(left as usize);
                            left -= pass as u64;
                        }
                        if into.write_all(&buffer[..pass]).is_err() || pass < length {
                            cuts.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
                });
            }
        }
    });
    port
}

/// Hands bytes on between a client and the server; what the server answers is late, by a time of
/// its own each time.
fn slow_proxy(to: u16, late: std::ops::Range<u64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) else {
                return;
            };
            for (from, into, late) in [(&client, &server, 0..1), (&server, &client, late.clone())] {
                let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                std::thread::spawn(move || {
                    let (mut buffer, mut answers) = ([0; 65536], 0);
                    while let Ok(length @ 1..) = from.read(&mut buffer) {
                        answers += 37;
                        let time = late.start + answers % (late.end - late.start);
                        std::thread::sleep(Duration::from_millis(time));
                        if into.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
                });
            }
        }
    });
    port
}

#[test]
fn a_slow_server_stretches_the_interval_and_holds_no_packet_up() {
    let Some(server) = server(&[]) else { return };
    let port = slow_proxy(server.port, 50..200);
    let uri = format!("redis://127.0.0.1:{port}");
    let time = Duration::from_secs(5);
    let mut calm = 0;
    let (seen, health, reports) = under_load(&uri, &server.uri(), |store, packets| {
        let [batches, before] = [store.health().batches, packets.load(Ordering::Relaxed)];
        goes_on(packets, time);
        calm = packets.load(Ordering::Relaxed) - before;
        // Two buffers of each of two workers are on their way at most, and each go takes 50 ms: the
        // interval of 1 ms has become 25 ms and more.
        let written = store.health().batches - batches;
        let most = u64::try_from(4 * time.as_millis() / 50).unwrap();
        assert!((10..=most).contains(&written), "{written}, {most} at most");
    });
    // Steps that waited for the server would be a hundred in this time, of 64 packets together.
    assert!(calm > 20_000, "{calm}");
    assert!(seen.iter().all(|seen| seen.was_late && seen.rewritten == 0));
    assert!(health.failures == 0, "{health:?} {reports:?}");
    // Its bound is a tenth of a second.
    alarms(&reports);
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

/// A server that answers each read with the next of these; what asks for its version it may answer
/// honestly.
fn liar(answers: Vec<Vec<u8>>, version: Option<&'static str>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter().cycle();
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 65536];
            let _ = stream.set_read_timeout(Some(ANSWER));
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                let is_hello = buffer[..length].windows(5).any(|word| word == b"HELLO");
                let answer = match version.filter(|_| is_hello) {
                    Some(version) => hello(version),
                    None => answers.next().unwrap_or_default(),
                };
                if stream.write_all(&answer).is_err() {
                    break;
                }
            }
        }
    });
    port
}

/// What a server says of itself, with an error instead where there is no version.
fn hello(version: &str) -> Vec<u8> {
    if version.is_empty() {
        return b"-ERR unknown command `HELLO`, with args beginning with: \r\n".to_vec();
    }
    let facts = ["server", "redis", "version", version, "mode", "standalone"];
    let facts = facts.map(|fact| format!("${}\r\n{fact}\r\n", fact.len()));
    format!("*6\r\n{}", facts.concat()).into_bytes()
}

#[test]
fn a_server_of_an_earlier_version_is_refused_by_name() {
    for (version, named) in [
        ("6.2.14", "it is redis 6.2.14"),
        ("nonsense", "it is redis nonsense"),
        ("", "its version is older than 6.2"),
    ] {
        // What the library says of itself comes first, in two commands.
        let port = liar(vec![b"+OK\r\n+OK\r\n".to_vec()], Some(version));
        let uri = format!("redis://127.0.0.1:{port}");
        let said = driver(&uri).claim(&name(0), 1).unwrap_err().to_string();
        assert!(
            said.contains(named) && said.contains("needs Redis 7 or later"),
            "{said}"
        );
    }
}

/// Answers that are none, and answers to something else.
fn lies() -> Vec<Vec<u8>> {
    let mut lies: Vec<Vec<u8>> = [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "+OK\r\n+OK\r\n",
        "$-2\r\n",
        "$99999999999999999999\r\n",
        "$2147483647\r\nx",
        "*2147483647\r\n",
        "*-7\r\n",
        ":99999999999999999999999\r\n",
        "$3\r\nabcdef\r\n",
        "+stored\r\n+stored\r\n+stored\r\n",
        "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        "*2\r\n*0\r\n:3\r\n",
        "%1\r\n+a\r\n+b\r\n",
        ">2\r\n+message\r\n+x\r\n",
        "-\r\n",
        "",
    ]
    .into_iter()
    .map(|lie| lie.as_bytes().to_vec())
    .collect();
    lies.push("*1\r\n".repeat(5000).into_bytes());
    lies.push((0..=255).collect());
    lies
}

#[test]
fn a_server_that_lies_neither_ends_the_agent_nor_is_believed() {
    let versions = [None, Some("7.4.0")].into_iter();
    for (lie, version) in versions.flat_map(|version| lies().into_iter().map(move |lie| (lie, version))) {
        let shown = String::from_utf8_lossy(&lie[..lie.len().min(40)]).into_owned();
        let port = liar(vec![lie.clone()], version);
        let mut driver = Redis::new(&format!("redis://127.0.0.1:{port}"), Duration::from_millis(50)).unwrap();
        let driver: &mut dyn flowkeep_stores::Driver = &mut driver;
        let variable = name(0).variable(flowkeep_stores::Kind::Map, "m").unwrap();
        assert!(driver.claim(&name(0), 1).is_err(), "{shown}");
        // What may be an answer to something else is none to these.
        let mut read = 0;
        let loaded = driver.load(&variable, &mut |_, _| read += 1);
        assert!(loaded.is_err() && read == 0, "{shown}");
        assert!(driver.version(&name(0)).is_err(), "{shown}");
        assert!(driver.swap("r", None, Some(b"x")).is_err(), "{shown}");
        assert!(
            driver.record("r").is_err() || lie == b"$3\r\nabcdef\r\n",
            "{shown}"
        );
    }
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
