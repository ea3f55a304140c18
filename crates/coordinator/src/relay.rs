//! Requests of operators, relayed to members; their answers, relayed back.
//!
//! # Theory of operation
//!
//! ```text
//!   operator ── Relay(member, request) ─► judge: which right? ─► a number ─► Serve ─► member
//!            ◄──────── answer ◄────────── by the number ◄──────────────────── Serve ◄──┘
//! ```
//!
//! A request is bytes here. The [`Judge`] reads them, says which right they need, and refuses bytes
//! that are no request. A member keeps one stream open ([`Relay::serve`]); the newest stream of a
//! member counts, and an earlier one ends.
//!
//! An operator asks each member to reach all of them. So an answer is one member's, and each bound
//! is one request's.
//!
//! | quantity | bound |
//! |---|---|
//! | bytes of a request, of an answer | [`REQUEST_MAX`], [`ANSWER_MAX`] |
//! | requests under way, at one member | [`RELAYS_MAX`], [`MEMBER_MAX`] |
//! | time until an answer | [`PATIENCE`] |
//!
//! No packet, no move of a flow and no decision of the coordinator waits for any of this.
//!
//! Invariants: an answer goes to the request of its number, once; a request that no operator waits
//! for any more has no entry; an answer without a request is dropped.
//!
//! Not here: the meaning of requests (`flowkeep::control`), which callers may ask
//! (`service::calls`).

use crate::identity::Right;
use crate::proto::served::What;
use crate::proto::{Asked, Served, Unserved};
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

/// The most bytes of a request.
pub const REQUEST_MAX: usize = 64 << 10;
/// The most bytes of an answer: a message of the service has 256 KiB at most.
pub const ANSWER_MAX: usize = 240 << 10;
/// Requests under way at most.
pub const RELAYS_MAX: usize = 64;
/// Requests under way at one member at most.
pub const MEMBER_MAX: usize = 8;
/// How long a member may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Why a request is relayed to no member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It is no request.
    Unknown(String),
    /// It is of one process; the text says what to do.
    OneProcess(String),
}

/// Says which right a request needs.
pub type Judge = fn(&[u8]) -> Result<Right, Unfit>;

/// The judge of a coordinator that relays nothing.
pub fn none(_: &[u8]) -> Result<Right, Unfit> {
    Err(Unfit::Unknown("this coordinator relays no requests".to_owned()))
}

/// An order of the coordinator itself to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberOrder<'a> {
    /// Flows of one runtime go to another.
    Migrate {
        /// The runtime that gives.
        source: u16,
        /// The runtime that takes.
        target: u16,
        /// At most; 0: all.
        flows: u64,
    },
    /// Which copies are kept of a chain's flows.
    Copy {
        /// The chain.
        chain: &'a str,
        /// How; empty: as the configuration says.
        policy: &'a str,
    },
    /// Which runtime keeps the copies of another runtime's flows.
    Replica {
        /// The runtime whose flows are copied.
        runtime: u16,
        /// The runtime that keeps them; none: the one that the layout says.
        replica: Option<u16>,
    },
}

/// Says an order as a request of a member. An error says what is wrong with the order.
pub type Scribe = fn(MemberOrder<'_>) -> Result<Vec<u8>, String>;

/// The scribe of a coordinator that orders nothing.
pub fn no_orders(_: MemberOrder<'_>) -> Result<Vec<u8>, String> {
    Err("this coordinator gives no orders to members".to_owned())
}

type Refused = (Refusal, String);

/// A member's stream.
struct Server {
    /// Which of all streams.
    stream: u64,
    requests: mpsc::Sender<Asked>,
    waiting: BTreeMap<u64, oneshot::Sender<Served>>,
    /// Dropped with the entry: the stream ends.
    _end: oneshot::Sender<()>,
}

#[derive(Default)]
struct RequestTable {
    servers: BTreeMap<String, Server>,
    /// Of streams and requests.
    numbers: u64,
}

impl RequestTable {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// Members that serve, and requests that are under way.
pub struct Relay {
    request_table: Mutex<RequestTable>,
    room: Semaphore,
}

impl Default for Relay {
    fn default() -> Self {
        Relay {
            request_table: Mutex::default(),
            room: Semaphore::new(RELAYS_MAX),
        }
    }
}

/// A request that is under way; without this, nothing waits for its answer.
struct UnderWay<'a> {
    relay: &'a Relay,
    member: &'a str,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.relay.request_table().servers.get_mut(self.member) {
            server.waiting.remove(&self.number);
        }
    }
}

