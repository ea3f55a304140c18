//! Variables of a running Flowkeep, kept by real stores: the command as a person starts it, a
//! redis-server of the test's own, `kill -9`.
//!
//! | | requirement |
//! |---|---|
//! | a capture is replayed | the store has exactly its packets and bytes |
//! | the server is killed under load, and begins again with its log or without anything | exact, when the dust has settled |
//! | the server refuses under load: it has no memory (`OOM`), it is a replica (`READONLY`) | packets go on, none is dropped; exact in the end |
//! | the server is stalled for ten seconds under load | packets go on each second; exact afterwards, nothing is fenced |
//! | a runtime is drained while packets wait for a server that is stalled | it is told that calls wait; nothing is lost, and the drain succeeds when the server goes on |
//! | Flowkeep is killed under load, and begins again | counts go on from the flushed ones: all but the last fifth of a second |
//! | the configuration is changed under load | counts go on, nothing is fenced, nothing counts twice |
//! | a store is looked into, and taken over into another | the same |
//! | a running Flowkeep has the file, or the store in its memory | the same by its control socket; a file that is not there is not made |
//! | one of two mirrored stores is killed, or Flowkeep beside it (`storing/mirrored.rs`) | both have every count |
//!
//! Where there is no redis-server, the tests say `not run`. Not here: drivers
//! (`crates/stores/tests`).

#[path = "storing/mirrored.rs"]
mod mirrored;
#[path = "schema/mod.rs"]
mod schema;
mod storing;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use storing::{Folder, Server, flowkeep, output, server, wait};

/// The sums of a store's variables of this name, over all partitions.
fn sum_at(uri: &str, name: &str) -> i64 {
    let (done, said, error) = output(&["store", "inspect", uri, "--json"]);
    assert!(done, "{error}");
    schema::holds("store", said.as_bytes());
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let all = said["variables"].as_array().expect("a list");
    let named = all.iter().filter(|row| row["name"] == name);
    named.map(|row| row["sum"].as_i64().expect("a sum")).sum()
}

impl Folder {
    /// A gateway with a counter: its input, its store's table, and its counter's.
    fn gateway(&self, input: &str, store: &str, counter: &str) -> String {
        self.file(
            "gateway.toml",
            &format!(
                "runtimes = 2\n[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"{input}\"\n\
                 [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
                 [[chain]]\nname = \"all\"\nfunctions = [\"counter\"]\n[function.counter]\n{counter}\n\
                 [log]\nevents = \"{}\"\n[control]\nsocket = \"{}\"\n{store}",
                self.path("events.jsonl"),
                self.path("flowkeep.sock"),
            ),
        )
    }

    /// Traffic without end, by the clock.
    fn traffic(&self) -> String {
        let profile = self.file(
            "traffic.toml",
            "flows = 500\nrate = { total = 20000.0 }\npace = \"clock\"\n[[classes]]\ntcp = 0.5\n",
        );
        format!("generate:{profile}")
    }

    fn counted(&self) -> Option<i64> {
        self.status()?["counters"]["counter/packets"].as_i64()
    }

