//! Shared objects in the whole tool: the count that all runtimes merge, and the one that each
//! changes in place, equal the functions' counters, while runtimes come and go under load.

#[path = "../sharing/tally.rs"]
mod tally;

use adapters::open::Ports;
use flowkeep::cluster::Cluster;
use flowkeep::moving::{Leaving, Order, Removal};
use flowkeep::report::Status;
use flowkeep::run;
use flowkeep::tables::Said;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tally::Tally;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Site {
    cluster: Arc<dyn Cluster>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.cluster.stop();
    }
}

impl Site {
    /// The packets counted, by the function's own counters.
    fn counted(&self) -> [u64; 2] {
        let snapshot = self.cluster.snapshot();
        ["merged", "owned"].map(|name| {
            let all = snapshot.runtimes.iter().flat_map(|runtime| &runtime.counters);
            all.filter(|named| named.name == name)
                .map(|named| named.count)
                .sum()
        })
    }

    /// The highest counts that a runtime has read of the objects.
    fn seen(&self) -> [u64; 2] {
        let mut seen = [0; 2];
        for told in self.cluster.command("tally", &[]).unwrap() {
            let Said::Text(text) = told.said else {
                panic!("it is no table")
            };
            for (seen, count) in seen.iter_mut().zip(text.split(' ')) {
                *seen = count.parse::<u64>().unwrap().max(*seen);
            }
        }
        seen
    }

    /// The current counts come to be read, and no more than was counted. A runtime that was killed
    /// has taken so many with it.
    #[track_caller]
    fn adds_up(&self, when: &str, lost: u64) {
        let before = self.counted();
        until(when, || {
            let seen = self.seen();
            seen[0] + lost >= before[0] && seen[1] >= before[1]
        });
        let (seen, after) = (self.seen(), self.counted());
        assert!(seen[0] <= after[0], "{when}: {seen:?} of {after:?}");
        // A packet's runtime may fail when its change is applied, and its counter is not.
        assert!(seen[1] <= after[1] + lost, "{when}: {seen:?} of {after:?}");
    }

    fn remove(&self, runtime: u16) {
        self.cluster.set_leaving(runtime, Leaving::Drained).unwrap();
        until("a removal", || {
            let order = Order {
                from: Some(runtime),
                ..Order::default()
            };
            let parts = self.cluster.order(&order).unwrap();
            until("the end of an order", || {
                self.cluster.receipt(&parts).unwrap().over
            });
            let removal = self.cluster.remove_runtime(runtime).unwrap();
            // Others' calls by way of the keys that it owns are no reason to stay.
            assert!(
                removal.done || removal != Removal::default(),
                "no reason is given"
            );
            removal.done
        });
    }

    fn share_with(&self, runtime: u16) {
        let order = Order {
            one_in: Some(2),
            to: vec![runtime],
            ..Order::default()
        };
        let parts = self.cluster.order(&order).unwrap();
        until("its share", || self.cluster.receipt(&parts).unwrap().over);
    }
}

#[test]
fn counts_over_all_runtimes_add_up_while_these_come_and_go() {
    let folder = std::env::temp_dir().join(format!("flowkeep-objects-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let profile = "flows = 100\nrate = { total = 1000.0 }\nseconds_max = 1e6\n\
                   sources = [\"10.0.0.0/24\"]\nsource_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\n\
                   destination_ports = [443, 80]\nseed = 3\n[[classes]]\nshare = 1.0\ntcp = 0.0\n";
    std::fs::write(folder.0.join("profile.toml"), profile).unwrap();
    let text = format!(
        "clock = \"machine\"\nruntimes = 2\nruntimes_max = 3\nflows_max = 20000\n\
         [[port]]\nname = \"inside\"\nside = \"inside\"\ninput = \"generate:{}\"\n\
         [[port]]\nname = \"outside\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"tally\"]\n",
        folder.0.join("profile.toml").display()
    );
    let registry = flowkeep::registry![Tally];
    let config = flowkeep::config::parse("objects.toml", &text, &registry).unwrap();
    let running = run::start_with(config, Ports::new(), None).unwrap();
    let site = Site {
        cluster: running.cluster(),
    };
    until("counts", || {
        let [merged, owned] = site.counted();
        merged > 2000 && owned > 20
    });
    site.adds_up("with two runtimes", 0);
    assert_eq!(site.cluster.add_runtime(Some(2)), Ok(2));
    site.share_with(2);
    site.adds_up("with three runtimes", 0);
    // The status and the metrics have the work of each runtime.
    let snapshot = site.cluster.snapshot();
    let status = Status::from(&snapshot);
    let sum = |kind: &str, how: &str| -> u64 {
        let of = status.objects.iter().filter(|of| of.kind == kind);
        of.map(|of| of.calls[how]).sum()
    };
    assert_eq!(status.objects.len(), 9, "{:?}", status.objects);
    assert!(sum("merged", "merge") > 2000 && sum("owned", "get") > 20);
    let objects = |kind: &str| -> u64 {
        let of = status.objects.iter().filter(|of| of.kind == kind);
        of.map(|of| of.objects).sum()
    };
    assert_eq!(objects("merged"), 1);
    let moves: u64 = status.objects.iter().map(|of| of.moves).sum();
    assert!(moves > 0, "the one goes from runtime to runtime");
    let table = status.to_string();
    assert!(
        table.contains("tally/merged") && table.contains("tally/owned"),
        "{table}"
    );
    let metrics = flowkeep::metrics::text(&snapshot);
    assert!(metrics.contains("flowkeep_shared_object_moves_total{function=\"tally\",kind=\"owned\""));
    for runtime in [0, 2] {
        site.remove(runtime);
        site.adds_up(&format!("without runtime {runtime}"), 0);
        assert_eq!(site.cluster.add_runtime(Some(runtime)), Ok(runtime));
        site.share_with(runtime);
        site.adds_up(&format!("with runtime {runtime} again"), 0);
    }
    // Calls that a killed runtime had merged within the last 10 ms, or was about to count, go with
    // it.
    let before = site.counted();
    site.cluster.kill_runtime(1).unwrap();
    until("more packets", || site.counted()[0] > before[0] + 6000);
    site.adds_up("without the one that was killed", 2000);
    drop(site);
    assert!(!running.wait(|_| {}).broken_off);
}
