//! A struct and an enum of the author's that lack the derive.

use nf::FlowState;

#[derive(Default, Clone, Copy, Debug)]
#[repr(u8)]
enum Phase {
    #[default]
    Opening,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Seen {
    phase: Phase,
}

fn main() {}
