//! Flows as a person follows them: opened and ended in pairs, moved, gone on behind a failure,
//! filtered, and lost by a slow reader.

use crate::running::{PATIENCE, Running, text};
use crate::schema;
use flowkeep::cluster::{Cluster, Cursor, Observed, Snapshot, Subject, Watching};
use flowkeep::control::client::Client;
use flowkeep::control::server::Server;
use flowkeep::following::job::FollowJob;
use flowkeep::following::{self, Choice, FlowLine};
use flowkeep::signals::StopSignal;
use runtime::worker::FlowView;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use wire::FlowKey;

const PROFILE: &str = "flows = 40\nrate = { per_flow = 20.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       destinations = [\"192.0.2.1/32\"]\ndestination_ports = [80, 22]\n\
                       [[classes]]\nshare = 0.5\nlife = { packets = { fixed = 20 } }\n[[classes]]\nshare = 0.5\ntcp = 0.0\n\
                       life = { packets = { fixed = 20 } }\n";

/// Firewall and NAT towards a world that answers; port 22 is refused. Flows are short.
fn running(name: &str, profile: &str, more: &str) -> Running {
    Running::start(name, profile, |profile| {
        format!(
            "runtimes = 2\nflows_max = 4096\n{more}\
             [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\ninput = \"reflect:?mode=answer\"\noutput = \"reflect:?mode=answer\"\n\
             [[chain]]\nname = \"web\"\nfunctions = [\"firewall\", \"nat\"]\n\
             [[function.firewall.rules]]\nname = \"web\"\ndestination_ports = 80\naction = \"allow\"\n\
             [function.firewall.timeouts]\ntcp_opening = \"1s\"\ntcp_established = \"1s\"\ntcp_closing = \"1s\"\n\
             udp_unreplied = \"1s\"\nudp_replied = \"1s\"\nudp_stream = \"1s\"\n\
             [function.nat]\npool = [\"203.0.113.0/29\"]\n\
             [function.nat.timeouts]\nbelow_rfc = true\ntcp_established = \"1s\"\ntcp_opening = \"1s\"\ntcp_closing = \"1s\"\n\
             udp = \"1s\"\nudp_well_known = \"1s\"\n"
        )
    })
}

