//! `bench scale`: delay and loss of packets while a cluster scales out, and in (S6 figures 5 and 6,
//! NFVactor figure 7d, NFActor figure 7).
//!
//! The workers, chain and flows of `bench migrate`, in turn on one thread. Packets come at a rate,
//! whatever the workers do meanwhile (open loop), in turn over all flows:
//!
//! ```text
//!   ├── before ──┼── the order: half of the groups move ──┼── behind it ──┤     out; then all of them back: in
//! ```
//!
//! | figure | what it is |
//! |---|---|
//! | delay | from when a packet was due to when it had left, of packets that were due in that time |
//! | scaling, ms | from the order to its end |
//! | flows moved | by the receipt |
//! | kpps | packets that left, by the clock |
//!
//! A run in which a packet was lost, or a flow is over, ends in a panic.
//!
//! Rates: 700,000 packets a second, as S6 7.1 has it, and half of what the workers pass.
//!
//! **All three workers share one processor**, so a move takes the time of packets: with a processor
//! each they would feel less.
//!
//! Not here: a runtime's making (`docs/performance.md`), the choice of when to scale (the tool, by
//! load).

use super::report::{Case, Parameters};
use super::traffic::FRAME;
use super::workers::{Next, Workers};
use super::{Memory, Options};
use adapters::clock::monotonic_ns;
use runtime::mobility::{MoveOrder, Selector};

/// S6 7.1.
const RATE: f64 = 700e3;
/// How long packets come before the order, and behind its end.
const AROUND_NS: u64 = 50_000_000;
/// Packets that are due and wait for the switch at most: beyond, the workers are overloaded and the
/// figures say nothing.
const WAITING: usize = 1 << 20;
/// How long the rate is looked for that the workers pass.
const PROBE_NS: u64 = 50_000_000;

/// The result of one order.
#[derive(Default)]
struct Scaled {
    took: u64,
    moved: u64,
    packets: u64,
    seconds: f64,
    /// Before, during, behind.
    delays: [Vec<u64>; 3],
}

impl Workers {
    /// How many packets a second they pass.
    fn capacity(&mut self) -> f64 {
        let (began, mut flow, mut count) = (monotonic_ns(), 0, 0_u64);
        while monotonic_ns() - began < PROBE_NS {
            let (flows, line) = (self.flows, self.switch.port_mut(0));
            while line.next.len() < 64 {
                line.next.push_back(Next::Due(flow, began));
                flow = (flow + 1) % flows;
                count += 1;
            }
            self.step();
        }
        let elapsed = monotonic_ns() - began;
        self.run_until_quiet();
        count as f64 / elapsed as f64 * 1e9
    }

    /// Scales out, or in, under packets at a rate.
    fn scale(&mut self, from: usize, selector: Selector, rate: f64) -> Scaled {
        let begin = monotonic_ns();
        self.switch.port_mut(0).delays = Some(Vec::new());
        let (mut due, mut flow) = (0_u64, 0);
        let (mut order, mut over) = (None, None);
        loop {
            let now = monotonic_ns();
            let target = ((now - begin) as f64 * rate / 1e9) as u64;
            let flows = self.flows;
            let next = &mut self.switch.port_mut(0).next;
            assert!(next.len() < WAITING, "packets come faster than they pass");
            while due < target {
                next.push_back(Next::Due(flow, begin + (due as f64 * 1e9 / rate) as u64));
                flow = (flow + 1) % flows;
                due += 1;
            }
            if order.is_none() && now - begin > AROUND_NS {
                let order_of = MoveOrder {
                    selector: selector.clone(),
                    to: vec![1 - from as u16],
                };
                let given = monotonic_ns();
                let number = self.runtimes[from].order(order_of).expect("a good order");
                order = Some((number, given));
            }
            self.step();
            if let (Some((number, _)), None) = (order, over)
                && self.runtimes[from].is_over(number)
            {
                over = Some(monotonic_ns());
            }
            if over.is_some_and(|over| monotonic_ns() - over > AROUND_NS) {
                break;
            }
        }
        self.run_until_quiet();
        self.check_packets();
        let seconds = (monotonic_ns() - begin) as f64 / 1e9;
        let (number, given) = order.expect("it was given");
        let over = over.expect("it is over");
        let receipt = self.runtimes[from].receipt(number).expect("just given");
        assert_eq!(
            (receipt.moved, receipt.dropped),
            (receipt.asked, 0),
            "{receipt:?}"
        );
        let flows: u64 = self.runtimes.iter().map(|runtime| runtime.stats().flows).sum();
        assert_eq!(flows, u64::from(self.flows), "flows were lost");
        let all = self.switch.port_mut(0).delays.take().unwrap_or_default();
        let mut scaled = Scaled {
            took: over - given,
            moved: receipt.moved,
            packets: all.len() as u64,
            seconds,
            delays: Default::default(),
        };
        for (due, delay) in all {
            let part = usize::from(due >= given) + usize::from(due >= over);
            scaled.delays[part].push(delay);
        }
        scaled
    }
}

pub(super) fn share(delays: &[u64], share: f64) -> f64 {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |delay| *delay as f64 / 1e3)
}

/// Measures at all numbers of flows, at both rates, out and in.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let mut pair = Workers::of_gateway(flows, None, memory);
        let half = pair.capacity() / 2.0;
        // The memory is touched, at both ends.
        pair.scale(0, Selector::OneIn(2), RATE.min(half));
        pair.scale(1, Selector::All, RATE.min(half));
        for (name, rate) in [("700 kpps", RATE.min(half)), ("half load", half)] {
            let mut runs = [Vec::new(), Vec::new()];
            for _ in 0..options.runs {
                runs[0].push(pair.scale(0, Selector::OneIn(2), rate));
                runs[1].push(pair.scale(1, Selector::All, rate));
            }
            for (way, runs) in ["out", "in"].into_iter().zip(&runs) {
                cases.extend(report(&format!("{name}, {way}"), flows, runs));
            }
        }
    }
    cases
}

fn report(name: &str, flows: u32, runs: &[Scaled]) -> Vec<Case> {
    let case = |figure: &str, unit: &'static str, of: &dyn Fn(&Scaled) -> f64| {
        let parameters = Parameters {
            flows,
            popularity: "-",
            frame_bytes: FRAME,
            ..Parameters::default()
        };
        let samples = runs.iter().map(of).collect();
        Case::new(&format!("{name}: {figure}"), parameters, "figures", unit, samples)
    };
    let mut cases = vec![
        case("packets that left", "kpps", &|run| {
            run.packets as f64 / run.seconds / 1e3
        }),
        case("flows moved", "flows", &|run| run.moved as f64),
        case("scaling", "ms", &|run| run.took as f64 / 1e6),
    ];
    for (part, words) in ["before", "while scaling", "behind"].into_iter().enumerate() {
        for (what, of) in [("median", 0.5), ("99 %", 0.99), ("longest", 1.0)] {
            let figure = format!("delay {words}, {what}");
            cases.push(case(&figure, "µs", &|run| share(&run.delays[part], of)));
        }
    }
    cases
}
