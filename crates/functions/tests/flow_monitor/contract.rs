//! The flow monitor's promises to the runtime, and hostile packets.

use crate::capture::Frame;
use crate::replay::Replay;
use crate::tables::records;
use flowkeep_functions::flow_monitor::{Config, Timeout};
use proptest::prelude::*;

fn config(seconds: u32) -> Config {
    Config {
        idle_timeout: Timeout::seconds(seconds),
        closed_timeout: Timeout::seconds(seconds),
    }
}

fn raw(time: u64, bytes: Vec<u8>) -> Frame {
    Frame {
        link: 101,
        time,
        wire_length: bytes.len() as u32,
        bytes,
    }
}

fn ipv4(protocol: u8, from: [u8; 4], to: [u8; 4], body: &[u8]) -> Vec<u8> {
    let total = (20 + body.len() as u16).to_be_bytes();
    let mut bytes = vec![0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend_from_slice(&from);
    bytes.extend_from_slice(&to);
    bytes.extend_from_slice(body);
    bytes
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const ROUTER: [u8; 4] = [198, 51, 100, 1];
const QUERY: [u8; 12] = [0x30, 0x39, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];

#[test]
fn a_flow_that_moves_leaves_no_record_behind() {
    let mut replay = Replay::new(config(60));
    replay.frame(&raw(1, ipv4(17, CLIENT, SERVER, &QUERY)));
    replay.migrate();
    let outcome = replay.finish();
    assert_eq!(records::read(&outcome.lines).len(), 1);
}

#[test]
fn a_quiet_flow_has_a_record_and_its_next_packet_another() {
    let second = 1_000_000_000;
    let mut replay = Replay::new(config(2));
    for time in [0, 2 * second, 5 * second] {
        replay.frame(&raw(time, ipv4(17, CLIENT, SERVER, &QUERY)));
    }
    let found = records::read(&replay.finish().lines);
    let seen: Vec<_> = found
        .iter()
        .map(|r| (r.start, r.end, r.packets, r.bytes))
        .collect();
    assert_eq!(seen, [(0.0, 2.0, [2, 0], [64, 0]), (5.0, 5.0, [1, 0], [32, 0])]);
}

#[test]
fn an_icmp_error_about_a_flow_is_counted_apart() {
    let query = ipv4(17, CLIENT, SERVER, &QUERY);
    let mut unreachable = vec![3, 1, 0, 0, 0, 0, 0, 0];
    unreachable.extend_from_slice(&query);
    let mut replay = Replay::new(config(60));
    replay.deliver_errors_to_flows = true;
    replay.frame(&raw(1, query));
    replay.frame(&raw(2, ipv4(1, ROUTER, CLIENT, &unreachable)));
    let lines = replay.finish().lines;
    assert!(lines.contains("\"icmp_errors\":1}"), "{lines}");
    let found = records::read(&lines);
    assert_eq!(
        (found.len(), found[0].packets, found[0].history.as_str()),
        (1, [1, 0], "D")
    );
}

/// Whole frames of several kinds, to be damaged.
fn seeds() -> Vec<(u32, Vec<u8>)> {
    let mut tcp = vec![
        0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 0x12, 0, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4,
    ];
    let syn = ipv4(6, CLIENT, SERVER, &tcp);
    tcp[13] = 0x18;
    tcp.extend_from_slice(b"payload");
    let mut tagged = vec![0; 12];
    tagged.extend_from_slice(&[0x81, 0, 0, 7, 8, 0]);
    tagged.extend_from_slice(&ipv4(6, SERVER, CLIENT, &tcp));
    let mut fragment = ipv4(17, CLIENT, SERVER, &QUERY);
    fragment[6] = 0x20;
    let mut error = vec![11, 0, 0, 0, 0, 0, 0, 0];
    error.extend_from_slice(&syn);
    let mut v6 = vec![0x60, 0, 0, 0, 0, 28, 44, 64];
    v6.extend_from_slice(&[0xfd; 32]);
    v6.extend_from_slice(&[6, 0, 0, 1, 0, 0, 0, 9]);
    v6.extend_from_slice(&tcp[..20]);
    vec![
        (101, syn),
        (1, tagged),
        (101, fragment),
        (101, ipv4(1, ROUTER, CLIENT, &error)),
        (101, v6),
    ]
}

fn damaged() -> impl Strategy<Value = Frame> {
    (
        prop::sample::select(seeds()),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        any::<prop::sample::Index>(),
        any::<bool>(),
        any::<u32>(),
        0u64..1 << 40,
    )
        .prop_map(|((link, mut bytes), changes, length, cut, wire_length, time)| {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if cut {
                bytes.truncate(length.index(bytes.len() + 1));
            }
            let wire_length = if cut { wire_length } else { bytes.len() as u32 };
            Frame {
                link,
                time,
                wire_length,
                bytes,
            }
        })
}

fn noise() -> impl Strategy<Value = Frame> {
    let link = prop::sample::select(vec![0u32, 1, 101, 113, 276, 9999]);
    (
        link,
        any::<u64>(),
        any::<u32>(),
        prop::collection::vec(any::<u8>(), 0..200),
    )
        .prop_map(|(link, time, wire_length, bytes)| Frame {
            link,
            time,
            wire_length,
            bytes,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]

    /// Hostile frames: no panic, and each is in one record, is an error of a flow without packets,
    /// or was refused with a reason.
    #[test]
    fn every_frame_is_recorded_once_or_refused(
        frames in prop::collection::vec(prop_oneof![4 => damaged(), 1 => noise()], 0..60),
        errors_to_flows: bool,
    ) {
        let mut replay = Replay::new(config(60));
        replay.deliver_errors_to_flows = errors_to_flows;
        for frame in &frames {
            replay.frame(frame);
        }
        let outcome = replay.finish();
        let found = records::read(&outcome.lines);
        let counted: u64 = found.iter().map(|r| r.packets[0] + r.packets[1] + r.icmp_errors).sum();
        let refused: u64 = outcome.refused.values().sum();
        prop_assert_eq!(counted + refused + outcome.errors_alone, frames.len() as u64);
    }
}
