//! Members that come and go by load: `cluster scale` launches a node that no file lists, and a
//! second one, begun when the first has ended, takes it away. All packets are accounted for.

use super::joined::{Site, flows, is_listed, passes, runs};
use super::rig::PATIENCE;
use super::schema;
use super::steady;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// `cluster scale`, and the lines that it prints.
struct Scaling {
    process: Child,
    lines: Receiver<Value>,
}

impl Scaling {
    fn start(site: &Site, words: &[&str]) -> Self {
        // Of a test that fails no node is left for long.
        let launch = format!(
            "exec timeout --signal=KILL 300 {} node {} --member $FLOWKEEP_MEMBER --runtimes 1 --join $FLOWKEEP_JOIN --token $FLOWKEEP_TOKEN --socket {} 2>/dev/null",
            env!("CARGO_BIN_EXE_flowkeep"),
            site.config.display(),
            site.folder.0.join("auto.sock").display(),
        );
        let mut process = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
            .args(["cluster", "scale", "--at", &site.coordinator.address])
            .args([
                "--identity",
                &site.coordinator.folder,
                "--launch",
                &launch,
                "--json",
            ])
            .args([
                "--max",
                "3",
                "--out-after",
                "300ms",
                "--in-after",
                "300ms",
                "--interval",
                "200ms",
            ])
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let out = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("JSON"));
            }
        });
        Scaling { process, lines }
    }

    /// The next line of this kind. A step that failed for want of time is tried again.
    #[track_caller]
    fn wait_for(&self, event: &str) -> Value {
        let (began, mut others) = (Instant::now(), Vec::new());
        while let Some(left) = (2 * PATIENCE).checked_sub(began.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) if line["event"] == event => {
                    schema::holds("cluster-scale", line.to_string().as_bytes());
                    return line;
                }
                Ok(line) => others.push(line),
                Err(_) => break,
            }
        }
        panic!("no {event} in {others:?}");
    }

    fn end(mut self) {
        let id = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is there");
        assert!(self.process.wait().expect("it ends").success());
    }
}

impl Drop for Scaling {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn members_come_and_go_by_load() {
    let site = Site::made("scaled", false, &steady(300, 20_000, u64::MAX >> 1), "");
    let [front, left, right] = site.all();
    passes(&front, 2000);
    // Two percent of the time are much here, so that a busy machine is no matter.
    let scaling = Scaling::start(&site, &["--high", "2", "--low", "1"]);
    let added = scaling.wait_for("added");
    assert_eq!(
        (&added["runtime"], &added["runtimes"]),
        (&2.into(), &3.into()),
        "{added}"
    );
    assert!(added["flows_moved"].as_u64() > Some(0), "{added}");
    scaling.end();
    let view = site.coordinator.view().expect("it answers");
    assert!(
        runs(&view, "auto-1").is_some(),
        "it stays when the command has ended: {view}"
    );
    passes(&front, 2000);

    let scaling = Scaling::start(&site, &["--high", "100", "--low", "75"]);
    let removed = scaling.wait_for("removed");
    assert_eq!(
        (&removed["runtime"], &removed["runtimes"]),
        (&2.into(), &2.into()),
        "{removed}"
    );
    site.coordinator
        .wait_until("no view has it", |view| !is_listed(view, "auto-1"));
    passes(&front, 2000);
    // Of the listed members none goes, however little there is to do.
    scaling.end();
    assert_eq!(flows(&left.status()) + flows(&right.status()), 300);
    let front = front.stop(&site.folder);
    let rest = [left, right].map(|member| member.stop(&site.folder));
    let [left, right] = &rest;
    let lost = |status: &flowkeep::report::Status| -> u64 { status.packets.dropped.values().sum() };
    assert_eq!(lost(left) + lost(right), 0, "{left} {right}");
    let busy = front.packets.dropped.get("runtime_busy").copied().unwrap_or(0);
    assert_eq!(
        lost(&front),
        busy,
        "what is dropped is dropped for want of room: {front}"
    );
}
