//! A source that is fenced, since another runtime was given its group: the target of the move hears
//! of that, and nothing of the move stays.

use super::flows::{Hosts, Masquerade, Meter};
use super::spread::{Cluster, cluster};
use super::*;
use crate::mobility::{MoveOrder, Selector};
use crate::switch::Policy;
use std::format;
use std::vec;
use std::vec::Vec;

const SECOND: u64 = 1_000_000_000;
const SOURCE: usize = 0;
const TARGET: usize = 1;

/// When the source gives its moves up, before it is fenced.
#[derive(Clone, Copy, PartialEq, Debug)]
enum CalledBack {
    Never,
    /// So many steps after the order.
    At(usize),
}

impl Cluster {
    fn one_step(&mut self, step: usize) {
        self.now += 1000;
        match step % 4 {
            0 => drop(self.runtimes[SOURCE].step(self.now)),
            2 => drop(self.runtimes[TARGET].step(self.now)),
            switch => drop(self.switches[switch / 2].step(self.now)),
        }
    }
}

fn packets(ports: core::ops::Range<u16>) -> impl Iterator<Item = (Side, Vec<u8>)> {
    ports.map(|port| udp((port % 10) as u8, port, 1, 80, false, b"x"))
}

/// No runtime has the groups, as none was given them here: their packets begin them again, and they
/// can move.
fn go_on(cluster: &mut Cluster, what: &str) {
    let before = cluster.sent().len();
    cluster.feed(0, packets(1000..1020));
    assert_eq!(cluster.sent().len(), before + 20, "{what}");
    for (from, to) in [(SOURCE, TARGET), (TARGET, SOURCE)] {
        cluster.runtimes[from].set_move_timeout(SECOND);
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![to as u16],
        };
        let number = cluster.runtimes[from].order(order).unwrap();
        cluster.run_until_quiet();
        let receipt = cluster.runtimes[from].receipt(number).unwrap();
        assert!(
            receipt.is_over && receipt.failed + receipt.refused == 0,
            "{receipt:?} {what}"
        );
    }
}

/// All of the source moves, and so many single steps later a home says of each group that is on its
/// way that another runtime has it.
fn fence_after(steps: usize, called_back: CalledBack, goes_on: bool, plan: &Plan) {
    let what = format!("after {steps}, called back {called_back:?}, goes on {goes_on}");
    let mut cluster = cluster(2, 2, Policy::RoundRobin, plan, 64);
    cluster.feed(0, packets(1000..1020));
    let order = MoveOrder {
        selector: Selector::All,
        to: vec![TARGET as u16],
    };
    let number = cluster.runtimes[SOURCE].order(order).unwrap();
    for step in 0..steps {
        if called_back == CalledBack::At(step) {
            cluster.runtimes[SOURCE].call_back_all();
        }
        if step % 5 == 1 {
            cluster.switches[0].port_mut(0).input.extend(packets(1000..1030));
        }
        cluster.one_step(step);
    }
    cluster.runtimes[SOURCE].fence_all(0);
    for step in steps..steps + 200 {
        cluster.one_step(step);
    }
    cluster.run_until_quiet();
    for runtime in &cluster.runtimes {
        assert_eq!(runtime.moves_left(), Vec::<std::string::String>::new(), "{what}");
        assert_conserved(runtime);
        assert_eq!(runtime.stats().held, 0, "{what}");
    }
    let receipt = cluster.runtimes[SOURCE].receipt(number).unwrap();
    assert!(receipt.is_over, "{receipt:?} {what}");
    if goes_on {
        go_on(&mut cluster, &what);
    }
    cluster.check();
    cluster.now += 400 * SECOND;
    cluster.run_until_quiet();
    let flows: Vec<u64> = cluster
        .runtimes
        .iter()
        .map(|runtime| runtime.stats().flows)
        .collect();
    assert_eq!((flows, cluster.routes()), (vec![0, 0], 0), "{what}");
}

#[test]
fn the_target_of_a_source_that_is_fenced_closes_its_slot() {
    let plans = [
        plan(vec![factory::<Meter>(), factory::<Masquerade>()]),
        plan(vec![factory::<Hosts>(), factory::<Meter>()]),
    ];
    for plan in &plans {
        for steps in (0..40).step_by(if cfg!(miri) { 7 } else { 1 }) {
            let back = (0..steps).map(CalledBack::At);
            for called_back in back.chain([CalledBack::Never]) {
                fence_after(steps, called_back, true, plan);
            }
            fence_after(steps, CalledBack::Never, false, plan);
        }
    }
}

/// A target that has installed a group, and hears that another has it, ends it and counts no move
/// of an order.
#[test]
fn a_target_that_is_fenced_ends_what_it_has() {
    let plan = plan(vec![factory::<Hosts>(), factory::<Meter>()]);
    let mut ended = 0;
    for steps in 0..60 {
        let mut cluster = cluster(2, 2, Policy::RoundRobin, &plan, 64);
        cluster.feed(0, packets(1000..1020));
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![TARGET as u16],
        };
        cluster.runtimes[SOURCE].order(order).unwrap();
        (0..steps).for_each(|step| cluster.one_step(step));
        let before = cluster.runtimes[TARGET].stats().flows;
        cluster.runtimes[TARGET].fence_all(0);
        (steps..steps + 200).for_each(|step| cluster.one_step(step));
        cluster.run_until_quiet();
        ended += before.saturating_sub(cluster.runtimes[TARGET].stats().flows);
        for runtime in &cluster.runtimes {
            assert_conserved(runtime);
        }
    }
    assert!(ended > 0, "no target had a group that it was to end");
}
