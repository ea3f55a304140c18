//! Rules against going through them one by one.

use super::super::config::{Config, FromSide, Rule, Settings};
use super::super::rules::Opening;
use alloc::format;
use alloc::string::String;
use nf::{Endpoint, Prefix, Side};
use proptest::prelude::*;
use wire::protocol;

/// A rule's meaning, read straight off its text.
fn matches(settings: &Settings, rule: &Rule, opening: &Opening) -> bool {
    let ported =
        [protocol::TCP, protocol::UDP, protocol::UDPLITE, protocol::SCTP].contains(&opening.protocol);
    let side = match rule.from {
        None => true,
        Some(FromSide::Inside) => opening.side == Side::Inside,
        Some(FromSide::Outside) => opening.side == Side::Outside,
    };
    let protocol = rule.protocol.as_ref().is_none_or(|items| {
        items.0.iter().any(|name| match name.as_str() {
            "tcp" => opening.protocol == 6,
            "udp" => opening.protocol == 17,
            "icmp" => opening.protocol == 1,
            "icmpv6" => opening.protocol == 58,
            number => number.parse() == Ok(opening.protocol),
        })
    });
    let address = |items: &Option<super::super::config::Items>, end: &Endpoint| {
        items.as_ref().is_none_or(|items| {
            items.0.iter().any(|text| match text.strip_prefix('@') {
                None => text.parse::<Prefix>().unwrap().contains(end.addr),
                Some(name) => {
                    let set = &settings.sets[name];
                    let prefix = set.prefixes.iter().flat_map(|p| &p.0);
                    let endpoint = set.endpoints.iter().flat_map(|p| &p.0);
                    prefix
                        .map(|t| t.parse::<Prefix>().unwrap())
                        .any(|p| p.contains(end.addr))
                        || endpoint
                            .map(|t| t.parse::<Endpoint>().unwrap())
                            .any(|e| ported && e == *end)
                }
            })
        })
    };
    let port = |items: &Option<super::super::config::Items>, port: u16| {
        items.as_ref().is_none_or(|items| {
            ported
                && items.0.iter().any(|text| match text.strip_prefix('@') {
                    Some(name) => settings.sets[name]
                        .ports
                        .as_ref()
                        .unwrap()
                        .0
                        .iter()
                        .any(|t| in_range(t, port)),
                    None => in_range(text, port),
                })
        })
    };
    side && protocol
        && address(&rule.source, &opening.source)
        && address(&rule.destination, &opening.destination)
        && port(&rule.source_ports, opening.source.port)
        && port(&rule.destination_ports, opening.destination.port)
        && rule
            .icmp_type
            .as_ref()
            .is_none_or(|items| items.0.iter().any(|t| opening.icmp_type == t.parse().ok()))
        && rule
            .tcp_flags
            .as_ref()
            .is_none_or(|_| opening.tcp_flags.is_some_and(|f| f & 0x17 == 2))
}

fn in_range(text: &str, port: u16) -> bool {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    (from.parse::<u16>().unwrap()..=to.parse::<u16>().unwrap()).contains(&port)
}

const SETS: &str = r#"
[sets]
net = { prefixes = ["10.0.0.0/30", "2001:db8::/126", "10.0.0.8"] }
web = { ports = [3, "5-6"] }
hosts = { endpoints = ["10.0.0.1:3", "10.0.0.2:3", "[2001:db8::1]:5"] }
"#;

fn address_text() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("10.0.0.0/29"),
        Just("10.0.0.4/30"),
        Just("10.0.0.3"),
        Just("0.0.0.0/0"),
        Just("::/0"),
        Just("2001:db8::/127"),
        Just("@net"),
        Just("@hosts"),
        Just("255.255.255.255"),
        Just("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ]
}

fn port_text() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("1"),
        Just("0-4"),
        Just("4-65535"),
        Just("@web"),
        Just("65535")
    ]
}

fn list(key: &str, items: &[&str]) -> String {
    format!("{key} = {items:?}\n")
}

