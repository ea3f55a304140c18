//! The firewall's settings as written in the configuration.
//!
//! ```toml
//! [firewall]
//! invalid = "drop"
//!
//! [firewall.sets]
//! office  = { prefixes = ["192.0.2.0/24", "2001:db8:1::/48"] }
//! web     = { ports = [80, 443, "8000-8100"] }
//! servers = { endpoints = ["198.51.100.5:443", "[2001:db8::5]:443"] }
//!
//! [[function.firewall.rules]]
//! name = "web from the office"
//! from = "inside"
//! protocol = "tcp"
//! source = "@office"
//! destination_ports = "@web"
//! action = "allow"
//!
//! [[function.firewall.rules]]
//! name = "our servers"
//! from = "outside"
//! destination = ["@servers", "198.51.100.9"]
//! action = "allow"
//!
//! [[function.firewall.rules]]
//! name = "pings"
//! protocol = "icmp"
//! icmp_type = "echo-request"
//! action = "allow"
//! ```
//!
//! The first rule that matches a flow's first packet decides; a packet that matches none is
//! dropped. A rule matches if all it names match; a field that it leaves out matches anything.
//! `@name` stands for a set.
//!
//! Invariant: settings are taken apart and compiled once, when they are read ([`Config::from`]);
//! all instances share the result. A mistake in them is kept as an error, and [`Config::program`]
//! hands it out.
//!
//! Not here: the meaning of the texts (`meaning`), how rules are matched (`rules`).

use super::meaning;
use super::rules::Program;
use super::state::Phase;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use nf::ConfigError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The action on a flow whose first packet a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The flow is let in.
    Allow,
    /// Its packets vanish.
    Drop,
    /// Its packets are answered: TCP by a reset, the rest by an ICMP error.
    Reject,
}

impl Action {
    /// As written.
    pub fn name(self) -> &'static str {
        match self {
            Action::Allow => "allow",
            Action::Drop => "drop",
            Action::Reject => "reject",
        }
    }
}

/// The action on packets that fit no flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InvalidAction {
    /// Such packets are dropped.
    #[default]
    Drop,
    /// Such packets pass where they have a known flow's addresses and ports; else the rules decide.
    Allow,
}

/// A side, as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FromSide {
    /// The protected side.
    Inside,
    /// The other one.
    Outside,
}

/// The firewall's table of the configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The rules; the first that matches decides. Default: none, so nothing is let in.
    pub rules: Vec<Rule>,
    /// Named sets, for use in rules as `"@name"`.
    pub sets: BTreeMap<String, Set>,
    /// Packets that fit no flow (wrong TCP state or window, unasked answers, malformed): `"drop"`
    /// (default) or `"allow"`.
    pub invalid: InvalidAction,
    /// Take up TCP connections whose beginning was not seen, by the first ACK that the rules allow.
    /// Default: true, as Linux has it (`nf_conntrack_tcp_loose`): connections older than the
    /// firewall go on. False: only a SYN opens a connection.
    pub tcp_loose: bool,
    /// Check transport checksums; a wrong one makes a packet invalid. Default: false: the check
    /// reads every byte of every packet, the receiver checks anyway, and captures taken at a sender
    /// whose card computes checksums are full of wrong ones.
    pub verify_checksums: bool,
    /// Resets and ICMP errors sent per second and runtime, at most, by rules with
    /// `action = "reject"`. Default 1000; the bound is RFC 1812 4.3.2.8's and RFC 4443 2.4 f's
    /// demand. Beyond it, packets are dropped.
    pub answers_per_second: u32,
    /// How long flows live without a packet.
    pub timeouts: Timeouts,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rules: Vec::new(),
            sets: BTreeMap::new(),
            invalid: InvalidAction::Drop,
            tcp_loose: true,
            verify_checksums: false,
            answers_per_second: 1000,
            timeouts: Timeouts::default(),
        }
    }
}

/// A rule. All its conditions must match.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name, shown with its hits.
    pub name: String,
    /// The side the first packet comes from: `"inside"` or `"outside"`. Default: either.
    #[serde(default)]
    pub from: Option<FromSide>,
    /// Protocols: `"tcp"`, `"udp"`, `"icmp"`, `"icmpv6"`, `"sctp"`, `"udplite"`, `"gre"`, `"esp"`,
    /// `"ah"`, `"igmp"` or numbers. Default: all, or those with ports if the rule names ports.
    #[serde(default)]
    pub protocol: Option<Items>,
    /// Source addresses: addresses, prefixes, sets of prefixes or endpoints.
    #[serde(default)]
    pub source: Option<Items>,
    /// Destination addresses, likewise.
    #[serde(default)]
    pub destination: Option<Items>,
    /// Source ports: numbers, ranges (`"1024-65535"`), sets of ports.
    #[serde(default)]
    pub source_ports: Option<Items>,
    /// Destination ports, likewise.
    #[serde(default)]
    pub destination_ports: Option<Items>,
    /// ICMP types, by number or name (`"echo-request"`); `protocol` must say which ICMP.
    #[serde(default)]
    pub icmp_type: Option<Items>,
    /// TCP flags of the first segment: `"syn"` means SYN set and ACK, FIN and RST not;
    /// `"syn/syn,ack"` means SYN set and ACK not; the other flags may be either.
    #[serde(default)]
    pub tcp_flags: Option<String>,
    /// The action on a flow whose first packet the rule matches.
    pub action: Action,
}

/// A named set: one of the three.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Set {
    /// Addresses and prefixes, for `source` and `destination`.
    pub prefixes: Option<Items>,
    /// Ports and ranges, for `source_ports` and `destination_ports`.
    pub ports: Option<Items>,
    /// Addresses with a port each, for `source` and `destination`.
    pub endpoints: Option<Items>,
}

