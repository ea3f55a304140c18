//! Flows that find another configuration, or state that is none.

use super::*;

#[test]
fn a_flow_finds_its_server_in_another_configuration() {
    let mut here = Bench::new(three(PolicyConfig::RoundRobin));
    let mut flows: Vec<Flow> = (0..3)
        .map(|n| {
            flow(
                &format!("198.51.100.7:{}", n + 1),
                "203.0.113.10:80",
                protocol::TCP,
            )
        })
        .collect();
    flows.iter_mut().for_each(|f| drop(here.open(f, SYN).unwrap()));

    let mut changed = three(PolicyConfig::RoundRobin);
    changed.services[0].backends.remove(0);
    changed.services[0].backends.reverse();
    let mut other = service(PolicyConfig::RoundRobin, &[("x", "10.1.0.9:1", 1)]);
    other.addresses = vec!["203.0.113.1".to_string()];
    changed.services.insert(0, other);
    let mut there = Bench::new(changed);
    for (flow, server) in flows
        .iter_mut()
        .zip([None, Some("10.1.0.2:8080"), Some("10.1.0.3:80")])
    {
        here.depart(flow, Departure::Migrated);
        let mut state = flow.state;
        let keep = Bench::new(there_config())
            .balancer
            .configured(&mut state, Generation(1));
        there.arrive(flow, Arrival::Migrated);
        match server {
            Some(server) => {
                assert_eq!(there.server(flow), end(server));
                assert_eq!(keep, Keep::Keep);
                assert_eq!(ends_of_sound(&there.open(flow, ACK).unwrap()).1, end(server));
            }
            None => {
                assert_eq!(keep, Keep::End);
                assert!(!flow.state.is_served());
                let stray = datagram(end("10.1.0.1:8080"), flow.client, protocol::TCP, ACK);
                assert_eq!(there.run(flow, Direction::Reply, &stray), Err("backend_gone"));
                assert!(there.ended);
            }
        }
    }
    assert_eq!(here.connections(), [0; 3]);
    assert_eq!(there.connections(), [0, 1, 1]);

    fn there_config() -> LoadBalancerConfig {
        let mut changed = three(PolicyConfig::RoundRobin);
        changed.services[0].backends.remove(0);
        changed
    }
}

#[test]
fn hostile_state_does_no_harm() {
    let mut bench = Bench::new(three(PolicyConfig::RoundRobin));
    for (backend, frontend) in [(9, 0), (0, 9), (u16::MAX, u16::MAX), (1, 0)] {
        let mut flow = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
        flow.state = Balanced {
            identity: 1,
            backend,
            frontend,
            port: 80,
            phase: Phase::Established,
            fins: 255,
        };
        let mut unchecked = flow.clone();
        bench.arrive(&mut flow, Arrival::Recovered);
        assert_eq!(flow.state, Balanced::default());
        // And even where nobody asked for a check, a bad index is a drop or a translation.
        let _ = bench.open(&mut unchecked, ACK);
        let frame = datagram(end("10.1.0.1:8080"), unchecked.client, protocol::TCP, ACK);
        let _ = bench.run(&mut unchecked, Direction::Reply, &frame);
    }
    assert_eq!(bench.connections(), [0; 3]);
}
