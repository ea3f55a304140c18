//! How flows open and mappings come and go: everything but a packet of an established flow.
//!
//! Theory of operation. From inside, a packet is allowed if its source is an inside one and its
//! protocol has ports; it gets the mapping of its source, a static one, an existing one or a new
//! one:
//!
//! ```text
//!   source 10.0.0.1:5000 udp ─► static? ─► in `Mappings`? ─► a port from `Ports` (its block claimed if new) ─► used once more
//! ```
//!
//! From outside it is allowed if its destination has a mapping and the filtering knows its source.
//! A refused packet leaves nothing behind: room is looked for before anything is taken.
//!
//! Invariants: a `Translation` with a mapping stands for exactly one use of it; every `Err` here
//! leaves tables and host as they were.
//!
//! An echo request for an external address itself is answered here if that is set, and opens
//! nothing.
//!
//! Not here: the tables themselves (`mappings`, `ports`, `sessions`); ICMP errors, which open
//! nothing (`icmp`).

use super::config::{Filtering, MappingBehavior, OtherProtocols, Refusals};
use super::log::log_pool;
use super::mappings::{InsideHash, Mapping, OutsideHash};
use super::ports::{Refused, Wish, space_of};
use super::state::{Host, Phase, STATIC, Translation, V4Endpoint, how};
use super::{Nat, Tables};
use nf::{Block, Cx, Name, Packet, Side, Verdict, event, reason};
use wire::answer::{Unreachable, echo_reply, icmp_unreachable};
use wire::packet::flag;
use wire::protocol;
use wire::tcp::flags;

/// Its checksum covers addresses (RFC 4340 9), and nothing here can mend it.
const DCCP: u8 = 33;

/// A packet that may open a flow: the facts that the decision needs.
struct Opening {
    source: V4Endpoint,
    destination: V4Endpoint,
    protocol: u8,
    /// Its bitmap of ports, if it has ports that hosts are given.
    space: Option<usize>,
    vlan: u16,
    tcp_flags: u8,
}

#[nf::network_function]
impl Nat {
    pub(super) fn open_from_inside(
        &self,
        packet: &mut Packet,
        flow: &mut Translation,
        cx: &mut Cx<Self>,
    ) -> Verdict {
        let Some((source, destination)) = packet.v4_addrs() else {
            return untouched(flow, cx);
        };
        if packet.has(flag::INSIDE_TO_INSIDE) {
            // The packet does not leave; and its flow is in one group with packets of the other
            // end, which may be another host's.
            return if self.is_ours(source) || self.is_ours(destination) {
                cx.drop("no_mapping")
            } else {
                untouched(flow, cx)
            };
        }
        // No inside host may speak as one of our external addresses, even where every address
        // counts as inside.
        if self.is_ours(source) {
            return cx.drop("spoofed");
        }
        if !self.plan.is_inside(source) {
            flow.how |= how::NOT_INSIDE;
            return untouched(flow, cx);
        }
        let opening = match self.opening(packet, source, destination) {
            Ok(opening) => opening,
            Err(reason)
                if reason == reason!(Nat, "protocol_not_translated")
                    && self.config.other_protocols == OtherProtocols::Pass =>
            {
                return untouched(flow, cx);
            }
            Err(reason) => return cx.drop(reason),
        };
        let hairpin = self.is_ours(destination);
        if hairpin && self.answers_ping(packet, &opening, cx) {
            return answered(cx);
        }
        if hairpin && !self.config.hairpinning {
            return cx.drop("hairpin_off");
        }
        match self.map(&opening, hairpin, cx) {
            Ok((mapping, outside)) => {
                *flow = opening.flow(mapping, opening.source, outside, opening.destination);
                if hairpin {
                    flow.how |= how::HAIRPIN;
                    cx.count("flows_hairpinned");
                }
                cx.count("flows_from_inside");
                self.note(flow, cx);
                self.translate(packet, flow, cx)
            }
            Err(reason) => self.refuse(packet, reason, cx),
        }
    }

