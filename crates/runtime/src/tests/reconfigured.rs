//! A runtime fails while the configuration changes: its flows go on by the configuration that is in
//! force at the heir, or end by it.

use super::sessions::Members;
use super::*;
use crate::replica::BROKEN;
use crate::replica::policy::Policy as Copied;
use crate::switch::Policy;
use crate::worker::change::Prepared;
use nf::{
    Arrival, Cx, Departure, FlowState, Generation, Keep, Packet, Verdict, WorkerInfo, network_function,
};
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

/// Ports that flows may go to.
type Ports = Vec<u16>;

/// Lets flows to some ports in, and counts a flow's packets in the packet.
struct Ruled<const LONG: bool> {
    config: Arc<Ports>,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Known {
    count: u32,
    port: u16,
    known: u16,
}

#[network_function]
impl<const LONG: bool> NetworkFunction for Ruled<LONG> {
    const NAME: &'static str = if LONG { "long" } else { "short" };
    const COUNTERS: &'static [&'static str] = &["asked", "recovered", "departed"];
    const REASONS: &'static [&'static str] = &["shut", "now_shut"];
    type Config = Ports;
    type Flow = Known;
    type Group = ();

    fn new(config: &Arc<Ports>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Ruled {
            config: config.clone(),
        })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Known, cx: &mut Cx<Self>) -> Verdict {
        let port = packet.destination_port();
        if flow.known == 0 && !self.config.contains(&port) {
            return cx.drop("shut");
        }
        (flow.known, flow.port) = (1, port);
        flow.count += 1;
        let at = packet.frame().len() - if LONG { 8 } else { 4 };
        packet.frame_mut()[at..at + 4].copy_from_slice(&flow.count.to_be_bytes());
        Verdict::Forward
    }

    fn arrived(&self, _: &mut Known, why: Arrival, cx: &mut Cx<Self>) {
        if why == Arrival::Recovered {
            cx.count("recovered");
        }
    }

    fn configured(&self, flow: &mut Known, cx: &mut Cx<Self>) -> Keep {
        cx.count("asked");
        match flow.known == 0 || self.config.contains(&flow.port) {
            true => Keep::Keep,
            false => cx.cut("now_shut"),
        }
    }

    fn departed(&self, flow: &Known, _: Departure, cx: &mut Cx<Self>) {
        if flow.known != 0 {
            cx.count("departed");
        }
    }
}

/// A chain for UDP to a port, and one of both functions for the rest, in this order or the other.
fn ordered(ports: &[u16], is_turned: bool) -> Plan {
    copied(ports, is_turned, None)
}

/// The same; how the second chain's flows are copied.
fn copied(ports: &[u16], is_turned: bool, of_both: Option<Copied>) -> Plan {
    let chain = |name: &str, port: Option<u16>, functions: &[&str]| ChainRule {
        name: name.to_string(),
        matching: Match {
            destination_port: port.map(|port| port..=port).into_iter().collect(),
            ..Match::default()
        },
        functions: functions.iter().map(ToString::to_string).collect(),
        replication: None,
    };
    let mut chains = vec![
        chain("one", Some(80), &["short"]),
        chain("both", None, &["short", "long"]),
    ];
    chains[1].replication = of_both;
    if is_turned {
        chains.reverse();
    }
    let factories: Vec<Box<dyn Factory>> = vec![
        Box::new(Configured::<Ruled<true>>::new("long", ports.to_vec())),
        Box::new(Configured::<Ruled<false>>::new("short", ports.to_vec())),
    ];
    Plan::new(chains, factories).unwrap()
}

const ALL: [u16; 2] = [80, 81];
const FLOWS: u16 = 40;

/// Two runtimes with flows of both chains, all of them copied. The first one fails.
fn members(plan: &Plan) -> Members {
    let mut members = Members::copied(1, 2, Policy::LeastLoaded, plan.clone());
    feed(&mut members);
    for runtime in [0, 1] {
        let stats = members.runtime(runtime).stats();
        assert_eq!(
            (stats.flows, stats.protected_by),
            (u64::from(FLOWS), Some(1 - runtime as u16))
        );
    }
    members
}

/// A packet of each flow.
fn feed(members: &mut Members) {
    let packets = ALL
        .iter()
        .flat_map(|port| (0..FLOWS).map(|n| udp(1, 2000 + n, 1, *port, false, &[0; 8])));
    members.feed(0, packets);
}

fn prepare(members: &mut Members, runtime: usize, (generation, plan): (u64, &Plan), before: &Plan) {
    let info = WorkerInfo {
        runtime: runtime as u16,
        runtimes: 2,
        flows_max: 2048,
        seed: 1,
    };
    let prepared = Prepared::new(Generation(generation), plan.clone(), before, &info, 0).unwrap();
    let refused = members.runtime(runtime).prepare_change(prepared);
    assert!(refused.is_ok(), "{}", refused.err().unwrap().0);
}

fn commit(members: &mut Members, runtime: usize, change: (u64, &Plan), before: &Plan) {
    prepare(members, runtime, change, before);
    assert!(members.runtime(runtime).commit_change());
}

