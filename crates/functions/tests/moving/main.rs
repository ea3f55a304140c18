//! Each function while its flows move between two runtimes at every packet, and while these fail
//! there (`failing`): the result is the same as while they stay.
//!
//! And while their settings are taken again, alone and with a failure (`changing`).
//!
//! Each is tried on generated traffic (`traffic`) in which its particular cases happen: timers run
//! out, blocks of ports are exhausted, signatures lie across segments; and on a sample of the
//! shared captures, or all of them (`FLOWKEEP_EVERY_CAPTURE`). `flow_tables` compares with what
//! others have read in the captures.
//!
//! That these tests can fail: `planted_bugs` leaves a part of each function's state behind.

#[path = "../flow_monitor/capture.rs"]
mod capture;
mod captures;
mod changing;
mod counter;
mod failing;
mod firewall;
mod flow_monitor;
mod flow_tables;
mod forward;
mod host_limits;
mod ids;
mod kernel;
mod load_balancer;
mod nat;
mod planted_bugs;
#[path = "../flow_monitor/tables/mod.rs"]
mod tables;
mod traffic;
