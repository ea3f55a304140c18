//! Tests of the generator: sound packets, true conversations, the asked-for quantities, and the published distributions.

use super::distribution::{Alias, Sampler, cdf_text, mixture};
use super::random::Random;
use super::tuples::Tuples;
use super::wheel::Wheel;
use super::*;
use crate::reflect::{Mode, ReflectPort, ReflectSettings};
use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use wire::memory::Region;
use wire::tcp::flags::{ACK, FIN, PSH, SYN};
use wire::{Endpoint, FlowKey, Packet};

/// A packet taken out of its buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Made {
    at: u64,
    side: Side,
    frame: Vec<u8>,
}

/// What the tests look at in a packet.
struct Seen {
    at: u64,
    side: Side,
    key: FlowKey,
    from: Endpoint,
    to: Endpoint,
    tcp: Option<(u8, u32, u32)>,
    length: u32,
    ip_length: u64,
}

fn pool(buffers: usize) -> Pool {
    Pool::new(Region::heap(Pool::region_length(buffers, 9216)), buffers, 9216, 0)
}

/// Runs a generator to its end with bursts of up to `burst_max`.
fn run(profile: &Profile, burst_max: usize) -> Vec<Made> {
    let mut generator = Generator::new(profile).unwrap();
    let mut pool = pool(burst_max);
    let mut made = Vec::new();
    let mut now = 0;
    while !generator.finished() {
        let mut burst = Burst::new();
        generator.receive(now, &mut pool, &mut burst);
        for packet in burst.drain(..) {
            made.push(Made {
                at: packet.timestamp(),
                side: packet.side(),
                frame: packet.frame().to_vec(),
            });
            pool.give(packet);
        }
        now = generator.next_at().unwrap_or(now);
    }
    assert_eq!(generator.counters().received_packets, made.len() as u64);
    assert_eq!(pool.free(), burst_max, "no buffer is lost");
    made
}

fn see(made: &Made) -> Seen {
    let mut pool = pool(1);
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(&made.frame, wire::LinkType::Ethernet));
    wire::parse(&mut packet).unwrap();
    let seen = Seen {
        at: made.at,
        side: made.side,
        key: FlowKey::of(&packet).unwrap().0,
        from: packet.source(),
        to: packet.destination(),
        tcp: packet
            .tcp()
            .map(|t| (t.flags(), t.sequence(), t.acknowledgement())),
        length: packet.tcp().map_or(0, |t| t.payload_length()),
        ip_length: packet.network().len() as u64,
    };
    pool.give(packet);
    seen
}

fn seen(profile: &Profile) -> Vec<Seen> {
    run(profile, BURST).iter().map(see).collect()
}

fn limited(packets: u64) -> Profile {
    Profile {
        packets_max: Some(packets),
        ..Profile::default()
    }
}

fn with_class(profile: Profile, class: Class) -> Profile {
    Profile {
        classes: vec![class],
        ..profile
    }
}

/// Everything at once.
fn mixed() -> Profile {
    Profile {
        flows: 50,
        packets_max: Some(5000),
        ipv6_share: 0.4,
        replies: 0.7,
        round_trip: 0.03,
        spacing: Spacing::Poisson,
        classes: vec![
            Class {
                tcp: 0.5,
                size: Size::Imix,
                life: Life::Packets(Distribution::Exponential(6.0)),
                ..Class::default()
            },
            Class {
                size: Size::Uniform(64, 1518),
                life: Life::Bytes(Distribution::Pareto {
                    shape: 1.2,
                    least: 500.0,
                }),
                rate: Some(25.0),
                ..Class::default()
            },
            Class {
                tcp: 0.8,
                life: Life::Seconds(Distribution::Uniform(0.1, 2.0)),
                ..Class::default()
            },
        ],
        ..Profile::default()
    }
}

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

/// Follows all TCP flows: numbers are without gaps, and nobody acknowledges what was not sent.
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
            // The server, seen where it is, may not yet have what is on its way; the client always has.
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
        // One by one, so that each answer is back before the next packet is looked at.
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
        // Neither the first ones, which began before, nor those that the end cuts off.
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

#[test]
fn alias_draws_in_proportion() {
    let weights = [0.0, 1.0, 5.0, 0.5, 3.5];
    let alias = Alias::new(&weights);
    let mut random = Random::new(3);
    let mut counts = [0.0; 5];
    (0..100_000).for_each(|_| counts[alias.draw(&mut random) as usize] += 1.0);
    for (count, weight) in counts.iter().zip(weights) {
        assert!(
            (count - weight * 10_000.0).abs() <= 4.0 * f64::sqrt(weight * 10_000.0),
            "{counts:?}"
        );
    }
}

