//! Words that the attribute does not know, or not there.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[flow_state(lazy)]
#[repr(C)]
struct Lazy {
    packets: u64,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[flow_state(verison = 1)]
#[repr(C)]
struct Mistyped {
    packets: u64,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[flow_state(version = "1")]
#[repr(C)]
struct Quoted {
    packets: u64,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Fields {
    #[flow_state(commit)]
    server: u64,
    #[flow_state(version = 2)]
    port: u64,
    #[flow_state(lasy)]
    packets: u64,
    #[flow_state]
    bytes: u64,
}

fn main() {}