    fn stop(&self, mut running: Running) -> i64 {
        let (done, _, error) = output(&["stop", "--socket", &self.path("flowkeep.sock")]);
        assert!(done, "{error}");
        let output = running
            .0
            .take()
            .expect("it runs")
            .wait_with_output()
            .expect("its end");
        let (said, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{said}{error}");
        let last: Value = serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON");
        last["counters"]["counter/packets"].as_i64().expect("a count")
    }
}

/// Ended with the test.
struct Running(Option<Child>);

impl Running {
    fn start(config: &str) -> Self {
        let mut command = flowkeep(&["run", config, "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("it starts")))
    }

    fn kill(mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const LOGGED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn table(uri: &str, more: &str) -> String {
    format!("[store]\nuri = \"{uri}\"\n{more}\n")
}

/// Replays a capture whose packets are known; answers how many, and their bytes.
fn replayed(uri: &str, counter: &str) -> (i64, i64) {
    let folder = Folder::new();
    let profile = folder.file(
        "made.toml",
        "flows = 300\npackets_max = 30000\n[[classes]]\ntcp = 0.3\n",
    );
    let capture = folder.path("made.pcap");
    let made = folder.file(
        "make.toml",
        &format!(
            "[[port]]\nname = \"a\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n[[port]]\nname = \"b\"\nside = \"outside\"\noutput = \
             \"pcap:{capture}\"\n[[chain]]\nname = \"c\"\nfunctions = [\"flow_monitor\"]\n[control]\nsocket = \"{}\"\n",
            folder.path("made.sock"),
        ),
    );
    let (done, _, error) = output(&["run", &made]);
    assert!(done, "{error}");
    let config = folder.gateway(&format!("pcap:{capture}"), &table(uri, ""), counter);
    let (done, said, error) = output(&["run", &config, "--json"]);
    assert!(done, "{said}{error}");
    let last: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    let packets = last["packets"]["in"].as_i64().expect("a count");
    assert_eq!(packets, 30_000);
    let bytes = last["ports"][0]["received_bytes"].as_i64().expect("a count");
    (packets, bytes)
}

#[test]
fn a_replays_counts_are_in_the_store_to_the_packet() {
    if let Some(server) = server(&[]) {
        for (name, counter) in [("protocol", ""), ("inside_host", "by = \"inside_host\"")] {
            let (packets, bytes) = replayed(&server.uri(), counter);
            assert_eq!(sum_at(&server.uri(), &format!("packets_by_{name}")), packets);
            assert_eq!(sum_at(&server.uri(), &format!("bytes_by_{name}")), bytes);
        }
        // A second run counts on.
        replayed(&server.uri(), "");
        assert_eq!(sum_at(&server.uri(), "packets_by_protocol"), 60_000);
    }
    let folder = Folder::new();
    let file = format!("redb:{}", folder.path("variables.redb"));
    let (packets, bytes) = replayed(&file, "");
    assert_eq!(
        (
            sum_at(&file, "packets_by_protocol"),
            sum_at(&file, "bytes_by_protocol")
        ),
        (packets, bytes)
    );
    // The file that it is taken over into has all its counts.
    let other = format!("redb:{}", folder.path("other.redb"));
    let (done, said, error) = output(&["store", "migrate", &file, &other]);
    assert!(
        done && said.contains("4 variables of 2 partitions"),
        "{said}{error}"
    );
    assert_eq!(sum_at(&other, "packets_by_protocol"), packets);
    let (done, said, _) = output(&["store", "inspect", &other]);
    assert!(
        done && said.contains("counter@@0@CounterMap@packets_by_protocol"),
        "{said}"
    );
    // Both runtimes' parts are one variable, and the sum is all packets.
    let (done, said, error) = output(&["store", "inspect", &other, "--merged", "--json"]);
    assert!(done, "{error}");
    schema::holds("store-merged", said.as_bytes());
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let rows = said["variables"].as_array().expect("a list");
    assert_eq!(rows.len(), 2, "{said}");
    let row = &rows[1];
    assert_eq!(
        (&row["name"], &row["parts"]),
        (&"packets_by_protocol".into(), &2.into())
    );
    assert_eq!(
        (row["sum"].as_i64(), row["elements"].as_u64()),
        (Some(packets), Some(2))
    );
    let (done, said, _) = output(&["store", "inspect", &other, "--merged"]);
    let line = "counter@CounterMap@packets_by_protocol";
    assert!(done && said.contains(line) && said.contains("PARTS"), "{said}");
}

/// Variables are of a function's name in the configuration, not of its kind.
#[test]
fn two_functions_of_one_kind_have_variables_of_their_own() {
    let folder = Folder::new();
    let profile = folder.file(
        "made.toml",
        "flows = 300\npackets_max = 30000\n[[classes]]\ntcp = 0.3\n",
    );
    let file = format!("redb:{}", folder.path("variables.redb"));
    let config = folder.file(
        "two.toml",
        &format!(
            "[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"tcp\"\nfunctions = [\"of_tcp\", \"of_both\"]\n[chain.match]\nprotocol = \"tcp\"\n\
             [[chain]]\nname = \"rest\"\nfunctions = [\"of_both\"]\n\
             [function.of_tcp]\nkind = \"counter\"\n[function.of_both]\nkind = \"counter\"\n\
             [control]\nsocket = \"{}\"\n{}",
            folder.path("flowkeep.sock"),
            table(&file, "")
        ),
    );
    // A second run goes on with the same counts.
    for run in 1..=2 {
        let (done, said, error) = output(&["run", &config, "--json"]);
        assert!(done, "{said}{error}");
        let (done, said, error) = output(&["store", "inspect", &file, "--merged", "--json"]);
        assert!(done, "{error}");
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let rows = said["variables"].as_array().expect("a list");
        let sum = |function: &str| {
            let is_it = |row: &&Value| row["function"] == function && row["name"] == "packets_by_protocol";
            let found = rows.iter().find(is_it).unwrap_or_else(|| panic!("{said:#}"));
            found["sum"].as_i64().expect("a sum")
        };
        let [of_tcp, of_both] = [sum("of_tcp"), sum("of_both")];
        assert_eq!(of_both, 30_000 * run, "{said:#}");
        assert!(of_tcp > 0 && of_tcp < of_both, "{said:#}");
    }
}

/// A file belongs to one process at a time: that process hands out a copy.
#[test]
fn a_file_that_a_running_flowkeep_has_is_looked_into_and_followed() {
    let folder = Folder::new();
    let uri = format!("redb:{}", folder.path("variables.redb"));
    let running = Running::start(&folder.gateway(&folder.traffic(), &table(&uri, ""), ""));
    let least = wait("traffic", || folder.counted().filter(|count| *count > 5_000));
    std::thread::sleep(Duration::from_secs(1));
    let socket = folder.path("flowkeep.sock");
    let (done, said, error) = output(&["store", "inspect", &uri, "--json", "--socket", &socket]);
    assert!(done, "{error}");
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let rows = said["variables"].as_array().expect("a list");
    let packets = rows.iter().filter(|row| row["name"] == "packets_by_protocol");
    let sum: i64 = packets.map(|row| row["sum"].as_i64().expect("a sum")).sum();
    assert!(sum >= least, "{sum} of at least {least}");
    // Without the socket it says the remedy.
    let nowhere = folder.path("nowhere.sock");
    let (done, _, error) = output(&["store", "inspect", &uri, "--socket", &nowhere]);
    assert!(!done && error.contains("--socket"), "{error}");
    // While it runs, another store gets all of it, as of one moment; with --follow until it has
    // ended.
    let other = format!("redb:{}", folder.path("other.redb"));
    let (done, said, error) = output(&["store", "migrate", &uri, &other, "--socket", &socket]);
    assert!(
        done && said.contains("4 variables of 2 partitions"),
        "{said}{error}"
    );
    assert!(sum_at(&other, "packets_by_protocol") >= sum);
    let last = format!("redb:{}", folder.path("last.redb"));
    let mut follow = flowkeep(&["store", "migrate", "--follow", &uri, &last, "--socket", &socket]);
    let beside = folder.path("beside");
    std::fs::create_dir(&beside).expect("a folder");
    follow.env("TMPDIR", &beside).stdout(Stdio::piped());
    let mut follow = Running(Some(follow.spawn().expect("it starts")));
    std::thread::sleep(Duration::from_secs(3));
    let counted = folder.stop(running);
    std::thread::sleep(Duration::from_secs(4));
    if let Some(mut child) = follow.0.take() {
        child.kill().expect("it is killed");
        let said = child.wait_with_output().expect("its end").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("has all of it"), "{said}");
    }
    assert_eq!(sum_at(&last, "packets_by_protocol"), counted);
    let copies = std::fs::read_dir(&beside).expect("a folder");
    assert_eq!(copies.count(), 0, "no copy stays, though it was killed");
}

/// The configuration's settings of one variable: its interval, and that it is in no store.
#[test]
fn one_variable_has_settings_of_its_own() {
    let folder = Folder::new();
    let uri = format!("redb:{}", folder.path("variables.redb"));
    let own = |variables: &str| {
        let store = table(&uri, variables);
        Running::start(&folder.gateway(&folder.traffic(), &store, ""))
    };
    let socket = folder.path("flowkeep.sock");
    let sum = |name: &str| -> i64 {
        let (done, said, error) = output(&["store", "inspect", &uri, "--json", "--socket", &socket]);
        assert!(done, "{error}");
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let rows = said["variables"].as_array().expect("a list").iter();
        let named = rows.filter(|row| row["name"] == name);
        named.map(|row| row["sum"].as_i64().expect("a sum")).sum()
    };
    // The one's interval is long, the other's the function's.
    let slow = "[store.function.counter.variable.packets_by_protocol]\ninterval = \"1h\"\nbound = \"1h\"";
    let running = own(slow);
    wait("traffic", || folder.counted().filter(|count| *count > 5_000));
    // Where the machine is up for longer than that, it is over for the first change.
    let (packets, bytes) = (sum("packets_by_protocol"), sum("bytes_by_protocol"));
    wait("more bytes at the store", || {
        (sum("bytes_by_protocol") > bytes + 100_000).then_some(())
    });
    assert_eq!(sum("packets_by_protocol"), packets);
    assert!(packets < 5_000, "{packets}");
    // The end of the process tells the store.
    let counted = folder.stop(running);
    assert_eq!(sum_at(&uri, "packets_by_protocol"), counted);
    let bytes = sum_at(&uri, "bytes_by_protocol");
    assert!(bytes > 100_000, "{bytes}");
    // Local: the store hears nothing of it, and keeps its count.
    let running = own("[store.function.counter.variable.bytes_by_protocol]\nconsistency = \"local\"");
    wait("it answers", || folder.counted());
    wait("more packets at the store", || {
        (sum("packets_by_protocol") > counted).then_some(())
    });
    let all = folder.stop(running);
    assert_eq!(sum_at(&uri, "packets_by_protocol"), counted + all);
    assert_eq!(sum_at(&uri, "bytes_by_protocol"), bytes);
}

#[test]
fn a_file_that_is_not_there_is_not_made() {
    let folder = Folder::new();
    let path = folder.path("typo.redb");
    for words in [vec!["store", "inspect"], vec!["store", "migrate"]] {
        let uri = format!("redb:{path}");
        let mut words = [words, vec![uri.as_str()]].concat();
        if words[1] == "migrate" {
            words.push("redis://127.0.0.1:1");
        }
        let (done, _, error) = output(&words);
        assert!(!done && error.contains("there is no such file"), "{error}");
        assert!(!std::path::Path::new(&path).exists());
    }
}

/// Packets of each runtime's table that `flowkeep function counter COMMAND` prints.
fn counts_of(folder: &Folder, command: &str) -> Vec<i64> {
    let socket = folder.path("flowkeep.sock");
    let (done, said, error) = output(&["function", "counter", command, "--socket", &socket, "--json"]);
    assert!(done, "{error}");
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let answers = said["answers"].as_array().expect("a list");
    let packets = |answer: &serde_json::Value| -> i64 {
        let rows = answer["rows"].as_array().expect("a table").iter();
        rows.filter_map(|row| row["packets"].as_i64()).sum()
    };
    answers.iter().map(packets).collect()
}

#[test]
fn each_runtime_has_the_whole_functions_counts() {
    let folder = Folder::new();
    let store = "[store]\nuri = \"memory:\"\nmerge = \"50ms\"";
    let _running = Running::start(&folder.gateway(&folder.traffic(), store, "merged = true"));
    let own = wait("both runtimes count", || {
        folder.counted()?;
        let own = counts_of(&folder, "counts");
        (own.len() == 2 && own.iter().all(|packets| *packets > 1000)).then_some(own)
    });
    // Views that are made from now on have at least the counts that both had.
    let at_least: i64 = own.iter().sum();
    let merged = wait("merged views of both", || {
        let merged = counts_of(&folder, "merged");
        (merged.len() == 2 && merged.iter().all(|packets| *packets >= at_least)).then_some(merged)
    });
    // No view counts more than was counted.
    let all: i64 = counts_of(&folder, "counts").iter().sum();
    assert!(merged.iter().all(|packets| *packets <= all), "{merged:?} {all}");
}

#[test]
fn a_server_that_is_killed_under_load_has_exact_counts_in_the_end() {
    for settings in [&LOGGED[..], &[]] {
        let Some(mut server) = server(settings) else {
            return;
        };
        let folder = Folder::new();
        let running = Running::start(&folder.gateway(&folder.traffic(), &table(&server.uri(), ""), ""));
        let mut at_least = 5_000;
        for _ in 0..3 {
            wait("traffic", || folder.counted().filter(|count| *count > at_least));
            if let Some(mut child) = server.child.take() {
                child.kill().expect("it is killed");
                let _ = child.wait();
            }
            // Packets go on without it, and it is told.
            let failing = || {
                folder
                    .status()
                    .filter(|status| status["stores"][0]["failing"] == true)
            };
            let status = wait("a failing store", failing);
            let without = status["counters"]["counter/packets"].as_i64().expect("a count");
            at_least = without + 5_000;
            wait("packets without a store", || {
                folder.counted().filter(|count| *count > at_least)
            });
            server.launch().expect("it begins again");
            wait("a store that is back", || {
                folder
                    .status()
                    .filter(|status| status["stores"][0]["failing"] == false)
            });
            at_least += 5_000;
        }
        let counted = folder.stop(running);
        assert_eq!(sum_at(&server.uri(), "packets_by_protocol"), counted);
        let events = std::fs::read_to_string(folder.path("events.jsonl")).expect("events");
        for event in ["store_failing", "store_again"] {
            assert!(events.contains(event), "{events}");
        }
    }
}

/// Says a command to the server, which does it.
fn say(server: &Server, command: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a server");
    write!(stream, "{command}\r\n").expect("it is sent");
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"+OK", "{command}");
}

#[test]
fn a_server_that_refuses_changes_holds_no_packet_up() {
    let Some(server) = server(&[]) else { return };
    let folder = Folder::new();
    let running = Running::start(&folder.gateway(&folder.traffic(), &table(&server.uri(), ""), ""));
    let is_failing = |status: &Value| status["stores"][0]["failing"] == true;
    let mut at_least = 5_000;
    for (wrong, right) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ] {
        wait("traffic", || folder.counted().filter(|count| *count > at_least));
        say(&server, wrong);
        wait("a failing store", || folder.status().filter(is_failing));
        at_least = folder.counted().expect("an answer") + 20_000;
        let began = Instant::now();
        wait("packets", || folder.counted().filter(|count| *count > at_least));
        // The packets come in a second.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{wrong}: {took:?}");
        let status = folder.status().expect("an answer");
        let dropped = status["packets"]["dropped"].as_object();
        assert!(
            is_failing(&status) && dropped.is_some_and(serde_json::Map::is_empty),
            "{wrong}: {status}"
        );
        say(&server, right);
        wait("a store that is back", || {
            folder.status().filter(|status| !is_failing(status))
        });
        at_least += 5_000;
    }
    let counted = folder.stop(running);
    assert_eq!(sum_at(&server.uri(), "packets_by_protocol"), counted);
}

/// Sends a signal, by its name.
fn signal(child: &Child, name: &str) {
    let done = std::process::Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(done.expect("kill").success());
}

#[test]
fn a_server_that_stalls_for_ten_seconds_holds_no_packet_up() {
    let Some(server) = server(&[]) else { return };
    let folder = Folder::new();
    let running = Running::start(&folder.gateway(&folder.traffic(), &table(&server.uri(), ""), ""));
    let mut before = wait("traffic", || folder.counted().filter(|count| *count > 5_000));
    let child = server.child.as_ref().expect("a server");
    signal(child, "-STOP");
    let stalled = Instant::now();
    while stalled.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_secs(1));
        let now = folder.counted().expect("an answer");
        // Of 20,000 in a second, on a machine that may be busy.
        assert!(now >= before + 4_000, "{now} after {before}");
        before = now;
    }
    let failing = |is: bool| {
        folder
            .status()
            .filter(|status| status["stores"][0]["failing"] == is)
    };
    let status = wait("a failing store", || failing(true));
    // How late it is, and how long changes are collected meanwhile, is said.
    for of in status["variables"].as_array().expect("variables") {
        let seconds = |name: &str| of[name].as_f64().expect("seconds");
        assert_eq!((&of["late"], seconds("bound_seconds")), (&true.into(), 1.0));
        assert!(seconds("waiting_seconds") > 8.0, "{of}");
        assert!(
            seconds("interval_seconds") > 8.0 && seconds("interval_set_seconds") == 0.001,
            "{of}"
        );
    }
    signal(child, "-CONT");
    let status = wait("a store that is back", || failing(false));
    let variables = status["variables"].as_array().expect("variables");
    assert!(
        !variables.is_empty() && variables.iter().all(|of| of["fenced"] == false),
        "{status}"
    );
    wait("packets after it", || {
        folder.counted().filter(|count| *count > before + 5_000)
    });
    let events = || std::fs::read_to_string(folder.path("events.jsonl")).expect("events");
    let told = |event: &str| events().matches(&format!("\"event\":\"{event}\"")).count();
    // Once for each runtime, and its end.
    wait("changes in time", || {
        (told("variables_in_time") >= 2).then_some(())
    });
    assert_eq!(told("variables_late"), told("variables_in_time"), "{}", events());
    let counted = folder.stop(running);
    assert_eq!(sum_at(&server.uri(), "packets_by_protocol"), counted);
}

