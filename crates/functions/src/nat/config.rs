//! NAT's settings, and what they are compiled to.
//!
//! ```toml
//! [function.nat]
//! pool = ["203.0.113.0/28"]                  # external addresses
//! inside = ["10.0.0.0/8"]                    # sources to translate; default: all from inside
//! filtering = "address-dependent"
//! timeouts = { udp = "5m" }
//! static = [
//!     { inside = "10.0.0.5:80", outside = "203.0.113.1:80", protocol = "tcp" },
//!     { inside = "10.0.0.6", outside = "203.0.113.20" },    # 1:1: all ports, all protocols
//! ]
//! ```
//!
//! Every default is a requirement's or the field's practice, named at the field. A setting that
//! cannot work is refused with its place and what to write instead; unknown names are refused.
//!
//! Sources: RFC 4787 (UDP), 5382 (TCP), 5508 (ICMP), 6888 (logging, limits), 7857 (updates).

use super::alloc::format;
use super::alloc::string::{String, ToString};
use super::alloc::vec;
use super::alloc::vec::Vec;
use super::pool;
use super::ports::keeps_ports;
use super::state::{BLOCKS_MAX, PHASES, Phase, V4Endpoint};
use super::written;
use core::fmt::Display;
use core::str::FromStr;
use core::time::Duration;
use nf::{Addr, Claim, ConfigError, Endpoint, Prefix, Side};
use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serializer};
use wire::protocol;

/// The most external addresses of one pool: the tables of free blocks are made at the start.
pub const POOL_MAX: u32 = 4096;

/// The most blocks of one pool, for the same reason.
const BLOCKS_IN_POOL_MAX: u64 = 1 << 22;

/// The segment that every host takes: no clamp goes below.
const MSS_MIN: u16 = 536;

/// When two packets of one inside endpoint get the same external endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MappingBehavior {
    /// Always, for every remote end (RFC 4787 REQ-1, RFC 5382 REQ-1).
    #[default]
    EndpointIndependent,
    /// Only if they are for the same remote address and port. Breaks applications that meet through
    /// a third party.
    AddressAndPortDependent,
}

/// Which remote ends a mapping lets in from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Filtering {
    /// All: most transparent to applications (RFC 4787 REQ-8).
    EndpointIndependent,
    /// Remote addresses that a flow of the mapping talks with. RFC 4787 REQ-8 recommends this where
    /// stringency counts more; so it is the default, which fails closed.
    #[default]
    AddressDependent,
    /// The very remote endpoints that a flow of the mapping talks with.
    AddressAndPortDependent,
}

/// The treatment of protocols that have no ports to translate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OtherProtocols {
    /// Dropped: private addresses do not leak.
    #[default]
    Drop,
    /// Passed untouched, from inside and back.
    Pass,
}

/// The answer to an inside host for whose flow there is no port or no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Refusals {
    /// Nothing.
    #[default]
    Drop,
    /// ICMP Destination Unreachable, administratively prohibited (RFC 5508 REQ-8), a thousand per
    /// second and runtime at most.
    Answer,
}

/// The lines that the event log gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Log {
    /// Each mapping, when it is made and when it goes (RFC 6888 REQ-12 names the fields).
    #[default]
    Mappings,
    /// Each port block, when a host gets it and gives it back: enough to find the host that used a
    /// port, and far fewer lines (RFC 6888 REQ-14).
    Blocks,
    /// Nothing.
    None,
}

/// The protocol of a static mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StaticProtocol {
    /// All, for an address without a port.
    #[default]
    Any,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP queries, of an address without a port.
    Icmp,
    /// GRE (RFC 2784; PPTP's, RFC 2637), of an address without a port.
    Gre,
    /// IPsec's ESP (RFC 4303), of an address without a port.
    Esp,
    /// SCTP (RFC 9260), of an address without a port.
    Sctp,
}

/// All protocols, where a protocol's number stands; IANA keeps it reserved.
pub(super) const ANY: u8 = 255;

