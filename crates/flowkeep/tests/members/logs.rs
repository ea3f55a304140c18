//! The store of the coordinator's decisions fails while traffic passes and flows move.
//!
//! | failure | shown |
//! |---|---|
//! | etcd's leader, of three members; then the coordinator that was elected | packets and moves go on, the view stays; the coordinator that is elected then makes the next decision |
//! | the disk of the log, which is full (a real file system of 4 MiB) | packets and moves go on, nothing is in force that is not written; with room it goes on by itself, and decisions refused meanwhile do not come |

use super::changed::{all_have, firewall, in_force};
use super::joined::{ALONE, Coordinator, Site, free_address, no_lease, passes, runs};
use super::rig::{Folder, Member, PATIENCE};
use super::steady;
use super::wide::{until_all_answer, wide};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ALL: [&str; 3] = ["front", "left", "right"];

/// All flows go from one node to the other, and back, so often; each order moves some, and none
/// fails.
fn back_and_forth(left: &Member, right: &Member, times: u32) {
    for _ in 0..times {
        for (from, to) in [(left, 1), (right, 0)] {
            let receipt = from.migrate(to);
            let failed = (
                receipt.flows_refused,
                receipt.flows_failed,
                receipt.packets_dropped,
            );
            assert!(receipt.flows_moved > 0 && failed == (0, 0, 0), "{receipt}");
        }
    }
}

/// Does something while flows move: moves are under way before it and behind it.
fn while_flows_move<T>(left: &Member, right: &Member, act: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| back_and_forth(left, right, 20));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!moving.is_finished(), "moves are under way");
        let done = act();
        assert!(!moving.is_finished(), "moves were under way when it was done");
        done
    })
}

/// Packets that were dropped for want of a lease, at each.
fn fenced(members: [&Member; 3]) -> [u64; 3] {
    members.map(|member| no_lease(&member.status()))
}

/// Three members of etcd on loopback, killed and gone with this.
struct Etcd {
    members: Vec<Child>,
    addresses: Vec<String>,
}

