//! The invariants of every run, one file for each.
//!
//! | file | invariant | when it looks |
//! |---|---|---|
//! | `one_actor` | at most one actor is active for a key | after turns of runtimes |
//! | `order` | packets of a flow leave in the order in which they entered | when one leaves |
//! | `delivered` | a packet that leaves is unaltered, and goes to the host that it is for; answers reach the host that asked | when one leaves |
//! | `addressed` | a router writes the right link addresses in front of a packet, and no more calls wait than may | when one leaves; after turns of runtimes |
//! | `enforced` | a packet that is not allowed never leaves, however full everything is | when one leaves |
//! | `endpoints` | no two inside endpoints have one external endpoint; a mapping is one, and stays | after turns of runtimes |
//! | `kept` | no flow goes back to a state before that of a packet that has left, none is forgotten or reset, where copies are kept | after turns of runtimes |
//! | `fenced` | a worker that a view has removed has no lease and no effect (9) | when a view comes into force; after a removed worker's turns |
//! | `views`, in `fenced` | decisions of one view's number are the same everywhere, and no coordinator forgets one | when one is in force, or adopted |
//! | `elected` | of several coordinators one writes, nothing is decided twice, and a new one knows all that was decided (9, 11) | when a record is in the store; when one leads, or takes itself for elected |
//! | `announced` | no runtime says to a switch that it has a group before it holds the state (11) | after turns of runtimes, where nothing is ever full |
//! | `changed` | a change of the configuration ends no flow that both let in | after turns of runtimes |
//! | `limited` | no host has more flows than its limit | after turns of runtimes |
//! | `read` | streams are read on wherever a flow goes; each packet, request and match is recorded once | when all flows have ended |
//! | `conservation` | nothing leaves oftener than it entered; in = out + held + dropped; queues and tables are bounded | always; at rest |
//! | `returned` | all that flows took is returned, once | when all flows have ended |
//! | `moved` | a move of groups loses and doubles nothing, comes to an end and adds up | at rest |
//! | `converged` | once faults are over, all talks are answered and all flows end in bounded time | at the ends of parts |
//! | `asserted` | assertions of the code itself (not where a panic ends the process, as in a release build) | always |
//! | `same_run` | one seed, one run, byte for byte | after a second run |
//!
//! A checker looks at what the production code shows (flows, statistics, frames), never into how it
//! works, and says what is wrong in a sentence. Each is shown to fire in
//! `tests/planted.rs`, on a bug in production code.
//!
//! Not here: the words of a move's target to its source before it holds the state (11). They show
//! in `one_actor`, `order` and `moved`.

pub(crate) mod addressed;
pub(crate) mod announced;
pub(crate) mod asserted;
pub(crate) mod changed;
pub(crate) mod conservation;
pub(crate) mod converged;
pub(crate) mod delivered;
pub(crate) mod elected;
pub(crate) mod endpoints;
pub(crate) mod enforced;
pub(crate) mod fenced;
pub(crate) mod kept;
pub(crate) mod limited;
pub(crate) mod moved;
pub(crate) mod one_actor;
pub(crate) mod order;
pub(crate) mod read;
pub(crate) mod returned;
pub(crate) mod same_run;

use runtime::worker::FlowEnds;

/// The finding of a checker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its name, which is its file's.
    pub checker: &'static str,
    /// A sentence that says what is wrong.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(checker: &'static str, what: impl Into<String>) -> Violation {
        Violation {
            checker,
            what: what.into(),
        }
    }
}

/// A flow, and the runtime that has it.
pub(crate) type Sighting = (u16, FlowEnds);
