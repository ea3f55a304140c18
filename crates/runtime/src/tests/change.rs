//! Another configuration while flows live: random interleavings against a model, and calls that
//! wait meanwhile.

use super::{QueuePort, assert_conserved, number, udp};
use crate::chain::{ChainRule, Match, Plan};
use crate::stage::{Configured, Factory};
use crate::worker::change::{CHAIN_GONE, ChangeError, Prepared};
use crate::worker::{Runtime, Settings};
use nf::{
    ConfigError, Cx, Departure, FlowState, Generation, Keep, NetworkFunction, Packet, Verdict, WorkerInfo,
    network_function,
};
use proptest::prelude::*;
use std::boxed::Box;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::string::ToString;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

/// Settings of [`Gate`]: permitted destination ports, and the stamp for packets.
type Gates = (Vec<u16>, u8);

/// Lets flows to some ports in, and stamps every packet at the place that its name's last digit
/// says.
struct Gate {
    config: Arc<Gates>,
    /// Flows that are here: taken over, and right after every change.
    live: Cell<u64>,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Let {
    port: u16,
    known: u16,
}

impl Gate {
    fn allows(&self, port: u16) -> bool {
        self.config.0.contains(&port)
    }
}

#[network_function]
impl NetworkFunction for Gate {
    const NAME: &'static str = "gate";
    const COUNTERS: &'static [&'static str] = &["asked", "departed"];
    const REASONS: &'static [&'static str] = &["shut", "now_shut"];
    type Config = Gates;
    type Flow = Let;
    type Group = ();

    fn new(config: &Arc<Gates>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Gate {
            config: config.clone(),
            live: Cell::new(0),
        })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Let, cx: &mut Cx<Self>) -> Verdict {
        cx.sleep(Duration::from_millis(1)).await;
        self.judge(packet, flow, cx)
    }

    fn process_now(&self, packet: &mut Packet, flow: &mut Let, cx: &mut Cx<Self>) -> Option<Verdict> {
        // A first byte of 255 waits.
        if packet.payload().first() == Some(&255) {
            return None;
        }
        Some(self.judge(packet, flow, cx))
    }

    fn take_over(&self, before: &Self) {
        self.live.set(before.live.take());
    }

    fn configured(&self, flow: &mut Let, cx: &mut Cx<Self>) -> Keep {
        cx.count("asked");
        match flow.known == 0 || self.allows(flow.port) {
            true => Keep::Keep,
            false => cx.cut("now_shut"),
        }
    }

    fn departed(&self, flow: &Let, why: Departure, cx: &mut Cx<Self>) {
        assert_eq!(why, Departure::Expired);
        if flow.known != 0 {
            self.live.set(self.live.get() - 1);
            cx.count("departed");
        }
    }
}

#[network_function]
impl Gate {
    fn judge(&self, packet: &mut Packet, flow: &mut Let, cx: &Cx<Self>) -> Verdict {
        if flow.known == 0 {
            let port = packet.destination_port();
            if !self.allows(port) {
                return cx.drop("shut");
            }
            *flow = Let { port, known: 1 };
            self.live.set(self.live.get() + 1);
        }
        // Two gates in a row: the first stamps the second byte, the next the third, by what it
        // finds there.
        let end = packet.frame().len();
        let stamps = &mut packet.frame_mut()[end - 3..end - 1];
        let place = usize::from(stamps[0] != 0);
        stamps[place] = self.config.1;
        Verdict::Forward
    }
}

fn factory(name: &str, ports: &[u16], stamp: u8) -> Box<dyn Factory> {
    Box::new(Configured::<Gate>::new(name, (ports.to_vec(), stamp)))
}

fn chain(name: &str, functions: &[&str]) -> ChainRule {
    ChainRule {
        name: name.to_string(),
        matching: Match::default(),
        functions: functions.iter().map(ToString::to_string).collect(),
        replication: None,
    }
}