impl StaticProtocol {
    pub(super) fn number(self) -> u8 {
        match self {
            StaticProtocol::Tcp => protocol::TCP,
            StaticProtocol::Udp => protocol::UDP,
            StaticProtocol::Icmp => protocol::ICMP,
            StaticProtocol::Gre => protocol::GRE,
            StaticProtocol::Esp => protocol::ESP,
            StaticProtocol::Sctp => protocol::SCTP,
            StaticProtocol::Any => ANY,
        }
    }
}

/// An external endpoint that always stands for an inside endpoint; or an external address for an
/// inside address, with ports and identifiers as they are. All outside may open flows to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticMapping {
    /// The inside endpoint, `10.0.0.5:80`, or the whole address, `10.0.0.5`: the port is 0 then.
    #[serde(deserialize_with = "static_end")]
    #[schemars(with = "String")]
    pub inside: Endpoint,
    /// The external endpoint, `203.0.113.1:80`, or address. Its port block is never given to a
    /// host, nor is any of a whole address, unless `protocol` is one whose ports hosts are not
    /// given.
    #[serde(deserialize_with = "static_end")]
    #[schemars(with = "String")]
    pub outside: Endpoint,
    /// `tcp` or `udp` for an endpoint. For an address any, and by default all.
    #[serde(default)]
    pub protocol: StaticProtocol,
}

/// Static mappings, in the order they are written and findable by their external endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(from = "Vec<StaticMapping>")]
#[schemars(with = "Vec<StaticMapping>")]
pub struct StaticMappings {
    listed: Vec<StaticMapping>,
    /// Sorted: the switch looks here for each packet to an address of ours that no block's owner
    /// has.
    by_outside: Vec<(u8, Endpoint, Endpoint)>,
}

impl From<Vec<StaticMapping>> for StaticMappings {
    fn from(listed: Vec<StaticMapping>) -> Self {
        let entry = |m: &StaticMapping| (m.protocol.number(), m.outside, m.inside);
        let mut by_outside: Vec<_> = listed.iter().map(entry).collect();
        by_outside.sort_unstable();
        StaticMappings { listed, by_outside }
    }
}

impl StaticMappings {
    /// The inside endpoint that an external one stands for: by itself, or with its address.
    pub(super) fn inside_of(&self, outside: Endpoint, protocol: u8) -> Option<Endpoint> {
        if self.by_outside.is_empty() {
            return None;
        }
        let find = |protocol: u8, outside: Endpoint| {
            let key = (protocol, outside);
            let at = self.by_outside.binary_search_by(|(p, o, _)| (*p, *o).cmp(&key));
            at.ok()
                .and_then(|at| self.by_outside.get(at))
                .map(|(_, _, inside)| *inside)
        };
        let whole = Endpoint::new(outside.addr, 0);
        find(protocol, outside).or_else(|| {
            let inside = find(protocol, whole).or_else(|| find(ANY, whole))?;
            Some(Endpoint::new(inside.addr, outside.port))
        })
    }
}

/// How long a flow lives without a packet. Written with units: `90s`, `5m`, `2h4m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// TCP, both ends having sent their SYN. Default and least: 2 h 4 min (RFC 5382 REQ-5).
    #[serde(deserialize_with = "duration", serialize_with = "in_units")]
    #[schemars(with = "String")]
    pub tcp_established: Duration,
    /// TCP opening, or begun in the middle. Default: 4 min (RFC 5382 REQ-5). It may be less, where
    /// half-open connections are a concern (RFC 7857 2.1).
    #[serde(deserialize_with = "duration", serialize_with = "in_units")]
    #[schemars(with = "String")]
    pub tcp_opening: Duration,
    /// TCP closing or reset. Default and least: 4 min (RFC 5382 REQ-5, RFC 7857 2.2).
    #[serde(deserialize_with = "duration", serialize_with = "in_units")]
    #[schemars(with = "String")]
    pub tcp_closing: Duration,
    /// UDP. Default: 5 min, the recommendation of RFC 4787 REQ-5 c; least: 2 min.
    #[serde(deserialize_with = "duration", serialize_with = "in_units")]
    #[schemars(with = "String")]
    pub udp: Duration,
    /// UDP to a remote port below 1024, which may be shorter (RFC 4787 REQ-5 a). Default: 5 min.
    #[serde(deserialize_with = "duration", serialize_with = "in_units")]
    #[schemars(with = "String")]
    pub udp_well_known: Duration,
    /// ICMP queries. Default and least: 60 s (RFC 5508 REQ-2).
    #[serde(deserialize_with = "duration", serialize_with = "in_units")]
    #[schemars(with = "String")]
    pub icmp_query: Duration,
    /// Allows less than the least values above, for laboratories. Default: false.
    pub below_rfc: bool,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_established: Duration::from_secs(2 * 3600 + 4 * 60),
            tcp_opening: Duration::from_secs(4 * 60),
            tcp_closing: Duration::from_secs(4 * 60),
            udp: Duration::from_secs(5 * 60),
            udp_well_known: Duration::from_secs(5 * 60),
            icmp_query: Duration::from_secs(60),
            below_rfc: false,
        }
    }
}

