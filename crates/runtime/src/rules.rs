//! Which chain a flow takes: rules over the 5-tuple of the packet that opens it, the most specific
//! one first (NFActor 3.1).
//!
//! # Theory of operation
//!
//! The paper's chain rules are "longest prefix matching over the traditional 5-tuple". One field
//! has a longest prefix; five fields have many orders of them. Here a rule is as specific as the
//! set of packets is small that it matches, and of all rules that match a packet the most specific
//! wins. Where the packets of one rule are part of another's, the first is the smaller set, so it
//! wins whatever the field; with one field it is the longest prefix.
//!
//! ```text
//!   bits that a rule fixes:  source prefix + destination prefix + 8 (protocol) + (16 – log₂ ports) of each port + 1 (side)
//!
//!   web   10.0.0.0/8, tcp, port 80     8 + 8 + 16 = 32        ◄── a packet of 10.1.1.1 to port 80
//!   host  10.1.1.1/32                  32 + 1 of its family: 33   wins here
//! ```
//!
//! Prefixes count in their own family, plus one bit for it: `0.0.0.0/0` is more specific than no
//! prefix. Of a list the entry counts that matches the packet and is the longest. Of equals the
//! rule that is written first wins.
//!
//! *Looking one up.* Rules are looked at in the order of the most that they could fix. The search
//! ends when no rule behind can win.
//!
//! *Rules that nothing reaches* ([`unreached`]) are found exactly: each rule is a set of boxes in
//! six dimensions, from which the boxes that win over it are cut away. Where that is too much work,
//! a rule counts as reached.
//!
//! Not here: chains ([`crate::chain`]).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use nf::Side;
use wire::{Addr, Packet, Prefix};

/// The conditions for a flow's first packet. Empty lists match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Where the packet comes in.
    pub side: Option<Side>,
    /// Source prefixes.
    pub source: Vec<Prefix>,
    /// Destination prefixes.
    pub destination: Vec<Prefix>,
    /// Source ports.
    pub source_port: Vec<RangeInclusive<u16>>,
    /// Destination ports.
    pub destination_port: Vec<RangeInclusive<u16>>,
}

/// How many packets a rule matches, as a power of two and a fraction: less is more specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Volume(u32, u64);

/// Bits of the 5-tuple, of the addresses' families and of the side.
const BITS: u32 = 2 * 129 + 8 + 1;

impl Volume {
    /// Of a rule that fixes so many bits and leaves so many ports of each kind.
    fn new(fixed: u32, source_ports: u32, destination_ports: u32) -> Self {
        let ports = u64::from(source_ports) * u64::from(destination_ports);
        let log = ports.max(1).ilog2();
        Volume(BITS - fixed + log, ports << (63 - log))
    }
}

/// Bits that a prefix fixes, with the one for its family.
fn prefix_bits(prefix: &Prefix) -> u32 {
    u32::from(prefix.length()) + 1
}

fn count(ports: &RangeInclusive<u16>) -> u32 {
    u32::from(*ports.end()).saturating_sub(u32::from(*ports.start())) + 1
}

/// The fields that rules look at.
#[derive(Clone, Copy, Debug)]
struct Tuple {
    source: Addr,
    destination: Addr,
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    side: Side,
}

impl From<&Packet> for Tuple {
    #[inline]
    fn from(packet: &Packet) -> Self {
        Tuple {
            source: packet.source_addr(),
            destination: packet.destination_addr(),
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            protocol: packet.protocol(),
            side: packet.side(),
        }
    }
}

/// All ports.
const PORTS: u32 = 1 << 16;

impl Match {
    /// Bits of the fields that are no list.
    fn bits(&self) -> u32 {
        8 * u32::from(self.protocol.is_some()) + u32::from(self.side.is_some())
    }

    /// The same with the most specific of each list in front.
    fn sorted(mut self) -> Self {
        for prefixes in [&mut self.source, &mut self.destination] {
            prefixes.sort_by_key(|prefix| core::cmp::Reverse(prefix_bits(prefix)));
        }
        for ports in [&mut self.source_port, &mut self.destination_port] {
            ports.sort_by_key(count);
        }
        self
    }

    /// The least volume that any packet finds here; the lists are sorted.
    fn least(&self) -> Volume {
        let bits = |prefixes: &[Prefix]| prefixes.iter().map(prefix_bits).max().unwrap_or(0);
        let ports = |ranges: &[RangeInclusive<u16>]| ranges.iter().map(count).min().unwrap_or(PORTS);
        Volume::new(
            self.bits() + bits(&self.source) + bits(&self.destination),
            ports(&self.source_port),
            ports(&self.destination_port),
        )
    }

