//! Packets that wait for variables that are written through.

use super::spread::{Cluster, cluster};
use super::stored::Shop;
use super::*;
use crate::mobility::{MoveOrder, Selector};
use nf::variables::{Consistency, Counter, Options, Variables};
use nf::{Cx, Packet, Verdict, WorkerInfo, network_function};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

const MS: u64 = 1_000_000;
/// The wish of a packet, in its first byte.
const NOTHING: u8 = 0;
const THROUGH: u8 = 1;
const BEHIND: u8 = 2;
const DROPPED: u8 = 3;
const ANSWERED: u8 = 4;

/// A counter that is written through, and a counter that is not. `LATER`: its calls wait a
/// millisecond first, and another behind the change.
struct Book<const LATER: bool>([Counter; 2]);

impl<const LATER: bool> Book<LATER> {
    fn open(variables: &mut Variables) -> Result<Self, ConfigError> {
        let mut open = |name, consistency| {
            let options = Options {
                capacity: 1,
                consistency,
            };
            variables.counter(name, options)
        };
        Ok(Book([
            open("behind", Consistency::USUAL)?,
            open("through", Consistency::THROUGH)?,
        ]))
    }

    fn count(&self, what: u8) {
        match what {
            NOTHING => {}
            BEHIND => drop(self.0[0].add(1)),
            _ => drop(self.0[1].add(1)),
        }
    }
}

#[network_function]
impl NetworkFunction for Book<false> {
    const NAME: &'static str = "book";
    const REASONS: &'static [&'static str] = &["asked"];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        unreachable!("it has variables")
    }
    fn with_variables(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        Self::open(variables)
    }
    fn process(&self, packet: &mut Packet, (): &mut (), cx: &mut Cx<Self>) -> Verdict {
        let what = packet.payload()[0];
        self.count(what);
        match what {
            DROPPED => cx.drop("asked"),
            ANSWERED => Verdict::Answer,
            _ => Verdict::Forward,
        }
    }
    fn command(&self, _: &[&str]) -> Result<std::string::String, std::string::String> {
        Ok(std::format!("{}", self.0[1].get()))
    }
}

#[network_function]
impl NetworkFunction for Book<true> {
    const NAME: &'static str = "book";
    const BEGINS_AGAIN: bool = true;
    const REASONS: &'static [&'static str] = &["asked"];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        unreachable!("it has variables")
    }
    fn with_variables(
        _: &Arc<NoConfig>,
        _: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        Self::open(variables)
    }
    async fn process(&self, packet: &mut Packet, (): &mut (), cx: &mut Cx<Self>) -> Verdict {
        let what = packet.payload()[0];
        cx.sleep(Duration::from_millis(1)).await;
        self.count(what);
        cx.sleep(Duration::from_millis(1)).await;
        match what {
            DROPPED => cx.drop("asked"),
            ANSWERED => Verdict::Answer,
            _ => Verdict::Forward,
        }
    }
    fn command(&self, _: &[&str]) -> Result<std::string::String, std::string::String> {
        Ok(std::format!("{}", self.0[1].get()))
    }
}

/// A runtime, its store and its time.
struct Bench {
    runtime: Runtime<QueuePort>,
    shop: Shop,
    now: u64,
}

impl Bench {
    fn of<F: NetworkFunction<Config = NoConfig>>() -> Self {
        let shop = Shop::default();
        let plan = plan(vec![factory::<F>()]).keeping(shop.keeper());
        let links = vec![QueuePort::default()];
        let runtime = Runtime::new(Settings::alone(512), plan, links, pool(512, 0), Region::heap).unwrap();
        Bench {
            runtime,
            shop,
            now: 100 * MS,
        }
    }

    fn send(&mut self, host: u8, what: u8) {
        let packet = udp(host, 1, 1, 80, false, &[what]);
        self.runtime.links_mut()[0].input.push_back(packet);
    }

    /// Some milliseconds.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms * 4 {
            self.now += MS / 4;
            self.runtime.step(self.now);
        }
    }

    /// Packets that passed, and calls that wait.
    fn told(&mut self) -> (u64, u64) {
        let stats = self.runtime.stats();
        (stats.passed, stats.waiting)
    }
}

