//! What all decisions do: they hand a record to the log, and look whose lives the view has.
//!
//! Not here: what follows when the log has it (`Decider::on_written`).

use super::{Decider, Pending};
use crate::proto;
use prost::Message;
use protocols::membership::{Incarnation, WorkerId};

impl Decider {
    /// Hands a record to the log.
    pub(super) fn record(&mut self, what: proto::record::What, pending: Pending) -> u64 {
        let number = self.next_record;
        self.next_record += 1;
        let record = proto::Record { what: Some(what) }.encode_to_vec();
        self.pending.push_back((number, pending));
        self.writer.append(number, record);
        number
    }

    /// Lives of a member's workers in the view.
    pub(super) fn lives_of(&self, member: &str) -> Vec<(WorkerId, Incarnation)> {
        let members = self.machine.view().members().iter();
        let its = members.filter(|known| self.book.is_of(known.id, member));
        its.map(|known| (known.id, known.incarnation)).collect()
    }
}