    /// How specific it is for a packet, if it matches; the lists are sorted.
    #[inline]
    fn volume(&self, tuple: &Tuple) -> Option<Volume> {
        if self.protocol.is_some_and(|protocol| protocol != tuple.protocol)
            || self.side.is_some_and(|side| side != tuple.side)
        {
            return None;
        }
        let prefix = |prefixes: &[Prefix], address: Addr| match prefixes {
            [] => Some(0),
            prefixes => {
                let longest = prefixes.iter().find(|prefix| prefix.contains(address));
                longest.map(prefix_bits)
            }
        };
        let ports = |ranges: &[RangeInclusive<u16>], port: u16| match ranges {
            [] => Some(PORTS),
            ranges => ranges.iter().find(|ports| ports.contains(&port)).map(count),
        };
        Some(Volume::new(
            self.bits() + prefix(&self.source, tuple.source)? + prefix(&self.destination, tuple.destination)?,
            ports(&self.source_port, tuple.source_port)?,
            ports(&self.destination_port, tuple.destination_port)?,
        ))
    }
}

/// Rules, ready to be looked up.
#[derive(Clone, Debug)]
pub struct Rules {
    each: Box<[Rule]>,
    /// The rule that wins for any packet, if it is the only one.
    only: Option<u8>,
}

#[derive(Clone, Debug)]
struct Rule {
    index: u8,
    least: Volume,
    matching: Match,
}

impl Rules {
    /// Of at most 256 rules; the others are never found.
    pub fn new<'m>(rules: impl IntoIterator<Item = &'m Match>) -> Self {
        let each = (0..=u8::MAX).zip(rules).map(|(index, matching)| {
            let matching = matching.clone().sorted();
            Rule {
                index,
                least: matching.least(),
                matching,
            }
        });
        let mut rules: Box<[Rule]> = each.collect();
        rules.sort_by_key(|rule| (rule.least, rule.index));
        let only = match &*rules {
            [rule] if rule.matching == Match::default() => Some(rule.index),
            _ => None,
        };
        Rules { each: rules, only }
    }

    /// The index of the most specific rule that matches a packet.
    #[inline]
    pub fn find(&self, packet: &Packet) -> Option<u8> {
        match self.only {
            Some(index) => Some(index),
            None => self.of(&packet.into()),
        }
    }

    #[inline]
    fn of(&self, tuple: &Tuple) -> Option<u8> {
        let mut best: Option<(Volume, u8)> = None;
        for rule in &self.each {
            if best.is_some_and(|best| best <= (rule.least, rule.index)) {
                break;
            }
            if let Some(volume) = rule.matching.volume(tuple) {
                let found = (volume, rule.index);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        best.map(|(_, index)| index)
    }
}

/// From and to, both inclusive, of source, destination, protocol, both ports, and side.
type Area = [(u128, u128); 6];

/// Areas that are looked at for a rule at most.
const AREAS_MAX: usize = 4096;

/// Areas that are cut at most, for all rules: below a second.
const WORK_MAX: usize = 5_000_000;

/// A rule that no packet reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// Its index.
    pub rule: usize,
    /// The rules that take what it matches.
    pub taken_by: Vec<usize>,
}

/// The rules that no packet reaches, since others win wherever they match.
pub fn unreached(rules: &[Match]) -> Vec<Unreached> {
    let areas: Vec<Vec<(Volume, Area)>> = rules.iter().map(areas).collect();
    let mut found = Vec::new();
    let mut work = WORK_MAX;
    for (rule, own) in areas.iter().enumerate() {
        let mut takers = vec![false; rules.len()];
        let is_taken = |(volume, area): &(Volume, Area)| {
            is_taken((*volume, rule), *area, &areas, &mut takers, &mut work)
        };
        if !own.is_empty() && own.iter().all(is_taken) {
            let taken_by = (0..rules.len()).filter(|other| takers[*other]).collect();
            found.push(Unreached { rule, taken_by });
        }
    }
    found
}

/// Whether the areas that win over this one cover it.
fn is_taken(
    (volume, rule): (Volume, usize),
    area: Area,
    areas: &[Vec<(Volume, Area)>],
    takers: &mut [bool],
    work: &mut usize,
) -> bool {
    let mut left = vec![area];
    for (other, theirs) in areas.iter().enumerate().filter(|(other, _)| *other != rule) {
        for (theirs, other_area) in theirs {
            if (*theirs, other) > (volume, rule) {
                continue;
            }
            let mut rest = Vec::new();
            for area in &left {
                takers[other] |= cut(*area, other_area, &mut rest);
            }
            left = rest;
            if left.is_empty() {
                return true;
            }
            *work = work.saturating_sub(left.len());
            if left.len() > AREAS_MAX || *work == 0 {
                return false;
            }
        }
    }
    false
}