/// The settings of `nat`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Source prefixes that are translated when they come from inside, and that outside hosts may
    /// not address directly. Default: all of IPv4. Other sources pass untouched.
    #[serde(deserialize_with = "list")]
    #[schemars(with = "Vec<String>")]
    pub inside: Vec<Prefix>,
    /// External addresses and prefixes, IPv4. Required; together at most 4096 addresses.
    #[serde(deserialize_with = "list")]
    #[schemars(with = "Vec<String>")]
    pub pool: Vec<Prefix>,
    /// First and last external port, `"1024-65535"`. Default: just that (RFC 4787 REQ-3 a: ports
    /// above 1023 stay above). Only whole blocks of it are used.
    #[serde(deserialize_with = "written::range", serialize_with = "written::as_range")]
    #[schemars(with = "String")]
    pub ports: (u16, u16),
    /// Ports per block, a power of two from 1 to 32768. Default: 256: above the ports that nearly
    /// every subscriber uses at a time, and 252 hosts to an external address.
    #[schemars(range(min = 1, max = 32768), example = 256)]
    pub block_size: u32,
    /// The most blocks of one host, 1 to 24. Default: 16 (4096 ports per protocol; RFC 6888 REQ-4
    /// asks for a limit).
    #[schemars(range(min = 1, max = BLOCKS_MAX))]
    pub blocks_per_host: u32,
    /// Default: `endpoint-independent`.
    pub mapping: MappingBehavior,
    /// Default: `address-dependent`.
    pub filtering: Filtering,
    /// Uses the inside port outside, too, where it lies in a block that the host has, or in the
    /// next block that the host needs: the port chooses the host's first block, but no further
    /// block is taken for it while the blocks that the host has have room. Default: true: hosts
    /// choose their ports at random (RFC 6056), and external ports stay as random.
    pub preserve_ports: bool,
    /// Gives even UDP ports even external ports and odd ones odd (RFC 4787 REQ-4) as long as such
    /// ports are free. Default: true.
    pub preserve_parity: bool,
    /// Lets inside hosts reach each other by external endpoints (RFC 4787 REQ-9, with external
    /// source address and port). Default: true.
    pub hairpinning: bool,
    /// Static mappings. Default: none.
    #[serde(rename = "static")]
    pub static_mappings: StaticMappings,
    /// Default: `drop`.
    pub other_protocols: OtherProtocols,
    /// Default: `drop`.
    pub refusals: Refusals,
    /// Whether an echo request for an external address itself is answered, from outside and inside,
    /// a thousand per second and runtime at most (RFC 1812 4.3.3.6). Requests that have a mapping
    /// go to its host. Default: false: no such request is answered.
    pub answer_pings: bool,
    /// The largest TCP segment in bytes that a translated SYN may offer, in either direction; a
    /// larger offer is lowered. For paths whose MTU is smaller than their ends know: MTU less 40.
    /// From 536 (RFC 9293 3.7.1). Default: offers stay as they are.
    #[schemars(range(min = 536), example = 1360)]
    pub mss_clamp: Option<u16>,
    /// Default: `mappings`.
    pub log: Log,
    /// How long flows live without a packet.
    pub timeouts: Timeouts,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            inside: vec![Prefix::new(Addr::v4([0; 4]), 0).expect("a length of 0 is allowed")],
            pool: Vec::new(),
            ports: (1024, 65535),
            block_size: 256,
            blocks_per_host: 16,
            mapping: MappingBehavior::default(),
            filtering: Filtering::default(),
            preserve_ports: true,
            preserve_parity: true,
            hairpinning: true,
            static_mappings: StaticMappings::default(),
            other_protocols: OtherProtocols::default(),
            refusals: Refusals::default(),
            answer_pings: false,
            mss_clamp: None,
            log: Log::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// An endpoint, or an address, whose port is 0 then.
