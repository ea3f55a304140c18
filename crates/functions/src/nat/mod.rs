//! NAT44: many inside hosts share few external IPv4 addresses, by address and port (NAPT).
//!
//! Theory of operation. The first packet that an inside endpoint sends makes a *mapping* to an
//! external endpoint; later flows of the endpoint use the same one, for every remote end (RFC 4787
//! REQ-1), and the last one's end releases it. Each flow keeps its translation in its own 24 bytes,
//! so a packet of an established flow is one compare, one rewrite and no table:
//!
//! ```text
//!   10.0.0.1:5000 → 198.51.100.7:53   becomes   203.0.113.1:1733 → 198.51.100.7:53     out, source rewritten
//!   10.0.0.1:5000 ← 198.51.100.7:53     from    203.0.113.1:1733 ← 198.51.100.7:53     back, destination rewritten
//!   10.0.0.1:5000 → 192.0.2.9:123     becomes   203.0.113.1:1733 → 192.0.2.9:123       the same mapping
//! ```
//!
//! The *filtering* says which remote ends may open a flow from outside to a mapping. An inside host
//! that sends to an external endpoint of ours is *hairpinned*: its source is translated as ever,
//! the packet turns around and comes in again as if from outside, where it is a flow of the host it
//! is for.
//!
//! All flows of an inside address are on one runtime ([`Affinity::InsideAddress`]). The host's
//! group state has its external address and its port blocks; a block is told to the switches before
//! a packet from it leaves, so that packets from outside find the host's runtime.
//!
//! ```text
//!   flow:   Fresh ──opening packet allowed──► translated ──expired──► mapping used once less
//!             │ (refused: dropped, the flow goes at once)
//!             └─IPv6, between inside hosts, or not an inside source──► Untouched
//! ```
//!
//! Invariants, each with its test: no two inside endpoints have one external endpoint and protocol
//! at a time; a mapping exists exactly while a flow uses it; every block and port taken is given
//! back once; a packet of a translated flow that is not from where the flow's packets come from is
//! dropped.
//!
//! Where the RFCs leave a choice: inbound packets refresh a flow's timer, too (RFC 4787 REQ-6
//! allows it); a packet that no inside host asked for is dropped without an answer (RFC 5382 REQ-4
//! a); the outside VLAN is the inside one's, and VLANs have mappings of their own.
//!
//! Not here: ALGs (RFC 4787 REQ-10 wants none by default); fragments' ports (the runtime fills them
//! in, REQ-14); Fragmentation Needed (REQ-13, the forwarder's); NAT64.
//!
//! Every requirement with its verdict: `docs/nat-behaviour.md`.
//!
//! Sources: RFC 4787, 5382, 5508, 6888, 7857; RFC 3022 for the translation itself; RFC 6146 3.5.2.2
//! for the TCP phases.

extern crate alloc;

mod alarm;
mod config;
mod icmp;
mod lending;
mod log;
mod mappings;
mod open;
mod pool;
mod ports;
mod refused;
mod sessions;
mod slots;
mod state;
#[cfg(test)]
mod tests;
mod written;

pub use config::{
    Config, Filtering, Log, MappingBehavior, OtherProtocols, POOL_MAX, Refusals, StaticMapping,
    StaticMappings, StaticProtocol, Timeouts,
};
pub use state::{BLOCKS_MAX, Host, Phase, Translation, V4Endpoint};

use self::alloc::format;
use self::alloc::string::String;
use self::alloc::sync::Arc;
use self::alloc::vec::Vec;
use crate::budget::Budget;
use alarm::Alarm;
use config::Plan;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use mappings::Mappings;
use nf::table::Answer;
use nf::{
    Adds, Affinity, Arrival, Block, BlockWas, Claim, ConfigError, Cx, Departure, Endpoint, Event, Keep, Loan,
    NetworkFunction, Packet, PoolState, Prefix, Recall, Row, Side, Table, Verdict, WorkerInfo,
    network_function, row,
};
use ports::{Ports, space_of};
use refused::Refused;
use sessions::{Sessions, Why};
use state::{PHASES, STATIC, how};
use wire::HashSeed;
use wire::packet::flag;
use wire::rewrite::End;
use wire::tcp::flags;

/// The NAT of one runtime.
pub struct Nat {
    timeouts: [Option<Duration>; PHASES],
    config: Arc<Config>,
    plan: Plan,
    /// Touched when flows open and end, never for a packet of an established flow.
    tables: RefCell<Tables>,
    /// Errors that may still be sent.
    answers: Budget,
    /// Free blocks at all other runtimes, and how many these have, if that is known.
    others: Cell<Option<(u32, u32)>>,
}

