//! `bench leases`: the cost of leases and views for a packet of firewall, NAT and load balancer.
//!
//! | case | what runs |
//! |---|---|
//! | `leases` | a switch and two runtimes that act by leases of 40 ms, as members of a coordinator do: each looks at them in each step, and asks for the next ones every 10 ms |
//! | `none` | the same without a membership, as in a cluster without a coordinator |
//!
//! All workers are on one thread. A burst is read, processed and transmitted before the next comes,
//! so none waits while the other case runs and leases end. Renewed ones are there before a run.
//!
//! Not here: heartbeats to the coordinator, which a thread of its own sends, and a worker's member
//! slot there (`coordinator::agent`).

use super::report::Case;
use super::traffic::{Popularity, Segment};
use super::workers::{Next, Workers};
use super::{Memory, Options, Subject, compete, gateway, orders, parameters, timed};
use protocols::membership::{Incarnation, Member, Membership, Standing, Term, View, WorkerId};

/// A coordinator's usual lease.
const TERM: Term = Term { lease: 40_000_000 };
/// The first lease is there after so many steps: a question, its answer in the step behind, and the
/// same of the switch.
const STEPS: usize = 8;

struct Members {
    workers: Workers,
    /// The last run's end, in nanoseconds: leases may be over behind it.
    ran: u64,
}

impl Members {
    fn new(flows: u32, has_leases: bool, memory: &Memory) -> Self {
        let mut workers = Workers::new(&gateway::plan(), 2, flows, memory);
        if has_leases {
            let all = [WorkerId::switch(0), WorkerId::runtime(0), WorkerId::runtime(1)];
            let member = |id| Member {
                id,
                incarnation: Incarnation(1),
                standing: Standing::Running,
            };
            let machine =
                |me| Membership::new(me, Incarnation(1), TERM, View::new(1, all.map(member).to_vec()));
            let [switch, runtimes @ ..] = all;
            workers.switch.begin_membership(machine(switch));
            for (runtime, me) in workers.runtimes.iter_mut().zip(runtimes) {
                runtime.begin_membership(machine(me));
            }
        }
        let mut members = Members { workers, ran: 0 };
        members.renew();
        members.workers.open();
        members
    }

    fn renew(&mut self) {
        for _ in 0..STEPS {
            self.workers.step();
        }
    }

    fn check(&mut self) {
        let line = self.workers.switch.port_mut(0);
        assert!(
            line.sent > 0 && line.sent >= line.received / 100 * 99,
            "a benchmark that drops measures something else: {} of {} left",
            line.sent,
            line.received
        );
    }
}

impl Subject for Members {
    fn run(&mut self, flows: &[u32]) -> u64 {
        let now = adapters::clock::monotonic_ns();
        if now.saturating_sub(self.ran) > TERM.lease / 8 {
            self.renew();
        }
        let next = flows.iter().map(|flow| Next::Of(*flow, Segment::Data));
        self.workers.switch.port_mut(0).next.extend(next);
        let took = timed(|| {
            self.workers.step();
            self.workers.step();
        });
        self.ran = adapters::clock::monotonic_ns();
        took
    }
}

/// Measures at all numbers of flows.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let [mut with, mut without] = [true, false].map(|has| Members::new(flows, has, memory));
        for popularity in [Popularity::Uniform, Popularity::Zipf] {
            let (orders, warm) = orders(options, popularity, flows);
            let mut samples = compete(&mut [&mut with, &mut without], &orders, warm).into_iter();
            let mut case = |name| {
                let samples = samples.next().expect("a list per subject");
                let parameters = parameters(options, popularity, flows);
                Case::new(
                    name,
                    parameters,
                    "cycles per packet",
                    "time-stamp cycles",
                    samples,
                )
            };
            let (with, without) = (case("leases"), case("none"));
            cases.extend([with.against(&without), without]);
        }
        with.check();
        without.check();
    }
    cases
}
