//! Settings of the forwarding step.
//!
//! ```toml
//! [function.forward]
//! interfaces = { lan = "eth0", wan = "eth1" }
//! reverse_path = { inside = "strict", outside = "loose" }
//! ```
//!
//! Not here: reading the kernel's tables, which the publisher does with these settings
//! ([`super::Feed`]).

use super::feed::Feed;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;
use nf::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serializer, de};

/// The table of the forwarding step.
#[derive(Deserialize, JsonSchema, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The interface of this host that each port is, by the port's name: its routes, neighbours,
    /// addresses and MTU count. VLAN sub-interfaces of it count as well. Without an entry, a port
    /// on an interface (`afpacket:`, `afxdp:`) is that interface.
    pub interfaces: BTreeMap<String, String>,
    /// How many ICMP errors each runtime sends per second at most; those that tell the MTU of a
    /// narrow link are as many more. Default 1000, Linux' `icmp_msgs_per_sec`.
    pub errors_per_second: u32,
    /// How long a flow's packets wait for a neighbour's link address. Then its sender is told that
    /// the host is unreachable. Default `"3s"`, as Linux asks three times with a second between
    /// (`mcast_solicit`, `retrans_time_ms`).
    #[schemars(with = "String", example = &"3s")]
    #[serde(deserialize_with = "some_period", serialize_with = "in_units")]
    pub resolve_timeout: Duration,
    /// How long a neighbour that has not answered is remembered after the last packet for it. Its
    /// packets are answered at once, and it is asked for again each second. Default `"30s"`.
    #[schemars(with = "String", example = &"30s")]
    #[serde(deserialize_with = "period", serialize_with = "in_units")]
    pub silent_for: Duration,
    /// Whether the packet that opens a flow, and later ones that way, may come from where they come
    /// (RFC 3704).
    pub reverse_path: ReversePath,
    /// Where the tables come from.
    #[serde(skip)]
    #[schemars(skip)]
    pub feed: Arc<Feed>,
}

/// The check of sources, by the side that packets come from.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct ReversePath {
    /// Of packets from inside. Default `"strict"`.
    pub inside: Check,
    /// Of packets from outside. Default `"loose"`: traffic of a host with several providers may
    /// come by another provider than it leaves by.
    pub outside: Check,
}

impl Default for ReversePath {
    fn default() -> Self {
        ReversePath {
            inside: Check::Strict,
            outside: Check::Loose,
        }
    }
}

/// How strict the check is (RFC 3704 2.2, 2.4).
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// The route to the source leads out by the interface that the packet came in by.
    Strict,
    /// There is a route to the source, be it the default one.
    Loose,
    /// No check.
    Off,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            interfaces: BTreeMap::new(),
            errors_per_second: 1000,
            resolve_timeout: Duration::from_secs(3),
            silent_for: Duration::from_secs(30),
            reverse_path: ReversePath::default(),
            feed: Arc::default(),
        }
    }
}

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(text.parse::<Period>().map_err(de::Error::custom)?.duration())
}

/// A time as the schema shows it: as it is read.
fn in_units<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Period::new(*time))
}

/// In no time no neighbour answers.
fn some_period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match period(deserializer)? {
        Duration::ZERO => Err(de::Error::custom(
            "no neighbour answers at once; write for example \"3s\"",
        )),
        time => Ok(time),
    }
}
