//! Variables of network functions, and the data stores that keep them (FlexState).
//!
//! A function names its variables and works with them as with collections of the standard library.
//! Which store keeps them, how often it is told and how much may be lost is configuration. The
//! packet path works on a local copy and never waits for a store.
//!
//! # Theory of operation
//!
//! ```text
//!   worker (one per runtime)                          agent (one per store)             store
//!   function ─ add, insert … ─► local copy            ┌──────────────────────┐
//!                                  │ list of what     │ batches of all       │   Redis, a file,
//!                     every 1 ms   ▼ changed          │ partitions, together │   memory …
//!                   Partition::step ══ batch, ring ══►│                      │──► driver ──►
//!                                   ◄═ stored, ring ══│ tries until it is in │◄── outcomes ──
//!                                                     └──────────────────────┘
//! ```
//!
//! *Identity* ([`name`]). A **partition**, which one worker writes, has the variables of one
//! function's instance on one runtime of one member (FlexState III-B). A variable's key is the
//! partition, its kind and its name: `nat@edge1@0@Counter@mappings`. Partitions share nothing, so
//! there is no lock and no message on the packet path. The whole function's view is a merge
//! ([`merge`]).
//!
//! *Changes* (the crate `variables`). A call changes the local copy and puts the element into the
//! variable's list of waiting elements, if it is not there. A thousand additions to a counter
//! within an interval are one write.
//!
//! *Batches* ([`partition`], [`batch`]). Where an interval is over, the worker writes waiting
//! elements into one of two buffers and hands it over. The worker gets the buffer back when the
//! store has the changes. A slow store returns buffers late: the interval becomes longer, and
//! changes coalesce. At most two batches of 256 KiB are on their way for each partition, whatever
//! the store does.
//!
//! *Versions* ([`driver`]). A batch makes a [`Version`]: the writer's epoch, and the batch's
//! number. Its values are absolute. The store takes a batch if it is the next one, whole or not at
//! all, and says so if it has it already:
//!
//! ```text
//!   store has (7, 41)
//!     batch (7, 42)   the next: written
//!     batch (7, 41)   a repetition, after an answer that got lost: stored already, nothing is counted twice
//!     batch (6, 99)   an earlier writer, that has been replaced: fenced
//!     batch (7, 44)   42 and 43 were acknowledged and are not there: forgotten; the worker writes everything again
//! ```
//!
//! *Restart*. [`Partition::open`] claims the identity, which makes a new epoch and so ends the
//! writes that an earlier process still has under way. Opening a variable reads it. So a function
//! finds its variables before its first packet; where the store does not answer, the function does
//! not start.
//!
//! # What is lost when
//!
//! | what happens | what becomes of variables |
//! |---|---|
//! | the store is down, slow, full, or refuses | packets go on; changes coalesce; the store has all of them when it is back |
//! | an answer is lost, a connection cut | the batch is repeated, and counts once |
//! | the store loses its data, or the last seconds of it | the workers write everything again |
//! | the process is killed | changes that no batch had taken or that had not arrived: about the interval's worth |
//! | … with [`Consistency::Through`], or where the packet waited for a ticket | nothing that was waited for |
//! | both at once | what the store has lost |
//! | an identity is taken over | the earlier process' changes from then on; it is told ([`Fenced`]) |
//!
//! After a store has lost its data, a variable that is larger than a batch is incomplete there
//! until the last of its batches is in.
//!
//! # Bounds
//!
//! A collection has a capacity, an element 64 KiB, a name 255 bytes. The call refuses a change that
//! would exceed them ([`Refusal`]). Memory is taken when a partition and a variable are opened; the
//! packet path allocates nothing but what keys and values own themselves.
//!
//! # Invariants
//!
//! | | checker |
//! |---|---|
//! | the local copy and the store are the model's, when all is stored | `random_calls_equal_a_map_here_and_at_the_store`, the conformance suite |
//! | a change counts once, whatever is cut or repeated | conformance `ambiguous_batches_count_once`, the fault tests |
//! | a ticket is over only when the store has its change | `a_ticket_is_over_with_the_acknowledgement_that_it_waits_for`, the agent's tests |
//! | a merged view counts what instances left that have ended | `a_merged_view_has_the_whole_function_as_instances_come_and_go` |
//! | two names have two keys | `any_two_names_have_two_keys` |
//! | nothing is allocated once warm | `changes_allocate_nothing_once_warm` |
//!
//! Not here: flows' state (it is the actor's), and which worker has which identity (the
//! configuration's and the coordinator's business).

pub mod agent;
pub mod apart;
pub mod batch;
pub mod driver;
pub mod drivers;
mod late;
mod left;
pub mod lock;
pub mod locks;
pub mod merge;
pub mod migrate;
pub mod mirror;
pub mod name;
pub mod partition;
pub mod taking;
mod uri;

pub use agent::{Agency, Health, OpenError, Report, Store};
pub use driver::{Driver, Failure, Outcome, Version};
pub use lock::Lock;
pub use locks::{Locks, Views};
pub use merge::{Cycle, Merges};
pub use mirror::Mirror;
pub use name::{Kind, PartitionName, VariableName};
pub use partition::{Defaults, Partition, Stores};
pub use taking::{Estate, Turns};
pub use uri::{check, driver as driver_of, is_common, is_held, look, without_secret};
pub use variables::{
    Consistency, Counter, CounterMap, Fenced, Key, List, Map, Options, PartitionStats, Refusal, Set, Stored,
    Ticket, Timers, Value, stats,
};
