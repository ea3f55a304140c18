//! Invariant 8: a drop verdict is enforced on every path, and nothing fails open: a packet that the
//! configuration does not allow never leaves, however full tables, pools and queues are.

use super::Violation;
use crate::script::{Fate, Talk};
use crate::world::Packet;

/// A packet of a talk has left the cluster.
pub(crate) fn left(packet: &Packet, talk: &Talk) -> Result<(), Violation> {
    let is_forbidden = matches!(talk.fate, Fate::Silent | Fate::Rejected);
    if is_forbidden && !packet.is_answer {
        let what = format!("{packet} left, which the configuration does not let pass ({talk})");
        return Err(Violation::new("enforced", what));
    }
    Ok(())
}
