//! Which configuration is in force: decided by the log, heard by all members, told back by each.
//!
//! # Theory of operation
//!
//! ```text
//!   Configure(view, number) ─► is it the next number, of the newest view? ─► log ─► in every Notification ─► members commit
//!   Workload(configuration) ─► what the member has in force ─► all of the view have it: reached ─► switches follow
//! ```
//!
//! The record in the log is the decision: before it a change can be taken back, behind it every
//! member takes it on, however late the member comes. A member that joins asks for the text
//! (`Configuration`) before its workers are made.
//!
//! Number 1 is the configuration of the members' files. Where the last members of a view have left
//! of their own will, the next ones start by their files again: that is a number of its own,
//! without a text. Members that died have left nothing, so the decided configuration stays.
//!
//! A configuration on trial goes back by itself (`trial`).
//!
//! A decision that an operator asked for, and that the log does not take, is *withdrawn*: it does
//! not come when there is room again, when members would cut flows for it unasked.
//!
//! Invariants: numbers grow by one; of two operators that decide at once, one is refused; a record
//! is in the log before any member hears of it; a decision that is refused is never in the log.
//!
//! Not here: how members prepare and commit (`flowkeep::apply`), which caller may ask (`service`).

use super::{Decider, DeciderAnswer, Pending};
use crate::proto;
use crate::refusal::Refusal;
use protocols::membership::{Incarnation, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// The decided configuration, and those that members have.
pub(super) struct Configured {
    pub(super) newest: proto::Configuration,
    /// Of a configuration on trial: when it goes back.
    pub(super) trial_until: Option<Instant>,
    /// The record that says so.
    record: Option<u64>,
    is_reached: bool,
    /// A record of it is on its way to the log.
    pub(super) is_deciding: bool,
    /// By member, the number that it has in force.
    in_force: BTreeMap<String, u64>,
    /// Incarnations of the view that leave of their own will.
    leaving: BTreeSet<(WorkerId, Incarnation)>,
}

impl Default for Configured {
    fn default() -> Self {
        Configured {
            newest: proto::Configuration {
                number: 1,
                ..proto::Configuration::default()
            },
            trial_until: None,
            record: None,
            is_reached: false,
            is_deciding: false,
            in_force: BTreeMap::new(),
            leaving: BTreeSet::new(),
        }
    }
}

impl Configured {
    /// Reads a record of the log; the one before it is needed no more. `None`: no coordinator has
    /// written it.
    pub fn replay(&mut self, record: u64, configuration: proto::Configuration) -> Option<Option<u64>> {
        let follows = configuration.number == self.newest.number.checked_add(1)?;
        if !follows && !self.confirms(&configuration) && self.record.is_some() {
            return None;
        }
        Some(self.take(record, configuration))
    }

    fn take(&mut self, record: u64, configuration: proto::Configuration) -> Option<u64> {
        self.trial_until = super::trial::until(&configuration);
        self.newest = configuration;
        self.is_reached = false;
        self.record.replace(record)
    }

    /// Records in the log.
    pub fn records(&self) -> usize {
        usize::from(self.record.is_some())
    }

    /// The configuration decided last.
    pub fn newest(&self) -> &proto::Configuration {
        &self.newest
    }

    /// The same, without its text.
    pub fn decided(&self) -> proto::Decided {
        proto::Decided {
            number: self.newest.number,
            digest: self.newest.digest.clone(),
            reached: self.is_reached,
            trial: 0,
        }
    }

    /// The number that a member has in force; 0 if it has said none.
    pub fn in_force(&self, member: &str) -> u64 {
        self.in_force.get(member).copied().unwrap_or(0)
    }

    /// These incarnations leave of their own will.
    pub fn leaves(&mut self, incarnations: &[(WorkerId, Incarnation)]) {
        self.leaving.extend(incarnations);
    }
}

impl Decider {
    /// An operator decides, if nothing else was decided meanwhile.
    pub(super) fn on_configure(
        &mut self,
        view: u32,
        configuration: proto::Configuration,
        answer: oneshot::Sender<DeciderAnswer>,
    ) {
        let newest = self.configured.newest.number;
        let why = if self.configured.is_deciding || newest.checked_add(1) != Some(configuration.number) {
            Some(format!(
                "configuration {newest} is in force, and {} does not follow it",
                configuration.number
            ))
        } else if view != self.machine.view().number {
            let now = self.machine.view().number;
            Some(format!(
                "the view is {now} now, and the members of {view} have prepared it"
            ))
        } else {
            None
        };
        if let Some(why) = why {
            let why = format!("{why}: another was decided meanwhile; nothing has changed, ask again");
            let _ = answer.send(DeciderAnswer::Refused(Refusal::Overtaken, why));
            return;
        }
        if let Some(why) = self.configured.why_not_during_trial(&configuration) {
            let _ = answer.send(DeciderAnswer::Refused(Refusal::OnTrial, why));
            return;
        }
        self.decide_configuration(super::trial::dated(configuration), Some(answer));
    }

    pub(super) fn decide_configuration(
        &mut self,
        configuration: proto::Configuration,
        answer: Option<oneshot::Sender<DeciderAnswer>>,
    ) {
        self.configured.is_deciding = true;
        let is_asked = answer.is_some();
        let pending = Pending::Configured(Box::new(configuration.clone()), answer);
        let what = proto::record::What::Configured(configuration);
        if is_asked {
            self.record_or_withdraw(what, pending);
        } else {
            self.record(what, pending);
        }
    }

    /// It is not in the log, and never will be: the operator is told so.
    pub(super) fn on_withdrawn(&mut self, record: u64) {
        let place = self.pending.iter_mut().find(|(number, _)| *number == record);
        let Some((_, pending)) = place else {
            return;
        };
        if let Pending::Configured(configuration, answer) = std::mem::replace(pending, Pending::Instead) {
            self.configured.is_deciding = false;
            let trouble = self.trouble.clone().unwrap_or_default();
            let why = format!(
                "{trouble}; the request about configuration {} is not decided, and does not come later: \
                 nothing has changed, ask again when there is room",
                configuration.number
            );
            if let Some(answer) = answer {
                let _ = answer.send(DeciderAnswer::Refused(Refusal::LogUnwritable, why));
            }
        }
    }

    /// It is in the log: members hear of it.
    pub(super) fn on_configured(
        &mut self,
        record: u64,
        configuration: proto::Configuration,
        answer: Option<oneshot::Sender<DeciderAnswer>>,
    ) {
        self.configured.is_deciding = false;
        self.spare.extend(self.configured.take(record, configuration));
        self.look_at_reached();
        self.publish_configuration();
        if let Some(answer) = answer {
            let newest = self.configured.newest.clone();
            let _ = answer.send(DeciderAnswer::Configuration(Box::new(newest)));
        }
    }

    /// A member has said which configuration it has in force.
    pub(super) fn on_in_force(&mut self, member: &str, number: u64) {
        let known = self.configured.in_force.get_mut(member);
        match known {
            Some(known) if *known == number => return,
            Some(known) => *known = number,
            None => drop(self.configured.in_force.insert(member.to_owned(), number)),
        }
        if self.look_at_reached() {
            self.publish_configuration();
        }
    }

    /// Whether all members of the view have it, and that is another answer than before.
    fn look_at_reached(&mut self) -> bool {
        let newest = self.configured.newest.number;
        let has = |id: WorkerId| {
            let name = self.number_table.name(id);
            name.is_some_and(|name| self.configured.in_force(name) >= newest)
        };
        let is_reached = self.machine.view().members().iter().all(|member| has(member.id));
        std::mem::replace(&mut self.configured.is_reached, is_reached) != is_reached
    }

    fn publish_configuration(&self) {
        let configuration = self.configured.decided();
        self.published.send_modify(|published| {
            Arc::make_mut(published).configuration = configuration;
        });
    }

    /// Another view: whether the last have left of their own will, so that files count again.
    pub(super) fn look_at_configuration(&mut self) {
        let view = self.machine.view();
        let is_empty = view.members().is_empty();
        let has_left = !self.configured.leaving.is_empty();
        let Configured { leaving, .. } = &mut self.configured;
        leaving.retain(|(id, incarnation)| view.has(*id, *incarnation));
        self.look_at_reached();
        if is_empty && has_left && !self.configured.newest.text.is_empty() && !self.configured.is_deciding {
            self.configured.in_force.clear();
            let number = self.configured.newest.number.saturating_add(1);
            let configuration = proto::Configuration {
                number,
                ..proto::Configuration::default()
            };
            self.decide_configuration(configuration, None);
        }
    }
}
