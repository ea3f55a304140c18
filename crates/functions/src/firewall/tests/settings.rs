//! Mistakes in a configuration are told with their place.

use super::super::config::{Config, Settings, Span};
use super::super::state::Phase;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

fn error(text: &str) -> String {
    let config: Config = toml::from_str(text).unwrap();
    let error = config.program().unwrap_err();
    format!("{error}")
}

fn rule(fields: &str) -> String {
    format!(
        "[[rules]]\nname = \"a\"\naction = \"allow\"\n\n[[rules]]\nname = \"b\"\naction = \"allow\"\n{fields}\n"
    )
}

#[test]
fn errors_point_at_the_setting() {
    let sets = "[sets]\nweb = { ports = [80] }\nlan = { prefixes = [\"10.0.0.0/8\"] }\n";
    for (fields, expected) in [
        (
            "source = \"10.0.0.1/8\"",
            "rules[1].source: `10.0.0.1/8`: bits are set",
        ),
        (
            "source = [\"10.0.0.0/8\", \"x\"]",
            "rules[1].source[1]: `x`: not an IPv4 or IPv6 address",
        ),
        ("source = []", "rules[1].source: the list is empty"),
        (
            "source = \"@missing\"",
            "rules[1].source: there is no set `missing`; the sets there are: lan",
        ),
        (
            "source_ports = \"@missing\"",
            "rules[1].source_ports: there is no set `missing`; the sets there are: web",
        ),
        (
            "source = \"@web\"",
            "rules[1].source: `@web` is a set of ports; name it in `source_ports`",
        ),
        (
            "source_ports = \"@lan\"",
            "rules[1].source_ports: `@lan` is no set of ports",
        ),
        (
            "destination_ports = [80, 70000]",
            "rules[1].destination_ports[1]: `70000` is no port",
        ),
        (
            "destination_ports = \"9-3\"",
            "rules[1].destination_ports: the range 9-3 runs backward; write \"3-9\"",
        ),
        ("protocol = \"tpc\"", "rules[1].protocol: `tpc` is no protocol"),
        (
            "protocol = [\"tcp\", \"icmp\"]\ndestination_ports = 80",
            "rules[1].protocol[1]: the rule names ports, but `icmp` has none",
        ),
        (
            "icmp_type = 8",
            "rules[1].icmp_type: ICMP and ICMPv6 number their types differently",
        ),
        (
            "protocol = \"icmp\"\nicmp_type = \"echo\"",
            "rules[1].icmp_type: `echo` is no ICMP type",
        ),
        (
            "protocol = \"udp\"\ntcp_flags = \"syn\"",
            "rules[1].tcp_flags: the rule's protocol is not TCP",
        ),
        ("tcp_flags = \"sin\"", "rules[1].tcp_flags: `sin` is no TCP flag"),
        (
            "tcp_flags = \"syn/ack\"",
            "rules[1].tcp_flags: `syn/ack` asks for a flag that it does not look at",
        ),
        (
            "source = \"10.0.0.0/8\"\ndestination = [\"2001:db8::/32\", \"::1\"]",
            "rules[1].destination: one of `source` and `destination` has IPv4 addresses only",
        ),
    ] {
        let found = error(&format!("{}{sets}", rule(fields)));
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert!(error("[sets]\na = {}\n").starts_with("sets.a: a set has one kind of members"));
    let found = error("[sets]\na = { endpoints = [\"10.0.0.1\"] }\n");
    assert!(
        found.starts_with("sets.a.endpoints: `10.0.0.1` is no address with a port"),
        "{found}"
    );
    assert!(error("[[rules]]\nname = \" \"\naction = \"drop\"").starts_with("rules[0].name"));
}

#[test]
fn addresses_of_both_families_meet_others_of_theirs() {
    for fields in [
        "source = \"10.0.0.0/8\"\ndestination = [\"2001:db8::/32\", \"192.0.2.1\"]",
        "source = [\"::/0\", \"10.0.0.0/8\"]\ndestination = \"2001:db8::/32\"",
        "destination = \"2001:db8::/32\"",
    ] {
        let config: Config = toml::from_str(&rule(fields)).unwrap();
        assert!(config.program().is_ok(), "{fields}");
    }
}

#[test]
fn two_rules_have_two_names() {
    let found = error(&format!("{}{}", rule(""), rule("")));
    assert!(
        found.starts_with("rules[2].name: rules[0] has this name, too"),
        "{found}"
    );
}

#[test]
fn unknown_settings_are_refused() {
    let error = toml::from_str::<Config>("loose = true\n").unwrap_err();
    assert!(format!("{error}").contains("unknown field `loose`"));
    let error = toml::from_str::<Config>("[timeouts]\nicmp = \"5 x\"\n").unwrap_err();
    assert!(format!("{error}").contains("a time, like 240 (seconds)"));
    assert!(toml::from_str::<Config>("[[rules]]\nname = \"x\"\naction = \"permit\"\n").is_err());
}

#[test]
fn pairs_of_large_sets_are_refused_before_they_fill_the_memory() {
    let ends: String = (1..200).map(|n| format!("\"10.0.0.1:{n}\",")).collect();
    let text = format!(
        "[sets]\nmany = {{ endpoints = [{ends}] }}\n{}",
        rule("source = \"@many\"\ndestination = \"@many\"")
    );
    let found = error(&text);
    assert!(
        found.starts_with("rules[1]: the rules up to here make more than"),
        "{found}"
    );
}

#[test]
fn times_are_read_with_units() {
    for (text, seconds) in [
        ("2h4m", 7440),
        ("90 s", 90),
        ("1d", 86_400),
        ("4 min", 240),
        ("1h 1m 1s", 3661),
    ] {
        assert_eq!(
            Span::parse(text),
            Some(Span(Duration::from_secs(seconds))),
            "{text}"
        );
    }
    assert_eq!(Span::parse("500ms"), Some(Span(Duration::from_millis(500))));
    for text in [
        "",
        "4",
        "m",
        "4x",
        "-4s",
        "99999999999999999999s",
        "18446744073709551615d",
    ] {
        assert_eq!(Span::parse(text), None, "{text}");
    }
}

#[test]
fn each_timeout_reaches_its_phases() {
    let text = "[timeouts]\ntcp_established = 1\ntcp_opening = 2\ntcp_closing = 3\ntcp_time_wait = 4\ntcp_reset = 5\n\
        udp_unreplied = 6\nudp_replied = 7\nudp_stream = \"8s\"\nicmp = 9\nother = 10\n";
    let settings: Settings = toml::from_str(text).unwrap();
    let seconds = settings.timeouts.by_phase().map(|d| d.as_secs());
    assert_eq!(seconds, [9, 2, 2, 2, 1, 3, 3, 3, 4, 5, 6, 7, 8, 9, 9, 10, 10]);
    assert_eq!(seconds[Phase::TcpTimeWait as usize], 4);
}

#[test]
fn the_schema_names_every_setting() {
    let schema = schemars::schema_for!(Config);
    let text = format!("{:?}", schema);
    for name in [
        "rules",
        "sets",
        "invalid",
        "tcp_loose",
        "verify_checksums",
        "answers_per_second",
        "timeouts",
    ] {
        assert!(text.contains(name), "{name}");
    }
}
