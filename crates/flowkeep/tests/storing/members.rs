//! Flows in a store, and a cluster of several processes: a switch and two nodes, killed with
//! `kill -9` together or one alone.

use super::rig::{Folder, Member};
use super::storing::{asked, output, server, wait};
use super::{FLOWS, mapping};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const NODES: [&str; 2] = ["left", "right"];

/// A gateway of three processes whose flows are in a store.
struct Site {
    folder: Folder,
    config: PathBuf,
}

impl Site {
    fn new(name: &str, uri: &str, replication: &str) -> Self {
        let folder = Folder::new(name);
        let profile = format!(
            "seed = 1\nflows = {FLOWS}\nrate = {{ total = 2000.0 }}\npace = \"clock\"\nsources = [\"10.0.0.0/27\"]\n\
             source_ports = [1024, 5000]\ndestinations = [\"192.0.2.1/32\"]\ndestination_ports = [53]\n\
             [[classes]]\nshare = 1.0\ntcp = 0.0\n"
        );
        let text = folder.members(&[
            ("front", "switches", "here"),
            ("left", "runtimes", "here"),
            ("right", "runtimes", "here"),
        ]) + &folder.generated(&profile)
            + "[[chain]]\nname = \"all\"\nfunctions = [\"firewall\", \"nat\"]\nreplication = \"store\"\n\
               [function.nat]\npool = [\"203.0.113.0/28\"]\n\
               [[function.firewall.rules]]\nname = \"out\"\naction = \"allow\"\n"
            + &format!("[store]\nuri = \"{uri}\"\ninterval = \"10ms\"\n[replication]\n{replication}\n");
        let config = folder.write("cluster.toml", &text);
        Site { folder, config }
    }

    fn start(&self, name: &str) -> Member {
        let command = if name == "front" { "switch" } else { "node" };
        Member::start(&self.folder, &self.config, command, name)
    }

    /// By inside endpoint, the external one, of a node's flows.
    fn mappings(&self, node: &str) -> BTreeMap<String, String> {
        let socket = self.folder.0.join(format!("{node}.sock")).display().to_string();
        let listed = wait("flows", || asked(&socket, &["flow", "list", "--limit", "100000"]));
        let flows = listed["flows"].as_array().unwrap_or_else(|| panic!("{listed}"));
        flows.iter().map(mapping).collect()
    }

    /// All flows, each at one node, each with an endpoint of its own.
    fn all(&self) -> BTreeMap<String, String> {
        let of = NODES.map(|node| self.mappings(node));
        let all: BTreeMap<_, _> = of
            .iter()
            .flatten()
            .map(|(inside, outside)| (inside.clone(), outside.clone()))
            .collect();
        let outside: BTreeSet<&String> = of.iter().flat_map(BTreeMap::values).collect();
        let count = of.iter().map(BTreeMap::len).sum::<usize>();
        assert_eq!(
            (count, all.len(), outside.len()),
            (FLOWS, FLOWS, FLOWS),
            "each flow once"
        );
        all
    }
}

fn flows(node: &Member) -> u64 {
    node.status().runtimes[0].flows
}

fn opened(node: &Member) -> u64 {
    node.status().runtimes[0].opened
}

