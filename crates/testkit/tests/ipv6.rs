//! IPv6 through the functions: extension headers, errors with the flow they quote both ways,
//! neighbour discovery.

use flowkeep_testkit::{self as testkit, Fate, Step, config, frame};
use functions::firewall::Firewall;
use functions::flow_monitor::FlowMonitor;
use functions::load_balancer::LoadBalancer;
use std::net::Ipv6Addr;
use wire::LinkType;
use wire::checksum::{fold, sum};

const HOST: &str = "fd00:1::5";
const SERVER: &str = "2001:db8::9";
const ROUTER: &str = "2001:db8:ffff::1";

/// Hop-by-hop options (router alert), destination options, an atomic fragment: each says which
/// header is next.
const EXTENSIONS: [(u8, [u8; 8]); 3] = [
    (0, [0, 0, 5, 2, 0, 0, 1, 0]),
    (60, [0, 0, 1, 4, 0, 0, 0, 0]),
    (44, [0, 0, 0, 0, 0, 0, 0, 7]),
];

/// An IPv6 packet: `transport` without its checksum, which stands at `sum_at`.
fn v6(from: &str, to: &str, protocol: u8, extended: bool, mut transport: Vec<u8>, sum_at: usize) -> Vec<u8> {
    let (from, to): (Ipv6Addr, Ipv6Addr) = (from.parse().unwrap(), to.parse().unwrap());
    let ends = [from.octets(), to.octets()].concat();
    let pseudo = sum(&ends, u32::from(protocol) + transport.len() as u32);
    let right = !fold(sum(&transport, pseudo));
    transport[sum_at..sum_at + 2].copy_from_slice(&right.to_be_bytes());
    let mut headers = Vec::new();
    let mut first = protocol;
    for (number, mut header) in EXTENSIONS.into_iter().rev().filter(|_| extended) {
        header[0] = first;
        first = number;
        headers.splice(0..0, header);
    }
    let length = (headers.len() + transport.len()) as u16;
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(&[first, 64]);
    packet.extend_from_slice(&ends);
    packet.extend_from_slice(&headers);
    packet.extend_from_slice(&transport);
    packet
}

fn udp(from: (&str, u16), to: (&str, u16), extended: bool) -> Vec<u8> {
    let mut datagram = [
        from.1.to_be_bytes(),
        to.1.to_be_bytes(),
        13_u16.to_be_bytes(),
        [0, 0],
    ]
    .concat();
    datagram.extend_from_slice(b"hello");
    v6(from.0, to.0, 17, extended, datagram, 6)
}

fn error(from: &str, to: &str, kind: (u8, u8), about: &[u8]) -> Vec<u8> {
    let mut message = vec![kind.0, kind.1, 0, 0, 0, 0, 5, 0];
    message.extend_from_slice(about);
    v6(from, to, 58, false, message, 2)
}

fn step(packet: Vec<u8>) -> Step {
    frame(packet).link(LinkType::Raw)
}

/// Too big, time exceeded, unreachable (port, address, no route).
const ERRORS: [(u8, u8); 5] = [(2, 0), (3, 0), (1, 4), (1, 3), (1, 0)];

fn firewall(rules: &str) -> <Firewall as nf::NetworkFunction>::Config {
    config::<Firewall>(rules)
}

#[test]
fn the_firewall_knows_a_flow_behind_extension_headers_and_its_errors() {
    let rules = "[[rules]]\nname = \"names\"\nfrom = \"inside\"\nprotocol = \"udp\"\ndestination_ports = [53]\naction = \"allow\"\n";
    for extended in [false, true] {
        let ask = udp((HOST, 4000), (SERVER, 53), extended);
        let reply = udp((SERVER, 53), (HOST, 4000), !extended);
        let mut steps = vec![step(ask.clone()), step(reply.clone()).from_outside()];
        let mut fates = vec![Fate::Forwarded, Fate::Forwarded];
        for kind in ERRORS {
            steps.push(step(error(ROUTER, HOST, kind, &ask)).from_outside());
            steps.push(step(error(HOST, SERVER, kind, &reply)));
            fates.extend([Fate::Forwarded, Fate::Forwarded]);
        }
        // About a packet that never was; to another port; not asked for.
        let other = udp((HOST, 4001), (SERVER, 53), extended);
        steps.push(step(error(ROUTER, HOST, (2, 0), &other)).from_outside());
        steps.push(step(udp((HOST, 4000), (SERVER, 54), extended)));
        steps.push(step(udp((SERVER, 53), (HOST, 4001), extended)).from_outside());
        fates.extend([
            Fate::Dropped("icmp_error_unrelated"),
            Fate::Dropped("not_allowed"),
            Fate::Dropped("not_allowed"),
        ]);
        testkit::run::<Firewall>(firewall(rules), steps).assert_fates(fates);
    }
}

