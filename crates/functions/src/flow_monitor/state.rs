//! The monitor's state of a flow: 96 bytes, all of them lazy.
//!
//! Index 0 is the direction that opened the flow, 1 the reply's. Nothing here decides what happens
//! to a packet, so none of it has to be at the replica before a packet leaves.
//!
//! Invariants: the counts are of packets that the chain gave to the monitor, each once; `start` is
//! the earliest one's own time and `end` the latest one's: in a capture they need not come in the
//! order of their times.
//!
//! Not here: how it is written out (`record`).

use super::connection::{Connection, State};
use nf::{Direction, FlowState, Time};
use wire::packet::flag;
use wire::{Packet, protocol};

/// The state of a flow.
#[derive(FlowState, Clone, Copy, Default, PartialEq, Eq, Debug)]
#[flow_state(version = 2)]
#[repr(C)]
pub struct Flow {
    /// Time of the earliest packet.
    #[flow_state(lazy)]
    pub start: Time,
    /// Latest time of a packet.
    #[flow_state(lazy)]
    pub end: Time,
    /// Packets.
    #[flow_state(lazy)]
    pub packets: [u64; 2],
    /// Bytes of whole frames, as on the wire.
    #[flow_state(lazy)]
    pub bytes: [u64; 2],
    /// Bytes of IP packets by their headers' length fields.
    #[flow_state(lazy)]
    pub ip_bytes: [u64; 2],
    /// The state of the connection.
    #[flow_state(lazy)]
    pub connection: Connection,
}

const _: () = assert!(size_of::<Flow>() == 96 && Flow::COMMITTED == 0);

impl Flow {
    /// Takes in a packet of the flow.
    #[inline]
    pub fn on_packet(&mut self, packet: &Packet, direction: Direction) {
        let me = direction as usize;
        let time = Time::from_nanoseconds(packet.timestamp());
        if self.packets == [0; 2] || time < self.start {
            self.start = time;
        }
        self.end = self.end.max(time);
        // Counts that came from elsewhere may be anything.
        let add = |count: &mut u64, more| *count = count.saturating_add(more);
        add(&mut self.packets[me], 1);
        add(&mut self.bytes[me], packet.wire_length().into());
        add(&mut self.ip_bytes[me], ip_length(packet));
        if let Some(tcp) = packet.tcp() {
            self.connection.on_segment(&tcp, direction);
        } else if packet.protocol() == protocol::UDP && !packet.has(flag::LATER_FRAGMENT) {
            self.connection.on_datagram(direction);
        }
    }

    /// Takes in an ICMP error about the flow.
    pub fn on_icmp_error(&mut self) {
        let errors = &mut self.connection.icmp_errors;
        *errors = errors.saturating_add(1);
    }

    /// How the flow went so far.
    pub fn state(&self, protocol: u8) -> State {
        match protocol {
            protocol::TCP => self.connection.tcp_state(),
            protocol::UDP => self.connection.udp_state(),
            _ => State::Oth,
        }
    }
}

/// Length of the IP packet by its header.
#[inline]
fn ip_length(packet: &Packet) -> u64 {
    let before = packet.transport_offset() - packet.network_offset();
    before as u64 + u64::from(packet.transport_length())
}