/// How long flows live without a packet, by their state. Written as seconds or like `"2h4m"`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// TCP, both ends have spoken: 2 h 4 min (RFC 5382 REQ-5).
    pub tcp_established: Span,
    /// TCP, not yet established, or picked up and not answered: 4 min (RFC 5382 REQ-5,
    /// "transitory").
    pub tcp_opening: Span,
    /// TCP, a FIN has been sent: 4 min (RFC 5382 REQ-5, "transitory").
    pub tcp_closing: Span,
    /// TCP, both FINs are acknowledged: 4 min, twice the maximum segment lifetime (RFC 9293 3.4.2,
    /// RFC 5382 REQ-5).
    pub tcp_time_wait: Span,
    /// TCP, after a reset: 4 min (RFC 7857 2.2).
    pub tcp_reset: Span,
    /// UDP, one end has spoken: 2 min (RFC 4787 REQ-5, the least it allows).
    pub udp_unreplied: Span,
    /// UDP, both ends have spoken: 5 min (RFC 4787 REQ-5 b, recommended).
    pub udp_replied: Span,
    /// UDP, both ends still speak after 2 seconds: 5 min (RFC 4787 REQ-5 b, recommended).
    pub udp_stream: Span,
    /// ICMP queries: 60 s (RFC 5508 REQ-2).
    pub icmp: Span,
    /// Other protocols: 10 min (Linux's practice, `nf_conntrack_generic_timeout`).
    pub other: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |s| Span(Duration::from_secs(s));
        Timeouts {
            tcp_established: seconds(7440),
            tcp_opening: seconds(240),
            tcp_closing: seconds(240),
            tcp_time_wait: seconds(240),
            tcp_reset: seconds(240),
            udp_unreplied: seconds(120),
            udp_replied: seconds(300),
            udp_stream: seconds(300),
            icmp: seconds(60),
            other: seconds(600),
        }
    }
}

impl Timeouts {
    /// The timeout of each phase, in the order of [`Phase`].
    pub fn by_phase(&self) -> [Duration; Phase::COUNT] {
        let mut all = [self.icmp.0; Phase::COUNT];
        for (phase, span) in [
            (Phase::TcpSynSent, self.tcp_opening),
            (Phase::TcpBothSynSent, self.tcp_opening),
            (Phase::TcpSynReceived, self.tcp_opening),
            (Phase::TcpEstablished, self.tcp_established),
            (Phase::TcpFinWait, self.tcp_closing),
            (Phase::TcpCloseWait, self.tcp_closing),
            (Phase::TcpLastAck, self.tcp_closing),
            (Phase::TcpTimeWait, self.tcp_time_wait),
            (Phase::TcpClosed, self.tcp_reset),
            (Phase::UdpUnreplied, self.udp_unreplied),
            (Phase::UdpReplied, self.udp_replied),
            (Phase::UdpStream, self.udp_stream),
            (Phase::OtherUnreplied, self.other),
            (Phase::OtherReplied, self.other),
        ] {
            all[phase as usize] = span.0;
        }
        all
    }
}

/// The settings of the firewall, and the rules that they compile to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(from = "Settings")]
#[schemars(with = "Settings")]
pub struct Config {
    settings: Settings,
    program: Result<Arc<Program>, ConfigError>,
}

impl From<Settings> for Config {
    fn from(settings: Settings) -> Self {
        let program = meaning::compile(&settings).map(Arc::new);
        Config { settings, program }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config::from(Settings::default())
    }
}

impl Config {
    /// The settings as written.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The rules, compiled; or the mistake in them.
    pub fn program(&self) -> Result<Arc<Program>, ConfigError> {
        self.program.clone()
    }
}

/// A length of time: a number of seconds, or digits with units (`d h m s ms`), like `"2h4m"` or
/// `"90 s"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

impl Span {
    /// Reads digits with units.
    pub fn parse(text: &str) -> Option<Span> {
        let mut total = Duration::ZERO;
        let mut rest = text.trim();
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            let number: u64 = rest[..digits].parse().ok()?;
            rest = rest[digits..].trim_start();
            let letters = rest
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(rest.len());
            let unit_ms = match &rest[..letters] {
                "ms" => 1,
                "s" | "sec" => 1_000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            total = total.checked_add(Duration::from_millis(number.checked_mul(unit_ms)?))?;
            rest = rest[letters..].trim_start();
        }
        Some(Span(total))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time, like 240 (seconds), \"4m\" or \"2h4m\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Span, E> {
                match u64::try_from(value) {
                    Ok(seconds) => self.visit_u64(seconds),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
                }
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_secs(value)))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Span, E> {
                Span::parse(value).ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// One text or number, or a list of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Items(pub Vec<String>);

/// Text or a number, as [`Items`] and [`Span`] are written.
fn text_or_number() -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 0 }] })
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        text_or_number()
    }
}

impl JsonSchema for Items {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Items".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = text_or_number();
        json_schema!({ "anyOf": [{ "type": "array", "items": one }, { "type": "string" }, { "type": "integer", "minimum": 0 }] })
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Items;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number, or a list of them")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Items, E> {
                Ok(Items(alloc::vec![format!("{value}")]))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Items, E> {
                Ok(Items(alloc::vec![format!("{value}")]))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Items, E> {
                Ok(Items(alloc::vec![value.into()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items, A::Error> {
                let mut items = Vec::new();
                while let Some(Items(more)) = list.next_element()? {
                    items.extend(more);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
