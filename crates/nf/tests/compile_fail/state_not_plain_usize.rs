//! A number whose size depends on the machine.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Seen {
    packets: usize,
    last: std::time::Duration,
    letter: char,
}

fn main() {}
