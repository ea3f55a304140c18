//! The kernel's knowledge of the network: links, their addresses, routes and neighbours, and each
//! change of them.
//!
//! # Theory of operation
//!
//! ```text
//!   open ─► a socket that hears changes ─► everything asked once ─► Network
//!   wait ─► neighbour changed:               that one is changed here
//!        ─► link, address or route changed:  all of that kind is asked again, once things have been quiet for a moment
//!        ─► something was lost:              everything is asked again
//! ```
//!
//! The hearing socket is open before the first question, so no change falls between. Routes are
//! asked as a whole because a change of one may speak of a part of it only (a way of several), and
//! the kernel's own order decides.
//!
//! Of routes, those of the tables `local`, `main` and `default` count, which the kernel looks
//! through in this order unless its rules were changed. Neighbours count whose link address the
//! kernel believes in, or would believe in until it has asked again. A neighbour that has gone
//! *stale* is asked for again by [`Watcher::refresh`]: the kernel would not, as it sees no packet
//! to it.
//!
//! *Families.* [`Addr`] keeps an IPv4 address as the IPv6 address that maps it (RFC 4291 2.5.5.2),
//! and the kernel keeps whatever IPv6 address a host solicits from, or a router advertises. So an
//! IPv6 address that maps IPv4 is not taken from it: as no neighbour, no route, no gateway and no
//! own address. Neighbours of other families (a bridge's, a tunnel's) are not taken either. An
//! `Addr` in here thus says its family, and messages of IPv6 change nothing of IPv4. A permanent
//! neighbour changes by the administrator's word only: the kernel sees to it within a family.
//!
//! *Encapsulation.* Nothing here puts headers of other protocols in front of packets (MPLS, segment
//! routing, tunnels by route). A way that wants one is no way: sent plain, a packet of one network
//! would be in another. A route that has no other way is unreachable, and still hides shorter ones.
//!
//! *Changes.* A neighbour that goes stale, or is confirmed, at the same link address is no change:
//! packets go where they went. This happens to each busy neighbour twice a minute.
//!
//! Invariants: [`Watcher::network`] is the kernel's last word; a wait ends in the time given,
//! whatever the kernel says.
//!
//! Not here: its use (`functions::forward`, joined in the tool), `ip rule`, nexthop objects by
//! themselves (the kernel spells them out in the routes that use them), multicast routes.

mod socket;

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteLwEnCapType, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use socket::{Heard, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use wire::{Addr, Prefix};

/// A link (an interface, as most say).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its link address, if it has one of six bytes.
    pub address: Option<[u8; 6]>,
    /// The longest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// For an 802.1Q sub-interface: the link it is on, and its tag.
    pub vlan: Option<(u32, u16)>,
}

/// The kind of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteKind {
    /// Packets go on.
    Unicast,
    /// Packets are for this host.
    Local,
    /// Packets are for all hosts of a link.
    Broadcast,
    /// Refused with an error: no such host.
    Unreachable,
    /// Refused with an error: forbidden.
    Prohibited,
    /// Thrown away.
    Blackhole,
}

/// One of a route's ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteWay {
    /// The link.
    pub link: u32,
    /// The router to send to; without one, the destination itself.
    pub gateway: Option<Addr>,
    /// Its share among several.
    pub weight: u16,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destinations.
    pub to: Prefix,
    /// Its kind.
    pub kind: RouteKind,
    /// Its ways, for a unicast route.
    pub ways: Vec<RouteWay>,
    /// Of equal prefixes the one with the smallest counts: the table's place in the kernel's order,
    /// then the metric.
    pub rank: (u8, u32),
    /// A smaller MTU than the link's; 0 for none.
    pub mtu: u32,
}

/// A neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its link address.
    pub link: [u8; 6],
    /// The kernel has not heard of it for a while.
    pub is_stale: bool,
}

/// The kernel's knowledge of the network.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Network {
    /// Links by number.
    pub links: BTreeMap<u32, Link>,
    /// Addresses by link, in the kernel's order: the primary one first.
    pub addresses: BTreeMap<u32, Vec<Addr>>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Neighbours by link and address.
    pub neighbours: BTreeMap<(u32, Addr), Neighbour>,
}

/// Why the kernel cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel does not tell its routes and neighbours (netlink: {0}); is this Linux, and not a sandbox that forbids it?"
)]
pub struct NetlinkError(Errno);

impl From<Errno> for NetlinkError {
    fn from(error: Errno) -> Self {
        NetlinkError(error)
    }
}

/// Follows the kernel.
pub struct Watcher {
    hearing: Socket,
    asking: Socket,
    network: Network,
    /// Kinds that have changed and are to be asked again, and since when.
    due: Due,
    due_since: Option<Instant>,
    /// Something has changed that no wait has answered yet.
    has_changed: bool,
}