fn counter(members: &mut Members, runtime: usize, name: &str) -> u64 {
    let all = members.runtime(runtime).stats().counters;
    all.iter()
        .filter(|named| named.name == name)
        .map(|named| named.count)
        .sum()
}

/// By destination port: the counts of packets that leave when each flow has another one. By port
/// 80 the last number is what `short` has counted, by the other port both are.
fn counts(members: &mut Members) -> [Vec<(u32, u32)>; 2] {
    let before = members.sent().len();
    feed(members);
    let mut counts = [Vec::new(), Vec::new()];
    for (_, frame) in members.sent().into_iter().skip(before) {
        let number = |at: usize| u32::from_be_bytes(frame[frame.len() - at..][..4].try_into().unwrap());
        let port = u16::from_be_bytes([frame[22], frame[23]]);
        counts[usize::from(port - 80)].push((number(8), number(4)));
    }
    counts
}

fn finish_change(members: &mut Members, runtime: usize) {
    members.run_until_quiet();
    assert!(members.runtime(runtime).take_before().is_some(), "it has settled");
}

/// Chains change places, and a runtime fails before it has asked its flows: each goes on with the
/// chain of its functions. Whether the heir has asked its own flows by then, or has not.
#[test]
fn flows_go_on_with_their_chain_when_chains_change_places() {
    for is_finished in [false, true] {
        let (first, second) = (ordered(&ALL, false), ordered(&ALL, true));
        let mut members = members(&first);
        commit(&mut members, 1, (2, &second), &first);
        if is_finished {
            finish_change(&mut members, 1);
        }
        if !is_finished {
            commit(&mut members, 0, (2, &second), &first);
        }
        members.stop(1);
        members.run_until_quiet();
        assert_eq!(members.runtime(1).stats().recovered, [u64::from(FLOWS), 0]);
        let [short, both] = counts(&mut members);
        assert_eq!(short, vec![(0, 2); usize::from(FLOWS)], "{is_finished}");
        assert_eq!(both, vec![(2, 2); usize::from(FLOWS)], "{is_finished}");
        let (flows, _) = members.runtime(1).flows(0, 200);
        for flow in flows {
            let functions = flow.chain == "both";
            assert_eq!(
                functions,
                flow.key.to_string().contains(":81"),
                "{} {}",
                flow.key,
                flow.chain
            );
        }
        members.assert_one_home();
        members.assert_nothing_stays();
    }
}

/// Flows that the new configuration does not let in end with the recovery, though no packet comes.
#[test]
fn recovered_flows_that_another_configuration_let_in_are_asked() {
    let (first, second) = (ordered(&ALL, false), ordered(&[80], false));
    for is_finished in [false, true] {
        let mut members = members(&first);
        commit(&mut members, 1, (2, &second), &first);
        if is_finished {
            finish_change(&mut members, 1);
        } else {
            commit(&mut members, 0, (2, &second), &first);
        }
        members.stop(1);
        members.run_until_quiet();
        let here = members.flows()[1];
        assert_eq!(
            here,
            u64::from(FLOWS),
            "half of them were let in by the new rules"
        );
        // Each function of each flow once: of the heir's own, and of recovered ones.
        assert_eq!(counter(&mut members, 1, "asked"), u64::from(FLOWS) * 3);
        assert_eq!(counter(&mut members, 1, "departed"), u64::from(FLOWS) * 2);
        let [short, both] = counts(&mut members);
        assert_eq!((short, both), (vec![(0, 2); usize::from(FLOWS)], vec![]));
        members.assert_one_home();
        members.assert_nothing_stays();
    }
}

/// A runtime fails that had the new configuration before the heir, which has prepared it: flows
/// that began by it wait until the heir has it, too, or gives it up.
#[test]
fn an_heir_that_has_prepared_the_configuration_of_a_copy_waits_for_it() {
    for is_committed in [true, false] {
        let (first, second) = (ordered(&[80], false), ordered(&ALL, true));
        let mut members = Members::copied(1, 2, Policy::LeastLoaded, first.clone());
        prepare(&mut members, 1, (2, &second), &first);
        commit(&mut members, 0, (2, &second), &first);
        finish_change(&mut members, 0);
        feed(&mut members);
        let before = members.flows();
        members.stop(1);
        members.run_until_quiet();
        assert_eq!(members.runtime(1).stats().recovered, [0, 0]);
        match is_committed {
            true => assert!(members.runtime(1).commit_change()),
            false => assert!(members.runtime(1).abandon_change().is_some()),
        }
        members.run_until_quiet();
        assert_eq!(members.runtime(1).stats().recovered, [before[0], 0]);
        let here = members.runtime(1).flows(0, 200).0;
        let to_81 = here
            .iter()
            .filter(|flow| flow.key.to_string().contains(":81"))
            .count();
        assert_eq!(
            to_81 > 0,
            is_committed,
            "what it does not let in by its own does not stay"
        );
        members.assert_one_home();
        members.assert_nothing_stays();
    }
}

