//! Which events the process itself writes to the event log: the list, which the code must use.
//!
//! Functions declare theirs ([`nf::NetworkFunction::EVENTS`]), runtimes theirs
//! ([`runtime::stats::EVENTS`]). The page `docs/events.md` is made of all of them. A line of the
//! process takes a [`Declared`] event, which only this list can make, so no other can be written; a
//! debug build holds its fields against those declared.
//!
//! Not here: the writer of the lines ([`crate::run`]), and events of flows (`flow events`).

use nf::{Event, Field};

/// An event of this list.
#[derive(Debug)]
pub struct Declared(Event);

impl Declared {
    /// Its name, its fields, and when it is written.
    pub fn event(&self) -> &Event {
        &self.0
    }

    /// Asserts that a line may have a field.
    pub(crate) fn hold(&self, field: &str) {
        debug_assert!(
            self.0.fields.iter().any(|known| known.name == field),
            "the event `{}` has no field `{field}`: declare it",
            self.0.name
        );
    }
}

/// Declares the events, and a list of all.
macro_rules! events {
    ($list:ident: $($constant:ident = $name:literal, $when:literal, $fields:expr;)*) => {
        $(pub(crate) static $constant: Declared = Declared(Event::new($name, $when, $fields));)*
        /// All of them.
        pub static $list: &[&Declared] = &[$(&$constant),*];
    };
}

const SERVER: &[Field] = &[
    Field::text("function", "The load balancer, as chains name it."),
    Field::text("service", "The service."),
    Field::text("backend", "The server's name there."),
    Field::text("endpoint", "Where it is checked."),
];
const SERVER_DOWN: &[Field] = &[
    SERVER[0],
    SERVER[1],
    SERVER[2],
    SERVER[3],
    Field::text("why", "Why the last check failed."),
];
const SCALED: &[Field] = &[
    Field::number("runtime", "", "The runtime that came, went, or took flows."),
    Field::number("from", "", "The runtime that gave flows away."),
    Field::number("flows_moved", "flows", "Flows that moved."),
    Field::number("milliseconds", "ms", "How long it took."),
    Field::number("runtimes", "runtimes", "Runtimes that take flows now."),
];
const MOVED: &[Field] = &[
    Field::number(
        "from",
        "",
        "Number of the runtime that was to give flows away; `null` where several runtimes were.",
    ),
    Field::text(
        "to",
        "Numbers of the runtimes that were to take them; empty where any runtime might.",
    ),
    Field::number("flows_asked", "flows", "Flows of the groups that began to move."),
    Field::number("flows_moved", "flows", "Flows that have moved."),
    Field::number("flows_refused", "flows", "Flows that a target refused."),
    Field::number(
        "flows_failed",
        "flows",
        "Flows whose move was given up: they are where they were.",
    ),
    Field::number(
        "groups_canceled",
        "groups",
        "Groups that had not begun when the order was canceled.",
    ),
    Field::number(
        "packets_buffered",
        "packets",
        "Packets kept at targets until their group was there.",
    ),
    Field::number(
        "packets_handed_on",
        "packets",
        "Packets that sources handed over.",
    ),
    Field::number(
        "packets_dropped",
        "packets",
        "Packets dropped because as many were kept as may be.",
    ),
    Field::number("pause_longest_ns", "ns", "The longest pause of a group."),
    Field::number("bytes", "bytes", "State that was sent."),
    Field::number("duration_ns", "ns", "How long it took."),
];
const CHANGED: &[Field] = &[
    Field::number("generation", "", "Its number."),
    Field::number("flows_kept", "flows", "Flows that go on."),
    Field::number("flows_cut", "flows", "Flows that the change has ended."),
    Field::text("file", "Its file."),
];
const APPLIED: &[Field] = &[
    CHANGED[0],
    CHANGED[1],
    CHANGED[2],
    CHANGED[3],
    Field::number(
        "confirm_seconds",
        "s",
        "It goes back after this time, unless it is confirmed; absent without a trial.",
    ),
];
const CONFIRMED: &[Field] = &[CHANGED[0]];
const RUNTIME: &[Field] = &[Field::number("runtime", "", "Its number.")];
const KILLED: &[Field] = &[
    RUNTIME[0],
    Field::number("flows", "flows", "Flows that it had."),
    Field::number(
        "protected_flows",
        "flows",
        "Flows of these that had copies at another runtime.",
    ),
    Field::number(
        "packets",
        "packets",
        "Packets that are lost with it, on their way to it or in it.",
    ),
];
const WORKER: &[Field] = &[
    Field::text("worker", "`switch` or `runtime`, and its number."),
    Field::text("member", "The member that has it."),
    Field::number("incarnation", "", "Which incarnation of it."),
    Field::number("view", "", "Number of the view."),
];
const STORE: Field = Field::text("store", "The store's URI, without its secret.");
const PARTITION: Field = Field::text("partition", "The variables' owner: member, function and runtime.");
const AFTER: Field = Field::text("after", "How long it was so: a number and its unit.");
const TIMERS: Field = Field::text("timers", "How many.");
const PROBLEM: Field = Field::text("problem", "The problem.");

