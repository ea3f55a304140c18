//! The load balancer: clients see one address, servers share its connections.
//!
//! # Theory of operation
//!
//! A flow's first packet is looked up by destination address, protocol and port. If a service is
//! there, its policy chooses a server ([`policy`]), the choice is kept in the flow ([`state`]), and
//! from then on each packet costs one look into a small array of servers and one rewrite. If no
//! service is there the flow is marked as passed, and its later packets cost one comparison.
//!
//! ```text
//!   client 198.51.100.7:4000 ──▶ 203.0.113.10:443   is rewritten to   198.51.100.7:4000 ──▶ 10.1.0.11:8443
//!   10.1.0.11:8443 ──▶ 198.51.100.7:4000            is rewritten to   203.0.113.10:443 ──▶ 198.51.100.7:4000
//! ```
//!
//! The reply needs no look-up by the server's address: it belongs to the same flow, whose state
//! names the frontend and the port.
//!
//! - *ICMP errors* come back with the packet they quote translated, so that a client's or a
//!   server's path MTU discovery works through the load balancer (RFC 5508 4). An error that is
//!   sent by the server itself shows the service's address as its source; an error that a router on
//!   the way sends keeps the router's.
//! - *Fragments* follow their first one (the runtime gives them its ports). A fragment whose first
//!   was never seen and that is meant for a service's address is dropped: its server is not known.
//! - *Health* is input: `backend NAME up|down|drain`, and the results of checks ([`check`]), take
//!   effect with the next packet.
//! - *Counts*: +1 when a server is chosen and when a flow arrives by migration or recovery, −1 when
//!   a flow departs for whatever reason (NFVactor IV-B). A server's connections are therefore
//!   counted at one runtime at any time.
//! - *Other workers, other configurations*: indices in a flow's state are checked against a hash of
//!   what they mean, and looked up by it where they differ; a flow whose server, or service, is no
//!   longer configured ends. A server that is drained keeps its flows.
//! - *Timeouts*: alone in a chain the load balancer must say how long flows live, so it does, by
//!   phase ([`state::Phase`]); they are those that RFC 5382 and RFC 4787 ask of a NAT, so it
//!   prolongs no flow that a NAT in the chain serves. A service's `idle_timeout` replaces them.
//!
//! Invariants: the sum of the counts is the number of served flows
//! (`tests::oracle::counts_follow_the_flows`); a served packet leaves with correct checksums
//! (`tests`, against etherparse); equal configurations choose equally under Maglev.
//!
//! Not here: checking servers (`flowkeep`: health), source NAT towards the servers (replies must
//! come back through this chain by routing), stickiness of a client beyond its flows.
//!
//! Sources: NFVactor VI-B (smallest workload) and IV-B (counts); Maglev, NSDI 2016, 3.4; RFC 5508,
//! 5382, 4787.

mod check;
pub mod config;
mod control;
pub mod maglev;
pub mod policy;
pub mod state;
#[cfg(test)]
mod tests;

pub use config::LoadBalancerConfig;
pub use state::Balanced;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use check::Word;
use config::{Health, PolicyConfig, WhenDownConfig};
use core::cell::Cell;
use core::time::Duration;
use hashbrown::HashMap;
use nf::objects::ObjectsHere;
use nf::table::{Answer, Figure};
use nf::{
    Addr, Adds, Arrival, Check, Claim, ConfigError, Cx, Departure, Direction, Endpoint, Keep,
    NetworkFunction, Packet, Row, Table, Verdict, WorkerInfo, network_function, row,
};
use policy::{Load, Policy};
use state::Phase;
use wire::packet::flag;
use wire::protocol;
use wire::rewrite::End;

/// The load balancer.
pub struct LoadBalancer {
    // The tables that each packet reads: 24 bytes a server, 28 a frontend.
    targets: Box<[Target]>,
    frontends: Box<[Frontend]>,
    // The tables that new flows read.
    loads: Box<[Load]>,
    services: Box<[Service]>,
    /// The words on each server. Index: as in `loads`.
    words: Box<[Word]>,
    names: Box<[String]>,
    by_identity: HashMap<u32, (u16, u16)>,
    seed: u64,
}

