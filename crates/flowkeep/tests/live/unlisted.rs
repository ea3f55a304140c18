//! A member that no configuration lists, on another host, behind a link of Ethernet frames alone.
//!
//! ```text
//!   one: coordinator, switch, node left   link0 10.9.0.1 ═════════ eth0 10.9.0.2   two: node d
//! ```
//!
//! Addresses are for the coordinator's calls only: no member has one, so packets have the frames of
//! the link or no way at all.

use crate::network::{PATIENCE, alone};
use lab::process::{Process, Run};
use lab::{Lab, Namespace};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowkeep");
const ONE: &str = "02:00:00:00:09:01";
const TWO: &str = "02:00:00:00:09:02";

/// A folder that is gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("flowkeep-live-unlisted-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(folder: &Folder) -> String {
    let key = folder.write("edge.key", &format!("1 {}", "01".repeat(32)));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&key, mode).unwrap();
    let profile = folder.write(
        "profile.toml",
        "flows = 200\nrate = { total = 1000.0 }\npace = \"clock\"\npackets_max = 1000000000\nsources = [\"10.0.0.0/24\"]\n\
         source_ports = [1024, 60000]\ndestinations = [\"198.51.100.0/28\"]\ndestination_ports = [443]\nseed = 3\n\
         [[classes]]\nshare = 1.0\ntcp = 0.0\nlife = { packets = { fixed = 50.0 } }\n",
    );
    let member = |name: &str, kind: &str| {
        format!(
            "[[member]]\nname = \"{name}\"\n{kind} = 1\nhost = \"one\"\ninterface = \"link0\"\nlink_address = \"{ONE}\"\nsocket = \"{}\"\n",
            folder.path(&format!("{name}.sock"))
        )
    };
    let text = format!(
        "[cluster]\nname = \"live-unlisted-{}\"\nkeys = [\"{key}\"]\ndirectory = \"{}\"\n{}{}\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n",
        std::process::id(),
        folder.path("state"),
        member("front", "switches"),
        member("left", "runtimes"),
    );
    folder.write("cluster.toml", &text)
}

fn ask(host: &Namespace, words: &str) -> Result<Value, String> {
    let said = host.run(&format!("{PROGRAM} {words}"), Run::within(PATIENCE));
    let said = said.map_err(|error| error.to_string())?;
    serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))
}

/// Waits until a command gives the wanted answer.
#[track_caller]
fn until(host: &Namespace, what: &str, words: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let said = ask(host, words);
        match said {
            Ok(value) if is_so(&value) => return value,
            said => assert!(began.elapsed() < PATIENCE, "{what}, but {said:?}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn frames(host: &Namespace, interface: &str) -> u64 {
    let words = format!("cat /sys/class/net/{interface}/statistics/rx_packets");
    let text = host.run(&words, Run::within(PATIENCE)).unwrap();
    text.trim().parse().unwrap()
}

fn hosts(lab: &mut Lab) -> [Namespace; 2] {
    let [one, two] = ["one", "two"].map(|role| lab.namespace(role).unwrap());
    lab.cable((&one, "link0"), (&two, "eth0")).unwrap();
    for (host, interface, link, address) in [
        (&one, "link0", ONE, "10.9.0.1/24"),
        (&two, "eth0", TWO, "10.9.0.2/24"),
    ] {
        host.ip(&format!("link set {interface} address {link}")).unwrap();
        host.address(interface, address).unwrap();
    }
    [one, two]
}

#[test]
fn a_member_that_is_not_listed_joins_by_frames() {
    let Some((mut lab, _alone)) = alone(&[]) else {
        return;
    };
    let [one, two] = hosts(&mut lab);
    let folder = Folder::new();
    let config = config(&folder);
    let cluster = folder.path("cluster");
    let run = |words: &str| {
        one.run(&format!("{PROGRAM} {words}"), Run::within(PATIENCE))
            .unwrap()
    };
    run(&format!("cluster init {cluster}"));
    let at = "10.9.0.1:4400";
    let start =
        |host: &Namespace, words: &str| -> Process { host.start(&format!("{PROGRAM} {words}")).unwrap() };
    let coordinator = start(
        &one,
        &format!(
            "coordinator --data {cluster} --listen {at} --unguarded --lease 1s --suspicion 3s --settling 1s"
        ),
    );
    let status = format!("cluster status --at {at} --identity {cluster} --json");
    until(&one, "the coordinator listens", &status, |_| true);
    let join = |member: &str| {
        let token = run(&format!("cluster token {cluster} --member {member}"));
        format!("--member {member} --json --join {at} --token {}", token.trim())
    };
    let front = start(&one, &format!("switch {config} {}", join("front")));
    let left = start(&one, &format!("node {config} {}", join("left")));
    let runs = |view: &Value, member: &str| {
        let mut workers = view["workers"].as_array().expect("a list").iter();
        workers.any(|worker| worker["name"] == member && worker["standing"] == "running")
    };
    until(&one, "listed members run", &status, |view| {
        runs(view, "front") && runs(view, "left")
    });
    let socket = folder.path("d.sock");
    let d = start(
        &two,
        &format!(
            "node {config} {} --runtimes 2 --host two --interface eth0 --link-address {TWO} --socket {socket}",
            join("d")
        ),
    );
    until(&one, "the newcomer runs", &status, |view| runs(view, "d"));
    let its = format!("status --socket {socket} --json");
    let before = frames(&two, "eth0");
    let says = until(&two, "new flows begin there", &its, |status| {
        status["flows"]["active"].as_u64() > Some(10)
    });
    let links = says["links"].as_array().expect("a list");
    assert!(
        links
            .iter()
            .any(|link| link["is_there"] == true && link["member"] == "front"),
        "{links:?}"
    );
    assert!(frames(&two, "eth0") > before + 10, "packets come by frames");
    // All flows of the listed member move there, over the link, and go on.
    let moved = ask(
        &one,
        &format!(
            "flow migrate --all --from 0 --to 1 --json --cluster {at} --identity {cluster} --name operate"
        ),
    )
    .unwrap();
    assert!(moved["flows_moved"].as_u64() > Some(0), "{moved}");
    assert_eq!(moved["flows_failed"], 0, "{moved}");
    let out = |status: &Value| status["packets"]["out"].as_u64().unwrap_or(0);
    let front_says = format!("status --socket {} --json", folder.path("front.sock"));
    let so_far = out(&ask(&one, &front_says).unwrap());
    until(&one, "packets leave behind that", &front_says, |status| {
        out(status) > so_far + 2000
    });
    let ended = d.stop().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    until(&one, "it has left", &status, |view| !runs(view, "d"));
    let so_far = out(&ask(&one, &front_says).unwrap());
    until(&one, "packets leave without it", &front_says, |status| {
        out(status) > so_far + 1000
    });
    println!("{moved}; {} frames came to the newcomer", frames(&two, "eth0"));
    for process in [front, left, coordinator] {
        let ended = process.stop().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }
    assert!(Path::new(&config).exists());
}