/// Share of draws at or below each point, in percent.
fn shares(sampler: &Sampler, points: &[f64]) -> Vec<f64> {
    let mut random = Random::new(11);
    let mut counts = vec![0.0; points.len()];
    let draws = 400_000;
    for _ in 0..draws {
        let value = sampler.draw_whole(&mut random) as f64;
        for (count, point) in counts.iter_mut().zip(points) {
            *count += f64::from(u8::from(value <= *point));
        }
    }
    counts.iter().map(|c| 100.0 * c / f64::from(draws)).collect()
}

fn assert_within(shares: &[f64], expected: &[f64], points: f64, what: &str) {
    for (share, expected) in shares.iter().zip(expected) {
        assert!(
            (share - expected).abs() < points,
            "{what}: {share} instead of {expected}"
        );
    }
}

#[test]
fn distributions_have_their_quantiles() {
    let compile = |d: Distribution| d.compile("life").unwrap();
    let exponential = compile(Distribution::Exponential(1000.0));
    assert_within(
        &shares(&exponential, &[693.0, 2303.0]),
        &[50.0, 90.0],
        0.3,
        "exponential",
    );
    let pareto = compile(Distribution::Pareto {
        shape: 1.5,
        least: 1000.0,
    });
    assert_within(&shares(&pareto, &[1587.0, 4642.0]), &[50.0, 90.0], 0.3, "Pareto");
    let uniform = compile(Distribution::Uniform(1000.0, 3000.0));
    assert_within(
        &shares(&uniform, &[1500.0, 3000.0]),
        &[25.0, 100.0],
        0.3,
        "uniform",
    );
    let table = cdf_text(
        "life",
        "# value, percent\n0 0\n\n10000, 15\n20000\t20\n20000 60\n30000 100\n",
    )
    .unwrap();
    assert_within(
        &shares(&table, &[5000.0, 10_000.0, 19_999.0, 20_000.0, 25_000.0]),
        &[7.5, 15.0, 20.0, 60.0, 80.0],
        0.3,
        "CDF",
    );
    let mixed = r#"{"sum": 9, "mix": [[0.5, "uniform", [0, 2]], [0.5, "lognorm", [1.0, 0, 100.0]]]}"#;
    let mixed = mixture("life", mixed).unwrap();
    assert_within(
        &shares(&mixed, &[1.0, 2.0, 100.0]),
        &[25.0, 50.0, 75.0],
        0.3,
        "mixture",
    );
}

/// A folder of the shared data, or word that it is not there.
pub(super) fn shared_data(folder: &str) -> Option<PathBuf> {
    let data = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = data.join(folder);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("not run: needs the shared captures (FLOWKEEP_DATA)");
    None
}

#[test]
fn published_tables_are_reproduced() {
    let Some(folder) = shared_data("flow-size") else {
        return;
    };
    let mut tables = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let name = path.display().to_string();
        let sampler = Distribution::File(name.clone()).compile("life").unwrap();
        // The expectation is read apart from the code under test: the first two numbers of each line.
        let mut expected: BTreeMap<u64, f64> = BTreeMap::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let numbers: Vec<f64> = line.split_whitespace().map(|w| w.parse().unwrap()).collect();
            let _ = expected.insert(numbers[0] as u64, numbers[1]);
        }
        let whole = expected.values().copied().fold(0.0, f64::max);
        // A flow has at least one byte or packet, so what lies at 0 cannot be asked for.
        expected.remove(&0);
        let points: Vec<f64> = expected.keys().map(|v| *v as f64).collect();
        let percent: Vec<f64> = expected.values().map(|p| 100.0 * p / whole).collect();
        assert_within(&shares(&sampler, &points), &percent, 0.5, &name);
        tables += 1;
    }
    assert!(tables > 0);
}

/// The normal distribution (Abramowitz and Stegun 26.2.17, error below 1e-7).
fn normal_cdf(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - normal_cdf(-x);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * x);
    let poly = t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    1.0 - (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * poly
}

/// What the mixture in a file says at a point, in percent.
fn mixture_cdf(text: &str, x: f64) -> f64 {
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let (mut sum, mut whole) = (0.0, 0.0);
    for component in file["mix"].as_array().unwrap() {
        let number = |v: &serde_json::Value| v.as_f64().unwrap();
        let (weight, p) = (number(&component[0]), &component[2]);
        let below = match component[1].as_str().unwrap() {
            "uniform" => ((x - number(&p[0])) / number(&p[1])).clamp(0.0, 1.0),
            _ => normal_cdf(((x - number(&p[1])) / number(&p[2])).ln() / number(&p[0])),
        };
        sum += weight * below;
        whole += weight;
    }
    100.0 * sum / whole
}