    /// Notes a translated flow that begins or arrives ([`super::sessions`]).
    fn note(&self, flow: &Translation, cx: &mut Cx<Self>) {
        let tables = &mut *self.tables.borrow_mut();
        let slot = match flow.mapping {
            STATIC => None,
            _ => tables.ports.slot_at(flow.outside),
        };
        tables.sessions.begin(
            cx.flow_number(),
            flow.inside.addr,
            slot,
            flow.is_proven(),
            cx.clock(),
        );
    }

    /// Says how few blocks are left, if that is to be said; and has idle blocks come back where
    /// there are too few.
    #[cold]
    fn see_to_room(&self, tables: &mut Tables, cx: &mut Cx<Self>) {
        if tables.ports.is_low() && tables.sessions.want(cx.clock()) {
            cx.recall();
        }
        // While others may have spare blocks, none is to be warned of.
        if let Some((free, share)) = self.whole(&tables.ports)
            && let Some(report) = tables.alarm.note(cx.clock(), free, share)
        {
            cx.count("pool_alarms");
            log_pool(report, cx);
        }
    }

    /// Makes an echo request that no host is asked by the answer to it. Whether it did.
    fn answers_ping(&self, packet: &mut Packet, opening: &Opening, cx: &mut Cx<Self>) -> bool {
        let is_asked = self.config.answer_pings && opening.protocol == protocol::ICMP;
        // A host with an address of its own answers for it; from outside, so does a host with a
        // mapping that lets the request in.
        let is_hosts = self
            .plan
            .static_inside(opening.destination, protocol::ICMP)
            .is_some();
        let is_answered =
            is_asked && !is_hosts && is_echo(packet) && self.answers.take(cx.now()) && echo_reply(packet);
        if is_answered {
            cx.count("pings_answered");
        }
        is_answered
    }

    /// A flow from inside that cannot be: its sender hears of it if that is wanted and the reason
    /// is one that passes.
    #[cold]
    fn refuse(&self, packet: &mut Packet, reason: Name, cx: &mut Cx<Self>) -> Verdict {
        let exhausted = [
            reason!(Nat, "ports_exhausted"),
            reason!(Nat, "host_ports_exhausted"),
            reason!(Nat, "table_full"),
        ];
        let exhausted = exhausted.contains(&reason);
        let is_answered = exhausted
            && self.config.refusals == Refusals::Answer
            && self.answers.take(cx.now())
            && icmp_unreachable(packet, Unreachable::Prohibited.code(4));
        if !is_answered {
            return cx.drop(reason);
        }
        cx.count("refusals_answered");
        answered(cx)
    }

    pub(super) fn open_from_outside(
        &self,
        packet: &mut Packet,
        flow: &mut Translation,
        cx: &mut Cx<Self>,
    ) -> Verdict {
        let Some((source, destination)) = packet.v4_addrs() else {
            return untouched(flow, cx);
        };
        let hairpin = self.is_ours(source);
        if hairpin && packet.hairpins() == 0 {
            return cx.drop("spoofed");
        }
        if !self.is_ours(destination) {
            return if self.plan.is_inside(destination) {
                cx.drop("no_mapping")
            } else {
                untouched(flow, cx)
            };
        }
        let opening = match self.opening(packet, source, destination) {
            Ok(opening) => opening,
            Err(reason) => return cx.drop(reason),
        };
        match self.admit(&opening) {
            Ok((mapping, inside)) => {
                *flow = opening.flow(mapping, inside, opening.destination, opening.source);
                flow.how |= how::FROM_OUTSIDE;
                if hairpin {
                    flow.how |= how::HAIRPIN;
                }
                cx.count("flows_from_outside");
                self.note(flow, cx);
                self.translate(packet, flow, cx)
            }
            Err(_) if !hairpin && self.answers_ping(packet, &opening, cx) => answered(cx),
            Err(reason) => cx.drop(reason),
        }
    }

