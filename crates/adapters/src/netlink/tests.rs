//! Messages made by hand; a real kernel is in `tests/netlink.rs`.

use super::*;
use netlink_packet_route::route::{MplsLabel, RouteLwEnCapType, RouteLwTunnelEncap, RouteMplsIpTunnel};
use std::net::Ipv4Addr;

fn route(kind: RouteType, table: u8, attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = 24;
    message.header.kind = kind;
    message.header.table = table;
    let to = RouteAttribute::Destination(RouteAddress::Inet(Ipv4Addr::new(192, 0, 2, 0)));
    message.attributes = [vec![to], attributes].concat();
    message
}

#[test]
fn routes_that_packets_take() {
    let read = |message: &RouteMessage| route_of(message);
    let one = read(&route(
        RouteType::Unicast,
        254,
        vec![RouteAttribute::Oif(3), RouteAttribute::Priority(20)],
    ));
    let one = one.expect("a route");
    assert_eq!((one.to, one.rank), ("192.0.2.0/24".parse().unwrap(), (1, 20)));
    assert_eq!(one.ways.len(), 1);
    assert_eq!((one.ways[0].link, one.ways[0].gateway), (3, None));
    // Another table, by either way of saying it.
    assert_eq!(
        read(&route(RouteType::Unicast, 100, vec![RouteAttribute::Oif(3)])),
        None
    );
    let far = vec![RouteAttribute::Oif(3), RouteAttribute::Table(1000)];
    assert_eq!(read(&route(RouteType::Unicast, 252, far)), None);
    // A dead link, a cached route, one by source.
    let mut dead = route(RouteType::Unicast, 254, vec![RouteAttribute::Oif(3)]);
    dead.header.flags = RouteFlags::Linkdown;
    assert_eq!(read(&dead), None);
    let mut cached = route(RouteType::Unicast, 254, vec![RouteAttribute::Oif(3)]);
    cached.header.flags = RouteFlags::Cloned;
    assert_eq!(read(&cached), None);
    let local = read(&route(RouteType::Local, 255, Vec::new())).expect("a route");
    assert_eq!((local.kind, local.rank.0), (RouteKind::Local, 0));
}

fn encapsulated(kind: RouteLwEnCapType) -> Vec<RouteAttribute> {
    let label = MplsLabel {
        label: 100,
        traffic_class: 0,
        bottom_of_stack: true,
        ttl: 0,
    };
    let mpls = RouteLwTunnelEncap::Mpls(RouteMplsIpTunnel::Destination(vec![label]));
    vec![RouteAttribute::EncapType(kind), RouteAttribute::Encap(vec![mpls])]
}

/// Sent plain, a packet of a VPN would be another customer's, or the provider's own.
#[test]
fn a_way_with_encapsulation_is_none() {
    let gateway = |last| RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::new(10, 0, 0, last)));
    for kind in [
        RouteLwEnCapType::Mpls,
        RouteLwEnCapType::Ip,
        RouteLwEnCapType::Seg6,
        RouteLwEnCapType::Other(99),
    ] {
        let mut attributes = vec![RouteAttribute::Oif(3), gateway(1), RouteAttribute::Priority(20)];
        attributes.extend(encapsulated(kind));
        let found = route_of(&route(RouteType::Unicast, 254, attributes)).expect("it hides shorter ones");
        assert_eq!((found.kind, found.ways.len()), (RouteKind::Unreachable, 0));
        assert_eq!((found.to, found.rank), ("192.0.2.0/24".parse().unwrap(), (1, 20)));
    }
    let way = |link, more: Vec<RouteAttribute>| {
        let mut way = RouteNextHop::default();
        way.interface_index = link;
        way.attributes = [vec![gateway(link as u8)], more].concat();
        way
    };
    let read = |ways| {
        let message = route(RouteType::Unicast, 254, vec![RouteAttribute::MultiPath(ways)]);
        route_of(&message).map(|route| (route.kind, route.ways.iter().map(|way| way.link).collect()))
    };
    let hidden = || encapsulated(RouteLwEnCapType::Mpls);
    assert_eq!(
        read(vec![way(3, hidden()), way(4, Vec::new())]),
        Some((RouteKind::Unicast, vec![4]))
    );
    assert_eq!(
        read(vec![way(3, hidden()), way(4, hidden())]),
        Some((RouteKind::Unreachable, vec![]))
    );
    // The kernel takes no dead way, and looks for a shorter prefix then.
    let mut dead = way(3, hidden());
    dead.flags = RouteNextHopFlags::Dead;
    assert_eq!(read(vec![dead]), None);
}

