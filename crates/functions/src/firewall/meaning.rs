//! From rules as written to terms: names become numbers, sets are put in, and a text that makes no
//! sense is an error that says where.
//!
//! **Theory of operation.** Each field of a rule becomes a set of values. Addresses are the one
//! field that may also name endpoints: they are grouped by port, and each group becomes a term of
//! its own whose port is that group's (and allowed by the rule's own ports). With endpoints at both
//! ends the terms are all pairs.
//!
//! ```text
//!   destination = ["10.0.0.0/8", "@servers"]      servers = 10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:443
//!
//!   term 1: destination in 10.0.0.0/8, any port
//!   term 2: destination in {10.0.0.1, 10.0.0.2}, port 80
//!   term 3: destination in {10.0.0.3}, port 443
//! ```
//!
//! Invariant: an error's `at` is the path of the setting as it stands in the table:
//! `rules[3].source[1]`, `sets.office.prefixes`.
//!
//! Not here: the texts' grammar in TOML (`config`), matching (`rules`).

use super::config::{FromSide, Items, Rule, Set, Settings, Timeouts};
use super::names::{FLAGS, ICMP_TYPES, ICMPV6_TYPES, PROTOCOLS};
use super::rules::{Addresses, ByteSet, CompiledRule, Program, TERMS_MAX, Term, WITH_PORTS};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use nf::{ConfigError, Endpoint, Prefix};
use wire::protocol;
use wire::tcp::flags;

type Ports = Vec<(u16, u16)>;

const ALL_PORTS: (u16, u16) = (0, u16::MAX);

/// Compiles settings.
pub(super) fn compile(settings: &Settings) -> Result<Program, ConfigError> {
    timeouts(&settings.timeouts)?;
    let sets = read_sets(&settings.sets)?;
    let mut terms = Vec::new();
    let mut rules = Vec::with_capacity(settings.rules.len());
    let mut by_name = BTreeMap::new();
    for (index, rule) in settings.rules.iter().enumerate() {
        let at = format!("rules[{index}]");
        if rule.name.trim().is_empty() {
            return Err(ConfigError::new(
                format!("{at}.name"),
                "the name is empty",
                "name the rule: its hits are shown by that name",
            ));
        }
        if let Some(first) = by_name.insert(rule.name.trim(), index) {
            return Err(ConfigError::new(
                format!("{at}.name"),
                format!("rules[{first}] has this name, too"),
                "name each rule differently: hits are counted by name",
            ));
        }
        read_rule(rule, &at, index, &sets, &mut terms)?;
        rules.push(CompiledRule {
            name: rule.name.clone(),
            action: rule.action,
        });
        if terms.len() > TERMS_MAX {
            return Err(ConfigError::new(
                at,
                format!("the rules up to here make more than {TERMS_MAX} terms"),
                "sets of endpoints make a term for each port: use prefixes and ports in their place, or fewer rules",
            ));
        }
    }
    Program::compile(rules, &terms).ok_or_else(|| {
        ConfigError::new(
            "rules",
            "the rules are too many and too different for their tables",
            "join rules that differ in one address or port by a set",
        )
    })
}

/// A flow without any time would end before its first answer.
fn timeouts(all: &Timeouts) -> Result<(), ConfigError> {
    let each = [
        ("tcp_established", all.tcp_established),
        ("tcp_opening", all.tcp_opening),
        ("tcp_closing", all.tcp_closing),
        ("tcp_time_wait", all.tcp_time_wait),
        ("tcp_reset", all.tcp_reset),
        ("udp_unreplied", all.udp_unreplied),
        ("udp_replied", all.udp_replied),
        ("udp_stream", all.udp_stream),
        ("icmp", all.icmp),
        ("other", all.other),
    ];
    match each.iter().find(|(_, span)| span.0.is_zero()) {
        None => Ok(()),
        Some((name, _)) => Err(ConfigError::new(
            format!("timeouts.{name}"),
            "a flow cannot end at once",
            "write \"1s\" or more",
        )),
    }
}

/// A set, read.
#[derive(Clone, Debug)]
enum Named {
    Prefixes(Vec<Prefix>),
    Ports(Ports),
    Endpoints(Vec<Endpoint>),
}

type Sets<'a> = BTreeMap<&'a str, Named>;

