//! Members that join a coordinator: member slots, leases and views of a running cluster.
//!
//! The coordinator is a process of its own, killed as `kill -9` does. Nothing is waited for by the
//! clock, but for the four seconds that a node stands still.

use super::more::wait_for_word;
use super::rig::{Folder, Member, PATIENCE};
use super::{MONITOR, brief, steady};
use flowkeep::report::Status;
use serde_json::Value;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Machines of tests are slow: a worker that has no processor for a while is not to be suspected.
/// Without a guard, so that a coordinator that is killed stays so.
pub const ALONE: &str = "--unguarded --lease 1s --suspicion 1500ms --settling 2s";
/// With a guard, and a member may stand still for a while without being removed.
const GUARDED: &str = "--lease 1s --suspicion 20s --settling 1s";

pub fn flowkeep(words: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_flowkeep")).args(words).output();
    let output = output.expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).trim().to_owned(),
    )
}

/// An address at which no program listens.
pub fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address").to_string()
}

/// A coordinator, or the guard of one.
pub struct Coordinator {
    pub folder: String,
    pub address: String,
    words: String,
    process: Child,
}

impl Coordinator {
    pub fn init(folder: &Folder, words: &str) -> Self {
        let place = folder.0.join("cluster").display().to_string();
        let made = flowkeep(&["cluster", "init", &place]);
        assert!(made.0, "{}", made.1);
        let address = free_address();
        let process = Self::start(&place, &address, words);
        Coordinator {
            folder: place,
            address,
            words: words.to_owned(),
            process,
        }
    }

    /// Another coordinator of the same cluster, at an address of its own, which waits until it is
    /// elected.
    pub fn another(&self) -> Self {
        let address = free_address();
        Coordinator {
            process: Self::start(&self.folder, &address, &self.words),
            folder: self.folder.clone(),
            words: self.words.clone(),
            address,
        }
    }

    fn start(place: &str, address: &str, words: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
        command.args(["coordinator", "--data", place, "--listen", address]);
        let mut said = std::fs::File::options();
        let said = said.create(true).append(true).open(format!("{place}.err"));
        command.args(words.split(' ')).stderr(said.expect("a file"));
        command.spawn().expect("it starts")
    }

    /// Kills the coordinator and not its guard, which starts it again.
    pub fn kill_guarded(&self) {
        let guard = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{guard}/task/{guard}/children"));
        let children = children.expect("the guard runs");
        let coordinator = children.split_whitespace().next().expect("it has started one");
        let killed = Command::new("kill").args(["-KILL", coordinator]).status();
        assert!(killed.expect("it runs").success());
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("it was there");
        self.process.wait().expect("it ends");
    }

    pub fn begin_again(&mut self) {
        self.process = Self::start(&self.folder, &self.address, &self.words);
    }

    pub fn token(&self, member: &str) -> String {
        let (is_good, token) = flowkeep(&["cluster", "token", &self.folder, "--member", member]);
        assert!(is_good, "{token}");
        token
    }

    /// The view, if a coordinator answers.
    pub fn view(&self) -> Option<Value> {
        let words = [
            "cluster",
            "status",
            "--at",
            &self.address,
            "--identity",
            &self.folder,
        ];
        let (is_good, said) = flowkeep(&[&words[..], &["--json"]].concat());
        is_good.then(|| serde_json::from_str(&said).expect("JSON"))
    }

