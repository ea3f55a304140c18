//! `bench replicate`: the cost of copies at another runtime (NFVactor VII-C, figures 8a and 8b).
//!
//! A primary and its replica, each on a thread and a processor of its own, with the link that two
//! processes of one host have between them ([`site`]). Packets of 64 bytes are handed to the
//! primary and taken from it on its own thread. Three pairs take turns on the same threads, run by
//! run:
//!
//! | pair | |
//! |---|---|
//! | plain | the same workers and link, without copies |
//! | copied | with copies: a packet waits at the primary until the replica has acknowledged what it changed |
//! | papers | the papers' way, as a prototype: the packet travels with its state to the replica, which sends it out ([`papers`]) |
//!
//! | load | |
//! |---|---|
//! | commit | a function that changes all of its flow's eight committed bytes with every packet |
//! | snapshot | the same function, of whose flows every tenth packet sends a copy, and none waits (NFActor 10a) |
//! | gateway | firewall → NAT → load balancer, established flows: the state that changes with every packet is lazy |
//!
//! | figure | what it is |
//! |---|---|
//! | Mpps | packets by the cycles of the primary's steps, its waiting for the replica included, without the writing of packets |
//! | % of plain | the same, run by run over plain's |
//! | % by the clock | the same with the writing of packets, which is the same for all pairs |
//! | replica, cycles | of its steps that did something, by packet |
//! | bytes on link | by packet: frames of records and acknowledgements, both ways, without the link's own head |
//! | frames on link | by packet, both ways |
//! | left out | packets dropped for want of room, per million |
//! | delay | from when a packet was due to when it had left, at half of the rate by the clock of *copied*, whatever the others can do |
//! | added | the same over plain's, run by run |
//!
//! Not here: a network between the two, switches, flows that begin and end.

mod papers;
mod site;

use super::report::{Case, Parameters, median};
use super::site::Meeting;
use super::traffic::{FRAME, Popularity};
use super::{Memory, Options, gateway, orders};
use adapters::clock::{CycleRate, pin_to};
use nf::{
    ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function,
};
use papers::Shipper;
use runtime::Runtime;
use runtime::chain::{ChainRule, Match, Plan};
use runtime::replication::{Copying, Policy};
use runtime::stage::{Configured, Factory};
use site::{End, Far, Near, Run, Sent, Turns, processors};
use std::sync::Arc;
use std::time::Duration;

/// The machine is left alone for so long between two runs.
const PAUSE: Duration = Duration::from_millis(20);
/// How long packets are sent at a rate.
const PACED_NS: f64 = 50e6;

/// Eight committed bytes.
#[derive(FlowState, Clone, Copy, Debug, Default)]
#[repr(C)]
struct Marked {
    mark: u64,
}

/// Changes all eight bytes with each packet of a flow.
struct Commit;

#[network_function]
impl NetworkFunction for Commit {
    const NAME: &'static str = "commit";
    type Config = NoConfig;
    type Flow = Marked;
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Commit)
    }

    fn process(&self, _: &mut Packet, flow: &mut Marked, _: &mut Cx<Self>) -> Verdict {
        // Each byte of a number without a byte of 0 or 255 changes the byte that it is added to,
        // with or without a carry.
        flow.mark = flow.mark.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Verdict::Forward
    }

    fn timeout(&self, _: &Marked) -> Option<Duration> {
        Some(Duration::from_secs(240))
    }
}

struct Load {
    name: &'static str,
    plan: Plan,
    /// Bytes of the states of the chain's functions.
    state: usize,
    /// The parts that are copied, and when.
    copying: Copying,
    /// Percent of plain to reach.
    goal: Option<f64>,
    bytes_goal: Option<f64>,
}

/// A chain of [`Commit`].
fn committing() -> Plan {
    let factory: Box<dyn Factory> = Box::new(Configured::<Commit>::new("commit", NoConfig {}));
    let rule = ChainRule {
        name: "bench".into(),
        matching: Match::default(),
        functions: vec!["commit".into()],
        replication: None,
    };
    Plan::new(vec![rule], vec![factory]).expect("a chain of one")
}

