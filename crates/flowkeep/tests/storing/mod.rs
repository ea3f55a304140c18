//! The common part of tests with stores: the command, a folder, a redis-server of their own.

#[path = "../../../stores/tests/servers/redis.rs"]
mod server;

use serde_json::Value;
pub use server::Server;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn flowkeep(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Whether a command succeeded, and its output.
pub fn output(words: &[&str]) -> (bool, String, String) {
    let output = flowkeep(words).output().expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Waits until `look` finds something.
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server of the test's own; `None`, and a word, where there is none.
pub fn server(settings: &[&str]) -> Option<Server> {
    match Server::start(settings) {
        Ok(server) => Some(server),
        Err(why) => {
            println!("not run: {why}");
            None
        }
    }
}

/// A folder that is gone with the test; a Flowkeep that is made of it has its socket there.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("a file");
        self.path(name)
    }

    pub fn asked(&self, words: &[&str]) -> Option<Value> {
        asked(&self.path("flowkeep.sock"), words)
    }

    pub fn status(&self) -> Option<Value> {
        self.asked(&["status"])
    }
}

/// The answer of the process behind a socket.
pub fn asked(socket: &str, words: &[&str]) -> Option<Value> {
    let (done, said, _) = output(&[words, &["--socket", socket, "--json"]].concat());
    done.then(|| serde_json::from_str(&said).expect("JSON"))
}
