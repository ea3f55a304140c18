//! The machine hears an input; its decisions go into the log, and its views to their followers.
//!
//! Not here: which inputs there are (`decider`).

use super::{Decider, Pending, Published, enlisted, nanos};
use crate::proto;
use crate::server::Event;
use crate::translate;
use protocols::membership::{Input, Output};
use std::sync::Arc;
use std::time::Instant;

impl Decider {
    pub(super) fn at(&self, moment: Instant) -> u64 {
        nanos(moment.saturating_duration_since(self.begun))
    }

    /// Tells the machine, and does what it says.
    pub(super) fn tell(&mut self, moment: Instant, input: Input) {
        if self.is_over.is_some() {
            return;
        }
        let (view, list) = (self.machine.view().number, self.machine.suspects().0);
        let mut entries = Vec::new();
        let mut reached = None;
        self.machine
            .handle(self.at(moment), input, |output| match output {
                Output::Log(number, entry) => entries.push((number, entry)),
                Output::Reached(number) => reached = Some(number),
                // Members are told the newest by what is published.
                Output::Say(..) => {}
            });
        for (number, entry) in entries {
            let what = proto::record::What::Decision(translate::decision(number, &entry));
            let record = self.record(what, Pending::Entry(number));
            self.decisions.insert(number, record);
        }
        if let Some(number) = reached {
            (self.events)(Event::Reached(number));
        }
        if (view, list) != (self.machine.view().number, self.machine.suspects().0) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.look_at_configuration();
        let contacts = enlisted::contacts(&self.machine, &self.number_table);
        let published = Published::of(&self.machine, self.configured.decided(), contacts);
        (self.events)(Event::Published {
            view: published.view.number,
            members: published.view.members.len(),
            suspects: published.suspects.workers.len(),
        });
        let (view, table) = (self.machine.view(), &self.number_table);
        // An incarnation behind which another one has asked comes into no view.
        self.joining.retain(|(id, incarnation)| {
            let there = view.member(*id).map(|member| member.incarnation);
            let newest = table.newest(*id);
            there.is_none_or(|there| there < *incarnation)
                && newest.is_none_or(|newest| newest <= *incarnation)
        });
        self.heard.retain(|id, _| view.member(*id).is_some());
        self.unheard
            .retain(|(id, incarnation)| view.has(*id, *incarnation));
        let published = Published {
            loads: self.loads(Instant::now()),
            sharing: self.shared.newest(),
            ..published
        };
        self.published.send_replace(Arc::new(published));
        let needed = self.machine.needed();
        let spare = self
            .decisions
            .extract_if(.., |number, _| !needed.contains(number));
        self.spare.extend(spare.map(|(_, record)| record));
    }
}