fn plan(ports: &[u16], stamp: u8, functions: &[&str]) -> Plan {
    let factories = std::vec![factory("one", ports, stamp), factory("two", ports, stamp)];
    Plan::new(std::vec![chain("test", functions)], factories).unwrap()
}

const BOTH: [&str; 2] = ["one", "two"];

struct Rig {
    runtime: Runtime<QueuePort>,
    plan: Plan,
    generation: u64,
    now: u64,
}

impl Rig {
    fn new(ports: &[u16]) -> Self {
        let plan = plan(ports, 1, &BOTH);
        let settings = Settings::alone(64);
        let runtime = alone_with(settings, plan.clone());
        Rig {
            runtime,
            plan,
            generation: 1,
            now: 0,
        }
    }

    fn step(&mut self) {
        self.now += 1000;
        self.runtime.step(self.now);
    }

    fn prepare(&mut self, plan: Plan) -> Result<(), ChangeError> {
        let info = Settings::alone(64).info;
        let generation = Generation(self.generation + 1);
        let prepared = Prepared::new(generation, plan.clone(), &self.plan, &info, 100)?;
        self.runtime
            .prepare_change(prepared)
            .map_err(|(error, _)| error)?;
        self.plan = plan;
        Ok(())
    }

    fn commit(&mut self) {
        assert!(self.runtime.commit_change());
        self.generation += 1;
        assert_eq!(self.runtime.change().generation, Generation(self.generation));
    }

    fn send(&mut self, port: u16, from: u16, first: u8) {
        let frame = udp(1, from, 1, port, false, &[first, 0, 0, from as u8]);
        self.runtime.links_mut()[0].input.push_back(frame);
    }

    fn counter(&self, name: &str) -> u64 {
        let all = self.runtime.stats().counters;
        all.iter()
            .filter(|named| named.name == name)
            .map(|named| named.count)
            .sum()
    }

    fn dropped(&self, name: &str) -> u64 {
        let all = self.runtime.stats().dropped;
        all.iter()
            .filter(|named| named.name == name)
            .map(|named| named.count)
            .sum()
    }
}

fn alone_with(settings: Settings, plan: Plan) -> Runtime<QueuePort> {
    let made = Runtime::new(
        settings,
        plan,
        std::vec![QueuePort::default()],
        super::pool(512, 0),
        wire::memory::Region::heap,
    );
    made.unwrap_or_else(|error| panic!("{error:?}"))
}