    /// Waits until its view is as wanted.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let view = self.view();
            if let Some(view) = &view
                && is_so(view)
            {
                return view.clone();
            }
            assert!(began.elapsed() < PATIENCE, "{what}, but {view:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The incarnation of a member's worker that runs, if one does.
pub fn runs(view: &Value, member: &str) -> Option<u64> {
    let mut workers = view["workers"].as_array()?.iter();
    let worker = workers.find(|worker| worker["name"] == member && worker["standing"] == "running")?;
    worker["incarnation"].as_u64()
}

pub fn is_listed(view: &Value, member: &str) -> bool {
    let workers = view["workers"].as_array().expect("a list");
    workers.iter().any(|worker| worker["name"] == member)
}

pub fn no_lease(status: &Status) -> u64 {
    let dropped = status.packets.dropped.get("no_lease");
    dropped.copied().unwrap_or(0)
}

/// Flows at all runtimes of a member.
pub fn flows(status: &Status) -> u64 {
    status.runtimes.iter().map(|runtime| runtime.flows).sum()
}

pub struct Site {
    pub folder: Folder,
    pub config: std::path::PathBuf,
    pub coordinator: Coordinator,
}

impl Site {
    /// A coordinator, and a configuration of a switch and two nodes. `hosts`: each on a host of its
    /// own.
    fn new(name: &str, has_hosts: bool) -> Site {
        Site::with(name, has_hosts, "")
    }

    /// The same with more settings.
    pub fn with(name: &str, has_hosts: bool, more: &str) -> Site {
        Site::of(name, has_hosts, 400, more)
    }

    /// With so many flows.
    pub fn of(name: &str, has_hosts: bool, flows: u32, more: &str) -> Site {
        Site::by(ALONE, name, has_hosts, &steady(flows, 2000, 1 << 40), more)
    }

    /// With such traffic.
    pub fn made(name: &str, has_hosts: bool, profile: &str, more: &str) -> Site {
        Site::by(ALONE, name, has_hosts, profile, more)
    }

    /// With a coordinator that a guard starts again, on one host.
    pub fn guarded(name: &str, more: &str) -> Site {
        Site::by(GUARDED, name, false, &steady(400, 2000, 1 << 40), more)
    }

    /// With a coordinator that is told these words.
    pub fn by(words: &str, name: &str, has_hosts: bool, profile: &str, more: &str) -> Site {
        Site::at(Folder::new(name), words, has_hosts, profile, more)
    }

    /// In this folder.
    pub fn at(folder: Folder, words: &str, has_hosts: bool, profile: &str, more: &str) -> Site {
        let hosts = [1, 2, 3].map(|number| match has_hosts {
            true => folder.host(number),
            false => "here".to_owned(),
        });
        let members = [
            ("front", "switches", hosts[0].as_str()),
            ("left", "runtimes", hosts[1].as_str()),
            ("right", "runtimes", hosts[2].as_str()),
        ];
        let text = folder.members(&members) + &folder.generated(profile) + MONITOR + more;
        let config = folder.write("cluster.toml", &text);
        let coordinator = Coordinator::init(&folder, words);
        Site {
            folder,
            config,
            coordinator,
        }
    }

    /// A member with a token.
    pub fn start(&self, command: &str, name: &str) -> Member {
        let token = self.coordinator.token(name);
        let join = ["--join", &self.coordinator.address, "--token", &token];
        Member::start_with(&self.folder, &self.config, command, name, &join)
    }

    pub fn all(&self) -> [Member; 3] {
        let all = [("switch", "front"), ("node", "left"), ("node", "right")];
        let all = all.map(|(command, name)| self.start(command, name));
        self.wait_for_all();
        all
    }

    /// Waits until all three are members that run.
    #[track_caller]
    pub fn wait_for_all(&self) {
        self.coordinator.wait_until("all are to run", |view| {
            ["front", "left", "right"]
                .iter()
                .all(|name| runs(view, name).is_some())
        });
    }
}

/// Waits until so many more packets have left.
#[track_caller]
pub fn passes(front: &Member, packets: u64) -> Status {
    let before = front.status().packets.out;
    front.wait_until("traffic passes", |status| status.packets.out >= before + packets)
}

#[test]
fn members_join_by_token_and_go_on_without_the_coordinator() {
    let mut site = Site::new("joined", false);
    // `right` is in the plan, and joins while the others run.
    let front = site.start("switch", "front");
    let left = site.start("node", "left");
    site.coordinator.wait_until("two run", |view| {
        runs(view, "front").is_some() && runs(view, "left").is_some()
    });
    passes(&front, 2000);
    assert!(flows(&left.status()) > 0);
    let right = site.start("node", "right");
    site.coordinator
        .wait_until("the third runs", |view| runs(view, "right").is_some());
    let moved = left.wait_until_moved(1);
    assert!(moved > 0);
    right.wait_until("it has flows", |status| flows(status) > 0);
    // Heartbeats carry load.
    site.coordinator.wait_until("load is told", |view| {
        let workers = view["workers"].as_array().expect("a list");
        let mut of_right = workers.iter().filter(|worker| worker["name"] == "right");
        let has = |worker: &Value, figure: &str, least: u64| worker[figure].as_u64() >= Some(least);
        of_right.all(|worker| {
            has(worker, "flows", 1)
                && has(worker, "packets", 1)
                && has(worker, "cpu_permille", 1)
                // A program, its buffers and its tables.
                && has(worker, "memory_bytes", 10 << 20)
        })
    });
    let before = site.coordinator.view().expect("it answers");
    let dropped: Vec<u64> = [&front, &left, &right]
        .iter()
        .map(|one| no_lease(&one.status()))
        .collect();
    site.coordinator.kill();
    passes(&front, 10_000);
    wait_for_word(&site.folder, "left", "no coordinator is heard");
    passes(&front, 2000);
    site.coordinator.begin_again();
    let after = site.coordinator.wait_until("all run", |view| {
        runs(view, "right").is_some() && runs(view, "front").is_some()
    });
    passes(&front, 10_000);
    assert_eq!(
        before["view"], after["view"],
        "nothing was decided twice: {after}"
    );
    let later: Vec<u64> = [&front, &left, &right]
        .iter()
        .map(|one| no_lease(&one.status()))
        .collect();
    assert_eq!(dropped, later, "traffic was not disturbed");
    // A node leaves of its own will: its flows move, and the view is without it.
    right.stop(&site.folder);
    site.coordinator
        .wait_until("it is no member", |view| !is_listed(view, "right"));
    passes(&front, 2000);
    // Traffic first: a node ends when nothing comes any more.
    front.stop(&site.folder);
    left.stop(&site.folder);
}

/// A switch that is killed is removed by a view. The flows stay, and its next incarnation finds
/// them where they are.
#[test]
fn a_switch_that_is_killed_comes_again_and_finds_the_flows() {
    let site = Site::new("switch-again", false);
    let [mut front, left, right] = site.all();
    left.wait_until("all flows are there", |status| {
        flows(status) + flows(&right.status()) == 400
    });
    let nodes = || {
        [&left, &right].map(|node| {
            let status = node.status();
            (flows(&status), status.runtimes[0].opened)
        })
    };
    let before = nodes();
    let incarnation = runs(&site.coordinator.view().expect("it answers"), "front").expect("it runs");
    front.kill();
    site.coordinator
        .wait_until("it is removed", |view| !is_listed(view, "front"));
    let front = site.start("switch", "front");
    site.coordinator
        .wait_until("another incarnation of it runs", |view| {
            runs(view, "front") > Some(incarnation)
        });
    passes(&front, 4000);
    assert_eq!(nodes(), before, "flows and those that began, at each node");
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

/// A member that is drained by the coordinator: it lives, new flows go elsewhere, and so do those
/// that it has when they are told to.
#[test]
fn a_member_that_is_drained_gets_no_new_flows_and_lives() {
    let site = Site::made("drained", false, &brief(300, 2000, 3600), "");
    let [front, left, mut right] = site.all();
    passes(&front, 4000);
    assert!(flows(&right.status()) > 0);
    let incarnation = runs(&site.coordinator.view().expect("it answers"), "right");
    let drain = |name: &str| {
        let words = [
            "cluster",
            "drain",
            "right",
            "--json",
            "--at",
            &site.coordinator.address,
        ];
        let as_whom = ["--identity", &site.coordinator.folder, "--name", name];
        flowkeep(&[&words[..], &as_whom].concat())
    };
    let (is_good, why) = drain("read");
    assert!(!is_good && why.contains("role-without-right"), "{why}");
    let view = site.coordinator.view().expect("it answers");
    assert_eq!(runs(&view, "right"), incarnation, "nothing has changed");
    let (is_good, said) = drain("operate");
    assert!(is_good, "{said}");
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (&said["member"], &said["standing"]),
        (&"right".into(), &"leaving".into())
    );
    let view = site.coordinator.view().expect("it answers");
    let mut workers = view["workers"].as_array().expect("a list").iter();
    let of_right = workers
        .find(|worker| worker["name"] == "right")
        .expect("it is listed");
    assert_eq!(of_right["standing"], "leaving", "{view}");
    assert_eq!(of_right["incarnation"].as_u64(), incarnation);

    let opened = |member: &Member| member.status().runtimes[0].opened;
    let more_at_left = |count: u64| {
        let before = opened(&left);
        left.wait_until("new flows go to the other", |status| {
            status.runtimes[0].opened >= before + count
        });
    };
    right.wait_until("it is told", |status| status.runtimes[0].leaving);
    more_at_left(100);
    let before = opened(&right);
    more_at_left(500);
    assert_eq!(opened(&right), before, "no new flow");
    left.wait_until("what it has goes to the other", |_| {
        right.migrate(0);
        flows(&right.status()) == 0
    });
    more_at_left(100);
    let status = right.status();
    assert_eq!((flows(&status), status.runtimes[0].opened), (0, before));
    assert!(
        right.process.try_wait().expect("it is asked").is_none(),
        "it lives"
    );
    assert_eq!(no_lease(&status), 0);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

/// A node that stands still for longer than its lease: fenced, removed by a view, its flows begin
/// elsewhere, and it begins again.
fn stands_still(name: &str, has_hosts: bool) {
    let site = Site::new(name, has_hosts);
    let [front, left, right] = site.all();
    passes(&front, 4000);
    let spread = [flows(&left.status()), flows(&right.status())];
    assert!(spread.iter().all(|flows| *flows > 0), "{spread:?}");
    let incarnation = runs(&site.coordinator.view().expect("it answers"), "right").expect("it runs");
    right.signal("-STOP");
    std::thread::sleep(Duration::from_secs(4));
    site.coordinator
        .wait_until("it is removed", |view| !is_listed(view, "right"));
    left.wait_until("all flows are here", |status| flows(status) == 400);
    passes(&front, 2000);
    // Packets in its ring, and in its hands, leave by no port from now on: the other's packets
    // leave, but for those between the two. The other is asked first here and last below, so at
    // most those are between that wait at the switch for longer than an answer takes: 50 ms of
    // traffic.
    let passed = |status: &Status| status.runtimes.iter().map(|runtime| runtime.passed).sum::<u64>();
    let before = (passed(&left.status()), front.status().packets.out);
    right.signal("-CONT");
    wait_for_word(&site.folder, "right", "it begins again, as another incarnation");
    let view = site
        .coordinator
        .wait_until("another incarnation of it runs", |view| {
            runs(view, "right").is_some()
        });
    let out = front.status().packets.out - before.1;
    let of_left = passed(&left.status()) - before.0;
    assert!(runs(&view, "right") > Some(incarnation));
    assert!(
        out <= of_left + 100,
        "{out} packets have left, and the one that lives made {of_left}"
    );
    // The new incarnation takes flows.
    assert!(left.wait_until_moved(1) > 0);
    right.wait_until("it has flows again", |status| flows(status) > 0);
    passes(&front, 4000);
    // Traffic first: a node ends when nothing comes any more.
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

#[test]
fn a_node_that_stands_still_is_fenced_and_begins_again() {
    stands_still("still", false);
}

#[test]
fn so_is_one_of_another_host() {
    stands_still("still-far", true);
}

/// A node that is told to stop, stands still, and is removed by a view meanwhile: the signal came
/// to this process alone, so no other incarnation comes after it.
#[test]
fn a_node_that_was_told_to_stop_does_not_come_back_when_a_view_removes_it() {
    let site = Site::new("stopped-still", false);
    let [front, left, mut right] = site.all();
    passes(&front, 4000);
    assert!(flows(&right.status()) > 0);
    right.signal("-STOP");
    right.signal("-TERM");
    std::thread::sleep(Duration::from_secs(4));
    site.coordinator
        .wait_until("it is removed", |view| !is_listed(view, "right"));
    left.wait_until("all flows are here", |status| flows(status) == 400);
    right.signal("-CONT");
    let began = Instant::now();
    let ended = loop {
        if let Some(ended) = right.process.try_wait().expect("it is asked") {
            break ended;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "it goes on: {}",
            site.folder.read("right.err")
        );
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = site.folder.read("right.err");
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(said.contains("has removed this member as it stopped"), "{said}");
    assert!(!said.contains("it begins again"), "{said}");
    let object = site.folder.read("right.out");
    let object: Value = serde_json::from_str(object.trim()).expect("one object");
    assert_eq!(object["code"], 1, "{object}");
    assert!(!right.socket.exists(), "its socket has gone with it");
    let view = site.coordinator.view().expect("it answers");
    assert!(!is_listed(&view, "right"), "{view}");
    // Traffic first: a node ends when nothing comes any more.
    for member in [front, left] {
        member.stop(&site.folder);
    }
}

pub const COPIES: &str = "\n[replication]\npolicy = \"commit\"\n";

/// Flows of failed runtimes that went on at a member, and that could not.
pub fn recovered(status: &Status) -> [u64; 2] {
    let of = |runtime: &flowkeep::report::RuntimeStatus| [runtime.recovered_flows, runtime.unrecovered_flows];
    let all = status.runtimes.iter().map(of);
    all.fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]])
}

/// A member is killed, and another stands still: a view removes each, and its flows go on at the
/// other one.
fn flows_go_on(name: &str, has_hosts: bool) {
    let site = Site::with(name, has_hosts, COPIES);
    let [front, left, right] = site.all();
    passes(&front, 4000);
    let protected = |member: &Member, by: u16| {
        member.wait_until("all its flows have copies", |status| {
            status
                .runtimes
                .iter()
                .all(|runtime| runtime.protected_by == Some(by))
        });
    };
    protected(&left, 1);
    protected(&right, 0);
    let of_right = flows(&right.status());
    assert!(of_right > 0);
    right.signal("-KILL");
    site.coordinator
        .wait_until("it is removed", |view| !is_listed(view, "right"));
    let status = left.wait_until("all flows are here", |status| flows(status) == 400);
    assert_eq!(recovered(&status), [of_right, 0]);
    passes(&front, 2000);
    let right = site.start("node", "right");
    site.coordinator
        .wait_until("it runs again", |view| runs(view, "right").is_some());
    assert!(left.wait_until_moved(1) > 0);
    protected(&left, 1);
    protected(&right, 0);
    let moved = flows(&right.status());
    assert!(moved > 0);
    right.signal("-STOP");
    std::thread::sleep(Duration::from_secs(4));
    site.coordinator
        .wait_until("it is removed", |view| !is_listed(view, "right"));
    let status = left.wait_until("all flows are here", |status| flows(status) == 400);
    assert_eq!(recovered(&status), [of_right + moved, 0]);
    right.signal("-CONT");
    wait_for_word(&site.folder, "right", "it begins again, as another incarnation");
    site.coordinator
        .wait_until("another incarnation of it runs", |view| {
            runs(view, "right").is_some()
        });
    passes(&front, 4000);
    protected(&left, 1);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

#[test]
fn flows_of_a_member_that_a_view_removes_go_on() {
    flows_go_on("copied", false);
}

#[test]
fn so_do_those_of_one_of_another_host() {
    flows_go_on("copied-far", true);
}
