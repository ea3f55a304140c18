//! Settings of the HTTP parser.
//!
//! ```toml
//! [function.http_parser]
//! ports = [80, 8080]       # not said: every TCP connection
//! ```
//!
//! Not here: what is done with what was read (the parent module).

use alloc::vec::Vec;
use schemars::JsonSchema;
use serde::Deserialize;

/// The table of the HTTP parser.
#[derive(Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Ports whose connections are read, at either end. Default: none named, and every TCP connection is read until it is
    /// seen not to be HTTP, which its first line tells.
    pub ports: Vec<u16>,
}
