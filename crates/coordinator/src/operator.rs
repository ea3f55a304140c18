//! An operator's calls to a coordinator, without an async runtime of the caller's own.

use crate::agent::{CallError, Client, Tried, Tries, connect_any};
use crate::identity::Identity;
use crate::proto;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tonic::Status;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Members that are asked at once at most.
const AT_ONCE: usize = 8;

/// An operator's certificate, and where the coordinators are.
pub struct Operator {
    /// HOST:PORT of each. The first that answers is asked.
    pub addresses: Vec<String>,
    /// The certificate.
    pub identity: Identity,
}

fn late() -> CallError {
    CallError::from(Status::deadline_exceeded("no answer in time"))
}

fn runtime() -> Result<Runtime, CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|why| CallError::from(Status::internal(why.to_string())))
}

fn within<T>(runtime: &Runtime, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let answered = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
    answered.map_err(|_| late())?
}

impl Operator {
    /// Connects.
    pub fn connect(&self) -> Result<Line, CallError> {
        let runtime = runtime()?;
        let (client, tries) = within(&runtime, connect_any(&self.addresses, &self.identity))?;
        Ok(Line {
            runtime,
            client,
            tries,
        })
    }
}

/// A connection to a coordinator. If it ends, the next question makes another one, to the first
/// coordinator that answers then.
pub struct Line {
    runtime: Runtime,
    client: Client,
    tries: Tries,
}

impl Line {
    /// Which coordinator answers, and why those that were tried before it did not.
    pub fn tried(&self) -> Tried {
        self.tries.last()
    }

    /// The members, as the coordinator knows them.
    pub fn status(&mut self) -> Result<proto::StatusAnswer, CallError> {
        let client = &mut self.client;
        within(&self.runtime, async {
            Ok(client.status(proto::StatusRequest {}).await?.into_inner())
        })
    }

    /// A member gets no new groups. It is in the view when this returns.
    pub fn drain(&mut self, member: &str) -> Result<(), CallError> {
        let client = &mut self.client;
        let member = member.to_owned();
        within(&self.runtime, async {
            client.drain(proto::DrainRequest { member }).await?;
            Ok(())
        })
    }

    /// A member that leaves gets new groups again. It is so in the view when this returns.
    pub fn resume(&mut self, member: &str) -> Result<(), CallError> {
        let client = &mut self.client;
        let member = member.to_owned();
        within(&self.runtime, async {
            client.resume(proto::ResumeRequest { member }).await?;
            Ok(())
        })
    }

    /// So many flows of one runtime are to go to another; 0: all. The answer of the member that has
    /// the first.
    pub fn migrate(
        &mut self,
        source: u32,
        target: u32,
        flows: u64,
    ) -> Result<proto::MemberAnswer, CallError> {
        let client = &mut self.client;
        let request = proto::SetMigrationTargetRequest {
            source,
            target,
            flows,
        };
        within(&self.runtime, async {
            let answer = client.set_migration_target(request).await?.into_inner();
            Ok(answer.answer.unwrap_or_default())
        })
    }

    /// Which runtime is to keep the copies of another runtime's flows. The answer of the member
    /// that has this one.
    pub fn replica(
        &mut self,
        runtime: u32,
        replica: Option<u32>,
    ) -> Result<Vec<proto::MemberAnswer>, CallError> {
        self.set_replicas(proto::SetReplicasRequest {
            runtime,
            replicas: replica.into_iter().collect(),
            ..proto::SetReplicasRequest::default()
        })
    }

    /// Which copies are to be kept of a chain's flows; empty: as the configuration says. The answer
    /// of each member.
    pub fn copies(&mut self, chain: &str, policy: &str) -> Result<Vec<proto::MemberAnswer>, CallError> {
        self.set_replicas(proto::SetReplicasRequest {
            chain: chain.to_owned(),
            policy: policy.to_owned(),
            ..proto::SetReplicasRequest::default()
        })
    }

    fn set_replicas(
        &mut self,
        request: proto::SetReplicasRequest,
    ) -> Result<Vec<proto::MemberAnswer>, CallError> {
        let client = &mut self.client;
        within(&self.runtime, async {
            Ok(client.set_replicas(request).await?.into_inner().answers)
        })
    }

    /// The counts of a member's functions, as the member said last; empty if it has said nothing.
    pub fn counted(&mut self, member: &str) -> Result<Vec<u8>, CallError> {
        let client = &mut self.client;
        let member = member.to_owned();
        within(&self.runtime, async {
            let request = proto::CountedRequest { member };
            Ok(client.counted(request).await?.into_inner().counts)
        })
    }

    /// A runtime is no member any more, though it lives: the number of the view without it.
    pub fn recover(&mut self, runtime: u32) -> Result<u32, CallError> {
        let client = &mut self.client;
        within(&self.runtime, async {
            let request = proto::RecoverRequest { runtime };
            Ok(client.recover(request).await?.into_inner().view)
        })
    }

    /// A token by which one process becomes this member, good for so many seconds.
    pub fn token(&mut self, member: &str, valid: u64) -> Result<String, CallError> {
        let client = &mut self.client;
        let member = member.to_owned();
        within(&self.runtime, async {
            let request = proto::MakeTokenRequest { member, valid };
            Ok(client.make_token(request).await?.into_inner().token)
        })
    }

    /// The configuration that was decided last.
    pub fn configuration(&mut self) -> Result<proto::Configuration, CallError> {
        let client = &mut self.client;
        within(&self.runtime, async {
            let answer = client.configuration(proto::ConfigurationRequest {}).await?;
            Ok(answer.into_inner())
        })
    }

    /// This configuration is in force from now on, at all members of a view, which have prepared
    /// it. The log has it when this returns.
    pub fn configure(&mut self, view: u32, configuration: proto::Configuration) -> Result<(), CallError> {
        let client = &mut self.client;
        let request = proto::ConfigureRequest {
            view,
            configuration: Some(configuration),
        };
        within(&self.runtime, async {
            client.configure(request).await?;
            Ok(())
        })
    }

    /// The configuration that is on trial stays; its number. The log has it when this returns.
    pub fn confirm(&mut self) -> Result<u64, CallError> {
        let client = &mut self.client;
        within(&self.runtime, async {
            Ok(client
                .confirm(proto::ConfirmRequest {})
                .await?
                .into_inner()
                .number)
        })
    }

    /// Asks members, each its own request, several at once; the outcome of each, in their order.
    pub fn relay(&mut self, requests: Vec<(String, Vec<u8>)>) -> Vec<Result<Vec<u8>, CallError>> {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        self.runtime.block_on(async {
            let asked: Vec<_> = requests
                .into_iter()
                .map(|(member, request)| {
                    let (mut client, room) = (self.client.clone(), room.clone());
                    tokio::spawn(async move {
                        let _place = room.acquire().await;
                        let request = proto::RelayRequest { member, request };
                        let answered = tokio::time::timeout(PATIENCE, client.relay(request)).await;
                        Ok(answered.map_err(|_| late())??.into_inner().answer)
                    })
                })
                .collect();
            let mut answers = Vec::new();
            for asked in asked {
                let failed = |why: tokio::task::JoinError| CallError::from(Status::internal(why.to_string()));
                answers.push(asked.await.map_err(failed).and_then(|answer| answer));
            }
            answers
        })
    }
}
