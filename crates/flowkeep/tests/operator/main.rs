//! What an operator does to a running cluster, and hears of it, typed as a person types it.
//!
//! | module | what |
//! |---|---|
//! | `trial` | a configuration that goes back by itself |
//! | `checks` | servers that are checked: they stop, say nothing, answer 500, and return |
//! | `benched` | `bench system`: what it measures |
//! | `shapes` | what `--json` prints, and its schemas |
//! | `said` | what a process says by its level, and a command of what is not there |
//! | `memory` | what `chain check` says of memory, and what a cluster takes |
//! | `tables` | functions' tables over runtimes, and what functions cost |
//! | `codes` | exit codes: one table, whichever command is said |
//! | `remedies` | what messages say to write is written, and is good |
//! | `explain` | which way a packet would take |
//! | `exported` | what collectors get of a NAT: IPFIX and syslog |
//! | `pool` | metrics of a NAT's ports by value |
//! | `replayed` | the time of a capture that is played again |
//! | `worded` | words of text and of JSON |
//! | `files` | files that a run writes |
//! | `listed` | flows by runtime, by state, page by page |
//! | `done` | what is done by hand, in the event log |
//! | `events` | flows as they open, end, move and go on |

mod benched;
mod checks;
mod codes;
mod done;
mod events;
mod explain;
mod exported;
mod files;
mod listed;
mod memory;
mod pool;
mod refusals;
mod remedies;
mod replayed;
#[path = "../running/mod.rs"]
mod running;
mod said;
#[path = "../schema/mod.rs"]
mod schema;
mod shapes;
mod tables;
mod trial;
mod worded;
#[path = "../words/mod.rs"]
mod words;