/// Where a server is. Index: the same as in `loads` and `names`.
struct Target {
    addr: Addr,
    /// Hash of name and endpoint.
    identity: u32,
    /// 0 keeps the client's.
    port: u16,
    /// Down, and its service drops such connections.
    cut: Cell<bool>,
}

/// One address of a service. Sorted, so that the first packet's look-up is a binary search.
#[derive(Clone, Copy)]
struct Frontend {
    addr: Addr,
    protocol: u8,
    first_port: u16,
    last_port: u16,
    service: u16,
    idle_timeout: u32,
    /// Its part of a flow's `identity`.
    hash: u64,
}

/// In [`Frontend::idle_timeout`]: by phase.
const BY_PHASE: u32 = u32::MAX;

struct Service {
    name: String,
    first: u16,
    count: u16,
    policy: Policy,
    when_down: WhenDownConfig,
    is_checked: bool,
}

impl Service {
    fn range(&self) -> core::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first) + usize::from(self.count)
    }
}

#[network_function]
impl NetworkFunction for LoadBalancer {
    const NAME: &'static str = "load_balancer";
    const COUNTERS: &'static [&'static str] = &[
        /// Connections that were given a server.
        "connections",
        /// Flows to no service, which pass as they are.
        "passed",
    ];
    const REASONS: &'static [&'static str] = &[
        /// For a service of which no server takes flows.
        "no_backend",
        /// Of a flow whose server was taken down.
        "backend_down",
        /// Of a flow whose server, or service, another configuration does not have.
        "backend_gone",
        /// An ICMP error whose quotation cannot be read.
        "bad_icmp_error",
        /// An ICMP error that quotes no packet of a flow.
        "unrelated_icmp_error",
        /// A later fragment of a datagram that opened no flow.
        "unmatched_fragment",
        /// A flow that passed untranslated, and whose destination another configuration has as a
        /// service.
        "now_a_service",
    ];
    const TABLES: &'static [Table] = &[Table {
        name: "backends",
        columns: &[
            ("service", Adds::Name),
            ("backend", Adds::Name),
            ("state", Adds::Each),
            ("weight", Adds::Each),
            ("connections", Adds::Sum),
            ("opened", Adds::Counted),
        ],
        top: 0,
        metrics: &[
            Figure {
                column: "connections",
                name: "backend_connections",
                help: "Connections that each server has, of the first 256.",
            },
            Figure {
                column: "opened",
                name: "backend_opened_connections",
                help: "Connections that each server was chosen for, of the first 256.",
            },
        ],
    }];
    const TRANSLATES: bool = true;
    type Config = LoadBalancerConfig;
    type Flow = Balanced;
    type Group = ();

    fn new(config: &Arc<LoadBalancerConfig>, _worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Self::compile(config)
    }

    /// The virtual addresses, wherever clients are.
    fn claims(config: &LoadBalancerConfig) -> Vec<Claim> {
        let addresses = config.services.iter().flat_map(|service| &service.addresses);
        // A text that is no address is refused when the instances are made.
        let prefixes = addresses.filter_map(|text| {
            let address: Addr = text.parse().ok()?;
            nf::Prefix::new(address, if address.is_v4() { 32 } else { 128 })
        });
        prefixes
            .map(|addresses| Claim {
                addresses,
                side: None,
            })
            .collect()
    }

    fn checks(config: &LoadBalancerConfig) -> Vec<Check> {
        check::checks(config)
    }

    fn process(&self, packet: &mut Packet, flow: &mut Balanced, cx: &mut Cx<Self>) -> Verdict {
        if flow.phase == Phase::Passed {
            return Verdict::Forward;
        }
        if flow.phase == Phase::New {
            return self.open(packet, flow, cx);
        }
        self.translate(packet, flow, cx)
    }

    fn arrived(&self, flow: &mut Balanced, why: Arrival, _cx: &mut Cx<Self>) {
        if why != Arrival::New && flow.is_served() {
            self.adopt(flow);
        }
    }

    fn departed(&self, flow: &Balanced, _why: Departure, _cx: &mut Cx<Self>) {
        if flow.is_served()
            && let Some(load) = self.loads.get(usize::from(flow.backend))
            && !wire::planted::is("connection_not_returned")
        {
            debug_assert!(load.connections.get() > 0, "a flow departs that was not counted");
            load.connections.set(load.connections.get().saturating_sub(1));
        }
    }

    fn timeout(&self, flow: &Balanced) -> Option<Duration> {
        if flow.is_served()
            && let Some(frontend) = self.frontends.get(usize::from(flow.frontend))
            && frontend.idle_timeout != BY_PHASE
        {
            let seconds = frontend.idle_timeout;
            return (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        }
        flow.phase.timeout()
    }

    /// An operator's word on a server since the start goes on to hold, unless the settings of that
    /// server say something else than before. Connections are counted as their flows are asked.
    fn take_over(&self, before: &Self) {
        for service in &self.services {
            let old = before.services.iter().find(|old| old.name == service.name);
            for index in service.range() {
                let load = &self.loads[index];
                load.connections.set(0);
                let same = |at: &usize| before.names[*at] == self.names[index];
                let Some(at) = old.and_then(|old| old.range().find(same)) else {
                    continue;
                };
                load.opened.set(before.loads[at].opened.get());
                let (word, old) = (&self.words[index], &before.words[at]);
                if old.configured == word.configured {
                    word.said.set(old.said.get());
                }
                word.passes.set(old.passes.get() || !service.is_checked);
                load.health.set(word.health());
            }
            service.policy.on_health(&self.loads[service.range()]);
        }
        self.refresh_cuts();
    }

    /// A flow that stays is counted here.
    fn configured(&self, flow: &mut Balanced, cx: &mut Cx<Self>) -> Keep {
        if flow.is_served() {
            return match self.adopt(flow) {
                true => Keep::Keep,
                false => cx.cut("backend_gone"),
            };
        }
        // A flow that passed may be a service's now.
        let destination = cx.opened_by().1;
        if flow.phase == Phase::Passed && self.frontend_of(destination, cx.key().protocol()).is_some() {
            *flow = Balanced::default();
            return cx.cut("now_a_service");
        }
        Keep::Keep
    }

    /// Asking counts the flow: once.
    fn recovered_of_before(&self, flow: &mut Balanced, cx: &mut Cx<Self>) -> Keep {
        self.configured(flow, cx)
    }

    /// A row for each backend of each service.
    fn rows(&self, _: &str, most: usize) -> Vec<Row> {
        let each = self.services.iter().flat_map(|service| {
            let of = service.range();
            of.map(|index| self.row(service, index))
        });
        each.take(most).collect()
    }

    fn row_count(&self, _: &str, _: ObjectsHere<'_>) -> usize {
        self.services.iter().map(|service| service.range().len()).sum()
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        match words {
            ["backend", name, state] => self.set_health(name, state),
            ["check", service, backend, state] => self.note_check(service, backend, state),
            _ => Err("the commands are: backends; backend NAME up|down|drain".to_string()),
        }
    }

    fn command_rows(&self, words: &[&str]) -> Option<Answer> {
        let ["backend", name, _] = words else {
            return None;
        };
        let named = self.named(name);
        let rows = named.map(|(service, index)| self.row(service, index));
        Some((Self::TABLES.first()?.columns, rows.collect()))
    }

    fn said(&self) -> Vec<Vec<String>> {
        self.words_said()
    }
}

