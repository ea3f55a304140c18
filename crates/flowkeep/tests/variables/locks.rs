//! Locks: each packet adds one to the lock's value, whichever runtime of whichever process has it.

use super::{Said, Site, chain, gateway, most, said, sum};
use crate::rig::{Folder, Member};
use crate::storing::{server, wait};
use nf::variables::{Lock, Variables};
use nf::{ConfigError, Cx, NetworkFunction, Packet, Period, Verdict, WorkerInfo, network_function};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::Cell;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1);

/// How the lock is held.
#[derive(Deserialize, JsonSchema, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Default: a second.
    lease: Option<Period>,
}
const WAIT: Duration = Duration::from_secs(20);

pub struct Tally {
    runtime: u16,
    lock: Lock,
    /// A call that has the lock keeps it.
    keeps: Cell<bool>,
    holds: Cell<u64>,
    puts: Cell<u64>,
    lost: Cell<u64>,
    missed: Cell<u64>,
    value: Cell<u64>,
    token: Cell<u64>,
    /// Tokens and values that were less than those before.
    backward: Cell<u64>,
}

fn add(to: &Cell<u64>, by: u64) {
    to.set(to.get() + by);
}

fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[network_function]
impl NetworkFunction for Tally {
    const NAME: &'static str = "tally";

    type Config = Config;

    fn with_variables(
        config: &Arc<Config>,
        worker: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        let none = || Cell::new(0);
        Ok(Tally {
            runtime: worker.runtime,
            lock: variables.lock("tally", config.lease.map_or(LEASE, Period::duration))?,
            keeps: Cell::new(false),
            holds: none(),
            puts: none(),
            lost: none(),
            missed: none(),
            value: none(),
            token: none(),
            backward: none(),
        })
    }

    async fn process(&self, _: &mut Packet, (): &mut (), cx: &mut Cx<Self>) -> Verdict {
        let Ok(held) = cx.locked(&self.lock, WAIT).await else {
            add(&self.missed, 1);
            return Verdict::Forward;
        };
        add(&self.holds, 1);
        let before = held.read(number).unwrap_or(0);
        let token = held.token().unwrap_or(self.token.get());
        if token < self.token.get() || before < self.value.get() {
            add(&self.backward, 1);
        }
        // Others have their chance to write in between.
        cx.sleep(Duration::from_millis(1)).await;
        while self.keeps.get() {
            cx.sleep(Duration::from_millis(5)).await;
        }
        match cx.put(&held, &(before + 1).to_le_bytes()).await {
            Ok(()) => {
                add(&self.puts, 1);
                self.value.set(before + 1);
                self.token.set(token);
            }
            Err(_) => add(&self.lost, 1),
        }
        self.holds.set(self.holds.get() - 1);
        Verdict::Forward
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        match words {
            ["keep"] => self.keeps.set(true),
            ["go"] => self.keeps.set(false),
            _ => {}
        }
        let [holds, puts, lost, missed, value, token, backward] = [
            &self.holds,
            &self.puts,
            &self.lost,
            &self.missed,
            &self.value,
            &self.token,
            &self.backward,
        ]
        .map(Cell::get);
        let runtime = self.runtime;
        Ok(format!(
            "runtime={runtime} holds={holds} puts={puts} lost={lost} missed={missed} value={value} token={token} backward={backward}"
        ))
    }
}

#[track_caller]
fn told(member: &Member, word: &str) -> Said {
    wait("an answer", || said(member, "tally", word))
}

/// All have the same say until nothing changes: a call that has the lock keeps it.
fn stand_still(members: &[&Member]) -> Vec<Said> {
    members.iter().for_each(|member| drop(told(member, "keep")));
    let mut before = Vec::new();
    wait("a call that keeps the lock", || {
        let now: Vec<Said> = members.iter().map(|member| told(member, "state")).collect();
        let is_held = now.iter().any(|said| sum(said, "holds") > 0);
        let is_same = now == before;
        before = now;
        (is_held && is_same).then_some(())
    });
    before
}

/// `puts`: the writes of processes that are gone. A write that the store took and the holder was
/// not told of may be among the lost ones.
#[track_caller]
fn none_is_lost(said: &[Said], puts: u64) {
    let puts: u64 = puts + said.iter().map(|said| sum(said, "puts")).sum::<u64>();
    let lost: u64 = said.iter().map(|said| sum(said, "lost")).sum();
    let value = said.iter().map(|said| most(said, "value")).max().unwrap_or(0);
    assert!(
        (puts..=puts + lost).contains(&value),
        "{value} of {puts}: {said:?}"
    );
    let backward: u64 = said.iter().map(|said| sum(said, "backward")).sum();
    assert_eq!(backward, 0, "{said:?}");
}

