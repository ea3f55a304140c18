//! Objects that functions share over several processes, while these join, leave and are killed.
//!
//! The function is the guide's: an inside host may open flows to twenty ports outside, over all
//! runtimes. The packets that left are in a capture. It shows for each host which ports it has
//! reached: never more than twenty, which a lost or doubled object would let through, and in the
//! end exactly as many.
//!
//! The function is in no tool that is built for tests, so this program is the tool ([`tool`]).

#[path = "../../../../examples/functions/scan_limit.rs"]
mod scan_limit;
mod tallied;
#[path = "../sharing/tally.rs"]
mod tally;

use super::joined::{ALONE, Coordinator, flows, is_listed, passes, runs};
use super::more::wait_for_word;
use super::rig::{Folder, Member, PATIENCE};
use super::steady;
use super::wide::ask;
use scan_limit::ScanLimit;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use tally::Tally;

const TARGETS_MAX: usize = 20;
/// The words of a tool, in the environment of this program, a line each.
const WORDS: &str = "FLOWKEEP_MEMBERS_TOOL";
const NODES: [&str; 3] = ["left", "right", "third"];

/// Is the tool, where words are given; no test otherwise.
#[test]
fn tool() {
    let Ok(words) = std::env::var(WORDS) else {
        return;
    };
    let words = ["flowkeep"].into_iter().chain(words.lines()).map(Into::into);
    let ended = flowkeep::main_with(flowkeep::registry![ScanLimit, Tally], words);
    std::process::exit(i32::from(ended != ExitCode::SUCCESS));
}

struct Site {
    folder: Folder,
    config: PathBuf,
    coordinator: Coordinator,
}

impl Site {
    fn new(name: &str, has_hosts: bool) -> Site {
        Site::of(name, has_hosts, "scan_limit")
    }

    fn of(name: &str, has_hosts: bool, function: &str) -> Site {
        let folder = Folder::new(name);
        let hosts = [1, 2, 3, 4].map(|number| match has_hosts {
            true => folder.host(number),
            false => "here".to_owned(),
        });
        let members = [
            ("front", "switches", hosts[0].as_str()),
            ("left", "runtimes", hosts[1].as_str()),
            ("right", "runtimes", hosts[2].as_str()),
            ("third", "runtimes", hosts[3].as_str()),
        ];
        // Some fifty flows of each host, to more targets than it may reach.
        let profile = steady(400, 2000, 1 << 40)
            .replace("10.0.0.0/24", "10.0.0.0/29")
            .replace("198.51.100.0/28", "198.51.100.0/24");
        let capture = folder.0.join("out.pcap").display().to_string();
        let text = folder.members(&members)
            + &folder.generated(&profile).replace("/dev/null", &capture)
            + &format!("[[chain]]\nname = \"all\"\nfunctions = [\"{function}\"]\n");
        let config = folder.write("cluster.toml", &text);
        let coordinator = Coordinator::init(&folder, ALONE);
        Site {
            folder,
            config,
            coordinator,
        }
    }

    /// Starts a member; `more` are words on a coordinator, if it has one.
    fn start_with(&self, command: &str, name: &str, more: &[&str]) -> Member {
        let config = self.config.display().to_string();
        let words = [&[command, &config, "--member", name, "--json"][..], more].concat();
        let tool = Command::new(std::env::current_exe().expect("this program"));
        Member::start_by(&self.folder, tool, name, |tool| {
            tool.args(["--exact", "shared::tool", "--nocapture", "--test-threads=2"]);
            tool.env(WORDS, words.join("\n"));
        })
    }

    fn start(&self, command: &str, name: &str) -> Member {
        let token = self.coordinator.token(name);
        let more = ["--join", &self.coordinator.address, "--token", &token];
        self.start_with(command, name, &more)
    }

    #[track_caller]
    fn wait_until_runs(&self, name: &str) {
        let what = format!("{name} is to run");
        self.coordinator
            .wait_until(&what, |view| runs(view, name).is_some());
    }

    #[track_caller]
    fn wait_until_gone(&self, name: &str) {
        let what = format!("{name} is to be no member");
        self.coordinator.wait_until(&what, |view| !is_listed(view, name));
    }

    /// By host inside, the addresses and ports outside to which packets have left.
    fn reached(&self) -> BTreeMap<[u8; 4], BTreeSet<[u8; 6]>> {
        let capture = std::fs::read(self.folder.0.join("out.pcap")).expect("there is a capture");
        let mut reached: BTreeMap<[u8; 4], BTreeSet<[u8; 6]>> = BTreeMap::new();
        let mut rest = capture.get(24..).unwrap_or_default();
        while let Some((head, behind)) = rest.split_first_chunk::<16>() {
            let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
            // The last one may be on its way to the file.
            let Some((frame, behind)) = behind.split_at_checked(length) else {
                break;
            };
            rest = behind;
            // Ethernet, IPv4 without options, UDP.
            let source: [u8; 4] = frame[26..30].try_into().expect("four bytes");
            let mut target = [0; 6];
            target[..4].copy_from_slice(&frame[30..34]);
            target[4..].copy_from_slice(&frame[36..38]);
            reached.entry(source).or_default().insert(target);
        }
        reached
    }

