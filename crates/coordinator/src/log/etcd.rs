//! The log in etcd, and the election of the one coordinator that may write it.
//!
//! ```text
//!   coordinator ── LeaseGrant ──► lease L          kept alive by a thread, each TTL / 6
//!               ── Txn ──► PREFIX/leader, PREFIX/records/N
//! ```
//!
//! The requests to etcd, and the meaning of its answers, are in `protocols::election`: the
//! simulator runs the same. Here are the calls.
//!
//! Not here: TLS to etcd. It listens where only coordinators reach it, as a rule on the same hosts.

use super::{Log, LogError, opened, sealed};
use crate::proto::etcd::kv_client::KvClient;
use crate::proto::etcd::lease_client::LeaseClient;
use crate::proto::etcd::{self, compare, request_op, response_op};
use protocols::election::{
    self, Compare, Elected, Found, Hold, Key, NotTaken, Operation, Reading, Transaction, TransactionAnswer,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// Of the leader's lease.
const TTL: Duration = Duration::from_secs(3);
/// How long a call may take.
const CALL: Duration = Duration::from_secs(2);
/// After which time without an answer another member of etcd is asked as well. An election needs
/// three calls within the lease, so a member that is silent must not cost more.
const NEXT: Duration = Duration::from_millis(300);
/// How often a coordinator that waits to be elected looks.
const LOOK: Duration = Duration::from_millis(200);
/// Records that are read at a time, and forgotten in one transaction.
const PAGE: i64 = 256;
const FORGET: usize = 100;

/// Records are bytes here.
type Bytes = Vec<u8>;

/// Until when a coordinator takes itself for elected. It is asked for the time, so no call that
/// hangs makes it longer.
#[derive(Clone, Debug)]
pub struct Held {
    begun: Instant,
    hold: Arc<Mutex<Hold>>,
}

impl Held {
    fn new(asked: Instant) -> Self {
        let ttl = u64::try_from(TTL.as_nanos()).unwrap_or(u64::MAX);
        Held {
            begun: asked,
            hold: Arc::new(Mutex::new(Hold::new(0, ttl))),
        }
    }

    fn at(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.begun);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn answered(&self, asked: Instant, is_kept: bool) {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        hold.answered(self.at(asked), is_kept);
    }

    /// Whether the lease may be over.
    pub fn is_over(&self) -> bool {
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        hold.is_over(self.at(Instant::now()))
    }
}

/// The log of an elected coordinator.
pub struct Etcd {
    runtime: Runtime,
    endpoints: Arc<Endpoints>,
    prefix: String,
    name: String,
    elected: Elected,
    held: Held,
}

/// The means to call etcd.
struct Calls<'a> {
    runtime: &'a Runtime,
    endpoints: &'a Arc<Endpoints>,
    prefix: &'a str,
    name: &'a str,
}

fn failed(why: impl std::fmt::Display) -> LogError {
    LogError::Store(format!("etcd: {why}"))
}

/// The members of etcd, and which of them has answered last.
struct Endpoints {
    all: Vec<Endpoint>,
    last: AtomicUsize,
}

