//! What an operator asks a coordinator, call by call, without an async runtime of one's own.

use crate::agent::{CallError, connect};
use crate::identity::Identity;
use crate::proto;
use std::time::Duration;
use tonic::Status;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// An operator's certificate, and where the coordinator is.
pub struct Operator {
    /// HOST:PORT
    pub address: String,
    /// The certificate.
    pub identity: Identity,
}

fn within<T>(work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let late = |why: &str| CallError::from(Status::deadline_exceeded(why));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| CallError::from(Status::internal(why.to_string())))?;
    let answered = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
    answered.map_err(|_| late("no answer in time"))?
}

impl Operator {
    /// Who is there.
    pub fn status(&self) -> Result<proto::StatusAnswer, CallError> {
        within(async {
            let mut client = connect(&self.address, &self.identity).await?;
            Ok(client.status(proto::StatusRequest {}).await?.into_inner())
        })
    }

    /// A member gets no new groups. It is in the view when this returns.
    pub fn drain(&self, member: &str) -> Result<(), CallError> {
        let member = member.to_owned();
        within(async {
            let mut client = connect(&self.address, &self.identity).await?;
            client.drain(proto::DrainRequest { member }).await?;
            Ok(())
        })
    }
}
