//! Settings of the counter.
//!
//! ```toml
//! [function.counter]
//! by = "inside_host"
//! most = 100000
//! ```
//!
//! Not here: where counts are kept (`[store]`), and counting (the parent module).

use schemars::JsonSchema;
use serde::Deserialize;

/// The key of the counts.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// By IP protocol.
    #[default]
    Protocol,
    /// By the address of the flow's inside end.
    InsideHost,
}

/// The table of the counter.
#[derive(Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The key of the counts: `"protocol"`, or `"inside_host"`. Default `"protocol"`.
    #[schemars(example = &"inside_host")]
    pub by: By,
    /// The most protocols or hosts that a runtime counts; packets of others are counted in
    /// `uncounted`. The setting cannot change while the counter runs. Default 65536.
    #[schemars(range(min = 1, max = 16777216), example = 100_000)]
    pub most: u32,
    /// Whether a packet waits until the store has its count: synchronous, for counts that must not
    /// be lost. Default `false`.
    #[schemars(example = true)]
    pub wait: bool,
    /// Whether each runtime has the whole function's counts, too, for the command `merged`: the
    /// sums over all runtimes and members, as the store has them (`[store] merge`). Default
    /// `false`.
    #[schemars(example = true)]
    pub merged: bool,
}

/// The most keys that may be asked for.
pub const MOST: u32 = 1 << 24;

impl Default for Config {
    fn default() -> Self {
        Config {
            by: By::Protocol,
            most: 1 << 16,
            wait: false,
            merged: false,
        }
    }
}
