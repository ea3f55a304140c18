//! A committed field below a lazy one.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Seen {
    first: u64,
    #[flow_state(lazy)]
    packets: u64,
    server: u64,
}

fn main() {}