    /// A packet that may open a flow, or why it may not.
    fn opening(&self, packet: &Packet, source: [u8; 4], destination: [u8; 4]) -> Result<Opening, Name> {
        let protocol = packet.protocol();
        let space = space_of(protocol);
        let (from, to) = (V4Endpoint::new(source, 0), V4Endpoint::new(destination, 0));
        let is_static = || match packet.side() {
            Side::Inside => self.plan.static_outside(from, protocol).is_some(),
            Side::Outside => self.plan.static_inside(to, protocol).is_some(),
        };
        if space.is_none() && (protocol == DCCP || !is_static()) {
            return Err(reason!(Nat, "protocol_not_translated"));
        }
        if packet.has(flag::LATER_FRAGMENT) {
            return Err(reason!(Nat, "fragment_without_flow"));
        }
        if protocol == protocol::ICMP {
            // Echo, timestamp, information and address mask requests; an answer opens nothing.
            let asks = matches!(packet.transport().first(), Some(8 | 13 | 15 | 17));
            if !(packet.has(flag::ICMP_QUERY) && asks) {
                return Err(reason!(Nat, "icmp_unrelated"));
            }
        }
        Ok(Opening {
            source: V4Endpoint::new(source, packet.source_port()),
            destination: V4Endpoint::new(destination, packet.destination_port()),
            protocol,
            space,
            vlan: packet.vlan(),
            tcp_flags: packet.tcp().map_or(0, |tcp| tcp.flags()),
        })
    }

    /// The mapping for a flow that opens from inside, used once more; made if there is none.
    fn map(&self, opening: &Opening, hairpin: bool, cx: &mut Cx<Self>) -> Result<(u32, V4Endpoint), Name> {
        let Opening {
            source,
            destination,
            protocol,
            vlan,
            ..
        } = *opening;
        if let Some(outside) = self.plan.static_outside(source, protocol) {
            return self
                .not_itself(outside, opening, hairpin)
                .map(|()| (STATIC, outside));
        }
        let tables = &mut *self.tables.borrow_mut();
        let remote = self.key_part(destination);
        let mut found = tables.mappings.by_inside(source, remote, protocol, vlan);
        if let Ok(handle) = found
            && tables.ports.has_gone()
            && !self.plan.may_give(tables.mappings.at(handle).outside)
        {
            // Its flows end; they have not been asked yet.
            found = Err(tables.mappings.hide(handle));
        }
        if !tables.mappings.has_room(found.is_err()) {
            return Err(reason!(Nat, "table_full"));
        }
        let handle = match found {
            Ok(handle) => handle,
            Err(hash) => self.make_mapping(tables, opening, (remote, hash), cx)?,
        };
        let outside = tables.mappings.at(handle).outside;
        tables.mappings.acquire(handle, destination);
        match self.not_itself(outside, opening, hairpin) {
            Ok(()) => Ok((handle, outside)),
            Err(reason) => {
                self.unmap(tables, handle, destination, cx);
                Err(reason)
            }
        }
    }

    /// One use of a mapping less; with the last one, the mapping and its port are free.
    pub(super) fn unmap(&self, tables: &mut Tables, handle: u32, remote: V4Endpoint, cx: &mut Cx<Self>) {
        let Some(mapping) = tables.mappings.release(handle, remote) else {
            return;
        };
        let Some(space) = space_of(mapping.protocol) else {
            return;
        };
        let host = cx.group();
        host.mappings = host.mappings.saturating_sub(1);
        let released = tables.ports.give(host, mapping.outside, space);
        self.log_mapping(&mapping, event!(Nat, "mapping_released"), cx);
        cx.count("mappings_released");
        if let Some(block) = released {
            let elsewhere = tables.ports.elsewhere(block);
            self.release_block(block, elsewhere, mapping.inside.addr, cx);
        }
    }

    /// The remote end as far as it is part of a mapping's key.
    pub(super) fn key_part(&self, remote: V4Endpoint) -> V4Endpoint {
        match self.config.mapping {
            MappingBehavior::EndpointIndependent => V4Endpoint::default(),
            MappingBehavior::AddressAndPortDependent => remote,
        }
    }

