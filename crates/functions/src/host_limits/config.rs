//! Settings of the limits per inside host, and what they are compiled to.
//!
//! ```toml
//! [function.host_limits]
//! flows_per_host = 4096
//! new_flows_per_second = 200     # or "none"
//! exempt = ["10.0.0.53/32"]
//! ```
//!
//! A setting that cannot work is refused with its place and what to write instead; unknown names
//! are refused.
//!
//! Not here: the counts ([`super`]).

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use nf::{Addr, ConfigError, Prefix};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The most hosts that one instance keeps account of: its table is made at the start.
pub const HOSTS_MAX: u32 = 1 << 22;
/// The fastest rate and the largest burst: a flow still costs a microsecond, and a bucket's
/// nanoseconds fit a number.
const MOST: u32 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A number, or `"none"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit(pub Option<u32>);

/// The table of the limits per inside host.
#[derive(Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Flows of one host at a time: as many that it has opened, and as many that were opened to it
    /// from outside; or `"none"`. Default 4096, the ports of each protocol that NAT gives a host by
    /// default (RFC 6888 REQ-4 and REQ-5 ask for such limits).
    pub flows_per_host: Limit,
    /// New flows of one host per second, on average; or `"none"`. Flows from outside to it have the
    /// same rate of their own. Default 200: a page of many parts opens some dozens at once, a scan
    /// thousands.
    pub new_flows_per_second: Limit,
    /// New flows that a host which was quiet may open at once. Default 1000.
    #[schemars(range(min = 1, max = MOST))]
    pub burst: u32,
    /// Addresses and prefixes that have no limits: servers, resolvers. Default: none.
    pub exempt: Vec<String>,
    /// How many leading bits of an IPv4 address make a host. Default 32: each address.
    #[schemars(range(min = 1, max = 32))]
    pub prefix_v4: u8,
    /// How many leading bits of an IPv6 address make a host. Default 64: a host may have any number
    /// of addresses of its network (RFC 8981), so networks are counted. Where addresses of one
    /// prefix are on several runtimes, each counts its own.
    #[schemars(range(min = 1, max = 128))]
    pub prefix_v6: u8,
    /// Hosts that each runtime keeps account of, hosts whose bucket is still filling included.
    /// Default 65536 (8 MiB), at most 4194304. Beyond it, the host that has been without flows for
    /// the longest time makes room.
    #[schemars(range(min = 1, max = HOSTS_MAX))]
    pub hosts_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            flows_per_host: Limit(Some(4096)),
            new_flows_per_second: Limit(Some(200)),
            burst: 1000,
            exempt: Vec::new(),
            prefix_v4: 32,
            prefix_v6: 64,
            hosts_max: 65536,
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

impl JsonSchema for Limit {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number from 1 on, or none.",
            "anyOf": [{ "type": "integer", "minimum": 1, "maximum": u32::MAX }, { "const": "none" }],
        })
    }
}

struct LimitVisitor;

impl Visitor<'_> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 1 on, or \"none\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Limit, E> {
        match u32::try_from(number) {
            Ok(0) => Err(E::custom(
                "0 would let nothing pass; write a number from 1 on, or \"none\"",
            )),
            Ok(number) => Ok(Limit(Some(number))),
            Err(_) => Err(E::custom(format!(
                "{number} is more than {}; write \"none\"",
                u32::MAX
            ))),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Limit, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!(
                "{number} is below 0; write a number from 1 on, or \"none\""
            ))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
        match text {
            "none" => Ok(Limit(None)),
            _ => Err(E::custom(format!(
                "`{text}` is no limit; write a number from 1 on, or \"none\""
            ))),
        }
    }
}

/// A rate as a bucket has it, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate {
    /// The cost of a flow.
    pub cost: u64,
    /// The most that a bucket holds.
    pub most: u64,
}

/// The settings as the instance uses them.
#[derive(Debug)]
pub(super) struct Plan {
    pub flows: u32,
    pub rate: Option<Rate>,
    exempt: Vec<Prefix>,
    masks: [u128; 2],
    lengths: [u8; 2],
    pub hosts: usize,
}

impl Plan {
    /// Whether accounts by the other one are accounts by this one: of the same hosts, in a table as
    /// large.
    pub fn counts_like(&self, other: &Plan) -> bool {
        (self.masks, self.hosts) == (other.masks, other.hosts)
    }

    /// Checks and compiles.
    pub fn new(config: &Config) -> Result<Plan, ConfigError> {
        let within = |at: &str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                return Ok(value);
            }
            Err(ConfigError::new(
                at,
                format!("{value} is not from {least} to {most}"),
                format!("write {}", value.clamp(least, most)),
            ))
        };
        if config.flows_per_host.0.is_none() && config.new_flows_per_second.0.is_none() {
            return Err(ConfigError::new(
                "flows_per_host",
                "neither the number of flows nor their rate is limited",
                "write a number, or take the function out of its chains",
            ));
        }
        let burst = u64::from(within("burst", config.burst, 1, MOST)?);
        let rate = match config.new_flows_per_second.0 {
            None => None,
            Some(rate) => {
                let cost = SECOND / u64::from(within("new_flows_per_second", rate, 1, MOST)?);
                Some(Rate {
                    cost,
                    most: burst * cost,
                })
            }
        };
        let v4 = within("prefix_v4", config.prefix_v4.into(), 1, 32)?;
        let v6 = within("prefix_v6", config.prefix_v6.into(), 1, 128)?;
        let exempt = config.exempt.iter().enumerate().map(|(at, text)| {
            prefix(text).ok_or_else(|| {
                ConfigError::new(
                    format!("exempt[{at}]"),
                    format!("`{text}` is neither an address nor a prefix"),
                    "write it like \"10.0.0.53\" or \"2001:db8::/48\"",
                )
            })
        });
        Ok(Plan {
            flows: config.flows_per_host.0.unwrap_or(u32::MAX),
            rate,
            exempt: exempt.collect::<Result<_, _>>()?,
            // An IPv4 address is the last 32 of 128 bits.
            masks: [u128::MAX << (32 - v4), u128::MAX << (128 - v6)],
            lengths: [v4 as u8, v6 as u8],
            hosts: within("hosts_max", config.hosts_max, 1, HOSTS_MAX)? as usize,
        })
    }

    /// Whether an address has no limits.
    pub fn is_exempt(&self, addr: Addr) -> bool {
        self.exempt.iter().any(|prefix| prefix.contains(addr))
    }

    /// The host that an address counts for: the address without the bits that do not matter.
    pub fn host(&self, addr: Addr) -> Addr {
        let mask = self.masks[usize::from(!addr.is_v4())];
        Addr::v6((u128::from_be_bytes(*addr.octets()) & mask).to_be_bytes())
    }

    /// A host as a person writes it.
    pub fn name(&self, host: Addr) -> HostName {
        let length = self.lengths[usize::from(!host.is_v4())];
        let whole = length == if host.is_v4() { 32 } else { 128 };
        HostName {
            host,
            length: (!whole).then_some(length),
        }
    }
}

/// Prints an address, with the prefix's length if it is not the whole.
pub(super) struct HostName {
    host: Addr,
    length: Option<u8>,
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length {
            Some(length) => write!(f, "{}/{length}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

fn prefix(text: &str) -> Option<Prefix> {
    if let Ok(prefix) = text.parse() {
        return Some(prefix);
    }
    let addr: Addr = text.parse().ok()?;
    Prefix::new(addr, if addr.is_v4() { 32 } else { 128 })
}
