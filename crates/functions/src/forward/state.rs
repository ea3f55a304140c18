//! The state of a flow: the way out, each way.
//!
//! A look-up in the tables is for a flow's first packet; the others compare three numbers: was the
//! way found in the tables that are in force, in this very cluster's run, and for this destination?
//! A packet whose source is checked strictly is compared with the interface by which such packets
//! come, too.

use nf::FlowState;

/// Where packets of one direction go.
#[derive(FlowState, Clone, Copy, Default, PartialEq, Eq, Debug)]
#[flow_state(version = 2)]
#[repr(C)]
pub struct Way {
    /// Generation of the tables in which it was found; 0: none yet.
    #[flow_state(lazy)]
    pub generation: u32,
    /// The last four bytes of the destination address.
    #[flow_state(lazy)]
    pub destination: u32,
    /// Index in [`super::tables::Tables::hops`].
    #[flow_state(lazy)]
    pub hop: u32,
    /// The longest IP packet there, in bytes.
    #[flow_state(lazy)]
    pub mtu: u16,
    /// The interface by which packets must come in, as [`super::tables::Tables::arrival`] has it; 0
    /// for any.
    #[flow_state(lazy)]
    pub arrival: u16,
}

/// The state of a flow, 32 bytes. It goes along with a flow that moves, and counts on one host.
#[derive(FlowState, Clone, Copy, Default, PartialEq, Eq, Debug)]
#[flow_state(version = 2)]
#[repr(C)]
pub struct Flow {
    /// Opening direction, reply.
    #[flow_state(lazy)]
    pub ways: [Way; 2],
}

const _: () = assert!(size_of::<Flow>() == 32 && Flow::COMMITTED == 0);