#[nf::network_function]
impl LoadBalancer {
    /// A packet of a flow that has a server.
    #[inline]
    fn translate(&self, packet: &mut Packet, flow: &mut Balanced, cx: &mut Cx<Self>) -> Verdict {
        let Some(target) = self.targets.get(usize::from(flow.backend)) else {
            return cx.drop("backend_gone");
        };
        if target.cut.get() {
            cx.end_flow();
            return cx.drop("backend_down");
        }
        let (end, to) = match cx.direction() {
            Direction::Opening => (End::Destination, target.endpoint(flow.port)),
            Direction::Reply => match self.frontends.get(usize::from(flow.frontend)) {
                Some(frontend) => (End::Source, Endpoint::new(frontend.addr, flow.port)),
                None => return cx.drop("backend_gone"),
            },
        };
        if let Some(addr) = to.addr.as_v4()
            && let Some(flags) = packet.put_v4(end, (addr, to.port))
        {
            if flow.phase == Phase::Datagram {
                return Verdict::Forward;
            }
            return self.follow(flags, flow, cx);
        }
        self.translate_any(packet, (end, to), flow, cx)
    }

    /// A packet that is no plain TCP or UDP over IPv4.
    #[inline(never)]
    fn translate_any(
        &self,
        packet: &mut Packet,
        (end, to): (End, Endpoint),
        flow: &mut Balanced,
        cx: &mut Cx<Self>,
    ) -> Verdict {
        if packet.has(flag::ICMP_ERROR) {
            return self.translate_error(packet, flow, cx);
        }
        if !packet.rewrite(end, to) {
            return cx.drop("backend_gone");
        }
        if flow.phase != Phase::Datagram
            && !packet.has(flag::LATER_FRAGMENT)
            && let Some(flags) = packet.transport().get(13)
        {
            return self.follow(*flags, flow, cx);
        }
        Verdict::Forward
    }

