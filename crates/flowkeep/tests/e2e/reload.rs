//! Another configuration under load: applied again and again while packets come, refused with a
//! line and a remedy, taken back.

use crate::cluster::{Lines, Ran, finish};
use adapters::open::Ports;
use flowkeep::apply::report::{Change, Outcome};
use flowkeep::apply::{Ask, Source};
use flowkeep::cluster::Cluster;
use flowkeep::config;
use flowkeep::run::{self, Events, Running};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A folder of its own, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowkeep-reload-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        // As fast as workers take it: a generator by the clock goes on while the machine does
        // something else, and its packets meanwhile have no room.
        let profile = "flows = 2000\nrate = { total = 40000.0 }\nseconds_max = 1e6\n\
                       sources = [\"10.0.0.0/24\"]\nsource_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\n\
                       destination_ports = [443, 80]\nseed = 3\n[[classes]]\nshare = 1.0\ntcp = 0.0\n";
        std::fs::write(path.join("profile.toml"), profile).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A gateway that lets these ports out, with this pool and these servers.
fn gateway(folder: &Folder, ports: &str, pool: &str, servers: &[&str]) -> String {
    let backends: Vec<String> = servers
        .iter()
        .map(|name| {
            format!(
                "{{ name = \"{name}\", endpoint = \"192.0.2.{}:443\" }}",
                name.len()
            )
        })
        .collect();
    format!(
        r#"clock = "machine"
runtimes = 2
flows_max = 10000
[[port]]
name = "lan"
side = "inside"
input = "generate:{}"
[[port]]
name = "wan"
side = "outside"
output = "pcap:/dev/null"
[[chain]]
name = "all"
functions = ["firewall", "nat", "load_balancer"]
[[function.firewall.rules]]
name = "out"
from = "inside"
destination_ports = {ports}
action = "allow"
[function.nat]
pool = ["{pool}"]
[[function.load_balancer.services]]
name = "web"
addresses = ["198.51.100.1"]
ports = 443
protocol = "udp"
backends = [{}]
"#,
        folder.0.join("profile.toml").display(),
        backends.join(", ")
    )
}

fn start(path: &Path) -> (Running, Lines) {
    let registry = flowkeep::functions();
    let (config, tree, _) = config::read_tree(path, &registry).unwrap();
    let source = Source {
        registry,
        path: path.to_owned(),
        tree,
        overrides: Box::new(|_| Ok(())),
        own: None,
    };
    let lines = Lines::default();
    let events = Events::to("lines", Box::new(lines.clone()));
    let running = run::start_from(config, Ports::new(), Some(events), Some(source)).unwrap();
    (running, lines)
}

fn ask(path: Option<&Path>) -> Ask {
    Ask {
        path: path.map(Path::to_owned),
        listed: 10,
        ..Ask::default()
    }
}

/// Runs `work` beside a cluster of the configuration, and stops it then.
fn beside(path: &Path, work: impl FnOnce(&dyn Cluster) + Send + 'static) -> Ran {
    let (running, lines) = start(path);
    let cluster: Arc<dyn Cluster> = running.cluster();
    let worker = std::thread::spawn(move || {
        let flows = |cluster: &dyn Cluster| cluster.snapshot().runtimes.iter().map(|r| r.flows).sum::<u64>();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while flows(&*cluster) < 1500 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(flows(&*cluster) >= 1500, "there is load");
            work(&*cluster)
        }));
        cluster.stop();
        done
    });
    let outcome = running.wait(|_| {});
    let done = worker.join().unwrap();
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
    finish(outcome, &lines, "reload")
}

fn applied(change: &Change) -> &flowkeep::apply::report::Receipt {
    assert_eq!(change.outcome, Outcome::Applied, "{change}");
    change.receipt.as_ref().unwrap()
}

/// Fifty changes under load: each is in force everywhere, cuts the flows that it says and no other,
/// and no packet is dropped but by rules.
#[test]
fn fifty_changes_under_load_add_up_and_drop_only_what_rules_say() {
    let folder = Folder::new("fifty");
    let wide = folder.write(
        "wide.toml",
        &gateway(&folder, "[443, 80]", "203.0.113.0/28", &["a", "bb", "ccc"]),
    );
    let narrow = folder.write(
        "narrow.toml",
        &gateway(&folder, "[443]", "203.0.113.0/27", &["a", "bb", "dddd"]),
    );
    let small = folder.write(
        "small.toml",
        &gateway(&folder, "[443, 80]", "203.0.113.8/29", &["a", "bb", "ccc"]),
    );
    let first = wide.clone();
    let ran = beside(&first, move |cluster| {
        let mut cut_by = std::collections::BTreeSet::new();
        for round in 0..50 {
            let path = [&narrow, &wide, &small][round % 3];
            let change = cluster
                .change(&Ask {
                    cut: true,
                    ..ask(Some(path))
                })
                .unwrap();
            let receipt = applied(&change);
            assert_eq!(receipt.generation, round as u64 + 2);
            assert!(
                receipt.warning.is_none() && receipt.flows_waiting == 0,
                "{change}"
            );
            assert!(change.listed.len() <= 20);
            let counted: u64 = receipt.cut.iter().map(|cut| cut.flows).sum();
            assert_eq!(counted, receipt.flows_cut);
            cut_by.extend(
                receipt
                    .cut
                    .iter()
                    .map(|cut| format!("{}/{}", cut.function, cut.reason)),
            );
            let status = cluster.snapshot();
            assert!(status.runtimes.iter().all(|r| r.generation == receipt.generation));
        }
        let expected = [
            "firewall/not_allowed",
            "load_balancer/backend_gone",
            "nat/mapping_gone",
        ];
        assert_eq!(cut_by.into_iter().collect::<Vec<_>>(), expected);
    });
    let drops: Vec<_> = ran.dropped().into_keys().collect();
    assert_eq!(drops, [("firewall", "not_allowed")], "{:?}", ran.packets);
    assert_eq!(ran.counter("mappings_created"), ran.counter("mappings_released"));
    assert_eq!(ran.counter("blocks_claimed"), ran.counter("blocks_released"));
}

