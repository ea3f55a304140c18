//! `bench objects`: the cost of sharing state that no partition fits (S6 figures 7 and 8).
//!
//! A function like S6's asset monitor: a flow is counted once, and each packet, at an object that
//! flows of all runtimes share ([`ASSETS`] of them).
//!
//! | case | first packet of a flow | each other packet |
//! |---|---|---|
//! | `own` | a table of this runtime, so each runtime has counts of its own: S6's *local-only*, and wrong | the same table |
//! | `shared` | a call to the object, for which the packet waits | merged: no message of its own |
//! | `called` | as `shared` | a call to the object, for which the packet waits: *remote-only*, as StatelessNF |
//!
//! | figure | what it is |
//! |---|---|
//! | new flows | opened in a second, from the SYN to the other side's answer |
//! | packets | of established flows, as fast as they pass |
//! | delay | from when a packet was due to when it had left, at half of that rate |
//!
//! A switch and the runtimes are **in turn on one thread**, so a figure is one of their work, not
//! of their number. `shared` with one, two and four runtimes is figure 8: the work for a packet,
//! which is to stay as it is.
//!
//! Behind each run the objects of all runtimes are listed, and their sums must be the packets sent;
//! if not, the run ends in a panic.
//!
//! Not here: runtimes that come and go meanwhile (`scale`).

use super::report::{Case, Parameters};
use super::scale::share;
use super::traffic::{FRAME, Segment};
use super::workers::{Next, Workers};
use super::{Memory, Options};
use adapters::clock::monotonic_ns;
use nf::objects::{Objects, ObjectsHere, Shared, SharedObject};
use nf::variables::Variables;
use nf::{Adds, Row, Side, Table, row};
use nf::{ConfigError, Cx, FlowState, NetworkFunction, Packet, Plain, Verdict, WorkerInfo, network_function};
use protocols::objects::Members;
use protocols::ownership::RuntimeId;
use runtime::chain::{ChainRule, Match, Plan};
use runtime::stage::Configured;
use std::cell::RefCell;
use std::sync::Arc;

/// How many objects there are.
const ASSETS: usize = 512;
/// Bursts that are under way, as fast as packets pass.
const UNDER_WAY: usize = 64;
/// How long the delay of packets is looked at.
const DELAYS_NS: u64 = 100_000_000;
/// The time that merged calls may take to their object, and a run to its end.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Flows and packets that were counted.
#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Asset {
    flows: u64,
    packets: u64,
}

const FLOW: Asset = Asset { flows: 1, packets: 1 };
const PACKET: Asset = Asset { flows: 0, packets: 1 };

impl Asset {
    fn add(&mut self, other: &Asset) {
        self.flows += other.flows;
        self.packets += other.packets;
    }
}

impl SharedObject for Asset {
    type Call = Asset;
    type Answer = u64;

    fn apply(&mut self, call: &Asset) -> u64 {
        self.add(call);
        self.packets
    }

    fn read(&self, _: &Asset) -> u64 {
        self.packets
    }

    fn merge(earlier: &mut Asset, later: &Asset) -> bool {
        earlier.add(later);
        true
    }
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Own,
    Shared,
    Called,
}

#[derive(serde::Deserialize)]
struct Config {
    kept: Kept,
}

