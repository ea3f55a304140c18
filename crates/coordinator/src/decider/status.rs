//! The members' status for an operator.

use super::Decider;
use crate::proto;
use crate::translate;
use std::time::Instant;

impl Decider {
    pub(super) fn status(&self) -> proto::StatusAnswer {
        let suspects = self.machine.suspects().1;
        let members = self.machine.view().members().iter().map(|member| {
            let heard = self.heard.get(&member.id);
            let silent = heard.map_or(self.begun.elapsed(), |(at, _)| at.elapsed());
            proto::MemberStatus {
                name: self.number_table.name(member.id).unwrap_or_default().to_owned(),
                member: Some(translate::member(member)),
                load: heard.map(|(_, load)| *load),
                silent: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
                suspected: suspects.contains(&(member.id, member.incarnation)),
                configuration: self
                    .number_table
                    .name(member.id)
                    .map_or(0, |name| self.configured.in_force(name)),
            }
        });
        let trouble = self.is_over.clone().or_else(|| self.trouble.clone());
        let records = self.decisions.len()
            + self.number_table.records()
            + self.configured.records()
            + self.shared.records()
            + self.spare.len();
        proto::StatusAnswer {
            view: self.machine.view().number,
            members: members.collect(),
            refused: self
                .refused
                .all()
                .map(|(name, count)| proto::Count {
                    name: name.to_owned(),
                    count,
                })
                .collect(),
            trouble: trouble.unwrap_or_default(),
            records: records as u64,
            // The service knows.
            serving: Vec::new(),
            counted: Vec::new(),
            configuration: Some(proto::Decided {
                trial: self.configured.trial_left(Instant::now()),
                ..self.configured.decided()
            }),
        }
    }
}