/// A change that is asked about first says which flows it would cut. It cuts nothing without leave,
/// and can be taken back.
#[test]
fn flows_are_cut_with_leave_only_and_a_change_can_be_taken_back() {
    let folder = Folder::new("leave");
    let wide = folder.write(
        "wide.toml",
        &gateway(&folder, "[443, 80]", "203.0.113.0/28", &["a", "bb"]),
    );
    let narrow = folder.write(
        "narrow.toml",
        &gateway(&folder, "[443]", "203.0.113.0/28", &["a", "bb"]),
    );
    let more = folder.write(
        "more.toml",
        &gateway(&folder, "[443, 80]", "203.0.113.0/27", &["a", "bb", "ccc"]),
    );
    let first = wide.clone();
    beside(&first, move |cluster| {
        let same = cluster.change(&ask(Some(&wide))).unwrap();
        assert_eq!((same.outcome, same.generation), (Outcome::Same, 1));
        let dry = cluster
            .change(&Ask {
                dry: true,
                ..ask(Some(&narrow))
            })
            .unwrap();
        assert_eq!(dry.outcome, Outcome::WouldCut, "{dry}");
        assert!(
            dry.flows_kept > 0 && dry.flows_cut > 0 && dry.listed.len() >= 10,
            "{dry}"
        );
        assert!(
            dry.listed
                .iter()
                .all(|flow| flow.destination.ends_with(":80") && flow.function == "firewall")
        );
        let refused = cluster.change(&ask(Some(&narrow))).unwrap();
        assert_eq!(refused.outcome, Outcome::RefusedToCut);
        assert!(refused.receipt.is_none() && refused.to_string().contains("with --cut"));
        assert!(
            cluster
                .change(&Ask {
                    rollback: true,
                    ..ask(None)
                })
                .unwrap_err()
                .contains("no configuration to go back to")
        );
        // More servers and a larger pool cut no flow.
        let grown = cluster.change(&ask(Some(&more))).unwrap();
        assert_eq!((applied(&grown).flows_cut, applied(&grown).generation), (0, 2));
        let cut = cluster
            .change(&Ask {
                cut: true,
                ..ask(Some(&narrow))
            })
            .unwrap();
        assert!(applied(&cut).flows_cut > 0);
        let back = cluster
            .change(&Ask {
                rollback: true,
                ..ask(None)
            })
            .unwrap();
        assert_eq!(
            (applied(&back).flows_cut, applied(&back).generation),
            (0, 4),
            "{back}"
        );
        assert!(
            back.differences
                .iter()
                .any(|d| d.setting.contains("destination_ports"))
        );
    });
}

/// A setting that is wrong, or cannot change, is refused with its line and a remedy, and nothing
/// changes.
#[test]
fn a_wrong_configuration_is_refused_with_its_line_and_changes_nothing() {
    let folder = Folder::new("wrong");
    let good = gateway(&folder, "[443, 80]", "203.0.113.0/28", &["a"]);
    let path = folder.write("good.toml", &good);
    let variants = [
        (good.replace("action = \"allow\"", "action = \"alow\""), "alow", 2),
        (
            good.replace("runtimes = 2", "runtimes = 3"),
            "runtimes: restart",
            0,
        ),
        (
            good.replace("side = \"outside\"", "side = \"by-address\""),
            "port[wan].side: restart",
            0,
        ),
        (
            good.replace("[function.nat]", "[function.nat]\nblock_size = 128"),
            "block_size: the mappings that there are follow it",
            1,
        ),
        (
            good.replace("\"firewall\", ", "\"firewall\", \"flow_monitor\", "),
            "`flow_monitor` is new",
            1,
        ),
        (
            good.replace("203.0.113.0/28", "203.0.113.0/28\", \"203.0.113.0/30"),
            "overlaps",
            1,
        ),
    ];
    let files: Vec<_> = variants
        .iter()
        .enumerate()
        .map(|(number, (text, word, problems))| {
            (folder.write(&format!("{number}.toml"), text), *word, *problems)
        })
        .collect();
    beside(&path, move |cluster| {
        for (path, word, problems) in &files {
            let change = cluster
                .change(&Ask {
                    cut: true,
                    ..ask(Some(path))
                })
                .unwrap();
            assert_eq!(change.outcome, Outcome::Refused, "{change}");
            assert!(change.to_string().contains(word), "{word} in\n{change}");
            assert!(
                *problems == 0 || change.problems.iter().all(|problem| problem.line > 0),
                "{change}"
            );
            assert_eq!(change.problems.is_empty(), *problems == 0, "{change}");
            assert!(
                cluster
                    .snapshot()
                    .runtimes
                    .iter()
                    .all(|runtime| runtime.generation == 1)
            );
        }
        let missing = cluster
            .change(&ask(Some(Path::new("/nowhere/at-all.toml"))))
            .unwrap();
        assert!(
            missing.to_string().contains("name a file that exists"),
            "{missing}"
        );
    });
}
