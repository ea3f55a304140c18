//! Runtimes are killed while real clients talk through the chain: no connection fails.
//!
//! ```text
//!   switch ─┬─ left: runtime 0 ─┐ copies of each other's flows (`[replication] policy = "commit"`)
//!           └─ right: runtime 1 ┘
//!   clients: 500 downloads, each compared byte by byte; iperf3, TCP, up and down; SSH, words back and forth; SIP calls with RTP; names, 300 a second;
//!            two probes of 1000 numbered datagrams a second
//!   between hosts also over a network that loses, delays and reorders ([`crate::impair`])
//!     └ meanwhile, each once all flows have copies: over memory and over the bad network `runtime kill` of right, kill -9 of left;
//!       between hosts `runtime kill` of right, left stands still for 4 s, kill -9 of right
//! ```
//!
//! A node that stands still has failed for the switch, which takes nothing more of it: when it goes
//! on, it begins again, and its former flows stay elsewhere.
//!
//! No SIP over the bad network: sipp says the last answer of a call once, and a failure may lose
//! just that.
//!
//! Every flow is at one of the two, so the first failure concerns about half of the clients, and
//! each later one all: the probes are in the list of the node that fails, and see a gap. Packets in
//! the hands of a killed process are lost: TCP sends them again, probes see one gap for each
//! failure, whose length is said, and bounded by how the node failed ([`gap_max`]). No packet comes
//! twice or in another order. Once all flows have copies again, both nodes are asked for theirs: no
//! flow is at two, and no external endpoint stands for two inside ones.
//!
//! *Pauses of the machine*: a gap may be longer by the machine's longest pause of the run. Where
//! that is more than 50 ms ([`probe::EXCUSE_MAX`]), and the gap needs it, the run is tried again;
//! it counts where no attempt does without ([`machine::unless_excused`]).

use super::suspicion::Suspicions;
use super::{Contents, PATIENCE, probe, serve};
use crate::impair::JITTER;
use crate::machine;
use crate::site::{Links, Names, SERVER, Site, site};
use crate::ssh;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(super) const CONFIG: &str = r#"
[replication]
policy = "commit"

[[function.load_balancer.services]]
name = "ssh"
addresses = ["192.0.2.80"]
ports = 22
protocol = "tcp"
backends = [{ name = "ssh", endpoint = "203.0.113.11:22" }]
"#;

/// By their places among the processes: the nodes, with their runtimes.
pub(super) const NODES: [(usize, u64); 2] = [(1, 0), (2, 1)];
/// Inside hosts of the probes, and the server's ports.
const PROBES: [(&str, u16); 2] = [("10.0.1.6", 7006), ("10.0.1.7", 7007)];
/// Bytes per second of a download: it lasts longer than it takes until the last failure.
const RATE: &str = "2500";
/// How long a node stands still.
const STOPPED: Duration = Duration::from_secs(4);
/// A machine that stands still for so long may make a runtime look failed.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// Milliseconds: the default of `silence`.
const SILENCE: u64 = 200;
/// Datagrams, one a millisecond: fewer that are missing are no failure's gap, but those for which a
/// socket or a link had no room.
pub(super) const GAP: u64 = 30;

pub(super) fn of_runtime(site: &Site, (member, runtime): (usize, u64)) -> Value {
    let status = site.status_of(member);
    let all = status["runtimes"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|of| of["runtime"] == runtime);
    found.unwrap_or_default()
}