#[test]
fn a_sub_interface_says_where_it_is_and_its_tag() {
    let mut message = LinkMessage::default();
    message.header.index = 9;
    message.attributes = vec![
        LinkAttribute::IfName("eth0.20".to_string()),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 9]),
        LinkAttribute::Mtu(1496),
        LinkAttribute::Link(3),
        LinkAttribute::LinkInfo(vec![LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(20)]))]),
    ];
    let link = link_of(&message);
    assert_eq!(
        (link.vlan, link.mtu, link.address),
        (Some((3, 20)), 1496, Some([2, 0, 0, 0, 0, 9]))
    );
    // One end of a pair says where its other end is, and has no tag.
    message.attributes.pop();
    assert_eq!(link_of(&message).vlan, None);
}

#[test]
fn a_host_receives_at_its_interfaces_and_at_those_on_top_of_them() {
    let link = |index: u32, last: u8, lower: Option<(InfoKind, u32)>| {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::Address(vec![2, 0, 0, 0, 0, last])];
        if let Some((kind, lower)) = lower {
            message.attributes.push(LinkAttribute::Link(lower));
            message
                .attributes
                .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
        }
        message
    };
    let mut elsewhere = link(7, 7, Some((InfoKind::MacVlan, 2)));
    elsewhere.attributes.push(LinkAttribute::LinkNetNsId(1));
    let mut without = link(8, 8, None);
    without.attributes.clear();
    let found = stations_of(&[
        link(2, 2, None),
        link(3, 2, Some((InfoKind::Vlan, 2))),
        link(4, 4, Some((InfoKind::Vlan, 2))),
        link(5, 5, Some((InfoKind::MacVlan, 4))),
        // The ends of a cable, each of which says that it is on the other.
        link(6, 6, Some((InfoKind::Veth, 2))),
        elsewhere,
        without,
        // No kernel has them on top of each other.
        link(10, 10, Some((InfoKind::MacVlan, 11))),
        link(11, 11, Some((InfoKind::MacVlan, 10))),
    ]);
    let at = |index: u32| -> Vec<u8> {
        let here = found.iter().filter(|(interface, _)| *interface == index);
        here.map(|(_, address)| address[5]).collect()
    };
    assert_eq!(at(2), [2, 4, 5]);
    assert_eq!((at(3), at(4), at(5)), (vec![2], vec![4, 5], vec![5]));
    assert_eq!((at(6), at(7), at(8)), (vec![6], vec![7], vec![]));
    assert_eq!((at(10), at(11)), (vec![10, 11], vec![10, 11]));
}

#[test]
fn neighbours_are_believed_by_their_state() {
    let mut network = Network::default();
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = 3;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(Ipv4Addr::new(10, 0, 0, 9))),
        NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 7]),
    ];
    for (state, is_there) in [
        (NeighbourState::Reachable, true),
        (NeighbourState::Incomplete, false),
        (NeighbourState::Stale, true),
        (NeighbourState::Probe, true),
        (NeighbourState::Failed, false),
        (NeighbourState::Permanent, true),
        (NeighbourState::Noarp, false),
    ] {
        message.header.state = state;
        take_neighbour(&mut network, &message, true);
        assert_eq!(network.neighbours.len(), usize::from(is_there), "{state:?}");
    }
    message.header.state = NeighbourState::Reachable;
    take_neighbour(&mut network, &message, true);
    take_neighbour(&mut network, &message, false);
    assert!(network.neighbours.is_empty());
}