fn static_end<'de, D: Deserializer<'de>>(from: D) -> Result<Endpoint, D::Error> {
    let text = String::deserialize(from)?;
    if let Ok(address) = text.parse::<Addr>() {
        return Ok(Endpoint::new(address, 0));
    }
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!(
            "`{text}` is neither an address nor an address with a port from 0 to 65535; write for example \"10.0.0.5:80\" or \"10.0.0.5\""
        ))
    })
}

fn list<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let one = |text: &String| {
        text.parse()
            .map_err(|e| serde::de::Error::custom(format!("`{text}`: {e}")))
    };
    texts.iter().map(one).collect()
}

/// A duration as the schema shows it: as it is read.
fn in_units<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&nf::Period::new(*duration))
}

/// A duration, as text; a number is answered with its unit missing.
struct InUnits;

impl Visitor<'_> for InUnits {
    type Value = Duration;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a time with its unit, like \"90s\" or \"2h4m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        parse_duration(text).ok_or_else(|| match text.parse::<u64>() {
            Ok(number) => E::custom(format!("`{number}` has no unit; write \"{number}s\"")),
            Err(_) => E::custom(format!(
                "`{text}` is no duration; write numbers with units, like `90s`, `5m` or `2h4m`"
            )),
        })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Duration, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Duration, E> {
        self.visit_str(&number.to_string())
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    from.deserialize_any(InUnits)
}

/// `2h4m`, `90s`, `1d`, `250ms`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let letters = unit
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(unit.len());
        let milliseconds = match &unit[..letters] {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60 * 1000,
            "h" => 3600 * 1000,
            "d" => 24 * 3600 * 1000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(milliseconds)?))?;
        rest = unit[letters..].trim_start();
    }
    Some(total)
}

/// The settings as the instance uses them: checked, sorted, counted.
pub(super) struct Plan {
    /// First and last address of each stretch, sorted.
    pub pool: Vec<(u32, u32)>,
    pub first_port: u16,
    pub block_size: u16,
    pub blocks_per_address: u16,
    pub blocks_per_host: usize,
    /// Sorted by protocol and inside endpoint.
    pub by_inside: Vec<(u8, V4Endpoint, V4Endpoint)>,
    /// Sorted by protocol and external endpoint: (protocol, outside, inside).
    pub by_outside: Vec<(u8, V4Endpoint, V4Endpoint)>,
    /// External addresses of static mappings, sorted.
    static_addresses: Vec<[u8; 4]>,
    /// By [`Phase`].
    pub timeouts: [Option<Duration>; PHASES],
    /// The inside prefixes: mask, and the bits of an address under it.
    inside: Vec<(u32, u32)>,
}

