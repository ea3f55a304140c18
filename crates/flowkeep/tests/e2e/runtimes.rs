//! Runtimes that are added and removed while packets flow: no packet is lost, every figure adds up,
//! and impossible requests are refused in words.

use crate::cluster::{finish, start};
use adapters::open::Ports;
use flowkeep::cluster::{Cluster, PortStats};
use flowkeep::moving::{Leaving, Order, Receipt};
use flowkeep::tables::{Gone, whole};
use nf::table::Value;
use nf::{
    Affinity, ConfigError, Cx, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// A folder of its own with a profile of traffic, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowkeep-runtimes-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        // As fast as workers take it: a generator by the clock goes on while the machine does
        // something else, and its packets meanwhile have no room.
        let profile = "flows = 2000\nrate = { total = 30000.0 }\nseconds_max = 1e6\n\
                       sources = [\"10.0.0.0/23\"]\nsource_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\n\
                       destination_ports = [443, 80]\nseed = 3\n[[classes]]\nshare = 1.0\ntcp = 0.0\n";
        std::fs::write(path.join("profile.toml"), profile).unwrap();
        Folder(path)
    }

    /// Translated flows from inside to outside, of a generator that outlasts the test.
    fn toml(&self, runtimes: u16, most: u16, switches: u16) -> String {
        format!(
            "clock = \"machine\"\nruntimes = {runtimes}\nruntimes_max = {most}\nswitches = {switches}\nflows_max = 20000\n\
             [[port]]\nname = \"inside\"\nside = \"inside\"\ninput = \"generate:{}\"\n\
             [[port]]\nname = \"outside\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n[function.nat]\npool = [\"203.0.113.0/27\"]\n",
            self.0.join("profile.toml").display()
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn flows(cluster: &Arc<dyn Cluster>) -> Vec<u64> {
    let snapshot = cluster.snapshot();
    snapshot.runtimes.iter().map(|runtime| runtime.flows).collect()
}

fn sent(cluster: &Arc<dyn Cluster>) -> u64 {
    let ports = cluster.snapshot().ports;
    ports
        .iter()
        .map(|port: &PortStats| port.counters.sent_packets)
        .sum()
}

fn carry_out(cluster: &Arc<dyn Cluster>, order: &Order) -> Receipt {
    let parts = cluster.order(order).unwrap();
    let mut receipt = Receipt::default();
    until("the end of an order", || {
        receipt = cluster.receipt(&parts).unwrap();
        receipt.over
    });
    receipt
}

/// As the tool does it.
fn remove(cluster: &Arc<dyn Cluster>, runtime: u16) -> Receipt {
    cluster.set_leaving(runtime, Leaving::Drained).unwrap();
    let mut whole = Receipt::empty();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let order = Order {
            from: Some(runtime),
            ..Order::default()
        };
        let receipt = carry_out(cluster, &order);
        whole.add_later(&receipt);
        let removal = cluster.remove_runtime(runtime).unwrap();
        if removal.done {
            return whole;
        }
        assert!(Instant::now() < deadline, "{removal:?}, behind {receipt:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn runtimes_come_and_go_under_load_and_no_packet_is_lost() {
    for switches in [1, 2] {
        let folder = Folder::new(&format!("load-{switches}"));
        let (running, lines) = start(&folder.toml(2, 3, switches), Ports::new());
        let cluster: Arc<dyn Cluster> = running.cluster();
        let driver = Arc::clone(&cluster);
        let come_and_go = std::thread::spawn(move || {
            let stops = Stops(driver);
            let cluster = &stops.0;
            until("flows", || flows(cluster).iter().sum::<u64>() > 1500);
            let mut last = flows(cluster);
            assert_eq!((last.len(), last[2]), (3, 0));
            assert_eq!(cluster.snapshot().absent, [2]);
            for round in 0..3 {
                // Each of them goes and comes, the first, too.
                let number = [2, 0, 1][round];
                if number != 2 {
                    let receipt = remove(cluster, number);
                    assert!(
                        receipt.flows_moved >= last[usize::from(number)] / 2,
                        "{receipt:?} of {last:?}"
                    );
                    assert_eq!((receipt.flows_refused, receipt.flows_failed), (0, 0));
                    assert_eq!(cluster.snapshot().absent, [number]);
                    let names: Vec<_> = cluster
                        .threads()
                        .into_iter()
                        .flat_map(|thread| thread.workers)
                        .collect();
                    assert!(!names.contains(&format!("runtime {number}")), "{names:?}");
                    assert!(
                        cluster
                            .order(&Order {
                                to: vec![number],
                                ..Order::default()
                            })
                            .is_err()
                    );
                    let (before, _) = (sent(cluster), cluster.flows(Default::default(), 10));
                    until("packets", || sent(cluster) > before + 100);
                }
                assert_eq!(cluster.add_runtime((round > 0).then_some(number)), Ok(number));
                assert!(cluster.snapshot().absent.is_empty());
                let share = Order {
                    one_in: Some(3),
                    to: vec![number],
                    ..Order::default()
                };
                let receipt = carry_out(cluster, &share);
                assert!(receipt.flows_moved > 200, "{receipt:?}");
                assert_eq!(
                    receipt.packets_dropped + receipt.flows_failed + receipt.flows_refused,
                    0
                );
                last = flows(cluster);
                assert!(last[usize::from(number)] > 200, "{last:?}");
            }
        });
        let outcome = running.wait(|_| {});
        come_and_go.join().expect("nothing fails");
        let ran = finish(outcome, &lines, &format!("{switches} switches"));
        let packets = ran.snapshot.packets();
        assert_eq!(packets.dropped_total(), 0, "{:?}", packets.dropped);
        assert!(
            packets.received > 5000 && packets.received == packets.sent,
            "{packets:?}"
        );
    }
}

/// With copies or without, while packets come as fast as workers take them: every packet is out or
/// a counted drop, and no buffer is missing.
#[test]
fn runtimes_are_killed_under_load_and_every_packet_is_accounted_for() {
    for (switches, policy) in [(1, "commit"), (2, "snapshot"), (2, "none")] {
        let folder = Folder::new(&format!("killed-{policy}"));
        let text = format!(
            "{}[replication]\npolicy = \"{policy}\"\n",
            folder.toml(2, 3, switches)
        );
        let (running, lines) = start(&text, Ports::new());
        let cluster: Arc<dyn Cluster> = running.cluster();
        let driver = Arc::clone(&cluster);
        let kills = std::thread::spawn(move || {
            let stops = Stops(driver);
            let cluster = &stops.0;
            until("flows", || flows(cluster).iter().sum::<u64>() > 1500);
            for number in [1, 0, 1, 0] {
                let is_protected = || {
                    let snapshot = cluster.snapshot();
                    policy == "none" || snapshot.runtimes[usize::from(number)].protected_by.is_some()
                };
                until("copies", is_protected);
                let killed = cluster.kill_runtime(number).unwrap();
                assert!(killed.flows > 0, "{killed:?}");
                assert_eq!(killed.protected_flows > 0, policy != "none", "{killed:?}");
                assert_eq!(cluster.snapshot().absent, [number, 2]);
                assert!(cluster.kill_runtime(number).unwrap_err().contains("is not there"));
                let before = sent(cluster);
                until("packets", || sent(cluster) > before + 5000);
                assert_eq!(cluster.add_runtime(Some(number)), Ok(number));
                let came = || flows(cluster)[usize::from(number)] > 0;
                if policy == "none" {
                    let order = Order {
                        one_in: Some(2),
                        to: vec![number],
                        ..Order::default()
                    };
                    carry_out(cluster, &order);
                    until("its share", came);
                }
            }
        });
        let outcome = running.wait(|_| {});
        kills.join().expect("nothing fails");
        let ran = finish(outcome, &lines, &format!("{switches} switches, {policy}"));
        let dropped = ran.snapshot.packets().dropped;
        println!("{policy}: {dropped:?}");
        // A switch drops packets for a runtime whose ring is full while another has room.
        let known = ["runtime_failed", "recovery_full", "replica_full", "runtime_busy"];
        let is_known = |(function, name): &(String, &str)| function.is_empty() && known.contains(name);
        assert!(dropped.keys().all(is_known), "{policy}: {dropped:?}");
        let recovered: u64 = ran
            .snapshot
            .runtimes
            .iter()
            .map(|runtime| runtime.recovered[0])
            .sum();
        assert_eq!(recovered > 1000, policy != "none", "{recovered}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let folder = Folder::new("refusals");
    let (running, lines) = start(&folder.toml(2, 3, 1), Ports::new());
    let cluster: Arc<dyn Cluster> = running.cluster();
    until("flows", || flows(&cluster).iter().sum::<u64>() > 1500);
    let refused = |result: Result<u16, String>| result.unwrap_err();
    assert!(refused(cluster.add_runtime(Some(1))).contains("runtime 1 is there already"));
    assert!(refused(cluster.add_runtime(Some(3))).contains("there may be 3 runtimes"));
    let not_drained = cluster.remove_runtime(1).unwrap_err();
    assert!(not_drained.contains("is not drained"), "{not_drained}");
    assert!(
        cluster
            .remove_runtime(2)
            .unwrap_err()
            .contains("runtime 2 is not there")
    );
    assert!(cluster.remove_runtime(9).is_err());
    assert!(cluster.set_leaving(2, Leaving::Drained).is_err());
    // Drained, and its flows are still there: it says so, and can be resumed.
    cluster.set_leaving(1, Leaving::Drained).unwrap();
    let rest = cluster.remove_runtime(1).unwrap();
    assert!(!rest.done && rest.flows > 0, "{rest:?}");
    assert!(
        cluster.set_leaving(0, Leaving::Drained).is_err(),
        "the last one stays"
    );
    cluster.set_leaving(1, Leaving::Resumed).unwrap();
    assert_eq!(cluster.add_runtime(None), Ok(2));
    let all = refused(cluster.add_runtime(None));
    assert!(all.contains("runtimes_max = 4"), "{all}");
    cluster.stop();
    finish(running.wait(|_| {}), &lines, "refusals");
}

/// Ends a cluster when the test is done with it, or has failed.
struct Stops(Arc<dyn Cluster>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Each drain looks whether another runtime takes flows, and drains its own, in one step: the
/// second sees the first one's drain.
#[test]
fn two_who_drain_at_the_same_moment_leave_one_that_takes_flows() {
    const ROUNDS: u32 = 100;
    let folder = Folder::new("both");
    let (running, _lines) = start(&folder.toml(2, 2, 1), Ports::new());
    let cluster: Arc<dyn Cluster> = running.cluster();
    let driver = Arc::clone(&cluster);
    let drains = std::thread::spawn(move || {
        let stops = Stops(driver);
        let cluster = &stops.0;
        let both = std::sync::Barrier::new(2);
        for round in 0..ROUNDS {
            let drain = |runtime: u16| {
                both.wait();
                cluster.set_leaving(runtime, Leaving::Drained)
            };
            let said = std::thread::scope(|scope| {
                let other = scope.spawn(|| drain(1));
                [drain(0), other.join().unwrap()]
            });
            let drained: Vec<usize> = (0..2).filter(|runtime| said[*runtime].is_ok()).collect();
            let leaving = cluster.snapshot().runtimes.iter().filter(|r| r.leaving).count();
            assert_eq!((drained.len(), leaving), (1, 1), "round {round}: {said:?}");
            let refused = said.iter().find_map(|said| said.as_ref().err()).unwrap();
            assert!(refused.contains("no other runtime takes the flows"), "{refused}");
            cluster.set_leaving(drained[0] as u16, Leaving::Resumed).unwrap();
        }
    });
    let outcome = running.wait(|_| {});
    drains.join().unwrap();
    assert!(!outcome.broken_off);
}

/// The hits of a rule over all runtimes, those that are gone included, equal the flows allowed.
#[test]
fn hits_of_rules_stay_when_runtimes_go() {
    let folder = Folder::new("hits");
    let rule = "[[function.firewall.rules]]\nname = \"out\"\naction = \"allow\"\n";
    let toml = folder.toml(3, 3, 1).replace("[\"nat\"]", "[\"firewall\"]") + rule;
    let toml = toml.replace("[function.nat]\npool = [\"203.0.113.0/27\"]\n", "");
    let (running, _lines) = start(&toml, Ports::new());
    let stops = Stops(running.cluster());
    let cluster = &stops.0;
    until("flows", || flows(cluster).iter().all(|flows| *flows > 100));
    let allowed = || {
        let snapshot = cluster.snapshot();
        let named = snapshot.runtimes.iter().flat_map(|runtime| &runtime.counters);
        let named = named.filter(|named| named.name == "flows_allowed");
        named.map(|named| named.count).sum::<u64>()
    };
    let add_up = |gone: &[(u16, Gone)]| {
        let before = allowed();
        let answers = cluster.command("firewall", &["rules"]).unwrap();
        let after = allowed();
        let sum = whole(&answers).unwrap();
        let Value::Number(hits) = sum.rows[0][0] else {
            panic!("{sum:?}")
        };
        assert!(
            (before..=after).contains(&hits),
            "{before}, {hits}, {after} with {gone:?}"
        );
        let told = answers.iter().filter_map(|told| Some((told.runtime, told.gone?)));
        assert_eq!(told.collect::<Vec<_>>(), gone);
    };
    add_up(&[]);
    remove(cluster, 2);
    add_up(&[(2, Gone::Removed)]);
    cluster.kill_runtime(1).unwrap();
    add_up(&[(1, Gone::Failed), (2, Gone::Removed)]);
    for number in [1, 2] {
        until("a place", || cluster.add_runtime(Some(number)).is_ok());
    }
    add_up(&[(1, Gone::Failed)]);
    cluster.kill_runtime(1).unwrap();
    add_up(&[(1, Gone::Failed)]);
    drop(stops);
    running.wait(|_| {});
}

/// Passes everything; one of its instances is refused ([`MADE_BEFORE`]).
struct Picky;

/// How many instances of [`Picky`] are still made before one is refused; below zero, no instance is
/// refused.
static MADE_BEFORE: AtomicI32 = AtomicI32::new(-1);

#[network_function]
impl NetworkFunction for Picky {
    const NAME: &'static str = "picky";
    const AFFINITY: Affinity = Affinity::Flow;
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        match MADE_BEFORE.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(ConfigError::new("", "there is no memory", "add some")),
            _ => Ok(Picky),
        }
    }

    fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
}

#[test]
fn a_runtime_that_cannot_begin_leaves_its_place() {
    let folder = Folder::new("picky");
    let text = format!(
        "clock = \"machine\"\nruntimes = 1\nruntimes_max = 2\nflows_max = 20000\n\
         [[port]]\nname = \"inside\"\nside = \"inside\"\ninput = \"generate:{}\"\n\
         [[chain]]\nname = \"out\"\nfunctions = [\"picky\"]\n",
        folder.0.join("profile.toml").display()
    );
    let registry = flowkeep::registry![Picky];
    let config = flowkeep::config::parse("picky.toml", &text, &registry).unwrap();
    let running = flowkeep::run::start_with(config, Ports::new(), None).unwrap();
    let stops = Stops(running.cluster());
    let cluster = &stops.0;
    // Whichever of the instances that it takes is refused.
    for before in 0..2 {
        MADE_BEFORE.store(before, Ordering::Relaxed);
        if let Err(said) = cluster.add_runtime(None) {
            assert!(
                said.starts_with("runtime 1 cannot begin") && said.contains("there is no memory; add some"),
                "{said}"
            );
            continue;
        }
        MADE_BEFORE.store(-1, Ordering::Relaxed);
        remove(cluster, 1);
    }
    MADE_BEFORE.store(-1, Ordering::Relaxed);
    assert_eq!(cluster.add_runtime(None), Ok(1));
    remove(cluster, 1);
    drop(stops);
    assert!(!running.wait(|_| {}).broken_off);
}

/// Tells of every packet.
struct Talker;

#[network_function]
impl NetworkFunction for Talker {
    const NAME: &'static str = "talker";
    const AFFINITY: Affinity = Affinity::Flow;
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Talker)
    }

    fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        cx.event("passed", format_args!("\"text\":\"{:60}\"", ""));
        Verdict::Forward
    }
}

/// A file that takes nothing as long as another thread has it.
struct Stuck(Arc<std::sync::Mutex<()>>);

impl std::io::Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _free = self.0.lock().unwrap();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lines that its replica knows of have left a runtime before it is killed, though the file takes
/// none for a while: nothing else would tell of them.
#[test]
fn a_runtime_is_killed_behind_its_lines() {
    let folder = Folder::new("talker");
    let text = format!(
        "clock = \"machine\"\nruntimes = 2\nflows_max = 20000\n\
         [[port]]\nname = \"inside\"\nside = \"inside\"\ninput = \"generate:{}\"\n\
         [[chain]]\nname = \"out\"\nfunctions = [\"talker\"]\n[replication]\npolicy = \"commit\"\n",
        folder.0.join("profile.toml").display()
    );
    let registry = flowkeep::registry![Talker];
    let config = flowkeep::config::parse("talker.toml", &text, &registry).unwrap();
    let file = Arc::new(std::sync::Mutex::new(()));
    let held = file.lock().unwrap();
    let events = flowkeep::run::Events::to("stuck", Box::new(Stuck(file.clone())));
    let running = flowkeep::run::start_with(config, Ports::new(), Some(events)).unwrap();
    let stops = Stops(running.cluster());
    let cluster = &stops.0;
    // The writer, and the queues to it, are full.
    let lost = || {
        let runtimes = cluster.snapshot().runtimes;
        runtimes.iter().all(|runtime| runtime.events_lost > 0)
    };
    until("a full log", lost);
    let said = cluster.kill_runtime(1).unwrap_err();
    assert!(said.contains("runtime 1 was not killed"), "{said}");
    drop(held);
    assert!(cluster.kill_runtime(1).unwrap().flows > 0);
    drop(stops);
    assert!(!running.wait(|_| {}).broken_off);
}
