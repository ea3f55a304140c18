//! Servers that drain, go down or are not there, and the commands that say so.

use super::*;

#[test]
fn draining_keeps_and_down_goes_by_its_setting() {
    for when_down in [WhenDownConfig::Keep, WhenDownConfig::Drop] {
        let mut settings = three(PolicyConfig::RoundRobin);
        settings.services[0].when_down = when_down;
        let mut bench = Bench::new(settings);
        let mut old = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
        bench.open(&mut old, SYN).unwrap();
        assert_eq!(old.state.backend, 0);
        assert_eq!(bench.command("backend a drain"), Ok("a is draining".to_string()));
        assert!(bench.open(&mut old, ACK).is_ok(), "draining keeps what it has");
        assert_eq!(bench.shares(100, false)[0], 0, "and takes nothing new");
        bench.command("backend web/a down").unwrap();
        assert_eq!(bench.shares(100, false)[0], 0);
        match when_down {
            WhenDownConfig::Keep => assert!(bench.open(&mut old, ACK).is_ok()),
            WhenDownConfig::Drop => {
                assert_eq!(bench.open(&mut old, ACK), Err("backend_down"));
                assert!(bench.ended, "so that the next packet finds another server");
                assert_eq!(bench.reply(&mut old, ACK), Err("backend_down"));
            }
        }
        bench.command("backend a up").unwrap();
        assert!(bench.open(&mut old, ACK).is_ok());
        assert_eq!(bench.shares(99, false), [33, 33, 33]);
    }
}

/// An operator's words on servers are such as another instance takes.
#[test]
fn an_instance_that_begins_later_hears_what_was_said() {
    let bench = Bench::new(three(PolicyConfig::RoundRobin));
    assert_eq!(bench.balancer.said(), Vec::<Vec<String>>::new());
    bench.command("backend a down").unwrap();
    bench.command("backend b drain").unwrap();
    bench.command("backend c down").unwrap();
    bench.command("backend c up").unwrap();
    let mut later = Bench::new(three(PolicyConfig::RoundRobin));
    for words in bench.balancer.said() {
        later.command(&words.join(" ")).unwrap();
    }
    assert_eq!(later.balancer.said(), bench.balancer.said());
    assert_eq!(later.shares(30, false), [0, 0, 30]);
}

#[test]
fn a_port_used_again_leaves_a_draining_server() {
    let mut bench = Bench::new(three(PolicyConfig::RoundRobin));
    let mut old = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
    bench.open(&mut old, SYN).unwrap();
    bench.reply(&mut old, RST).unwrap();
    bench.open(&mut old.clone(), SYN).unwrap();
    assert!(!bench.ended);
    bench.command("backend a drain").unwrap();
    assert_eq!(bench.open(&mut old, SYN), Err("backend_down"));
    assert!(bench.ended);
}

#[test]
fn without_servers_packets_are_dropped_and_nothing_is_counted() {
    for policy in [
        PolicyConfig::LeastConnections,
        PolicyConfig::RoundRobin,
        PolicyConfig::Maglev,
    ] {
        let mut bench = Bench::new(three(policy));
        for name in ["a", "b", "c"] {
            bench.command(&format!("backend {name} down")).unwrap();
        }
        let mut flow = flow("198.51.100.7:4000", "203.0.113.10:80", protocol::TCP);
        assert_eq!(bench.open(&mut flow, SYN), Err("no_backend"));
        bench.depart(&flow, Departure::Expired);
        assert_eq!(bench.connections(), [0; 3]);
        bench.command("backend b up").unwrap();
        bench.open(&mut flow, SYN).unwrap();
        assert_eq!(flow.state.backend, 1);
    }
}

#[test]
fn commands_answer() {
    let mut two = three(PolicyConfig::Maglev);
    let mut other = service(PolicyConfig::RoundRobin, &[("a", "10.1.0.1:443", 3)]);
    other.name = "tls".to_string();
    other.ports = PortsConfig::One(443);
    two.services.push(other);
    let bench = Bench::new(two);
    assert_eq!(
        bench.command("backend a drain"),
        Ok("a is draining in 2 services".to_string())
    );
    assert_eq!(
        bench.command("backend tls/a down"),
        Ok("tls/a is down".to_string())
    );
    let table = bench.command("backends").unwrap();
    assert_eq!(
        table,
        "service  backend  state     weight  connections  opened\n\
         web      a        draining       1            0       0\n\
         web      b        up             1            0       0\n\
         web      c        up             1            0       0\n\
         tls      a        down           3            0       0\n"
    );
    assert!(bench.command("backend d up").unwrap_err().contains("`d`"));
    assert!(bench.command("backend tls/b up").is_err());
    assert!(
        bench
            .command("backend a sideways")
            .unwrap_err()
            .contains("up, down or drain")
    );
    assert!(bench.command("what").unwrap_err().contains("backends"));
}