/// The answer of the first member of etcd that answers, beginning with the one that has answered
/// last. A silent member is waited for, and the next one asked meanwhile. A call that one member
/// may have done is done again at another: calls here are such that this changes nothing.
async fn at_any<T, C, F>(endpoints: &Endpoints, call: C) -> Result<T, LogError>
where
    T: Send + 'static,
    C: Fn(Channel) -> F + Clone + Send + 'static,
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>> + Send + 'static,
{
    let mut why = failed("no address is known");
    let count = endpoints.all.len();
    let first = endpoints.last.load(Ordering::Relaxed);
    let mut rest = (0..count).map(|place| (first + place) % count);
    let mut asked = JoinSet::new();
    let mut ask = |asked: &mut JoinSet<_>| {
        let Some(place) = rest.next() else {
            return false;
        };
        if let Some(endpoint) = endpoints.all.get(place).cloned() {
            let call = call.clone();
            asked.spawn(async move { (place, at_one(&endpoint, call).await) });
        }
        true
    };
    let mut is_more = ask(&mut asked);
    loop {
        tokio::select! {
            Some(answered) = asked.join_next() => match answered {
                Ok((place, Ok(answer))) => {
                    endpoints.last.store(place, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok((_, Err(failed))) => {
                    why = failed;
                    is_more = ask(&mut asked);
                }
                Err(ended) => why = failed(ended),
            },
            () = tokio::time::sleep(NEXT), if is_more => is_more = ask(&mut asked),
            else => return Err(why),
        }
    }
}

async fn at_one<T, F>(endpoint: &Endpoint, call: impl FnOnce(Channel) -> F) -> Result<T, LogError>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let tried = async {
        let channel = endpoint.connect().await.map_err(failed)?;
        let answer = call(channel).await;
        Ok(answer.map_err(|status| failed(status.message()))?.into_inner())
    };
    let tried = tokio::time::timeout(CALL, tried).await;
    tried.unwrap_or_else(|_| Err(failed(format_args!("{} does not answer", endpoint.uri()))))
}

/// Numbers in hexadecimal, so that keys are in the order of numbers.
fn place(prefix: &str, key: Key) -> String {
    match key {
        Key::Leader => format!("{prefix}/leader"),
        Key::Record(number) => format!("{prefix}/records/{number:016x}"),
    }
}

fn compared(prefix: &str, compare: Compare) -> etcd::Compare {
    let (key, target, union) = match compare {
        Compare::Created(key, revision) => (
            key,
            compare::CompareTarget::Create,
            compare::TargetUnion::CreateRevision(revision),
        ),
        Compare::Puts(key, puts) => (
            key,
            compare::CompareTarget::Version,
            compare::TargetUnion::Version(puts),
        ),
    };
    etcd::Compare {
        result: compare::CompareResult::Equal.into(),
        target: target.into(),
        key: place(prefix, key).into_bytes(),
        target_union: Some(union),
    }
}

impl Calls<'_> {
    fn operation(&self, operation: Operation<Bytes>) -> etcd::RequestOp {
        let key = |key| place(self.prefix, key).into_bytes();
        let put = |at, value, lease| {
            let key = key(at);
            request_op::Request::RequestPut(etcd::PutRequest { key, value, lease })
        };
        let request = match operation {
            Operation::Lead(lease) => put(Key::Leader, self.name.as_bytes().to_vec(), lease),
            Operation::Put(number, record) => put(Key::Record(number), record, 0),
            Operation::Get(at) => request_op::Request::RequestRange(etcd::RangeRequest {
                key: key(at),
                ..Default::default()
            }),
            Operation::Delete(at) => request_op::Request::RequestDeleteRange(etcd::DeleteRangeRequest {
                key: key(at),
                range_end: Vec::new(),
            }),
        };
        etcd::RequestOp {
            request: Some(request),
        }
    }

    fn transact(&self, transaction: Transaction<Bytes>) -> Result<TransactionAnswer<Bytes>, LogError> {
        let compare = transaction.compare.into_iter();
        let all = |operations: Vec<_>| operations.into_iter().map(|each| self.operation(each)).collect();
        let request = etcd::TxnRequest {
            compare: compare.map(|each| compared(self.prefix, each)).collect(),
            success: all(transaction.success),
            failure: all(transaction.failure),
        };
        let call = move |channel| {
            let request = request.clone();
            async move { KvClient::new(channel).txn(request).await }
        };
        let answer = self.runtime.block_on(at_any(self.endpoints, call))?;
        Ok(TransactionAnswer {
            succeeded: answer.succeeded,
            revision: answer.header.map_or(0, |header| header.revision),
            found: answer.responses.into_iter().map(found).collect(),
        })
    }

    fn stand(&self) -> Result<Option<(Elected, Held)>, LogError> {
        if !election::is_vacant(&self.transact(election::look())?) {
            return Ok(None);
        }
        let request = etcd::LeaseGrantRequest {
            ttl: i64::try_from(TTL.as_secs()).unwrap_or(1),
            id: 0,
        };
        let call = move |channel| async move { LeaseClient::new(channel).lease_grant(request).await };
        let held = Held::new(Instant::now());
        let lease = self.runtime.block_on(at_any(self.endpoints, call))?.id;
        let answer = self.transact(election::stand(lease))?;
        let Some(elected) = Elected::by(lease, &answer) else {
            return Ok(None);
        };
        let (endpoints, kept) = (self.endpoints.clone(), held.clone());
        let keeper = thread::Builder::new().name("coordinator lease".to_owned());
        let keeper = keeper.spawn(move || keep(&endpoints, lease, &kept));
        keeper.map_err(failed)?;
        Ok(Some((elected, held)))
    }
}

