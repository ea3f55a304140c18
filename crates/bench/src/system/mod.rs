//! `bench system`: the whole path of a packet: generator, port, switch, runtime, switch, port.
//!
//! ```text
//!   writer ─► port ─► switch ─► ring ─► runtime          writer, ports and switch: one thread
//!   reader ◄─ port ◄─ switch ◄─ ring ◄─────┘             runtime: the same, or a thread of its own
//! ```
//!
//! | case | |
//! |---|---|
//! | `plain loop` | the same functions called by hand, with the same table and a deadline: no switch, actors, groups, rings |
//! | `one thread` | switch and runtime take turns on one processor |
//! | `two threads` | each has a processor |
//!
//! | figure | |
//! |---|---|
//! | Mpps | packets by the clock, the writing of packets included, at most [`site::WINDOW`] under way |
//! | delay | from when a packet was due to when it had left, at half of that rate, whatever the system does meanwhile (open loop) |
//!
//! All see the same packets: TCP segments of 64 bytes on the wire, of established flows, from
//! inside, six bytes of the body of an HTTP request in each, in sequence. Loads are each shipped
//! function that looks at packets, and the papers' chains (NFVactor VII-A, NFActor 6).
//!
//! Not here: packets of the other direction, flows that begin or end (`bench launch`), ports of a
//! kernel (`bench live`).

mod loads;
mod site;

use super::report::Case;
use super::traffic::Popularity;
use super::{Memory, Options, orders, parameters};
use adapters::clock::{CycleRate, allowed_cpus, pin_to};
use loads::{LOADS, Load};
use site::{Placement, System};
use std::time::Duration;

/// How long packets are sent at a rate.
const PACED_NS: f64 = 50e6;
/// The parts of the delays that are told.
const SHARES: [(&str, f64); 3] = [("median", 0.5), ("99th", 0.99), ("99.9th", 0.999)];

/// The results of a way to run a load, run by run.
#[derive(Default)]
struct Shown {
    rates: Vec<f64>,
    delays: [Vec<f64>; SHARES.len()],
}

/// The delays' shares, in microseconds.
fn shares(mut delays: Vec<u32>, hertz: f64) -> [f64; SHARES.len()] {
    delays.sort_unstable();
    SHARES.map(|(_, share)| {
        let at = ((delays.len() as f64 * share) as usize).min(delays.len().saturating_sub(1));
        delays
            .get(at)
            .map_or(0.0, |delay| f64::from(*delay) / hertz * 1e6)
    })
}

/// `far`: the processor of the runtime that has a thread of its own.
fn measure_load(
    load: &Load,
    far: usize,
    flows: u32,
    options: &Options,
    memory: &Memory,
    hertz: f64,
) -> Vec<Case> {
    let mut plain = (load.plain)(flows, memory);
    plain.open(flows);
    let mut systems = [Placement::OneThread, Placement::TwoThreads(far)]
        .map(|placement| System::new(placement, (load.plan)(), flows, memory));
    systems.iter_mut().for_each(|system| system.open(flows));

    let (orders, warm) = orders(options, Popularity::Uniform, flows);
    let mut shown = [Shown::default(), Shown::default(), Shown::default()];
    for order in &orders {
        let (before, order) = order.split_at(warm.min(order.len() / 2));
        plain.send(before);
        let mpps = |cycles: u64| order.len() as f64 / (cycles as f64 / hertz) / 1e6;
        shown[0].rates.push(mpps(plain.send(order)));
        for (system, shown) in systems.iter_mut().zip(&mut shown[1..]) {
            system.turn(|system| {
                system.send(before);
                let cycles = system.send(order);
                shown.rates.push(mpps(cycles));
                // A packet every so many cycles: half of what it has just done.
                let gap = 2.0 * cycles as f64 / order.len() as f64;
                let count = ((PACED_NS * 1e-9 * hertz / gap) as usize).min(order.len());
                let delays = shares(system.pace(&order[..count], gap), hertz);
                for (all, one) in shown.delays.iter_mut().zip(delays) {
                    all.push(one);
                }
            });
        }
    }
    systems.iter().for_each(|system| system.check(flows));

    let parameters = || parameters(options, Popularity::Uniform, flows);
    let case = |what: &str, metric, unit, samples| {
        Case::new(
            &format!("{}, {what}", load.name),
            parameters(),
            metric,
            unit,
            samples,
        )
    };
    let [plain, one, two] = shown;
    let plain = case("plain loop", "packets per second", "Mpps", plain.rates);
    let mut cases = Vec::new();
    for (what, shown) in [("one thread", one), ("two threads", two)] {
        cases.push(case(what, "packets per second", "Mpps", shown.rates).against(&plain));
        for ((share, _), delays) in SHARES.iter().zip(shown.delays) {
            cases.push(case(
                &format!("{what}, {share}"),
                "delay at half of the rate",
                "µs",
                delays,
            ));
        }
    }
    cases.push(plain);
    cases
}

/// Measures all loads at all numbers of flows.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let hertz = CycleRate::calibrate(Duration::from_millis(20)).hertz;
    // Behind the pin only one is allowed.
    let cpus = allowed_cpus();
    let [far, near] = [cpus.first(), cpus.last()].map(|cpu| cpu.copied().unwrap_or_default());
    if near == far {
        eprintln!("one processor for both threads: the figures of two threads say nothing");
    }
    let _ = pin_to(near);
    let mut cases = Vec::new();
    for &flows in &options.flows {
        for load in &LOADS {
            memory.begin_case();
            cases.extend(measure_load(load, far, flows, options, memory, hertz));
        }
    }
    cases
}
