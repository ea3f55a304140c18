//! More actions with a member, for members' own tests: commands of its tool, moves, signals, its
//! end.

use super::rig::{Folder, Member, PATIENCE};
use flowkeep::control::{Answer, Request};
use flowkeep::moving::{Order, Receipt};
use flowkeep::report::Status;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

impl Folder {
    /// An address of this machine that no other test has: tests run beside each other.
    pub fn host(&self, number: u8) -> String {
        format!("127.{}.{}.{number}", 1 + std::process::id() % 250, self.1)
    }
}

impl Member {
    /// Waits until these workers are at the other end of its links to them.
    #[track_caller]
    pub fn wait_for(&self, workers: &[&str]) -> Status {
        self.wait_until("these are to be there", |status| {
            let mut links = status.links.iter();
            workers
                .iter()
                .all(|worker| links.any(|link| link.to == *worker && link.is_there))
        })
    }

    /// Moves flows, and waits until that is over.
    #[track_caller]
    pub fn migrate(&self, to: u16) -> Receipt {
        let mut client = self.client();
        let order = Order {
            to: vec![to],
            ..Order::default()
        };
        let Answer::Ordered(parts) = client.ask(&Request::Move(order)).unwrap() else {
            panic!("no order");
        };
        let began = Instant::now();
        loop {
            let Answer::Receipt(receipt) = client.ask(&Request::Receipt { parts: parts.clone() }).unwrap()
            else {
                panic!("no receipt");
            };
            if receipt.over {
                return receipt;
            }
            assert!(began.elapsed() < PATIENCE, "{}: {receipt}", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Moves flows until some have: a runtime that has just begun is not met by all yet.
    #[track_caller]
    pub fn wait_until_moved(&self, to: u16) -> u64 {
        let began = Instant::now();
        loop {
            let order = Order {
                to: vec![to],
                ..Order::default()
            };
            if let Answer::Ordered(_) = self.client().ask(&Request::Move(order)).unwrap() {
                let moved = self.migrate(to).flows_moved;
                if self.status().runtimes.iter().all(|runtime| runtime.flows == 0) || moved > 0 {
                    return moved.max(1);
                }
            }
            assert!(began.elapsed() < PATIENCE, "{}: nothing moves", self.name);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A command of the tool, said to it.
    pub fn tool(&self, words: &[&str]) -> Child {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        tool.args(words).arg("--socket").arg(&self.socket);
        tool.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        tool.spawn().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Asks it to end, and waits for that: its last status.
    #[track_caller]
    pub fn stop(mut self, folder: &Folder) -> Status {
        self.signal("-TERM");
        self.ended(folder)
    }

    /// Waits until it ends by itself: its last status.
    #[track_caller]
    pub fn ended(&mut self, folder: &Folder) -> Status {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(10));
        };
        let (out, err) = (
            folder.read(&format!("{}.out", self.name)),
            folder.read(&format!("{}.err", self.name)),
        );
        assert!(status.success(), "{}: {status}\n{out}\n{err}", self.name);
        let last = out.lines().last().unwrap_or_default();
        super::schema::holds("status", last.as_bytes());
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{}: {error}: {out}", self.name))
    }
}

/// The outcome of a command: its code, its standard output and error.
pub fn finished(command: Child) -> (i32, String, String) {
    let output = command.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Runs a command that is to fail: its code and its standard error.
pub fn refused(words: &[&str]) -> (i32, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (process.wait().unwrap().code().unwrap_or(-1), said)
}

/// Waits until a member has said this on standard error.
#[track_caller]
pub fn wait_for_word(folder: &Folder, member: &str, word: &str) {
    let began = Instant::now();
    loop {
        let said = folder.read(&format!("{member}.err"));
        if said.contains(word) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{member}: {word:?}, but {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
