//! `flowkeep flow events`: a line per flow that opens, ends, moves, or goes on behind a failure.
//!
//! ```text
//! 2026-11-23T14:35:07.250000000Z  opened    tcp 10.0.0.1:40000 -> 192.0.2.1:443  translated 203.0.113.6:2815 -> 198.51.100.1:443  chain web  runtime 0
//! ```
//!
//! An event that finds no room on its way here is lost and counted, and the count is said: by a
//! line with `--json`, else on standard error. Packets never wait for a reader.
//!
//! Not here: where events come from (`runtime::watch::flows`), how they cross from the workers
//! (`crate::run`).

pub mod job;

pub use crate::report::Ends;
use crate::shape::Shape;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which flows are followed.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Flows with an end in this prefix, before or behind the translation.
    pub address: Option<String>,
    /// Flows of this IP protocol.
    pub protocol: Option<u8>,
}

/// A flow, and an event of its life.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
pub struct FlowLine {
    /// When: RFC 3339, UTC.
    pub time: String,
    /// `opened`, `ended`, `moved_in`, `moved_out` or `recovered`.
    pub event: String,
    /// At which runtime.
    pub runtime: u16,
    /// Its IP protocol.
    pub protocol: String,
    /// Its VLAN; 0 for none.
    #[serde(default)]
    pub vlan: u16,
    /// The source of the first packet.
    pub source: String,
    /// Its destination.
    pub destination: String,
    /// How the first packet left, if the chain translated it.
    #[serde(default)]
    pub translated: Option<Ends>,
    /// Its chain.
    pub chain: String,
    /// Asked over the cluster: the member that has the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

impl Shape for FlowLine {
    const NAME: &'static str = "flow-event";
    /// 2: `vlan` and `translated` are always there.
    const VERSION: u32 = 2;
}

/// A line among them: there was no room for some.
#[derive(Serialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
pub struct LostLine {
    /// `lost`.
    event: &'static str,
    /// How many are missing before the next line.
    count: u64,
}

impl LostLine {
    /// So many are missing.
    pub fn of(count: u64) -> Self {
        LostLine { event: "lost", count }
    }
}

impl Shape for LostLine {
    const NAME: &'static str = "flow-events-lost";
}

impl fmt::Display for FlowLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}  {:9} {} {} -> {}",
            self.time, self.event, self.protocol, self.source, self.destination
        )?;
        if self.vlan != 0 {
            write!(f, "  vlan {}", self.vlan)?;
        }
        if let Some(Ends { source, destination }) = &self.translated {
            write!(f, "  translated {source} -> {destination}")?;
        }
        write!(f, "  chain {}  runtime {}", self.chain, self.runtime)?;
        match &self.member {
            Some(member) => write!(f, " ({member})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_as_text_and_as_json() {
        let mut line = FlowLine {
            time: "2026-11-23T14:35:07.250000000Z".into(),
            event: "opened".into(),
            runtime: 1,
            protocol: "tcp".into(),
            vlan: 0,
            source: "10.0.0.1:40000".into(),
            destination: "192.0.2.1:443".into(),
            translated: None,
            chain: "web".into(),
            member: None,
        };
        let text = "2026-11-23T14:35:07.250000000Z  opened    tcp 10.0.0.1:40000 -> 192.0.2.1:443  chain web  runtime 1";
        assert_eq!(line.to_string(), text);
        let json = serde_json::to_value(&line).unwrap();
        assert!(json["vlan"] == 0 && json["translated"].is_null(), "{json}");
        line.vlan = 7;
        line.translated = Some(Ends {
            source: "203.0.113.6:2815".into(),
            destination: "192.0.2.1:443".into(),
        });
        assert!(
            line.to_string()
                .contains("  vlan 7  translated 203.0.113.6:2815 -> 192.0.2.1:443  chain"),
            "{line}"
        );
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(serde_json::from_value::<FlowLine>(json).unwrap(), line);
    }
}