    fn make_mapping(
        &self,
        tables: &mut Tables,
        opening: &Opening,
        (remote, hash): (V4Endpoint, InsideHash),
        cx: &mut Cx<Self>,
    ) -> Result<u32, Name> {
        let inside = opening.source;
        let space = opening.space.ok_or(reason!(Nat, "protocol_not_translated"))?;
        let parity = self.config.preserve_parity && opening.protocol == protocol::UDP;
        let wish = Wish {
            port: self.config.preserve_ports.then_some(inside.port),
            odd: parity.then_some(inside.port % 2 == 1),
        };
        if tables.ports.has_gone()
            && let Some(block) = tables.ports.shed_of(cx.group())
        {
            self.release_block(block, tables.ports.elsewhere(block), inside.addr, cx);
        }
        // Blocks of a host that has come with an address that the pool has not.
        while cx.blocks_room() > 1
            && let Some(block) = tables.ports.shed_strange(cx.group())
        {
            self.release_block(block, None, inside.addr, cx);
        }
        let host = cx.group();
        let (outside, claimed) = match tables.ports.take(host, inside, space, wish) {
            Ok(taken) => taken,
            Err(Refused::Pool) => {
                self.see_to_room(tables, cx);
                return Err(reason!(Nat, "ports_exhausted"));
            }
            Err(Refused::Host) => return Err(reason!(Nat, "host_ports_exhausted")),
        };
        host.mappings += 1;
        host.inside = inside.addr;
        let mapping = Mapping::new(inside, outside, opening.protocol, opening.vlan);
        // Cannot fail: the caller has seen that there is room.
        let handle = tables
            .mappings
            .insert(mapping)
            .ok_or(reason!(Nat, "table_full"))?;
        tables.mappings.index(handle, remote, hash);
        if let Some(block) = claimed {
            // One block is released and one claimed in a call, at most: there is room.
            let fits = cx.claim_block(block);
            debug_assert!(fits);
            cx.count("blocks_claimed");
            self.log_block(block, inside.addr, event!(Nat, "block_claimed"), cx);
            self.see_to_room(tables, cx);
        }
        cx.count("mappings_created");
        self.log_mapping(&mapping, event!(Nat, "mapping_created"), cx);
        Ok(handle)
    }

    /// The mapping that a flow opening from outside is for, used once more, if filtering lets it
    /// in.
    fn admit(&self, opening: &Opening) -> Result<(u32, V4Endpoint), Name> {
        let Opening {
            source,
            destination,
            protocol,
            ..
        } = *opening;
        if let Some(inside) = self.plan.static_inside(destination, protocol) {
            return opens(opening).map(|()| (STATIC, inside));
        }
        let Tables { mappings, ports, .. } = &mut *self.tables.borrow_mut();
        let found = mappings.by_outside(destination, protocol);
        let handle = found
            .ok()
            .filter(|h| mappings.at(*h).vlan == opening.vlan)
            .filter(|_| !ports.has_gone() || self.plan.may_give(destination))
            .ok_or(reason!(Nat, "no_mapping"))?;
        let allowed = match self.config.filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => mappings.knows(handle, source.addr),
            // An allowed sender is the remote end of a flow, and then the packet is that flow's.
            Filtering::AddressAndPortDependent => false,
        };
        if !allowed && !wire::planted::is("filter_forgotten") {
            return Err(reason!(Nat, "filtered"));
        }
        opens(opening)?;
        if !mappings.has_room(false) {
            return Err(reason!(Nat, "table_full"));
        }
        mappings.acquire(handle, source);
        Ok((handle, mappings.at(handle).inside))
    }

    /// Takes in a flow that was somewhere else: its use of its mapping, made if it is the first of
    /// the mapping's flows.
    pub(super) fn adopt(&self, flow: &mut Translation, cx: &mut Cx<Self>) {
        if flow.mapping == STATIC {
            return self.note(flow, cx);
        }
        let (protocol, vlan) = (cx.key().protocol(), cx.key().vlan());
        let tables = &mut *self.tables.borrow_mut();
        let handle = match tables.mappings.by_outside(flow.outside, protocol) {
            Ok(handle) if tables.mappings.at(handle).inside == flow.inside => Some(handle),
            Ok(_) => None,
            Err(hash) => adopt_mapping(tables, cx.group(), flow, (protocol, vlan), hash),
        };
        let Some(handle) = handle else {
            // The flow ends, and its next packet opens it with an endpoint that the pool has.
            *flow = Translation::default();
            cx.count("arrivals_refused");
            tables.refused.mark(cx.flow_number());
            cx.recall();
            return;
        };
        // A flow from outside does not know for which remote end an address-and-port-dependent
        // mapping is.
        let from_inside = flow.how & how::FROM_OUTSIDE == 0;
        if from_inside || self.config.mapping == MappingBehavior::EndpointIndependent {
            tables.mappings.hash_and_index(handle, self.key_part(flow.remote));
        }
        tables.mappings.acquire(handle, flow.remote);
        flow.mapping = handle;
        let slot = tables.ports.slot_at(flow.outside);
        tables.sessions.begin(
            cx.flow_number(),
            flow.inside.addr,
            slot,
            flow.is_proven(),
            cx.clock(),
        );
    }

    /// A socket that sends to its own external endpoint would be both ends of one key. So would an
    /// ICMP query to a mapping: it has one identifier, which becomes its own mapping's. A host with
    /// an external address of its own has all identifiers there.
    fn not_itself(&self, outside: V4Endpoint, opening: &Opening, hairpin: bool) -> Result<(), Name> {
        let is_query = opening.protocol == protocol::ICMP
            && self
                .plan
                .static_inside(opening.destination, protocol::ICMP)
                .is_none();
        if hairpin && (outside == opening.destination || is_query) {
            return Err(reason!(Nat, "hairpin_to_itself"));
        }
        Ok(())
    }

    /// Whether an address is one of our external ones.
    fn is_ours(&self, addr: [u8; 4]) -> bool {
        self.tables.borrow().ports.has(u32::from_be_bytes(addr)) || self.plan.is_static_address(addr)
    }

    /// Says that a block is free, to the runtime whose pool has it if that is another one.
    pub(super) fn release_block(
        &self,
        block: Block,
        elsewhere: Option<u16>,
        inside: [u8; 4],
        cx: &mut Cx<Self>,
    ) {
        // A call releases one block; `group_ended` looks for room first.
        let fits = match elsewhere {
            Some(runtime) => cx.return_block(block, runtime),
            None => cx.release_block(block),
        };
        debug_assert!(fits);
        cx.count("blocks_released");
        self.log_block(block, inside, event!(Nat, "block_released"), cx);
    }
}

