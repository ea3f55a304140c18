//! Which flows have the most packets, estimated from a sample.

use super::{FlowRate, Rate, Rates};
use crate::capture::Frame;
use std::collections::HashMap;
use wire::memory::Region;
use wire::{FlowKey, LinkType, Orientation, PacketBox, Pool};

/// Bytes of a sampled packet that are looked at: headers.
pub const SNAP: u32 = 128;
/// Flows counted in an interval; packets of further ones count for no flow.
const FLOWS_MAX: usize = 4096;
/// Flows shown.
const SHOWN: usize = 10;

/// Counts sampled packets by their flow.
pub struct Busiest {
    pool: Pool,
    flows: HashMap<FlowKey, (u64, u64)>,
    packets: u64,
}

impl Default for Busiest {
    fn default() -> Self {
        let region = Region::heap(Pool::region_length(1, 2048));
        Busiest {
            pool: Pool::new(region, 1, 2048, 0),
            flows: HashMap::new(),
            packets: 0,
        }
    }
}

impl Busiest {
    /// Counts a packet.
    pub fn count(&mut self, frame: &Frame) {
        self.packets += 1;
        let Some(mut packet) = self.pool.take() else {
            return;
        };
        if let Some(key) = key(&mut packet, frame)
            && (self.flows.len() < FLOWS_MAX || self.flows.contains_key(&key))
        {
            let (packets, bytes) = self.flows.entry(key).or_default();
            *packets += 1;
            *bytes += u64::from(frame.length);
        }
        self.pool.give(packet);
    }

    /// Answers each busiest flow's share of all packets. Then it counts from 0.
    pub fn take(&mut self, rates: &mut Rates) {
        let mut flows: Vec<_> = self.flows.drain().collect();
        let total = std::mem::take(&mut self.packets);
        flows.sort_by(|(one, a), (other, b)| b.cmp(a).then(one.cmp(other)));
        let share = rates.r#in.packets / total.max(1) as f64;
        let shown = flows.iter().take(SHOWN).map(|(key, (packets, bytes))| {
            let (source, destination) = key.ends(Orientation::Along);
            FlowRate {
                protocol: wire::key::protocol_name(key.protocol()).to_string(),
                source: source.to_string(),
                destination: destination.to_string(),
                r#in: Rate {
                    packets: *packets as f64 * share,
                    bytes: *bytes as f64 * share,
                },
            }
        });
        rates.busiest = shown.collect();
        rates.busiest_of = total;
    }
}

fn key(packet: &mut PacketBox, frame: &Frame) -> Option<FlowKey> {
    let link = LinkType::from_pcap(frame.link)?;
    if !packet.set_frame(&frame.bytes.0, link) {
        return None;
    }
    packet.set_wire_length(frame.length);
    wire::parse(packet).ok()?;
    FlowKey::of(packet).map(|(key, _)| key)
}
