//! The load balancer: a flow keeps its server, and each server's count is that of its flows.

use crate::captures::{Script, over_captures};
use flowkeep_functions::load_balancer::LoadBalancer;
use std::time::Duration;
use testkit::{Migration, Step, Way, answer, migration, tcp, udp, wait};

pub fn config(policy: &str) -> String {
    format!(
        r#"
[[services]]
name = "web"
addresses = ["198.51.100.1"]
ports = 80
protocol = "tcp"
policy = "{policy}"
table_size = 251
backends = [
    {{ name = "a", endpoint = "192.0.2.11:8080" }},
    {{ name = "b", endpoint = "192.0.2.12:8080" }},
    {{ name = "c", endpoint = "192.0.2.13:8080", weight = 2 }},
]
[[services]]
name = "dns"
addresses = ["198.51.100.1"]
ports = 53
protocol = "udp"
policy = "{policy}"
table_size = 251
idle_timeout = 30
backends = [
    {{ name = "a", endpoint = "192.0.2.11:53" }},
    {{ name = "b", endpoint = "192.0.2.12:53" }},
]
"#
    )
}

pub fn balancer(policy: &str) -> Migration {
    let config = testkit::config::<LoadBalancer>(&config(policy));
    migration()
        .function::<LoadBalancer>(config)
        .asking::<LoadBalancer>(&["backends"])
}

/// Clients come and go, in several rounds.
pub fn clients() -> Vec<Step> {
    let mut script = Vec::new();
    for round in 0..5u16 {
        for client in 0..8u16 {
            let web = tcp(
                &format!("203.0.113.{}:{}", 1 + client % 5, 40_000 + client),
                "198.51.100.1:80",
            );
            let web = web.from_outside();
            match round {
                0 => script.extend([web.syn(), answer().syn_ack()]),
                1 => script.extend([web.ack(), web.payload("GET /"), answer().payload("200")]),
                2 if client % 2 == 0 => script.extend([web.fin(), answer().fin(), web.ack()]),
                3 => script.extend([web.payload("more"), answer().unreachable("203.0.113.254")]),
                _ => script.push(web.syn()),
            }
            let query = udp(&format!("203.0.113.9:{}", 6000 + client), "198.51.100.1:53");
            script.extend([query.from_outside(), answer()]);
        }
        script.push(wait(Duration::from_secs(17)));
    }
    script
}

/// By hash: which server it is does not depend on what else this runtime has.
#[test]
fn flows_keep_their_servers() {
    let survived = balancer("maglev").check(clients());
    assert!(survived.moved() > 1000, "{}", survived.moved());
    assert_eq!(survived.counter("connections"), 16);
}

/// A flow that has come back is counted where it was: the next flow gets the server it would have
/// got.
#[test]
fn counts_come_back_with_their_flows() {
    for policy in ["least_connections", "round_robin"] {
        balancer(policy).ways([Way::ThereAndBack]).check(clients());
    }
}

/// Every client is answered, whichever server is chosen, and no server has a connection at the end.
#[test]
fn counts_are_of_the_flows_that_are_there() {
    for policy in ["least_connections", "round_robin"] {
        for way in Way::MOVES {
            let survived = balancer(policy).ways([way]).replay(clients());
            assert_eq!(survived.counter("connections"), 16);
            let [table] = survived.answers() else {
                panic!("one table")
            };
            let figures = |line: &str| {
                let mut figures = line.split_whitespace().rev();
                let mut next = || figures.next()?.parse::<u64>().ok();
                let opened = next()?;
                Some((next()?, opened))
            };
            let rows: Vec<(u64, u64)> = table.lines().filter_map(figures).collect();
            assert_eq!(rows.len(), 5, "{table}");
            assert!(rows.iter().all(|(connections, _)| *connections == 0), "{table}");
            let opened: u64 = rows.iter().map(|(_, opened)| opened).sum();
            assert_eq!(opened, 16, "{table}");
        }
    }
}

/// A service at the first server of the capture.
fn of_capture(script: &Script) -> String {
    config("maglev").replace(
        "198.51.100.1",
        &script
            .first_server
            .map_or_else(|| "198.51.100.1".into(), |server| server.to_string()),
    )
}

#[test]
fn captures_are_balanced_alike() {
    over_captures(2, |script| {
        let config = of_capture(script).replace("ports = 80", "ports = \"1-65535\"");
        let config = config.replace("ports = 53", "ports = \"1-65535\"");
        let config = config.replace(":8080", "").replace(":53", "");
        migration()
            .function::<LoadBalancer>(testkit::config::<LoadBalancer>(&config))
            .asking::<LoadBalancer>(&["backends"])
            .flows_max(512)
    });
}
