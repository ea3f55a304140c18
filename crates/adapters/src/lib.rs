//! Ports, links and memory: the parts that touch the operating system.
//!
//! The runtime is handed everything it needs; this library has the things that are handed to it in
//! production.
//!
//! | module | what |
//! |---|---|
//! | [`pcap`] | captures as ports: read by their own timing or at full speed, written as pcap or pcapng |
//! | `pipe` | files that may be pipes, whose other end is waited for until a signal comes |
//! | [`memory`] | frames from and to the same process, for tests and benches |
//! | [`afpacket`] | network interfaces by packet sockets |
//! | [`afxdp`] | network interfaces by AF_XDP: the kernel receives into, and sends from, the worker's own buffers |
//! | [`interface`] | what live ports need to know of an interface, and what they put into the kernel |
//! | [`ring`] | the link between two workers of one process |
//! | [`shm`] | the link between workers of two processes of one host: shared memory |
//! | [`udp`], [`ether`] | links between workers of two hosts: channel frames in Geneve over UDP, or on Ethernet (`datagrams`: many in a system call) |
//! | [`keys`] | keys of such links, from files |
//! | [`netlink`] | the kernel's links, addresses, routes and neighbours, and their changes |
//! | [`generate`] | traffic made from a profile |
//! | [`reflect`] | an outside world that answers |
//! | [`tee`] | ports made of ports: recorded ones, and an input joined with an output |
//! | [`uri`], [`open`] | ports by name: `pcap:in.pcap?loop=3` |
//! | [`report`] | what went wrong at a port, in words, for the operator |
//! | [`buffers`] | pools of packet buffers as ports need them |
//! | [`pages`] | memory in 2 MiB pages |
//! | [`idle`] | where threads without work sleep |
//! | [`clock`] | time, cycles, pinning |
//! | [`machine`] | facts about the machine, for benches |
//!
//! Not here: threads (the binary starts them), configuration files (`flowkeep`), anything that
//! knows what a flow is.

pub mod afpacket;
pub mod afxdp;
pub mod buffers;
pub mod clock;
mod datagrams;
pub mod ether;
pub mod generate;
pub mod idle;
pub mod inherited;
pub mod interface;
pub mod keys;
pub mod large;
pub mod look;
pub mod machine;
pub mod memory;
pub mod netlink;
pub mod open;
pub mod pages;
pub mod pcap;
mod pipe;
pub mod reflect;
pub mod report;
pub mod ring;
pub mod shm;
pub mod tee;
pub mod udp;
pub mod uri;

use runtime::env::{Burst, give_or_keep};
use wire::packet::Kind;
use wire::{PacketBox, Pool};

/// Empties a burst at the end of its way: `each` sees every packet, its buffer goes home.
///
/// A buffer of another worker's pool cannot go there from here: it stays in the burst as
/// [`Kind::Empty`], and the worker sends it home over a link.
#[inline]
pub(crate) fn consume(pool: &mut Pool, burst: &mut Burst, mut each: impl FnMut(&PacketBox)) {
    let mut foreign = Burst::new();
    for packet in burst.drain(..) {
        if packet.kind() != Kind::Empty {
            each(&packet);
        }
        if let Some(mut packet) = give_or_keep(pool, packet) {
            packet.set_kind(Kind::Empty);
            foreign.push(packet);
        }
    }
    *burst = foreign;
}

/// How many packets a burst has, buffers on their way home not counted.
pub(crate) fn count_packets(burst: &Burst) -> u64 {
    burst.iter().filter(|packet| packet.kind() != Kind::Empty).count() as u64
}
