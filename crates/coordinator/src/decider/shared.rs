//! Which runtimes share objects: it follows from heartbeats and views, and is in the log before it
//! is told.
//!
//! ```text
//!   heartbeat with Shares ─┐
//!   view ──────────────────┴─► look ─► record in the log ─► every Notification ─► runtimes
//! ```
//!
//! A coordinator that settles goes on with this: it removes no runtime itself, views do.
//!
//! The newest record alone is needed. Where functions share nothing there is none.
//!
//! Not here: the decisions themselves (`protocols::objects::Sharing`).

use super::{Decider, Pending};
use crate::proto;
use crate::refusal::Refusal;
use crate::translate;
use protocols::membership::{Incarnation, Role, WorkerId};
use protocols::objects::Sharing;
use protocols::ownership::RuntimeId;
use std::sync::Arc;

/// The decision, and the record that says so.
#[derive(Default)]
pub(super) struct Shared {
    pub machine: Sharing,
    record: Option<u64>,
}

impl Shared {
    /// Reads a record of the log; the one before it is needed no more. `None`: no coordinator has
    /// written it.
    pub fn replay(&mut self, record: u64, sharing: &proto::Sharing) -> Option<Option<u64>> {
        let decision = translate::to_sharing(sharing)?;
        self.machine = Sharing::replay(Some(decision));
        Some(self.record.replace(record))
    }

    /// Records in the log.
    pub fn records(&self) -> usize {
        usize::from(self.record.is_some())
    }

    /// Why nothing is decided any more: a runtime knows of more than the log.
    pub fn lost(&self, id: WorkerId) -> String {
        format!(
            "the log has lost records: runtime {} shares objects by a later one than {:?}, with which the log ends. Restore it \
             from a copy",
            id.number,
            self.machine.decided().course.stage
        )
    }

    /// For members, if there is anything to say.
    pub fn newest(&self) -> Option<proto::Sharing> {
        self.record.map(|_| translate::sharing(self.machine.decided()))
    }
}

impl Decider {
    /// A runtime of the view says how it is with the objects that it shares. Refused: the report is
    /// malformed, or the log has lost a decision that the runtime knows.
    pub(super) fn on_shares(
        &mut self,
        id: WorkerId,
        incarnation: Incarnation,
        shares: &proto::Shares,
    ) -> Result<(), Refusal> {
        let report = translate::to_shares(shares).filter(|_| id.role == Role::Runtime);
        let report = report.ok_or(Refusal::Malformed)?;
        let is_there = self.machine.view().has(id, incarnation);
        match !is_there
            || self
                .shared
                .machine
                .hear((RuntimeId(id.number), incarnation), report)
        {
            true => Ok(()),
            false => Err(Refusal::LogBehind),
        }
    }

    /// Writes the next decision, if there is cause for one.
    pub(super) fn look_at_shared(&mut self) {
        if self.is_over.is_some() {
            return;
        }
        if let Some(decision) = self.shared.machine.look(self.machine.view()) {
            let what = proto::record::What::Sharing(translate::sharing(&decision));
            self.record(what, Pending::Shared);
        }
    }

    /// It is in the log: runtimes hear of it.
    pub(super) fn on_shared(&mut self, record: u64) {
        self.shared.machine.logged();
        self.spare.extend(self.shared.record.replace(record));
        let sharing = self.shared.newest();
        self.published
            .send_modify(|published| Arc::make_mut(published).sharing = sharing);
        self.look_at_shared();
    }
}