/// Errors per second and runtime at most: Linux' `icmp_msgs_per_sec`.
const ANSWERS_PER_SECOND: u32 = 1000;

struct Tables {
    mappings: Mappings,
    ports: Ports,
    sessions: Sessions,
    alarm: Alarm,
    /// Flows that have come and do not fit this pool.
    refused: Refused,
}

#[cfg(test)]
impl Tables {
    /// Capacities of everything that could grow.
    fn capacities(&self) -> alloc::vec::Vec<usize> {
        [self.mappings.capacities(), self.ports.capacities()].concat()
    }
}

#[network_function]
impl NetworkFunction for Nat {
    const NAME: &'static str = "nat";
    const AFFINITY: Affinity = Affinity::InsideAddress;
    const EVENTS: &'static [Event] = log::EVENTS;
    const TABLES: &'static [Table] = &[Table {
        name: "pool",
        columns: &[
            ("blocks", Adds::Sum),
            ("free", Adds::Sum),
            ("borrowed", Adds::Sum),
            ("ports_per_block", Adds::Name),
        ],
        top: 0,
        metrics: &[],
    }];
    const COUNTERS: &'static [&'static str] = &[
        /// Flows that an inside host opened and that were translated.
        "flows_from_inside",
        /// Flows that were opened from outside, by a mapping.
        "flows_from_outside",
        /// Flows between two inside hosts by way of an external address.
        "flows_hairpinned",
        /// Flows that pass as they are: no address of theirs is to be translated.
        "flows_untouched",
        /// IPv6 flows, which pass as they are.
        "flows_untouched_ipv6",
        /// Mappings of an inside to an outside endpoint that were made.
        "mappings_created",
        /// Mappings that ended.
        "mappings_released",
        /// Blocks of ports that hosts were given.
        "blocks_claimed",
        /// Blocks of ports that hosts gave back.
        "blocks_released",
        /// ICMP errors whose quoted packet was translated with them.
        "icmp_errors_translated",
        /// Flows that came from another runtime and had no place in the pool here: their next
        /// packet opens them again.
        "arrivals_refused",
        /// Refused flows whose sender was told so by ICMP.
        "refusals_answered",
        /// Echo requests for external addresses that were answered here.
        "pings_answered",
        /// Idle flows that ended early, since their ports were wanted.
        "flows_reclaimed",
        /// Flows that an operator ended (`function nat clear`).
        "flows_cleared",
        /// Warnings that few blocks of ports are left.
        "pool_alarms",
    ];
    const REASONS: &'static [&'static str] = &[
        /// From outside, for an external endpoint that has no mapping.
        "no_mapping",
        /// From outside, for a mapping that does not let this sender in (`filtering`).
        "filtered",
        /// No port is left in the pool of its host's external address.
        "ports_exhausted",
        /// Its inside host has as many ports as a host may have.
        "host_ports_exhausted",
        /// As many mappings as there may be.
        "table_full",
        /// From inside to an external address of the pool, and `hairpinning` is off.
        "hairpin_off",
        /// From inside to its own mapping.
        "hairpin_to_itself",
        /// From inside or outside, with an external address of the pool as its source.
        "spoofed",
        /// Of a flow, but not from or to the endpoint that the flow has.
        "wrong_endpoint",
        /// A protocol without ports, and `other_protocols` is not to let it pass.
        "protocol_not_translated",
        /// A later fragment of a datagram that opened no flow.
        "fragment_without_flow",
        /// A TCP segment that opens nothing, and belongs to no flow.
        "tcp_not_opening",
        /// An ICMP error or answer of no flow.
        "icmp_unrelated",
        /// An ICMP error whose quotation cannot be read, or whose checksum is wrong.
        "icmp_malformed",
        /// An ICMP error that quotes other endpoints than the flow has.
        "icmp_mismatch",
        /// A flow whose mapping another configuration does not have.
        "mapping_gone",
        /// A flow that passed untranslated, and whose source another configuration has inside.
        "now_inside",
        /// A flow whose inside host another configuration has not inside.
        "not_inside",
    ];
    const TRANSLATES: bool = true;
    type Config = Config;
    type Flow = Translation;
    type Group = Host;

    fn new(config: &Arc<Config>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        let plan = Plan::new(config)?;
        let ports = Ports::new(
            &plan,
            worker.runtime,
            worker.runtimes,
            worker.flows_max,
            worker.seed,
        );
        // A runtime that was not there when the pool was divided borrows.
        if ports.free_blocks() == 0 && worker.runtime < worker.runtimes {
            return Err(ConfigError::new(
                "pool",
                format!(
                    "runtime {} of {} has no port block",
                    worker.runtime, worker.runtimes
                ),
                "add external addresses, or make block_size smaller",
            ));
        }
        let flows_max = worker.flows_max as usize;
        let peers = (config.filtering == Filtering::AddressDependent).then_some(flows_max);
        Ok(Nat {
            timeouts: plan.timeouts,
            config: Arc::clone(config),
            tables: RefCell::new(Tables {
                mappings: Mappings::new(flows_max, peers, seed(worker.seed)),
                sessions: Sessions::new(flows_max, ports.slots_max()),
                alarm: Alarm::default(),
                refused: Refused::new(flows_max),
                ports,
            }),
            plan,
            answers: Budget::new(ANSWERS_PER_SECOND),
            others: Cell::new(Some((0, 0))),
        })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Translation, cx: &mut Cx<Self>) -> Verdict {
        if flow.is_translated()
            && let Some(tcp_flags) = swap(packet, flow, cx)
        {
            if tcp_flags & flags::SYN != 0 || !flow.is_proven() {
                self.look_closer(packet, tcp_flags, flow, cx);
            }
            return Verdict::Forward;
        }
        self.handle_rare(packet, flow, cx)
    }

    fn prefetch(&self, packet: &Packet) {
        if packet.side() == Side::Inside
            && packet.version() == 4
            && let Some(source) = V4Endpoint::of(packet.source())
        {
            let remote = match self.config.mapping {
                MappingBehavior::EndpointIndependent => V4Endpoint::default(),
                MappingBehavior::AddressAndPortDependent => {
                    V4Endpoint::of(packet.destination()).unwrap_or_default()
                }
            };
            self.tables
                .borrow()
                .mappings
                .prefetch(source, remote, packet.protocol(), packet.vlan());
        }
    }

    fn prefetch_moving(&self, flow: &Translation, key: &nf::FlowKey, leaves: bool) {
        if !flow.is_translated() || flow.mapping == STATIC {
            return;
        }
        let Tables { mappings, ports, .. } = &mut *self.tables.borrow_mut();
        ports.prefetch(flow.outside);
        // On its way here its mapping's number is another runtime's.
        if leaves {
            mappings.prefetch_entry(flow.mapping);
        }
        let remote = self.key_part(flow.remote);
        mappings.prefetch_moving(flow.inside, flow.outside, remote, key.protocol(), key.vlan());
    }

    fn arrived(&self, flow: &mut Translation, why: Arrival, cx: &mut Cx<Self>) {
        if why != Arrival::New && flow.is_translated() {
            self.adopt(flow, cx);
            if why == Arrival::Recovered
                && wire::planted::is("recovered_port_free")
                && let Some(space) = space_of(cx.key().protocol())
            {
                let ports = &mut self.tables.borrow_mut().ports;
                ports.forget(cx.group(), flow.outside, space);
            }
        }
    }

    fn departed(&self, flow: &Translation, why: Departure, cx: &mut Cx<Self>) {
        let tables = &mut *self.tables.borrow_mut();
        // A flow without a port of its host's may be the only one, and keep an empty block.
        if why == Departure::Migrated && (!flow.is_translated() || flow.mapping == STATIC) {
            tables.ports.leave_empty(cx.group());
        }
        tables.refused.end(cx.flow_number());
        if !flow.is_translated() {
            return;
        }
        match tables.sessions.end(cx.flow_number(), cx.clock()) {
            Some(Why::Wanted) => cx.count("flows_reclaimed"),
            Some(Why::Cleared) => cx.count("flows_cleared"),
            None => {}
        }
        if flow.mapping == STATIC {
            return;
        }
        match why {
            Departure::Expired => self.unmap(tables, flow.mapping, flow.remote, cx),
            Departure::Migrated => {
                if let Some(mapping) = tables.mappings.release(flow.mapping, flow.remote)
                    && let Some(space) = space_of(mapping.protocol)
                {
                    tables.ports.forget(cx.group(), mapping.outside, space);
                }
            }
        }
    }

    fn group_ended(&self, group: &mut Host, cx: &mut Cx<Self>) {
        // A host without mappings has one block at most (see `Ports::give`), but for what another
        // runtime says of one that comes from there. Blocks without room are given back in the next
        // call.
        let ports = &mut self.tables.borrow_mut().ports;
        while cx.blocks_room() > 0
            && let Some(block) = ports.shed_strange(group).or_else(|| ports.end(group))
        {
            self.release_block(block, ports.elsewhere(block), group.inside, cx);
        }
    }

    fn block_returned(&self, block: Block) {
        self.tables.borrow_mut().ports.take_back(block);
    }

    fn block_in_use(&self, block: Block) -> BlockWas {
        self.tables.borrow_mut().ports.lend(block)
    }

    fn pool(&self) -> Option<PoolState> {
        Some(self.tables.borrow().ports.state())
    }

    fn lend_blocks(&self, loan: &Loan, lend: &mut dyn FnMut(Block)) {
        self.tables.borrow_mut().ports.lend_some(loan, lend);
    }

    fn borrow_block(&self, block: Block, home: u16) -> bool {
        self.tables.borrow_mut().ports.borrow(block, home)
    }

    fn forsake_block(&self, block: Block) {
        self.tables.borrow_mut().ports.forsake(block);
    }

    fn pools_heard(&self, others: Option<(u32, u32)>) {
        self.others.set(others);
    }

    #[inline]
    fn timeout(&self, flow: &Translation) -> Option<Duration> {
        self.timeouts[flow.phase as usize]
    }

    fn succeed(config: &mut Config, before: &Config) -> Result<(), ConfigError> {
        config.may_follow(before)
    }

    fn take_over(&self, before: &Self) {
        let (mine, old) = (&mut *self.tables.borrow_mut(), &mut *before.tables.borrow_mut());
        core::mem::swap(&mut mine.mappings, &mut old.mappings);
        core::mem::swap(&mut mine.sessions, &mut old.sessions);
        core::mem::swap(&mut mine.refused, &mut old.refused);
        mine.ports.succeed(&mut old.ports, &self.plan);
        mine.sessions.widen(mine.ports.slots_max());
    }

    /// A flow goes on if its mapping could be made today.
    fn configured(&self, flow: &mut Translation, cx: &mut Cx<Self>) -> Keep {
        if !flow.is_translated() {
            let source = cx.opened_by().0.addr.as_v4();
            let is_inside_now =
                flow.how & how::NOT_INSIDE != 0 && source.is_some_and(|source| self.plan.is_inside(source));
            return match is_inside_now {
                true => cx.cut("now_inside"),
                false => Keep::Keep,
            };
        }
        if flow.mapping == STATIC {
            return match self.plan.static_inside(flow.outside, cx.key().protocol()) == Some(flow.inside) {
                true => Keep::Keep,
                false => cx.cut("mapping_gone"),
            };
        }
        if !self.plan.is_inside(flow.inside.addr) {
            return cx.cut("not_inside");
        }
        match self.plan.may_give(flow.outside) {
            true => Keep::Keep,
            false => cx.cut("mapping_gone"),
        }
    }

    fn recall(&self) -> Recall {
        let tables = &mut *self.tables.borrow_mut();
        if let Some(number) = tables.refused.next_marked() {
            return Recall::Flow(number);
        }
        match tables.sessions.recall() {
            Recall::Nothing if tables.refused.is_any() => Recall::Later,
            answer => answer,
        }
    }

    /// The blocks that are this runtime's own; which are free, and how many of those are borrowed.
    fn rows(&self, _: &str, _: usize) -> Vec<Row> {
        let ports = &self.tables.borrow().ports;
        let (blocks, free) = (ports.share(), ports.free_blocks());
        alloc::vec![row![blocks, free, ports.borrowed, self.plan.block_size]]
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        match words {
            ["clear", "all"] => self.clear((0, 0)),
            ["clear", hosts] => match hosts.parse::<Prefix>() {
                Ok(prefix) if prefix.is_v4() => self.clear(config::masked(&prefix)),
                _ => Err(format!(
                    "`{hosts}` is no IPv4 address or prefix; write `all`, an inside address or a prefix"
                )),
            },
            _ => Err(String::from("the commands are: clear all|ADDRESS|PREFIX; pool")),
        }
    }

    fn command_rows(&self, words: &[&str]) -> Option<Answer> {
        const COLUMNS: &[(&str, Adds)] = &[("hosts", Adds::Name), ("state", Adds::Name)];
        let ["clear", hosts] = words else { return None };
        Some((COLUMNS, alloc::vec![row![*hosts, "ending"]]))
    }

    fn owner_of(config: &Config, outside: Endpoint, protocol: u8) -> Option<Endpoint> {
        config.static_mappings.inside_of(outside, protocol)
    }

    fn claims(config: &Config) -> alloc::vec::Vec<Claim> {
        config.claims()
    }
}

