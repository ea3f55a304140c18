//! State with a parameter.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Seen<T> {
    last: T,
}

fn main() {}
