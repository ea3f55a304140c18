//! Settings of the flow monitor.
//!
//! ```toml
//! [flow_monitor]
//! idle_timeout = "60s"
//! closed_timeout = "5s"      # or "none"
//! ```

use alloc::borrow::Cow;
use core::fmt;
use core::time::Duration;
use nf::Period;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The table of the flow monitor.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long a flow is without a packet when its record is written. `"none"`: records wait for
    /// the end of the run.
    ///
    /// Default `"60s"`: Juniper's flow-inactive-timeout, Zeek's `udp_inactivity_timeout`. (Cisco's
    /// NetFlow has 15 seconds, Zeek's `tcp_inactivity_timeout` 5 minutes.)
    pub idle_timeout: Timeout,
    /// The same for a TCP connection that both ends have closed or one end has reset, where it is
    /// shorter than `idle_timeout`.
    ///
    /// Default `"5s"`, Zeek's `tcp_close_delay`: the last stragglers still belong to the record,
    /// and a later reuse of the ports makes a record of its own.
    pub closed_timeout: Timeout,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            idle_timeout: Timeout::seconds(60),
            closed_timeout: Timeout::seconds(5),
        }
    }
}

/// A time, or `"none"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeout(Option<Duration>);

impl Timeout {
    /// No timeout.
    pub const NONE: Timeout = Timeout(None);

    /// A number of seconds.
    pub const fn seconds(seconds: u32) -> Self {
        Timeout(Some(Duration::from_secs(seconds as u64)))
    }

    /// The time, if there is one.
    pub fn duration(self) -> Option<Duration> {
        self.0
    }
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeoutVisitor)
    }
}

impl JsonSchema for Timeout {
    fn schema_name() -> Cow<'static, str> {
        "Timeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A time with its unit (d, h, m, s, ms, us, ns; several after each other as in 1m30s), or none.",
            "pattern": "^(none|([0-9_]+ *(d|h|m|s|ms|us|ns) *)+)$",
            "examples": ["60s", "none"],
        })
    }
}

struct TimeoutVisitor;

impl Visitor<'_> for TimeoutVisitor {
    type Value = Timeout;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit, like \"60s\", or \"none\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timeout, E> {
        if text == "none" {
            return Ok(Timeout::NONE);
        }
        match text.parse::<Period>().map_err(E::custom)?.duration() {
            Duration::ZERO => Err(E::custom(
                "a flow cannot end at once; write \"1s\" or more, or \"none\"",
            )),
            time => Ok(Timeout(Some(time))),
        }
    }
}
