//! A server that is none, or an earlier one, or that lies: its words are not believed, and end
//! nothing.

use crate::apart::{processes, program};
use crate::faults::{ANSWER, driver, name};
use flowkeep_stores::apart::{Apart, Program};
use flowkeep_stores::batch::KeptBatch;
use flowkeep_stores::drivers::redis::Redis;
use flowkeep_stores::{Driver, Kind, OpenError, Outcome, Partition, Store, Version};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long calls may last once an agent is to end.
const LAST: Duration = Duration::from_secs(1);

/// A server that answers each read with the next of these; with a version, it answers the beginning
/// of a connection honestly.
fn liar(answers: Vec<Vec<u8>>, version: Option<&'static str>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter().cycle();
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 65536];
            let _ = stream.set_read_timeout(Some(ANSWER));
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                let honest = version.and_then(|version| beginning(&buffer[..length], version));
                let answer = honest.unwrap_or_else(|| answers.next().unwrap_or_default());
                if stream.write_all(&answer).is_err() {
                    break;
                }
            }
        }
    });
    port
}

/// A server's answer to the beginning of a connection.
fn beginning(said: &[u8], version: &str) -> Option<Vec<u8>> {
    let says = |word: &[u8]| said.windows(word.len()).any(|part| part == word);
    if says(b"HELLO") {
        return Some(hello(version));
    }
    // The library introduces itself first, in two commands.
    says(b"SETINFO").then(|| b"+OK\r\n+OK\r\n".to_vec())
}

/// A server that begins as one does, and whose next answer does not end: parts of so many bytes,
/// with so much time between them.
fn endless(part: usize, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_for_ever(stream, part, pause));
        }
    });
    format!("redis://127.0.0.1:{port}")
}

fn answer_for_ever(mut stream: TcpStream, part: usize, pause: Duration) -> std::io::Result<()> {
    let mut buffer = [0; 65536];
    loop {
        let length = stream.read(&mut buffer)?;
        match beginning(&buffer[..length], "7.4.0") {
            Some(answer) => stream.write_all(&answer)?,
            None => break,
        }
    }
    stream.write_all(b"$9000000000000000000\r\n")?;
    let part = vec![b'x'; part];
    loop {
        stream.write_all(&part)?;
        std::thread::sleep(pause);
    }
}

/// A server's introduction, with an error instead where there is no version.
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
        let port = liar(Vec::new(), Some(version));
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
    let variable = name(0).variable(Kind::Map, "m").unwrap();
    let version = Version {
        epoch: 1,
        sequence: 1,
    };
    let put = b"\x01\0\0\0\0\x01\0\0\0\x01\0\0\0kv".to_vec();
    let batch = KeptBatch::new(&name(0), version, std::slice::from_ref(&variable), put);
    let versions = [None, Some("7.4.0")].into_iter();
    for (lie, is) in versions.flat_map(|version| lies().into_iter().map(move |lie| (lie, version))) {
        let shown = format!("{is:?} {:?}", String::from_utf8_lossy(&lie[..lie.len().min(40)]));
        let port = liar(vec![lie.clone()], is);
        let mut driver = Redis::new(&format!("redis://127.0.0.1:{port}"), Duration::from_millis(20)).unwrap();
        let driver: &mut dyn Driver = &mut driver;
        assert!(driver.claim(&name(0), 1).is_err(), "{shown}");
        // An answer that fits another call is none to these.
        let mut read = 0;
        let loaded = driver.load(&variable, &mut |_, _| read += 1);
        assert!(loaded.is_err() && read == 0, "{shown}");
        assert!(driver.version(&name(0)).is_err(), "{shown}");
        assert!(driver.restore(&name(0), version).is_err(), "{shown}");
        assert!(driver.swap("r", None, Some(b"x")).is_err(), "{shown}");
        assert!(driver.variables().is_err(), "{shown}");
        assert!(driver.records().is_err(), "{shown}");
        // Names that are no partition's are passed by.
        let partitions = driver.partitions("load");
        assert!(
            partitions.is_err() || partitions == Ok(Vec::new()) && lie.starts_with(b"*3"),
            "{shown}: {partitions:?}"
        );
        // This is the answer of a server that has it.
        let mut outcomes = Vec::new();
        let written = driver.write(&[batch.batch()], &mut outcomes);
        match written {
            Ok(()) => assert!(
                outcomes == [Outcome::Stored] && lie.starts_with(b"+stored"),
                "{shown}"
            ),
            Err(_) => assert!(outcomes.is_empty(), "{shown}"),
        }
        // Of two batches both are answered, or the rest is not believed.
        let mut outcomes = Vec::new();
        let next = batch.batch();
        let written = driver.write(&[batch.batch(), next], &mut outcomes);
        assert!(written.is_err() || lie.starts_with(b"+stored"), "{shown}");
        // The library takes the first for three bytes, and the others for a record that is not
        // there.
        let taken = [&b"$3\r\nabcdef\r\n"[..], b"$-2\r\n", b"*-7\r\n"];
        assert!(
            driver.record("r").is_err() || taken.contains(&&lie[..]),
            "{shown}"
        );
    }
}

#[test]
fn a_server_that_names_keys_without_an_end_is_not_asked_for_ever() {
    let page = |next: &str| format!("*2\r\n${}\r\n{next}\r\n*0\r\n", next.len()).into_bytes();
    for pages in [vec![page("7")], vec![page("7"), page("31"), page("8")]] {
        let port = liar(pages, Some("7.4.0"));
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut driver = driver(&format!("redis://127.0.0.1:{port}"));
            let _ = ended.send((driver.variables().is_err(), driver.records().is_err()));
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(20)), Ok((true, true)));
    }
}

/// The library keeps the bytes of an answer until it is whole.
#[test]
fn an_answer_of_endless_length_ends_its_drivers_process_alone() {
    // Of 256 MiB, which are full sooner than 2 GiB.
    let this = program("endless");
    let exe = std::env::current_exe().unwrap().display().to_string();
    let limited = ["-c", "ulimit -d 262144; exec \"$0\" \"$@\"", &exe].map(str::to_owned);
    let limited = Program {
        path: "/bin/sh".into(),
        words: limited.into_iter().chain(this.words).collect(),
    };
    let mut driver = Apart::new(limited, &endless(1 << 16, Duration::ZERO));
    let failure = driver.record("r").unwrap_err();
    println!("{failure}");
    assert!(
        failure
            .problem
            .contains("it ended with signal 6: memory allocation of "),
        "{failure}"
    );
    assert!(failure.remedy.contains("your own"), "{failure}");
    assert_eq!(processes("endless"), []);
}

/// A byte comes sooner than any read gives up.
#[test]
fn a_trickle_without_an_end_does_not_hold_the_agents_end() {
    let driver = Apart::new(program("trickle"), &endless(1, Duration::from_millis(100)));
    let started = Store::start(Box::new(driver), Duration::from_secs(4), |_| ());
    let (store, agency) = started.unwrap();
    let opened = Partition::open(&store, name(0)).err().unwrap();
    assert!(matches!(opened, OpenError::Silent(4)), "the call lasts: {opened}");
    assert_eq!(store.health().failures, 0);
    assert_eq!(processes("trickle").len(), 1);
    let began = Instant::now();
    assert_eq!(agency.end_within(LAST), 0);
    assert!(
        began.elapsed() < LAST + Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(processes("trickle"), []);
}