fn read_sets(sets: &BTreeMap<String, Set>) -> Result<Sets<'_>, ConfigError> {
    let mut read = BTreeMap::new();
    for (name, set) in sets {
        let at = format!("sets.{name}");
        let named = match (&set.prefixes, &set.ports, &set.endpoints) {
            (Some(items), None, None) => {
                Named::Prefixes(each(items, &format!("{at}.prefixes"), parse_prefix)?)
            }
            (None, Some(items), None) => Named::Ports(each(items, &format!("{at}.ports"), parse_ports)?),
            (None, None, Some(items)) => {
                Named::Endpoints(each(items, &format!("{at}.endpoints"), parse_endpoint)?)
            }
            _ => {
                return Err(ConfigError::new(
                    at,
                    "a set has one kind of members",
                    "give it `prefixes`, `ports` or `endpoints`, and only one of them",
                ));
            }
        };
        read.insert(name.as_str(), named);
    }
    Ok(read)
}

/// Reads each item; an error names its place.
fn each<T>(
    items: &Items,
    at: &str,
    read: impl Fn(&str) -> Result<T, (String, String)>,
) -> Result<Vec<T>, ConfigError> {
    let list = items.0.iter().enumerate();
    list.map(|(index, text)| read(text).map_err(|e| error_at(items, at, index, e)))
        .collect()
}

fn error_at(items: &Items, at: &str, index: usize, (problem, remedy): (String, String)) -> ConfigError {
    let at = if items.0.len() == 1 {
        at.into()
    } else {
        format!("{at}[{index}]")
    };
    ConfigError::new(at, problem, remedy)
}

fn parse_prefix(text: &str) -> Result<Prefix, (String, String)> {
    text.parse().map_err(|error: wire::addr::PrefixError| {
        // The remedy stands behind the semicolon.
        let said = error.to_string();
        let (problem, remedy) = said.split_once("; ").unwrap_or((&said, ""));
        (format!("`{text}`: {problem}"), remedy.into())
    })
}

fn parse_endpoint(text: &str) -> Result<Endpoint, (String, String)> {
    text.parse().map_err(|_| {
        (
            format!("`{text}` is no address with a port"),
            "write it like \"192.0.2.1:443\" or \"[2001:db8::1]:443\"".into(),
        )
    })
}

fn parse_ports(text: &str) -> Result<(u16, u16), (String, String)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok((from, to)),
        (Ok::<u16, _>(from), Ok::<u16, _>(to)) => Err((
            format!("the range {from}-{to} runs backward"),
            format!("write \"{to}-{from}\""),
        )),
        _ => Err((
            format!("`{text}` is no port and no range of ports"),
            "write a number from 0 to 65535, or a range like \"8000-8100\"".into(),
        )),
    }
}

fn unknown_set(name: &str, sets: &Sets<'_>, is_of_ports: bool) -> (String, String) {
    let is_fit = |set: &Named| matches!(set, Named::Ports(_)) == is_of_ports;
    let known = sets.iter().filter(|(_, set)| is_fit(set));
    let known: Vec<&str> = known.map(|(name, _)| *name).collect();
    let example = match is_of_ports {
        true => "ports = [80, 443]",
        false => "prefixes = [\"10.0.0.0/8\"]",
    };
    let remedy = if known.is_empty() {
        format!("add it to the function's table `sets`, for example {name} = {{ {example} }}")
    } else {
        format!("the sets there are: {}", known.join(", "))
    };
    (format!("there is no set `{name}`"), remedy)
}

/// The addresses of one end: plain ones, and by port those of endpoints.
struct Ends {
    groups: Vec<(Addresses, Option<u16>)>,
}

fn read_addresses(items: Option<&Items>, at: &str, sets: &Sets<'_>) -> Result<Ends, ConfigError> {
    let Some(items) = items else {
        return Ok(Ends {
            groups: vec![(Addresses::Any, None)],
        });
    };
    refuse_empty(items, at)?;
    let mut plain = Vec::new();
    let mut by_port: BTreeMap<u16, Vec<Prefix>> = BTreeMap::new();
    for (index, text) in items.0.iter().enumerate() {
        let fail = |e| error_at(items, at, index, e);
        let Some(name) = text.strip_prefix('@') else {
            plain.push(parse_prefix(text).map_err(fail)?);
            continue;
        };
        match sets.get(name) {
            Some(Named::Prefixes(prefixes)) => plain.extend(prefixes),
            Some(Named::Endpoints(endpoints)) => {
                for endpoint in endpoints {
                    let whole = if endpoint.addr.is_v4() { 32 } else { 128 };
                    by_port
                        .entry(endpoint.port)
                        .or_default()
                        .extend(Prefix::new(endpoint.addr, whole));
                }
            }
            Some(Named::Ports(_)) => {
                return Err(fail((
                    format!("`@{name}` is a set of ports"),
                    "name it in `source_ports` or `destination_ports`".into(),
                )));
            }
            None => return Err(fail(unknown_set(name, sets, false))),
        }
    }
    let mut groups = Vec::new();
    if !plain.is_empty() {
        groups.push((Addresses::In(plain), None));
    }
    groups.extend(
        by_port
            .into_iter()
            .map(|(port, prefixes)| (Addresses::In(prefixes), Some(port))),
    );
    Ok(Ends { groups })
}

