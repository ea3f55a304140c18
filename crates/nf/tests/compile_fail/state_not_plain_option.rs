//! An `Option` of an address.

use nf::FlowState;
use std::net::IpAddr;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Seen {
    server: Option<std::net::SocketAddr>,
    client: Option<IpAddr>,
    packets: Option<u64>,
    address: IpAddr,
}

fn main() {}
