//! What must hold in every run, one file for each invariant.
//!
//! | file | invariant | when it looks |
//! |---|---|---|
//! | `one_actor` | at most one actor is active for a key | after turns of runtimes |
//! | `order` | packets of a flow leave in the order in which they entered | when one leaves |
//! | `delivered` | what leaves is unaltered, goes to whom it is for, and answers reach who asked | when one leaves |
//! | `enforced` | what is not allowed never leaves, however full everything is | when one leaves |
//! | `endpoints` | no two inside endpoints have one external endpoint; a mapping is one, and stays | after turns of runtimes |
//! | `conservation` | nothing leaves oftener than it entered; in = out + held + dropped; queues and tables are bounded | always; at rest |
//! | `returned` | what was taken is returned, once | when all flows have ended |
//! | `converged` | once faults are over, all talks are answered and all flows end in bounded time | at the ends of parts |
//! | `same_run` | one seed, one run, byte for byte | after a second run |
//!
//! A checker looks at what the production code shows (flows, statistics, frames), never into how it works, and says what is wrong in a sentence. Each is shown to
//! fire in `tests/planted.rs`, on a bug in production code.
//!
//! Not here yet, since nothing can order it: that a migration loses and doubles nothing, fencing, announcements (3, 9 and 11 of the list).

pub(crate) mod conservation;
pub(crate) mod converged;
pub(crate) mod delivered;
pub(crate) mod endpoints;
pub(crate) mod enforced;
pub(crate) mod one_actor;
pub(crate) mod order;
pub(crate) mod returned;
pub(crate) mod same_run;

use runtime::worker::FlowEnds;

/// What a checker found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its name, which is its file's.
    pub checker: &'static str,
    /// What is wrong.
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
