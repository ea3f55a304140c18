//! Members of a coordinator on three hosts, whose clocks are a year apart, while real clients talk
//! through the chain.
//!
//! ```text
//!                one: switch front, node middle     two: node left      three: node right, or d
//!                 │ the coordinator                   │ a year later      │ two years later
//!   data      10.9.0.1 ═══════════════════════════ 10.9.0.2 ═══════════ 10.9.0.3
//!   control   10.8.0.1 ═══════════════════════════ 10.8.0.2 ═══════════ 10.8.0.3
//! ```
//!
//! Each network is a bridge. A *cut* takes a host's cable off a bridge: frames vanish in silence,
//! and no interface goes down.
//!
//! *Come and go*: a node that no file lists joins, and the flows are spread over both nodes. The
//! coordinator is killed while all flows move back and forth. Other clients begin. All members take
//! another configuration on, and the first node drains and leaves. Downloads and streams are under
//! way at the join, and from the change to behind the leave. No client notices: of datagrams as
//! many may be missing as were counted as lost for want of room.
//!
//! *Cut off*: with copies of all flows, `right` is cut off from everything for four seconds, then
//! from the coordinator alone, then it stands still. Each time a view removes it while that lasts,
//! its flows go on at `left`, and it comes again as another incarnation. Half of the clients are
//! placed at each of the two:
//!
//! | client | expected |
//! |---|---|
//! | connections | no connection fails, each byte comes |
//! | probe at `left`, whose copies are at `middle` | no more is missing than interfaces have counted |
//! | probe at `right` | one gap, for no longer than the removal may take |
//! | both probes | nothing comes twice or in another order |
//!
//! *One owner*: from the removal to the new incarnation, the switch sends no more packets than the
//! nodes in view have passed, and those between them ([`BETWEEN`]). At the end each flow is in one
//! node's list.
//!
//! At the usual times of the coordinator a member is killed in [`killed`].

mod killed;

use super::failing::{CONFIG as COPIES, GAP, PAUSE, key, of_runtime};
use super::probe::{self, Seen};
use super::{CONFIG, Contents, Missing, On, RATE, SECONDS, downloads, serve, stream_for, words};
use crate::machine;
use crate::network::PATIENCE;
use crate::site::{Member, Site, site};
use crate::ssh;
use lab::Namespace;
use lab::process::Run;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

const FLOWKEEP: &str = env!("CARGO_BIN_EXE_flowkeep");
const COORDINATOR: &str = "10.8.0.1:4400";
/// Long enough for a machine that does other things too, and a removal ends well before a cut does.
const TIMES: &str = "--lease 600ms --suspicion 1200ms --settling 1s";
/// Milliseconds: a removal, which takes a suspicion and a lease, and the heir's time behind it.
const GONE: u64 = 3000;
/// Packets between nodes and switch. The nodes are asked before the switch at the begin and behind
/// it at the end, so only packets that are on their way for longer than an answer takes may be
/// more. The node that is cut off has so many in some 50 ms.
const BETWEEN: u64 = 100;
/// Seconds of the clients that are to see the end of a member, and the rate of their downloads,
/// which last as long.
const LONG: (u64, &str) = (20, "3k");
/// How long a node is cut off, or stands still.
const CUT: Duration = Duration::from_secs(4);
/// Seconds.
const YEAR: u64 = 365 * 24 * 3600;
/// By their places among the processes.
const FRONT: usize = 0;
const LEFT: (usize, u64) = (1, 0);
const MIDDLE: (usize, u64) = (2, 1);
const RIGHT: (usize, u64) = (3, 2);
/// Inside hosts whose flows are placed at each of two nodes, the probe's last.
const HALVES: [[u8; 3]; 2] = [[1, 3, 6], [2, 4, 7]];

/// A hundred downloads of a host each, and a stream each way.
type Talkers<'scope> = Vec<ScopedJoinHandle<'scope, ()>>;

struct Hosts {
    site: Site,
    contents: Contents,
    /// Hosts one, two and three.
    hosts: [Namespace; 3],
    between: Namespace,
    /// Certificates and the log.
    cluster: String,
    /// An operator's files on another host: its certificates, and nothing else.
    operator: String,
    file: String,
    _directory: ssh::PrivilegeSeparation,
}