struct Assets {
    kept: Kept,
    shared: Shared<Asset>,
    own: RefCell<Vec<Asset>>,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Flow {
    is_known: bool,
}

/// Which object a flow is counted at: flows of many hosts, and so of all runtimes, have the same.
fn asset(packet: &Packet, side: Side) -> usize {
    let end = match side {
        Side::Inside => packet.source(),
        Side::Outside => packet.destination(),
    };
    (end.addr.low_u32() ^ u32::from(end.port) << 4) as usize % ASSETS
}

#[network_function]
impl NetworkFunction for Assets {
    const NAME: &'static str = "assets";
    const TABLES: &'static [Table] = &[Table {
        name: "all",
        columns: &[("of", Adds::Name), ("flows", Adds::Sum), ("packets", Adds::Sum)],
        top: 0,
        metrics: &[],
    }];
    type Config = Config;
    type Flow = Flow;
    type Group = ();

    fn with_objects(
        config: &Arc<Config>,
        _: &WorkerInfo,
        _: &mut Variables,
        objects: &mut Objects<'_>,
    ) -> Result<Self, ConfigError> {
        Ok(Assets {
            kept: config.kept,
            shared: objects.open("assets")?,
            own: RefCell::new(vec![Asset::default(); ASSETS]),
        })
    }

    fn process_now(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        let at = asset(packet, cx.side());
        match (self.kept, flow.is_known) {
            (Kept::Own, is_known) => {
                let mut own = self.own.borrow_mut();
                own[at].add(if is_known { &PACKET } else { &FLOW });
                flow.is_known = true;
                Some(Verdict::Forward)
            }
            (Kept::Shared, true) => {
                let merged = self.shared.merge(&at.to_ne_bytes(), &PACKET);
                merged.is_ok().then_some(Verdict::Forward)
            }
            _ => None,
        }
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        let call = if flow.is_known { PACKET } else { FLOW };
        let key = asset(packet, cx.side()).to_ne_bytes();
        let answer = self.shared.update(cx, &key, &call).await;
        flow.is_known = answer.is_ok();
        match answer {
            Ok(_) => Verdict::Forward,
            // Packets are counted behind a run: it does not end well.
            Err(_) => cx.drop("unanswered"),
        }
    }

    fn object_rows(&self, _: &str, _: usize, here: ObjectsHere<'_>) -> Vec<Row> {
        let shared = here.iter(&self.shared).map(|(_, asset)| asset);
        let own = self.own.borrow();
        let sum = shared
            .chain(own.iter().copied())
            .fold(Asset::default(), |mut sum, asset| {
                sum.add(&asset);
                sum
            });
        vec![row!["all", sum.flows, sum.packets]]
    }
}

fn plan(kept: &str) -> Plan {
    let config = toml::from_str(&format!("kept = \"{kept}\"")).expect("it is a setting");
    let rule = ChainRule {
        name: "assets".into(),
        matching: Match::default(),
        functions: vec!["assets".into()],
        replication: None,
    };
    let assets = Box::new(Configured::<Assets>::new("assets", config));
    Plan::new(vec![rule], vec![assets]).expect("it is a chain")
}

/// The result of one run.
struct Run {
    opened: f64,
    packets: f64,
    delays: Vec<u64>,
}

impl Workers {
    /// Flows and packets that all objects have, over all runtimes.
    fn counted(&self) -> [u64; 2] {
        let mut sums = [0; 2];
        for runtime in &self.runtimes {
            let table = runtime
                .table("assets", &["all"])
                .expect("a function of the chain");
            for row in table.expect("a table").rows {
                for (sum, cell) in sums.iter_mut().zip(&row[1..]) {
                    *sum += match cell {
                        nf::table::Value::Number(number) => *number,
                        nf::table::Value::Text(_) => unreachable!("a number"),
                    };
                }
            }
        }
        sums
    }

    /// Steps until all that came in has left.
    fn pass_all(&mut self) {
        let began = monotonic_ns();
        loop {
            self.step();
            let line = self.switch.port_mut(0);
            if line.next.is_empty() && line.received == line.sent {
                return;
            }
            assert!(monotonic_ns() - began < PATIENCE_NS, "packets were lost");
        }
    }

    /// Opens all flows; how many in a second.
    fn open_all(&mut self) -> f64 {
        let began = monotonic_ns();
        let flows = 0..self.flows;
        let packets = flows.map(|flow| Next::Of(flow, Segment::Syn));
        self.switch.port_mut(0).next.extend(packets);
        self.pass_all();
        f64::from(self.flows) * 1e9 / (monotonic_ns() - began) as f64
    }

    /// Packets of these flows as fast as they pass; how many in a second.
    fn pass(&mut self, order: &[u32]) -> f64 {
        let began = monotonic_ns();
        let mut rest = order.iter();
        while rest.len() > 0 {
            let line = self.switch.port_mut(0);
            let under_way = line.next.len() + (line.received - line.sent) as usize;
            let room = (UNDER_WAY * runtime::BURST).saturating_sub(under_way);
            let next = rest
                .by_ref()
                .take(room)
                .map(|flow| Next::Of(*flow, Segment::Data));
            line.next.extend(next);
            self.step();
        }
        self.pass_all();
        order.len() as f64 * 1e9 / (monotonic_ns() - began) as f64
    }

