//! `flowkeep bench`: the figures of the papers and of this project, repeatable.
//!
//! A scenario measures in time-stamp cycles on one pinned processor, against something in the same
//! run: runs of the case and of its reference alternate, and the ratio is taken pair by pair.
//! Before each measured run its own working set is brought into the caches as far as it fits.

mod chain;
mod gateway;
mod launch;
mod leases;
pub mod live;
mod lookup;
pub mod message;
mod migrate;
mod objects;
pub mod papers;
pub mod plot;
pub mod recover;
mod replicate;
pub mod report;
mod scale;
mod site;
mod stage;
mod store;
mod switch;
mod system;
mod traffic;
mod workers;

use adapters::clock::{CycleRate, allowed_cpus, cycles, pin_to};
use adapters::machine::{CpuTimes, Machine, load_average};
use adapters::pages::{PageKind, Want, map};
pub use report::Report;
use report::{Case, Facts, Parameters};
use std::cell::Cell;
use std::time::Duration;
use traffic::Popularity;
use wire::memory::{Array, Region};

/// The measurements, and how long they take.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs of each case.
    pub runs: usize,
    /// Packets per run.
    pub packets: usize,
    /// Numbers of flows.
    pub flows: Vec<u32>,
    /// Seed of the traffic.
    pub seed: u64,
    /// Which pages to lay tables out in.
    pub pages: Want,
    /// The processor to pin to; the last allowed one if not said.
    pub cpu: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            runs: 15,
            packets: 1 << 18,
            flows: vec![10_000, 100_000, 1_000_000],
            seed: 1,
            pages: Want::Huge,
            cpu: None,
        }
    }
}

/// The scenarios, with what each measures.
pub const SCENARIOS: [(&str, &str); 15] = [
    ("chain", "firewall, NAT and load balancer on one core, per packet"),
    ("switch", "routing a packet to its runtime"),
    ("launch", "what a new flow costs over its packet"),
    (
        "stage",
        "what erasing three functions behind a chain costs per packet",
    ),
    (
        "message",
        "messages between two workers, over a channel and over the bare ring",
    ),
    (
        "migrate",
        "flows of firewall, NAT and load balancer moved between two runtimes",
    ),
    (
        "scale",
        "what packets feel while half of the flows move to a runtime that came, and back",
    ),
    (
        "objects",
        "objects that runtimes share, beside tables of their own and beside a call for each packet",
    ),
    (
        "replicate",
        "what copies of flows at another runtime cost, beside the papers' way",
    ),
    (
        "recover",
        "flows whose runtime is killed: how long they stand still, and what copies take of memory",
    ),
    (
        "store",
        "a counter whose counts are kept in stores: throughput, and how old the counts there are",
    ),
    (
        "leases",
        "what leases and views cost a packet, beside workers without a coordinator",
    ),
    (
        "system",
        "packets through port, switch, runtime, switch, port: rate and delay, by function and by chain",
    ),
    (
        "papers",
        "the papers' figures and ours, by the scenarios above (only by the command)",
    ),
    (
        "live",
        "the chain on veth pairs against the kernel's nftables (root; only by the command)",
    ),
];

/// Memory for tables, and what kind it turned out to be.
pub(crate) struct Memory {
    want: Want,
    kind: Cell<&'static str>,
    huge: Cell<u64>,
    total: Cell<u64>,
}

impl Memory {
    fn new(want: Want) -> Self {
        Memory {
            want,
            kind: Cell::new("plain"),
            huge: Cell::new(0),
            total: Cell::new(0),
        }
    }

    /// A region of this length.
    pub(crate) fn region(&self, length: usize) -> Region {
        // Small regions lie in the heap: a 2 MiB page each would waste more than it gains.
        if length < 1 << 20 {
            return Region::heap(length);
        }
        match map(length, self.want) {
            Ok(pages) => {
                self.kind.set(match pages.kind {
                    PageKind::Reserved => "reserved",
                    PageKind::Transparent => "transparent",
                    PageKind::Plain => "plain",
                });
                self.huge.set(self.huge.get() + pages.huge_bytes as u64);
                self.total.set(self.total.get() + length as u64);
                pages.region
            }
            Err(_) => Region::heap(length),
        }
    }

