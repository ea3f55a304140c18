//! The log in etcd, and the election of the one coordinator that may write it.
//!
//! ```text
//!   coordinator ── LeaseGrant ──► lease L          kept alive by a thread, each TTL / 3
//!               ── Txn: PREFIX/leader is not there? put it with L ─► elected, at revision E
//!               ── Txn: PREFIX/leader is of E, record N is not there? put it ─► written
//! ```
//!
//! A coordinator whose lease is over is not the leader any more, and etcd takes no record of it: the comparison fails, whatever that
//! coordinator believes. So no two write one log.
//!
//! Invariant: a record is written only while the key that this coordinator was elected by is there.
//!
//! Not here: TLS to etcd. It listens where only coordinators reach it, as a rule on the same hosts.

use super::{Log, LogError, opened, sealed};
use crate::proto::etcd::kv_client::KvClient;
use crate::proto::etcd::lease_client::LeaseClient;
use crate::proto::etcd::{self, compare, request_op, response_op};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// Of the leader's lease.
const TTL: Duration = Duration::from_secs(3);
/// How long a call may take.
const CALL: Duration = Duration::from_secs(2);
/// How often one that waits to be elected looks.
const LOOK: Duration = Duration::from_millis(200);
/// Records that are read at a time, and forgotten in one transaction.
const PAGE: i64 = 256;
const FORGET: usize = 100;

/// The log of an elected coordinator.
pub struct Etcd {
    runtime: Runtime,
    endpoints: Vec<Endpoint>,
    prefix: String,
    /// The revision at which this coordinator was elected.
    elected: i64,
    is_elected: Arc<AtomicBool>,
}

fn failed(why: impl std::fmt::Display) -> LogError {
    LogError::Store(format!("etcd: {why}"))
}

/// The first of the members of etcd that does it. What may have been done at one is done again at another: calls here are such that this
/// changes nothing.
async fn at_any<T, F: Future<Output = Result<tonic::Response<T>, tonic::Status>>>(
    endpoints: &[Endpoint],
    mut call: impl FnMut(Channel) -> F,
) -> Result<T, LogError> {
    let mut last = failed("no address is known");
    for endpoint in endpoints {
        let tried = async {
            let channel = endpoint.connect().await.map_err(failed)?;
            let answer = call(channel).await;
            Ok(answer.map_err(|status| failed(status.message()))?.into_inner())
        };
        match tokio::time::timeout(CALL, tried).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(why)) => last = why,
            Err(_) => last = failed(format_args!("{} does not answer", endpoint.uri())),
        }
    }
    Err(last)
}

fn is_created(key: String, revision: i64) -> etcd::Compare {
    etcd::Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Create.into(),
        key: key.into_bytes(),
        target_union: Some(compare::TargetUnion::CreateRevision(revision)),
    }
}

fn put(key: String, value: Vec<u8>, lease: i64) -> etcd::RequestOp {
    let key = key.into_bytes();
    let put = etcd::PutRequest { key, value, lease };
    etcd::RequestOp {
        request: Some(request_op::Request::RequestPut(put)),
    }
}

fn range(key: String) -> etcd::RequestOp {
    let range = etcd::RangeRequest {
        key: key.into_bytes(),
        ..Default::default()
    };
    etcd::RequestOp {
        request: Some(request_op::Request::RequestRange(range)),
    }
}

/// What a transaction read.
fn found(answer: &etcd::TxnResponse, place: usize) -> Option<&etcd::KeyValue> {
    match answer.responses.get(place)?.response.as_ref()? {
        response_op::Response::ResponseRange(range) => range.kvs.first(),
        _ => None,
    }
}