impl Plan {
    /// Checks and compiles.
    pub fn new(config: &Config) -> Result<Plan, ConfigError> {
        let pool = pool::stretches(config)?;
        let (first_port, blocks_per_address) = blocks(config)?;
        let (by_inside, by_outside) = statics(config)?;
        let addresses: u32 = pool.iter().map(|(first, last)| last - first + 1).sum();
        let all_blocks = u64::from(addresses) * u64::from(blocks_per_address);
        if all_blocks > BLOCKS_IN_POOL_MAX {
            return Err(ConfigError::new(
                "block_size",
                format!("{all_blocks} blocks are more than one instance keeps account of"),
                format!("make blocks larger, or the pool smaller: at most {BLOCKS_IN_POOL_MAX} blocks"),
            ));
        }
        if let Some(most) = config.mss_clamp.filter(|most| *most < MSS_MIN) {
            return Err(ConfigError::new(
                "mss_clamp",
                format!("{most} is less than every host must take (RFC 9293 3.7.1)"),
                format!("write the path's MTU less 40, at least {MSS_MIN}"),
            ));
        }
        let mut static_addresses: Vec<_> = by_outside.iter().map(|(_, outside, _)| outside.addr).collect();
        static_addresses.sort_unstable();
        static_addresses.dedup();
        for (at, prefix) in config.inside.iter().enumerate() {
            if !prefix.is_v4() {
                let place = format!("inside[{at}]");
                return Err(ConfigError::new(
                    place,
                    format!("{prefix} is not IPv4"),
                    "remove it: IPv6 always passes untouched",
                ));
            }
        }
        let plan = Plan {
            pool,
            first_port,
            block_size: config.block_size as u16,
            blocks_per_address,
            blocks_per_host: config.blocks_per_host as usize,
            by_inside,
            by_outside,
            static_addresses,
            timeouts: timeouts(&config.timeouts)?,
            inside: config.inside.iter().map(masked).collect(),
        };
        let outsider = |mapping: &StaticMapping| {
            let inside = V4Endpoint::of(mapping.inside);
            inside.is_some_and(|inside| !plan.is_inside(inside.addr))
        };
        if let Some(at) = config.static_mappings.listed.iter().position(outsider) {
            return Err(ConfigError::new(
                format!("static[{at}].inside"),
                "no prefix of `inside` has it: its first packets would leave untranslated",
                "add it to `inside`",
            ));
        }
        Ok(plan)
    }

    /// Whether an address is one of those that are translated.
    pub fn is_inside(&self, addr: [u8; 4]) -> bool {
        let addr = u32::from_be_bytes(addr);
        self.inside.iter().any(|(mask, rest)| addr & mask == *rest)
    }

    /// Whether the block that begins there is of the pool.
    pub fn has_block(&self, addr: u32, first: u16) -> bool {
        let at = self.pool.partition_point(|(_, last)| *last < addr);
        self.pool.get(at).is_some_and(|(first, _)| *first <= addr)
            && self.block_ports().contains(&u32::from(first))
    }

    /// The ports of an address's blocks.
    pub fn block_ports(&self) -> core::ops::Range<u32> {
        let begin = u32::from(self.first_port);
        begin..begin + u32::from(self.blocks_per_address) * u32::from(self.block_size)
    }

    /// Whether a host may have a mapping to this external endpoint.
    pub fn may_give(&self, outside: V4Endpoint) -> bool {
        let first = |port: u16| port & !(self.block_size - 1);
        let is_kept = |(protocol, kept, _): &(u8, V4Endpoint, V4Endpoint)| {
            let is_in = match kept.port {
                0 => keeps_ports(*protocol),
                port => first(port) == first(outside.port),
            };
            kept.addr == outside.addr && is_in
        };
        self.has_block(outside.number(), first(outside.port)) && !self.by_outside.iter().any(is_kept)
    }

    /// The external endpoint of a static mapping.
    pub fn static_outside(&self, inside: V4Endpoint, protocol: u8) -> Option<V4Endpoint> {
        let outside = find(&self.by_inside, protocol, inside)?;
        // An endpoint's own mapping goes before its address's: by it, the outside endpoint may be
        // another host's.
        (self.static_inside(outside, protocol) == Some(inside)).then_some(outside)
    }

    /// The inside endpoint of a static mapping.
    pub fn static_inside(&self, outside: V4Endpoint, protocol: u8) -> Option<V4Endpoint> {
        find(&self.by_outside, protocol, outside)
    }