    #[inline]
    fn follow(&self, flags: u8, flow: &mut Balanced, cx: &mut Cx<Self>) -> Verdict {
        let before = flow.phase;
        flow.on_tcp(cx.direction(), flags);
        if before == Phase::Closing && flow.phase == Phase::Opening && !self.takes(flow) {
            // The client uses its port again, but the server takes no more: let the SYN's
            // repetition find another.
            cx.end_flow();
            return cx.drop("backend_down");
        }
        Verdict::Forward
    }

    fn takes(&self, flow: &Balanced) -> bool {
        self.loads.get(usize::from(flow.backend)).is_some_and(Load::takes)
    }

    /// The first packet of a flow.
    #[inline(never)]
    fn open(&self, packet: &mut Packet, flow: &mut Balanced, cx: &mut Cx<Self>) -> Verdict {
        if cx.direction() == Direction::Reply {
            // Only a flow that lost its server on the way here gets a reply before it has one.
            cx.end_flow();
            return cx.drop("backend_gone");
        }
        if packet.has(flag::ICMP_ERROR) {
            return self.open_by_error(packet, flow, cx);
        }
        let destination = packet.destination();
        let Some(index) = self.frontend_of(destination, packet.protocol()) else {
            if packet.has(flag::LATER_FRAGMENT)
                && destination.port == 0
                && self.is_frontend(destination.addr, packet.protocol())
            {
                return cx.drop("unmatched_fragment");
            }
            return pass(flow, cx);
        };
        let frontend = &self.frontends[index];
        let service = &self.services[usize::from(frontend.service)];
        let hash = if service.policy.wants_hash() {
            self.hash_of(cx.opened_by().0)
        } else {
            0
        };
        let Some(chosen) = service.policy.choose(&self.loads[service.range()], hash) else {
            return cx.drop("no_backend");
        };
        let backend = service.first + chosen as u16;
        let load = &self.loads[usize::from(backend)];
        load.connections.set(load.connections.get() + 1);
        load.opened.set(load.opened.get() + 1);
        *flow = Balanced {
            identity: self.identity(index, usize::from(backend)),
            backend,
            frontend: index as u16,
            port: destination.port,
            phase: if frontend.protocol == protocol::TCP {
                Phase::Opening
            } else {
                Phase::Datagram
            },
            fins: 0,
        };
        cx.count("connections");
        self.translate(packet, flow, cx)
    }

    /// An ICMP error that belongs to no flow known.
    #[cold]
    fn open_by_error(&self, packet: &Packet, flow: &mut Balanced, cx: &mut Cx<Self>) -> Verdict {
        let Some(quoted) = wire::parse::quoted(packet) else {
            return cx.drop("bad_icmp_error");
        };
        let ours = |end| self.frontend_of(end, quoted.protocol).is_some();
        if ours(quoted.source) || ours(quoted.destination) {
            return cx.drop("unrelated_icmp_error");
        }
        pass(flow, cx)
    }