/// Waits until each node has copies of all flows of the other.
pub(super) fn protected(site: &Site) -> Duration {
    let began = Instant::now();
    for (node, other) in [(NODES[0], NODES[1]), (NODES[1], NODES[0])] {
        while of_runtime(site, node)["protected_by"] != other.1 {
            assert!(
                began.elapsed() < PATIENCE,
                "never protected: {}",
                of_runtime(site, node)
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    began.elapsed()
}

/// How a node fails.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum How {
    /// By the tool.
    Command,
    Kill,
    /// The node stands still, and goes on.
    Stop,
}

/// Of a failure: when, and how.
type Failure = (Instant, How);

/// For how many milliseconds a failure's flows may stand still. A killed node is missed at once: by
/// both ends of a link in memory, and between hosts since its port is closed. A node that stands
/// still is missed after `silence`. Over a bad network the word that the port is closed may be
/// lost, so it is `silence` there, too, looked for each quarter of it; then a datagram has two ways
/// to go again, each of which takes a late frame twice the jitter.
fn gap_max(links: Links, how: How) -> u64 {
    match (links, how) {
        (Links::Impaired, _) => SILENCE + SILENCE / 4 + 4 * JITTER.as_millis() as u64,
        (_, How::Stop) => SILENCE + probe::GAP_MAX,
        (_, How::Command | How::Kill) => probe::GAP_MAX,
    }
}

/// For how many milliseconds they stand still at least. A link between hosts is given up four looks
/// behind the last answer, 5 ms apart, or a quarter of `silence`. Over memory it is a few, and a
/// bad network brings datagrams late that had left before.
fn gap_min(links: Links, how: How) -> u64 {
    match (links, how) {
        (_, How::Stop) => SILENCE / 2,
        (Links::Geneve | Links::Ethernet, _) => 10,
        (Links::Memory | Links::Impaired, _) => 1,
    }
}

/// A node's flows.
fn listed(site: &Site, node: usize) -> Vec<Value> {
    let list = site.asked_of(node, "flow list --limit 10000 --json");
    let list: Value = serde_json::from_str(&list.unwrap_or_default()).unwrap_or_default();
    list["flows"].as_array().cloned().unwrap_or_default()
}

/// The words that tell a flow from all others.
pub(super) fn key(flow: &Value) -> String {
    let words = ["protocol", "source", "destination", "vlan"].map(|name| flow[name].to_string());
    words.join(" ")
}

/// The external endpoint of a flow that NAT translates, and the inside one that it stands for.
fn mapping(flow: &Value) -> Option<(String, String)> {
    let is_external = |end: &Value| {
        let host = end.as_str()?.rsplit_once(':')?.0.strip_prefix("203.0.113.")?;
        (64..72).contains(&host.parse::<u8>().ok()?).then_some(())
    };
    let translated = &flow["translated"];
    let ends = match (
        is_external(&translated["source"]),
        is_external(&flow["destination"]),
    ) {
        (Some(()), _) => [&translated["source"], &flow["source"]],
        (_, Some(())) => [&flow["destination"], &translated["destination"]],
        _ => return None,
    };
    let [external, inside] = ends.map(|end| format!("{} {end}", flow["protocol"]));
    Some((external, inside))
}

/// No flow is at two nodes, and no external endpoint stands for two inside ones.
fn owned_once(site: &Site) {
    let (mut keys, mut insides) = (BTreeSet::new(), BTreeMap::new());
    let mut wrong = Vec::new();
    for (node, _) in NODES {
        for flow in listed(site, node) {
            if !keys.insert(key(&flow)) {
                wrong.push(format!("at two nodes: {flow}"));
            }
            if let Some((external, inside)) = mapping(&flow) {
                let known = insides.entry(external.clone()).or_insert_with(|| inside.clone());
                if *known != inside {
                    wrong.push(format!("{external} stands for {known} and for {inside}"));
                }
            }
        }
    }
    let (flows, external) = (keys.len(), insides.len());
    println!("{flows} flows, {external} external endpoints, each of one");
    let good = wrong.is_empty() && flows > 20 && external > 20;
    let words = format!("{flows} flows, {external} external endpoints: {wrong:#?}");
    site.log.expect("one owner, one inside endpoint", good, words);
}

/// A node fails; its flows go on at the heir.
pub(super) fn go_on_elsewhere(site: &Site, how: How, failed: (usize, u64), heir: (usize, u64)) {
    let copies = of_runtime(site, heir)["copies"].as_u64().unwrap_or(0);
    let before = of_runtime(site, heir)["recovered_flows"].as_u64().unwrap_or(0);
    let began = Instant::now();
    match how {
        How::Command => {
            let said = site.asked_of(failed.0, &format!("runtime kill {} --unprotected", failed.1));
            site.log.expect("runtime kill", said.is_ok(), format!("{said:?}"));
        }
        How::Kill => site.signal(failed.0, "KILL"),
        How::Stop => site.signal(failed.0, "STOP"),
    }
    let recovered = || of_runtime(site, heir)["recovered_flows"].as_u64().unwrap_or(0) - before;
    while recovered() == 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(match how {
        How::Stop => STOPPED.saturating_sub(began.elapsed()),
        _ => Duration::from_secs(2),
    });
    let after = of_runtime(site, heir);
    println!(
        "runtime {} fails ({how:?}): {copies} copies a moment before, {} flows went on: {after}",
        failed.1,
        recovered()
    );
    let lost = after["unrecovered_flows"].as_u64().unwrap_or(0);
    site.log
        .expect("flows go on", recovered() > 0 && lost == 0, after.to_string());
}

/// A node fails, and is there again once the other has gone on with its flows.
fn fail(site: &Site, how: How, failed: (usize, u64), heir: (usize, u64)) {
    go_on_elsewhere(site, how, failed, heir);
    match how {
        How::Stop => site.signal(failed.0, "CONT"),
        _ => site.revive(failed.0),
    }
    println!("protected again after {:?}", protected(site));
    owned_once(site);
}

/// Whether no gap needed a long pause of the machine.
fn failing(links: Links, failures: &[How]) -> bool {
    let programs: Vec<_> = [super::PROGRAMS, ssh::PROGRAMS, &[("sipp", "sip-tester")]].concat();
    let Some(mut site) = site("afpacket", &programs) else {
        return true;
    };
    let _directory = ssh::PrivilegeSeparation::new();
    let contents: Contents = serve(&mut site);
    // A client that has the rest of its file in its kernel already would not notice a failure.
    let small = "echo 4096 16384 32768 >/proc/sys/net/ipv4/tcp_rmem\n";
    site.network.at_client(&site.script("small", small));
    site.start_members(links, CONFIG);
    println!("protected after {:?}", protected(&site));
    let (on, mut suspicions) = (AtomicBool::new(true), Suspicions::new());
    let (site_of, on_of) = (&site, &on);
    let (under_way, unexcused) = (AtomicUsize::new(0), AtomicBool::new(true));
    let (under_way, unexcused_of) = (&under_way, &unexcused);
    let times: Mutex<Vec<Failure>> = Mutex::default();
    let (times, still) = (&times, failures.iter().map(|how| gap_max(links, *how)).sum());
    std::thread::scope(|scope| {
        let _on = super::On(on_of);
        for host in super::DOWNLOADERS {
            let content = &contents.file;
            under_way.fetch_add(1, Ordering::Relaxed);
            scope.spawn(move || {
                super::downloads(site_of, host, content, RATE);
                under_way.fetch_sub(1, Ordering::Relaxed);
            });
        }
        opened(site_of);
        for (host, port) in PROBES {
            scope.spawn(move || {
                let is_unexcused = probed(site_of, host, port, on_of, (links, times));
                unexcused_of.fetch_and(is_unexcused, Ordering::Relaxed);
            });
        }
        for (host, port, how) in [(3, 5201, "--bitrate 5M"), (4, 5202, "--bitrate 5M --reverse")] {
            scope.spawn(move || super::stream(site_of, host, port, how, &super::Missing::default()));
        }
        scope.spawn(move || super::words(site_of));
        if links != Links::Impaired {
            scope.spawn(move || super::calls(site_of, on_of, &super::Missing::default()));
        }
        scope.spawn(move || named(site_of, still));
        std::thread::sleep(Duration::from_secs(1));
        for (index, how) in failures.iter().enumerate() {
            std::thread::sleep(Duration::from_secs(1));
            // The node that has all flows by then, since the other has failed before.
            let failed = NODES[usize::from(index % 2 == 0)];
            let heir = NODES[usize::from(index % 2 != 0)];
            suspicions.judge(site_of, "before a failure");
            met(site_of, index, failed.0);
            let hosts = under_way.load(Ordering::Relaxed);
            let all = hosts == super::DOWNLOADERS.len();
            site_of.log.expect("downloads are under way", all, hosts);
            times.lock().unwrap().push((Instant::now(), *how));
            fail(site_of, *how, failed, heir);
            suspicions.fail(failed.0, heir.0, *how != How::Stop);
        }
    });
    suspicions.judge(&site, "at the end");
    impaired(&site);
    site.end_after_failures();
    unexcused.into_inner()
}

/// From the second failure on, the probes are at the node that fails.
fn met(site: &Site, index: usize, failed: usize) {
    let flows = listed(site, failed);
    let is_there = |(host, port): (&str, u16)| {
        flows.iter().any(|flow| {
            let is_end = |of: &str, end: &str| flow[of].as_str().is_some_and(|is| is.starts_with(end));
            is_end("source", &format!("{host}:")) && is_end("destination", &format!("{SERVER}:{port}"))
        })
    };
    let count = PROBES.into_iter().filter(|probe| is_there(*probe)).count();
    println!("{count} probes are at the node that fails");
    let good = index == 0 || count == PROBES.len();
    site.log.expect("probes meet the failure", good, count);
}

/// Where the network is to be a bad one, it was.
fn impaired(site: &Site) {
    for counts in site.impaired().into_iter().flatten() {
        println!("bad cable: {counts:?}");
        let all = [counts.lost, counts.reordered, counts.delayed];
        let least = counts.passed / 200;
        let good = counts.passed > 10_000 && all.iter().all(|count| *count > least);
        site.log.expect("network is bad", good, format!("{counts:?}"));
    }
}

/// Names: without an answer are those asked while flows stood still, for so many milliseconds in
/// all.
pub(super) fn named(site: &Site, still: u64) {
    let names = Names::ask(&site.network, SERVER, Some("10.0.1.8"), super::SECONDS);
    let good = names.are_good(super::SECONDS) && names.lost <= 300 * still / 1000;
    site.log.expect("names", good, &names.said);
}

/// Waits until all connections are open: while that many begin at once, links have no room for some
/// packets, and more of them on a bad network. Packets lost that way are not this test's concern.
pub(super) fn opened(site: &Site) {
    let began = Instant::now();
    let (mut lost, mut since) = (site.dropped("runtime_busy"), began);
    while since.elapsed() < Duration::from_secs(1) && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        let now = site.dropped("runtime_busy");
        if now != lost {
            (lost, since) = (now, Instant::now());
        }
    }
    println!(
        "connections were open after {:?}; no room for {lost} packets",
        since - began
    );
}

/// Datagrams come once each and in order. They are missing at most once for each failure, and for
/// no longer than this; from the second failure on they are. Answers whether that needed no long
/// pause of the machine.
fn probed(site: &Site, host: &str, port: u16, on: &AtomicBool, of: (Links, &Mutex<Vec<Failure>>)) -> bool {
    let mut seen = probe::probe(&site.network.client, &site.network.server, host, port, on);
    let told = seen.told();
    println!("{told}; {} missing", seen.missing());
    let (links, failures) = (of.0, of.1.lock().unwrap().clone());
    let bound = failures.iter().map(|(_, how)| gap_max(links, *how)).max();
    let mut gaps = Vec::new();
    let mut met = true;
    for (index, (at, how)) in failures.iter().enumerate() {
        let (gap, most) = (seen.gap_behind(*at), gap_max(links, *how));
        println!("{host}, {links:?}, {how:?}: {gap} ms stood still, of at most {most}");
        met &= index == 0 || gap >= gap_min(links, *how);
        gaps.push((gap, most));
    }
    site.log
        .expect("each later failure is a gap", met, format!("{gaps:?}"));
    let [good, is_unexcused] = seen.judged(|seen| {
        let paused = seen.paused.as_millis() as u64;
        seen.sent > 1000
            && seen.crooked() == 0
            && !seen.stood_still(bound.unwrap_or(GAP))
            && seen.times_missing(GAP) <= failures.len()
            && gaps.iter().all(|(gap, most)| *gap <= most + paused)
    });
    site.log.expect(&format!("probe from {host}"), good, told);
    is_unexcused
}

#[test]
fn runtimes_that_are_killed_over_shared_memory() {
    machine::unless_excused(PAUSE, || failing(Links::Memory, &[How::Command, How::Kill]));
}

#[test]
fn runtimes_that_are_killed_over_geneve() {
    machine::unless_excused(PAUSE, || {
        failing(Links::Geneve, &[How::Command, How::Stop, How::Kill])
    });
}

#[test]
fn runtimes_that_are_killed_over_an_impaired_network() {
    machine::unless_excused(PAUSE, || failing(Links::Impaired, &[How::Command, How::Kill]));
}
