//! The check of a packet's source by the route that leads back to it (RFC 3704): a spoofed source
//! opens no flow.
//!
//! ```text
//!   10.0.0.0/24 dev lan, default by wan
//!   at lan, from 10.0.0.5      strict: passes        loose: passes
//!   at lan, from 203.0.113.9   strict: dropped       loose: passes, by the default route
//!   at wan, from 203.0.113.9   strict: passes        loose: passes
//!   at wan, from 10.0.0.5      strict: dropped       loose: passes
//! ```
//!
//! The step is the last of its chain, so a NAT has made another source of the packet's. The check
//! takes the source that the first function saw ([`Cx::opened_by`]), which is that of every packet
//! in the opening direction.
//!
//! A strict check is a look-up for the first packet; the flow then keeps the interface, and later
//! packets are compared with it.

use super::config::Check;
use super::state::{Flow, Way};
use super::{Forward, Tables};
use nf::{Cx, Direction, Packet, Side, Verdict};
use wire::packet::flag;

/// The result of the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The packet passes, and so do those behind it that come by this interface ([`Way::arrival`];
    /// 0: by any).
    Right(u16),
    /// It is not checked, which says nothing of those behind it.
    Unchecked,
    /// It is to be dropped.
    Spoofed,
}

#[nf::network_function]
impl Forward {
    pub(super) fn origin(&self, packet: &Packet, cx: &Cx<Self>) -> Origin {
        let check = match packet.side() {
            Side::Inside => self.reverse_path.inside,
            Side::Outside => self.reverse_path.outside,
        };
        // A packet that was turned has been checked, before it was.
        if cx.direction() == Direction::Reply || packet.hairpins() > 0 || check == Check::Off {
            return Origin::Right(0);
        }
        if packet.has(flag::MADE | flag::ICMP_ERROR) {
            return Origin::Unchecked;
        }
        let (source, _) = cx.opened_by();
        let tables: &Tables = &self.tables.borrow();
        if check == Check::Loose {
            return match tables.leads_to(source.addr, None) {
                true => Origin::Right(0),
                false => Origin::Spoofed,
            };
        }
        match tables.arrival(packet.port(), packet.vlan()) {
            Some(arrival) if tables.leads_to(source.addr, Some(arrival)) => Origin::Right(arrival),
            Some(_) => Origin::Spoofed,
            // A port that is no interface, of which no route speaks: there is a route at least.
            None if tables.leads_to(source.addr, None) => Origin::Right(0),
            None => Origin::Spoofed,
        }
    }

    /// For a packet that passes its chain once more and leaves then: only its source is looked at
    /// here.
    #[cold]
    pub(super) fn turn(&self, packet: &Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        let tables = self.tables.borrow();
        let way = flow.ways[cx.direction() as usize];
        let is_known = way.generation == tables.generation()
            && (way.arrival == 0 || tables.is_arrival(way.arrival, packet.port(), packet.vlan()));
        let generation = tables.generation();
        drop(tables);
        if is_known {
            return Verdict::Forward;
        }
        match self.origin(packet, cx) {
            Origin::Spoofed => return cx.drop("reverse_path"),
            Origin::Unchecked => {}
            Origin::Right(arrival) => {
                // For no destination that is forwarded.
                flow.ways[cx.direction() as usize] = Way {
                    generation,
                    arrival,
                    ..Way::default()
                };
            }
        }
        Verdict::Forward
    }
}
