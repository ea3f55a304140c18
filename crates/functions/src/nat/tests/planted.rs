//! Bugs that are planted in how blocks are given back ([`wire::planted`]), and the checks that
//! notice each.

extern crate std;

use super::frames::{V4, echo, udp};
use super::rig::{Rig, pool_of};
use crate::nat::Config;
use nf::{Addr, NetworkFunction};
use wire::planted;

const HOST: [u8; 4] = [10, 0, 0, 5];
const SERVER: V4 = ([198, 51, 100, 7], 5353);

/// Two blocks: a block that is empty is released at once.
fn rig() -> Rig {
    Rig::new(Config {
        ports: (1024, 1024 + 2 * 256 - 1),
        ..pool_of("203.0.113.1/32")
    })
}

/// The results without the bug, and with it.
fn without_and_with<T>(bug: &'static str, look: impl Fn() -> T) -> [T; 2] {
    let without = look();
    planted::choose(bug);
    let with = look();
    planted::choose("");
    [without, with]
}

/// Whether a host that pings has a block when its other flow is over.
fn pings_keep_their_block() -> bool {
    let mut rig = rig();
    rig.send_inside(&echo(HOST, SERVER.0, 77, true)).sent();
    rig.send_inside(&udp((HOST, 4000), SERVER)).sent();
    assert_eq!(rig.blocks.len(), 1);
    let last = *rig.actors.keys().max().unwrap();
    rig.expire(last);
    rig.blocks.values().any(|host| *host == Addr::v4(HOST))
}

#[test]
fn a_block_with_identifiers_only_that_counts_as_empty_is_noticed() {
    let seen = without_and_with("icmp_block_counts_as_empty", pings_keep_their_block);
    assert_eq!(seen, [true, false]);
}

/// Blocks that are free when one comes home that is a host's by now.
fn free_blocks() -> u32 {
    let mut rig = rig();
    rig.send_inside(&udp((HOST, 4000), SERVER)).sent();
    let block = *rig.blocks.keys().next().unwrap();
    rig.nats[0].block_returned(block);
    rig.nats[0].pool().unwrap().free
}

#[test]
fn a_block_with_a_slot_that_is_taken_back_is_noticed() {
    assert_eq!(without_and_with("slotted_block_taken_back", free_blocks), [1, 2]);
}
