//! The derives that flow state also needs.

use nf::FlowState;

#[derive(FlowState)]
#[repr(C)]
struct Seen {
    packets: u64,
}

fn main() {}
