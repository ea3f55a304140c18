//! Flows have the packets, bytes, sizes, rates and addresses asked for, and a run its end.

use super::*;

/// Packets and bytes of each flow whose end the run has seen, by order of beginning.
fn flow_sizes(profile: &Profile) -> Vec<(u64, u64)> {
    let mut flows: BTreeMap<(FlowKey, u64), (u64, u64)> = BTreeMap::new();
    let mut lives: HashMap<FlowKey, u64> = HashMap::new();
    for packet in seen(profile).iter().filter(|s| s.side == Side::Inside) {
        let life = lives.entry(packet.key).or_insert(0);
        *life += u64::from(packet.tcp.is_some_and(|t| t.0 == SYN));
        let flow = flows.entry((packet.key, *life)).or_default();
        flow.0 += 1;
        flow.1 += packet.ip_length;
    }
    flows.into_values().collect()
}

#[test]
fn flows_have_the_packets_and_bytes_asked_for() {
    for tcp in [1.0, 0.0] {
        for packets in [1, 2, 3, 10] {
            let life = Life::Packets(Distribution::Fixed(packets as f64));
            // 100 flows, 20 lives each, all of one length: so the run ends between lives.
            let profile = with_class(
                Profile {
                    flows: 100,
                    rate: Rate::Total(1e6),
                    popularity: Popularity::Turns,
                    ..limited(2000 * packets as u64)
                },
                Class {
                    tcp,
                    life,
                    ..Class::default()
                },
            );
            let sizes = flow_sizes(&profile);
            assert_eq!(sizes.len(), 2000);
            assert!(sizes.iter().all(|s| s.0 == packets as u64), "{packets} packets");
        }
        for bytes in [200, 1501, 100_000] {
            let class = Class {
                tcp,
                size: Size::Fixed(1518),
                life: Life::Bytes(Distribution::Fixed(bytes as f64)),
                ..Class::default()
            };
            let sizes = flow_sizes(&with_class(
                Profile {
                    flows: 1,
                    ..limited(3000)
                },
                class,
            ));
            let closing = if tcp == 1.0 { 40 } else { 0 };
            assert_eq!(sizes[0].1, bytes + closing);
            // The run may cut the last one short.
            let whole = sizes.iter().filter(|s| s.1 == bytes + closing).count();
            assert!(whole >= sizes.len() - 1, "{bytes} bytes");
        }
    }
}

#[test]
fn short_and_long_flows_share_the_bandwidth() {
    let profile = Profile {
        seconds_max: Some(40.0),
        ..Profile::short_and_long(200)
    };
    let mut lives: BTreeMap<FlowKey, Vec<u64>> = BTreeMap::new();
    let packets = seen(&profile);
    // 200 flows at 10 packets a second for 40 s, always all of them.
    assert!((79_800..=80_200).contains(&packets.len()), "{}", packets.len());
    for packet in &packets {
        lives.entry(packet.key).or_default().push(packet.at);
    }
    let mut by_kind: BTreeMap<usize, usize> = BTreeMap::new();
    for times in lives.values() {
        assert!(times.windows(2).all(|w| w[1] - w[0] == 100_000_000));
        let (first, last) = (times[0], times[times.len() - 1]);
        // Neither the first flows, which began before, nor flows that the end cuts off count.
        if first > 100_000_000 && last < 39_800_000_000 {
            *by_kind.entry(times.len()).or_default() += 1;
        }
    }
    assert_eq!(by_kind.keys().copied().collect::<Vec<_>>(), [10, 100]);
    let long = 1_000 * 3 / 10;
    assert!(
        (3700..4000).contains(&by_kind[&10]),
        "100 places, a new flow each second: {by_kind:?}"
    );
    assert!((long - 60..long + 60).contains(&by_kind[&100]), "{by_kind:?}");
}

#[test]
fn imix_is_seven_four_one() {
    let class = Class {
        tcp: 0.0,
        size: Size::Imix,
        ..Class::default()
    };
    let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
    for made in run(&with_class(limited(24_000), class), BURST) {
        *counts.entry(made.frame.len() + 4).or_default() += 1.0;
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [64, 594, 1518]);
    for (size, expected) in [(64, 14_000.0), (594, 8000.0), (1518, 2000.0)] {
        // Four standard deviations.
        assert!(
            (counts[&size] - expected).abs() < 4.0 * f64::sqrt(expected),
            "{counts:?}"
        );
    }
}

#[test]
fn popularity_is_as_asked() {
    let count = |popularity| {
        let profile = Profile {
            flows: 100,
            rate: Rate::Total(1e6),
            popularity,
            ..limited(100_000)
        };
        let mut counts: HashMap<FlowKey, f64> = HashMap::new();
        for packet in seen(&profile) {
            *counts.entry(packet.key).or_default() += 1.0;
        }
        let mut counts: Vec<f64> = counts.into_values().collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        counts
    };
    let chi_square = |counts: &[f64], expected: &dyn Fn(usize) -> f64| -> f64 {
        counts
            .iter()
            .enumerate()
            .map(|(i, c)| (c - expected(i)).powi(2) / expected(i))
            .sum()
    };
    assert_eq!(count(Popularity::Turns), vec![1000.0; 100]);
    // 99 degrees of freedom: 149 is passed by one honest sample in a thousand; the seed is fixed.
    let uniform = count(Popularity::Uniform);
    assert!(chi_square(&uniform, &|_| 1000.0) < 149.0);
    let zipf = count(Popularity::Zipf(1.0));
    let harmonic: f64 = (1..=100).map(|r| 1.0 / f64::from(r)).sum();
    assert!(chi_square(&zipf, &|i| 100_000.0 / harmonic / (i + 1) as f64) < 149.0);
}