fn loads() -> [Load; 3] {
    [
        Load {
            name: "commit",
            plan: committing(),
            state: size_of::<Marked>(),
            copying: Copying::default(),
            goal: Some(40.0),
            bytes_goal: Some(100.0),
        },
        Load {
            name: "snapshot",
            plan: committing(),
            state: size_of::<Marked>(),
            copying: Copying {
                policy: Policy::Snapshot,
                packets: 10,
                ..Copying::default()
            },
            goal: None,
            bytes_goal: None,
        },
        Load {
            name: "gateway",
            plan: gateway::plan(),
            state: gateway::state_length(),
            copying: Copying::default(),
            goal: Some(90.0),
            bytes_goal: None,
        },
    ]
}

/// The three pairs, without the far thread.
struct Pairs {
    near: Vec<Near>,
    far: Vec<Box<dyn Far>>,
    shipper: Option<Shipper>,
    _meetings: Vec<Meeting>,
}

const PAIRS: [&str; 3] = ["plain", "copied", "papers"];
const COPIED: usize = 1;
const PAPERS: usize = 2;

impl Pairs {
    fn new(load: &Load, flows: u32, memory: &Memory) -> Self {
        let mut pairs = Pairs {
            near: Vec::new(),
            far: Vec::new(),
            shipper: None,
            _meetings: Vec::new(),
        };
        for (turn, name) in PAIRS.into_iter().enumerate() {
            let meeting = Meeting::new(name);
            let sent = [Arc::new(Sent::default()), Arc::new(Sent::default())];
            let worker = |number: u16| -> Runtime<End> {
                let link = (
                    meeting.link(1 + number, 2 - number),
                    sent[usize::from(number)].clone(),
                );
                let copying = (turn == COPIED).then_some(load.copying);
                site::runtime(number, flows, &load.plan, copying, link, |length| {
                    memory.region(length)
                })
            };
            let (primary, replica) = (worker(0), worker(1));
            let near = Near::new(name, turn, primary, sent);
            pairs.near.push(near);
            if turn == PAPERS {
                let (shipper, keeper) = papers::pair(&meeting, flows, load.state);
                pairs.shipper = Some(shipper);
                pairs.far.push(keeper);
                drop(replica);
            } else {
                pairs.far.push(Box::new(replica));
            }
            pairs._meetings.push(meeting);
        }
        pairs
    }
}

/// The results of one round of a load, by pair.
#[derive(Default)]
struct Shown {
    runs: [Vec<Run>; 3],
    /// Delay in cycles: median and 99th percentile.
    delays: [Vec<[f64; 2]>; 3],
    left_out: [Vec<f64>; 3],
}

fn percentile(delays: &mut [u32], percent: usize) -> f64 {
    if delays.is_empty() {
        return 0.0;
    }
    let place = (delays.len() * percent / 100).min(delays.len() - 1);
    f64::from(*delays.select_nth_unstable(place).1)
}

fn observe(near: &mut [Near], turns: &Turns, options: &Options, flows: u32, hertz: f64) -> Shown {
    let (orders, warm) = orders(options, Popularity::Uniform, flows);
    let mut shown = Shown::default();
    for order in &orders {
        for (pair, near) in near.iter_mut().enumerate() {
            shown.runs[pair].push(near.run(turns, warm, order));
            std::thread::sleep(PAUSE);
        }
    }
    let clock: Vec<f64> = shown.runs[COPIED]
        .iter()
        .map(|run| run.clock as f64 / run.packets as f64)
        .collect();
    let gap = 2.0 * median(&clock);
    let count = (PACED_NS * hertz / 1e9 / gap) as usize;
    for order in &orders {
        let order: Vec<u32> = order.iter().copied().cycle().take(count).collect();
        for (pair, near) in near.iter_mut().enumerate() {
            let (mut delays, left_out) = near.pace(turns, &order, gap);
            shown.delays[pair].push([percentile(&mut delays, 50), percentile(&mut delays, 99)]);
            shown.left_out[pair].push(left_out as f64 * 1e6 / count as f64);
            std::thread::sleep(PAUSE);
        }
    }
    shown
}