#[nf::network_function]
impl Nat {
    /// Everything but a plain packet of a translated flow.
    #[inline(never)]
    fn handle_rare(&self, packet: &mut Packet, flow: &mut Translation, cx: &mut Cx<Self>) -> Verdict {
        if flow.is_translated() {
            return if packet.has(flag::ICMP_ERROR) {
                icmp::translate(packet, flow, cx)
            } else {
                self.translate(packet, flow, cx)
            };
        }
        if flow.phase == Phase::Untouched {
            return Verdict::Forward;
        }
        if packet.version() == 6 {
            flow.phase = Phase::Untouched;
            cx.count("flows_untouched_ipv6");
            return Verdict::Forward;
        }
        if packet.has(flag::ICMP_ERROR) {
            return cx.drop("icmp_unrelated");
        }
        match cx.side() {
            Side::Inside => self.open_from_inside(packet, flow, cx),
            Side::Outside => self.open_from_outside(packet, flow, cx),
        }
    }

    /// A packet of a translated flow, whatever it looks like: with IP options, a fragment, an ICMP
    /// query.
    fn translate(&self, packet: &mut Packet, flow: &mut Translation, cx: &mut Cx<Self>) -> Verdict {
        if let Some(tcp_flags) = swap(packet, flow, cx) {
            self.look_closer(packet, tcp_flags, flow, cx);
            return Verdict::Forward;
        }
        let outward = cx.side() == Side::Inside;
        let (end, found, expected, replacement) = if outward {
            (End::Source, packet.source(), flow.inside, flow.outside)
        } else {
            (End::Destination, packet.destination(), flow.outside, flow.inside)
        };
        // From inside, with the source it always had; from outside, for the external endpoint: else
        // it is forged.
        if V4Endpoint::of(found) != Some(expected) || !packet.rewrite(end, replacement.wide()) {
            return cx.drop("wrong_endpoint");
        }
        if wire::planted::is("payload_touched")
            && let Some(last) = packet.transport_mut().last_mut()
        {
            *last ^= 1;
        }
        let tcp_flags = packet.tcp().map_or(0, |tcp| tcp.flags());
        flow.note(tcp_flags, cx.direction());
        self.look_closer(packet, tcp_flags, flow, cx);
        if outward && flow.is_hairpin() {
            packet.set_flags(flag::HAIRPIN);
        }
        Verdict::Forward
    }
}

