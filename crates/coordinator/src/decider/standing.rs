//! How workers are to stand: drained, running again, in no view.
//!
//! Not here: a worker that says itself that it is ready (`decider`).

use super::{Decider, DeciderAnswer, PATIENCE, Waiting};
use crate::refusal::Refusal;
use protocols::membership::{Incarnation, Input, Standing, WorkerId};
use std::time::Instant;
use tokio::sync::oneshot;

impl Decider {
    /// An operator says how the workers of a member are to stand.
    pub(super) fn on_stand(
        &mut self,
        member: &str,
        standing: Standing,
        answer: oneshot::Sender<DeciderAnswer>,
    ) {
        let mut incarnations = self.incarnations_of(member);
        if incarnations.is_empty() {
            let why = format!("no member in view is called `{member}`");
            let _ = answer.send(DeciderAnswer::Refused(Refusal::NoMember, why));
            return;
        }
        if standing == Standing::Running {
            // A worker that joins runs when it says that it is ready.
            let view = self.machine.view();
            incarnations.retain(|(id, _)| {
                let member = view.member(*id);
                member.is_some_and(|member| member.standing != Standing::Joining)
            });
        }
        self.stand(incarnations, Some(standing), answer);
    }

    /// A runtime is to be removed: nothing of this incarnation of it is heard from now on.
    pub(super) fn on_recover(&mut self, id: WorkerId, answer: oneshot::Sender<DeciderAnswer>) {
        let Some(member) = self.machine.view().member(id).copied() else {
            let why = format!("no member in view has runtime {}", id.number);
            let _ = answer.send(DeciderAnswer::Refused(Refusal::NoMember, why));
            return;
        };
        let incarnation = (id, member.incarnation);
        self.unheard.insert(incarnation);
        self.wait(vec![incarnation], None, answer);
    }

    pub(super) fn stand(
        &mut self,
        incarnations: Vec<(WorkerId, Incarnation)>,
        standing: Option<Standing>,
        answer: oneshot::Sender<DeciderAnswer>,
    ) {
        for (id, incarnation) in &incarnations {
            self.tell(Instant::now(), Input::Stand(*id, *incarnation, standing));
        }
        self.wait(incarnations, standing, answer);
    }

    /// An operator, or a member, is answered when these stand so in a view.
    pub(super) fn wait(
        &mut self,
        incarnations: Vec<(WorkerId, Incarnation)>,
        standing: Option<Standing>,
        answer: oneshot::Sender<DeciderAnswer>,
    ) {
        self.waiting.push(Waiting {
            until: Instant::now() + PATIENCE,
            incarnations,
            standing,
            answer,
        });
    }
}
