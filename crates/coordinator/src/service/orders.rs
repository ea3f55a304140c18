//! Orders that the coordinator gives to members for an operator: each is a request of the member's
//! own, relayed to the member that it concerns.
//!
//! ```text
//!   SetMigrationTarget(source, target, flows) ─► the member that has `source`
//!   SetReplicas(runtime, replica) ─────────────► the member that has `runtime`
//!   SetReplicas(chain, policy) ────────────────► each member that has runtimes; the first that refuses ends it
//! ```
//!
//! Not here: a request's text ([`crate::relay::Scribe`]), the removal of a runtime (`decider`).

use super::calls::Service;
use super::connections::Peer;
use crate::decider::{DeciderAnswer, Question};
use crate::proto::{self, MemberAnswer, WorkerRole};
use crate::refusal::Refusal;
use crate::relay::MemberOrder;
use std::collections::BTreeMap;
use tonic::Status;

/// Runtimes in view, by number, each with its member.
type Owners = BTreeMap<u16, String>;

impl Service {
    /// A runtime's number.
    pub(super) fn number(&self, peer: &Peer, number: u32) -> Result<u16, Status> {
        let malformed = |_| {
            let why = format!("{number} is no runtime's number: those are below 65536");
            self.refuse(Some(peer), Refusal::Malformed, why)
        };
        u16::try_from(number).map_err(malformed)
    }

    async fn owners(&self, peer: &Peer) -> Result<Owners, Status> {
        let DeciderAnswer::Status(status) = self.ask(peer, Question::Status).await? else {
            return Err(Status::internal("another answer"));
        };
        let mut owners = Owners::new();
        for known in status.members {
            let worker = known.member.and_then(|member| member.worker);
            if let Some(worker) = worker.filter(|worker| worker.role() == WorkerRole::Runtime)
                && let Ok(number) = u16::try_from(worker.number)
            {
                owners.insert(number, known.name);
            }
        }
        Ok(owners)
    }

    fn owner<'a>(&self, peer: &Peer, owners: &'a Owners, runtime: u16) -> Result<&'a str, Status> {
        owners.get(&runtime).map(String::as_str).ok_or_else(|| {
            let there = owners.iter();
            let there: Vec<String> = there
                .map(|(number, member)| format!("{number} ({member})"))
                .collect();
            let why = format!(
                "no member in view has runtime {runtime}; there are: {}",
                there.join(", ")
            );
            self.refuse(Some(peer), Refusal::NoMember, why)
        })
    }

    async fn order(&self, peer: &Peer, member: &str, order: MemberOrder<'_>) -> Result<MemberAnswer, Status> {
        let said = (self.scribe)(order);
        let request = said.map_err(|why| self.refuse(Some(peer), Refusal::Malformed, why))?;
        match self.relay.ask(member, request).await {
            Ok(answer) => Ok(MemberAnswer {
                member: member.to_owned(),
                answer,
            }),
            Err((refusal, why)) => Err(self.refuse(Some(peer), refusal, why)),
        }
    }

    /// Flows of one runtime are to go to another.
    pub(super) async fn migrate(
        &self,
        peer: &Peer,
        request: proto::SetMigrationTargetRequest,
    ) -> Result<MemberAnswer, Status> {
        let source = self.number(peer, request.source)?;
        let target = self.number(peer, request.target)?;
        let owners = self.owners(peer).await?;
        let member = self.owner(peer, &owners, source)?;
        self.owner(peer, &owners, target)?;
        let flows = request.flows;
        let order = MemberOrder::Migrate {
            source,
            target,
            flows,
        };
        self.order(peer, member, order).await
    }

    /// Other copies are to be kept.
    pub(super) async fn replicate(
        &self,
        peer: &Peer,
        request: proto::SetReplicasRequest,
    ) -> Result<Vec<MemberAnswer>, Status> {
        let owners = self.owners(peer).await?;
        if !request.chain.is_empty() {
            return self.copy(peer, &owners, &request).await;
        }
        let runtime = self.number(peer, request.runtime)?;
        let replica = match *request.replicas {
            [] => None,
            [one] => Some(self.number(peer, one)?),
            _ => {
                let why = "a runtime has one replica at most: name one, or none for the layout's own";
                return Err(self.refuse(Some(peer), Refusal::Malformed, why));
            }
        };
        if let Some(replica) = replica {
            self.owner(peer, &owners, replica)?;
        }
        let member = self.owner(peer, &owners, runtime)?;
        let order = MemberOrder::Replica { runtime, replica };
        Ok(vec![self.order(peer, member, order).await?])
    }

    async fn copy(
        &self,
        peer: &Peer,
        owners: &Owners,
        request: &proto::SetReplicasRequest,
    ) -> Result<Vec<MemberAnswer>, Status> {
        let order = MemberOrder::Copy {
            chain: &request.chain,
            policy: &request.policy,
        };
        let mut members: Vec<&String> = owners.values().collect();
        members.sort_unstable();
        members.dedup();
        let mut answers = Vec::new();
        for member in members {
            answers.push(self.order(peer, member, order).await?);
        }
        Ok(answers)
    }
}
