//! Routes, neighbours and interfaces as they are at one moment: made by the publisher, which
//! follows the kernel; never changed; looked up by workers.
//!
//! ```text
//!   destination ─Ranges─► route ─choose by hash─► way: interface, gateway ─neighbours─► hop: port, addresses, tag, MTU
//! ```
//!
//! A route that is *direct* has no gateway: the destination itself is the neighbour. A neighbour
//! whose link address is not known is [`Found::Unresolved`]: the kernel must ask for it.
//!
//! Invariants: indices in here are valid ([`Tables::new`] leaves out what refers to nothing);
//! bounded by what was given.
//!
//! Source: RFC 1812 5.2.4 (next hop), 5.2.4.3 (longest match).

use super::ranges::Ranges;
use alloc::vec::Vec;
use hashbrown::HashMap;
use nf::{Addr, Prefix};

/// An interface by which packets may leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The kernel's number for it.
    pub index: u32,
    /// Number of the port that it is, among the cluster's.
    pub port: u8,
    /// The 802.1Q tag of its frames; 0 for none. A sub-interface has the port of the interface it
    /// is on.
    pub vlan: u16,
    /// Its link address.
    pub link: [u8; 6],
    /// The longest IP packet, in bytes.
    pub mtu: u32,
    /// Its own addresses, the primary one of each version first.
    pub addresses: Vec<Addr>,
}

/// The kinds of routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Packets go on.
    Forward,
    /// They are for this host.
    Local,
    /// For all hosts of a link.
    Broadcast,
    /// Refused, and the sender told: no such host.
    Unreachable,
    /// Refused, and the sender told: forbidden.
    Prohibited,
    /// Thrown away.
    Blackhole,
}

/// One of a route's ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The interface, by the kernel's number.
    pub interface: u32,
    /// The router to send to; without one, the destination itself.
    pub gateway: Option<Addr>,
    /// How large a share of the flows goes this way; at least 1.
    pub weight: u16,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destinations.
    pub to: Prefix,
    /// Its kind.
    pub kind: Kind,
    /// Where packets go on; of several, a flow takes one.
    pub ways: Vec<Way>,
    /// Of equal prefixes, the one with the smallest counts.
    pub metric: u32,
    /// A smaller MTU than the interface's, in bytes; 0 for none.
    pub mtu: u32,
}

/// A neighbour whose link address is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The interface, by the kernel's number.
    pub interface: u32,
    /// Its address.
    pub address: Addr,
    /// Its link address.
    pub link: [u8; 6],
}

/// A packet's way out: all that is written in front of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Link address of the neighbour.
    pub to: [u8; 6],
    /// Link address of the interface.
    pub from: [u8; 6],
    /// Tag, or 0.
    pub vlan: u16,
    /// Number of the port.
    pub port: u8,
}

/// The result of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Index of the hop, and the MTU on the way.
    Hop(u32, u32),
    /// A neighbour on an interface (by the kernel's number) whose link address is not known.
    Unresolved(u32, Addr),
    /// A route that is none, or none at all.
    Refused(Kind),
}

struct Entry {
    kind: Kind,
    mtu: u32,
    ways: Vec<Way>,
    weight: u32,
}

/// The tables of one moment.
pub struct Tables {
    generation: u32,
    interfaces: Vec<Interface>,
    entries: Vec<Entry>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    neighbours: HashMap<(u32, Addr), u32>,
    hops: Vec<Hop>,
}

fn bits(addr: Addr) -> u128 {
    u128::from_be_bytes(*addr.octets())
}

impl Tables {
    /// Nothing is known: everything is refused.
    pub fn empty() -> Self {
        Tables::new(0, Vec::new(), Vec::new(), &[])
    }