impl Opening {
    fn flow(&self, mapping: u32, inside: V4Endpoint, outside: V4Endpoint, remote: V4Endpoint) -> Translation {
        let phase = match self.protocol {
            protocol::TCP => Phase::of_first(self.tcp_flags),
            protocol::UDP if remote.port < 1024 => Phase::UdpWellKnown,
            protocol::ICMP => Phase::Query,
            // Protocols without ports, too.
            _ => Phase::Udp,
        };
        // A static mapping's flows hold no block: nothing asks whether they are proven.
        let how = if mapping == STATIC { how::PROVEN } else { 0 };
        Translation {
            mapping,
            inside,
            outside,
            remote,
            phase,
            how: how.into(),
        }
    }
}

/// From outside only a SYN opens a TCP flow.
fn opens(opening: &Opening) -> Result<(), Name> {
    const SEEN: u8 = flags::SYN | flags::ACK | flags::RST | flags::FIN;
    if opening.protocol == protocol::TCP && opening.tcp_flags & SEEN != flags::SYN {
        return Err(reason!(Nat, "tcp_not_opening"));
    }
    Ok(())
}

/// An answer goes back, and its flow ends with it.
fn answered(cx: &mut Cx<Nat>) -> Verdict {
    cx.end_flow();
    Verdict::Answer
}

/// Whether an ICMP query is an echo request (RFC 792).
fn is_echo(packet: &Packet) -> bool {
    packet.transport().first() == Some(&8)
}

#[nf::network_function]
fn untouched(flow: &mut Translation, cx: &mut Cx<Nat>) -> Verdict {
    flow.phase = Phase::Untouched;
    cx.count("flows_untouched");
    Verdict::Forward
}

fn adopt_mapping(
    tables: &mut Tables,
    host: &Host,
    flow: &Translation,
    (protocol, vlan): (u8, u16),
    hash: OutsideHash,
) -> Option<u32> {
    let space = space_of(protocol)?;
    if !tables.mappings.has_room(true) || !tables.ports.adopt(host, flow.outside, space) {
        return None;
    }
    let mapping = Mapping::new(flow.inside, flow.outside, protocol, vlan);
    tables.mappings.insert_at(mapping, hash)
}
