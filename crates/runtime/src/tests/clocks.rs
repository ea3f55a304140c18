//! Groups that move between runtimes whose clocks differ, as those of two hosts do.

use super::groups::assert_nothing_stays;
use super::spread::{Cluster, cluster_of_clocks};
use super::*;
use crate::mobility::{MoveOrder, Receipt, Selector};
use nf::{Affinity, Arrival, Cx, FlowState, Packet, Tick, Time, Verdict, WorkerInfo, network_function};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

const SECOND: u64 = 1_000_000_000;
pub(super) const HOUR: u64 = 3600 * SECOND;
/// How long a flow lives without a packet where no function asks for anything: `Settings::alone`.
const TIMEOUT: u64 = 300 * SECOND;
/// Longer than a test takes by its clock.
const LONG: Duration = Duration::from_secs(10);

/// Remembers when flows and groups began, and counts where that is not a moment ago.
pub(super) struct Clocked;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Began {
    at: Time,
    tick: Tick,
    packets: u32,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct GroupBegan {
    at: [Time; 2],
}

#[network_function]
fn check(began: Time, cx: &mut Cx<Clocked>) {
    let age = cx.now() - began;
    if began.is_never() || age.is_zero() || age > LONG {
        cx.count("wrong_times");
    }
}

#[network_function]
impl NetworkFunction for Clocked {
    const NAME: &'static str = "clocked";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const COUNTERS: &'static [&'static str] = &["wrong_times", "looks"];
    type Config = NoConfig;
    type Flow = Began;
    type Group = GroupBegan;

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Clocked)
    }

    fn process(&self, _: &mut Packet, flow: &mut Began, cx: &mut Cx<Self>) -> Verdict {
        let now = cx.now();
        if cx.group().at[1].is_never() {
            cx.group().at[1] = now;
        }
        if flow.packets == 0 {
            (flow.at, flow.tick) = (now, now.tick());
        } else {
            self.arrived(flow, Arrival::Migrated, cx);
        }
        flow.packets += 1;
        Verdict::Forward
    }

    fn arrived(&self, flow: &mut Began, why: Arrival, cx: &mut Cx<Self>) {
        if why == Arrival::Migrated {
            cx.count("looks");
            check(flow.at, cx);
            if u128::from(cx.now().tick().milliseconds_since(flow.tick)) > LONG.as_millis() {
                cx.count("wrong_times");
            }
            let [never, group] = cx.group().at;
            check(group, cx);
            if !never.is_never() {
                cx.count("wrong_times");
            }
        }
    }
}

fn counter(cluster: &Cluster, name: &str) -> u64 {
    let all = cluster
        .runtimes
        .iter()
        .flat_map(|runtime| runtime.stats().counters);
    all.filter(|counter| counter.name == name)
        .map(|counter| counter.count)
        .sum()
}

fn move_all(cluster: &mut Cluster, from: usize, to: usize) -> Receipt {
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![to as u16],
    };
    let number = cluster.runtimes[from].order(order).unwrap();
    cluster.run_until_quiet();
    cluster.runtimes[from].receipt(number).unwrap()
}

#[test]
fn flows_that_move_between_clocks_are_as_old_as_they_are_and_live_as_long() {
    let plan = plan(vec![factory::<Clocked>()]);
    let mut cluster = cluster_of_clocks(1, &plan, 64, &[10 * HOUR, 0, 28 * 365 * 24 * HOUR]);
    let packets = || (0..8).map(|n| udp(1, 1000 + n, 1, 80, false, b"x"));
    cluster.feed(0, packets());
    let mut at = (0..3)
        .find(|at| cluster.runtimes[*at].stats().flows == 8)
        .unwrap();
    for to in [0, 1, 2, 1, 0, 2, 0] {
        if at == to {
            continue;
        }
        let receipt = move_all(&mut cluster, at, to);
        assert_eq!((receipt.moved, receipt.is_over), (8, true), "{receipt:?}");
        assert!(receipt.pause_longest < SECOND, "{receipt:?}");
        at = to;
        let flows = cluster.runtimes[at].flows(0, 100).0;
        assert_eq!(flows.len(), 8, "they have come to {at}");
        for flow in flows {
            assert!(
                (TIMEOUT - SECOND..=TIMEOUT).contains(&flow.expires_in),
                "{flow:?}"
            );
        }
        cluster.feed(0, packets());
        assert_eq!(cluster.runtimes[at].stats().flows, 8);
    }
    assert_eq!(counter(&cluster, "wrong_times"), 0);
    // Each flow with each arrival and each packet but the first.
    assert!(counter(&cluster, "looks") >= 2 * 6 * 8);
    // And they end when their time is over.
    assert_nothing_stays(&mut cluster);
}
