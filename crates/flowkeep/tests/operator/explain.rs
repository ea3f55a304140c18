//! `flow explain`: which way a packet would take, held against the flows that are there.

use crate::running::{PATIENCE, Running, text};
use serde_json::Value;
use std::time::Instant;

const PROFILE: &str = "flows = 60\nrate = { total = 2000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/28\"]\n\
                       source_ports = [1024, 5000]\ndestinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

fn config(profile: &str) -> String {
    format!(
        "clock = \"machine\"\nruntimes = 2\npolicy = \"round_robin\"\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"reflect:?mode=answer\"\ninput = \"reflect:?mode=answer\"\n\
         [[chain]]\nname = \"web\"\nfunctions = [\"firewall\", \"nat\"]\n\
         [chain.match]\nprotocol = \"udp\"\ndestination_port = 443\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n\
         [function.nat]\npool = [\"203.0.113.0/28\"]\n"
    )
}

fn explained(running: &Running, words: &[&str]) -> Value {
    let output = running.ask(&[&["flow", "explain"], words, &["--json"]].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_packet_is_explained_by_its_flow_its_group_and_the_policy() {
    let running = Running::start("explain", PROFILE, config);
    let began = Instant::now();
    let flows =
        || -> Value { serde_json::from_slice(&running.ask(&["flow", "list", "--json"]).stdout).unwrap() };
    while flows()["flows"].as_array().unwrap().len() < 60 {
        assert!(began.elapsed() < PATIENCE, "no flows");
    }
    // A flow may end between two commands: another one, then.
    let (flow, said) = loop {
        let flow = flows()["flows"][0].clone();
        let ends = ["source", "destination"].map(|end| flow[end].as_str().unwrap().to_owned());
        let said = explained(&running, &["udp", &ends[0], &ends[1]]);
        if !said["flow"].is_null() {
            break (flow, said);
        }
        assert!(began.elapsed() < PATIENCE, "no flow stays");
    };
    assert_eq!(
        (&said["by"], &said["side"]),
        (&"flow".into(), &"inside".into()),
        "{said:#}"
    );
    assert_eq!(said["side_by"], "flow");
    for field in ["runtime", "chain", "translated", "source", "destination"] {
        assert_eq!(said[field], flow[field], "{field}: {said:#}");
    }
    assert_eq!(said["rule"], "protocol udp; destination port 443");
    assert_eq!(said["functions"][0]["function"], "firewall");
    assert_eq!(said["functions"][1]["translates"], true, "{said:#}");
    let ends = ["source", "destination"].map(|end| flow[end].as_str().unwrap().to_owned());
    let words = text(
        &running
            .ask(&["flow", "explain", "udp", &ends[0], &ends[1]])
            .stdout,
    );
    assert!(
        words.contains(": the flow is there") && words.contains("nat (translates)"),
        "{words}"
    );

    // Another flow of that host would be in its group, so at the same runtime.
    let host = ends[0].split(':').next().unwrap();
    let beside = explained(&running, &["udp", &format!("{host}:9999"), "198.51.100.1:443"]);
    assert_eq!(
        (&beside["by"], &beside["runtime"]),
        (&"group".into(), &flow["runtime"]),
        "{beside:#}"
    );
    assert!(beside["flow"].is_null() && beside["dropped"].is_null());
    // A packet to the outside end of the translation has that group, too.
    let outside = flow["translated"]["source"].as_str().unwrap();
    let back = explained(&running, &["udp", "192.0.2.9:443", outside, "--side", "outside"]);
    assert_eq!(
        (&back["runtime"], &back["side"]),
        (&flow["runtime"], &"outside".into()),
        "{back:#}"
    );

    // Each move of the group is another epoch, and the runtime that gave it away is named.
    assert!(beside["moved"].is_null(), "{beside:#}");
    let mut before = (flow["runtime"].as_u64().unwrap(), 0);
    for _ in 0..2 {
        let to = (1 - before.0).to_string();
        let words = ["flow", "migrate", "--address", host, "--to", &to];
        let asked = running.ask(&words);
        assert!(asked.status.success(), "{}", text(&asked.stderr));
        let moved = explained(&running, &["udp", &format!("{host}:9999"), "198.51.100.1:443"]);
        let epoch = moved["moved"]["count"].as_u64().unwrap();
        assert!(
            moved["moved"]["from"] == before.0 && moved["runtime"] == 1 - before.0 && epoch > before.1,
            "{moved:#}"
        );
        before = (1 - before.0, epoch);
    }

    // Of a new host the policy would choose; asking chooses nothing, so the answer stays.
    let new = || explained(&running, &["udp", "10.9.9.9:1000", "198.51.100.1:443"]);
    let first = new();
    assert_eq!(first["by"], "policy", "{first:#}");
    assert_eq!(
        (&first["side_by"], &back["side_by"]),
        (&"assumed".into(), &"asked".into())
    );
    let words = ["flow", "explain", "udp", "10.9.9.9:1000", "198.51.100.1:443"];
    let words = text(&running.ask(&words).stdout);
    let side = "  side        inside: assumed; --side outside asks about the other\n";
    assert!(words.contains(side), "{words}");
    assert!(first["runtime"].as_u64().is_some_and(|runtime| runtime < 2));
    for _ in 0..5 {
        assert_eq!(new(), first);
    }
    // A packet that no chain's rule matches is dropped before any function.
    let none = explained(&running, &["tcp", "10.9.9.9:1000", "198.51.100.1:443"]);
    assert_eq!(
        (&none["dropped"], &none["chain"]),
        (&"no_chain".into(), &Value::Null),
        "{none:#}"
    );
    let words = running.ask(&["flow", "explain", "tcp", "10.9.9.9:1000", "[2001:db8::1]:443"]);
    assert_eq!(words.status.code(), Some(2), "{}", text(&words.stderr));
}

/// Where a port tells sides by addresses, the address says the side.
#[test]
fn a_side_is_told_by_the_address_where_a_port_does() {
    let by_address =
        |profile: &str| config(profile).replacen("side = \"inside\"", "side = \"by-address\"", 1);
    let running = Running::start("explain-side", PROFILE, by_address);
    for (source, side) in [("10.9.9.9:1000", "inside"), ("192.0.2.9:1000", "outside")] {
        let said = explained(&running, &["udp", source, "198.51.100.1:443"]);
        assert_eq!(
            (&said["side"], &said["side_by"]),
            (&side.into(), &"address".into()),
            "{said:#}"
        );
    }
}
