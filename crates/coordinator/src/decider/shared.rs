//! Which runtimes share objects: what follows from heartbeats and views, in the log before it is told.
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

/// What was decided, and the record that says so.
#[derive(Default)]
pub(super) struct Shared {
    pub machine: Sharing,
    record: Option<u64>,
}

impl Shared {
    /// Reads a record of the log; the one before it is needed no more. `None`: no coordinator has written it.
    pub fn replay(&mut self, record: u64, sharing: &proto::Sharing) -> Option<Option<u64>> {
        let decision = translate::to_sharing(sharing)?;
        self.machine = Sharing::replay(Some(decision));
        Some(self.record.replace(record))
    }

    /// Records in the log.
    pub fn records(&self) -> usize {
        usize::from(self.record.is_some())
    }

    /// For members, if there is anything to say.
    pub fn newest(&self) -> Option<proto::Sharing> {
        self.record.map(|_| translate::sharing(self.machine.decided()))
    }
}

impl Decider {
    /// A runtime of the view says how it is with the objects that it shares. Or why the word is refused; behind the log, why that is not to be trusted.
    pub(super) fn on_shares(
        &mut self,
        id: WorkerId,
        life: Incarnation,
        shares: &proto::Shares,
    ) -> Result<(), (Refusal, String)> {
        let report = translate::to_shares(shares).filter(|_| id.role == Role::Runtime);
        let report = report.ok_or((Refusal::Malformed, String::new()))?;
        let reached = report.reached;
        let is_member = self.machine.view().has(id, life);
        if !is_member || self.shared.machine.hear((RuntimeId(id.number), life), report) {
            return Ok(());
        }
        let why = format!(
            "the log has lost records: runtime {} shares objects in {reached:?}, the log ends with {:?}. Restore it from a copy",
            id.number,
            self.shared.machine.decided().course.stage
        );
        Err((Refusal::LogBehind, why))
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