    /// Whether a static mapping uses this external address.
    pub fn is_static_address(&self, addr: [u8; 4]) -> bool {
        self.static_addresses.binary_search(&addr).is_ok()
    }
}

pub(super) fn masked(prefix: &Prefix) -> (u32, u32) {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.length())).unwrap_or(0);
    (mask, prefix.addr().low_u32() & mask)
}

/// The endpoint that an endpoint is mapped to: by itself, or with its address.
fn find(table: &[(u8, V4Endpoint, V4Endpoint)], protocol: u8, key: V4Endpoint) -> Option<V4Endpoint> {
    if table.is_empty() {
        return None;
    }
    let exact = |protocol: u8, key: V4Endpoint| {
        let at = table.binary_search_by(|(p, k, _)| (*p, *k).cmp(&(protocol, key)));
        at.ok().and_then(|at| table.get(at)).map(|(_, _, to)| *to)
    };
    let whole = V4Endpoint::new(key.addr, 0);
    exact(protocol, key).or_else(|| {
        let to = exact(protocol, whole).or_else(|| exact(ANY, whole))?;
        Some(V4Endpoint::new(to.addr, key.port))
    })
}

fn blocks(config: &Config) -> Result<(u16, u16), ConfigError> {
    let (first, last) = config.ports;
    let size = config.block_size;
    if !size.is_power_of_two() || size > 32768 {
        let near = size.clamp(1, 32768).next_power_of_two();
        return Err(ConfigError::new(
            "block_size",
            format!("{size} is not a power of two from 1 to 32768"),
            format!("write {near}"),
        ));
    }
    if first == 0 || first > last {
        return Err(ConfigError::new(
            "ports",
            format!("{first} to {last} is no range of ports"),
            "write the first and the last, like ports = \"1024-65535\"",
        ));
    }
    let start = u32::from(first).next_multiple_of(size);
    let count = (u32::from(last) + 1).saturating_sub(start) / size;
    if count == 0 {
        return Err(ConfigError::new(
            "ports",
            format!("{first} to {last} holds no whole block of {size} ports"),
            "widen it, or make block_size smaller",
        ));
    }
    if !(1..=BLOCKS_MAX).contains(&(config.blocks_per_host as usize)) {
        return Err(ConfigError::new(
            "blocks_per_host",
            format!("{} is not from 1 to {BLOCKS_MAX}", config.blocks_per_host),
            match config.blocks_per_host {
                0 => "write 1 or more".into(),
                _ => format!("write {BLOCKS_MAX}; for more ports per host make block_size larger"),
            },
        ));
    }
    Ok((start as u16, count as u16))
}

impl Config {
    /// Settings that mappings are made by cannot change while there are mappings.
    pub(super) fn may_follow(&self, before: &Config) -> Result<(), ConfigError> {
        let same = [
            ("mapping", self.mapping == before.mapping),
            ("filtering", self.filtering == before.filtering),
            ("block_size", self.block_size == before.block_size),
        ];
        match same.iter().find(|(_, same)| !same) {
            None => Ok(()),
            Some((setting, _)) => Err(ConfigError::new(
                *setting,
                "the mappings that there are follow it, so it cannot change",
                "leave it as it was, or restart",
            )),
        }
    }

    /// The pool, and the outside addresses of static mappings that are not of it.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let mut prefixes = self.pool.clone();
        for mapping in &self.static_mappings.listed {
            let address = mapping.outside.addr;
            if address.is_v4() && !prefixes.iter().any(|prefix| prefix.contains(address)) {
                prefixes.extend(Prefix::new(address, 32));
            }
        }
        let outside = |addresses| Claim {
            addresses,
            side: Some(Side::Outside),
        };
        prefixes.into_iter().map(outside).collect()
    }
}

type Pairs = Vec<(u8, V4Endpoint, V4Endpoint)>;