/// The state of a chain that the heir has not is no state of another chain that has as many bytes.
#[test]
fn a_flow_whose_chain_is_gone_is_lost_and_no_other_chains() {
    let first = ordered(&ALL, false);
    let named = |functions: &[&str]| {
        let chain = ChainRule {
            name: "one".to_string(),
            matching: Match::default(),
            functions: functions.iter().map(ToString::to_string).collect(),
            replication: None,
        };
        let factories: Vec<Box<dyn Factory>> = vec![
            Box::new(Configured::<Ruled<true>>::new("long", ALL.to_vec())),
            Box::new(Configured::<Ruled<false>>::new("short", ALL.to_vec())),
        ];
        Plan::new(vec![chain], factories).unwrap()
    };
    let second = named(&["long"]);
    let mut members = members(&first);
    commit(&mut members, 1, (2, &second), &first);
    members.stop(1);
    members.run_until_quiet();
    assert_eq!(members.runtime(1).stats().recovered, [0, u64::from(FLOWS)]);
    assert_eq!(members.flows()[1], 0);
    members.assert_nothing_stays();
}

/// Digests count where there are any: numbers of two processes say nothing of each other.
#[test]
fn the_same_configuration_under_another_number_is_not_asked_for() {
    for (digests, asked) in [((5, 5), 0), ((5, 6), u64::from(FLOWS) * 3 / 2)] {
        let first = ordered(&ALL, false).known_by(digests.0);
        let second = ordered(&ALL, false).known_by(digests.1);
        let mut members = members(&first);
        commit(&mut members, 1, (2, &second), &first);
        finish_change(&mut members, 1);
        let before = counter(&mut members, 1, "asked");
        members.stop(1);
        members.run_until_quiet();
        assert_eq!(counter(&mut members, 1, "asked") - before, asked);
        assert_eq!(counter(&mut members, 1, "recovered"), u64::from(FLOWS) * 3 / 2);
        assert_eq!(members.runtime(1).stats().recovered, [u64::from(FLOWS), 0]);
        members.assert_nothing_stays();
    }
}

/// A replica that cannot keep a record does not acknowledge it, nor those behind it: it is sent all
/// again. A record that it refuses again and again leaves no packet waiting, and no runtime
/// protected.
#[test]
fn what_a_replica_cannot_keep_is_not_acknowledged() {
    for (times, is_protected) in [(1, true), (20, false)] {
        let mut members = members(&ordered(&ALL, false));
        BROKEN.set("changes are kept");
        let before = members.sent().len();
        (0..times).for_each(|_| feed(&mut members));
        BROKEN.set("");
        let packets = usize::from(FLOWS) * 2 * times;
        assert_eq!(members.sent().len() - before, packets);
        let stats = members.runtime(0).stats();
        assert_eq!(stats.protected_by.is_some(), is_protected);
        assert_eq!(stats.unprotected > 0, !is_protected);
        if is_protected {
            members.stop(1);
            members.run_until_quiet();
            assert_eq!(members.runtime(1).stats().recovered, [u64::from(FLOWS), 0]);
            let [short, both] = counts(&mut members);
            assert_eq!(short, vec![(0, 3); usize::from(FLOWS)]);
            assert_eq!(both, vec![(3, 3); usize::from(FLOWS)]);
        } else {
            // Another session of it may keep copies.
            members.start(2);
            members.run_until_quiet();
            assert_eq!(members.runtime(0).stats().protected_by, Some(1));
        }
        members.assert_one_home();
        members.assert_nothing_stays();
    }
}

/// Packets wait for their replica, chains change places, and the replica is gone before their flows
/// are asked: another chain's policy is not for them.
#[test]
fn packets_that_wait_go_by_the_policy_of_their_own_chain() {
    for is_turned in [false, true] {
        let plans = [false, is_turned].map(|is_turned| copied(&ALL, is_turned, Some(Copied::None)));
        let mut members = Members::copied(1, 3, Policy::LeastLoaded, plans[0].clone());
        let packets = (0..FLOWS).map(|n| udp(1, 2000 + n, 1, 80, false, &[0; 8]));
        members.switch(0).port_mut(0).input.extend(packets);
        let go_on_alone = |members: &mut Members| {
            for worker in [0, 1].into_iter().cycle().take(200) {
                members.now += 1000;
                members.step(worker);
            }
        };
        go_on_alone(&mut members);
        let held = members.runtime(0).stats().held;
        assert!(held > 5 && members.sent().is_empty(), "{held} are held");
        commit(&mut members, 0, (2, &plans[1]), &plans[0]);
        members.stop(2);
        go_on_alone(&mut members);
        let stats = members.runtime(0).stats();
        assert_eq!((stats.held, stats.unprotected), (held, 0), "{is_turned}");
        assert!(
            members.sent().is_empty(),
            "{is_turned}: the third runtime has nothing of them"
        );
        members.run_until_quiet();
        assert!(members.sent().len() as u64 >= held, "{is_turned}");
        assert_eq!(members.runtime(0).stats().held, 0, "{is_turned}");
        members.stop(1);
        members.run_until_quiet();
        assert_eq!(members.runtime(2).stats().recovered, [held, 0], "{is_turned}");
    }
}