#[derive(Clone, Copy, Default)]
struct Due {
    links: bool,
    addresses: bool,
    routes: bool,
    neighbours: bool,
}

impl Due {
    const ALL: Due = Due {
        links: true,
        addresses: true,
        routes: true,
        neighbours: true,
    };
}

/// Of links, neighbours, and of both versions addresses and routes (RTMGRP_*).
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;
/// Interfaces on top of each other that are looked through.
const LAYERS: usize = 8;
/// How long nothing must have changed before a kind is asked again, and how long that is put off at
/// most.
const QUIET: Duration = Duration::from_millis(10);
const QUIET_MAX: Duration = Duration::from_millis(200);

impl Watcher {
    /// Begins to follow the kernel's tables in the network namespace of the calling thread. Takes
    /// no privilege.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut watcher = Watcher {
            hearing: Socket::open(GROUPS)?,
            asking: Socket::open(0)?,
            network: Network::default(),
            due: Due::ALL,
            due_since: None,
            has_changed: false,
        };
        watcher.ask_due()?;
        watcher.has_changed = false;
        Ok(watcher)
    }

    /// The network as the kernel has told it so far.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Waits for changes, at most so long; answers whether there was one, other than of whether a
    /// neighbour is stale.
    pub fn wait(&mut self, time: Duration) -> Result<bool, NetlinkError> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let is_due = self.due_since.is_some();
            match self.hearing.hear(if is_due { left.min(QUIET) } else { left })? {
                Heard::Messages(messages) => messages.into_iter().for_each(|message| self.take(message)),
                Heard::Lost => {
                    self.due = Due::ALL;
                    self.due_since.get_or_insert_with(Instant::now);
                }
                Heard::Nothing if is_due => {
                    self.ask_due()?;
                    return Ok(std::mem::take(&mut self.has_changed));
                }
                Heard::Nothing => {}
            }
            if self.due_since.is_some_and(|since| since.elapsed() > QUIET_MAX) {
                self.ask_due()?;
                return Ok(std::mem::take(&mut self.has_changed));
            }
            let over = Instant::now() >= end;
            if self.due_since.is_none() && (over || self.has_changed) {
                return Ok(std::mem::take(&mut self.has_changed));
            }
            if over && self.due_since.is_some() {
                self.ask_due()?;
                return Ok(std::mem::take(&mut self.has_changed));
            }
        }
    }

    /// Has the kernel find out, or confirm, a neighbour's link address, as if it had a packet for
    /// it. Takes CAP_NET_ADMIN.
    pub fn resolve(&mut self, link: u32, address: Addr) -> Result<(), NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = link;
        message.header.flags = NeighbourFlags::Use;
        let address = match address.to_ip() {
            IpAddr::V4(v4) => {
                message.header.family = AddressFamily::Inet;
                NeighbourAddress::Inet(v4)
            }
            IpAddr::V6(v6) => {
                message.header.family = AddressFamily::Inet6;
                NeighbourAddress::Inet6(v6)
            }
        };
        message.attributes.push(NeighbourAttribute::Destination(address));
        self.asking.ask(RouteNetlinkMessage::NewNeighbour(message))?;
        Ok(())
    }

    /// Has the kernel confirm neighbours on these links that it has not heard of for a while, at
    /// most so many.
    pub fn refresh(&mut self, links: &[u32], most: usize) -> Result<(), NetlinkError> {
        let stale: Vec<_> = self
            .network
            .neighbours
            .iter()
            .filter(|((link, _), neighbour)| neighbour.is_stale && links.contains(link))
            .map(|(key, _)| *key)
            .take(most)
            .collect();
        for (link, address) in stale {
            self.resolve(link, address)?;
        }
        Ok(())
    }

    fn take(&mut self, message: RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewNeighbour(message) => {
                self.has_changed |= take_neighbour(&mut self.network, &message, true);
            }
            RouteNetlinkMessage::DelNeighbour(message) => {
                self.has_changed |= take_neighbour(&mut self.network, &message, false);
            }
            RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => {
                // A link that goes takes its routes and addresses along, not always with a word.
                self.due.links = true;
                self.due.addresses = true;
                self.due.routes = true;
            }
            RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
                self.due.addresses = true
            }
            RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::DelRoute(_) => self.due.routes = true,
            _ => return,
        }
        let Due {
            links,
            addresses,
            routes,
            neighbours,
        } = self.due;
        if links || addresses || routes || neighbours {
            self.due_since.get_or_insert_with(Instant::now);
        }
    }

    fn ask_due(&mut self) -> Result<(), NetlinkError> {
        let due = self.due;
        if due.links {
            let mut links = BTreeMap::new();
            self.asking
                .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
                    if let RouteNetlinkMessage::NewLink(message) = message {
                        let link = link_of(&message);
                        links.insert(link.index, link);
                    }
                })?;
            self.has_changed |= self.network.links != links;
            self.network.links = links;
        }
        if due.addresses {
            let mut addresses = BTreeMap::<u32, Vec<Addr>>::new();
            self.asking.dump(
                RouteNetlinkMessage::GetAddress(AddressMessage::default()),
                |message| {
                    if let RouteNetlinkMessage::NewAddress(message) = message
                        && let Some(address) = address_of(&message)
                    {
                        addresses.entry(message.header.index).or_default().push(address);
                    }
                },
            )?;
            self.has_changed |= self.network.addresses != addresses;
            self.network.addresses = addresses;
        }
        if due.routes {
            let mut routes = Vec::new();
            for family in [AddressFamily::Inet, AddressFamily::Inet6] {
                let mut request = RouteMessage::default();
                request.header.address_family = family;
                self.asking
                    .dump(RouteNetlinkMessage::GetRoute(request), |message| {
                        if let RouteNetlinkMessage::NewRoute(message) = message {
                            routes.extend(route_of(&message));
                        }
                    })?;
            }
            self.has_changed |= self.network.routes != routes;
            self.network.routes = routes;
        }
        if due.neighbours {
            let mut network = Network::default();
            self.asking.dump(
                RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
                |message| {
                    if let RouteNetlinkMessage::NewNeighbour(message) = message {
                        take_neighbour(&mut network, &message, true);
                    }
                },
            )?;
            let link_addresses = |network: &Network| -> Vec<_> {
                let each = network.neighbours.iter();
                each.map(|(key, neighbour)| (*key, neighbour.link)).collect()
            };
            self.has_changed |= link_addresses(&network) != link_addresses(&self.network);
            self.network.neighbours = network.neighbours;
        }
        (self.due, self.due_since) = (Due::default(), None);
        Ok(())
    }
}