fn statics(config: &Config) -> Result<(Pairs, Pairs), ConfigError> {
    let (mut by_inside, mut by_outside) = (Pairs::new(), Pairs::new());
    for (at, mapping) in config.static_mappings.listed.iter().enumerate() {
        let v4 = |name: &str, endpoint: Endpoint| {
            V4Endpoint::of(endpoint).ok_or_else(|| {
                ConfigError::new(
                    format!("static[{at}].{name}"),
                    format!("{endpoint} is not IPv4"),
                    "write an endpoint like 192.0.2.1:80, or an address",
                )
            })
        };
        let (inside, outside) = (v4("inside", mapping.inside)?, v4("outside", mapping.outside)?);
        let has_ports = matches!(mapping.protocol, StaticProtocol::Tcp | StaticProtocol::Udp);
        if (inside.port == 0) != (outside.port == 0) {
            return Err(ConfigError::new(
                format!("static[{at}]"),
                "one of its ends has a port, and the other has none",
                "write a port at both, or at none for whole addresses",
            ));
        }
        if inside.port != 0 && !has_ports {
            return Err(ConfigError::new(
                format!("static[{at}].protocol"),
                "only tcp and udp have ports here",
                "write protocol = \"tcp\" or \"udp\", or leave the ports out",
            ));
        }
        let protocol = mapping.protocol.number();
        let twice =
            |table: &Pairs, key: V4Endpoint| table.iter().any(|(p, k, _)| (*p, *k) == (protocol, key));
        if inside.addr == [0; 4] || outside.addr == [0; 4] {
            return Err(ConfigError::new(
                format!("static[{at}]"),
                "0.0.0.0 is no host's address",
                "write both addresses",
            ));
        }
        for (name, table, key) in [("inside", &by_inside, inside), ("outside", &by_outside, outside)] {
            if twice(table, key) {
                return Err(ConfigError::new(
                    format!("static[{at}].{name}"),
                    match key.port {
                        0 => format!("{} already has a static mapping", Addr::v4(key.addr)),
                        _ => format!("{key} already has a static mapping"),
                    },
                    "an inside endpoint has one external endpoint and the other way round: remove one",
                ));
            }
        }
        by_inside.push((protocol, inside, outside));
        by_outside.push((protocol, outside, inside));
    }
    by_inside.sort_unstable();
    by_outside.sort_unstable();
    Ok((by_inside, by_outside))
}

fn timeouts(t: &Timeouts) -> Result<[Option<Duration>; PHASES], ConfigError> {
    let least = [
        ("tcp_established", t.tcp_established, 7440, "RFC 5382 REQ-5"),
        ("tcp_opening", t.tcp_opening, 1, "a handshake needs time"),
        ("tcp_closing", t.tcp_closing, 240, "RFC 5382 REQ-5"),
        ("udp", t.udp, 120, "RFC 4787 REQ-5"),
        (
            "udp_well_known",
            t.udp_well_known,
            1,
            "a flow needs time for an answer",
        ),
        ("icmp_query", t.icmp_query, 60, "RFC 5508 REQ-2"),
    ];
    for (name, value, seconds, source) in least {
        if value.is_zero() || (!t.below_rfc && value < Duration::from_secs(seconds)) {
            return Err(ConfigError::new(
                format!("timeouts.{name}"),
                format!("{} is too short ({source})", nf::Period::new(value)),
                match t.below_rfc {
                    true => "write \"1ms\" or more".into(),
                    false => {
                        format!("write \"{seconds}s\" or more; in a laboratory, below_rfc = true allows less")
                    }
                },
            ));
        }
    }
    let mut by_phase = [None; PHASES];
    for phase in [Phase::Opening, Phase::PickedUp] {
        by_phase[phase as usize] = Some(t.tcp_opening);
    }
    for phase in [Phase::Closing, Phase::Reset] {
        by_phase[phase as usize] = Some(t.tcp_closing);
    }
    for phase in [Phase::Established, Phase::OpenerFin, Phase::ReplierFin] {
        by_phase[phase as usize] = Some(t.tcp_established);
    }
    by_phase[Phase::Udp as usize] = Some(t.udp);
    by_phase[Phase::UdpWellKnown as usize] = Some(t.udp_well_known);
    by_phase[Phase::Query as usize] = Some(t.icmp_query);
    Ok(by_phase)
}