/// The hosts and the coordinator with these times; members are these, and none runs yet.
fn hosts(members: &[(&str, &str, usize)], more: &str, times: &str) -> Option<Hosts> {
    let programs: Vec<_> = [super::PROGRAMS, ssh::PROGRAMS].concat();
    let mut site = site("afpacket", &programs)?;
    let directory = ssh::PrivilegeSeparation::new();
    let contents = serve(&mut site);
    site.network.gateway.ip("link delete link0").unwrap();
    let lab = site.network.lab();
    let three = lab.namespace("three").unwrap();
    let between = lab.namespace("between").unwrap();
    let hosts = [site.network.gateway.clone(), site.other.clone(), three];
    for (network, subnet) in [("data", "10.9.0"), ("ctl", "10.8.0")] {
        between.ip(&format!("link add {network} type bridge")).unwrap();
        between.ip(&format!("link set {network} up")).unwrap();
        for (number, host) in (1..).zip(&hosts) {
            let end = format!("{network}{number}");
            let lab = site.network.lab();
            lab.cable((host, network), (&between, &end)).unwrap();
            between.ip(&format!("link set {end} master {network}")).unwrap();
            host.address(network, &format!("{subnet}.{number}/24")).unwrap();
        }
    }
    site.face_each_other();
    let sections = members
        .iter()
        .map(|(name, kind, host)| format!("[[member]]\nname = \"{name}\"\n{kind} = 1\n{}", at_host(*host)));
    let file = site.write(&site.config_of_members(&sections.collect::<String>(), more));
    let cluster = site.network.folder.path("cluster");
    let one = &hosts[0];
    let init = format!("{FLOWKEEP} cluster init {cluster}");
    one.run(&init, Run::within(PATIENCE)).unwrap();
    let operator = site.network.folder.path("operator");
    fs::create_dir(&operator).unwrap();
    for name in [
        "ca.pem",
        "read.pem",
        "read.key",
        "operate.pem",
        "operate.key",
        "admin.pem",
        "admin.key",
    ] {
        fs::copy(format!("{cluster}/{name}"), format!("{operator}/{name}")).unwrap();
    }
    let start = format!("{FLOWKEEP} coordinator --data {cluster} --listen {COORDINATOR} {times}");
    site.network.servers.push(one.start(&start).unwrap());
    let hosts = Hosts {
        site,
        contents,
        hosts,
        between,
        cluster,
        operator,
        file,
        _directory: directory,
    };
    hosts.until("the coordinator answers", |_| true);
    Some(hosts)
}

/// The same with all members of a cluster that keeps copies; they run.
fn with_copies(times: &str) -> Option<Hosts> {
    let listed = [
        ("front", "switches", 1),
        ("left", "runtimes", 2),
        ("middle", "runtimes", 1),
        ("right", "runtimes", 3),
    ];
    let mut hosts = hosts(&listed, COPIES, times)?;
    for ((name, _, host), kind) in listed.into_iter().zip(["switch", "node", "node", "node"]) {
        hosts.start(kind, name, host, "");
    }
    hosts.until("all run", |view| {
        listed
            .iter()
            .all(|(name, _, _)| incarnation(view, name).is_some())
    });
    Some(hosts)
}

/// A host's lines in a configuration.
fn at_host(host: usize) -> String {
    format!("host = \"host{host}\"\naddress = \"10.9.0.{host}\"\n")
}

impl Hosts {
    fn start(&mut self, kind: &str, name: &str, host: usize, more: &str) {
        let member = self.launch(kind, name, host, more);
        let process = member.id();
        self.site.adopt(member);
        self.clock_is_ahead(process, host);
    }

    /// A process is in a time namespace of its own, and not its children alone; its clock is as
    /// many years ahead as its host's.
    fn clock_is_ahead(&self, process: u32, host: usize) {
        let space = |process: &str, name: &str| {
            let link = fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap();
            link.display().to_string()
        };
        let its = process.to_string();
        let spaces = [
            space("self", "time"),
            space(&its, "time"),
            space(&its, "time_for_children"),
        ];
        let offsets = fs::read_to_string(format!("/proc/{process}/timens_offsets")).unwrap();
        let mut lines = offsets.lines().map(str::split_whitespace);
        let seconds = lines.find_map(|mut words| {
            let is_it = words.next() == Some("monotonic");
            words.next().filter(|_| is_it)?.parse::<u64>().ok()
        });
        let is_apart = spaces[0] != spaces[1] && spaces[1] == spaces[2];
        let good = is_apart && seconds == Some(YEAR * (host as u64 - 1));
        self.site.log.note("clocks are years apart", good, || {
            format!("{spaces:?}: {offsets}")
        });
    }

