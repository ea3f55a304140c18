//! Runs a cluster over captures, to its end, and checks the invariants of any run.

use adapters::open::Ports;
use flowkeep::cluster::{Packets, Snapshot};
use flowkeep::config;
use flowkeep::run::{self, Events, Outcome, Running};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where the shared data are, or `None` (and a word about it) where they are not.
pub fn data() -> Option<PathBuf> {
    let root = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if root.join("flow").is_dir() {
        Some(root)
    } else {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        None
    }
}

/// The files of a folder with an extension, in order.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("part of the data");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    paths.sort();
    paths
}

/// Whether every capture is to be run, rather than so many as take less than a minute.
pub fn every_capture() -> bool {
    std::env::var_os("FLOWKEEP_EVERY_CAPTURE").is_some()
}

/// The name of a file.
pub fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// How many workers, and on how many threads.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub switches: u16,
    pub runtimes: u16,
    /// `"auto"` or `1`.
    pub threads: &'static str,
}

impl Shape {
    /// One switch and so many runtimes, on a thread each as far as there are processors.
    pub const fn of(runtimes: u16) -> Self {
        Shape {
            switches: 1,
            runtimes,
            threads: "\"auto\"",
        }
    }

    /// All on one thread.
    pub const fn on_one_thread(self) -> Self {
        Shape { threads: "1", ..self }
    }

    /// With so many switches.
    pub const fn with_switches(self, switches: u16) -> Self {
        Shape { switches, ..self }
    }

    /// The first lines of a configuration.
    pub fn toml(self, flows_max: u32) -> String {
        format!(
            "switches = {}\nruntimes = {}\nthreads = {}\nflows_max = {flows_max}\n",
            self.switches, self.runtimes, self.threads
        )
    }
}

/// Event lines as they come.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// All lines so far.
    pub fn text(&self) -> String {
        let bytes = self.0.lock().expect("no writer panics").clone();
        String::from_utf8(bytes).expect("text")
    }
}

/// The outcome of a run.
pub struct Ran {
    pub snapshot: Snapshot,
    pub packets: Packets,
    /// The event log.
    pub lines: String,
}

impl Ran {
    /// A function's counter, over all runtimes.
    pub fn counter(&self, name: &str) -> u64 {
        let all = self.snapshot.runtimes.iter().flat_map(|r| &r.counters);
        let found: Vec<u64> = all.filter(|c| c.name == name).map(|c| c.count).collect();
        assert!(!found.is_empty(), "there is no counter {name}");
        found.iter().sum()
    }

    /// Drops, by function (empty: Flowkeep itself) and reason.
    pub fn dropped(&self) -> BTreeMap<(&str, &str), u64> {
        let drops = self.packets.dropped.iter();
        drops.map(|((f, r), n)| ((f.as_str(), *r), *n)).collect()
    }
}

/// Starts a cluster; `ports` may have memory queues that the test holds.
pub fn start(toml: &str, ports: Ports) -> (Running, Lines) {
    let config = config::parse("test.toml", toml, &flowkeep::functions())
        .unwrap_or_else(|problems| panic!("{problems:?} in\n{toml}"));
    let lines = Lines::default();
    let events = Events::to("lines", Box::new(lines.clone()));
    let running = run::start_with(config, ports, Some(events)).unwrap_or_else(|e| panic!("{e} in\n{toml}"));
    (running, lines)
}

/// Checks the invariants of every run that ended by itself or by a graceful stop.
#[track_caller]
pub fn finish(outcome: Outcome, lines: &Lines, what: &str) -> Ran {
    let packets = outcome.snapshot.packets();
    assert!(!outcome.broken_off, "{what}: broken off: {packets:?}");
    assert!(packets.add_up(), "{what}: {packets:?}");
    assert_eq!(packets.held, 0, "{what}: {packets:?}");
    assert_eq!(outcome.events, Ok(()), "{what}");
    for runtime in &outcome.snapshot.runtimes {
        assert_eq!((runtime.events_lost, runtime.words_refused), (0, 0), "{what}");
        assert_eq!(
            (runtime.flows, runtime.groups, runtime.waiting),
            (0, 0, 0),
            "{what}"
        );
        assert_eq!(
            runtime.flows_opened + runtime.flows_moved[0] + runtime.recovered[0],
            runtime.flows_ended + runtime.flows_moved[1],
            "{what}"
        );
    }
    for switch in &outcome.snapshot.switches {
        assert_eq!(switch.words_refused, 0, "{what}");
        assert_eq!(
            (switch.routes, switch.reply_keys, switch.blocks),
            (0, 0, 0),
            "{what}: routes, reply keys, blocks"
        );
    }
    // The counters of the ports agree with those of the switches.
    let sum = |of: fn(&runtime::PortCounters) -> u64| -> u64 {
        outcome.snapshot.ports.iter().map(|port| of(&port.counters)).sum()
    };
    assert_eq!(sum(|c| c.received_packets), packets.received, "{what}");
    assert_eq!(sum(|c| c.sent_packets), packets.sent, "{what}");
    Ran {
        packets,
        lines: lines.text(),
        snapshot: outcome.snapshot,
    }
}

/// Runs a configuration to the end of its inputs.
#[track_caller]
pub fn run_to_end(toml: &str, what: &str) -> Ran {
    // One at a time: each has as many threads as there are processors.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (running, lines) = start(toml, Ports::new());
    finish(running.wait(|_| {}), &lines, what)
}

/// A port that reads a capture, told by addresses which side a packet is from, and throws away its
/// output.
pub fn capture_port(capture: &Path) -> String {
    format!(
        "[[port]]\nname = \"capture\"\nside = \"by-address\"\ninput = \"pcap:{}\"\noutput = \"pcap:/dev/null\"\n",
        capture.display()
    )
}
