//! Settings: readings, refusals, and their worth where the established path must cost nothing.

extern crate std;

use super::frames::{ends, udp};
use super::rig::{Rig, pool_of, worker};
use crate::nat::config::parse_duration;
use crate::nat::{Config, Filtering, Log, MappingBehavior, Nat, StaticMapping, StaticProtocol, Timeouts};
use core::time::Duration;
use nf::{ConfigError, Endpoint, NetworkFunction};
use std::string::ToString;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

fn refusal(config: Config) -> ConfigError {
    match Nat::new(&Arc::new(config), &worker(0, 1, 1000)) {
        Ok(_) => panic!("accepted"),
        Err(error) => error,
    }
}

#[test]
fn a_list_of_ports_is_answered_with_the_range_to_write() {
    for (list, range) in [
        ("[\"1024-2000\"]", "1024-2000"),
        ("[1024, 2000]", "1024-2000"),
        ("[\"3000-4000\", 2000]", "2000-4000"),
        ("[true]", "1024-65535"),
    ] {
        let read = toml::from_str::<Config>(&std::format!("ports = {list}"));
        let said = read.unwrap_err().to_string();
        assert!(said.contains(&std::format!("write \"{range}\"")), "{said}");
    }
}

#[test]
fn everything_can_be_written_in_toml() {
    let config: Config = toml::from_str(
        r#"
        pool = ["203.0.113.0/28", "198.51.100.1"]
        inside = ["10.0.0.0/8"]
        ports = "2048-65535"
        block_size = 512
        blocks_per_host = 4
        mapping = "address-and-port-dependent"
        filtering = "endpoint-independent"
        preserve_ports = false
        preserve_parity = false
        hairpinning = false
        static = [
            { inside = "10.0.0.5:80", outside = "203.0.113.1:80", protocol = "tcp" },
            { inside = "10.0.0.6", outside = "203.0.113.2" },
            { inside = "10.0.0.7", outside = "203.0.113.3", protocol = "gre" },
        ]
        answer_pings = true
        mss_clamp = 1360
        other_protocols = "pass"
        log = "blocks"
        timeouts = { udp = "2m30s", tcp_established = "3h" }
        "#,
    )
    .unwrap();
    assert_eq!(config.mapping, MappingBehavior::AddressAndPortDependent);
    assert_eq!(config.filtering, Filtering::EndpointIndependent);
    assert_eq!(
        (config.log, config.ports, config.block_size),
        (Log::Blocks, (2048, 65535), 512)
    );
    assert_eq!(config.timeouts.udp, Duration::from_secs(150));
    assert_eq!(config.timeouts.icmp_query, Duration::from_secs(60));
    assert_eq!(
        config
            .static_mappings
            .inside_of("203.0.113.1:80".parse().unwrap(), 6),
        Some("10.0.0.5:80".parse().unwrap())
    );
    let inside_of = |end: &str, protocol| {
        let end: Endpoint = end.parse().unwrap();
        config
            .static_mappings
            .inside_of(end, protocol)
            .map(|end| end.to_string())
    };
    assert_eq!(inside_of("203.0.113.2:99", 17).as_deref(), Some("10.0.0.6:99"));
    assert_eq!(inside_of("203.0.113.3:0", 47).as_deref(), Some("10.0.0.7:0"));
    assert_eq!(inside_of("203.0.113.3:99", 17), None);
    assert_eq!((config.answer_pings, config.mss_clamp), (true, Some(1360)));
    Nat::new(&Arc::new(config), &worker(0, 1, 1000)).unwrap();
}