/// Waits until the process has written so often more.
#[track_caller]
fn writes(member: &Member, more: u64) -> Said {
    let before = sum(&told(member, "state"), "puts");
    wait("writes", || {
        said(member, "tally", "state").filter(|said| sum(said, "puts") >= before + more)
    })
}

/// Waits until a node has the lock, where both had stood still; how often it has written.
#[track_caller]
fn has_it(node: &Member, other: &Member) -> u64 {
    told(other, "go");
    wait("the node has the lock", || {
        let said = told(node, "state");
        (sum(&said, "holds") > 0 && sum(&told(other, "state"), "holds") == 0).then(|| sum(&said, "puts"))
    })
}

fn signal(member: &Member, name: &str) {
    let done = Command::new("kill")
        .args([name, &member.process.id().to_string()])
        .status();
    assert!(done.expect("kill").success());
}

#[test]
fn two_runtimes_of_a_process_write_in_turn() {
    let folder = Folder::new("locks-memory");
    let running = gateway(&folder, 500.0, &chain("tally", "", "memory:"));
    // Both runtimes have the lock again and again.
    wait("both write", || {
        let said = said(&running, "tally", "state")?;
        let puts = said.get("puts")?;
        (puts.len() == 2 && puts.iter().all(|puts| *puts >= 10)).then_some(())
    });
    none_is_lost(&stand_still(&[&running]), 0);
}

#[test]
fn two_processes_write_in_turn_and_a_holder_that_is_killed_leaves_the_lock() {
    let Some(server) = server(&[]) else { return };
    let site = Site::new("locks-killed", 500.0, &chain("tally", "", &server.uri()));
    let (_front, mut left, right) = (site.start("front"), site.start("left"), site.start("right"));
    [&left, &right].iter().for_each(|node| drop(writes(node, 5)));
    none_is_lost(&stand_still(&[&left, &right]), 0);
    // The left one is to have it, so that it dies with it.
    let puts = has_it(&left, &right);
    let token = most(&told(&right, "state"), "token");
    left.kill();
    let said = writes(&right, 5);
    assert!(most(&said, "token") > token, "{said:?}");
    none_is_lost(&stand_still(&[&right]), puts);
}

#[test]
fn a_holder_that_stood_still_beyond_its_lease_writes_nothing() {
    let Some(server) = server(&[]) else { return };
    let site = Site::new("locks-stopped", 500.0, &chain("tally", "", &server.uri()));
    let (_front, left, right) = (site.start("front"), site.start("left"), site.start("right"));
    [&left, &right].iter().for_each(|node| drop(writes(node, 3)));
    told(&left, "keep");
    let before = wait("the left node has the lock", || {
        let said = told(&left, "state");
        (sum(&said, "holds") > 0).then_some(said)
    });
    signal(&left, "-STOP");
    // The other has it when the lease is over, and writes.
    writes(&right, 5);
    signal(&left, "-CONT");
    told(&left, "go");
    let after = wait("a write that is refused", || {
        let said = told(&left, "state");
        (sum(&said, "lost") > sum(&before, "lost")).then_some(said)
    });
    println!("before {before:?}, after {after:?}");
    // And it goes on with the other's value.
    writes(&left, 2);
    none_is_lost(&stand_still(&[&left, &right]), 0);
}

/// The lease has an hour left: the other node writes because the coordinator's view has removed the
/// holder.
#[test]
fn a_lock_of_a_node_that_a_view_has_removed_is_void_at_once() {
    let Some(server) = server(&[]) else { return };
    let chain = chain("tally", "lease = \"1h\"", &server.uri());
    // A node that joins later gets new flows.
    let life = "life = { packets = { fixed = 20.0 } }";
    let mut site = Site::of("locks-view", 500.0, life, &chain);
    let _coordinator = site.joins();
    let (_front, mut left, right) = (site.start("front"), site.start("left"), site.start("right"));
    [&left, &right].iter().for_each(|node| drop(writes(node, 5)));
    none_is_lost(&stand_still(&[&left, &right]), 0);
    let puts = has_it(&left, &right);
    left.kill();
    writes(&right, 5);
    none_is_lost(&stand_still(&[&right]), puts);
}
