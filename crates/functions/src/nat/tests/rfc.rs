//! The requirements of RFC 4787, 5382, 5508, 6888 by number, as far as they are a NAT's alone.

extern crate std;

mod addresses;
mod filtering;
mod mapping;
mod pools;
mod tcp_and_icmp;

use super::frames::{Tcp, assert_checksums, echo, ends, mend_ip, other, tcp, udp, unchanged_part};
use super::rig::{Out, Rig, pool_of};
use crate::nat::{
    Config, Filtering, Log, MappingBehavior, OtherProtocols, Refusals, StaticMapping, StaticProtocol,
};
use core::time::Duration;
use nf::{Addr, Side};
use std::collections::HashSet;
use std::vec;
use std::vec::Vec;
use wire::packet::flag;

const X1: ([u8; 4], u16) = ([10, 0, 0, 1], 5000);
const X2: ([u8; 4], u16) = ([10, 0, 0, 2], 6001);
const R1: ([u8; 4], u16) = ([198, 51, 100, 7], 5353);
const R2: ([u8; 4], u16) = ([192, 0, 2, 9], 7777);
const EXT: [u8; 4] = [203, 0, 113, 1];
const HOURS_2_04: Duration = Duration::from_secs(7440);

fn one_address() -> Config {
    pool_of("203.0.113.1/32")
}

fn with_filtering(filtering: Filtering) -> Rig {
    Rig::new(Config {
        filtering,
        ..one_address()
    })
}

/// Sends from inside and answers the external endpoint it left with.
fn open(rig: &mut Rig, from: ([u8; 4], u16), to: ([u8; 4], u16)) -> ([u8; 4], u16) {
    let sent = rig.send_inside(&udp(from, to)).sent();
    assert_checksums(&sent);
    let (outside, remote) = ends(&sent);
    assert_eq!(remote, to);
    outside
}