fn what_changes_waits<F: NetworkFunction<Config = NoConfig>>() {
    let mut bench = Bench::of::<F>();
    bench.shop.with(|shop| shop.is_down = true);
    for (host, what) in [
        (1, THROUGH),
        (2, NOTHING),
        (3, BEHIND),
        (4, DROPPED),
        (5, ANSWERED),
    ] {
        bench.send(host, what);
    }
    bench.pass(10);
    assert_eq!(bench.told(), (2, 2), "nothing, and behind");
    // Behind the first of its flow, and by itself.
    bench.send(1, NOTHING);
    bench.send(6, NOTHING);
    bench.pass(2000);
    assert_eq!(bench.told(), (3, 2), "however long the store is down");
    bench.shop.with(|shop| shop.is_down = false);
    bench.pass(10);
    assert_eq!(bench.told().1, 0);
    let stats = bench.runtime.stats();
    assert_eq!((stats.untold, stats.dropped.len()), (0, 1), "{:?}", stats.dropped);
    assert_eq!((stats.dropped[0].name, stats.dropped[0].count), ("asked", 1));
    assert_eq!(
        bench.runtime.command("book", &[]).unwrap(),
        "3",
        "each change once"
    );
    assert_conserved(&bench.runtime);
}

#[test]
fn a_packet_waits_until_the_store_has_what_its_call_has_changed() {
    what_changes_waits::<Book<false>>();
}

#[test]
fn so_does_one_whose_call_has_waited_before() {
    what_changes_waits::<Book<true>>();
}

/// Later changes of other packets are not waited for.
#[test]
fn a_packet_goes_on_with_the_acknowledgement_of_its_own_change() {
    let mut bench = Bench::of::<Book<false>>();
    // A batch is four steps on its way, there and back.
    bench.shop.with(|shop| shop.delay = [2, 2]);
    let mut most = 0;
    for n in 0..200u64 {
        bench.send(n as u8, THROUGH);
        bench.now += MS / 4;
        bench.runtime.step(bench.now);
        most = most.max(bench.told().1);
    }
    assert!((2..16).contains(&most), "{most} calls waited at once");
    bench.pass(10);
    assert_eq!(bench.told(), (200, 0));
    assert_conserved(&bench.runtime);
}

#[test]
fn a_packet_whose_change_will_not_be_stored_is_a_counted_drop() {
    for bench in [Bench::of::<Book<false>>(), Bench::of::<Book<true>>()] {
        let mut bench = bench;
        bench.shop.with(|shop| shop.is_fenced = true);
        for (host, what) in [(1, THROUGH), (2, NOTHING), (3, BEHIND)] {
            bench.send(host, what);
        }
        bench.pass(10);
        assert_eq!(bench.told(), (2, 0));
        let stats = bench.runtime.stats();
        assert_eq!(
            (stats.dropped[0].name, stats.dropped[0].count),
            ("store_fenced", 1)
        );
        assert_conserved(&bench.runtime);
    }
}

/// Calls that sleep go on meanwhile.
fn rest(cluster: &mut Cluster) {
    for _ in 0..4 {
        cluster.now += MS;
        cluster.run_until_quiet();
    }
}

/// A call that were begun again at the target would count once more.
#[test]
fn a_group_stays_until_the_store_has_answered_and_its_change_is_made_once() {
    let shop = Shop::default();
    let plan = plan(vec![factory::<Book<true>>()]).keeping(shop.keeper());
    let mut cluster: Cluster = cluster(1, 2, crate::switch::Policy::RoundRobin, &plan, 64);
    shop.with(|shop| shop.is_down = true);
    cluster.feed(0, [udp(1, 1, 1, 80, false, &[THROUGH])]);
    rest(&mut cluster);
    let waiting = |cluster: &Cluster, at: usize| cluster.runtimes[at].stats().waiting;
    let from = (0..2).find(|at| waiting(&cluster, *at) == 1).unwrap();
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1 - from as u16],
    };
    cluster.runtimes[from].order(order).unwrap();
    rest(&mut cluster);
    assert_eq!((waiting(&cluster, from), waiting(&cluster, 1 - from)), (1, 0));
    shop.with(|shop| shop.is_down = false);
    rest(&mut cluster);
    assert_eq!((waiting(&cluster, from), cluster.sent().len()), (0, 1));
    let count = |cluster: &mut Cluster, at: usize| cluster.runtimes[at].command("book", &[]).unwrap();
    assert_eq!(
        (count(&mut cluster, from), count(&mut cluster, 1 - from)),
        ("1".into(), "0".into())
    );
    cluster.check();
}