fn read_ports(items: Option<&Items>, at: &str, sets: &Sets<'_>) -> Result<Ports, ConfigError> {
    let Some(items) = items else {
        return Ok(vec![ALL_PORTS]);
    };
    refuse_empty(items, at)?;
    let mut ports = Vec::new();
    for (index, text) in items.0.iter().enumerate() {
        let fail = |e| error_at(items, at, index, e);
        let Some(name) = text.strip_prefix('@') else {
            ports.push(parse_ports(text).map_err(fail)?);
            continue;
        };
        match sets.get(name) {
            Some(Named::Ports(named)) => ports.extend(named),
            Some(_) => {
                return Err(fail((
                    format!("`@{name}` is no set of ports"),
                    "name it in `source` or `destination`".into(),
                )));
            }
            None => return Err(fail(unknown_set(name, sets, true))),
        }
    }
    Ok(ports)
}

fn refuse_empty(items: &Items, at: &str) -> Result<(), ConfigError> {
    if items.0.is_empty() {
        return Err(ConfigError::new(
            at,
            "the list is empty, so the rule would never match",
            "leave the setting out to match anything",
        ));
    }
    Ok(())
}

/// A packet's addresses are of one family.
fn refuse_two_families(source: &Ends, destination: &Ends, at: &str) -> Result<(), ConfigError> {
    let families = |ends: &Ends| {
        let of = |is_v4: bool| {
            ends.groups.iter().any(|(addresses, _)| match addresses {
                Addresses::Any => true,
                Addresses::In(prefixes) => prefixes.iter().any(|prefix| prefix.is_v4() == is_v4),
            })
        };
        [of(true), of(false)]
    };
    match (families(source), families(destination)) {
        ([true, false], [false, true]) | ([false, true], [true, false]) => Err(ConfigError::new(
            format!("{at}.destination"),
            "one of `source` and `destination` has IPv4 addresses only, the other IPv6 only, so the rule would never match",
            "write addresses of one family at both, or leave one of them out",
        )),
        _ => Ok(()),
    }
}

