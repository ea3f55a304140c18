//! The members of a cluster of several processes: the coordinator, its log, and the members' side
//! of it (NFVactor III-D and IV-B3, NFActor 3.2).
//!
//! # Parties
//!
//! ```text
//!   operator ── Status, Drain, Relay, Recover, … ───────┐
//!                                                       ▼
//!   member process                              coordinator process
//!   ┌───────────────────────────────┐           ┌──────────────────────────────────────────┐
//!   │ worker    ┌ MemberSlot ┐      │  mutual   │ service ──asks──► decider ──records──► log│
//!   │ thread ───┤      ├── agent ───┼── TLS ────┤ thread  ◄answers─ thread  ◄─written── thread
//!   │           └ rings┘   thread   │   gRPC    │    ▲                 │                    │
//!   └───────────────────────────────┘           │    └── newest view ──┘                    │
//!                                               └──────────────────────────────────────────┘
//! ```
//!
//! | thread | has | waits for |
//! |---|---|---|
//! | service | connections, certificates, which caller may call what | nothing: a full queue is a refusal (`busy`) |
//! | decider | `protocols::membership::Coordinator`, names and numbers of workers, loads | asks, or the next look |
//! | log | the store | the disk |
//! | agent (at a member) | the connection, heartbeats | the network |
//! | answers (at a member) | a connection of its own, for operators' requests ([`relay`]) | the network |
//! | worker (at a member) | a [`MemberSlot`](agent::MemberSlot) with its `Membership`: view, leases | nothing: rings and atomics only |
//!
//! The data path meets the coordinator nowhere but at the member slot. Workers of `flowkeep` have
//! their membership themselves, and lend it to the member slot for each turn (`flowkeep::run`,
//! `runtime::members`).
//!
//! # Messages
//!
//! `proto/flowkeep.proto` has them. A member opens two streams and keeps them: `PollWorkload`
//! (heartbeats with load, and which withdrawn leases are over) and `NotifyView` (the newest view
//! and suspects). Of `NotifyView` a slow reader misses older views and gets the newest: nothing
//! queues for it.
//!
//! A heartbeat has a worker only if that worker has taken a step since the one before. So a worker
//! that hangs is silent though its process lives.
//!
//! # Log before act
//!
//! ```text
//!   machine: Output::Log ─► record ─► log thread ─► store, read back ─► Written ─► Input::Logged ─► view is published
//! ```
//!
//! Three kinds of records: decisions of the machine, numbers of workers, used tokens. A number is
//! told and a token is good when its record is in the log. Records that are needed no more go
//! ([`Coordinator::needed`](protocols::membership::Coordinator::needed)), so the log is bounded by
//! the number of workers and of tokens that are not over.
//!
//! | the store | the coordinator |
//! |---|---|
//! | takes no record (full disk) | it decides nothing, says why, and tries the same record again each second |
//! | says that it has a record and does not have it | each write is read back, past the store's cache: as above |
//! | has a damaged record, or one out of order, at the start | it does not start, and says which |
//! | has lost records (members know a later view or list than the log) | it decides nothing any more, and says so |
//!
//! # Elections
//!
//! With the embedded store there is one coordinator: the store is locked by the process that has
//! it, so a second one does not start.
//!
//! With etcd there may be several. The coordinator that has etcd's lease listens and decides, the
//! others wait. Each record is written by a transaction that fails once another coordinator is
//! elected, whatever the one before believes (`protocols::election`, called by [`log::Etcd`]). A
//! coordinator that loses its lease ends, and its guard starts it again. Members try all addresses
//! they know in turn.
//!
//! # Restart
//!
//! A coordinator replays the log, then listens for a *settling* time: it decides nothing and
//! answers `settling` to callers that ask for decisions. Members connect again by themselves. Then
//! it listens for the same time once more before it suspects any member, and for 5 s more before it
//! suspects one that it has not heard yet: agents notice after 2.5 s that the coordinator before is
//! silent, and may find another address silent, too.
//!
//! Without any coordinator members go on for ever with the view they have: leases come from
//! members. No member joins, leaves or is removed.
//!
//! # Invariants
//!
//! - A view, a number of a worker and a used token are in the log before any member or
//!   operator hears of them: `log_before_act`.
//! - A restart decides nothing twice, and no view changes by it:
//!   `killed_and_started_again_it_decides_nothing_twice`.
//! - A worker has the same number in each of its incarnations.
//! - A token is good once, until it is over.
//! - Each queue is bounded: asks ([`decider::ASKS_MAX`]), joins under way, connections, requests
//!   that are relayed ([`relay`]), a worker's rings.
//! - Each refusal has a name ([`refusal::Refusal`]), and is counted; other callers are not
//!   disturbed.
//!
//! Not here: leases themselves and which members are suspected (`protocols::membership`), the data
//! path, recovery and replicas.

pub mod agent;
pub mod decider;
pub mod guard;
pub mod identity;
pub mod kept;
pub mod log;
pub mod operator;
pub mod proto;
pub mod refusal;
pub mod relay;
pub mod server;
mod service;
pub mod translate;
