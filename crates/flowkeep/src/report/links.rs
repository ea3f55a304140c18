//! Links to other processes, as `status` has them.

use crate::cluster::LinkStats;
use crate::member::secrets;
use protocols::channel::DropReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One link to another process.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// The worker of this process, like `switch 0`.
    pub from: String,
    /// The worker at the other end, like `runtime 1`.
    pub to: String,
    /// The member that has that one.
    #[serde(default)]
    pub member: String,
    /// `memory`, or `channel` to another host.
    pub kind: String,
    /// Whether the peer at the other end is met.
    pub is_there: bool,
    /// Why not, if a peer is there and is not met.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Packets received.
    pub received_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that were for a peer that was not there any more.
    pub lost_packets: u64,
    /// The number of refused frames, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Frames that were sent again although the first of them had come: they are no error.
    #[serde(default)]
    pub repeated_frames: u64,
    /// How often the other end of a channel has been met: each time but the first, a session had
    /// ended.
    #[serde(default)]
    pub meetings: u64,
}

impl From<&LinkStats> for LinkStatus {
    fn from(link: &LinkStats) -> Self {
        let refused = link.refused.iter();
        let refused = refused
            .map(|(reason, count)| ((*reason).to_owned(), *count))
            .collect();
        LinkStatus {
            from: link.from.to_string(),
            to: link.to.to_string(),
            member: link.member.clone(),
            kind: link.kind.to_owned(),
            is_there: link.session != 0,
            why: why_not_met(link).unwrap_or_default(),
            received_packets: link.counters.received_packets,
            sent_packets: link.counters.sent_packets,
            lost_packets: link.counters.unsent_packets,
            refused,
            repeated_frames: link.repeated,
            meetings: link.meetings,
        }
    }
}

/// Why the peer at the other end of a link is not met.
fn why_not_met(link: &LinkStats) -> Option<String> {
    if link.session != 0 {
        return None;
    }
    if let Some(differs) = secrets::difference(&link.differs, &link.functions) {
        return Some(format!(
            "it differs from this one: {differs}. All members read the same file, by the same build"
        ));
    }
    let why = match link.not_met_for? {
        DropReason::UnknownKey => "its frames have a key of a number that is in none of this one's `keys`",
        DropReason::Tag => {
            "its frames do not have the tag that this one's key of that number makes: the key files differ, or frames are forged"
        }
        DropReason::Protection => "one of the two has protection = \"damage-only\" and the other has keys",
        DropReason::Version => "its frames are of another version",
        _ => return None,
    };
    Some(why.to_owned())
}
