//! An operator's commands to a running cluster, and their output, typed as a person types them.
//!
//! | module | content |
//! |---|---|
//! | `trial` | a configuration that goes back by itself |
//! | `checks` | servers that are checked: they stop, say nothing, answer 500, and return |
//! | `benched` | `bench system`: its measurements |
//! | `shapes` | the output of `--json`, and its schemas |
//! | `said` | a process's messages by its level, and a command's on absent things |
//! | `memory` | memory by `chain check`, and a cluster's |
//! | `tables` | functions' tables over runtimes, and functions' costs |
//! | `codes` | exit codes: one table for all commands |
//! | `remedies` | remedies of messages are written, and are good |
//! | `explain` | which way a packet would take |
//! | `exported` | exports of a NAT to collectors: IPFIX and syslog |
//! | `pool` | metrics of a NAT's ports by value |
//! | `replayed` | the time of a capture that is played again |
//! | `worded` | words of text and of JSON |
//! | `files` | files that a run writes |
//! | `listed` | flows by runtime, by state, page by page |
//! | `done` | actions by hand, in the event log |
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
