//! A packed struct.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C, packed)]
struct Seen {
    port: u16,
    packets: u64,
}

fn main() {}