fn read_rule(
    rule: &Rule,
    at: &str,
    index: usize,
    sets: &Sets<'_>,
    terms: &mut Vec<Term>,
) -> Result<(), ConfigError> {
    let source = read_addresses(rule.source.as_ref(), &format!("{at}.source"), sets)?;
    let destination = read_addresses(rule.destination.as_ref(), &format!("{at}.destination"), sets)?;
    let source_ports = read_ports(rule.source_ports.as_ref(), &format!("{at}.source_ports"), sets)?;
    let destination_ports = read_ports(
        rule.destination_ports.as_ref(),
        &format!("{at}.destination_ports"),
        sets,
    )?;
    refuse_two_families(&source, &destination, at)?;
    let named = read_protocols(rule, at)?;
    let has_port_setting = rule.source_ports.is_some() || rule.destination_ports.is_some();
    if has_port_setting {
        refuse_portless(rule, at)?;
    }
    let icmp_types = read_icmp_types(rule, at)?;
    let tcp_flags = read_tcp_flags(rule, at, named)?;
    for (from, from_port) in &source.groups {
        for (to, to_port) in &destination.groups {
            let ported = has_port_setting || from_port.is_some() || to_port.is_some();
            terms.push(Term {
                rule: index,
                sides: match rule.from {
                    None => 3,
                    Some(FromSide::Inside) => 1,
                    Some(FromSide::Outside) => 2,
                },
                protocols: protocols_of(named, ported, tcp_flags.is_some()),
                icmp_types,
                tcp_flags,
                source: from.clone(),
                destination: to.clone(),
                source_ports: narrow(&source_ports, *from_port),
                destination_ports: narrow(&destination_ports, *to_port),
            });
            // Checked again per rule; here only so that pairs of large sets cannot fill the memory
            // first.
            if terms.len() > TERMS_MAX {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The ports that are in `ports` and are `port`, if one is given.
fn narrow(ports: &[(u16, u16)], port: Option<u16>) -> Ports {
    match port {
        None => ports.to_vec(),
        Some(port) if ports.iter().any(|(from, to)| (*from..=*to).contains(&port)) => vec![(port, port)],
        Some(_) => Vec::new(),
    }
}

fn protocols_of(named: Option<ByteSet>, ported: bool, flagged: bool) -> ByteSet {
    let mut set = named.unwrap_or(ByteSet::ALL);
    let mut keep = |kept: &[u8]| {
        let mut narrowed = ByteSet::EMPTY;
        for protocol in kept.iter().filter(|p| set.has(**p)) {
            narrowed.insert(*protocol);
        }
        set = narrowed;
    };
    if flagged {
        keep(&[protocol::TCP]);
    }
    if ported {
        keep(&WITH_PORTS);
    }
    set
}

fn parse_protocol(text: &str) -> Result<u8, (String, String)> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
    named
        .map(|(_, number)| *number)
        .or_else(|| text.parse().ok())
        .ok_or_else(|| {
            let names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
            (
                format!("`{text}` is no protocol"),
                format!("write one of {} or its number, 0 to 255", names.join(", ")),
            )
        })
}

fn read_protocols(rule: &Rule, at: &str) -> Result<Option<ByteSet>, ConfigError> {
    let Some(items) = &rule.protocol else {
        return Ok(None);
    };
    let at = format!("{at}.protocol");
    refuse_empty(items, &at)?;
    let mut set = ByteSet::EMPTY;
    for protocol in each(items, &at, parse_protocol)? {
        set.insert(protocol);
    }
    Ok(Some(set))
}

/// A rule that names ports matches only protocols that have them; to name another protocol, too, is
/// a mistake.
fn refuse_portless(rule: &Rule, at: &str) -> Result<(), ConfigError> {
    let Some(items) = &rule.protocol else {
        return Ok(());
    };
    for (index, text) in items.0.iter().enumerate() {
        let number =
            parse_protocol(text).map_err(|e| error_at(items, &format!("{at}.protocol"), index, e))?;
        if !WITH_PORTS.contains(&number) {
            return Err(error_at(
                items,
                &format!("{at}.protocol"),
                index,
                (
                    format!("the rule names ports, but `{text}` has none"),
                    "make two rules of it, or leave the ports out".into(),
                ),
            ));
        }
    }
    Ok(())
}

fn read_icmp_types(rule: &Rule, at: &str) -> Result<Option<ByteSet>, ConfigError> {
    let Some(items) = &rule.icmp_type else {
        return Ok(None);
    };
    let names: &[(&str, u8)] = match rule.protocol.as_ref().map(|p| p.0.as_slice()) {
        Some([one]) if one == "icmp" => &ICMP_TYPES,
        Some([one]) if one == "icmpv6" => &ICMPV6_TYPES,
        _ => {
            return Err(ConfigError::new(
                format!("{at}.icmp_type"),
                "ICMP and ICMPv6 number their types differently",
                "add protocol = \"icmp\" or protocol = \"icmpv6\" to the rule, one of them",
            ));
        }
    };
    let at = format!("{at}.icmp_type");
    refuse_empty(items, &at)?;
    let mut set = ByteSet::EMPTY;
    let read = |text: &str| {
        let named = names.iter().find(|(name, _)| *name == text);
        named
            .map(|(_, number)| *number)
            .or_else(|| text.parse().ok())
            .ok_or_else(|| {
                let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
                (
                    format!("`{text}` is no ICMP type"),
                    format!("write one of {} or its number", known.join(", ")),
                )
            })
    };
    for kind in each(items, &at, read)? {
        set.insert(kind);
    }
    Ok(Some(set))
}

fn read_tcp_flags(rule: &Rule, at: &str, named: Option<ByteSet>) -> Result<Option<ByteSet>, ConfigError> {
    let Some(text) = &rule.tcp_flags else {
        return Ok(None);
    };
    let fail = |problem: String, remedy: &str| ConfigError::new(format!("{at}.tcp_flags"), problem, remedy);
    if named.is_some_and(|set| !set.has(protocol::TCP)) {
        return Err(fail(
            "the rule's protocol is not TCP".to_string(),
            "leave out `tcp_flags`, or write protocol = \"tcp\"",
        ));
    }
    let list = |text: &str| -> Result<u8, ConfigError> {
        let mut bits = 0;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((_, bit)) = FLAGS.iter().find(|(name, _)| *name == word) else {
                return Err(fail(
                    format!("`{word}` is no TCP flag"),
                    "the flags are fin, syn, rst, psh, ack, urg, ece, cwr; write \"syn\" or \"syn/syn,ack\"",
                ));
            };
            bits |= bit;
        }
        Ok(bits)
    };
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (list(value)?, list(mask)?),
        None => (list(text)?, flags::FIN | flags::SYN | flags::RST | flags::ACK),
    };
    if text.contains('/') && value & !mask != 0 {
        return Err(fail(
            format!("`{text}` asks for a flag that it does not look at"),
            "behind the slash stand all flags looked at, those asked for among them",
        ));
    }
    let mask = mask | value;
    let mut set = ByteSet::EMPTY;
    (0..=255u8)
        .filter(|bits| bits & mask == value)
        .for_each(|bits| set.insert(bits));
    Ok(Some(set))
}