    /// No host has reached more than it may.
    #[track_caller]
    fn look_at_limits(&self, when: &str) {
        for (host, targets) in self.reached() {
            assert!(
                targets.len() <= TARGETS_MAX,
                "{when}, {host:?} has reached {} targets",
                targets.len()
            );
        }
    }

    /// Each host reaches exactly as many as it may.
    #[track_caller]
    fn wait_for_limits(&self, when: &str) {
        let began = Instant::now();
        loop {
            self.look_at_limits(when);
            let reached = self.reached();
            let counts: Vec<usize> = reached.values().map(BTreeSet::len).collect();
            if counts.len() >= 6 && counts.iter().all(|count| *count == TARGETS_MAX) {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{when}, hosts have reached {counts:?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn shares_through_all(name: &str, has_hosts: bool) {
    let mut site = Site::new(name, has_hosts);
    let front = site.start("switch", "front");
    let left = site.start("node", "left");
    let right = site.start("node", "right");
    ["front", "left", "right"]
        .iter()
        .for_each(|name| site.wait_until_runs(name));
    site.wait_for_limits("with two nodes");
    assert!(flows(&left.status()) > 0 && flows(&right.status()) > 0);
    // An object is where its key was called for first, which may be one node for all; its copy is
    // at the other, and so is a part of the calls.
    let all = [&left, &right].map(|node| {
        let status = node.status();
        let [hosts] = &status.objects[..] else {
            panic!("one kind at one runtime: {:?}", status.objects);
        };
        assert_eq!(
            (hosts.function.as_str(), hosts.kind.as_str()),
            ("scan_limit", "hosts")
        );
        assert!(hosts.calls["update"] > 0 && hosts.sent_bytes > 0, "{hosts:?}");
        assert!(hosts.copied > 0 || hosts.objects == 0, "{hosts:?}");
        assert_eq!(hosts.bytes, 168 * (hosts.objects + hosts.copies));
        [hosts.objects, hosts.copies, hosts.remote]
    });
    let sum = |what: usize| all.iter().map(|node| node[what]).sum::<u64>();
    assert!(sum(0) >= 6 && sum(1) >= 6 && sum(2) > 0, "{all:?}");
    // The objects of both are one list.
    let done = ask(
        &site.coordinator,
        "operate",
        &["function", "scan_limit", "hosts", "--json"],
    );
    let listed = done.json();
    let ports = listed["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["ports"].as_u64());
    let ports: Vec<_> = ports.collect();
    assert!(
        ports.len() >= 6 && ports.iter().all(|ports| *ports == Some(TARGETS_MAX as u64)),
        "{listed}"
    );
    // A node joins under traffic, and gets flows whose hosts have reached all they may.
    let third = site.start("node", "third");
    site.wait_until_runs("third");
    assert!(left.wait_until_moved(2) > 0);
    passes(&front, 1000);
    site.look_at_limits("with three nodes");
    // The coordinator dies in the midst of its work on the failure of a node, and goes on from its
    // log.
    let mut right = right;
    right.kill();
    std::thread::sleep(Duration::from_millis(1600));
    site.coordinator.kill();
    wait_for_word(&site.folder, "left", "no coordinator is heard");
    passes(&front, 500);
    site.coordinator.begin_again();
    site.wait_until_gone("right");
    passes(&front, 2000);
    site.wait_for_limits("after a node was killed");
    // Another incarnation of it joins.
    let right = site.start("node", "right");
    site.wait_until_runs("right");
    assert!(third.wait_until_moved(1) > 0);
    passes(&front, 1000);
    site.look_at_limits("with another incarnation of the node");
    // A node leaves of its own will, with objects that are there alone or with a copy.
    left.stop(&site.folder);
    site.wait_until_gone("left");
    passes(&front, 2000);
    site.wait_for_limits("after one has left");
    let dropped = front.stop(&site.folder).packets.dropped;
    assert!(!dropped.contains_key("routes_full"), "{dropped:?}");
    site.wait_for_limits("in the end");
    for node in [right, third] {
        node.stop(&site.folder);
    }
}

#[test]
fn functions_share_objects_over_processes_that_come_and_go() {
    shares_through_all("shared", false);
}

#[test]
fn so_do_those_of_several_hosts() {
    shares_through_all("shared-far", true);
}

/// Without a coordinator no member knows which runtimes have failed: a node says so, and ends.
#[test]
fn without_a_coordinator_shared_objects_are_refused() {
    let site = Site::new("shared-alone", false);
    for name in NODES {
        let mut node = site.start_with("node", name, &[]);
        let began = Instant::now();
        while node.process.try_wait().expect("it runs or has ended").is_none() {
            assert!(began.elapsed() < PATIENCE, "{name} does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = site.folder.read(&format!("{name}.err"));
        let wanted = "function `scan_limit`";
        assert!(said.contains(wanted) && said.contains("--join"), "{said}");
    }
}
