//! ICMP errors through NAT (RFC 5508 4 and 7.2, RFC 4787 REQ-12).
//!
//! An error is about a packet that it quotes, and arrives with that packet's flow. It is translated
//! as the quoted packet was, backward; neither the flow nor its timer takes notice (REQ-6).
//!
//! ```text
//!   from outside, router R:  R → 203.0.113.1   quoting 203.0.113.1:1733 → 198.51.100.7:53
//!                    becomes R → 10.0.0.1      quoting    10.0.0.1:5000 → 198.51.100.7:53      (REQ-4)
//!   from inside, host:       10.0.0.1 → 198.51.100.7      quoting 198.51.100.7:53 → 10.0.0.1:5000
//!                    becomes 203.0.113.1 → 198.51.100.7   quoting 198.51.100.7:53 → 203.0.113.1:1733   (REQ-5)
//! ```
//!
//! An error from a router inside leaves with the flow's external address: its own is private and
//! has no mapping (REQ-5 c).
//!
//! Invariant: the checksums of the error, of the quoted IP header and of the quoted transport
//! header are right afterwards if they were before (checked in `tests` by recomputing them).
//!
//! Not here: ICMP queries, which are translated like UDP with the identifier for a port.

use super::Nat;
use super::state::{Translation, V4Endpoint};
use nf::{Cx, Packet, Side, Verdict};
use wire::checksum::checksum;
use wire::packet::flag;
use wire::parse::{Quoted, quoted};
use wire::rewrite::End;

/// Translates an error about a packet of a translated flow.
#[cold]
#[nf::network_function]
pub(super) fn translate(packet: &mut Packet, flow: &Translation, cx: &mut Cx<Nat>) -> Verdict {
    let Some(quote) = quoted(packet) else {
        return cx.drop("icmp_malformed");
    };
    if !checksums_hold(packet, &quote) {
        return cx.drop("icmp_malformed");
    }
    let outward = cx.side() == Side::Inside;
    let (end, found, expected, replacement) = if outward {
        (End::Destination, quote.destination, flow.inside, flow.outside)
    } else {
        (End::Source, quote.source, flow.outside, flow.inside)
    };
    // From outside the error itself must be addressed to the external address it is about.
    let addressed = outward || packet.destination_addr() == flow.outside.wide().addr;
    if V4Endpoint::of(found) != Some(expected) || !addressed {
        return cx.drop("icmp_mismatch");
    }
    if !packet.rewrite_quoted(end, replacement.wide(), Some(replacement.wide())) {
        return cx.drop("icmp_malformed");
    }
    if outward && flow.is_hairpin() {
        packet.set_flags(flag::HAIRPIN);
    }
    cx.count("icmp_errors_translated");
    Verdict::Forward
}

/// RFC 5508 REQ-3: the error's checksum and the quoted IP header's must be right. Bytes that a
/// capture or a fragment does not hold cannot be judged.
fn checksums_hold(packet: &Packet, quote: &Quoted) -> bool {
    let header = packet
        .frame()
        .get(quote.network..quote.transport)
        .unwrap_or_default();
    let whole = !packet.has(flag::CUT_SHORT | flag::FIRST_FRAGMENT);
    checksum(header) == 0 && (!whole || checksum(packet.transport()) == 0)
}
