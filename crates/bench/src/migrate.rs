//! `bench migrate`: flows that move from one runtime to another and back (NFVactor figures 9a and
//! 9b; NFActor figure 8, by how many flows may be under way).
//!
//! A switch and two runtimes, joined by the rings that join workers in production, with the
//! firewall, NAT and load balancer of `bench chain`; flows are opened by a handshake, 32 a host,
//! and a host's flows are a group. In each run all flows move to the other runtime, by the order
//! that an operator gives; the next run moves them back.
//!
//! **The three workers are stepped in turn, on one thread and one processor**: the cost of a move
//! is that of all processors, and its time is one that three processors would share. `10/s` has ten
//! packets per second of each flow in at the switch meanwhile, by the clock, in order of the flows,
//! as far as the thread gets to it.
//!
//! | figure | what it is |
//! |---|---|
//! | ns per flow | from the order to the end of the last group's move, by flows |
//! | move, µs | the same for all of them |
//! | longest pause, µs | of a group, by the receipt: from its switch's being told to its installation at the target |
//! | longest delay, µs | of a packet, from the port to the port |
//! | bytes per flow | of state |
//! | median pause, µs | the median of the groups' |
//! | packets meanwhile | that came in from the order to its end: their own processing is part of the time of a move |
//! | packets buffered | at the target until the group was there |
//! | packets handed on | by the source |
//! | packets dropped or lost | after each run as many packets have left as came in, and all flows are at the target; otherwise it ends in a panic |
//!
//! With `N under way` at most so many flows are on their way at once, at rest; the usual bound is
//! 1,024. A group moves as a whole, so it is passed by up to a group.
//!
//! Not here: workers on threads of their own, which is how they run in production.

use super::report::{Case, Parameters};
use super::traffic::{FRAME, Segment};
use super::workers::{Next, Workers};
use super::{Memory, Options};
use adapters::clock::monotonic_ns;
use runtime::mobility::{MoveOrder, Receipt, Selector};

/// Packets a second of each flow.
const RATE: u64 = 10;
/// Two runtimes, one of which has all flows.
struct Pair {
    workers: Workers,
    /// Where they are.
    at: usize,
}

/// The result of one run.
struct Moved {
    nanoseconds: u64,
    receipt: Receipt,
    delay: u64,
    /// That came in from the order to its end, or near it.
    packets: u64,
}

impl Pair {
    fn new(flows: u32, under_way: Option<u32>, memory: &Memory) -> Self {
        let mut pair = Pair {
            workers: Workers::of_gateway(flows, under_way, memory),
            at: 0,
        };
        pair.check();
        pair
    }

    /// That nothing was lost, and all flows are where they are thought to be.
    fn check(&mut self) {
        let (here, there) = (
            self.workers.runtimes[self.at].stats().flows,
            self.workers.runtimes[1 - self.at].stats().flows,
        );
        self.workers.check_packets();
        assert_eq!(
            (here, there),
            (u64::from(self.workers.flows), 0),
            "flows were lost"
        );
    }

    /// Moves all flows to the other runtime, with or without traffic.
    fn run(&mut self, has_traffic: bool) -> Moved {
        let order = MoveOrder {
            selector: Selector::All,
            to: vec![1 - self.at as u16],
        };
        let begin = monotonic_ns();
        let (mut offered, mut flow) = (0, 0);
        self.workers.switch.port_mut(0).longest = 0;
        let (mut number, mut received) = (None, 0);
        let nanoseconds = loop {
            if has_traffic {
                let elapsed = u128::from(monotonic_ns() - begin);
                let due = elapsed * u128::from(RATE * u64::from(self.workers.flows)) / 1_000_000_000;
                let next = &mut self.workers.switch.port_mut(0).next;
                while offered < due && next.len() < 4096 {
                    next.push_back(Next::Of(flow, Segment::Data));
                    flow = (flow + 1) % self.workers.flows;
                    offered += 1;
                }
            }
            // A little traffic first, so that the move meets it.
            if number.is_none() && (!has_traffic || monotonic_ns() - begin > 5_000_000) {
                let runtime = &mut self.workers.runtimes[self.at];
                let given = monotonic_ns();
                number = Some((runtime.order(order.clone()).expect("a good order"), given));
                received = self.workers.switch.port_mut(0).received;
            }
            self.workers.step();
            if let Some((number, given)) = number
                && self.is_over(number)
            {
                break monotonic_ns() - given;
            }
        };
        let (number, _) = number.expect("it was given");
        let packets = self.workers.switch.port_mut(0).received - received;
        self.workers.run_until_quiet();
        let receipt = self.workers.runtimes[self.at]
            .receipt(number)
            .expect("just given");
        assert_eq!(receipt.moved, u64::from(self.workers.flows), "{receipt:?}");
        self.at = 1 - self.at;
        self.check();
        Moved {
            nanoseconds,
            receipt,
            delay: self.workers.switch.port_mut(0).longest,
            packets,
        }
    }