/// The link addresses at which this host receives, each with the number of an interface: an
/// interface's own, and those of interfaces of this network namespace that are on top of it (VLAN,
/// macvlan, as a virtual router has). Takes no privilege.
pub fn stations() -> Result<BTreeSet<(u32, [u8; 6])>, NetlinkError> {
    let mut links = Vec::new();
    Socket::open(0)?.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
        if let RouteNetlinkMessage::NewLink(message) = message {
            links.push(message);
        }
    })?;
    Ok(stations_of(&links))
}

fn stations_of(links: &[LinkMessage]) -> BTreeSet<(u32, [u8; 6])> {
    let lower: BTreeMap<u32, u32> = links
        .iter()
        .filter_map(|link| Some((link.header.index, lower_of(link)?)))
        .collect();
    let mut stations = BTreeSet::new();
    for message in links {
        let link = link_of(message);
        let Some(address) = link.address else { continue };
        let mut at = Some(link.index);
        for _ in 0..LAYERS {
            stations.extend(at.map(|index| (index, address)));
            at = at.and_then(|index| lower.get(&index).copied());
        }
    }
    stations
}

/// The interface of this namespace on which another one is.
fn lower_of(message: &LinkMessage) -> Option<u32> {
    let (mut lower, mut is_upper, mut is_here) = (None, false, true);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Link(index) => lower = Some(*index),
            LinkAttribute::LinkNetNsId(_) => is_here = false,
            LinkAttribute::LinkInfo(infos) => {
                // A veth pair's `Link` is the other end.
                is_upper |= infos
                    .iter()
                    .any(|info| matches!(info, LinkInfo::Kind(InfoKind::Vlan | InfoKind::MacVlan)));
            }
            _ => {}
        }
    }
    lower.filter(|_| is_upper && is_here)
}

fn link_of(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        address: None,
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        vlan: None,
    };
    let (mut parent, mut tag) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.address = bytes.as_slice().try_into().ok(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Link(index) => parent = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    let LinkInfo::Data(InfoData::Vlan(settings)) = info else {
                        continue;
                    };
                    for setting in settings {
                        if let InfoVlan::Id(id) = setting {
                            tag = Some(*id);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    link.vlan = parent.zip(tag);
    link
}

fn address_of(message: &AddressMessage) -> Option<Addr> {
    // Of a point-to-point link, `Address` is the other end.
    let find = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) if local => addr_of_ip(*ip),
            AddressAttribute::Address(ip) if !local => addr_of_ip(*ip),
            _ => None,
        })
    };
    find(true).or_else(|| find(false))
}

/// An address of its family; `None` of an IPv6 address that maps IPv4.
fn addr_of_ip(ip: IpAddr) -> Option<Addr> {
    let addr = Addr::from(ip);
    (addr.is_v4() == ip.is_ipv4()).then_some(addr)
}

