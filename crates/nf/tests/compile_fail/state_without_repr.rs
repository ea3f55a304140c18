//! A struct whose layout is not declared.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
struct Seen {
    packets: u64,
}

fn main() {}