/// All flows are there, and have been for longer than the interval.
fn wait_for_flows(nodes: &[&Member]) {
    wait("all flows", || {
        let count: u64 = nodes.iter().map(|node| flows(node)).sum();
        (count >= FLOWS as u64).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
fn all_processes_are_killed_and_their_flows_go_on() {
    let Some(server) = server(&[]) else { return };
    let site = Site::new("store-all", &server.uri(), "");
    let mut members: Vec<Member> = ["front", "left", "right"].map(|name| site.start(name)).into();
    wait_for_flows(&[&members[1], &members[2]]);
    let before = site.all();
    for order in [["left", "right", "front"], ["front", "right", "left"]] {
        members.iter_mut().for_each(Member::kill);
        let killed = Instant::now();
        members = order.map(|name| site.start(name)).into();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let enough = |packets: u64| packets > 10 * FLOWS as u64;
        members[0].wait_until("packets", |status| enough(status.packets.r#in));
        println!(
            "{order:?}: {:.0} ms from kill -9 of all until 10 packets of each flow had passed",
            killed.elapsed().as_secs_f64() * 1e3
        );
        assert_eq!(
            (opened(&members[1]), opened(&members[2])),
            (0, 0),
            "no flow is opened again"
        );
        assert_eq!(site.all(), before, "{order:?}");
    }
}

#[test]
fn one_node_is_killed_and_comes_back_with_its_flows() {
    let Some(server) = server(&[]) else { return };
    let site = Site::new("store-one", &server.uri(), "recovery_max = \"60s\"");
    let front = site.start("front");
    let (mut left, right) = (site.start("left"), site.start("right"));
    wait_for_flows(&[&left, &right]);
    let before = site.all();
    let (at_left, at_right) = (site.mappings("left"), opened(&right));
    assert!(!at_left.is_empty(), "some are there");
    for _ in 0..2 {
        left.kill();
        let killed = Instant::now();
        // Packets for it wait meanwhile.
        front.wait_until("packets that wait", |status| status.packets.held > 0);
        left = site.start("left");
        let count = front.status().packets.out;
        front.wait_until("packets", |status| status.packets.out > count + 5 * FLOWS as u64);
        left.wait_until("packets", |status| {
            status.runtimes[0].received > at_left.len() as u64
        });
        println!(
            "{:.0} ms from kill -9 of one until packets of its flows had passed",
            killed.elapsed().as_secs_f64() * 1e3
        );
        assert_eq!(site.mappings("left"), at_left);
        assert_eq!(
            (opened(&left), opened(&right)),
            (0, at_right),
            "no flow is opened again"
        );
        assert_eq!(site.all(), before);
    }
}

#[test]
fn a_node_that_stays_away_is_waited_for_a_time() {
    let Some(server) = server(&[]) else { return };
    let site = Site::new("store-away", &server.uri(), "return_max = \"6s\"");
    let mut members: Vec<Member> = ["front", "left", "right"].map(|name| site.start(name)).into();
    wait_for_flows(&[&members[1], &members[2]]);
    let (before, kept) = (site.mappings("left"), site.mappings("right"));
    members.iter_mut().for_each(Member::kill);
    let began = Instant::now();
    let (front, right) = (site.start("front"), site.start("right"));
    wait_for_flows(&[&right]);
    assert!(began.elapsed() > Duration::from_secs(6), "{:?}", began.elapsed());
    println!("{:?} until a switch went on without a node", began.elapsed());
    // Flows of the other have begun here.
    assert_eq!(opened(&right), before.len() as u64);
    let here = site.mappings("right");
    assert!(kept.iter().all(|(inside, outside)| here[inside] == *outside));
    // `left` comes late, and learns whose its flows are.
    let left = site.start("left");
    left.wait_for_all();
    wait("each flow once", || {
        (flows(&left) + flows(&right) == FLOWS as u64).then_some(())
    });
    let count = front.status().packets.out;
    front.wait_until("packets", |status| status.packets.out > count + 2 * FLOWS as u64);
    assert_eq!(site.mappings("right"), here);
    site.all();
}

#[test]
fn a_store_that_members_cannot_have_is_refused() {
    let cases = [
        ("redb:flows.redb", "members `left` and `right` of one host"),
        ("memory:", "no member comes back with its flows"),
    ];
    for (uri, problem) in cases {
        let site = Site::new("store-refused", uri, "");
        let config = site.config.display().to_string();
        let (done, said, error) = output(&["chain", "check", &config]);
        let all = format!("{said}{error}");
        assert!(
            !done && all.contains("chain[0].replication") && all.contains(problem),
            "{all}"
        );
        assert!(all.contains("redis://HOST"), "{all}");
    }
    let site = Site::new("store-taken", "redis://127.0.0.1", "");
    let (done, said, error) = output(&["chain", "check", &site.config.display().to_string()]);
    assert!(done, "{said}{error}");
}