/// Measures all loads at all numbers of flows.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let hertz = CycleRate::calibrate(Duration::from_millis(20)).hertz;
    let (near_cpu, far_cpu) = processors();
    if near_cpu == far_cpu {
        eprintln!("one processor for both workers: the figures say nothing of two");
    }
    let mut cases = Vec::new();
    for load in loads() {
        for &flows in &options.flows {
            memory.begin_case();
            let Pairs {
                mut near,
                mut far,
                mut shipper,
                _meetings,
            } = Pairs::new(&load, flows, memory);
            let turns = Turns::new(PAIRS.len());
            let shown = std::thread::scope(|scope| {
                scope.spawn(|| turns.serve(far_cpu, &mut far));
                let near = scope.spawn(|| {
                    let _ = pin_to(near_cpu);
                    let _end = EndOf(&turns);
                    for (pair, near) in near.iter_mut().enumerate() {
                        near.meet(&turns, pair == COPIED);
                        near.open(&turns, flows);
                        if pair == PAPERS
                            && let Some(shipper) = shipper.take()
                        {
                            near.ship_with(&turns, shipper);
                        }
                    }
                    observe(&mut near, &turns, options, flows, hertz)
                });
                near.join().expect("the primary's thread ends well")
            });
            cases.extend(report(&load, flows, options, &shown, hertz));
        }
    }
    cases
}

/// Ends the far thread, in a panic too.
struct EndOf<'a>(&'a Turns);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn report(load: &Load, flows: u32, options: &Options, shown: &Shown, hertz: f64) -> Vec<Case> {
    let case = |name: String, samples: Vec<f64>| {
        let parameters = Parameters {
            flows,
            popularity: Popularity::Uniform.name(),
            frame_bytes: FRAME,
            packets_per_run: options.packets,
            live: None,
        };
        Case::new(&name, parameters, "figures", "units as named", samples)
    };
    let of = |pair: usize, figure: &dyn Fn(&Run) -> f64| -> Vec<f64> {
        let by_packet = |run: &Run| figure(run) / run.packets as f64;
        shown.runs[pair].iter().map(by_packet).collect()
    };
    let share = |pair: usize, figure: &dyn Fn(&Run) -> f64| -> Vec<f64> {
        let pairs = of(0, figure).into_iter().zip(of(pair, figure));
        pairs.map(|(plain, this)| 100.0 * plain / this).collect()
    };
    let mut cases = Vec::new();
    for (pair, pair_name) in PAIRS.into_iter().enumerate() {
        let name = |figure: &str| format!("{}, {pair_name}: {figure}", load.name);
        let rate = |cycles: f64| hertz / cycles / 1e6;
        let near = |run: &Run| run.near as f64;
        cases.push(case(
            name("Mpps"),
            of(pair, &near).into_iter().map(rate).collect(),
        ));
        if pair > 0 {
            let goal = load.goal.filter(|_| pair == COPIED);
            cases.push(case(name("% of plain"), share(pair, &near)).goal(goal));
            let clock = share(pair, &|run| run.clock as f64);
            cases.push(case(name("% by the clock"), clock));
        }
        cases.push(case(name("primary, cycles"), of(pair, &near)));
        if pair > 0 {
            let far = of(pair, &|run| run.far as f64);
            cases.push(case(name("replica, cycles"), far));
            let bytes = of(pair, &|run| run.bytes as f64);
            let goal = load.bytes_goal.filter(|_| pair == COPIED);
            cases.push(case(name("bytes on link"), bytes).goal(goal));
            let frames = of(pair, &|run| run.frames as f64);
            cases.push(case(name("frames on link"), frames));
            let left_out = of(pair, &|run| run.left_out as f64 * 1e6);
            cases.push(case(name("left out, per million"), left_out));
        }
        let delay = |pair: usize, which: usize| {
            let delays = shown.delays[pair].iter();
            delays.map(move |delays| delays[which] * 1e6 / hertz)
        };
        for (which, percentile) in ["median", "99 %"].into_iter().enumerate() {
            let text = format!("delay {percentile}, µs");
            cases.push(case(name(&text), delay(pair, which).collect()));
            if pair > 0 {
                let text = format!("added {percentile}, µs");
                let added = delay(pair, which).zip(delay(0, which));
                let goal = (pair == COPIED && which == 0).then_some(10.0);
                cases.push(case(name(&text), added.map(|(this, plain)| this - plain).collect()).goal(goal));
            }
        }
        if pair > 0 {
            let text = name("left out at half load, per million");
            cases.push(case(text, shown.left_out[pair].clone()));
        }
    }
    cases
}
