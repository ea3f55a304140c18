//! Tracking of everything but TCP: UDP, ICMP queries, ICMP errors, and protocols nothing is known
//! of.
//!
//! **Theory of operation.** None of these protocols has a state of its own on the wire, so a flow
//! is the packets seen of it: one end has spoken, or both. A packet moves the flow at once; only a
//! flow's first waits for the rules ([`Tracked::Ask`]).
//!
//! **Example.** An ICMP echo from inside with identifier 9 opens a flow. Its reply comes back:
//! `IcmpAnswered`. If now the other end *asks*, with identifier 9, too, it uses the hole that the
//! first question made: the rules are asked again, and only if they allow it is the flow marked
//! `CROSSED` and may both ends ask and answer.
//!
//! **Invariants.** An ICMP error changes no flow (its signature has no `&mut`). The fast path of
//! UDP reads the state and eight bytes of the packet, and writes nothing.
//!
//! Not here: the rules, the timeouts (`mod`).
//!
//! Sources: RFC 768, 792, 950, 4443; RFC 4890 4.4.1 for what ICMPv6 needs; RFC 9260 5.1 for how
//! SCTP begins.

use super::state::{Connection, Phase, mark};
use super::{Class, Firewall, Tracked};
use nf::{Packet, Time, reason};
use wire::packet::flag;
use wire::parse::{IcmpClass, icmp_class, quoted};
use wire::protocol;

/// A UDP flow is a stream when it still lives so many milliseconds after its first packet.
const UDP_STREAM: u32 = 2000;

/// The class of a packet that goes the opening way (`direction` 0) or back (1), by what the flow
/// was before it.
#[inline(always)]
pub(super) fn class_of(flow: &Connection, direction: usize) -> Class {
    if direction == 1 || flow.is(mark::REPLIED) {
        Class::Established
    } else {
        Class::New
    }
}

#[inline(always)]
pub(super) fn note_reply(flow: &mut Connection, direction: usize) {
    if direction == 1 {
        flow.marks |= mark::REPLIED;
    }
}

/// The fast path of UDP: a whole datagram of an answered flow that needs no more notes.
#[inline(always)]
pub(super) fn udp_quick(flow: &Connection, packet: &Packet, now: Time) -> bool {
    let settled = match flow.phase {
        Phase::UdpStream => true,
        Phase::UdpReplied => udp_age(flow, now) < UDP_STREAM,
        _ => false,
    };
    let not_plain = flag::LATER_FRAGMENT | flag::FIRST_FRAGMENT | flag::ICMP_ERROR | flag::CUT_SHORT;
    settled && !packet.has(not_plain) && udp_length_holds(packet)
}

/// Milliseconds since the flow's first packet.
#[inline(always)]
fn udp_age(flow: &Connection, now: Time) -> u32 {
    now.tick().milliseconds_since(flow.began)
}

/// Whether the length field covers at least its header and at most what the IP packet holds (RFC
/// 768).
#[inline(always)]
fn udp_length_holds(packet: &Packet) -> bool {
    match packet.transport().first_chunk::<8>() {
        Some(header) => {
            let length = u32::from(u16::from_be_bytes([header[4], header[5]]));
            let held = (packet.end_offset() - packet.transport_offset()) as u32;
            length >= 8 && (length <= held || packet.has(flag::FIRST_FRAGMENT | flag::CUT_SHORT))
        }
        None => false,
    }
}

pub(super) fn track_udp(packet: &Packet, flow: &mut Connection, half: usize, now: Time) -> Tracked {
    if !udp_length_holds(packet) {
        return Tracked::Invalid(reason!(Firewall, "malformed"));
    }
    if flow.phase == Phase::New {
        return Tracked::Ask(Class::New);
    }
    let class = class_of(flow, half);
    note_reply(flow, half);
    if flow.is(mark::REPLIED) {
        // A stream stays one.
        if flow.phase == Phase::UdpUnreplied {
            flow.phase = Phase::UdpReplied;
        } else if udp_age(flow, now) >= UDP_STREAM {
            flow.phase = Phase::UdpStream;
        }
    }
    Tracked::Pass(class)
}