/// Each flow's next packet would look for its way again.
#[test]
fn a_neighbour_that_goes_stale_or_is_confirmed_is_no_change() {
    let mut network = Network::default();
    let four = Ipv4Addr::new(10, 0, 0, 9);
    let mut take = |state, last| {
        let mut message = neighbour(AddressFamily::Inet, NeighbourAddress::Inet(four), last);
        message.header.state = state;
        let has_changed = take_neighbour(&mut network, &message, true);
        let is_stale = network.neighbours.values().next().map(|known| known.is_stale);
        (has_changed, is_stale)
    };
    for (state, last, expected) in [
        (NeighbourState::Reachable, 7, (true, Some(false))),
        (NeighbourState::Stale, 7, (false, Some(true))),
        (NeighbourState::Delay, 7, (false, Some(false))),
        (NeighbourState::Reachable, 7, (false, Some(false))),
        (NeighbourState::Stale, 8, (true, Some(true))),
        (NeighbourState::Failed, 8, (true, None)),
        (NeighbourState::Failed, 8, (false, None)),
    ] {
        assert_eq!(take(state, last), expected, "{state:?} at {last}");
    }
}

fn neighbour(family: AddressFamily, address: NeighbourAddress, last: u8) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = 3;
    message.header.state = NeighbourState::Reachable;
    message.attributes = vec![
        NeighbourAttribute::Destination(address),
        NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, last]),
    ];
    message
}

/// A host that solicits from `::ffff:10.0.0.9` makes the kernel keep an IPv6 neighbour of that
/// address.
#[test]
fn a_neighbour_of_ipv6_is_none_of_ipv4() {
    let mut network = Network::default();
    let four = Ipv4Addr::new(10, 0, 0, 9);
    let mut message = neighbour(AddressFamily::Inet, NeighbourAddress::Inet(four), 7);
    message.header.state = NeighbourState::Permanent;
    take_neighbour(&mut network, &message, true);
    let before = network.clone();
    assert_eq!(before.neighbours.len(), 1);
    let mut stranger = neighbour(
        AddressFamily::Inet6,
        NeighbourAddress::Inet6(four.to_ipv6_mapped()),
        66,
    );
    for state in [NeighbourState::Stale, NeighbourState::Failed] {
        stranger.header.state = state;
        for is_there in [true, false] {
            take_neighbour(&mut network, &stranger, is_there);
            assert_eq!(network, before, "{state:?} {is_there}");
        }
    }
    // Nor is what a bridge or a tunnel learns of link addresses behind it.
    let bridge = neighbour(AddressFamily::Bridge, NeighbourAddress::Inet(four), 66);
    take_neighbour(&mut network, &bridge, true);
    take_neighbour(&mut network, &bridge, false);
    assert_eq!(network, before);
}

/// By a router advertisement a host may have the kernel keep such a route, and such an address.
#[test]
fn a_route_and_an_address_of_ipv6_are_none_of_ipv4() {
    let mapped = Ipv4Addr::new(192, 0, 2, 0).to_ipv6_mapped();
    let mut message = route(RouteType::Unicast, 254, vec![RouteAttribute::Oif(3)]);
    message.header.address_family = AddressFamily::Inet6;
    for length in [24, 96, 120] {
        message.header.destination_prefix_length = length;
        message.attributes[0] = RouteAttribute::Destination(RouteAddress::Inet6(mapped));
        assert_eq!(route_of(&message), None, "a prefix of {length} bits");
    }
    // By way of a gateway that no host has.
    message.attributes[0] = RouteAttribute::Destination(RouteAddress::Inet6("2001:db8::".parse().unwrap()));
    let ways = |message: &RouteMessage| route_of(message).map(|route| route.ways.len());
    assert_eq!(ways(&message), Some(1));
    message
        .attributes
        .push(RouteAttribute::Gateway(RouteAddress::Inet6(mapped)));
    assert_eq!(ways(&message), None);
    let mut message = AddressMessage::default();
    message.attributes = vec![AddressAttribute::Address(IpAddr::V6(mapped))];
    assert_eq!(address_of(&message), None);
}
