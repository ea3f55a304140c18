//! Packets are translated both ways, with what they quote and their fragments, and connections have
//! phases.

use super::*;

#[test]
fn both_directions_are_translated() {
    let mut bench = Bench::new(three(PolicyConfig::RoundRobin));
    for (n, server) in ["10.1.0.1:8080", "10.1.0.2:8080", "10.1.0.3:83"]
        .iter()
        .enumerate()
    {
        let mut flow = flow(
            &format!("198.51.100.7:{}", 4000 + n),
            "203.0.113.10:83",
            protocol::TCP,
        );
        let (client, service) = (flow.client, flow.service);
        let sent = bench.open(&mut flow, SYN).unwrap();
        assert_eq!(ends_of_sound(&sent), (client, end(server)));
        let back = bench.reply(&mut flow, SYN | ACK).unwrap();
        assert_eq!(ends_of_sound(&back), (service, client));
        let sent = bench.open(&mut flow, ACK).unwrap();
        assert_eq!(ends_of_sound(&sent), (client, end(server)));
        assert_eq!(flow.state.phase, Phase::Established);
    }
    assert_eq!(bench.connections(), [1, 1, 1]);
    assert_eq!(bench.counters[..2], [3, 0]);
}

#[test]
fn ipv6_and_udp_are_translated() {
    let mut six = service(PolicyConfig::LeastConnections, &[("a", "[2001:db8::b]:5353", 1)]);
    six.addresses = vec!["2001:db8::10".to_string(), "2001:db8::11".to_string()];
    six.protocol = ProtocolConfig::Udp;
    six.ports = PortsConfig::One(53);
    let mut bench = Bench::new(config(vec![six]));
    for address in ["[2001:db8::10]:53", "[2001:db8::11]:53"] {
        let mut flow = flow("[2001:db8:1::7]:4000", address, protocol::UDP);
        let sent = bench.open(&mut flow, 0).unwrap();
        assert_eq!(ends_of_sound(&sent), (flow.client, end("[2001:db8::b]:5353")));
        let back = bench.run(
            &mut flow.clone(),
            Direction::Reply,
            &datagram(end("[2001:db8::b]:5353"), flow.client, protocol::UDP, 0),
        );
        assert_eq!(ends_of_sound(&back.unwrap()), (end(address), flow.client));
    }
}

#[test]
fn what_is_no_services_passes_untouched() {
    let mut bench = Bench::new(three(PolicyConfig::LeastConnections));
    for (service, protocol) in [
        ("203.0.113.10:90", protocol::TCP),
        ("203.0.113.10:79", protocol::TCP),
        ("203.0.113.10:80", protocol::UDP),
        ("203.0.113.11:80", protocol::TCP),
        ("[2001:db8::1]:80", protocol::TCP),
    ] {
        let client = if service.starts_with('[') {
            "[2001:db8::2]:9"
        } else {
            "198.51.100.7:4000"
        };
        let mut flow = flow(client, service, protocol);
        for _ in 0..2 {
            let frame = datagram(flow.client, flow.service, protocol, ACK);
            assert_eq!(bench.run(&mut flow, Direction::Opening, &frame), Ok(frame));
        }
        assert_eq!(flow.state.phase, Phase::Passed);
        let frame = datagram(flow.service, flow.client, protocol, ACK);
        assert_eq!(bench.run(&mut flow, Direction::Reply, &frame), Ok(frame));
        assert_eq!(bench.balancer.timeout(&flow.state), Some(Duration::from_secs(60)));
        bench.depart(&flow, Departure::Expired);
    }
    assert_eq!(bench.connections(), [0; 3]);
    assert_eq!(bench.counters[..2], [0, 5]);
}

#[test]
fn tcp_phases() {
    // Client's packets as `>`, the server's as `<`.
    let script = [
        (
            ">S Opening",
            "<SA Answered",
            ">A Established",
            ">F Established",
            "<F Closing",
            ">A Closing",
        ),
        (
            ">S Opening",
            "<SA Answered",
            "<SA Answered",
            ">A Established",
            "<R Closing",
            ">S Opening",
        ),
        (
            ">A Opening",
            "<A Answered",
            ">A Established",
            ">S Established",
            "<F Established",
            ">FA Closing",
        ),
        (
            ">S Opening",
            "<RA Closing",
            "<A Closing",
            ">A Closing",
            ">SA Closing",
            ">S Opening",
        ),
    ];
    for (a, b, c, d, e, f) in script {
        let mut state = Balanced {
            phase: Phase::Opening,
            ..Balanced::default()
        };
        for step in [a, b, c, d, e, f] {
            let (packet, phase) = step.split_once(' ').unwrap();
            let flags = packet.bytes().skip(1).map(|f| match f {
                b'S' => SYN,
                b'A' => ACK,
                b'F' => FIN,
                _ => RST,
            });
            let direction = if packet.starts_with('>') {
                Direction::Opening
            } else {
                Direction::Reply
            };
            state.on_tcp(direction, flags.sum());
            assert_eq!(
                format!("{:?}", state.phase),
                phase,
                "{step} in {a} {b} {c} {d} {e} {f}"
            );
        }
    }
}