/// A call that waits for its store holds its group where it is: a move is called back after a
/// second, and tried again when the store answers.
fn packets_wait_for_a_store_that_stalls(variables: &str, counter: &str) {
    let Some(server) = server(&[]) else { return };
    let folder = Folder::new();
    let gateway = folder.gateway(&folder.traffic(), &table(&server.uri(), variables), counter);
    let running = Running::start(&gateway);
    wait("traffic", || folder.counted().filter(|count| *count > 5_000));
    let child = server.child.as_ref().expect("a server");
    signal(child, "-STOP");
    let flows = || folder.status().expect("an answer")["runtimes"][0].clone();
    wait("calls that wait", || {
        let of = flows();
        (of["waiting"].as_u64() == of["flows"].as_u64()).then_some(())
    });
    let socket = folder.path("flowkeep.sock");
    let drain = || output(&["runtime", "drain", "0", "--socket", &socket]);
    let began = Instant::now();
    let (done, said, error) = drain();
    assert!(!done && error.contains("called back"), "{said}{error}");
    assert!(error.contains("flowkeep runtime drain 0"), "no remedy: {error}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(flows()["flows"].as_u64() > Some(0));
    signal(child, "-CONT");
    wait("a drain", || drain().0.then_some(()));
    assert_eq!(flows()["flows"].as_u64(), Some(0));
    let before = folder.counted().expect("an answer");
    wait("packets after it", || {
        folder.counted().filter(|count| *count > before + 5_000)
    });
    let counted = folder.stop(running);
    assert_eq!(sum_at(&server.uri(), "packets_by_protocol"), counted);
}

#[test]
fn a_drain_while_packets_wait_for_a_store_that_stalls_loses_nothing() {
    packets_wait_for_a_store_that_stalls("", "wait = true");
}

/// The function's own settings and code have no part in it.
#[test]
fn so_does_one_while_they_wait_since_a_variable_is_written_through() {
    let variable = "[store.function.counter.variable.packets_by_protocol]";
    packets_wait_for_a_store_that_stalls(&format!("{variable}\nconsistency = \"write_through\""), "");
}

#[test]
fn a_flowkeep_that_is_killed_goes_on_from_what_was_flushed() {
    let Some(server) = server(&[]) else { return };
    let folder = Folder::new();
    let config = folder.gateway(
        &folder.traffic(),
        &table(&server.uri(), "interval = \"10ms\""),
        "",
    );
    let mut before = 0;
    for round in 0..3 {
        let running = Running::start(&config);
        let counted = wait("traffic", || folder.counted().filter(|count| *count > 10_000));
        running.kill();
        let has = sum_at(&server.uri(), "packets_by_protocol") - before;
        // All that was counted when it was asked, but for the last fifth of a second: the interval
        // of 10 ms, and the delays of a busy machine.
        println!("round {round}: {counted} packets were counted when it was asked, the store has {has}");
        assert!(has + 20_000 / 5 >= counted, "{has} of {counted}");
        before += has;
    }
    // The next one finds them, and adds to them.
    let running = Running::start(&config);
    wait("traffic", || folder.counted().filter(|count| *count > 5_000));
    let counted = folder.stop(running);
    assert_eq!(sum_at(&server.uri(), "packets_by_protocol"), before + counted);
}

#[test]
fn a_changed_configuration_goes_on_counting() {
    let Some(server) = server(&[]) else { return };
    let folder = Folder::new();
    let traffic = folder.traffic();
    let store = table(&server.uri(), "");
    let running = Running::start(&folder.gateway(&traffic, &store, ""));
    wait("traffic", || folder.counted().filter(|count| *count > 5_000));
    let socket = folder.path("flowkeep.sock");
    let mut at_least = 0;
    for counter in ["wait = true", "by = \"inside_host\"", "wait = false"] {
        let config = folder.gateway(&traffic, &store, counter);
        wait("a change", || {
            let (done, said, error) = output(&["chain", "apply", &config, "--socket", &socket]);
            if !done {
                println!("{said}{error}");
            }
            done.then_some(())
        });
        let now = folder.counted().expect("an answer");
        assert!(now >= at_least);
        at_least = now + 5_000;
        wait("packets", || folder.counted().filter(|count| *count > at_least));
    }
    let status = folder.status().expect("an answer");
    let variables = status["variables"].as_array().expect("variables");
    assert!(
        !variables.is_empty() && variables.iter().all(|of| of["fenced"] == false),
        "{status}"
    );
    let counted = folder.stop(running);
    let sum = |name| sum_at(&server.uri(), name);
    assert_eq!(
        sum("packets_by_protocol") + sum("packets_by_inside_host"),
        counted
    );
    assert!(sum("packets_by_inside_host") > 0);
}

#[test]
fn what_cannot_be_a_store_is_said_where_it_stands() {
    let folder = Folder::new();
    let cases = [
        (
            "[store]\nuri = \"etcd://me:secret@h\"",
            "store.uri",
            "write memory:, redb:PATH, redis://HOST:PORT or cassandra://",
        ),
        (
            "[store]\nuri = \"memory:\"\ninterval = \"2s\"\nbound = \"1s\"",
            "store.bound",
            "shorter interval",
        ),
        (
            "[store]\nuri = \"memory:\"\ninterval = \"2h\"",
            "store.interval",
            "write for example",
        ),
        (
            "[store]\nuri = \"memory:\"\n[store.function.conter]\nuri = \"none\"",
            "store.function.conter",
            "write `counter`",
        ),
        // Settings of one variable.
        (
            "[store]\nuri = \"memory:\"\n[store.function.counter.variable.packets_by_protocols]\ninterval = \"1s\"",
            "store.function.counter.variable.packets_by_protocols: function `counter`, as it is set, has no",
            "write `packets_by_protocol`",
        ),
        (
            "[store]\nuri = \"memory:\"\n[store.function.counter.variable.zebra]\ninterval = \"1s\"",
            "has no variable `zebra`",
            "there are: bytes_by_protocol, packets_by_protocol",
        ),
        (
            "[store]\nuri = \"memory:\"\n[store.function.counter.variable.bytes_by_protocol]\nconsistency = \"lokal\"",
            "store.function.counter.variable.bytes_by_protocol.consistency",
            "local",
        ),
        (
            "[store]\nuri = \"memory:\"\n[store.function.counter.variable.bytes_by_protocol]\nconsistency = \"local\"\nbound = \"1s\"",
            "bytes_by_protocol.bound: a variable that is in no store has none",
            "take it out",
        ),
        (
            "[store]\nuri = \"memory:\"\n[store.function.counter.variable.bytes_by_protocol]\nconsistency = \"write_through\"\ninterval = \"1s\"",
            "bytes_by_protocol.interval: the store is told at once",
            "write_behind",
        ),
        (
            "[store]\nuri = \"memory:\"\ninterval = \"0s\"\n[store.function.counter.variable.bytes_by_protocol]\nconsistency = \"write_behind\"",
            "bytes_by_protocol.consistency: with an interval",
            "write an interval",
        ),
        (
            "[store]\nuri = \"memory:\"\n[store.function.counter.variable.bytes_by_protocol]\ninterval = \"2s\"",
            "bytes_by_protocol.interval: changes are late",
            "longer bound",
        ),
    ];
    for (store, at, remedy) in cases {
        let config = folder.gateway("pcap:none.pcap", store, "");
        let (done, said, error) = output(&["chain", "check", &config]);
        let all = format!("{said}{error}");
        assert!(!done && all.contains("gateway.toml:"), "{all}");
        assert!(all.contains(at) && all.contains(remedy), "{all}");
    }
    // A store that is not there is said when it is wanted, without its password.
    let config = folder.gateway(&folder.traffic(), &table("redis://me:secret@127.0.0.1:1", ""), "");
    assert!(output(&["chain", "check", &config]).0);
    let (done, said, error) = output(&["run", &config]);
    let all = format!("{said}{error}");
    assert!(
        !done && all.contains("127.0.0.1:1") && !all.contains("secret"),
        "{all}"
    );
}
