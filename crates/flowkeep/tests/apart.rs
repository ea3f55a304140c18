//! The driver of Cassandra in a process of its own, as the command starts it (`stores::apart`).
//!
//! | | requirement |
//! |---|---|
//! | a node's answer ends the library | the command says so, and ends by itself |
//! | the process | has no password in its words or environment, no descriptor but its own, no rights, a bound on its memory; Ctrl-C and SIGTERM do nothing to it |
//! | Flowkeep is killed with SIGKILL | the process ends, whether it is in a call or stopped |
//! | the program's file is replaced while it runs, and the process is killed | the next one is the same program |
//!
//! Not here: the driver's calls, and their other outcomes (`crates/stores/tests`).

#[path = "../../stores/tests/servers/hostile_node.rs"]
mod hostile_node;

use hostile_node::Lie;
use rustix::process::{Pid, Signal, geteuid, getpgid, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, read_link, read_to_string};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn flowkeep(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

/// Waits until `look` finds something.
fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{what}: not within 30 s"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port behind which nothing answers.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, format!("cassandra://me:secret@127.0.0.1:{port}/s"))
}

#[test]
fn a_node_that_would_end_the_program_ends_its_drivers_process() {
    for (lie, end) in [
        (Lie::Columns, "signal 6: memory allocation of |code 1: 21"),
        (Lie::Nested(100_000), "signal 6: thread "),
    ] {
        let uri = format!("cassandra://me:secret@127.0.0.1:{}/s", hostile_node::start(lie));
        let output = flowkeep(&["store", "inspect", &uri]);
        let said = String::from_utf8_lossy(&output.stderr);
        println!("{said}");
        assert_eq!(
            (output.status.code(), output.status.signal()),
            (Some(1), None),
            "{said}"
        );
        let is_said = |end| said.contains(&format!("the process of its driver: it ended with {end}"));
        assert!(end.split('|').any(is_said) && !said.contains("secret"), "{said}");
    }
}

/// A Flowkeep that waits for its store, for the 5 s that a start does; ended with the test.
struct Waiting {
    flowkeep: Child,
    _folder: TempDir,
    _silent: TcpListener,
}

impl Waiting {
    fn start(program: &str) -> Self {
        let (silent, uri) = silent();
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (profile, config) = (path("traffic.toml"), path("gateway.toml"));
        fs::write(&profile, "flows = 5\n[[classes]]\ntcp = 0.5\n").expect("a file");
        fs::write(
            &config,
            format!(
                "[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n[[port]]\nname = \"wan\"\n\
                 side = \"outside\"\noutput = \"pcap:/dev/null\"\n[[chain]]\nname = \"all\"\nfunctions = [\"counter\"]\n\
                 [log]\nevents = \"/dev/null\"\n[control]\nsocket = \"{}\"\n[store]\nuri = \"{uri}\"\n",
                path("flowkeep.sock"),
            ),
        )
        .expect("a file");
        let mut command = Command::new("sh");
        // The shell hands it one descriptor more than it opens.
        command.args(["-c", &format!("exec 7</dev/zero; exec {program} run {config}")]);
        command.env("FLOWKEEP_TEST", "secret").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Waiting {
            flowkeep: command.spawn().expect("a shell"),
            _folder: folder,
            _silent: silent,
        }
    }

    /// The driver's process, once it is in a call and is not this one.
    fn driver(&self, before: Option<i32>) -> i32 {
        wait("a driver's process", || {
            let all = fs::read_dir("/proc").expect("/proc").flatten();
            let mut all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
            let parent = format!("PPid:\t{}\n", self.flowkeep.id());
            all.find(|id| {
                Some(*id) != before
                    && of(*id, "status").contains(&parent)
                    && of(*id, "comm") == "flowkeep-store\n"
                    && fs::read_dir(format!("/proc/{id}/task")).is_ok_and(|threads| threads.count() > 3)
            })
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.flowkeep.kill();
        let _ = self.flowkeep.wait();
    }
}

fn of(process: i32, file: &str) -> String {
    read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default()
}

fn send(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).expect("a process"), signal).expect("it is there");
}