#[test]
fn wrong_toml_is_refused_with_a_word_on_it() {
    let refused = |text: &str, word: &str| {
        let error = toml::from_str::<Config>(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    };
    refused("pols = []", "unknown field `pols`");
    refused("pool = [\"203.0.113.1/24\"]", "write 203.0.113.0/24");
    refused("pool = [\"elsewhere\"]", "`elsewhere`");
    refused("ports = \"1024\"", "`1024-65535`");
    refused("ports = [1024, 65535]", "write \"1024-65535\"");
    refused("timeouts = { udp = \"5 x\" }", "`2h4m`");
    refused("timeouts = { udp = \"300\" }", "write \"300s\"");
    refused("timeouts = { udp = 300 }", "write \"300s\"");
    refused("filtering = \"none\"", "address-and-port-dependent");
    refused(
        "static = [{ inside = \"10.0.0\", outside = \"203.0.113.1:80\", protocol = \"tcp\" }]",
        "`10.0.0`",
    );
}

#[test]
fn what_cannot_work_is_refused_at_its_place() {
    let base = || pool_of("203.0.113.0/30");
    let cases = [
        ("pool", Config::default()),
        ("pool", pool_of("10.0.0.0/8")),
        ("pool[0]", pool_of("2001:db8::/64")),
        ("pool[0]", pool_of("0.0.0.0/30")),
        ("pool[0]", pool_of("127.0.0.1")),
        ("pool[0]", pool_of("224.0.0.0/24")),
        ("pool[0]", pool_of("255.255.255.255")),
        (
            "pool[0]",
            Config {
                inside: vec!["10.0.0.0/8".parse().unwrap(), "203.0.113.1".parse().unwrap()],
                ..base()
            },
        ),
        (
            "pool[0]",
            Config {
                inside: vec!["203.0.112.0/20".parse().unwrap()],
                ..base()
            },
        ),
        (
            "pool[1]",
            Config {
                pool: vec!["203.0.113.0/30".parse().unwrap(), "203.0.113.2".parse().unwrap()],
                ..base()
            },
        ),
        (
            "inside[0]",
            Config {
                inside: vec!["fd00::/8".parse().unwrap()],
                ..base()
            },
        ),
        (
            "ports",
            Config {
                ports: (0, 100),
                ..base()
            },
        ),
        (
            "ports",
            Config {
                ports: (200, 100),
                ..base()
            },
        ),
        (
            "ports",
            Config {
                ports: (1025, 1300),
                ..base()
            },
        ),
        (
            "block_size",
            Config {
                block_size: 100,
                ..base()
            },
        ),
        (
            "block_size",
            Config {
                block_size: 0,
                ..base()
            },
        ),
        (
            "block_size",
            Config {
                block_size: 1,
                ..pool_of("203.0.112.0/22")
            },
        ),
        (
            "mss_clamp",
            Config {
                mss_clamp: Some(535),
                ..base()
            },
        ),
        (
            "static[0]",
            with_static("10.0.0.5", "203.0.113.1:80", StaticProtocol::Tcp),
        ),
        (
            "static[0]",
            with_static("10.0.0.5:80", "203.0.113.1", StaticProtocol::Tcp),
        ),
        (
            "static[0]",
            with_static("0.0.0.0", "203.0.113.1", StaticProtocol::Any),
        ),
        (
            "static[0].protocol",
            with_static("10.0.0.5:80", "203.0.113.1:80", StaticProtocol::Any),
        ),
        (
            "static[0].inside",
            with_static("fd00::5", "203.0.113.1", StaticProtocol::Any),
        ),
        (
            "static[0].inside",
            Config {
                inside: vec!["10.0.1.0/24".parse().unwrap()],
                ..with_static("10.0.0.5", "203.0.113.1", StaticProtocol::Any)
            },
        ),
        (
            "blocks_per_host",
            Config {
                blocks_per_host: 0,
                ..base()
            },
        ),
        (
            "blocks_per_host",
            Config {
                blocks_per_host: 25,
                ..base()
            },
        ),
        (
            "timeouts.udp",
            Config {
                timeouts: Timeouts {
                    udp: Duration::from_secs(119),
                    ..Timeouts::default()
                },
                ..base()
            },
        ),
        (
            "timeouts.tcp_established",
            Config {
                timeouts: Timeouts {
                    tcp_established: Duration::from_secs(7439),
                    ..Timeouts::default()
                },
                ..base()
            },
        ),
        (
            "timeouts.icmp_query",
            Config {
                timeouts: Timeouts {
                    icmp_query: Duration::from_secs(59),
                    ..Timeouts::default()
                },
                ..base()
            },
        ),
    ];
    for (at, config) in cases {
        let error = refusal(config);
        assert_eq!(error.at, at, "{error}");
        assert!(!error.problem.is_empty() && !error.remedy.is_empty());
    }
    let short = Timeouts {
        udp: Duration::from_secs(1),
        below_rfc: true,
        ..Timeouts::default()
    };
    Nat::new(
        &Arc::new(Config {
            timeouts: short,
            ..base()
        }),
        &worker(0, 1, 10),
    )
    .unwrap();
}

/// A setting of [`Timeouts`].
type Which = fn(&mut Timeouts) -> &mut Duration;

#[test]
fn timeouts_below_the_rfcs_are_refused() {
    let least: [(&str, Which, u64); 4] = [
        ("timeouts.udp", |t| &mut t.udp, 120),
        ("timeouts.tcp_established", |t| &mut t.tcp_established, 7440),
        ("timeouts.tcp_closing", |t| &mut t.tcp_closing, 240),
        ("timeouts.icmp_query", |t| &mut t.icmp_query, 60),
    ];
    for (at, which, seconds) in least {
        let with = |milliseconds: u64, below_rfc: bool| {
            let mut timeouts = Timeouts {
                below_rfc,
                ..Timeouts::default()
            };
            *which(&mut timeouts) = Duration::from_millis(milliseconds);
            Config {
                timeouts,
                ..pool_of("203.0.113.0/30")
            }
        };
        assert_eq!(refusal(with(1000 * seconds - 1, false)).at, at);
        assert_eq!(refusal(with(0, true)).at, at);
        for good in [with(1000 * seconds, false), with(1, true)] {
            Nat::new(&Arc::new(good), &worker(0, 1, 10)).unwrap();
        }
        assert!(*which(&mut Timeouts::default()) >= Duration::from_secs(seconds));
    }
    // Only half-open connections may end sooner (RFC 7857 2.1), and not by default.
    assert_eq!(Timeouts::default().tcp_opening, Duration::from_secs(240));
}

/// Ends written as in a file.
fn with_static(inside: &str, outside: &str, protocol: StaticProtocol) -> Config {
    let end = |text: &str| match text.parse::<nf::Addr>() {
        Ok(addr) => Endpoint::new(addr, 0),
        Err(_) => text.parse().unwrap(),
    };
    let mapping = StaticMapping {
        inside: end(inside),
        outside: end(outside),
        protocol,
    };
    Config {
        static_mappings: vec![mapping].into(),
        ..pool_of("203.0.113.0/30")
    }
}

fn port_80(inside: &str, outside: &str) -> StaticMapping {
    StaticMapping {
        inside: inside.parse().unwrap(),
        outside: outside.parse().unwrap(),
        protocol: StaticProtocol::Tcp,
    }
}

#[test]
fn static_mappings_are_one_to_one() {
    let with = |second| Config {
        static_mappings: vec![port_80("10.0.0.1:80", "203.0.113.1:80"), second].into(),
        ..pool_of("203.0.113.0/30")
    };
    assert_eq!(
        refusal(with(port_80("10.0.0.1:80", "203.0.113.2:80"))).at,
        "static[1].inside"
    );
    assert_eq!(
        refusal(with(port_80("10.0.0.2:80", "203.0.113.1:80"))).at,
        "static[1].outside"
    );
    assert_eq!(
        refusal(with(port_80("[2001:db8::1]:80", "203.0.113.1:81"))).at,
        "static[1].inside"
    );
    let good = with(port_80("10.0.0.2:80", "203.0.113.2:80"));
    let outside: Endpoint = "203.0.113.2:80".parse().unwrap();
    assert_eq!(
        Nat::owner_of(&good, outside, 6),
        Some("10.0.0.2:80".parse().unwrap())
    );
    assert_eq!(Nat::owner_of(&good, outside, 17), None);
    // The pool has the outside address already; another one is claimed beside it.
    let claimed = |config: &Config| -> Vec<std::string::String> {
        let claims = Nat::claims(config);
        assert!(claims.iter().all(|claim| claim.side == Some(nf::Side::Outside)));
        claims.iter().map(|claim| claim.addresses.to_string()).collect()
    };
    assert_eq!(claimed(&good), ["203.0.113.0/30"]);
    let beside = with(port_80("10.0.0.2:80", "198.51.100.7:80"));
    assert_eq!(claimed(&beside), ["203.0.113.0/30", "198.51.100.7/32"]);
}

#[test]
fn a_runtime_without_a_block_says_so_at_the_start() {
    let config = Arc::new(Config {
        block_size: 32768,
        ..pool_of("203.0.113.1/32")
    });
    assert!(Nat::new(&config, &worker(0, 2, 1000)).is_ok());
    let error = Nat::new(&config, &worker(1, 2, 1000)).err().unwrap();
    assert_eq!(
        (error.at.as_str(), error.problem.as_str()),
        ("pool", "runtime 1 of 2 has no port block")
    );
}

#[test]
fn durations_have_units() {
    assert_eq!(parse_duration("2h4m"), Some(Duration::from_secs(7440)));
    assert_eq!(
        parse_duration("1d 250ms"),
        Some(Duration::from_millis(86_400_250))
    );
    for wrong in [
        "",
        "5",
        "m",
        "5x",
        "-5s",
        "99999999999999999999s",
        "5s5",
        "18446744073709551615d",
    ] {
        assert_eq!(parse_duration(wrong), None, "{wrong}");
    }
}

#[test]
fn tables_never_outgrow_what_was_taken_at_the_start() {
    let mut rig = Rig::with(pool_of("203.0.113.0/29"), 1, 500).unwrap();
    let before = rig.nats[0].tables.borrow().capacities();
    for n in 0..2000u16 {
        let from = ([10, 0, (n % 40) as u8, 1], 1024 + n);
        let sent = rig.send_inside(&udp(from, ([198, 51, 100, (n % 250) as u8], n)));
        if n % 3 == 0 && rig.flow_count() > 100 {
            let id = *rig.actors.keys().next().unwrap();
            rig.expire(id);
        }
        drop(sent);
    }
    assert_eq!(rig.nats[0].tables.borrow().capacities(), before);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn the_established_path_touches_no_table() {
    let mut rig = Rig::new(pool_of("203.0.113.1/32"));
    let x = ([10, 0, 0, 1], 5000);
    let r = ([198, 51, 100, 7], 5353);
    let (outside, _) = ends(&rig.send_inside(&udp(x, r)).sent());
    // Of a host that was heard behind an answer.
    rig.send_outside(&udp(r, outside)).sent();
    rig.send_inside(&udp(x, r)).sent();
    // Borrowed for good.
    core::mem::forget(rig.nats[0].tables.borrow_mut());
    // A table being borrowed already, touching it would panic.
    assert_eq!(ends(&rig.send_inside(&udp(x, r)).sent()).0, outside);
    assert_eq!(ends(&rig.send_outside(&udp(r, outside)).sent()).1, x);
}

#[test]
fn the_schema_names_every_setting() {
    let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
    let mut named: Vec<&str> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .map(|k| k.as_str())
        .collect();
    named.sort_unstable();
    let expected = "answer_pings block_size blocks_per_host filtering hairpinning inside log mapping mss_clamp \
                    other_protocols pool ports preserve_parity preserve_ports refusals static timeouts";
    assert_eq!(named.join(" "), expected);
    assert_eq!(schema["additionalProperties"], false);
}
