//! A `Vec` in state.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Debug)]
#[repr(C)]
struct Seen {
    servers: Vec<u16>,
    names: [&'static str; 2],
    pair: (u32, u32),
    by_port: std::collections::HashMap<u16, u64>,
}

fn main() {}
