//! Copies are bytes: a replica's instance gets no call of its contract about a flow, until that
//! flow's runtime fails.
//!
//! ```text
//!   0, 1: flows begin, change, move, end ── bases, changes, ends ──► 2: no call
//!   1 fails ───────────────────────────────────────────────────────► 2: arrived(Recovered)
//! ```
//!
//! Not here: the code of a state's type, which looks at bytes without an instance (`hostile`).

use super::groups::Leaser;
use super::sessions::{Members, SECOND};
use super::*;
use crate::mobility::{MoveOrder, Selector};
use crate::switch::Policy;
use nf::{
    Affinity, Arrival, Block, BlockWas, Cx, Departure, FlowState, Keep, Loan, Packet, PoolState, Recall,
    TimerCx, Verdict, WorkerInfo, network_function,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::vec;
use wire::FlowKey;

std::thread_local! {
    /// By runtime and call, how often its instances had it.
    static CALLS: RefCell<BTreeMap<(u16, &'static str), u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Calls of a worker to its instances whether they have flows or not.
const ANY_TIME: [&str; 2] = ["pool", "next_timer"];

/// Notes each call but an operator's; a timer is due a millisecond behind each packet.
struct Witness {
    runtime: u16,
    timer_at: Cell<Option<u64>>,
}

impl Witness {
    fn note(&self, call: &'static str) {
        CALLS.with_borrow_mut(|calls| *calls.entry((self.runtime, call)).or_default() += 1);
    }
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Passed {
    packets: u64,
}

#[network_function]
impl NetworkFunction for Witness {
    const NAME: &'static str = "witness";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    type Config = NoConfig;
    type Flow = Passed;
    type Group = Passed;
    fn new(_: &Arc<NoConfig>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        let witness = Witness {
            runtime: worker.runtime,
            timer_at: Cell::new(None),
        };
        witness.note("new");
        Ok(witness)
    }
    fn process(&self, _: &mut Packet, flow: &mut Passed, cx: &mut Cx<Self>) -> Verdict {
        self.note("process");
        flow.packets += 1;
        cx.group().packets += 1;
        self.timer_at.set(Some(cx.wall_ms() + 1));
        Verdict::Forward
    }
    fn prefetch(&self, _: &Packet) {
        self.note("prefetch");
    }
    fn prefetch_moving(&self, _: &Passed, _: &FlowKey, _: bool) {
        self.note("prefetch_moving");
    }
    fn arrived(&self, _: &mut Passed, why: Arrival, _: &mut Cx<Self>) {
        self.note(match why {
            Arrival::New => "arrived_new",
            Arrival::Migrated => "arrived_migrated",
            Arrival::Recovered => "arrived_recovered",
        });
    }
    fn departed(&self, _: &Passed, why: Departure, _: &mut Cx<Self>) {
        self.note(match why {
            Departure::Expired => "departed_expired",
            Departure::Migrated => "departed_migrated",
        });
    }
    fn timeout(&self, _: &Passed) -> Option<Duration> {
        self.note("timeout");
        None
    }
    fn group_timeout(&self, _: &Passed) -> Duration {
        self.note("group_timeout");
        Duration::from_secs(10)
    }
    fn group_ended(&self, _: &mut Passed, _: &mut Cx<Self>) {
        self.note("group_ended");
    }
    fn block_returned(&self, _: Block) {
        self.note("block_returned");
    }
    fn block_in_use(&self, _: Block) -> BlockWas {
        self.note("block_in_use");
        BlockWas::Anothers
    }
    fn pool(&self) -> Option<PoolState> {
        self.note("pool");
        None
    }
    fn lend_blocks(&self, _: &Loan, _: &mut dyn FnMut(Block)) {
        self.note("lend_blocks");
    }
    fn borrow_block(&self, _: Block, _: u16) -> bool {
        self.note("borrow_block");
        false
    }
    fn forsake_block(&self, _: Block) {
        self.note("forsake_block");
    }
    fn pools_heard(&self, _: Option<(u32, u32)>) {
        self.note("pools_heard");
    }
    fn take_over(&self, _: &Self) {
        self.note("take_over");
    }
    fn configured(&self, _: &mut Passed, _: &mut Cx<Self>) -> Keep {
        self.note("configured");
        Keep::Keep
    }
    fn recovered_of_before(&self, _: &mut Passed, _: &mut Cx<Self>) -> Keep {
        self.note("recovered_of_before");
        Keep::Keep
    }
    fn generation(&self) -> u32 {
        self.note("generation");
        0
    }
    fn recall(&self) -> Recall {
        self.note("recall");
        Recall::Nothing
    }
    fn next_timer(&self) -> Option<u64> {
        self.note("next_timer");
        self.timer_at.get()
    }
    fn timer_due(&self, _: &mut TimerCx<Self>) {
        self.note("timer_due");
        self.timer_at.set(None);
    }
}

fn called(runtime: u16, call: &'static str) -> u64 {
    CALLS.with_borrow(|calls| calls.get(&(runtime, call)).copied().unwrap_or(0))
}

/// All calls of a runtime's instances, but those of any time.
fn calls(runtime: u16) -> BTreeMap<&'static str, u64> {
    CALLS.with_borrow(|calls| {
        let of_it = calls
            .iter()
            .filter(|((of, call), _)| *of == runtime && !ANY_TIME.contains(call));
        of_it.map(|((_, call), count)| (*call, *count)).collect()
    })
}

/// A packet of each of these hosts, from a port.
fn feed(members: &mut Members, hosts: core::ops::Range<u8>, port: u16) {
    members.feed(0, hosts.map(|host| udp(host, port, 1, 80, false, &[0; 8])));
}

/// The runtime that keeps copies, and has no flow.
const REPLICA: u16 = 2;

/// Flows of the other two, and the copies of all of them.
fn flows_and_copies(members: &mut Members) -> (u64, u64) {
    let flows = members.flows();
    let replica = members.runtime(REPLICA.into()).stats();
    assert_eq!(replica.flows, 0);
    (flows[0] + flows[1], replica.copies)
}

#[test]
fn a_replica_calls_no_function_before_the_primary_fails() {
    CALLS.set(BTreeMap::new());
    let plan = plan(vec![factory::<Leaser>(), factory::<Witness>()]);
    let mut members = Members::none(1, 3, Policy::LeastLoaded, plan);
    members.is_replicated = true;
    members.replica_ranks = vec![
        vec![None, None, Some(0)],
        vec![None, None, Some(0)],
        vec![Some(0), Some(0), None],
    ];
    (0..4).for_each(|worker| members.start(worker));
    members.run_until_quiet();
    // The replica begins when there are flows: bases have these.
    members.stop(3);
    members.run_until_quiet();
    feed(&mut members, 1..9, 1000);
    members.start(3);
    members.run_until_quiet();
    members.runtime(REPLICA.into()).set_leaving(true);
    members.run_until_quiet();
    assert_eq!(flows_and_copies(&mut members), (8, 8));
    let begun = calls(REPLICA);
    // Which blocks are in use an instance hears as it begins.
    let is_of_its_begin = |call: &&str| ["new", "block_in_use"].contains(call);
    assert!(begun.keys().all(is_of_its_begin), "{begun:?}");
    // Changes of flows and groups, flows that begin, and groups that move.
    feed(&mut members, 1..9, 1000);
    feed(&mut members, 1..9, 1001);
    assert_eq!(flows_and_copies(&mut members), (16, 16));
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![1],
    };
    members.runtime(0).order(order).unwrap();
    members.run_until_quiet();
    assert_eq!(members.flows(), [0, 16, 0]);
    assert_eq!(flows_and_copies(&mut members), (16, 16));
    // All but three flows end, and then the groups of five hosts.
    for _ in 0..5 {
        members.now += 6 * SECOND;
        members.run_until_quiet();
        feed(&mut members, 1..4, 1000);
    }
    assert_eq!(flows_and_copies(&mut members), (3, 3));
    assert_eq!(members.runtime(1).stats().groups, 3);
    assert_eq!(calls(REPLICA), begun);
    // The primaries' instances had these calls.
    for call in [
        "process",
        "prefetch",
        "prefetch_moving",
        "arrived_new",
        "arrived_migrated",
        "departed_expired",
        "departed_migrated",
        "timeout",
        "group_timeout",
        "group_ended",
        "timer_due",
    ] {
        assert!(called(0, call) + called(1, call) > 0, "{call}");
    }
    members.stop(2);
    members.run_until_quiet();
    assert_eq!(members.runtime(REPLICA.into()).stats().recovered, [3, 0]);
    assert_eq!(called(REPLICA, "arrived_recovered"), 3);
    feed(&mut members, 1..4, 1000);
    assert_eq!(called(REPLICA, "process"), 3);
    members.assert_nothing_stays();
}
