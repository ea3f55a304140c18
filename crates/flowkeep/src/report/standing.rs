//! The purpose of a runtime, in one word.

use runtime::stats::RuntimeStats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether a runtime takes flows.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The runtime takes flows, if it has room.
    #[default]
    Active,
    /// The runtime takes none, and has some that are yet to go.
    Draining,
    /// The runtime takes none, and has none.
    Drained,
    /// The runtime is not there: it was removed, or has yet to be added.
    Absent,
}

impl Standing {
    /// Of a runtime that is there, or is not.
    pub fn of(stats: &RuntimeStats, is_absent: bool) -> Self {
        match stats.leaving {
            _ if is_absent => Standing::Absent,
            true if stats.flows > 0 => Standing::Draining,
            true => Standing::Drained,
            false => Standing::Active,
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Standing::Active => "active",
            Standing::Draining => "draining",
            Standing::Drained => "drained",
            Standing::Absent => "absent",
        })
    }
}