events! { PROCESS:
    BACKEND_UP = "backend_up", "A server that was down passes its checks.", SERVER;
    BACKEND_DOWN = "backend_down", "A server does not pass its checks any more.", SERVER_DOWN;
    CONFIGURATION_IN_FORCE = "configuration_in_force",
        "A configuration that the cluster has decided is in force at this member.",
        &[
            Field::number("configuration", "", "Its number."),
            Field::text("digest", "Digest of its text."),
        ];
    CONFIGURATION_APPLIED = "configuration_applied",
        "A configuration was put in force by hand, in a cluster of one process.",
        APPLIED;
    CONFIGURATION_ROLLED_BACK = "configuration_rolled_back",
        "The configuration before was put in force again by hand, in a cluster of one process.",
        CHANGED;
    CONFIGURATION_CONFIRMED = "configuration_confirmed",
        "A change on trial was confirmed, in a cluster of one process: it stays.",
        CONFIRMED;
    CONFIGURATION_LAGS = "configuration_lags",
        "A configuration that the cluster has decided is not in force at this member.",
        &[Field::number("configuration", "", "Its number."), PROBLEM];
    CONFIGURATION_WENT_BACK = "configuration_went_back",
        "A change on trial was not confirmed in time.",
        &[
            Field::text("file", "File of the configuration that was on trial."),
            Field::number("generation", "", "Its number."),
            Field::number("now", "", "Number of the configuration in force."),
            Field::number("flows_cut", "flows", "Flows that going back has ended."),
        ];
    CONFIGURATION_STAYS = "configuration_stays",
        "A change on trial was not confirmed in time, and cannot go back yet; it is tried again.",
        &[Field::number("generation", "", "Its number."), PROBLEM];
    FLOWS_MOVED = "flows_moved", "An order to move flows is over, by hand, of a drain or by load: its receipt.", MOVED;
    FLOWS_DELETED = "flows_deleted", "Flows were ended by hand.",
        &[
            Field::number("from", "", "Number of the runtime whose flows were meant; `null` where all were."),
            Field::number("flows_ended", "flows", "Flows that have ended."),
            Field::number("flows_busy", "flows", "Flows that go on, since calls of them wait."),
        ];
    RUNTIME_BEGAN = "runtime_began", "A runtime was added, by hand or by load.", RUNTIME;
    RUNTIME_ENDED = "runtime_ended", "A runtime was removed, by hand or by load.", RUNTIME;
    RUNTIME_KILLED = "runtime_killed", "A runtime of a cluster of one process was ended at once, as a failure does.", KILLED;
    RUNTIME_DRAINED = "runtime_drained", "A runtime is sent no new flows any more, by hand or by load.", RUNTIME;
    RUNTIME_RESUMED = "runtime_resumed", "A runtime that was drained is sent new flows again.", RUNTIME;
    WORKER_JOINED = "worker_joined",
        "A view of the coordinator has a worker that the one before had not; at a member's start, all that it has.",
        WORKER;
    WORKER_GONE = "worker_gone",
        "A view of the coordinator has a worker no more: it has left, or was removed.",
        WORKER;
    RUNTIME_ADDED = "runtime_added", "A runtime came by load, and took flows of another.", SCALED;
    LOAD_MOVED = "load_moved", "Flows of a runtime with much to do moved to another, by load.", SCALED;
    RUNTIME_REMOVED = "runtime_removed", "A runtime went by load.", SCALED;
    SCALING_FAILED = "scaling_failed", "A step of scaling by load did not come to its end.",
        &[
            Field::text("step", "`add`, `move` or `remove`."),
            Field::text("why", "Why."),
        ];
    SCALING_LIMIT = "scaling_limit", "Runtimes have much to do, and no step of scaling would help.",
        &[
            Field::text("why", "`runtimes_max`: as many are there as may be; `one_group`: the load is in one group of flows."),
            Field::number("runtime", "", "With `one_group`: the runtime that has this load."),
        ];
}

events! { STORES:
    MIRROR_BEHIND = "mirror_behind", "One of two stores fails; the other goes on alone.", &[STORE, PROBLEM];
    MIRROR_IN_STEP = "mirror_in_step", "One of two stores has all that the other has again.", &[STORE];
    STORE_FAILING = "store_failing", "A store fails; changes wait.",
        &[STORE, PROBLEM, Field::text("remedy", "The remedy.")];
    STORE_AGAIN = "store_again", "A store works again.", &[STORE, AFTER];
    STORE_FORGOT = "store_forgot", "A store had lost variables, which were written again.", &[STORE, PARTITION];
    STORE_FENCED = "store_fenced", "Another process has claimed variables: changes of this one are refused.",
        &[STORE, PARTITION];
    VARIABLES_LATE = "variables_late", "Changes are older than their bound, and the store does not have them.",
        &[
            STORE,
            PARTITION,
            Field::text("age", "How old they are: a number and its unit."),
            Field::text("bound", "How old they may become."),
        ];
    VARIABLES_IN_TIME = "variables_in_time", "The store has changes in time again.", &[STORE, PARTITION, AFTER];
    VARIABLES_LEFT = "variables_left", "A runtime ended before the store had its last changes.", &[STORE];
    TIMERS_TAKEN_OVER = "timers_taken_over",
        "Timers of a runtime that does not begin again were armed at others: at the start those of the same member, with a coordinator those of another.",
        &[STORE, PARTITION, TIMERS];
    TIMERS_LEFT = "timers_left",
        "Timers of a runtime that does not begin again found no room at others, and stay in the store.",
        &[STORE, PARTITION, TIMERS];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_has_two_meanings() {
        let mut names: Vec<&str> = PROCESS.iter().chain(STORES).map(|of| of.0.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    #[should_panic(expected = "`backend_up` has no field `why`")]
    #[cfg(debug_assertions)]
    fn a_field_that_is_not_declared_is_noticed() {
        BACKEND_UP.hold("why");
    }
}
