//! Settings of the HTTP parser.
//!
//! ```toml
//! [function.http_parser]
//! ports = [80, 8080]       # not said: every TCP connection
//! early_max = 64
//! ```
//!
//! Not here: the use of what was read (the parent module).

use crate::stream::EARLY_MAX;
use alloc::vec::Vec;
use schemars::JsonSchema;
use serde::Deserialize;

/// The table of the HTTP parser.
#[derive(Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Ports whose connections are read, at either end. Default: none named, and every TCP
    /// connection is read until it is seen not to be HTTP, which its first line tells.
    pub ports: Vec<u16>,
    /// TCP segments of one direction of a flow of which copies wait for a gap, at most. Default 64.
    /// All flows of a runtime share `held_max`.
    #[schemars(range(max = 4096))]
    #[serde(deserialize_with = "crate::stream::early_max")]
    pub early_max: u16,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            ports: Vec::new(),
            early_max: EARLY_MAX as u16,
        }
    }
}
