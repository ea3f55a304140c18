//! Limits per inside host, so that one host cannot take everything: flows at a time, and new flows
//! per second.
//!
//! Theory of operation. The first packet of a flow asks for the host's account: it may have so many
//! flows at a time, and a new one costs a token of a bucket that fills steadily. A refused packet
//! is a counted drop and leaves no flow. A flow that was let through is counted until it ends, for
//! whatever reason; its later packets cost one compare.
//!
//! ```text
//!   flows_per_host = 3, new_flows_per_second = 1, burst = 2
//!   10.0.0.1 opens a, b     both pass: 2 flows, no token left
//!            opens c        too_many_new_flows
//!   2 s      opens c        passes: 3 flows, 1 token
//!            opens d        too_many_flows
//!   a ends,  opens d        passes: 3 flows
//! ```
//!
//! Flows that a host opens and flows that are opened to it from outside are counted apart, each
//! with these limits: so outside hosts cannot use up what the host itself may open. Of a hairpinned
//! connection each host has its own half.
//!
//! *Whose flow.* All flows of an inside address are on one runtime ([`Affinity::InsideAddress`]),
//! which therefore counts them alone. A flow from inside is its source's, as it came in. A flow
//! from outside is the host's whose group it is in, known since the host has opened a flow itself;
//! before that, its destination's. So it does not matter whether the function stands before NAT or
//! behind it. In IPv6 a host has as many addresses as it likes, so a whole network counts as one
//! (`prefix_v6`); its addresses may be on several runtimes, and each of those keeps an account of
//! its own. The same is true of what two inside hosts say to each other: it is counted for the host
//! that began it, where the flow is.
//!
//! *Elsewhere.* A flow's state says for which address it is counted, so the runtime can count again
//! from the flows, when they arrive and when the configuration has changed. The group carries a
//! copy of the buckets.
//!
//! Invariants, each with its test: a host's count is the number of its counted flows on this
//! runtime; each is given back once; no host has more flows, of either way, than its limit, but for
//! those that arrived from elsewhere or were there before the limit.
//!
//! Not here: ports of a host (NAT's `blocks_per_host`), bytes and packets per second.
//!
//! Sources: RFC 6888 REQ-4 and REQ-5; RFC 8981 for the addresses of an IPv6 host.

mod config;
mod hosts;
mod state;
#[cfg(test)]
mod tests;

pub use config::{Config, HOSTS_MAX, Limit};
pub use state::{Bucket, Counted, Host, Opened};

use crate::budget::Budget;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use config::Plan;
use core::cell::{Cell, RefCell};
use hosts::Hosts;
use nf::{
    Addr, Adds, Affinity, Arrival, ConfigError, Cx, Departure, Event, Field, Keep, NetworkFunction, Packet,
    Row, Side, Table, Verdict, WorkerInfo, network_function, row,
};
use wire::packet::flag;

/// How long after an event about a host the next one of its kind comes.
const TOLD_AGAIN: u64 = 10_000_000_000;
/// Events per second and runtime at most.
const EVENTS_PER_SECOND: u32 = 100;
/// Hosts that the table `hosts` lists if it is not said.
const LISTED: usize = 20;

/// The limits of one runtime.
pub struct HostLimits {
    plan: Plan,
    /// Touched when flows open and end, never for a packet of an established flow.
    hosts: RefCell<Hosts>,
    seed: u64,
    events: Budget,
    /// The accounts are those of the configuration before, with every flow in them.
    carried: Cell<bool>,
}