/// A process that has ended keeps its number until another process waits for it.
fn has_ended(process: i32) -> bool {
    let state = of(process, "status");
    state.is_empty() || state.contains("State:\tZ") || state.contains("State:\tX")
}

/// Its descriptors, and their files.
fn descriptors(process: u32) -> BTreeMap<i32, String> {
    let all = fs::read_dir(format!("/proc/{process}/fd"))
        .expect("descriptors")
        .flatten();
    all.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, read_link(entry.path()).ok()?.display().to_string()))
    })
    .collect()
}

#[test]
fn the_process_has_nothing_that_it_does_not_need() {
    if !geteuid().is_root() {
        println!("not run: only root may look into a process that no image may be made of");
        return;
    }
    let waiting = Waiting::start(env!("CARGO_BIN_EXE_flowkeep"));
    let driver = waiting.driver(None);
    assert_eq!(of(driver, "cmdline"), "flowkeep\0store-driver\0");
    assert!(!of(driver, "environ").contains("secret"));
    let theirs = descriptors(waiting.flowkeep.id());
    assert_eq!(
        theirs.get(&7).map(String::as_str),
        Some("/dev/zero"),
        "{theirs:?}"
    );
    let ours = descriptors(u32::try_from(driver).expect("a number"));
    // The other end of standard error is the other process's, by design.
    let shared: Vec<_> = ours
        .iter()
        .filter(|(number, own)| **number != 2 && theirs.values().any(|other| other == *own))
        .map(|(_, own)| own)
        .collect();
    assert_eq!(shared, ["/dev/null"], "{ours:?}");
    let status = of(driver, "status");
    for line in [
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(status.contains(line), "{status}");
    }
    let limits = of(driver, "limits");
    let data = limits
        .lines()
        .find(|line| line.starts_with("Max data size"))
        .expect("a limit");
    assert_eq!(data.matches("2147483648").count(), 2, "{data}");
    let group = |process| getpgid(Pid::from_raw(process)).expect("a group");
    assert_ne!(
        group(driver),
        group(i32::try_from(waiting.flowkeep.id()).expect("a number"))
    );
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1] {
        send(driver, signal);
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(!has_ended(driver));
    println!(
        "{}",
        status
            .lines()
            .filter(|line| line.starts_with("Vm"))
            .collect::<Vec<_>>()
            .join(" ")
    );
}

#[test]
fn the_process_ends_with_flowkeep() {
    for is_stopped in [false, true] {
        let mut waiting = Waiting::start(env!("CARGO_BIN_EXE_flowkeep"));
        let driver = waiting.driver(None);
        if is_stopped {
            send(driver, Signal::STOP);
        }
        waiting.flowkeep.kill().expect("it is killed");
        waiting.flowkeep.wait().expect("its end");
        let began = Instant::now();
        wait("its end", || has_ended(driver).then_some(()));
        println!("stopped: {is_stopped}: {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn another_process_is_of_the_same_program_though_its_file_is_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let program = path("flowkeep");
    fs::copy(env!("CARGO_BIN_EXE_flowkeep"), &program).expect("a copy");
    let waiting = Waiting::start(&program);
    let driver = waiting.driver(None);
    // As a package does it.
    fs::write(path("new"), "#!/bin/sh\nexit 9\n").expect("a file");
    fs::rename(path("new"), &program).expect("another file");
    send(driver, Signal::KILL);
    let next = waiting.driver(Some(driver));
    let file = read_link(format!("/proc/{next}/exe")).expect("a program");
    assert_eq!(file.display().to_string(), format!("{program} (deleted)"));
    assert!(!has_ended(next));
}

#[test]
fn the_word_is_not_for_people() {
    let output = flowkeep(&["store-driver"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("store-driver: ") && said.contains("it is not for people"),
        "{said}"
    );
}
