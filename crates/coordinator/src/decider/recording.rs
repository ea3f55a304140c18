//! The steps of all decisions: they hand a record to the log, and look whose incarnations the view
//! has.
//!
//! Not here: the steps once the log has it (`Decider::on_written`).

use super::{Decider, Pending};
use crate::proto;
use prost::Message;
use protocols::membership::{Incarnation, WorkerId};

fn encoded(what: proto::record::What) -> Vec<u8> {
    proto::Record { what: Some(what) }.encode_to_vec()
}

impl Decider {
    /// Hands a record to the log.
    pub(super) fn record(&mut self, what: proto::record::What, pending: Pending) -> u64 {
        let number = self.expect_written(pending);
        self.writer.append(number, encoded(what));
        number
    }

    /// The same of a decision for which an operator waits: it is withdrawn if the log does not take
    /// it. How long leases last is said again in its place, which changes nothing.
    pub(super) fn record_or_withdraw(&mut self, what: proto::record::What, pending: Pending) {
        let number = self.expect_written(pending);
        let nanoseconds = self.timing.term.lease;
        let leases = proto::record::What::Leases(proto::Leases { nanoseconds });
        self.writer.append_or(number, encoded(what), encoded(leases));
    }

    fn expect_written(&mut self, pending: Pending) -> u64 {
        let number = self.next_record;
        self.next_record += 1;
        self.pending.push_back((number, pending));
        number
    }

    /// Incarnations of a member's workers in the view.
    pub(super) fn incarnations_of(&self, member: &str) -> Vec<(WorkerId, Incarnation)> {
        let members = self.machine.view().members().iter();
        let its = members.filter(|known| self.number_table.is_of(known.id, member));
        its.map(|known| (known.id, known.incarnation)).collect()
    }
}