    fn is_over(&mut self, number: u32) -> bool {
        self.workers.runtimes[self.at].is_over(number)
    }
}

/// The longest pause to reach, in microseconds.
fn pause_goal(flows: u32) -> Option<f64> {
    match flows {
        1000 => Some(1000.0),
        100_000 => Some(20_000.0),
        _ => None,
    }
}

/// Measures at all numbers of flows, at rest and with traffic.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let mut pair = Pair::new(flows, None, memory);
        // The memory is touched, at both ends.
        pair.run(false);
        pair.run(false);
        for (name, has_traffic) in [("at rest", false), ("10/s", true)] {
            let moves: Vec<Moved> = (0..options.runs).map(|_| pair.run(has_traffic)).collect();
            let case = |figure: &str, of: &dyn Fn(&Moved) -> f64| {
                let parameters = Parameters {
                    flows,
                    popularity: "-",
                    frame_bytes: FRAME,
                    ..Parameters::default()
                };
                let samples = moves.iter().map(of).collect();
                let name = format!("{name}: {figure}");
                Case::new(&name, parameters, "figures", "units as named", samples)
            };
            let count = f64::from(flows);
            let figures = [
                case("ns per flow", &|moved| moved.nanoseconds as f64 / count).goal(Some(500.0)),
                case("move, µs", &|moved| moved.nanoseconds as f64 / 1e3)
                    .goal((flows == 1000).then_some(500.0)),
                case("longest pause, µs", &|moved| {
                    moved.receipt.pause_longest as f64 / 1e3
                })
                .goal(pause_goal(flows)),
                case("longest delay, µs", &|moved| moved.delay as f64 / 1e3),
                case("bytes per flow", &|moved| moved.receipt.bytes as f64 / count),
                case("median pause, µs", &|moved| {
                    moved.receipt.pause_median as f64 / 1e3
                }),
                case("packets meanwhile", &|moved| moved.packets as f64),
                case("packets buffered", &|moved| moved.receipt.buffered as f64),
                case("packets handed on", &|moved| moved.receipt.handed_on as f64),
                // Any other would have ended the run.
                case("packets dropped or lost", &|moved| moved.receipt.dropped as f64).goal(Some(0.0)),
            ];
            cases.extend(figures);
        }
        drop(pair);
        cases.extend(by_flows_under_way(flows, options.runs, memory));
    }
    cases
}

/// The most flows under way, by which moves at rest are compared (NFActor figure 8).
const UNDER_WAY: [u32; 4] = [64, 256, 1024, 4096];

/// A run of each in turn.
fn by_flows_under_way(flows: u32, runs: usize, memory: &Memory) -> Vec<Case> {
    let bounds = UNDER_WAY.into_iter().filter(|bound| *bound <= flows);
    let mut pairs: Vec<(u32, Pair, Vec<Moved>)> = bounds
        .map(|bound| {
            memory.begin_case();
            (bound, Pair::new(flows, Some(bound), memory), Vec::new())
        })
        .collect();
    for (_, pair, _) in &mut pairs {
        pair.run(false);
        pair.run(false);
    }
    for _ in 0..runs {
        for (_, pair, moves) in &mut pairs {
            moves.push(pair.run(false));
        }
    }
    /// A figure's name, and what it is of a move of so many flows.
    type Figure = (&'static str, fn(&Moved, f64) -> f64);
    let figures: [Figure; 2] = [
        ("ns per flow", |moved, count| moved.nanoseconds as f64 / count),
        ("longest pause, µs", |moved, _| {
            moved.receipt.pause_longest as f64 / 1e3
        }),
    ];
    let cases = pairs.iter().flat_map(|(bound, _, moves)| {
        figures.iter().map(move |(figure, of)| {
            let parameters = Parameters {
                flows,
                popularity: "-",
                frame_bytes: FRAME,
                ..Parameters::default()
            };
            let samples = moves.iter().map(|moved| of(moved, f64::from(flows))).collect();
            let name = format!("{bound} under way: {figure}");
            Case::new(&name, parameters, "figures", "units as named", samples)
        })
    });
    cases.collect()
}