fn rule_text() -> impl Strategy<Value = String> {
    let some = |s| proptest::option::of(proptest::collection::vec(s, 1..3));
    (
        proptest::option::of(prop_oneof![Just("inside"), Just("outside")]),
        0usize..6,
        proptest::option::of(proptest::collection::vec(address_text(), 1..3)),
        proptest::option::of(proptest::collection::vec(address_text(), 1..3)),
        some(port_text()),
        some(port_text()),
        0u8..3,
    )
        .prop_map(|(from, protocol, source, destination, sport, dport, action)| {
            let mut text = String::from("[[rules]]\nname = \"r\"\n");
            let action = ["allow", "drop", "reject"][usize::from(action)];
            text += &format!("action = \"{action}\"\n");
            if let Some(from) = from {
                text += &format!("from = \"{from}\"\n");
            }
            let ports = protocol < 4;
            text += match protocol {
                0 => "",
                1 => "protocol = \"tcp\"\ntcp_flags = \"syn\"\n",
                2 => "protocol = [\"tcp\", \"udp\"]\n",
                3 => "protocol = \"udp\"\n",
                4 => "protocol = \"icmp\"\nicmp_type = [8, 0]\n",
                _ => "protocol = 50\n",
            };
            let lists = [
                ("source", source),
                ("destination", destination),
                ("source_ports", sport.filter(|_| ports)),
                ("destination_ports", dport.filter(|_| ports)),
            ];
            for (key, items) in lists {
                text += &items.map_or(String::new(), |items| list(key, &items));
            }
            text
        })
}

fn endpoint(v4: bool) -> impl Strategy<Value = Endpoint> {
    let addr = prop_oneof![8 => 0u8..12, 1 => Just(255u8)];
    let port = prop_oneof![8 => 0u16..8, 1 => Just(65535u16)];
    (addr, port).prop_map(move |(last, port)| {
        let text = match (v4, last) {
            (true, 255) => "255.255.255.255".into(),
            (true, last) => format!("10.0.0.{last}"),
            (false, 255) => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".into(),
            (false, last) => format!("2001:db8::{last:x}"),
        };
        Endpoint::new(text.parse().unwrap(), port)
    })
}

fn opening() -> impl Strategy<Value = Opening> {
    any::<bool>().prop_flat_map(|v4| {
        let protocol = prop_oneof![Just(6u8), Just(17), Just(1), Just(58), Just(50)];
        let flags = prop_oneof![Just(2u8), Just(16), Just(18), Just(0x42)];
        (
            any::<bool>(),
            protocol,
            endpoint(v4),
            endpoint(v4),
            prop_oneof![Just(8u8), Just(0), Just(13)],
            flags,
        )
            .prop_map(|(inside, protocol, source, destination, kind, flags)| Opening {
                side: if inside { Side::Inside } else { Side::Outside },
                protocol,
                source,
                destination,
                icmp_type: (protocol == 1 || protocol == 58).then_some(kind),
                tcp_flags: (protocol == 6).then_some(flags),
            })
    })
}

/// Whether a rule is not refused, as one between two families is.
fn may_match(rule: &str) -> bool {
    let config: Config = toml::from_str(&format!("{rule}{SETS}")).unwrap();
    match config.program() {
        Ok(_) => true,
        Err(error) => {
            assert!(error.problem.contains("IPv6 only"), "{error}");
            false
        }
    }
}

proptest! {

    #[test]
    fn the_compiled_rules_are_the_written_ones(
        rules in proptest::collection::vec(rule_text(), 0..90),
        openings in proptest::collection::vec(opening(), 1..60),
    ) {
        let names = rules.iter().enumerate();
        let rules = names.map(|(at, rule)| rule.replacen("\"r\"", &format!("\"r{at}\""), 1));
        let text = format!("{}{SETS}", rules.filter(|rule| may_match(rule)).collect::<String>());
        // Tables come last in TOML: the rules' sub-tables first is fine, the sets' behind them,
        // too.
        let config: Config = toml::from_str(&text).unwrap();
        let settings = config.settings();
        let program = config.program().unwrap();
        for opening in &openings {
            let expected = settings.rules.iter().position(|rule| matches(settings, rule, opening));
            prop_assert_eq!(program.find(opening), expected, "{:?}", opening);
        }
    }
}

#[test]
fn a_thousand_rules_find_theirs() {
    let rules: String = (0..1000u32)
        .map(|n| {
            let (a, b) = (n / 250, n % 250);
            format!(
                "[[rules]]\nname = \"{n}\"\naction = \"allow\"\nprotocol = \"tcp\"\nsource = \"10.{a}.{b}.0/24\"\ndestination_ports = {}\n",
                1000 + n
            )
        })
        .collect();
    let config: Config = toml::from_str(&rules).unwrap();
    let program = config.program().unwrap();
    for n in [0u32, 1, 63, 64, 499, 998, 999] {
        let opening = |port: u16| Opening {
            side: Side::Inside,
            protocol: 6,
            source: Endpoint::new(format!("10.{}.{}.77", n / 250, n % 250).parse().unwrap(), 9),
            destination: "192.0.2.1:1"
                .parse::<Endpoint>()
                .map(|e| Endpoint::new(e.addr, port))
                .unwrap(),
            icmp_type: None,
            tcp_flags: Some(2),
        };
        assert_eq!(program.find(&opening(1000 + n as u16)), Some(n as usize));
        assert_eq!(program.find(&opening(999)), None);
    }
}
