//! `bench launch`: the cost of a new flow over its packet's own cost (NFVactor VII-A2), in the
//! chain firewall → NAT → load balancer with so many flows live.
//!
//! `launch` is a step over a burst of packets that each open a flow; `established` the same over
//! packets of live flows. New flows come in the order of their hosts, which have 32 each; the cost
//! is the difference of the two. After each run the new flows, which never got an answer, expire,
//! so that every run but an uncounted first finds the memory in use as a runtime finds it that has
//! been up for a while.

use super::report::Case;
use super::stage::Chain;
use super::traffic::{Popularity, Segment};
use super::{Memory, Options, gateway, orders, parameters};
use runtime::BURST;

impl Chain {
    /// Lets time go on and the runtime find expired flows.
    fn expire(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
        while !self.runtime.step(self.now).is_idle() {}
    }
}

/// Flows opened in a run.
const OPENED: u32 = 2048;

/// Longer than a flow that only sent a SYN lives, and far shorter than an established one does.
const EXPIRY: u64 = 5 * 60 * 1_000_000_000;
/// The established flows live for two hours: so many runs are over by then.
const RUNS_MAX: usize = 20;

/// Measures at all numbers of live flows.
pub(super) fn measure(options: &Options, memory: &Memory) -> Vec<Case> {
    let mut cases = Vec::new();
    for &flows in &options.flows {
        memory.begin_case();
        let mut chain = Chain::new(gateway::plan(), flows + OPENED, memory);
        let live: Vec<u32> = (0..flows).collect();
        chain.open(&live);
        let (orders, _) = orders(options, Popularity::Uniform, flows);
        let (mut opened, mut established, mut over) = (Vec::new(), Vec::new(), Vec::new());
        let new: Vec<u32> = (flows..flows + OPENED).collect();
        for (run, order) in orders.iter().take(RUNS_MAX).enumerate() {
            let mut own = 0;
            let order = &order[..OPENED as usize * 8];
            for burst in order.chunks(BURST) {
                own += chain.step(burst, Segment::Data);
            }
            let own = own as f64 / order.len() as f64;
            let cycles: u64 = new
                .chunks(BURST)
                .map(|burst| chain.step(burst, Segment::Syn))
                .sum();
            let launch = cycles as f64 / f64::from(OPENED);
            chain.check(flows + OPENED);
            chain.expire(EXPIRY);
            chain.check(flows);
            if run > 0 {
                opened.push(launch);
                established.push(own);
                over.push(launch - own);
            }
        }
        let case = |name, samples| {
            let mut parameters = parameters(options, Popularity::Uniform, flows);
            parameters.packets_per_run = OPENED as usize;
            Case::new(
                name,
                parameters,
                "cycles per packet",
                "time-stamp cycles",
                samples,
            )
        };
        let established = case("established", established);
        let launch = case("launch", opened).against(&established);
        let over = case("launch - established", over).goal((flows == 100_000).then_some(500.0));
        cases.extend([over, launch, established]);
    }
    cases
}