/// Solicitations and advertisements, and a redirect, as they pass a bridge.
fn neighbour_discovery() -> Vec<Step> {
    let message = |kind: u8| {
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&"fe80::2".parse::<Ipv6Addr>().unwrap().octets());
        message.extend_from_slice(&[0; 16]);
        let to = if kind == 135 { "ff02::1:ff00:2" } else { "fe80::1" };
        v6("fe80::1", to, 58, false, message, 2)
    };
    (133..=137).map(|kind| step(message(kind))).collect()
}

#[test]
fn a_bridges_firewall_drops_neighbour_discovery_by_name_unless_a_rule_allows_it() {
    let without = testkit::run::<Firewall>(firewall(""), neighbour_discovery());
    without.assert_fates([Fate::Dropped("not_allowed"); 5]);
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/configuration.md"
    ))
    .unwrap();
    let (_, rule) = page
        .split_once("```toml rule\n")
        .expect("the rule of the documentation");
    let rule = rule
        .split("```")
        .next()
        .unwrap()
        .replace("function.firewall.", "");
    testkit::run::<Firewall>(firewall(&rule), neighbour_discovery()).assert_fates([Fate::Forwarded; 5]);
}

#[test]
fn the_load_balancer_translates_errors_with_the_packet_they_quote() {
    const SERVICE: &str = "2001:db8:5::1";
    const BACKEND: &str = "fd00:1::80";
    let settings = format!(
        "[[services]]\nname = \"dns\"\naddresses = [\"{SERVICE}\"]\nports = 53\nprotocol = \"udp\"\n\
         backends = [{{ name = \"a\", endpoint = \"[{BACKEND}]:5300\" }}]\n"
    );
    let client = ("2001:db8:7::7", 4000);
    for extended in [false, true] {
        let ask = udp(client, (SERVICE, 53), extended);
        // As the backend's side sees it, and its reply.
        let seen = udp(client, (BACKEND, 5300), extended);
        let reply = udp((BACKEND, 5300), client, false);
        let mut steps = vec![step(ask).from_outside(), step(reply)];
        steps.extend(ERRORS.map(|kind| step(error("fd00:1::1", client.0, kind, &seen))));
        let out = testkit::run::<LoadBalancer>(config::<LoadBalancer>(&settings), steps);
        out.assert_fates([Fate::Forwarded; 7]);
        assert_eq!(
            out.only_sent(0).destination(),
            format!("[{BACKEND}]:5300").parse().unwrap()
        );
        assert_eq!(
            out.only_sent(1).source(),
            format!("[{SERVICE}]:53").parse().unwrap()
        );
        for n in 2..7 {
            let frame = out.only_sent(n).frame();
            // The quoted packet is the client's.
            let quoted = &frame[48..];
            assert_eq!(quoted[24..40], SERVICE.parse::<Ipv6Addr>().unwrap().octets());
            let port = quoted.len() - 13 + 2;
            assert_eq!(quoted[port..port + 2], 53_u16.to_be_bytes());
            let pseudo = sum(&frame[8..40], 58 + (frame.len() - 40) as u32);
            assert_eq!(fold(sum(&frame[40..], pseudo)), 0xffff, "the error's checksum");
        }
    }
}

#[test]
fn the_monitor_counts_a_flow_behind_extension_headers_once() {
    let ask = |extended| step(udp((HOST, 4000), (SERVER, 53), extended));
    let reply = step(udp((SERVER, 53), (HOST, 4000), true)).from_outside();
    let out = testkit::run::<FlowMonitor>(config::<FlowMonitor>(""), [ask(false), ask(true), reply]);
    let records: Vec<_> = out.events().lines().collect();
    assert_eq!(records.len(), 1, "{records:?}");
    assert!(
        records[0].contains("\"orig_packets\":2") && records[0].contains("\"resp_packets\":1"),
        "{records:?}"
    );
}