#[test]
fn the_campus_network_is_reproduced() {
    let Some(folder) = shared_data("flow-size") else {
        return;
    };
    // README of the data: flows of at most so many packets or bytes, in percent, over all traffic.
    let published: [(&str, &[(f64, f64)]); 2] = [
        (
            "length",
            &[
                (1.0, 47.8326),
                (2.0, 65.3421),
                (4.0, 74.8933),
                (8.0, 84.1319),
                (10.0, 86.5086),
                (100.0, 97.3478),
                (1000.0, 99.4544),
                (10_000.0, 99.8922),
            ],
        ),
        (
            "size",
            &[
                (64.0, 4.3082),
                (128.0, 32.3376),
                (256.0, 56.8711),
                (512.0, 71.1101),
                (1024.0, 79.0397),
                (1500.0, 82.6085),
                (4096.0, 89.7285),
                (10_000.0, 94.0991),
                (100_000.0, 98.4030),
            ],
        ),
    ];
    for (quantity, points) in published {
        let at: Vec<f64> = points.iter().map(|p| p.0).collect();
        let mut all = vec![0.0; at.len()];
        for (protocol, share) in [("tcp", 53.85), ("udp", 43.09)] {
            let path = folder.join(format!("agh_2015/{protocol}_{quantity}_flows.json"));
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.display().to_string();
            let got = shares(&Distribution::File(name.clone()).compile("life").unwrap(), &at);
            let expected: Vec<f64> = at.iter().map(|x| mixture_cdf(&text, *x)).collect();
            assert_within(&got, &expected, 0.5, &name);
            for (sum, got) in all.iter_mut().zip(&got) {
                *sum += got * share / (53.85 + 43.09);
            }
        }
        // The study's mixtures are themselves up to 1.5 points away from its summary (which also counts the 3 % of flows
        // that are neither TCP nor UDP): nobody who draws from them can be nearer.
        let expected: Vec<f64> = points.iter().map(|p| p.1).collect();
        assert_within(&all, &expected, 1.6, quantity);
    }
}

#[test]
fn generated_flows_have_the_campus_lengths() {
    let Some(folder) = shared_data("flow-size") else {
        return;
    };
    let file = folder
        .join("agh_2015/udp_length_flows.json")
        .display()
        .to_string();
    let text = std::fs::read_to_string(&file).unwrap();
    let class = Class {
        tcp: 0.0,
        life: Life::Packets(Distribution::File(file)),
        ..Class::default()
    };
    let profile = Profile {
        flows: 400,
        shares_of: SharesOf::NewFlows,
        // Each flow's packets all at once in virtual time, so that long ones do not crowd the run's end.
        rate: Rate::PerFlow(1e6),
        ..limited(600_000)
    };
    let mut lengths: HashMap<FlowKey, u64> = HashMap::new();
    let packets = seen(&with_class(profile, class));
    let mut begun = Vec::new();
    for packet in &packets {
        let length = lengths.entry(packet.key).or_insert(0);
        if *length == 0 {
            begun.push(packet.key);
        }
        *length += 1;
    }
    // Flows from the run's first third have ended by its end, but for giants.
    begun.truncate(begun.len() / 3);
    assert!(begun.len() > 10_000, "{}", begun.len());
    for at in [1, 2, 4, 8, 100] {
        let got = begun.iter().filter(|k| lengths[k] <= at).count() as f64 / begun.len() as f64 * 100.0;
        let expected = mixture_cdf(&text, at as f64);
        assert!(
            (got - expected).abs() < 1.5,
            "at most {at} packets: {got} instead of {expected}"
        );
    }
}

#[test]
fn a_profile_is_read_from_toml() {
    let profile: Profile = toml::from_str(
        r#"
        flows = 10
        seed = 9
        rate = { total = 1e6 }
        popularity = { zipf = 1.1 }
        packets_max = 1000
        pace = "clock"
        shares_of = "new_flows"
        sources = ["10.0.0.0/24"]
        source_ports = [2000, 2999]
        [[classes]]
        share = 2
        tcp = 0.5
        size = "imix"
        life = "endless"
        [[classes]]
        size = { uniform = [64, 128] }
        life = { bytes = { pareto = { shape = 1.1, least = 100 } } }
        [[classes]]
        size = { table = [[64, 1], [1518, 2.5]] }
        life = { packets = { cdf = [[1, 0.5], [10, 1]] } }
        [[classes]]
        life = { seconds = { exponential = 2.5 } }
        "#,
    )
    .unwrap();
    assert_eq!(profile.popularity, Popularity::Zipf(1.1));
    assert_eq!(profile.classes.len(), 4);
    assert_eq!(run(&profile, BURST).len(), 1000);
    assert!(toml::from_str::<Profile>("flow = 10").is_err());
}