#[test]
fn rates_are_virtual_time() {
    let total = Profile {
        rate: Rate::Total(2e6),
        ..limited(1001)
    };
    let made = run(&total, BURST);
    assert_eq!(made[1000].at, 500_000);
    let poisson = Profile {
        spacing: Spacing::Poisson,
        ..limited(50_000)
    };
    for rate in [Rate::Total(1e4), Rate::PerFlow(10.0)] {
        let made = run(
            &Profile {
                rate,
                ..poisson.clone()
            },
            BURST,
        );
        let seconds = made[made.len() - 1].at as f64 / 1e9;
        assert!(
            (seconds - 5.0).abs() < 0.15,
            "1,000 flows, 10 a second each: {seconds}"
        );
    }
}

#[test]
fn the_clock_sets_the_pace_if_asked() {
    let profile = Profile {
        pace: Pace::Clock,
        flows: 10,
        rate: Rate::Total(1000.0),
        ..limited(30)
    };
    let mut generator = Generator::new(&profile).unwrap();
    let mut pool = pool(64);
    let mut take = |generator: &mut Generator, now| {
        let mut burst = Burst::new();
        generator.receive(now, &mut pool, &mut burst);
        let times: Vec<u64> = burst.iter().map(|p| p.timestamp()).collect();
        burst.drain(..).for_each(|p| pool.give(p));
        times
    };
    let start = 7_000_000_000;
    assert_eq!(take(&mut generator, start), [start]);
    assert_eq!(generator.next_at(), Some(start + 1_000_000));
    assert!(take(&mut generator, start + 999_999).is_empty());
    assert_eq!(take(&mut generator, start + 3_500_000).len(), 3);
    assert!(!generator.waits() && !generator.finished());
    assert_eq!(take(&mut generator, start + 1_000_000_000).len(), 26);
    assert!(generator.finished());
    assert_eq!(generator.next_at(), None);
}

#[test]
fn runs_end() {
    assert_eq!(run(&limited(17), 5).len(), 17);
    let timed = Profile {
        seconds_max: Some(0.5),
        ..Profile::default()
    };
    let made = run(&timed, BURST);
    assert_eq!(made.len(), 5000, "1,000 flows, 10 a second, half a second");
    assert!(made.iter().all(|m| m.at < 500_000_000));
    assert!(Generator::new(&limited(0)).unwrap().finished());
}

#[test]
fn a_small_buffer_refuses_long_frames() {
    let class = Class {
        tcp: 0.0,
        size: Size::Fixed(1518),
        ..Class::default()
    };
    let mut generator = Generator::new(&with_class(limited(10), class)).unwrap();
    let mut pool = Pool::new(Region::heap(Pool::region_length(4, 256)), 4, 256, 0);
    let mut burst = Burst::new();
    generator.receive(0, &mut pool, &mut burst);
    assert!(burst.is_empty() && generator.finished());
    assert_eq!(generator.counters().refused_packets, 10);
    assert_eq!(pool.free(), 4);
}

#[test]
fn tuples_differ_and_keep_to_their_prefixes() {
    let profile = Profile {
        sources: vec!["10.0.0.0/29".into(), "10.9.0.4/31".into()],
        source_ports: (1000, 1009),
        destinations: vec!["192.0.2.1".into(), "192.0.2.8/30".into()],
        destination_ports: vec![80, 443],
        ..Profile::default()
    };
    let mut tuples = Tuples::new(&profile, 4).unwrap().unwrap();
    let (mut pairs, mut all) = (BTreeSet::new(), BTreeSet::new());
    // 6 + 2 addresses, 10 ports; 1 + 2 addresses, 2 ports.
    for n in 0..80 * 6 {
        let tuple = tuples.next();
        let source = Endpoint::new(tuples.source(&tuple), tuple.source_port);
        let destination = Endpoint::new(tuples.destination(&tuple), tuple.destination_port);
        let inside = |texts: &[String]| {
            texts
                .iter()
                .any(|t| t.parse::<wire::Prefix>().unwrap().contains(source.addr))
        };
        assert!(inside(&profile.sources), "{source}");
        assert!((1000..1010).contains(&source.port));
        if n < 80 {
            assert!(pairs.insert(source), "a pair comes again when all have been used");
        }
        assert!(all.insert((source, destination)), "{n}");
    }
    assert_eq!(all.iter().map(|t| t.1).collect::<BTreeSet<_>>().len(), 6);
    assert!(Tuples::new(&profile, 6).unwrap().is_none());
}
