//! Settings of the forwarding step.
//!
//! ```toml
//! [function.forward]
//! interfaces = { lan = "eth0", wan = "eth1" }
//! ```
//!
//! Not here: reading the kernel's tables, which whoever runs the cluster does with these settings ([`super::Feed`]).

use super::feed::Feed;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;
use nf::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// The table of the forwarding step.
#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The interface of this host that each port is, by the port's name: its routes, neighbours, addresses and MTU count. VLAN
    /// sub-interfaces of it count as well. Without an entry, a port on an interface (`afpacket:`, `afxdp:`) is that one.
    pub interfaces: BTreeMap<String, String>,
    /// How many ICMP errors each runtime sends per second at most. Default 1000, Linux' `icmp_msgs_per_sec`.
    pub errors_per_second: u32,
    /// How long a flow's packets wait for a neighbour's link address. Then its sender is told that the host is unreachable.
    /// Default `"3s"`, as Linux asks three times with a second between (`mcast_solicit`, `retrans_time_ms`).
    #[schemars(with = "String", example = &"3s")]
    #[serde(deserialize_with = "period")]
    pub resolve_timeout: Duration,
    /// Where the tables come from.
    #[serde(skip)]
    #[schemars(skip)]
    pub feed: Arc<Feed>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            interfaces: BTreeMap::new(),
            errors_per_second: 1000,
            resolve_timeout: Duration::from_secs(3),
            feed: Arc::default(),
        }
    }
}

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(text.parse::<Period>().map_err(de::Error::custom)?.duration())
}