impl Etcd {
    /// `None` where there is no etcd, or no curl to ask it.
    fn start(folder: &Folder) -> Option<Self> {
        for program in ["etcd", "curl"] {
            let version = Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .status();
            version.ok()?;
        }
        let ports: Vec<_> = (0..3).map(|_| [free_address(), free_address()]).collect();
        let url = |address: &str| format!("http://{address}");
        let all: Vec<_> = (0..3)
            .map(|number| format!("m{number}={}", url(&ports[number][1])))
            .collect();
        let start = |(number, [client, peer]): (usize, &[String; 2])| {
            let (name, client, peer) = (format!("m{number}"), url(client), url(peer));
            Command::new("etcd")
                .args(["--name", &name, "--unsafe-no-fsync", "--log-level", "error"])
                .args([
                    "--initial-cluster",
                    &all.join(","),
                    "--initial-cluster-state",
                    "new",
                ])
                .args([
                    "--listen-client-urls",
                    &client,
                    "--advertise-client-urls",
                    &client,
                ])
                .args([
                    "--listen-peer-urls",
                    &peer,
                    "--initial-advertise-peer-urls",
                    &peer,
                ])
                .arg("--data-dir")
                .arg(folder.0.join(&name))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        Some(Etcd {
            members: ports.iter().enumerate().map(start).collect(),
            addresses: ports.iter().map(|[client, _]| url(client)).collect(),
        })
    }

    /// A member's number, and its leader's, as it says them.
    fn says(&self, member: usize) -> Option<[String; 2]> {
        let status = format!("{}/v3/maintenance/status", self.addresses[member]);
        let said = Command::new("curl")
            .args(["-sS", "-X", "POST", "-d", "{}", &status])
            .output();
        let said: Value = serde_json::from_slice(&said.ok()?.stdout).ok()?;
        let of = |value: &Value| value.as_str().map(str::to_owned);
        Some([of(&said["header"]["member_id"])?, of(&said["leader"])?])
    }

    /// The member that leads, once one does.
    fn leader(&self) -> usize {
        let began = Instant::now();
        let leads = |member: &usize| self.says(*member).is_some_and(|[own, leader]| own == leader);
        loop {
            if let Some(leader) = (0..3).find(leads) {
                return leader;
            }
            assert!(began.elapsed() < PATIENCE, "no member of etcd leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// kill -9
    fn kill(&mut self, member: usize) {
        self.members[member].kill().unwrap();
        self.members[member].wait().unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// A decision: a node leaves, and comes again as another incarnation. Answers the member.
fn leaves_and_comes_again(site: &Site, by: &Coordinator, right: Member, join: &str) -> Member {
    let incarnation = runs(&by.view().expect("it answers"), "right").expect("it runs");
    right.stop(&site.folder);
    by.wait_until("it has left", |view| runs(view, "right").is_none());
    let right = start(site, "node", "right", join);
    by.wait_until("it runs again", |view| runs(view, "right") > Some(incarnation));
    right
}

fn start(site: &Site, command: &str, name: &str, join: &str) -> Member {
    let token = site.coordinator.token(name);
    let words = ["--join", join, "--token", &token];
    Member::start_with(&site.folder, &site.config, command, name, &words)
}

/// Where etcd needs longer for another leader than the election's lease, the other coordinator is
/// elected: it is the first one then.
fn view_of_the_elected(first: &mut Coordinator, other: &mut Coordinator) -> serde_json::Value {
    let began = Instant::now();
    loop {
        if let Some(view) = first.view() {
            return view;
        }
        std::mem::swap(first, other);
        assert!(began.elapsed() < PATIENCE, "neither coordinator is elected");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn etcds_leader_dies_and_the_elected_coordinator_behind_it() {
    let folder = Folder::new("etcd");
    let Some(mut etcd) = Etcd::start(&folder) else {
        return println!("not run: needs etcd and curl (apt install etcd-server curl)");
    };
    etcd.leader();
    let words = format!("{ALONE} --etcd {}", etcd.addresses.join(","));
    let mut site = Site::at(folder, &words, false, &steady(400, 2000, 1 << 40), "");
    site.coordinator.wait_until("it is elected", |_| true);
    let mut other = site.coordinator.another();
    let join = format!("{},{}", site.coordinator.address, other.address);
    let front = start(&site, "switch", "front", &join);
    let left = start(&site, "node", "left", &join);
    let right = start(&site, "node", "right", &join);
    site.wait_for_all();
    passes(&front, 2000);
    assert!(left.wait_until_moved(1) > 0);
    right.migrate(0);
    let before = site.coordinator.view().expect("it answers");
    let dropped = fenced([&front, &left, &right]);

    let leader = etcd.leader();
    while_flows_move(&left, &right, || etcd.kill(leader));
    assert_ne!(etcd.leader(), leader, "another leads");
    // For longer than the lease of the election, and than a suspicion.
    std::thread::sleep(Duration::from_secs(4));
    passes(&front, 4000);
    let after = view_of_the_elected(&mut site.coordinator, &mut other);
    assert_eq!(before["view"], after["view"], "{after}");
    assert_eq!(dropped, fenced([&front, &left, &right]));
    let right = leaves_and_comes_again(&site, &site.coordinator, right, &join);
    assert!(left.wait_until_moved(1) > 0);
    right.migrate(0);
    let before = site.coordinator.view().expect("it answers");
    let dropped = fenced([&front, &left, &right]);

    while_flows_move(&left, &right, || site.coordinator.kill());
    let after = other.wait_until("the other is elected, and hears all", |view| {
        let workers = view["workers"].as_array().expect("a list");
        ALL.iter().all(|name| runs(view, name).is_some())
            && workers.iter().all(|worker| worker["packets"].as_u64() > Some(0))
    });
    assert_eq!(
        before["view"], after["view"],
        "nothing was decided twice: {after}"
    );
    passes(&front, 4000);
    assert_eq!(dropped, fenced([&front, &left, &right]));
    let right = leaves_and_comes_again(&site, &other, right, &join);
    passes(&front, 2000);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}

/// A file system of a few MiB, in memory, gone with this.
struct Disk(PathBuf);

impl Disk {
    /// `None` for others than root.
    fn mount(place: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&place).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=4m,mode=700", "flowkeep-test"])
            .arg(&place);
        let done = mount.stderr(Stdio::null()).status();
        done.is_ok_and(|done| done.success()).then_some(Disk(place))
    }

    /// Takes all the room that there is.
    fn fill(&self) {
        use std::io::Write;
        let mut ballast = std::fs::File::create(self.0.join("ballast")).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while ballast.write_all(&vec![0x5a; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = std::fs::remove_dir_all(self.0.parent().expect("the test's folder"));
    }
}

#[test]
fn the_logs_disk_is_full() {
    let folder = Folder::new("full-disk");
    let Some(disk) = Disk::mount(folder.0.join("cluster")) else {
        return println!("not run: needs root, for a file system of its own");
    };
    let site = Site::at(folder, ALONE, false, &steady(400, 2000, 1 << 40), &firewall(""));
    let [front, left, right] = site.all();
    passes(&front, 2000);
    assert!(left.wait_until_moved(1) > 0);
    right.migrate(0);
    let before = all_have(&site, 1);
    let view_before = site.coordinator.view().expect("it answers")["view"].clone();
    let dropped = fenced([&front, &left, &right]);
    // So long a record needs more pages than the log's file has had.
    let rule = |port| {
        format!(
            "[[function.firewall.rules]]\nname = \"no-{port}\"\ndestination_ports = [{port}]\naction = \"drop\"\n"
        )
    };
    let rules: String = (1000..1400).map(rule).collect();
    let new = site
        .folder
        .read("cluster.toml")
        .replace(&firewall(""), &firewall(&rules));
    let file = site.folder.write("new.toml", &new);
    let file = file.display().to_string();

    disk.fill();
    let refused = wide(&site, "admin", &["chain", "apply", &file]);
    println!("{} {}", refused.code, refused.err);
    let withdrawn = [
        "log-unwritable",
        "No space left",
        "configuration 2 is not decided, and does not come later",
    ];
    refused.refused(1, &withdrawn);
    let view = site.coordinator.view().expect("it answers");
    assert!(ALL.iter().all(|name| runs(&view, name).is_some()), "{view}");
    wide(&site, "admin", &["chain", "apply", &file]).refused(1, &["log-unwritable"]);
    back_and_forth(&left, &right, 10);
    // For longer than a lease and a suspicion: heartbeats are heard.
    std::thread::sleep(Duration::from_secs(3));
    passes(&front, 4000);
    assert_eq!(
        before,
        in_force(&until_all_answer(&site)),
        "what is not written is not in force"
    );
    assert_eq!(dropped, fenced([&front, &left, &right]));

    disk.make_room();
    site.coordinator
        .wait_until("it goes on", |view| view["trouble"].is_null());
    // For longer than the log's thread takes to try a record again.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        before,
        in_force(&until_all_answer(&site)),
        "what was refused does not come when there is room"
    );
    let applied = wide(&site, "admin", &["chain", "apply", &file, "--json"]);
    assert_eq!(applied.code, 0, "{} {}", applied.out, applied.err);
    println!("{}", applied.json());
    let after = all_have(&site, 2);
    assert_ne!(after[0].2, before[0].2, "its digest");
    let view = site.coordinator.view().expect("it answers");
    assert_eq!(view["view"], view_before, "no member was removed: {view}");
    passes(&front, 2000);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}