impl Relay {
    fn request_table(&self) -> MutexGuard<'_, RequestTable> {
        self.request_table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Members that have a stream.
    pub fn serving(&self) -> Vec<String> {
        self.request_table().servers.keys().cloned().collect()
    }

    /// A member's answers come by a stream; its requests come out of the queue. Its earlier stream
    /// ends.
    pub fn serve(
        self: &Arc<Self>,
        member: &str,
        answers: impl Stream<Item = Result<Served, Status>> + Send + Unpin + 'static,
    ) -> mpsc::Receiver<Asked> {
        let (requests, asked) = mpsc::channel(MEMBER_MAX);
        let (end, ended) = oneshot::channel();
        let stream = {
            let mut request_table = self.request_table();
            let stream = request_table.number();
            let server = Server {
                stream,
                requests,
                waiting: BTreeMap::new(),
                _end: end,
            };
            request_table.servers.insert(member.to_owned(), server);
            stream
        };
        let (relay, member) = (self.clone(), member.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = relay.hear(&member, stream, answers) => {}
                _ = ended => {}
            }
            let mut request_table = relay.request_table();
            if request_table
                .servers
                .get(&member)
                .is_some_and(|server| server.stream == stream)
            {
                request_table.servers.remove(&member);
            }
        });
        asked
    }

    /// Takes a member's answers until its stream ends.
    async fn hear(
        &self,
        member: &str,
        stream: u64,
        mut answers: impl Stream<Item = Result<Served, Status>> + Unpin,
    ) {
        while let Some(Ok(served)) = answers.next().await {
            let mut request_table = self.request_table();
            let server = request_table.servers.get_mut(member);
            let Some(server) = server.filter(|server| server.stream == stream) else {
                return;
            };
            // An answer that comes late, or was never asked for, has no entry.
            if let Some(waiting) = server.waiting.remove(&served.number) {
                let _ = waiting.send(served);
            }
        }
    }

    /// Asks a member, and waits for its answer.
    pub async fn ask(&self, member: &str, request: Vec<u8>) -> Result<Vec<u8>, Refused> {
        let Ok(_room) = self.room.try_acquire() else {
            let why = format!("{RELAYS_MAX} requests are under way; ask again");
            return Err((Refusal::Busy, why));
        };
        let (_under_way, answer) = self.hand_over(member, request)?;
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(served)) => answer_of(member, served),
            Ok(Err(_)) => Err(away(member)),
            Err(_) => Err((
                Refusal::MemberSilent,
                format!(
                    "member `{member}` has not answered within {} s; it may still carry out its order",
                    PATIENCE.as_secs()
                ),
            )),
        }
    }

    fn hand_over<'a>(
        &'a self,
        member: &'a str,
        request: Vec<u8>,
    ) -> Result<(UnderWay<'a>, oneshot::Receiver<Served>), Refused> {
        let mut request_table = self.request_table();
        let number = request_table.number();
        let server = request_table
            .servers
            .get_mut(member)
            .ok_or_else(|| away(member))?;
        let (answer, answered) = oneshot::channel();
        let is_full = server.waiting.len() >= MEMBER_MAX;
        if is_full || server.requests.try_send(Asked { number, request }).is_err() {
            return Err(busy(member));
        }
        server.waiting.insert(number, answer);
        let under_way = UnderWay {
            relay: self,
            member,
            number,
        };
        Ok((under_way, answered))
    }
}

fn away(member: &str) -> Refused {
    let why = format!("member `{member}` is not connected to answer; start it, or wait until it is");
    (Refusal::MemberAway, why)
}

fn busy(member: &str) -> Refused {
    let why = format!("member `{member}` has {MEMBER_MAX} requests under way; ask again");
    (Refusal::MemberBusy, why)
}

fn answer_of(member: &str, served: Served) -> Result<Vec<u8>, Refused> {
    let too_long = || {
        let why = format!("member `{member}` has an answer of more than {ANSWER_MAX} bytes; ask for less");
        (Refusal::TooLong, why)
    };
    match served.what {
        Some(What::Answer(answer)) if answer.len() <= ANSWER_MAX => Ok(answer),
        Some(What::Answer(_)) => Err(too_long()),
        Some(What::Unserved(why)) if why == Unserved::TooLong as i32 => Err(too_long()),
        Some(What::Unserved(why)) if why == Unserved::Busy as i32 => Err(busy(member)),
        _ => {
            let why = format!("member `{member}` has failed to answer; its standard error may say why");
            Err((Refusal::MemberFailed, why))
        }
    }
}

#[cfg(test)]
mod tests;