/// A follower that goes on beside the test; its lines come as they are printed.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(running: &Running, words: &[&str]) -> Self {
        let mut child = running
            .command(&[&["flow", "events", "--json"][..], words].concat())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Follower { child, lines }
    }

    /// Lines until one is such.
    #[track_caller]
    fn until(&self, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let began = Instant::now();
        let mut all = Vec::new();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    let line: Value = serde_json::from_str(&line).unwrap();
                    let found = is_it(&line);
                    all.push(line);
                    if found {
                        return all;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("{what}: the command has ended"),
            }
            assert!(began.elapsed() < PATIENCE, "{what} does not come");
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(line: &Value) -> String {
    format!("{} {} {}", line["protocol"], line["source"], line["destination"])
}

#[test]
fn flows_open_and_end_in_pairs_with_their_other_key() {
    let site = running("pairs", PROFILE, "");
    let follower = Follower::start(&site, &[]);
    let mut ended = 0;
    let lines = follower.until("a hundred ends", |line| {
        ended += u32::from(line["event"] == "ended");
        ended == 100
    });
    let mut open: HashMap<String, Value> = HashMap::new();
    let mut pairs = 0;
    for line in &lines {
        assert_eq!(line["chain"], "web", "{line}");
        let destination = line["destination"].as_str().unwrap();
        assert!(destination.ends_with(":80"), "a refused flow never was: {line}");
        let outside = line["translated"]["source"].as_str().unwrap();
        assert!(outside.starts_with("203.0.113."), "{line}");
        let time = line["time"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
        match line["event"].as_str().unwrap() {
            "opened" => assert!(
                open.insert(key(line), line.clone()).is_none(),
                "opened twice: {line}"
            ),
            "ended" => {
                // A flow that was there before the first look ends without a beginning.
                if let Some(before) = open.remove(&key(line)) {
                    assert_eq!(before["translated"], line["translated"], "{line}");
                    assert!(before["time"].as_str() < line["time"].as_str(), "{before} {line}");
                    pairs += 1;
                }
            }
            other => panic!("{other}: {line}"),
        }
    }
    assert!(pairs > 20, "{pairs} of {}", lines.len());
}

#[test]
fn filters_and_counts_bound_what_is_printed() {
    let site = running("filters", PROFILE, "");
    let said = site.ask(&["flow", "events", "--protocol", "udp", "--count", "5"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let lines = text(&said.stdout);
    assert_eq!(lines.lines().count(), 5, "{lines}");
    assert!(
        lines
            .lines()
            .all(|line| line.contains(" udp 10.0.0.") && line.contains("  translated 203.0.113.")),
        "{lines}"
    );
    let said = site.ask(&["flow", "events", "--address", "10.0.0.0/25", "-c", "5"]);
    let lines = text(&said.stdout);
    let host = |line: &str| {
        let (_, rest) = line.split_once(" 10.0.0.").unwrap();
        rest.split(':').next().unwrap().parse::<u8>().unwrap()
    };
    assert!(
        lines.lines().count() == 5 && lines.lines().all(|line| host(line) < 128),
        "{lines}"
    );
    // Behind the translation will do.
    let said = site.ask(&["flow", "events", "--address", "203.0.113.0/24", "-c", "1"]);
    assert_eq!(text(&said.stdout).lines().count(), 1);
    let wrong = site.ask(&["flow", "events", "--protocol", "nonsense"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    // Two followers are served at once, and a third is refused; a killed one makes room.
    let (first, second) = (Follower::start(&site, &[]), Follower::start(&site, &[]));
    first.until("the first", |_| true);
    second.until("the second", |_| true);
    let third = site.ask(&["flow", "events", "-c", "1"]);
    assert!(
        text(&third.stderr).contains("2 follow flows already"),
        "{}",
        text(&third.stderr)
    );
    drop(first);
    let began = Instant::now();
    while !site.ask(&["flow", "events", "-c", "1"]).status.success() {
        assert!(began.elapsed() < PATIENCE);
    }
    drop(second);
}

const ENDLESS: &str = "flows = 40\nrate = { per_flow = 20.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       destinations = [\"192.0.2.1/32\"]\ndestination_ports = [80]\n";

#[test]
fn moves_and_recoveries_are_events() {
    let site = running(
        "moves",
        ENDLESS,
        "runtimes_max = 2\n[replication]\npolicy = \"commit\"\n",
    );
    let flows = || {
        let status: Value = serde_json::from_slice(&site.ask(&["status", "--json"]).stdout).unwrap();
        let runtimes = status["runtimes"].as_array().unwrap().clone();
        let of = |name: &str| {
            runtimes
                .iter()
                .map(|one| one[name].as_u64().unwrap_or(0))
                .collect::<Vec<u64>>()
        };
        (of("flows"), of("protected_flows"))
    };
    let began = Instant::now();
    while flows().0.iter().sum::<u64>() < 40 {
        assert!(began.elapsed() < PATIENCE, "{:?}", flows());
    }
    let follower = Follower::start(&site, &[]);
    let drained = |runtime: &str| {
        let done = site.ask(&["runtime", "drain", runtime]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        site.ask(&["runtime", "resume", runtime]);
    };
    std::thread::sleep(Duration::from_secs(1));
    drained("0");
    let mut gone: HashMap<String, u64> = HashMap::new();
    let mut back = 0;
    follower.until("flows that moved", |line| {
        match line["event"].as_str().unwrap() {
            "moved_out" => {
                assert_eq!(line["runtime"], 0, "{line}");
                gone.insert(key(line), 0);
            }
            "moved_in" => {
                assert_eq!(line["runtime"], 1, "{line}");
                assert!(line["translated"]["source"].is_string(), "{line}");
                back += 1;
            }
            _ => {}
        }
        back > 3 && gone.len() == back
    });
    // All are at runtime 1 now; it fails when they have copies.
    while flows().1.get(1).copied().unwrap_or(0) < flows().0[1] {
        assert!(began.elapsed() < PATIENCE, "{:?}", flows());
        std::thread::sleep(Duration::from_millis(50));
    }
    let killed = site.ask(&["runtime", "kill", "1", "--unprotected"]);
    assert!(killed.status.success(), "{}", text(&killed.stderr));
    let lines = follower.until("a recovery", |line| line["event"] == "recovered");
    let last = lines.last().unwrap();
    assert!(
        last["runtime"] == 0 && last["translated"]["source"].is_string(),
        "{last}"
    );
}

/// A cluster of which one flow opens at each look.
#[derive(Default)]
struct Busy(Arc<AtomicU64>);

impl Cluster for Busy {
    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
    fn flows(&self, _: Cursor, _: usize) -> Result<(Vec<FlowView>, Option<Cursor>), String> {
        Ok((Vec::new(), None))
    }
    fn flow(&self, _: &FlowKey) -> Option<FlowView> {
        None
    }
    fn command(&self, _: &str, _: &[&str]) -> Result<Vec<flowkeep::tables::Told>, String> {
        Ok(Vec::new())
    }
    fn stop(&self) {}
    fn watch(&self, _: &Subject) -> Result<Box<dyn Watching>, String> {
        Ok(Box::new(Busy(self.0.clone())))
    }
}

impl Watching for Busy {
    fn ports(&self) -> Vec<String> {
        Vec::new()
    }
    fn take(&mut self) -> Observed {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        let line = FlowLine {
            time: "2026-11-23T14:35:07.250000000Z".into(),
            event: "opened".into(),
            runtime: 0,
            protocol: "tcp".into(),
            vlan: 0,
            source: format!("10.0.0.1:{number}"),
            destination: "192.0.2.1:443".into(),
            translated: None,
            chain: "web".into(),
            member: None,
        };
        Observed {
            flows: vec![line],
            // A runtime has lost two once.
            flows_lost: if number == 3 { 2 } else { 0 },
            is_over: number >= 60,
            ..Observed::default()
        }
    }
}

/// Takes nothing until the cluster has been looked at so often.
struct Slow {
    looks: Arc<AtomicU64>,
    text: Vec<u8>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let began = Instant::now();
        while self.looks.load(Ordering::SeqCst) < 40 {
            assert!(
                began.elapsed() < PATIENCE,
                "the cluster is not asked while the reader stands still"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_stands_still_loses_events_that_are_counted_and_asking_goes_on() {
    let socket = std::env::temp_dir().join(format!("flowkeep-slow-{}.sock", std::process::id()));
    let looks = Arc::new(AtomicU64::new(0));
    let server = Server::start(&socket, Arc::new(Busy(looks.clone()))).unwrap();
    let mut client = Client::connect(&socket).unwrap();
    let mut out = Slow {
        looks,
        text: Vec::new(),
    };
    let job = FollowJob {
        choice: Choice::default(),
        count: None,
        json: true,
        stop: StopSignal::default(),
    };
    let followed = following::job::run(&job, &mut client, &mut out).unwrap();
    drop(server);
    assert!(followed.ended && followed.lost >= 2 + 10, "{followed:?}");
    // Each look has one: printed or lost; and the two that the runtime lost.
    assert_eq!(followed.events + followed.lost, 61 + 2, "{followed:?}");
    let lines = text(&out.text);
    let lost = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lost = lost.filter(|line| line["event"] == "lost");
    let lost = lost.inspect(|line| schema::holds("flow-events-lost", line.to_string().as_bytes()));
    assert_eq!(
        lost.map(|line| line["count"].as_u64().unwrap()).sum::<u64>(),
        followed.lost,
        "{lines}"
    );
}