    /// Starts a member on a host, whose clock is years ahead.
    fn launch(&self, kind: &str, name: &str, host: usize, more: &str) -> Member {
        let words = format!("{FLOWKEEP} cluster token {} --member {name}", self.cluster);
        let token = self.hosts[0].run(&words, Run::within(PATIENCE)).unwrap();
        let ahead = YEAR * (host as u64 - 1);
        let words = format!(
            "{kind} {} --member {name} --join {COORDINATOR} --token {} {more}",
            self.file,
            token.trim()
        );
        let clock = format!("unshare --time --monotonic {ahead} --boottime {ahead}");
        self.site.launch(&clock, &self.hosts[host - 1], &words, name)
    }

    /// The answer of a command over the whole cluster, on a host that has neither the coordinator
    /// nor the switch.
    fn asked(&self, right: &str, words: &str) -> Value {
        let own = &self.operator;
        let all =
            format!("{FLOWKEEP} {words} --json --cluster {COORDINATOR} --identity {own} --name {right}");
        let said = self.hosts[1].run(&all, Run::within(PATIENCE));
        let told = format!("{said:?}");
        let value = said.ok().and_then(|said| serde_json::from_str(&said).ok());
        let what = words.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let good = value.is_some();
        self.site.log.note(&what, good, || format!("{words}: {told}"));
        value.unwrap_or_default()
    }

    fn view(&self) -> Option<Value> {
        let cluster = &self.cluster;
        let words = format!("{FLOWKEEP} cluster status --at {COORDINATOR} --identity {cluster} --json");
        let said = self.hosts[0].run(&words, Run::within(PATIENCE)).ok()?;
        serde_json::from_str(&said).ok()
    }