#[network_function]
impl NetworkFunction for HostLimits {
    const NAME: &'static str = "host_limits";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const ICMP_ERRORS: bool = false;
    const COUNTERS: &'static [&'static str] = &[
        /// Flows that were counted against a host's limits.
        "flows_counted",
        /// Counted flows that ended.
        "flows_given_back",
        /// Flows of hosts that have no limit.
        "flows_exempt",
        /// Flows that came from another runtime and found no room in the table of hosts.
        "flows_arrived_uncounted",
        /// Hosts whose place another host took while their rate was still filling.
        "hosts_forgotten",
        /// Events that were not written: there had been too many.
        "events_limited",
    ];
    const REASONS: &'static [&'static str] = &[
        /// Its host has as many flows as it may.
        "too_many_flows",
        /// Its host opens more flows a second than it may.
        "too_many_new_flows",
        /// As many hosts are counted as there may be.
        "too_many_hosts",
    ];
    const EVENTS: &'static [Event] = &[Event::new(
        "host_limited",
        "A host's new flow was refused; for one host, side and runtime every ten seconds at most.",
        &[
            Field::text("host", "Address or prefix that is counted."),
            Field::text(
                "opened_from",
                "The side that opened the flow: `inside` or `outside`.",
            ),
            Field::text("reason", "Reason of the drop."),
            Field::number(
                "flows",
                "flows",
                "Flows that the host has, opened from that side.",
            ),
            Field::number("refused", "flows", "Flows that were refused so far."),
        ],
    )];
    const TABLES: &'static [Table] = &[Table {
        name: "hosts",
        columns: &[
            ("host", Adds::Name),
            ("from_inside", Adds::Sum),
            ("from_inside_refused", Adds::Greatest),
            ("from_outside", Adds::Sum),
            ("from_outside_refused", Adds::Greatest),
        ],
        top: LISTED,
        metrics: &[],
    }];
    type Config = Config;
    type Flow = Counted;
    type Group = Host;

    fn new(config: &Arc<Config>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        let plan = Plan::new(config)?;
        Ok(HostLimits {
            hosts: RefCell::new(Hosts::new(plan.hosts, worker.seed)),
            seed: worker.seed,
            events: Budget::new(EVENTS_PER_SECOND),
            carried: Cell::new(false),
            plan,
        })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Counted, cx: &mut Cx<Self>) -> Verdict {
        if flow.opened != Opened::Undecided {
            return Verdict::Forward;
        }
        self.open(packet, flow, cx)
    }

    fn arrived(&self, flow: &mut Counted, why: Arrival, cx: &mut Cx<Self>) {
        let Some(direction) = flow.opened.direction().filter(|_| why != Arrival::New) else {
            return;
        };
        let host = self.plan.host(flow.host);
        if wire::planted::is("flow_arrives_uncounted") {
            flow.opened = Opened::Exempt;
        } else if let Some(at) = self.account(host, flow.host, cx) {
            self.hosts.borrow_mut().add(at, direction);
        } else {
            flow.opened = Opened::Exempt;
            cx.count("flows_arrived_uncounted");
        }
    }

    fn departed(&self, flow: &Counted, why: Departure, cx: &mut Cx<Self>) {
        if let Some(direction) = flow.opened.direction() {
            self.hosts
                .borrow_mut()
                .leave(self.plan.host(flow.host), direction);
            if why == Departure::Expired {
                cx.count("flows_given_back");
            }
        }
    }

    /// Flows are counted as they are asked; counts made beforehand, to say what would be, are
    /// forgotten.
    fn take_over(&self, before: &Self) {
        if self.plan.counts_like(&before.plan) {
            core::mem::swap(&mut *self.hosts.borrow_mut(), &mut *before.hosts.borrow_mut());
            self.carried.set(true);
            return;
        }
        *self.hosts.borrow_mut() = Hosts::new(self.plan.hosts, self.seed);
    }

    /// A flow that stays is counted here.
    fn configured(&self, flow: &mut Counted, _: &mut Cx<Self>) -> Keep {
        self.recount(flow);
        Keep::Keep
    }

    /// The flow is counted once: as it arrives, or when it is asked.
    fn recovered_of_before(&self, flow: &mut Counted, cx: &mut Cx<Self>) -> Keep {
        if self.carried.get() {
            self.arrived(flow, Arrival::Recovered, cx);
        }
        self.configured(flow, cx)
    }

    /// The hosts with the most flows on this runtime.
    fn rows(&self, _: &str, most: usize) -> Vec<Row> {
        let top = self.hosts.borrow().top(most);
        let row = |entry: &hosts::Entry| {
            let name = self.plan.name(entry.host).to_string();
            let ([inside, outside], [refused, refused_outside]) = (entry.flows, entry.refused);
            row![&*name, inside, refused, outside, refused_outside]
        };
        top.iter().map(row).collect()
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        Err("the command is: hosts [COUNT]".to_string())
    }
}

#[nf::network_function]
impl HostLimits {
    /// Counts a flow that was let in by other settings.
    fn recount(&self, flow: &mut Counted) {
        if self.carried.get() {
            if let Some(direction) = flow.opened.direction().filter(|_| self.plan.is_exempt(flow.host)) {
                self.hosts
                    .borrow_mut()
                    .leave(self.plan.host(flow.host), direction);
                flow.opened = Opened::Exempt;
            }
            return;
        }
        if self.plan.is_exempt(flow.host) {
            flow.opened = Opened::Exempt;
        }
        if let Some(direction) = flow.opened.direction() {
            let mut hosts = self.hosts.borrow_mut();
            match hosts.enter(self.plan.host(flow.host)) {
                Some(entered) => {
                    if let Some(rate) = self.plan.rate.filter(|_| entered.new) {
                        hosts.at(entered.at).buckets = [Bucket::full(rate); 2];
                    }
                    hosts.add(entered.at, direction);
                }
                None => flow.opened = Opened::Exempt,
            }
        }
    }

