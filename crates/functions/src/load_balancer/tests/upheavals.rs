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
        let keep = Bench::new(there_config()).with_cx(flow, Direction::Opening, |balancer, cx| {
            balancer.configured(&mut state, cx)
        });
        there.arrive(flow, Arrival::Migrated);
        match server {
            Some(server) => {
                assert_eq!(there.server(flow), end(server));
                assert_eq!(keep, Keep::Keep);
                assert_eq!(ends_of_sound(&there.open(flow, ACK).unwrap()).1, end(server));
            }
            None => {
                assert!(
                    matches!(keep, Keep::End(reason) if LoadBalancer::REASONS[reason.index()] == "backend_gone")
                );
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
        // Even without the arrival's check, a bad index is a drop or a translation.
        let _ = bench.open(&mut unchecked, ACK);
        let frame = datagram(end("10.1.0.1:8080"), unchecked.client, protocol::TCP, ACK);
        let _ = bench.run(&mut unchecked, Direction::Reply, &frame);
    }
    assert_eq!(bench.connections(), [0; 3]);
}

/// Another configuration in the place of the one in force: flows of servers that stay are counted
/// there, one by one, those of a server that is gone, or of a port that is, end, and an operator's
/// word on a server holds.
#[test]
fn a_change_keeps_flows_with_their_servers_and_the_counts_right() {
    let mut here = Bench::new(three(PolicyConfig::RoundRobin));
    let mut flows: Vec<Flow> = (0..6)
        .map(|n| {
            flow(
                &format!("198.51.100.7:{}", n + 1),
                "203.0.113.10:80",
                protocol::TCP,
            )
        })
        .collect();
    flows.iter_mut().for_each(|f| drop(here.open(f, SYN).unwrap()));
    assert_eq!(here.connections(), [2, 2, 2]);
    let (second, third) = (here.balancer.names[1].clone(), here.balancer.names[2].clone());
    here.balancer.set_health(&second, "down").unwrap();
    let mut changed = three(PolicyConfig::LeastConnections);
    changed.services[0].backends.remove(0);
    changed.services[0].backends[1].state = Health::Draining;
    let mut there = Bench::new(changed);
    // Asked beforehand: it must not show later.
    for flow in &flows {
        let mut copy = flow.state;
        let _ = there.with_cx(flow, Direction::Opening, |balancer, cx| {
            balancer.configured(&mut copy, cx)
        });
    }
    there.balancer.take_over(&here.balancer);
    assert_eq!(there.connections(), [0, 0]);
    let mut kept = 0;
    for flow in &mut flows {
        let mut state = flow.state;
        let was = here.server(flow);
        let keep = there.with_cx(flow, Direction::Opening, |balancer, cx| {
            balancer.configured(&mut state, cx)
        });
        flow.state = state;
        if keep == Keep::Keep {
            kept += 1;
            assert_eq!(there.server(flow), was);
        } else {
            assert!(!flow.state.is_served());
        }
    }
    assert_eq!((kept, there.connections()), (4, vec![2, 2]));
    let health = |name: &str| {
        let at = there
            .balancer
            .names
            .iter()
            .position(|other| other == name)
            .unwrap();
        there.balancer.loads[at].health.get()
    };
    assert_eq!(
        (health(&second), health(&third)),
        (Health::Down, Health::Draining)
    );
    for flow in &flows {
        there.depart(flow, Departure::Expired);
    }
    assert_eq!(there.connections(), [0, 0]);
}

/// A flow that passed for want of a service ends when there is one; a flow that still passes goes
/// on.
#[test]
fn a_flow_that_passed_ends_when_its_destination_becomes_a_service() {
    let mut here = Bench::new(three(PolicyConfig::RoundRobin));
    for (to, ends) in [("203.0.113.77:80", true), ("203.0.113.78:80", false)] {
        let mut passed = flow("198.51.100.7:9", to, protocol::TCP);
        here.open(&mut passed, SYN).unwrap();
        let mut changed = three(PolicyConfig::RoundRobin);
        changed.services[0].addresses.push("203.0.113.77".to_string());
        let mut there = Bench::new(changed);
        there.balancer.take_over(&here.balancer);
        let mut state = passed.state;
        let keep = there.with_cx(&passed, Direction::Opening, |balancer, cx| {
            balancer.configured(&mut state, cx)
        });
        assert_eq!(keep != Keep::Keep, ends, "{to}");
    }
}

/// A flow that comes from a copy by other settings is counted once, whether the instance has taken
/// over from another or not.
#[test]
fn a_recovered_flow_of_other_settings_is_counted_once() {
    for takes_over in [false, true] {
        let mut here = Bench::new(three(PolicyConfig::RoundRobin));
        let mut one = flow("198.51.100.7:1", "203.0.113.10:80", protocol::TCP);
        here.open(&mut one, SYN).unwrap();
        let mut there = Bench::new(three(PolicyConfig::RoundRobin));
        if takes_over {
            let before = Bench::new(three(PolicyConfig::RoundRobin));
            there.balancer.take_over(&before.balancer);
        }
        let mut state = one.state;
        let keep = there.with_cx(&one, Direction::Opening, |balancer, cx| {
            balancer.recovered_of_before(&mut state, cx)
        });
        assert_eq!((keep, there.connections()), (Keep::Keep, vec![1, 0, 0]));
        there.depart(&one, Departure::Expired);
        assert_eq!(there.connections(), [0, 0, 0]);
    }
}
