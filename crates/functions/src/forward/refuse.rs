//! Packets that are not forwarded, and the errors that their senders are told.
//!
//! A damaged IPv4 header is no packet of the host that it names: it is dropped before all else, and
//! not answered (RFC 1812 5.2.2).
//!
//! Sources: RFC 1812 4.2.2.11 and 5.3.7 (martian addresses), 4.3.2 (errors), RFC 6890 (special
//! addresses), RFC 3927 7 and RFC 4291 2.5.6 (link-local), RFC 7126 and RFC 5095 (source routes),
//! RFC 8200 3, RFC 4443 3.

use super::Forward;
use super::tables::is_link_local;
use crate::budget::Budget;
use nf::{Addr, Cx, Name, Packet, Verdict, counter, reason};
use wire::answer::{Unreachable, icmp_error_from, may_have_error_from};
use wire::packet::flag;

/// Whether no packet can come from there: from no host, from many, or from a host to itself.
#[inline]
pub(super) fn is_martian(source: Addr) -> bool {
    match source.as_v4() {
        Some([first, ..]) => first == 0 || first == 127 || first >= 224,
        None => {
            let octets = source.octets();
            octets[0] == 0xff || (octets[..15] == [0; 15] && octets[15] <= 1)
        }
    }
}

/// [`reason()`] for a packet whose flow has a way: cheaper, since the flow's addresses were looked
/// at when the way was found.
#[inline]
pub(super) fn reason_on_the_way(packet: &Packet) -> Option<Name> {
    // A route in a packet says nothing of the flow's others; an error comes from any router.
    let is_odd = packet.has(flag::SOURCE_ROUTED | flag::ICMP_ERROR);
    if is_odd || is_martian(packet.source_addr()) || !packet.header_checksum_valid() {
        reason(packet)
    } else {
        None
    }
}

/// Why no router forwards a packet, whatever the routes say.
#[cold]
pub(super) fn reason(packet: &Packet) -> Option<Name> {
    if !packet.header_checksum_valid() {
        return Some(reason!(Forward, "bad_header_checksum"));
    }
    let (source, destination) = (packet.source_addr(), packet.destination_addr());
    let is_multicast = match destination.as_v4() {
        Some(v4) => v4[0] & 0xf0 == 0xe0,
        None => destination.octets()[0] == 0xff,
    };
    if is_martian(source) {
        Some(reason!(Forward, "martian"))
    } else if is_multicast {
        Some(reason!(Forward, "multicast"))
    } else if destination.as_v4() == Some([255; 4]) {
        Some(reason!(Forward, "broadcast"))
    } else if is_martian(destination) {
        Some(reason!(Forward, "martian"))
    } else if is_link_local(source) || is_link_local(destination) {
        Some(reason!(Forward, "link_local"))
    } else if packet.has(flag::SOURCE_ROUTED) && (packet.version() == 4 || packet.has_type_0_route()) {
        Some(reason!(Forward, "source_routed"))
    } else {
        None
    }
}

#[nf::network_function]
impl Forward {
    /// Makes the packet an error about itself; if it must have none, which costs nothing, or the
    /// budget is spent, it is dropped for `reason`.
    fn answer(
        &self,
        budget: &Budget,
        packet: &mut Packet,
        cx: &mut Cx<Self>,
        (reason, counter): (Name, Name),
        (kind, code): (u8, u8),
        rest: u32,
    ) -> Verdict {
        // A turned packet came from an inside host: an error would go outside.
        if packet.hairpins() > 0 {
            return cx.drop(reason);
        }
        let tables = self.tables.borrow();
        let source = tables.own_address(packet.port(), packet.vlan(), packet.source_addr());
        drop(tables);
        let Some(source) = source.filter(|source| may_have_error_from(packet, *source, kind)) else {
            return cx.drop(reason);
        };
        if !budget.take(cx.now()) {
            cx.count("errors_limited");
            return cx.drop(reason);
        }
        if !icmp_error_from(packet, source, (kind, code), rest) {
            return cx.drop(reason);
        }
        cx.count(counter);
        Verdict::Answer
    }

    pub(super) fn time_exceeded(&self, packet: &mut Packet, cx: &mut Cx<Self>) -> Verdict {
        let kind = if packet.version() == 4 { 11 } else { 3 };
        self.answer(
            &self.errors,
            packet,
            cx,
            (
                reason!(Forward, "ttl_exceeded"),
                counter!(Forward, "time_exceeded"),
            ),
            (kind, 0),
            0,
        )
    }

    /// Has a budget of its own: where other errors flow, a path's MTU is found as well.
    pub(super) fn too_big(&self, packet: &mut Packet, cx: &mut Cx<Self>, reason: Name, mtu: u32) -> Verdict {
        let kind = if packet.version() == 4 { (3, 4) } else { (2, 0) };
        // IPv4 has 16 bits for it (RFC 1191 4).
        let told = if packet.version() == 4 {
            mtu.min(0xffff)
        } else {
            mtu
        };
        self.answer(
            &self.too_long,
            packet,
            cx,
            (reason, counter!(Forward, "too_big")),
            kind,
            told,
        )
    }

    pub(super) fn unreachable(
        &self,
        packet: &mut Packet,
        cx: &mut Cx<Self>,
        reason: Name,
        why: Unreachable,
    ) -> Verdict {
        let kind = if packet.version() == 4 { 3 } else { 1 };
        let code = why.code(packet.version());
        self.answer(
            &self.errors,
            packet,
            cx,
            (reason, counter!(Forward, "unreachable")),
            (kind, code),
            0,
        )
    }
}