#[test]
fn a_profile_complains_where_it_hurts() {
    type Spoil = fn(&mut Profile);
    let cases: &[(&str, Spoil)] = &[
        ("flows", |p| p.flows = 0),
        ("rate.per_flow", |p| p.rate = Rate::PerFlow(f64::NAN)),
        ("rate.total", |p| p.rate = Rate::Total(0.0)),
        ("popularity.zipf", |p| p.popularity = Popularity::Zipf(-1.0)),
        ("ipv6_share", |p| p.ipv6_share = 1.5),
        ("replies", |p| p.replies = f64::INFINITY),
        ("round_trip", |p| p.round_trip = -1.0),
        ("round_trip", |p| (p.round_trip, p.rate) = (0.1, Rate::Total(1.0))),
        ("emit", |p| p.emit = Emit::Server),
        ("seconds_max", |p| p.seconds_max = Some(f64::NAN)),
        ("sources[1]", |p| p.sources[1] = "10.0.0.1/8".into()),
        ("sources", |p| {
            (p.sources, p.ipv6_share) = (vec!["10.0.0.0/8".into()], 0.1)
        }),
        ("source_ports", |p| p.source_ports = (2, 1)),
        ("destination_ports", |p| p.destination_ports.clear()),
        ("classes", |p| p.classes[0].share = 0.0),
        ("classes[0].share", |p| p.classes[0].share = -1.0),
        ("classes[0].tcp", |p| p.classes[0].tcp = 2.0),
        ("classes[0].rate", |p| p.classes[0].rate = Some(1e12)),
        ("classes[0].size", |p| p.classes[0].size = Size::Fixed(63)),
        ("classes[0].size", |p| p.classes[0].size = Size::Table(vec![])),
        ("classes[0].life.packets", |p| {
            p.classes[0].life = Life::Packets(Distribution::Fixed(0.0))
        }),
        ("classes[0].life.bytes", |p| {
            p.classes[0].life = Life::Bytes(Distribution::File("no-such-file".into()))
        }),
        ("classes[0].life.seconds", |p| {
            p.classes[0].life = Life::Seconds(Distribution::Cdf(vec![(1.0, 0.5)]))
        }),
    ];
    for (at, spoil) in cases {
        let mut profile = with_class(Profile::default(), Class::default());
        spoil(&mut profile);
        let error = Generator::new(&profile).err().map(|e| e.at);
        assert_eq!(error.as_deref(), Some(*at));
    }
    for text in ["1 x", "1", "1 2 3", "2 0.5\n1 1", "1 0.5\n2 0.9", "1 nan", ""] {
        assert!(cdf_text("life", text).is_err(), "{text}");
    }
    for text in [
        "",
        "{}",
        r#"{"mix": []}"#,
        r#"{"mix": [[1, "gamma", [1, 2, 3]]]}"#,
        r#"{"mix": [[-1, "uniform", [0, 1]]]}"#,
    ] {
        assert!(mixture("life", text).is_err(), "{text}");
    }
}

proptest! {
    /// Against a sorted map: random waits, from none to many laps.
    #[test]
    fn the_wheel_sorts(interval in 1.0f64..1000.0, longest in 1.0f64..1e6, waits in proptest::collection::vec((0u64..40, 1u64..1000), 1..400)) {
        let flows = 8;
        let mut wheel = Wheel::new(interval, longest);
        let mut oracle = BTreeSet::new();
        for flow in 0..flows {
            wheel.insert(flow, u64::from(flow) * 7 % 5);
            oracle.insert((u64::from(flow) * 7 % 5, flow));
        }
        for (bits, mantissa) in waits {
            let next = wheel.peek();
            prop_assert_eq!(next, oracle.pop_first());
            let (due, flow) = next.unwrap();
            wheel.take();
            let again = due + (mantissa << (bits / 2)) + 1;
            wheel.insert(flow, again);
            oracle.insert((again, flow));
        }
    }

    /// Hostile tables and profiles' texts: an error or a distribution, no panic.
    #[test]
    fn tables_do_no_harm(text in "[0-9 .,\\-einfa\n\t]{0,60}", seed in any::<u64>()) {
        if let Ok(sampler) = cdf_text("life", &text) {
            let drawn = sampler.draw_whole(&mut Random::new(seed));
            prop_assert!(drawn >= 1);
        }
    }
}