#[test]
fn timeouts_go_by_phase_or_by_setting() {
    let mut settings = three(PolicyConfig::LeastConnections);
    let mut bench = Bench::new(settings.clone());
    let mut flow = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
    bench.open(&mut flow, SYN).unwrap();
    assert_eq!(
        bench.balancer.timeout(&flow.state),
        Some(Duration::from_secs(240))
    );
    flow.state.phase = Phase::Established;
    assert_eq!(
        bench.balancer.timeout(&flow.state),
        Some(Duration::from_secs(7440))
    );
    for (setting, timeout) in [(0, None), (9, Some(Duration::from_secs(9)))] {
        settings.services[0].idle_timeout = Some(setting);
        assert_eq!(
            Bench::new(settings.clone()).balancer.timeout(&flow.state),
            timeout
        );
    }
}

/// An ICMP error from `from` to `to` that quotes `quoted`'s IP header and first eight bytes behind
/// it.
fn error_about(from: Addr, to: Addr, quoted: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    match (from.as_v4(), to.as_v4()) {
        (Some(from), Some(to)) => {
            let kind = etherparse::Icmpv4Type::DestinationUnreachable(
                etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 },
            );
            PacketBuilder::ipv4(from, to, 60)
                .icmpv4(kind)
                .write(&mut frame, &quoted[..28])
                .unwrap();
        }
        _ => {
            let kind = etherparse::Icmpv6Type::PacketTooBig { mtu: 1400 };
            PacketBuilder::ipv6(*from.octets(), *to.octets(), 60)
                .icmpv6(kind)
                .write(&mut frame, quoted)
                .unwrap();
        }
    }
    frame
}

#[test]
fn icmp_errors_are_translated_with_what_they_quote() {
    let mut six = service(PolicyConfig::RoundRobin, &[("a", "[2001:db8::b]:8080", 1)]);
    six.addresses = vec!["2001:db8::10".to_string()];
    let mut bench = Bench::new(config(vec![
        three(PolicyConfig::RoundRobin).services.remove(0),
        six,
    ]));
    for (client, service, router) in [
        ("198.51.100.7:4000", "203.0.113.10:80", "192.0.2.1"),
        ("[2001:db8:1::7]:4000", "[2001:db8::10]:80", "2001:db8:9::1"),
    ] {
        let mut flow = flow(client, service, protocol::TCP);
        let (client, service) = (flow.client, flow.service);
        let router: Addr = router.parse().unwrap();
        let original = datagram(client, service, protocol::TCP, SYN);
        let sent = bench.open(&mut flow, SYN).unwrap();
        let server = bench.server(&flow);

        // The server, or a router before it, complains about what it was sent: the client sees what
        // *it* sent.
        for (sender, seen) in [(server.addr, service.addr), (router, router)] {
            let error = error_about(sender, client.addr, &sent);
            let back = bench.run(&mut flow, Direction::Reply, &error).unwrap();
            assert_eq!(back, error_about(seen, client.addr, &original), "from {sender}");
        }

        // The client complains about a reply: the server sees what it sent itself.
        let answer = datagram(server, client, protocol::TCP, ACK);
        let translated = bench.reply(&mut flow, ACK).unwrap();
        let error = error_about(client.addr, service.addr, &translated);
        let there = bench.run(&mut flow, Direction::Opening, &error).unwrap();
        assert_eq!(there, error_about(client.addr, server.addr, &answer));
    }
    // Errors about unknown flows: a service's are dropped, others pass.
    let stranger = end("198.51.100.9:9");
    for (about, result) in [
        ("203.0.113.10:80", Some("unrelated_icmp_error")),
        ("203.0.113.77:80", None),
    ] {
        let quoted = datagram(end(about), stranger, protocol::TCP, ACK);
        let error = error_about(stranger.addr, end(about).addr, &quoted);
        let mut unknown = flow("198.51.100.9:9", about, protocol::TCP);
        assert_eq!(bench.run(&mut unknown, Direction::Opening, &error).err(), result);
    }
}

#[test]
fn fragments_follow_their_first() {
    let mut bench = Bench::new(three(PolicyConfig::RoundRobin));
    let mut known = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
    bench.open(&mut known, SYN).unwrap();
    let mut frame = datagram(known.client, known.service, protocol::TCP, ACK);
    // A later fragment, 32 bytes into its datagram.
    frame[7] = 4;
    let sum = etherparse::Ipv4Header::from_slice(&frame)
        .unwrap()
        .0
        .calc_header_checksum();
    frame[10..12].copy_from_slice(&sum.to_be_bytes());
    let body = frame[20..].to_vec();
    let out = bench.run(&mut known, Direction::Opening, &frame).unwrap();
    let header = etherparse::Ipv4Header::from_slice(&out).unwrap().0;
    assert_eq!(Addr::v4(header.destination), bench.server(&known).addr);
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!(out[20..], body, "a later fragment holds data, not ports");
    // Without a first fragment the ports are 0.
    let mut unknown = flow("198.51.100.7:0", "203.0.113.10:0", protocol::TCP);
    assert_eq!(
        bench.run(&mut unknown, Direction::Opening, &frame),
        Err("unmatched_fragment")
    );
}
