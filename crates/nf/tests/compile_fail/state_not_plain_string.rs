//! A `String`, which is a pointer and not `Copy` either.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Debug)]
#[repr(C)]
struct Seen {
    host: String,
}

fn main() {}