impl Etcd {
    /// Waits to be elected, unless it `is_over` before. `addresses` are `http://HOST:PORT`; `name`
    /// is what the leader's key says.
    pub fn elected(
        addresses: &[String],
        prefix: &str,
        name: &str,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<Self>, LogError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let endpoints = addresses.iter().map(|address| {
            let endpoint = Endpoint::from_shared(address.clone()).map_err(failed)?;
            Ok(endpoint.connect_timeout(CALL).timeout(CALL))
        });
        let mut log = Etcd {
            runtime: runtime.map_err(failed)?,
            endpoints: endpoints.collect::<Result<_, LogError>>()?,
            prefix: prefix.to_owned(),
            elected: 0,
            is_elected: Arc::new(AtomicBool::new(true)),
        };
        while !is_over() {
            match log.stand(name) {
                Ok(true) => return Ok(Some(log)),
                Ok(false) => {}
                // etcd may be electing a leader itself.
                Err(LogError::Store(_)) => {}
                Err(why) => return Err(why),
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// Whether this coordinator may write still, as far as it knows.
    pub fn is_elected(&self) -> Arc<AtomicBool> {
        self.is_elected.clone()
    }

    fn leader(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    /// Numbers in hexadecimal, so that keys are in the order of numbers.
    fn key(&self, number: u64) -> String {
        format!("{}/records/{number:016x}", self.prefix)
    }

    fn transact(&self, request: &etcd::TxnRequest) -> Result<etcd::TxnResponse, LogError> {
        let call = |channel| {
            let request = request.clone();
            async move { KvClient::new(channel).txn(request).await }
        };
        self.runtime.block_on(at_any(&self.endpoints, call))
    }

    fn stand(&mut self, name: &str) -> Result<bool, LogError> {
        let looked = self.transact(&etcd::TxnRequest {
            success: vec![range(self.leader())],
            ..Default::default()
        })?;
        if found(&looked, 0).is_some() {
            return Ok(false);
        }
        let request = etcd::LeaseGrantRequest {
            ttl: i64::try_from(TTL.as_secs()).unwrap_or(1),
            id: 0,
        };
        let call = |channel| async move { LeaseClient::new(channel).lease_grant(request).await };
        let begun = Instant::now();
        let lease = self.runtime.block_on(at_any(&self.endpoints, call))?.id;
        let answer = self.transact(&etcd::TxnRequest {
            compare: vec![is_created(self.leader(), 0)],
            success: vec![put(self.leader(), name.as_bytes().to_vec(), lease)],
            failure: Vec::new(),
        })?;
        if !answer.succeeded {
            return Ok(false);
        }
        self.elected = answer.header.map_or(0, |header| header.revision);
        let (endpoints, is_elected) = (self.endpoints.clone(), self.is_elected.clone());
        let keeper = thread::Builder::new().name("coordinator lease".to_owned());
        let keeper = keeper.spawn(move || keep(&endpoints, lease, begun, &is_elected));
        keeper.map(|_| true).map_err(failed)
    }
}

/// Keeps the lease alive until it is over or the log that has it is gone. Then it says so.
fn keep(endpoints: &[Endpoint], lease: i64, begun: Instant, is_elected: &Arc<AtomicBool>) {
    let mut kept = begun;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    while let Ok(runtime) = &runtime
        && kept.elapsed() < TTL
        && Arc::strong_count(is_elected) > 1
    {
        let asked = Instant::now();
        let call = |channel| async move {
            let (sender, stream) = tokio::sync::mpsc::channel(1);
            let _ = sender.send(etcd::LeaseKeepAliveRequest { id: lease }).await;
            let mut client = LeaseClient::new(channel);
            let mut answers = client
                .lease_keep_alive(ReceiverStream::new(stream))
                .await?
                .into_inner();
            let answer = answers.message().await?;
            Ok(tonic::Response::new(answer.map_or(0, |answer| answer.ttl)))
        };
        match runtime.block_on(at_any(endpoints, call)) {
            Ok(0) => break,
            Ok(_) => kept = asked,
            Err(_) => {}
        }
        thread::sleep(TTL / 6);
    }
    is_elected.store(false, Ordering::Release);
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // The next one need not wait for the lease.
        let delete = etcd::DeleteRangeRequest {
            key: self.leader().into_bytes(),
            range_end: Vec::new(),
        };
        let delete = etcd::RequestOp {
            request: Some(request_op::Request::RequestDeleteRange(delete)),
        };
        if self.elected != 0 {
            let _ = self.transact(&etcd::TxnRequest {
                compare: vec![is_created(self.leader(), self.elected)],
                success: vec![delete],
                failure: Vec::new(),
            });
        }
    }
}

impl Log for Etcd {
    fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let folder = format!("{}/records/", self.prefix);
        let (mut next, mut all) = (self.key(0), Vec::new());
        loop {
            let request = etcd::RangeRequest {
                key: next.clone().into_bytes(),
                // The letter behind `/`: the end of the folder.
                range_end: format!("{}/records0", self.prefix).into_bytes(),
                limit: PAGE,
            };
            let call = |channel| {
                let request = request.clone();
                async move { KvClient::new(channel).range(request).await }
            };
            let answer = self.runtime.block_on(at_any(&self.endpoints, call))?;
            for stored in &answer.kvs {
                let number = std::str::from_utf8(&stored.key).ok();
                let number = number.and_then(|key| key.strip_prefix(&folder));
                let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
                let number = number.ok_or_else(|| failed("another program's keys are among the records"))?;
                all.push((number, opened(number, &stored.value)?.to_vec()));
            }
            match all.last() {
                Some((last, _)) if answer.more => next = self.key(last + 1),
                _ => return Ok(all),
            }
        }
    }

    fn append(&mut self, number: u64, record: &[u8]) -> Result<(), LogError> {
        let stored = sealed(number, record);
        let answer = self.transact(&etcd::TxnRequest {
            compare: vec![
                is_created(self.leader(), self.elected),
                is_created(self.key(number), 0),
            ],
            success: vec![put(self.key(number), stored.clone(), 0), range(self.key(number))],
            failure: vec![range(self.leader()), range(self.key(number))],
        })?;
        let there = found(&answer, 1);
        let is_there = there.is_some_and(|there| there.value == stored);
        if answer.succeeded {
            return is_there.then_some(()).ok_or(LogError::Lost(number));
        }
        let leads = found(&answer, 0).is_some_and(|leader| leader.create_revision == self.elected);
        match (leads, is_there) {
            // It was written before, and the answer was lost.
            (true, true) => Ok(()),
            (true, false) => Err(LogError::Other(number)),
            (false, _) => Err(LogError::Deposed),
        }
    }

    fn forget(&mut self, numbers: &[u64]) -> Result<(), LogError> {
        for numbers in numbers.chunks(FORGET) {
            let deletes = numbers.iter().map(|number| {
                let delete = etcd::DeleteRangeRequest {
                    key: self.key(*number).into_bytes(),
                    range_end: Vec::new(),
                };
                etcd::RequestOp {
                    request: Some(request_op::Request::RequestDeleteRange(delete)),
                }
            });
            let request = etcd::TxnRequest {
                compare: vec![is_created(self.leader(), self.elected)],
                success: deletes.collect(),
                failure: Vec::new(),
            };
            if !self.transact(&request)?.succeeded {
                return Err(LogError::Deposed);
            }
        }
        Ok(())
    }
}