    /// Makes tables. Neighbours on interfaces that are not there are left out, and so are ways by
    /// them: destinations of a route that loses all its ways are unreachable.
    pub fn new(
        generation: u32,
        interfaces: Vec<Interface>,
        mut routes: Vec<Route>,
        known: &[Neighbour],
    ) -> Self {
        let is_there = |index: u32| interfaces.iter().any(|interface| interface.index == index);
        // Of equal prefixes the last counts.
        routes.sort_by_key(|route| core::cmp::Reverse(route.metric));
        let (mut v4, mut v6, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for mut route in routes {
            route.ways.retain(|way| is_there(way.interface));
            if route.kind == Kind::Forward && route.ways.is_empty() {
                // Not by a port of ours, and a shorter route would lead astray.
                route.kind = Kind::Unreachable;
            }
            let value = entries.len() as u32;
            let (first, last) = ends(&route.to);
            if route.to.addr().is_v4() {
                v4.push((first as u32, last as u32, value));
            } else {
                v6.push((first, last, value));
            }
            let weight = route.ways.iter().map(|way| u32::from(way.weight.max(1))).sum();
            entries.push(Entry {
                kind: route.kind,
                mtu: if route.mtu == 0 { u32::MAX } else { route.mtu },
                ways: route.ways,
                weight,
            });
        }
        let mut neighbours = HashMap::with_capacity(known.len());
        let mut hops = Vec::with_capacity(known.len());
        for neighbour in known {
            let Some(interface) = interfaces.iter().find(|i| i.index == neighbour.interface) else {
                continue;
            };
            neighbours.insert((neighbour.interface, neighbour.address), hops.len() as u32);
            hops.push(Hop {
                to: neighbour.link,
                from: interface.link,
                vlan: interface.vlan,
                port: interface.port,
            });
        }
        Tables {
            generation,
            interfaces,
            entries,
            v4: Ranges::new(v4),
            v6: Ranges::new(v6),
            neighbours,
            hops,
        }
    }

    /// Their number: another one than that of the tables before ([`super::Feed::distinguish`]).
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The hops; [`Found::Hop`] has the index.
    #[inline]
    pub fn hop(&self, index: u32) -> Option<&Hop> {
        self.hops.get(index as usize)
    }

    /// The interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Whether a neighbour's link address is known.
    pub fn has_neighbour(&self, interface: u32, address: Addr) -> bool {
        self.neighbours.contains_key(&(interface, address))
    }

    fn entry(&self, address: Addr) -> Option<&Entry> {
        let value = match address.as_v4() {
            Some(_) => self.v4.find(address.low_u32()),
            None => self.v6.find(bits(address)),
        };
        self.entries.get(value as usize)
    }

    /// The interface by which frames come in at a port with a tag, counted from 1; `None` if there
    /// is none, or too many.
    pub fn arrival(&self, port: u8, vlan: u16) -> Option<u16> {
        let here = |interface: &Interface| interface.port == port && interface.vlan == vlan;
        let at = self.interfaces.iter().position(here)?;
        u16::try_from(at + 1).ok()
    }

    /// Whether frames at a port with a tag come in by that interface.
    #[inline]
    pub fn is_arrival(&self, arrival: u16, port: u8, vlan: u16) -> bool {
        let interface = self.interfaces.get(usize::from(arrival).wrapping_sub(1));
        interface.is_some_and(|interface| interface.port == port && interface.vlan == vlan)
    }

    /// Whether packets to an address are forwarded: out by this interface, as [`Tables::arrival`]
    /// has it, if there is one given.
    pub fn leads_to(&self, address: Addr, arrival: Option<u16>) -> bool {
        let Some(entry) = self.entry(address).filter(|entry| entry.kind == Kind::Forward) else {
            return false;
        };
        arrival.is_none_or(|arrival| {
            let interface = self.interfaces.get(usize::from(arrival).wrapping_sub(1));
            interface.is_some_and(|own| entry.ways.iter().any(|way| way.interface == own.index))
        })
    }

    /// Where a packet goes. `hash` chooses among several ways; the way of one flow is always the
    /// same.
    pub fn look_up(&self, destination: Addr, hash: u64) -> Found {
        // `NOTHING` is no index.
        let Some(entry) = self.entry(destination) else {
            return Found::Refused(Kind::Unreachable);
        };
        if entry.kind != Kind::Forward {
            return Found::Refused(entry.kind);
        }
        let mut share = ((hash >> 32).wrapping_mul(u64::from(entry.weight)) >> 32) as u32;
        let mut chosen = entry.ways[0];
        for way in &entry.ways {
            chosen = *way;
            match share.checked_sub(u32::from(way.weight.max(1))) {
                Some(rest) => share = rest,
                None => break,
            }
        }
        let next = chosen.gateway.unwrap_or(destination);
        match self.neighbours.get(&(chosen.interface, next)) {
            Some(hop) => {
                let interface = self.interfaces.iter().find(|i| i.index == chosen.interface);
                Found::Hop(*hop, interface.map_or(0, |i| i.mtu).min(entry.mtu))
            }
            None => Found::Unresolved(chosen.interface, next),
        }
    }

    /// An address of this router on the interface that frames come in by at a port with a tag, for
    /// errors: of the version of `to`, a global one unless there is only a link's own. RFC 1812
    /// 4.3.2.4 wants one of the interface over which the error leaves; with routes that lead back
    /// the way packets come, this is it.
    pub fn own_address(&self, port: u8, vlan: u16, to: Addr) -> Option<Addr> {
        let here = |interface: &&Interface| interface.port == port && interface.vlan == vlan;
        let of = |interface: &Interface| {
            let mut fitting = interface.addresses.iter().filter(|a| a.version() == to.version());
            let global = fitting.clone().find(|address| !is_link_local(**address));
            global.or_else(|| fitting.next()).copied()
        };
        let mine = self.interfaces.iter().filter(here).find_map(of);
        // An interface without an address of its own: any of the router's (RFC 1812 2.2.7).
        mine.or_else(|| self.interfaces.iter().find_map(of))
    }
}

/// First and last address of a prefix.
fn ends(prefix: &Prefix) -> (u128, u128) {
    let first = bits(prefix.addr());
    let length = u32::from(prefix.length());
    if prefix.addr().is_v4() {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let low = first as u32 & mask;
        (u128::from(low), u128::from(low | !mask))
    } else {
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        (first & mask, first & mask | !mask)
    }
}

/// Whether an address is of use on its own link only.
pub(super) fn is_link_local(addr: Addr) -> bool {
    match addr.as_v4() {
        Some(v4) => v4[0] == 169 && v4[1] == 254,
        None => addr.octets()[0] == 0xfe && addr.octets()[1] & 0xc0 == 0x80,
    }
}
