//! The steps of all calls: they ask the thread that decides, and refuse, which is counted and told.

use super::calls::Service;
use super::connections::Peer;
use crate::decider::{DeciderAnswer, Question};
use crate::refusal::{self, Refusal};
use crate::server::Event;
use tonic::Status;

impl Service {
    pub(super) fn refuse(
        &self,
        peer: Option<&Peer>,
        refusal: Refusal,
        why: impl std::fmt::Display,
    ) -> Status {
        self.refused.count(refusal);
        if let Some(peer) = peer {
            let (name, from) = (refusal.name(), peer.from);
            (self.events)(Event::Refused { name, from });
        }
        refusal.status(why)
    }

    pub(super) async fn ask(&self, peer: &Peer, question: Question) -> Result<DeciderAnswer, Status> {
        match self.handle.ask(question).await {
            DeciderAnswer::Refused(refusal, why) => Err(self.refuse(Some(peer), refusal, why)),
            DeciderAnswer::Over(newest, why) => {
                let status = self.refuse(Some(peer), Refusal::Incarnation, why);
                Err(refusal::behind(newest, status))
            }
            answer => Ok(answer),
        }
    }
}
