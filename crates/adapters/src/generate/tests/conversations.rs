//! Packets are sound, and the two ends of a flow talk to each other.

use super::*;

#[test]
fn the_same_seed_gives_the_same_packets() {
    for profile in [
        mixed(),
        Profile {
            rate: Rate::Total(1e6),
            round_trip: 0.0,
            ..mixed()
        },
    ] {
        let made = run(&profile, BURST);
        assert_eq!(made.len(), 5000);
        assert!(
            made.windows(2).all(|w| w[0].at <= w[1].at),
            "time never goes back"
        );
        assert_eq!(run(&profile, 1), made, "bursts make no difference");
        let by_clock = Profile {
            pace: Pace::Clock,
            ..profile.clone()
        };
        assert_eq!(run(&by_clock, 7), made, "nor does the pace");
        let other = Profile {
            seed: 2,
            ..profile.clone()
        };
        assert_ne!(run(&other, BURST), made);
        // The two ends apart are both ends together.
        let [client, server] = [Emit::Client, Emit::Server].map(|emit| {
            run(
                &Profile {
                    emit,
                    ..profile.clone()
                },
                BURST,
            )
        });
        let of = |side| {
            made.iter()
                .filter(|m| m.side == side)
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(client, of(Side::Inside));
        assert_eq!(server, of(Side::Outside));
        assert!(client.len() > 1000 && server.len() > 1000);
    }
}

#[test]
fn every_packet_is_sound() {
    let mut kinds = BTreeSet::new();
    for made in run(&mixed(), BURST) {
        assert!((60..=1514).contains(&made.frame.len()));
        let headers = PacketHeaders::from_ethernet_slice(&made.frame).unwrap();
        let payload = headers.payload.slice();
        let (net, transport) = (headers.net.unwrap(), headers.transport.unwrap());
        let sums = match (&net, &transport) {
            (NetHeaders::Ipv4(ip, _), TransportHeader::Tcp(t)) => {
                (t.checksum, t.calc_checksum_ipv4(ip, payload))
            }
            (NetHeaders::Ipv6(ip, _), TransportHeader::Tcp(t)) => {
                (t.checksum, t.calc_checksum_ipv6(ip, payload))
            }
            (NetHeaders::Ipv4(ip, _), TransportHeader::Udp(u)) => {
                (u.checksum, u.calc_checksum_ipv4(ip, payload))
            }
            (NetHeaders::Ipv6(ip, _), TransportHeader::Udp(u)) => {
                (u.checksum, u.calc_checksum_ipv6(ip, payload))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(sums.0, sums.1.unwrap());
        if let NetHeaders::Ipv4(ip, _) = &net {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        }
        kinds.insert((
            matches!(net, NetHeaders::Ipv4(..)),
            matches!(transport, TransportHeader::Tcp(_)),
        ));
    }
    assert_eq!(kinds.len(), 4, "both versions, both protocols");
}

#[test]
fn a_flow_is_a_conversation() {
    let class = Class {
        life: Life::Packets(Distribution::Fixed(5.0)),
        ..Class::default()
    };
    let profile = Profile {
        flows: 1,
        replies: 1.0,
        round_trip: 0.02,
        ..limited(22)
    };
    let seen = seen(&with_class(profile, class));
    let flags: Vec<(Side, u8)> = seen.iter().map(|s| (s.side, s.tcp.unwrap().0)).collect();
    use Side::{Inside, Outside};
    let conversation = [
        (Inside, SYN),
        (Outside, SYN | ACK),
        (Inside, ACK | PSH),
        (Outside, ACK | PSH),
        (Inside, ACK | PSH),
        (Outside, ACK | PSH),
        (Inside, FIN | ACK),
        (Outside, FIN | ACK),
        (Inside, ACK),
    ];
    assert_eq!(flags[..9], conversation);
    assert_eq!(flags[9..18], conversation, "and the next flow in its place");
    assert_ne!(seen[0].key, seen[9].key);
    let gaps: Vec<u64> = seen.windows(2).take(8).map(|w| w[1].at - w[0].at).collect();
    assert_eq!(gaps, [20_000_000, 80_000_000].repeat(4));
}

/// Follows all TCP flows: numbers are without gaps, and no end acknowledges bytes that were not
/// sent.
#[derive(Default)]
struct Follower {
    next: HashMap<(FlowKey, bool), u32>,
    checked: usize,
}

impl Follower {
    fn follow(&mut self, seen: &Seen) {
        let Some((flags, sequence, acknowledgement)) = seen.tcp else {
            return;
        };
        let client = seen.side == Side::Inside;
        if flags & SYN == 0 {
            assert_eq!(
                self.next.get(&(seen.key, client)),
                Some(&sequence),
                "{} > {}",
                seen.from,
                seen.to
            );
        }
        let after = sequence
            .wrapping_add(seen.length)
            .wrapping_add(u32::from(flags & (SYN | FIN) != 0));
        self.next.insert((seen.key, client), after);
        if flags & ACK != 0 {
            let sent = self.next[&(seen.key, !client)];
            let behind = sent.wrapping_sub(acknowledgement);
            // The server, seen where it is, may not yet have the packets on their way; the client
            // always has.
            assert!(
                if client { behind == 0 } else { behind < 20_000 },
                "{behind} behind"
            );
            self.checked += 1;
        }
    }
}

#[test]
fn numbers_in_conversations_are_consistent() {
    let mut follower = Follower::default();
    seen(&mixed()).iter().for_each(|s| follower.follow(s));
    assert!(follower.checked > 2000);
}

#[test]
fn the_reflector_answers_what_the_client_expects() {
    let class = Class {
        life: Life::Packets(Distribution::Uniform(3.0, 20.0)),
        ..Class::default()
    };
    let mut generator = Generator::new(&with_class(
        Profile {
            ipv6_share: 0.5,
            ..limited(2000)
        },
        class,
    ))
    .unwrap();
    let mut reflector = ReflectPort::new(ReflectSettings {
        mode: Mode::Answer,
        queue: 64,
    });
    let mut pool = pool(64);
    let mut follower = Follower::default();
    let note = |follower: &mut Follower, packet: &Packet, side| {
        follower.follow(&see(&Made {
            at: packet.timestamp(),
            side,
            frame: packet.frame().to_vec(),
        }));
    };
    let mut answers = 0;
    while !generator.finished() {
        // The packets go one by one, so that each answer is back before the next packet is looked
        // at.
        let mut one = Burst::new();
        let mut rest: Vec<_> =
            std::iter::from_fn(|| (pool.free() > 1).then(|| pool.take()).flatten()).collect();
        generator.receive(0, &mut pool, &mut one);
        rest.drain(..).for_each(|b| pool.give(b));
        one.iter_mut().for_each(|p| wire::parse(p).unwrap());
        one.iter().for_each(|p| note(&mut follower, p, Side::Inside));
        reflector.transmit(0, &mut pool, &mut one);
        reflector.receive(0, &mut pool, &mut one);
        answers += one.len();
        one.iter().for_each(|p| note(&mut follower, p, Side::Outside));
        generator.transmit(0, &mut pool, &mut one);
    }
    assert!(answers > 1000, "{answers}");
    assert_eq!(generator.counters().sent_packets, answers as u64);
}
