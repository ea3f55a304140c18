//! `flowkeep coordinator` and `flowkeep cluster`, as an operator runs them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn flowkeep(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command.args(words).output().expect("it runs")
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// A directory with a cluster's certificates, gone with this.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let place = Place(path);
        let made = flowkeep(&["cluster", "init", place.text()]);
        assert!(made.status.success(), "{}", said(&made));
        place
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Told to end when it is dropped.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The processes that a process has started.
fn children(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let all = std::fs::read_to_string(path).unwrap_or_default();
    all.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

fn until<T>(what: &str, mut try_it: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = try_it() {
            return found;
        }
        assert!(Instant::now() < end, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn certificates_are_their_owners_and_never_overwritten() {
    let place = Place::new("init");
    let mut names = Vec::new();
    for file in std::fs::read_dir(&place.0).expect("a directory") {
        let file = file.expect("a file");
        let mode = file.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
        names.push(file.file_name().into_string().expect("UTF-8"));
    }
    names.sort_unstable();
    let kinds = ["admin", "ca", "coordinator", "operate", "read"];
    let expected: Vec<_> = kinds
        .iter()
        .flat_map(|kind| [format!("{kind}.key"), format!("{kind}.pem")])
        .collect();
    assert_eq!(names, expected);
    let before = std::fs::read(place.0.join("ca.key")).expect("it is there");
    let again = flowkeep(&["cluster", "init", place.text()]);
    assert!(
        !again.status.success() && said(&again).contains("ca.key"),
        "{}",
        said(&again)
    );
    assert_eq!(
        std::fs::read(place.0.join("ca.key")).expect("it is there"),
        before
    );
}

#[test]
fn what_cannot_start_says_why_and_is_not_started_again() {
    let place = Place::new("wrong");
    let nowhere = flowkeep(&["coordinator", "--data", "/nonexistent", "--listen", "127.0.0.1:0"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(
        said(&nowhere).contains("flowkeep cluster init"),
        "{}",
        said(&nowhere)
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    // A taken port may be free later, so a guard starts the coordinator again.
    let words = [
        "coordinator",
        "--data",
        place.text(),
        "--listen",
        &address,
        "--unguarded",
    ];
    let taken = flowkeep(&words);
    assert_eq!(taken.status.code(), Some(1));
    assert!(said(&taken).contains(&address), "{}", said(&taken));
    let wrong = |times: &[&str]| {
        let words = ["coordinator", "--data", place.text(), "--listen", "127.0.0.1:0"];
        let wrong = flowkeep(&[&words[..], times].concat());
        assert_eq!(wrong.status.code(), Some(2), "{times:?}");
        said(&wrong)
    };
    wrong(&["--lease", "1s", "--suspicion", "1s"]);
    let why = wrong(&["--lease", "1s", "--suspicion", "1500ms", "--unheard", "2s"]);
    assert!(
        why.contains("--unheard 2s") && why.contains("2.5s or more"),
        "{why}"
    );
}

#[test]
fn a_coordinator_says_what_its_level_asks_for() {
    let place = Place::new("levels");
    let errors = place.0.join("errors");
    for (level, is_variable) in [
        ("error", false),
        ("error", true),
        ("warn", false),
        ("info", false),
    ] {
        let address = free_address();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        command.args(["coordinator", "--data", place.text(), "--listen", &address]);
        command.env_remove("FLOWKEEP_LOG");
        match is_variable {
            true => command.env("FLOWKEEP_LOG", level),
            false => command.args(["--log", level]),
        };
        command.stderr(std::fs::File::create(&errors).expect("a file"));
        let guarded = Guarded(command.spawn().expect("it starts"));
        until("it answers", || {
            let words = ["cluster", "status", "--at", &address, "--identity", place.text()];
            flowkeep(&words).status.success().then_some(())
        });
        let lines = || std::fs::read_to_string(&errors).expect("it is there");
        if level == "info" {
            until("it says where it listens", || {
                lines().contains("listening at ").then_some(())
            });
        }
        drop(guarded);
        assert!(level == "info" || lines().is_empty(), "{level}: {}", lines());
    }
    let words = [
        "coordinator",
        "--data",
        place.text(),
        "--listen",
        "127.0.0.1:0",
        "--log",
        "loud",
    ];
    let wrong = flowkeep(&words);
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
}

#[test]
fn a_coordinator_that_is_killed_is_started_again_by_its_guard() {
    let place = Place::new("guarded");
    let address = free_address();
    let child = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["coordinator", "--data", place.text(), "--listen", &address])
        .stderr(Stdio::null())
        .spawn();
    let guarded = Guarded(child.expect("it starts"));
    let status = || {
        let words = [
            "cluster",
            "status",
            "--at",
            &address,
            "--identity",
            place.text(),
            "--json",
        ];
        let output = flowkeep(&words);
        output.status.success().then(|| said(&output))
    };
    let answer = until("it answers", status);
    assert!(
        answer.contains("\"view\":1") || answer.contains("\"view\": 1"),
        "{answer}"
    );
    let first = until("a coordinator", || children(guarded.0.id()).first().copied());
    let killed = Command::new("kill").args(["-9", &first.to_string()]).status();
    assert!(killed.expect("kill").success());
    let second = until("another one", || {
        children(guarded.0.id()).into_iter().find(|id| *id != first)
    });
    until("it answers again", status);

    // Rights are those of the certificate.
    let drain = |name: &str| {
        let words = [
            "cluster",
            "drain",
            "a",
            "--at",
            &address,
            "--identity",
            place.text(),
            "--name",
            name,
        ];
        said(&flowkeep(&words))
    };
    assert!(drain("read").contains("role-without-right"), "{}", drain("read"));
    let answer = until("it has settled", || {
        let answer = drain("operate");
        (!answer.contains("settling")).then_some(answer)
    });
    assert!(answer.contains("no-such-member"), "{answer}");

    // A guard that is killed leaves no coordinator behind.
    let mut guarded = guarded;
    guarded.0.kill().expect("it is killed");
    guarded.0.wait().expect("it has ended");
    until("the coordinator has ended", || {
        // A process that has ended stays a zombie until its parent takes note.
        let state = std::fs::read_to_string(format!("/proc/{second}/stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    });
}

/// Whether a process is stopped.
fn is_stopped(id: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    state.contains(") T ")
}

#[test]
fn a_coordinator_that_stands_still_is_killed_by_its_guard_and_one_that_goes_on_is_not() {
    let place = Place::new("stopped");
    let address = free_address();
    let said = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stopped-{}.err", std::process::id()));
    let child = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["coordinator", "--data", place.text(), "--listen", &address])
        .stderr(std::fs::File::create(&said).expect("a file"))
        .spawn();
    let guarded = Guarded(child.expect("it starts"));
    let answers = || {
        let words = ["cluster", "status", "--at", &address, "--identity", place.text()];
        flowkeep(&words).status.success().then_some(())
    };
    until("it answers", answers);
    let child = || children(guarded.0.id()).first().copied();
    let first = until("a coordinator", child);
    let signal = |word: &str| {
        let sent = Command::new("kill").args([word, &first.to_string()]).status();
        assert!(sent.expect("kill").success());
    };
    // For less than ten seconds: it goes on.
    signal("-STOP");
    until("it stands still", || is_stopped(first).then_some(()));
    std::thread::sleep(Duration::from_secs(4));
    signal("-CONT");
    until("it answers again", answers);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(child(), Some(first));
    // For longer: another one answers.
    signal("-STOP");
    let begun = Instant::now();
    until("another one", || {
        children(guarded.0.id()).into_iter().find(|id| *id != first)
    });
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(8), "{took:?}");
    until("it answers for the other", answers);
    println!("another one was there {took:?} after SIGSTOP");
    let lines = std::fs::read_to_string(&said).expect("it is there");
    assert!(
        lines.contains("silent for 10") && lines.contains("signal 9"),
        "{lines}"
    );
    let _ = std::fs::remove_file(&said);
}

/// A member of etcd on loopback with a directory of its own, gone with this.
struct Store(Child, PathBuf);

impl Store {
    /// With its address; `None` where there is no etcd.
    fn start() -> Option<(Self, String)> {
        let begun = Command::new("etcd")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        begun.ok()?;
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("etcd-{}", std::process::id()));
        let (client, peer) = (free_address(), free_address());
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let etcd = Command::new("etcd")
            .args(["--name", "m", "--unsafe-no-fsync", "--log-level", "error"])
            .args(["--initial-cluster", &format!("m={peer}")])
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .arg("--data-dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some((Store(etcd.expect("it starts"), directory), client))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// The output of a command over the cluster, asked at these coordinators; `is_variable`: named by
/// the environment.
fn wide(place: &Place, coordinators: &str, is_variable: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command.args(["runtime", "list", "--json", "--identity", place.text()]);
    match is_variable {
        true => command.env("FLOWKEEP_CLUSTER", coordinators),
        false => command.args(["--cluster", coordinators]),
    };
    command.output().expect("it runs")
}

#[test]
fn of_several_coordinators_the_one_that_answers_is_asked() {
    let Some((_store, etcd)) = Store::start() else {
        return println!("not run: needs etcd (apt install etcd-server)");
    };
    let place = Place::new("several");
    let addresses = [free_address(), free_address()];
    let start = |address: &String| {
        let child = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
            .args(["coordinator", "--data", place.text(), "--listen", address])
            .args(["--etcd", &etcd])
            .stderr(Stdio::null())
            .spawn();
        Guarded(child.expect("it starts"))
    };
    // This refuses nothing and answers nothing, as a host that is off.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().map(|address| (address.to_string(), silent));
    let (silent, _listener) = silent.expect("an address");
    let both = addresses.join(",");
    let status = |at: &[&str]| {
        let words = ["cluster", "status", "--json", "--identity", place.text()];
        let words: Vec<&str> = words
            .into_iter()
            .chain(at.iter().flat_map(|at| ["--at", at]))
            .collect();
        flowkeep(&words)
    };
    let answers = |coordinator: &str, at: &[&str]| {
        let output = until("it answers", || {
            let output = status(at);
            let json: Option<serde_json::Value> = serde_json::from_slice(&output.stdout).ok();
            json.is_some_and(|json| json["coordinator"] == coordinator)
                .then_some(output)
        });
        String::from_utf8_lossy(&output.stderr).into_owned()
    };

    let nowhere = status(&[&both]);
    assert_eq!(nowhere.status.code(), Some(1));
    for address in &addresses {
        let why = format!("{address}: Connection refused");
        assert!(said(&nowhere).contains(&why), "{}", said(&nowhere));
    }
    let mut first = start(&addresses[0]);
    assert_eq!(answers(&addresses[0], &[&both]), "");
    let second = start(&addresses[1]);
    // In any order, and each by a word of its own.
    let note = answers(&addresses[0], &[&addresses[1], &addresses[0]]);
    let expected = format!(
        "the coordinator at {} answers; {}: Connection refused",
        addresses[0], addresses[1]
    );
    assert!(note.starts_with(&expected), "{note}");
    // A silent coordinator costs no more than a moment.
    let begun = Instant::now();
    let behind = status(&[&silent, &both]);
    let took = begun.elapsed();
    assert!(
        behind.status.success() && took < Duration::from_secs(4),
        "{took:?}"
    );
    assert!(said(&behind).contains(&format!("{silent}: it has not answered yet")));

    first.0.kill().expect("it is killed");
    first.0.wait().expect("it has ended");
    answers(&addresses[1], &[&both]);
    for is_variable in [false, true] {
        // No member is there, and the second coordinator says so.
        let output = wide(&place, &both, is_variable);
        let said = said(&output);
        assert!(
            said.contains(&format!("the coordinator at {} answers", addresses[1])),
            "{said}"
        );
        let alone = wide(&place, &addresses[0], is_variable);
        assert_eq!(alone.status.code(), Some(1));
        let wrong = wide(&place, &format!("{both},"), is_variable);
        assert_eq!(wrong.status.code(), Some(2));
    }
    drop(second);
}