/// The rest of an area without another; whether anything was cut away.
fn cut(mut area: Area, other: &Area, rest: &mut Vec<Area>) -> bool {
    let is_apart = |(own, other): (&(u128, u128), &(u128, u128))| own.1 < other.0 || other.1 < own.0;
    if area.iter().zip(other).any(is_apart) {
        rest.push(area);
        return false;
    }
    for at in 0..area.len() {
        let ((from, to), (first, last)) = (area[at], other[at]);
        if from < first {
            area[at] = (from, first - 1);
            rest.push(area);
        }
        if last < to {
            area[at] = (last + 1, to);
            rest.push(area);
        }
        area[at] = (from.max(first), to.min(last));
    }
    true
}

/// A rule as areas, each of one family; none at all if there would be too many.
fn areas(matching: &Match) -> Vec<(Volume, Area)> {
    let prefixes = |prefixes: &[Prefix]| -> Vec<(u32, (u128, u128))> {
        match prefixes {
            [] => vec![(0, (0, u128::MAX))],
            prefixes => prefixes
                .iter()
                .map(|prefix| (prefix_bits(prefix), range(prefix)))
                .collect(),
        }
    };
    let ports = |ranges: &[RangeInclusive<u16>]| -> Vec<(u32, (u128, u128))> {
        match ranges {
            [] => vec![(PORTS, (0, u128::from(u16::MAX)))],
            ranges => ranges
                .iter()
                .map(|ports| {
                    (
                        count(ports),
                        (u128::from(*ports.start()), u128::from(*ports.end())),
                    )
                })
                .collect(),
        }
    };
    let one = |value: Option<u128>, most: u128| value.map_or((0, most), |value| (value, value));
    let protocol = one(matching.protocol.map(u128::from), 255);
    let side = one(matching.side.map(|side| u128::from(side == Side::Outside)), 1);
    let (sources, destinations) = (prefixes(&matching.source), prefixes(&matching.destination));
    let (from_ports, to_ports) = (ports(&matching.source_port), ports(&matching.destination_port));
    let all = [
        sources.len(),
        destinations.len(),
        from_ports.len(),
        to_ports.len(),
    ];
    if all.iter().product::<usize>() > AREAS_MAX {
        return Vec::new();
    }
    let mut areas = Vec::new();
    for (source_bits, source) in &sources {
        for (destination_bits, destination) in &destinations {
            for (source_ports, from) in &from_ports {
                for (destination_ports, to) in &to_ports {
                    let fixed = matching.bits() + source_bits + destination_bits;
                    areas.push((
                        Volume::new(fixed, *source_ports, *destination_ports),
                        [*source, *destination, protocol, *from, *to, side],
                    ));
                }
            }
        }
    }
    areas
}