    /// Waits until the view is as wanted.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let view = self.view();
            match view {
                Some(view) if is_so(&view) => return view,
                view => assert!(began.elapsed() < PATIENCE, "{what}, but {view:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Flows of these inside hosts go to a runtime.
    fn place(&self, hosts: &[u8], to: u64) {
        for host in hosts {
            let words = format!("flow migrate --address 10.0.1.{host}/32 --to {to}");
            let receipt = self.asked("operate", &words);
            self.receipt("placed", Ok(receipt.to_string()));
        }
    }

    /// Whether a host's cables are at the bridges of these networks.
    fn cables(&self, host: usize, networks: &[&str], is_joined: bool) {
        for network in networks {
            let to = match is_joined {
                true => format!("master {network}"),
                false => "nomaster".to_owned(),
            };
            let words = format!("link set {network}{host} {to}");
            self.between.ip(&words).unwrap();
        }
    }

    /// No flow is in two nodes' lists.
    fn each_flow_has_one_owner(&self) {
        let list = self.asked("read", "flow list --limit 10000");
        let flows = list["flows"].as_array().cloned().unwrap_or_default();
        let keys: BTreeSet<String> = flows.iter().map(key).collect();
        println!("{} flows are listed", flows.len());
        let good = !keys.is_empty() && keys.len() == flows.len();
        self.site.log.expect("each flow has one owner", good, list);
    }
}

/// The incarnation of a member that runs.
fn incarnation(view: &Value, member: &str) -> Option<u64> {
    let mut workers = view["workers"].as_array()?.iter();
    let worker = workers.find(|worker| worker["name"] == member && worker["standing"] == "running")?;
    worker["incarnation"].as_u64()
}

fn is_in(view: &Value, member: &str) -> bool {
    let workers = view["workers"].as_array().expect("a list");
    workers.iter().any(|worker| worker["name"] == member)
}

/// Two hundred downloads from two inside hosts, and a stream each way from two others, to the first
/// of these ports and the next: for so many seconds, at so many bytes a second.
fn talkers<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    hosts: &'env Hosts,
    (loading, streaming): ([u8; 2], [u8; 2]),
    port: u16,
    (seconds, rate): (u64, &'static str),
) -> Talkers<'scope> {
    let Hosts { site, contents, .. } = hosts;
    let loading = loading.map(|host| scope.spawn(move || downloads(site, host, &contents.file, rate)));
    // Connections that open at once are more than some machines have room for.
    std::thread::sleep(Duration::from_secs(1));
    let [up, down] = streaming;
    let streams = [
        (up, port, "--bitrate 5M"),
        (down, port + 1, "--bitrate 5M --reverse"),
    ];
    let streams = streams.map(|(host, port, how)| {
        scope.spawn(move || stream_for(seconds, site, host, port, how, &Missing::default()))
    });
    loading.into_iter().chain(streams).collect()
}

/// Downloads, streams and two probes, from inside hosts of both halves.
fn clients<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    hosts: &'env Hosts,
    ports: [u16; 2],
    on: &'env AtomicBool,
) -> ([ScopedJoinHandle<'scope, Seen>; 2], Talkers<'scope>) {
    let site = &hosts.site;
    let [[load_left, stream_left, _], [load_right, stream_right, _]] = HALVES;
    let of = ([load_left, load_right], [stream_left, stream_right]);
    let talkers = talkers(scope, hosts, of, 5201, (SECONDS, RATE));
    let probes = [0, 1].map(|half| {
        let ([_, _, host], port) = (HALVES[half], ports[half]);
        let (client, server) = (&site.network.client, &site.network.server);
        scope.spawn(move || probe::probe(client, server, &format!("10.0.1.{host}"), port, on))
    });
    (probes, talkers)
}

fn come_and_go() {
    let listed = [("front", "switches", 1), ("left", "runtimes", 2)];
    let Some(mut hosts) = hosts(&listed, CONFIG, TIMES) else {
        return;
    };
    hosts.start("switch", "front", 1, "");
    hosts.start("node", "left", 2, "");
    hosts.until("two run", |view| {
        incarnation(view, "front").is_some() && incarnation(view, "left").is_some()
    });
    let (on, before) = (AtomicBool::new(true), hosts.site.lost_at_interfaces());
    let mut missing = 0;
    let newcomer = std::thread::scope(|scope| {
        let ending = On(&on);
        let (probes, first) = clients(scope, &hosts, [7006, 7007], &on);
        scope.spawn(|| words(&hosts.site));
        let d = hosts.launch("node", "d", 3, "--runtimes 1 --host host3 --address 10.9.0.3");
        hosts.until("the newcomer runs", |view| incarnation(view, "d").is_some());
        hosts.are_talking(&first, "when a node has joined");
        hosts.clock_is_ahead(d.id(), 3);
        hosts.takes_its_share();
        hosts.without_coordinator();
        // The first may have ended by now; others than they talk from here on.
        let [[load_left, stream_left, _], [load_right, stream_right, _]] = HALVES;
        let of = ([stream_left, stream_right], [load_left, load_right]);
        let later = talkers(scope, &hosts, of, 5203, LONG);
        hosts.another_configuration();
        let receipt = hosts.asked("operate", "runtime drain 0");
        println!("drained: {receipt}");
        // Traffic goes on at the runtime that is drained, and all of it goes elsewhere.
        let count = |of: &str| receipt[of].as_u64();
        let good = count("flows_moved") > Some(20)
            && ["flows_failed", "flows_left"]
                .iter()
                .all(|of| count(of) == Some(0));
        hosts.site.log.expect("the member is drained", good, &receipt);
        hosts.site.stop(LEFT.0);
        let view = hosts.until("it has left", |view| !is_in(view, "left"));
        let good = incarnation(&view, "front").is_some() && incarnation(&view, "d").is_some();
        hosts.site.log.expect("the others are in view", good, view);
        hosts.are_talking(&later, "from a change to behind a leave");
        // Traffic goes on without it.
        std::thread::sleep(Duration::from_secs(1));
        drop(ending);
        for probe in probes {
            let mut seen = probe.join().unwrap();
            let told = seen.told();
            println!("{told}");
            let good = seen.sent > 1000 && seen.crooked() == 0 && !seen.stood_still(probe::GAP_MAX);
            hosts.site.log.expect("probe", good, told);
            missing += seen.missing();
        }
        d
    });
    hosts.site.adopt(newcomer);
    let lost = hosts.site.lost_at_interfaces() - before;
    println!("{missing} datagrams missing, {lost} counted as lost at ports and by hosts");
    let good = missing <= lost;
    let why = if good {
        String::new()
    } else {
        hosts.site.circumstances()
    };
    let told = format!("{missing} missing, {lost} counted\n{why}");
    hosts.site.log.expect("datagrams", good, told);
    hosts.site.end();
}

impl Hosts {
    /// Checks that no client of these has ended.
    fn are_talking(&self, talkers: &[ScopedJoinHandle<'_, ()>], when: &str) {
        let ended = talkers.iter().filter(|talker| talker.is_finished()).count();
        let told = format!("{ended} of {} had ended", talkers.len());
        let client = format!("downloads and streams {when}");
        self.site.log.expect(&client, ended == 0, told);
    }

    /// The newcomer, runtime 1, gets a quarter of the load or more: from one look at packets to the
    /// next.
    fn takes_its_share(&self) {
        let passed = || {
            let list = self.asked("read", "runtime list");
            let all = list["runtimes"].as_array().cloned().unwrap_or_default();
            let of = |runtime: u64| {
                let found = all.iter().find(|of| of["runtime"] == runtime);
                found.and_then(|of| of["passed"].as_u64()).unwrap_or(0)
            };
            [of(LEFT.1), of(1)]
        };
        let (began, mut before) = (Instant::now(), passed());
        loop {
            let receipt = self.asked("operate", "runtime rebalance");
            std::thread::sleep(Duration::from_millis(500));
            let now = passed();
            let [left, newcomer] = [0, 1].map(|runtime| now[runtime] - before[runtime]);
            println!("packets of each: {left}, {newcomer}; {receipt}");
            if newcomer > 200 && newcomer * 4 >= left + newcomer {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no share: {left}, {newcomer}");
            before = now;
        }
    }

    /// The coordinator is killed while all flows move back and forth. Its guard starts it again,
    /// and it decides nothing that was decided.
    fn without_coordinator(&self) {
        let before = self.view().expect("the coordinator answers")["view"].clone();
        let killed = self.coordinator();
        let ((left, _), newcomer) = (LEFT, self.site.network.folder.path("d"));
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| {
                for _ in 0..10 {
                    let there = self
                        .site
                        .asked_of(left, "flow migrate --all --from 0 --to 1 --json");
                    self.receipt("moves without a coordinator", there);
                    let back =
                        format!("{FLOWKEEP} flow migrate --all --from 1 --to 0 --json --socket {newcomer}");
                    let back = self.hosts[0].run(&back, Run::within(PATIENCE));
                    self.receipt(
                        "moves without a coordinator",
                        back.map_err(|error| error.to_string()),
                    );
                }
            });
            std::thread::sleep(Duration::from_millis(100));
            self.hosts[0]
                .run(&format!("kill -KILL {killed}"), Run::within(PATIENCE))
                .unwrap();
            let good = !moving.is_finished();
            self.site
                .log
                .expect("moves were under way", good, "they had ended before");
        });
        self.until("the coordinator has begun again, and hears all", |view| {
            let workers = view["workers"].as_array().expect("a list");
            self.coordinator() != killed && workers.iter().all(|worker| worker["packets"].as_u64() > Some(0))
        });
        // The coordinator has settled by then, and would suspect and remove members.
        std::thread::sleep(Duration::from_secs(2));
        let after = self.view().expect("the coordinator answers")["view"].clone();
        let told = format!("view {before} before, {after} behind that");
        self.site
            .log
            .expect("nothing is decided twice", before == after, told);
    }

    /// The coordinator's process, which its guard has started.
    fn coordinator(&self) -> String {
        let guard = self.site.network.servers.last().expect("it was started").id();
        let children = fs::read_to_string(format!("/proc/{guard}/task/{guard}/children"));
        children.expect("the guard runs").trim().to_owned()
    }

    /// Checks the receipt of an order to move flows: no flow failed, and no packet was dropped.
    fn receipt(&self, what: &str, said: Result<String, String>) {
        let receipt: Value = said
            .as_deref()
            .ok()
            .and_then(|said| serde_json::from_str(said).ok())
            .unwrap_or_default();
        let of = |name: &str| receipt[name].as_u64().unwrap_or(u64::MAX);
        let good = (of("flows_refused"), of("flows_failed"), of("packets_dropped")) == (0, 0, 0);
        self.site.log.note(what, good, || format!("{said:?}"));
    }

    /// All members take another configuration on, which cuts nothing.
    fn another_configuration(&self) {
        let old = fs::read_to_string(&self.file).unwrap();
        let rule = "[[function.firewall.rules]]\nname = \"out\"\n";
        let new = format!(
            "[[function.firewall.rules]]\nname = \"no-smtp\"\nfrom = \"inside\"\nprotocol = \"tcp\"\n\
             destination_ports = [25]\naction = \"drop\"\n{rule}"
        );
        let file = self.site.network.folder.path("new.toml");
        fs::write(&file, old.replace(rule, &new)).unwrap();
        let said = self.asked("admin", &format!("chain apply {file}"));
        let receipt = &said["receipt"];
        let good = receipt["members"] == 3 && receipt["flows_cut"] == 0;
        self.site.log.expect("chain apply", good, &said);
        let status = self.asked("read", "status");
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let digests: BTreeSet<String> = members
            .iter()
            .map(|of| of["configuration"]["digest"].to_string())
            .collect();
        let good = members.len() == 3 && digests.len() == 1;
        self.site.log.expect("all have it", good, status);
    }
}

