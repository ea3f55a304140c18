//! The simulator: the production switches, runtimes and functions in one thread, from one seed,
//! with faults, and checkers that look on.
//!
//! Nothing here is a model of Flowkeep: its own `Switch::step` and `Runtime::step` are called, in
//! an order and at times that the seed chooses, over links, ports, clocks and a network that the
//! simulator makes. A run is a pure function of its [`Scenario`] and seed.
//!
//! ```text
//!   seed ─► script (shape, talks, faults) ─► world (events in time) ─► checkers ─► outcome
//!                       ▲                                                  │
//!                       └──────── shrink: the same with less ◄── violation ┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`scenario`] | configurations, and what hosts may expect of them |
//! | `script`, `kinds`, `fault`, `failures`, `cuts`, `goings`, `changes`, `neighbours`, `processes` | what a run does |
//! | `world` | doing it: workers, hosts, parts of a run |
//! | `network`, `link`, `apart`, `frame` | the ways between hosts and workers, and between workers of one process and of several |
//! | `coordinator`, `agent` | a coordinator's process with its log, and the agents of members that have joined it |
//! | `candidate`, `store` | several coordinators of which one is elected, and the store by which it is |
//! | [`checkers`] | what must hold |
//! | `streams`, [`slow_function`], [`witness`] | the bytes of talks where streams are read; a function that waits, and one that counts |
//! | [`kernel`] | how the function that routes is told which neighbours there are |
//! | `timeline` | what happened: a digest, and words |
//! | [`mod@run`], `shrink` | runs of seeds; making a failure small |
//!
//! Not here: functions but those two. The caller that runs scenarios hands over how to make a plan
//! of a configuration ([`run::Planner`]), since functions and runtime do not see each other. The
//! simulation's scope, and how to add a checker: `docs/simulator.md`.

mod agent;
mod apart;
mod candidate;
mod changes;
pub mod checkers;
mod coordinator;
mod cuts;
mod failures;
mod fault;
mod frame;
mod goings;
pub mod kernel;
mod kinds;
mod link;
mod neighbours;
pub mod network;
mod processes;
mod random;
pub mod run;
pub mod scenario;
mod script;
mod shrink;
pub mod slow_function;
mod store;
mod streams;
mod timeline;
pub mod witness;
mod world;

pub use checkers::Violation;
pub use run::{Failure, Moved, Outcome, Planner, explain, run};
pub use scenario::Scenario;

/// Simulated time in nanoseconds since the run began.
pub type Time = u64;