/// The value that a part of a transaction has read.
fn found(answer: etcd::ResponseOp) -> Option<Found<Bytes>> {
    match answer.response? {
        response_op::Response::ResponseRange(range) => range.kvs.into_iter().next().map(|there| Found {
            created: there.create_revision,
            puts: there.version,
            value: there.value,
        }),
        _ => None,
    }
}

impl Etcd {
    /// Waits to be elected, unless it `is_over` before. `addresses` are `http://HOST:PORT`; `name`
    /// is the value of the leader's key.
    pub fn elected(
        addresses: &[String],
        prefix: &str,
        name: &str,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<Self>, LogError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let endpoints = addresses.iter().map(|address| {
            let endpoint = Endpoint::from_shared(address.clone()).map_err(failed)?;
            Ok(endpoint.connect_timeout(CALL).timeout(CALL))
        });
        let endpoints = Arc::new(Endpoints {
            all: endpoints.collect::<Result<Vec<_>, LogError>>()?,
            last: AtomicUsize::new(0),
        });
        while !is_over() {
            let calls = Calls {
                runtime: &runtime,
                endpoints: &endpoints,
                prefix,
                name,
            };
            match calls.stand() {
                Ok(Some((elected, held))) => {
                    return Ok(Some(Etcd {
                        runtime,
                        endpoints,
                        prefix: prefix.to_owned(),
                        name: name.to_owned(),
                        elected,
                        held,
                    }));
                }
                Ok(None) => {}
                // etcd may be electing a leader itself.
                Err(LogError::Store(_)) => {}
                Err(why) => return Err(why),
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// Until when this coordinator may write, as far as it knows.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    fn calls(&self) -> Calls<'_> {
        Calls {
            runtime: &self.runtime,
            endpoints: &self.endpoints,
            prefix: &self.prefix,
            name: &self.name,
        }
    }
}

/// Keeps the lease alive until it is over or the log that has it is gone.
fn keep(endpoints: &Endpoints, lease: i64, held: &Held) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    while let Ok(runtime) = &runtime
        && !held.is_over()
        && Arc::strong_count(&held.hold) > 1
    {
        let asked = Instant::now();
        let call = move |channel| async move {
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
        if let Ok(ttl) = runtime.block_on(at_any(endpoints, call)) {
            held.answered(asked, ttl > 0);
        }
        thread::sleep(TTL / 6);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.calls().transact(self.elected.resign());
    }
}

impl Log for Etcd {
    fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let folder = format!("{}/records/", self.prefix);
        let mut reading = Reading::default();
        while let Some(next) = reading.next() {
            let request = etcd::RangeRequest {
                key: place(&self.prefix, Key::Record(next)).into_bytes(),
                // The letter behind `/`: the end of the folder.
                range_end: format!("{}/records0", self.prefix).into_bytes(),
                limit: PAGE,
            };
            let call = move |channel| {
                let request = request.clone();
                async move { KvClient::new(channel).range(request).await }
            };
            let answer = self.runtime.block_on(at_any(&self.endpoints, call))?;
            let mut page = Vec::new();
            for stored in &answer.kvs {
                let number = std::str::from_utf8(&stored.key).ok();
                let number = number.and_then(|key| key.strip_prefix(&folder));
                let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
                let number = number.ok_or_else(|| failed("another program's keys are among the records"))?;
                page.push((number, opened(number, &stored.value)?.to_vec()));
            }
            reading.take(page, answer.more);
        }
        if self.held.is_over() {
            // Another coordinator may have decided since, and have forgotten records between two
            // pages.
            return Err(failed("the lease was over before the log was read"));
        }
        Ok(reading.records().collect())
    }

    fn append(&mut self, number: u64, record: &[u8]) -> Result<(), LogError> {
        let stored = sealed(number, record);
        let answer = self.calls().transact(self.elected.append(number, &stored))?;
        let taken = self.elected.appended(&stored, &answer);
        taken.map_err(|why| match why {
            NotTaken::Lost => LogError::Lost(number),
            NotTaken::Other => LogError::Other(number),
            NotTaken::Deposed => LogError::Deposed,
        })
    }

    fn forget(&mut self, numbers: &[u64]) -> Result<(), LogError> {
        for numbers in numbers.chunks(FORGET) {
            if !self.calls().transact(self.elected.forget(numbers))?.succeeded {
                return Err(LogError::Deposed);
            }
        }
        Ok(())
    }
}