    /// The first packet of a flow.
    #[inline(never)]
    fn open(&self, packet: &Packet, flow: &mut Counted, cx: &mut Cx<Self>) -> Verdict {
        let opened = Opened::by(cx.side());
        let address = self.address(packet, cx);
        if self.plan.is_exempt(address) {
            flow.opened = Opened::Exempt;
            cx.count("flows_exempt");
            return Verdict::Forward;
        }
        let host = self.plan.host(address);
        let Some(at) = self.account(host, address, cx) else {
            return cx.drop("too_many_hosts");
        };
        let direction = usize::from(opened == Opened::FromOutside);
        let now = cx.now();
        let mut hosts = self.hosts.borrow_mut();
        let entry = hosts.at(at);
        let refused = if entry.flows[direction] >= self.plan.flows {
            Some("too_many_flows")
        } else if self
            .plan
            .rate
            .is_some_and(|rate| !entry.buckets[direction].take(rate, now))
        {
            Some("too_many_new_flows")
        } else {
            None
        };
        if let Some(reason) = refused {
            let refused = &mut entry.refused[direction];
            *refused = refused.saturating_add(1);
            self.tell(entry, (opened, direction), reason, cx);
            if self.is_own(address, cx) {
                cx.group().copy(address, entry);
            }
            return if reason == "too_many_flows" {
                cx.drop("too_many_flows")
            } else {
                cx.drop("too_many_new_flows")
            };
        }
        if self.is_own(address, cx) {
            cx.group().copy(address, entry);
        }
        hosts.add(at, direction);
        *flow = Counted {
            host: address,
            opened,
        };
        cx.count("flows_counted");
        Verdict::Forward
    }

    /// The inside address that a flow is counted for.
    fn address(&self, packet: &Packet, cx: &mut Cx<Self>) -> Addr {
        match cx.side() {
            Side::Inside => {
                let source = cx.opened_by().0.addr;
                // Packets between inside hosts may be in the other one's group.
                if !packet.has(flag::INSIDE_TO_INSIDE) {
                    cx.group().inside = source;
                }
                source
            }
            Side::Outside => match cx.group().inside {
                Addr::UNSPECIFIED => packet.destination_addr(),
                known => known,
            },
        }
    }

    /// Whether the account that a flow is counted in is that of its group, which takes a copy
    /// along.
    fn is_own(&self, address: Addr, cx: &mut Cx<Self>) -> bool {
        match cx.group().inside {
            Addr::UNSPECIFIED => cx.side() == Side::Outside,
            known => known == address,
        }
    }

    /// The host's entry, made if it has none; `None` if there is no room.
    fn account(&self, host: Addr, address: Addr, cx: &mut Cx<Self>) -> Option<u32> {
        let mut hosts = self.hosts.borrow_mut();
        let entered = hosts.enter(host)?;
        let group = cx.group();
        if group.account == address {
            hosts.at(entered.at).hear(group);
        }
        let Some(rate) = self.plan.rate else {
            return Some(entered.at);
        };
        let now = cx.now();
        let is_filling = |before: hosts::Entry| before.buckets.iter().any(|b| !b.is_full(rate, now));
        if entered.displaced.is_some_and(is_filling) {
            cx.count("hosts_forgotten");
        }
        let entry = hosts.at(entered.at);
        if entered.new {
            entry.buckets = [Bucket::full(rate); 2];
        }
        // A host that was counted elsewhere meanwhile, or whose account made room for another's,
        // brings what it had left.
        let group = cx.group();
        if group.account == address {
            for (mine, brought) in entry.buckets.iter_mut().zip(group.buckets) {
                // The default is one that was never written.
                let is_written = brought != Bucket::default();
                let newer = brought.since > mine.since;
                if is_written && (newer || (brought.since == mine.since && brought.credit < mine.credit)) {
                    *mine = brought;
                }
            }
        }
        Some(entered.at)
    }

    /// Writes an event, unless one was written a moment ago.
    #[cold]
    fn tell(
        &self,
        entry: &mut hosts::Entry,
        (opened, direction): (Opened, usize),
        reason: &str,
        cx: &mut Cx<Self>,
    ) {
        let now = cx.now();
        if now.nanoseconds_since(entry.told[direction]) < TOLD_AGAIN {
            return;
        }
        if !self.events.take(now) {
            cx.count("events_limited");
            return;
        }
        entry.told[direction] = now;
        cx.event(
            "host_limited",
            format_args!(
                "\"host\":\"{}\",\"opened_from\":\"{}\",\"reason\":\"{reason}\",\"flows\":{},\"refused\":{}",
                self.plan.name(entry.host),
                opened.name(),
                entry.flows[direction],
                entry.refused[direction],
            ),
        );
    }
}
