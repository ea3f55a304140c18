//! Tests of the generator: sound packets, true conversations, the asked-for quantities, and the
//! published distributions.

mod conversations;
mod distributions;
mod hostile;
mod profiles;
mod quantities;

use super::distribution::{Alias, Sampler, cdf_text, mixture};
use super::random::Random;
use super::tuples::Tuples;
use super::wheel::Wheel;
use super::*;
use crate::reflect::{Mode, ReflectPort, ReflectSettings};
use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use proptest::prelude::*;
use runtime::env::{BURST, Burst, Port};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use wire::memory::Region;
use wire::tcp::flags::{ACK, FIN, PSH, SYN};
use wire::{Endpoint, FlowKey, Pool};

/// A packet taken out of its buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Made {
    at: u64,
    side: Side,
    frame: Vec<u8>,
}

/// The fields of a packet that the tests look at.
struct Seen {
    at: u64,
    side: Side,
    key: FlowKey,
    from: Endpoint,
    to: Endpoint,
    tcp: Option<(u8, u32, u32)>,
    length: u32,
    ip_length: u64,
}

fn pool(buffers: usize) -> Pool {
    Pool::new(Region::heap(Pool::region_length(buffers, 9216)), buffers, 9216, 0)
}

/// Runs a generator to its end with bursts of up to `burst_max`.
fn run(profile: &Profile, burst_max: usize) -> Vec<Made> {
    let mut generator = Generator::new(profile).unwrap();
    let mut pool = pool(burst_max);
    let mut made = Vec::new();
    let mut now = 0;
    while !generator.finished() {
        let mut burst = Burst::new();
        generator.receive(now, &mut pool, &mut burst);
        for packet in burst.drain(..) {
            made.push(Made {
                at: packet.timestamp(),
                side: packet.side(),
                frame: packet.frame().to_vec(),
            });
            pool.give(packet);
        }
        now = generator.next_at().unwrap_or(now);
    }
    assert_eq!(generator.counters().received_packets, made.len() as u64);
    assert_eq!(pool.free(), burst_max, "no buffer is lost");
    made
}

fn see(made: &Made) -> Seen {
    let mut pool = pool(1);
    let mut packet = pool.take().unwrap();
    assert!(packet.set_frame(&made.frame, wire::LinkType::Ethernet));
    wire::parse(&mut packet).unwrap();
    let seen = Seen {
        at: made.at,
        side: made.side,
        key: FlowKey::of(&packet).unwrap().0,
        from: packet.source(),
        to: packet.destination(),
        tcp: packet
            .tcp()
            .map(|t| (t.flags(), t.sequence(), t.acknowledgement())),
        length: packet.tcp().map_or(0, |t| t.payload_length()),
        ip_length: packet.network().len() as u64,
    };
    pool.give(packet);
    seen
}

fn seen(profile: &Profile) -> Vec<Seen> {
    run(profile, BURST).iter().map(see).collect()
}

fn limited(packets: u64) -> Profile {
    Profile {
        packets_max: Some(packets),
        ..Profile::default()
    }
}

fn with_class(profile: Profile, class: Class) -> Profile {
    Profile {
        classes: vec![class],
        ..profile
    }
}

/// Everything at once.
fn mixed() -> Profile {
    Profile {
        flows: 50,
        packets_max: Some(5000),
        ipv6_share: 0.4,
        replies: 0.7,
        round_trip: 0.03,
        spacing: Spacing::Poisson,
        classes: vec![
            Class {
                tcp: 0.5,
                size: Size::Imix,
                life: Life::Packets(Distribution::Exponential(6.0)),
                ..Class::default()
            },
            Class {
                size: Size::Uniform(64, 1518),
                life: Life::Bytes(Distribution::Pareto {
                    shape: 1.2,
                    least: 500.0,
                }),
                rate: Some(25.0),
                ..Class::default()
            },
            Class {
                tcp: 0.8,
                life: Life::Seconds(Distribution::Uniform(0.1, 2.0)),
                ..Class::default()
            },
        ],
        ..Profile::default()
    }
}

/// A folder of the shared data, or word that it is not there.
pub(super) fn shared_data(folder: &str) -> Option<PathBuf> {
    let data = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = data.join(folder);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("not run: needs the shared captures (FLOWKEEP_DATA)");
    None
}
