//! The command itself: started as a person starts it, stopped as a person stops it.

#[path = "schema/mod.rs"]
mod schema;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn flowkeep(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    command.args(words).current_dir(root).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str]) -> Output {
    flowkeep(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A directory that is gone afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowkeep-command-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The object that a run ends with, as `status` prints one. Its packets add up.
#[track_caller]
fn report(output: &[u8]) -> Value {
    let text = text(output);
    let last = text.lines().last().expect("a last line");
    schema::holds("status", last.as_bytes());
    let report: Value = serde_json::from_str(last).unwrap();
    let packets = &report["packets"];
    let number = |name: &str| packets[name].as_u64().unwrap();
    let dropped = packets["dropped"].as_object().unwrap().values();
    let dropped: u64 = dropped.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(
        number("in") + number("made"),
        number("out") + number("held") + dropped,
        "{report:#}"
    );
    report
}

#[test]
fn the_demonstration_adds_up() {
    let directory = Directory::new("demo");
    let socket = directory.path("s.sock");
    let input = "generate:examples/demo-traffic.toml?packets=20000";
    let output = run(&[
        "run",
        "examples/demo.toml",
        "--input",
        input,
        "--socket",
        &socket,
        "--json",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = report(&output.stdout);
    assert_eq!(report["ports"][0]["received_packets"], 20_000, "{report:#}");
    assert_eq!(report["packets"]["held"], 0, "{report:#}");
    assert_eq!(report["flows"]["active"], 0, "{report:#}");
    assert!(report["flows"]["opened"].as_u64().unwrap() > 5_000, "{report:#}");
    assert!(
        report["packets"]["dropped"]["firewall/not_allowed"]
            .as_u64()
            .unwrap()
            > 0,
        "{report:#}"
    );
    assert!(
        !Path::new(&socket).exists(),
        "the socket goes when the cluster goes"
    );
}

#[test]
fn one_thread_makes_runs_equal() {
    let directory = Directory::new("equal");
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.toml");
    let demo = fs::read_to_string(demo).unwrap();
    let config = directory.file("c.toml", &format!("threads = 1\nswitches = 2\n{demo}"));
    let input = "generate:examples/demo-traffic.toml?packets=5000";
    let socket = directory.path("s.sock");
    let once = |name: &str| {
        let events = directory.path(name);
        let words = ["run", &config, "--input", input, "--events", &events];
        let output = run(&[&words[..], &["--socket", &socket, "--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut report = report(&output.stdout);
        report.as_object_mut().unwrap().remove("uptime_seconds");
        // The lines of each runtime are in order; whose come first is the writer's business.
        let mut lines: Vec<String> = fs::read_to_string(&events)
            .unwrap()
            .lines()
            .map(Into::into)
            .collect();
        lines.sort();
        (report, lines)
    };
    let (first, second) = (once("a"), once("b"));
    assert!(first.1.len() > 1000, "{}", first.1.len());
    assert!(first == second, "{:#}\n{:#}", first.0, second.0);
}

/// A process that is killed where a test fails.
struct Guarded(Option<Child>);

impl Guarded {
    fn id(&self) -> u32 {
        self.0.as_ref().expect("waited for once").id()
    }

    fn wait(mut self) -> std::process::Output {
        let child = self.0.take().expect("waited for once");
        child.wait_with_output().unwrap()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A cluster on traffic without end, its control socket there. Its output is in the file `said`.
fn start(directory: &Directory) -> (Guarded, String) {
    let traffic = directory.file(
        "traffic.toml",
        "flows = 100\nrate = { total = 2000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n",
    );
    let config = directory.file(
        "c.toml",
        &format!(
            "runtimes = 2\nflows_max = 1000\n[[port]]\nname = \"in\"\ninput = \"generate:{traffic}\"\n[[chain]]\nname = \"c\"\n\
             functions = [\"flow_monitor\"]\n"
        ),
    );
    let socket = directory.path("s.sock");
    let child = flowkeep(&["run", &config, "--socket", &socket, "--json"])
        .stderr(fs::File::create(directory.path("said")).unwrap())
        .spawn()
        .unwrap();
    let child = Guarded(Some(child));
    until("an answer", || {
        run(&["status", "--socket", &socket]).status.success()
    });
    (child, socket)
}

/// Waits for a condition that comes in its own time.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for the end, and reads the report.
#[track_caller]
fn end(child: Guarded) -> (Option<i32>, Value) {
    let output = child.wait();
    (output.status.code(), report(&output.stdout))
}

fn signal(child: &Guarded, name: &str) {
    // The shell's own: a bare machine has no program of that name.
    let sent = Command::new("sh")
        .args(["-c", &format!("kill {name} {}", child.id())])
        .status()
        .unwrap();
    assert!(sent.success());
}

#[test]
fn a_running_cluster_is_asked_and_stopped() {
    let directory = Directory::new("asked");
    let (child, socket) = start(&directory);
    let ask = |words: &[&str]| {
        let output = run(&[words, &["--socket", &socket, "--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    until("a flow", || ask(&["status"])["flows"]["active"] != 0);
    let list = ask(&["flow", "list", "--limit", "5"]);
    let flow = &list["flows"][0];
    let word = |name: &str| flow[name].as_str().unwrap();
    let shown = ask(&[
        "flow",
        "show",
        word("protocol"),
        word("source"),
        word("destination"),
    ]);
    assert_eq!(shown["source"], flow["source"]);
    let backward = ask(&[
        "flow",
        "show",
        word("protocol"),
        word("destination"),
        word("source"),
    ]);
    assert_eq!(backward["source"], flow["source"], "either direction finds it");
    assert_eq!(ask(&["stop"])["stopping"], true);
    let (code, report) = end(child);
    assert_eq!(code, Some(0));
    assert_eq!(report["flows"]["active"], 0, "all flows are ended: {report:#}");
}

#[test]
fn a_signal_ends_it_gracefully() {
    for name in ["-INT", "-TERM"] {
        let directory = Directory::new(name);
        let (child, _) = start(&directory);
        signal(&child, name);
        let (code, report) = end(child);
        assert_eq!(code, Some(0), "{report:#}");
        assert_eq!(report["flows"]["active"], 0, "{report:#}");
    }
}

#[test]
fn a_hangup_applies_the_file_again_and_a_wrong_one_changes_nothing() {
    let directory = Directory::new("hangup");
    let (child, socket) = start(&directory);
    let path = directory.path("c.toml");
    let before = fs::read_to_string(&path).unwrap();
    let differs = |file: &str| {
        let output = run(&["chain", "diff", file, "--socket", &socket, "--json"]);
        if text(&output.stderr).contains("under way") {
            return true;
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["outcome"] != "same"
    };
    fs::write(&path, before.replace("name = \"c\"", "name = \"d\"")).unwrap();
    assert!(differs(&path));
    signal(&child, "-HUP");
    until("the file in force", || !differs(&path));
    let in_force = directory.file("in-force.toml", &fs::read_to_string(&path).unwrap());
    fs::write(&path, before.replace("flow_monitor", "flow_moniter")).unwrap();
    signal(&child, "-HUP");
    let said = || fs::read_to_string(directory.path("said")).unwrap();
    until("a word about the wrong file", || said().contains("flow_moniter"));
    assert!(!differs(&in_force), "the wrong file has changed something");
    assert_eq!(run(&["stop", "--socket", &socket]).status.code(), Some(0));
    child.wait();
    let told = said();
    assert_eq!(told.matches("SIGHUP: ").count(), 2, "{told}");
    assert!(told.contains("flow_moniter") && told.contains("c.toml"), "{told}");
}

#[test]
fn a_new_function_is_made_where_one_stands() {
    let directory = Directory::new("new");
    let mut command = flowkeep(&["new", "my-counter"]);
    let output = command.current_dir(&directory.0).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(directory.0.join("my-counter/src/lib.rs").exists());
    let there = directory.path("there");
    fs::create_dir(&there).unwrap();
    let output = run(&["new", "my-counter", "--directory", &there]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(directory.0.join("there/my-counter/Cargo.toml").exists());
}

#[test]
fn exit_codes() {
    assert_eq!(run(&["--version"]).status.code(), Some(0));
    assert_eq!(run(&["flwo"]).status.code(), Some(2));
    assert_eq!(run(&["new", "No Name!"]).status.code(), Some(2));
    let no_port = run(&["flow", "show", "tcp", "10.0.0.1", "10.0.0.2:80"]);
    assert_eq!(no_port.status.code(), Some(2));
    assert!(
        text(&no_port.stderr).contains("it has no port; write 10.0.0.1:443"),
        "{}",
        text(&no_port.stderr)
    );
    assert_eq!(run(&["run"]).status.code(), Some(2));
    assert_eq!(
        run(&["chain", "check", "no/such/file.toml"]).status.code(),
        Some(2)
    );
    let no_input = run(&[
        "run",
        "--input",
        "pcap:no/such/file.pcap",
        "--events",
        "/dev/null",
    ]);
    assert_eq!(
        no_input.status.code(),
        Some(2),
        "`chain check` refuses a file that names it"
    );
    // The port that `--input` makes is named for its input.
    assert!(
        text(&no_input.stderr).starts_with("port `pcap:no/such/file.pcap`: "),
        "{}",
        text(&no_input.stderr)
    );
    let twice = run(&[
        "run",
        "--input",
        "reflect:",
        "--output",
        "pcap:out.pcap",
        "--events",
        "/dev/null",
    ]);
    assert_eq!(twice.status.code(), Some(2), "no machine could do that");
    assert_eq!(
        run(&["status", "--socket", "/no/such/socket"]).status.code(),
        Some(1)
    );
}

/// Each thread of a process, as the kernel has it: its user, and its effective capabilities.
fn rights(process: u32) -> Vec<(u32, u64)> {
    let line = |status: &str, name: &str| -> String {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let each = threads.flatten().filter_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let capabilities = u64::from_str_radix(&line(&status, "CapEff:"), 16).unwrap();
        Some((line(&status, "Uid:").parse().unwrap(), capabilities))
    });
    each.collect()
}

/// Only root has capabilities to give up.
#[test]
fn a_process_gives_up_what_it_does_not_need() {
    if rights(std::process::id()).iter().any(|(user, _)| *user != 0) {
        println!("not run: needs root");
        return;
    }
    const SYS_NICE: u64 = 1 << 23;
    const ROOTS: u64 = 1 << 1 | 1 << 10;
    for (setting, user, most) in [
        ("user = \"nobody\"\n", 65534, SYS_NICE),
        ("", 0, SYS_NICE | ROOTS),
    ] {
        let directory = Directory::new(&format!("rights-{user}"));
        let profile = directory.file(
            "traffic.toml",
            "flows = 10\nrate = { total = 1000.0 }\nseconds_max = 1e6\nsources = [\"10.0.0.0/24\"]\n\
             source_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\nseed = 3\n\
             [[classes]]\nshare = 1.0\ntcp = 0.0\n",
        );
        let config = directory.file(
            "c.toml",
            &format!(
                "{setting}clock = \"machine\"\n[[port]]\nname = \"a\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
                 [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n"
            ),
        );
        let socket = directory.path("s.sock");
        let mut child = flowkeep(&["run", &config, "--socket", &socket, "--for", "60s"]);
        let mut child = child.spawn().unwrap();
        let began = Instant::now();
        while !run(&["status", "--socket", &socket]).status.success() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{ended:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let rights = rights(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(rights.len() > 3, "{rights:?}");
        for (own, capabilities) in rights {
            assert_eq!(
                (own, capabilities & !most),
                (user, 0),
                "{setting:?}: {capabilities:x}"
            );
        }
    }
}

#[test]
fn an_event_log_on_a_full_disk_is_said() {
    let directory = Directory::new("full");
    let config = directory.file(
        "c.toml",
        "[[port]]\nname = \"a\"\nside = \"inside\"\ninput = \"generate:examples/demo-traffic.toml?packets=5000\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n",
    );
    let socket = directory.path("s.sock");
    let words = [
        "run",
        &config,
        "--events",
        "/dev/full",
        "--socket",
        &socket,
        "--json",
    ];
    let output = run(&words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "event log /dev/full: it cannot be written: No space left on device",
        "lines were lost at the end",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    report(&output.stdout);
}

/// Processor time of a process so far.
fn processor_time(process: u32) -> Duration {
    // proc(5): utime and stime are the fields 14 and 15, in hundredths of a second; the name before
    // may have blanks.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// A process that is ready was so within a second of its own time. By the clock it may take longer,
/// since others keep a machine busy that tests; but nothing in it waits.
fn was_soon(command: &str, process: u32, begun: Instant) {
    let (took, clock) = (processor_time(process), begun.elapsed());
    println!("{command}: ready after {took:?} of processor time, {clock:?} by the clock");
    let is_soon = took < Duration::from_secs(1) && clock < Duration::from_secs(8);
    assert!(is_soon, "{command}: {took:?}, {clock:?} until it is ready");
}

/// A datagram socket as a service manager has it, behind its path.
fn manager(directory: &Directory) -> (String, std::os::unix::net::UnixDatagram) {
    let path = directory.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (path, socket)
}

#[test]
fn a_service_says_that_it_is_ready_and_lets_its_log_go_when_it_was_renamed() {
    let directory = Directory::new("service");
    let config = directory.file(
        "c.toml",
        "[[port]]\nname = \"a\"\nside = \"inside\"\ninput = \"generate:examples/cluster-traffic.toml\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n",
    );
    let (notify, socket) = manager(&directory);
    let (events, control) = (directory.path("e.jsonl"), directory.path("s.sock"));
    let said = || {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        text(&buffer[..length])
    };
    fs::write(&events, "{\"of\":\"the last start\"}\n").unwrap();
    let begun = Instant::now();
    let mut cluster = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["run", &config, "--events", &events])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("NOTIFY_SOCKET", &notify)
        .env("FLOWKEEP_SOCKET", &control)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(directory.path("err")).unwrap())
        .spawn()
        .unwrap();
    let ready = said();
    assert!(
        ready.starts_with("READY=1\nSTATUS=ports a; runtimes 1; events to "),
        "{ready}"
    );
    assert!(ready.ends_with(&format!("control socket {control}")), "{ready}");
    was_soon("run", cluster.id(), begun);
    let error = fs::read_to_string(directory.path("err")).unwrap();
    assert!(error.starts_with("ready: ports a; "), "{error}");

    // Renamed, as logrotate does it, and told.
    let old = directory.path("e.jsonl.old");
    fs::rename(&events, &old).unwrap();
    let signal = |name: &str| {
        let process = cluster.id().to_string();
        let done = Command::new("kill").args([name, &process]).status().unwrap();
        assert!(done.success());
    };
    signal("-USR1");
    let begin = Instant::now();
    while fs::metadata(&events).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the log is not opened again");
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .arg("status")
        .env("FLOWKEEP_SOCKET", &control)
        .output()
        .unwrap();
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    signal("-TERM");
    assert!(said().starts_with("STOPPING=1\n"));
    assert!(cluster.wait().unwrap().success());
    let (old, new) = (
        fs::read_to_string(old).unwrap(),
        fs::read_to_string(&events).unwrap(),
    );
    assert!(
        old.starts_with("{\"of\":\"the last start\"}\n"),
        "it is appended to: {old}"
    );
    // The log has the time of day, in UTC.
    let last = new.lines().last().expect("flows were open at the end");
    let time = last.split('"').nth(3).expect("a time");
    let seconds = Command::new("date")
        .args(["--date", time, "+%s"])
        .output()
        .unwrap();
    let seconds: u64 = text(&seconds.stdout).trim().parse().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(time.ends_with('Z') && seconds.abs_diff(now) < 60, "{last}");
}

/// A node and a switch are ready within a second, too, of their own processor time.
#[test]
fn members_are_ready_within_a_second() {
    let directory = Directory::new("ready");
    let key = directory.file("edge.key", &format!("1 {}\n", "ab".repeat(32)));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let member = |name: &str, kind: &str| {
        let socket = directory.path(&format!("{name}.sock"));
        format!("[[member]]\nname = \"{name}\"\n{kind} = 1\nsocket = \"{socket}\"\n")
    };
    let config = directory.file(
        "c.toml",
        &format!(
            "[cluster]\nname = \"ready-{}\"\nkeys = [\"{key}\"]\ndirectory = \"{}\"\n{}{}\
             [[port]]\nname = \"a\"\nside = \"inside\"\ninput = \"generate:examples/cluster-traffic.toml\"\n\
             [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n",
            std::process::id(),
            directory.path("state"),
            member("front", "switches"),
            member("left", "runtimes")
        ),
    );
    let (notify, socket) = manager(&directory);
    let mut begun = Vec::new();
    for (command, name) in [("node", "left"), ("switch", "front")] {
        let mut member = flowkeep(&[command, &config, "--member", name]);
        member
            .env("NOTIFY_SOCKET", &notify)
            .env("XDG_RUNTIME_DIR", directory.path(""));
        member
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path(name)).unwrap());
        let began = Instant::now();
        begun.push(Killed(member.spawn().unwrap()));
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        was_soon(command, begun.last().unwrap().0.id(), began);
        assert!(
            buffer[..length].starts_with(b"READY=1\n"),
            "{}",
            text(&buffer[..length])
        );
    }
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The most memory that a process has had, in KiB, as long as it was seen. The share of the
/// program's pages is printed: those are more without optimisation.
fn most_memory(child: &mut Child, until: impl Fn(&mut Child) -> bool) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let began = Instant::now();
    let (mut most, mut program) = (0, 0);
    while !until(child) {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let kibibytes = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.unwrap_or(0)
        };
        most = most.max(kibibytes("VmHWM:"));
        program = program.max(kibibytes("RssFile:"));
        assert!(began.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{most} KiB, {program} of them the program's");
    most
}

/// A firewall and NAT that idle, and a short capture, take little more than their goals of a
/// release (150 and 50 MB) in a build of the tests.
#[test]
fn little_work_takes_little_memory() {
    let directory = Directory::new("memory");
    let capture = directory.path("in.pcap");
    let input = "generate:examples/demo-traffic.toml?packets=500";
    let socket = directory.path("s.sock");
    let quiet = ["--events", "/dev/null", "--socket", &socket];
    let output = format!("pcap:{capture}");
    let made = run(&[&["run", "--input", input, "--output", &output], &quiet[..]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let played = format!("pcap:{capture}");
    let mut command = flowkeep(&[&["run", "--input", &played], &quiet[..]].concat());
    let mut replayed = Killed(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let replay = most_memory(&mut replayed.0, |child| child.try_wait().unwrap().is_some());

    let traffic = directory.file(
        "traffic.toml",
        "seed = 1\nflows = 10\nrate = { total = 1000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
         destinations = [\"192.0.2.1/32\"]\n[[classes]]\nshare = 1.0\ntcp = 0.0\n",
    );
    let config = directory.file(
        "idle.toml",
        &format!(
            "[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{traffic}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"out\"\nfunctions = [\"firewall\", \"nat\"]\n\
             [[function.firewall.rules]]\nname = \"all\"\nfrom = \"inside\"\naction = \"allow\"\n\
             [function.nat]\npool = [\"203.0.113.0/28\"]\n"
        ),
    );
    let said = fs::File::create(directory.path("said")).unwrap();
    let mut command = flowkeep(&["run", &config, "--socket", &socket]);
    let mut cluster = Killed(command.stdout(Stdio::null()).stderr(said).spawn().unwrap());
    let passed = |child: &mut Child| {
        let ended = child.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "{}",
            fs::read_to_string(directory.path("said")).unwrap()
        );
        let output = run(&["status", "--json", "--socket", &socket]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["packets"]["out"].as_u64() > Some(100)
    };
    let idle = most_memory(&mut cluster.0, passed);
    let stopped = run(&["stop", "--socket", &socket]);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    assert!(cluster.0.wait().unwrap().success());
    println!("a capture: {replay} KiB; idle: {idle} KiB");
    // The program's own pages are 33 MB of that without optimisation, and 19 in a release, which
    // `tools/package/try.sh` holds to the goals.
    let (most, most_idle) = (47, 160);
    assert!(
        (5_000..most << 10).contains(&replay),
        "a capture of 500 packets took {replay} KiB"
    );
    assert!(
        (5_000..most_idle << 10).contains(&idle),
        "an idle firewall and NAT took {idle} KiB"
    );
}

/// `chain check` refuses the configurations that `run` refuses, at the same line and in the same
/// sense.
#[test]
fn what_run_refuses_check_refuses() {
    let directory = Directory::new("refused");
    let good = directory.file("good.toml", PROFILE_OF_ONE);
    let generated = format!("input = \"generate:{good}?packets=1\"");
    let output = format!("output = \"pcap:{}\"", directory.file("out.pcap", ""));
    let both = format!("{generated}\n{output}\n[[port]]\nname = \"b\"\n{output}");
    let table = [
        // Ports, functions, the line that check names, words of both, the remedy.
        (
            both.as_str(),
            "\"firewall\"",
            ":7:10: port[1].output",
            "this run reads or writes it already",
            "choose another name",
        ),
        (
            generated.as_str(),
            "\"forward\", \"firewall\"",
            ":6:14: chain[0].functions[0]",
            "`forward`",
            "put it at the end",
        ),
        (
            "input = \"reflect:\"\noutput = \"pcap:out.pcap\"",
            "\"firewall\"",
            ":3:9: port[0].input",
            "`reflect:` answers by itself",
            "leave the port's other half out",
        ),
        (
            "input = \"pcap:nosuch\"",
            "\"firewall\"",
            ":3:9: port[0].input",
            "nosuch: cannot be opened: No such file",
            "name a file that is there",
        ),
        (
            "input = \"generate:nosuch.toml\"",
            "\"firewall\"",
            ":3:9: port[0].input",
            "nosuch.toml cannot be read: No such file",
            "name a profile",
        ),
        (
            "input = \"reflect:?record=no/such/folder/a.pcap\"",
            "\"firewall\"",
            ":3:9: port[0].input",
            "no/such/folder/a.pcap: cannot be created",
            "make it, or name another",
        ),
    ];
    for (port, functions, line, words, remedy) in table {
        let written =
            format!("[[port]]\nname = \"a\"\n{port}\n[[chain]]\nname = \"c\"\nfunctions = [{functions}]\n");
        let file = directory.file("f.toml", &written);
        let checked = run(&["chain", "check", &file]);
        let said = text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(2), "{port}: {said}");
        assert!(said.contains(&format!("{file}{line}")), "{said}");
        assert!(said.contains(words) && said.contains(remedy), "{said}");
        let json = run(&["chain", "check", "--json", &file]).stdout;
        assert_eq!(serde_json::from_slice::<Value>(&json).unwrap()["good"], false);
        let ran = run(&["run", &file]);
        assert_eq!(ran.status.code(), Some(2), "{port}");
        assert!(text(&ran.stderr).contains(words), "{}", text(&ran.stderr));
    }
    // An entry for a port that is not there.
    let lost = format!(
        "[[port]]\nname = \"wan\"\n{generated}\n[[chain]]\nname = \"c\"\nfunctions = [\"forward\"]\n\
         [function.forward.interfaces]\nwann = \"lo\"\n"
    );
    let file = directory.file("f.toml", &lost);
    let (checked, ran) = (run(&["chain", "check", &file]), run(&["run", &file]));
    assert_eq!((checked.status.code(), ran.status.code()), (Some(2), Some(2)));
    for said in [text(&checked.stderr), text(&ran.stderr)] {
        let words = "f.toml:8:8: function.forward.interfaces.wann: there is no port `wann`";
        assert!(said.contains(words) && said.contains("write `wan`"), "{said}");
    }
    let absent = "[[port]]\nname = \"a\"\ninput = \"afpacket:nosuch0\"\n[[chain]]\nname = \"c\"\nfunctions = [\"firewall\"]\n";
    let checked = run(&["chain", "check", &directory.file("f.toml", absent)]);
    assert!(checked.status.success(), "an interface may come later");
    let warned = "warning: port[0].input: there is no interface `nosuch0`";
    assert!(
        text(&checked.stdout).contains(warned),
        "{}",
        text(&checked.stdout)
    );
}

const PROFILE_OF_ONE: &str = "flows = 1\nsources = [\"10.0.0.0/26\"]\nsource_ports = [1024, 5000]\n\
                              destinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                              [[classes]]\nshare = 1.0\ntcp = 0.0\n";
