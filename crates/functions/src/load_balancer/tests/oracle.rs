//! Random packets, ends and commands against a plain count.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Open(u16),
    Packet(u16, bool, u8),
    Expire(u16),
    Migrate(u16),
    Fail(u16),
    Health(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..64u16).prop_map(Step::Open),
        4 => (0..64u16, any::<bool>(), any::<u8>()).prop_map(|(n, d, f)| Step::Packet(n, d, f)),
        3 => (0..64u16).prop_map(Step::Expire),
        3 => (0..64u16).prop_map(Step::Migrate),
        1 => (0..64u16).prop_map(Step::Fail),
        2 => (0..3u8, 0..3u8).prop_map(|(b, h)| Step::Health(b, h)),
    ]
}

fn policies() -> impl Strategy<Value = PolicyConfig> {
    prop_oneof![
        Just(PolicyConfig::LeastConnections),
        Just(PolicyConfig::RoundRobin),
        Just(PolicyConfig::Maglev),
    ]
}

proptest! {

    /// Two runtimes and random lives of flows; the oracle is a plain list of where each flow is.
    #[test]
    fn counts_follow_the_flows(policy in policies(), drop_down in any::<bool>(), steps in proptest::collection::vec(step(), 1..120)) {
        let mut settings = three(policy);
        settings.services[0].table_size = 251;
        if drop_down {
            settings.services[0].when_down = WhenDownConfig::Drop;
        }
        let mut runtimes = [Bench::new(settings.clone()), Bench::new(settings)];
        let mut health = [Health::Up; 3];
        let mut flows: BTreeMap<u16, (usize, Flow)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Open(n) if !flows.contains_key(&n) => {
                    let at = usize::from(n % 2);
                    let mut flow = flow(&format!("198.51.100.7:{}", n + 1), "203.0.113.10:80", protocol::TCP);
                    match runtimes[at].open(&mut flow, SYN) {
                        Ok(_) => {
                            prop_assert_eq!(health[usize::from(flow.state.backend)], Health::Up);
                            flows.insert(n, (at, flow));
                        }
                        Err(reason) => {
                            prop_assert_eq!(reason, "no_backend");
                            prop_assert!(health.iter().all(|h| *h != Health::Up));
                            runtimes[at].depart(&flow, Departure::Expired);
                        }
                    }
                }
                Step::Packet(n, opening, flags) => {
                    let Some((at, flow)) = flows.get_mut(&n) else { continue };
                    let backend = flow.state.backend;
                    let result = if opening { runtimes[*at].open(flow, flags) } else { runtimes[*at].reply(flow, flags) };
                    let down = health[usize::from(backend)] == Health::Down;
                    prop_assert_eq!(flow.state.backend, backend, "a flow stays with its server");
                    if down && drop_down {
                        prop_assert_eq!(result.clone(), Err("backend_down"));
                    }
                    if result.is_err() {
                        prop_assert!(runtimes[*at].ended);
                        let (at, flow) = flows.remove(&n).unwrap();
                        runtimes[at].depart(&flow, Departure::Expired);
                    }
                }
                Step::Expire(n) => {
                    if let Some((at, flow)) = flows.remove(&n) {
                        runtimes[at].depart(&flow, Departure::Expired);
                    }
                }
                Step::Migrate(n) => {
                    if let Some((at, flow)) = flows.get_mut(&n) {
                        runtimes[*at].depart(flow, Departure::Migrated);
                        *at = 1 - *at;
                        runtimes[*at].arrive(flow, Arrival::Migrated);
                    }
                }
                Step::Fail(n) => {
                    // A runtime dies with its counts; its flows are recovered at the other.
                    let dead = usize::from(n % 2);
                    runtimes[dead].balancer.loads.iter().for_each(|l| l.connections.set(0));
                    for (at, flow) in flows.values_mut().filter(|(at, _)| *at == dead) {
                        *at = 1 - dead;
                        runtimes[1 - dead].arrive(flow, Arrival::Recovered);
                    }
                }
                Step::Health(backend, state) => {
                    let backend = usize::from(backend);
                    health[backend] = [Health::Up, Health::Down, Health::Draining][usize::from(state)];
                    for runtime in &runtimes {
                        runtime.command(&format!("backend {} {}", ["a", "b", "c"][backend], health[backend].name())).unwrap();
                    }
                }
                Step::Open(_) => {}
            }
            for (at, runtime) in runtimes.iter().enumerate() {
                let mut oracle = [0u32; 3];
                for (_, flow) in flows.values().filter(|(home, _)| *home == at) {
                    oracle[usize::from(flow.state.backend)] += 1;
                }
                prop_assert_eq!(&runtime.connections()[..], &oracle[..]);
            }
        }
    }

    /// Random bytes with a sound IP header, at the service's address: no panic.
    #[test]
    fn hostile_packets_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 8..80), kind in 0usize..4, reply in any::<bool>()) {
        let mut bench = Bench::new(three(PolicyConfig::Maglev));
        let mut frame = Vec::new();
        let protocol = [protocol::TCP, protocol::UDP, protocol::ICMP, 99][kind];
        PacketBuilder::ipv4([198, 51, 100, 7], [203, 0, 113, 10], 9)
            .write(&mut frame, etherparse::IpNumber(protocol), &bytes).unwrap();
        let mut packet = bench.pool.take().unwrap();
        prop_assert!(packet.set_frame(&frame, LinkType::Raw));
        let sound = wire::parse(&mut packet).is_ok();
        bench.pool.give(packet);
        if sound {
            let mut known = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
            bench.open(&mut known, SYN).unwrap();
            let direction = if reply { Direction::Reply } else { Direction::Opening };
            let _ = bench.run(&mut known, direction, &frame);
            let _ = bench.run(&mut flow("198.51.100.7:4000", "203.0.113.10:80", protocol), direction, &frame);
        }
    }
}