    /// Values of one type in such memory.
    pub(crate) fn array<T: Copy>(&self, length: usize, value: T) -> Array<T> {
        Array::filled(self.region(Array::<T>::region_length(length)), length, value)
    }

    fn begin_case(&self) {
        self.huge.set(0);
        self.total.set(0);
    }
}

/// Something that can process one burst of an order of flows, and say how many cycles it took.
pub(crate) trait Subject {
    /// Processes packets of these flows and answers the cycles it took, without the time to write
    /// them.
    fn run(&mut self, flows: &[u32]) -> u64;
}

/// Runs the subjects in turn over the same order of flows; answers cycles per packet, by subject
/// and run.
pub(crate) fn compete(subjects: &mut [&mut dyn Subject], orders: &[Vec<u32>], warm: usize) -> Vec<Vec<f64>> {
    let mut samples = vec![Vec::new(); subjects.len()];
    for order in orders {
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            let (before, measured) = order.split_at(warm.min(order.len() / 2));
            for burst in before.chunks(runtime::BURST) {
                subject.run(burst);
            }
            let total: u64 = measured
                .chunks(runtime::BURST)
                .map(|burst| subject.run(burst))
                .sum();
            samples.push(total as f64 / measured.len() as f64);
        }
    }
    samples
}

/// The orders of flows for all runs of a case, each with its warm-up in front.
pub(crate) fn orders(options: &Options, popularity: Popularity, flows: u32) -> (Vec<Vec<u32>>, usize) {
    // Enough to have met most flows once, so that what fits into a cache is there.
    let warm = (flows as usize).clamp(1 << 14, 1 << 17);
    let orders = (0..options.runs as u64)
        .map(|run| popularity.order(flows, warm + options.packets, options.seed * 1000 + run))
        .collect();
    (orders, warm)
}

pub(crate) fn parameters(options: &Options, popularity: Popularity, flows: u32) -> Parameters {
    Parameters {
        flows,
        popularity: popularity.name(),
        frame_bytes: traffic::FRAME,
        packets_per_run: options.packets,
        live: None,
    }
}

/// Runs a scenario. An unknown name is answered with the list.
pub fn run(scenario: &str, options: &Options) -> Result<Report, String> {
    let measure: fn(&Options, &Memory) -> Vec<Case> = match scenario {
        "chain" => chain::measure,
        "switch" => switch::measure,
        "launch" => launch::measure,
        "stage" => stage::measure,
        "message" => message::measure,
        "migrate" => migrate::measure,
        "scale" => scale::measure,
        "objects" => objects::measure,
        "replicate" => replicate::measure,
        "recover" => recover::measure,
        "store" => store::measure,
        "leases" => leases::measure,
        "system" => system::measure,
        other => {
            let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "there is no scenario `{other}`; there are: {}",
                known.join(", ")
            ));
        }
    };
    let cpu = options.cpu.or_else(|| allowed_cpus().last().copied());
    // Two threads would both be where this one is.
    let is_alone = !matches!(scenario, "message" | "replicate" | "recover" | "system");
    let pinned_to = cpu.filter(|cpu| is_alone && pin_to(*cpu).is_ok());
    let machine = Machine::read();
    let (times, load) = (CpuTimes::read(), load_average());
    let rate = CycleRate::calibrate(Duration::from_millis(20));
    if options.pages == Want::Plain {
        // For everything that is allocated from now on, the functions' own tables among it.
        adapters::pages::only_plain()
            .map_err(|error| format!("large pages cannot be turned off: {error}"))?;
    }
    let memory = Memory::new(options.pages);
    let cases = measure(options, &memory);
    let machine = Facts {
        cpu_model: machine.cpu_model,
        cpus: machine.cpus,
        pinned_to,
        kernel: machine.kernel,
        virtual_machine: machine.virtual_machine,
        cycles_per_second: rate.hertz,
        pages: memory.kind.get().to_string(),
        huge_bytes: memory.huge.get(),
        table_bytes: memory.total.get(),
        load_average: load,
        stolen: CpuTimes::read().stolen_since(&times),
    };
    Ok(Report {
        scenario: scenario.to_string(),
        command: format!("flowkeep bench {scenario}"),
        machine,
        seed: options.seed,
        cases,
    })
}

/// Times one call.
#[inline(always)]
pub(crate) fn timed(work: impl FnOnce()) -> u64 {
    let before = cycles();
    work();
    cycles() - before
}
