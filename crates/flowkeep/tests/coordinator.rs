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
    let taken = flowkeep(&["coordinator", "--data", place.text(), "--listen", &address]);
    assert_eq!(taken.status.code(), Some(2));
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
