//! A node and a switch say that they are ready, and with which members they are linked: on standard
//! error by the level that is asked for, and to a service manager.

use super::rig::{Folder, Member, PATIENCE};
use super::{MONITOR, steady};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A member, and the socket of its service manager.
struct Started {
    member: Member,
    manager: UnixDatagram,
    folder: std::path::PathBuf,
}

impl Started {
    /// With these words behind the command's, and `FLOWKEEP_LOG` if it is said.
    fn with(folder: &Folder, config: &Path, command: &str, name: &str, level: Option<&str>) -> Self {
        let path = folder.0.join(format!("{name}.notify"));
        let _ = std::fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let tool = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        let member = Member::start_by(folder, tool, name, |tool| {
            tool.arg(command).arg(config).args(["--member", name, "--json"]);
            tool.env_remove("FLOWKEEP_LOG").env("NOTIFY_SOCKET", &path);
            tool.envs(level.map(|level| ("FLOWKEEP_LOG", level)));
        });
        Started {
            member,
            manager,
            folder: folder.0.clone(),
        }
    }

    /// The next that the service manager hears.
    fn told(&self) -> String {
        let mut states = [0; 4096];
        let length = self.manager.recv(&mut states).unwrap();
        String::from_utf8(states[..length].to_vec()).unwrap()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join(format!("{}.err", self.member.name))).unwrap()
    }

    /// Waits for a line on standard error, which a thread of its own may write later.
    fn says(&self, line: &str) {
        let began = Instant::now();
        while !self.said().lines().any(|said| said.ends_with(line)) {
            assert!(
                began.elapsed() < PATIENCE,
                "`{line}` is not said: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks it to end, as a service manager does, and waits for its last words.
    fn ends(mut self) -> String {
        let process = self.member.process.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &process]).status();
        assert!(asked.unwrap().success());
        let began = Instant::now();
        while self.member.process.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.told()
    }
}

#[test]
fn members_say_that_they_are_ready_and_with_whom_they_are_linked() {
    let folder = Folder::new("ready");
    let config = folder.members(&[("front", "switches", "here"), ("left", "runtimes", "here")])
        + &folder.generated(&steady(10, 1000, u64::from(u32::MAX)))
        + MONITOR;
    let config = folder.write("cluster.toml", &config);
    let left = Started::with(&folder, &config, "node", "left", None);
    let socket = |name: &str| format!("; control socket {}", folder.0.join(name).display());
    let events = |name: &str| format!("; events to {}", folder.0.join(name).display());
    let parts = format!("member left; runtimes 1{}", events("left.jsonl"));
    let waits = format!("{parts}{}; waits for the other members", socket("left.sock"));
    assert_eq!(left.told(), format!("READY=1\nSTATUS={waits}"));
    // Nothing more is told before the other one is there.
    left.manager.set_nonblocking(true).unwrap();
    assert!(left.manager.recv(&mut [0; 16]).is_err());
    left.manager.set_nonblocking(false).unwrap();

    let front = Started::with(&folder, &config, "switch", "front", Some("debug"));
    let of_front = format!("member front; ports lan, wan{}", events("front.jsonl"));
    let told = front.told();
    assert!(
        told.starts_with(&format!("READY=1\nSTATUS={of_front}; control socket ")),
        "{told}"
    );
    assert_eq!(left.told(), format!("STATUS={parts}; linked with switch 0"));
    assert_eq!(front.told(), format!("STATUS={of_front}; linked with runtime 0"));

    // The same on standard error; requests at debug alone.
    left.says(&format!("ready: {waits}"));
    left.says("ready: linked with switch 0");
    front.says("ready: linked with runtime 0");
    for member in [&front, &left] {
        assert_eq!(member.said().matches("ready: ").count(), 2, "{}", member.said());
        member.member.status();
    }
    front.says("asked for status");
    assert!(!left.said().contains("asked for"), "{}", left.said());

    for member in [front, left] {
        let last = member.ends();
        assert!(last.starts_with("STOPPING=1\nSTATUS="), "{last}");
    }
}

#[test]
fn a_member_that_is_to_say_errors_alone_says_nothing_of_what_is_ready() {
    let folder = Folder::new("quiet");
    let config = folder.members(&[("front", "switches", "here"), ("left", "runtimes", "here")])
        + &folder.generated(&steady(10, 1000, u64::from(u32::MAX)))
        + MONITOR;
    let config = folder.write("cluster.toml", &config);
    let Started { mut member, .. } = Started::with(&folder, &config, "node", "left", Some("loud"));
    assert_eq!(member.process.wait().unwrap().code(), Some(2));
    let said = folder.read("left.err");
    assert!(
        said.contains("`loud` is no level; write error, warn, info or debug"),
        "{said}"
    );
    let levels = [("node", "left", "error"), ("switch", "front", "warn")];
    let both =
        levels.map(|(command, name, level)| Started::with(&folder, &config, command, name, Some(level)));
    for member in &both {
        // The service manager hears of it all the same.
        assert!(member.told().starts_with("READY=1\n"));
        assert!(member.told().contains("; linked with "));
        assert!(!member.said().contains("ready: "), "{}", member.said());
    }
}
