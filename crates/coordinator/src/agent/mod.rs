//! A member's side: an agent on a thread of its own that speaks with the coordinator, and a member
//! slot for each worker.
//!
//! # Theory of operation
//!
//! ```text
//!   worker thread                           agent thread                     coordinator
//!   MemberSlot::turn ─ steps, load: atomics ───► every `heartbeat`: those that ── PollWorkload ──►
//!              ── withdrawn: ring ────────► have taken a step
//!              ◄─ views, suspects: ring ─── the newest of each ◄──────────── NotifyView ────
//! ```
//!
//! A member slot has the worker's [`Membership`](protocols::membership::Membership): its view, its
//! leases; or the worker has it, and lends it for each turn ([`MemberSlot::turn_with`]). It is the
//! worker's alone. A member slot shares atomics and two rings with the agent; neither end waits for
//! the other. A ring that is full loses nothing that counts: the agent keeps the newest words and
//! tries again, and a member slot says its withdrawals again.
//!
//! A worker that takes no step gets no heartbeat. A member slot that is dropped acts no more: the
//! agent says that this worker has stopped.
//!
//! The agent connects again for as long as it lives: to the next address if the coordinator was
//! silent, or does not answer. Meanwhile workers go on with the view they have.
//!
//! States of an agent: *joining* (asks until a view has its workers) → *attending* ⇄ *alone* (no
//! coordinator answers).
//!
//! Which configuration was decided comes with views, and heartbeats say which one the member has
//! ([`Decided`]).
//!
//! How members are reached that no configuration lists comes with views, too ([`Contacts`]).
//!
//! Operators' requests to a member come on a connection of their own, to a thread of their own
//! ([`Serving`]), so that no answer delays a heartbeat.
//!
//! Not here: a worker's use of views and leases (`runtime::members`).

mod connecting;
mod contacts;
mod decided;
mod loads;
mod member_slot;
mod reaching;
mod running;
mod serving;

pub use connecting::{
    CallError, Client, configuration_at, connect, connect_any, connect_without, enlist_at, enrol, enrol_at,
};
pub use contacts::Contacts;
pub use decided::Decided;
pub use loads::Loads;
pub use member_slot::{MemberSlot, WorkerStats};
pub use reaching::{Tried, Tries};
pub(crate) use running::SILENCE;
pub use running::{Agent, AgentError, AgentEvent, AgentSettings, Keep};
pub use serving::{Answerer, Serving};