    /// Packets at a rate; how long each took.
    fn delays(&mut self, order: &[u32], rate: f64) -> Vec<u64> {
        self.switch.port_mut(0).delays = Some(Vec::new());
        let (begin, mut due) = (monotonic_ns(), 0_u64);
        let mut flows = order.iter().cycle();
        loop {
            let elapsed = monotonic_ns() - begin;
            if elapsed > DELAYS_NS {
                break;
            }
            let next = &mut self.switch.port_mut(0).next;
            while due < (elapsed as f64 * rate / 1e9) as u64 {
                let flow = *flows.next().expect("there are flows");
                next.push_back(Next::Due(flow, begin + (due as f64 * 1e9 / rate) as u64));
                due += 1;
            }
            self.step();
        }
        self.pass_all();
        let delays = self.switch.port_mut(0).delays.take().unwrap_or_default();
        delays.into_iter().map(|(_, delay)| delay).collect()
    }

    /// That all was counted once.
    fn check_counts(&mut self) {
        let (flows, packets) = (u64::from(self.flows), self.switch.port_mut(0).received);
        let began = monotonic_ns();
        while self.counted() != [flows, packets] {
            let counted = self.counted();
            assert!(
                monotonic_ns() - began < PATIENCE_NS,
                "counted {counted:?}, and it was {flows} and {packets}"
            );
            (0..1000).for_each(|_| _ = self.step());
        }
    }
}

fn run(kept: &str, runtimes: usize, flows: u32, order: &[u32], memory: &Memory) -> Run {
    let mut workers = Workers::new(&plan(kept), runtimes, flows, memory);
    let ids = (0..runtimes as u16).map(RuntimeId);
    let members = ids.fold(Members::default(), Members::with);
    for runtime in &mut workers.runtimes {
        runtime.share_objects(1, members, 1);
    }
    let opened = workers.open_all();
    let (warm, measured) = order.split_at(order.len() / 3);
    workers.pass(warm);
    let packets = workers.pass(measured);
    let delays = workers.delays(order, packets / 2.0);
    workers.check_counts();
    Run {
        opened,
        packets,
        delays,
    }
}

/// The place of the counts, and the number of runtimes.
const CASES: [(&str, &str, usize); 5] = [
    ("own, 2 runtimes", "own", 2),
    ("shared, 2 runtimes", "shared", 2),
    ("called, 2 runtimes", "called", 2),
    ("shared, 1 runtime", "shared", 1),
    ("shared, 4 runtimes", "shared", 4),
];

/// Measures all cases at all numbers of flows.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let (orders, _) = super::orders(options, super::Popularity::Uniform, flows);
        let mut runs: [Vec<Run>; CASES.len()] = Default::default();
        for order in &orders {
            for ((_, kept, runtimes), runs) in CASES.iter().zip(&mut runs) {
                // A call for each packet takes so much longer that a part of them will do.
                let length = if *kept == "called" {
                    order.len() / 8
                } else {
                    order.len()
                };
                runs.push(run(kept, *runtimes, flows, &order[..length], memory));
            }
        }
        let all: Vec<[Case; 4]> = CASES
            .iter()
            .zip(&runs)
            .map(|((name, ..), runs)| report(name, flows, runs))
            .collect();
        for ((_, kept, runtimes), figures) in CASES.iter().zip(&all) {
            // The others are compared with tables of their own, and by number with one runtime.
            let against = match (*kept, *runtimes) {
                ("own", _) | (_, 1) => None,
                (_, 4) => all.get(3),
                _ => all.first(),
            };
            for (place, figure) in figures.iter().enumerate() {
                cases.push(match against {
                    Some(other) => figure.clone().against(&other[place]),
                    None => figure.clone(),
                });
            }
        }
    }
    cases
}

fn report(name: &str, flows: u32, runs: &[Run]) -> [Case; 4] {
    let case = |figure: &str, unit: &'static str, of: &dyn Fn(&Run) -> f64| {
        let parameters = Parameters {
            flows,
            popularity: "uniform",
            frame_bytes: FRAME,
            ..Parameters::default()
        };
        let samples = runs.iter().map(of).collect();
        Case::new(&format!("{name}: {figure}"), parameters, "figures", unit, samples)
    };
    [
        case("new flows", "1000/s", &|run| run.opened / 1e3),
        case("packets", "1000/s", &|run| run.packets / 1e3),
        case("delay, median", "µs", &|run| share(&run.delays, 0.5)),
        case("delay, 99 %", "µs", &|run| share(&run.delays, 0.99)),
    ]
}
