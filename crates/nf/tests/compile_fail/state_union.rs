//! A union.

use nf::FlowState;

#[derive(FlowState, Clone, Copy)]
#[repr(C)]
union Either {
    packets: u64,
    bytes: u64,
}

fn main() {}
