//! The chain firewall → NAT → load balancer among hostile traffic: nothing allocates, nothing
//! grows, no established flow is let down, and every packet is accounted for.
//!
//! | file | content |
//! |---|---|
//! | `rig` | the chain on a runtime alone, or behind a switch with two runtimes over rings, in one thread |
//! | `frames` | packets by hand |
//! | `allocations` | established flows, new flows and expiry allocate nothing |
//! | `floods` | SYNs, refused packets, unsolicited ones, fragments, ICMP errors |
//! | `packets` | packets that lie |
//!
//! The environment variable `FLOWKEEP_FLOOD` says how many packets the flood of SYNs has; without
//! it, five million.

mod allocations;
mod floods;
mod frames;
mod packets;
mod rig;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static ALLOCATOR: testkit::CountingAllocator = testkit::CountingAllocator;

/// One test at a time: some measure the memory of the whole process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