    /// An ICMP error about a packet of a flow that has a server.
    #[cold]
    fn translate_error(&self, packet: &mut Packet, flow: &Balanced, cx: &mut Cx<Self>) -> Verdict {
        let (Some(target), Some(frontend)) = (
            self.targets.get(usize::from(flow.backend)),
            self.frontends.get(usize::from(flow.frontend)),
        ) else {
            return cx.drop("backend_gone");
        };
        let server = target.endpoint(flow.port);
        let service = Endpoint::new(frontend.addr, flow.port);
        let translated = if cx.direction() == Direction::Opening {
            // About a reply, so it quotes the service as its source and is addressed to it.
            packet.rewrite_quoted(End::Source, server, Some(server))
        } else {
            let own = packet.source_addr() == server.addr;
            packet.rewrite_quoted(End::Destination, service, own.then_some(service))
        };
        if translated {
            Verdict::Forward
        } else {
            cx.drop("bad_icmp_error")
        }
    }

    /// Index of the frontend that serves an endpoint.
    fn frontend_of(&self, to: Endpoint, protocol: u8) -> Option<usize> {
        let behind = self
            .frontends
            .partition_point(|f| (f.addr, f.protocol, f.first_port) <= (to.addr, protocol, to.port));
        let index = behind.checked_sub(1)?;
        let frontend = &self.frontends[index];
        (frontend.addr == to.addr && frontend.protocol == protocol && to.port <= frontend.last_port)
            .then_some(index)
    }

    fn is_frontend(&self, addr: Addr, protocol: u8) -> bool {
        let at = self
            .frontends
            .partition_point(|f| (f.addr, f.protocol) < (addr, protocol));
        self.frontends
            .get(at)
            .is_some_and(|f| (f.addr, f.protocol) == (addr, protocol))
    }

    fn hash_of(&self, client: Endpoint) -> u64 {
        let (high, low) = client.addr.octets().split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |w, b| w << 8 | u64::from(*b));
        let mixed = maglev::mix(self.seed ^ word(high)).wrapping_add(word(low));
        maglev::mix(maglev::mix(mixed) ^ u64::from(client.port))
    }

    /// A frontend and a backend as a number: the same wherever the same are configured.
    fn identity(&self, frontend: usize, backend: usize) -> u32 {
        maglev::mix(self.frontends[frontend].hash ^ u64::from(self.targets[backend].identity)) as u32
    }

    /// Makes a flow's indices this instance's and counts it; `false`, and the flow has no server,
    /// if its server or service is not configured here.
    fn adopt(&self, flow: &mut Balanced) -> bool {
        let (frontend, backend) = (usize::from(flow.frontend), usize::from(flow.backend));
        let fits = frontend < self.frontends.len()
            && backend < self.targets.len()
            && self.identity(frontend, backend) == flow.identity;
        let found = match fits {
            true => Some((flow.frontend, flow.backend)),
            false => self.by_identity.get(&flow.identity).copied(),
        };
        // A range of ports may have become smaller.
        let serves = |(frontend, _): &(u16, u16)| {
            let frontend = &self.frontends[usize::from(*frontend)];
            (frontend.first_port..=frontend.last_port).contains(&flow.port)
        };
        let Some((frontend, backend)) = found.filter(serves) else {
            *flow = Balanced::default();
            return false;
        };
        flow.frontend = frontend;
        flow.backend = backend;
        let load = &self.loads[usize::from(flow.backend)];
        load.connections.set(load.connections.get() + 1);
        true
    }
}

impl Target {
    #[inline]
    fn endpoint(&self, port: u16) -> Endpoint {
        Endpoint::new(self.addr, if self.port == 0 { port } else { self.port })
    }
}

#[nf::network_function]
fn pass(flow: &mut Balanced, cx: &mut Cx<LoadBalancer>) -> Verdict {
    flow.phase = Phase::Passed;
    cx.count("passed");
    Verdict::Forward
}