/// The addresses of a prefix as numbers.
fn range(prefix: &Prefix) -> (u128, u128) {
    let first = u128::from_be_bytes(*prefix.addr().octets());
    let fixed = u32::from(prefix.length()) + if prefix.is_v4() { 96 } else { 0 };
    let rest = match fixed {
        0 => u128::MAX,
        fixed => (1_u128 << (128 - fixed)) - 1,
    };
    (first, first | rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(text: &str) -> Match {
        let mut rule = Match::default();
        for word in text.split_whitespace() {
            let (what, value) = word.split_once('=').unwrap();
            let prefix = || value.parse::<Prefix>().unwrap();
            let ports = || {
                let (first, last) = value.split_once('-').unwrap_or((value, value));
                first.parse().unwrap()..=last.parse().unwrap()
            };
            match what {
                "from" => rule.source.push(prefix()),
                "to" => rule.destination.push(prefix()),
                "sport" => rule.source_port.push(ports()),
                "port" => rule.destination_port.push(ports()),
                "protocol" => rule.protocol = Some(value.parse().unwrap()),
                "side" => {
                    rule.side = Some(if value == "in" {
                        Side::Inside
                    } else {
                        Side::Outside
                    })
                }
                _ => panic!("{what}"),
            }
        }
        rule
    }

    fn rules(texts: &[&str]) -> Vec<Match> {
        texts.iter().map(|text| rule(text)).collect()
    }

    #[test]
    fn what_nothing_reaches_is_found_and_by_whom_it_is_taken() {
        for (texts, expected) in [
            (vec!["", "port=80"], vec![]),
            (vec!["", ""], vec![(1, vec![0])]),
            (
                vec!["port=80", "from=10.0.0.0/8 port=80", "port=80"],
                vec![(2, vec![0])],
            ),
            // By two together.
            (vec!["port=80-81", "port=80", "port=81"], vec![(0, vec![1, 2])]),
            (vec!["side=in", "", "side=out"], vec![(1, vec![0, 2])]),
            (vec!["from=0.0.0.0/0", "from=10.0.0.0/8", ""], vec![]),
            (
                vec![
                    "to=10.0.0.0/8",
                    "to=10.0.0.0/9",
                    "to=10.128.0.0/9 sport=1-65535",
                    "to=10.128.0.0/9 sport=0",
                ],
                vec![(0, vec![1, 2, 3])],
            ),
            // A part of it is left.
            (vec!["port=80-82", "port=80", "port=82"], vec![]),
            // Of equals the first, so the rest of the first is its other port.
            (
                vec!["port=80 port=90", "port=80", "protocol=6 port=90"],
                vec![(1, vec![0])],
            ),
        ] {
            let found: Vec<_> = unreached(&rules(&texts))
                .into_iter()
                .map(|found| (found.rule, found.taken_by))
                .collect();
            assert_eq!(found, expected, "{texts:?}");
        }
    }

    #[test]
    fn too_many_areas_are_no_reason_to_warn() {
        let many = Match {
            source_port: (0..80).map(|port| 2 * port..=2 * port).collect(),
            destination_port: (0..80).map(|port| 2 * port..=2 * port).collect(),
            ..Match::default()
        };
        assert_eq!(unreached(&[many.clone(), many]), []);
    }

    /// Few addresses and ports, so that rules meet.
    fn any_rule() -> impl Strategy<Value = Match> {
        let prefix = || {
            let one = (0_u8..4, 24_u8..=32).prop_map(|(host, length)| {
                let masked = u32::from(host) & (u32::MAX << (32 - u32::from(length)));
                Prefix::new(
                    Addr::from(std::net::IpAddr::from([10, 0, 0, masked as u8])),
                    length,
                )
                .unwrap()
            });
            proptest::collection::vec(one, 0..3)
        };
        let ports = || {
            proptest::collection::vec(
                (0_u16..4, 0_u16..4).prop_map(|(from, more)| from..=from + more),
                0..3,
            )
        };
        (
            prefix(),
            prefix(),
            ports(),
            ports(),
            proptest::option::of(prop_oneof![Just(6_u8), Just(17)]),
            proptest::option::of(prop_oneof![Just(Side::Inside), Just(Side::Outside)]),
        )
            .prop_map(
                |(source, destination, source_port, destination_port, protocol, side)| Match {
                    protocol,
                    side,
                    source,
                    destination,
                    source_port,
                    destination_port,
                },
            )
    }

    /// Looked up as the rule says, without an order or an end of the search.
    fn by_the_book(rules: &[Match], tuple: &Tuple) -> Option<u8> {
        let mut all = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            for (volume, area) in areas(rule) {
                let number = |address: Addr| u128::from_be_bytes(*address.octets());
                let point = [
                    number(tuple.source),
                    number(tuple.destination),
                    u128::from(tuple.protocol),
                    u128::from(tuple.source_port),
                    u128::from(tuple.destination_port),
                    u128::from(tuple.side == Side::Outside),
                ];
                if area
                    .iter()
                    .zip(point)
                    .all(|((from, to), at)| (*from..=*to).contains(&at))
                {
                    all.push((volume, index as u8));
                }
            }
        }
        all.into_iter().min().map(|(_, index)| index)
    }

    proptest! {
        #[test]
        fn the_most_specific_rule_is_found_and_only_what_no_packet_finds_is_unreached(
            rules in proptest::collection::vec(any_rule(), 1..6),
        ) {
            let found = Rules::new(&rules);
            let mut reached = vec![false; rules.len()];
            let host = |number: u8| Addr::from(std::net::IpAddr::from([10, 0, 0, number]));
            for point in 0..4 * 4 * 7 * 7 * 2 * 2 {
                let tuple = Tuple {
                    source: host(point as u8 & 3),
                    destination: host((point >> 2) as u8 & 3),
                    protocol: [6, 17][point >> 4 & 1],
                    side: [Side::Inside, Side::Outside][point >> 5 & 1],
                    source_port: (point >> 6) as u16 % 7,
                    destination_port: (point >> 6) as u16 / 7,
                };
                let chain = found.of(&tuple);
                prop_assert_eq!(chain, by_the_book(&rules, &tuple));
                if let Some(chain) = chain {
                    reached[usize::from(chain)] = true;
                }
            }
            for gone in unreached(&rules) {
                prop_assert!(!reached[gone.rule], "{:?}", rules[gone.rule]);
            }
        }
    }
}