/// The fate of `right`.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The node is cut off from these networks.
    Cut(&'static [&'static str]),
    StandsStill,
}

/// Packets that have left the switch, and packets that the nodes in view have passed. The switch is
/// asked within the time between two questions to the nodes.
#[derive(Clone, Copy)]
struct Output {
    out: u64,
    passed: u64,
}

impl Output {
    fn of(site: &Site, is_begin: bool) -> Self {
        let nodes = || [LEFT, MIDDLE].map(|node| of_runtime(site, node)["passed"].as_u64().unwrap());
        let before = nodes();
        let out = site.status_of(FRONT)["packets"]["out"].as_u64().unwrap();
        let passed = if is_begin { before } else { nodes() };
        Output {
            out,
            passed: passed.iter().sum(),
        }
    }
}

impl Hosts {
    /// Left's flows have copies at middle, and right's at left.
    fn protected(&self) {
        let began = Instant::now();
        for ((member, runtime), (_, by)) in [(LEFT, MIDDLE), (RIGHT, LEFT)] {
            let of = || of_runtime(&self.site, (member, runtime));
            if of()["protected_by"] != by {
                self.asked("operate", &format!("replication place {runtime} --at {by}"));
            }
            while of()["protected_by"] != by {
                assert!(began.elapsed() < PATIENCE, "never protected: {}", of());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        println!("protected after {:?}", began.elapsed());
    }

    fn fate(&self, fate: Fate, is_over: bool) {
        match fate {
            Fate::Cut(networks) => self.cables(3, networks, is_over),
            Fate::StandsStill => {
                let signal = if is_over { "CONT" } else { "STOP" };
                self.site.signal(RIGHT.0, signal);
            }
        }
    }

    /// `right` is removed while its fate lasts, comes again behind it, and has no effect between
    /// the two.
    fn fenced(&self, fate: Fate) {
        let log = &self.site.log;
        let before = incarnation(&self.view().expect("the coordinator answers"), "right");
        let recovered = || {
            of_runtime(&self.site, LEFT)["recovered_flows"]
                .as_u64()
                .unwrap_or(0)
        };
        let (so_far, theirs) = (recovered(), of_runtime(&self.site, RIGHT)["flows"].clone());
        let began = Instant::now();
        self.fate(fate, false);
        self.until("it is removed", |view| !is_in(view, "right"));
        let removed = began.elapsed();
        log.expect("removed while it lasts", removed < CUT, format!("{removed:?}"));
        while recovered() == so_far && began.elapsed() < CUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        let first = Output::of(&self.site, true);
        std::thread::sleep(CUT.saturating_sub(began.elapsed()));
        self.fate(fate, true);
        let mended = Instant::now();
        let view = self.until("another incarnation of it runs", |view| {
            incarnation(view, "right").is_some()
        });
        let last = Output::of(&self.site, false);
        let again = mended.elapsed();
        log.expect("another incarnation", incarnation(&view, "right") > before, &view);
        let (out, passed) = (last.out - first.out, last.passed - first.passed);
        let told = format!(
            "{fate:?}: removed after {removed:?}; of {theirs} flows {} went on; {out} packets left and {passed} \
             were passed before it ran again, {again:?} later",
            recovered() - so_far
        );
        println!("{told}");
        let good = out > 1000 && out <= passed + BETWEEN;
        log.expect("one owner", good, &told);
        let heir = of_runtime(&self.site, LEFT);
        let lost = heir["unrecovered_flows"].as_u64().unwrap_or(0);
        let good = recovered() > so_far && lost == 0;
        log.expect("flows go on", good, heir);
    }

    /// Clients of both halves meet this fate of `right`.
    fn while_clients_talk(&self, fate: Fate, ports: [u16; 2]) {
        let (on, before) = (AtomicBool::new(true), self.site.lost_at_interfaces());
        let on = &on;
        let [left, right] = std::thread::scope(|scope| {
            let ending = On(on);
            let (probes, talkers) = clients(scope, self, ports, on);
            self.place(&HALVES[0], LEFT.1);
            self.place(&HALVES[1], RIGHT.1);
            self.protected();
            self.are_talking(&talkers, "when a node fails");
            self.fenced(fate);
            drop(ending);
            probes.map(|probe| probe.join().unwrap())
        });
        self.judge([left, right], self.site.lost_at_interfaces() - before, (1, GONE));
        self.protected();
        self.each_flow_has_one_owner();
    }

    /// Judges the probes at left and right, while ports and hosts' sockets have lost so many
    /// packets, and right failed so often: each failure is one gap there of so many milliseconds at
    /// most, and none elsewhere. The switch's drops for right (`runtime_busy`) excuse nothing.
    /// Answers whether that needed no long pause of the machine.
    fn judge(&self, [left, right]: [Seen; 2], lost: u64, (failures, gap_max): (usize, u64)) -> bool {
        let mut all_unexcused = true;
        let reasons = [
            "no_lease",
            "runtime_busy",
            "recovery_full",
            "peer_gone",
            "home_absent",
            "no_runtime",
        ];
        println!(
            "dropped: {:?}",
            reasons.map(|reason| (reason, self.site.dropped(reason)))
        );
        for (mut seen, gap_max, gaps) in [(left, probe::GAP_MAX, 0), (right, gap_max, failures)] {
            let missing = seen.missing();
            let told = format!("{}; {missing} missing, {lost} counted", seen.told());
            println!("{told}");
            let [good, is_unexcused] = seen.judged(|seen| {
                seen.sent > 1000
                    && seen.crooked() == 0
                    && !seen.stood_still(gap_max)
                    && seen.times_missing(GAP) <= gaps
                    && (gaps > 0 || missing <= lost)
            });
            let client = if gaps == 0 { "probe elsewhere" } else { "probe" };
            self.site.log.expect(client, good, told);
            all_unexcused &= is_unexcused;
        }
        all_unexcused
    }
}

fn cut_off() {
    let Some(hosts) = with_copies(TIMES) else {
        return;
    };
    for (fate, ports) in [
        (Fate::Cut(&["data", "ctl"]), [7016, 7017]),
        (Fate::Cut(&["ctl"]), [7026, 7027]),
        (Fate::StandsStill, [7036, 7037]),
    ] {
        hosts.while_clients_talk(fate, ports);
    }
    let said = hosts.site.complaints_of(RIGHT.0);
    let incarnations = said.matches("as another incarnation").count();
    hosts
        .site
        .log
        .expect("it said so each time", incarnations == 3, said);
    hosts.site.end_after_failures();
}

#[test]
fn members_come_and_go_on_three_hosts() {
    machine::unless_paused(PAUSE, come_and_go);
}

#[test]
fn a_member_that_is_cut_off_or_stands_still_is_fenced() {
    machine::unless_paused(PAUSE, cut_off);
}
