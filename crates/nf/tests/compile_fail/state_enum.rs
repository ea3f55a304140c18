//! An enum as the whole state.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(u8)]
enum Phase {
    #[default]
    Opening,
    Established,
}

fn main() {}
