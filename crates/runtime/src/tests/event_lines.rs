//! Lines of the event log and copies: each flow's end is told once, whatever fails.

use super::failing::Process;
use super::groups::packet_of;
use super::{factory, plan};
use crate::env::LinkTo;
use nf::{
    ConfigError, Cx, Departure, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function,
};
use std::collections::BTreeMap;
use std::string::String;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

const SECOND: u64 = 1_000_000_000;

/// Tells of a flow when it ends.
struct Teller;

#[network_function]
impl NetworkFunction for Teller {
    const NAME: &'static str = "teller";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Teller)
    }
    fn process(&self, _: &mut Packet, _: &mut (), _: &mut Cx<Self>) -> Verdict {
        Verdict::Forward
    }
    fn departed(&self, _: &(), _: Departure, cx: &mut Cx<Self>) {
        let key = cx.opened_by();
        cx.event("ended", format_args!("\"text\":\"{key:?}\""));
    }
    fn timeout(&self, _: &()) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

/// Lines that have left, by what they tell.
fn told(process: &mut Process, all: &mut BTreeMap<String, u32>) {
    let mut lines = String::new();
    for runtime in process.runtimes.iter_mut().flatten() {
        runtime.take_events(&mut lines);
    }
    for line in lines.lines().filter(|line| line.contains("\"event\":\"ended\"")) {
        let flow = line.split("\"text\":").nth(1).unwrap();
        *all.entry(flow.into()).or_default() += 1;
    }
}

/// A flow ends while the replica stands still, and its runtime fails then: the heir goes on with
/// the flow and tells of its end. Had the failed one told of it, one flow would have two records.
#[test]
fn a_flow_has_one_record_though_its_runtime_fails_as_it_ends() {
    for rule in ["", "lines wait for copies"] {
        crate::replica::BROKEN.set(rule);
        let mut process = Process::new(1, 3, true, plan(vec![factory::<Teller>()]));
        process.feed(0, (1..7).map(packet_of));
        let mut all = BTreeMap::new();
        process.now += 11 * SECOND;
        // The switch, and the first and third runtimes: the first one's replica is the second.
        for worker in [0, 1, 3].into_iter().cycle().take(300) {
            process.now += 1000;
            process.step(worker);
            told(&mut process, &mut all);
        }
        assert_eq!(process.flows()[0], 0);
        let replica = process.runtimes[1].as_mut().unwrap();
        replica.each_link(|to, end| {
            if to == LinkTo::Runtime(0) {
                core::mem::forget(core::mem::take(&mut *end.incoming.borrow_mut()));
            }
        });
        process.fail(0);
        process.run_until_quiet();
        told(&mut process, &mut all);
        process.now += 30 * SECOND;
        process.run_until_quiet();
        told(&mut process, &mut all);
        assert_eq!(all.len(), 6, "{all:?}");
        assert_eq!(all.values().all(|lines| *lines == 1), rule.is_empty(), "{all:?}");
        crate::replica::BROKEN.set("");
    }
}

/// Lines wait for no replica that has gone, and a runtime that ends tells all.
#[test]
fn lines_leave_when_no_copies_are_kept_any_more() {
    let mut process = Process::new(1, 2, true, plan(vec![factory::<Teller>()]));
    process.feed(0, (1..5).map(packet_of));
    assert_eq!(process.flows(), [2, 2]);
    let mut all = BTreeMap::new();
    process.fail(1);
    process.run_until_quiet();
    process.now += 30 * SECOND;
    process.run_until_quiet();
    told(&mut process, &mut all);
    assert_eq!(all.len(), 4, "{all:?}");
    let mut process = Process::new(1, 2, true, plan(vec![factory::<Teller>()]));
    process.feed(0, (1..5).map(packet_of));
    all.clear();
    while !process.runtimes[0].as_mut().unwrap().finish(1) {}
    told(&mut process, &mut all);
    assert_eq!(all.len(), 2, "{all:?}");
}