/// Answers whether that changes where packets go.
fn take_neighbour(network: &mut Network, message: &NeighbourMessage, is_there: bool) -> bool {
    let family = message.header.family;
    let mut destination = None;
    let mut link = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                destination = (family == AddressFamily::Inet).then_some(Addr::from(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                destination = addr_of_ip(IpAddr::V6(*v6)).filter(|_| family == AddressFamily::Inet6);
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => link = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
            _ => {}
        }
    }
    let Some(destination) = destination else {
        return false;
    };
    if message.header.flags.contains(NeighbourFlags::Proxy) {
        return false;
    }
    let key = (message.header.ifindex, destination);
    let is_believed = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    match link {
        Some(link) if is_there && is_believed => {
            let is_stale = message.header.state == NeighbourState::Stale;
            let before = network.neighbours.insert(key, Neighbour { link, is_stale });
            before.is_none_or(|before| before.link != link)
        }
        _ => network.neighbours.remove(&key).is_some(),
    }
}

fn addr_of(address: &RouteAddress) -> Option<Addr> {
    match address {
        RouteAddress::Inet(v4) => Some(Addr::from(*v4)),
        RouteAddress::Inet6(v6) => addr_of_ip(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn via_of(via: &RouteVia) -> Option<Addr> {
    match via {
        RouteVia::Inet(v4) => Some(Addr::from(*v4)),
        RouteVia::Inet6(v6) => addr_of_ip(IpAddr::V6(*v6)),
        _ => None,
    }
}

/// The gateway of a way; `Err` for a gateway that no host can be.
fn gateway_of(attributes: &[RouteAttribute]) -> Result<Option<Addr>, ()> {
    let gateway = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => Some(addr_of(address)),
        RouteAttribute::Via(via) => Some(via_of(via)),
        _ => None,
    });
    gateway.map(|address| address.ok_or(())).transpose()
}

/// Whether packets of a way get a header of another protocol in front (MPLS, segment routing,
/// tunnels).
fn is_encapsulated(attributes: &[RouteAttribute]) -> bool {
    attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Encap(_) => true,
        RouteAttribute::EncapType(kind) => *kind != RouteLwEnCapType::None,
        _ => false,
    })
}

/// A route that counts; `None` for those of other tables, of dead links, cached ones and kinds that
/// packets never take.
fn route_of(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let dead = RouteFlags::Dead | RouteFlags::Linkdown;
    if header.flags.intersects(RouteFlags::Cloned) || header.source_prefix_length != 0 || header.tos != 0 {
        return None;
    }
    let mut table = u32::from(header.table);
    let (mut destination, mut link, mut metric, mut mtu) = (None, None, 0, 0);
    let mut several: &[RouteNextHop] = &[];
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => destination = Some(addr_of(address)?),
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    if let RouteMetric::Mtu(bytes) = metric {
                        mtu = *bytes;
                    }
                }
            }
            RouteAttribute::MultiPath(ways) => several = ways,
            _ => {}
        }
    }
    // In the order in which the kernel looks through them.
    let table_rank = match table {
        255 => 0,
        254 => 1,
        253 => 2,
        _ => return None,
    };
    let mut kind = match header.kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local | RouteType::Anycast => RouteKind::Local,
        RouteType::Broadcast => RouteKind::Broadcast,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibited,
        RouteType::BlackHole => RouteKind::Blackhole,
        _ => return None,
    };
    let all = match header.address_family {
        AddressFamily::Inet => Addr::v4([0; 4]),
        AddressFamily::Inet6 => Addr::UNSPECIFIED,
        _ => return None,
    };
    let to = Prefix::new(destination.unwrap_or(all), header.destination_prefix_length)?;
    let mut ways = Vec::new();
    if kind == RouteKind::Unicast {
        let mut is_barred = false;
        if several.is_empty() && !header.flags.intersects(dead) {
            is_barred = is_encapsulated(&message.attributes);
            if !is_barred {
                let gateway = gateway_of(&message.attributes).ok()?;
                ways.extend(link.map(|link| RouteWay {
                    link,
                    gateway,
                    weight: 1,
                }));
            }
        }
        let alive = several.iter().filter(|way| {
            !way.flags
                .intersects(RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown)
        });
        for way in alive {
            if is_encapsulated(&way.attributes) {
                is_barred = true;
            } else if let Ok(gateway) = gateway_of(&way.attributes) {
                ways.push(RouteWay {
                    link: way.interface_index,
                    gateway,
                    weight: u16::from(way.hops) + 1,
                });
            }
        }
        if ways.is_empty() {
            // Without this route a shorter prefix would have its packets.
            if !is_barred {
                return None;
            }
            kind = RouteKind::Unreachable;
        }
    }
    Some(Route {
        to,
        kind,
        ways,
        rank: (table_rank, metric),
        mtu,
    })
}

#[cfg(test)]
mod tests;