#[derive(Clone, Debug)]
enum Step {
    /// A packet of one of a few flows.
    Packet {
        port: u16,
        from: u16,
    },
    /// Another set of ports.
    Change(Vec<u16>),
    /// Prepared and surveyed, and given up.
    Consider(Vec<u16>),
    Steps(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ports = || prop::collection::vec(1u16..5, 0..4);
    let step = prop_oneof![
        12 => (1u16..5, 1u16..10).prop_map(|(port, from)| Step::Packet { port, from }),
        2 => ports().prop_map(Step::Change),
        1 => ports().prop_map(Step::Consider),
        2 => (0usize..3).prop_map(Step::Steps),
    ];
    prop::collection::vec(step, 1..120)
}

/// A packet passes by the configuration that is in force when it is taken up, whole: it is stamped
/// by both of its instances, and by no other. A flow lives on exactly if each configuration since
/// allows it.
fn run(steps: Vec<Step>) {
    let mut rig = Rig::new(&[1, 2, 3]);
    let (mut allowed, mut stamp) = (std::vec![1u16, 2, 3], 1u8);
    let mut alive: BTreeMap<(u16, u16), ()> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Packet { port, from } => {
                rig.send(port, from, 0);
                rig.step();
                let sent = core::mem::take(&mut rig.runtime.links_mut()[0].output);
                let passes = alive.contains_key(&(port, from)) || allowed.contains(&port);
                assert_eq!(sent.len(), usize::from(passes), "port {port} of {allowed:?}");
                if passes {
                    alive.insert((port, from), ());
                    let bytes = &sent[0].1;
                    assert_eq!(bytes[bytes.len() - 3..bytes.len() - 1], [stamp, stamp]);
                }
            }
            Step::Consider(ports) => {
                finish_change(&mut rig);
                let before = rig.plan.clone();
                rig.prepare(plan(&ports, 99, &BOTH)).unwrap();
                rig.step();
                rig.step();
                let state = rig.runtime.change();
                assert!(state.is_prepared && state.is_through);
                let lost = alive.keys().filter(|(port, _)| !ports.contains(port)).count() as u64;
                let cut: u64 = state.cut.iter().map(|named| named.count).sum();
                assert_eq!((state.kept, cut), (alive.len() as u64 - lost, lost));
                assert_eq!(rig.runtime.take_listed().len() as u64, lost);
                assert!(rig.runtime.abandon_change().is_some());
                rig.plan = before;
            }
            Step::Change(ports) => {
                finish_change(&mut rig);
                let (asked, flows) = (rig.counter("asked"), alive.len() as u64);
                stamp = stamp % 200 + 1;
                rig.prepare(plan(&ports, stamp, &BOTH)).unwrap();
                rig.commit();
                allowed = ports;
                alive.retain(|(port, _), ()| allowed.contains(port));
                // Some changes are followed by packets, some by the sweep first.
                if stamp.is_multiple_of(2) {
                    finish_change(&mut rig);
                    assert_eq!(
                        rig.counter("asked"),
                        asked + 2 * flows,
                        "each function once about each flow"
                    );
                }
            }
            Step::Steps(count) => (0..count).for_each(|_| rig.step()),
        }
        assert_conserved(&rig.runtime);
    }
    finish_change(&mut rig);
    assert_eq!(rig.runtime.stats().flows, alive.len() as u64);
    while !rig.runtime.finish(64) {}
    let stats = rig.runtime.stats();
    assert_eq!((stats.flows, stats.held), (0, 0));
    assert_eq!(stats.flows_opened, stats.flows_ended);
}

/// Until no flow is of the configuration before.
fn finish_change(rig: &mut Rig) {
    for _ in 0..10 {
        rig.step();
        if rig.runtime.take_before().is_some() {
            return;
        }
    }
    assert!(rig.runtime.change().is_through);
}

proptest! {
    #[test]
    fn every_packet_is_judged_by_one_configuration_and_every_flow_asked_once(steps in steps()) {
        run(steps);
    }
}

/// A call that waits ends in the instance in which it began; then its flow is asked, and packets
/// that the new instances do not let go on are dropped by name.
#[test]
fn a_call_that_waits_ends_where_it_began_and_its_flow_is_asked_then() {
    for (ports, passes) in [(&[1u16, 2][..], true), (&[2][..], false)] {
        let mut rig = Rig::new(&[1, 2]);
        rig.send(1, 7, 0);
        rig.step();
        rig.send(1, 7, 255);
        rig.step();
        assert_eq!(rig.runtime.stats().waiting, 1);
        // And one behind it.
        rig.send(1, 7, 0);
        rig.step();
        rig.runtime.links_mut()[0].output.clear();
        rig.prepare(plan(ports, 2, &BOTH)).unwrap();
        rig.commit();
        for _ in 0..5 {
            rig.step();
        }
        let waits = rig.runtime.change();
        assert_eq!((waits.waiting, waits.kept), (1, 0));
        let before = rig.plan.clone();
        assert_eq!(
            rig.prepare(plan(&[1], 3, &BOTH)),
            Err(ChangeError::Unsettled { flows: 1 })
        );
        rig.plan = before;
        assert!(
            rig.runtime.take_before().is_none(),
            "the call is in the old instance"
        );
        // The second gate has it wait again, in the new instance.
        for _ in 0..3 {
            rig.now += 2_000_000;
            rig.step();
        }
        assert_eq!(rig.runtime.stats().waiting, 0);
        assert!(rig.runtime.take_before().is_some());
        let sent: Vec<u8> = rig.runtime.links_mut()[0].output.iter().map(number).collect();
        assert_eq!(sent.len(), if passes { 2 } else { 0 });
        assert_eq!(rig.dropped("configuration_changed"), u64::from(!passes));
        // The packet behind it opens a flow again, which the new gate does not let in.
        assert_eq!(rig.dropped("shut"), u64::from(!passes));
        assert_conserved(&rig.runtime);
        while !rig.runtime.finish(64) {}
        assert_conserved(&rig.runtime);
    }
}