pub(super) fn track_other(flow: &mut Connection, half: usize) -> Tracked {
    if flow.phase == Phase::New {
        return Tracked::Ask(Class::New);
    }
    let class = class_of(flow, half);
    if half == 1 {
        flow.marks |= mark::REPLIED;
        flow.phase = Phase::OtherReplied;
    }
    Tracked::Pass(class)
}

/// Whether an SCTP association can begin with this packet: by INIT, or by a HEARTBEAT on another
/// path of one that exists (RFC 9260 5.1 and 5.4). All else is tracked without states.
pub(super) fn sctp_may_open(packet: &Packet) -> bool {
    const INIT: u8 = 1;
    const HEARTBEAT: u8 = 4;
    matches!(packet.transport().get(12), Some(&(INIT | HEARTBEAT)))
}

/// An ICMP error is about the flow it quotes, and goes to the sender of the quoted packet.
pub(super) fn track_error(packet: &Packet, flow: &Connection) -> Tracked {
    if flow.phase == Phase::New {
        return Tracked::Never(reason!(Firewall, "icmp_error_unrelated"));
    }
    match quoted(packet) {
        Some(quote) if quote.source.addr == packet.destination_addr() => Tracked::Pass(Class::Related),
        _ => Tracked::Invalid(reason!(Firewall, "icmp_error_unrelated")),
    }
}

/// The answer to an ICMP or ICMPv6 query, `None` for another message (RFC 792, 950, 4443).
fn icmp_answer(protocol: u8, kind: u8) -> Option<u8> {
    match (protocol, kind) {
        (protocol::ICMP, 8) => Some(0),
        (protocol::ICMP, 13 | 15 | 17) => Some(kind + 1),
        (protocol::ICMPV6, 128) => Some(129),
        _ => None,
    }
}

pub(super) fn track_icmp(packet: &Packet, flow: &mut Connection, half: usize) -> Tracked {
    let protocol = packet.protocol();
    let Some(&[kind, ..]) = packet.transport().first_chunk::<8>() else {
        return Tracked::Invalid(reason!(Firewall, "malformed"));
    };
    if icmp_class(protocol, kind) != IcmpClass::Query {
        return match (protocol, kind) {
            // Multicast listeners and neighbour discovery (RFC 4890 4.4.1): one-way by nature.
            (protocol::ICMPV6, 130..=137 | 141..=143) => Tracked::Ask(Class::Untracked),
            _ => Tracked::Invalid(reason!(Firewall, "icmp_unsolicited")),
        };
    }
    let asks = icmp_answer(protocol, kind).is_some();
    match (flow.phase, half, asks) {
        (Phase::New, _, true) => Tracked::Ask(Class::New),
        (Phase::New, _, false) => Tracked::Invalid(reason!(Firewall, "icmp_unsolicited")),
        (_, 0, true) => {
            flow.last_seen = kind;
            Tracked::Pass(class_of(flow, 0))
        }
        (_, 1, true) if flow.is(mark::CROSSED) => Tracked::Pass(if flow.is(mark::CROSSED_REPLIED) {
            Class::Established
        } else {
            Class::New
        }),
        // The same identifier by chance, or a sender that uses an open hole: the rules decide.
        (_, _, true) => Tracked::Ask(Class::New),
        _ if icmp_answer(protocol, flow.last_seen) != Some(kind) => {
            Tracked::Invalid(reason!(Firewall, "icmp_unsolicited"))
        }
        (_, 1, false) => {
            flow.marks |= mark::REPLIED;
            flow.phase = Phase::IcmpAnswered;
            Tracked::Pass(Class::Established)
        }
        (_, _, false) if flow.is(mark::CROSSED) => {
            flow.marks |= mark::CROSSED_REPLIED;
            Tracked::Pass(Class::Established)
        }
        _ => Tracked::Invalid(reason!(Firewall, "icmp_unsolicited")),
    }
}
