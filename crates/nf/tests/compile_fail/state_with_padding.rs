//! Gaps between fields and behind the last.

use nf::FlowState;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Between {
    port: u16,
    packets: u64,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Behind {
    packets: u64,
    port: u16,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Tuple(u8, u32);

fn main() {}