/// A flow goes on with a chain of the same functions, whatever it is called and wherever it stands;
/// else it ends, by name.
#[test]
fn flows_go_on_with_a_chain_of_the_same_functions_or_end() {
    let mut rig = Rig::new(&[1]);
    rig.send(1, 7, 0);
    rig.step();
    let factories = || std::vec![factory("one", &[1], 2), factory("two", &[1], 2)];
    let other = ChainRule {
        matching: Match {
            protocol: Some(6),
            ..Match::default()
        },
        ..chain("first", &["two"])
    };
    let moved = Plan::new(std::vec![other, chain("renamed", &BOTH)], factories()).unwrap();
    rig.prepare(moved).unwrap();
    rig.commit();
    finish_change(&mut rig);
    let (views, _) = rig.runtime.flows(0, 10);
    assert_eq!((views.len(), views[0].chain.as_str()), (1, "renamed"));
    // Of several with the same functions, the one of the same name.
    let twins = std::vec![chain("another", &BOTH), chain("renamed", &BOTH)];
    rig.prepare(Plan::new(twins, factories()).unwrap()).unwrap();
    rig.commit();
    finish_change(&mut rig);
    let (views, _) = rig.runtime.flows(0, 10);
    assert_eq!((views.len(), views[0].chain.as_str()), (1, "renamed"));
    rig.prepare(plan(&[1], 3, &["two", "one"])).unwrap();
    rig.step();
    let cut = rig.runtime.change().cut;
    assert_eq!((cut[0].name, cut[0].count), (CHAIN_GONE, 1));
    rig.commit();
    // Not yet swept: it is shown as it was, and its next packet begins it again.
    let (views, _) = rig.runtime.flows(0, 10);
    assert_eq!(views[0].chain, "renamed");
    rig.send(1, 7, 0);
    rig.step();
    finish_change(&mut rig);
    let stats = rig.runtime.stats();
    assert_eq!((stats.flows, stats.flows_opened, stats.flows_ended), (1, 2, 1));
    assert_eq!(rig.counter("departed"), 2);
}

#[test]
fn what_cannot_follow_is_refused_and_nothing_changes() {
    let mut rig = Rig::new(&[1]);
    let chains = |functions: &[&str]| std::vec![chain("test", functions)];
    let with_three = Plan::new(
        chains(&["one", "three"]),
        std::vec![
            factory("one", &[], 2),
            factory("three", &[], 2),
            factory("two", &[], 2)
        ],
    );
    let refused = rig.prepare(with_three.unwrap()).unwrap_err();
    assert!(refused.to_string().contains("`three` is new"), "{refused}");
    let without = Plan::new(chains(&["one"]), std::vec![factory("one", &[], 2)]).unwrap();
    let refused = rig.prepare(without).unwrap_err();
    assert!(
        refused.to_string().contains("keep its table [function.two]"),
        "{refused}"
    );
    let mut short = Rig::new(&[1]);
    short.runtime = alone_with(Settings::alone(64), plan(&[1], 1, &["one"]));
    short.plan = plan(&[1], 1, &["one"]);
    let refused = short.prepare(plan(&[1], 2, &BOTH)).unwrap_err();
    assert!(matches!(refused, ChangeError::Room { .. }), "{refused}");
    let state = rig.runtime.change();
    assert_eq!((state.generation, state.is_prepared), (Generation(1), false));
    assert!(!rig.runtime.commit_change());
}