impl Nat {
    /// A translated packet that may change more than the flow's phase: a packet that bargains for a
    /// segment size, or a packet that shows that its opener hears answers.
    #[cold]
    #[inline(never)]
    fn look_closer(&self, packet: &mut Packet, tcp_flags: u8, flow: &mut Translation, cx: &mut Cx<Self>) {
        if let Some(most) = self.config.mss_clamp
            && tcp_flags & flags::SYN != 0
        {
            packet.clamp_mss(most);
        }
        if !flow.is_proven() && flow.prove(tcp_flags, cx.direction()) {
            let sessions = &mut self.tables.borrow_mut().sessions;
            sessions.prove(cx.flow_number(), cx.clock());
        }
    }

    /// An operator ends the flows there are of some inside addresses.
    fn clear(&self, inside: (u32, u32)) -> Result<String, String> {
        match self.tables.borrow_mut().sessions.clear(inside) {
            true => Ok(String::from(
                "they end; the counter `flows_cleared` says how many",
            )),
            false => Err(String::from("flows are being cleared; try again in a moment")),
        }
    }
}

/// Translates a packet of a translated flow, if it is as plain as nearly all are, and answers its
/// TCP flags; else nothing changes.
#[inline(always)]
fn swap(packet: &mut Packet, flow: &mut Translation, cx: &Cx<Nat>) -> Option<u8> {
    let outward = cx.side() == Side::Inside;
    if !outward && wire::planted::is("answer_to_neighbour") {
        let mut inside = flow.inside;
        inside.addr[3] ^= 3;
        return packet.swap_v4(End::Destination, flow.outside.pair(), inside.pair());
    }
    let swapped = if outward {
        packet.swap_v4(End::Source, flow.inside.pair(), flow.outside.pair())
    } else {
        packet.swap_v4(End::Destination, flow.outside.pair(), flow.inside.pair())
    };
    let tcp_flags = swapped?;
    flow.note(tcp_flags, cx.direction());
    if outward && flow.is_hairpin() {
        packet.set_flags(flag::HAIRPIN);
    }
    Some(tcp_flags)
}

fn seed(worker: u64) -> HashSeed {
    let HashSeed(fixed) = HashSeed::FIXED;
    HashSeed(fixed.map(|word| {
        (word ^ worker)
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .rotate_left(29)
            | 1
    }))
}
